//! `CLIENT PAUSE`: for a while the commands of clients wait, all of them or those that write.
//!
//! A command that comes during a pause stays where it was parsed, and its connection takes nothing
//! more until the pause is over.

use super::*;
use crate::resp::command::table::Spec;

/// How long and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// From now on.
    pub lasts: Duration,
    /// Reads go on.
    pub writes_only: bool,
}

/// The pause of a data thread, and which connections wait for its end.
#[derive(Debug, Default)]
pub(crate) struct Paused {
    /// Its end and whether reads go on, if there is one.
    now: Option<(Time, bool)>,
    waiting: Vec<Rc<Connection>>,
}

impl Paused {
    /// When connections go on, if some wait.
    pub(crate) fn due(&self) -> Option<Time> {
        self.now
            .map(|(until, _)| until)
            .filter(|_| !self.waiting.is_empty())
    }

    /// Whether this command waits.
    fn concerns(&self, now: Time, args: Args<'_>) -> bool {
        let Some((until, writes_only)) = self.now else {
            return false;
        };
        now < until && (!writes_only || Spec::find(args.get(0)).is_some_and(Spec::is_write))
    }
}

impl Context {
    /// A later end counts, and what stops more. A node that ends pauses nothing: its clients leave
    /// once they are answered.
    pub(crate) fn pause(&mut self, pause: Pause) {
        if self.door.draining {
            return;
        }
        let until = self.now() + pause.lasts;
        let before = self.door.paused.now.filter(|(end, _)| *end > self.now());
        self.door.paused.now = Some(match before {
            Some((end, writes_only)) => (end.max(until), writes_only && pause.writes_only),
            None => (until, pause.writes_only),
        });
    }

    /// The pause is over.
    pub(crate) fn unpause(&mut self) {
        self.door.paused.now = None;
        for connection in self.door.paused.waiting.drain(..) {
            // One that is borrowed runs a command, so it does not wait.
            if let Ok(mut session) = connection.session.try_borrow_mut() {
                session.paused = false;
            }
            connection.wake();
        }
    }

    /// Ends a pause whose time is over.
    pub(crate) fn end_pause(&mut self) {
        if self
            .door
            .paused
            .now
            .is_some_and(|(until, _)| until <= self.now())
        {
            self.unpause();
        }
    }
}

impl Session {
    /// Whether this command waits for the end of a pause: it is to be run again then.
    pub(super) fn waits_for_pause(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
    ) -> bool {
        self.paused = context.door.paused.concerns(context.now(), args);
        if self.paused {
            let waiting = &mut context.door.paused.waiting;
            if waiting.len() > 2 * context.door.connections.len() {
                // Those that are gone are held here alone.
                waiting.retain(|c| Rc::strong_count(c) > 1);
            }
            waiting.push(connection.clone());
        }
        self.paused
    }
}

impl Context {
    /// Whether commands have to be looked at before they run.
    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        self.door.paused.now.is_some()
    }
}
