//! What strangers can do to a node: programs that reach its ports, and web pages in the browsers of
//! its users.

use crate::common::Node;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn doyen(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doyen"));
    for (variable, _) in
        std::env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("DOYEN_"))
    {
        command.env_remove(variable);
    }
    command.args(args).stdin(Stdio::null());
    command
}

fn run(more: &[&str]) -> Vec<String> {
    let ports = ["--listen", "--data", "--resp", "--resp-cluster", "--http"]
        .map(|port| [port, "127.0.0.1:0"])
        .concat();
    [&["run", "--exit-with-stdin"], &ports[..], more]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

fn node(more: &[&str]) -> Node {
    Node::start(doyen(&[]).args(run(more)).args(["--log", "error"]))
}

/// Runs a command. Returns its status, stdout and stderr.
fn ran(args: &[&str]) -> (i32, String, String) {
    let output = doyen(args).output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Sends a request with these lines, and returns the whole answer.
fn http(node: &Node, request: &str, lines: &[&str]) -> String {
    let mut stream = TcpStream::connect(node.address("http")).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let lines = lines
        .iter()
        .map(|line| format!("{line}\r\n"))
        .collect::<String>();
    stream
        .write_all(format!("{request} HTTP/1.1\r\nConnection: close\r\n{lines}\r\n").as_bytes())
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn status(node: &Node, request: &str, lines: &[&str]) -> u16 {
    let answer = http(node, request, lines);
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("no status: {answer}"))
}

fn file(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, text).expect("written");
    path.to_str().expect("a path").to_owned()
}

/// The reports that docs/http.md lists, but for those that need nothing. What is served is compared
/// with that page where it is described (`http/api.rs`).
fn documented_reports() -> Vec<String> {
    let page = include_str!("../../../../docs/http.md");
    let rows = page.lines().filter(|line| !line.ends_with("| none |"));
    let requests = rows.filter_map(|line| line.strip_prefix("| `GET ")?.split_once('`'));
    let paths = requests.map(|(request, _)| request.replace("NAME", "default"));
    let paths: Vec<String> = paths.collect();
    assert!(paths.len() > 15, "{paths:?}");
    paths
}

/// A web page whose name resolved to this machine could read a node's answers.
#[test]
fn a_web_page_gets_no_answers() {
    let node = node(&["--http-host", "ada.example"]);
    let at = node.address("http");
    for host in [at, "localhost", "ada.example:7480", "10.9.8.7"] {
        assert_eq!(
            status(&node, "GET /metrics", &[&format!("Host: {host}")]),
            200,
            "{host}"
        );
    }
    for path in ["/status", "/healthz", "/metrics", "/nothing"] {
        let said = http(&node, &format!("GET {path}"), &["Host: evil.example:7480"]);
        assert!(
            said.starts_with("HTTP/1.1 421 ") && said.contains("--http-host"),
            "{said}"
        );
        let foreign = http(
            &node,
            &format!("GET {path}"),
            &[&format!("Host: {at}"), "Origin: http://evil.example"],
        );
        assert!(
            foreign.starts_with("HTTP/1.1 403 ") && foreign.contains("Origin"),
            "{foreign}"
        );
    }
    assert_eq!(
        status(
            &node,
            "POST /recover",
            &[
                "Host: evil.example",
                "Authorization: Bearer loopback",
                "Content-Length: 0"
            ]
        ),
        421
    );
    // The command line resolves the name itself, and sends the address.
    let (_, port) = at.rsplit_once(':').expect("a port");
    let (code, out, said) = ran(&["status", "--http", &format!("localhost:{port}"), "--json"]);
    assert!(out.starts_with('{'), "{code}: {said}");
}

#[test]
fn a_node_with_a_secret_answers_only_probes_without_a_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let password = file(directory.path(), "password", "sesame");
    let secret = file(
        directory.path(),
        "secret",
        "f1c9a5d27b3e48600d9471be52a8c36f7e104db95a2fc88361e7bd0493a65c1e",
    );
    let other = file(
        directory.path(),
        "other",
        "0b7e92d14c6fa8353e01d9c7485ab26f91e3740cd85b6a2fe4170c93bd5826a9",
    );
    let node = node(&["--secret-file", &secret, "--resp-password-file", &password]);
    let at = node.address("http");
    let began = Instant::now();
    while status(&node, "GET /readyz", &[]) != 200 {
        assert!(began.elapsed() < PATIENCE, "it is no member of a cluster");
    }
    for path in documented_reports() {
        let said = http(&node, &format!("GET {path}"), &[]);
        assert!(
            said.starts_with("HTTP/1.1 401 ") && said.contains("--secret-file"),
            "{path}: {said}"
        );
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(&node, &format!("GET {path}"), &[]), 200, "{path}");
    }
    for command in [
        &["table"][..],
        &["status"],
        &["events", "--since", "0"],
        &["keyspace", "list"],
        &["restart-plan", "--print"],
        &["token", "list"],
        &["weight", "list"],
        &["acl", "list"],
        &["moves"],
        &["keyspace", "show", "default"],
        &["map", "list"],
        &["rebalance", "--plan"],
        &["rebalance", "status"],
    ] {
        let with = |more: &[&str]| ran(&[command, &["--http", at], more].concat());
        let (code, out, said) = with(&["--secret-file", &secret]);
        assert!(code == 0 && !out.is_empty(), "{command:?}: {code} {said}");
        for wrong in [&[][..], &["--secret-file", &other]] {
            let (code, out, said) = with(wrong);
            assert!(
                code == 1 && out.is_empty() && said.contains("--secret-file"),
                "{command:?} {wrong:?}: {code} {said}"
            );
        }
    }
    let simulated = ran(&[
        "simulate",
        "--from-cluster",
        at,
        "--secret-file",
        &secret,
        "--json",
    ]);
    assert_eq!((simulated.0, simulated.2.as_str()), (0, ""));
}

