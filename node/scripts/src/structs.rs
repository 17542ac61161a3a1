//! `struct`: numbers and strings in binary form, by a format.
//!
//! Formats: `>` and `<` set the order of bytes (little at first), `!n` the alignment; `b` `B` `h`
//! `H` `l` `L` `T` `in` `In` are integers, `f` and `d` floats, `x` a zero byte, `s` a string with a
//! zero byte at its end, `cn` `n` bytes of a string (`c0`: all of it).

use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::budget::ScriptBudget;
use crate::raise::{self, LuaArgs, number_of};

/// The most bytes of an integer.
const INTEGER_MAX: usize = 32;
/// The alignment of `!` without a number.
const ALIGN_DEFAULT: usize = 8;
/// The most results of one `unpack`: what fits on Lua's stack.
const RESULTS_MAX: usize = 7_900;

/// The library's table.
pub(crate) fn library(lua: &Lua, budget: &Rc<ScriptBudget>) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", budget.function(lua, pack)?)?;
    table.raw_set("unpack", budget.function(lua, unpack)?)?;
    table.raw_set("size", budget.function(lua, size)?)?;
    Ok(table)
}

/// A format that is read from left to right.
struct Format<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
    at: usize,
    big: bool,
    align: usize,
}

impl<'a> Format<'a> {
    fn new(lua: &'a Lua, bytes: &'a [u8]) -> Format<'a> {
        // As in C, a zero byte ends the format.
        let end = bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(bytes.len());
        Format {
            lua,
            bytes: &bytes[..end],
            at: 0,
            big: false,
            align: 1,
        }
    }

    /// The next option, the size of its element, and the zero bytes before it.
    fn next(&mut self, position: usize) -> Result<Option<(u8, usize, usize)>> {
        let Some(option) = self.bytes.get(self.at).copied() else {
            return Ok(None);
        };
        self.at += 1;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > INTEGER_MAX {
                    return Err(raise::message(
                        self.lua,
                        format_args!("integral size {size} is larger than limit of {INTEGER_MAX}"),
                    ));
                }
                size
            }
            _ => 0,
        };
        let align = if size == 0 || option == b'c' {
            1
        } else {
            size.min(self.align)
        };
        // Sizes that are no power of two align as in Redis: by their lowest bits.
        let padding = align.wrapping_sub(position & (align - 1)) & (align - 1);
        Ok(Some((option, size, padding)))
    }

    fn number(&mut self, default: usize) -> Result<usize> {
        if !self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            return Ok(default);
        }
        let mut number = 0_i32;
        while let Some(digit) = self.bytes.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            number = number
                .checked_mul(10)
                .and_then(|number| number.checked_add(i32::from(digit - b'0')))
                .ok_or_else(|| raise::message(self.lua, "integral size overflow"))?;
            self.at += 1;
        }
        Ok(number as usize)
    }

    /// An option that is no element.
    fn control(&mut self, option: u8) -> Result<()> {
        match option {
            b' ' => {}
            b'>' => self.big = true,
            b'<' => self.big = false,
            b'!' => {
                let align = self.number(ALIGN_DEFAULT)?;
                if !align.is_power_of_two() {
                    return Err(raise::message(
                        self.lua,
                        format_args!("alignment {align} is not a power of 2"),
                    ));
                }
                self.align = align;
            }
            option => {
                let option = char::from(option);
                return Err(raise::argument(
                    self.lua,
                    1,
                    format_args!("invalid format option '{option}'"),
                ));
            }
        }
        Ok(())
    }
}

fn pack(lua: &Lua, budget: &ScriptBudget, mut args: MultiValue) -> Result<mlua::LuaString> {
    if !args.is_empty() {
        // Redis has a nil behind the arguments, which its errors name.
        args.push_back(Value::Nil);
    }
    let args = LuaArgs::new(lua, args);
    let format = args.string(1)?;
    let bytes = format.as_bytes();
    budget.charge_bytes(lua, bytes.len() * 8)?;
    let mut format = Format::new(lua, &bytes);
    let (mut out, mut next) = (Vec::new(), 2);
    while let Some((option, size, padding)) = format.next(out.len())? {
        budget.count_one(lua)?;
        out.resize(out.len() + padding, 0);
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = args.number(next)?;
                next += 1;
                let number = if number < 0.0 {
                    number as i64 as u64
                } else {
                    number as u64
                };
                let mut bytes = [0; INTEGER_MAX];
                bytes[..8].copy_from_slice(&number.to_le_bytes());
                push_ordered(&mut out, &bytes[..size], format.big);
            }
            b'x' => out.push(0),
            b'f' => {
                let number = args.number(next)? as f32;
                next += 1;
                push_ordered(&mut out, &number.to_le_bytes(), format.big);
            }
            b'd' => {
                let number = args.number(next)?;
                next += 1;
                push_ordered(&mut out, &number.to_le_bytes(), format.big);
            }
            b'c' | b's' => {
                let string = args.string(next)?;
                next += 1;
                let string = string.as_bytes();
                let size = if size == 0 { string.len() } else { size };
                if string.len() < size {
                    return Err(args.wrong(next, "string too short"));
                }
                if out.len() + size > budget.bytes_max() {
                    return Err(raise::memory());
                }
                out.extend_from_slice(&string[..size]);
                if option == b's' {
                    out.push(0);
                }
            }
            option => format.control(option)?,
        }
        if out.len() > budget.bytes_max() {
            return Err(raise::memory());
        }
    }
    budget.charge_bytes(lua, out.len())?;
    lua.create_string(out)
}

