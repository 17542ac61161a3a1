//! `doyen doctor` finds what was made wrong on purpose, with real processes.

use crate::common::Node;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// No question may take longer, whatever does not answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// Ports that the system chooses.
const PORTS: &str = "data = \"127.0.0.1:0\"\nresp = \"127.0.0.1:0\"\n\
                     resp-cluster = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n";

fn clean(mut command: Command) -> Command {
    for (variable, _) in
        std::env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("DOYEN_"))
    {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

fn doyen(args: &[&str]) -> Command {
    let mut command = clean(Command::new(env!("CARGO_BIN_EXE_doyen")));
    command.args(args);
    command
}

/// The arguments of a node on ports that the system chooses.
fn run<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let own = ["run", "--exit-with-stdin", "--log", "error", "--name", name];
    let ports = ["--listen", "--data", "--resp", "--resp-cluster", "--http"];
    let ports = ports.map(|port| [port, "127.0.0.1:0"]).concat();
    [&own[..], &ports, more].concat()
}

fn node(name: &str, more: &[&str]) -> Node {
    Node::start(&mut doyen(&run(name, more)))
}

/// What `doyen doctor` ends with and prints.
fn doctor(args: &[&str]) -> (i32, String) {
    let began = Instant::now();
    let output = doyen(&[&["doctor"], args].concat()).output();
    let output = output.expect("the binary runs");
    assert!(
        began.elapsed() < DEADLINE,
        "{args:?} took {:?}",
        began.elapsed()
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.is_empty(), "{args:?}: {why}");
    (output.status.code().unwrap_or(-1), said)
}

/// Its report as JSON. The status agrees with the verdict.
fn report(args: &[&str]) -> Value {
    let (status, said) = doctor(&[args, &["--json"]].concat());
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let verdict = report["verdict"].as_str().expect("a verdict");
    let is_wrong = ["critical", "warning"].contains(&verdict);
    assert_eq!(status, i32::from(is_wrong), "{verdict}");
    report
}

/// Verdicts and texts of a check, with its remedies.
fn found(report: &Value, check: &str) -> Vec<(String, String)> {
    let all = report["findings"].as_array().expect("findings").iter();
    let of = all.filter(|finding| finding["check"] == check);
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let of = of.map(|finding| {
        let said = text(finding, "text") + " -> " + &text(finding, "remedy");
        (text(finding, "verdict"), said)
    });
    of.collect()
}

/// The one finding of a check has this verdict and this text.
fn assert_found(report: &Value, check: &str, verdict: &str, text: &str) {
    let of = found(report, check);
    let is_there = |(v, said): &(String, String)| v == verdict && said.contains(text);
    assert!(
        of.len() == 1 && is_there(&of[0]),
        "{check}: {verdict}: {text}: {of:?}"
    );
}

fn await_safe(node: &Node) {
    let waited = doyen(&[
        "wait",
        "safe",
        "--timeout",
        "60s",
        "--http",
        node.address("http"),
    ]);
    let status = { waited }.stdout(Stdio::null()).status();
    assert!(status.expect("the binary runs").success(), "it is not safe");
}

fn file(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, text).expect("written");
    path.to_str().expect("a path").to_owned()
}

#[test]
fn a_node_that_may_open_few_files_is_named_with_the_remedy() {
    let args = run("ada", &["--connections-max", "1000"]);
    let mut shell = clean(Command::new("sh"));
    shell.args([
        "-c",
        "ulimit -n 300 && exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_doyen"),
    ]);
    let node = Node::start(shell.args(args));
    await_safe(&node);
    let at = ["--http", node.address("http")];
    let seen = report(&at);
    let remedy = "LimitNOFILE=1256";
    assert_found(&seen, "open-files", "warning", remedy);
    assert_found(&seen, "open-files", "warning", "300 open files");
    for (check, text) in [
        ("answers", "1 member answered"),
        ("membership", "ada coordinates"),
        ("threads", "all threads answer"),
        ("certificates", ""),
        ("swap", ""),
    ] {
        assert_found(&seen, check, "fine", text);
    }
    assert_found(&seen, "round-trips", "unseen", "no connection");
    assert_eq!(seen["members"][0]["machine"]["files_max"], 300);

    let (status, text) = doctor(&at);
    assert_eq!(status, 1);
    assert!(
        text.contains("warning   open-files at ada: the system allows 300"),
        "{text}"
    );
    assert!(text.trim_end().ends_with("your question."), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}

