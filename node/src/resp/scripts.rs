//! The scripts that the clients of a data thread used lately.
//!
//! A script that came with `SCRIPT LOAD` is stored like a value, under its digest, in a map of its
//! own ([`doyen_engine::SCRIPTS`]): so every member finds it, and a failover does not lose it. A
//! copy here saves that lookup. It is believed for a short time, because a script may be removed
//! anywhere.
//!
//! A script that came with `EVAL` is not stored, since many texts have values in them and are used
//! once. Its node keeps it. If there are too many texts, those that were not used for longest make
//! room. A node that does not know a digest asks the other members, each once, and remembers for a
//! second that none of them knows it.
//!
//! ```text
//!   this thread ──> this node (Evaluated) ──> the stored ones ──> the other members ──> NOSCRIPT
//! ```
//!
//! A text that is not known here is compiled before it goes anywhere: what does not compile is
//! neither kept nor sent.

use super::cluster;
use super::common::locked;
use crate::clock;
use bytes::Bytes;
use doyen_engine::op::{Action, Condition, Expiry, Operation};
use doyen_gossip::Time;
use doyen_placement::MapId;
use doyen_scripts::{Interpreter, Script};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The map of the loaded scripts, in the keyspace `default`.
pub(super) const MAP: MapId = doyen_engine::SCRIPTS;
/// How long a script is used without looking whether it is still stored, or kept by the node.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(5);
/// Most scripts, and bytes of them, that are kept here.
const SCRIPTS_MAX: usize = 500;
const BYTES_MAX: usize = 4 << 20;
/// How long a digest is not asked for again that no member knew.
const ABSENT_FOR: Duration = Duration::from_secs(1);
/// Most digests that are asked for, or remembered as unknown. Others are not asked for.
const ABSENT_MAX: usize = 1_000;
/// How long a script is stored that came with `SCRIPT LOAD`: ten years. (Without a deadline it
/// would have that of the keyspace.)
const LOADED_MS: i64 = 3650 * 24 * 3600 * 1000;

/// A microsecond of compiling is as much work as handling this many bytes of values.
const WORK_PER_US: usize = 1_000;

/// After this work of compiling, 1 ms, other clients have their turn.
pub(super) const COMPILE_AT_ONCE: usize = 1_000 * WORK_PER_US;

/// The most work of compiling for one transaction: 20 ms.
pub(super) const COMPILE_WORK_MAX: usize = 20_000 * WORK_PER_US;

/// The digest of a script, in small hexadecimal digits.
pub(super) type ScriptDigest = Box<str>;

/// A script that is kept.
#[derive(Debug)]
struct KeptScript {
    body: Bytes,
    /// Whether it is stored. If not, it came with `EVAL`.
    stored: bool,
    /// When this was last seen: where scripts are stored, or in the list of the node.
    seen: Time,
    /// The number of its last use.
    used: u64,
}

/// Scripts by their digests. Those that were not used for longest make room for others.
#[derive(Debug, Default)]
struct Texts {
    all: BTreeMap<ScriptDigest, KeptScript>,
    bytes: usize,
    uses: u64,
}

impl Texts {
    fn use_one(&mut self, digest: &str) -> Option<&KeptScript> {
        self.uses += 1;
        let kept = self.all.get_mut(digest)?;
        kept.used = self.uses;
        Some(kept)
    }

    fn keep(&mut self, digest: ScriptDigest, body: Bytes, (stored, seen): (bool, Time)) {
        self.remove(&digest);
        while !self.all.is_empty()
            && (self.all.len() >= SCRIPTS_MAX || self.bytes + body.len() > BYTES_MAX)
        {
            self.make_room();
        }
        self.bytes += body.len();
        self.uses += 1;
        let kept = KeptScript {
            body,
            stored,
            seen,
            used: self.uses,
        };
        self.all.insert(digest, kept);
    }

    /// Drops a tenth of the scripts at once, so that few new ones pay for a look at all of them.
    fn make_room(&mut self) {
        let mut uses: Vec<u64> = self.all.values().map(|kept| kept.used).collect();
        let most = uses.len().div_ceil(10) - 1;
        let (_, last, _) = uses.select_nth_unstable(most);
        let last = *last;
        self.all.retain(|_, kept| kept.used > last);
        self.bytes = self.all.values().map(|kept| kept.body.len()).sum();
    }

