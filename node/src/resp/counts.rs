//! A data thread's counters of commands (calls, time and errors) for `INFO commandstats` and `INFO
//! errorstats`, and its rates.
//!
//! Counters are plain numbers of the thread, indexed by the command's place in the table. Most
//! commands are timed one by one. A plain `GET` or `SET` of a key that this thread leads is timed
//! once in `SAMPLE` commands, because reading the clock twice would add a twentieth to its cost.
//! Its time in `INFO` is extrapolated from the samples.

use super::command::table;
use super::encode::Encoder;
use super::totals::Totals;
use crate::data::FrontEndCounters;
use crate::data::latency::LatencyCounts;
use bytes::Bytes;
use doyen_gossip::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// If not all commands are timed, one of this many is.
pub(super) const SAMPLE: u64 = 16;
/// How often counters are sampled for rates and peaks.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);
/// Most kinds of errors that are counted apart. All errors of this server have fewer first words.
const ERROR_CODES_MAX: usize = 64;
/// Counts the commands that have no row in the table.
pub(super) const UNKNOWN: u16 = u16::MAX;
/// Number of intervals over which rates are computed.
const SAMPLES: usize = 8;

/// The counters of one command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How often it ran.
    pub calls: u64,
    /// How many of these calls were timed.
    pub timed: u64,
    /// How long the timed calls took.
    pub nanos: u64,
    /// How often it was refused before it ran.
    pub rejected: u64,
    /// How often it ended in an error.
    pub failed: u64,
}

impl Count {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.timed += other.timed;
        self.nanos += other.nanos;
        self.rejected += other.rejected;
        self.failed += other.failed;
    }

    /// How long all calls took, extrapolated from those that were timed.
    #[must_use]
    pub fn micros(&self) -> u64 {
        let all = u128::from(self.nanos) * u128::from(self.calls) / u128::from(self.timed.max(1));
        u64::try_from(all / 1000).unwrap_or(u64::MAX)
    }
}

/// The counters of all commands and errors.
#[derive(Debug, Clone, Default)]
pub struct CommandCounts {
    commands: Vec<Count>,
    /// How many timed calls of each command took how long.
    times: Vec<LatencyCounts>,
    /// Replies that were errors, by their first word.
    errors: BTreeMap<String, u64>,
}

