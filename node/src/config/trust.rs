//! How nodes recognize each other, and TLS of the ports for other programs.

use super::files::{read, secrets_of};
use super::{ConfigError, Options, PemFiles, Secrets, TlsMin, TrustRole, fail};
use crate::net::identity::{ROLE_PREFIX, other_role};
use std::path::PathBuf;

/// How nodes recognize the members of their cluster. Secrets are never shown, because
/// configurations end up in logs.
///
/// Example: [`Config`](super::Config).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// No secret: only nodes on this machine.
    Loopback,
    /// Secrets that all nodes share.
    Secret {
        /// The secrets, the one that signs first.
        secrets: Secrets,
        /// The file that they come from, which is read again when it changes.
        file: Option<PathBuf>,
    },
    /// PEM files of the operator.
    Pem(PemFiles),
}

impl Trust {
    /// `roles`: whose secrets fit, the one to recommend first.
    pub(super) fn resolve(options: &Options, roles: &[TrustRole]) -> Result<Self, ConfigError> {
        let secrets = match (&options.secret_file, &options.secret) {
            (Some(path), _) => Some((
                secrets_of(path, "--secret-file")?,
                options.secret_file.clone(),
            )),
            (None, Some(said)) => {
                let unusable = |e| ConfigError(format!("the secret: {e}"));
                Some((Secrets::of_bytes(said).map_err(unusable)?, None))
            }
            (None, None) => None,
        };
        match (
            secrets,
            &options.tls_ca,
            &options.tls_cert,
            &options.tls_key,
        ) {
            (None, None, None, None) if options.tls_crl.is_some() => {
                fail("--tls-crl needs --tls-ca, --tls-cert and --tls-key: give all of them".into())
            }
            (None, None, None, None) => Ok(Self::Loopback),
            (Some((secrets, file)), None, None, None) => {
                let role = secrets.role();
                if roles.contains(&role) {
                    return Ok(Self::Secret { secrets, file });
                }
                let wanted = roles.first().copied().unwrap_or(TrustRole::Member);
                let place = file.map_or_else(
                    || "the secret".to_owned(),
                    |path| format!("{} (--secret-file)", path.display()),
                );
                fail(format!("{place}: {}", other_role(role, wanted)))
            }
            (None, Some(ca), Some(cert), Some(key)) => {
                let mut files = PemFiles::new(ca, cert, key);
                files.crl.clone_from(&options.tls_crl);
                files.role_prefix = options
                    .tls_role_prefix
                    .clone()
                    .unwrap_or_else(|| ROLE_PREFIX.to_owned());
                let named = [("--tls-ca", ca), ("--tls-cert", cert), ("--tls-key", key)];
                let crl = options.tls_crl.iter().map(|crl| ("--tls-crl", crl));
                for (flag, path) in named.into_iter().chain(crl) {
                    read(path, flag)?;
                }
                Ok(Self::Pem(files))
            }
            (None, ..) => {
                fail("--tls-ca, --tls-cert and --tls-key belong together: give all three".into())
            }
            (Some(_), ..) => {
                fail("a secret and --tls-* files exclude each other: give only one of them".into())
            }
        }
    }
}

/// TLS on ports for clients that are no nodes. Example: [`Config`](super::Config).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortTls {
    /// The files of the certificate and of its key; `None`: as nodes trust each other.
    pub pair: Option<(PathBuf, PathBuf)>,
    /// The file of the authority of clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// The least version of TLS that clients may speak.
    pub min: TlsMin,
}

/// The files of a certificate and its key, which must be given both; `None`: neither is given, and
/// what nodes trust each other by has one.
pub(super) fn pair_of(
    [cert, key]: [(&str, &Option<PathBuf>); 2],
    trust: &Trust,
    what: &str,
) -> Result<Option<(PathBuf, PathBuf)>, ConfigError> {
    match (cert.1, key.1) {
        (Some(certificate), Some(of)) => {
            read(certificate, cert.0)?;
            read(of, key.0)?;
            Ok(Some((certificate.clone(), of.clone())))
        }
        (None, None) if *trust == Trust::Loopback => fail(format!(
            "{what} needs a certificate: give {} and {}, or --secret-file FILE, which yields one",
            cert.0, key.0
        )),
        (None, None) => Ok(None),
        _ => fail(format!(
            "{} and {} belong together: give both",
            cert.0, key.0
        )),
    }
}
