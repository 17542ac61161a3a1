//! Scripts, and the answers of a server that has no functions.

use super::table::{Access, NO_KEYS, RespDescription, command};
use super::{
    CommandCall, Constant, ParsedCommand, RespRequest, ScriptCommand, ServerCommand, constant,
    container, help_of, is, server,
};
use doyen_scripts::errors;

/// How long the digest of a script is.
const DIGEST_LEN: usize = 40;
const NO_SCRIPT_RUNS: &str = "NOTBUSY No scripts in execution right now.";

const RUNS: &str = "noscript stale skip_monitor no_mandatory_keys movablekeys";
const READS: &str = "readonly noscript stale skip_monitor no_mandatory_keys movablekeys";
const WHILE_BUSY: &str = "noscript allow_busy";

pub(super) const ROWS: &[RespDescription] = &[
    command("eval", "2.6.0", -3, "scripting", RUNS)
        .on(NO_KEYS, Access::BOTH, "scripting")
        .about("Executes a server-side Lua script.")
        .parse(|c| run(c, false, false)),
    command("eval_ro", "7.0.0", -3, "scripting", READS)
        .on(NO_KEYS, Access::READ, "scripting")
        .about("Executes a read-only server-side Lua script.")
        .parse(|c| run(c, false, true)),
    command("evalsha", "2.6.0", -3, "scripting", RUNS)
        .on(NO_KEYS, Access::BOTH, "scripting")
        .about("Executes a server-side Lua script by SHA1 digest.")
        .parse(|c| run(c, true, false)),
    command("evalsha_ro", "7.0.0", -3, "scripting", READS)
        .on(NO_KEYS, Access::READ, "scripting")
        .about("Executes a read-only server-side Lua script by SHA1 digest.")
        .parse(|c| run(c, true, true)),
    command("function", "7.0.0", -2, "scripting", "")
        .about("A container for function commands")
        .parse(container),
    command("function|flush", "7.0.0", -2, "scripting", "write noscript")
        .on(NO_KEYS, Access::Nothing, "scripting")
        .about("Deleting all functions")
        .parse(function_flush),
    help_of("function|help", "7.0.0", "scripting").on(NO_KEYS, Access::Nothing, "scripting"),
    command("function|kill", "7.0.0", 2, "scripting", WHILE_BUSY)
        .on(NO_KEYS, Access::Nothing, "scripting")
        .about("Kill the function currently in execution.")
        .parse(|_| Err(NO_SCRIPT_RUNS.into())),
    command("function|list", "7.0.0", -2, "scripting", "noscript")
        .on(NO_KEYS, Access::Nothing, "scripting")
        .about("List information about all the functions")
        .parse(function_list),
    command("function|stats", "7.0.0", 2, "scripting", WHILE_BUSY)
        .on(NO_KEYS, Access::Nothing, "scripting")
        .about(
            "Return information about the function currently running (name, description, \
             duration)",
        )
        .parse(|_| server(ServerCommand::FunctionStats)),
    command("script", "2.6.0", -2, "scripting", "")
        .about("A container for Lua scripts management commands")
        .parse(container),
    command("script|exists", "2.6.0", -3, "scripting", "noscript")
        .on(NO_KEYS, Access::Nothing, "scripting")
        .about("Check existence of scripts in the script cache.")
        .parse(|_| Ok(RespRequest::Script(ScriptCommand::Exists))),
    command("script|flush", "2.6.0", -2, "scripting", "noscript")
        .on(NO_KEYS, Access::Nothing, "scripting")
        .about("Remove all the scripts from the script cache.")
        .parse(script_flush),
    command("script|load", "2.6.0", 3, "scripting", "noscript stale")
        .on(NO_KEYS, Access::Nothing, "scripting")
        .about("Loads a server-side Lua script to the script cache.")
        .parse(|_| Ok(RespRequest::Script(ScriptCommand::Load))),
    help_of("script|help", "5.0.0", "scripting").on(NO_KEYS, Access::Nothing, "scripting"),
    command("script|kill", "2.6.0", 2, "scripting", WHILE_BUSY)
        .on(NO_KEYS, Access::Nothing, "scripting")
        .about("Kill the script currently in execution.")
        .parse(|_| Err(NO_SCRIPT_RUNS.into())),
];

fn run(c: CommandCall<'_>, by_digest: bool, read_only: bool) -> ParsedCommand {
    if by_digest && c.args.get(1).len() != DIGEST_LEN {
        return Err(errors::NO_SCRIPT.into());
    }
    let keys = c.number(2)?;
    let keys = usize::try_from(keys).map_err(|_| "ERR Number of keys can't be negative")?;
    if keys > c.args.len() - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok(RespRequest::Script(ScriptCommand::Run {
        by_digest,
        keys,
        read_only,
    }))
}

fn function_list(c: CommandCall<'_>) -> ParsedCommand {
    let args = c.args;
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

fn function_flush(c: CommandCall<'_>) -> ParsedCommand {
    if !flushes(c) {
        return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into());
    }
    constant(Constant::Ok)
}

fn script_flush(c: CommandCall<'_>) -> ParsedCommand {
    if !flushes(c) {
        return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
    }
    Ok(RespRequest::Script(ScriptCommand::Flush))
}

/// Whether the options of a `FLUSH` are known.
fn flushes(c: CommandCall<'_>) -> bool {
    match c.args.len() {
        2 => true,
        3 => is(c.args.get(2), "sync") || is(c.args.get(2), "async"),
        _ => false,
    }
}
