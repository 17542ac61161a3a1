//! What a coordinator looks after. Each duty is a step from one table to the next by a pure
//! function of the planner; all that is due travels in one table.

mod admin;
mod leavers;
mod moves;
mod newcomers;
mod reach;
mod rooms;
mod voters;

use super::api::{AdminReply, AdminRequest, Output};
use super::context::{Context, Named, earlier};
use super::council::Council;
use super::election::Role;
use super::loads::Told;
use crate::mutant::{self, broken};
use crate::time::Time;
use crate::wire::LeaveStep;
use admin::administer;
use doyen_placement::level::LEVELS;
use doyen_placement::loads::PartitionLoad;
use doyen_placement::planner::{
    self, Departure, InSyncChange, InSyncRequest, Pace, Proposal, Stillness,
};
use doyen_placement::quorum::majority;
use doyen_placement::{
    Epoch, Keyspace, KeyspaceId, Member, MemberId, MemberState, OnLoss, Partition, PartitionId,
    PartitionRef, Reshape, Table, TableName, Version,
};
use leavers::Ending;
use moves::{BACKOFF_MAX, HALVED_MAX, RESHAPE_PATIENCE, apart, draft_moves};
use newcomers::{give_up_names, may_join, outlived};
use reach::Reach;
use rooms::Rooms;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use voters::{keep_voters, room_for_newcomers};

/// A table costs its coordinator a little for every member, and every member as much as any other
/// table: tables of moves are as far apart as `Timing::batch` for each so many members...
const BATCH_MEMBERS: usize = 8;
/// ... but no further than this, for a copy that is silent is dropped by such a table.
const BATCH_MAX: Duration = Duration::from_millis(500);
/// While a table is on its way, everybody has something to do at once, and whoever asks for
/// something waits. Where nothing is lacking it may wait itself, for so many times as long as the
/// one before took: a p99 is of what one in a hundred waits for, so the time of tables must be well
/// below a hundredth.
const REST: u32 = 200;
/// But it never waits longer than this.
const REST_MAX: Duration = Duration::from_secs(1);
/// Where less than this is asked for a second, in all, nobody is there who would wait.
const ASKED_LITTLE: u64 = 100;
/// Where copies are lacking, tables that only admit some and begin others are so much further apart
/// than what cannot wait at all: each is work for everybody, of which copying gets that much less.
const REPAIR_REST: Duration = Duration::from_millis(30);
/// Newcomers admitted at a time: everybody there connects with each of them.
const ADMITTED_MAX: usize = 16;
/// How long those who were admitted last may take to answer before others are admitted.
const ADMITTED_PATIENCE: Duration = Duration::from_millis(500);
/// Requests of primaries that wait at the same time.
const IN_SYNC_MAX: usize = 32_768;
/// Requests of people that wait at the same time.
const ADMIN_MAX: usize = 256;
/// A plan that does not come is asked for again.
const PLAN_PATIENCE: Duration = Duration::from_secs(5);

