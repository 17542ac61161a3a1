//! `CLIENT PAUSE`: for a while, all commands of clients wait, or only those that write.
//!
//! A command that comes during a pause stays where it was parsed, and its connection takes nothing
//! more until the pause is over.

use super::commands::scripts::digest_of;
use super::commands::transactions::CommandQueue;
use super::{Connection, Session};
use crate::resp::RespContext;
use crate::resp::command::{self, table::RespSpec};
use crate::resp::frame::Args;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_scripts::Script;
use std::rc::Rc;
use std::time::Duration;

/// How long the pause lasts, and which commands wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// From now on.
    pub lasts: Duration,
    /// Reads are still executed.
    pub writes_only: bool,
}

/// The pause of a data thread, and which connections wait for its end.
#[derive(Debug, Default)]
pub(crate) struct ClientPause {
    /// The end of the pause and whether reads are still executed, if there is a pause.
    now: Option<(Time, bool)>,
    waiting: Vec<Rc<Connection>>,
}

impl ClientPause {
    /// When the waiting connections continue, if there are any.
    pub(crate) fn due(&self) -> Option<Time> {
        self.now
            .map(|(until, _)| until)
            .filter(|_| !self.waiting.is_empty())
    }

    /// How many clients wait for its end.
    pub(crate) fn clients(&self) -> u64 {
        // Connections that are gone are held only by the list.
        let waiting = self.waiting.iter().filter(|c| Rc::strong_count(c) > 1);
        waiting.count() as u64
    }
}

impl RespContext {
    /// If a pause is on already, the later end counts, and the stricter kind. A node that ends
    /// pauses nothing: its clients leave once they are answered.
    pub(crate) fn pause(&mut self, pause: Pause) {
        if self.front.draining {
            return;
        }
        let until = self.now() + pause.lasts;
        let before = self.front.paused.now.filter(|(end, _)| *end > self.now());
        self.front.paused.now = Some(match before {
            Some((end, writes_only)) => (end.max(until), writes_only && pause.writes_only),
            None => (until, pause.writes_only),
        });
    }

    /// The pause is over.
    pub(crate) fn unpause(&mut self) {
        self.front.paused.now = None;
        for connection in self.front.paused.waiting.drain(..) {
            connection.end_pause();
        }
    }

    /// Ends a pause whose time is over.
    pub(crate) fn end_pause(&mut self) {
        if self
            .front
            .paused
            .now
            .is_some_and(|(until, _)| until <= self.now())
        {
            self.unpause();
        }
    }
}

impl Session {
    /// Whether this command waits for the end of a pause, and is run again then.
    pub(super) fn waits_for_pause(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
    ) -> bool {
        self.paused = context.pauses(args, self.queue());
        if self.paused {
            let waiting = &mut context.front.paused.waiting;
            if waiting.len() > 2 * context.front.connections.len() {
                // Connections that are gone are held only by this list.
                waiting.retain(|c| Rc::strong_count(c) > 1);
            }
            waiting.push(connection.clone());
        }
        self.paused
    }
}

/// Whether a command, or the transaction that it executes, may change something or publish a
/// message: both would reach other servers of Redis.
fn may_write(
    context: &mut RespContext,
    spec: &RespSpec,
    args: Args<'_>,
    queue: Option<&CommandQueue>,
) -> bool {
    match spec.name {
        "exec" => queue.is_some_and(CommandQueue::may_write),
        "publish" | "spublish" => true,
        "eval" => !only_reads(args.bytes(1)),
        "evalsha" => {
            let now = context.now();
            let text = context.front.scripts.get(&digest_of(args.get(1)), now);
            !text.is_some_and(only_reads)
        }
        _ => spec.is_write(),
    }
}

/// Whether a script's first line says that it writes nothing.
pub(super) fn only_reads(text: Bytes) -> bool {
    Script::parse(text).is_ok_and(|script| script.flags().no_writes)
}

impl RespContext {
    /// Whether the pause is about this command of a client with this queue. A mistake is answered at
    /// once, as in Redis.
    fn pauses(&mut self, args: Args<'_>, queue: Option<&CommandQueue>) -> bool {
        match (self.front.paused.now, command::find(args)) {
            (Some((until, false)), Ok(_)) => self.now() < until,
            (Some((until, true)), Ok(spec)) => {
                self.now() < until && may_write(self, spec, args, queue)
            }
            _ => false,
        }
    }

    /// Whether commands have to be looked at before they run.
    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        self.front.paused.now.is_some()
    }
}
