//! TLS of the ports for clients that are no nodes, such as RESP.
//!
//! The certificate comes from PEM files, which are read again when they change, or from the member
//! authority, which issues another one before the former ends. A connection keeps what it began
//! with.

use super::authority::{self, Authority};
use super::files::{Named, certificates, key_of, named, of_this_time};
use super::secret::{SecretRole, Secrets};
use super::tls::{provider, provider_of_tls12};
#[cfg(feature = "http")]
pub use trusted::Trusted;

use super::certificate::end_of;
use super::{
    CertificateReport, Identity, IdentityError, Stamp, TlsMin, Validity, stamps, unusable,
};
use crate::log_limit::{A_MINUTE, LogLimit};
use arc_swap::ArcSwap;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Where the certificate of ports comes from.
#[derive(Debug, Clone)]
pub(crate) enum PortSource {
    /// PEM files.
    Files {
        /// The chain.
        cert: Named,
        /// The key of its first certificate.
        key: Named,
    },
    /// The member authority, for these names and addresses of this node.
    Authority(Vec<String>),
}

/// What TLS of ports shall be.
#[derive(Debug, Clone)]
pub(crate) struct PortCertificate {
    /// The kind of ports, as metrics and logs call it: `resp` or `http`.
    pub(crate) port: &'static str,
    pub(crate) source: PortSource,
    /// The authority of certificates that clients may show.
    pub(crate) client_ca: Option<Named>,
    /// The least version that clients may speak.
    pub(crate) min: TlsMin,
}

/// TLS of ports.
#[derive(Debug)]
pub(crate) struct Ports {
    wanted: PortCertificate,
    /// Read for each connection, on any thread.
    current: ArcSwap<LoadedPorts>,
    /// How often changed files came into force, and how often they could not be used.
    reloads: [AtomicU64; 2],
    /// Handshakes that failed.
    failed: AtomicU64,
    /// Held for moments, by the thread whose client failed.
    told: Mutex<LogLimit>,
}

/// What is in force.
#[derive(Debug)]
struct LoadedPorts {
    config: Arc<ServerConfig>,
    /// The files, as they were read.
    read: Vec<Option<Stamp>>,
    /// When the first certificate of the chain ends, in Unix seconds.
    ends: Option<i64>,
    /// When files that were refused are read again though they do not change.
    again: Option<UnixTime>,
    /// When the member authority issued the certificate, and the fingerprint of that authority.
    issued: Option<(Validity, String)>,
    /// Why the last attempt to renew it failed.
    failed: Option<String>,
}

impl Ports {
    /// TLS as it is wanted. With `client_ca`, clients may show a certificate of that authority.
    ///
    /// # Errors
    /// A file cannot be used, or the authority must not be shown to strangers.
    pub(crate) fn new(identity: &Identity, wanted: PortCertificate) -> Result<Self, IdentityError> {
        let loaded = load(identity, &wanted)?;
        Ok(Self {
            wanted,
            current: ArcSwap::from_pointee(loaded),
            reloads: Default::default(),
            failed: AtomicU64::new(0),
            told: Mutex::new(LogLimit::new(A_MINUTE)),
        })
    }

