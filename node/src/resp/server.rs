//! Sockets of Redis clients. One task a connection: it reads once, runs every whole command of that read, and writes
//! once; what waits for other nodes is written when its outcomes come.

use super::budget::Budget;
use super::frame::Parser;
use super::session::Connection;
use crate::data::core::Core;
use bytes::{Buf, Bytes, BytesMut};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;

/// Commands of one pass. Each takes microseconds, so a pass stays far below the 5 ms that a task may hold the thread.
const PASS_COMMANDS_MAX: usize = 256;
/// Bytes of values handled in one pass, about.
const PASS_WORK_MAX: usize = 4 << 20;
/// A larger output buffer than this is given back once it is written.
const OUTPUT_KEPT_MAX: usize = 256 << 10;
/// Room for one read.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 16 << 10;
/// How long a client has to take notice that its connection was closed in order.
const LINGER: Duration = Duration::from_secs(1);
/// After `accept` failed, for instance for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts until draining begins.
pub(crate) async fn listen(core: Rc<Core>, listener: TcpListener, cluster_port: bool) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = draining(&core) => return,
        };
        match accepted {
            Ok((stream, _)) => admit(&core, stream, cluster_port),
            Err(why) => {
                tracing::warn!("a client could not be accepted: {why}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn draining(core: &Core) {
    let mut changed = pin!(core.connections_changed.notified());
    loop {
        changed.as_mut().enable();
        if core.draining.get() {
            return;
        }
        changed.as_mut().await;
        changed.set(core.connections_changed.notified());
    }
}

fn admit(core: &Rc<Core>, stream: TcpStream, cluster_port: bool) {
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return };
    let mut inner = core.inner.borrow_mut();
    if inner.connections.len() >= inner.connections_max {
        inner.counters.connections_rejected += 1;
        // Into an empty socket buffer; who does not get it sees the connection closed.
        let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
        return;
    }
    if let Err(why) = stream.set_nodelay(true) {
        tracing::debug!("TCP_NODELAY: {why}");
    }
    inner.connection_last += 1;
    inner.counters.connections += 1;
    let id = inner.connection_last;
    let (budget, now) = (inner.budget.clone(), inner.now);
    let connection = Connection::new(id, cluster_port, (local, peer), inner.password.is_none(), budget.clone(), now);
    inner.connections.insert(id, connection.clone());
    let parser = Parser::new(inner.limits.value_bytes_max);
    let task = Task {
        core: core.clone(),
        id,
        connection,
        stream,
        parser,
        input: BytesMut::new(),
        chunk: Bytes::new(),
        chunk_next: 0,
        chunk_len: 0,
        unparsed: false,
        ended: false,
        output: BytesMut::new(),
        output_bytes: 0,
        budget,
    };
    tokio::task::spawn_local(task.run());
}

struct Task {
    core: Rc<Core>,
    id: u64,
    connection: Rc<Connection>,
    stream: TcpStream,
    parser: Parser,
    /// Read and not parsed.
    input: BytesMut,
    /// Commands that are parsed and not all run, which of them is next, and how many there are.
    chunk: Bytes,
    chunk_next: usize,
    chunk_len: usize,
    /// There may be whole commands in `input`.
    unparsed: bool,
    /// The client sends nothing more.
    ended: bool,
    /// On its way out.
    output: BytesMut,
    /// How much that was.
    output_bytes: usize,
    budget: Rc<Budget>,
}

enum Event {
    /// There are commands to run.
    Run,
    /// Everything is answered and written, and nothing more comes or is wanted.
    Finished,
    /// The client is gone.
    Broken,
}

impl Task {
    async fn run(mut self) {
        let mut in_a_row = 0;
        loop {
            self.connection.running.set(false);
            let mut waited = false;
            let event = poll_fn(|cx| {
                let event = self.poll(cx);
                waited |= event.is_pending();
                event
            })
            .await;
            self.connection.running.set(true);
            match event {
                Event::Run => {
                    in_a_row = if waited { 0 } else { in_a_row };
                    in_a_row += self.run_commands();
                    if in_a_row >= PASS_COMMANDS_MAX {
                        in_a_row = 0;
                        yield_now().await;
                    }
                }
                Event::Finished => {
                    self.forget();
                    self.close().await;
                    return;
                }
                Event::Broken => return,
            }
        }
    }

    /// Writes what is ready, then finds out what is next.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        {
            let mut waker = self.connection.waker.borrow_mut();
            if waker.as_ref().is_none_or(|w| !w.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        if self.connection.expelled.get() {
            return Poll::Ready(Event::Broken);
        }
        let mut moved = false;
        loop {
            if self.output.is_empty() {
                if self.output_bytes > OUTPUT_KEPT_MAX {
                    self.output = BytesMut::new();
                }
                let mut session = self.connection.session.borrow_mut();
                session.encode_ready();
                self.output_bytes = session.out.len();
                if session.out.is_empty() {
                    break;
                }
                std::mem::swap(&mut session.out, &mut self.output);
            }
            match Pin::new(&mut self.stream).poll_write(cx, &self.output) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Event::Broken),
                Poll::Ready(Ok(written)) => {
                    self.output.advance(written);
                    moved = true;
                }
                Poll::Pending => break,
            }
        }
        if moved {
            self.connection.moved_at.set(self.core.inner.borrow().now);
        }
        let (blocked, answered, closing) = {
            let mut session = self.connection.session.borrow_mut();
            let unwritten = session.out.len() + self.output.len();
            session.count_unwritten(unwritten);
            (session.is_blocked(), session.is_answered(), session.closing)
        };
        let answered = answered && self.output.is_empty();
        if closing {
            return if answered { Poll::Ready(Event::Finished) } else { Poll::Pending };
        }
        if blocked {
            return Poll::Pending;
        }
        if self.chunk_next < self.chunk_len || self.unparsed {
            return Poll::Ready(Event::Run);
        }
        if !self.ended && self.connection.may_read(self.id, cx.waker(), || self.core.inner.borrow().now) {
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) => self.ended = true,
                Poll::Ready(Ok(_)) => return Poll::Ready(Event::Run),
                Poll::Ready(Err(_)) => return Poll::Ready(Event::Broken),
                Poll::Pending => {}
            }
        }
        if answered && (self.ended || self.core.draining.get()) { Poll::Ready(Event::Finished) } else { Poll::Pending }
    }

    /// Into the thread's common buffer where this connection has no partial command, so that idle ones hold none.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let borrowed = self.input.is_empty();
        if borrowed {
            self.input = std::mem::take(&mut self.core.inner.borrow_mut().scratch);
        }
        if self.input.capacity() - self.input.len() < READ_BYTES_MIN {
            self.input.reserve(READ_BYTES);
        }
        let read = pin!(self.stream.read_buf(&mut self.input)).poll(cx);
        if borrowed && self.input.is_empty() {
            self.core.inner.borrow_mut().scratch = std::mem::take(&mut self.input);
        }
        self.unparsed = matches!(read, Poll::Ready(Ok(1..)));
        read
    }

    /// Runs parsed commands, at most one pass of them, and says how many.
    fn run_commands(&mut self) -> usize {
        self.core.begin();
        let (mut ran, mut work) = (0, 0);
        {
            let error = if self.chunk_next >= self.chunk_len { self.parse() } else { None };
            let mut inner = self.core.inner.borrow_mut();
            self.connection.moved_at.set(inner.now);
            // What others left of theirs is not ours.
            inner.shard.take_work();
            for args in self.parser.commands(&self.chunk).skip(self.chunk_next) {
                if !self.connection.execute(&mut inner, args) {
                    // A slice: others first.
                    ran = PASS_COMMANDS_MAX;
                    break;
                }
                self.chunk_next += 1;
                ran += 1;
                work += inner.shard.take_work();
                if work >= PASS_WORK_MAX {
                    ran = PASS_COMMANDS_MAX;
                    break;
                }
                if self.connection.session.borrow().is_blocked() {
                    break;
                }
            }
            if let Some(text) = error {
                inner.counters.errors += 1;
                inner.counters.protocol_errors += 1;
                self.connection.session.borrow_mut().protocol_error(&text);
            }
            if self.chunk_next >= self.chunk_len {
                // What is frozen goes back to the buffer once no operation holds a key of it.
                self.parser.clear();
                self.chunk = Bytes::new();
                if self.input.is_empty() {
                    inner.scratch = std::mem::take(&mut self.input);
                }
            }
        }
        self.count_input();
        self.core.pump();
        ran
    }

    /// What it holds of what the client sent.
    fn count_input(&self) {
        let input = if self.input.is_empty() { 0 } else { self.input.capacity() };
        let now = input + self.chunk.len() + self.parser.bytes();
        let before = self.connection.input_held.replace(now);
        if now != before {
            self.budget.count_input(self.id, before, now);
        }
    }

    /// Finds whole commands, and gives the text of a protocol error that follows them.
    fn parse(&mut self) -> Option<String> {
        let authenticated = self.connection.session.borrow().authenticated;
        // One by one before the password, because each may change what is allowed.
        let most = if authenticated { PASS_COMMANDS_MAX } else { 1 };
        let (taken, result) = self.parser.parse(&self.input, authenticated, most);
        self.chunk = self.input.split_to(taken).freeze();
        self.chunk_next = 0;
        self.chunk_len = self.parser.commands(&self.chunk).count();
        self.unparsed = self.chunk_len == most && !self.input.is_empty();
        result.err().map(|e| e.to_string())
    }

    /// The connection counts no more.
    fn forget(&self) {
        self.budget.count_input(self.id, self.connection.input_held.take(), 0);
        let mut inner = self.core.inner.borrow_mut();
        if inner.connections.remove(&self.id).is_some() {
            self.connection.abandon(&mut inner);
            drop(inner);
            self.core.connections_changed.notify_waiters();
        }
    }

    /// Says that nothing more comes, and reads on for a while: closing with unread bytes would send a reset, which
    /// can overtake the last replies.
    async fn close(&mut self) {
        if self.stream.shutdown().await.is_err() || self.ended {
            return;
        }
        let mut sink = [0; 4096];
        let rest = async { while matches!(self.stream.read(&mut sink).await, Ok(1..)) {} };
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.forget();
    }
}
