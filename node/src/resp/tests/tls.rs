//! Clients that speak TLS.

use super::*;
use crate::net::identity::Identity;
use crate::net::identity::TlsMin;
use crate::net::identity::ports::{PortCertificate, PortSource, Ports};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};

type TlsStream = StreamOwned<ClientConnection, std::net::TcpStream>;

/// An authority of a test.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

/// A PEM certificate and its PEM key.
type Pair = (String, String);

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// A certificate with this name in its subject, and as its host.
    fn issue(&self, name: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A node whose ports speak TLS.
struct Secured {
    node: Node,
    identity: Identity,
    authority: Authority,
    dir: tempfile::TempDir,
}

impl Secured {
    fn start(clients: Option<&Authority>, auth_timeout: Option<Duration>) -> Self {
        Self::speaking(TlsMin::default(), clients, auth_timeout)
    }

    fn speaking(min: TlsMin, clients: Option<&Authority>, auth_timeout: Option<Duration>) -> Self {
        let (authority, dir) = (Authority::new(), tempfile::tempdir().unwrap());
        let at = |name: &str| dir.path().join(name);
        let client_ca = clients.map(|clients| {
            std::fs::write(at("clients.pem"), clients.certificate.pem()).unwrap();
            ("--resp-tls-client-ca", at("clients.pem"))
        });
        write(&dir, &authority.issue("localhost"));
        let source = PortSource::Files {
            cert: ("--resp-tls-cert", at("cert.pem")),
            key: ("--resp-tls-key", at("key.pem")),
        };
        let identity = Identity::insecure_loopback("n1").unwrap();
        let wanted = PortCertificate {
            port: "resp",
            source,
            client_ca,
            min,
        };
        let ports = Arc::new(Ports::new(&identity, wanted).unwrap());
        identity.keep_ports(&ports);
        let node = Node::secured(ports, auth_timeout);
        Self {
            node,
            identity,
            authority,
            dir,
        }
    }

    /// Connects in TLS as a client that trusts this authority, and may show a certificate.
    async fn connect(
        &self,
        trusted: &Authority,
        shown: Option<Pair>,
    ) -> Result<TlsStream, std::io::Error> {
        let version = &rustls::version::TLS13;
        self.connect_by(version, trusted, shown).await
    }

    async fn connect_by(
        &self,
        version: &'static rustls::SupportedProtocolVersion,
        trusted: &Authority,
        shown: Option<Pair>,
    ) -> Result<TlsStream, std::io::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.certificate.der().clone()).unwrap();
        let config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots);
        let config = match shown {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => config
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap(),
        };
        let at = self.node.resp;
        tokio::task::spawn_blocking(move || {
            let name = ServerName::try_from("localhost").unwrap();
            let tls = ClientConnection::new(Arc::new(config), name).unwrap();
            let mut stream = StreamOwned::new(tls, std::net::TcpStream::connect(at)?);
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock)?;
            }
            Ok(stream)
        })
        .await
        .unwrap()
    }

    async fn client(&self) -> TlsStream {
        self.connect(&self.authority, None).await.unwrap()
    }
}

fn write(dir: &tempfile::TempDir, (certificate, key): &Pair) {
    std::fs::write(dir.path().join("cert.pem"), certificate).unwrap();
    std::fs::write(dir.path().join("key.pem"), key).unwrap();
}

/// Sends, and reads `answer_len` bytes. Both at once, as clients of long pipelines do, unless the
/// client is to read only once all is sent.
async fn exchange(mut stream: TlsStream, sent: Vec<u8>, answer_len: usize) -> (TlsStream, Vec<u8>) {
    tokio::task::spawn_blocking(move || {
        stream.write_all(&sent).unwrap();
        let mut answer = vec![0; answer_len];
        stream.read_exact(&mut answer).unwrap();
        (stream, answer)
    })
    .await
    .unwrap()
}

