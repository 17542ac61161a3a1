//! Entries of a cache that loads what is missing: how long each is fresh, its tags, and which
//! caller loads it.
//!
//! ```text
//!            claim                      store (only with the claim's id)
//!   absent ────────> claimed ─────────────────────────────────────────> cached
//!                     │   ^ claim, once it is not fresh                   │
//!                     │   └───────────────────────────────────────────────┤
//!                     └─ release: as before the claim         invalidate: absent
//! ```
//! A *claim* says that one caller loads the entry; all other callers wait for it, or take what is
//! there meanwhile. It ends by itself if its caller does not renew it. To invalidate an entry
//! removes the claim with it, so what is stored for it later is refused: a slow loader never brings
//! back what it read before.
//!
//! The layout of a value (its tags: [`crate::value::tags`]):
//! ```text
//!   E0, tags, fresh until (8), served until (8), 0: a value or 1: none, the value     cached
//!   E1, claimed until (8), id (16), the cached value before it, if there was one      claimed
//! ```
//! Times are Unix milliseconds of the primary. If the clocks of two members differ, a failover
//! moves them by that difference; a claim that ends early costs a second load, and nothing else.

use super::action::failed;
use super::procedure::{Inputs, Procedure, WRITES, procedure, values};
use crate::command::operation::{Action, Footprint, ValueSizes};
use crate::store::change::KeyChange;
use crate::store::run_context::RunContext;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome, Value};
use crate::value::tags::{LOADING, TAGGED, Tagged, TagsTooLong, put_head};
use bytes::Bytes;
use std::time::Duration;

/// Bytes of a claim before the value that it stands for.
const CLAIM_BYTES: usize = 1 + 8 + 16;
/// Bytes of times and kind behind the tags.
const TIMES_BYTES: usize = 8 + 8 + 1;
pub(crate) static PROCEDURES: &[&Procedure] = &[&READ, &CLAIM, &STORE, &RELEASE];

/// Whether an entry is claimed by another caller, and for how many milliseconds at most.
pub(crate) fn blocked(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Many(parts) => match parts[..] {
            [Outcome::Int(2), Outcome::Int(left), ..] => u64::try_from(left).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a claim is only to be renewed.
pub(crate) fn renews(inputs: &Inputs) -> bool {
    inputs.numbers[2] != 0
}

/// Whether a caller keeps or gives back a claim with it.
pub(crate) fn is_of_holder(procedure: &Procedure, inputs: &Inputs) -> bool {
    procedure.number == RELEASE.number || (procedure.number == CLAIM.number && renews(inputs))
}

/// The id of a claim, which its caller draws.
pub type ClaimId = [u8; 16];

/// How long an entry serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheTimes {
    /// It is fresh for so long.
    pub fresh: Duration,
    /// Then it is served for this long, while a caller loads it again.
    pub stale: Duration,
    /// Then it is kept for so long, for the case that it cannot be loaded.
    pub kept: Duration,
}

/// How fresh an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// There is none.
    Absent,
    /// It is fresh for so long.
    Fresh(Duration),
    /// It may be served, and should be loaded again.
    Stale,
    /// It may be served only if it cannot be loaded.
    Kept,
}

/// An entry as a caller finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheLookup {
    /// How fresh it is.
    pub freshness: Freshness,
    /// The stored value; `None` if there is none.
    value: Option<Value>,
}

/// What came of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// The entry is fresh enough.
    Fresh,
    /// The caller is to load it, and to renew its claim until it has.
    Claimed,
    /// Another caller loads it, and has to renew its claim within this time.
    Taken(Duration),
}

impl CacheLookup {
    /// The bytes of the cached value. `None`: there is none. `Some(None)`: it is known that there
    /// is nothing to load.
    #[must_use]
    pub fn body(&self) -> Option<Option<&[u8]>> {
        match Stored::of(self.value.as_deref()?) {
            Stored::Cached(cached) | Stored::Claimed(_, Some(cached)) => {
                Some((!cached.is_none).then_some(cached.body))
            }
            Stored::Claimed(_, None) => None,
            Stored::Other(bytes) => Some(Some(bytes)),
        }
    }
}

