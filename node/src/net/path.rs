//! What the connections to a peer have measured of the way there.

use quinn::ConnectionStats;
use serde::{Deserialize, Serialize};

/// What the open connections to one peer have measured, of both ways together. Of several, the
/// worst counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathReading {
    /// How many connections are open.
    pub links: u64,
    /// The smoothed round trip, in microseconds.
    pub rtt_us: u64,
    /// The largest datagram that arrives, in bytes without the heads of IP and UDP.
    pub mtu: u16,
    /// Packets that were sent since the connections began.
    pub sent: u64,
    /// Those of them that were lost.
    pub lost: u64,
    /// How many larger datagrams did not arrive when they were tried.
    pub probes_lost: u64,
    /// How often datagrams of a size that had arrived did not arrive any more.
    pub black_holes: u64,
    /// A third member carries the datagrams to this peer.
    pub relayed: bool,
    /// Nothing comes from this peer directly.
    pub deaf: bool,
}

impl PathReading {
    /// Of one connection.
    #[must_use]
    pub fn of(stats: &ConnectionStats) -> Self {
        let path = &stats.path;
        Self {
            links: 1,
            rtt_us: u64::try_from(path.rtt.as_micros()).unwrap_or(u64::MAX),
            mtu: path.current_mtu,
            sent: path.sent_packets,
            lost: path.lost_packets,
            probes_lost: path.lost_plpmtud_probes,
            black_holes: path.black_holes_detected,
            relayed: false,
            deaf: false,
        }
    }

    /// Adds what other connections to the same peer have measured.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let mtu = match (self.links, other.links) {
            (0, _) => other.mtu,
            (_, 0) => self.mtu,
            _ => self.mtu.min(other.mtu),
        };
        Self {
            links: self.links + other.links,
            rtt_us: self.rtt_us.max(other.rtt_us),
            mtu,
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
            probes_lost: self.probes_lost + other.probes_lost,
            black_holes: self.black_holes + other.black_holes,
            relayed: self.relayed || other.relayed,
            deaf: self.deaf || other.deaf,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_connections_the_worst_counts() {
        let one = PathReading {
            links: 1,
            rtt_us: 300,
            mtu: 6_500,
            sent: 100,
            lost: 1,
            ..PathReading::default()
        };
        let other = PathReading {
            rtt_us: 900,
            mtu: 1_200,
            deaf: true,
            ..one
        };
        let both = PathReading::default().with(one).with(other);
        assert_eq!((both.links, both.rtt_us, both.mtu), (2, 900, 1_200));
        assert_eq!((both.sent, both.lost, both.deaf), (200, 2, true));
    }
}
