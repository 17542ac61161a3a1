//! What a person who types commands and a program that embeds nodes rely on.

mod bench;
mod chaos;
mod client;
mod command_line;
mod common;
mod demo;
mod embedded;
mod embedding;
mod exposed;
