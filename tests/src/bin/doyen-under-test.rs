//! The binary as the tests run it: the same entry as `doyen`.

use std::process::ExitCode;

fn main() -> ExitCode {
    doyen::cli::main()
}
