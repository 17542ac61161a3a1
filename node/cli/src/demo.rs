//! `doyen demo`: a cluster of real processes on this machine, its coordinator killed under load,
//! and a count of what was lost. Nothing is staged: the same binary, protocol and ports as in
//! production, and the load goes through RESP.
//!
//! ```text
//!   script ── starts, kills, adds ──> nodes (child processes)
//!     │                                 ▲  ▲
//!     │       lanes: writes and reads ──┘  └── observer: /status, /table
//!     └─────────────> scene <─────────────┘
//!                       └──> view: a terminal, or plain lines
//! ```

mod lane;
mod ledger;
mod nodes;
mod observer;
mod scene;
mod script;
mod view;

use super::{Failed, interrupted, runtime};
use scene::Scene;
use std::cell::RefCell;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::rc::Rc;
use tokio::task::LocalSet;

/// Start a cluster on this machine, kill its coordinator under load, and count what was lost.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Ends with one line of figures. Status 1 if an acknowledged write was lost or a read was stale."
)]
pub(super) struct Demo {
    /// Nodes at the start, 2 to 9
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: u8,
    /// Seconds under load, about, 4 to 3600
    #[arg(long, default_value_t = 15, value_name = "S", value_parser = clap::value_parser!(u16).range(4..=3600))]
    seconds: u16,
    /// Print lines, also on a terminal
    #[arg(long)]
    plain: bool,
}

/// What all parts of the demo share; they run on one thread.
type Shared = Rc<RefCell<Scene>>;

impl Demo {
    pub(super) fn main(self) -> Result<ExitCode, Failed> {
        let plain = self.plain || !std::io::stdout().is_terminal();
        runtime()?.block_on(LocalSet::new().run_until(self.play(plain)))
    }

    async fn play(self, plain: bool) -> Result<ExitCode, Failed> {
        let scene = Rc::new(RefCell::new(Scene::new()));
        let mut view = view::View::open(plain, scene.clone())?;
        let outcome = tokio::select! {
            outcome = script::play(self.nodes, self.seconds, scene.clone()) => outcome,
            why = view.run() => Err(why),
            why = interrupted("demo") => Err(why),
        };
        // The terminal first, whatever happened: what follows is for the scrollback.
        view.close();
        let verdict = outcome?;
        super::say(format_args!("{verdict}\n"));
        Ok(if verdict.holds() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
