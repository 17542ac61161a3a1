//! A command as a caller gave it, and how its arguments are read.

use super::error::{ErrorText, NOT_AN_INTEGER, wrong_arity, wrong_subcommand};
use super::{Many, Parsed, ParsedRequest, Shape};
use crate::command::operation::{Action, Condition, Expiry};
use crate::value::integer::integer;
use bytes::Bytes;

/// The words of a command, its name first: slices of a connection's read buffer, or what a script
/// gave.
pub trait Arguments {
    /// How many, the command's name among them.
    fn len(&self) -> usize;

    /// The bytes of one argument; empty if it is not there.
    fn get(&self, at: usize) -> &[u8];

    /// One argument, to keep, without a copy; empty if it is not there.
    fn bytes(&self, at: usize) -> Bytes;

    /// Whether there are no arguments.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Arguments for &[Bytes] {
    fn len(&self) -> usize {
        <[Bytes]>::len(self)
    }

    fn get(&self, at: usize) -> &[u8] {
        <[Bytes]>::get(self, at).map_or(&[][..], |argument| &argument[..])
    }

    fn bytes(&self, at: usize) -> Bytes {
        <[Bytes]>::get(self, at).cloned().unwrap_or_default()
    }
}

/// A command that was found in a table, with arguments whose number is already checked.
#[derive(Clone, Copy)]
pub struct CommandCall<'a> {
    /// The command's name in the table.
    pub name: &'static str,
    /// Its arguments.
    pub args: &'a dyn Arguments,
    /// The wall time in milliseconds, only to check whether a time to live overflows.
    pub unix_ms: u64,
}

