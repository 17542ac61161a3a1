//! The answers of `CLUSTER`, and redirections of cluster-aware clients. All come from the view.
//! To such a client, each data thread of a member is a node, which leads that thread's part of the
//! member's slots. So the client goes straight to the thread. The plain port names no nodes.

use super::RespContext;
use super::encode::{Encoder, Protocol};
use bytes::{Bytes, BytesMut};
use doyen_engine::MemberThreads;
use doyen_engine::command::ErrorText;
use doyen_gossip::agreement::View;
use doyen_placement::hash::SLOTS;
use doyen_placement::{
    ClusterId, Keyspace, KeyspaceId, Member, MemberId, MemberState, Partition, Term, Version,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

/// The keyspace in which Redis clients begin; its map 0 is their database 0.
pub const KEYSPACE: KeyspaceId = KeyspaceId(0);

/// The id of a member's data thread as Redis Cluster writes node ids: 40 hex digits.
///
/// People tell nodes apart by the first digits of these ids, so the number is mixed: threads of one
/// member would differ in the last digit only. The first 16 digits are a bijection of the number,
/// so no two ids are equal.
#[must_use]
pub fn node_id(id: MemberId) -> String {
    hex_id(id.0)
}

/// The id of a data thread's shard: a thread has no replicas, so it is its own shard.
fn shard_id(id: MemberId) -> String {
    hex_id(!id.0)
}

fn hex_id(number: u64) -> String {
    let (first, second) = (mix(number), mix(number.rotate_left(32) ^ SECOND));
    format!("{first:016x}{second:016x}{:08x}", mix(first ^ second) >> 32)
}

/// Any constant will do. It makes the second half of the digits independent of the first.
const SECOND: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of `SplitMix64`: a bijection in which each bit of the input changes half of the
/// output.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(SECOND);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The keyspace of Redis clients; `None` until it has partitions.
#[must_use]
pub fn keyspace(view: Option<&View>) -> Option<&Keyspace> {
    assigned(view, KEYSPACE)
}

/// This keyspace; `None` until it has partitions.
#[must_use]
pub fn assigned(view: Option<&View>, id: KeyspaceId) -> Option<&Keyspace> {
    view?
        .installed
        .keyspace(id)
        .filter(|k| !k.partitions.is_empty())
}

/// The partition that holds this slot.
#[must_use]
pub fn partition_of(view: Option<&View>, slot: u16) -> Option<&Partition> {
    let keyspace = keyspace(view)?;
    keyspace
        .partition(keyspace.partition_of_slot(slot)?)
        .map(|p| &**p)
}

/// Whether the data thread `me`, one of `threads` of its node, leads a partition.
#[must_use]
pub fn leads(me: MemberId, threads: u8, partition: &Partition) -> bool {
    partition.primary() == me.member()
        && doyen_engine::thread_of(partition.id, threads) == me.thread_number()
}

/// Where a client is sent for this slot. `None` if this thread answers: it is the primary, or
/// clients do not reach a cluster-aware port of the primary (`NodeAddress::of`) and this node
/// forwards.
#[must_use]
pub fn redirect<'a>(
    view: &'a View,
    me: MemberId,
    threads: u8,
    partition: &Partition,
) -> Option<NodeAddress<'a>> {
    if leads(me, threads, partition) {
        return None;
    }
    let member = view.installed.member(partition.primary())?;
    let thread = member.id.thread(doyen_engine::thread_of(
        partition.id,
        member.addresses.threads(),
    ));
    NodeAddress::of(member, thread, me)
}

/// Whether this thread answers a cluster-aware client for these keys.
pub(super) fn here<'a>(
    context: &RespContext,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Result<(), ErrorText> {
    let mut slots = keys.map(doyen_placement::hash::slot);
    let Some(slot) = slots.next() else {
        return Ok(());
    };
    if slots.any(|other| other != slot) {
        return Err("CROSSSLOT Keys in request don't hash to the same slot".into());
    }
    let view = context.view();
    let (Some(view), Some(partition)) = (view, partition_of(view, slot)) else {
        return Err("CLUSTERDOWN Hash slot not served".into());
    };
    if !context.is_led() {
        return Err(
            "CLUSTERDOWN The cluster is down: no majority of its voters answers this node".into(),
        );
    }
    match redirect(view, context.me(), context.threads(), partition) {
        Some(endpoint) => Err(format!("MOVED {slot} {endpoint}").into()),
        None => Ok(()),
    }
}

