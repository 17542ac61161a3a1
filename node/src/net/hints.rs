//! Hints of gossip: chitchat over the control connections.
//!
//! ```text
//!   Outgoing (address, bytes) <── chitchat's task <── incoming (address, bytes)
//!                                      │ asked each interval: who is live?
//!                                   Hint::{Suspected, Alive, Address}
//! ```
//!
//! An authenticated peer may still be broken. So everything here is bounded, and nothing is
//! trusted: a message goes only to addresses of the table, states are never read, the number of
//! nodes is limited, and chitchat's task may die and is then restarted. Gossip runs only while this
//! process is a member, among the members of its cluster.

use anyhow::bail;
use async_trait::async_trait;
use chitchat::transport::{Socket, Transport};
use chitchat::{
    ChitchatConfig, ChitchatHandle, ChitchatId, ChitchatMessage, Deserializable,
    FailureDetectorConfig, Serializable, spawn_chitchat,
};
use doyen_gossip::hints::Hint;
use doyen_placement::{ClusterId, MemberId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Above this number of nodes, gossip is off: a digest above 65 KB would end chitchat's task.
pub const NODES_MAX: usize = 400;
/// The largest message that is received or sent.
pub const MESSAGE_BYTES_MAX: usize = 32 << 10;
const QUEUE_MAX: usize = 64;
/// The beginning of each compressed part of a message (RFC 8878, section 3.1.1), and the number of
/// such parts that a message may have. One part becomes at most 64 KiB.
const COMPRESSED: &[u8; 4] = &[0x28, 0xb5, 0x2f, 0xfd];
const COMPRESSED_MAX: usize = 8;
/// After this many messages, the number of nodes is checked again: each message can name a
/// thousand.
const MESSAGES_BETWEEN_LOOKS: u32 = 32;
/// Pings and refused ports notice deaths long before gossip does, which only adds a check. With an
/// interval of 100 ms, gossip was most of the work of an idle node (1.5 % of a core).
const GOSSIP_INTERVAL: Duration = Duration::from_secs(1);
/// A message names every node. With twice as many nodes as this, gossip sends half as many
/// messages, so that the traffic of a node stays the same.
const GOSSIP_NODES: usize = 16;
const RESTART_WAIT: Duration = Duration::from_secs(1);
/// The pause after too many nodes were named. Members are fewer, or gossip would be off, so one of
/// them made the others up.
const CROWDED_WAIT: Duration = Duration::from_secs(60);
const PHI_THRESHOLD: f64 = 8.0;
const SAMPLES: usize = 100;
/// The longest interval between two signs of life that counts, in intervals of gossip.
const INTERVALS_MAX: u32 = 4;
const GRACE: Duration = Duration::from_secs(5 * 60);
/// Members that new gossip begins with; it learns of the others by itself.
const SEEDS_MAX: usize = 16;
/// Addresses that are suggested at a time.
const ADDRESSES_MAX: usize = 8;

/// A message of chitchat, with its destination or source.
pub type HintParcel = (SocketAddr, Vec<u8>);

/// The members that this process gossips with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The cluster.
    pub cluster: ClusterId,
    /// This process.
    pub me: MemberId,
    /// Its control address.
    pub address: SocketAddr,
    /// Every member of the table, with its control address.
    pub members: BTreeMap<MemberId, SocketAddr>,
}

/// The control thread's ends of gossip.
#[derive(Debug)]
pub struct Hints {
    scope: watch::Sender<Option<Scope>>,
    incoming: mpsc::Sender<HintParcel>,
    /// Messages to send, to addresses of the scope's members.
    pub outgoing: mpsc::Receiver<HintParcel>,
    /// Suggestions of gossip.
    pub hints: mpsc::Receiver<Hint>,
}

