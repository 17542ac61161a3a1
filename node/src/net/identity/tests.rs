mod files;
mod strangers;

use super::authority::{self, Authority};
use super::*;
use rustls::quic;
use rustls_pki_types::ServerName;
use std::sync::atomic::AtomicU64;

/// 32 bytes, as they were written before there were prefixes.
pub(super) const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const DAY: u64 = 24 * 3600;

/// A clock that stands where a test sets it.
#[derive(Debug)]
struct Hand(AtomicU64);

impl Hand {
    fn at_day(day: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(day * DAY)))
    }

    fn move_to(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl TimeProvider for Hand {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            self.0.load(Ordering::Relaxed),
        )))
    }
}

pub(super) fn line(byte: u8) -> Line {
    Line::member(std::array::from_fn(|i| byte.wrapping_add(i as u8)))
}

pub(super) fn secrets(bytes: &[u8]) -> Secrets {
    Secrets::new(bytes.iter().map(|byte| line(*byte)).collect()).unwrap()
}

fn member(bytes: &[u8], name: &str) -> Identity {
    Identity::of_secrets(secrets(bytes), None, SecretRole::Member, name).unwrap()
}

fn client(bytes: &[u8], name: &str) -> Identity {
    let secrets = secrets(bytes).for_role(SecretRole::Client).unwrap();
    Identity::of_secrets(secrets, None, SecretRole::Client, name).unwrap()
}

/// What two ends learn from a handshake: each other's chain.
#[derive(Debug)]
struct Shaken {
    of_server: Vec<CertificateDer<'static>>,
    of_client: Vec<CertificateDer<'static>>,
}

