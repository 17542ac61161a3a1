//! Clients that look for strings by prefix, through all partitions, page by page.
//!
//! A page reads all of its keys at one moment. So each value that it shows is judged like a read of
//! its key. A key that no page showed must have been absent at some moment of the whole query: it
//! is judged like a read that took as long as that, and found nothing.

use super::client::{self, ClientId};
use super::locker::LOCK;
use super::models;
use super::process::DataInput;
use super::schedule::{Event, MS, SECOND};
use super::world::World;
use crate::linear::{Answer, Call, HistoryEntry};
use bytes::Bytes;
use doyen_engine::op::{Failure, FindQuery, Outcome, PartitionAction, PartitionOperation, Work};
use doyen_placement::{KeyspaceId, MapId, PartitionId};
use rand::Rng;
use std::collections::{BTreeSet, VecDeque};

/// One of this many turns of a client begins a query.
const FINDS: u32 = 25;
/// How often a query begins again because partitions were split or merged meanwhile.
const RENEWED_MAX: u32 = 4;

/// What is looked for: a map, and the beginning of its keys.
const PREFIXES: [(Option<&str>, &str); 10] = [
    (None, ""),
    (None, "register-"),
    (None, "register-1"),
    (None, "counter-"),
    (None, "list-"),
    (None, "fleeting-"),
    (None, "{pair"),
    (None, "bulk"),
    (Some("users"), ""),
    (Some("orders"), "named-"),
];

/// A query under way.
#[derive(Debug)]
pub(crate) struct Finding {
    /// The number of the page that it waits for.
    pub(crate) serial: u64,
    map: MapId,
    /// The name of the map.
    name: Option<&'static str>,
    query: FindQuery,
    /// When it began, and when its present page was called.
    began: u64,
    called: u64,
    /// The partitions that were not read to their end.
    left: VecDeque<PartitionId>,
    /// The names of keys that were shown.
    found: BTreeSet<String>,
    renewed: u32,
}

impl Finding {
    /// Whether it must show a key if that exists all the time.
    fn must_show(&self, key: &str) -> bool {
        client::map_name(key) == self.name
            && key.as_bytes().starts_with(&self.query.prefix)
            && key != client::STRANGER
            && !client::is_field(key)
            && !models::is_modelled(key)
            // The clock of the next primary may be behind, so one that was overdue may come back.
            && !client::fleets(key)
    }
}

impl World {
    /// Sometimes begins a query through the process of a client. False: it does not, or the process
    /// does not know its map.
    pub(crate) fn begins_to_find(&mut self, id: ClientId) -> bool {
        if !self.rng.random_ratio(1, FINDS) {
            return false;
        }
        let (name, prefix) = PREFIXES[self.rng.random_range(0..PREFIXES.len())];
        let query = FindQuery {
            cursor: 0,
            count: [1, 2, 3, 100][self.rng.random_range(0..4)],
            prefix: Bytes::from_static(prefix.as_bytes()),
            values: self.rng.random_bool(0.8),
            holding: None,
        };
        let process = self.clients[id].at.map(|p| &self.processes[p]);
        let view = process.and_then(|process| process.view.as_ref());
        let map = view.and_then(|view| match name {
            None => Some(MapId(0)),
            Some(name) => view.installed.map_named(name).map(|map| map.id),
        });
        let Some(map) = map else { return false };
        self.clients[id].finding = Some(Finding {
            serial: 0,
            map,
            name,
            query,
            began: 0,
            called: 0,
            left: VecDeque::new(),
            found: BTreeSet::new(),
            renewed: 0,
        });
        self.find_anew(id);
        true
    }

    /// Begins at all partitions of the table of the client's process.
    fn find_anew(&mut self, id: ClientId) {
        let began = self.histories.moment(self.schedule.now());
        let process = self.clients[id].at.map(|p| &self.processes[p]);
        let left: VecDeque<PartitionId> = process
            .and_then(|process| process.view.as_ref()?.installed.keyspace(KeyspaceId(0)))
            .map(|keyspace| keyspace.partitions.iter().map(|p| p.id).collect())
            .unwrap_or_default();
        if left.is_empty() {
            return self.stop_finding(id);
        }
        if let Some(finding) = &mut self.clients[id].finding {
            finding.left = left;
            finding.began = began;
            finding.found.clear();
            finding.query.cursor = 0;
        }
        self.find_on(id);
    }

    /// Asks for the next page, or ends the query.
    fn find_on(&mut self, id: ClientId) {
        let called = self.histories.moment(self.schedule.now());
        self.histories.serial += 1;
        let serial = self.histories.serial;
        let at = self.clients[id].at.filter(|p| !self.processes[*p].gone);
        let (Some(at), Some(finding)) = (at, &mut self.clients[id].finding) else {
            return self.stop_finding(id);
        };
        let Some(partition) = finding.left.front().copied() else {
            return self.found_all(id);
        };
        (finding.serial, finding.called) = (serial, called);
        let work = Work::Partition(PartitionOperation {
            keyspace: KeyspaceId(0),
            partition,
            map: finding.map,
            action: PartitionAction::Find(finding.query.clone()),
        });
        self.trace.line(self.schedule.now(), || {
            format!(
                "client {id} -> p{at} #{serial} {partition:?} {:?}",
                brief(&work)
            )
        });
        let threads = self.processes[at].threads.len();
        let thread = self.clients[id].thread.min(threads - 1);
        self.clients[id].thread = thread;
        self.data((at, thread), DataInput::Submit(id, serial, work));
        let patience = [SECOND, 3 * SECOND, 8 * SECOND][self.rng.random_range(0..3)];
        self.schedule
            .after(patience, Event::ClientTimeout(id, serial));
    }

