//! Files and payloads of Redis: those that `fixtures.sh` made, and encodings of other versions, by
//! hand.

mod strategies;

use doyen_rdb::{
    HashField, RdbError, RdbKey, RdbPendingEntry, RdbReader, RdbStream, RdbStreamConsumer,
    RdbStreamEntry, RdbStreamGroup, RdbStreamId, RdbValue, RdbWriter, ScoredMember, dump, restore,
};
use proptest::prelude::*;
use strategies::{bytes, is_exact, value};

const LIMIT: usize = 1 << 20;

/// Reads a file of `fixtures.sh`.
macro_rules! fixture {
    ($name:literal) => {
        &include_bytes!(concat!("rdb/redis-7.0/", $name))[..]
    };
}

fn owned(items: &[&str]) -> Vec<Vec<u8>> {
    items.iter().map(|item| item.as_bytes().to_vec()).collect()
}

fn string(text: &str) -> RdbValue {
    RdbValue::String(text.into())
}

fn list(items: &[&str]) -> RdbValue {
    RdbValue::List(owned(items))
}

fn set(items: &[&str]) -> RdbValue {
    RdbValue::Set(owned(items))
}

fn hash(fields: &[(&str, &str, Option<u64>)]) -> RdbValue {
    let field = |(field, value, deadline): &(&str, &str, Option<u64>)| HashField {
        field: (*field).into(),
        value: (*value).into(),
        deadline: *deadline,
    };
    RdbValue::Hash(fields.iter().map(field).collect())
}

fn sorted_set(members: &[(&str, f64)]) -> RdbValue {
    let member = |(member, score): &(&str, f64)| ScoredMember {
        member: (*member).into(),
        score: *score,
    };
    RdbValue::SortedSet(members.iter().map(member).collect())
}

const fn id(ms: u64, seq: u64) -> RdbStreamId {
    RdbStreamId { ms, seq }
}

fn entry(id: RdbStreamId, fields: &[(&str, &str)]) -> RdbStreamEntry {
    let fields = fields
        .iter()
        .map(|(field, value)| ((*field).into(), (*value).into()));
    let fields = fields.collect();
    RdbStreamEntry { id, fields }
}

/// The stream of `fixtures.sh`. Its consumers asked at no time that a test knows.
fn stream() -> RdbStream {
    let long = format!("{:016378}", 5);
    let consumer = |name: &str| RdbStreamConsumer {
        name: name.into(),
        seen: 0,
        active: Some(0),
    };
    let pending = |id, given, times, consumer| RdbPendingEntry {
        id,
        given,
        times,
        consumer,
    };
    RdbStream {
        entries: vec![
            entry(id(2, 0), &[("g", "1"), ("f", &long)]),
            entry(id(2, 5), &[("f", "x")]),
        ],
        last: id(1_844_674_407_370_955_161, 7),
        added: 5,
        deleted: id(1_844_674_407_370_955_161, 7),
        groups: vec![
            RdbStreamGroup {
                name: b"group".to_vec(),
                last: id(2, 0),
                read: None,
                consumers: vec![consumer("me"), consumer("you")],
                pending: vec![
                    pending(id(1, 1), 0, 1, 0),
                    pending(id(2, 0), 1_234_567_890_123, 9, 1),
                ],
            },
            RdbStreamGroup {
                name: b"late".to_vec(),
                last: id(1_844_674_407_370_955_161, 7),
                read: Some(4),
                consumers: vec![consumer("idle")],
                pending: Vec::new(),
            },
        ],
    }
}

/// The same value, with what has no order in one, and without times of the clock.
fn in_order(mut value: RdbValue) -> RdbValue {
    match &mut value {
        RdbValue::Stream(it) => {
            for group in &mut it.groups {
                for consumer in &mut group.consumers {
                    assert_eq!(consumer.active, Some(consumer.seen));
                    (consumer.seen, consumer.active) = (0, Some(0));
                }
                group.pending[..]
                    .iter_mut()
                    .filter(|it| it.times == 1)
                    .for_each(|it| it.given = 0);
            }
        }
        RdbValue::Set(all) => all.sort(),
        RdbValue::Hash(all) => all.sort_by(|a, b| a.field.cmp(&b.field)),
        RdbValue::SortedSet(all) => all.sort_by(|a, b| a.member.cmp(&b.member)),
        _ => {}
    }
    value
}

