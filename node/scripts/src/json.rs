//! `cjson`: JSON, with the choices, the settings and the errors of Redis's library.

mod decode;
mod encode;

use std::cell::Cell;
use std::rc::Rc;

use mlua::{IntoLuaMulti, Lua, MultiValue, Result, Table, Value};

use crate::budget::ScriptBudget;
use crate::raise::LuaArgs;

/// Nested arrays and objects that are encoded or decoded at most, whatever the settings say. Each
/// level takes stack.
const DEPTH_MAX: i32 = 1_000;

/// The settings of one `cjson` table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonConfig {
    /// A sparse array becomes an object; otherwise it is an error.
    sparse_convert: bool,
    /// An array is sparse if its highest index is more than this many times its size. 0: never.
    sparse_ratio: i32,
    /// An array whose highest index is not above this is never sparse.
    sparse_safe: i32,
    encode_max_depth: i32,
    decode_max_depth: i32,
    encode_invalid_numbers: NonFinite,
    decode_invalid_numbers: bool,
    precision: i32,
    /// Redis reuses a buffer by it. Here it changes nothing.
    keep_buffer: bool,
}

/// What becomes of infinity and of what is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NonFinite {
    Error,
    Encode,
    Null,
}

impl Default for JsonConfig {
    fn default() -> JsonConfig {
        JsonConfig {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1_000,
            decode_max_depth: 1_000,
            encode_invalid_numbers: NonFinite::Error,
            decode_invalid_numbers: true,
            precision: 14,
            keep_buffer: true,
        }
    }
}

/// A `cjson` table with its settings.
pub(crate) fn library(
    lua: &Lua,
    budget: &Rc<ScriptBudget>,
    config: &Rc<Cell<JsonConfig>>,
) -> Result<Table> {
    let table = lua.create_table()?;
    let settings = Rc::clone(config);
    let encode = move |lua: &Lua, budget: &ScriptBudget, args| {
        let args = LuaArgs::new(lua, args);
        if args.len() != 1 {
            return Err(args.wrong(1, "expected 1 argument"));
        }
        encode::encode(lua, budget, settings.get(), &args.value(1))
    };
    table.raw_set("encode", budget.function(lua, encode)?)?;
    let settings = Rc::clone(config);
    let decode = move |lua: &Lua, budget: &ScriptBudget, args| {
        let args = LuaArgs::new(lua, args);
        if args.len() != 1 {
            return Err(args.wrong(1, "expected 1 argument"));
        }
        decode::decode(lua, budget, settings.get(), &args.string(1)?.as_bytes())
    };
    table.raw_set("decode", budget.function(lua, decode)?)?;
    let shared = Rc::clone(budget);
    let new = move |lua: &Lua, _: MultiValue| library(lua, &shared, &Rc::default());
    table.raw_set("new", lua.create_function(new)?)?;

    let setting = |name: &str, most, change: SettingEdit| {
        let settings = Rc::clone(config);
        let function = lua.create_function(move |lua, args| {
            let args = LuaArgs::new(lua, args);
            if args.len() > most {
                return Err(args.wrong(most + 1, "found too many arguments"));
            }
            let mut changed = settings.get();
            let answer = change(&args, &mut changed);
            settings.set(changed);
            answer
        })?;
        table.raw_set(name, function)
    };
    setting("encode_sparse_array", 3, |args, config| {
        switch(args, &mut config.sparse_convert)?;
        integer(args, 2, &mut config.sparse_ratio, 0, i32::MAX)?;
        integer(args, 3, &mut config.sparse_safe, 0, i32::MAX)?;
        (
            config.sparse_convert,
            config.sparse_ratio,
            config.sparse_safe,
        )
            .into_lua_multi(args.lua())
    })?;
    setting("encode_max_depth", 1, |args, config| {
        integer(args, 1, &mut config.encode_max_depth, 1, i32::MAX)?;
        config.encode_max_depth.into_lua_multi(args.lua())
    })?;
    setting("decode_max_depth", 1, |args, config| {
        integer(args, 1, &mut config.decode_max_depth, 1, i32::MAX)?;
        config.decode_max_depth.into_lua_multi(args.lua())
    })?;
    setting("encode_number_precision", 1, |args, config| {
        integer(args, 1, &mut config.precision, 1, 14)?;
        config.precision.into_lua_multi(args.lua())
    })?;
    setting("encode_keep_buffer", 1, |args, config| {
        switch(args, &mut config.keep_buffer)?;
        config.keep_buffer.into_lua_multi(args.lua())
    })?;
    setting("encode_invalid_numbers", 1, |args, config| {
        config.encode_invalid_numbers = match args.value(1) {
            Value::Nil => config.encode_invalid_numbers,
            Value::Boolean(false) => NonFinite::Error,
            Value::Boolean(true) => NonFinite::Encode,
            _ => match option(args, &["off", "on", "null"])? {
                0 => NonFinite::Error,
                1 => NonFinite::Encode,
                _ => NonFinite::Null,
            },
        };
        match config.encode_invalid_numbers {
            NonFinite::Error => false.into_lua_multi(args.lua()),
            NonFinite::Encode => true.into_lua_multi(args.lua()),
            NonFinite::Null => "null".into_lua_multi(args.lua()),
        }
    })?;
    setting("decode_invalid_numbers", 1, |args, config| {
        switch(args, &mut config.decode_invalid_numbers)?;
        config.decode_invalid_numbers.into_lua_multi(args.lua())
    })?;

    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

/// Changes a setting by the arguments, and returns the new value.
type SettingEdit = fn(&LuaArgs<'_>, &mut JsonConfig) -> Result<MultiValue>;

fn switch(args: &LuaArgs<'_>, setting: &mut bool) -> Result<()> {
    match args.value(1) {
        Value::Nil => {}
        Value::Boolean(on) => *setting = on,
        _ => *setting = option(args, &["off", "on"])? == 1,
    }
    Ok(())
}

fn option(args: &LuaArgs<'_>, options: &[&str]) -> Result<usize> {
    let name = args.string(1)?;
    let name = name.to_string_lossy();
    options
        .iter()
        .position(|option| *option == name)
        .ok_or_else(|| args.wrong(1, format_args!("invalid option '{name}'")))
}

fn integer(
    args: &LuaArgs<'_>,
    number: usize,
    setting: &mut i32,
    least: i32,
    most: i32,
) -> Result<()> {
    if args.value(number).is_nil() {
        return Ok(());
    }
    // As in C, only the lowest bits are looked at.
    let value = args.integer(number)? as i32;
    if !(least..=most).contains(&value) {
        return Err(args.wrong(
            1,
            format_args!("expected integer between {least} and {most}"),
        ));
    }
    *setting = value;
    Ok(())
}
