//! What a cluster looks like to people and programs: the reports that the library gives, that HTTP
//! answers as JSON, and that the command line prints. Each is made from a table and what is known
//! of its members; none changes anything.

pub mod events;
pub mod loads;
pub mod moves;
pub mod rebalance;
pub mod status;
