//! One connection: its unanswered operations, and the bytes on their way.

use super::super::CommandFailed;
use super::super::plan::{LoadOperation, OperationKind};
use super::super::schedule::{Clock, Schedule};
use super::super::{plan::BenchPlan, recorder::Recorder};
use super::command::RespCommand;
use super::route::Router;
use super::scan::{MalformedReply, ScannedReply, Scanner};
use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

/// State that the connections of a thread share.
#[derive(Debug)]
pub(super) struct RespShared {
    pub(super) clock: Clock,
    pub(super) plan: BenchPlan,
    pub(super) schedule: Schedule,
    pub(super) recorder: Recorder,
    /// Only with a Redis Cluster. Without one, every server answers for every key.
    pub(super) router: Option<Router>,
    pub(super) get: RespCommand,
    pub(super) set: RespCommand,
    pub(super) delete: RespCommand,
    pub(super) in_flight: usize,
    pub(super) batch: bool,
}

/// An operation that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentOperation {
    pub(super) operation: LoadOperation,
    pub(super) intended: u64,
    /// Replies that have not come yet: two if WAIT follows.
    left: u8,
    /// Whether another master redirected the operation to this one.
    pub(super) moved: bool,
    outcome: ReplyOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ReplyOutcome {
    Done { found: bool },
    Failed,
    Moved,
}

impl SentOperation {
    pub(super) fn new(operation: LoadOperation, intended: u64, replies: u8) -> Self {
        Self {
            operation,
            intended,
            left: replies,
            moved: false,
            outcome: ReplyOutcome::Done { found: false },
        }
    }

    /// The same operation, redirected to another master.
    pub(super) fn sent_on(self) -> Self {
        Self {
            moved: true,
            ..self
        }
    }
}

impl RespShared {
    fn command(&self, kind: OperationKind) -> &RespCommand {
        match kind {
            OperationKind::Get => &self.get,
            OperationKind::Set => &self.set,
            OperationKind::Delete => &self.delete,
        }
    }

    /// The next operation of the lane, if one may start.
    fn next(&mut self, lane: usize, master: usize, now: u64) -> Option<SentOperation> {
        let moved = self
            .router
            .as_mut()
            .and_then(|router| router.next_moved(master));
        let (operation, intended, moved) = match moved {
            Some(sent) => (sent.operation, sent.intended, true),
            None => {
                let intended = self.schedule.take(lane, now)?;
                let operation = match &mut self.router {
                    Some(router) => router.next(master, &mut self.plan),
                    None => self.plan.next(),
                };
                let Some(operation) = operation else {
                    self.schedule.give_back(lane);
                    return None;
                };
                self.recorder.sent(now);
                (operation, intended, false)
            }
        };
        let replies = 1 + u8::from(self.command(operation.kind).wait().is_some());
        Some(SentOperation {
            moved,
            ..SentOperation::new(operation, intended, replies)
        })
    }
}

/// A connection to a server. Its number is its lane in the schedule.
#[derive(Debug)]
pub(super) struct BenchConnection {
    pub(super) stream: TcpStream,
    peer: SocketAddr,
    lane: usize,
    /// The index of its master.
    master: usize,
    out: Vec<u8>,
    written: usize,
    waiting: VecDeque<SentOperation>,
    scanner: Scanner,
}