/// Where clients reach a node of the cluster that they see. Redis writes IPv6 addresses without
/// brackets here, and clients take the text before the last colon for the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeAddress<'a> {
    at: SocketAddr,
    hostname: Option<&'a str>,
}

impl<'a> NodeAddress<'a> {
    /// The cluster-aware port of this thread of a member. `None` if it has none, or if it is on
    /// loopback and the member on another machine, as far as `me`, the answering node, can tell:
    /// there, clients would reach another node, or this one again and again.
    fn of(member: &'a Member, thread: MemberId, me: MemberId) -> Option<Self> {
        let at = member.addresses.resp_cluster_of(thread.thread_number())?;
        let hostname = member.addresses.hostname.as_deref();
        let here_only = hostname.is_none() && member.addresses.on_its_machine_only(at);
        (member.id == me.member() || !here_only).then_some(Self { at, hostname })
    }

    /// The host that clients shall use: the member's name, if it has one.
    fn host(&self) -> Cow<'a, str> {
        self.hostname
            .map_or_else(|| self.at.ip().to_string().into(), Cow::Borrowed)
    }
}

impl fmt::Display for NodeAddress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host(), self.at.port())
    }
}

/// The least number of in-sync backups of any partition of this keyspace. At least this many other
/// nodes hold every acknowledged write.
#[must_use]
pub fn backups_least(view: Option<&View>, keyspace: KeyspaceId) -> i64 {
    let least = assigned(view, keyspace).and_then(|k| {
        k.partitions
            .iter()
            .map(|p| p.in_sync().count().saturating_sub(1))
            .min()
    });
    least.and_then(|n| i64::try_from(n).ok()).unwrap_or(0)
}

/// Slots from..=to of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SlotRun {
    from: u16,
    to: u16,
    owner: MemberId,
}

/// A node as cluster-aware clients see it: a data thread with a port for them, or the node that
/// answers.
#[derive(Debug)]
struct SeenTable<'a> {
    member: &'a Member,
    thread: MemberId,
    endpoint: NodeAddress<'a>,
}

/// The cluster as cluster-aware clients see it: every slot has a node, because they refuse a map
/// with holes.
///
/// Slots of a member without a cluster-aware port that clients reach (an embedded node, or a port
/// on the loopback of another machine), and slots without a partition, are shown as the answering
/// node's own. It forwards commands for the former, and answers `CLUSTERDOWN` for the latter.
///
/// Backups are not shown, because they serve nothing here. Clients such as redis-py give a node one
/// role: a node that leads some slots and backs up others would be taken for a replica, and left
/// out of DBSIZE, KEYS and FLUSHALL.
#[derive(Debug)]
struct SlotMap<'a> {
    version: u64,
    me: MemberId,
    nodes: Vec<SeenTable<'a>>,
    /// In order, without gaps, and neighbours of one node merged.
    runs: Vec<SlotRun>,
    /// The same by node.
    slots: BTreeMap<MemberId, Vec<(u16, u16)>>,
}

