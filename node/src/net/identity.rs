//! Identities: what this process shows to others, and what it accepts from them.
//!
//! Usually there is one shared secret. Every node derives the same private authorities from it, in
//! memory, and issues itself a certificate that names the node. Its authority says its role:
//!
//! ```text
//!   secret ──> member authority ──signs──> certificates of members
//!          └─> client authority ──signs──> certificates of clients
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | [`secret`] | secret files, phrases, and what is derived from a secret |
//! | `authority` | keys that sign certificates |
//! | `certificate` | facts that rustls does not tell |
//! | `trust` | whose certificates are accepted, for which role |
//! | `files` | certificates in PEM files: the other way |
//! | `process` | the key of this process, and those of the members |
//! | `tls` | the configuration of both ends |
//! | `ports` | TLS of the ports for clients that are no nodes |
//!
//! A connection is judged twice. The handshake refuses diallers that no authority vouches for. Then
//! [`Identity::recognize`] compares role and name with the hello. The server's certificate comes
//! with its hello, because a handshake shows it to strangers, who could check guesses of a phrase
//! against it.
//!
//! Files are read again when they change, and certificates of a secret are renewed, by
//! [`Identity::refresh`]. The control thread of a node calls it (`peers`), and the companion of a
//! client.

mod authority;
pub(crate) mod certificate;
mod files;
#[cfg(any(feature = "http", feature = "resp"))]
pub(crate) mod ports;
mod process;
pub mod secret;
mod tls;
mod trust;

pub use files::{PemFiles, ROLE_PREFIX};
pub use process::Proof;
#[cfg(feature = "http")]
pub(crate) use tls::hash_of;
pub use tls::{Tls, TlsMin};

use super::accept_limit::PlaceCounts;
use super::endpoint::DialFailure;
use super::sending::SendErrors;
use crate::files::read_bytes;
use authority::{Authority, dns_name, shifted};
use base64::Engine;
use doyen_gossip::{Presence, SigningSeed};
use doyen_placement::{MemberId, VoteKey};
#[cfg(any(feature = "http", feature = "resp"))]
use ports::Ports;
use process::Processes;
use rcgen::KeyPair;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls_pki_types::{CertificateDer, UnixTime};
use secret::{Line, SecretError, SecretRole, Secrets};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trust::{End, TrustStore, Voucher, bears, found, is_of_time, share_key};
use zeroize::Zeroizing;

/// The protocol that both sides of every connection must speak.
pub const ALPN: &[u8] = b"doyen/1";
/// The name that every dial asks for.
pub const SERVER_NAME: &str = "peer.doyen.internal";
/// The token of a node without a secret, which listens on loopback only.
pub const LOCAL_TOKEN: &str = "loopback";

