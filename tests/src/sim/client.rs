//! Clients. Each does one operation at a time on a few keys, or several at once on one key, through
//! the process to which it is connected.

use super::blocked::{BlockedPop, WaiterAnswer};
use super::finder::Finding;
use super::mix::{Mix, Placed};
use super::models;
use super::process::{ControlInput, DataInput, Leaving, ProcessId, ThreadId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::world::World;
use crate::linear::{Answer, Call, HistoryEntry};
use crate::{action_of, action_of_bytes};
use bytes::Bytes;
use doyen_engine::command::Part;
use doyen_engine::op::{
    Action, Condition, ExpireCondition, Expiry, Failure, Operation, OperationBatch, OperationStep,
    Outcome, PartitionAction, PartitionOperation, ScriptCall, Watched, Work,
};
use doyen_gossip::Input;
use doyen_gossip::agreement::AdminRequest;
use doyen_placement::{KeyspaceId, MapId, MapLimits, MapWish, Table, WantedMap};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// A client, by its place in the world's list.
pub(crate) type ClientId = usize;

/// A client.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// The process to which it is connected.
    pub(crate) at: Option<ProcessId>,
    /// The data thread that has its operation.
    pub(crate) thread: usize,
    /// The time at which it goes on.
    next_at: Option<Nanos>,
    /// The operations that it waits for: serial number, key, index in the key's history.
    pub(crate) current: Vec<(u64, String, usize)>,
    /// Hashes that come in pages: how many came, and what is in them.
    pages: BTreeMap<u64, (u32, Vec<u8>)>,
    /// The query for keys that it makes. Then it does nothing else.
    pub(crate) finding: Option<Finding>,
    /// The pop with which it waits. Then it does nothing else.
    pub(crate) blocked: Option<BlockedPop>,
    /// Whether it sends several operations at once, which must happen in their order.
    pub(crate) pipelines: bool,
    /// What it does at the end of the run, last one first: it writes each key, and then reads it
    /// through every process.
    pub(crate) last_calls: Vec<(ProcessId, String, Last)>,
}

impl Client {
    /// Whether it waits for an answer.
    pub(crate) fn waits(&self) -> bool {
        self.calls() || self.blocked.is_some()
    }

    /// Whether it waits for the answer to what it asked, and not only in line.
    pub(crate) fn calls(&self) -> bool {
        !self.current.is_empty() || self.finding.is_some()
    }

    /// Whether it waits in line with this number.
    pub(crate) fn waits_in_line(&self, serial: u64) -> bool {
        let blocked = self.blocked.as_ref();
        blocked.is_some_and(|blocked| blocked.waits_with(serial))
    }
}

/// A call after all is well.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Last {
    Read,
    Write,
}

/// What clients saw.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    pub(crate) keys: BTreeMap<String, Vec<HistoryEntry>>,
    /// Entries that did not happen.
    void: BTreeMap<String, Vec<usize>>,
    /// Entries of the recovered half of a split. Those that were answered while it was cut off must
    /// have had no effect on the other one.
    apart: BTreeMap<String, BTreeSet<usize>>,
    /// When the halves could reach each other again. A member of the recovered one may pass on what
    /// it was asked to a member of both, which was left behind, and that goes on with the others.
    pub(crate) met: Option<u64>,
    moment: u64,
    pub(crate) serial: u64,
    pub(crate) operations: u64,
    pub(crate) answered: u64,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
    /// Operations that were refused because memory was full.
    pub(crate) full: u64,
    /// Queries that went through all partitions, and the keys that all queries showed.
    pub(crate) finds: u64,
    pub(crate) found: u64,
    /// Keys at which clients waited, and grants.
    pub(crate) waits: [u64; 2],
    /// Transactions that were executed, and those that were not because their key had changed.
    pub(crate) transactions: (u64, u64),
    /// What was last read of each pair: its value, and its version.
    seen: BTreeMap<String, (Option<Vec<u8>>, Option<i64>)>,
    /// The versions that swaps of pairs watch, by their serial numbers.
    watched: BTreeMap<u64, i64>,
}

/// How many versions there are of a lineage.
const VERSIONS: u64 = 1 << 44;

/// How far clocks may be wrong. Deadlines are judged with this.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    /// The error of each clock's rate.
    pub(crate) drift: f64,
    /// How far a partition's clock may be behind when another node goes on with it: the last
    /// message of its primary was on its way for this long, or waited for a suspended thread.
    pub(crate) late: Nanos,
}

/// How long a partition's clock may have run on a copy without a message from its primary.
const SILENCE_MAX: f64 = 60.0 * SECOND as f64;

impl Tolerance {
    /// The earliest and the latest time at which a deadline passes.
    fn bounds(&self, called: Nanos, answered: Nanos, ms: u64) -> (Nanos, Nanos) {
        let silent = 2.1 * self.drift * SILENCE_MAX;
        let ttl = (ms * MS) as f64;
        let least = (ttl * (1.0 - self.drift) - silent - 2.0 * MS as f64).max(0.0);
        let most = ttl * (1.0 + 1.1 * self.drift) + silent + self.late as f64;
        (called + least as u64, answered + most as u64)
    }
}

impl Tolerance {
    /// The earliest time at which a time to live is over that begins after a call.
    pub(crate) fn earliest(&self, called: Nanos, ms: u64) -> Nanos {
        self.bounds(called, called, ms).0
    }
}

impl Histories {
    /// What was called, by the key and the place in its history.
    fn called(&self, key: &str, index: usize) -> Option<&Call> {
        Some(&self.keys.get(key)?.get(index)?.call)
    }

    /// A moment: twice the time, so that another moment fits between any two.
    pub(crate) fn moment(&mut self, now: Nanos) -> u64 {
        self.moment = (self.moment + 2).max(2 * now);
        self.moment
    }

    /// Whether a write to this key may have happened.
    pub(crate) fn wrote(&self, key: &str) -> bool {
        let entries = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        let void = self.void.get(key);
        entries
            .iter()
            .enumerate()
            .any(|(i, e)| e.call != Call::Get && !void.is_some_and(|v| v.contains(&i)))
    }