impl BenchConnection {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, lane: usize, master: usize) -> Self {
        Self {
            stream,
            peer,
            lane,
            master,
            out: Vec::new(),
            written: 0,
            waiting: VecDeque::new(),
            scanner: Scanner::new(),
        }
    }

    /// Whether every operation is answered.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether slots have moved, and the connection should go to another master.
    pub(super) fn is_elsewhere(&self, shared: &RespShared) -> bool {
        shared
            .router
            .as_ref()
            .is_some_and(|router| router.home(self.lane).0 != self.master)
    }

    /// Reads what arrived, and sends what then has room. `ending`: the server has said that it
    /// sends no more.
    pub(super) fn read(
        &mut self,
        shared: &mut RespShared,
        buffer: &mut [u8],
        ending: bool,
    ) -> Result<(), CommandFailed> {
        loop {
            let got = match self.stream.read(buffer) {
                Ok(0) => return Err(self.lost("it closed the connection")),
                Ok(got) => got,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.lost(&e.to_string())),
            };
            let now = shared.clock.now();
            self.take(shared, &buffer[..got], now)?;
            self.send(shared, now)?;
            // The buffer was not filled, so nothing is left to read. The next bytes cause another
            // readiness event.
            if got < buffer.len() && !ending {
                return Ok(());
            }
        }
    }

    /// Sends operations that are due and have room, and bytes that are left from before.
    pub(super) fn send(&mut self, shared: &mut RespShared, now: u64) -> Result<(), CommandFailed> {
        let room = match shared.batch {
            true if !self.is_idle() => 0,
            _ => shared.in_flight.saturating_sub(self.waiting.len()),
        };
        if room > 0 && !self.is_elsewhere(shared) {
            for _ in 0..room {
                let Some(sent) = shared.next(self.lane, self.master, now) else {
                    break;
                };
                shared
                    .command(sent.operation.kind)
                    .write(sent.operation.key, &mut self.out);
                self.waiting.push_back(sent);
            }
        }
        self.write()
    }

    /// Writes until everything is written or the socket is full. A full socket causes a readiness
    /// event later.
    pub(super) fn write(&mut self) -> Result<(), CommandFailed> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(self.lost("it takes no data")),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.lost(&e.to_string())),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    fn take(
        &mut self,
        shared: &mut RespShared,
        mut input: &[u8],
        now: u64,
    ) -> Result<(), CommandFailed> {
        let mut heard = false;
        while let Some(reply) = self
            .scanner
            .next(&mut input)
            .map_err(|MalformedReply| foreign(self.peer))?
        {
            if !std::mem::replace(&mut heard, true) {
                shared.recorder.heard(now);
            }
            let Some(mut sent) = self.waiting.front().copied() else {
                return Err(self.lost("it sent a reply without a request"));
            };
            sent.left -= 1;
            if let ReplyOutcome::Done { .. } = sent.outcome {
                sent.outcome = self.judge(shared, sent, reply);
            }
            if sent.left > 0 {
                self.waiting[0] = sent;
                continue;
            }
            self.waiting.pop_front();
            match sent.outcome {
                ReplyOutcome::Done { found } => {
                    shared
                        .recorder
                        .answered(sent.operation.kind, found, sent.intended, now)
                }
                // The recorder has counted the error; the router has the operation.
                ReplyOutcome::Failed | ReplyOutcome::Moved => {}
            }
        }
        Ok(())
    }

    /// The outcome of an operation after one more reply.
    fn judge(
        &self,
        shared: &mut RespShared,
        sent: SentOperation,
        reply: ScannedReply,
    ) -> ReplyOutcome {
        let wait = shared
            .command(sent.operation.kind)
            .wait()
            .filter(|_| sent.left == 0);
        match (reply, wait) {
            (ScannedReply::Error, _) => {
                let error = self.scanner.error();
                if error.starts_with("MOVED ")
                    && shared
                        .router
                        .as_mut()
                        .is_some_and(|router| router.moved(&error, sent))
                {
                    return ReplyOutcome::Moved;
                }
                shared.recorder.failed(&error);
                ReplyOutcome::Failed
            }
            (ScannedReply::Integer(copies), Some(wanted)) if copies < wanted.into() => {
                shared
                    .recorder
                    .failed(&format!("WAIT reported {copies} copies, not {wanted}"));
                ReplyOutcome::Failed
            }
            (_, Some(_)) => sent.outcome,
            (reply, None) => ReplyOutcome::Done {
                found: reply != ScannedReply::Nil,
            },
        }
    }

    fn lost(&self, why: &str) -> CommandFailed {
        CommandFailed::new(format!("lost the server at {}: {why}", self.peer))
    }
}

/// The peer does not speak RESP.
pub(super) fn foreign(peer: SocketAddr) -> CommandFailed {
    CommandFailed::new(format!(
        "{peer} does not answer like a Redis server: give the address of a RESP port \
         (--resp or --resp-cluster of a node)"
    ))
}
