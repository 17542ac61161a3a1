//! HTTP: reports about the cluster, and the few changes that an operator makes. It has its own
//! thread, so that a slow reader of `/table` delays neither data nor agreement.
//!
//! | | |
//! |---|---|
//! | `GET /status` | the cluster as JSON |
//! | `GET /table` | who holds what, as JSON; may need the token |
//! | `GET /healthz` | 200 while all threads of the node run and answer |
//! | `GET /readyz` | 200 while the node may be sent clients: see `probes.rs` |
//! | `GET /metrics` | Prometheus |
//! | `GET /loads`, `GET /placement` | the load of each partition, as JSON; may need the token |
//! | `GET /moves` | what moves, how far it has come and why, as JSON; may need the token |
//! | `GET /balance` | whether, when and how fast copies move for balance |
//! | `GET /events` | the events that this node has learned of; see `events.rs` for its options |
//! | `GET /keyspaces` | the keyspaces, as JSON |
//! | `GET /rebalance` | what a plan would move, step by step, as JSON; may need the token |
//! | `POST /rebalance` | applies such a plan to the table that it was made for; needs the token |
//! | `PATCH /rebalance` | sets the reasons for which copies move by themselves; needs the token |
//! | `PATCH /balance` | pauses or resumes balancing, sets its window and rate; needs the token |
//! | `POST /moves/cancel` | cancels one move, or all moves for balance; needs the token |
//! | `POST` and `DELETE /members/NAME/drain` | empties a member, or fills it again; needs the token
//! |
//! | `DELETE /members/NAME` | removes a silent member that will not return; needs the token |
//! | `POST /recover` | continues without dead members; needs the token |
//! | `POST /keyspaces` | creates a keyspace; needs the token |
//! | `PATCH` and `DELETE /keyspaces/NAME` | alters or drops a keyspace; needs the token |
//!
//! A report that shows keys, or where data lies, needs the token if the data is protected: if RESP
//! has a password, or if HTTP listens beyond this machine.

mod changes;
pub mod client;
mod events;
mod failure;
mod guard;
mod listener;
mod metrics;
mod probes;
mod reports;
mod routes;

use crate::admin::Admin;
use crate::control::ControlHandle;
use crate::data::DataHandle;
use crate::http::metrics::Metrics;
use crate::net::identity::Identity;
use crate::report::events::{ClusterEvent, Events};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// What the admin thread needs to start.
pub(crate) struct ServerOptions {
    /// The listener of HTTP, if HTTP is on.
    pub(crate) listener: Option<std::net::TcpListener>,
    /// Reports and changes.
    pub(crate) admin: Admin,
    /// The control thread, for probes and metrics.
    pub(crate) control: ControlHandle,
    /// The data thread.
    pub(crate) data: DataHandle,
    /// The node's certificate.
    pub(crate) identity: Arc<Identity>,
    /// The token that a request for a change must carry. `None`: no request may change anything.
    pub(crate) token: Option<String>,
    /// Whether reports that show keys, or where data lies, need the token as well.
    pub(crate) guarded: bool,
    /// Names of hosts that this node answers to.
    pub(crate) hosts: Vec<String>,
}

/// What the routes share.
#[derive(Debug)]
struct State {
    admin: Admin,
    control: ControlHandle,
    data: DataHandle,
    identity: Arc<Identity>,
    token: Option<String>,
    guarded: bool,
    hosts: Vec<String>,
    metrics: Metrics,
    leaving: AtomicBool,
    /// Whether the node stops. Endless answers (streams of events) end then.
    stopped: watch::Receiver<bool>,
}

/// The admin thread: HTTP, metrics, events.
#[derive(Debug)]
pub struct Server {
    state: Arc<State>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Server {
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
pub(crate) fn start(options: ServerOptions) -> io::Result<Server> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (stop, stopped) = watch::channel(false);
    let state = Arc::new(State {
        admin: options.admin,
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
    Ok(Server {
        state,
        stop,
        thread,
    })
}

async fn run(
    listener: Option<std::net::TcpListener>,
    state: Arc<State>,
    events: Events,
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
async fn watch_events(state: Arc<State>, mut events: Events, mut stopped: watch::Receiver<bool>) {
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = wait(&mut stopped) => return,
        };
        match event {
            // The control thread has logged it.
            Some(ClusterEvent::Event(logged)) => state.metrics.event(&logged.event),
            Some(ClusterEvent::Lagged(missed)) => {
                tracing::warn!("{missed} events are not counted in /metrics")
            }
            None => return,
        }
    }
}
