//! The tables that a member acts on, and what it must remember about them for rule 9.

use super::api::{Event, Output, View};
use super::context::Context;
use super::lease::Order;
use crate::time::Time;
use crate::wire::{Commit, Payload};
use doyen_placement::table::TableDelta;
use doyen_placement::{Epoch, Lineage, MemberId, MemberState, Partition, PartitionRef, Table, TableName};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Committed tables that are kept to make differences against.
const RECENT_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) installed: Arc<Table>,
    pub(super) installed_name: TableName,
    pub(super) accepted: Arc<Table>,
    pub(super) accepted_name: TableName,
    /// What came with the commit of `installed`.
    pub(super) commit: Option<Commit>,
    recent: VecDeque<(TableName, Arc<Table>)>,
    /// When this node installed the table that began each partition's present tenure.
    tenures: BTreeMap<PartitionRef, (Epoch, Time)>,
    /// Since when the present voters are installed here.
    voters_at: Time,
    /// When this node last answered a ping of each member.
    pub(super) answered: BTreeMap<MemberId, Time>,
    /// Partitions that this node leads: since which epoch, and when they may open.
    opens_at: BTreeMap<PartitionRef, (Epoch, Time)>,
}

/// Names of the partitions of a table.
pub(super) fn partitions(table: &Table) -> impl Iterator<Item = (PartitionRef, &Arc<Partition>)> {
    table.keyspaces.iter().flat_map(|k| k.partitions.iter().map(|p| (PartitionRef { keyspace: k.id, partition: p.id }, p)))
}

/// A partition that nobody led before.
fn is_first(partition: &Partition) -> bool {
    partition.since == Epoch(1) && partition.lineage == Lineage(1)
}

impl Tables {
    /// A member's first table, committed.
    pub(super) fn new(cx: &mut Context, table: Arc<Table>) -> Self {
        let name = table.name();
        let mut tables = Self {
            installed: table.clone(),
            installed_name: name,
            accepted: table,
            accepted_name: name,
            commit: None,
            recent: VecDeque::new(),
            tenures: BTreeMap::new(),
            voters_at: cx.now,
            answered: BTreeMap::new(),
            opens_at: BTreeMap::new(),
        };
        tables.recent.push_back((name, tables.installed.clone()));
        tables.note_tenures(cx, None, None);
        tables.show(cx);
        tables
    }

    pub(super) fn order(&self) -> Order {
        self.accepted_name.order()
    }

    /// Whoever votes in the installed or in the accepted table.
    pub(super) fn voters(&self) -> Vec<MemberId> {
        let mut voters = self.installed.voters.clone();
        voters.extend(&self.accepted.voters);
        voters.sort_unstable();
        voters.dedup();
        voters
    }

    pub(super) fn is_member(&self, id: MemberId) -> bool {
        self.installed.member(id).is_some() || self.accepted.member(id).is_some()
    }

    pub(super) fn name_of(&self, id: MemberId) -> String {
        self.installed.member(id).or_else(|| self.accepted.member(id)).map_or_else(|| id.to_string(), |m| m.name.clone())
    }

    fn show(&self, cx: &mut Context) {
        let opens_at = self.opens_at.iter().map(|(at, (since, when))| (*at, *since, *when)).collect();
        cx.out.push_back(Output::View(View {
            installed: self.installed.clone(),
            accepted: self.accepted.clone(),
            opens_at: Arc::new(opens_at),
        }));
    }

    /// Accepts a table. Visible to the data threads before any output that follows.
    pub(super) fn accept(&mut self, cx: &mut Context, table: Arc<Table>, name: TableName) {
        self.accepted = table;
        self.accepted_name = name;
        self.show(cx);
    }

    /// Installs a committed table (and accepts it, unless something later is accepted already).
    pub(super) fn install(&mut self, cx: &mut Context, table: Arc<Table>, name: TableName, commit: Option<Commit>) {
        debug_assert!(name.version > self.installed_name.version, "I3: versions never go back");
        let old = std::mem::replace(&mut self.installed, table);
        let predecessor = std::mem::replace(&mut self.installed_name, name);
        if self.accepted_name.order() <= name.order() {
            self.accepted = self.installed.clone();
            self.accepted_name = name;
        }
        if old.voters != self.installed.voters {
            self.voters_at = cx.now;
        }
        self.note_tenures(cx, Some(&old), commit.as_ref().filter(|c| c.predecessor == predecessor));
        self.commit = commit;
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((name, self.installed.clone()));
        let installed = self.installed.clone();
        self.answered.retain(|m, _| installed.member(*m).is_some());
        self.show(cx);
        report(cx, &old, &self.installed);
    }

    fn note_tenures(&mut self, cx: &Context, old: Option<&Table>, commit: Option<&Commit>) {
        let mut opens_at = std::mem::take(&mut self.opens_at);
        let mut tenures = std::mem::take(&mut self.tenures);
        for (at, partition) in partitions(&self.installed) {
            let old = old.and_then(|t| t.partition(at));
            if tenures.get(&at).is_none_or(|(since, _)| *since != partition.since) {
                tenures.insert(at, (partition.since, cx.now));
            }
            if partition.primary() != cx.me {
                opens_at.remove(&at);
            } else if opens_at.get(&at).is_none_or(|(since, _)| *since != partition.since) {
                opens_at.insert(at, (partition.since, cx.now + takeover_wait(cx, at, partition, old, commit)));
            }
        }
        tenures.retain(|at, _| self.installed.partition(*at).is_some());
        opens_at.retain(|at, _| self.installed.partition(*at).is_some());
        (self.opens_at, self.tenures) = (opens_at, tenures);
    }