    /// The answer to a page.
    pub(crate) fn take_page(&mut self, id: ClientId, outcome: &Outcome) {
        let moment = self.histories.moment(self.schedule.now());
        let Some(finding) = &mut self.clients[id].finding else {
            return;
        };
        let serial = finding.serial;
        self.trace.line(self.schedule.now(), || {
            format!("client {id} <- #{serial} {}", brief_page(outcome))
        });
        let (next, keys) = match outcome {
            Outcome::Keys { next, keys } => (*next, keys),
            Outcome::Failed(Failure::Stale) if finding.renewed < RENEWED_MAX => {
                finding.renewed += 1;
                return self.find_anew(id);
            }
            Outcome::Failed(
                Failure::Stale
                | Failure::OldMembers
                | Failure::Unknown
                | Failure::Unavailable
                | Failure::Overloaded
                | Failure::NoPartition,
            ) => return self.stop_finding(id),
            other => {
                return self.broken(format!("#{serial}: a query was answered with {other:?}"));
            }
        };
        finding.query.cursor = next;
        if next == 0 {
            finding.left.pop_front();
        }
        let each = if finding.query.values { 2 } else { 1 };
        let mut seen = Vec::new();
        for shown in keys.chunks(each) {
            let key = String::from_utf8_lossy(&shown[0]).into_owned();
            if key.starts_with(LOCK) {
                // Locks are judged by their grants (`locker`).
                continue;
            }
            if !finding.found.insert(key.clone()) && seen.iter().any(|(other, _)| *other == key) {
                return self.broken(format!("#{serial}: a page shows {key} twice"));
            }
            seen.push((key, shown.get(1).map(|value| value.to_vec())));
        }
        let (name, prefix, called) = (finding.name, finding.query.prefix.clone(), finding.called);
        self.histories.found += seen.len() as u64;
        for (key, value) in seen {
            let of_pair = client::pair_of(&key);
            let known = self.keys.iter().any(|k| k == of_pair) && !client::is_field(&key);
            if !known || client::map_name(&key) != name || !key.as_bytes().starts_with(&prefix) {
                return self.broken(format!(
                    "#{serial}: {key} was found in {name:?} by {prefix:?}"
                ));
            }
            // The twin has the same history as the key itself, which has this moment already.
            let Some(value) = value.filter(|_| of_pair == key && key != client::STRANGER) else {
                continue;
            };
            match client::head_of(&key, &value) {
                Some(value) => {
                    self.judge_find(id, key, (called, moment), Answer::Bulk(value));
                }
                None => {
                    return self.broken(format!("#{serial} on {key}: a value came back changed"));
                }
            }
        }
        self.find_on(id);
    }

    /// All partitions were read: what was not shown was absent at some moment.
    fn found_all(&mut self, id: ClientId) {
        let moment = self.histories.moment(self.schedule.now());
        if let Some(finding) = self.clients[id].finding.take() {
            self.histories.finds += 1;
            let hidden: Vec<String> = self
                .keys
                .iter()
                .filter(|key| finding.must_show(key) && !finding.found.contains(*key))
                .cloned()
                .collect();
            for key in hidden {
                self.judge_find(id, key, (finding.began, moment), Answer::Nil);
            }
        }
        self.client_done(id);
    }

    /// Gives a query up. What it has shown is judged all the same.
    pub(crate) fn stop_finding(&mut self, id: ClientId) {
        self.clients[id].finding = None;
        self.client_in(MS, id);
    }

    /// A query is judged like a read of each key.
    fn judge_find(&mut self, id: ClientId, key: String, (called, at): (u64, u64), answer: Answer) {
        let entry = HistoryEntry {
            client: u32::try_from(id).unwrap_or(u32::MAX),
            call: Call::Get,
            called,
            answered: Some((at, answer)),
            waited: at,
        };
        self.histories.keys.entry(key).or_default().push(entry);
    }
}

/// A page that is asked for, in a few letters.
fn brief(work: &Work) -> String {
    match work {
        Work::Partition(PartitionOperation {
            action: PartitionAction::Find(query),
            ..
        }) => format!("find {:?} from {:x}", query.prefix, query.cursor),
        other => format!("{other:?}"),
    }
}

/// A page in a few letters.
fn brief_page(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Keys { next, keys } => {
            let shown: Vec<String> = keys.iter().map(|bytes| client::short(bytes)).collect();
            format!("{} (next {next:x})", shown.join(" "))
        }
        other => format!("{other:?}"),
    }
}
