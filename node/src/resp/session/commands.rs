//! What the commands of a client do, a file for each family.

use super::*;

pub(crate) mod clients;
pub(super) mod scripts;
mod server;
pub(in crate::resp) mod subscriptions;
pub(super) mod transactions;
pub(super) mod users;
