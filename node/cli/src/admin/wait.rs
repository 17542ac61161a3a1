//! `doyen wait`: waits until the cluster is in a state, for scripts.

use super::{AdminEndpoint, tell};
use crate::CommandFailed;
use doyen::config::value::DurationOption;
use doyen::http::api;
use doyen::http::client::HttpError;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time between two requests.
const LOOK: Duration = Duration::from_millis(200);

/// Wait until the cluster is in a state.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct WaitOptions {
    #[command(subcommand)]
    state: AwaitedState,
}

#[derive(Debug, clap::Subcommand)]
enum AwaitedState {
    /// Wait until all data is safe: the next death of a member loses nothing
    Safe(Safe),
}

/// Wait until all data is safe. A node that does not answer may answer later.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Status: 0 the cluster is safe, and every member has just answered; \
    1 it was not safe in time, and the reason is on stderr."
)]
struct Safe {
    #[command(flatten)]
    endpoint: AdminEndpoint,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value_t = DurationOption(Duration::from_secs(600)))]
    timeout: DurationOption,
}

impl WaitOptions {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        let AwaitedState::Safe(Safe { endpoint, timeout }) = self.state;
        let node = endpoint.client()?;
        let until = Instant::now() + timeout.0;
        loop {
            let why = match node.ask(&api::STATUS).await {
                Ok(report) if report.safe => return tell(format_args!("safe\n")),
                Ok(report) => report.unsafe_for.unwrap_or_default(),
                // Waiting makes no token right.
                Err(
                    e @ (HttpError::NoToken
                    | HttpError::Refused {
                        status: 401 | 403, ..
                    }),
                ) => {
                    return Err(e.into());
                }
                Err(e) => CommandFailed::from(e).message,
            };
            if Instant::now() >= until {
                return Err(CommandFailed::new(format!(
                    "not safe after {timeout}: {why}"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
