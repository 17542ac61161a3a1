//! The end of a run: faults stop, the cluster heals within its bound, every key is read everywhere and judged.

use super::Report;
use super::client::{self, Client};
use super::process::{ControlInput, Leaving, Process, ProcessId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::world::{World, describe};
use crate::linear::{self, Verdict};
use doyen_gossip::Input;
use doyen_placement::{MemberId, Role};
use rand::Rng;
use std::collections::BTreeSet;

/// How soon after the last fault everything must be well (I16).
const HEAL_MAX: Nanos = 40 * SECOND;

/// How long the cluster has to heal by itself before a person looks.
const OPERATOR_AFTER: u64 = 15 * SECOND;

/// For the last acks and commit notices, when nobody asks for anything.
const REST: Nanos = 5 * SECOND;

impl World {
    pub(crate) fn begin_calm(&mut self) {
        self.calm = true;
        self.network.heal_all();
        let now = self.schedule.now();
        let stalled = |p: &Process| p.threads.iter().map(|t| t.stalled_until).max().unwrap_or(0);
        let longest = self.processes.iter().filter(|p| !p.gone).map(|p| p.paused_until.max(stalled(p))).max();
        self.calm_at = longest.unwrap_or(now).max(now);
        self.tell(|_| "faults end".into());
        for slot in 0..self.slots.len() {
            if self.slots[slot].started || self.rng.random_bool(0.5) {
                self.start(slot);
            }
        }
        self.mix.loss = 0;
        self.mix.late = 0;
        // What was sent before may still have its effect: a member whose last pings were lost is about to be expelled.
        self.schedule.at(self.calm_at + 2 * SECOND, Event::Healed);
    }

    pub(crate) fn look_whether_healed(&mut self) {
        let now = self.schedule.now();
        match self.well() {
            Ok(()) if self.last_reads_begun => self.done = true,
            Err(why) if self.last_reads_begun => self.broken(format!("I16: healed, and then not: {why}")),
            Ok(()) => {
                self.healed_at = Some(now);
                self.tell(|_| "all is well".into());
                self.stop_clients = true;
                self.clients_idle();
            }
            Err(_) if now > self.calm_at + HEAL_MAX && self.mix.reckless => {
                // Too many died at once: it waits for an operator (`recover`). What was answered is judged all the same.
                *self.faults.entry("beyond repair").or_default() += 1;
                self.done = true;
            }
            Err(why) if now > self.calm_at + HEAL_MAX => self.broken(format!("I16: not healed within the bound: {why}")),
            Err(_) => {
                if now > self.calm_at + OPERATOR_AFTER && ((now - self.calm_at) / SECOND).is_multiple_of(5) {
                    self.call_the_operator();
                }
                self.schedule.after(200 * MS, Event::Healed);
            }
        }
    }

    /// What the error says to a person: when a majority of the voters that the tables name is gone, `recover` goes on without
    /// the dead. It happens without losing a majority at once, too: a table that replaces a paused voter is under way, and
    /// one of the voters that it names dies before it is committed (rule 2 needs both majorities).
    fn call_the_operator(&mut self) {
        let now = self.schedule.now();
        let apart = self.apart();
        let running: Vec<ProcessId> = self.slots.iter().filter_map(|s| s.process).filter(|p| Some(*p) != apart).collect();
        let led = running.iter().any(|p| {
            let process = &self.processes[*p];
            process.agreement.status(process.clock(now)).coordinator.is_some()
        });
        let ahead = running.iter().filter_map(|p| self.processes[*p].view.as_ref().map(|v| (v.accepted.name().order(), *p))).max();
        if let (false, Some((_, p))) = (led, ahead)
            && self.operator_speaks(p)
        {
            *self.faults.entry("operator's word").or_default() += 1;
        }
    }

    /// Says to a process who of its tables is dead, if anybody is: by id, because a later process may have the name.
    pub(crate) fn operator_speaks(&mut self, p: ProcessId) -> bool {
        let now = self.schedule.now();
        let lives: BTreeSet<MemberId> = self.slots.iter().filter_map(|s| s.process).map(|p| self.processes[p].me).collect();
        let Some(view) = &self.processes[p].view else { return false };
        let dead: BTreeSet<String> = [&view.installed, &view.accepted]
            .into_iter()
            .flat_map(|t| &t.members)
            .filter(|m| !lives.contains(&m.id))
            .map(|m| m.id.to_string())
            .collect();
        if dead.is_empty() {
            return false;
        }
        self.tell(|w| format!("the operator says to {} that {dead:?} are dead", w.name(p)));
        let input = Input::Recover { dead: dead.into_iter().collect(), ticket: now };
        let me = self.processes[p].me;
        self.schedule.after(0, Event::Control(p, ControlInput::Of(me, input)));
        true
    }

    /// Whether one table is in force everywhere, names exactly the running processes, and has all copies.
    fn well(&self) -> Result<(), String> {
        let apart = self.apart();
        if apart.is_some() && !self.histories.wrote(client::STRANGER) {
            return Err("a fresh cluster of one has not given way".into());
        }
        let running = self.slots.iter().filter_map(|s| s.process).filter(|p| Some(*p) != apart);
        let running: Vec<&Process> = running.map(|p| &self.processes[p]).collect();
        let Some(first) = running.first().and_then(|p| p.view.as_ref()) else { return Err("somebody has no table".into()) };
        let table = &first.installed;
        for process in &running {
            let at = process.clock(self.schedule.now());
            let view = process
                .view
                .as_ref()
                .ok_or_else(|| format!("slot {} has no table: {:?}", process.slot, process.agreement.status(at).waiting))?;
            if view.installed.name() != table.name() || view.accepted.name() != table.name() {
                return Err(format!(
                    "slot {} has {:?}/{:?}, another {:?}",
                    process.slot,
                    view.installed.name(),
                    view.accepted.name(),
                    table.name()
                ));
            }
            if table.member(process.me).is_none() {
                return Err(format!("slot {} is no member", process.slot));
            }
            if process.threads.iter().any(|t| t.shard_generation != process.generation) {
                return Err(format!("slot {} has not installed", process.slot));
            }
            if process.leaving != Leaving::No {
                return Err(format!("slot {} is leaving", process.slot));
            }
            let closed: u64 = process.threads.iter().map(|t| t.shard.stats().closed).sum();
            if closed > 0 {
                return Err(format!("slot {} has {closed} closed partitions", process.slot));
            }
        }
        if table.members.len() != running.len() {
            return Err(format!("{} members, {} processes: {}", table.members.len(), running.len(), describe(table)));
        }
        let leading = running.iter().filter(|p| p.agreement.status(p.clock(self.schedule.now())).leading).count();
        if leading != 1 {
            return Err(format!("{leading} coordinators"));
        }
        let data = table.members.iter().filter(|m| m.role == Role::Data).count();
        for keyspace in &table.keyspaces {
            let wanted = (1 + usize::from(keyspace.backups)).min(data);
            if keyspace.partitions.is_empty() {
                return Err("nothing is assigned".into());
            }
            for partition in &keyspace.partitions {
                if partition.goal.is_some() || partition.in_sync().count() != wanted || partition.learners().count() > 0 {
                    return Err(format!("copies are missing or moving (wanted {wanted}): {}", describe(table)));
                }
            }
        }
        Ok(())
    }

    /// Once all is well and no client waits, every key is read through every process.
    pub(crate) fn clients_idle(&mut self) {
        if self.healed_at.is_none() || self.last_reads_begun || self.clients.iter().any(|c| !c.current.is_empty()) {
            return;
        }
        self.last_reads_begun = true;
        let running: Vec<ProcessId> = self.slots.iter().filter_map(|s| s.process).collect();
        let mut turn = 0;
        for key in &self.keys {
            for p in &running {
                // What the stranger may hold alone is asked of it, and nothing else.
                if self.is_stranger(self.processes[*p].slot) != (*key == client::STRANGER) {
                    continue;
                }
                self.clients[turn % self.mix.clients].last_reads.push((*p, key.clone()));
                turn += 1;
            }
        }
        for id in 0..self.clients.len() {
            self.client_in(0, id);
        }
    }

    /// Once every key has been read (each read has its time), the last acks have theirs, so that copies can be compared at rest.
    pub(crate) fn rest_when_all_is_read(&mut self) {
        let reads = |c: &Client| !c.current.is_empty() || !c.last_reads.is_empty();
        if !self.all_is_read && !self.clients.iter().any(reads) {
            self.all_is_read = true;
            self.schedule.after(REST, Event::Healed);
        }
    }

    pub(crate) fn judge(&mut self) -> Result<Report, String> {
        let mut report = Report {
            seed: self.case.seed,
            virtual_ns: self.schedule.now(),
            events: self.events,
            operations: self.histories.operations,
            answered: self.histories.answered,
            unknown: self.histories.unknown,
            refused: self.histories.refused,
            full: self.histories.full,
            caught_up: self.caught_up + self.processes.iter().flat_map(|p| &p.threads).map(|t| t.shard.stats().caught_up).sum::<u64>(),
            read_at_once: self.read_at_once,
            reads_again: self.reads_again,
            set_at_once: self.set_at_once,
            overtaken: self.overtaken,
            handed_over: self.handed_over,
            expired: self.expired + self.processes.iter().flat_map(|p| &p.threads).map(|t| t.shard.stats().expired).sum::<u64>(),
            healed_ns: self.healed_at.unwrap_or(0).saturating_sub(self.calm_at),
            faults: self.faults.clone(),
            trace: self.trace.digest(),
            ..Report::default()
        };
        self.oracle.report(&mut report);
        report.congested = self.network.congested;
        let running: Vec<&Process> = self.slots.iter().filter_map(|s| s.process).map(|p| &self.processes[p]).collect();
        if self.healed_at.is_some() {
            report.compared += self.oracle.logs.compare_at_rest(&running)?;
        }
        let drift = self.mix.drift_ppm as f64 / 1e6;
        let tolerance = client::Tolerance { drift, late: 2 * SECOND + self.longest_stall };
        for key in &self.keys {
            let history = self.histories.of(key, tolerance);
            match linear::check(&history) {
                Verdict::Linearizable => report.judged += 1,
                Verdict::Undecided => report.undecided += 1,
                Verdict::Violated(at) => return Err(format!("I10: {key} is not linearizable:\n{}", around(&history, at))),
            }
        }
        let multiple = running.len() > 1 && self.healed_at.is_some();
        let empty = report.tables == 0 || report.answered == 0 || report.judged == 0 || (multiple && report.compared == 0);
        if empty {
            return Err(format!(
                "empty: {} tables, {} answers, {} keys judged, {} copies compared",
                report.tables, report.answered, report.judged, report.compared
            ));
        }
        Ok(report)
    }
}

/// The part of a history around an entry, for people.
fn around(history: &[linear::Entry], at: usize) -> String {
    let from = at.saturating_sub(25);
    let mut text = String::new();
    for (i, e) in history.iter().enumerate().skip(from).take(50) {
        let mark = if i == at { ">>" } else { "  " };
        let answer = match &e.answered {
            None => "unknown".into(),
            Some((t, linear::Answer::Bulk(v))) => format!("@{t} Bulk({})", client::short(v)),
            Some((t, a)) => format!("@{t} {a:?}"),
        };
        text.push_str(&format!("{mark} @{} client {} {} -> {answer}\n", e.called, e.client, client::brief(&e.call)));
    }
    text
}
