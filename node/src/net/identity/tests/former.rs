//! Nodes and clients of version 14 of the wire, which know only the former scheme.

use super::*;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;

/// A process of version 14: it has one certificate for everything, and knows one authority.
struct Old {
    client: Arc<rustls::ClientConfig>,
    server: Arc<rustls::ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
}

fn old(secret: &[u8], role: Role, name: &str) -> Old {
    let authority = Authority::former(secret).unwrap();
    let key = authority::new_key().unwrap();
    let chain = vec![authority.issue_former(&key, role, name).unwrap()];
    let key = || PrivateKeyDer::Pkcs8(authority::pkcs8(&key));
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    let roots = Arc::new(roots);
    let provider = tls::provider();
    let of_clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .unwrap();
    let of_servers = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    let versions = &[&rustls::version::TLS13];
    let mut server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .unwrap()
        .with_client_cert_verifier(of_clients)
        .with_single_cert(chain.clone(), key())
        .unwrap();
    server.alpn_protocols = vec![ALPN.to_vec()];
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_webpki_verifier(of_servers.unwrap())
        .with_client_auth_cert(chain.clone(), key())
        .unwrap();
    client.alpn_protocols = vec![ALPN.to_vec()];
    Old {
        client: Arc::new(client),
        server: Arc::new(server),
        chain,
    }
}

/// Both ends of a handshake of version 14.
pub(super) fn pair() -> (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>) {
    let old = old(HEX.as_bytes(), Role::Member, "old");
    (old.client, old.server)
}

fn claim(name: &str, client: bool, dialled: bool) -> Claim<'_> {
    Claim {
        name,
        client,
        card: None,
        dialled,
    }
}

#[test]
fn nodes_of_version_14_are_spoken_with_in_their_way() {
    let new = Identity::from_secret(HEX.as_bytes(), "new").unwrap();
    for role in [Role::Member, Role::Client] {
        let old = old(HEX.as_bytes(), role, "old");
        let is_client = role == Role::Client;
        // It dials: it verifies the server by its authority and by the name that it asks for.
        let (_, shaken) = shake(&old.client, &new.tls().raw.0, authority::FORMER_MEMBER);
        let shaken = shaken.unwrap();
        assert!(bears(&shaken.of_server[0], &dns_name("new")));
        new.recognize(&shaken.of_client, &claim("old", is_client, false))
            .unwrap();
        let other = new.recognize(&shaken.of_client, &claim("old", !is_client, false));
        assert!(matches!(other, Err(Failure::Hello(why)) if why.contains("does not name")));
    }
    // It is dialled.
    let old_server = old(HEX.as_bytes(), Role::Member, "old");
    for (name, role) in [("new", Role::Member), ("c", Role::Client)] {
        let secrets = Secrets::parse(HEX.as_bytes()).unwrap();
        let new = Identity::of_secrets(secrets, None, role, name).unwrap();
        let (_, shaken) = shake(&new.tls().raw.1, &old_server.server, SERVER_NAME);
        let shaken = shaken.unwrap();
        assert!(bears(&shaken.of_client[0], former_role(role)));
        assert!(bears(&shaken.of_client[0], &dns_name(name)));
        new.recognize(&shaken.of_server, &claim("old", false, true))
            .unwrap();
    }
    // A client of version 14 is no server.
    let of_client = old(HEX.as_bytes(), Role::Client, "old");
    let refusal = new.recognize(&of_client.chain, &claim("old", false, true));
    assert!(matches!(refusal, Err(Failure::Hello(why)) if why.contains("as a member")));
}

#[test]
fn phrases_and_prefixed_secrets_have_no_former_scheme() {
    let phrase: &[u8] = b"a phrase of the tests of version 14";
    let old = old(phrase, Role::Member, "old");
    for new in [
        Identity::from_secret(phrase, "new").unwrap(),
        member(&[1], "new"),
    ] {
        let (_, shaken) = shake(&old.client, &new.tls().raw.0, authority::FORMER_MEMBER);
        assert!(shaken.is_err());
        let (_, shaken) = shake(&new.tls().raw.1, &old.server, SERVER_NAME);
        assert!(shaken.is_err());
    }
}

#[test]
fn a_rotation_away_from_the_former_scheme_works() {
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
            Role::Member,
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
fn nodes_without_a_secret_talk_across_versions() {
    let new = Identity::insecure_loopback("new").unwrap();
    let old = old(NO_SECRET, Role::Member, "old");
    let (_, shaken) = shake(&old.client, &new.tls().raw.0, authority::FORMER_MEMBER);
    new.recognize(&shaken.unwrap().of_client, &claim("old", false, false))
        .unwrap();
    let (_, shaken) = shake(&new.tls().raw.1, &old.server, SERVER_NAME);
    new.recognize(&shaken.unwrap().of_server, &claim("old", false, true))
        .unwrap();
    connect((&Identity::insecure_client("c").unwrap(), true), &new).unwrap();
}
