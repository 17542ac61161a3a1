//! What is said of a command in one place: the row in the file of its family.

use super::access::Access;
use super::call::{self, Arguments, CommandCall, is};
use super::error::ErrorText;
use super::many::Many;
use super::operation::Action;
use super::pops::BlockingPop;
use super::reply::Shape;
use crate::value::integer::integer;
use bytes::Bytes;
use std::ops::Range;

/// Where keys stand among a command's arguments: first, last (negative: from the end), step. If the
/// first is 0, see [`counted_keys`] and `keys_and_ids_after_word`; if the step is negative,
/// `key_and_stored`.
pub type KeyIndexes = (i64, i64, i64);
/// No argument is a key.
pub const NO_KEYS: KeyIndexes = (0, 0, 0);
/// The first argument is the only key.
pub const ONE_KEY: KeyIndexes = (1, 1, 1);
/// The first two arguments are keys.
pub(super) const TWO_KEYS: KeyIndexes = (1, 2, 1);
/// All arguments but the last are keys.
pub(super) const KEYS_BEFORE_LAST: KeyIndexes = (1, -2, 1);
/// All arguments are keys.
pub const ALL_KEYS: KeyIndexes = (1, -1, 1);
/// The argument at this place says how many keys follow, each `step` places after the one before.
#[must_use]
pub const fn counted_keys(at: i64, step: i64) -> KeyIndexes {
    (0, at, step)
}
/// The first argument is a key, and the one at this place says how many follow it.
#[must_use]
pub const fn stored_and_counted_keys(at: i64) -> KeyIndexes {
    (-1, at, 1)
}
/// The first argument is a key, and so is the one that follows the last word `STORE` or `STOREDIST`
/// among the options. These begin at this place.
pub(super) const fn key_and_stored(at: i64) -> KeyIndexes {
    (1, 1, -at)
}
/// The first half of what follows the word `STREAMS` are keys. It is looked for from the argument
/// at this place on.
pub(super) const fn keys_and_ids_after_word(at: i64) -> KeyIndexes {
    (0, at, 0)
}
/// The first argument after a subcommand is the only key.
pub(super) const KEY_OF_SUBCOMMAND: KeyIndexes = (2, 2, 1);

/// Everything that is to be said of one command. `P` is what makes a request of its arguments.
#[derive(Debug, Clone, Copy)]
pub struct Description<P> {
    /// Its name, in small letters.
    pub name: &'static str,
    /// The Redis version that it came with.
    pub since: &'static str,
    /// How many arguments it takes, its name among them; negative: at least its absolute value.
    pub arity: i64,
    /// What `COMMAND` says of it, in words.
    pub(super) flags: &'static str,
    /// Where its keys are.
    pub keys: KeyIndexes,
    /// What it does with the keys and channels that its arguments name.
    pub access: Access,
    /// Its group in the documentation.
    pub group: &'static str,
    /// Categories of access lists that its flags do not imply ([`Self::is_in`]), in words.
    pub(super) categories: &'static str,
    /// A line for people.
    pub summary: &'static str,
    /// What it asks for. Its arity was checked.
    pub parse: P,
}

/// Describes a command of this name, in small letters: the Redis version that it came with, how
/// many arguments it takes, its group, and what `COMMAND` says of it, in words. It touches no key.
#[must_use]
pub const fn command(
    name: &'static str,
    since: &'static str,
    arity: i64,
    group: &'static str,
    flags: &'static str,
) -> Description<()> {
    Description {
        name,
        since,
        arity,
        flags,
        keys: NO_KEYS,
        access: Access::Nothing,
        group,
        categories: "",
        summary: "",
        parse: (),
    }
}

impl<P> Description<P> {
    /// The same with keys, what it does with them, and categories, in words.
    #[must_use]
    pub const fn on(mut self, keys: KeyIndexes, access: Access, categories: &'static str) -> Self {
        (self.keys, self.access, self.categories) = (keys, access, categories);
        self
    }

    /// The same with a line for people.
    #[must_use]
    pub const fn about(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// The same with another way to make a request of its arguments.
    #[must_use]
    pub const fn parse<Q>(&self, parse: Q) -> Description<Q> {
        Description {
            name: self.name,
            since: self.since,
            arity: self.arity,
            flags: self.flags,
            keys: self.keys,
            access: self.access,
            group: self.group,
            categories: self.categories,
            summary: self.summary,
            parse,
        }
    }

    /// The container that it is a subcommand of.
    #[must_use]
    pub fn container(&self) -> Option<&'static str> {
        call::container_of(self.name)
    }

    /// Whether it takes `args` arguments, its name among them.
    #[must_use]
    pub fn takes(&self, args: usize) -> bool {
        let arity = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        if self.arity < 0 {
            args >= arity
        } else {
            args == arity
        }
    }