/// Used if there is no secret. It keeps no stranger out, so such nodes bind to loopback.
const NO_SECRET: &[u8] = b"doyen without a secret: loopback only";
/// How long certificates of a secret are good, from when they are made.
const LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long before that they begin. So clocks may differ by this much.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(24 * 3600);

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The secret cannot be used.
    #[error("the secret cannot be used: {0}")]
    Secret(#[from] SecretError),
    /// The secret is for another role.
    #[error("{}", other_role(*file, *wanted))]
    OtherRole {
        /// Whose secret it is.
        file: SecretRole,
        /// What it is used for.
        wanted: SecretRole,
    },
    /// The file with the secrets cannot be read, or has none.
    #[error("{0}")]
    Unreadable(String),
    /// A file is unusable for its flag.
    #[error("{flag} {}: {why}", path.display())]
    File {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The certificate has expired, or is not valid yet.
    #[error("{flag} {}: {}", path.display(), untimely(*begins, *ends, *now))]
    Untimely {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// When the certificate begins, in Unix seconds.
        begins: i64,
        /// When it ends.
        ends: i64,
        /// What time it is here.
        now: i64,
    },
    /// The certificate does not belong to the key.
    #[error(
        "{} {} and {} {} do not belong together: give the key of that certificate",
        cert.0,
        cert.1.display(),
        key.0,
        key.1.display()
    )]
    OtherKey {
        /// The flag and the file of the certificate.
        cert: (&'static str, PathBuf),
        /// The flag and the file of the key.
        key: (&'static str, PathBuf),
    },
    /// The key or the certificates cannot be used.
    #[error("the certificate or key cannot be used: {0}")]
    Unusable(String),
}

fn untimely(begins: i64, ends: i64, now: i64) -> String {
    let lasts = |seconds: i64| {
        let seconds = seconds.unsigned_abs();
        let (number, unit) = match seconds {
            0..7200 => (seconds / 60, "minutes"),
            7200..172_800 => (seconds / 3600, "hours"),
            _ => (seconds / 86_400, "days"),
        };
        format!("{number} {unit}")
    };
    if now < begins {
        format!(
            "the certificate in it is not valid yet: it begins in {}. Look at this machine's clock, \
             or use the former certificate until then",
            lasts(begins - now)
        )
    } else {
        format!(
            "the certificate in it expired {} ago: replace it (and its key) by a new one",
            lasts(now - ends)
        )
    }
}

impl IdentityError {
    /// When files that are refused now may be good, though they do not change.
    fn good_from(&self) -> Option<UnixTime> {
        match self {
            Self::Untimely { begins, now, .. } if now < begins => {
                let begins = u64::try_from(*begins).ok()?;
                Some(UnixTime::since_unix_epoch(Duration::from_secs(begins)))
            }
            _ => None,
        }
    }
}

/// A key or a certificate cannot be made or used, for this reason.
fn unusable(e: impl std::fmt::Display) -> IdentityError {
    IdentityError::Unusable(e.to_string())
}

/// What is wrong with the secret of another role, and which one is right.
#[must_use]
pub fn other_role(file: SecretRole, wanted: SecretRole) -> String {
    let may = match file {
        SecretRole::Member => "be a node, a client and an operator",
        SecretRole::Client => "use data",
        SecretRole::Operator => "administer by HTTP",
    };
    let needed = match wanted {
        SecretRole::Member => "a node needs the member's file",
        SecretRole::Client => "a client needs the client's file (or the member's)",
        SecretRole::Operator => "administration needs the operator's file (or the member's)",
    };
    format!(
        "this is the secret of {}, whose holder may only {may}: {needed} that `doyen secret new` \
         made",
        file.with_article()
    )
}

/// This process's credentials, and the authorities that it accepts.
#[derive(Debug)]
pub struct Identity {
    name: String,
    /// What it is for others: a member or a client.
    role: SecretRole,
    source: IdentitySource,
    time: Arc<dyn TimeProvider>,
    loopback_only: bool,
    /// Raised when others may have become strangers.
    generation: AtomicU64,
    /// Held while files are read, which can take some tenths of a second.
    refreshing: Mutex<()>,
    processes: Processes,
    /// A lock, because several threads read it. It is held for a copy of a pointer.
    current: Mutex<Current>,
    /// Handshakes at the ports of nodes.
    handshakes: PlaceCounts,
    /// Datagrams of this process that the system did not send.
    send_errors: Arc<SendErrors>,
    /// TLS of the ports for clients that are no nodes: of each kind that speaks it.
    #[cfg(any(feature = "http", feature = "resp"))]
    ports: Mutex<Vec<Arc<Ports>>>,
}

#[derive(Debug)]
enum IdentitySource {
    Secrets {
        file: Option<PathBuf>,
        /// The key of this process, which lives as long as it.
        key: KeyPair,
    },
    Files(PemFiles),
}

#[derive(Debug)]
struct Current {
    tls: Arc<Tls>,
    secrets: Option<Secrets>,
    read: Vec<Option<Stamp>>,
    /// When files that were refused are read again though they do not change.
    again: Option<UnixTime>,
    reloads: u64,
    reloads_failed: u64,
}

/// What changes when a file is written, replaced, or made readable: inode, length, and the times of
/// the last changes of content and of attributes.
pub(crate) type Stamp = (u64, u64, [(i64, i64); 2]);

/// What is known of a node's certificate, for monitoring.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateReport {
    /// For each kind of port (`listen`, `resp`, `http`): when the first certificate of its chain
    /// ends, in Unix seconds. A kind is absent if no certificate tells, or it speaks no TLS. With a
    /// secret, the node makes another one long before. The authority's own end is never checked
    /// (webpki).
    pub ends: Vec<(&'static str, i64)>,
    /// How often changed files came into force, at any port.
    pub reloads: u64,
    /// How often changed files could not be used, at any port.
    pub reloads_failed: u64,
}

/// When a certificate of a secret was made, which says when it is good and when it is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    made: UnixTime,
}

