//! `doyen chaos`: runs a cluster of real processes on this machine, injects one fault after the
//! other, and judges every operation that clients made meanwhile.
//!
//! ```text
//!   plan (a seed) ──> strike ── SIGKILL, SIGSTOP, joins, leaves ──> testkit::Cluster
//!                        │   ── cuts, loss, delay, corruption ────> its relays
//!                        │ what, when, when healed                      ▲
//!                        └──> book <── answers, waits ── load: clients ─┘
//!                               └──> report, page            └──> testkit::History:
//!                                                                 judges every operation
//! ```
//!
//! Faults stay within what Doyen promises to survive; see `plan`.

mod book;
mod end;
mod follow;
mod load;
mod locks;
mod near;
mod page;
mod plan;
mod queues;
mod report;
mod strike;

use super::{CommandFailed, runtime, say};
use book::{Book, Fault};
use doyen::testkit::{Cluster, History};
use end::ChaosEnd;
use load::ChaosLoad;
use plan::ChaosPlan;
use report::{ChaosReport, ReportSum};
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::LocalSet;

/// How long the cluster may take to become safe after a fault has ended.
const HEAL_MAX: Duration = Duration::from_secs(60);
/// Operations of a run, at most. All of them are kept until they are judged, at some 150 bytes
/// each.
const OPERATIONS_MAX: f64 = 4e6;
/// The shortest round.
const MINUTES_LEAST: f64 = 0.1;
/// Time between two lines of figures.
const SECOND: Duration = Duration::from_secs(1);

/// Starts a cluster, injects faults, and checks every answer that clients got.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One fault at a time, chosen by the seed: SIGKILL, SIGSTOP, restarts in order, joins and leaves; \
cuts in one or both directions, of one or both ports; loss, delay, duplication, reordering, \
corruption, low bandwidth, and datagrams above a size that vanish. The next fault comes when all \
data is safe again. Faults never take away a majority of the voters, or all copies in sync of a \
partition: Doyen does not promise to survive that. The same seed gives the same faults in the \
same order, but not the same timing.

Ctrl-C ends the run early and prints the figures so far. A second Ctrl-C ends it at once.

Status 1 if an acknowledged write was lost, a read was stale (of a near cache: beyond its bound), \
an answer has no explanation, a lock had two holders or let a former one write, an element of a \
queue was popped twice or is missing, or the cluster did not heal.")]
pub(super) struct Chaos {
    /// Nodes at the start: at least 3, and at most 7, so that every node votes
    #[arg(
        long,
        default_value_t = 5,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(3..=7)
    )]
    nodes: u8,
    /// Minutes under load and faults, about: 0.1 to 60
    #[arg(long, default_value_t = 10.0, value_name = "M", value_parser = minutes)]
    minutes: f64,
    /// Repeat for this many hours, 0.01 to 1000: each round has --minutes, a new cluster and the
    /// next seed. The first round that fails ends the run
    #[arg(long, value_name = "H", value_parser = hours)]
    hours: Option<f64>,
    /// Seed that chooses the faults and their order [default: random, and printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Copies beside the primary, 1 to 3 and fewer than nodes. With 2 or more, two nodes die at
    /// once now and then
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=3)
    )]
    backups: u8,
    /// Limit on the operations a second of all clients together, 1 to 5000
    #[arg(
        long,
        default_value_t = 1000,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=5000)
    )]
    rate: u32,
    /// Write a page with a timeline to this file; of several rounds, the last one
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Keep the logs of the nodes in this directory [default: a temporary one, kept if the run
    /// fails]
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Print the report as JSON and nothing else; with --hours, one line for each round and one for
    /// the total
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|m| (MINUTES_LEAST..=60.0).contains(m))
        .ok_or_else(|| "give a number from 0.1 to 60".into())
}

fn hours(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|h| (0.01..=1000.0).contains(h))
        .ok_or_else(|| "give a number from 0.01 to 1000".into())
}

/// State that all parts share. They run on one thread.
type SharedBook = Rc<RefCell<Book>>;

