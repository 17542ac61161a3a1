//! Secret files: their lines, and what is derived from each line. Pure: nothing here reads a file,
//! a clock or the network.
//!
//! ```text
//!   member secret M ──"member authority"──> key that signs certificates of members
//!                   ──"client"──> client secret C ──"client authority"──> key that signs
//!                   │                                                     certificates of clients
//!                   └─"operator"──> operator secret O ──"http"──> bearer token
//! ```
//!
//! Each arrow is HKDF-SHA256, which cannot be reversed. So the holder of C can be a client and
//! nothing else, and the holder of O can administer and nothing else. A file has up to
//! [`LINES_MAX`] lines. The first line signs, and all are trusted, so that a secret can be replaced
//! without a pause.
//!
//! ```text
//!   doyen-member-1 BASE64URL(M)
//!   doyen-client-1 BASE64URL(C) BASE64URL(public key of the member authority)
//!   doyen-operator-1 BASE64URL(O) BASE64URL(public key of the member authority)
//! ```
//!
//! A line without a prefix is a member's secret as it was before version 15 of the wire. 64 hex
//! digits and base64 of 32 bytes are M itself. Everything else is a phrase, from which argon2id
//! makes M, so that guessing costs memory and time.

mod phrase;

use super::authority::former_token;
use crate::files::read_bytes;
use crate::hex::hex;
use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::signature::KeyPair as _;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;
/// Phrases shorter than this are refused.
pub const PHRASE_BYTES_MIN: usize = 16;
/// Lines of a file, at most.
pub const LINES_MAX: usize = 8;
/// A secret of 32 bytes has at least this many different ones, or it is not random.
const DIFFERENT_MIN: usize = SECRET_BYTES / 2;
/// Bytes of a line, at most. More than this is no secret, but another file.
const LINE_BYTES_MAX: usize = 4 << 10;

const MEMBER: &str = "doyen-member-1";
const CLIENT: &str = "doyen-client-1";
const OPERATOR: &str = "doyen-operator-1";
/// All prefixes begin with this, also those of later versions.
const PREFIX: &str = "doyen-";

/// What the holder of a credential may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretRole {
    /// Be a node of the cluster, which includes all that clients and operators may do.
    Member,
    /// Use data.
    Client,
    /// Administer by HTTP.
    Operator,
}

impl SecretRole {
    /// The role's name, as in files and in certificates.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Client => "client",
            Self::Operator => "operator",
        }
    }

    /// The name with its article, for sentences.
    #[must_use]
    pub const fn with_article(self) -> &'static str {
        match self {
            Self::Member => "a member",
            Self::Client => "a client",
            Self::Operator => "an operator",
        }
    }
}

