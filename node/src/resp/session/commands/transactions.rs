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
//!
//! If `EXEC` runs scripts by digests that this node does not know, it looks their texts up first,
//! as
//! `EVALSHA` does.

use super::super::pending::parts::{Answer, Before, Running, Then};
use super::scripts::{NO_SCRIPT, call_of, digest_of};
use super::subscriptions::publication;
use super::*;
use crate::resp::command::{PubSubCommand, ScriptCommand};
use crate::resp::scripts;
use doyen_engine::Publication;
use doyen_engine::command::Join;
use doyen_engine::op::{Step, TRANSACTION_STEPS_MAX, Transaction, Watched};
use doyen_scripts::sha1_hex;
use std::collections::{BTreeMap, BTreeSet};

/// Most commands of a transaction.
const COMMANDS_MAX: usize = 100_000;
/// Most bytes of a transaction's commands.
const BYTES_MAX: usize = PENDING_BYTES_MAX;
/// What a command costs besides its bytes.
pub(in crate::resp::session) const COMMAND_OVERHEAD: usize = 128;

const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
const OTHER_RULES: &str = "EXECABORT Transaction discarded because the rules of the user changed \
    since its commands were queued: nothing happened; send it again";
const CROSS_WATCHED: &str = "CROSSSLOT the watched keys and those of the transaction are not all in \
    one partition: nothing happened; give them the same {tag}";
const OTHER_KEYSPACE: &str = "ERR the watched keys are in another keyspace: nothing happened; WATCH \
    keys of the keyspace that the commands use";

/// What a client's transaction has so far.
#[derive(Debug, Default)]
pub(in crate::resp::session) struct Transacting {
    /// The commands since `MULTI`.
    queue: Option<Queue>,
    pub(in crate::resp::session) watching: Watching,
    /// Where answers of commands go that touch no key, while `EXEC` runs them.
    captured: Option<BytesMut>,
}

impl Transacting {
    /// How many commands are queued, if any may be, and how many keys are watched.
    pub(in crate::resp::session) fn counts(&self) -> (Option<usize>, usize) {
        let queued = self.queue.as_ref().map(|queue| queue.commands.len());
        (queued, self.watching.keys.len())
    }
}

const TOO_MUCH_TEXT: &str = "ERR the scripts of the transaction take too long to compile \
    together: this one was not run; send fewer in one transaction, or load them first (SCRIPT LOAD)";

impl Queue {
    /// The text of the script that is this step.
    fn bring(&mut self, at: usize, body: &Bytes) {
        self.digests.remove(&at);
        if let Some(Step::Script(call)) = self.steps.get_mut(at) {
            call.body = body.clone();
        }
    }

    /// Answers the scripts at once that have no text, or whose text does not compile.
    fn check_scripts(&mut self, context: &mut Context) {
        let mut checked = BTreeMap::new();
        let work_most = context.door.scripts.work() + scripts::COMPILE_WORK_MAX;
        let mut steps = std::mem::take(&mut self.steps).into_iter().enumerate();
        for queued in &mut self.commands {
            let count = match queued {
                Queued::One(_) => 1,
                Queued::Many(_, count) => *count,
                Queued::Other(..) | Queued::Publish(_) | Queued::Wrong(_) => 0,
            };
            for (at, step) in steps.by_ref().take(count) {
                let wrong = match &step {
                    Step::Script(_) if self.digests.contains_key(&at) => Some(NO_SCRIPT.to_owned()),
                    Step::Script(call) => {
                        let known = checked.entry(call.body.clone()).or_insert_with(|| {
                            let digest = sha1_hex(&call.body);
                            let now = context.now();
                            if context.door.scripts.get(&digest, now).is_some() {
                                return None;
                            }
                            if context.door.scripts.work() > work_most {
                                return Some(TOO_MUCH_TEXT.to_owned());
                            }
                            Session::bring(context, &call.body).err()
                        });
                        known.clone()
                    }
                    Step::Key { .. } => None,
                };
                match wrong {
                    Some(why) => *queued = Queued::Wrong(why.into()),
                    None => self.steps.push(step),
                }
            }
        }
    }
}

/// The keys that a client watches, all of one keyspace.
#[derive(Debug, Default)]
pub(in crate::resp::session) struct Watching {
    pub(in crate::resp::session) keyspace: KeyspaceId,
    pub(in crate::resp::session) keys: Vec<Watched>,
}

/// The commands of a transaction.
#[derive(Debug)]
struct Queue {
    commands: Vec<Queued>,
    steps: Vec<Step>,
    /// The digests of the steps that are scripts and have no text yet.
    digests: BTreeMap<usize, scripts::Digest>,
    /// A command was refused, so that `EXEC` executes none.
    refused: bool,
    /// The database that later commands use.
    map: MapId,
    /// The user whose rules the commands were judged by.
    user: Arc<Compiled>,
    bytes: usize,
    /// What of that is charged to the budget.
    charged: usize,
}

