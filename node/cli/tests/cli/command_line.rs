//! A wrong command ends with one line that says what to do, and with a status that is not 0.

use crate::common::Node;
use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs the binary to its end. Returns its status and its stderr.
fn doyen(args: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doyen"));
    for (variable, _) in
        std::env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("DOYEN_"))
    {
        command.env_remove(variable);
    }
    let output = command
        .args(args)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Arguments that put every port on loopback, chosen by the system, and then those of the test.
fn run_with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["run"];
    if !more.contains(&"--log") {
        args.extend(["--log", "error"]);
    }
    for port in ["--listen", "--data", "--resp", "--resp-cluster", "--http"] {
        if !more.contains(&port) {
            args.extend([port, "127.0.0.1:0"]);
        }
    }
    args.extend(more);
    args
}

/// Checks that the configuration is refused with status 2.
fn wrong(args: &[&str], variables: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(refused(args, variables, expected), 2, "{args:?}");
}

fn refused(args: &[&str], variables: &[(&str, &str)], expected: &[&str]) -> i32 {
    let (status, said) = doyen(args, variables);
    assert_ne!(status, 0, "{args:?} was accepted: {said}");
    assert_eq!(
        said.trim_end().lines().count(),
        1,
        "{args:?} is not answered in one line: {said}"
    );
    assert!(said.starts_with("doyen: "), "{said}");
    for word in expected {
        assert!(
            said.contains(word),
            "{args:?}: `{word}` is missing in: {said}"
        );
    }
    status
}

fn node(more: &[&str]) -> Node {
    Node::start(
        Command::new(env!("CARGO_BIN_EXE_doyen"))
            .args(run_with(more))
            .arg("--exit-with-stdin"),
    )
}

#[test]
fn wrong_arguments_are_answered_in_one_line() {
    refused(&[], &[], &["doyen run", "--help"]);
    refused(&["fly"], &[], &["fly", "--help"]);
    refused(&["run", "--sead", "x"], &[], &["--sead", "--seed"]);
    refused(&["run", "--weight", "much"], &[], &["--weight", "much"]);
    refused(
        &["run", "--on-loss", "shrug"],
        &[],
        &["--on-loss", "reset:10m"],
    );
    refused(
        &["run", "--eviction", "lfu"],
        &[],
        &["--eviction", "none, lru, random or ttl"],
    );
    refused(
        &["keyspace", "create", "k", "--eviction", "lfu"],
        &[],
        &["--eviction", "none, lru, random or ttl"],
    );
    wrong(&["run", "--weight", "0"], &[], &["--weight", "at least 1"]);
    wrong(&["run", "--threads", "0"], &[], &["--threads 0", "1 to 16"]);
    wrong(
        &["run", "--threads", "17"],
        &[],
        &["--threads 17", "1 to 16"],
    );
    wrong(&["run", "--name", "n1~3"], &[], &["--name `n1~3`", "`~`"]);
    wrong(
        &["run", "--leave-timeout", "5"],
        &[],
        &["--leave-timeout", "no unit", "5s"],
    );
    wrong(
        &["run", "--silence-max", "100ms"],
        &[],
        &["--silence-max", "300ms", "6s"],
    );
    wrong(&["run", "--log", "nonsense=="], &[], &["--log", "info"]);
    let yaml = ["run", "--log-format", "yaml"];
    wrong(
        &yaml,
        &[],
        &["--log-format", "`yaml`", "text, json or journald"],
    );
    refused(&["demo", "--nodes", "1"], &[], &["--nodes"]);
    refused(&["recover", "--gone", "1/2"], &[], &["--assert-dead"]);
    let dead = ["recover", "--assert-dead", "n1", "--yes"];
    refused(&dead, &[], &["--gone", "N/VOTERS"]);
    for wrong in ["3", "1/", "/2", "a/2", "1/2/3", "+1/2", "99999/2"] {
        refused(
            &[&dead[..], &["--gone", wrong]].concat(),
            &[],
            &["such as 3/4"],
        );
    }
    for name in ["", ".", "..", "a/b"] {
        for command in [&["token", "new", name][..], &["token", "revoke", name]] {
            refused(command, &[], &["1 to 64 letters", "must not be . or .."]);
        }
    }
}

