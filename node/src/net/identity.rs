//! Identities: the cluster's certificate authority, and this node's certificate.
//!
//! Usually there is one shared secret. Every node derives the same private authority from it, in
//! memory, and issues itself a certificate that names the cluster, the node and its role:
//!
//! ```text
//!   secret ──HKDF──> Ed25519 seed ──> authority (same bytes on every node) ──signs──> certificate
//! ```
//!
//! The other way is PEM files, which are read again when they change. Both ends of every connection
//! demand a certificate of their own authority. [`Identity::names`] compares it with the name in a
//! peer's hello.

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Secrets shorter than this are refused.
pub const SECRET_BYTES_MIN: usize = 16;
/// The protocol that both sides of every connection must speak.
pub const ALPN: &[u8] = b"doyen/1";
/// The name that every dial asks for. Certificates derived from a secret have it as their role.
pub const ROLE: &str = "node.doyen.internal";
/// The token of a node without a secret, which listens on loopback only.
pub const LOCAL_TOKEN: &str = "loopback";
/// The role in certificates of clients.
const CLIENT_ROLE: &str = "client.doyen.internal";

/// How often PEM files are checked for changes, if there are connections.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// Used if there is no secret. It keeps no stranger out, so such nodes bind to loopback.
const NO_SECRET: &[u8] = b"doyen without a secret: loopback only";
/// The time at which certificates from a secret are checked, so that wall clocks do not matter:
/// 2020-01-01.
const TIME_FIXED: Duration = Duration::from_secs(1_577_836_800);

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The secret is too short.
    #[error(
        "the secret has {0} bytes; it needs at least {SECRET_BYTES_MIN}: make one with `head -c \
         32 /dev/urandom | base64`"
    )]
    ShortSecret(usize),
    /// A PEM file is unusable for its flag.
    #[error("{flag} {}: {why}", path.display())]
    File {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The certificate does not belong to the key.
    #[error(
        "--tls-cert {} and --tls-key {} do not belong together: give the key of that certificate",
        cert.display(),
        key.display()
    )]
    OtherKey {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The key or the certificates cannot be used.
    #[error("the certificate or key cannot be used: {0}")]
    Unusable(String),
}

/// This node's credentials, and the authority that it accepts.
#[derive(Debug)]
pub struct Identity {
    name: String,
    source: Source,
    loopback_only: bool,
    http_token: Option<String>,
    /// A lock, because both network threads read it. It is held for a copy of two pointers, or for
    /// a reload.
    current: Mutex<Current>,
}

#[derive(Debug)]
enum Source {
    Secret,
    Files(Files),
}

