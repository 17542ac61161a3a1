//! RESP: who may use it, and how.

use super::files::{read, read_line};
use super::ports::PortsConfig;
use super::trust::pair_of;
use super::{ConfigError, KeyEvents, Options, PortTls, Trust, at_least, fail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a RESP client may take to authenticate, by default. A person at a prompt needs some
/// seconds.
const AUTH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// How long a RESP client may be silent before the system asks for a sign of life.
const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(crate::net::keepalive::KEEPALIVE_S as u64);

/// What RESP clients may do. Example: [`Config`](super::Config).
#[derive(Debug, Clone)]
pub struct RespConfig {
    /// TLS; `None`: they speak in the clear.
    pub tls: Option<PortTls>,
    /// Their password.
    pub password: Option<String>,
    /// The file with their users; `None`: the table has them.
    pub acl_file: Option<PathBuf>,
    /// How long they may take to authenticate; `None`: for ever.
    pub auth_timeout: Option<Duration>,
    /// How long they may be idle; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long they may be silent before the system asks for a sign of life; 0: for ever.
    pub tcp_keepalive: Duration,
    /// Which messages about keys they may subscribe to.
    pub key_events: KeyEvents,
    /// Whether transactions with keys in several partitions are refused.
    pub strict_transactions: bool,
    /// Connections at most.
    pub connections_max: usize,
}

impl RespConfig {
    pub(super) fn resolve(
        options: &Options,
        ports: &PortsConfig,
        trust: &Trust,
    ) -> Result<Self, ConfigError> {
        let password = (options.resp_password_file.as_deref())
            .map(|p| read_line(p, "--resp-password-file"))
            .transpose()?;
        if let (Some(_), Some(file)) = (&password, &options.resp_acl_file) {
            return fail(format!(
                "--resp-password-file and --resp-acl-file exclude each other: put the password \
                 into {}, as `user default on >PASSWORD ~* &* +@all`",
                file.display()
            ));
        }
        let open = match &options.resp_acl_file {
            Some(file) => users_are_open(file)?,
            None => password.is_none(),
        };
        let fronts = [
            ("--resp", ports.resp),
            ("--resp-cluster", ports.resp_cluster),
        ];
        for (flag, address) in fronts.into_iter().filter(|_| open) {
            if let Some(a) = address.filter(|a| !a.ip().is_loopback()) {
                return fail(format!(
                    "{flag} {a} is not a loopback address, and RESP beyond this machine needs \
                     a password: give --resp-password-file FILE, or --resp-acl-file FILE \
                     with a user `default` that is off or has a password"
                ));
            }
        }
        let connections_max = at_least("--connections-max", options.connections_max, 1)?;
        Ok(Self {
            tls: tls(options, trust)?,
            password,
            acl_file: options.resp_acl_file.clone(),
            auth_timeout: Some(
                options
                    .resp_auth_timeout
                    .map_or(AUTH_TIMEOUT_DEFAULT, |s| s.0),
            )
            .filter(|t| !t.is_zero()),
            idle_timeout: (options.resp_idle_timeout.map(|s| s.0)).filter(|t| !t.is_zero()),
            tcp_keepalive: options
                .resp_tcp_keepalive
                .map_or(KEEPALIVE_DEFAULT, |s| s.0),
            key_events: options.notify_keyspace_events.unwrap_or_default(),
            strict_transactions: options.strict_transactions.unwrap_or(false),
            connections_max: connections_max.unwrap_or(10_000) as usize,
        })
    }
}

fn tls(options: &Options, trust: &Trust) -> Result<Option<PortTls>, ConfigError> {
    let files = [
        ("--resp-tls-cert", &options.resp_tls_cert),
        ("--resp-tls-key", &options.resp_tls_key),
        ("--resp-tls-client-ca", &options.resp_tls_client_ca),
    ];
    if !options.resp_tls.unwrap_or(false) {
        if options.resp_tls_min.is_some() {
            return fail("--resp-tls-min needs --resp-tls: give that as well".into());
        }
        return match files.into_iter().find(|(_, path)| path.is_some()) {
            Some((flag, _)) => fail(format!("{flag} needs --resp-tls: give that as well")),
            None => Ok(None),
        };
    }
    if let Some(path) = &options.resp_tls_client_ca {
        read(path, "--resp-tls-client-ca")?;
    }
    Ok(Some(PortTls {
        pair: pair_of([files[0], files[1]], trust, "--resp-tls")?,
        client_ca: options.resp_tls_client_ca.clone(),
        min: options.resp_tls_min.unwrap_or_default(),
    }))
}

/// Whether RESP clients need no password, with the users of this file.
#[cfg(feature = "resp")]
fn users_are_open(file: &Path) -> Result<bool, ConfigError> {
    let users = crate::resp::acl::file::load(file).map_err(ConfigError)?;
    Ok(crate::resp::acl::users::Users::new(users.into(), None).is_open())
}

/// This build has no RESP, so that the file has no use.
#[cfg(not(feature = "resp"))]
fn users_are_open(_: &Path) -> Result<bool, ConfigError> {
    fail("this program is built without RESP, which --resp-acl-file is for: leave it out".into())
}
