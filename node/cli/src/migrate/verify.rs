//! Compares keys with what the nodes answer, by the commands that read each type.

use super::Found;
use super::link::{NodeLink, Server, SourceLink, Words, words};
use super::streams;
use super::writers::{RETRY_EVERY, RETRY_MAX, now_ms};
use crate::{CommandFailed, say};
use doyen::resp::client::Reply;
use doyen_placement::words::counted;
use doyen_rdb::{HashField, RdbValue, shown_key};
use std::time::Instant;

/// Commands that are sent at once.
const BATCH: usize = 256;
/// Elements that one command asks for.
pub(super) const PART: usize = 1_000;
/// Differences that are shown.
const SHOWN_MAX: u64 = 10;
/// What expires so soon may be gone at one side alone.
const SOON_MS: u64 = 1_000;

pub(super) struct Verifier {
    node: NodeLink,
    waiting: Vec<Found>,
    commands: usize,
    compared: u64,
    different: u64,
    passed_over: u64,
}

/// What a command must answer.
pub(super) type IsAnswered = Box<dyn Fn(&Reply) -> bool>;

impl Verifier {
    pub(super) fn new(servers: &[Server]) -> Result<Self, CommandFailed> {
        Ok(Self {
            node: NodeLink::connect(servers)?,
            waiting: Vec::new(),
            commands: 0,
            compared: 0,
            different: 0,
            passed_over: 0,
        })
    }

    /// Compares a key, now or with later ones.
    pub(super) fn check(&mut self, found: Found) -> Result<(), CommandFailed> {
        if expires_soon(&found) {
            self.passed_over += 1;
            return Ok(());
        }
        let is_other = |last: &Found| last.database != found.database;
        if self.waiting.last().is_some_and(is_other) {
            self.compare()?;
        }
        self.commands += 2 + found.value.len() / PART;
        self.waiting.push(found);
        if self.commands >= BATCH {
            self.compare()?;
        }
        Ok(())
    }

    /// Says what was found, and whether all is the same.
    pub(super) fn finish(mut self) -> Result<bool, CommandFailed> {
        self.compare()?;
        let compared = counted(self.compared, ("key was compared", "keys were compared"));
        let different = match (self.different, self.compared) {
            (_, 0) => "there is none to compare".to_owned(),
            (0, 1) => "it is the same".to_owned(),
            (0, _) => "all are the same".to_owned(),
            (different, _) => counted(different, ("DIFFERS", "DIFFER")),
        };
        say(format_args!("{compared}: {different}\n"));
        if self.passed_over > 0 {
            let one = "key expires at this time and was not compared";
            let several = "keys expire at this time and were not compared";
            let passed_over = counted(self.passed_over, (one, several));
            say(format_args!("{passed_over}\n"));
        }
        Ok(self.different == 0)
    }

    fn compare(&mut self) -> Result<(), CommandFailed> {
        let all = std::mem::take(&mut self.waiting);
        self.commands = 0;
        let Some(first) = all.first() else {
            return Ok(());
        };
        let database = first.database;
        let (mut commands, mut expected) = (Vec::new(), Vec::new());
        for found in all {
            let reads = reads(&found);
            let count = reads.len();
            let (asked, answered): (Vec<Words>, Vec<IsAnswered>) = reads.into_iter().unzip();
            commands.extend(asked);
            expected.push((found, answered));
            debug_assert!(count > 0, "each type is read by some command");
        }
        let mut replies = self.replies(database, &commands)?.into_iter();
        let mut asked = commands.iter();
        for (found, answered) in expected {
            self.compared += 1;
            let mut differs = None;
            for is_right in answered {
                let (reply, command) = (replies.next(), asked.next());
                if !reply.as_ref().is_some_and(is_right) {
                    differs = differs.or(command);
                }
            }
            if let Some(command) = differs {
                self.differs(&found, &String::from_utf8_lossy(&command[0]));
            }
        }
        Ok(())
    }

    /// What the nodes answer to commands that read. A node that ends is left for the next one. If
    /// there is no such database, there are no replies.
    fn replies(&mut self, database: u64, commands: &[Words]) -> Result<Vec<Reply>, CommandFailed> {
        let began = Instant::now();
        let ask = |link: &mut SourceLink| match link.try_select(database)? {
            None => link.pipeline(commands),
            Some(_) => Ok(Vec::new()),
        };
        loop {
            match self.node.link().and_then(ask) {
                Err(failed) if began.elapsed() >= RETRY_MAX => return Err(failed),
                Err(_) => self.node.leave(),
                replies => return replies,
            }
            std::thread::sleep(RETRY_EVERY);
        }
    }

