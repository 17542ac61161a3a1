//! Clients that wait with a pop until a list or a sorted set is not empty, as connections of the
//! front end do (`resp/session/pending/pops.rs`): they try all keys, wait in line at each, and take
//! where they are granted something. Each take is an ordinary operation, and judged as such.
//!
//! Nodes die, partitions move and are split while they wait. At the end, when no other client does
//! anything, none may still wait at a key that holds something: that would be a change that was
//! slept through, or a ticket that was lost. Then all are given enough elements, and must take one
//! each.

use super::client::ClientId;
use super::models;
use super::process::DataInput;
use super::schedule::{Event, MS, Nanos, SECOND};
use super::world::World;
use crate::linear::{Answer, Call};
use doyen_engine::command::BlockingPop;
use doyen_engine::op::{Operation, Outcome};
use doyen_placement::{KeyspaceId, MapId};
use rand::Rng;

/// A pop that waits for longer than any run lasts.
const FOR_EVER_MS: u64 = 3_600_000;
/// How long a grant may last whose client is dead, and more.
const GRANTS_LAST: Nanos = 4 * SECOND;
/// How soon a client must have what is there for it, once all is well.
const TOLD_WITHIN: Nanos = 10 * SECOND;
/// How often a client is given an element, if that is refused.
const GIVEN_MAX: u32 = 100;

/// A pop.
#[derive(Debug)]
pub(crate) struct BlockedPop {
    /// The key with whose history it is judged.
    key: String,
    pop: BlockingPop,
    /// The command that takes from each of its keys.
    takes: Vec<Call>,
    tickets: Vec<BlockedTicket>,
    step: BlockedStep,
    limit_ms: u64,
    /// How often it was given an element at the end, and whether it has been.
    given: u32,
    fed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockedTicket {
    No,
    Waits(u64),
    Granted(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockedStep {
    /// Takes from the key at this place before it waits, by the operation with this number.
    Try(usize, u64),
    Wait,
    /// Takes from the key at this place, which it was granted.
    Take(usize, u64),
}

impl BlockedPop {
    fn place_of(&self, serial: u64) -> Option<usize> {
        let waits = |ticket: &BlockedTicket| *ticket == BlockedTicket::Waits(serial);
        self.tickets.iter().position(waits)
    }

    /// What it waits for with this number.
    pub(crate) fn waits_with(&self, serial: u64) -> bool {
        self.place_of(serial).is_some()
    }

    /// The numbers of its tickets.
    fn serials(&self) -> impl Iterator<Item = u64> {
        self.tickets.iter().filter_map(|ticket| match ticket {
            BlockedTicket::No => None,
            BlockedTicket::Waits(serial) | BlockedTicket::Granted(serial) => Some(*serial),
        })
    }
}

/// How far the end is for those that still wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LastWaits {
    #[default]
    No,
    /// Until then, grants of the dead lapse.
    Rest(Nanos),
    /// It was looked whether their keys are empty.
    Looked,
    /// All are given elements.
    Given,
}

/// What became of an operation of a client that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaiterAnswer {
    Nothing,
    Something,
    Length(i64),
    /// It did not happen, or that is not known.
    Failed,
}

impl WaiterAnswer {
    pub(crate) const fn of(answer: Option<&Answer>) -> Self {
        match answer {
            Some(Answer::Nil) => Self::Nothing,
            Some(Answer::Int(length)) => Self::Length(*length),
            Some(_) => Self::Something,
            None => Self::Failed,
        }
    }
}

impl World {
    /// A client begins a pop that waits.
    pub(crate) fn begin_waiting(&mut self, id: ClientId, key: String) {
        let words = self.draw_waiting(&key);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((pop, takes)) = models::waiting(&words) else {
            return self.client_in(MS, id);
        };
        let limit_ms = [200, 1_000, 3_000, FOR_EVER_MS][self.rng.random_range(0..4)];
        let tickets = vec![BlockedTicket::No; takes.len()];
        self.trace.line(self.schedule.now(), || {
            format!("client {id} waits: {} for {limit_ms} ms", words.join(" "))
        });
        self.clients[id].blocked = Some(BlockedPop {
            key,
            pop,
            takes,
            tickets,
            step: BlockedStep::Wait,
            limit_ms,
            given: 0,
            fed: false,
        });
        self.take_waited(id, 0, false);
    }

