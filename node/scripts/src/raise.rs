//! Errors that Rust functions raise, so that they look like those of Lua's C functions.
//!
//! mlua raises an error of Rust as a userdata. No script sees one: each place of the sandbox that
//! can catch an error calls [`caught`] first.

use std::fmt;

use mlua::{Error, Lua, MultiValue, Result, Value};

use crate::budget::ErrorSite;

/// The name of the prelude's chunk. Places of errors are never in it.
pub(crate) const PRELUDE: &str = "=doyen";

/// Lua's message if the memory is full.
const MEMORY: &str = "not enough memory";

/// The message of mlua if it can refer to no more values.
const STACK: &str = "stack overflow";

/// What an error costs that a script catches, in instructions: errors are slow.
pub(crate) const COST: u64 = 200;

/// An error that a Rust function raises.
#[derive(Clone, Debug)]
pub(crate) enum Raise {
    /// A string, as `error` of Lua raises it.
    Message(Vec<u8>),
    /// A table with a field `err`, as `redis.call` raises it. The text has its code.
    Reply(Vec<u8>),
    /// The run is stopped. The script never sees this.
    Stopped,
}

impl fmt::Display for Raise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raise::Message(text) | Raise::Reply(text) => {
                f.write_str(&String::from_utf8_lossy(text))
            }
            Raise::Stopped => f.write_str("the script was stopped"),
        }
    }
}

impl std::error::Error for Raise {}

impl From<Raise> for Error {
    fn from(raise: Raise) -> Error {
        Error::external(raise)
    }
}

/// A message with the place of the script before it, as Lua's `luaL_error` makes it.
pub(crate) fn message(lua: &Lua, text: impl fmt::Display) -> Error {
    Raise::Message(format!("{}{text}", position(lua)).into_bytes()).into()
}

/// Whether a script's error is that the memory is full, also that of mlua's references.
pub(crate) fn is_memory(error: &Value) -> bool {
    match error {
        Value::String(text) => *text == MEMORY || *text == STACK,
        Value::Error(error) => is_memory_error(error),
        _ => false,
    }
}

/// The same for an error of mlua.
pub(crate) fn is_memory_error(error: &Error) -> bool {
    matches!(cause(error), RaiseCause::Other(text) if text == MEMORY || text == STACK)
}

/// The error of Lua's allocator, for what is built outside of Lua.
pub(crate) fn memory() -> Error {
    Error::MemoryError(MEMORY.to_owned())
}

/// The message of an argument that a function does not take.
pub(crate) fn argument(lua: &Lua, number: usize, text: impl fmt::Display) -> Error {
    let function = user_level(lua).saturating_sub(1);
    let (name, method) = lua
        .inspect_stack(function, |debug| {
            let names = debug.names();
            (
                names.name.map(|name| name.into_owned()),
                names.name_what == Some("method"),
            )
        })
        .unwrap_or_default();
    let name = name.unwrap_or_else(|| "?".to_owned());
    match number.checked_sub(usize::from(method)) {
        Some(0) if method => message(lua, format_args!("calling '{name}' on bad self ({text})")),
        Some(number) => message(
            lua,
            format_args!("bad argument #{number} to '{name}' ({text})"),
        ),
        None => message(
            lua,
            format_args!("bad argument #{number} to '{name}' ({text})"),
        ),
    }
}

/// The first level from `level` on that is neither of the prelude nor a mark of its tail calls.
fn beyond_prelude(lua: &Lua, mut level: usize) -> usize {
    let mut in_prelude = false;
    loop {
        let skip = lua.inspect_stack(level, |debug| match debug.source().source.as_deref() {
            Some(PRELUDE) => {
                in_prelude = true;
                true
            }
            source => in_prelude && source == Some("=(tail call)"),
        });
        if skip != Some(true) {
            return level;
        }
        level += 1;
    }
}

/// The first level of the stack that belongs to the script.
fn user_level(lua: &Lua) -> usize {
    beyond_prelude(lua, 1)
}

/// `user_script:1: `, or nothing if the caller is no function of Lua.
fn position(lua: &Lua) -> String {
    lua.inspect_stack(user_level(lua), |debug| {
        let line = debug.current_line().filter(|line| *line > 0)?;
        Some(format!(
            "{}:{line}: ",
            debug.source().short_src.as_deref().unwrap_or("?")
        ))
    })
    .flatten()
    .unwrap_or_default()
}

/// Where the error was raised that a handler of `xpcall` was called with.
pub(crate) fn place(lua: &Lua) -> Option<ErrorSite> {
    let in_c = |level| lua.inspect_stack(level, |debug| debug.source().what == "C");
    let level = beyond_prelude(lua, if in_c(1)? { 2 } else { 1 });
    lua.inspect_stack(level, |debug| ErrorSite {
        source: debug.source().source.as_deref().unwrap_or("?").to_owned(),
        line: debug.current_line().map_or(-1, |line| line as i64),
    })
}

