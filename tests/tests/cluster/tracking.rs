//! Clients that keep values (`CLIENT TRACKING`), over several nodes: they hear of changes that
//! other nodes make, and keep no stale value when the primary of a key dies.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const PATIENCE: Duration = Duration::from_secs(60);
/// Keys, which are in several partitions.
const KEYS: usize = 24;

/// A client that keeps what it has read until it has to forget it.
struct Caching {
    client: Client,
    values: BTreeMap<String, Reply>,
    /// The keys that it had to forget, one by one.
    told: BTreeSet<String>,
}

impl Caching {
    fn connect(at: SocketAddr, tracking: &str) -> Self {
        let client = Client::connect(at, PATIENCE).expect("the node takes clients");
        let mut caching = Self {
            client,
            values: BTreeMap::new(),
            told: BTreeSet::new(),
        };
        caching.ask("HELLO 3");
        assert_eq!(caching.ask(tracking), ok(), "{tracking}");
        caching
    }

    /// The next reply, after the messages before it.
    fn reply(&mut self) -> Reply {
        loop {
            let reply = self.client.reply().expect("a reply");
            if !self.hears(&reply) {
                return reply;
            }
        }
    }

    fn ask(&mut self, line: &str) -> Reply {
        send(&mut self.client, line);
        self.reply()
    }

    fn read(&mut self, key: &str) -> Reply {
        let value = self.ask(&format!("GET {key}"));
        if !matches!(value, Reply::Error(_)) {
            self.values.insert(key.to_owned(), value.clone());
        }
        value
    }

    /// Whether this is an invalidation.
    fn hears(&mut self, reply: &Reply) -> bool {
        let Reply::Array(parts) = reply else {
            return false;
        };
        match &parts[..] {
            [head, keys] if *head == bulk("invalidate") => {
                match keys {
                    Reply::Array(keys) => {
                        let names = keys.iter().map(|key| match key {
                            Reply::Bulk(name) => String::from_utf8_lossy(name).into_owned(),
                            other => panic!("{other:?}"),
                        });
                        names.for_each(|name| {
                            self.values.remove(&name);
                            self.told.insert(name);
                        });
                    }
                    _ => self.values.clear(),
                }
                true
            }
            _ => false,
        }
    }

