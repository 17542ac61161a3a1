//! A lock or a semaphore: its holders, the owners that wait in line, and the last token.

use super::layout::{self, LayoutReader, StateKind};
use super::{Acquired, MS_MAX, Owner, many, number, writes};
use crate::command::action::failed;
use crate::command::procedure::{Inputs, Procedure, procedure};
use crate::mutant::{self, broken};
use crate::store::change::KeyChange;
use crate::store::run_context::RunContext;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use bytes::Bytes;

/// The most permits of a semaphore.
pub const PERMITS_MAX: u16 = 1024;
/// The most owners that wait for one.
pub const WAITERS_MAX: usize = 1024;

/// No cluster has this many lineages and writes. A value with a higher token is no state.
const TOKEN_MAX: u64 = 1 << 62;
/// Added to the number of permits: all callers have to give the same one.
pub(super) const SAME: i64 = 1 << 16;
/// Bytes of a holder and of a waiter.
const HOLDER_BYTES: usize = 28;
const WAITER_BYTES: usize = 20;

/// Asks for a permit: the owner, the number of permits, the time to live and the wait. → `Many` of
/// `Int`s, as `Acquired` says
pub(crate) static ACQUIRE: Procedure = procedure(60, "acquire", Kind::String, (5, 0))
    .costs(|_| writes(HOLDER_BYTES))
    .on_entry(|inputs, entry, cx| {
        let [high, low, permits, ttl, wait] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let same = permits >= SAME;
        let permits = u16::try_from(permits % SAME).ok();
        let permits = permits.and_then(super::Permits::new);
        let (Some(permits), Some(ttl), Some(wait)) = (permits, ms(ttl), ms(wait)) else {
            return failed(Failure::NotAnInteger);
        };
        change(entry, cx, |state| {
            let ask = PermitRequest {
                owner: Owner::of_numbers([high, low]),
                permits: permits.count(),
                same,
                until: cx.clock.saturating_add(ttl.max(1)),
                wait,
            };
            state.acquire(ask, cx).into_outcome()
        })
    });

/// Makes a permit last longer: its owner, its token and the time to live. → `Int`, how long, or
/// `Nil`: it is lost
pub(super) static RENEW: Procedure = procedure(61, "renew", Kind::String, (4, 0))
    .costs(|_| writes(HOLDER_BYTES))
    .on_entry(|inputs, entry, cx| {
        let (Some((owner, token)), Some(ttl)) = (held(inputs), ms(inputs.numbers[3])) else {
            return failed(Failure::NotAnInteger);
        };
        change(entry, cx, |state| {
            let until = cx.clock.saturating_add(ttl.max(1));
            let mut holders = state.holders.iter_mut();
            match holders.find(|holder| (holder.owner, holder.token) == (owner, token)) {
                Some(holder) => Outcome::Int(number(holder.renew(until) - cx.clock)),
                None => Outcome::Nil,
            }
        })
    });

/// Gives a permit back: its owner and its token. → `Int` 1 or 0
pub(super) static RELEASE: Procedure = procedure(62, "release", Kind::String, (3, 0))
    .costs(|_| writes(0))
    .on_entry(|inputs, entry, cx| {
        let Some((owner, token)) = held(inputs) else {
            return failed(Failure::NotAnInteger);
        };
        change(entry, cx, |state| {
            let before = state.holders.len();
            let is_it = |holder: &Holder| (holder.owner, holder.token) == (owner, token);
            state.holders.retain(|holder| !is_it(holder));
            Outcome::Int(i64::from(state.holders.len() < before))
        })
    });

/// Gives up an owner's place in line, and a permit that the owner did not hear of. → `Int` 1 or 0
pub(super) static CANCEL: Procedure = procedure(63, "cancel", Kind::String, (2, 0))
    .costs(|_| writes(0))
    .on_entry(|inputs, entry, cx| {
        let owner = Owner::of_numbers([inputs.numbers[0], inputs.numbers[1]]);
        change(entry, cx, |state| {
            let count = |state: &PermitState| state.waiters.len() + state.holders.len();
            let before = count(state);
            state.waiters.retain(|waiter| waiter.owner != owner);
            state.holders.retain(|holder| holder.owner != owner);
            Outcome::Int(i64::from(count(state) < before))
        })
    });

