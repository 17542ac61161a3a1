//! Tables as values: which ones are valid, their names, how they travel, and where keys are.

use crate::common::*;
use doyen_placement::hash::slot;
use doyen_placement::level::{DURABILITY, LEVELS};
use doyen_placement::{
    Age, DeltaError, Division, Durability, Epoch, Invalid, KeyspaceId, MapEntry, MapId, MapLimits,
    Member, MemberState, Mode, OnLoss, Partition, Replica, ReplicaState, Scheduler, Table,
    TableDelta, Tags, Term, ThreadPorts, Version, planner,
};
use std::sync::Arc;

fn table() -> Table {
    let mut table = cluster(
        16,
        1,
        &[
            PLAIN,
            PLAIN,
            Sketch {
                witness: true,
                ..PLAIN
            },
        ],
    );
    table.maps.push(MapEntry {
        id: MapId(1),
        name: "users".into(),
        keyspace: KeyspaceId(0),
        limits: MapLimits::NONE,
    });
    // As when the format was fixed: later schedulers are further bits.
    table.settings.schedulers = [
        Scheduler::Repair,
        Scheduler::Drain,
        Scheduler::Place,
        Scheduler::Copies,
        Scheduler::Primaries,
    ]
    .into_iter()
    .collect();
    (table.next_keyspace, table.next_map) = (KeyspaceId(5), MapId(5));
    table
}

fn spoilt_member(spoil: impl Fn(&mut Member)) -> Result<(), Invalid> {
    let mut table = table();
    spoil(Arc::make_mut(&mut table.members[1]));
    table.validate()
}

fn spoilt_partition(spoil: impl Fn(&mut Partition)) -> Result<(), Invalid> {
    let mut table = table();
    spoil(Arc::make_mut(&mut table.keyspaces[0].partitions[3]));
    table.validate()
}

fn spoilt(spoil: impl Fn(&mut Table)) -> Result<(), Invalid> {
    let mut table = table();
    spoil(&mut table);
    table.validate()
}

#[test]
fn members_are_unique_in_order_of_age_and_say_sensible_things() {
    assert_eq!(table().validate(), Ok(()));
    assert!(spoilt_member(|m| m.id = id(1)).is_err());
    assert!(spoilt_member(|m| m.name = "n1".into()).is_err());
    assert!(spoilt_member(|m| m.name = String::new()).is_err());
    assert!(spoilt_member(|m| m.name = "x".repeat(65)).is_err());
    assert!(spoilt_member(|m| m.location.rack = "x".repeat(65)).is_err());
    assert!(spoilt_member(|m| m.age = Age(1)).is_err());
    assert!(spoilt_member(|m| m.age = Age(99)).is_err());
    assert!(spoilt_member(|m| m.weight = 0).is_err());
}

#[test]
fn the_host_name_of_a_member_fits_into_a_line_of_text() {
    let called = |name: &str| spoilt_member(|m| m.addresses.hostname = Some(name.to_owned()));
    assert_eq!(called("redis_1.example.com"), Ok(()));
    for wrong in ["", "a b", "a\nb", "a,b", &"x".repeat(256)] {
        assert!(called(wrong).is_err(), "{wrong:?}");
    }
}