impl fmt::Display for SecretRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// 32 secret bytes. They are never printed, are zeroed when dropped, and are compared in constant
/// time.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl Secret {
    /// New random bytes of the operating system.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn random() -> Result<Self, SecretError> {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), bytes.as_mut())
            .map_err(|_| SecretError::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// The bytes. Do not print or store them.
    #[must_use]
    pub fn expose(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// What is derived from this secret under a label.
    fn derive(&self, label: &str) -> Self {
        Self(expand(b"doyen/2", self.0.as_ref(), label))
    }

    /// The public key of the Ed25519 key with this seed.
    fn public_key(&self) -> PublicKey {
        // Any 32 bytes are a seed.
        let key = ring::signature::Ed25519KeyPair::from_seed_unchecked(self.0.as_ref())
            .expect("32 bytes are a seed");
        let mut public = [0; 32];
        public.copy_from_slice(key.public_key().as_ref());
        PublicKey(public)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(other.0.as_ref()).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The public key of an authority (Ed25519).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// SubjectPublicKeyInfo of an Ed25519 key without the outer header (RFC 8410, section 4).
    #[must_use]
    pub fn info(&self) -> Vec<u8> {
        let mut out = vec![0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        out.extend_from_slice(&self.0);
        out
    }

    /// 16 hex digits that tell this key from others.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        hex(&sha256(&self.0).as_ref()[..8])
    }
}

/// Text or bytes that are a secret of the form before version 15.
#[derive(Clone)]
struct SecretText(Zeroizing<Vec<u8>>);

impl PartialEq for SecretText {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// One line of a secret file. It never prints its secret.
#[derive(Clone, PartialEq)]
pub struct Line(SecretKind);

#[derive(Clone, PartialEq)]
enum SecretKind {
    Member(Secret),
    /// Exactly 32 bytes, written as hex or base64 without a prefix: as `text`.
    Bytes {
        secret: Secret,
        text: SecretText,
    },
    Phrase(SecretText),
    /// The secret of a client or an operator, and the public key of the member authority.
    Derived(SecretRole, Secret, PublicKey),
}

impl Eq for Line {}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({}, ..)", self.role())
    }
}

/// The line of a member, taken apart. Made once, because making it from a phrase is slow.
#[derive(Debug, Clone)]
pub struct SecretKeys {
    /// The seed of the key that signs certificates of members.
    pub member: Secret,
    /// The seed of the key that signs certificates of clients.
    pub client: Secret,
    /// The bearer token of operators, in hex.
    pub token: Zeroizing<String>,
}

impl Line {
    /// A new member's line.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn new_member() -> Result<Self, SecretError> {
        Secret::random().map(|secret| Self(SecretKind::Member(secret)))
    }

    /// A member's line with these bytes.
    #[must_use]
    pub fn member(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(SecretKind::Member(Secret(Zeroizing::new(bytes))))
    }

    /// A member's line from a text that is no secret, for nodes that anyone on this machine may
    /// join. Also in the scheme before version 15.
    #[must_use]
    pub(super) fn open(text: &[u8]) -> Self {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        bytes.copy_from_slice(sha256(text).as_ref());
        Self(SecretKind::Bytes {
            secret: Secret(bytes),
            text: SecretText(Zeroizing::new(text.to_vec())),
        })
    }

    /// Whose line this is.
    #[must_use]
    pub const fn role(&self) -> SecretRole {
        match &self.0 {
            SecretKind::Member(_) | SecretKind::Bytes { .. } | SecretKind::Phrase(_) => {
                SecretRole::Member
            }
            SecretKind::Derived(role, ..) => *role,
        }
    }

    /// The secret M of a member; for a phrase, this takes 64 MiB and some tenths of a second, once
    /// per process.
    fn member_secret(&self) -> Option<Secret> {
        match &self.0 {
            SecretKind::Member(secret) | SecretKind::Bytes { secret, .. } => Some(secret.clone()),
            SecretKind::Phrase(text) => phrase::stretched(&text.0),
            SecretKind::Derived(..) => None,
        }
    }

    /// Everything that a member derives; `None` if this is no member's line. Slow for a phrase.
    #[must_use]
    pub fn keys(&self) -> Option<SecretKeys> {
        let secret = self.member_secret()?;
        Some(SecretKeys {
            member: secret.derive("member authority"),
            client: secret.derive("client").derive("client authority"),
            token: token_of(&secret.derive("operator")),
        })
    }

    /// The seed of the key that signs certificates of clients; `None` for an operator's line. Slow
    /// for a phrase.
    #[must_use]
    pub fn client_key(&self) -> Option<Secret> {
        match &self.0 {
            SecretKind::Derived(SecretRole::Client, secret, _) => {
                Some(secret.derive("client authority"))
            }
            SecretKind::Derived(..) => None,
            _ => Some(self.keys()?.client),
        }
    }

    /// The bearer token of operators, in hex; `None` for a client's line. Slow for a phrase.
    #[must_use]
    pub fn token(&self) -> Option<Zeroizing<String>> {
        match &self.0 {
            SecretKind::Derived(SecretRole::Operator, secret, _) => Some(token_of(secret)),
            SecretKind::Derived(..) => None,
            _ => Some(self.keys()?.token),
        }
    }

    /// The token that the command line sends. Of 32 bytes without a prefix, it is the token of
    /// before, which nodes of all versions accept: a rolling upgrade has nodes of both. `None` for
    /// a client's line. Slow for a phrase.
    #[must_use]
    pub fn operator_token(&self) -> Option<Zeroizing<String>> {
        match self.former() {
            Some(secret) => Some(former_token(secret)),
            None => self.token(),
        }
    }

    /// The public key of the member authority, which servers prove. Slow for a phrase.
    #[must_use]
    pub fn member_public_key(&self) -> PublicKey {
        match &self.0 {
            SecretKind::Derived(_, _, public) => *public,
            // Every other line is a member's.
            _ => self
                .member_secret()
                .map(|secret| secret.derive("member authority").public_key())
                .unwrap_or(PublicKey([0; 32])),
        }
    }

    /// Tells this line and what was derived from it from others. Of a phrase, it would be good for
    /// checking guesses, so it is shown only to operators. Slow for a phrase.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.member_public_key().fingerprint()
    }

    /// The secret from which commands derive the token of before version 15: only exactly 32 bytes
    /// without a prefix.
    #[must_use]
    pub(super) fn former(&self) -> Option<&[u8]> {
        match &self.0 {
            SecretKind::Bytes { text, .. } => Some(&text.0),
            SecretKind::Member(_) | SecretKind::Phrase(_) | SecretKind::Derived(..) => None,
        }
    }

    /// The phrase that a person chose, which may be weak; `None` for 32 bytes.
    #[must_use]
    pub fn phrase(&self) -> Option<&[u8]> {
        match &self.0 {
            SecretKind::Phrase(text) => Some(&text.0),
            SecretKind::Member(_) | SecretKind::Bytes { .. } | SecretKind::Derived(..) => None,
        }
    }

    /// Whether its secret is derived from a phrase.
    #[must_use]
    pub fn is_phrase(&self) -> bool {
        self.phrase().is_some()
    }

    /// The line of a client or an operator of this member; `None` if this is no member's line. For
    /// `Role::Member`, the line itself with its prefix. Slow for a phrase.
    #[must_use]
    pub fn for_role(&self, role: SecretRole) -> Option<Self> {
        let secret = self.member_secret()?;
        Some(Self(match role {
            SecretRole::Member => SecretKind::Member(secret),
            SecretRole::Client => {
                SecretKind::Derived(role, secret.derive("client"), self.member_public_key())
            }
            SecretRole::Operator => {
                SecretKind::Derived(role, secret.derive("operator"), self.member_public_key())
            }
        }))
    }

    /// The line as it stands in a file, without a line end: **this is the secret**.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        let encoded = |bytes: &[u8]| Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes));
        Zeroizing::new(match &self.0 {
            SecretKind::Member(secret) => format!("{MEMBER} {}", *encoded(secret.expose())),
            SecretKind::Derived(role, secret, public) => {
                let prefix = if *role == SecretRole::Client {
                    CLIENT
                } else {
                    OPERATOR
                };
                format!(
                    "{prefix} {} {}",
                    *encoded(secret.expose()),
                    *encoded(&public.0)
                )
            }
            SecretKind::Bytes { text, .. } | SecretKind::Phrase(text) => {
                String::from_utf8_lossy(&text.0).into_owned()
            }
        })
    }

    fn parse(text: &str, number: usize) -> Result<Self, SecretError> {
        let malformed = |why| SecretError::Malformed { number, why };
        if text.len() > LINE_BYTES_MAX {
            return Err(malformed("it is too long for a secret"));
        }
        if text.chars().any(|c| c.is_control() && c != '\t') {
            return Err(malformed("it has a control character"));
        }
        let mut words = text.split_ascii_whitespace();
        let prefix = words.next().unwrap_or_default();
        let role = match prefix {
            MEMBER => SecretRole::Member,
            CLIENT => SecretRole::Client,
            OPERATOR => SecretRole::Operator,
            _ if is_of_later_version(prefix) => return Err(SecretError::LaterVersion { number }),
            _ => return Self::without_prefix(text.as_bytes(), number),
        };
        let mut key = |what| {
            let word = words.next().ok_or_else(|| malformed(what))?;
            let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(word).map_err(|_| malformed(what))?);
            let mut key = Zeroizing::new([0; SECRET_BYTES]);
            if bytes.len() != SECRET_BYTES {
                return Err(malformed(what));
            }
            key.copy_from_slice(&bytes);
            Ok(key)
        };
        let secret = Secret(key("after its prefix, 43 letters and digits must follow")?);
        let kind = match role {
            SecretRole::Member => SecretKind::Member(secret),
            SecretRole::Client | SecretRole::Operator => {
                let public = key("the public key at its end is missing or incomplete")?;
                SecretKind::Derived(role, secret, PublicKey(*public))
            }
        };
        match words.next() {
            None => Ok(Self(kind)),
            Some(_) => Err(malformed("something follows the secret")),
        }
    }

    fn without_prefix(text: &[u8], number: usize) -> Result<Self, SecretError> {
        if text.len() < PHRASE_BYTES_MIN {
            let bytes = text.len();
            return Err(SecretError::Short { number, bytes });
        }
        let kept = SecretText(Zeroizing::new(text.to_vec()));
        let Some(bytes) = bytes_of(text) else {
            return match phrase::ARE_BUILT {
                true => Ok(Self(SecretKind::Phrase(kept))),
                false => Err(SecretError::NoPhrases { number }),
            };
        };
        // Of 32 random bytes, about 30 are different. (Fewer than 16 happen once in 10^19 secrets.)
        if bytes.iter().collect::<BTreeSet<_>>().len() < DIFFERENT_MIN {
            return Err(SecretError::Repetitive { number });
        }
        Ok(Self(SecretKind::Bytes {
            secret: Secret(bytes),
            text: kept,
        }))
    }
}

