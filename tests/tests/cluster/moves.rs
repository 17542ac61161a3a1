//! Moves under an operator's control on real processes: pace, pause, cancel, drain, restart.

use doyen_tests::cluster::Cluster;
use doyen_tests::load::Load;
use doyen_tests::resp::Reply;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

fn kinds(cluster: &Cluster) -> Vec<String> {
    let events = cluster.report("n0", "/events")["events"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    events
        .iter()
        .filter_map(|event| Some(event["kind"].as_str()?.to_owned()))
        .collect()
}

/// Writes this many keys of 4,000 bytes.
fn fill(cluster: &Cluster, keys: usize) {
    let mut client = cluster.client("n0");
    let value = "v".repeat(4_000);
    for key in 0..keys {
        let reply = client.command(&[b"SET", format!("large:{key}").as_bytes(), value.as_bytes()]);
        assert_eq!(reply.expect("a node answers"), Reply::Simple("OK".into()));
    }
}

#[test]
fn an_operator_paces_pauses_cancels_and_resumes_moves() {
    let mut cluster = Cluster::of(BINARY, 2);
    fill(&cluster, 2_000);
    let said = cluster.change("n0", &["rebalance", "--move-rate", "128kb"]);
    assert!(said.contains("move rate: 128kb a second"), "{said}");
    cluster.join("n2");
    // 8 MB take a minute at this pace.
    cluster.eventually("a copy is under way", |c| {
        let moves = c.report("n0", "/moves")["moves"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        moves.iter().any(|m| {
            m["stage"] == "copying" && m["bytes_sent"].as_u64() > Some(0) && m["to"] == "n2"
        })
    });
    let (_, shown) = cluster.asks("n1", &["moves"]);
    assert!(
        shown.contains("under way") && shown.contains("balance of"),
        "{shown}"
    );
    let said = cluster.change("n0", &["rebalance", "pause"]);
    assert!(
        said.starts_with("balancing: paused by an operator\n"),
        "{said}"
    );
    let said = cluster.change("n0", &["rebalance", "cancel", "--all"]);
    assert!(
        said.contains("every move for balance is cancelled"),
        "{said}"
    );
    cluster.await_safe(3);
    let kept = cluster.held("n0", "n2");
    assert!(kept < 43, "{kept} copies are there already");
    // Another coordinator knows it, too.
    cluster.change("n0", &["rebalance", "--move-rate", "1gb"]);
    let coordinator = cluster.coordinator();
    cluster.leave(&coordinator);
    cluster.join(&coordinator);
    cluster.await_safe(3);
    cluster.eventually("it is still paused", |c| {
        c.report("n0", "/balance")["state"] == "paused by an operator"
    });
    let status = cluster.report("n0", "/balance");
    assert_eq!(status["rate"], "1073741824", "{status}");
    cluster.change("n0", &["rebalance", "resume", "--move-rate", "adaptive"]);
    let fair = |c: &Cluster| {
        ["n0", "n1", "n2"]
            .iter()
            .all(|name| (42..=43).contains(&c.held("n0", name)))
    };
    cluster.eventually("every member has its share", fair);
    cluster.await_safe(3);
    let kinds = kinds(&cluster);
    for kind in ["moved", "balance_resumed", "changed"] {
        assert!(
            kinds.iter().any(|k| k == kind),
            "{kind} is not among {kinds:?}"
        );
    }
}

#[test]
fn one_move_is_cancelled_and_stays_where_it_was() {
    let mut cluster = Cluster::of(BINARY, 2);
    fill(&cluster, 1_000);
    cluster.change("n0", &["rebalance", "--move-rate", "64kb"]);
    cluster.join("n2");
    let mut id = String::new();
    cluster.eventually("a move waits or is under way", |c| {
        let moves = c.report("n0", "/moves")["moves"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = moves
            .iter()
            .find(|m| m["stage"] == "copying" || m["stage"] == "waiting")
            .and_then(|m| Some(m["id"].as_str()?.to_owned()));
        id = found.unwrap_or_default();
        !id.is_empty()
    });
    let (done, said) = cluster.asks("n0", &["rebalance", "cancel", &id]);
    assert!(done, "{said}");
    cluster.eventually("it is held", |c| {
        c.report("n0", "/balance")["held"]
            .as_array()
            .is_some_and(|held| held.iter().any(|h| *h == id.as_str()))
    });
    let wrong = cluster.asks("n0", &["rebalance", "cancel", "default/9999"]);
    assert!(!wrong.0 && wrong.1.contains("no partition"), "{wrong:?}");
    let both = cluster.asks("n0", &["rebalance", "cancel"]);
    assert!(!both.0 && both.1.contains("--all"), "{both:?}");
    cluster.change("n0", &["rebalance", "resume", "--move-rate", "adaptive"]);
    cluster.await_safe(3);
    assert_eq!(
        cluster.report("n0", "/balance")["held"],
        serde_json::json!([])
    );
}

#[test]
fn a_member_is_drained_under_load_and_filled_again() {
    let cluster = Cluster::of(BINARY, 4);
    let load = Load::start(cluster.resp_addresses(), 4);
    cluster.eventually("some writes", |_| load.acknowledged() > 500);
    let said = cluster.change("n0", &["drain", "n2"]);
    assert!(
        said.contains("n2 holds nothing: it may be stopped"),
        "{said}"
    );
    assert_eq!(cluster.held("n0", "n2"), 0);
    let (_, shown) = cluster.asks("n1", &["moves"]);
    assert!(shown.contains("n2 is drained"), "{shown}");
    let wrong = cluster.asks("n0", &["drain", "n9"]);
    assert!(
        !wrong.0
            && wrong
                .1
                .contains("there is no member \"n9\": there are n0, n1"),
        "{wrong:?}"
    );
    let lives = cluster.asks("n0", &["remove", "n3", "--lost"]);
    assert!(
        !lives.0 && lives.1.contains("n3 answers") && lives.1.contains("`doyen drain n3`"),
        "{lives:?}"
    );
    // The empty member may simply be killed: no data is lost with it, and no client notices.
    let written = load.acknowledged();
    cluster.eventually("writes go on", |_| load.acknowledged() > written + 500);
    cluster.change("n0", &["drain", "n2", "--cancel"]);
    cluster.eventually("it has its share again", |c| {
        (31..=33).contains(&c.held("n0", "n2"))
    });
    cluster.await_safe(4);
    let tally = load.finish();
    assert_eq!(
        (tally.stale.len(), tally.unknown, tally.refused),
        (0, 0, 0),
        "{:?}",
        tally.errors
    );
    let kinds = kinds(&cluster);
    for kind in ["draining", "drained"] {
        assert!(
            kinds.iter().any(|k| k == kind),
            "{kind} is not among {kinds:?}"
        );
    }
}

#[test]
fn events_are_sent_from_a_number_on_and_as_they_happen() {
    let mut cluster = Cluster::of(BINARY, 2);
    let last = cluster.report("n0", "/events")["last"]
        .as_u64()
        .expect("a number");
    cluster.join("n2");
    cluster.await_safe(3);
    let (_, said) = cluster.asks("n0", &["events", "--since", &last.to_string()]);
    assert!(said.contains("n2 joined (process "), "{said}");
    let (_, said) = cluster.asks("n0", &["events", "--json"]);
    let first: Value = serde_json::from_str(said.lines().next().expect("a line")).expect("JSON");
    assert!(
        first["number"] == 1 && first["at"].as_str().is_some_and(|at| at.ends_with('Z')),
        "{first}"
    );
    // Earlier events are sent at once.
    let address = cluster.node("n0").ready.http;
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream
        .set_read_timeout(Some(std::time::Duration::from_secs(10)))
        .expect("it may");
    let token = cluster.node("n0").token().expect("it has one");
    let head = "GET /events?follow=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer";
    let request = format!("{head} {token}\r\n\r\n");
    std::io::Write::write_all(&mut stream, request.as_bytes()).expect("it reads");
    let mut text = String::new();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stream));
    while !text.contains("event: joined") {
        text += &lines.next().expect("it goes on").expect("text");
        text.push('\n');
    }
    assert!(
        text.contains("content-type: text/event-stream") && text.contains("data: {\"number\":1,"),
        "{text}"
    );
}

/// Restarts every node once, with a command of its own, and the coordinator last.
#[test]
fn a_restart_plan_names_the_coordinator_last() {
    let cluster = Cluster::of(BINARY, 3);
    let (_, said) = cluster.asks("n0", &["restart-plan", "--print", "--json"]);
    let turns: Value = serde_json::from_str(&said).expect("JSON");
    let turns = turns.as_array().expect("a list");
    assert_eq!(turns.len(), 3);
    assert!(
        turns[2]["name"] == cluster.coordinator().as_str() && turns[2]["coordinator"] == true,
        "{said}"
    );
    let (done, said) = cluster.asks("n0", &["restart-plan", "--exec", "exit 3"]);
    assert!(
        !done && said.contains("no further node was restarted"),
        "{said}"
    );
}
