//! The shortest way for copies from members that have too many to a member that has too few.

use std::collections::VecDeque;

/// Breadth-first search over members, from several at once.
pub(super) struct Search {
    queue: VecDeque<usize>,
    pub(super) unseen: Vec<usize>,
    seen: Vec<bool>,
    /// How each member was reached: from which member, with which partition and seat.
    from: Vec<Option<(usize, (usize, usize))>>,
}

impl Search {
    pub(super) fn from(start: Vec<usize>, members: usize) -> Self {
        let mut seen = vec![false; members];
        start.iter().for_each(|&m| seen[m] = true);
        let unseen = (0..members).filter(|m| !seen[*m]).collect();
        Self {
            queue: start.into(),
            unseen,
            seen,
            from: vec![None; members],
        }
    }

    pub(super) fn next(&mut self) -> Option<usize> {
        if self.unseen.is_empty() {
            None
        } else {
            self.queue.pop_front()
        }
    }

    pub(super) fn seen(&self, member: usize) -> bool {
        self.seen[member]
    }

    pub(super) fn reach(&mut self, member: usize, from: usize, by: (usize, usize)) {
        self.unseen.retain(|&m| m != member);
        self.seen[member] = true;
        self.from[member] = Some((from, by));
        self.queue.push_back(member);
    }

    /// Whether the way to this member moves this partition already. The seats that decide a second
    /// move of it would be out of date.
    pub(super) fn on_the_way(&self, member: usize, partition: usize) -> bool {
        let mut at = member;
        while let Some((before, (p, _))) = self.from[at] {
            if p == partition {
                return true;
            }
            at = before;
        }
        false
    }

    /// The moves that lead to this member: partition, seat, taker.
    pub(super) fn way_to(&self, member: usize) -> Vec<(usize, usize, usize)> {
        let mut way = Vec::new();
        let mut at = member;
        while let Some((before, (p, seat))) = self.from[at] {
            way.push((p, seat, at));
            at = before;
        }
        way
    }
}