fn all_of(file: &[u8]) -> Result<Vec<RdbKey>, RdbError> {
    RdbReader::new(file)?.collect()
}

#[test]
fn a_file_of_redis_is_read() {
    let file = fixture!("all.rdb");
    let mut reader = RdbReader::new(file).unwrap();
    assert_eq!(reader.version(), 10);
    let found: Vec<RdbKey> = reader.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!(
        (reader.offset(), reader.functions()),
        (file.len() as u64, 1)
    );

    let long: Vec<String> = (1..=300).map(|n| n.to_string()).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let digit = |digit: u32, width| format!("{digit:0width$}");
    let expected = [
        ("string", string("hello")),
        ("integer", string("-1234567")),
        ("small", string("7")),
        ("compressed", string(&digit(0, 200))),
        ("later", string("x")),
        (
            "list-short",
            list(&["a", "-5", &digit(1, 100), "70000", "9223372036854775807"]),
        ),
        ("list-long", list(&long)),
        ("list-plain", list(&[&digit(2, 9_000), "tail"])),
        ("set-intset", set(&["-2", "1", "70000"])),
        ("set-table", set(&["3", "a", "b"])),
        (
            "hash-listpack",
            hash(&[("f", "v", None), ("g", "12", None)]),
        ),
        ("hash-table", hash(&[("f", &digit(3, 100), None)])),
        (
            "zset-listpack",
            sorted_set(&[("a", 1.0), ("b", -2.5), ("c", f64::INFINITY)]),
        ),
        ("zset-table", sorted_set(&[(&digit(4, 100), 0.1)])),
        ("stream", RdbValue::Stream(stream())),
    ];
    assert_eq!(found.len(), expected.len() + 1);
    for (key, value) in expected {
        let is_it = |it: &&RdbKey| it.key == key.as_bytes() && it.database == 0;
        let it = found
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{key} is missing"));
        assert_eq!(in_order(it.value.clone()), value, "{key}");
        assert_eq!(
            it.deadline,
            (key == "later").then_some(4_102_444_800_123),
            "{key}"
        );
    }
    let other = found.iter().find(|it| it.database == 3).unwrap();
    assert_eq!(
        (&other.key[..], &other.value),
        (&b"string"[..], &string("other"))
    );
}

#[test]
fn payloads_of_redis_are_read() {
    let digit = |digit: u32, width| format!("{digit:0width$}");
    for (payload, value) in [
        (fixture!("string.dump"), string("hello")),
        (fixture!("compressed.dump"), string(&digit(0, 200))),
        (
            fixture!("list-short.dump"),
            list(&["a", "-5", &digit(1, 100), "70000", "9223372036854775807"]),
        ),
        (
            fixture!("list-plain.dump"),
            list(&[&digit(2, 9_000), "tail"]),
        ),
        (fixture!("set-intset.dump"), set(&["-2", "1", "70000"])),
        (fixture!("set-table.dump"), set(&["3", "a", "b"])),
        (
            fixture!("hash-listpack.dump"),
            hash(&[("f", "v", None), ("g", "12", None)]),
        ),
        (
            fixture!("hash-table.dump"),
            hash(&[("f", &digit(3, 100), None)]),
        ),
        (
            fixture!("zset-listpack.dump"),
            sorted_set(&[("a", 1.0), ("b", -2.5), ("c", f64::INFINITY)]),
        ),
        (
            fixture!("zset-table.dump"),
            sorted_set(&[(&digit(4, 100), 0.1)]),
        ),
        (fixture!("stream.dump"), RdbValue::Stream(stream())),
    ] {
        assert_eq!(in_order(restore(payload, LIMIT).unwrap()), value);
        assert_eq!(restore(&dump(&value).unwrap(), LIMIT).unwrap(), value);
    }
}

