//! The configuration of TLS for both ends of a connection.
//!
//! A server answers strangers first, so with secrets its certificate says nothing: it is signed by
//! its own random key, and the server names no authority. Only a dialler that is trusted gets the
//! server's [`Tls::card`], in the hello. PEM files are shown to everybody, as HTTPS servers do.

use super::IdentityError;
use super::authority::{self, Authority};
use super::certificate::{UnixTimestamp, end_of};
use super::secret::{Line, SecretRole, Secrets, sha256};
use super::trust::{End, Pem, TrustStore, Voucher, for_tls};
use super::{ALPN, Validity, unusable};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rcgen::KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::str::FromStr;
use std::sync::Arc;

/// The least version of TLS that clients may speak: `1.3` (the default) or `1.2`.
///
/// ```
/// use doyen::config::value::TlsMin;
///
/// assert_eq!("1.2".parse(), Ok(TlsMin::V12));
/// assert!("1.1".parse::<TlsMin>().is_err(), "it is broken");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMin {
    /// TLS 1.2, for clients that know no other: with forward secrecy and AEAD ciphers alone.
    V12,
    /// TLS 1.3.
    #[default]
    V13,
}

impl FromStr for TlsMin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1.2" => Ok(Self::V12),
            "1.3" => Ok(Self::V13),
            _ => Err(format!(
                "`{text}` is not a version of TLS that is spoken: give 1.2 or 1.3"
            )),
        }
    }
}

/// The configuration of both ends at one time.
pub struct Tls {
    /// For incoming connections.
    pub server: Arc<QuicServerConfig>,
    /// For outgoing connections.
    pub client: Arc<QuicClientConfig>,
    pub(super) trust: Arc<TrustStore>,
    /// With secrets: the certificate of a server, which it shows in its hello.
    pub(super) card: Option<CertificateDer<'static>>,
    /// When this node's certificate must be made again; `None`: never.
    pub(super) validity: Option<Validity>,
    /// When the first certificate of this node's chain ends; `None` if no certificate tells.
    pub(super) ends: Option<UnixTimestamp>,
    /// The fingerprints of the secrets, the one that signs first.
    pub(super) fingerprints: Vec<String>,
    /// The SHA-256 of the tokens of operators.
    pub(super) operator_hashes: Vec<[u8; 32]>,
    #[cfg(test)]
    pub(super) raw: (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>),
    #[cfg(test)]
    pub(super) shown: Arc<Shown>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// The certificates that a process shows.
#[derive(Debug)]
pub(super) struct Shown {
    /// To servers.
    pub(super) dialler: Arc<CertifiedKey>,
    /// To diallers.
    server: Arc<CertifiedKey>,
}

impl Tls {
    /// From secrets, for a process with this role, name and key. Slow for phrases.
    pub(super) fn of_secrets(
        secrets: &Secrets,
        (role, name): (SecretRole, &str),
        key: &KeyPair,
        time: Arc<dyn TimeProvider>,
    ) -> Result<Self, IdentityError> {
        let validity = Validity::from_now(time.as_ref())?;
        let mut vouchers = Vec::new();
        let mut operator_hashes = Vec::new();
        for line in secrets.lines() {
            vouchers.extend(vouched_for(line)?);
            operator_hashes.extend(line.token().map(|token| hash_of(token.as_bytes())));
            if let Some(secret) = line.former() {
                operator_hashes.push(hash_of(authority::former_token(secret).as_bytes()));
            }
        }
        let signer = signer(secrets.first(), role)?;
        let card = signer.issue(key, role, name, validity.times())?;
        let shown = Shown {
            dialler: certified(vec![card.clone()], key)?,
            server: certified(vec![authority::anonymous(key)?], key)?,
        };
        let trust = Arc::new(TrustStore::Secrets(vouchers));
        Ok(Self {
            ends: end_of(&card),
            card: (role == SecretRole::Member).then_some(card),
            validity: Some(validity),
            fingerprints: secrets.lines().iter().map(Line::fingerprint).collect(),
            operator_hashes,
            ..Self::new(trust, shown, time)?
        })
    }

    /// From the operator's authority, and a chain with its key.
    pub(super) fn of_pem(
        pem: Pem,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        time: Arc<dyn TimeProvider>,
    ) -> Result<Self, IdentityError> {
        let ends = chain.iter().filter_map(end_of).min();
        let key = provider()
            .key_provider
            .load_private_key(key)
            .map_err(unusable)?;
        let shown = Arc::new(CertifiedKey::new(chain, key));
        let shown = Shown {
            dialler: shown.clone(),
            server: shown,
        };
        Ok(Self {
            ends,
            ..Self::new(Arc::new(TrustStore::Pem(pem)), shown, time)?
        })
    }