impl<'a> SlotMap<'a> {
    /// `None` before slots are assigned, and if the view does not name the answering node.
    fn of(view: Option<&'a View>, me: MemberId) -> Option<Self> {
        let (view, keyspace) = (view?, keyspace(view)?);
        let members = view.installed.members.iter().map(|m| &**m);
        let threads =
            members.flat_map(|m| (0..m.addresses.threads()).map(move |t| (m, m.id.thread(t))));
        let seen = |(member, thread): (&'a Member, MemberId)| {
            Some(SeenTable {
                member,
                thread,
                endpoint: NodeAddress::of(member, thread, me)?,
            })
        };
        let mut nodes: Vec<SeenTable<'a>> = threads.filter_map(seen).collect();
        let own = view.installed.member(me.member())?;
        let me = if own.addresses.resp_cluster.is_some() {
            me
        } else {
            // The plain port of a member serves every slot. All of its threads are one node there.
            let endpoint = NodeAddress {
                at: own.addresses.resp?,
                hostname: own.addresses.hostname.as_deref(),
            };
            nodes.push(SeenTable {
                member: own,
                thread: own.id,
                endpoint,
            });
            own.id
        };
        let reached: BTreeSet<MemberId> = nodes.iter().map(|n| n.thread).collect();
        let owners = MemberThreads::of(&[&view.installed]);
        let mut led: Vec<SlotRun> = Vec::with_capacity(keyspace.partitions.len());
        for partition in &keyspace.partitions {
            let (from, to) = keyspace.slots_of(partition.id).into_inner();
            let primary = owners.peer_of(partition.primary(), partition.id);
            led.push(SlotRun {
                from,
                to,
                owner: if reached.contains(&primary) {
                    primary
                } else {
                    me
                },
            });
        }
        led.retain(|run| run.from <= run.to);
        led.sort_unstable_by_key(|run| run.from);
        let runs = covering(&led, me);
        let mut slots: BTreeMap<MemberId, Vec<(u16, u16)>> = BTreeMap::new();
        for run in &runs {
            slots.entry(run.owner).or_default().push((run.from, run.to));
        }
        Some(Self {
            version: view.installed.version.0,
            me,
            nodes,
            runs,
            slots,
        })
    }

    fn runs_of(&self, thread: MemberId) -> &[(u16, u16)] {
        self.slots.get(&thread).map_or(&[], Vec::as_slice)
    }

    /// `CLUSTER SLOTS`.
    fn encode_slots(&self, encoder: &mut Encoder<'_>, protocol: Protocol) {
        let encoded = |SeenTable {
                           thread, endpoint, ..
                       }: &SeenTable<'a>| {
            let mut bytes = BytesMut::new();
            let mut node = Encoder::new(&mut bytes, protocol);
            node.array(4);
            node.bulk(endpoint.host().as_bytes());
            node.integer(endpoint.at.port().into());
            node.bulk(node_id(*thread).as_bytes());
            node.map(usize::from(endpoint.hostname.is_some()));
            if endpoint.hostname.is_some() {
                node.bulk(b"ip");
                node.bulk(endpoint.at.ip().to_string().as_bytes());
            }
            (*thread, bytes)
        };
        let nodes: BTreeMap<MemberId, BytesMut> = self.nodes.iter().map(encoded).collect();
        encoder.array(self.runs.len());
        for run in &self.runs {
            encoder.array(3);
            encoder.integer(run.from.into());
            encoder.integer(run.to.into());
            // Every run has a node that is there: `of` makes sure of it.
            encoder.encoded(
                nodes
                    .get(&run.owner)
                    .map_or(&b"*0\r\n"[..], |node| &node[..]),
            );
        }
    }

    /// `CLUSTER SHARDS`: one shard a primary, without copies, because each partition may have its
    /// copies elsewhere.
    fn encode_shards(&self, encoder: &mut Encoder<'_>) {
        encoder.array(self.nodes.len());
        for SeenTable {
            member,
            thread,
            endpoint,
        } in &self.nodes
        {
            let runs = self.runs_of(*thread);
            encoder.map(2);
            encoder.bulk(b"slots");
            encoder.array(runs.len() * 2);
            for (from, to) in runs {
                encoder.integer((*from).into());
                encoder.integer((*to).into());
            }
            encoder.bulk(b"nodes");
            encoder.array(1);
            encoder.map(7 + usize::from(endpoint.hostname.is_some()));
            encoder.bulk(b"id");
            encoder.bulk(node_id(*thread).as_bytes());
            encoder.bulk(b"port");
            encoder.integer(endpoint.at.port().into());
            encoder.bulk(b"ip");
            encoder.bulk(endpoint.at.ip().to_string().as_bytes());
            encoder.bulk(b"endpoint");
            encoder.bulk(endpoint.host().as_bytes());
            if let Some(hostname) = endpoint.hostname {
                encoder.bulk(b"hostname");
                encoder.bulk(hostname.as_bytes());
            }
            encoder.bulk(b"role");
            encoder.bulk(b"master");
            encoder.bulk(b"replication-offset");
            encoder.integer(0);
            encoder.bulk(b"health");
            encoder.bulk(if member.state == MemberState::Silent {
                b"fail"
            } else {
                b"online"
            });
        }
    }

    /// `CLUSTER NODES`: every thread as a master, because each leads some partitions and backs up
    /// others.
    fn lines(&self) -> String {
        let mut text = String::new();
        for SeenTable {
            member,
            thread,
            endpoint,
        } in &self.nodes
        {
            let (ip, port, bus) = (
                endpoint.at.ip(),
                endpoint.at.port(),
                member.addresses.control.port(),
            );
            let hostname = endpoint
                .hostname
                .map(|name| format!(",{name}"))
                .unwrap_or_default();
            let myself = if *thread == self.me { "myself," } else { "" };
            let (fail, link) = if member.state == MemberState::Silent {
                (",fail", "disconnected")
            } else {
                ("", "connected")
            };
            let (id, version) = (node_id(*thread), self.version);
            text += &format!(
                "{id} {ip}:{port}@{bus}{hostname} {myself}master{fail} - 0 0 {version} {link}"
            );
            for (from, to) in self.runs_of(*thread) {
                text += &if from == to {
                    format!(" {from}")
                } else {
                    format!(" {from}-{to}")
                };
            }
            text.push('\n');
        }
        text
    }
}