/// The lines of a secret file, all for the same role: one to eight. The first line signs, and
/// all are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secrets(Vec<Line>);

/// The comment with which `doyen secret rotate` says in a secret file which step it has made:
/// after *add* and after *use* a file has two lines alike.
pub const ROTATION_MARK: &str = "# doyen secret rotate: ";

/// The step of a rotation that a secret file says: `added`, `used` or `removed`, or what a later
/// version of `doyen` calls it. `None`: no rotation is under way.
#[must_use]
pub fn rotation_step(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(ROTATION_MARK).map(str::trim))
}

impl Secrets {
    /// The content of a secret file. Empty lines, and lines that begin with `#`, mean nothing.
    ///
    /// # Errors
    /// It has no secret, too many, an unusable one, or secrets of several roles. The message names
    /// the line and never its content.
    pub fn parse(bytes: &[u8]) -> Result<Self, SecretError> {
        let text = std::str::from_utf8(bytes).map_err(|_| SecretError::NoText)?;
        // Its first line is long enough to be a phrase, and everyone knows it.
        if text.trim_start().starts_with("-----BEGIN ") {
            return Err(SecretError::Certificate);
        }
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if lines.len() == LINES_MAX {
                return Err(SecretError::TooMany);
            }
            lines.push(Line::parse(line, number)?);
        }
        Self::new(lines)
    }

    /// The secrets in a file, which errors call by its path and the flag that names it.
    ///
    /// # Errors
    /// It cannot be read, or as for [`Secrets::parse`].
    pub(crate) fn of_file(path: &Path, flag: &str) -> Result<Self, String> {
        let place = path.display();
        let bytes = read_bytes(path)
            .map(Zeroizing::new)
            .map_err(|why| format!("cannot read {place} ({flag}): {why}"))?;
        Self::parse(&bytes).map_err(|e| format!("{place} ({flag}): {e}"))
    }

    /// What a program gives as a secret: the content of a file, or bytes that are no text.
    ///
    /// # Errors
    /// As for [`Secrets::parse`].
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, SecretError> {
        let is_text = std::str::from_utf8(bytes)
            .is_ok_and(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace()));
        if is_text {
            return Self::parse(bytes);
        }
        Line::without_prefix(bytes.trim_ascii(), 1).map(|line| Self(vec![line]))
    }

    /// These lines.
    ///
    /// # Errors
    /// There is none, there are too many, or they are of several roles.
    pub fn new(lines: Vec<Line>) -> Result<Self, SecretError> {
        let Some(first) = lines.first() else {
            return Err(SecretError::Empty);
        };
        if lines.len() > LINES_MAX {
            return Err(SecretError::TooMany);
        }
        match lines.iter().find(|line| line.role() != first.role()) {
            Some(other) => Err(SecretError::Mixed {
                first: first.role(),
                other: other.role(),
            }),
            None => Ok(Self(lines)),
        }
    }

    /// Whose secrets these are.
    #[must_use]
    pub fn role(&self) -> SecretRole {
        self.first().role()
    }

    /// The line that signs.
    #[must_use]
    pub fn first(&self) -> &Line {
        // `new` refuses an empty list.
        &self.0[0]
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.0
    }

    /// The same lines for another role; `None` if these are no member's.
    #[must_use]
    pub fn for_role(&self, role: SecretRole) -> Option<Self> {
        let lines: Option<Vec<Line>> = self.0.iter().map(|line| line.for_role(role)).collect();
        lines.map(Self)
    }

    /// The content of a file with these lines: **these are the secrets**.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        let mut out = Zeroizing::new(String::new());
        for line in &self.0 {
            out.push_str(&line.expose());
            out.push('\n');
        }
        out
    }
}