    /// The history of a key, without entries that did not happen, and with the deadlines that
    /// passed.
    pub(crate) fn of(&self, key: &str, tolerance: Tolerance) -> Vec<HistoryEntry> {
        let void = self.void.get(key);
        let apart = self.apart.get(key);
        let entries = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        let mut history: Vec<HistoryEntry> = entries
            .iter()
            .enumerate()
            .filter(|(i, _)| !void.is_some_and(|v| v.contains(i)))
            .filter_map(|(i, e)| match apart {
                Some(apart) if apart.contains(&i) => self.crossed_over(e),
                _ => Some(e.clone()),
            })
            .collect();
        let passes = history.iter().filter_map(|e| {
            let (Call::SetFor { ms, tag, .. } | Call::Expire { ms, tag }) = e.call else {
                return None;
            };
            let answered = e
                .answered
                .as_ref()
                .filter(|(_, answer)| *answer != Answer::Int(0));
            if answered.is_none() && e.answered.is_some() {
                return None;
            }
            let (least, most) = tolerance.bounds(e.called / 2, answered.map_or(0, |a| a.0 / 2), ms);
            let answered = answered.map(|_| (2 * most + 1, Answer::Ok));
            Some(HistoryEntry {
                client: e.client,
                call: Call::Expired { tag },
                called: (2 * least).saturating_sub(1).max(e.called + 1),
                answered,
                waited: e.waited,
            })
        });
        let passes: Vec<HistoryEntry> = passes.collect();
        history.extend(passes);
        history.sort_by_key(|e| e.called);
        history
    }

    /// What the other half may know of an entry of the recovered one. Its answer counts nothing.
    fn crossed_over(&self, entry: &HistoryEntry) -> Option<HistoryEntry> {
        let answered = entry.answered.as_ref().map(|(at, _)| *at);
        let met = |at: u64| self.met.is_some_and(|met| at > met);
        answered.is_none_or(met).then(|| HistoryEntry {
            answered: None,
            waited: answered.unwrap_or(entry.waited),
            ..entry.clone()
        })
    }
}

/// The key of the client that uses only the process in the stranger's slot.
pub(crate) const STRANGER: &str = "stranger";

/// The prefix of keys with large values. Histories hold only the heads of these.
const BULK: &str = "bulk";

/// Whether what has this name is a counter.
fn counts(name: &str) -> bool {
    name.starts_with("counter") || (name.starts_with(HASH) && !fleets(name))
}

/// Whether what has this name gets deadlines.
pub(crate) fn fleets(name: &str) -> bool {
    name.starts_with("fleeting") || name.ends_with(FLEETING)
}

/// The suffix of fields that expire.
const FLEETING: &str = ".fleeting";

/// The prefix of keys with a twin in the same partition. Both are read and written in one
/// transaction, and always have the same value.
const PAIR: &str = "{pair";

/// The prefix of fields of hashes: two counters and a field that expires are in one key. Each field
/// has a history of its own.
const HASH: &str = "hash";

/// How often a client waits with a pop where there is something to pop.
const WAITS: f64 = 0.25;

/// The prefix of members of sets. Each has a history of its own: that of a key which holds
/// [`THERE`], or nothing.
const SET: &str = "set";
const THERE: &[u8] = b"there";

/// Whether what has this name is a field of a hash, or a member of a set.
pub(crate) fn is_field(name: &str) -> bool {
    name.starts_with(HASH) || name.starts_with(SET)
}

/// The key that holds what has this name: that of the collection, if it is a field.
pub(crate) fn key_of(name: &str) -> &str {
    match name.split_once('.') {
        Some((key, _)) if is_field(name) => key,
        _ => name,
    }
}

/// The member that has this name: a word or an integer, which are packed in different ways.
fn member_of(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, member)| member)
}

/// What is asked of a member, as a Redis client asks it.
fn member_action(name: &str, call: &Call) -> Action {
    let command = match call {
        Call::Set(_) => "SADD",
        Call::Delete => "SREM",
        _ => "SISMEMBER",
    };
    action_of(&[command, key_of(name), member_of(name)])
}

/// The answer to a call on a member as to the same call on a key.
fn of_member(call: Option<&Call>, outcome: &Outcome) -> Outcome {
    match (call, outcome) {
        (Some(Call::Set(_)), Outcome::Int(_)) => Outcome::Ok,
        (Some(Call::Get), Outcome::Int(1)) => Outcome::Bulk(THERE.into()),
        (Some(Call::Get), Outcome::Int(_)) => Outcome::Nil,
        _ => outcome.clone(),
    }
}

/// What is asked of a field, as a Redis client asks it.
fn field_action(name: &str, call: &Call) -> Action {
    let key = key_of(name);
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    match call {
        Call::Incr(by) => action_of(&["HINCRBY", key, name, &by.to_string()]),
        Call::Delete => action_of(&["HDEL", key, name]),
        Call::SetFor { value, ms, .. } => {
            let (value, ms) = (text(value), ms.to_string());
            action_of(&["HSETEX", key, "PX", &ms, "FIELDS", "1", name, &value])
        }
        Call::Expire { ms, .. } => {
            action_of(&["HPEXPIRE", key, &ms.to_string(), "FIELDS", "1", name])
        }
        Call::Persist => action_of(&["HPERSIST", key, "FIELDS", "1", name]),
        Call::Set(value) => {
            let value = text(value);
            action_of(&["HSETEX", key, "FIELDS", "1", name, &value])
        }
        _ => action_of(&["HGET", key, name]),
    }
}

/// Whether a field is read with all others of its collection, which come in pages.
fn reads_all(name: &str, call: Option<&Call>, serial: u64) -> bool {
    is_field(name) && call == Some(&Call::Get) && serial.is_multiple_of(2)
}

/// The command that reads all fields of the collection of one.
fn all_of(name: &str) -> &'static str {
    if name.starts_with(SET) {
        "SMEMBERS"
    } else {
        "HGETALL"
    }
}

/// What all fields of a collection say of one.
fn in_all(name: &str, outcome: &Outcome) -> Outcome {
    let Outcome::Bulk(all) = outcome else {
        return outcome.clone();
    };
    if name.starts_with(SET) {
        let found = Part::Members
            .items(all)
            .any(|member| member == member_of(name).as_bytes());
        return of_member(Some(&Call::Get), &Outcome::Int(i64::from(found)));
    }
    let items: Vec<&[u8]> = Part::Whole.items(all).collect();
    let found = items.chunks(2).find(|pair| pair[0] == name.as_bytes());
    found.map_or(Outcome::Nil, |pair| Outcome::Bulk(pair[1].into()))
}

/// The answer to a call on a key with a model as to a call on a key.
fn modelled(call: &Call, outcome: &Outcome) -> Outcome {
    match call {
        Call::Other(call) => models::shown(call, outcome),
        _ => outcome.clone(),
    }
}

