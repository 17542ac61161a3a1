use super::super::identity::PemFiles;
use super::super::identity::secret::{SecretRole, Secrets};
use super::super::probe::Probes;
use super::*;
use doyen_gossip::SigningSeed;
use tokio::task::LocalSet;

const SECRET: &[u8] = b"a secret of the tests";
const PATIENCE: Duration = Duration::from_secs(20);

struct Node {
    id: MemberId,
    peers: Rc<ControlPeers>,
    events: PeerEvents,
}

impl Node {
    fn start(id: u64, secret: &[u8]) -> Self {
        let identity = Identity::from_secret(secret, &format!("node {id}")).unwrap();
        Self::with(id, Arc::new(identity))
    }

    fn with(id: u64, identity: Arc<Identity>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let (peers, events) = ControlPeers::start(
            socket,
            at,
            identity,
            (MemberId(id).into(), LEVELS.1),
            Arc::default(),
            Hooks::default(),
        )
        .unwrap();
        Self {
            id: MemberId(id),
            peers,
            events,
        }
    }

    fn address(&self) -> SocketAddr {
        self.peers.local_addr().unwrap()
    }

    fn ask(&self, to: Peer, ticket: u64) {
        self.peers.send(to, Envelope::StatusRequest { ticket });
    }

    /// Why the peer that it asked refuses it, which comes next.
    async fn refusal(&mut self) -> String {
        match self.next().await {
            PeerEvent::Unreached {
                failure: DialFailure::Refused(why),
                ..
            } => why,
            other => panic!("{} must be refused: {other:?}", self.id),
        }
    }

    /// The next event that is no hello.
    async fn next(&mut self) -> PeerEvent {
        loop {
            let event = tokio::time::timeout(PATIENCE, self.events.next())
                .await
                .expect("in time")
                .expect("the network lives");
            if !matches!(event, PeerEvent::Met { .. }) {
                return event;
            }
        }
    }

    /// The next message, as (sender, ticket).
    async fn ticket(&mut self) -> (MemberId, u64) {
        loop {
            match self.next().await {
                PeerEvent::Received {
                    from,
                    envelope: Envelope::StatusRequest { ticket },
                    ..
                } => return (from, ticket),
                PeerEvent::Identified { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn messages_to_an_address_arrive_in_order_and_are_answered() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        for ticket in 0..10 {
            a.ask(Peer::Address(b.address()), ticket);
        }
        for ticket in 0..10 {
            assert_eq!(b.ticket().await, (a.id, ticket));
        }
        assert!(matches!(
            a.next().await,
            PeerEvent::Identified { address, id } if address == b.address() && id == b.id
        ));
        // The answer needs no address: the connection is there.
        b.ask(Peer::Member(a.id), 77);
        assert_eq!(a.ticket().await, (b.id, 77));
        a.peers.close().await;
        b.peers.close().await;
    });
}

#[test]
fn both_may_dial_at_once() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        a.ask(Peer::Address(b.address()), 1);
        b.ask(Peer::Address(a.address()), 2);
        assert_eq!(b.ticket().await, (a.id, 1));
        assert_eq!(a.ticket().await, (b.id, 2));
        for ticket in 10..20 {
            a.ask(Peer::Member(b.id), ticket);
            b.ask(Peer::Member(a.id), ticket);
            assert_eq!(b.ticket().await, (a.id, ticket));
            assert_eq!(a.ticket().await, (b.id, ticket));
        }
    });
}

#[test]
fn a_node_knows_itself_by_dialling_itself() {
    run(async {
        let mut a = Node::start(1, SECRET);
        a.ask(Peer::Address(a.address()), 1);
        assert!(matches!(
            a.next().await,
            PeerEvent::Identified { address, id } if address == a.address() && id == a.id
        ));
    });
}