impl Hints {
    /// Gossip that is silent until it has a scope, with the task that supervises it.
    pub fn new() -> (Self, impl Future<Output = ()>) {
        let (scope, scope_out) = watch::channel(None);
        let (incoming, incoming_out) = mpsc::channel(QUEUE_MAX);
        let (outgoing_in, outgoing) = mpsc::channel(QUEUE_MAX);
        let (hints_in, hints) = mpsc::channel(QUEUE_MAX);
        let supervisor = Supervisor {
            scope: scope_out,
            incoming: incoming_out,
            outgoing: outgoing_in,
            hints: hints_in,
        };
        (
            Self {
                scope,
                incoming,
                outgoing,
                hints,
            },
            supervisor.run(),
        )
    }

    /// Sets the scope after another table came into force; `None` stops gossip.
    pub fn set_scope(&self, scope: Option<Scope>) {
        self.scope.send_if_modified(|present| {
            let modified = *present != scope;
            *present = scope;
            modified
        });
    }

    /// Takes a message from the member at this address.
    pub fn receive(&self, from: SocketAddr, message: Vec<u8>) {
        if message.len() <= MESSAGE_BYTES_MAX {
            // Dropped if too many wait: gossip repeats itself.
            let _ = self.incoming.try_send((from, message));
        }
    }
}

struct Supervisor {
    scope: watch::Receiver<Option<Scope>>,
    incoming: mpsc::Receiver<HintParcel>,
    outgoing: mpsc::Sender<HintParcel>,
    hints: mpsc::Sender<Hint>,
}

/// Why gossip ended.
enum HintEnd {
    /// The control thread is gone.
    Closed,
    /// This process has another identity, or none.
    Scope,
    /// Chitchat's task died.
    Died,
    /// Too many nodes.
    Crowded,
}

impl Supervisor {
    async fn run(mut self) {
        loop {
            let Some(scope) = self
                .scope
                .borrow_and_update()
                .clone()
                .filter(|scope| scope.members.len() <= NODES_MAX)
            else {
                if self.scope.changed().await.is_err() {
                    return;
                }
                continue;
            };
            match self.gossip(scope).await {
                HintEnd::Closed => return,
                HintEnd::Scope => {}
                HintEnd::Died => {
                    tracing::warn!(
                        "gossip ended unexpectedly and is restarted; nothing depends on it"
                    );
                    tokio::time::sleep(RESTART_WAIT).await;
                }
                HintEnd::Crowded => {
                    tracing::warn!(
                        "gossip names more than {NODES_MAX} nodes and is off for a while; dead \
                         members are noticed a little later"
                    );
                    if let Ok(Err(_)) =
                        tokio::time::timeout(CROWDED_WAIT, self.scope.changed()).await
                    {
                        return;
                    }
                    // Drop what arrived meanwhile: it may have been the cause of the end.
                    while self.incoming.try_recv().is_ok() {}
                }
            }
        }
    }

    async fn gossip(&mut self, scope: Scope) -> HintEnd {
        let (to_socket, from_outside) = mpsc::channel(QUEUE_MAX);
        let bridge = Bridge {
            incoming: Mutex::new(Some(from_outside)),
            outgoing: self.outgoing.clone(),
        };
        let Ok(chitchat) = spawn_chitchat(config(&scope), Vec::new(), &bridge).await else {
            return HintEnd::Died;
        };
        let mut died = std::pin::pin!(chitchat.termination_watcher());
        let every = interval(scope.members.len());
        let mut look = tokio::time::interval(every);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut seen, mut since_look) = (SeenHint::default(), 0);
        let mut members = scope.members.clone();
        loop {
            tokio::select! {
                _ = &mut died => return HintEnd::Died,
                changed = self.scope.changed() => {
                    if changed.is_err() {
                        return HintEnd::Closed;
                    }
                    match &*self.scope.borrow_and_update() {
                        Some(now)
                            if (now.cluster, now.me, now.address)
                                == (scope.cluster, scope.me, scope.address) =>
                        {
                            members = now.members.clone();
                        }
                        Some(_) | None => return HintEnd::Scope,
                    }
                    if members.len() > NODES_MAX {
                        return HintEnd::Crowded;
                    }
                    if interval(members.len()) != every {
                        // Chitchat cannot change its interval, so it starts again. Nothing depends
                        // on its state.
                        return HintEnd::Scope;
                    }
                }
                message = self.incoming.recv() => match message {
                    // Dropped if too many wait.
                    Some(message) => {
                        let _ = to_socket.try_send(message);
                        since_look += 1;
                        if since_look >= MESSAGES_BETWEEN_LOOKS {
                            look.reset_immediately();
                        }
                    }
                    None => return HintEnd::Closed,
                },
                _ = look.tick() => {
                    since_look = 0;
                    let Some(view) = GossipView::of(&chitchat).await else { return HintEnd::Crowded };
                    for hint in seen.compare(&view, &members) {
                        let _ = self.hints.try_send(hint);
                    }
                }
            }
        }
    }
}