/// A payload of this version. It has no checksum, as if its writer had none.
fn payload(version: u16, value: &[u8]) -> Vec<u8> {
    [value, &version.to_le_bytes(), &[0; 8]].concat()
}

/// A string that stands for a packed collection: its length, and these bytes.
fn packed(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 64, "one byte is its length");
    [&[kind, length], bytes].concat()
}

/// A ziplist with these items, which are encoded already.
fn ziplist(items: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut before = 0;
    for item in items {
        body.push(before);
        body.extend_from_slice(item);
        before = u8::try_from(1 + item.len()).unwrap();
    }
    body.push(0xFF);
    let length = u32::try_from(10 + body.len()).unwrap().to_le_bytes();
    [&length[..], &[0; 4], &[items.len() as u8, 0], &body].concat()
}

/// A listpack with these items, which are encoded already, but for the length behind them.
fn listpack(items: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for item in items {
        body.extend_from_slice(item);
        body.push(item.len() as u8);
    }
    body.push(0xFF);
    let length = u32::try_from(6 + body.len()).unwrap().to_le_bytes();
    [&length[..], &[items.len() as u8, 0], &body].concat()
}

#[test]
fn encodings_of_older_versions_are_read() {
    let numbers: [&[u8]; 7] = [
        &[0xF1],
        &[0xFD],
        &[0xFE, 0x80],
        &[0xC0, 0x18, 0xFC],
        &[0xF0, 0, 0, 0x80],
        &[0xD0, 0, 0, 0, 0x80],
        &[0xE0, 0, 0, 0, 0, 0, 0, 0, 0x80],
    ];
    let expected = [
        "0",
        "12",
        "-128",
        "-1000",
        "-8388608",
        "-2147483648",
        "-9223372036854775808",
    ];
    let texts = ziplist(&[b"\x02hi", b"\x40\x01x", &[0x80, 0, 0, 0, 1, b'y']]);
    for (version, bytes, value) in [
        (6, packed(10, &ziplist(&numbers)), list(&expected)),
        (6, packed(10, &texts), list(&["hi", "x", "y"])),
        (
            6,
            packed(13, &ziplist(&[b"\x01f", &[0xF2]])),
            hash(&[("f", "1", None)]),
        ),
        (
            6,
            packed(12, &ziplist(&[b"\x01m", b"\x042.25"])),
            sorted_set(&[("m", 2.25)]),
        ),
        (
            2,
            packed(9, b"\x01\x01f\x02\x01vw-\xff"),
            hash(&[("f", "vw", None)]),
        ),
        (
            7,
            [&[14, 1][..], &packed(0, &ziplist(&[b"\x01a"]))[1..]].concat(),
            list(&["a"]),
        ),
        (
            6,
            b"\x03\x03\x01a\x041.5e\x01b\xfe\x01c\xff".to_vec(),
            RdbValue::List(Vec::new()),
        ),
        (
            6,
            b"\x03\x03\x01a\x031.5\x01b\xfe\x01c\xff".to_vec(),
            sorted_set(&[("a", 1.5), ("b", f64::INFINITY), ("c", f64::NEG_INFINITY)]),
        ),
    ] {
        let read = restore(&payload(version, &bytes), LIMIT);
        if value.is_empty() {
            assert!(matches!(read, Err(RdbError::Malformed { .. })), "{read:?}");
        } else {
            assert_eq!(read.unwrap(), value);
        }
    }
}

