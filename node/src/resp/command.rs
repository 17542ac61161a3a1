//! From arguments to requests: every check that needs no state, with Redis's own error texts.

mod client;
mod looks;
pub mod table;

use super::cluster::Topology;
use super::frame::{Args, integer};
use super::session::client::{Chosen, Lib, Mute};
use super::session::pause::Pause;
use bytes::Bytes;
use doyen_engine::Extended;
use doyen_engine::op::{Action, Condition, ExpireCondition, Expiry, RangeQuery};
use std::borrow::Cow;
use table::{Spec, Verb};

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
    // MSET's keys and values come in pairs. Its arity cannot express that.
    let paired = spec.verb != Verb::MSet || args.len() % 2 == 1;
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
pub fn parse(spec: &Spec, args: Args<'_>, unix_ms: u64) -> Result<Request, ErrorText> {
    let one = |action| {
        Ok(Request::One {
            key: args.bytes(1),
            action,
            shape: Shape::Plain,
        })
    };
    let shaped = |action, shape| {
        Ok(Request::One {
            key: args.bytes(1),
            action,
            shape,
        })
    };
    let number = |i| integer(args.get(i)).ok_or(ErrorText::from(NOT_AN_INTEGER));
    let expiry = |unit, n| deadline(spec, unit, n, unix_ms);
    let plain_set = |value, condition, expiry, get| Action::Set {
        value: args.bytes(value),
        condition,
        expiry,
        get,
    };
    match spec.verb {
        Verb::Get => one(Action::Get),
        Verb::Set => set(spec, args, unix_ms),
        Verb::GetSet => one(plain_set(2, Condition::Always, Expiry::None, true)),
        Verb::SetNx => shaped(
            plain_set(2, Condition::IfAbsent, Expiry::None, false),
            Shape::Flag,
        ),
        Verb::SetEx => one(plain_set(
            3,
            Condition::Always,
            positive(spec, Unit::Seconds, number(2)?, unix_ms)?,
            false,
        )),
        Verb::PSetEx => one(plain_set(
            3,
            Condition::Always,
            positive(spec, Unit::Milliseconds, number(2)?, unix_ms)?,
            false,
        )),
        Verb::GetDel => one(Action::GetDel),
        Verb::GetEx => getex(spec, args, unix_ms),
        Verb::Append => one(Action::Append {
            value: args.bytes(2),
        }),
        Verb::StrLen => one(Action::Strlen),
        Verb::Incr => one(Action::IncrBy(1)),
        Verb::Decr => one(Action::IncrBy(-1)),
        Verb::IncrBy => one(Action::IncrBy(number(2)?)),
        Verb::DecrBy => one(Action::IncrBy(
            number(2)?
                .checked_neg()
                .ok_or("ERR decrement would overflow")?,
        )),
        Verb::IncrByFloat => shaped(
            Action::IncrByFloat(Extended::parse(args.get(2)).ok_or(NOT_A_FLOAT)?),
            Shape::Float,
        ),
        Verb::Type => shaped(Action::Exists, Shape::Type),
        Verb::Expire => one(Action::Expire {
            condition: expire_condition(args)?,
            expiry: expiry(Unit::Seconds, number(2)?)?,
        }),
        Verb::PExpire => one(Action::Expire {
            condition: expire_condition(args)?,
            expiry: expiry(Unit::Milliseconds, number(2)?)?,
        }),
        Verb::ExpireAt => one(Action::Expire {
            condition: expire_condition(args)?,
            expiry: expiry(Unit::UnixSeconds, number(2)?)?,
        }),
        Verb::PExpireAt => one(Action::Expire {
            condition: expire_condition(args)?,
            expiry: expiry(Unit::UnixMilliseconds, number(2)?)?,
        }),
        Verb::Ttl => shaped(Action::PTtl, Shape::Seconds),
        Verb::PTtl => one(Action::PTtl),
        Verb::ExpireTime => shaped(Action::PExpireTime, Shape::Seconds),
        Verb::PExpireTime => one(Action::PExpireTime),
        Verb::Persist => one(Action::Persist),
        Verb::MGet => Ok(Request::Many(Many::Get)),
        Verb::MSet => Ok(Request::Many(Many::Set)),
        Verb::Del if args.len() == 2 => one(Action::Delete),
        Verb::Del => Ok(Request::Many(Many::Delete)),
        Verb::Exists if args.len() == 2 => one(Action::Exists),
        Verb::Exists => Ok(Request::Many(Many::Exists)),
        Verb::Touch if args.len() == 2 => one(Action::Touch),
        Verb::Touch => Ok(Request::Many(Many::Touch)),
        Verb::DbSize => Ok(Request::All(All::Count)),
        Verb::Flush => flush(spec, args),
        Verb::Keys => Ok(Request::All(All::Keys {
            pattern: pattern_at(args, 1)?,
        })),
        Verb::Scan => scan(args),
        Verb::ScanRange => scan_range(args),
        Verb::Wait => wait(args),
        Verb::Ping if args.len() > 2 => Err(arity(spec.name)),
        Verb::Ping => Ok(Request::Connection(ConnectionCommand::Ping(
            (args.len() == 2).then(|| args.bytes(1)),
        ))),
        Verb::Echo => Ok(Request::Connection(ConnectionCommand::Echo(args.bytes(1)))),
        Verb::Hello => hello(args),
        Verb::Auth => match args.len() {
            2 => Ok(Request::Connection(ConnectionCommand::Auth {
                user: None,
                password: args.bytes(1),
            })),
            3 => Ok(Request::Connection(ConnectionCommand::Auth {
                user: Some(args.bytes(1)),
                password: args.bytes(2),
            })),
            _ => Err(SYNTAX.into()),
        },
        Verb::Select => match number(1)? {
            index if i32::try_from(index).is_ok() => {
                Ok(Request::Connection(ConnectionCommand::Select(index)))
            }
            _ => Err(
                "ERR value is out of range, value must between -2147483648 and 2147483647".into(),
            ),
        },
        Verb::Quit => Ok(Request::Connection(ConnectionCommand::Quit)),
        Verb::Reset => Ok(Request::Connection(ConnectionCommand::Reset)),
        Verb::ReadOnly | Verb::ReadWrite | Verb::Asking => {
            Ok(Request::Connection(ConnectionCommand::Accept))
        }
        Verb::Unwatch => constant(Constant::Ok),
        Verb::Client => client::parse(spec, args),
        Verb::Cluster => cluster(args),
        Verb::Config => looks::config(spec, args),
        Verb::Command => looks::command(spec, args),
        Verb::Memory => looks::memory(spec, args),
        Verb::Object => looks::object(spec, args),
        Verb::Slowlog => looks::slowlog(spec, args),
        Verb::Latency => looks::latency(spec, args),
        Verb::Acl => looks::acl(spec, args),
        Verb::PubSub => looks::pubsub(spec, args),
        Verb::Script => looks::script(spec, args),
        Verb::Function => looks::function(spec, args),
        Verb::Module => constant(Constant::Array),
        Verb::Help => Ok(Request::Server(ServerCommand::Help(
            spec.container().unwrap_or_default(),
        ))),
        Verb::Time => Ok(Request::Server(ServerCommand::Time)),
        Verb::Role => Ok(Request::Server(ServerCommand::Role)),
        Verb::LastSave => Ok(Request::Server(ServerCommand::LastSave)),
        Verb::LolWut => looks::lolwut(args),
        Verb::Debug => Err(DEBUG_REFUSED.into()),
        Verb::Info if args.len() - 1 > NAMES_MAX => Err(TOO_MANY_NAMES.into()),
        Verb::Info => Ok(Request::Server(ServerCommand::Info(
            args.iter_from(1).map(lower).collect(),
        ))),
    }
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

fn deadline(spec: &Spec, unit: Unit, number: i64, unix_ms: u64) -> Result<Expiry, ErrorText> {
    let invalid = || {
        ErrorText::from(format!(
            "ERR invalid expire time in '{}' command",
            spec.name
        ))
    };
    let ms = match unit {
        Unit::Seconds | Unit::UnixSeconds => number.checked_mul(1000).ok_or_else(invalid)?,
        Unit::Milliseconds | Unit::UnixMilliseconds => number,
    };
    match unit {
        Unit::Seconds | Unit::Milliseconds => {
            let now = i64::try_from(unix_ms).unwrap_or(i64::MAX);
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
fn positive(spec: &Spec, unit: Unit, number: i64, unix_ms: u64) -> Result<Expiry, ErrorText> {
    if number <= 0 {
        return Err(format!("ERR invalid expire time in '{}' command", spec.name).into());
    }
    deadline(spec, unit, number, unix_ms)
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

fn set(spec: &Spec, args: Args<'_>, unix_ms: u64) -> Result<Request, ErrorText> {
    let (mut condition, mut given, mut keep, mut get) = (Condition::Always, None, false, false);
    let mut i = 3;
    while i < args.len() {
        let arg = args.get(i);
        if is(arg, "NX") && condition != Condition::IfPresent {
            condition = Condition::IfAbsent;
        } else if is(arg, "XX") && condition != Condition::IfAbsent {
            condition = Condition::IfPresent;
        } else if is(arg, "GET") {
            get = true;
        } else if is(arg, "KEEPTTL") && given.is_none() {
            keep = true;
        } else if let Some(unit) =
            unit(arg).filter(|unit| given_alike(given, *unit) && !keep && i + 1 < args.len())
        {
            i += 1;
            given = Some((unit, i));
        } else {
            return Err(SYNTAX.into());
        }
        i += 1;
    }
    let expiry = match given {
        // The number is looked at last: a syntax error comes first, as in Redis.
        Some((unit, at)) => positive(
            spec,
            unit,
            integer(args.get(at)).ok_or(NOT_AN_INTEGER)?,
            unix_ms,
        )?,
        None if keep => Expiry::Keep,
        None => Expiry::None,
    };
    Ok(Request::One {
        key: args.bytes(1),
        action: Action::Set {
            value: args.bytes(2),
            condition,
            expiry,
            get,
        },
        shape: Shape::Plain,
    })
}

/// A deadline may be given again in the same unit, and the last one counts. Another unit is an
/// error.
fn given_alike(given: Option<(Unit, usize)>, unit: Unit) -> bool {
    given.is_none_or(|(before, _)| before == unit)
}

fn getex(spec: &Spec, args: Args<'_>, unix_ms: u64) -> Result<Request, ErrorText> {
    let (mut given, mut persist) = (None, false);
    let mut i = 2;
    while i < args.len() {
        let arg = args.get(i);
        if is(arg, "PERSIST") && given.is_none() {
            persist = true;
        } else if let Some(unit) =
            unit(arg).filter(|unit| given_alike(given, *unit) && !persist && i + 1 < args.len())
        {
            i += 1;
            given = Some((unit, i));
        } else {
            return Err(SYNTAX.into());
        }
        i += 1;
    }
    let action = match given {
        Some((unit, at)) => Action::GetEx {
            expiry: positive(
                spec,
                unit,
                integer(args.get(at)).ok_or(NOT_AN_INTEGER)?,
                unix_ms,
            )?,
        },
        None if persist => Action::GetEx {
            expiry: Expiry::None,
        },
        None => Action::Get,
    };
    Ok(Request::One {
        key: args.bytes(1),
        action,
        shape: Shape::Plain,
    })
}

fn expire_condition(args: Args<'_>) -> Result<ExpireCondition, ErrorText> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for arg in args.iter_from(3) {
        match arg.to_ascii_uppercase().as_slice() {
            b"NX" => nx = true,
            b"XX" => xx = true,
            b"GT" => gt = true,
            b"LT" => lt = true,
            _ => {
                return Err(
                    format!("ERR Unsupported option {}", String::from_utf8_lossy(arg)).into(),
                );
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    Ok(match (nx, xx, gt, lt) {
        (true, ..) => ExpireCondition::IfNone,
        // A key without a deadline is never later than anything, so GT says already what XX adds.
        (_, _, true, _) => ExpireCondition::IfLater,
        (_, true, _, true) => ExpireCondition::IfSomeEarlier,
        (_, _, _, true) => ExpireCondition::IfEarlier,
        (_, true, ..) => ExpireCondition::IfSome,
        _ => ExpireCondition::Always,
    })
}

fn flush(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    let databases = spec.name == "flushall";
    let mode_known =
        args.len() == 1 || args.len() == 2 && (is(args.get(1), "SYNC") || is(args.get(1), "ASYNC"));
    if mode_known {
        Ok(Request::All(All::Clear { databases }))
    } else {
        Err(SYNTAX.into())
    }
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

fn scan(args: Args<'_>) -> Result<Request, ErrorText> {
    let cursor = cursor(args.get(1)).ok_or("ERR invalid cursor")?;
    let (mut count, mut pattern, mut strings) = (10, None, true);
    let mut i = 2;
    while i < args.len() {
        let option = args.get(i);
        if i + 1 >= args.len() {
            return Err(SYNTAX.into());
        }
        if is(option, "COUNT") {
            let asked = integer(args.get(i + 1)).ok_or(NOT_AN_INTEGER)?;
            if asked < 1 {
                return Err(SYNTAX.into());
            }
            count = u32::try_from(asked).unwrap_or(u32::MAX);
        } else if is(option, "MATCH") {
            pattern = Some(pattern_at(args, i + 1)?);
        } else if is(option, "TYPE") {
            strings = is(args.get(i + 1), "string");
        } else {
            return Err(SYNTAX.into());
        }
        i += 2;
    }
    Ok(Request::All(All::Scan {
        cursor,
        count,
        pattern,
        strings,
    }))
}

/// Longest bound of SCANRANGE: the default limit of keys.
const BOUND_BYTES_MAX: usize = 64 << 10;

fn scan_range(args: Args<'_>) -> Result<Request, ErrorText> {
    // Copies: every partition is asked with the bounds, and a slice would hold the read buffer
    // meanwhile.
    let bound = |at| match args.get(at) {
        long if long.len() > BOUND_BYTES_MAX => Err(ErrorText::from(format!(
            "ERR a bound is too long: at most {BOUND_BYTES_MAX} bytes"
        ))),
        bound => Ok(Bytes::copy_from_slice(bound)),
    };
    let mut query = RangeQuery {
        from: bound(1)?,
        to: bound(2)?,
        count: u32::MAX,
        reverse: false,
        values: false,
    };
    let mut i = 3;
    while i < args.len() {
        let option = args.get(i);
        if is(option, "LIMIT") && i + 1 < args.len() {
            let asked = integer(args.get(i + 1)).ok_or(NOT_AN_INTEGER)?;
            if asked < 1 {
                return Err("ERR LIMIT must be at least 1".into());
            }
            query.count = u32::try_from(asked).unwrap_or(u32::MAX);
            i += 1;
        } else if is(option, "REV") {
            query.reverse = true;
        } else if is(option, "WITHVALUES") {
            query.values = true;
        } else {
            return Err(SYNTAX.into());
        }
        i += 1;
    }
    Ok(Request::All(All::Range(query)))
}

/// A cursor as C, and so Redis, reads it: no text is 0, and a negative number counts from the end.
fn cursor(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    match text.strip_prefix('-') {
        _ if text.is_empty() => Some(0),
        Some(rest) if !rest.starts_with('+') => rest.parse().ok().map(u64::wrapping_neg),
        _ => text.parse().ok(),
    }
}

fn wait(args: Args<'_>) -> Result<Request, ErrorText> {
    integer(args.get(1)).ok_or(NOT_AN_INTEGER)?;
    match integer(args.get(2)) {
        None => Err("ERR timeout is not an integer or out of range".into()),
        Some(timeout) if timeout < 0 => Err("ERR timeout is negative".into()),
        Some(_) => Ok(Request::Wait),
    }
}

fn hello(args: Args<'_>) -> Result<Request, ErrorText> {
    let (mut protocol, mut auth, mut name) = (None, None, None);
    if args.len() > 1 {
        let asked =
            integer(args.get(1)).ok_or("ERR Protocol version is not an integer or out of range")?;
        if !(2..=3).contains(&asked) {
            return Err("NOPROTO unsupported protocol version".into());
        }
        protocol = Some(asked);
    }
    let mut i = 2;
    while i < args.len() {
        let option = args.get(i);
        let left = args.len() - i - 1;
        if is(option, "AUTH") && left >= 2 {
            auth = Some((args.bytes(i + 1), args.bytes(i + 2)));
            i += 3;
        } else if is(option, "SETNAME") && left >= 1 {
            name = Some(args.bytes(i + 1));
            i += 2;
        } else {
            return Err(format!(
                "ERR Syntax error in HELLO option '{}'",
                String::from_utf8_lossy(option)
            )
            .into());
        }
    }
    Ok(Request::Connection(ConnectionCommand::Hello {
        protocol,
        auth,
        name,
    }))
}

/// Redis's text if its configuration does not allow `DEBUG`.
const DEBUG_REFUSED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is \
    set to \"local\", you can run it from a local connection, otherwise you need to set this \
    option in the configuration file, and then restart the server.";

const fn constant(answer: Constant) -> Result<Request, ErrorText> {
    Ok(Request::Constant(answer))
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

/// The subcommand in small letters, if it accepts so many arguments in all.
fn subcommand(container: &str, args: Args<'_>, known: &[(&str, i64)]) -> Result<String, ErrorText> {
    let name = lower(args.get(1));
    let Some((_, takes)) = known.iter().find(|(word, _)| *word == name) else {
        return Err(unknown_subcommand(container, args));
    };
    let least = usize::try_from(takes.unsigned_abs()).unwrap_or(usize::MAX);
    let fits = if *takes < 0 {
        args.len() >= least
    } else {
        args.len() == least
    };
    if fits {
        Ok(name)
    } else {
        Err(arity(&format!("{}|{name}", container.to_lowercase())))
    }
}

fn cluster(args: Args<'_>) -> Result<Request, ErrorText> {
    let known = [
        ("slots", 2),
        ("shards", 2),
        ("nodes", 2),
        ("info", 2),
        ("myid", 2),
        ("myshardid", 2),
        ("links", 2),
        ("replicas", 3),
        ("slaves", 3),
        ("keyslot", 3),
        ("countkeysinslot", 3),
        ("getkeysinslot", 4),
    ];
    let subcommand = subcommand("CLUSTER", args, &known)?;
    let slot = || {
        integer(args.get(2)).ok_or(NOT_AN_INTEGER).map(|n| {
            u16::try_from(n)
                .ok()
                .filter(|s| *s < doyen_placement::hash::SLOTS)
        })
    };
    Ok(Request::Cluster(match subcommand.as_str() {
        "slots" => ClusterCommand::Topology(Topology::Slots),
        "shards" => ClusterCommand::Topology(Topology::Shards),
        "nodes" => ClusterCommand::Topology(Topology::Nodes),
        "info" => ClusterCommand::Info,
        "myid" => ClusterCommand::MyId,
        "myshardid" => ClusterCommand::MyShardId,
        "links" => ClusterCommand::Links,
        "replicas" | "slaves" => ClusterCommand::Replicas(args.bytes(2)),
        "keyslot" => ClusterCommand::KeySlot(doyen_placement::hash::slot(args.get(2))),
        "getkeysinslot" => {
            let (slot, count) = (slot()?, integer(args.get(3)).ok_or(NOT_AN_INTEGER)?);
            let wrong = "ERR Invalid slot or number of keys";
            // No reply has room for more keys than this.
            let count = u64::try_from(count)
                .map_err(|_| wrong)?
                .min(u32::MAX.into());
            return Ok(Request::All(All::KeysInSlot {
                slot: slot.ok_or(wrong)?,
                count: u32::try_from(count).unwrap_or(u32::MAX),
            }));
        }
        _ => {
            return Ok(Request::All(All::CountInSlot(
                slot()?.ok_or("ERR Invalid slot")?,
            )));
        }
    }))
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