    fn remove(&mut self, digest: &str) {
        if let Some(old) = self.all.remove(digest) {
            self.bytes -= old.body.len();
        }
    }
}

/// The scripts that came with `EVAL` to any thread of the node, or that another member told.
#[derive(Debug, Default)]
pub(super) struct Evaluated {
    /// A lock, because all threads keep texts here. It is held for moments, by a thread that does
    /// not know a text, or has not looked for a while.
    texts: Mutex<Texts>,
    /// How often all were forgotten. It changes only while the lock is held.
    forgotten: AtomicU64,
}

/// A digest that the node does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    /// The other members are asked with this question.
    Asked(u64),
    /// They do not know it either. This is believed until then.
    Until(Time),
}

/// Whether the other members are asked for a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptSearch {
    Ask,
    /// They are asked already, with this question.
    UnderWay(u64),
    /// They did not know it a moment ago, or there were too many questions.
    Over,
}

/// The scripts that a thread knows.
#[derive(Debug)]
pub(super) struct ScriptCache {
    texts: Texts,
    absent: BTreeMap<ScriptDigest, Absent>,
    node: Arc<Evaluated>,
    /// How often the node had forgotten its scripts when this thread last looked.
    forgotten: u64,
    compiler: Interpreter,
    /// The work of compilations since the last call of `take_work`.
    work: usize,
}

impl ScriptCache {
    /// For a thread of this node.
    pub(super) fn new(node: Arc<Evaluated>) -> Self {
        Self {
            texts: Texts::default(),
            absent: BTreeMap::new(),
            node,
            forgotten: 0,
            compiler: Interpreter::with_clock(clock::thread_time_about),
            work: 0,
        }
    }

    /// A script that came with `EVAL` to this node, or was stored a moment ago.
    pub(super) fn get(&mut self, digest: &str, now: Time) -> Option<Bytes> {
        self.forget_with_node();
        let mut own = None;
        if let Some(kept) = self.texts.use_one(digest) {
            if now.since(kept.seen) < BELIEVED_FOR {
                return Some(kept.body.clone());
            }
            own = (!kept.stored).then(|| kept.body.clone());
        }
        let at_node = {
            let mut texts = locked(&self.node.texts);
            texts.use_one(digest).map(|kept| kept.body.clone())
        };
        // If the node has dropped it meanwhile, it is there again: it is in use.
        let body = at_node.or(own)?;
        self.evaluated(digest.into(), body.clone(), now);
        Some(body)
    }

    /// A script is stored.
    pub(super) fn saw(&mut self, digest: ScriptDigest, body: Bytes, now: Time) {
        self.forget_with_node();
        self.absent.remove(&digest);
        locked(&self.node.texts).remove(&digest);
        self.texts.keep(digest, body, (true, now));
    }

    /// A script was looked up: where scripts are stored, or at the other members, which was noted.
    pub(super) fn found(&mut self, digest: ScriptDigest, body: Bytes, now: Time) {
        if self.get(&digest, now).is_none() {
            self.saw(digest, body, now);
        }
    }

    /// A script came with `EVAL`.
    pub(super) fn evaluated(&mut self, digest: ScriptDigest, body: Bytes, now: Time) {
        self.forget_with_node();
        self.absent.remove(&digest);
        let mut texts = locked(&self.node.texts);
        if self.node.forgotten.load(Ordering::Relaxed) == self.forgotten {
            texts.keep(digest.clone(), body.clone(), (false, now));
            drop(texts);
            self.texts.keep(digest, body, (false, now));
        }
    }

    /// How many scripts are only kept and not stored, and how many bytes all kept ones have: at
    /// this thread, and at the node if this is its `first` thread. Threads share the texts of the
    /// node.
    pub(super) fn held(&self, first: bool) -> (u64, u64) {
        let stored = self.texts.all.values().filter(|kept| kept.stored);
        let own: usize = stored.map(|kept| kept.body.len()).sum();
        let node = locked(&self.node.texts);
        let (count, bytes) = if first {
            (node.all.len(), node.bytes)
        } else {
            (0, 0)
        };
        (count as u64, (own + bytes) as u64)
    }