    /// Takes from the key at this place.
    fn take_waited(&mut self, id: ClientId, at: usize, granted: bool) {
        let Some(blocked) = &mut self.clients[id].blocked else {
            return;
        };
        // The operation has the next number.
        let serial = self.histories.serial + 1;
        blocked.step = if granted {
            BlockedStep::Take(at, serial)
        } else {
            BlockedStep::Try(at, serial)
        };
        let (key, call) = (blocked.key.clone(), blocked.takes[at].clone());
        self.call(id, key, call);
        if self.clients[id].current.is_empty() {
            // Its process is gone.
            self.stop_waiting(id);
        }
    }

    /// An operation of a client that waits was answered.
    pub(crate) fn waiter_answer(&mut self, id: ClientId, serial: u64, answer: WaiterAnswer) {
        let Some(blocked) = &mut self.clients[id].blocked else {
            return;
        };
        let (at, granted) = match blocked.step {
            BlockedStep::Try(at, of) if of == serial => (at, false),
            BlockedStep::Take(at, of) if of == serial => (at, true),
            // It looked at the end whether its key is empty, or was given an element.
            _ => return self.last_wait_answer(id, answer),
        };
        if answer != WaiterAnswer::Nothing {
            return self.stop_waiting(id);
        }
        if !granted && at + 1 < blocked.takes.len() {
            return self.take_waited(id, at + 1, false);
        }
        blocked.step = BlockedStep::Wait;
        if granted {
            self.withdraw(id, at);
        }
        self.wait(id);
    }

    /// Waits in line at each key where it does not wait yet, or takes where it was granted
    /// something meanwhile.
    fn wait(&mut self, id: ClientId) {
        let Some(at) = self.clients[id].at else {
            return self.stop_waiting(id);
        };
        let thread = self.clients[id].thread;
        let Some(blocked) = &mut self.clients[id].blocked else {
            return;
        };
        let granted = |ticket: &BlockedTicket| matches!(ticket, BlockedTicket::Granted(_));
        if let Some(place) = blocked.tickets.iter().position(granted) {
            return self.take_waited(id, place, true);
        }
        let mut asked = Vec::new();
        for place in 0..blocked.tickets.len() {
            if blocked.tickets[place] != BlockedTicket::No {
                continue;
            }
            self.histories.serial += 1;
            let serial = self.histories.serial;
            blocked.tickets[place] = BlockedTicket::Waits(serial);
            let operation = Operation {
                keyspace: KeyspaceId(0),
                map: MapId(0),
                key: blocked.pop.keys[place].clone(),
                action: blocked.pop.wait_at(place),
            };
            asked.push((serial, operation));
        }
        let limit = blocked.limit_ms;
        for (serial, operation) in asked {
            let input = DataInput::Wait(id, serial, operation, limit);
            self.data((at, thread), input);
            self.histories.waits[0] += 1;
            // Some leave early, as programs end.
            if self.stop_clients {
                let event = Event::ClientTimeout(id, serial);
                self.schedule.after(TOLD_WITHIN, event);
            } else if self.rng.random_bool(0.2) {
                let patience = self.rng.random_range(0..4 * SECOND);
                let event = Event::ClientTimeout(id, serial);
                self.schedule.after(patience, event);
            }
        }
    }

    /// A client that waits hears something.
    pub(crate) fn waiter_told(&mut self, id: ClientId, serial: u64, outcome: &Outcome) {
        self.trace.line(self.schedule.now(), || {
            format!("client {id} waited with #{serial}: {outcome:?}")
        });
        let Some(blocked) = &mut self.clients[id].blocked else {
            return;
        };
        let Some(place) = blocked.place_of(serial) else {
            return;
        };
        let waits = blocked.step == BlockedStep::Wait;
        if let Outcome::Many(_) = outcome {
            blocked.tickets[place] = BlockedTicket::Granted(serial);
            self.histories.waits[1] += 1;
            if waits {
                self.wait(id);
            }
            return;
        }
        blocked.tickets[place] = BlockedTicket::No;
        if waits {
            self.stop_waiting(id);
        }
    }

    /// A client that waits gives up, or at the end should wait no more.
    pub(crate) fn waiter_leaves(&mut self, id: ClientId, serial: u64) {
        let Some(blocked) = &self.clients[id].blocked else {
            return;
        };
        if self.stop_clients && blocked.fed {
            let what = format!(
                "waiting: client {id} waits with #{serial} at {}, and there is an element for it",
                blocked.key
            );
            self.broken(what);
        } else if !self.stop_clients {
            self.stop_waiting(id);
        }
    }

