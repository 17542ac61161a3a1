//! Judges what callers saw of one lock or semaphore, with no knowledge of how locks work.
//!
//! ```text
//!   asked ──> got ─── held, as the grant says ───> until ──> given back, or lost
//! ```
//! - No more grants say at one moment that they are held than there are permits. A grant that said
//!   so twice was held all the time in between.
//! - A grant has a higher token than each grant that had been returned before its caller asked. If
//!   there is one permit, it also has a higher token than each grant that was held before it. No
//!   two grants have one token.
//! - A grant is not lost before its time to live is over, less what clocks may be wrong.
//! - A fenced write is refused after a later token was accepted, and only if a later token was
//!   tried.
//! - Reads of the key that is written so give values that only grow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most violations that are printed in full.
const TOLD_MAX: usize = 5;

/// What callers saw of one lock or semaphore. Times count from the beginning of the run.
#[derive(Debug)]
pub(super) struct LockObservations {
    name: String,
    permits: usize,
    /// How long a grant is held at least, counted from when its caller asked.
    certain: Duration,
    grants: Vec<HeldGrant>,
    lost: BTreeSet<GrantId>,
    /// Writes of former holders that were refused.
    fenced: u64,
    /// The highest value that was accepted or read.
    floor: FencedValue,
    /// Values of writes that happened, or may have.
    tried: BTreeSet<FencedValue>,
    serial: u64,
    wrong: Vec<(LockViolation, String)>,
}

/// A grant: its place among all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GrantId(usize);

/// A value of the key that is written with tokens: the token, and a number that grows with each
/// write. A holder writes one value after the other, so values grow.
pub(super) type FencedValue = (u64, u64);

/// A grant, as its caller saw it.
#[derive(Debug, Clone, Copy)]
struct HeldGrant {
    token: u64,
    asked: Duration,
    got: Duration,
    /// The last moment at which it said that it was held.
    until: Option<Duration>,
}

/// A write that is under way.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) mark: FencedValue,
    /// The highest value that was known before it began.
    floor: FencedValue,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteEnd {
    Accepted,
    /// It was refused because of a later token.
    Fenced,
    /// It did not happen, for another reason.
    NotDone,
    Unknown,
}

/// What did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockViolation {
    Crowded,
    Unordered,
    Early,
    Unfenced,
    Stuck,
}

/// The verdict on all locks and semaphores.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub(in crate::chaos) struct Locks {
    pub(in crate::chaos) grants: u64,
    /// Grants that were lost before they were given back.
    pub(in crate::chaos) lost: u64,
    /// Writes of former holders that were refused.
    pub(in crate::chaos) fenced: u64,
    /// Grants that were held while all permits were.
    pub(in crate::chaos) crowded: u64,
    /// Grants whose token was not above that of an earlier grant.
    pub(in crate::chaos) unordered: u64,
    /// Grants that were lost too early.
    pub(in crate::chaos) early: u64,
    /// Fenced writes and reads of what they wrote with a wrong outcome.
    pub(in crate::chaos) unfenced: u64,
    /// Locks and semaphores that were not granted, or whose key was not served, in the end.
    pub(in crate::chaos) stuck: u64,
    /// The first violations.
    pub(in crate::chaos) violations: Vec<String>,
}

impl Locks {
    /// How many promises did not hold.
    pub(in crate::chaos) const fn broken(&self) -> u64 {
        self.crowded + self.unordered + self.early + self.unfenced + self.stuck
    }

    pub(in crate::chaos) const fn holds(&self) -> bool {
        self.broken() == 0
    }

    /// The verdict on what was seen of each.
    pub(super) fn judge<'a>(all: impl IntoIterator<Item = &'a LockObservations>) -> Self {
        let mut locks = Self::default();
        for seen in all {
            locks.grants += seen.grants.len() as u64;
            locks.lost += seen.lost.len() as u64;
            locks.fenced += seen.fenced;
            let (crowded, unordered) = (seen.crowded(), seen.unordered());
            for (wrong, text) in seen.wrong.iter().chain(&crowded).chain(&unordered) {
                let count = match wrong {
                    LockViolation::Crowded => &mut locks.crowded,
                    LockViolation::Unordered => &mut locks.unordered,
                    LockViolation::Early => &mut locks.early,
                    LockViolation::Unfenced => &mut locks.unfenced,
                    LockViolation::Stuck => &mut locks.stuck,
                };
                *count += 1;
                if locks.violations.len() < TOLD_MAX {
                    locks.violations.push(format!("{}: {text}", seen.name));
                }
            }
        }
        locks
    }
}

impl LockObservations {
    pub(super) fn new(name: String, permits: u16, certain: Duration) -> Self {
        Self {
            name,
            permits: permits.into(),
            certain,
            grants: Vec::new(),
            lost: BTreeSet::new(),
            fenced: 0,
            floor: (0, 0),
            // A key without a value was never written.
            tried: BTreeSet::from([(0, 0)]),
            serial: 0,
            wrong: Vec::new(),
        }
    }