impl CommandCounts {
    /// All counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            commands: vec![Count::default(); table::COUNT],
            times: vec![LatencyCounts::default(); table::COUNT],
            errors: BTreeMap::new(),
        }
    }

    /// Adds what another thread counted.
    pub fn add(&mut self, other: &Self) {
        if self.commands.len() < other.commands.len() {
            self.commands.resize(other.commands.len(), Count::default());
        }
        self.commands
            .iter_mut()
            .zip(&other.commands)
            .for_each(|(mine, other)| mine.add(other));
        if self.times.len() < other.times.len() {
            self.times
                .resize(other.times.len(), LatencyCounts::default());
        }
        for (mine, other) in self.times.iter_mut().zip(&other.times) {
            mine.add(other);
        }
        for (code, n) in &other.errors {
            *self.errors.entry(code.clone()).or_default() += n;
        }
    }

    /// A command ran.
    #[inline]
    pub(crate) fn ran(&mut self, command: u16, took: Option<Duration>) {
        let Some(count) = self.commands.get_mut(usize::from(command)) else {
            return;
        };
        count.calls += 1;
        if let Some(took) = took {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            count.timed += 1;
            count.nanos = count.nanos.saturating_add(nanos);
            if let Some(times) = self.times.get_mut(usize::from(command)) {
                times.count(took, 1);
            }
        }
    }

    /// How many calls of a command took no longer than the times of each class, extrapolated from
    /// those that were timed: the microseconds, and the calls.
    fn within(&self, command: u16) -> Vec<(u64, u64)> {
        let at = usize::from(command);
        let (Some(count), Some(times)) = (self.commands.get(at), self.times.get(at)) else {
            return Vec::new();
        };
        let timed = times.total();
        let (mut sum, mut within) = (0, Vec::new());
        let classes = LatencyCounts::longest().zip(times.classes());
        for (longest, n) in classes.filter(|(_, n)| **n > 0) {
            sum += n;
            let calls = u128::from(sum) * u128::from(count.calls) / u128::from(timed.max(1));
            let us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
            within.push((us, u64::try_from(calls).unwrap_or(u64::MAX)));
        }
        within
    }

    /// For each command: the time within which `of_thousand` calls of a thousand ended, in
    /// microseconds. The times are those of classes.
    pub fn percentiles<const N: usize>(
        &self,
        of_thousand: [u64; N],
    ) -> impl Iterator<Item = (&'static str, [u64; N])> {
        table::COMMANDS.all().iter().filter_map(move |spec| {
            let within = self.within(spec.number);
            let all = within.last()?.1;
            let ended = |part: u64| {
                let enough = within.iter().find(|(_, calls)| *calls * 1000 >= all * part);
                enough.map_or(0, |(us, _)| *us)
            };
            Some((spec.name, of_thousand.map(ended)))
        })
    }

    /// A command that ran before took more time.
    pub(crate) fn went_on(&mut self, command: u16, took: Duration) {
        if let Some(count) = self.commands.get_mut(usize::from(command)) {
            count.nanos = count
                .nanos
                .saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Counts commands that were answered by errors.
    pub(crate) fn failed(&mut self, failed: &FailedReply) {
        if let Some(count) = self.commands.get_mut(usize::from(failed.command)) {
            if failed.rejected {
                count.rejected += failed.times
            } else {
                count.failed += failed.times
            }
        }
        let code = if self.errors.len() < ERROR_CODES_MAX || self.errors.contains_key(&failed.code)
        {
            &failed.code
        } else {
            "OTHER"
        };
        *self.errors.entry(code.to_owned()).or_default() += failed.times;
    }

    /// Commands that did something, with their names.
    pub fn commands(&self) -> impl Iterator<Item = (&'static str, &Count)> {
        let named = table::COMMANDS
            .all()
            .iter()
            .zip(&self.commands)
            .map(|(spec, count)| (spec.name, count));
        named.filter(|(_, count)| **count != Count::default())
    }

    /// Errors by their first word.
    #[must_use]
    pub fn errors(&self) -> &BTreeMap<String, u64> {
        &self.errors
    }
}

/// `LATENCY HISTOGRAM` of these commands, or of all. A container is shown by its subcommands.
pub(crate) fn encode_histograms(
    encoder: &mut Encoder<'_>,
    counts: &CommandCounts,
    names: &[Bytes],
) {
    let mut asked: Vec<&table::RespSpec> = Vec::new();
    for spec in names.iter().filter_map(|name| table::COMMANDS.named(name)) {
        match table::COMMANDS.subcommands(spec) {
            [] => asked.push(spec),
            all => asked.extend(all),
        }
    }
    if names.is_empty() {
        asked.extend(table::COMMANDS.all());
    }
    let shown = asked
        .into_iter()
        .map(|spec| (spec, counts.within(spec.number)));
    let shown: Vec<_> = shown.filter(|(_, within)| !within.is_empty()).collect();
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    encoder.map(shown.len());
    for (spec, within) in shown {
        encoder.bulk(spec.name.as_bytes());
        encoder.map(2);
        encoder.bulk(b"calls");
        encoder.integer(number(within.last().map_or(0, |(_, calls)| *calls)));
        encoder.bulk(b"histogram_usec");
        encoder.map(within.len());
        for (us, calls) in within {
            encoder.integer(number(us));
            encoder.integer(number(calls));
        }
    }
}

/// The replies of one connection that were errors, since they were last counted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailedReply {
    command: u16,
    code: String,
    rejected: bool,
    pub(crate) times: u64,
}

/// Notes an error reply. Bounded: there are few kinds of errors, and as many commands as the table
/// has.
pub(crate) fn note(failed: &mut Vec<FailedReply>, command: u16, reply: &[u8], rejected: bool) {
    let word = reply
        .strip_prefix(b"-")
        .and_then(|text| text.split(|b| matches!(b, b' ' | b'\r')).next());
    let code = word.map_or(std::borrow::Cow::Borrowed("ERR"), String::from_utf8_lossy);
    let same =
        |f: &&mut FailedReply| f.command == command && f.code == code && f.rejected == rejected;
    match failed.iter_mut().find(same) {
        Some(found) => found.times += 1,
        None => failed.push(FailedReply {
            command,
            code: code.into_owned(),
            rejected,
            times: 1,
        }),
    }
}

/// Times commands that run one after the other with one reading of the clock each.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    at: Instant,
    /// The number of the command after which the clock was read.
    after: Option<u64>,
}

impl Stopwatch {
    pub(crate) fn new() -> Self {
        Self {
            at: Instant::now(),
            after: None,
        }
    }

    /// Other work was done since.
    pub(crate) fn forget(&mut self) {
        self.after = None;
    }

    /// The command of this number begins.
    pub(super) fn begin(&mut self, number: u64) {
        if self.after != Some(number.wrapping_sub(1)) {
            self.at = Instant::now();
        }
    }

    /// The command ended. Returns how long it took.
    pub(super) fn end(&mut self, number: u64) -> Duration {
        let now = Instant::now();
        self.after = Some(number);
        now - std::mem::replace(&mut self.at, now)
    }
}

/// Recent counters, for rates.
#[derive(Debug, Default)]
pub(crate) struct CommandRates(VecDeque<(Time, [u64; 3])>);

impl CommandRates {
    /// Notes the present counters.
    pub(crate) fn sample(&mut self, now: Time, counters: [u64; 3]) {
        if self.0.len() > SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back((now, counters));
    }