/// `ca.pem` lies beside the files with secrets, and was taken for a phrase.
#[test]
fn the_certificate_of_the_authority_is_no_secret() {
    let dir = tempfile::tempdir().expect("a directory");
    let secrets = dir.path().join("secret");
    let made = doyen(
        &["secret", "new", "--dir", secrets.to_str().expect("plain")],
        &[],
    );
    assert_eq!(made.0, 0, "{}", made.1);
    let ca = secrets.join("ca.pem");
    let ca = ca.to_str().expect("plain");
    for command in [
        &["secret", "show", ca][..],
        &run_with(&["--secret-file", ca]),
        &["status", "--secret-file", ca],
    ] {
        wrong(
            command,
            &[],
            &["ca.pem", "--http-ca", "member, client or operator"],
        );
    }
}

#[test]
fn a_variable_is_checked_like_a_flag() {
    refused(
        &run_with(&[]),
        &[("DOYEN_PARTITIONS", "1000")],
        &["--partitions", "power of two"],
    );
    refused(&run_with(&[]), &[("DOYEN_SECRET", "short")], &["16"]);
    refused(
        &run_with(&[]),
        &[("DOYEN_BACKUPS", "x")],
        &[
            "the variable DOYEN_BACKUPS",
            "--backups",
            "a whole number is expected",
        ],
    );
    refused(
        &run_with(&["--backups", "y"]),
        &[],
        &["--backups", "a whole number is expected"],
    );
    wrong(
        &run_with(&[]),
        &[("DOYEN_THREADS", "0")],
        &["--threads 0", "1 to 16"],
    );
}

#[test]
fn files_that_cannot_be_read_are_named() {
    refused(
        &run_with(&["--secret-file", "/nowhere/secret"]),
        &[],
        &["/nowhere/secret", "--secret-file"],
    );
    refused(
        &run_with(&["--config", "/nowhere/doyen.toml"]),
        &[],
        &["/nowhere/doyen.toml"],
    );
    refused(
        &run_with(&["--resp-password-file", "/"]),
        &[],
        &["--resp-password-file"],
    );
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("doyen.toml");
    std::fs::write(&path, "lissten = \"127.0.0.1:0\"\n").expect("written");
    refused(
        &["run", "--config", path.to_str().expect("a plain path")],
        &[],
        &["line 1", "`lissten`", "`listen`"],
    );
    let dir = dir.path().to_str().expect("a plain path");
    wrong(
        &run_with(&["--secret-file", dir]),
        &[],
        &["--secret-file", "directory"],
    );
    wrong(
        &run_with(&["--config", dir]),
        &[],
        &["--config", "directory"],
    );
}

#[test]
fn files_without_certificates_are_a_wrong_configuration() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("no.pem");
    std::fs::write(&path, "no certificate\n").expect("written");
    let path = path.to_str().expect("a plain path");
    wrong(
        &run_with(&["--tls-ca", path]),
        &[],
        &["--tls-cert", "--tls-key"],
    );
    wrong(
        &run_with(&[
            "--tls-ca",
            "/nowhere/ca",
            "--tls-cert",
            path,
            "--tls-key",
            path,
        ]),
        &[],
        &["/nowhere/ca", "--tls-ca"],
    );
    wrong(
        &run_with(&["--tls-ca", path, "--tls-cert", path, "--tls-key", path]),
        &[],
        &["no.pem"],
    );
}

#[test]
fn a_port_in_use_is_named_with_its_flag() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (tcp, udp) = (
        tcp.local_addr().expect("known").to_string(),
        udp.local_addr().expect("known").to_string(),
    );
    refused(
        &run_with(&["--listen", &udp]),
        &[],
        &[&udp, "--listen", "in use"],
    );
    refused(
        &run_with(&["--data", &udp]),
        &[],
        &[&udp, "--data", "in use"],
    );
    refused(
        &run_with(&["--resp", &tcp]),
        &[],
        &[&tcp, "--resp", "in use"],
    );
    refused(
        &run_with(&["--http", &tcp]),
        &[],
        &[&tcp, "--http", "in use"],
    );
    // The error must be the only line at every log level.
    refused(
        &run_with(&["--http", &tcp, "--log", "info"]),
        &[],
        &[&tcp, "--http", "in use"],
    );
}