    /// A caller that had asked got a grant.
    pub(super) fn granted(&mut self, token: u64, asked: Duration, got: Duration) -> GrantId {
        self.grants.push(HeldGrant {
            token,
            asked,
            got,
            until: None,
        });
        GrantId(self.grants.len() - 1)
    }

    /// The grant said after this moment that it is held.
    pub(super) fn held(&mut self, grant: GrantId, at: Duration) {
        let until = &mut self.grants[grant.0].until;
        *until = (*until).max(Some(at));
    }

    /// The grant said before this moment that it is not held, and was not given back.
    pub(super) fn lost(&mut self, grant: GrantId, at: Duration) {
        let HeldGrant { token, asked, .. } = self.grants[grant.0];
        if self.lost.insert(grant) && at < asked + self.certain {
            let text = format!(
                "the grant with token {token}, asked for at {}, was lost at {}, before its time",
                seconds(asked),
                seconds(at)
            );
            self.wrong.push((LockViolation::Early, text));
        }
    }

    /// The grant was found to be lost as it was given back. `certain`: it still said that it was
    /// held.
    pub(super) fn taken(&mut self, grant: GrantId, certain: bool) {
        self.lost.insert(grant);
        if certain {
            let text = format!(
                "the grant with token {} was taken away before its time",
                self.grants[grant.0].token
            );
            self.wrong.push((LockViolation::Early, text));
        }
    }

    /// The lock was not granted, or its key was not served, in the end.
    pub(super) fn stuck(&mut self, what: &str) {
        self.wrong.push((LockViolation::Stuck, what.to_owned()));
    }

    /// Whether a grant with a later token wrote the key, as far as is known.
    pub(super) const fn is_overtaken(&self, token: u64) -> bool {
        self.floor.0 > token
    }

    /// A holder, or a former one, begins to write.
    pub(super) fn begin_write(&mut self, token: u64) -> Trial {
        self.serial += 1;
        let mark = (token, self.serial);
        self.tried.insert(mark);
        Trial {
            mark,
            floor: self.floor,
        }
    }

    /// A write has ended.
    pub(super) fn written(&mut self, trial: &Trial, written: WriteEnd) {
        let (token, _) = trial.mark;
        match written {
            WriteEnd::Accepted => {
                if trial.floor.0 > token {
                    let text = format!(
                        "a write with token {token} was accepted after one with token {}",
                        trial.floor.0
                    );
                    self.wrong.push((LockViolation::Unfenced, text));
                }
                self.floor = self.floor.max(trial.mark);
            }
            WriteEnd::Fenced => {
                self.tried.remove(&trial.mark);
                self.fenced += 1;
                if self.tried.last().is_none_or(|(last, _)| *last <= token) {
                    let text = format!(
                        "a write with token {token} was refused, and no later token was tried"
                    );
                    self.wrong.push((LockViolation::Unfenced, text));
                }
            }
            WriteEnd::NotDone => {
                self.tried.remove(&trial.mark);
            }
            WriteEnd::Unknown => {}
        }
    }

    /// A read begins: it must give this value at least.
    pub(super) const fn begin_read(&self) -> FencedValue {
        self.floor
    }

    /// A read that began so has ended.
    pub(super) fn read(&mut self, floor: FencedValue, value: Option<FencedValue>) {
        let value = value.unwrap_or((0, 0));
        let (token, number) = value;
        if !self.tried.contains(&value) {
            let text =
                format!("write {number} with token {token} was read, which did not take place");
            self.wrong.push((LockViolation::Unfenced, text));
            return;
        }
        if value < floor {
            let text = format!(
                "write {number} with token {token} was read after write {} with token {}",
                floor.1, floor.0
            );
            self.wrong.push((LockViolation::Unfenced, text));
        }
        self.floor = self.floor.max(value);
    }

    /// Grants that were held while all permits were.
    fn crowded(&self) -> Vec<(LockViolation, String)> {
        let held = self.grants.iter().filter_map(|g| Some((g, g.until?)));
        let mut held: Vec<_> = held.collect();
        held.sort_by_key(|(grant, _)| grant.got);
        let mut wrong = Vec::new();
        let mut present: Vec<(&HeldGrant, Duration)> = Vec::new();
        for (grant, until) in held {
            present.retain(|(_, until)| *until >= grant.got);
            present.push((grant, until));
            if present.len() > self.permits {
                let spans = present.iter().map(|(grant, until)| {
                    let (from, until) = (seconds(grant.got), seconds(*until));
                    format!("token {} from {from} to {until}", grant.token)
                });
                let text = format!(
                    "{} holders at {}, {} allowed: {}",
                    present.len(),
                    seconds(grant.got),
                    self.permits,
                    spans.collect::<Vec<_>>().join(", ")
                );
                wrong.push((LockViolation::Crowded, text));
            }
        }
        wrong
    }

