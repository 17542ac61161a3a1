//! Replies of commands that go in steps: operations one after the other, where each outcome decides
//! on the next one.

use super::{
    Arrived, ArrivedOutcome, Outstanding, PendingReply, ReplyAsker, SessionEffect, Stepped,
};
use crate::resp::RespContext;
use crate::resp::encode::Encoder;
use bytes::Bytes;
use doyen_engine::command::ErrorText;
use doyen_engine::op::{Action, Operation, Outcome};
use doyen_gossip::Time;
use doyen_placement::{KeyspaceId, MapId};
use std::fmt::Debug;
use std::time::Duration;

/// For so long, steps that did not happen are taken again.
pub(super) const AGAIN_MAX: Duration = Duration::from_secs(5);

/// The error of a command that gives something of one key to another key: `what` begins with a
/// code, and says what the command does.
pub(super) fn naming_both(what: &str, (from, to): (&[u8], &[u8]), text: &str) -> ErrorText {
    const SHOWN_BYTES: usize = 64;
    let shown = |key: &[u8]| {
        let more = if key.len() > SHOWN_BYTES { ".." } else { "" };
        format!("{}{more}", key[..key.len().min(SHOWN_BYTES)].escape_ascii())
    };
    let (from, to) = (shown(from), shown(to));
    format!("{what} '{from}' to '{to}': {text}").into()
}

/// The steps of a command.
pub(crate) trait CommandSteps: Debug {
    /// The next operation, with its key. `None`: it is over.
    fn next(&mut self, context: &mut RespContext) -> Option<(Bytes, Action)>;

    /// Takes the outcome of that.
    fn take(&mut self, outcome: Outcome, now: Time);

    /// Whether there is a reply.
    fn is_over(&self) -> bool;

    /// Bytes that it holds.
    fn held(&self) -> usize {
        0
    }

    /// Whether it goes on although its client is gone. `under_way`: whether the next operation was
    /// sent.
    fn goes_on(&self, _under_way: bool) -> bool {
        false
    }

    /// Appends the reply.
    fn encode(&mut self, encoder: &mut Encoder<'_>);
}

/// The reply of a command that goes in steps.
#[derive(Debug)]
pub(crate) struct StepsReply<S> {
    about: (KeyspaceId, MapId),
    asked: Outstanding,
    steps: S,
}

impl<S: CommandSteps> StepsReply<S> {
    /// Takes the first step.
    pub(crate) fn ask(asker: &mut ReplyAsker<'_>, about: (KeyspaceId, MapId), steps: S) -> Self {
        let mut reply = Self {
            about,
            asked: Outstanding::default(),
            steps,
        };
        reply.go_on(asker);
        reply
    }

    fn go_on(&mut self, asker: &mut ReplyAsker<'_>) {
        let Some((key, action)) = self.steps.next(asker.context) else {
            return;
        };
        let (keyspace, map) = self.about;
        let operation = Operation {
            keyspace,
            map,
            key,
            action,
        };
        self.asked.ask(asker, 0, operation);
    }
}

impl<S: CommandSteps> PendingReply for StepsReply<S> {
    fn asked(&self) -> &Outstanding {
        &self.asked
    }

    fn take(&mut self, arrived: Arrived) -> SessionEffect {
        if let Arrived::Outcome(ArrivedOutcome {
            token,
            outcome,
            now,
            ..
        }) = arrived
            && self.asked.take(token)
        {
            self.steps.take(outcome, now);
        }
        SessionEffect::Nothing
    }

    fn has_step(&self) -> bool {
        self.asked.waits() == 0 && !self.steps.is_over()
    }

    fn step(&mut self, asker: &mut ReplyAsker<'_>, _work: &mut usize) -> Stepped {
        if self.has_step() {
            self.go_on(asker);
        }
        Stepped::Waits
    }

    fn held(&self) -> usize {
        self.steps.held()
    }

    // What follows may need what it did.
    fn blocks(&self) -> bool {
        !self.is_whole()
    }

    fn leave(&mut self) -> bool {
        !self.steps.is_over() && self.steps.goes_on(self.asked.waits() > 0)
    }

    fn encode(&mut self, encoder: &mut Encoder<'_>) -> bool {
        self.steps.encode(encoder);
        true
    }
}
