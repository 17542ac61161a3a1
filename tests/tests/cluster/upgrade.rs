//! A loaded cluster is upgraded from the program before, and back: `just upgrade` builds that
//! program, and runs these.
//!
//! An operation has failed if its client was answered with an error, or was not answered at all. A
//! leaver closes the connections of its Redis clients between two operations: a client that then
//! connects to another node and sends the same again has failed nothing.

use doyen_placement::level::LEVELS;
use doyen_tests::cluster::Cluster;
use doyen_tests::load::Load;
use doyen_tests::native;
use doyen_tests::resp::Reply;
use std::path::PathBuf;

const PRESENT: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const NAMES: [&str; 3] = ["n0", "n1", "n2"];

fn previous() -> PathBuf {
    std::env::var_os("DOYEN_PREVIOUS")
        .expect("DOYEN_PREVIOUS names the program of the version before: run `just upgrade`")
        .into()
}

/// Three nodes of the program before, with clients of both kinds.
struct Upgrade {
    cluster: Cluster,
    redis: Load,
    native: native::Load,
}

impl Upgrade {
    fn begin() -> Self {
        let previous = previous();
        let cluster = Cluster::of(previous.to_str().expect("a path"), NAMES.len());
        let redis = Load::start(cluster.resp_addresses(), 4);
        let native = native::Load::start(
            cluster.nodes.values().map(|p| p.ready.data).collect(),
            cluster.secret_file(),
            4,
        );
        let upgrade = Self {
            cluster,
            redis,
            native,
        };
        upgrade.progress();
        upgrade
    }

    /// Waits until both loads have got on.
    fn progress(&self) {
        let (redis, native) = (self.redis.acknowledged(), self.native.answered());
        self.cluster.eventually("operations go on", |_| {
            self.redis.acknowledged() >= redis + 200 && self.native.answered() >= native + 200
        });
    }

    /// Replaces one node after the other, in order: SIGTERM, then the same name with this program.
    /// `each` looks at the others once a node has left.
    fn roll(
        &mut self,
        binary: impl Into<PathBuf>,
        options: &[&str],
        each: impl Fn(&Cluster, &str),
    ) {
        self.cluster.runs(binary.into());
        for name in NAMES {
            self.progress();
            let others = self.cluster.nodes.iter().filter(|(n, _)| *n != name);
            let others = others.map(|(_, p)| p.ready.resp).collect();
            self.redis.redirect(others);
            let status = self.cluster.leave(name);
            assert!(status.success(), "{name} ended with {status}");
            each(&self.cluster, name);
            self.cluster.join_with(name, options);
            self.redis.redirect(self.cluster.resp_addresses());
            self.cluster.await_safe(NAMES.len());
        }
        self.progress();
    }

    /// Nothing has failed, and nothing is lost.
    fn end(self) -> Cluster {
        let (redis, native) = (self.redis.finish(), self.native.finish());
        assert!(redis.errors.is_empty(), "failed: {:?}", redis.errors);
        assert_eq!((redis.refused, redis.unknown), (0, 0));
        assert!(redis.stale.is_empty(), "stale: {:?}", redis.stale);
        for name in NAMES {
            let lost = redis.lost(&mut self.cluster.client(name));
            assert!(lost.is_empty(), "read through {name}: {lost:?}");
        }
        assert!(native.refused.is_empty(), "failed: {:?}", native.refused);
        assert_eq!(native.unknown, 0);
        let violations = native.violations();
        assert!(violations.is_empty(), "{violations:?}");
        println!(
            "{} writes and {} reads of Redis clients, {} operations of native clients: 0 failed, \
             0 lost",
            redis.acknowledged, redis.reads, native.answered
        );
        self.cluster
    }
}

fn is_at_level(cluster: &Cluster, level: u16) -> bool {
    cluster.nodes.keys().all(|name| {
        let status = cluster.status(name).unwrap_or_default();
        status["level"].as_u64() == Some(level.into())
    })
}