    /// Grants whose token is not above that of an earlier grant.
    fn unordered(&self) -> Vec<(LockViolation, String)> {
        // The highest token of grants until a moment: those that were returned, and those that
        // were held from then on.
        let highest = |grants: &mut dyn Iterator<Item = &HeldGrant>| {
            let mut highest = BTreeMap::<Duration, u64>::new();
            for grant in grants {
                let token = highest.entry(grant.got).or_default();
                *token = grant.token.max(*token);
            }
            let mut most = 0;
            for token in highest.values_mut() {
                most = most.max(*token);
                *token = most;
            }
            highest
        };
        let returned = highest(&mut self.grants.iter());
        let alone = self.permits == 1;
        let held = highest(&mut self.grants.iter().filter(|g| alone && g.until.is_some()));
        let last = |most: Option<(&Duration, &u64)>| most.map_or(0, |(_, token)| *token);
        let mut tokens = BTreeSet::new();
        let mut wrong = Vec::new();
        for grant in &self.grants {
            let HeldGrant { token, got, .. } = *grant;
            let mut floor = last(returned.range(..grant.asked).next_back());
            if grant.until.is_some() {
                floor = floor.max(last(held.range(..got).next_back()));
            }
            let at = seconds(got);
            let text = if token <= floor {
                format!("token {token} was granted at {at}, after token {floor}")
            } else if !tokens.insert(token) {
                format!("token {token} was granted twice, the second time at {at}")
            } else {
                continue;
            };
            wrong.push((LockViolation::Unordered, text));
        }
        wrong
    }
}

