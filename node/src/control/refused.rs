//! Seeds that refuse this node for a reason that another attempt does not change.

use crate::clock;
use crate::net::endpoint::DialFailure;
use doyen_gossip::Time;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// For this long, refusals of a node that was never a member are not logged one by one.
const REFUSED_QUIETLY: Duration = Duration::from_secs(2);

pub(super) struct RefusedBy {
    seeds: BTreeSet<SocketAddr>,
    was_member: bool,
    started: Time,
}

impl RefusedBy {
    pub(super) fn new() -> Self {
        Self {
            seeds: BTreeSet::new(),
            was_member: false,
            started: clock::now(),
        }
    }

    /// This node is a member.
    pub(super) fn is_member(&mut self) {
        self.was_member = true;
        self.seeds.clear();
    }

    /// The process at this address does not refuse this node.
    pub(super) fn forget(&mut self, address: SocketAddr) {
        self.seeds.remove(&address);
    }

    /// The process at this address refuses this node. Returns whether all seeds do, and this node
    /// was never a member. `own`: this node's address.
    pub(super) fn refuse(
        &mut self,
        address: SocketAddr,
        failure: &DialFailure,
        seeds: &[SocketAddr],
        own: SocketAddr,
    ) -> bool {
        if !failure.is_lasting() {
            self.forget(address);
            return false;
        }
        if seeds.contains(&address) {
            self.seeds.insert(address);
        }
        let mut others = seeds.iter().filter(|seed| **seed != own).peekable();
        let refused_by_all = others.peek().is_some() && others.all(|s| self.seeds.contains(s));
        refused_by_all && !self.was_member
    }

    /// Whether a refusal is not worth a line: if all seeds refuse a new node, it says so once, when
    /// it ends. If it continues, the seeds soon refuse it again.
    pub(super) fn is_quiet(&self) -> bool {
        !self.was_member && clock::now().since(self.started) < REFUSED_QUIETLY
    }
}
