//! The invariants of docs/agreement.md, checked after every step that could break them.
//!
//! A view shows whether there is one committed table per version (I1), one publisher per term (I2:
//! never two tables of one term and version), whether versions never go back on a node (I3), later
//! tables descend from committed ones (I4), a primary is in sync (I7), a removed member never
//! returns (I11), there is one cluster (I12), and each slot has one partition (I15). Shards show
//! the rules of logs and copies (I5, I6, I8, I9, I13). Both together show that copies are kept
//! (I14), clients' histories that keys are linearizable (I10), and the end of the run that all is
//! served again (I16). Messages and views show that the level never falls, and that it never
//! exceeds what a member speaks (I17).

use super::Report;
use super::heirs::{self, Heirs};
use super::logs::Logs;
use super::process::{Process, ThreadId};
use super::schedule::Nanos;
use doyen_engine::Shard;
use doyen_gossip::agreement::View;
use doyen_gossip::agreement::{InSyncChange, InSyncRequest};
use doyen_gossip::wire::{Message, Payload};
use doyen_placement::division::RangeStart;
use doyen_placement::{
    BranchId, ClusterId, Division, Epoch, Keyspace, KeyspaceId, Lineage, MapEntry, MapId, MemberId,
    MemberState, Origin, PartitionId, PartitionRef, ReplicaState, Role, Table, TableName, Term,
    Version,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known of one cluster's tables.
#[derive(Debug, Default)]
struct Cluster {
    /// The digest of every accepted table, and the members that accepted it.
    proposed: BTreeMap<(Term, Version), (u64, BTreeSet<MemberId>)>,
    committed: BTreeMap<Version, Arc<Table>>,
    /// Removed members, and the version that removed them.
    removed: BTreeMap<MemberId, Version>,
    /// An operator's word has replaced votes.
    recovered: bool,
}

/// A half that an operator recovered while the others live. Its tables are judged as those of
/// another cluster, which had the same ones before.
#[derive(Debug)]
struct Apart {
    cluster: ClusterId,
    members: BTreeSet<MemberId>,
    /// The last version that both halves have.
    known: Version,
    /// The branches of recoveries before.
    base: BTreeSet<BranchId>,
    /// Those of this half.
    branches: BTreeSet<BranchId>,
    /// The members that have installed a table of this half.
    settled: BTreeSet<MemberId>,
}

impl Apart {
    /// What this half is called here.
    const fn named(cluster: ClusterId) -> ClusterId {
        ClusterId(!cluster.0)
    }

    /// Whether the table is one after the word, for what is known of its branches.
    fn begins(&self, table: &Table) -> bool {
        let mut branches = table.annex.branches.iter();
        branches.any(|branch| !self.base.contains(&branch.id))
    }

    fn has(&self, table: &Table) -> bool {
        let mut branches = table.annex.branches.iter();
        branches.any(|branch| self.branches.contains(&branch.id))
    }
}

/// The oracle.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    stranger: bool,
    apart: Option<Apart>,
    /// The highest level of every process that ever ran.
    speaks: BTreeMap<MemberId, u16>,
    clusters: BTreeMap<ClusterId, Cluster>,
    /// The last tables that a member installed and accepted.
    installed: BTreeMap<(MemberId, ClusterId), (Term, Version)>,
    accepted: BTreeMap<(MemberId, ClusterId), (Term, Version)>,
    moves: u64,
    reshaped: u64,
    failovers: u64,
    /// Partitions that began empty since this was last read.
    pub(crate) newly_lost: Vec<(PartitionId, Keyspace)>,
    lost_count: u64,
    /// Tables that were seen to be committed since this was last read, each with the one before it.
    pub(crate) newly_committed: Vec<(Option<Arc<Table>>, Arc<Table>)>,
    /// Clusters that have ended, with the counts of them.
    ended: BTreeSet<ClusterId>,
    tables_of_ended: u64,
    /// Members that did not answer the proposer of a table when it proposed.
    unheard: BTreeMap<(ClusterId, Term, Version), BTreeSet<MemberId>>,
    /// Copies that their primary wanted out of the in-sync set, because they did not acknowledge.
    asked_out: BTreeSet<(PartitionRef, Epoch, MemberId)>,
    /// The copies that each member holds.
    kept: BTreeMap<MemberId, Vec<(PartitionRef, Lineage)>>,
    /// The number of each named map.
    maps: BTreeMap<String, MapId>,
    /// The publisher of each term.
    publishers: BTreeMap<(ClusterId, Term), MemberId>,
    pub(crate) logs: Logs,
    pub(crate) heirs: Heirs,
}

