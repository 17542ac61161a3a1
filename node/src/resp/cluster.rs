//! What `CLUSTER` says, and where a cluster-aware client is sent: all from the view. Both ports name the addresses of
//! the cluster-aware one. To such a client each data thread of a member is a node, which leads what is that thread's of what its member
//! leads; so it goes straight to the thread.

use super::encode::Encoder;
use crate::shard::{self, Threads};
use doyen_gossip::agreement::View;
use doyen_placement::hash::SLOTS;
use doyen_placement::{Keyspace, KeyspaceId, Member, MemberId, MemberState, Partition};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The keyspace in which Redis clients begin; its map 0 is their database 0.
pub const KEYSPACE: KeyspaceId = KeyspaceId(0);

/// The id of a member's data thread as Redis Cluster writes node ids: 40 hex digits.
#[must_use]
pub fn node_id(id: MemberId) -> String {
    format!("{:040x}", id.0)
}

/// The keyspace of Redis clients, once it has partitions.
#[must_use]
pub fn keyspace(view: Option<&View>) -> Option<&Keyspace> {
    assigned(view, KEYSPACE)
}

/// This keyspace, once it has partitions.
#[must_use]
pub fn assigned(view: Option<&View>, id: KeyspaceId) -> Option<&Keyspace> {
    view?.installed.keyspace(id).filter(|k| !k.partitions.is_empty())
}

/// The partition that holds this slot.
#[must_use]
pub fn partition_of(view: Option<&View>, slot: u16) -> Option<&Partition> {
    let keyspace = keyspace(view)?;
    keyspace.partition(keyspace.partition_of_slot(slot)?).map(|p| &**p)
}

/// Whether this data thread, one of so many of its node, leads a partition.
#[must_use]
pub fn leads(me: MemberId, threads: u8, partition: &Partition) -> bool {
    partition.primary() == me.member() && shard::thread_of(partition.id, threads) == me.thread_number()
}

/// Where a client is sent for this slot; `None` where this thread answers: it is the primary, or the primary has no
/// cluster-aware port and this node forwards.
#[must_use]
pub fn redirect(view: &View, me: MemberId, threads: u8, partition: &Partition) -> Option<SocketAddr> {
    if leads(me, threads, partition) {
        return None;
    }
    let member = view.installed.member(partition.primary())?;
    address(member, member.id.thread(shard::thread_of(partition.id, member.addresses.threads())))
}

/// Where a thread of a member answers cluster-aware clients.
fn address(member: &Member, thread: MemberId) -> Option<SocketAddr> {
    member.addresses.resp_cluster_of(thread.thread_number())
}

/// The least number of in-sync backups that any partition of this keyspace has: so many other nodes hold every acknowledged write.
#[must_use]
pub fn backups_least(view: Option<&View>, keyspace: KeyspaceId) -> i64 {
    let least = assigned(view, keyspace).and_then(|k| k.partitions.iter().map(|p| p.in_sync().count().saturating_sub(1)).min());
    least.and_then(|n| i64::try_from(n).ok()).unwrap_or(0)
}

/// Slots from..=to of one primary: a data thread of a member.
///
/// Copies are not shown: they serve nothing here, and clients such as redis-py give a node one role, so that a node that leads
/// some slots and copies others would be taken for a replica, and left out of DBSIZE, KEYS and FLUSHALL.
struct Run {
    from: u16,
    to: u16,
    primary: MemberId,
}

fn runs(view: Option<&View>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let (Some(view), Some(keyspace)) = (view, keyspace(view)) else { return runs };
    let threads = Threads::of(&[&view.installed]);
    for partition in &keyspace.partitions {
        let (from, to) = keyspace.slots_of(partition.id).into_inner();
        let primary = threads.peer_of(partition.primary(), partition.id);
        match runs.last_mut() {
            Some(last) if last.primary == primary && last.to.checked_add(1) == Some(from) => last.to = to,
            _ => runs.push(Run { from, to, primary }),
        }
    }
    runs
}

/// The data threads that answer cluster-aware clients, and where.
fn threads(view: Option<&View>) -> impl Iterator<Item = (&Member, MemberId, SocketAddr)> {
    let members = view.into_iter().flat_map(|v| v.installed.members.iter());
    let threads = members.flat_map(|m| (0..m.addresses.threads()).map(move |t| (&**m, m.id.thread(t))));
    threads.filter_map(|(m, thread)| Some((m, thread, address(m, thread)?)))
}

