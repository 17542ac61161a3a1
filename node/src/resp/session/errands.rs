//! What the present command has asked of the control thread: the newest table, or a change. The
//! command stays where it was parsed, no other is taken meanwhile, and it is run again.

use crate::resp::RespContext;
use doyen_gossip::agreement::AdminReply;

/// The errands of the present command.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    looking: Looking,
    /// A change of users or settings that is under way.
    change: Option<Box<PendingErrand>>,
}

/// Whether the present command waits for the control thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Looking {
    /// It does not.
    #[default]
    No,
    /// No command is taken meanwhile, because the following ones may be about what is asked for.
    Waits,
    /// The answer is here, and the command is run again.
    Over,
}

/// A change that the present command has asked for, of users or of settings.
#[derive(Debug)]
pub(crate) struct PendingErrand {
    pub(crate) step: ErrandStep,
    pub(crate) attempts: u8,
    /// What is answered once it is made.
    pub(crate) reply: ErrandReply,
    /// The client's own user is gone: its connection ends with the reply.
    pub(crate) ends: bool,
}

#[derive(Debug)]
pub(crate) enum ErrandStep {
    /// The control thread has it.
    Asked,
    /// The control thread has answered.
    Answered(AdminReply),
    /// It is made, and is being installed here.
    Installing,
    /// The newest table is fetched, to try again.
    Again,
}

/// What is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ErrandReply {
    Ok,
    /// This many users were removed.
    Removed(i64),
}

impl PendingErrand {
    /// A change that is about to be asked for.
    pub(crate) const fn asked(reply: ErrandReply) -> Self {
        Self {
            step: ErrandStep::Asked,
            attempts: 0,
            reply,
            ends: false,
        }
    }
}

impl Errands {
    /// Whether the present command waits.
    pub(crate) fn waits(&self) -> bool {
        self.looking == Looking::Waits
    }

    /// Whether the present command is run again.
    pub(crate) fn is_held(&self) -> bool {
        self.looking != Looking::No
    }

    /// The present command is run. True: it has waited for the newest table.
    pub(crate) fn take_looked(&mut self) -> bool {
        std::mem::take(&mut self.looking) != Looking::No
    }

    /// The present command is run. Returns the change that it has asked for.
    pub(crate) fn take(&mut self) -> Option<PendingErrand> {
        self.looking = Looking::No;
        self.change.take().map(|change| *change)
    }

    /// The present command waits for the newest table, for the connection with this number.
    pub(crate) fn await_table(&mut self, context: &mut RespContext, connection: u64) {
        self.looking = Looking::Waits;
        context.look_for_table(connection);
    }

    /// The present command waits for this change.
    pub(crate) fn begin(&mut self, change: PendingErrand) {
        self.change = Some(Box::new(change));
        self.looking = Looking::Waits;
    }

    /// The present command is refused: it waits for nothing any more.
    pub(crate) fn give_up(&mut self) {
        *self = Self::default();
    }

    /// The newest table is here or cannot be had. False: no command waits for it.
    pub(crate) fn looked(&mut self) -> bool {
        let waits = self.waits();
        if waits {
            self.looking = Looking::Over;
        }
        waits
    }

    /// The control thread has answered. False: no command waits for that.
    pub(crate) fn ran(&mut self, reply: AdminReply) -> bool {
        let change = self.change.as_mut();
        let Some(change) = change.filter(|change| matches!(change.step, ErrandStep::Asked)) else {
            return false;
        };
        change.step = ErrandStep::Answered(reply);
        self.looking = Looking::Over;
        true
    }

    /// Whether the present command has made its change and is only to be answered: the change may
    /// have taken the right to make it away.
    pub(crate) fn is_made(&self) -> bool {
        self.change.as_ref().is_some_and(|change| {
            matches!(
                change.step,
                ErrandStep::Installing | ErrandStep::Answered(AdminReply::Done(_))
            )
        })
    }

    /// The connection ends with the reply to the change. False: there is no change.
    pub(crate) fn end_with_reply(&mut self) -> bool {
        if let Some(change) = &mut self.change {
            change.ends = true;
        }
        self.change.is_some()
    }
}