/// The ports of further data threads follow those of the first.
#[test]
fn a_port_that_a_further_data_thread_needs_is_named_with_its_flag() {
    refused(
        &run_with(&["--threads", "3", "--data", "127.0.0.1:65534"]),
        &[],
        &["--data", "65534", "data thread 2"],
    );
    refused(
        &run_with(&["--threads", "2", "--resp-cluster", "127.0.0.1:65535"]),
        &[],
        &["--resp-cluster", "65535", "data thread 1"],
    );
}

#[test]
fn colliding_ports_of_one_node_are_named_with_both_flags() {
    let port = |number: u16| format!("127.0.0.1:{number}");
    let (first, second) = (port(7_600), port(7_601));
    let both = [
        "--threads",
        "2",
        "--resp-cluster",
        &first,
        "--resp",
        &second,
    ];
    refused(
        &run_with(&both),
        &[],
        &[
            "--resp-cluster of this node takes 2 ports from 7600 on",
            "choose another with --resp",
        ],
    );
    refused(
        &run_with(&["--resp", &first, "--http", &first]),
        &[],
        &["--resp of this node takes that port", "--http"],
    );
    refused(
        &run_with(&["--threads", "3", "--data", &first, "--listen", &port(7_602)]),
        &[],
        &["--data of this node", "--listen"],
    );
}

/// Commands that print without a node.
const PRINTING: [&[&str]; 4] = [
    &["version"],
    &["--help"],
    &["keyspace", "create", "--help"],
    &["simulate", "--nodes", "3"],
];

/// The status and stderr of a command with this stdout.
fn printing_to(stdout: impl Into<Stdio>, args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_doyen"))
        .args(args)
        .stdout(stdout)
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// Printing into a closed pipe used to panic with a backtrace.
#[test]
fn a_closed_pipe_ends_the_output() {
    for args in PRINTING {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = printing_to(writer, args);
        assert_eq!(ended, (Some(141), String::new()), "{args:?}");
    }
}

/// Regression: help that could not be written ended with status 0.
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for args in PRINTING {
        let full = File::options().write(true).open("/dev/full");
        let (status, said) = printing_to(full.expect("Linux has it"), args);
        assert_eq!(
            (status, said.lines().count()),
            (Some(1), 1),
            "{args:?}: {said}"
        );
        assert!(
            said.starts_with("doyen: cannot write to stdout: "),
            "{said}"
        );
    }
}

#[test]
fn unsafe_addresses_are_refused_with_a_remedy() {
    refused(
        &run_with(&["--listen", "0.0.0.0:0"]),
        &[],
        &["--secret-file"],
    );
    refused(
        &run_with(&["--resp", "0.0.0.0:0"]),
        &[],
        &["--resp-password-file"],
    );
    wrong(
        &run_with(&["--http", "0.0.0.0:0"]),
        &[],
        &["--http-token-file"],
    );
}

#[test]
fn a_node_that_does_not_listen_is_named() {
    // A port that was just free, so no process listens there.
    let free = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .to_string();
    refused(&["status", "--http", &free], &[], &[&free, "--http"]);
    refused(
        &["table", "--http", &free, "--json"],
        &[],
        &[&free, "--http"],
    );
    refused(
        &[
            "recover",
            "--assert-dead",
            "x",
            "--gone",
            "1/2",
            "--http",
            &free,
        ],
        &[],
        &[&free, "--http"],
    );
}

#[test]
fn a_port_that_does_not_speak_http_is_named_at_once() {
    let node = node(&[]);
    for port in ["resp", "resp-cluster"] {
        let started = Instant::now();
        refused(
            &["status", "--http", node.address(port)],
            &[],
            &[node.address(port), "--http"],
        );
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "{port}: {:?}",
            started.elapsed()
        );
    }
}

