//! One partition at a node: its assignment by the tables, its calls, and what the node holds of it.

use super::clock::PartitionClock;
use super::copying::Sink;
use super::replication::Primary;
use super::tables::{SEQS, ShardTables};
use super::threads::MemberThreads;
use crate::log::changes::Position;
use crate::log::dedup::Dedup;
use crate::log::partition_log::Log;
use crate::mutant::{self, broken};
use crate::role::calls::Calls;
use crate::role::holding::{Follower, PartitionRole};
use crate::role::marks::Marks;
use crate::store::{Store, cuts};
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::loads::Meter;
use doyen_placement::{
    Durability, Epoch, Eviction, Lineage, MemberId, Mode, Partition, PartitionRef,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One partition of the table: its members, its calls, and what this node holds of it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) at: PartitionRef,
    pub(crate) installed: Option<Assigned>,
    pub(crate) accepted: Option<Assigned>,
    /// The lineage that was installed last. Calls are sent for it.
    pub(crate) lineage: Option<Lineage>,
    pub(crate) min_in_sync: u8,
    pub(crate) default_ttl_ms: Option<u64>,
    pub(crate) eviction: Eviction,
    /// For which setting of its keyspace it is kept on the disk.
    pub(crate) durable_since: Option<u64>,
    pub(crate) calls: Calls,
    pub(crate) held: Option<Box<Held>>,
    /// Whether it is in `UpkeepQueue::noticed`, or in the list of the present upkeep.
    pub(crate) noticed: bool,
    /// Whether it is in `UpkeepQueue::expiring`.
    pub(crate) expiring: bool,
    /// Whether the installed table splits or merges it, so that it accepts no writes.
    pub(crate) frozen: bool,
    /// Whether it is a range of keys.
    pub(crate) ranged: bool,
    /// The peer, a copy or the primary, for which calls wait here because it takes its bytes slower
    /// than they come.
    pub(crate) crowded_by: Option<MemberId>,
    /// Whether it is in `UpkeepQueue::migrating`.
    pub(crate) migrating: bool,
    /// Its states when the cluster was recovered. They outlive what is held.
    pub(crate) marks: Marks,
}

impl Slot {
    pub(crate) fn new(at: PartitionRef) -> Self {
        Self {
            at,
            installed: None,
            accepted: None,
            lineage: None,
            min_in_sync: 0,
            default_ttl_ms: None,
            eviction: Eviction::default(),
            durable_since: None,
            calls: Calls::default(),
            held: None,
            noticed: false,
            expiring: false,
            frozen: false,
            ranged: false,
            crowded_by: None,
            migrating: false,
            marks: Marks::default(),
        }
    }

    /// The rules of its keyspace.
    pub(crate) const fn rules(&self) -> (u8, Option<u64>, Eviction, (bool, Option<u64>)) {
        (
            self.min_in_sync,
            self.default_ttl_ms,
            self.eviction,
            (self.ranged, self.durable_since),
        )
    }

    /// Notes the partition's assignment in the two tables of a view. Returns whether it is the same
    /// as in the former tables, among the same members (`regrouped`: other members).
    pub(crate) fn assign(
        &mut self,
        view: &View,
        frozen: bool,
        threads: &MemberThreads,
        regrouped: bool,
    ) -> bool {
        // Most partitions of a table are shared with the table before it.
        let take = |assigned: &mut Option<Assigned>, partition: Option<&Arc<Partition>>| match (
            assigned.as_ref(),
            partition,
        ) {
            (Some(before), Some(now)) if !regrouped && Arc::ptr_eq(&before.partition, now) => true,
            (None, None) => !regrouped,
            _ => {
                *assigned = partition.map(|p| Assigned::new(p, threads));
                false
            }
        };
        let at = self.at;
        let before = (self.rules(), self.frozen);
        let keyspace = view.installed.keyspace(at.keyspace);
        let partition = keyspace.and_then(|k| k.partition(at.partition));
        let installed = take(&mut self.installed, partition);
        let accepted = take(&mut self.accepted, view.accepted.partition(at));
        if let Some(keyspace) = keyspace.filter(|_| partition.is_some()) {
            self.min_in_sync = keyspace.min_in_sync;
            self.default_ttl_ms = keyspace.default_ttl_ms;
            self.eviction = keyspace.eviction;
            self.durable_since =
                (keyspace.durability == Durability::Log).then_some(keyspace.durable_since.0);
            self.ranged = keyspace.mode == Mode::Range;
        }
        self.frozen = frozen;
        installed && accepted && before == (self.rules(), self.frozen)
    }
}

