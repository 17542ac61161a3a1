//! `doyen bench` against real nodes: every kind of load gets answers and no errors. Speed is not
//! tested.

use crate::common::{doyen, node, serving};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Runs a short benchmark. Returns its status, stdout and stderr.
fn bench(resp: &str, more: &str) -> (i32, String, String) {
    let mut command = doyen(&["bench", "--resp", resp]);
    for (flag, value) in [
        ("--seconds", "1"),
        ("--warmup", "0.1"),
        ("--keys", "1000"),
        ("--connections", "6"),
    ] {
        if !more.contains(flag) {
            command.args([flag, value]);
        }
    }
    // The template's words are joined by no-break spaces, so that they stay one argument.
    let output = command
        .args(more.split(' ').filter(|word| !word.is_empty()))
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn report(resp: &str, more: &str) -> Value {
    let (status, out, said) = bench(resp, &format!("{more} --json"));
    assert_eq!((status, said.as_str()), (0, ""), "{more}");
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{more}: {e}: {out}"))
}

/// Checks that some operations were done, and that none of them failed.
fn went_well(resp: &str, more: &str) -> Value {
    let report = report(resp, more);
    assert!(
        report["operations"].as_u64().is_some_and(|n| n > 0),
        "{more}: {report}"
    );
    assert_eq!(report["errors"], serde_json::json!({}), "{more}");
    report
}

/// Checks that the command ends with this status and one line on stderr with these words.
fn refused(resp: &str, more: &str, status: i32, words: &[&str]) {
    let (ended, _, said) = bench(resp, more);
    assert!(
        ended == status && said.trim_end().lines().count() == 1 && said.starts_with("doyen: "),
        "{more}: {ended}: {said}"
    );
    for word in words {
        assert!(
            said.contains(word),
            "{more}: `{word}` is missing in: {said}"
        );
    }
}

#[test]
fn every_kind_of_load_is_answered() {
    let node = serving(&[]);
    let (plain, cluster) = (node.address("resp"), node.address("resp-cluster"));
    let empty = went_well(plain, "--operation get");
    assert_eq!(
        (empty["operation"].as_str(), empty["hits"].as_u64()),
        (Some("get"), Some(0))
    );
    went_well(plain, "--operation set --value-bytes 100000 --in-flight 4");
    let filled = went_well(plain, "--operation get --fill --in-flight 8 --batch");
    assert_eq!(filled["hits"], filled["operations"]);
    went_well(
        plain,
        "--operation mixed --reads 50 --distribution zipf --threads 2",
    );
    went_well(cluster, "--operation mixed --cluster --fill --in-flight 4");
    went_well(plain, "--command-get EXISTS\u{a0}{key} --threads 3");
    let open = went_well(plain, "--rate 500");
    let operations = open["operations"].as_u64().expect("a number");
    // Replies to operations that started during the warm-up count as well.
    assert!(
        (400..=600).contains(&(operations + open["behind"].as_u64().expect("a number"))),
        "{open}"
    );
}

/// They stayed, in the database against which the command was tried.
#[test]
fn keys_of_a_benchmark_are_deleted_in_the_end_unless_they_are_kept() {
    let node = serving(&[]);
    let (plain, cluster) = (node.address("resp"), node.address("resp-cluster"));
    let mut client = TcpStream::connect(plain).expect("its port is open");
    let mut replies = BufReader::new(client.try_clone().expect("a socket"));
    let mut ask = |command: &str| {
        client.write_all(command.as_bytes()).expect("it listens");
        let mut reply = String::new();
        replies.read_line(&mut reply).expect("it answers");
        reply
    };
    assert_eq!(ask("SET mine 1\r\n"), "+OK\r\n");
    for more in [
        "--operation get --fill --threads 2",
        "--operation set --rate 500 --threads 2",
    ] {
        went_well(plain, more);
        assert_eq!(ask("DBSIZE\r\n"), ":1\r\n", "{more}");
    }
    went_well(plain, "--operation get --fill --keep");
    assert_eq!(ask("DBSIZE\r\n"), ":1001\r\n");
    let read = went_well(plain, "--operation get");
    assert_eq!(read["hits"], read["operations"]);
    assert_eq!(ask("DBSIZE\r\n"), ":1001\r\n", "it wrote nothing");
    went_well(cluster, "--cluster --operation mixed");
    assert_eq!(ask("DBSIZE\r\n"), ":1\r\n");
    let (status, _, said) = native(node.address("data"), "--operation set --fill");
    assert_eq!(status, 0, "{said}");
    let size = doyen(&["map", "show", "bench", "--json", "--http"])
        .arg(node.address("http"))
        .output()
        .expect("the binary runs");
    let size: Value = serde_json::from_slice(&size.stdout).expect("JSON");
    assert_eq!(size["entries"], 0, "{size}");
}

/// Runs a short benchmark through the native client. Returns its status, stdout and stderr.
fn native(data: &str, more: &str) -> (i32, String, String) {
    let mut command = doyen(&["bench", "--native", "--data", data]);
    for (flag, value) in [
        ("--seconds", "1"),
        ("--warmup", "0.1"),
        ("--keys", "1000"),
        ("--connections", "6"),
    ] {
        if !more.contains(flag) {
            command.args([flag, value]);
        }
    }
    let output = command
        .args(more.split_whitespace())
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn every_kind_of_load_goes_through_the_native_client() {
    let node = serving(&[]);
    let went_well = |more: &str| -> Value {
        let (status, out, said) = native(node.address("data"), &format!("{more} --json"));
        assert_eq!((status, said.as_str()), (0, ""), "{more}");
        let report: Value =
            serde_json::from_str(&out).unwrap_or_else(|e| panic!("{more}: {e}: {out}"));
        assert!(
            report["operations"].as_u64().is_some_and(|n| n > 0),
            "{more}: {report}"
        );
        assert_eq!(report["errors"], serde_json::json!({}), "{more}");
        report
    };
    assert_eq!(went_well("--operation get")["hits"], 0);
    went_well("--operation set --value-bytes 100000 --in-flight 4 --map other");
    let filled = went_well("--operation get --fill --in-flight 8 --batch --threads 2");
    assert_eq!(filled["hits"], filled["operations"]);
    went_well("--operation mixed --reads 50 --distribution zipf --in-flight 20");
    let open = went_well("--rate 500");
    let operations =
        open["operations"].as_u64().expect("a number") + open["behind"].as_u64().expect("a number");
    assert!((400..=600).contains(&operations), "{open}");
    let (_, out, _) = native(node.address("data"), "");
    assert!(
        out.contains("through the native client") && out.contains("p99.99"),
        "{out}"
    );
}

#[test]
fn a_map_is_shown_limited_and_dropped_by_its_name() {
    let node = serving(&[]);
    let (status, _, said) = native(node.address("data"), "--operation set --fill --keep");
    assert_eq!(status, 0, "{said}");
    let map = |args: &[&str]| {
        let output = doyen(&["map"])
            .args(args)
            .args(["--http", node.address("http")])
            .output();
        let output = output.expect("the binary runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let shown = |name: &str| {
        let (_, out, said) = map(&["show", name, "--json"]);
        serde_json::from_str::<Value>(&out).unwrap_or_else(|e| panic!("{e}: {out}{said}"))
    };
    assert_eq!(
        (&shown("bench")["entries"], &shown("bench")["kind"]),
        (&1000.into(), &"map".into())
    );
    let (done, out, _) = map(&[
        "limits",
        "bench",
        "--max-entries",
        "5000",
        "--max-idle",
        "1h",
    ]);
    assert!(
        done == Some(0) && out.contains("the limits of map \"bench\" are set"),
        "{out}"
    );
    let limits = serde_json::json!({ "max_entries": 5000, "eviction": "lfu", "max_idle": "1h" });
    assert_eq!(shown("bench")["limits"], limits);
    for (args, status, why) in [
        (
            &["limits", "bench"][..],
            2,
            "say what to limit: --max-entries",
        ),
        (
            &["limits", "bench", "--max-entries", "10"],
            2,
            "holds 1000 entries",
        ),
        (
            &["limits", "bench", "--max-entries", "0"],
            2,
            "would keep nothing",
        ),
        (&["drop", "bench"], 2, "add --yes"),
        (&["drop", "none", "--yes"], 1, "no map"),
        (&["show", "none"], 1, "`doyen map list`"),
    ] {
        let (code, out, said) = map(args);
        assert!(
            code == Some(status) && said.contains(why),
            "{args:?}: {code:?} {out}{said}"
        );
    }
    let (done, out, _) = map(&["drop", "bench", "--yes"]);
    assert_eq!(
        (done, out.as_str()),
        (Some(0), "map \"bench\" is dropped\n")
    );
    let (_, out, _) = map(&["list"]);
    assert!(!out.contains("bench"), "{out}");
}

#[test]
fn errors_of_the_native_client_are_one_line() {
    let refused = |data: &str, more: &str, status: i32, words: &[&str]| {
        let (ended, _, said) = native(data, more);
        assert!(
            ended == status && said.trim_end().lines().count() == 1 && said.starts_with("doyen: "),
            "{more}: {ended}: {said}"
        );
        assert!(
            words.iter().all(|word| said.contains(word)),
            "{more}: {said}"
        );
    };
    let node = serving(&["--value-max", "10kb"]);
    let data = node.address("data");
    refused("127.0.0.1:1", "", 1, &["127.0.0.1:1", "--data"]);
    refused(node.address("listen"), "", 1, &["control port", "--data"]);
    refused(
        data,
        "--secret-file /no/file",
        2,
        &["/no/file", "--secret-file"],
    );
    refused(data, "--cluster", 2, &["--cluster", "--native"]);
    refused(
        data,
        "--operation set --value-bytes 20000",
        1,
        &["no operation succeeded", "TooLarge"],
    );
}

#[test]
fn the_text_is_one_block() {
    let node = serving(&[]);
    let (status, out, said) = bench(node.address("resp"), "--fill");
    assert_eq!((status, said.as_str()), (0, ""));
    for word in [
        "mixed (80 % reads), 1000 keys",
        "throughput",
        "hits",
        "errors",
        "p99.99",
        "longest stall",
        "below",
    ] {
        assert!(out.contains(word), "`{word}` is missing in: {out}");
    }
}

#[test]
fn wait_counts_writes_that_copies_have() {
    let one = node(&["--members-min", "2"]);
    let two = node(&["--members-min", "2", "--seed", one.address("listen")]);
    // Until the nodes have found each other, writes find no owner, or too few copies.
    let deadline = Instant::now() + Duration::from_secs(30);
    while bench(
        two.address("resp"),
        "--operation set --seconds 0.1 --wait 1 --json",
    )
    .0 != 0
    {
        assert!(Instant::now() < deadline, "two nodes are no cluster");
    }
    went_well(
        two.address("resp"),
        "--operation set --wait 1 --in-flight 4",
    );
    went_well(
        one.address("resp-cluster"),
        "--operation mixed --wait 1 --cluster",
    );
    refused(
        one.address("resp"),
        "--operation set --wait 2",
        1,
        &["WAIT", "1 copies, not 2"],
    );
}

/// Other users of a machine can see command lines.
#[test]
fn the_password_comes_from_a_file_or_the_environment() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"sesame\n").expect("written");
    let path = file.path().to_str().expect("a path");
    let node = node(&["--resp-password-file", path]);
    let target = [
        "bench",
        "--resp",
        node.address("resp"),
        "--seconds",
        "0.1",
        "--warmup",
        "0",
        "--keys",
        "10",
        "--connections",
        "2",
    ];
    let run = |more: &[&str], variables: &[(&str, &str)]| {
        let output = doyen(&target)
            .args(more)
            .envs(variables.iter().copied())
            .output()
            .expect("the binary runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while run(&["--password-file", path], &[]).0 != Some(0) {
        assert!(
            Instant::now() < deadline,
            "{:?}",
            run(&["--password-file", path], &[])
        );
    }
    assert_eq!(
        run(&[], &[("DOYEN_BENCH_PASSWORD", "sesame")]),
        (Some(0), String::new())
    );
    for (variables, expected) in [
        (&[("DOYEN_BENCH_PASSWORD", "wrong")][..], "--password-file"),
        (&[], "NOAUTH"),
    ] {
        let (status, said) = run(&[], variables);
        assert!(status == Some(1) && said.contains(expected), "{said}");
    }
}

#[test]
fn impossible_loads_are_refused_in_one_line() {
    let free = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .to_string();
    refused(&free, "", 1, &[&free, "--resp"]);
    refused(&free, "--cluster", 1, &[&free, "--resp"]);
    refused(
        "nowhere.invalid:1",
        "",
        2,
        &["cannot resolve `nowhere.invalid`", "--resp"],
    );
    refused(&free, "--rate 0", 2, &["--rate"]);
    refused(&free, "--command-get PING", 2, &["--command-get", "{key}"]);
    refused(&free, "--operation delete", 2, &["delete", "mixed"]);
    let node = serving(&[]);
    refused(
        node.address("http"),
        "",
        1,
        &[node.address("http"), "--resp"],
    );
    refused(node.address("resp"), "--password wrong", 2, &["--password"]);
    refused(
        node.address("resp"),
        "--password-file /nowhere",
        2,
        &["/nowhere", "--password-file"],
    );
    refused(
        node.address("resp"),
        "--command-get FLY\u{a0}{key} --operation get",
        1,
        &["no operation succeeded", "FLY"],
    );
}

#[test]
fn a_server_that_goes_away_ends_the_run() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("known").to_string();
    let server = std::thread::spawn(move || {
        // The server answers once, then closes the connection.
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"+OK\r\n");
    });
    refused(&at, "--connections 1", 1, &[&at, "lost the server"]);
    server.join().expect("it ends");
}

/// A server that answers each read with what `answer` returns, on one connection after the other.
fn server(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("known").to_string();
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 1024];
            while let Ok(n @ 1..) = stream.read(&mut asked) {
                let _ = stream.write_all(answer(&String::from_utf8_lossy(&asked[..n])).as_bytes());
            }
        }
    });
    at
}

#[test]
fn a_key_that_moved_is_asked_for_at_its_new_owner() {
    let new = server(|_| "$1\r\nv\r\n".to_owned());
    let moved = format!(
        "-MOVED {} {new}\r\n",
        doyen_placement::hash::slot(b"key:000000000000")
    );
    let old = server(move |_| moved.clone());
    let port = old.rsplit(':').next().expect("a port").to_owned();
    // The server of the first request knows only the old owner.
    let front = server(move |_| format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:{port}\r\n"));
    let report = went_well(&front, "--cluster --keys 1 --connections 1 --operation get");
    assert_eq!(report["hits"], report["operations"]);
}
