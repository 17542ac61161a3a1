//! The steps of `LMOVE` and its like between keys of two partitions, which a pop takes in place of
//! its operation (`super::pops`).
//!
//! ```text
//!   which element is at the end? ──> pushed to the target ──> popped here, if it is there ──> done
//!        ▲                                                        │ another client took it
//!        └───────────── taken back from the target <──────────────┘ again, for some seconds
//! ```
//! The element is popped last, so it is in one of the lists at least, whatever dies between the
//! steps. The worst case is that it stays in both. If another client takes it from the source
//! between the steps, it is taken back from the target. If that is too late, because a client of
//! the target was faster, two clients have it. Both cases are errors that say so.

use super::moves::pauses;
use super::steps::{AGAIN_MAX, naming_both};
use bytes::Bytes;
use doyen_engine::command::{ElementMove, ErrorText};
use doyen_engine::op::{Action, Failure, Outcome};
use doyen_gossip::Time;

const CHANGED: &str = "TRYAGAIN other clients took from the first list all the time for 5 s: \
    nothing happened; try again later, or give both keys the same {tag}";

/// A move of an element in steps.
#[derive(Debug)]
pub(super) struct ElementSteps {
    moves: ElementMove,
    until: Time,
    stage: ElementStage,
    /// How often another client took the element before it could be popped.
    lost: u32,
    /// How often the source is looked at again before an element is pushed once more.
    pauses: u32,
}

/// Which operation is under way, or next.
#[derive(Debug, Clone)]
enum ElementStage {
    Look,
    Put(Bytes),
    Take(Bytes),
    /// The element was not popped, for this reason; `None`: another client took it.
    TakeBack(Bytes, Option<Failure>),
}

impl ElementSteps {
    pub(super) fn new(moves: ElementMove, now: Time) -> Self {
        Self {
            moves,
            until: now + AGAIN_MAX,
            stage: ElementStage::Look,
            lost: 0,
            pauses: 0,
        }
    }

    /// The next operation, with its key.
    pub(super) fn next(&self) -> (Bytes, Action) {
        let moves = &self.moves;
        let (key, action) = match &self.stage {
            ElementStage::Look => (&moves.from, moves.look()),
            ElementStage::Put(element) => (&moves.to, moves.put(element)),
            ElementStage::Take(element) => (&moves.from, moves.take(element)),
            ElementStage::TakeBack(element, _) => (&moves.to, moves.take_back(element)),
        };
        (key.clone(), action)
    }

    /// Bytes that it holds.
    pub(super) fn held(&self) -> usize {
        match &self.stage {
            ElementStage::Look => 0,
            ElementStage::Put(element)
            | ElementStage::Take(element)
            | ElementStage::TakeBack(element, _) => element.len(),
        }
    }

    /// Whether its element is in the target, so that the steps go on without a client.
    pub(super) const fn has_put(&self) -> bool {
        match self.stage {
            ElementStage::Look | ElementStage::Put(_) => false,
            ElementStage::Take(_) | ElementStage::TakeBack(..) => true,
        }
    }