#[test]
fn scouting_uses_another_port_and_touches_no_connection() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        a.ask(Peer::Address(b.address()), 1);
        assert_eq!(b.ticket().await, (a.id, 1));
        assert!(matches!(a.next().await, PeerEvent::Identified { .. }));
        for _ in 0..3 {
            a.peers.scout(b.address());
            assert!(matches!(
                a.next().await,
                PeerEvent::Scouted { id, address } if id == b.id && address == b.address()
            ));
        }
        // The connection that was there is the one that still carries what is said.
        assert_eq!(b.peers.links.borrow()[&a.id].len(), 1);
        b.ask(Peer::Member(a.id), 2);
        assert_eq!(a.ticket().await, (b.id, 2));
        // A node does not scout itself, and a stranger is not found.
        let stranger = Node::start(3, b"another secret altogether");
        a.peers.scout(a.address());
        a.peers.scout(stranger.address());
        a.peers.scout(b.address());
        assert!(matches!(a.next().await, PeerEvent::Scouted { id, .. } if id == b.id));
        a.peers.close().await;
        b.peers.close().await;
    });
}

#[test]
fn another_secret_is_refused_on_both_sides_and_both_say_so() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, b"another secret!!!"));
        a.ask(Peer::Address(b.address()), 1);
        let PeerEvent::Unreached { failure, .. } = a.next().await else {
            panic!("a must fail")
        };
        assert_eq!(failure, DialFailure::OtherSecret);
        assert!(failure.to_string().contains("--secret-file"));
        assert!(matches!(
            b.next().await,
            PeerEvent::TurnedAway {
                failure: DialFailure::OtherSecret,
                ..
            }
        ));
    });
}

/// An authority and certificates for 127.0.0.1, as an operator would write them.
fn identity_from_files(
    authority: &rcgen::CertifiedIssuer<'_, rcgen::KeyPair>,
    name: &str,
    subject: &str,
) -> Arc<Identity> {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![subject.to_owned()]).unwrap();
    let role = "doyen:member".try_into().unwrap();
    params.subject_alt_names.push(rcgen::SanType::URI(role));
    params.extended_key_usages = vec![
        rcgen::ExtendedKeyUsagePurpose::ServerAuth,
        rcgen::ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let certificate = params.signed_by(&key, authority).unwrap();
    let write = |file: &str, text: String| {
        std::fs::write(dir.path().join(file), text).unwrap();
        dir.path().join(file)
    };
    let (ca, cert) = (
        write("ca.pem", authority.pem()),
        write("cert.pem", certificate.pem()),
    );
    let files = PemFiles::new(&ca, &cert, &write("key.pem", key.serialize_pem()));
    Arc::new(Identity::from_pem(files, SecretRole::Member, name).unwrap())
}

#[test]
fn certificates_of_files_bind_names_to_hosts() {
    run(async {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority =
            rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap())
                .unwrap();
        let start = |id: u64, name: &str, subject: &str| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let at = socket.local_addr().unwrap();
            let (peers, events) = ControlPeers::start(
                socket,
                at,
                identity_from_files(&authority, name, subject),
                (MemberId(id).into(), LEVELS.1),
                Arc::default(),
                Hooks::default(),
            )
            .unwrap();
            Node {
                id: MemberId(id),
                peers,
                events,
            }
        };
        let (a, mut b) = (
            start(1, "127.0.0.1:7400", "127.0.0.1"),
            start(2, "beta", "beta"),
        );
        a.ask(Peer::Address(b.address()), 1);
        assert_eq!(b.ticket().await, (a.id, 1));
        // One that says a name which its certificate does not bear.
        let mut c = start(3, "beta", "gamma");
        c.ask(Peer::Address(b.address()), 1);
        let why = c.refusal().await;
        assert!(why.contains("names neither \"beta\""), "{why}");
        // Then a node that has a secret instead.
        let mut d = Node::start(4, SECRET);
        d.ask(Peer::Address(b.address()), 1);
        assert!(matches!(
            d.next().await,
            PeerEvent::Unreached {
                failure: DialFailure::OtherSecret,
                ..
            }
        ));
    });
}