/// A coordinator's list of things to do.
#[derive(Debug)]
pub(super) struct Duties {
    joiners: BTreeMap<MemberId, Member>,
    /// Newcomers that ask by way of others, and that this coordinator has not heard itself.
    unheard: BTreeMap<MemberId, Unheard>,
    /// Who was admitted last, and when.
    admitted: Option<(Time, Vec<MemberId>)>,
    /// Members whose name a newcomer has, and since when the coordinator has been looking whether
    /// they answer.
    doubted: BTreeMap<MemberId, Time>,
    /// Silent members that a later process of their name proved dead: it is at their address.
    dead: BTreeSet<MemberId>,
    /// Silent members whose name a newcomer at another address takes. That proves nothing about
    /// them.
    succeeded: BTreeSet<MemberId>,
    /// Those of them that are still members, because nobody could take what they alone held: tried
    /// again with every table.
    proven: BTreeSet<MemberId>,
    leaving: BTreeMap<MemberId, Pace>,
    departing: BTreeSet<MemberId>,
    ending: Option<Ending>,
    in_sync: Vec<InSyncRequest>,
    admin: Vec<(MemberId, u64, AdminRequest)>,
    /// Since when this coordinator has known a silent member as silent.
    silent_since: BTreeMap<MemberId, Time>,
    reset_at: Option<Time>,
    /// Learners that failed: until when, and for how long.
    backoff: BTreeMap<(PartitionRef, MemberId), (Time, Duration)>,
    proposal: Option<(TableName, Proposal)>,
    plan_wanted: bool,
    plan_asked: Option<Time>,
    moving: bool,
    /// From this table no step could be made: until another one, or until a learner that failed may
    /// be tried again.
    stuck: Option<(TableName, Option<Time>)>,
    /// Partitions that move because somebody has too much to do.
    hot: BTreeSet<PartitionRef>,
    batch_at: Time,
    /// When the last table was proposed.
    proposed_at: Time,
    /// Before this no table of its own is made for what can wait.
    rest_until: Time,
    /// Whether no partition of this table lacks anything at once.
    whole: OfTable<bool>,
    /// How many copies this table has that do not count yet.
    learning: OfTable<usize>,
    /// A member holds a proposal of an earlier term that came to nothing.
    outdone: bool,
    /// Tenures that their primaries reported as open.
    opened: BTreeMap<PartitionRef, Epoch>,
    /// Partitions that take no more writes, because they are split or merged: what their primaries
    /// said.
    still: BTreeMap<PartitionRef, Stillness>,
    /// Since when this coordinator has known what is split and merged.
    reshaping: BTreeMap<(KeyspaceId, Reshape), Time>,
    /// After one that came to nothing, when others begin; zero where none did.
    reshape_at: Time,
    /// Neighbours that are brought to the same members, to be merged there; and since when.
    together: BTreeMap<(KeyspaceId, [PartitionId; 2]), Time>,
    pub(super) told: Told,
    /// Moves for balance that failed, one after the other.
    failed: u32,
    rooms: Rooms,
    reach: Reach,
}

/// What was worked out from a table, until it is asked about another one.
#[derive(Debug)]
struct OfTable<T>(Option<(TableName, T)>);

impl<T: Copy> OfTable<T> {
    fn get(&mut self, base: &Named, work_out: impl FnOnce(&Table) -> T) -> T {
        let known = self.0.filter(|(name, _)| *name == base.name);
        let (_, known) = *self
            .0
            .insert(known.unwrap_or_else(|| (base.name, work_out(&base.table))));
        known
    }
}

/// A newcomer that is asked whether it hears and is heard.
#[derive(Debug)]
struct Unheard {
    member: Member,
    seen: Version,
    since: Time,
    asked: Time,
    /// People were told.
    told: bool,
}

/// The next table, and whom its commit answers.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// `None`: as the one before.
    pub(super) table: Option<Table>,
    replies: Vec<(MemberId, u64, AdminReply)>,
    /// It holds more than steps of moves.
    unplanned: bool,
    /// Somebody wanted something else.
    altered: bool,
}

impl Duties {
    /// This node slept: for how long members are silent is counted anew.
    pub(super) fn woke(&mut self, now: Time) {
        self.silent_since
            .values_mut()
            .for_each(|since| *since = now);
    }

    pub(super) fn new(now: Time) -> Self {
        Self {
            joiners: BTreeMap::new(),
            unheard: BTreeMap::new(),
            admitted: None,
            doubted: BTreeMap::new(),
            dead: BTreeSet::new(),
            succeeded: BTreeSet::new(),
            proven: BTreeSet::new(),
            leaving: BTreeMap::new(),
            departing: BTreeSet::new(),
            ending: None,
            in_sync: Vec::new(),
            admin: Vec::new(),
            silent_since: BTreeMap::new(),
            reset_at: None,
            backoff: BTreeMap::new(),
            proposal: None,
            plan_wanted: true,
            plan_asked: None,
            moving: true,
            stuck: None,
            hot: BTreeSet::new(),
            batch_at: now,
            proposed_at: now,
            rest_until: now,
            whole: OfTable(None),
            learning: OfTable(None),
            outdone: false,
            opened: BTreeMap::new(),
            still: BTreeMap::new(),
            reshaping: BTreeMap::new(),
            reshape_at: Time::ZERO,
            together: BTreeMap::new(),
            told: Told::default(),
            failed: 0,
            rooms: Rooms::default(),
            reach: Reach::default(),
        }
    }

