//! `doyen moves`: what moves, how far it has come and why.

use super::{Target, failed, json, print, write};
use crate::cli::{Failed, bytes, counted};
use crate::http::client;
use crate::moves::{MoveReport, MovesReport};
use std::fmt::Write;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// Between two looks.
const WATCH: Duration = Duration::from_millis(500);
/// Moves that are shown without --all.
const SHOWN: usize = 20;
/// Columns of a bar.
const BAR: usize = 20;

/// Show what moves, how far it has come and why.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Moves {
    #[command(flatten)]
    target: Target,
    /// Look again and again, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Show every move, not only the most urgent ones
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Moves {
    pub(in crate::cli) async fn main(self) -> Result<ExitCode, Failed> {
        let address = self.target.address();
        let redraw = self.watch && !self.json && std::io::stdout().is_terminal();
        loop {
            let text = match client::get::<MovesReport>(&address, "/moves").await {
                Ok(report) if self.json => json(&report, !self.watch)?,
                Ok(report) => told(&report, if self.all { usize::MAX } else { SHOWN }, std::io::stdout().is_terminal()),
                // A node that is watched may come back.
                Err(e) if self.watch => format!("{}\n", failed(e).message),
                Err(e) => return Err(failed(e)),
            };
            let text = match redraw.then(crossterm::terminal::size) {
                Some(Ok((columns, rows))) => print::screen(&text, columns.into(), rows.into()),
                Some(Err(_)) => format!("\x1b[2J\x1b[H{text}"),
                None => text,
            };
            if !write(&text)? || !self.watch {
                return Ok(ExitCode::SUCCESS);
            }
            tokio::time::sleep(WATCH).await;
        }
    }
}

/// The report for people; `bars` where they are seen as they change.
fn told(report: &MovesReport, most: usize, bars: bool) -> String {
    let mut text = String::new();
    let of = |stage: &str| report.moves.iter().filter(|m| m.stage == stage).count();
    let waiting = of("waiting");
    let left: u64 = report.moves.iter().map(|m| m.bytes_left).fold(0, u64::saturating_add);
    let rate: u64 = report.moves.iter().map(|m| m.rate).fold(0, u64::saturating_add);
    let _ = match report.moves.len() {
        0 => writeln!(text, "nothing moves"),
        count => {
            let _ = write!(text, "{}: {} under way, {waiting} waiting", counted(count, ("move", "moves")), count - waiting);
            match left.checked_div(rate) {
                Some(seconds) if left > 0 => {
                    writeln!(text, "; {} to go at {} a second: about {}", bytes(left), bytes(rate), lasts(seconds))
                }
                _ if left > 0 => writeln!(text, "; {} to go", bytes(left)),
                _ => writeln!(text),
            }
        }
    };
    let balance = &report.balance;
    if !balance.on || balance.rate != "adaptive" {
        let rate = balance.rate.parse().map_or_else(|_| balance.rate.clone(), |rate| format!("{} a second", bytes(rate)));
        let _ = writeln!(text, "balancing: {}; move rate: {rate}", balance.state);
    }
    for drain in &report.draining {
        let why = drain.waits_for.as_ref().map(|why| format!(": waits, {why}")).unwrap_or_default();
        let _ = match drain.holds {
            0 => writeln!(text, "{} is drained: it holds nothing, and may be stopped", drain.member),
            _ => writeln!(text, "{} is being drained: it leads {} partitions and holds {}{why}", drain.member, drain.leads, drain.holds),
        };
    }
    if report.moves.is_empty() {
        return text;
    }
    let mut rows =
        vec![["", "partition", "stage", "from", "to", "sent", "left", "a second", "time left", "reason"].map(str::to_owned).to_vec()];
    for one in report.moves.iter().take(most) {
        rows.push(row(one, bars));
    }
    let _ = write!(text, "\n{}", print::columns(&rows));
    if report.moves.len() > most {
        let _ = writeln!(text, "  and {} more (--all shows them)", report.moves.len() - most);
    }
    text
}

fn row(one: &MoveReport, bars: bool) -> Vec<String> {
    let size = |count: u64| if count == 0 { "-".to_owned() } else { bytes(count) };
    let rate = if one.rate == 0 { "-".to_owned() } else { bytes(one.rate) };
    let stage = match (bars && one.stage == "copying", one.bytes_sent.checked_add(one.bytes_left).filter(|all| *all > 0)) {
        (true, Some(all)) => format!("{} {}", one.stage, bar(one.bytes_sent, all)),
        _ => one.stage.clone(),
    };
    let left = one.seconds_left.map_or_else(|| "-".to_owned(), lasts);
    let cells =
        [String::new(), one.id.clone(), stage, one.from.clone(), one.to.clone(), size(one.bytes_sent), size(one.bytes_left), rate, left];
    cells.into_iter().chain([one.reason.clone()]).collect()
}

/// `[#####               ]  25 %`
fn bar(done: u64, all: u64) -> String {
    let share = u128::from(done) * 100 / u128::from(all.max(1));
    let full = usize::try_from(share).unwrap_or(100).min(100) * BAR / 100;
    format!("[{}{}] {share:>3} %", "#".repeat(full), " ".repeat(BAR - full))
}

/// `45 s`, `12 min`, `3 h 20 min`.
fn lasts(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_what_is_done() {
        assert_eq!(bar(25, 100), "[#####               ]  25 %");
        assert_eq!(bar(0, 0), "[                    ]   0 %");
        assert_eq!(bar(u64::MAX, u64::MAX), "[####################] 100 %");
        assert_eq!((lasts(7), lasts(600), lasts(12_000)), ("7 s".into(), "10 min".into(), "3 h 20 min".into()));
    }
}