#[test]
fn fields_that_expire_are_read_in_every_form() {
    let time = 1_900_000_000_000_u64;
    let far = [&[0x81][..], &time.to_be_bytes()].concat();
    let least = time.to_le_bytes();
    let value = hash(&[("f", "v", Some(time)), ("g", "w", None)]);
    let number = [&[0xF4][..], &least].concat();
    let triples = listpack(&[b"\x81f", b"\x81v", &number, b"\x81g", b"\x81w", &[0]]);
    for (version, bytes) in [
        (
            12,
            [&[24][..], &least, b"\x02\x01\x01f\x01v\0\x01g\x01w"].concat(),
        ),
        (12, [&[22, 2][..], &far, b"\x01f\x01v\0\x01g\x01w"].concat()),
        (12, packed(23, &triples)),
        (12, [&[25][..], &least, &packed(0, &triples)[1..]].concat()),
        (
            80,
            [
                &b"\x16\x02\x01f\x01v"[..],
                &least,
                b"\x01g\x01w",
                &[0xFF; 8],
            ]
            .concat(),
        ),
    ] {
        assert_eq!(restore(&payload(version, &bytes), LIMIT).unwrap(), value);
    }
    assert_eq!(value.version(), 12);
    assert_eq!(restore(&dump(&value).unwrap(), LIMIT).unwrap(), value);
}

#[test]
fn integers_of_listpacks_are_read() {
    let items: [&[u8]; 8] = [
        &[0x7F],
        &[0xCF, 0xFF],
        &[0xD0, 0],
        &[0xF1, 0, 0x80],
        &[0xF2, 0, 0, 0x80],
        &[0xF3, 0, 0, 0, 0x80],
        &[0xE0, 1, b'x'],
        &[0xF0, 1, 0, 0, 0, b'y'],
    ];
    let expected = [
        "127",
        "4095",
        "-4096",
        "-32768",
        "-8388608",
        "-2147483648",
        "x",
        "y",
    ];
    let read = restore(&payload(11, &packed(20, &listpack(&items))), LIMIT);
    assert_eq!(read.unwrap(), set(&expected));
}

/// A node of a stream with these items, from `master` on.
fn node(master: RdbStreamId, items: &[&[u8]]) -> Vec<u8> {
    let id = [master.ms.to_be_bytes(), master.seq.to_be_bytes()].concat();
    let items = listpack(items);
    let length = [0x40, u8::try_from(items.len()).unwrap()];
    [&[16], &id[..], &length, &items].concat()
}

#[test]
fn streams_of_each_version_are_read() {
    // Two entries of the same fields, one of others, and one between them that was deleted.
    let items: [&[u8]; 27] = [
        &[3],
        &[1],
        &[1],
        b"\x81f",
        &[0], // the master entry
        &[2],
        &[0],
        &[0],
        b"\x81a",
        &[4],
        &[3],
        &[0],
        &[1],
        b"\x81x",
        &[4],
        &[2],
        &[1],
        &[0xDF, 0xFF],
        b"\x81b",
        &[4],
        &[0],
        &[2],
        &[0],
        &[1],
        b"\x81g",
        &[7],
        &[6],
    ];
    let entries = vec![
        entry(id(5, 1), &[("f", "a")]),
        entry(id(6, 0), &[("f", "b")]),
        entry(id(7, 1), &[("g", "7")]),
    ];
    let begin = |kind: u8| [&[kind, 1][..], &node(id(5, 1), &items), &[3, 7, 1]].concat();
    let time = 77_u64.to_le_bytes();
    let name = b"\x01G";
    // A group that has read the first entry, and has the second one pending.
    let pending = |id: RdbStreamId| [id.ms.to_be_bytes(), id.seq.to_be_bytes()].concat();
    let tail = |active: &[u8], read: &[u8]| {
        let given = pending(id(6, 0));
        [
            &[1][..],
            name,
            &[6, 0],
            read,
            &[1],
            &given,
            &time,
            &[2],
            &[1, 1, b'c'],
            &time,
            active,
            &[1],
            &given,
        ]
        .concat()
    };
    let expected = |added, deleted, read, active| {
        RdbValue::Stream(RdbStream {
            entries: entries.clone(),
            last: id(7, 1),
            added,
            deleted,
            groups: vec![RdbStreamGroup {
                name: b"G".to_vec(),
                last: id(6, 0),
                read,
                consumers: vec![RdbStreamConsumer {
                    name: b"c".to_vec(),
                    seen: 77,
                    active,
                }],
                pending: vec![RdbPendingEntry {
                    id: id(6, 0),
                    given: 77,
                    times: 2,
                    consumer: 0,
                }],
            }],
        })
    };
    let second = [5, 1, 5, 2, 4];
    let never = [0xFF; 8];
    for (version, bytes, value) in [
        (
            9,
            [begin(15), tail(&[], &[])].concat(),
            expected(3, id(0, 0), None, Some(77)),
        ),
        (
            10,
            [begin(19), second.to_vec(), tail(&[], &[2])].concat(),
            expected(4, id(5, 2), Some(2), Some(77)),
        ),
        (
            11,
            [begin(21), second.to_vec(), tail(&never, &[2])].concat(),
            expected(4, id(5, 2), Some(2), None),
        ),
    ] {
        let read = restore(&payload(version, &bytes), LIMIT).unwrap();
        assert_eq!(read, value);
        // It is written without the times at which consumers got an entry.
        let again = restore(&dump(&read).unwrap(), LIMIT).unwrap();
        assert_eq!(
            in_order(again),
            in_order(expected(
                if version == 9 { 3 } else { 4 },
                if version == 9 { id(0, 0) } else { id(5, 2) },
                if version == 9 { None } else { Some(2) },
                Some(77),
            ))
        );
        // Cut off anywhere, and with any byte wrong, it is an error or another value.
        for at in 0..bytes.len() {
            restore(&payload(version, &bytes[..at]), LIMIT).unwrap_err();
            let mut wrong = bytes.clone();
            for bit in 0..8 {
                wrong[at] ^= 1 << bit;
                let _ = restore(&payload(version, &wrong), LIMIT);
            }
        }
    }
}

