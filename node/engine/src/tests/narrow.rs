//! Links with little bandwidth, and values that are large in comparison: slow copies are not
//! silent.

use super::*;

/// The step of the world. In each, links carry their part of the bandwidth.
const STEP: Duration = Duration::from_millis(5);

/// When a connection is called congested by its shell, as in `net::links`.
const CONGESTED: usize = 8 << 20;

impl World {
    /// Three members with memory for large values. The copies of each partition are on the next
    /// two.
    fn narrow(seed: u64) -> Self {
        let large = Limits {
            memory_bytes_max: 1 << 30,
            ..Limits::of_test()
        };
        Self::with_limits(
            seed,
            3,
            |_| 1,
            &large,
            |p| vec![1 + u64::from(p) % 3, 1 + (u64::from(p) + 1) % 3],
        )
    }

    /// For `time`, each link carries `rate` bytes a second in each direction, calls before
    /// snapshots. If missing copies are made at its sender, both share it, as in `net::links`.
    /// `step` is called in between.
    fn flow(&mut self, time: Duration, rate: u64, mut step: impl FnMut(&mut Self)) {
        let until = self.now + time;
        while self.now < until {
            self.agree(true);
            let pairs: BTreeSet<(u64, u64)> = self
                .wires
                .keys()
                .map(|(from, to, _)| (*from, *to))
                .collect();
            for (from, to) in pairs {
                let mut left = (rate as f64 * STEP.as_secs_f64()) as usize;
                let waits =
                    |w: &Self, lane| w.wires.get(&(from, to, lane)).map_or(0, BytesMut::len);
                let bulk = waits(self, Lane::Bulk);
                let shares = self.nodes[&from].shard.is_repairing() && self.nodes[&from].alive;
                let kept = if shares { bulk.min(left / 2) } else { 0 };
                for (lane, kept) in [(Lane::Calls, kept), (Lane::Bulk, 0)] {
                    let there = waits(self, lane).min(left - kept);
                    self.deliver_some((from, to, lane), there);
                    left -= there;
                }
            }
            for (from, to) in self
                .up
                .iter()
                .copied()
                .flat_map(|(a, b)| [(a, b), (b, a)])
                .collect::<Vec<_>>()
            {
                let waits = self
                    .wires
                    .get(&(from, to, Lane::Calls))
                    .map_or(0, BytesMut::len);
                self.nodes.get_mut(&from).unwrap().shard.congested(
                    self.now,
                    id(to),
                    waits >= CONGESTED,
                );
                self.drain(from);
            }
            self.pass(STEP);
            step(self);
        }
    }
}

/// Writers in a closed loop, each with one write under way.
struct Writers {
    under_way: Vec<(CallToken, Time)>,
    written: u64,
    bytes: u64,
    refused: u64,
    unknown: u64,
    longest_small: Duration,
}

impl Writers {
    fn new(count: usize) -> Self {
        Self {
            under_way: vec![(0, Time::ZERO); count],
            written: 0,
            bytes: 0,
            refused: 0,
            unknown: 0,
            longest_small: Duration::ZERO,
        }
    }

    /// Each writer whose write was answered sends another one, to one of the first two members.
    /// `size` gives its bytes.
    fn go_on(&mut self, w: &mut World, size: impl Fn(&mut Rng, usize) -> usize) {
        for (writer, (token, began)) in self.under_way.iter_mut().enumerate() {
            let size = size(&mut w.rng, writer);
            if *token != 0 {
                let Some(outcome) = w.outcomes.get(token) else {
                    continue;
                };
                match outcome {
                    Outcome::Ok => self.written += 1,
                    Outcome::Failed(Failure::Overloaded | Failure::Unavailable) => {
                        self.refused += 1
                    }
                    Outcome::Failed(Failure::Unknown) => self.unknown += 1,
                    other => panic!("{other:?}"),
                }
                if *outcome == Outcome::Ok {
                    self.bytes += size as u64;
                    if size <= 1_000 {
                        self.longest_small = self.longest_small.max(w.now.since(*began));
                    }
                }
            }
            let key = format!("big{writer}:{}", w.rng.below(2));
            *began = w.now;
            *token = w.submit(
                1 + writer as u64 % 2,
                &key,
                Action::set(Bytes::from(vec![7; size])),
            );
        }
    }
}

