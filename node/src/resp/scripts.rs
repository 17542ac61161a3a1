//! The scripts that the clients of a data thread used lately.
//!
//! A script that came with `SCRIPT LOAD` is stored like a value, under its digest, in a map of its
//! own ([`doyen_engine::SCRIPTS`]): so every member finds it, and a failover does not lose it. A copy
//! here saves that lookup. It is believed for a short time, because a script may be removed
//! anywhere.
//!
//! A script that came with `EVAL` is only here, since many texts have values in them and are used
//! once. If there are too many texts, those that were not used for longest make room.
//!
//! A text that is not known here is compiled before it goes anywhere: what does not compile is
//! neither kept nor sent.

use super::cluster;
use crate::clock;
use bytes::Bytes;
use doyen_engine::op::{Action, Condition, Expiry, Operation};
use doyen_gossip::Time;
use doyen_placement::MapId;
use doyen_scripts::{Interpreter, Script};
use std::collections::BTreeMap;
use std::time::Duration;

/// The map of the loaded scripts, in the keyspace `default`.
pub(super) const MAP: MapId = doyen_engine::SCRIPTS;
/// How long a script is used without looking whether it is still stored.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(5);
/// Most scripts, and bytes of them, that are kept here.
const SCRIPTS_MAX: usize = 500;
const BYTES_MAX: usize = 4 << 20;
/// How long a script is stored that came with `SCRIPT LOAD`: ten years. (Without a deadline it
/// would have that of the keyspace.)
const LOADED_MS: i64 = 3650 * 24 * 3600 * 1000;

/// A microsecond of compiling is as much work as handling so many bytes of values.
const WORK_PER_US: usize = 1_000;

/// The most work of compiling for one transaction: 20 ms.
pub(super) const COMPILE_WORK_MAX: usize = 20_000 * WORK_PER_US;

/// The digest of a script, in small hexadecimal digits.
pub(super) type Digest = Box<str>;

/// A script that is kept.
#[derive(Debug)]
struct Kept {
    body: Bytes,
    /// When it was seen where scripts are stored; `None`: it came with `EVAL`.
    stored: Option<Time>,
    /// The number of its last use.
    used: u64,
}

/// Scripts by their digests.
#[derive(Debug)]
pub(super) struct Cache {
    scripts: BTreeMap<Digest, Kept>,
    bytes: usize,
    uses: u64,
    compiler: Interpreter,
    /// The work of compilations since the last call of `take_work`.
    work: usize,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            scripts: BTreeMap::new(),
            bytes: 0,
            uses: 0,
            compiler: Interpreter::with_clock(clock::thread_time_about),
            work: 0,
        }
    }
}

impl Cache {
    /// A script that came with `EVAL`, or was stored a moment ago.
    pub(super) fn get(&mut self, digest: &str, now: Time) -> Option<&Bytes> {
        self.uses += 1;
        let kept = self.scripts.get_mut(digest)?;
        let believed = |seen| now.since(seen) < BELIEVED_FOR;
        if !kept.stored.is_none_or(believed) {
            return None;
        }
        kept.used = self.uses;
        Some(&kept.body)
    }

    /// A script is stored.
    pub(super) fn saw(&mut self, digest: Digest, body: Bytes, now: Time) {
        self.keep(digest, body, Some(now));
    }

    /// A script came with `EVAL`.
    pub(super) fn evaluated(&mut self, digest: Digest, body: Bytes) {
        self.keep(digest, body, None);
    }

    /// Whether a script came with `EVAL`.
    pub(super) fn has_evaluated(&self, digest: &str) -> bool {
        let kept = self.scripts.get(digest);
        kept.is_some_and(|kept| kept.stored.is_none())
    }

    /// How many scripts are only here, and how many bytes all that are here have.
    pub(super) fn held(&self) -> (u64, u64) {
        let only = |kept: &&Kept| kept.stored.is_none();
        let only = self.scripts.values().filter(only).count();
        (only as u64, self.bytes as u64)
    }

