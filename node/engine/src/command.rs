//! Commands on data, each described once: for RESP, for `COMMAND` and its documentation, and for
//! scripts.
//!
//! ```text
//!   read buffer ─┐              Table        parse
//!                ├─> Arguments ───────> Call ─────> Request
//!   script ──────┘                                     │
//!                   ┌──────────────────────────────────┴──┐
//!                  One: an Action             Many: an Action for each key
//!                   │ Shape of its Outcome                │ Join of their Outcomes
//!                   └──────────────────> Reply <──────────┘
//! ```
//!
//! A command is a row ([`Description`]) in the file of its family, and nothing else says anything
//! of it. Its `parse` makes an [`Action`] of its arguments. Several commands share one action, as
//! `INCR` and `DECRBY` do. What an action may do and cost is its
//! [`Footprint`](crate::command::operation::Footprint). If a name has a bar, the row is that of a
//! subcommand: `object|freq` is `OBJECT FREQ`.
//!
//! Commands on connections, the server, the cluster and whole keyspaces are rows of the same kind.
//! They are in the front door that knows of those (`doyen::resp::command`).
//!
//! ```
//! use bytes::Bytes;
//! use doyen_engine::command::{Arguments, COMMANDS, ErrorText, Reply, Request};
//! use doyen_engine::op::{Action, Outcome};
//!
//! fn ask(words: &[Bytes]) -> Result<Request, ErrorText> {
//!     let args: &dyn Arguments = &words;
//!     COMMANDS.find(args)?.request(args, 1_800_000_000_000)
//! }
//!
//! let Ok(Request::One { key, action, shape }) = ask(&["setnx".into(), "k".into(), "v".into()])
//! else {
//!     panic!("it is about one key");
//! };
//! assert_eq!(key, "k");
//! assert!(matches!(action, Action::Set { .. }));
//! assert_eq!(shape.reply(Outcome::Ok), Reply::Int(1));
//!
//! let why = ask(&["get".into()]).expect_err("a key is missing");
//! assert_eq!(why.0, "ERR wrong number of arguments for 'get' command");
//! ```

mod access;
pub(crate) mod action;
mod bitfields;
#[doc(hidden)]
pub mod cached;
mod call;
mod conditional;
mod error;
#[doc(hidden)]
pub mod fenced;
#[doc(hidden)]
pub mod glob;
#[doc(hidden)]
pub mod grants;
pub(crate) mod hashes;
#[doc(hidden)]
pub mod idle;
mod increase;
mod keys;
mod many;
#[doc(hidden)]
pub mod operation;
#[doc(hidden)]
pub mod pattern;
pub(crate) mod procedure;
pub(crate) mod publication;
mod ranges;
mod reply;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod scripts;
mod several;
#[doc(hidden)]
pub mod sizes;
mod strings;
#[doc(hidden)]
pub mod sync;
mod table;
pub(crate) mod transfer;

use crate::command::operation::Action;
use crate::command::procedure::{Joint, Procedure};
use crate::value::integer::integer;
pub use crate::value::types::hash::{Fields, Part};
pub use access::{Access, CATEGORIES, Rights};
use bytes::Bytes;
pub use call::{Arguments, Call, is};
pub use error::{ErrorText, NOT_A_FLOAT, NOT_AN_INTEGER, SYNTAX, unknown_subcommand, wrong_arity};
pub use many::{Join, Many};
pub use reply::{Reply, Shape};
pub(crate) use several::transfer_of;
pub use table::{Sorting, Spec, Table, place_of};
pub use transfer::{Read, Transfer};

/// Where keys stand among a command's arguments: first, last (negative: from the end), step. If the
/// first is 0, see [`counted_keys`].
pub type Keys = (i64, i64, i64);
/// No argument is a key.
pub const NO_KEYS: Keys = (0, 0, 0);
/// The first argument is the only key.
pub const ONE_KEY: Keys = (1, 1, 1);
/// All arguments are keys.
pub const ALL_KEYS: Keys = (1, -1, 1);
/// The argument at this place says how many keys follow, each so many places after the one before.
#[must_use]
pub const fn counted_keys(at: i64, step: i64) -> Keys {
    (0, at, step)
}
/// The first argument after a subcommand is the only key.
const KEY_OF_SUBCOMMAND: Keys = (2, 2, 1);