impl<'a> CommandCall<'a> {
    /// The container that the command is a subcommand of.
    #[must_use]
    pub fn container(self) -> Option<&'static str> {
        container_of(self.name)
    }

    /// The arguments from this place on.
    pub fn args_from(self, from: usize) -> impl Iterator<Item = &'a [u8]> + Clone {
        (from..self.args.len()).map(move |at| self.args.get(at))
    }

    /// The integer at this place among the arguments.
    ///
    /// # Errors
    /// It is none, or out of range.
    pub fn number(self, at: usize) -> Result<i64, ErrorText> {
        integer(self.args.get(at)).ok_or_else(|| NOT_AN_INTEGER.into())
    }

    /// The cursor at this place, as C, and so Redis, reads it: no text is 0, and a negative number
    /// counts from the end.
    ///
    /// # Errors
    /// It is no number.
    pub fn cursor(self, at: usize) -> Result<u64, ErrorText> {
        let text = std::str::from_utf8(self.args.get(at)).ok();
        let cursor = text.and_then(|text| match text.strip_prefix('-') {
            _ if text.is_empty() => Some(0),
            Some(rest) if !rest.starts_with('+') => rest.parse().ok().map(u64::wrapping_neg),
            _ => text.parse().ok(),
        });
        cursor.ok_or_else(|| "ERR invalid cursor".into())
    }

    /// Keys and values come in pairs after the command's name. An arity cannot express that.
    ///
    /// # Errors
    /// The last key has no value.
    pub(super) fn is_paired(self) -> Result<(), ErrorText> {
        if self.args.len() % 2 == 1 {
            Ok(())
        } else {
            Err(wrong_arity(self.name))
        }
    }

    /// The subcommand does not take these arguments.
    ///
    /// # Errors
    /// Always.
    pub fn refused<R>(self) -> Result<R, ErrorText> {
        Err(wrong_subcommand(self.args))
    }

    /// This operation on the first key, answered as it is.
    pub(super) fn one(self, action: Action) -> Parsed {
        self.shaped(action, Shape::Plain)
    }

    /// This operation on the first key, answered in this shape.
    pub(super) fn shaped(self, action: Action, shape: Shape) -> Parsed {
        self.of_key(1, action, shape)
    }

    /// This operation on the key at this place.
    pub(super) fn of_key(self, at: usize, action: Action, shape: Shape) -> Parsed {
        Ok(ParsedRequest::One {
            key: self.args.bytes(at),
            action,
            shape,
        })
    }

    /// One operation if there is one key, else one on each key.
    pub(super) fn each(self, many: Many) -> Parsed {
        if self.args.len() == 1 + many.step() {
            self.one(many.action(self.args, 1))
        } else {
            Ok(ParsedRequest::Many(many))
        }
    }

    /// A write of the value at this place.
    pub(super) fn set(
        self,
        value: usize,
        condition: Condition,
        expiry: Expiry,
        get: bool,
    ) -> Action {
        Action::Set {
            value: self.args.bytes(value),
            condition,
            expiry,
            get,
        }
    }

    /// The deadline that the argument at this place gives in this unit.
    pub(super) fn deadline(self, unit: Unit, at: usize) -> Result<Expiry, ErrorText> {
        self.deadline_before(unit, self.number(at)?, i64::MAX)
    }

    /// The deadline that this number gives in this unit. It is not later than this wall time.
    pub(super) fn deadline_before(
        self,
        unit: Unit,
        number: i64,
        latest_ms: i64,
    ) -> Result<Expiry, ErrorText> {
        let (factor, expiry, from): (_, fn(i64) -> Expiry, _) = match unit {
            Unit::Seconds => (1000, Expiry::In, self.unix_ms),
            Unit::Milliseconds => (1, Expiry::In, self.unix_ms),
            Unit::UnixSeconds => (1000, Expiry::At, 0),
            Unit::UnixMilliseconds => (1, Expiry::At, 0),
        };
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let ms = number.checked_mul(factor);
        let ms = ms.filter(|ms| *ms <= latest_ms.saturating_sub(from));
        ms.map(expiry).ok_or_else(|| self.invalid_expire_time())
    }

    /// A deadline for commands to which zero and negative numbers are errors (SET, GETEX).
    pub(super) fn positive_deadline(self, unit: Unit, at: usize) -> Result<Expiry, ErrorText> {
        if self.number(at)? <= 0 {
            return Err(self.invalid_expire_time());
        }
        self.deadline(unit, at)
    }

    /// What the options of a write say of its deadline: a unit with the place of its number, or
    /// KEEPTTL. The number is looked at last: a syntax error comes first, as in Redis.
    pub(super) fn expiry(
        self,
        given: Option<(Unit, usize)>,
        keep: bool,
    ) -> Result<Expiry, ErrorText> {
        match given {
            Some((unit, at)) => self.positive_deadline(unit, at),
            None if keep => Ok(Expiry::Keep),
            None => Ok(Expiry::None),
        }
    }

    fn invalid_expire_time(self) -> ErrorText {
        format!("ERR invalid expire time in '{}' command", self.name).into()
    }
}

/// The container to which a name with a bar belongs.
pub(super) fn container_of(name: &'static str) -> Option<&'static str> {
    name.split_once('|').map(|(container, _)| container)
}

/// Whether an argument is this word, in letters of any size.
#[must_use]
pub fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The unit in which a command gives a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl Unit {
    /// Whether this unit may be given after what was given before. A deadline may be given again in
    /// the same unit, and the last one counts. Another unit is an error.
    pub(super) fn is_alike(self, given: Option<(Self, usize)>) -> bool {
        given.is_none_or(|(before, _)| before == self)
    }

    /// The unit that this option of SET and GETEX names.
    pub(super) fn of_option(arg: &[u8]) -> Option<Self> {
        let units = [
            ("EX", Self::Seconds),
            ("PX", Self::Milliseconds),
            ("EXAT", Self::UnixSeconds),
            ("PXAT", Self::UnixMilliseconds),
        ];
        units
            .into_iter()
            .find(|(word, _)| is(arg, word))
            .map(|(_, unit)| unit)
    }
}
