//! The functions of `string` that C would run without any bound: `find`, `match`, `rep`, `lower`,
//! `upper`, `reverse`, and the parts of `gmatch` and `gsub` that do not call the script. Checks for
//! `format` and `concat`, which stay in C.

use std::rc::Rc;

use memchr::memmem;
use mlua::{Error, Lua, LuaString, MultiValue, Result, Value};

use crate::budget::ScriptBudget;
use crate::pattern::{Capture, Matcher, PatternError};
use crate::raise::{self, LuaArgs};

/// Steps of a pattern for the price of one instruction.
const STEPS: u64 = 4;

/// `string.rep(s, n)`.
pub(crate) fn rep(lua: &Lua, budget: &ScriptBudget, args: MultiValue) -> Result<Value> {
    let args = LuaArgs::new(lua, args);
    let string = args.string(1)?;
    let times = usize::try_from(args.integer(2)?).unwrap_or(0);
    let bytes = string.as_bytes();
    let size = bytes.len().saturating_mul(times);
    if size > budget.bytes_max() {
        return Err(raise::memory());
    }
    if size == 0 {
        return Ok(Value::String(lua.create_string("")?));
    }
    budget.charge_bytes(lua, size)?;
    Ok(Value::String(lua.create_string(bytes.repeat(times))?))
}

/// `string.lower`, `upper` and `reverse`.
fn changed(
    lua: &Lua,
    budget: &ScriptBudget,
    args: MultiValue,
    change: fn(&mut [u8]),
) -> Result<LuaString> {
    let string = LuaArgs::new(lua, args).string(1)?;
    let mut bytes = string.as_bytes().to_vec();
    budget.charge_bytes(lua, bytes.len())?;
    change(&mut bytes);
    lua.create_string(bytes)
}

/// The shortest text that `%s` takes as it is, without `sprintf`.
const FORMAT_WHOLE: usize = 100;

/// The arguments for `string.format` of C. Long strings of a `%q` are quoted here, since C adds
/// each byte by itself.
pub(crate) fn format_check(
    lua: &Lua,
    budget: &ScriptBudget,
    args: MultiValue,
) -> Result<MultiValue> {
    let length = |value: &Value| value.as_string().map_or(0, |text| text.as_bytes().len());
    budget.charge_bytes(lua, args.iter().map(length).sum())?;
    let mut values: Vec<Value> = args.into_iter().collect();
    let Some(Value::String(format)) = values.first().cloned() else {
        return Ok(values.into_iter().collect());
    };
    let format = format.as_bytes();
    let (mut out, mut bytes, mut next) = (Vec::with_capacity(format.len()), format.iter(), 1);
    while let Some(byte) = bytes.next() {
        out.push(*byte);
        if *byte != b'%' {
            continue;
        }
        let began = out.len();
        let letter = bytes.find(|byte| {
            out.push(**byte);
            !b"-+ #0123456789.".contains(byte)
        });
        if letter == Some(&b'%') {
            continue;
        }
        if letter == Some(&b'q')
            && let Some(Value::String(text)) = values.get(next)
            && text.as_bytes().len() >= FORMAT_WHOLE
        {
            out.truncate(began);
            out.push(b's');
            let quoted = quoted(budget, &text.as_bytes())?;
            values[next] = Value::String(lua.create_string(quoted)?);
        }
        next += 1;
    }
    values[0] = Value::String(lua.create_string(out)?);
    Ok(values.into_iter().collect())
}

/// A text as `%q` writes it.
fn quoted(budget: &ScriptBudget, text: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() + 2);
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' | b'\n' => out.extend_from_slice(&[b'\\', *byte]),
            b'\r' => out.extend_from_slice(b"\\r"),
            0 => out.extend_from_slice(b"\\000"),
            byte => out.push(*byte),
        }
        if out.len() > budget.bytes_max() {
            return Err(raise::memory());
        }
    }
    out.push(b'"');
    Ok(out)
}

/// Elements that `table.concat` joins for the price of one instruction.
const JOINS: u64 = 2;

/// The most elements of a table. A table may have a greater length; then `table.concat` fails.
const ELEMENTS_MAX: u64 = 1 << 20;

/// Takes the cost of `table.concat`.
pub(crate) fn concat_check(lua: &Lua, budget: &ScriptBudget, args: MultiValue) -> Result<()> {
    let args = LuaArgs::new(lua, args);
    let Value::Table(table) = args.value(1) else {
        return Ok(());
    };
    let first = args.maybe_number(3).unwrap_or(1.0);
    let last = args.maybe_number(4).unwrap_or(table.raw_len() as f64);
    // A negative number, and what is no number, becomes 0.
    let elements = (last - first + 1.0) as u64;
    budget.charge(lua, 1 + elements.min(ELEMENTS_MAX) / JOINS)
}

