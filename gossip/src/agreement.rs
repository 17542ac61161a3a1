//! The agreement machine: membership, election, publication of tables, leases.
//!
//! ```text
//!   messages, hints, requests, plans ──> handle(now, input) ──> poll_output()
//!                       poll_timeout() ──> handle(now, Input::Tick)
//!
//!   Outside (bootstrap, joining) ──> Seat (a member: tables, votes, lease) ──> Over (expelled, left)
//!                                      └ Office: follower, candidate, coordinator
//! ```
//!
//! The rules that the comments number are those of the design ("Rules of agreement"). In short: a coordinator is elected
//! by majorities of the voters that its tables name, publishes one table at a time, and commits it with majorities of the
//! voters of the committed and of the new one. Everything else is a function of committed tables.

mod api;
mod context;
mod coordinator;
mod duties;
mod election;
mod lease;
mod outside;
mod seat;
mod tables;

pub use api::{AdminReply, AdminRequest, Config, Event, Input, Output, Peer, Status, Timing, View};
pub use doyen_placement::planner::{InSyncChange, InSyncRequest};

use crate::time::Time;
use context::Context;
use doyen_placement::MemberId;
use outside::Outside;
use seat::Seat;

/// The machine.
#[derive(Debug)]
pub struct Agreement {
    cx: Context,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// No member of anything yet.
    Outside(Outside),
    /// A member.
    Member(Box<Seat>),
    /// Expelled, or gone.
    Over,
}

/// What a phase leads to.
#[derive(Debug)]
enum Next {
    Stay,
    Outside(Outside),
    Member(Box<Seat>),
    Over,
}

impl Agreement {
    /// A fresh process that knows nothing but its configuration.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Self {
        let mut cx = Context::new(config, now);
        let phase = match Outside::new(&mut cx) {
            Next::Member(seat) => Phase::Member(seat),
            Next::Outside(outside) => Phase::Outside(outside),
            Next::Stay | Next::Over => Phase::Over,
        };
        Self { cx, phase }
    }

    /// Takes an input.
    pub fn handle(&mut self, now: Time, input: Input) {
        // Time never runs backwards here, whatever a caller hands in.
        self.cx.now = self.cx.now.max(now);
        match input {
            Input::DataThreadAlive => self.cx.data_alive = self.cx.now,
            Input::Identified { address, id } => self.cx.identified(address, id),
            Input::Seeds(seeds) => self.cx.set_seeds(seeds),
            Input::Used => self.cx.used_asked = true,
            Input::Leave => self.cx.leaving = true,
            Input::Depart => (self.cx.leaving, self.cx.departing) = (true, true),
            other => {
                let next = match &mut self.phase {
                    Phase::Outside(outside) => outside.handle(&mut self.cx, other),
                    Phase::Member(seat) => seat.handle(&mut self.cx, other),
                    Phase::Over => Next::Stay,
                };
                self.enter(next);
            }
        }
        // A phase that has just begun acts at once.
        loop {
            let next = match &mut self.phase {
                Phase::Outside(outside) => outside.drive(&mut self.cx),
                Phase::Member(seat) => seat.drive(&mut self.cx),
                Phase::Over => Next::Stay,
            };
            if matches!(next, Next::Stay) {
                break;
            }
            self.enter(next);
        }
    }

    fn enter(&mut self, next: Next) {
        match next {
            Next::Stay => {}
            Next::Outside(outside) => self.phase = Phase::Outside(outside),
            Next::Member(seat) => self.phase = Phase::Member(seat),
            Next::Over => self.phase = Phase::Over,
        }
    }

    /// The next thing to do, in order, until there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.cx.out.pop_front()
    }

    /// When `Input::Tick` is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Outside(outside) => Some(outside.due(&self.cx)),
            Phase::Member(seat) => Some(seat.due(&self.cx)),
            Phase::Over => None,
        }
    }

    /// This process.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.cx.me
    }

    /// What this node knows of the cluster: for `status` and tests.
    #[must_use]
    pub fn status(&self, _now: Time) -> Status {
        match &self.phase {
            Phase::Outside(outside) => Status {
                me: self.cx.me,
                coordinator: None,
                leading: false,
                installed: None,
                closed: Vec::new(),
                waiting: Some(outside.waiting(&self.cx)),
            },
            Phase::Member(seat) => seat.status(&self.cx),
            Phase::Over => Status {
                me: self.cx.me,
                coordinator: None,
                leading: false,
                installed: None,
                closed: Vec::new(),
                waiting: Some("this process is no member any more".to_owned()),
            },
        }
    }

    /// Messages that were ignored because they made no sense: a counter for metrics.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.cx.ignored
    }
}
