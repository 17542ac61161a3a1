//! Messages of publishers.

use bytes::Bytes;

/// The longest name of a channel: each message is compared with all patterns.
pub const CHANNEL_BYTES_MAX: usize = 1 << 10;
/// What a message takes besides its bytes.
pub(crate) const MESSAGE_OVERHEAD: usize = 128;

/// One message of a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The name of the channel.
    pub channel: Bytes,
    /// The message.
    pub message: Bytes,
    /// Whether it is for subscribers of the shard channel of that name.
    pub sharded: bool,
}

impl Publication {
    /// How much memory it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.channel.len() + self.message.len() + MESSAGE_OVERHEAD
    }
}
