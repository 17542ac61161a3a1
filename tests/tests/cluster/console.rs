//! What the console's page is sent: by real processes, through a kill and a join. A browser goes
//! through the page itself in `tests/scripts/console.mjs` (`just console`).

use doyen_tests::cluster::Cluster;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// The stream of a page, and the last content of each of its parts.
struct Page {
    lines: Lines<BufReader<TcpStream>>,
    parts: BTreeMap<String, Value>,
}

/// Sends a request with these further lines of its head, and this body.
fn send(cluster: &Cluster, node: &str, request: &str, more: &str, body: &str) -> TcpStream {
    let node = cluster.node(node);
    let mut stream = TcpStream::connect(node.ready.http).expect("it listens");
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).expect("a socket");
    let token = node.token().expect("it has one");
    let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer";
    let length = body.len();
    let request =
        format!("{request} {head} {token}\r\nContent-Length: {length}\r\n{more}\r\n{body}");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

fn request(cluster: &Cluster, node: &str, path: &str) -> TcpStream {
    send(cluster, node, &format!("GET {path}"), "", "")
}

impl Page {
    fn open(cluster: &Cluster, node: &str) -> Self {
        let stream = request(cluster, node, "/console/stream");
        Self {
            lines: BufReader::new(stream).lines(),
            parts: BTreeMap::new(),
        }
    }

    /// Reads until this holds of what was sent.
    fn until(&mut self, holds: impl Fn(&BTreeMap<String, Value>) -> bool) {
        let mut part = None;
        while !holds(&self.parts) {
            let line = self.lines.next().expect("it goes on").expect("text");
            if let Some(name) = line.strip_prefix("event: ") {
                part = Some(name.to_owned());
            } else if let (Some(json), Some(name)) = (line.strip_prefix("data: "), part.take()) {
                let json = serde_json::from_str(json).expect("JSON");
                self.parts.insert(name, json);
            }
        }
    }
}

/// The state of a member in what a page shows.
fn state<'a>(parts: &'a BTreeMap<String, Value>, name: &str) -> Option<&'a str> {
    let members = parts.get("status")?["members"].as_array()?;
    members.iter().find(|m| m["name"] == name)?["state"].as_str()
}

#[test]
fn an_open_page_shows_a_kill_and_a_join() {
    let mut cluster = Cluster::of(BINARY, 3);
    let mut page = Page::open(&cluster, "n0");
    page.until(|parts| {
        let wanted = [
            "hello", "status", "map", "alerts", "moves", "loads", "hour", "sample",
        ];
        wanted.iter().all(|part| parts.contains_key(*part))
    });
    assert_eq!(page.parts["hello"]["role"], "operate");
    assert_eq!(state(&page.parts, "n2"), Some("live"));
    let map = &page.parts["map"];
    assert_eq!(map["members"].as_array().map(Vec::len), Some(3));
    let partitions = map["keyspaces"][0]["partitions"]
        .as_array()
        .expect("a list");
    for replicas in partitions {
        let replicas = replicas.as_array().expect("a list");
        assert!(!replicas.is_empty() && replicas.iter().all(|at| at.as_i64() < Some(3)));
    }
    // Every member keeps samples, and one answers for the others.
    page.until(|parts| {
        let of = &parts["sample"]["members"];
        ["n0", "n1", "n2"]
            .iter()
            .all(|name| of[*name]["memory_max"].as_u64() > Some(0))
    });

    cluster.kill("n2");
    page.until(|parts| state(parts, "n2") != Some("live"));
    page.until(|parts| {
        let alerts = parts["alerts"].as_array().expect("a list");
        alerts
            .iter()
            .any(|alert| alert["name"] == "DoyenMemberGone")
    });
    cluster.join("n3");
    page.until(|parts| state(parts, "n3") == Some("live"));
    page.until(|parts| parts["status"]["safe"] == true);
    let listed = |parts: &BTreeMap<String, Value>| parts["map"]["members"].to_string();
    page.until(|parts| listed(parts).contains("n3") && !listed(parts).contains("n2"));
}

