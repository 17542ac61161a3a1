//! The plain port of a cluster answers as one Redis server: of any keys, for all members, and with
//! one partition also for transactions and scripts.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn simple(text: &str) -> Reply {
    Reply::Simple(text.to_owned())
}

fn list(texts: &[&str]) -> Reply {
    Reply::Array(texts.iter().map(|text| bulk(text)).collect())
}

fn tried(client: &mut Client, words: &[&str]) -> Option<Reply> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    client.command(&words).ok()
}

fn ask(client: &mut Client, line: &str) -> Reply {
    let words: Vec<&str> = line.split(' ').collect();
    tried(client, &words).expect("a reply")
}

/// What needs several keys in Redis, with keys that have no tags.
fn uses_any_keys(cluster: &Cluster, name: &str, round: &str) {
    let (mut client, mut other) = (cluster.client(name), cluster.client(name));
    let key = |n: usize| format!("{round}:key:{n}");
    let keys: Vec<String> = (0..4).map(key).collect();
    let [a, b, c, d] = &keys[..] else {
        unreachable!()
    };
    let set_all = format!("MSETNX {a} 1 {b} 2 {c} 3");
    assert_eq!(ask(&mut client, &set_all), Reply::Int(1));
    assert_eq!(
        ask(&mut client, &format!("MSETNX {d} 1 {a} 2")),
        Reply::Int(0)
    );
    assert_eq!(
        ask(&mut client, &format!("RENAMENX {a} {b}")),
        Reply::Int(0)
    );
    assert_eq!(ask(&mut client, &format!("RENAME {a} {d}")), simple("OK"));
    // A watched key of any name, and a change of it.
    for (changes, executed) in [
        (false, Reply::Array(vec![simple("OK"), Reply::Int(4)])),
        // Null: this client reads it as no replies.
        (true, Reply::Array(Vec::new())),
    ] {
        ask(&mut client, &format!("WATCH {d} {b}"));
        if changes {
            ask(&mut other, &format!("SET {b} 7"));
        }
        for line in [
            "MULTI".to_owned(),
            format!("SET {a} 5"),
            format!("INCR {c}"),
        ] {
            ask(&mut client, &line);
        }
        assert_eq!(ask(&mut client, "EXEC"), executed, "{changes}");
    }
    // A script without KEYS, and a lock of several keys.
    let script = format!("return{{redis.call('GET','{a}'),redis.call('GET','{d}')}}");
    assert_eq!(
        tried(&mut client, &["EVAL", &script, "0"]),
        Some(list(&["5", "1"]))
    );
    let lock = "for _,k in ipairs(KEYS) do if redis.call('EXISTS',k)==1 then return 0 end end \
                for _,k in ipairs(KEYS) do redis.call('SET',k,ARGV[1],'PX',ARGV[2]) end return #KEYS";
    let names = [format!("{round}:lock:x"), format!("{round}:lock:y")];
    let words = |token: &'static str| ["EVAL", lock, "2", &names[0], &names[1], token, "60000"];
    assert_eq!(tried(&mut client, &words("mine")), Some(Reply::Int(2)));
    assert_eq!(tried(&mut other, &words("theirs")), Some(Reply::Int(0)));
    let held = ask(&mut other, &format!("MGET {} {}", names[0], names[1]));
    assert_eq!(held, list(&["mine", "mine"]));
    lists_keys(&mut client, round);
}

/// A script finds keys by a pattern, and what it writes itself. Replies are those of Redis.
fn lists_keys(client: &mut Client, round: &str) {
    let pattern = format!("{round}:lock:*");
    let sorted = "local k=redis.call('KEYS',ARGV[1]) table.sort(k) return k";
    let names = [format!("{round}:lock:x"), format!("{round}:lock:y")];
    let mut run = |body: &str, key: &str| tried(client, &["EVAL", body, "1", key, &pattern]);
    let found = run(sorted, &names[0]);
    assert_eq!(found, Some(list(&names.each_ref().map(|name| &**name))));
    let scans = "local all,c={},'0' repeat local p=redis.call('SCAN',c,'match',ARGV[1],'COUNT',2) \
                 c=p[1] for _,k in ipairs(p[2]) do all[#all+1]=k end until c=='0' \
                 table.sort(all) return all";
    assert_eq!(run(scans, &names[0]), found);
    let sets = "return #redis.call('SCAN','0','TYPE','set','MATCH',ARGV[1],'COUNT',9999)[2]";
    assert_eq!(run(sets, &names[0]), Some(Reply::Int(0)));
    for (command, error) in [
        ("'SCAN','x'", "ERR invalid cursor"),
        ("'SCAN','0','COUNT','0'", "ERR syntax error"),
        ("'SCAN','0','COUNT'", "ERR syntax error"),
        (
            "'SCAN','0','COUNT','x'",
            "ERR value is not an integer or out of range",
        ),
        (
            "'KEYS'",
            "ERR Wrong number of args calling Redis command from script",
        ),
    ] {
        let body = format!("return redis.pcall({command}).err");
        assert_eq!(run(&body, &names[0]), Some(bulk(error)), "{command}");
    }
    // The reset of a framework.
    let reset = "for _,k in ipairs(redis.call('KEYS',ARGV[1])) do redis.call('DEL',k) end \
                 return #redis.call('KEYS',ARGV[1])";
    assert_eq!(run(reset, &names[0]), Some(Reply::Int(0)));
    let gone = tried(client, &["EXISTS", &names[0], &names[1]]);
    assert_eq!(gone, Some(Reply::Int(0)));
}