/// The error as a script may see it: never a userdata of mlua.
pub(crate) fn caught(lua: &Lua, value: Value) -> Result<Value> {
    let Value::Error(error) = value else {
        return Ok(value);
    };
    match cause(&error) {
        RaiseCause::Raise(Raise::Message(text)) => Ok(Value::String(lua.create_string(text)?)),
        RaiseCause::Raise(Raise::Reply(text)) => {
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string(text)?)?;
            table.raw_set("ignore_error_stats_update", true)?;
            Ok(Value::Table(table))
        }
        RaiseCause::Raise(Raise::Stopped) => Err(Raise::Stopped.into()),
        RaiseCause::Other(text) => Ok(Value::String(lua.create_string(text)?)),
    }
}

/// What an error of mlua comes from.
pub(crate) enum RaiseCause {
    Raise(Raise),
    Other(String),
}

/// Finds what an error comes from.
pub(crate) fn cause(error: &Error) -> RaiseCause {
    match error {
        Error::CallbackError { cause: inner, .. } => cause(inner),
        Error::MemoryError(_) => RaiseCause::Other(MEMORY.to_owned()),
        Error::StackError => RaiseCause::Other(STACK.to_owned()),
        Error::RuntimeError(text) => RaiseCause::Other(
            text.split("\nstack traceback:")
                .next()
                .unwrap_or_default()
                .to_owned(),
        ),
        error => match error.downcast_ref::<Raise>() {
            Some(raise) => RaiseCause::Raise(raise.clone()),
            None => RaiseCause::Other(error.to_string()),
        },
    }
}

/// The arguments of a Rust function, with the checks and the errors of `lauxlib.c`. Numbers of
/// arguments begin with 1.
pub(crate) struct LuaArgs<'lua> {
    lua: &'lua Lua,
    values: MultiValue,
}

impl<'lua> LuaArgs<'lua> {
    pub(crate) fn new(lua: &'lua Lua, values: MultiValue) -> LuaArgs<'lua> {
        LuaArgs { lua, values }
    }

    pub(crate) fn lua(&self) -> &'lua Lua {
        self.lua
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The argument, or nil.
    pub(crate) fn value(&self, number: usize) -> Value {
        self.values.get(number - 1).cloned().unwrap_or(Value::Nil)
    }

    pub(crate) fn string(&self, number: usize) -> Result<mlua::LuaString> {
        match self.values.get(number - 1) {
            Some(Value::String(string)) => Ok(string.clone()),
            Some(value @ (Value::Integer(_) | Value::Number(_))) => self
                .lua
                .create_string(crate::number::to_text(number_of(value).unwrap_or(0.0), 14)),
            _ => Err(self.wrong_type(number, "string")),
        }
    }

    pub(crate) fn number(&self, number: usize) -> Result<f64> {
        self.maybe_number(number)
            .ok_or_else(|| self.wrong_type(number, "number"))
    }

    /// The argument as a number, if it is one or a text of one.
    pub(crate) fn maybe_number(&self, number: usize) -> Option<f64> {
        match self.values.get(number - 1)? {
            Value::String(text) => crate::number::from_lua_text(&text.as_bytes()),
            value => number_of(value),
        }
    }

    pub(crate) fn integer(&self, number: usize) -> Result<i64> {
        self.number(number).map(|number| number as i64)
    }

    /// The argument as Lua's functions in C take it: its low 32 bits.
    pub(crate) fn c_int(&self, number: usize) -> Result<i32> {
        self.number(number)
            .map(|number| crate::convert::to_integer(number) as i32)
    }

    pub(crate) fn integer_or(&self, number: usize, default: i64) -> Result<i64> {
        match self.value(number) {
            Value::Nil => Ok(default),
            _ => self.integer(number),
        }
    }

    pub(crate) fn table(&self, number: usize) -> Result<mlua::Table> {
        match self.values.get(number - 1) {
            Some(Value::Table(table)) => Ok(table.clone()),
            _ => Err(self.wrong_type(number, "table")),
        }
    }

    pub(crate) fn truthy(&self, number: usize) -> bool {
        !matches!(
            self.values.get(number - 1),
            None | Some(Value::Nil | Value::Boolean(false))
        )
    }

    pub(crate) fn wrong(&self, number: usize, text: impl fmt::Display) -> Error {
        argument(self.lua, number, text)
    }

    pub(crate) fn wrong_type(&self, number: usize, wanted: &str) -> Error {
        let found = self.values.get(number - 1).map_or("no value", type_name);
        argument(
            self.lua,
            number,
            format_args!("{wanted} expected, got {found}"),
        )
    }
}

/// The number that a value is.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// The name of a value's type in Lua.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}
