//! From arguments to requests: every check that needs no state, with Redis's own error texts.
//! Commands on data are described in the engine (`doyen_engine::command`), all others here.

pub(crate) mod absent;
mod client;
mod cluster;
mod connection;
mod generic;
mod pubsub;
mod scripting;
mod server;
pub mod table;
mod transactions;

use super::cluster::SlotTopology;
use super::frame::Args;
use super::pubsub::ChannelKind;
use super::session::client::{Chosen, Lib, Mute, Unblocking};
use super::session::pause::Pause;
use bytes::Bytes;
use doyen_engine::command::{
    self as data, Arguments, CommandCall, ErrorText, NOT_AN_INTEGER, SYNTAX, container, is,
    wrong_arity,
};
use doyen_engine::op::{self, RangeQuery};
use table::{Access, COMMANDS, NO_KEYS, Parse, RespDescription, RespSpec, command};

/// What a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum RespRequest {
    /// A command on data: an operation on one key, or one on each of several.
    Data(data::ParsedRequest),
    /// An operation on all partitions.
    All(All),
    /// Number of in-sync backups.
    Wait,
    /// A command about the connection.
    Connection(ConnectionCommand),
    /// A command about the client, or about all clients.
    Client(ClientCommand),
    /// A command about the cluster.
    Cluster(ClusterCommand),
    /// A command about scripts.
    Script(ScriptCommand),
    /// A command about the server.
    Server(ServerCommand),
    /// A command about channels.
    PubSub(PubSubCommand),
    /// A command that always has the same answer.
    Constant(Constant),
}

/// Commands about scripts. Their texts, keys and arguments are those of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptCommand {
    /// Run one.
    Run {
        /// Whether the first argument is its digest, and not its text.
        by_digest: bool,
        /// How many keys it has.
        keys: usize,
        /// Whether it may not write.
        read_only: bool,
    },
    /// Store one.
    Load,
    /// Tell which are stored.
    Exists,
    /// Remove all.
    Flush,
}

/// Answers that do not depend on any state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constant {
    /// `OK`.
    Ok,
    /// A number.
    Integer(i64),
    /// An array without elements.
    Array,
    /// A map without pairs.
    Map,
    /// A string.
    Bulk(&'static str),
    /// A text for people.
    Text(&'static str),
}

/// Operations on all partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum All {
    /// Count the keys.
    Count,
    /// Delete every key, of one database or of all.
    Clear {
        /// Whether all databases are cleared.
        databases: bool,
    },
    /// List every key that matches.
    Keys {
        /// The pattern.
        pattern: Bytes,
    },
    /// Some key.
    Random,
    /// List some keys.
    Scan {
        /// The cursor at which to continue.
        cursor: u64,
        /// About how many keys.
        count: u32,
        /// The pattern that keys must match.
        pattern: Option<Bytes>,
        /// What they hold; `None`: anything. An unknown type is `Some(None)`: no key holds it.
        kind: Option<Option<op::Kind>>,
    },
    /// Count the keys of one slot.
    CountInSlot(u16),
    /// List some keys of one slot.
    KeysInSlot {
        /// The slot.
        slot: u16,
        /// The most keys to list.
        count: u32,
    },
    /// List keys in the order of their bytes, with their values if they are wanted.
    Range(RangeQuery),
}

/// Commands about the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its command.
pub enum ConnectionCommand {
    Ping(Option<Bytes>),
    Echo(Bytes),
    Hello {
        protocol: Option<i64>,
        auth: Option<(Bytes, Bytes)>,
        name: Option<Bytes>,
    },
    Auth {
        user: Option<Bytes>,
        password: Bytes,
    },
    Select(i64),
    Quit,
    Reset,
    Accept,
    Multi,
    Exec,
    Discard,
    /// Watch the keys that are the arguments.
    Watch,
    Unwatch,
}

/// Commands about the client, or about all clients (`CLIENT`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its command.
pub enum ClientCommand {
    Id,
    SetName(Bytes),
    GetName,
    /// Show the keyspace that the connection uses.
    Keyspace,
    /// Use this keyspace from now on.
    Use(Bytes),
    Info,
    List(Chosen),
    Kill {
        chosen: Chosen,
        old_form: bool,
        skip_me: bool,
    },
    SetInfo(Lib, Bytes),
    Reply(Mute),
    /// Whether the client's reads count as uses of keys.
    Touches(bool),
    Pause(Pause),
    Unpause,
    /// The client with this number waits in line no more.
    Unblock(u64, Unblocking),
    Tracking(TrackingCommand),
}

/// Commands about the keys that a client tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrackingCommand {
    /// Track keys.
    On(Box<TrackingOptions>),
    /// Track none.
    Off,
    /// Whether the keys of the next command are tracked; `None`: neither `YES` nor `NO`.
    Caching(Option<bool>),
    /// Show the connection to which invalidations are redirected.
    Redirection,
    /// Show how the client tracks keys.
    Info,
}

