//! Replies of operations in several parts: transactions, watched keys, scripts.

use super::{
    Arrived, ArrivedOutcome, Outstanding, PendingReply, ReplyAsker, SessionEffect, Stepped,
};
use crate::resp::encode::Encoder;
use crate::resp::scripts;
use crate::resp::session::SLICE_KEYS;
use crate::resp::session::commands::scripts::NO_SCRIPT;
use crate::resp::session::commands::transactions::{COMMAND_OVERHEAD, Prepared, WatchedKeys};
use bytes::Bytes;
use doyen_engine::Publication;
use doyen_engine::command::{ErrorText, Join, Shape};
use doyen_engine::op::{Action, Failure, Outcome, ScriptCall, Value, Watched, Work};
use doyen_placement::{KeyspaceId, MapId};

/// Places of commands that one reply names.
const NAMED_MAX: usize = 20;

const TOO_LARGE: &str = "ERR the transaction writes or reads more in one partition than one value \
    may have (--value-max): nothing of that was executed; send it in several transactions";

/// How a command of a running transaction is answered.
#[derive(Debug)]
pub(crate) enum CommandAnswer {
    One(Shape),
    Many(Join, usize),
    /// A command that touches no key was executed already.
    Encoded(Bytes),
}

impl CommandAnswer {
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
pub(crate) struct PartsReply {
    then: PartsPurpose,
    asked: Outstanding,
    /// The outcome of each step.
    outcomes: Vec<Outcome>,
    parts: Vec<PartitionSteps>,
    /// Messages that leave once all parts are executed.
    pub(crate) messages: Vec<Publication>,
    /// What the connection had before the commands of a transaction that touch no key. It has that
    /// again if a watched key has changed.
    pub(crate) before: Option<ClientBefore>,
    /// Whether the other members were asked for the scripts that are not stored.
    looked_elsewhere: bool,
    /// Whether they have answered, and what they know is not taken yet.
    found_elsewhere: bool,
    /// Bytes that only this reply holds.
    held: usize,
}

/// What commands of a transaction change of a connection.
#[derive(Debug)]
pub(crate) struct ClientBefore {
    pub(crate) name: Bytes,
    pub(crate) map: MapId,
}

/// What the outcomes are for.
#[derive(Debug)]
pub(crate) enum PartsPurpose {
    /// The reply of a script.
    Script,
    /// The texts of scripts that a transaction needs, by its `EXEC`.
    Prepare(Box<Prepared>),
    /// It was refused.
    Refused(ErrorText),
    /// The text of the script of this digest, which is to be run then.
    Find(scripts::ScriptDigest, Box<ScriptCall>),
    /// The script of this digest was stored.
    Stored(scripts::ScriptDigest),
    /// Which scripts of these digests are known.
    Exists(Vec<scripts::ScriptDigest>),
    /// `EXEC` answers with them.
    Answer(Vec<CommandAnswer>),
    /// `WATCH` keeps them: the keyspace, and the keys.
    Watch(KeyspaceId, Vec<(MapId, Bytes)>),
}

/// The steps of a transaction in one partition.
#[derive(Debug)]
struct PartitionSteps {
    steps: Vec<usize>,
    state: PartState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartState {
    UnderWay,
    Executed,
    /// A watched key has changed.
    Changed,
    Failed(Failure),
}

impl PartsReply {
    /// Nothing is asked yet.
    pub(crate) fn new(then: PartsPurpose) -> Self {
        Self {
            then,
            asked: Outstanding::default(),
            outcomes: Vec::new(),
            parts: Vec::new(),
            messages: Vec::new(),
            before: None,
            looked_elsewhere: false,
            found_elsewhere: false,
            held: 0,
        }
    }

    /// Whether the text of a script is here, and the script is to be run.
    fn has_found(&self) -> bool {
        let found = matches!(self.outcomes.first(), Some(Outcome::Bulk(_)));
        self.asked.waits() == 0 && found && matches!(self.then, PartsPurpose::Find(..))
    }

    /// Takes the script whose text is here, with its digest. Its outcome is the reply.
    fn take_found(&mut self) -> Option<(scripts::ScriptDigest, Box<ScriptCall>, Value)> {
        if !self.has_found() {
            return None;
        }
        let Some(Outcome::Bulk(body)) = self.outcomes.pop() else {
            return None;
        };
        let PartsPurpose::Find(digest, call) =
            std::mem::replace(&mut self.then, PartsPurpose::Script)
        else {
            return None;
        };
        self.parts.clear();
        Some((digest, call, body))
    }