/// On the data plane the lowest bits of an id say which thread of a member is meant.
#[test]
fn members_are_no_threads_and_their_threads_are_reached_at_ports_of_their_own() {
    assert_eq!(
        spoilt_member(|m| m.id = m.id.thread(3)),
        Err(Invalid::Threads {
            id: id(2).thread(3),
            why: "its id is for further data threads"
        })
    );
    let of = |ports: &[(u16, Option<u16>)]| {
        let further: Vec<_> = ports
            .iter()
            .map(|(data, resp_cluster)| ThreadPorts {
                data: *data,
                resp_cluster: *resp_cluster,
            })
            .collect();
        move |m: &mut Member| m.addresses.further.clone_from(&further)
    };
    assert_eq!(spoilt_member(of(&[(1, None), (2, None)])), Ok(()));
    let most: Vec<_> = (1..=16).map(|port| (port, None)).collect();
    assert_eq!(spoilt_member(of(&most[..15])), Ok(()));
    assert!(spoilt_member(of(&most)).is_err(), "16 threads at most");
    assert!(spoilt_member(of(&[(1, None), (1, None)])).is_err());
    assert!(spoilt_member(of(&[(0, None)])).is_err());
    assert!(
        spoilt_member(of(&[(1, Some(2))])).is_err(),
        "the first thread has no such port"
    );
    let with_ports = |ports: &'static [(u16, Option<u16>)]| {
        spoilt_member(move |m| {
            m.addresses.resp_cluster = Some(([127, 0, 0, 1], 7).into());
            of(ports)(m);
        })
    };
    assert_eq!(with_ports(&[(1, Some(2)), (2, Some(3))]), Ok(()));
    assert!(with_ports(&[(1, Some(7))]).is_err());
    assert!(with_ports(&[(1, None)]).is_err());
    let mut member = member(1, &PLAIN);
    member.addresses.resp_cluster = Some(([127, 0, 0, 1], 7).into());
    of(&[(8, Some(9))])(&mut member);
    let addresses = &member.addresses;
    assert_eq!(
        (
            addresses.threads(),
            addresses.data_of(0),
            addresses.resp_cluster_of(0)
        ),
        (2, Some(addresses.data), addresses.resp_cluster)
    );
    assert_eq!(
        (addresses.data_of(1), addresses.resp_cluster_of(1)),
        (
            Some(([10, 0, 0, 1], 8).into()),
            Some(([127, 0, 0, 1], 9).into())
        )
    );
    assert_eq!(
        (addresses.data_of(2), addresses.resp_cluster_of(2)),
        (None, None)
    );
}

#[test]
fn voters_are_members_that_answer_in_order_of_age() {
    assert_eq!(spoilt(|t| t.voters.clear()), Err(Invalid::NoVoter));
    assert!(spoilt(|t| t.voters.swap(0, 1)).is_err());
    assert!(spoilt(|t| t.voters[1] = id(99)).is_err());
    assert!(spoilt(|t| t.settings.voters_max = 2).is_err());
    assert!(spoilt_member(|m| m.state = MemberState::Silent).is_err());
    assert!(spoilt_member(|m| m.state = MemberState::Leaving).is_ok());
}

#[test]
fn partitions_agree_with_themselves_and_with_the_members() {
    let copy = |member, state| Replica {
        member: id(member),
        state,
    };
    assert!(spoilt_partition(|p| p.replicas.clear()).is_err());
    assert!(spoilt_partition(|p| p.replicas[0].state = ReplicaState::Learner).is_err());
    assert!(spoilt_partition(|p| p.replicas[1] = p.replicas[0]).is_err());
    assert!(
        spoilt_partition(|p| p.replicas.push(copy(3, ReplicaState::Learner))).is_err(),
        "a witness holds nothing"
    );
    assert!(spoilt_partition(|p| p.replicas.push(copy(99, ReplicaState::Learner))).is_err());
    assert!(spoilt_partition(|p| p.replicas[1].state = ReplicaState::Learner).is_ok());
    assert!(spoilt_partition(|p| p.since = Epoch(2)).is_err());
    assert!(spoilt_partition(|p| p.goal = Some(vec![])).is_err());
    assert!(spoilt_partition(|p| p.goal = Some(vec![id(1), id(1)])).is_err());
    assert!(spoilt_partition(|p| p.goal = Some(vec![id(99)])).is_err());
    assert!(spoilt_partition(|p| p.id.0 = 4).is_err());
}

/// Counting on from what a peer sent must not overflow.
#[test]
fn counts_leave_room_to_count_on() {
    assert_eq!(spoilt(|t| t.term = Term(u64::MAX)), Err(Invalid::Count));
    assert_eq!(
        spoilt(|t| t.version = Version(u64::MAX)),
        Err(Invalid::Count)
    );
    assert_eq!(spoilt(|t| t.next_age = Age(u64::MAX)), Err(Invalid::Count));
    assert!(spoilt_partition(|p| p.epoch = Epoch(u64::MAX)).is_err());
    assert!(spoilt_partition(|p| p.lineage.0 = u32::MAX).is_err());
}

