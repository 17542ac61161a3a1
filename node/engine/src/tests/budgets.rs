//! What one operation may do while all others wait.
//!
//! A person who attacked Doyen named sets of 131,000 members a hundred times in one `EXEC`, and
//! counted the bits of a value of 15 MiB 1,500 times. The thread of the primary was busy for
//! seconds, its node was expelled, and the resent operation did the same to the next primary.

use super::hashes::parsed;
use super::*;
use crate::command::{Arguments, COMMANDS, ParsedRequest};
use std::cell::Cell;

/// Fields and members of a large collection, and bytes of a large string.
const COUNT: usize = 20_000;
const BYTES: usize = 1 << 20;
/// Entries of a stream.
const ENTRIES: usize = 2_000;
/// Commands of one transaction.
const STEPS: usize = 10_000;

/// What the clock of [`slow`] shows.
fn ticks() -> &'static std::thread::LocalKey<Cell<u64>> {
    thread_local! {
        static TICKS: Cell<u64> = const { Cell::new(0) };
    }
    &TICKS
}

/// A clock by which each look comes late, as on a machine that is very slow.
fn slow() -> Duration {
    ticks().set(ticks().get() + 25);
    Duration::from_millis(ticks().get())
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A write of another node that waited behind a long backlog ended as unknown, because its node
/// heard nothing within 5 s.
#[test]
fn a_write_that_waits_too_long_behind_others_is_refused_while_its_node_hears_it() {
    let mut w = World::new(77, 2, |_| vec![1]);
    w.settle(Duration::from_millis(100));
    let exhausted = |w: &mut World, on| {
        w.nodes.get_mut(&1).unwrap().shard.cx.budgets.exhausted = on;
    };
    exhausted(&mut w, true);
    let write = w.submit(2, "a", set("1"));
    let read = w.submit(2, "a", Action::Get);
    w.settle(Duration::from_millis(3_500));
    assert!(!w.outcomes.contains_key(&write), "it has time");
    w.settle(Duration::from_millis(1_200));
    let refused = Outcome::Failed(Failure::Overloaded);
    assert_eq!(w.outcomes.get(&write), Some(&refused));
    exhausted(&mut w, false);
    w.settle(Duration::from_millis(1_000));
    assert_eq!(
        w.outcomes.get(&read),
        Some(&Outcome::Nil),
        "it was not executed"
    );
}

/// Node 1 alone.
fn world(seed: u64) -> World {
    let limits = Limits {
        value_bytes_max: 16 << 20,
        memory_bytes_max: 1 << 30,
        ..Limits::of_test()
    };
    let mut w = World::with_limits(seed, 1, |_| 1, &limits, |_| vec![1]);
    w.nodes
        .get_mut(&1)
        .unwrap()
        .shard
        .set_work_clocks(slow, slow);
    w.settle(Duration::from_millis(50));
    w
}

/// The operations that a Redis client asks for with this line, each with its key.
fn asked(line: &str) -> Vec<(String, Action)> {
    let (words, request) = parsed(line);
    let args: &dyn Arguments = &words.as_slice();
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).expect("text");
    match request {
        Ok(ParsedRequest::One { key, action, .. }) => vec![(text(&key), action)],
        Ok(ParsedRequest::Many(many)) => (1..words.len())
            .step_by(many.step())
            .map(|at| (text(&words[at]), many.action(args, at)))
            .collect(),
        Ok(ParsedRequest::Pop(pop)) => {
            let (key, action) = pop.take_all();
            vec![(text(&key), action)]
        }
        Err(why) => panic!("{line}: {}", why.0),
    }
}

impl World {
    /// What a client is answered.
    fn line(&mut self, line: &str) -> Outcome {
        let (key, action) = asked(line).remove(0);
        self.ask(1, &key, action)
    }

    /// What a client is answered that sends these lines in one transaction.
    fn lines(&mut self, lines: &[&str]) -> Outcome {
        let steps: Vec<(String, Action)> = lines.iter().flat_map(|line| asked(line)).collect();
        self.transact(
            1,
            &[],
            steps.iter().map(|(key, action)| (&**key, action.clone())),
        )
    }

