//! The demo is the first thing that a newcomer runs: it works without a terminal, and loses
//! nothing.

use std::process::{Command, Stdio};

#[test]
fn the_demo_loses_nothing_and_its_last_line_shows_it() {
    let demo = Command::new(env!("CARGO_BIN_EXE_doyen"))
        .args(["demo", "--seconds", "4"])
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&demo.stdout);
    let complaint = String::from_utf8_lossy(&demo.stderr);
    assert!(demo.status.success(), "{said}{complaint}");
    let last = said.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("acknowledged ") && last.contains("  lost 0  stale 0 of "),
        "{said}{complaint}"
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