#[derive(Debug)]
struct Files {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

#[derive(Debug)]
struct Current {
    tls: Arc<Tls>,
    checked: Instant,
    modified: Vec<Option<SystemTime>>,
    reloads: u64,
    reloads_failed: u64,
}

impl Current {
    fn new(tls: Tls, modified: Vec<Option<SystemTime>>) -> Mutex<Self> {
        Mutex::new(Self {
            tls: Arc::new(tls),
            checked: Instant::now(),
            modified,
            reloads: 0,
            reloads_failed: 0,
        })
    }
}

/// The configuration of both sides at one time.
#[derive(Clone)]
pub struct Tls {
    /// For incoming connections.
    pub server: Arc<QuicServerConfig>,
    /// For outgoing connections.
    pub client: Arc<QuicClientConfig>,
    /// When the first certificate of this node's chain ends; `None` if no certificate tells.
    ends: Option<UnixTimestamp>,
}

/// Seconds since 1970.
type UnixTimestamp = i64;

/// What is known of a node's certificate, for monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CertificateReport {
    /// When the first certificate of this node's chain ends, in Unix seconds; `None` if no
    /// certificate tells. With a secret that is far in the future and never checked. The
    /// authority's own end is never checked (webpki).
    pub ends: Option<i64>,
    /// How often changed files came into force.
    pub reloads: u64,
    /// How often changed files could not be used.
    pub reloads_failed: u64,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Identity {
    /// An identity from the cluster's shared secret.
    ///
    /// # Errors
    /// The secret is shorter than [`SECRET_BYTES_MIN`].
    pub fn from_secret(secret: &[u8], name: &str) -> Result<Self, IdentityError> {
        Self::with_role(secret, name, ROLE)
    }

    /// A client's identity, from the cluster's shared secret.
    ///
    /// # Errors
    /// The secret is shorter than [`SECRET_BYTES_MIN`].
    pub fn of_client(secret: &[u8], name: &str) -> Result<Self, IdentityError> {
        Self::with_role(secret, name, CLIENT_ROLE)
    }

    fn with_role(secret: &[u8], name: &str, role: &str) -> Result<Self, IdentityError> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(IdentityError::ShortSecret(secret.len()));
        }
        let authority = Authority::derive(secret)?;
        let (chain, key) = authority.issue(name, role)?;
        let tls = Tls::new(&[authority.certificate], chain, key, Arc::new(FixedTime))?;
        Ok(Self {
            name: name.to_owned(),
            source: Source::Secret,
            http_token: Some(hex(&expand(secret, "http"))),
            loopback_only: false,
            current: Current::new(tls, Vec::new()),
        })
    }

    /// An identity without a secret: every process on this machine may talk. The caller must bind
    /// only to loopback addresses.
    ///
    /// # Errors
    /// None in practice: the fixed secret is long enough.
    pub fn insecure_loopback(name: &str) -> Result<Self, IdentityError> {
        Self::from_secret(NO_SECRET, name).map(|identity| Self {
            http_token: None,
            loopback_only: true,
            ..identity
        })
    }

    /// A client's identity without a secret, for nodes on this machine that have none either.
    ///
    /// # Errors
    /// As for [`Identity::insecure_loopback`].
    pub fn insecure_client(name: &str) -> Result<Self, IdentityError> {
        Self::of_client(NO_SECRET, name).map(|identity| Self {
            loopback_only: true,
            ..identity
        })
    }

    /// An identity from PEM files: the authority's certificates, this node's chain, and its key.
    /// The files are read again when they change. The certificate must be valid for clients and
    /// servers, and name the node or its host.
    ///
    /// # Errors
    /// A file cannot be read, or has nothing usable.
    pub fn from_pem(ca: &Path, cert: &Path, key: &Path, name: &str) -> Result<Self, IdentityError> {
        let files = Files {
            ca: ca.to_owned(),
            cert: cert.to_owned(),
            key: key.to_owned(),
        };
        let modified = files.modified();
        let tls = files.load()?;
        Ok(Self {
            name: name.to_owned(),
            source: Source::Files(files),
            http_token: None,
            loopback_only: false,
            current: Current::new(tls, modified),
        })
    }

    /// This node's name, as in its certificate and its hellos.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it proves nothing, so that its process talks only to this machine.
    #[must_use]
    pub const fn is_loopback_only(&self) -> bool {
        self.loopback_only
    }

    /// The token that HTTP requires for changes, as hex; empty if there is no secret to derive it
    /// from.
    #[must_use]
    pub fn http_token(&self) -> String {
        self.http_token.clone().unwrap_or_default()
    }

    /// The basic configuration for accepting. `endpoint` adds limits and the transport.
    #[must_use]
    pub fn server_config(&self) -> quinn::ServerConfig {
        quinn::ServerConfig::with_crypto(self.tls().server.clone())
    }

    /// The basic configuration for dialling. `endpoint` adds limits and the transport.
    #[must_use]
    pub fn client_config(&self) -> quinn::ClientConfig {
        quinn::ClientConfig::new(self.tls().client.clone())
    }

    /// The configuration in force; another pointer after PEM files changed.
    #[must_use]
    pub fn tls(&self) -> Arc<Tls> {
        // A poisoned lock means that a reload panicked. The content is replaced as a whole, so it
        // is still good.
        let mut current = self
            .current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Source::Files(files) = &self.source
            && current.checked.elapsed() >= RELOAD_INTERVAL
        {
            current.checked = Instant::now();
            files.reload(&mut current);
        }
        current.tls.clone()
    }

    /// Reads changed PEM files now, not at the next connection some seconds later. Returns false if
    /// there are no PEM files.
    pub fn refresh(&self) -> bool {
        let Source::Files(files) = &self.source else {
            return false;
        };
        let mut current = self
            .current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        files.reload(&mut current);
        true
    }

    /// The state of this node's certificate, from the files as they are now.
    #[must_use]
    pub fn certificate(&self) -> CertificateReport {
        self.refresh();
        let current = self
            .current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        CertificateReport {
            ends: current.tls.ends,
            reloads: current.reloads,
            reloads_failed: current.reloads_failed,
        }
    }

    /// Checks that a peer's certificate names this node or client, as its hello does.
    ///
    /// # Errors
    /// The certificate names something else; the message says what it should name.
    pub fn names(
        &self,
        certificate: &CertificateDer<'_>,
        name: &str,
        client: bool,
    ) -> Result<(), String> {
        let parsed = ParsedCertificate::try_from(certificate)
            .map_err(|e| format!("its certificate is malformed: {e}"))?;
        let is = |candidate: &str| {
            ServerName::try_from(candidate).is_ok_and(|n| verify_server_name(&parsed, &n).is_ok())
        };
        match &self.source {
            Source::Secret
                if is(&node_dns_name(name)) && is(if client { CLIENT_ROLE } else { ROLE }) =>
            {
                Ok(())
            }
            Source::Secret => Err(format!(
                "its certificate does not name {name:?} as a {}",
                if client { "client" } else { "node" }
            )),
            // The name of a client does not matter: the signature of the authority is enough.
            Source::Files(_) if client => Ok(()),
            // An operator's certificate names a host or a node, by name or address.
            Source::Files(_) if is(name) || is(host_of(name)) || is(&node_dns_name(name)) => Ok(()),
            Source::Files(_) => Err(format!(
                "its certificate names neither {name:?} nor {:?} (subjectAltName)",
                host_of(name)
            )),
        }
    }
}

