//! Between Lua's values and replies, by Redis's rules.
//!
//! | from a command | in Lua | from the script |
//! |---|---|---|
//! | integer | number | integer, without its fraction |
//! | bulk string | string | bulk string |
//! | status, error | table with `ok` or `err` | the same |
//! | array | table | array, up to the first nil |
//! | nil | `false`; nil after `setresp(3)` | nil |
//! | map, set, double, ... | table with `map`, `set`, `double`, ... | the same |
//!
//! `true` becomes 1 and `false` nil, or booleans after `setresp(3)`.

use bytes::Bytes;
use mlua::{Error, IntoLua, Lua, LuaString, Result, Table, Value};

use crate::budget::ScriptBudget;
use crate::raise::number_of;
use crate::reply::{ScriptProtocol, ScriptReply};

/// Nested tables of a script's reply. Redis allows about 2,000, and no client reads that many.
const DEPTH_MAX: usize = 128;

/// What an element of a reply takes at least, whatever is in it.
const ELEMENT_BYTES: usize = 32;

/// Bytes of a reply that are copied for the price of one instruction.
const COPIED: usize = 256;

/// A reply of a command on its way into Lua.
pub(crate) struct ToLua<'a>(
    pub(crate) &'a ScriptReply,
    pub(crate) ScriptProtocol,
    pub(crate) &'a ScriptBudget,
);

impl IntoLua for ToLua<'_> {
    fn into_lua(self, lua: &Lua) -> Result<Value> {
        let ToLua(reply, protocol, budget) = self;
        budget.count_one(lua)?;
        let field = |name: &str, value: Value| -> Result<Value> {
            let table = lua.create_table()?;
            table.raw_set(name, value)?;
            Ok(Value::Table(table))
        };
        let string = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
        match reply {
            ScriptReply::Int(number) => Ok(Value::Number(*number as f64)),
            ScriptReply::Bulk(bytes) => {
                budget.charge(lua, (bytes.len() / COPIED) as u64)?;
                string(bytes)
            }
            ScriptReply::Nil => Ok(match protocol {
                ScriptProtocol::Resp2 => Value::Boolean(false),
                ScriptProtocol::Resp3 => Value::Nil,
            }),
            ScriptReply::Status(text) => field("ok", string(text)?),
            ScriptReply::Error(text) => {
                let table = field("err", string(&error_text(text))?)?;
                if let Value::Table(table) = &table {
                    table.raw_set("ignore_error_stats_update", true)?;
                }
                Ok(table)
            }
            ScriptReply::Array(replies) => lua
                .create_sequence_from(replies.iter().map(|reply| ToLua(reply, protocol, budget)))
                .map(Value::Table),
            ScriptReply::Map(pairs) => {
                let map = lua.create_table()?;
                for (key, value) in pairs {
                    set(
                        &map,
                        ToLua(key, protocol, budget),
                        ToLua(value, protocol, budget),
                    )?;
                }
                field("map", Value::Table(map))
            }
            ScriptReply::Set(members) => {
                let members_table = lua.create_table()?;
                for member in members {
                    set(&members_table, ToLua(member, protocol, budget), true)?;
                }
                field("set", Value::Table(members_table))
            }
            ScriptReply::Double(number) => field("double", Value::Number(*number)),
            ScriptReply::Bool(boolean) => Ok(Value::Boolean(*boolean)),
            ScriptReply::BigNumber(digits) => field("big_number", string(digits.as_bytes())?),
            ScriptReply::Verbatim { format, text } => {
                let inner = lua.create_table()?;
                inner.raw_set("string", string(text)?)?;
                inner.raw_set("format", string(format.as_bytes())?)?;
                field("verbatim_string", Value::Table(inner))
            }
        }
    }
}

/// Sets a field, unless Lua has no such key.
fn set(table: &Table, key: ToLua<'_>, value: impl IntoLua) -> Result<()> {
    let nan = matches!(key.0, ScriptReply::Double(number) if number.is_nan());
    if nan || *key.0 == ScriptReply::Nil && key.1 == ScriptProtocol::Resp3 {
        return Ok(());
    }
    table.raw_set(key, value)
}

/// An error's text with its code. A text of one word gets the code `ERR`.
pub(crate) fn error_text(text: &[u8]) -> Vec<u8> {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let from = text.iter().position(|byte| !is_break(byte));
    let to = text.iter().rposition(|byte| !is_break(byte));
    let text = from.zip(to).map_or(&[][..], |(from, to)| &text[from..=to]);
    if text.contains(&b' ') {
        text.to_vec()
    } else {
        [b"ERR ", text].concat()
    }
}

/// A text on one line, up to the first zero byte: what the simple strings of RESP can carry.
pub(crate) fn line(text: &[u8]) -> Vec<u8> {
    let end = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    let blank = |byte: &u8| match byte {
        b'\r' | b'\n' => b' ',
        other => *other,
    };
    text[..end].iter().map(blank).collect()
}

/// Names of fields, made once for a Lua state.
pub(crate) struct Names {
    pub(crate) err: LuaString,
    ok: LuaString,
    double: LuaString,
    big_number: LuaString,
    verbatim_string: LuaString,
    map: LuaString,
    set: LuaString,
    format: LuaString,
    string: LuaString,
}

