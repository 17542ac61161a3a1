//! The tables that a member has: in force, accepted, and before; and what their voters decide.

use super::api::{Output, View};
use super::context::{Context, NamedTable};
use super::lease::Tenures;
use super::recover::Recovery;
use crate::mutant::{self, broken};
use crate::signing::Vote;
use crate::time::Time;
use crate::wire::{Commit, CommitNotice, Message, Payload, ProcessState};
use doyen_placement::level::LEVELS;
use doyen_placement::quorum::majority;
use doyen_placement::table::TableDelta;
use doyen_placement::{Age, ClusterId, Member, MemberId, Table, TableName, Term, Version, VoteKey};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The number of committed tables that are kept, so that members that lag behind get the difference
/// alone.
const HISTORY_MAX: usize = 16;
/// The time after which an unanswered pull is sent to another member.
const PULL_PATIENCE: Duration = Duration::from_millis(200);
/// A version that is further ahead than this is invalid: one table a millisecond for a quarter of
/// an hour, and no table is that quick. After the last possible version there could be no other
/// table.
const VERSION_AHEAD_MAX: u64 = 1 << 20;

/// What a member knows of tables.
#[derive(Debug)]
pub(super) struct Tables {
    /// The last table known to be committed.
    pub(super) committed: NamedTable,
    /// The last table accepted.
    pub(super) accepted: NamedTable,
    /// The voters of the last configuration that is known to be committed. A proposal may know of a
    /// later one than `committed` (rule 3).
    pub(super) committed_voters: Vec<MemberId>,
    pub(super) last_commit: Option<Commit>,
    history: VecDeque<NamedTable>,
    /// The member that proposed `accepted`. Only its commit counts.
    pub(super) proposer: Option<MemberId>,
    /// The version of the last table that removed a member, as far as this node knows.
    pub(super) removed_at: Version,
    /// When the last committed table was asked for.
    pulling: Option<Time>,
    /// Voters that an operator declared dead, who do not count.
    pub(super) recovery: Recovery,
    /// Whether anything was ever done in this cluster. Only a cluster of one can be unused.
    pub(super) used: bool,
    /// Whether the committed table is without this node: it left, or was expelled.
    pub(super) out: bool,
}

/// What changed with a table that was installed.
pub(super) struct Installed {
    /// The table before it.
    pub(super) old: NamedTable,
    /// Whether it still has this process.
    pub(super) stays: bool,
    /// The members that it has added, if members came or went.
    pub(super) newcomers: Option<Vec<MemberId>>,
}

impl Tables {
    /// A member begins with a table that is committed.
    pub(super) fn new(table: NamedTable, commit: Option<Commit>, used: bool) -> Self {
        Self {
            committed_voters: table.voters.clone(),
            accepted: table.clone(),
            last_commit: commit,
            history: VecDeque::new(),
            proposer: None,
            removed_at: table.version,
            pulling: None,
            recovery: Recovery::default(),
            used,
            out: false,
            committed: table,
        }
    }

    pub(super) fn cluster(&self) -> ClusterId {
        self.committed.cluster
    }

    /// This member's part of its status.
    pub(super) fn membership(&self) -> ProcessState {
        ProcessState::Member {
            cluster: self.cluster(),
            used: self.used,
            version: self.committed.version,
        }
    }

    /// Whether a table of this version can exist, given the last one that this node knows.
    pub(super) fn near(&self, version: Version) -> bool {
        version.0 <= self.accepted.version.0.saturating_add(VERSION_AHEAD_MAX)
    }

    // ---- members

    /// A member of the accepted table, or of the one in force.
    pub(super) fn member(&self, id: MemberId) -> Option<&Arc<Member>> {
        let tables = [&self.accepted, &self.committed];
        tables.into_iter().find_map(|table| table.member(id))
    }

    /// What a member is called, for people.
    pub(super) fn name_of(&self, id: MemberId) -> String {
        self.member(id)
            .map_or_else(|| id.to_string(), |m| m.name.clone())
    }

    /// The members of the table in force and of the accepted one. A member of both comes twice.
    pub(super) fn members(&self) -> impl Iterator<Item = MemberId> {
        let tables = [&self.committed, &self.accepted];
        tables
            .into_iter()
            .flat_map(|table| &table.members)
            .map(|m| m.id)
    }

    /// The key of a member's votes, if a table says it.
    pub(super) fn vote_key(&self, member: MemberId) -> Option<VoteKey> {
        let tables = [&self.accepted, &self.committed];
        let key = |table: &NamedTable| table.member(member)?.vote_key;
        tables.into_iter().find_map(key)
    }

    /// The same, also of a member of one of the last tables.
    pub(super) fn key_of_any(&self, member: MemberId) -> Option<VoteKey> {
        let former = || {
            let tables = self.history.iter().rev();
            let members = tables.filter_map(|table| table.member(member));
            members.into_iter().find_map(|m| m.vote_key)
        };
        self.vote_key(member).or_else(former)
    }