    /// Gives the keys of the attacks what they hold, where they lack it.
    fn fill(&mut self) {
        let numbers = |range: std::ops::Range<usize>| range.map(|n| format!(" member{n}"));
        if self.line("STRLEN {k}s") != Outcome::Int(BYTES as i64) {
            self.line(&format!("SET {{k}}s {}", "x".repeat(BYTES)));
        }
        self.line(&format!("SET {{k}}n {}", "9".repeat(4_900)));
        self.line("SET {k}i 1");
        self.line("DEL {k}p");
        self.line(&format!(
            "SADD {{k}}p{}",
            numbers(0..150).collect::<String>()
        ));
        self.fill_stream();
        for (key, count, add) in [
            ("{k}h", "HLEN", "HSET"),
            ("{k}m", "SCARD", "SADD"),
            ("{k}z", "ZCARD", "ZADD"),
            ("{k}l", "LLEN", "RPUSH"),
        ] {
            match self.line(&format!("{count} {key}")) {
                Outcome::Int(n) if n > COUNT as i64 / 2 => continue,
                _ => self.line(&format!("DEL {key}")),
            };
            for from in (0..COUNT).step_by(COUNT / 10) {
                let members = numbers(from..from + COUNT / 10);
                let given: String = match add {
                    "HSET" => members.map(|member| member + " v").collect(),
                    "ZADD" => members.map(|member| format!(" 1{member}")).collect(),
                    _ => members.collect(),
                };
                let added = self.line(&format!("{add} {key}{given}"));
                assert!(matches!(added, Outcome::Int(1..)), "{added:?}");
            }
        }
    }

    /// The same for a stream with a group whose entries are pending.
    fn fill_stream(&mut self) {
        if self.line("XLEN {k}y") != Outcome::Int(ENTRIES as i64) {
            self.line("DEL {k}y");
            for n in 1..=ENTRIES {
                self.line(&format!("XADD {{k}}y {n}-0 field value"));
            }
        }
        self.line("XGROUP CREATE {k}y g 0");
        self.line("XREADGROUP GROUP g c STREAMS {k}y >");
    }
}