#[test]
fn keyspaces_and_maps_stand_in_order_and_within_limits() {
    assert!(spoilt(|t| t.keyspaces.push(t.keyspaces[0].clone())).is_err());
    assert!(spoilt(|t| t.keyspaces[0].mode = Mode::Fixed { partitions: 12 }).is_err());
    assert!(spoilt(|t| t.keyspaces[0].mode = Mode::Range).is_err());
    assert!(spoilt(|t| t.keyspaces[0].division = Division::no_arcs()).is_err());
    assert!(spoilt(|t| (t.keyspaces[0].mode, t.keyspaces[0].division) = divided(1, 3)).is_err());
    assert!(spoilt(|t| (t.keyspaces[0].mode, t.keyspaces[0].division) = divided(3, 3)).is_err());
    let long = |n: u32| [&n.to_be_bytes()[..], &[7; 1000]].concat();
    let said = spoilt(|t| {
        t.keyspaces[0].division = Division::split_at((0..5000).map(long)).expect("in order")
    })
    .expect_err("too much");
    assert!(said.to_string().contains("bytes of splits"), "{said}");
    assert!(spoilt(|t| t.keyspaces[0].mode = Mode::Fixed { partitions: 32 }).is_err());
    assert!(spoilt(|t| t.keyspaces[0].min_in_sync = 3).is_err());
    assert!(spoilt(|t| t.keyspaces[0].backups = 8).is_err());
    assert!(spoilt(|t| drop(t.keyspaces[0].partitions.pop())).is_err());
    assert!(spoilt(|t| t.keyspaces[0].name = "a b".into()).is_err());
    assert!(spoilt(|t| t.next_keyspace = KeyspaceId(0)).is_err());
    assert!(spoilt(|t| t.next_map = MapId(1)).is_err());
    assert!(spoilt(|t| t.maps[0].id = MapId(0)).is_err());
    assert!(spoilt(|t| t.maps[0].keyspace = KeyspaceId(9)).is_err());
    assert!(
        spoilt(|t| t.maps.push(MapEntry {
            id: MapId(2),
            name: "users".into(),
            keyspace: KeyspaceId(0),
            limits: MapLimits::NONE,
        }))
        .is_err()
    );
}

/// Two members that were built by different compilers, or run on different machines, must derive
/// the same name of a table.
#[test]
fn a_table_is_called_the_same_everywhere() {
    assert_eq!(table().name().hash, PINNED);
    assert_eq!(
        table().at_level(LEVELS.0).name().hash,
        PINNED_BELOW,
        "programs of the level before derive the same name"
    );
    let mut other = table();
    Arc::make_mut(&mut other.members[0])
        .addresses
        .further
        .push(ThreadPorts {
            data: 1,
            resp_cluster: None,
        });
    assert_ne!(
        other.name().hash,
        PINNED,
        "where threads are reached is part of it"
    );
    let mut named = table();
    Arc::make_mut(&mut named.members[0]).addresses.hostname = Some("a".into());
    assert_ne!(
        named.name().hash,
        PINNED,
        "what clients are sent to is part of it"
    );
    let mut former = table();
    former.keyspaces[0].tags = Tags::Zero;
    assert_ne!(former.name().hash, PINNED, "where keys are is part of it");
    let later = Table {
        term: Term(3),
        version: Version(9),
        ..table()
    };
    assert_eq!(
        later.name().hash,
        PINNED,
        "term and version stand beside the digest"
    );
    assert!(later.name().order() > table().name().order());
}

#[test]
fn a_table_of_another_level_is_refused_with_what_to_do() {
    let config = bincode::config::standard();
    for (level, todo) in [
        (LEVELS.0 - 1, "the release before, which knows both levels"),
        (LEVELS.1 + 1, "update the program"),
    ] {
        let other = Table { level, ..table() };
        let bytes = bincode::serde::encode_to_vec(&other, config).expect("it is small");
        let read = bincode::serde::decode_from_slice::<Table, _>(&bytes, config);
        let why = read.expect_err("it is of another level").to_string();
        assert!(
            why.contains(&format!("level {level}")) && why.contains(todo),
            "{why}"
        );
        assert_eq!(other.validate(), Err(Invalid::Level(level)));
    }
}

/// The name of a table of the highest level.
const PINNED: u64 = 757_953_298_506_823_139;
/// The name of the same table at the level before.
const PINNED_BELOW: u64 = 2_920_106_742_062_428_062;

