//! Tables, placement modes and the planner, from outside.

mod access;
mod balance;
mod command;
mod common;
mod cost;
mod gone;
mod keyspaces;
mod loads;
mod operators;
mod reshape;
mod ring;
mod rules;
mod steps;
mod tables;
mod weights;
mod wire;
