//! Hazelcast: three members with one synchronous backup, and a client in a warm JVM of its own.

use super::{Installed, Kind, PATIENCE, System, address, free_ports};
use crate::measure::children::{Child, Conversation, Cores, run, until};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MEMBERS: usize = 3;
const VERSION: &str = "5.7.0";
/// How long partitions may take to move to another member.
const GROWN_MAX: Duration = Duration::from_secs(600);
/// Maven fetches Hazelcast the first time.
const BUILD_MAX: Duration = Duration::from_secs(600);
const SOURCES: [(&str, &str); 3] = [
    (
        "pom.xml",
        include_str!("../../../../rivals/hazelcast/pom.xml"),
    ),
    (
        "src/main/java/rivals/Member.java",
        include_str!("../../../../rivals/hazelcast/src/main/java/rivals/Member.java"),
    ),
    (
        "src/main/java/rivals/Load.java",
        include_str!("../../../../rivals/hazelcast/src/main/java/rivals/Load.java"),
    ),
];
/// What Hazelcast's manual tells users of modular Java to pass to it.
const OPENS: [&str; 13] = [
    "-Xmx2g",
    "--add-modules",
    "java.se",
    "--add-exports",
    "java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens",
    "java.base/java.lang=ALL-UNNAMED",
    "--add-opens",
    "java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens",
    "java.management/sun.management=ALL-UNNAMED",
    "--add-opens",
    "jdk.management/com.sun.management.internal=ALL-UNNAMED",
];

pub(super) fn build(cache: &Path, cores: Cores) -> Result<Installed> {
    let java = run(
        &cores.anywhere(&["java", "--version"]),
        None,
        Duration::from_secs(20),
    )
    .context("needs Java 17")?;
    let home = cache.join("hazelcast");
    let built = home.join("built");
    let sources: String = SOURCES.iter().map(|(_, text)| *text).collect();
    if fs::read_to_string(&built).unwrap_or_default() != sources {
        for (name, text) in SOURCES {
            let path = home.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&home))?;
            fs::write(path, text)?;
        }
        eprintln!("building Hazelcast {VERSION} in {}", home.display());
        run(
            &cores.anywhere(&["mvn", "-q", "-B", "package"]),
            Some(&home),
            BUILD_MAX,
        )
        .context("needs a JDK 17 and Maven")?;
        fs::write(&built, sources)?;
    }
    let java = java.split_whitespace().nth(1).unwrap_or("?").to_owned();
    Ok(Installed {
        kind: Kind::Hazelcast,
        version: format!("{VERSION} (Java {java})"),
        program: home,
    })
}

fn words<'a>(classes: &'a str, class: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["java"], &OPENS[..], &["-cp", classes, class], arguments].concat()
}

pub(super) fn start(installed: &Installed, cores: Cores) -> Result<System> {
    let dir = TempDir::new()?;
    let classes = format!(
        "{0}/target/classes:{0}/target/lib/*",
        installed.program.display()
    );
    let ports: Vec<String> = free_ports(MEMBERS, 0)?
        .iter()
        .map(ToString::to_string)
        .collect();
    let seeds = ports.join(",");
    let mut children = Vec::new();
    for (n, port) in ports.iter().enumerate() {
        let log = dir.path().join(format!("{port}.log"));
        let mut child = Child::start(
            &cores.member(&words(&classes, "rivals.Member", &[port, &seeds])),
            &log,
        )?;
        // Start members one after the other: members that begin together may first found clusters
        // of their own.
        let expected = format!("READY {}", n + 1);
        let joined = until(Instant::now() + PATIENCE, || {
            child.is_alive(&log)?;
            Ok(fs::read_to_string(&log)
                .unwrap_or_default()
                .contains(&expected))
        })?;
        children.push(child);
        if !joined {
            bail!(
                "member {} never joined: {}",
                n + 1,
                fs::read_to_string(&log).unwrap_or_default()
            );
        }
    }
    let memcached = ports
        .iter()
        .filter_map(|p| Some(address(p.parse().ok()?)))
        .collect();
    let mut client = Conversation::start(
        &cores.generator(&words(&classes, "rivals.Load", &[&seeds])),
        &dir.path().join("client.log"),
    )?;
    client.line(PATIENCE)?;
    if client.ask("members", PATIENCE)? != format!("{{\"members\":{MEMBERS}}}") {
        bail!("the client does not see all members");
    }
    Ok(System {
        kind: Kind::Hazelcast,
        client: Some(client),
        plain: Vec::new(),
        cluster: Vec::new(),
        memcached,
        nodes: Vec::new(),
        children,
        dir,
    })
}

/// How often a member reported that all partitions are where they belong.
fn migrations(log: &Path) -> usize {
    fs::read_to_string(log)
        .unwrap_or_default()
        .matches("MIGRATED")
        .count()
}

pub(super) fn grow(system: &mut System, installed: &Installed, cores: Cores) -> Result<()> {
    let classes = format!(
        "{0}/target/classes:{0}/target/lib/*",
        installed.program.display()
    );
    let ports: Vec<String> = system
        .memcached
        .iter()
        .map(|a| a.port().to_string())
        .collect();
    let seeds = ports.join(",");
    let port = free_ports(1, 0)?[0].to_string();
    // The oldest member runs migrations, and reports to all members when they are over.
    let (first, log) = (
        system.dir.path().join(format!("{}.log", ports[0])),
        system.dir.path().join(format!("{port}.log")),
    );
    let before = migrations(&first);
    let mut child = Child::start(
        &cores.member(&words(&classes, "rivals.Member", &[&port, &seeds])),
        &log,
    )?;
    let over = until(Instant::now() + GROWN_MAX, || {
        child.is_alive(&log)?;
        Ok(migrations(&first) > before)
    })?;
    system.children.push(child);
    if over {
        Ok(())
    } else {
        bail!("partitions still move after {GROWN_MAX:?}")
    }
}
