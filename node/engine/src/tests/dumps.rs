//! Values that leave and come in Redis's own format.

use super::*;
use crate::command::{Arguments, COMMANDS, CommandReply, ErrorText, ParsedRequest, Shape};
use doyen_rdb::{
    HashField, RdbPendingEntry, RdbStream, RdbStreamConsumer, RdbStreamEntry, RdbStreamGroup,
    RdbStreamId, RdbValue, ScoredMember, dump,
};

/// The words of a command.
macro_rules! words {
    ($($word:expr),*) => {
        [$(&$word[..]),*]
    };
}

fn parsed(words: &[&[u8]]) -> Result<ParsedRequest, ErrorText> {
    let words: Vec<Bytes> = words.iter().copied().map(Bytes::copy_from_slice).collect();
    let args: &dyn Arguments = &words.as_slice();
    COMMANDS.find(args).and_then(|spec| spec.request(args, 0))
}

impl World {
    /// What a Redis client is answered.
    fn redis(&mut self, n: u64, words: &[&[u8]]) -> CommandReply {
        match parsed(words) {
            Ok(ParsedRequest::One { key, action, shape }) => {
                let key = String::from_utf8(key.to_vec()).expect("text");
                shape.reply(self.ask(n, &key, action))
            }
            Ok(other) => panic!("{other:?}"),
            Err(why) => CommandReply::Error(why),
        }
    }

