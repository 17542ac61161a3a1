//! Transactions: `MULTI` queues commands, and `EXEC` executes them. `WATCH` makes `EXEC` depend on
//! keys.
//!
//! All keys of one partition are read and written together, as one operation of the engine. A
//! transaction with keys in several partitions is executed in as many parts, which are submitted
//! together; each is executed whole or not at all. Then nothing may be watched, and if some parts
//! were executed and others were not, the reply says which commands were.
//!
//! ```text
//!   MULTI ─> Queue ── EXEC ─> parts, one a partition ─> PartsReply ── the last outcome ─> reply
//!   WATCH ────────────────────────────────────────────> PartsReply ── the last outcome ─> Watching
//! ```
//!
//! If `EXEC` runs scripts by digests that this node does not know, it looks their texts up first,
//! as `EVALSHA` does.

use super::keys::OTHER_DATABASE;
use super::scripts::{NO_SCRIPT, bring, call_of, digest_of};
use super::subscriptions::{asked_receivers, publication, receivers_here};
use crate::resp::acl::compiled::Compiled;
use crate::resp::command::{
    self, ClientCommand, ConnectionCommand, PubSubCommand, RespRequest, ScriptCommand,
    ServerCommand, table,
};
use crate::resp::counts;
use crate::resp::encode::Protocol;
use crate::resp::frame::Args;
use crate::resp::session::charges::{Charges, PENDING_BYTES_MAX};
use crate::resp::session::client::SessionClient;
use crate::resp::session::pause::only_reads;
use crate::resp::session::pending::parts::{ClientBefore, CommandAnswer, PartsPurpose, PartsReply};
use crate::resp::session::pending::{PendingReply, ReplyAsker};
use crate::resp::session::{Connection, Session};
use crate::resp::{RespContext, cluster, databases, scripts};
use bytes::Bytes;
use doyen_engine::Publication;
use doyen_engine::command::{self as data, ErrorText, Join, Shape};
use doyen_engine::op::{
    Action, Failure, Operation, OperationBatch, OperationStep, Outcome, TRANSACTION_STEPS_MAX,
    Watched,
};
use doyen_placement::{KeyspaceId, MapId, PartitionId};
use doyen_scripts::sha1_hex;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Most commands of a transaction.
const COMMANDS_MAX: usize = 100_000;
/// Most bytes of a transaction's commands.
const BYTES_MAX: usize = PENDING_BYTES_MAX;
/// What a command costs besides its bytes.
pub(crate) const COMMAND_OVERHEAD: usize = 128;

const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
const OTHER_RULES: &str = "EXECABORT Transaction discarded because the rules of the user changed \
    since its commands were queued: nothing happened; send it again";
const CROSS_WATCHED: &str = "CROSSSLOT the watched keys and those of the transaction are not all in \
    one partition: nothing happened; give them the same {tag}";
const OTHER_KEYSPACE: &str = "ERR the watched keys are in another keyspace: nothing happened; WATCH \
    keys of the keyspace that the commands use";

/// What a client's transaction has so far.
#[derive(Debug, Default)]
pub(crate) struct Transacting {
    /// The commands since `MULTI`.
    queue: Option<CommandQueue>,
    watching: WatchedKeys,
}

impl Transacting {
    /// How many commands are queued, if any may be, and how many keys are watched.
    pub(crate) fn counts(&self) -> (Option<usize>, usize) {
        let queued = self.queue.as_ref().map(|queue| queue.commands.len());
        (queued, self.watching.keys.len())
    }

    /// The commands since `MULTI`, if there was one.
    pub(crate) const fn queue(&self) -> Option<&CommandQueue> {
        self.queue.as_ref()
    }

    /// These keys are watched, too.
    pub(crate) fn watch(&mut self, watching: WatchedKeys) {
        self.watching.keyspace = watching.keyspace;
        self.watching.keys.extend(watching.keys);
    }

    /// `MULTI`: commands of this user are queued from now on.
    pub(crate) fn begin(&mut self, map: MapId, user: Arc<Compiled>) {
        self.queue = Some(CommandQueue::new(map, user));
    }

