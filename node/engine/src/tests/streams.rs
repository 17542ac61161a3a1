//! Streams: what their commands answer, and their way through copies, snapshots, failovers and
//! members of an older level.

use super::hashes::{begin_copies, form};
use super::*;
use crate::command::{Arguments, COMMANDS, CommandReply, ParsedRequest};

/// A reply in one line: arrays in brackets, maps in braces.
fn text(reply: &CommandReply) -> String {
    let all = |parts: &[CommandReply]| parts.iter().map(text).collect::<Vec<_>>().join(" ");
    match reply {
        CommandReply::Status(text) => (*text).to_owned(),
        CommandReply::Error(why) => why.0.clone().into_owned(),
        CommandReply::Int(number) => number.to_string(),
        CommandReply::Bulk(value) => String::from_utf8_lossy(value).into_owned(),
        CommandReply::Nil => "nil".to_owned(),
        CommandReply::NilArray => "nil*".to_owned(),
        CommandReply::Array(parts) => format!("[{}]", all(parts)),
        CommandReply::Map(parts) | CommandReply::Keyed(parts) => format!("{{{}}}", all(parts)),
        CommandReply::Fields(fields) => {
            let items = fields.iter().map(String::from_utf8_lossy);
            format!("[{}]", items.collect::<Vec<_>>().join(" "))
        }
        other => panic!("{other:?}"),
    }
}

impl World {
    /// What a Redis client is answered that sends this line, in one line.
    pub(super) fn streams(&mut self, n: u64, line: &str) -> String {
        let words: Vec<Bytes> = line
            .split(' ')
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect();
        let args: &dyn Arguments = &words.as_slice();
        match COMMANDS.find(args).and_then(|spec| spec.request(args, 0)) {
            Ok(ParsedRequest::One { key, action, shape }) => {
                let key = String::from_utf8(key.to_vec()).expect("text");
                text(&shape.reply(self.ask(n, &key, action)))
            }
            Ok(ParsedRequest::Pop(pop)) => {
                let (key, action) = pop.take_all();
                let key = String::from_utf8(key.to_vec()).expect("text");
                text(&pop.shape.reply(self.ask(n, &key, action)))
            }
            Ok(ParsedRequest::Many(many)) => panic!("{line}: {many:?}"),
            Err(why) => why.0.into_owned(),
        }
    }

    fn all_answer(&mut self, n: u64, lines: &[(&str, &str)]) {
        for (line, expected) in lines {
            assert_eq!(self.streams(n, line), *expected, "{line}");
        }
    }
}

