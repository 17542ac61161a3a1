//! Commands on the server: what people and dashboards look at.

use super::table::{Access, NO_KEYS, RespDescription, command};
use super::{
    ADMIN, ALWAYS, Acl, All, CommandCall, Constant, ErrorText, Listed, NAMES_MAX, ParsedCommand,
    RespRequest, SYNTAX, ServerCommand, TOO_MANY_NAMES, constant, container, help_of, is, lower,
    names, pattern_at, server,
};
use crate::resp::acl::log::TOLD as LOG_TOLD;
use bytes::Bytes;
use doyen_engine::integer;

/// Bits of a generated password: the default, and the most.
const PASSWORD_BITS: u16 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;
/// How many slow commands are shown if the client does not say, as in Redis.
const SLOW_SHOWN: usize = 10;
/// Slow commands are in `SLOWLOG`, and the times of passes in `/metrics`.
const NO_LATENCY_MONITOR: &str = "Latency monitoring is not available in this server. SLOWLOG GET \
    shows slow commands. /metrics shows how long the passes of data threads take.\n";
/// Redis's text if its configuration does not allow `DEBUG`.
const DEBUG_REFUSED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is \
    set to \"local\", you can run it from a local connection, otherwise you need to set this \
    option in the configuration file, and then restart the server.";

