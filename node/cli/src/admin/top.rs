//! `doyen top`: the console in a terminal.
//!
//! ```text
//!   node ── /console/stream ──> TopState <── draw, some times a second ── terminal
//!                                  │
//!   after an error: the next member that has an HTTP port
//! ```

mod draw;

use super::AdminEndpoint;
use crate::CommandFailed;
use crate::screen::{Cell, Pressed, pressed};
use doyen::http::client::{Client, HttpError};
use doyen::report::status::{ClusterReport, MemberReport};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// What the console's pages follow.
const STREAM: &str = "/console/stream";
/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(100);
/// Time before the next member is asked.
const PAUSE: Duration = Duration::from_millis(500);
/// Events that are kept.
const EVENTS_MAX: usize = 100;
/// Samples that are kept: an hour.
const SAMPLES_MAX: usize = 720;

/// Show the cluster in this terminal, live.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Arrow keys move the list of members; q ends. If the node goes, the next member \
                  is asked. The console in a browser shows more. For output without a terminal, \
                  there is `doyen status --watch`."
)]
pub(crate) struct TopCommand {
    #[command(flatten)]
    endpoint: AdminEndpoint,
}

/// What is known of the cluster. It holds facts only; `draw` draws them.
#[derive(Debug, Default)]
struct TopState {
    /// The node that is asked.
    node: String,
    /// Why nothing comes from it at this moment.
    silent: Option<String>,
    report: Option<ClusterReport>,
    alerts: Vec<TopAlert>,
    members: BTreeMap<String, TopSample>,
    /// Of the whole cluster, oldest first, up to the sample of this number.
    hour: VecDeque<TopSample>,
    sampled: u64,
    /// `None`: the caller may not see it.
    map: Option<MapSection>,
    /// Partitions by primary.
    cells: Vec<Cell>,
    /// How many partitions each member leads and holds.
    held: BTreeMap<String, (usize, usize)>,
    events: VecDeque<TopEvent>,
    /// The first member that is shown.
    first: usize,
}

/// Something that is wrong.
#[derive(Debug, Deserialize)]
struct TopAlert {
    severity: String,
    text: String,
}

#[derive(Debug, Deserialize)]
struct TopEvent {
    at: String,
    severity: String,
    text: String,
}

/// Rates a second, and sizes.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct TopSample {
    commands: u64,
    errors: u64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    hits: u64,
    misses: u64,
    memory: u64,
    memory_max: u64,
    clients: u64,
}

#[derive(Deserialize)]
struct SampleSection {
    number: u64,
    cluster: TopSample,
    members: BTreeMap<String, TopSample>,
}

#[derive(Deserialize)]
struct HourSection {
    number: u64,
    samples: VecDeque<TopSample>,
}

#[derive(Debug, Deserialize)]
struct MapSection {
    members: Vec<String>,
    keyspaces: Vec<MapKeyspace>,
}

#[derive(Debug, Deserialize)]
struct MapKeyspace {
    copies: usize,
    /// Of each partition the members that hold it, the primary first; a learner as -1 less its
    /// number.
    partitions: Vec<Vec<i64>>,
}

impl TopCommand {
    pub(super) async fn main(self) -> Result<ExitCode, CommandFailed> {
        if !std::io::stdout().is_terminal() {
            let why = "top draws on a terminal, and this is none: use `doyen status --watch`";
            return Err(CommandFailed::usage(why));
        }
        let client = self.endpoint.client()?;
        let state = RefCell::new(TopState::default());
        let (failed, failure) = tokio::sync::oneshot::channel();
        let following = follow(client, &state, failed);
        let showing = async {
            // The first answer is waited for outside of the full screen, where its error stays.
            tokio::select! {
                why = failure => if let Ok(why) = why { return Err(CommandFailed::from(why)) },
                () = begun(&state) => {}
            }
            show(&state).await
        };
        tokio::select! {
            () = following => Ok(ExitCode::SUCCESS),
            shown = showing => shown.map(|()| ExitCode::SUCCESS),
        }
    }
}

/// The number of a member, which has a colour. It goes by age, so it stays when another one goes.
fn number(member: &MemberReport) -> usize {
    usize::try_from(member.age.saturating_sub(1)).unwrap_or(0)
}

/// Waits for the first section.
async fn begun(state: &RefCell<TopState>) {
    while state.borrow().report.is_none() {
        tokio::time::sleep(FRAME).await;
    }
}

