//! Streams with a group of consumers: what workers ask of them, and what the answers must be.
//!
//! - Ids of new entries grow, whichever node is the primary, and each entry has one id.
//! - The group gives each entry to one consumer, in the order of their ids. Others get it only by a
//!   claim, and not while it was given less long ago than the claim says.
//! - An entry that was acknowledged is not given again. One that was given is acknowledged once.
//! - At the end, each entry is there, and it was given, is still to be given, or is pending.

use super::models;
use super::schedule::MS;
use super::worker::{Asked, CLOCKS_DIFFER, Moment, WorkerAction, is_of_faults};
use doyen_engine::command::CommandReply;
use doyen_engine::op::{Failure, Outcome};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The id of an entry.
type Id = (u64, u64);

/// A claim of what was given this long ago, in milliseconds: longer than most runs last.
const LONG_IDLE_MS: u64 = 40_000;

/// A stream.
#[derive(Debug)]
pub(crate) struct StreamKey {
    name: String,
    /// Entries before this one are forgotten.
    since: u64,
    /// Workers that know that there is the group.
    ready: BTreeSet<usize>,
    entries: BTreeMap<u64, StreamEntry>,
    /// The highest id that was answered, with the moments at which each higher one was.
    tops: BTreeMap<Moment, Id>,
    /// The same of ids that the group has given to a consumer.
    given: BTreeMap<Moment, Id>,
    /// What a worker has, and is to acknowledge.
    has: BTreeMap<usize, Vec<u64>>,
    /// How far the end is.
    step: LastStep,
}

/// What is known of an entry, by the number that is in it.
#[derive(Debug, Default)]
struct StreamEntry {
    id: Option<Id>,
    /// Its `XADD` was answered.
    added: bool,
    /// The group gave it to a consumer.
    given: bool,
    /// When it was last given, whether by a claim or not: the moments of the call and the answer.
    last_given: Option<(Moment, Moment)>,
    /// How often a worker tried to acknowledge it, and when one heard that it is.
    acks: u32,
    acked: Option<Moment>,
    /// At the end: it is in the stream, the group gave it then, and it is pending.
    found: bool,
    left: bool,
    pending: bool,
}

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) enum StreamAsks {
    Group,
    Add,
    /// How many at most.
    Read(u64),
    /// Those that were given longer ago than this.
    Claim(u64),
    Ack(Vec<u64>),
    /// All entries; those that are left; those that are pending.
    All(LastStep),
}

/// The steps at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LastStep {
    #[default]
    Entries,
    Left,
    Pending,
}