fn world(seed: u64) -> World {
    let mut w = World::new(seed, 2, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    w
}

const TOO_SMALL: &str =
    "ERR The ID specified in XADD is equal or smaller than the target stream top item";
const INVALID: &str = "ERR Invalid stream ID specified as stream command argument";

#[test]
fn entries_are_added_read_deleted_and_trimmed() {
    let mut w = world(61);
    w.all_answer(
        2,
        &[
            ("XADD s NOMKSTREAM 1-1 a b", "nil"),
            ("XADD s 1-1 a b", "1-1"),
            ("XADD s 1-1 a b", TOO_SMALL),
            ("XADD s 1-* c d", "1-2"),
            ("XADD s 5 e f g h", "5-0"),
            ("XADD s 4-* e f", TOO_SMALL),
            (
                "XADD s 0-0 e f",
                "ERR The ID specified in XADD must be greater than 0-0",
            ),
            ("XADD s x-1 e f", INVALID),
            (
                "XADD s 7-1 e",
                "ERR wrong number of arguments for 'xadd' command",
            ),
            ("XLEN s", "3"),
            ("XLEN none", "0"),
            ("TYPE s", "stream"),
            ("OBJECT ENCODING s", "stream"),
            ("XRANGE s - +", "[[1-1 [a b]] [1-2 [c d]] [5-0 [e f g h]]]"),
            ("XRANGE s (1-1 5", "[[1-2 [c d]] [5-0 [e f g h]]]"),
            ("XRANGE s 1 1", "[[1-1 [a b]] [1-2 [c d]]]"),
            ("XRANGE s - + COUNT 1", "[[1-1 [a b]]]"),
            ("XRANGE s - + COUNT 0", "nil*"),
            ("XRANGE none - +", "[]"),
            ("XRANGE s 5 1", "[]"),
            ("XRANGE s (- +", INVALID),
            ("XREVRANGE s + - COUNT 2", "[[5-0 [e f g h]] [1-2 [c d]]]"),
            ("XREVRANGE s (5-0 1-2", "[[1-2 [c d]]]"),
            ("XREVRANGE s 4 -", "[[1-2 [c d]] [1-1 [a b]]]"),
            ("XDEL s 1-2 1-2 9-9", "1"),
            ("XLEN s", "2"),
            ("XADD s MAXLEN 2 6-0 i j", "6-0"),
            ("XRANGE s - +", "[[5-0 [e f g h]] [6-0 [i j]]]"),
            ("XADD s MINID = 6 6-1 k l", "6-1"),
            ("XLEN s", "2"),
            ("XTRIM s MAXLEN ~ 1", "0"),
            ("XTRIM s MAXLEN 1", "1"),
            ("XRANGE s - +", "[[6-1 [k l]]]"),
            ("XTRIM s MINID 7", "1"),
            ("XLEN s", "0"),
            ("EXISTS s", "1"),
            ("XADD s 6-1 k l", TOO_SMALL),
            ("XADD s MAXLEN 0 6-2 k l", "6-2"),
            ("XLEN s", "0"),
            (
                "XADD s 18446744073709551615-18446744073709551615 a b",
                "18446744073709551615-18446744073709551615",
            ),
            (
                "XADD s * a b",
                "ERR The stream has exhausted the last possible ID, unable to add more items",
            ),
            ("XADD t 0-* a b", "0-1"),
        ],
    );
    w.settle(Duration::from_secs(1));
    w.check_copies();
}

#[test]
fn ids_are_set_and_streams_are_described() {
    let mut w = world(62);
    w.all_answer(
        1,
        &[
            ("XSETID s 5-0", "ERR no such key"),
            ("XINFO STREAM s", "ERR no such key"),
            ("XADD s 2-0 a b", "2-0"),
            ("XADD s 3-0 c d", "3-0"),
            ("XDEL s 2-0", "1"),
            (
                "XSETID s 1-0",
                "ERR The ID specified in XSETID is smaller than current \
                              max_deleted_entry_id",
            ),
            (
                "XSETID s 2-5",
                "ERR The ID specified in XSETID is smaller than the target stream \
                              top item",
            ),
            (
                "XSETID s 9-0 ENTRIESADDED 0",
                "ERR The entries_added specified in XSETID is smaller \
                                             than the target stream length",
            ),
            ("XSETID s 9-0 ENTRIESADDED 7 MAXDELETEDID 2-1", "OK"),
            (
                "XINFO STREAM s",
                "{length 1 radix-tree-keys 1 radix-tree-nodes 2 last-generated-id 9-0 \
              max-deleted-entry-id 2-1 entries-added 7 recorded-first-entry-id 3-0 groups 0 \
              first-entry [3-0 [c d]] last-entry [3-0 [c d]]}",
            ),
            (
                "XINFO STREAM s FULL",
                "{length 1 radix-tree-keys 1 radix-tree-nodes 2 last-generated-id 9-0 \
              max-deleted-entry-id 2-1 entries-added 7 recorded-first-entry-id 3-0 \
              entries [[3-0 [c d]]] groups []}",
            ),
            ("XADD s 8-0 a b", TOO_SMALL),
        ],
    );
}

#[test]
fn several_streams_are_read_together() {
    let mut w = world(63);
    for line in [
        "XADD {t}a 1-0 a 1",
        "XADD {t}a 2-0 a 2",
        "XADD {t}b 1-5 b 1",
    ] {
        w.streams(1, line);
    }
    w.all_answer(
        2,
        &[
            (
                "XREAD STREAMS {t}a {t}b 1-0 0",
                "{{t}a [[2-0 [a 2]]] {t}b [[1-5 [b 1]]]}",
            ),
            (
                "XREAD COUNT 1 STREAMS {t}a {t}b {t}none 0 9 0",
                "{{t}a [[1-0 [a 1]]]}",
            ),
            ("XREAD STREAMS {t}a {t}b $ 1-5", "nil*"),
            (
                "XREAD STREAMS {t}a {t}b 0",
                "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be \
              specified.",
            ),
            (
                "XREAD STREAMS {t}a >",
                "ERR The > ID can be specified only when calling XREADGROUP \
                                      using the GROUP <group> <consumer> option.",
            ),
            ("XREAD COUNT 1 {t}a 0", "ERR syntax error"),
        ],
    );
    w.set(1, "{t}s", "text");
    assert!(
        w.streams(1, "XREAD STREAMS {t}a {t}s 0 0")
            .starts_with("WRONGTYPE")
    );
}

#[test]
fn consumers_of_a_group_share_its_entries() {
    let mut w = world(64);
    for n in 1..=4 {
        w.streams(1, &format!("XADD s {n}-0 f v{n}"));
    }
    w.all_answer(
        2,
        &[
            (
                "XGROUP CREATE none g $",
                "ERR The XGROUP subcommand requires the key to exist. Note \
                that for CREATE you may want to use the MKSTREAM option to create an empty stream \
                automatically.",
            ),
            ("XGROUP CREATE made g $ MKSTREAM", "OK"),
            ("XLEN made", "0"),
            ("EXISTS made", "1"),
            ("XGROUP CREATE s g 0", "OK"),
            (
                "XGROUP CREATE s g 0",
                "BUSYGROUP Consumer Group name already exists",
            ),
            (
                "XREADGROUP GROUP h a STREAMS s >",
                "NOGROUP No such key 's' or consumer group 'h' in \
                XREADGROUP with GROUP option",
            ),
            (
                "XREADGROUP GROUP g a COUNT 2 STREAMS s >",
                "{s [[1-0 [f v1]] [2-0 [f v2]]]}",
            ),
            (
                "XREADGROUP GROUP g b COUNT 1 STREAMS s >",
                "{s [[3-0 [f v3]]]}",
            ),
            (
                "XREADGROUP GROUP g a STREAMS s 0",
                "{s [[1-0 [f v1]] [2-0 [f v2]]]}",
            ),
            ("XREADGROUP GROUP g a STREAMS s 1-0", "{s [[2-0 [f v2]]]}"),
            (
                "XREADGROUP GROUP g c NOACK STREAMS s >",
                "{s [[4-0 [f v4]]]}",
            ),
            ("XREADGROUP GROUP g c STREAMS s >", "nil*"),
            ("XREADGROUP GROUP g c STREAMS s 0", "{s []}"),
            ("XPENDING s g", "[3 1-0 3-0 [[a 2] [b 1]]]"),
            ("XPENDING made g", "[0 nil nil nil*]"),
            (
                "XPENDING s h",
                "NOGROUP No such key 's' or consumer group 'h'",
            ),
            ("XACK s g 1-0 1-0 9-9", "1"),
            ("XACK s none 1-0", "0"),
            ("XDEL s 2-0", "1"),
            ("XREADGROUP GROUP g a STREAMS s 0", "{s [[2-0 nil*]]}"),
            ("XCLAIM s g b 0 2-0 3-0 JUSTID", "[3-0]"),
            ("XPENDING s g", "[1 3-0 3-0 [[b 1]]]"),
            ("XCLAIM s g a 3600000 3-0", "[]"),
            ("XCLAIM s g a 0 3-0 4-0 RETRYCOUNT 9", "[[3-0 [f v3]]]"),
            ("XCLAIM s g a 0 4-0 FORCE", "[[4-0 [f v4]]]"),
            (
                "XCLAIM s g a 0 3-0 WHAT",
                "ERR Unrecognized XCLAIM option 'WHAT'",
            ),
            ("XDEL s 3-0", "1"),
            ("XAUTOCLAIM s g c 0 - COUNT 1", "[4-0 [] [3-0]]"),
            ("XAUTOCLAIM s g c 0 0 JUSTID", "[0-0 [4-0] []]"),
            ("XGROUP CREATECONSUMER s g a", "0"),
            ("XGROUP CREATECONSUMER s g d", "1"),
            ("XGROUP DELCONSUMER s g c", "1"),
            ("XPENDING s g", "[0 nil nil nil*]"),
            (
                "XGROUP CREATECONSUMER s h d",
                "NOGROUP No such consumer group 'h' for key name 's'",
            ),
            (
                "XINFO GROUPS s",
                "[{name g consumers 3 pending 0 last-delivered-id 4-0 \
                                entries-read 4 lag 0}]",
            ),
            ("XGROUP SETID s g 1-0 ENTRIESREAD 1", "OK"),
            (
                "XGROUP SETID s none 0",
                "NOGROUP No such consumer group 'none' for key name 's'",
            ),
            ("XGROUP DESTROY s none", "0"),
            ("XREADGROUP GROUP g e STREAMS s >", "{s [[4-0 [f v4]]]}"),
            ("XGROUP DESTROY s g", "1"),
            ("XINFO GROUPS s", "[]"),
        ],
    );
    assert_eq!(
        form(&w, 1, "s"),
        Some((true, 3)),
        "two entries, and no rows of groups"
    );
    w.settle(Duration::from_secs(1));
    w.check_copies();
}

#[test]
fn streams_and_other_kinds_are_not_taken_for_each_other() {
    let mut w = world(65);
    w.set(1, "{t}s", "text");
    w.streams(1, "XADD {t}x 1-0 a b");
    for line in [
        "XADD {t}s * a b",
        "XLEN {t}s",
        "XREAD STREAMS {t}s 0",
        "XINFO STREAM {t}s",
        "XGROUP CREATE {t}s g 0",
        "XPENDING {t}s g",
        "GET {t}x",
        "LPUSH {t}x a",
        "HGET {t}x m",
    ] {
        assert!(w.streams(2, line).starts_with("WRONGTYPE"), "{line}");
    }
}

/// The rows of streams are read by their order, which a copy derives for itself.
#[test]
fn a_new_copy_gets_streams_while_they_change_and_leads_them() {
    let mut w = World::new(66, 3, |_| vec![1]);
    w.settle(Duration::from_millis(50));
    let add = |w: &mut World, key: &str| w.streams(1, &format!("XADD {key} * field value-{key}"));
    for n in 0..8 {
        let key = format!("s{n}");
        (0..40).for_each(|_| _ = add(&mut w, &key));
        w.streams(1, &format!("XGROUP CREATE {key} g 0"));
    }
    begin_copies(&mut w);
    for n in 0..300 {
        let key = format!("s{}", n % 8);
        let id = add(&mut w, &key);
        w.streams(
            1,
            &format!("XREADGROUP GROUP g c{} COUNT 2 STREAMS {key} >", n % 3),
        );
        match n % 7 {
            0 => w.streams(1, &format!("XDEL {key} {id}")),
            1 => w.streams(1, &format!("XTRIM {key} MAXLEN 45")),
            2 => w.streams(1, &format!("XACK {key} g {id}")),
            3 => w.streams(1, &format!("XAUTOCLAIM {key} g c1 0 0 COUNT 3")),
            _ => String::new(),
        };
    }
    w.settle(Duration::from_secs(2));
    assert_eq!(w.nodes[&1].shard.stats().copies.checksum_mismatches, 0);
    w.settle(Duration::from_secs(1));
    w.check_copies();
    let all = |w: &mut World, n| {
        let lines = (0..8).flat_map(|k| {
            let lines = [
                "XRANGE s - +",
                "XINFO STREAM s FULL COUNT 0",
                "XPENDING s g - + 1000",
            ];
            // The time since an entry was delivered differs.
            let lines = lines.into_iter().filter(|line| !line.contains("XPENDING"));
            lines.map(move |line| line.replacen(" s ", &format!(" s{k} "), 1))
        });
        lines.map(|line| w.streams(n, &line)).collect::<Vec<_>>()
    };
    let before = all(&mut w, 1);
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    assert_eq!(before, all(&mut w, 3));
}

/// A new primary's clock may be behind that of the former one.
#[test]
fn ids_never_run_backwards() {
    let mut w = World::new(67, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    let far = "99999999999999-7";
    assert_eq!(w.streams(3, &format!("XADD s {far} a b")), far);
    w.kill(1);
    w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
    w.settle(Duration::from_secs(1));
    w.all_answer(
        3,
        &[
            ("XADD s * a b", "99999999999999-8"),
            ("XDEL s 99999999999999-8", "1"),
            ("XADD s * a b", "99999999999999-9"),
        ],
    );
}

#[test]
fn streams_in_transactions_of_other_nodes_are_answered_whole() {
    let mut w = world(68);
    let lines = ["XADD s 1-0 a b", "XINFO STREAM s FULL", "XREAD STREAMS s 0"];
    let asked = lines.map(|line| {
        let words: Vec<Bytes> = line.split(' ').map(|w| w.to_owned().into()).collect();
        let args: &dyn Arguments = &words.as_slice();
        match COMMANDS.find(args).and_then(|spec| spec.request(args, 0)) {
            Ok(ParsedRequest::One { action, shape, .. }) => (action, shape),
            other => panic!("{other:?}"),
        }
    });
    let steps = asked.iter().map(|(action, _)| ("s", action.clone()));
    let Outcome::Many(outcomes) = w.transact(2, &[], steps) else {
        panic!("it is executed")
    };
    let replies = outcomes.into_iter().zip(&asked);
    let replies: Vec<String> = replies
        .map(|(one, (_, shape))| text(&shape.reply(one)))
        .collect();
    assert_eq!((&*replies[0], &*replies[2]), ("1-0", "{s [[1-0 [a b]]]}"));
    assert!(
        replies[1].contains("entries [[1-0 [a b]]]"),
        "{}",
        replies[1]
    );
}

/// A copy may run a version that has no streams: nothing of them may reach it.
#[test]
fn while_a_member_speaks_an_older_level_there_are_no_streams() {
    let mut w = world(69);
    w.propose(|t| t.level = doyen_placement::level::SORTED - 1);
    w.settle(Duration::from_millis(50));
    for n in 1..=2 {
        for line in [
            "XADD s * a b",
            "XLEN s",
            "XREAD STREAMS s 0",
            "XGROUP CREATE s g 0 MKSTREAM",
        ] {
            let answer = w.streams(n, line);
            assert!(
                answer.starts_with("ERR some member speaks only an older level"),
                "{line}"
            );
        }
    }
    assert_eq!(w.ask(2, "s", Action::Exists), Outcome::Int(0));
}
