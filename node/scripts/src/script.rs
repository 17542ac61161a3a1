//! A script as it is stored: its text, its SHA1 digest and its flags.

use bytes::Bytes;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The SHA1 digest of a script's text, in 40 lower-case hexadecimal digits: the name that `EVALSHA`
/// takes.
pub fn sha1_hex(body: impl AsRef<[u8]>) -> String {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, body.as_ref());
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The most bytes of a script's text. Data belongs into its arguments.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// A script's text with its digest and its flags. It need not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    sha1: String,
    body: Bytes,
    code_at: usize,
    flags: Flags,
}

impl Script {
    /// Reads the first line, if it says `#!lua`, and computes the digest.
    ///
    /// An error is what the client gets, such as `ERR Unexpected flag in script shebang: x`.
    pub fn parse(body: impl Into<Bytes>) -> Result<Script, String> {
        let body = body.into();
        if body.len() > BODY_BYTES_MAX {
            return Err(crate::errors::LARGE_BODY.to_owned());
        }
        let (flags, code_at) = Flags::parse(&body)?;
        Ok(Script {
            sha1: sha1_hex(&body),
            body,
            code_at,
            flags,
        })
    }

    /// The digest: 40 lower-case hexadecimal digits.
    pub fn sha1(&self) -> &str {
        &self.sha1
    }

    /// The whole text.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// What the first line asks for.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// The text without the first line's content. The line break stays, so that numbers of lines
    /// are right.
    pub(crate) fn code(&self) -> &[u8] {
        &self.body[self.code_at..]
    }
}

/// The flags of a script's first line: `#!lua flags=no-writes,allow-oom`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The script has a first line that says `#!lua`. Without it, Redis allows a script more: keys
    /// of several slots, and writes until the first one fails.
    pub declared: bool,
    /// `no-writes`: commands that write are refused.
    pub no_writes: bool,
    /// `allow-oom`: the script may run while memory is full.
    pub allow_oom: bool,
    /// `allow-stale`: the script may run on a replica that is behind.
    pub allow_stale: bool,
    /// `no-cluster`: the script refuses to run in a cluster.
    pub no_cluster: bool,
    /// `allow-cross-slot-keys`: commands may use keys of several slots.
    pub allow_cross_slot_keys: bool,
}

impl Flags {
    /// Returns the flags, and where the code begins.
    fn parse(body: &[u8]) -> Result<(Flags, usize), String> {
        if !body.starts_with(b"#!") {
            return Ok((Flags::default(), 0));
        }
        let Some(end) = body.iter().position(|byte| *byte == b'\n') else {
            return Err("ERR Invalid script shebang".to_owned());
        };
        let line = String::from_utf8_lossy(&body[..end]);
        let mut parts = line.split_ascii_whitespace();
        let engine = parts.next().unwrap_or_default();
        if engine != "#!lua" {
            return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
        }
        let mut flags = Flags {
            declared: true,
            ..Flags::default()
        };
        for part in parts {
            let Some(names) = part.strip_prefix("flags=") else {
                return Err(format!("ERR Unknown lua shebang option: {part}"));
            };
            for name in names
                .split(',')
                .filter(|name| !names.is_empty() || !name.is_empty())
            {
                *flags
                    .named(name)
                    .ok_or_else(|| format!("ERR Unexpected flag in script shebang: {name}"))? =
                    true;
            }
        }
        Ok((flags, end))
    }

    fn named(&mut self, name: &str) -> Option<&mut bool> {
        match name {
            "no-writes" => Some(&mut self.no_writes),
            "allow-oom" => Some(&mut self.allow_oom),
            "allow-stale" => Some(&mut self.allow_stale),
            "no-cluster" => Some(&mut self.no_cluster),
            "allow-cross-slot-keys" => Some(&mut self.allow_cross_slot_keys),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_one_of_redis() {
        assert_eq!(sha1_hex(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(
            Script::parse("return 1").unwrap().sha1(),
            sha1_hex("return 1")
        );
    }

    #[test]
    fn a_script_without_a_first_line_declares_nothing() {
        let script = Script::parse("return 1").unwrap();
        assert_eq!(script.flags(), Flags::default());
        assert_eq!(script.code(), b"return 1");
    }

    #[test]
    fn flags_of_the_first_line_are_read_and_the_line_stays_empty() {
        let script = Script::parse("#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert!(script.flags().declared && script.flags().no_writes && script.flags().allow_oom);
        assert!(!script.flags().allow_stale);
        assert_eq!(script.code(), b"\nreturn 1");
        assert!(
            Script::parse("#!lua flags=\nreturn 1")
                .unwrap()
                .flags()
                .declared
        );
    }

    #[test]
    fn a_wrong_first_line_is_refused() {
        let error = |body: &'static str| Script::parse(body).unwrap_err();
        assert_eq!(error("#!lua"), "ERR Invalid script shebang");
        assert_eq!(
            error("#!x\n"),
            "ERR Unexpected engine in script shebang: #!x"
        );
        assert_eq!(error("#!lua x=1\n"), "ERR Unknown lua shebang option: x=1");
        assert_eq!(
            error("#!lua flags=a\n"),
            "ERR Unexpected flag in script shebang: a"
        );
    }
}