/// The body of an answer.
fn read(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

/// The body of what n0 answers.
fn body(cluster: &Cluster, path: &str) -> String {
    read(request(cluster, "n0", path))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

#[test]
fn a_page_of_another_site_gets_no_stream() {
    let cluster = Cluster::of(BINARY, 1);
    for path in ["/console/stream", "/events?follow=true"] {
        let foreign = "Sec-Fetch-Site: cross-site\r\n";
        let answer = read(send(&cluster, "n0", &format!("GET {path}"), foreign, ""));
        assert!(
            answer.contains("a page of another site"),
            "{path}: {answer}"
        );
    }
}

#[test]
fn the_console_says_where_a_key_is_and_what_a_member_did() {
    let cluster = Cluster::of(BINARY, 2);
    let found: Value =
        serde_json::from_str(&body(&cluster, "/console/locate?key=user%3A42")).expect("JSON");
    assert_eq!(found["keyspace"], "default");
    assert_eq!(
        found["in_sync"].as_array().map(Vec::len),
        Some(2),
        "{found}"
    );
    let table: Value = serde_json::from_str(&body(&cluster, "/table")).expect("JSON");
    let partitions = table["keyspaces"][0]["partitions"]
        .as_array()
        .expect("a list");
    let of = partitions.iter().find(|p| p["id"] == found["partition"]);
    assert_eq!(of.expect("it exists")["primary"], found["in_sync"][0]);

    // Bytes that are no text, in another database: where a read of that key goes.
    let found = json(&body(
        &cluster,
        "/console/locate?key-base64=%2FwA%3D&database=3",
    ));
    assert_eq!(found["in_sync"].as_array().map(Vec::len), Some(2));
    let both = body(&cluster, "/console/locate?key=x&key-base64=eA==");
    assert!(both.contains("give the key once"), "{both}");

    let absent = body(&cluster, "/console/locate?key=x&keyspace=none");
    assert!(absent.contains("there is no keyspace `none`"), "{absent}");
    cluster.eventually("n1 has a sample", |cluster| {
        let hour = body(cluster, "/console/history?member=n1");
        let hour: Value = serde_json::from_str(&hour).expect("JSON");
        hour["seconds"] == 5 && hour["memory_max"][0].as_u64() > Some(0)
    });
    let absent = body(&cluster, "/console/history?member=n7");
    assert!(absent.contains("there is no member `n7`"), "{absent}");
}

#[test]
fn clients_and_slow_commands_of_any_member_are_listed() {
    let cluster = Cluster::of(BINARY, 2);
    let mut client = cluster.client("n1");
    let mut run = |words: &[&[u8]]| client.command(words).expect("a reply");
    run(&[b"CLIENT", b"SETNAME", b"probe"]);
    run(&[b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0"]);
    run(&[b"SET", b"user:42", b"secret"]);
    run(&[b"SELECT", b"3"]);
    cluster.eventually("n0 lists the client of n1", |cluster| {
        let list = json(&body(cluster, "/console/clients?member=n1"))["members"][0].clone();
        let clients = list["clients"].as_array().cloned().unwrap_or_default();
        let words = |slow: &Value| slow["words"].to_string();
        let slow = list["slow"].as_array().cloned().unwrap_or_default();
        let slow: Vec<String> = slow.iter().map(words).collect();
        let is_probe = |one: &Value| one["name"] == "probe" && one["database"] == 3;
        clients.iter().any(is_probe)
            // The operators' token may read values.
            && slow.contains(&r#"["SET","user:42","secret"]"#.to_owned())
    });
    let all = json(&body(&cluster, "/console/clients"));
    let counts: BTreeMap<_, _> = (all["members"].as_array().expect("a list").iter())
        .map(|one| {
            (
                one["name"].as_str(),
                one["clients"].as_array().map(Vec::len),
            )
        })
        .collect();
    let expected = [(Some("n0"), Some(0)), (Some("n1"), Some(1))];
    assert_eq!(counts, BTreeMap::from(expected), "{all}");
    let absent = body(&cluster, "/console/clients?member=n7");
    assert!(absent.contains("there is no member `n7`"), "{absent}");
}

/// All keys of a database, page by page.
fn listed(cluster: &Cluster, place: &str) -> BTreeMap<String, Value> {
    let (mut all, mut after) = (BTreeMap::new(), String::new());
    loop {
        let page = json(&body(cluster, &format!("/console/keys?{place}{after}")));
        for key in page["keys"].as_array().expect("a list") {
            all.insert(key["key"].to_string(), key.clone());
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return all,
        }
    }
}

#[test]
fn keys_are_browsed_and_changed_with_the_operators_token() {
    let cluster = Cluster::of(BINARY, 2);
    let mut client = cluster.client("n1");
    let mut run = |words: &[&[u8]]| client.command(words).expect("a reply");
    run(&[b"SELECT", b"3"]);
    run(&[b"SET", b"text", b"value", b"EX", b"1000"]);
    run(&[b"SET", b"\xFF", b"\xFE\x00"]);
    run(&[b"SADD", b"set", b"member"]);
    for field in 0..1000 {
        run(&[b"HSET", b"hash", format!("field-{field}").as_bytes(), b"v"]);
    }

    let keys = listed(&cluster, "database=3");
    let kinds: Vec<_> = keys.values().map(|key| key["type"].to_string()).collect();
    assert_eq!(
        kinds,
        ["\"hash\"", "\"set\"", "\"string\"", "\"string\""],
        "{keys:?}"
    );
    assert!(keys["\"text\""]["ttl_ms"].as_i64() > Some(900_000));
    assert_eq!(listed(&cluster, "database=3&prefix-base64=aA==").len(), 1);
    assert_eq!(listed(&cluster, "database=2").len(), 0);

    let value = |query: &str| {
        json(&body(
            &cluster,
            &format!("/console/value?database=3&{query}"),
        ))
    };
    assert_eq!(value("key=text")["value"], "value");
    let binary = value("key-base64=%2Fw==");
    assert_eq!(binary["value"]["base64"], "/gA=");
    assert_eq!(value("key=set")["items"][0]["field"], "member");
    let (mut fields, mut after) = (BTreeMap::new(), String::new());
    loop {
        let page = value(&format!("key=hash{after}"));
        assert_eq!(page["length"], 1000);
        for item in page["items"].as_array().expect("a list") {
            fields.insert(item["field"].to_string(), item["value"].to_string());
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(fields.len(), 1000);

    let change = |method: &str, change: &str| {
        let change = format!(r#"{{"keyspace": "default", "database": 3, {change}}}"#);
        let request = format!("{method} /console/key");
        read(send(&cluster, "n0", &request, "", &change))
    };
    assert_eq!(
        change("PUT", r#""key": "text", "value": "new""#),
        r#"{"written":true}"#
    );
    assert_eq!(value("key=text")["value"], "new");
    assert!(
        value("key=text")["ttl_ms"].as_i64() > Some(900_000),
        "its lifetime stays"
    );
    assert_eq!(
        change("PATCH", r#""key": "text", "ttl": "none""#),
        r#"{"changed":true}"#
    );
    assert_eq!(value("key=text")["ttl_ms"], Value::Null);
    assert_eq!(
        change("PATCH", r#""key": "set", "ttl": "1h""#),
        r#"{"changed":true}"#
    );
    assert!(value("key=set")["ttl_ms"].as_i64() > Some(3_000_000));
    assert_eq!(
        change("DELETE", r#""key-base64": "/w==""#),
        r#"{"deleted":true}"#
    );
    for (method, of, says) in [
        ("DELETE", r#""key-base64": "/w==""#, "there is no such key"),
        (
            "PUT",
            r#""key": "absent", "value": "x""#,
            "there is no such key",
        ),
        ("PUT", r#""key": "hash", "value": "x""#, "of another kind"),
        ("PATCH", r#""key": "text", "ttl": "soon""#, "soon"),
    ] {
        let answer = change(method, of);
        assert!(answer.contains(says), "{method} {of}: {answer}");
    }
    let audits = body(&cluster, "/events");
    assert!(
        audits.contains("DELETE /console/key in default/3"),
        "{audits}"
    );
    assert!(!audits.contains("/w=="), "no key is in the audit log");
}
