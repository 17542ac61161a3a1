//! The crates that go to crates.io have what people look for there, and build from what they
//! contain. `just publish-check` does the whole; this finds in seconds what would fail there.

use super::rooms::{CRATES, crate_root};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The packages of this workspace, by cargo.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let said = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(ROOT)
        .output()
        .expect("cargo is there");
    let metadata: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    metadata["packages"].as_array().cloned().unwrap_or_default()
}

/// Whether a package may go to a registry.
fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

#[test]
fn published_crates_say_what_they_are() {
    let packages = packages();
    let published: Vec<&Value> = packages.iter().filter(|p| is_published(p)).collect();
    assert_eq!(published.len(), CRATES.len(), "{CRATES:?}");
    for package in published {
        let name = &package["name"];
        for field in [
            "description",
            "license",
            "repository",
            "readme",
            "rust_version",
        ] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        for field in ["keywords", "categories"] {
            assert_ne!(
                package[field],
                serde_json::json!([]),
                "{name} has no {field}"
            );
        }
        let manifest = PathBuf::from(package["manifest_path"].as_str().expect("a path"));
        let own = manifest.with_file_name("LICENSE");
        let licence = std::fs::read(Path::new(ROOT).join("LICENSE")).expect("it is there");
        assert_eq!(std::fs::read(&own).ok(), Some(licence), "{name}");
        for dependency in package["dependencies"].as_array().expect("a list") {
            // A dependency without a version cannot be found in a registry. Those of tests are left
            // out there.
            let is_ours = dependency["path"].is_string() && dependency["kind"] != "dev";
            assert!(
                !is_ours || dependency["req"] != "*",
                "{name}: {} has no version",
                dependency["name"]
            );
        }
    }
}

/// A file that a crate reads at its build lies within it, because a registry has nothing else.
/// (Tests are not built there. They are at the end of a file.)
#[test]
fn crates_are_built_from_their_own_files() {
    let mut strange = Vec::new();
    for root in CRATES {
        let source = crate_root(root);
        for (path, text) in super::pages::files(&source, |name| name.ends_with(".rs")) {
            let of_tests = ["#[cfg(test)]", "#[cfg(doctest)]"];
            let ends = of_tests.iter().filter_map(|cfg| text.find(cfg)).min();
            let code = &text[..ends.unwrap_or(text.len())];
            for (at, call) in ["include_str!(\"", "include_bytes!(\""]
                .iter()
                .flat_map(|call| code.match_indices(call))
            {
                let named = code[at + call.len()..]
                    .split('"')
                    .next()
                    .unwrap_or_default();
                let depth = path.components().count();
                // `source` is `src` of the crate.
                if named.matches("../").count() > depth {
                    strange.push(format!("{root}: {}: {named}", path.display()));
                }
            }
        }
    }
    assert!(strange.is_empty(), "{}", strange.join("\n"));
}
