//! Real processes over real sockets, in one program: each of these files would be linked with all
//! of Doyen by itself, and begin only when the last test of the one before has ended.

mod alerts;
mod bad_input;
mod clocks;
mod cuts;
mod documents;
mod eviction;
mod failures;
mod forming;
mod keyspaces;
mod leaving;
mod loads;
mod memory;
mod moves;
mod native;
mod places;
mod rebalance;
mod reshaping;
mod runbooks;
mod stages;
mod threads;
mod tools;
mod upgrade;
