//! Tables on the wire: how many bytes they take, and what becomes of damaged ones.

use crate::common::*;
use doyen_placement::planner::{self, Absence, HandOverUrgency};
use doyen_placement::{
    Assignment, Keyspace, KeyspaceId, Loads, MapId, OnLoss, Schedulers, Table, TableDelta, VoteKey,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The configuration of nodes, which accept no larger messages.
const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<{ 64 << 20 }>,
> = bincode::config::standard().with_limit();

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, CONFIG).expect("it can be written")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (value, read) = bincode::serde::decode_from_slice(bytes, CONFIG).ok()?;
    (read == bytes.len()).then_some(value)
}

/// The same table, with a key of the member at this place.
fn keyed(table: &Table, place: usize, key: u8) -> Table {
    let mut next = table.clone();
    next.version = next.version.next();
    Arc::make_mut(&mut next.members[place]).vote_key = Some(VoteKey([key; 32]));
    next
}

#[test]
fn keys_of_members_travel_with_tables_and_deltas_and_never_change() {
    let without = cluster(64, 1, &[PLAIN; 4]);
    let with = keyed(&keyed(&without, 1, 7), 3, 8);
    assert_ne!(
        without.name().hash,
        with.name().hash,
        "they are part of the name"
    );
    assert_eq!(decode::<Table>(&encode(&with)), Some(with.clone()));
    let delta = TableDelta::between(&without, &with);
    let delta: TableDelta = decode(&encode(&delta)).expect("it can be read");
    assert_eq!(delta.apply(&without), Ok(with.clone()));
    assert!(with.may_follow(&without) && with.may_follow(&with));
    assert!(!without.may_follow(&with), "a key is not forgotten");
    assert!(
        !keyed(&with, 1, 9).may_follow(&with),
        "a key does not change"
    );
}

#[test]
fn a_table_with_a_key_of_no_member_is_refused() {
    let with = keyed(&cluster(8, 1, &[PLAIN; 2]), 1, 7);
    let bytes = encode(&with);
    // Behind the keys are the four empty parts of the annex, no durability and no start. The keys
    // are their number, then a member and 32 bytes each.
    let at = bytes.len() - 6 - 33;
    for wrong in [bytes[at] ^ 1, 0] {
        let mut changed = bytes.clone();
        changed[at] = wrong;
        assert_eq!(decode::<Table>(&changed), None);
    }
}

/// Prints how many, too: `cargo test -p doyen-placement --test placement wire:: -- --nocapture`.
#[test]
fn a_large_table_and_its_deltas_take_few_bytes() {
    let members: Vec<Sketch> = (0..100)
        .map(|m| Sketch {
            zone: m % 3 + 1,
            ..PLAIN
        })
        .collect();
    let table = cluster(16_384, 2, &members);
    let whole = encode(&table);
    let mut next = table.clone();
    next.version = next.version.next();
    let moved: BTreeMap<_, _> = partitions(&table)
        .step_by(1600)
        .take(10)
        .map(|(at, p)| (at, p.replicas[1].member))
        .collect();
    for (at, partition) in partitions(&table).filter(|(at, _)| moved.contains_key(at)) {
        let mut changed = partition.clone();
        changed.replicas.swap(0, 1);
        changed.epoch = changed.epoch.next();
        changed.since = changed.epoch;
        let place = next.keyspaces[0]
            .partitions
            .iter()
            .position(|p| p.id == at.partition)
            .expect("it is there");
        next.keyspaces[0].partitions[place] = changed.into();
    }
    let news = encode(&TableDelta::between(&table, &next));
    println!(
        "16,384 partitions of 3 copies, 100 members: {} bytes; 10 partitions of them: {} bytes",
        whole.len(),
        news.len()
    );
    assert!(
        whole.len() < 600_000 && news.len() < 4_000,
        "{} and {}",
        whole.len(),
        news.len()
    );
    assert_eq!(decode::<Table>(&whole).as_ref(), Some(&table));
    assert_eq!(
        decode::<TableDelta>(&news)
            .expect("it can be read")
            .apply(&table),
        Ok(next)
    );
}