/// A process that has only the client's file tries to join or gossip: it dials control ports.
#[test]
fn a_client_s_file_opens_no_control_port() {
    run(async {
        let mut b = Node::start(2, SECRET);
        let member = Secrets::of_bytes(SECRET).unwrap();
        let file = member.for_role(SecretRole::Client).unwrap();
        let identity = |file: &Secrets, role| {
            Arc::new(Identity::of_secrets(file.clone(), None, role, "node 1").unwrap())
        };
        assert!(Identity::of_secrets(file.clone(), None, SecretRole::Member, "node 1").is_err());
        // A changed program says that it is a node, and then that it is a client.
        for id in [1, MemberId::of_client(1).0] {
            let mut a = Node::with(id, identity(&file, SecretRole::Client));
            a.ask(Peer::Address(b.address()), 1);
            let why = a.refusal().await;
            assert!(
                why.contains("as a member") || why.contains("only the data ports"),
                "{why}"
            );
            assert!(matches!(b.next().await, PeerEvent::TurnedAway { .. }));
        }
        // The control: the same with the members' file.
        let a = Node::with(1, identity(&member, SecretRole::Member));
        a.ask(Peer::Address(b.address()), 1);
        assert_eq!(b.ticket().await, (a.id, 1));
    });
}

/// The line that vouched for a peer goes: its connection is closed, and those of others stay.
#[test]
fn a_peer_that_no_line_vouches_for_is_disconnected() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let other = [SECRET, b" of others"].concat();
        let write = |lines: &[&[u8]]| std::fs::write(&path, lines.join(&b"\n"[..])).unwrap();
        write(&[SECRET, &other]);
        let secrets = Secrets::of_bytes(&std::fs::read(&path).unwrap()).unwrap();
        let identity =
            Identity::of_secrets(secrets, Some(path.clone()), SecretRole::Member, "node 1");
        let mut a = Node::with(1, Arc::new(identity.unwrap()));
        // It signs with the other line.
        let both = [other.as_slice(), SECRET].join(&b"\n"[..]);
        let both = Secrets::of_bytes(&both).unwrap();
        let of_other = Identity::of_secrets(both, None, SecretRole::Member, "node 2");
        let mut b = Node::with(2, Arc::new(of_other.unwrap()));
        let c = Node::start(3, SECRET);
        b.ask(Peer::Address(a.address()), 2);
        assert_eq!(a.ticket().await, (b.id, 2));
        c.ask(Peer::Address(a.address()), 3);
        assert_eq!(a.ticket().await, (c.id, 3));

        write(&[SECRET]);
        assert!(a.peers.identity.reload());
        while a.peers.is_linked(b.id) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(a.peers.is_linked(c.id));
        // It dials again, and is refused.
        while b.peers.is_linked(a.id) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        b.ask(Peer::Address(a.address()), 4);
        loop {
            match b.next().await {
                PeerEvent::Unreached { failure, .. } => {
                    break assert_eq!(failure, DialFailure::OtherSecret);
                }
                _ => b.ask(Peer::Address(a.address()), 4),
            }
        }
    });
}

#[test]
fn a_stolen_name_is_refused() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        b.peers.set_members(BTreeMap::from([(
            a.id,
            (a.address(), "another node".to_owned()),
        )]));
        a.ask(Peer::Address(b.address()), 1);
        let why = a.refusal().await;
        assert!(
            why.contains("is called \"another node\", not \"node 1\""),
            "{why}"
        );
        assert!(matches!(
            b.next().await,
            PeerEvent::TurnedAway {
                failure: DialFailure::Hello(_),
                ..
            }
        ));
    });
}

