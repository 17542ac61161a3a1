//! What a coordinator looks after. Each task is a step from one table to the next, by a pure
//! function of the planner. Everything that is due travels in one table.

mod absent;
mod admin;
mod leavers;
mod moves;
mod newcomers;
mod reach;
mod reshapes;
mod rooms;
mod voters;

use super::api::{AdminReply, AdminRequest, Output};
use super::context::{Context, NamedTable, earlier};
use super::loads::ReportedLoads;
use super::pings::Pings;
use super::problem::Problem;
use super::publication::Leader;
use super::requests::Requests;
use super::tables::Tables;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::LeaveStep;
use absent::{AbsentMembers, calls_me_silent};
use admin::administer;
use doyen_placement::level::{DURABILITY, LEVELS};
use doyen_placement::loads::PartitionLoad;
use doyen_placement::mutant::ANYONE_ASKS;
use doyen_placement::planner::{
    self, Absence, InSyncChange, InSyncRequest, NotGranted, PlannedChanges, SeatHeir, WritesStopped,
};
use doyen_placement::quorum::majority;
use doyen_placement::{
    ClusterId, Epoch, MemberId, MemberState, Partition, PartitionRef, Table, TableName,
};
use leavers::{Leavers, is_ending};
use moves::MoveTask;
use newcomers::{Newcomers, give_up_names};
use reshapes::{Reshapes, apart};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use voters::{keep_voters, room_for_newcomers};

/// Each table costs its coordinator a little work per member, and each member as much as any other
/// table. So tables that move data are further apart in larger clusters: by `Timing::batch` for
/// each such number of members.
const BATCH_MEMBERS: usize = 8;
/// The greatest such distance. A copy that is silent is dropped by such a table, so it must not be
/// long.
const BATCH_MAX: Duration = Duration::from_millis(500);
/// While a table is on its way, every member is busy and clients wait. If no copy is lacking, the
/// next table of moves waits for this many times as long as the last one took. The p99 latency is
/// what one in a hundred requests waits for, so tables must take well below a hundredth of the
/// time.
const REST: u32 = 200;
/// The longest such wait.
const REST_MAX: Duration = Duration::from_secs(1);
/// If clients make fewer requests a second than this, in all, tables disturb hardly any of them.
const ASKED_LITTLE: u64 = 100;
/// If copies are lacking, tables that only admit and begin copies wait for this long after the last
/// table. Each table is work for every member, which slows down copying.
const REPAIR_REST: Duration = Duration::from_millis(30);
/// The number of primaries' requests that wait at the same time.
const IN_SYNC_MAX: usize = 32_768;
/// The number of requests in one message of a primary.
const REQUESTS_MAX: usize = 16_384;
/// The number of people's requests that wait at the same time.
const ADMIN_MAX: usize = 256;

/// The tasks of a coordinator, and what it remembers for them.
#[derive(Debug)]
pub(super) struct CoordinatorTasks {
    newcomers: Newcomers,
    /// Processes that take the place of the member whose directory they have, by that member.
    heirs: BTreeMap<MemberId, SeatHeir>,
    absent: AbsentMembers,
    leavers: Leavers,
    in_sync: Vec<InSyncRequest>,
    admin: Vec<(MemberId, u64, AdminRequest)>,
    moves: MoveTask,
    reshapes: Reshapes,
    batch_at: Time,
    /// When the last table was proposed.
    proposed_at: Time,
    /// Until then, no table is made for steps that can wait.
    rest_until: Time,
    /// Whether every partition of this table is complete.
    whole: OfTable<bool>,
    /// The number of copies in this table that do not count yet.
    learning: OfTable<usize>,
    /// Whether a member holds a proposal of an earlier term that was not committed.
    outdone: bool,
    /// Tenures that their primaries have reported as open.
    opened: BTreeMap<PartitionRef, Epoch>,
    pub(super) told: ReportedLoads,
}

/// A value that was derived from a table. It is kept until it is asked for another table.
#[derive(Debug)]
struct OfTable<T>(Option<(TableName, T)>);

