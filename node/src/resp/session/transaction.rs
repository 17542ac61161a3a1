//! Transactions: `MULTI` queues commands, and `EXEC` executes them. `WATCH` makes `EXEC` depend on
//! keys.
//!
//! All keys of one partition are read and written together, as one operation of the engine. A
//! transaction with keys in several partitions is executed in as many parts, which are submitted
//! together; each is executed whole or not at all. Then nothing may be watched, and if some parts
//! were executed and others were not, the reply says which commands were.
//!
//! ```text
//!   MULTI ─> Queue ── EXEC ─> parts, one a partition ─> Running ── the last outcome ─> reply
//!   WATCH ─────────────────────────────────────────────> Running ── the last outcome ─> Watching
//! ```

use super::subscribing::publication;
use super::*;
use crate::resp::command::PubSubCommand;
use doyen_engine::Publication;
use doyen_engine::command::Join;
use doyen_engine::op::{Step, TRANSACTION_STEPS_MAX, Transaction, Watched};
use doyen_placement::level::TRANSACTIONS;
use std::collections::BTreeMap;

/// Most commands of a transaction.
const COMMANDS_MAX: usize = 100_000;
/// Most bytes of a transaction's commands.
const BYTES_MAX: usize = PENDING_BYTES_MAX;
/// What a command costs besides its bytes.
const COMMAND_OVERHEAD: usize = 128;
/// Places of commands that one reply names.
const NAMED_MAX: usize = 20;

const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
const CROSS_WATCHED: &str = "CROSSSLOT the watched keys and those of the transaction are not all in \
    one partition: nothing happened; give them the same {tag}";
const TOO_LARGE: &str = "ERR the transaction writes or reads more in one partition than one value \
    may have (--value-max): nothing of that was executed; send it in several transactions";
const OTHER_KEYSPACE: &str = "ERR the watched keys are in another keyspace: nothing happened; WATCH \
    keys of the keyspace that the commands use";

/// What a client's transaction has so far.
#[derive(Debug, Default)]
pub(super) struct Transacting {
    /// The commands since `MULTI`.
    queue: Option<Queue>,
    watching: Watching,
    /// Where answers of commands go that touch no key, while `EXEC` runs them.
    captured: Option<BytesMut>,
}

/// The keys that a client watches, all of one keyspace.
#[derive(Debug, Default)]
struct Watching {
    keyspace: KeyspaceId,
    keys: Vec<Watched>,
}

/// The commands of a transaction.
#[derive(Debug)]
struct Queue {
    commands: Vec<Queued>,
    steps: Vec<Step>,
    /// A command was refused, so that `EXEC` executes none.
    refused: bool,
    /// The database that later commands use.
    map: MapId,
    bytes: usize,
    /// What of that is charged to the budget.
    charged: usize,
}

/// A command of a transaction.
#[derive(Debug)]
enum Queued {
    /// One step, answered in this shape.
    One(Shape),
    /// So many steps, answered together.
    Many(Join, usize),
    /// A command that touches no key, by its place in the table.
    Other(Request, u16),
    /// A message, which leaves once the transaction is executed.
    Publish(Publication),
    /// Its options are wrong.
    Wrong(ErrorText),
}

/// How a command of a running transaction is answered.
#[derive(Debug)]
enum Answer {
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

/// Operations whose outcomes make one reply.
#[derive(Debug)]
pub(super) struct Running {
    then: Then,
    /// The outcome of each step.
    outcomes: Vec<Outcome>,
    parts: Vec<Part>,
    /// Messages that leave once all parts are executed.
    messages: Vec<Publication>,
    /// How many parts have no outcome yet.
    waits: usize,
    /// Bytes that only this reply holds.
    held: usize,
}

/// What the outcomes are for.
#[derive(Debug)]
enum Then {
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
    /// How many outcomes are missing.
    pub(super) const fn waits(&self) -> usize {
        self.waits
    }

    /// Bytes that only this reply holds.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// The operations that are under way.
    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        let waits = |part: &&Part| part.came == Came::Nothing;
        self.parts.iter().filter(waits).map(|part| part.token)
    }