/// All slots in order: the slots that are led, and the others as slots of `rest`.
fn covering(led: &[SlotRun], rest: MemberId) -> Vec<SlotRun> {
    let mut runs: Vec<SlotRun> = Vec::new();
    let mut push = |from: u32, to: u32, owner| {
        let (Ok(from), Ok(to)) = (u16::try_from(from), u16::try_from(to)) else {
            return;
        };
        match runs.last_mut() {
            Some(last) if last.owner == owner => last.to = to,
            _ => runs.push(SlotRun { from, to, owner }),
        }
    };
    // The first slot that has no node yet.
    let mut next = 0_u32;
    for run in led {
        let (from, to) = (u32::from(run.from).max(next), u32::from(run.to));
        if from > next {
            push(next, from - 1, rest);
        }
        if to >= from {
            push(from, to, run.owner);
            next = to + 1;
        }
    }
    if next < u32::from(SLOTS) {
        push(next, u32::from(SLOTS) - 1, rest);
    }
    runs
}

/// The questions by which clients learn which node has which slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotTopology {
    /// `CLUSTER SLOTS`
    Slots,
    /// `CLUSTER SHARDS`
    Shards,
    /// `CLUSTER NODES`
    Nodes,
}

/// The answer if no slot is assigned yet. Clients take it for a node that starts, and try again.
const NOT_YET: &str = "LOADING Doyen is starting: its slots are not assigned yet";

/// Encoded answers, cached for as long as the table is the same. When a node fails, all clients ask
/// again, and a map of many partitions takes long to encode.
#[derive(Debug, Default)]
pub struct TopologyCache {
    /// The table and the answering node that the cached answers are for.
    of: Option<(ClusterId, Term, Version, MemberId)>,
    /// By question and protocol.
    encoded: [[Option<Bytes>; 2]; 3],
}

impl TopologyCache {
    /// The answer of this node, in this protocol.
    pub fn answer(
        &mut self,
        view: Option<&View>,
        me: MemberId,
        asked: SlotTopology,
        protocol: Protocol,
    ) -> Bytes {
        let of = view.map(|v| {
            (
                v.installed.cluster,
                v.installed.term,
                v.installed.version,
                me,
            )
        });
        if self.of != of {
            *self = Self {
                of,
                ..Self::default()
            };
        }
        let kept = &mut self.encoded[asked as usize][protocol as usize];
        kept.get_or_insert_with(|| {
            let mut bytes = BytesMut::new();
            let mut encoder = Encoder::new(&mut bytes, protocol);
            match (SlotMap::of(view, me), asked) {
                (None, _) => encoder.error(NOT_YET),
                (Some(map), SlotTopology::Slots) => map.encode_slots(&mut encoder, protocol),
                (Some(map), SlotTopology::Shards) => map.encode_shards(&mut encoder),
                (Some(map), SlotTopology::Nodes) => encoder.text(&map.lines()),
            }
            bytes.freeze()
        })
        .clone()
    }
}