#[test]
fn a_delta_applies_to_its_base_only() {
    let old = table();
    let mut new = planner::admit(&old, vec![member(9, &PLAIN)]);
    new.version = Version(5);
    new.maps.clear();
    new.keyspaces[0].on_loss = OnLoss::Reset { after_ms: 1 };
    new.keyspaces.push(doyen_placement::Keyspace {
        id: KeyspaceId(4),
        name: "other".into(),
        ..keyspace(8, 2, OnLoss::Wait)
    });
    let new = planner::assign(&new);
    let delta = TableDelta::between(&old, &new);
    assert_eq!(delta.target(), new.name());
    assert_eq!(delta.apply(&old), Ok(new.clone()));
    assert_eq!(TableDelta::between(&new, &old).apply(&new), Ok(old.clone()));
    assert_eq!(delta.apply(&new), Err(DeltaError::Base));
    let other = Table {
        settings: doyen_placement::Settings {
            members_min: 2,
            ..old.settings.clone()
        },
        ..old
    };
    assert_eq!(delta.apply(&other), Err(DeltaError::Base));
}

#[test]
fn a_delta_to_an_invalid_table_does_not_apply() {
    let old = table();
    let mut new = old.clone();
    new.voters.clear();
    assert_eq!(
        TableDelta::between(&old, &new).apply(&old),
        Err(DeltaError::Invalid(Invalid::NoVoter))
    );
}

#[test]
fn keys_are_where_redis_cluster_has_them_but_for_named_maps() {
    let table = table();
    let keyspace = table.keyspace_named("default").expect("it is there");
    let of = |map, key: &[u8]| keyspace.partition_of(MapId(map), key).expect("assigned");
    assert_eq!(of(0, b"foo").0, u32::from(slot(b"foo")) / 1024);
    assert_eq!(
        of(0, b"{user1000}.following"),
        of(0, b"{user1000}.followers")
    );
    assert!(keyspace.slots_of(of(0, b"foo")).contains(&12182));
    let spread = (0..64_u8)
        .map(|i| of(1, &[b'{', b'a', b'}', i]))
        .collect::<std::collections::BTreeSet<_>>();
    assert!(spread.len() > 1, "tags do not count in named maps");
    assert_eq!(keyspace.partition_of_slot(16384), None);
    assert_eq!(table.map_named("users").map(|m| m.id), Some(MapId(1)));
}

fn wanted(name: &str, mode: Mode, division: Division) -> planner::NewKeyspace {
    planner::NewKeyspace {
        name: name.into(),
        mode,
        division,
        backups: 1,
        min_in_sync: 1,
        on_loss: OnLoss::Wait,
        default_ttl_ms: None,
        eviction: doyen_placement::Eviction::None,
        ordered: false,
        rules: Vec::new(),
        durability: None,
    }
}

/// The table of a cluster that was made below level 15: with a fixed keyspace and a ring, and again
/// with both that were made later.
fn upgraded() -> Table {
    let ring = Mode::Ring {
        tokens: 4,
        random: false,
    };
    let made = |table: &Table, prefix: &str| {
        let fixed = wanted(
            &format!("{prefix}-fixed"),
            Mode::Fixed { partitions: 64 },
            Division::Slots,
        );
        let ring = wanted(&format!("{prefix}-ring"), ring, Division::no_arcs());
        [fixed, ring]
            .into_iter()
            .fold(table.clone(), |table, wanted| {
                planner::create_keyspace(&table, wanted)
                    .expect("it is possible")
                    .expect("it is new")
            })
    };
    let mut former = made(&table(), "former");
    former
        .keyspaces
        .iter_mut()
        .for_each(|keyspace| keyspace.tags = Tags::Zero);
    made(&former, "present")
}

/// A rule that changed would lose the keys that were placed by the former one.
#[test]
fn tags_count_in_all_databases_of_keyspaces_made_from_level_15_on_and_of_no_older_ones() {
    let table = upgraded();
    assert_eq!(table.validate(), Ok(()));
    let databases: Vec<MapId> = (0..MapId::DATABASES).filter_map(MapId::database).collect();
    for keyspace in &table.keyspaces {
        let of = |map, key: String| keyspace.partition_of(map, key.as_bytes());
        let tag = |n: u32| of(MapId(0), format!("{{t{n}}}"));
        // How many of the databases have the keys of a tag in the tag's partition.
        let together = databases
            .iter()
            .filter(|map| (0..40).all(|n| of(**map, format!("x{{t{}}}{n}", n % 3)) == tag(n % 3)))
            .count();
        let present = keyspace.name.starts_with("present");
        assert_eq!(together, if present { 16 } else { 1 }, "{}", keyspace.name);
        let map = MapId(3);
        let used: std::collections::BTreeSet<_> =
            (0..40).map(|n| of(map, format!("x{{t}}{n}"))).collect();
        assert!(used.len() > 4, "other maps spread: {}", keyspace.name);
    }
}

