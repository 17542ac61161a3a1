//! From arguments to requests: every check that needs no state, with Redis's own error texts.

mod client;
mod cluster;
mod connection;
mod generic;
mod pubsub;
mod scripting;
mod server;
mod string;
pub mod table;
mod transactions;

use super::cluster::Topology;
use super::frame::Args;
use super::session::client::{Chosen, Lib, Mute};
use super::session::pause::Pause;
use bytes::Bytes;
use doyen_engine::integer;
use doyen_engine::op::{Action, Condition, Expiry, RangeQuery};
use std::borrow::Cow;
use table::Spec;

/// An error reply without its `-`: a code word, a blank, a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorText(pub Cow<'static, str>);

impl From<&'static str> for ErrorText {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for ErrorText {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

const SYNTAX: &str = "ERR syntax error";
const NOT_A_FLOAT: &str = "ERR value is not a valid float";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// How an outcome is shown as this command's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// As it is.
    Plain,
    /// `Ok` is 1, `Nil` is 0 (SETNX).
    Flag,
    /// Milliseconds become seconds, rounded (TTL, EXPIRETIME).
    Seconds,
    /// 1 is `string`, 0 is `none` (TYPE).
    Type,
    /// A number that may be infinite (INCRBYFLOAT): another text on overflow.
    Float,
    /// What Redis calls the encoding of this number (OBJECT ENCODING).
    Encoding,
    /// 1 if the key exists, else nil (OBJECT REFCOUNT).
    References,
    /// An error if the key exists, else nil (OBJECT FREQ): the server does not count how often a
    /// key is used.
    Frequency,
    /// An error if the key exists, else nil (OBJECT IDLETIME): the server does not keep when a key
    /// was last used.
    IdleTime,
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// An operation on one key.
    One {
        /// The key.
        key: Bytes,
        /// What to do.
        action: Action,
        /// How to answer.
        shape: Shape,
    },
    /// The same operation for each key, from the second argument on.
    Many(Many),
    /// An operation on all partitions.
    All(All),
    /// Number of in-sync backups.
    Wait,
    /// A command about the connection.
    Connection(ConnectionCommand),
    /// A command about the cluster.
    Cluster(ClusterCommand),
    /// A command about the server.
    Server(ServerCommand),
    /// A command that always has the same answer.
    Constant(Constant),
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
    /// An array of so many zeros.
    Zeros(usize),
    /// A string.
    Bulk(&'static str),
    /// A text for people.
    Text(&'static str),
}

/// Operations on several keys. Each key's operation is atomic by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Many {
    /// Get the values.
    Get,
    /// Set keys and values, which come in turn.
    Set,
    /// Delete keys, and count them.
    Delete,
    /// Count the keys that exist.
    Exists,
    /// The same, and mark them as used.
    Touch,
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
    /// List some keys.
    Scan {
        /// The cursor at which to continue.
        cursor: u64,
        /// About how many keys.
        count: u32,
        /// The pattern that keys must match.
        pattern: Option<Bytes>,
        /// Whether strings are wanted. There are no other types here.
        strings: bool,
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
    /// List up to so many keys in the order of their bytes, with their values if they are wanted.
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
    ClientId,
    ClientSetName(Bytes),
    ClientGetName,
    /// Show the keyspace that the connection uses.
    ClientKeyspace,
    /// Use this keyspace from now on.
    ClientUse(Bytes),
    ClientInfo,
    ClientList(Chosen),
    ClientKill {
        chosen: Chosen,
        old_form: bool,
        skip_me: bool,
    },
    ClientSetInfo(Lib, Bytes),
    ClientReply(Mute),
    /// Whether the client's reads count as uses of keys.
    ClientTouches(bool),
    ClientPause(Pause),
    ClientUnpause,
    ClientTrackingInfo,
}

/// Commands about the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its command.
pub enum ClusterCommand {
    /// `SLOTS`, `SHARDS`, `NODES`.
    Topology(Topology),
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
    NoSubscribers(Vec<Bytes>),
    FunctionStats,
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

/// Commands about users. There is only one user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its command.
pub enum Acl {
    Users,
    List,
    GetUser(Bytes),
    Categories,
    Category(String),
    GenPass(u16),
}

/// The command of these arguments, if it exists and accepts so many.
///
/// # Errors
/// Redis's texts for an unknown command and for a wrong number of arguments.
pub fn find(args: Args<'_>) -> Result<&'static Spec, ErrorText> {
    // A name with a bar belongs to a container and its subcommand.
    let Some(spec) = Spec::find(args.get(0)).filter(|s| s.container().is_none()) else {
        return Err(unsupported(args).unwrap_or_else(|| unknown(args)));
    };
    // The container's own arity comes first.
    if !spec.takes(args.len()) {
        return Err(arity(spec.name));
    }
    if args.len() > 1 && !spec.subcommands().is_empty() {
        let Some(subcommand) = spec.subcommand(args.get(1)) else {
            return Err(unknown_subcommand(spec.name, args));
        };
        return if subcommand.takes(args.len()) {
            Ok(subcommand)
        } else {
            Err(arity(subcommand.name))
        };
    }
    // Keys and values come in pairs. An arity cannot express that.
    let paired = spec.keys.2 != 2 || args.len() % 2 == 1;
    if paired {
        Ok(spec)
    } else {
        Err(arity(spec.name))
    }
}

/// The request of these arguments. `unix_ms` is used only to check whether a time to live
/// overflows.
///
/// # Errors
/// Redis's texts.
pub fn parse(spec: &Spec, args: Args<'_>, unix_ms: u64) -> Parsed {
    (spec.parse)(Call {
        spec,
        args,
        unix_ms,
    })
}

/// What a description makes of a command.
pub type Parsed = Result<Request, ErrorText>;

/// A command as a client sent it. Its number of arguments is one that the command takes.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    spec: &'a Spec,
    args: Args<'a>,
    unix_ms: u64,
}

impl Call<'_> {
    /// This operation on the first key, answered as it is.
    fn one(self, action: Action) -> Parsed {
        self.shaped(action, Shape::Plain)
    }

    /// This operation on the first key, answered in this shape.
    fn shaped(self, action: Action, shape: Shape) -> Parsed {
        Ok(Request::One {
            key: self.args.bytes(1),
            action,
            shape,
        })
    }

    /// The operation on one key, or the same on several.
    fn each(self, action: Action, many: Many) -> Parsed {
        if self.args.len() == 2 {
            self.one(action)
        } else {
            Ok(Request::Many(many))
        }
    }

    /// The integer at this place among the arguments.
    fn number(self, at: usize) -> Result<i64, ErrorText> {
        integer(self.args.get(at)).ok_or_else(|| NOT_AN_INTEGER.into())
    }

    /// A write of the value at this place.
    fn set(self, value: usize, condition: Condition, expiry: Expiry, get: bool) -> Action {
        Action::Set {
            value: self.args.bytes(value),
            condition,
            expiry,
            get,
        }
    }

    /// Its options are none that the command has.
    fn refused(self) -> Parsed {
        Err(wrong_arguments(self.args))
    }
}

/// A container without a subcommand does nothing.
fn container(c: Call<'_>) -> Parsed {
    c.refused()
}

/// `HELP` of a container.
fn help(c: Call<'_>) -> Parsed {
    server(ServerCommand::Help(c.spec.container().unwrap_or_default()))
}

const fn constant(answer: Constant) -> Parsed {
    Ok(Request::Constant(answer))
}

const fn connection(command: ConnectionCommand) -> Parsed {
    Ok(Request::Connection(command))
}

const fn server(command: ServerCommand) -> Parsed {
    Ok(Request::Server(command))
}

/// The arguments from this place on, if they are not too many.
fn names(c: Call<'_>, from: usize) -> Result<Vec<Bytes>, ErrorText> {
    if c.args.len() - from > NAMES_MAX {
        return Err(TOO_MANY_NAMES.into());
    }
    Ok((from..c.args.len()).map(|i| c.args.bytes(i)).collect())
}

/// Commands that clients may expect, because databases exist, but that are not supported.
fn unsupported(args: Args<'_>) -> Option<ErrorText> {
    let name = ["MOVE", "SWAPDB"]
        .into_iter()
        .find(|name| is(args.get(0), name))?;
    let text = format!(
        "ERR {name} is not supported: keys cannot go from one database to another; \
         SELECT each database, and read and write the keys"
    );
    Some(text.into())
}

fn unknown(args: Args<'_>) -> ErrorText {
    // Redis shows 128 bytes of the name, and of the arguments together.
    let shown = |bytes: &[u8], max: usize| {
        String::from_utf8_lossy(&bytes[..bytes.len().min(max)]).into_owned()
    };
    let mut list = String::new();
    for arg in args.iter_from(1) {
        if list.len() >= 128 {
            break;
        }
        list += &format!("'{}' ", shown(arg, 128 - list.len()));
    }
    format!(
        "ERR unknown command '{}', with args beginning with: {list}",
        shown(args.get(0), 128)
    )
    .into()
}

fn arity(name: &str) -> ErrorText {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

fn lower(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_lowercase()
}

fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The unit in which a command gives a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

/// The deadline that the argument at this place gives in this unit.
fn deadline(c: Call<'_>, unit: Unit, at: usize) -> Result<Expiry, ErrorText> {
    let number = c.number(at)?;
    let invalid = || {
        ErrorText::from(format!(
            "ERR invalid expire time in '{}' command",
            c.spec.name
        ))
    };
    let ms = match unit {
        Unit::Seconds | Unit::UnixSeconds => number.checked_mul(1000).ok_or_else(invalid)?,
        Unit::Milliseconds | Unit::UnixMilliseconds => number,
    };
    match unit {
        Unit::Seconds | Unit::Milliseconds => {
            let now = i64::try_from(c.unix_ms).unwrap_or(i64::MAX);
            if ms > i64::MAX - now {
                Err(invalid())
            } else {
                Ok(Expiry::In(ms))
            }
        }
        Unit::UnixSeconds | Unit::UnixMilliseconds => Ok(Expiry::At(ms)),
    }
}

/// A time for `SET` and `GETEX`: zero and negative numbers are errors.
fn positive(c: Call<'_>, unit: Unit, at: usize) -> Result<Expiry, ErrorText> {
    if c.number(at)? <= 0 {
        return Err(format!("ERR invalid expire time in '{}' command", c.spec.name).into());
    }
    deadline(c, unit, at)
}

fn unit(arg: &[u8]) -> Option<Unit> {
    let units = [
        ("EX", Unit::Seconds),
        ("PX", Unit::Milliseconds),
        ("EXAT", Unit::UnixSeconds),
        ("PXAT", Unit::UnixMilliseconds),
    ];
    units
        .into_iter()
        .find(|(word, _)| is(arg, word))
        .map(|(_, unit)| unit)
}

/// Most names of one INFO, CONFIG GET, COMMAND INFO or COMMAND DOCS. Each name is answered by up to
/// a kilobyte, and all of them in one slice.
const NAMES_MAX: usize = 256;
const TOO_MANY_NAMES: &str = "ERR too many names: at most 256 in one command";

/// Longest pattern of KEYS and SCAN: matching costs its length times the key's, for every key.
const PATTERN_BYTES_MAX: usize = 1 << 10;

fn pattern_at(args: Args<'_>, at: usize) -> Result<Bytes, ErrorText> {
    if args.get(at).len() > PATTERN_BYTES_MAX {
        return Err(
            format!("ERR the pattern is too long: at most {PATTERN_BYTES_MAX} bytes").into(),
        );
    }
    Ok(args.bytes(at))
}

/// Redis's text for an unknown subcommand.
fn unknown_subcommand(container: &str, args: Args<'_>) -> ErrorText {
    let shown = String::from_utf8_lossy(&args.get(1)[..args.get(1).len().min(128)]);
    format!(
        "ERR unknown subcommand '{shown}'. Try {} HELP.",
        container.to_uppercase()
    )
    .into()
}

/// Redis's text for a wrong number of a subcommand's arguments.
fn wrong_arguments(args: Args<'_>) -> ErrorText {
    let shown = |at: usize| {
        String::from_utf8_lossy(&args.get(at)[..args.get(at).len().min(128)]).into_owned()
    };
    format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try {} HELP.",
        shown(1),
        shown(0).to_uppercase()
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::frame::Parser;

    const NOW: u64 = 1_800_000_000_000;

    fn ask(line: &str) -> Result<Request, String> {
        let mut parser = Parser::new(1 << 20);
        let bytes = Bytes::from(format!("{line}\r\n"));
        parser.parse(&bytes, true, 1).1.unwrap();
        let args = parser.commands(&bytes).next().unwrap();
        find(args)
            .and_then(|spec| parse(spec, args, NOW))
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

    #[test]
    fn options_of_set_are_understood_in_any_order() {
        let action = |line| match ask(line) {
            Ok(Request::One {
                action:
                    Action::Set {
                        condition,
                        expiry,
                        get,
                        ..
                    },
                ..
            }) => (condition, expiry, get),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(action("set a b"), (Condition::Always, Expiry::None, false));
        assert_eq!(
            action("SET a b PX 5 NX GET"),
            (Condition::IfAbsent, Expiry::In(5), true)
        );
        assert_eq!(
            action("SET a b get XX EX 5"),
            (Condition::IfPresent, Expiry::In(5000), true)
        );
        assert_eq!(
            action("SET a b EXAT 5"),
            (Condition::Always, Expiry::At(5000), false)
        );
        assert_eq!(
            action("SET a b PXAT 5"),
            (Condition::Always, Expiry::At(5), false)
        );
        assert_eq!(
            action("SET a b KEEPTTL"),
            (Condition::Always, Expiry::Keep, false)
        );
    }

    #[test]
    fn several_keys_of_one_command_are_several_operations() {
        assert_eq!(ask("DEL a b"), Ok(Request::Many(Many::Delete)));
        assert_eq!(ask("UNLINK a b"), Ok(Request::Many(Many::Delete)));
        assert_eq!(ask("EXISTS a a"), Ok(Request::Many(Many::Exists)));
        assert_eq!(ask("MSET a 1 b 2"), Ok(Request::Many(Many::Set)));
        assert_eq!(
            ask("DEL a"),
            Ok(Request::One {
                key: Bytes::from_static(b"a"),
                action: Action::Delete,
                shape: Shape::Plain
            })
        );
    }
}
