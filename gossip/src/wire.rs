//! What members say to each other about agreement. The node encodes these; here they are values.
use serde::{Deserialize, Serialize};
/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {}
