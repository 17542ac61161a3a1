//! What the shell does with subscriptions.

use super::machine::Shard;
use crate::log::bookmark::Bookmark;
use crate::log::changes::{Filter, Told};
use crate::role::subscriptions::SubscriptionId;
use crate::value::outcome::Failure;
use doyen_gossip::Time;
use std::time::Duration;

impl Shard {
    /// From now on, a subscription is told about this often that it was told all
    /// ([`Told::Confirmed`]).
    pub fn confirm(&mut self, now: Time, id: SubscriptionId, every: Duration) {
        self.slots.confirm(&mut self.cx.host, now, id, every)
    }

    /// Begins to follow the changes that a filter lets through: those from now on, or those after a
    /// bookmark. [`Shard::poll_subscription`] names subscriptions that were told something.
    ///
    /// # Errors
    /// There is no such keyspace, the key is too long, or there are too many.
    pub fn subscribe(
        &mut self,
        now: Time,
        filter: Filter,
        after: Option<&Bookmark>,
    ) -> Result<SubscriptionId, Failure> {
        self.slots.subscribe(&mut self.cx.host, now, filter, after)
    }

    /// Ends a subscription. What was told and not taken is dropped.
    pub fn unsubscribe(&mut self, now: Time, id: SubscriptionId) {
        self.slots.unsubscribe(&mut self.cx.host, now, id)
    }

    /// The next subscription that was told something. It comes again only if [`Shard::take_told`]
    /// has returned `None` and something more was told, so take all, or come back to it.
    pub fn poll_subscription(&mut self) -> Option<SubscriptionId> {
        self.slots.poll_subscription(&mut self.cx.host)
    }

    /// The next thing that a subscription was told.
    pub fn take_told(&mut self, now: Time, id: SubscriptionId) -> Option<Told> {
        self.slots.take_told(&mut self.cx.host, now, id)
    }

    /// Where a subscriber is that has handled all that was taken, except this, which it has not
    /// handled yet: in the order in which it was taken. `None`: there is no such subscription.
    pub fn bookmark<'a>(
        &'a self,
        id: SubscriptionId,
        taken: impl DoubleEndedIterator<Item = &'a Told>,
    ) -> Option<Bookmark> {
        self.slots.bookmark(&self.cx.host, id, taken)
    }

    /// How many subscriptions there are.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.slots.subscriptions(&self.cx.host)
    }
}
