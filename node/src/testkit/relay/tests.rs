//! Tests over real sockets of this machine: what arrives, and from where. Time is not measured.
//! After a datagram that must not arrive, the test sends one that must, and links keep their order
//! unless the test says otherwise.

use super::*;
use std::net::UdpSocket;

/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two nodes that are only sockets, and the relays before them.
struct Pair {
    relay: Relay,
    nodes: [UdpSocket; 2],
    fronts: [SocketAddr; 2],
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket2::SockRef::from(&socket)
        .set_recv_buffer_size(1 << 20)
        .expect("room");
    socket
}

impl Pair {
    fn new() -> Self {
        let relay = Relay::start(7).expect("a thread");
        let nodes = [socket(), socket()];
        let fronts = [0, 1].map(|i| {
            let behind = nodes[i].local_addr().expect("bound");
            relay
                .open(
                    i,
                    Plane::Data,
                    "127.0.0.1:0".parse().expect("an address"),
                    behind,
                )
                .expect("a front")
        });
        Self {
            relay,
            nodes,
            fronts,
        }
    }

    fn send(&self, from: usize, text: &str) {
        self.nodes[from]
            .send_to(text.as_bytes(), self.fronts[1 - from])
            .expect("sent");
    }

    /// The next datagram at a node, and its source.
    fn receive(&self, at: usize) -> (String, SocketAddr) {
        receive(&self.nodes[at])
    }

    fn receive_all(&self, at: usize, count: usize) -> Vec<String> {
        (0..count).map(|_| self.receive(at).0).collect()
    }
}

fn receive(socket: &UdpSocket) -> (String, SocketAddr) {
    let mut buffer = [0; 2000];
    let (length, from) = socket.recv_from(&mut buffer).expect("it arrives");
    (
        String::from_utf8_lossy(&buffer[..length]).into_owned(),
        from,
    )
}

#[test]
fn answers_come_from_the_address_that_was_dialled() {
    let pair = Pair::new();
    pair.send(0, "a question");
    let (text, upstream) = pair.receive(1);
    assert_eq!(text, "a question");
    pair.nodes[1].send_to(b"an answer", upstream).expect("sent");
    assert_eq!(pair.receive(0), ("an answer".into(), pair.fronts[1]));
    pair.send(0, "another one");
    assert_eq!(
        pair.receive(1),
        ("another one".into(), upstream),
        "a sender keeps its address"
    );
}

#[test]
fn a_node_reaches_itself_despite_all_faults() {
    let pair = Pair::new();
    pair.relay.degrade(Faults {
        loss: 1.0,
        ..Faults::NONE
    });
    pair.nodes[0]
        .send_to(b"myself", pair.fronts[0])
        .expect("sent");
    let (text, upstream) = pair.receive(0);
    assert_eq!(text, "myself");
    pair.nodes[0].send_to(b"hello", upstream).expect("sent");
    assert_eq!(pair.receive(0), ("hello".into(), pair.fronts[0]));
}

#[test]
fn a_cut_stops_one_direction_also_of_accepted_connections() {
    let pair = Pair::new();
    pair.send(0, "before");
    let (_, upstream) = pair.receive(1);
    pair.relay.cut(1, 0, &Plane::ALL);
    pair.nodes[1].send_to(b"lost", upstream).expect("sent");
    pair.send(1, "lost as well");
    pair.send(0, "passes");
    assert_eq!(pair.receive(1).0, "passes");
    // Both were sent and counted before anything that follows can arrive.
    while pair.relay.counts_of(1, 0, Plane::Data).dropped < 2 {
        std::thread::yield_now();
    }
    pair.relay.heal();
    pair.nodes[1].send_to(b"after", upstream).expect("sent");
    assert_eq!(pair.receive(0).0, "after");
    let counts = pair.relay.counts();
    assert_eq!((counts.received, counts.dropped), (5, 2));
}

#[test]
fn loss_takes_its_share_and_the_same_for_the_same_seed() {
    let arrived = || {
        let pair = Pair::new();
        pair.relay.degrade_link(
            0,
            1,
            &[Plane::Data],
            Faults {
                loss: 0.5,
                ..Faults::NONE
            },
        );
        for i in 0..200 {
            pair.send(0, &format!("{i}"));
            // One after the other, so that no buffer overflows.
            while pair.relay.counts_of(0, 1, Plane::Data).received <= i {
                std::thread::yield_now();
            }
        }
        let dropped = pair.relay.counts_of(0, 1, Plane::Data).dropped;
        pair.receive_all(1, 200 - usize::try_from(dropped).expect("few"))
    };
    let first = arrived();
    assert!((60..140).contains(&first.len()), "{}", first.len());
    assert_eq!(first, arrived());
}

