//! `SMOVE` between keys of two partitions.
//!
//! ```text
//!   is it in the source? ──> is the target a set? ──> put there ──> taken out here ──> done
//!        ▲                                              ▲                │ it was written meanwhile
//!        └──────────────────────────────────────────────┴────────────────┘ again, for some seconds
//! ```
//! The member is taken out last, so it may be seen in both sets and is never in none, also if two
//! clients move it in opposite directions. If it is gone from the source by then, another client
//! has taken it. Then the answer is 0, and the member stays in the target: a client that has added
//! it there was answered that it was there already, so it must not be taken away.

use super::steps::{AGAIN_MAX, CommandSteps, naming_both};
use crate::resp::RespContext;
use crate::resp::encode::Encoder;
use bytes::Bytes;
use doyen_engine::command::{ErrorText, MemberFound, MemberMove, Shape};
use doyen_engine::op::{Action, Failure, Outcome};
use doyen_gossip::Time;

/// Moves of one member in opposite directions disturb each other, and would do so for ever. So each
/// looks a few times, by chance, before it writes once more: up to 2 to this power.
const PAUSES_BITS: u32 = 7;

const NOT_TAKEN: &str = "it was added to the second one, and could not be removed from the first \
    one; send the command again later";

/// The steps of a command that moves a member.
#[derive(Debug)]
pub(crate) struct MemberSteps {
    moves: MemberMove,
    until: Time,
    stage: MoveStage,
    /// The target is a set, and has the member from now on.
    is_put: bool,
    /// How often the member was written before it could be taken out.
    lost: u32,
    /// How often the source is looked at again before the member is put once more.
    pauses: u32,
}

/// Which operation is under way, or next.
#[derive(Debug)]
enum MoveStage {
    /// Whether the source has the member.
    Source,
    /// Whether the target is a set. The source has the member in this version, or not.
    Target(Option<i64>),
    Put(i64),
    Take(i64),
    Over(Result<Outcome, ErrorText>),
}

impl MemberSteps {
    pub(crate) fn new(moves: MemberMove, now: Time) -> Self {
        Self {
            moves,
            until: now + AGAIN_MAX,
            stage: MoveStage::Source,
            is_put: false,
            lost: 0,
            pauses: 0,
        }
    }

    /// It may have happened in part.
    fn unknown(&self, text: &str) -> MoveStage {
        let keys = (&self.moves.from[..], &self.moves.to[..]);
        MoveStage::Over(Err(naming_both("UNKNOWN moving a member from", keys, text)))
    }
}

impl CommandSteps for MemberSteps {
    fn next(&mut self, _context: &mut RespContext) -> Option<(Bytes, Action)> {
        let moves = &self.moves;
        let (key, action) = match self.stage {
            MoveStage::Source => (&moves.from, moves.look()),
            MoveStage::Target(_) => (&moves.to, moves.look()),
            MoveStage::Put(_) => (&moves.to, moves.put()),
            MoveStage::Take(version) => (&moves.from, moves.take(version)),
            MoveStage::Over(_) => return None,
        };
        Some((key.clone(), action))
    }

    fn take(&mut self, outcome: Outcome, now: Time) {
        let over = |outcome| MoveStage::Over(Ok(outcome));
        let is_late = now >= self.until;
        self.stage = match (&self.stage, outcome) {
            // Nothing happened, and the partitions are others now.
            (_, Outcome::Failed(Failure::Stale | Failure::Overtaken)) if !is_late => return,
            (MoveStage::Put(_), Outcome::Failed(Failure::Unknown)) => self.unknown(
                "it is still in the first one, and perhaps in the second one; look at both, or \
                 send the command again",
            ),
            (MoveStage::Take(_), Outcome::Failed(Failure::Unknown)) => self.unknown(
                "it is in the second one, and perhaps still in the first one; look at both, or \
                 send the command again",
            ),
            // Another client has replaced the source.
            (MoveStage::Source | MoveStage::Take(_), Outcome::Failed(Failure::WrongType))
                if self.is_put =>
            {
                over(Outcome::Int(0))
            }
            (_, Outcome::Failed(_)) if self.is_put => self.unknown(NOT_TAKEN),
            (_, failed @ Outcome::Failed(_)) => over(failed),
            (MoveStage::Source, outcome) => match MemberFound::of(&outcome) {
                MemberFound::Yes(_) if self.pauses > 0 => {
                    self.pauses -= 1;
                    MoveStage::Source
                }
                MemberFound::Yes(version) if self.is_put => MoveStage::Put(version),
                MemberFound::Yes(version) => MoveStage::Target(Some(version)),
                MemberFound::No if !self.is_put => MoveStage::Target(None),
                MemberFound::No | MemberFound::NoSet => over(Outcome::Int(0)),
            },
            (MoveStage::Target(Some(version)), _) => MoveStage::Put(*version),
            (MoveStage::Target(None), _) => over(Outcome::Int(0)),
            (MoveStage::Put(version), _) => {
                self.is_put = true;
                MoveStage::Take(*version)
            }
            (MoveStage::Take(_), Outcome::Nil) if is_late => self.unknown(NOT_TAKEN),
            (MoveStage::Take(_), Outcome::Nil) => {
                self.pauses = pauses(self.lost);
                self.lost += 1;
                MoveStage::Source
            }
            (MoveStage::Take(_) | MoveStage::Over(_), outcome) => over(outcome),
        };
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, MoveStage::Over(_))
    }

    // A member that was put into the target is taken out of the source.
    fn goes_on(&self, under_way: bool) -> bool {
        self.is_put || under_way && matches!(self.stage, MoveStage::Put(_))
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) {
        match &self.stage {
            MoveStage::Over(Ok(outcome)) => encoder.reply(&Shape::Plain.reply(outcome.clone())),
            MoveStage::Over(Err(why)) => encoder.error(&why.0),
            // A reply is encoded once it is over.
            _ => encoder.error(Shape::Plain.failure(Failure::Unavailable)),
        }
    }
}

