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
//! of it. Its `parse` makes an [`Action`](operation::Action) of its arguments. Several commands
//! share one action, as `INCR` and `DECRBY` do. What an action may do and cost is its
//! [`Footprint`](operation::Footprint). If a name has a bar, the row is that of a subcommand:
//! `object|freq` is `OBJECT FREQ`.
//!
//! Commands on connections, the server, the cluster and whole keyspaces are rows of the same kind.
//! They are in the front end that knows of those (`doyen::resp::command`).
//!
//! ```
//! use bytes::Bytes;
//! use doyen_engine::command::{Arguments, COMMANDS, CommandReply, ErrorText, ParsedRequest};
//! use doyen_engine::op::{Action, Outcome};
//!
//! fn ask(words: &[Bytes]) -> Result<ParsedRequest, ErrorText> {
//!     let args: &dyn Arguments = &words;
//!     COMMANDS.find(args)?.request(args, 1_800_000_000_000)
//! }
//!
//! let asked = ask(&["setnx".into(), "k".into(), "v".into()]);
//! let Ok(ParsedRequest::One { key, action, shape }) = asked else {
//!     panic!("it is about one key");
//! };
//! assert_eq!(key, "k");
//! assert!(matches!(action, Action::Set { .. }));
//! assert_eq!(shape.reply(Outcome::Ok), CommandReply::Int(1));
//!
//! let why = ask(&["get".into()]).expect_err("a key is missing");
//! assert_eq!(why.0, "ERR wrong number of arguments for 'get' command");
//! ```

mod access;
pub(crate) mod action;
mod apart;
mod bit_operations;
mod bitfields;
mod blocking;
#[doc(hidden)]
pub mod browse;
#[doc(hidden)]
pub mod cached;
mod call;
mod collections;
mod combine;
mod conditional;
mod description;
mod dump;
mod dump_streams;
mod element_move;
#[doc(hidden)]
pub mod elements;
mod error;
#[doc(hidden)]
pub mod fenced;
mod gather;
mod geo;
mod geo_commands;
mod geohash;
#[doc(hidden)]
pub mod glob;
#[doc(hidden)]
pub mod grants;
pub(crate) mod hashes;
mod hyperloglogs;
#[doc(hidden)]
pub mod idle;
mod increase;
mod keys;
mod lcs;
mod lists;
mod many;
mod member_move;
#[doc(hidden)]
pub mod operation;
#[doc(hidden)]
pub mod pattern;
mod popping;
mod pops;
pub(crate) mod procedure;
pub(crate) mod publication;
#[doc(hidden)]
pub mod queue;
mod ranges;
mod registry;
mod reply;
mod reply_tree;
pub(crate) mod rows;
pub(crate) mod scan;
#[cfg(feature = "scripts")]
mod script_scans;
pub(crate) mod scripts;
mod sets;
mod several;
#[doc(hidden)]
pub mod sizes;
mod sort;
mod sorted_joints;
mod sorted_ranges;
mod sorted_sets;
mod stream_claims;
mod stream_groups;
mod stream_reads;
mod streams;
mod strings;
#[doc(hidden)]
pub mod sync;
mod table;
mod together;
pub(crate) mod transfer;

pub use crate::value::items::{Fields, Part};
pub use access::{Access, CATEGORIES, Rights};
pub use apart::Apart;
pub use call::{Arguments, CommandCall, is};
pub use description::{
    ALL_KEYS, Description, KeyIndexes, NO_KEYS, ONE_KEY, ParseFn, Parsed, ParsedRequest, command,
    container, counted_keys, stored_and_counted_keys,
};
pub use element_move::ElementMove;
pub use error::{ErrorText, NOT_A_FLOAT, NOT_AN_INTEGER, SYNTAX, unknown_subcommand, wrong_arity};
pub use gather::{GatherProgress, GatherResult, Gathering};
pub use many::{Join, Many};
pub use member_move::{MemberFound, MemberMove};
pub use pops::BlockingPop;
pub use registry::{COMMANDS, FAMILIES, count};
pub use reply::{CommandReply, Shape, Words};
pub use table::{CommandTable, Sorting, Spec, place_of};
pub use transfer::{ContentRead, Transfer};

#[cfg(test)]
mod tests;
