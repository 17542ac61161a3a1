//! Steps of moves. This part of the next table can wait for a moment, so that
//! many steps share one table.

use super::super::context::{Context, earlier};
use super::super::event::Event;
use super::reach::Reach;
use super::reshapes::{Reshapes, begin_reshapes, is_shrunk};
use super::rooms::Rooms;
use super::{CoordinatorTasks, TableDraft};
use crate::mutant::{self, broken};
use crate::time::Time;
use doyen_placement::loads::Loads;
use doyen_placement::planner::{
    self, BalanceChange, InSyncChange, InSyncRequest, MoveFacts, MoveLimits, PlannedChanges,
};
use doyen_placement::{MemberId, PartitionRef, Paused, Table, TableName};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time after which a plan that did not arrive is asked for again.
const PLAN_PATIENCE: Duration = Duration::from_secs(5);
/// A learner that failed waits for this long, and for twice as long after each further failure.
const BACKOFF: Duration = Duration::from_secs(1);
/// The longest such wait.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// The number of copies that are under way at the same time.
const MOVES: MoveLimits = MoveLimits {
    learners_per_source: 256,
    learners_per_target: 512,
    learners: 1024,
};
/// After this many failed moves in a row, balancing is paused.
const FAILED_MAX: u32 = 3;

/// Moves of copies and primaries: plans for them, their steps, and what failed.
#[derive(Debug)]
pub(super) struct MoveTask {
    /// Learners that failed: until when they wait, and how long that wait is.
    pub(super) backoff: BTreeMap<(PartitionRef, MemberId), (Time, Duration)>,
    proposal: Option<(TableName, PlannedChanges)>,
    plan_wanted: bool,
    plan_asked: Option<Time>,
    moving: bool,
    /// No step was possible from this table. The next attempt follows another table, or the end of
    /// a learner's wait.
    stuck: Option<(TableName, Option<Time>)>,
    /// Partitions that move because a member has too much to do.
    hot: BTreeSet<PartitionRef>,
    /// The number of moves for balance that failed one after the other.
    failed: u32,
    pub(super) rooms: Rooms,
    reach: Reach,
}

impl MoveTask {
    /// A coordinator begins with a plan, and with the moves that its table has.
    pub(super) fn new() -> Self {
        Self {
            backoff: BTreeMap::new(),
            proposal: None,
            plan_wanted: true,
            plan_asked: None,
            moving: true,
            stuck: None,
            hot: BTreeSet::new(),
            failed: 0,
            rooms: Rooms::default(),
            reach: Reach::default(),
        }
    }

    /// Whether steps may be due.
    pub(super) const fn has_steps(&self) -> bool {
        self.moving || self.proposal.is_some()
    }

    pub(super) const fn is_moving(&self) -> bool {
        self.moving
    }

    /// When a plan is asked for again.
    pub(super) fn plan_due(&self) -> Option<Time> {
        self.plan_asked.map(|at| at + PLAN_PATIENCE)
    }

    /// When a copy that does not begin now may begin.
    pub(super) fn retry(&self, now: Time) -> Option<Time> {
        let failed = self
            .backoff
            .values()
            .map(|(until, _)| *until)
            .filter(|until| *until > now)
            .min();
        earlier(earlier(failed, self.rooms.due(now)), self.reach.due(now))
    }

    /// A member reported its memory. If there is room again, copies need not wait for their time.
    pub(super) fn look_for_room(&mut self, now: Time, loads: &Loads) {
        if self.rooms.look(now, loads) {
            self.stuck = None;
        }
    }

    /// A member reports the members that it has no connection with.
    pub(super) fn unheard(
        &mut self,
        now: Time,
        by: MemberId,
        unheard: impl Iterator<Item = MemberId>,
    ) {
        self.reach.unheard(now, by, unheard);
    }

    /// Whether copies fail, or a member lacks room.
    pub(super) fn fail(&self, now: Time) -> bool {
        !self.backoff.is_empty() || self.rooms.lacked(now)
    }

    /// The number of moves for balance that failed one after the other.
    pub(super) const fn failed(&self) -> u32 {
        self.failed
    }

    /// Copies are about to move.
    pub(super) const fn begins(&mut self) {
        self.moving = true;
    }

