//! Seeds that refuse this node for a reason that another attempt does not change.

use crate::clock;
use crate::net::endpoint::DialFailure;
use doyen_gossip::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// For this long, refusals of a node that was never a member are not logged one by one.
const REFUSED_QUIETLY: Duration = Duration::from_secs(2);

/// A refusal that was not repeated for this long does not count any more. Members that do not
/// answer are dialled about once a second.
const REFUSED_LATELY: Duration = Duration::from_secs(10);
/// The most addresses whose refusals are remembered.
const ADDRESSES_MAX: usize = 1024;

pub(super) struct RefusedBy {
    seeds: BTreeSet<SocketAddr>,
    /// What processes at any addresses said last, and when.
    said: BTreeMap<SocketAddr, (Time, String)>,
    was_member: bool,
    started: Time,
}

impl RefusedBy {
    pub(super) fn new() -> Self {
        Self {
            seeds: BTreeSet::new(),
            said: BTreeMap::new(),
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
        self.said.remove(&address);
    }

    /// What most of the other members say, if they refuse this node: to restore the network would
    /// not help then. `own`: this node's address.
    pub(super) fn by_most(
        &self,
        members: impl Iterator<Item = SocketAddr>,
        own: SocketAddr,
    ) -> Option<String> {
        let others: BTreeSet<SocketAddr> = members.filter(|address| *address != own).collect();
        let now = clock::now();
        let said = |address: &SocketAddr| {
            let (at, why) = self.said.get(address)?;
            (now.since(*at) <= REFUSED_LATELY).then_some((*address, why))
        };
        let refusals: Vec<_> = others.iter().filter_map(said).collect();
        let (address, why) = refusals.first()?;
        (refusals.len() * 2 > others.len()).then(|| {
            format!(
                "{} of {} other members refuse this node, so that it takes no part in the cluster. \
                 {address}: {why}",
                refusals.len(),
                others.len()
            )
        })
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
        if self.said.len() < ADDRESSES_MAX || self.said.contains_key(&address) {
            self.said
                .insert(address, (clock::now(), failure.to_string()));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    /// Regression: a node whose directory was a copy was told that it was cut off, and to do
    /// nothing.
    #[test]
    fn a_node_that_most_others_refuse_says_why() {
        let mut refused = RefusedBy::new();
        let (members, own) = (|| [1, 2, 3].map(at).into_iter(), at(3));
        let why = DialFailure::Refused("its directory is a copy".into());
        let silent = DialFailure::Unreachable("no answer".into());
        refused.refuse(at(1), &why, &[], own);
        refused.refuse(at(2), &silent, &[], own);
        assert_eq!(refused.by_most(members(), own), None);
        refused.refuse(at(2), &why, &[], own);
        let said = refused.by_most(members(), own).unwrap();
        assert!(
            said.contains("2 of 2 other members refuse") && said.contains("is a copy"),
            "{said}"
        );
        refused.forget(at(1));
        assert_eq!(refused.by_most(members(), own), None);
    }
}
