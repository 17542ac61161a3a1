//! Runs Redis's scripts at the primary of their keys. A script is one operation: it reads and
//! changes the keys of one partition, and its changes are one record of the log. Copies get the
//! changes, and never the script.

use super::grants::GrantRefusal;
use super::rows::{KeyScope, Ran, Rows};
use crate::command::operation::ScriptCall;
use crate::command::publication::Publication;
use crate::store::run_context::RunContext;
use crate::value::outcome::Failure;
use std::collections::VecDeque;
use std::time::Duration;

/// Refusals that wait for the shell. Later ones are dropped.
const REFUSALS_MAX: usize = 128;

/// Commands of scripts that were refused to the scripts' callers, until the shell takes them.
#[derive(Debug, Default)]
pub(crate) struct ScriptRefusals(VecDeque<GrantRefusal>);

impl ScriptRefusals {
    pub(crate) fn add(&mut self, refused: Vec<GrantRefusal>) {
        let room = REFUSALS_MAX.saturating_sub(self.0.len());
        self.0.extend(refused.into_iter().take(room));
    }

    pub(crate) fn pop(&mut self) -> Option<GrantRefusal> {
        self.0.pop_front()
    }
}

/// The interpreter of a shard. A build without the feature `scripts` has none.
#[derive(Debug)]
pub(crate) struct Scripts {
    #[cfg(feature = "scripts")]
    interpreter: doyen_scripts::Interpreter,
    #[cfg(feature = "scripts")]
    seed: u64,
    /// What callers may do, by its text.
    #[cfg(feature = "scripts")]
    grants: running::GrantsCache,
}

/// What the scripts of one operation have used.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    #[cfg(feature = "scripts")]
    instructions: u64,
    #[cfg(feature = "scripts")]
    time: Duration,
    /// How many data threads have subscribers.
    #[cfg(feature = "scripts")]
    hearers: usize,
    /// The messages that they publish, once they have run.
    #[cfg(feature = "scripts")]
    said: Vec<Publication>,
    /// What was refused to their caller.
    #[cfg(feature = "scripts")]
    refused: Vec<GrantRefusal>,
}

#[cfg(feature = "scripts")]
impl Spent {
    /// Nothing yet. A message goes to `hearers` data threads.
    pub(crate) fn new(hearers: usize) -> Self {
        Self {
            hearers,
            ..Self::default()
        }
    }

    /// The messages to publish.
    pub(crate) fn take_said(&mut self) -> Vec<Publication> {
        std::mem::take(&mut self.said)
    }

    /// What was refused to their caller.
    pub(crate) fn take_refused(&mut self) -> Vec<GrantRefusal> {
        std::mem::take(&mut self.refused)
    }

    /// The work of the scripts in bytes, as the work of a pass is counted: a millisecond is as much
    /// as handling a megabyte.
    pub(crate) fn work(&self) -> usize {
        let us = usize::try_from(self.time.as_micros()).unwrap_or(usize::MAX);
        us.saturating_mul(1_000)
    }
}

#[cfg(not(feature = "scripts"))]
impl Spent {
    /// There are no scripts that could use anything.
    pub(crate) const fn new(_: usize) -> Self {
        Self {}
    }

    /// There are no scripts that could publish anything.
    pub(crate) const fn take_said(&mut self) -> Vec<Publication> {
        Vec::new()
    }

    /// There are no scripts to which anything could be refused.
    pub(crate) const fn take_refused(&mut self) -> Vec<GrantRefusal> {
        Vec::new()
    }

    /// There are no scripts that could take time.
    pub(crate) const fn work(&self) -> usize {
        0
    }
}

#[cfg(not(feature = "scripts"))]
impl Scripts {
    /// There are no scripts that could use random numbers.
    pub(crate) const fn new(_: u64) -> Self {
        Self {}
    }

    /// There are no scripts whose time could be bounded.
    pub(crate) fn set_clock(&mut self, _: fn() -> Duration) {}