impl Names {
    pub(crate) fn new(lua: &Lua) -> Result<Names> {
        let name = |name: &str| lua.create_string(name);
        Ok(Names {
            err: name("err")?,
            ok: name("ok")?,
            double: name("double")?,
            big_number: name("big_number")?,
            verbatim_string: name("verbatim_string")?,
            map: name("map")?,
            set: name("set")?,
            format: name("format")?,
            string: name("string")?,
        })
    }
}

/// Why a script's value is no reply.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// It has more bytes than the limit.
    Large,
    /// It has too many nested tables.
    Deep,
    /// Lua failed.
    Lua(Error),
}

impl From<Error> for Unfit {
    fn from(error: Error) -> Unfit {
        Unfit::Lua(error)
    }
}

/// Turns a script's value into its reply.
pub(crate) struct FromLua<'a> {
    pub(crate) names: &'a Names,
    pub(crate) protocol: ScriptProtocol,
    pub(crate) bytes_left: usize,
    /// Called for each value.
    pub(crate) count: &'a dyn Fn() -> Result<()>,
}

impl FromLua<'_> {
    pub(crate) fn reply(&mut self, value: &Value) -> std::result::Result<ScriptReply, Unfit> {
        self.nested(value, 0)
    }

    fn take(&mut self, bytes: usize) -> std::result::Result<(), Unfit> {
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes + ELEMENT_BYTES)
            .ok_or(Unfit::Large)?;
        (self.count)()?;
        Ok(())
    }

    fn bytes(&mut self, string: &LuaString) -> std::result::Result<Bytes, Unfit> {
        let bytes = string.as_bytes();
        self.take(bytes.len())?;
        Ok(Bytes::copy_from_slice(&bytes))
    }

    fn nested(&mut self, value: &Value, depth: usize) -> std::result::Result<ScriptReply, Unfit> {
        match value {
            Value::String(string) => Ok(ScriptReply::Bulk(self.bytes(string)?)),
            Value::Table(_) if depth >= DEPTH_MAX => Err(Unfit::Deep),
            Value::Table(table) => self.table(table, depth + 1),
            Value::Boolean(boolean) => {
                self.take(0)?;
                Ok(match (self.protocol, boolean) {
                    (ScriptProtocol::Resp2, true) => ScriptReply::Int(1),
                    (ScriptProtocol::Resp2, false) => ScriptReply::Nil,
                    (ScriptProtocol::Resp3, boolean) => ScriptReply::Bool(*boolean),
                })
            }
            value => {
                self.take(0)?;
                Ok(number_of(value).map_or(ScriptReply::Nil, |number| {
                    ScriptReply::Int(to_integer(number))
                }))
            }
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> std::result::Result<ScriptReply, Unfit> {
        let names = self.names;
        if let Value::String(text) = table.raw_get(&names.err)? {
            return Ok(ScriptReply::Error(line(&self.bytes(&text)?).into()));
        }
        if let Value::String(text) = table.raw_get(&names.ok)? {
            return Ok(ScriptReply::Status(line(&self.bytes(&text)?).into()));
        }
        if let Some(number) = number_of(&table.raw_get(&names.double)?) {
            self.take(0)?;
            return Ok(ScriptReply::Double(number));
        }
        if let Value::String(digits) = table.raw_get(&names.big_number)? {
            let digits = self.bytes(&digits)?;
            return Ok(ScriptReply::BigNumber(
                String::from_utf8_lossy(&digits).replace(['\r', '\n'], " "),
            ));
        }
        if let Value::Table(inner) = table.raw_get(&names.verbatim_string)?
            && let Value::String(format) = inner.raw_get(&names.format)?
            && let Value::String(text) = inner.raw_get(&names.string)?
        {
            let format = String::from_utf8_lossy(&line(&self.bytes(&format)?)).into_owned();
            return Ok(ScriptReply::Verbatim {
                format,
                text: self.bytes(&text)?,
            });
        }
        if let Value::Table(inner) = table.raw_get(&names.map)? {
            self.take(0)?;
            let mut pairs = Vec::new();
            for pair in inner.pairs::<Value, Value>() {
                let (key, value) = pair?;
                pairs.push((self.nested(&key, depth)?, self.nested(&value, depth)?));
            }
            return Ok(ScriptReply::Map(pairs));
        }
        if let Value::Table(inner) = table.raw_get(&names.set)? {
            self.take(0)?;
            let mut members = Vec::new();
            for pair in inner.pairs::<Value, bool>() {
                members.push(self.nested(&pair?.0, depth)?);
            }
            return Ok(ScriptReply::Set(members));
        }
        self.take(0)?;
        let mut replies = Vec::new();
        for index in 1.. {
            match table.raw_get(index)? {
                Value::Nil => break,
                value => replies.push(self.nested(&value, depth)?),
            }
        }
        Ok(ScriptReply::Array(replies))
    }
}

/// A number without its fraction. What fits into no integer becomes the smallest one, as the
/// processors on which Redis usually runs do it.
pub(crate) fn to_integer(number: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}
