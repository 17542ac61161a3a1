//! A token bucket: it is full at first, each call takes tokens, and it is filled again evenly.
//!
//! With `refill` tokens per `period_ms`, it counts in units: a token has `period_ms` of them, and a
//! millisecond brings `refill`. So everything is a whole number, and nothing is rounded away
//! however often and at whatever moments it is asked. What is stored is when the bucket is full
//! again: the deadline of the entry, and by how many units that moment is rounded up.

use super::layout::{self, LayoutReader, StateKind};
use super::{AMOUNT_MAX, MS_MAX, PermitDecision, number, writes};
use crate::command::action::failed;
use crate::command::operation::Action;
use crate::command::procedure::{Inputs, Procedure, procedure};
use crate::store::change::KeyChange;
use crate::store::run_context::RunContext;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use bytes::Bytes;

/// The longest time in which a bucket is filled: 34 years.
const FILL_MS_MAX: u128 = 1 << 40;
/// Bytes of a state.
const STATE_BYTES: usize = 24;

/// A rate limiter that allows bursts: up to `capacity` tokens at once, and `refill` tokens per
/// `period_ms` in the long run. It is exact to the millisecond of the partition's clock.
///
/// Each call brings these numbers. If a call has another refill or period than the one before, the
/// tokens that are missing stay missing, rounded up to the next unit; if it has a smaller capacity,
/// no more than that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    capacity: u64,
    refill: u64,
    period_ms: u64,
}

impl TokenBucket {
    /// A bucket. `None`: a number is 0 or too large (`AMOUNT_MAX`, `MS_MAX`), or it would take more
    /// than 34 years to fill the bucket.
    #[must_use]
    pub fn new(capacity: u64, refill: u64, period_ms: u64) -> Option<Self> {
        let bucket = Self {
            capacity,
            refill,
            period_ms,
        };
        let amounts = (1..=AMOUNT_MAX).contains(&capacity) && (1..=AMOUNT_MAX).contains(&refill);
        let valid = amounts && (1..=MS_MAX).contains(&period_ms);
        (valid && bucket.size().div_ceil(refill.into()) <= FILL_MS_MAX).then_some(bucket)
    }

    /// Takes `cost` tokens, if they are there; with 0 it only looks. → [`super::read_decision`]
    #[must_use]
    pub fn take(self, cost: u64) -> Action {
        let numbers = [self.capacity, self.refill, self.period_ms, cost].map(number);
        Action::call(&TAKE, &numbers, Vec::new())
    }

    /// The units of a full bucket.
    fn size(self) -> u128 {
        u128::from(self.capacity) * u128::from(self.period_ms)
    }

    /// The milliseconds in which `units` come. They are few enough.
    fn ms(self, units: u128) -> u64 {
        u64::try_from(units.div_ceil(self.refill.into())).unwrap_or(u64::MAX)
    }

    /// How many units are missing now.
    fn missing(self, entry: Option<&Entry>, clock: u64) -> Result<u128, Failure> {
        let Some(entry) = entry else { return Ok(0) };
        let state = layout::base(entry).and_then(|full| BucketState::decode(entry.value(), full));
        let state = state.ok_or(Failure::WrongType)?;
        let missing = state.missing(clock);
        let missing = if state.period_ms == self.period_ms {
            missing
        } else {
            // Units of another size.
            (missing * u128::from(self.period_ms)).div_ceil(state.period_ms.into())
        };
        Ok(missing.min(self.size()))
    }

    fn decide(
        self,
        cost: u64,
        (missing, clock): (u128, u64),
    ) -> (PermitDecision, Option<BucketState>) {
        let wanted = missing + u128::from(cost) * u128::from(self.period_ms);
        let over = wanted.saturating_sub(self.size());
        let missing = if over == 0 { wanted } else { missing };
        let left = (self.size() - missing) / u128::from(self.period_ms);
        let reset_ms = self.ms(missing);
        let decision = PermitDecision {
            allowed: over == 0,
            // At most the capacity.
            remaining: u64::try_from(left).unwrap_or(u64::MAX),
            retry_ms: (cost <= self.capacity).then(|| self.ms(over)),
            reset_ms,
        };
        let rounded = u128::from(reset_ms) * u128::from(self.refill) - missing;
        let state = BucketState {
            refill: self.refill,
            period_ms: self.period_ms,
            full: clock.saturating_add(reset_ms),
            // Less than what a millisecond brings.
            rounded: u64::try_from(rounded).unwrap_or(0),
        };
        (decision, (over == 0 && cost > 0).then_some(state))
    }
}

/// Takes tokens: the capacity, the refill, its period, and the cost. → `Many` of `Int`s, as
/// `PermitDecision` says
pub(super) static TAKE: Procedure = procedure(65, "take tokens", Kind::String, (4, 0))
    .costs(|_| writes(STATE_BYTES))
    .on_entry(take);

fn take(inputs: &Inputs, entry: Option<&Entry>, cx: &RunContext) -> (Outcome, KeyChange) {
    let natural = |at: usize| inputs.numbers.get(at).and_then(|n| u64::try_from(*n).ok());
    let (Some(capacity), Some(refill), Some(period_ms), Some(cost)) =
        (natural(0), natural(1), natural(2), natural(3))
    else {
        return failed(Failure::NotAnInteger);
    };
    let Some(bucket) = TokenBucket::new(capacity, refill, period_ms) else {
        return failed(Failure::NotAnInteger);
    };
    let missing = match bucket.missing(entry, cx.clock) {
        Ok(missing) => missing,
        Err(failure) => return failed(failure),
    };
    let (decision, state) = bucket.decide(cost, (missing, cx.clock));
    let change = state.map_or(KeyChange::None, |state| {
        let deadline = layout::deadline(state.full, entry, cx);
        KeyChange::put(Bytes::from(state.encode()), deadline)
    });
    (decision.into_outcome(), change)
}

/// What is stored of a bucket that is not full.
///
/// ```text
///   head │ refill 8 │ period 4 │ rounded 8
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BucketState {
    refill: u64,
    period_ms: u64,
    /// When the bucket is full.
    full: u64,
    /// The units that come until then beyond those that are missing.
    rounded: u64,
}

impl BucketState {
    /// Decodes the value of an entry with this deadline.
    pub(super) fn decode(value: &[u8], full: u64) -> Option<Self> {
        let mut reader = LayoutReader::of(value, StateKind::Bucket)?;
        let state = Self {
            refill: reader.u64()?,
            period_ms: reader.u32()?.into(),
            full,
            rounded: reader.u64()?,
        };
        reader.end()?;
        let valid = (1..=AMOUNT_MAX).contains(&state.refill)
            && (1..=MS_MAX).contains(&state.period_ms)
            && state.rounded < state.refill;
        valid.then_some(state)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // A period is at most 2^31 ms.
        let period = u32::try_from(self.period_ms).unwrap_or(u32::MAX);
        let mut value = Vec::with_capacity(STATE_BYTES);
        value.extend(StateKind::Bucket.head());
        value.extend(self.refill.to_le_bytes());
        value.extend(period.to_le_bytes());
        value.extend(self.rounded.to_le_bytes());
        value
    }

    /// How many units are missing at this moment.
    fn missing(&self, clock: u64) -> u128 {
        let left = u128::from(self.full.saturating_sub(clock));
        (left * u128::from(self.refill)).saturating_sub(self.rounded.into())
    }
}