/// The answer to a call on a field as to the same call on a key.
fn of_field(call: Option<&Call>, outcome: &Outcome) -> Outcome {
    match (call, outcome) {
        (Some(Call::Set(_) | Call::SetFor { .. }), Outcome::Int(1)) => Outcome::Ok,
        (Some(Call::Expire { .. } | Call::Persist), Outcome::Many(of_fields)) => {
            match of_fields[..] {
                [Outcome::Int(done)] => Outcome::Int(done.max(0)),
                _ => outcome.clone(),
            }
        }
        _ => outcome.clone(),
    }
}

/// Appends to both keys of a pair.
const APPENDS: &[u8] = b"return {redis.call('APPEND', KEYS[1], ARGV[1]), \
    redis.call('APPEND', KEYS[2], ARGV[1])}";

/// Appends to one key of a pair, in a transaction that appends to the other one.
const APPENDS_ONE: &[u8] = b"return redis.call('APPEND', KEYS[1], ARGV[1])";

/// Changes a pair, and is stopped: what it changed is taken back.
const STOPPED: &[u8] = b"redis.call('APPEND', KEYS[1], ARGV[1]) redis.call('DEL', KEYS[2]) \
    return string.rep('x', 1e9)";

/// The twin of a key of a pair, or of a queue: it has the same tag, and follows in the order of bytes.
pub(crate) fn twin_of(key: &str) -> String {
    format!("{key}~")
}

/// The key of a pair that has this twin, or the key itself.
pub(crate) fn pair_of(key: &str) -> &str {
    match key.strip_suffix('~') {
        Some(one) if key.starts_with(PAIR) => one,
        _ => key,
    }
}

/// Whether what has this name is a key of its own with one value, which histories hold whole.
pub(crate) fn is_single(name: &str) -> bool {
    !is_field(name) && !name.starts_with(PAIR) && !name.starts_with(BULK)
}

/// The value as histories hold it. `None`: its padding was changed.
pub(crate) fn head_of(key: &str, value: &[u8]) -> Option<Vec<u8>> {
    if !key.starts_with(BULK) {
        return Some(value.to_vec());
    }
    let colon = value.iter().position(|b| *b == b':');
    let head = colon.map_or(&[][..], |colon| &value[..=colon]);
    (padded(key, head) == value).then(|| head.to_vec())
}

fn padded(key: &str, value: &[u8]) -> Bytes {
    if !key.starts_with(BULK) {
        return Bytes::copy_from_slice(value);
    }
    let length = value.iter().fold(0, |sum, b| sum * 31 + usize::from(*b)) % (24 << 10);
    [value, &vec![b'x'; 4096 + length]].concat().into()
}

/// The named map of a key, if it is not in the map without a name.
pub(crate) fn map_name(key: &str) -> Option<&'static str> {
    key.strip_prefix("named-").map(|n| {
        if n.ends_with(['0', '2', '4']) {
            "users"
        } else {
            "orders"
        }
    })
}

/// The map of a key in this table, if the table has it.
fn map_of(table: &Table, key: &str) -> Option<MapId> {
    map_name(key).map_or(Some(MapId(0)), |name| table.map_named(name).map(|m| m.id))
}

fn action(key: &str, call: &Call) -> Action {
    let set = |value: &Vec<u8>, expiry, get| Action::Set {
        value: padded(key, value),
        condition: Condition::Always,
        expiry,
        get,
    };
    let lasting = |ms: u64| Expiry::In(i64::try_from(ms).unwrap_or(i64::MAX));
    match call {
        Call::Get | Call::Lost | Call::Expired { .. } => Action::Get,
        Call::Other(call) => models::operation(call).1,
        Call::Set(value) => set(value, Expiry::None, false),
        Call::GetSet(value) => set(value, Expiry::None, true),
        Call::SetFor { value, ms, .. } => set(value, lasting(*ms), false),
        Call::Expire { ms, .. } => Action::Expire {
            expiry: lasting(*ms),
            condition: ExpireCondition::Always,
        },
        Call::Persist => Action::Persist,
        Call::Delete => Action::Delete,
        Call::GetDel => Action::GetDel,
        Call::CompareAndSwap {
            expected: Some(expected),
            value,
        } if value.len() % 2 == 0 => {
            action_of_bytes(&[b"SET", key.as_bytes(), value, b"IFEQ", expected])
        }
        Call::CompareAndSwap { expected, value } => Action::CompareAndSwap {
            expected: expected.as_ref().map(|e| Bytes::copy_from_slice(e)),
            value: Bytes::copy_from_slice(value),
        },
        Call::Incr(by) => Action::IncrBy(*by),
        Call::Append(tail) => Action::Append {
            value: Bytes::copy_from_slice(tail),
        },
    }
}

