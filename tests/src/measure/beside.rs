//! Doyen beside Redis Cluster, Hazelcast and Olric, on one machine, in one run.
//!
//! All systems run at the same time. Their members are pinned to one core and the generator to
//! another. Their runs alternate, so that a machine whose speed drifts is fair to all. Ratios of
//! runs of the same round are compared.
//!
//! ```text
//!   suite      rounds of cases: which system, which generator, in which order
//!    ├─ systems     what is built, started and ended: doyen, redis, hazelcast, olric
//!    ├─ cases       what is measured
//!    ├─ generators  redis-benchmark, `doyen bench`, Hazelcast's own client
//!    ├─ memory      bytes a key, idle nodes, idle connections
//!    └─ report      the table, the page in docs/notes, the figures for machines
//!   check      the same ratios beside the committed ones, judged with stats
//! ```

pub mod cases;
pub mod check;
pub mod generators;
pub mod machine;
pub mod memory;
pub mod parse;
pub mod report;
pub mod suite;
pub mod systems;
