use super::super::identity::secret::{SecretRole, Secrets};
use super::*;
use crate::testkit::{Plane, Relay};
use bytes::Buf;
use doyen_gossip::SigningSeed;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::os::fd::AsRawFd;

const SECRET: &[u8] = b"a secret of the tests";
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq)]
enum Seen {
    Connected(MemberId),
    Disconnected(MemberId),
    Frame(MemberId, Lane, Vec<u8>),
    Drained(MemberId),
    Datagram(MemberId, Vec<u8>),
}

/// Frames are a length and bytes; a length of `u32::MAX` is malformed.
#[derive(Default)]
struct Recorder(VecDeque<Seen>, BTreeMap<MemberId, u16>);

impl LinkHandler for Recorder {
    fn connected(&mut self, peer: MemberId, version: u16) {
        self.1.insert(peer, version);
        self.0.push_back(Seen::Connected(peer));
    }

    fn disconnected(&mut self, peer: MemberId) {
        self.0.push_back(Seen::Disconnected(peer));
    }

    fn received(
        &mut self,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
    ) -> Result<bool, Malformed> {
        while let Some(head) = bytes.first_chunk::<4>() {
            let length = u32::from_le_bytes(*head);
            if length == u32::MAX {
                return Err(Malformed("a length that no peer sends"));
            }
            if bytes.len() < 4 + length as usize {
                break;
            }
            bytes.advance(4);
            self.0.push_back(Seen::Frame(
                peer,
                lane,
                bytes.split_to(length as usize).to_vec(),
            ));
        }
        Ok(false)
    }

    fn drained(&mut self, peer: MemberId) {
        self.0.push_back(Seen::Drained(peer));
    }

    fn datagram(&mut self, peer: MemberId, bytes: &[u8]) -> Result<(), Malformed> {
        if bytes.is_empty() {
            return Err(Malformed("a datagram that no peer sends"));
        }
        self.0.push_back(Seen::Datagram(peer, bytes.to_vec()));
        Ok(())
    }
}

struct Node {
    id: MemberId,
    name: String,
    links: Links,
    seen: Recorder,
    more: bool,
}

impl Node {
    fn new(id: u64, secret: &[u8]) -> Self {
        Self::on("127.0.0.1:0", id, secret)
    }

    fn on(listen: &str, id: u64, secret: &[u8]) -> Self {
        let name = format!("node {id}");
        let identity = if MemberId(id).is_client() {
            Identity::of_client(secret, &name)
        } else {
            Identity::from_secret(secret, &name)
        };
        Self::with(listen, id, Arc::new(identity.unwrap()))
    }

    fn with(listen: &str, id: u64, identity: Arc<Identity>) -> Self {
        let socket = UdpSocket::bind(listen).unwrap();
        let name = identity.name().to_owned();
        Self {
            id: MemberId(id),
            name,
            links: Links::new(socket, identity, MemberId(id)).unwrap(),
            seen: Recorder::default(),
            more: true,
        }
    }

    fn entry(&self) -> (MemberId, Arc<str>, SocketAddr) {
        (
            self.id,
            self.name.as_str().into(),
            self.links.socket().local_addr().unwrap(),
        )
    }

    fn send(&mut self, to: MemberId, lane: Lane, bytes: &[u8]) {
        let mut frame = BytesMut::from(&(bytes.len() as u32).to_le_bytes()[..]);
        frame.extend_from_slice(bytes);
        self.links.send(to, lane, frame.freeze());
    }
}

#[test]
fn a_connection_has_the_highest_version_that_both_ends_speak() {
    for (a, b) in [LEVELS, (LEVELS.1, LEVELS.0), (LEVELS.1, LEVELS.1)] {
        let mut nodes = [Node::new(1, SECRET), Node::new(2, SECRET)];
        nodes[A].links.set_level_max(a);
        nodes[B].links.set_level_max(b);
        let entries = [nodes[A].entry(), nodes[B].entry()];
        let mut pair = Pair::among(nodes.into());
        for node in &mut pair.nodes {
            node.links.set_peers(&entries);
        }
        pair.expect(A, Seen::Connected(MemberId(2)));
        pair.expect(B, Seen::Connected(MemberId(1)));
        assert_eq!(pair.nodes[A].seen.1[&MemberId(2)], a.min(b));
        assert_eq!(pair.nodes[B].seen.1[&MemberId(1)], a.min(b));
    }
}

/// Two or more nodes, and the loop that they share.
struct Pair {
    nodes: Vec<Node>,
    poll: Poll,
    events: Events,
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

impl Pair {
    fn of(a: Node, b: Node) -> Self {
        Self::among(vec![a, b])
    }

