//! The state of one connection, as its commands see it. A command takes one way:
//!
//! ```text
//!   arguments ──execute──> GET, SET: at once
//!                  │
//!                  └─> commands: the rules of the user, then its family ──> an answer at once
//!                                                   │
//!                                                   └─> operations ──> pending ──> replies
//! ```
//!
//! A command is answered at once (`PING`), or becomes one operation, or several whose outcomes are
//! collected (`pending`). Outcomes arrive in any order, and replies leave in the order of the
//! commands (`replies`). A command that cannot run yet stays where it was parsed, and is run again.

mod charges;
pub(crate) mod client;
pub(crate) mod client_tracking;
mod commands;
mod connection;
mod deadlines;
mod errands;
mod held;
pub(crate) mod pause;
mod pending;
mod pushes;
mod replies;
mod subscriptions;

use super::command::{self, table};
use super::counts;
use super::frame::{Args, TooLarge};
use super::{RespContext, slowlog};
use client::{Mute, SessionClient};
use commands::transactions::Transacting;
pub(super) use connection::Took;
pub(crate) use connection::{Connection, ReplyWaiter};
use doyen_engine::command::Rights;
use errands::Errands;
use pushes::PUSH_OUTPUT;
pub(super) use replies::AGAIN_MAX;
use replies::{FoundKey, Replies};
use std::rc::Rc;
use std::time::{Duration, Instant};
use subscriptions::ClientSubscriptions;

/// If the output exceeds this, no more replies are encoded and no more commands are taken until the
/// client has read.
pub(super) const OUTPUT_BYTES_SOFT: usize = 1 << 20;
/// The same for a client that has not authenticated: its answers are short.
const STRANGER_OUTPUT_BYTES: usize = 4 << 10;
/// Keys of one command that are submitted in one slice.
const SLICE_KEYS: usize = 512;
/// Work of comparing keys or names with patterns at once. The rest waits for its turn.
const COMPARE_AT_ONCE: usize = 1 << 16;
/// If replies took more room than this, it is released once all are written.
const SLOTS_KEPT_MAX: usize = 256;
/// Largest reply.
const REPLY_BYTES_MAX: usize = 512 << 20;
/// The largest value that is encoded before it is judged whether it may leave. Larger values stand
/// apart in the output and cannot be taken back.
const READ_AT_ONCE_MAX: usize = super::output::APART_BYTES_MIN;
/// Longest name of a client.
const NAME_BYTES_MAX: usize = 256;

/// The state of a connection, and what it waits for.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) client: SessionClient,
    pub(super) replies: Replies,
    /// What `MULTI` began and `WATCH` watches.
    transacting: Option<Box<Transacting>>,
    /// What it subscribes to, and why its present command is run again.
    subscriptions: ClientSubscriptions,
    /// What its present command has asked of the control thread.
    errands: Errands,
    pub(super) judging: PasswordJudging,
    /// The last command that has no fast path, if its name alone says it.
    recent: Option<&'static table::RespSpec>,
    /// It waits for the end of a pause.
    paused: bool,
    /// No more commands are taken. The connection is closed once everything is answered.
    pub(super) closing: bool,
}

/// When a password that this client sends is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PasswordJudging {
    /// At once, unless its address gave wrong passwords lately.
    AtOnce,
    /// When its turn comes among those of its address. Until then no command is taken.
    Later,
    /// At once, because it has waited.
    Now,
}

impl Session {
    fn new(client: SessionClient, replies: Replies) -> Self {
        Self {
            client,
            replies,
            transacting: None,
            subscriptions: ClientSubscriptions::default(),
            errands: Errands::default(),
            judging: PasswordJudging::AtOnce,
            recent: None,
            paused: false,
            closing: false,
        }
    }

    /// Runs one command, or a slice of it. False if the same arguments are wanted again.
    fn execute(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
    ) -> bool {
        if self.replies.partway {
            let began = Instant::now();
            self.replies.ask_further(connection, context, args);
            let took = began.elapsed();
            context.front.counts.went_on(self.replies.command, took);
            context.front.timing.stopwatch.forget();
            return !self.replies.partway;
        }
        if self.waits_to_be_judged(context, args) {
            return false;
        }
        // What began before the pause goes on.
        if context.is_paused() && !self.is_held() && self.waits_for_pause(connection, context, args)
        {
            return false;
        }
        // A command that is run again was counted before, and it was decided then whether it gets a
        // reply.
        if !self.is_held() {
            context.front.counters.commands += 1;
            self.replies.silent = self.client.take_mute();
            if context.front.monitors.any {
                self.client.show_to_monitors(context, self.queue(), args);
            }
        }
        if self.queue().is_some() && self.queue_command(context, args) {
            return true;
        }
        let began = context.times_plain().then(Instant::now);
        if self.subscriptions.is_none()
            && (self.read_at_once(connection, context, args)
                || self.write_at_once(connection, context, args))
        {
            let took = began.map(|began| began.elapsed());
            context.front.counts.ran(self.replies.command, took);
            if let Some(took) = took {
                self.note_if_slow(context, args, took);
            }
            return true;
        }
        let kept = self.timed(connection, context, args);
        !kept && !self.replies.partway
    }

