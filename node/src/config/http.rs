//! HTTP: the names that it answers to, its tokens and its TLS.

use super::files::read;
use super::ports::PortsConfig;
use super::trust::pair_of;
use super::value::{Address, Toggle};
use super::{ConfigError, Options, PortTls, TlsMin, Trust, fail};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Tokens shorter than this are refused.
pub(super) const TOKEN_BYTES_MIN: usize = 16;
/// Tokens in the file for operators: two while one is replaced, and some more.
const TOKENS_MAX: usize = 16;

/// What HTTP takes. Example: [`Config`](super::Config).
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Host names that it answers to, beside IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The file with tokens of operators, besides those of the secret and of the table.
    pub token_file: Option<PathBuf>,
    /// TLS; `None`: it is in the clear.
    pub tls: Option<PortTls>,
}

impl HttpConfig {
    pub(super) fn resolve(
        options: &Options,
        ports: &PortsConfig,
        trust: &Trust,
    ) -> Result<Self, ConfigError> {
        if let Some(a) = ports.http.filter(|a| {
            !a.ip().is_loopback()
                && options.http_token_file.is_none()
                && !matches!(trust, Trust::Secret { .. })
        }) {
            return fail(format!(
                "--http {a} is not a loopback address, and HTTP beyond this machine needs a \
                 token: give --http-token-file FILE, or --secret-file FILE, which yields a token"
            ));
        }
        if let Some(path) = &options.http_token_file {
            http_tokens(path, "--http-token-file")?;
        }
        Ok(Self {
            hosts: hosts(options)?,
            token_file: options.http_token_file.clone(),
            tls: tls(options, ports.http, trust)?,
        })
    }
}

/// The host names that HTTP answers to.
fn hosts(options: &Options) -> Result<Vec<String>, ConfigError> {
    let said = options.http_host.clone().unwrap_or_default();
    if let Some(wrong) = said.iter().find(|name| {
        name.is_empty()
            || name.contains([':', '/', '*'])
            || !name.bytes().all(|b| b.is_ascii_graphic())
    }) {
        return fail(format!(
            "--http-host `{}` is not a host name: give a name without a port, as in \
             node-1.example.com",
            wrong.escape_debug()
        ));
    }
    let http = match &options.http {
        Some(Toggle::On(text)) => Some(text),
        Some(Toggle::Off) | None => None,
    };
    let addresses = [
        http,
        options.listen.as_ref(),
        options.advertise.as_ref(),
        options.advertise_resp.as_ref(),
        options.advertise_resp_cluster.as_ref(),
    ];
    // HTTP always answers to IP addresses.
    let name = |text: &String| Some(text.parse::<Address>().ok()?.name()?.to_owned());
    Ok(said
        .into_iter()
        .chain(addresses.into_iter().flatten().filter_map(name))
        .collect())
}

/// TLS of HTTP at this address. Beyond loopback it is the default, because requests carry
/// tokens.
fn tls(
    options: &Options,
    http: Option<SocketAddr>,
    trust: &Trust,
) -> Result<Option<PortTls>, ConfigError> {
    let files = [
        ("--http-tls-cert", &options.http_tls_cert),
        ("--http-tls-key", &options.http_tls_key),
    ];
    let insecure = options.http_insecure.unwrap_or(false);
    let beyond = http.filter(|address| !address.ip().is_loopback());
    let given = files.iter().any(|(_, path)| path.is_some());
    let wanted = options
        .http_tls
        .unwrap_or(!insecure && (given || beyond.is_some()));
    if wanted && insecure {
        return fail(
            "--http-tls and --http-insecure exclude each other: give only one of them".into(),
        );
    }
    if wanted && http.is_some() {
        return Ok(Some(PortTls {
            pair: pair_of(files, trust, "HTTP with TLS")?,
            client_ca: None,
            min: TlsMin::V13,
        }));
    }
    if let Some((flag, _)) = files.into_iter().find(|(_, path)| path.is_some()) {
        return fail(format!(
            "{flag} is for HTTP with TLS, which is off: leave it out"
        ));
    }
    if let Some(address) = beyond.filter(|_| !insecure) {
        return fail(format!(
            "--http {address} is not a loopback address, and without TLS, who reads the \
             network sees tokens: leave --http-tls=false out, or give --http-insecure"
        ));
    }
    Ok(None)
}

/// The tokens in a file, one a line: nodes take all of them, and the commands of `doyen` send the
/// first. Empty lines, and lines that begin with `#`, mean nothing.
///
/// ```
/// let file = tempfile::NamedTempFile::new()?;
/// std::fs::write(&file, "# until May\n0123456789abcdef\n\nfedcba9876543210\n")?;
/// let tokens = doyen::config::http_tokens(file.path(), "--http-token-file")?;
/// assert_eq!(*tokens[0], "0123456789abcdef");
/// assert_eq!(tokens.len(), 2);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The file cannot be read, has no token, more than 16, or one of less than 16 bytes or with
/// control characters. The message names the file and the flag.
pub fn http_tokens(
    path: &Path,
    flag: &str,
) -> Result<Vec<zeroize::Zeroizing<String>>, ConfigError> {
    let text = zeroize::Zeroizing::new(read(path, flag)?);
    tokens_of(&text, &format!("{} ({flag})", path.display()))
}

/// The tokens in the text of such a file; `place` names it.
pub(crate) fn tokens_of(
    text: &str,
    place: &str,
) -> Result<Vec<zeroize::Zeroizing<String>>, ConfigError> {
    let lines = text.lines().map(str::trim).zip(1..);
    let mut tokens = Vec::new();
    for (token, line) in lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')) {
        if let Some(wrong) = token.chars().find(|c| c.is_control()) {
            return fail(format!(
                "line {line} of {place} has the control character {wrong:?}: each line \
                 must have one token; `openssl rand -hex 32` makes one"
            ));
        }
        if token.len() < TOKEN_BYTES_MIN {
            return fail(format!(
                "the token in line {line} of {place} has {} bytes, but at least \
                 {TOKEN_BYTES_MIN} are needed: make one with `openssl rand -hex 32`",
                token.len()
            ));
        }
        tokens.push(zeroize::Zeroizing::new(token.to_owned()));
    }
    match tokens.len() {
        0 => fail(format!(
            "{place} is empty: it must have a token; `openssl rand -hex 32` makes one"
        )),
        1..=TOKENS_MAX => Ok(tokens),
        many => fail(format!(
            "{place} has {many} tokens, but at most {TOKENS_MAX} are allowed: give \
             programs tokens of their own with `doyen token new NAME`"
        )),
    }
}
