//! Two members and a client as live shards. One of them receives any bytes in the name of another.

use super::INPUT_BYTES_MAX;
use super::wire::stored;
use bytes::{Bytes, BytesMut};
use doyen_engine::op::{Action, Operation};
use doyen_engine::{Lane, Limits, Patience, Shard, ShardRequest};
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::level::LEVELS;
use doyen_placement::{
    Addresses, Epoch, Keyspace, KeyspaceId, MapId, Member, MemberId, Partition, PartitionId,
    PartitionRef, ReplicaState, Table,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const UNIX_MS: u64 = 1_700_000_000_000;
const MAP: MapId = MapId(0);
const STEP: Duration = Duration::from_millis(10);

fn id(n: u64) -> MemberId {
    if n == CLIENT {
        MemberId::of_client(n)
    } else {
        MemberId(n << 4)
    }
}

/// The two members, and a client.
const A: u64 = 1;
const B: u64 = 2;
const CLIENT: u64 = 3;

const fn at(partition: u32) -> PartitionRef {
    PartitionRef {
        keyspace: KeyspaceId(0),
        partition: PartitionId(partition),
    }
}

/// A leads partitions 0 and 1, B leads 2 and 3. In 1 and 3, the other one is a learner.
fn table() -> Table {
    let address = ([127, 0, 0, 1], 1).into();
    let member = |n| Member::new(id(n), format!("n{n}"), Addresses::new(address, address));
    let partition = |p: u32| {
        let holders = if p < 2 { [A, B] } else { [B, A] };
        let mut partition = Partition::new(PartitionId(p), holders.map(id));
        if !p.is_multiple_of(2) {
            partition.replicas[1].state = ReplicaState::Learner;
        }
        Arc::new(partition)
    };
    let keyspace = Keyspace {
        partitions: (0..4).map(partition).collect(),
        ..Keyspace::fixed(4, 1)
    };
    Table::of_test([A, B].map(member), keyspace)
}

fn limits() -> Limits {
    Limits {
        value_bytes_max: 64 << 10,
        memory_bytes_max: 8 << 20,
        tail_bytes_max: 1 << 20,
        waiting_max: 1_000,
        ..Limits::of_test()
    }
}

struct Pair {
    now: Time,
    shards: BTreeMap<u64, Shard>,
    view: View,
    wires: BTreeMap<(u64, u64, Lane), BytesMut>,
    answered: BTreeSet<u64>,
    next_token: u64,
    said: Vec<(u8, Vec<u8>)>,
}

/// The first byte of an input chooses the sender and the lane.
fn way(first: u8) -> (u64, u64, Lane) {
    let lane = if first & 1 == 0 {
        Lane::Calls
    } else {
        Lane::Bulk
    };
    match (first >> 1) % 4 {
        0 => (B, A, lane),
        1 => (A, B, lane),
        2 => (CLIENT, A, lane),
        _ => (A, CLIENT, lane),
    }
}

impl Pair {
    fn new() -> Self {
        let now = Time(1_000_000_000);
        let table = Arc::new(table());
        let opens = |p: u32| (at(p), Epoch(1), now);
        let view = View {
            installed: table.clone(),
            accepted: table,
            opens_at: Arc::new((0..4).map(opens).collect()),
        };
        let shards = [A, B, CLIENT]
            .map(|n| (n, Shard::new(id(n), limits(), n, now)))
            .into();
        let (wires, answered) = (BTreeMap::new(), BTreeSet::new());
        let mut pair = Self {
            now,
            shards,
            view: view.clone(),
            wires,
            answered,
            next_token: 1,
            said: Vec::new(),
        };
        for n in [A, B] {
            pair.shard(n).install(now, view.clone());
        }
        for (one, other) in [(A, B), (CLIENT, A), (CLIENT, B)] {
            pair.connect(one, other);
        }
        pair.pass(Duration::from_millis(50));
        for n in [A, B, CLIENT] {
            (0..8).for_each(|k| {
                _ = pair.submit(
                    n,
                    &format!("k{k}"),
                    Action::set(Bytes::from(format!("{n}"))),
                )
            });
        }
        pair.pass(Duration::from_millis(100));
        pair
    }

    fn shard(&mut self, n: u64) -> &mut Shard {
        self.shards.get_mut(&n).expect("there are three")
    }

    fn connect(&mut self, one: u64, other: u64) {
        let now = self.now;
        for (from, to) in [(one, other), (other, one)] {
            self.wires.retain(|(a, b, _), _| (*a, *b) != (from, to));
            self.shard(from).disconnected(now, id(to));
            self.shard(from).connected(now, id(to), LEVELS.1);
        }
    }

    /// Bytes arrive. If they are malformed, the connection ends and another begins.
    fn receive(&mut self, (from, to, lane): (u64, u64, Lane), bytes: &mut BytesMut) {
        let now = self.now;
        loop {
            match self.shard(to).receive(now, UNIX_MS, id(from), lane, bytes) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return self.connect(from, to),
            }
        }
    }

    fn submit(&mut self, n: u64, key: &str, action: Action) -> u64 {
        let (token, now) = (self.next_token, self.now);
        self.next_token += 1;
        let operation = Operation {
            keyspace: KeyspaceId(0),
            map: MAP,
            key: Bytes::copy_from_slice(key.as_bytes()),
            action,
        };
        self.shard(n)
            .submit(now, UNIX_MS, token, operation, Patience::Whole);
        token
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + STEP;
            for n in [A, B, CLIENT] {
                self.turn(n);
            }
            for (way, mut bytes) in std::mem::take(&mut self.wires) {
                if self.said.len() < 200 {
                    let first = (0..8).find(|first| self::way(*first) == way);
                    self.said.extend(first.map(|first| (first, bytes.to_vec())));
                }
                self.receive(way, &mut bytes);
            }
        }
    }

    fn turn(&mut self, n: u64) {
        let (now, view) = (self.now, self.view.clone());
        let shard = self.shard(n);
        // Bounded: a timer that is always due is a defect, too.
        for _ in 0..1_000 {
            if shard.poll_timeout().is_none_or(|t| t > now) {
                break;
            }
            shard.tick(now);
        }
        shard.release(now, now + Duration::from_millis(500), true);
        let mut answered = Vec::new();
        while let Some((token, _)) = shard.poll_outcome() {
            answered.push(token);
        }
        while let Some((token, _)) = shard.poll_overtaken() {
            answered.push(token);
        }
        while let Some(request) = shard.poll_request() {
            match request {
                ShardRequest::Used => shard.used(now),
                ShardRequest::WantMap { client, ticket, .. } => {
                    shard.map_made(now, client, ticket, Err("not here".into()))
                }
                ShardRequest::Table(table) if n == CLIENT => {
                    shard.install(
                        now,
                        View {
                            installed: table.clone(),
                            accepted: table,
                            opens_at: view.opens_at.clone(),
                        },
                    );
                }
                _ => {}
            }
        }
        let mut sent = Vec::new();
        while let Some((peer, lane, bytes)) = shard.poll_transmit() {
            sent.push((peer, lane, bytes));
        }
        for token in answered {
            assert!(self.answered.insert(token), "answered twice");
        }
        for (peer, lane, bytes) in sent {
            let to = [A, B, CLIENT]
                .into_iter()
                .find(|n| id(*n) == peer)
                .expect("no other node is connected");
            self.wires
                .entry((n, to, lane))
                .or_default()
                .extend_from_slice(&bytes);
        }
    }
}

