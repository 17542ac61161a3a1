//! How far this node has left its cluster, and who waits for that.

use crate::waking;
use doyen_placement::planner::HandOverUrgency;
use tokio::sync::oneshot::Sender;

#[derive(Default)]
pub(super) struct Leaving {
    hand_over: Vec<Sender<()>>,
    depart: Vec<Sender<()>>,
    /// The machine has said that this node holds nothing any more.
    handed_over: bool,
    /// This process is no longer a member, for good.
    pub(super) gone: bool,
    pub(super) begun: bool,
}

impl Leaving {
    /// A caller waits until this node holds nothing. Returns whether the machine must be told.
    pub(super) fn hand_over(&mut self, pace: HandOverUrgency, answer: Sender<()>) -> bool {
        self.hand_over.push(answer);
        !std::mem::replace(&mut self.begun, true) || pace == HandOverUrgency::AtOnce
    }

    /// A caller waits until this node is no member. Returns whether the machine must be told.
    pub(super) fn depart(&mut self, answer: Sender<()>) -> bool {
        self.depart.push(answer);
        self.depart.len() == 1
    }

    pub(super) fn handed_over(&mut self) {
        self.handed_over = true;
        self.settle();
    }

    pub(super) fn is_gone(&mut self) {
        self.gone = true;
        self.settle();
    }

    /// Answers callers that need not wait any more.
    pub(super) fn settle(&mut self) {
        let held = (self.handed_over || self.gone).then_some(&mut self.hand_over);
        let member = self.gone.then_some(&mut self.depart);
        for answers in [held, member].into_iter().flatten() {
            for answer in answers.drain(..) {
                waking::answer(answer, ());
            }
        }
    }
}
