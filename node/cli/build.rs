//! Finds the commit that `doyen version` prints: the variable DOYEN_COMMIT, or what git says. The
//! commit of a crate from a registry is unknown, and so is that of a debug build: otherwise, each
//! commit would build and link all programs again.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=DOYEN_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = std::env::var("DOYEN_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    let is_debug = std::env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let commit = given.or_else(|| if is_debug { None } else { of_repository() });
    println!(
        "cargo::rustc-env=DOYEN_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=DOYEN_TARGET={target}");
}

/// The commit that is checked out, if this crate lies in Doyen's repository, and not within
/// another one, as in a home directory that is one.
fn of_repository() -> Option<String> {
    if git(&["rev-parse", "--show-prefix"])? != "node/cli/" {
        return None;
    }
    // This file has a line for each commit and each checkout.
    println!(
        "cargo::rerun-if-changed={}",
        git(&["rev-parse", "--git-path", "logs/HEAD"])?
    );
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// What git prints, in the directory of this crate.
fn git(arguments: &[&str]) -> Option<String> {
    let said = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    said.status.success().then(|| text.trim().to_owned())
}