impl<T: Copy> OfTable<T> {
    fn get(&mut self, base: &NamedTable, work_out: impl FnOnce(&Table) -> T) -> T {
        let known = self.0.filter(|(name, _)| *name == base.name);
        let (_, known) = *self
            .0
            .insert(known.unwrap_or_else(|| (base.name, work_out(&base.table))));
        known
    }
}

/// What a coordinator knows of its cluster.
pub(super) struct ClusterKnowledge<'a> {
    pub(super) tables: &'a Tables,
    pub(super) pings: &'a Pings,
    pub(super) requests: &'a Requests,
}

/// The next table, and the requests that its commit answers.
#[derive(Debug, Default)]
pub(super) struct TableDraft {
    /// `None`: the table does not change.
    pub(super) table: Option<Table>,
    replies: Vec<(MemberId, u64, AdminReply)>,
    /// Whether it holds more than steps of moves.
    unplanned: bool,
    /// Whether an operator changed something.
    altered: bool,
}

impl CoordinatorTasks {
    /// This node slept. The times for which members are silent begin again.
    pub(super) fn woke(&mut self, now: Time) {
        self.absent.woke(now);
    }

    pub(super) fn new(now: Time) -> Self {
        Self {
            newcomers: Newcomers::default(),
            heirs: BTreeMap::new(),
            absent: AbsentMembers::default(),
            leavers: Leavers::default(),
            in_sync: Vec::new(),
            admin: Vec::new(),
            moves: MoveTask::new(),
            reshapes: Reshapes::default(),
            batch_at: now,
            proposed_at: now,
            rest_until: now,
            whole: OfTable(None),
            learning: OfTable(None),
            outdone: false,
            opened: BTreeMap::new(),
            told: ReportedLoads::default(),
        }
    }

    pub(super) fn timeout(&self, cx: &Context) -> Option<Time> {
        let batched =
            self.moves.has_steps() || !self.in_sync.is_empty() || self.reshapes.has_stopped();
        let batch = (batched && self.batch_at > cx.now).then_some(self.batch_at);
        let rests = [self.rest_until, self.batch_at + REPAIR_REST]
            .into_iter()
            .filter(|at| batched && *at > cx.now);
        let [given_up, reshape] = self.reshapes.due(cx.now);
        [
            batch,
            rests.min(),
            self.moves.retry(cx.now),
            self.moves.plan_due(),
            given_up,
            reshape,
            self.leavers.due(cx.now),
            self.absent.due(cx.now),
        ]
        .into_iter()
        .fold(None, earlier)
    }

    /// A member reported its memory. If there is room again, copies need not wait for their time.
    pub(super) fn look_for_room(&mut self, now: Time) {
        self.moves.look_for_room(now, &self.told.loads);
    }

    /// Whether tables disturb: clients make requests, or copies fail, which must not lead to more
    /// attempts.
    fn disturbs(&self, now: Time) -> bool {
        let asked =
            |(_, load): (PartitionRef, &PartitionLoad)| load.reads.saturating_add(load.writes);
        // This goes over all partitions, so it comes last.
        let total = || {
            self.told
                .loads
                .partitions()
                .map(asked)
                .fold(0, u64::saturating_add)
        };
        self.moves.fail(now) || total() >= ASKED_LITTLE
    }

    /// Whether the next step cannot wait: a silent copy blocks writes, or writes wait for a split
    /// or a merge. If copies are lacking, the step waits for a short time only.
    fn presses(&mut self, now: Time, base: &NamedTable) -> bool {
        let waits = |r: &InSyncRequest| matches!(r.change, InSyncChange::Admit(_));
        if self.reshapes.presses() || !self.in_sync.iter().all(waits) {
            return true;
        }
        if now < self.batch_at + REPAIR_REST {
            return false;
        }
        !self.whole.get(base, |table| {
            planner::ranges::pressing(table).next().is_none()
        })
    }

    /// Whether the next step need not wait: all copies that are on their way have arrived and
    /// tables disturb no client, so no other step could share the table.
    fn waits_for_nothing(&mut self, now: Time, base: &NamedTable) -> bool {
        let learning = self.learning.get(base, |table| {
            table.partitions().map(|(_, p)| p.learners().count()).sum()
        });
        // A primary does not ask twice for the same change.
        let arrived = self
            .in_sync
            .iter()
            .filter(|r| matches!(r.change, InSyncChange::Admit(_)))
            .count();
        arrived > 0 && arrived >= learning && !self.disturbs(now)
    }

