//! Questions to members about their subscribers and scripts.

use super::frame::Frame;
use crate::command::publication::MESSAGE_OVERHEAD;

/// A question to all members with subscribers; if it is about scripts, to all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedSubscribers {
    /// How many subscribers have these channels, or these shard channels?
    Subscribers {
        /// Whether they are shard channels.
        sharded: bool,
        /// Their names.
        names: Vec<Vec<u8>>,
    },
    /// How many subscribers get messages of these channels, by name or by pattern? Each with
    /// whether it is a shard channel.
    Receivers(Vec<(bool, Vec<u8>)>),
    /// Which names have subscribers?
    Names {
        /// Of channels (0), patterns (1) or shard channels (2).
        kind: u8,
        /// Which of them; `None`: all.
        pattern: Option<Vec<u8>>,
        /// Those after this one.
        after: Option<Vec<u8>>,
    },
    /// The text of the script with this digest, as a name; the first text ends the question.
    Script(Vec<u8>),
    /// Forget the scripts that came with `EVAL`.
    ForgetScripts,
}

doyen_placement::tagged!(AskedSubscribers {
    0 => Subscribers { sharded, names },
    1 => Receivers(channels),
    2 => Names { kind, pattern, after },
    3 => Script(digest),
    4 => ForgetScripts {},
});

impl AskedSubscribers {
    pub(crate) fn bytes(&self) -> usize {
        let names = match self {
            Self::Subscribers { names, .. } => {
                names.iter().map(|n| n.len() + MESSAGE_OVERHEAD).sum()
            }
            Self::Receivers(names) => names.iter().map(|(_, n)| n.len() + MESSAGE_OVERHEAD).sum(),
            Self::Names { pattern, after, .. } => {
                let bytes = |name: &Option<Vec<u8>>| name.as_ref().map_or(0, Vec::len);
                bytes(pattern) + bytes(after)
            }
            Self::Script(digest) => digest.len(),
            Self::ForgetScripts => 0,
        };
        names + MESSAGE_OVERHEAD
    }

    /// How many numbers answer it.
    pub(crate) fn numbers(&self) -> usize {
        match self {
            Self::Subscribers { names, .. } => names.len(),
            Self::Receivers(names) => names.len(),
            Self::Names { .. } | Self::Script(_) | Self::ForgetScripts => 0,
        }
    }

    /// Whether members without subscribers are asked, too.
    pub(crate) const fn is_for_all(&self) -> bool {
        matches!(self, Self::Script(_) | Self::ForgetScripts)
    }

    pub(crate) fn frame(&self, ticket: u64) -> Frame {
        match self.clone() {
            Self::Subscribers { sharded, names } => Frame::Count {
                ticket,
                sharded,
                names,
            },
            asked => Frame::Ask { ticket, asked },
        }
    }
}
