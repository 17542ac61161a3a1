//! What a node is for a partition that it holds.
//!
//! ```text
//!            ┌─ Follower ─────────────────────────────────────────────┐
//!   empty ──>│ Bond::None ── Align ──> Bond::Aligned <── Align ──┐    │── leads by the table ──> Primary
//!            │     └───── Begin ─────────> Bond::Learning ───────┘    │<── another one leads ─────┘
//!            └────────────────────────────────────────────────────────┘
//! ```
//! A follower that no table assigns to this node is kept for a while, with its bond, in case a
//! table gives it back.

use super::clock::PartitionClock;
use super::copying::Sink;
use super::partition::{Assigned, Held, Slot};
use super::replication::Primary;
use crate::log::changes::Position;
use crate::log::dedup::Dedup;
use crate::log::partition_log::Log;
use crate::role::calls::Calls;
use crate::store::Store;
use doyen_gossip::Time;
use doyen_placement::{Epoch, Lineage, MemberId, PartitionRef};
use std::collections::BTreeSet;

/// What a node is for a partition that it holds.
#[derive(Debug)]
pub(crate) enum PartitionRole {
    /// It leads: it executes calls, and sends its log to the copies.
    Primary(Primary),
    /// It takes what a primary sends.
    Follower(Follower),
}

/// A copy or a learner.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    pub(crate) bond: Bond,
    /// The last thing that was asked of the primary, so that it is not asked for every frame.
    pub(crate) wanted: Option<(Epoch, u64)>,
    /// No table assigns the partition to this node: it may be deleted at this time.
    pub(crate) drop_at: Option<Time>,
    /// The place of this partition's ack in its batch, if it has one.
    pub(crate) ack_noted: usize,
    /// Whose entries came last, and in which epoch. It hears when they are on the disk.
    pub(crate) answers: Option<(MemberId, Epoch)>,
}

/// What a follower has of a primary's log.
#[derive(Debug, Default)]
pub(crate) enum Bond {
    /// It continues no log until a primary has aligned it.
    #[default]
    None,
    /// It continues this log.
    Aligned(Follow),
    /// The same, and what was copied to it is still arriving or was not compared yet.
    Learning(Follow, Sink),
}

/// Whose log a copy continues: a tenure, and the session in which the copy began (0: aligned).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Follow {
    pub(crate) since: Epoch,
    pub(crate) session: u32,
}

impl Follower {
    /// Whose log it continues.
    pub(crate) const fn follow(&self) -> Option<Follow> {
        match self.bond {
            Bond::None => None,
            Bond::Aligned(follow) | Bond::Learning(follow, _) => Some(follow),
        }
    }

    /// The copying session in which it began. 0 if there was none.
    pub(crate) fn session(&self) -> u32 {
        self.follow().map_or(0, |follow| follow.session)
    }

    /// A primary gives it another bond.
    pub(crate) fn bind(&mut self, bond: Bond) {
        (self.bond, self.wanted) = (bond, None);
    }

    /// What is being copied to it.
    pub(crate) const fn sink(&self) -> Option<&Sink> {
        match &self.bond {
            Bond::Learning(_, sink) => Some(sink),
            Bond::None | Bond::Aligned(_) => None,
        }
    }

    /// What is being copied to it.
    pub(crate) fn sink_mut(&mut self) -> Option<&mut Sink> {
        self.learning_mut().map(|(_, sink)| sink)
    }

    /// What is being copied to it, and whose log it continues.
    pub(crate) const fn learning_mut(&mut self) -> Option<(&mut Follow, &mut Sink)> {
        match &mut self.bond {
            Bond::Learning(follow, sink) => Some((follow, sink)),
            Bond::None | Bond::Aligned(_) => None,
        }
    }
}

/// A partition that this node leads: its primary, and all that the primary works with.
#[derive(Debug)]
pub(crate) struct Leading<'a> {
    pub(crate) at: PartitionRef,
    pub(crate) installed: Option<&'a Assigned>,
    /// Whether the installed table splits or merges it, so that it accepts no writes.
    pub(crate) frozen: bool,
    /// Whether it is a range of keys.
    pub(crate) ranged: bool,
    pub(crate) calls: &'a mut Calls,
    pub(crate) lineage: Lineage,
    pub(crate) epoch: Epoch,
    pub(crate) clock: &'a mut PartitionClock,
    pub(crate) log: &'a mut Log,
    pub(crate) store: &'a mut Store,
    pub(crate) dedup: &'a Dedup,
    pub(crate) formers: &'a [Position],
    pub(crate) lead: &'a mut Primary,
}

impl Slot {
    /// The partition as its primary sees it. `None`: this node does not lead it.
    #[inline]
    pub(crate) fn leading(&mut self) -> Option<Leading<'_>> {
        let Held {
            role: PartitionRole::Primary(lead),
            lineage,
            epoch,
            clock,
            log,
            store,
            dedup,
            formers,
            ..
        } = self.held.as_deref_mut()?
        else {
            return None;
        };
        Some(Leading {
            at: self.at,
            installed: self.installed.as_ref(),
            frozen: self.frozen,
            ranged: self.ranged,
            calls: &mut self.calls,
            lineage: *lineage,
            epoch: *epoch,
            clock,
            log,
            store,
            dedup,
            formers,
            lead,
        })
    }
}

impl Leading<'_> {
    /// Whether a missing copy is on its way from here.
    pub(crate) fn is_repaired(&self, leaving: &BTreeSet<MemberId>) -> bool {
        self.installed.is_some_and(|a| a.is_repaired(leaving))
    }
}

/// A partition that this node holds and does not lead: its follower, and all that the follower
/// works with.
#[derive(Debug)]
pub(crate) struct Following<'a> {
    pub(crate) at: PartitionRef,
    pub(crate) installed: Option<&'a Assigned>,
    pub(crate) accepted: Option<&'a Assigned>,
    pub(crate) lineage: Lineage,
    pub(crate) epoch: Epoch,
    pub(crate) fence: &'a mut Epoch,
    pub(crate) was_in_sync: &'a mut bool,
    pub(crate) clock: &'a mut PartitionClock,
    pub(crate) log: &'a mut Log,
    pub(crate) store: &'a mut Store,
    pub(crate) dedup: &'a mut Dedup,
    pub(crate) follower: &'a mut Follower,
}

impl Slot {
    /// The partition as its follower sees it. `None`: this node leads it, or holds nothing of it.
    #[inline]
    pub(crate) fn following(&mut self) -> Option<Following<'_>> {
        let Held {
            role: PartitionRole::Follower(follower),
            lineage,
            epoch,
            fence,
            was_in_sync,
            clock,
            log,
            store,
            dedup,
            ..
        } = self.held.as_deref_mut()?
        else {
            return None;
        };
        Some(Following {
            at: self.at,
            installed: self.installed.as_ref(),
            accepted: self.accepted.as_ref(),
            lineage: *lineage,
            epoch: *epoch,
            fence,
            was_in_sync,
            clock,
            log,
            store,
            dedup,
            follower,
        })
    }
}

impl Following<'_> {
    pub(crate) fn bytes(&self) -> usize {
        self.store.bytes() + self.log.bytes()
    }
}
