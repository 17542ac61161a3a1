//! What a stranger sees of a node by dialling it, and what that says of the secret.

use super::*;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, SignatureScheme};

const WORDS: [&str; 6] = [
    "password password",
    "0123456789abcdef",
    "correct horse battery staple",
    "the phrase of this cluster",
    "letmein letmein letmein",
    "doyen doyen doyen doyen",
];
/// The phrase of the cluster, which is in the list.
const RIGHT: &str = WORDS[3];

/// A stranger, who accepts every server and shows a certificate of their own.
#[derive(Debug)]
struct Stranger(Arc<CertifiedKey>);

impl ResolvesClientCert for Stranger {
    fn resolve(
        &self,
        _authorities: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ServerCertVerifier for Stranger {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        tls::provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// All bytes that a node says to a stranger who asks for this name.
fn heard_by_stranger(node: &Identity, name: &str) -> Vec<u8> {
    let stranger = Arc::new(Stranger(
        member(&[77], "stranger").tls().shown.dialler.clone(),
    ));
    let mut config = rustls::ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(stranger.clone())
        .with_client_cert_resolver(stranger);
    config.alpn_protocols = vec![ALPN.to_vec()];
    let (heard, shaken) = shake(&Arc::new(config), &node.tls().raw.0, name);
    assert!(shaken.is_err(), "a stranger is refused");
    heard
}

/// Whether the bytes contain anything that is derived from this guess, or are
/// signed by a key that is.
fn can_be_told(heard: &[u8], guess: &str) -> bool {
    let line = Secrets::parse(guess.as_bytes()).unwrap().first().clone();
    let keys = line.keys().unwrap();
    let authorities = [
        Authority::of(SecretRole::Member, &keys.member).unwrap(),
        Authority::of(SecretRole::Client, &keys.client).unwrap(),
    ];
    let mut derived: Vec<Vec<u8>> = vec![
        line.fingerprint().into_bytes(),
        keys.member.expose().to_vec(),
        keys.client.expose().to_vec(),
        keys.token.as_bytes().to_vec(),
    ];
    for authority in &authorities {
        let anchor = authority.anchor();
        derived.push(anchor.subject.to_vec());
        // The bare key, without what all Ed25519 keys have before it.
        derived.push(anchor.subject_public_key_info[10..].to_vec());
    }
    let contains = |part: &[u8]| heard.windows(part.len()).any(|window| window == part);
    let signed = certificates_in(heard).any(|certificate| {
        authorities.iter().any(|authority| {
            let voucher = Voucher {
                role: SecretRole::Member,
                anchor: authority.anchor().clone(),
            };
            found(&[voucher], &certificate, End::Server, UnixTime::now()).is_ok()
        })
    });
    signed || derived.iter().any(|part| contains(part))
}

/// Every part of the bytes that can be read as a certificate.
fn certificates_in(heard: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
    (0..heard.len()).filter_map(|at| {
        // A sequence whose length has one byte or two.
        let (head, length) = match heard[at..] {
            [0x30, 0x81, length, ..] => (3, usize::from(length)),
            [0x30, 0x82, high, low, ..] => (4, usize::from(u16::from_be_bytes([high, low]))),
            _ => return None,
        };
        let bytes = heard.get(at..at + head + length)?.to_vec();
        let certificate = CertificateDer::from(bytes);
        certificate::end_of(&certificate)?;
        Some(certificate)
    })
}

#[test]
fn guesses_cannot_be_checked_against_what_a_stranger_sees() {
    let node = Identity::from_secret(RIGHT.as_bytes(), "a").unwrap();
    for name in [SERVER_NAME, "node.doyen.internal", "example.com"] {
        let heard = heard_by_stranger(&node, name);
        assert!(
            certificates_in(&heard).count() > 0,
            "it does show a certificate"
        );
        for guess in WORDS {
            assert!(!can_be_told(&heard, guess), "{guess} for {name}");
        }
    }
}

/// Regression: 32 bytes without a prefix were shown in the way of version 14 to those who asked for
/// it.
#[test]
fn no_name_that_is_asked_for_shows_more_of_32_bytes() {
    let node = Identity::from_secret(HEX.as_bytes(), "a").unwrap();
    for name in [SERVER_NAME, "node.doyen.internal"] {
        let heard = heard_by_stranger(&node, name);
        assert!(!can_be_told(&heard, HEX), "{name}");
        assert_eq!(certificates_in(&heard).count(), 1, "{name}");
    }
}

/// The control: the certificate of a node that dials a stranger can be checked, as the
/// documentation says.
#[test]
fn a_dialler_s_certificate_can_be_checked() {
    let node = Identity::from_secret(RIGHT.as_bytes(), "a").unwrap();
    let shown = node.tls().shown.dialler.cert[0].clone();
    assert!(can_be_told(&shown, RIGHT) && !can_be_told(&shown, WORDS[0]));
}