/// The frames that the pair sends by itself, and every frame on every way.
pub(super) fn streams() -> Vec<Vec<u8>> {
    let pair = {
        let mut pair = Pair::new();
        pair.pass(Duration::from_secs(2));
        pair
    };
    let mut seeds: BTreeSet<Vec<u8>> = pair
        .said
        .into_iter()
        .map(|(first, bytes)| [&[first], &bytes[..]].concat())
        .collect();
    for (_, frame) in stored(LEVELS.1, "frames") {
        seeds.extend((0..8).map(|first| [&[first], &frame[..]].concat()));
    }
    seeds
        .into_iter()
        .filter(|s| s.len() <= INPUT_BYTES_MAX)
        .collect()
}

/// Two members and a client serve, and one of them receives these bytes in the name of another.
/// Afterwards both members still answer every call on the partitions that they lead. The answer may
/// be a failure, because a member must believe what another one says.
pub(super) fn stream(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let mut pair = Pair::new();
    pair.receive(way(*first), &mut BytesMut::from(rest));
    pair.pass(Duration::from_secs(1));
    let mut asked = Vec::new();
    for n in [A, B, CLIENT] {
        for k in 0..8 {
            asked.push(pair.submit(
                n,
                &format!("k{k}"),
                Action::set(Bytes::from_static(b"after")),
            ));
            asked.push(pair.submit(n, &format!("k{k}"), Action::Get));
        }
    }
    pair.connect(A, B);
    pair.pass(Duration::from_secs(6));
    assert!(
        asked.iter().all(|token| pair.answered.contains(token)),
        "a call was never answered"
    );
}