#[test]
fn streams_that_cannot_be_are_refused() {
    let good = RdbStream {
        entries: vec![
            entry(id(1, 1), &[("f", "v")]),
            entry(id(2, 0), &[("f", "v")]),
        ],
        last: id(2, 0),
        added: 2,
        deleted: id(0, 0),
        groups: Vec::new(),
    };
    let refused = |edit: &dyn Fn(&mut RdbStream)| {
        let mut stream = good.clone();
        edit(&mut stream);
        let payload = dump(&RdbValue::Stream(stream)).unwrap();
        restore(&payload, LIMIT).unwrap_err().to_string()
    };
    let group = || RdbStreamGroup {
        name: b"g".to_vec(),
        last: id(0, 0),
        read: Some(0),
        consumers: Vec::new(),
        pending: Vec::new(),
    };
    for (expected, edit) in [
        (
            "a last id that is not below",
            &(|it: &mut RdbStream| it.last = id(1, 9)) as &dyn Fn(&mut RdbStream),
        ),
        ("entries in the order of their ids", &|it| {
            it.entries.swap(0, 1)
        }),
        ("entries in the order of their ids", &|it| {
            it.entries[1].id = id(1, 1)
        }),
        ("entries with at least one field", &|it| {
            it.entries[0].fields.clear()
        }),
        ("how many entries a stream was given", &|it| {
            it.added = u64::MAX
        }),
        ("groups with different names", &|it| {
            it.groups = vec![group(), group()]
        }),
        ("a consumer for each pending entry", &|it| {
            let mut group = group();
            group.pending.push(RdbPendingEntry {
                id: id(1, 1),
                given: 1,
                times: 1,
                consumer: 5,
            });
            it.groups.push(group);
        }),
        ("consumers with different names", &|it| {
            let mut group = group();
            let consumer = RdbStreamConsumer {
                name: b"c".to_vec(),
                seen: 1,
                active: None,
            };
            group.consumers = vec![consumer.clone(), consumer];
            it.groups.push(group);
        }),
    ] {
        let why = refused(edit);
        assert!(why.contains(expected), "{why}");
    }
    // An empty stream is a value.
    let empty = RdbValue::Stream(RdbStream {
        entries: Vec::new(),
        ..good
    });
    assert_eq!(restore(&dump(&empty).unwrap(), LIMIT).unwrap(), empty);
}

