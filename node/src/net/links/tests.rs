use super::*;
use bytes::Buf;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

const SECRET: &[u8] = b"a secret of the tests";
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq)]
enum Seen {
    Connected(MemberId),
    Disconnected(MemberId),
    Frame(MemberId, Lane, Vec<u8>),
    Drained(MemberId),
}

/// Frames are a length and bytes; a length of `u32::MAX` is malformed.
struct Recorder {
    seen: mpsc::UnboundedSender<Seen>,
}

impl LinkHandler for Recorder {
    fn connected(&self, peer: MemberId) {
        let _ = self.seen.send(Seen::Connected(peer));
    }

    fn disconnected(&self, peer: MemberId) {
        let _ = self.seen.send(Seen::Disconnected(peer));
    }

    fn received(&self, peer: MemberId, lane: Lane, bytes: &mut BytesMut) -> Result<bool, Malformed> {
        while let Some(head) = bytes.first_chunk::<4>() {
            let length = u32::from_le_bytes(*head);
            if length == u32::MAX {
                return Err(Malformed("a length that nobody sends"));
            }
            if bytes.len() < 4 + length as usize {
                break;
            }
            bytes.advance(4);
            let _ = self.seen.send(Seen::Frame(peer, lane, bytes.split_to(length as usize).to_vec()));
        }
        Ok(false)
    }

    fn drained(&self, peer: MemberId) {
        let _ = self.seen.send(Seen::Drained(peer));
    }
}

struct Node {
    id: MemberId,
    name: String,
    links: Rc<Links>,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Node {
    fn start(id: u64, secret: &[u8]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = format!("node {id}");
        let identity = Arc::new(Identity::from_secret(secret, &name).unwrap());
        let (sender, seen) = mpsc::unbounded_channel();
        let links = Links::start(socket, identity, MemberId(id), Rc::new(Recorder { seen: sender })).unwrap();
        Self { id: MemberId(id), name, links, seen }
    }

    fn entry(&self) -> (MemberId, Arc<str>, SocketAddr) {
        (self.id, self.name.as_str().into(), self.links.local_addr().unwrap())
    }

    async fn dial(&self, id: MemberId, peer: &Self) -> Result<(Connection, Lanes), Failure> {
        let (_, name, address) = peer.entry();
        self.links.dial(self.id, id, &Peer { address, name, void: Rc::default() }).await
    }

    fn send(&self, to: MemberId, lane: Lane, bytes: &[u8]) {
        let mut frame = BytesMut::from(&(bytes.len() as u32).to_le_bytes()[..]);
        frame.extend_from_slice(bytes);
        self.links.send(to, lane, frame);
    }

    async fn next(&mut self) -> Seen {
        tokio::time::timeout(PATIENCE, self.seen.recv()).await.expect("in time").expect("the handler lives")
    }

    async fn expect(&mut self, seen: Seen) {
        assert_eq!(self.next().await, seen);
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

async fn pair() -> (Node, Node) {
    let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
    a.links.set_peers(&[a.entry(), b.entry()]);
    b.links.set_peers(&[a.entry(), b.entry()]);
    a.expect(Seen::Connected(b.id)).await;
    b.expect(Seen::Connected(a.id)).await;
    (a, b)
}

#[test]
fn frames_arrive_in_order_both_ways() {
    run(async {
        let (mut a, mut b) = pair().await;
        for i in 0..1000u32 {
            a.send(b.id, Lane::Calls, &i.to_le_bytes());
            b.send(a.id, Lane::Calls, &(!i).to_le_bytes());
            if i % 100 == 0 {
                yield_now().await;
            }
        }
        for i in 0..1000u32 {
            b.expect(Seen::Frame(a.id, Lane::Calls, i.to_le_bytes().to_vec())).await;
            a.expect(Seen::Frame(b.id, Lane::Calls, (!i).to_le_bytes().to_vec())).await;
        }
        a.links.close().await;
        b.links.close().await;
    });
}

#[test]
fn calls_pass_bulk() {
    run(async {
        let (a, mut b) = pair().await;
        let bulk = vec![7; 30 << 20];
        a.send(b.id, Lane::Bulk, &bulk);
        a.send(b.id, Lane::Calls, b"small");
        b.expect(Seen::Frame(a.id, Lane::Calls, b"small".to_vec())).await;
        b.expect(Seen::Frame(a.id, Lane::Bulk, bulk)).await;
    });
}

#[test]
fn what_ends_is_dialled_again_and_begins_anew() {
    run(async {
        let (mut a, mut b) = pair().await;
        // Half a frame, which must not be glued to what comes later.
        a.links.send(b.id, Lane::Calls, BytesMut::from(&[9, 0, 0, 0, 1][..]));
        b.send(a.id, Lane::Calls, b"x");
        a.expect(Seen::Frame(b.id, Lane::Calls, b"x".to_vec())).await;
        Close::Done.on(&b.links.up.borrow()[&a.id].connection.clone(), "test");
        a.expect(Seen::Disconnected(b.id)).await;
        b.expect(Seen::Disconnected(a.id)).await;
        a.expect(Seen::Connected(b.id)).await;
        b.expect(Seen::Connected(a.id)).await;
        a.send(b.id, Lane::Calls, b"whole");
        b.expect(Seen::Frame(a.id, Lane::Calls, b"whole".to_vec())).await;
    });
}

#[test]
fn malformed_bytes_close_the_connection() {
    run(async {
        let (mut a, mut b) = pair().await;
        a.links.send(b.id, Lane::Calls, BytesMut::from(&u32::MAX.to_le_bytes()[..]));
        b.expect(Seen::Disconnected(a.id)).await;
        a.expect(Seen::Disconnected(b.id)).await;
        // The same member may try again; it is not banned.
        a.expect(Seen::Connected(b.id)).await;
    });
}

#[test]
fn a_peer_that_takes_nothing_is_disconnected() {
    run(async {
        let (mut a, b) = pair().await;
        for _ in 0..33 {
            a.send(b.id, Lane::Bulk, &vec![0; 8 << 20]);
        }
        a.expect(Seen::Disconnected(b.id)).await;
    });
}

/// 64 MiB that waited closed the connection, however fast the peer took them.
#[test]
fn a_congested_peer_is_named_and_its_relief_is_told() {
    run(async {
        let (mut a, mut b) = pair().await;
        let large = vec![7; CONGESTED_BYTES];
        assert!(!a.links.send(b.id, Lane::Bulk, BytesMut::from(&8_u32.to_le_bytes()[..])), "only calls are congested");
        let mut frame = BytesMut::from(&(large.len() as u32).to_le_bytes()[..]);
        frame.extend_from_slice(&large);
        assert!(a.links.send(b.id, Lane::Calls, frame));
        a.expect(Seen::Drained(b.id)).await;
        b.expect(Seen::Frame(a.id, Lane::Calls, large)).await;
        assert!(!a.links.send(b.id, Lane::Calls, BytesMut::from(&0_u32.to_le_bytes()[..])));
    });
}

#[test]
fn only_peers_are_let_in() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        a.links.set_peers(&[b.entry()]);
        // b does not know a, and refuses it until it does.
        let failure = a.dial(b.id, &b).await.err().unwrap();
        assert_eq!(failure, Failure::Stranger);
        assert!(a.seen.try_recv().is_err() && b.seen.try_recv().is_err());
        b.links.set_peers(&[a.entry()]);
        b.expect(Seen::Connected(a.id)).await;
        a.expect(Seen::Connected(b.id)).await;
        // Whoever is no peer any more is disconnected.
        b.links.set_peers(&[]);
        b.expect(Seen::Disconnected(a.id)).await;
        a.expect(Seen::Disconnected(b.id)).await;
        assert!(!b.links.is_connected(a.id));
    });
}

