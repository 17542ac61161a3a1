//! From JSON to Lua's values. `null` becomes `cjson.null`.

use memchr::memchr3;
use mlua::{Error, Lua, Result, Table, Value};

use super::{DEPTH_MAX, JsonConfig};
use crate::budget::ScriptBudget;
use crate::number::from_prefix;
use crate::raise;

/// Decodes one value, which must be the whole text.
pub(super) fn decode(
    lua: &Lua,
    budget: &ScriptBudget,
    config: JsonConfig,
    text: &[u8],
) -> Result<Value> {
    if let [0, _, ..] | [_, 0, ..] = text {
        return Err(raise::message(
            lua,
            "JSON parser does not support UTF-16 or UTF-32",
        ));
    }
    budget.charge_bytes(lua, text.len())?;
    let mut decoder = Decoder {
        lua,
        budget,
        config,
        text,
        at: 0,
        depth: 0,
    };
    let first = decoder.token();
    let value = decoder.value(first)?;
    match decoder.token() {
        (_, JsonToken::End) => Ok(value),
        token => Err(decoder.expected("the end", &token)),
    }
}

#[derive(Debug)]
enum JsonToken {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl JsonToken {
    /// How errors name the token.
    fn name(&self) -> &'static str {
        match self {
            JsonToken::ObjectBegin => "T_OBJ_BEGIN",
            JsonToken::ObjectEnd => "T_OBJ_END",
            JsonToken::ArrayBegin => "T_ARR_BEGIN",
            JsonToken::ArrayEnd => "T_ARR_END",
            JsonToken::String(_) => "T_STRING",
            JsonToken::Number(_) => "T_NUMBER",
            JsonToken::Boolean(_) => "T_BOOLEAN",
            JsonToken::Null => "T_NULL",
            JsonToken::Colon => "T_COLON",
            JsonToken::Comma => "T_COMMA",
            JsonToken::End => "T_END",
            JsonToken::Error(name) => name,
        }
    }
}

/// Where a token begins, and the token. An error is where it was found.
type PositionedToken = (usize, JsonToken);

struct Decoder<'a> {
    lua: &'a Lua,
    budget: &'a ScriptBudget,
    config: JsonConfig,
    text: &'a [u8],
    at: usize,
    depth: i32,
}

