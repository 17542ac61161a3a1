//! The key with which others check what a member signs.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The public key of a member's votes: 32 bytes, as Ed25519 has them (RFC 8032). Each process draws
/// its own at its start, and keeps the private part to itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VoteKey(pub [u8; 32]);

/// The first bytes in hexadecimal: enough to tell two keys apart in a log.
impl fmt::Debug for VoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VoteKey(")?;
        self.0[..4].iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        write!(f, "..)")
    }
}
