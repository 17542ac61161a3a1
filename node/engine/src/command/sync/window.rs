//! A sliding window, approximated by two windows that follow each other.
//!
//! ```text
//!    the window before    this one
//!   ├────────────────────┼────────────────────┤
//!               ├── what is judged ──┤
//!                                    now
//! ```
//! Of what was counted in the window before, the part counts that the sliding window still covers,
//! as if it had come evenly. This is Cloudflare's approximation, which decided 0.003 % of their
//! requests otherwise than an exact log would have. Its error is bounded: in each of the two
//! windows no more than the limit is allowed, so any span of the window's length has less than
//! twice the limit, however calls come. And if all of the window before came at its very beginning,
//! up to that much is refused which an exact log would allow. A log would need room for every call.
//!
//! The first call begins the first window. Whole numbers are compared, so that nothing is rounded.

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

/// Bytes of a state.
const STATE_BYTES: usize = 24;

/// A rate limiter that allows about `limit` in any span of `window_ms`, and never twice as much.
///
/// Each call brings these numbers. If a call has another window than the one before, what counted
/// until then, rounded up, is the beginning of a new window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u64,
    window_ms: u64,
}

impl SlidingWindow {
    /// A window. `None`: a number is 0 or too large (`AMOUNT_MAX`, `MS_MAX`).
    #[must_use]
    pub fn new(limit: u64, window_ms: u64) -> Option<Self> {
        let valid = (1..=AMOUNT_MAX).contains(&limit) && (1..=MS_MAX).contains(&window_ms);
        valid.then_some(Self { limit, window_ms })
    }

    /// Counts `cost`, if it is within the limit; with 0 it only looks. → [`super::read_decision`]
    #[must_use]
    pub fn count(self, cost: u64) -> Action {
        let numbers = [self.limit, self.window_ms, cost].map(number);
        Action::call(&COUNT, &numbers, Vec::new())
    }

    /// What counts now.
    fn state(self, entry: Option<&Entry>, clock: u64) -> Result<WindowState, Failure> {
        let Some(entry) = entry else {
            return Ok(WindowState::begun(self.window_ms, clock, 0));
        };
        let state = layout::base(entry).and_then(|end| WindowState::decode(entry.value(), end));
        let state = state.ok_or(Failure::WrongType)?.at(clock);
        if state.window_ms == self.window_ms {
            return Ok(state);
        }
        let used = state.used(clock).div_ceil(state.window_ms.into());
        let used = u64::try_from(used).unwrap_or(u64::MAX).min(AMOUNT_MAX);
        Ok(WindowState::begun(self.window_ms, clock, used))
    }

    fn decide(
        self,
        cost: u64,
        (mut state, clock): (WindowState, u64),
    ) -> (PermitDecision, Option<WindowState>) {
        let window = u128::from(self.window_ms);
        let most = u128::from(self.limit) * window;
        let allowed = state.used(clock) + u128::from(cost) * window <= most;
        // Without a cost there is nothing that could be too much.
        let allowed = allowed || cost == 0;
        if allowed {
            state.now = state.now.saturating_add(cost);
        }
        let left = most.saturating_sub(state.used(clock)) / window;
        let decision = PermitDecision {
            allowed,
            // At most the limit.
            remaining: u64::try_from(left).unwrap_or(u64::MAX),
            retry_ms: if allowed {
                Some(0)
            } else {
                self.retry_ms(cost, (&state, clock))
            },
            reset_ms: state.reset_ms(clock),
        };
        (decision, (allowed && cost > 0).then_some(state))
    }

    /// When `cost` is within the limit, if nothing is counted before.
    fn retry_ms(self, cost: u64, (state, clock): (&WindowState, u64)) -> Option<u64> {
        let room = |counted: u64| self.limit.checked_sub(counted.checked_add(cost)?);
        let elapsed = state.elapsed(clock);
        // The offset in a window at which `before`, from the window before it, counts for at most
        // `room`.
        let into = |before: u64, room: u64| {
            let covered = u128::from(room) * u128::from(self.window_ms) / u128::from(before.max(1));
            // At most the window.
            let covered = u64::try_from(covered)
                .unwrap_or(u64::MAX)
                .min(self.window_ms);
            self.window_ms - covered
        };
        match room(state.now) {
            Some(room) => Some(into(state.before, room).saturating_sub(elapsed)),
            None => {
                let next = into(state.now, room(0)?);
                Some((self.window_ms - elapsed).saturating_add(next))
            }
        }
    }
}