    fn among(nodes: Vec<Node>) -> Self {
        let poll = Poll::new().unwrap();
        for (at, node) in nodes.iter().enumerate() {
            let fd = node.links.socket().as_raw_fd();
            poll.registry()
                .register(
                    &mut SourceFd(&fd),
                    Token(at),
                    Interest::READABLE | Interest::WRITABLE,
                )
                .unwrap();
        }
        Self {
            nodes,
            poll,
            events: Events::with_capacity(8),
        }
    }

    /// Two connected nodes.
    fn up() -> Self {
        let mut pair = Self::of(Node::new(1, SECRET), Node::new(2, SECRET));
        let entries = [pair.nodes[A].entry(), pair.nodes[B].entry()];
        pair.nodes
            .iter_mut()
            .for_each(|n| n.links.set_peers(&entries));
        pair.expect(A, Seen::Connected(MemberId(2)));
        pair.expect(B, Seen::Connected(MemberId(1)));
        pair
    }

    /// One pass of all nodes.
    fn pass(&mut self) {
        let now = Instant::now();
        let due = self.nodes.iter().filter_map(|n| n.links.timeout()).min();
        let most = if self.nodes.iter().any(|n| n.more) {
            Duration::ZERO
        } else {
            PATIENCE
        };
        let timeout = due.map_or(most, |due| due.saturating_duration_since(now).min(most));
        self.poll.poll(&mut self.events, Some(timeout)).unwrap();
        for event in &self.events {
            self.nodes[event.token().0].links.ready();
        }
        for node in &mut self.nodes {
            let now = Instant::now();
            node.more = node.links.work(now, &mut node.seen).unwrap();
            node.more |= node.links.transmit(now);
        }
    }

    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        // The test may have changed the nodes, so let all of them send.
        self.nodes.iter_mut().for_each(|n| n.more = true);
        while Instant::now() < end {
            if let Some(found) = done(self) {
                return found;
            }
            self.pass();
        }
        panic!("not in time: {what}");
    }

    fn next(&mut self, at: usize) -> Seen {
        self.until("something is seen", |pair| {
            pair.nodes[at].seen.0.pop_front()
        })
    }

    fn expect(&mut self, at: usize, seen: Seen) {
        assert_eq!(self.next(at), seen);
    }

    /// Why a connection of this node did not open.
    fn failure(&mut self, at: usize) -> DialFailure {
        self.nodes[at].links.failures.clear();
        self.until("a connection fails", |pair| {
            pair.nodes[at].links.failures.pop()
        })
    }

    fn seen_nothing(&self) -> bool {
        self.nodes.iter().all(|n| n.seen.0.is_empty())
    }
}

/// The socket on `[::]` named the peer at `127.0.0.1` as `::ffff:127.0.0.1`, and every datagram was
/// dropped.
#[test]
fn a_node_on_both_families_is_connected_with_nodes_of_either() {
    for (listens, advertised) in [
        (["[::]:0", "[::]:0"], ["127.0.0.1", "127.0.0.1"]),
        (["[::]:0", "127.0.0.1:0"], ["127.0.0.1", "127.0.0.1"]),
        (["127.0.0.1:0", "[::]:0"], ["127.0.0.1", "127.0.0.1"]),
        (["[::]:0", "[::1]:0"], ["::1", "::1"]),
        (["[::]:0", "[::]:0"], ["::1", "127.0.0.1"]),
    ] {
        let mut pair = Pair::of(
            Node::on(listens[A], 1, SECRET),
            Node::on(listens[B], 2, SECRET),
        );
        let entries = [A, B].map(|at| {
            let (id, name, mut address) = pair.nodes[at].entry();
            address.set_ip(advertised[at].parse().unwrap());
            (id, name, address)
        });
        pair.nodes
            .iter_mut()
            .for_each(|n| n.links.set_peers(&entries));
        pair.expect(A, Seen::Connected(MemberId(2)));
        pair.expect(B, Seen::Connected(MemberId(1)));
        let large = vec![7; 1 << 20];
        for (from, to) in [(A, B), (B, A)] {
            let (sender, receiver) = (pair.nodes[from].id, pair.nodes[to].id);
            pair.nodes[from].send(receiver, Lane::Bulk, &large);
            pair.expect(to, Seen::Frame(sender, Lane::Bulk, large.clone()));
        }
    }
}

