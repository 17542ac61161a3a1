//! Compiles text, with a bound on the time.
//!
//! Lua's compiler is quick but for some constructs: it walks the list of all jumps before for each
//! further `and`, `or`, `elseif` and `break`, for instance. No hook counts there. So Lua reads the
//! text in small pieces, and the clock is read before each.

use std::cell::Cell;
use std::time::Duration;

use memchr::memmem;
use mlua::{Error, Function, Lua, LuaString, Result, Value};

use crate::raise::{Raise, RaiseCause, cause};

/// Bytes that are compiled between two looks at the clock. Where much was compiled already, each
/// byte may take 50 microseconds.
const PIECE_BYTES: usize = 256;

/// Why a text was not compiled.
pub(crate) enum Uncompiled {
    /// The time was over.
    Late,
    /// Lua's message.
    Message(Vec<u8>),
}

/// The pieces of a text, one after the other.
pub(crate) struct Pieces {
    at: usize,
}

impl Pieces {
    pub(crate) fn new() -> Pieces {
        Pieces { at: 0 }
    }

    /// The next piece, or nothing at the end.
    pub(crate) fn next(&mut self, lua: &Lua, text: &[u8]) -> Result<Option<LuaString>> {
        let rest = &text[self.at..];
        let piece = &rest[..rest.len().min(PIECE_BYTES)];
        self.at += piece.len();
        if piece.is_empty() {
            return Ok(None);
        }
        lua.create_string(piece).map(Some)
    }
}

/// Compiles a text by Lua's `load`. If there is a clock, it may take until some time.
pub(crate) fn compile(
    lua: &Lua,
    load: &Function,
    (text, name): (&[u8], &str),
    until: Option<(fn() -> Duration, Duration)>,
) -> std::result::Result<Function, Uncompiled> {
    let late = &Cell::new(false);
    let loaded = lua.scope(|scope| {
        let mut pieces = Pieces::new();
        let reader = scope.create_function_mut(move |lua, ()| {
            if until.is_some_and(|(clock, until)| clock() > until) {
                late.set(true);
                return Err(Raise::Stopped.into());
            }
            pieces.next(lua, text)
        })?;
        load.call::<(Option<Function>, Value)>((reader, name))
    });
    match loaded {
        _ if late.get() => Err(Uncompiled::Late),
        Ok((Some(function), _)) => Ok(function),
        Ok((None, Value::String(text))) => {
            // Lua calls mlua's handler for some errors, which adds a traceback.
            let text = text.as_bytes();
            let end = memmem::find(&text, b"\nstack traceback:").unwrap_or(text.len());
            Err(Uncompiled::Message(text[..end].to_vec()))
        }
        Ok((None, Value::Error(error))) => Err(failed(&error)),
        Ok((None, _)) => Err(Uncompiled::Message(b"unknown error".to_vec())),
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &Error) -> Uncompiled {
    Uncompiled::Message(match cause(error) {
        RaiseCause::Raise(Raise::Message(text) | Raise::Reply(text)) => text,
        RaiseCause::Raise(stopped) => stopped.to_string().into_bytes(),
        RaiseCause::Other(text) => text.into_bytes(),
    })
}