impl CacheLookup {
    /// The id of the claim that the entry has.
    #[must_use]
    pub fn claim(&self) -> Option<ClaimId> {
        match Stored::of(self.value.as_deref()?) {
            Stored::Claimed(claim, _) => claim.id.try_into().ok(),
            Stored::Cached(_) | Stored::Other(_) => None,
        }
    }
}

/// What a stored value is.
enum Stored<'a> {
    Cached(Cached<'a>),
    Claimed(LoadClaim<'a>, Option<Cached<'a>>),
    /// It was not written by a cache: it is fresh for ever.
    Other(&'a [u8]),
}

#[derive(Clone, Copy)]
struct Cached<'a> {
    fresh_until: i64,
    served_until: i64,
    is_none: bool,
    body: &'a [u8],
    /// All of its bytes.
    whole: &'a [u8],
    /// The place of its times.
    times: usize,
}

#[derive(Clone, Copy)]
struct LoadClaim<'a> {
    until: i64,
    id: &'a [u8],
}

/// Eight bytes as a number.
fn number(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((i64::from_le_bytes(*number), rest))
}

impl<'a> Cached<'a> {
    fn of(whole: &'a [u8]) -> Option<Self> {
        let content = Tagged::read(whole)?.content();
        let (fresh_until, rest) = number(content)?;
        let (served_until, rest) = number(rest)?;
        let (kind, body) = rest.split_first()?;
        Some(Self {
            fresh_until,
            served_until,
            is_none: *kind != 0,
            body,
            whole,
            times: whole.len() - content.len(),
        })
    }

    const fn freshness(&self, now: i64) -> Freshness {
        let left = self.fresh_until.saturating_sub(now);
        if left > 0 {
            Freshness::Fresh(Duration::from_millis(left.cast_unsigned()))
        } else if now < self.served_until {
            Freshness::Stale
        } else {
            Freshness::Kept
        }
    }
}

impl<'a> Stored<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let claimed = || {
            let [LOADING, rest @ ..] = bytes else {
                return None;
            };
            let (until, rest) = number(rest)?;
            let (id, before) = rest.split_at_checked(16)?;
            let claim = LoadClaim { until, id };
            if before.is_empty() {
                return Some(Self::Claimed(claim, None));
            }
            Some(Self::Claimed(claim, Some(Cached::of(before)?)))
        };
        Cached::of(bytes)
            .map(Self::Cached)
            .or_else(claimed)
            .unwrap_or(Self::Other(bytes))
    }

    fn freshness(&self, now: i64) -> Freshness {
        match self {
            Self::Cached(cached) | Self::Claimed(_, Some(cached)) => cached.freshness(now),
            Self::Claimed(_, None) => Freshness::Absent,
            Self::Other(_) => Freshness::Fresh(Duration::MAX),
        }
    }
}

/// The entry without its claim. → `Nil`, or `Many` of its freshness (two `Int`s) and its value
static READ: Procedure = procedure(96, "cache-read", Kind::String, (0, 0))
    .costs(values)
    .on_entry(|_, entry, cx| {
        let found = entry.map(|entry| {
            let freshness = Stored::of(entry.value()).freshness(now(cx));
            Outcome::Many(shown(freshness, entry))
        });
        (found.unwrap_or(Outcome::Nil), KeyChange::None)
    });

/// Claims the entry with this id for the milliseconds of the first number, or renews the claim,
/// unless the entry is fresh for more milliseconds than the second. With a third number other than
/// 0, it only renews. → `Many` of the verdict (two `Int`s), of the freshness (two `Int`s) and of
/// the value, if there is one
pub(crate) static CLAIM: Procedure = procedure(97, "cache-claim", Kind::String, (3, 1))
    .costs(|inputs| Footprint {
        answers_value: true,
        given: ValueSizes::one(&inputs.bytes[0]),
        stores: CLAIM_BYTES,
        ..WRITES
    })
    .on_entry(claim);

