//! The project's own tools answer as `doyen` does: a mistake gets status 2, and one line that says
//! what to do.

use std::process::{Command, Stdio};

/// Status, stdout and stderr.
fn run(tool: &str, args: &[&str]) -> (i32, String, String) {
    let output = Command::new(tool)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the tool runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn refused(tool: &str, args: &[&str], expected: &[&str]) {
    let (status, _, said) = run(tool, args);
    assert_eq!(status, 2, "{args:?}: {said}");
    assert_eq!(
        said.trim_end().lines().count(),
        1,
        "{args:?} is not answered in one line: {said}"
    );
    for word in expected {
        assert!(
            said.contains(word),
            "{args:?}: `{word}` is missing in: {said}"
        );
    }
}

const FUZZ: &str = env!("CARGO_BIN_EXE_fuzz");
const SIM: &str = env!("CARGO_BIN_EXE_sim");

#[test]
fn the_fuzzer_refuses_mistakes_and_lists_its_decoders() {
    refused(
        FUZZ,
        &["--seconds", "0"],
        &["fuzz: ", "--seconds", "fuzz --help"],
    );
    refused(
        FUZZ,
        &["--target", "bogus"],
        &["bogus", "frames", "tables", "all"],
    );
    refused(FUZZ, &["--corpus", "nowhere/corpus"], &["nowhere/corpus"]);
    let (status, said, _) = run(FUZZ, &["--help"]);
    assert!(
        status == 0 && said.contains("Decoders: ") && said.contains("frames"),
        "{said}"
    );
}

#[test]
fn the_fuzzer_says_whether_one_input_passes() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("input");
    let named = file.to_str().expect("a path");
    let (status, _, said) = run(FUZZ, &["--target", "frames", "--input", named]);
    assert!(status == 1 && said.contains(named), "{status}: {said}");
    std::fs::write(&file, b"no frame").expect("written");
    let (status, said, _) = run(FUZZ, &["--target", "frames", "--input", named]);
    assert_eq!((status, said.as_str()), (0, "frames: passed\n"));
}

#[test]
fn the_simulation_refuses_seeds_and_faults_that_do_not_exist() {
    refused(
        SIM,
        &["--seed", "1", "--faults", "0,4000000000"],
        &["sim: ", "seed 1", "4000000000"],
    );
    refused(
        SIM,
        &["--from", "18446744073709551610", "--seeds", "10"],
        &["--from", "18446744073709551605"],
    );
    refused(
        SIM,
        &["--from", "18446744073709551610", "--hours", "1"],
        &["--from"],
    );
    refused(SIM, &["--seeds", "0"], &["--seeds"]);
    refused(SIM, &["--faults", "1"], &["--seed SEED"]);
}

#[test]
fn the_other_tools_answer_in_one_line_too() {
    refused(
        env!("CARGO_BIN_EXE_bench"),
        &["fast"],
        &["bench: ", "quick"],
    );
    refused(
        env!("CARGO_BIN_EXE_figures"),
        &[],
        &["figures kill", "--help"],
    );
}