    fn withdraw(&mut self, id: ClientId, place: usize) {
        let (at, thread) = (self.clients[id].at, self.clients[id].thread);
        let Some(blocked) = &mut self.clients[id].blocked else {
            return;
        };
        let ticket = std::mem::replace(&mut blocked.tickets[place], BlockedTicket::No);
        if let (Some(at), BlockedTicket::Waits(serial) | BlockedTicket::Granted(serial)) =
            (at, ticket)
        {
            self.data((at, thread), DataInput::Forget(id, serial));
        }
    }

    /// A pop ends: all of its tickets are withdrawn.
    pub(crate) fn stop_waiting(&mut self, id: ClientId) {
        let (at, thread) = (self.clients[id].at, self.clients[id].thread);
        let Some(blocked) = self.clients[id].blocked.take() else {
            return;
        };
        for serial in blocked.serials() {
            if let Some(at) = at {
                self.data((at, thread), DataInput::Forget(id, serial));
            }
        }
        self.client_done(id);
    }

    /// Nothing else happens any more, and some clients wait. See the head of this file.
    pub(crate) fn end_waiting(&mut self) {
        let now = self.schedule.now();
        let waiting = |w: &Self| {
            let ids = 0..w.clients.len();
            let ids = ids.filter(|id| w.clients[*id].blocked.is_some());
            ids.collect::<Vec<ClientId>>()
        };
        match self.last_waits {
            LastWaits::No => {
                self.last_waits = LastWaits::Rest(now + GRANTS_LAST);
                self.end_waiting();
            }
            LastWaits::Rest(until) if now < until => {
                if let Some(id) = waiting(self).first() {
                    self.client_in(until - now, *id);
                }
            }
            LastWaits::Rest(_) => {
                self.last_waits = LastWaits::Looked;
                for id in waiting(self) {
                    self.ask_at_each_key(id, models::counts);
                }
            }
            LastWaits::Looked | LastWaits::Given => {
                self.last_waits = LastWaits::Given;
                for id in waiting(self) {
                    self.give(id);
                }
            }
        }
    }

    /// Gives a client that waits an element at each of its keys, if that has not been done: another
    /// client that waits at one of them may be served before it.
    fn give(&mut self, id: ClientId) {
        let Some(blocked) = &mut self.clients[id].blocked else {
            return;
        };
        if blocked.fed {
            return;
        }
        blocked.given += 1;
        if blocked.given > GIVEN_MAX {
            let what = format!(
                "I16: after healing, nothing can be put into {}",
                blocked.key
            );
            return self.broken(what);
        }
        blocked.fed = true;
        let serials: Vec<u64> = blocked.serials().collect();
        self.ask_at_each_key(id, models::gives);
        for serial in serials {
            let event = Event::ClientTimeout(id, serial);
            self.schedule.after(TOLD_WITHIN, event);
        }
    }

    /// Asks this at each key at which a client waits.
    fn ask_at_each_key(&mut self, id: ClientId, asks: fn(&str, u64) -> Call) {
        let Some(blocked) = &self.clients[id].blocked else {
            return;
        };
        let (history, keys) = (blocked.key.clone(), blocked.pop.keys.clone());
        for key in keys {
            self.histories.serial += 1;
            let call = asks(&String::from_utf8_lossy(&key), self.histories.serial);
            self.call(id, history.clone(), call);
        }
    }

    /// What a client that waits asked at the end was answered.
    fn last_wait_answer(&mut self, id: ClientId, answer: WaiterAnswer) {
        let Some(blocked) = &mut self.clients[id].blocked else {
            return;
        };
        let waits = blocked.step == BlockedStep::Wait;
        match (self.last_waits, answer) {
            (LastWaits::Looked, WaiterAnswer::Length(held)) if held > 0 && waits => {
                let key = blocked.key.clone();
                self.broken(format!(
                    "waiting: client {id} waits at {key}, which holds {held} and has not changed \
                     for a lease"
                ));
            }
            (LastWaits::Given, WaiterAnswer::Failed) => {
                blocked.fed = false;
                self.client_in(200 * MS, id);
            }
            _ => {}
        }
    }
}