    /// Whether the present command was run before, and waited.
    pub(super) fn is_held(&self) -> bool {
        self.errands.is_held() || self.subscriptions.is_held()
    }

    /// Whether this is a password that is judged later, because its address gave wrong ones.
    #[inline]
    fn waits_to_be_judged(&mut self, context: &RespContext, args: Args<'_>) -> bool {
        let first = args.get(0).first();
        if !matches!(first, Some(b'A' | b'a' | b'H' | b'h')) || !brings_password(args) {
            return false;
        }
        if std::mem::replace(&mut self.judging, PasswordJudging::AtOnce) == PasswordJudging::AtOnce
        {
            let mut throttle = context.front.common.throttle();
            let from = self.client.peer.ip();
            if throttle.take_turn(context.now(), from).is_err() {
                self.judging = PasswordJudging::Later;
            }
        }
        self.judging == PasswordJudging::Later
    }

    /// `GET` of a key that this thread may read at once, the commonest command. It is encoded
    /// straight from the store. False: it goes the way of all other commands.
    fn read_at_once(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
    ) -> bool {
        let (client, replies) = (&self.client, &mut self.replies);
        let here = args.len() == 2
            && args.get(0).eq_ignore_ascii_case(b"GET")
            && replies.is_empty()
            && client.authenticated
            && (client.free
                || client
                    .user
                    .may_plainly(table::GET, Rights::READ, args.get(1)));
        // Such a command may have to be repeated, and then waits as long as any other.
        if !here
            || replies.silent
            || !client.touches
            || replies.deadlines.is_hurried(context.now())
            || context.is_stopped()
        {
            return false;
        }
        let key = args.get(1);
        if key.len() > context.limits().key_bytes_max {
            return false;
        }
        let found = context.read(client.keyspace, client.map, key);
        // Larger values are weighed first.
        let Some((n, value)) = found.filter(|(_, v)| v.is_none_or(|v| v.len() <= READ_AT_ONCE_MAX))
        else {
            return false;
        };
        let found = FoundKey {
            about: client.about(),
            key: args.bytes(1),
            n,
        };
        if replies.read(found, value) {
            context.front.provisional.push(connection.clone());
        }
        true
    }

    /// `SET` without options of a key that this thread leads. Only the entry is kept of the
    /// command. False: it goes the way of all other commands, which also answers its mistakes.
    fn write_at_once(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
    ) -> bool {
        let (client, replies) = (&self.client, &mut self.replies);
        let plain = args.len() == 3
            && args.get(0).eq_ignore_ascii_case(b"SET")
            && args.too_large().is_none();
        if !plain
            || !client.authenticated
            || !client.free
                && !client
                    .user
                    .may_plainly(table::SET, Rights::WRITE, args.get(1))
            || replies.deadlines.is_hurried(context.now())
            || context.is_stopped()
            || client.cluster_port && !context.is_led()
        {
            return false;
        }
        let slot = replies.next();
        let pair = (args.get(1), args.get(2));
        let waiter = || ReplyWaiter {
            connection: connection.clone(),
            slot,
            part: 0,
            read: false,
        };
        let first = context.next_number();
        let Some(token) = context.set(client.keyspace, client.map, pair, waiter) else {
            return false;
        };
        if let Some(client) = connection.no_loop.get() {
            context.note_own(client, first);
        }
        replies.wait_for_write(context, token);
        true
    }

    /// Runs a command that has no fast path, and notes how long that takes. True if the command is
    /// to be run again.
    fn timed(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
    ) -> bool {
        let number = context.front.counters.commands;
        context.front.timing.stopwatch.begin(number);
        self.replies.command = counts::UNKNOWN;
        let ran = self.run_command(connection, context, args);
        let took = context.front.timing.stopwatch.end(number);
        let kept = self.errands.waits() || self.subscriptions.is_held();
        if !kept && self.queue().is_none() {
            self.subscriptions.end_caching(self.replies.command);
        }
        if ran && !kept {
            context.front.counts.ran(self.replies.command, Some(took));
        }
        self.note_if_slow(context, args, took);
        kept
    }

