//! A keyspace whose changes a thread follows for clients that keep values, without the clients: it
//! says when they must forget everything. `super::tracking` says why that bounds how long they
//! keep a value that is stale. The simulation drives it, too.

use crate::mutant;
use doyen_engine::{Change, SubscriptionId, Told, What};
use doyen_gossip::Time;
use doyen_placement::PartitionId;
use doyen_placement::mutant::broken;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A client whose thread heard nothing from a primary for this long forgets everything.
pub const BOUND: Duration = Duration::from_secs(2);
/// How often primaries confirm that they told everything.
pub const CONFIRM: Duration = Duration::from_millis(500);
/// How often it is looked whether they did.
pub const LOOK: Duration = Duration::from_millis(100);

/// A keyspace whose changes come.
#[derive(Debug)]
pub struct FollowedKeyspace {
    /// `None`: there was no table yet.
    pub(super) id: Option<SubscriptionId>,
    ready: bool,
    /// The time up to which the changes of each partition are known.
    heard: BTreeMap<PartitionId, Time>,
    /// The last time at which all clients were told to forget everything.
    forgot: Time,
    /// It is followed until then without a client that tracks.
    pub(super) linger: Time,
}

/// What clients hear of what was told.
#[derive(Debug)]
pub enum Invalidates {
    /// Nothing.
    Nothing,
    /// This has changed.
    Key(Change),
    /// Changes are missing, or may be: they forget everything.
    All,
}

impl FollowedKeyspace {
    /// It is followed from now on.
    #[must_use]
    pub const fn new(now: Time) -> Self {
        Self {
            id: None,
            ready: false,
            heard: BTreeMap::new(),
            forgot: now,
            linger: now,
        }
    }

    /// The subscription ended, or begins again.
    pub const fn restart(&mut self) {
        (self.id, self.ready) = (None, false);
    }

    /// The earliest time up to which the changes of a partition are known.
    fn oldest(&self) -> Time {
        self.heard.values().copied().min().unwrap_or(self.forgot)
    }

    /// These are the partitions. The changes of new ones are known like those of the others.
    fn follow(&mut self, partitions: &BTreeSet<PartitionId>) {
        let oldest = self.oldest();
        self.heard.retain(|id, _| partitions.contains(id));
        for id in partitions {
            self.heard.entry(*id).or_insert(oldest);
        }
    }

    /// Whether all changes come, as far as is known.
    #[must_use]
    pub fn is_current(&self, now: Time) -> bool {
        self.ready && now.since(self.oldest()) < BOUND
    }

    /// Looks at these partitions, at least every [`LOOK`]. True: clients must forget everything,
    /// because it is not known what has changed.
    #[must_use]
    pub fn look(&mut self, partitions: &BTreeSet<PartitionId>, now: Time) -> bool {
        self.follow(partitions);
        let is_overdue = now.since(self.oldest().max(self.forgot)) + LOOK >= BOUND;
        if is_overdue {
            self.forgot = now;
        }
        is_overdue && !broken(&mutant::TRUSTS_THE_SILENT)
    }

    /// The subscription told this.
    #[must_use]
    pub fn told(&mut self, told: Told, now: Time) -> Invalidates {
        match told {
            Told::Ready => {
                // Clients that began before may have missed changes since.
                self.ready = true;
                self.heard.values_mut().for_each(|at| *at = now);
                Invalidates::All
            }
            Told::Confirmed { at, partitions } => {
                let heard = partitions.into_iter().map(|partition| (partition, at));
                self.heard.extend(heard);
                Invalidates::Nothing
            }
            Told::Lagged(_) if broken(&mutant::OVERLOOKS_GAPS) => Invalidates::Nothing,
            Told::Lagged(_) => Invalidates::All,
            Told::Ended => {
                self.restart();
                Invalidates::All
            }
            Told::Change(change) if matches!(change.what, What::Cleared) => Invalidates::All,
            Told::Change(change) => Invalidates::Key(change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_forget_all_once_a_partition_is_silent_and_again_while_it_is() {
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        let [one, two, heir] = [1, 2, 3].map(PartitionId);
        let mut followed = FollowedKeyspace::new(at(0));
        followed.ready = true;
        let both = BTreeSet::from([one, two]);
        followed.follow(&both);
        followed.heard.extend([(one, at(5_000)), (two, at(4_000))]);
        assert!(!followed.look(&both, at(5_500)));
        assert!(followed.look(&both, at(6_000)), "one partition is silent");
        assert!(!followed.look(&both, at(7_500)));
        assert!(followed.look(&both, at(8_000)), "values were read since");
        // An heir is as old as the oldest of all, until its primary confirms it.
        let both = BTreeSet::from([one, heir]);
        followed.follow(&both);
        assert_eq!(followed.heard[&heir], at(4_000));
        followed.heard.extend([(one, at(8_000)), (heir, at(8_000))]);
        assert!(!followed.look(&both, at(9_000)));
    }
}