/// Regression: 24 writers of the largest values filled the link to a copy for longer than the
/// patience with a silent copy. Partitions lost their copies though all members were healthy, and
/// their keys with the next failure.
#[test]
fn slow_links_cost_no_copies_under_any_writes() {
    let sizes: [fn(&mut Rng, usize) -> usize; 3] = [
        |_, _| (1 << 20) - 100,
        // The first writer writes little: it waits for what others send.
        |_, writer| if writer == 0 { 100 } else { (1 << 20) - 100 },
        |rng, _| [100, 1_500, 60_000, 300_000, 1_000_000][rng.below(5) as usize],
    ];
    for (seed, size) in (1..).zip(sizes) {
        let mut w = World::narrow(seed);
        for k in 0..200 {
            assert_eq!(w.set(1, &format!("static{k}"), "kept"), Outcome::Ok);
        }
        let rate = 10_000_000;
        let (began, mut writers) = (w.now, Writers::new(24));
        w.flow(Duration::from_secs(20), rate, |w| {
            writers.go_on(w, size);
            assert_eq!(
                w.asked,
                [],
                "seed {seed}: a copy was given up {:?} after the first write",
                w.now.since(began)
            );
        });
        assert_eq!(
            (writers.unknown, writers.refused),
            (0, 0),
            "seed {seed}: {} written",
            writers.written
        );
        assert!(
            writers.longest_small < Duration::from_secs(5),
            "seed {seed}: {:?}",
            writers.longest_small
        );
        // Each write goes to one copy, and about a third of them to another primary first: six
        // links, and none of them is idle.
        assert!(
            writers.bytes > rate * 20,
            "seed {seed}: {} bytes in 20 s",
            writers.bytes
        );
        // Data under way arrives.
        w.flow(Duration::from_secs(10), rate, |_| {});
        w.settle(Duration::from_secs(1));
        assert_eq!(w.committed, 0, "seed {seed}: no table was needed");
        w.check_copies();
    }
}

/// With too little bandwidth for the load, writes are refused or unknown, and copies stay.
#[test]
fn too_narrow_a_link_refuses_writes_and_keeps_copies() {
    let mut w = World::narrow(4);
    let mut writers = Writers::new(24);
    w.flow(Duration::from_secs(60), 1_000_000, |w| {
        writers.go_on(w, |_, _| (1 << 20) - 100);
        assert_eq!(w.asked, [], "a copy was given up");
    });
    assert!(
        writers.written > 15 && writers.refused > 0,
        "{} written, {} refused, {} unknown",
        writers.written,
        writers.refused,
        writers.unknown
    );
}

/// A link that is full and then carries nothing is noticed like any other broken link.
#[test]
fn a_full_link_that_stalls_is_noticed() {
    let mut w = World::narrow(5);
    let mut writers = Writers::new(24);
    w.flow(Duration::from_secs(5), 6_000_000, |w| {
        writers.go_on(w, |_, _| (1 << 20) - 100)
    });
    assert_eq!(w.asked, []);
    let began = w.now;
    let mut noticed = None;
    w.flow(Duration::from_secs(6), 0, |w| {
        writers.go_on(w, |_, _| (1 << 20) - 100);
        if !w.asked.is_empty() {
            noticed.get_or_insert(w.now);
        }
    });
    let noticed = noticed.expect("the copies are given up").since(began);
    assert!(noticed < Duration::from_secs(5), "{noticed:?}");
}