#[test]
fn a_node_says_which_peers_are_out_of_the_reach_of_its_socket() {
    let mut pair = Pair::of(Node::new(1, SECRET), Node::on("[::1]:0", 2, SECRET));
    let entries = [pair.nodes[A].entry(), pair.nodes[B].entry()];
    pair.nodes[A].links.set_peers(&entries);
    let failure = pair.failure(A).to_string();
    assert!(
        failure.contains("has only an IPv4 socket") && failure.contains("--listen [::]"),
        "{failure}"
    );
}

/// Three nodes behind relays, which may cut the paths between them. All of them are connected,
/// except for paths that are cut from the beginning.
struct Triangle {
    relay: Relay,
    all: Pair,
}

/// Ids like those of members: they leave room for the numbers of threads.
const IDS: [MemberId; 3] = [MemberId(16), MemberId(32), MemberId(48)];

impl Triangle {
    fn new(cut: &[(usize, usize)]) -> Self {
        let relay = Relay::start(7).unwrap();
        let mut all = Pair::among(IDS.map(|id| Node::new(id.0, SECRET)).into());
        let fronts = all.nodes.iter().enumerate().map(|(at, node)| {
            let (id, name, behind) = node.entry();
            (
                id,
                name,
                relay
                    .open(at, Plane::Data, "127.0.0.1:0".parse().unwrap(), behind)
                    .unwrap(),
            )
        });
        let fronts: Vec<_> = fronts.collect();
        cut.iter()
            .for_each(|(from, to)| relay.cut(*from, *to, &[Plane::Data]));
        all.nodes
            .iter_mut()
            .for_each(|n| n.links.set_peers(&fronts));
        let connected =
            |pair: &mut Pair| pair.nodes.iter().all(|n| n.seen.0.len() == 2).then_some(());
        all.until("all are connected with all", connected);
        for node in &mut all.nodes {
            let both = IDS.iter().filter(|id| **id != node.id);
            both.for_each(|id| {
                assert!(
                    node.seen.0.contains(&Seen::Connected(*id)),
                    "{:?}",
                    node.seen.0
                )
            });
            node.seen.0.clear();
        }
        Self { relay, all }
    }

    /// A and B send each other bytes, which arrive in order, and no connection ends.
    fn converse(&mut self, about: u8) {
        for part in 0..100_u8 {
            self.all.nodes[A].send(IDS[B], Lane::Calls, &[about, part]);
            self.all.nodes[B].send(IDS[A], Lane::Calls, &[about, part]);
            self.all.pass();
        }
        let large = vec![about; 1 << 20];
        self.all.nodes[A].send(IDS[B], Lane::Bulk, &large);
        for part in 0..100 {
            self.all
                .expect(A, Seen::Frame(IDS[B], Lane::Calls, vec![about, part]));
            self.all
                .expect(B, Seen::Frame(IDS[A], Lane::Calls, vec![about, part]));
        }
        self.all.expect(B, Seen::Frame(IDS[A], Lane::Bulk, large));
        assert!(self.all.seen_nothing());
    }

    /// Soon no datagram is carried, unless the machine itself pauses now and then.
    fn converse_straight(&mut self) {
        let carried = |all: &Pair| all.nodes.iter().map(|n| n.links.carried()).sum::<u64>();
        let (end, mut about) = (Instant::now() + PATIENCE, 0_u8);
        loop {
            let before = carried(&self.all);
            self.converse(about);
            if carried(&self.all) == before {
                return;
            }
            assert!(Instant::now() < end, "something goes around still");
            about = about.wrapping_add(1);
        }
    }
}

/// Bytes stalled for as long as the cut lasted, and calls ended after 5 s.
#[test]
fn two_members_that_are_cut_from_each_other_go_on_by_a_third() {
    for cuts in [&[(A, B), (B, A)][..], &[(A, B)], &[(B, A)]] {
        let mut triangle = Triangle::new(&[]);
        triangle.converse_straight();
        cuts.iter()
            .for_each(|(from, to)| triangle.relay.cut(*from, *to, &[Plane::Data]));
        triangle.converse(2);
        triangle.converse(3);
        assert!(triangle.all.nodes[C].links.carried() > 0);
        triangle.relay.heal();
        triangle.converse_straight();
    }
}

#[test]
fn members_that_are_cut_from_the_beginning_meet_by_a_third() {
    for cuts in [&[(A, B), (B, A)][..], &[(A, B)], &[(B, A)]] {
        let mut triangle = Triangle::new(cuts);
        triangle.converse(1);
        assert!(triangle.all.nodes[C].links.carried() > 0);
        triangle.relay.heal();
        triangle.converse_straight();
    }
}