/// The certificate that a client was shown.
fn shown(stream: &TlsStream) -> Vec<u8> {
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n", key.len());
    let value = [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
    [head.into_bytes(), value].concat()
}

#[tokio::test]
async fn commands_and_large_values_come_and_go_in_tls() {
    let secured = Secured::start(None, None);
    let client = secured.client().await;
    let (client, answer) = exchange(client, b"PING\r\n".repeat(2_000), 7 * 2_000).await;
    assert_eq!(answer, b"+PONG\r\n".repeat(2_000));
    // Many records, more than the socket takes at once.
    let value: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (client, answer) = exchange(client, set("large", &value), 5).await;
    assert_eq!(answer, b"+OK\r\n");
    let one = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let (client, answer) = exchange(client, b"GET large\r\n".repeat(5), one.len() * 5).await;
    assert!(answer == one.repeat(5), "five times the same value");
    // The end comes in order: the answer, then the end of TLS, and not just of TCP.
    let (mut client, answer) = exchange(client, b"QUIT\r\n".to_vec(), 5).await;
    assert_eq!(answer, b"+OK\r\n");
    let end = tokio::task::spawn_blocking(move || client.read(&mut [0; 1]));
    assert_eq!(end.await.unwrap().unwrap(), 0);
    secured.node.stop().await;
}

#[tokio::test]
async fn both_ports_speak_tls_and_nothing_else() {
    let secured = Secured::start(None, None);
    let client = secured.client().await;
    for port in [secured.node.resp, secured.node.cluster] {
        // It gets words, not the bytes of an alert.
        let told = raw(port, b"PING\r\n").await;
        assert!(told.starts_with("-ERR this port speaks TLS"), "{told}");
        // Bytes that look like the beginning of a handshake.
        let told = raw(port, &[&[22, 3, 1, 0, 200, 1, 0][..], &[7; 198]].concat()).await;
        assert!(!told.contains("PONG"), "{told}");
    }
    // A client that does not know the authority gives up, which disturbs no other.
    let stranger = secured.connect(&Authority::new(), None).await;
    assert!(stranger.is_err());
    let (_, answer) = exchange(client, b"PING\r\n".to_vec(), 7).await;
    assert_eq!(answer, b"+PONG\r\n");
    secured.node.stop().await;
}

/// Regression: 201 refused clients left no line, and no count.
#[tokio::test]
async fn tls_1_2_is_spoken_if_it_is_asked_for_and_refused_handshakes_are_counted() {
    let (v12, v13) = (&rustls::version::TLS12, &rustls::version::TLS13);
    for (min, versions) in [(TlsMin::V13, &[v13][..]), (TlsMin::V12, &[v12, v13])] {
        let clients = Authority::new();
        let secured = Secured::speaking(min, Some(&clients), None);
        for version in [v12, v13] {
            let shown = Some(clients.issue("bob"));
            let client = secured.connect_by(version, &secured.authority, shown).await;
            assert_eq!(
                client.is_ok(),
                versions.contains(&version),
                "{min:?} {version:?}"
            );
            if let Ok(client) = client {
                let (_, answer) = exchange(client, b"PING\r\n".to_vec(), 7).await;
                assert_eq!(answer, b"+PONG\r\n");
            }
        }
        let refused = 2 - versions.len() as u64;
        assert_eq!(secured.identity.handshakes_failed(), [("resp", refused)]);
        raw(secured.node.cluster, b"PING\r\n").await;
        assert_eq!(
            secured.identity.handshakes_failed(),
            [("resp", refused + 1)]
        );
        secured.node.stop().await;
    }
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_ends() {
    let limit = Duration::from_millis(300);
    let secured = Secured::start(None, Some(limit));
    let client = secured.client().await;
    let mut silent = TcpStream::connect(secured.node.resp).await.unwrap();
    silent.write_all(&[22, 3, 1]).await.unwrap();
    let mut told = Vec::new();
    let _ = silent.read_to_end(&mut told).await;
    assert_eq!(told, b"");
    assert_eq!(secured.node.handle.stats().await.front.auth_timeouts, 1);
    // There is no password, so who has finished the handshake may stay.
    let (_, answer) = exchange(client, b"PING\r\n".to_vec(), 7).await;
    assert_eq!(answer, b"+PONG\r\n");
    secured.node.stop().await;
}

#[tokio::test]
async fn certificates_of_clients_must_be_of_their_authority() {
    let clients = Authority::new();
    let secured = Secured::start(Some(&clients), None);
    for shown in [None, Some(clients.issue("bob"))] {
        let client = secured.connect(&secured.authority, shown).await.unwrap();
        let (_, answer) = exchange(client, b"PING\r\n".to_vec(), 7).await;
        assert_eq!(answer, b"+PONG\r\n");
    }
    let foreign = Some(Authority::new().issue("bob"));
    // In TLS 1.3, the client learns it only when it reads.
    let client = secured.connect(&secured.authority, foreign).await;
    if let Ok(mut client) = client {
        let read = tokio::task::spawn_blocking(move || client.read(&mut [0; 1]));
        let refused = read.await.unwrap();
        assert!(refused.is_err(), "{refused:?}");
    }
    secured.node.stop().await;
}

#[tokio::test]
async fn the_name_in_a_certificate_is_the_user_if_that_may_log_in() {
    let clients = Authority::new();
    let secured = Secured::start(Some(&clients), None);
    let users = b"ACL SETUSER bob on +get +acl|whoami ~b*\r\nACL SETUSER out off >pw +@all ~*\r\n";
    let admin = secured.client().await;
    let (_, answer) = exchange(admin, users.to_vec(), 10).await;
    assert_eq!(answer, b"+OK\r\n+OK\r\n");
    for (name, user) in [("bob", "bob"), ("out", "default"), ("none", "default")] {
        let shown = Some(clients.issue(name));
        let client = secured.connect(&secured.authority, shown).await.unwrap();
        let expected = format!("${}\r\n{user}\r\n", user.len()).into_bytes();
        let (client, answer) = exchange(client, b"ACL WHOAMI\r\n".to_vec(), expected.len()).await;
        assert_eq!(answer, expected, "{name}");
        let expected: &[u8] = if user == "bob" {
            b"-NOPERM"
        } else {
            b"+OK\r\n"
        };
        let (_, answer) = exchange(client, set("b", b"1"), expected.len()).await;
        assert_eq!(answer, expected, "{name}");
    }
    // The same name, signed by an authority that was not named, is refused.
    let shown = Some(secured.authority.issue("bob"));
    if let Ok(mut client) = secured.connect(&secured.authority, shown).await {
        let read = tokio::task::spawn_blocking(move || client.read(&mut [0; 1]));
        assert!(read.await.unwrap().is_err());
    }
    secured.node.stop().await;
}

#[tokio::test]
async fn changed_files_are_used_for_new_connections_and_broken_ones_are_not() {
    let secured = Secured::start(None, None);
    let before = secured.client().await;
    std::fs::write(secured.dir.path().join("cert.pem"), "nothing").unwrap();
    secured.identity.refresh();
    let still = secured.client().await;
    assert_eq!(shown(&before), shown(&still));
    write(&secured.dir, &secured.authority.issue("localhost"));
    secured.identity.refresh();
    let after = secured.client().await;
    assert_ne!(shown(&before), shown(&after));
    // Who is connected stays connected.
    for client in [before, still, after] {
        let (_, answer) = exchange(client, b"PING\r\n".to_vec(), 7).await;
        assert_eq!(answer, b"+PONG\r\n");
    }
    secured.node.stop().await;
}
