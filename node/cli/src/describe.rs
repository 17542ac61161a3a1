//! What the program says of itself: its version, completions for shells, pages for `man`.

use super::{Cli, CommandFailed, say};
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

/// The commit that the program was built from; `build.rs` finds it.
pub(super) const COMMIT: &str = env!("DOYEN_COMMIT");
const TARGET: &str = env!("DOYEN_TARGET");

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: doyen completions bash > /etc/bash_completion.d/doyen")]
pub(super) struct CompletionsCommand {
    /// The shell
    shell: Shell,
}

impl CompletionsCommand {
    pub(super) fn main(self) -> Result<ExitCode, CommandFailed> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "doyen", &mut script);
        say(format_args!("{}", String::from_utf8_lossy(&script)));
        Ok(ExitCode::SUCCESS)
    }
}

/// Write pages for `man`: one for the program, and one for each command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: doyen man /usr/local/share/man/man1 && man doyen-run")]
pub(super) struct ManCommand {
    /// Directory that the pages are written to; it is made if it is missing
    dir: PathBuf,
}

impl ManCommand {
    pub(super) fn main(self) -> Result<ExitCode, CommandFailed> {
        std::fs::create_dir_all(&self.dir)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), &self.dir))
            .map_err(|e| {
                let dir = self.dir.display();
                CommandFailed::new(format!(
                    "cannot write the pages to {dir}: {e}; name a directory that you may write to"
                ))
            })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the release, its commit, the levels that it speaks, and what is built in.
pub(super) fn version() {
    let (least, most) = doyen_placement::level::LEVELS;
    let features: Vec<_> = (doyen::FEATURES.iter())
        .filter_map(|(name, is_on)| is_on.then_some(*name))
        .collect();
    say(format_args!(
        "doyen {}\n\
         commit: {COMMIT}\n\
         levels: {least} to {most}\n\
         features: {}\n\
         target: {TARGET}\n",
        env!("CARGO_PKG_VERSION"),
        features.join(" ")
    ));
}
