//! A run in words: processes that start and stop, votes, commits and what they change, and what
//! clients see.

use super::network::Plane;
use super::process::ProcessId;
use super::schedule::{Nanos, SECOND};
use super::world::World;
use doyen_gossip::agreement::{Event, Peer};
use doyen_gossip::wire::Message;
use doyen_placement::{MemberId, Partition, Table};
use std::collections::{BTreeMap, BTreeSet};

/// The most pairs of a cut that are named.
const PAIRS_MAX: usize = 8;

/// The state of the story.
#[derive(Debug, Default)]
pub(crate) struct Story {
    told: BTreeSet<String>,
    /// When the clients' next line is due, and their figures at the last one: operations answered,
    /// refused, unknown.
    clients_at: Nanos,
    clients: [u64; 3],
}

impl World {
    /// Adds a line to the story. The line is made only if the story is read.
    pub(crate) fn tell(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.tells() {
            let line = line(self);
            self.trace.story(self.schedule.now(), &line);
        }
    }

    /// Adds a line that may occur again and again, only the first time.
    fn tell_once(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.tells() {
            let line = line(self);
            if self.story.told.insert(line.clone()) {
                self.trace.story(self.schedule.now(), &line);
            }
        }
    }

    /// Adds a line about the fault that begins.
    pub(crate) fn tell_fault(&mut self, line: impl FnOnce(&Self) -> String) {
        self.tell(|world| {
            format!(
                "fault {}: {}",
                world.next_fault.saturating_sub(1),
                line(world)
            )
        });
    }

    /// A process, as its table calls it.
    pub(crate) fn name(&self, p: ProcessId) -> String {
        format!("n{}", self.processes[p].slot)
    }

    /// The name of a member. A member of an earlier start, or one that was expelled, is not the
    /// process that runs now.
    pub(crate) fn name_of(&self, member: MemberId) -> String {
        match self.slot_of.get(&member.member()) {
            Some(slot) if self.directory.contains_key(&member.member()) => format!("n{slot}"),
            Some(slot) => format!("n{slot} (former)"),
            None => member.to_string(),
        }
    }

    /// Tells which member votes for which.
    pub(crate) fn tell_votes(&mut self, p: ProcessId, to: Peer, message: &Message) {
        match message {
            Message::Vote(ballot) => {
                self.tell_once(|w| format!("{} stands in term {}", w.name(p), ballot.term))
            }
            Message::VoteAnswer(answer, _) if answer.granted => {
                let Peer::Member(candidate) = to else { return };
                self.tell_once(|w| {
                    format!(
                        "{} votes for {} in term {}",
                        w.name(p),
                        w.name_of(candidate),
                        answer.term
                    )
                });
            }
            _ => {}
        }
    }

    /// Tells an event of a process.
    pub(crate) fn tell_event(&mut self, p: ProcessId, event: &Event) {
        match event {
            Event::Coordinator { name, term } if *name == self.name(p) => {
                self.tell(|_| format!("{name} coordinates in term {term}"))
            }
            Event::NoCoordinator { why } => self.tell(|w| format!("{}: {why}", w.name(p))),
            Event::Note { text: note } => self.tell(|w| format!("{}: {note}", w.name(p))),
            // What tables change is in the story when they are committed.
            _ => {}
        }
    }

    /// Tells what was committed since the last call.
    pub(crate) fn tell_commits(&mut self, p: ProcessId) {
        for (before, table) in std::mem::take(&mut self.oracle.newly_committed) {
            self.tell(|w| {
                let what = before.map_or_else(
                    || format!("the first: {}", first(w, &table)),
                    |before| changes(w, &before, &table),
                );
                format!(
                    "{} sees table {}.{} committed: {what}",
                    w.name(p),
                    table.term,
                    table.version
                )
            });
        }
    }

    /// Tells what clients saw since the last line.
    pub(crate) fn tell_clients(&mut self) {
        let now = self.schedule.now();
        if now < self.story.clients_at || !self.trace.tells() {
            return;
        }
        self.story.clients_at = now + SECOND;
        let counts = [
            self.histories.answered,
            self.histories.refused,
            self.histories.unknown,
        ];
        let [answered, refused, unknown] =
            std::array::from_fn(|i| counts[i] - self.story.clients[i]);
        self.story.clients = counts;
        if answered + refused + unknown > 0 {
            self.tell(|_| {
                format!("clients: {answered} answered, {refused} refused, {unknown} unknown")
            });
        }
    }
}