fn claim(inputs: &Inputs, entry: Option<&Entry>, cx: &RunContext) -> (Outcome, KeyChange) {
    let (&[lease, ahead, renews], id) = (&inputs.numbers[..], &inputs.bytes[0]) else {
        return failed(Failure::NotAnInteger);
    };
    let (lease, now) = (lease.max(1), now(cx));
    if id.len() != 16 {
        return failed(Failure::WrongType);
    }
    let answer = |verdict: [i64; 2], freshness| {
        let mut all = verdict.map(Outcome::Int).to_vec();
        match entry {
            Some(entry) => all.extend(shown(freshness, entry)),
            None => all.extend([Outcome::Int(0), Outcome::Int(0)]),
        }
        Outcome::Many(all)
    };
    let stored = entry.map(|entry| Stored::of(entry.value()));
    let freshness = stored
        .as_ref()
        .map_or(Freshness::Absent, |stored| stored.freshness(now));
    let is_own = matches!(&stored, Some(Stored::Claimed(claim, _)) if claim.id == &id[..]);
    if renews != 0 && !is_own {
        return (answer([2, 0], freshness), KeyChange::None);
    }
    if !is_own
        && let Freshness::Fresh(left) = freshness
        && left.as_millis() > ahead.max(0).cast_unsigned().into()
    {
        return (answer([0, 0], freshness), KeyChange::None);
    }
    let before = match &stored {
        Some(Stored::Claimed(claim, _)) if claim.until > now && claim.id != &id[..] => {
            let left = claim.until.saturating_sub(now);
            return (answer([2, left], freshness), KeyChange::None);
        }
        Some(Stored::Claimed(_, Some(cached)) | Stored::Cached(cached)) => cached.whole,
        Some(Stored::Claimed(_, None)) | None => &[],
        // It is fresh for ever.
        Some(Stored::Other(_)) => return (answer([0, 0], freshness), KeyChange::None),
    };
    let until = now.saturating_add(lease);
    let mut value = Vec::with_capacity(CLAIM_BYTES + before.len());
    value.push(LOADING);
    value.extend(until.to_le_bytes());
    value.extend(&id[..]);
    value.extend(before);
    if value.len() > cx.value_bytes_max {
        return failed(Failure::TooLarge);
    }
    // A claim alone ends with its lease. A value keeps its own deadline.
    let deadline = match entry {
        Some(entry) if !before.is_empty() => entry.deadline(),
        _ => cx.after(lease.cast_unsigned()),
    };
    (
        answer([1, 0], freshness),
        KeyChange::put(value.into(), deadline),
    )
}

/// Stores a value: with an id, only if the entry is claimed with it. The numbers are the times of
/// the entry in milliseconds, and 1 if there is nothing to load; the bytes are the id (empty: store
/// in any case), the tags and the value. → `Int` 1 or 0
static STORE: Procedure = procedure(98, "cache-store", Kind::String, (4, 3))
    .costs(|inputs| Footprint {
        given: inputs.given(),
        stores: TIMES_BYTES + inputs.bytes[1].len() + inputs.bytes[2].len(),
        ..WRITES
    })
    .told_as("set")
    .on_entry(store);

