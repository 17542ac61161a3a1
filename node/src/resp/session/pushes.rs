//! Messages that wait for a subscriber, in their order among its replies.

use super::SLOTS_KEPT_MAX;
use crate::resp::output::ClientOutput;
use crate::resp::pubsub::{Push, Queued};
use std::collections::VecDeque;
use std::rc::Rc;

/// Messages are moved to the output up to this size. The rest waits where the messages of all
/// subscribers are shared.
pub(crate) const PUSH_OUTPUT: usize = 128 << 10;

/// Pushes that are not in the output yet.
#[derive(Debug, Default)]
pub(crate) struct Pushes {
    queue: VecDeque<Queued>,
    /// Invalidations that are sent once more, in front of the reply with this number.
    again: VecDeque<(u64, Queued)>,
    /// How much they all count.
    bytes: usize,
    /// How many pushes were ever queued.
    queued: u64,
}

impl Pushes {
    pub(crate) fn queue(&mut self, push: Rc<Push>) {
        self.bytes += push.bytes();
        self.queue.push_back(Queued::new(push));
        self.queued += 1;
    }

    /// Queues a push that leaves when all replies below `behind` have left, and that no reply
    /// waits for.
    pub(crate) fn queue_again(&mut self, push: Rc<Push>, behind: u64) {
        self.bytes += push.bytes();
        self.again.push_back((behind, Queued::new(push)));
    }

    /// How many pushes are sent once more.
    pub(crate) fn again(&self) -> usize {
        self.again.len()
    }

    /// Nothing is sent once more.
    pub(crate) fn forget_again(&mut self) {
        for (_, push) in self.again.drain(..) {
            self.bytes = self.bytes.saturating_sub(push.bytes());
        }
    }

    /// Whether no push waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.again.is_empty()
    }

    /// Whether no push waits that a reply waits for.
    pub(crate) fn is_in_order(&self) -> bool {
        self.queue.is_empty()
    }

    /// How much those that wait count.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many pushes were ever queued.
    pub(crate) const fn queued(&self) -> u64 {
        self.queued
    }

    /// How many pushes left the queue.
    pub(crate) fn moved(&self) -> u64 {
        self.queued - self.queue.len() as u64
    }

    /// Moves pushes to the output while it is shorter than `bytes`: all, or those below this
    /// number.
    pub(crate) fn move_to(&mut self, out: &mut ClientOutput, bytes: usize, below: u64) {
        while self.moved() < below
            && out.len() < bytes
            && let Some(push) = self.queue.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(push.bytes());
            push.append_to(out);
        }
        if self.queue.is_empty() {
            self.queue.shrink_to(SLOTS_KEPT_MAX);
        }
    }

    /// Moves pushes that are sent once more to the output while it is shorter than `bytes`, if all
    /// replies below `left` have left.
    pub(crate) fn move_again_to(&mut self, out: &mut ClientOutput, bytes: usize, left: u64) {
        while out.len() < bytes
            && self
                .again
                .front()
                .is_some_and(|(behind, _)| *behind <= left)
            && let Some((_, push)) = self.again.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(push.bytes());
            push.append_to(out);
        }
        if self.again.is_empty() {
            self.again.shrink_to(SLOTS_KEPT_MAX);
        }
    }

    /// Drops all that wait. Returns how much they counted.
    pub(crate) fn clear(&mut self) -> usize {
        (self.queue, self.again) = (VecDeque::new(), VecDeque::new());
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use std::cell::Cell;

    fn push(bytes: usize) -> Rc<Push> {
        let held: Rc<Cell<usize>> = Rc::default();
        Push::new(BytesMut::zeroed(bytes), &held)
    }

    #[test]
    fn a_queue_moves_to_the_output_up_to_its_limit_and_up_to_a_reply() {
        let mut pushes = Pushes::default();
        (0..32).for_each(|_| pushes.queue(push(1 << 20)));
        assert_eq!(pushes.bytes, 32 * push(1 << 20).bytes());
        let mut out = ClientOutput::default();
        pushes.move_to(&mut out, 20 << 20, u64::MAX);
        assert!(pushes.moved() == 20 && out.len() == 20 << 20);
        pushes.move_to(&mut out, usize::MAX, 25);
        assert_eq!(pushes.moved(), 25);
        assert_eq!(pushes.bytes, 7 * push(1 << 20).bytes());
    }

    #[test]
    fn what_is_sent_once_more_follows_the_replies_that_it_waits_for() {
        let mut pushes = Pushes::default();
        for behind in [3, 5, 5] {
            pushes.queue_again(push(10), behind);
        }
        let mut out = ClientOutput::default();
        for (left, length) in [(2, 0), (4, 10), (4, 10), (5, 30)] {
            assert!(!pushes.is_empty() && pushes.is_in_order());
            pushes.move_again_to(&mut out, usize::MAX, left);
            assert_eq!(out.len(), length, "{left}");
        }
        assert_eq!((pushes.is_empty(), pushes.bytes), (true, 0));
        pushes.queue_again(push(10), 9);
        pushes.forget_again();
        assert_eq!((pushes.is_empty(), pushes.bytes), (true, 0));
    }
}
