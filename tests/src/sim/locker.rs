//! Clients that take locks and semaphores, hold them, renew them, give them back or forget them.
//!
//! What is judged, with no knowledge of how locks work:
//!
//! - A holder believes that it has its permit from the answer to its call until the time to live is
//!   over, counted from before the call, less what clocks may be wrong; or until it gives it back.
//!   No more holders believe that at the same time than there are permits, and no holder hears
//!   earlier that it has lost its permit.
//! - A grant has a higher token than all grants that were answered before its owner first asked. If
//!   there is one permit, than those that were answered before its owner last asked.
//! - No two owners have the same token.
//!
//! If every copy of a partition was lost, its locks were, too: then holders of different lineages
//! may overlap, but tokens still grow. They need not if everything was lost, or an operator's word
//! has replaced votes.

use super::client::{ClientId, Tolerance};
use super::mix::Mix;
use super::process::{DataInput, Leaving, ProcessId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::worker::is_of_faults;
use super::world::World;
use doyen_engine::op::{Action, Failure, Operation, Outcome, Work};
use doyen_engine::sync::{
    Acquired, Owner, Permits, acquire, acquire_same, cancel, read_acquired, read_done,
    read_renewed, release, renew,
};
use doyen_gossip::Time;
use doyen_placement::{Keyspace, KeyspaceId, MapId, PartitionId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What the names of locks begin with.
pub(crate) const LOCK: &str = "lock-";

/// Their numbers as clients begin here.
const FIRST: ClientId = 1 << 32;
/// How often an owner asks before it gives up.
const ASKS_MAX: u32 = 30;
/// The bits of a token below its lineage.
const SEQ_BITS: u32 = 44;

/// All lockers, and what they saw.
#[derive(Debug)]
pub(crate) struct Lockers {
    all: Vec<Locker>,
    keys: Vec<Key>,
    rng: ChaCha8Rng,
    serial: u64,
    /// How often all that was granted was lost or forgotten.
    era: u64,
    /// Grants, those of owners that had waited, and permits that were lost.
    pub(crate) counts: [u64; 3],
}

/// A lock or a semaphore.
#[derive(Debug)]
struct Key {
    name: String,
    permits: Permits,
    grants: Vec<Grant>,
    /// How often its partition began empty.
    losses: u64,
}

/// What an owner was granted.
#[derive(Debug)]
struct Grant {
    owner: Owner,
    token: u64,
    era: u64,
    /// Until then its owner believes that it has it.
    until: Nanos,
}

/// One of them.
#[derive(Debug, Default)]
struct Locker {
    /// The process that has its call.
    at: Option<(ProcessId, usize)>,
    attempt: Option<Attempt>,
    call: Option<Call>,
    next_at: Option<Nanos>,
}

/// An owner.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    owner: Owner,
    key: usize,
    ttl_ms: u64,
    wait_ms: u64,
    era: u64,
    asked: u32,
    queued: bool,
    /// The highest token that was answered for the key before the owner first asked.
    floor: u64,
    /// The place of its grant.
    held: Option<usize>,
}

/// A call that is under way.
#[derive(Debug, Clone, Copy)]
struct Call {
    serial: u64,
    asks: Asks,
    sent: Nanos,
    era: u64,
    /// It waits at the primary until it is granted.
    waits: bool,
    /// A token that a grant must exceed, unless its owner is known to have it.
    floor: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Acquire,
    Renew,
    Release,
    Cancel,
}

impl Lockers {
    pub(crate) fn new(mix: &Mix, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(21);
        let keys = (0..mix.locks).map(|n| Key {
            name: format!("{LOCK}{n}"),
            permits: Permits::new(1 + n as u16 % 2).unwrap_or(Permits::ONE),
            grants: Vec::new(),
            losses: 0,
        });
        let keys: Vec<Key> = keys.collect();
        let count = if keys.is_empty() { 0 } else { mix.lockers };
        Self {
            all: (0..count).map(|_| Locker::default()).collect(),
            keys,
            rng,
            serial: 0,
            era: 0,
            counts: [0; 3],
        }
    }

    /// All that was granted is lost or forgotten.
    pub(crate) fn forget(&mut self) {
        self.era += 1;
    }

    /// This partition began empty.
    pub(crate) fn note_loss(&mut self, at: PartitionId, keyspace: &Keyspace) {
        for key in &mut self.keys {
            let lost = keyspace.partition_of(MapId(0), key.name.as_bytes()) == Some(at);
            key.losses += u64::from(lost);
        }
    }
}

impl Key {
    /// An owner was granted a permit by a call, until then as it believes.
    fn granted(
        &mut self,
        (owner, token): (Owner, u64),
        call: &Call,
        until: Nanos,
        now: Nanos,
    ) -> Result<usize, String> {
        let (name, one) = (&self.name, self.permits == Permits::ONE);
        let known = |g: &&mut Grant| g.era == call.era && g.token == token;
        let known = self.grants.iter_mut().find(known);
        let again = known.is_some();
        hold!(
            token > call.floor || (again && (!one || token == call.floor)),
            "locks: {name} is granted with token {token}, after {} was answered",
            call.floor
        );
        if let Some(known) = known {
            hold!(
                known.owner == owner,
                "locks: {name} is granted to {:?} and {owner:?} with token {token}",
                known.owner
            );
            known.until = known.until.max(until);
        } else {
            self.grants.push(Grant {
                owner,
                token,
                era: call.era,
                until,
            });
        }
        let lost = self.losses > 0;
        let counts = |g: &&Grant| {
            g.era == call.era
                && g.until > now
                && (!lost || g.token >> SEQ_BITS == token >> SEQ_BITS)
        };
        let believe: Vec<&Grant> = self.grants.iter().filter(counts).collect();
        hold!(
            until <= now || believe.len() <= self.permits.count().into(),
            "locks: {name} has {} permits, and these believe that they have one: {believe:?}",
            self.permits.count()
        );
        let place = self
            .grants
            .iter()
            .rposition(|g| g.token == token && g.era == call.era);
        Ok(place.unwrap_or(0))
    }

    /// An owner hears that it does not have this grant any more.
    fn lost(&mut self, grant: Option<usize>, now: Nanos) -> Result<(), String> {
        let Some(grant) = grant.map(|at| &mut self.grants[at]) else {
            return Ok(());
        };
        hold!(
            grant.until <= now || self.losses > 0,
            "locks: {} is lost before its time: {grant:?}",
            self.name
        );
        grant.until = grant.until.min(now);
        Ok(())
    }

    /// The highest token that was answered in this era.
    fn floor(&self, era: u64) -> u64 {
        let of_era = self.grants.iter().filter(|g| g.era == era);
        of_era.map(|g| g.token).max().unwrap_or(0)
    }
}

impl World {
    pub(crate) fn begin_lockers(&mut self) {
        for id in 0..self.lockers.all.len() {
            let delay = self.lockers.rng.random_range(0..4 * SECOND);
            self.locker_in(delay, id);
        }
    }

    /// Whether a client is one of these.
    pub(crate) fn is_locker(id: ClientId) -> bool {
        id >= FIRST
    }

    fn locker_in(&mut self, delay: Nanos, id: usize) {
        let at = self.schedule.now() + delay;
        self.lockers.all[id].next_at = Some(at);
        self.schedule.at(at, Event::ClientNext(FIRST + id));
    }

    /// A locker does the next thing.
    pub(crate) fn locker_next(&mut self, id: ClientId) {
        let id = id - FIRST;
        let (now, locker) = (self.schedule.now(), &mut self.lockers.all[id]);
        if locker.next_at != Some(now) || locker.call.is_some() || self.stop_clients {
            return;
        }
        locker.next_at = None;
        let open = self.slots.iter().filter_map(|s| s.process);
        let open = open.filter(|p| self.processes[*p].leaving < Leaving::HandedOver);
        let open: Vec<ProcessId> = open.collect();
        if open.is_empty() {
            return self.locker_in(50 * MS, id);
        }
        let Lockers {
            all,
            keys,
            rng,
            serial,
            era,
            ..
        } = &mut self.lockers;
        let (locker, era) = (&mut all[id], *era);
        *serial += 1;
        let serial = *serial;
        let p = open[rng.random_range(0..open.len())];
        let t = rng.random_range(0..self.processes[p].threads.len());
        // What was granted in an earlier era is lost.
        let lives = |attempt: &Attempt| attempt.era == era;
        let mut attempt = locker.attempt.filter(lives).unwrap_or_else(|| Attempt {
            owner: Owner(u128::from(serial).to_be_bytes()),
            key: rng.random_range(0..keys.len()),
            ttl_ms: [300, 1_500, 5_000][rng.random_range(0..3)],
            wait_ms: [0, 400, 3_000][rng.random_range(0..3)],
            era,
            asked: 0,
            queued: false,
            floor: 0,
            held: None,
        });
        let key = &mut keys[attempt.key];
        let (name, permits, floor) = (key.name.clone(), key.permits, key.floor(era));
        if attempt.asked == 0 {
            attempt.floor = floor;
        }
        // If an earlier answer was lost, the owner may have its permit since then. Other permits
        // may have been granted after it, but not a lock.
        let floor = match permits {
            Permits::ONE => floor,
            _ => attempt.floor,
        };
        let held = attempt.held.map(|at| &mut key.grants[at]);
        let draw = rng.random_range(0..100);
        let (owner, ttl, wait) = (attempt.owner, attempt.ttl_ms, attempt.wait_ms);
        // Some wait at the primary, as programs do, and some in the entry.
        let waits = held.is_none() && wait > 0 && draw < 60;
        let kept = if waits { 0 } else { wait };
        let (asks, action) = match held {
            // It forgets what it has.
            Some(_) if draw < 15 => {
                locker.attempt = None;
                return self.locker_in(self.mix.think, id);
            }
            Some(grant) if draw < 50 => (Asks::Renew, renew(owner, grant.token, ttl)),
            Some(grant) if draw < 90 => {
                grant.until = grant.until.min(now);
                (Asks::Release, release(owner, grant.token))
            }
            None if attempt.asked >= ASKS_MAX => (Asks::Cancel, cancel(owner)),
            // Callers of a semaphore have to give the same number, and do.
            _ if permits != Permits::ONE => {
                (Asks::Acquire, acquire_same(owner, permits, ttl, kept))
            }
            _ => (Asks::Acquire, acquire(owner, permits, ttl, kept)),
        };
        let waits = waits && asks == Asks::Acquire;
        attempt.asked += 1;
        locker.attempt = Some(attempt);
        locker.at = Some((p, t));
        locker.call = Some(Call {
            serial,
            asks,
            sent: now,
            era,
            waits,
            floor,
        });
        self.trace.line(now, || {
            let of = permits.count();
            format!("locker {id} -> p{p} #{serial} {asks:?} {name} ({of}) for {owner:?}, {ttl} ms")
        });
        let limit = waits.then_some(wait);
        self.submit_lock((id, serial), (p, t), (&name, action), limit);
    }

    fn submit_lock(
        &mut self,
        (id, serial): (usize, u64),
        at: (ProcessId, usize),
        (name, action): (&str, Action),
        limit: Option<u64>,
    ) {
        let operation = Operation {
            keyspace: KeyspaceId(0),
            map: MapId(0),
            key: name.as_bytes().to_vec().into(),
            action,
        };
        let input = match limit {
            Some(limit) => DataInput::Wait(FIRST + id, serial, operation, limit),
            None => DataInput::Submit(FIRST + id, serial, Work::Key(operation)),
        };
        self.data(at, input);
        let patience = [SECOND, 4 * SECOND][self.lockers.rng.random_range(0..2)];
        self.schedule
            .after(patience, Event::ClientTimeout(FIRST + id, serial));
    }

    pub(crate) fn locker_timeout(&mut self, id: ClientId, serial: u64) {
        let locker = &mut self.lockers.all[id - FIRST];
        if locker.call.is_some_and(|call| call.serial == serial) {
            if let Some(at) = locker.at {
                self.data(at, DataInput::Forget(id, serial));
            }
            self.locker_answer(id, serial, &Outcome::Failed(Failure::Unknown));
        }
    }

    /// The process died, so the outcomes of its lockers' calls are unknown.
    pub(crate) fn lockers_cut_off(&mut self, process: ProcessId) {
        for id in 0..self.lockers.all.len() {
            let locker = &self.lockers.all[id];
            if let (Some((at, _)), Some(call)) = (locker.at, locker.call)
                && at == process
            {
                self.locker_answer(FIRST + id, call.serial, &Outcome::Failed(Failure::Unknown));
            }
        }
    }

    pub(crate) fn locker_answer(&mut self, id: ClientId, serial: u64, outcome: &Outcome) {
        let (id, now) = (id - FIRST, self.schedule.now());
        let locker = &mut self.lockers.all[id];
        let Some(mut call) = locker.call.filter(|call| call.serial == serial) else {
            return;
        };
        locker.call = None;
        let Some(mut attempt) = locker.attempt.take() else {
            return;
        };
        let outcome = match outcome {
            Outcome::Many(parts) if call.waits => {
                // It was executed after this moment of its process.
                if let (Outcome::Int(stamp), Some((p, _))) = (&parts[0], locker.at) {
                    let stamp = self.processes[p].when(Time(stamp.cast_unsigned()));
                    call.sent = call.sent.max(stamp.saturating_sub(1)).min(now);
                }
                attempt.queued = true;
                &parts[1]
            }
            outcome => outcome,
        };
        self.trace
            .line(now, || format!("locker {id} <- #{serial} {outcome:?}"));
        let after = match outcome {
            Outcome::Failed(failure)
                if is_of_faults(failure) || *failure == Failure::OldMembers =>
            {
                let over = matches!(call.asks, Asks::Release | Asks::Cancel);
                Ok(((!over).then_some(attempt), 200 * MS))
            }
            Outcome::Failed(failure) => Err(format!("a lock failed strangely: {failure:?}")),
            // It may have been granted when it left, so it says that it does not want that.
            Outcome::Nil if call.waits => {
                attempt.asked = ASKS_MAX;
                Ok((Some(attempt), 20 * MS))
            }
            // What it was about was lost meanwhile.
            _ if call.era != self.lockers.era => Ok((None, self.mix.think)),
            outcome => self.judge_lock(attempt, &call, outcome),
        };
        match after {
            Ok((attempt, most)) => {
                self.lockers.all[id].attempt = attempt;
                let delay = self.lockers.rng.random_range(0..most.max(1));
                self.locker_in(delay, id);
            }
            Err(what) => self.broken(format!("{what} (#{serial} of locker {id})")),
        }
    }

    /// Judges an answer: what remains of the attempt, and for how long its locker rests at most.
    fn judge_lock(
        &mut self,
        mut attempt: Attempt,
        call: &Call,
        outcome: &Outcome,
    ) -> Result<(Option<Attempt>, Nanos), String> {
        let (now, think) = (self.schedule.now(), self.mix.think);
        let tolerance = Tolerance {
            drift: self.mix.drift_ppm as f64 / 1e6,
            late: 0,
        };
        let until = |ms: u64| tolerance.earliest(call.sent, ms);
        // Most give it back soon and ask often, and some keep it for too long.
        let hasty = self.lockers.rng.random_bool(0.7);
        let holds = attempt.ttl_ms * MS * 6 / 5 / if hasty { 10 } else { 1 };
        let foreign = |why| format!("locks: {outcome:?}: {why}");
        let Lockers { keys, counts, .. } = &mut self.lockers;
        let key = &mut keys[attempt.key];
        match call.asks {
            Asks::Acquire => match read_acquired(outcome).map_err(foreign)? {
                Acquired::Granted {
                    token,
                    remaining_ms,
                } => {
                    let grant = (attempt.owner, token);
                    let at = key.granted(grant, call, until(remaining_ms), now)?;
                    if attempt.held != Some(at) {
                        counts[0] += 1;
                        counts[1] += u64::from(attempt.queued);
                    }
                    (attempt.held, attempt.queued) = (Some(at), false);
                    Ok((Some(attempt), holds))
                }
                Acquired::Queued { ask_within_ms, .. } => {
                    key.lost(attempt.held, now)?;
                    (attempt.held, attempt.queued) = (None, true);
                    let within = ask_within_ms * MS;
                    Ok((Some(attempt), if hasty { within / 10 } else { within }))
                }
                Acquired::Busy { .. } | Acquired::QueueFull { .. } => {
                    key.lost(attempt.held, now)?;
                    Ok((None, think))
                }
                Acquired::Otherwise { permits } => Err(format!(
                    "locks: all callers give the same number of permits, and {permits} is said to \
                     be another one"
                )),
            },
            Asks::Renew => {
                let Some(grant) = attempt.held.map(|at| &mut key.grants[at]) else {
                    return Err("locks: one was renewed that was not held".into());
                };
                match read_renewed(outcome).map_err(foreign)? {
                    Some(ms) => {
                        grant.until = grant.until.max(until(ms));
                        Ok((Some(attempt), holds))
                    }
                    None => {
                        counts[2] += 1;
                        key.lost(attempt.held, now)?;
                        Ok((None, think))
                    }
                }
            }
            Asks::Release | Asks::Cancel => {
                read_done(outcome).map_err(foreign)?;
                Ok((None, think))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(permits: u16) -> Key {
        Key {
            name: format!("{LOCK}0"),
            permits: Permits::new(permits).unwrap(),
            grants: Vec::new(),
            losses: 0,
        }
    }

    fn grant(key: &mut Key, owner: u8, token: u64, until: Nanos, now: Nanos) -> bool {
        let call = Call {
            serial: 0,
            asks: Asks::Acquire,
            sent: now,
            era: 0,
            waits: false,
            floor: key.floor(0),
        };
        let owner = Owner([owner; 16]);
        key.granted((owner, token), &call, until, now).is_ok()
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let mut one = key(1);
        assert!(grant(&mut one, 1, 5, 100, 10) && grant(&mut one, 1, 5, 200, 20));
        assert!(!grant(&mut one, 2, 6, 300, 199));
        let mut one = key(1);
        assert!(grant(&mut one, 1, 5, 100, 10) && grant(&mut one, 2, 6, 200, 100));
        let mut two = key(2);
        assert!(grant(&mut two, 1, 5, 100, 10) && grant(&mut two, 2, 6, 100, 20));
        assert!(grant(&mut two, 1, 5, 150, 30), "it asks again");
        assert!(!grant(&mut two, 3, 7, 120, 40));
    }

    #[test]
    fn a_token_that_does_not_grow_is_found() {
        let mut one = key(1);
        assert!(grant(&mut one, 1, 5, 100, 10));
        assert!(!grant(&mut one, 2, 4, 300, 200));
        assert!(!grant(&mut one, 2, 5, 300, 200));
        assert!(grant(&mut one, 2, 6, 300, 200));
        assert!(!grant(&mut one, 1, 5, 500, 400), "another one had it since");
    }

    #[test]
    fn holders_of_a_lineage_that_is_lost_do_not_count() {
        let mut one = key(1);
        assert!(grant(&mut one, 1, (1 << SEQ_BITS) + 5, 100, 10));
        one.losses = 1;
        assert!(grant(&mut one, 2, (2 << SEQ_BITS) + 1, 100, 20));
        assert!(!grant(&mut one, 3, (2 << SEQ_BITS) + 2, 100, 30));
    }
}
