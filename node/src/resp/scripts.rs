//! The scripts that the clients of a data thread used lately.
//!
//! A script is stored like a value, under its digest, in a map of its own: so every member finds
//! it, and a failover does not lose it. What is kept here saves that lookup. It is believed for a
//! short time, because a script may be removed anywhere. A text that no client of this thread sent
//! lately is compiled before it goes anywhere: what does not compile is neither stored nor sent.

use super::{cluster, databases};
use crate::clock;
use bytes::Bytes;
use doyen_engine::op::{Action, Condition, Expiry, Operation};
use doyen_gossip::Time;
use doyen_placement::MapId;
use doyen_scripts::{Interpreter, Script};
use std::collections::BTreeMap;
use std::time::Duration;

/// The map of all scripts, in the keyspace `default`. The databases have the numbers above.
pub(super) const MAP: MapId = MapId(u32::MAX - databases::COUNT as u32);
/// How long a script is used without looking whether it is still stored.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(5);
/// Most scripts, and bytes of them, that are kept.
const SCRIPTS_MAX: usize = 1_000;
const BYTES_MAX: usize = 4 << 20;
/// How long a script is stored that came with `EVAL`: many of those are used only once. Its client
/// sends it again when it is gone.
const EVALUATED_MS: i64 = 24 * 3600 * 1000;
/// How long a script is stored that came with `SCRIPT LOAD`: ten years. (Without a deadline it
/// would have that of the keyspace.)
const LOADED_MS: i64 = 3650 * 24 * 3600 * 1000;

/// A microsecond of compiling is as much work as handling so many bytes of values.
const WORK_PER_US: usize = 1_000;

/// The most work of compiling for one transaction: 20 ms.
pub(super) const COMPILE_WORK_MAX: usize = 20_000 * WORK_PER_US;

/// The digest of a script, in small hexadecimal digits.
pub(super) type Digest = Box<str>;

/// Scripts by their digests.
#[derive(Debug)]
pub(super) struct Cache {
    scripts: BTreeMap<Digest, (Bytes, Time)>,
    bytes: usize,
    compiler: Interpreter,
    /// The work of compilations since the last call of `take_work`.
    work: usize,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            scripts: BTreeMap::new(),
            bytes: 0,
            compiler: Interpreter::with_clock(clock::thread_time_about),
            work: 0,
        }
    }
}

impl Cache {
    /// A script, if it was stored a moment ago.
    pub(super) fn get(&self, digest: &str, now: Time) -> Option<&Bytes> {
        let (body, seen) = self.scripts.get(digest)?;
        (now.since(*seen) < BELIEVED_FOR).then_some(body)
    }

    /// A script is stored.
    pub(super) fn saw(&mut self, digest: Digest, body: Bytes, now: Time) {
        if self.scripts.len() >= SCRIPTS_MAX || self.bytes + body.len() > BYTES_MAX {
            self.clear();
        }
        self.bytes += body.len();
        if let Some((old, _)) = self.scripts.insert(digest, (body, now)) {
            self.bytes -= old.len();
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
            Err(why) => Err(why.text().to_owned()),
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

/// Stores a script that came with `EVAL`, unless it is stored already.
pub(super) fn evaluated(body: Bytes) -> Action {
    Action::Set {
        value: body,
        condition: Condition::IfAbsent,
        expiry: Expiry::In(EVALUATED_MS),
        get: false,
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
    fn many_scripts_or_large_ones_make_room_for_others() {
        let mut cache = Cache::default();
        for n in 0..3 * SCRIPTS_MAX {
            cache.saw(n.to_string().into(), Bytes::from_static(b"x"), Time::ZERO);
            assert!(cache.scripts.len() <= SCRIPTS_MAX && cache.bytes == cache.scripts.len());
        }
        for n in 0..8 {
            let large = Bytes::from(vec![b'x'; 1 << 20]);
            cache.saw(n.to_string().into(), large, Time::ZERO);
            assert!(cache.bytes <= BYTES_MAX);
        }
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
        assert!(!databases::all().contains(&MAP));
    }
}