/// `string.find` and `string.match`.
pub(crate) fn find(
    lua: &Lua,
    budget: &ScriptBudget,
    args: MultiValue,
    find: bool,
) -> Result<MultiValue> {
    let args = LuaArgs::new(lua, args);
    let (string, pattern) = (args.string(1)?, args.string(2)?);
    let subject = string.as_bytes();
    let pattern = pattern.as_bytes();
    let from = match args.integer_or(3, 1)? {
        from if from < 0 => from.saturating_add(subject.len() as i64),
        from => from - 1,
    };
    let from = usize::try_from(from).unwrap_or(0).min(subject.len());
    budget.charge_bytes(lua, pattern.len())?;
    if find && (args.truthy(4) || is_plain(&pattern)) {
        budget.charge_bytes(lua, subject.len() - from)?;
        return Ok(match memmem::find(&subject[from..], &pattern) {
            Some(at) => two(from + at + 1, from + at + pattern.len()),
            None => nil(),
        });
    }
    let anchored = pattern.first() == Some(&b'^');
    let mut search = PatternSearch::new(lua, budget, &subject, &pattern);
    let Some((start, end)) = search.next(from, usize::from(anchored), anchored)? else {
        return Ok(nil());
    };
    let mut results = if find {
        two(start + 1, end)
    } else {
        MultiValue::new()
    };
    if !find || search.matcher.has_captures() {
        search.push_captures(&mut results, start, end)?;
    }
    Ok(results)
}

/// The next match of `gmatch` and `gsub` at or behind a place: where it begins, where it ends (both
/// from 1), and its captures.
///
/// Arguments: the string, the pattern, the place (from 1), and whether `^` is an anchor.
pub(crate) fn step(lua: &Lua, budget: &ScriptBudget, args: MultiValue) -> Result<MultiValue> {
    let args = LuaArgs::new(lua, args);
    let (string, pattern) = (args.string(1)?, args.string(2)?);
    let subject = string.as_bytes();
    let pattern = pattern.as_bytes();
    let from = (args.integer(3)? - 1).max(0) as usize;
    if from > subject.len() {
        return Ok(nil());
    }
    let anchored = args.truthy(4) && pattern.first() == Some(&b'^');
    let mut search = PatternSearch::new(lua, budget, &subject, &pattern);
    let Some((start, end)) = search.next(from, usize::from(anchored), anchored)? else {
        return Ok(nil());
    };
    let mut results = two(start + 1, end);
    search.push_captures(&mut results, start, end)?;
    Ok(results)
}

/// Checks the arguments of `gsub` whose replacement is a function or a table, and returns the
/// string, the pattern, the most replacements, and whether the pattern has an anchor.
pub(crate) fn gsub_check(lua: &Lua, args: MultiValue) -> Result<(LuaString, LuaString, i64, bool)> {
    let args = LuaArgs::new(lua, args);
    let (string, pattern) = (args.string(1)?, args.string(2)?);
    let most = args.integer_or(4, string.as_bytes().len() as i64 + 1)?;
    let anchored = pattern.as_bytes().first() == Some(&b'^');
    Ok((string, pattern, most, anchored))
}

/// Checks the arguments of `gmatch`.
pub(crate) fn gmatch_check(lua: &Lua, args: MultiValue) -> Result<(LuaString, LuaString)> {
    let args = LuaArgs::new(lua, args);
    Ok((args.string(1)?, args.string(2)?))
}

/// `string.gsub` whose replacement is a string or a number.
pub(crate) fn gsub(lua: &Lua, budget: &ScriptBudget, args: MultiValue) -> Result<(LuaString, i64)> {
    let args = LuaArgs::new(lua, args);
    let (string, pattern) = (args.string(1)?, args.string(2)?);
    if !matches!(
        args.value(3),
        Value::String(_) | Value::Integer(_) | Value::Number(_)
    ) {
        return Err(args.wrong(3, "string/function/table expected"));
    }
    let replacement = args.string(3)?;
    let subject = string.as_bytes();
    let pattern = pattern.as_bytes();
    let replacement = replacement.as_bytes();
    let most = args.integer_or(4, subject.len() as i64 + 1)?;
    let anchored = pattern.first() == Some(&b'^');

    let mut search = PatternSearch::new(lua, budget, &subject, &pattern);
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0);
    while count < most {
        let Some((start, end)) = search.next(at, usize::from(anchored), anchored)? else {
            break;
        };
        count += 1;
        // Its captures may be empty, so what is written says nothing of the work.
        budget.charge_bytes(lua, replacement.len())?;
        out.extend_from_slice(&subject[at..start]);
        search.replace(&mut out, &replacement, start, end)?;
        at = end;
        if end == start {
            // An empty match: the next byte stays, and the search goes on behind it.
            let Some(byte) = subject.get(at) else {
                at += 1;
                break;
            };
            out.push(*byte);
            at += 1;
        }
        if out.len() > budget.bytes_max() {
            return Err(raise::memory());
        }
        if anchored {
            break;
        }
    }
    out.extend_from_slice(subject.get(at..).unwrap_or_default());
    budget.charge_bytes(lua, out.len())?;
    Ok((lua.create_string(out)?, count))
}

/// A pattern that takes its steps from the budget of the run.
struct PatternSearch<'a> {
    lua: &'a Lua,
    budget: &'a ScriptBudget,
    subject: &'a [u8],
    matcher: Matcher<'a>,
}

