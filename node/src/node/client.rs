//! A node that is a client: a program that uses the cluster and is no member of it.
//!
//! ```text
//!   callers (any task) ── inbox ──> data thread: Shard without partitions ── QUIC ──> primary
//!                                       table <── any member, whenever there is a newer one
//! ```
//! It is the data thread of a node, without partitions and RESP. A small thread stands in for the
//! control thread: it resolves the names of seeds again, because they may change, and hears if the
//! data thread ends. The client forwards, retries and keeps order as a member does.

use super::builder::identity_of;
use super::{LOOK, Node, NodeDriver, NodeInner, NodeParts, Threads};
use crate::address::AddressFamilies;
use crate::config::{ClientConfig, Options, Trust};
use crate::control::seeds::{self, Choice, Resolved};
use crate::control::shared::Shared;
use crate::control::{ControlHandle, Upcall};
use crate::data::front_end::NoFrontEnd;
use crate::data::{self, DataHandle, DataOptions};
use crate::error::Error;
use crate::hooks::Hooks;
use crate::net::endpoint::DialFailure;
use crate::net::identity::Identity;
use crate::net::identity::secret::SecretRole;
use doyen_engine::Limits;
use doyen_gossip::Time;
use doyen_placement::level::LEVELS;
use doyen_placement::{Addresses, MapEntry, MapWish, MemberId, WantedMap};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// How long `start` of a client takes at most, by default.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How often `start` checks whether a member has accepted this client.
const ACCEPTED_LOOK: Duration = Duration::from_millis(5);
/// How often names of seeds are resolved again.
const NAMES_INTERVAL: Duration = Duration::from_secs(30);
/// How often the dates of the files with secrets or certificates are looked at.
const IDENTITY_LOOK: Duration = Duration::from_secs(2);
/// The largest value that a client accepts; nodes allow less. Memory is allocated only as bytes
/// arrive.
const VALUE_BYTES_MAX: usize = 512 << 20;
/// How long making a map may take.
const MAP_MAX: Duration = Duration::from_secs(10);
/// How long one member may take to make a map, before another one is asked.
const MAP_ANSWER_MAX: Duration = Duration::from_secs(2);

/// Connects to a cluster. When this returns, the client knows which node leads which key.
pub(super) async fn start(
    options: Options,
    timeout: Duration,
    hooks: Hooks,
) -> Result<Node, Error> {
    super::with_timers()?;
    let until = Instant::now() + timeout;
    let system = |e: &dyn std::fmt::Display| Error::System(e.to_string());
    // Reading files blocks.
    let told = tokio::task::spawn_blocking(move || options.client())
        .await
        .map_err(|e| system(&e))??;
    told.exposed
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    let socket = open().map_err(|e| system(&e))?;
    let address = socket.local_addr().map_err(|e| system(&e))?;
    let choice = Choice {
        reach: AddressFamilies::of(address),
        own: None,
    };
    let resolving = tokio::time::timeout_at(until, seeds::resolve(&told.seeds, choice)).await;
    let resolved = resolving.map_err(|_| {
        Error::Unreachable(format!(
            "the names of the seeds do not resolve within {timeout:?}: check them"
        ))
    })?;
    if resolved.addresses.is_empty() {
        let names = resolved.unresolved.join(", ");
        return Err(Error::Unreachable(format!(
            "no seed is an address, and none resolves ({names}): give HOST:PORT of a data port"
        )));
    }
    let seeds = resolved.clone();
    // Making keys, and waiting for threads, block.
    let started = tokio::task::spawn_blocking(move || {
        assemble(told, socket, (address, choice), seeds, hooks)
    });
    let client = started.await.map_err(|e| system(&e))??;
    match wait(&client, &resolved, until, timeout).await {
        Ok(()) => Ok(client),
        Err(why) => {
            client.kill().await;
            Err(why)
        }
    }
}

/// A socket for both families of addresses, or for IPv4 if this machine has no IPv6. No node dials
/// it.
fn open() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
}

