//! Scripts, and the answers of a server that has no functions.

use super::table::{Access, Description, NO_KEYS};
use super::{
    Call, Constant, Parsed, Request, ScriptCommand, ServerCommand, constant, container, help, is,
    server,
};
use doyen_scripts::errors;

/// How long the digest of a script is.
const DIGEST_LEN: usize = 40;
const NO_SCRIPT_RUNS: &str = "NOTBUSY No scripts in execution right now.";

pub(super) const ROWS: &[Description] = &[
    Description {
        name: "eval",
        since: "2.6.0",
        arity: -3,
        flags: &[
            "noscript",
            "stale",
            "skip_monitor",
            "no_mandatory_keys",
            "movablekeys",
        ],
        keys: NO_KEYS,
        access: Access::BOTH,
        group: "scripting",
        categories: &["scripting"],
        summary: "Executes a server-side Lua script.",
        parse: |c| run(c, false, false),
    },
    Description {
        name: "eval_ro",
        since: "7.0.0",
        arity: -3,
        flags: &[
            "readonly",
            "noscript",
            "stale",
            "skip_monitor",
            "no_mandatory_keys",
            "movablekeys",
        ],
        keys: NO_KEYS,
        access: Access::READ,
        group: "scripting",
        categories: &["scripting"],
        summary: "Executes a read-only server-side Lua script.",
        parse: |c| run(c, false, true),
    },
    Description {
        name: "evalsha",
        since: "2.6.0",
        arity: -3,
        flags: &[
            "noscript",
            "stale",
            "skip_monitor",
            "no_mandatory_keys",
            "movablekeys",
        ],
        keys: NO_KEYS,
        access: Access::BOTH,
        group: "scripting",
        categories: &["scripting"],
        summary: "Executes a server-side Lua script by SHA1 digest.",
        parse: |c| run(c, true, false),
    },
    Description {
        name: "evalsha_ro",
        since: "7.0.0",
        arity: -3,
        flags: &[
            "readonly",
            "noscript",
            "stale",
            "skip_monitor",
            "no_mandatory_keys",
            "movablekeys",
        ],
        keys: NO_KEYS,
        access: Access::READ,
        group: "scripting",
        categories: &["scripting"],
        summary: "Executes a read-only server-side Lua script by SHA1 digest.",
        parse: |c| run(c, true, true),
    },
    Description {
        name: "function",
        since: "7.0.0",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &[],
        summary: "A container for function commands",
        parse: container,
    },
    Description {
        name: "function|flush",
        since: "7.0.0",
        arity: -2,
        flags: &["write", "noscript"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &["scripting"],
        summary: "Deleting all functions",
        parse: function_flush,
    },
    Description {
        name: "function|help",
        since: "7.0.0",
        arity: 2,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &["scripting"],
        summary: "Show helpful text about the different subcommands",
        parse: help,
    },
    Description {
        name: "function|kill",
        since: "7.0.0",
        arity: 2,
        flags: &["noscript", "allow_busy"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &["scripting"],
        summary: "Kill the function currently in execution.",
        parse: |_| Err(NO_SCRIPT_RUNS.into()),
    },
    Description {
        name: "function|list",
        since: "7.0.0",
        arity: -2,
        flags: &["noscript"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &["scripting"],
        summary: "List information about all the functions",
        parse: function_list,
    },
    Description {
        name: "function|stats",
        since: "7.0.0",
        arity: 2,
        flags: &["noscript", "allow_busy"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &["scripting"],
        summary: "Return information about the function currently running (name, description, duration)",
        parse: |_| server(ServerCommand::FunctionStats),
    },
    Description {
        name: "script",
        since: "2.6.0",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &[],
        summary: "A container for Lua scripts management commands",
        parse: container,
    },
    Description {
        name: "script|exists",
        since: "2.6.0",
        arity: -3,
        flags: &["noscript"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &["scripting"],
        summary: "Check existence of scripts in the script cache.",
        parse: |_| Ok(Request::Script(ScriptCommand::Exists)),
    },
    Description {
        name: "script|flush",
        since: "2.6.0",
        arity: -2,
        flags: &["noscript"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &["scripting"],
        summary: "Remove all the scripts from the script cache.",
        parse: script_flush,
    },
    Description {
        name: "script|load",
        since: "2.6.0",
        arity: 3,
        flags: &["noscript", "stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &["scripting"],
        summary: "Loads a server-side Lua script to the script cache.",
        parse: |_| Ok(Request::Script(ScriptCommand::Load)),
    },
    Description {
        name: "script|help",
        since: "5.0.0",
        arity: 2,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &["scripting"],
        summary: "Show helpful text about the different subcommands",
        parse: help,
    },
    Description {
        name: "script|kill",
        since: "2.6.0",
        arity: 2,
        flags: &["noscript", "allow_busy"],
        keys: NO_KEYS,
        access: Access::Nothing,
        group: "scripting",
        categories: &["scripting"],
        summary: "Kill the script currently in execution.",
        parse: |_| Err(NO_SCRIPT_RUNS.into()),
    },
];

fn run(c: Call<'_>, by_digest: bool, read_only: bool) -> Parsed {
    if by_digest && c.args.get(1).len() != DIGEST_LEN {
        return Err(errors::NO_SCRIPT.into());
    }
    let keys = c.number(2)?;
    let keys = usize::try_from(keys).map_err(|_| "ERR Number of keys can't be negative")?;
    if keys > c.args.len() - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok(Request::Script(ScriptCommand::Run {
        by_digest,
        keys,
        read_only,
    }))
}

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
    Ok(Request::Script(ScriptCommand::Flush))
}

/// Whether the options of a `FLUSH` are known.
fn flushes(c: Call<'_>) -> bool {
    match c.args.len() {
        2 => true,
        3 => is(c.args.get(2), "sync") || is(c.args.get(2), "async"),
        _ => false,
    }
}
