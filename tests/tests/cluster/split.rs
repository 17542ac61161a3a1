//! Real processes: members that are cut off are recovered although the others live, and the cut
//! heals.

use doyen::testkit::{Cluster, PATIENCE};
use doyen_tests::process::http;
use doyen_tests::resp::{Client, Reply};
use doyen_tests::runbook::Page;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// The member that is cut off.
const CUT_OFF: usize = 2;
/// How soon both halves know of each other after the cut has healed.
const NOTICED: Duration = Duration::from_secs(10);

struct Story {
    runtime: Runtime,
    cluster: Cluster,
}

impl Story {
    fn of(nodes: usize, partitions: u32) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let builder = Cluster::builder().binary(BINARY);
        let builder = builder.option("partitions", partitions);
        let cluster = runtime.block_on(builder.start(nodes)).expect("nodes");
        Self { runtime, cluster }
    }

    /// Types that all other nodes are dead, as often as the node says that it is not sure yet.
    fn recovers(&self, node: usize, dead: &[usize], gone: &str) {
        let names: Vec<String> = dead.iter().map(|n| self.cluster.name(*n).into()).collect();
        let mut recover = vec!["recover", "--yes", "--gone", gone, "--assert-dead"];
        recover.extend(names.iter().map(String::as_str));
        self.eventually(PATIENCE, "it has no majority", |s| {
            s.says(node, &["status"]).contains("of the voters")
                || s.asks(node, "/readyz").contains(" voters")
        });
        let said = self.says(node, &recover);
        let once: BTreeSet<usize> = dead.iter().copied().collect();
        let once: Vec<&str> = once.iter().map(|n| self.cluster.name(*n)).collect();
        let continues = format!("continuing without {}\n", once.join(", "));
        assert!(said.starts_with(&continues), "{said}");
    }

    /// Starts a node again, which joins the half that serves.
    fn restarts(&mut self, node: usize) {
        let Self { runtime, cluster } = self;
        cluster.kill(node);
        runtime.block_on(cluster.start(node)).expect("it joins");
    }

    /// These nodes, the older one first. Nodes that start at once may join in another order.
    fn by_age(&self, nodes: [usize; 2]) -> [usize; 2] {
        let status = self.says(nodes[0], &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let members = status["members"].as_array().expect("members");
        let age = |node: usize| {
            let member = members
                .iter()
                .find(|m| m["name"] == self.cluster.name(node));
            member.and_then(|m| m["age"].as_u64()).expect("a member")
        };
        let [one, other] = nodes;
        if age(one) < age(other) {
            [one, other]
        } else {
            [other, one]
        }
    }

    fn set(&self, node: usize, value: &str) -> Reply {
        let at = self.cluster.resp(node).expect("it runs");
        let mut client = Client::connect(at, PATIENCE).expect("it answers");
        client
            .command(&[b"SET", b"a", value.as_bytes()])
            .expect("a reply")
    }

    fn get(&self, node: usize) -> Reply {
        let at = self.cluster.resp(node).expect("it runs");
        let mut client = Client::connect(at, PATIENCE).expect("it answers");
        client.command(&[b"GET", b"a"]).expect("a reply")
    }

    fn asks(&self, node: usize, path: &str) -> String {
        let at = self.cluster.http(node).expect("it runs");
        http(at, path, None).unwrap_or_else(|why| why.to_string())
    }

    fn eventually(&self, within: Duration, what: &str, holds: impl Fn(&Self) -> bool) {
        let until = Instant::now() + within;
        while !holds(self) {
            assert!(Instant::now() < until, "not within {within:?}: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Types a command at a node.
    fn types(&self, node: usize, args: &[&str]) -> Output {
        let at = self.cluster.http(node).expect("it runs").to_string();
        Command::new(BINARY)
            .args(args)
            .args(["--http", &at])
            .env("DOYEN_SECRET_FILE", self.cluster.secret_file())
            .output()
            .expect("it runs")
    }

    fn says(&self, node: usize, args: &[&str]) -> String {
        let output = self.types(node, args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

/// Both halves were ready and served for ever, with different answers to one key, without an alert.
#[test]
fn a_half_that_was_recovered_while_the_others_live_stops_when_they_meet() {
    let mut story = Story::of(4, 16);
    assert_eq!(story.set(0, "before"), ok());
    story.cluster.isolate(&BTreeSet::from([CUT_OFF]));

    // What it says first is that it is cut off, and what programs read has nothing to type.
    story.eventually(PATIENCE, "it says that it is cut off", |s| {
        s.says(CUT_OFF, &["status"])
            .contains("probably the one that is cut off")
    });
    let status = story.says(CUT_OFF, &["status"]);
    let ready = story.asks(CUT_OFF, "/readyz");
    assert!(
        status.find("Do nothing here") < status.find("doyen recover")
            && status.contains("doyen recover"),
        "{status}"
    );
    assert!(
        ready.contains("503") && ready.contains("1 of 4 voters") && !ready.contains("doyen "),
        "{ready}"
    );
    story.eventually(PATIENCE, "the others go on", |s| s.set(0, "kept") == ok());

    // The operator does the wrong thing all the same, and has to count for it.
    let others = (0..4).filter(|node| *node != CUT_OFF);
    let others: Vec<String> = others.map(|n| story.cluster.name(n).to_owned()).collect();
    let mut recover = vec!["recover", "--yes", "--assert-dead"];
    recover.extend(others.iter().map(String::as_str));
    let uncounted = story.types(CUT_OFF, &recover);
    assert!(!uncounted.status.success(), "{uncounted:?}");
    let miscounted = story.types(CUT_OFF, &[&recover[..], &["--gone", "2/4"]].concat());
    let why = String::from_utf8_lossy(&miscounted.stderr).into_owned();
    assert!(!miscounted.status.success() && why.contains("3/4"), "{why}");
    story.says(CUT_OFF, &[&recover[..], &["--gone", "3/4"]].concat());
    story.eventually(PATIENCE, "both halves serve", |s| {
        s.set(CUT_OFF, "lost") == ok() && s.set(0, "kept") == ok()
    });

    story.cluster.heal();
    story.eventually(
        NOTICED,
        "the recovered half refuses",
        |s| matches!(s.set(CUT_OFF, "more"), Reply::Error(why) if why.starts_with("CLUSTERDOWN")),
    );
    let read = story.get(CUT_OFF);
    assert!(
        matches!(&read, Reply::Error(why) if why.contains("which was recovered, serves nothing")),
        "{read:?}"
    );
    for node in [0, 1, 3] {
        assert_eq!(story.get(node), Reply::Bulk(b"kept".to_vec()), "{node}");
        assert_eq!(story.set(node, "kept"), ok(), "{node}");
        assert!(story.asks(node, "/readyz").contains("true"), "{node}");
    }
    let ready = story.asks(CUT_OFF, "/readyz");
    assert!(
        ready.contains("503") && ready.contains("the cluster is split"),
        "{ready}"
    );
    let status = story.says(CUT_OFF, &["status"]);
    assert!(
        status.contains("NOT READY: the cluster is split") && status.contains("--seed"),
        "{status}"
    );
    story.eventually(NOTICED, "the half that serves knows, too", |s| {
        [0, 1, 3].iter().all(|node| {
            s.says(*node, &["status"])
                .contains("SPLIT: the cluster is split")
        })
    });
    // What the page says to type, at a node of each half.
    let page = Page::read();
    let typed = page.blocks("DoyenSplit", "sh").concat();
    assert!(typed.lines().count() >= 2, "{typed}");
    for line in typed.lines() {
        let args: Vec<&str> = line.split(' ').skip(1).collect();
        for node in [0, CUT_OFF] {
            assert!(
                story.says(node, &args).contains("split"),
                "{line} at {node}"
            );
        }
    }
    let events = story.says(CUT_OFF, &["events"]);
    assert!(events.contains("was asserted dead"), "{events}");
    story.eventually(NOTICED, "an event at the half that serves", |s| {
        s.says(0, &["events"]).contains("This half serves on")
    });
    let kept = story.types(CUT_OFF, &["split", "keep"]);
    assert!(!kept.status.success(), "the other half serves: {kept:?}");

    // What the status says: the node is started again, and joins.
    story.restarts(CUT_OFF);
    story.eventually(PATIENCE, "one cluster", |s| {
        s.get(CUT_OFF) == Reply::Bulk(b"kept".to_vec())
            && s.asks(CUT_OFF, "/readyz").contains("true")
    });
}

/// Both halves were recovered: both stop, an operator keeps one, and the other one joins it.
#[test]
fn two_recovered_halves_stop_and_the_one_that_is_kept_serves_again() {
    let mut story = Story::of(3, 16);
    assert_eq!(story.set(0, "before"), ok());
    story.cluster.isolate(&BTreeSet::from([0]));
    story.cluster.isolate(&BTreeSet::from([2]));
    story.cluster.kill(1);
    story.recovers(0, &[1, 2], "2/3");
    story.recovers(2, &[0, 1], "2/3");
    story.eventually(PATIENCE, "both serve", |s| {
        s.set(0, "left") == ok() && s.set(2, "right") == ok()
    });

    story.cluster.heal();
    let stopped =
        |reply: Reply| matches!(reply, Reply::Error(why) if why.starts_with("CLUSTERDOWN"));
    for node in [0, 2] {
        story.eventually(NOTICED, "it stops", |s| {
            stopped(s.set(node, "more")) && stopped(s.get(node))
        });
        story.eventually(NOTICED, "it knows that the other one stopped, too", |s| {
            s.says(node, &["status"]).contains("doyen split keep")
        });
        let shown = story.says(node, &["split", "show"]);
        assert!(shown.contains("default/"), "{shown}");
    }

    // What the half that is given up acknowledged is saved, and can be read.
    let file = tempfile::tempdir().expect("a directory");
    let path = file.path().join("right.jsonl");
    let name = path.display().to_string();
    story.says(2, &["split", "export", &name]);
    let saved = std::fs::read_to_string(&path).expect("a file");
    let pair = r#""key":"a","kind":"string","value":"right""#;
    assert!(saved.contains(pair), "{saved}");

    story.says(0, &["split", "keep"]);
    story.eventually(NOTICED, "the half that is kept serves", |s| {
        s.set(0, "kept") == ok() && s.get(0) == Reply::Bulk(b"kept".to_vec())
    });
    assert!(stopped(story.get(2)), "the other one does not");
    story.eventually(NOTICED, "the other half knows", |s| {
        s.says(2, &["status"])
            .contains("The others went on without this half")
    });
    let both = story.types(2, &["split", "keep"]);
    let why = String::from_utf8_lossy(&both.stderr).into_owned();
    assert!(
        !both.status.success() && why.contains("serve"),
        "one half is kept: {why}"
    );
    for node in [2, 1] {
        story.restarts(node);
        story.eventually(PATIENCE, "it joined the half that was kept", |s| {
            s.get(node) == Reply::Bulk(b"kept".to_vec())
        });
    }
    story.eventually(PATIENCE, "one cluster", |s| {
        let status = s.says(0, &["status"]);
        status.contains(s.cluster.name(1)) && status.contains(s.cluster.name(2))
    });
}

/// What the half that gives way acknowledged was in its memory, and no command showed it.
#[test]
fn what_a_stopped_half_acknowledged_is_listed_by_partition_and_exported() {
    let story = Story::of(4, 64);
    let through = |story: &Story, node: usize, words: &[&[u8]]| {
        let at = story.cluster.resp(node).expect("it runs");
        let mut client = Client::connect(at, PATIENCE).expect("it answers");
        client.command(words).expect("a reply")
    };
    for n in 0..300 {
        let key = format!("before:{n}");
        assert_eq!(
            through(&story, n % 4, &[b"SET", key.as_bytes(), b"x"]),
            ok()
        );
    }
    // Copies hear that a write is committed a moment after it was answered. What they have not
    // heard counts as acknowledged by this half.
    for n in 0..300 {
        let key = format!("before:{n}");
        assert_eq!(
            through(&story, n % 4, &[b"GET", key.as_bytes()]),
            Reply::Bulk(b"x".to_vec())
        );
    }
    // The older two of four have the casting vote and go on.
    story.cluster.isolate(&BTreeSet::from([2, 3]));
    story.recovers(2, &[0, 1], "2/4");
    story.eventually(PATIENCE, "it serves", |s| s.set(2, "lost") == ok());
    let unsure = story.types(0, &["split", "show"]);
    let why = String::from_utf8_lossy(&unsure.stderr).into_owned();
    assert!(
        !unsure.status.success() && why.contains("not recovered"),
        "{why}"
    );

    let mut written = BTreeMap::from([("a".to_owned(), r#""lost""#.to_owned())]);
    for n in 0..40 {
        let (key, value) = (format!("after:{n}"), format!("v{n}"));
        let node = 2 + n % 2;
        let set: [&[u8]; 3] = [b"SET", key.as_bytes(), value.as_bytes()];
        story.eventually(PATIENCE, "every partition serves", |s| {
            through(s, node, &set) == ok()
        });
        written.insert(key, format!("\"{value}\""));
    }
    // All partitions have opened once nothing more is added.
    let changes = |story: &Story| {
        let listed = story.says(3, &["split", "show", "--json"]);
        let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).expect("JSON");
        let changes = listed.iter().filter_map(|one| one["changes"].as_u64());
        (changes.sum::<u64>(), listed)
    };
    story.eventually(PATIENCE, "all partitions serve", |s| {
        let before = changes(s).0;
        let table = s.says(2, &["table", "--json"]);
        !table.contains(r#""assigned""#) && before >= 41 && changes(s).0 == before
    });
    let counted = changes(&story).0;
    let bytes: &[u8] = b"\xFF\x00";
    through(&story, 2, &[b"SET", b"binary", bytes, b"PX", b"3600000"]);
    written.insert("binary".into(), r#"{"base64":"/wA="}"#.into());
    through(&story, 2, &[b"HSET", b"hash", b"field", b"in a hash"]);
    written.insert("hash".into(), r#""in a hash""#.into());
    let at = story.cluster.resp(2).expect("it runs");
    let mut seventh = Client::connect(at, PATIENCE).expect("it answers");
    for words in [
        &[b"SELECT".as_slice(), b"7"][..],
        &[b"SET", b"seventh", b"x"],
    ] {
        assert_eq!(seventh.command(words).expect("a reply"), ok());
    }
    written.insert("seventh".into(), r#""x""#.into());
    through(&story, 3, &[b"SET", b"deleted", b"x"]);
    through(&story, 3, &[b"DEL", b"deleted"]);

    story.cluster.heal();
    for node in [2, 3] {
        story.eventually(
            NOTICED,
            "the recovered half stops",
            |s| matches!(s.get(node), Reply::Error(why) if why.starts_with("CLUSTERDOWN")),
        );
    }
    let (sum, listed) = changes(&story);
    assert_eq!(sum, counted + 5, "{listed:?}");
    let dated = |one: &serde_json::Value| {
        let (first, last) = (&one["first_seconds_ago"], &one["last_seconds_ago"]);
        last.is_u64() && first.as_u64() >= last.as_u64()
    };
    let changed = listed.iter().filter(|one| one["changes"] != 0);
    let undated: Vec<_> = changed.filter(|one| !dated(one)).collect();
    assert!(undated.is_empty(), "{undated:?}");
    let alone = listed.iter().filter(|one| one["alone"] == true);
    let alone: BTreeSet<u64> = alone.filter_map(|one| one["partition"].as_u64()).collect();
    assert!(!alone.is_empty() && alone.len() < 32, "{listed:?}");

    // It serves nothing, and says nothing else.
    let status = story.says(2, &["status"]);
    let counts = status.lines().find(|line| line.contains(" default "));
    let served = counts.is_some_and(|line| line.trim_end().ends_with(" 64"));
    assert!(served && !status.contains("Start it again"), "{status}");
    let maps = story.types(2, &["map", "list"]);
    let why = String::from_utf8_lossy(&maps.stderr).into_owned();
    assert!(
        !maps.status.success() && why.contains("the cluster is split"),
        "{why}"
    );

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("half.jsonl");
    let file = path.display().to_string();
    let said = story.says(2, &["split", "export", &file]);
    assert!(said.contains("deletions are not in it"), "{said}");
    let again = story.types(2, &["split", "export", &file]);
    assert!(!again.status.success(), "it replaces no file: {again:?}");
    let mode = std::fs::metadata(&path).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600, "it has values");
    let (mut befores, mut late) = (0, 0);
    for line in std::fs::read_to_string(&path).expect("a file").lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let key = line["key"].as_str().expect("a text").to_owned();
        if let Some(value) = written.remove(&key) {
            assert_eq!(line["value"].to_string(), value, "{line}");
            assert_eq!(line["ttl_ms"].is_u64(), key == "binary", "{line}");
            assert_eq!(line["field"] == "field", key == "hash", "{line}");
            let database = if key == "seventh" { 7 } else { 0 };
            assert_eq!(line["database"], database, "{line}");
            continue;
        }
        // What was written before is exported only where the other half has no copy.
        let partition = line["partition"].as_u64().expect("a number");
        assert!(key.starts_with("before:"), "{line}");
        befores += usize::from(alone.contains(&partition));
        late += usize::from(!alone.contains(&partition));
    }
    assert!(written.is_empty() && befores > 0, "{written:?} {befores}");
    assert!(late < 30, "{late} of 300 were written before");
}

/// The second recovery of a half made it forget what it had acknowledged since the first one.
#[test]
fn a_half_that_was_recovered_twice_exports_what_it_wrote_since_the_first_time() {
    let mut story = Story::of(4, 16);
    assert_eq!(story.set(0, "before"), ok());
    story.cluster.isolate(&BTreeSet::from([2, 3]));
    story.recovers(2, &[0, 1], "2/4");
    // The older one of two has the casting vote, so the other one does not go on by itself.
    let [older, younger] = story.by_age([2, 3]);
    let writes = |story: &Story, prefix: &str| {
        for n in 0..40 {
            let key = format!("{prefix}:{n}");
            story.eventually(PATIENCE, "it serves", |s| {
                let at = s.cluster.resp(younger).expect("it runs");
                let mut client = Client::connect(at, PATIENCE).expect("it answers");
                client.command(&[b"SET", key.as_bytes(), b"x"]).ok() == Some(ok())
            });
        }
    };
    writes(&story, "between");
    story.says(younger, &["wait", "safe"]);
    story.cluster.kill(older);
    story.recovers(younger, &[older, older], "1/2");
    writes(&story, "after");

    story.cluster.heal();
    story.eventually(
        NOTICED,
        "the recovered half stops",
        |s| matches!(s.get(younger), Reply::Error(why) if why.starts_with("CLUSTERDOWN")),
    );
    let shown = story.says(younger, &["split", "show"]);
    assert!(shown.starts_with("since recovery 1 of 2"), "{shown}");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("half.jsonl");
    story.says(younger, &["split", "export", &path.display().to_string()]);
    let saved = std::fs::read_to_string(&path).expect("a file");
    for prefix in ["between", "after"] {
        let saved = |n: &i32| saved.contains(&format!(r#""key":"{prefix}:{n}""#));
        assert_eq!((0..40).filter(saved).count(), 40, "{prefix}");
    }
}