/// A handshake as QUIC carries it, and the bytes that the server sent. The dialler can read all
/// that the server says in it, also a stranger.
fn shake(
    client: &Arc<rustls::ClientConfig>,
    server: &Arc<rustls::ServerConfig>,
    name: &str,
) -> (Vec<u8>, Result<Shaken, rustls::Error>) {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let version = quic::Version::V1;
    let mut client =
        quic::ClientConnection::new(client.clone(), version, name, b"c".to_vec()).unwrap();
    let mut server = quic::ServerConnection::new(server.clone(), version, b"s".to_vec()).unwrap();
    let mut heard = Vec::new();
    for _ in 0..6 {
        // Each call gives the bytes of one level of encryption.
        for _ in 0..3 {
            let mut bytes = Vec::new();
            client.write_hs(&mut bytes);
            if let Err(e) = server.read_hs(&bytes) {
                return (heard, Err(e));
            }
            let mut bytes = Vec::new();
            server.write_hs(&mut bytes);
            heard.extend_from_slice(&bytes);
            if let Err(e) = client.read_hs(&bytes) {
                return (heard, Err(e));
            }
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    let chain = |chain: Option<&[CertificateDer<'static>]>| chain.unwrap_or_default().to_vec();
    let shaken = Shaken {
        of_server: chain(client.peer_certificates()),
        of_client: chain(server.peer_certificates()),
    };
    (heard, Ok(shaken))
}

/// A whole beginning of a connection: handshake, then what both ends make of the hellos.
fn connect(
    (dialler, claims_client): (&Identity, bool),
    server: &Identity,
) -> Result<(Evidence, Evidence), DialFailure> {
    let configs = (dialler.tls().raw.1.clone(), server.tls().raw.0.clone());
    let shaken = shake(&configs.0, &configs.1, SERVER_NAME)
        .1
        .map_err(|e| refused(&e))?;
    let by_server = server.recognize(
        &shaken.of_client,
        &Claim {
            name: dialler.name(),
            client: claims_client,
            card: None,
            dialled: false,
        },
    )?;
    let card = server.card();
    let by_dialler = dialler.recognize(
        &shaken.of_server,
        &Claim {
            name: server.name(),
            client: false,
            card: card.as_ref(),
            dialled: true,
        },
    )?;
    Ok((by_server, by_dialler))
}

/// What a failed handshake means, as the endpoint says it.
fn refused(e: &rustls::Error) -> DialFailure {
    match e {
        rustls::Error::InvalidCertificate(rustls::CertificateError::Expired) => {
            DialFailure::OtherTime
        }
        rustls::Error::InvalidCertificate(rustls::CertificateError::Revoked) => {
            DialFailure::Revoked
        }
        rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer) => {
            DialFailure::OtherSecret
        }
        e => DialFailure::Hello(e.to_string()),
    }
}

#[test]
fn a_short_secret_is_refused() {
    let error = Identity::from_secret(b"short", "a").unwrap_err();
    assert!(
        error.to_string().contains("has 5 bytes, but at least 16"),
        "{error}"
    );
}

#[test]
fn members_and_clients_of_one_secret_accept_each_other() {
    let server = member(&[1], "10.0.0.1:7400");
    let long = "ä ö\u{0}".repeat(60);
    for name in ["10.0.0.2:7400", long.as_str()] {
        connect((&member(&[1], name), false), &server).unwrap();
        connect((&client(&[1], name), true), &server).unwrap();
        // A client may also have the members' secret.
        let with_all = Identity::of_secrets(secrets(&[1]), None, SecretRole::Client, name).unwrap();
        connect((&with_all, true), &server).unwrap();
    }
}

#[test]
fn another_secret_is_refused_by_both_ends() {
    let server = member(&[1], "a");
    let other = member(&[2], "b");
    assert_eq!(
        connect((&other, false), &server).unwrap_err(),
        DialFailure::OtherSecret
    );
    assert_eq!(
        connect((&client(&[2], "b"), true), &server).unwrap_err(),
        DialFailure::OtherSecret
    );
    // A dialler that the server accepts refuses a server that has another secret.
    let card = other.card();
    let shown = [authority::anonymous(&authority::new_key().unwrap()).unwrap()];
    let claim = |card| Claim {
        name: "b",
        client: false,
        card,
        dialled: true,
    };
    for card in [None, card.as_ref()] {
        assert_eq!(
            server.recognize(&shown, &claim(card)).unwrap_err(),
            DialFailure::OtherSecret
        );
    }
}

/// The client's file cannot be used to join or to gossip, for which a process must be a member.
#[test]
fn a_client_s_secret_makes_no_member() {
    let server = member(&[1], "a");
    let dialler = client(&[1], "b");
    connect((&dialler, true), &server).expect("the control: it is a client");
    let refusal = connect((&dialler, false), &server).unwrap_err();
    assert_eq!(
        refusal,
        DialFailure::Hello("its certificate does not name \"b\" as a member".into())
    );
    // Neither does a member's certificate make a client, so no client has a member's rights.
    let refusal = connect((&member(&[1], "b"), true), &server).unwrap_err();
    assert!(matches!(refusal, DialFailure::Hello(why) if why.contains("as a client")));
}

/// A process with the client's secret answers another client, as a node would.
#[test]
fn a_client_s_secret_makes_no_server_for_other_clients() {
    let victim = client(&[1], "victim");
    connect((&victim, true), &member(&[1], "a")).expect("the control: a node is accepted");
    let attacker = client(&[1], "a");
    let (_, shaken) = shake(&victim.tls().raw.1, &attacker.tls().raw.0, SERVER_NAME);
    // It accepts no clients, so its handshake fails. A changed program would accept them.
    assert!(shaken.is_err());
    let shown = attacker.tls().shown.clone();
    let own = shown.dialler.cert[0].clone();
    for card in [None, Some(&own)] {
        let claim = Claim {
            name: "a",
            client: false,
            card,
            dialled: true,
        };
        let refusal = victim.recognize(std::slice::from_ref(&own), &claim);
        assert_eq!(refusal.unwrap_err(), DialFailure::OtherSecret);
    }
    // Members refuse it as a server, too. They know its authority, but not as one of members.
    let claim = Claim {
        name: "a",
        client: false,
        card: Some(&own),
        dialled: true,
    };
    let refusal = member(&[1], "b").recognize(std::slice::from_ref(&own), &claim);
    assert!(matches!(refusal, Err(DialFailure::Hello(why)) if why.contains("as a member")));
}

/// The operator's file cannot be used for data, however its line is changed.
#[test]
fn an_operator_s_secret_opens_no_data() {
    let operator = secrets(&[1]).for_role(SecretRole::Operator).unwrap();
    for role in [SecretRole::Member, SecretRole::Client] {
        let refusal = Identity::of_secrets(operator.clone(), None, role, "b").unwrap_err();
        assert!(refusal.to_string().contains("of an operator"), "{refusal}");
    }
    let forged = operator.expose().replace("operator", "client");
    let forged = Secrets::parse(forged.as_bytes()).unwrap();
    let forged = Identity::of_secrets(forged, None, SecretRole::Client, "b").unwrap();
    let server = member(&[1], "a");
    assert_eq!(
        connect((&forged, true), &server).unwrap_err(),
        DialFailure::OtherSecret
    );
    connect((&client(&[1], "b"), true), &server).expect("the control: the client's file");
}

#[test]
fn a_certificate_names_its_node_and_no_other() {
    let (server, dialler) = (member(&[1], "a"), member(&[1], "b"));
    let shown = dialler.tls().shown.dialler.cert.clone();
    let said = |name| {
        let claim = Claim {
            name,
            client: false,
            card: None,
            dialled: false,
        };
        server.recognize(&shown, &claim)
    };
    said("b").unwrap();
    assert!(matches!(said("c"), Err(DialFailure::Hello(why)) if why.contains("\"c\" as a member")));
    let malformed = [CertificateDer::from(vec![1, 2, 3])];
    let claim = Claim {
        name: "b",
        client: false,
        card: None,
        dialled: false,
    };
    assert!(server.recognize(&malformed, &claim).is_err());
    assert!(server.recognize(&[], &claim).is_err());
}

/// A third party that saw a node's certificate answers with it, but has not the key.
#[test]
fn a_server_s_certificate_is_of_no_use_to_others() {
    let (server, dialler) = (member(&[1], "a"), member(&[1], "b"));
    let thief = member(&[1], "c");
    let claim = Claim {
        name: "a",
        client: false,
        card: server.card().as_ref(),
        dialled: true,
    }
    .card
    .cloned();
    let said = |shown: &CertificateDer<'static>| {
        let claim = Claim {
            name: "a",
            client: false,
            card: claim.as_ref(),
            dialled: true,
        };
        dialler.recognize(std::slice::from_ref(shown), &claim)
    };
    let (_, shaken) = shake(&dialler.tls().raw.1, &thief.tls().raw.0, SERVER_NAME);
    let refusal = said(&shaken.unwrap().of_server[0]).unwrap_err();
    assert!(matches!(refusal, DialFailure::Hello(why) if why.contains("for another key")));
    let (_, shaken) = shake(&dialler.tls().raw.1, &server.tls().raw.0, SERVER_NAME);
    said(&shaken.unwrap().of_server[0]).expect("the control: the server itself");
}

/// The holder of the client's secret signs an authority that has the name of the member authority,
/// and a certificate of a member with that.
#[test]
fn a_longer_chain_does_not_change_a_role() {
    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer};
    let server = member(&[1], "a");
    let file = secrets(&[1]).for_role(SecretRole::Client).unwrap();
    let seed = file.first().client_key().unwrap();
    let of_clients = authority::ed25519(seed.expose()).unwrap();
    let named = |organization: String| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let fingerprint = file.first().fingerprint();
    let own = secret::PublicKey(
        rcgen::PublicKeyData::der_bytes(&of_clients)
            .try_into()
            .unwrap(),
    );
    let clients = named(format!("doyen client {}", own.fingerprint()));
    let posing = named(format!("doyen member {fingerprint}"));
    let key = authority::new_key().unwrap();
    let middle = posing
        .signed_by(&key, &Issuer::new(clients, of_clients))
        .unwrap();
    let leaf_key = authority::new_key().unwrap();
    let mut leaf = CertificateParams::new(vec![dns_name("b")]).unwrap();
    leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let leaf = leaf
        .signed_by(&leaf_key, &Issuer::new(posing, key))
        .unwrap();
    let chain = [leaf.der().clone(), middle.der().clone()];
    let claim = |client| Claim {
        name: "b",
        client,
        card: None,
        dialled: false,
    };
    for client in [false, true] {
        assert_eq!(
            server.recognize(&chain, &claim(client)).unwrap_err(),
            DialFailure::OtherSecret
        );
    }
    // The control: to webpki, with all authorities in one store, this is a good chain, and its
    // issuer has the name of the member authority.
    let tls = server.tls();
    let TrustStore::Secrets(vouchers) = tls.trust.as_ref() else {
        panic!("it has secrets")
    };
    let pem = trust::Pem {
        anchors: vouchers.iter().map(|v| v.anchor.clone()).collect(),
        crls: Vec::new(),
        role_prefix: String::new(),
    };
    let now = UnixTime::now();
    pem.accepts((&chain[0], &chain[1..]), End::Dialler, now)
        .unwrap();
}

