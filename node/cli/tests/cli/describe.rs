//! What the program says of itself, to people and to those who package it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn doyen(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_doyen"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

#[test]
fn the_version_names_the_commit_the_levels_and_the_features() {
    let short = doyen(&["--version"]).stdout;
    let long = String::from_utf8(doyen(&["version"]).stdout).expect("text");
    let mut lines = long.lines();
    let first = lines.next().map(|line| format!("{line}\n"));
    assert_eq!(first.map(String::into_bytes), Some(short));
    let said: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).collect();
    let keys: Vec<&str> = said.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, ["commit", "levels", "features", "target"], "{long}");
    let (least, most) = doyen_placement::level::LEVELS;
    assert_eq!(said[1].1, format!("{least} to {most}"));
    // A build for other tests has further features.
    let features: Vec<&str> = said[2].1.split(' ').collect();
    for feature in ["http", "metrics", "phrases", "resp"] {
        assert!(features.contains(&feature), "{long}");
    }
    assert!(said[0].1 == "unknown" || said[0].1.len() >= 7, "{long}");
}

#[test]
fn shells_complete_commands_and_flags() {
    for (shell, commands) in [
        ("bash", "restart-plan"),
        ("zsh", "restart-plan"),
        ("fish", "restart-plan"),
    ] {
        let script = doyen(&["completions", shell]);
        let text = String::from_utf8_lossy(&script.stdout).into_owned();
        assert!(
            script.status.success() && text.contains(commands),
            "{shell}"
        );
        assert!(text.contains("leave-timeout"), "{shell}");
    }
    // What bash itself proposes.
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("doyen.bash");
    fs::write(&script, doyen(&["completions", "bash"]).stdout).expect("a file of ours");
    let asks = ". \"$0\"; COMP_WORDS=(doyen keyspace al); COMP_CWORD=2; _doyen doyen al keyspace; \
                printf '%s\\n' \"${COMPREPLY[@]}\"";
    let proposed = Command::new("bash")
        .args(["--norc", "-c", asks])
        .arg(&script)
        .output()
        .expect("bash is there");
    assert_eq!(
        String::from_utf8_lossy(&proposed.stdout).trim(),
        "alter",
        "{}",
        String::from_utf8_lossy(&proposed.stderr)
    );
}

#[test]
fn every_command_has_a_page_for_man() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().join("man1");
    assert!(doyen(&["man", &at.display().to_string()]).status.success());
    for page in ["doyen.1", "doyen-run.1", "doyen-keyspace-create.1"] {
        let text = fs::read_to_string(at.join(page)).expect("a page");
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
    // A flag, and what it means.
    let run = fs::read_to_string(at.join("doyen-run.1")).expect("a page");
    assert!(run.contains("leave\\-timeout"), "{run}");

    let file = Path::new(&at).join("doyen.1").display().to_string();
    let refused = doyen(&["man", &file]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), why.lines().count()), (Some(1), 1));
    assert!(why.contains("name a directory"), "{why}");
}
