//! Administration by the library and by HTTP: the same operations, and the same refusals.

use crate::embedded::{node_with, safe};
use doyen::admin::maps::MapLimitOptions;
use doyen::config::value::Most;
use doyen::http::client::{Client, HttpError};
use doyen::report::rebalance::RebalancePlan;
use doyen::{
    Admin, AdminError, Builder, KeyspaceOptions, MoveRate, Node, Refusal, ReportError, Schedulers,
    VotersGone,
};
use serde_json::{Value, json};
use std::time::Duration;

/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a change waits for what does not come.
const SOON: Duration = Duration::from_millis(300);

async fn node(name: &str, seeds: &[&Node], more: impl FnOnce(Builder) -> Builder) -> Node {
    node_with(name, seeds, |builder| more(builder.http("127.0.0.1:0"))).await
}

/// The error of a change, with the status and the text that HTTP gives for the same change.
async fn by_http(node: &Node, method: &str, path: &str, body: &Value) -> (u16, String) {
    let http = node.addresses().http.expect("it listens").to_string();
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    match Client::of_open(http)
        .request::<Value>(method, path, &body)
        .await
    {
        Ok(answer) => (200, answer.to_string()),
        Err(HttpError::Refused { status, message }) => (status, message),
        Err(other) => panic!("{method} {path}: {other}"),
    }
}

fn refused(result: Result<(), AdminError>) -> Refusal {
    match result {
        Err(AdminError::Refused(refusal)) => refusal,
        other => panic!("it is not refused: {other:?}"),
    }
}

