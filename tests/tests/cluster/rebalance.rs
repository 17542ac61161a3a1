//! Moves that an operator decides on: rules of keyspaces, plans that are shown and confirmed,
//! balance that is switched off; on real processes.

use doyen_tests::cluster::Cluster;
use serde_json::Value;
use std::collections::BTreeSet;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// Runs `doyen ...` against this node. Returns whether it succeeded, and what it printed.
fn doyen(cluster: &Cluster, node: &str, words: &[&str]) -> (bool, String) {
    cluster.asks(node, words)
}

/// The members that lead, and the members that hold, partitions of a keyspace.
fn holders(cluster: &Cluster, keyspace: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (_, shown) = doyen(cluster, "n0", &["keyspace", "show", keyspace, "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let (mut primaries, mut all) = (BTreeSet::new(), BTreeSet::new());
    for partition in shown["partitions"].as_array().expect("partitions") {
        let primary = partition["primary"].as_str().expect("a name");
        primaries.insert(primary.to_owned());
        all.insert(primary.to_owned());
        all.extend(
            partition["backups"]
                .as_array()
                .expect("backups")
                .iter()
                .filter_map(|b| Some(b.as_str()?.to_owned())),
        );
    }
    (primaries, all)
}

#[test]
fn rules_are_obeyed_altered_and_reported_if_they_cannot_be_met() {
    let mut cluster = Cluster::new(BINARY);
    for (name, zone) in [("n0", "a"), ("n1", "b"), ("n2", "c")] {
        cluster.join_with(name, &["--zone", zone]);
    }
    cluster.await_safe(3);
    let create = [
        "keyspace",
        "create",
        "orders",
        "--partitions",
        "32",
        "--rule",
        "primary in zone=a",
        "--rule",
        "copies not in zone=c",
    ];
    let (made, said) = doyen(&cluster, "n1", &create);
    assert!(made, "{said}");
    cluster.eventually("every node has it", |c| {
        doyen(c, "n0", &["keyspace", "show", "orders"]).0
    });
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(
        holders(&cluster, "orders"),
        (names(&["n0"]), names(&["n0", "n1"]))
    );
    let (_, shown) = doyen(&cluster, "n0", &["keyspace", "show", "orders"]);
    assert!(
        shown.contains("rule: primary in zone=a\n") && !shown.contains("not met"),
        "{shown}"
    );

    let (altered, said) = doyen(
        &cluster,
        "n0",
        &["keyspace", "alter", "orders", "--rule", "primary in zone=c"],
    );
    assert!(altered, "{said}");
    cluster.eventually("zone c leads", |c| holders(c, "orders").0 == names(&["n2"]));

    let (altered, said) = doyen(
        &cluster,
        "n0",
        &["keyspace", "alter", "orders", "--rule", "primary in zone=d"],
    );
    assert!(altered, "{said}");
    cluster.eventually("the unmet rule is reported", |c| {
        let (_, shown) = doyen(c, "n0", &["keyspace", "show", "orders"]);
        shown.contains("not met by 32 of 32 partitions: no member that may hold data is in zone=d")
    });
    cluster.await_safe(3);

    let wrong = |words: &[&str], expected: &str| {
        let (done, said) = doyen(&cluster, "n0", words);
        assert!(
            !done && said.contains(expected) && said.trim_end().lines().count() == 1,
            "{words:?}: {said}"
        );
    };
    wrong(
        &[
            "keyspace",
            "alter",
            "orders",
            "--rule",
            "primary in colour=red",
        ],
        "is no label of members",
    );
    wrong(
        &["keyspace", "alter", "orders", "--rule", "be quick"],
        "is no rule",
    );
    wrong(
        &[
            "keyspace",
            "alter",
            "orders",
            "--rule",
            "primary in zone=a",
            "--rule",
            "copies not in zone=a",
        ],
        "contradict each other",
    );
    wrong(
        &[
            "keyspace",
            "alter",
            "orders",
            "--no-rules",
            "--rule",
            "primary in zone=a",
        ],
        "cannot be used with",
    );
    let (altered, said) = doyen(
        &cluster,
        "n0",
        &["keyspace", "alter", "orders", "--no-rules"],
    );
    assert!(altered, "{said}");
    cluster.eventually("there are no rules", |c| {
        !doyen(c, "n0", &["keyspace", "show", "orders"])
            .1
            .contains("rule:")
    });
}

#[test]
fn a_plan_is_applied_only_to_the_table_that_it_was_made_for() {
    let mut cluster = Cluster::of(BINARY, 3);
    let (done, said) = doyen(&cluster, "n1", &["rebalance", "manual"]);
    assert!(
        done && said.contains("for: repair, drain, place;"),
        "{said}"
    );
    cluster.join("n3");
    cluster.await_safe(4);
    assert!(
        !holders(&cluster, "default").1.contains("n3"),
        "nothing moves for balance by itself"
    );
    let (_, told) = doyen(&cluster, "n0", &["rebalance", "--plan"]);
    assert!(
        told.contains("add learner n3 (balance of copies)")
            && told.contains("moves automatically: repair, drain, place\n"),
        "{told}"
    );

    let file = cluster.file("plan.json").display().to_string();
    let plan = |node: &str| {
        let (done, said) = doyen(&cluster, node, &["rebalance", "--plan", "--json"]);
        assert!(done, "{said}");
        std::fs::write(&file, said).expect("it can be written");
    };
    plan("n0");
    let wrong = |words: &[&str], expected: &str| {
        let (done, said) = doyen(&cluster, "n0", words);
        assert!(
            !done && said.contains(expected) && said.trim_end().lines().count() == 1,
            "{words:?}: {said}"
        );
    };
    let (done, said) = doyen(
        &cluster,
        "n2",
        &["keyspace", "alter", "default", "--default-ttl", "1h"],
    );
    assert!(done, "{said}");
    cluster.eventually("the table is another", |c| {
        doyen(c, "n0", &["keyspace", "show", "default"])
            .1
            .contains("1h")
    });
    wrong(&["rebalance", "--apply", &file], "make another plan");
    wrong(&["rebalance", "--apply", "nowhere.json"], "cannot be read");
    wrong(&["rebalance"], "required");
    wrong(
        &["rebalance", "--automatic", "repair,luck"],
        "is no reason to move anything",
    );
    let http = cluster.node("n0").ready.http.to_string();
    let refused = cluster.command(&["rebalance", "auto", "--http", &http]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("secret"),
        "{said}"
    );
    assert!(
        !holders(&cluster, "default").1.contains("n3"),
        "a refused plan moved something"
    );

    cluster.eventually("a plan is applied before the table is another", |c| {
        let (made, json) = doyen(c, "n1", &["rebalance", "--plan", "--json"]);
        assert!(made, "{json}");
        std::fs::write(&file, json).expect("it can be written");
        doyen(c, "n1", &["rebalance", "--apply", &file]).0
    });
    cluster.eventually("the newcomer has its share", |c| {
        holders(c, "default").1.contains("n3")
    });
    cluster.await_safe(4);
    let (_, told) = doyen(&cluster, "n0", &["rebalance", "--plan"]);
    assert!(told.starts_with("nothing would move\n"), "{told}");

    // The copies of a dead member are made again in any case. With balance on again, a newcomer is
    // given its share.
    cluster.kill("n3");
    cluster.await_safe(3);
    let (done, said) = doyen(
        &cluster,
        "n0",
        &["rebalance", "--automatic", "repair,copies"],
    );
    assert!(done && said.contains("for: repair, copies;"), "{said}");
    cluster.join("n4");
    cluster.eventually("the newcomer has a share", |c| {
        holders(c, "default").1.contains("n4")
    });
    cluster.await_safe(4);
}