/// What a call on a key asks of the engine. `version` is what was last read of a pair.
fn work(map: MapId, key: &str, call: &Call, version: Option<i64>) -> Work {
    let bytes = |key: &str| Bytes::copy_from_slice(key.as_bytes());
    let keyspace = KeyspaceId(0);
    if let Call::Other(call) = call {
        let (key, action, _) = models::operation(call);
        return Work::Key(Operation {
            keyspace,
            map,
            key,
            action,
        });
    }
    if !key.starts_with(PAIR) {
        return Work::Key(Operation {
            keyspace,
            map,
            key: bytes(key_of(key)),
            action: if key.starts_with(HASH) {
                field_action(key, call)
            } else if key.starts_with(SET) {
                member_action(key, call)
            } else {
                action(key, call)
            },
        });
    }
    let twin = twin_of(key);
    let step = |key: &str, action| OperationStep::Key {
        map,
        key: bytes(key),
        action,
    };
    match call {
        // Both keys are absent, or none is.
        Call::CompareAndSwap {
            expected: None,
            value,
        } if value.len() % 2 == 0 => {
            let (key, twin) = (key.as_bytes(), twin.as_bytes());
            return Work::Key(Operation {
                keyspace,
                map,
                key: Bytes::copy_from_slice(key),
                action: action_of_bytes(&[b"MSETNX", key, value, twin, value]),
            });
        }
        // The new value comes from a third key.
        Call::GetSet(value) if value.len() % 2 == 0 => {
            let spare = twin_of(&twin);
            let copied = [key, &twin].map(str::as_bytes);
            let renamed = action_of_bytes(&[b"RENAME", spare.as_bytes(), key.as_bytes()]);
            let copied = action_of_bytes(&[b"COPY", copied[0], copied[1], b"REPLACE"]);
            return Work::Transaction(OperationBatch {
                keyspace,
                watched: Vec::new(),
                steps: vec![
                    step(key, Action::Get),
                    step(&twin, Action::Get),
                    step(&spare, action(key, &Call::Set(value.clone()))),
                    step(&spare, renamed),
                    step(key, copied),
                ],
            });
        }
        _ => {}
    }
    if let Call::Append(tail) = call
        && tail.len() % 2 == 0
    {
        let script = |body, keys| ScriptCall {
            keyspace,
            map,
            body: Bytes::from_static(body),
            keys,
            args: vec![Bytes::copy_from_slice(tail)],
            read_only: false,
            resp3: false,
            grants: Bytes::new(),
        };
        if tail.len() % 4 == 0 {
            let scripted = |body, keys| OperationStep::Script(Box::new(script(body, keys)));
            return Work::Transaction(OperationBatch {
                keyspace,
                watched: Vec::new(),
                steps: vec![
                    scripted(APPENDS_ONE, vec![bytes(key)]),
                    step(&twin, action(key, call)),
                    scripted(STOPPED, vec![bytes(key), bytes(&twin)]),
                ],
            });
        }
        return Work::Script(script(APPENDS, vec![bytes(key), bytes(&twin)]));
    }
    let (mut watched, mut steps) = (Vec::new(), Vec::new());
    let action = match call {
        Call::CompareAndSwap { value, .. } => {
            watched.push(Watched {
                map,
                key: bytes(key),
                version,
            });
            Action::set(Bytes::copy_from_slice(value))
        }
        call => action(key, call),
    };
    steps.extend([step(key, action.clone()), step(&twin, action)]);
    if *call == Call::Get {
        steps.push(step(key, Action::Version));
    }
    Work::Transaction(OperationBatch {
        keyspace,
        watched,
        steps,
    })
}

/// The keys of a run: registers, counters, lists and others of its mix. The stranger's key is the
/// last.
pub(crate) fn keys(mix: &Mix) -> Vec<String> {
    let mut keys: Vec<String> = (0..mix.keys)
        .flat_map(|i| {
            [
                format!("register-{i}"),
                format!("counter-{i}"),
                format!("list-{i}"),
            ]
        })
        .collect();
    keys.extend((0..mix.fleeting).map(|i| format!("fleeting-{i}")));
    keys.extend((0..mix.named).map(|i| format!("named-{i}")));
    keys.extend((0..mix.pairs).map(|i| format!("{PAIR}-{i}}}")));
    keys.extend(
        (0..mix.hashes)
            .flat_map(|i| [".a", ".b", FLEETING].map(|field| format!("{HASH}-{i}{field}"))),
    );
    keys.extend(
        (0..mix.sets).flat_map(|i| [".a", ".7"].map(|member| format!("{SET}-{i}{member}"))),
    );
    // A range may be lost without that of the twin.
    let torn = mix.placed == Placed::Range && mix.reckless;
    keys.extend(models::keys(if torn { 0 } else { mix.queues }, mix.ranked));
    keys.extend((0..mix.bulk).map(|i| format!("{BULK}-{i}")));
    keys.extend(mix.stranger.then(|| STRANGER.to_owned()));
    keys
}

impl World {
    /// Lets a client go on after this delay and not earlier: it has one such time, however often
    /// this is called.
    pub(crate) fn client_in(&mut self, delay: Nanos, id: ClientId) {
        let at = self.schedule.now() + delay;
        self.clients[id].next_at = Some(at);
        self.schedule.at(at, Event::ClientNext(id));
    }

    pub(crate) fn client_next(&mut self, id: ClientId) {
        if Self::is_worker(id) {
            return self.worker_next(id);
        }
        if Self::is_locker(id) {
            return self.locker_next(id);
        }
        if self.clients[id].next_at != Some(self.schedule.now()) {
            return;
        }
        self.clients[id].next_at = None;
        if self.stop_clients && self.clients[id].blocked.is_some() {
            return self.clients_idle();
        }
        if self.clients[id].waits() {
            return;
        }
        self.clients[id].pipelines = false;
        if let Some((process, key, last)) = self.clients[id].last_calls.pop() {
            self.clients[id].at = Some(process);
            if models::is_modelled(&key) {
                return self.last_commands(id, &key, last);
            }
            let call = match last {
                Last::Read => Call::Get,
                Last::Write if key.starts_with(BULK) => Call::Delete,
                Last::Write if counts(&key) => Call::Incr(1),
                Last::Write if fleets(&key) || key.starts_with(SET) => Call::Delete,
                Last::Write => Call::Append(b"!".to_vec()),
            };
            return self.call(id, key, call);
        }
        if self.last_calls_begun {
            return self.rest_at_the_end();
        }
        if self.stop_clients {
            return self.clients_idle();
        }
        let strange = id == self.mix.clients;
        let open = self
            .slots
            .iter()
            .filter_map(|s| s.process)
            .filter(|p| self.processes[*p].leaving < Leaving::HandedOver);
        let open: Vec<ProcessId> = open
            .filter(|p| self.is_stranger(self.processes[*p].slot) == strange)
            .collect();
        let stay = self.clients[id]
            .at
            .filter(|p| open.contains(p) && !self.rng.random_bool(0.03));
        let Some(at) =
            stay.or_else(|| (!open.is_empty()).then(|| open[self.rng.random_range(0..open.len())]))
        else {
            return self.client_in(50 * MS, id);
        };
        self.clients[id].at = Some(at);
        // The stranger's key is the last one.
        let ordinary = self.keys.len() - usize::from(self.mix.stranger);
        let keys = if strange {
            ordinary..self.keys.len()
        } else {
            0..ordinary
        };
        // The connection may be at any thread, or at the one that has the key.
        let threads = self.processes[at].threads.len();
        self.clients[id].thread = if threads > 1 {
            self.rng.random_range(0..threads)
        } else {
            0
        };
        let apart = self.oracle.is_apart(self.processes[at].me);
        if !strange && !apart && self.begins_to_find(id) {
            return;
        }
        let key = self.keys[self.rng.random_range(keys)].clone();
        if models::is_modelled(&key) && self.rng.random_bool(WAITS) {
            return self.begin_waiting(id, key);
        }
        self.clients[id].pipelines =
            self.mix.pipelined > 0 && self.rng.random_range(0..100) < self.mix.pipelined;
        let count = if self.clients[id].pipelines {
            self.rng.random_range(2..=4)
        } else {
            1
        };
        for _ in 0..count {
            let call = self.draw_call(&key);
            self.call(id, key.clone(), call);
        }
    }

