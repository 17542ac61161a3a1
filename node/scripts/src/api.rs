//! The functions of the table `redis`. `call`, `pcall` and `acl_check_cmd` are made for each run,
//! because they hold what runs the commands.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use mlua::{Error, Lua, MultiValue, Result, Table, Value};

use crate::budget::ScriptBudget;
use crate::convert::{ToLua, error_text};
use crate::number::to_text;
use crate::raise::{LuaArgs, Raise, number_of};
use crate::reply::{Commands, ScriptProtocol, ScriptReply};
use crate::script::sha1_hex;

/// The version of Redis whose scripts are understood.
const VERSION: (&str, i64) = ("7.0.15", 0x0007_000f);

/// What a command costs beside its bytes, in instructions.
const CALL_COST: u64 = 50;

/// The most words of a command, as of clients.
const ARGS_MAX: usize = 1 << 17;

/// Bytes of a message that are logged.
const LOG_BYTES: usize = 1_024;

const NOT_A_COMMAND: &str = "ERR Invalid command passed to redis.acl_check_cmd()";

/// The table `redis`, without the functions that are made for each run.
pub(crate) fn library(lua: &Lua, budget: &Rc<ScriptBudget>) -> Result<Table> {
    let table = lua.create_table()?;
    let constants = [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_SLAVE", 2),
        ("REPL_REPLICA", 2),
        ("REPL_ALL", 3),
        ("REDIS_VERSION_NUM", VERSION.1),
    ];
    for (name, value) in constants {
        table.raw_set(name, value)?;
    }
    table.raw_set("REDIS_VERSION", VERSION.0)?;

    let sha1hex = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        if args.len() != 1 {
            return Err(error("ERR wrong number of arguments"));
        }
        let args = LuaArgs::new(lua, args);
        let Ok(text) = args.string(1) else {
            return Ok(sha1_hex(""));
        };
        budget.charge_bytes(lua, text.as_bytes().len() * 8)?;
        Ok(sha1_hex(&*text.as_bytes()))
    };
    table.raw_set("sha1hex", budget.function(lua, sha1hex)?)?;
    table.raw_set("error_reply", lua.create_function(error_reply)?)?;
    table.raw_set("status_reply", lua.create_function(status_reply)?)?;

    let setresp = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        if args.len() != 1 {
            return Err(error("ERR redis.setresp() requires one argument."));
        }
        let version = LuaArgs::new(lua, args)
            .maybe_number(1)
            .map_or(0, |number| number as i32);
        budget.protocol.set(match version {
            2 => ScriptProtocol::Resp2,
            3 => ScriptProtocol::Resp3,
            _ => return Err(error("ERR RESP version must be 2 or 3.")),
        });
        Ok(())
    };
    table.raw_set("setresp", budget.function(lua, setresp)?)?;
    let set_repl = |lua: &Lua, args: MultiValue| {
        if args.len() != 1 {
            return Err(error("ERR redis.set_repl() requires two arguments."));
        }
        match LuaArgs::new(lua, args)
            .maybe_number(1)
            .map_or(0, |number| number as i32)
        {
            0..=3 => Ok(()),
            _ => Err(error(
                "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
            )),
        }
    };
    table.raw_set("set_repl", lua.create_function(set_repl)?)?;
    table.raw_set(
        "replicate_commands",
        lua.create_function(|_, _: MultiValue| Ok(true))?,
    )?;
    table.raw_set(
        "breakpoint",
        lua.create_function(|_, _: MultiValue| Ok(false))?,
    )?;
    table.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    table.raw_set("log", budget.function(lua, log)?)?;
    Ok(table)
}

/// `redis.call` (which raises errors) and `redis.pcall` (which returns them).
pub(crate) fn call(
    lua: &Lua,
    budget: &ScriptBudget,
    commands: &RefCell<&mut dyn Commands>,
    args: MultiValue,
    raises: bool,
) -> Result<Value> {
    budget.charge(lua, CALL_COST)?;
    let protocol = budget.protocol.get();
    let reply = match arguments(lua, budget, args)? {
        // A command never runs while another one does: no command calls a script.
        Ok(args) => {
            let reply = commands.borrow_mut().call(args, protocol);
            budget.look(lua)?;
            reply
        }
        Err(text) if raises => return Err(error(text)),
        Err(text) => return table(lua, "err", text.as_bytes()),
    };
    match reply {
        ScriptReply::Error(text) if raises => Err(error(error_text(&text))),
        reply => lua.pack(ToLua(&reply, protocol, budget)),
    }
}