    /// A draft is committed.
    pub(super) fn committed(
        &mut self,
        now: Time,
        before: &NamedTable,
        table: &NamedTable,
        draft: &TableDraft,
    ) {
        self.rest_until = if self.disturbs(now) {
            now + (now.since(self.proposed_at) * REST).min(REST_MAX)
        } else {
            self.batch_at + REPAIR_REST
        };
        self.moves
            .committed(now, &before.table, &table.table, draft.unplanned);
        self.opened
            .retain(|at, since| table.partition(*at).is_some_and(|p| p.since == *since));
    }

    /// A follower holds a proposal that its proposer could not commit. Only a newer table replaces
    /// it. Until then the follower serves nothing that the proposal gives to another member, and no
    /// lease counts its answers.
    pub(super) fn outdo(&mut self) {
        self.outdone = true;
    }

    /// A primary reports the tenures that it has opened.
    pub(super) fn on_opened(
        &mut self,
        table: &Table,
        from: MemberId,
        opened: &[(PartitionRef, Epoch)],
    ) {
        for (at, since) in opened {
            let partition = table.partition(*at);
            if partition.is_some_and(|p| p.primary() == from && p.since == *since) {
                self.opened.insert(*at, *since);
            }
        }
    }

    /// Partitions that do not serve yet, as far as the coordinator knows.
    pub(super) fn closed(&self, table: &Table) -> Vec<PartitionRef> {
        // A primary that other members cannot reach does not serve them.
        let serves = |at: &PartitionRef, p: &Partition| {
            self.opened.get(at) == Some(&p.since)
                && !self.told.loads.unreached().contains(&p.primary())
        };
        let closed = table.partitions().filter(|(at, p)| !serves(at, p));
        closed.map(|(at, _)| at).collect()
    }

    /// Whether the next moves are not known yet: the plan is not made, or not in the table in
    /// force.
    pub(super) fn is_planning(&self, tables: &Tables) -> bool {
        let adopting = self.moves.is_moving() && tables.accepted.name != tables.committed.name;
        self.moves.is_planning() || self.newcomers.wait() || adopting
    }

    pub(super) fn leave(&mut self, member: MemberId, step: LeaveStep) {
        self.leavers.leave(member, step);
    }

    /// A primary asks for changes of its partitions. Only the primary may ask (rule 7).
    pub(super) fn on_in_sync(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        origin: MemberId,
        mut requests: Vec<InSyncRequest>,
    ) {
        requests.truncate(REQUESTS_MAX);
        let may_ask = |r: &InSyncRequest| {
            let partition = tables.accepted.partition(r.partition);
            partition.is_some_and(|p| p.primary() == origin && p.epoch == r.epoch)
        };
        requests.retain(|r| may_ask(r) || broken(&ANYONE_ASKS));
        if requests.is_empty() {
            return cx.ignore();
        }
        self.ask(requests);
    }

    fn ask(&mut self, mut requests: Vec<InSyncRequest>) {
        requests.retain(|request| {
            let InSyncChange::WritesStopped { ahead_ms } = request.change else {
                return true;
            };
            let stopped = WritesStopped {
                epoch: request.epoch,
                ahead_ms,
            };
            self.reshapes.stopped(request.partition, stopped);
            false
        });
        let room = IN_SYNC_MAX.saturating_sub(self.in_sync.len());
        for request in requests.into_iter().take(room) {
            if !self.in_sync.contains(&request) {
                self.in_sync.push(request);
            }
        }
    }

    /// Returns false if too many requests wait.
    pub(super) fn administer(
        &mut self,
        origin: MemberId,
        ticket: u64,
        request: AdminRequest,
    ) -> bool {
        if self
            .admin
            .iter()
            .any(|(o, t, _)| (*o, *t) == (origin, ticket))
        {
            return true;
        }
        if self.admin.len() >= ADMIN_MAX {
            return false;
        }
        self.admin.push((origin, ticket, request));
        true
    }

    pub(super) const fn want_plan(&mut self) {
        self.moves.plan_again_if(true);
    }

