//! `PUBLISH`: the message has left, and the other members are asked how many subscribers got it.

use super::{Arrived, Outstanding, PendingReply, SessionEffect};
use crate::resp::encode::Encoder;

/// The reply of a `PUBLISH`.
#[derive(Debug)]
pub(crate) struct ReceiversReply {
    asked: Outstanding,
    count: u64,
}

impl ReceiversReply {
    /// This many subscribers are at this node.
    pub(crate) fn new(count: u64) -> Self {
        let mut asked = Outstanding::default();
        asked.question(1);
        Self { asked, count }
    }
}

impl PendingReply for ReceiversReply {
    fn asked(&self) -> &Outstanding {
        &self.asked
    }

    fn take(&mut self, arrived: Arrived) -> SessionEffect {
        if let Arrived::Members(counted) = arrived {
            let others = counted.counts.first().copied().unwrap_or_default();
            self.count = self.count.saturating_add(others);
            self.asked.answered();
        }
        SessionEffect::Nothing
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        encoder.integer(i64::try_from(self.count).unwrap_or(i64::MAX));
        true
    }
}