#[test]
fn corruption_changes_bytes_and_not_their_number() {
    let pair = Pair::new();
    pair.relay.degrade(Faults {
        corrupt: 1.0,
        ..Faults::NONE
    });
    let sent = "x".repeat(100);
    pair.send(0, &sent);
    let mut buffer = [0; 200];
    let length = pair.nodes[1].recv(&mut buffer).expect("it arrives");
    let flipped: u32 = buffer[..length]
        .iter()
        .zip(sent.as_bytes())
        .map(|(a, b)| (a ^ b).count_ones())
        .sum();
    assert_eq!((length, flipped), (100, 1));
}

#[test]
fn a_black_hole_swallows_large_datagrams_alone() {
    let pair = Pair::new();
    pair.relay.degrade(Faults {
        datagram_bytes_max: Some(1200),
        ..Faults::NONE
    });
    pair.send(0, &"x".repeat(1201));
    pair.send(0, &"y".repeat(1200));
    assert_eq!(pair.receive(1).0, "y".repeat(1200));
}

#[test]
fn datagrams_are_doubled() {
    let pair = Pair::new();
    pair.relay.degrade(Faults {
        duplicate: 1.0,
        ..Faults::NONE
    });
    pair.send(0, "twice");
    assert_eq!(pair.receive_all(1, 2), ["twice", "twice"]);
}

#[test]
fn reordering_loses_nothing_and_keeps_no_order() {
    let pair = Pair::new();
    pair.relay.degrade(Faults {
        reorder: 0.3,
        ..Faults::NONE
    });
    let sent: Vec<String> = (0..100).map(|i| format!("{i:03}")).collect();
    sent.iter().for_each(|text| pair.send(0, text));
    let mut arrived = pair.receive_all(1, 100);
    assert_ne!(arrived, sent);
    arrived.sort();
    assert_eq!(arrived, sent);
}

#[test]
fn delayed_datagrams_keep_their_order_and_come_no_sooner() {
    let pair = Pair::new();
    let delay = Duration::from_millis(30);
    pair.relay.degrade(Faults {
        delay,
        ..Faults::NONE
    });
    let began = Instant::now();
    let sent: Vec<String> = (0..50).map(|i| format!("{i:03}")).collect();
    sent.iter().for_each(|text| pair.send(0, text));
    assert_eq!(pair.receive_all(1, 50), sent);
    assert!(began.elapsed() >= delay);
}

#[test]
fn bandwidth_is_shared_out_by_bytes_and_a_full_queue_drops() {
    let pair = Pair::new();
    // A datagram takes 50 ms: five are on their way within the backlog, and no more.
    pair.relay.degrade(Faults {
        bytes_per_second: Some(20_000),
        ..Faults::NONE
    });
    let began = Instant::now();
    for i in 0..50 {
        pair.send(0, &format!("{i:01000}"));
    }
    let arrived = pair.receive_all(1, 5);
    assert_eq!(arrived[0].parse(), Ok(0));
    assert!(
        began.elapsed() >= Duration::from_millis(250),
        "{:?}",
        began.elapsed()
    );
    while pair.relay.counts().received < 50 {
        std::thread::yield_now();
    }
    assert!(
        pair.relay.counts().dropped >= 1,
        "{:?}",
        pair.relay.counts()
    );
}

#[test]
fn a_closed_front_refuses_and_opens_again_at_the_same_place() {
    let pair = Pair::new();
    pair.send(0, "before");
    pair.receive(1);
    pair.relay.close(1);
    let prober = socket();
    prober.connect(pair.fronts[1]).expect("connected");
    prober.send(b"a probe").expect("sent");
    assert_eq!(
        prober.recv(&mut [0; 10]).expect_err("refused").kind(),
        io::ErrorKind::ConnectionRefused
    );
    let behind = pair.nodes[1].local_addr().expect("bound");
    assert_eq!(
        pair.relay
            .open(1, Plane::Data, pair.fronts[1], behind)
            .expect("a front"),
        pair.fronts[1]
    );
    pair.send(0, "after");
    assert_eq!(pair.receive(1).0, "after");
}

#[test]
fn strangers_pass_without_faults() {
    let pair = Pair::new();
    pair.relay.degrade(Faults {
        loss: 1.0,
        ..Faults::NONE
    });
    let stranger = socket();
    stranger
        .send_to(b"a native client's first datagram", pair.fronts[1])
        .expect("sent");
    let (text, upstream) = pair.receive(1);
    assert_eq!(text, "a native client's first datagram");
    pair.nodes[1].send_to(b"welcome", upstream).expect("sent");
    assert_eq!(receive(&stranger), ("welcome".into(), pair.fronts[1]));
    assert_eq!(pair.relay.counts(), DatagramCounts::default());
}