    /// Takes the outcome of an operation. `None`: there is a next one. Otherwise the outcome of the
    /// whole move.
    pub(super) fn take(
        &mut self,
        outcome: Outcome,
        now: Time,
    ) -> Option<Result<Outcome, ErrorText>> {
        let is_late = now >= self.until;
        let in_part = |text| Some(Err(self.in_part(text)));
        self.stage = match (self.stage.clone(), outcome) {
            // Nothing happened, and the partitions are others now.
            (_, Outcome::Failed(Failure::Stale | Failure::Overtaken)) if !is_late => return None,
            (ElementStage::Look, Outcome::Bulk(_)) if self.pauses > 0 => {
                self.pauses -= 1;
                ElementStage::Look
            }
            (ElementStage::Look, Outcome::Bulk(element)) => {
                ElementStage::Put(Bytes::copy_from_slice(&element))
            }
            (ElementStage::Look, outcome) => return Some(Ok(outcome)),
            (ElementStage::Put(_), Outcome::Failed(Failure::Unknown)) => {
                return in_part(
                    "it is still in the first one, and perhaps in the second one; look at both",
                );
            }
            (ElementStage::Put(_), failed @ Outcome::Failed(_)) => return Some(Ok(failed)),
            (ElementStage::Put(element), _) => ElementStage::Take(element),
            (ElementStage::Take(_), Outcome::Failed(Failure::Unknown)) => {
                return in_part(
                    "it is in the second one, and perhaps still in the first one; look at both",
                );
            }
            // Another client has replaced the source.
            (ElementStage::Take(element), Outcome::Nil | Outcome::Failed(Failure::WrongType)) => {
                ElementStage::TakeBack(element, None)
            }
            (ElementStage::Take(element), Outcome::Failed(why)) => {
                ElementStage::TakeBack(element, Some(why))
            }
            (ElementStage::Take(element), _) => {
                return Some(Ok(Outcome::Bulk((&element[..]).into())));
            }
            (ElementStage::TakeBack(_, Some(why)), Outcome::Int(1..)) => {
                return Some(Ok(Outcome::Failed(why)));
            }
            (ElementStage::TakeBack(_, None), Outcome::Int(1..)) if is_late => {
                return Some(Err(CHANGED.into()));
            }
            (ElementStage::TakeBack(_, None), Outcome::Int(1..)) => {
                self.pauses = pauses(self.lost);
                self.lost += 1;
                ElementStage::Look
            }
            (
                ElementStage::TakeBack(_, None),
                Outcome::Int(_) | Outcome::Failed(Failure::WrongType),
            ) => {
                return in_part("other clients took it from both at the same time, so two have it");
            }
            (
                ElementStage::TakeBack(_, Some(_)),
                Outcome::Int(_) | Outcome::Failed(Failure::WrongType),
            ) => {
                return in_part(
                    "another client took it from the second one, and it is still in the first one",
                );
            }
            (ElementStage::TakeBack(_, None), _) => {
                return in_part(
                    "another client took it from the first one, and it may still be in the second \
                     one; look at that",
                );
            }
            (ElementStage::TakeBack(_, Some(_)), _) => {
                return in_part(
                    "it is still in the first one, and may be in the second one, too; look at both",
                );
            }
        };
        None
    }

