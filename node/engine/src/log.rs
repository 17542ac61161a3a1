//! In which order a partition's changes happened: the log, what it keeps for retries, and the
//! cursors that read it.

pub(crate) mod bookmark;
pub(crate) mod changes;
pub(crate) mod dedup;
pub(crate) mod disk_tail;
pub(crate) mod partition_log;
pub(crate) mod waiting;