    pub(super) fn timeout(&self, cx: &Context) -> Option<Time> {
        let batched = self.moving
            || !self.in_sync.is_empty()
            || self.proposal.is_some()
            || !self.still.is_empty();
        let batch = (batched && self.batch_at > cx.now).then_some(self.batch_at);
        let retry = self.retry(cx.now);
        let plan = self.plan_asked.map(|at| at + PLAN_PATIENCE);
        let given_up = self
            .reshaping
            .values()
            .map(|since| *since + RESHAPE_PATIENCE)
            .min();
        let reshape = (self.reshape_at > cx.now).then_some(self.reshape_at);
        let rests = [self.rest_until, self.batch_at + REPAIR_REST]
            .into_iter()
            .filter(|at| batched && *at > cx.now);
        let rest = rests.min();
        let end = self.ending.as_ref().and_then(|ending| ending.due(cx.now));
        [
            batch,
            rest,
            retry,
            plan,
            given_up,
            reshape,
            end,
            self.reset_at.filter(|at| *at > cx.now),
        ]
        .into_iter()
        .fold(None, earlier)
    }

    /// When a copy that does not begin now may.
    fn retry(&self, now: Time) -> Option<Time> {
        let failed = self
            .backoff
            .values()
            .map(|(until, _)| *until)
            .filter(|until| *until > now)
            .min();
        earlier(earlier(failed, self.rooms.due(now)), self.reach.due(now))
    }

    /// Somebody told what it holds by now: where there is room again, copies need not wait for
    /// their time.
    pub(super) fn look_for_room(&mut self, now: Time) {
        if self.rooms.look(now, &self.told.loads) {
            self.stuck = None;
        }
    }

    /// Whether tables are noticed: somebody asks for something; or copies fail, which must not be
    /// tried the more often for it.
    fn disturbs(&self, now: Time) -> bool {
        let asked =
            |(_, load): (PartitionRef, &PartitionLoad)| load.reads.saturating_add(load.writes);
        // That goes over all partitions: last.
        let total = || {
            self.told
                .loads
                .partitions()
                .map(asked)
                .fold(0, u64::saturating_add)
        };
        !self.backoff.is_empty() || self.rooms.lacked(now) || total() >= ASKED_LITTLE
    }

    /// Whether the next step cannot wait: somebody is in the way of writes, or writes wait for a
    /// split or a merge; where copies are lacking, it waits for little.
    fn presses(&mut self, now: Time, base: &Named) -> bool {
        let waits = |r: &InSyncRequest| matches!(r.change, InSyncChange::Admit(_));
        if !self.still.is_empty() || !self.reshaping.is_empty() || !self.in_sync.iter().all(waits) {
            return true;
        }
        if now < self.batch_at + REPAIR_REST {
            return false;
        }
        !self.whole.get(base, |table| {
            planner::ranges::pressing(table).next().is_none()
        })
    }

    /// Whether all copies that are on their way have arrived, where nobody is disturbed by tables:
    /// no other step could share this one.
    fn waits_for_nothing(&mut self, now: Time, base: &Named) -> bool {
        let learning = self.learning.get(base, |table| {
            table.partitions().map(|(_, p)| p.learners().count()).sum()
        });
        // Nobody asks twice for the same.
        let arrived = self
            .in_sync
            .iter()
            .filter(|r| matches!(r.change, InSyncChange::Admit(_)))
            .count();
        arrived > 0 && arrived >= learning && !self.disturbs(now)
    }

    /// A member follows, and holds a proposal that its proposer could not commit. Only a newer
    /// table takes it out of that member's way: until then it serves nothing that the proposal
    /// would give to another, and no lease counts its answers.
    pub(super) fn outdo(&mut self) {
        self.outdone = true;
    }

    pub(super) fn open(&mut self, at: PartitionRef, since: Epoch) {
        self.opened.insert(at, since);
    }

    pub(super) fn is_open(&self, at: PartitionRef, since: Epoch) -> bool {
        self.opened.get(&at) == Some(&since)
    }

