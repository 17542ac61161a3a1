//! Tests of whole clusters.
//!
//! [`sim`] runs the production machines, `Agreement` and `Shard`, under one seeded scheduler with
//! virtual clocks and a hostile network. [`linear`] judges what its clients saw. [`process`],
//! [`cluster`], [`power`] and [`load`] start, drive and hurt real processes over real sockets.
//! [`native`] drives them through the native client, and [`witness`] judges what contending clients
//! saw.
//!
//! [`measure`] measures Doyen, also beside other systems.
//!
//! [`runbook`] types what docs/operations.md says. [`fuzz`] gives every decoder what a peer should
//! not send.

pub mod cluster;
pub mod fuzz;
pub mod load;
pub mod measure;
pub mod mutants;
pub mod native;
pub mod power;
pub mod process;
pub mod procfs;
pub mod resp;
pub mod rules;
pub mod runbook;
pub mod sim;
pub mod witness;

pub use doyen::testkit::linear;

use bytes::Bytes;
use doyen_engine::command::{Arguments, COMMANDS, ParsedRequest};
use doyen_engine::op::Action;
use std::process::ExitCode;

/// What a Redis client asks of one key with these words.
pub(crate) fn action_of(words: &[&str]) -> Action {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    action_of_bytes(&words)
}

/// The same if they are no text.
pub(crate) fn action_of_bytes(words: &[&[u8]]) -> Action {
    let words: Vec<Bytes> = words
        .iter()
        .map(|word| Bytes::copy_from_slice(word))
        .collect();
    let args: &dyn Arguments = &words.as_slice();
    let request = COMMANDS.find(args).and_then(|spec| spec.request(args, 0));
    match request {
        Ok(ParsedRequest::One { action, .. }) => action,
        other => unreachable!("{words:?} is {other:?}"),
    }
}

/// For programs to which a panic of a machine is a result: they print it as one line instead of a
/// backtrace. The reader of their output may end before they do, as `head` does. Then they end too,
/// with status 141, as of SIGPIPE.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let said = panic.payload().downcast_ref::<String>();
        if said.is_some_and(|said| said.starts_with("failed printing to stdout")) {
            std::process::exit(141);
        }
    }));
}

/// Prints in one line why a tool refuses its arguments, and gives its exit status.
pub fn refuse(program: &str, why: &str) -> ExitCode {
    eprintln!("{program}: {why}");
    ExitCode::from(2)
}

/// Refuses to run a tool that catches panics in a build in which they end the process.
///
/// # Errors
/// This is such a build. The exit status of the refusal.
pub fn can_catch_panics(program: &str) -> Result<(), ExitCode> {
    if cfg!(panic = "unwind") {
        return Ok(());
    }
    Err(refuse(
        program,
        "this build cannot catch panics; build it with --profile tools",
    ))
}

/// The Rust code of the pages compiles.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../node/README.md")]
    struct LibraryReadme;
    #[doc = include_str!("../../docs/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../../docs/from-moka.md")]
    struct FromMoka;
    #[doc = include_str!("../../docs/from-redis.md")]
    struct FromRedis;
    #[doc = include_str!("../../docs/from-hazelcast.md")]
    struct FromHazelcast;
}
