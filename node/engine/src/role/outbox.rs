//! What a shard asks of the control thread.

use crate::wire::api::ShardRequest;
use doyen_gossip::agreement::{InSyncChange, InSyncRequest};
use doyen_placement::{Epoch, PartitionRef};
use std::collections::VecDeque;

/// Requests that the shell has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    requests: VecDeque<ShardRequest>,
    opened: Vec<(PartitionRef, Epoch)>,
    in_sync: Vec<InSyncRequest>,
}

impl Outbox {
    pub(crate) fn push(&mut self, request: ShardRequest) {
        self.requests.push_back(request);
    }

    /// This partition is open, in a tenure that began with this epoch.
    pub(crate) fn opened(&mut self, at: PartitionRef, since: Epoch) {
        self.opened.push((at, since));
    }

    /// Asks for a change of an in-sync set.
    pub(crate) fn ask(&mut self, partition: PartitionRef, epoch: Epoch, change: InSyncChange) {
        let request = InSyncRequest {
            partition,
            epoch,
            change,
        };
        if !self.in_sync.contains(&request) {
            self.in_sync.push(request);
        }
    }

    /// The next request. Those of one kind leave together.
    pub(crate) fn poll(&mut self) -> Option<ShardRequest> {
        if !self.opened.is_empty() {
            return Some(ShardRequest::Opened(std::mem::take(&mut self.opened)));
        }
        if !self.in_sync.is_empty() {
            return Some(ShardRequest::InSync(std::mem::take(&mut self.in_sync)));
        }
        self.requests.pop_front()
    }
}