    /// A member reports the members that it has no connection with.
    pub(super) fn unheard(
        &mut self,
        now: Time,
        by: MemberId,
        unheard: impl Iterator<Item = MemberId>,
    ) {
        self.moves.unheard(now, by, unheard);
    }

    /// Plans again for everything that is to move and has not begun.
    pub(super) const fn think_again(&mut self) {
        self.moves.think_again();
    }

    /// The number of moves for balance that failed one after the other.
    pub(super) const fn moves_failed(&self) -> u32 {
        self.moves.failed()
    }

    pub(super) fn planned(&mut self, base: TableName, proposal: PlannedChanges) {
        self.moves.planned(base, proposal);
    }
}

impl CoordinatorTasks {
    // ---- the next table

    /// The next table, if anything is due. `joined`: members that have joined this term.
    pub(super) fn draft(
        &mut self,
        cx: &mut Context,
        known: &ClusterKnowledge<'_>,
        joined: &BTreeSet<MemberId>,
    ) -> Option<TableDraft> {
        let base = if broken(&mutant::FORGETS_ACCEPTED) {
            known.tables.committed.clone()
        } else {
            known.tables.accepted.clone()
        };
        let before = base;
        let base = self.inherit(cx, known.pings, &before);
        let mut table: Cow<'_, Table> = Cow::Borrowed(&base.table);
        let mut draft = TableDraft::default();
        self.draft_members(cx, known, &mut table);
        if let Cow::Borrowed(_) = table {
        } else {
            draft.unplanned = true;
        }
        if table.keyspaces.iter().any(|k| k.partitions.is_empty()) {
            let assigned = planner::assign(&table);
            if assigned != *table {
                table = Cow::Owned(assigned);
                draft.unplanned = true;
            }
        }
        self.draft_admin(cx, known, &mut table, &mut draft);
        if let Some(next) = cx
            .minute
            .and_then(|minute| planner::at_minute(&table, minute))
        {
            table = Cow::Owned(next);
            (draft.unplanned, draft.altered) = (true, true);
        }
        let goes_along = matches!(table, Cow::Owned(_));
        if cx.now >= self.batch_at
            && (goes_along
                || cx.now >= self.rest_until
                || self.presses(cx.now, &base)
                || self.waits_for_nothing(cx.now, &base))
        {
            self.draft_moves(cx, base.name, &mut table, &mut draft);
        }
        if table.settings.forbids_more_than(&base.settings) {
            table = Cow::Owned(planner::call_off(&table, &self.told.loads));
        }
        draft_voters(known.tables, &base, &mut table, joined);
        draft_level(cx, known.tables, &base, &mut table);
        if let Some(noted) = planner::note_gone(&base.table, &table) {
            table = Cow::Owned(noted);
        }
        draft_keys(cx, &mut table);
        let changed = *table != *before.table;
        let outdone = std::mem::take(&mut self.outdone);
        if !changed && base.name == known.tables.committed.name && !outdone {
            // There is nothing to commit. Requests that ask for the present state are answered.
            draft.answer(cx, known.tables.cluster());
            return None;
        }
        self.batch_at = cx.now + batch(cx.config.timing.batch, table.members.len());
        self.proposed_at = cx.now;
        draft.table = changed.then(|| table.into_owned());
        Some(draft)
    }

    /// Members that are dead, silent, back, leaving or new.
    fn draft_members(
        &mut self,
        cx: &mut Context,
        known: &ClusterKnowledge<'_>,
        table: &mut Cow<'_, Table>,
    ) {
        self.draft_absent(cx, known, table);
        self.leavers.draft(&known.tables.accepted, table);
        give_up_names(table, &self.absent.nameless(table));
        let answers = |m: MemberId| {
            known.pings.detector.answered_at(m).is_some()
                || known.tables.accepted.member(m).is_none()
        };
        if self.newcomers.wait()
            && !is_ending(cx, known, table)
            && self.newcomers.settled(cx.now, answers)
        {
            let room = room_for_newcomers(&known.tables.accepted, table);
            let newcomers = self.newcomers.admit(cx, table, room);
            *table = Cow::Owned(planner::admit(table, newcomers));
        }
        if !broken(&mutant::LEAVES_THE_DRAINED)
            && let Some(next) = planner::refill(table)
        {
            *table = Cow::Owned(next);
        }
        self.draft_end(cx, known, table);
    }