#[test]
fn an_anchor_is_the_same_from_a_key_and_from_a_certificate() {
    let keys = line(1).keys().unwrap();
    let authority = Authority::of(SecretRole::Member, &keys.member).unwrap();
    let from_certificate = webpki::anchor_from_trusted_cert(authority.certificate())
        .unwrap()
        .to_owned();
    let from_key = authority::member_anchor(&line(1).member_public_key());
    assert_eq!(*authority.anchor(), from_key);
    assert_eq!(from_certificate.subject, from_key.subject);
    assert_eq!(
        from_certificate.subject_public_key_info,
        from_key.subject_public_key_info
    );
    let again = Authority::of(SecretRole::Member, &keys.member).unwrap();
    assert_eq!(
        authority.certificate(),
        again.certificate(),
        "on every node"
    );
}

// ---- time

#[test]
fn clocks_may_differ_by_a_day_and_certificates_are_renewed() {
    let hand = Hand::at_day(20_000);
    let at = |hand: Arc<Hand>, name| {
        Identity::at(secrets(&[1]), None, (SecretRole::Member, name), hand).unwrap()
    };
    let node = at(hand.clone(), "a");
    for other_clock in [20_000 * DAY - DAY, 20_000 * DAY, 20_000 * DAY + DAY] {
        let other = Hand::at_day(0);
        other.move_to(other_clock);
        let other = at(other, "b");
        connect((&node, false), &other).unwrap();
        connect((&other, false), &node).unwrap();
    }
    for other_day in [19_998, 20_031] {
        let other = at(Hand::at_day(other_day), "b");
        let failures = [
            connect((&node, false), &other).unwrap_err(),
            connect((&other, false), &node).unwrap_err(),
        ];
        assert!(failures.contains(&DialFailure::OtherTime), "{failures:?}");
        let text = DialFailure::OtherTime.to_string();
        assert!(text.contains("set the clocks"), "{text}");
    }

    // Weeks pass. Each certificate is replaced long before it ends.
    let (first, mut renewals) = (node.tls(), 0);
    for hours in (0..24 * 100).step_by(6) {
        hand.move_to(20_000 * DAY + hours * 3600);
        renewals += u32::from(node.is_stale());
        node.refresh();
        let tls = node.tls();
        let left = tls.ends.unwrap() - i64::try_from(20_000 * DAY + hours * 3600).unwrap();
        assert!(left >= 14 * DAY as i64, "{left} s are left");
    }
    assert_eq!(renewals, 6, "in 100 days, after 15 days each");
    assert!(!Arc::ptr_eq(&first, &node.tls()));
    assert_eq!(node.generation(), 0, "the authorities are the same");
    connect((&node, false), &at(hand.clone(), "b")).unwrap();
    let of_the_beginning = at(Hand::at_day(20_000), "b");
    assert_eq!(
        connect((&of_the_beginning, false), &node).unwrap_err(),
        DialFailure::OtherTime,
        "the control: without renewal it has ended"
    );

    // The clock was wrong, and is set back by years.
    hand.move_to(15_000 * DAY);
    node.refresh();
    connect((&node, false), &at(Hand::at_day(15_000), "b")).unwrap();
}

