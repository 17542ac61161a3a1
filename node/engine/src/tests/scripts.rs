//! Scripts: what they change is one record of the log.

use super::*;
use crate::command::grants::Lacks;
use crate::command::operation::{OperationStep, ScriptCall};

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
        grants: Bytes::new(),
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
        reply.starts_with("-ERR Script attempted to access a non local key")
            && reply.contains("name each key that the script uses in KEYS")
            && reply.contains("--preset one-server"),
        "{reply}"
    );
    for lists in ["'KEYS', '*'", "'SCAN', '0'"] {
        let reply = w.run(
            3,
            script(&format!("return redis.call({lists})"), &[&a], &[]),
        );
        let refused = "-ERR This Redis command is not allowed from script: the keys are in several \
             partitions; with --preset one-server";
        assert!(reply.starts_with(refused), "{reply}");
    }
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
    let memory = w.nodes[&1].shard.cx.host.memory.bytes;
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
    assert_eq!(w.nodes[&1].shard.cx.host.memory.bytes, memory);
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
            "'wait', 1, 0",
            "ERR This Redis command is not allowed from script",
        ),
        (
            "'WAIT'",
            "ERR Wrong number of args calling Redis command from script",
        ),
        (
            "'CLIENT', 'ID'",
            "ERR This Redis command is not allowed from script",
        ),
        (
            "'INCRBY', KEYS[1], 'x'",
            "ERR value is not an integer or out of range",
        ),
        (
            "'xread', 'COUNT', '1', 'BLOCK', '0', 'STREAMS', KEYS[1], '$'",
            "ERR xread command is not allowed with BLOCK option from scripts",
        ),
        (
            "'XREADGROUP', 'GROUP', 'block', 'block', 'STREAMS', KEYS[1], '>'",
            "NOGROUP No such key 'a' or consumer group 'block'",
        ),
    ] {
        let body = format!("return redis.pcall({command}).err");
        let reply = w.run(1, script(&body, &["a"], &[]));
        assert!(reply.contains(error), "{command}: {reply}");
    }
}

impl World {
    /// The outcomes of a transaction of these steps. A script's one is its reply in RESP.
    fn together(&mut self, n: u64, steps: Vec<OperationStep>) -> Vec<Outcome> {
        let token = self.submit_work(
            n,
            OperationBatch {
                steps,
                ..transaction(&[], [])
            },
        );
        match self.outcome(token) {
            Outcome::Many(outcomes) => outcomes,
            other => panic!("{other:?}"),
        }
    }
}

fn step(key: &str, action: Action) -> OperationStep {
    let OperationBatch { mut steps, .. } = transaction(&[], [(key, action)]);
    steps.remove(0)
}

fn scripted(body: &str, keys: &[&str]) -> OperationStep {
    OperationStep::Script(Box::new(script(body, keys, &[])))
}

#[test]
fn a_script_in_a_transaction_is_part_of_its_record() {
    let mut w = world(7);
    let (a, b) = ("a", twin_of("a"));
    for n in 1..=3 {
        let outcomes = w.together(
            n,
            vec![
                step(a, set("7")),
                scripted(
                    "redis.call('INCR', KEYS[1]) return redis.call('SET', KEYS[2], 'x')",
                    &[a, &b],
                ),
                // Without keys, it is where the others are.
                scripted("return 5", &[]),
                step(a, Action::IncrBy(1)),
            ],
        );
        let expected = [
            Outcome::Ok,
            text("+OK\r\n"),
            text(":5\r\n"),
            Outcome::Int(9),
        ];
        assert_eq!(outcomes, expected, "at {n}");
    }
    let versions = [a, &b].map(|key| w.ask(1, key, Action::Version));
    assert_eq!(versions[0], versions[1], "one record has all changes");
    assert_eq!(
        w.together(2, vec![scripted("return 5", &[])]),
        [text(":5\r\n")]
    );
    let long = format!("return 5 --{}", "x".repeat(70_000));
    assert_eq!(w.together(3, vec![scripted(&long, &[])]), [text(":5\r\n")]);
    w.settle(Duration::from_millis(200));
    w.check_copies();
    let token = w.submit_work(
        3,
        OperationBatch {
            steps: vec![
                step(&key_of(0), Action::Get),
                scripted("return 1", &[&key_of(0), &key_of(1)]),
            ],
            ..transaction(&[], [])
        },
    );
    assert_eq!(w.outcome(token), Outcome::Failed(Failure::CrossPartition));
}

