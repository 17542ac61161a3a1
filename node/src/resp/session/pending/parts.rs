//! Operations in several parts whose outcomes make one reply: transactions, watched keys, scripts.

use super::super::commands::scripts as script;
use super::super::commands::transactions::{COMMAND_OVERHEAD, Prepared, Watching};
use super::*;
use crate::resp::scripts;
use doyen_engine::Publication;
use doyen_engine::command::Join;
use doyen_engine::op::{ScriptCall, Value, Watched, Work};

/// Places of commands that one reply names.
const NAMED_MAX: usize = 20;

const TOO_LARGE: &str = "ERR the transaction writes or reads more in one partition than one value \
    may have (--value-max): nothing of that was executed; send it in several transactions";

/// How a command of a running transaction is answered.
#[derive(Debug)]
pub(in crate::resp::session) enum Answer {
    One(Shape),
    Many(Join, usize),
    /// A command that touches no key was executed already.
    Encoded(Bytes),
}

impl Answer {
    /// How many steps it has.
    const fn steps(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(_, count) => *count,
            Self::Encoded(_) => 0,
        }
    }
}

/// Operations in several parts, whose outcomes make one reply.
#[derive(Debug)]
pub(in crate::resp::session) struct Running {
    then: Then,
    /// The outcome of each step.
    outcomes: Vec<Outcome>,
    parts: Vec<Part>,
    /// Messages that leave once all parts are executed.
    pub(in crate::resp::session) messages: Vec<Publication>,
    /// What the connection had before the commands of a transaction that touch no key. It has that
    /// again if a watched key has changed.
    pub(in crate::resp::session) before: Option<Before>,
    /// How many parts have no outcome yet, and how many questions for scripts no answer.
    waits: usize,
    /// Whether the other members were asked for the scripts that are not stored.
    pub(in crate::resp::session) looked_elsewhere: bool,
    /// Bytes that only this reply holds.
    held: usize,
}

/// What commands of a transaction change of a connection.
#[derive(Debug)]
pub(in crate::resp::session) struct Before {
    pub(in crate::resp::session) name: Bytes,
    pub(in crate::resp::session) map: MapId,
}

/// What the outcomes are for.
#[derive(Debug)]
pub(in crate::resp::session) enum Then {
    /// The reply of a script.
    Script,
    /// The texts of scripts that a transaction needs, by its `EXEC`.
    Prepare(Box<Prepared>),
    /// It was refused.
    Refused(ErrorText),
    /// The text of the script of this digest, which is to be run then.
    Find(scripts::Digest, Box<ScriptCall>),
    /// The script of this digest was stored.
    Stored(scripts::Digest),
    /// Which scripts of these digests are known.
    Exists(Vec<scripts::Digest>),
    /// `EXEC` answers with them.
    Answer(Vec<Answer>),
    /// `WATCH` keeps them: the keyspace, and the keys.
    Watch(KeyspaceId, Vec<(MapId, Bytes)>),
}

/// The steps of a transaction in one partition.
#[derive(Debug)]
struct Part {
    token: u64,
    steps: Vec<usize>,
    came: Came,
}

/// What came of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Nothing,
    Executed,
    /// A watched key has changed.
    Changed,
    Failed(Failure),
}

impl Running {
    /// Nothing is asked yet.
    pub(in crate::resp::session) const fn new(then: Then) -> Self {
        Self {
            then,
            outcomes: Vec::new(),
            parts: Vec::new(),
            messages: Vec::new(),
            before: None,
            waits: 0,
            looked_elsewhere: false,
            held: 0,
        }
    }

    /// Whether the text of a script is here, and the script is to be run.
    pub(in crate::resp::session) fn has_found(&self) -> bool {
        let found = matches!(self.outcomes.first(), Some(Outcome::Bulk(_)));
        self.waits == 0 && found && matches!(self.then, Then::Find(..))
    }

    /// Takes the script whose text is here, with its digest. Its outcome is the reply.
    pub(in crate::resp::session) fn take_found(
        &mut self,
    ) -> Option<(scripts::Digest, Box<ScriptCall>, Value)> {
        if !self.has_found() {
            return None;
        }
        let Some(Outcome::Bulk(body)) = self.outcomes.pop() else {
            return None;
        };
        let Then::Find(digest, call) = std::mem::replace(&mut self.then, Then::Script) else {
            return None;
        };
        self.parts.clear();
        Some((digest, call, body))
    }