/// Why a secret cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// There is no line with a secret.
    #[error("it has no secret: make one with `doyen secret new --dir DIR`")]
    Empty,
    /// There are too many lines.
    #[error("it has more than {LINES_MAX} secrets: remove those that no node uses any more")]
    TooMany,
    /// It is a file of certificates or of a key, such as `ca.pem`.
    #[error(
        "it has a certificate or a key in PEM and no secret: ca.pem, with the certificate of the \
         cluster's authority, is for programs that check the certificates of nodes (--http-ca, \
         curl --cacert). Give the file member, client or operator, which `doyen secret new` made \
         beside it"
    )]
    Certificate,
    /// The bytes are not text.
    #[error("it is not text: make a secret with `doyen secret new --dir DIR`")]
    NoText,
    /// A phrase is too short.
    #[error(
        "the secret in line {number} has {bytes} bytes, but at least {PHRASE_BYTES_MIN} are \
         needed: make one with `doyen secret new --dir DIR`"
    )]
    Short {
        /// The line, from 1.
        number: usize,
        /// Its bytes.
        bytes: usize,
    },
    /// The secret is a phrase, and the program is built without the feature `phrases`.
    #[error(
        "the secret in line {number} is a phrase, or damaged, and this program is built without \
         phrases: make a secret with `doyen secret new --dir DIR`, or switch on the feature \
         `phrases` of the crate `doyen`"
    )]
    NoPhrases {
        /// The line, from 1.
        number: usize,
    },
    /// The bytes of the secret are not random.
    #[error(
        "the secret in line {number} repeats few bytes, so it is not random: make one with `doyen secret new --dir \
         DIR`"
    )]
    Repetitive {
        /// The line, from 1.
        number: usize,
    },
    /// A line is incomplete or damaged.
    #[error("line {number} is damaged ({why}): copy the file again from another node")]
    Malformed {
        /// The line, from 1.
        number: usize,
        /// The reason.
        why: &'static str,
    },
    /// The line has a form that this program does not know.
    #[error("line {number} was made by a later version of doyen: update this program")]
    LaterVersion {
        /// The line, from 1.
        number: usize,
    },
    /// The lines are of different roles.
    #[error(
        "it has secrets of a {first} and of a {other}: keep the secrets of each role in a file of \
         their own"
    )]
    Mixed {
        /// The role of the first line.
        first: SecretRole,
        /// Another role.
        other: SecretRole,
    },
    /// The operating system gave no random bytes.
    #[error("the operating system has no random bytes")]
    NoRandomness,
}

