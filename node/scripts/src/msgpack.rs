//! `cmsgpack`: MessagePack, with the choices of Redis's library.
//!
//! A table with the keys 1 to n is an array, every other one a map. Numbers that are integers are
//! packed as such, others as the shorter float that holds them. Tables that are nested deeper than
//! 16 levels become nil. Writing into memory cannot fail, so what the crate `rmp` returns is
//! dropped.

use std::rc::Rc;

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};
use rmp::encode;

use crate::budget::ScriptBudget;
use crate::raise::{self, LuaArgs, number_of};

/// Nested tables that are packed. Deeper ones are nil.
const NESTING_MAX: usize = 16;
/// Nested arrays and maps that are unpacked.
const DEPTH_MAX: usize = 1_000;
/// The most results of one `unpack`: what fits on Lua's stack.
const RESULTS_MAX: usize = 7_900;

/// The library's table.
pub(crate) fn library(lua: &Lua, budget: &Rc<ScriptBudget>) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", budget.function(lua, pack)?)?;
    let unpack = |lua: &Lua, budget: &ScriptBudget, args| {
        let args = LuaArgs::new(lua, args);
        unpack_from(lua, budget, &args, i64::MAX, 0, true)
    };
    table.raw_set("unpack", budget.function(lua, unpack)?)?;
    let unpack_one = |lua: &Lua, budget: &ScriptBudget, args| {
        let args = LuaArgs::new(lua, args);
        let offset = args.integer_or(2, 0)?;
        unpack_from(lua, budget, &args, 1, offset, false)
    };
    table.raw_set("unpack_one", budget.function(lua, unpack_one)?)?;
    let unpack_limit = |lua: &Lua, budget: &ScriptBudget, args| {
        let args = LuaArgs::new(lua, args);
        let (limit, offset) = (args.integer(2)?, args.integer_or(3, 0)?);
        let all = limit == 0 && offset == 0;
        unpack_from(
            lua,
            budget,
            &args,
            if all { i64::MAX } else { limit },
            offset,
            all,
        )
    };
    table.raw_set("unpack_limit", budget.function(lua, unpack_limit)?)?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    Ok(table)
}

fn pack(lua: &Lua, budget: &ScriptBudget, args: MultiValue) -> Result<LuaString> {
    let args = LuaArgs::new(lua, args);
    if args.len() == 0 {
        return Err(args.wrong(0, "MessagePack pack needs input."));
    }
    let mut out = Vec::new();
    for number in 1..=args.len() {
        pack_value(lua, budget, &mut out, &args.value(number), 0)?;
    }
    lua.create_string(out)
}

fn pack_value(
    lua: &Lua,
    budget: &ScriptBudget,
    out: &mut Vec<u8>,
    value: &Value,
    level: usize,
) -> Result<()> {
    let before = out.len();
    match value {
        Value::String(string) => pack_bytes(out, &string.as_bytes()),
        Value::Boolean(is) => drop(encode::write_bool(out, *is)),
        Value::Table(table) if level < NESTING_MAX => {
            budget.charge(lua, 1)?;
            return pack_table(lua, budget, out, table, level);
        }
        value => match number_of(value) {
            Some(number) => pack_number(out, number),
            None => drop(encode::write_nil(out)),
        },
    }
    if out.len() > budget.bytes_max() {
        return Err(raise::memory());
    }
    budget.charge_bytes(lua, out.len() - before)
}

fn pack_table(
    lua: &Lua,
    budget: &ScriptBudget,
    out: &mut Vec<u8>,
    table: &Table,
    level: usize,
) -> Result<()> {
    let (mut count, mut largest, mut is_array) = (0_usize, 0.0_f64, true);
    table.for_each(|key: Value, _: bool| {
        budget.count_one(lua)?;
        count += 1;
        match number_of(&key) {
            Some(key) if key > 0.0 && key.fract() == 0.0 && key <= f64::from(i32::MAX) => {
                largest = largest.max(key);
            }
            _ => is_array = false,
        }
        Ok(())
    })?;
    budget.charge(lua, count as u64)?;
    if is_array && largest == count as f64 {
        let _ = encode::write_array_len(out, count as u32);
        for index in 1..=count {
            pack_value(lua, budget, out, &table.raw_get(index)?, level + 1)?;
        }
        return Ok(());
    }
    let _ = encode::write_map_len(out, count as u32);
    // Not `for_each`, in which errors would have no place.
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        pack_value(lua, budget, out, &key, level + 1)?;
        pack_value(lua, budget, out, &value, level + 1)?;
    }
    Ok(())
}