    /// The scripts that are not stored: their places among the outcomes, and their digests.
    fn unknown(&self) -> Vec<(usize, scripts::ScriptDigest)> {
        let digests = match &self.then {
            PartsPurpose::Find(digest, _) => std::slice::from_ref(digest),
            PartsPurpose::Prepare(prepared) => prepared.missing(),
            PartsPurpose::Exists(digests) => digests,
            _ => return Vec::new(),
        };
        let asks = self.asked.waits() > 0 || !self.not_asked().is_empty();
        if asks
            || self
                .parts
                .iter()
                .any(|part| part.state != PartState::Executed)
        {
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
    fn not_asked(&self) -> &[scripts::ScriptDigest] {
        match &self.then {
            PartsPurpose::Exists(digests) if self.asked.waits() == 0 => {
                digests.get(self.outcomes.len()..).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// The next digests to look up. None if one of the last ones failed.
    fn asks_next(&self) -> &[scripts::ScriptDigest] {
        let rest = self.not_asked();
        let mut last = self.parts.iter().rev().take(SLICE_KEYS);
        let failed = |part: &PartitionSteps| matches!(part.state, PartState::Failed(_));
        if !rest.is_empty() && last.any(failed) {
            return &[];
        }
        rest.get(..SLICE_KEYS).unwrap_or(rest)
    }

    /// Whether something is to be looked up, or was found, before the reply is made.
    fn prepares(&self) -> bool {
        self.found_elsewhere
            || self.has_found()
            || self.is_prepared()
            || self.looks_elsewhere()
            || !self.asks_next().is_empty()
    }

    /// Whether other members are to be asked for scripts.
    fn looks_elsewhere(&self) -> bool {
        !self.looked_elsewhere && !self.unknown().is_empty()
    }

    /// The text of the script at this place among the outcomes is here.
    fn bring(&mut self, at: usize, body: &Bytes) {
        self.outcomes[at] = match self.then {
            PartsPurpose::Exists(_) => Outcome::Int(1),
            _ => Outcome::Bulk(Value::from(&body[..])),
        };
    }

    /// Why it was refused.
    pub(crate) const fn refused(&self) -> Option<&ErrorText> {
        match &self.then {
            PartsPurpose::Refused(why) => Some(why),
            _ => None,
        }
    }

    /// Whether the texts of a transaction's scripts are here.
    fn is_prepared(&self) -> bool {
        self.asked.waits() == 0
            && matches!(self.then, PartsPurpose::Prepare(_))
            && self
                .parts
                .iter()
                .all(|part| part.state == PartState::Executed)
    }

    /// Takes the transaction whose scripts were looked up, with what was found.
    fn take_prepared(&mut self) -> Option<(Box<Prepared>, Vec<Outcome>)> {
        if !self.is_prepared() {
            return None;
        }
        let refused = PartsPurpose::Refused(Shape::Plain.failure(Failure::Unavailable).into());
        match std::mem::replace(&mut self.then, refused) {
            PartsPurpose::Prepare(prepared) => Some((prepared, std::mem::take(&mut self.outcomes))),
            _ => None,
        }
    }

    /// Takes the outcome of a part.
    fn take_part(&mut self, came: ArrivedOutcome) {
        let ArrivedOutcome {
            part,
            token,
            outcome,
            copied,
            ..
        } = came;
        if !self.asked.take(token) {
            return;
        }
        let Some(part) = self.parts.get_mut(part as usize) else {
            return;
        };
        part.state = match outcome {
            Outcome::Failed(why) => PartState::Failed(why),
            Outcome::Many(outcomes) => {
                self.held += copied;
                for (at, outcome) in part.steps.iter().zip(outcomes) {
                    if let Some(place) = self.outcomes.get_mut(*at) {
                        *place = outcome;
                    }
                }
                PartState::Executed
            }
            Outcome::Nil if matches!(self.then, PartsPurpose::Answer(_)) => PartState::Changed,
            outcome => {
                for at in &part.steps {
                    if let Some(place) = self.outcomes.get_mut(*at) {
                        *place = outcome.clone();
                    }
                }
                PartState::Executed
            }
        };
    }

    /// Whether all parts are executed.
    fn is_executed(&self) -> bool {
        let executed = |part: &PartitionSteps| part.state == PartState::Executed;
        self.asked.waits() == 0 && self.parts.iter().all(executed)
    }

    /// All parts have their outcomes.
    fn end(&mut self) -> SessionEffect {
        if !self.is_executed() {
            // Nothing is published of what was executed in part.
            self.messages.clear();
        }
        if let Some(watching) = self.watched() {
            return SessionEffect::Watches(watching);
        }
        let mut parts = self.parts.iter();
        let changed = parts.any(|part| part.state == PartState::Changed);
        match self.before.take().filter(|_| changed) {
            Some(before) => SessionEffect::Restores(before),
            None => SessionEffect::Nothing,
        }
    }

    /// The keys that are watched from now on, if this was a `WATCH` that got all of its answers.
    fn watched(&mut self) -> Option<WatchedKeys> {
        let PartsPurpose::Watch(keyspace, keys) = &mut self.then else {
            return None;
        };
        if self
            .parts
            .iter()
            .any(|part| part.state != PartState::Executed)
        {
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
        Some(WatchedKeys {
            keyspace: *keyspace,
            keys: keys.collect(),
        })
    }

    /// Appends the reply.
    pub(crate) fn append_to(&mut self, encoder: &mut Encoder<'_>) {
        let executed = |part: &PartitionSteps| part.state == PartState::Executed;
        if self
            .parts
            .iter()
            .any(|part| part.state == PartState::Changed)
        {
            return encoder.nil_array();
        }
        if !self.parts.iter().all(executed) {
            return self.encode_failure(encoder);
        }
        let answers = match &self.then {
            PartsPurpose::Answer(answers) => answers,
            PartsPurpose::Watch(..) => return encoder.simple("OK"),
            PartsPurpose::Find(..) => return encoder.error(NO_SCRIPT),
            PartsPurpose::Refused(why) => return encoder.error(&why.0),
            // The transaction is taken before this is encoded.
            PartsPurpose::Prepare(_) => {
                return encoder.error(Shape::Plain.failure(Failure::Unavailable));
            }
            PartsPurpose::Stored(digest) => return encoder.bulk(digest.as_bytes()),
            PartsPurpose::Script => {
                let mut outcomes = std::mem::take(&mut self.outcomes).into_iter();
                let outcome = outcomes.next().unwrap_or(Outcome::Nil);
                return encoder.reply(&Shape::Encoded.reply(outcome));
            }
            PartsPurpose::Exists(_) => {
                let outcomes = std::mem::take(&mut self.outcomes).into_iter();
                return encoder.reply(&Join::Values.reply(outcomes));
            }
        };
        encoder.array(answers.len());
        let mut outcomes = std::mem::take(&mut self.outcomes).into_iter();
        for answer in answers {
            match answer {
                CommandAnswer::One(shape) => {
                    let outcome = outcomes.next().unwrap_or(Outcome::Nil);
                    encoder.reply(&shape.reply(outcome));
                }
                CommandAnswer::Many(join, count) => {
                    let own = outcomes.by_ref().take(*count);
                    encoder.reply(&join.reply(own));
                }
                CommandAnswer::Encoded(reply) => encoder.encoded(reply),
            }
        }
    }

    /// Appends what failed. If parts were executed, it says which commands have steps in them.
    fn encode_failure(&self, encoder: &mut Encoder<'_>) {
        let parts = || self.parts.iter();
        let failures = parts().filter_map(|part| match part.state {
            PartState::Failed(why) => Some(why),
            _ => None,
        });
        // What may have happened outweighs what did not.
        let worst = failures
            .max_by_key(|why| *why == Failure::Unknown)
            .unwrap_or(Failure::Unavailable);
        let PartsPurpose::Answer(answers) = &self.then else {
            return encoder.error(Shape::Plain.failure(worst));
        };
        let text = match worst {
            Failure::TooLarge => TOO_LARGE,
            other => Shape::Plain.failure(other),
        };
        let mut executed = vec![false; self.outcomes.len()];
        for part in parts().filter(|part| part.state == PartState::Executed) {
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

impl PartsReply {
    /// Submits the next part, which has one step. Returns whether its outcome comes from elsewhere.
    pub(crate) fn submit(&mut self, asker: &mut ReplyAsker<'_>, work: impl Into<Work>) -> bool {
        let step = self.outcomes.len();
        self.submit_steps(asker, work, vec![step])
    }

    /// Submits these, each as a part. Returns what they weigh.
    pub(crate) fn submit_all(&mut self, asker: &mut ReplyAsker<'_>, works: Vec<Work>) -> usize {
        let weights = works.iter().map(|work| work.bytes() + COMMAND_OVERHEAD);
        let weight = weights.sum();
        for work in works {
            self.submit(asker, work);
        }
        weight
    }

    /// The same for a part with these steps of all.
    pub(crate) fn submit_steps(
        &mut self,
        asker: &mut ReplyAsker<'_>,
        work: impl Into<Work>,
        steps: Vec<usize>,
    ) -> bool {
        let part = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let elsewhere = self.asked.ask(asker, part, work);
        let last = steps.iter().max().map_or(0, |last| last + 1);
        let most = self.outcomes.len().max(last);
        self.outcomes.resize(most, Outcome::Nil);
        self.parts.push(PartitionSteps {
            steps,
            state: PartState::UnderWay,
        });
        elsewhere
    }

    /// Looks up the next digests of a `SCRIPT EXISTS`, once the outcomes of those before have come:
    /// few enough at a time that other clients do not wait long.
    pub(crate) fn ask_for_next(&mut self, asker: &mut ReplyAsker<'_>) {
        for digest in self.asks_next().to_vec() {
            self.submit(asker, scripts::about(&digest, Action::Exists));
        }
    }

    /// Texts of scripts were looked up where they are stored, and then asked of the other members.
    /// Takes what is here by now, and asks for the others once.
    fn look_elsewhere(&mut self, asker: &mut ReplyAsker<'_>) {
        let first = self.looks_elsewhere();
        let (connection, slot) = (asker.connection, asker.slot);
        let context = &mut *asker.context;
        for (at, digest) in self.unknown() {
            let now = context.now();
            if let Some(body) = context.front.scripts.get(&digest, now) {
                self.bring(at, &body);
            } else if first && context.ask_for_script(connection, slot, &digest) {
                self.asked.question(1);
            }
        }
        self.looked_elsewhere |= first;
        self.found_elsewhere = false;
    }

    /// The text of a script was looked up: it is run, or there is none.
    fn run_found(&mut self, asker: &mut ReplyAsker<'_>) {
        let Some((digest, mut call, body)) = self.take_found() else {
            return;
        };
        let body = Bytes::copy_from_slice(&body);
        call.body = body.clone();
        let now = asker.context.now();
        asker.context.front.scripts.found(digest, body, now);
        self.submit(asker, *call);
    }
}

impl PendingReply for PartsReply {
    fn asked(&self) -> &Outstanding {
        &self.asked
    }

    fn take(&mut self, arrived: Arrived) -> SessionEffect {
        match arrived {
            Arrived::Outcome(came) => self.take_part(came),
            Arrived::Script => {
                self.asked.answered();
                self.found_elsewhere = true;
            }
            Arrived::Thread(_) | Arrived::Members(_) | Arrived::Unblock(_) => {}
        }
        let goes_on = self.asked.waits() > 0 || self.prepares();
        if goes_on {
            SessionEffect::Nothing
        } else {
            self.end()
        }
    }

    fn has_step(&self) -> bool {
        self.asked.waits() == 0 && (self.prepares() || !self.messages.is_empty())
    }

    fn step(&mut self, asker: &mut ReplyAsker<'_>, _work: &mut usize) -> Stepped {
        self.ask_for_next(asker);
        self.look_elsewhere(asker);
        self.run_found(asker);
        if self.is_executed() {
            let messages = std::mem::take(&mut self.messages);
            messages.into_iter().for_each(|m| asker.context.publish(m));
        }
        match self.take_prepared() {
            Some((prepared, found)) => Stepped::Executes(prepared, found),
            None => Stepped::Waits,
        }
    }

    fn held(&self) -> usize {
        self.held
    }

    fn blocks(&self) -> bool {
        true
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        self.append_to(encoder);
        true
    }
}
