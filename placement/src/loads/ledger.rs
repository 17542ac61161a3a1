//! The loads of a cluster, as its coordinator knows them.

use super::{
    EVACUATED, MemberLoad, PROGRESS_MAX, PartitionLoad, Progress, Report, Threshold, Uneven,
};
use crate::id::{MemberId, PartitionRef};
use crate::planner::may_receive;
use crate::table::{Member, Table};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The loads of a cluster, as far as they are known: at most one of each partition and of each
/// member of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loads {
    /// With the primary that reported each load, because another primary begins to measure.
    partitions: BTreeMap<PartitionRef, (MemberId, PartitionLoad)>,
    members: BTreeMap<MemberId, MemberLoad>,
    /// Copies that are on their way, with the member that sends them.
    moves: BTreeMap<(PartitionRef, MemberId), (MemberId, Progress)>,
    uneven: Uneven,
    /// Members that others cannot copy to. Only the coordinator has them, for its plans.
    #[serde(skip)]
    unreached: BTreeSet<MemberId>,
    /// Data threads of members that had no room for a copy that only balances, with the size of the
    /// smallest such copy. Only the coordinator has them.
    #[serde(skip)]
    full: BTreeMap<MemberId, u64>,
}

impl Loads {
    /// Takes a member's report. It is believed as to the member itself and to partitions that it
    /// leads in this table.
    pub fn tell(&mut self, table: &Table, from: MemberId, report: Report) {
        if table.member(from).is_none() {
            return;
        }
        self.members.insert(from, report.member);
        for (at, load) in report.partitions {
            if table.partition(at).is_some_and(|p| p.primary() == from) {
                self.partitions.insert(at, (from, load.bounded()));
            }
        }
        // A report has all moves, so a move that is not in it is done.
        self.moves.retain(|_, (by, _)| *by != from);
        for one in report.moves.into_iter().take(PROGRESS_MAX) {
            self.moves
                .insert((one.partition, one.learner), (from, one.bounded()));
        }
        self.retain_moves(table);
    }

    fn retain_moves(&mut self, table: &Table) {
        let learns = |at: PartitionRef, learner, by| {
            table
                .partition(at)
                .is_some_and(|p| p.primary() == by && p.learners().any(|m| m == learner))
        };
        self.moves
            .retain(|(at, learner), (by, _)| learns(*at, *learner, *by));
    }

    /// The loads in another process's answer. They are trusted no more than reports.
    #[must_use]
    pub fn checked(mut self, table: &Table) -> Self {
        self.retain(table);
        self.partitions
            .values_mut()
            .for_each(|(_, load)| *load = std::mem::take(load).bounded());
        self.moves
            .values_mut()
            .for_each(|(_, progress)| *progress = progress.bounded());
        self
    }

    /// Forgets partitions and members that no longer exist, and the reports of former primaries.
    pub fn retain(&mut self, table: &Table) {
        self.members
            .retain(|member, _| table.member(*member).is_some());
        self.partitions
            .retain(|at, (from, _)| table.partition(*at).is_some_and(|p| p.primary() == *from));
        self.retain_moves(table);
    }

    /// The load of a partition. `None`: no primary reported one.
    #[must_use]
    pub fn partition(&self, at: PartitionRef) -> Option<&PartitionLoad> {
        self.partitions.get(&at).map(|(_, load)| load)
    }

    /// The load of a member.
    #[must_use]
    pub fn member(&self, member: MemberId) -> Option<&MemberLoad> {
        self.members.get(&member)
    }

