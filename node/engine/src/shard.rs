//! What ties all of it: one data thread's partitions, and the shell that feeds it.

pub(crate) mod clients;
pub(crate) mod context;
pub(crate) mod disk_port;
pub(crate) mod dispatch;
pub(crate) mod execute;
pub(crate) mod inspect;
pub(crate) mod install;
pub(crate) mod machine;
pub(crate) mod paging;
pub(crate) mod publishing;
pub(crate) mod receive;
pub(crate) mod upkeep;
pub(crate) mod views;
