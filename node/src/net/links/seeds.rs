//! The seeds of a client: addresses of unknown members.

use super::super::backoff::Backoff;
use super::super::endpoint::DialFailure;
use super::{BACKOFF_LEAST, BACKOFF_MOST, LinkDial};
use quinn_proto::ConnectionHandle;
use std::net::SocketAddr;
use std::time::Instant;

/// The seeds of a client. A node has none here.
#[derive(Debug, Default)]
pub(super) struct SeedDialer(Vec<Seed>);

#[derive(Debug)]
struct Seed {
    address: SocketAddr,
    dial: LinkDial,
    backoff: Backoff,
    /// Why it refused us at the last attempt.
    failure: Option<DialFailure>,
}

impl SeedDialer {
    /// Replaces the seeds. Returns the dials under way to former ones.
    pub(super) fn set(&mut self, addresses: &[SocketAddr], now: Instant) -> Vec<ConnectionHandle> {
        let (kept, void) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|s| addresses.contains(&s.address));
        self.0 = kept;
        for address in addresses {
            if !self.0.iter().any(|s| s.address == *address) {
                let backoff = Backoff::new(BACKOFF_LEAST, BACKOFF_MOST);
                self.0.push(Seed {
                    address: *address,
                    dial: LinkDial::At(now),
                    backoff,
                    failure: None,
                });
            }
        }
        void.into_iter()
            .filter_map(|s: Seed| {
                if let LinkDial::Done(handle) = s.dial {
                    Some(handle)
                } else {
                    None
                }
            })
            .collect()
    }

    /// The addresses to dial now.
    pub(super) fn due(&self, now: Instant) -> Vec<SocketAddr> {
        self.0
            .iter()
            .filter(|s| matches!(s.dial, LinkDial::At(at) if at <= now))
            .map(|s| s.address)
            .collect()
    }

    /// When the next address is to be dialled.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0
            .iter()
            .filter_map(|s| {
                if let LinkDial::At(at) = s.dial {
                    Some(at)
                } else {
                    None
                }
            })
            .min()
    }

    /// The address is being dialled.
    pub(super) fn dialled(&mut self, address: SocketAddr, handle: ConnectionHandle) {
        if let Some(seed) = self.get(address) {
            seed.dial = LinkDial::Done(handle);
        }
    }

    /// The seed refused us. It is tried again after a pause.
    pub(super) fn failed(&mut self, address: SocketAddr, failure: DialFailure, now: Instant) {
        if let Some(seed) = self.get(address) {
            seed.dial = LinkDial::At(now + seed.backoff.next_wait());
            seed.failure = Some(failure);
        }
    }

    /// The seed accepted us. From now on it is dialled as a member, and as a seed again once no
    /// member is connected.
    pub(super) fn met(&mut self, address: SocketAddr, now: Instant) {
        if let Some(seed) = self.get(address) {
            // Wait, and longer each time: a seed may accept us and be lost again, over and over.
            seed.dial = LinkDial::At(now + seed.backoff.next_wait());
            seed.failure = None;
        }
    }

    /// The seeds that refused us, and why.
    pub(super) fn failures(&self) -> Vec<(SocketAddr, DialFailure)> {
        self.0
            .iter()
            .filter_map(|s| Some((s.address, s.failure.clone()?)))
            .collect()
    }

    fn get(&mut self, address: SocketAddr) -> Option<&mut Seed> {
        self.0.iter_mut().find(|s| s.address == address)
    }
}