/// Counts within a window: the limit, the window, and the cost. → `Many` of `Int`s, as
/// `PermitDecision` says
pub(super) static COUNT: Procedure = procedure(66, "count in a window", Kind::String, (3, 0))
    .costs(|_| writes(STATE_BYTES))
    .on_entry(count);

fn count(inputs: &Inputs, entry: Option<&Entry>, cx: &RunContext) -> (Outcome, KeyChange) {
    let natural = |at: usize| inputs.numbers.get(at).and_then(|n| u64::try_from(*n).ok());
    let (Some(limit), Some(window_ms), Some(cost)) = (natural(0), natural(1), natural(2)) else {
        return failed(Failure::NotAnInteger);
    };
    let Some(window) = SlidingWindow::new(limit, window_ms) else {
        return failed(Failure::NotAnInteger);
    };
    let state = match window.state(entry, cx.clock) {
        Ok(state) => state,
        Err(failure) => return failed(failure),
    };
    let (decision, state) = window.decide(cost, (state, cx.clock));
    let change = state.map_or(KeyChange::None, |state| {
        let deadline = layout::deadline(state.end(), entry, cx);
        KeyChange::put(Bytes::from(state.encode()), deadline)
    });
    (decision.into_outcome(), change)
}

/// What is stored of a limiter. Its entry expires when this window does not count any more, as the
/// one before the next one: two windows after its start.
///
/// ```text
///   head │ window 4 │ counted before 8 │ counted now 8
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WindowState {
    window_ms: u64,
    /// When this window began.
    start: u64,
    /// What was counted in the window before, and in this one.
    before: u64,
    now: u64,
}

impl WindowState {
    const fn begun(window_ms: u64, start: u64, now: u64) -> Self {
        Self {
            window_ms,
            start,
            before: 0,
            now,
        }
    }

    /// Decodes the value of an entry with this deadline.
    pub(super) fn decode(value: &[u8], end: u64) -> Option<Self> {
        let mut reader = LayoutReader::of(value, StateKind::Window)?;
        let window_ms = u64::from(reader.u32()?);
        let state = Self {
            window_ms,
            start: end.checked_sub(2 * window_ms)?,
            before: reader.u64()?,
            now: reader.u64()?,
        };
        reader.end()?;
        let valid = (1..=MS_MAX).contains(&window_ms)
            && state.before <= AMOUNT_MAX
            && (1..=AMOUNT_MAX).contains(&state.now);
        valid.then_some(state)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // A window is at most 2^31 ms.
        let window = u32::try_from(self.window_ms).unwrap_or(u32::MAX);
        let mut value = Vec::with_capacity(STATE_BYTES);
        value.extend(StateKind::Window.head());
        value.extend(window.to_le_bytes());
        value.extend(self.before.to_le_bytes());
        value.extend(self.now.to_le_bytes());
        value
    }

    /// When nothing of it counts any more.
    const fn end(&self) -> u64 {
        self.start.saturating_add(2 * self.window_ms)
    }

    /// The window of this moment. The clock of a new primary may be behind the start: then the
    /// window has just begun.
    const fn at(self, clock: u64) -> Self {
        match clock.saturating_sub(self.start) / self.window_ms {
            0 => self,
            1 => Self {
                start: self.start + self.window_ms,
                before: self.now,
                now: 0,
                ..self
            },
            _ => Self::begun(self.window_ms, clock, 0),
        }
    }

    /// How far into its window this moment is.
    fn elapsed(&self, clock: u64) -> u64 {
        clock.saturating_sub(self.start).min(self.window_ms)
    }

    /// What counts at this moment, times the window.
    fn used(&self, clock: u64) -> u128 {
        let covered = u128::from(self.window_ms - self.elapsed(clock));
        u128::from(self.now) * u128::from(self.window_ms) + u128::from(self.before) * covered
    }

    /// In how many milliseconds nothing counts any more.
    fn reset_ms(&self, clock: u64) -> u64 {
        let windows = match (self.before, self.now) {
            (0, 0) => return 0,
            (_, 0) => self.window_ms,
            _ => 2 * self.window_ms,
        };
        self.start.saturating_add(windows).saturating_sub(clock)
    }
}
