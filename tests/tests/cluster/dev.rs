//! `doyen dev`: the cluster on this machine that the README begins with.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts two nodes, with ports that nothing else has, and reads what it prints. `None`: one of the
/// ports is taken.
fn started(offset: u16) -> Option<(Child, BufReader<ChildStdout>, String)> {
    let mut child = Command::new(BINARY)
        .args(["dev", "--nodes", "2", "--offset", &offset.to_string()])
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
    status["safe"] == true && members == Some(2)
}

#[test]
fn dev_runs_a_cluster_until_it_is_interrupted() {
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
    let deadline = Instant::now() + PATIENCE;
    while !is_safe(&http) {
        assert!(Instant::now() < deadline, "no safe cluster:\n{said}");
    }

    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
    let mut last = String::new();
    rest.read_to_string(&mut last).expect("text");
    let status = child.wait().expect("it ends");
    assert!(status.success() && last == "stopping\n", "{status}: {last}");
    assert!(
        std::net::TcpStream::connect(&http).is_err(),
        "the nodes end with it"
    );
}