    /// Whether the command ran, and was not refused before that.
    fn run_command(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
    ) -> bool {
        if let Some(what) = args.too_large() {
            let max = context.limits().value_bytes_max;
            let text = match what {
                TooLarge::Argument => {
                    format!("ERR the argument is too large: at most {max} bytes (--value-max)")
                }
                TooLarge::Command => format!(
                    "ERR the command is too large: at most four times {max} bytes (--value-max)"
                ),
            };
            self.reject(args, &text.into());
            return false;
        }
        // A pipeline mostly repeats a command. Looking for its name takes as long as parsing it.
        let again = self.recent.filter(|spec| {
            args.get(0).eq_ignore_ascii_case(spec.name.as_bytes()) && spec.takes(args.len())
        });
        let spec = match again.map_or_else(|| command::find(args), Ok) {
            Ok(spec) => spec,
            Err(why) => {
                let named = table::COMMANDS.named(args.get(0));
                let named = named.filter(|spec| spec.container().is_none());
                self.replies.command = named.map_or(counts::UNKNOWN, |spec| spec.number);
                self.reject(args, &why);
                return false;
            }
        };
        if again.is_none() {
            self.recent = Some(spec).filter(|spec| table::COMMANDS.is_single(spec));
        }
        self.replies.command = spec.number;
        let admitted = self.admits(context, spec, args);
        let protocol = self.replies.protocol;
        if let Err(why) = admitted.and_then(|()| self.subscriptions.admits(protocol, spec)) {
            self.errands.give_up();
            self.subscriptions.end_command(&mut self.replies);
            self.reject(args, &why);
            return false;
        }
        match command::parse(spec, &args, context.unix_ms()) {
            Ok(request) => {
                if !self.subscriptions.is_none() && spec.has_flag("readonly") {
                    let keys = spec.key_indexes(&args).map(|at| args.get(at));
                    let subscriptions = &self.subscriptions;
                    subscriptions.remember_keys(context, self.client.id, keys);
                }
                self.run(connection, context, args, request);
            }
            Err(error) => self.replies.answer(|e| e.error(&error.0)),
        }
        true
    }

    /// Keeps a command that took long.
    fn note_if_slow(&self, context: &mut RespContext, args: Args<'_>, took: Duration) {
        let settings = &context.front.common.settings;
        if !settings.is_slow(took) {
            return;
        }
        let command = table::COMMANDS
            .all()
            .get(usize::from(self.replies.command))
            .map(|spec| spec.name);
        let (id, most) = (context.front.common.next_slow(), settings.slow_entries());
        let slow = slowlog::Slow {
            id,
            unix_s: context.unix_ms() / 1000,
            took,
            args: slowlog::kept(command, args, slowlog::SLOW),
            peer: self.client.peer,
            name: self.client.name.clone(),
        };
        context.front.slow.push(slow, most);
    }

    /// Whether no further command is taken for now.
    pub(super) fn is_blocked(&self) -> bool {
        if self.errands.waits() {
            return true;
        }
        if self.replies.partway {
            return self.replies.holds_further();
        }
        let output_max = if self.client.authenticated {
            OUTPUT_BYTES_SOFT
        } else {
            STRANGER_OUTPUT_BYTES
        };
        self.closing
            || self.paused
            || self.subscriptions.waits(&self.replies)
            || self.judging == PasswordJudging::Later
            || self.replies.is_full(output_max)
    }

    /// Whether earlier commands, or the client itself, hold up the next one. One that waits for an
    /// errand of its own is not held up.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_blocked() && !self.is_held()
    }

    /// Whether everything is answered, apart from what is still in the output.
    pub(super) fn is_answered(&self) -> bool {
        self.replies.is_empty() && self.replies.has_no_pushes()
    }

    /// Whether every command is answered, and none is expected to come only rarely.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_answered() && !self.paused && !self.subscriptions.is_subscriber()
    }

    /// No more commands are taken. The client gets the reason, if there is one.
    pub(super) fn end(&mut self, why: Option<String>) {
        if let Some(why) = why {
            self.replies.answer(|e| e.error(&why));
        }
        self.closing = true;
    }

    /// The input is not the protocol: the client gets the error, and the connection is closed once
    /// everything earlier is answered.
    pub(super) fn protocol_error(&mut self, text: &str) {
        self.replies.silent = self.client.mute == Mute::All;
        self.replies.command = counts::UNKNOWN;
        self.end(Some(text.to_owned()));
    }

    /// Encodes the replies whose turn it is. True if there is something to write, or if a reply
    /// that the client does not want is done.
    pub(super) fn encode_ready(&mut self) -> bool {
        let any = self.replies.encode_ready();
        if !self.subscriptions.is_none() {
            self.subscriptions.forget_idle(&mut self.replies);
        }
        any
    }

    /// How many bytes of output wait for the client, and whether it has subscriptions.
    pub(super) fn output_waiting(&self) -> (usize, bool) {
        let waiting = self.replies.output_waiting();
        if self.subscriptions.is_subscriber() || self.subscriptions.is_monitor() {
            (waiting + self.replies.pushes_bytes(), true)
        } else {
            (waiting, false)
        }
    }

    /// This many bytes of output are not written yet, including `out`. `now` of them count as
    /// answers.
    pub(super) fn count_unwritten(&mut self, unsent: usize, now: usize) {
        self.replies.unsent = unsent;
        // Others hold most of what a subscriber has not taken, too.
        let now = if self.subscriptions.is_subscriber() {
            now.min(PUSH_OUTPUT)
        } else {
            now
        };
        self.replies.charges.count_unwritten(now);
    }
}

/// Whether a command comes with a password.
fn brings_password(args: Args<'_>) -> bool {
    let name = args.get(0);
    name.eq_ignore_ascii_case(b"AUTH") || name.eq_ignore_ascii_case(b"HELLO") && args.len() > 3
}

#[cfg(test)]
mod tests;