/// Everything that is to be said of one command. `P` is what makes a request of its arguments.
#[derive(Debug, Clone, Copy)]
pub struct Description<P> {
    /// Its name, in small letters.
    pub name: &'static str,
    /// The Redis version that it came with.
    pub since: &'static str,
    /// How many arguments it takes, its name among them; negative: at least so many.
    pub arity: i64,
    /// What `COMMAND` says of it.
    pub flags: &'static [&'static str],
    /// Where its keys are.
    pub keys: Keys,
    /// What it does with the keys and channels that its arguments name.
    pub access: Access,
    /// Its group in the documentation.
    pub group: &'static str,
    /// Categories of access lists that its flags do not imply ([`Self::is_in`]).
    pub categories: &'static [&'static str],
    /// A line for people.
    pub summary: &'static str,
    /// What it asks for. Its arity was checked.
    pub parse: P,
}

impl<P> Description<P> {
    /// The same with another way to make a request of its arguments.
    #[must_use]
    pub const fn with_parse<Q>(&self, parse: Q) -> Description<Q> {
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

    /// Whether it takes so many arguments, its name among them.
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
    pub fn key_places(&self, args: &dyn Arguments) -> impl Iterator<Item = usize> + Clone + use<P> {
        places(self.keys, args)
    }

    /// Whether `COMMAND` says this of it.
    #[must_use]
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Whether it may change keys.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.has_flag("write")
    }
}

/// The places of keys among arguments, the command's name being the first.
fn places(
    (first, last, step): Keys,
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
    let step = usize::try_from(step).unwrap_or(1).max(1);
    let places = if first != 0 {
        place(first)..(place(last) + 1).min(args)
    } else if last == 0 {
        0..0
    } else {
        let count = integer(words.get(place(last))).and_then(|n| usize::try_from(n).ok());
        let after = place(last) + 1;
        after
            ..after
                .saturating_add(count.unwrap_or(0).saturating_mul(step))
                .min(args)
    };
    places.step_by(step)
}

impl Description<Parse> {
    /// The request of these arguments, of which the command takes so many. `unix_ms` is the wall
    /// time, only to check whether a time to live overflows.
    ///
    /// # Errors
    /// Redis's texts.
    pub fn request(&self, args: &dyn Arguments, unix_ms: u64) -> Parsed {
        (self.parse)(Call {
            name: self.name,
            args,
            unix_ms,
        })
    }
}

/// What a command on data asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
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
}

/// What a description makes of a command's arguments: a request, or the text of an error.
pub type Parsed = Result<Request, ErrorText>;
/// How a description does that.
pub type Parse = fn(Call<'_>) -> Parsed;

/// A container without a subcommand does nothing.
///
/// # Errors
/// Always.
pub fn container<R>(call: Call<'_>) -> Result<R, ErrorText> {
    call.refused()
}

/// The commands on data, a slice for each family. Tables that have more commands begin with them.
pub const FAMILIES: &[&[Description<Parse>]] = &[
    bitfields::ROWS,
    conditional::ROWS,
    increase::ROWS,
    hashes::ROWS,
    keys::ROWS,
    ranges::ROWS,
    several::ROWS,
    strings::ROWS,
];

/// The procedures that commands and the library call, a slice for each family.
pub(crate) static PROCEDURES: &[&[&Procedure]] = &[
    ranges::PROCEDURES,
    hashes::PROCEDURES,
    bitfields::PROCEDURES,
    conditional::PROCEDURES,
    increase::PROCEDURES,
    crate::command::cached::PROCEDURES,
    crate::command::fenced::PROCEDURES,
    sync::PROCEDURES,
];

/// The operations on several keys that commands call.
pub(crate) static JOINTS: &[&[&Joint]] = &[several::JOINTS, transfer::JOINTS];

/// The commands on data.
pub static COMMANDS: Table<Parse> = Table::of(&SORTED);
static SORTED: [Spec<Parse>; count(FAMILIES)] = sorted();

const fn sorted() -> [Spec<Parse>; count(FAMILIES)] {
    let mut sorting = Sorting::of(FAMILIES[0][0]);
    let mut family = 0;
    while family < FAMILIES.len() {
        let mut row = 0;
        while row < FAMILIES[family].len() {
            sorting.add(FAMILIES[family][row]);
            row += 1;
        }
        family += 1;
    }
    sorting.finish()
}

/// How many commands these families have.
#[must_use]
pub const fn count<P>(families: &[&[Description<P>]]) -> usize {
    let (mut count, mut family) = (0, 0);
    while family < families.len() {
        count += families[family].len();
        family += 1;
    }
    count
}

#[cfg(test)]
mod tests;