fn store(inputs: &Inputs, entry: Option<&Entry>, cx: &RunContext) -> (Outcome, KeyChange) {
    let (&[fresh, stale, kept, is_none], [id, tags, body]) =
        (&inputs.numbers[..], &inputs.bytes[..])
    else {
        return failed(Failure::NotAnInteger);
    };
    // A caller of another program may give anything.
    if Tagged::read(tags).is_none_or(|head| !head.content().is_empty()) {
        return failed(Failure::WrongType);
    }
    let claimed = match entry.map(|entry| Stored::of(entry.value())) {
        Some(Stored::Claimed(claim, _)) => claim.id == &id[..],
        _ => false,
    };
    if !id.is_empty() && !claimed {
        return (Outcome::Int(0), KeyChange::None);
    }
    let now = now(cx);
    let [fresh, stale, kept] = [fresh, stale, kept].map(|ms| ms.max(0));
    let fresh_until = now.saturating_add(fresh);
    let mut value = Vec::with_capacity(tags.len() + TIMES_BYTES + body.len());
    value.extend(&tags[..]);
    value.extend(fresh_until.to_le_bytes());
    value.extend(fresh_until.saturating_add(stale).to_le_bytes());
    value.push(u8::from(is_none != 0));
    value.extend(&body[..]);
    if value.len() > cx.value_bytes_max {
        return failed(Failure::TooLarge);
    }
    let life = fresh.saturating_add(stale).saturating_add(kept).max(1);
    let deadline = cx.after(life.cast_unsigned());
    (Outcome::Int(1), KeyChange::put(value.into(), deadline))
}

/// Gives up the claim with this id. If there was a value before it, that one is served for
/// this many milliseconds more, until the next caller loads. → `Int` 1 or 0
static RELEASE: Procedure = procedure(99, "cache-release", Kind::String, (1, 1))
    .costs(|inputs| Footprint {
        given: ValueSizes::one(&inputs.bytes[0]),
        ..WRITES
    })
    .on_entry(|inputs, entry, cx| {
        let (hold, id) = (inputs.numbers[0].max(0), &inputs.bytes[0]);
        match entry.map(|entry| (entry, Stored::of(entry.value()))) {
            Some((_, Stored::Claimed(claim, None))) if claim.id == &id[..] => {
                (Outcome::Int(1), KeyChange::Delete)
            }
            Some((entry, Stored::Claimed(claim, Some(cached)))) if claim.id == &id[..] => {
                let until = now(cx).saturating_add(hold);
                let mut value = cached.whole.to_vec();
                let times = [cached.fresh_until, cached.served_until];
                let places = value[cached.times..].chunks_exact_mut(8);
                for (place, time) in places.zip(times) {
                    place.copy_from_slice(&time.max(until).to_le_bytes());
                }
                let change = KeyChange::put(value.into(), entry.deadline());
                (Outcome::Int(1), change)
            }
            _ => (Outcome::Int(0), KeyChange::None),
        }
    });

/// The present moment, in the time of stored values.
fn now(cx: &RunContext) -> i64 {
    i64::try_from(cx.unix_ms).unwrap_or(i64::MAX)
}

/// An entry, as its caller is answered.
fn shown(freshness: Freshness, entry: &Entry) -> Vec<Outcome> {
    let (state, left) = match freshness {
        Freshness::Absent => (0, 0),
        Freshness::Fresh(left) => (1, i64::try_from(left.as_millis()).unwrap_or(i64::MAX)),
        Freshness::Stale => (2, 0),
        Freshness::Kept => (3, 0),
    };
    let value = Outcome::Bulk(Value::of(entry));
    vec![Outcome::Int(state), Outcome::Int(left), value]
}

impl CacheLookup {
    const ABSENT: Self = Self {
        freshness: Freshness::Absent,
        value: None,
    };

    /// What [`read`] answered; `None` if it is another outcome.
    #[must_use]
    pub fn of(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Nil => Some(Self::ABSENT),
            Outcome::Many(all) => Self::of_many(all),
            _ => None,
        }
    }

    fn of_many(all: Vec<Outcome>) -> Option<Self> {
        let mut all = all.into_iter();
        let (Some(Outcome::Int(state)), Some(Outcome::Int(left))) = (all.next(), all.next()) else {
            return None;
        };
        let freshness = match state {
            0 => Freshness::Absent,
            1 => Freshness::Fresh(Duration::from_millis(u64::try_from(left).ok()?)),
            2 => Freshness::Stale,
            3 => Freshness::Kept,
            _ => return None,
        };
        let value = match all.next() {
            Some(Outcome::Bulk(value)) => Some(value),
            None => None,
            Some(_) => return None,
        };
        Some(Self { freshness, value })
    }

    /// What [`claim_for`] answered; `None` if it is another outcome.
    #[must_use]
    pub fn of_claim(outcome: Outcome) -> Option<(ClaimVerdict, Self)> {
        let Outcome::Many(mut all) = outcome else {
            return None;
        };
        let rest = (all.len() >= 2).then(|| all.split_off(2))?;
        let verdict = match all[..] {
            [Outcome::Int(0), _] => ClaimVerdict::Fresh,
            [Outcome::Int(1), _] => ClaimVerdict::Claimed,
            [Outcome::Int(2), Outcome::Int(left)] => {
                ClaimVerdict::Taken(Duration::from_millis(u64::try_from(left).ok()?))
            }
            _ => return None,
        };
        Some((verdict, Self::of_many(rest)?))
    }
}

