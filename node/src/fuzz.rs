//! Every decoder as a function of bytes from a peer, and a generator of such bytes.
//!
//! ```text
//!   Target::seeds ──> Mutator ──bytes──> Target::run: decode, then use the result
//! ```
//!
//! The property tests of this crate, `tests/tests/hostile.rs` (which counts memory) and the program
//! `fuzz` of the tests run the same targets for different times. A target panics if anything is
//! wrong, and returns otherwise.

mod members;
mod mutate;
mod targets;
pub mod wire;

pub use mutate::Mutator;
pub use targets::TARGETS;

pub use doyen_engine::fuzz::INPUT_BYTES_MAX;

/// A decoder, with the code that acts on its results.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name, also of the directory with its inputs.
    pub name: &'static str,
    /// Small valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Panics if the input does something that no input may do.
    pub run: fn(&[u8]),
    /// The limit on the bytes that one run may allocate, for an input of this many bytes.
    pub allocates: fn(usize) -> usize,
    /// The number of inputs that the property test makes.
    pub rounds: u32,
}

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arbitrary bytes, and valid inputs that were changed: bits flipped, cut off, lengthened,
    /// spliced, or with huge lengths and numbers.
    #[track_caller]
    fn hold(name: &str) {
        let target = target(name).unwrap();
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty() && seeds.iter().all(|s| s.len() <= INPUT_BYTES_MAX));
        let changed = (0..target.rounds).map(|round| Mutator::new(u64::from(round)).input(&seeds));
        for input in seeds.iter().cloned().chain(changed) {
            if let Err(panic) = std::panic::catch_unwind(|| (target.run)(&input)) {
                eprintln!("{name} panics with {input:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }

    macro_rules! targets {
        ($($test:ident: $name:literal),* $(,)?) => {
            $(#[test]
            fn $test() {
                hold($name);
            })*

            #[test]
            fn every_target_is_run() {
                assert_eq!(TARGETS.iter().map(|t| t.name).collect::<Vec<_>>(), [$($name),*]);
            }
        };
    }

    targets! {
        any_bytes_are_data_frames_or_an_error: "frames",
        a_pair_of_shards_survives_whatever_a_peer_sends: "shard",
        any_bytes_are_control_messages_or_an_error: "envelopes",
        agreement_survives_whatever_a_member_says: "agreement",
        a_table_that_is_taken_can_be_planned_on: "tables",
        a_delta_that_applies_gives_a_table_that_can_be_planned_on: "deltas",
        any_bytes_are_a_hello_or_an_error: "hello",
        any_bytes_are_carried_or_an_error: "carried",
        any_bytes_are_gossip_or_an_error: "gossip",
        any_bytes_are_commands_or_an_error: "requests",
        any_bytes_are_replies_or_an_error: "replies",
        any_text_is_a_file_of_users_or_an_error: "users",
        any_text_is_a_configuration_or_an_error: "config",
        any_bytes_are_secrets_or_an_error: "secrets",
        any_bytes_are_tokens_or_an_error: "tokens",
        any_bytes_are_an_answer_of_http_or_an_error: "answers",
    }
}
