//! node/alerts.yml: Prometheus understands its rules, they fire when they should, and they use only
//! metrics that nodes have. docs/operations.md says what to do about each.

use doyen_placement::loads::{EVACUATED, FULL};
use doyen_tests::cluster::Cluster;
use doyen_tests::runbook::{Page, metrics};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../node");

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(DIRECTORY).join(name)).expect("a file of ours")
}

/// What follows each of these words, to the end of its line.
fn all<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix(word))
        .map(str::trim)
        .collect()
}

/// Returns `false` if promtool is not installed.
fn promtool(arguments: &[&str]) -> bool {
    match Command::new("promtool")
        .args(arguments)
        .current_dir(DIRECTORY)
        .output()
    {
        Ok(output) => {
            let [said, complained] = [&output.stdout, &output.stderr]
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            assert!(
                output.status.success(),
                "promtool {arguments:?}: {said}{complained}"
            );
            true
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        Err(e) => panic!("promtool does not run: {e}"),
    }
}

#[test]
fn rules_are_well_formed_and_fire_when_they_should() {
    let both = [
        &["check", "rules", "alerts.yml"][..],
        &["test", "rules", "alerts.test.yml"],
    ];
    if !both.into_iter().all(promtool) {
        // A macro would not do: the test runner hides what they print if the test passes.
        let said = "NOT CHECKED: promtool is not installed (Debian: apt install prometheus), \
           so the rules of node/alerts.yml were not tried";
        writeln!(std::io::stderr(), "{said}").expect("stderr takes a line");
    }
}

#[test]
fn every_alert_is_tested_and_says_what_to_do() {
    let (rules, tried, page) = (read("alerts.yml"), read("alerts.test.yml"), Page::read());
    let alerts: BTreeSet<&str> = all(&rules, "- alert:").into_iter().collect();
    assert!(alerts.len() >= 11, "{alerts:?}");
    let sections: BTreeSet<&str> = page
        .headings()
        .filter(|heading| heading.starts_with("Doyen"))
        .collect();
    assert_eq!(
        alerts, sections,
        "alerts, and sections of docs/operations.md"
    );
    for alert in &alerts {
        assert!(
            !page.blocks(alert, "sh").is_empty(),
            "{alert} has no command to type"
        );
        // `exp_alerts:` alone in its line means that an alert is expected.
        assert!(
            all(&tried, "- alertname:").contains(alert),
            "{alert} fires in no test"
        );
        assert!(
            tried.contains(&format!(
                "{{alertname: {alert}, eval_time: 30m, exp_alerts: []}}"
            )),
            "{alert} is not silent in any test"
        );
    }
    for rule in rules.split("- alert:").skip(1) {
        let name = rule.lines().next().unwrap_or_default().trim();
        let url = format!(
            "https://github.com/doyen-grid/doyen/blob/main/docs/operations.md#{}",
            name.to_lowercase()
        );
        assert_eq!(all(rule, "runbook_url:"), [url.as_str()]);
        for word in ["for:", "labels: {severity:", "summary:", "description:"] {
            assert_eq!(all(rule, word).len(), 1, "{name}: {word}");
        }
    }
    // Writes beyond the last watermark are refused, so memory never passes it.
    assert!(rules.contains(&format!(
        "doyen_memory_filled_ratio >= 0.{} and doyen_memory_filled_ratio < 0.{}\n",
        EVACUATED / 10,
        FULL - 1
    )));
    assert!(rules.contains(&format!("doyen_memory_filled_ratio >= 0.{}\n", FULL - 1)));
}

/// `Operator::finish` checks that every block of a section was typed.
#[test]
fn every_section_with_commands_is_typed_by_a_test() {
    let page = Page::read();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster");
    let read = |file| std::fs::read_to_string(tests.join(file)).expect("the tests");
    let typed = read("runbooks.rs") + &read("split.rs");
    // The commands of the first section come before those of all others.
    let sections: Vec<&str> = page
        .headings()
        .skip(1)
        .filter(|heading| !page.blocks(heading, "sh").is_empty())
        .collect();
    assert!(sections.len() >= 16, "{sections:?}");
    for heading in sections {
        assert!(
            typed.contains(&format!("\"{heading}\"")),
            "no test types what {heading} says"
        );
    }
}

#[test]
fn nodes_have_every_metric_that_alerts_use() {
    let cluster = Cluster::of(BINARY, 1);
    let told = metrics(&cluster, "n0");
    let rules = read("alerts.yml");
    let rules: String = rules
        .lines()
        .filter(|line| !line.trim().starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n");
    let mut asked = 0;
    for (at, _) in rules.match_indices("doyen_") {
        let rest = &rules[at..];
        let name = &rest[..rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len())];
        // With the label that the rule uses, as in name{stage="given_up"}.
        let label = rest[name.len()..]
            .strip_prefix('{')
            .and_then(|labels| labels.split_once('}'))
            .map_or("", |(labels, _)| labels);
        let is =
            |series: &&String| series.split('{').next() == Some(name) && series.contains(label);
        assert!(
            told.keys().any(|series| is(&series)),
            "no node has the metric {name}{{{label}}}: {:?}",
            told.keys()
        );
        asked += 1;
    }
    assert!(asked > 14, "{asked} metrics are asked for");
    // Labels by which series are summed, and labels that choose series.
    for label in [
        "keyspace=",
        "of=\"work\"",
        "of=\"bytes\"",
        "of=\"copies\"",
        "of=\"leads\"",
        "by=\"operator\"",
    ] {
        assert!(
            told.keys().any(|series| series.contains(label)),
            "{label} is not among {:?}",
            told.keys()
        );
    }
}