/// The most that each command can be made to do, by keys that hold much: a string `s`, a number of
/// many digits `n`, a hash `h`, a set `m`, a small set `p`, a sorted set `z`, a list `l`, and
/// a stream `y`.
const ATTACKS: &[&str] = &[
    "append {k}s x",
    "bitcount {k}s",
    "bitfield {k}s set u8 0 120",
    "bitfield_ro {k}s get u8 0",
    "bitop xor {k}c {k}s {k}s",
    "bitpos {k}s 0 100 -1",
    "blmove {k}l {k}c left right 0",
    "blmpop 0 2 {k}none {k}l right count 1000",
    "blpop {k}l 0",
    "brpop {k}l 0",
    "brpoplpush {k}l {k}c 0",
    "bzmpop 0 2 {k}none {k}z max count 1000",
    "bzpopmax {k}z 0",
    "bzpopmin {k}z 0",
    "copy {k}m {k}c replace",
    "copy {k}s {k}c replace",
    "decr {k}i",
    "decrby {k}i 7",
    "del {k}m",
    "delex {k}s ifdeq 0000000000000000",
    "delifeq {k}s y",
    "digest {k}s",
    "dump {k}m",
    "exists {k}s",
    "expire {k}h 1000",
    "expireat {k}s 99999999999",
    "expiretime {k}s",
    "geoadd {k}g 13.3 38.1 member1",
    "geodist {k}z member1 member2",
    "geohash {k}z member1",
    "geopos {k}z member1",
    "georadius {k}z 15 37 22000 km",
    "georadius_ro {k}z 15 37 22000 km count 10",
    "georadiusbymember {k}z member1 22000 km store {k}c",
    "georadiusbymember_ro {k}z member1 22000 km",
    "geosearch {k}z fromlonlat 15 37 byradius 22000 km desc withdist",
    "geosearchstore {k}c {k}z frommember member1 bybox 22000 22000 km",
    "get {k}s",
    "getbit {k}s 7",
    "getdel {k}s",
    "getex {k}s ex 1000",
    "getrange {k}s 0 -1",
    "getset {k}s y",
    "hdel {k}h member1",
    "hexists {k}h member2",
    "hexpire {k}h 1000 fields 1 member3",
    "hexpireat {k}h 9999999999 fields 1 member3",
    "hexpiretime {k}h fields 1 member3",
    "hget {k}h member4",
    "hgetall {k}h",
    "hgetdel {k}h fields 1 member5",
    "hgetex {k}h ex 1000 fields 1 member6",
    "hincrby {k}h count 1",
    "hincrbyfloat {k}h count2 0.5",
    "hkeys {k}h",
    "hlen {k}h",
    "hmget {k}h member7 member8",
    "hmset {k}h member9 v",
    "hpersist {k}h fields 1 member3",
    "hpexpire {k}h 1000000 fields 1 member3",
    "hpexpireat {k}h 9999999999999 fields 1 member3",
    "hpexpiretime {k}h fields 1 member3",
    "hpttl {k}h fields 1 member3",
    "hrandfield {k}h -500000",
    "hscan {k}h 0 count 1000000 match *a*b*c*d*e*f*",
    "hset {k}h member10 v",
    "hsetex {k}h fields 1 member11 v",
    "hsetnx {k}h member12 v",
    "hstrlen {k}h member13",
    "httl {k}h fields 1 member3",
    "hvals {k}h",
    "incr {k}i",
    "incrby {k}i 7",
    "incrbyfloat {k}n 1",
    "increx {k}i byint 1",
    "lcs {k}s {k}s",
    "lindex {k}l 10000",
    "linsert {k}l before none x",
    "llen {k}l",
    "lmove {k}l {k}l left right",
    "lmpop 2 {k}none {k}l left count 1000",
    "lpop {k}l 1000",
    "lpos {k}l none",
    "lpush {k}l x",
    "lpushx {k}l x",
    "lrange {k}l 0 -1",
    "lrem {k}l -1 none",
    "lset {k}l 10000 x",
    "ltrim {k}l 1 -2",
    "memory usage {k}m",
    "mget {k}s {k}s {k}s",
    "mset {k}x y",
    "msetex 1 {k}x y",
    "msetnx {k}x y",
    "object encoding {k}m",
    "object freq {k}m",
    "object idletime {k}m",
    "object refcount {k}m",
    "persist {k}s",
    "pexpire {k}s 1000000",
    "pfadd {k}q a b c",
    "pfcount {k}q {k}q2",
    "pfmerge {k}q2 {k}q",
    "pexpireat {k}s 99999999999999",
    "pexpiretime {k}s",
    "psetex {k}x 1000000 y",
    "pttl {k}s",
    "rename {k}m {k}m",
    "rename {k}h {k}h",
    "renamenx {k}m {k}c2",
    "rpop {k}l 1000",
    "rpoplpush {k}l {k}c",
    "rpush {k}l x",
    "rpushx {k}l x",
    "sadd {k}m member14",
    "sadd {k}p member14",
    "scard {k}p",
    "sdiff {k}m {k}m",
    "sdiffstore {k}c {k}m {k}p",
    "set {k}s y ifdeq 0000000000000000",
    "setbit {k}s 7 1",
    "setex {k}x 1000 y",
    "setnx {k}s y",
    "setrange {k}s 0 y",
    "sinter {k}p {k}m",
    "sintercard 2 {k}m {k}m",
    "sinterstore {k}c {k}m {k}m",
    "sismember {k}m member15",
    "smembers {k}m",
    "smismember {k}p member15 member16",
    "smove {k}m {k}c member17",
    "spop {k}m 1000",
    "srandmember {k}m -100",
    "srem {k}m member18",
    "sscan {k}m 0 count 1000000 match *a*b*c*d*e*f*",
    "sort {k}m alpha desc store {k}c",
    "sort_ro {k}m alpha limit 100 10",
    "strlen {k}s",
    "substr {k}s 0 -1",
    "sunion {k}m {k}h2",
    "sunionstore {k}c {k}m",
    "touch {k}s",
    "ttl {k}s",
    "type {k}m",
    "unlink {k}h",
    "xack {k}y g 1-1 2-1",
    "xadd {k}y maxlen ~ 100 * f v",
    "xautoclaim {k}y g c 0 - count 100000",
    "xclaim {k}y g c 0 5-0 6-0 force",
    "xdel {k}y 7-0 8-0",
    "xgroup create {k}y g2 0",
    "xgroup createconsumer {k}y g d",
    "xgroup delconsumer {k}y g c",
    "xgroup destroy {k}y g2",
    "xgroup setid {k}y g 0",
    "xinfo consumers {k}y g",
    "xinfo groups {k}y",
    "xinfo stream {k}y full count 0",
    "xlen {k}y",
    "xpending {k}y g",
    "xpending {k}y g - + 100000 nobody",
    "xrange {k}y - +",
    "xread streams {k}y {k}y 0 0",
    "xreadgroup group g c streams {k}y 0",
    "xrevrange {k}y + -",
    "xsetid {k}y 999999-0",
    "xtrim {k}y maxlen 0",
    "zadd {k}z ch 1 member1",
    "zcard {k}z",
    "zcount {k}z -inf +inf",
    "zdiff 2 {k}z {k}m withscores",
    "zdiffstore {k}c 2 {k}z {k}p",
    "zincrby {k}z 1 member2",
    "zinter 2 {k}z {k}m",
    "zintercard 2 {k}z {k}m",
    "zinterstore {k}c 2 {k}z {k}m weights 2 3",
    "zlexcount {k}z - +",
    "zmpop 2 {k}none {k}z max count 1000",
    "zmscore {k}z member3 member4",
    "zpopmax {k}z 1000",
    "zpopmin {k}z 1000",
    "zrandmember {k}z -500000 withscores",
    "zrange {k}z 0 -1 withscores",
    "zrangebylex {k}z - +",
    "zrangebyscore {k}z -inf +inf limit 100000 10",
    "zrangestore {k}c {k}z 0 -1",
    "zrank {k}z member5",
    "zrem {k}z member6",
    "zremrangebylex {k}z - +",
    "zremrangebyrank {k}z 0 -1",
    "zremrangebyscore {k}z -inf +inf",
    "zrevrange {k}z 0 10",
    "zrevrangebylex {k}z + -",
    "zrevrangebyscore {k}z +inf -inf withscores",
    "zrevrank {k}z member7",
    "zscan {k}z 0 count 1000000 match *a*b*c*d*e*f*",
    "zscore {k}z member8",
    "zunion 2 {k}z {k}m aggregate max",
    "zunionstore {k}c 1 {k}z",
];