    /// Reads a key with a model, and its twin, or writes it.
    fn last_commands(&mut self, id: ClientId, key: &str, last: Last) {
        let calls = match last {
            Last::Read => models::reads(key),
            Last::Write => {
                self.histories.serial += 1;
                vec![models::gives(key, self.histories.serial)]
            }
        };
        for call in calls {
            self.call(id, key.to_owned(), call);
        }
    }

    fn draw_call(&mut self, key: &str) -> Call {
        self.histories.serial += 1;
        let serial = self.histories.serial;
        if models::is_modelled(key) {
            return self.draw_command(key, serial);
        }
        let padding = self.rng.random_range(0..=self.mix.padding);
        let value = format!("{serial}:{}", "x".repeat(padding)).into_bytes();
        let draw = self.rng.random_range(0..100);
        if key.starts_with(BULK) {
            // Once faults are over, these keys are deleted and no longer written, because a full
            // cluster cannot make its copies again.
            return match draw {
                0..30 => Call::Get,
                30..80 if !self.calm => Call::Set(format!("{serial}:").into_bytes()),
                30..90 => Call::Delete,
                _ => Call::GetDel,
            };
        }
        if key.starts_with(SET) {
            return match draw {
                0..35 => Call::Get,
                35..75 => Call::Set(THERE.to_vec()),
                _ => Call::Delete,
            };
        }
        if fleets(key) {
            let ms = [50, 400, 2_000, 8_000][self.rng.random_range(0..4)];
            let ms = self.rng.random_range(ms / 2..=ms);
            return match draw {
                0..40 => Call::Get,
                40..65 => Call::SetFor {
                    value,
                    ms,
                    tag: serial,
                },
                65..77 => Call::Expire { ms, tag: serial },
                77..84 => Call::Persist,
                84..90 => Call::Set(value),
                90..95 if !key.starts_with(HASH) => Call::Append(b"+".to_vec()),
                _ => Call::Delete,
            };
        }
        if counts(key) {
            return match draw {
                0..30 => Call::Get,
                30..95 => Call::Incr(self.rng.random_range(1..5)),
                _ => Call::Delete,
            };
        }
        if key.starts_with("list") {
            return match draw {
                0..35 => Call::Get,
                35..90 => Call::Append(format!("{serial},").into_bytes()),
                90..95 => Call::GetDel,
                _ => Call::Delete,
            };
        }
        if key.starts_with(PAIR) && (35..65).contains(&draw) {
            let seen = self.histories.seen.get(key);
            return Call::CompareAndSwap {
                expected: seen.and_then(|(value, _)| value.clone()),
                value,
            };
        }
        match draw {
            0..35 => Call::Get,
            35..65 => Call::Set(value),
            65..75 => Call::GetSet(value),
            // No other write makes this value, so a key that is watched has it only once.
            75..90 if key.starts_with(PAIR) => Call::Append(format!("{serial},").into_bytes()),
            75..90 => Call::CompareAndSwap {
                expected: self.last_seen(key),
                value,
            },
            90..95 => Call::Delete,
            _ => Call::GetDel,
        }
    }

    /// A value that a compare-and-swap may find.
    fn last_seen(&self, key: &str) -> Option<Vec<u8>> {
        let entries = self.histories.keys.get(key)?;
        entries
            .iter()
            .rev()
            .take(6)
            .find_map(|e| match (&e.call, &e.answered) {
                (_, Some((_, Answer::Bulk(value)))) if e.call == Call::Get => Some(value.clone()),
                (Call::Set(value) | Call::GetSet(value), Some(_)) => Some(value.clone()),
                (Call::CompareAndSwap { value, .. }, Some((_, Answer::Int(1)))) => {
                    Some(value.clone())
                }
                _ => None,
            })
    }

    pub(crate) fn call(&mut self, id: ClientId, key: String, call: Call) {
        let Some(at) = self.clients[id].at.filter(|p| !self.processes[*p].gone) else {
            return self.client_in(10 * MS, id);
        };
        let thread = self.clients[id]
            .thread
            .min(self.processes[at].threads.len() - 1);
        self.clients[id].thread = thread;
        let Some(map) = self.processes[at]
            .view
            .as_ref()
            .map_or(Some(MapId(0)), |v| map_of(&v.installed, &key))
        else {
            return self.create_map(id, at, &key);
        };
        if map == MapId(0) && map_name(&key).is_some() {
            return self.client_in(50 * MS, id);
        }
        self.histories.serial += 1;
        self.histories.operations += 1;
        let serial = self.histories.serial;
        let called = self.histories.moment(self.schedule.now());
        let version = self.histories.seen.get(&key).and_then(|seen| seen.1);
        if let (Call::CompareAndSwap { .. }, Some(version)) = (&call, version) {
            self.histories.watched.insert(serial, version);
        }
        let work = if reads_all(&key, Some(&call), serial) {
            Work::Key(Operation {
                keyspace: KeyspaceId(0),
                map,
                key: Bytes::copy_from_slice(key_of(&key).as_bytes()),
                action: action_of(&[all_of(&key), key_of(&key)]).in_pages(),
            })
        } else {
            work(map, &key, &call, version)
        };
        self.trace.line(self.schedule.now(), || {
            format!("client {id} -> p{at} #{serial} {key} {}", brief(&call))
        });
        self.tracks((at, thread), &key, &call, serial);
        let entries = self.histories.keys.entry(key.clone()).or_default();
        entries.push(HistoryEntry {
            client: models::sender(u32::try_from(id).unwrap_or(u32::MAX), &call),
            call,
            called,
            answered: None,
            waited: u64::MAX,
        });
        let index = entries.len() - 1;
        if self.oracle.is_apart(self.processes[at].me) {
            let apart = self.histories.apart.entry(key.clone()).or_default();
            apart.insert(index);
        }
        self.clients[id].current.push((serial, key, index));
        self.data((at, thread), DataInput::Submit(id, serial, work));
        let patience = if self.last_calls_begun {
            10 * SECOND
        } else {
            [SECOND, 3 * SECOND, 8 * SECOND][self.rng.random_range(0..3)]
        };
        self.schedule
            .after(patience, Event::ClientTimeout(id, serial));
    }

