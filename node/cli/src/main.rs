//! The binary `doyen`: chooses the allocator and calls the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    doyen_cli::main()
}