/// Follows the stream of one member after the other. The first one's refusal goes to `failed`.
async fn follow(
    first: Client,
    state: &RefCell<TopState>,
    failed: tokio::sync::oneshot::Sender<HttpError>,
) {
    let (mut client, mut failed) = (first.clone(), Some(failed));
    loop {
        let take = |name: &str, json: &str| {
            let mut state = state.borrow_mut();
            client.address().clone_into(&mut state.node);
            state.take(name, json);
        };
        let ended = client.follow(STREAM, take).await;
        if let Some(failed) = failed.take()
            && state.borrow().report.is_none()
        {
            let _ = failed.send(ended);
            return std::future::pending().await;
        }
        state.borrow_mut().silent = Some(ended.to_string());
        tokio::time::sleep(PAUSE).await;
        client = first.at(state.borrow().next(client.address(), first.address()));
    }
}

/// Draws until the user ends it.
async fn show(state: &RefCell<TopState>) -> Result<(), CommandFailed> {
    let cannot = |e: std::io::Error| {
        CommandFailed::new(format!(
            "cannot draw here ({e}): use `doyen status --watch`"
        ))
    };
    // `try_init` also makes a panic restore the terminal.
    let mut terminal = ratatui::try_init().map_err(cannot)?;
    let shown = loop {
        if let Err(e) = terminal.draw(|frame| draw::top(frame, &state.borrow())) {
            break Err(cannot(e));
        }
        match pressed() {
            Some(Pressed::End) => break Ok(()),
            Some(Pressed::Up) => state.borrow_mut().scroll(-1),
            Some(Pressed::Down) => state.borrow_mut().scroll(1),
            None => {}
        }
        tokio::time::sleep(FRAME).await;
    };
    ratatui::restore();
    shown
}

impl TopState {
    /// A section of the stream. One that this release does not know is passed over.
    fn take(&mut self, name: &str, json: &str) {
        fn read<'a, T: Deserialize<'a>>(json: &'a str, to: impl FnOnce(T)) {
            if let Ok(known) = serde_json::from_str(json) {
                to(known);
            }
        }
        self.silent = None;
        match name {
            // A node that is asked again sends its events from the first one on.
            "hello" => self.events.clear(),
            "status" => read(json, |report| {
                self.report = Some(report);
                self.place();
            }),
            "alerts" => read(json, |alerts| self.alerts = alerts),
            "map" => read(json, |map| {
                self.map = Some(map);
                self.place();
            }),
            "hour" => read(json, |hour: HourSection| {
                (self.hour, self.sampled) = (hour.samples, hour.number);
            }),
            "sample" => read(json, |sample: SampleSection| {
                self.members = sample.members;
                // The hour may have come with this sample.
                if std::mem::replace(&mut self.sampled, sample.number) != sample.number {
                    self.hour.push_back(sample.cluster);
                }
                while self.hour.len() > SAMPLES_MAX {
                    self.hour.pop_front();
                }
            }),
            "happened" => read(json, |event| {
                self.events.push_back(event);
                while self.events.len() > EVENTS_MAX {
                    self.events.pop_front();
                }
            }),
            _ => {}
        }
    }

    /// Who holds what. The colours come from the ages of the members, which another section has.
    fn place(&mut self) {
        let Some(map) = &self.map else { return };
        self.cells.clear();
        self.held.clear();
        let colours: BTreeMap<&str, usize> = self.report.as_ref().map_or_else(BTreeMap::new, |r| {
            let members = r.members.iter();
            members.map(|m| (&*m.name, number(m))).collect()
        });
        let name = |place: i64| map.members.get(usize::try_from(place).ok()?);
        for keyspace in &map.keyspaces {
            let copies = keyspace.copies.min(map.members.len());
            for replicas in &keyspace.partitions {
                let primary = replicas.first().and_then(|number| name(*number));
                self.cells.push(Cell {
                    primary: primary.and_then(|name| colours.get(&**name).copied()),
                    open: true,
                    whole: replicas.iter().filter(|number| **number >= 0).count() >= copies,
                });
                for (place, number) in replicas.iter().enumerate() {
                    let Some(name) = name(*number) else { continue };
                    let held = self.held.entry(name.clone()).or_default();
                    held.0 += usize::from(place == 0);
                    held.1 += 1;
                }
            }
        }
        // Partitions in the same state stand together.
        self.cells.sort_unstable();
    }

