//! Tests of whole clusters.
//!
//! [`sim`] runs the production machines, `Agreement` and `Shard`, under one seeded scheduler with
//! virtual clocks and a hostile network; [`linear`] judges what clients saw. [`process`],
//! [`cluster`] and [`load`] start, drive and hurt real processes over real sockets, [`native`]
//! drives them through the native client, [`witness`] judges what contending clients saw.
//! [`mod@bench`] measures them beside others, [`scale`] what they cost as they become more,
//! [`starve`] who is taken for dead where cores are scarce, [`stall`] how long a cluster stands
//! still, [`calls`] system calls by operation, [`large`] how long passes become with the largest
//! values, [`threads`] what several data threads give a node. [`runbook`] types what
//! docs/operations.md says. [`fuzz`] gives every decoder what a peer should not send.

pub mod bench;
pub mod calls;
pub mod cluster;
pub mod fuzz;
pub mod journal;
pub mod large;
pub mod load;
pub mod moving;
pub mod mutants;
pub mod native;
pub mod process;
pub mod procfs;
pub mod resp;
pub mod rules;
pub mod runbook;
pub mod scale;
pub mod sim;
pub mod stall;
pub mod starve;
pub mod threads;
pub mod witness;

pub use doyen::testkit::linear;

use std::process::ExitCode;

/// For programs to which a panic of a machine is a result: it is told in a line, and not as a
/// backtrace. Who reads what they print may end before they do, as `head` does; then they end, too,
/// with 141, as of SIGPIPE.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let said = panic.payload().downcast_ref::<String>();
        if said.is_some_and(|said| said.starts_with("failed printing to stdout")) {
            std::process::exit(141);
        }
    }));
}

/// For what a tool cannot do with what it is told, in one line; its exit status.
pub fn refuse(program: &str, why: &str) -> ExitCode {
    eprintln!("{program}: {why}");
    ExitCode::from(2)
}

/// The Rust code of the pages compiles.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/embedding.md")]
    struct Embedding;
}