/// Without any credential, every program on the machine may ask, until there is a named token.
#[test]
fn an_open_node_closes_with_its_first_token_and_opens_again_with_its_last() {
    let node = node(&[]);
    let at = node.address("http");
    let began = Instant::now();
    while status(&node, "GET /readyz", &[]) != 200 {
        assert!(began.elapsed() < PATIENCE, "it is no member of a cluster");
    }
    let says = |token: &str| format!("Authorization: Bearer {token}");
    let pauses = |lines: &[&str]| {
        let mut lines = lines.to_vec();
        lines.push("Content-Length: 0");
        status(&node, "POST /moves/cancel", &lines)
    };
    assert_eq!(status(&node, "GET /table", &[]), 200);
    assert_eq!(status(&node, "GET /trust", &[]), 401);
    assert_eq!(status(&node, "GET /trust", &[&says("loopback")]), 200);
    // An empty body is wrong, which is looked at only after the token.
    assert_eq!((pauses(&[]), pauses(&[&says("loopback")])), (401, 400));

    let token = |words: &[&str]| ran(&[&["token"], words, &["--http", at]].concat());
    let (code, _, said) = token(&["new", "prometheus"]);
    assert!(code == 1 && said.contains("--role operate"), "{said}");
    let (code, out, said) = token(&["new", "deploy", "--role", "operate"]);
    assert!(code == 0 && said.contains("not shown again"), "{said}");
    let deploy = out.trim().to_owned();
    assert!(deploy.starts_with("doyen_") && deploy.len() == 49, "{out}");
    assert_eq!(status(&node, "GET /status", &[]), 401);
    assert_eq!(status(&node, "GET /trust", &[&says("loopback")]), 401);
    assert_eq!(status(&node, "GET /trust", &[&says(&deploy)]), 200);
    let said = ran(&["status", "--http", at]).2;
    assert!(said.contains("requires a token"), "{said}");

    let directory = tempfile::tempdir().expect("a directory");
    let path = file(directory.path(), "token", &deploy);
    let with = |words: &[&str]| token(&[words, &["--http-token-file", &path]].concat());
    let out = directory.path().join("prometheus");
    let out = out.to_str().expect("a path");
    assert_eq!(with(&["new", "prometheus", "--out", out]).0, 0);
    let (code, _, said) = with(&["new", "another", "--out", out]);
    assert!(code == 2 && said.contains("not overwritten"), "{said}");
    let (code, _, said) = with(&["new", "no name"]);
    assert!(code == 2 && said.contains("letters, digits"), "{said}");
    let read = fs::read_to_string(out).expect("a token");
    assert_eq!(status(&node, "GET /metrics", &[&says(read.trim())]), 200);
    assert_eq!(status(&node, "GET /table", &[&says(read.trim())]), 403);
    // Without it, no token could make changes.
    let (code, _, said) = with(&["revoke", "deploy"]);
    assert!(code == 1 && said.contains("revoke all others"), "{said}");
    for name in ["prometheus", "deploy"] {
        assert_eq!(with(&["revoke", name]).0, 0, "{name}");
    }
    assert_eq!(status(&node, "GET /table", &[]), 200);
    assert_eq!(status(&node, "GET /trust", &[&says(&deploy)]), 401);
}