#[test]
fn three_nodes_with_the_preset_are_one_redis_server_that_survives_a_death() {
    let mut cluster = Cluster::new(BINARY);
    for name in ["n0", "n1", "n2"] {
        cluster.join_with(name, &["--preset", "one-server"]);
    }
    cluster.await_safe(3);
    for name in ["n0", "n1", "n2"] {
        uses_any_keys(&cluster, name, name);
    }
    let mut client = cluster.client("n1");
    assert_eq!(ask(&mut client, "SET before v"), simple("OK"));
    cluster.kill("n0");
    // The first write waits until another node leads.
    let began = Instant::now();
    assert_eq!(ask(&mut client, "SET after v"), simple("OK"));
    let took = began.elapsed();
    eprintln!("served again after {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(
        ask(&mut client, "MGET before n0:key:0 n2:key:3"),
        list(&["v", "5", "1"])
    );
    uses_any_keys(&cluster, "n2", "after");
}

/// Regression: the setting was that of one node until its process ended, and clients that had
/// subscribed before missed what came next.
#[test]
fn the_setting_of_messages_about_keys_holds_for_all_members_and_outlives_them() {
    let mut cluster = Cluster::new(BINARY);
    for name in ["n0", "n1", "n2"] {
        cluster.join_with(name, &[]);
    }
    cluster.await_safe(3);
    let events = |cluster: &Cluster, name: &str| {
        let line = "CONFIG GET notify-keyspace-events";
        match ask(&mut cluster.client(name), line) {
            Reply::Array(pair) => pair[1].clone(),
            other => panic!("{other:?}"),
        }
    };
    // A client of another node subscribes before.
    let mut before = cluster.client("n1");
    ask(&mut before, "SUBSCRIBE __keyevent@0__:expired");
    let mut client = cluster.client("n0");
    assert_eq!(
        ask(&mut client, "CONFIG SET notify-keyspace-events Ex"),
        simple("OK")
    );
    assert_eq!(ask(&mut client, "SET first v PX 1"), simple("OK"));
    let told = |key: &str| list(&["message", "__keyevent@0__:expired", key]);
    assert_eq!(before.reply().expect("a message"), told("first"));
    for name in ["n0", "n1", "n2"] {
        cluster.eventually("every node has it", |cluster| {
            events(cluster, name) == bulk("xE")
        });
    }
    // Every process of then is replaced.
    for (gone, next) in [("n0", "n3"), ("n1", "n4"), ("n2", "n5")] {
        cluster.join_with(next, &[]);
        cluster.await_safe(4);
        cluster.kill(gone);
        cluster.await_safe(3);
        assert_eq!(events(&cluster, next), bulk("xE"), "{next}");
    }
    let mut after = cluster.client("n5");
    ask(&mut after, "SUBSCRIBE __keyevent@0__:expired");
    let mut client = cluster.client("n3");
    ask(&mut client, "SET last v PX 1");
    assert_eq!(after.reply().expect("a message"), told("last"));
}

/// The nodes die one after the other while keys are renamed: each key has its value under one of
/// its names, or for a moment under both, and never under none.
#[test]
fn a_renamed_key_is_never_lost_when_a_node_dies() {
    const KEYS: usize = 60;
    let mut cluster = Cluster::new(BINARY);
    for name in ["n0", "n1", "n2"] {
        cluster.join_with(name, &[]);
    }
    cluster.await_safe(3);
    let mut client = cluster.client("n2");
    for n in 0..KEYS {
        let line = format!("HSET a:{n} f {n} g {n}");
        assert_eq!(ask(&mut client, &line), Reply::Int(2));
    }
    let mut names = vec!["a".to_owned(); KEYS];
    for (round, (to, dies)) in [("b", "n0"), ("c", "n1")].into_iter().enumerate() {
        let servers: Vec<String> = cluster.nodes.keys().cloned().collect();
        let mut clients: Vec<Client> = servers.iter().map(|name| cluster.client(name)).collect();
        let mut done = [false; KEYS];
        for n in 0..KEYS {
            if n == KEYS / 2 {
                cluster.kill(dies);
            }
            let at = n % clients.len();
            let words = ["RENAME", &format!("{}:{n}", names[n]), &format!("{to}:{n}")];
            done[n] = tried(&mut clients[at], &words) == Some(simple("OK"));
        }
        cluster.await_safe(cluster.nodes.len());
        let mut client = cluster.client("n2");
        for n in 0..KEYS {
            let values =
                [&*names[n], to].map(|name| ask(&mut client, &format!("HGET {name}:{n} f")));
            let own = bulk(&n.to_string());
            if done[n] {
                assert_eq!(values, [Reply::Nil, own], "round {round}, key {n}");
            } else {
                assert!(values.contains(&own), "round {round}, key {n}: {values:?}");
                // The same command again ends it.
                if values[0] == own {
                    let line = format!("RENAME {}:{n} {to}:{n}", names[n]);
                    assert_eq!(ask(&mut client, &line), simple("OK"));
                }
            }
            names[n] = to.to_owned();
        }
        if round == 0 {
            cluster.join_with("n3", &[]);
            cluster.await_safe(3);
        }
    }
}