    pub(super) fn leave(&mut self, member: MemberId, step: LeaveStep) {
        match step {
            LeaveStep::HandOver(pace) => {
                let known = self.leaving.entry(member).or_insert(pace);
                *known = pace.max(*known);
            }
            LeaveStep::Gone => {
                self.departing.insert(member);
            }
        }
    }

    pub(super) fn ask(&mut self, mut requests: Vec<InSyncRequest>) {
        requests.retain(|request| {
            let InSyncChange::Still { ahead_ms } = request.change else {
                return true;
            };
            self.still.insert(
                request.partition,
                Stillness {
                    epoch: request.epoch,
                    ahead_ms,
                },
            );
            false
        });
        let room = IN_SYNC_MAX.saturating_sub(self.in_sync.len());
        for request in requests.into_iter().take(room) {
            if !self.in_sync.contains(&request) {
                self.in_sync.push(request);
            }
        }
    }

    /// False: too many wait.
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
        self.plan_wanted = true;
    }

    /// With whom a member is not connected, as it says.
    pub(super) fn unheard(
        &mut self,
        now: Time,
        by: MemberId,
        unheard: impl Iterator<Item = MemberId>,
    ) {
        self.reach.unheard(now, by, unheard);
    }

    /// What is to move, and has not begun, is thought over.
    pub(super) const fn think_again(&mut self) {
        self.plan_wanted |= self.moving;
    }

    /// Moves for balance that failed, one after the other.
    pub(super) const fn moves_failed(&self) -> u32 {
        self.failed
    }

    pub(super) fn planned(&mut self, base: TableName, proposal: Proposal) {
        self.plan_asked = None;
        self.proposal = Some((base, proposal));
    }
}

impl Council {
    /// Whether what shall move is still to be found out, or is not in the table in force yet:
    /// nothing in that table tells of it.
    pub(super) fn is_planning(&self) -> bool {
        let Role::Leader(leader) = &self.role else {
            return false;
        };
        let duties = &leader.duties;
        let adopting = duties.moving && self.accepted.name != self.committed.name;
        duties.plan_wanted
            || duties.plan_asked.is_some()
            || duties.proposal.is_some()
            || !duties.joiners.is_empty()
            || adopting
    }