impl StreamKey {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            since: 0,
            ready: BTreeSet::new(),
            entries: BTreeMap::new(),
            tops: BTreeMap::new(),
            given: BTreeMap::new(),
            has: BTreeMap::new(),
            step: LastStep::Entries,
        }
    }

    pub(crate) fn forget(&mut self, serial: u64) {
        *self = Self {
            since: serial + 1,
            ..Self::new(&self.name)
        };
    }

    /// What a worker asks next.
    pub(crate) fn next(&mut self, id: usize, rng: &mut ChaCha8Rng) -> StreamAsks {
        if !self.ready.contains(&id) {
            return StreamAsks::Group;
        }
        let has = self.has.entry(id).or_default();
        match rng.random_range(0..100) {
            // Some are forgotten.
            0..50 if !has.is_empty() => {
                let all = std::mem::take(has);
                for n in all.iter().collect::<BTreeSet<_>>() {
                    self.entries.entry(*n).or_default().acks += 1;
                }
                StreamAsks::Ack(all)
            }
            0..35 => StreamAsks::Add,
            35..80 => StreamAsks::Read(rng.random_range(1..=3)),
            80..90 => StreamAsks::Claim(0),
            _ => StreamAsks::Claim(LONG_IDLE_MS),
        }
    }

    pub(crate) const fn last(&self) -> StreamAsks {
        StreamAsks::All(self.step)
    }

    pub(crate) fn action(
        &self,
        (id, serial): (usize, u64),
        asks: &StreamAsks,
        rng: &mut ChaCha8Rng,
    ) -> WorkerAction {
        let (key, consumer, number) = (&*self.name, format!("c{id}"), serial.to_string());
        let consumer = &*consumer;
        let words = match asks {
            StreamAsks::Group => ["XGROUP", "CREATE", key, "g", "0", "MKSTREAM"]
                .map(str::to_owned)
                .to_vec(),
            StreamAsks::Add => ["XADD", key, "*", "n", &number].map(str::to_owned).to_vec(),
            StreamAsks::Read(count) => {
                let count = count.to_string();
                let words = [
                    "XREADGROUP",
                    "GROUP",
                    "g",
                    consumer,
                    "COUNT",
                    &count,
                    "BLOCK",
                    "0",
                    "STREAMS",
                    key,
                    ">",
                ];
                words.map(str::to_owned).to_vec()
            }
            StreamAsks::Claim(idle) => {
                let idle = idle.to_string();
                let words = ["XAUTOCLAIM", key, "g", consumer, &idle, "0-0", "COUNT", "5"];
                words.map(str::to_owned).to_vec()
            }
            StreamAsks::Ack(entries) => {
                let mut words = ["XACK", key, "g"].map(str::to_owned).to_vec();
                let ids = entries.iter().filter_map(|n| self.entries.get(n)?.id);
                words.extend(ids.map(|(ms, seq)| format!("{ms}-{seq}")));
                words
            }
            StreamAsks::All(LastStep::Entries) => {
                ["XRANGE", key, "-", "+"].map(str::to_owned).to_vec()
            }
            StreamAsks::All(LastStep::Left) => {
                let words = ["XREADGROUP", "GROUP", "g", "last", "STREAMS", key, ">"];
                words.map(str::to_owned).to_vec()
            }
            StreamAsks::All(LastStep::Pending) => {
                let words = [
                    "XAUTOCLAIM",
                    key,
                    "g",
                    "last",
                    "0",
                    "0-0",
                    "COUNT",
                    "100000",
                ];
                words.map(str::to_owned).to_vec()
            }
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (action, wait) = models::asked(&words);
        let waits = matches!(asks, StreamAsks::Read(_)) && rng.random_bool(0.5);
        WorkerAction {
            action,
            waits: wait
                .filter(|_| waits)
                .map(|wait| (wait, [300, 2_000][rng.random_range(0..2)])),
        }
    }

    /// Judges an answer. True: all is read at the end.
    ///
    /// # Errors
    /// It is wrong.
    pub(crate) fn judge(
        &mut self,
        asked: Asked,
        (asks, serial): (&StreamAsks, u64),
        outcome: &Outcome,
        counts: &mut [u64; 4],
    ) -> Result<bool, String> {
        if let Outcome::Failed(failure) = outcome {
            return self.failed(*failure, asked, (asks, serial));
        }
        let reply = models::replied(asks.shape_words(), outcome);
        match (asks, reply) {
            (StreamAsks::Group, CommandReply::Status(_)) => {
                self.ready.insert(asked.id);
            }
            (StreamAsks::Group, CommandReply::Error(why)) if why.0.contains("BUSYGROUP") => {
                self.ready.insert(asked.id);
            }
            (StreamAsks::Add, CommandReply::Bulk(id)) => {
                counts[0] += 1;
                let id = parse_id(&id)?;
                self.added(asked, serial, id)?;
            }
            (StreamAsks::Read(_), CommandReply::NilArray) => {}
            (StreamAsks::Read(_), CommandReply::Keyed(keys)) => {
                let entries = entries_of(keys.get(1))?;
                counts[1] += entries.len() as u64;
                self.read(asked, &entries)?;
            }
            (StreamAsks::Claim(idle), CommandReply::Array(parts)) => {
                let entries = entries_of(parts.get(1))?;
                counts[1] += entries.len() as u64;
                self.claimed(asked, *idle, &entries)?;
            }
            (StreamAsks::Ack(entries), CommandReply::Int(done)) => {
                counts[2] += u64::try_from(done).unwrap_or(0);
                self.acked(asked, entries, done)?;
            }
            (StreamAsks::All(step), reply) => return self.last_read(asked, *step, reply, counts),
            (_, reply) => return Err(format!("{asks:?} is answered with {reply:?}")),
        }
        Ok(false)
    }

    /// Nothing happened, or that is not known. True: there is nothing to read at the end.
    fn failed(
        &mut self,
        failure: Failure,
        asked: Asked,
        (asks, serial): (&StreamAsks, u64),
    ) -> Result<bool, String> {
        match (failure, asks) {
            (Failure::OldMembers, _) => return Ok(asked.last),
            (Failure::Unknown, StreamAsks::Add) => {
                // It may be there.
                self.entries.entry(serial).or_default();
            }
            (failure, _) if is_of_faults(&failure) => {}
            (failure, _) => return Err(format!("{asks:?} failed strangely: {failure:?}")),
        }
        Ok(false)
    }

    fn added(&mut self, asked: Asked, serial: u64, id: Id) -> Result<(), String> {
        let before = self.tops.range(..asked.called).next_back();
        if let Some((_, top)) = before {
            hold!(id > *top, "{id:?} was given to a new entry, after {top:?}");
        }
        self.names(serial, id)?;
        self.entries.entry(serial).or_default().added = true;
        self.show(asked.answered, id);
        Ok(())
    }

    /// An id was seen.
    fn show(&mut self, at: Moment, id: Id) {
        if self.tops.values().next_back().is_none_or(|top| *top < id) {
            self.tops.insert(at, id);
        }
    }

    /// An entry has this id, and no other one.
    fn names(&mut self, n: u64, id: Id) -> Result<(), String> {
        let entry = self.entries.entry(n).or_default();
        hold!(
            entry.id.is_none_or(|known| known == id),
            "entry {n} has the ids {:?} and {id:?}",
            entry.id
        );
        entry.id = Some(id);
        Ok(())
    }

    /// Entries that a consumer got. Those that are forgotten are left out.
    fn got(&mut self, asked: Asked, entries: &[(Id, u64)], what: &str) -> Result<Vec<u64>, String> {
        let mut all = Vec::new();
        let since = self.since;
        for (id, n) in entries.iter().filter(|(_, n)| *n >= since) {
            self.names(*n, *id)?;
            self.show(asked.answered, *id);
            let entry = self.entries.entry(*n).or_default();
            hold!(
                entry.acked.is_none_or(|acked| acked > asked.called),
                "entry {n} is {what}, and was acknowledged before"
            );
            all.push(*n);
        }
        Ok(all)
    }

    fn read(&mut self, asked: Asked, entries: &[(Id, u64)]) -> Result<(), String> {
        let sorted = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
        hold!(sorted, "entries are given out of order: {entries:?}");
        let before = self.given.range(..asked.called).next_back();
        if let (Some((first, _)), Some((_, top))) = (entries.first(), before) {
            hold!(first > top, "{first:?} is given, after {top:?}");
        }
        let all = self.got(asked, entries, "given")?;
        for n in &all {
            let entry = self.entries.entry(*n).or_default();
            hold!(!entry.given, "entry {n} is given to two consumers");
            entry.given = true;
            let when = Some((asked.called, asked.answered));
            entry.last_given = entry.last_given.max(when);
        }
        if let Some((last, _)) = entries.last()
            && self.given.values().next_back().is_none_or(|top| top < last)
        {
            self.given.insert(asked.answered, *last);
        }
        self.has.entry(asked.id).or_default().extend(all);
        Ok(())
    }

    fn claimed(&mut self, asked: Asked, idle: u64, entries: &[(Id, u64)]) -> Result<(), String> {
        let all = self.got(asked, entries, "claimed")?;
        for n in &all {
            let entry = self.entries.entry(*n).or_default();
            // Another one may have got it by a call that was executed later.
            let last = entry.last_given.filter(|(_, got)| *got < asked.called);
            let least = (idle * MS).saturating_sub(CLOCKS_DIFFER);
            if let Some((last, _)) = last.filter(|_| asked.steady && idle > 0) {
                let passed = asked.answered.at - last.at;
                hold!(
                    passed >= least,
                    "entry {n} was given {} ms ago at most, and is claimed as idle for {idle} ms",
                    passed / MS
                );
            }
            let when = Some((asked.called, asked.answered));
            entry.last_given = entry.last_given.max(when);
        }
        self.has.entry(asked.id).or_default().extend(all);
        Ok(())
    }

    fn acked(&mut self, asked: Asked, entries: &[u64], done: i64) -> Result<(), String> {
        let (mut sure, mut known) = (0, 0);
        let unique: BTreeSet<u64> = entries.iter().copied().collect();
        for n in &unique {
            let entry = self.entries.entry(*n).or_default();
            // No other worker tried.
            sure += i64::from(entry.acks <= 1);
            known += i64::from(entry.acked.is_none());
        }
        hold!(
            done >= sure && done <= known,
            "{entries:?} are acknowledged, and the answer is {done}: at least {sure} were pending, \
             and {known} at most"
        );
        if done == i64::try_from(unique.len()).unwrap_or(i64::MAX) {
            for n in &unique {
                self.entries.entry(*n).or_default().acked = Some(asked.answered);
            }
        }
        Ok(())
    }

    fn last_read(
        &mut self,
        asked: Asked,
        step: LastStep,
        reply: CommandReply,
        counts: &mut [u64; 4],
    ) -> Result<bool, String> {
        let entries = match (step, reply) {
            (LastStep::Entries, CommandReply::Array(all)) => {
                entries_of(Some(&CommandReply::Array(all)))?
            }
            (LastStep::Left, CommandReply::Keyed(keys)) => entries_of(keys.get(1))?,
            (LastStep::Left, CommandReply::NilArray) => Vec::new(),
            (LastStep::Pending, CommandReply::Array(parts)) => entries_of(parts.get(1))?,
            // No worker has made the group.
            (LastStep::Left | LastStep::Pending, CommandReply::Error(_))
                if self.ready.is_empty() =>
            {
                return Ok(true);
            }
            (_, reply) => return Err(format!("{step:?} are answered with {reply:?}")),
        };
        if step == LastStep::Left {
            self.read(asked, &entries)?;
        }
        let since = self.since;
        for (id, n) in entries.iter().filter(|(_, n)| *n >= since) {
            self.names(*n, *id)?;
            let entry = self.entries.entry(*n).or_default();
            let mark = match step {
                LastStep::Entries => &mut entry.found,
                LastStep::Left => &mut entry.left,
                LastStep::Pending => &mut entry.pending,
            };
            hold!(!std::mem::replace(mark, true), "entry {n} is there twice");
        }
        self.step = match step {
            LastStep::Entries => {
                counts[3] += entries.len() as u64;
                LastStep::Left
            }
            LastStep::Left => LastStep::Pending,
            LastStep::Pending => {
                self.judge_all()?;
                return Ok(true);
            }
        };
        Ok(false)
    }

    /// Everything was read.
    fn judge_all(&self) -> Result<(), String> {
        for (n, entry) in &self.entries {
            hold!(
                entry.found || !(entry.added || entry.given),
                "entry {n} is lost: {entry:?}"
            );
            hold!(
                !entry.pending || entry.acked.is_none(),
                "entry {n} is pending, and was acknowledged: {entry:?}"
            );
            // Without an acknowledgement, what was given is pending. It may have been given by a
            // read whose answer was lost.
            hold!(
                entry.pending || entry.acks > 0 || !entry.found,
                "entry {n} is neither pending nor left, and no worker acknowledged it: {entry:?}"
            );
        }
        Ok(())
    }
}

