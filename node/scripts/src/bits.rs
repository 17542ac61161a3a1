//! `bit`: operations on 32-bit integers.

use mlua::{Lua, MultiValue, Result, Table};

use crate::raise::LuaArgs;

/// The library's table.
pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let one = |name: &str, operation: fn(u32) -> u32| {
        let function = lua.create_function(move |lua, args| {
            Ok(signed(operation(bits(&LuaArgs::new(lua, args), 1)?)))
        })?;
        table.raw_set(name, function)
    };
    one("tobit", |bits| bits)?;
    one("bnot", |bits| !bits)?;
    one("bswap", u32::swap_bytes)?;

    let all = |name: &str, operation: fn(u32, u32) -> u32| {
        let function = lua.create_function(move |lua, args| {
            let args = LuaArgs::new(lua, args);
            let first = bits(&args, 1)?;
            // From the last to the second: an error names the last wrong argument, as in Redis.
            (2..=args.len())
                .rev()
                .try_fold(first, |all, number| {
                    Ok(operation(all, bits(&args, number)?))
                })
                .map(signed)
        })?;
        table.raw_set(name, function)
    };
    all("band", |a, b| a & b)?;
    all("bor", |a, b| a | b)?;
    all("bxor", |a, b| a ^ b)?;

    let shift = |name: &str, operation: fn(u32, u32) -> u32| {
        let function = lua.create_function(move |lua, args| {
            let args = LuaArgs::new(lua, args);
            Ok(signed(operation(bits(&args, 1)?, bits(&args, 2)? & 31)))
        })?;
        table.raw_set(name, function)
    };
    shift("lshift", |bits, by| bits << by)?;
    shift("rshift", |bits, by| bits >> by)?;
    shift("arshift", |bits, by| ((bits as i32) >> by) as u32)?;
    shift("rol", u32::rotate_left)?;
    shift("ror", u32::rotate_right)?;

    table.raw_set("tohex", lua.create_function(tohex)?)?;
    Ok(table)
}

fn tohex(lua: &Lua, args: MultiValue) -> Result<String> {
    let args = LuaArgs::new(lua, args);
    let number = bits(&args, 1)?;
    let digits = if args.len() < 2 {
        8
    } else {
        bits(&args, 2)? as i32
    };
    let text = if digits < 0 {
        format!("{number:08X}")
    } else {
        format!("{number:08x}")
    };
    Ok(text[8 - digits.unsigned_abs().min(8) as usize..].to_owned())
}

fn signed(bits: u32) -> i32 {
    bits as i32
}

/// The low 32 bits of the nearest integer, as LuaBitOp finds them.
fn bits(args: &LuaArgs<'_>, number: usize) -> Result<u32> {
    let value = args.number(number)?;
    // 2^52 + 2^51: the sum's lowest bits are those of the integer.
    Ok((value + 6_755_399_441_055_744.0).to_bits() as u32)
}
