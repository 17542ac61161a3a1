//! `doyen demo`: runs a cluster of real processes on this machine, kills its coordinator under
//! load, and counts lost writes. Nothing is staged: the binary, the protocol and the ports are
//! those of production, and the load uses RESP.
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

use super::{CommandFailed, interrupted, runtime};
use scene::Scene;
use std::cell::RefCell;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::rc::Rc;
use tokio::task::LocalSet;

/// Starts a cluster on this machine, kills its coordinator under load, and counts lost writes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The last line has the figures; with --keep, the addresses follow. Status 1 if an \
                  acknowledged write was lost or a read was stale."
)]
pub(super) struct Demo {
    /// Nodes at the start, 2 to 9
    #[arg(
        long,
        default_value_t = 3,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(2..=9)
    )]
    nodes: u8,
    /// Seconds under load, about: 4 to 3600
    #[arg(
        long,
        default_value_t = 15,
        value_name = "S",
        value_parser = clap::value_parser!(u16).range(4..=3600)
    )]
    seconds: u16,
    /// Print plain lines, even on a terminal
    #[arg(long)]
    plain: bool,
    /// Leave the cluster running afterwards, until Ctrl-C, and print its addresses
    #[arg(long)]
    keep: bool,
}

/// What a person may want to do next.
const NEXT: &str = "Next: `doyen demo --keep` leaves this cluster running, with a page to look at. \
                    `doyen dev` starts one to write programs against.\n";

/// State that all parts of the demo share. They run on one thread.
type SharedScene = Rc<RefCell<Scene>>;

impl Demo {
    pub(super) fn main(self) -> Result<ExitCode, CommandFailed> {
        let plain = self.plain || !std::io::stdout().is_terminal();
        runtime()?.block_on(LocalSet::new().run_until(self.play(plain)))
    }

    async fn play(self, plain: bool) -> Result<ExitCode, CommandFailed> {
        let scene = Rc::new(RefCell::new(Scene::new()));
        let mut view = view::DemoView::open(plain, scene.clone())?;
        let outcome = tokio::select! {
            outcome = script::play(self.nodes, self.seconds, scene.clone()) => outcome,
            why = view.run() => Err(why),
            why = interrupted("demo") => Err(why),
        };
        // Leave the terminal's full screen first: the rest belongs into the scrollback.
        view.close();
        let (verdict, nodes) = outcome?;
        let next = if self.keep { "" } else { NEXT };
        super::say(format_args!("{next}{verdict}\n"));
        if self.keep {
            nodes.keep().await?;
        }
        Ok(if verdict.holds() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