    /// Takes the outcome of a part. `copied` are the bytes that only this reply holds.
    pub(super) fn take(&mut self, part: u32, token: u64, outcome: Outcome, copied: usize) {
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
    pub(super) fn encode(&mut self, encoder: &mut Encoder<'_>) {
        let executed = |part: &Part| part.came == Came::Executed;
        if self.parts.iter().any(|part| part.came == Came::Changed) {
            return encoder.nil_array();
        }
        if !self.parts.iter().all(executed) {
            return self.encode_failure(encoder);
        }
        let Then::Answer(answers) = &self.then else {
            return encoder.simple("OK");
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
        let failures = self.parts.iter().filter_map(|part| match part.came {
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
        let parts = self.parts.iter();
        for part in parts.filter(|part| part.came == Came::Executed) {
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

pub(super) fn is_exec(args: Args<'_>) -> bool {
    args.get(0).eq_ignore_ascii_case(b"EXEC")
}

/// Whether a command that touches no key may be in a transaction: it is answered at once.
const fn is_queued(request: &Request) -> bool {
    use ConnectionCommand as C;
    matches!(
        request,
        Request::Wait
            | Request::Constant(_)
            | Request::Server(ServerCommand::Time)
            | Request::Connection(
                C::Ping(_)
                    | C::Echo(_)
                    | C::Select(_)
                    | C::Unwatch
                    | C::ClientId
                    | C::ClientGetName
                    | C::ClientSetName(_)
                    | C::ClientSetInfo(..)
            )
    )
}

impl Session {
    /// Whether commands are queued, and not executed.
    #[inline]
    pub(super) fn is_queueing(&self) -> bool {
        self.transacting
            .as_ref()
            .is_some_and(|transacting| transacting.queue.is_some())
    }

    fn queue(&mut self) -> Option<&mut Queue> {
        self.transacting.as_mut()?.queue.as_mut()
    }

    /// Where the answer of the present command goes, if `EXEC` runs it.
    #[inline]
    pub(super) fn captured(&mut self) -> Option<&mut BytesMut> {
        self.transacting.as_mut()?.captured.as_mut()
    }

    /// The transaction ends, and nothing is watched any more.
    pub(super) fn end_transaction(&mut self) {
        if let Some(transacting) = self.transacting.take()
            && let Some(mut queue) = transacting.queue
        {
            charge(&self.budget, &mut self.charged, &mut queue.charged, |_| 0);
        }
    }

    /// Nothing is watched any more.
    pub(super) fn unwatch(&mut self) {
        if let Some(transacting) = &mut self.transacting {
            transacting.watching = Watching::default();
        }
    }

    pub(super) fn begin_transaction(&mut self) {
        let map = self.map;
        let transacting = self.transacting.get_or_insert_default();
        transacting.queue = Some(Queue {
            commands: Vec::new(),
            steps: Vec::new(),
            refused: false,
            map,
            bytes: 0,
            charged: 0,
        });
        self.answer(|e| e.simple("OK"));
    }

    /// Queues a command after `MULTI`. False: it is executed at once.
    #[cold]
    pub(super) fn queue_command(&mut self, context: &mut Context, args: Args<'_>) -> bool {
        let spec = command::find(args);
        let at_once = |name: &str| {
            matches!(
                name,
                "exec" | "discard" | "multi" | "watch" | "quit" | "reset"
            )
        };
        self.command = spec.as_ref().map_or(counts::UNKNOWN, |spec| spec.number);
        match spec {
            Ok(spec) if at_once(spec.name) => return false,
            _ if args.too_large().is_some() => return self.refuse_queued(None),
            Ok(spec) => match self.admits(context, spec, args) {
                Err(why) => return self.refuse_queued(Some(&why)),
                Ok(()) => {
                    let parsed = command::parse(spec, args, context.unix_ms());
                    if let Err(why) = self.push_queued(spec, args, parsed) {
                        return self.refuse_queued(Some(&why));
                    }
                }
            },
            Err(_) if is_exec(args) => {
                self.refuse_exec();
                return true;
            }
            Err(why) => return self.refuse_queued(Some(&why)),
        }
        self.answer(|e| e.simple("QUEUED"));
        true
    }

    /// `EXEC` with arguments: the transaction ends, if there is one, and nothing is watched.
    pub(super) fn refuse_exec(&mut self) {
        self.end_transaction();
        let text = "EXECABORT Transaction discarded because of: wrong number of arguments for \
                    'exec' command";
        self.refuse(&text.into());
    }

    /// A command cannot be queued, so `EXEC` executes none. Without a reason it is executed as if
    /// there were no transaction, to be refused for what is wrong with it.
    fn refuse_queued(&mut self, why: Option<&ErrorText>) -> bool {
        if let Some(queue) = self.queue() {
            queue.refused = true;
        }
        why.is_some_and(|why| {
            self.refuse(why);
            true
        })
    }

    fn push_queued(
        &mut self,
        spec: &table::Spec,
        args: Args<'_>,
        parsed: command::Parsed,
    ) -> Result<(), ErrorText> {
        let touches = self.touches;
        let (budget, cluster_port) = (self.budget.clone(), self.cluster_port);
        let Some(queue) = self
            .transacting
            .as_mut()
            .and_then(|transacting| transacting.queue.as_mut())
        else {
            return Ok(());
        };
        let bytes = args.iter_from(0).map(<[u8]>::len).sum::<usize>();
        let steps = args.len().max(1);
        let more = bytes + steps * COMMAND_OVERHEAD;
        if queue.commands.len() >= COMMANDS_MAX || queue.bytes + more > BYTES_MAX {
            return Err(format!(
                "ERR the transaction is too large: at most {COMMANDS_MAX} commands and \
                 {BYTES_MAX} bytes"
            )
            .into());
        }
        if budget.refuses(more) {
            return Err(Shape::Plain.failure(Failure::Overloaded).into());
        }
        let touched = |action: Action| {
            if touches { action } else { action.untouching() }
        };
        // The arguments are copied: a slice of them would hold all of the input around it.
        let queued = match parsed {
            Ok(Request::Data(data::Request::One { key, action, shape })) => {
                queue.steps.push(Step {
                    map: queue.map,
                    key: Bytes::copy_from_slice(&key),
                    action: touched(action).detached(),
                });
                Queued::One(shape)
            }
            Ok(Request::Data(data::Request::Many(many))) => {
                let before = queue.steps.len();
                for at in (1..args.len()).step_by(many.step()) {
                    queue.steps.push(Step {
                        map: queue.map,
                        key: Bytes::copy_from_slice(args.get(at)),
                        action: touched(many.action(&args, at)).detached(),
                    });
                }
                Queued::Many(many.join(), queue.steps.len() - before)
            }
            Ok(Request::PubSub(PubSubCommand::Publish { sharded })) => {
                match publication(args, sharded) {
                    Ok(message) => Queued::Publish(message),
                    Err(why) => Queued::Wrong(why),
                }
            }
            Ok(request) if is_queued(&request) => {
                if let Request::Connection(ConnectionCommand::Select(index)) = request
                    && let Some(map) = databases::map(index).filter(|_| !cluster_port)
                {
                    queue.map = map;
                }
                Queued::Other(request, spec.number)
            }
            Ok(_) => {
                return Err(format!(
                    "ERR {} is not supported inside MULTI: send it before MULTI or after EXEC",
                    spec.name.to_uppercase().replace('|', " ")
                )
                .into());
            }
            Err(why) => Queued::Wrong(why),
        };
        queue.commands.push(queued);
        queue.bytes += more;
        let now = queue.bytes;
        charge(&budget, &mut self.charged, &mut queue.charged, |_| now);
        Ok(())
    }

    /// `EXEC`.
    pub(super) fn execute_transaction(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
    ) {
        let mut transacting = self.transacting.take().unwrap_or_default();
        let Some(mut queue) = transacting.queue.take() else {
            self.transacting = Some(transacting);
            return self.answer(|e| e.error("ERR EXEC without MULTI"));
        };
        charge(&self.budget, &mut self.charged, &mut queue.charged, |_| 0);
        let watching = transacting.watching;
        if queue.refused {
            return self.answer(|e| e.error(ABORTED));
        }
        if !watching.keys.is_empty() && queue.steps.is_empty() {
            // Whether a watched key has changed must be asked all the same.
            let Watched { map, key, .. } = watching.keys[0].clone();
            queue.steps.push(Step {
                map,
                key,
                action: Action::Exists,
            });
        }
        if !watching.keys.is_empty() && watching.keyspace != self.keyspace {
            return self.answer(|e| e.error(OTHER_KEYSPACE));
        }
        let parts = match self.parts_of(context, &queue.steps, &watching.keys) {
            Ok(parts) => parts,
            Err(why) => return self.refuse(&why),
        };
        if parts.is_empty() {
            // No command touches a key.
            let (answers, messages) = self.run_others(connection, context, queue.commands);
            messages.into_iter().for_each(|m| context.publish(m));
            return self.answer(|e| {
                e.array(answers.len());
                for answer in &answers {
                    if let Answer::Encoded(reply) = answer {
                        e.encoded(reply);
                    }
                }
            });
        }
        let (answers, messages) = self.run_others(connection, context, queue.commands);
        let mut running = Running {
            messages,
            then: Then::Answer(answers),
            outcomes: vec![Outcome::Nil; queue.steps.len()],
            parts: Vec::with_capacity(parts.len()),
            waits: 0,
            held: 0,
        };
        let (slot, patience) = (self.next(), self.patience(context));
        let mut steps: Vec<Option<Step>> = queue.steps.into_iter().map(Some).collect();
        let mut weight = running.messages.iter().map(Publication::bytes).sum();
        let mut expected = 0;
        let mut watched = Some(watching.keys);
        for places in parts {
            let transaction = Transaction {
                keyspace: self.keyspace,
                watched: watched.take().unwrap_or_default(),
                steps: places
                    .iter()
                    .filter_map(|at| steps.get_mut(*at)?.take())
                    .collect(),
            };
            weight += transaction.bytes();
            let answers_value = transaction.answers_value();
            let elsewhere = running.submit(connection, context, (slot, patience), transaction);
            if elsewhere && answers_value {
                expected += self.expected;
            }
            if let Some(part) = running.parts.last_mut() {
                part.steps = places;
            }
        }
        self.expect(State::Running(Box::new(running)), weight, expected);
    }

    /// Executes the commands that touch no key, in order, and says how each command is answered, and
    /// which messages are to be published.
    fn run_others(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        commands: Vec<Queued>,
    ) -> (Vec<Answer>, Vec<Publication>) {
        let exec = self.command;
        self.transacting.get_or_insert_default().captured = Some(BytesMut::new());
        let (mut answers, mut messages) = (Vec::with_capacity(commands.len()), Vec::new());
        for queued in commands {
            answers.push(match queued {
                Queued::One(shape) => Answer::One(shape),
                Queued::Many(join, count) => Answer::Many(join, count),
                Queued::Other(request, number) => {
                    self.command = number;
                    self.run(connection, context, Args::none(), request);
                    Answer::Encoded(self.take_captured())
                }
                Queued::Publish(message) => {
                    let count = self.subscribers_of(context, &message);
                    messages.push(message);
                    self.answer(|e| e.integer(count));
                    Answer::Encoded(self.take_captured())
                }
                Queued::Wrong(why) => {
                    self.answer(|e| e.error(&why.0));
                    Answer::Encoded(self.take_captured())
                }
            });
        }
        self.command = exec;
        self.transacting = None;
        (answers, messages)
    }

    fn take_captured(&mut self) -> Bytes {
        let captured = self.captured().map(BytesMut::split);
        captured.unwrap_or_default().freeze()
    }

    /// The steps of each partition, in the order in which the partitions are first named.
    fn parts_of(
        &self,
        context: &Context,
        steps: &[Step],
        watched: &[Watched],
    ) -> Result<Vec<Vec<usize>>, ErrorText> {
        if self.cluster_port {
            let keys = steps.iter().map(|step| &step.key);
            let keys = keys.chain(watched.iter().map(|watched| &watched.key));
            here(context, keys.map(|key| &**key))?;
        }
        let Some(keyspace) = cluster::assigned(context.view(), self.keyspace) else {
            return Err(Shape::Plain.failure(Failure::NoPartition).into());
        };
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut places: BTreeMap<Option<PartitionId>, usize> = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            let partition = keyspace.partition_of(step.map, &step.key);
            let place = *places.entry(partition).or_insert_with(|| {
                parts.push(Vec::new());
                parts.len() - 1
            });
            parts[place].push(at);
        }
        let crossed = |watched: &Watched| {
            let partition = keyspace.partition_of(watched.map, &watched.key);
            !places.contains_key(&partition)
        };
        if !watched.is_empty() && (parts.len() > 1 || watched.iter().any(crossed)) {
            return Err(CROSS_WATCHED.into());
        }
        if parts.len() > 1 && context.door.strict_transactions {
            return Err(Shape::Plain.failure(Failure::CrossPartition).into());
        }
        if parts.iter().any(|part| part.len() > TRANSACTION_STEPS_MAX) {
            return Err(format!(
                "ERR the transaction has too many keys in one partition: at most \
                 {TRANSACTION_STEPS_MAX}; nothing happened"
            )
            .into());
        }
        Ok(parts)
    }

    /// `WATCH`.
    pub(super) fn watch(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
    ) {
        if self.is_queueing() {
            return self.answer(|e| e.error("ERR WATCH inside MULTI is not allowed"));
        }
        let level = context.view().map(|view| view.installed.level);
        if level.is_some_and(|level| level < TRANSACTIONS) {
            return self.answer(|e| e.error(Shape::Plain.failure(Failure::OldMembers)));
        }
        let watching = self.transacting.as_ref().map(|t| &t.watching);
        let before = watching.map_or(0, |watching| watching.keys.len());
        let other = watching.is_some_and(|w| !w.keys.is_empty() && w.keyspace != self.keyspace);
        if other {
            return self.answer(|e| e.error(OTHER_KEYSPACE));
        }
        if before + args.len() > TRANSACTION_STEPS_MAX {
            return self.answer(|e| {
                e.error(&format!(
                    "ERR too many keys are watched: at most {TRANSACTION_STEPS_MAX}; UNWATCH first"
                ))
            });
        }
        let keys: Vec<_> = args
            .iter_from(1)
            .map(|key| (self.map, Bytes::copy_from_slice(key)))
            .collect();
        let mut running = Running {
            messages: Vec::new(),
            then: Then::Watch(self.keyspace, keys.clone()),
            outcomes: vec![Outcome::Nil; keys.len()],
            parts: Vec::with_capacity(keys.len()),
            waits: 0,
            held: 0,
        };
        let (slot, patience) = (self.next(), self.patience(context));
        let mut weight = 0;
        for (at, (map, key)) in keys.into_iter().enumerate() {
            weight += key.len() + COMMAND_OVERHEAD;
            let operation = Operation {
                keyspace: self.keyspace,
                map,
                key,
                action: Action::Version,
            };
            running.submit(connection, context, (slot, patience), operation);
            if let Some(part) = running.parts.last_mut() {
                part.steps = vec![at];
            }
        }
        self.expect(State::Running(Box::new(running)), weight, 0);
    }

    /// The last outcome of a transaction has come. True if there are messages to be published.
    pub(super) fn ran(&mut self, at: usize) -> bool {
        let Some(State::Running(running)) = self.slots.get_mut(at).map(|slot| &mut slot.state)
        else {
            return false;
        };
        let messages = std::mem::take(&mut running.messages);
        let executed = running.parts.iter().all(|p| p.came == Came::Executed);
        if let Some(watching) = running.watched() {
            let kept = &mut self.transacting.get_or_insert_default().watching;
            kept.keyspace = watching.keyspace;
            kept.keys.extend(watching.keys);
        }
        if executed && !messages.is_empty() {
            self.publish_next(messages);
            return true;
        }
        false
    }
}

impl Running {
    /// Submits the next part. Returns whether its outcome comes from elsewhere.
    fn submit(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        (slot, patience): (u64, Patience),
        work: impl Into<doyen_engine::op::Work>,
    ) -> bool {
        let connection = connection.clone();
        let part = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let (token, elsewhere) = context.submit(work, patience, |read| ReplyWaiter {
            connection,
            slot,
            part,
            read,
        });
        self.parts.push(Part {
            token,
            steps: Vec::new(),
            came: Came::Nothing,
        });
        self.waits += 1;
        elsewhere
    }
}
