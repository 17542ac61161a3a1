//! `table.sort` for the common case, with a bound on the work.
//!
//! Lua's own sort compares in C, where no hook counts, and some orders of the elements make it
//! quadratic. Numbers and strings are sorted here instead. For everything else, the prelude calls
//! Lua's sort with a comparison in Lua, so that its instructions count.

use mlua::{FromLua, Lua, MultiValue, Result, Table, Value};

use crate::budget::ScriptBudget;
use crate::raise::{self, LuaArgs, number_of};

/// An element of a table that may be sorted here. It keeps no reference into Lua, because mlua
/// bounds their number.
enum Element {
    Number(f64),
    String(Vec<u8>),
    Other,
}

impl FromLua for Element {
    fn from_lua(value: Value, _: &Lua) -> Result<Element> {
        Ok(match value {
            Value::String(string) => Element::String(string.as_bytes().to_vec()),
            value => match number_of(&value) {
                Some(number) if !number.is_nan() => Element::Number(number),
                _ => Element::Other,
            },
        })
    }
}

/// Sorts a table of numbers or of strings. Returns whether it did.
pub(crate) fn sort(lua: &Lua, budget: &ScriptBudget, args: MultiValue) -> Result<bool> {
    let args = LuaArgs::new(lua, args);
    let table = args.table(1)?;
    match args.value(2) {
        Value::Nil => {}
        Value::Function(_) => return Ok(false),
        _ => return Err(args.wrong_type(2, "function")),
    }
    let length = table.raw_len();
    let comparisons = length as u64 * u64::from(length.checked_ilog2().unwrap_or(0) + 1);
    budget.charge(lua, comparisons)?;
    match table.raw_get(1)? {
        Element::Number(_) => numbers(lua, budget, &table, length),
        Element::String(_) => strings(lua, budget, &table, length),
        Element::Other => Ok(length == 0),
    }
}

fn numbers(lua: &Lua, budget: &ScriptBudget, table: &Table, length: usize) -> Result<bool> {
    let mut numbers = Vec::with_capacity(length.min(1 << 16));
    for index in 1..=length {
        budget.count_one(lua)?;
        let Element::Number(number) = table.raw_get(index)? else {
            return Ok(false);
        };
        numbers.push(number);
    }
    numbers.sort_by(f64::total_cmp);
    for (index, number) in numbers.into_iter().enumerate() {
        budget.count_one(lua)?;
        table.raw_set(index + 1, number)?;
    }
    Ok(true)
}

fn strings(lua: &Lua, budget: &ScriptBudget, table: &Table, length: usize) -> Result<bool> {
    let (mut strings, mut size) = (Vec::with_capacity(length.min(1 << 16)), 0);
    for index in 1..=length {
        budget.count_one(lua)?;
        let Element::String(string) = table.raw_get(index)? else {
            return Ok(false);
        };
        size += string.len();
        if size > budget.bytes_max() {
            return Err(raise::memory());
        }
        strings.push(string);
    }
    budget.charge_bytes(lua, size)?;
    strings.sort();
    for (index, string) in strings.into_iter().enumerate() {
        budget.count_one(lua)?;
        table.raw_set(index + 1, lua.create_string(string)?)?;
    }
    Ok(true)
}
