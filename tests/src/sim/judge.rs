//! The end of a run: faults stop, the cluster heals within its bound, and every key is read
//! everywhere and judged.

use super::Report;
use super::client::{self, Client, Last};
use super::fault;
use super::models;
use super::process::{ControlInput, Leaving, Process, ProcessId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::world::{Slot, World, describe};
use crate::linear::{self, Verdict};
use doyen_gossip::Input;
use doyen_gossip::agreement::{View, VotersGone};
use doyen_placement::Loads;
use doyen_placement::planner;
use doyen_placement::quorum::majority;
use doyen_placement::{Member, MemberId, MemberState, Role, Version};
use rand::Rng;
use std::collections::BTreeSet;

/// How soon after the last fault, or after an operator's word, all must be well (I16), on a fast
/// network.
const HEAL_MAX: Nanos = 12 * SECOND;
/// On a slow network, this many packet delays more.
const ROUND_TRIPS: u64 = 200;

/// How long the cluster may heal by itself before an operator looks.
const OPERATOR_AFTER: u64 = 8 * SECOND;

/// Time without load for the last acks and commit notices.
const REST: Nanos = 5 * SECOND;

impl World {
    pub(crate) fn begin_calm(&mut self) {
        self.calm = true;
        self.network.heal_all();
        for slot in &mut self.slots {
            (slot.directory.slow_until, slot.directory.fails_until) = (0, 0);
        }
        let now = self.schedule.now();
        let processes = self.processes.iter_mut();
        processes
            .flat_map(|p| &mut p.threads)
            .for_each(|thread| thread.starved_until = 0);
        let stalled = |p: &Process| p.threads.iter().map(|t| t.stalled_until).max().unwrap_or(0);
        let longest = self
            .processes
            .iter()
            .filter(|p| !p.gone)
            .map(|p| p.paused_until.max(stalled(p)))
            .max();
        self.calm_at = longest.unwrap_or(now).max(now);
        self.tell(|_| "faults end".into());
        for slot in 0..self.slots.len() {
            if self.slots[slot].lost {
                continue;
            }
            if self.slots[slot].started || self.rng.random_bool(0.5) {
                self.start(slot);
            }
        }
        self.mix.loss = 0;
        self.mix.late = 0;
        // Messages from before may still have effects: a member whose last pings were lost is about
        // to be expelled, and messages of a slow node are still on their way.
        let packet = self.mix.delay_min + self.mix.jitter;
        let looks_at = self.calm_at + 2 * SECOND + packet * fault::SLOWNESS_MAX;
        // If few parts of a snapshot are under way, each takes a round trip.
        self.heal_max = HEAL_MAX + packet * ROUND_TRIPS;
        self.heal_by = looks_at + self.heal_max;
        self.schedule.at(looks_at, Event::Healed);
    }

    pub(crate) fn look_whether_healed(&mut self) {
        let now = self.schedule.now();
        match self.well() {
            Ok(()) if self.last_calls_begun => self.done = true,
            Ok(()) => {
                self.healed_at = Some(now);
                // Ranges that have become small may still be merged, which takes time.
                self.heal_by = now + self.heal_max;
                self.tell(|_| "all is well".into());
                self.stop_clients = true;
                self.clients_idle();
            }
            Err(why) if now > self.heal_by => {
                self.broken(format!("I16: not healed within the bound: {why}"))
            }
            Err(_) => {
                // A member that has lost a majority says so, and waits for an operator. The
                // operator speaks once.
                if now > self.calm_at + OPERATOR_AFTER
                    && !self.operator_spoke
                    && !self.mix.directories
                    && self.call_the_operator()
                {
                    self.operator_spoke = true;
                    self.heal_by = now + self.heal_max;
                }
                self.schedule.after(200 * MS, Event::Healed);
            }
        }
    }

    /// Does what the error asks of an operator: if a majority of the voters that the tables name is
    /// gone, `recover` goes on without the dead. This can also happen without the loss of a
    /// majority at once: a table that replaces a suspended voter is under way, and one of its
    /// voters dies before it is committed. Then an election needs both majorities (rule 2).
    fn call_the_operator(&mut self) -> bool {
        let now = self.schedule.now();
        let apart = self.apart();
        let running: Vec<ProcessId> = self
            .slots
            .iter()
            .filter_map(|s| s.process)
            .filter(|p| Some(*p) != apart)
            .collect();
        let led = running.iter().any(|p| {
            let process = &self.processes[*p];
            process
                .agreement
                .status(process.clock(now))
                .coordinator
                .is_some()
        });
        if !led {
            self.end_unheard_processes(&running);
        }
        let running: Vec<ProcessId> = running
            .into_iter()
            .filter(|p| self.slots[self.processes[*p].slot].process == Some(*p))
            .collect();
        let lives: BTreeSet<MemberId> = running.iter().map(|p| self.processes[*p].me).collect();
        let views = || {
            running
                .iter()
                .filter_map(|p| self.processes[*p].view.as_ref())
        };
        let lost = views()
            .flat_map(|v| [&v.installed, &v.accepted])
            .any(|t| !majority(&t.voters, |m| lives.contains(&m)));
        // Others say which members must be asked.
        let ahead = running.iter().filter_map(|p| {
            let (view, me) = (self.processes[*p].view.as_ref()?, self.processes[*p].me);
            let votes = view.accepted.voters.contains(&me) || view.installed.voters.contains(&me);
            // One that the newest table removes refuses, and names those that stay.
            let stays = view.accepted.voters.contains(&me);
            votes.then(|| (view.accepted.name().order(), stays, *p))
        });
        let ahead = ahead.max();
        if let (false, true, Some((_, _, p))) = (led, lost, ahead)
            && self.operator_speaks(p, None)
        {
            *self.faults.entry("operator's word").or_default() += 1;
            return true;
        }
        false
    }

    /// A newcomer became a voter by a table that only dead members could have sent to it. It waits
    /// to be admitted, and the others wait for its vote. The operator starts it again, so that what
    /// is said about the dead is true of it.
    fn end_unheard_processes(&mut self, running: &[ProcessId]) {
        let tables = running
            .iter()
            .filter_map(|p| self.processes[*p].view.as_ref())
            .flat_map(|v| [&v.installed, &v.accepted]);
        let voters: BTreeSet<MemberId> = tables.flat_map(|t| t.voters.iter().copied()).collect();
        for &p in running {
            let process = &self.processes[p];
            if voters.contains(&process.me) && process.view.is_none() {
                let slot = process.slot;
                self.tell(|w| {
                    format!(
                        "the operator starts {} again, which waits to be admitted",
                        w.name(p)
                    )
                });
                self.end_process(p);
                self.schedule.after(SECOND, Event::Start(slot));
            }
        }
    }

    /// Tells a process which members of its tables are dead, if any: by id, because a later process
    /// may have the name. `half`: the operator sees these alone, and is wrong about the others.
    pub(crate) fn operator_speaks(
        &mut self,
        p: ProcessId,
        half: Option<&BTreeSet<MemberId>>,
    ) -> bool {
        let now = self.schedule.now();
        let running = self.slots.iter().filter_map(|s| s.process);
        let running: BTreeSet<MemberId> = running.map(|p| self.processes[p].me).collect();
        let lives = half.unwrap_or(&running);
        let Some(view) = &self.processes[p].view else {
            return false;
        };
        let cluster = view.installed.cluster;
        let base = view.installed.annex.branches.iter().map(|b| b.id).collect();
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
        let live: Vec<(MemberId, &View)> = self
            .slots
            .iter()
            .filter_map(|s| s.process)
            .filter(|p| lives.contains(&self.processes[*p].me))
            .filter_map(|p| Some((self.processes[p].me, self.processes[p].view.as_ref()?)))
            .filter(|(_, v)| v.installed.cluster == cluster)
            .collect();
        if half.is_some() {
            let known = live.iter().map(|(_, v)| v.installed.version).max();
            let known = known.unwrap_or(Version(0));
            // What only waits to be admitted may join either half.
            let members = live.iter().map(|(me, _)| *me).collect();
            self.oracle.parts(cluster, members, known, base);
        } else {
            let known = live
                .iter()
                .map(|(_, v)| v.accepted.version.max(v.installed.version));
            self.oracle
                .recovers(cluster, known.max().unwrap_or(Version(0)));
        }
        self.lockers.forget();
        self.workers.forget();
        let process = &self.processes[p];
        let voters = process.agreement.status(process.clock(now)).voters;
        let input = Input::Recover {
            gone: VotersGone {
                gone: voters
                    .iter()
                    .filter(|v| dead.contains(&v.to_string()))
                    .count(),
                voters: voters.len(),
            },
            dead: dead.into_iter().collect(),
            ticket: now,
        };
        let me = self.processes[p].me;
        self.schedule
            .after(0, Event::Control(p, ControlInput::Of(me, input)));
        true
    }

    /// Whether one table is in force everywhere, names exactly the running processes, and has all
    /// copies.
    fn well(&self) -> Result<(), String> {
        let apart = self.apart();
        if apart.is_some() && !self.histories.wrote(client::STRANGER) {
            return Err("a fresh cluster of one has not given way".into());
        }
        // The next process of a directory finds out later whether it is a member.
        let is_late = |s: &Slot| s.started && s.process.is_none() && !s.lost;
        if self.mix.directories && self.slots.iter().any(is_late) {
            return Err("a process is still to start".into());
        }
        let running = self
            .slots
            .iter()
            .filter_map(|s| s.process)
            .filter(|p| Some(*p) != apart);
        let running: Vec<&Process> = running.map(|p| &self.processes[p]).collect();
        let Some(first) = running.first().and_then(|p| p.view.as_ref()) else {
            return Err("a process has no table".into());
        };
        let table = &first.installed;
        for process in &running {
            let at = process.clock(self.schedule.now());
            let view = process.view.as_ref().ok_or_else(|| {
                format!(
                    "slot {} has no table: {:?}",
                    process.slot,
                    process.agreement.status(at).waiting
                )
            })?;
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
            if process
                .threads
                .iter()
                .any(|t| t.shard_generation != process.generation)
            {
                return Err(format!("slot {} has not installed", process.slot));
            }
            if process.leaving != Leaving::No {
                return Err(format!("slot {} is leaving", process.slot));
            }
            let closed: u64 = process.threads.iter().map(|t| t.shard.stats().closed).sum();
            if closed > 0 {
                return Err(format!(
                    "slot {} has {closed} closed partitions",
                    process.slot
                ));
            }
        }
        if table.members.len() != running.len() {
            return Err(format!(
                "{} members, {} processes: {}",
                table.members.len(),
                running.len(),
                describe(table)
            ));
        }
        let leading = running
            .iter()
            .filter(|p| p.agreement.status(p.clock(self.schedule.now())).leading)
            .count();
        if leading != 1 {
            return Err(format!("{leading} coordinators"));
        }
        let drains = |m: &Member| m.state == MemberState::Draining;
        let data = table
            .members
            .iter()
            .filter(|m| m.role == Role::Data && !drains(m))
            .count();
        for keyspace in &table.keyspaces {
            let wanted = (1 + usize::from(keyspace.backups)).min(data);
            if keyspace.partitions.is_empty() {
                return Err("nothing is assigned".into());
            }
            for partition in &keyspace.partitions {
                // If no other member is left, drained members keep what they have.
                let enough = data == 0 || partition.in_sync().count() == wanted;
                if partition.goal.is_some() || !enough || partition.learners().count() > 0 {
                    return Err(format!(
                        "copies are missing or moving (wanted {wanted}): {}",
                        describe(table)
                    ));
                }
            }
            if !keyspace.reshaping.under_way.is_empty()
                || !planner::reshape::doublings(keyspace, 1).is_empty()
            {
                return Err(format!(
                    "{} is still being split or merged: {}",
                    keyspace.name,
                    describe(table)
                ));
            }
        }
        if let Some(full) = table
            .members
            .iter()
            .find(|m| data > 0 && drains(m) && planner::holds_anything(table, m.id))
        {
            return Err(format!(
                "{} is still not empty: {}",
                full.name,
                describe(table)
            ));
        }
        let proposal = planner::propose(table, &Loads::default());
        if !proposal.reshapes.is_empty() || !proposal.heirs.is_empty() {
            return Err(format!(
                "a ring is not that of its members: {}",
                describe(table)
            ));
        }
        Ok(())
    }

    /// Once all is well and no client waits, every key is written, and then read through every
    /// process.
    pub(crate) fn clients_idle(&mut self) {
        if self.healed_at.is_none()
            || self.last_calls_begun
            || self.clients.iter().any(Client::calls)
            || self.workers.calls()
        {
            return;
        }
        if self.clients.iter().any(Client::waits) {
            return self.end_waiting();
        }
        self.last_calls_begun = true;
        // A process that has just begun belongs to no cluster yet, and says so.
        let running = self
            .slots
            .iter()
            .filter_map(|s| s.process)
            .filter(|p| self.processes[*p].view.is_some());
        let running: Vec<ProcessId> = running.collect();
        let mut turn = 0;
        for (k, key) in self.keys.iter().enumerate() {
            // The stranger is asked only for what it may hold alone.
            let through = running.iter().filter(|p| {
                self.is_stranger(self.processes[**p].slot) == (*key == client::STRANGER)
            });
            let through: Vec<ProcessId> = through.copied().collect();
            let reads = through.iter().map(|p| (*p, Last::Read));
            let write = (!through.is_empty()).then(|| (through[k % through.len()], Last::Write));
            for (p, last) in reads.chain(write) {
                self.clients[turn % self.mix.clients]
                    .last_calls
                    .push((p, key.clone(), last));
                turn += 1;
            }
        }
        for id in 0..self.clients.len() {
            self.client_in(0, id);
        }
        self.begin_last_work();
    }

    /// Once all of that is answered or has timed out, the last acks get time to arrive, so that
    /// copies can be compared at rest.
    pub(crate) fn rest_at_the_end(&mut self) {
        let busy = |c: &Client| c.waits() || !c.last_calls.is_empty();
        if !self.all_is_called && !self.clients.iter().any(busy) && !self.work_is_left() {
            self.all_is_called = true;
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
            finds: self.histories.finds,
            found: self.histories.found,
            transactions: self.histories.transactions.0,
            transactions_in_vain: self.histories.transactions.1,
            waits: self.histories.waits,
            caught_up: self.caught_up
                + self
                    .processes
                    .iter()
                    .flat_map(|p| &p.threads)
                    .map(|t| t.shard.stats().copies.caught_up)
                    .sum::<u64>(),
            continued: self.continued
                + self
                    .processes
                    .iter()
                    .flat_map(|p| &p.threads)
                    .map(|t| t.shard.stats().copies.continued)
                    .sum::<u64>(),
            read_at_once: self.read_at_once,
            reads_again: self.reads_again,
            set_at_once: self.set_at_once,
            overtaken: self.overtaken,
            handed_over: self.handed_over,
            locks: self.lockers.counts,
            work: self.workers.counts,
            tracked: [self.tracked.kept, self.tracked.stale, self.tracked.forgot],
            expired: self.expired
                + self
                    .processes
                    .iter()
                    .flat_map(|p| &p.threads)
                    .map(|t| t.shard.stats().expired)
                    .sum::<u64>(),
            evicted: self.evicted
                + self
                    .processes
                    .iter()
                    .flat_map(|p| &p.threads)
                    .map(|t| t.shard.stats().evicted)
                    .sum::<u64>(),
            healed_ns: self.healed_at.unwrap_or(0).saturating_sub(self.calm_at),
            faults: self.faults.clone(),
            trace: self.trace.digest(),
            ..Report::default()
        };
        let told = self.judge_subscribers(self.schedule.now())?;
        (report.told, report.missed) = (told.changes, told.missed);
        (report.old_values, report.resumed) = (told.old, told.resumed);
        self.oracle.report(&mut report);
        report.congested = self.network.congested;
        let running: Vec<&Process> = self
            .slots
            .iter()
            .filter_map(|s| s.process)
            .map(|p| &self.processes[p])
            .collect();
        if self.healed_at.is_some() {
            report.compared += self.oracle.logs.compare_at_rest(&running)?;
        }
        let drift = self.mix.drift_ppm as f64 / 1e6;
        let tolerance = client::Tolerance {
            drift,
            late: 2 * SECOND + self.longest_stall,
        };
        for key in &self.keys {
            let history = self.histories.of(key, tolerance);
            match linear::check(&history) {
                Verdict::Linearizable => report.judged += 1,
                Verdict::Undecided => report.undecided += 1,
                Verdict::Violated(at) => {
                    return Err(format!(
                        "I10: {key} is not linearizable:\n{}",
                        around(&history, at)
                    ));
                }
            }
        }
        // Without backups, there is nothing to compare.
        let copied = |p: &Process| {
            p.view
                .as_ref()
                .is_some_and(|v| v.installed.keyspaces.iter().any(|k| k.backups > 0))
        };
        let multiple =
            running.len() > 1 && self.healed_at.is_some() && running.iter().any(|p| copied(p));
        let empty = report.tables == 0
            || report.answered == 0
            || report.judged == 0
            || (multiple && report.compared == 0);
        if empty {
            return Err(format!(
                "empty: {} tables, {} answers, {} keys judged, {} copies compared",
                report.tables, report.answered, report.judged, report.compared
            ));
        }
        Ok(report)
    }
}

/// The part of a history around an entry, as a text.
fn around(history: &[linear::HistoryEntry], at: usize) -> String {
    let from = at.saturating_sub(25);
    let mut text = String::new();
    for (i, e) in history.iter().enumerate().skip(from).take(50) {
        let mark = if i == at { ">>" } else { "  " };
        let answer = match &e.answered {
            None => "unknown".into(),
            Some((t, linear::Answer::Bulk(v))) => format!("@{t} Bulk({})", client::short(v)),
            Some((t, a)) => format!("@{t} {a:?}"),
        };
        text.push_str(&format!(
            "{mark} @{} client {} {} -> {answer}\n",
            e.called,
            models::client_of(e.client),
            client::brief(&e.call)
        ));
    }
    text
}