    /// Which of these arguments are keys, the command's name being the first.
    pub fn key_indexes(
        &self,
        args: &dyn Arguments,
    ) -> impl Iterator<Item = usize> + Clone + use<P> {
        places(self.keys, args)
    }

    /// What `COMMAND` says of it.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> + use<P> {
        words(self.flags)
    }

    /// Whether `COMMAND` says this of it.
    #[must_use]
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags().any(|word| word == flag)
    }

    /// Whether it may change keys.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.has_flag("write")
    }
}

/// The words of a text.
pub(super) fn words(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split_ascii_whitespace()
}

/// The places of keys among arguments, the command's name being the first.
pub(super) fn places(
    (first, last, step): KeyIndexes,
    args: &dyn Arguments,
) -> impl Iterator<Item = usize> + Clone + use<> {
    let (words, args) = (args, args.len());
    // Negative places count from the end.
    let place = |at: i64| {
        let at = usize::try_from(at).unwrap_or_else(|_| {
            let from_end = usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX);
            args.saturating_sub(from_end)
        });
        at.min(args)
    };
    let halves = (first, step) == (0, 0) && last != 0;
    let stored_by_option = match usize::try_from(step.saturating_neg()) {
        Ok(from) if from > 0 => key_after_store(words, from),
        _ => 0..0,
    };
    let step = usize::try_from(step).unwrap_or(1).max(1);
    let stored = if first < 0 { 1..2.min(args) } else { 0..0 };
    let places = if first > 0 {
        place(first)..(place(last) + 1).min(args)
    } else if last == 0 {
        0..0
    } else if halves {
        let word = (place(last)..args).find(|at| is(words.get(*at), "STREAMS"));
        let begin = word.map_or(args, |at| at + 1);
        begin..begin + (args - begin) / 2
    } else {
        let count = integer(words.get(place(last))).and_then(|n| usize::try_from(n).ok());
        let after = place(last) + 1;
        after
            ..after
                .saturating_add(count.unwrap_or(0).saturating_mul(step))
                .min(args)
    };
    stored.chain(places.step_by(step)).chain(stored_by_option)
}

/// The place of the key at which a command stores its result, if an option from this place on says
/// so. What other options name is no option.
fn key_after_store(words: &dyn Arguments, from: usize) -> Range<usize> {
    let stores = |at: &usize| is(words.get(*at), "STORE") || is(words.get(*at), "STOREDIST");
    let last = options(words, from).filter(stores).last();
    last.map_or(0..0, |at| at + 1..at + 2)
}

/// The places of the patterns of `SORT` that name keys.
pub(super) fn key_patterns(words: &dyn Arguments) -> Vec<usize> {
    let names = |at: &usize| {
        let pattern = words.get(at + 1);
        let sorts = is(words.get(*at), "BY") && pattern.contains(&b'*');
        sorts || is(words.get(*at), "GET") && pattern != b"#"
    };
    let options = options(words, 2).filter(names);
    options.map(|at| at + 1).collect()
}

/// The places of options from this one on that something follows.
fn options(words: &dyn Arguments, from: usize) -> impl Iterator<Item = usize> + '_ {
    const WITH_ONE: [&str; 4] = ["STORE", "STOREDIST", "BY", "GET"];
    let next = move |at: usize| match words.get(at) {
        word if is(word, "LIMIT") => at + 3,
        word if WITH_ONE.iter().any(|one| is(word, one)) => at + 2,
        _ => at + 1,
    };
    let is_followed = move |at: &usize| at + 1 < words.len();
    let first = Some(from).filter(is_followed);
    std::iter::successors(first, move |at| Some(next(*at)).filter(is_followed))
}

impl Description<ParseFn> {
    /// Parses arguments whose number is already checked. `unix_ms` is the wall time, only to check
    /// whether a time to live overflows.
    ///
    /// # Errors
    /// Redis's texts.
    pub fn request(&self, args: &dyn Arguments, unix_ms: u64) -> Parsed {
        (self.parse)(CommandCall {
            name: self.name,
            args,
            unix_ms,
        })
    }
}

/// What a command on data asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedRequest {
    /// An operation on one key, or on several of one partition.
    One {
        /// The key, or the first of them.
        key: Bytes,
        /// What to do.
        action: Action,
        /// How to answer.
        shape: Shape,
    },
    /// One on each of several keys.
    Many(Many),
    /// A pop that waits while its keys are empty.
    Pop(Box<BlockingPop>),
}

/// What a description makes of a command's arguments: a request, or the text of an error.
pub type Parsed = Result<ParsedRequest, ErrorText>;
/// How a description does that.
pub type ParseFn = fn(CommandCall<'_>) -> Parsed;

/// A container without a subcommand does nothing.
///
/// # Errors
/// Always.
pub fn container<R>(call: CommandCall<'_>) -> Result<R, ErrorText> {
    call.refused()
}