    /// A key is not as the answer to this command says.
    fn differs(&mut self, found: &Found, command: &str) {
        self.different += 1;
        if self.different <= SHOWN_MAX {
            say(format_args!(
                "DIFFERS: {} \"{}\" of database {} in what {command} answers\n",
                found.value.type_name(),
                shown_key(&found.key),
                found.database,
            ));
        }
    }
}

fn expires_soon(found: &Found) -> bool {
    let soon = now_ms() + SOON_MS;
    let is_soon = |at: Option<u64>| at.is_some_and(|at| at <= soon);
    let has_such_fields = match &found.value {
        RdbValue::Hash(all) => all.iter().any(|it| is_soon(it.deadline)),
        _ => false,
    };
    is_soon(found.deadline) || has_such_fields
}

pub(super) fn is(expected: Reply) -> IsAnswered {
    Box::new(move |reply| *reply == expected)
}

pub(super) fn integer(number: impl TryInto<i64>) -> Reply {
    Reply::Int(number.try_into().unwrap_or(i64::MAX))
}

/// The commands that read a key, with what they must answer.
fn reads(found: &Found) -> Vec<(Words, IsAnswered)> {
    let key = &found.key;
    let all_of = |name: &str, given: &[&[u8]]| {
        let mut command = words([name.as_bytes(), key]);
        command.extend(given.iter().map(|word| word.to_vec()));
        command
    };
    let bulk = |bytes: &[u8]| Reply::Bulk(bytes.to_vec());
    let mut reads = Vec::new();
    let deadline = found.deadline.map_or(Reply::Int(-1), integer);
    reads.push((all_of("PEXPIRETIME", &[]), is(deadline)));
    let mut has = |name: &str, count: usize| {
        reads.push((all_of(name, &[]), is(integer(count))));
    };
    match &found.value {
        RdbValue::String(bytes) => reads.push((all_of("GET", &[]), is(bulk(bytes)))),
        RdbValue::List(all) => {
            has("LLEN", all.len());
            for (number, part) in all.chunks(PART).enumerate() {
                let first = number * PART;
                let [from, to] = [first, first + part.len() - 1].map(|at| at.to_string());
                let items = part.iter().map(|item| bulk(item)).collect();
                let range = all_of("LRANGE", &[from.as_bytes(), to.as_bytes()]);
                reads.push((range, is(Reply::Array(items))));
            }
        }
        RdbValue::Set(all) => {
            has("SCARD", all.len());
            for part in all.chunks(PART) {
                let members: Vec<&[u8]> = part.iter().map(|member| &member[..]).collect();
                let are = vec![Reply::Int(1); part.len()];
                reads.push((all_of("SMISMEMBER", &members), is(Reply::Array(are))));
            }
        }
        RdbValue::SortedSet(all) => {
            has("ZCARD", all.len());
            for part in all.chunks(PART) {
                let members: Vec<&[u8]> = part.iter().map(|it| &it.member[..]).collect();
                let scores: Vec<f64> = part.iter().map(|it| it.score).collect();
                let answered: IsAnswered = Box::new(move |reply| has_scores(reply, &scores));
                reads.push((all_of("ZMSCORE", &members), answered));
            }
        }
        RdbValue::Hash(all) => {
            has("HLEN", all.len());
            for part in all.chunks(PART) {
                let names: Vec<&[u8]> = part.iter().map(|it| &it.field[..]).collect();
                let values = part.iter().map(|it| bulk(&it.value)).collect();
                reads.push((all_of("HMGET", &names), is(Reply::Array(values))));
                if part.iter().any(|it| it.deadline.is_some()) {
                    reads.push(deadlines_of(key, part));
                }
            }
        }
        RdbValue::Stream(stream) => reads.extend(streams::reads(key, stream)),
        // It cannot be compared. That it is missing is a difference.
        _ => reads.push((all_of("EXISTS", &[]), is(Reply::Int(1)))),
    }
    reads
}

fn deadlines_of(key: &[u8], part: &[HashField]) -> (Words, IsAnswered) {
    let count = part.len().to_string();
    let mut command = words([b"HPEXPIRETIME", key, b"FIELDS", count.as_bytes()]);
    command.extend(part.iter().map(|it| it.field.clone()));
    let deadline = |it: &HashField| it.deadline.map_or(Reply::Int(-1), integer);
    (
        command,
        is(Reply::Array(part.iter().map(deadline).collect())),
    )
}

/// Whether scores are the same, in whatever digits they are answered.
fn has_scores(reply: &Reply, scores: &[f64]) -> bool {
    let Reply::Array(all) = reply else {
        return false;
    };
    let is_same = |(reply, score): (&Reply, &f64)| match reply {
        Reply::Bulk(text) => {
            let text = str::from_utf8(text).ok();
            text.and_then(|text| text.parse::<f64>().ok()) == Some(*score)
        }
        _ => false,
    };
    all.len() == scores.len() && all.iter().zip(scores).all(is_same)
}