#[test]
fn malformed_carried_bytes_close_the_connection_and_undeliverable_ones_are_lost() {
    let mut triangle = Triangle::new(&[]);
    let stranger = Carried {
        comes: false,
        deaf: true,
        end: MemberId(160),
        datagram: Bytes::from_static(b"hello"),
    };
    let client = Carried {
        end: MemberId::of_client(1),
        ..stranger.clone()
    };
    let garbage = Carried {
        end: IDS[B],
        ..stranger.clone()
    };
    let came = Carried {
        comes: true,
        end: IDS[C],
        ..stranger.clone()
    };
    let of_stranger = Carried {
        comes: true,
        ..stranger.clone()
    };
    for carried in [stranger, client, garbage, came, of_stranger] {
        triangle.all.nodes[A].links.carry(IDS[C], &carried);
    }
    triangle.converse(1);
    triangle
        .all
        .until("what is for a peer is passed on", |pair| {
            (pair.nodes[C].links.carried() > 0).then_some(())
        });
    let Links { up, driver, .. } = &mut triangle.all.nodes[A].links;
    let link = up.get_mut(&IDS[C]).unwrap();
    link.carried.push(
        driver.get(link.handle).unwrap(),
        Bytes::from_static(&[0xff; 64]),
    );
    driver.touch(link.handle);
    triangle.all.expect(A, Seen::Disconnected(IDS[C]));
    triangle.all.expect(A, Seen::Connected(IDS[C]));
}

fn id(id: u64) -> MemberId {
    MemberId(id)
}

fn calls(from: u64, bytes: &[u8]) -> Seen {
    Seen::Frame(MemberId(from), Lane::Calls, bytes.to_vec())
}

#[test]
fn frames_arrive_in_order_both_ways() {
    let mut pair = Pair::up();
    for i in 0..1000u32 {
        pair.nodes[A].send(id(2), Lane::Calls, &i.to_le_bytes());
        pair.nodes[B].send(id(1), Lane::Calls, &(!i).to_le_bytes());
        if i % 100 == 0 {
            pair.nodes.iter_mut().for_each(|n| n.more = true);
            pair.pass();
        }
    }
    for i in 0..1000u32 {
        pair.expect(B, calls(1, &i.to_le_bytes()));
        pair.expect(A, calls(2, &(!i).to_le_bytes()));
    }
}

#[test]
fn calls_pass_bulk() {
    calls_pass(&mut Pair::up());
}

fn calls_pass(pair: &mut Pair) {
    let bulk = vec![7; 30 << 20];
    pair.nodes[A].send(id(2), Lane::Bulk, &bulk);
    pair.nodes[A].send(id(2), Lane::Calls, b"small");
    pair.expect(B, calls(1, b"small"));
    pair.expect(B, Seen::Frame(id(1), Lane::Bulk, bulk));
}

/// Regression: while calls crowded a link, no part of a snapshot came.
#[test]
fn bulk_has_half_of_a_crowded_connection_while_the_lanes_share_it() {
    for before in [true, false] {
        let mut nodes = [Node::new(1, SECRET), Node::new(2, SECRET)];
        if before {
            nodes.iter_mut().for_each(|n| n.links.share(true));
        }
        let [a, b] = nodes;
        let mut pair = Pair::of(a, b);
        let entries = [pair.nodes[A].entry(), pair.nodes[B].entry()];
        for node in &mut pair.nodes {
            node.links.set_peers(&entries);
        }
        pair.expect(A, Seen::Connected(id(2)));
        pair.expect(B, Seen::Connected(id(1)));
        const FRAMES: usize = 40;
        let frame = vec![7; 256 << 10];
        for lane in [Lane::Bulk, Lane::Calls] {
            (0..FRAMES).for_each(|_| pair.nodes[A].send(id(2), lane, &frame));
        }
        // What waits on both lanes is shared from now on.
        pair.nodes[A].links.share(true);
        let mut came: [usize; 2] = [0; 2];
        let mut calls_at_half = None;
        while came != [FRAMES; 2] {
            let lane = pair.until("all arrives", |pair| {
                match pair.nodes[B].seen.0.pop_front() {
                    Some(Seen::Frame(_, lane, _)) => Some(lane),
                    _ => None,
                }
            });
            came[usize::from(lane == Lane::Bulk)] += 1;
            if came[1] == FRAMES / 2 {
                calls_at_half.get_or_insert(came[0]);
            }
        }
        let calls = calls_at_half.expect("half of it came");
        assert!(
            (FRAMES / 4..FRAMES * 3 / 4).contains(&calls),
            "{calls} of {FRAMES} calls before half of the bulk ({before})"
        );
        // Then calls pass bulk again.
        pair.nodes[A].links.share(false);
        calls_pass(&mut pair);
    }
}