    /// The first term has no election: the writer of the first table, who is the oldest member,
    /// coordinates (I12).
    pub(super) fn wrote_first(&self, term: Term, member: MemberId) -> bool {
        let oldest = |age| age == Age(1);
        term == Term(1) && self.committed.member(member).is_some_and(|m| oldest(m.age))
    }

    // ---- voters

    /// Voters of the accepted or the committed table. A voter of both comes twice.
    pub(super) fn voters(&self) -> impl Iterator<Item = MemberId> {
        let voters = self.accepted.voters.iter().chain(&self.committed_voters);
        voters.copied()
    }

    /// The same, each once.
    pub(super) fn distinct_voters(&self) -> BTreeSet<MemberId> {
        self.voters().collect()
    }

    /// Names of voters, each once.
    pub(super) fn voter_names(&self, which: impl Fn(MemberId) -> bool) -> Vec<String> {
        let voters = self.voters().filter(|v| which(*v));
        let names: BTreeSet<String> = voters
            .filter_map(|v| self.member(v).map(|m| m.name.clone()))
            .collect();
        names.into_iter().collect()
    }

    /// Whether a table in force, or an accepted one, gives this member a vote.
    pub(super) fn votes(&self, member: MemberId) -> bool {
        self.committed.voters.contains(&member) || self.voters().any(|v| v == member)
    }

    /// Whether these members contain majorities of the committed and of the accepted configuration
    /// (rule 2). This member counts.
    pub(super) fn both_majorities(&self, with: impl Fn(MemberId) -> bool) -> bool {
        (self.quorum(&self.committed_voters, &with) || broken(&mutant::WINS_WITHOUT_COMMITTED))
            && (self.quorum(&self.accepted.voters, &with) || broken(&mutant::WINS_WITHOUT_ACCEPTED))
    }

    /// Whether these members contain a majority of these voters. After an operator declared voters
    /// dead, all others are required: any one of the remaining voters may be the only one that
    /// knows what a lost majority committed.
    pub(super) fn quorum(&self, voters: &[MemberId], with: &impl Fn(MemberId) -> bool) -> bool {
        let with = |v: MemberId| with(v) || self.twins(v).any(with);
        let dead = &self.recovery.dead;
        if dead.is_empty() {
            return majority(voters, with);
        }
        let living = voters.iter().copied().filter(|v| !dead.contains(v));
        let living: Vec<MemberId> = living.collect();
        if broken(&mutant::RECOVERS_WITH_MOST) {
            return majority(&living, with);
        }
        !living.is_empty() && living.into_iter().all(with)
    }

    /// The predecessor or the heir of this voter, in the table in force or in the accepted one: the
    /// same process speaks for both, with one key.
    pub(super) fn twins(&self, voter: MemberId) -> impl Iterator<Item = MemberId> {
        let (accepted, committed) = (&self.accepted.voters, &self.committed.voters);
        // Tables with the same voters have no heirs of each other. Most have, so nothing is looked
        // up then.
        let differ = accepted != committed;
        let key = differ.then(|| self.vote_key(voter)).flatten();
        let twin = move |v: &MemberId| *v != voter && self.vote_key(*v) == key;
        let voters = accepted.iter().chain(committed).copied();
        voters.filter(move |v| key.is_some() && twin(v))
    }

    /// Whether this is an heir that only the accepted table has. Until that is in force, it answers
    /// in the name of its predecessor alone (rule 14).
    pub(super) fn is_heir_to_be(&self, id: MemberId) -> bool {
        if self.committed.member(id).is_some() {
            return false;
        }
        let key = self.accepted.member(id).and_then(|m| m.vote_key);
        key.is_some() && self.committed.members.iter().any(|m| m.vote_key == key)
    }

    /// What a voter signs.
    pub(super) fn vote(&self, term: Term, candidate: MemberId) -> Vote {
        Vote {
            cluster: self.cluster(),
            term,
            candidate,
        }
    }

    // ---- tables that come

    /// The data threads get what they need of the tables.
    pub(super) fn show(&self, cx: &mut Context, tenures: &Tenures) {
        let opens_at = tenures.opens_at.iter();
        let opens_at = opens_at.map(|(at, (since, time))| (*at, *since, *time));
        cx.outputs.push_back(Output::View(View {
            installed: self.committed.table.clone(),
            accepted: self.accepted.table.clone(),
            opens_at: Arc::new(opens_at.collect()),
        }));
    }

    /// Whether this table is of this half. No half takes a table of the other one, believed or not:
    /// what it acknowledged would be lost without a word.
    pub(super) fn may_take(&self, me: MemberId, table: &Table) -> bool {
        let before = &self.committed;
        let gave_up = || table.annex.gave_up(me, before.name, &before.annex);
        table.annex.descends_from(&before.annex) && !gave_up()
    }