fn seconds(at: Duration) -> String {
    format!("{:.3} s", at.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTAIN: Duration = Duration::from_secs(4);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn seen(permits: u16) -> LockObservations {
        LockObservations::new("name".into(), permits, CERTAIN)
    }

    /// A grant that was asked for at this moment, returned 1 ms later, and held until the end.
    fn held(seen: &mut LockObservations, token: u64, asked: u64, until: u64) -> GrantId {
        let grant = seen.granted(token, at(asked), at(asked + 1));
        seen.held(grant, at(asked + 1));
        seen.held(grant, at(until));
        grant
    }

    fn judged(seen: &LockObservations) -> Locks {
        Locks::judge([seen])
    }

    #[test]
    fn two_holders_of_a_lock_are_found() {
        let mut one = seen(1);
        held(&mut one, 1, 0, 10);
        held(&mut one, 2, 10, 20);
        // Its caller was told late, so it is held for no moment.
        one.granted(3, at(12), at(15));
        assert!(judged(&one).holds(), "{:?}", judged(&one));
        held(&mut one, 4, 20, 30);
        let locks = judged(&one);
        assert!(locks.holds(), "one ends before the next begins: {locks:?}");
        held(&mut one, 5, 28, 40);
        let locks = judged(&one);
        assert_eq!((locks.crowded, locks.broken(), locks.grants), (1, 1, 5));
        assert_eq!(
            locks.violations,
            [concat!(
                "name: 2 holders at 0.029 s, 1 allowed: token 4 from 0.021 s to 0.030 s, ",
                "token 5 from 0.029 s to 0.040 s"
            )]
        );
    }

    #[test]
    fn a_semaphore_may_have_as_many_holders_as_permits() {
        let mut two = seen(2);
        held(&mut two, 1, 0, 100);
        held(&mut two, 2, 10, 30);
        held(&mut two, 3, 30, 60);
        assert!(judged(&two).holds(), "{:?}", judged(&two));
        held(&mut two, 4, 50, 55);
        assert_eq!(judged(&two).crowded, 1);
    }

    #[test]
    fn a_token_that_went_back_is_found() {
        let mut one = seen(1);
        held(&mut one, 5, 0, 10);
        held(&mut one, 4, 20, 30);
        let locks = judged(&one);
        assert_eq!((locks.unordered, locks.broken()), (1, 1));
        assert_eq!(
            locks.violations,
            ["name: token 4 was granted at 0.021 s, after token 5"]
        );
        // It counts from the highest token.
        held(&mut one, 5, 40, 50);
        assert_eq!(judged(&one).unordered, 2);
        held(&mut one, 6, 60, 70);
        assert_eq!(judged(&one).unordered, 2);
    }

    #[test]
    fn tokens_of_callers_that_waited_together_grow_as_they_hold() {
        let wait_together = |permits, first, second| {
            let mut seen = seen(permits);
            for (token, got) in [(first, 10), (second, 20)] {
                let grant = seen.granted(token, at(0), at(got));
                seen.held(grant, at(got + 5));
            }
            judged(&seen).unordered
        };
        assert_eq!(wait_together(1, 1, 2), 0);
        assert_eq!(wait_together(1, 2, 1), 1, "the second was granted later");
        assert_eq!(wait_together(2, 2, 1), 0, "an answer may come late");
        assert_eq!(wait_together(2, 1, 1), 1, "a token comes once");
    }

    #[test]
    fn a_grant_that_is_lost_before_its_time_is_found() {
        let mut one = seen(1);
        let late = held(&mut one, 1, 0, 3_000);
        one.lost(late, at(4_000));
        one.lost(late, at(4_010));
        let slow = held(&mut one, 2, 4_000, 6_000);
        one.taken(slow, false);
        let locks = judged(&one);
        assert!(locks.holds() && locks.lost == 2, "{locks:?}");
        let early = held(&mut one, 3, 10_000, 11_000);
        one.lost(early, at(13_999));
        let taken = held(&mut one, 4, 20_000, 20_100);
        one.taken(taken, true);
        let locks = judged(&one);
        assert_eq!((locks.early, locks.broken(), locks.lost), (2, 2, 4));
    }

    #[test]
    fn a_stale_fenced_write_that_was_accepted_is_found() {
        let mut one = seen(1);
        let [old, at_once] = [1, 1].map(|token| one.begin_write(token));
        one.written(&old, WriteEnd::Accepted);
        let next = one.begin_write(2);
        one.written(&next, WriteEnd::Accepted);
        one.written(&at_once, WriteEnd::Accepted);
        assert!(judged(&one).holds(), "they were under way together");
        let stale = one.begin_write(1);
        one.written(&stale, WriteEnd::Fenced);
        let locks = judged(&one);
        assert!(locks.holds() && locks.fenced == 1, "{locks:?}");
        let stale = one.begin_write(1);
        one.written(&stale, WriteEnd::Accepted);
        let locks = judged(&one);
        assert_eq!((locks.unfenced, locks.broken()), (1, 1));
        assert_eq!(
            locks.violations,
            ["name: a write with token 1 was accepted after one with token 2"]
        );
    }

    #[test]
    fn a_token_that_was_only_read_fences_as_well() {
        let mut one = seen(1);
        let unknown = one.begin_write(2);
        one.written(&unknown, WriteEnd::Unknown);
        let (floor, old) = (one.begin_read(), one.begin_write(1));
        one.written(&old, WriteEnd::Accepted);
        one.read(floor, Some(unknown.mark));
        assert!(judged(&one).holds() && one.is_overtaken(1));
        let stale = one.begin_write(1);
        one.written(&stale, WriteEnd::Accepted);
        assert_eq!(judged(&one).unfenced, 1);
    }

    #[test]
    fn a_write_that_was_refused_without_a_reason_is_found() {
        let mut one = seen(1);
        let unknown = one.begin_write(2);
        one.written(&unknown, WriteEnd::Unknown);
        let perhaps = one.begin_write(1);
        one.written(&perhaps, WriteEnd::Fenced);
        assert!(judged(&one).holds(), "the other one may have happened");
        let later = one.begin_write(3);
        one.written(&later, WriteEnd::NotDone);
        let refused = one.begin_write(2);
        one.written(&refused, WriteEnd::Fenced);
        assert_eq!(judged(&one).unfenced, 1, "nothing was written with 3");
    }

    #[test]
    fn a_read_of_less_than_was_acknowledged_is_found() {
        let mut one = seen(1);
        let before = one.begin_read();
        let [first, second, refused] = [1, 1, 3].map(|token| one.begin_write(token));
        one.written(&first, WriteEnd::Accepted);
        one.written(&second, WriteEnd::Accepted);
        one.written(&refused, WriteEnd::NotDone);
        one.read(before, None);
        one.read(before, Some(first.mark));
        one.read(one.begin_read(), Some(second.mark));
        assert!(judged(&one).holds(), "{:?}", judged(&one));
        one.read(one.begin_read(), Some(first.mark));
        assert_eq!(judged(&one).unfenced, 1, "of one holder");
        one.read(one.begin_read(), None);
        assert_eq!(judged(&one).unfenced, 2, "nothing at all");
        one.read(before, Some(refused.mark));
        assert_eq!(judged(&one).unfenced, 3, "it did not happen");
        one.read(before, Some((1, 9)));
        assert_eq!(judged(&one).unfenced, 4, "it was never written");
    }

    #[test]
    fn a_lock_that_is_stuck_in_the_end_is_a_failure() {
        let mut one = seen(1);
        one.stuck("not granted");
        let locks = judged(&one);
        assert_eq!((locks.stuck, locks.holds()), (1, false));
        assert_eq!(locks.violations, ["name: not granted"]);
    }
}
