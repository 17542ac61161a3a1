//! The keys of a partition as one operation reads and changes them.
//!
//! A change is applied to the store at once, so that the operation reads what it wrote. All changes
//! become one record of the log, with one effect for each key. Until then they can be rolled back:
//! the operation is not executed at all if there is no room for what it wrote.

use super::action::{self, Change, Context};
use super::entry::Entry;
use super::log::Log;
use super::op::{Action, Failure, Outcome, ScriptCall, Step, Transaction};
use super::store::{Effect, Key, Store, Undo};
use crate::mutant::{self, broken};
use doyen_placement::MapId;
use std::collections::BTreeMap;

/// The keys of a partition, with the changes of one operation.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    store: &'a mut Store,
    log: &'a Log,
    cx: Context,
    /// Whether a copy may not have all keys yet, so that deadlines are logged with their entries.
    teaches: bool,
    changes: Vec<(Effect, Undo)>,
    /// Where the change of each key is.
    places: BTreeMap<(MapId, Key), usize>,
    /// Bytes of the changes.
    bytes: usize,
    /// What was changed before the script that runs.
    mark: Mark,
    /// What the operation read is certain once this sequence is committed.
    read_at: u64,
    /// How many keys it found overdue. Their deletion is among the changes.
    expired: u64,
    /// How many keys it looked for and found, and did not find.
    lookups: (u64, u64),
    /// Whether keys that are used are kept from eviction.
    marks: bool,
}

/// The changes up to a moment.
#[derive(Debug, Default)]
#[cfg_attr(
    not(feature = "scripts"),
    allow(dead_code, reason = "only scripts take back")
)]
struct Mark {
    /// How many keys were changed.
    changes: usize,
    bytes: usize,
    expired: u64,
    /// The effects that were replaced since, with their places.
    former: Vec<(usize, Effect)>,
}

/// What an operation did.
#[derive(Debug)]
pub(super) struct Ran {
    /// The answer of its caller.
    pub(super) outcome: Outcome,
    /// Bytes of the answer.
    pub(super) answered: usize,
}

/// How much an operation wrote.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    /// The number of keys.
    pub(super) keys: usize,
    /// Bytes of them and of their values.
    pub(super) bytes: usize,
    /// Whether any of them was absent or smaller before.
    pub(super) grows: bool,
}

impl<'a> Rows<'a> {
    pub(super) fn of(
        (store, log): (&'a mut Store, &'a Log),
        cx: Context,
        (teaches, marks): (bool, bool),
    ) -> Self {
        Self {
            store,
            log,
            cx,
            teaches,
            changes: Vec::new(),
            places: BTreeMap::new(),
            bytes: 0,
            mark: Mark::default(),
            read_at: 0,
            expired: 0,
            lookups: (0, 0),
            marks,
        }
    }

    /// Runs a transaction. `script` runs a script of it.
    ///
    /// # Errors
    /// What it writes or answers is too large. Roll it back.
    pub(super) fn run(
        &mut self,
        transaction: &Transaction,
        mut script: impl FnMut(&ScriptCall, &mut Self) -> Result<Ran, Failure>,
    ) -> Result<Ran, Failure> {
        let most = self.cx.value_bytes_max;
        // Where it was asked, more may be allowed. One step alone must not fail for its size.
        if transaction.bytes() > most {
            return Err(Failure::TooLarge);
        }
        for watched in &transaction.watched {
            let found = self.find(watched.map, &watched.key);
            if action::version(found.as_ref(), &self.cx) != watched.version
                && !broken(&mutant::IGNORES_WATCHED)
            {
                return Ok(Ran {
                    outcome: Outcome::Nil,
                    answered: 0,
                });
            }
        }
        let (mut outcomes, mut answered) = (Vec::with_capacity(transaction.steps.len()), 0);
        for step in &transaction.steps {
            let outcome = match step {
                Step::Key { map, key, action } => self.step(*map, key, action),
                Step::Script(call) => script(call, self)?.outcome,
            };
            answered += outcome.bytes();
            outcomes.push(outcome);
            if answered > self.cx.value_bytes_max || self.is_too_large() {
                return Err(Failure::TooLarge);
            }
        }
        Ok(Ran {
            outcome: Outcome::Many(outcomes),
            answered,
        })
    }

    /// Executes one operation on a key.
    pub(super) fn step(&mut self, map: MapId, key: &[u8], action: &Action) -> Outcome {
        let found = self.find(map, key);
        let footprint = action.footprint();
        if footprint.looks_up {
            let (hits, misses) = &mut self.lookups;
            *(if found.is_some() { hits } else { misses }) += 1;
        }
        if let Some(entry) = found.as_ref().filter(|_| self.marks && footprint.uses) {
            entry.mark();
        }
        let (outcome, change) = action::apply(action, found.as_ref(), &self.cx);
        self.change((map, key), found.as_ref(), change);
        outcome
    }

    /// Whether its changes are too large for one record.
    pub(super) const fn is_too_large(&self) -> bool {
        self.bytes > self.cx.value_bytes_max
    }