    /// Members that are dead, silent, gone, or back.
    fn draft_absent(
        &mut self,
        cx: &Context,
        known: &ClusterKnowledge<'_>,
        table: &mut Cow<'_, Table>,
    ) {
        let me = cx.me();
        let mut gone = BTreeMap::new();
        let mut back = BTreeSet::new();
        if calls_me_silent(cx, table) {
            back.insert(me);
        }
        let absent = &mut self.absent;
        absent.keep_those_of(table);
        for member in &table.members {
            let silent = known.pings.silent(cx, member.id);
            let has_ended = absent.is_proved_dead(member.id) || cx.heir_of(member.id).is_some();
            if has_ended && member.state == MemberState::Silent {
                // What is on disk waits for it, for as long as its keyspace says.
                absent.is_silent(cx.now, member.id);
            }
            let recent = |at: Time| cx.now.since(at) <= cx.config.timing.ping_interval * 2;
            let answers = known
                .pings
                .detector
                .answered_at(member.id)
                .is_some_and(recent);
            let proven = absent.is_proved_dead(member.id);
            if member.id == me && !proven {
                continue;
            }
            if known.tables.recovery.dead.contains(&member.id) {
                gone.insert(member.id, Absence::Dead);
            } else if proven {
                gone.insert(member.id, Absence::Ended);
            } else if !silent && cx.heir_of(member.id).is_some() {
                // Its process is gone. What answers is its heir, which has none of its copies.
            } else if member.state == MemberState::Silent && answers && !silent {
                back.insert(member.id);
            } else if member.state == MemberState::Silent {
                absent.is_silent(cx.now, member.id);
            } else if silent {
                gone.insert(member.id, Absence::Silent);
            }
        }
        for member in self.leavers.gone(table) {
            gone.entry(member).or_insert(Absence::Left);
        }
        if !gone.is_empty() {
            let next = planner::remove(table, &gone);
            if next != **table {
                *table = Cow::Owned(next);
            }
        }
        if !back.is_empty() {
            *table = Cow::Owned(planner::revive(table, &back));
        }
        absent.give_up_lost(cx.now, table);
    }

    /// Requests of people.
    fn draft_admin(
        &mut self,
        cx: &mut Context,
        known: &ClusterKnowledge<'_>,
        table: &mut Cow<'_, Table>,
        draft: &mut TableDraft,
    ) {
        for (origin, ticket, request) in std::mem::take(&mut self.admin) {
            if let Some(pair) = apart(table, &request, &self.told.loads) {
                self.reshapes.bring_together(cx.now, pair);
                draft.replies.push((origin, ticket, AdminReply::Done(None)));
                continue;
            }
            match administer(table, origin, request) {
                Ok((next, entry)) => {
                    if let Some(next) = next {
                        *table = Cow::Owned(next);
                        (draft.unplanned, draft.altered) = (true, true);
                    }
                    draft
                        .replies
                        .push((origin, ticket, AdminReply::Done(entry)));
                }
                Err(problem) => {
                    let why = cx.explain(&problem);
                    let reply = match problem {
                        Problem::Access(NotGranted::Changed { .. }) => AdminReply::Outdated(why),
                        _ => AdminReply::Refused(why),
                    };
                    cx.reply(known.tables.cluster(), origin, ticket, reply);
                }
            }
        }
    }
}

impl Leader {
    /// Everything that is due, in one table.
    pub(super) fn draft(
        &mut self,
        cx: &mut Context,
        known: &ClusterKnowledge<'_>,
    ) -> Option<TableDraft> {
        let members = known.tables.accepted.members.iter().map(|m| m.id);
        let joined = members.filter(|m| self.has_joined(*m)).chain([cx.me()]);
        let joined: BTreeSet<MemberId> = joined.collect();
        self.tasks.draft(cx, known, &joined)
    }