    /// The node forgets all scripts.
    pub(super) fn clear(&mut self) {
        let mut texts = locked(&self.node.texts);
        *texts = Texts::default();
        self.node.forgotten.fetch_add(1, Ordering::Release);
        drop(texts);
        self.forget_with_node();
    }

    /// Forgets what the node was told to forget.
    fn forget_with_node(&mut self) {
        let forgotten = self.node.forgotten.load(Ordering::Acquire);
        if self.forgotten != forgotten {
            self.forgotten = forgotten;
            self.texts = Texts::default();
            // What is asked by now may bring a text that was to be forgotten.
            self.absent.clear();
        }
    }

    /// Whether the other members are to be asked for a script that this node does not know.
    pub(super) fn search(&mut self, digest: &str, now: Time) -> ScriptSearch {
        match self.absent.get(digest) {
            Some(Absent::Asked(ticket)) => return ScriptSearch::UnderWay(*ticket),
            Some(Absent::Until(until)) if now < *until => return ScriptSearch::Over,
            _ => {}
        }
        if self.absent.len() >= ABSENT_MAX {
            let over = |absent: &Absent| matches!(absent, Absent::Until(until) if *until <= now);
            self.absent.retain(|_, absent| !over(absent));
        }
        if self.absent.len() >= ABSENT_MAX {
            return ScriptSearch::Over;
        }
        ScriptSearch::Ask
    }

    /// The other members are asked for a script.
    pub(super) fn asked(&mut self, digest: ScriptDigest, ticket: u64) {
        self.absent.insert(digest, Absent::Asked(ticket));
    }

    /// The other members have answered. A text that does not have the digest, or does not compile,
    /// counts as none.
    pub(super) fn answered(
        &mut self,
        digest: ScriptDigest,
        (ticket, now): (u64, Time),
        text: Option<Bytes>,
    ) {
        self.forget_with_node();
        if self.absent.get(&digest) != Some(&Absent::Asked(ticket)) {
            return;
        }
        let good = |body: &Bytes| self.compiles(body).is_ok_and(|own| own == digest);
        match text.filter(good) {
            Some(body) => self.evaluated(digest, body, now),
            None => _ = self.absent.insert(digest, Absent::Until(now + ABSENT_FOR)),
        }
    }

    /// The digest of a script that compiles.
    ///
    /// # Errors
    /// Why it does not, in the words of Redis.
    pub(super) fn compiles(&mut self, body: &Bytes) -> Result<ScriptDigest, String> {
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
        let mut cache = ScriptCache::new(Arc::default());
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
        let mut cache = ScriptCache::new(Arc::default());
        let later = Time::ZERO + Duration::from_secs(3_600);
        cache.evaluated("a".into(), Bytes::from_static(b"return 1"), Time::ZERO);
        assert!(cache.get("a", later).is_some());
        assert_eq!((cache.held(true), cache.held(false)), ((1, 8), (0, 0)));
        cache.saw("a".into(), Bytes::from_static(b"return 1"), Time::ZERO);
        assert!(cache.get("a", later).is_none());
        assert_eq!(cache.held(true), (0, 8));
    }

    #[test]
    fn scripts_that_were_not_used_for_longest_make_room_for_others() {
        let mut cache = ScriptCache::new(Arc::default());
        for n in 0..3 * SCRIPTS_MAX {
            let at = Time::ZERO + Duration::from_secs(n as u64);
            cache.evaluated(n.to_string().into(), Bytes::from_static(b"x"), at);
            assert!(cache.get("0", at).is_some(), "{n}");
            let (count, bytes) = cache.held(true);
            assert!(count as usize <= SCRIPTS_MAX && bytes == count);
            assert!(cache.texts.all.len() <= SCRIPTS_MAX);
        }
        assert!(cache.get("1", Time::ZERO).is_none());
        for n in 0..8 {
            let large = Bytes::from(vec![b'x'; 1 << 20]);
            cache.evaluated(n.to_string().into(), large, Time::ZERO);
            assert!(cache.texts.bytes <= BYTES_MAX && cache.held(true).1 <= BYTES_MAX as u64);
        }
        cache.clear();
        assert_eq!(cache.held(true), (0, 0));
    }