#[test]
fn datagrams_pass_calls_and_a_malformed_one_closes_the_connection() {
    let mut pair = Pair::up();
    let large = vec![7; 30 << 20];
    pair.nodes[A].send(id(2), Lane::Calls, &large);
    let datagram = Bytes::from(vec![8; 1_000]);
    for _ in 0..3 {
        pair.nodes[A].links.send_datagram(id(2), datagram.clone());
    }
    for _ in 0..3 {
        pair.expect(B, Seen::Datagram(id(1), vec![8; 1_000]));
    }
    pair.expect(B, calls(1, &large));
    pair.nodes[A].links.send_datagram(id(2), Bytes::new());
    pair.expect(B, Seen::Disconnected(id(1)));
    pair.expect(A, Seen::Drained(id(2)));
    pair.expect(A, Seen::Disconnected(id(2)));
}

#[test]
fn an_ended_connection_is_dialled_again_and_begins_anew() {
    let mut pair = Pair::up();
    // Half a frame, which must not be glued to what comes later.
    pair.nodes[A]
        .links
        .send(id(2), Lane::Calls, Bytes::from_static(&[9, 0, 0, 0, 1]));
    pair.nodes[B].send(id(1), Lane::Calls, b"x");
    pair.expect(A, calls(2, b"x"));
    let handle = pair.nodes[B].links.up[&id(1)].handle;
    pair.nodes[B]
        .links
        .close(Instant::now(), handle, Close::Done, "test");
    pair.expect(A, Seen::Disconnected(id(2)));
    pair.expect(B, Seen::Disconnected(id(1)));
    pair.expect(A, Seen::Connected(id(2)));
    pair.expect(B, Seen::Connected(id(1)));
    pair.nodes[A].send(id(2), Lane::Calls, b"whole");
    pair.expect(B, calls(1, b"whole"));
}

#[test]
fn malformed_bytes_close_the_connection() {
    let mut pair = Pair::up();
    pair.nodes[A].links.send(
        id(2),
        Lane::Calls,
        Bytes::copy_from_slice(&u32::MAX.to_le_bytes()),
    );
    pair.expect(B, Seen::Disconnected(id(1)));
    pair.expect(A, Seen::Disconnected(id(2)));
    // The same member may try again; it is not banned.
    pair.expect(A, Seen::Connected(id(2)));
}

#[test]
fn silence_in_the_middle_of_a_frame_holds_up_nothing_else() {
    let mut pair = Pair::up();
    // Frames that begin and never end: part of the length, and part of the bytes.
    for begun in [&[9, 0][..], &[0, 0, 1]] {
        pair.nodes[A]
            .links
            .send(id(2), Lane::Bulk, Bytes::copy_from_slice(begun));
        for i in 0..200u32 {
            pair.nodes[A].send(id(2), Lane::Calls, &i.to_le_bytes());
            pair.expect(B, calls(1, &i.to_le_bytes()));
            pair.nodes[B].send(id(1), Lane::Bulk, &i.to_le_bytes());
            pair.expect(A, Seen::Frame(id(2), Lane::Bulk, i.to_le_bytes().to_vec()));
        }
    }
}

#[test]
fn a_peer_that_takes_nothing_is_disconnected() {
    let mut pair = Pair::up();
    for _ in 0..40 {
        pair.nodes[A].send(id(2), Lane::Bulk, &vec![0; 8 << 20]);
    }
    pair.expect(A, Seen::Disconnected(id(2)));
}

/// A queue of 64 MiB closed the connection, however fast the peer read.
#[test]
fn a_congested_peer_is_named_and_its_relief_is_told() {
    let mut pair = Pair::up();
    // More than the stream takes at once: the peer grants it 16 MiB.
    let large = vec![7; (16 << 20) + CONGESTED_BYTES];
    assert!(
        !pair.nodes[A]
            .links
            .send(id(2), Lane::Bulk, Bytes::from_static(&[8, 0, 0, 0])),
        "only calls are congested"
    );
    let mut frame = BytesMut::from(&(large.len() as u32).to_le_bytes()[..]);
    frame.extend_from_slice(&large);
    assert!(pair.nodes[A].links.send(id(2), Lane::Calls, frame.freeze()));
    pair.expect(A, Seen::Drained(id(2)));
    pair.expect(B, calls(1, &large));
    assert!(
        !pair.nodes[A]
            .links
            .send(id(2), Lane::Calls, Bytes::from_static(&[0; 4]))
    );
}