impl Files {
    fn modified(&self) -> Vec<Option<SystemTime>> {
        [&self.ca, &self.cert, &self.key]
            .iter()
            .map(|p| std::fs::metadata(p).and_then(|m| m.modified()).ok())
            .collect()
    }

    fn load(&self) -> Result<Tls, IdentityError> {
        let file = |flag: &'static str, path: &Path, why: String| IdentityError::File {
            flag,
            path: path.to_owned(),
            why,
        };
        let certificates = |flag: &'static str,
                            path: &Path|
         -> Result<Vec<CertificateDer<'static>>, IdentityError> {
            let why = |e: pem::Error| file(flag, path, not_read(&e, "certificate"));
            let all = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(why)?;
            if all.is_empty() {
                Err(file(
                    flag,
                    path,
                    not_read(&pem::Error::NoItemsFound, "certificate"),
                ))
            } else {
                Ok(all)
            }
        };
        let roots = certificates("--tls-ca", &self.ca)?;
        let chain = certificates("--tls-cert", &self.cert)?;
        if chain.iter().any(is_of_an_old_version) {
            let why = "a certificate in it is of X.509 version 1, but TLS needs version 3: sign \
                       it again with a subjectAltName that is the node's name or host, with \
                       `openssl x509 -req ... -extfile FILE`, where FILE has \
                       `subjectAltName=DNS:NAME`";
            return Err(file("--tls-cert", &self.cert, why.into()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|e| file("--tls-key", &self.key, not_read(&e, "private key")))?;
        let signs = provider().key_provider.load_private_key(key.clone_key());
        let signs = signs.map_err(|e| {
            file(
                "--tls-key",
                &self.key,
                format!("the private key in it cannot be used ({e})"),
            )
        })?;
        if let Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) =
            CertifiedKey::new(chain.clone(), signs).keys_match()
        {
            return Err(IdentityError::OtherKey {
                cert: self.cert.clone(),
                key: self.key.clone(),
            });
        }
        Tls::new(
            &roots,
            chain,
            key,
            Arc::new(rustls::time_provider::DefaultTimeProvider),
        )
    }

    /// Loads changed files. If they are half written or wrong, the former ones stay in force, and
    /// the next check tries again.
    fn reload(&self, current: &mut Current) {
        let modified = self.modified();
        if modified == current.modified {
            return;
        }
        match self.load() {
            Ok(tls) => {
                tracing::info!(
                    cert = %self.cert.display(),
                    "the certificate files changed: new connections use the new ones"
                );
                current.tls = Arc::new(tls);
                current.modified = modified;
                current.reloads += 1;
            }
            Err(e) => {
                current.reloads_failed += 1;
                tracing::warn!(
                    "the certificate files changed, but cannot be used; the former ones stay in \
                     force: {e}"
                );
            }
        }
    }
}