impl StreamAsks {
    /// A command of this kind, which says how the reply is shaped.
    fn shape_words(&self) -> &'static [&'static str] {
        match self {
            Self::Group => &["XGROUP", "CREATE", "k", "g", "0", "MKSTREAM"],
            Self::Add => &["XADD", "k", "*", "n", "0"],
            Self::Read(_) | Self::All(LastStep::Left) => {
                &["XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">"]
            }
            Self::Claim(_) | Self::All(LastStep::Pending) => {
                &["XAUTOCLAIM", "k", "g", "c", "0", "0-0"]
            }
            Self::Ack(_) => &["XACK", "k", "g", "1-0"],
            Self::All(LastStep::Entries) => &["XRANGE", "k", "-", "+"],
        }
    }
}

fn parse_id(id: &[u8]) -> Result<Id, String> {
    let text = String::from_utf8_lossy(id);
    let parts = text.split_once('-');
    let id = parts.and_then(|(ms, seq)| Some((ms.parse().ok()?, seq.parse().ok()?)));
    id.ok_or_else(|| format!("{text:?} is no id"))
}

/// The entries of a reply, each with the number that is in it.
fn entries_of(reply: Option<&CommandReply>) -> Result<Vec<(Id, u64)>, String> {
    let Some(CommandReply::Array(all)) = reply else {
        return Err(format!("no entries: {reply:?}"));
    };
    let entry = |reply: &CommandReply| {
        let CommandReply::Array(parts) = reply else {
            return None;
        };
        let [CommandReply::Bulk(id), CommandReply::Fields(fields)] = &parts[..] else {
            return None;
        };
        let number = std::str::from_utf8(fields.iter().nth(1)?).ok()?;
        Some((parse_id(id).ok()?, number.parse().ok()?))
    };
    let entries: Option<Vec<(Id, u64)>> = all.iter().map(entry).collect();
    entries.ok_or_else(|| format!("no entries: {all:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_run_backwards_are_found() {
        let mut stream = StreamKey::new("s");
        assert!(stream.added(Asked::of_test(1, 4), 1, (5, 0)).is_ok());
        assert!(
            stream.added(Asked::of_test(2, 5), 2, (4, 0)).is_ok(),
            "at the same time"
        );
        assert!(stream.added(Asked::of_test(6, 7), 3, (5, 0)).is_err());
        assert!(stream.added(Asked::of_test(6, 7), 3, (5, 1)).is_ok());
        assert!(
            stream.added(Asked::of_test(6, 9), 3, (5, 2)).is_err(),
            "it has an id"
        );
    }

    #[test]
    fn what_is_given_twice_or_after_its_acknowledgement_is_found() {
        let mut stream = StreamKey::new("s");
        assert!(
            stream
                .read(Asked::of_test(1, 2), &[((5, 0), 1), ((6, 0), 2)])
                .is_ok()
        );
        assert!(stream.read(Asked::of_test(1, 3), &[((5, 0), 1)]).is_err());
        assert!(
            stream
                .claimed(Asked::of_test(3, 4), LONG_IDLE_MS, &[((5, 0), 1)])
                .is_err()
        );
        assert!(
            stream
                .claimed(Asked::of_test(3, 4), 0, &[((5, 0), 1)])
                .is_ok()
        );
        assert!(stream.acked(Asked::of_test(5, 6), &[1], 0).is_err());
        stream.entries.entry(1).or_default().acks = 2;
        assert!(stream.acked(Asked::of_test(5, 6), &[1], 0).is_ok());
        let mut stream = StreamKey::new("s");
        assert!(
            stream
                .read(Asked::of_test(1, 2), &[((5, 0), 1), ((6, 0), 2)])
                .is_ok()
        );
        assert!(stream.acked(Asked::of_test(3, 4), &[1], 1).is_ok());
        assert!(
            stream
                .claimed(Asked::of_test(5, 6), 0, &[((5, 0), 1)])
                .is_err()
        );
        assert!(
            stream.read(Asked::of_test(5, 6), &[((5, 9), 9)]).is_err(),
            "out of order"
        );
    }

    #[test]
    fn what_is_lost_is_found() {
        let mut stream = StreamKey::new("s");
        assert!(stream.added(Asked::of_test(1, 2), 1, (5, 0)).is_ok());
        assert!(stream.judge_all().is_err());
        stream.entries.entry(1).or_default().found = true;
        assert!(stream.judge_all().is_err());
        stream.entries.entry(1).or_default().pending = true;
        assert!(stream.judge_all().is_ok());
        stream.entries.entry(1).or_default().acked = Some(Asked::of_test(1, 2).called);
        assert!(stream.judge_all().is_err());
    }
}
