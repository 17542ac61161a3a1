//! Keys with lists and sorted sets. Clients send commands of Redis, and each has a model here: what
//! it does to a value, and its reply. So the history of such a key is judged like that of any other
//! one (`linear`), over small collections and over tables.
//!
//! - Queues: a list and its twin in the same partition, which have one history. Elements are pushed
//!   to the list, taken from either, and moved from the list to its twin. No element is pushed
//!   twice.
//! - Ranked: a sorted set of few members, whose scores change often. Its first members are taken
//!   like those of a queue.

use super::client::twin_of;
use super::world::World;
use crate::linear::{Answer, Call, OtherCall};
use bytes::Bytes;
use doyen_engine::command::{Arguments, BlockingPop, COMMANDS, CommandReply, ParsedRequest, Shape};
use doyen_engine::op::{Action, Failure, Outcome};
use rand::Rng;
use std::collections::VecDeque;

/// What the names of these keys begin with.
const QUEUE: &str = "{queue";
const RANKED: &str = "ranked";

/// The members of a sorted set: more than there are scores.
const MEMBERS: [&str; 5] = ["a", "bb", "ccc", "dddd", "e"];

/// Marks who sends to the twin of a queue.
const ON_TWIN: u32 = 1 << 31;

/// The names of queues and of sorted sets.
pub(crate) fn keys(queues: usize, ranked: usize) -> impl Iterator<Item = String> {
    let queues = (0..queues).map(|n| format!("{QUEUE}-{n}}}"));
    queues.chain((0..ranked).map(|n| format!("{RANKED}-{n}")))
}

/// Whether what has this name is one of these keys.
pub(crate) fn is_modelled(key: &str) -> bool {
    is_queue(key) || key.starts_with(RANKED)
}

fn is_queue(key: &str) -> bool {
    key.starts_with(QUEUE)
}

/// In whose order a call happens: what a client sends together is executed in its order on each key
/// (docs/redis.md), and a queue and its twin are two. A move between them counts to the first one.
pub(crate) fn sender(client: u32, call: &Call) -> u32 {
    match call {
        Call::Other(call) if call.words[1].ends_with(b"~") => client | ON_TWIN,
        _ => client,
    }
}

/// The client of a sender.
pub(crate) const fn client_of(sender: u32) -> u32 {
    sender & !ON_TWIN
}

/// A command on one of these keys.
pub(crate) fn command(words: &[&str]) -> Call {
    Call::Other(OtherCall {
        words: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
        run: match words.get(1) {
            Some(key) if is_queue(key) => run_on_queue,
            _ => run_on_ranked,
        },
    })
}

/// What reads a key, and its twin.
pub(crate) fn reads(key: &str) -> Vec<Call> {
    if is_queue(key) {
        let keys = [key.to_owned(), twin_of(key)];
        return keys
            .iter()
            .map(|key| command(&["LRANGE", key, "0", "-1"]))
            .collect();
    }
    vec![command(&["ZRANGE", key, "0", "-1", "WITHSCORES"])]
}

/// A last write, and what a client that waits for an element is given.
pub(crate) fn gives(key: &str, serial: u64) -> Call {
    let value = serial.to_string();
    if is_queue(key) {
        command(&["LPUSH", key, &value])
    } else {
        command(&["ZADD", key, "1", &value])
    }
}

/// What counts the elements of a key.
pub(crate) fn counts(key: &str, _: u64) -> Call {
    let name = if is_queue(key) { "LLEN" } else { "ZCARD" };
    command(&[name, key])
}

/// A command as it is parsed.
fn request(words: &[Vec<u8>]) -> ParsedRequest {
    let words: Vec<Bytes> = words.iter().map(|w| Bytes::copy_from_slice(w)).collect();
    let args: &dyn Arguments = &words.as_slice();
    match COMMANDS.find(args).and_then(|spec| spec.request(args, 0)) {
        Ok(request) => request,
        Err(why) => unreachable!("{words:?}: {why:?}"),
    }
}

/// The key and the operation of a command, and the shape of its reply. A pop takes from its first
/// key, and does not wait.
pub(crate) fn operation(call: &OtherCall) -> (Bytes, Action, Shape) {
    of_request(request(&call.words))
}

fn of_request(request: ParsedRequest) -> (Bytes, Action, Shape) {
    match request {
        ParsedRequest::One { key, action, shape } => (key, action, shape),
        ParsedRequest::Pop(pop) => {
            let (key, action) = pop.take_at(0);
            (key, action, pop.shape)
        }
        ParsedRequest::Many(many) => unreachable!("{many:?}"),
    }
}