    /// # Errors
    /// This build runs no scripts.
    pub(crate) fn run(
        &mut self,
        _: &ScriptCall,
        _: (&mut Rows<'_>, &mut Spent),
        _: &RunContext,
        _: KeyScope<'_>,
    ) -> Result<Ran, Failure> {
        Err(Failure::NoScripts)
    }
}

#[cfg(feature = "scripts")]
mod running {
    use super::*;
    use crate::command::grants::{Grants, Lacks};
    use crate::command::publication::CHANNEL_BYTES_MAX;
    use crate::command::script_scans;
    use crate::command::stream_reads::asks_to_wait;
    use crate::command::{
        Arguments, COMMANDS, CommandReply as Answer, ParsedRequest, Part, Rights,
    };
    use crate::value::outcome::{Outcome, Value};
    use bytes::Bytes;
    use doyen_placement::MapId;
    use doyen_scripts::{
        Commands, Interpreter, Script, ScriptFailure as Failed, ScriptLimits, ScriptProtocol,
        ScriptReply, Used, errors,
    };
    use std::collections::BTreeMap;
    use std::ops::Range;
    use std::rc::Rc;

    /// Instructions of all scripts of one operation: about five milliseconds, while others wait.
    const INSTRUCTIONS_MAX: u64 = 500_000;
    /// Time of all scripts of one operation, if the shard has a clock: some instructions take long.
    const TIME_MAX: Duration = Duration::from_millis(20);
    /// Memory of one run.
    const MEMORY_BYTES_MAX: usize = 16 << 20;
    /// The text of Redis, and what to do.
    const NON_LOCAL_KEY: &str = "ERR Script attempted to access a non local key in a cluster node: \
        name each key that the script uses in KEYS, all with the same {tag}, or keep all keys in \
        one partition with --preset one-server";
    const LONG_CHANNEL: &str = "ERR the channel's name is too long: at most 1024 bytes";
    const MUCH_SAID: &str = "ERR the script publishes too much: its messages together may have as \
        many bytes as one value";
    const MUCH_ANSWERED: &str = "ERR the answer is too large for a script: at most 16777216 bytes; \
        ask for fewer keys at once";
    const TOGETHER: &str = "ERR the scripts of the transaction ran too long together: this one \
        changed nothing; send fewer in one transaction";

    /// The most refusals of one operation that its outcome has.
    const REFUSED_MAX: usize = 16;
    /// Callers whose grants are kept, and the most bytes of one that is kept.
    const KNOWN_MAX: usize = 64;
    const KNOWN_BYTES_MAX: usize = 64 << 10;

    /// Commands that name no key, with how many words they take, and which of these are channels.
    const KEYLESS: &[(&str, Range<usize>, Range<usize>)] = &[
        ("time", 1..2, 0..0),
        ("ping", 1..3, 0..0),
        ("echo", 2..3, 0..0),
        ("publish", 3..4, 1..2),
        ("spublish", 3..4, 1..2),
        ("keys", 2..3, 0..0),
        ("scan", 2..SCAN_WORDS, 0..0),
    ];
    /// A cursor and all options of `SCAN`, twice.
    const SCAN_WORDS: usize = 15;

    /// What recent callers may do, by its text.
    pub(super) type GrantsCache = BTreeMap<Bytes, Rc<Grants>>;

    /// Commands on connections, the server and the cluster, and those of Redis that no script
    /// calls. With each, its arity.
    #[rustfmt::skip]
    const NOT_CALLED: &[(&str, i64)] = &[
        ("acl", -2), ("asking", 1), ("auth", -2), ("bgrewriteaof", 1), ("bgsave", -1),
        ("client", -2), ("cluster", -2), ("command", -1), ("config", -2),
        ("dbsize", 1), ("debug", -2), ("discard", 1), ("eval", -3), ("eval_ro", -3),
        ("evalsha", -3), ("evalsha_ro", -3), ("exec", 1), ("failover", -1), ("fcall", -3),
        ("fcall_ro", -3), ("flushall", -1), ("flushdb", -1), ("function", -2), ("hello", -1),
        ("info", -1), ("lastsave", 1), ("latency", -2), ("lolwut", -1),
        ("module", -2), ("monitor", 1), ("multi", 1), ("psubscribe", -2), ("psync", -3),
        ("pubsub", -2), ("punsubscribe", -1), ("quit", -1), ("randomkey", 1), ("readonly", 1),
        ("readwrite", 1), ("replicaof", 3), ("reset", 1), ("role", 1), ("save", 1),
        ("scanrange", -3), ("script", -2), ("select", 2), ("shutdown", -1), ("slaveof", 3),
        ("slowlog", -2), ("ssubscribe", -2), ("subscribe", -2),
        ("sunsubscribe", -1), ("sync", 1), ("unsubscribe", -1), ("unwatch", 1), ("wait", 3),
        ("watch", -2),
    ];

