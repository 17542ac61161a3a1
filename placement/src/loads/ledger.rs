//! What a coordinator knows of the loads of its cluster.

use super::{EVACUATED, MemberLoad, PROGRESS_MAX, PartitionLoad, Progress, Report, Threshold, Uneven};
use crate::id::{MemberId, PartitionRef};
use crate::planner::may_receive;
use crate::table::Table;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The loads of a cluster, as far as they are known: at most one of each partition and of each member of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loads {
    /// With who said so: another primary measures anew.
    partitions: BTreeMap<PartitionRef, (MemberId, PartitionLoad)>,
    members: BTreeMap<MemberId, MemberLoad>,
    /// Copies that are on their way, with who sends them.
    moves: BTreeMap<(PartitionRef, MemberId), (MemberId, Progress)>,
    uneven: Uneven,
}

impl Loads {
    /// Believes of a member what it says of itself and of the partitions that it leads in this table.
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
            self.moves.insert((one.partition, one.learner), (from, one.bounded()));
        }
        self.retain_moves(table);
    }

    fn retain_moves(&mut self, table: &Table) {
        let learns =
            |at: PartitionRef, learner, by| table.partition(at).is_some_and(|p| p.primary() == by && p.learners().any(|m| m == learner));
        self.moves.retain(|(at, learner), (by, _)| learns(*at, *learner, *by));
    }

    /// As another process says that they are: no more is believed of it than of reports.
    #[must_use]
    pub fn checked(mut self, table: &Table) -> Self {
        self.retain(table);
        self.partitions.values_mut().for_each(|(_, load)| *load = std::mem::take(load).bounded());
        self.moves.values_mut().for_each(|(_, progress)| *progress = progress.bounded());
        self
    }

    /// Forgets what is no longer there, and what another primary said.
    pub fn retain(&mut self, table: &Table) {
        self.members.retain(|member, _| table.member(*member).is_some());
        self.partitions.retain(|at, (from, _)| table.partition(*at).is_some_and(|p| p.primary() == *from));
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

    /// Says what is to be evened out: see [`super::Window`].
    pub const fn set_uneven(&mut self, uneven: Uneven) {
        self.uneven = uneven;
    }

    /// What each member has to do: what it leads, and what it copies.
    #[must_use]
    pub fn work_of_members(&self, table: &Table) -> BTreeMap<MemberId, u64> {
        let mut work: BTreeMap<MemberId, u64> = BTreeMap::new();
        for (at, load) in self.partitions() {
            let Some(partition) = table.partition(at) else { continue };
            for replica in &partition.replicas {
                let leads = replica.member == partition.primary();
                *work.entry(replica.member).or_default() += if leads { load.work() } else { load.work_of_writes() };
            }
        }
        work
    }

    /// What is uneven in this table at this moment: no reason yet to move anything.
    #[must_use]
    pub fn judge(&self, table: &Table) -> Uneven {
        let mut burdens: BTreeMap<MemberId, (u64, u64)> = table.members.iter().filter(|m| may_receive(m)).map(|m| (m.id, (0, 0))).collect();
        for (at, load) in self.partitions() {
            let Some(partition) = table.partition(at) else { continue };
            for replica in &partition.replicas {
                let Some((work, bytes)) = burdens.get_mut(&replica.member) else { continue };
                *work += if replica.member == partition.primary() { load.work() } else { load.work_of_writes() };
                *bytes += load.bytes;
            }
        }
        let weights = || table.members.iter().filter(|m| may_receive(m)).map(|m| (m.id, u64::from(m.weight.max(1))));
        let of =
            |which: fn(&(u64, u64)) -> u64| weights().map(|(id, weight)| (burdens.get(&id).map_or(0, which), weight)).collect::<Vec<_>>();
        let (work, bytes) = (of(|b| b.0), of(|b| b.1));
        Uneven {
            work: Threshold::WORK.is_exceeded(work.iter().copied()),
            bytes: Threshold::BYTES.is_exceeded(bytes.iter().copied()),
            memory: self.members.values().any(|load| load.filled() >= EVACUATED),
        }
    }
}

impl FromIterator<(PartitionRef, MemberId, PartitionLoad)> for Loads {
    /// Loads by who measured them: for tests and for what-if questions.
    fn from_iter<I: IntoIterator<Item = (PartitionRef, MemberId, PartitionLoad)>>(loads: I) -> Self {
        let partitions = loads.into_iter().map(|(at, from, load)| (at, (from, load.bounded()))).collect();
        Self { partitions, ..Self::default() }
    }
}