    /// Asks for a plan of moves, if it is time to.
    pub(super) fn ask_for_plan(&mut self, cx: &mut Context, tables: &Tables) {
        let (accepted, committed) = (&tables.accepted, &tables.committed);
        let idle = self.idle() && accepted.name == committed.name;
        let tasks = &mut self.tasks;
        if tasks.moves.asks_for_plan(cx.now, idle) {
            let loads = tasks.told.take(committed);
            cx.outputs
                .push_back(Output::Plan(committed.table.clone(), loads));
        }
    }
}

impl TableDraft {
    /// It is committed.
    pub(super) fn answer(self, cx: &mut Context, cluster: ClusterId) {
        for (origin, ticket, reply) in self.replies {
            cx.reply(cluster, origin, ticket, reply);
        }
    }

    /// Tells the members that asked for its changes why the outcome is not known.
    pub(super) fn refuse(self, cx: &mut Context, cluster: ClusterId, reply: &AdminReply) {
        for (origin, ticket, _) in self.replies {
            cx.reply(cluster, origin, ticket, reply.clone());
        }
    }
}

/// A newcomer becomes a voter in a later table than the one that admits it (rule 4).
fn draft_voters(
    tables: &Tables,
    base: &NamedTable,
    table: &mut Cow<'_, Table>,
    joined: &BTreeSet<MemberId>,
) {
    let same = tables.committed_voters == base.voters;
    let may = |voters: &[MemberId]| {
        let settled = (same && majority(voters, |v| joined.contains(&v)))
            || broken(&mutant::VOTERS_UNSETTLED);
        !voters.is_empty() && (!tables.recovery.dead.is_empty() || settled)
    };
    let may_vote = |v: &MemberId| base.member(*v).is_some() || broken(&mutant::NEWCOMERS_VOTE);
    let wanted: Vec<MemberId> = planner::choose_voters(table)
        .into_iter()
        .filter(may_vote)
        .collect();
    if wanted == base.voters && table.voters == wanted {
        return;
    }
    if may(&wanted) {
        table.to_mut().voters = wanted;
    } else if table.voters != base.voters && !may(&table.voters) {
        keep_voters(base, table.to_mut());
    }
}

/// The level rises when every member that is sent this table is known to speak more (I17).
/// Silent members, and members that leave or join with this table, are sent it, too.
fn draft_level(cx: &Context, tables: &Tables, base: &NamedTable, table: &mut Cow<'_, Table>) {
    let speaks = |id: MemberId| {
        let unknown = if broken(&mutant::RAISES_UNHEARD) {
            cx.config.level_max
        } else {
            LEVELS.0
        };
        cx.speaks(id).unwrap_or(unknown)
    };
    let members = [&tables.committed.members, &base.members, &table.members];
    let level = members
        .into_iter()
        .flatten()
        .map(|m| speaks(m.id))
        .fold(cx.config.level_max, u16::min);
    if level > table.level {
        table.to_mut().level = level;
    }
}

/// Members get the keys and the starts that their hellos showed. A newcomer has said hello to the
/// coordinator before it is admitted, so this happens in the table that admits it.
fn draft_keys(cx: &Context, table: &mut Cow<'_, Table>) {
    for place in 0..table.members.len() {
        let member = &table.members[place];
        if member.vote_key.is_none()
            && let Some(key) = cx.vote_key(member.id)
        {
            Arc::make_mut(&mut table.to_mut().members[place]).vote_key = Some(key);
        }
        let member = &table.members[place];
        if member.start.is_none()
            && table.level >= DURABILITY
            && let Some(start) = cx.start(member.id, member.id)
        {
            Arc::make_mut(&mut table.to_mut().members[place]).start = Some(start);
        }
    }
}