    fn in_part(&self, text: &str) -> ErrorText {
        naming_both(
            "UNKNOWN moving an element from",
            (&self.moves.from, &self.moves.to),
            text,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_engine::command::{Apart, Arguments, COMMANDS, ParsedRequest};
    use doyen_placement::MapId;

    fn steps() -> ElementSteps {
        let words = ["lmove", "from", "to", "left", "right"];
        let words = words.map(|word| Bytes::from_static(word.as_bytes()));
        let words: &[Bytes] = &words;
        let args: &dyn Arguments = &words;
        let parsed = COMMANDS.find(args).unwrap().request(args, 0);
        let Ok(ParsedRequest::One { key, action, .. }) = parsed else {
            panic!("it is about one key")
        };
        let Some(Apart::Pop(pop)) = action.apart(MapId(0), &key) else {
            panic!("it takes from a key")
        };
        let moves = pop.moves().unwrap();
        assert_eq!((&moves.from[..], &moves.to[..]), (&b"from"[..], &b"to"[..]));
        ElementSteps::new(moves, Time::ZERO)
    }

    /// What comes of a move whose operations have these outcomes.
    fn answered(outcomes: &[Outcome]) -> Result<Outcome, ErrorText> {
        let mut steps = steps();
        let (last, others) = outcomes.split_last().unwrap();
        for outcome in others {
            assert!(
                steps.take(outcome.clone(), Time::ZERO).is_none(),
                "{outcomes:?}"
            );
        }
        steps.take(last.clone(), Time::ZERO).unwrap()
    }

    const PUSHED: Outcome = Outcome::Int(3);
    const DONE: Outcome = Outcome::Int(1);
    const GONE: Outcome = Outcome::Nil;
    const WRONG: Outcome = Outcome::Failed(Failure::WrongType);
    const NOT_SERVED: Outcome = Outcome::Failed(Failure::Unavailable);
    const UNKNOWN: Outcome = Outcome::Failed(Failure::Unknown);

    fn x() -> Outcome {
        Outcome::Bulk((&b"x"[..]).into())
    }

    #[test]
    fn an_element_is_moved_only_if_both_keys_allow_it() {
        assert_eq!(answered(&[x(), PUSHED, DONE]), Ok(x()));
        assert_eq!(answered(&[Outcome::Nil]), Ok(Outcome::Nil));
        assert_eq!(answered(&[WRONG]), Ok(WRONG));
        assert_eq!(answered(&[x(), WRONG]), Ok(WRONG));
        assert_eq!(answered(&[NOT_SERVED]), Ok(NOT_SERVED));
        assert_eq!(answered(&[x(), NOT_SERVED]), Ok(NOT_SERVED));
    }

    #[test]
    fn an_element_that_another_client_took_is_taken_back_and_the_next_one_moves() {
        let outcomes = [x(), PUSHED, GONE, DONE, x(), PUSHED, DONE];
        assert_eq!(answered(&outcomes), Ok(x()));
        assert_eq!(answered(&[x(), PUSHED, WRONG, DONE, WRONG]), Ok(WRONG));
        assert_eq!(answered(&[x(), PUSHED, GONE, DONE, GONE]), Ok(Outcome::Nil));
        // The source is not served any more, so the target is as it was.
        assert_eq!(answered(&[x(), PUSHED, NOT_SERVED, DONE]), Ok(NOT_SERVED));
        let mut late = steps();
        let end = Time::ZERO + AGAIN_MAX;
        for outcome in [x(), PUSHED, GONE] {
            assert!(late.take(outcome, end).is_none());
        }
        let Some(Err(why)) = late.take(DONE, end) else {
            panic!("it goes on")
        };
        assert!(why.0.starts_with("TRYAGAIN"), "{}", why.0);
    }

    #[test]
    fn an_element_that_may_be_twice_is_told() {
        for (outcomes, says) in [
            ([x(), UNKNOWN].as_slice(), "perhaps in the second one"),
            (&[x(), PUSHED, UNKNOWN], "perhaps still in the first one"),
            (&[x(), PUSHED, GONE, Outcome::Int(0)], "two have it"),
            (
                &[x(), PUSHED, GONE, NOT_SERVED],
                "may still be in the second",
            ),
            (
                &[x(), PUSHED, NOT_SERVED, Outcome::Int(0)],
                "it is still in the first one",
            ),
            (
                &[x(), PUSHED, NOT_SERVED, UNKNOWN],
                "may be in the second one, too",
            ),
        ] {
            let why = answered(outcomes).unwrap_err();
            assert!(why.0.starts_with("UNKNOWN"), "{}", why.0);
            assert!(why.0.contains(says), "{}", why.0);
            assert!(why.0.contains("'from' to 'to'"), "{}", why.0);
        }
    }

    #[test]
    fn steps_that_did_not_happen_are_taken_again() {
        let stale = Outcome::Failed(Failure::Stale);
        let outcomes = [stale.clone(), x(), stale.clone(), PUSHED, stale, DONE];
        assert_eq!(answered(&outcomes), Ok(x()));
        let mut steps = steps();
        assert!(!steps.has_put(), "it only looks");
        steps.take(x(), Time::ZERO);
        assert!(!steps.has_put(), "it is not sent yet");
        steps.take(PUSHED, Time::ZERO);
        assert!(steps.has_put());
    }
}
