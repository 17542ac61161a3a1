//! What the map holds of a request.

use super::answer::StoredAnswer;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::{Deserialize, Serialize};

/// The key of a request in the map: a hash of the caller and the `Idempotency-Key`, so that the map
/// shows neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestKey(RequestDigest);

/// A request that runs or is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRequest {
    pub(super) fingerprint: RequestDigest,
    pub(super) state: State,
}

pub(super) type RequestDigest = [u8; SHA256_OUTPUT_LEN];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    /// A node runs it, and renews the time to live of the entry.
    Running {
        /// A random number. It tells this claim from others on the same key.
        attempt: u64,
    },
    /// It was executed. `None`: its answer was too large to be kept, or broke off.
    Done(Option<StoredAnswer>),
}

impl RequestKey {
    pub(super) fn new(caller: &str, key: &str) -> Self {
        Self(digest([caller.as_bytes(), key.as_bytes()]))
    }
}

impl StoredRequest {
    pub(super) fn is_attempt(&self, number: u64) -> bool {
        matches!(self.state, State::Running { attempt } if attempt == number)
    }
}

/// A hash of these parts, each with its length: parts that are cut elsewhere have another hash.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> RequestDigest {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let mut hash = [0; SHA256_OUTPUT_LEN];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_do_not_share_keys() {
        let ours = RequestKey::new("ada", "1");
        assert_eq!(ours, RequestKey::new("ada", "1"));
        for (caller, key) in [("eve", "1"), ("ada1", ""), ("", "ada1"), ("ad", "a1")] {
            assert_ne!(ours, RequestKey::new(caller, key));
        }
    }
}