    /// The table of a payload, if it is valid and has the given name.
    pub(super) fn unpack(&self, name: &TableName, payload: &Payload) -> Option<NamedTable> {
        let table = match payload {
            Payload::Whole(table) => {
                table.validate().ok()?;
                NamedTable::new(table.clone())
            }
            Payload::Delta(delta) => {
                let bases = [&self.committed, &self.accepted];
                let base = bases.into_iter().find(|t| t.name == delta.base)?;
                // The name was compared above. Deriving it again would cost a quarter of what a
                // table costs.
                NamedTable {
                    name: delta.target(),
                    table: Arc::new(delta.apply(base).ok()?),
                }
            }
        };
        (table.name == *name).then_some(table)
    }

    /// Whether this member proposed the accepted table, or its heir says so.
    pub(super) fn was_proposed_by(&self, member: MemberId) -> bool {
        let of = |proposer| proposer == member || self.twins(proposer).any(|twin| twin == member);
        self.proposer.is_some_and(of)
    }

    /// A table is committed. Returns `None` if this node knows it, or a later one. `me` is this
    /// process in tables.
    pub(super) fn install(
        &mut self,
        me: MemberId,
        table: NamedTable,
        commit: Option<Commit>,
    ) -> Option<Installed> {
        if (table.version <= self.committed.version
            || table.name.order() <= self.committed.name.order())
            && !broken(&mutant::GOES_BACK)
        {
            return None;
        }
        let old = std::mem::replace(&mut self.committed, table);
        if self.accepted.name.order() <= self.committed.name.order() {
            self.accepted = self.committed.clone();
            self.committed_voters = self.committed.voters.clone();
        }
        self.used = true;
        self.pulling = None;
        self.last_commit = commit;
        let new = &self.committed;
        let went = |m: &Arc<Member>| new.member(m.id).is_none();
        // This node does not know the tables in between, which may have admitted and removed a
        // member.
        if old.version.next() != new.version || old.members.iter().any(went) {
            self.removed_at = new.version;
        }
        let age = |table: &NamedTable| table.member(me).map(|m| m.age);
        // With another age, the member was removed and admitted again by a late request. Other
        // members have forgotten what they kept for it.
        let stays = age(new).is_some_and(|now| age(&old).is_none_or(|before| before == now));
        let members = new.members.iter().map(|m| m.id);
        let newcomers: Vec<MemberId> = members.filter(|m| old.member(*m).is_none()).collect();
        let changed = new.members.len() != old.members.len() || !newcomers.is_empty();
        self.history.push_back(old.clone());
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
        Some(Installed {
            old,
            stays,
            newcomers: changed.then_some(newcomers),
        })
    }

    // ---- pulling

    /// Asks a member for the last committed table.
    pub(super) fn pull(&mut self, cx: &mut Context, from: MemberId) {
        let asked_lately = |at| cx.now.since(at) < PULL_PATIENCE;
        if !self.pulling.is_some_and(asked_lately) {
            self.pulling = Some(cx.now);
            self.ask_for_table(cx, from, Some(self.committed.name));
        }
    }

    /// Asks a member for the last committed table, as the difference to one of these names.
    pub(super) fn ask_for_table(&self, cx: &mut Context, from: MemberId, have: Option<TableName>) {
        let cluster = self.cluster();
        cx.send(from, Message::Pull { cluster, have });
    }

    /// Whether this node has asked for a table and waits for it.
    pub(super) fn is_pulling(&self) -> bool {
        self.pulling.is_some()
    }

    pub(super) fn on_pull(&self, cx: &mut Context, from: MemberId, have: Option<TableName>) {
        let committed = |name, payload, commit| {
            Message::Committed(Box::new(CommitNotice {
                name,
                payload,
                commit,
            }))
        };
        // A process that was a member, and missed that the level rose, must be able to read that it
        // is a member no more. The name is that of what it is shown.
        if self.committed.member(from).is_none()
            && let level = cx.speaks(from).unwrap_or(LEVELS.0)
            && level < self.committed.level
        {
            let shown = NamedTable::new(Arc::new(self.committed.at_level(level)));
            return cx.send(
                from,
                committed(shown.name, Payload::Whole(shown.table), None),
            );
        }
        let base = have.and_then(|name| self.history.iter().find(|t| t.name == name));
        let payload = match base {
            Some(base) => Payload::Delta(Box::new(TableDelta::between(base, &self.committed))),
            None if have == Some(self.committed.name) => return,
            None => Payload::Whole(self.committed.table.clone()),
        };
        let commit = self.last_commit.clone();
        cx.send(from, committed(self.committed.name, payload, commit));
    }
}
