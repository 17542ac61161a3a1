//! Other clusters of the same secret that a member meets.
//!
//! Two clusters that hold data never merge: people must choose. A node that has met another cluster
//! says so, is not ready, and asks the other cluster's member again and again. That ends in two
//! cases: nothing was heard of the other cluster for [`QUIET`], or the process at that member's
//! address says that it belongs to this cluster. Only processes that hold the secret can say
//! anything at all.

use super::api::OtherCluster;
use super::context::Context;
use super::event::Event;
use crate::time::Time;
use doyen_placement::ClusterId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A cluster that was not heard for this long is gone. Its members are asked each second, and some
/// of the answers may be lost or late.
const QUIET: Duration = Duration::from_secs(30);
/// The number of clusters that are remembered. More of them change nothing.
const OTHERS_MAX: usize = 16;
/// The time between two questions to processes that speak for another cluster.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The other clusters that were met lately.
#[derive(Debug, Default)]
pub(super) struct OtherClusters {
    met: BTreeMap<ClusterId, Met>,
    asked_at: Option<Time>,
}

#[derive(Debug)]
struct Met {
    name: String,
    address: SocketAddr,
    at: Time,
}

impl OtherClusters {
    /// A member of another cluster says that its cluster holds data.
    pub(super) fn meet(
        &mut self,
        cx: &mut Context,
        ours: ClusterId,
        theirs: ClusterId,
        (name, address): (String, SocketAddr),
    ) {
        let known = self.met.contains_key(&theirs);
        if !known && self.met.len() >= OTHERS_MAX {
            return cx.ignore();
        }
        let met = Met {
            name: name.clone(),
            address,
            at: cx.now,
        };
        self.met.insert(theirs, met);
        if !known {
            cx.event(Event::OtherCluster {
                name,
                address: address.to_string(),
                cluster: theirs.to_string(),
                own: ours.to_string(),
            });
        }
    }

    /// Forgets the clusters that were not heard for long.
    pub(super) fn turn(&mut self, cx: &mut Context) {
        let now = cx.now;
        let gone = |met: &Met| now.since(met.at) >= QUIET;
        if self.met.values().any(gone) {
            let cluster =
                |(cluster, met): (&ClusterId, &Met)| gone(met).then(|| cluster.to_string());
            let events =
                self.met
                    .iter()
                    .filter_map(cluster)
                    .map(|cluster| Event::OtherClusterGone {
                        cluster,
                        joined: None,
                    });
            events
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|event| cx.event(event));
            self.met.retain(|_, met| !gone(met));
        }
    }

    /// The process at this address says that it is a member of this cluster, so the process that
    /// was met there has ended. If that other cluster has more members, they speak for themselves.
    pub(super) fn joined(&mut self, cx: &mut Context, name: &str, address: SocketAddr) {
        let ended: Vec<ClusterId> = self
            .met
            .iter()
            .filter(|(_, met)| met.address == address)
            .map(|(cluster, _)| *cluster)
            .collect();
        for cluster in ended {
            self.met.remove(&cluster);
            cx.event(Event::OtherClusterGone {
                cluster: cluster.to_string(),
                joined: Some(name.to_owned()),
            });
        }
    }

    /// The addresses at which other clusters' members are asked whether they are still there.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.met.values().map(|met| met.address).collect()
    }

    /// The clusters that are not known to be gone.
    pub(super) fn met(&self, now: Time) -> Vec<OtherCluster> {
        let met = self.met.iter().filter(|(_, met)| now.since(met.at) < QUIET);
        met.map(|(cluster, met)| OtherCluster {
            cluster: *cluster,
            name: met.name.clone(),
            address: met.address,
        })
        .collect()
    }

    /// Whether to ask a process that speaks for another cluster for its status.
    pub(super) fn may_ask(&mut self, now: Time) -> bool {
        let may = self.asked_at.is_none_or(|at| now.since(at) >= ASK_AGAIN);
        if may {
            self.asked_at = Some(now);
        }
        may
    }
}