impl Oracle {
    /// `stranger` says whether a process was told to begin a cluster beside the others'.
    pub(crate) fn new(stranger: bool) -> Self {
        Self {
            stranger,
            ..Self::default()
        }
    }

    /// A process starts that speaks no more than this level.
    pub(crate) fn speaks(&mut self, id: MemberId, level: u16) {
        self.speaks.insert(id, level);
    }

    /// The highest level of this process.
    pub(crate) fn spoken(&self, id: MemberId) -> Option<u16> {
        self.speaks.get(&id).copied()
    }

    /// No process is sent a table of a level that it does not speak.
    pub(crate) fn sent(&self, to: MemberId, message: &Message) -> Result<(), String> {
        let of = |payload: &Payload| match payload {
            Payload::Whole(table) => table.level,
            Payload::Delta(delta) => delta.level(),
        };
        let level = match message {
            Message::Found { table, .. } => table.level,
            Message::Propose(proposal) => of(&proposal.payload),
            Message::Committed(committed) => of(&committed.payload),
            _ => return Ok(()),
        };
        let speaks = self.spoken(to);
        hold!(
            speaks.is_none_or(|speaks| level <= speaks),
            "I17: {to} speaks levels up to {speaks:?} and is sent a table of level {level}"
        );
        Ok(())
    }

    /// Whether this is what a process is shown that is no member any more and speaks less than the
    /// table in force: the same but for its level.
    fn is_shown_less(&self, shown: &Table) -> Result<bool, String> {
        let cluster = self.clusters.get(&shown.cluster);
        let committed = cluster.and_then(|c| c.committed.get(&shown.version));
        let Some(committed) = committed.filter(|t| t.level > shown.level) else {
            return Ok(false);
        };
        hold!(
            committed.at_level(shown.level) == *shown,
            "I17: {}.{} is shown as another table to a process that speaks less",
            shown.term,
            shown.version
        );
        Ok(true)
    }

    /// An operator speaks to a member of this cluster, and the word replaces votes. The living know
    /// tables up to this version. What the dead agreed on after it is gone.
    pub(crate) fn recovers(&mut self, cluster: ClusterId, known: Version) {
        let cluster = self.clusters.entry(cluster).or_default();
        cluster.recovered = true;
        cluster.committed.retain(|version, _| *version <= known);
        cluster.removed.retain(|_, version| *version <= known);
    }

    /// An operator speaks to these members, and is wrong: the others live. The tables up to this
    /// version are known in both halves.
    pub(crate) fn parts(
        &mut self,
        cluster: ClusterId,
        half: BTreeSet<MemberId>,
        known: Version,
        base: BTreeSet<BranchId>,
    ) {
        let named = Apart::named(cluster);
        if let Some(before) = self.clusters.get(&cluster) {
            // A majority may have proposed others since, under the same names.
            let proposed = before.proposed.clone().into_iter();
            let proposed = proposed
                .filter(|(_, (_, acceptors))| !acceptors.is_disjoint(&half))
                .collect();
            let upto = |version: &Version| *version <= known;
            let mut shared = Cluster {
                proposed,
                committed: before.committed.clone(),
                removed: before.removed.clone(),
                recovered: true,
            };
            shared.committed.retain(|version, _| upto(version));
            shared.removed.retain(|_, version| upto(version));
            self.clusters.insert(named, shared);
        }
        for shown in [&mut self.installed, &mut self.accepted] {
            let before = shown.iter().filter(|((_, of), _)| *of == cluster);
            let before: Vec<_> = before.map(|((me, _), name)| (*me, *name)).collect();
            shown.extend(before.into_iter().map(|(me, name)| ((me, named), name)));
        }
        self.logs.parts(&half, cluster, named);
        self.apart = Some(Apart {
            cluster,
            members: half,
            known,
            base,
            branches: BTreeSet::new(),
            settled: BTreeSet::new(),
        });
    }

    /// Whether this member is of a half that was recovered while the others live.
    pub(crate) fn is_apart(&self, me: MemberId) -> bool {
        let apart = self.apart.as_ref();
        apart.is_some_and(|apart| apart.members.contains(&me.member()))
    }

