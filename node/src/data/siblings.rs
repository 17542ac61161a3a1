//! Lines between the data threads of one process.
//!
//! To its shard, another thread of the node is a peer like any other: it is connected, forwards,
//! answers, is congested. Only its bytes need no network:
//!
//! ```text
//!   thread 0   send ──> mailbox 0 -> 1 ──> work   thread 1
//!              work <── mailbox 1 -> 0 <── send
//!              flush ── flag, then wake, once a pass ──>
//! ```
//! A mailbox has one writer and one reader, and one lock, held to push or to swap. `work` looks at
//! flagged mailboxes. A thread without siblings looks at nothing.
//!
//! A line between two threads begins when both read as threads of the same member, in the same
//! round. If a thread becomes another member, or receives malformed bytes, it breaks the line: it
//! empties its mailbox, and writes there as which member and in which round it reads from now on.
//! Bytes for another line are dropped, as with a connection that ended.

use crate::net::grow;
use crate::net::links::{CONGESTED_BYTES, LinkHandler};
use bytes::{Bytes, BytesMut};
use doyen_engine::Lane;
use doyen_placement::MemberId;
use doyen_placement::level::LEVELS;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The member and the round as which a thread reads from a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SiblingLine {
    member: MemberId,
    /// Counts how often the line between these two began again.
    round: u32,
}

/// The bytes that one thread left for another one, and the line that the reader reads.
#[derive(Debug)]
struct Mail {
    reader: SiblingLine,
    batches: VecDeque<(Lane, Bytes)>,
    /// Bytes of calls among them.
    calls: usize,
    /// The writer waits for `drained`.
    congested: bool,
}

/// Shared by the threads of a process.
#[derive(Debug)]
struct Post {
    threads: usize,
    /// One for each writer and reader, ordered by writer, then by reader. A lock, because two
    /// threads use it; held for moments.
    boxes: Vec<Mutex<Mail>>,
    /// For each thread, the threads that left something for it since it looked.
    flags: Vec<AtomicU32>,
}

impl Post {
    fn mail(&self, from: u8, to: u8) -> MutexGuard<'_, Mail> {
        // A panic while the lock was held left a whole state: each change is one step.
        self.boxes[usize::from(from) * self.threads + usize::from(to)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's ends of the lines to the others.
#[derive(Debug)]
pub struct Siblings {
    post: Arc<Post>,
    number: u8,
    member: MemberId,
    others: Vec<Sibling>,
    /// The threads to wake, one bit for each.
    to_ring: u32,
    /// A sibling may have become another member or begun a line again.
    unsettled: bool,
    /// From this many waiting bytes of calls on, the writer is congested.
    congested_bytes: usize,
}

#[derive(Debug)]
struct Sibling {
    number: u8,
    line: SiblingLine,
    connected: bool,
    /// Its mailbox may have something.
    flagged: bool,
    /// This thread sent it more than it took, and was told so.
    congested: bool,
    /// Bytes that were taken and not handled yet.
    input: VecDeque<(Lane, Bytes)>,
    /// The beginning of a frame of each lane, or more frames than one call should handle: then
    /// `again` names the lane.
    partial: [BytesMut; 2],
    again: Option<Lane>,
}

impl Sibling {
    fn new(number: u8, line: SiblingLine) -> Self {
        Self {
            number,
            line,
            connected: false,
            flagged: false,
            congested: false,
            input: VecDeque::new(),
            partial: Default::default(),
            again: None,
        }
    }

    /// Whether taken bytes are still to be handled.
    fn is_behind(&self) -> bool {
        !self.input.is_empty() || self.again.is_some()
    }
}

const fn index(lane: Lane) -> usize {
    match lane {
        Lane::Calls => 0,
        Lane::Bulk => 1,
    }
}

impl Siblings {
    /// The threads of a member, at most `THREADS_MAX`, each with its ends.
    #[must_use]
    pub fn of(member: MemberId, threads: u8) -> Vec<Self> {
        let line = SiblingLine { member, round: 0 };
        let mail = || {
            Mutex::new(Mail {
                reader: line,
                batches: VecDeque::new(),
                calls: 0,
                congested: false,
            })
        };
        let count = usize::from(threads);
        let boxes = (0..count * count).map(|_| mail()).collect();
        let flags = (0..count).map(|_| AtomicU32::new(0)).collect();
        let post = Arc::new(Post {
            threads: count,
            boxes,
            flags,
        });
        let of = |number| Self {
            post: post.clone(),
            number,
            member,
            others: (0..threads)
                .filter(|other| *other != number)
                .map(|number| Sibling::new(number, line))
                .collect(),
            to_ring: 0,
            unsettled: true,
            congested_bytes: CONGESTED_BYTES,
        };
        (0..threads).map(of).collect()
    }

    /// For the simulation: makes congestion frequent.
    pub fn congest_at(&mut self, bytes: usize) {
        self.congested_bytes = bytes;
    }

    /// How many siblings there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.others.len()
    }

    /// Whether a peer is one of the siblings.
    #[must_use]
    pub fn has(&self, peer: MemberId) -> bool {
        !self.others.is_empty() && peer.member() == self.member
    }

    /// Whether no sibling left anything since `work` looked.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.others.is_empty()
            || self.post.flags[usize::from(self.number)].load(Ordering::SeqCst) == 0
    }

    /// This process became another member: every line ends. The handler is not told: the caller
    /// must reset it as well.
    pub fn restart(&mut self, member: MemberId) {
        self.member = member;
        self.unsettled = true;
        for at in 0..self.others.len() {
            self.begin(at, SiblingLine { member, round: 0 });
        }
    }

