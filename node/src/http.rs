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
//! | `GET /trust` | fingerprints of secrets, and when the certificate ends, as JSON; needs the token |
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
mod probes;
mod reports;
mod routes;

use crate::admin::Admin;
use crate::control::ControlHandle;
use crate::data::DataHandle;
pub(crate) use guard::Token;

use crate::metrics::Metrics;
use crate::net::identity::Identity;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// What the admin thread needs to start.
pub(crate) struct ServerOptions {
    /// The listener.
    pub(crate) listener: std::net::TcpListener,
    /// Reports and changes.
    pub(crate) admin: Admin,
    /// The control thread, for probes.
    pub(crate) control: ControlHandle,
    /// The data thread.
    pub(crate) data: DataHandle,
    /// The node's metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// The node's credentials.
    pub(crate) identity: Arc<Identity>,
    /// What a request for a change must carry.
    pub(crate) token: Token,
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
    token: Token,
    guarded: bool,
    hosts: Vec<String>,
    metrics: Arc<Metrics>,
    leaving: AtomicBool,
    /// Whether the node stops. Endless answers (streams of events) end then.
    stopped: watch::Receiver<bool>,
}

/// The admin thread, which serves HTTP.
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
        metrics: options.metrics,
        leaving: AtomicBool::new(false),
        stopped: stopped.clone(),
    });
    let listener = options.listener;
    let router = routes::router(state.clone());
    let run = async move {
        match listener::Bounded::new(listener) {
            Ok(listener) => listener.serve(router, stopped).await,
            Err(e) => tracing::error!("HTTP cannot be served: {e}"),
        }
    };
    let thread = std::thread::Builder::new()
        .name("doyen-admin".into())
        .spawn(move || runtime.block_on(run))?;
    Ok(Server {
        state,
        stop,
        thread,
    })
}

/// Resolves when the node stops.
async fn wait(stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, and the node with it.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
