//! Keys as lines of JSON: what they look like, what is refused, and that nothing is lost.

#![cfg(feature = "ndjson")]

mod strategies;

use doyen_rdb::{
    HashField, NdjsonReader, NdjsonWriter, RdbError, RdbKey, RdbPendingEntry, RdbStream,
    RdbStreamConsumer, RdbStreamEntry, RdbStreamGroup, RdbStreamId, RdbValue, ScoredMember,
};
use proptest::prelude::*;
use strategies::{bytes, value};

fn all_of(file: &[u8]) -> Result<Vec<RdbKey>, RdbError> {
    NdjsonReader::new(file).collect()
}

/// The values of lines that are right.
fn values(file: &str) -> Vec<RdbValue> {
    let all = all_of(file.as_bytes()).unwrap();
    all.into_iter().map(|found| found.value).collect()
}

fn written(keys: &[RdbKey]) -> Vec<u8> {
    let mut writer = NdjsonWriter::new(Vec::new());
    for it in keys {
        let written = writer.key(it.database, &it.key, it.deadline, &it.value);
        written.unwrap();
    }
    writer.finish().unwrap()
}

const fn id(ms: u64, seq: u64) -> RdbStreamId {
    RdbStreamId { ms, seq }
}

fn stream() -> RdbStream {
    RdbStream {
        entries: vec![RdbStreamEntry {
            id: id(5, 0),
            fields: vec![
                (b"level".to_vec(), b"warn".to_vec()),
                (b"level".to_vec(), b"\xff".to_vec()),
            ],
        }],
        last: id(7, 1),
        added: 2,
        deleted: id(7, 1),
        groups: vec![RdbStreamGroup {
            name: b"readers".to_vec(),
            last: id(5, 0),
            read: Some(1),
            consumers: vec![
                RdbStreamConsumer {
                    name: b"idle".to_vec(),
                    seen: 8,
                    active: None,
                },
                RdbStreamConsumer {
                    name: b"me".to_vec(),
                    seen: 9,
                    active: Some(9),
                },
            ],
            pending: vec![RdbPendingEntry {
                id: id(5, 0),
                given: 9,
                times: 3,
                consumer: 1,
            }],
        }],
    }
}

#[test]
fn each_type_has_a_line_that_people_read() {
    let key = |key: &[u8], value| RdbKey {
        database: 0,
        key: key.to_vec(),
        deadline: None,
        value,
    };
    let field = |field: &[u8], deadline| HashField {
        field: field.to_vec(),
        value: b"3".to_vec(),
        deadline,
    };
    let member = |member: &[u8], score| ScoredMember {
        member: member.to_vec(),
        score,
    };
    let list = vec![b"a\n\"b\"".to_vec(), b"\xc3\xa9".to_vec(), Vec::new()];
    let keys = [
        RdbKey {
            database: 3,
            deadline: Some(1_900_000_000_000),
            ..key(b"user:7", RdbValue::String(b"Ann".to_vec()))
        },
        key(b"\xff\0", RdbValue::List(list)),
        key(b"s", RdbValue::Set(vec![b"b".to_vec(), b"a".to_vec()])),
        key(
            b"h",
            RdbValue::Hash(vec![field(b"f", Some(9)), field(b"g", None)]),
        ),
        key(
            b"z",
            RdbValue::SortedSet(vec![
                member(b"m", 0.1),
                member(b"n", f64::INFINITY),
                member(b"o", f64::NEG_INFINITY),
            ]),
        ),
        key(b"x", RdbValue::Stream(stream())),
    ];
    let lines = [
        r#"{"key":"user:7","database":3,"type":"string","value":"Ann","#,
        r#""expires_at_ms":1900000000000}"#,
        "\n",
        r#"{"key":{"base64":"/wA="},"type":"list","value":["a\n\"b\"","é",""]}"#,
        "\n",
        r#"{"key":"s","type":"set","value":["b","a"]}"#,
        "\n",
        r#"{"key":"h","type":"hash","value":[{"field":"f","value":"3","expires_at_ms":9},"#,
        r#"{"field":"g","value":"3"}]}"#,
        "\n",
        r#"{"key":"z","type":"sorted set","value":[{"member":"m","score":0.1},"#,
        r#"{"member":"n","score":"inf"},{"member":"o","score":"-inf"}]}"#,
        "\n",
        r#"{"key":"x","type":"stream","value":{"entries":[{"id":"5-0","#,
        r#""fields":[["level","warn"],["level",{"base64":"/w=="}]]}],"#,
        r#""last_generated_id":"7-1","entries_added":2,"max_deleted_entry_id":"7-1","groups":["#,
        r#"{"name":"readers","last_delivered_id":"5-0","entries_read":1,"consumers":["#,
        r#"{"name":"idle","seen_at_ms":8},{"name":"me","seen_at_ms":9,"active_at_ms":9}],"#,
        r#""pending":[{"id":"5-0","consumer":"me","delivered_at_ms":9,"deliveries":3}]}]}}"#,
        "\n",
    ];
    let file = written(&keys);
    assert_eq!(String::from_utf8(file.clone()).unwrap(), lines.concat());
    assert_eq!(all_of(&file).unwrap(), keys);
}