fn push_ordered(out: &mut Vec<u8>, little: &[u8], big: bool) {
    if big {
        out.extend(little.iter().rev());
    } else {
        out.extend_from_slice(little);
    }
}

fn unpack(lua: &Lua, budget: &ScriptBudget, args: MultiValue) -> Result<MultiValue> {
    let args = LuaArgs::new(lua, args);
    let (format, data) = (args.string(1)?, args.string(2)?);
    let (bytes, data) = (format.as_bytes(), data.as_bytes());
    let position = args.integer_or(3, 1)?;
    if position == 0 {
        return Err(args.wrong(3, "offset must be 1 or greater"));
    }
    budget.charge_bytes(lua, bytes.len() * 8)?;
    // A negative offset is a huge one, as in C.
    let mut position = (position as u64 as usize).wrapping_sub(1);
    let mut format = Format::new(lua, &bytes);
    let mut results = MultiValue::new();
    while let Some((option, mut size, padding)) = format.next(position)? {
        budget.count_one(lua)?;
        position = position.saturating_add(padding);
        let too_short = || args.wrong(2, "data string too short");
        if size > data.len() || position > data.len() - size {
            return Err(too_short());
        }
        if results.len() >= RESULTS_MAX {
            return Err(raise::message(lua, "stack overflow (too many results)"));
        }
        let element = &data[position..position + size];
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                results.push_back(Value::Number(integer(element, format.big, option)));
            }
            b'x' => {}
            b'f' => {
                let mut bytes: [u8; 4] = element.try_into().unwrap_or_default();
                if format.big {
                    bytes.reverse();
                }
                results.push_back(Value::Number(f64::from(f32::from_le_bytes(bytes))));
            }
            b'd' => {
                let mut bytes: [u8; 8] = element.try_into().unwrap_or_default();
                if format.big {
                    bytes.reverse();
                }
                results.push_back(Value::Number(f64::from_le_bytes(bytes)));
            }
            b'c' => {
                if size == 0 {
                    let Some(number) = results.pop_back().as_ref().and_then(number_of) else {
                        return Err(raise::message(lua, "format 'c0' needs a previous size"));
                    };
                    size = number as u64 as usize;
                    if size > data.len() || position > data.len() - size {
                        return Err(too_short());
                    }
                }
                let string = lua.create_string(&data[position..position + size])?;
                results.push_back(Value::String(string));
            }
            b's' => {
                let Some(end) = data[position..].iter().position(|byte| *byte == 0) else {
                    return Err(raise::message(lua, "unfinished string in data"));
                };
                let string = lua.create_string(&data[position..position + end])?;
                results.push_back(Value::String(string));
                size = end + 1;
            }
            option => format.control(option)?,
        }
        budget.charge_bytes(lua, size)?;
        position += size;
    }
    // A script may begin behind any number of bytes, if it takes none.
    results.push_back(Value::Integer((position as i64).saturating_add(1)));
    Ok(results)
}

fn integer(bytes: &[u8], big: bool, option: u8) -> f64 {
    let mut number = 0_u64;
    let mut add = |byte: &u8| number = (number << 8) | u64::from(*byte);
    if big {
        bytes.iter().for_each(&mut add);
    } else {
        bytes.iter().rev().for_each(&mut add);
    }
    if option.is_ascii_uppercase() {
        return number as f64;
    }
    let unused = 64_u32.saturating_sub(bytes.len() as u32 * 8);
    // No bytes have no sign, and a shift by all bits would overflow.
    if unused >= 64 {
        0.0
    } else {
        (((number << unused) as i64) >> unused) as f64
    }
}

fn size(lua: &Lua, budget: &ScriptBudget, args: MultiValue) -> Result<i64> {
    let args = LuaArgs::new(lua, args);
    let format = args.string(1)?;
    let bytes = format.as_bytes();
    budget.charge_bytes(lua, bytes.len() * 8)?;
    let mut format = Format::new(lua, &bytes);
    let mut position = 0_usize;
    while let Some((option, size, padding)) = format.next(position)? {
        position = position.saturating_add(padding);
        match option {
            b's' => return Err(args.wrong(1, "option 's' has no fixed size")),
            b'c' if size == 0 => return Err(args.wrong(1, "option 'c0' has no fixed size")),
            option if !option.is_ascii_alphanumeric() => format.control(option)?,
            _ => {}
        }
        position = position.saturating_add(size);
    }
    Ok(position as i64)
}