    fn new(
        trust: Arc<TrustStore>,
        shown: Shown,
        time: Arc<dyn TimeProvider>,
    ) -> Result<Self, IdentityError> {
        let shown = Arc::new(shown);
        let judge = Arc::new(Judge {
            trust: trust.clone(),
            provider: provider(),
        });
        let mut server = rustls::ServerConfig::builder_with_details(provider(), time.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(judge.clone())
            .with_cert_resolver(shown.clone());
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.max_early_data_size = 0;
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});

        let mut client = rustls::ClientConfig::builder_with_details(provider(), time)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(judge)
            .with_client_cert_resolver(shown.clone());
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.enable_early_data = false;
        client.resumption = Resumption::disabled();
        Ok(Self {
            #[cfg(test)]
            raw: (Arc::new(server.clone()), Arc::new(client.clone())),
            #[cfg(test)]
            shown,
            server: Arc::new(QuicServerConfig::try_from(server).map_err(unusable)?),
            client: Arc::new(QuicClientConfig::try_from(client).map_err(unusable)?),
            trust,
            card: None,
            validity: None,
            ends: None,
            fingerprints: Vec::new(),
            operator_hashes: Vec::new(),
        })
    }
}

/// The authorities that the holder of a line accepts. A client accepts members only.
fn vouched_for(line: &Line) -> Result<Vec<Voucher>, IdentityError> {
    let voucher = |role, anchor| Voucher { role, anchor };
    let members = voucher(
        SecretRole::Member,
        authority::member_anchor(&line.member_public_key()),
    );
    let Some(keys) = line.keys() else {
        return Ok(vec![members]);
    };
    let clients = Authority::of(SecretRole::Client, &keys.client)?;
    Ok(vec![
        members,
        voucher(SecretRole::Client, clients.anchor().clone()),
    ])
}

/// The authority that signs the certificate of a process that has this line.
fn signer(line: &Line, role: SecretRole) -> Result<Authority, IdentityError> {
    let seed = match role {
        SecretRole::Member => line.keys().map(|keys| keys.member),
        SecretRole::Client => line.client_key(),
        SecretRole::Operator => None,
    };
    let refused = || IdentityError::OtherRole {
        file: line.role(),
        wanted: role,
    };
    Authority::of(role, &seed.ok_or_else(refused)?)
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.server.clone())
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(
        &self,
        _authorities: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        Some(self.dialler.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Judges the certificates of others in the handshake. Names and roles are judged with the hello.
#[derive(Debug)]
pub(super) struct Judge {
    trust: Arc<TrustStore>,
    provider: Arc<CryptoProvider>,
}

#[cfg(feature = "http")]
impl Judge {
    /// Accepts what one of these authorities signed, under any name.
    pub(super) fn of_anchors(anchors: Vec<rustls_pki_types::TrustAnchor<'static>>) -> Self {
        let pem = Pem {
            anchors,
            crls: Vec::new(),
            role_prefix: String::new(),
        };
        Self {
            trust: Arc::new(TrustStore::Pem(pem)),
            provider: provider(),
        }
    }
}

impl ClientCertVerifier for Judge {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // The names of authorities are derived from secrets, and strangers would see them.
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.trust
            .accepts((leaf, intermediates), End::Dialler, now)
            .map(|()| ClientCertVerified::assertion())
            .map_err(for_tls)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Servers are accepted under any name: the hello says who a server is, and addresses do not.
impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.trust.as_ref() {
            // The server's certificate comes with its hello. Nothing but our hello is sent before.
            TrustStore::Secrets(_) => {}
            TrustStore::Pem(pem) => pem
                .accepts((leaf, intermediates), End::Server, now)
                .map_err(for_tls)?,
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ClientCertVerifier::verify_tls12_signature(self, message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ClientCertVerifier::verify_tls13_signature(self, message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ClientCertVerifier::supported_verify_schemes(self)
    }
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: &KeyPair,
) -> Result<Arc<CertifiedKey>, IdentityError> {
    let key = provider()
        .key_provider
        .load_private_key(PrivateKeyDer::Pkcs8(authority::pkcs8(key)))
        .map_err(unusable)?;
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}

/// AES-128 comes first: it is the fastest with hardware support, and QUIC's initial packets need it
/// anyway.
pub(super) fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::ring;
    use std::sync::LazyLock;
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            cipher_suites: vec![
                ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
                ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
                ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
            ..ring::default_provider()
        })
    });
    PROVIDER.clone()
}

/// The same, with the ciphers of TLS 1.2 that have forward secrecy.
#[cfg(any(feature = "http", feature = "resp"))]
pub(super) fn provider_of_tls12() -> Arc<CryptoProvider> {
    use rustls::crypto::ring;
    let own = CryptoProvider::clone(&provider());
    let others = ring::ALL_CIPHER_SUITES.iter();
    let others = others.filter(|suite| suite.tls13().is_none()).copied();
    Arc::new(CryptoProvider {
        cipher_suites: own.cipher_suites.iter().copied().chain(others).collect(),
        ..own
    })
}

/// The SHA-256 of a token of HTTP.
pub(crate) fn hash_of(token: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(sha256(token).as_ref());
    hash
}