#[test]
fn only_peers_are_let_in() {
    let mut pair = Pair::of(Node::new(1, SECRET), Node::new(2, SECRET));
    let (a, b) = (pair.nodes[A].entry(), pair.nodes[B].entry());
    pair.nodes[A].links.set_peers(&[b]);
    // b does not know a, and refuses it until it does.
    assert_eq!(pair.failure(A), DialFailure::Stranger);
    assert!(pair.seen_nothing());
    pair.nodes[B].links.set_peers(&[a]);
    pair.expect(B, Seen::Connected(id(1)));
    pair.expect(A, Seen::Connected(id(2)));
    // A member that is no peer any more is disconnected.
    pair.nodes[B].links.set_peers(&[]);
    pair.expect(B, Seen::Disconnected(id(1)));
    pair.expect(A, Seen::Disconnected(id(2)));
    assert!(!pair.nodes[B].links.is_connected(id(1)));
}

#[test]
fn a_member_that_the_table_calls_otherwise_is_refused_on_both_sides() {
    let mut pair = Pair::of(Node::new(1, SECRET), Node::new(2, SECRET));
    let renamed = |(id, _, address): (MemberId, Arc<str>, SocketAddr)| {
        (id, Arc::from("another node"), address)
    };
    let (a, b) = (pair.nodes[A].entry(), pair.nodes[B].entry());
    pair.nodes[A].links.set_peers(std::slice::from_ref(&b));
    pair.nodes[B].links.set_peers(&[renamed(a.clone())]);
    let failure = pair.failure(A);
    assert!(
        failure.to_string().contains("is called \"another node\""),
        "{failure}"
    );
    pair.nodes[A].links.set_peers(&[renamed(b)]);
    pair.nodes[B].links.set_peers(&[a]);
    let failure = pair.failure(A);
    assert!(
        failure.to_string().contains("is called \"another node\""),
        "{failure}"
    );
    assert!(pair.nodes[A].seen.0.is_empty());
    assert!(
        !pair.nodes[B]
            .seen
            .0
            .iter()
            .any(|s| matches!(s, Seen::Frame(..)))
    );
}

/// The key of a member may stand in the table before the process is heard, or after it.
#[test]
fn a_process_without_the_key_of_its_member_is_no_peer() {
    let (member, other) = (MemberId(0x10), MemberId(0x20));
    let keyed = |id: MemberId, number| {
        let name = format!("node {}", id.0);
        let identity = Identity::from_secret(SECRET, &name).unwrap();
        identity.set_key(&SigningSeed::of_test(number));
        Node::with("127.0.0.1:0", id.0, Arc::new(identity))
    };
    let keys = || BTreeMap::from([(member, SigningSeed::of_test(1).vote_key())]);
    for thread in [0, 1] {
        let id = member.thread(thread);
        for (number, before) in [(1, true), (2, true), (1, false), (2, false)] {
            let mut pair = Pair::of(keyed(id, number), keyed(other, 3));
            if before {
                pair.nodes[B].links.identity.set_keys(keys());
            }
            let entries = [pair.nodes[A].entry(), pair.nodes[B].entry()];
            pair.nodes
                .iter_mut()
                .for_each(|n| n.links.set_peers(&entries));
            if before && number != 1 {
                let failure = pair.failure(A).to_string();
                assert!(failure.contains("that member's key"), "{failure}");
                continue;
            }
            pair.expect(A, Seen::Connected(other));
            pair.expect(B, Seen::Connected(id));
            pair.nodes[B].links.identity.set_keys(keys());
            if number != 1 {
                pair.expect(B, Seen::Disconnected(id));
                continue;
            }
            // It stays.
            pair.nodes[A].send(other, Lane::Calls, b"after");
            pair.expect(B, Seen::Frame(id, Lane::Calls, b"after".to_vec()));
        }
    }
}

#[test]
fn another_secret_is_refused() {
    let mut pair = Pair::of(Node::new(1, SECRET), Node::new(2, b"another secret!!!"));
    let (a, b) = (pair.nodes[A].entry(), pair.nodes[B].entry());
    pair.nodes[A].links.set_peers(&[b]);
    pair.nodes[B].links.set_peers(&[a]);
    assert_eq!(pair.failure(A), DialFailure::OtherSecret);
    assert!(pair.seen_nothing());
}

#[test]
fn another_process_at_the_address_is_not_taken_for_the_peer() {
    let mut pair = Pair::of(Node::new(1, SECRET), Node::new(3, SECRET));
    let (a, (_, name, address)) = (pair.nodes[A].entry(), pair.nodes[B].entry());
    pair.nodes[A].links.set_peers(&[(id(2), name, address)]);
    pair.nodes[B].links.set_peers(&[a]);
    let failure = pair.failure(A);
    assert!(
        matches!(
            &failure,
            DialFailure::Unreachable(why) if why.contains("another process answers there")
        ),
        "{failure}"
    );
}

