//! Reports about a cluster, for people and programs. The library gives them, HTTP answers them as
//! JSON, and the command line prints them. Each is made from a table and what is known of its
//! members; none changes anything.

#[cfg(feature = "http")]
pub(crate) mod alerts;
#[cfg(feature = "http")]
pub mod examination;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod loads;
pub mod maps;
pub mod moves;
pub mod rebalance;
#[cfg(feature = "http")]
pub mod split;
pub mod status;
pub mod table;
pub mod tokens;
pub mod trust;
#[cfg(feature = "resp")]
pub mod users;
pub mod weights;