    /// By how much each rises in a second.
    pub(crate) fn per_second(&self) -> [u64; 3] {
        let (Some((began, first)), Some((ended, last))) = (self.0.front(), self.0.back()) else {
            return [0; 3];
        };
        let ms = u64::try_from(ended.since(*began).as_millis()).unwrap_or(u64::MAX);
        let mut rates = [0; 3];
        for (rate, (first, last)) in rates.iter_mut().zip(first.iter().zip(last)) {
            *rate = last
                .saturating_sub(*first)
                .saturating_mul(1000)
                .checked_div(ms)
                .unwrap_or(0);
        }
        rates
    }
}

/// Since when totals count for `INFO`, recent rates, and peaks.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    pub(super) totals_from: Totals,
    rates: CommandRates,
    memory_peak_bytes: u64,
    due: Time,
}

impl Sampling {
    pub(super) fn is_due(&self, now: Time) -> bool {
        now >= self.due
    }

    /// Samples counters and memory.
    pub(super) fn sample(&mut self, now: Time, memory: u64, counters: &FrontEndCounters) {
        self.due = now + SAMPLE_INTERVAL;
        let FrontEndCounters {
            commands,
            input_bytes,
            output_bytes,
            ..
        } = *counters;
        self.rates
            .sample(now, [commands, input_bytes, output_bytes]);
        self.memory_peak_bytes = self.memory_peak_bytes.max(memory);
    }

    pub(super) fn per_second(&self) -> [u64; 3] {
        self.rates.per_second()
    }

    /// The most memory that was seen, if it is this much now.
    pub(super) fn memory_peak_bytes(&self, now: u64) -> u64 {
        self.memory_peak_bytes.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_samples_stands_for_all_calls() {
        let mut counts = CommandCounts::new();
        for n in 0..32 {
            counts.ran(
                table::GET,
                (n % 16 == 0).then_some(Duration::from_micros(2)),
            );
        }
        counts.ran(UNKNOWN, None);
        let mut all = counts.clone();
        all.add(&counts);
        let found: Vec<_> = all
            .commands()
            .map(|(name, count)| (name, count.calls, count.micros()))
            .collect();
        assert_eq!(found, [("get", 64, 128)]);
    }

    #[test]
    fn times_are_counted_in_classes_and_stand_for_all_calls() {
        let mut counts = CommandCounts::new();
        for n in 0..40 {
            let took = Duration::from_micros(if n == 0 { 100 } else { 3 });
            counts.ran(table::GET, (n % 4 == 0).then_some(took));
        }
        assert_eq!(counts.within(table::GET), [(4, 36), (131, 40)]);
        let all: Vec<_> = counts.percentiles([500, 900, 990]).collect();
        assert_eq!(all, [("get", [4, 4, 131])]);
        let (mut out, names) = (bytes::BytesMut::new(), [Bytes::from_static(b"GET")]);
        let mut encoder = Encoder::new(&mut out, crate::resp::encode::Protocol::Resp2);
        encode_histograms(&mut encoder, &counts, &names);
        let shown = "*2 $3 get *4 $5 calls :40 $14 histogram_usec *4 :4 :36 :131 :40 ";
        assert_eq!(
            String::from_utf8(out.to_vec())
                .unwrap()
                .replace("\r\n", " "),
            shown
        );
    }

    #[test]
    fn errors_are_counted_by_their_first_word_and_command() {
        let mut failed = Vec::new();
        for reply in ["-ERR syntax error\r\n", "-ERR other\r\n", "-MOVED 1 x\r\n"] {
            note(
                &mut failed,
                table::SET,
                reply.as_bytes(),
                reply.starts_with("-MOVED"),
            );
        }
        let mut counts = CommandCounts::new();
        failed.iter().for_each(|f| counts.failed(f));
        assert_eq!(
            counts
                .errors()
                .iter()
                .map(|(code, n)| (code.as_str(), *n))
                .collect::<Vec<_>>(),
            [("ERR", 2), ("MOVED", 1)]
        );
        let set = counts.commands().next().unwrap();
        assert_eq!((set.0, set.1.failed, set.1.rejected), ("set", 2, 1));
        for n in 0..2 * ERROR_CODES_MAX {
            let mut failed = Vec::new();
            note(
                &mut failed,
                UNKNOWN,
                format!("-E{n} x\r\n").as_bytes(),
                true,
            );
            counts.failed(&failed[0]);
        }
        assert!(
            counts.errors().len() <= ERROR_CODES_MAX + 1 && counts.errors().contains_key("OTHER")
        );
    }

    #[test]
    fn rates_are_those_of_the_last_intervals() {
        let mut rates = CommandRates::default();
        assert_eq!(rates.per_second(), [0; 3]);
        let at = |ms: u64| Time(ms * 1_000_000);
        rates.sample(at(0), [0, 0, 0]);
        assert_eq!(rates.per_second(), [0; 3]);
        rates.sample(at(200), [100, 2000, 0]);
        assert_eq!(rates.per_second(), [500, 10_000, 0]);
        for n in 2..30 {
            rates.sample(at(200 * n), [100, 2000, 0]);
        }
        assert_eq!(rates.per_second(), [0; 3], "nothing happened of late");
    }
}