/// A partition's assignment in a table: all of it, and separately what every operation needs,
/// because the table is elsewhere in memory.
#[derive(Debug, Clone)]
pub(crate) struct Assigned {
    /// The data thread that leads it.
    pub(crate) primary: MemberId,
    pub(crate) lineage: Lineage,
    pub(crate) epoch: Epoch,
    pub(crate) since: Epoch,
    /// The number of in-sync copies.
    pub(crate) in_sync: usize,
    pub(crate) partition: Arc<Partition>,
}

impl Assigned {
    pub(crate) fn new(partition: &Arc<Partition>, threads: &MemberThreads) -> Self {
        let Partition {
            id,
            epoch,
            since,
            lineage,
            ..
        } = **partition;
        let (primary, in_sync) = (
            threads.peer_of(partition.primary(), id),
            partition.in_sync().count(),
        );
        Self {
            primary,
            lineage,
            epoch,
            since,
            in_sync,
            partition: partition.clone(),
        }
    }

    /// Whether fewer members than the goal hold it, and a learner is to be one more.
    pub(crate) fn is_repaired(&self, leaving: &BTreeSet<MemberId>) -> bool {
        let partition = &self.partition;
        let stay = partition.in_sync().filter(|m| !leaving.contains(m)).count();
        let goal = partition.goal.as_ref().map_or(0, Vec::len);
        partition.learners().next().is_some() && stay < goal
    }
}

/// A partition's contents and log at this node.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) at: PartitionRef,
    pub(crate) lineage: Lineage,
    /// What the numbers of its versions count from.
    pub(crate) versions_from: u64,
    /// The epoch that was installed last. Appends of an older one are refused.
    pub(crate) epoch: Epoch,
    /// The highest epoch of an applied entry. Entries of an older epoch, even of the installed one,
    /// would cut off what a later primary was promised.
    pub(crate) fence: Epoch,
    /// Whether it was in sync. Then everything that its log calls committed is committed. (A
    /// snapshot may begin after entries that are not committed.)
    pub(crate) was_in_sync: bool,
    pub(crate) store: Store,
    pub(crate) log: Log,
    pub(crate) dedup: Dedup,
    pub(crate) clock: PartitionClock,
    /// Measures the load here.
    pub(crate) meter: Meter,
    /// The former partitions from which it was made here, and where their logs ended.
    pub(crate) formers: Vec<Position>,
    pub(crate) role: PartitionRole,
}

impl Held {
    pub(crate) fn empty(
        at: PartitionRef,
        lineage: Lineage,
        tables: &ShardTables,
        now: Time,
    ) -> Self {
        Self {
            at,
            lineage,
            versions_from: tables.versions_from(lineage),
            epoch: Epoch(0),
            fence: Epoch(0),
            was_in_sync: false,
            store: tables.store_of(at.keyspace),
            log: Log::default(),
            dedup: Dedup::default(),
            clock: PartitionClock::new(now),
            meter: Meter::default(),
            formers: Vec::new(),
            role: PartitionRole::Follower(Follower::default()),
        }
    }

    /// The number of the next write, which is above those of all earlier ones: a partition that
    /// begins empty, or is made of others, has no lower lineage than any that had its keys before,
    /// and goes on after the highest of their sequences (`reshaping`).
    pub(crate) fn next_write(&self) -> u64 {
        u64::from(self.lineage.0)
            .saturating_mul(SEQS)
            .saturating_add(self.log.last() + 1)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.store.bytes() + self.log.bytes()
    }