/// The operation of a command on one key, and that with which it waits before.
pub(crate) fn asked(words: &[&str]) -> (Action, Option<Action>) {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let request = request(&words);
    let wait = match &request {
        ParsedRequest::Pop(pop) => Some(pop.wait_at(0)),
        _ => None,
    };
    (of_request(request).1, wait)
}

/// The reply of a command.
pub(crate) fn replied(words: &[&str], outcome: &Outcome) -> CommandReply {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    of_request(request(&words)).2.reply(outcome.clone())
}

/// A pop that waits at all keys of this command, and for each of them the command that takes there.
pub(crate) fn waiting(words: &[&str]) -> Option<(BlockingPop, Vec<Call>)> {
    let Call::Other(call) = command(words) else {
        return None;
    };
    let ParsedRequest::Pop(pop) = request(&call.words) else {
        return None;
    };
    let takes = match words {
        [name, from, to, rest @ ..] if *name == "BLMOVE" => {
            vec![command(&[&[*name, *from, *to], rest].concat())]
        }
        [name, keys @ .., time] => {
            let of_key = |key: &&str| command(&[name, key, time]);
            keys.iter().map(of_key).collect()
        }
        _ => return None,
    };
    Some((*pop, takes))
}

/// The outcome of a command as that of an operation on a value: its reply, as a text.
pub(crate) fn shown(call: &OtherCall, outcome: &Outcome) -> Outcome {
    if let Outcome::Failed(_) = outcome {
        return outcome.clone();
    }
    let (.., shape) = operation(call);
    match shape.reply(outcome.clone()) {
        CommandReply::Int(number) => Outcome::Int(number),
        CommandReply::Nil | CommandReply::NilArray => Outcome::Nil,
        CommandReply::Status(_) => Outcome::Ok,
        CommandReply::Error(_) => Outcome::Failed(Failure::WrongType),
        reply => Outcome::Bulk(text(&reply).as_bytes().into()),
    }
}

/// The members of a sorted set that are answered. `None`: this is another reply.
pub(crate) fn members(reply: &CommandReply) -> Option<Vec<Vec<u8>>> {
    let member = |part: &CommandReply| match part {
        CommandReply::Bulk(member) => Some(member.to_vec()),
        _ => None,
    };
    match reply {
        CommandReply::Array(parts) | CommandReply::Pairs(parts) => {
            parts.iter().map(member).collect()
        }
        CommandReply::Fields(fields) => Some(fields.iter().map(<[u8]>::to_vec).collect()),
        _ => None,
    }
}

/// A reply in a few words.
fn text(reply: &CommandReply) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = |parts: &[CommandReply]| parts.iter().map(text).collect::<Vec<_>>().join(" ");
    match reply {
        CommandReply::Bulk(value) | CommandReply::Double(value) => lossy(value),
        CommandReply::Array(parts) | CommandReply::Pairs(parts) => all(parts),
        CommandReply::Fields(fields) => fields.iter().map(lossy).collect::<Vec<_>>().join(" "),
        CommandReply::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn bulk(text: &str) -> Answer {
    Answer::Bulk(text.as_bytes().to_vec())
}

fn number(count: usize) -> Answer {
    Answer::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

/// The words of a command, and what the key holds, as texts.
fn texts<'a>(words: &'a [Vec<u8>], value: Option<&'a [u8]>) -> (Vec<&'a str>, &'a str) {
    let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).unwrap_or_default();
    let words = words.iter().map(|word| text(word)).collect();
    (words, value.map_or("", text))
}

/// What a command does to a queue: the elements of the list, and behind a bar those of its twin.
fn run_on_queue(words: &[Vec<u8>], value: Option<&[u8]>) -> (Option<Vec<u8>>, Answer) {
    let (words, held) = texts(words, value);
    let (list, twin) = held.split_once('|').unwrap_or_default();
    let mut lists = [list, twin].map(|of| of.split_whitespace().collect::<VecDeque<&str>>());
    let own = usize::from(words[1].ends_with('~'));
    let list = &mut lists[own];
    let answer = match words[..] {
        ["LPUSH", _, element] => {
            list.push_front(element);
            number(list.len())
        }
        ["RPUSH", _, element] => {
            list.push_back(element);
            number(list.len())
        }
        ["LLEN", _] => number(list.len()),
        ["LRANGE", ..] => bulk(&Vec::from(list.clone()).join(" ")),
        ["LPOP", _] => list.pop_front().map_or(Answer::Nil, bulk),
        ["RPOP", _] => list.pop_back().map_or(Answer::Nil, bulk),
        ["BLPOP" | "BRPOP", key, _] => {
            let taken = if words[0] == "BLPOP" {
                list.pop_front()
            } else {
                list.pop_back()
            };
            taken.map_or(Answer::Nil, |taken| bulk(&format!("{key} {taken}")))
        }
        ["LMOVE" | "BLMOVE", ..] => match list.pop_back() {
            Some(taken) => {
                lists[1 - own].push_front(taken);
                bulk(taken)
            }
            None => Answer::Nil,
        },
        _ => unreachable!("{words:?}"),
    };
    let [list, twin] = lists.map(|list| Vec::from(list).join(" "));
    let holds = !(list.is_empty() && twin.is_empty());
    (holds.then(|| format!("{list}|{twin}").into_bytes()), answer)
}

