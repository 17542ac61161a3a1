//! Questions of a client of the plain port that every data thread of the node must answer: the
//! counters of `INFO`, the clients of `CLIENT LIST`, the slow commands. (On the cluster-aware port,
//! each thread is a node and answers for itself.)

use super::super::commands::clients::Chosen;
use super::*;
use crate::resp::info::Needs;
use crate::resp::scripts;
use crate::resp::slowlog::Slow;
use doyen_engine::Stats;
use std::sync::Arc;

/// A reply that waits for the other threads' parts.
#[derive(Debug)]
pub(in crate::resp::session) struct Asking {
    left: usize,
    question: Question,
    answer: NodeAnswer,
}

/// The answer so far, including this thread's part.
#[derive(Debug)]
enum NodeAnswer {
    Info {
        facts: Box<info::Facts>,
        sections: Vec<String>,
    },
    MemoryStats(Box<info::Facts>),
    MemoryDoctor(Box<info::Facts>),
    /// The histograms of these commands.
    Latency(Box<info::Facts>, Vec<Bytes>),
    Clients(Vec<(u64, String)>),
    Number(u64),
    /// How many slow commands are kept, and the most that may be.
    SlowLength(u64, usize),
    /// How many clients were ended, for the form of the command that names one client.
    KilledOne(u64),
    Slow {
        all: Vec<Slow>,
        count: usize,
    },
    Done,
}

impl Asking {
    fn new(question: Question, answer: NodeAnswer) -> Self {
        Self {
            left: 0,
            question,
            answer,
        }
    }

    pub(in crate::resp::session) fn info(
        facts: info::Facts,
        needs: Needs,
        sections: Vec<String>,
    ) -> Self {
        Self::new(
            Question::Counts(needs),
            NodeAnswer::Info {
                facts: Box::new(facts),
                sections,
            },
        )
    }

    pub(in crate::resp::session) fn memory_stats(facts: info::Facts) -> Self {
        Self::new(
            Question::Counts(Needs::Counts),
            NodeAnswer::MemoryStats(Box::new(facts)),
        )
    }

    pub(in crate::resp::session) fn memory_doctor(facts: info::Facts) -> Self {
        Self::new(
            Question::Counts(Needs::Counts),
            NodeAnswer::MemoryDoctor(Box::new(facts)),
        )
    }

    pub(in crate::resp::session) fn latency(facts: info::Facts, names: Vec<Bytes>) -> Self {
        Self::new(
            Question::Counts(Needs::Counts),
            NodeAnswer::Latency(Box::new(facts), names),
        )
    }

    pub(in crate::resp::session) fn clients(lines: Vec<(u64, String)>, chosen: Chosen) -> Self {
        Self::new(
            Question::Clients(Arc::new(chosen)),
            NodeAnswer::Clients(lines),
        )
    }

    pub(in crate::resp::session) fn killed(count: u64, chosen: Chosen, old_form: bool) -> Self {
        let answer = if old_form {
            NodeAnswer::KilledOne(count)
        } else {
            NodeAnswer::Number(count)
        };
        Self::new(Question::Kill(Arc::new(chosen)), answer)
    }

    pub(in crate::resp::session) fn slow(all: Vec<Slow>, count: usize) -> Self {
        Self::new(Question::Slow(count), NodeAnswer::Slow { all, count })
    }

    pub(in crate::resp::session) fn slow_length(length: usize, most: usize) -> Self {
        Self::new(
            Question::SlowLength,
            NodeAnswer::SlowLength(length as u64, most),
        )
    }

    /// A question that asks each thread to do something.
    pub(in crate::resp::session) fn done(what: Question) -> Self {
        Self::new(what, NodeAnswer::Done)
    }

