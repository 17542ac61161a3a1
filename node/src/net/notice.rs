//! Limits repeated messages: a refused node tries again every second, but its operator needs one
//! line.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The same message may be repeated after this long.
const AGAIN: Duration = Duration::from_secs(30);
/// Messages that are remembered, at most; further ones are dropped.
const KEYS_MAX: usize = 256;

/// The messages of the last moments.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    said: RefCell<BTreeMap<String, Instant>>,
}

impl Notices {
    /// Whether this message may be logged now.
    #[must_use]
    pub(crate) fn due(&self, key: &str) -> bool {
        let now = Instant::now();
        let mut said = self.said.borrow_mut();
        if said
            .get(key)
            .is_some_and(|at| now.duration_since(*at) < AGAIN)
        {
            return false;
        }
        if said.len() >= KEYS_MAX {
            said.retain(|_, at| now.duration_since(*at) < AGAIN);
            if said.len() >= KEYS_MAX {
                return false;
            }
        }
        said.insert(key.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_thing_is_said_once_and_memory_is_bounded() {
        let notices = Notices::default();
        assert!(notices.due("a"));
        assert!(!notices.due("a"));
        for i in 0..KEYS_MAX - 1 {
            assert!(notices.due(&i.to_string()));
        }
        assert!(!notices.due("one more"));
        assert_eq!(notices.said.borrow().len(), KEYS_MAX);
    }
}
