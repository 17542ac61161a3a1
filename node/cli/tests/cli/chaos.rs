//! A short chaos on real processes: it ends, reports what it did, and finds nothing wrong.

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

#[test]
fn a_short_chaos_finds_every_promise_kept_and_reports_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("report.html");
    let chaos = Command::new(env!("CARGO_BIN_EXE_doyen"))
        .args([
            "chaos",
            "--nodes",
            "3",
            "--minutes",
            "0.2",
            "--seed",
            "1",
            "--rate",
            "500",
            "--json",
            "--report",
        ])
        .arg(&page)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&chaos.stdout);
    let complaint = String::from_utf8_lossy(&chaos.stderr);
    let report: Value =
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}{complaint}"));
    assert!(chaos.status.success(), "{said}{complaint}");
    for wrong in ["lost", "stale", "unexplained", "undecided", "unread"] {
        assert_eq!(report[wrong], 0, "{wrong}: {said}");
    }
    assert_eq!(report["unhealed"], Value::Null, "{said}");
    assert!(
        report["operations"].as_u64().is_some_and(|n| n > 500),
        "clients did their part: {said}"
    );
    let near = &report["near"];
    assert_eq!(near["old"], 0, "{said}");
    assert!(
        near["copies"].as_u64().is_some_and(|n| n > 100)
            && near["reads"].as_u64() > near["copies"].as_u64(),
        "the near cache is judged: {said}"
    );
    let locks = &report["locks"];
    for wrong in ["crowded", "unordered", "early", "unfenced", "stuck"] {
        assert_eq!(locks[wrong], 0, "{wrong}: {said}");
    }
    assert!(
        locks["grants"].as_u64().is_some_and(|n| n > 20),
        "locks are judged: {said}"
    );
    // The first two faults of this seed are always the same: a restart, and flipped bits, which
    // only the relays can cause.
    let faults: Vec<&str> = report["faults"]
        .as_array()
        .expect("faults")
        .iter()
        .filter_map(|f| f["kind"].as_str())
        .collect();
    assert!(faults.starts_with(&["restart in order"]), "{faults:?}");
    assert!(
        faults.len() < 2
            || faults[1] == "corruption" && report["datagrams"]["corrupted"].as_u64() > Some(0),
        "{said}"
    );
    assert!(
        report["datagrams"]["received"]
            .as_u64()
            .is_some_and(|n| n > 100),
        "traffic passes the relays: {said}"
    );
    let page = std::fs::read_to_string(&page).expect("a page");
    assert!(
        page.contains("<svg") && page.contains("leaves in order and comes back"),
        "{page}"
    );
}

/// A run of an hour that Ctrl-C ends after its first fault.
#[test]
fn an_interrupted_run_prints_its_figures() {
    let mut chaos = Command::new(env!("CARGO_BIN_EXE_doyen"))
        .args([
            "chaos",
            "--nodes",
            "3",
            "--minutes",
            "60",
            "--seed",
            "1",
            "--rate",
            "500",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(chaos.stdout.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    let begun = lines
        .by_ref()
        .find(|line| line.contains("leaves in order and comes back"));
    let pid = i32::try_from(chaos.id())
        .ok()
        .and_then(Pid::from_raw)
        .expect("a process id");
    // A terminal sends the signal to the whole process group.
    kill_process_group(pid, Signal::INT).expect("it runs");
    let said: Vec<String> = lines.collect();
    let status = chaos.wait().expect("it ends");
    assert!(begun.is_some() && status.success(), "{status}: {said:#?}");
    assert!(
        said.iter()
            .any(|line| line.starts_with("interrupted after")),
        "{said:#?}"
    );
    let last = said.last().expect("figures");
    assert!(
        last.contains("seed 1 ") && last.contains("lost 0 ") && last.contains("healed always"),
        "{said:#?}"
    );
}

#[test]
fn impossible_runs_are_refused_in_a_line() {
    let wrong: [(&[&str], &str); 4] = [
        (&["--nodes", "2"], "3..=7"),
        (&["--minutes", "0"], "0.1 to 60"),
        (&["--minutes", "60", "--rate", "5000"], "lower one of them"),
        (
            &["--nodes", "3", "--backups", "3"],
            "4 copies of each partition need 4 nodes",
        ),
    ];
    for (wrong, word) in wrong {
        let chaos = Command::new(env!("CARGO_BIN_EXE_doyen"))
            .arg("chaos")
            .args(wrong)
            .output()
            .expect("the binary runs");
        let complaint = String::from_utf8_lossy(&chaos.stderr);
        assert_eq!(chaos.status.code(), Some(2), "{complaint}");
        assert!(
            complaint.contains(word) && complaint.trim_end().lines().count() == 1,
            "{complaint}"
        );
    }
}