    pub(super) const fn plan_again_if(&mut self, wanted: bool) {
        self.plan_wanted |= wanted;
    }

    /// Plans again for everything that is to move and has not begun.
    pub(super) const fn think_again(&mut self) {
        self.plan_wanted |= self.moving;
    }

    pub(super) fn planned(&mut self, base: TableName, proposal: PlannedChanges) {
        self.plan_asked = None;
        self.proposal = Some((base, proposal));
    }

    /// Whether a plan is wanted, is being made, or is not in a table yet.
    pub(super) const fn is_planning(&self) -> bool {
        self.plan_wanted || self.plan_asked.is_some() || self.proposal.is_some()
    }

    /// Whether to ask for a plan now, if this coordinator is idle.
    pub(super) fn asks_for_plan(&mut self, now: Time, idle: bool) -> bool {
        if self
            .plan_asked
            .is_some_and(|at| now.since(at) >= PLAN_PATIENCE)
        {
            (self.plan_asked, self.plan_wanted) = (None, true);
        }
        let asks = self.plan_wanted && self.plan_asked.is_none() && idle;
        if asks {
            (self.plan_wanted, self.plan_asked) = (false, Some(now));
        }
        asks
    }

    /// A table is committed. `unplanned`: it holds more than steps of moves. Users, tokens and maps
    /// need no plan: a cluster that gets one of them is as safe as it was.
    pub(super) fn committed(&mut self, now: Time, before: &Table, table: &Table, unplanned: bool) {
        let moving = table.partitions().any(|(_, p)| p.goal.is_some());
        self.moving = moving || table.keyspaces.iter().any(is_shrunk);
        let newcomers = before.members != table.members;
        self.plan_wanted |=
            (unplanned || newcomers || !moving) && !planner::plans_alike(before, table);
        if newcomers {
            self.rooms.members_changed(table);
        }
        self.backoff.retain(|(at, m), (until, _)| {
            table.member(*m).is_some()
                && table.partition(*at).is_some()
                && *until + BACKOFF_MAX > now
        });
    }

    fn pause_after_failures(&mut self, table: &mut Cow<'_, Table>, draft: &mut TableDraft) {
        if self.failed < FAILED_MAX || broken(&mutant::FAILS_FOR_EVER) {
            return;
        }
        // A person should look for the cause of the failures. Lost copies are still
        // repaired. The pause comes one table after the last failure: it takes away goals, and in
        // the same table the failure would be reported as a copy that is no longer wanted.
        self.failed = 0;
        *table = Cow::Owned(planner::balance(
            table,
            &BalanceChange::Pause(Paused::Failures),
        ));
        draft.altered = true;
    }

    /// Requests of primaries.
    fn change_in_sync(
        &mut self,
        cx: &mut Context,
        requests: &[InSyncRequest],
        loads: &Loads,
        table: &mut Cow<'_, Table>,
        draft: &mut TableDraft,
    ) {
        if requests.is_empty() {
            return;
        }
        let (next, done) = planner::change_in_sync(table, requests);
        for (request, _) in requests.iter().zip(&done).filter(|(_, done)| **done) {
            let balances = planner::ranges::may_stay(table, request.partition);
            match request.change {
                InSyncChange::NoRoom(m) => {
                    draft.unplanned = true;
                    if self
                        .rooms
                        .refused(cx.now, table, request.partition, m, loads)
                    {
                        let name = table
                            .member(m)
                            .map_or_else(|| m.to_string(), |m| m.name.clone());
                        cx.event(Event::NoRoom { name });
                    }
                }
                InSyncChange::Abandon(m) | InSyncChange::Withdraw(m) | InSyncChange::Remove(m) => {
                    if let Some(partition) = table.partition(request.partition) {
                        self.reach.complain(cx.now, partition.primary(), m);
                    }
                    draft.unplanned = true;
                    let (until, length) = self
                        .backoff
                        .entry((request.partition, m))
                        .or_insert((cx.now, BACKOFF / 2));
                    *length = (*length * 2).min(BACKOFF_MAX);
                    // Learners that failed together do not start again together.
                    *until = cx.now + cx.jitter(*length, *length * 3 / 2);
                    self.failed +=
                        u32::from(balances && !matches!(request.change, InSyncChange::Remove(_)));
                }
                InSyncChange::Admit(m) => {
                    self.reach.reached(m);
                    self.rooms
                        .admitted(cx.now, table, request.partition, m, loads);
                    self.failed = if balances { 0 } else { self.failed };
                }
                InSyncChange::Split(_) | InSyncChange::WritesStopped { .. } => {}
            }
        }
        if done.contains(&true) {
            *table = Cow::Owned(next);
        }
    }

