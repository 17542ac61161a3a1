//! Replies that are not whole yet: they wait for outcomes, other data threads or other members.

use super::*;

pub(super) mod gather;
pub(super) mod pages;
pub(super) mod parts;
pub(super) mod threads;
pub(super) mod transfer;