    /// This process does not know the map of a key yet: ask for it, and let the client go on with
    /// something else meanwhile.
    fn create_map(&mut self, id: ClientId, at: ProcessId, key: &str) {
        if self.last_calls_begun {
            // No client ever wrote to it.
            return self.client_in(MS, id);
        }
        self.histories.serial += 1;
        let (ticket, me) = (self.histories.serial, self.processes[at].me);
        if let Some(name) = map_name(key) {
            let limits = self.mix.limits;
            let limited =
                name == "users" && limits != MapLimits::NONE && self.mix.placed != Placed::Range;
            let request = AdminRequest::of_map(WantedMap {
                keyspace: "default".into(),
                name: name.into(),
                wish: if limited {
                    MapWish::Limited(limits)
                } else {
                    MapWish::Exists
                },
            });
            self.trace.line(self.schedule.now(), || {
                format!("client {id} -> p{at} ticket {ticket}: create map {name}")
            });
            self.schedule.after(
                MS,
                Event::Control(at, ControlInput::Of(me, Input::Admin { ticket, request })),
            );
        }
        let think = self.rng.random_range(0..self.mix.think * 4);
        self.client_in(think, id);
    }

    /// Whether a client waits for a page of this number.
    fn finds(&self, id: ClientId, serial: u64) -> bool {
        let finding = self.clients[id].finding.as_ref();
        finding.is_some_and(|finding| finding.serial == serial)
    }

    /// The answer to a client's operation, if the client still waits for it.
    pub(crate) fn client_answer(&mut self, id: ClientId, serial: u64, outcome: &Outcome) {
        if Self::is_worker(id) {
            return self.worker_answer(id, serial, outcome);
        }
        if Self::is_locker(id) {
            return self.locker_answer(id, serial, outcome);
        }
        if self.finds(id, serial) {
            return self.take_page(id, outcome);
        }
        if self.clients[id].waits_in_line(serial) {
            return self.waiter_told(id, serial, outcome);
        }
        let Some(at) = self.clients[id]
            .current
            .iter()
            .position(|(current, ..)| *current == serial)
        else {
            return;
        };
        let (_, key, index) = self.clients[id].current[at].clone();
        let pages = self.clients[id].pages.remove(&serial);
        let whole = match (outcome, pages) {
            (Outcome::Keys { next, keys }, pages) => {
                let (count, mut all) = pages.unwrap_or_default();
                keys.iter().for_each(|page| all.extend_from_slice(page));
                if *next != 0 {
                    return self.next_page((id, serial), &key, *next, (count + 1, all));
                }
                Some(Outcome::Bulk(all[..].into()))
            }
            // The walk was lost, or its partition was split or merged, so nothing was read.
            (Outcome::Nil | Outcome::Failed(Failure::Stale), Some(_)) => None,
            _ => Some(outcome.clone()),
        };
        self.clients[id].current.remove(at);
        let Some(outcome) = &whole else {
            self.histories.void.entry(key).or_default().push(index);
            return self.client_done(id);
        };
        self.trace.line(self.schedule.now(), || {
            format!("client {id} <- #{serial} {key} {}", brief_outcome(outcome))
        });
        let outcome = match outcome {
            Outcome::Many(_) | Outcome::Nil | Outcome::Bulk(_) if key.starts_with(PAIR) => {
                match self.of_pair((id, serial), &key, index, outcome) {
                    Ok(outcome) => &outcome.clone(),
                    Err(torn) => return self.broken(format!("#{serial} on {key}: {torn}")),
                }
            }
            outcome if models::is_modelled(&key) => {
                let call = self.histories.called(&key, index);
                &call.map_or(Outcome::Nil, |call| modelled(call, outcome))
            }
            outcome if reads_all(&key, self.histories.called(&key, index), serial) => {
                &in_all(&key, outcome)
            }
            outcome if key.starts_with(SET) => {
                &of_member(self.histories.called(&key, index), outcome)
            }
            outcome if key.starts_with(HASH) => {
                &of_field(self.histories.called(&key, index), outcome)
            }
            outcome => outcome,
        };
        let call = self.histories.called(&key, index);
        let swaps = matches!(call, Some(Call::CompareAndSwap { .. }));
        let answer = match outcome {
            // `SET` with a condition answers so.
            Outcome::Ok if swaps => Some(Answer::Int(1)),
            Outcome::Nil if swaps => Some(Answer::Int(0)),
            Outcome::Ok => Some(Answer::Ok),
            Outcome::Nil => Some(Answer::Nil),
            Outcome::Int(n) => Some(Answer::Int(*n)),
            Outcome::Bulk(value) => match head_of(&key, value) {
                Some(head) => Some(Answer::Bulk(head)),
                None => {
                    return self.broken(format!("#{serial} on {key}: a value came back changed"));
                }
            },
            Outcome::Keys { .. } | Outcome::Many(_) => {
                return self.broken(format!("#{serial} on {key} was answered with {outcome:?}"));
            }
            // Ranges may be cut between the keys of a pair.
            Outcome::Failed(Failure::OldMembers | Failure::CrossPartition) => {
                self.histories
                    .void
                    .entry(key.clone())
                    .or_default()
                    .push(index);
                self.waiter_answer(id, serial, WaiterAnswer::Failed);
                return self.client_done(id);
            }
            // If a range is cut between the keys of a pair, a retry cannot be recognized.
            Outcome::Failed(failure)
                if self.last_calls_begun
                    && !matches!(failure, Failure::OutOfMemory | Failure::MapFull)
                    && !(*failure == Failure::Unknown
                        && key.starts_with(PAIR)
                        && self.mix.placed == Placed::Range) =>
            {
                return self.broken(format!(
                    "I16: after healing, {key} through p{:?} gave {failure:?}",
                    self.clients[id].at
                ));
            }
            Outcome::Failed(Failure::Unknown) => None,
            Outcome::Failed(
                Failure::Unavailable
                | Failure::Overloaded
                | Failure::TooFewCopies
                | Failure::NoPartition
                | Failure::OutOfMemory
                | Failure::MapFull
                | Failure::Stale,
            ) => {
                self.histories.refused += 1;
                self.histories.full += u64::from(*outcome == Outcome::Failed(Failure::OutOfMemory));
                self.histories
                    .void
                    .entry(key.clone())
                    .or_default()
                    .push(index);
                self.waiter_answer(id, serial, WaiterAnswer::Failed);
                return self.client_done(id);
            }
            Outcome::Failed(failure) => {
                return self.broken(format!("#{serial} on {key} failed strangely: {failure:?}"));
            }
        };
        let moment = self.histories.moment(self.schedule.now());
        match &answer {
            Some(_) => self.histories.answered += 1,
            None => self.histories.unknown += 1,
        }
        let for_waiter = WaiterAnswer::of(answer.as_ref());
        if let Some(answer) = &answer
            && let Some(entry) = self.histories.keys.get(&key).and_then(|e| e.get(index))
        {
            let (call, called) = (entry.call.clone(), entry.called);
            let client = &self.clients[id];
            let thread = client.at.map(|p| (p, client.thread));
            let about = (&*key, &call);
            self.tracked_answer(thread, about, (serial, called, moment), answer);
        }
        if let Some(entry) = self
            .histories
            .keys
            .get_mut(&key)
            .and_then(|e| e.get_mut(index))
        {
            entry.answered = answer.map(|answer| (moment, answer));
            entry.waited = moment;
        }
        self.waiter_answer(id, serial, for_waiter);
        self.client_done(id);
    }