/// Regression: the ack of a copy came in an epoch that had ended. The copy refused the repeated
/// entries, because it did not know the new epoch yet. Then it asked for the next entry, which did
/// not exist. Its primary waited for a silence that did not come, because other partitions wrote
/// all the time.
#[test]
fn arrived_entries_without_an_ack_are_sent_again_while_other_bytes_flow() {
    // Bytes flow in both directions, faster than the least rate of a link.
    let holders = |p| if p == 1 { vec![2, 1] } else { vec![1, 2, 3] };
    let mut w = World::new(6, 3, holders);
    let (key, other) = (key_of(0), key_of(1));
    assert_eq!(w.set(1, &key, "old"), Outcome::Ok);
    w.settle(Duration::from_secs(1));
    let tail = Bytes::from_static(b", new");
    let written = w.submit(1, &key, Action::Append { value: tail });
    w.deliver((1, 2, Lane::Calls), true);
    w.deliver((1, 3, Lane::Calls), true);
    // The third member's copy is dropped, and the first member hears of that before the ack.
    w.nodes.get_mut(&2).unwrap().cut = true;
    w.propose(|t| {
        let p = partition_mut(t, PartitionId(0));
        p.replicas.retain(|r| r.member != id(3));
        p.epoch = p.epoch.next();
    });
    w.agree(true);
    w.deliver((2, 1, Lane::Calls), true);
    w.deliver((1, 2, Lane::Calls), true);
    assert!(!w.outcomes.contains_key(&written), "the ack came too late");
    w.nodes.get_mut(&2).unwrap().cut = false;
    let (began, large) = (w.now, "x".repeat(20_000));
    while !w.outcomes.contains_key(&written) && w.now.since(began) < Duration::from_secs(3) {
        let flows = w.submit(2, &other, set(&large));
        w.settle(STEP);
        assert_eq!(w.outcomes[&flows], Outcome::Ok);
    }
    assert_eq!(w.outcomes.get(&written), Some(&Outcome::Int(8)));
    let took = w.now.since(began);
    assert!(took < Duration::from_millis(600), "{took:?}");
    w.settle(Duration::from_millis(100));
    // The copy had the entry before, and applied it once.
    w.check_copies();
    assert_eq!(w.get(2, &key), text("old, new"));
}

/// Three members. The first one alone holds every fourth partition, and the third one is to have a
/// copy of these. Both hold the others.
fn lacking(partitions: u16) -> Table {
    let mut t = table(3, |_| vec![1, 3]);
    let keyspace = &mut t.keyspaces[0];
    keyspace.mode = Mode::Fixed { partitions };
    let other = keyspace.partitions[0].clone();
    let of = |p: u32| {
        let mut partition = Partition {
            id: PartitionId(p),
            ..(*other).clone()
        };
        if p.is_multiple_of(4) {
            partition.replicas.truncate(1);
        }
        Arc::new(partition)
    };
    keyspace.partitions = (0..u32::from(partitions)).map(of).collect();
    t
}

/// The third member is to have the missing copies.
fn repair(t: &mut Table) {
    for partition in &mut t.keyspaces[0].partitions {
        if partition.replicas.len() == 1 {
            let partition = Arc::make_mut(partition);
            partition.goal = Some(vec![id(1), id(3)]);
            partition.replicas.push(Replica {
                member: id(3),
                state: ReplicaState::Learner,
            });
        }
    }
}

/// A writer of values of one size to keys of its own, one at a time.
struct Writer {
    at: u64,
    keys: Vec<String>,
    size: usize,
    under_way: Option<(CallToken, Time)>,
    written: usize,
    /// Bytes that it wrote to partitions that lacked a copy.
    lacking: u64,
    /// The longest wait for one of these.
    longest: Duration,
}

impl Writer {
    fn new(at: u64, keys: Vec<String>, size: usize) -> Self {
        Self {
            at,
            keys,
            size,
            under_way: None,
            written: 0,
            lacking: 0,
            longest: Duration::ZERO,
        }
    }

    fn key(&self) -> &str {
        &self.keys[self.written % self.keys.len()]
    }

    /// If its last write was answered, it begins the next one.
    fn go_on(&mut self, w: &mut World) {
        if let Some((token, began)) = self.under_way {
            let Some(outcome) = w.outcomes.get(&token) else {
                return;
            };
            assert_eq!(*outcome, Outcome::Ok, "after {:?}", w.now.since(began));
            if w.lacks(self.key()) {
                self.lacking += self.size as u64;
                self.longest = self.longest.max(w.now.since(began));
            }
            self.written += 1;
        }
        let value = Bytes::from(vec![self.written as u8; self.size]);
        let key = self.key().to_owned();
        self.under_way = Some((w.submit(self.at, &key, Action::set(value)), w.now));
    }
}

impl World {
    /// Whether a copy of this key's partition is missing.
    fn lacks(&self, key: &str) -> bool {
        let keyspace = &self.tables[self.committed].keyspaces[0];
        let at = keyspace.partition_of(MapId(0), key.as_bytes()).unwrap();
        keyspace.partition(at).unwrap().in_sync().count() < 2
    }
}

