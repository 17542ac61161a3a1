//! HTTP: reports about the cluster, and the few changes that an operator makes. It has its own
//! thread, so that a slow reader of `/table` delays neither data nor agreement.
//!
//! Each report and each change is one row of `api.rs`; docs/http.md describes them. `guard.rs` lets
//! callers in, by their tokens (`credentials.rs`), and audits changes. What a row needs is said
//! there, and a path that has no row is not served.

pub mod api;
pub mod client;
#[cfg(feature = "console")]
mod console;
mod credentials;
mod events;
mod failure;
mod guard;
mod listener;
mod probes;
mod reports;
mod routes;
mod row;
mod server_sent;
mod token;

pub(crate) use credentials::{Credentials, TokenFile};
pub use row::{ChangeBody, HttpReport, Verb};
pub use token::{TOKEN_PREFIX, check_token_name, new_token, token_hash};

use crate::admin::Admin;
use crate::control::ControlHandle;
use crate::data::DataHandle;
use crate::doctor::Examiner;
use crate::metrics::Metrics;
use crate::net::identity::Identity;
use crate::net::identity::ports::Ports;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// Reads any bytes as what strangers and operators send and write about tokens: a header, the body
/// of a new token, and a file of tokens.
#[cfg(feature = "fuzz")]
pub fn fuzz(bytes: &[u8]) {
    use axum::http::{HeaderMap, HeaderValue, header};
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        headers.insert(header::AUTHORIZATION, value);
    }
    if let Some(token) = guard::token(&headers) {
        assert!(!token.is_empty() && token.len() + "bearer ".len() <= bytes.len());
        let _ = crate::net::identity::hash_of(token);
    }
    api::read(bytes);
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(tokens) = crate::config::tokens_of(text, "a file")
    {
        // What was read can be written, and is read again.
        let lines: Vec<&str> = tokens.iter().map(|token| token.as_str()).collect();
        let again = crate::config::tokens_of(&lines.join("\n"), "a file");
        assert!(again.is_ok_and(|again| again == tokens));
    }
}

/// What the admin thread needs to start.
pub(crate) struct ServerOptions {
    /// The listener.
    pub(crate) listener: std::net::TcpListener,
    /// TLS, which all clients must speak then.
    pub(crate) tls: Option<Arc<Ports>>,
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
    /// The tokens that it takes.
    pub(crate) credentials: Credentials,
    /// Whether RESP clients need a password, so that an open node does not show keys to everyone.
    pub(crate) guarded: bool,
    /// Names of hosts that this node answers to.
    pub(crate) hosts: Vec<String>,
}

/// What the routes share.
#[derive(Debug)]
struct HttpState {
    admin: Admin,
    control: ControlHandle,
    data: DataHandle,
    identity: Arc<Identity>,
    examiner: Examiner,
    credentials: Credentials,
    throttle: guard::Guard,
    guarded: bool,
    hosts: Vec<String>,
    metrics: Arc<Metrics>,
    leaving: AtomicBool,
    #[cfg(feature = "console")]
    feed: console::ConsoleFeed,
    /// Whether the node stops. Endless answers (streams of events) end then.
    stopped: watch::Receiver<bool>,
}

/// The admin thread, which serves HTTP.
#[derive(Debug)]
pub struct Server {
    state: Arc<HttpState>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Server {
    /// From now on `/readyz` says that this node is leaving.
    pub(crate) fn leaving(&self) {
        self.state.leaving.store(true, Ordering::Relaxed);
    }

    /// Reads the file of tokens again. Returns false if there is none.
    pub(crate) fn reload(&self) -> bool {
        self.state.credentials.reload()
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
    let examiner = Examiner::new(
        options.control.clone(),
        options.data.clone(),
        options.identity.clone(),
    );
    let state = Arc::new(HttpState {
        examiner,
        admin: options.admin,
        control: options.control,
        data: options.data,
        identity: options.identity,
        credentials: options.credentials,
        throttle: guard::Guard::new(),
        guarded: options.guarded,
        hosts: options.hosts,
        metrics: options.metrics,
        leaving: AtomicBool::new(false),
        #[cfg(feature = "console")]
        feed: console::ConsoleFeed::new(),
        stopped: stopped.clone(),
    });
    let listener = options.listener;
    let router = routes::router(state.clone());
    #[cfg(feature = "console")]
    let sampled = state.clone();
    let run = async move {
        #[cfg(feature = "console")]
        {
            tokio::spawn(console::sample(sampled.clone()));
            tokio::spawn(console::answer_members(sampled));
        }
        match listener::BoundedListener::new(listener, options.tls) {
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
