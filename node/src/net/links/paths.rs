//! What a data thread has measured of the ways to its peers.

use super::Links;
use crate::net::path::PathReading;
use doyen_placement::MemberId;
use std::time::Instant;

/// What a data thread knows of the ways to the threads of other members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ThreadPaths {
    /// Whether the system sends several datagrams at a time (GSO).
    pub(crate) segments: bool,
    /// For each thread of another member: what its connection has measured, or why there is none.
    pub(crate) peers: Vec<(MemberId, Result<PathReading, String>)>,
}

impl Links {
    /// What is known of the ways to the peers. Clients are left out.
    pub(crate) fn paths(&mut self, now: Instant) -> ThreadPaths {
        let mut peers = Vec::new();
        for (&id, peer) in &self.peers {
            let handle = self.up.get(&id).map(|link| link.handle);
            let measured = handle.and_then(|handle| {
                let (deaf, relayed) = self.driver.strays(handle, now);
                let connection = self.driver.get(handle)?;
                Some(PathReading {
                    deaf,
                    relayed,
                    ..PathReading::of(&connection.stats())
                })
            });
            let why = || match &peer.failure {
                Some(failure) => failure.to_string(),
                None if id < self.me => "it has not dialled this node".into(),
                None => "it does not answer".into(),
            };
            peers.push((id, measured.ok_or_else(why)));
        }
        ThreadPaths {
            segments: self.driver.sends_segments(),
            peers,
        }
    }
}