#[test]
fn lines_that_people_write_are_read() {
    let file = r#"
  { "value" : "\u00e9\ud83d\ude00" , "type" : "string" , "key" : "k" }

{"key":"z","type":"zset","value":[{"score":-0,"member":"m"},{"member":"n","score":1e-2}]}
{"key":"x","type":"stream","value":{"entries":[{"id":"5-7","fields":[["f","v"]]}]}}
{"key":"y","type":"stream","value":{"entries":[]}}"#;
    let windows = file.replace('\n', "\r\n");
    let values = values(file);
    assert_eq!(all_of(windows.as_bytes()).unwrap().len(), 4);
    assert_eq!(values[0], RdbValue::String("é😀".into()));
    let RdbValue::SortedSet(all) = &values[1] else {
        panic!("{:?}", values[1]);
    };
    assert_eq!((all[0].score, all[1].score), (-0.0, 0.01));
    let RdbValue::Stream(it) = &values[2] else {
        panic!("{:?}", values[2]);
    };
    assert_eq!((it.last, it.added, it.deleted), (id(5, 7), 1, id(0, 0)));
    let RdbValue::Stream(it) = &values[3] else {
        panic!("{:?}", values[3]);
    };
    assert_eq!((it.last, it.added), (id(0, 0), 0));
}

/// What is wrong with a value of a type.
fn refusal(kind: &str, value: &str) -> String {
    let good = r#"{"key":"a","type":"string","value":"v"}"#;
    let file = format!("{good}\n\n{{\"key\":\"k\",\"type\":\"{kind}\",\"value\":{value}}}\n{good}");
    let mut reader = NdjsonReader::new(file.as_bytes());
    reader.next().unwrap().unwrap();
    let refused = reader.next().unwrap().unwrap_err().to_string();
    assert!(reader.next().is_none(), "it ends at its first error");
    let what = refused.strip_prefix("line 3: ").expect(&refused);
    let what = what.strip_suffix(": correct the line, or remove it");
    what.expect(&refused).to_owned()
}

