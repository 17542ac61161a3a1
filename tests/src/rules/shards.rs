//! A few shards of one partition, and the tables that a check shows to them. Every link is visible;
//! a check may hold what is on it.

use crate::mutants;
use bytes::{Bytes, BytesMut};
use doyen_engine::op::{Action, Operation, Outcome, PartitionAction, PartitionOperation, Value};
use doyen_engine::{CallToken, DiskPort, Lane, Limits, Patience, Shard, ShardRequest, Stats};
use doyen_gossip::Time;
use doyen_gossip::agreement::{InSyncRequest, View};
use doyen_placement::division::Cut;
use doyen_placement::level::LEVELS;
use doyen_placement::mutant::broken;
use doyen_placement::planner::reshape;
use doyen_placement::{
    Addresses, Epoch, Keyspace, KeyspaceId, MapId, Member, MemberId, MemberState, Partition,
    PartitionId, PartitionRef, Replica, ReplicaState, Reshape, Table, Version,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The only partition.
pub(super) const AT: PartitionRef = PartitionRef {
    keyspace: KeyspaceId(0),
    partition: PartitionId(0),
};

/// A node, by its number in a check, from 1.
pub(super) type Place = u64;

/// A native client, which all nodes serve.
pub(super) const CLIENT: Place = 1 << 32;

type Wire = (Place, Place, Lane);

struct Node {
    shard: Shard,
    lease: Time,
    /// Whether the shard has the view that its control thread shows.
    current: bool,
    /// Clock, lease and view as they were when its pass began.
    checked: (Time, Time, bool),
    /// The last batch that its disk got.
    given: u64,
    /// Values that were read at once, and whose answers are not checked yet.
    read: Vec<(CallToken, u64, Operation, Outcome)>,
}

impl Node {
    /// A node with a lease that does not end, and no table.
    fn new(place: Place, now: Time) -> Self {
        Self::with_memory(place, now, 64 << 20)
    }

    fn with_memory(place: Place, now: Time, memory_bytes_max: usize) -> Self {
        let limits = Limits {
            packed_bytes_max: 0,
            packed_small_bytes_max: 0,
            memory_bytes_max,
            ..Limits::of_test()
        };
        let lease = Time(u64::MAX);
        let shard = Shard::new(id(place), limits, place, now);
        Self {
            shard,
            lease,
            current: true,
            checked: (now, lease, true),
            given: 0,
            read: Vec::new(),
        }
    }
}

/// The shards.
pub(super) struct Shards {
    now: Time,
    nodes: BTreeMap<Place, Node>,
    wires: BTreeMap<Wire, VecDeque<Bytes>>,
    arrived: BTreeMap<Wire, BytesMut>,
    held: BTreeSet<Wire>,
    /// Datagrams that arrive in the next millisecond, and the links that lose them.
    datagrams: Vec<(Place, Place, Bytes)>,
    lossy: BTreeSet<(Place, Place)>,
    /// The bytes a millisecond of links that are narrow.
    narrow: BTreeMap<Wire, usize>,
    /// The node that is suspended.
    stalled: Option<Place>,
    outcomes: BTreeMap<CallToken, Outcome>,
    next_token: CallToken,
    pub(super) asked: Vec<InSyncRequest>,
    pub(super) opened: Vec<(Place, Epoch)>,
}

pub(super) fn id(place: Place) -> MemberId {
    if place == CLIENT {
        MemberId::of_client(place)
    } else {
        MemberId(place << 4)
    }
}

fn place_of(id: MemberId) -> Place {
    if id.is_client() { CLIENT } else { id.0 >> 4 }
}

/// A table of these members. These hold the partition in sync, the primary first.
pub(super) fn table(members: u64, in_sync: &[Place]) -> Table {
    let address = std::net::SocketAddr::from(([10, 0, 0, 1], 7000));
    let member = |n| Member::new(id(n), format!("n{n}"), Addresses::new(address, address));
    let none = Partition {
        epoch: Epoch(0),
        since: Epoch(0),
        ..Partition::new(AT.partition, [])
    };
    let keyspace = Keyspace {
        partitions: vec![Arc::new(none)],
        ..Keyspace::fixed(1, 1)
    };
    let before = Table {
        version: Version(0),
        ..Table::of_test((1..=members).map(member), keyspace)
    };
    next(&before, in_sync, &[])
}

/// The next table: other members hold the partition, in another epoch, and another tenure begins.
pub(super) fn next(table: &Table, in_sync: &[Place], learners: &[Place]) -> Table {
    change(table, |partition| {
        partition.replicas = replicas(in_sync, learners);
        partition.epoch = partition.epoch.next();
        partition.since = partition.epoch;
    })
}

/// The next table, with this change of the partition.
pub(super) fn change(table: &Table, change: impl FnOnce(&mut Partition)) -> Table {
    let mut next = table.clone();
    next.version = next.version.next();
    change(Arc::make_mut(&mut next.keyspaces[0].partitions[0]));
    next
}

/// Two tables: in the first, the second member learns what the first holds; in the other, it
/// counts.
pub(super) fn learning(table: &Table) -> (Table, Table) {
    let learning = change(table, |p| p.replicas = replicas(&[1], &[2]));
    let admitted = change(&learning, |p| {
        p.replicas = replicas(&[1, 2], &[]);
        p.epoch = p.epoch.next();
    });
    (learning, admitted)
}

/// This many nodes. The first two hold the partition, something is written, and the partition is to
/// be split. Also the table that says so.
pub(super) fn being_split(count: u64) -> Result<(Shards, Table), String> {
    let mut s = Shards::new(count);
    let first = table(count, &[1, 2]);
    s.show_all(&first);
    s.write(1, "x", "1")?;
    let split = Reshape::Split {
        partition: AT.partition,
        cut: Cut::Half,
    };
    let begun = reshape::begin(&first, AT.keyspace, split).map_err(|why| why.to_string())?;
    let begun = change(&begun, |_| {});
    s.show_all(&begun);
    s.run(100)?;
    Ok((s, begun))
}

/// The next table, without the youngest member.
pub(super) fn without_the_last(table: &Table) -> Table {
    let mut next = change(table, |_| {});
    let gone = next.members.pop().map(|m| m.id);
    next.voters.retain(|v| Some(*v) != gone);
    next
}

/// The table with another state of a member.
pub(super) fn with_state(table: &Table, place: Place, state: MemberState) -> Table {
    let mut next = change(table, |_| {});
    next.members
        .iter_mut()
        .filter(|m| m.id == id(place))
        .for_each(|m| Arc::make_mut(m).state = state);
    next
}

pub(super) fn replicas(in_sync: &[Place], learners: &[Place]) -> Vec<Replica> {
    let replica = |state| {
        move |place: &Place| Replica {
            member: id(*place),
            state,
        }
    };
    in_sync
        .iter()
        .map(replica(ReplicaState::InSync))
        .chain(learners.iter().map(replica(ReplicaState::Learner)))
        .collect()
}

pub(super) fn set(value: &str) -> Action {
    Action::set(Bytes::copy_from_slice(value.as_bytes()))
}

pub(super) fn bulk(value: &str) -> Outcome {
    Outcome::Bulk(Value::from(value.as_bytes()))
}

impl Shards {
    /// This many nodes, all connected with each other, with leases that do not end and no table.
    pub(super) fn new(count: u64) -> Self {
        let now = Time(1_000_000_000);
        let nodes = (1..=count)
            .map(|place| (place, Node::new(place, now)))
            .collect();
        let mut shards = Self {
            now,
            nodes,
            wires: BTreeMap::new(),
            arrived: BTreeMap::new(),
            held: BTreeSet::new(),
            datagrams: Vec::new(),
            lossy: BTreeSet::new(),
            narrow: BTreeMap::new(),
            stalled: None,
            outcomes: BTreeMap::new(),
            next_token: 1,
            asked: Vec::new(),
            opened: Vec::new(),
        };
        for one in 1..=count {
            (one + 1..=count).for_each(|other| shards.connect(one, other));
        }
        shards
    }

    // ---- what a check does

    /// A native client begins, connected with all of them.
    pub(super) fn add_client(&mut self) {
        let members: Vec<Place> = self.nodes.keys().copied().collect();
        self.nodes.insert(CLIENT, Node::new(CLIENT, self.now));
        members
            .into_iter()
            .for_each(|member| self.connect(CLIENT, member));
    }

    /// Sets the bytes that a node has for data. The node begins empty.
    pub(super) fn gives(&mut self, place: Place, memory_bytes_max: usize) {
        self.kill(place);
        self.nodes
            .insert(place, Node::with_memory(place, self.now, memory_bytes_max));
        let others: Vec<Place> = self
            .nodes
            .keys()
            .copied()
            .filter(|other| *other != place)
            .collect();
        others
            .into_iter()
            .for_each(|other| self.connect(place, other));
    }

    /// Both ends learn that their connection is up.
    pub(super) fn connect(&mut self, one: Place, other: Place) {
        for (place, peer) in [(one, other), (other, one)] {
            let now = self.now;
            if let Some(node) = self.nodes.get_mut(&place) {
                node.shard.connected(now, id(peer), LEVELS.1);
            }
        }
    }

    /// The connection breaks, and everything on it is lost.
    pub(super) fn disconnect(&mut self, one: Place, other: Place) {
        let between =
            |(from, to, _): &Wire| (*from, *to) == (one, other) || (*from, *to) == (other, one);
        self.wires.retain(|wire, _| !between(wire));
        self.arrived.retain(|wire, _| !between(wire));
        for (place, peer) in [(one, other), (other, one)] {
            let now = self.now;
            if let Some(node) = self.nodes.get_mut(&place) {
                node.shard.disconnected(now, id(peer));
            }
        }
    }

    pub(super) fn kill(&mut self, place: Place) {
        for other in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.disconnect(place, other);
        }
        self.nodes.remove(&place);
    }

    /// Holds what is on this link until it is let go.
    pub(super) fn hold(&mut self, from: Place, to: Place, lane: Lane) {
        self.held.insert((from, to, lane));
    }

    pub(super) fn let_go(&mut self, from: Place, to: Place, lane: Lane) {
        self.held.remove(&(from, to, lane));
    }

    /// This link loses all datagrams.
    pub(super) fn lose_datagrams(&mut self, from: Place, to: Place) {
        self.lossy.insert((from, to));
    }

    /// This link carries this many bytes a millisecond and no more.
    pub(super) fn narrow(&mut self, from: Place, to: Place, lane: Lane, bytes: usize) {
        self.narrow.insert((from, to, lane), bytes);
    }

    /// A node's control thread shows this view, and the shard has it at once. Its own tenure may
    /// acknowledge after this time.
    pub(super) fn show(
        &mut self,
        place: Place,
        installed: &Table,
        accepted: &Table,
        opens_after: Duration,
    ) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&place) else {
            return;
        };
        let since = installed.partition(AT).map_or(Epoch(0), |p| p.since);
        let opens_at = Arc::new(vec![(AT, since, now + opens_after)]);
        node.shard.install(
            now,
            View {
                installed: Arc::new(installed.clone()),
                accepted: Arc::new(accepted.clone()),
                opens_at,
            },
        );
        node.current = true;
        self.pass(place);
    }

    /// All nodes are shown a committed table, in which tenures begin at once.
    pub(super) fn show_all(&mut self, table: &Table) {
        for place in self
            .nodes
            .keys()
            .copied()
            .filter(|place| *place != CLIENT)
            .collect::<Vec<_>>()
        {
            self.show(place, table, table, Duration::ZERO);
        }
    }

    /// A node gets a disk, before its first table.
    pub(super) fn begin_disk(&mut self, place: Place) {
        if let Some(node) = self.nodes.get_mut(&place) {
            DiskPort::of(&mut node.shard, self.now).begin();
        }
    }

    /// The disk of a node gets what there is for it. `syncs`: it has all of it.
    pub(super) fn write_disk(&mut self, place: Place, syncs: bool) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&place) else {
            return;
        };
        let mut disk = DiskPort::of(&mut node.shard, now);
        while let Some(batch) = disk.poll(0) {
            node.given = batch.number;
        }
        if syncs {
            disk.synced(node.given);
        }
    }

    /// A node's control thread shows a view that the shard does not have yet.
    pub(super) fn shows_something_else(&mut self, place: Place) {
        if let Some(node) = self.nodes.get_mut(&place) {
            node.current = false;
        }
    }

    pub(super) fn lease(&mut self, place: Place, lasts: Duration) {
        let until = self.now + lasts;
        if let Some(node) = self.nodes.get_mut(&place) {
            node.lease = until;
        }
    }

    pub(super) fn submit(&mut self, place: Place, key: &str, action: Action) -> CallToken {
        let token = self.takes(place, key, action);
        self.pass(place);
        token
    }

    /// Deletes every key.
    pub(super) fn clear(&mut self, place: Place) -> CallToken {
        let (token, now) = (self.next_token, self.now);
        self.next_token += 1;
        let PartitionRef {
            keyspace,
            partition,
        } = AT;
        if let Some(node) = self.nodes.get_mut(&place) {
            let operation = PartitionOperation {
                keyspace,
                partition,
                map: MapId(0),
                action: PartitionAction::Clear,
            };
            node.shard
                .submit(now, 1_700_000_000_000, token, operation, Patience::Whole);
        }
        self.pass(place);
        token
    }

    /// A caller waits until an operation is not blocked.
    pub(super) fn waits(
        &mut self,
        place: Place,
        key: &str,
        action: Action,
        limit: Duration,
    ) -> CallToken {
        let (token, now) = (self.next_token, self.now);
        self.next_token += 1;
        if let Some(node) = self.nodes.get_mut(&place) {
            let operation = Operation {
                keyspace: AT.keyspace,
                map: MapId(0),
                key: Bytes::copy_from_slice(key.as_bytes()),
                action,
            };
            let (age, until) = (Duration::ZERO, Some(now + limit));
            let patience = Patience::InLine { age, until };
            node.shard
                .submit(now, 1_700_000_000_000, token, operation, patience);
        }
        self.pass(place);
        token
    }

    /// The caller does not wait any more.
    pub(super) fn leaves(&mut self, place: Place, token: CallToken) {
        if let Some(node) = self.nodes.get_mut(&place) {
            node.shard.forget(token);
        }
        self.pass(place);
    }

    pub(super) fn get(&mut self, place: Place, key: &str) -> CallToken {
        self.submit(place, key, Action::Get)
    }

    /// Begins a pass: looks at clock, lease and view.
    pub(super) fn begin(&mut self, place: Place) {
        let now = self.now;
        if let Some(node) = self.nodes.get_mut(&place) {
            node.checked = (now, node.lease, node.current);
        }
    }

    /// Takes an operation within a pass.
    pub(super) fn takes(&mut self, place: Place, key: &str, action: Action) -> CallToken {
        let (token, now) = (self.next_token, self.now);
        self.next_token += 1;
        let Some(node) = self.nodes.get_mut(&place) else {
            return token;
        };
        let operation = Operation {
            keyspace: AT.keyspace,
            map: MapId(0),
            key: Bytes::copy_from_slice(key.as_bytes()),
            action,
        };
        // Sessions of clients take the same short ways, if they may.
        if operation.action == Action::Get
            && let Some((n, value)) = node.shard.read(now, AT.keyspace, MapId(0), key.as_bytes())
        {
            let outcome = value.map_or(Outcome::Nil, |value| Outcome::Bulk(value.into()));
            node.read.push((token, n, operation, outcome));
            return token;
        }
        let set = operation.action.as_set().cloned();
        let done = set.is_some_and(|value| {
            node.shard
                .set(now, AT.keyspace, MapId(0), (key.as_bytes(), &value), || {
                    token
                })
        });
        if !done {
            node.shard
                .submit(now, 1_700_000_000_000, token, operation, Patience::Whole);
        }
        token
    }

    /// Ends a pass: checks clock, lease and view again, and answers what may be answered.
    pub(super) fn end(&mut self, place: Place) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&place) else {
            return;
        };
        let (at, lease, current) = if broken(&mutants::CHECKS_THEN_READS) {
            node.checked
        } else {
            (now, node.lease, node.current)
        };
        let well = Shard::may_answer(at, lease, current);
        for (token, n, operation, outcome) in std::mem::take(&mut node.read) {
            if well {
                self.outcomes.insert(token, outcome);
            } else {
                node.shard.keep(token, n, operation, outcome);
            }
        }
        node.shard.release(at, lease, current);
        while let Some((token, outcome)) = node.shard.poll_outcome() {
            self.outcomes.insert(token, outcome);
        }
        while let Some((peer, lane, bytes)) = node.shard.poll_transmit() {
            self.wires
                .entry((place, place_of(peer), lane))
                .or_default()
                .push_back(bytes);
        }
        while let Some((peer, bytes)) = node.shard.poll_datagram() {
            self.datagrams.push((place, place_of(peer), bytes));
        }
        while let Some(request) = node.shard.poll_request() {
            match request {
                ShardRequest::Opened(opened) => self
                    .opened
                    .extend(opened.into_iter().map(|(_, since)| (place, since))),
                ShardRequest::InSync(requests) => self.asked.extend(requests),
                ShardRequest::Used => node.shard.used(now),
                // This goes to a client.
                ShardRequest::Table(table) => {
                    node.shard.install(
                        now,
                        View {
                            installed: table.clone(),
                            accepted: table,
                            opens_at: Arc::default(),
                        },
                    );
                }
                ShardRequest::Loads(..)
                | ShardRequest::Differed(..)
                | ShardRequest::Newer(_)
                | ShardRequest::WantMap { .. }
                | ShardRequest::MapMade { .. }
                | ShardRequest::OtherCluster(_) => {}
            }
        }
    }

    fn pass(&mut self, place: Place) {
        self.begin(place);
        self.end(place);
    }

    /// Suspends a node: nothing reaches it, and it does nothing.
    pub(super) fn stalls(&mut self, place: Place) {
        self.stalled = Some(place);
    }

    /// The suspended node goes on.
    pub(super) fn goes_on(&mut self) {
        self.stalled = None;
    }

    /// Delivers what is on its way, and lets this many milliseconds pass.
    pub(super) fn run(&mut self, ms: u64) -> Result<(), String> {
        for _ in 0..ms {
            let wires: Vec<Wire> = self
                .wires
                .keys()
                .filter(|w| !self.held.contains(w) && self.stalled != Some(w.1))
                .copied()
                .collect();
            for wire in wires {
                self.deliver(wire)?;
            }
            for (from, to, bytes) in std::mem::take(&mut self.datagrams) {
                let now = self.now;
                let lost = self.lossy.contains(&(from, to)) || self.stalled == Some(to);
                if let Some(node) = self.nodes.get_mut(&to).filter(|_| !lost) {
                    let taken = node.shard.datagram(now, id(from), &bytes);
                    taken.map_err(|e| e.to_string())?;
                }
            }
            self.now = self.now + Duration::from_millis(1);
            for place in self
                .nodes
                .keys()
                .copied()
                .filter(|place| self.stalled != Some(*place))
                .collect::<Vec<_>>()
            {
                let now = self.now;
                if let Some(node) = self.nodes.get_mut(&place)
                    && node.shard.poll_timeout().is_some_and(|due| due <= now)
                {
                    node.shard.tick(now);
                }
                self.pass(place);
            }
        }
        Ok(())
    }

    fn deliver(&mut self, wire: Wire) -> Result<(), String> {
        let (from, to, lane) = wire;
        let now = self.now;
        let Some(mut chunks) = self.wires.remove(&wire) else {
            return Ok(());
        };
        if let Some(most) = self.narrow.get(&wire)
            && let Some(mut first) = chunks.pop_front()
        {
            let rest = first.split_off(first.len().min(*most));
            if !rest.is_empty() {
                chunks.push_front(rest);
            }
            if !chunks.is_empty() {
                self.wires.insert(wire, std::mem::take(&mut chunks));
            }
            chunks = VecDeque::from([first]);
        }
        let Some(node) = self.nodes.get_mut(&to) else {
            return Ok(());
        };
        let buffer = self.arrived.entry(wire).or_default();
        chunks
            .into_iter()
            .for_each(|chunk| buffer.extend_from_slice(&chunk));
        while node
            .shard
            .receive(now, 1_700_000_000_000, id(from), lane, buffer)
            .map_err(|e| e.to_string())?
        {}
        self.pass(to);
        Ok(())
    }

    // ---- what a check sees

    pub(super) fn outcome(&self, token: CallToken) -> Option<&Outcome> {
        self.outcomes.get(&token)
    }

    /// The time.
    pub(super) fn ms(&self) -> u64 {
        self.now.0 / 1_000_000
    }

    /// What a node has counted.
    pub(super) fn stats(&self, place: Place) -> Stats {
        self.nodes
            .get(&place)
            .map(|node| node.shard.stats())
            .unwrap_or_default()
    }

    /// Runs until this holds.
    pub(super) fn until(
        &mut self,
        ms: u64,
        what: &str,
        holds: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        for _ in 0..ms {
            if holds(self) {
                return Ok(());
            }
            self.run(1)?;
        }
        Err(format!("{what}: did not come within {ms} ms"))
    }

    /// Waits for an operation, this many milliseconds at most.
    pub(super) fn done(
        &mut self,
        token: CallToken,
        ms: u64,
        what: &str,
    ) -> Result<Outcome, String> {
        for _ in 0..ms {
            if let Some(outcome) = self.outcomes.get(&token) {
                return Ok(outcome.clone());
            }
            self.run(1)?;
        }
        Err(format!("I16: {what}: no answer within {ms} ms"))
    }

    pub(super) fn write(&mut self, place: Place, key: &str, value: &str) -> Result<(), String> {
        let token = self.submit(place, key, set(value));
        let outcome = self.done(token, 500, &format!("a write of {key} through n{place}"))?;
        if outcome == Outcome::Ok {
            Ok(())
        } else {
            Err(format!(
                "a write of {key} through n{place} has the outcome {outcome:?}"
            ))
        }
    }

    pub(super) fn read(&mut self, place: Place, key: &str) -> Result<Outcome, String> {
        let token = self.get(place, key);
        self.done(token, 1500, &format!("a read of {key} through n{place}"))
    }

    pub(super) fn expect(
        &mut self,
        place: Place,
        key: &str,
        value: &Outcome,
        why: &str,
    ) -> Result<(), String> {
        let outcome = self.read(place, key)?;
        if outcome == *value {
            Ok(())
        } else {
            Err(format!("{why}: n{place} reads {outcome:?} of {key}"))
        }
    }
}
