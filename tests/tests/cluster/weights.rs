//! A newcomer whose weight is far above the others' waits for an operator, on real processes.

use doyen_tests::cluster::Cluster;
use serde_json::json;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const ADVICE: &str = "`doyen weight allow heavy 801`";

fn members(cluster: &Cluster, node: &str) -> usize {
    let status = cluster.report(node, "/status");
    status["members"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_newcomer_that_is_far_too_heavy_joins_once_its_weight_is_allowed() {
    let mut cluster = Cluster::of(BINARY, 2);
    assert_eq!(cluster.report("n0", "/weights"), json!([]));
    // The control: at eight times the median, no operator is needed.
    cluster.join_with("light", &["--weight", "800"]);
    cluster.await_safe(3);

    let coordinator = cluster.coordinator();
    cluster.join_with("heavy", &["--weight", "801"]);
    cluster.eventually("its log says why it waits", |c| {
        c.node("heavy").log().contains(ADVICE)
    });
    cluster.eventually("the coordinator says that it waits", |c| {
        c.change(&coordinator, &["events"]).contains(ADVICE)
    });
    let (_, status) = cluster.asks("heavy", &["status"]);
    assert!(
        status.contains("heavy has weight 801, more than 8 times the median")
            && status.contains(ADVICE),
        "{status}"
    );
    assert_eq!(members(&cluster, "n0"), 3);

    for (wrong, said) in [
        (&["allow", "heavy", "0"][..], "1..=100000"),
        (&["allow", "heavy", "100001"], "1..=100000"),
        (&["allow", "heavy", "much"], "much"),
        (&["allow", &"x".repeat(65), "900"], "1 to 64 bytes"),
        (&["forget", "heavy"], "no weight is allowed for heavy"),
    ] {
        let (done, why) = cluster.asks("n1", &[&["weight"], wrong].concat());
        assert!(!done && why.contains(said), "{wrong:?}: {why}");
    }
    // Less than it has does not admit it.
    cluster.change("n0", &["weight", "allow", "heavy", "800"]);
    cluster.eventually("it says what is allowed", |c| {
        let (_, status) = c.asks("heavy", &["status"]);
        status.contains("only 800 is allowed for it")
    });
    let said = cluster.change("n0", &["weight", "allow", "heavy", "801"]);
    assert_eq!(said, "heavy may have weight 801\n");
    cluster.await_safe(4);
    let listed = cluster.change("n1", &["weight", "list"]);
    assert!(listed.contains("heavy     801"), "{listed}");
    assert_eq!(
        cluster.report("n1", "/weights"),
        json!([{"name": "heavy", "weight": 801}])
    );

    // What is allowed belongs to its name, so its next process need not wait.
    cluster.kill("heavy");
    cluster.join_with("heavy", &["--weight", "801"]);
    cluster.await_safe(4);
    // Once it is forgotten, the member stays.
    cluster.change("n0", &["weight", "forget", "heavy"]);
    assert_eq!(cluster.report("n0", "/weights"), json!([]));
    assert_eq!(members(&cluster, "n0"), 4);
    let events = cluster.change("n0", &["events"]);
    for audited in [
        r#"PUT /weights/heavy {"weight":801}"#,
        "DELETE /weights/heavy",
        "weight 801 is allowed for heavy",
        "weight 801 is no longer allowed for heavy",
    ] {
        assert!(events.contains(audited), "{audited}: {events}");
    }
}