/// The form `doyen-ROLE-N` without being one that this version knows.
fn is_of_later_version(prefix: &str) -> bool {
    prefix.strip_prefix(PREFIX).is_some_and(|rest| {
        [SecretRole::Member, SecretRole::Client, SecretRole::Operator]
            .iter()
            .filter_map(|role| rest.strip_prefix(role.name())?.strip_prefix('-'))
            .any(|version| version.parse::<u32>().is_ok())
    })
}

/// The 32 bytes that a text stands for: hex, any form of base64, or 32 bytes that are no text.
fn bytes_of(text: &[u8]) -> Option<Zeroizing<[u8; SECRET_BYTES]>> {
    let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
    let is_text = std::str::from_utf8(text).is_ok_and(|t| !t.contains(char::is_control));
    if !is_text {
        return (text.len() == SECRET_BYTES).then(|| {
            bytes.copy_from_slice(text);
            bytes
        });
    }
    if text.len() == 2 * SECRET_BYTES && text.iter().all(u8::is_ascii_hexdigit) {
        for (byte, digits) in bytes.iter_mut().zip(text.chunks(2)) {
            let digit = |d: u8| char::from(d).to_digit(16).unwrap_or(0) as u8;
            *byte = digit(digits[0]) << 4 | digit(digits[1]);
        }
        return Some(bytes);
    }
    let padding =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    for alphabet in [&STANDARD, &URL_SAFE] {
        let engine = GeneralPurpose::new(alphabet, padding);
        if let Ok(decoded) = engine.decode(text).map(Zeroizing::new)
            && decoded.len() == SECRET_BYTES
        {
            bytes.copy_from_slice(&decoded);
            return Some(bytes);
        }
    }
    None
}

fn token_of(operator: &Secret) -> Zeroizing<String> {
    Zeroizing::new(hex(operator.derive("http").expose()))
}

/// HKDF-SHA256: extract with the salt, expand with the label.
pub(super) fn expand(salt: &[u8], secret: &[u8], label: &str) -> Zeroizing<[u8; SECRET_BYTES]> {
    let mut out = Zeroizing::new([0; SECRET_BYTES]);
    // HKDF refuses only outputs above 255 hashes, and this is one hash.
    Salt::new(HKDF_SHA256, salt)
        .extract(secret)
        .expand(&[label.as_bytes()], HKDF_SHA256)
        .and_then(|bytes| bytes.fill(out.as_mut()))
        .expect("32 bytes are one hash");
    out
}

pub(super) fn sha256(bytes: &[u8]) -> ring::digest::Digest {
    ring::digest::digest(&ring::digest::SHA256, bytes)
}

#[cfg(test)]
mod tests;
