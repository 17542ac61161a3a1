//! Clusters for the tests of plans.

#![allow(dead_code, unreachable_pub)] // The benchmarks use a part of it.

use doyen_placement::planner::{
    InSyncChange, InSyncRequest, MoveLimits, Plan, PlannedChanges, WritesStopped, adopt, advance,
    change_in_sync, first, inherit, propose, reshape,
};
use doyen_placement::{
    Addresses, Assignment, ClusterId, Division, Keyspace, Loads, Location, Member, MemberId,
    MemberState, Mode, OnLoss, Partition, PartitionRef, Role, Settings, Table, TableDelta,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The properties of a member in a test.
#[derive(Debug, Clone)]
pub struct Sketch {
    pub zone: u8,
    pub host: u8,
    pub weight: u32,
    pub witness: bool,
}

pub const PLAIN: Sketch = Sketch {
    zone: 0,
    host: 0,
    weight: 100,
    witness: false,
};

/// The member of this number: the lowest bits of ids are for threads.
pub fn id(number: u64) -> MemberId {
    MemberId(number << 4)
}

/// A member with this number, which tells its id. Zone and host 0 have no name.
pub fn member(number: u64, sketch: &Sketch) -> Member {
    let port = 1024 + (number % 10_000) as u16;
    let name = |kind: &str, number: u8| {
        if number == 0 {
            String::new()
        } else {
            format!("{kind}{number}")
        }
    };
    Member {
        role: if sketch.witness {
            Role::Witness
        } else {
            Role::Data
        },
        location: Location {
            zone: name("z", sketch.zone),
            rack: String::new(),
            host: name("h", sketch.host),
        },
        weight: sketch.weight,
        ..Member::new(
            id(number),
            format!("n{number}"),
            Addresses {
                resp: Some(([127, 0, 0, 1], port).into()),
                ..Addresses::new(
                    ([10, 0, 0, 1], port).into(),
                    ([10, 0, 0, 1], port + 1).into(),
                )
            },
        )
    }
}

pub fn keyspace(partitions: u16, backups: u8, on_loss: OnLoss) -> Keyspace {
    Keyspace {
        on_loss,
        ..Keyspace::fixed(partitions, backups)
    }
}

pub fn cluster_of(keyspace: Keyspace, assignment: Assignment, members: &[Sketch]) -> Table {
    let settings = Settings {
        assignment,
        ..Settings::default()
    };
    let founders = members
        .iter()
        .zip(1..)
        .map(|(sketch, number)| member(number, sketch))
        .collect();
    first(ClusterId(7), settings, keyspace, founders)
}

pub fn cluster(partitions: u16, backups: u8, members: &[Sketch]) -> Table {
    cluster_of(
        keyspace(partitions, backups, OnLoss::Wait),
        Assignment::RoundRobin,
        members,
    )
}

pub fn partitions(
    table: &Table,
) -> impl Iterator<Item = (PartitionRef, &doyen_placement::Partition)> {
    table.partitions().map(|(at, partition)| (at, &**partition))
}

/// One of the modes, with a few partitions or tokens, and its division as far as it is known before
/// there are members.
pub fn divided(kind: u32, number: u16) -> (Mode, Division) {
    match kind % 4 {
        0 => (
            Mode::Fixed {
                partitions: number.next_power_of_two(),
            },
            Division::Slots,
        ),
        1 => (
            Mode::Range,
            Division::split_at((1..number).map(|n| format!("key{n:04}"))).expect("in order"),
        ),
        random => (
            Mode::Ring {
                tokens: number,
                random: random == 2,
            },
            Division::no_arcs(),
        ),
    }
}

/// Copies and primaries of each member that holds any.
pub fn loads(table: &Table) -> BTreeMap<MemberId, (u64, u64)> {
    let mut loads: BTreeMap<MemberId, (u64, u64)> =
        table.members.iter().map(|m| (m.id, (0, 0))).collect();
    for (_, partition) in partitions(table) {
        for replica in &partition.replicas {
            loads.entry(replica.member).or_default().0 += 1;
        }
        loads.entry(partition.primary()).or_default().1 += 1;
    }
    loads
}

pub const LIMITS: MoveLimits = MoveLimits {
    learners_per_source: 5,
    learners_per_target: 5,
    learners: 40,
};

/// Every learner that answers counts, as far as one epoch allows.
pub fn learned(table: &Table) -> Table {
    let silent: BTreeSet<MemberId> = table
        .members
        .iter()
        .filter(|m| m.state == MemberState::Silent)
        .map(|m| m.id)
        .collect();
    let answering = partitions(table).filter(|(_, p)| !silent.contains(&p.primary()));
    let requests: Vec<InSyncRequest> = answering
        .filter_map(|(at, p)| {
            Some(InSyncRequest {
                partition: at,
                epoch: p.epoch,
                change: InSyncChange::Admit(p.learners().next()?),
            })
        })
        .collect();
    let (next, done) = change_in_sync(table, &requests);
    assert!(done.iter().all(|done| *done));
    next
}

/// The plan without measured loads.
pub fn plan(table: &Table) -> Plan {
    doyen_placement::planner::plan(table, &Loads::default())
}

/// Plans and carries plans out until nothing is left to do. `check` sees every table with the one
/// before it.
pub fn settle_with(table: Table, check: impl FnMut(&Table, &Table)) -> Table {
    settle_by(table, plan, check)
}

/// As [`settle_with`], with the plans of `plan`.
pub fn settle_by(
    table: Table,
    plan: impl Fn(&Table) -> Plan,
    mut check: impl FnMut(&Table, &Table),
) -> Table {
    let mut now = table;
    let mut to = |now: &mut Table, next: Table| {
        check(now, &next);
        *now = next;
    };
    for _round in 0..200 {
        let PlannedChanges {
            reshapes, heirs, ..
        } = propose(&now, &Loads::default());
        let goals = plan(&inherit(&now, &heirs));
        if goals.is_empty()
            && reshapes.is_empty()
            && heirs.is_empty()
            && partitions(&now).all(|(_, p)| p.goal.is_none())
        {
            return now;
        }
        let next = inherit(&now, &heirs);
        to(&mut now, next);
        let next = adopt(&now, &goals);
        to(&mut now, next);
        let begun = reshapes
            .into_iter()
            .fold(now.clone(), |table, (keyspace, r)| {
                reshape::begin(&table, keyspace, r).unwrap_or(table)
            });
        to(&mut now, begun);
        let still = |table: &Table, at| {
            Some(WritesStopped {
                epoch: table.partition(at)?.epoch,
                ahead_ms: 0,
            })
        };
        if let Some(next) = reshape::finish(&now, |at| still(&now, at)) {
            to(&mut now, next);
        }
        for _step in 0..50_000 {
            let advanced = advance(
                &now,
                &LIMITS,
                &doyen_placement::planner::MoveFacts::default(),
            );
            let moved = advanced.is_some();
            if let Some(next) = advanced {
                to(&mut now, next);
            }
            let next = learned(&now);
            if !moved && next == now {
                break;
            }
            to(&mut now, next);
        }
    }
    panic!("planning does not come to an end: {:?}", plan(&now));
}

pub fn settle(table: Table) -> Table {
    settle_with(table, |_, _| {})
}

/// The invariants between two successive tables (among them I11 and I15).
pub fn check_step(old: &Table, new: &Table) {
    new.validate().expect("every table is valid");
    assert_eq!(
        (old.term, old.version, old.cluster),
        (new.term, new.version, new.cluster)
    );
    assert!(
        new.may_follow(old),
        "no step leads where a proposal would be refused"
    );
    let delta = TableDelta::between(old, new);
    assert_eq!(delta.apply(old).expect("a delta applies to its base"), *new);
    assert_eq!(old == new, old.name() == new.name());
    let answers = |table: &Table| {
        table
            .members
            .iter()
            .map(|m| (m.id, m.state != MemberState::Silent))
            .collect::<BTreeMap<_, _>>()
    };
    let as_before = answers(old) == answers(new);
    assert!(
        as_before || new.settings.balancing.held.is_empty(),
        "what was to stay as it was is not as it was, where members come or go"
    );
    let before: BTreeMap<PartitionRef, _> = partitions(old).collect();
    for (at, partition) in partitions(new) {
        let Some(before) = before.get(&at) else {
            check_origins(old, new, at, partition);
            continue;
        };
        assert!(partition.epoch >= before.epoch, "{at}: epochs never fall");
        assert!(partition.since >= before.since, "{at}: tenures never fall");
        assert_eq!(
            partition.since > before.since,
            partition.primary() != before.primary() || partition.lineage != before.lineage,
            "{at}"
        );
        let was: BTreeSet<MemberId> = before.in_sync().collect();
        let is: BTreeSet<MemberId> = partition.in_sync().collect();
        if partition.lineage == before.lineage {
            assert!(
                is.iter().any(|m| was.contains(m)),
                "{at}: a member that holds everything remains"
            );
            let learning: BTreeSet<MemberId> = before.learners().collect();
            assert!(
                is.difference(&was).all(|m| learning.contains(m)),
                "{at}: only learners become in sync (I11)"
            );
        } else {
            assert!(partition.lineage > before.lineage);
        }
        let same = was == is
            && partition.primary() == before.primary()
            && partition.lineage == before.lineage;
        assert!(
            same || partition.epoch > before.epoch,
            "{at}: another primary or in-sync set is another epoch"
        );
        let dropped = before
            .learners()
            .find(|m| partition.replicas.iter().all(|r| r.member != *m));
        assert!(
            dropped.is_none() || partition.epoch > before.epoch,
            "{at}: {dropped:?} is dropped, and learned within this epoch"
        );
    }
    for keyspace in new.keyspaces.iter().filter(|k| !k.partitions.is_empty()) {
        if keyspace.division != Division::Slots {
            check_division(keyspace);
            continue;
        }
        let mut next = 0_u32;
        for partition in &keyspace.partitions {
            let slots = keyspace.slots_of(partition.id);
            assert_eq!(
                u32::from(*slots.start()),
                next,
                "slots are covered once (I15)"
            );
            next = u32::from(*slots.end()) + 1;
        }
        assert_eq!(next, 16384, "every slot is covered (I15)");
    }
}

/// The result of a split or a merge is held by the members that held the former partitions, all of
/// them in sync, in a tenure and an epoch of its own.
fn check_origins(old: &Table, new: &Table, at: PartitionRef, partition: &Partition) {
    let mut lineage = partition.lineage;
    for (number, from) in partition.from.iter().enumerate() {
        let at = PartitionRef {
            partition: from.partition,
            ..at
        };
        let before = old.partition(at).expect("what it was is there");
        assert!(new.partition(at).is_none(), "{at}: it is no more");
        assert!(before.learners().next().is_none() && before.primary() == partition.primary());
        assert_eq!(
            before.in_sync().collect::<BTreeSet<_>>(),
            partition.in_sync().collect::<BTreeSet<_>>()
        );
        assert!(
            partition.epoch > before.epoch
                && partition.since == partition.epoch
                && partition.lineage >= before.lineage
        );
        lineage = if number == 0 {
            before.lineage
        } else {
            lineage.max(before.lineage)
        };
    }
    assert_eq!(lineage, partition.lineage);
}

/// Every boundary leads to the partition that it bounds, and every partition is bounded once (I15).
fn check_division(keyspace: &Keyspace) {
    let mut divided = keyspace.division.partitions();
    divided.sort_unstable();
    assert_eq!(
        divided,
        keyspace.partitions.iter().map(|p| p.id).collect::<Vec<_>>(),
        "partitions are divided once (I15)"
    );
    if let Division::Ranges(ranges) = &keyspace.division {
        for start in ranges.starts() {
            assert_eq!(
                keyspace.partition_of(start.map, &start.key),
                Some(start.partition),
                "a range begins where it says (I15)"
            );
        }
    }
}

/// No copy stands nearer to another of its partition than necessary. Every other member is tried.
pub fn check_spread(table: &Table) {
    let receivers: Vec<&Member> = table
        .members
        .iter()
        .map(AsRef::as_ref)
        .filter(|m| m.role == Role::Data && m.state == MemberState::Live)
        .collect();
    let shares = |a: &str, b: &str| !a.is_empty() && a == b;
    for (at, partition) in partitions(table) {
        let members: Vec<&Member> = partition
            .replicas
            .iter()
            .map(|r| table.member(r.member).expect("valid").as_ref())
            .collect();
        for (place, one) in members.iter().enumerate() {
            let others = || {
                members
                    .iter()
                    .enumerate()
                    .filter(|(o, _)| *o != place)
                    .map(|(_, m)| *m)
            };
            let free = |what: fn(&Member) -> &str| {
                let shared = others().any(|o| shares(what(o), what(one)));
                let apart = |r: &Member, m: &Member| {
                    m.id != r.id
                        && !shares(what(m), what(r))
                        && !shares(&m.location.host, &r.location.host)
                };
                let way_out = receivers
                    .iter()
                    .find(|r| members.iter().all(|m| apart(r, m)));
                assert!(
                    !shared || way_out.is_none(),
                    "{at}: {} shares a place while {:?} is free",
                    one.name,
                    way_out.map(|m| &m.name)
                );
            };
            free(|m| &m.location.host);
            free(|m| &m.location.zone);
        }
    }
}

pub fn sketch() -> impl Strategy<Value = Sketch> {
    (
        0_u8..4,
        0_u8..3,
        prop_oneof![3 => Just(100), 1 => 1_u32..400],
        prop::bool::weighted(0.1),
    )
        .prop_map(|(zone, host, weight, witness)| {
            // Hosts are of one zone.
            Sketch {
                zone,
                host: if host == 0 { 0 } else { zone * 10 + host },
                weight,
                witness,
            }
        })
}