/// What they take is no text (`tests/dumps.rs`).
const NO_TEXT: &[&str] = &["restore"];

/// Whatever a command does, ten thousand of it are either little work or refused.
#[test]
fn no_command_keeps_a_thread_busy_however_often_a_transaction_has_it() {
    for spec in COMMANDS.commands() {
        for name in [spec].into_iter().chain(COMMANDS.subcommands(spec)) {
            let words = name.name.replace('|', " ") + " ";
            let contains = !COMMANDS.subcommands(name).is_empty();
            assert!(
                contains
                    || NO_TEXT.contains(&name.name)
                    || ATTACKS.iter().any(|line| line.starts_with(&words)),
                "no attack with {words}"
            );
        }
    }
    let mut w = world(1);
    let mut refused = BTreeSet::new();
    for line in ATTACKS {
        w.fill();
        let lines = vec![*line; STEPS];
        let began = thread_time();
        let outcome = w.lines(&lines);
        let took = thread_time() - began;
        if outcome == Outcome::Failed(Failure::TooMuchWork) {
            refused.insert(line.split(' ').next().unwrap());
        }
        assert!(took < Duration::from_secs(8), "{line}: {took:?}");
    }
    for name in [
        "bitcount",
        "digest",
        "sintercard",
        "copy",
        "hscan",
        "setbit",
        "sunionstore",
    ] {
        assert!(refused.contains(name), "{name} is not refused: {refused:?}");
    }
    for name in [
        "get",
        "hget",
        "sadd",
        "expire",
        "incr",
        "mset",
        "sismember",
        "del",
    ] {
        assert!(!refused.contains(name), "{name} is refused");
    }
}