fn assemble(
    told: ClientConfig,
    socket: UdpSocket,
    (address, choice): (SocketAddr, Choice),
    seeds: Resolved,
    hooks: Hooks,
) -> Result<Node, Error> {
    let name = told.name;
    let identity = identity_of(&told.trust, SecretRole::Client, &name)?;
    let system = |e: &dyn std::fmt::Display| Error::System(e.to_string());
    let shared = Arc::new(Shared::new(MemberId::of_client(rand::random())));
    let options = DataOptions {
        me: shared.local().me,
        limits: limits(),
        sockets: vec![socket],
        identity: identity.clone(),
        clients_max: 0,
        level_max: LEVELS.1,
        whole_process: false,
        seeds: seeds.addresses.clone(),
        directory: None,
        hooks,
    };
    // The client answers by the members' words, and the members have leases.
    shared.extend_lease(Time(u64::MAX));
    let (upcall, upcalls) = mpsc::channel(1);
    let (thread, data, _) =
        data::start(options, vec![NoFrontEnd], shared.clone(), upcall).map_err(|e| system(&e))?;
    let (fatal, fatal_out) = watch::channel(None);
    let is_name = |seed: &String| seed.parse::<SocketAddr>().is_err();
    let names = told.seeds.iter().any(is_name).then_some(told.seeds);
    let companion = Companion::start(Duties {
        names,
        choice,
        last: seeds,
        identity: identity.clone(),
        data: data.clone(),
        upcalls,
        fatal,
    });
    let companion = match companion {
        Ok(companion) => companion,
        Err(why) => {
            data.stop();
            thread.join();
            return Err(system(&why));
        }
    };
    let control = ControlHandle::of_client(fatal_out);
    #[cfg(feature = "metrics")]
    let metrics = Arc::new(crate::metrics::Metrics::new(
        name.clone(),
        control.clone(),
        data.clone(),
        identity.clone(),
    ));
    Ok(Node::new(NodeParts {
        name,
        addresses: Addresses::new(address, address),
        leave_timeout: Duration::ZERO,
        ready_timeout: CONNECT_MAX,
        insecure: told.trust == Trust::Loopback,
        shared,
        identity,
        control,
        data,
        threads: Threads {
            driver: NodeDriver::Client(companion),
            data: thread,
            #[cfg(feature = "http")]
            http: None,
        },
        #[cfg(feature = "metrics")]
        metrics,
    }))
}

/// A client holds no data: only the limits of calls and frames matter.
fn limits() -> Limits {
    Limits {
        value_bytes_max: VALUE_BYTES_MAX,
        tail_bytes_max: 0,
        ..Limits::default()
    }
}

/// Waits for a table in which keys have owners.
async fn wait(
    client: &Node,
    resolved: &Resolved,
    until: Instant,
    timeout: Duration,
) -> Result<(), Error> {
    loop {
        if client.is_ready() {
            return Ok(());
        }
        let is_connected = client.0.shared.local().view.is_some();
        let refusals = if is_connected {
            Vec::new()
        } else {
            client.0.data.refusals().await
        };
        let lasting = resolved.addresses.iter().all(|seed| {
            refusals
                .iter()
                .any(|(at, failure)| at == seed && failure.is_lasting())
        });
        if !is_connected && lasting {
            return Err(Error::Refused(format!(
                "no seed accepts this client; {}",
                reasons(&refusals, resolved)
            )));
        }
        if Instant::now() >= until {
            return Err(Error::Unreachable(if is_connected {
                format!(
                    "the cluster has not assigned its keys to members within {timeout:?}: it may \
                     wait for more members (--members-min)"
                )
            } else {
                format!(
                    "no node accepted this client within {timeout:?}: {}",
                    reasons(&refusals, resolved)
                )
            }));
        }
        tokio::time::sleep(ACCEPTED_LOOK).await;
    }
}

/// Why each seed does not help.
fn reasons(refusals: &[(SocketAddr, DialFailure)], resolved: &Resolved) -> String {
    let tried = resolved.addresses.iter().map(|seed| {
        let why = refusals
            .iter()
            .find(|(at, _)| at == seed)
            .map(|(_, failure)| failure);
        format!(
            "{seed}: {}",
            why.map_or_else(|| "no answer yet".to_owned(), reason)
        )
    });
    let unresolved = resolved
        .unresolved
        .iter()
        .map(|name| format!("{name}: does not resolve"));
    tried.chain(unresolved).collect::<Vec<_>>().join("; ")
}