pub(super) const ROWS: &[RespDescription] = &[
    command("acl", "6.0.0", -2, "server", "")
        .about("A container for Access List Control commands ")
        .parse(container),
    command("acl|cat", "6.0.0", -2, "server", ALWAYS)
        .about("List the ACL categories or the commands inside a category")
        .parse(acl_cat),
    command("acl|deluser", "6.0.0", -3, "server", ADMIN)
        .about("Delete ACL users, and terminate their connections")
        .parse(|c| acl(Acl::DelUser(words(c, 2)))),
    command("acl|dryrun", "7.0.0", -4, "server", ADMIN)
        .about("Simulate the execution of a command by a user, without executing the command")
        .parse(acl_dryrun),
    command("acl|genpass", "6.0.0", -2, "server", ALWAYS)
        .about("Generate a pseudorandom secure password to use for ACL users")
        .parse(acl_genpass),
    command("acl|getuser", "6.0.0", 3, "server", ADMIN)
        .about("Get the rules for a specific ACL user")
        .parse(|c| acl(Acl::GetUser(c.args.bytes(2)))),
    help_of("acl|help", "6.0.0", "server"),
    command("acl|list", "6.0.0", 2, "server", ADMIN)
        .about("List the current ACL rules in ACL config file format")
        .parse(|_| acl(Acl::List)),
    command("acl|load", "6.0.0", 2, "server", ADMIN)
        .about("Reload the rules from the configured ACL file")
        .parse(|_| acl(Acl::Load)),
    command("acl|log", "6.0.0", -2, "server", ADMIN)
        .about("List latest events denied because of ACLs in place")
        .parse(acl_log),
    command("acl|save", "6.0.0", 2, "server", ADMIN)
        .about("Save the effective ACL rules in the configured ACL file")
        .parse(|_| acl(Acl::Save)),
    command("acl|setuser", "6.0.0", -3, "server", ADMIN)
        .about("Create and modify an ACL user and its rules")
        .parse(acl_setuser),
    command("acl|users", "6.0.0", 2, "server", ADMIN)
        .about("List the username of all the configured ACL rules")
        .parse(|_| acl(Acl::Users)),
    command("acl|whoami", "6.0.0", 2, "server", ALWAYS)
        .about("Return the name of the user associated to the current connection")
        .parse(|_| acl(Acl::WhoAmI)),
    command("command", "2.8.13", -1, "server", "loading stale")
        .on(NO_KEYS, Access::Nothing, "connection")
        .about("Get array of Redis command details")
        .parse(|_| server(ServerCommand::CommandInfo(None))),
    command("command|count", "2.8.13", 2, "server", "loading stale")
        .on(NO_KEYS, Access::Nothing, "connection")
        .about("Get total number of Redis commands")
        .parse(|_| server(ServerCommand::CommandCount)),
    command("command|docs", "7.0.0", -2, "server", "loading stale")
        .on(NO_KEYS, Access::Nothing, "connection")
        .about("Get array of specific Redis command documentation")
        .parse(|c| server(ServerCommand::CommandDocs(some_names(c)?))),
    command("command|getkeys", "2.8.13", -4, "server", "loading stale")
        .on(NO_KEYS, Access::Nothing, "connection")
        .about("Extract keys given a full Redis command")
        .parse(command_getkeys),
    help_of("command|help", "5.0.0", "server").on(NO_KEYS, Access::Nothing, "connection"),
    command("command|info", "2.8.13", -2, "server", "loading stale")
        .on(NO_KEYS, Access::Nothing, "connection")
        .about("Get array of specific Redis command details, or all when no argument is given.")
        .parse(|c| server(ServerCommand::CommandInfo(some_names(c)?))),
    command("command|list", "7.0.0", -2, "server", "loading stale")
        .on(NO_KEYS, Access::Nothing, "connection")
        .about("Get an array of Redis command names")
        .parse(command_list),
    command("config", "2.0.0", -2, "server", "")
        .about("A container for server configuration commands")
        .parse(container),
    command("config|get", "2.0.0", -3, "server", ADMIN)
        .about("Get the values of configuration parameters")
        .parse(config_get),
    help_of("config|help", "5.0.0", "server"),
    command("config|resetstat", "2.0.0", 2, "server", ADMIN)
        .about("Reset the stats returned by INFO")
        .parse(|_| server(ServerCommand::ResetStat)),
    command("config|rewrite", "2.8.0", 2, "server", ADMIN)
        .about("Rewrite the configuration file with the in memory configuration")
        .parse(|_| Err("ERR The server is running without a config file".into())),
    command("config|set", "2.0.0", -4, "server", ADMIN)
        .about("Set configuration parameters to the given values")
        .parse(config_set),
    command("dbsize", "1.0.0", 1, "server", "readonly fast")
        .on(NO_KEYS, Access::Nothing, "keyspace")
        .about("Return the number of keys in the selected database")
        .parse(|_| Ok(RespRequest::All(All::Count))),
    command("debug", "1.0.0", -2, "server", ADMIN)
        .about("A container for debugging commands")
        .parse(|_| Err(DEBUG_REFUSED.into())),
    command("flushall", "1.0.0", -1, "server", "write")
        .on(NO_KEYS, Access::Nothing, "dangerous keyspace")
        .about("Remove all keys from all databases")
        .parse(|c| flush(c, true)),
    command("flushdb", "1.0.0", -1, "server", "write")
        .on(NO_KEYS, Access::Nothing, "dangerous keyspace")
        .about("Remove all keys from the current database")
        .parse(|c| flush(c, false)),
    command("info", "1.0.0", -1, "server", "loading stale")
        .on(NO_KEYS, Access::Nothing, "dangerous")
        .about("Get information and statistics about the server")
        .parse(info),
    command("lastsave", "1.0.0", 1, "server", "loading stale fast")
        .on(NO_KEYS, Access::Nothing, "admin dangerous")
        .about("Get the UNIX time stamp of the last successful save to disk")
        .parse(|_| server(ServerCommand::LastSave)),
    command("latency", "2.8.13", -2, "server", "")
        .about("A container for latency diagnostics commands")
        .parse(container),
    command("latency|doctor", "2.8.13", 2, "server", ADMIN)
        .about("Return a human readable latency analysis report.")
        .parse(|_| constant(Constant::Text(NO_LATENCY_MONITOR))),
    command("latency|graph", "2.8.13", 3, "server", ADMIN)
        .about("Return a latency graph for the event.")
        .parse(latency_graph),
    help_of("latency|help", "2.8.13", "server")
        .about("Show helpful text about the different subcommands."),
    command("latency|histogram", "7.0.0", -2, "server", ADMIN)
        .about("Return the cumulative distribution of latencies of a subset of commands or all.")
        .parse(|c| server(ServerCommand::LatencyHistogram(names(c, 2)?))),
    command("latency|history", "2.8.13", 3, "server", ADMIN)
        .about("Return timestamp-latency samples for the event.")
        .parse(|_| constant(Constant::Array)),
    command("latency|latest", "2.8.13", 2, "server", ADMIN)
        .about("Return the latest latency samples for all events.")
        .parse(|_| constant(Constant::Array)),
    command("latency|reset", "2.8.13", -2, "server", ADMIN)
        .about("Reset latency data for one or more events.")
        .parse(|_| constant(Constant::Integer(0))),
    command("lolwut", "5.0.0", -1, "server", "readonly fast")
        .about("Display some computer art and the Redis version")
        .parse(lolwut),
    command("memory|doctor", "4.0.0", 2, "server", "")
        .about("Outputs memory problems report")
        .parse(|_| server(ServerCommand::MemoryDoctor)),
    help_of("memory|help", "4.0.0", "server"),
    command("memory|malloc-stats", "4.0.0", 2, "server", "")
        .about("Show allocator internal stats")
        .parse(|_| {
            constant(Constant::Text(
                "Stats not supported for the current allocator",
            ))
        }),
    command("memory|purge", "4.0.0", 2, "server", "")
        .about("Ask the allocator to release memory")
        .parse(|_| constant(Constant::Ok)),
    command("memory|stats", "4.0.0", 2, "server", "")
        .about("Show memory usage details")
        .parse(|_| server(ServerCommand::MemoryStats)),
    command("module", "4.0.0", -2, "server", "")
        .about("A container for module commands")
        .parse(container),
    help_of("module|help", "5.0.0", "server"),
    command("module|list", "4.0.0", 2, "server", "admin noscript")
        .about("List all modules loaded by the server")
        .parse(|_| constant(Constant::Array)),
    command("monitor", "1.0.0", 1, "server", ADMIN)
        .about("Listen for all requests that clients of this node send")
        .parse(|_| server(ServerCommand::Monitor)),
    command("role", "2.8.12", 1, "server", "noscript loading stale fast")
        .on(NO_KEYS, Access::Nothing, "admin dangerous")
        .about("Return the role of the instance in the context of replication")
        .parse(|_| server(ServerCommand::Role)),
    command("slowlog", "2.2.12", -2, "server", "")
        .about("A container for slow log commands")
        .parse(container),
    command("slowlog|get", "2.2.12", -2, "server", "admin loading stale")
        .about("Get the slow log's entries")
        .parse(slowlog_get),
    help_of("slowlog|help", "6.2.0", "server"),
    command("slowlog|len", "2.2.12", 2, "server", "admin loading stale")
        .about("Get the slow log's length")
        .parse(|_| server(ServerCommand::SlowlogLen)),
    command(
        "slowlog|reset",
        "2.2.12",
        2,
        "server",
        "admin loading stale",
    )
    .about("Clear all entries from the slow log")
    .parse(|_| server(ServerCommand::SlowlogReset)),
    command("time", "2.6.0", 1, "server", "loading stale fast")
        .about("Return the current server time")
        .parse(|_| server(ServerCommand::Time)),
];

