//! HTTP: how a cluster is looked at, and the few changes that an operator makes. It has a thread of
//! its own, so that a slow reader of `/table` delays neither data nor agreement.
//!
//! | | |
//! |---|---|
//! | `GET /status` | the cluster as JSON |
//! | `GET /table` | who holds what, as JSON; may need the token |
//! | `GET /healthz` | 200 while all threads of the node run and answer |
//! | `GET /readyz` | 200 while the node is a member, keys have owners, all its threads run, it is not leaving and has met no other cluster that holds data |
//! | `GET /metrics` | Prometheus |
//! | `GET /loads`, `GET /placement` | what each partition is asked for, as JSON; may need the token |
//! | `GET /moves` | what moves, how far it has come and why, as JSON; may need the token |
//! | `GET /balance` | whether, when and how fast copies move for balance |
//! | `GET /events` | what has happened, as far as this node knows; `?since=NUMBER`, `?wait=MILLISECONDS`, `?follow=true` |
//! | `GET /keyspaces` | the keyspaces, as JSON |
//! | `GET /rebalance` | what a plan would move, step by step, as JSON; may need the token |
//! | `POST /rebalance` | applies such a plan to the table that it was made for; needs the token |
//! | `PATCH /rebalance` | says for which reasons copies move by themselves; needs the token |
//! | `PATCH /balance` | pauses balancing, lets it go on, says when and how fast; needs the token |
//! | `POST /moves/cancel` | gives a move up, or all that are for balance; needs the token |
//! | `POST` and `DELETE /members/NAME/drain` | empties a member, or lets it hold data again; needs the token |
//! | `DELETE /members/NAME` | goes on without a silent member that will not return; needs the token |
//! | `POST /recover` | goes on without dead members; needs the token |
//! | `POST /keyspaces`, `PATCH` and `DELETE /keyspaces/NAME` | creates, alters and drops a keyspace; needs the token |
//!
//! What shows keys, or where data lies, needs the token where the data is protected: once RESP has
//! a password, and wherever HTTP listens beyond this machine.

pub mod client;
mod guard;
mod listener;
mod metrics;
mod routes;

use crate::control::ControlHandle;
use crate::data::DataHandle;
use crate::http::metrics::Metrics;
use crate::net::identity::Identity;
use doyen_gossip::agreement::Event;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tokio::sync::{broadcast, watch};

/// What the admin thread works with.
pub(crate) struct AdminOptions {
    /// Where HTTP listens, if it does.
    pub(crate) listener: Option<std::net::TcpListener>,
    /// The control thread.
    pub(crate) control: ControlHandle,
    /// The data thread.
    pub(crate) data: DataHandle,
    /// The node's certificate.
    pub(crate) identity: Arc<Identity>,
    /// What changes must carry; `None`: nothing may be changed.
    pub(crate) token: Option<String>,
    /// Whether what shows keys, or where data lies, needs it as well.
    pub(crate) guarded: bool,
    /// Names of hosts that this node answers to.
    pub(crate) hosts: Vec<String>,
}

/// What the routes share.
#[derive(Debug)]
struct State {
    control: ControlHandle,
    data: DataHandle,
    identity: Arc<Identity>,
    token: Option<String>,
    guarded: bool,
    hosts: Vec<String>,
    metrics: Metrics,
    leaving: AtomicBool,
    /// Whether the node stops: what goes on without end ends then.
    stopped: watch::Receiver<bool>,
}

/// The admin thread: HTTP, metrics, events.
#[derive(Debug)]
pub struct Admin {
    state: Arc<State>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Admin {
    /// From now on `/readyz` says that this node is leaving.
    pub(crate) fn leaving(&self) {
        self.state.leaving.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the admin thread ended badly");
        }
    }
}

/// Starts the admin thread.
pub(crate) fn start(options: AdminOptions) -> io::Result<Admin> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (stop, stopped) = watch::channel(false);
    let state = Arc::new(State {
        control: options.control,
        data: options.data,
        identity: options.identity,
        token: options.token,
        guarded: options.guarded,
        hosts: options.hosts,
        metrics: Metrics::new(),
        leaving: AtomicBool::new(false),
        stopped: stopped.clone(),
    });
    let events = state.control.events();
    let run = run(options.listener, state.clone(), events, stopped);
    let thread = std::thread::Builder::new()
        .name("doyen-admin".into())
        .spawn(move || runtime.block_on(run))?;
    Ok(Admin {
        state,
        stop,
        thread,
    })
}

async fn run(
    listener: Option<std::net::TcpListener>,
    state: Arc<State>,
    events: broadcast::Receiver<Event>,
    stopped: watch::Receiver<bool>,
) {
    let watching = watch_events(state.clone(), events, stopped.clone());
    let Some(listener) = listener.map(listener::Bounded::new) else {
        return watching.await;
    };
    match listener {
        Ok(listener) => {
            tokio::join!(watching, listener.serve(routes::router(state), stopped));
        }
        Err(e) => {
            tracing::error!("HTTP cannot be served: {e}");
            watching.await;
        }
    }
}

/// Resolves when the node stops.
async fn wait(stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, and the node with it.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Counts what happens in the cluster.
async fn watch_events(
    state: Arc<State>,
    mut events: broadcast::Receiver<Event>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = wait(&mut stopped) => return,
        };
        match event {
            // The control thread has logged it.
            Ok(event) => state.metrics.event(&event),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                tracing::warn!("{missed} events are not counted in /metrics")
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}