/// Members of the level before must find the name that they compute.
#[test]
fn durabilities_and_starts_travel_and_are_named_from_their_level_on_only() {
    let config = bincode::config::standard();
    let encode = |table: &Table| bincode::serde::encode_to_vec(table, config).expect("it is small");
    let plain = table();
    let mut durable = plain.clone();
    durable.keyspaces[0].durability = Durability::Log;
    Arc::make_mut(&mut durable.members[1]).start = Some(3);
    assert_eq!(durable.validate(), Ok(()));
    assert_ne!(durable.name().hash, plain.name().hash);
    assert!(durable.may_follow(&plain));
    assert!(!plain.may_follow(&durable), "a start is not forgotten");
    let (read, _) =
        bincode::serde::decode_from_slice::<Table, _>(&encode(&durable), config).expect("a table");
    assert_eq!(read, durable);
    for (old, new) in [(&plain, &durable), (&durable, &plain)] {
        let delta = TableDelta::between(old, new);
        let bytes = bincode::serde::encode_to_vec(&delta, config).expect("it is small");
        let (read, _) =
            bincode::serde::decode_from_slice::<TableDelta, _>(&bytes, config).expect("a delta");
        assert_eq!(read.apply(old).as_ref(), Ok(new));
    }

    let below = DURABILITY - 1;
    let shown = durable.at_level(below);
    assert_eq!(shown, plain.at_level(below));
    assert_eq!(encode(&shown), encode(&plain.at_level(below)));
    let lower = Table {
        level: below,
        ..durable
    };
    assert_eq!(lower.name().hash, shown.name().hash);
    let why = lower.validate().expect_err("members would not know it");
    assert!(why.to_string().contains("update all of them"), "{why}");
}

/// Where keys are must be the same for all who hold the table.
#[test]
fn tables_and_deltas_carry_the_tags() {
    let config = bincode::config::standard();
    let encode = |table: &Table| bincode::serde::encode_to_vec(table, config).expect("it is small");
    let decode = |bytes: &[u8]| bincode::serde::decode_from_slice::<Table, _>(bytes, config);
    let table = upgraded();
    let tags: Vec<Tags> = table.keyspaces.iter().map(|k| k.tags).collect();
    use Tags::{Databases, Zero};
    assert_eq!(tags, [Zero, Zero, Zero, Databases, Databases]);
    let bytes = encode(&table);
    assert_eq!(decode(&bytes).expect("a table").0, table);
    // After the tags, the last bytes say that no map has limits, that nobody may do anything,
    // that no member has a key of votes, that the annex has nothing, that no keyspace has a
    // durability, and that no member has a directory.
    let access = doyen_placement::access::AccessSettings::default();
    let nobody = bincode::serde::encode_to_vec(access, config).expect("it is small");
    let added = 1 + tags.len() + 1 + nobody.len() + 1 + 4 + 2;
    let begin = bytes.len() - added;
    let shortened = [&bytes[..begin], &[4, 0, 0, 0, 1, 0], &nobody, &[0; 7]].concat();
    let why = decode(&shortened)
        .expect_err("a keyspace has no tags")
        .to_string();
    assert!(why.contains("tags of no keyspace"), "{why}");

    let mut altered = table.clone();
    altered.keyspaces[4].backups = 0;
    for (old, new) in [(&self::table(), &table), (&table, &altered)] {
        let delta = TableDelta::between(old, new);
        let bytes = bincode::serde::encode_to_vec(&delta, config).expect("it is small");
        let (read, _) =
            bincode::serde::decode_from_slice::<TableDelta, _>(&bytes, config).expect("a delta");
        assert_eq!(read.apply(old).as_ref(), Ok(new));
    }
}

#[test]
fn a_keyspace_keeps_its_tags() {
    let table = upgraded();
    let mut other = table.clone();
    other.keyspaces[1].tags = Tags::Databases;
    assert!(table.may_follow(&table) && !other.may_follow(&table));
    let again = wanted(
        "former-fixed",
        Mode::Fixed { partitions: 64 },
        Division::Slots,
    );
    assert_eq!(
        planner::create_keyspace(&table, again),
        Ok(None),
        "it exists as it is wanted"
    );
}