    /// From now on this thread reads a new line. Bytes of a former line are void.
    fn begin(&mut self, at: usize, line: SiblingLine) {
        let other = &mut self.others[at];
        *other = Sibling::new(other.number, line);
        let void = {
            let mut mail = self.post.mail(other.number, self.number);
            mail.reader = line;
            mail.calls = 0;
            mail.congested = false;
            std::mem::take(&mut mail.batches)
        };
        drop(void);
        self.to_ring |= 1 << other.number;
    }

    /// Leaves bytes for another thread. Without a line they are dropped. True: the reader is
    /// behind, and [`LinkHandler::drained`] reports when that is over.
    pub fn send(&mut self, peer: MemberId, lane: Lane, bytes: Bytes) -> bool {
        let Some(other) = self
            .others
            .iter_mut()
            .find(|o| o.number == peer.thread_number() && o.connected)
        else {
            return false;
        };
        let mut mail = self.post.mail(self.number, other.number);
        if mail.reader != other.line {
            return false;
        }
        if lane == Lane::Calls {
            mail.calls += bytes.len();
        }
        mail.batches.push_back((lane, bytes));
        if mail.calls >= self.congested_bytes {
            mail.congested = true;
            other.congested = true;
        }
        self.to_ring |= 1 << other.number;
        other.congested
    }

    /// Handles what the siblings left. True: there is more, for the next pass.
    pub fn work(&mut self, handler: &mut impl LinkHandler) -> bool {
        if self.others.is_empty() {
            return false;
        }
        let flags = self.post.flags[usize::from(self.number)].swap(0, Ordering::SeqCst);
        if flags == 0 && !self.unsettled && self.others.iter().all(|o| !o.flagged && !o.is_behind())
        {
            return false;
        }
        for at in 0..self.others.len() {
            self.others[at].flagged |= flags & 1 << self.others[at].number != 0;
            self.settle(at, handler);
            self.take(at);
            self.deliver(at, handler);
        }
        self.unsettled = self.others.iter().any(|o| !o.connected);
        self.others
            .iter()
            .any(|o| o.is_behind() || o.flagged && o.connected)
    }

    /// Notices that another thread reads another line, or has room again.
    fn settle(&mut self, at: usize, handler: &mut impl LinkHandler) {
        let other = &mut self.others[at];
        if other.connected && !other.flagged {
            return;
        }
        let peer = self.member.thread(other.number);
        let (theirs, drained) = {
            let mail = self.post.mail(self.number, other.number);
            (mail.reader, !mail.congested)
        };
        if theirs.member != self.member || theirs.round < other.line.round {
            // One of the two threads is behind, and will follow.
            return;
        }
        if theirs.round > other.line.round {
            if other.connected {
                handler.disconnected(peer);
            }
            self.begin(at, theirs);
        }
        let other = &mut self.others[at];
        if !other.connected {
            other.connected = true;
            other.flagged = true;
            // Both are this process, which speaks all its versions with itself.
            handler.connected(peer, LEVELS.1);
        } else if other.congested && drained {
            other.congested = false;
            handler.drained(peer);
        }
    }

    /// Takes everything that was left, after what was taken before is handled.
    fn take(&mut self, at: usize) {
        let other = &mut self.others[at];
        if !other.connected || other.is_behind() || !std::mem::take(&mut other.flagged) {
            return;
        }
        let mut mail = self.post.mail(other.number, self.number);
        std::mem::swap(&mut mail.batches, &mut other.input);
        mail.calls = 0;
        if std::mem::take(&mut mail.congested) {
            self.to_ring |= 1 << other.number;
        }
    }

    fn deliver(&mut self, at: usize, handler: &mut impl LinkHandler) {
        let other = &mut self.others[at];
        let peer = self.member.thread(other.number);
        loop {
            let lane = match other.again.take() {
                Some(lane) => lane,
                None => {
                    let Some((lane, bytes)) = other.input.pop_front() else {
                        return;
                    };
                    let partial = &mut other.partial[index(lane)];
                    // A frame with a large value arrives in pieces. All others are whole, and are
                    // handled in place.
                    if partial.is_empty() {
                        *partial = bytes.into()
                    } else {
                        grow::append(partial, &bytes)
                    }
                    lane
                }
            };
            match handler.received(peer, lane, &mut other.partial[index(lane)]) {
                Ok(false) => {}
                Ok(true) => {
                    other.again = Some(lane);
                    return;
                }
                Err(malformed) => {
                    tracing::error!(
                        %peer,
                        "{malformed}: what is under way between two data \
                         threads of this node is asked again"
                    );
                    return self.break_line(at, handler);
                }
            }
        }
    }

    /// Ends the line to another thread with everything in flight on it, and begins it again.
    pub fn break_line(&mut self, at: usize, handler: &mut impl LinkHandler) {
        let Some(other) = self.others.get_mut(at).filter(|o| o.connected) else {
            return;
        };
        handler.disconnected(self.member.thread(other.number));
        let line = SiblingLine {
            round: other.line.round.saturating_add(1),
            ..other.line
        };
        self.begin(at, line);
        self.unsettled = true;
    }

    /// Wakes the threads for which something was left: `ring` is called once for each.
    pub fn flush(&mut self, mut ring: impl FnMut(u8)) {
        let to_ring = std::mem::take(&mut self.to_ring);
        if to_ring == 0 {
            return;
        }
        for other in self.others.iter().filter(|o| to_ring & 1 << o.number != 0) {
            // Set the flag first: the woken thread looks at it.
            self.post.flags[usize::from(other.number)].fetch_or(1 << self.number, Ordering::SeqCst);
            ring(other.number);
        }
    }
}

#[cfg(test)]
mod tests;
