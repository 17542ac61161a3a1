//! docs/testing.md says what there is.

use doyen_tests::mutants;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// All that our crates contain, as text.
fn sources(directory: &Path, text: &mut String) {
    for entry in std::fs::read_dir(directory)
        .expect("a directory of ours")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|e| e == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("text"));
        }
    }
}

#[test]
fn testing_names_every_mutant_and_no_test_that_is_not_there() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/testing.md")).expect("the page");
    let (_, table) = page
        .split_once("## The rules, their tests and their mutants")
        .expect("the table of rules");
    let words: Vec<&str> = table.split([' ', ',', '|', '*', '\n']).collect();
    for mutant in mutants::all() {
        assert!(
            words.contains(&mutant.id()),
            "{} is not in the table",
            mutant.id()
        );
    }
    let mut code = String::new();
    for of in ["placement", "gossip", "node", "tests", "examples"] {
        sources(&Path::new(ROOT).join(of), &mut code);
    }
    let named = table
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains('_'));
    let missing: Vec<&str> = named
        .filter(|name| !code.contains(&format!("fn {name}(")))
        .collect();
    assert!(missing.is_empty(), "there are no such tests: {missing:?}");
}
