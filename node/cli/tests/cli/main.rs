//! Tests of the command line with the real binary.

mod bench;
mod chaos;
mod command_line;
mod common;
mod demo;
mod describe;
mod doctor;
mod exposed;
mod migrate;
mod production;
mod service;