const fn acl(what: Acl) -> ParsedCommand {
    server(ServerCommand::Acl(what))
}

fn acl_cat(c: CommandCall<'_>) -> ParsedCommand {
    match c.args.len() {
        2 => acl(Acl::Categories),
        3 => acl(Acl::Category(lower(c.args.get(2)))),
        _ => c.refused(),
    }
}

fn acl_genpass(c: CommandCall<'_>) -> ParsedCommand {
    match c.args.len() {
        2 => acl(Acl::GenPass(PASSWORD_BITS)),
        3 => {
            let bits = c.number(2)?;
            let fits = (1..=PASSWORD_BITS_MAX).contains(&bits);
            let bits = u16::try_from(bits).ok().filter(|_| fits);
            let why = "ERR ACL GENPASS argument must be the number of bits for the output \
                       password, a positive number up to 4096";
            acl(Acl::GenPass(bits.ok_or(why)?))
        }
        _ => c.refused(),
    }
}

fn acl_log(c: CommandCall<'_>) -> ParsedCommand {
    match c.args.len() {
        2 => acl(Acl::Log(LOG_TOLD)),
        3 if is(c.args.get(2), "reset") => acl(Acl::ResetLog),
        3 => acl(Acl::Log(usize::try_from(c.number(2)?).unwrap_or(0))),
        _ => c.refused(),
    }
}

