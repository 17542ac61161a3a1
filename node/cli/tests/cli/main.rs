//! What a person who types commands relies on.

mod bench;
mod chaos;
mod command_line;
mod common;
mod demo;
mod exposed;