#[test]
fn an_unanswered_dial_ends_and_is_tried_again() {
    let mut pair = Pair::of(Node::new(1, SECRET), Node::new(2, SECRET));
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    pair.nodes[A]
        .links
        .set_peers(&[(id(2), "node 2".into(), silent.local_addr().unwrap())]);
    for _ in 0..2 {
        assert!(matches!(pair.failure(A), DialFailure::Unreachable(_)));
    }
}

#[test]
fn a_new_incarnation_connects_anew() {
    let mut pair = Pair::up();
    pair.nodes[B].links.reset(id(5));
    pair.nodes[B].id = id(5);
    pair.expect(A, Seen::Disconnected(id(2)));
    let (a, b) = (pair.nodes[A].entry(), pair.nodes[B].entry());
    pair.nodes[B].links.set_peers(&[a]);
    pair.nodes[A].links.set_peers(&[b]);
    pair.expect(A, Seen::Connected(id(5)));
    pair.expect(B, Seen::Connected(id(1)));
    pair.nodes[A].send(id(5), Lane::Calls, b"hello");
    pair.expect(B, calls(1, b"hello"));
}

#[test]
fn the_end_is_told() {
    let mut pair = Pair::up();
    pair.nodes[B].links.reset(id(2));
    pair.expect(A, Seen::Disconnected(id(2)));
    pair.until("all has drained", |pair| {
        pair.nodes[B].links.is_idle().then_some(())
    });
}

#[test]
fn garbage_disturbs_no_peer() {
    let mut pair = Pair::up();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut state = 1u64;
    for length in (0..1200).step_by(3) {
        let garbage: Vec<u8> = (0..length)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        stranger.send_to(&garbage, pair.nodes[B].entry().2).unwrap();
    }
    pair.nodes[A].send(id(2), Lane::Calls, b"still here");
    pair.expect(B, calls(1, b"still here"));
}

const CLIENT: u64 = MemberId::of_client(3).0;

/// A node, and a client that has it for a seed.
fn guest(clients_max: Option<usize>, client: Node) -> Pair {
    let mut pair = Pair::of(Node::new(1, SECRET), client);
    pair.nodes[A].links.set_clients_max(clients_max);
    let seed = pair.nodes[A].entry().2;
    pair.nodes[B].links.set_seeds(&[seed]);
    pair
}

#[test]
fn a_client_learns_the_id_of_its_seed_and_keeps_the_connection() {
    let mut pair = guest(Some(1), Node::new(CLIENT, SECRET));
    pair.expect(B, Seen::Connected(id(1)));
    pair.expect(A, Seen::Connected(id(CLIENT)));
    let table = [pair.nodes[A].entry()];
    pair.nodes[B].links.set_peers(&table);
    pair.nodes[B].send(id(1), Lane::Calls, b"asked");
    pair.expect(A, calls(CLIENT, b"asked"));
    pair.nodes[A].send(id(CLIENT), Lane::Bulk, b"answered");
    pair.expect(B, Seen::Frame(id(1), Lane::Bulk, b"answered".to_vec()));
    // Tables change, and do not name clients.
    pair.nodes[A].links.set_peers(&table);
    assert_eq!(pair.nodes[A].links.clients(), 1);
    assert!(pair.seen_nothing() && pair.nodes[B].links.refusals().is_empty());
    let client = id(CLIENT);
    pair.nodes[B].links.reset(client);
    pair.expect(A, Seen::Disconnected(client));
    assert_eq!(pair.nodes[A].links.clients(), 0);
}

#[test]
fn clients_are_let_in_once_there_is_a_table_and_up_to_their_number() {
    let mut pair = guest(None, Node::new(CLIENT, SECRET));
    assert_eq!(pair.failure(A), DialFailure::Stranger);
    pair.nodes[A].links.set_clients_max(Some(0));
    let refused = pair.until("it is refused", |pair| {
        pair.nodes[B]
            .links
            .refusals()
            .pop()
            .filter(|(_, f)| f.is_lasting())
    });
    assert!(
        matches!(&refused.1, DialFailure::Refused(why) if why.contains("--clients-max")),
        "{refused:?}"
    );
    pair.nodes[A].links.set_clients_max(Some(1));
    pair.expect(B, Seen::Connected(id(1)));
}

