//! Questions of a client of the plain port that every data thread of the node must answer: the
//! counters of `INFO`, the clients of `CLIENT LIST`, the slow commands. (On the cluster-aware port,
//! each thread is a node and answers for itself.)

use super::{Arrived, Outstanding, PendingReply, SessionEffect};
use crate::resp::RespContext;
use crate::resp::common::{BackChannel, Question, ToldThreads};
use crate::resp::counts;
use crate::resp::encode::Encoder;
use crate::resp::info::{self, InfoNeeds};
use crate::resp::session::client::{Chosen, Unblocking};
use crate::resp::slowlog::{self, Slow};
use bytes::Bytes;
use std::sync::Arc;

/// A reply that waits for the other threads' parts.
#[derive(Debug)]
pub(crate) struct ThreadsReply {
    asked: Outstanding,
    question: Question,
    answer: NodeAnswer,
}

/// The answer so far, including this thread's part.
#[derive(Debug)]
enum NodeAnswer {
    Info {
        facts: Box<info::InfoFacts>,
        sections: Vec<String>,
    },
    MemoryStats(Box<info::InfoFacts>),
    MemoryDoctor(Box<info::InfoFacts>),
    /// The histograms of these commands.
    Latency(Box<info::InfoFacts>, Vec<Bytes>),
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

impl ThreadsReply {
    fn new(question: Question, answer: NodeAnswer) -> Self {
        Self {
            asked: Outstanding::default(),
            question,
            answer,
        }
    }

    pub(crate) fn info(facts: info::InfoFacts, needs: InfoNeeds, sections: Vec<String>) -> Self {
        Self::new(
            Question::Counts(needs),
            NodeAnswer::Info {
                facts: Box::new(facts),
                sections,
            },
        )
    }

    pub(crate) fn memory_stats(facts: info::InfoFacts) -> Self {
        Self::new(
            Question::Counts(InfoNeeds::Counts),
            NodeAnswer::MemoryStats(Box::new(facts)),
        )
    }

    pub(crate) fn memory_doctor(facts: info::InfoFacts) -> Self {
        Self::new(
            Question::Counts(InfoNeeds::Counts),
            NodeAnswer::MemoryDoctor(Box::new(facts)),
        )
    }

    pub(crate) fn latency(facts: info::InfoFacts, names: Vec<Bytes>) -> Self {
        Self::new(
            Question::Counts(InfoNeeds::Counts),
            NodeAnswer::Latency(Box::new(facts), names),
        )
    }

    pub(crate) fn clients(lines: Vec<(u64, String)>, chosen: Chosen) -> Self {
        Self::new(
            Question::Clients(Arc::new(chosen)),
            NodeAnswer::Clients(lines),
        )
    }

    pub(crate) fn killed(count: u64, chosen: Chosen, old_form: bool) -> Self {
        let answer = if old_form {
            NodeAnswer::KilledOne(count)
        } else {
            NodeAnswer::Number(count)
        };
        Self::new(Question::Kill(Arc::new(chosen)), answer)
    }

    pub(crate) fn unblocked(count: u64, id: u64, how: Unblocking) -> Self {
        Self::new(Question::Unblock(id, how), NodeAnswer::Number(count))
    }

    pub(crate) fn slow(all: Vec<Slow>, count: usize) -> Self {
        Self::new(Question::Slow(count), NodeAnswer::Slow { all, count })
    }

    pub(crate) fn slow_length(length: usize, most: usize) -> Self {
        Self::new(
            Question::SlowLength,
            NodeAnswer::SlowLength(length as u64, most),
        )
    }

    /// A question that asks each thread to do something.
    pub(in crate::resp) fn done(what: Question) -> Self {
        Self::new(what, NodeAnswer::Done)
    }

    /// Asks the other threads. Nothing is asked if this thread knows the whole answer.
    pub(crate) fn ask(&mut self, context: &RespContext, connection: u64, slot: u64) {
        if !matches!(self.question, Question::Counts(InfoNeeds::Nothing)) {
            let back = BackChannel {
                thread: context.me().thread_number(),
                connection,
                slot,
            };
            self.asked.question(context.ask(&self.question, back));
        }
    }

    fn take_part(&mut self, told: ToldThreads) {
        match (&mut self.answer, told) {
            (
                NodeAnswer::Info { facts, .. }
                | NodeAnswer::MemoryStats(facts)
                | NodeAnswer::MemoryDoctor(facts)
                | NodeAnswer::Latency(facts, _),
                ToldThreads::Counts(counted),
            ) => {
                facts.counted.add(&counted);
            }
            (NodeAnswer::Clients(all), ToldThreads::Clients(lines)) => all.extend(lines),
            (
                NodeAnswer::Number(sum)
                | NodeAnswer::SlowLength(sum, _)
                | NodeAnswer::KilledOne(sum),
                ToldThreads::Number(number),
            ) => *sum += number,
            (NodeAnswer::Slow { all, .. }, ToldThreads::Slow(more)) => all.extend(more),
            (NodeAnswer::Done, ToldThreads::Done) => {}
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
        self.asked.answered();
    }
}

impl PendingReply for ThreadsReply {
    fn asked(&self) -> &Outstanding {
        &self.asked
    }

    fn take(&mut self, arrived: Arrived) -> SessionEffect {
        if let Arrived::Thread(told) = arrived {
            self.take_part(told);
        }
        SessionEffect::Nothing
    }

    // The answers of all threads may be long, and count only once they are here.
    fn blocks(&self) -> bool {
        self.asked.waits() > 0
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        match std::mem::replace(&mut self.answer, NodeAnswer::Done) {
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
        true
    }
}