    /// All partitions whose loads are known, in order.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionRef, &PartitionLoad)> {
        self.partitions.iter().map(|(at, (_, load))| (*at, load))
    }

    /// All members whose loads are known, in order.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &MemberLoad)> {
        self.members.iter().map(|(member, load)| (*member, load))
    }

    /// The progress of a copy. `None`: as far as is known, it has not begun.
    #[must_use]
    pub fn progress(&self, at: PartitionRef, learner: MemberId) -> Option<&Progress> {
        self.moves.get(&(at, learner)).map(|(_, progress)| progress)
    }

    /// What is to be evened out.
    #[must_use]
    pub const fn uneven(&self) -> Uneven {
        self.uneven
    }

    /// Sets what is to be evened out: see [`super::LoadWindow`].
    pub const fn set_uneven(&mut self, uneven: Uneven) {
        self.uneven = uneven;
    }

    /// Members that answer, but that others cannot copy to.
    #[must_use]
    pub const fn unreached(&self) -> &BTreeSet<MemberId> {
        &self.unreached
    }

    /// Sets these members. Plans give them no copies, and their data goes elsewhere.
    pub fn set_unreached(&mut self, unreached: BTreeSet<MemberId>) {
        self.unreached = unreached;
    }

    /// Data threads of members that had no room for a copy that only balances, with the size of the
    /// smallest such copy.
    #[must_use]
    pub const fn full(&self) -> &BTreeMap<MemberId, u64> {
        &self.full
    }

    /// Sets these data threads. Plans give them no copies for balance that are as large.
    pub fn set_full(&mut self, full: BTreeMap<MemberId, u64>) {
        self.full = full;
    }

    /// Whether a member that does not hold this partition would refuse a copy of it for balance.
    #[must_use]
    pub fn refuses(&self, table: &Table, at: PartitionRef, member: MemberId) -> bool {
        let lacks = || table.partition(at).is_some_and(|p| !p.holds(member));
        !self.full.is_empty()
            && lacks()
            && table
                .member(member)
                .is_some_and(|m| self.is_full_for(m, at))
    }

    /// Whether a member had no room for a copy for balance that was no larger than one of this
    /// partition.
    pub(crate) fn is_full_for(&self, member: &Member, at: PartitionRef) -> bool {
        let thread = || {
            member
                .id
                .thread(at.partition.thread(member.addresses.threads()))
        };
        let bytes = || self.partition(at).map_or(0, |load| load.bytes);
        !self.full.is_empty()
            && self
                .full
                .get(&thread())
                .is_some_and(|least| bytes() >= *least)
    }

    /// The work of each member: as primary, and for its copies.
    #[must_use]
    pub fn work_of_members(&self, table: &Table) -> BTreeMap<MemberId, u64> {
        let mut work: BTreeMap<MemberId, u64> = BTreeMap::new();
        for (at, load) in self.partitions() {
            let Some(partition) = table.partition(at) else {
                continue;
            };
            for replica in &partition.replicas {
                let leads = replica.member == partition.primary();
                *work.entry(replica.member).or_default() += if leads {
                    load.work()
                } else {
                    load.work_of_writes()
                };
            }
        }
        work
    }

    /// What is uneven in this table at the moment. That alone is no reason to move anything.
    #[must_use]
    pub fn judge(&self, table: &Table) -> Uneven {
        let burdens = self.burdens(table);
        Uneven {
            work: Threshold::WORK.is_exceeded(burdens.iter().map(|b| (b.work, b.weight))),
            bytes: Threshold::BYTES.is_exceeded(burdens.iter().map(|b| (b.bytes, b.weight))),
            memory: self.members.values().any(|load| load.filled() >= EVACUATED),
        }
    }

    /// The work of the member that is furthest above its share, in percent of that share, and the
    /// same for bytes. 100 if there are no loads.
    #[must_use]
    pub fn furthest(&self, table: &Table) -> (u64, u64) {
        let burdens = self.burdens(table);
        let weights: u128 = burdens.iter().map(|b| u128::from(b.weight)).sum();
        let furthest = |of: fn(&MemberBurden) -> u64| {
            let total: u128 = burdens.iter().map(|b| u128::from(of(b))).sum();
            let percent = |b: &MemberBurden| {
                (u128::from(of(b)) * weights * 100).checked_div(total * u128::from(b.weight))
            };
            burdens
                .iter()
                .filter_map(percent)
                .max()
                .and_then(|percent| u64::try_from(percent).ok())
                .unwrap_or(100)
        };
        (furthest(|b| b.work), furthest(|b| b.bytes))
    }

    /// The burdens of members that may hold data.
    fn burdens(&self, table: &Table) -> Vec<MemberBurden> {
        let receivers = table.members.iter().filter(|m| may_receive(m));
        let none = |weight: u32| MemberBurden {
            work: 0,
            bytes: 0,
            weight: u64::from(weight.max(1)),
        };
        let mut burdens: BTreeMap<MemberId, MemberBurden> =
            receivers.map(|m| (m.id, none(m.weight))).collect();
        for (at, load) in self.partitions() {
            let Some(partition) = table.partition(at) else {
                continue;
            };
            for replica in &partition.replicas {
                let Some(burden) = burdens.get_mut(&replica.member) else {
                    continue;
                };
                burden.work += if replica.member == partition.primary() {
                    load.work()
                } else {
                    load.work_of_writes()
                };
                burden.bytes += load.bytes;
            }
        }
        burdens.into_values().collect()
    }
}

/// The burden of a member, and its weight.
struct MemberBurden {
    work: u64,
    bytes: u64,
    weight: u64,
}

impl FromIterator<(PartitionRef, MemberId, PartitionLoad)> for Loads {
    /// Loads by the member that measured them: for tests and for what-if questions.
    fn from_iter<I: IntoIterator<Item = (PartitionRef, MemberId, PartitionLoad)>>(
        loads: I,
    ) -> Self {
        let partitions = loads
            .into_iter()
            .map(|(at, from, load)| (at, (from, load.bounded())))
            .collect();
        Self {
            partitions,
            ..Self::default()
        }
    }
}
