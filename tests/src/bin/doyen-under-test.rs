//! The binary as the tests run it: the same entry as `doyen`. SIGUSR1 sets its wall clock an hour
//! forward, SIGUSR2 an hour back. With the variable DIES_AT it ends at that point of a move.

use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// As in the binary: what is held depends on it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HOUR_MS: i64 = 3_600_000;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (mut forward, mut back) = runtime.block_on(async {
        let watched = |kind| signal(kind).expect("a signal can be watched");
        (
            watched(SignalKind::user_defined1()),
            watched(SignalKind::user_defined2()),
        )
    });
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = forward.recv() => doyen::clock::set_wall_clock_by(HOUR_MS),
                    _ = back.recv() => doyen::clock::set_wall_clock_by(-HOUR_MS),
                }
            }
        });
    });
    if let Ok(point) = std::env::var("DIES_AT") {
        match point.parse() {
            Ok(point) => doyen_engine::fault::arm(point),
            Err(why) => return doyen_tests::refuse("doyen-under-test", &why.to_string()),
        }
    }
    doyen_cli::main()
}