#[test]
fn a_script_that_is_stopped_in_a_transaction_takes_back_its_own_changes_only() {
    let mut w = world(8);
    let (a, b, c) = ("{t}a", "{t}b", "{t}c");
    w.set(1, b, "old");
    let endless = "redis.call('APPEND', KEYS[1], '-lost') redis.call('DEL', KEYS[1])
        redis.call('SET', KEYS[1], 'lost', 'EX', 5) redis.call('APPEND', KEYS[2], '-lost')
        redis.call('DEL', KEYS[2]) redis.call('SET', KEYS[3], 'lost')
        while true do end";
    let raises = "redis.call('APPEND', KEYS[1], '-kept') error('no further')";
    let outcomes = w.together(
        3,
        vec![
            step(a, set("first")),
            scripted(raises, &[a]),
            scripted(endless, &[a, b, c]),
            step(
                a,
                Action::Append {
                    value: Bytes::from_static(b"-last"),
                },
            ),
            step(b, Action::Get),
        ],
    );
    let replies: Vec<_> = outcomes[1..3]
        .iter()
        .map(|outcome| match outcome {
            Outcome::Bulk(reply) => String::from_utf8_lossy(reply).into_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(replies[0].contains("no further"), "{replies:?}");
    assert!(replies[1].starts_with("-ERR the script"), "{replies:?}");
    assert_eq!(outcomes[3..], [Outcome::Int(15), text("old")]);
    assert_eq!(w.get(1, a), text("first-kept-last"));
    assert_eq!(w.ask(1, a, Action::PTtl), Outcome::Int(-1));
    w.settle(Duration::from_millis(200));
    w.check_copies();
    let keys = w.nodes[&1].shard.stats().keys;
    assert_eq!(keys, 2, "the third key was never there");
}

#[test]
fn the_scripts_of_a_transaction_have_the_limits_of_one() {
    let mut w = world(9);
    let a = key_of(0);
    let long = "for i = 1, 50000 do local x = i * 2 end return redis.call('INCR', KEYS[1])";
    let outcomes = w.together(1, (0..20).map(|_| scripted(long, &[&a])).collect());
    let done = (1..20)
        .take_while(|n| outcomes[n - 1] == text(&format!(":{n}\r\n")))
        .count();
    assert!((2..10).contains(&done), "{outcomes:?}");
    for outcome in &outcomes[done..] {
        let Outcome::Bulk(reply) = outcome else {
            panic!("{outcome:?}");
        };
        let reply = String::from_utf8_lossy(reply);
        assert!(
            reply.starts_with("-ERR the scripts of the transaction ran too long"),
            "{reply}"
        );
    }
    assert_eq!(w.get(1, &a), text(&done.to_string()));
    // The next operation has all of it again.
    assert_eq!(
        w.run(1, script(long, &[&a], &[])),
        format!(":{}\r\n", done + 1)
    );
}

/// What a script does to a hash. A long value makes it a table.
const CHANGES: [&str; 9] = [
    "redis.call('HSET', KEYS[1], 'f', 'new', 'g', 'new')",
    "redis.call('HSET', KEYS[1], 'long', string.rep('x', 100))",
    "redis.call('HDEL', KEYS[1], 'f', 'long')",
    "redis.call('HINCRBY', KEYS[1], 'n', 1) redis.call('HINCRBY', KEYS[1], 'n', 1)",
    "redis.call('EXPIRE', KEYS[1], 1000)",
    "redis.call('PERSIST', KEYS[1])",
    "redis.call('DEL', KEYS[1])",
    "redis.call('SET', KEYS[1], 'text') redis.call('DEL', KEYS[1])",
    "redis.call('HSET', KEYS[1], 'f', '1') redis.call('EXPIRE', KEYS[1], 5)",
];

#[test]
fn a_script_that_is_stopped_after_it_read_what_it_wrote_is_answered_at_once() {
    let mut w = world(11);
    let body = "redis.call('INCR', KEYS[1]) redis.call('INCR', KEYS[1]) while true do end";
    for n in 1..=3 {
        let reply = w.run(n, script(body, &["a"], &[]));
        assert!(reply.starts_with("-ERR the script"), "at {n}: {reply}");
        assert_eq!(w.ask(n, "a", Action::Exists), Outcome::Int(0));
    }
}

#[test]
fn a_script_that_is_stopped_leaves_hashes_as_they_were() {
    let mut w = world(10);
    for (n, first) in CHANGES.iter().enumerate() {
        for (m, second) in CHANGES.iter().enumerate() {
            for (k, third) in CHANGES.iter().enumerate().filter(|(k, _)| (n + k) % 3 == 0) {
                let key = format!("h{n}{m}{k}");
                let made = "redis.call('HSET', KEYS[1], 'f', 'old', 'n', 1, 'long', ARGV[1])";
                let long = if k % 2 == 0 {
                    "x".repeat(100)
                } else {
                    "x".to_owned()
                };
                w.run(1, script(made, &[&key], &[&long]));
                let endless = format!("{second} {third} {second} while true do end");
                let looks = || [Action::Version, Action::PTtl, Action::Exists];
                let look = |key: &str| {
                    let mut steps = vec![step(key, super::hashes::of(&format!("HGETALL {key}")))];
                    steps.extend(looks().map(|action| step(key, action)));
                    steps
                };
                let mut steps = vec![scripted(first, &[&key])];
                steps.extend(look(&key));
                steps.push(scripted(&endless, &[&key]));
                steps.extend(look(&key));
                let outcomes = w.together(1, steps);
                let Outcome::Bulk(reply) = &outcomes[5] else {
                    panic!("{outcomes:?}");
                };
                assert!(reply.starts_with(b"-ERR the script"), "{outcomes:?}");
                assert_eq!(outcomes[1..5], outcomes[6..], "{first}; {endless}");
            }
        }
    }
    w.settle(Duration::from_millis(200));
    w.check_copies();
}

#[test]
fn messages_of_a_script_are_sent_if_it_ran_to_its_end() {
    let mut w = world(40);
    for n in [1, 3] {
        let now = w.now;
        w.nodes
            .get_mut(&n)
            .unwrap()
            .shard
            .channels()
            .want_published(now, true);
        w.drain(n);
    }
    w.settle(Duration::from_millis(20));
    let body = "redis.call('SET', KEYS[1], 'x')
        redis.call('SPUBLISH', 'news', 'a')
        return redis.call('PUBLISH', 'news', ARGV[1])";
    assert_eq!(w.run(2, script(body, &["a"], &["b"])), ":2\r\n");
    let endless = "redis.call('PUBLISH', 'news', 'never') while true do end";
    assert!(w.run(2, script(endless, &["a"], &[])).starts_with("-ERR"));
    let failed = "redis.call('PUBLISH', 'news', 'c') error('oh')";
    assert!(w.run(2, script(failed, &["a"], &[])).starts_with('-'));
    let quiet = ScriptCall {
        read_only: true,
        ..script("return redis.call('PUBLISH', 'news', 'd')", &["a"], &[])
    };
    let refused = w.run(2, quiet);
    assert!(refused.contains("read-only scripts"), "{refused}");
    let much = "return redis.call('PUBLISH', 'news', string.rep('x', 2000000))";
    let refused = w.run(2, script(much, &["a"], &[]));
    assert!(refused.contains("publishes too much"), "{refused}");
    let long = "return redis.call('PUBLISH', string.rep('x', 1025), 'd')";
    let refused = w.run(2, script(long, &["a"], &[]));
    assert!(refused.contains("name is too long"), "{refused}");
    w.settle(Duration::from_millis(20));
    for n in [1, 3] {
        let shard = &mut w.nodes.get_mut(&n).unwrap().shard;
        let all: Vec<(Bytes, bool)> = std::iter::from_fn(|| shard.channels().poll_published())
            .map(|p| (p.message, p.sharded))
            .collect();
        let expected = [("a", true), ("b", false), ("c", false)];
        assert_eq!(all, expected.map(|(text, sharded)| (text.into(), sharded)));
    }
}

/// A script runs with the rights of its caller, wherever its keys are.
#[test]
fn a_script_does_no_more_than_its_caller_may() {
    let mut w = world(9);
    let run = |w: &mut World, body: &str, grants: &'static str| {
        let call = ScriptCall {
            grants: Bytes::from_static(grants.as_bytes()),
            ..script(body, &["a"], &["{a}b"])
        };
        w.run(2, call)
    };
    let set = "return redis.call('SET', KEYS[1], 'x')";
    let bob = "bob\n-@all +get +publish +mget ~a &news";
    assert_eq!(run(&mut w, set, "bob\n-@all +set %W~a*"), "+OK\r\n");
    let refused = run(&mut w, set, bob);
    let text = "-ERR ACL failure in script: User bob has no permissions to run the 'set' command";
    assert!(refused.starts_with(text), "{refused}");
    assert_eq!(
        run(&mut w, "return redis.call('GET', KEYS[1])", bob),
        "$1\r\nx\r\n"
    );
    let both = "return redis.pcall('MGET', KEYS[1], ARGV[1])";
    let refused = run(&mut w, both, bob);
    assert!(
        refused.contains("No permissions to access a key"),
        "{refused}"
    );
    let say = "return redis.call('PUBLISH', 'news', 'x')";
    assert!(run(&mut w, say, bob).starts_with(':'));
    let refused = run(&mut w, "return redis.call('PUBLISH', 'other', 'x')", bob);
    assert!(
        refused.contains("No permissions to access a channel"),
        "{refused}"
    );
    assert!(run(&mut w, "return redis.call('TIME')", bob).contains("'time'"));
    assert!(run(&mut w, set, "nonsense").starts_with("-ERR ACL failure"));
    // The node that ran the script knows what was refused to whom.
    let mut refused = Vec::new();
    for node in w.nodes.values_mut() {
        refused.extend(std::iter::from_fn(|| node.shard.poll_refusal()));
    }
    let refused = refused.iter().map(|refusal| {
        let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        (shown(&refusal.user), refusal.lacks, shown(&refusal.object))
    });
    let expected = [
        ("bob", Lacks::Command, "set"),
        ("bob", Lacks::Key(2), "{a}b"),
        ("bob", Lacks::Channel(1), "other"),
        ("bob", Lacks::Command, "time"),
        ("nonsense", Lacks::Command, "set"),
    ];
    let expected = expected.map(|(user, lacks, object)| (user.into(), lacks, object.into()));
    assert_eq!(refused.collect::<Vec<_>>(), expected);
}

/// `redis.acl_check_cmd` judges as the execution of a command does. The answers were compared with
/// redis-server 7.0.15.
#[test]
fn a_script_can_ask_what_its_caller_may_do() {
    let mut w = world(10);
    let run = |w: &mut World, command: &str, grants: &'static str| {
        let body = format!("return tostring(redis.acl_check_cmd({command}))");
        let call = ScriptCall {
            grants: Bytes::from_static(grants.as_bytes()),
            ..script(&body, &["a"], &[])
        };
        w.run(2, call)
    };
    let bob = "bob\n-@all +get +set +publish ~a %R~r* &news";
    for (command, allowed) in [
        ("'GET', 'a'", true),
        ("'set', 'a', 1", true),
        ("'set', 'r', 1", false),
        ("'get', 'r'", true),
        ("'get', 'b'", false),
        ("'del', 'a'", false),
        ("'publish', 'news', 'x'", true),
        ("'publish', 'other', 'x'", false),
        ("'time'", false),
        ("'config', 'get', 'x'", false),
        // Redis 7.0 ends at a wrong number of arguments.
        ("'get'", true),
        ("'publish'", true),
        ("'del'", false),
    ] {
        let reply = run(&mut w, command, bob);
        assert!(
            reply.contains(&format!("\r\n{allowed}\r\n")),
            "{command}: {reply}"
        );
        let free = run(&mut w, command, "");
        assert!(free.contains("\r\ntrue\r\n"), "{command}: {free}");
    }
    for grants in [bob, ""] {
        let reply = run(&mut w, "'nosuch', 'a'", grants);
        let text = "-ERR Invalid command passed to redis.acl_check_cmd() script: ";
        assert!(reply.starts_with(text), "{reply}");
    }
    let asked = w.nodes.get_mut(&2).unwrap().shard.poll_refusal();
    assert_eq!(asked, None, "nothing was refused");
}

/// A script may go on after an error of a command, but not after too much work.
#[test]
fn a_script_whose_commands_do_too_much_changes_nothing() {
    fn slow() -> Duration {
        thread_local! {
            static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
        }
        LOOKS.set(LOOKS.get() + 1);
        Duration::from_millis(250 * LOOKS.get())
    }
    let mut w = world(21);
    let members: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    for some in members.chunks(2_000) {
        let line = format!("SADD a {}", some.join(" "));
        w.ask(1, "a", hashes::of(&line));
    }
    let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
    shard.cx.budgets.set_clock(slow);
    let body = "redis.call('SET', KEYS[1], 'changed')
        for n = 1, 100 do redis.pcall('SINTERCARD', 2, KEYS[2], KEYS[2]) end
        return 'done'";
    let b = twin_of("a");
    let token = w.submit_work(1, script(body, &[&b, "a"], &[]));
    assert_eq!(w.outcome(token), Outcome::Failed(Failure::TooMuchWork));
    assert_eq!(w.get(1, &b), Outcome::Nil);
}
