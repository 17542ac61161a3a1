//! Scripts and functions: the answers of a server that has none.

use super::table::{Description, NO_KEYS};
use super::{Call, Constant, Parsed, ServerCommand, constant, container, help, is, names, server};

const NO_SCRIPT_RUNS: &str = "NOTBUSY No scripts in execution right now.";

pub(super) const ROWS: &[Description] = &[
    Description {
        name: "function",
        since: "7.0.0",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        group: "scripting",
        summary: "A container for function commands",
        parse: container,
    },
    Description {
        name: "function|flush",
        since: "7.0.0",
        arity: -2,
        flags: &["write", "noscript"],
        keys: NO_KEYS,
        group: "scripting",
        summary: "Deleting all functions",
        parse: function_flush,
    },
    Description {
        name: "function|help",
        since: "7.0.0",
        arity: 2,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        group: "scripting",
        summary: "Show helpful text about the different subcommands",
        parse: help,
    },
    Description {
        name: "function|kill",
        since: "7.0.0",
        arity: 2,
        flags: &["noscript", "allow_busy"],
        keys: NO_KEYS,
        group: "scripting",
        summary: "Kill the function currently in execution.",
        parse: |_| Err(NO_SCRIPT_RUNS.into()),
    },
    Description {
        name: "function|list",
        since: "7.0.0",
        arity: -2,
        flags: &["noscript"],
        keys: NO_KEYS,
        group: "scripting",
        summary: "List information about all the functions",
        parse: function_list,
    },
    Description {
        name: "function|stats",
        since: "7.0.0",
        arity: 2,
        flags: &["noscript", "allow_busy"],
        keys: NO_KEYS,
        group: "scripting",
        summary: "Return information about the function currently running (name, description, duration)",
        parse: |_| server(ServerCommand::FunctionStats),
    },
    Description {
        name: "script",
        since: "2.6.0",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        group: "scripting",
        summary: "A container for Lua scripts management commands",
        parse: container,
    },
    Description {
        name: "script|exists",
        since: "2.6.0",
        arity: -3,
        flags: &["noscript"],
        keys: NO_KEYS,
        group: "scripting",
        summary: "Check existence of scripts in the script cache.",
        parse: |c| constant(Constant::Zeros(names(c, 2)?.len())),
    },
    Description {
        name: "script|flush",
        since: "2.6.0",
        arity: -2,
        flags: &["noscript"],
        keys: NO_KEYS,
        group: "scripting",
        summary: "Remove all the scripts from the script cache.",
        parse: script_flush,
    },
    Description {
        name: "script|help",
        since: "5.0.0",
        arity: 2,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        group: "scripting",
        summary: "Show helpful text about the different subcommands",
        parse: help,
    },
    Description {
        name: "script|kill",
        since: "2.6.0",
        arity: 2,
        flags: &["noscript", "allow_busy"],
        keys: NO_KEYS,
        group: "scripting",
        summary: "Kill the script currently in execution.",
        parse: |_| Err(NO_SCRIPT_RUNS.into()),
    },
];

fn function_list(c: Call<'_>) -> Parsed {
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

fn function_flush(c: Call<'_>) -> Parsed {
    if !flushes(c) {
        return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into());
    }
    constant(Constant::Ok)
}

fn script_flush(c: Call<'_>) -> Parsed {
    if !flushes(c) {
        return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
    }
    constant(Constant::Ok)
}

/// Whether the options of a `FLUSH` are known.
fn flushes(c: Call<'_>) -> bool {
    match c.args.len() {
        2 => true,
        3 => is(c.args.get(2), "sync") || is(c.args.get(2), "async"),
        _ => false,
    }
}