fn batch(least: Duration, members: usize) -> Duration {
    let times = u32::try_from(members.div_ceil(BATCH_MEMBERS)).unwrap_or(u32::MAX);
    (least * times).min(BATCH_MAX).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::api::Peer;
    use crate::agreement::fixtures::planned;
    use crate::agreement::member_core::MemberCore;
    use crate::agreement::net::Net;
    use crate::wire::Message;
    use doyen_placement::loads::Report;
    use std::sync::Arc;

    /// A load of this many operations a second on one partition.
    fn asked(tasks: &mut CoordinatorTasks, table: &Table, reads: u64, writes: u64) {
        let (at, partition) = table.partitions().next().expect("a partition");
        let load = PartitionLoad {
            reads,
            writes,
            ..PartitionLoad::default()
        };
        tasks.told.loads.tell(
            table,
            partition.primary(),
            Report {
                partitions: vec![(at, load)],
                ..Report::default()
            },
        );
    }

    #[test]
    fn tables_need_not_rest_without_requests_and_failures() {
        let (table, now) = (planned(8), Time(1_000_000_000_000));
        let mut tasks = CoordinatorTasks::new(now);
        assert!(!tasks.disturbs(now), "no member has reported any");
        asked(&mut tasks, &table, ASKED_LITTLE / 2 - 1, ASKED_LITTLE / 2);
        assert!(!tasks.disturbs(now));
        asked(&mut tasks, &table, ASKED_LITTLE / 2, ASKED_LITTLE / 2);
        assert!(tasks.disturbs(now));
        asked(&mut tasks, &table, 0, 0);
        assert!(!tasks.disturbs(now));
        let (at, partition) = table.partitions().next().expect("a partition");
        tasks
            .moves
            .backoff
            .insert((at, partition.primary()), (now, Duration::from_secs(1)));
        assert!(
            tasks.disturbs(now),
            "what fails is not tried the more often"
        );
        tasks.moves.backoff.clear();
        let (at, learner) = table
            .partitions()
            .find_map(|(at, p)| Some((at, *p.goal.as_ref()?.iter().find(|m| !p.holds(**m))?)))
            .expect("one that moves");
        tasks
            .moves
            .rooms
            .refused(now, &table, at, learner, &tasks.told.loads);
        assert!(
            tasks.disturbs(now + Duration::from_secs(1)),
            "a member has no room"
        );
    }

    #[test]
    fn when_all_copies_have_arrived_the_next_step_waits_for_nothing() {
        let (planned, now) = (planned(8), Time(1_000_000_000_000));
        let table = crate::agreement::fixtures::moving(&planned);
        let asks: Vec<InSyncRequest> = table
            .partitions()
            .flat_map(|(partition, p)| {
                let epoch = p.epoch;
                p.learners().map(move |m| InSyncRequest {
                    partition,
                    epoch,
                    change: InSyncChange::Admit(m),
                })
            })
            .collect();
        assert!(asks.len() > 1);
        let base = NamedTable::new(Arc::new(table.clone()));
        let mut tasks = CoordinatorTasks::new(now);
        assert!(!tasks.waits_for_nothing(now, &base), "nothing has arrived");
        tasks.ask(asks[1..].to_vec());
        assert!(
            !tasks.waits_for_nothing(now, &base),
            "one is still on its way"
        );
        tasks.ask(asks);
        assert!(tasks.waits_for_nothing(now, &base));
        asked(&mut tasks, &table, ASKED_LITTLE, 0);
        assert!(
            !tasks.waits_for_nothing(now, &base),
            "clients would wait for a table"
        );
    }

    /// The replies of such a draft were dropped, and the command waited until it gave up.
    #[test]
    fn a_request_that_would_make_the_table_invalid_is_refused() {
        let base = crate::agreement::fixtures::members(2);
        let mut cx = Context::new(
            Net::new(1, vec![vec![0]]).config(0, base.members[0].id),
            Time(1_000_000_000_000),
        );
        let mut core =
            MemberCore::new(&mut cx, NamedTable::new(Arc::new(base.clone())), None, true);
        let mut table = base.clone();
        table.members[1] = table.members[0].clone();
        let asker = base.members[1].id;
        let replies = vec![(asker, 7, AdminReply::Done(None))];
        cx.outputs.clear();
        core.propose(
            &mut cx,
            TableDraft {
                table: Some(table),
                replies,
                ..TableDraft::default()
            },
        );
        let told = |output: &Output| match output {
            Output::Send {
                to: Peer::Member(to),
                message:
                    Message::AdminReply {
                        ticket: 7,
                        reply: AdminReply::Refused(why),
                        ..
                    },
            } => *to == asker && why.contains("would be invalid"),
            _ => false,
        };
        assert!(cx.outputs.iter().any(told), "{:?}", cx.outputs);
        assert_eq!(core.tables.accepted.name, base.name());
    }
}
