//! From JSON to Lua's values. `null` becomes `cjson.null`.

use memchr::memchr3;
use mlua::{Error, Lua, Result, Table, Value};

use super::{DEPTH_MAX, JsonConfig};
use crate::budget::Budget;
use crate::number::from_prefix;
use crate::raise;

/// Decodes one value, which must be the whole text.
pub(super) fn decode(lua: &Lua, budget: &Budget, config: JsonConfig, text: &[u8]) -> Result<Value> {
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
        (_, Token::End) => Ok(value),
        token => Err(decoder.expected("the end", &token)),
    }
}

#[derive(Debug)]
enum Token {
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

impl Token {
    /// How errors name the token.
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(name) => name,
        }
    }
}

/// Where a token begins, and the token. An error is where it was found.
type Placed = (usize, Token);

struct Decoder<'a> {
    lua: &'a Lua,
    budget: &'a Budget,
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

    fn expected(&self, what: &str, (at, token): &Placed) -> Error {
        let found = token.name();
        let character = at + 1;
        raise::message(
            self.lua,
            format_args!("Expected {what} but found {found} at character {character}"),
        )
    }

    fn token(&mut self) -> Placed {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let begin = self.at;
        let token = match self.byte(begin) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return (begin, Token::End),
            b'"' => {
                return match self.string() {
                    Ok(string) => (begin, Token::String(string)),
                    Err(name) => (self.at, Token::Error(name)),
                };
            }
            b'-' | b'0'..=b'9' => {
                if !self.config.decode_invalid_numbers && self.is_invalid_number() {
                    return (begin, Token::Error("invalid number"));
                }
                return (begin, self.number());
            }
            b't' if self.starts_with("true") => return self.word(4, Token::Boolean(true)),
            b'f' if self.starts_with("false") => return self.word(5, Token::Boolean(false)),
            b'n' if self.starts_with("null") => return self.word(4, Token::Null),
            b'+' | b'i' | b'I' | b'n' | b'N'
                if self.config.decode_invalid_numbers && self.is_invalid_number() =>
            {
                return (begin, self.number());
            }
            _ => return (begin, Token::Error("invalid token")),
        };
        self.at += 1;
        (begin, token)
    }

    fn word(&mut self, length: usize, token: Token) -> Placed {
        let begin = self.at;
        self.at += length;
        (begin, token)
    }

    fn number(&mut self) -> Token {
        match from_prefix(&self.text[self.at..]) {
            Some((number, length)) => {
                self.at += length;
                Token::Number(number)
            }
            None => Token::Error("invalid number"),
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

    fn value(&mut self, token: Placed) -> Result<Value> {
        self.budget.charge(self.lua, 1)?;
        match token.1 {
            Token::String(string) => Ok(Value::String(self.lua.create_string(string)?)),
            Token::Number(number) => Ok(Value::Number(number)),
            Token::Boolean(boolean) => Ok(Value::Boolean(boolean)),
            Token::Null => Ok(Value::NULL),
            Token::ObjectBegin => self.object(),
            Token::ArrayBegin => self.array(),
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
        if !matches!(token.1, Token::ObjectEnd) {
            loop {
                let Token::String(key) = token.1 else {
                    return Err(self.expected("object key string", &token));
                };
                let colon = self.token();
                if !matches!(colon.1, Token::Colon) {
                    return Err(self.expected("colon", &colon));
                }
                let first = self.token();
                let value = self.value(first)?;
                table.raw_set(self.lua.create_string(key)?, value)?;
                token = self.token();
                match token.1 {
                    Token::ObjectEnd => break,
                    Token::Comma => token = self.token(),
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
        if !matches!(token.1, Token::ArrayEnd) {
            for index in 1.. {
                let value = self.value(token)?;
                table.raw_set(index, value)?;
                token = self.token();
                match token.1 {
                    Token::ArrayEnd => break,
                    Token::Comma => token = self.token(),
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