/// With one secret, every member can make a certificate with the name of another. So a process
/// that named the id of a member was taken for it, and its messages for those of that member.
#[test]
fn only_the_process_with_the_key_of_a_member_is_that_member() {
    run(async {
        let key = SigningSeed::of_test(1).vote_key();
        for (shown, accepted) in [(Some(1), true), (Some(2), false), (None, false)] {
            let identity = Identity::from_secret(SECRET, "node 16").unwrap();
            if let Some(number) = shown {
                identity.set_key(&SigningSeed::of_test(number));
            }
            let (mut a, mut b) = (Node::with(16, Arc::new(identity)), Node::start(32, SECRET));
            b.peers.identity.set_keys(BTreeMap::from([(a.id, key)]));
            a.ask(Peer::Address(b.address()), 1);
            if accepted {
                assert_eq!(b.ticket().await, (a.id, 1));
                continue;
            }
            let why = a.refusal().await;
            assert!(why.contains("does not show that member's key"), "{why}");
            assert!(matches!(b.next().await, PeerEvent::TurnedAway { .. }));
            // The same if it is dialled.
            b.ask(Peer::Address(a.address()), 2);
            let PeerEvent::Unreached { failure, .. } = b.next().await else {
                panic!("{shown:?}: it must not be taken for that member")
            };
            assert!(
                matches!(failure, DialFailure::Hello(why) if why.contains("that member's key"))
            );
        }
    });
}

/// A member shows its key to every process that dials it, which could pass that on.
#[test]
fn a_proof_of_another_connection_is_refused() {
    run(async {
        let identity = Identity::from_secret(SECRET, "node 16").unwrap();
        identity.set_key(&SigningSeed::of_test(1));
        let (a, mut b) = (Node::start(16, SECRET), Node::start(32, SECRET));
        let connection = a.peers.endpoint.dial(b.address()).await.unwrap();
        let elsewhere = a.peers.hello(a.id.into()).shown_by(&identity, [7; 32]);
        let (mut send, _recv) = connection.open_bi().await.unwrap();
        send.write_all(&elsewhere.encode()).await.unwrap();
        send.finish().unwrap();
        let PeerEvent::TurnedAway { failure, .. } = b.next().await else {
            panic!("it must be refused")
        };
        assert!(matches!(failure, DialFailure::Hello(why) if why.contains("the private part")));
    });
}

#[test]
fn a_message_for_a_process_does_not_reach_its_successor() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        a.peers.set_members(BTreeMap::from([(
            MemberId(9),
            (b.address(), "node 9".to_owned()),
        )]));
        a.ask(Peer::Member(MemberId(9)), 1);
        a.ask(Peer::Address(b.address()), 2);
        assert_eq!(b.ticket().await, (a.id, 2));
        assert!(matches!(a.next().await, PeerEvent::Identified { id, .. } if id == b.id));
    });
}

#[test]
fn gossip_that_fits_no_datagram_goes_on_the_stream() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        a.ask(Peer::Address(b.address()), 1);
        b.ticket().await;
        for size in [10, 30_000] {
            a.peers
                .send(Peer::Member(b.id), Envelope::Gossip(vec![7; size]));
            match b.next().await {
                PeerEvent::Received {
                    envelope: Envelope::Gossip(bytes),
                    ..
                } => assert_eq!(bytes, vec![7; size]),
                other => panic!("{other:?}"),
            }
        }
        let _ = a.next().await;
    });
}

#[test]
fn malformed_frames_close_only_their_connection() {
    run(async {
        let (a, mut b, mut c) = (
            Node::start(1, SECRET),
            Node::start(2, SECRET),
            Node::start(3, SECRET),
        );
        c.ask(Peer::Address(b.address()), 1);
        b.ticket().await;
        let frames: [&[u8]; 3] = [
            &u32::MAX.to_le_bytes(),
            &[3, 0, 0, 0, 255, 255, 255],
            &[0, 0, 0, 0],
        ];
        for frame in frames {
            let connection = a.peers.endpoint.dial(b.address()).await.unwrap();
            hello::greet(&connection, &a.peers.identity, &a.peers.hello(a.id.into()))
                .await
                .unwrap();
            let mut stream = connection.open_uni().await.unwrap();
            stream.write_all(frame).await.unwrap();
            let reason = tokio::time::timeout(PATIENCE, connection.closed())
                .await
                .unwrap();
            let quinn::ConnectionError::ApplicationClosed(close) = reason else {
                panic!("{reason:?}")
            };
            assert_eq!(
                close.error_code,
                quinn::VarInt::from_u32(Close::Malformed as u32)
            );
        }
        b.ask(Peer::Member(c.id), 5);
        assert_eq!(c.ticket().await, (b.id, 5));
    });
}

