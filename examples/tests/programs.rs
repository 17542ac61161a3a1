//! The examples that run to an end by themselves, and what they say.

use std::process::{Command, Stdio};

/// Runs an example. Returns the lines that it prints.
fn run(program: &str) -> Vec<String> {
    let output = Command::new(program)
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    let text = String::from_utf8(output.stdout).expect("it is text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn leaderboard_counts_each_game_and_is_the_same_on_both_servers() {
    let lines = run(env!("CARGO_BIN_EXE_leaderboard"));
    assert_eq!(lines.len(), 8, "{lines:#?}");
    assert_eq!(lines[0], "the board of north:");
    assert_eq!(lines[4], "the board of south:");
    assert_eq!(lines[1..4], lines[5..8]);
    let points = |line: &String| -> u64 {
        assert!(line.ends_with(" points in 100 games"), "{line}");
        let points = line.split(' ').rev().nth(4).and_then(|n| n.parse().ok());
        points.expect("a number")
    };
    assert!(lines[1..4].is_sorted_by(|a, b| points(a) >= points(b)));
}

#[test]
fn job_lock_passes_on_and_fences_the_dead() {
    assert_eq!(
        run(env!("CARGO_BIN_EXE_job-lock")),
        [
            "north has the lock and begins the report",
            "south may not begin: the lock is taken",
            "north has died",
            "south has the lock and begins the report again",
            "a late write of north is refused",
            "the report of today was made by south",
        ]
    );
}

#[test]
fn job_queue_delivers_again_and_buries_what_fails() {
    assert_eq!(
        run(env!("CARGO_BIN_EXE_job-queue")),
        [
            "north has portrait, attempt 1",
            "north has died",
            "south has portrait, attempt 2",
            "its token is higher: true",
            "it is done: true",
            "broken file fails, attempt 1",
            "broken file fails, attempt 2",
            "broken file fails, attempt 3",
            "broken file is dead after 3 attempts",
            "it waits again: true",
        ]
    );
}

#[test]
fn cached_query_asks_the_database_once() {
    assert_eq!(
        run(env!("CARGO_BIN_EXE_cached-query")),
        [
            "40 requests, 1 query",
            "tea costs 290 cents now",
            "2 queries",
            "product 8 is unknown",
            "product 8 is unknown",
            "3 queries",
        ]
    );
}

#[test]
fn web_service_is_one_service_on_two_nodes() {
    assert_eq!(
        run(env!("CARGO_BIN_EXE_web-service")),
        [
            "north: 200 visit 1",
            "south, with the cookie of north: 200 visit 2",
            "north, the same order: 200 order 1",
            "south, the same order: 200 order 1",
            "south, another order with its key: 422 Another request had this Idempotency-Key: use \
             a new key.",
            "north, an order without a key: 400 This request needs the header Idempotency-Key, \
             with a value that is new for each request and the same in its repeats.",
            "of 5 more requests, 3 were above the limit of 8",
            "another user: 200 visit 1",
        ]
    );
}