/// Reads the state. → `Many` of `Int`s: holders, waiters, and the last token or 0
pub(super) static LOOK: Procedure = procedure(64, "look at permits", Kind::String, (0, 0))
    .on_entry(|_, entry, cx| {
        read(entry, cx, |state| {
            let waiters = state.waiters.len() + cx.waiting;
            let (holders, waiters) = (state.holders.len() as u64, waiters as u64);
            many(&[holders, waiters, state.token].map(number))
        })
    });

/// Whether an owner would get one of that many permits if it asked. → `Int` 1 or 0
pub(super) static TURN: Procedure =
    procedure(67, "is it the turn", Kind::String, (3, 0)).on_entry(|inputs, entry, cx| {
        let [high, low, permits] = inputs.numbers[..] else {
            return failed(Failure::NotAnInteger);
        };
        let Some(permits) = u16::try_from(permits).ok().and_then(super::Permits::new) else {
            return failed(Failure::NotAnInteger);
        };
        let owner = Owner::of_numbers([high, low]);
        read(entry, cx, |state| {
            Outcome::Int(state.is_turn(owner, permits.count().into()).into())
        })
    });

/// A span of time among the inputs.
fn ms(input: i64) -> Option<u64> {
    u64::try_from(input).ok().filter(|ms| *ms <= MS_MAX)
}

/// The owner and the token that are the first inputs.
fn held(inputs: &Inputs) -> Option<(Owner, u64)> {
    let [high, low, token, ..] = inputs.numbers[..] else {
        return None;
    };
    let token = u64::try_from(token).ok()?;
    Some((Owner::of_numbers([high, low]), token))
}

/// Reads the state of a key, without what is over.
fn read(
    entry: Option<&Entry>,
    cx: &RunContext,
    answer: impl FnOnce(&PermitState) -> Outcome,
) -> (Outcome, KeyChange) {
    match PermitState::of(entry) {
        Ok(mut state) => {
            state.purge(cx.clock);
            (answer(&state), KeyChange::None)
        }
        Err(failure) => failed(failure),
    }
}

/// Applies a rule to the state of a key, without what is over.
fn change(
    entry: Option<&Entry>,
    cx: &RunContext,
    rule: impl FnOnce(&mut PermitState) -> Outcome,
) -> (Outcome, KeyChange) {
    cx.budget.copy(entry.map_or(0, |entry| entry.value().len()));
    let mut state = match PermitState::of(entry) {
        Ok(state) => state,
        Err(failure) => return failed(failure),
    };
    state.purge(cx.clock);
    let outcome = rule(&mut state);
    match state.into_change(entry, cx) {
        Ok(change) => (outcome, change),
        Err(failure) => failed(failure),
    }
}

/// An owner that has a permit until a moment of the partition's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) owner: Owner,
    pub(super) token: u64,
    pub(super) until: u64,
}

impl Holder {
    /// Makes it last until then, or for as long as it lasts anyway. A shorter time could end before
    /// what its owner was told earlier.
    fn renew(&mut self, until: u64) -> u64 {
        self.until = self.until.max(until);
        self.until
    }
}

/// An owner that has a place in line until a moment of the partition's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PermitWaiter {
    pub(super) owner: Owner,
    pub(super) until: u64,
}

/// What an owner asks for.
#[derive(Debug, Clone, Copy)]
struct PermitRequest {
    owner: Owner,
    permits: u16,
    /// All callers have to give the same number.
    same: bool,
    until: u64,
    wait: u64,
}

/// The state of a lock or a semaphore.
///
/// ```text
///   head │ (permits 2) │ last token 8 │ holders 2, waiters 2 │ holders: owner 16, token 8, before 4
///                                                            │ waiters: owner 16, before 4
/// ```
/// The number of permits is there only if callers have to give the same one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PermitState {
    /// The number that all callers have to give, as long as there is a holder or a waiter.
    pub(super) permits: Option<u16>,
    /// The highest token that was granted.
    pub(super) token: u64,
    pub(super) holders: Vec<Holder>,
    /// In order: the first one is next.
    pub(super) waiters: Vec<PermitWaiter>,
}

