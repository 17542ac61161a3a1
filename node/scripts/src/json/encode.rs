//! From Lua's values to JSON.

use mlua::{Error, Lua, LuaString, Result, Table, Value};

use super::{DEPTH_MAX, JsonConfig, NonFinite};
use crate::budget::ScriptBudget;
use crate::number::to_text;
use crate::raise::{self, number_of, type_name};

/// Bytes of a string that are encoded between two looks at the budget.
const PART_BYTES: usize = 4_096;

/// Encodes a value. A table with the keys 1 to n is an array, every other one an object.
pub(super) fn encode(
    lua: &Lua,
    budget: &ScriptBudget,
    config: JsonConfig,
    value: &Value,
) -> Result<LuaString> {
    let mut encoder = JsonEncoder {
        lua,
        budget,
        config,
        out: Vec::new(),
        charged: 0,
    };
    encoder.value(value, 0)?;
    lua.create_string(&encoder.out)
}

struct JsonEncoder<'a> {
    lua: &'a Lua,
    budget: &'a ScriptBudget,
    config: JsonConfig,
    out: Vec<u8>,
    charged: usize,
}

impl JsonEncoder<'_> {
    fn error(&self, value: &Value, reason: &str) -> Error {
        let name = type_name(value);
        raise::message(self.lua, format_args!("Cannot serialise {name}: {reason}"))
    }

    /// Takes what was written from the budget.
    fn charge(&mut self) -> Result<()> {
        if self.out.len() > self.budget.bytes_max() {
            return Err(raise::memory());
        }
        self.budget
            .charge_bytes(self.lua, self.out.len() - self.charged)?;
        self.charged = self.out.len();
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: i32) -> Result<()> {
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::String(string) => self.string(&string.as_bytes())?,
            Value::Integer(_) | Value::Number(_) => self.number(value)?,
            Value::LightUserData(data) if data.0.is_null() => self.out.extend_from_slice(b"null"),
            Value::Table(table) => self.table(value, table, depth + 1)?,
            _ => return Err(self.error(value, "type not supported")),
        }
        self.charge()
    }

    fn string(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.push(b'"');
        for part in bytes.chunks(PART_BYTES) {
            self.escaped(part);
            self.charge()?;
        }
        self.out.push(b'"');
        Ok(())
    }

    fn escaped(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in bytes {
            match *byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                0x08 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                0x0c => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                byte @ (0..=0x1f | 0x7f) => {
                    let digits = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                    self.out.extend_from_slice(b"\\u00");
                    self.out.extend_from_slice(&digits);
                }
                byte => self.out.push(byte),
            }
        }
    }

    fn number(&mut self, value: &Value) -> Result<()> {
        let number = number_of(value).unwrap_or(0.0);
        let text = match self.config.encode_invalid_numbers {
            NonFinite::Error if !number.is_finite() => {
                return Err(self.error(value, "must not be NaN or Inf"));
            }
            NonFinite::Null if !number.is_finite() => "null".to_owned(),
            NonFinite::Encode if number.is_nan() => "nan".to_owned(),
            _ => to_text(number, self.config.precision as usize),
        };
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn table(&mut self, value: &Value, table: &Table, depth: i32) -> Result<()> {
        if depth > self.config.encode_max_depth.min(DEPTH_MAX) {
            return Err(raise::message(
                self.lua,
                format_args!("Cannot serialise, excessive nesting ({depth})"),
            ));
        }
        match self.array_length(value, table)? {
            Some(length) if length > 0 => self.array(table, length, depth),
            _ => self.object(table, depth),
        }
    }

    /// The highest index, if all keys are indexes.
    fn array_length(&self, value: &Value, table: &Table) -> Result<Option<i32>> {
        let (mut highest, mut items, mut pure) = (0_i32, 0_i32, true);
        let end = table.for_each(|key: Value, _: bool| match number_of(&key) {
            Some(key) if key.floor() == key && key >= 1.0 => {
                highest = highest.max(key as i32);
                items += 1;
                self.budget.count_one(self.lua)
            }
            _ => {
                pure = false;
                // Ends the iteration.
                Err(Error::StackError)
            }
        });
        if !pure {
            return Ok(None);
        }
        end?;
        self.budget.charge(self.lua, items as u64)?;
        let JsonConfig {
            sparse_ratio,
            sparse_safe,
            sparse_convert,
            ..
        } = self.config;
        let sparse = sparse_ratio > 0
            && highest > items.saturating_mul(sparse_ratio)
            && highest > sparse_safe;
        if sparse && !sparse_convert {
            return Err(self.error(value, "excessively sparse array"));
        }
        Ok((!sparse).then_some(highest))
    }

    fn array(&mut self, table: &Table, length: i32, depth: i32) -> Result<()> {
        self.out.push(b'[');
        for index in 1..=length {
            if index > 1 {
                self.out.push(b',');
            }
            self.value(&table.raw_get(index)?, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: i32) -> Result<()> {
        self.out.push(b'{');
        let mut first = true;
        // Not `for_each`, which nests calls of C: Lua allows 200 of them.
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !first {
                self.out.push(b',');
            }
            first = false;
            match &key {
                Value::String(string) => self.string(&string.as_bytes())?,
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"');
                    self.number(&key)?;
                    self.out.push(b'"');
                }
                _ => return Err(self.error(&key, "table key must be a number or string")),
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}