/// The interval grows in steps, so that not every new member changes it.
fn interval(nodes: usize) -> Duration {
    GOSSIP_INTERVAL
        * u32::try_from((nodes.next_power_of_two() / GOSSIP_NODES).max(1)).unwrap_or(u32::MAX)
}

fn config(scope: &Scope) -> ChitchatConfig {
    let every = interval(scope.members.len());
    ChitchatConfig {
        chitchat_id: ChitchatId::new(scope.me.to_string(), 0, scope.address),
        cluster_id: scope.cluster.to_string(),
        gossip_interval: every,
        listen_addr: scope.address,
        seed_nodes: scope
            .members
            .values()
            .filter(|a| **a != scope.address)
            .take(SEEDS_MAX)
            .map(ToString::to_string)
            .collect(),
        failure_detector_config: FailureDetectorConfig::new(
            PHI_THRESHOLD,
            SAMPLES,
            every * INTERVALS_MAX,
            every,
            GRACE,
        ),
        marked_for_deletion_grace_period: GRACE,
        catchup_callback: None,
        extra_liveness_predicate: None,
    }
}

/// Decodes a message of chitchat, if it is as small as it looks. Its parts may be compressed, and
/// 32 KiB of compressed parts could become 80 MiB. Members gossip only names and addresses, for
/// which two parts are enough.
fn understand(bytes: &[u8]) -> anyhow::Result<ChitchatMessage> {
    let compressed = bytes
        .windows(COMPRESSED.len())
        .filter(|w| w == COMPRESSED)
        .count();
    if compressed > COMPRESSED_MAX {
        bail!("{compressed} compressed parts");
    }
    ChitchatMessage::deserialize(&mut &bytes[..])
}

/// The nodes that gossip considers alive at one moment.
struct GossipView {
    live: BTreeMap<MemberId, SocketAddr>,
}

impl GossipView {
    /// `None` if gossip names too many nodes.
    async fn of(chitchat: &ChitchatHandle) -> Option<Self> {
        chitchat
            .with_chitchat(|chitchat| {
                if chitchat.node_states().len() > NODES_MAX {
                    return None;
                }
                let live = chitchat.live_nodes().filter_map(|node| {
                    Some((member_of(&node.node_id)?, node.gossip_advertise_addr))
                });
                Some(Self {
                    live: live.collect(),
                })
            })
            .await
    }
}

fn member_of(node_id: &str) -> Option<MemberId> {
    (node_id.len() == 16 && node_id.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| u64::from_str_radix(node_id, 16).ok().map(MemberId))?
}

/// The former view.
#[derive(Debug, Default)]
struct SeenHint {
    live: BTreeSet<MemberId>,
}