/// How a client tracks keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackingOptions {
    /// The connection that gets the invalidations; `None`: the client itself.
    pub redirect: Option<u64>,
    /// Which keys are tracked.
    pub mode: TrackingMode,
    /// Whether the client does not hear of its own changes.
    pub no_loop: bool,
}

/// Which keys a client tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrackingMode {
    /// Those that it reads.
    Reads(CachedReads),
    /// All with one of these prefixes.
    Broadcast(Vec<Bytes>),
}

/// The reads whose values a client keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachedReads {
    /// All.
    All,
    /// Those after `CLIENT CACHING YES`.
    OptIn,
    /// All but those after `CLIENT CACHING NO`.
    OptOut,
}

/// Commands about the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its command.
pub enum ClusterCommand {
    /// `SLOTS`, `SHARDS`, `NODES`.
    Topology(SlotTopology),
    Info,
    MyId,
    MyShardId,
    Replicas(Bytes),
    Links,
    KeySlot(u16),
}

/// Commands about the server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its command.
pub enum ServerCommand {
    Info(Vec<String>),
    ConfigGet(Vec<Bytes>),
    ConfigSet(Vec<(String, Bytes)>),
    ResetStat,
    CommandCount,
    /// `None`: all.
    CommandInfo(Option<Vec<Bytes>>),
    /// `None`: all.
    CommandDocs(Option<Vec<Bytes>>),
    CommandList(Listed),
    CommandGetKeys(Vec<Bytes>),
    /// Help for this container.
    Help(&'static str),
    Time,
    Role,
    LastSave,
    LolWut,
    MemoryStats,
    MemoryDoctor,
    SlowlogGet(usize),
    SlowlogLen,
    SlowlogReset,
    Acl(Acl),
    FunctionStats,
    /// See the commands of all clients from now on.
    Monitor,
    /// How long these commands took; without names, all.
    LatencyHistogram(Vec<Bytes>),
}

/// Commands about channels. Names and messages that are arguments are not repeated here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PubSubCommand {
    /// Subscribe to the names that are the arguments.
    Subscribe(ChannelKind),
    /// End the subscriptions to the names that are the arguments; without names, to all.
    Unsubscribe(ChannelKind),
    /// Publish the second argument in the channel that is the first one.
    Publish {
        /// Whether it is a shard channel.
        sharded: bool,
    },
    /// List the channels that have subscribers and match the pattern.
    Channels(ChannelKind, Option<Bytes>),
    /// Count the subscribers of these names.
    Subscribers(ChannelKind, Vec<Bytes>),
    /// Count the patterns that have subscribers.
    Patterns,
}

/// The commands that are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its option.
pub enum Listed {
    All,
    None,
    Category(String),
    Pattern(Bytes),
}

/// Commands about users.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its command.
pub enum Acl {
    WhoAmI,
    Users,
    List,
    GetUser(Bytes),
    SetUser {
        name: Bytes,
        rules: Vec<Bytes>,
    },
    DelUser(Vec<Bytes>),
    Categories,
    Category(String),
    /// This many of the latest refusals.
    Log(usize),
    ResetLog,
    /// Whether a user may run a command.
    DryRun {
        user: Bytes,
        args: Vec<Bytes>,
    },
    GenPass(u16),
    Load,
    Save,
}