/// 256 connections that sent no request used to block all others.
#[test]
fn idle_connections_do_not_block_http() {
    let node = node(&[]);
    let http = node.address("http");
    let deadline = Instant::now() + Duration::from_secs(20);
    while doyen(&["status", "--http", http], &[]).0 != 0 {
        assert!(Instant::now() < deadline, "it is no member of a cluster");
    }
    let mut idle: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(http).expect("a connection"))
        .collect();
    assert_eq!(doyen(&["status", "--http", http], &[]).0, 0);
    // Connections that began a request and do not continue are closed as well, a little later.
    for stream in &mut idle {
        let _ = stream.write_all(b"GET /st");
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while doyen(&["status", "--http", http], &[]).0 != 0 {
        assert!(Instant::now() < deadline, "no request is served");
    }
}

#[test]
fn a_node_that_never_was_a_member_reports_no_loss() {
    let free = UdpSocket::bind("127.0.0.1:0")
        .and_then(|s| s.local_addr())
        .expect("a port")
        .to_string();
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_doyen"));
    let command = command
        .args(run_with(&["--seed", &free, "--log", "info"]))
        .stderr(log.reopen().expect("open"));
    let node = Node::start(command);
    // Scripts wait for a cluster by this status.
    let http = node.address("http");
    for look in ["status", "table"] {
        assert_eq!(
            doyen(&[look, "--http", http], &[]),
            (1, String::new()),
            "{look}: it answers, and there is no cluster yet"
        );
    }
    node.stop();
    let said = std::fs::read_to_string(log.path()).expect("its log");
    assert!(
        said.contains("part of no cluster") && !said.contains("are lost"),
        "{said}"
    );
}

#[test]
fn each_line_of_a_log_in_json_is_an_object() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_doyen"));
    let command = command
        .args(run_with(&["--log", "info", "--log-format", "json"]))
        .stderr(log.reopen().expect("open"));
    Node::start(command).stop();
    let said = std::fs::read_to_string(log.path()).expect("its log");
    let levels = said.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        let whole = ["timestamp", "message"]
            .map(text)
            .iter()
            .all(|text| !text.is_empty());
        assert!(whole && text("target").starts_with("doyen"), "{line}");
        text("level")
    });
    let levels: Vec<String> = levels.collect();
    // It says that it has no secret, and that it leaves.
    assert!(
        ["WARN", "INFO"]
            .iter()
            .all(|level| levels.iter().any(|l| l == level)),
        "{said}"
    );
}

/// What a node logs whose stderr systemd connected to this stream.
fn logged_to(named: impl FnOnce(&std::fs::Metadata) -> String, more: &[&str]) -> String {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let named = named(&log.as_file().metadata().expect("of a file"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_doyen"));
    let command = command
        .args(run_with(more))
        .env("JOURNAL_STREAM", named)
        .stderr(log.reopen().expect("open"));
    Node::start(command).stop();
    std::fs::read_to_string(log.path()).expect("its log")
}

#[test]
fn lines_for_journald_have_a_priority_and_no_time() {
    let stream = |log: &std::fs::Metadata| format!("{}:{}", log.dev(), log.ino());
    let said = logged_to(stream, &["--log", "info"]);
    // It warns that it has no secret, and says that it leaves.
    for level in ["<4>WARN ", "<6>INFO "] {
        assert!(said.lines().any(|line| line.starts_with(level)), "{said}");
    }
    assert!(said.lines().all(|line| line.starts_with('<')), "{said}");

    let begins = |said: &str, with: &str| said.lines().all(|line| line.starts_with(with));
    // The year of a time.
    let plain = logged_to(stream, &["--log", "info", "--log-format", "text"]);
    assert!(begins(&plain, "20"), "{plain}");
    let inherited = logged_to(|log| format!("{}:1", log.dev()), &["--log", "info"]);
    assert!(begins(&inherited, "20"), "{inherited}");
}