/// Everything that is done with a decoded table.
fn live(table: &Table) {
    let loads = Loads::default();
    let proposal = planner::propose(table, &loads);
    let _ = planner::operators(table, &proposal.goals, &loads);
    let _ = (
        planner::rules_unmet(table),
        planner::health(table),
        planner::choose_voters(table),
        table.name(),
        loads.judge(table),
    );
    let adopted = planner::adopt(table, &proposal.goals);
    let _ = planner::advance(&adopted, &LIMITS, &planner::MoveFacts::default());
    let _ = planner::reshape::finish(table, |_| None);
    let _ = planner::reshape::cancel(table, |_, _| true);
    if let Some(member) = table.members.first() {
        let _ = planner::remove(table, &BTreeMap::from([(member.id, Absence::Dead)]));
        let _ = planner::hand_over(table, member.id, HandOverUrgency::Repair);
    }
    for keyspace in &table.keyspaces {
        for key in ["", "a", "key0001", "{tag}1", "\u{10ffff}"] {
            let at = keyspace.partition_of(MapId(0), key.as_bytes());
            assert!(
                at.is_none_or(|id| keyspace.partition(id).is_some()),
                "a key of a partition that is not there"
            );
            let _ = keyspace.partitions_within(MapId(0), key.as_bytes(), b"");
        }
    }
    assert_eq!(
        TableDelta::between(
            &Table {
                keyspaces: Vec::new(),
                ..table.clone()
            },
            table
        )
        .apply_unnamed(table)
        .as_ref(),
        Ok(table)
    );
}

/// A table in the middle of its life.
fn lived(kind: u32, number: u16, members: &[Sketch], rules: bool) -> Table {
    let (mode, division) = divided(kind, number);
    let rules = if rules {
        vec!["copies 1 per zone".parse().expect("a rule")]
    } else {
        Vec::new()
    };
    let keyspace = Keyspace {
        mode,
        division,
        rules,
        ..keyspace(1, 1, OnLoss::Wait)
    };
    let table = planner::admit(
        &cluster_of(keyspace, Assignment::RoundRobin, members),
        vec![member(50, &PLAIN)],
    );
    let proposal = planner::propose(&table, &Loads::default());
    let begin = |table: Table, (keyspace, reshape)| {
        planner::reshape::begin(&table, keyspace, reshape).unwrap_or(table)
    };
    let begun = proposal
        .reshapes
        .into_iter()
        .fold(planner::adopt(&table, &proposal.goals), begin);
    planner::advance(&begun, &LIMITS, &planner::MoveFacts::default()).unwrap_or(begun)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damage_to_a_table_is_refused_or_harmless(
        kind in 0_u32..4,
        number in 1_u16..9,
        members in prop::collection::vec(sketch(), 1..5),
        rules in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..4),
    ) {
        let table = lived(kind, number, &members, rules);
        prop_assert_eq!(table.validate(), Ok(()));
        live(&table);
        let mut bytes = encode(&table);
        for (at, with, how) in damage {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = with,
                1 => bytes[at] ^= 1 << (with % 8),
                2 => bytes.insert(at, with),
                _ => _ = bytes.remove(at),
            }
            if bytes.is_empty() {
                break;
            }
        }
        if let Some(read) = decode::<Table>(&bytes).filter(|table| table.validate().is_ok()) {
            live(&read);
        }
    }

    #[test]
    fn a_damaged_delta_is_refused_or_harmless(
        kind in 0_u32..4,
        number in 1_u16..9,
        members in prop::collection::vec(sketch(), 2..5),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let table = lived(kind, number, &members, false);
        let mut next = planner::remove(
            &table,
            &BTreeMap::from([(table.members[0].id, Absence::Dead)]),
        );
        next.settings.schedulers = Schedulers::MANUAL;
        next.version = next.version.next();
        let mut bytes = encode(&TableDelta::between(&table, &next));
        let count = bytes.len();
        damage
            .into_iter()
            .for_each(|(at, with)| bytes[at.index(count)] = with);
        if let Some(read) = decode::<TableDelta>(&bytes)
            && let Ok(applied) = read.apply_unnamed(&table)
        {
            prop_assert_eq!(applied.validate(), Ok(()));
            live(&applied);
        }
        prop_assert!(table.keyspace(KeyspaceId(0)).is_some());
    }
}
