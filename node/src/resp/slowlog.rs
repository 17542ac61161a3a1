//! `SLOWLOG`: the last commands whose execution took long on this data thread.
//!
//! The time of work is measured: from parsing the command until its operations are submitted to the
//! shard, which executes them there. Waiting for copies, other nodes or a lease is not work.

use super::encode::Encoder;
use super::frame::Args;
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// Most arguments that are kept of a command, and most bytes of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptCommand {
    pub(crate) args: usize,
    pub(crate) bytes: usize,
}

/// What the slow log keeps.
pub(crate) const SLOW: KeptCommand = KeptCommand {
    args: 32,
    bytes: 128,
};

/// One slow command.
#[derive(Debug, Clone)]
pub(crate) struct Slow {
    pub(crate) id: u64,
    pub(crate) unix_s: u64,
    pub(crate) took: Duration,
    pub(crate) args: Vec<Bytes>,
    pub(crate) peer: SocketAddr,
    pub(crate) name: Bytes,
}

/// The last slow commands.
#[derive(Debug, Default)]
pub(crate) struct SlowLog(VecDeque<Slow>);

impl SlowLog {
    /// Adds a command, and keeps `most` at most.
    pub(crate) fn push(&mut self, slow: Slow, most: usize) {
        self.0.push_back(slow);
        while self.0.len() > most {
            self.0.pop_front();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = VecDeque::new();
    }

    /// The newest slow commands.
    pub(crate) fn newest(&self, count: usize) -> Vec<Slow> {
        self.0.iter().rev().take(count).cloned().collect()
    }
}

/// The part of a command that is kept: no passwords, and only the first arguments and the
/// beginnings of long ones.
pub(crate) fn kept(command: Option<&str>, args: Args<'_>, most: KeptCommand) -> Vec<Bytes> {
    let names_secret = |arg: &[u8]| {
        [&b"requirepass"[..], b"masterauth"]
            .iter()
            .any(|name| arg.eq_ignore_ascii_case(name))
    };
    let secret = match command {
        Some("auth" | "hello" | "acl|setuser" | "acl|deluser" | "acl|getuser") => true,
        Some("config|set") => args.iter_from(2).any(names_secret),
        _ => false,
    };
    let shown = if args.len() > most.args {
        most.args - 1
    } else {
        args.len()
    };
    let mut kept: Vec<Bytes> = (0..shown)
        .map(|i| {
            if secret && i > 0 {
                "(redacted)".into()
            } else {
                shortened(args.get(i), most.bytes)
            }
        })
        .collect();
    if shown < args.len() {
        kept.push(format!("... ({} more arguments)", args.len() - shown).into());
    }
    kept
}

fn shortened(arg: &[u8], most: usize) -> Bytes {
    match arg.split_at_checked(most) {
        Some((kept, rest)) if !rest.is_empty() => {
            let more = format!("... ({} more bytes)", rest.len());
            [kept, more.as_bytes()].concat().into()
        }
        _ => Bytes::copy_from_slice(arg),
    }
}

/// `SLOWLOG GET`.
pub(crate) fn encode(encoder: &mut Encoder<'_>, mut all: Vec<Slow>, count: usize) {
    all.sort_by_key(|slow| std::cmp::Reverse(slow.id));
    all.truncate(count);
    encoder.array(all.len());
    for slow in all {
        encoder.array(6);
        encoder.integer(i64::try_from(slow.id).unwrap_or(i64::MAX));
        encoder.integer(i64::try_from(slow.unix_s).unwrap_or(i64::MAX));
        encoder.integer(i64::try_from(slow.took.as_micros()).unwrap_or(i64::MAX));
        encoder.array(slow.args.len());
        slow.args.iter().for_each(|arg| encoder.bulk(arg));
        encoder.bulk(slow.peer.to_string().as_bytes());
        encoder.bulk(&slow.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::frame::Parser;

    fn kept_of(command: &str, line: &str) -> Vec<String> {
        let mut parser = Parser::new(1 << 20);
        let bytes = Bytes::from(format!("{line}\r\n"));
        parser.parse(&bytes, true, 1).1.unwrap();
        let args = parser.commands(&bytes).next().unwrap();
        kept(Some(command), args, SLOW)
            .iter()
            .map(|arg| String::from_utf8_lossy(arg).into_owned())
            .collect()
    }

    #[test]
    fn long_commands_are_shortened_and_passwords_left_out() {
        assert_eq!(kept_of("get", "get a"), ["get", "a"]);
        assert_eq!(
            kept_of("get", &format!("get {}", "x".repeat(128))),
            ["get", &"x".repeat(128)]
        );
        assert_eq!(
            kept_of("get", &format!("get {}", "x".repeat(130))),
            ["get", &format!("{}... (2 more bytes)", "x".repeat(128))]
        );
        assert_eq!(
            kept_of("mget", &format!("mget{}", " k".repeat(31))).len(),
            32
        );
        let many = kept_of("mget", &format!("mget{}", " k".repeat(32)));
        assert_eq!(
            (many.len(), many.last().unwrap().as_str()),
            (32, "... (2 more arguments)")
        );
        assert_eq!(kept_of("auth", "auth secret"), ["auth", "(redacted)"]);
        let hidden = kept_of("config|set", "config set timeout 1 requirepass secret");
        assert!(!hidden.contains(&"secret".to_owned()), "{hidden:?}");
        assert_eq!(kept_of("config|set", "config set timeout 1")[3], "1");
    }
}
