//! What a program that embeds nodes, or is a client of them, relies on.

mod client;
mod embedded;
mod embedding;