/// Regression: a learner got its log with the other calls, behind which its snapshot waited. The
/// log of a few large keys that were written again and again was soon larger than they, and each
/// snapshot began again, for as long as they were written.
#[test]
fn missing_copies_come_back_while_large_keys_are_written_again() {
    const VALUE: usize = 4_000_000;
    const RATE: u64 = 50_000_000;
    let large = Limits {
        value_bytes_max: 16 << 20,
        memory_bytes_max: 1 << 30,
        chunk_bytes: 64 << 10,
        chunks_in_flight: 4,
        copies_max: 32,
        ..Limits::of_test()
    };
    // How many large keys are in partitions that lack a copy, and how many are in others; and the
    // writers of each.
    for (seed, partitions, keys, per_key) in [
        (11, 64, (9, 3), 1),
        (12, 1, (12, 0), 1),
        (13, 64, (1, 3), 4),
        (14, 1, (1, 0), 4),
    ] {
        let mut w = World::with_table(seed, &[1, 2, 3], &large, lacking(partitions));
        let names = |name: &'static str, lacks, count, w: &World| -> Vec<String> {
            let all = (0..).map(|n| format!("{name}{n}"));
            all.filter(|key| w.lacks(key) == lacks)
                .take(count)
                .collect()
        };
        let mut hot = names("big", true, keys.0, &w);
        if partitions > 1 {
            hot.extend(names("big", false, keys.1, &w));
        }
        let small = names("small", true, 50, &w);
        for key in &hot {
            assert_eq!(w.ask(1, key, set(&"x".repeat(VALUE))), Outcome::Ok);
        }
        let mut writers: Vec<Writer> = hot
            .iter()
            .flat_map(|key| (0..per_key).map(move |_| Writer::new(1, vec![key.clone()], VALUE)))
            .collect();
        let mut quick = [
            Writer::new(1, small.clone(), 100),
            Writer::new(1, small.clone(), 64 << 10),
            Writer::new(2, small, 1_000),
        ];
        w.flow(Duration::from_secs(1), RATE, |w| {
            writers.iter_mut().for_each(|writer| writer.go_on(w));
            quick.iter_mut().for_each(|writer| writer.go_on(w));
        });
        for writer in writers.iter_mut().chain(&mut quick) {
            (writer.lacking, writer.longest) = (0, Duration::ZERO);
        }
        let stored: u64 = w.nodes[&1]
            .shard
            .slots
            .iter()
            .filter(|s| s.at.partition.0.is_multiple_of(4))
            .filter_map(|s| Some(s.held.as_ref()?.store.bytes() as u64))
            .sum();
        let (began, before) = (w.now, w.carried.clone());
        w.propose(repair);
        let lacks = |w: &World| {
            let partitions = &w.tables[w.committed].keyspaces[0].partitions;
            partitions.iter().any(|p| p.in_sync().count() < 2)
        };
        while lacks(&w) && w.now.since(began) < Duration::from_secs(8) {
            w.flow(STEP, RATE, |w| {
                writers.iter_mut().for_each(|writer| writer.go_on(w));
                quick.iter_mut().for_each(|writer| writer.go_on(w));
            });
        }
        let carried = |lane| {
            let at = (1, 3, lane);
            w.carried[&at] - before.get(&at).copied().unwrap_or_default()
        };
        let (calls, snapshots) = (carried(Lane::Calls), carried(Lane::Bulk));
        let logs: u64 = writers.iter().chain(&quick).map(|w| w.lacking).sum();
        let longest = quick.iter().map(|w| w.longest).max().unwrap_or_default();
        let all = format!(
            "seed {seed}: {:?}, {stored} stored, {snapshots} of snapshots, {logs} of their logs, \
             {calls} of all calls, small writes wait {longest:?}",
            w.now.since(began)
        );
        println!("{all}");
        assert!(!lacks(&w), "copies are missing: {all}");
        assert!(snapshots < stored + stored / 10 + (1 << 20), "twice: {all}");
        // The links add some steps.
        assert!(longest <= Duration::from_millis(50) + 4 * STEP, "{all}");
        assert_eq!(
            w.nodes[&1].shard.stats().copies.checksum_mismatches,
            0,
            "{all}"
        );
        w.flow(Duration::from_secs(3), RATE, |_| {});
        w.check_copies();
    }
}