    /// The primary, if this node leads.
    #[inline]
    pub(crate) const fn lead(&self) -> Option<&Primary> {
        match &self.role {
            PartitionRole::Primary(primary) => Some(primary),
            PartitionRole::Follower(_) => None,
        }
    }

    /// The primary, if this node leads.
    #[inline]
    pub(crate) const fn lead_mut(&mut self) -> Option<&mut Primary> {
        match &mut self.role {
            PartitionRole::Primary(primary) => Some(primary),
            PartitionRole::Follower(_) => None,
        }
    }

    /// The members with the copies that a write must reach.
    #[inline]
    pub(crate) fn copies(&self) -> impl Iterator<Item = MemberId> + '_ {
        let links = self.lead().into_iter().flat_map(|lead| lead.links.iter());
        links.filter(|(_, link)| link.required).map(|(id, _)| *id)
    }

    /// The follower, if this node does not lead.
    #[inline]
    pub(crate) const fn follower(&self) -> Option<&Follower> {
        match &self.role {
            PartitionRole::Follower(follower) => Some(follower),
            PartitionRole::Primary(_) => None,
        }
    }

    /// The follower, if this node does not lead.
    #[inline]
    pub(crate) const fn follower_mut(&mut self) -> Option<&mut Follower> {
        match &mut self.role {
            PartitionRole::Follower(follower) => Some(follower),
            PartitionRole::Primary(_) => None,
        }
    }

    /// What is being copied to this node.
    pub(crate) fn sink(&self) -> Option<&Sink> {
        self.follower().and_then(Follower::sink)
    }

    /// Another member leads, or none. False: this node did not lead.
    pub(crate) fn step_down(&mut self) -> bool {
        let led = self.lead().is_some();
        if led {
            self.role = PartitionRole::Follower(Follower::default());
        }
        led
    }

    /// Whether upkeep has nothing to do here until something happens.
    pub(crate) fn quiet(&self) -> bool {
        self.store.is_whole()
            && self
                .lead()
                .is_none_or(|l| l.quiet(&self.log) && !self.store.expires())
            && !cuts::has_cuts(&self.store)
    }
}

impl Slot {
    /// The data thread that leads it.
    pub(crate) fn primary(&self) -> Option<MemberId> {
        self.installed.as_ref().map(|a| a.primary)
    }

    /// Whether this thread leads it and has begun to acknowledge.
    pub(crate) fn is_open(&self) -> bool {
        self.held
            .as_ref()
            .and_then(|h| h.lead())
            .is_some_and(|lead| lead.open)
    }

    /// Whether upkeep has nothing to do here until something happens.
    pub(crate) fn quiet(&self) -> bool {
        self.calls.is_empty() && !self.frozen && self.held.as_ref().is_none_or(|h| h.quiet())
    }

    /// Which keys may be evicted. A partition that is about to be split or merged must not change.
    pub(crate) const fn evicts_by(&self) -> Eviction {
        if self.frozen {
            Eviction::None
        } else {
            self.eviction
        }
    }

    /// Whether a missing copy is on its way to or from here, or will be soon because a member
    /// leaves. Until the copy counts, another failure may lose data.
    pub(crate) fn is_repaired(&self, leaving: &BTreeSet<MemberId>) -> bool {
        self.held.is_some()
            && self
                .installed
                .as_ref()
                .is_some_and(|a| a.is_repaired(leaving))
    }

    /// Whether fewer copies are in sync than a write needs.
    pub(crate) fn has_too_few_copies(&self) -> bool {
        self.installed.as_ref().map_or(0, |a| a.in_sync) < usize::from(self.min_in_sync)
    }

    /// Whether this node may execute here: it is the primary in both the installed and the accepted
    /// table (rule 5).
    pub(crate) fn serving(&self) -> bool {
        self.held
            .as_ref()
            .and_then(|h| h.lead())
            .is_some_and(|l| l.serving || broken(&mutant::SERVES_BY_INSTALLED))
    }
}