/// `CLUSTER REPLICAS` of this node id: every node is a master, and none has replicas.
pub fn replicas(encoder: &mut Encoder<'_>, view: Option<&View>, me: MemberId, of: &[u8]) {
    match SlotMap::of(view, me) {
        None => encoder.error(NOT_YET),
        Some(map)
            if map
                .nodes
                .iter()
                .any(|n| node_id(n.thread).as_bytes().eq_ignore_ascii_case(of)) =>
        {
            encoder.array(0)
        }
        Some(_) => encoder.error(&format!("ERR Unknown node {}", String::from_utf8_lossy(of))),
    }
}

/// The id that the answers give this node, which is one of its data threads.
#[must_use]
pub fn my_id(view: Option<&View>, me: MemberId) -> String {
    node_id(seen_as(view, me))
}

/// `CLUSTER MYSHARDID`.
#[must_use]
pub fn my_shard_id(view: Option<&View>, me: MemberId) -> String {
    shard_id(seen_as(view, me))
}

/// Without a cluster-aware port all threads of a member are one node.
fn seen_as(view: Option<&View>, me: MemberId) -> MemberId {
    let own = view.and_then(|v| v.installed.member(me.member()));
    if own.is_some_and(|m| m.addresses.resp_cluster.is_none()) {
        me.member()
    } else {
        me
    }
}