    /// Queues a command of this client.
    fn push(
        &mut self,
        (client, charges): (&SessionClient, &mut Charges),
        (spec, args): (&table::RespSpec, Args<'_>),
        parsed: command::ParsedCommand,
        rights: (Bytes, bool),
    ) -> Result<(), ErrorText> {
        let parsed = match parsed {
            Ok(RespRequest::Data(data::ParsedRequest::One { action, .. }))
                if client.leaves_database(&action) =>
            {
                Err(OTHER_DATABASE.into())
            }
            parsed => parsed,
        };
        let Some(queue) = &mut self.queue else {
            return Ok(());
        };
        let bytes = args.iter_from(0).map(<[u8]>::len).sum::<usize>();
        let more = bytes + args.len().max(1) * COMMAND_OVERHEAD;
        if queue.commands.len() >= COMMANDS_MAX || queue.bytes + more > BYTES_MAX {
            return Err(format!(
                "ERR the transaction is too large: at most {COMMANDS_MAX} commands and \
                 {BYTES_MAX} bytes"
            )
            .into());
        }
        if charges.budget().refuses(more) {
            return Err(Shape::Plain.failure(Failure::Overloaded).into());
        }
        let queued = queue.queued(client, (spec, args), parsed, rights)?;
        queue.commands.push(queued);
        queue.bytes += more;
        let now = queue.bytes;
        charges.charge(&mut queue.charged, |_| now);
        Ok(())
    }

    /// Nothing is watched any more.
    pub(crate) fn unwatch(&mut self) {
        self.watching = WatchedKeys::default();
    }
}

const TOO_MUCH_TEXT: &str = "ERR the scripts of the transaction take too long to compile \
    together: this one was not run; send fewer in one transaction, or load them first (SCRIPT LOAD)";

impl CommandQueue {
    /// Whether one of the commands may change something or publishes a message.
    pub(crate) fn may_write(&self) -> bool {
        let publishes = |queued: &QueuedCommand| matches!(queued, QueuedCommand::Publish(_));
        self.commands.iter().any(publishes)
            || self.steps.iter().any(|step| match step {
                OperationStep::Key { action, .. } => action.is_write(),
                OperationStep::Script(call) => !call.read_only && !only_reads(call.body.clone()),
            })
    }

    fn new(map: MapId, user: Arc<Compiled>) -> Self {
        Self {
            commands: Vec::new(),
            steps: Vec::new(),
            digests: BTreeMap::new(),
            refused: false,
            map,
            user,
            bytes: 0,
            charged: 0,
        }
    }

    /// The database that the present command uses.
    pub(crate) const fn map(&self) -> MapId {
        self.map
    }

    /// The text of the script that is this step.
    fn bring(&mut self, at: usize, body: &Bytes) {
        self.digests.remove(&at);
        if let Some(OperationStep::Script(call)) = self.steps.get_mut(at) {
            call.body = body.clone();
        }
    }