    /// The configuration for a connection that begins now.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.current.load().config.clone()
    }

    /// A client's handshake failed for this reason. The log tells of it once a minute.
    pub(crate) fn handshake_failed(&self, from: IpAddr, why: &dyn std::fmt::Display) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(others) = told.happened(Instant::now()) {
            let at_least = match self.wanted.min {
                TlsMin::V12 => "1.2",
                TlsMin::V13 => "1.3",
            };
            tracing::warn!(
                "the TLS handshake of a client at {from} failed at a port of --{}: {why}. Clients \
                 must speak TLS {at_least} or later, and trust this node's certificate{others}",
                self.wanted.port
            );
        }
    }

    /// The kind of ports, and how many handshakes failed.
    pub(super) fn failed(&self) -> (&'static str, u64) {
        (self.wanted.port, self.failed.load(Ordering::Relaxed))
    }

    /// Adds what is known of these ports.
    pub(super) fn add_to(&self, mut report: CertificateReport) -> CertificateReport {
        let ends = self.current.load().ends;
        report
            .ends
            .extend(ends.map(|ends| (self.wanted.port, ends)));
        report.reloads += self.reloads[0].load(Ordering::Relaxed);
        report.reloads_failed += self.reloads[1].load(Ordering::Relaxed);
        report
    }

    /// Whether [`Ports::refresh`] has something to do.
    pub(super) fn is_stale(&self, identity: &Identity) -> bool {
        let current = self.current.load();
        let now = identity.time.current_time();
        let over = current.issued.as_ref().is_some_and(|(validity, by)| {
            now.is_some_and(|now| validity.is_over(now))
                || identity.fingerprints().first() != Some(by)
        });
        let again = current
            .again
            .zip(now)
            .is_some_and(|(again, now)| again <= now);
        over || again || current.read != self.stamps()
    }

    /// Takes changed files, or another certificate of the authority. If they cannot be used, the
    /// former ones stay in force, and the log says why.
    pub(super) fn refresh(&self, identity: &Identity) {
        let (read, former) = (self.stamps(), self.current.load_full());
        let port = self.wanted.port;
        match load(identity, &self.wanted) {
            Ok(loaded) => {
                if former.read != loaded.read || former.again.is_some() {
                    self.reloads[0].fetch_add(1, Ordering::Relaxed);
                    tracing::info!(
                        "the certificate of the ports of --{port} was read again: new connections \
                         use it"
                    );
                }
                self.current.store(Arc::new(loaded));
            }
            Err(e) => {
                let why = e.to_string();
                // It is tried again and again if it is due, and told once.
                if former.failed.as_ref() != Some(&why) || former.read != read {
                    self.reloads[1].fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(
                        "the certificate of the ports of --{port} cannot be renewed; the former \
                         one stays in force: {why}"
                    );
                }
                // They are read again once they change.
                self.current.store(Arc::new(LoadedPorts {
                    config: former.config.clone(),
                    read,
                    ends: former.ends,
                    again: e.good_from(),
                    issued: former.issued.clone(),
                    failed: Some(why),
                }));
            }
        }
    }

    /// Why the first secret has not signed the certificate that it should sign. `None`: it has, or
    /// the certificate comes from files.
    pub(super) fn behind(&self, identity: &Identity) -> Option<String> {
        let current = self.current.load();
        let (_, by) = current.issued.as_ref()?;
        let is_old = identity.fingerprints().first() != Some(by);
        let not_yet = || "it was not renewed yet".to_owned();
        current.failed.clone().or_else(|| is_old.then(not_yet))
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        stamps(paths(&self.wanted))
    }
}

fn paths(wanted: &PortCertificate) -> impl Iterator<Item = &PathBuf> {
    let own = match &wanted.source {
        PortSource::Files { cert, key } => vec![cert, key],
        PortSource::Authority(_) => Vec::new(),
    };
    let all = own.into_iter().chain(&wanted.client_ca);
    all.map(|(_, path)| path)
}

fn load(identity: &Identity, wanted: &PortCertificate) -> Result<LoadedPorts, IdentityError> {
    // Before the files: what changes meanwhile is read again.
    let read = stamps(paths(wanted));
    let (chain, key, issued) = match &wanted.source {
        PortSource::Files { cert, key } => {
            let chain = certificates(cert.0, &cert.1)?;
            let key = key_of(&chain, cert, key)?;
            of_this_time(&chain, cert, identity.time.current_time())?;
            (chain, key, None)
        }
        PortSource::Authority(names) => {
            let validity = Validity::from_now(identity.time.as_ref())?;
            let secrets = identity.current().secrets.clone();
            let secrets = secrets.ok_or_else(|| unusable("there is no secret that signs it"))?;
            let (chain, key) = issue(&secrets, names, validity)?;
            (chain, key, Some((validity, secrets.first().fingerprint())))
        }
    };
    let ends = chain.iter().filter_map(end_of).min();
    let (provider, versions) = match wanted.min {
        TlsMin::V13 => (provider(), vec![&rustls::version::TLS13]),
        TlsMin::V12 => (provider_of_tls12(), rustls::ALL_VERSIONS.to_vec()),
    };
    let clients: Arc<dyn ClientCertVerifier> = match &wanted.client_ca {
        None => WebPkiClientVerifier::no_client_auth(),
        Some((flag, path)) => {
            let roots = Arc::new(roots(flag, path)?);
            WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
                .allow_unauthenticated()
                .build()
                .map_err(unusable)?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(unusable)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    // Clients keep their connections, so nothing is kept for resuming them.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(LoadedPorts {
        config: Arc::new(config),
        read,
        ends,
        again: None,
        issued,
        failed: None,
    })
}

