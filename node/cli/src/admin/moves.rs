//! `doyen moves`: which partitions move, how far they are, and why.

use super::print::{Column, grid};
use super::{AdminEndpoint, show_or_watch};
use crate::{CommandFailed, PARTITIONS, bytes, counted};
use doyen::http::api;
use doyen::report::moves::{MoveReport, MovesReport};
use std::collections::VecDeque;
use std::fmt::Write;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Moves that are shown without `--all`.
const SHOWN: usize = 20;
/// Columns of a bar, and of a terminal that has room for bars and all other columns.
const BAR: usize = 20;
const WIDE: usize = 120;
/// The time over which `--watch` measures the rate. It covers several copies and the pauses between
/// them.
const MEASURED: Duration = Duration::from_secs(15);

const STAGES: &str = "\
Stages:
  waiting      other moves go first
  no room      the target lacks memory: add a member, or raise --memory-max
  copying      the existing entries are sent
  catching up  the entries written meanwhile are sent
  comparing    both sides compute checksums
  equal        the checksums are equal: the copy counts with the next table
  switching    another member takes over as primary
  dropping     the old copy is dropped";

/// Shows which partitions move, how far they are, and why.
#[derive(Debug, clap::Args)]
#[command(after_help = STAGES)]
pub(crate) struct Moves {
    #[command(flatten)]
    endpoint: AdminEndpoint,
    /// Repeat until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Show every move, not only the first 20: moves under way come first, then the most urgent
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Moves {
    pub(crate) async fn main(self) -> Result<ExitCode, CommandFailed> {
        let terminal = std::io::stdout().is_terminal();
        let most = if self.all { usize::MAX } else { SHOWN };
        let mut looks = Looks::default();
        let for_people = |report: &MovesReport| {
            let wide = !terminal
                || crossterm::terminal::size()
                    .map_or(true, |(columns, _)| usize::from(columns) >= WIDE);
            let shape = if wide {
                TableWidth::Wide { bars: terminal }
            } else {
                TableWidth::Narrow
            };
            let measured = looks.rate(Instant::now(), report.bytes_left());
            told(report, most, shape, measured)
        };
        let node = self.endpoint.client()?;
        show_or_watch(&node, &api::MOVES, (self.watch, self.json), for_people).await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// How much the terminal has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableWidth {
    /// All columns; with bars if the text is watched.
    Wide {
        /// Whether there are bars.
        bars: bool,
    },
    /// The most important columns.
    Narrow,
}

/// How many bytes were left at which time.
#[derive(Debug, Default)]
struct Looks(VecDeque<(Instant, u64)>);

impl Looks {
    /// Bytes a second over the measured time; `None` at the first request.
    fn rate(&mut self, now: Instant, left: u64) -> Option<u64> {
        // More bytes are left than before: another move began, so measure from here.
        if self.0.back().is_some_and(|(_, before)| left > *before) {
            self.0.clear();
        }
        self.0.push_back((now, left));
        while self
            .0
            .get(1)
            .is_some_and(|(at, _)| now.duration_since(*at) >= MEASURED)
        {
            self.0.pop_front();
        }
        let (began, before) = *self.0.front()?;
        let passed = now.duration_since(began).as_secs_f64();
        (passed > 0.0).then(|| ((before - left) as f64 / passed) as u64)
    }
}

/// The report as text. `measured`: bytes a second, if it was watched for long enough.
fn told(report: &MovesReport, most: usize, shape: TableWidth, measured: Option<u64>) -> String {
    let mut text = report.halted_line();
    let of = |stage: &str| report.moves.iter().filter(|m| m.stage == stage).count();
    let full = of("no room");
    let waiting = report.moves.iter().filter(|m| m.waits()).count();
    let left = report.bytes_left();
    let rate = measured.unwrap_or_else(|| report.rate());
    let _ = match report.moves.len() {
        0 => writeln!(text, "nothing moves"),
        count => {
            let _ = write!(
                text,
                "{}: {} under way, {waiting} waiting",
                counted(count, ("move", "moves")),
                count - waiting
            );
            match left.checked_div(rate) {
                Some(seconds) if left > 0 => {
                    writeln!(
                        text,
                        "; {} to go at {} a second: about {}",
                        bytes(left),
                        bytes(rate),
                        lasts(seconds)
                    )
                }
                _ if left > 0 => writeln!(text, "; {} to go", bytes(left)),
                _ => writeln!(text),
            }
        }
    };
    let balance = &report.balance;
    if !balance.on || balance.rate != "adaptive" {
        let _ = writeln!(
            text,
            "balancing: {}; move rate: {}",
            balance.state,
            balance.spoken_rate()
        );
    }
    if full > 0 {
        let _ = writeln!(
            text,
            "{full} of them find no room: start another member, or raise --memory-max \
             of those that are there"
        );
    }
    for drain in &report.draining {
        let why = drain
            .waits_for
            .as_ref()
            .map(|why| format!(": waits, {why}"))
            .unwrap_or_default();
        let _ = match drain.holds {
            0 => writeln!(
                text,
                "{} is drained: it holds nothing, and may be stopped",
                drain.member
            ),
            _ => writeln!(
                text,
                "{} is being drained: it leads {} and holds {}{why}",
                drain.member,
                counted(drain.leads, PARTITIONS),
                drain.holds
            ),
        };
    }
    if report.moves.is_empty() {
        return text;
    }
    let always: [Column<'_, MoveReport>; 5] = [
        ("", &|_| String::new()),
        ("partition", &|one| one.id.clone()),
        ("stage", &|one| stage(one, shape)),
        ("from", &|one| one.from.clone()),
        ("to", &|one| one.to.clone()),
    ];
    let of_copies: [Column<'_, MoveReport>; 3] = [
        ("sent", &|one| size(one.bytes_sent)),
        ("left", &|one| size(one.bytes_left)),
        ("a second", &|one| size(one.rate)),
    ];
    let mut shown = always.to_vec();
    if shape != TableWidth::Narrow {
        shown.extend(of_copies);
    }
    shown.push(("time left", &|one| {
        one.seconds_left.map_or_else(|| "-".to_owned(), lasts)
    }));
    shown.push(("reason", &|one| one.reason.clone()));
    let some = &report.moves[..most.min(report.moves.len())];
    let _ = write!(text, "\n{}", grid(some, &shown));
    if report.moves.len() > most {
        let _ = writeln!(
            text,
            "  and {} more (--all shows them)",
            report.moves.len() - most
        );
    }
    text
}

fn size(count: u64) -> String {
    if count == 0 {
        "-".to_owned()
    } else {
        bytes(count)
    }
}

/// The stage of a move, with how far a copy is.
fn stage(one: &MoveReport, shape: TableWidth) -> String {
    let all = one
        .bytes_sent
        .checked_add(one.bytes_left)
        .filter(|all| *all > 0 && one.stage == "copying");
    match (shape, all) {
        (TableWidth::Wide { bars: true }, Some(all)) => {
            format!("{} {}", one.stage, bar(one.bytes_sent, all))
        }
        (TableWidth::Narrow, Some(all)) => {
            format!("{} {:>3} %", one.stage, percent(one.bytes_sent, all))
        }
        _ => one.stage.clone(),
    }
}

fn percent(done: u64, all: u64) -> usize {
    usize::try_from(u128::from(done) * 100 / u128::from(all.max(1)))
        .unwrap_or(100)
        .min(100)
}

/// `[#####               ]  25 %`
fn bar(done: u64, all: u64) -> String {
    let share = percent(done, all);
    let full = share * BAR / 100;
    format!(
        "[{}{}] {share:>3} %",
        "#".repeat(full),
        " ".repeat(BAR - full)
    )
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
        assert_eq!(bar(9, 3), "[####################] 100 %");
        assert_eq!(
            (lasts(7), lasts(600), lasts(12_000)),
            ("7 s".into(), "10 min".into(), "3 h 20 min".into())
        );
    }

    /// A rate taken from one request alone counted only the copies that were on their way at that
    /// moment: the time left went up and down.
    #[test]
    fn a_watched_rate_covers_the_last_seconds() {
        let (mut looks, began) = (Looks::default(), Instant::now());
        let mut at =
            |seconds: u64, left: u64| looks.rate(began + Duration::from_secs(seconds), left);
        assert_eq!(at(0, 1000), None);
        assert_eq!(at(2, 1000), Some(0));
        assert_eq!(at(10, 500), Some(50));
        assert_eq!(at(20, 400), Some(600 / 18));
        assert_eq!(
            at(30, 100),
            Some((500 - 100) / 20),
            "the oldest that is needed stays"
        );
        assert_eq!(at(31, 5000), None, "it begins again");
        assert_eq!(at(32, 4000), Some(1000));
    }
}