#[test]
fn no_member_dials_a_client() {
    let mut pair = Pair::of(Node::new(1, SECRET), Node::new(CLIENT, SECRET));
    // A member that names it as a member does not dial it either, because its id is the higher one.
    // So another client does.
    let address = pair.nodes[B].entry().2;
    pair.nodes[A] = Node::new(MemberId::of_client(1).0, SECRET);
    let fd = pair.nodes[A].links.socket().as_raw_fd();
    pair.poll
        .registry()
        .register(
            &mut SourceFd(&fd),
            Token(A),
            Interest::READABLE | Interest::WRITABLE,
        )
        .unwrap();
    pair.nodes[A].links.set_seeds(&[address]);
    assert!(matches!(pair.failure(A), DialFailure::Unreachable(_)));
    assert!(pair.seen_nothing());
}

#[test]
fn a_client_with_another_secret_or_the_certificate_of_a_node_stays_outside() {
    let mut pair = guest(Some(1), Node::new(CLIENT, b"another secret altogether"));
    assert_eq!(pair.failure(B), DialFailure::OtherSecret);
    let mut client = Node::new(CLIENT, SECRET);
    let identity = Arc::new(Identity::from_secret(SECRET, &client.name).unwrap());
    client.links =
        Links::new(UdpSocket::bind("127.0.0.1:0").unwrap(), identity, client.id).unwrap();
    let mut pair = guest(Some(1), client);
    assert!(matches!(pair.failure(A), DialFailure::Hello(why) if why.contains("as a client")));
}

/// With the client's file alone, a process can be a client of nodes. It can be no node, and it
/// cannot answer other clients.
#[test]
fn a_client_s_file_makes_a_client_and_nothing_else() {
    let file = Secrets::of_bytes(SECRET)
        .unwrap()
        .for_role(SecretRole::Client)
        .unwrap();
    let node = |id, name: &str| {
        let identity = Identity::of_secrets(file.clone(), None, SecretRole::Client, name).unwrap();
        Node::with("127.0.0.1:0", id, Arc::new(identity))
    };
    // The control: a client.
    let mut pair = guest(Some(1), node(CLIENT, "node of a client"));
    pair.expect(A, Seen::Connected(MemberId(CLIENT)));

    // A node: member 1 is in the table, and this process says that it is that member.
    let mut pair = Pair::of(node(1, "node 1"), Node::new(2, SECRET));
    let entries = [pair.nodes[A].entry(), pair.nodes[B].entry()];
    for node in &mut pair.nodes {
        node.links.set_peers(&entries);
    }
    assert!(matches!(pair.failure(B), DialFailure::Hello(why) if why.contains("as a member")));

    // A node for another client: its handshake is refused, or its hello has no certificate.
    let victim = node(CLIENT, "victim");
    let mut pair = Pair::of(victim, node(2, "node 2"));
    let address = pair.nodes[B].entry().2;
    pair.nodes[B].links.set_clients_max(Some(1));
    pair.nodes[A].links.set_seeds(&[address]);
    assert_eq!(pair.failure(A), DialFailure::OtherSecret);
    assert!(pair.seen_nothing());
}

/// The line that vouched for a peer goes while data flows.
#[test]
fn a_data_connection_whose_line_goes_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    let other = [SECRET, b" of others"].concat();
    std::fs::write(&path, [SECRET, &other].join(&b"\n"[..])).unwrap();
    let secrets = Secrets::of_bytes(&std::fs::read(&path).unwrap()).unwrap();
    let both = [other.as_slice(), SECRET].join(&b"\n"[..]);
    let both = Secrets::of_bytes(&both).unwrap();
    let of_other = Identity::of_secrets(both, None, SecretRole::Member, "node 3");
    let identity = Identity::of_secrets(secrets, Some(path.clone()), SecretRole::Member, "node 2");
    let identity = Arc::new(identity.unwrap());
    let nodes = vec![
        Node::new(1, SECRET),
        Node::with("127.0.0.1:0", 2, identity.clone()),
        Node::with("127.0.0.1:0", 3, Arc::new(of_other.unwrap())),
    ];
    let entries: Vec<_> = nodes.iter().map(Node::entry).collect();
    let mut pair = Pair::among(nodes);
    pair.nodes[A].links.set_peers(&entries[..2]);
    pair.nodes[B].links.set_peers(&entries);
    pair.nodes[C].links.set_peers(&entries[1..]);
    pair.expect(A, Seen::Connected(MemberId(2)));
    pair.expect(C, Seen::Connected(MemberId(2)));
    std::fs::write(&path, SECRET).unwrap();
    assert!(identity.reload());
    pair.expect(C, Seen::Disconnected(MemberId(2)));
    assert!(
        pair.nodes[B].links.is_connected(MemberId(1)),
        "the other one stays"
    );
    assert!(!pair.nodes[B].links.is_connected(MemberId(3)));
}