    /// Asks for the next page of a hash. `page` pages have come, with the bytes `all`.
    fn next_page(
        &mut self,
        (id, serial): (ClientId, u64),
        key: &str,
        walk: u64,
        (page, all): (u32, Vec<u8>),
    ) {
        let Some(at) = self.clients[id].at else {
            return;
        };
        let place = self.processes[at].view.as_ref().and_then(|view| {
            let map = map_of(&view.installed, key)?;
            let keyspace = view.installed.keyspace(KeyspaceId(0))?;
            Some((map, keyspace.partition_of(map, key_of(key).as_bytes())?))
        });
        let Some((map, partition)) = place else {
            return;
        };
        let work = Work::Partition(PartitionOperation {
            keyspace: KeyspaceId(0),
            partition,
            map,
            action: PartitionAction::Fields { walk, page },
        });
        self.clients[id].pages.insert(serial, (page, all));
        let thread = self.clients[id].thread;
        self.data((at, thread), DataInput::Submit(id, serial, work));
    }

    /// The outcome of a transaction on a pair, as that of an operation on one key.
    ///
    /// # Errors
    /// Its keys differ.
    fn of_pair(
        &mut self,
        (id, serial): (ClientId, u64),
        key: &str,
        index: usize,
        outcome: &Outcome,
    ) -> Result<Outcome, String> {
        let watched = self.histories.watched.remove(&serial);
        let call = self.histories.called(key, index);
        let swaps = matches!(call, Some(Call::CompareAndSwap { .. }));
        let appends = matches!(call, Some(Call::Append(_)));
        if let Outcome::Bulk(reply) = outcome {
            self.histories.transactions.0 += 1;
            let reply = String::from_utf8_lossy(reply);
            let lengths: Vec<&str> = reply.split("\r\n").collect();
            return match &lengths[..] {
                ["*2", one, twin, ""] if one == twin => one
                    .strip_prefix(':')
                    .and_then(|length| length.parse().ok())
                    .map(Outcome::Int)
                    .ok_or_else(|| format!("a script answered {reply:?}")),
                _ => Err(format!("a torn script: {reply:?}")),
            };
        }
        let Outcome::Many(outcomes) = outcome else {
            self.histories.transactions.1 += 1;
            return if watched.is_some_and(|version| self.has_another_lineage(id, key, version)) {
                // It was executed nowhere, which says nothing of the value.
                Ok(Outcome::Failed(Failure::Stale))
            } else if swaps {
                Ok(Outcome::Int(0))
            } else {
                Err("no key was watched, and one had changed".to_owned())
            };
        };
        self.histories.transactions.0 += 1;
        let [one, twin, rest @ ..] = &outcomes[..] else {
            return Err(format!("a transaction of two steps has {outcomes:?}"));
        };
        // The first of two that append may be a script.
        let scripted = match one {
            Outcome::Bulk(reply) if appends => String::from_utf8_lossy(reply)
                .strip_prefix(':')
                .and_then(|length| length.trim_end().parse().ok())
                .map(Outcome::Int),
            _ => None,
        };
        let one = scripted.as_ref().unwrap_or(one);
        if one != twin {
            return Err(format!("a torn transaction: {one:?} and {twin:?}"));
        }
        let apart = self.histories.apart.get(key);
        if let [version] = rest
            && !appends
            && !apart.is_some_and(|apart| apart.contains(&index))
        {
            let value = match one {
                Outcome::Bulk(value) => Some(value.to_vec()),
                _ => None,
            };
            let version = match version {
                Outcome::Int(version) => Some(*version),
                _ => None,
            };
            self.histories.seen.insert(key.to_owned(), (value, version));
        }
        Ok(if swaps { Outcome::Int(1) } else { one.clone() })
    }

    /// Whether the partition of a pair has another lineage now than when this version of it was
    /// read. Versions count from the lineage (`ShardTables::versions_from`), and two partitions
    /// that are merged go on in the later lineage of both. So a key of the other one has another
    /// version without a change, and a swap that watches it is not executed (docs/redis.md).
    fn has_another_lineage(&self, id: ClientId, key: &str, version: i64) -> bool {
        let partition = self.clients[id].at.and_then(|at| {
            let process = &self.processes[at];
            let cluster = process.view.as_ref()?.installed.cluster;
            let table = self.oracle.newest(process.me, cluster)?;
            let keyspace = table.keyspace(KeyspaceId(0))?;
            let at = keyspace.partition_of(MapId(0), key.as_bytes())?;
            Some((cluster.0 as u64, keyspace.partition(at)?.lineage))
        });
        partition.is_some_and(|(from, lineage)| {
            version.cast_unsigned().wrapping_sub(from) / VERSIONS != u64::from(lineage.0)
        })
    }

    pub(crate) fn client_done(&mut self, id: ClientId) {
        if self.clients[id].waits() {
            if self.stop_clients {
                self.clients_idle();
            }
            return;
        }
        let think = if self.last_calls_begun {
            MS
        } else {
            self.rng.random_range(0..self.mix.think * 2)
        };
        self.client_in(think, id);
    }