#[test]
fn a_transaction_that_does_too_much_changes_nothing_and_others_go_on() {
    let mut w = world(2);
    w.fill();
    let mut lines = vec![
        "set {k}new 1",
        "sadd {k}m new",
        "hdel {k}h member1",
        "rename {k}p {k}q",
    ];
    lines.extend(["sintercard 2 {k}m {k}m"; 1_000]);
    let too_much = Outcome::Failed(Failure::TooMuchWork);
    assert_eq!(w.lines(&lines), too_much);
    for (line, outcome) in [
        ("EXISTS {k}new", 0),
        ("SISMEMBER {k}m new", 0),
        ("HEXISTS {k}h member1", 1),
        ("SCARD {k}p", 150),
        ("EXISTS {k}q", 0),
        ("SINTERCARD 2 {k}m {k}m", COUNT as i64),
    ] {
        assert_eq!(w.line(line), Outcome::Int(outcome), "{line}");
    }
    // The budget is that of an operation: the next one has all of it.
    assert_eq!(
        w.lines(&lines[..6]),
        Outcome::Many(vec![
            Outcome::Ok,
            Outcome::Int(1),
            Outcome::Int(1),
            Outcome::Ok,
            Outcome::Int(COUNT as i64 + 1),
            Outcome::Int(COUNT as i64 + 1),
        ])
    );
}

#[test]
fn one_command_that_does_too_much_changes_nothing() {
    let mut w = world(3);
    w.fill();
    for n in 0..4 {
        w.line(&format!("SUNIONSTORE {{k}}{n} {{k}}m"));
        let more: String = (0..COUNT).map(|m| format!(" {n}:{m}")).collect();
        w.line(&format!("SADD {{k}}{n}{more}"));
    }
    let too_much = Outcome::Failed(Failure::TooMuchWork);
    assert_eq!(w.line("SUNIONSTORE {k}all {k}0 {k}1 {k}2 {k}3"), too_much);
    assert_eq!(w.line("EXISTS {k}all"), Outcome::Int(0));
    let before = Outcome::Int(2 * COUNT as i64);
    assert_eq!(w.line("SUNIONSTORE {k}0 {k}0 {k}1 {k}2 {k}3"), too_much);
    assert_eq!(w.line("SCARD {k}0"), before);
    // A limit makes it little.
    assert_eq!(w.line("SINTERCARD 2 {k}0 {k}0 LIMIT 3"), Outcome::Int(3));
    assert_eq!(
        w.line("SUNIONSTORE {k}all {k}m"),
        Outcome::Int(COUNT as i64)
    );
}

/// `SPOP` of half a million members kept a thread busy for 1.2 s, and a node is silent after 1 s.
#[test]
fn one_command_changes_no_more_rows_than_are_applied_in_time() {
    let mut w = world(5);
    for first in (0..250_000).step_by(50_000) {
        let members: String = (first..first + 50_000).map(|m| format!(" {m}")).collect();
        assert_eq!(w.line(&format!("SADD s{members}")), Outcome::Int(50_000));
    }
    assert_eq!(
        w.line("SPOP s 240000"),
        Outcome::Failed(Failure::TooMuchWork)
    );
    assert_eq!(w.line("SCARD s"), Outcome::Int(250_000));
    w.line("SPOP s 100000");
    assert_eq!(w.line("SCARD s"), Outcome::Int(150_000));
}

/// A pipeline needs no transaction, and each command of it has a budget of its own.
#[test]
fn heavy_operations_of_one_pass_wait_for_the_next_ones() {
    let mut w = world(4);
    w.fill();
    let executed = |w: &World| w.nodes[&1].shard.stats().executed;
    let before = executed(&w);
    let (key, action) = asked("BITCOUNT {k}s").remove(0);
    let tokens: Vec<CallToken> = (0..500)
        .map(|_| w.submit(1, &key, action.clone()))
        .collect();
    let at_once = executed(&w) - before;
    assert!((1..100).contains(&at_once), "{at_once}");
    let all: BTreeSet<_> = tokens
        .into_iter()
        .map(|token| format!("{:?}", w.outcome(token)))
        .collect();
    assert_eq!(all.len(), 1);
}