/// Waits until the admin's reports show this.
async fn eventually(admin: &Admin, what: &str, holds: impl AsyncFn(&Admin) -> bool) {
    let looking = async {
        while !holds(admin).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let looked = tokio::time::timeout(PATIENCE, looking).await;
    assert!(looked.is_ok(), "{what}: {:?}", admin.status().await);
}

#[tokio::test]
async fn every_refusal_has_a_type_in_the_library_and_a_status_by_http() {
    let one = node("one", &[], |builder| builder).await;
    safe(&one, 1).await;
    let admin = one.admin();
    let none = Value::Null;
    let few = MapLimitOptions {
        max_entries: Some(Most(Some(9))),
        ..MapLimitOptions::default()
    };

    let missing = [
        (
            refused(admin.drop_keyspace("orders").await),
            ("DELETE", "/keyspaces/orders", none.clone()),
        ),
        (
            refused(
                admin
                    .alter_keyspace("orders", &KeyspaceOptions::new().backups(2))
                    .await,
            ),
            ("PATCH", "/keyspaces/orders", json!({ "backups": 2 })),
        ),
        (
            refused(admin.drain("absent").await),
            ("POST", "/members/absent/drain", none.clone()),
        ),
        (
            refused(admin.fill("absent").await),
            ("DELETE", "/members/absent/drain", none.clone()),
        ),
        (
            refused(admin.remove_lost("absent").await),
            ("DELETE", "/members/absent", none.clone()),
        ),
        (
            refused(admin.drop_map("default", "absent").await),
            ("DELETE", "/keyspaces/default/maps/absent", none.clone()),
        ),
        (
            refused(admin.drop_map("elsewhere", "absent").await),
            ("DELETE", "/keyspaces/elsewhere/maps/absent", none.clone()),
        ),
        (
            refused(admin.limit_map("default", "a/b c", &few).await),
            (
                "PATCH",
                "/keyspaces/default/maps/a%2Fb%20c",
                json!({ "max_entries": 9 }),
            ),
        ),
        (
            refused(admin.cancel_move("default/9999").await),
            ("POST", "/moves/cancel", json!({ "id": "default/9999" })),
        ),
        (
            refused(admin.recover(&["absent".into()], HALF).await),
            (
                "POST",
                "/recover",
                json!({ "assert_dead": ["absent"], "gone": "1/2" }),
            ),
        ),
    ];
    for (refusal, (method, path, body)) in missing {
        assert!(matches!(refusal, Refusal::NotFound { .. }), "{refusal:?}");
        let answer = by_http(&one, method, path, &body).await;
        assert_eq!(answer, (404, refusal.to_string()), "{method} {path}");
    }

    let three = KeyspaceOptions::new().min_in_sync(3);
    let invalid = [
        (
            refused(admin.create_keyspace("orders", &three).await),
            "min_in_sync",
            (
                "POST",
                "/keyspaces",
                json!({ "name": "orders", "min_in_sync": 3 }),
            ),
        ),
        (
            refused(
                admin
                    .create_keyspace("no name", &KeyspaceOptions::new())
                    .await,
            ),
            "name",
            ("POST", "/keyspaces", json!({ "name": "no name" })),
        ),
        (
            refused(
                admin
                    .alter_keyspace("default", &KeyspaceOptions::new().ordered())
                    .await,
            ),
            "ordered",
            ("PATCH", "/keyspaces/default", json!({ "ordered": true })),
        ),
        (
            refused(admin.split_at("default", b"").await),
            "at",
            ("POST", "/keyspaces/default/split", json!({ "at": "" })),
        ),
        (
            refused(admin.recover(&[], HALF).await),
            "assert_dead",
            (
                "POST",
                "/recover",
                json!({ "assert_dead": [], "gone": "1/2" }),
            ),
        ),
    ];
    for (refusal, wanted, (method, path, body)) in invalid {
        assert!(
            matches!(&refusal, Refusal::Invalid { field, .. } if *field == wanted),
            "{refusal:?}"
        );
        let answer = by_http(&one, method, path, &body).await;
        assert_eq!(answer, (400, refusal.to_string()), "{method} {path}");
    }
    let slow = refused(admin.set_move_rate(MoveRate::Bytes(1)).await);
    assert!(
        matches!(slow, Refusal::Invalid { field: "rate", .. }),
        "{slow:?}"
    );
    let slow = by_http(&one, "PATCH", "/balance", &json!({ "rate": "1kb" })).await;
    assert!(
        slow.0 == 400 && slow.1.contains("at least 64kb"),
        "{slow:?}"
    );

    let mut plan = admin.rebalance_plan().await.expect("it coordinates");
    let conflicts = [
        (
            refused(
                admin
                    .create_keyspace("default", &KeyspaceOptions::new().partitions(2))
                    .await,
            ),
            (
                "POST",
                "/keyspaces",
                json!({ "name": "default", "partitions": 2 }),
            ),
        ),
        (
            refused(admin.drop_keyspace("default").await),
            ("DELETE", "/keyspaces/default", none.clone()),
        ),
        (
            refused(admin.split_at("default", b"k").await),
            ("POST", "/keyspaces/default/split", json!({ "at": "k" })),
        ),
        (
            refused(admin.fill("one").await),
            ("DELETE", "/members/one/drain", none.clone()),
        ),
        (
            refused(admin.cancel_move("default/0").await),
            ("POST", "/moves/cancel", json!({ "id": "default/0" })),
        ),
        (
            refused(admin.rebalance(&plan).await),
            ("POST", "/rebalance", json!(plan)),
        ),
    ];
    for (refusal, (method, path, body)) in conflicts {
        assert!(matches!(refusal, Refusal::Conflict { .. }), "{refusal:?}");
        let answer = by_http(&one, method, path, &body).await;
        assert_eq!(answer, (409, refusal.to_string()), "{method} {path}");
    }
    plan.table = "the one of yesterday".into();
    let unnamed = refused(admin.rebalance(&plan).await);
    assert!(
        matches!(unnamed, Refusal::Invalid { field: "table", .. }),
        "{unnamed:?}"
    );

    let risky = [
        (
            refused(admin.drain("one").await),
            ("POST", "/members/one/drain", none.clone()),
        ),
        (
            refused(admin.remove_lost("one").await),
            ("DELETE", "/members/one", none),
        ),
    ];
    for (refusal, (method, path, body)) in risky {
        assert!(matches!(refusal, Refusal::Unsafe { .. }), "{refusal:?}");
        let answer = by_http(&one, method, path, &body).await;
        assert_eq!(answer, (409, refusal.to_string()), "{method} {path}");
    }
    let missing = admin.keyspace("orders").await.expect_err("there is none");
    assert!(
        matches!(missing, ReportError::NotFound { .. }),
        "{missing:?}"
    );
    let answer = by_http(&one, "GET", "/keyspaces/orders", &Value::Null).await;
    assert_eq!(answer, (404, missing.to_string()));
    one.kill().await;
}

#[tokio::test]
async fn a_change_is_in_force_at_this_node_when_it_returns() {
    let one = node("one", &[], |builder| builder).await;
    let two = node("two", &[&one], |builder| builder).await;
    safe(&one, 2).await;
    for admin in [one.admin(), two.admin()] {
        let options = KeyspaceOptions::new().partitions(4);
        admin
            .create_keyspace("orders", &options)
            .await
            .expect("made");
        let made = admin.keyspace("orders").await.expect("it is there");
        assert_eq!((made.partitions, made.backups), (4, 1));
        admin
            .create_keyspace("orders", &options)
            .await
            .expect("the same is no other");
        admin.drop_keyspace("orders").await.expect("dropped");
        let names: Vec<_> = admin.keyspaces().await.expect("they are told");
        assert!(!names.iter().any(|k| k.name == "orders"));
    }
    let admin = two.admin();
    admin.pause_balance().await.expect("paused");
    admin
        .rebalance_automatically(Schedulers::MANUAL)
        .await
        .expect("said");
    let report = async |admin: &Admin| admin.balance().await.expect("it is a member");
    eventually(&admin, "it is paused", async |a| !report(a).await.on).await;
    assert_eq!(report(&admin).await.state, "paused by an operator");
    admin.resume_balance().await.expect("resumed");
    eventually(&admin, "it goes on", async |a| report(a).await.on).await;
    assert_eq!(report(&admin).await.automatic, ["repair", "drain", "place"]);
    admin.drain("one").await.expect("two takes all");
    let drained = async |admin: &Admin| {
        let moves = admin.moves().await.expect("it is a member");
        moves
            .draining
            .iter()
            .any(|d| d.member == "one" && d.leads == 0)
    };
    eventually(&admin, "one leads nothing", drained).await;
    admin.fill("one").await.expect("it was being drained");
    assert!(!admin.logged_events(0).is_empty());
    two.kill().await;
    one.kill().await;
}

/// The request had left the node, so the caller could not know whether the change was made; it was
/// told that it was not.
#[tokio::test]
async fn a_change_without_an_answer_in_time_may_still_be_made() {
    let one = node("one", &[], |builder| builder).await;
    safe(&one, 1).await;
    let admin = one.admin();
    let hasty = admin.clone().within(Duration::ZERO);
    // A limit of no time still leaves a moment in which an answer may come.
    let (mut late, mut asked) = (None, 0);
    while late.is_none() {
        assert!(asked < 100, "every answer came at once");
        let name = format!("orders{asked}");
        let made = hasty.create_keyspace(&name, &KeyspaceOptions::new()).await;
        late = made.err().map(|error| (name, error));
        asked += 1;
    }
    let (name, error) = late.expect("the loop has ended");
    assert!(matches!(error, AdminError::Unknown { .. }), "{error:?}");
    assert!(error.may_have_happened());
    eventually(&admin, "it is made", async |a| {
        a.keyspace(&name).await.is_ok()
    })
    .await;
    one.kill().await;
    let gone = admin
        .pause_balance()
        .await
        .expect_err("the node has stopped");
    assert_eq!(gone, AdminError::Stopped);
    let gone = admin.status().await.expect_err("the node has stopped");
    assert_eq!(gone, ReportError::Stopped);
}

#[tokio::test]
async fn a_node_outside_a_cluster_changes_nothing_and_says_what_it_waits_for() {
    let one = node("one", &[], |builder| builder.expect(2)).await;
    let admin = one.admin().within(SOON);
    let error = admin.pause_balance().await.expect_err("it is no member");
    assert!(
        matches!(&error, AdminError::NotMember { why } if !why.is_empty()),
        "{error:?}"
    );
    assert!(!error.may_have_happened());
    let error = admin.rebalance_plan().await.expect_err("it is no member");
    assert!(matches!(error, ReportError::NotMember { .. }), "{error:?}");
    let (status, _) = by_http(&one, "GET", "/moves", &Value::Null).await;
    assert_eq!(status, 503);
    assert!(admin.status().await.expect("it answers").members.is_empty());
    one.kill().await;
}

#[tokio::test]
async fn a_keyspace_without_enough_members_is_made_and_served_later() {
    let one = node("one", &[], |builder| builder.expect(1).members_min(2)).await;
    let admin = one.admin();
    let member = async |a: &Admin| a.status().await.is_ok_and(|s| s.members.len() == 1);
    eventually(&admin, "it is a member", member).await;
    let made = admin
        .create_keyspace("orders", &KeyspaceOptions::new())
        .await;
    let error = made.expect_err("there are too few members");
    assert!(
        matches!(&error, AdminError::NotInForce { why } if why.contains("--members-min")),
        "{error:?}"
    );
    let body = json!({ "name": "names" });
    let (status, said) = by_http(&one, "POST", "/keyspaces", &body).await;
    assert_eq!((status, &*said), (200, r#"{"created":"names"}"#));
    let known = admin.keyspaces().await.expect("they are told");
    assert_eq!(known.len(), 3);
    one.kill().await;
}

const HALF: VotersGone = VotersGone { gone: 1, voters: 2 };

#[tokio::test]
async fn without_a_coordinator_nothing_is_changed_until_an_operator_recovers() {
    let one = node("one", &[], |builder| builder).await;
    let two = node("two", &[&one], |builder| builder).await;
    safe(&one, 2).await;
    let works = refused(one.admin().recover(&["two".into()], HALF).await);
    assert!(matches!(works, Refusal::Conflict { .. }), "{works:?}");
    one.kill().await;
    let admin = two.admin();
    let halted = async |a: &Admin| a.status().await.is_ok_and(|s| s.coordinator.is_none());
    eventually(&admin, "no majority is left", halted).await;
    let hasty = admin.clone().within(SOON);
    let error = hasty
        .pause_balance()
        .await
        .expect_err("no member coordinates");
    assert!(
        matches!(&error, AdminError::NoCoordinator { why } if !why.is_empty()),
        "{error:?}"
    );
    assert!(!error.may_have_happened());
    let planned: Result<RebalancePlan, _> = admin.rebalance_plan().await;
    let error = planned.expect_err("no member coordinates");
    assert!(
        matches!(error, ReportError::NoCoordinator { .. }),
        "{error:?}"
    );
    let answer = by_http(&two, "GET", "/rebalance", &Value::Null).await;
    assert_eq!(answer, (503, error.to_string()));

    let alive = refused(admin.recover(&["two".into()], HALF).await);
    assert!(matches!(alive, Refusal::Unsafe { .. }), "{alive:?}");
    let body = json!({ "assert_dead": ["two"], "gone": "1/2" });
    let answer = by_http(&two, "POST", "/recover", &body).await;
    assert_eq!(answer, (409, alive.to_string()));
    for (gone, voters) in [(2, 2), (1, 3), (0, 2)] {
        let wrong = VotersGone { gone, voters };
        let miscounted = refused(admin.recover(&["one".into()], wrong).await);
        let checked = refused(admin.may_recover(&["one".into()], wrong).await);
        assert_eq!(checked, miscounted);
        let Refusal::Conflict { why } = &miscounted else {
            panic!("{miscounted:?}")
        };
        assert!(
            why.contains(&format!("{wrong} was said")) && why.contains("but 1/2 of the voters"),
            "{why}"
        );
    }
    for body in [
        json!({ "assert_dead": ["one"] }),
        json!({ "assert_dead": ["one"], "gone": "most" }),
        json!({ "assert_dead": ["one"], "gone": [1, 2] }),
    ] {
        let (status, why) = by_http(&two, "POST", "/recover", &body).await;
        assert!(
            status == 400 && why.contains("gone"),
            "{body}: {status} {why}"
        );
    }
    // What a program reads says what is wrong and names no command that may do harm here.
    let (status, why) = by_http(&two, "GET", "/readyz", &Value::Null).await;
    assert!(
        status == 503 && why.contains("probably the one that is cut off"),
        "{status} {why}"
    );
    for text in [why, error.to_string(), answer.1] {
        assert!(!text.contains("doyen "), "{text}");
    }
    let status = admin.status().await.expect("it answers");
    let waiting = status.waiting.expect("it waits");
    assert!(
        waiting.contains("--assert-dead one --gone 1/2"),
        "{waiting}"
    );
    admin
        .may_recover(&["one".into()], HALF)
        .await
        .expect("it would be taken");
    let body = json!({ "assert_dead": ["one"], "gone": "1/2", "check": true });
    let answer = by_http(&two, "POST", "/recover", &body).await;
    assert_eq!(answer, (200, r#"{"recovered":false}"#.into()));
    let unchanged = admin.status().await.expect("it answers");
    assert_eq!(unchanged.coordinator, None, "a check changes nothing");
    admin
        .recover(&["one".into()], HALF)
        .await
        .expect("it is dead");
    safe(&two, 1).await;
    two.kill().await;
}