impl Chaos {
    pub(super) fn main(self) -> Result<ExitCode, CommandFailed> {
        runtime()?.block_on(LocalSet::new().run_until(async {
            let (hand, by_hand) = watch::channel(false);
            tokio::select! {
                outcome = self.play(by_hand) => outcome,
                why = end::twice(hand) => Err(why),
            }
        }))
    }

    async fn play(self, by_hand: watch::Receiver<bool>) -> Result<ExitCode, CommandFailed> {
        if self.backups >= self.nodes {
            return Err(CommandFailed::usage(format!(
                "--nodes {} --backups {}: {} copies of each partition need {} nodes; \
                 use --nodes {} or --backups {}",
                self.nodes,
                self.backups,
                self.backups + 1,
                self.backups + 1,
                self.backups + 1,
                self.nodes - 1
            )));
        }
        let operations = self.minutes * 60.0 * f64::from(self.rate);
        if operations > OPERATIONS_MAX {
            return Err(CommandFailed::usage(format!(
                "--minutes {} at --rate {} make {operations:.0} operations, but only \
                 {OPERATIONS_MAX:.0} can be judged: lower one of them",
                self.minutes, self.rate
            )));
        }
        if let Some(path) = &self.report {
            // Before the run: a report that cannot be written would make it useless.
            let open = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(path);
            open.map_err(|e| {
                CommandFailed::usage(format!("cannot write {} (--report): {e}", path.display()))
            })?;
        }
        let seed = self.seed.unwrap_or_else(|| rand::random::<u32>().into());
        let Some(hours) = self.hours else {
            let report = self.round(seed, self.minutes, &by_hand).await?;
            self.tell(&report)?;
            return Ok(if report.holds() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        };
        let until = Instant::now() + Duration::from_secs_f64(hours * 3600.0);
        let mut sum = ReportSum::default();
        for seed in seed.. {
            let left = until
                .saturating_duration_since(Instant::now())
                .as_secs_f64()
                / 60.0;
            let report = self
                .round(seed, self.minutes.min(left.max(MINUTES_LEAST)), &by_hand)
                .await?;
            self.tell(&report)?;
            sum.add(&report);
            if !self.json {
                say(format_args!("{sum}\n"));
            }
            if !report.holds() {
                self.print(&sum)?;
                return Ok(ExitCode::FAILURE);
            }
            if report.by_hand || Instant::now() >= until {
                break;
            }
        }
        self.print(&sum)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Prints a line of JSON, if JSON is requested.
    fn print(&self, what: &impl serde::Serialize) -> Result<(), CommandFailed> {
        if self.json {
            let text = serde_json::to_string(what)
                .map_err(|e| CommandFailed::new(format!("cannot write it as JSON: {e}")))?;
            say(format_args!("{text}\n"));
        }
        Ok(())
    }

    fn tell(&self, report: &ChaosReport) -> Result<(), CommandFailed> {
        if !self.json {
            say(format_args!("{report}"));
        }
        self.print(report)?;
        if let Some(path) = &self.report {
            let write = std::fs::write(path, page::page(report));
            write.map_err(|e| {
                CommandFailed::new(format!("cannot write {} (--report): {e}", path.display()))
            })?;
        }
        Ok(())
    }

    /// Runs one cluster, and returns its report.
    async fn round(
        &self,
        seed: u64,
        minutes: f64,
        by_hand: &watch::Receiver<bool>,
    ) -> Result<ChaosReport, CommandFailed> {
        let mut book = Book::new(!self.json);
        if self.hours.is_some() {
            book = book.without_seconds();
        }
        let book = Rc::new(RefCell::new(book));
        book.borrow().say(format_args!(
            "seed {seed}: {} nodes behind relays, {} copies of each partition",
            self.nodes,
            self.backups + 1
        ));
        let itself = std::env::current_exe().map_err(|e| {
            CommandFailed::new(format!("cannot find the path of this program: {e}"))
        })?;
        let mut builder = Cluster::builder()
            .binary(itself)
            .apart()
            .seed(seed)
            .option("backups", self.backups)
            .option("partitions", 256);
        if let Some(directory) = &self.logs {
            let rounds = self.hours.map(|_| format!("seed-{seed}"));
            builder = builder
                .directory(rounds.map_or_else(|| directory.clone(), |round| directory.join(round)));
        }
        let starting = ChaosEnd::new(Instant::now(), by_hand.clone());
        let started = starting
            .unless_ended(builder.start(self.nodes.into()))
            .await;
        let mut cluster = started.ok_or_else(|| super::ended_by_hand("chaos"))??;
        book.borrow().say(format_args!(
            "all data is safe. Faults come one at a time, and each waits until all data is safe \
             again: a majority of the voters, and a copy in sync of every partition, stay \
             untouched"
        ));
        let history = History::new();
        book.borrow_mut().see(&cluster);
        let load = ChaosLoad::start(&book, &history, &cluster, self.rate, seed).await?;
        let ticker = tokio::task::spawn_local(tick(book.clone()));
        let end = ChaosEnd::new(
            Instant::now() + Duration::from_secs_f64(minutes * 60.0),
            by_hand.clone(),
        );
        let plan = ChaosPlan::new(seed, self.nodes.into());
        let unhealed = rampage(plan, &mut cluster, &book, &end).await;
        let elapsed = book.borrow().elapsed();
        let (told, near, locks, queues) = load.finish().await?;
        ticker.abort();
        book.borrow().say(format_args!(
            "reading all keys back, and looking for an explanation of every answer"
        ));
        let unread = load::read_back(&book, &history).await;
        // Judging blocks this thread for a while. Nothing else has to run meanwhile.
        let violations = history.judge();
        let operations = history.keys().len();
        let mut report = ChaosReport::new(
            &book.borrow(),
            seed,
            self.nodes,
            self.backups,
            elapsed,
            violations,
        );
        (
            report.keys,
            report.unread,
            report.unhealed,
            report.datagrams,
        ) = (operations, unread, unhealed, cluster.datagrams());
        (report.told, report.near) = (told, near);
        (report.locks, report.queues) = (locks, queues);
        report.by_hand = end.is_by_hand();
        if !report.holds() {
            report.logs = Some(cluster.keep_logs().display().to_string());
        }
        Ok(report)
    }
}

/// Injects one fault after the other. Returns what is wrong with the cluster, if it does not heal.
async fn rampage(
    mut plan: ChaosPlan,
    cluster: &mut Cluster,
    book: &SharedBook,
    end: &ChaosEnd,
) -> Option<String> {
    loop {
        let mut episode = plan.next();
        end.sleep(episode.calm).await;
        if end.is_over() {
            return None;
        }
        let planned = match plan::aim(&mut episode, cluster).await {
            Ok(aim) => aim,
            Err(why) => {
                book.borrow().say(format_args!(
                    "skipped this time ({}): {why}",
                    episode.kind.name()
                ));
                continue;
            }
        };
        let mut fault = Fault::begin(&book.borrow(), episode.kind.name(), planned.text.clone());
        book.borrow().say(format_args!("{}", planned.text));
        let struck = strike::strike(&episode, &planned, cluster, book, end).await;
        fault.end(&book.borrow());
        let healed = match struck {
            Ok(whole) => {
                fault.cut_short = !whole;
                cluster.await_safe(HEAL_MAX).await
            }
            Err(e) => Err(e),
        };
        fault.heal(&book.borrow(), healed.is_ok());
        let (lasted, took, over) = (
            fault.lasted(),
            fault.healing(),
            if fault.cut_short {
                "cut short by the end"
            } else {
                "over"
            },
        );
        // Clients that still wait are counted once they have an answer, so only the final report
        // has all waits.
        let unavailable = book.borrow().unavailable(&fault);
        book.borrow_mut().faults.push(fault);
        book.borrow_mut().excused.clear();
        if let Err(e) = healed {
            book.borrow().say(format_args!("NOT HEALED: {e}"));
            return Some(e.to_string());
        }
        book.borrow().say(format_args!(
            "  {over} after {:.2} s; all data is safe {:.2} s later; \
             longest wait for an answer meanwhile: {:.2} s",
            lasted.as_secs_f64(),
            took.as_secs_f64(),
            unavailable.as_secs_f64()
        ));
    }
}

async fn tick(book: SharedBook) {
    let mut seconds = tokio::time::interval(SECOND);
    seconds.tick().await;
    loop {
        seconds.tick().await;
        book.borrow_mut().tick();
    }
}
