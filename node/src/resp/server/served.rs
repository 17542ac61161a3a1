//! A client of a data thread: what it has sent, its commands, and its output on the way.

use crate::net::grow;
use crate::resp::RespContext;
use crate::resp::budget::ClientBudget;
use crate::resp::common::Seat;
use crate::resp::frame::Parser;
use crate::resp::output::ClientOutput;
use crate::resp::session::Connection;
use crate::resp::spilled::Spilled;
use crate::resp::stream::ClientStream;
use bytes::{Bytes, BytesMut};
use doyen_gossip::Time;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Instant;

/// Commands of one client in one pass. Each takes microseconds, so a pass stays far below the 5 ms
/// that others may wait.
const PASS_COMMANDS_MAX: usize = 256;
/// Bytes of values handled for one client in one pass, about.
const PASS_WORK_MAX: usize = 4 << 20;
/// The entries of longer keys are not loaded beforehand.
const WARM_KEY_BYTES: usize = 512;
/// Outputs above this share the room of a pass for large ones.
const LARGE_OUTPUT: usize = 64 << 10;
/// The shared read buffer. If less room than this is left, it is not enough for one read.
const SCRATCH_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 16 << 10;
/// Most bytes of one read.
const READ_BYTES_MAX: usize = 64 << 10;
/// The same for a client that has not authenticated.
const STRANGER_READ_BYTES_MAX: usize = 4 << 10;

/// A client of this thread.
pub(super) struct ServedClient {
    pub(super) id: u64,
    pub(super) connection: Rc<Connection>,
    pub(super) stream: ClientStream,
    parser: Parser,
    /// There may be something to read.
    pub(super) readable: bool,
    /// The input must be read to its end, even if only the end is left.
    pub(super) ending: bool,
    /// It may take output.
    pub(super) writable: bool,
    /// Bytes that were read and not parsed yet.
    input: BytesMut,
    /// `input` is a part of the shared buffer.
    borrowed: bool,
    /// Commands that are parsed and not all run, the next one among them, and how many there are.
    chunk: Bytes,
    chunk_next: usize,
    chunk_len: usize,
    /// When the pass began in which they came, or in which earlier ones no longer held them up.
    came: Time,
    /// Earlier commands hold them up.
    held_up: bool,
    /// There may be whole commands in `input`.
    unparsed: bool,
    /// The text of a protocol error that follows the parsed commands.
    error: Option<String>,
    /// The client sends nothing more.
    pub(super) ended: bool,
    /// Output on its way to the client.
    pub(super) output: ClientOutput,
    pub(super) spill: Spilled,
    /// Since when more output waits than the soft limit allows.
    pub(super) over_since: Option<Time>,
    budget: Rc<ClientBudget>,
    /// It is among those whose passwords are judged later.
    pub(super) judged_later: bool,
    /// The connection was closed in order: it does not count any more, and further input is
    /// dropped.
    pub(super) lingers: bool,
    /// Its place among the allowed clients, as long as it counts.
    seat: Option<Seat>,
}

/// What a client does after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientStep {
    /// It waits for its socket, or for outcomes.
    Wait,
    /// It continues in the next pass.
    Again,
    /// It continues in the next pass and comes first, because there was no time for it in this one.
    Left,
    /// Everything is answered and written, and no more input is expected or wanted.
    Finished,
    /// The connection is gone.
    Broken,
}

impl ServedClient {
    pub(super) fn new(
        context: &RespContext,
        id: u64,
        connection: Rc<Connection>,
        stream: ClientStream,
        seat: Seat,
    ) -> Self {
        Self {
            id,
            connection,
            stream,
            parser: Parser::new(context.limits().value_bytes_max),
            readable: true,
            ending: false,
            writable: true,
            input: BytesMut::new(),
            borrowed: false,
            chunk: Bytes::new(),
            chunk_next: 0,
            chunk_len: 0,
            came: context.now(),
            held_up: false,
            unparsed: false,
            error: None,
            ended: false,
            output: ClientOutput::default(),
            spill: Spilled {
                took_at: context.now(),
                ..Spilled::default()
            },
            over_since: None,
            budget: context.front.budget.clone(),
            judged_later: false,
            lingers: false,
            seat: Some(seat),
        }
    }