    fn keep(&mut self, digest: Digest, body: Bytes, stored: Option<Time>) {
        self.remove(&digest);
        while !self.scripts.is_empty()
            && (self.scripts.len() >= SCRIPTS_MAX || self.bytes + body.len() > BYTES_MAX)
        {
            let oldest = self.scripts.iter().min_by_key(|(_, kept)| kept.used);
            let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) else {
                break;
            };
            self.remove(&oldest);
        }
        self.bytes += body.len();
        self.uses += 1;
        let used = self.uses;
        let kept = Kept { body, stored, used };
        self.scripts.insert(digest, kept);
    }

    fn remove(&mut self, digest: &str) {
        if let Some(old) = self.scripts.remove(digest) {
            self.bytes -= old.body.len();
        }
    }

    /// All scripts are removed.
    pub(super) fn clear(&mut self) {
        self.scripts.clear();
        self.bytes = 0;
    }

    /// The digest of a script that compiles.
    ///
    /// # Errors
    /// Why it does not, in the words of Redis.
    pub(super) fn compiles(&mut self, body: &Bytes) -> Result<Digest, String> {
        let began = clock::thread_time_about();
        let script = Script::parse(body.clone())?;
        let compiled = self.compiler.check(&script);
        let took = clock::thread_time_about().saturating_sub(began);
        let work = usize::try_from(took.as_micros()).unwrap_or(usize::MAX);
        self.work = self.work.saturating_add(work.saturating_mul(WORK_PER_US));
        match compiled {
            Ok(()) => Ok(script.sha1().into()),
            Err(why) => Err(why.text().into_owned()),
        }
    }

    /// The work of compilations that was not taken yet.
    pub(super) const fn work(&self) -> usize {
        self.work
    }

    /// Takes the work of compilations, as bytes of values that are handled in the same time.
    pub(super) fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.work)
    }
}

/// The operation on a stored script.
pub(super) fn about(digest: &str, action: Action) -> Operation {
    Operation {
        keyspace: cluster::KEYSPACE,
        map: MAP,
        key: Bytes::copy_from_slice(digest.as_bytes()),
        action,
    }
}

/// Stores a script that came with `SCRIPT LOAD`.
pub(super) fn loaded(body: Bytes) -> Action {
    Action::Set {
        value: body,
        condition: Condition::Always,
        expiry: Expiry::In(LOADED_MS),
        get: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_believed_for_a_while() {
        let mut cache = Cache::default();
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        cache.saw("a".into(), Bytes::from_static(b"return 1"), at(0));
        assert!(cache.get("a", at(4_999)).is_some() && cache.get("b", at(0)).is_none());
        assert!(cache.get("a", at(5_000)).is_none());
        cache.saw("a".into(), Bytes::from_static(b"return 1"), at(6_000));
        assert!(cache.get("a", at(6_001)).is_some());
        cache.clear();
        assert!(cache.get("a", at(6_001)).is_none());
    }

    #[test]
    fn a_script_that_was_evaluated_is_known_until_others_need_its_room() {
        let mut cache = Cache::default();
        let later = Time::ZERO + Duration::from_secs(3_600);
        cache.evaluated("a".into(), Bytes::from_static(b"return 1"));
        assert!(cache.get("a", later).is_some() && cache.has_evaluated("a"));
        assert_eq!(cache.held(), (1, 8));
        cache.saw("a".into(), Bytes::from_static(b"return 1"), Time::ZERO);
        assert!(cache.get("a", later).is_none() && !cache.has_evaluated("a"));
        assert_eq!(cache.held(), (0, 8));
    }

    #[test]
    fn scripts_that_were_not_used_for_longest_make_room_for_others() {
        let mut cache = Cache::default();
        for n in 0..3 * SCRIPTS_MAX {
            cache.evaluated(n.to_string().into(), Bytes::from_static(b"x"));
            assert!(cache.get("0", Time::ZERO).is_some(), "{n}");
            assert!(cache.scripts.len() <= SCRIPTS_MAX && cache.bytes == cache.scripts.len());
        }
        assert!(cache.get("1", Time::ZERO).is_none());
        for n in 0..8 {
            let large = Bytes::from(vec![b'x'; 1 << 20]);
            cache.evaluated(n.to_string().into(), large);
            assert!(cache.bytes <= BYTES_MAX);
        }
        cache.clear();
        assert_eq!(cache.held(), (0, 0));
    }

    #[test]
    fn only_a_script_that_compiles_has_a_digest_here() {
        let mut cache = Cache::default();
        let mut digest = |body: &'static str| cache.compiles(&Bytes::from_static(body.as_bytes()));
        let known = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        assert_eq!(digest("return 1").as_deref(), Ok(known));
        let error = digest("retrun 1").unwrap_err();
        assert!(error.starts_with("ERR Error compiling script"), "{error}");
        assert!(digest("#!js\nx").is_err());
        assert!(cache.scripts.is_empty());
    }

    #[test]
    fn scripts_are_in_no_database() {
        assert!(!crate::resp::databases::all().contains(&MAP));
    }
}
