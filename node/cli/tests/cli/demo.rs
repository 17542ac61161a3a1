//! The demo is a promise to whoever tries Doyen first: it runs where there is no terminal, and
//! loses nothing.

use std::process::{Command, Stdio};

#[test]
fn the_demo_loses_nothing_and_says_so_in_its_last_line() {
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
    // The oldest stands first, in the next term; where this machine holds everybody up for longer
    // than that, it takes more of them.
    let (victim, after_kill) = said
        .split_once("SIGKILL to ")
        .and_then(|(_, rest)| rest.split_once(' '))
        .expect("a victim");
    let (first, second) = (coordinator(&said), coordinator(after_kill));
    assert!(second.0 != victim && second.1 > first.1, "{said}");
}

/// Who coordinates, and in which term, by the first line that says so.
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