impl SeenHint {
    fn compare(
        &mut self,
        view: &GossipView,
        members: &BTreeMap<MemberId, SocketAddr>,
    ) -> Vec<Hint> {
        let now: BTreeSet<MemberId> = view
            .live
            .keys()
            .filter(|id| members.contains_key(id))
            .copied()
            .collect();
        let mut hints: Vec<Hint> = self
            .live
            .difference(&now)
            .filter(|id| members.contains_key(id))
            .map(|id| Hint::Suspected(*id))
            .collect();
        hints.extend(now.difference(&self.live).map(|id| Hint::Alive(*id)));
        // Members that are not in this node's table yet.
        let strangers = view.live.iter().filter(|(id, _)| !members.contains_key(id));
        hints.extend(
            strangers
                .take(ADDRESSES_MAX)
                .map(|(_, address)| Hint::Address(*address)),
        );
        self.live = now;
        hints
    }
}

/// A transport for chitchat over bounded queues. It never waits for the network, and never fails.
struct Bridge {
    /// Taken by the only socket. A lock, because the trait shares the transport; held for a move.
    incoming: Mutex<Option<mpsc::Receiver<HintParcel>>>,
    outgoing: mpsc::Sender<HintParcel>,
}

struct BridgeSocket {
    incoming: mpsc::Receiver<HintParcel>,
    outgoing: mpsc::Sender<HintParcel>,
}

#[async_trait]
impl Transport for Bridge {
    async fn open(&self, _listen_addr: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let Some(incoming) = self
            .incoming
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        else {
            bail!("already open")
        };
        Ok(Box::new(BridgeSocket {
            incoming,
            outgoing: self.outgoing.clone(),
        }))
    }
}

#[async_trait]
impl Socket for BridgeSocket {
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        let bytes = message.serialize_to_vec();
        if bytes.len() <= MESSAGE_BYTES_MAX {
            // Dropped if too many wait.
            let _ = self.outgoing.try_send((to, bytes));
        }
        Ok(())
    }

    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        while let Some((from, bytes)) = self.incoming.recv().await {
            match understand(&bytes) {
                Ok(message) => return Ok((from, message)),
                Err(e) => tracing::debug!(%from, "malformed gossip: {e}"),
            }
        }
        // The supervisor is gone, and ends this task.
        std::future::pending().await
    }
}

/// Reads any bytes as a message.
#[cfg(feature = "fuzz")]
pub fn read(bytes: &[u8]) {
    if bytes.len() <= MESSAGE_BYTES_MAX {
        let _ = understand(bytes);
    }
}

/// Gossip as bytes.
#[cfg(test)]
mod messages {
    use super::{ChitchatId, Serializable};

    /// Chitchat's magic number and version.
    const HEADER: [u8; 3] = [0x53, 0xb0, 0];
    pub(super) const SYN: u8 = 0;
    const SYN_ACK: u8 = 1;
    const ACK: u8 = 2;

    /// A message that begins with a digest: the known nodes and their heartbeats.
    pub(super) fn digest(kind: u8, named: &[(ChitchatId, u64)]) -> Vec<u8> {
        let mut bytes = [&HEADER[..], &[kind]].concat();
        (named.len() as u16).serialize(&mut bytes);
        for (id, heartbeat) in named {
            id.serialize(&mut bytes);
            [*heartbeat, 0, 0]
                .iter()
                .for_each(|n| n.serialize(&mut bytes));
        }
        bytes
    }

    /// The first message of an exchange.
    pub(super) fn syn(cluster: &str, named: &[(ChitchatId, u64)]) -> Vec<u8> {
        let mut bytes = digest(SYN, named);
        cluster.serialize(&mut bytes);
        bytes
    }