    pub(crate) fn client_timeout(&mut self, id: ClientId, serial: u64) {
        if Self::is_worker(id) {
            return self.worker_timeout(id, serial);
        }
        if Self::is_locker(id) {
            return self.locker_timeout(id, serial);
        }
        if self.finds(id, serial) {
            if let Some(at) = self.clients[id].at.take() {
                let thread = self.clients[id].thread;
                self.data((at, thread), DataInput::Forget(id, serial));
            }
            return self.stop_finding(id);
        }
        if self.clients[id].waits_in_line(serial) {
            return self.waiter_leaves(id, serial);
        }
        if self.clients[id]
            .current
            .iter()
            .all(|(current, ..)| *current != serial)
        {
            return;
        }
        if self.last_calls_begun {
            return self.broken(format!(
                "I16: after healing, an operation through p{:?} got no answer",
                self.clients[id].at
            ));
        }
        self.stop_waiting(id);
        let (at, thread) = (self.clients[id].at.take(), self.clients[id].thread);
        let moment = self.histories.moment(self.schedule.now());
        for (serial, key, index) in std::mem::take(&mut self.clients[id].current) {
            if let Some(entry) = self
                .histories
                .keys
                .get_mut(&key)
                .and_then(|e| e.get_mut(index))
            {
                entry.waited = moment;
            }
            if let Some(at) = at {
                self.data((at, thread), DataInput::Forget(id, serial));
            }
            self.histories.unknown += 1;
            self.trace.line(self.schedule.now(), || {
                format!("client {id} gives up #{serial}")
            });
        }
        self.client_done(id);
    }

    /// Some partitions began empty. From now on their keys may be absent, as after a delete at an
    /// unknown moment.
    pub(crate) fn note_losses(&mut self) {
        for (at, keyspace) in std::mem::take(&mut self.oracle.newly_lost) {
            self.lockers.note_loss(at, &keyspace);
            self.workers.note_loss(at, &keyspace);
            for key in self.keys.clone() {
                let Some(map) = map_name(&key).map_or(Some(MapId(0)), |name| self.oracle.map(name))
                else {
                    continue;
                };
                if keyspace.partition_of(map, key_of(&key).as_bytes()) == Some(at) {
                    let called = self.histories.moment(self.schedule.now());
                    let lost = HistoryEntry {
                        client: 0,
                        call: Call::Lost,
                        called,
                        answered: None,
                        waited: called,
                    };
                    self.histories.keys.entry(key).or_default().push(lost);
                }
            }
        }
    }

    /// A primary evicted these keys. From now on each may be absent, as after a delete of unknown
    /// outcome: a new primary may not have the deletion.
    pub(crate) fn note_evicted(&mut self, (p, t): ThreadId) {
        let evicted = self.processes[p].threads[t].shard.inspect_evicted();
        if self.oracle.is_apart(self.processes[p].me) {
            return;
        }
        for (at, map, key) in evicted {
            let named = |name: &String| {
                map_name(name).map_or(Some(MapId(0)), |name| self.oracle.map(name)) == Some(map)
            };
            let of_clients = at.keyspace == KeyspaceId(0);
            let is_gone =
                |name: &&String| of_clients && *key == *key_of(name).as_bytes() && named(name);
            let gone: Vec<String> = self.keys.iter().filter(is_gone).cloned().collect();
            for name in gone {
                let called = self.histories.moment(self.schedule.now());
                let gone = HistoryEntry {
                    client: 0,
                    call: Call::Lost,
                    called,
                    answered: None,
                    waited: called,
                };
                self.histories.keys.entry(name).or_default().push(gone);
            }
        }
    }

    /// All processes were killed, and all data is gone.
    pub(crate) fn everything_is_lost(&mut self) {
        self.lockers.forget();
        self.workers.forget();
        for key in self.keys.clone() {
            let called = self.histories.moment(self.schedule.now());
            let answered = self.histories.moment(self.schedule.now());
            let lost = HistoryEntry {
                client: 0,
                call: Call::Lost,
                called,
                answered: Some((answered, Answer::Ok)),
                waited: answered,
            };
            self.histories.keys.entry(key).or_default().push(lost);
        }
    }

    /// Clients of these processes wait no longer. Whether their operations happen is not known.
    pub(crate) fn give_up_calls_through(&mut self, processes: &[ProcessId]) {
        for id in 0..self.clients.len() {
            if self.clients[id].at.is_some_and(|p| processes.contains(&p)) {
                let finding = self.clients[id].finding.as_ref().map(|f| f.serial);
                let waits = self.clients[id].current.first().map(|(serial, ..)| *serial);
                if let Some(serial) = finding.or(waits) {
                    self.client_timeout(id, serial);
                }
                self.stop_waiting(id);
            }
        }
    }

    /// A process that was of the recovered half joins the other one: what its clients wait for may
    /// happen there.
    pub(crate) fn calls_cross_over(&mut self, process: ProcessId) {
        for client in self.clients.iter().filter(|c| c.at == Some(process)) {
            for (_, key, index) in &client.current {
                if let Some(apart) = self.histories.apart.get_mut(key) {
                    apart.remove(index);
                }
            }
        }
    }

    /// The process died, so the outcomes of its clients' operations are unknown.
    pub(crate) fn clients_cut_off(&mut self, process: ProcessId) {
        self.lockers_cut_off(process);
        self.workers_cut_off(process);
        for id in 0..self.clients.len() {
            if self.clients[id].at == Some(process) {
                self.clients[id].at = None;
                if self.clients[id].finding.is_some() {
                    self.stop_finding(id);
                }
                self.stop_waiting(id);
                for (serial, ..) in self.clients[id].current.clone() {
                    self.client_answer(id, serial, &Outcome::Failed(Failure::Unknown));
                }
            }
        }
    }
}

/// A call in a few letters.
pub(crate) fn brief(call: &Call) -> String {
    let text = format!("{call:?}");
    match call {
        Call::Set(v) => format!("Set({})", short(v)),
        Call::GetSet(v) => format!("GetSet({})", short(v)),
        Call::Append(v) => format!("Append({})", short(v)),
        Call::SetFor { value, ms, .. } => format!("SetFor({}, {ms} ms)", short(value)),
        Call::CompareAndSwap { expected, value } => format!(
            "Cas({:?} -> {})",
            expected.as_deref().map(short),
            short(value)
        ),
        _ => text,
    }
}

pub(crate) fn short(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    match text.split_once(':') {
        Some((head, _)) => head.to_owned(),
        None if text.len() > 40 => format!("..{}", &text[text.len() - 40..]),
        None => text.into_owned(),
    }
}

fn brief_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Bulk(value) => format!("Bulk({})", short(value)),
        other => format!("{other:?}"),
    }
}