    /// A command of the transaction, whose steps are added.
    fn queued(
        &mut self,
        client: &SessionClient,
        (spec, args): (&table::RespSpec, Args<'_>),
        parsed: command::ParsedCommand,
        (grants, resp3): (Bytes, bool),
    ) -> Result<QueuedCommand, ErrorText> {
        // The arguments are copied: a slice of them would hold all of the input around it.
        Ok(match parsed {
            Ok(RespRequest::Data(data::ParsedRequest::One { key, action, shape })) => {
                self.steps.push(OperationStep::Key {
                    map: self.map,
                    key: Bytes::copy_from_slice(&key),
                    action: client.touching(action).detached(),
                });
                QueuedCommand::One(shape)
            }
            // Nothing waits in a transaction.
            Ok(RespRequest::Data(data::ParsedRequest::Pop(pop))) => {
                let (key, action) = pop.take_all();
                self.steps.push(OperationStep::Key {
                    map: self.map,
                    key: Bytes::copy_from_slice(&key),
                    action: action.detached(),
                });
                QueuedCommand::One(pop.shape)
            }
            Ok(RespRequest::Data(data::ParsedRequest::Many(many))) => {
                let before = self.steps.len();
                for at in (1..args.len()).step_by(many.step()) {
                    self.steps.push(OperationStep::Key {
                        map: self.map,
                        key: Bytes::copy_from_slice(args.get(at)),
                        action: client.touching(many.action(&args, at)).detached(),
                    });
                }
                QueuedCommand::Many(many.join(), self.steps.len() - before)
            }
            Ok(RespRequest::Script(ScriptCommand::Run {
                by_digest,
                keys,
                read_only,
            })) => {
                let mut call = call_of((client.keyspace, self.map), args, keys, (read_only, resp3));
                call.grants = grants;
                if by_digest {
                    call.body = Bytes::new();
                    let digest = digest_of(args.get(1));
                    self.digests.insert(self.steps.len(), digest);
                }
                self.steps.push(OperationStep::Script(Box::new(call)));
                QueuedCommand::One(Shape::Encoded)
            }
            Ok(RespRequest::PubSub(PubSubCommand::Publish { sharded })) => {
                match publication(args, sharded) {
                    Ok(message) => QueuedCommand::Publish(message),
                    Err(why) => QueuedCommand::Wrong(why),
                }
            }
            Ok(request) if is_queued(&request) => {
                if let RespRequest::Connection(ConnectionCommand::Select(index)) = request
                    && let Some(map) = databases::map(index).filter(|_| !client.cluster_port)
                {
                    self.map = map;
                }
                QueuedCommand::Other(request, spec.number)
            }
            Ok(_) => {
                return Err(format!(
                    "ERR {} is not supported inside MULTI: send it before MULTI or after EXEC",
                    spec.name.to_uppercase().replace('|', " ")
                )
                .into());
            }
            Err(why) => QueuedCommand::Wrong(why),
        })
    }

    /// Answers the scripts at once that have no text, or whose text does not compile.
    fn check_scripts(&mut self, context: &mut RespContext) {
        let mut checked = BTreeMap::new();
        let work_most = context.front.scripts.work() + scripts::COMPILE_WORK_MAX;
        let mut steps = std::mem::take(&mut self.steps).into_iter().enumerate();
        for queued in &mut self.commands {
            let count = match queued {
                QueuedCommand::One(_) => 1,
                QueuedCommand::Many(_, count) => *count,
                QueuedCommand::Other(..) | QueuedCommand::Publish(_) | QueuedCommand::Wrong(_) => 0,
            };
            for (at, step) in steps.by_ref().take(count) {
                let wrong = match &step {
                    OperationStep::Script(_) if self.digests.contains_key(&at) => {
                        Some(NO_SCRIPT.to_owned())
                    }
                    OperationStep::Script(call) => {
                        let known = checked.entry(call.body.clone()).or_insert_with(|| {
                            let digest = sha1_hex(&call.body);
                            let now = context.now();
                            if context.front.scripts.get(&digest, now).is_some() {
                                return None;
                            }
                            if context.front.scripts.work() > work_most {
                                return Some(TOO_MUCH_TEXT.to_owned());
                            }
                            bring(context, &call.body).err()
                        });
                        known.clone()
                    }
                    OperationStep::Key { .. } => None,
                };
                match wrong {
                    Some(why) => *queued = QueuedCommand::Wrong(why.into()),
                    None => self.steps.push(step),
                }
            }
        }
    }
}

/// The keys that a client watches, all of one keyspace.
#[derive(Debug, Default)]
pub(crate) struct WatchedKeys {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) keys: Vec<Watched>,
}

/// The commands of a transaction.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    commands: Vec<QueuedCommand>,
    steps: Vec<OperationStep>,
    /// The digests of the steps that are scripts and have no text yet.
    digests: BTreeMap<usize, scripts::ScriptDigest>,
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
pub(crate) struct Prepared {
    queue: CommandQueue,
    watching: WatchedKeys,
    /// The digests of the texts that were looked up, in that order.
    missing: Vec<scripts::ScriptDigest>,
}

impl Prepared {
    /// The digests of the texts that were looked up, in that order.
    pub(crate) fn missing(&self) -> &[scripts::ScriptDigest] {
        &self.missing
    }
}

/// A command of a transaction.
#[derive(Debug)]
enum QueuedCommand {
    /// One step, answered in this shape.
    One(Shape),
    /// This many steps, answered together.
    Many(Join, usize),
    /// A command that touches no key, by its place in the table.
    Other(RespRequest, u16),
    /// A message, which leaves once the transaction is executed.
    Publish(Publication),
    /// Its options are wrong.
    Wrong(ErrorText),
}

fn is_exec(args: Args<'_>) -> bool {
    args.get(0).eq_ignore_ascii_case(b"EXEC")
}

/// Whether a command that touches no key may be in a transaction: it is answered at once.
const fn is_queued(request: &RespRequest) -> bool {
    matches!(
        request,
        RespRequest::Wait
            | RespRequest::Constant(_)
            | RespRequest::Server(ServerCommand::Time)
            | RespRequest::Connection(
                ConnectionCommand::Ping(_)
                    | ConnectionCommand::Echo(_)
                    | ConnectionCommand::Select(_)
                    | ConnectionCommand::Unwatch
            )
            | RespRequest::Client(
                ClientCommand::Id
                    | ClientCommand::GetName
                    | ClientCommand::SetName(_)
                    | ClientCommand::SetInfo(..)
            )
    )
}

impl Session {
    /// The commands that are queued, and not executed, if `MULTI` began that.
    #[inline]
    pub(crate) fn queue(&self) -> Option<&CommandQueue> {
        self.transacting.as_ref()?.queue()
    }