/// A transaction that is to be executed once the texts of its scripts are here.
#[derive(Debug)]
pub(in crate::resp::session) struct Prepared {
    queue: Queue,
    watching: Watching,
    /// The digests of the texts that were looked up, in that order.
    missing: Vec<scripts::Digest>,
}

impl Prepared {
    /// The digests of the texts that were looked up, in that order.
    pub(in crate::resp::session) fn missing(&self) -> &[scripts::Digest] {
        &self.missing
    }
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

fn is_exec(args: Args<'_>) -> bool {
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
    pub(in crate::resp::session) fn is_queueing(&self) -> bool {
        self.transacting
            .as_ref()
            .is_some_and(|transacting| transacting.queue.is_some())
    }

    fn queue(&mut self) -> Option<&mut Queue> {
        self.transacting.as_mut()?.queue.as_mut()
    }

    /// The database that the present command uses.
    pub(in crate::resp::session) fn present_map(&self) -> MapId {
        let queue = self.transacting.as_ref().and_then(|t| t.queue.as_ref());
        queue.map_or(self.map, |queue| queue.map)
    }

    /// Where the answer of the present command goes, if `EXEC` runs it.
    #[inline]
    pub(in crate::resp::session) fn captured(&mut self) -> Option<&mut BytesMut> {
        self.transacting.as_mut()?.captured.as_mut()
    }

    /// The transaction ends, and nothing is watched any more.
    pub(in crate::resp::session) fn end_transaction(&mut self) {
        if let Some(transacting) = self.transacting.take()
            && let Some(mut queue) = transacting.queue
        {
            charge(&self.budget, &mut self.charged, &mut queue.charged, |_| 0);
        }
    }

    /// Nothing is watched any more.
    pub(in crate::resp::session) fn unwatch(&mut self) {
        if let Some(transacting) = &mut self.transacting {
            transacting.watching = Watching::default();
        }
    }

    pub(in crate::resp::session) fn begin_transaction(&mut self) {
        let map = self.map;
        let transacting = self.transacting.get_or_insert_default();
        transacting.queue = Some(Queue {
            commands: Vec::new(),
            steps: Vec::new(),
            digests: BTreeMap::new(),
            refused: false,
            map,
            user: self.user.clone(),
            bytes: 0,
            charged: 0,
        });
        self.answer(|e| e.simple("OK"));
    }

    /// Queues a command after `MULTI`. False: it is executed at once.
    #[cold]
    pub(in crate::resp::session) fn queue_command(
        &mut self,
        context: &mut Context,
        args: Args<'_>,
    ) -> bool {
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
            // It is refused for that as it would be without a transaction.
            _ if args.too_large().is_some() => return false,
            Ok(spec) => match self.admits(context, spec, args) {
                Err(why) => self.reject(args, &why),
                Ok(()) => {
                    let parsed = command::parse(spec, &args, context.unix_ms());
                    let admitted = match &parsed {
                        Ok(Request::Script(ScriptCommand::Run { keys, .. })) => {
                            self.admits_keys(context, args, *keys)
                        }
                        _ => Ok(()),
                    };
                    let queued =
                        admitted.and_then(|()| self.push_queued(context, spec, args, parsed));
                    match queued {
                        Ok(()) => self.answer(|e| e.simple("QUEUED")),
                        Err(why) => self.reject(args, &why),
                    }
                }
            },
            Err(why) => self.reject(args, &why),
        }
        true
    }

    /// Refuses a command before it runs. A refused `EXEC` ends the transaction, and nothing is
    /// watched any more, so that no later command waits for an `EXEC`. If commands are queued and
    /// another one is refused, `EXEC` executes none of them.
    pub(in crate::resp::session) fn reject(&mut self, args: Args<'_>, why: &ErrorText) {
        if is_exec(args) {
            self.end_transaction();
            let why = why.0.strip_prefix("ERR ").unwrap_or(&why.0);
            let text = format!("EXECABORT Transaction discarded because of: {why}");
            return self.refuse(&text.into());
        }
        if let Some(queue) = self.queue() {
            queue.refused = true;
        }
        self.refuse(why);
    }

