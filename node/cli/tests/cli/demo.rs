//! The demo is the first thing that a newcomer runs: it works without a terminal, and loses
//! nothing.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen");

#[test]
fn the_demo_loses_nothing_and_leaves_its_cluster_on_demand() {
    let mut demo = Command::new(BINARY)
        .args(["demo", "--seconds", "4", "--keep"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(demo.stdout.take().expect("it is piped"));
    let mut said = String::new();
    while !said.contains("\ndoyen top ") {
        if lines.read_line(&mut said).expect("text") == 0 {
            let mut complaint = String::new();
            let mut stderr = demo.stderr.take().expect("it is piped");
            stderr.read_to_string(&mut complaint).expect("text");
            panic!("{said}{complaint}");
        }
    }
    let figures = said.lines().find(|line| line.starts_with("acknowledged "));
    let figures = figures.expect("a line of figures");
    assert!(figures.contains("  lost 0  stale 0 of "), "{said}");
    // The command that it names shows the cluster that it left.
    let top = said.lines().last().expect("a last line");
    let asked = top.strip_prefix("doyen top ").expect("a command");
    let status = Command::new(BINARY)
        .arg("status")
        .args(asked.split(' '))
        .output()
        .expect("the binary runs");
    kill_process(Pid::from_child(&demo), Signal::INT).expect("it lives");
    assert!(demo.wait().expect("it ends").success());
    let shown = String::from_utf8_lossy(&status.stdout);
    assert!(
        status.status.success() && shown.contains(" live "),
        "{shown}"
    );

    // The oldest member stands for election first, in the next term. If this machine delays all
    // nodes for longer than that, the election takes more terms.
    let (victim, after_kill) = said
        .split_once("SIGKILL to ")
        .and_then(|(_, rest)| rest.split_once(' '))
        .expect("a victim");
    let (first, second) = (coordinator(&said), coordinator(after_kill));
    assert!(second.0 != victim && second.1 > first.1, "{said}");
}

/// The coordinator and the term of the first line that names them.
fn coordinator(said: &str) -> (&str, u64) {
    let line = said
        .lines()
        .find(|line| line.contains("coordinates, ") && line.contains(" in term "))
        .expect("a coordinator");
    // "  1.05 s  one cluster after 1.04 s: ada is ..." or "  2.95 s  boris (age 2, ..."
    let name = line.split_once(": ").map_or_else(
        || line.split_whitespace().nth(2),
        |(_, rest)| rest.split_whitespace().next(),
    );
    let term = line.split_once(" in term ").map(|(_, rest)| {
        rest.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
    });
    (
        name.expect("a name"),
        term.and_then(|digits| digits.parse().ok()).expect("a term"),
    )
}