impl Validity {
    fn from_now(time: &dyn TimeProvider) -> Result<Self, IdentityError> {
        let no_time = || IdentityError::Unusable("this machine's clock is before 1970".into());
        time.current_time()
            .map(|made| Self { made })
            .ok_or_else(no_time)
    }

    fn times(self) -> (UnixTime, UnixTime) {
        (
            shifted(self.made, CLOCKS_DIFFER_MAX, false),
            shifted(self.made, LIFE, true),
        )
    }

    /// Whether another certificate must be made, also because the clock was set back.
    fn is_over(self, now: UnixTime) -> bool {
        let begun = shifted(self.made, CLOCKS_DIFFER_MAX / 2, false);
        let half = shifted(self.made, LIFE / 2, true);
        now < begun || half < now
    }
}

/// What another process says of itself in its hello.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it is a client, or else a node.
    pub client: bool,
    /// The certificate in the hello of a server.
    pub card: Option<&'a CertificateDer<'static>>,
    /// Whether this process dialled it.
    pub dialled: bool,
}

impl Claim<'_> {
    /// What it must be vouched for as.
    const fn role(&self) -> SecretRole {
        if self.client {
            SecretRole::Client
        } else {
            SecretRole::Member
        }
    }

    /// The end of the connection at which it is.
    const fn end(&self) -> End {
        if self.dialled {
            End::Server
        } else {
            End::Dialler
        }
    }
}

/// Why another process was accepted: [`Identity::trusts`] says whether that still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    vouched: Vouched,
    /// Its id, and the key that it showed. `None`: not known yet.
    process: Option<(MemberId, Option<VoteKey>)>,
}

impl Evidence {
    const fn new(vouched: Vouched) -> Self {
        Self {
            vouched,
            process: None,
        }
    }