#[test]
fn the_level_of_a_process_is_reported_before_its_messages() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        a.ask(Peer::Address(b.address()), 1);
        let met = |event| matches!(event, Some(PeerEvent::Met { level, .. }) if level == LEVELS.1);
        assert!(met(b.events.next().await));
        assert_eq!(b.ticket().await, (a.id, 1));
        assert!(met(a.events.next().await));
    });
}

/// The connection would be closed and made again for ever.
#[test]
fn unknown_messages_of_a_newer_program_are_dropped_alone() {
    run(async {
        let (a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        let connection = a.peers.endpoint.dial(b.address()).await.unwrap();
        let newer = a.peers.hello(a.id.into()).up_to(LEVELS.1 + 1);
        hello::greet(&connection, &a.peers.identity, &newer)
            .await
            .unwrap();
        let known = Envelope::StatusRequest { ticket: 7 }.encode().unwrap();
        let mut stream = connection.open_uni().await.unwrap();
        // Of an unknown kind of envelope, and of an unknown kind of message for agreement.
        for body in [
            &[0x82, 0x18, 200, 1][..],
            &[0x82, 0, 0x81, 0x18, 99],
            &known,
        ] {
            let length = u32::try_from(body.len()).unwrap();
            stream.write_all(&length.to_le_bytes()).await.unwrap();
            stream.write_all(body).await.unwrap();
        }
        assert_eq!(b.ticket().await, (a.id, 7));
        assert_eq!(b.peers.traffic.dropped_total(), 2);
    });
}

#[test]
fn silence_in_a_frame_does_not_delay_other_peers() {
    run(async {
        let (a, mut b, mut c) = (
            Node::start(1, SECRET),
            Node::start(2, SECRET),
            Node::start(3, SECRET),
        );
        c.ask(Peer::Address(b.address()), 1);
        b.ticket().await;
        // A part of a length; and a part of what a length promises.
        for begun in [&[9, 0][..], &[9, 0, 0, 0, 1]] {
            let connection = a.peers.endpoint.dial(b.address()).await.unwrap();
            hello::greet(&connection, &a.peers.identity, &a.peers.hello(a.id.into()))
                .await
                .unwrap();
            let mut stream = connection.open_uni().await.unwrap();
            stream.write_all(begun).await.unwrap();
            for n in 2..50 {
                b.ask(Peer::Member(c.id), n);
                assert_eq!(c.ticket().await, (b.id, n));
            }
            assert!(connection.close_reason().is_none(), "it may still go on");
        }
    });
}

#[test]
fn garbage_and_probes_disturb_no_connection() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        a.ask(Peer::Address(b.address()), 1);
        b.ticket().await;
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut probes = Probes::default();
        let targets = BTreeMap::from([(b.id, b.address())]);
        for length in 0..300usize {
            let garbage: Vec<u8> = (0..length).map(|i| (i * 31 + length * 17) as u8).collect();
            stranger.send_to(&garbage, b.address()).unwrap();
            let due = probes.due(Instant::now());
            assert_eq!(probes.probe(&targets, due), []);
        }
        a.ask(Peer::Member(b.id), 2);
        assert_eq!(b.ticket().await, (a.id, 2));
        let _ = a.next().await;
    });
}

#[test]
fn a_closed_endpoint_is_refused_to_probes() {
    run(async {
        let b = Node::start(2, SECRET);
        let (id, address) = (b.id, b.address());
        let targets = BTreeMap::from([(id, address)]);
        let mut probes = Probes::default();
        let mut probe = || {
            let due = probes.due(Instant::now());
            probes.probe(&targets, due)
        };
        assert_eq!(probe(), []);
        b.peers.close().await;
        drop(b);
        // The endpoint's driver drops the socket in its own time.
        let refused = async {
            while probe().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, refused).await.unwrap();
    });
}