/// What a command does to a sorted set: its members in order, each behind its score.
fn run_on_ranked(words: &[Vec<u8>], value: Option<&[u8]>) -> (Option<Vec<u8>>, Answer) {
    let (words, held) = texts(words, value);
    let held: Vec<&str> = held.split_whitespace().collect();
    let pairs = held.chunks_exact(2);
    let mut all: Vec<(i64, &str)> = pairs
        .map(|pair| (pair[0].parse().unwrap_or(0), pair[1]))
        .collect();
    let place = |all: &[(i64, &str)], member| all.iter().position(|(_, held)| *held == member);
    let shown = |(score, member): &(i64, &str)| format!("{member} {score}");
    let answer = match words[..] {
        ["ZADD", _, score, member] | ["ZINCRBY", _, score, member] => {
            let former = place(&all, member).map(|at| all.remove(at).0);
            let given: i64 = score.parse().unwrap_or(0);
            let adds = words[0] == "ZINCRBY";
            let score = given + former.filter(|_| adds).unwrap_or(0);
            all.push((score, member));
            if adds {
                bulk(&score.to_string())
            } else {
                Answer::Int(i64::from(former.is_none()))
            }
        }
        ["ZREM", _, member] => {
            let gone = place(&all, member).map(|at| all.remove(at));
            Answer::Int(i64::from(gone.is_some()))
        }
        ["ZPOPMIN", _] | ["ZPOPMAX", _] if all.is_empty() => bulk(""),
        ["ZPOPMIN", _] => bulk(&shown(&all.remove(0))),
        ["ZPOPMAX", _] => all.pop().map_or(Answer::Nil, |last| bulk(&shown(&last))),
        ["BZPOPMIN", ..] if all.is_empty() => Answer::Nil,
        ["BZPOPMIN", key, _] => bulk(&format!("{key} {}", shown(&all.remove(0)))),
        ["ZSCORE", _, member] => match place(&all, member) {
            Some(at) => bulk(&all[at].0.to_string()),
            None => Answer::Nil,
        },
        ["ZRANK", _, member] => place(&all, member).map_or(Answer::Nil, number),
        ["ZCARD", _] => number(all.len()),
        ["ZRANGE", ..] => bulk(&all.iter().map(shown).collect::<Vec<_>>().join(" ")),
        _ => unreachable!("{words:?}"),
    };
    all.sort_unstable();
    let held = all
        .iter()
        .map(|(score, member)| format!("{score} {member}"));
    let held: Vec<String> = held.collect();
    (
        (!all.is_empty()).then(|| held.join(" ").into_bytes()),
        answer,
    )
}

impl World {
    /// A command on one of these keys that does not wait.
    pub(crate) fn draw_command(&mut self, key: &str, serial: u64) -> Call {
        let draw = self.rng.random_range(0..100);
        let (twin, value) = (twin_of(key), serial.to_string());
        if is_queue(key) {
            return match draw {
                0..12 => command(&["LRANGE", key, "0", "-1"]),
                12..20 => command(&["LRANGE", &twin, "0", "-1"]),
                20..52 => command(&["LPUSH", key, &value]),
                52..60 => command(&["RPUSH", key, &value]),
                60..72 => command(&["RPOP", key]),
                72..76 => command(&["LPOP", key]),
                // Ranges may be cut between the two.
                76..90 if self.moves_elements() => command(&["LMOVE", key, &twin, "RIGHT", "LEFT"]),
                76..90 => command(&["RPUSH", &twin, &value]),
                _ => command(&["RPOP", &twin]),
            };
        }
        let member = MEMBERS[self.rng.random_range(0..MEMBERS.len())];
        let score = self.rng.random_range(0..4).to_string();
        match draw {
            0..20 => command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            20..28 => command(&["ZRANK", key, member]),
            28..36 => command(&["ZSCORE", key, member]),
            36..54 => command(&["ZADD", key, &score, member]),
            54..72 => command(&["ZINCRBY", key, &score, member]),
            72..84 => command(&["ZREM", key, member]),
            84..94 => command(&["ZPOPMIN", key]),
            _ => command(&["ZPOPMAX", key]),
        }
    }

