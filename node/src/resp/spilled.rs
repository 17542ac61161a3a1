//! Answers that one client does not read while it still sends.

use super::budget::ClientBudget;
use super::output::ClientOutput;
use super::session::{OUTPUT_BYTES_SOFT, Session};
use doyen_gossip::Time;
use std::collections::VecDeque;

/// Answers of one client that are put aside in one pass, as outputs of `OUTPUT_BYTES_SOFT`.
const PASS_SPILLS_MAX: usize = 4;

/// Answers that a client does not read while it still sends. They are put aside, so that the rest
/// of its input can be taken.
#[derive(Default)]
pub(super) struct Spilled {
    /// They come after `Client::output`.
    pub(super) outputs: VecDeque<ClientOutput>,
    /// Bytes of memory that these outputs hold.
    pub(super) bytes: usize,
    /// What counts towards the share of such answers: these, and everything else that is not
    /// written.
    pub(super) counted: usize,
    /// When the client last took any output.
    pub(super) took_at: Time,
    /// The client takes no output, so answers are put aside.
    pub(super) on: bool,
    /// The client takes no output, and commands wait.
    pub(super) stuck: bool,
    /// Since when it waits for room for more answers, if it does.
    pub(super) waits: Option<Time>,
    /// It is in the list of clients to look at.
    pub(super) listed: bool,
}

impl Spilled {
    /// Counts what is not written, and puts answers aside if the client takes none. True if there
    /// may be more of them at once.
    pub(super) fn run(
        &mut self,
        now: Time,
        session: &mut Session,
        output: &ClientOutput,
        budget: &ClientBudget,
    ) -> bool {
        self.waits = None;
        let mut left = PASS_SPILLS_MAX;
        loop {
            if self.on {
                session.encode_ready();
            }
            let unsent = session.replies.out.len() + output.len() + self.bytes;
            // Once the client has read the answers that were put aside, it counts as any other.
            let wanted = if self.on || !self.outputs.is_empty() {
                unsent
            } else {
                0
            };
            self.counted = budget.spill(self.counted, wanted);
            session.count_unwritten(unsent, unsent.saturating_sub(self.counted));
            if !self.on || session.replies.out.len() < OUTPUT_BYTES_SOFT {
                return false;
            }
            if self.counted < wanted {
                self.waits = Some(now);
                return false;
            }
            if left == 0 {
                return true;
            }
            left -= 1;
            let mut full = ClientOutput::default();
            session.replies.swap_out(&mut full);
            self.bytes += full.held();
            self.outputs.push_back(full);
        }
    }

    /// Bytes of output that have left the session and are not written.
    pub(super) fn unwritten(&self, output: &ClientOutput) -> usize {
        let aside = self.outputs.iter().map(ClientOutput::len);
        output.len() + aside.sum::<usize>()
    }

    /// The client is gone, or its connection was closed in order.
    pub(super) fn end(&mut self, budget: &ClientBudget) {
        self.outputs.clear();
        self.bytes = 0;
        self.counted = budget.spill(self.counted, 0);
    }
}