    /// Whatever is due, in one table.
    pub(super) fn attend(&mut self, cx: &mut Context) {
        let mut role = std::mem::replace(&mut self.role, Role::Follower);
        let draft = match &mut role {
            Role::Leader(leader) => {
                let joined = |m: MemberId| leader.has_joined(m);
                let joined: BTreeSet<MemberId> = self
                    .accepted
                    .members
                    .iter()
                    .map(|m| m.id)
                    .filter(|m| joined(*m))
                    .chain([cx.me()])
                    .collect();
                self.draft(cx, &mut leader.duties, &joined)
            }
            Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) => None,
        };
        self.role = role;
        match draft {
            Some(draft) => self.propose(cx, draft),
            None => self.want_plan(cx),
        }
    }

    fn draft(
        &mut self,
        cx: &mut Context,
        duties: &mut Duties,
        joined: &BTreeSet<MemberId>,
    ) -> Option<Draft> {
        let base = if broken(&mutant::FORGETS_ACCEPTED) {
            self.committed.clone()
        } else {
            self.accepted.clone()
        };
        let mut table: Cow<'_, Table> = Cow::Borrowed(&base.table);
        let mut draft = Draft::default();
        self.draft_members(cx, duties, &mut table);
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
        self.draft_admin(cx, duties, &mut table, &mut draft);
        if let Some(next) = cx
            .minute
            .and_then(|minute| planner::at_minute(&table, minute))
        {
            table = Cow::Owned(next);
            (draft.unplanned, draft.altered) = (true, true);
        }
        let goes_along = matches!(table, Cow::Owned(_));
        if cx.now >= duties.batch_at
            && (goes_along
                || cx.now >= duties.rest_until
                || duties.presses(cx.now, &base)
                || duties.waits_for_nothing(cx.now, &base))
        {
            draft_moves(cx, duties, base.name, &mut table, &mut draft);
        }
        if table.settings.forbids_more_than(&base.settings) {
            table = Cow::Owned(planner::call_off(&table, &duties.told.loads));
        }
        self.draft_voters(&base, &mut table, joined);
        self.draft_level(cx, &base, &mut table);
        let changed = *table != *base.table;
        let outdone = std::mem::take(&mut duties.outdone);
        if !changed && base.name == self.committed.name && !outdone {
            // Nothing to commit: whoever waits for what is so already is answered.
            for (origin, ticket, reply) in draft.replies {
                self.reply(cx, origin, ticket, reply);
            }
            return None;
        }
        duties.batch_at = cx.now + batch(cx.config.timing.batch, table.members.len());
        duties.proposed_at = cx.now;
        draft.table = changed.then(|| table.into_owned());
        Some(draft)
    }

    /// The dead, the silent, those who return, who leave and who come.
    fn draft_members(&mut self, cx: &mut Context, duties: &mut Duties, table: &mut Cow<'_, Table>) {
        let me = cx.me();
        let mut gone = BTreeMap::new();
        let mut back = BTreeSet::new();
        if table
            .member(me)
            .is_some_and(|m| m.state == MemberState::Silent)
            && !broken(&mutant::STAYS_SILENT)
        {
            // It won with a table of a coordinator before, which did not hear it.
            back.insert(me);
        }
        duties.proven.retain(|m| table.member(*m).is_some());
        duties.silent_since.retain(|m, _| {
            table
                .member(*m)
                .is_some_and(|m| m.state == MemberState::Silent)
        });
        for member in table.members.iter().filter(|m| m.id != me) {
            let silent = self.silent(cx, member.id);
            let recent = |at: Time| cx.now.since(at) <= cx.config.timing.ping_interval * 2;
            let answers = self.detector.answered_at(member.id).is_some_and(recent);
            let proven = duties.dead.contains(&member.id) || duties.proven.contains(&member.id);
            if proven || self.asserted_dead.contains(&member.id) {
                gone.insert(member.id, Departure::Dead);
            } else if member.state == MemberState::Silent && answers && !silent {
                back.insert(member.id);
            } else if member.state == MemberState::Silent {
                duties.silent_since.entry(member.id).or_insert(cx.now);
            } else if silent {
                gone.insert(member.id, Departure::Silent);
            }
        }
        for &member in &duties.departing {
            if table
                .member(member)
                .is_some_and(|m| m.state == MemberState::Leaving)
                && !planner::holds_anything(table, member)
            {
                gone.entry(member).or_insert(Departure::Left);
            }
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
        give_up_lost(cx.now, duties, table);
        // Two members of one name are not both live: the former hands over what it holds, and goes.
        for former in outlived(table) {
            duties.leaving.entry(former).or_insert(Pace::Repair);
            duties.departing.insert(former);
        }
        // Who is silent may be dead; if not, it asks again.
        let goes_on = |state| {
            !matches!(state, MemberState::Leaving | MemberState::Silent)
                || broken(&mutant::HANDS_OVER_THE_DEAD)
        };
        // If a member answers again after a full stop was decided, it may take what the others
        // hold.
        let called_off = !planner::stops(table);
        let holds = |m: &Member| {
            called_off && m.state == MemberState::Leaving && planner::holds_anything(table, m.id)
        };
        let leaves = |m: &MemberId| {
            table
                .member(*m)
                .is_some_and(|m| goes_on(m.state) || holds(m))
        };
        duties.leaving.retain(|m, _| leaves(m));
        duties
            .departing
            .retain(|m| self.accepted.member(*m).is_some());
        for (&member, &pace) in &duties.leaving {
            if table.members.len() > 1 && table.member(member).is_some() {
                let next = planner::hand_over(table, member, pace);
                if next != **table {
                    *table = Cow::Owned(next);
                }
            }
        }
        let dead = std::mem::take(&mut duties.dead);
        duties.proven.extend(&dead);
        let mut nameless = std::mem::take(&mut duties.succeeded);
        // If it has been heard meanwhile, its name is taken, and `admit` leaves the newcomer out.
        nameless.retain(|m| {
            table
                .member(*m)
                .is_some_and(|m| m.state == MemberState::Silent)
        });
        nameless.extend(dead);
        give_up_names(table, &nameless);
        if !duties.joiners.is_empty() && !self.is_ending(cx, table) && self.settled(cx, duties) {
            let mut newcomers: Vec<Member> = (0..ADMITTED_MAX)
                .map_while(|_| duties.joiners.pop_first())
                .map(|(_, m)| m)
                .collect();
            // The level may have risen since they asked: they are refused when they ask again.
            newcomers.retain(|m| may_join(cx, table.level, m.id));
            newcomers.truncate(room_for_newcomers(&self.accepted, table));
            duties.admitted = Some((cx.now, newcomers.iter().map(|m| m.id).collect()));
            *table = Cow::Owned(planner::admit(table, newcomers));
        }
        if !broken(&mutant::LEAVES_THE_DRAINED)
            && let Some(next) = planner::refill(table)
        {
            *table = Cow::Owned(next);
        }
        self.draft_end(cx, duties, table);
    }

    /// Whether those who were admitted last are with us by now. A crowd that comes at once is let
    /// in as fast as it can be served, or its connecting would make members look dead that have no
    /// time to answer.
    fn settled(&self, cx: &Context, duties: &Duties) -> bool {
        duties.admitted.as_ref().is_none_or(|(at, members)| {
            let answers = |m: &MemberId| {
                self.detector.answered_at(*m).is_some() || self.accepted.member(*m).is_none()
            };
            cx.now.since(*at) >= ADMITTED_PATIENCE || members.iter().all(answers)
        })
    }

    /// What people ask for.
    fn draft_admin(
        &mut self,
        cx: &mut Context,
        duties: &mut Duties,
        table: &mut Cow<'_, Table>,
        draft: &mut Draft,
    ) {
        for (origin, ticket, request) in std::mem::take(&mut duties.admin) {
            if let Some(pair) = apart(table, &request, &duties.told.loads) {
                duties.together.entry(pair).or_insert(cx.now);
                draft.replies.push((origin, ticket, AdminReply::Done(None)));
                continue;
            }
            match administer(table, request) {
                Ok((next, entry)) => {
                    if let Some(next) = next {
                        *table = Cow::Owned(next);
                        (draft.unplanned, draft.altered) = (true, true);
                    }
                    draft
                        .replies
                        .push((origin, ticket, AdminReply::Done(entry)));
                }
                Err(why) => self.reply(cx, origin, ticket, AdminReply::Refused(why)),
            }
        }
    }

    /// A newcomer becomes a voter in a later table than the one that admits it (rule 4).
    fn draft_voters(&self, base: &Named, table: &mut Cow<'_, Table>, joined: &BTreeSet<MemberId>) {
        let same = self.committed_voters == base.voters;
        let may = |voters: &[MemberId]| {
            let settled = (same && majority(voters, |v| joined.contains(&v)))
                || broken(&mutant::VOTERS_UNSETTLED);
            !voters.is_empty() && (!self.asserted_dead.is_empty() || settled)
        };
        let may_vote = |v: &MemberId| base.member(*v).is_some() || broken(&mutant::NEWCOMERS_VOTE);
        let wanted: Vec<MemberId> = planner::elders(table)
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

    /// The level rises once everybody who is sent this table is known to speak more (I17): members
    /// that are silent, that leave with this table or come with it are sent it, too.
    fn draft_level(&self, cx: &Context, base: &Named, table: &mut Cow<'_, Table>) {
        let speaks = |id: MemberId| {
            let unknown = if broken(&mutant::RAISES_UNHEARD) {
                cx.config.level_max
            } else {
                LEVELS.0
            };
            cx.speaks(id).unwrap_or(unknown)
        };
        let members = [&self.committed.members, &base.members, &table.members];
        let level = members
            .into_iter()
            .flatten()
            .map(|m| speaks(m.id))
            .fold(cx.config.level_max, u16::min);
        if level > table.level {
            table.to_mut().level = level;
        }
    }

    fn want_plan(&mut self, cx: &mut Context) {
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        let duties = &mut leader.duties;
        if duties
            .plan_asked
            .is_some_and(|at| cx.now.since(at) >= PLAN_PATIENCE)
        {
            (duties.plan_asked, duties.plan_wanted) = (None, true);
        }
        if duties.plan_wanted
            && duties.plan_asked.is_none()
            && leader.idle()
            && self.accepted.name == self.committed.name
        {
            let duties = match &mut self.role {
                Role::Leader(leader) => &mut leader.duties,
                Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) => return,
            };
            (duties.plan_wanted, duties.plan_asked) = (false, Some(cx.now));
            let loads = duties.told.take(&self.committed.table);
            cx.outputs
                .push_back(Output::Plan(self.committed.table.clone(), loads));
        }
    }

    /// A draft is committed.
    pub(super) fn finished(&mut self, cx: &mut Context, before: &Named, draft: Draft) {
        for (origin, ticket, reply) in draft.replies {
            self.reply(cx, origin, ticket, reply);
        }
        let now = self.committed.clone();
        if let Role::Leader(leader) = &mut self.role {
            let duties = &mut leader.duties;
            duties.rest_until = if duties.disturbs(cx.now) {
                cx.now + (cx.now.since(duties.proposed_at) * REST).min(REST_MAX)
            } else {
                duties.batch_at + REPAIR_REST
            };
            let halved = |k: &Keyspace| !planner::reshape::doublings(k, HALVED_MAX).is_empty();
            let moving = now.partitions().any(|(_, p)| p.goal.is_some());
            duties.moving = moving || now.keyspaces.iter().any(halved);
            duties.plan_wanted |= draft.unplanned || before.members != now.members || !moving;
            if before.members != now.members {
                duties.rooms.members_changed(&now.table);
            }
            duties
                .opened
                .retain(|at, since| now.partition(*at).is_some_and(|p| p.since == *since));
            duties.backoff.retain(|(at, m), (until, _)| {
                now.member(*m).is_some()
                    && now.partition(*at).is_some()
                    && *until + BACKOFF_MAX > cx.now
            });
        }
        if !self.asserted_dead.is_empty()
            && self.asserted_dead.iter().all(|m| !now.voters.contains(m))
        {
            self.asserted_dead.clear();
            self.recovered(cx);
        }
    }

    /// The term ends: whoever waits for a change asks the next coordinator, or is told that nobody
    /// knows.
    pub(super) fn refuse_all(&mut self, cx: &mut Context) {
        if let Role::Leader(leader) = std::mem::replace(&mut self.role, Role::Follower) {
            self.refuse(
                cx,
                leader.abandoned(),
                "the coordinator changed meanwhile: it is not known whether the change was made",
            );
        }
    }

    /// Tells those who asked for the changes in this draft why they do not learn that these were
    /// made.
    pub(super) fn refuse(&mut self, cx: &mut Context, draft: Draft, why: &str) {
        for (origin, ticket, _) in draft.replies {
            self.reply(cx, origin, ticket, AdminReply::Refused(why.to_owned()));
        }
    }
}

