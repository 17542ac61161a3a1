//! Whatever a person types wrong ends in one line that says what to do, and a status that is not 0.

use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Stdio};

/// Runs the binary to its end; returns its status and what it said on stderr.
fn doyen(args: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doyen"));
    for (variable, _) in std::env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("DOYEN_")) {
        command.env_remove(variable);
    }
    let output = command.args(args).envs(variables.iter().copied()).stdin(Stdio::null()).output().expect("the binary runs");
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Every port on loopback, chosen by the system, then whatever the test adds.
fn run_with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["run", "--log", "error"];
    for port in ["--listen", "--data", "--resp", "--resp-cluster", "--http"] {
        if !more.contains(&port) {
            args.extend([port, "127.0.0.1:0"]);
        }
    }
    args.extend(more);
    args
}

fn refused(args: &[&str], variables: &[(&str, &str)], expected: &[&str]) {
    let (status, said) = doyen(args, variables);
    assert_ne!(status, 0, "{args:?} was accepted: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{args:?} is not answered in one line: {said}");
    assert!(said.starts_with("doyen: "), "{said}");
    for word in expected {
        assert!(said.contains(word), "{args:?}: `{word}` is missing in: {said}");
    }
}

#[test]
fn wrong_words_are_answered_in_one_line() {
    refused(&[], &[], &["doyen run", "--help"]);
    refused(&["fly"], &[], &["fly", "--help"]);
    refused(&["run", "--sead", "x"], &[], &["--sead", "--seed"]);
    refused(&["run", "--weight", "much"], &[], &["--weight", "much"]);
    refused(&["run", "--on-loss", "shrug"], &[], &["--on-loss", "reset:60s"]);
    refused(&["demo", "--nodes", "1"], &[], &["--nodes"]);
    refused(&["recover"], &[], &["--assert-dead"]);
}

#[test]
fn a_variable_is_checked_as_a_flag_is() {
    refused(&run_with(&[]), &[("DOYEN_PARTITIONS", "1000")], &["--partitions", "power of two"]);
    refused(&run_with(&[]), &[("DOYEN_SECRET", "short")], &["16"]);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    refused(&run_with(&["--secret-file", "/nowhere/secret"]), &[], &["/nowhere/secret", "--secret-file"]);
    refused(&run_with(&["--config", "/nowhere/doyen.toml"]), &[], &["/nowhere/doyen.toml"]);
    refused(&run_with(&["--resp-password-file", "/"]), &[], &["--resp-password-file"]);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("doyen.toml");
    std::fs::write(&path, "lissten = \"127.0.0.1:0\"\n").expect("written");
    refused(&["run", "--config", path.to_str().expect("a plain path")], &[], &["line 1", "lissten"]);
}

#[test]
fn a_port_in_use_is_named_with_its_flag() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (tcp, udp) = (tcp.local_addr().expect("known").to_string(), udp.local_addr().expect("known").to_string());
    refused(&run_with(&["--listen", &udp]), &[], &[&udp, "--listen", "in use"]);
    refused(&run_with(&["--data", &udp]), &[], &[&udp, "--data", "in use"]);
    refused(&run_with(&["--resp", &tcp]), &[], &[&tcp, "--resp", "in use"]);
    refused(&run_with(&["--http", &tcp]), &[], &[&tcp, "--http", "in use"]);
}

#[test]
fn what_is_unsafe_is_refused_with_what_to_do() {
    refused(&run_with(&["--listen", "0.0.0.0:0"]), &[], &["--secret-file"]);
    refused(&run_with(&["--resp", "0.0.0.0:0"]), &[], &["--resp-password-file"]);
}

#[test]
fn nobody_there_to_ask_is_said_so() {
    // A port that was just free: nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").to_string();
    refused(&["status", "--http", &free], &[], &[&free, "--http"]);
    refused(&["table", "--http", &free, "--json"], &[], &[&free, "--http"]);
    refused(&["recover", "--assert-dead", "x", "--http", &free], &[], &[&free, "--http"]);
}