#[test]
fn an_error_says_where_and_what_was_expected() {
    let text = |e: RdbError| e.to_string();
    let file = fixture!("all.rdb");
    assert_eq!(
        text(all_of(&file[..9]).unwrap_err()),
        "the input ends at byte 9, where a key, or the end of the file was expected; it was cut off"
    );
    assert_eq!(
        text(all_of(b"GARBAGE or another format").unwrap_err()),
        "at byte 0: the header of an RDB file (REDIS and four digits) was expected; the input is \
         damaged, or not of this format"
    );
    assert_eq!(
        text(all_of(b"REDIS0009\x1c\x01k").unwrap_err()),
        "key \"k\": at byte 11: the type 28 of values is not known here"
    );
    assert_eq!(
        text(all_of(b"REDIS0099\xff").unwrap_err()),
        "at byte 8: version 99 of RDB (newer than this) is not known here"
    );
    let mut file = file.to_vec();
    // A byte of `hello`: only the checksum tells.
    let at = file.windows(5).position(|it| it == b"hello").unwrap();
    file[at] = b'j';
    assert!(matches!(all_of(&file), Err(RdbError::Checksum { .. })));
}

#[test]
fn a_value_that_unfolds_beyond_its_limit_is_refused() {
    // 24 bytes that LZF makes 264 of.
    let refused = restore(fixture!("compressed.dump"), 100);
    assert!(
        matches!(refused, Err(RdbError::TooLarge { limit: 100, .. })),
        "{refused:?}"
    );
    // A count of 2^63 elements, and a string of as many bytes.
    for value in [
        &b"\x02\x81\x80\0\0\0\0\0\0\0\x01a"[..],
        b"\x00\x81\x80\0\0\0\0\0\0\0a",
    ] {
        restore(&payload(6, value), LIMIT).unwrap_err();
    }
}

#[test]
fn what_follows_a_file_is_left_to_its_reader() {
    let both = [fixture!("all.rdb"), b"and more"].concat();
    let mut reader = RdbReader::new(&both[..]).unwrap();
    assert!(reader.by_ref().all(|key| key.is_ok()));
    assert_eq!(reader.into_inner(), b"and more");
}

#[test]
fn a_value_that_needs_a_newer_version_is_refused_whole() {
    let mut file = Vec::new();
    let mut writer = RdbWriter::new(&mut file, 9).unwrap();
    let refused = writer.key(0, b"k", None, &hash(&[("f", "v", Some(1))]));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "key \"k\": its value needs RDB version 12, and the file has version 9"
    );
    writer.key(0, b"l", None, &string("v")).unwrap();
    writer.finish().unwrap();
    assert_eq!(all_of(&file).unwrap().len(), 1);
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        keys in prop::collection::vec((0..3_u64, bytes(), any::<Option<u32>>(), value()), 0..6)
    ) {
        let mut file = Vec::new();
        let mut writer = RdbWriter::new(&mut file, 12).unwrap();
        for (database, key, deadline, value) in &keys {
            writer.key(*database, key, deadline.map(u64::from), value).unwrap();
        }
        writer.finish().unwrap();
        let found = all_of(&file).unwrap();
        prop_assert_eq!(found.len(), keys.len());
        for (found, (database, key, deadline, value)) in found.iter().zip(&keys) {
            prop_assert_eq!((found.database, &found.key), (*database, key));
            prop_assert_eq!(found.deadline, deadline.map(u64::from));
            prop_assert!(!is_exact(value) || found.value == *value);
        }
    }

    #[test]
    fn damaged_files_are_refused(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut file = fixture!("all.rdb").to_vec();
        let at = at.index(file.len());
        file[at] ^= 1 << bit;
        prop_assert!(all_of(&file).is_err());
        prop_assert!(all_of(&file[..at]).is_err());
    }

    #[test]
    fn any_payload_is_a_value_or_an_error(kind in 0..30_u8, bytes in bytes()) {
        let value = [&[kind][..], &bytes].concat();
        if let Ok(value) = restore(&payload(12, &value), LIMIT) {
            prop_assert!(value.weight() <= LIMIT);
        }
    }
}
