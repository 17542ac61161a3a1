//! What members say to each other about agreement. The node encodes these; here they are values.
use serde::{Deserialize, Serialize};
/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {}
impl Message {
    /// Whether it travels as a datagram: small, of fixed size, and worthless when late.
    #[must_use]
    pub const fn is_datagram(&self) -> bool {
        match *self {}
    }
}
