//! The tables of docs/clients.md, from the file of results.

use super::{GapResult, LIBRARIES, LibrarySettings, NodeFault};
use crate::measure::stats::{typical, worst};
use anyhow::{Context as _, Result};
use clap::ValueEnum;
use std::path::Path;

/// The word of a choice, as on the command line.
pub(super) fn word(choice: impl ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Prints one table for each kind of settings.
pub(super) fn print(path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let results: Vec<GapResult> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    for settings in [LibrarySettings::Good, LibrarySettings::Default] {
        let of_settings = results.iter().filter(|r| r.settings == settings);
        let rows = rows(&of_settings.collect::<Vec<_>>());
        println!("\n{} settings:\n", word(settings));
        println!("| library | way | kill | stop | terminate | cut |\n|---|---|---|---|---|---|");
        rows.iter().for_each(|row| println!("{row}"));
    }
    Ok(())
}

fn rows(results: &[&GapResult]) -> Vec<String> {
    let row = |name: &str, way: &str| {
        let cells = NodeFault::value_variants().iter().map(|fault| {
            let measured = results
                .iter()
                .filter(|r| r.library == name && r.way == way && r.fault == *fault);
            cell(&measured.copied().collect::<Vec<_>>())
        });
        let cells: Vec<String> = cells.collect();
        let is_empty = cells.iter().all(String::is_empty);
        (!is_empty).then(|| format!("| {name} | {way} | {} |", cells.join(" | ")))
    };
    LIBRARIES
        .iter()
        .filter_map(|library| row(library.name, library.way))
        .collect()
}

/// The median gap, the longest one, and the errors of a run at the median.
fn cell(results: &[&GapResult]) -> String {
    if results.is_empty() {
        return String::new();
    }
    let gaps: Vec<f64> = results.iter().map(|r| r.gap_ms / 1_000.0).collect();
    let errors: Vec<f64> = results.iter().map(|r| r.errors as f64).collect();
    let shown = |seconds: f64| {
        // A gap that had not ended is longer than the part that was measured.
        let is_open = results
            .iter()
            .any(|r| !r.ended && r.gap_ms / 1_000.0 <= seconds);
        let more = if is_open { "> " } else { "" };
        format!("{more}{seconds:.1}")
    };
    format!(
        "{} s ({}), {:.0}",
        shown(typical(&gaps)),
        shown(worst(&gaps)),
        typical(&errors)
    )
}