/// Slot runs of which each data thread is primary.
fn runs_by_primary(view: Option<&View>) -> BTreeMap<MemberId, Vec<(u16, u16)>> {
    let mut by: BTreeMap<MemberId, Vec<(u16, u16)>> = BTreeMap::new();
    for run in runs(view) {
        let list = by.entry(run.primary).or_default();
        match list.last_mut() {
            Some((_, to)) if to.checked_add(1) == Some(run.from) => *to = run.to,
            _ => list.push((run.from, run.to)),
        }
    }
    by
}

/// `CLUSTER SLOTS`.
pub fn slots(encoder: &mut Encoder<'_>, view: Option<&View>) {
    let reached: BTreeMap<MemberId, SocketAddr> = threads(view).map(|(_, thread, at)| (thread, at)).collect();
    let runs: Vec<_> = runs(view).into_iter().filter_map(|run| Some((run.primary, *reached.get(&run.primary)?, run))).collect();
    encoder.array(runs.len());
    for (id, at, run) in runs {
        encoder.array(3);
        encoder.integer(run.from.into());
        encoder.integer(run.to.into());
        encoder.array(4);
        encoder.bulk(at.ip().to_string().as_bytes());
        encoder.integer(at.port().into());
        encoder.bulk(node_id(id).as_bytes());
        encoder.map(0);
    }
}

/// `CLUSTER SHARDS`: one shard a primary, without copies, because each partition may have its copies elsewhere.
pub fn shards(encoder: &mut Encoder<'_>, view: Option<&View>) {
    let by = runs_by_primary(view);
    let threads: Vec<_> = threads(view).collect();
    encoder.array(threads.len());
    for (member, thread, at) in threads {
        let runs = by.get(&thread).map_or(&[][..], Vec::as_slice);
        encoder.map(2);
        encoder.bulk(b"slots");
        encoder.array(runs.len() * 2);
        for (from, to) in runs {
            encoder.integer((*from).into());
            encoder.integer((*to).into());
        }
        encoder.bulk(b"nodes");
        encoder.array(1);
        let ip = at.ip().to_string();
        encoder.map(7);
        encoder.bulk(b"id");
        encoder.bulk(node_id(thread).as_bytes());
        encoder.bulk(b"port");
        encoder.integer(at.port().into());
        encoder.bulk(b"ip");
        encoder.bulk(ip.as_bytes());
        encoder.bulk(b"endpoint");
        encoder.bulk(ip.as_bytes());
        encoder.bulk(b"role");
        encoder.bulk(b"master");
        encoder.bulk(b"replication-offset");
        encoder.integer(0);
        encoder.bulk(b"health");
        encoder.bulk(if member.state == MemberState::Silent { b"fail" } else { b"online" });
    }
}

/// `CLUSTER NODES`: every thread as a master, because each leads some partitions and backs up others.
#[must_use]
pub fn nodes(view: Option<&View>, me: MemberId) -> String {
    let by = runs_by_primary(view);
    let version = view.map_or(0, |v| v.installed.version.0);
    let mut text = String::new();
    for (member, thread, at) in threads(view) {
        let myself = if thread == me { "myself," } else { "" };
        let (fail, link) = if member.state == MemberState::Silent { (",fail", "disconnected") } else { ("", "connected") };
        let (id, bus) = (node_id(thread), member.addresses.control.port());
        text += &format!("{id} {at}@{bus} {myself}master{fail} - 0 0 {version} {link}");
        for (from, to) in by.get(&thread).map_or(&[][..], Vec::as_slice) {
            text += &if from == to { format!(" {from}") } else { format!(" {from}-{to}") };
        }
        text.push('\n');
    }
    text
}

/// `CLUSTER INFO`.
#[must_use]
pub fn info(view: Option<&View>, served: bool) -> String {
    let assigned = if keyspace(view).is_some() { SLOTS } else { 0 };
    let silent = |v: &View, p: &Partition| v.installed.member(p.primary()).is_none_or(|m| m.state == MemberState::Silent);
    let failed: usize =
        view.zip(keyspace(view)).map_or(0, |(v, k)| k.partitions.iter().filter(|p| silent(v, p)).map(|p| k.slots_of(p.id).len()).sum());
    let ok = usize::from(assigned) - failed.min(assigned.into());
    let failed = if served { failed } else { usize::from(assigned) };
    let ok = if served { ok } else { 0 };
    let state = if assigned > 0 && failed == 0 { "ok" } else { "fail" };
    let known: usize = view.map_or(0, |v| v.installed.members.iter().map(|m| usize::from(m.addresses.threads())).sum());
    let size = runs_by_primary(view).len();
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
    lines.map(|(name, value)| format!("{name}:{value}\r\n")).concat()
}