    fn push_queued(
        &mut self,
        context: &Context,
        spec: &table::Spec,
        args: Args<'_>,
        parsed: command::Parsed,
    ) -> Result<(), ErrorText> {
        let touches = self.touches;
        let parsed = match parsed {
            Ok(Request::Data(data::Request::One { action, .. }))
                if self.leaves_database(&action) =>
            {
                Err(OTHER_DATABASE.into())
            }
            parsed => parsed,
        };
        let grants = match &parsed {
            Ok(Request::Script(_)) => self.grants(context),
            _ => Bytes::new(),
        };
        let (budget, cluster_port) = (self.budget.clone(), self.cluster_port);
        let (keyspace, resp3) = (self.keyspace, self.protocol == Protocol::Resp3);
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
                queue.steps.push(Step::Key {
                    map: queue.map,
                    key: Bytes::copy_from_slice(&key),
                    action: touched(action).detached(),
                });
                Queued::One(shape)
            }
            Ok(Request::Data(data::Request::Many(many))) => {
                let before = queue.steps.len();
                for at in (1..args.len()).step_by(many.step()) {
                    queue.steps.push(Step::Key {
                        map: queue.map,
                        key: Bytes::copy_from_slice(args.get(at)),
                        action: touched(many.action(&args, at)).detached(),
                    });
                }
                Queued::Many(many.join(), queue.steps.len() - before)
            }
            Ok(Request::Script(ScriptCommand::Run {
                by_digest,
                keys,
                read_only,
            })) => {
                let mut call = call_of((keyspace, queue.map), args, keys, (read_only, resp3));
                call.grants = grants;
                if by_digest {
                    call.body = Bytes::new();
                    let digest = digest_of(args.get(1));
                    queue.digests.insert(queue.steps.len(), digest);
                }
                queue.steps.push(Step::Script(Box::new(call)));
                Queued::One(Shape::Encoded)
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
    pub(in crate::resp::session) fn execute_transaction(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
    ) {
        let mut transacting = self.transacting.take().unwrap_or_default();
        let Some(mut queue) = transacting.queue.take() else {
            self.transacting = Some(transacting);
            return self.answer(|e| e.error("ERR EXEC without MULTI"));
        };
        let messages = queue.commands.iter().filter_map(|queued| match queued {
            Queued::Publish(message) => Some(message),
            _ => None,
        });
        if self.asks_receivers(connection, context, messages) {
            transacting.queue = Some(queue);
            self.transacting = Some(transacting);
            return;
        }
        charge(&self.budget, &mut self.charged, &mut queue.charged, |_| 0);
        let watching = transacting.watching;
        if queue.refused {
            return self.answer(|e| e.error(ABORTED));
        }
        if !self.free && !Arc::ptr_eq(&queue.user, &self.user) {
            return self.answer(|e| e.error(OTHER_RULES));
        }
        if !watching.keys.is_empty() && watching.keyspace != self.keyspace {
            return self.answer(|e| e.error(OTHER_KEYSPACE));
        }
        let now = context.now();
        for (at, digest) in queue.digests.clone() {
            if let Some(body) = context.door.scripts.get(&digest, now) {
                queue.bring(at, &body);
            }
        }
        let missing: BTreeSet<_> = queue.digests.values().cloned().collect();
        let prepared = Prepared {
            queue,
            watching,
            missing: missing.into_iter().collect(),
        };
        let slot = (self.next(), self.patience(context));
        if !prepared.missing.is_empty() {
            let weight = prepared.queue.bytes;
            let find = |digest: &scripts::Digest| scripts::about(digest, Action::Get);
            let finds: Vec<_> = prepared.missing.iter().map(find).collect();
            let mut running = Running::new(Then::Prepare(Box::new(prepared)));
            for find in finds {
                running.submit(connection, context, slot, find);
            }
            return self.expect(State::Running(Box::new(running)), weight, 0);
        }
        let mut running = Running::new(Then::Answer(Vec::new()));
        let (weight, expected) =
            self.execute_prepared(&mut running, (connection, slot), context, prepared);
        if let Some(why) = running.refused() {
            return self.refuse(why);
        }
        if running.waits() == 0 {
            return self.answer(|e| running.encode(e));
        }
        self.expect(State::Running(Box::new(running)), weight, expected);
    }

    /// The texts of a transaction's scripts were looked up: it is executed.
    pub(in crate::resp::session) fn execute_found(
        &mut self,
        at: usize,
        connection: &Rc<Connection>,
        context: &mut Context,
        slot: (u64, Patience),
    ) {
        let Some(State::Running(running)) = self.slots.get_mut(at).map(|slot| &mut slot.state)
        else {
            return;
        };
        let Some((mut prepared, found)) = running.take_prepared() else {
            return;
        };
        let now = context.now();
        for (digest, outcome) in prepared.missing.iter().zip(found) {
            let Outcome::Bulk(body) = outcome else {
                continue;
            };
            let body = Bytes::copy_from_slice(&body);
            let queue = &mut prepared.queue;
            for (at, own) in queue.digests.clone() {
                if own == *digest {
                    queue.bring(at, &body);
                }
            }
            context.door.scripts.found(digest.clone(), body, now);
        }
        let command = std::mem::replace(&mut self.command, self.slots[at].command);
        let mut running = Running::new(Then::Answer(Vec::new()));
        let (_, expected) =
            self.execute_prepared(&mut running, (connection, slot), context, *prepared);
        self.command = command;
        let slot = &mut self.slots[at];
        slot.state = State::Running(Box::new(running));
        slot.weight += expected;
        self.pending_bytes += expected;
        promise(&self.budget, &mut slot.expected, expected);
        charge(&self.budget, &mut self.charged, &mut slot.charged, |c| {
            c + expected
        });
    }

    /// Executes a transaction whose scripts have their texts, but for those that are not stored.
    /// Returns the weight of what is asked, and that of the answers which come from elsewhere.
    fn execute_prepared(
        &mut self,
        running: &mut Running,
        (connection, slot): (&Rc<Connection>, (u64, Patience)),
        context: &mut Context,
        prepared: Prepared,
    ) -> (usize, usize) {
        let Prepared {
            mut queue,
            watching,
            ..
        } = prepared;
        queue.check_scripts(context);
        if !watching.keys.is_empty() && queue.steps.is_empty() {
            // Whether a watched key has changed must be asked all the same.
            let Watched { map, key, .. } = watching.keys[0].clone();
            queue.steps.push(Step::Key {
                map,
                key,
                action: Action::Exists,
            });
        }
        let parts = match self.parts_of(context, &queue.steps, &watching.keys) {
            Ok(parts) => parts,
            Err(why) => {
                *running = Running::new(Then::Refused(why));
                return (0, 0);
            }
        };
        let before = Before {
            name: self.name.clone(),
            map: self.map,
        };
        let (answers, messages) = self.run_others(connection, context, queue.commands);
        *running = Running::new(Then::Answer(answers));
        running.before = Some(before);
        if parts.is_empty() {
            // No command touches a key.
            messages.into_iter().for_each(|m| context.publish(m));
        } else {
            running.messages = messages;
        }
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
            let asked = (connection, slot);
            if running.submit_steps(asked, context, transaction, places) && answers_value {
                expected += self.expected;
            }
        }
        (weight, expected)
    }