/// A duration in milliseconds.
fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Reads an entry.
#[must_use]
pub fn read() -> Action {
    Action::call(&READ, &[], Vec::new())
}

/// Claims an entry, unless it is fresh for more than `ahead`.
#[must_use]
pub fn claim_for(id: ClaimId, lease: Duration, ahead: Duration) -> Action {
    let id = Bytes::copy_from_slice(&id);
    Action::call(&CLAIM, &[ms(lease), ms(ahead), 0], [id])
}

/// Renews a claim. The verdict is `Taken` if it is lost: what is stored with it will be refused.
#[must_use]
pub fn renew(id: ClaimId, lease: Duration) -> Action {
    let id = Bytes::copy_from_slice(&id);
    Action::call(&CLAIM, &[ms(lease), 0, 1], [id])
}

/// Stores a value (`None`: there is nothing to load) with these tags ([`tags`]). With an id, only
/// if the entry is claimed with it.
#[must_use]
pub fn store_as(
    id: Option<ClaimId>,
    times: CacheTimes,
    tags: Bytes,
    body: Option<Bytes>,
) -> Action {
    let numbers = [
        ms(times.fresh),
        ms(times.stale),
        ms(times.kept),
        i64::from(body.is_none()),
    ];
    let id = id.map_or_else(Bytes::new, |id| Bytes::copy_from_slice(&id));
    Action::call(&STORE, &numbers, vec![id, tags, body.unwrap_or_default()])
}

/// Gives up a claim. A value that was there is served for `hold` until the next caller loads.
#[must_use]
pub fn release(id: ClaimId, hold: Duration) -> Action {
    Action::call(&RELEASE, &[ms(hold)], [Bytes::copy_from_slice(&id)])
}

/// The head of a value without tags.
#[must_use]
pub fn no_tags() -> Bytes {
    Bytes::from_static(&[TAGGED, 0, 0])
}

