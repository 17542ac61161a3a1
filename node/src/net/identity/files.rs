//! Certificates in PEM files of the operator.

use super::IdentityError;
use super::certificate::{is_of_an_old_version, validity_of};
use super::tls::{Tls, provider};
use super::trust::{End, Pem, own};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use webpki::{CertRevocationList, OwnedCertRevocationList, anchor_from_trusted_cert};

/// A file, and the flag that names it.
pub(super) type Named = (&'static str, PathBuf);

/// What precedes the name of a role in a certificate, by default.
pub const ROLE_PREFIX: &str = "doyen:";

/// The files of a node or client that has certificates of the operator's authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemFiles {
    /// The certificates of the authority.
    pub ca: PathBuf,
    /// The chain of this process.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority's revoked certificates.
    pub crl: Option<PathBuf>,
    /// What precedes the name of a role (`member`, `client`, `operator`) in a certificate.
    pub role_prefix: String,
}

impl PemFiles {
    /// These files, without a revocation list, and with roles as in `doyen:member`.
    pub fn new(ca: &Path, cert: &Path, key: &Path) -> Self {
        Self {
            ca: ca.to_owned(),
            cert: cert.to_owned(),
            key: key.to_owned(),
            crl: None,
            role_prefix: ROLE_PREFIX.to_owned(),
        }
    }

    /// All files.
    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.ca, &self.cert, &self.key]
            .into_iter()
            .chain(&self.crl)
    }

    /// Reads the files.
    pub(super) fn load(&self, time: Arc<dyn TimeProvider>) -> Result<Tls, IdentityError> {
        let roots = certificates("--tls-ca", &self.ca)?;
        let chain = certificates("--tls-cert", &self.cert)?;
        if chain.iter().any(is_of_an_old_version) {
            let why = "a certificate in it is of X.509 version 1, but TLS needs version 3: sign \
                       it again with a subjectAltName that is the node's name or host, with \
                       `openssl x509 -req ... -extfile FILE`, where FILE has \
                       `subjectAltName=DNS:NAME,URI:doyen:member`";
            return Err(named("--tls-cert", &self.cert, why.into()));
        }
        let (cert, key) = (
            ("--tls-cert", self.cert.clone()),
            ("--tls-key", self.key.clone()),
        );
        let key = key_of(&chain, &cert, &key)?;
        of_this_time(&chain, &cert, time.current_time())?;
        let anchors = roots
            .iter()
            .map(|root| anchor_from_trusted_cert(root).map(|anchor| anchor.to_owned()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| named("--tls-ca", &self.ca, e.to_string()))?;
        let pem = Pem {
            anchors,
            crls: self.crls()?,
            role_prefix: self.role_prefix.clone(),
        };
        self.check_own(&pem, &chain, time.as_ref())?;
        Tls::of_pem(pem, chain, key, time)
    }

    fn crls(&self) -> Result<Vec<CertRevocationList<'static>>, IdentityError> {
        let Some(path) = &self.crl else {
            return Ok(Vec::new());
        };
        let of_crl = |why| named("--tls-crl", path, why);
        let lists = CertificateRevocationListDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| of_crl(not_read(&e, "X509 CRL")))?;
        if lists.is_empty() {
            return Err(of_crl(not_read(&pem::Error::NoItemsFound, "X509 CRL")));
        }
        lists
            .iter()
            .map(|list| OwnedCertRevocationList::from_der(list).map(Into::into))
            .collect::<Result<_, _>>()
            .map_err(|e| of_crl(format!("a revocation list in it cannot be used ({e})")))
    }

    /// With a wrong certificate of its own, a process would be refused by all others, who say less.
    fn check_own(
        &self,
        pem: &Pem,
        chain: &[CertificateDer<'static>],
        time: &dyn TimeProvider,
    ) -> Result<(), IdentityError> {
        // `certificates` refuses a file without any.
        let (Some((leaf, intermediates)), Some(now)) = (chain.split_first(), time.current_time())
        else {
            return Ok(());
        };
        let result = pem.accepts((leaf, intermediates), End::Dialler, now);
        // The other ends judge the rest, as they did before there were roles and lists.
        if let Err(
            e @ (webpki::Error::CertRevoked
            | webpki::Error::UnknownRevocationStatus
            | webpki::Error::InvalidCrlSignatureForPublicKey),
        ) = result
        {
            return Err(own(&e));
        }
        if pem.roles(leaf).is_empty() {
            let prefix = &self.role_prefix;
            let why = format!(
                "the certificate names no role: sign it again with a subjectAltName `URI:\
                 {prefix}member` for a node, or `URI:{prefix}client` for a client (or with the \
                 same text as organizational unit)"
            );
            return Err(named("--tls-cert", &self.cert, why));
        }
        Ok(())
    }
}

/// The key in a file, if it is that of this chain.
pub(super) fn key_of(
    chain: &[CertificateDer<'static>],
    cert: &Named,
    (flag, path): &Named,
) -> Result<PrivateKeyDer<'static>, IdentityError> {
    let of_key = |why| named(flag, path, why);
    let key =
        PrivateKeyDer::from_pem_file(path).map_err(|e| of_key(not_read(&e, "private key")))?;
    let signs = provider()
        .key_provider
        .load_private_key(key.clone_key())
        .map_err(|e| of_key(format!("the private key in it cannot be used ({e})")))?;
    match CertifiedKey::new(chain.to_vec(), signs).keys_match() {
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Err(IdentityError::OtherKey {
                cert: cert.clone(),
                key: (*flag, path.clone()),
            })
        }
        _ => Ok(key),
    }
}

/// Refuses a chain whose own certificate has expired, or is not valid yet: every client would
/// refuse it. An authority in the chain may have expired, because clients may know another way.
pub(super) fn of_this_time(
    chain: &[CertificateDer<'static>],
    (flag, path): &Named,
    now: Option<UnixTime>,
) -> Result<(), IdentityError> {
    let validity = chain.first().and_then(validity_of);
    let (Some((begins, ends)), Some(now)) = (validity, now) else {
        return Ok(());
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if (begins..=ends).contains(&now) {
        return Ok(());
    }
    Err(IdentityError::Untimely {
        flag,
        path: path.clone(),
        begins,
        ends,
        now,
    })
}

/// The certificates in a file, at least one.
pub(super) fn certificates(
    flag: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| named(flag, path, not_read(&e, "certificate")))?;
    if all.is_empty() {
        let why = not_read(&pem::Error::NoItemsFound, "certificate");
        return Err(named(flag, path, why));
    }
    Ok(all)
}

/// What is wrong with the file of this flag.
pub(super) fn named(flag: &'static str, path: &Path, why: String) -> IdentityError {
    IdentityError::File {
        flag,
        path: path.to_owned(),
        why,
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