    /// Executes the commands that touch no key, in order, and says how each command is answered,
    /// and which messages are to be published.
    fn run_others(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        commands: Vec<Queued>,
    ) -> (Vec<Answer>, Vec<Publication>) {
        let exec = self.command;
        let mut elsewhere = self.receivers_elsewhere().into_iter();
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
                    let here = self.receivers_here(context, &message);
                    let count = here.saturating_add(elsewhere.next().unwrap_or_default());
                    let count = i64::try_from(count).unwrap_or(i64::MAX);
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
            let keys = steps.iter().flat_map(Step::keys).map(|(_, key)| key);
            let keys = keys.chain(watched.iter().map(|watched| &watched.key));
            here(context, keys.map(|key| &**key))?;
        }
        let Some(keyspace) = cluster::assigned(context.view(), self.keyspace) else {
            return Err(Shape::Plain.failure(Failure::NoPartition).into());
        };
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut places: BTreeMap<Option<PartitionId>, usize> = BTreeMap::new();
        let mut anywhere = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let mut keys = step.keys();
            let Some((map, key)) = keys.next() else {
                anywhere.push(at);
                continue;
            };
            let partition = keyspace.partition_of(map, key);
            if keys.any(|(map, key)| keyspace.partition_of(map, key) != partition) {
                return Err(Shape::Plain.failure(Failure::CrossPartition).into());
            }
            let place = *places.entry(partition).or_insert_with(|| {
                parts.push(Vec::new());
                parts.len() - 1
            });
            parts[place].push(at);
        }
        // Scripts without keys are executed with the first command that has one.
        if !anywhere.is_empty() {
            match (parts.first_mut(), watched.first()) {
                (Some(part), _) => {
                    part.extend(anywhere);
                    part.sort_unstable();
                }
                (None, first) => {
                    if let Some(Watched { map, key, .. }) = first {
                        places.insert(keyspace.partition_of(*map, key), 0);
                    }
                    parts.push(anywhere);
                }
            }
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
    pub(in crate::resp::session) fn watch(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
    ) {
        if self.is_queueing() {
            return self.answer(|e| e.error("ERR WATCH inside MULTI is not allowed"));
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
        let running = Running::new(Then::Watch(self.keyspace, keys.clone()));
        let version = |(map, key)| Operation {
            keyspace: self.keyspace,
            map,
            key,
            action: Action::Version,
        };
        let versions = keys.into_iter().map(|key| version(key).into()).collect();
        self.run_parts(connection, context, running, versions);
    }
}
