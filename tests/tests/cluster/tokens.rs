//! Tokens of HTTP: what opens what, at which members, and until when; on real processes.

use doyen_tests::cluster::Cluster;
use doyen_tests::process::operator_token;
use doyen_tests::resp::Reply;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const OTHER: &str = "doyen_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A request, sent and not answered yet.
fn sent(address: SocketAddr, request: &str, token: Option<&str>, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("a timeout");
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let (token, length) = (token.unwrap_or_default(), body.len());
    let head = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}Content-Length: \
         {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream
}

/// The status of an answer, and all of it.
fn asked(address: SocketAddr, request: &str, token: Option<&str>, body: &str) -> (u16, String) {
    let mut answer = String::new();
    let mut stream = sent(address, request, token, body);
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
    (status.expect("a status"), answer)
}

fn status(address: SocketAddr, request: &str, token: Option<&str>) -> u16 {
    let body = if request.starts_with("PATCH") {
        r#"{"paused": false}"#
    } else {
        ""
    };
    asked(address, request, token, body).0
}

/// Makes a token with a command, and returns it.
fn made(cluster: &Cluster, name: &str, role: &str) -> String {
    let out = cluster.file(&format!("{name}.token"));
    let path = out.display().to_string();
    cluster.change(
        "n0",
        &["token", "new", name, "--role", role, "--out", &path],
    );
    let token = std::fs::read_to_string(out).expect("a file with a token");
    token.trim().to_owned()
}

/// The audits that a node tells.
fn audits(cluster: &Cluster, node: &str) -> Vec<Value> {
    let events = cluster.report(node, "/events")["events"].clone();
    let events = events.as_array().cloned().unwrap_or_default();
    let audits = events.into_iter().filter(|event| event["kind"] == "audit");
    audits.collect()
}

#[test]
fn a_token_opens_what_its_role_may_do_at_every_member_until_it_is_revoked() {
    let mut cluster = Cluster::of(BINARY, 3);
    let (read, operate) = (
        made(&cluster, "prometheus", "read"),
        made(&cluster, "deploy", "operate"),
    );
    let at = |cluster: &Cluster, node: &str| cluster.node(node).ready.http;
    let nodes = ["n0", "n1", "n2"];
    for node in nodes {
        cluster.eventually("it knows the tokens", |c| {
            status(at(c, node), "GET /status", Some(&operate)) == 200
        });
    }
    let reads = [
        "/status",
        "/metrics",
        "/events",
        "/keyspaces",
        "/balance",
        "/moves",
        "/maps",
    ];
    let data = [
        "/table",
        "/loads",
        "/placement",
        "/rebalance",
        "/trust",
        "/tokens",
        "/users",
    ];
    for node in nodes {
        let at = at(&cluster, node);
        for path in ["/healthz", "/readyz"] {
            assert_eq!(status(at, &format!("GET {path}"), None), 200, "{path}");
        }
        for path in reads.iter().chain(&data) {
            let request = format!("GET {path}");
            assert_eq!(status(at, &request, None), 401, "{path}");
            // The word of open nodes is no token.
            assert_eq!(status(at, &request, Some("loopback")), 401, "{path}");
            assert_eq!(status(at, &request, Some(&operate)), 200, "{path}");
            let wanted = if reads.contains(path) { 200 } else { 403 };
            assert_eq!(status(at, &request, Some(&read)), wanted, "{path}");
        }
        for (token, wanted) in [(None, 401), (Some(&read), 403), (Some(&operate), 200)] {
            let token = token.map(String::as_str);
            assert_eq!(status(at, "PATCH /balance", token), wanted);
        }
        // There is no such map, which only those learn that may drop it.
        for change in ["PATCH", "DELETE"] {
            let request = format!("{change} /keyspaces/default/maps/none");
            for (token, wanted) in [(None, 401), (Some(&*read), 403), (Some(&*operate), 404)] {
                let limits = r#"{"max_entries": 1}"#;
                assert_eq!(asked(at, &request, token, limits).0, wanted, "{request}");
            }
        }
        // A user may read all data, so no named token makes one.
        for request in ["PUT /users/thief", "DELETE /users/thief"] {
            for (token, wanted) in [(None, 401), (Some(&*read), 403), (Some(&*operate), 403)] {
                let rules = r#"{"rules": ["on", "nopass", "~*", "+@all"]}"#;
                let (status, said) = asked(at, request, token, rules);
                assert_eq!(status, wanted, "{request}: {said}");
                let told = said.contains("--secret-file operator");
                assert!(told || token != Some(&operate), "{said}");
            }
        }
    }
    let (_, refusal) = asked(at(&cluster, "n1"), "GET /table", Some(&read), "");
    assert!(
        refusal.contains("token prometheus has the role read")
            && refusal.contains("--role operate"),
        "{refusal}"
    );
    // The token is nowhere but in its file.
    let listed = cluster.change("n1", &["token", "list"]);
    assert!(listed.contains("prometheus  read"), "{listed}");
    for node in nodes {
        let text = cluster.node(node).log() + &listed;
        assert!(!text.contains(&read) && !text.contains(&operate));
    }

    // A stream that the token opened ends with it, and a captured token opens nothing any more.
    let follow = "GET /events?follow=true";
    let mut stream = sent(at(&cluster, "n1"), follow, Some(&read), "");
    let mut other = sent(at(&cluster, "n1"), follow, Some(&operate), "");
    other.read_exact(&mut [0; 15]).expect("it begins");
    cluster.change("n0", &["token", "revoke", "prometheus"]);
    assert_eq!(status(at(&cluster, "n0"), "GET /status", Some(&read)), 401);
    stream.read_to_string(&mut String::new()).expect("it ends");
    for node in nodes {
        cluster.eventually("it refuses the token", |c| {
            status(at(c, node), "GET /status", Some(&read)) == 401
        });
        assert_eq!(
            status(at(&cluster, node), "GET /status", Some(&operate)),
            200
        );
    }
    other.set_nonblocking(true).expect("a socket");
    let mut rest = [0; 1 << 16];
    while other.read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
    assert!(
        matches!(other.read(&mut rest), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock),
        "the other stream goes on"
    );
    cluster.join("n3");
    cluster.await_safe(4);
    assert_eq!(
        status(at(&cluster, "n3"), "GET /status", Some(&operate)),
        200
    );
    assert_eq!(status(at(&cluster, "n3"), "GET /status", Some(&read)), 401);
    let (done, said) = cluster.asks("n0", &["token", "revoke", "prometheus"]);
    assert!(
        !done && said.contains("there is no token prometheus"),
        "{said}"
    );
    let (done, said) = cluster.asks("n0", &["token", "new", "deploy"]);
    assert!(!done && said.contains("revoke"), "{said}");
}