    #[test]
    fn the_threads_of_a_node_know_the_same_scripts_until_one_is_told_to_forget_them() {
        let node = Arc::new(Evaluated::default());
        let (mut one, mut other) = (ScriptCache::new(node.clone()), ScriptCache::new(node));
        one.evaluated("a".into(), Bytes::from_static(b"return 1"), Time::ZERO);
        assert!(other.get("a", Time::ZERO).is_some());
        other.saw("b".into(), Bytes::from_static(b"return 2"), Time::ZERO);
        one.clear();
        assert!(other.get("a", Time::ZERO).is_none() && other.get("b", Time::ZERO).is_none());
        assert!(one.get("a", Time::ZERO).is_none());
    }

    #[test]
    fn a_digest_is_asked_for_once_and_a_miss_is_remembered_for_a_second() {
        let mut cache = ScriptCache::new(Arc::default());
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let text = Bytes::from_static(b"return 1");
        let digest: ScriptDigest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db".into();
        assert_eq!(cache.search(&digest, at(0)), ScriptSearch::Ask);
        cache.asked(digest.clone(), 7);
        assert_eq!(cache.search(&digest, at(0)), ScriptSearch::UnderWay(7));
        // Another text than that of the digest is none, and an answer to another question is none.
        cache.answered(digest.clone(), (6, at(0)), Some(text.clone()));
        assert_eq!(cache.search(&digest, at(0)), ScriptSearch::UnderWay(7));
        let other = Some(Bytes::from_static(b"return 2"));
        cache.answered(digest.clone(), (7, at(0)), other);
        assert_eq!(cache.search(&digest, at(999)), ScriptSearch::Over);
        assert_eq!(cache.search(&digest, at(1_000)), ScriptSearch::Ask);
        cache.asked(digest.clone(), 8);
        cache.answered(digest.clone(), (8, at(1_000)), Some(text.clone()));
        assert_eq!(cache.get(&digest, at(1_000)), Some(text.clone()));
        // A text that comes after all were forgotten was asked for before that.
        cache.clear();
        cache.asked(digest.clone(), 9);
        cache.clear();
        cache.answered(digest.clone(), (9, at(1_000)), Some(text.clone()));
        assert_eq!(cache.get(&digest, at(1_000)), None);
        // A miss ends when the text comes.
        cache.asked(digest.clone(), 10);
        cache.answered(digest.clone(), (10, at(1_000)), None);
        cache.evaluated(digest.clone(), text, at(1_000));
        assert!(cache.get(&digest, at(1_000)).is_some() && cache.absent.is_empty());
        // There are not more questions than are remembered, until some are forgotten.
        for n in 0..ABSENT_MAX as u64 {
            let digest: ScriptDigest = n.to_string().into();
            assert_eq!(cache.search(&digest, at(2_000)), ScriptSearch::Ask, "{n}");
            cache.asked(digest.clone(), n);
            cache.answered(digest, (n, at(2_000)), None);
        }
        assert_eq!(cache.search("x", at(2_999)), ScriptSearch::Over);
        assert_eq!(cache.search("x", at(3_000)), ScriptSearch::Ask);
    }

    #[test]
    fn only_a_script_that_compiles_has_a_digest_here() {
        let mut cache = ScriptCache::new(Arc::default());
        let mut digest = |body: &'static str| cache.compiles(&Bytes::from_static(body.as_bytes()));
        let known = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        assert_eq!(digest("return 1").as_deref(), Ok(known));
        let error = digest("retrun 1").unwrap_err();
        assert!(error.starts_with("ERR Error compiling script"), "{error}");
        assert!(digest("#!js\nx").is_err());
        assert!(cache.texts.all.is_empty());
    }

    #[test]
    fn scripts_are_in_no_database() {
        assert!(!crate::resp::databases::all().contains(&MAP));
    }
}
