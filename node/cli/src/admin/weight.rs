//! `doyen weight`: weights that newcomers may have though they are far above those of the members.

use super::{Endpoint, List, failed, write};
use crate::Failed;
use doyen::report::weights::WeightReport;
use serde_json::Value;
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
    Allow(Allow),
    /// Forget the weight that is allowed for a node: the node stays, but waits when it joins again
    Forget(ForgetWeight),
}

#[derive(Debug, clap::Args)]
struct Allow {
    /// The node's name (--name)
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: String,
    /// The highest weight that it may have: 1 to 100000
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    weight: u32,
    #[command(flatten)]
    endpoint: Endpoint,
}

#[derive(Debug, clap::Args)]
struct ForgetWeight {
    /// The node's name
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: String,
    #[command(flatten)]
    endpoint: Endpoint,
}

impl WeightCommand {
    pub(crate) async fn main(self) -> Result<ExitCode, Failed> {
        match self.action {
            WeightAction::List(list) => list.main("/weights", listed).await,
            WeightAction::Allow(allow) => allow.main().await,
            WeightAction::Forget(forget) => forget.main().await,
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Allow {
    async fn main(self) -> Result<(), Failed> {
        let node = self.endpoint.client()?;
        let (name, weight) = (&self.name, self.weight);
        let path = format!("/weights/{}", super::escaped(name));
        let body = serde_json::json!({ "weight": weight }).to_string();
        let _: Value = node.change("PUT", &path, &body).await.map_err(failed)?;
        write(&format!("{name} may have weight {weight}\n"))?;
        Ok(())
    }
}

impl ForgetWeight {
    async fn main(self) -> Result<(), Failed> {
        let node = self.endpoint.client()?;
        let path = format!("/weights/{}", super::escaped(&self.name));
        let _: Value = node.change("DELETE", &path, "").await.map_err(failed)?;
        write(&format!(
            "no weight is allowed for {} any more\n",
            self.name
        ))?;
        Ok(())
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