#[test]
fn a_refusal_says_where_and_what_is_wrong() {
    for (kind, value, what) in [
        (
            "string",
            "7",
            "at its byte 36: invalid type: integer `7`, expected a string, or \
             {\"base64\":\"...\"} for bytes that are no UTF-8",
        ),
        (
            "string",
            r#"{"base64":"/w"}"#,
            "at its byte 50: no Base64 with padding: Invalid padding",
        ),
        (
            "string",
            r#"{"hex":"ff"}"#,
            "at its byte 41: unknown field `hex`, expected `base64`",
        ),
        (
            "string",
            r#""v","ttl":5"#,
            "at its byte 44: unknown field `ttl`, expected one of `key`, `database`, `type`, \
             `value`, `expires_at_ms`",
        ),
        (
            "string",
            r#""v","expires_at_ms":-5"#,
            "at its byte 57: invalid value: integer `-5`, expected u64",
        ),
        (
            "string",
            r#""v","expires_at_ms":9223372036854775808"#,
            "at its byte 75: a number is above 9223372036854775807",
        ),
        (
            "string",
            r#""v","key":"l""#,
            "at its byte 44: duplicate field `key`",
        ),
        (
            "string",
            r#""\ud800""#,
            "at its byte 43: unexpected end of hex escape",
        ),
        (
            "tree",
            "1",
            "at its byte 24: unknown variant `tree`, expected one of `string`, `list`, `set`, \
             `sorted set`, `zset`, `hash`, `stream`",
        ),
        (
            "hash",
            "[7]",
            "at its byte 35: invalid type: integer `7`, expected an object with `field` and \
             `value`",
        ),
        (
            "list",
            "[]",
            "its value has no element, and there are no empty collections",
        ),
        ("set", r#"["a","b","a"]"#, "the member \"a\" is there twice"),
        (
            "hash",
            r#"[{"field":"f","value":"1"},{"field":"f","value":"2"}]"#,
            "the field \"f\" is there twice",
        ),
        (
            "hash",
            r#"[{"field":"f"}]"#,
            "at its byte 47: missing field `value`",
        ),
        (
            "sorted set",
            r#"[{"member":"m","score":1e999}]"#,
            "at its byte 68: a score is a number of 64 bits, \"inf\" or \"-inf\"",
        ),
        (
            "sorted set",
            r#"[{"member":"m","score":"nan"}]"#,
            "at its byte 68: a score is a number of 64 bits, \"inf\" or \"-inf\"",
        ),
    ] {
        assert_eq!(refusal(kind, value), what, "{kind} {value}");
    }
    let cut = all_of(br#"{"key":"k","type":"list","value":["a","#).unwrap_err();
    assert_eq!(
        cut.to_string(),
        "line 1: at its byte 38: EOF while parsing a value: correct the line, or remove it"
    );
    let other = all_of(b"REDIS0011\xfa\x09redis-ver").unwrap_err();
    assert!(
        other.to_string().starts_with("line 1: at its byte 1: "),
        "{other}"
    );
}

/// serde takes the fields of a struct in an array as well.
#[test]
fn arrays_in_the_place_of_objects_are_refused() {
    let whole = all_of(br#"["k",0,"string","v",null]"#)
        .unwrap_err()
        .to_string();
    let expected = "line 1: at its byte 0: invalid type: sequence, expected an object with `key`";
    assert!(whole.starts_with(expected), "{whole}");
    let entry = r#"{"id":"5-0","fields":[["f","v"]]}"#;
    for (kind, value, expected) in [
        (
            "hash",
            r#"[["f","v",null]]"#.to_owned(),
            "`field` and `value`",
        ),
        (
            "sorted set",
            r#"[["m",1]]"#.to_owned(),
            "`member` and `score`",
        ),
        (
            "stream",
            format!(r#"[[{entry}],null,null,"0-0",[]]"#),
            "`entries`",
        ),
        (
            "stream",
            r#"{"entries":[["5-0",[["f","v"]]]]}"#.to_owned(),
            "`id` and `fields`",
        ),
        (
            "stream",
            format!(r#"{{"entries":[{entry}],"groups":[["g","5-0",null,[],[]]]}}"#),
            "`name` and `last_delivered_id`",
        ),
        (
            "stream",
            format!(
                r#"{{"entries":[{entry}],"groups":[{{"name":"g","last_delivered_id":"5-0",
                "consumers":[["c",9,null]]}}]}}"#
            )
            .replace('\n', ""),
            "`name` and `seen_at_ms`",
        ),
    ] {
        let refused = refusal(kind, &value);
        let what = format!("invalid type: sequence, expected an object with {expected}");
        assert!(refused.ends_with(&what), "{value}: {refused}");
    }
}

#[test]
fn a_refusal_repeats_no_control_characters_and_no_long_text() {
    let refused = refusal(
        "string",
        &format!("\"v\",\"\\u001b[2J{}\":1", "x".repeat(5_000)),
    );
    assert!(
        refused.contains("unknown field `\\u{1b}[2Jxxx"),
        "{refused}"
    );
    assert!(refused.ends_with("xxx..."), "{refused}");
    assert!(refused.len() < 400, "{refused}");
}