fn batch(least: Duration, members: usize) -> Duration {
    let times = u32::try_from(members.div_ceil(BATCH_MEMBERS)).unwrap_or(u32::MAX);
    (least * times).min(BATCH_MAX).max(least)
}

/// Lost partitions begin empty once the last of their holders has been silent for as long as the
/// keyspace says. Until then any of the holders may come back with all that there was.
fn give_up_lost(now: Time, duties: &mut Duties, table: &mut Cow<'_, Table>) {
    let silent_since = &duties.silent_since;
    let due = |k: &Keyspace, p: &Partition| {
        let OnLoss::Reset { after_ms } = k.on_loss else {
            return None;
        };
        // A member that has only just become silent is listed with the next table.
        let last = p
            .in_sync()
            .map(|m| silent_since.get(&m).copied().unwrap_or(now))
            .max();
        last.map(|last| last + Duration::from_millis(after_ms))
    };
    let times: Vec<Time> = planner::lost(table)
        .filter_map(|(k, p)| due(k, p))
        .collect();
    duties.reset_at = times.iter().filter(|at| **at > now).min().copied();
    if times.iter().all(|at| *at > now) {
        return;
    }
    let next = planner::begin_anew(table, |k, p| due(k, p).is_some_and(|at| at <= now));
    if next != **table {
        *table = Cow::Owned(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::api::Peer;
    use crate::agreement::fixtures::planned;
    use crate::agreement::net::Net;
    use crate::wire::Message;
    use doyen_placement::loads::Report;
    use std::sync::Arc;

    /// Of one partition, so many operations a second.
    fn asked(duties: &mut Duties, table: &Table, reads: u64, writes: u64) {
        let (at, partition) = table.partitions().next().expect("a partition");
        let load = PartitionLoad {
            reads,
            writes,
            ..PartitionLoad::default()
        };
        duties.told.loads.tell(
            table,
            partition.primary(),
            Report {
                partitions: vec![(at, load)],
                ..Report::default()
            },
        );
    }

    #[test]
    fn tables_need_not_rest_where_nobody_asks_and_nothing_fails() {
        let (table, now) = (planned(8), Time(1_000_000_000_000));
        let mut duties = Duties::new(now);
        assert!(!duties.disturbs(now), "nobody has told of any");
        asked(&mut duties, &table, ASKED_LITTLE / 2 - 1, ASKED_LITTLE / 2);
        assert!(!duties.disturbs(now));
        asked(&mut duties, &table, ASKED_LITTLE / 2, ASKED_LITTLE / 2);
        assert!(duties.disturbs(now));
        asked(&mut duties, &table, 0, 0);
        assert!(!duties.disturbs(now));
        let (at, partition) = table.partitions().next().expect("a partition");
        duties
            .backoff
            .insert((at, partition.primary()), (now, Duration::from_secs(1)));
        assert!(
            duties.disturbs(now),
            "what fails is not tried the more often"
        );
        duties.backoff.clear();
        let (at, learner) = table
            .partitions()
            .find_map(|(at, p)| Some((at, *p.goal.as_ref()?.iter().find(|m| !p.holds(**m))?)))
            .expect("one that moves");
        duties
            .rooms
            .refused(now, &table, at, learner, &duties.told.loads);
        assert!(
            duties.disturbs(now + Duration::from_secs(1)),
            "somebody has no room"
        );
    }

    #[test]
    fn what_has_all_arrived_waits_for_nothing_else() {
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
        let base = Named::new(Arc::new(table.clone()));
        let mut duties = Duties::new(now);
        assert!(!duties.waits_for_nothing(now, &base), "nothing has arrived");
        duties.ask(asks[1..].to_vec());
        assert!(
            !duties.waits_for_nothing(now, &base),
            "one is still on its way"
        );
        duties.ask(asks);
        assert!(duties.waits_for_nothing(now, &base));
        asked(&mut duties, &table, ASKED_LITTLE, 0);
        assert!(
            !duties.waits_for_nothing(now, &base),
            "whoever asks for something would wait for a table"
        );
    }

    /// Its replies were dropped: the command that had asked waited until it gave up.
    #[test]
    fn who_asked_for_a_change_is_told_that_its_table_would_be_invalid() {
        let base = crate::agreement::fixtures::members(2);
        let mut cx = Context::new(
            Net::new(1, vec![vec![0]]).config(0, base.members[0].id),
            Time(1_000_000_000_000),
        );
        let mut council = Council::new(&mut cx, Named::new(Arc::new(base.clone())), None, true);
        let mut table = base.clone();
        table.members[1] = table.members[0].clone();
        let asker = base.members[1].id;
        let replies = vec![(asker, 7, AdminReply::Done(None))];
        cx.outputs.clear();
        council.propose(
            &mut cx,
            Draft {
                table: Some(table),
                replies,
                ..Draft::default()
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
        assert_eq!(council.accepted.name, base.name());
    }

    /// A sole voter that slept for an hour gave up what a silent member held, a moment before that
    /// member answered.
    #[test]
    fn time_that_the_coordinator_slept_is_no_silence_of_others() {
        let (before, after) = (Time(1_000_000_000), Time(3_600_000_000_000));
        let mut duties = Duties::new(before);
        duties.silent_since.insert(MemberId(16), before);
        duties.woke(after);
        assert_eq!(duties.silent_since[&MemberId(16)], after);
    }
}