    /// Takes all changes back. What was read stays read.
    pub(super) fn take_back(&mut self) {
        for (effect, undo) in std::mem::take(&mut self.changes).into_iter().rev() {
            self.store.undo(&effect, undo);
        }
        self.places.clear();
        (self.bytes, self.expired) = (0, 0);
        self.mark = Mark::default();
    }

    /// Changes from now on can be taken back without those before.
    #[cfg_attr(
        not(feature = "scripts"),
        allow(dead_code, reason = "only scripts take back")
    )]
    pub(super) fn set_mark(&mut self) {
        self.mark = Mark {
            changes: self.changes.len(),
            bytes: self.bytes,
            expired: self.expired,
            former: Vec::new(),
        };
    }

    /// Takes the changes back that were made since the mark was set.
    #[cfg_attr(
        not(feature = "scripts"),
        allow(dead_code, reason = "only scripts take back")
    )]
    pub(super) fn take_back_to_mark(&mut self) {
        let mark = std::mem::take(&mut self.mark);
        for (effect, undo) in self.changes.drain(mark.changes..).rev() {
            self.store.undo(&effect, undo);
        }
        self.places.retain(|_, at| *at < mark.changes);
        let seq = self.log.last() + 1;
        for (at, effect) in mark.former.into_iter().rev() {
            let (now, undo) = &mut self.changes[at];
            self.store.undo(now, std::mem::take(undo));
            *undo = self.store.apply(seq, &effect);
            *now = effect;
        }
        (self.bytes, self.expired) = (mark.bytes, mark.expired);
    }

    /// The entry of a key. An overdue one is deleted.
    fn find(&mut self, map: MapId, key: &[u8]) -> Option<Entry> {
        let order = self.store.order(key);
        if !self.store.is_whole() {
            self.store.draw(map, order, key);
        }
        let found = self.store.entry(map, order, key);
        self.read_at = self.read_at.max(super::execute::read_at(found, self.log));
        let found = found?.clone();
        if found.overdue(self.cx.clock) {
            self.expired += 1;
            self.change((map, key), Some(&found), Change::Delete);
            return None;
        }
        Some(found)
    }

    /// Changes a key, which has this entry.
    fn change(&mut self, (map, key): (MapId, &[u8]), found: Option<&Entry>, change: Change) {
        let key: Key = key.into();
        let mut effect = match change {
            Change::None => return,
            Change::Put {
                kind,
                value,
                deadline,
            } => Effect::Put {
                map,
                entry: Entry::of_kind(kind, &key, &value),
                deadline,
            },
            Change::Delete => Effect::Delete {
                map,
                key: key.clone(),
            },
            Change::Deadline(deadline) => match found.filter(|_| self.teaches) {
                Some(entry) => Effect::Put {
                    map,
                    entry: entry.copy(),
                    deadline,
                },
                None => Effect::Deadline {
                    map,
                    key: key.clone(),
                    deadline,
                },
            },
        };
        let seq = self.log.last() + 1;
        match self.places.get(&(map, key.clone())) {
            Some(at) => {
                // One effect a key: copies tell by the sequence which effect of a key is newer.
                let (former, undo) = &mut self.changes[*at];
                if *at < self.mark.changes {
                    self.mark.former.push((*at, former.clone()));
                }
                if let (Effect::Put { entry, .. }, Effect::Deadline { deadline, .. }) =
                    (&*former, &effect)
                {
                    effect = Effect::Put {
                        map,
                        entry: entry.copy(),
                        deadline: *deadline,
                    };
                }
                self.bytes = self.bytes + effect.bytes() - former.bytes();
                self.store.undo(former, std::mem::take(undo));
                *undo = self.store.apply(seq, &effect);
                *former = effect;
            }
            None => {
                self.bytes += effect.bytes();
                let undo = self.store.apply(seq, &effect);
                self.places.insert((map, key), self.changes.len());
                self.changes.push((effect, undo));
            }
        }
    }

    /// Bytes of the keys and values that it wrote.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How much it wrote. Deletions do not count.
    pub(super) fn written(&self) -> Written {
        let mut written = Written::default();
        for (effect, undo) in &self.changes {
            if let Effect::Put { entry, .. } = effect {
                written.keys += 1;
                written.bytes += entry.len();
                written.grows |= !matches!(undo, Undo::Was(old) if old.len() >= entry.len());
            }
        }
        written
    }

    /// What it read is certain once this sequence is committed.
    pub(super) const fn read_at(&self) -> u64 {
        self.read_at
    }

    /// How many keys it found overdue.
    pub(super) const fn expired(&self) -> u64 {
        self.expired
    }

    /// How many keys it looked for and found, and did not find.
    pub(super) const fn lookups(&self) -> (u64, u64) {
        self.lookups
    }

    /// The changes as one effect, and what they replaced. `None` if nothing changed.
    pub(super) fn into_record(mut self) -> Option<(Effect, Undo)> {
        if self.changes.len() < 2 {
            return self.changes.pop();
        }
        let (effects, undos): (Vec<_>, Vec<_>) = self.changes.into_iter().unzip();
        Some((Effect::Many(effects.into()), Undo::Many(undos.into())))
    }
}
