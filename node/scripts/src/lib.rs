//! Runs the Lua scripts of Redis clients (`EVAL`, `EVALSHA`, `SCRIPT`).
//!
//! An [`Interpreter`] is a Lua 5.1 state with the libraries that Redis gives to scripts: `redis`,
//! `cjson`, `cmsgpack`, `struct`, `bit`, and the safe parts of Lua's own. It does no I/O and knows
//! no keyspace: the caller gives it [`Commands`].
//!
//! ```
//! use bytes::Bytes;
//! use doyen_scripts::{Commands, Interpreter, Script, ScriptLimits, ScriptProtocol, ScriptReply};
//!
//! struct Echo;
//! impl Commands for Echo {
//!     fn call(&mut self, args: Vec<Bytes>, _: ScriptProtocol) -> ScriptReply {
//!         ScriptReply::Bulk(args[0].clone())
//!     }
//!
//!     fn restart(&mut self) {}
//!
//!     fn may_call(&mut self, _: &[Bytes]) -> Option<bool> {
//!         Some(true)
//!     }
//! }
//!
//! let mut interpreter = Interpreter::new();
//! let script = Script::parse("return redis.call(KEYS[1]) .. ARGV[1]").unwrap();
//! let keys = [Bytes::from("a")];
//! let args = [Bytes::from("b")];
//! let reply = interpreter.run(&script, &keys, &args, &mut Echo, &ScriptLimits::default());
//! assert_eq!(reply, Ok(ScriptReply::bulk("ab")));
//! ```
//!
//! # What a script cannot do
//! - **Leave something behind.** Globals and libraries are read-only, and what a run can change
//!   (a seed of `math.random`, the settings of `cjson`, the RESP version) is reset before the next
//!   one. If a run was stopped, or wrote into a read-only table by `table.insert`, the next run
//!   gets a new Lua state.
//! - **Go on for ever.** Each run has a budget of instructions. A count hook takes from it, in
//!   coroutines as well, and so do the functions of this crate that do work in proportion to their
//!   arguments. If it is used up, every further instruction fails, so that no `pcall` helps.
//! - **Use unbounded memory.** Lua's allocator has a limit, and what this crate builds outside of
//!   Lua (JSON, arguments of commands, replies) has the same one.
//! - **Overflow the stack.** Lua bounds its own calls. What could recurse in C is replaced by code
//!   of this crate: patterns, JSON, MessagePack. Bytecode is not loaded. The deepest calls take up
//!   to 2 MB of a thread's stack.
//!
//! # What takes long
//! Single instructions of Lua take time by the strings and tables that they touch: `a < b` reads
//! all of both strings, and a table that grows is copied. If the caller gave a clock to the
//! interpreter, [`ScriptLimits::time`] bounds that:
//! - A run begins at the first of three *levels*. There it may take 1 MB of memory, in which no
//!   garbage is collected, and the clock is read every 32 instructions.
//! - If it takes more, it begins again at the next level ([`Commands::restart`]), with 4 MB and a
//!   look every 8 instructions, and then with all of its memory and a look every 2. The script is
//!   remembered, and begins there later.
//! - What this crate does for many elements at once reads the clock now and then, too.
//! - A compilation may take 20 ms. The clock is read every 256 bytes of the text.
//!
//! A run with 16 MB of memory therefore ends at most 20 ms late, or one command late.
//!
//! # How the parts fit together
//! - `interpreter`: the cache of compiled scripts, and one run from its keys to its reply.
//! - `sandbox`: builds a Lua state: globals, read-only libraries, `prelude.lua`.
//! - `budget`: what a run may still use, and how it is stopped.
//! - `raise`: how Rust functions raise errors that look like those of Lua's C functions.
//! - `convert`: between Lua's values and [`ScriptReply`].
//! - `api`: the functions of `redis`.
//! - `source`: compiles text.
//! - `pattern`, `strings`, `sorting`: replacements for parts of Lua's libraries that C would run
//!   without any bound.
//! - `json`, `msgpack`, `structs`, `bits`, `number`: Redis's libraries.

mod reply;
mod script;

mod api;
mod bits;
mod budget;
mod convert;
mod interpreter;
mod json;
mod msgpack;
mod number;
mod pattern;
mod raise;
mod resp;
mod sandbox;
mod sorting;
mod source;
mod strings;
mod structs;

pub mod errors;

pub use interpreter::{Interpreter, ScriptFailure, ScriptLimits, Used};
pub use reply::{Commands, ScriptProtocol, ScriptReply};
pub use script::{BODY_BYTES_MAX, Flags, Script, sha1_hex};
