//! `doyen weight`: weights that newcomers may have though they are far above those of the members.

use super::{AdminEndpoint, List, tell};
use crate::CommandFailed;
use clap::builder::NonEmptyStringValueParser;
use doyen::http::api::{self, AllowedWeight};
use doyen::report::weights::WeightReport;
use std::fmt::Write as _;
use std::process::ExitCode;

/// List, allow and forget weights of newcomers.
///
/// A node that joins with a weight above 8 times the median of the other data members waits until
/// its weight is allowed: it would draw most of the data.
#[derive(Debug, clap::Args)]
pub(crate) struct WeightCommand {
    #[command(subcommand)]
    action: WeightAction,
}

#[derive(Debug, clap::Subcommand)]
enum WeightAction {
    /// List the weights that are allowed
    List(List),
    /// Allow a weight for a node: if it waits because of its weight, it joins
    Allow {
        /// The node's name (--name)
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// The highest weight that it may have: 1 to 100000
        #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
        weight: u32,
        #[command(flatten)]
        endpoint: AdminEndpoint,
    },
    /// Forget the weight that is allowed for a node: the node stays, but waits when it joins again
    Forget {
        /// The node's name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        endpoint: AdminEndpoint,
    },
}

impl WeightCommand {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        match self.action {
            WeightAction::List(list) => list.main(&api::WEIGHTS, listed).await,
            WeightAction::Allow {
                name,
                weight,
                endpoint,
            } => {
                let allowed = AllowedWeight { weight };
                endpoint.make(&api::ALLOW_WEIGHT, [&name], &allowed).await?;
                tell(format_args!("{name} may have weight {weight}\n"))
            }
            WeightAction::Forget { name, endpoint } => {
                endpoint.make(&api::FORGET_WEIGHT, [&name], &()).await?;
                tell(format_args!("no weight is allowed for {name} any more\n"))
            }
        }
    }
}

fn listed(weights: &[WeightReport]) -> String {
    if weights.is_empty() {
        return "no weights are allowed beyond the limit: `doyen weight allow NAME WEIGHT` allows \
                one\n"
            .into();
    }
    let widths = weights.iter().map(|w| w.name.chars().count());
    let width = widths.max().unwrap_or(0).max(4);
    let mut text = format!("{:width$}  weight\n", "name");
    for WeightReport { name, weight } in weights {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{name:width$}  {weight:>6}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_listed_in_columns() {
        let allowed = |name: &str, weight| WeightReport {
            name: name.into(),
            weight,
        };
        let text = listed(&[allowed("n4", 1600), allowed("storage-1", 100_000)]);
        assert_eq!(
            text,
            "name       weight\n\
             n4           1600\n\
             storage-1  100000\n"
        );
        assert!(listed(&[]).contains("doyen weight allow NAME WEIGHT"));
    }
}