impl Tls {
    fn new(
        roots: &[CertificateDer<'static>],
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        time: Arc<dyn TimeProvider>,
    ) -> Result<Self, IdentityError> {
        let unusable = |e: &dyn std::fmt::Display| IdentityError::Unusable(e.to_string());
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root.clone()).map_err(|e| unusable(&e))?;
        }
        let store = Arc::new(store);
        let provider = provider();
        let ends = chain.iter().filter_map(end_of).min();

        let clients = WebPkiClientVerifier::builder_with_provider(store.clone(), provider.clone())
            .build()
            .map_err(|e| unusable(&e))?;
        let mut server = rustls::ServerConfig::builder_with_details(provider.clone(), time.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| unusable(&e))?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|e| unusable(&e))?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.max_early_data_size = 0;
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});

        let mut client = rustls::ClientConfig::builder_with_details(provider.clone(), time)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| unusable(&e))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OfAuthority {
                roots: store,
                provider,
            }))
            .with_client_auth_cert(chain, key)
            .map_err(|e| unusable(&e))?;
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.enable_early_data = false;
        client.resumption = Resumption::disabled();

        Ok(Self {
            server: Arc::new(QuicServerConfig::try_from(server).map_err(|e| unusable(&e))?),
            client: Arc::new(QuicClientConfig::try_from(client).map_err(|e| unusable(&e))?),
            ends,
        })
    }
}

/// Why a PEM file does not have what it should.
fn not_read(e: &pem::Error, what: &str) -> String {
    match e {
        pem::Error::NoItemsFound => format!(
            "it has no {what} (PEM, `-----BEGIN {}-----`)",
            what.to_uppercase()
        ),
        pem::Error::Io(e) => format!("cannot read it: {e}"),
        e => format!("it is not a valid PEM file: {e}"),
    }
}

/// What rustls does not tell about a certificate.
struct Facts {
    /// 0 is version 1.
    version: u8,
    /// When it ends, in seconds since 1970.
    not_after: UnixTimestamp,
}

impl Facts {
    /// `None` if it cannot be read. Rustls decides whether the certificate can be used.
    fn of(certificate: &CertificateDer<'static>) -> Option<Self> {
        // RFC 5280, section 4.1: Certificate and TBSCertificate.
        let facts = yasna::parse_der(certificate, |certificate| {
            certificate.read_sequence(|certificate| {
                let facts = certificate.next().read_sequence(|signed| {
                    let version = signed.read_optional(|version| {
                        version.read_tagged(yasna::Tag::context(0), |version| version.read_u8())
                    })?;
                    for _serial_algorithm_issuer in 0..3 {
                        signed.next().read_der()?;
                    }
                    let not_after = signed.next().read_sequence(|validity| {
                        validity.next().read_der()?;
                        read_time(validity.next())
                    })?;
                    while signed.read_optional(|rest| rest.read_der())?.is_some() {}
                    Ok(Self {
                        version: version.unwrap_or(0),
                        not_after,
                    })
                })?;
                for _algorithm_signature in 0..2 {
                    certificate.next().read_der()?;
                }
                Ok(facts)
            })
        });
        facts.ok()
    }
}

/// Either form of a certificate's times, in seconds since 1970.
fn read_time(time: yasna::BERReader<'_, '_>) -> yasna::ASN1Result<UnixTimestamp> {
    let utc = time.lookahead_tag()? == yasna::tags::TAG_UTCTIME;
    let at = if utc {
        *time.read_utctime()?.datetime()
    } else {
        *time.read_generalized_time()?.datetime()
    };
    Ok(at.unix_timestamp())
}

/// Whether a certificate is older than version 3. Older versions have no host names, and TLS
/// refuses them.
fn is_of_an_old_version(certificate: &CertificateDer<'static>) -> bool {
    const VERSION_3: u8 = 2;
    Facts::of(certificate).is_some_and(|facts| facts.version != VERSION_3)
}

