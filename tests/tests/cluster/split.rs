//! Real processes: a member that is cut off is recovered although the others live, and the cut
//! heals.

use doyen::testkit::{Cluster, PATIENCE};
use doyen_tests::process::http;
use doyen_tests::resp::{Client, Reply};
use doyen_tests::runbook::Page;
use std::collections::BTreeSet;
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
    let runtime = Runtime::new().expect("a runtime");
    let builder = Cluster::builder().binary(BINARY).option("partitions", 16);
    let cluster = runtime.block_on(builder.start(4)).expect("four nodes");
    let mut story = Story { runtime, cluster };
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
    let Story { runtime, cluster } = &mut story;
    cluster.kill(CUT_OFF);
    runtime.block_on(cluster.start(CUT_OFF)).expect("it joins");
    story.eventually(PATIENCE, "one cluster", |s| {
        s.get(CUT_OFF) == Reply::Bulk(b"kept".to_vec())
            && s.asks(CUT_OFF, "/readyz").contains("true")
    });
}