// ---- several lines

#[test]
fn lines_are_added_used_and_removed_without_a_pair_that_does_not_fit() {
    let steps: [&[u8]; 4] = [&[1], &[1, 2], &[2, 1], &[2]];
    for pair in steps.windows(2) {
        for (a, b) in [(pair[0], pair[1]), (pair[1], pair[0]), (pair[1], pair[1])] {
            connect((&member(a, "a"), false), &member(b, "b")).unwrap();
            // Clients may be a step behind or ahead of members.
            connect((&client(a, "c"), true), &member(b, "b")).unwrap();
        }
    }
    assert!(connect((&member(&[1], "a"), false), &member(&[2], "b")).is_err());
    let two_steps_apart = connect((&member(&[1], "a"), false), &member(&[2, 1], "b"));
    assert!(two_steps_apart.is_err());
}

#[test]
fn tokens_of_operators_follow_the_lines() {
    fn opens(identity: &Identity, token: &[u8]) -> bool {
        let hash = secret::sha256(token);
        let hashes = identity.operator_hashes();
        hashes.iter().any(|known| known == hash.as_ref())
    }
    let both = member(&[2, 1], "a");
    let token = |byte, role| line(byte).for_role(role).unwrap().token();
    for byte in [1, 2] {
        for role in [SecretRole::Member, SecretRole::Operator] {
            assert!(opens(&both, token(byte, role).unwrap().as_bytes()));
        }
    }
    assert!(!opens(
        &both,
        token(3, SecretRole::Operator).unwrap().as_bytes()
    ));
    assert!(!opens(&both, b"") && !opens(&both, LOCAL_TOKEN.as_bytes()));
    assert_eq!(token(1, SecretRole::Client), None);
    // 32 bytes of before have the token of before as well, for a rolling upgrade.
    let former = Identity::from_secret(HEX.as_bytes(), "a").unwrap();
    let of_file = Secrets::parse(HEX.as_bytes()).unwrap();
    let (now, before) = (of_file.first().token(), of_file.first().operator_token());
    assert_ne!(now, before);
    for token in [now.unwrap(), before.unwrap()] {
        assert!(opens(&former, token.as_bytes()));
    }
    let open = Identity::insecure_loopback("a").unwrap();
    assert!(!open.has_operators() && former.has_operators());
    assert!(open.operator_hashes().is_empty());
}

