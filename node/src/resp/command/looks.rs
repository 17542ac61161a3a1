//! Commands that people and dashboards use to look at a server: `CONFIG`, `COMMAND`, `MEMORY`,
//! `OBJECT`, `SLOWLOG`, `LATENCY` and `ACL`. For features that this server lacks (`PUBSUB`,
//! `SCRIPT`, `FUNCTION`, `MODULE`), the answers of a server that does not use them.

use super::table::Spec;
use super::{
    Acl, Constant, ErrorText, Listed, NAMES_MAX, NOT_AN_INTEGER, Request, SYNTAX, ServerCommand,
    Shape, TOO_MANY_NAMES, constant, is, lower, pattern_at, wrong_arguments,
};
use crate::resp::frame::{Args, integer};
use bytes::Bytes;
use doyen_engine::op::Action;

/// Bits of a generated password: the default, and the most.
const PASSWORD_BITS: u16 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

/// The part of a name after the bar.
fn subcommand(spec: &Spec) -> &'static str {
    spec.name.split_once('|').map_or("", |(_, name)| name)
}

fn named(args: Args<'_>, from: usize) -> Result<Vec<Bytes>, ErrorText> {
    if args.len() - from > NAMES_MAX {
        return Err(TOO_MANY_NAMES.into());
    }
    Ok((from..args.len()).map(|i| args.bytes(i)).collect())
}

pub(super) fn config(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    Ok(Request::Server(match subcommand(spec) {
        "get" if args.len() - 2 > NAMES_MAX => return Err(TOO_MANY_NAMES.into()),
        "get" => ServerCommand::ConfigGet(
            (2..args.len())
                .map(|i| pattern_at(args, i))
                .collect::<Result<_, _>>()?,
        ),
        "set" if args.len() % 2 == 1 => return Err(SYNTAX.into()),
        "set" => ServerCommand::ConfigSet(
            named(args, 2)?
                .chunks_exact(2)
                .map(|pair| (lower(&pair[0]), pair[1].clone()))
                .collect(),
        ),
        "resetstat" => ServerCommand::ResetStat,
        "rewrite" => return Err("ERR The server is running without a config file".into()),
        _ => return Err(wrong_arguments(args)),
    }))
}

pub(super) fn command(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    let some = || {
        if args.len() > 2 {
            named(args, 2).map(Some)
        } else {
            Ok(None)
        }
    };
    Ok(Request::Server(match subcommand(spec) {
        "" => ServerCommand::CommandInfo(None),
        "count" => ServerCommand::CommandCount,
        "info" => ServerCommand::CommandInfo(some()?),
        "docs" => ServerCommand::CommandDocs(some()?),
        "list" if args.len() == 2 => ServerCommand::CommandList(Listed::All),
        "list" if args.len() == 5 && is(args.get(2), "filterby") => {
            ServerCommand::CommandList(match args.get(3) {
                by if is(by, "module") => Listed::None,
                by if is(by, "aclcat") => Listed::Category(lower(args.get(4))),
                by if is(by, "pattern") => Listed::Pattern(pattern_at(args, 4)?),
                _ => return Err(SYNTAX.into()),
            })
        }
        "list" => return Err(SYNTAX.into()),
        // A command may have as many keys as it likes.
        "getkeys" => {
            ServerCommand::CommandGetKeys((2..args.len()).map(|i| args.bytes(i)).collect())
        }
        _ => return Err(wrong_arguments(args)),
    }))
}

pub(super) fn memory(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    Ok(match subcommand(spec) {
        "usage" => {
            // Strings have no elements to sample.
            match args.len() {
                3 => {}
                5 if is(args.get(3), "samples") => {
                    integer(args.get(4)).ok_or(NOT_AN_INTEGER)?;
                    if args.get(4).starts_with(b"-") {
                        return Err(SYNTAX.into());
                    }
                }
                _ => return Err(SYNTAX.into()),
            }
            Request::One {
                key: args.bytes(2),
                action: Action::Footprint,
                shape: Shape::Plain,
            }
        }
        "stats" => Request::Server(ServerCommand::MemoryStats),
        "doctor" => Request::Server(ServerCommand::MemoryDoctor),
        "malloc-stats" => {
            return constant(Constant::Text(
                "Stats not supported for the current allocator",
            ));
        }
        "purge" => return constant(Constant::Ok),
        _ => return Err(wrong_arguments(args)),
    })
}

pub(super) fn object(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    let (action, shape) = match subcommand(spec) {
        "encoding" => (Action::Encoding, Shape::Encoding),
        "refcount" => (Action::Exists, Shape::References),
        "freq" => (Action::Exists, Shape::Frequency),
        "idletime" => (Action::Exists, Shape::IdleTime),
        _ => return Err(wrong_arguments(args)),
    };
    Ok(Request::One {
        key: args.bytes(2),
        action,
        shape,
    })
}