#[test]
fn streams_that_cannot_be_are_refused() {
    let good = RdbKey {
        database: 0,
        key: b"k".to_vec(),
        deadline: None,
        value: RdbValue::Stream(stream()),
    };
    let line = String::from_utf8(written(&[good])).unwrap();
    for (part, instead, what) in [
        (
            r#""id":"5-0","fields""#,
            r#""id":"0-0","fields""#,
            "entries are in the order of their ids, and 0-0 is behind 0-0",
        ),
        (
            r#"[{"id":"5-0","#,
            r#"[{"id":"6-0","fields":[["f","v"]]},{"id":"5-0","#,
            "entries are in the order of their ids, and 5-0 is behind 6-0",
        ),
        (
            r#"["level","warn"],["level",{"base64":"/w=="}]"#,
            "",
            "the entry 5-0 has no fields",
        ),
        (
            r#""last_generated_id":"7-1""#,
            r#""last_generated_id":"4-9""#,
            "last_generated_id 4-9 is below the entry 5-0",
        ),
        (
            r#""id":"5-0","fields""#,
            r#""id":"5","fields""#,
            "an id is two",
        ),
        (
            r#""id":"5-0","fields""#,
            r#""id":"+5-0","fields""#,
            "an id is two",
        ),
        (
            r#""consumer":"me""#,
            r#""consumer":"you""#,
            "pending entry 5-0 is not there",
        ),
        (
            r#""name":"idle""#,
            r#""name":"me""#,
            "the consumer \"me\" is there twice",
        ),
        (
            r#""pending":["#,
            r#""pending":[{"id":"5-0","consumer":"me","delivered_at_ms":1,"deliveries":1},"#,
            "pending entries are in the order of their ids",
        ),
        (
            r#""groups":["#,
            r#""groups":[{"name":"readers","last_delivered_id":"0-0"},"#,
            "the group \"readers\" is there twice",
        ),
        (
            r#""deliveries":3"#,
            r#""deliveries":3.5"#,
            "floating point `3.5`",
        ),
        (r#"["level","warn"]"#, r#"["level"]"#, "tuple of size 2"),
    ] {
        let changed = line.replacen(part, instead, 1);
        assert_ne!(changed, line, "{part}");
        let refused = all_of(changed.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(what), "{instead}: {refused}");
    }
}

/// A collection of JSON has each name once, and its numbers are signed.
fn is_written(value: &RdbValue) -> bool {
    fn differ<'a>(names: impl Iterator<Item = &'a Vec<u8>>) -> bool {
        let mut seen = std::collections::BTreeSet::new();
        names.into_iter().all(|name| seen.insert(name))
    }
    match value {
        RdbValue::Set(all) => differ(all.iter()),
        RdbValue::Hash(all) => {
            differ(all.iter().map(|it| &it.field)) && strategies::is_exact(value)
        }
        RdbValue::SortedSet(all) => differ(all.iter().map(|it| &it.member)),
        _ => true,
    }
}

fn keys() -> impl Strategy<Value = Vec<RdbKey>> {
    let value = value().prop_filter("names are there once", is_written);
    let key = (0..3_u64, bytes(), any::<Option<u32>>(), value);
    let key = key.prop_map(|(database, key, deadline, value)| RdbKey {
        database,
        key,
        deadline: deadline.map(u64::from),
        value,
    });
    prop::collection::vec(key, 1..6)
}

/// Damage to a byte of a file.
fn damages() -> impl Strategy<Value = (prop::sample::Index, Option<u8>)> {
    let of_json = prop::sample::select(br#"{}[]",:\ntf-09.eE "#.to_vec());
    let byte = prop_oneof![any::<u8>(), of_json];
    (any::<prop::sample::Index>(), prop::option::of(byte))
}

proptest! {
    #[test]
    fn what_is_written_is_read(keys in keys()) {
        let file = written(&keys);
        prop_assert_eq!(file.iter().filter(|byte| **byte == b'\n').count(), keys.len());
        prop_assert_eq!(all_of(&file).unwrap(), keys);
    }

    /// Lines before the damage are read. The damaged line is refused with its number, or what it
    /// holds can be written and read again.
    #[test]
    fn damaged_lines_are_refused_or_are_other_lines(
        keys in keys(),
        damages in prop::collection::vec(damages(), 1..4)
    ) {
        let mut file = written(&keys);
        let mut first = file.len();
        for (at, byte) in damages {
            let at = at.index(file.len());
            first = first.min(at);
            match byte {
                Some(byte) => file[at] = byte,
                None => _ = file.remove(at),
            }
        }
        let whole = file[..first].iter().filter(|byte| **byte == b'\n').count();
        let (mut found, mut refused) = (Vec::new(), None);
        for it in NdjsonReader::new(&file[..]) {
            match it {
                Ok(it) => found.push(it),
                Err(e) => refused = Some(e),
            }
        }
        prop_assert_eq!(&found[..whole], &keys[..whole]);
        match refused {
            Some(RdbError::Line { line, .. }) => prop_assert!(line > whole as u64),
            Some(other) => prop_assert!(false, "{other}"),
            None => {}
        }
        prop_assert_eq!(all_of(&written(&found)).unwrap(), found);
    }

    #[test]
    fn any_bytes_are_lines_or_an_error(bytes in prop::collection::vec(bytes(), 0..4)) {
        let line = [br#"{"key":"k","type":"set","value":"#, &bytes.concat()[..], b"}"].concat();
        let _ = all_of(&bytes.concat());
        let _ = all_of(&line);
    }
}
