//! `doyen dev`: the cluster on this machine that the README begins with.

use rustix::process::{Pid, Signal};
use rustix::pty::{self, OpenptFlags};
use rustix::termios::Winsize;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts three nodes, with ports that nothing else has, and reads what it prints. `None`: one of
/// the ports is taken.
fn started(offset: u16) -> Option<(Child, BufReader<ChildStdout>, String)> {
    let mut child = Command::new(BINARY)
        .args(["dev", "--offset", &offset.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut text = String::new();
    while !text.contains("Ctrl-C stops the cluster") {
        if said.read_line(&mut text).expect("text") == 0 {
            let mut why = String::new();
            let mut errors = child.stderr.take().expect("it is piped");
            errors.read_to_string(&mut why).expect("text");
            assert!(why.contains("stop what has one of them"), "{why}");
            child.wait().expect("it has ended");
            return None;
        }
    }
    Some((child, said, text))
}

fn is_safe(http: &str) -> bool {
    let asked = Command::new(BINARY)
        .args(["status", "--json", "--http", http])
        .output()
        .expect("it starts");
    let status: Value = serde_json::from_slice(&asked.stdout).unwrap_or_default();
    let members = status["members"].as_array().map(Vec::len);
    status["safe"] == true && members == Some(3)
}

/// Waits until the cluster has three members and all data is safe.
fn until_safe(http: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !is_safe(http) {
        assert!(Instant::now() < deadline, "no safe cluster at {http}");
    }
}

fn signal(pid: Pid, signal: Signal) {
    rustix::process::kill_process(pid, signal).expect("it lives");
}

/// The process id in the row of this node.
fn pid_of(said: &str, node: &str) -> Pid {
    let row = said.lines().find(|line| line.starts_with(node));
    let pid = row.and_then(|row| row.split_whitespace().nth(1)?.parse().ok());
    pid.and_then(Pid::from_raw).expect("a process id")
}

/// Reads lines until one contains this.
fn read_until(said: &mut impl BufRead, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        assert!(said.read_line(&mut text).expect("text") > 0, "{text}");
    }
    text
}

/// `doyen top` on a terminal of 80 by 24, which shows the cluster and ends with `q`.
fn watch_top(http: &str) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let here = pty::openpt(flags).expect("a terminal");
    pty::grantpt(&here).expect("granted");
    pty::unlockpt(&here).expect("unlocked");
    let name = pty::ptsname(&here, Vec::new()).expect("it has a name");
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&here, size).expect("a size");
    let name = name.into_string().expect("a path");
    let there = File::options().read(true).write(true).open(name);
    let there = there.expect("the other end");
    let io = || Stdio::from(there.try_clone().expect("another handle"));
    let mut top = Command::new(BINARY)
        .args(["top", "--http", http])
        .stdin(io())
        .stdout(io())
        .stderr(io())
        .spawn()
        .expect("it starts");
    drop(there);
    let (mut here, mut shown) = (File::from(here), Vec::new());
    let shows = |shown: &[u8], word: &str| String::from_utf8_lossy(shown).contains(word);
    let mut part = [0; 4096];
    // Words, since spaces are not drawn.
    while !(shows(&shown, "coordinates;") && shows(&shown, "oldest")) {
        let count = here.read(&mut part).expect("it draws");
        assert!(count > 0 && shown.len() < 1 << 20);
        shown.extend_from_slice(&part[..count]);
    }
    here.write_all(b"q").expect("a key");
    // The end of the other side reads as an error.
    while here.read(&mut part).is_ok_and(|count| count > 0) {}
    assert!(top.wait().expect("it ends").success());
}

/// It waited for a cluster, and did not say so.
#[test]
fn a_node_does_not_join_where_no_cluster_runs() {
    // Below the ports that the system gives to clients, and above those of the other test.
    let offset = (20_000 + std::process::id() % 4_000).to_string();
    let failed = Command::new(BINARY)
        .args(["dev", "--join", "2", "--offset", &offset])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&failed.stderr);
    let remedy = format!("start the cluster first, with `doyen dev --offset {offset}`");
    assert!(!failed.status.success() && said.contains(&remedy), "{said}");
}

#[test]
fn dev_runs_a_cluster_whose_nodes_can_be_killed_and_started_again() {
    // Below the ports that the system gives to clients.
    let first = 2_000 + u16::try_from(std::process::id() % 15_000).expect("it is small");
    let mut offsets = (0..10).map(|n| first + 37 * n);
    let (offset, (mut child, mut rest, said)) = offsets
        .find_map(|offset| Some((offset, started(offset)?)))
        .expect("free ports");
    let http = format!("127.0.0.1:{}", 7480 + offset);
    assert!(said.contains(&format!("http://{http}\n")), "{said}");
    assert!(
        said.contains(&format!("doyen status --http {http}\n")),
        "{said}"
    );
    until_safe(&http);
    watch_top(&http);

    signal(pid_of(&said, "n2"), Signal::KILL);
    let ended = read_until(&mut rest, "To start it again:");
    let again = format!("doyen dev --join 2 --offset {offset}");
    assert!(
        ended.starts_with("n2 has ended: signal: 9") && ended.contains(&again),
        "{ended}"
    );
    let mut second = Command::new(BINARY)
        .args(again.split(' ').skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(second.stdout.take().expect("it is piped"));
    read_until(&mut said, "Ctrl-C stops it");
    until_safe(&http);

    signal(Pid::from_child(&child), Signal::INT);
    let mut last = String::new();
    rest.read_to_string(&mut last).expect("text");
    let status = child.wait().expect("it ends");
    let words = "stopping\nn2 joined by `doyen dev --join`, and did not end: press Ctrl-C there\n";
    assert!(status.success() && last == words, "{status}: {last}");
    assert!(
        std::net::TcpStream::connect(&http).is_err(),
        "the nodes end with it"
    );
    signal(Pid::from_child(&second), Signal::INT);
    assert!(second.wait().expect("it ends").success());
}

/// It used to blame the ports.
#[test]
fn a_wrong_flag_is_named() {
    let failed = Command::new(BINARY)
        .args(["dev", "--memory-max", "much"])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(
        !failed.status.success() && said.contains("--memory-max") && !said.contains("ports"),
        "{said}"
    );
}