    /// The same for this process, which showed this key.
    pub(super) fn of(self, id: MemberId, key: Option<VoteKey>) -> Self {
        Self {
            process: Some((id, key)),
            ..self
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Vouched {
    By(Voucher),
    Chain(Vec<CertificateDer<'static>>, End),
}

impl Identity {
    /// A node's or a client's identity from the secrets in a file, or without a file. Slow for
    /// phrases: 64 MiB and some tenths of a second for each, once per process.
    ///
    /// # Errors
    /// The secrets are for another role.
    pub fn of_secrets(
        secrets: Secrets,
        file: Option<PathBuf>,
        role: SecretRole,
        name: &str,
    ) -> Result<Self, IdentityError> {
        Self::at(secrets, file, (role, name), Arc::new(DefaultTimeProvider))
    }

    fn at(
        secrets: Secrets,
        file: Option<PathBuf>,
        (role, name): (SecretRole, &str),
        time: Arc<dyn TimeProvider>,
    ) -> Result<Self, IdentityError> {
        let key = authority::new_key()?;
        let read = stamps(file.iter());
        let tls = Tls::of_secrets(&secrets, (role, name), &key, time.clone())?;
        let source = IdentitySource::Secrets { file, key };
        Ok(Self::new(
            source,
            (role, name),
            (tls, Some(secrets), read),
            time,
        ))
    }

    fn new(
        source: IdentitySource,
        (role, name): (SecretRole, &str),
        (tls, secrets, read): (Tls, Option<Secrets>, Vec<Option<Stamp>>),
        time: Arc<dyn TimeProvider>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            role,
            source,
            time,
            loopback_only: false,
            generation: AtomicU64::new(0),
            processes: Processes::default(),
            refreshing: Mutex::new(()),
            current: Mutex::new(Current {
                tls: Arc::new(tls),
                secrets,
                read,
                again: None,
                reloads: 0,
                reloads_failed: 0,
            }),
            handshakes: PlaceCounts::default(),
            send_errors: Arc::default(),
            #[cfg(any(feature = "http", feature = "resp"))]
            ports: Mutex::default(),
        }
    }

    /// Counts of the handshakes that others began.
    pub fn handshakes(&self) -> &PlaceCounts {
        &self.handshakes
    }

    /// Counts of datagrams that the system did not send.
    pub fn send_errors(&self) -> &Arc<SendErrors> {
        &self.send_errors
    }

    /// Renews TLS of these ports, together with what is its own.
    #[cfg(any(feature = "http", feature = "resp"))]
    pub(crate) fn keep_ports(&self, ports: &Arc<Ports>) {
        let mut kept = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(ports.clone());
    }

    #[cfg(any(feature = "http", feature = "resp"))]
    fn kept_ports(&self) -> Vec<Arc<Ports>> {
        let kept = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clone()
    }

    /// Why ports do not show a certificate of the first secret, though it should sign theirs.
    #[cfg(feature = "http")]
    pub(crate) fn ports_behind(&self) -> Vec<String> {
        let ports = self.kept_ports();
        ports
            .iter()
            .filter_map(|ports| ports.behind(self))
            .collect()
    }

    /// A node's identity from the text of a secret.
    ///
    /// # Errors
    /// The secret is too short, or for another role.
    pub fn from_secret(secret: &[u8], name: &str) -> Result<Self, IdentityError> {
        Self::of_secrets(Secrets::of_bytes(secret)?, None, SecretRole::Member, name)
    }

    /// A client's identity from the text of a secret.
    ///
    /// # Errors
    /// The secret is too short, or for another role.
    pub fn of_client(secret: &[u8], name: &str) -> Result<Self, IdentityError> {
        Self::of_secrets(Secrets::of_bytes(secret)?, None, SecretRole::Client, name)
    }

    /// An identity without a secret: every process on this machine may talk. The caller must bind
    /// only to loopback addresses.
    ///
    /// # Errors
    /// None in practice.
    pub fn insecure_loopback(name: &str) -> Result<Self, IdentityError> {
        Self::insecure(SecretRole::Member, name)
    }

    /// A client's identity without a secret, for nodes on this machine that have none either.
    ///
    /// # Errors
    /// As for [`Identity::insecure_loopback`].
    pub fn insecure_client(name: &str) -> Result<Self, IdentityError> {
        Self::insecure(SecretRole::Client, name)
    }

    fn insecure(role: SecretRole, name: &str) -> Result<Self, IdentityError> {
        let secrets = Secrets::new(vec![Line::open(NO_SECRET)])?;
        Self::of_secrets(secrets, None, role, name).map(|identity| Self {
            loopback_only: true,
            ..identity
        })
    }

    /// A node's or a client's identity from PEM files, which are read again when they change. The
    /// certificate must be valid for clients and servers, name its roles, and for a node its name
    /// or its host.
    ///
    /// # Errors
    /// A file cannot be read, or has nothing usable.
    pub fn from_pem(files: PemFiles, role: SecretRole, name: &str) -> Result<Self, IdentityError> {
        let time: Arc<dyn TimeProvider> = Arc::new(DefaultTimeProvider);
        let read = stamps(files.paths());
        let tls = files.load(time.clone())?;
        Ok(Self::new(
            IdentitySource::Files(files),
            (role, name),
            (tls, None, read),
            time,
        ))
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

    /// The SHA-256 of the operators' tokens, by the secrets: none without a secret.
    #[must_use]
    pub fn operator_hashes(&self) -> Vec<[u8; 32]> {
        if self.loopback_only {
            return Vec::new();
        }
        self.tls().operator_hashes.clone()
    }

    /// Whether operators have tokens that are derived from a secret.
    #[must_use]
    pub fn has_operators(&self) -> bool {
        matches!(self.source, IdentitySource::Secrets { .. }) && !self.loopback_only
    }

    /// The fingerprints of the secrets, the one that signs first. For operators only: they would
    /// help to guess a phrase.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<String> {
        self.tls().fingerprints.clone()
    }

    /// The step of `doyen secret rotate` that this node's secret file says. `None`: no rotation is
    /// under way, or the secrets come from no file.
    #[must_use]
    pub fn rotation(&self) -> Option<String> {
        let IdentitySource::Secrets {
            file: Some(path), ..
        } = &self.source
        else {
            return None;
        };
        let bytes = read_bytes(path).map(Zeroizing::new).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?;
        secret::rotation_step(text).map(str::to_owned)
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

    /// The configuration in force; another pointer after a refresh that changed something.
    #[must_use]
    pub fn tls(&self) -> Arc<Tls> {
        self.current().tls.clone()
    }

    /// The certificate that a server shows in its hello; `None` with PEM files.
    #[must_use]
    pub fn card(&self) -> Option<CertificateDer<'static>> {
        self.tls().card.clone()
    }

    /// Sets the key of this process, before its hellos name another id. Clients have none.
    pub fn set_key(&self, seed: &SigningSeed) {
        self.processes.set_own(seed);
    }

    /// Sets the keys of the members, as the tables say them. Each member must show its key from now
    /// on.
    pub fn set_keys(&self, keys: BTreeMap<MemberId, VoteKey>) {
        if self.processes.set_members(keys) {
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// What shows that this process is at this end of a connection; `None`: it has no key.
    pub(super) fn prove(&self, presence: &Presence) -> Option<Proof> {
        self.processes.prove(presence)
    }

    /// Another number after it has changed whose certificates or keys are accepted.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        // A poisoned lock means that a thread panicked. The content is replaced as a whole, so it
        // is still good.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of this node's certificate, from the files as they are now.
    #[must_use]
    pub fn certificate(&self) -> CertificateReport {
        self.refresh();
        let own = {
            let current = self.current();
            CertificateReport {
                ends: current
                    .tls
                    .ends
                    .map(|ends| ("listen", ends))
                    .into_iter()
                    .collect(),
                reloads: current.reloads,
                reloads_failed: current.reloads_failed,
            }
        };
        #[cfg(any(feature = "http", feature = "resp"))]
        let own = self
            .kept_ports()
            .iter()
            .fold(own, |all, ports| ports.add_to(all));
        own
    }

    /// Handshakes that failed, by kind of port.
    #[cfg(any(feature = "http", feature = "resp"))]
    pub(crate) fn handshakes_failed(&self) -> Vec<(&'static str, u64)> {
        self.kept_ports()
            .iter()
            .map(|ports| ports.failed())
            .collect()
    }

    /// Whether [`Identity::refresh`] has something to do. Cheap: it looks at the files' dates.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        #[cfg(any(feature = "http", feature = "resp"))]
        if self.kept_ports().iter().any(|ports| ports.is_stale(self)) {
            return true;
        }
        self.is_own_stale()
    }

    fn is_own_stale(&self) -> bool {
        let (read, validity, again) = {
            let current = self.current();
            (current.read.clone(), current.tls.validity, current.again)
        };
        let over = self.time.current_time().is_some_and(|now| {
            validity.is_some_and(|validity| validity.is_over(now))
                || again.is_some_and(|again| again <= now)
        });
        over || read != self.stamps()
    }

    /// Reads files that have changed, and renews a certificate that is due. If new files are half
    /// written or wrong, the former ones stay in force, and the files are read again once they
    /// change. This may take some tenths of a second.
    pub fn refresh(&self) {
        if self.is_stale() {
            self.read_again(false);
        }
    }

    /// Refreshes, on a thread where that delays nothing.
    pub async fn keep(self: Arc<Self>) {
        if self.is_stale() {
            // Fails only if the runtime ends.
            let _ = tokio::task::spawn_blocking(move || self.refresh()).await;
        }
    }

    /// Reads the files again, also if they seem unchanged. Returns false if there are none.
    pub fn reload(&self) -> bool {
        let has_files = match &self.source {
            IdentitySource::Secrets { file, .. } => file.is_some(),
            IdentitySource::Files(_) => true,
        };
        self.read_again(true);
        has_files
    }

    fn read_again(&self, forced: bool) {
        let _one_at_a_time = self
            .refreshing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if forced || self.is_own_stale() {
            self.read_own(forced);
        }
        #[cfg(any(feature = "http", feature = "resp"))]
        for ports in self.kept_ports() {
            if forced || ports.is_stale(self) {
                ports.refresh(self);
            }
        }
    }

    fn read_own(&self, forced: bool) {
        // Before the files: what changes meanwhile is read again.
        let read = self.stamps();
        let changed = read != self.current().read;
        let loaded = self.load(forced || changed);
        let mut current = self.current();
        current.read = read;
        let waited = current.again.take().is_some();
        match loaded {
            Ok((tls, secrets)) => {
                current.tls = Arc::new(tls);
                current.secrets = secrets;
                current.reloads += u64::from(changed || waited);
                if forced || changed || waited {
                    self.generation.fetch_add(1, Ordering::Release);
                    tracing::info!(
                        "the files of secrets or certificates were read again: new connections \
                         use what is in them"
                    );
                } else {
                    tracing::debug!("this node's certificate was renewed");
                }
            }
            Err(e) => {
                current.reloads_failed += 1;
                current.again = e.good_from();
                tracing::warn!(
                    "the files of secrets or certificates changed, but cannot be used; the former \
                     ones stay in force: {e}"
                );
            }
        }
    }

    /// What shall be in force now; `changed`: the files have changed.
    fn load(&self, changed: bool) -> Result<(Tls, Option<Secrets>), IdentityError> {
        match &self.source {
            IdentitySource::Files(files) => Ok((files.load(self.time.clone())?, None)),
            IdentitySource::Secrets { file, key } => {
                let secrets = match (file, self.current().secrets.clone()) {
                    (None, Some(secrets)) => secrets,
                    (Some(_), Some(secrets)) if !changed => secrets,
                    (Some(path), _) => Secrets::of_file(path, "--secret-file")
                        .map_err(IdentityError::Unreadable)?,
                    // Secrets are kept from the start on.
                    (None, None) => return Err(SecretError::Empty.into()),
                };
                let tls =
                    Tls::of_secrets(&secrets, (self.role, &self.name), key, self.time.clone())?;
                Ok((tls, Some(secrets)))
            }
        }
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        match &self.source {
            IdentitySource::Secrets { file, .. } => stamps(file.iter()),
            IdentitySource::Files(files) => stamps(files.paths()),
        }
    }

    /// Checks that the certificates of another process allow what its hello says. `shown` is the
    /// chain of its handshake, the leaf first.
    ///
    /// # Errors
    /// They do not; the message says what is wrong.
    pub fn recognize(
        &self,
        shown: &[CertificateDer<'static>],
        claim: &Claim<'_>,
    ) -> Result<Evidence, DialFailure> {
        let hello = |why: String| DialFailure::Hello(why);
        if claim.dialled && claim.client {
            return Err(hello(
                "it answers as a client, but only nodes can be dialled".into(),
            ));
        }
        // Both ends demand certificates, so there is one.
        let leaf = shown
            .first()
            .ok_or_else(|| hello("it shows no certificate".into()))?;
        let role = claim.role();
        let tls = self.tls();
        match tls.trust.as_ref() {
            TrustStore::Secrets(vouchers) => {
                let now = self.now()?;
                Self::recognize_by_secret(vouchers, leaf, claim, now)
            }
            TrustStore::Pem(pem) => {
                let roles = pem.roles(leaf);
                // Who may be a node may also be a client.
                let may =
                    roles.contains(&role) || claim.client && roles.contains(&SecretRole::Member);
                if !may {
                    let prefix = &pem.role_prefix;
                    return Err(hello(format!(
                        "its certificate does not have the role {prefix}{role}: sign it again \
                         with that as a URI of its subjectAltName"
                    )));
                }
                names_of_operator(leaf, claim).map_err(hello)?;
                Ok(Evidence::new(Vouched::Chain(shown.to_vec(), claim.end())))
            }
        }
    }

    fn recognize_by_secret(
        vouchers: &[Voucher],
        leaf: &CertificateDer<'static>,
        claim: &Claim<'_>,
        now: UnixTime,
    ) -> Result<Evidence, DialFailure> {
        let role = claim.role();
        let certificate = if claim.dialled {
            // A server shows a random key in the handshake, and its certificate in the hello.
            claim.card.ok_or(DialFailure::OtherSecret)?
        } else {
            leaf
        };
        let voucher = found(vouchers, certificate, claim.end(), now).map_err(|e| failure(&e))?;
        if claim.dialled && !share_key(certificate, leaf) {
            let why = "its certificate is for another key than that of its handshake";
            return Err(DialFailure::Hello(why.into()));
        }
        if voucher.role != role || !bears(certificate, &dns_name(claim.name)) {
            let name = claim.name;
            return Err(DialFailure::Hello(format!(
                "its certificate does not name {name:?} as a {role}"
            )));
        }
        Ok(Evidence::new(Vouched::By(voucher.clone())))
    }

    /// Whether the process that gave this evidence would still be accepted. That its certificate
    /// has expired meanwhile does not matter.
    #[must_use]
    pub fn trusts(&self, evidence: &Evidence) -> bool {
        self.is_process(evidence) && self.vouches(&evidence.vouched)
    }

    /// Whether this process has the key that the table says for its id, if it says one.
    pub(super) fn is_process(&self, evidence: &Evidence) -> bool {
        evidence
            .process
            .is_none_or(|(id, shown)| self.processes.may_be(id, shown))
    }

    fn vouches(&self, vouched: &Vouched) -> bool {
        let tls = self.tls();
        match (vouched, tls.trust.as_ref()) {
            (Vouched::By(voucher), TrustStore::Secrets(vouchers)) => vouchers.contains(voucher),
            (Vouched::Chain(chain, end), TrustStore::Pem(pem)) => {
                let (Some((leaf, intermediates)), Ok(now)) = (chain.split_first(), self.now())
                else {
                    return false;
                };
                match pem.accepts((leaf, intermediates), *end, now) {
                    Ok(()) => true,
                    Err(e) => is_of_time(&e),
                }
            }
            (Vouched::By(_), TrustStore::Pem(_)) | (Vouched::Chain(..), TrustStore::Secrets(_)) => {
                false
            }
        }
    }

    fn now(&self) -> Result<UnixTime, DialFailure> {
        self.time
            .current_time()
            .ok_or_else(|| DialFailure::Hello("this machine's clock is before 1970".into()))
    }
}

/// Whether a certificate of the operator's authority names the process.
fn names_of_operator(leaf: &CertificateDer<'_>, claim: &Claim<'_>) -> Result<(), String> {
    let (name, host) = (claim.name, host_of(claim.name));
    // The name of a client does not matter. An operator's certificate names a host or a node, by
    // name or address.
    if claim.client || bears(leaf, name) || bears(leaf, host) || bears(leaf, &dns_name(name)) {
        return Ok(());
    }
    Err(format!(
        "its certificate names neither {name:?} nor {host:?} (subjectAltName)"
    ))
}

/// Why a certificate is not accepted.
fn failure(e: &webpki::Error) -> DialFailure {
    match e {
        e if is_of_time(e) => DialFailure::OtherTime,
        webpki::Error::CertRevoked => DialFailure::Revoked,
        _ => DialFailure::OtherSecret,
    }
}

/// The certificates of the member authorities of these secrets, as PEM. Programs that have them
/// recognize the cluster's certificates. They are no secret.
///
/// # Errors
/// These are not the secrets of members.
pub fn authority_certificates(secrets: &Secrets) -> Result<String, IdentityError> {
    let mut out = String::new();
    for line in secrets.lines() {
        let keys = line.keys().ok_or(IdentityError::OtherRole {
            file: line.role(),
            wanted: SecretRole::Member,
        })?;
        let authority = Authority::of(SecretRole::Member, &keys.member)?;
        out.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = base64::engine::general_purpose::STANDARD.encode(authority.certificate());
        for at in (0..text.len()).step_by(64) {
            out.push_str(&text[at..text.len().min(at + 64)]);
            out.push('\n');
        }
        out.push_str("-----END CERTIFICATE-----\n");
    }
    Ok(out)
}

fn stamps<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Vec<Option<Stamp>> {
    paths.map(|path| stamp(path)).collect()
}

/// The stamp of a file; `None` if it cannot be found.
pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    let times = [
        (file.mtime(), file.mtime_nsec()),
        (file.ctime(), file.ctime_nsec()),
    ];
    Some((file.ino(), file.len(), times))
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

#[cfg(test)]
mod tests;