    fn dump(&mut self, n: u64, key: &str) -> Vec<u8> {
        match self.redis(n, &words!(b"DUMP", key.as_bytes())) {
            CommandReply::Bulk(payload) => payload.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn value(&mut self, n: u64, key: &str) -> RdbValue {
        let mut value = doyen_rdb::restore(&self.dump(n, key), 1 << 30).expect("a payload");
        match &mut value {
            RdbValue::Set(all) => all.sort(),
            RdbValue::Hash(all) => all.sort_by(|a, b| a.field.cmp(&b.field)),
            RdbValue::SortedSet(all) => all.sort_by(|a, b| a.member.cmp(&b.member)),
            _ => {}
        }
        value
    }
}

fn world() -> World {
    let mut w = World::new(71, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    w
}

fn error(text: &'static str) -> CommandReply {
    CommandReply::Error(text.into())
}

fn field(field: &str, value: &str, deadline: Option<u64>) -> HashField {
    HashField {
        field: field.into(),
        value: value.into(),
        deadline,
    }
}

/// Values in each form in which they lie.
fn scored(member: &str, score: f64) -> ScoredMember {
    ScoredMember {
        member: member.into(),
        score,
    }
}

/// A stream with entries that were deleted and trimmed, and groups.
fn stream(entries: u64) -> RdbStream {
    let id = |ms, seq| RdbStreamId { ms, seq };
    let entry = |n| RdbStreamEntry {
        id: id(n, u64::MAX - n),
        fields: vec![(b"f".to_vec(), b"v".to_vec()), (b"f".to_vec(), Vec::new())],
    };
    let consumer = |name: &str, seen| RdbStreamConsumer {
        name: name.into(),
        seen,
        active: Some(seen),
    };
    let pending = |n, consumer| RdbPendingEntry {
        id: id(n, 3),
        given: 1_000 + n,
        times: n,
        consumer,
    };
    RdbStream {
        entries: (1..=entries).map(entry).collect(),
        last: id(u64::MAX, 0),
        added: 5_000,
        deleted: id(7, 8),
        groups: vec![
            RdbStreamGroup {
                name: Vec::new(),
                last: id(4, 0),
                read: None,
                consumers: Vec::new(),
                pending: Vec::new(),
            },
            RdbStreamGroup {
                name: b"group".to_vec(),
                last: id(9, 1),
                read: Some(0),
                consumers: vec![consumer("", 5), consumer("c", u64::MAX >> 1)],
                pending: (1..=entries)
                    .map(|n| pending(n, (n % 2) as usize))
                    .collect(),
            },
        ],
    }
}

fn values() -> Vec<RdbValue> {
    let far = Some(9_000_000_000_000);
    let many = |count: usize| (0..count).map(|n| format!("{n:05}"));
    vec![
        RdbValue::String(b"text".to_vec()),
        RdbValue::String(Vec::new()),
        RdbValue::String(b"-12".to_vec()),
        RdbValue::Set(vec![b"-2".to_vec(), b"1".to_vec(), b"70000".to_vec()]),
        RdbValue::Set(many(2_000).map(String::into_bytes).collect()),
        RdbValue::SortedSet(vec![scored("a", 2.5), scored("b", f64::NEG_INFINITY)]),
        RdbValue::SortedSet(many(2_000).map(|name| scored(&name, 7.0)).collect()),
        RdbValue::List(vec![
            b"b".to_vec(),
            Vec::new(),
            b"b".to_vec(),
            b"a".to_vec(),
        ]),
        RdbValue::List(many(2_000).map(String::into_bytes).collect()),
        RdbValue::Hash(vec![field("f", "v", None), field("g", "", None)]),
        RdbValue::Hash(vec![field("f", "v", far), field("g", "w", None)]),
        RdbValue::Hash(many(2_000).map(|name| field(&name, &name, far)).collect()),
        RdbValue::Stream(stream(0)),
        RdbValue::Stream(stream(1_000)),
    ]
}

#[test]
fn a_value_is_restored_as_it_was_and_outlives_a_failover() {
    let mut w = world();
    for (n, value) in values().into_iter().enumerate() {
        let key = format!("key{n}");
        let payload = dump(&value).expect("it is a value");
        let words: [&[u8]; 6] = [
            b"RESTORE",
            key.as_bytes(),
            b"9000000000123",
            &payload,
            b"ABSTTL",
            b"REPLACE",
        ];
        for _ in 0..2 {
            assert_eq!(w.redis(3, &words), CommandReply::OK);
        }
        assert_eq!(w.value(2, &key), value);
    }
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    for (n, value) in values().into_iter().enumerate() {
        let key = format!("key{n}");
        assert_eq!(w.value(3, &key), value);
        let deadline = w.redis(3, &words!(b"PEXPIRETIME", key.as_bytes()));
        assert_eq!(deadline, CommandReply::Int(9_000_000_000_123));
    }
}

#[test]
fn a_key_that_exists_is_kept_unless_it_may_be_replaced() {
    let mut w = world();
    let payload = dump(&RdbValue::String("new")).expect("it is a value");
    w.set(1, "k", "old");
    let restore = |w: &mut World, ttl: &[u8], options: &[&[u8]]| {
        let words: [&[u8]; 4] = [b"RESTORE", b"k", ttl, &payload];
        w.redis(2, &[&words, options].concat())
    };
    let busy = "BUSYKEY Target key name already exists.";
    assert_eq!(restore(&mut w, b"0", &[]), error(busy));
    assert_eq!(w.get(3, "k"), text("old"));
    let used: [&[u8]; 3] = [b"IDLETIME", b"1", b"replace"];
    assert_eq!(restore(&mut w, b"5000", &used), CommandReply::OK);
    assert_eq!(w.get(3, "k"), text("new"));
    assert!(matches!(
        w.redis(1, &words!(b"PTTL", b"k")),
        CommandReply::Int(4_000..=5_000)
    ));
    // A deadline that has passed: the key is gone.
    assert_eq!(restore(&mut w, b"1", &[b"ABSTTL"]), error(busy));
    assert_eq!(
        restore(&mut w, b"1", &words!(b"ABSTTL", b"REPLACE")),
        CommandReply::OK
    );
    assert_eq!(w.get(3, "k"), Outcome::Nil);
    assert_eq!(w.redis(3, &words!(b"DUMP", b"k")), CommandReply::Nil);
}

#[test]
fn fields_that_have_expired_are_left_out() {
    let mut w = world();
    let restore = |w: &mut World, fields: Vec<HashField>| {
        let payload = dump(&RdbValue::Hash(fields)).expect("it is a value");
        w.redis(1, &words!(b"RESTORE", b"h", b"0", &payload, b"REPLACE"))
    };
    let gone = field("gone", "v", Some(1));
    assert_eq!(
        restore(&mut w, vec![gone.clone(), field("left", "v", None)]),
        CommandReply::OK
    );
    assert_eq!(
        w.value(2, "h"),
        RdbValue::Hash(vec![field("left", "v", None)])
    );
    assert_eq!(restore(&mut w, vec![gone]), CommandReply::OK);
    assert_eq!(w.redis(2, &words!(b"EXISTS", b"h")), CommandReply::Int(0));
}

#[test]
fn what_cannot_be_restored_is_refused_before_anything_happens() {
    let mut w = world();
    let good = dump(&RdbValue::String("v")).expect("it is a value");
    let mut broken = good.clone();
    broken[2] ^= 1;
    let large = dump(&RdbValue::String(vec![b'x'; 64 << 20])).expect("it is a value");
    let empty = [&[2, 0][..], &6_u16.to_le_bytes(), &[0; 8]].concat();
    let footer = "ERR DUMP payload version or checksum are wrong";
    for (ttl, payload, options, why) in [
        ("0", &good, &["SOON"][..], "ERR syntax error"),
        ("0", &good, &["IDLETIME"], "ERR syntax error"),
        (
            "0",
            &good,
            &["FREQ", "1", "IDLETIME", "1"],
            "ERR syntax error",
        ),
        (
            "0",
            &good,
            &["IDLETIME", "-1"],
            "ERR Invalid IDLETIME value, must be >= 0",
        ),
        (
            "0",
            &good,
            &["FREQ", "256"],
            "ERR Invalid FREQ value, must be >= 0 and <= 255",
        ),
        ("-1", &good, &[], "ERR Invalid TTL value, must be >= 0"),
        (
            "x",
            &good,
            &[],
            "ERR value is not an integer or out of range",
        ),
        ("0", &broken, &[], footer),
        ("0", &b"short".to_vec(), &[], footer),
        ("0", &empty, &[], "ERR Bad data format"),
        ("0", &large, &[], Shape::Restored.failure(Failure::TooLarge)),
    ] {
        let words: [&[u8]; 4] = [b"RESTORE", b"k", ttl.as_bytes(), payload];
        let options: Vec<&[u8]> = options.iter().map(|option| option.as_bytes()).collect();
        assert_eq!(
            w.redis(2, &[&words, &options[..]].concat()),
            error(why),
            "{options:?}"
        );
        assert_eq!(w.get(3, "k"), Outcome::Nil);
    }
}

#[test]
fn a_collection_that_is_larger_than_an_answer_is_not_dumped() {
    let mut w = world();
    let value = "x".repeat(100_000);
    for n in 0..200 {
        let name = format!("f{n}");
        let words: [&[u8]; 4] = [b"HSET", b"h", name.as_bytes(), value.as_bytes()];
        assert_eq!(w.redis(1, &words), CommandReply::Int(1));
    }
    let words = words!(b"HGETALL", b"h");
    let refused = w.redis(1, &words);
    assert!(matches!(refused, CommandReply::Error(_)), "{refused:?}");
    assert_eq!(w.redis(1, &words!(b"DUMP", b"h")), refused);
}