/// How often the next move looks before it writes again, if `lost` moves were in vain.
pub(super) fn pauses(lost: u32) -> u32 {
    rand::random_range(0..1 << lost.min(PAUSES_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_engine::command::{Apart, Arguments, COMMANDS, ParsedRequest};
    use doyen_placement::MapId;

    fn steps() -> MemberSteps {
        let words =
            ["smove", "from", "to", "member"].map(|word| Bytes::from_static(word.as_bytes()));
        let words: &[Bytes] = &words;
        let args: &dyn Arguments = &words;
        let parsed = COMMANDS.find(args).unwrap().request(args, 0);
        let Ok(ParsedRequest::One { key, action, .. }) = parsed else {
            panic!("it is about one key")
        };
        let Some(Apart::Move(moves)) = action.apart(MapId(0), &key) else {
            panic!("it moves a member")
        };
        MemberSteps::new(moves, Time::ZERO)
    }

    /// The reply once its operations had these outcomes.
    fn answered(outcomes: &[Outcome]) -> Result<Outcome, ErrorText> {
        let mut steps = steps();
        for outcome in outcomes {
            assert!(!steps.is_over(), "{outcomes:?}");
            steps.take(outcome.clone(), Time::ZERO);
        }
        match steps.stage {
            MoveStage::Over(reply) => reply,
            stage => panic!("{stage:?} after {outcomes:?}"),
        }
    }

    const NO: Outcome = Outcome::Int(0);
    const DONE: Outcome = Outcome::Int(1);
    const WRITTEN: Outcome = Outcome::Nil;
    const NO_SET: Outcome = Outcome::Nil;
    const WRONG: Outcome = Outcome::Failed(Failure::WrongType);
    const GONE: Outcome = Outcome::Failed(Failure::Unavailable);
    const UNKNOWN: Outcome = Outcome::Failed(Failure::Unknown);

    /// What a set knows of the member.
    fn has(is_there: i64) -> Outcome {
        Outcome::Many(vec![Outcome::Int(is_there), Outcome::Int(7)])
    }

    #[test]
    fn a_member_is_moved_only_if_both_keys_allow_it() {
        assert_eq!(answered(&[has(1), has(0), DONE, DONE]), Ok(DONE));
        assert_eq!(answered(&[has(1), NO_SET, DONE, DONE]), Ok(DONE));
        assert_eq!(
            answered(&[has(1), has(1), NO, DONE]),
            Ok(DONE),
            "both had it"
        );
        assert_eq!(answered(&[NO_SET]), Ok(NO), "there is no source");
        assert_eq!(answered(&[has(0), has(0)]), Ok(NO));
        assert_eq!(answered(&[has(0), WRONG]), Ok(WRONG));
        assert_eq!(answered(&[WRONG]), Ok(WRONG));
        assert_eq!(answered(&[has(1), WRONG]), Ok(WRONG));
        assert_eq!(answered(&[has(1), has(0), WRONG]), Ok(WRONG));
    }

    #[test]
    fn a_member_that_another_client_took_meanwhile_is_not_moved() {
        let begun = [has(1), has(0), DONE];
        for rest in [
            [NO].as_slice(),
            &[WRONG],
            &[WRITTEN, has(0)],
            &[WRITTEN, NO_SET],
        ] {
            let outcomes = [&begun, rest].concat();
            assert_eq!(answered(&outcomes), Ok(NO), "{rest:?}");
        }
    }

    #[test]
    fn a_member_that_was_written_meanwhile_is_put_again_before_it_is_taken() {
        let outcomes = [has(1), has(0), DONE, WRITTEN, has(1), NO, DONE];
        assert_eq!(answered(&outcomes), Ok(DONE));
    }

    #[test]
    fn a_step_that_may_have_happened_is_told() {
        for failed in [[GONE].as_slice(), &[has(1), GONE], &[has(1), has(0), GONE]] {
            assert_eq!(answered(failed), Ok(GONE), "nothing happened");
        }
        for (outcomes, says) in [
            (
                [has(1), has(0), UNKNOWN].as_slice(),
                "perhaps in the second one",
            ),
            (
                &[has(1), has(0), DONE, UNKNOWN],
                "perhaps still in the first one",
            ),
            (&[has(1), has(0), DONE, GONE], "could not be removed"),
            (
                &[has(1), has(0), DONE, WRITTEN, GONE],
                "could not be removed",
            ),
        ] {
            let why = answered(outcomes).unwrap_err();
            assert!(why.0.starts_with("UNKNOWN"), "{}", why.0);
            assert!(why.0.contains(says), "{}", why.0);
            assert!(why.0.contains("'from' to 'to'"), "{}", why.0);
        }
    }

    #[test]
    fn steps_that_did_not_happen_are_taken_again_for_a_while() {
        let stale = Outcome::Failed(Failure::Stale);
        let outcomes = [stale.clone(), has(1), has(0), DONE, stale.clone(), DONE];
        assert_eq!(answered(&outcomes), Ok(DONE));
        let mut late = steps();
        late.take(stale.clone(), Time::ZERO + AGAIN_MAX);
        assert!(matches!(&late.stage, MoveStage::Over(Ok(failed)) if *failed == stale));
    }
}