fn acl_setuser(c: CommandCall<'_>) -> ParsedCommand {
    acl(Acl::SetUser {
        name: c.args.bytes(2),
        rules: words(c, 3),
    })
}

fn acl_dryrun(c: CommandCall<'_>) -> ParsedCommand {
    acl(Acl::DryRun {
        user: c.args.bytes(2),
        args: words(c, 3),
    })
}

/// The arguments from this place on.
fn words(c: CommandCall<'_>, from: usize) -> Vec<Bytes> {
    (from..c.args.len()).map(|at| c.args.bytes(at)).collect()
}

/// The names that a command is asked about. None: all.
fn some_names(c: CommandCall<'_>) -> Result<Option<Vec<Bytes>>, ErrorText> {
    if c.args.len() > 2 {
        names(c, 2).map(Some)
    } else {
        Ok(None)
    }
}

/// A command may have as many keys as it likes.
fn command_getkeys(c: CommandCall<'_>) -> ParsedCommand {
    server(ServerCommand::CommandGetKeys(words(c, 2)))
}

fn command_list(c: CommandCall<'_>) -> ParsedCommand {
    let args = c.args;
    server(ServerCommand::CommandList(match args.len() {
        2 => Listed::All,
        5 if is(args.get(2), "filterby") => match args.get(3) {
            by if is(by, "module") => Listed::None,
            by if is(by, "aclcat") => Listed::Category(lower(args.get(4))),
            by if is(by, "pattern") => Listed::Pattern(pattern_at(args, 4)?),
            _ => return Err(SYNTAX.into()),
        },
        _ => return Err(SYNTAX.into()),
    }))
}

fn config_get(c: CommandCall<'_>) -> ParsedCommand {
    let args = c.args;
    if args.len() - 2 > NAMES_MAX {
        return Err(TOO_MANY_NAMES.into());
    }
    let patterns = (2..args.len()).map(|i| pattern_at(args, i));
    server(ServerCommand::ConfigGet(
        patterns.collect::<Result<_, _>>()?,
    ))
}

fn config_set(c: CommandCall<'_>) -> ParsedCommand {
    if c.args.len() % 2 == 1 {
        return Err(SYNTAX.into());
    }
    server(ServerCommand::ConfigSet(
        names(c, 2)?
            .chunks_exact(2)
            .map(|pair| (lower(&pair[0]), pair[1].clone()))
            .collect(),
    ))
}

fn flush(c: CommandCall<'_>, databases: bool) -> ParsedCommand {
    let args = c.args;
    let mode_known =
        args.len() == 1 || args.len() == 2 && (is(args.get(1), "SYNC") || is(args.get(1), "ASYNC"));
    if mode_known {
        Ok(RespRequest::All(All::Clear { databases }))
    } else {
        Err(SYNTAX.into())
    }
}

fn info(c: CommandCall<'_>) -> ParsedCommand {
    if c.args.len() - 1 > NAMES_MAX {
        return Err(TOO_MANY_NAMES.into());
    }
    server(ServerCommand::Info(c.args_from(1).map(lower).collect()))
}

fn latency_graph(c: CommandCall<'_>) -> ParsedCommand {
    Err(format!(
        "ERR No samples available for event '{}'",
        String::from_utf8_lossy(c.args.get(2))
    )
    .into())
}

fn lolwut(c: CommandCall<'_>) -> ParsedCommand {
    if c.args.len() > 2 && is(c.args.get(1), "version") {
        c.number(2)?;
    }
    server(ServerCommand::LolWut)
}

fn slowlog_get(c: CommandCall<'_>) -> ParsedCommand {
    let count = match c.args.len() {
        2 => SLOW_SHOWN,
        3 => match integer(c.args.get(2)) {
            Some(-1) => usize::MAX,
            Some(count @ 0..) => usize::try_from(count).unwrap_or(usize::MAX),
            _ => return Err("ERR count should be greater than or equal to -1".into()),
        },
        _ => return c.refused(),
    };
    server(ServerCommand::SlowlogGet(count))
}