/// When a certificate ends; `None` if this cannot be read.
fn end_of(certificate: &CertificateDer<'static>) -> Option<UnixTimestamp> {
    Some(Facts::of(certificate)?.not_after)
}

/// The cluster's private authority.
struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    fingerprint: String,
}

impl Authority {
    fn derive(secret: &[u8]) -> Result<Self, IdentityError> {
        let unusable = |e: rcgen::Error| IdentityError::Unusable(e.to_string());
        let key = ed25519(&expand(secret, "authority"))?;
        // The name contains the fingerprint, so that another secret gives an unknown issuer rather
        // than a bad signature.
        let fingerprint = hex(&sha256(rcgen::PublicKeyData::der_bytes(&key)).as_ref()[..8]);
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(
            DnType::OrganizationName,
            format!("doyen cluster {fingerprint}"),
        );
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // Everything that rcgen would draw or derive is set here: the bytes must be the same on
        // every node.
        params.serial_number = Some(rcgen::SerialNumber::from_slice(
            &expand(secret, "serial")[..8],
        ));
        let certificate = params.self_signed(&key).map_err(unusable)?.der().clone();
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
            fingerprint,
        })
    }

    /// Issues a certificate for a key that this process makes now and never stores.
    fn issue(
        &self,
        name: &str,
        role: &str,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), IdentityError> {
        let unusable = |e: rcgen::Error| IdentityError::Unusable(e.to_string());
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(unusable)?;
        let mut params =
            CertificateParams::new(vec![role.to_owned(), node_dns_name(name)]).map_err(unusable)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(
            DnType::OrganizationName,
            format!("doyen cluster {}", self.fingerprint),
        );
        params.distinguished_name.push(
            DnType::OrganizationalUnitName,
            role.split('.').next().unwrap_or_default(),
        );
        params.distinguished_name.push(
            DnType::CommonName,
            name.chars().take(64).collect::<String>(),
        );
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &self.issuer).map_err(unusable)?;
        Ok((
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        ))
    }
}

/// Accepts servers of this cluster's authority under any name: the hello says who a server is, and
/// addresses do not.
#[derive(Debug)]
struct OfAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OfAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[derive(Debug)]
struct FixedTime;

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(TIME_FIXED))
    }
}

/// AES-128 comes first: it is the fastest with hardware support, and QUIC's initial packets need it
/// anyway.
fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::ring;
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
            ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
            ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..ring::default_provider()
    })
}

fn ed25519(seed: &[u8; 32]) -> Result<KeyPair, IdentityError> {
    // PKCS #8 version 1 of an Ed25519 key (RFC 8410, section 7): a fixed prefix, then the seed.
    let mut der = vec![
        0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04,
        0x20,
    ];
    der.extend_from_slice(seed);
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der), &rcgen::PKCS_ED25519)
        .map_err(|e| IdentityError::Unusable(e.to_string()))
}

fn expand(secret: &[u8], purpose: &str) -> [u8; 32] {
    use ::ring::hkdf::{HKDF_SHA256, Salt};
    let mut out = [0; 32];
    // HKDF refuses only outputs above 255 hashes, and this is one hash.
    Salt::new(HKDF_SHA256, b"doyen/1")
        .extract(secret)
        .expand(&[purpose.as_bytes()], HKDF_SHA256)
        .and_then(|bytes| bytes.fill(&mut out))
        .expect("32 bytes are one hash");
    out
}

fn sha256(bytes: &[u8]) -> ::ring::digest::Digest {
    ::ring::digest::digest(&::ring::digest::SHA256, bytes)
}

/// Turns a node's name of any characters and any length into a DNS name.
fn node_dns_name(name: &str) -> String {
    format!("n{}.{ROLE}", hex(&sha256(name.as_bytes()).as_ref()[..16]))
}

/// `10.0.0.1` from `10.0.0.1:7400`, `::1` from `[::1]:7400`; other names stay as they are.
fn host_of(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => {
            host.trim_start_matches('[').trim_end_matches(']')
        }
        _ => name,
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
            let _ = write!(out, "{b:02x}");
            out
        })
}

#[cfg(test)]
mod tests;