    /// What a cluster is called here, to this member.
    fn line(&self, me: MemberId, cluster: ClusterId) -> ClusterId {
        match &self.apart {
            Some(apart) if apart.cluster == cluster && apart.members.contains(&me.member()) => {
                Apart::named(cluster)
            }
            _ => cluster,
        }
    }

    /// The newest table in force of a cluster, to this member.
    pub(crate) fn newest(&self, me: MemberId, cluster: ClusterId) -> Option<&Arc<Table>> {
        let cluster = self.clusters.get(&self.line(me, cluster))?;
        cluster.committed.values().next_back()
    }

    /// No member takes a table of the other half (rule 13). A member of the recovered half that
    /// never installed a table of it was left behind there, and may go on with the others.
    fn stays_in_its_half(&mut self, me: MemberId, view: &View) -> Result<(), String> {
        for table in [&view.installed, &view.accepted] {
            let Some(apart) = self.apart.as_mut().filter(|a| a.cluster == table.cluster) else {
                continue;
            };
            let acted = self.installed.contains_key(&(me, table.cluster));
            let shown = apart.members.contains(&me);
            let in_force = |line: ClusterId| {
                let cluster = self.clusters.get(&line);
                let known = cluster.and_then(|c| c.committed.get(&table.version));
                known.is_some_and(|known| **known == **table)
            };
            // The word put a table into force that the half had only accepted, and that has no
            // branch. A newcomer may be sent it before the first table that has one.
            let joins = !acted && in_force(Apart::named(table.cluster)) && !in_force(table.cluster);
            if !shown && joins {
                apart.members.insert(me);
            } else if !shown && apart.has(table) {
                hold!(
                    !acted,
                    "rule 13: {me} has a table of the half that was recovered, {}.{}, and is of \
                     the other one",
                    table.term,
                    table.version
                );
                apart.members.insert(me);
            } else if shown && apart.begins(table) {
                let branches = table.annex.branches.iter().map(|branch| branch.id);
                let new = branches.filter(|id| !apart.base.contains(id));
                apart.branches.extend(new);
            } else if shown && table.version > apart.known {
                let here = self.clusters.get(&Apart::named(table.cluster));
                let proposed = here.and_then(|c| c.proposed.get(&(table.term, table.version)));
                if proposed.is_some_and(|(hash, _)| *hash == table.name().hash) {
                    // It was on its way when the operator spoke.
                    continue;
                }
                hold!(
                    !apart.settled.contains(&me),
                    "rule 13: {me} was recovered, and has table {}.{} of the other half",
                    table.term,
                    table.version
                );
                apart.members.remove(&me);
            }
        }
        let settled = |apart: &&mut Apart| {
            let of_it = apart.cluster == view.installed.cluster && apart.members.contains(&me);
            of_it && apart.begins(&view.installed)
        };
        if let Some(apart) = self.apart.as_mut().filter(settled) {
            apart.settled.insert(me);
        }
        Ok(())
    }

    /// Whether any cluster exists.
    pub(crate) fn any_committed(&self) -> bool {
        self.clusters.values().any(|c| !c.committed.is_empty())
    }

    /// A primary asks for these changes.
    pub(crate) fn asked(&mut self, requests: &[InSyncRequest]) {
        for request in requests {
            if let InSyncChange::Remove(m) | InSyncChange::Withdraw(m) = request.change {
                self.asked_out.insert((request.partition, request.epoch, m));
            }
        }
    }

    /// A data thread has given all answers that it could. `may_answer` says whether its lease and
    /// view allowed that.
    pub(crate) fn released(
        &mut self,
        processes: &[Process],
        (p, t): ThreadId,
        at: Nanos,
        may_answer: bool,
    ) -> Result<(), String> {
        let me = processes[p].threads[t].shard_me;
        let cluster = processes[p].threads[t].shard.inspector().cluster();
        if may_answer && self.is_apart(processes[p].me) {
            let status = processes[p].agreement.status(processes[p].clock(at));
            let stopped = status.split.is_some_and(|split| split.is_stopped());
            hold!(
                !stopped,
                "rule 13: {me} answers, and knows that its half is stopped"
            );
        }
        let newest = cluster.and_then(|c| self.newest(me, c)).cloned();
        let mut logs = std::mem::take(&mut self.logs);
        let line = |me, cluster: Option<ClusterId>| cluster.map(|c| self.line(me, c));
        let looked = logs.look(
            processes,
            (p, t),
            (at, may_answer),
            newest.as_deref(),
            &line,
        );
        self.logs = logs;
        looked
    }