    /// Parses what is there or can be read, unless parsed commands wait already. Returns how many
    /// commands are ready to run.
    pub(super) fn prepare(&mut self, context: &mut RespContext, scratch: &mut BytesMut) -> usize {
        {
            let session = self.connection.session.borrow();
            if self.lingers
                || self.connection.expelled.get()
                || session.closing
                || session.is_blocked()
            {
                return 0;
            }
        }
        if self.chunk_next >= self.chunk_len && (self.unparsed || self.read(context, scratch)) {
            self.parse(context);
        }
        self.chunk_len - self.chunk_next
    }

    /// Keys of the parsed commands: the first argument of most commands is a key. Some name a field
    /// or a member, too.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        let all = self.parser.commands(&self.chunk).skip(self.chunk_next);
        let keys = all.map(|args| {
            let field: &[u8] = match args.get(0) {
                [b'h' | b'H', ..] => args.get(2),
                // SADD, SREM and SISMEMBER, but no command on strings.
                [b's' | b'S', b'a' | b'A' | b'i' | b'I' | b'r' | b'R', ..] => args.get(2),
                // ZADD, ZINCRBY and ZSCORE.
                [b'z' | b'Z', b'a' | b'A' | b'i' | b'I' | b's' | b'S', ..] => {
                    args.get(args.len() - 1)
                }
                _ => &[],
            };
            (args.get(1), field)
        });
        keys.filter(|(key, field)| {
            !key.is_empty() && key.len() <= WARM_KEY_BYTES && field.len() <= WARM_KEY_BYTES
        })
    }

    /// Reads. True if there is something new to parse.
    fn read(&mut self, context: &mut RespContext, scratch: &mut BytesMut) -> bool {
        if self.ended || !self.readable || !self.connection.may_read(self.id, context.now()) {
            return false;
        }
        if scratch.len() < READ_BYTES_MIN {
            *scratch = BytesMut::zeroed(SCRATCH_BYTES);
        }
        let stranger = !self.connection.session.borrow().client.authenticated;
        let room = scratch.len().min(if stranger {
            STRANGER_READ_BYTES_MAX
        } else {
            READ_BYTES_MAX
        });
        let handshaking = self.stream.is_handshaking();
        let read = self.stream.read(&mut scratch[..room]);
        if handshaking
            && !self.stream.is_handshaking()
            && let Some(name) = self.stream.common_name()
        {
            let mut session = self.connection.session.borrow_mut();
            session.client.recognize(context, name.as_bytes());
        }
        match read {
            Ok(0) => {
                self.ended = true;
                false
            }
            Ok(read) => {
                context.front.counters.input_bytes += read as u64;
                // The read did not fill the buffer, so there was no more input. The poll announces
                // further input, but not always the end.
                self.readable = read == room || self.ending;
                self.connection.heard_at.set(context.now());
                let new = scratch.split_to(read);
                if self.input.is_empty() {
                    self.input = new;
                    self.borrowed = true;
                } else {
                    self.own_input();
                    grow::append(&mut self.input, &new);
                }
                self.unparsed = true;
                true
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                false
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => false,
            Err(e) => {
                if handshaking && let Some(tls) = &context.front.tls {
                    let from = self.connection.session.borrow().client.peer.ip();
                    tls.handshake_failed(from, &e);
                }
                self.connection.expelled.set(true);
                false
            }
        }
    }

    /// Writes what is ready, then decides what is next. `room` is how much large outputs may still
    /// take of this pass.
    pub(super) fn output(&mut self, context: &mut RespContext, room: &mut usize) -> ClientStep {
        if self.lingers {
            return self.sink();
        }
        if self.connection.expelled.get() {
            return ClientStep::Broken;
        }
        if self.writable && self.stream.wants_write() {
            match self.stream.flush() {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(_) => return ClientStep::Broken,
            }
        }
        let (mut moved, mut unfinished) = (false, None);
        loop {
            if self.output.is_empty() {
                if let Some(next) = self.spill.outputs.pop_front() {
                    self.spill.bytes -= next.held();
                    self.output = next;
                    continue;
                }
                let mut session = self.connection.session.borrow_mut();
                session.encode_ready();
                context.count_errors(&mut session.replies.failed);
                if session.replies.out.is_empty() {
                    break;
                }
                session.replies.swap_out(&mut self.output);
            }
            if !self.writable {
                break;
            }
            let large = self.output.len() > LARGE_OUTPUT;
            if large && *room == 0 {
                unfinished = Some(if moved {
                    ClientStep::Again
                } else {
                    ClientStep::Left
                });
                break;
            }
            let most = portion(self.output.len(), *room);
            match self.output.write(&mut self.stream, most) {
                Ok((0, _)) => return ClientStep::Broken,
                Ok((written, whole)) => {
                    context.front.counters.output_bytes += written as u64;
                    // If there is no more room, the system announces when there is some, so there
                    // is no need to try.
                    self.writable = self.stream.has_room(whole);
                    if large {
                        *room = room.saturating_sub(written);
                    }
                    moved = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return ClientStep::Broken,
            }
        }
        if moved {
            self.connection.moved_at.set(context.now());
            (self.spill.took_at, self.spill.on) = (context.now(), false);
        }
        let commands_wait =
            self.chunk_next < self.chunk_len || self.unparsed || self.readable && !self.ended;
        let (blocked, waits, answered, closing, more) = {
            let mut session = self.connection.session.borrow_mut();
            let more = self
                .spill
                .run(context.now(), &mut session, &self.output, &self.budget);
            context.count_errors(&mut session.replies.failed);
            let unwritten = self.spill.unwritten(&self.output);
            session.replies.wrote_all_but(unwritten);
            let blocked = session.is_blocked();
            let waits = session.replies.waits_in_line().is_some();
            if session.replies.takes_nothing() && (self.ending || context.front.draining) {
                // Nothing is owed to it. Until something comes, no read would notice its end.
                return ClientStep::Finished;
            }
            // A client that has not authenticated sends no more than fits.
            let unread = blocked && !self.writable && !self.output.is_empty();
            self.spill.stuck =
                unread && commands_wait && session.client.authenticated && !session.closing;
            (blocked, waits, session.is_answered(), session.closing, more)
        };
        if blocked && (!self.writable || waits) && self.borrowed {
            self.leave_room();
        }
        if more {
            return ClientStep::Again;
        }
        if let Some(next) = unfinished {
            return next;
        }
        let answered = answered && self.output.is_empty() && !self.stream.wants_write();
        if closing {
            return if answered {
                ClientStep::Finished
            } else {
                ClientStep::Wait
            };
        }
        if blocked {
            return ClientStep::Wait;
        }
        if self.chunk_next < self.chunk_len || self.unparsed {
            return ClientStep::Again;
        }
        if !self.ended && self.readable && self.connection.may_read(self.id, context.now()) {
            return ClientStep::Again;
        }
        if answered && (self.ended || context.front.draining) {
            ClientStep::Finished
        } else {
            ClientStep::Wait
        }
    }

    /// Runs parsed commands, at most one pass of them. Returns how many bytes their values had.
    pub(super) fn run_commands(&mut self, context: &mut RespContext) -> usize {
        if self.chunk_next >= self.chunk_len {
            return 0;
        }
        let mut work = 0;
        // Other clients' remaining work does not count here.
        context.take_work();
        context.front.scripts.take_work();
        context.front.timing.stopwatch.forget();
        if std::mem::take(&mut self.held_up) {
            self.came = context.now();
        }
        self.connection.session.borrow_mut().replies.came = self.came;
        for args in self.parser.commands(&self.chunk).skip(self.chunk_next) {
            // This also counts what other clients have run since these commands were parsed.
            if work >= PASS_WORK_MAX || self.connection.session.borrow().is_blocked() {
                break;
            }
            // Only a client that does something makes progress: a waiting one is woken whenever
            // others give room.
            self.connection.moved_at.set(context.now());
            if !self.connection.execute(context, args) {
                // One slice is done: the others come first.
                break;
            }
            self.chunk_next += 1;
            work += context.take_work();
            work += context.front.scripts.take_work();
        }
        if self.chunk_next >= self.chunk_len {
            self.end_chunk(context);
        } else {
            self.held_up = self.connection.session.borrow().is_held_up();
        }
        if self.ending {
            self.connection.leave_pause();
        }
        self.count_input();
        let behind = self.chunk_next < self.chunk_len || self.unparsed || self.readable;
        self.connection.behind.set(behind);
        if !behind {
            self.connection.caught_up();
        }
        work
    }

    /// A few bytes of an unfinished command must not keep the shared buffer alive.
    fn own_input(&mut self) {
        if std::mem::take(&mut self.borrowed) && !self.input.is_empty() {
            self.input = BytesMut::from(&self.input[..]);
        }
    }

    /// Commands that wait until the client reads must not keep the shared buffer alive: it may be
    /// many times as large as they are.
    fn leave_room(&mut self) {
        self.own_input();
        self.borrowed = false;
        if !self.chunk.is_empty() {
            self.chunk = Bytes::copy_from_slice(&self.chunk);
        }
    }

    /// How much the client's input holds.
    fn count_input(&self) {
        let now = self.input.len() + self.chunk.len() + self.parser.bytes();
        let before = self.connection.input_held.replace(now);
        if now != before {
            self.budget.count_input(self.id, before, now);
        }
    }

    /// Finds whole commands, and a protocol error that follows them.
    fn parse(&mut self, context: &mut RespContext) {
        let authenticated = self.connection.session.borrow().client.authenticated;
        // Before authentication, one by one, because each may change what is allowed.
        let most = if authenticated { PASS_COMMANDS_MAX } else { 1 };
        let (taken, result) = self.parser.parse(&self.input, authenticated, most);
        self.chunk = self.input.split_to(taken).freeze();
        self.chunk_next = 0;
        self.came = context.now();
        self.chunk_len = self.parser.commands(&self.chunk).count();
        self.unparsed = self.chunk_len == most && !self.input.is_empty();
        if let Err(why) = result {
            self.error = Some(why.to_string());
        }
        if self.input.is_empty() {
            self.input = BytesMut::new();
        } else if !self.unparsed {
            self.own_input();
        }
        if self.chunk_len == 0 {
            self.end_chunk(context);
        }
        self.count_input();
    }

    /// All parsed commands are run.
    fn end_chunk(&mut self, context: &mut RespContext) {
        self.parser.clear();
        // The shared buffer gets the room back once no operation holds one of its keys.
        self.chunk = Bytes::new();
        if let Some(text) = self.error.take() {
            context.front.counters.protocol_errors += 1;
            let mut session = self.connection.session.borrow_mut();
            if let Some(others) = context.front.misread.happened(Instant::now()) {
                let why = text.strip_prefix("ERR Protocol error: ").unwrap_or(&text);
                tracing::warn!(
                    "the client at {} is disconnected, because it does not send RESP: \
                     {why}{others}",
                    session.client.peer.ip()
                );
            }
            session.protocol_error(&text);
        }
    }

    /// The client does not count any more.
    pub(super) fn forget(&mut self, context: &mut RespContext) {
        self.budget
            .count_input(self.id, self.connection.input_held.take(), 0);
        self.seat = None;
        let unwritten = self.spill.unwritten(&self.output);
        self.spill.end(&self.budget);
        if context.front.connections.remove(&self.id).is_some() {
            context.front.common.set_home(self.id, None);
            self.connection.abandon(context, unwritten);
        }
    }

    /// Drops the further input of a client whose connection was closed in order.
    pub(super) fn sink(&mut self) -> ClientStep {
        let mut sink = [0; 4096];
        loop {
            match self.stream.drop_input(&mut sink) {
                Ok(0) => return ClientStep::Broken,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return ClientStep::Wait,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return ClientStep::Broken,
            }
        }
    }
}

/// How much of an output is written at once, if large ones have this `room` left in the pass. A
/// little that would be left over goes along: it would cost another write, and wake the client once
/// more.
fn portion(output: usize, room: usize) -> usize {
    if output <= LARGE_OUTPUT || output - LARGE_OUTPUT <= room {
        output
    } else {
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of 1 MiB took three writes, the last one of 16 bytes.
    #[test]
    fn a_little_that_would_be_left_over_is_written_with_the_rest() {
        let (mut left, mut passes) = ((1 << 20) + 16, 0);
        while left > 0 {
            left -= portion(left, 512 << 10);
            passes += 1;
        }
        assert_eq!(passes, 2);
        assert_eq!(portion(LARGE_OUTPUT, 0), LARGE_OUTPUT);
        assert_eq!(portion(10 << 20, 1 << 10), 1 << 10);
    }
}