impl<'a> PatternSearch<'a> {
    fn new(lua: &'a Lua, budget: &'a ScriptBudget, subject: &'a [u8], pattern: &'a [u8]) -> Self {
        let steps = budget.left().saturating_mul(STEPS);
        PatternSearch {
            lua,
            budget,
            subject,
            matcher: Matcher::new(subject, pattern, steps),
        }
    }

    /// The first match that begins at `from` or behind it.
    fn next(
        &mut self,
        from: usize,
        pattern_at: usize,
        anchored: bool,
    ) -> Result<Option<(usize, usize)>> {
        let before = self.matcher.steps_left();
        let mut found = Ok(None);
        for start in from..=self.subject.len() {
            found = self
                .matcher
                .match_at(start, pattern_at)
                .map(|end| end.map(|end| (start, end)));
            if anchored || !matches!(found, Ok(None)) {
                break;
            }
        }
        let steps = before - self.matcher.steps_left();
        match found {
            Err(PatternError::Exhausted) => {
                // The budget cannot pay for one instruction more than it has.
                self.budget
                    .charge(self.lua, self.budget.left().saturating_add(1))?;
                Ok(None)
            }
            found => {
                self.budget.charge(self.lua, 1 + steps / STEPS)?;
                found.map_err(|error| self.error(error))
            }
        }
    }

    fn error(&self, error: PatternError) -> Error {
        match error {
            PatternError::Malformed(text) => raise::message(self.lua, text),
            PatternError::Exhausted => raise::Raise::Stopped.into(),
        }
    }

    fn push_captures(&self, results: &mut MultiValue, start: usize, end: usize) -> Result<()> {
        for capture in self
            .matcher
            .captures(start, end)
            .map_err(|error| self.error(error))?
        {
            results.push_back(match capture {
                Capture::Bytes(range) => {
                    Value::String(self.lua.create_string(&self.subject[range])?)
                }
                Capture::Place(place) => Value::Integer(place as i64),
            });
        }
        Ok(())
    }

    /// Appends a replacement, with its `%0` to `%9` filled in.
    fn replace(
        &self,
        out: &mut Vec<u8>,
        replacement: &[u8],
        start: usize,
        end: usize,
    ) -> Result<()> {
        let mut bytes = replacement.iter();
        while let Some(byte) = bytes.next() {
            if *byte != b'%' {
                out.push(*byte);
                continue;
            }
            match bytes.next() {
                Some(b'0') => out.extend_from_slice(&self.subject[start..end]),
                Some(digit @ b'1'..=b'9') => {
                    let index = usize::from(digit - b'1');
                    let capture = self.matcher.capture(index, start, end);
                    match capture.map_err(|error| self.error(error))? {
                        Capture::Bytes(range) => out.extend_from_slice(&self.subject[range]),
                        Capture::Place(place) => {
                            out.extend_from_slice(place.to_string().as_bytes())
                        }
                    }
                }
                // Lua reads the zero byte behind a string that ends with `%`.
                other => out.push(other.copied().unwrap_or(0)),
            }
            if out.len() > self.budget.bytes_max() {
                return Err(raise::memory());
            }
        }
        Ok(())
    }
}

/// Whether a pattern has no special byte before its first zero byte.
fn is_plain(pattern: &[u8]) -> bool {
    let end = pattern
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(pattern.len());
    !pattern[..end]
        .iter()
        .any(|byte| b"^$*+?.([%-".contains(byte))
}

fn two(first: usize, second: usize) -> MultiValue {
    [Value::Integer(first as i64), Value::Integer(second as i64)]
        .into_iter()
        .collect()
}

fn nil() -> MultiValue {
    [Value::Nil].into_iter().collect()
}

/// Changes the bytes of a string in place.
type ChangeBytes = fn(&mut [u8]);

/// Registers the functions by the names that the prelude uses.
pub(crate) fn functions(lua: &Lua, budget: &Rc<ScriptBudget>) -> Result<mlua::Table> {
    let table = lua.create_table()?;
    table.raw_set("rep", budget.function(lua, rep)?)?;
    let changes: [(&str, ChangeBytes); 3] = [
        ("lower", <[u8]>::make_ascii_lowercase),
        ("upper", <[u8]>::make_ascii_uppercase),
        ("reverse", <[u8]>::reverse),
    ];
    for (name, change) in changes {
        let function =
            move |lua: &Lua, budget: &ScriptBudget, args| changed(lua, budget, args, change);
        table.raw_set(name, budget.function(lua, function)?)?;
    }
    let find_first = |lua: &Lua, budget: &ScriptBudget, args| find(lua, budget, args, true);
    table.raw_set("find", budget.function(lua, find_first)?)?;
    let match_first = |lua: &Lua, budget: &ScriptBudget, args| find(lua, budget, args, false);
    table.raw_set("match", budget.function(lua, match_first)?)?;
    table.raw_set("step", budget.function(lua, step)?)?;
    table.raw_set("gsub", budget.function(lua, gsub)?)?;
    table.raw_set("gsub_check", lua.create_function(gsub_check)?)?;
    table.raw_set("gmatch_check", lua.create_function(gmatch_check)?)?;
    Ok(table)
}