    /// The copies that a data thread holds now. Other members must hold those that it deleted since
    /// (I14).
    pub(crate) fn holds(
        &mut self,
        me: MemberId,
        cluster: Option<ClusterId>,
        shard: &Shard,
    ) -> Result<(), String> {
        let now = || shard.inspector().partitions().map(|i| (i.at, i.lineage));
        let kept = self.kept.entry(me).or_default();
        if now().eq(kept.iter().copied()) {
            return Ok(());
        }
        let before = std::mem::replace(kept, now().collect());
        let kept = kept.clone();
        let newest = cluster.and_then(|c| self.newest(me, c));
        for (at, lineage) in before.into_iter().filter(|held| !kept.contains(held)) {
            let Some(partition) = newest
                .and_then(|t| t.partition(at))
                .filter(|p| p.lineage == lineage)
            else {
                continue;
            };
            hold!(
                !partition.in_sync().any(|m| m == me.member()),
                "I14: {me} deleted its copy of {at}, which counts"
            );
        }
        Ok(())
    }

    /// The number of a named map.
    pub(crate) fn map(&self, name: &str) -> Option<MapId> {
        self.maps.get(name).copied()
    }

    /// Whether there is a cluster of more than one member.
    pub(crate) fn populated(&self) -> bool {
        self.clusters
            .values()
            .any(|c| c.committed.values().any(|t| t.members.len() > 1))
    }

    /// Every process was killed: what begins now is another cluster.
    pub(crate) fn all_ended(&mut self) {
        for (id, cluster) in std::mem::take(&mut self.clusters) {
            self.ended.insert(id);
            self.tables_of_ended += cluster.committed.len() as u64;
        }
        self.apart = None;
        self.maps.clear();
        self.newly_lost.clear();
        self.asked_out.clear();
    }

    /// A member sends a proposal. `unheard` are the members that do not answer it.
    pub(crate) fn proposes(
        &mut self,
        me: MemberId,
        name: TableName,
        unheard: impl FnOnce() -> Vec<MemberId>,
    ) -> Result<(), String> {
        let (cluster, me) = (self.line(me, name.cluster), self.heirs.person(me));
        self.unheard
            .entry((cluster, name.term, name.version))
            .or_insert_with(|| unheard().into_iter().collect());
        let publisher = *self.publishers.entry((cluster, name.term)).or_insert(me);
        hold!(
            publisher == me,
            "I2: {publisher} and {me} both publish in term {}",
            name.term
        );
        Ok(())
    }

    /// A member shows this view.
    pub(crate) fn view(&mut self, me: MemberId, view: &View) -> Result<(), String> {
        if view.installed.member(me).is_none() && self.is_shown_less(&view.installed)? {
            return Ok(());
        }
        self.stays_in_its_half(me, view)?;
        for table in [&view.installed, &view.accepted] {
            hold!(
                !self.ended.contains(&table.cluster),
                "I12: cluster {} ended with all of its processes, and is back",
                table.cluster
            );
            self.proposed(me, table)?;
        }
        let (installed, accepted) = (&view.installed, &view.accepted);
        let line = self.line(me, installed.cluster);
        hold!(
            (accepted.term, accepted.version) >= (installed.term, installed.version),
            "accepted {}.{} is before installed {}.{}",
            accepted.term,
            accepted.version,
            installed.term,
            installed.version
        );
        if let Some((_, version)) = self
            .installed
            .insert((me, line), (installed.term, installed.version))
        {
            hold!(
                installed.version >= version,
                "I3: installed went back from {version} to {}",
                installed.version
            );
        }
        if let Some(before) = self
            .accepted
            .insert((me, line), (accepted.term, accepted.version))
        {
            let now = (accepted.term, accepted.version);
            hold!(
                now >= before,
                "I3: accepted went back from {before:?} to {now:?}"
            );
        }
        for table in [installed, accepted] {
            for member in &table.members {
                let speaks = self.spoken(member.id);
                hold!(
                    speaks.is_none_or(|speaks| table.level <= speaks),
                    "I17: table {}.{} has level {}, and {} speaks levels up to {speaks:?}",
                    table.term,
                    table.version,
                    table.level,
                    member.name
                );
            }
        }
        self.committed(line, installed)?;
        self.later(line, accepted)
    }

