use super::*;
use doyen_engine::Malformed;

const MEMBER: MemberId = MemberId(0x10);
const LATER: MemberId = MemberId(0x20);

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Up(u8),
    Down(u8),
    Drained(u8),
    Bytes(u8, Vec<u8>),
}

/// Notes events. If it is `slow`, it takes one byte in each call. A frame that begins with 0 is
/// malformed.
#[derive(Default)]
struct Reader {
    seen: Vec<Seen>,
    slow: bool,
}

impl LinkHandler for Reader {
    fn connected(&mut self, peer: MemberId, _: u16) {
        self.seen.push(Seen::Up(peer.thread_number()));
    }

    fn disconnected(&mut self, peer: MemberId) {
        self.seen.push(Seen::Down(peer.thread_number()));
    }

    fn received(
        &mut self,
        peer: MemberId,
        _: Lane,
        bytes: &mut BytesMut,
    ) -> Result<bool, Malformed> {
        if bytes.first() == Some(&0) {
            return Err(Malformed("a test"));
        }
        let count = if self.slow { 1 } else { bytes.len() };
        self.seen.push(Seen::Bytes(
            peer.thread_number(),
            bytes.split_to(count).to_vec(),
        ));
        Ok(!bytes.is_empty())
    }

    fn drained(&mut self, peer: MemberId) {
        self.seen.push(Seen::Drained(peer.thread_number()));
    }
}

/// Threads of one process, and who was rung.
struct Threads {
    all: Vec<(Siblings, Reader)>,
}

impl Threads {
    fn new(count: u8) -> Self {
        Self {
            all: Siblings::of(MEMBER, count)
                .into_iter()
                .map(|s| (s, Reader::default()))
                .collect(),
        }
    }

    /// Threads that have met.
    fn met(count: u8) -> Self {
        let mut threads = Self::new(count);
        (0..count).for_each(|t| drop(threads.pass(t)));
        threads
            .all
            .iter_mut()
            .for_each(|(_, reader)| reader.seen.clear());
        threads
    }

    /// A pass of one of them: what it saw, and whether there is more.
    fn pass(&mut self, thread: u8) -> (Vec<Seen>, bool) {
        let (siblings, reader) = &mut self.all[usize::from(thread)];
        let more = siblings.work(reader);
        let seen = std::mem::take(&mut reader.seen);
        siblings.flush(|_| {});
        (seen, more)
    }

    fn send(&mut self, from: u8, to: u8, bytes: &[u8]) -> bool {
        let (siblings, _) = &mut self.all[usize::from(from)];
        let peer = siblings.member.thread(to);
        siblings.send(peer, Lane::Calls, Bytes::copy_from_slice(bytes))
    }

    /// The threads that it wakes at the end of its pass.
    fn flush(&mut self, from: u8) -> Vec<u8> {
        let mut rung = Vec::new();
        self.all[usize::from(from)].0.flush(|t| rung.push(t));
        rung
    }
}

fn bytes(from: u8, text: &[u8]) -> Seen {
    Seen::Bytes(from, text.to_vec())
}

#[test]
fn threads_meet_and_take_bytes_in_order() {
    let mut t = Threads::new(3);
    assert_eq!(t.pass(0), (vec![Seen::Up(1), Seen::Up(2)], false));
    assert!(!t.send(0, 1, b"one") && !t.send(0, 1, b"two") && !t.send(0, 2, b"three"));
    assert_eq!(t.flush(0), [1, 2], "each once");
    assert!(t.flush(0).is_empty(), "and not again");
    assert!(!t.all[1].0.is_quiet());
    assert_eq!(
        t.pass(1).0,
        [Seen::Up(0), bytes(0, b"one"), bytes(0, b"two"), Seen::Up(2)]
    );
    assert!(t.all[1].0.is_quiet());
    assert_eq!(t.pass(2).0, [Seen::Up(0), bytes(0, b"three"), Seen::Up(1)]);
    assert_eq!(t.pass(1), (Vec::new(), false));
}

#[test]
fn a_single_thread_has_no_siblings() {
    let mut t = Threads::new(1);
    assert_eq!(t.pass(0), (Vec::new(), false));
    let alone = &t.all[0].0;
    assert!(alone.is_quiet() && !alone.has(MEMBER));
}

#[test]
fn work_beyond_one_pass_continues_in_the_next() {
    let mut t = Threads::met(2);
    t.all[1].1.slow = true;
    t.send(0, 1, b"ab");
    t.flush(0);
    assert_eq!(t.pass(1), (vec![bytes(0, b"a")], true));
    t.send(0, 1, b"c");
    t.flush(0);
    assert_eq!(
        t.pass(1),
        (vec![bytes(0, b"b")], true),
        "what came since waits in the mailbox"
    );
    assert_eq!(t.pass(1), (vec![bytes(0, b"c")], false));
}

#[test]
fn a_slow_reader_is_congested_until_it_has_caught_up() {
    let mut t = Threads::met(2);
    t.all[0].0.congest_at(4);
    assert!(!t.send(0, 1, b"abc"));
    assert!(t.send(0, 1, b"de"));
    assert!(t.send(0, 1, b"f"), "small answers still leave");
    t.flush(0);
    assert_eq!(t.pass(0).0, Vec::new());
    t.pass(1);
    assert_eq!(t.pass(0).0, [Seen::Drained(1)]);
    assert!(!t.send(0, 1, b"abc"));
}

#[test]
fn bytes_for_a_former_member_are_lost_and_the_threads_meet_again() {
    let mut t = Threads::met(2);
    t.send(0, 1, b"for the former");
    t.flush(0);
    t.all[1].0.restart(LATER);
    t.send(0, 1, b"too late");
    t.flush(0);
    assert_eq!(
        t.pass(1).0,
        Vec::new(),
        "the other is who it was: no line yet"
    );
    assert!(!t.send(1, 0, b"too early"));
    assert_eq!(t.pass(0).0, Vec::new());
    t.all[0].0.restart(LATER);
    assert_eq!(t.pass(0).0, [Seen::Up(1)]);
    assert_eq!(t.pass(1).0, [Seen::Up(0)]);
    t.send(1, 0, b"hello");
    t.flush(1);
    assert_eq!(t.pass(0).0, [bytes(1, b"hello")]);
}

#[test]
fn a_line_on_which_nonsense_came_begins_anew_at_both_ends() {
    let mut t = Threads::met(2);
    t.send(1, 0, b"lost with the line");
    t.send(0, 1, b"before");
    t.send(0, 1, b"\0");
    t.send(0, 1, b"after");
    t.flush(0);
    t.flush(1);
    assert_eq!(t.pass(1).0, [bytes(0, b"before"), Seen::Down(0)]);
    assert_eq!(t.pass(0).0, [Seen::Down(1), Seen::Up(1)]);
    assert_eq!(t.pass(1).0, [Seen::Up(0)]);
    t.send(0, 1, b"again");
    t.flush(0);
    assert_eq!(t.pass(1).0, [bytes(0, b"again")]);
}

#[test]
fn a_drained_notice_is_not_lost_where_the_line_begins_anew() {
    let mut t = Threads::met(2);
    t.all[0].0.congest_at(1);
    assert!(t.send(0, 1, b"\0"));
    t.flush(0);
    assert_eq!(t.pass(1).0, [Seen::Down(0)]);
    assert_eq!(
        t.pass(0).0,
        [Seen::Down(1), Seen::Up(1)],
        "a connection begins without congestion"
    );
    t.all[0].0.congest_at(100);
    t.pass(1);
    assert!(!t.send(0, 1, b"fine"));
}