fn first(world: &World, table: &Table) -> String {
    let members: Vec<String> = table.members.iter().map(|m| world.name_of(m.id)).collect();
    format!("members {}", members.join(" "))
}

/// What a table changes.
fn changes(world: &World, before: &Table, after: &Table) -> String {
    let mut said = Vec::new();
    for member in &after.members {
        match before.member(member.id) {
            None => said.push(format!("{} joins", world.name_of(member.id))),
            Some(old) if old.state != member.state => said.push(format!(
                "{} is {:?}",
                world.name_of(member.id),
                member.state
            )),
            Some(_) => {}
        }
    }
    let gone = before
        .members
        .iter()
        .filter(|m| after.member(m.id).is_none());
    said.extend(gone.map(|m| format!("{} is removed", world.name_of(m.id))));
    if before.voters != after.voters {
        let voters: Vec<String> = after.voters.iter().map(|m| world.name_of(*m)).collect();
        said.push(format!("voters {}", voters.join(" ")));
    }
    let mut partitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for keyspace in &after.keyspaces {
        for new in &keyspace.partitions {
            let old = before
                .keyspace(keyspace.id)
                .and_then(|k| k.partitions.iter().find(|p| p.id == new.id));
            for change in partition_changes(world, old.map(AsRef::as_ref), new) {
                partitions
                    .entry(change)
                    .or_default()
                    .push(new.id.to_string());
            }
        }
    }
    said.extend(
        partitions
            .into_iter()
            .map(|(change, of)| format!("{change} [{}]", of.join(" "))),
    );
    if said.is_empty() {
        "nothing else".into()
    } else {
        said.join("; ")
    }
}

fn partition_changes(world: &World, old: Option<&Partition>, new: &Partition) -> Vec<String> {
    let Some(old) = old else {
        return vec![format!("{} leads", world.name_of(new.primary()))];
    };
    let mut said = Vec::new();
    if old.lineage != new.lineage {
        said.push("begins empty".into());
    }
    if old.primary() != new.primary() {
        said.push(format!(
            "{} leads after {}",
            world.name_of(new.primary()),
            world.name_of(old.primary())
        ));
    }
    let all = |p: &Partition| p.replicas.iter().map(|r| r.member).collect::<BTreeSet<_>>();
    let in_sync = |p: &Partition| p.in_sync().collect::<BTreeSet<_>>();
    said.extend(
        all(new)
            .difference(&all(old))
            .filter(|m| new.learners().any(|l| l == **m))
            .map(|m| format!("{} learns", world.name_of(*m))),
    );
    said.extend(
        in_sync(new)
            .difference(&in_sync(old))
            .map(|m| format!("{} is in sync", world.name_of(*m))),
    );
    said.extend(
        in_sync(old)
            .difference(&in_sync(new))
            .map(|m| format!("{} counts no more", world.name_of(*m))),
    );
    said
}

/// The directions of a cut, in few words.
pub(crate) fn cuts(cuts: &[(Plane, usize, usize)]) -> String {
    let mut pairs: BTreeMap<(usize, usize), BTreeSet<(Plane, bool)>> = BTreeMap::new();
    for &(plane, from, to) in cuts {
        pairs
            .entry((from.min(to), from.max(to)))
            .or_default()
            .insert((plane, from < to));
    }
    let pair = |((a, b), cut): (&(usize, usize), &BTreeSet<(Plane, bool)>)| {
        let has = |plane, forth| cut.contains(&(plane, forth));
        let arrow = |forth: bool, back: bool| {
            [["", "<-"], ["->", "<->"]][usize::from(forth)][usize::from(back)]
        };
        let (control, data) = (
            arrow(has(Plane::Control, true), has(Plane::Control, false)),
            arrow(has(Plane::Data, true), has(Plane::Data, false)),
        );
        let part = |arrow: &str, plane: &str| {
            if arrow.is_empty() {
                String::new()
            } else {
                format!("n{a} {arrow} n{b}{plane}")
            }
        };
        if control == data {
            part(control, "")
        } else {
            let parts = [part(control, " (control)"), part(data, " (data)")];
            parts
                .into_iter()
                .filter(|p| !p.is_empty())
                .collect::<Vec<_>>()
                .join(", ")
        }
    };
    let mut said: Vec<String> = pairs.iter().take(PAIRS_MAX).map(pair).collect();
    said.extend(
        (pairs.len() > PAIRS_MAX).then(|| format!("{} more pairs", pairs.len() - PAIRS_MAX)),
    );
    said.join(", ")
}