#[test]
fn a_file_is_read_again_and_what_is_wrong_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write(&secrets(&[1]).expose());
    let node =
        Identity::of_secrets(secrets(&[1]), Some(path.clone()), SecretRole::Member, "a").unwrap();
    let evidence = connect((&member(&[1], "b"), false), &node).unwrap().0;
    assert!(!node.is_stale() && node.trusts(&evidence));

    for wrong in [
        "short",
        "",
        &secrets(&[1]).for_role(SecretRole::Client).unwrap().expose(),
    ] {
        write(wrong);
        assert!(node.is_stale());
        let failed = node.certificate().reloads_failed;
        assert!(failed > 0 && !node.is_stale(), "it is reported once");
        assert!(node.trusts(&evidence));
        connect((&member(&[1], "b"), false), &node).unwrap();
    }

    write(&secrets(&[2, 1]).expose());
    node.refresh();
    assert_eq!((node.generation(), node.certificate().reloads), (1, 1));
    assert_eq!(
        node.fingerprints(),
        [line(2).fingerprint(), line(1).fingerprint()]
    );
    assert!(node.trusts(&evidence));
    connect((&node, false), &member(&[1, 2], "b")).unwrap();

    std::fs::remove_file(&path).unwrap();
    node.refresh();
    connect((&node, false), &member(&[1, 2], "b")).unwrap();

    write(&secrets(&[2]).expose());
    assert!(node.reload(), "there is a file");
    assert!(!node.trusts(&evidence), "nothing vouches for it any more");
    assert!(connect((&member(&[1], "b"), false), &node).is_err());
    assert!(!member(&[1], "b").reload(), "there is none");
}