    impl Scripts {
        /// An interpreter whose random numbers begin with this seed.
        pub(crate) fn new(seed: u64) -> Self {
            let mut interpreter = Interpreter::new();
            interpreter.seed(seed);
            Self {
                interpreter,
                seed,
                grants: GrantsCache::new(),
            }
        }

        /// What the caller of a script may do; `None`: everything.
        fn grants_of(&mut self, call: &ScriptCall) -> Option<Rc<Grants>> {
            if call.grants.is_empty() {
                return None;
            }
            if let Some(known) = self.grants.get(&call.grants) {
                return Some(known.clone());
            }
            let grants = Rc::new(Grants::parse(&call.grants));
            if call.grants.len() <= KNOWN_BYTES_MAX {
                if self.grants.len() >= KNOWN_MAX {
                    self.grants.clear();
                }
                // A copy: a slice would hold all of the input around it.
                let text = Bytes::copy_from_slice(&call.grants);
                self.grants.insert(text, grants.clone());
            }
            Some(grants)
        }

        /// Bounds the time of scripts by this clock.
        pub(crate) fn set_clock(&mut self, clock: fn() -> Duration) {
            self.interpreter = Interpreter::with_clock(clock);
            self.interpreter.seed(self.seed);
        }

        /// Runs a script. The outcome holds the reply in RESP.
        ///
        /// # Errors
        /// What it writes is too large, or it does too much. Roll it back.
        pub(crate) fn run(
            &mut self,
            call: &ScriptCall,
            (rows, spent): (&mut Rows<'_>, &mut Spent),
            cx: &RunContext<'_>,
            scope: KeyScope<'_>,
        ) -> Result<Ran, Failure> {
            let reply = match Script::parse(call.body.clone()) {
                Err(text) => ScriptReply::Error(text.into()),
                Ok(script) => self.reply(call, &script, (rows, spent), cx, scope),
            };
            rows.is_within_budget()?;
            if rows.is_too_large() {
                return Err(Failure::TooLarge);
            }
            let protocol = if call.resp3 {
                ScriptProtocol::Resp3
            } else {
                ScriptProtocol::Resp2
            };
            let encoded = reply.to_resp(protocol);
            Ok(Ran {
                answered: encoded.len(),
                outcome: Outcome::Bulk(Value::from(&*encoded)),
            })
        }

        fn reply(
            &mut self,
            call: &ScriptCall,
            script: &Script,
            (rows, spent): (&mut Rows<'_>, &mut Spent),
            cx: &RunContext,
            scope: KeyScope<'_>,
        ) -> ScriptReply {
            let flags = script.flags();
            if flags.no_cluster {
                return ScriptReply::Error(errors::NO_CLUSTER.into());
            }
            if call.read_only && flags.declared && !flags.no_writes {
                return ScriptReply::Error(errors::NOT_READ_ONLY.into());
            }
            rows.set_mark();
            let before = spent.said.len();
            let grants = self.grants_of(call);
            let mut caller = ScriptCaller {
                rows,
                before: (before, spent.refused.len()),
                said: (spent.hearers, &mut spent.said),
                cx,
                map: call.map,
                read_only: call.read_only || flags.no_writes,
                scope,
                grants: grants.as_deref(),
                refused: &mut spent.refused,
            };
            let limits = ScriptLimits {
                instructions: INSTRUCTIONS_MAX.saturating_sub(spent.instructions),
                memory_bytes: MEMORY_BYTES_MAX,
                reply_bytes: cx.value_bytes_max,
                time: TIME_MAX.saturating_sub(spent.time),
            };
            let ran = self
                .interpreter
                .run(script, &call.keys, &call.args, &mut caller, &limits);
            let Used { instructions, time } = self.interpreter.used();
            let others = spent.instructions > 0;
            spent.instructions += instructions;
            spent.time += time;
            let exhausted = spent.instructions >= INSTRUCTIONS_MAX;
            match ran {
                Ok(reply) => reply,
                Err(Failed::Stopped(_)) if others && exhausted => {
                    rows.take_back_to_mark();
                    spent.said.truncate(before);
                    ScriptReply::Error(TOGETHER.into())
                }
                Err(failed @ Failed::Stopped(_)) => {
                    rows.take_back_to_mark();
                    spent.said.truncate(before);
                    failed.into()
                }
                // What it changed before stays, as in Redis.
                Err(failed) => failed.into(),
            }
        }
    }

    /// Executes the commands of a script.
    struct ScriptCaller<'a, 'b> {
        rows: &'a mut Rows<'b>,
        /// How many messages and refusals there were before the script.
        before: (usize, usize),
        /// How many data threads have subscribers, and the messages for them.
        said: (usize, &'a mut Vec<Publication>),
        cx: &'a RunContext<'a>,
        map: MapId,
        read_only: bool,
        scope: KeyScope<'a>,
        /// What the script's caller may do; `None`: everything.
        grants: Option<&'a Grants>,
        refused: &'a mut Vec<GrantRefusal>,
    }

    impl Commands for ScriptCaller<'_, '_> {
        fn call(&mut self, args: Vec<Bytes>, protocol: ScriptProtocol) -> ScriptReply {
            self.answer(&args, protocol)
                .unwrap_or_else(|text| ScriptReply::Error(text.into()))
        }

        fn restart(&mut self) {
            self.rows.take_back_to_mark();
            self.rows.set_mark();
            self.said.1.truncate(self.before.0);
            self.refused.truncate(self.before.1);
        }

        fn may_call(&mut self, args: &[Bytes]) -> Option<bool> {
            let words: &dyn Arguments = &args;
            let may = |command: &str, channels| {
                let judged = self.grants.map(|grants| {
                    let keys = std::iter::empty();
                    judge(grants, command, args, keys, channels)
                });
                judged.is_none_or(|judged| judged.is_ok())
            };
            if let Some((command, _, channels)) = keyless(words.get(0)) {
                let given = channels.end.min(words.len());
                return Some(may(command, channels.start.min(given)..given));
            }
            if let Some((command, _)) = not_called(words.get(0)) {
                return Some(may(command, 0..0));
            }
            let named = COMMANDS.named(words.get(0))?;
            match COMMANDS.find(words) {
                Ok(spec) => Some(self.grants.is_none_or(|grants| {
                    let accesses: Vec<_> = spec.accesses(words).collect();
                    let keys = keys_of(&accesses, words);
                    judge(grants, spec.name, args, keys, 0..0).is_ok()
                })),
                // Which keys it would have cannot be said, so it is judged without.
                Err(_) if !named.takes(words.len()) => Some(may(named.name, 0..0)),
                Err(_) => None,
            }
        }
    }

    impl ScriptCaller<'_, '_> {
        fn answer(
            &mut self,
            args: &[Bytes],
            protocol: ScriptProtocol,
        ) -> Result<ScriptReply, &'static str> {
            if let Some(reply) = self.of_no_key(args) {
                return reply;
            }
            let words: &dyn Arguments = &args;
            let Some(named) = COMMANDS.named(words.get(0)) else {
                return Err(errors::UNKNOWN_COMMAND);
            };
            let spec = match COMMANDS.find(words) {
                Ok(spec) => spec,
                Err(_) if !named.takes(words.len()) => return Err(errors::WRONG_ARITY),
                Err(why) => return Ok(ScriptReply::Error(why.0.into_owned().into())),
            };
            if spec.has_flag("noscript") {
                return Err(errors::NOT_ALLOWED);
            }
            if let Some(grants) = self.grants {
                let accesses: Vec<_> = spec.accesses(words).collect();
                let keys = keys_of(&accesses, words);
                if let Err(lacks) = judge(grants, spec.name, args, keys, 0..0) {
                    return Ok(self.refuse(grants, spec.name, args, lacks));
                }
            }
            if self.read_only && spec.has_flag("write") {
                return Err(errors::READ_ONLY);
            }
            if matches!(spec.name, "xread" | "xreadgroup") && asks_to_wait(words) {
                let name = String::from_utf8_lossy(words.get(0));
                let refused = "command is not allowed with BLOCK option from scripts";
                return Ok(ScriptReply::Error(format!("ERR {name} {refused}").into()));
            }
            let request = match spec.request(words, self.cx.unix_ms) {
                Ok(request) => request,
                Err(why) => return Ok(ScriptReply::Error(why.0.into_owned().into())),
            };
            let answer = match request {
                ParsedRequest::One { key, action, shape } => {
                    let mut others = action.others(self.map);
                    if !(self.scope.belongs)(self.map, &key)
                        || !others.all(|(map, key)| (self.scope.belongs)(map, key))
                    {
                        return Err(NON_LOCAL_KEY);
                    }
                    shape.reply(self.rows.step(self.map, &key, &action))
                }
                ParsedRequest::Pop(pop) => {
                    if !pop
                        .keys
                        .iter()
                        .all(|key| (self.scope.belongs)(self.map, key))
                    {
                        return Err(NON_LOCAL_KEY);
                    }
                    let (key, action) = pop.take_all();
                    pop.shape.reply(self.rows.step(self.map, &key, &action))
                }
                ParsedRequest::Many(many) => {
                    let keys = (1..args.len()).step_by(many.step());
                    if !keys
                        .clone()
                        .all(|at| (self.scope.belongs)(self.map, words.get(at)))
                    {
                        return Err(NON_LOCAL_KEY);
                    }
                    let (mut outcomes, mut answered) = (Vec::new(), 0);
                    for at in keys {
                        let action = many.action(words, at);
                        let outcome = self.rows.step(self.map, words.get(at), &action);
                        answered += outcome.bytes();
                        if answered > MEMORY_BYTES_MAX {
                            return Err(MUCH_ANSWERED);
                        }
                        outcomes.push(outcome);
                    }
                    many.join().reply(outcomes)
                }
            };
            Ok(converted(answer, protocol))
        }

        /// A message, which is sent when the script has run. The answer says how many data threads
        /// have subscribers, of any channel.
        fn publish(
            &mut self,
            sharded: bool,
            channel: &Bytes,
            message: &Bytes,
        ) -> Result<ScriptReply, &'static str> {
            if self.read_only {
                return Err(errors::READ_ONLY);
            }
            let (hearers, said) = &mut self.said;
            let held: usize = said.iter().map(Publication::bytes).sum();
            let publication = Publication {
                channel: channel.clone(),
                message: message.clone(),
                sharded,
            };
            if channel.len() > CHANNEL_BYTES_MAX {
                return Err(LONG_CHANNEL);
            }
            if held + publication.bytes() > self.cx.value_bytes_max {
                return Err(MUCH_SAID);
            }
            said.push(publication);
            Ok(ScriptReply::Int(
                i64::try_from(*hearers).unwrap_or(i64::MAX),
            ))
        }

        /// Commands that scripts call although they name no key.
        fn of_no_key(&mut self, args: &[Bytes]) -> Option<Result<ScriptReply, &'static str>> {
            let name = args.first()?;
            let Some((command, words, channels)) = keyless(name) else {
                let (_, arity) = not_called(name)?;
                return Some(Err(if takes(*arity, args.len()) {
                    errors::NOT_ALLOWED
                } else {
                    errors::WRONG_ARITY
                }));
            };
            if !words.contains(&args.len()) {
                return Some(Err(errors::WRONG_ARITY));
            }
            if let Some(grants) = self.grants {
                let (keys, channels) = (std::iter::empty(), channels.clone());
                if let Err(lacks) = judge(grants, command, args, keys, channels) {
                    return Some(Ok(self.refuse(grants, command, args, lacks)));
                }
            }
            let number = |n: u64| ScriptReply::bulk(n.to_string());
            Some(match *command {
                "time" => {
                    let ms = self.cx.unix_ms;
                    Ok(ScriptReply::Array(vec![
                        number(ms / 1000),
                        number(ms % 1000 * 1000),
                    ]))
                }
                "ping" if args.len() == 1 => Ok(ScriptReply::Status("PONG".into())),
                "ping" | "echo" => Ok(ScriptReply::Bulk(args[1].clone())),
                "keys" | "scan" if self.scope.is_all => {
                    script_scans::answer(&args, self.map, self.rows)
                }
                "keys" | "scan" => Err(script_scans::ELSEWHERE),
                sharded => self.publish(sharded == "spublish", &args[1], &args[2]),
            })
        }