#[test]
fn tokens_of_another_cluster_open_nothing() {
    let (own, other) = (Cluster::of(BINARY, 1), Cluster::of(BINARY, 1));
    let named = made(&other, "deploy", "operate");
    let derived = operator_token(&other.secret_file()).expect("a token");
    let (here, there) = (own.node("n0").ready.http, other.node("n0").ready.http);
    for token in [&named, &derived] {
        assert_eq!(status(there, "PATCH /balance", Some(token)), 200);
        let (refused, said) = asked(here, "PATCH /balance", Some(token), "{}");
        assert_eq!(refused, 401);
        assert!(said.contains("belongs to another cluster"), "{said}");
    }
    // A token of the same name does not open what that of the other cluster opens.
    let same = made(&own, "deploy", "operate");
    assert_eq!(status(here, "GET /status", Some(&same)), 200);
    assert_eq!(status(here, "GET /status", Some(&named)), 401);
}

#[test]
fn a_file_of_tokens_is_replaced_without_a_restart() {
    let mut cluster = Cluster::new(BINARY);
    let file = cluster.file("tokens");
    let (old, new) = ("an-old-token-of-ours", "a-new-token-of-ours");
    let write = |text: &str| doyen_tests::cluster::write_secret(&file, text);
    write(old);
    let path = file.display().to_string();
    cluster.join_with("n0", &["--http-token-file", &path]);
    cluster.await_safe(1);
    let at = cluster.node("n0").ready.http;
    let takes = |token: &str| status(at, "PATCH /balance", Some(token)) == 200;
    assert!(takes(old) && !takes(new));
    write(&format!("# both\n{new}\n{old}\n"));
    assert!(takes(old) && takes(new));
    // Half written: what was read stays in force.
    write("a-new");
    assert!(takes(old) && takes(new));
    write(new);
    assert!(!takes(old) && takes(new));
    let node = cluster.nodes.get_mut("n0").expect("it runs");
    node.hang_up();
    cluster.eventually("it reads the files again", |c| {
        c.node("n0").log().contains("SIGHUP")
    });
    assert!(takes(new));
    // The operators' token works beside the file.
    let derived = operator_token(&cluster.secret_file()).expect("a token");
    assert!(takes(&derived));
}