#[test]
fn another_incarnation_introduces_itself_anew() {
    run(async {
        let (mut a, mut b) = (Node::start(1, SECRET), Node::start(2, SECRET));
        a.ask(Peer::Address(b.address()), 1);
        assert_eq!(b.ticket().await, (MemberId(1), 1));
        a.peers.reset(MemberId(5).into());
        // The former dial counts as a success, so this one may have to wait for its turn.
        let again = async {
            loop {
                a.ask(Peer::Address(b.address()), 2);
                if let Ok(PeerEvent::Received { from, .. }) =
                    tokio::time::timeout(Duration::from_millis(20), b.next()).await
                {
                    return from;
                }
            }
        };
        assert_eq!(
            tokio::time::timeout(PATIENCE, again).await.unwrap(),
            MemberId(5)
        );
        let _ = a.next().await;
    });
}

/// A process that began with a directory, in the name of the member that had it before.
fn heir(member: u64, process: u64, count: u64) -> Node {
    let heir = Node::start(member, SECRET);
    heir.peers.identity.set_key(&SigningSeed::of_test(member));
    let process = MemberId(process);
    heir.peers.reset(OwnName {
        id: MemberId(member),
        start: Some(DirectoryStart { process, count }),
    });
    heir
}

#[test]
fn a_process_with_a_directory_names_itself_beside_the_member() {
    run(async {
        let (mut a, b) = (Node::start(1, SECRET), heir(2, 7, 3));
        // It takes the place of a member that had another name.
        let former = (b.address(), "former".to_owned());
        a.peers.set_members(BTreeMap::from([(MemberId(2), former)]));
        b.ask(Peer::Address(a.address()), 1);
        let met = tokio::time::timeout(PATIENCE, a.events.next()).await;
        let Some(PeerEvent::Met { id, process, .. }) = met.unwrap() else {
            panic!("it is met first")
        };
        assert_eq!((id, process), (MemberId(2), MemberId(7)));
        assert_eq!(a.ticket().await, (MemberId(2), 1));
    });
}

#[test]
fn only_the_last_process_of_a_directory_is_heard() {
    run(async {
        let mut a = Node::start(1, SECRET);
        let refused = |event| {
            let PeerEvent::TurnedAway { failure, .. } = event else {
                panic!("it must be refused: {event:?}")
            };
            assert!(matches!(failure, DialFailure::Hello(why) if why.contains("--dir")));
        };
        let first = heir(2, 7, 3);
        first.ask(Peer::Address(a.address()), 1);
        assert_eq!(a.ticket().await, (MemberId(2), 1));
        // A copy of the directory, and an older state of it.
        for (process, count) in [(8, 3), (9, 2)] {
            let copy = heir(2, process, count);
            copy.ask(Peer::Address(a.address()), 2);
            refused(a.next().await);
        }
        let mut next = heir(2, 10, 4);
        next.ask(Peer::Address(a.address()), 3);
        assert_eq!(a.ticket().await, (MemberId(2), 3));
        // The former process does not come back, and its connection has ended.
        let again = async {
            // The former dial counts as a success, so this one may have to wait for its turn.
            loop {
                first.ask(Peer::Address(a.address()), 4);
                let next = tokio::time::timeout(Duration::from_millis(20), a.next());
                match next.await {
                    Err(_) | Ok(PeerEvent::Identified { .. }) => {}
                    Ok(event) => return event,
                }
            }
        };
        refused(tokio::time::timeout(PATIENCE, again).await.unwrap());
        // Both are the same member, and they notice it themselves.
        first.ask(Peer::Address(next.address()), 5);
        let turned_away = async {
            loop {
                match next.next().await {
                    PeerEvent::Identified { .. } => {}
                    event => return event,
                }
            }
        };
        refused(turned_away.await);
    });
}