        /// The error reply for a command that the script's caller may not run.
        #[cold]
        fn refuse(
            &mut self,
            grants: &Grants,
            command: &str,
            args: &[Bytes],
            lacks: Lacks,
        ) -> ScriptReply {
            let (text, object) = match lacks {
                Lacks::Command => (
                    format!(
                        "User {} has no permissions to run the '{command}' command",
                        String::from_utf8_lossy(grants.name())
                    ),
                    command.as_bytes(),
                ),
                Lacks::Key(at) => ("No permissions to access a key".to_owned(), &*args[at]),
                Lacks::Channel(at) => ("No permissions to access a channel".to_owned(), &*args[at]),
            };
            if self.refused.len() < REFUSED_MAX {
                self.refused
                    .push(GrantRefusal::new(grants.name(), lacks, object));
            }
            ScriptReply::Error(format!("ERR ACL failure in script: {text}").into())
        }
    }

    /// Whether the script's caller may run this command with these keys and channels.
    fn judge<'a>(
        grants: &Grants,
        command: &str,
        args: &'a [Bytes],
        keys: impl Iterator<Item = (usize, Rights, &'a [u8])> + Clone,
        channels: Range<usize>,
    ) -> Result<(), Lacks> {
        let first = args.get(1).map(|first| &**first);
        let channel = |at: usize| args.get(at).map_or(&b""[..], |name| &**name);
        grants.judge((command, first), keys, (channels, channel))
    }