#[test]
fn a_member_that_the_table_calls_otherwise_is_refused_on_both_sides() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        let renamed = |(id, _, address): (MemberId, Arc<str>, SocketAddr)| (id, Arc::from("somebody else"), address);
        b.links.set_peers(&[renamed(a.entry())]);
        let failure = a.dial(b.id, &b).await.err().unwrap();
        assert!(failure.to_string().contains("is called \"somebody else\""), "{failure}");
        b.links.set_peers(&[a.entry()]);
        let (id, name, address) = renamed(b.entry());
        let failure = a.links.dial(a.id, id, &Peer { address, name, void: Rc::default() }).await.err().unwrap();
        assert!(failure.to_string().contains("is called \"somebody else\""), "{failure}");
        assert!(a.seen.try_recv().is_err());
        assert!(!matches!(b.seen.try_recv(), Ok(Seen::Frame(..))));
    });
}

#[test]
fn another_secret_is_refused() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, b"another secret!!!"));
        a.links.set_peers(&[b.entry()]);
        b.links.set_peers(&[a.entry()]);
        let failure = a.dial(b.id, &b).await.err().unwrap();
        assert_eq!(failure, Failure::OtherSecret);
        assert!(a.seen.try_recv().is_err() && b.seen.try_recv().is_err());
    });
}

#[test]
fn another_process_at_the_address_is_not_taken_for_the_peer() {
    run(async {
        let (a, b) = (Node::start(1, SECRET), Node::start(3, SECRET));
        b.links.set_peers(&[a.entry()]);
        let failure = a.dial(MemberId(2), &b).await.err().unwrap();
        assert!(matches!(&failure, Failure::Unreachable(why) if why.contains("another process answers there")), "{failure}");
    });
}

#[test]
fn a_new_incarnation_connects_anew() {
    run(async {
        let (mut a, mut b) = pair().await;
        b.links.reset(MemberId(5));
        b.id = MemberId(5);
        a.expect(Seen::Disconnected(MemberId(2))).await;
        b.links.set_peers(&[a.entry()]);
        a.links.set_peers(&[b.entry()]);
        a.expect(Seen::Connected(b.id)).await;
        b.expect(Seen::Connected(a.id)).await;
        a.send(b.id, Lane::Calls, b"hello");
        b.expect(Seen::Frame(a.id, Lane::Calls, b"hello".to_vec())).await;
    });
}

#[test]
fn garbage_disturbs_nobody() {
    run(async {
        let (a, mut b) = pair().await;
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut state = 1u64;
        for length in (0..1200).step_by(3) {
            let garbage: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            stranger.send_to(&garbage, b.entry().2).unwrap();
        }
        a.send(b.id, Lane::Calls, b"still here");
        b.expect(Seen::Frame(a.id, Lane::Calls, b"still here".to_vec())).await;
    });
}