    /// The scripts that are not stored: their places among the outcomes, and their digests.
    pub(in crate::resp::session) fn unknown(&self) -> Vec<(usize, scripts::Digest)> {
        let digests = match &self.then {
            Then::Find(digest, _) => std::slice::from_ref(digest),
            Then::Prepare(prepared) => prepared.missing(),
            Then::Exists(digests) => digests,
            _ => return Vec::new(),
        };
        let asks = self.waits > 0 || !self.not_asked().is_empty();
        if asks || self.parts.iter().any(|part| part.came != Came::Executed) {
            return Vec::new();
        }
        let places = digests.iter().zip(&self.outcomes).enumerate();
        places
            .filter(|(_, (digest, outcome))| {
                !digest.is_empty() && matches!(outcome, Outcome::Nil | Outcome::Int(0))
            })
            .map(|(at, (digest, _))| (at, digest.clone()))
            .collect()
    }

    /// The digests that are not looked up yet, if the outcomes of those before have come.
    fn not_asked(&self) -> &[scripts::Digest] {
        match &self.then {
            Then::Exists(digests) if self.waits == 0 => {
                digests.get(self.outcomes.len()..).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// The next digests to look up. None if one of the last ones failed.
    pub(in crate::resp::session) fn asks_next(&self) -> &[scripts::Digest] {
        let rest = self.not_asked();
        let mut last = self.parts.iter().rev().take(SLICE_KEYS);
        let failed = |part: &Part| matches!(part.came, Came::Failed(_));
        if !rest.is_empty() && last.any(failed) {
            return &[];
        }
        rest.get(..SLICE_KEYS).unwrap_or(rest)
    }

    /// Whether other members are to be asked for scripts.
    pub(in crate::resp::session) fn looks_elsewhere(&self) -> bool {
        !self.looked_elsewhere && !self.unknown().is_empty()
    }

    /// The text of the script at this place among the outcomes is here.
    pub(in crate::resp::session) fn bring(&mut self, at: usize, body: &Bytes) {
        self.outcomes[at] = match self.then {
            Then::Exists(_) => Outcome::Int(1),
            _ => Outcome::Bulk(Value::from(&body[..])),
        };
    }

    /// The reply waits for the answer to a question for a script.
    pub(in crate::resp::session) const fn wait_for_script(&mut self) {
        self.waits += 1;
    }

    /// A question for a script was answered. Returns whether there is nothing more to wait for.
    pub(in crate::resp::session) const fn asked_for_script(&mut self) -> bool {
        self.waits = self.waits.saturating_sub(1);
        self.waits == 0
    }

    /// Why it was refused.
    pub(in crate::resp::session) const fn refused(&self) -> Option<&ErrorText> {
        match &self.then {
            Then::Refused(why) => Some(why),
            _ => None,
        }
    }

    /// Whether the texts of a transaction's scripts are here.
    pub(in crate::resp::session) fn is_prepared(&self) -> bool {
        self.waits == 0
            && matches!(self.then, Then::Prepare(_))
            && self.parts.iter().all(|part| part.came == Came::Executed)
    }

    /// Takes the transaction whose scripts were looked up, with what was found.
    pub(in crate::resp::session) fn take_prepared(
        &mut self,
    ) -> Option<(Box<Prepared>, Vec<Outcome>)> {
        if !self.is_prepared() {
            return None;
        }
        let refused = Then::Refused(Shape::Plain.failure(Failure::Unavailable).into());
        match std::mem::replace(&mut self.then, refused) {
            Then::Prepare(prepared) => Some((prepared, std::mem::take(&mut self.outcomes))),
            _ => None,
        }
    }

    /// How many outcomes are missing.
    pub(in crate::resp::session) const fn waits(&self) -> usize {
        self.waits
    }

    /// Bytes that only this reply holds.
    pub(in crate::resp::session) const fn held(&self) -> usize {
        self.held
    }

    /// The operations that are under way.
    pub(in crate::resp::session) fn tokens(&self) -> impl Iterator<Item = u64> {
        let waits = |part: &&Part| part.came == Came::Nothing;
        self.parts.iter().filter(waits).map(|part| part.token)
    }

    /// Takes the outcome of a part. `copied` are the bytes that only this reply holds.
    pub(in crate::resp::session) fn take(
        &mut self,
        part: u32,
        token: u64,
        outcome: Outcome,
        copied: usize,
    ) {
        let Some(part) = self
            .parts
            .get_mut(part as usize)
            .filter(|part| part.token == token && part.came == Came::Nothing)
        else {
            return;
        };
        self.waits -= 1;
        part.came = match outcome {
            Outcome::Failed(why) => Came::Failed(why),
            Outcome::Many(outcomes) => {
                self.held += copied;
                for (at, outcome) in part.steps.iter().zip(outcomes) {
                    if let Some(place) = self.outcomes.get_mut(*at) {
                        *place = outcome;
                    }
                }
                Came::Executed
            }
            Outcome::Nil if matches!(self.then, Then::Answer(_)) => Came::Changed,
            outcome => {
                for at in &part.steps {
                    if let Some(place) = self.outcomes.get_mut(*at) {
                        *place = outcome.clone();
                    }
                }
                Came::Executed
            }
        };
    }

    /// The keys that are watched from now on, if this was a `WATCH` that got all of its answers.
    fn watched(&mut self) -> Option<Watching> {
        let Then::Watch(keyspace, keys) = &mut self.then else {
            return None;
        };
        if self.parts.iter().any(|part| part.came != Came::Executed) {
            return None;
        }
        let keys = std::mem::take(keys).into_iter().zip(&self.outcomes);
        let keys = keys.map(|((map, key), outcome)| Watched {
            map,
            key,
            version: match outcome {
                Outcome::Int(version) => Some(*version),
                _ => None,
            },
        });
        Some(Watching {
            keyspace: *keyspace,
            keys: keys.collect(),
        })
    }

    /// Appends the reply.
    pub(in crate::resp::session) fn encode(&mut self, encoder: &mut Encoder<'_>) {
        let executed = |part: &Part| part.came == Came::Executed;
        if self.parts.iter().any(|part| part.came == Came::Changed) {
            return encoder.nil_array();
        }
        if !self.parts.iter().all(executed) {
            return self.encode_failure(encoder);
        }
        let answers = match &self.then {
            Then::Answer(answers) => answers,
            Then::Watch(..) => return encoder.simple("OK"),
            Then::Find(..) => return encoder.error(script::NO_SCRIPT),
            Then::Refused(why) => return encoder.error(&why.0),
            // The transaction is taken before this is encoded.
            Then::Prepare(_) => return encoder.error(Shape::Plain.failure(Failure::Unavailable)),
            Then::Stored(digest) => return encoder.bulk(digest.as_bytes()),
            Then::Script => {
                let mut outcomes = std::mem::take(&mut self.outcomes).into_iter();
                let outcome = outcomes.next().unwrap_or(Outcome::Nil);
                return encoder.reply(&Shape::Encoded.reply(outcome));
            }
            Then::Exists(_) => {
                let outcomes = std::mem::take(&mut self.outcomes).into_iter();
                return encoder.reply(&Join::Values.reply(outcomes));
            }
        };
        encoder.array(answers.len());
        let mut outcomes = std::mem::take(&mut self.outcomes).into_iter();
        for answer in answers {
            match answer {
                Answer::One(shape) => {
                    let outcome = outcomes.next().unwrap_or(Outcome::Nil);
                    encoder.reply(&shape.reply(outcome));
                }
                Answer::Many(join, count) => {
                    let own = outcomes.by_ref().take(*count);
                    encoder.reply(&join.reply(own));
                }
                Answer::Encoded(reply) => encoder.encoded(reply),
            }
        }
    }

    /// Appends what failed. If parts were executed, it says which commands have steps in them.
    fn encode_failure(&self, encoder: &mut Encoder<'_>) {
        let parts = || self.parts.iter();
        let failures = parts().filter_map(|part| match part.came {
            Came::Failed(why) => Some(why),
            _ => None,
        });
        // What may have happened outweighs what did not.
        let worst = failures
            .max_by_key(|why| *why == Failure::Unknown)
            .unwrap_or(Failure::Unavailable);
        let Then::Answer(answers) = &self.then else {
            return encoder.error(Shape::Plain.failure(worst));
        };
        let text = match worst {
            Failure::TooLarge => TOO_LARGE,
            other => Shape::Plain.failure(other),
        };
        let mut executed = vec![false; self.outcomes.len()];
        for part in parts().filter(|part| part.came == Came::Executed) {
            for step in &part.steps {
                if let Some(done) = executed.get_mut(*step) {
                    *done = true;
                }
            }
        }
        if !executed.contains(&true) {
            return encoder.error(text);
        }
        let (mut left, mut places) = (&executed[..], Vec::new());
        for (place, answer) in answers.iter().enumerate() {
            let (steps, after) = left.split_at_checked(answer.steps()).unwrap_or_default();
            left = after;
            if steps.contains(&true) {
                places.push((place + 1).to_string());
            }
        }
        let more = if places.len() > NAMED_MAX {
            format!(" and {} more", places.len() - NAMED_MAX)
        } else {
            String::new()
        };
        places.truncate(NAMED_MAX);
        encoder.error(&format!(
            "UNKNOWN the transaction was executed in part: of its {} commands, these were \
             executed: {}{more}; the others failed: {text}",
            answers.len(),
            places.join(", ")
        ));
    }
}

impl Running {
    /// Submits the next part, which has one step. Returns whether its outcome comes from elsewhere.
    pub(in crate::resp::session) fn submit(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        slot: (u64, Patience),
        work: impl Into<Work>,
    ) -> bool {
        let step = self.outcomes.len();
        self.submit_steps((connection, slot), context, work, vec![step])
    }

    /// The same for a part with these steps of all.
    pub(in crate::resp::session) fn submit_steps(
        &mut self,
        (connection, (slot, patience)): (&Rc<Connection>, (u64, Patience)),
        context: &mut Context,
        work: impl Into<Work>,
        steps: Vec<usize>,
    ) -> bool {
        let connection = connection.clone();
        let part = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let (token, elsewhere) = context.submit(work, patience, |read| ReplyWaiter {
            connection,
            slot,
            part,
            read,
        });
        let last = steps.iter().max().map_or(0, |last| last + 1);
        let most = self.outcomes.len().max(last);
        self.outcomes.resize(most, Outcome::Nil);
        self.parts.push(Part {
            token,
            steps,
            came: Came::Nothing,
        });
        self.waits += 1;
        elsewhere
    }
}

impl Session {
    /// Asks for these, whose outcomes make one reply.
    pub(in crate::resp::session) fn run_parts(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        mut running: Running,
        works: Vec<Work>,
    ) {
        let (slot, patience) = (self.next(), self.patience(context));
        let weight = works
            .iter()
            .map(|work| work.bytes() + COMMAND_OVERHEAD)
            .sum();
        for work in works {
            running.submit(connection, context, (slot, patience), work);
        }
        self.expect(State::Running(Box::new(running)), weight, 0);
    }

    /// The last outcome of an operation in several parts has come. Returns whether it goes on.
    pub(in crate::resp::session) fn ran(&mut self, at: usize) -> bool {
        let Some(State::Running(running)) = self.slots.get_mut(at).map(|slot| &mut slot.state)
        else {
            return false;
        };
        let asks = !running.asks_next().is_empty() || running.looks_elsewhere();
        if running.has_found() || running.is_prepared() || asks {
            return true;
        }
        let messages = std::mem::take(&mut running.messages);
        let executed = running.parts.iter().all(|part| part.came == Came::Executed);
        let changed = running.parts.iter().any(|part| part.came == Came::Changed);
        let before = running.before.take().filter(|_| changed);
        if let Some(watching) = running.watched() {
            let kept = &mut self.transacting.get_or_insert_default().watching;
            kept.keyspace = watching.keyspace;
            kept.keys.extend(watching.keys);
        }
        if let Some(Before { name, map }) = before {
            (self.name, self.map) = (name, map);
        }
        if executed && !messages.is_empty() {
            self.publish_next(messages);
            return true;
        }
        false
    }
}