/// `CLUSTER INFO`.
#[must_use]
pub fn info(view: Option<&View>, me: MemberId, served: bool) -> String {
    let assigned = if keyspace(view).is_some() { SLOTS } else { 0 };
    let silent = |v: &View, p: &Partition| {
        v.installed
            .member(p.primary())
            .is_none_or(|m| m.state == MemberState::Silent)
    };
    let failed: usize = view.zip(keyspace(view)).map_or(0, |(v, k)| {
        k.partitions
            .iter()
            .filter(|p| silent(v, p))
            .map(|p| k.slots_of(p.id).len())
            .sum()
    });
    let ok = usize::from(assigned) - failed.min(assigned.into());
    let failed = if served {
        failed
    } else {
        usize::from(assigned)
    };
    let ok = if served { ok } else { 0 };
    let state = if assigned > 0 && failed == 0 {
        "ok"
    } else {
        "fail"
    };
    let map = SlotMap::of(view, me);
    let known = map.as_ref().map_or(1, |m| m.nodes.len());
    let size = map.as_ref().map_or(0, |m| m.slots.len());
    let version = view.map_or(0, |v| v.installed.version.0);
    let lines = [
        ("cluster_state", state.to_owned()),
        ("cluster_slots_assigned", assigned.to_string()),
        ("cluster_slots_ok", ok.to_string()),
        ("cluster_slots_pfail", "0".to_owned()),
        ("cluster_slots_fail", failed.to_string()),
        ("cluster_known_nodes", known.to_string()),
        ("cluster_size", size.to_string()),
        ("cluster_current_epoch", version.to_string()),
        ("cluster_my_epoch", version.to_string()),
        ("cluster_stats_messages_sent", "0".to_owned()),
        ("cluster_stats_messages_received", "0".to_owned()),
    ];
    lines
        .map(|(name, value)| format!("{name}:{value}\r\n"))
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_placement::planner;
    use doyen_placement::{Addresses, Age, Settings, ThreadPorts};
    use std::sync::Arc;

    const ME: MemberId = MemberId(0x10);
    const OTHER: MemberId = MemberId(0x20);

    fn at(text: &str) -> Option<SocketAddr> {
        Some(text.parse().expect("an address"))
    }

    fn member(id: MemberId, resp_cluster: Option<SocketAddr>) -> Member {
        let any = SocketAddr::from(([10, 0, 0, 9], 7400));
        Member {
            age: Age(id.0),
            ..Member::new(
                id,
                format!("m{}", id.0),
                Addresses {
                    resp: at("10.0.0.9:7379"),
                    resp_cluster,
                    ..Addresses::new(any, any)
                },
            )
        }
    }

    fn view(members: Vec<Member>) -> View {
        let keyspace = crate::admin::keyspace::KeyspaceOptions {
            partitions: Some(64),
            backups: Some(0),
            ..crate::admin::keyspace::KeyspaceOptions::new()
        };
        let keyspace = keyspace
            .create("default")
            .expect("it holds")
            .numbered(KEYSPACE);
        let table = Arc::new(planner::first(
            ClusterId(7),
            Settings::default(),
            keyspace,
            members,
        ));
        View {
            installed: table.clone(),
            accepted: table,
            opens_at: Arc::default(),
        }
    }

    fn answer(view: Option<&View>, asked: SlotTopology) -> String {
        String::from_utf8(
            TopologyCache::default()
                .answer(view, ME, asked, Protocol::Resp2)
                .to_vec(),
        )
        .expect("text")
    }

    /// Each slot's host and port, and how many runs there are.
    fn owners(view: &View) -> (Vec<String>, usize) {
        let map = SlotMap::of(Some(view), ME).expect("slots are assigned");
        let host = |owner| {
            map.nodes
                .iter()
                .find(|n| n.thread == owner)
                .expect("it is shown")
                .endpoint
                .to_string()
        };
        let each = map
            .runs
            .iter()
            .flat_map(|r| (r.from..=r.to).map(move |_| host(r.owner)));
        (each.collect(), map.runs.len())
    }

    /// Regression: clients refuse a map with holes, and every embedded node made some.
    #[test]
    fn slots_of_a_member_without_a_cluster_aware_port_are_shown_as_the_answering_nodes_own() {
        let (me, open, closed) = (
            member(ME, at("10.0.0.1:7380")),
            member(OTHER, at("10.0.0.2:7380")),
            member(OTHER, None),
        );
        let (all, _) = owners(&view(vec![me.clone(), open]));
        assert_eq!(all.len(), 16384);
        assert!(
            ["10.0.0.1:7380", "10.0.0.2:7380"].iter().all(|host| all
                .iter()
                .filter(|h| *h == host)
                .count()
                == 8192)
        );
        let (all, runs) = owners(&view(vec![me, closed.clone()]));
        assert!(
            all.len() == 16384 && runs == 1 && all.iter().all(|h| h == "10.0.0.1:7380"),
            "{runs}"
        );
        // If no member has such a port, the plain one serves everything.
        let (all, runs) = owners(&view(vec![member(ME, None), closed]));
        assert!(
            all.len() == 16384 && runs == 1 && all.iter().all(|h| h == "10.0.0.9:7379"),
            "{runs}"
        );
    }

    /// Regression: the members of a cluster across machines, whose client ports stayed on loopback,
    /// sent clients to 127.0.0.1: each to itself, for ever.
    #[test]
    fn a_port_on_the_loopback_of_another_machine_is_shown_to_no_client() {
        let theirs = |view: &View| {
            let keyspace = keyspace(Some(view)).expect("assigned");
            let led = keyspace.partitions.iter().find(|p| p.primary() == OTHER);
            redirect(view, ME, 1, led.expect("it leads half")).map(|to| to.to_string())
        };
        let own = ["10.0.0.1:7380", "127.0.0.1:7380", "[::1]:7380"];
        let others = [
            "127.0.0.1:7380",
            "127.9.9.9:7380",
            "[::1]:7380",
            "[::ffff:127.0.0.1]:7380",
        ];
        for (mine, other) in own
            .iter()
            .flat_map(|mine| others.map(|other| (mine, other)))
        {
            let view = view(vec![member(ME, at(mine)), member(OTHER, at(other))]);
            let (all, runs) = owners(&view);
            let mine: SocketAddr = mine.parse().expect("an address");
            let shown = format!("{}:{}", mine.ip(), mine.port());
            assert!(
                runs == 1 && all.iter().all(|host| *host == shown),
                "{shown} {other}"
            );
            assert_eq!(theirs(&view), None, "{shown} forwards");
            let nodes = answer(Some(&view), SlotTopology::Nodes);
            assert_eq!(nodes.matches("master").count(), 1, "{nodes}");
            let shards = answer(Some(&view), SlotTopology::Shards);
            assert!(shards.starts_with("*1\r\n"), "{shards}");
        }
        // On one machine, all of them are reached.
        let local = |id, port: &str| {
            let mut member = member(id, at(port));
            member.addresses.control = ([127, 0, 0, 1], 7400).into();
            member
        };
        let view_of_one = view(vec![
            local(ME, "127.0.0.1:7380"),
            local(OTHER, "127.0.0.1:7381"),
        ]);
        assert_eq!(theirs(&view_of_one).as_deref(), Some("127.0.0.1:7381"));
        // A name that was given leads elsewhere.
        let mut named = member(OTHER, at("127.0.0.1:7381"));
        named.addresses.hostname = Some("redis-2.example.com".into());
        let named = view(vec![member(ME, at("10.0.0.1:7380")), named]);
        assert_eq!(theirs(&named).as_deref(), Some("redis-2.example.com:7381"));
    }

    #[test]
    fn slots_without_a_primary_go_to_the_answering_node_and_neighbours_are_merged() {
        let run = |from, to, owner| SlotRun { from, to, owner };
        assert_eq!(covering(&[], ME), [run(0, 16383, ME)]);
        let led = [
            run(10, 19, OTHER),
            run(20, 29, OTHER),
            run(30, 39, ME),
            run(41, 16383, OTHER),
        ];
        let covered = [
            run(0, 9, ME),
            run(10, 29, OTHER),
            run(30, 40, ME),
            run(41, 16383, OTHER),
        ];
        assert_eq!(covering(&led, ME), covered);
        assert_eq!(
            covering(&[run(5, 9, OTHER), run(7, 8, ME)], ME),
            [run(0, 4, ME), run(5, 9, OTHER), run(10, 16383, ME)]
        );
    }

    /// Regression: `*0` made clients believe in a cluster without slots, which they report as
    /// broken.
    #[test]
    fn before_slots_are_assigned_clients_are_told_to_try_again() {
        let mut stranger = view(vec![member(OTHER, at("10.0.0.2:7380"))]);
        for asked in [
            SlotTopology::Slots,
            SlotTopology::Shards,
            SlotTopology::Nodes,
        ] {
            assert!(answer(None, asked).starts_with("-LOADING "));
            assert!(
                answer(Some(&stranger), asked).starts_with("-LOADING "),
                "the table does not name this node"
            );
        }
        let mut table = (*stranger.installed).clone();
        table.members = vec![member(ME, at("10.0.0.1:7380")).into()];
        table.keyspaces[0].partitions = Default::default();
        stranger.installed = Arc::new(table);
        assert!(answer(Some(&stranger), SlotTopology::Slots).starts_with("-LOADING "));
    }

    #[test]
    fn answers_are_kept_until_the_table_changes() {
        let mut answers = TopologyCache::default();
        let one = view(vec![member(ME, at("10.0.0.1:7380"))]);
        let first = answers.answer(Some(&one), ME, SlotTopology::Slots, Protocol::Resp2);
        assert_eq!(
            first.as_ptr(),
            answers
                .answer(Some(&one), ME, SlotTopology::Slots, Protocol::Resp2)
                .as_ptr()
        );
        let resp3 = answers.answer(Some(&one), ME, SlotTopology::Slots, Protocol::Resp3);
        assert!(first.ends_with(b"*0\r\n") && resp3.ends_with(b"%0\r\n"));
        let mut table = (*one.installed).clone();
        table.version = Version(table.version.0 + 1);
        table.members = vec![member(ME, at("10.0.0.3:7380")).into()];
        let other = View {
            installed: Arc::new(table),
            ..one
        };
        let moved = answers.answer(Some(&other), ME, SlotTopology::Slots, Protocol::Resp2);
        assert!(String::from_utf8_lossy(&moved).contains("10.0.0.3"));
    }

    /// Redis writes them without brackets, and redis-cli and ioredis take the text before the last
    /// colon for the host.
    #[test]
    fn ipv6_addresses_are_written_without_brackets() {
        let view = view(vec![
            member(ME, at("[2001:db8::1]:7380")),
            member(OTHER, at("[2001:db8::2]:7380")),
        ]);
        let keyspace = keyspace(Some(&view)).expect("assigned");
        let theirs = keyspace
            .partitions
            .iter()
            .find(|p| p.primary() == OTHER)
            .expect("it leads half");
        assert_eq!(
            redirect(&view, ME, 1, theirs)
                .map(|e| e.to_string())
                .as_deref(),
            Some("2001:db8::2:7380")
        );
        assert!(
            answer(Some(&view), SlotTopology::Nodes)
                .contains(" 2001:db8::1:7380@7400 myself,master - 0 0 ")
        );
        for asked in [SlotTopology::Slots, SlotTopology::Shards] {
            let text = answer(Some(&view), asked);
            assert!(
                text.contains("\r\n2001:db8::1\r\n") && !text.contains('['),
                "{text}"
            );
        }
    }

    #[test]
    fn a_member_with_a_host_name_is_shown_by_it_with_its_address_as_metadata() {
        let mut named = member(OTHER, at("10.0.0.2:7380"));
        named.addresses.hostname = Some("redis-2.example.com".into());
        named.addresses.further = vec![ThreadPorts {
            data: 7500,
            resp_cluster: Some(7381),
        }];
        let view = view(vec![member(ME, at("10.0.0.1:7380")), named]);
        let slots = answer(Some(&view), SlotTopology::Slots);
        assert!(
            slots.contains("*4\r\n$19\r\nredis-2.example.com\r\n:7381\r\n$40\r\n"),
            "{slots}"
        );
        assert!(
            slots.contains("*2\r\n$2\r\nip\r\n$8\r\n10.0.0.2\r\n"),
            "{slots}"
        );
        let shards = answer(Some(&view), SlotTopology::Shards);
        assert!(
            shards.contains("$8\r\nhostname\r\n$19\r\nredis-2.example.com\r\n")
                && shards.contains("$2\r\nip\r\n$8\r\n10.0.0.2\r\n")
        );
        assert!(
            answer(Some(&view), SlotTopology::Nodes)
                .contains(" 10.0.0.2:7381@7400,redis-2.example.com master - ")
        );
        let keyspace = keyspace(Some(&view)).expect("assigned");
        let theirs = keyspace
            .partitions
            .iter()
            .find(|p| p.primary() == OTHER)
            .expect("it leads half");
        let sent = redirect(&view, ME, 1, theirs)
            .expect("they are not led here")
            .to_string();
        assert!(
            ["redis-2.example.com:7380", "redis-2.example.com:7381"].contains(&&*sent),
            "{sent}"
        );
    }

    #[test]
    fn node_ids_differ_in_their_first_digits_also_between_threads_of_one_member() {
        let ids: BTreeSet<String> = (0..256).map(|n| node_id(MemberId(0xabc0 + n))).collect();
        assert!(
            ids.iter()
                .all(|id| id.len() == 40 && id.bytes().all(|b| b.is_ascii_hexdigit()))
        );
        let prefixes: BTreeSet<&str> = ids.iter().map(|id| &id[..8]).collect();
        assert_eq!(prefixes.len(), 256);
        assert_eq!(node_id(ME), node_id(ME));
        assert!(node_id(ME) != shard_id(ME) && shard_id(ME).len() == 40);
    }

    #[test]
    fn every_node_has_no_replicas_and_others_are_unknown() {
        let view = view(vec![
            member(ME, at("10.0.0.1:7380")),
            member(OTHER, at("10.0.0.2:7380")),
        ]);
        let ask = |of: &str| {
            let mut bytes = BytesMut::new();
            replicas(
                &mut Encoder::new(&mut bytes, Protocol::Resp2),
                Some(&view),
                ME,
                of.as_bytes(),
            );
            String::from_utf8_lossy(&bytes).into_owned()
        };
        assert_eq!(ask(&node_id(OTHER)), "*0\r\n");
        assert_eq!(ask("abc"), "-ERR Unknown node abc\r\n");
    }
}
