//! A command that cannot be executed at once: what it waits for, and how far it has come. It stays
//! where it was parsed, its connection takes nothing more, and it is run again.

use crate::resp::pubsub::hub::CountedUpTo;
use bytes::Bytes;
use doyen_engine::CountedReceivers;
use doyen_gossip::Time;
use std::collections::BTreeSet;

/// What the present command waits for.
#[derive(Debug, Default)]
pub(crate) struct HeldCommand {
    cause: HeldCause,
    /// How long it waits until this thread gets all changes of keys.
    pub(crate) until: Option<Time>,
    /// What the other members answered to its question.
    counted: Option<CountedReceivers>,
}

/// Why a command is run again.
#[derive(Debug, Default)]
pub(crate) enum HeldCause {
    /// No command waits.
    #[default]
    No,
    /// It waits for the answers to earlier commands.
    Answers,
    /// It waits until all peers know that this thread has subscribers, until fewer messages wait at
    /// this thread, or until other members have answered.
    Woken,
    /// It has waited, and is run again.
    Ready,
    /// Its next slice.
    Slice(SliceProgress),
}

/// How far a command has come that is executed in slices.
#[derive(Debug)]
pub(crate) enum SliceProgress {
    /// The next of its names.
    Names(usize),
    /// The patterns are compared with a message's channel so far.
    Counting(CountedUpTo),
    /// The channels up to this one are compared; these match.
    Listing(Option<Bytes>, BTreeSet<Bytes>),
}

impl HeldCommand {
    /// Whether nothing is kept of a command.
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self.cause, HeldCause::No) && self.counted.is_none()
    }

    /// Whether the present command is to be run again.
    pub(crate) const fn is_held(&self) -> bool {
        !matches!(self.cause, HeldCause::No)
    }

    /// Whether the present command waits for something. `settled`: all earlier ones are answered.
    pub(crate) const fn waits(&self, settled: bool) -> bool {
        match self.cause {
            HeldCause::Answers => !settled,
            HeldCause::Woken => true,
            HeldCause::No | HeldCause::Ready | HeldCause::Slice(_) => false,
        }
    }

    /// The present command is run again for this cause.
    pub(crate) fn hold(&mut self, cause: HeldCause) {
        self.cause = cause;
    }

    /// The present command is run. Returns why it was held.
    pub(crate) fn take(&mut self) -> HeldCause {
        std::mem::take(&mut self.cause)
    }

    /// What a command waited for is over. False: none waited.
    pub(crate) fn wake(&mut self) -> bool {
        let woken = matches!(self.cause, HeldCause::Woken);
        if woken {
            self.cause = HeldCause::Ready;
        }
        woken
    }

    /// The other members have answered.
    pub(crate) fn count(&mut self, counted: CountedReceivers) {
        self.counted = Some(counted);
    }

    /// What other members answered.
    pub(crate) fn take_counted(&mut self) -> CountedReceivers {
        self.counted.take().unwrap_or_default()
    }
}