    /// The address to ask after this one, which does not answer: that of the next member, or else
    /// the one that the user named.
    fn next(&self, after: &str, first: &str) -> String {
        let members = self.report.iter().flat_map(|report| &report.members);
        let others = members.filter_map(|member| Some(member.http?.to_string()));
        let mut all: Vec<String> = std::iter::once(first.to_owned()).chain(others).collect();
        all.dedup();
        let at = all.iter().position(|address| address == after);
        let next = at.map_or(0, |at| (at + 1) % all.len());
        all.swap_remove(next)
    }

    fn scroll(&mut self, by: isize) {
        let members = self.report.as_ref().map_or(0, |r| r.members.len());
        let last = members.saturating_sub(1);
        self.first = self.first.saturating_add_signed(by).min(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A cluster of this many members.
    pub(super) fn seen(members: usize) -> TopState {
        let mut state = TopState::default();
        let named: Vec<_> = (1..=members).map(|n| format!("n{n}")).collect();
        let reports: Vec<_> = named
            .iter()
            .zip(1..)
            .map(|(name, age)| {
                json!({
                    "name": name, "id": "1", "age": age, "state": "live", "address": "127.0.0.1:1",
                    "data": "127.0.0.1:2", "resp": null, "resp_cluster": null,
                    "http": format!("127.0.0.1:{}", 7480 + age),
                })
            })
            .collect();
        let sample = json!({
            "commands": 12_345, "p50_us": 80, "p99_us": 1_500, "hits": 3, "misses": 1,
            "memory": 90_000_000, "memory_max": 100_000_000, "clients": 7,
        });
        let samples: BTreeMap<_, _> = named.iter().map(|name| (name, &sample)).collect();
        let partitions: Vec<_> = (0..64).map(|n| [n % members, (n + 1) % members]).collect();
        let status = json!({
            "cluster_id": "7", "term": 1, "version": 9, "coordinator": "n1", "safe": true,
            "members": reports, "moves": [],
            "keyspaces": [{
                "name": "default", "mode": "fixed", "partitions": 64, "backups": 1,
                "min_in_sync": 1, "on_loss": "wait", "default_ttl": "none",
                "under_replicated": 3, "unavailable": 0,
            }],
        });
        for (name, section) in [
            ("hello", json!({"node": "n1"})),
            // Sections come in the order of their names.
            (
                "alerts",
                json!([{"name": "A", "severity": "warning", "text": "n1 is full.", "runbook": ""}]),
            ),
            (
                "map",
                json!({
                    "members": named,
                    "keyspaces": [{"name": "default", "copies": 2, "partitions": partitions}],
                }),
            ),
            (
                "hour",
                json!({"number": 2, "seconds": 5, "samples": [sample, sample]}),
            ),
            (
                "sample",
                json!({"number": 3, "cluster": sample, "members": samples}),
            ),
            (
                "happened",
                json!({
                    "number": 1, "at": "2026-11-30T01:02:03.000Z", "severity": "info",
                    "text": "n1 coordinates",
                }),
            ),
            ("status", status),
            ("of a later release", json!(null)),
        ] {
            state.take(name, &section.to_string());
        }
        state
    }

    #[test]
    fn sections_become_facts() {
        let state = seen(3);
        assert_eq!(state.hour.len(), 3);
        assert_eq!(state.cells.len(), 64);
        assert!(state.cells.iter().all(|c| c.primary.is_some() && c.whole));
        let held: usize = state.held.values().map(|(leads, _)| leads).sum();
        assert_eq!(held, 64);
        assert_eq!(state.events.len(), 1);
        assert_eq!(state.members["n2"].clients, 7);
    }

    #[test]
    fn a_malformed_section_changes_nothing() {
        let mut state = seen(3);
        for name in ["status", "alerts", "map", "hour", "sample", "happened"] {
            state.take(name, "{\"members\": 7");
            state.take(name, "[7]");
        }
        assert_eq!((state.hour.len(), state.cells.len()), (3, 64));
        assert!(state.report.is_some());
    }

    #[test]
    fn the_members_are_asked_in_turn() {
        let state = seen(2);
        let first = "host:7480";
        let second = state.next(first, first);
        assert_eq!(second, "127.0.0.1:7481");
        let third = state.next(&second, first);
        assert_eq!(third, "127.0.0.1:7482");
        assert_eq!(state.next(&third, first), first);
        assert_eq!(TopState::default().next(first, first), first);
    }
}