    /// A member has accepted a table.
    fn proposed(&mut self, me: MemberId, table: &Arc<Table>) -> Result<(), String> {
        let name = table.name();
        let (cluster, me) = (self.line(me, table.cluster), self.heirs.person(me));
        let cluster = self.clusters.entry(cluster).or_default();
        if let Some((hash, acceptors)) = cluster.proposed.get_mut(&(table.term, table.version)) {
            hold!(
                *hash == name.hash,
                "I2: two tables are called {}.{}",
                table.term,
                table.version
            );
            acceptors.insert(me);
            return Ok(());
        }
        cluster.proposed.insert(
            (table.term, table.version),
            (name.hash, BTreeSet::from([me])),
        );
        for keyspace in &table.keyspaces {
            for partition in &keyspace.partitions {
                let primary = partition.replicas.first().map(|r| r.state);
                hold!(
                    primary == Some(ReplicaState::InSync),
                    "I7: a primary is not in sync in {}.{}",
                    table.term,
                    table.version
                );
            }
        }
        if let Err(invalid) = table.validate() {
            return Err(format!(
                "table {}.{} is not valid: {invalid:?}",
                table.term, table.version
            ));
        }
        Ok(())
    }

    /// A table is in force.
    fn committed(&mut self, line: ClusterId, table: &Arc<Table>) -> Result<(), String> {
        let Some(cluster) = self.clusters.get_mut(&line) else {
            return Ok(());
        };
        if let Some(known) = cluster.committed.get(&table.version) {
            hold!(
                **known == **table,
                "I1: two committed tables of version {}: terms {} and {}",
                table.version,
                known.term,
                table.term
            );
            return Ok(());
        }
        let before = cluster
            .committed
            .range(..table.version)
            .next_back()
            .map(|(_, t)| t.clone());
        let after = cluster
            .committed
            .range(table.version..)
            .next()
            .map(|(_, t)| t.clone());
        cluster.committed.insert(table.version, table.clone());
        self.newly_committed.push((before.clone(), table.clone()));
        for map in &table.maps {
            let id = *self.maps.entry(map.name.clone()).or_insert(map.id);
            hold!(id == map.id, "I4: map {} is {id} and {}", map.name, map.id);
        }
        if let Some(before) = &before {
            descends(before, table)?;
        }
        if let Some(after) = &after {
            descends(table, after)?;
        }
        if let Some(before) = before
            .as_ref()
            .filter(|b| b.version.0 + 1 == table.version.0)
        {
            if !cluster.recovered {
                let (_, acceptors) = &cluster.proposed[&(table.term, table.version)];
                for voters in [before, table] {
                    hold!(
                        most_accepted(voters, |v| acceptors.contains(&self.heirs.person(v))),
                        "rule 3: {}.{} is in force, and of the voters of {}.{} only {acceptors:?} \
                         have accepted it",
                        table.term,
                        table.version,
                        voters.term,
                        voters.version
                    );
                }
            }
            // A member that never acted on a table, because none reached it, may be admitted later:
            // it holds nothing, and has acknowledged nothing.
            let acted = |id| self.installed.contains_key(&(id, line));
            for gone in before
                .members
                .iter()
                .filter(|m| table.member(m.id).is_none() && acted(m.id))
            {
                cluster.removed.insert(gone.id, table.version);
            }
            let in_sync = table
                .keyspaces
                .iter()
                .flat_map(|k| &k.partitions)
                .flat_map(|p| p.in_sync());
            // An older table may become known later.
            if let Some(back) = in_sync.into_iter().find(|m| {
                cluster
                    .removed
                    .get(m)
                    .is_some_and(|removed| *removed < table.version)
            }) {
                return Err(format!(
                    "I11: {back} was removed in {}, and is in sync in {}",
                    cluster.removed[&back], table.version
                ));
            }
            let unheard = self
                .unheard
                .get(&(line, table.term, table.version))
                .cloned()
                .unwrap_or_default();
            enough_copies(before, table, &self.asked_out, &unheard)?;
            self.heirs.may_be_lost(before, table, &unheard)?;
        }
        for keyspace in &table.keyspaces {
            let assigned = before
                .as_ref()
                .and_then(|b| b.keyspace(keyspace.id))
                .is_some_and(|k| !k.partitions.is_empty());
            if !assigned && !keyspace.partitions.is_empty() {
                covered(keyspace)?;
            }
        }
        let populated = self
            .clusters
            .values()
            .filter(|c| c.committed.values().any(|t| t.members.len() > 1))
            .count();
        hold!(
            populated <= 1 + usize::from(self.apart.is_some()),
            "I12: {populated} clusters with more than one member"
        );
        let clusters = self
            .clusters
            .values()
            .filter(|c| !c.committed.is_empty())
            .count();
        hold!(
            clusters <= 1 + usize::from(self.stranger) + usize::from(self.apart.is_some()),
            "I12: {clusters} clusters began"
        );
        if let (Some(before), None) = (before, after) {
            let lost = (self.newly_lost.len(), self.lost_count);
            self.count(&before, table);
            // What the recovered half lost is no loss of the other one.
            if line != table.cluster {
                self.newly_lost.truncate(lost.0);
                self.lost_count = lost.1;
            }
        }
        Ok(())
    }