    /// Tells the loads which members are not reached by others, or have no room.
    fn judge(&mut self, cx: &mut Context, loads: &mut Loads, table: &Table) {
        let members = self.reach.judge(cx.now, table).into_iter();
        for member in members.filter_map(|m| table.member(m)) {
            cx.event(Event::Unreached {
                name: member.name.clone(),
                data: member.addresses.data.to_string(),
            });
        }
        let unreached = self.reach.unreached(cx.now);
        if loads.unreached() != &unreached {
            loads.set_unreached(unreached);
            (self.plan_wanted, self.stuck) = (true, None);
        }
        let full = self.rooms.full();
        if loads.full() != &full {
            loads.set_full(full);
            self.plan_wanted = true;
        }
    }

    /// Takes the plan over, if it was made for this table.
    fn adopt(
        &mut self,
        now: Time,
        base: TableName,
        reshapes: &Reshapes,
        table: &mut Cow<'_, Table>,
        altered: bool,
    ) {
        let Some((planned, changes)) = self.proposal.take() else {
            return;
        };
        // If this table asks for more copies, an older plan would drop a copy that is needed.
        if planned != base || altered {
            self.plan_wanted = true;
            return;
        }
        if !changes.heirs.is_empty() {
            *table = Cow::Owned(planner::inherit(table, &changes.heirs));
        }
        let mut goals = changes.goals;
        goals.retain(|(at, _)| !(reshapes.brings(*at) && planner::ranges::may_stay(table, *at)));
        if !goals.is_empty() {
            *table = Cow::Owned(planner::adopt(table, &goals));
            (self.moving, self.stuck) = (true, None);
            self.hot
                .retain(|at| table.partition(*at).is_some_and(|p| p.goal.is_some()));
            self.hot.extend(changes.hot);
        }
        if reshapes.may_begin(now) {
            begin_reshapes(table, changes.reshapes);
        }
    }

    /// The next steps towards the goals.
    fn advance(&mut self, now: Time, base: TableName, loads: &Loads, table: &mut Cow<'_, Table>) {
        let unchanged = matches!(table, Cow::Borrowed(_));
        // Every ping comes here, and looking for steps goes over all partitions.
        let stuck = |(at, until): (TableName, Option<Time>)| {
            at == base && until.is_none_or(|until| now < until)
        };
        if !self.moving || (unchanged && self.stuck.is_some_and(stuck)) {
            return;
        }
        let mut paused = self.rooms.paused(now, table, loads);
        let waiting = self.backoff.iter().filter(|(_, (until, _))| *until > now);
        paused.extend(waiting.map(|(key, _)| *key));
        let waits = MoveFacts {
            paused,
            hot: std::mem::take(&mut self.hot),
        };
        let next = planner::advance(table, &MOVES, &waits);
        self.hot = waits.hot;
        if let Some(next) = next {
            *table = Cow::Owned(next);
        } else if unchanged {
            self.stuck = Some((base, self.retry(now)));
        }
    }
}

impl CoordinatorTasks {
    /// Requests of primaries, goals, and the next steps towards them.
    pub(super) fn draft_moves(
        &mut self,
        cx: &mut Context,
        base: TableName,
        table: &mut Cow<'_, Table>,
        draft: &mut TableDraft,
    ) {
        let (moves, told) = (&mut self.moves, &mut self.told);
        moves.pause_after_failures(table, draft);
        let requests = std::mem::take(&mut self.in_sync);
        moves.change_in_sync(cx, &requests, &told.loads, table, draft);
        moves.judge(cx, &mut told.loads, table);
        self.reshapes.draft(cx, moves, told, table, draft);
        moves.adopt(cx.now, base, &self.reshapes, table, draft.altered);
        moves.advance(cx.now, base, &told.loads, table);
    }
}