/// `redis.acl_check_cmd`: whether the script's caller may run a command.
pub(crate) fn check(
    lua: &Lua,
    budget: &ScriptBudget,
    commands: &RefCell<&mut dyn Commands>,
    args: MultiValue,
) -> Result<bool> {
    budget.charge(lua, CALL_COST)?;
    let args = arguments(lua, budget, args)?.map_err(error)?;
    let allowed = commands.borrow_mut().may_call(&args);
    allowed.ok_or_else(|| error(NOT_A_COMMAND))
}

/// The arguments of a command, or the text of an error.
fn arguments(
    lua: &Lua,
    budget: &ScriptBudget,
    args: MultiValue,
) -> Result<std::result::Result<Vec<Bytes>, &'static str>> {
    if args.is_empty() {
        return Ok(Err(
            "ERR Please specify at least one argument for this redis lib call",
        ));
    }
    if args.len() > ARGS_MAX {
        return Ok(Err("ERR too many arguments: at most 131072"));
    }
    budget.charge(lua, args.len() as u64)?;
    let (mut out, mut size) = (Vec::with_capacity(args.len()), 0_usize);
    for value in &args {
        let bytes = match value {
            Value::String(string) => {
                let bytes = string.as_bytes();
                size = size.saturating_add(bytes.len());
                if size > budget.bytes_max() {
                    return Ok(Err(
                        "ERR not enough memory for the arguments of the command",
                    ));
                }
                Bytes::copy_from_slice(&bytes)
            }
            value => match number_of(value) {
                Some(number) => Bytes::from(to_argument(number)),
                None => {
                    return Ok(Err(
                        "ERR Lua redis lib command arguments must be strings or integers",
                    ));
                }
            },
        };
        out.push(bytes);
    }
    budget.charge_bytes(lua, size)?;
    Ok(Ok(out))
}

/// A number as Redis gives it to a command: with 17 digits.
fn to_argument(number: f64) -> String {
    let integer = number as i64;
    if integer as f64 == number && integer.unsigned_abs() < 100_000_000_000_000_000 {
        // The same digits, and much faster. Minus zero is no integer for `printf`.
        if integer != 0 || number.is_sign_positive() {
            return integer.to_string();
        }
    }
    to_text(number, 17)
}

fn error(text: impl AsRef<[u8]>) -> Error {
    Raise::Reply(text.as_ref().to_vec()).into()
}

fn table(lua: &Lua, name: &str, text: &[u8]) -> Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// The only argument, if it is a string.
fn only_string(args: &MultiValue) -> Option<&mlua::LuaString> {
    match args.front() {
        Some(Value::String(text)) if args.len() == 1 => Some(text),
        _ => None,
    }
}

const WRONG: &[u8] = b"ERR wrong number or type of arguments";

fn status_reply(lua: &Lua, args: MultiValue) -> Result<Value> {
    match only_string(&args) {
        Some(text) => table(lua, "ok", &text.as_bytes()),
        None => table(lua, "err", WRONG),
    }
}

fn error_reply(lua: &Lua, args: MultiValue) -> Result<Value> {
    let Some(text) = only_string(&args) else {
        return table(lua, "err", WRONG);
    };
    let text = text.as_bytes();
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    // The text ends at a zero byte, as a string of C does.
    let end = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    let text = text[..end].to_vec();
    let Some(space) = text.iter().position(|byte| *byte == b' ') else {
        let text = [b"ERR ".as_slice(), trim(&text)].concat();
        return table(lua, "err", &text);
    };
    let text = [&text[..space], b" ", trim(&text[space + 1..])].concat();
    table(lua, "err", &text)
}

/// A text without line breaks at its ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b'\r' | b'\n', rest @ ..] | [rest @ .., b'\r' | b'\n'] = text {
        text = rest;
    }
    text
}

fn log(lua: &Lua, budget: &ScriptBudget, args: MultiValue) -> Result<()> {
    if args.len() < 2 {
        return Err(error("ERR redis.log() requires two arguments or more."));
    }
    let args = LuaArgs::new(lua, args);
    let Some(level) = args.maybe_number(1) else {
        return Err(error("ERR First argument must be a number (log level)."));
    };
    if !(0..=3).contains(&(level as i32)) {
        return Err(error("ERR Invalid debug level."));
    }
    if !tracing::enabled!(tracing::Level::DEBUG) || !budget.may_log() {
        return Ok(());
    }
    let mut message = Vec::new();
    for number in 2..=args.len() {
        let Ok(text) = args.string(number) else {
            continue;
        };
        if number > 2 {
            message.push(b' ');
        }
        let text = text.as_bytes();
        message.extend_from_slice(&text[..text.len().min(LOG_BYTES)]);
        if message.len() >= LOG_BYTES {
            break;
        }
    }
    message.truncate(LOG_BYTES);
    tracing::debug!(level = level as i32, message = %String::from_utf8_lossy(&message), "a script logs");
    Ok(())
}