impl Decoder<'_> {
    /// A byte of the text, or zero behind its end. A zero byte in the text ends it, too.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn starts_with(&self, word: &str) -> bool {
        self.text[self.at..].starts_with(word.as_bytes())
    }

    fn expected(&self, what: &str, (at, token): &PositionedToken) -> Error {
        let found = token.name();
        let character = at + 1;
        raise::message(
            self.lua,
            format_args!("Expected {what} but found {found} at character {character}"),
        )
    }

    fn token(&mut self) -> PositionedToken {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let begin = self.at;
        let token = match self.byte(begin) {
            b'{' => JsonToken::ObjectBegin,
            b'}' => JsonToken::ObjectEnd,
            b'[' => JsonToken::ArrayBegin,
            b']' => JsonToken::ArrayEnd,
            b',' => JsonToken::Comma,
            b':' => JsonToken::Colon,
            0 => return (begin, JsonToken::End),
            b'"' => {
                return match self.string() {
                    Ok(string) => (begin, JsonToken::String(string)),
                    Err(name) => (self.at, JsonToken::Error(name)),
                };
            }
            b'-' | b'0'..=b'9' => {
                if !self.config.decode_invalid_numbers && self.is_invalid_number() {
                    return (begin, JsonToken::Error("invalid number"));
                }
                return (begin, self.number());
            }
            b't' if self.starts_with("true") => return self.word(4, JsonToken::Boolean(true)),
            b'f' if self.starts_with("false") => return self.word(5, JsonToken::Boolean(false)),
            b'n' if self.starts_with("null") => return self.word(4, JsonToken::Null),
            b'+' | b'i' | b'I' | b'n' | b'N'
                if self.config.decode_invalid_numbers && self.is_invalid_number() =>
            {
                return (begin, self.number());
            }
            _ => return (begin, JsonToken::Error("invalid token")),
        };
        self.at += 1;
        (begin, token)
    }

    fn word(&mut self, length: usize, token: JsonToken) -> PositionedToken {
        let begin = self.at;
        self.at += length;
        (begin, token)
    }

    fn number(&mut self) -> JsonToken {
        match from_prefix(&self.text[self.at..]) {
            Some((number, length)) => {
                self.at += length;
                JsonToken::Number(number)
            }
            None => JsonToken::Error("invalid number"),
        }
    }

    /// Whether a number is one that C reads, and JSON does not have.
    fn is_invalid_number(&self) -> bool {
        let at = match self.byte(self.at) {
            b'+' => return true,
            b'-' => self.at + 1,
            _ => self.at,
        };
        match self.byte(at) {
            b'0' => {
                let next = self.byte(at + 1);
                next | 0x20 == b'x' || next.is_ascii_digit()
            }
            byte if byte <= b'9' => false,
            _ => {
                let word = &self.text[at..];
                word.len() >= 3
                    && (word[..3].eq_ignore_ascii_case(b"inf")
                        || word[..3].eq_ignore_ascii_case(b"nan"))
            }
        }
    }

    fn string(&mut self) -> std::result::Result<Vec<u8>, &'static str> {
        self.at += 1;
        let mut string = Vec::new();
        loop {
            match self.byte(self.at) {
                b'"' => break,
                0 => return Err("unexpected end of string"),
                b'\\' => {
                    let byte = match self.byte(self.at + 1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 0x08,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 0x0c,
                        b'r' => b'\r',
                        b'u' => {
                            let escape = self.unicode().ok_or("invalid unicode escape code")?;
                            let mut bytes = [0; 4];
                            string.extend_from_slice(utf8(escape, &mut bytes));
                            continue;
                        }
                        _ => return Err("invalid escape code"),
                    };
                    string.push(byte);
                    self.at += 2;
                }
                _ => {
                    let rest = &self.text[self.at..];
                    let plain = memchr3(b'"', b'\\', 0, rest).unwrap_or(rest.len());
                    string.extend_from_slice(&rest[..plain]);
                    self.at += plain;
                }
            }
        }
        self.at += 1;
        Ok(string)
    }

    fn hexadecimal(&self, at: usize) -> Option<u32> {
        (at..at + 4).try_fold(0, |code, at| {
            Some(code << 4 | char::from(self.byte(at)).to_digit(16)?)
        })
    }

    /// The code point of an escape, or of a pair of them.
    fn unicode(&mut self) -> Option<u32> {
        let high = self.hexadecimal(self.at + 2)?;
        if high & 0xf800 != 0xd800 {
            self.at += 6;
            return Some(high);
        }
        if high & 0x400 != 0 || self.byte(self.at + 6) != b'\\' || self.byte(self.at + 7) != b'u' {
            return None;
        }
        let low = self.hexadecimal(self.at + 8)?;
        if low & 0xfc00 != 0xdc00 {
            return None;
        }
        self.at += 12;
        Some((((high & 0x3ff) << 10) | (low & 0x3ff)) + 0x1_0000)
    }

    fn value(&mut self, token: PositionedToken) -> Result<Value> {
        self.budget.charge(self.lua, 1)?;
        match token.1 {
            JsonToken::String(string) => Ok(Value::String(self.lua.create_string(string)?)),
            JsonToken::Number(number) => Ok(Value::Number(number)),
            JsonToken::Boolean(boolean) => Ok(Value::Boolean(boolean)),
            JsonToken::Null => Ok(Value::NULL),
            JsonToken::ObjectBegin => self.object(),
            JsonToken::ArrayBegin => self.array(),
            _ => Err(self.expected("value", &token)),
        }
    }

    fn descend(&mut self) -> Result<Table> {
        self.depth += 1;
        if self.depth > self.config.decode_max_depth.min(DEPTH_MAX) {
            return Err(raise::message(
                self.lua,
                format_args!(
                    "Found too many nested data structures ({}) at character {}",
                    self.depth, self.at
                ),
            ));
        }
        self.lua.create_table()
    }

    fn object(&mut self) -> Result<Value> {
        let table = self.descend()?;
        let mut token = self.token();
        if !matches!(token.1, JsonToken::ObjectEnd) {
            loop {
                let JsonToken::String(key) = token.1 else {
                    return Err(self.expected("object key string", &token));
                };
                let colon = self.token();
                if !matches!(colon.1, JsonToken::Colon) {
                    return Err(self.expected("colon", &colon));
                }
                let first = self.token();
                let value = self.value(first)?;
                table.raw_set(self.lua.create_string(key)?, value)?;
                token = self.token();
                match token.1 {
                    JsonToken::ObjectEnd => break,
                    JsonToken::Comma => token = self.token(),
                    _ => return Err(self.expected("comma or object end", &token)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> Result<Value> {
        let table = self.descend()?;
        let mut token = self.token();
        if !matches!(token.1, JsonToken::ArrayEnd) {
            for index in 1.. {
                let value = self.value(token)?;
                table.raw_set(index, value)?;
                token = self.token();
                match token.1 {
                    JsonToken::ArrayEnd => break,
                    JsonToken::Comma => token = self.token(),
                    _ => return Err(self.expected("comma or array end", &token)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }
}

/// UTF-8, also of what is no character, such as half of a pair.
fn utf8(code: u32, bytes: &mut [u8; 4]) -> &[u8] {
    let tail = |shift: u32| ((code >> shift) & 0x3f) as u8 | 0x80;
    let (encoded, length) = match code {
        0..=0x7f => ([code as u8, 0, 0, 0], 1),
        0x80..=0x7ff => ([(code >> 6) as u8 | 0xc0, tail(0), 0, 0], 2),
        0x800..=0xffff => ([(code >> 12) as u8 | 0xe0, tail(6), tail(0), 0], 3),
        _ => ([(code >> 18) as u8 | 0xf0, tail(12), tail(6), tail(0)], 4),
    };
    *bytes = encoded;
    &bytes[..length]
}