/// The command of these arguments, if it exists and accepts their number.
///
/// # Errors
/// Redis's texts for an unknown command and for a wrong number of arguments.
pub fn find(args: Args<'_>) -> Result<&'static RespSpec, ErrorText> {
    COMMANDS
        .find(&args)
        .map_err(|why| absent_command(args).unwrap_or(why))
}

/// The request of these arguments. `unix_ms` is used only to check whether a time to live
/// overflows.
///
/// # Errors
/// Redis's texts.
pub fn parse(spec: &RespSpec, args: &dyn Arguments, unix_ms: u64) -> ParsedCommand {
    let call = CommandCall {
        name: spec.name,
        args,
        unix_ms,
    };
    match spec.parse {
        Parse::Data(parse) => parse(call).map(RespRequest::Data),
        Parse::Own(parse) => parse(call),
    }
}

/// What a description makes of a command.
pub type ParsedCommand = Result<RespRequest, ErrorText>;

/// `HELP` of a container.
/// What many commands are allowed besides, in words: see [`data::command`].
const ALWAYS: &str = "noscript loading stale";
/// The same of commands for administrators.
const ADMIN: &str = "admin noscript loading stale";

/// Describes a command on the connection.
const fn on_connection(
    name: &'static str,
    since: &'static str,
    arity: i64,
    flags: &'static str,
) -> data::Description<()> {
    command(name, since, arity, "connection", flags).on(NO_KEYS, Access::Nothing, "connection")
}

/// Describes the `HELP` of a container.
const fn help_of(name: &'static str, since: &'static str, group: &'static str) -> RespDescription {
    command(name, since, 2, group, "loading stale")
        .about("Show helpful text about the different subcommands")
        .parse(|c| server(ServerCommand::Help(c.container().unwrap_or_default())))
}

const fn constant(answer: Constant) -> ParsedCommand {
    Ok(RespRequest::Constant(answer))
}

const fn connection(command: ConnectionCommand) -> ParsedCommand {
    Ok(RespRequest::Connection(command))
}

const fn client(command: ClientCommand) -> ParsedCommand {
    Ok(RespRequest::Client(command))
}

const fn server(command: ServerCommand) -> ParsedCommand {
    Ok(RespRequest::Server(command))
}

/// The arguments from this place on, if they are not too many.
fn names(c: CommandCall<'_>, from: usize) -> Result<Vec<Bytes>, ErrorText> {
    if c.args.len() - from > NAMES_MAX {
        return Err(TOO_MANY_NAMES.into());
    }
    Ok((from..c.args.len()).map(|i| c.args.bytes(i)).collect())
}

/// The error for a command that clients may expect and that is not there: why, and what to do
/// instead.
fn absent_command(args: Args<'_>) -> Option<ErrorText> {
    let command = lower(args.get(0));
    // Clients look at the beginning.
    if let Some(why) = absent::why_absent(&command) {
        let name = command.to_uppercase();
        return Some(format!("ERR unknown command '{name}': {why}").into());
    }
    let subcommand = (args.len() > 1).then(|| lower(args.get(1)))?;
    let why = absent::why_absent(&format!("{command}|{subcommand}"))?;
    let name = subcommand.to_uppercase();
    Some(format!("ERR unknown subcommand '{name}': {why}").into())
}

fn lower(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_lowercase()
}

/// Most names of one INFO, CONFIG GET, COMMAND INFO or COMMAND DOCS. Each name is answered by up to
/// a kilobyte, and all of them in one slice.
const NAMES_MAX: usize = 256;
const TOO_MANY_NAMES: &str = "ERR too many names: at most 256 in one command";

/// Longest pattern of KEYS and SCAN: matching costs its length times the key's, for every key.
const PATTERN_BYTES_MAX: usize = 1 << 10;

fn pattern_at(args: &dyn Arguments, at: usize) -> Result<Bytes, ErrorText> {
    if args.get(at).len() > PATTERN_BYTES_MAX {
        return Err(
            format!("ERR the pattern is too long: at most {PATTERN_BYTES_MAX} bytes").into(),
        );
    }
    Ok(args.bytes(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::frame::Parser;

    const NOW: u64 = 1_800_000_000_000;

    fn ask(line: &str) -> Result<RespRequest, String> {
        let mut parser = Parser::new(1 << 20);
        let bytes = Bytes::from(format!("{line}\r\n"));
        parser.parse(&bytes, true, 1).1.unwrap();
        let args = parser.commands(&bytes).next().unwrap();
        find(args)
            .and_then(|spec| parse(spec, &args, NOW))
            .map_err(|e| e.0.into_owned())
    }

    /// Every text was compared with redis-server 7.0.15.
    #[test]
    fn mistakes_get_the_texts_of_redis() {
        let cases = include_str!("command/mistakes.txt")
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty());
        for case in cases {
            let (line, text) = case.split_once(" => ").unwrap();
            assert_eq!(ask(line), Err(text.to_owned()), "{line}");
        }
    }

    /// Regression: `KEYS *aaa…b` over long keys held the data thread for seconds, and its node was
    /// deposed.
    #[test]
    fn a_pattern_that_would_take_long_is_refused() {
        let refused = Err("ERR the pattern is too long: at most 1024 bytes".to_owned());
        let pattern = "a".repeat(PATTERN_BYTES_MAX + 1);
        assert_eq!(ask(&format!("keys {pattern}")), refused);
        assert_eq!(ask(&format!("scan 0 match {pattern}")), refused);
        assert!(ask(&format!("keys {}", &pattern[1..])).is_ok());
    }

    /// Regression: 32,768 names were looked up and answered in one go, some 16 MB.
    #[test]
    fn questions_with_too_many_names_are_refused() {
        let names = "get ".repeat(NAMES_MAX);
        for question in ["command info", "command docs", "config get", "info"] {
            assert!(ask(&format!("{question} {names}")).is_ok(), "{question}");
            assert_eq!(
                ask(&format!("{question} {names}get")),
                Err(TOO_MANY_NAMES.to_owned()),
                "{question}"
            );
        }
        assert!(ask(&format!("command getkeys mget {names}get")).is_ok());
    }
}