    /// Rule 9, as a voter: for how many milliseconds at least this node gave each primary that `next` deposes nothing to hold
    /// a lease with.
    pub(super) fn ages(&self, cx: &Context, next: &Table) -> Vec<(MemberId, u64)> {
        let present = cx.now.since(self.voters_at);
        let mut least: BTreeMap<MemberId, Duration> = BTreeMap::new();
        for (at, old) in self.deposed(next) {
            let primary = old.primary();
            let tenure = match self.tenures.get(&at) {
                Some((since, when)) if *since == old.since => cx.now.since(*when),
                _ => Duration::ZERO,
            };
            // Whether this node answers itself is nobody else's knowledge: unknown.
            let answered = if primary == cx.me { Some(cx.now) } else { self.answered.get(&primary).copied() };
            let age = tenure.min(present).min(answered.map_or(Duration::MAX, |t| cx.now.since(t)));
            let entry = least.entry(primary).or_insert(age);
            *entry = (*entry).min(age);
        }
        least.into_iter().map(|(m, age)| (m, u64::try_from(age.as_millis()).unwrap_or(u64::MAX))).collect()
    }

    /// Rule 9, as a deposed primary: `Some` if `next` deposes this node anywhere; what it had not opened there.
    pub(super) fn seal(&self, cx: &Context, next: &Table, opened: &BTreeMap<PartitionRef, Epoch>) -> Option<Vec<PartitionRef>> {
        let mine: Vec<_> = self.deposed(next).filter(|(_, old)| old.primary() == cx.me).collect();
        if mine.is_empty() {
            return None;
        }
        Some(mine.into_iter().filter(|(at, old)| opened.get(at) != Some(&old.since)).map(|(at, _)| at).collect())
    }

    /// Partitions whose tenure ends with `next`.
    fn deposed<'a>(&'a self, next: &'a Table) -> impl Iterator<Item = (PartitionRef, &'a Arc<Partition>)> {
        partitions(&self.installed).filter(|(at, old)| next.partition(*at).is_none_or(|new| new.since != old.since))
    }

    /// The last committed table, for somebody who has `have`.
    pub(super) fn payload_for(&self, have: Option<TableName>) -> Payload {
        match self.recent.iter().find(|(name, _)| Some(*name) == have) {
            Some((_, old)) => Payload::Delta(TableDelta::between(old, &self.installed)),
            None => Payload::Whole(self.installed.clone()),
        }
    }

    /// What a payload says, if it is the table of that name.
    pub(super) fn unpack(&self, name: TableName, payload: Payload) -> Result<Arc<Table>, Unpack> {
        let table = match payload {
            Payload::Whole(table) => {
                table.validate().map_err(|_| Unpack::Invalid)?;
                table
            }
            Payload::Delta(delta) => {
                let base = [(&self.installed_name, &self.installed), (&self.accepted_name, &self.accepted)];
                let (_, base) = base.into_iter().find(|(name, _)| **name == delta.base).ok_or(Unpack::NoBase)?;
                Arc::new(delta.apply(base).map_err(|_| Unpack::Invalid)?)
            }
        };
        if table.name() == name { Ok(table) } else { Err(Unpack::Invalid) }
    }
}

/// Why a payload gave no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unpack {
    /// The table that it differs from is not here.
    NoBase,
    /// It is no valid table of that name.
    Invalid,
}

/// Rule 9: how long a new primary waits from receiving the commit.
fn takeover_wait(cx: &Context, at: PartitionRef, new: &Partition, old: Option<&Arc<Partition>>, commit: Option<&Commit>) -> Duration {
    if is_first(new) {
        return Duration::ZERO;
    }
    let whole = cx.config.timing.takeover_wait();
    // Without the commit of the very next table, nothing is known of what came between.
    let (Some(old), Some(commit)) = (old, commit) else { return whole };
    let predecessor = old.primary();
    if commit.seals.iter().any(|(m, unopened)| *m == predecessor && !unopened.contains(&at)) {
        return Duration::ZERO;
    }
    match commit.ages.iter().find(|(m, _)| *m == predecessor) {
        Some((_, age)) => whole.saturating_sub(Duration::from_millis(*age)),
        None => whole,
    }
}

/// Tells people what a table changed.
fn report(cx: &mut Context, old: &Table, new: &Table) {
    for member in new.members.iter().filter(|m| old.member(m.id).is_none()) {
        cx.tell(Event::Joined { name: member.name.clone(), id: member.id });
    }
    for member in &old.members {
        let (name, id) = (member.name.clone(), member.id);
        match new.member(member.id) {
            None if member.state == MemberState::Leaving => cx.tell(Event::Left { name, id }),
            None => cx.tell(Event::Expelled { name, id, why: "it does not answer".to_owned() }),
            Some(m) if m.state == MemberState::Silent && member.state != MemberState::Silent => {
                let why = "it does not answer, and alone holds some partitions: they wait for it".to_owned();
                cx.tell(Event::Expelled { name, id, why });
            }
            Some(_) => {}
        }
    }
    for keyspace in &new.keyspaces {
        let begun_anew = |p: &&Arc<Partition>| {
            old.keyspace(keyspace.id).and_then(|k| k.partitions.get(p.id.0 as usize)).is_some_and(|o| o.lineage != p.lineage)
        };
        let partitions = keyspace.partitions.iter().filter(begun_anew).count();
        if partitions > 0 {
            let why = "every copy in sync is gone: they begin empty".to_owned();
            cx.tell(Event::Lost { partitions, keyspace: keyspace.name.clone(), why });
        }
    }
}
