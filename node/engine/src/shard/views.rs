//! Parts of a shard, as the shell asks for them: each has the acts of its own.

use super::inspect::Inspector;
use super::machine::Shard;
use super::publishing::{Channels, Publishing};
use crate::role::partitions::Partitions;
use crate::role::subscriber::Subscriber;
#[cfg(any(test, feature = "fuzz"))]
use doyen_placement::{MapId, PartitionRef};

impl Shard {
    /// This thread as a subscriber of changes.
    pub fn subscriber(&mut self) -> Subscriber<'_> {
        Subscriber {
            slots: &mut self.slots,
            host: &mut self.cx.host,
        }
    }

    /// The channels of this thread: messages and questions.
    pub fn channels(&mut self) -> Channels<'_> {
        self.cx.channels()
    }

    /// The messages that have arrived, and who knows that they are wanted.
    #[must_use]
    pub fn published(&self) -> &Publishing {
        &self.cx.publishing
    }

    /// What this thread holds and leads.
    #[must_use]
    #[inline]
    pub fn partitions(&self) -> Partitions<'_> {
        Partitions {
            slots: &self.slots,
            host: &self.cx.host,
        }
    }

    /// What the simulation's oracle sees.
    #[doc(hidden)]
    #[must_use]
    pub fn inspector(&self) -> Inspector<'_> {
        Inspector {
            slots: &self.slots,
            host: &self.cx.host,
        }
    }

    /// The keys that were evicted since the last call, the last one first, as far as they are
    /// remembered.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn inspect_evicted(&mut self) -> Vec<(PartitionRef, MapId, std::sync::Arc<[u8]>)> {
        self.cx.host.memory.evicting.gone.drain(..).collect()
    }
}