impl PermitState {
    /// What a key holds.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn of(entry: Option<&Entry>) -> Result<Self, Failure> {
        let Some(entry) = entry else {
            return Ok(Self::default());
        };
        let state = layout::base(entry).and_then(|base| Self::decode(entry.value(), base));
        state.ok_or(Failure::WrongType)
    }

    /// Decodes a value whose deadlines count back from this moment.
    pub(super) fn decode(value: &[u8], base: u64) -> Option<Self> {
        let (mut reader, permits) = match LayoutReader::of(value, StateKind::Numbered) {
            Some(mut reader) => {
                let permits = super::Permits::new(reader.u16()?)?;
                (reader, Some(permits.count()))
            }
            None => (LayoutReader::of(value, StateKind::Permits)?, None),
        };
        let token = reader.u64().filter(|token| *token <= TOKEN_MAX)?;
        let (holders, waiters) = (usize::from(reader.u16()?), usize::from(reader.u16()?));
        let counts = holders <= PERMITS_MAX.into() && waiters <= WAITERS_MAX;
        // Nothing is allocated for more than what is here.
        if !counts || reader.left() != holders * HOLDER_BYTES + waiters * WAITER_BYTES {
            return None;
        }
        let mut state = Self {
            permits,
            token,
            holders: Vec::with_capacity(holders),
            waiters: Vec::with_capacity(waiters),
        };
        for _ in 0..holders {
            state.holders.push(Holder {
                owner: Owner(reader.bytes()?),
                token: reader.u64().filter(|of| (1..=token).contains(of))?,
                until: base.checked_sub(reader.u32()?.into())?,
            });
        }
        for _ in 0..waiters {
            state.waiters.push(PermitWaiter {
                owner: Owner(reader.bytes()?),
                until: base.checked_sub(reader.u32()?.into())?,
            });
        }
        reader.end()?;
        // The deadline of the entry is that of the last one.
        (state.latest() == Some(base)).then_some(state)
    }

    /// The value whose deadlines count back from this moment, the latest of them.
    pub(super) fn encode(&self, latest: u64) -> Vec<u8> {
        // Holders and waiters are bounded, and none lasts longer than 2^31 ms. Were the difference
        // larger nevertheless, a deadline would be stored as a later one.
        let count = |len: usize| u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes();
        let before = |until: u64| {
            let before = u32::try_from(latest.saturating_sub(until)).unwrap_or(u32::MAX);
            before.to_le_bytes()
        };
        let mut value = match self.permits {
            Some(permits) => [&StateKind::Numbered.head()[..], &permits.to_le_bytes()].concat(),
            None => StateKind::Permits.head().to_vec(),
        };
        value.extend(self.token.to_le_bytes());
        value.extend(count(self.holders.len()));
        value.extend(count(self.waiters.len()));
        for Holder {
            owner,
            token,
            until,
        } in &self.holders
        {
            value.extend(owner.0);
            value.extend(token.to_le_bytes());
            value.extend(before(*until));
        }
        for PermitWaiter { owner, until } in &self.waiters {
            value.extend(owner.0);
            value.extend(before(*until));
        }
        value
    }

    /// When the last holder and the last waiter are over.
    fn latest(&self) -> Option<u64> {
        let holders = self.holders.iter().map(|holder| holder.until);
        let waiters = self.waiters.iter().map(|waiter| waiter.until);
        holders.chain(waiters).max()
    }

    /// Removes what is over.
    fn purge(&mut self, clock: u64) {
        if broken(&mutant::ENDS_LOCKS_EARLY) {
            self.holders.retain(|holder| holder.until > clock + 1_000);
        }
        self.holders.retain(|holder| holder.until > clock);
        self.waiters.retain(|waiter| waiter.until > clock);
    }

    /// How a key that has this entry gets this state. Nothing in the state is over.
    ///
    /// # Errors
    /// It is too large.
    fn into_change(self, entry: Option<&Entry>, cx: &RunContext) -> Result<KeyChange, Failure> {
        let Some(latest) = self.latest() else {
            return Ok(entry.map_or(KeyChange::None, |_| KeyChange::Delete));
        };
        let value = self.encode(latest);
        let same = |entry: &Entry| {
            layout::base(entry) == Some(latest) && entry.value() == value.as_slice()
        };
        if entry.is_some_and(same) {
            return Ok(KeyChange::None);
        }
        if value.len() > cx.value_bytes_max {
            return Err(Failure::TooLarge);
        }
        let deadline = layout::deadline(latest, entry, cx);
        Ok(KeyChange::put(Bytes::from(value), deadline))
    }

    fn acquire(&mut self, ask: PermitRequest, cx: &RunContext) -> Acquired {
        let PermitRequest { owner, wait, .. } = ask;
        let mut holders = self.holders.iter_mut();
        if let Some(holder) = holders.find(|holder| holder.owner == owner) {
            return Acquired::Granted {
                token: holder.token,
                remaining_ms: holder.renew(ask.until) - cx.clock,
            };
        }
        let place = self.place(owner);
        // Callers that wait at the primary have their turn after those in the entry.
        let ahead = place.unwrap_or(self.waiters.len() + cx.waiting);
        if ask.same {
            match self.permits {
                Some(permits) if permits != ask.permits && self.latest().is_some() => {
                    return Acquired::Otherwise { permits };
                }
                _ => self.permits = Some(ask.permits),
            }
        }
        let permits = ask.permits.into();
        if self.is_free(ahead, permits) {
            if let Some(place) = place {
                self.waiters.remove(place);
            }
            return self.grant(ask, cx);
        }
        let turn_ms = self.turn(ahead, permits).saturating_sub(cx.clock).max(1);
        if wait == 0 {
            return Acquired::Busy {
                place: ahead,
                ask_within_ms: turn_ms,
            };
        }
        let until = cx.clock.saturating_add(wait);
        match place {
            Some(place) => self.waiters[place].until = until,
            None if self.waiters.len() >= WAITERS_MAX => {
                return Acquired::QueueFull {
                    ask_within_ms: turn_ms,
                };
            }
            None => self.waiters.push(PermitWaiter { owner, until }),
        }
        Acquired::Queued {
            place: ahead,
            ask_within_ms: turn_ms.min(wait / 2).max(1),
        }
    }

    fn place(&self, owner: Owner) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.owner == owner)
    }

    /// Whether a permit is free for an owner with `ahead` waiters before it.
    fn is_free(&self, ahead: usize, permits: usize) -> bool {
        ahead < permits.saturating_sub(self.holders.len())
    }

    fn is_turn(&self, owner: Owner, permits: usize) -> bool {
        let ahead = self.place(owner).unwrap_or(self.waiters.len());
        self.holders.iter().any(|holder| holder.owner == owner) || self.is_free(ahead, permits)
    }

    fn grant(&mut self, ask: PermitRequest, cx: &RunContext) -> Acquired {
        self.token = match broken(&mutant::FORGETS_TOKENS) {
            true => self.token + 1,
            false => (self.token + 1).max(cx.next_write.min(TOKEN_MAX)),
        };
        self.holders.push(Holder {
            owner: ask.owner,
            token: self.token,
            until: ask.until,
        });
        Acquired::Granted {
            token: self.token,
            remaining_ms: ask.until - cx.clock,
        }
    }

    /// When it is the turn of an owner with `ahead` waiters before it, if the others do nothing
    /// more: when enough holders and earlier waiters are over for a permit to be free for it.
    fn turn(&self, ahead: usize, permits: usize) -> u64 {
        let holders = self.holders.iter().map(|holder| holder.until);
        let waiters = self.waiters.iter().take(ahead).map(|waiter| waiter.until);
        let mut ends: Vec<u64> = holders.chain(waiters).collect();
        // There are more of them than permits below, so that there is one at this place.
        let place = ends.len().saturating_sub(permits);
        if place >= ends.len() {
            return 0;
        }
        *ends.select_nth_unstable(place).1
    }
}
