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
    /// How much they count.
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

    pub(crate) fn is_empty(&self) -> bool {
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

    /// Drops all that wait. Returns how much they counted.
    pub(crate) fn clear(&mut self) -> usize {
        self.queue = VecDeque::new();
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
}
