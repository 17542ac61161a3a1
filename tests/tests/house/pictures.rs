//! The drawings of the pages are those that their script makes.

use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn drawings_are_those_of_their_script() {
    let script = Path::new(ROOT).join("docs/drawings/draw.py");
    let made = Command::new("python3").arg(&script).arg("--check").output();
    let made = made.expect("python3, which makes the drawings: install it");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
}
