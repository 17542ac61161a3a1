//! Every decoder as a function of bytes that a peer may have sent, and what makes such bytes from
//! valid ones.
//!
//! ```text
//!   Target::seeds ──> Mutator ──bytes──> Target::run: decode, and where that succeeds use what came out, as production does
//! ```
//!
//! The property tests of this crate, `tests/tests/hostile.rs` (which counts memory) and the program
//! `fuzz` of the tests run the same targets; they differ in how long. A target panics where
//! anything is wrong, and returns otherwise.

mod members;
mod mutate;
mod targets;
pub mod wire;

pub use mutate::Mutator;
pub use targets::TARGETS;

pub use doyen_engine::fuzz::INPUT_BYTES_MAX;

/// A decoder, and whatever acts on what it lets through.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is that of its directory of inputs too.
    pub name: &'static str,
    /// Valid inputs, small ones.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Panics where the input does something that no input may do.
    pub run: fn(&[u8]),
    /// How many bytes one run may allocate in all, for an input of so many bytes.
    pub allocates: fn(usize) -> usize,
    /// Inputs that the property test makes.
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

    /// Arbitrary bytes, and valid inputs with bits flipped, cut off, lengthened, spliced, with
    /// lengths and numbers set to huge ones.
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
        any_text_is_a_configuration_or_an_error: "config",
        any_bytes_are_an_answer_of_http_or_an_error: "answers",
    }
}