/// A stolen token helps no web page: its name is judged before the token.
#[test]
fn a_web_page_with_a_token_gets_no_answers() {
    let directory = tempfile::tempdir().expect("a directory");
    let token = "a-token-of-an-operator";
    let path = file(directory.path(), "token", token);
    let node = node(&["--http-token-file", &path]);
    let own = format!("Host: {}", node.address("http"));
    let says = format!("Authorization: Bearer {token}");
    assert_eq!(status(&node, "GET /metrics", &[&own, &says]), 200);
    assert_eq!(status(&node, "GET /metrics", &[&own]), 401);
    let (foreign, page) = ("Host: evil.example", "Origin: http://evil.example");
    for request in ["GET /metrics", "POST /recover"] {
        assert_eq!(status(&node, request, &[foreign, &says]), 421, "{request}");
        assert_eq!(
            status(&node, request, &[&own, page, &says]),
            403,
            "{request}"
        );
    }
}

/// A byte every few seconds used to keep a connection for ever.
#[test]
fn a_request_whose_head_never_ends_or_is_long_is_closed() {
    let node = node(&[]);
    let mut long = TcpStream::connect(node.address("http")).expect("a connection");
    long.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // The node closes the connection before it has read everything, so its answer may be lost.
    let _ = long.write_all(
        format!(
            "GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n",
            "y".repeat(300 << 10)
        )
        .as_bytes(),
    );
    let mut answer = String::new();
    let _ = long.read_to_string(&mut answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
        "{answer}"
    );
    let mut stream = TcpStream::connect(node.address("http")).expect("a connection");
    stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout");
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nx: ")
        .expect("sent");
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "it is still open");
        let sent = stream.write_all(b"y");
        match stream.read(&mut [0; 256]) {
            Err(e)
                if sent.is_ok()
                    && matches!(
                        e.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ) => {}
            // An answer, the end of the stream, or a reset.
            Ok(_) | Err(_) => break,
        }
    }
    assert!(
        began.elapsed() > Duration::from_secs(5),
        "a person who types a request needs some seconds"
    );
}

/// While clients held all descriptors, no health check was answered, and the log grew by twenty
/// lines a second.
#[test]
fn health_is_answered_while_clients_hold_all_descriptors() {
    const CLIENTS: usize = 250;
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "ulimit -n 160 && exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_doyen"),
    ]);
    let node = Node::start(
        shell
            .args(run(&["--log", "warn"]))
            .stderr(log.reopen().expect("open")),
    );
    let resp = node.address("resp");
    let connect = || TcpStream::connect(resp).expect("a connection");
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect()).collect();
    let mut refused = 0;
    for client in &mut clients {
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let _ = client.write_all(b"PING\r\n");
        let mut answer = [0; 5];
        // A refused connection may be reset before the client reads the reason.
        refused += usize::from(client.read_exact(&mut answer).is_err() || &answer == b"-ERR ");
    }
    assert!(
        (50..CLIENTS).contains(&refused),
        "{refused} of {CLIENTS} were refused"
    );
    for _ in 0..20 {
        assert_eq!(status(&node, "GET /healthz", &[]), 200);
    }
    drop(clients);
    let began = Instant::now();
    loop {
        let mut client = connect();
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut answer = [0; 7];
        if client
            .write_all(b"PING\r\n")
            .and_then(|()| client.read_exact(&mut answer))
            .is_ok()
            && &answer == b"+PONG\r\n"
        {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "no client is taken any more");
    }
    let log = fs::read_to_string(log.path()).expect("a log");
    assert!(
        (1..=2).contains(&log.matches("are refused").count()),
        "{log}"
    );
}
