//! The configuration and the unit that docs/operations.md gives for production.

use crate::common::Node;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).expect("a file of the repository")
}

fn doyen() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doyen"));
    for (variable, _) in
        std::env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("DOYEN_"))
    {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// The file as it is, but for its directory, its ports and its seeds: other machines are not there.
#[test]
fn a_node_starts_with_the_configuration_of_the_examples() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let made = doyen().args(["secret", "new", "--dir", &at("")]).output();
    assert!(made.expect("the binary runs").status.success());
    fs::write(at("password"), "a-long-random-password\n").expect("a file");
    let of_its_own = |line: &str| match line {
        line if line.starts_with("seed =") => "listen = \"0.0.0.0:0\"\ndata = \"0.0.0.0:0\"".into(),
        line if line.contains("\"0.0.0.0:") => {
            let (key, _) = line.split_once(" = ").expect("a key and a value");
            format!("{key} = \"0.0.0.0:0\"")
        }
        line => line.replace("/etc/doyen/", &at("")),
    };
    let text: Vec<String> = read("examples/doyen.toml")
        .lines()
        .map(of_its_own)
        .collect();
    fs::write(at("doyen.toml"), text.join("\n")).expect("a file");
    let mut command = doyen();
    command.args(["run", "--exit-with-stdin", "--log", "error"]);
    let node = Node::start(command.args(["--config", &at("doyen.toml")]));

    let (_, port) = node.address("http").rsplit_once(':').expect("a port");
    let http = format!("https://127.0.0.1:{port}");
    let words = [
        "status",
        "--json",
        "--http",
        &http,
        "--secret-file",
        &at("operator"),
    ];
    let asked = doyen().args(words).output().expect("the binary runs");
    let (said, why) = [&asked.stdout, &asked.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .into();
    assert!(asked.status.success(), "{why}");
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    // It knows itself from the moment on when it is a member.
    for member in report["members"].as_array().into_iter().flatten() {
        assert_eq!(
            (&member["name"], &member["zone"]),
            (&"n1".into(), &"a".into())
        );
        for port in ["resp", "resp_cluster", "http"] {
            assert!(!member[port].to_string().contains("127.0.0.1"), "{member}");
        }
    }
}

#[test]
fn the_page_shows_the_configuration_that_is_tested() {
    let page = read("docs/production.md");
    assert!(page.contains(&format!("```toml\n{}```", read("examples/doyen.toml"))));
    assert!(page.contains("(../node/packaging/systemd/doyen.service)"));
}

#[test]
fn the_binary_has_the_alert_rules() {
    let printed = doyen().arg("alerts").output().expect("the binary runs");
    assert_eq!(
        String::from_utf8_lossy(&printed.stdout),
        read("node/alerts.yml")
    );
}

/// The chart is looked at by helm and by schemas of Kubernetes, if they are installed.
#[test]
fn the_manifests_are_those_of_the_chart() {
    let checked = Command::new(repository("node/packaging/kubernetes/manifests.sh"))
        .arg("--check")
        .output();
    let checked = checked.expect("the script runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    eprint!("{said}");
    assert!(checked.status.success(), "{said}");
}

/// If systemd is not installed, only what it would not notice is looked at.
#[test]
fn systemd_takes_the_unit() {
    let unit = read("node/packaging/systemd/doyen.service");
    for line in [
        "[Install]",
        "Type=notify",
        "User=doyen",
        "After=network-online.target",
        "LimitCORE=0",
    ] {
        assert!(unit.contains(line), "{line}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("doyen.service");
    let binary = env!("CARGO_BIN_EXE_doyen");
    fs::write(
        &path,
        unit.replace("ExecStart=doyen", &format!("ExecStart={binary}")),
    )
    .expect("a file");
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).arg(&path).output()
    };
    // The page of `man` that the unit names is not installed here.
    let Ok(verified) = analyze(&["verify", "--man=no"]) else {
        eprintln!("NOT CHECKED: systemd-analyze is not installed");
        return;
    };
    let why = String::from_utf8_lossy(&verified.stderr).into_owned();
    let about = why.lines().find(|line| line.contains("doyen.service"));
    assert!(verified.status.success() && about.is_none(), "{why}");

    // How much a broken node could do to its machine: 0 is nothing, 10 is everything.
    let judged = analyze(&["security", "--offline=true", "--no-pager"]).expect("it ran above");
    let table = String::from_utf8_lossy(&judged.stdout).into_owned();
    let exposed = table.rsplit_once("doyen.service: ").map(|(_, rest)| rest);
    let exposed = exposed.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(exposed.is_some_and(|exposed| exposed <= 2.0), "{table}");
}