    /// A table that is accepted in a later term must build on everything that was committed before.
    fn later(&self, line: ClusterId, accepted: &Arc<Table>) -> Result<(), String> {
        let Some(cluster) = self.clusters.get(&line) else {
            return Ok(());
        };
        if let Some(same) = cluster.committed.get(&accepted.version) {
            let fine = same.name() == accepted.name() || same.term > accepted.term;
            hold!(
                fine,
                "I4: {}.{} was accepted after {}.{} committed",
                accepted.term,
                accepted.version,
                same.term,
                same.version
            );
        }
        if let Some((_, before)) = cluster.committed.range(..accepted.version).next_back()
            && before.term <= accepted.term
        {
            descends(before, accepted)?;
        }
        Ok(())
    }

    fn count(&mut self, before: &Table, after: &Table) {
        for keyspace in &after.keyspaces {
            for partition in &keyspace.partitions {
                let Some(old) = before
                    .keyspace(keyspace.id)
                    .and_then(|k| k.partition(partition.id))
                else {
                    self.reshaped += u64::from(!partition.from.is_empty());
                    // The partition may have begun empty since, because not every table becomes
                    // known here.
                    let known = before
                        .keyspace(keyspace.id)
                        .into_iter()
                        .flat_map(|k| &k.partitions);
                    let gone = known
                        .filter(|p| keyspace.partition(p.id).is_none())
                        .map(|p| p.lineage);
                    let parents = partition
                        .from
                        .iter()
                        .filter_map(|from| before.keyspace(keyspace.id)?.partition(from.partition));
                    let parents = parents.map(|p| p.lineage);
                    let next = after.version.0 == before.version.0 + 1;
                    let was =
                        if next { parents.max() } else { parents.min() }.or_else(|| gone.min());
                    if was.is_some_and(|was| partition.lineage > was) {
                        self.newly_lost.push((partition.id, keyspace.clone()));
                        self.lost_count += 1;
                    }
                    continue;
                };
                let admitted = partition
                    .in_sync()
                    .filter(|m| old.learners().any(|l| l == *m))
                    .count();
                self.moves += admitted as u64;
                self.failovers += u64::from(old.primary() != partition.primary());
                if old.lineage != partition.lineage {
                    self.newly_lost.push((partition.id, keyspace.clone()));
                    self.lost_count += 1;
                }
            }
        }
    }

    pub(crate) fn report(&self, report: &mut Report) {
        report.maps = self.maps.len() as u64;
        report.tables = self.tables_of_ended
            + self
                .clusters
                .values()
                .map(|c| c.committed.len() as u64)
                .sum::<u64>();
        report.moves = self.moves;
        report.failovers = self.failovers;
        report.lost = self.lost_count;
        report.reshaped = self.reshaped;
        report.compared = self.logs.compared;
    }
}

