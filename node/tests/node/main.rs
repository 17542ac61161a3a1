//! What a program that embeds nodes, or is a client of them, relies on.

#[cfg(feature = "http")]
mod administration;
mod caching;
mod cancelling;
mod changes;
mod client;
mod collections;
mod cycles;
mod embedded;
mod embedding;
mod life;
mod limits;
mod local;
mod locks;
mod moka;
mod near;
mod operations;
mod schemas;
mod telemetry;
mod transactions;