pub(super) fn slowlog(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    /// The default of Redis.
    const SHOWN: usize = 10;
    Ok(Request::Server(match subcommand(spec) {
        "get" if args.len() > 3 => return Err(wrong_arguments(args)),
        "get" if args.len() == 2 => ServerCommand::SlowlogGet(SHOWN),
        "get" => match integer(args.get(2)) {
            Some(-1) => ServerCommand::SlowlogGet(usize::MAX),
            Some(count @ 0..) => {
                ServerCommand::SlowlogGet(usize::try_from(count).unwrap_or(usize::MAX))
            }
            _ => return Err("ERR count should be greater than or equal to -1".into()),
        },
        "len" => ServerCommand::SlowlogLen,
        "reset" => ServerCommand::SlowlogReset,
        _ => return Err(wrong_arguments(args)),
    }))
}

/// This server has no latency monitor: slow commands are in `SLOWLOG`, and the times of passes in
/// `/metrics`.
pub(super) fn latency(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    match subcommand(spec) {
        "latest" | "history" => constant(Constant::Array),
        "histogram" => constant(Constant::Map),
        "reset" => constant(Constant::Integer(0)),
        "graph" => Err(format!(
            "ERR No samples available for event '{}'",
            String::from_utf8_lossy(args.get(2))
        )
        .into()),
        "doctor" => constant(Constant::Text(
            "Latency monitoring is not available in this server. SLOWLOG GET shows slow commands. \
             /metrics shows how long the passes of data threads take.\n",
        )),
        _ => Err(wrong_arguments(args)),
    }
}

/// There is one user, `default`, which may do everything.
pub(super) fn acl(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    Ok(Request::Server(ServerCommand::Acl(
        match subcommand(spec) {
            "whoami" => return constant(Constant::Bulk("default")),
            "users" => Acl::Users,
            "list" => Acl::List,
            "getuser" => Acl::GetUser(args.bytes(2)),
            "cat" if args.len() == 2 => Acl::Categories,
            "cat" if args.len() == 3 => Acl::Category(lower(args.get(2))),
            "genpass" if args.len() == 2 => Acl::GenPass(PASSWORD_BITS),
            "genpass" if args.len() == 3 => {
                let bits = integer(args.get(2)).ok_or(NOT_AN_INTEGER)?;
                let fits = (1..=PASSWORD_BITS_MAX).contains(&bits);
                let bits = u16::try_from(bits).ok().filter(|_| fits);
                let why = "ERR ACL GENPASS argument must be the number of bits for the output \
                       password, a positive number up to 4096";
                Acl::GenPass(bits.ok_or(why)?)
            }
            // No rule refuses anything, so nothing is logged.
            "log" if args.len() == 2 => return constant(Constant::Array),
            "log" if args.len() == 3 && is(args.get(2), "reset") => return constant(Constant::Ok),
            "log" if args.len() == 3 => {
                integer(args.get(2)).ok_or(NOT_AN_INTEGER)?;
                return constant(Constant::Array);
            }
            _ => return Err(wrong_arguments(args)),
        },
    )))
}

pub(super) fn pubsub(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    match subcommand(spec) {
        "channels" | "shardchannels" if args.len() <= 3 => constant(Constant::Array),
        "numpat" => constant(Constant::Integer(0)),
        "numsub" | "shardnumsub" => Ok(Request::Server(ServerCommand::NoSubscribers(named(
            args, 2,
        )?))),
        _ => Err(wrong_arguments(args)),
    }
}

pub(super) fn script(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    match subcommand(spec) {
        "exists" => constant(Constant::Zeros(named(args, 2)?.len())),
        "flush" if args.len() == 2 || args.len() == 3 && is_flush_mode(args.get(2)) => {
            constant(Constant::Ok)
        }
        "flush" => Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
        "kill" => Err("NOTBUSY No scripts in execution right now.".into()),
        _ => Err(wrong_arguments(args)),
    }
}

pub(super) fn function(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    match subcommand(spec) {
        "list" => {
            let mut i = 2;
            while i < args.len() {
                if is(args.get(i), "libraryname") {
                    i += 1;
                    if i >= args.len() {
                        return Err("ERR library name argument was not given".into());
                    }
                } else if !is(args.get(i), "withcode") {
                    return Err(format!(
                        "ERR Unknown argument {}",
                        String::from_utf8_lossy(args.get(i))
                    )
                    .into());
                }
                i += 1;
            }
            constant(Constant::Array)
        }
        "stats" => Ok(Request::Server(ServerCommand::FunctionStats)),
        "flush" if args.len() == 2 || args.len() == 3 && is_flush_mode(args.get(2)) => {
            constant(Constant::Ok)
        }
        "flush" => Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into()),
        "kill" => Err("NOTBUSY No scripts in execution right now.".into()),
        _ => Err(wrong_arguments(args)),
    }
}

fn is_flush_mode(word: &[u8]) -> bool {
    is(word, "sync") || is(word, "async")
}

pub(super) fn lolwut(args: Args<'_>) -> Result<Request, ErrorText> {
    if args.len() > 2 && is(args.get(1), "version") {
        integer(args.get(2)).ok_or(NOT_AN_INTEGER)?;
    }
    Ok(Request::Server(ServerCommand::LolWut))
}
