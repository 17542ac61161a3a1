//! What a coordinator knows of the loads of its cluster.

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
    /// With who said so: another primary measures anew.
    partitions: BTreeMap<PartitionRef, (MemberId, PartitionLoad)>,
    members: BTreeMap<MemberId, MemberLoad>,
    /// Copies that are on their way, with who sends them.
    moves: BTreeMap<(PartitionRef, MemberId), (MemberId, Progress)>,
    uneven: Uneven,
    /// Members that others cannot copy to. The coordinator's own, for its plans.
    #[serde(skip)]
    unreached: BTreeSet<MemberId>,
    /// Data threads of members that had no room for a copy that only balances, with the size of the
    /// smallest of those. As above.
    #[serde(skip)]
    full: BTreeMap<MemberId, u64>,
}

impl Loads {
    /// Believes of a member what it says of itself and of the partitions that it leads in this
    /// table.
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
        // All of them, each time: what is not said any more is done.
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

    /// As another process says that they are: no more is believed of it than of reports.
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

    /// Forgets what is no longer there, and what another primary said.
    pub fn retain(&mut self, table: &Table) {
        self.members
            .retain(|member, _| table.member(*member).is_some());
        self.partitions
            .retain(|at, (from, _)| table.partition(*at).is_some_and(|p| p.primary() == *from));
        self.retain_moves(table);
    }

    /// The load of a partition; `None`: nobody said that it has any.
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

    /// How far a copy has come; `None`: it has not begun, as far as is known.
    #[must_use]
    pub fn progress(&self, at: PartitionRef, learner: MemberId) -> Option<&Progress> {
        self.moves.get(&(at, learner)).map(|(_, progress)| progress)
    }

    /// What is to be evened out.
    #[must_use]
    pub const fn uneven(&self) -> Uneven {
        self.uneven
    }

    /// Says what is to be evened out: see [`super::LoadWindow`].
    pub const fn set_uneven(&mut self, uneven: Uneven) {
        self.uneven = uneven;
    }

    /// Members that answer, and that others cannot copy to.
    #[must_use]
    pub const fn unreached(&self) -> &BTreeSet<MemberId> {
        &self.unreached
    }

    /// Says who these are: plans give them nothing, and what they hold goes elsewhere.
    pub fn set_unreached(&mut self, unreached: BTreeSet<MemberId>) {
        self.unreached = unreached;
    }

    /// Data threads of members that had no room for a copy that only balances, with the bytes of
    /// the smallest of those.
    #[must_use]
    pub const fn full(&self) -> &BTreeMap<MemberId, u64> {
        &self.full
    }

    /// Says who these are: for balance, plans give them nothing that is as large.
    pub fn set_full(&mut self, full: BTreeMap<MemberId, u64>) {
        self.full = full;
    }

    /// Whether a member that does not hold this partition would refuse a copy of it, were it for
    /// balance alone.
    #[must_use]
    pub fn refuses(&self, table: &Table, at: PartitionRef, member: MemberId) -> bool {
        let lacks = || table.partition(at).is_some_and(|p| !p.holds(member));
        !self.full.is_empty()
            && lacks()
            && table
                .member(member)
                .is_some_and(|m| self.is_full_for(m, at))
    }

    /// Whether a member had no room for a copy, only for balance, that was no larger than one of
    /// this partition.
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

    /// What each member has to do: what it leads, and what it copies.
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

    /// What is uneven in this table at this moment: no reason yet to move anything.
    #[must_use]
    pub fn judge(&self, table: &Table) -> Uneven {
        let burdens = self.burdens(table);
        Uneven {
            work: Threshold::WORK.is_exceeded(burdens.iter().map(|b| (b.work, b.weight))),
            bytes: Threshold::BYTES.is_exceeded(burdens.iter().map(|b| (b.bytes, b.weight))),
            memory: self.members.values().any(|load| load.filled() >= EVACUATED),
        }
    }

    /// What the member that is furthest above its share of all work has of it, in percent; and the
    /// same of bytes. 100 where nobody has any.
    #[must_use]
    pub fn furthest(&self, table: &Table) -> (u64, u64) {
        let burdens = self.burdens(table);
        let weights: u128 = burdens.iter().map(|b| u128::from(b.weight)).sum();
        let furthest = |of: fn(&Burden) -> u64| {
            let total: u128 = burdens.iter().map(|b| u128::from(of(b))).sum();
            let percent = |b: &Burden| {
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

    /// Of the members that may hold data.
    fn burdens(&self, table: &Table) -> Vec<Burden> {
        let receivers = table.members.iter().filter(|m| may_receive(m));
        let none = |weight: u32| Burden {
            work: 0,
            bytes: 0,
            weight: u64::from(weight.max(1)),
        };
        let mut burdens: BTreeMap<MemberId, Burden> =
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

/// What a member has to carry, and its weight.
struct Burden {
    work: u64,
    bytes: u64,
    weight: u64,
}

impl FromIterator<(PartitionRef, MemberId, PartitionLoad)> for Loads {
    /// Loads by who measured them: for tests and for what-if questions.
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