    /// The words of a pop that waits.
    pub(crate) fn draw_waiting(&mut self, key: &str) -> Vec<String> {
        let twin = twin_of(key);
        let words: &[&str] = match self.rng.random_range(0..4) {
            _ if !is_queue(key) => &["BZPOPMIN", key, "0"],
            0 => &["BRPOP", key, "0"],
            1 => &["BLPOP", &twin, key, "0"],
            2 if self.moves_elements() => &["BLMOVE", key, &twin, "RIGHT", "LEFT", "0"],
            _ => &["BRPOP", key, &twin, "0"],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn moves_elements(&self) -> bool {
        self.mix.placed != super::mix::Placed::Range
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::{HistoryEntry, Verdict, check};

    /// The replies of these commands, one after the other.
    fn replies(commands: &[&str]) -> Vec<Answer> {
        let mut value: Option<Vec<u8>> = None;
        let replies = commands.iter().map(|words| {
            let words: Vec<&str> = words.split(' ').collect();
            let Call::Other(call) = command(&words) else {
                unreachable!("{words:?}");
            };
            _ = operation(&call);
            let (next, answer) = (call.run)(&call.words, value.as_deref());
            value = next;
            answer
        });
        replies.collect()
    }

    #[test]
    fn a_queue_answers_as_redis_does() {
        let [key, twin] = ["{queue-0}", "{queue-0}~"];
        let commands = [
            format!("LPUSH {key} 1"),
            format!("LPUSH {key} 2"),
            format!("BLMOVE {key} {twin} RIGHT LEFT 0"),
            format!("LRANGE {key} 0 -1"),
            format!("BRPOP {twin} 0"),
            format!("BRPOP {twin} 0"),
            format!("RPOP {key}"),
            format!("LRANGE {key} 0 -1"),
        ];
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let expected = [
            Answer::Int(1),
            Answer::Int(2),
            bulk("1"),
            bulk("2"),
            bulk(&format!("{twin} 1")),
            Answer::Nil,
            bulk("2"),
            bulk(""),
        ];
        assert_eq!(replies(&commands), expected);
    }

    /// Seed 10401 of the simulation: a read of a queue waited for its primary, and a read of the twin,
    /// which was sent with it, did not.
    #[test]
    fn what_is_sent_together_to_a_queue_and_its_twin_has_no_order() {
        let [key, twin] = ["{queue-0}", "{queue-0}~"];
        let entry = |client, words: &[&str], [called, answered]: [u64; 2], answer| {
            let call = command(words);
            HistoryEntry {
                client: sender(client, &call),
                call,
                called,
                answered: Some((answered, answer)),
                waited: answered,
            }
        };
        let read = |of, at, answer: &str| entry(0, &["LRANGE", of, "0", "-1"], at, bulk(answer));
        let pushed = entry(1, &["LPUSH", key, "7"], [4, 5], number(1));
        let apart = [
            read(key, [1, 6], "7"),
            read(twin, [2, 3], ""),
            pushed.clone(),
        ];
        assert_eq!(check(&apart), Verdict::Linearizable);
        let same = [read(key, [1, 6], "7"), read(key, [2, 3], ""), pushed];
        assert_eq!(check(&same), Verdict::Violated(0));
    }

    #[test]
    fn a_sorted_set_answers_as_redis_does() {
        let commands = [
            "ZADD ranked-0 3 b",
            "ZADD ranked-0 3 a",
            "ZINCRBY ranked-0 2 b",
            "ZRANK ranked-0 b",
            "ZRANGE ranked-0 0 -1 WITHSCORES",
            "BZPOPMIN ranked-0 0",
            "ZPOPMAX ranked-0",
            "ZPOPMIN ranked-0",
        ];
        let expected = [
            Answer::Int(1),
            Answer::Int(1),
            bulk("5"),
            Answer::Int(1),
            bulk("a 3 b 5"),
            bulk("ranked-0 a 3"),
            bulk("b 5"),
            bulk(""),
        ];
        assert_eq!(replies(&commands), expected);
    }
}