/// Whether a table may follow another one (I4, I11): no number that only rises has fallen, and no
/// removed member has come back.
fn descends(before: &Table, after: &Table) -> Result<(), String> {
    let names = format!(
        "{}.{} -> {}.{}",
        before.term, before.version, after.term, after.version
    );
    hold!(after.term >= before.term, "I4: {names}: the term fell");
    hold!(after.level >= before.level, "I17: {names}: the level fell");
    hold!(
        after.next_age >= before.next_age,
        "I4: {names}: the next age fell"
    );
    heirs::same_ages(&names, before, after)?;
    hold!(
        after.next_keyspace >= before.next_keyspace && after.next_map >= before.next_map,
        "I4: {names}: the next number fell"
    );
    for later in after
        .keyspaces
        .iter()
        .filter(|k| before.keyspace(k.id).is_none())
    {
        hold!(
            later.id >= before.next_keyspace,
            "I4: {names}: the number of keyspace {} was given twice",
            later.name
        );
    }
    let kept = |m: &MapEntry| {
        after.map(m.id).is_some_and(|now| now.is(m)) || after.keyspace(m.keyspace).is_none()
    };
    hold!(before.maps.iter().all(kept), "I4: {names}: a map is gone");
    hold!(
        after.keyspace(KeyspaceId(0)).is_some(),
        "I4: {names}: the keyspace of Redis clients is gone"
    );
    for keyspace in &before.keyspaces {
        // If the keyspace is gone, it was dropped with all its contents.
        let Some(later) = after.keyspace(keyspace.id) else {
            continue;
        };
        hold!(
            keyspace.tags == later.tags,
            "I15: {names}: keyspace {} places its keys by another rule",
            keyspace.name
        );
        hold!(
            keyspace.partitions.is_empty() || !later.partitions.is_empty(),
            "I15: {names}: the partitions are gone"
        );
        hold!(
            later.next_partition() >= keyspace.next_partition(),
            "I4: {names}: the next number of a partition fell"
        );
        if after.version.0 == before.version.0 + 1 {
            reshaped(keyspace, later).map_err(|why| format!("{names}: {why}"))?;
        }
        for new in &later.partitions {
            let at = new.id;
            let Some(old) = keyspace.partition(at) else {
                let given = keyspace.partitions.is_empty() || at >= keyspace.next_partition();
                hold!(
                    given,
                    "I4: {names}: the number of partition {at} was given twice"
                );
                continue;
            };
            hold!(
                new.epoch >= old.epoch && new.lineage >= old.lineage,
                "I4: {names}: partition {at} went back"
            );
            hold!(
                new.since >= old.since && new.since <= new.epoch,
                "I4: {names}: the tenure of partition {at} went back"
            );
            let in_sync = |p: &doyen_placement::Partition| p.in_sync().collect::<BTreeSet<_>>();
            if new.epoch == old.epoch {
                hold!(
                    old.primary() == new.primary(),
                    "I4: {names}: partition {at} changed its primary within an epoch"
                );
                let dropped = old
                    .learners()
                    .find(|m| new.replicas.iter().all(|r| r.member != *m));
                hold!(
                    dropped.is_none(),
                    "rule 7: {names}: partition {at} dropped the learner {dropped:?} within an \
                     epoch"
                );
            }
            if new.since == old.since {
                hold!(
                    old.primary() == new.primary(),
                    "rule 9: {names}: partition {at} changed its primary within a tenure"
                );
            }
            if new.lineage == old.lineage {
                let kept = in_sync(new).iter().any(|m| in_sync(old).contains(m))
                    || after.version.0 > before.version.0 + 1;
                hold!(kept, "I14: {names}: no copy of partition {at} was kept");
            }
            if after.version.0 == before.version.0 + 1 && new.lineage == old.lineage {
                for m in in_sync(new).difference(&in_sync(old)) {
                    hold!(
                        old.learners().any(|l| l == *m),
                        "I13: {names}: {m} came in sync in partition {at} without learning"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Splits and merges from one table to the next: a former partition has become others, which its
/// in-sync members hold, and which have all of its keys (I15). No other partition has come or gone.
fn reshaped(before: &Keyspace, after: &Keyspace) -> Result<(), String> {
    if before.partitions.is_empty() {
        return Ok(());
    }
    let in_sync = |p: &doyen_placement::Partition| p.in_sync().collect::<BTreeSet<_>>();
    for old in before
        .partitions
        .iter()
        .filter(|p| after.partition(p.id).is_none())
    {
        let parts: Vec<_> = after
            .partitions
            .iter()
            .filter(|p| p.from.iter().any(|from| from.partition == old.id))
            .collect();
        hold!(!parts.is_empty(), "I15: partition {} is gone", old.id);
        for part in parts {
            hold!(
                in_sync(part) == in_sync(old),
                "I13: partition {} is held by others than {}, its origin",
                part.id,
                old.id
            );
            hold!(
                part.epoch > old.epoch && part.since > old.epoch,
                "rule 9: partition {} has the tenure of {}",
                part.id,
                old.id
            );
            hold!(
                part.lineage >= old.lineage,
                "I4: partition {} has an older lineage than {}",
                part.id,
                old.id
            );
        }
    }
    for new in after
        .partitions
        .iter()
        .filter(|p| before.partition(p.id).is_none())
    {
        let known = |from: &Origin| {
            before.partition(from.partition).is_some() && after.partition(from.partition).is_none()
        };
        hold!(
            !new.from.is_empty() && new.from.iter().all(known),
            "I15: partition {} came of nothing",
            new.id
        );
    }
    covered(after)
}

/// Whether a majority of the voters of a configuration are among these. Exactly half is enough with
/// the oldest.
fn most_accepted(table: &Table, accepts: impl Fn(MemberId) -> bool) -> bool {
    let accepted = table.voters.iter().filter(|v| accepts(**v)).count();
    let oldest = table
        .voters
        .iter()
        .min_by_key(|v| table.member(**v).map(|m| m.age));
    2 * accepted > table.voters.len()
        || (2 * accepted == table.voters.len() && oldest.is_some_and(|v| accepts(*v)))
}

/// A table drops an in-sync copy of a member that stays only if as many others hold the partition
/// as should (I14), or its primary asked for it, or the proposer did not hear that member. (It may
/// stay a member as long as it has to vote.)
fn enough_copies(
    before: &Table,
    after: &Table,
    asked_out: &BTreeSet<(PartitionRef, Epoch, MemberId)>,
    unheard: &BTreeSet<MemberId>,
) -> Result<(), String> {
    let live = |t: &Table, m: MemberId| t.member(m).is_some_and(|m| m.state == MemberState::Live);
    let data = after
        .members
        .iter()
        .filter(|m| m.role == Role::Data && m.state == MemberState::Live)
        .count();
    for keyspace in &before.keyspaces {
        // If the keyspace was dropped, there are no copies to keep.
        let Some(later) = after.keyspace(keyspace.id) else {
            continue;
        };
        let wanted = (1 + usize::from(later.backups)).min(data);
        let both = keyspace
            .partitions
            .iter()
            .filter_map(|old| Some((old, later.partition(old.id)?)));
        for (old, new) in both.filter(|(old, new)| old.lineage == new.lineage) {
            let at = PartitionRef {
                keyspace: keyspace.id,
                partition: old.id,
            };
            let dropped = |m: &MemberId| {
                !unheard.contains(m)
                    && !new.in_sync().any(|n| n == *m)
                    && live(before, *m)
                    && live(after, *m)
            };
            let dropped = old
                .in_sync()
                .filter(dropped)
                .find(|m| !asked_out.contains(&(at, old.epoch, *m)));
            if let Some(m) = dropped {
                let left = new.in_sync().count();
                hold!(
                    left >= wanted,
                    "I14: {}.{}: {m} is dropped from {at}, which leaves {left} of {wanted}",
                    after.term,
                    after.version
                );
            }
        }
    }
    Ok(())
}

/// Every slot, arc or range belongs to exactly one partition, and is found by its beginning (I15).
fn covered(keyspace: &Keyspace) -> Result<(), String> {
    if !matches!(keyspace.division, Division::Slots | Division::Runs(_)) {
        let divided: BTreeSet<PartitionId> = keyspace.division.partitions().into_iter().collect();
        let there: BTreeSet<PartitionId> = keyspace.partitions.iter().map(|p| p.id).collect();
        hold!(
            there.is_empty() || divided == there,
            "I15: {} is divided among others than its partitions",
            keyspace.name
        );
        hold!(
            there.len() == keyspace.partitions.len(),
            "I15: a partition of {} is there twice",
            keyspace.name
        );
        if let Division::Ranges(ranges) = &keyspace.division {
            let found = |s: &RangeStart| {
                there.is_empty() || keyspace.partition_of(s.map, &s.key) == Some(s.partition)
            };
            hold!(
                ranges.starts().iter().all(found),
                "I15: a range of {} is not found by where it begins",
                keyspace.name
            );
        }
        return Ok(());
    }
    let mut owners = vec![0u32; 16_384];
    for partition in &keyspace.partitions {
        for slot in keyspace.slots_of(partition.id) {
            owners[usize::from(slot)] += 1;
            hold!(
                keyspace.partition_of_slot(slot) == Some(partition.id),
                "I15: slot {slot} is not found in its partition"
            );
        }
    }
    hold!(
        owners.iter().all(|n| *n == 1),
        "I15: a slot has no partition, or two"
    );
    Ok(())
}
