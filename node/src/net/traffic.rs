//! What the control network carries, counted for metrics.

use super::envelope::Envelope;
use doyen_gossip::wire::Message;
use std::sync::atomic::{AtomicU64, Ordering};

/// The purpose of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficKind {
    /// Pings and pongs.
    Heartbeat,
    /// Proposals, acks, commits, pulls.
    Table,
    /// Chitchat.
    Gossip,
    /// Joins, votes, requests, reports.
    Other,
}

impl TrafficKind {
    /// Every kind, with its name in metrics.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Heartbeat, "heartbeat"),
        (Self::Table, "table"),
        (Self::Gossip, "gossip"),
        (Self::Other, "other"),
    ];

    fn of(envelope: &Envelope) -> Self {
        match envelope {
            Envelope::Gossip(_) => Self::Gossip,
            Envelope::Agreement(Message::Ping(_) | Message::Pong(_)) => Self::Heartbeat,
            Envelope::Agreement(
                Message::Propose(_)
                | Message::Ack(_)
                | Message::Refuse { .. }
                | Message::Commit(_)
                | Message::Pull { .. }
                | Message::Committed(_),
            ) => Self::Table,
            Envelope::Agreement(_)
            | Envelope::StatusRequest { .. }
            | Envelope::StatusReply { .. }
            | Envelope::LoadsRequest { .. }
            | Envelope::LoadsReply { .. }
            | Envelope::HistoryRequest { .. }
            | Envelope::HistoryReply { .. }
            | Envelope::ClientsRequest { .. }
            | Envelope::ClientsReply { .. } => Self::Other,
        }
    }
}

/// Messages and their bytes. Written by the control thread, read for metrics by others.
#[derive(Debug, Default)]
pub struct Traffic {
    messages: [AtomicU64; 4],
    bytes: [AtomicU64; 4],
    dropped: AtomicU64,
}

impl Traffic {
    /// Counts a message of this many encoded bytes.
    pub fn sent(&self, envelope: &Envelope, bytes: usize) {
        let kind = TrafficKind::of(envelope) as usize;
        self.messages[kind].fetch_add(1, Ordering::Relaxed);
        self.bytes[kind].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Messages and bytes of a kind.
    #[must_use]
    pub fn of(&self, kind: TrafficKind) -> (u64, u64) {
        (
            self.messages[kind as usize].load(Ordering::Relaxed),
            self.bytes[kind as usize].load(Ordering::Relaxed),
        )
    }

    /// Counts a message that was dropped: there is no connection, or too much waits.
    pub fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages dropped so far.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_by_purpose() {
        let traffic = Traffic::default();
        traffic.sent(&Envelope::Gossip(vec![0; 10]), 12);
        traffic.sent(&Envelope::StatusRequest { ticket: 1 }, 2);
        assert_eq!(
            TrafficKind::ALL.map(|(kind, _)| traffic.of(kind)),
            [(0, 0), (0, 0), (1, 12), (1, 2)]
        );
    }
}