    fn take(&mut self, told: Told) {
        match (&mut self.answer, told) {
            (
                NodeAnswer::Info { facts, .. }
                | NodeAnswer::MemoryStats(facts)
                | NodeAnswer::MemoryDoctor(facts)
                | NodeAnswer::Latency(facts, _),
                Told::Counts(counted),
            ) => {
                facts.counted.add(&counted);
            }
            (NodeAnswer::Clients(all), Told::Clients(lines)) => all.extend(lines),
            (
                NodeAnswer::Number(sum)
                | NodeAnswer::SlowLength(sum, _)
                | NodeAnswer::KilledOne(sum),
                Told::Number(number),
            ) => *sum += number,
            (NodeAnswer::Slow { all, .. }, Told::Slow(more)) => all.extend(more),
            (NodeAnswer::Done, Told::Done) => {}
            // These do not fit the question.
            (
                NodeAnswer::Info { .. }
                | NodeAnswer::MemoryStats(_)
                | NodeAnswer::MemoryDoctor(_)
                | NodeAnswer::Latency(..)
                | NodeAnswer::Clients(_)
                | NodeAnswer::Number(_)
                | NodeAnswer::SlowLength(..)
                | NodeAnswer::KilledOne(_)
                | NodeAnswer::Slow { .. }
                | NodeAnswer::Done,
                _,
            ) => return,
        }
        self.left = self.left.saturating_sub(1);
    }

    fn encode(self, encoder: &mut Encoder<'_>) {
        match self.answer {
            NodeAnswer::Info { facts, sections } => encoder.text(&info::info(&facts, &sections)),
            NodeAnswer::MemoryStats(facts) => info::memory_stats(encoder, &facts),
            NodeAnswer::MemoryDoctor(facts) => encoder.text(&info::memory_doctor(&facts)),
            NodeAnswer::Latency(facts, names) => {
                counts::encode_histograms(encoder, &facts.counted.counts, &names);
            }
            NodeAnswer::Clients(mut lines) => {
                lines.sort_by_key(|(id, _)| *id);
                encoder.text(&lines.into_iter().map(|(_, line)| line).collect::<String>());
            }
            // Each thread keeps as many as the node may, so the newest ones are among them.
            NodeAnswer::SlowLength(length, most) => {
                encoder.integer(i64::try_from(length.min(most as u64)).unwrap_or(i64::MAX))
            }
            NodeAnswer::Number(number) => {
                encoder.integer(i64::try_from(number).unwrap_or(i64::MAX))
            }
            NodeAnswer::KilledOne(0) => encoder.error("ERR No such client"),
            NodeAnswer::KilledOne(_) | NodeAnswer::Done => encoder.simple("OK"),
            NodeAnswer::Slow { all, count } => slowlog::encode(encoder, all, count),
        }
    }
}

impl Session {
    /// Whether this connection is answered for the whole node, and there are other threads to ask.
    fn asks_others(&self, context: &Context) -> bool {
        !self.cluster_port && context.threads() > 1
    }

    /// Answers with this thread's part, or once the others have answered theirs.
    pub(in crate::resp::session) fn ask(&mut self, context: &Context, mut asking: Asking) {
        if !self.asks_others(context) || matches!(asking.question, Question::Counts(Needs::Nothing))
        {
            return self.answer(|e| asking.encode(e));
        }
        let back = Back {
            thread: context.me().thread_number(),
            connection: self.id,
            slot: self.next(),
        };
        asking.left = context.ask(&asking.question, back);
        self.push(State::Asking(Box::new(asking)), 0);
    }
}

impl Connection {
    /// Another thread's part of an answer.
    pub(in crate::resp) fn told(&self, slot: u64, told: Told) {
        let mut session = self.session.borrow_mut();
        let session = &mut *session;
        let Some(at) = slot
            .checked_sub(session.first)
            .and_then(|i| usize::try_from(i).ok())
        else {
            return;
        };
        let Some(entry) = session.slots.get_mut(at) else {
            return;
        };
        let State::Asking(asking) = &mut entry.state else {
            return;
        };
        asking.take(told);
        if asking.left > 0 {
            return;
        }
        let State::Asking(asking) =
            std::mem::replace(&mut entry.state, State::Encoded(Bytes::new()))
        else {
            return;
        };
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::new(&mut bytes, entry.protocol);
        asking.encode(&mut encoder);
        if encoder.errors() > 0 {
            counts::note(&mut session.failed, entry.command, &bytes, false);
        }
        entry.state = State::Encoded(bytes.freeze());
        if at == 0 && session.encode_ready() {
            self.wake();
        }
    }
}