    /// The keys at these places.
    fn keys_of<'a>(
        accesses: &'a [(usize, Rights)],
        words: &'a dyn Arguments,
    ) -> impl Iterator<Item = (usize, Rights, &'a [u8])> + Clone {
        accesses
            .iter()
            .map(|(at, rights)| (*at, *rights, words.get(*at)))
    }

    fn keyless(name: &[u8]) -> Option<&'static (&'static str, Range<usize>, Range<usize>)> {
        let mut all = KEYLESS.iter();
        all.find(|(known, ..)| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// A command that exists, but not for scripts, and its arity.
    fn not_called(name: &[u8]) -> Option<&'static (&'static str, i64)> {
        let mut all = NOT_CALLED.iter();
        all.find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
    }

    fn takes(arity: i64, words: usize) -> bool {
        let least = usize::try_from(arity.unsigned_abs()).unwrap_or(usize::MAX);
        words == least || arity < 0 && words > least
    }

    /// An array for each two.
    fn paired(parts: Vec<ScriptReply>) -> ScriptReply {
        let pairs = parts.chunks(2);
        ScriptReply::Array(
            pairs
                .map(|pair| ScriptReply::Array(pair.to_vec()))
                .collect(),
        )
    }

    fn converted(answer: Answer, protocol: ScriptProtocol) -> ScriptReply {
        let all = |answers: Vec<Answer>| {
            let replies = answers.into_iter().map(|one| converted(one, protocol));
            replies.collect::<Vec<_>>()
        };
        match answer {
            Answer::Status(text) => ScriptReply::Status(text.into()),
            Answer::Error(text) => ScriptReply::Error(text.0.into_owned().into()),
            Answer::Int(number) => ScriptReply::Int(number),
            Answer::Bulk(value) | Answer::Encoded(value) => ScriptReply::bulk(&*value),
            Answer::Double(text) => {
                let number = std::str::from_utf8(&text).ok();
                let number = number.and_then(|text| text.parse().ok());
                match number.filter(|_| protocol == ScriptProtocol::Resp3) {
                    Some(number) => ScriptReply::Double(number),
                    None => ScriptReply::bulk(&*text),
                }
            }
            Answer::Nil | Answer::NilArray => ScriptReply::Nil,
            Answer::Map(parts) | Answer::Keyed(parts) if protocol == ScriptProtocol::Resp3 => {
                let parts = all(parts);
                let pairs = parts.chunks_exact(2);
                let pairs = pairs.map(|pair| (pair[0].clone(), pair[1].clone()));
                ScriptReply::Map(pairs.collect())
            }
            Answer::Pairs(parts) if protocol == ScriptProtocol::Resp3 => paired(all(parts)),
            Answer::Keyed(parts) => paired(all(parts)),
            Answer::Array(answers) | Answer::Pairs(answers) | Answer::Map(answers) => {
                ScriptReply::Array(all(answers))
            }
            Answer::Fields(fields) => {
                let items: Vec<ScriptReply> = fields.iter().map(ScriptReply::bulk).collect();
                match (fields.part(), protocol) {
                    (Part::Whole, ScriptProtocol::Resp3) => {
                        let pairs = items.chunks_exact(2);
                        let pairs = pairs.map(|pair| (pair[0].clone(), pair[1].clone()));
                        ScriptReply::Map(pairs.collect())
                    }
                    (Part::Members, ScriptProtocol::Resp3) => ScriptReply::Set(items),
                    _ => ScriptReply::Array(items),
                }
            }
        }
    }
}