/// A rotation of the secret went on although a port still had a certificate of the old one.
#[test]
fn ports_without_a_certificate_of_the_first_secret_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (path, ca) = (dir.path().join("secret"), dir.path().join("clients.pem"));
    let write = |bytes: &[u8]| std::fs::write(&path, &*secrets(bytes).expose()).unwrap();
    let good = authority_certificates(&secrets(&[9])).unwrap();
    std::fs::write(&ca, &good).unwrap();
    write(&[1]);
    let node =
        Identity::of_secrets(secrets(&[1]), Some(path.clone()), SecretRole::Member, "a").unwrap();
    let source = ports::PortSource::Authority(vec!["localhost".into()]);
    let wanted = ports::PortCertificate {
        port: "resp",
        source,
        client_ca: Some(("--resp-tls-client-ca", ca.clone())),
        min: Default::default(),
    };
    let ports = Arc::new(Ports::new(&node, wanted).unwrap());
    node.keep_ports(&ports);
    write(&[1, 2]);
    node.refresh();
    assert_eq!(
        node.ports_behind(),
        Vec::<String>::new(),
        "the first one signs"
    );

    std::fs::write(&ca, "nothing").unwrap();
    write(&[2, 1]);
    for _ in 0..2 {
        node.refresh();
        assert_eq!(node.fingerprints()[0], line(2).fingerprint());
        let behind = node.ports_behind();
        assert!(
            behind.len() == 1 && behind[0].contains("--resp-tls-client-ca"),
            "{behind:?}"
        );
    }
    std::fs::write(&ca, &good).unwrap();
    node.refresh();
    assert_eq!(node.ports_behind(), Vec::<String>::new());
}

#[test]
fn a_rotation_away_from_32_bytes_without_a_prefix_works() {
    let bare = Secrets::parse(HEX.as_bytes()).unwrap().first().clone();
    let steps = [
        vec![bare.clone()],
        vec![bare.clone(), line(9)],
        vec![line(9), bare],
        vec![line(9)],
    ];
    let node = |lines: &[Line], name| {
        Identity::of_secrets(
            Secrets::new(lines.to_vec()).unwrap(),
            None,
            SecretRole::Member,
            name,
        )
        .unwrap()
    };
    for pair in steps.windows(2) {
        for (a, b) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            connect((&node(a, "a"), false), &node(b, "b")).unwrap();
        }
    }
}

#[test]
#[ignore = "measures"]
fn handshakes_cost() {
    let (server, dialler) = (member(&[1], "a"), member(&[1], "b"));
    let begun = std::time::Instant::now();
    for _ in 0..1000 {
        connect((&dialler, false), &server).unwrap();
    }
    println!("1000 handshakes, both ends: {:?}", begun.elapsed());
    let begun = std::time::Instant::now();
    let phrase = Secrets::parse(b"a phrase that no test has stretched").unwrap();
    println!(
        "{} stretched in {:?}",
        phrase.first().fingerprint(),
        begun.elapsed()
    );
}