    /// Hears messages until none of its values is another one than this.
    fn settles(&mut self, newest: &Reply) {
        let began = Instant::now();
        while self.values.values().any(|value| value != newest) {
            assert!(began.elapsed() < PATIENCE, "{:?}", self.values);
            let reply = self.client.reply().expect("a message");
            assert!(self.hears(&reply), "{reply:?}");
        }
    }
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn send(client: &mut Client, line: &str) {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    client.send(&words).expect("the node takes commands");
}

fn ask(client: &mut Client, line: &str) -> Reply {
    send(client, line);
    client.reply().expect("a reply")
}

/// Repeats a command until it is executed.
fn insist(client: &mut Client, line: &str) {
    let began = Instant::now();
    loop {
        match ask(client, line) {
            Reply::Error(why) => assert!(began.elapsed() < PATIENCE, "{line}: {why}"),
            _ => return,
        }
    }
}

#[test]
fn a_client_is_told_of_what_other_nodes_change() {
    let cluster = Cluster::of(BINARY, 3);
    let at = cluster.resp_addresses();
    let mut writer = Client::connect(at[1], PATIENCE).expect("the node takes clients");
    for n in 0..KEYS {
        insist(&mut writer, &format!("SET a:{n} old"));
    }
    let (old, new) = (bulk("old"), bulk("new"));
    let mut client = Caching::connect(at[0], "CLIENT TRACKING ON");
    let mut chosen = Caching::connect(at[0], "CLIENT TRACKING ON OPTIN");
    let mut broadcast = Caching::connect(at[0], "CLIENT TRACKING ON BCAST PREFIX a:");
    let mut target = Client::connect(at[0], PATIENCE).expect("the node takes clients");
    let Reply::Int(id) = ask(&mut target, "CLIENT ID") else {
        panic!("no number")
    };
    ask(&mut target, "SUBSCRIBE __redis__:invalidate");
    let mut redirecting = Client::connect(at[0], PATIENCE).expect("the node takes clients");
    let tracking = format!("CLIENT TRACKING ON REDIRECT {id}");
    assert_eq!(ask(&mut redirecting, &tracking), ok());
    assert_eq!(ask(&mut redirecting, "GET a:0"), old);
    for n in 0..KEYS {
        let key = format!("a:{n}");
        assert_eq!(client.read(&key), old);
        assert_eq!(chosen.ask("CLIENT CACHING YES"), ok());
        assert_eq!(chosen.read(&key), old);
        assert_eq!(broadcast.read(&key), old);
    }
    for n in 0..KEYS {
        insist(&mut writer, &format!("SET a:{n} new"));
    }
    for caching in [&mut client, &mut chosen, &mut broadcast] {
        caching.settles(&new);
        assert!(caching.values.is_empty());
    }
    let channel = [bulk("message"), bulk("__redis__:invalidate")];
    let message = |keys: Reply| Reply::Array([&channel[..], &[keys]].concat());
    let told = target.reply().expect("a message");
    assert_eq!(told, message(Reply::Array(vec![bulk("a:0")])));
    // All keys are deleted.
    assert_eq!(ask(&mut redirecting, "GET a:0"), new);
    for caching in [&mut client, &mut broadcast] {
        assert_eq!(caching.read("a:0"), new);
    }
    insist(&mut writer, "FLUSHALL");
    for caching in [&mut client, &mut broadcast] {
        caching.settles(&Reply::Nil);
    }
    let told = target.reply().expect("a message");
    assert_eq!(told, message(Reply::Nil));
}

#[test]
fn a_client_hears_of_no_change_of_its_own_whichever_node_leads_the_keys() {
    let mut cluster = Cluster::of(BINARY, 3);
    let victim = cluster.coordinator();
    let others = cluster.nodes.iter().filter(|(name, _)| **name != victim);
    let at: Vec<SocketAddr> = others.map(|(_, node)| node.ready.resp).collect();
    let mut writer = Client::connect(at[1], PATIENCE).expect("the node takes clients");
    let mut client = Caching::connect(at[0], "CLIENT TRACKING ON NOLOOP");
    let mut other = Caching::connect(at[0], "CLIENT TRACKING ON NOLOOP");
    for round in 0..2 {
        // Nothing has changed these keys before.
        let keys: Vec<String> = (0..KEYS).map(|n| format!("r{round}:{n}")).collect();
        for caching in [&mut client, &mut other] {
            for key in &keys {
                while matches!(caching.read(key), Reply::Error(_)) {}
            }
        }
        for key in &keys {
            while client.ask(&format!("SET {key} own")) != ok() {}
        }
        other.settles(&bulk("own"));
        assert_eq!(client.ask("PING"), Reply::Simple("PONG".to_owned()));
        let told: Vec<_> = keys
            .iter()
            .filter(|key| client.told.contains(*key))
            .collect();
        assert!(told.is_empty(), "{told:?}");
        // It hears of what another client changes.
        client.values.clear();
        for key in &keys {
            while matches!(client.read(key), Reply::Error(_)) {}
            insist(&mut writer, &format!("SET {key} new"));
        }
        client.settles(&bulk("new"));
        if round == 0 {
            cluster.kill(&victim);
        }
    }
}

#[test]
fn no_stale_value_is_kept_when_the_primary_of_its_key_is_killed() {
    let mut cluster = Cluster::of(BINARY, 3);
    let victim = cluster.coordinator();
    let others = cluster.nodes.iter().filter(|(name, _)| **name != victim);
    let at: Vec<SocketAddr> = others.map(|(_, node)| node.ready.resp).collect();
    let mut writer = Client::connect(at[1], PATIENCE).expect("the node takes clients");
    for n in 0..KEYS {
        insist(&mut writer, &format!("SET a:{n} 0"));
    }
    let is_over = AtomicBool::new(false);
    let last = std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut client = Caching::connect(at[0], "CLIENT TRACKING ON");
            let mut kept = Caching::connect(at[0], "CLIENT TRACKING ON");
            // One client reads all the time, and the other one only what it has forgotten.
            while !is_over.load(Ordering::Relaxed) {
                for n in 0..KEYS {
                    let key = format!("a:{n}");
                    client.read(&key);
                    if !kept.values.contains_key(&key) {
                        kept.read(&key);
                    }
                }
            }
            (client, kept)
        });
        let mut last = 0;
        let mut rounds = |writer: &mut Client, count: usize| {
            for _ in 0..count {
                last += 1;
                (0..KEYS).for_each(|n| insist(writer, &format!("SET a:{n} {last}")));
            }
            last
        };
        rounds(&mut writer, 20);
        cluster.kill(&victim);
        let last = rounds(&mut writer, 20);
        is_over.store(true, Ordering::Relaxed);
        let (mut client, mut kept) = reader.join().expect("no panic");
        let newest = bulk(&last.to_string());
        client.settles(&newest);
        kept.settles(&newest);
        last
    });
    assert_eq!(last, 40);
}