/// The authorities in a PEM file.
fn roots(flag: &'static str, path: &Path) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(flag, path)? {
        roots
            .add(root)
            .map_err(|e| named(flag, path, e.to_string()))?;
    }
    Ok(roots)
}

/// A certificate of the member authority for these names, and its key.
fn issue(
    secrets: &Secrets,
    names: &[String],
    validity: Validity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), IdentityError> {
    let line = secrets.first();
    if line.is_phrase() {
        return Err(IdentityError::Unusable(
            "a phrase must not sign what strangers are shown, because they could check guesses \
             against it: make a secret with `doyen secret new`, or give the certificate and its \
             key in files (--resp-tls-cert and --resp-tls-key, --http-tls-cert and --http-tls-key)"
                .into(),
        ));
    }
    let keys = line
        .keys()
        .ok_or_else(|| IdentityError::Unusable("the secret of a member must sign it".into()))?;
    let authority = Authority::of(SecretRole::Member, &keys.member)?;
    let key = authority::new_key_for_clients()?;
    let certificate = authority.issue_for_port(&key, names, validity.times())?;
    let chain = vec![certificate, authority.certificate().clone()];
    Ok((chain, PrivateKeyDer::Pkcs8(authority::pkcs8(&key))))
}

#[cfg(feature = "http")]
mod trusted {
    use super::super::authority::member_anchor;
    use super::super::secret::Secrets;
    use super::super::tls::{Judge, provider};
    use super::super::{IdentityError, unusable};
    use super::roots;
    use rustls::ClientConfig;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use std::path::Path;
    use std::sync::Arc;

    /// Which certificates of nodes' HTTP a caller trusts.
    ///
    /// Example: [`Client`](crate::http::client::Client).
    #[derive(Debug, Clone)]
    pub struct Trusted(Arc<ClientConfig>);

    impl Trusted {
        /// Those that the authority of one of these secrets signed, whatever names are in them:
        /// only members can sign. `None` if these secrets sign none, because they are phrases.
        ///
        /// # Errors
        /// TLS cannot be set up.
        pub fn by_secrets(secrets: &Secrets) -> Result<Option<Self>, IdentityError> {
            let lines = secrets.lines().iter().filter(|line| !line.is_phrase());
            let anchors: Vec<_> = lines
                .map(|line| member_anchor(&line.member_public_key()))
                .collect();
            if anchors.is_empty() {
                return Ok(None);
            }
            Self::new(Arc::new(Judge::of_anchors(anchors))).map(Some)
        }

        /// Those that an authority in this PEM file signed for the host that is asked. `flag` names
        /// the file in errors.
        ///
        /// # Errors
        /// The file has no certificates.
        pub fn by_file(flag: &'static str, path: &Path) -> Result<Self, IdentityError> {
            let roots = Arc::new(roots(flag, path)?);
            let judge = WebPkiServerVerifier::builder_with_provider(roots, provider());
            Self::new(judge.build().map_err(unusable)?)
        }

        fn new(judge: Arc<dyn ServerCertVerifier>) -> Result<Self, IdentityError> {
            let config = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&rustls::version::TLS13])
                .map_err(unusable)?
                .dangerous()
                .with_custom_certificate_verifier(judge)
                .with_no_client_auth();
            Ok(Self(Arc::new(config)))
        }

        /// For a connection.
        pub(crate) fn config(&self) -> Arc<ClientConfig> {
            self.0.clone()
        }
    }
}