#[test]
fn a_port_that_is_taken_and_a_seed_that_does_not_resolve_are_found_before_a_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = file(directory.path(), "doyen.toml", PORTS);
    let here = ["--here", "--config", &config];
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let taken = taken
        .local_addr()
        .map(|at| (at.to_string(), taken))
        .expect("bound");
    let listen = ["--listen", &taken.0, "--seed", "no-such-host.invalid:7400"];
    let seen = report(&[&here[..], &listen].concat());
    assert_found(&seen, "ports", "critical", "the port is in use");
    assert_found(
        &seen,
        "seeds",
        "warning",
        "getent hosts no-such-host.invalid",
    );
    assert_found(&seen, "data-ports", "unseen", "start it");

    let free = ["--listen", "127.0.0.1:0"];
    let seen = report(&[&here[..], &free].concat());
    assert_found(&seen, "ports", "fine", "");
    assert_found(&seen, "seeds", "fine", "no seeds");
}

#[test]
fn more_memory_than_there_is_is_found_before_a_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = file(directory.path(), "doyen.toml", PORTS);
    let options = ["--listen", "127.0.0.1:0", "--memory-max", "100000gb"];
    let seen = report(&[&["--here", "--config", &config], &options[..]].concat());
    assert_found(&seen, "memory", "warning", "--memory-max");
}

#[test]
fn seeds_of_another_secret_refuse_and_those_of_the_same_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let secret = |name: &str| {
        let at = directory.path().join(name).display().to_string();
        let made = doyen(&["secret", "new", "--dir", &at]).output();
        assert!(made.expect("the binary runs").status.success());
        format!("{at}/member")
    };
    let (ours, theirs) = (secret("ours"), secret("theirs"));
    let node = node("ada", &["--secret-file", &ours]);
    let config = file(directory.path(), "doyen.toml", PORTS);
    let tried = |secret: &str| {
        let options = ["--listen", "127.0.0.1:0", "--secret-file", secret];
        let seed = ["--seed", node.address("listen")];
        report(&[&["--here", "--config", &config], &options[..], &seed].concat())
    };
    assert_found(
        &tried(&theirs),
        "control-ports",
        "critical",
        "the same --secret-file",
    );
    assert_found(&tried(&ours), "control-ports", "fine", "1 seed answers");
}

#[test]
fn without_a_node_the_machine_is_examined_and_a_seed_that_is_silent_is_found() {
    let closed = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let closed = closed.local_addr().expect("bound").to_string();
    // No process listens on port 1.
    let seen = report(&["--http", "127.0.0.1:1", "--seed", &closed]);
    assert_found(
        &seen,
        "answers",
        "critical",
        "no node answers at 127.0.0.1:1",
    );
    assert_found(&seen, "control-ports", "warning", &closed);
    assert_eq!(found(&seen, "processors").len(), 1);
    // Other machines are not examined by this one.
    let seen = report(&["--http", "localhost.invalid:7480"]);
    assert_eq!(seen["findings"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_member_that_is_stopped_is_found_and_nothing_hangs() {
    let ada = node("ada", &[]);
    let boris = node("boris", &["--seed", ada.address("listen")]);
    await_safe(&boris);
    await_safe(&ada);
    let http = ada.address("http");
    let seen = report(&["--http", http]);
    assert_found(&seen, "answers", "fine", "2 members answered");
    assert_found(&seen, "clocks", "fine", "s apart at most");
    assert_found(&seen, "versions", "fine", "ada, boris");
    let of_both = |check: &str| {
        let all = found(&seen, check);
        assert_eq!(all.len(), 2, "{check}: {all:?}");
        assert!(
            all.iter().all(|(verdict, _)| verdict == "fine"),
            "{check}: {all:?}"
        );
    };
    ["data-ports", "control-ports", "round-trips", "relay", "mtu"]
        .into_iter()
        .for_each(of_both);

    let pid = i32::try_from(boris.id()).ok().and_then(Pid::from_raw);
    let pid = pid.expect("an id");
    kill_process(pid, Signal::STOP).expect("it is ours");
    let seen = report(&["--http", http]);
    // It may be expelled meanwhile: then it is gone.
    let mut wrong = found(&seen, "answers");
    wrong.extend(found(&seen, "alert"));
    let is_missed = |(verdict, said): &&(String, String)| {
        verdict != "fine" && (said.contains("DoyenMemberGone: boris") || said.contains("answers"))
    };
    assert!(wrong.iter().any(|f| is_missed(&f)), "{wrong:?}");
}

#[test]
fn a_member_that_speaks_less_is_an_unfinished_upgrade() {
    let (least, _) = doyen_placement::level::LEVELS;
    let ada = node("ada", &["--level-max", &least.to_string()]);
    await_safe(&ada);
    let boris = node("boris", &["--seed", ada.address("listen")]);
    await_safe(&boris);
    let seen = report(&["--http", boris.address("http")]);
    assert_found(&seen, "versions", "warning", "doyen restart-plan");
}