/// The replies that a node gives to these commands, on one connection.
fn replies(cluster: &Cluster, name: &str, lines: &[&str]) -> Vec<Reply> {
    let mut client = cluster.client(name);
    let reply = |line: &&str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        client.command(&words).expect("a reply")
    };
    lines.iter().map(reply).collect()
}

/// Keys in a database that is not the first: many, with one tag.
fn lines_in_database_1(verb: &str) -> Vec<String> {
    let line = |n| match verb {
        "SET" => format!("SET {{t}}{n} {n}"),
        verb => format!("{verb} {{t}}{n}"),
    };
    let select = std::iter::once("SELECT 1".to_owned());
    select.chain((0..50).map(line)).collect()
}

fn fills_database_1(cluster: &Cluster) {
    let lines = lines_in_database_1("SET");
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    for reply in replies(cluster, "n0", &lines) {
        assert_eq!(reply, Reply::Simple("OK".into()));
    }
}

/// A keyspace of the program before finds its keys where they were.
fn keeps_databases(cluster: &Cluster) {
    let lines = lines_in_database_1("GET");
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    for name in NAMES {
        let found = replies(cluster, name, &lines);
        let values = (0..50).map(|n: u32| Reply::Bulk(n.to_string().into_bytes()));
        assert!(found[1..].iter().cloned().eq(values), "{name}: {found:?}");
    }
}

/// All members run one program, and one of them is held back.
#[test]
fn the_status_names_the_option_that_holds_the_level() {
    let mut cluster = Cluster::new(PRESENT);
    cluster.join_with("n0", &["--level-max", &LEVELS.0.to_string()]);
    cluster.join("n1");
    cluster.await_safe(2);
    assert!(is_at_level(&cluster, LEVELS.0));
    let (_, said) = cluster.asks("n1", &["status"]);
    assert!(said.contains("started with --level-max"), "{said}");
}

#[test]
#[ignore = "needs the program before: just upgrade"]
fn an_upgrade_under_load_fails_nothing_and_the_level_rises_with_the_last_node() {
    let mut upgrade = Upgrade::begin();
    fills_database_1(&upgrade.cluster);
    upgrade.roll(PRESENT, &[], |cluster, gone| match gone {
        // Without the last node of the program before, nothing holds the level.
        "n2" => {}
        _ => assert!(is_at_level(cluster, LEVELS.0)),
    });
    let risen = |c: &Cluster| is_at_level(c, LEVELS.1);
    upgrade.cluster.eventually("the level rises", risen);
    keeps_databases(&upgrade.cluster);
    upgrade.progress();
    let mut cluster = upgrade.end();
    let events = cluster.node("n0").http("/events").expect("it answers");
    assert!(events.contains("\"level\""), "{events}");
    // From now on there is no way back.
    cluster.runs(previous());
    cluster.join("n3");
    let why = format!(
        "n3 speaks no more than level {}; update its program, or start it without --level-max",
        LEVELS.0
    );
    cluster.eventually("n3 says why it stays outside", |c| {
        c.node("n3").log().contains(&why)
    });
    let refused = cluster.nodes.remove("n3").expect("it was started");
    assert!(!refused.wait().success());
}

#[test]
#[ignore = "needs the program before: just upgrade"]
fn an_upgrade_that_is_held_is_taken_back_under_load_and_fails_nothing() {
    let mut upgrade = Upgrade::begin();
    let held = LEVELS.0.to_string();
    upgrade.roll(PRESENT, &["--level-max", &held], |_, _| {});
    assert!(is_at_level(&upgrade.cluster, LEVELS.0));
    upgrade.roll(previous(), &[], |cluster, _| {
        assert!(is_at_level(cluster, LEVELS.0));
    });
    assert!(is_at_level(&upgrade.cluster, LEVELS.0));
    upgrade.end();
}