    /// The transaction ends, and nothing is watched any more.
    pub(crate) fn end_transaction(&mut self) {
        if let Some(transacting) = self.transacting.take()
            && let Some(mut queue) = transacting.queue
        {
            self.replies.charges.charge(&mut queue.charged, |_| 0);
        }
    }

    /// Queues a command after `MULTI`. False: it is executed at once.
    #[cold]
    pub(crate) fn queue_command(&mut self, context: &mut RespContext, args: Args<'_>) -> bool {
        let spec = command::find(args);
        let at_once = |name: &str| {
            matches!(
                name,
                "exec" | "discard" | "multi" | "watch" | "quit" | "reset"
            )
        };
        self.replies.command = spec.as_ref().map_or(counts::UNKNOWN, |spec| spec.number);
        match spec {
            Ok(spec) if at_once(spec.name) => return false,
            // It is refused for that as it would be without a transaction.
            _ if args.too_large().is_some() => return false,
            Ok(spec) => match self.admits(context, spec, args) {
                Err(why) => self.reject(args, &why),
                Ok(()) => {
                    let parsed = command::parse(spec, &args, context.unix_ms());
                    let admitted = match &parsed {
                        Ok(RespRequest::Script(ScriptCommand::Run { keys, .. })) => {
                            self.client.admits_keys(context, args, *keys)
                        }
                        _ => Ok(()),
                    };
                    let grants = match &parsed {
                        Ok(RespRequest::Script(_)) => self.client.grants(context, self.queue()),
                        _ => Bytes::new(),
                    };
                    let resp3 = self.replies.protocol == Protocol::Resp3;
                    let transacting = self.transacting.get_or_insert_default();
                    let parts = (&self.client, &mut self.replies.charges);
                    let queued = admitted.and_then(|()| {
                        transacting.push(parts, (spec, args), parsed, (grants, resp3))
                    });
                    match queued {
                        Ok(()) => {
                            // Its answer says nothing of how long it takes.
                            self.replies.command = table::MULTI;
                            self.replies.answer(|e| e.simple("QUEUED"));
                        }
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
    pub(crate) fn reject(&mut self, args: Args<'_>, why: &ErrorText) {
        if is_exec(args) {
            self.end_transaction();
            let why = why.0.strip_prefix("ERR ").unwrap_or(&why.0);
            let text = format!("EXECABORT Transaction discarded because of: {why}");
            return self.replies.refuse(&text.into());
        }
        if let Some(transacting) = &mut self.transacting
            && let Some(queue) = &mut transacting.queue
        {
            queue.refused = true;
        }
        self.replies.refuse(why);
    }

    /// `EXEC`.
    pub(crate) fn execute_transaction(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
    ) {
        let mut transacting = self.transacting.take().unwrap_or_default();
        let Some(mut queue) = transacting.queue.take() else {
            self.transacting = Some(transacting);
            return self.replies.answer(|e| e.error("ERR EXEC without MULTI"));
        };
        let messages = queue.commands.iter().filter_map(|queued| match queued {
            QueuedCommand::Publish(message) => Some(message),
            _ => None,
        });
        let plain = !self.client.cluster_port;
        let asked = || asked_receivers(messages).filter(|_| plain);
        if self.subscriptions.asks_first(connection, context, asked) {
            transacting.queue = Some(queue);
            self.transacting = Some(transacting);
            return;
        }
        self.replies.charges.charge(&mut queue.charged, |_| 0);
        let watching = transacting.watching;
        if queue.refused {
            return self.replies.answer(|e| e.error(ABORTED));
        }
        if !self.client.free && !Arc::ptr_eq(&queue.user, &self.client.user) {
            return self.replies.answer(|e| e.error(OTHER_RULES));
        }
        if !watching.keys.is_empty() && watching.keyspace != self.client.keyspace {
            return self.replies.answer(|e| e.error(OTHER_KEYSPACE));
        }
        let reads = queue.steps.iter().filter(|step| may_read(step));
        let keys = reads.flat_map(OperationStep::keys);
        let subscriptions = &self.subscriptions;
        subscriptions.remember_keys(context, self.client.id, keys.map(|(_, key)| &key[..]));
        let now = context.now();
        for (at, digest) in queue.digests.clone() {
            if let Some(body) = context.front.scripts.get(&digest, now) {
                queue.bring(at, &body);
            }
        }
        let missing: BTreeSet<_> = queue.digests.values().cloned().collect();
        let prepared = Prepared {
            queue,
            watching,
            missing: missing.into_iter().collect(),
        };
        let mut asker = self.replies.asker(connection, context);
        if !prepared.missing.is_empty() {
            let weight = prepared.queue.bytes;
            let find = |digest: &scripts::ScriptDigest| scripts::about(digest, Action::Get);
            let finds: Vec<_> = prepared.missing.iter().map(find).collect();
            let mut parts = PartsReply::new(PartsPurpose::Prepare(Box::new(prepared)));
            for find in finds {
                parts.submit(&mut asker, find);
            }
            return self.replies.collect(parts, weight, 0);
        }
        let (mut parts, weight, expected) = self.execute_prepared(&mut asker, prepared);
        if let Some(why) = parts.refused() {
            return self.replies.refuse(why);
        }
        if parts.is_whole() {
            return self.replies.answer(|e| parts.append_to(e));
        }
        self.replies.collect(parts, weight, expected);
    }

    /// The texts of a transaction's scripts were looked up: it is executed.
    pub(crate) fn execute_found(
        &mut self,
        asker: &mut ReplyAsker<'_>,
        (mut prepared, found): (Prepared, Vec<Outcome>),
    ) {
        let now = asker.context.now();
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
            asker.context.front.scripts.found(digest.clone(), body, now);
        }
        let exec = self.replies.command_of(asker.slot);
        let command = std::mem::replace(&mut self.replies.command, exec);
        let (parts, _, expected) = self.execute_prepared(asker, prepared);
        self.replies.command = command;
        self.replies.replace(asker.slot, parts, expected);
    }

    /// Executes a transaction whose scripts have their texts, but for those that are not stored.
    /// Returns the reply, the weight of what is asked, and that of the answers which come from
    /// elsewhere.
    fn execute_prepared(
        &mut self,
        asker: &mut ReplyAsker<'_>,
        prepared: Prepared,
    ) -> (PartsReply, usize, usize) {
        let Prepared {
            mut queue,
            watching,
            ..
        } = prepared;
        queue.check_scripts(asker.context);
        if !watching.keys.is_empty() && queue.steps.is_empty() {
            // Whether a watched key has changed must be asked all the same.
            let Watched { map, key, .. } = watching.keys[0].clone();
            queue.steps.push(OperationStep::Key {
                map,
                key,
                action: Action::Exists,
            });
        }
        let context = &mut *asker.context;
        let parts = match parts_of(context, &self.client, &queue.steps, &watching.keys) {
            Ok(parts) => parts,
            Err(why) => return (PartsReply::new(PartsPurpose::Refused(why)), 0, 0),
        };
        let before = ClientBefore {
            name: self.client.name.clone(),
            map: self.client.map,
        };
        let (answers, messages) = self.run_others(asker.connection, context, queue.commands);
        let mut reply = PartsReply::new(PartsPurpose::Answer(answers));
        reply.before = Some(before);
        if parts.is_empty() {
            // No command touches a key.
            messages.into_iter().for_each(|m| context.publish(m));
        } else {
            reply.messages = messages;
        }
        let mut steps: Vec<Option<OperationStep>> = queue.steps.into_iter().map(Some).collect();
        let mut weight = reply.messages.iter().map(Publication::bytes).sum();
        let mut expected = 0;
        let mut watched = Some(watching.keys);
        for places in parts {
            let transaction = OperationBatch {
                keyspace: self.client.keyspace,
                watched: watched.take().unwrap_or_default(),
                steps: places
                    .iter()
                    .filter_map(|at| steps.get_mut(*at)?.take())
                    .collect(),
            };
            weight += transaction.bytes();
            let answers_value = transaction.answers_value();
            let elsewhere = reply.submit_steps(asker, transaction, places);
            expected += self.replies.charges.expects(elsewhere && answers_value);
        }
        (reply, weight, expected)
    }

    /// Executes the commands that touch no key, in order, and says how each command is answered,
    /// and which messages are to be published.
    fn run_others(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        commands: Vec<QueuedCommand>,
    ) -> (Vec<CommandAnswer>, Vec<Publication>) {
        let exec = self.replies.command;
        let elsewhere = self.subscriptions.take_counted().counts;
        self.subscriptions.forget_idle(&mut self.replies);
        let mut elsewhere = elsewhere.into_iter();
        self.replies.capture();
        let (mut answers, mut messages) = (Vec::with_capacity(commands.len()), Vec::new());
        for queued in commands {
            answers.push(match queued {
                QueuedCommand::One(shape) => CommandAnswer::One(shape),
                QueuedCommand::Many(join, count) => CommandAnswer::Many(join, count),
                QueuedCommand::Other(request, number) => {
                    self.replies.command = number;
                    self.run(connection, context, Args::none(), request);
                    CommandAnswer::Encoded(self.replies.take_captured())
                }
                QueuedCommand::Publish(message) => {
                    let here = receivers_here(&self.client, context, &message);
                    let count = here.saturating_add(elsewhere.next().unwrap_or_default());
                    let count = i64::try_from(count).unwrap_or(i64::MAX);
                    messages.push(message);
                    self.replies.answer(|e| e.integer(count));
                    CommandAnswer::Encoded(self.replies.take_captured())
                }
                QueuedCommand::Wrong(why) => {
                    self.replies.answer(|e| e.error(&why.0));
                    CommandAnswer::Encoded(self.replies.take_captured())
                }
            });
        }
        self.replies.command = exec;
        self.replies.end_capture();
        self.transacting = None;
        (answers, messages)
    }

    /// `WATCH`.
    pub(crate) fn watch(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
    ) {
        if self.queue().is_some() {
            return self
                .replies
                .answer(|e| e.error("ERR WATCH inside MULTI is not allowed"));
        }
        let (keyspace, map) = self.client.about();
        let watching = self.transacting.as_ref().map(|t| &t.watching);
        let before = watching.map_or(0, |watching| watching.keys.len());
        let other =
            watching.is_some_and(|w| !w.keys.is_empty() && w.keyspace != self.client.keyspace);
        if other {
            return self.replies.answer(|e| e.error(OTHER_KEYSPACE));
        }
        if before + args.len() > TRANSACTION_STEPS_MAX {
            return self.replies.answer(|e| {
                e.error(&format!(
                    "ERR too many keys are watched: at most {TRANSACTION_STEPS_MAX}; UNWATCH first"
                ))
            });
        }
        let keys: Vec<_> = args
            .iter_from(1)
            .map(|key| (map, Bytes::copy_from_slice(key)))
            .collect();
        let mut parts = PartsReply::new(PartsPurpose::Watch(keyspace, keys.clone()));
        let level = context.view().map_or(0, |view| view.installed.level);
        let version = |(map, key)| Operation {
            keyspace,
            map,
            key,
            action: Action::watch(level),
        };
        let versions = keys.into_iter().map(|key| version(key).into()).collect();
        let mut asker = self.replies.asker(connection, context);
        let weight = parts.submit_all(&mut asker, versions);
        self.replies.collect(parts, weight, 0);
    }
}

/// Whether a client that keeps values may get one from this step. A script may read its keys.
fn may_read(step: &OperationStep) -> bool {
    match step {
        OperationStep::Key { action, .. } => !action.is_write(),
        OperationStep::Script(_) => true,
    }
}

/// The steps of each partition, in the order in which the partitions are first named.
fn parts_of(
    context: &RespContext,
    client: &SessionClient,
    steps: &[OperationStep],
    watched: &[Watched],
) -> Result<Vec<Vec<usize>>, ErrorText> {
    if client.cluster_port {
        let keys = steps
            .iter()
            .flat_map(OperationStep::keys)
            .map(|(_, key)| key);
        let keys = keys.chain(watched.iter().map(|watched| &watched.key));
        cluster::here(context, keys.map(|key| &**key))?;
    }
    let Some(keyspace) = cluster::assigned(context.view(), client.keyspace) else {
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
    if parts.len() > 1 && context.front.strict_transactions {
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
