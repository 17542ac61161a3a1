//! What operators ask of a cluster.

pub mod keyspace;