impl Context {
    /// This thread's part of the answer to another one's question.
    pub(in crate::resp) fn answer(&mut self, question: &Question) -> Told {
        match question {
            Question::Counts(needs) => Told::Counts(Box::new(self.counted(*needs))),
            Question::Clients(chosen) => Told::Clients(self.client_lines(chosen)),
            Question::Kill(chosen) => Told::Number(self.kill_clients(chosen)),
            Question::Slow(count) => Told::Slow(self.door.slow.newest(*count)),
            Question::SlowLength => Told::Number(self.door.slow.len() as u64),
            Question::ResetSlow => {
                self.door.slow.clear();
                Told::Done
            }
            Question::ResetCounts => {
                self.reset_counts();
                Told::Done
            }
            Question::Pause(pause) => {
                self.pause(*pause);
                Told::Done
            }
            Question::Unpause => {
                self.unpause();
                Told::Done
            }
        }
    }

    /// This thread's counters for `INFO`, as far as they are needed.
    pub(crate) fn counted(&self, needs: Needs) -> info::ThreadCounts {
        if needs == Needs::Nothing {
            return info::ThreadCounts::default();
        }
        let stats = self.shard().stats();
        // Every key has one primary, so the numbers of all nodes add up to `DBSIZE`.
        let (databases, scripts, script_bytes) = match needs {
            Needs::Nothing | Needs::Counts => (Box::default(), 0, 0),
            Needs::Databases => {
                let [(stored, _)] = self
                    .shard()
                    .partitions()
                    .led(cluster::KEYSPACE, [scripts::MAP]);
                let stored_bytes = self
                    .shard()
                    .partitions()
                    .bytes_led(cluster::KEYSPACE, scripts::MAP);
                let (kept, kept_bytes) = self.door.scripts.held(self.me().thread_number() == 0);
                let databases = self
                    .shard()
                    .partitions()
                    .led(cluster::KEYSPACE, databases::all());
                let bytes = stored_bytes + kept_bytes;
                (Box::new(databases), stored + kept, bytes)
            }
        };
        let (input, answers) = self.door.budget.held();
        let output = answers + self.door.budget.spilled();
        info::ThreadCounts {
            connected_clients: self.door.connections.len() as u64,
            client_bytes: (input + output) as u64,
            client_output_bytes: output as u64,
            memory_bytes: stats.memory_bytes,
            memory_peak_bytes: self.door.memory_peak_bytes.max(stats.memory_bytes),
            parked: stats.parked,
            databases,
            scripts,
            script_bytes,
            keys_held: stats.keys,
            totals: self.totals(&stats).since(&self.door.totals_from),
            rates: self.door.rates.per_second(),
            counts: self.door.counts.clone(),
        }
    }

    fn totals(&self, stats: &Stats) -> info::Totals {
        let counters = &self.door.counters;
        info::Totals {
            connections_received: counters.connections,
            connections_rejected: counters.connections_rejected,
            commands: counters.commands,
            errors: counters.errors,
            input_bytes: counters.input_bytes,
            output_bytes: counters.output_bytes,
            expired: stats.expired,
            evicted: stats.evicted,
            auth_failures: counters.auth_failures,
            denied: counters.denied,
            connections_expelled: counters.connections_expelled
                + counters.output_limited
                + self.door.hub.limited,
            hits: stats.hits,
            misses: stats.misses,
        }
    }

    /// Lets `INFO` count from zero. (The counters of `/metrics` go on.)
    pub(crate) fn reset_counts(&mut self) {
        self.door.totals_from = self.totals(&self.shard().stats());
        self.door.counts = counts::Counts::new();
    }

    /// Counts the error replies of a connection.
    pub(crate) fn count_errors(&mut self, failed: &mut Vec<Failed>) {
        for failed in failed.drain(..) {
            self.door.counters.errors += failed.times;
            self.door.counts.failed(&failed);
        }
    }

    /// Whether the present plain `GET` or `SET` is timed.
    #[inline]
    pub(in crate::resp::session) fn times_plain(&self) -> bool {
        self.door.counters.commands.is_multiple_of(counts::SAMPLE)
            || self.door.common.settings.times_all()
    }
}
