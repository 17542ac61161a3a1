//! Keys to slots, as in Redis Cluster.
