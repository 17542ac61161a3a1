//! Scripts: what they change is one record of the log.

use super::*;
use crate::op::ScriptCall;

/// Node 1 leads, node 2 has the copies; node 3 only asks.
fn world(seed: u64) -> World {
    let mut w = World::new(seed, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    w
}

fn script(body: &str, keys: &[&str], args: &[&str]) -> ScriptCall {
    let all = |words: &[&str]| {
        let words = words.iter();
        words
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect()
    };
    ScriptCall {
        keyspace: KeyspaceId(0),
        map: MapId(0),
        body: Bytes::copy_from_slice(body.as_bytes()),
        keys: all(keys),
        args: all(args),
        read_only: false,
        resp3: false,
    }
}

impl World {
    /// The reply of a script, in RESP.
    fn run(&mut self, n: u64, call: ScriptCall) -> String {
        let token = self.submit_work(n, call);
        match self.outcome(token) {
            Outcome::Bulk(reply) => String::from_utf8_lossy(&reply).into_owned(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_script_reads_and_changes_the_keys_of_its_partition_wherever_it_is_asked() {
    let mut w = world(1);
    let (a, b) = ("a", twin_of("a"));
    let body = "redis.call('SET', KEYS[1], ARGV[1]); redis.call('INCRBY', KEYS[1], 2)
        redis.call('APPEND', KEYS[2], 'x')
        return {redis.call('GET', KEYS[1]), redis.call('STRLEN', KEYS[2])}";
    for n in 1..=3 {
        let reply = w.run(n, script(body, &[a, &b], &["40"]));
        assert_eq!(reply, format!("*2\r\n$2\r\n42\r\n:{n}\r\n"), "at {n}");
        assert_eq!(w.get(n, a), text("42"));
    }
    let versions = [a, &b].map(|key| w.ask(1, key, Action::Version));
    assert_eq!(versions[0], versions[1], "one record has both changes");
    w.settle(Duration::from_millis(200));
    w.check_copies();
    // Without keys, too.
    assert_eq!(
        w.run(3, script("return ARGV[1]", &[], &["v"])),
        "$1\r\nv\r\n"
    );
}

#[test]
fn a_script_has_only_the_keys_of_its_partition() {
    let mut w = world(2);
    let (a, other) = (key_of(0), key_of(1));
    let body = "return redis.call('SET', ARGV[1], 'x')";
    assert_eq!(w.run(3, script(body, &[&a], &[&twin_of(&a)])), "+OK\r\n");
    let reply = w.run(3, script(body, &[&a], &[&other]));
    assert!(
        reply.starts_with("-ERR Script attempted to access a non local key"),
        "{reply}"
    );
    assert_eq!(w.get(1, &other), Outcome::Nil);
    let token = w.submit_work(3, script(body, &[&a, &other], &[&a]));
    assert_eq!(w.outcome(token), Outcome::Failed(Failure::CrossPartition));
}

#[test]
fn an_error_keeps_what_was_changed_before_and_a_run_that_is_stopped_keeps_nothing() {
    let mut w = world(3);
    let key = key_of(0);
    let raises = "redis.call('SET', KEYS[1], 'kept'); error('no further')";
    let reply = w.run(3, script(raises, &[&key], &[]));
    assert!(
        reply.starts_with('-') && reply.contains("no further"),
        "{reply}"
    );
    assert_eq!(w.get(1, &key), text("kept"));
    let memory = w.nodes[&1].shard.cx.memory.bytes;
    for endless in [
        "redis.call('SET', KEYS[1], 'lost'); while true do end",
        "redis.call('DEL', KEYS[1]); pcall(function() while true do end end); return 1",
        "redis.call('SET', KEYS[1], string.rep('x', 1000)); local t = {}
            while true do t[#t + 1] = string.rep('y', 1000000 + #t) end",
    ] {
        let reply = w.run(3, script(endless, &[&key], &[]));
        assert!(reply.starts_with('-'), "{reply}");
        assert_eq!(w.get(1, &key), text("kept"), "{endless}");
    }
    w.settle(Duration::from_millis(200));
    assert_eq!(w.nodes[&1].shard.cx.memory.bytes, memory);
    w.check_copies();
    // What is too large for a record is taken back as well.
    let large = "for n = 1, 5 do redis.call('SET', KEYS[1], string.rep('x', 300000))
            redis.call('APPEND', KEYS[2], string.rep('x', 300000)) end";
    let token = w.submit_work(3, script(large, &[&key, &twin_of(&key)], &[]));
    assert_eq!(w.outcome(token), Outcome::Failed(Failure::TooLarge));
    assert_eq!(w.get(1, &key), text("kept"));
}

#[test]
fn a_read_only_script_may_not_write() {
    let mut w = world(4);
    w.set(1, "a", "v");
    let read_only = |body| ScriptCall {
        read_only: true,
        ..script(body, &["a"], &[])
    };
    assert_eq!(
        w.run(3, read_only("return redis.call('GET', KEYS[1])")),
        "$1\r\nv\r\n"
    );
    let reply = w.run(3, read_only("return redis.call('SET', KEYS[1], 'x')"));
    assert!(
        reply.starts_with("-ERR Write commands are not allowed"),
        "{reply}"
    );
    let reply = w.run(3, read_only("#!lua\nreturn 1"));
    assert!(
        reply.starts_with("-ERR Can not execute a script with write flag"),
        "{reply}"
    );
}

#[test]
fn a_script_is_executed_once_though_its_primary_is_deposed() {
    for reached in [false, true] {
        let mut w = world(5);
        let (a, b) = (key_of(0), twin_of(&key_of(0)));
        w.released = false;
        let body = "redis.call('INCR', KEYS[2]); return redis.call('INCR', KEYS[1])";
        let token = w.submit_work(1, script(body, &[&a, &b], &[]));
        if reached {
            w.deliver((1, 2, Lane::Calls), true);
        }
        w.nodes.get_mut(&1).unwrap().cut = true;
        w.disconnect(1, 2);
        w.propose(|t| (0..4).for_each(|p| promote(t, PartitionId(p), 2)));
        w.settle(Duration::from_millis(700));
        w.released = true;
        w.nodes.get_mut(&1).unwrap().cut = false;
        w.connect(1, 2);
        assert_eq!(w.outcome(token), text(":1\r\n"));
        assert_eq!((w.get(2, &a), w.get(2, &b)), (text("1"), text("1")));
        w.settle(Duration::from_millis(300));
        w.check_copies();
    }
}

#[test]
fn a_script_knows_the_time_and_simple_commands_without_keys() {
    let mut w = world(6);
    let reply = w.run(
        1,
        script(
            "return {redis.call('TIME')[1], redis.call('PING')}",
            &["a"],
            &[],
        ),
    );
    assert_eq!(reply, "*2\r\n$10\r\n1700000000\r\n+PONG\r\n");
    for (command, error) in [
        ("'NONSENSE'", "ERR Unknown Redis command called from script"),
        (
            "'GET'",
            "ERR Wrong number of args calling Redis command from script",
        ),
        (
            "'EVAL', 'return 1', 0",
            "ERR This Redis command is not allowed from script",
        ),
        (
            "'INCRBY', KEYS[1], 'x'",
            "ERR value is not an integer or out of range",
        ),
    ] {
        let body = format!("return redis.pcall({command}).err");
        let reply = w.run(1, script(&body, &["a"], &[]));
        assert!(reply.contains(error), "{command}: {reply}");
    }
}