fn pack_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let _ = encode::write_str_len(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn pack_number(out: &mut Vec<u8>, number: f64) {
    let integer = number as i64;
    let _ = if integer as f64 == number && number < 9_223_372_036_854_775_807.0 {
        encode::write_sint(out, integer).map(drop)
    } else if f64::from(number as f32) == number {
        encode::write_f32(out, number as f32)
    } else {
        encode::write_f64(out, number)
    };
}

fn unpack_from(
    lua: &Lua,
    budget: &ScriptBudget,
    args: &LuaArgs<'_>,
    limit: i64,
    offset: i64,
    all: bool,
) -> Result<MultiValue> {
    let data = args.string(1)?;
    let data = data.as_bytes();
    let length = data.len();
    if offset < 0 || limit < 0 {
        return Err(raise::message(
            lua,
            format_args!(
                "Invalid request to unpack with offset of {offset} and limit of {length}."
            ),
        ));
    }
    let Some(rest) = data.get(offset as usize..) else {
        return Err(raise::message(
            lua,
            format_args!("Start offset {offset} greater than input length {length}."),
        ));
    };
    let mut reader = MsgpackReader {
        lua,
        budget,
        rest,
        depth: 0,
    };
    let mut results = MultiValue::new();
    while !reader.rest.is_empty() && (results.len() as i64) < limit {
        if results.len() >= RESULTS_MAX {
            return Err(reader.overflow());
        }
        results.push_back(reader.value()?);
    }
    if !all {
        let next = match reader.rest.len() {
            0 => -1,
            left => (length - left) as i64,
        };
        results.push_front(Value::Integer(next));
    }
    Ok(results)
}

struct MsgpackReader<'a> {
    lua: &'a Lua,
    budget: &'a ScriptBudget,
    rest: &'a [u8],
    depth: usize,
}

impl MsgpackReader<'_> {
    fn overflow(&self) -> mlua::Error {
        raise::message(
            self.lua,
            "stack overflow (too many return values at once; use unpack_one or unpack_limit \
             instead.)",
        )
    }

    fn take(&mut self, length: usize) -> Result<&[u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(raise::message(self.lua, "Missing bytes in input."));
        };
        self.rest = rest;
        Ok(taken)
    }

    /// A big-endian integer of up to 8 bytes.
    fn unsigned(&mut self, length: usize) -> Result<u64> {
        Ok(self
            .take(length)?
            .iter()
            .fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    fn string(&mut self, length: u64) -> Result<Value> {
        let lua = self.lua;
        let budget = self.budget;
        let bytes = self.take(length as usize)?;
        budget.charge_bytes(lua, bytes.len())?;
        Ok(Value::String(lua.create_string(bytes)?))
    }

    fn value(&mut self) -> Result<Value> {
        self.budget.charge(self.lua, 1)?;
        let first = self.take(1)?[0];
        match first {
            0..=0x7f => Ok(Value::Integer(i64::from(first))),
            0x80..=0x8f => self.map(u64::from(first & 0xf)),
            0x90..=0x9f => self.array(u64::from(first & 0xf)),
            0xa0..=0xbf => self.string(u64::from(first & 0x1f)),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Boolean(first == 0xc3)),
            0xca => Ok(Value::Number(f64::from(f32::from_bits(
                self.unsigned(4)? as u32
            )))),
            0xcb => Ok(Value::Number(f64::from_bits(self.unsigned(8)?))),
            0xcc => Ok(Value::Number(self.unsigned(1)? as f64)),
            0xcd => Ok(Value::Number(self.unsigned(2)? as f64)),
            0xce => Ok(Value::Number(self.unsigned(4)? as f64)),
            // Redis reads these as signed.
            0xcf => Ok(Value::Number(self.unsigned(8)? as i64 as f64)),
            0xd0 => Ok(Value::Number(f64::from(self.unsigned(1)? as i8))),
            0xd1 => Ok(Value::Number(f64::from(self.unsigned(2)? as i16))),
            0xd2 => Ok(Value::Number(f64::from(self.unsigned(4)? as i32))),
            0xd3 => Ok(Value::Number(self.unsigned(8)? as i64 as f64)),
            0xd9 => self.sized(1, Self::string),
            0xda => self.sized(2, Self::string),
            0xdb => self.sized(4, Self::string),
            0xdc => self.sized(2, Self::array),
            0xdd => self.sized(4, Self::array),
            0xde => self.sized(2, Self::map),
            0xdf => self.sized(4, Self::map),
            0xe0..=0xff => Ok(Value::Integer(i64::from(first as i8))),
            _ => Err(raise::message(self.lua, "Bad data format in input.")),
        }
    }

    fn sized(
        &mut self,
        length: usize,
        read: impl FnOnce(&mut Self, u64) -> Result<Value>,
    ) -> Result<Value> {
        let size = self.unsigned(length)?;
        read(self, size)
    }

    fn descend(&mut self) -> Result<Table> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.overflow());
        }
        self.lua.create_table()
    }

    fn array(&mut self, count: u64) -> Result<Value> {
        let table = self.descend()?;
        for index in 1..=count {
            let value = self.value()?;
            if !value.is_nil() {
                table.raw_set(index, value)?;
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: u64) -> Result<Value> {
        let table = self.descend()?;
        for _ in 0..count {
            let key = self.value()?;
            let value = self.value()?;
            match key {
                Value::Nil => return Err(raise::message(self.lua, "table index is nil")),
                Value::Number(number) if number.is_nan() => {
                    return Err(raise::message(self.lua, "table index is NaN"));
                }
                key => table.raw_set(key, value)?,
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }
}