#[test]
fn changes_and_refused_attempts_are_audited_and_a_flood_has_one_event() {
    let cluster = Cluster::of(BINARY, 1);
    let at = cluster.node("n0").ready.http;
    let operate = made(&cluster, "deploy", "operate");
    for _ in 0..40 {
        assert_eq!(status(at, "DELETE /members/n0", None), 401);
    }
    for _ in 0..4 {
        assert_eq!(status(at, "GET /status", Some(OTHER)), 401);
    }
    assert_eq!(status(at, "PATCH /balance", Some(&operate)), 200);
    assert_eq!(status(at, "DELETE /members/nobody", Some(&operate)), 404);
    let set = [
        "ACL",
        "SETUSER",
        "bob",
        "on",
        ">a-secret-password",
        "~*",
        "+get",
    ];
    assert_eq!(cluster.command_at("n0", &set), Reply::Simple("OK".into()));
    assert!(matches!(
        cluster.command_at(
            "n0",
            &["ACL", "SETUSER", "bob", ">another-secret", "+nothing"]
        ),
        Reply::Error(_)
    ));
    cluster.eventually("audits", |c| audits(c, "n0").len() >= 6);
    let told = audits(&cluster, "n0");
    let of = |what: &str| -> Vec<&Value> {
        let is = |audit: &&Value| audit["what"].as_str().is_some_and(|w| w.starts_with(what));
        told.iter().filter(is).collect()
    };
    let one = |what: &str| {
        let found = of(what);
        assert_eq!(found.len(), 1, "{what}: {told:?}");
        found[0].clone()
    };
    let made = one("PUT /tokens/deploy role operate, fingerprint ");
    assert_eq!(
        (&made["who"], &made["outcome"]),
        (&"an operator's secret".into(), &"done".into())
    );
    let changed = one(r#"PATCH /balance {"paused": false}"#);
    assert_eq!(
        (&changed["who"], &changed["interface"]),
        (&"token deploy".into(), &"http".into())
    );
    assert_eq!(
        (&changed["from"], &changed["refused"]),
        (&"127.0.0.1".into(), &false.into())
    );
    assert_eq!(one("DELETE /members/nobody")["outcome"], "failed (404)");
    // 44 refused attempts of one address are one event.
    let refused = one("DELETE /members/n0");
    assert_eq!(
        (&refused["refused"], &refused["who"]),
        (&true.into(), &"a caller without a token".into())
    );
    assert_eq!(
        told.iter().filter(|audit| audit["refused"] == true).count(),
        1,
        "{told:?}"
    );
    let users = of("ACL SETUSER bob");
    let outcomes: Vec<_> = users.iter().map(|user| &user["outcome"]).collect();
    assert_eq!(outcomes, ["done", "failed (the command is wrong)"]);
    assert_eq!(users[0]["who"], "user default");

    let metrics = cluster.node("n0").http("/metrics").expect("metrics");
    assert!(
        metrics.contains("doyen_http_auth_failures_total 4"),
        "{metrics}"
    );
    let (events, log) = (cluster.change("n0", &["events"]), cluster.node("n0").log());
    for text in [&events, &log] {
        assert!(
            text.contains("token deploy at 127.0.0.1 (http): PATCH /balance"),
            "{text}"
        );
        assert!(
            !text.contains("secret-password") && !text.contains("another-secret"),
            "{text}"
        );
        assert!(!text.contains(&operate) && !text.contains(OTHER), "{text}");
    }
}

/// Once no user may run `ACL SETUSER`, there was no way back.
#[test]
fn operators_change_users_of_redis_clients_also_if_no_user_may() {
    let cluster = Cluster::of(BINARY, 2);
    let password = cluster.file("password");
    doyen_tests::cluster::write_secret(&password, "a-secret-password\n");
    let password = password.display().to_string();
    let rules = ["acl", "set", "app", "on ~* +@all -@admin"];
    cluster.change(
        "n0",
        &[&rules[..], &["--password-file", &password]].concat(),
    );
    cluster.change("n1", &["acl", "set", "default", "off"]);
    let refused = |name: &str| {
        let reply = cluster.command_at(name, &["PING"]);
        matches!(reply, Reply::Error(why) if why.starts_with("NOAUTH"))
    };
    cluster.eventually("default is off everywhere", |_| {
        refused("n0") && refused("n1")
    });
    let log = cluster.node("n1").log();
    assert!(
        log.contains("no user of Redis clients may run ACL SETUSER"),
        "{log}"
    );
    let login = ["AUTH", "app", "a-secret-password"];
    assert_eq!(cluster.command_at("n0", &login), Reply::Simple("OK".into()));

    let listed = cluster.change("n0", &["acl", "list"]);
    let app = listed
        .lines()
        .find(|line| line.starts_with("app"))
        .expect("app");
    assert!(
        app.contains("  1  on ") && app.contains("+@all -@admin"),
        "{listed}"
    );
    assert!(
        !listed.contains('#') && !listed.contains("secret"),
        "{listed}"
    );
    for (words, why) in [
        (&["set", "app", "nonsense"][..], "Syntax error"),
        (&["set", "a b", "on"], "spaces"),
        (&["set", "app"], "give rules"),
        (&["remove", "default"], "cannot be removed"),
        (&["remove", "nobody"], "there is no user nobody"),
    ] {
        let (done, said) = cluster.asks("n0", &[&["acl"], words].concat());
        assert!(!done && said.contains(why), "{words:?}: {said}");
    }
    // The way back.
    cluster.change("n0", &["acl", "set", "default", "on"]);
    cluster.eventually("default is on again", |_| !refused("n0") && !refused("n1"));
    cluster.change("n0", &["acl", "remove", "app"]);
    let listed = cluster.change("n0", &["acl", "list"]);
    assert!(!listed.contains("app"), "{listed}");

    let told = audits(&cluster, "n0");
    let of = |what: &str| {
        let is = |audit: &&Value| audit["what"].as_str().is_some_and(|w| w.starts_with(what));
        told.iter().find(is).cloned().unwrap_or_default()
    };
    assert_eq!(of("PUT /users/app 2 rules")["outcome"], "done", "{told:?}");
    assert_eq!(of("DELETE /users/app")["who"], "an operator's secret");
    assert!(!format!("{told:?}").contains("a-secret-password"));
}