    /// Valid messages: without nodes, and with two nodes.
    pub(super) fn valid() -> Vec<Vec<u8>> {
        let id = |n: u8| ChitchatId::new(format!("{n:016x}"), 0, ([127, 0, 0, n], 7400).into());
        let named = [(id(1), 5), (id(2), 9)];
        // What a delta has for a node: a reset, and a fact.
        let mut ops = vec![0];
        id(1).serialize(&mut ops);
        [0_u64, 0].iter().for_each(|n| n.serialize(&mut ops));
        ops.push(1);
        ["key", "value"]
            .iter()
            .for_each(|text| text.serialize(&mut ops));
        1_u64.serialize(&mut ops);
        ops.push(0);
        let mut delta = vec![2];
        (ops.len() as u16).serialize(&mut delta);
        delta.extend(ops);
        delta.push(0);
        vec![
            syn("a cluster", &named),
            syn("", &[]),
            [&digest(SYN_ACK, &named)[..], &delta].concat(),
            [&digest(SYN_ACK, &[])[..], &[0]].concat(),
            [&HEADER[..], &[ACK], &delta].concat(),
            [&HEADER[..], &[3]].concat(),
            bomb(2_300),
        ]
    }

    /// A message with `parts` compressed parts of 14 bytes. Each becomes 65,535 equal bytes. They
    /// decode as one fact after the other.
    pub(super) fn bomb(parts: usize) -> Vec<u8> {
        let part = [
            1, 11, 0, 0x28, 0xb5, 0x2f, 0xfd, 0x60, 0xff, 0xfe, 0xfb, 0xff, 0x07, 2,
        ];
        [&HEADER[..], &[ACK], &part.repeat(parts), &[0]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn transitions_become_hints_and_strangers_addresses() {
        let members = BTreeMap::from([(MemberId(1), address(1)), (MemberId(2), address(2))]);
        let view = |ids: &[u64]| GossipView {
            live: ids
                .iter()
                .map(|id| (MemberId(*id), address(*id as u16)))
                .collect(),
        };
        let mut seen = SeenHint::default();
        assert_eq!(
            seen.compare(&view(&[1, 2]), &members),
            [Hint::Alive(MemberId(1)), Hint::Alive(MemberId(2))]
        );
        assert_eq!(seen.compare(&view(&[1, 2]), &members), []);
        assert_eq!(
            seen.compare(&view(&[1, 9]), &members),
            [Hint::Suspected(MemberId(2)), Hint::Address(address(9))]
        );
        let crowd: Vec<u64> = (10..100).collect();
        assert_eq!(
            seen.compare(&view(&crowd), &members).len(),
            1 + ADDRESSES_MAX
        );
    }

    #[test]
    fn larger_clusters_gossip_less_often() {
        assert_eq!(
            [1, 3, 16, 17, 32, 100, NODES_MAX].map(|n| interval(n).as_secs()),
            [1, 1, 1, 2, 2, 8, 32]
        );
    }

    #[test]
    fn node_ids_are_parsed_or_ignored() {
        assert_eq!(member_of(&MemberId(0xab).to_string()), Some(MemberId(0xab)));
        assert_eq!(member_of("+00000000000000a"), None);
        assert_eq!(member_of("another name"), None);
        assert_eq!(member_of(""), None);
    }

    /// One message of 32 KB used to become 150 MB, and then more than a gigabyte of facts.
    #[test]
    fn messages_that_expand_enormously_are_refused() {
        let bomb = messages::bomb(2_300);
        assert!(bomb.len() <= MESSAGE_BYTES_MAX);
        assert!(understand(&bomb).is_err_and(|e| e.to_string().contains("2300 compressed parts")));
        let valid = messages::valid()
            .into_iter()
            .filter(|m| m.len() < 1000)
            .collect::<Vec<_>>();
        assert!(
            valid.len() > 4 && valid.iter().all(|m| understand(m).is_ok()),
            "{valid:?}"
        );
    }

    /// A member reports another with the highest possible heartbeat, so that no later one counts,
    /// and then a thousand unknown members. The others continue to report each other: all but the
    /// one, and after the thousand once these are forgotten.
    #[tokio::test(start_paused = true)]
    async fn made_up_heartbeats_and_members_end_gossip_for_a_while_at_most() {
        let members: BTreeMap<_, _> = (1..=4).map(|n| (MemberId(n), address(n as u16))).collect();
        let scope = |me: u64| Scope {
            cluster: ClusterId(7),
            me: MemberId(me),
            address: address(me as u16),
            members: members.clone(),
        };
        let (mut a, run_a) = Hints::new();
        let (mut b, run_b) = Hints::new();
        let tasks = [tokio::spawn(run_a), tokio::spawn(run_b)];
        a.set_scope(Some(scope(1)));
        b.set_scope(Some(scope(2)));
        let named = |n: u64| ChitchatId::new(MemberId(n).to_string(), 0, address(n as u16));
        let cluster = ClusterId(7).to_string();
        let highest: Vec<_> = (1..=4)
            .filter(|n| *n != 2)
            .map(|n| (named(n), u64::MAX))
            .collect();
        // Its own heartbeat is overwritten as well: that must not end its gossip.
        let crowd = |from: u64| {
            (0..350)
                .map(|n| (named(from + n), u64::MAX))
                .collect::<Vec<_>>()
        };
        a.receive(address(3), messages::syn(&cluster, &highest));
        let (mut alive, mut until) = (0, None);
        while alive < 2 {
            tokio::select! {
                Some((to, bytes)) = a.outgoing.recv() => {
                    if to == address(2) { b.receive(address(1), bytes) }
                }
                Some((to, bytes)) = b.outgoing.recv() => {
                    if to == address(1) { a.receive(address(2), bytes) }
                }
                Some(hint) = a.hints.recv() => {
                    if hint == Hint::Alive(MemberId(2)) {
                        alive += 1;
                        for from in [1_000, 2_000, 3_000] {
                            let message = messages::syn(&cluster, &crowd(from));
                            assert!(message.len() <= MESSAGE_BYTES_MAX);
                            if until.is_none() {
                                a.receive(address(3), message);
                            }
                        }
                        until.get_or_insert_with(|| tokio::time::Instant::now() + CROWDED_WAIT);
                    }
                }
            }
        }
        assert!(
            until.is_some_and(|until| tokio::time::Instant::now() >= until),
            "gossip was off, or all those members were accepted"
        );
        drop((a, b));
        for task in tasks {
            task.await.unwrap();
        }
    }

    /// Two nodes gossip with each other; then one falls silent.
    #[tokio::test(start_paused = true)]
    async fn a_silent_node_is_suspected() {
        let members = BTreeMap::from([(MemberId(1), address(1)), (MemberId(2), address(2))]);
        let scope = |me: u64| Scope {
            cluster: ClusterId(7),
            me: MemberId(me),
            address: address(me as u16),
            members: members.clone(),
        };
        let (mut a, run_a) = Hints::new();
        let (mut b, run_b) = Hints::new();
        let (task_a, task_b) = (tokio::spawn(run_a), tokio::spawn(run_b));
        a.set_scope(Some(scope(1)));
        b.set_scope(Some(scope(2)));
        // Malformed bytes from a peer do not end gossip.
        a.receive(address(2), vec![0xff; 100]);
        loop {
            tokio::select! {
                Some((to, bytes)) = a.outgoing.recv() => {
                    assert_eq!(to, address(2));
                    b.receive(address(1), bytes);
                }
                Some((to, bytes)) = b.outgoing.recv() => {
                    assert_eq!(to, address(1));
                    a.receive(address(2), bytes);
                }
                Some(hint) = a.hints.recv() => if hint == Hint::Alive(MemberId(2)) { break },
            }
        }
        loop {
            tokio::select! {
                Some(_) = a.outgoing.recv() => {}
                Some(hint) = a.hints.recv() => if hint == Hint::Suspected(MemberId(2)) { break },
            }
        }
        drop((a, b));
        task_a.await.unwrap();
        task_b.await.unwrap();
    }
}
