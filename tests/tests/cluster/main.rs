//! Real processes over real sockets, in one program. As programs of their own, these files would
//! each be linked with all of Doyen, and each would wait for the last test of the one before.

mod alerts;
mod bad_input;
mod budgets;
mod clocks;
mod console;
mod cuts;
mod dashboard;
mod dev;
mod doctor;
mod documents;
mod eviction;
mod failures;
mod forming;
mod https;
mod keyspaces;
mod leaving;
mod loads;
mod memory;
mod messages;
mod moves;
mod native;
mod one_server;
mod pods;
mod rebalance;
mod reshaping;
mod runbooks;
mod secrets;
mod split;
mod stages;
mod threads;
mod tokens;
mod tools;
mod upgrade;
mod weights;
mod zones;