fn reason(failure: &DialFailure) -> String {
    match failure {
        DialFailure::OtherSecret => {
            "the node and this client do not trust each other: give the client the client's file \
             of the nodes' secret, or a valid certificate of their authority"
                .into()
        }
        DialFailure::Stranger => "the node is not a member of a cluster yet".into(),
        DialFailure::Unreachable(why) => {
            format!("{why}: give the data address (--data, by default port 7401) of a running node")
        }
        DialFailure::OtherProtocol
        | DialFailure::OtherTime
        | DialFailure::Revoked
        | DialFailure::Hello(_)
        | DialFailure::Refused(_)
        | DialFailure::OutOfReach(_) => failure.to_string(),
    }
}

impl NodeInner {
    /// Asks members for a map that is as it is wanted.
    pub(super) async fn want_map_as_client(&self, wanted: WantedMap) -> Result<MapEntry, Error> {
        let wish = wanted.wish;
        let made = tokio::time::timeout(MAP_MAX, self.ask_for_map(wanted)).await;
        let entry = made.unwrap_or_else(|_| {
            Err(Error::NotReady(format!(
                "no member has answered within {MAP_MAX:?} that the map is as it is wanted"
            )))
        })?;
        self.wait_for(entry, wish).await
    }

    /// Asks one member after the other. Asking twice changes no more than asking once.
    async fn ask_for_map(&self, wanted: WantedMap) -> Result<MapEntry, Error> {
        loop {
            match tokio::time::timeout(MAP_ANSWER_MAX, self.data.map(wanted.clone())).await {
                Ok(Some(made)) => return made.map_err(Error::Refused),
                Ok(None) if self.data.has_ended() => return Err(Error::Closed),
                Ok(None) => tokio::time::sleep(LOOK).await,
                Err(_) => {}
            }
        }
    }

    /// Waits until the map is as it is wanted here, too. The table may be newer than this client's
    /// table. Members send newer tables each second.
    async fn wait_for(&self, made: MapEntry, wish: MapWish) -> Result<MapEntry, Error> {
        let until = Instant::now() + MAP_MAX;
        let found = || {
            let local = self.shared.local();
            let table = &local.view.as_ref()?.installed;
            wish.met(table, &made).then(|| table.map(made.id).cloned())
        };
        loop {
            if let Some(map) = found() {
                return Ok(map.unwrap_or(made));
            }
            if self.data.has_ended() {
                return Err(Error::Closed);
            }
            if Instant::now() >= until {
                return Err(Error::NotReady(format!(
                    "no member has sent a table with the map as it is wanted within {MAP_MAX:?}"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The thread of a client besides its data thread.
pub(super) struct Companion {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

/// What the companion needs.
struct Duties {
    /// The seeds, if some of them are names.
    names: Option<Vec<String>>,
    choice: Choice,
    last: Resolved,
    identity: Arc<Identity>,
    data: DataHandle,
    upcalls: mpsc::Receiver<Upcall>,
    fatal: watch::Sender<Option<String>>,
}

impl Companion {
    fn start(duties: Duties) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("doyen-client".into())
            .spawn(move || {
                runtime.block_on(duties.fulfil(stopped));
                // A name may still be looked up.
                runtime.shutdown_background();
            })?;
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(super) fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the companion thread of this client panicked, which is a defect");
        }
    }
}

impl Duties {
    async fn fulfil(mut self, mut stopped: watch::Receiver<bool>) {
        let mut names = tokio::time::interval(NAMES_INTERVAL);
        names.tick().await;
        let mut looks = tokio::time::interval(IDENTITY_LOOK);
        loop {
            let upcall = tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => return,
                upcall = self.upcalls.recv() => upcall,
                _ = names.tick() => {
                    self.resolve_again().await;
                    continue;
                }
                _ = looks.tick() => {
                    self.identity.clone().keep().await;
                    continue;
                }
            };
            match upcall {
                Some(Upcall::Ended(why)) => {
                    self.fatal.send_replace(Some(why));
                }
                // A client decides nothing.
                Some(_) => {}
                // The data thread has ended.
                None => {
                    let _ = stopped.wait_for(|stopped| *stopped).await;
                    return;
                }
            }
        }
    }

    async fn resolve_again(&mut self) {
        let Some(names) = &self.names else { return };
        let now = seeds::resolve(names, self.choice).await;
        if now != self.last && !now.addresses.is_empty() {
            self.data.set_seeds(now.addresses.clone());
            self.last = now;
        }
    }
}