/// The head of a value with these tags, as [`store_as`] takes it.
///
/// # Errors
/// The tags are too long.
pub fn tags<T: AsRef<[u8]>>(tags: impl IntoIterator<Item = T>) -> Result<Bytes, TagsTooLong> {
    let mut head = Vec::new();
    put_head(&mut head, tags)?;
    Ok(head.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::action::apply;
    use crate::store;

    const SECOND: Duration = Duration::from_secs(1);
    const TIMES: CacheTimes = CacheTimes {
        fresh: Duration::from_secs(10),
        stale: Duration::from_secs(20),
        kept: Duration::from_secs(30),
    };
    const ADA: ClaimId = [1; 16];
    const EVE: ClaimId = [2; 16];

    /// One key at its primary.
    #[derive(Default)]
    struct Key {
        entry: Option<Entry>,
        seconds: u64,
    }

    impl Key {
        fn at(&mut self, seconds: u64) -> &mut Self {
            self.seconds = seconds;
            let clock = self.seconds * 1_000;
            let overdue = |entry: &Entry| {
                entry.deadline() != 0 && crate::value::deadline::clock(entry.deadline()) <= clock
            };
            if self.entry.as_ref().is_some_and(overdue) {
                self.entry = None;
            }
            self
        }

        fn run(&mut self, action: &Action) -> Outcome {
            let cx = RunContext::at(
                self.seconds * 1_000,
                1_700_000_000_000 + self.seconds * 1_000,
            );
            let found = store::FoundKey {
                entry: self.entry.as_ref(),
                ..store::FoundKey::default()
            };
            let (outcome, change) = apply(action, found, &cx);
            match change {
                KeyChange::None => {}
                KeyChange::Put { value, deadline } => {
                    self.entry = Some(Entry::new(b"k", &value, deadline, 0));
                }
                KeyChange::Delete => self.entry = None,
                other => panic!("{other:?}"),
            }
            outcome
        }

        fn read(&mut self) -> (Freshness, Option<Option<Vec<u8>>>) {
            let found = CacheLookup::of(self.run(&read())).expect("a reading");
            let body = found.body().map(|body| body.map(<[u8]>::to_vec));
            (found.freshness, body)
        }

        fn claim(&mut self, id: ClaimId) -> ClaimVerdict {
            let outcome = self.run(&claim_for(id, SECOND * 5, Duration::ZERO));
            CacheLookup::of_claim(outcome).expect("a verdict").0
        }

        fn store(&mut self, id: Option<ClaimId>, body: Option<&'static str>) -> bool {
            let head = tags(["people"]).expect("they fit");
            let body = body.map(|body| Bytes::from_static(body.as_bytes()));
            self.run(&store_as(id, TIMES, head, body)) == Outcome::Int(1)
        }
    }

    #[test]
    fn one_caller_loads_and_the_others_wait() {
        let mut key = Key::default();
        assert_eq!(key.read(), (Freshness::Absent, None));
        assert_eq!(key.claim(ADA), ClaimVerdict::Claimed);
        assert_eq!(key.at(1).claim(EVE), ClaimVerdict::Taken(SECOND * 4));
        assert_eq!(key.read(), (Freshness::Absent, None));
        let renewed = key.at(3).run(&renew(ADA, SECOND * 5));
        let verdict = CacheLookup::of_claim(renewed).map(|(verdict, _)| verdict);
        assert_eq!(verdict, Some(ClaimVerdict::Claimed));
        assert_eq!(key.at(7).claim(EVE), ClaimVerdict::Taken(SECOND));
        assert!(!key.store(Some(EVE), Some("not hers")));
        assert!(key.store(Some(ADA), Some("a")));
        assert_eq!(key.claim(EVE), ClaimVerdict::Fresh);
        let found = (Freshness::Fresh(SECOND * 10), Some(Some(b"a".to_vec())));
        assert_eq!(key.read(), found);
        assert!(!key.store(Some(ADA), Some("again")), "the claim is used up");
    }

    #[test]
    fn a_loader_that_ends_is_replaced_at_the_end_of_its_lease() {
        let mut key = Key::default();
        assert_eq!(key.claim(ADA), ClaimVerdict::Claimed);
        assert_eq!(key.at(5).claim(EVE), ClaimVerdict::Claimed);
        assert!(!key.store(Some(ADA), Some("late")));
        assert!(key.store(Some(EVE), Some("e")));
        // The same with a value that is there.
        assert_eq!(key.at(16).claim(ADA), ClaimVerdict::Claimed);
        assert_eq!(key.at(21).claim(EVE), ClaimVerdict::Claimed);
        assert!(!key.store(Some(ADA), Some("late")));
        assert_eq!(key.read(), (Freshness::Stale, Some(Some(b"e".to_vec()))));
    }

    #[test]
    fn an_entry_is_fresh_then_stale_then_kept_then_gone() {
        let mut key = Key::default();
        assert!(key.store(None, Some("a")));
        let body = Some(Some(b"a".to_vec()));
        assert_eq!(key.at(9).read(), (Freshness::Fresh(SECOND), body.clone()));
        assert_eq!(key.at(10).read(), (Freshness::Stale, body.clone()));
        assert_eq!(key.at(30).read(), (Freshness::Kept, body));
        assert_eq!(key.at(60).read(), (Freshness::Absent, None));
        // What is known not to exist.
        assert!(key.store(None, None));
        assert_eq!(key.read().1, Some(None));
    }

    #[test]
    fn what_is_stored_after_an_invalidation_is_refused() {
        let mut key = Key::default();
        for before in [None, Some("old")] {
            if before.is_some() {
                assert!(key.store(None, before));
                key.at(11);
            }
            assert_eq!(key.claim(ADA), ClaimVerdict::Claimed);
            assert_eq!(key.run(&Action::Delete), Outcome::Int(1));
            assert!(!key.store(Some(ADA), Some("read before")));
            assert_eq!(key.read(), (Freshness::Absent, None));
        }
        // A write is newer than what a loader read.
        assert_eq!(key.claim(ADA), ClaimVerdict::Claimed);
        assert!(key.store(None, Some("written")));
        let renewed = key.run(&renew(ADA, SECOND));
        let verdict = CacheLookup::of_claim(renewed).map(|(verdict, _)| verdict);
        assert_eq!(verdict, Some(ClaimVerdict::Taken(Duration::ZERO)));
        assert!(!key.store(Some(ADA), Some("read before")));
        assert_eq!(key.read().1, Some(Some(b"written".to_vec())));
    }

    #[test]
    fn a_claim_that_is_given_up_leaves_what_there_was() {
        let mut key = Key::default();
        assert_eq!(key.claim(ADA), ClaimVerdict::Claimed);
        assert_eq!(key.run(&release(EVE, SECOND)), Outcome::Int(0));
        assert_eq!(key.run(&release(ADA, SECOND)), Outcome::Int(1));
        assert!(key.entry.is_none());
        assert!(key.store(None, Some("old")));
        assert_eq!(key.at(40).read().0, Freshness::Kept);
        assert_eq!(key.claim(ADA), ClaimVerdict::Claimed);
        assert_eq!(key.run(&release(ADA, SECOND * 2)), Outcome::Int(1));
        assert_eq!(key.read().0, Freshness::Fresh(SECOND * 2));
        assert_eq!(key.claim(EVE), ClaimVerdict::Fresh, "not again at once");
        assert_eq!(key.at(42).claim(EVE), ClaimVerdict::Claimed);
        assert_eq!(key.at(60).read().0, Freshness::Absent, "its end stays");
    }

    #[test]
    fn an_entry_is_claimed_ahead_of_its_end() {
        let mut key = Key::default();
        assert!(key.store(None, Some("a")));
        let ahead = |key: &mut Key| {
            let outcome = key.run(&claim_for(ADA, SECOND * 5, SECOND * 3));
            CacheLookup::of_claim(outcome).expect("a verdict").0
        };
        assert_eq!(ahead(key.at(6)), ClaimVerdict::Fresh);
        assert_eq!(ahead(key.at(7)), ClaimVerdict::Claimed);
        assert_eq!(key.claim(EVE), ClaimVerdict::Fresh, "it serves meanwhile");
        assert!(key.store(Some(ADA), Some("b")));
    }

    #[test]
    fn values_of_others_are_fresh_for_ever_and_any_bytes_are_read() {
        use proptest::prelude::*;
        let mut key = Key::default();
        key.run(&Action::set(Bytes::from_static(b"plain")));
        assert_eq!(key.read().1, Some(Some(b"plain".to_vec())));
        assert_eq!(key.claim(ADA), ClaimVerdict::Fresh);
        let begun = prop_oneof![Just(0xE0_u8), Just(0xE1), any::<u8>()];
        let bytes = (begun, prop::collection::vec(any::<u8>(), 0..64));
        proptest!(|((first, rest) in bytes)| {
            let mut value = vec![first];
            value.extend(rest);
            let mut key = Key { entry: Some(Entry::new(b"k", &value, 0, 0)), seconds: 0 };
            key.read();
            key.claim(ADA);
            key.store(Some(ADA), Some("a"));
            key.run(&release(ADA, SECOND));
        });
    }
}
