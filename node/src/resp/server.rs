//! Sockets of Redis clients. The first data thread accepts those of the plain port and hands them
//! to all threads, so that each has as many; of the cluster-aware port each thread has its own.
//! Each pass of the data thread's loop reads what the ready ones sent and runs every whole command
//! of it (`input`), and once the outcomes were handed out writes what each of them is answered
//! (`output`), at once.

use super::budget::{Budget, STALLED_MAX};
use super::cluster;
use super::frame::Parser;
use super::output::Output;
use super::ready::Ready;
use super::session::{Connection, Judging, OUTPUT_BYTES_SOFT, Session};
use crate::data::core::Core;
use crate::data::crew::Seat;
use crate::net::address::canonical;
use crate::net::grow;
use crate::seldom::{A_MINUTE, Seldom};
use bytes::{Bytes, BytesMut};
use doyen_gossip::Time;
use doyen_placement::MapId;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use slab::Slab;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Commands of one client in one pass. Each takes microseconds, so a pass stays far below the 5 ms
/// that others may wait.
const PASS_COMMANDS_MAX: usize = 256;
/// Bytes of values handled for one client in one pass, about.
const PASS_WORK_MAX: usize = 4 << 20;
/// Commands, and bytes of values, of all clients in one pass, about; who is left comes first in the
/// next.
const PASS_ALL_COMMANDS_MAX: usize = 1024;
const PASS_ALL_WORK_MAX: usize = 4 << 20;
/// Commands from which on it pays to load what they look up beforehand, and the longest key for
/// which it does.
const WARM_LEAST: usize = 3;
const WARM_KEY_BYTES: usize = 512;
/// Clients accepted in one pass.
const PASS_ACCEPTS_MAX: usize = 64;
/// Clients with more output than this share what one pass writes, so that others do not wait for
/// megabytes to be copied: that many bytes, about, which is a tenth of a millisecond. Less would
/// cost more: each write wakes who reads. Who is left comes first in the next pass.
const LARGE_OUTPUT: usize = 64 << 10;
const PASS_LARGE_BYTES: usize = 512 << 10;
/// The common room for reading, and how little of it is too little for one read.
const SCRATCH_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 16 << 10;
/// At most so much is read at once.
const READ_BYTES_MAX: usize = 64 << 10;
/// Likewise of a client that has not said the password.
const STRANGER_READ_BYTES_MAX: usize = 4 << 10;
/// File descriptors that Redis clients leave to everything else, or a quarter of a small limit: a
/// node that is full of clients still answers HTTP.
const FILES_KEPT: u64 = 64;
/// A client that takes none of its answers for so long, while commands of it wait, is held to write
/// all of them before it reads.
const SPILL_AFTER: Duration = Duration::from_millis(100);
/// Of those that have taken nothing for so long, the one that holds most is disconnected, once it
/// has taken nothing for `STALLED_MAX`.
const SPILL_STILL: Duration = Duration::from_secs(1);
/// Answers of one client that are put aside in one pass, in outputs of `OUTPUT_BYTES_SOFT`.
const PASS_SPILLS_MAX: usize = 4;
/// How often clients are looked for that wait to be judged, and those that have said nothing for
/// too long; how many of the latter in one pass.
const JUDGE_INTERVAL: Duration = Duration::from_millis(50);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
const PASS_IDLE_MAX: usize = 1024;
/// How long a client has to take notice that its connection was closed in order.
const LINGER: Duration = Duration::from_secs(1);
/// After `accept` failed, for instance for want of file descriptors; and while this node is no
/// member yet.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listeners and the clients of one data thread.
pub(crate) struct Clients {
    registry: Registry,
    listeners: Vec<Listener>,
    /// Tokens of sockets: the listeners from the first on, the clients from the second on.
    first_tokens: (usize, usize),
    all: Slab<Client>,
    ready: Rc<Ready>,
    /// Those of this pass, and those for whom there was no time.
    turn: Vec<usize>,
    late: Vec<usize>,
    /// Where what clients send is read.
    scratch: BytesMut,
    /// When those that were closed in order are closed at last.
    lingering: Vec<(Instant, usize, u64)>,
    /// Descriptors from this one on are not for clients.
    files_max: u64,
    refused: Seldom,
    /// Those that may have to put answers aside, and those that did; when they are looked at.
    spilling: Vec<(usize, u64)>,
    spilling_at: Instant,
    ended: Seldom,
    /// Those whose passwords are judged later, and when they are looked at.
    judged_later: Vec<(usize, u64)>,
    judge_at: Instant,
    /// The next client that may have said nothing for too long, and when it is looked at.
    idle_next: usize,
    idle_at: Instant,
    looks_for_idle: bool,
}

struct Listener {
    socket: TcpListener,
    cluster_port: bool,
    ready: bool,
    paused: Option<Instant>,
}

struct Client {
    id: u64,
    connection: Rc<Connection>,
    stream: TcpStream,
    parser: Parser,
    /// There may be something to read.
    readable: bool,
    /// There is something to be read to the end, if only the end.
    ending: bool,
    /// It may take output.
    writable: bool,
    /// Read and not parsed.
    input: BytesMut,
    /// `input` is a part of the common room.
    borrowed: bool,
    /// Commands that are parsed and not all run, which of them is next, and how many there are.
    chunk: Bytes,
    chunk_next: usize,
    chunk_len: usize,
    /// There may be whole commands in `input`.
    unparsed: bool,
    /// What follows the parsed commands is not the protocol.
    error: Option<String>,
    /// The client sends nothing more.
    ended: bool,
    /// On its way out.
    output: Output,
    spill: Spilled,
    budget: Rc<Budget>,
    /// It is among those whose passwords are judged later.
    judged_later: bool,
    /// Closed in order: it counts no more, and what it still sends is dropped.
    lingers: bool,
    /// Its place among those that there may be, for as long as it counts.
    seat: Option<Seat>,
}

/// Answers that its client does not read while it still sends: they are put aside, so that the rest
/// of what it sends can be taken.
#[derive(Default)]
struct Spilled {
    /// They come after `Client::output`.
    outputs: VecDeque<Output>,
    /// Bytes of memory that these hold.
    bytes: usize,
    /// What counts for the share of such answers: they, and everything else that is not written.
    counted: usize,
    /// When the client last took anything.
    took_at: Time,
    /// It takes nothing: answers are put aside.
    on: bool,
    /// It takes nothing, and commands wait.
    stuck: bool,
    /// When there was no room for more, if it waits for that.
    waits: Option<Time>,
    /// It is among those that are looked at.
    listed: bool,
}

/// What becomes of a client after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// It waits for its socket, or for outcomes.
    Wait,
    /// It goes on in the next pass.
    Again,
    /// Likewise, and it comes first: it had no share of this one.
    Left,
    /// Everything is answered and written, and nothing more comes or is wanted.
    Finished,
    /// It is gone.
    Broken,
}

impl Clients {
    /// For listeners; their tokens, and those of clients, begin with `first_token`.
    pub(crate) fn new(
        registry: Registry,
        listeners: Vec<(std::net::TcpListener, bool)>,
        first_token: usize,
        ready: Rc<Ready>,
    ) -> io::Result<Self> {
        let mut clients = Self {
            registry,
            listeners: Vec::new(),
            first_tokens: (first_token, first_token + listeners.len()),
            all: Slab::new(),
            ready,
            turn: Vec::new(),
            late: Vec::new(),
            scratch: BytesMut::new(),
            lingering: Vec::new(),
            files_max: files_max(),
            refused: Seldom::new(A_MINUTE),
            spilling: Vec::new(),
            spilling_at: Instant::now(),
            ended: Seldom::new(A_MINUTE),
            judged_later: Vec::new(),
            judge_at: Instant::now(),
            idle_next: 0,
            idle_at: Instant::now(),
            looks_for_idle: false,
        };
        for (at, (listener, cluster_port)) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            let mut socket = TcpListener::from_std(listener);
            clients
                .registry
                .register(&mut socket, Token(first_token + at), Interest::READABLE)?;
            clients.listeners.push(Listener {
                socket,
                cluster_port,
                ready: true,
                paused: None,
            });
        }
        Ok(clients)
    }

    /// The system's news of a socket.
    pub(crate) fn event(&mut self, event: &Event) {
        let token = event.token().0;
        let Some(at) = token.checked_sub(self.first_tokens.1) else {
            if let Some(listener) = self.listeners.get_mut(token - self.first_tokens.0) {
                listener.ready = true;
            }
            return;
        };
        let Some(client) = self.all.get_mut(at) else {
            return;
        };
        client.readable |= event.is_readable() || event.is_error();
        client.ending |= event.is_read_closed() || event.is_error();
        client.writable |= event.is_writable();
        client.connection.wake();
    }

    /// Whether a pass would find something to do at once.
    pub(crate) fn is_busy(&self) -> bool {
        !self.ready.is_empty()
            || !self.late.is_empty()
            || self.listeners.iter().any(|l| l.ready && l.paused.is_none())
    }

    /// When something is due, if nothing comes.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        let paused = self.listeners.iter().filter_map(|l| l.paused);
        let spilling = (!self.spilling.is_empty()).then_some(self.spilling_at);
        let judged = (!self.judged_later.is_empty()).then_some(self.judge_at);
        let idle = (self.looks_for_idle && !self.all.is_empty()).then_some(self.idle_at);
        let lingering = self.lingering.first().map(|(until, ..)| *until);
        lingering
            .into_iter()
            .chain(paused)
            .chain(spilling)
            .chain(judged)
            .chain(idle)
            .min()
    }

    /// No more clients; those that there are leave once they are answered.
    pub(crate) fn drain(&mut self) {
        for mut listener in self.listeners.drain(..) {
            let _ = self.registry.deregister(&mut listener.socket);
        }
        self.all
            .iter()
            .for_each(|(_, client)| client.connection.wake());
    }

    /// Accepts clients, reads the ready ones and runs what they sent.
    pub(crate) fn input(&mut self, core: &mut Core, now: Instant) {
        self.accept(core, now);
        while let Some((_, at, id)) = self
            .lingering
            .first()
            .copied()
            .filter(|(until, ..)| *until <= now)
        {
            self.lingering.remove(0);
            if self.all.get(at).is_some_and(|c| c.id == id) {
                self.remove(core, at);
            }
        }
        self.look_at_spilling(core, now);
        self.look_at_judged(core, now);
        self.look_at_idle(core, now);
        // The room of the last pass: nobody is in it any more.
        let mut turn = std::mem::take(&mut self.turn);
        turn.append(&mut self.late);
        self.ready.append_to(&mut turn);
        let mut commands = 0;
        for next in 0..turn.len() {
            if commands >= PASS_ALL_COMMANDS_MAX {
                self.late.extend(turn.drain(next..));
                break;
            }
            let Some(client) = self.all.get_mut(turn[next]) else {
                continue;
            };
            // From now on a change puts it among those that are written.
            client.connection.queued.set(false);
            commands += client.prepare(core, &mut self.scratch);
        }
        core.catch_up();
        if commands >= WARM_LEAST {
            let keys = turn
                .iter()
                .filter_map(|at| self.all.get(*at))
                .flat_map(Client::keys);
            core.inner.shard.warm(cluster::KEYSPACE, MapId(0), keys);
        }
        let mut bytes = 0;
        for next in 0..turn.len() {
            if bytes >= PASS_ALL_WORK_MAX {
                // What is parsed waits as it is.
                self.late.extend(turn.drain(next..));
                break;
            }
            let Some(client) = self.all.get_mut(turn[next]) else {
                continue;
            };
            bytes += client.run_commands(core);
            let waits = matches!(client.connection.session.borrow().judging, Judging::At(_));
            if waits && !std::mem::replace(&mut client.judged_later, true) {
                if self.judged_later.is_empty() {
                    self.judge_at = now + JUDGE_INTERVAL;
                }
                self.judged_later.push((turn[next], client.id));
            }
        }
        self.turn = turn;
    }

    /// Writes what was answered.
    pub(crate) fn output(&mut self, core: &mut Core, now: Instant) {
        let mut turn = std::mem::take(&mut self.turn);
        self.ready.append_to(&mut turn);
        let (mut left, mut again, mut room) = (Vec::new(), 0, PASS_LARGE_BYTES);
        for next in 0..turn.len() {
            let at = turn[next];
            let Some(client) = self.all.get_mut(at) else {
                continue;
            };
            client.connection.queued.set(false);
            let next = client.output(core, &mut room);
            if (client.spill.stuck || client.spill.counted > 0)
                && !std::mem::replace(&mut client.spill.listed, true)
            {
                if self.spilling.is_empty() {
                    self.spilling_at = now + SPILL_AFTER;
                }
                self.spilling.push((at, client.id));
            }
            match next {
                Next::Wait => {}
                Next::Left => left.push(at),
                Next::Again => {
                    turn[again] = at;
                    again += 1;
                }
                Next::Finished => self.close(core, at, now),
                Next::Broken => self.remove(core, at),
            }
        }
        for at in left.into_iter().chain(turn.drain(..).take(again)) {
            if let Some(client) = self.all.get(at) {
                client.connection.wake();
            }
        }
        self.turn = turn;
    }

    /// Finds clients that take no answers and send more commands, and lets these be taken. Where
    /// the room for their answers is used up, it ends the one that holds most.
    fn look_at_spilling(&mut self, core: &mut Core, now: Instant) {
        if self.spilling.is_empty() || now < self.spilling_at {
            return;
        }
        self.spilling_at = now + SPILL_AFTER;
        let inner = &mut core.inner;
        let (mut wanted_at, mut largest) = (None, None);
        let all = &mut self.all;
        self.spilling.retain(|&(at, id)| {
            let Some(client) = all.get_mut(at).filter(|c| c.id == id && !c.lingers) else {
                return false;
            };
            let idle = inner.now.since(client.spill.took_at);
            if client.spill.stuck && idle >= SPILL_AFTER {
                client.spill.on = true;
                client.connection.wake();
            }
            wanted_at = wanted_at.max(client.spill.waits);
            let unsent = client.connection.session.borrow().unsent;
            if idle > SPILL_STILL && (client.spill.waits.is_some() || client.spill.counted > 0) {
                largest = largest.max(Some((unsent, at, idle > STALLED_MAX)));
            }
            client.spill.listed = client.spill.stuck || client.spill.counted > 0;
            client.spill.listed
        });
        let (bytes, at, long) = largest.unwrap_or_default();
        let spill = inner.crew.spill();
        if !spill.largest_ends(
            inner.now,
            inner.me.thread_number(),
            wanted_at,
            (bytes, long),
        ) {
            return;
        }
        let Some(client) = self.all.get(at) else {
            return;
        };
        if let Some(others) = self.ended.happened(now) {
            tracing::warn!(
                "the RESP client {} is disconnected: it sends commands and reads no answers, {bytes} bytes of answers wait for it, and the {} bytes \
                 for such answers of all clients are used up: it must read while it writes, or send shorter pipelines ({others} others since the \
                 last such line)",
                client.connection.session.borrow().peer(),
                spill.bytes_max(),
            );
        }
        inner.counters.connections_expelled += 1;
        client.connection.expelled.set(true);
        client.connection.wake();
    }

    /// Lets those go on whose passwords may be judged now.
    fn look_at_judged(&mut self, core: &Core, now: Instant) {
        if self.judged_later.is_empty() || now < self.judge_at {
            return;
        }
        self.judge_at = now + JUDGE_INTERVAL;
        let all = &mut self.all;
        self.judged_later.retain(|&(at, id)| {
            let Some(client) = all.get_mut(at).filter(|c| c.id == id && !c.lingers) else {
                return false;
            };
            let mut session = client.connection.session.borrow_mut();
            match session.judging {
                Judging::At(until) if core.inner.now < until => return true,
                Judging::At(_) => session.judging = Judging::Now,
                Judging::AtOnce | Judging::Now => {}
            }
            client.judged_later = false;
            client.connection.wake();
            false
        });
    }

    /// Ends clients that have not said the password in time, or nothing at all for too long.
    fn look_at_idle(&mut self, core: &mut Core, now: Instant) {
        let inner = &mut core.inner;
        let auth_timeout = inner.auth_timeout.filter(|_| inner.password.is_some());
        let idle_timeout = inner.crew.settings.timeout();
        self.looks_for_idle = auth_timeout.is_some() || idle_timeout.is_some();
        if !self.looks_for_idle || now < self.idle_at {
            return;
        }
        let end = self.idle_next + PASS_IDLE_MAX;
        for at in self.idle_next..end {
            let Some(client) = self
                .all
                .get(at)
                .filter(|c| !c.lingers && !c.connection.expelled.get())
            else {
                continue;
            };
            let mut session = client.connection.session.borrow_mut();
            let late = auth_timeout.filter(|most| {
                !session.authenticated && inner.now.since(session.stranger_since) > *most
            });
            let idle = idle_timeout.is_some_and(|most| {
                session.is_at_rest() && inner.now.since(client.connection.active_at()) > most
            });
            if session.closing || late.is_none() && !idle {
                continue;
            }
            inner.counters.auth_timeouts += u64::from(late.is_some());
            inner.counters.idle_timeouts += u64::from(late.is_none());
            // One that does not read what it is told is not told more.
            if client.output.is_empty() && session.out.is_empty() && session.is_answered() {
                session.end(late.map(|most| {
                    format!("NOAUTH no AUTH has come within {most:?}: this connection is closed")
                }));
            } else {
                client.connection.expelled.set(true);
            }
            drop(session);
            client.connection.wake();
        }
        (self.idle_next, self.idle_at) = if end < self.all.capacity() {
            (end, now)
        } else {
            (0, now + IDLE_INTERVAL)
        };
    }

    fn accept(&mut self, core: &mut Core, now: Instant) {
        // Who comes before this node is a member waits, as for anything else that is not served at
        // the moment.
        let early = core.inner.view.is_none()
            && core.inner.now.since(core.inner.started) < core.inner.limits.park;
        for at in 0..self.listeners.len() {
            let listener = &mut self.listeners[at];
            if listener.paused.is_some_and(|until| until <= now) {
                listener.paused = None;
            }
            if early && listener.ready {
                listener.paused = Some(now + ACCEPT_PAUSE);
            }
            for _ in 0..PASS_ACCEPTS_MAX {
                let listener = &mut self.listeners[at];
                if !listener.ready || listener.paused.is_some() {
                    break;
                }
                match listener.socket.accept() {
                    // The system gives the lowest descriptor that is free.
                    Ok((stream, _))
                        if u64::try_from(stream.as_raw_fd())
                            .is_ok_and(|fd| fd >= self.files_max) =>
                    {
                        if let Some(others) = self.refused.happened(now) {
                            tracing::warn!(
                                "RESP clients are refused, because nearly all files that this process may open are: raise the limit (ulimit -n), \
                                 or lower --connections-max ({others} more since the last such line)"
                            );
                        }
                        refuse(core, stream);
                    }
                    Ok((stream, _)) => {
                        let cluster_port = listener.cluster_port;
                        self.admit(core, stream, cluster_port);
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => listener.ready = false,
                    // It was gone before it was accepted.
                    Err(e)
                        if matches!(
                            e.kind(),
                            ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                        ) => {}
                    Err(why) => {
                        listener.paused = Some(now + ACCEPT_PAUSE);
                        if let Some(others) = self.refused.happened(now) {
                            tracing::warn!(
                                "RESP clients wait, because they cannot be accepted: {why} ({others} more since the last such line)"
                            );
                        }
                    }
                }
            }
        }
    }

    /// Gives a client its place, at this thread or another one.
    fn admit(&mut self, core: &mut Core, stream: TcpStream, cluster_port: bool) {
        let inner = &mut core.inner;
        let own = inner.me.thread_number();
        let Some(seat) = inner.crew.seat(cluster_port.then_some(own)) else {
            if let Some(others) = self.refused.happened(Instant::now()) {
                let strangers = self
                    .all
                    .iter()
                    .filter(|(_, client)| !client.connection.session.borrow().authenticated)
                    .count();
                tracing::warn!(
                    "RESP clients are refused, because there are as many as --connections-max allows; {strangers} of those at this data thread \
                     have not said the password: see who they are with CLIENT LIST, or raise --connections-max ({others} more since the \
                     last such line)"
                );
            }
            return refuse(core, stream);
        };
        if seat.thread() == own {
            self.seat(core, stream, cluster_port, seat);
        } else {
            inner.crew.hand_over(stream, seat);
        }
    }

    /// A client of the plain port that the first thread accepted.
    pub(crate) fn take_in(&mut self, core: &mut Core, stream: TcpStream, seat: Seat) {
        self.seat(core, stream, false, seat);
    }

    fn seat(&mut self, core: &mut Core, stream: TcpStream, cluster_port: bool, seat: Seat) {
        if let Err(why) = self.begin(core, stream, cluster_port, seat) {
            tracing::warn!("a client could not be admitted: {why}");
        }
    }

    fn begin(
        &mut self,
        core: &mut Core,
        mut stream: TcpStream,
        cluster_port: bool,
        seat: Seat,
    ) -> io::Result<()> {
        let inner = &mut core.inner;
        let (Ok(local), Ok(peer)) = (
            stream.local_addr().map(canonical),
            stream.peer_addr().map(canonical),
        ) else {
            return Ok(());
        };
        if let Err(why) = stream.set_nodelay(true) {
            tracing::debug!("TCP_NODELAY: {why}");
        }
        let entry = self.all.vacant_entry();
        let at = entry.key();
        let token = Token(self.first_tokens.1 + at);
        self.registry
            .register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        inner.counters.connections += 1;
        let id = inner.crew.next_connection();
        let (budget, now) = (inner.budget.clone(), inner.now);
        let connection = Connection::new(
            (id, at),
            cluster_port,
            (local, peer),
            inner.password.is_none(),
            budget.clone(),
            now,
        );
        inner.connections.insert(id, connection.clone());
        entry.insert(Client {
            id,
            connection,
            stream,
            parser: Parser::new(inner.limits.value_bytes_max),
            readable: true,
            ending: false,
            writable: true,
            input: BytesMut::new(),
            borrowed: false,
            chunk: Bytes::new(),
            chunk_next: 0,
            chunk_len: 0,
            unparsed: false,
            error: None,
            ended: false,
            output: Output::default(),
            spill: Spilled {
                took_at: now,
                ..Spilled::default()
            },
            budget,
            judged_later: false,
            lingers: false,
            seat: Some(seat),
        });
        Ok(())
    }

    /// Says that nothing more comes, and reads on for a while: closing with unread bytes would send
    /// a reset, which can overtake the last replies.
    fn close(&mut self, core: &mut Core, at: usize, now: Instant) {
        let Some(client) = self.all.get_mut(at) else {
            return;
        };
        client.forget(core);
        if client.stream.shutdown(Shutdown::Write).is_err() || client.ended {
            return self.remove(core, at);
        }
        client.lingers = true;
        self.lingering.push((now + LINGER, at, client.id));
        if client.sink() == Next::Broken {
            self.remove(core, at);
        }
    }

    fn remove(&mut self, core: &mut Core, at: usize) {
        if let Some(mut client) = self.all.try_remove(at) {
            client.forget(core);
            self.lingering.retain(|(_, _, id)| *id != client.id);
            let _ = self.registry.deregister(&mut client.stream);
        }
    }
}

/// Tells a client that there are too many.
fn refuse(core: &mut Core, mut stream: TcpStream) {
    core.inner.counters.connections_rejected += 1;
    // Into an empty socket buffer; who does not get it sees the connection closed.
    let _ = stream.write(b"-ERR max number of clients reached\r\n");
}

/// From which descriptor on clients are refused.
fn files_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(u64::MAX);
    limit - FILES_KEPT.min(limit / 4)
}

impl Client {
    /// Parses what is there or can be read, unless there are commands already; how many there are
    /// to run.
    fn prepare(&mut self, core: &mut Core, scratch: &mut BytesMut) -> usize {
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
        if self.chunk_next >= self.chunk_len && (self.unparsed || self.read(core, scratch)) {
            self.parse(core);
        }
        self.chunk_len - self.chunk_next
    }

    /// The keys of parsed commands: of most commands the first argument is one.
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.parser.commands(&self.chunk).skip(self.chunk_next);
        all.map(|args| args.get(1))
            .filter(|key| !key.is_empty() && key.len() <= WARM_KEY_BYTES)
    }

    /// Whether there is something new to parse.
    fn read(&mut self, core: &mut Core, scratch: &mut BytesMut) -> bool {
        if self.ended || !self.readable || !self.connection.may_read(self.id, core.inner.now) {
            return false;
        }
        if scratch.len() < READ_BYTES_MIN {
            *scratch = BytesMut::zeroed(SCRATCH_BYTES);
        }
        let stranger = !self.connection.session.borrow().authenticated;
        let room = scratch.len().min(if stranger {
            STRANGER_READ_BYTES_MAX
        } else {
            READ_BYTES_MAX
        });
        match Raw(&self.stream).read(&mut scratch[..room]) {
            Ok(0) => {
                self.ended = true;
                false
            }
            Ok(read) => {
                core.inner.counters.input_bytes += read as u64;
                // Less than there was room for: there was no more, and what comes next is
                // announced, but for the end.
                self.readable = read == room || self.ending;
                self.connection.heard_at.set(core.inner.now);
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
            Err(_) => {
                self.connection.expelled.set(true);
                false
            }
        }
    }

    /// Writes what is ready, then finds out what is next. `room` is what large outputs may still
    /// take of this pass.
    fn output(&mut self, core: &mut Core, room: &mut usize) -> Next {
        if self.lingers {
            return self.sink();
        }
        if self.connection.expelled.get() {
            return Next::Broken;
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
                core.inner.count_errors(&mut session.failed);
                if session.out.is_empty() {
                    break;
                }
                std::mem::swap(&mut session.out, &mut self.output);
            }
            if !self.writable {
                break;
            }
            let large = self.output.len() > LARGE_OUTPUT;
            if large && *room == 0 {
                unfinished = Some(if moved { Next::Again } else { Next::Left });
                break;
            }
            match self.output.write(
                &mut Raw(&self.stream),
                if large { *room } else { LARGE_OUTPUT },
            ) {
                Ok((0, _)) => return Next::Broken,
                Ok((written, whole)) => {
                    core.inner.counters.output_bytes += written as u64;
                    // The system has no more room where it took a part, and says when it has some:
                    // it need not be asked.
                    self.writable = whole;
                    if large {
                        *room = room.saturating_sub(written);
                    }
                    moved = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Next::Broken,
            }
        }
        if moved {
            self.connection.moved_at.set(core.inner.now);
            (self.spill.took_at, self.spill.on) = (core.inner.now, false);
        }
        let commands_wait =
            self.chunk_next < self.chunk_len || self.unparsed || self.readable && !self.ended;
        let (blocked, answered, closing, more) = {
            let mut session = self.connection.session.borrow_mut();
            let more = self
                .spill
                .run(core.inner.now, &mut session, &self.output, &self.budget);
            core.inner.count_errors(&mut session.failed);
            let blocked = session.is_blocked();
            // Who has not said the password sends no more than fits.
            let unread = blocked && !self.writable && !self.output.is_empty();
            self.spill.stuck = unread && commands_wait && session.authenticated && !session.closing;
            (blocked, session.is_answered(), session.closing, more)
        };
        if blocked && !self.writable && self.borrowed {
            self.leave_room();
        }
        if more {
            return Next::Again;
        }
        if let Some(next) = unfinished {
            return next;
        }
        let answered = answered && self.output.is_empty();
        if closing {
            return if answered { Next::Finished } else { Next::Wait };
        }
        if blocked {
            return Next::Wait;
        }
        if self.chunk_next < self.chunk_len || self.unparsed {
            return Next::Again;
        }
        if !self.ended && self.readable && self.connection.may_read(self.id, core.inner.now) {
            return Next::Again;
        }
        if answered && (self.ended || core.inner.draining) {
            Next::Finished
        } else {
            Next::Wait
        }
    }

    /// Runs parsed commands, at most one pass of them, and says how many bytes of values that was.
    fn run_commands(&mut self, core: &mut Core) -> usize {
        if self.chunk_next >= self.chunk_len {
            return 0;
        }
        let mut work = 0;
        let inner = &mut core.inner;
        // What others left of theirs is not ours.
        inner.shard.take_work();
        inner.stopwatch.forget();
        for args in self.parser.commands(&self.chunk).skip(self.chunk_next) {
            // Also because of what others have run since it was parsed.
            if work >= PASS_WORK_MAX || self.connection.session.borrow().is_blocked() {
                break;
            }
            // Only who does something moves: one that waits is woken as often as others give room.
            self.connection.moved_at.set(inner.now);
            if !self.connection.execute(inner, args) {
                // A slice: others first.
                break;
            }
            self.chunk_next += 1;
            work += inner.shard.take_work();
        }
        if self.chunk_next >= self.chunk_len {
            self.end_chunk(core);
        }
        self.count_input();
        let behind = self.chunk_next < self.chunk_len || self.unparsed || self.readable;
        self.connection.behind.set(behind);
        if !behind {
            self.connection.session.borrow_mut().caught_up();
        }
        work
    }

    /// A few bytes that wait for more shall not hold the common room.
    fn own_input(&mut self) {
        if std::mem::take(&mut self.borrowed) && !self.input.is_empty() {
            self.input = BytesMut::from(&self.input[..]);
        }
    }

    /// What waits until the client reads shall not hold the common room: that may be many times as
    /// much.
    fn leave_room(&mut self) {
        self.own_input();
        self.borrowed = false;
        if !self.chunk.is_empty() {
            self.chunk = Bytes::copy_from_slice(&self.chunk);
        }
    }

    /// What it holds of what the client sent.
    fn count_input(&self) {
        let now = self.input.len() + self.chunk.len() + self.parser.bytes();
        let before = self.connection.input_held.replace(now);
        if now != before {
            self.budget.count_input(self.id, before, now);
        }
    }

    /// Finds whole commands, and a protocol error that follows them.
    fn parse(&mut self, core: &mut Core) {
        let authenticated = self.connection.session.borrow().authenticated;
        // One by one before the password, because each may change what is allowed.
        let most = if authenticated { PASS_COMMANDS_MAX } else { 1 };
        let (taken, result) = self.parser.parse(&self.input, authenticated, most);
        self.chunk = self.input.split_to(taken).freeze();
        self.chunk_next = 0;
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
            self.end_chunk(core);
        }
        self.count_input();
    }

    /// All parsed commands are run.
    fn end_chunk(&mut self, core: &mut Core) {
        self.parser.clear();
        // The common room gets it back once no operation holds a key of it.
        self.chunk = Bytes::new();
        if let Some(text) = self.error.take() {
            core.inner.counters.protocol_errors += 1;
            self.connection.session.borrow_mut().protocol_error(&text);
        }
    }

    /// It counts no more.
    fn forget(&mut self, core: &mut Core) {
        self.budget
            .count_input(self.id, self.connection.input_held.take(), 0);
        self.seat = None;
        self.spill.end(&self.budget);
        if core.inner.connections.remove(&self.id).is_some() {
            self.connection.abandon(&mut core.inner);
        }
    }

    /// Drops what a client sends that was told the end.
    fn sink(&mut self) -> Next {
        let mut sink = [0; 4096];
        loop {
            match self.stream.read(&mut sink) {
                Ok(0) => return Next::Broken,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Next::Wait,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Next::Broken,
            }
        }
    }
}

impl Spilled {
    /// Counts what is not written, and puts answers aside if the client takes none; true if there
    /// may be more of them at once.
    fn run(&mut self, now: Time, session: &mut Session, output: &Output, budget: &Budget) -> bool {
        self.waits = None;
        let mut left = PASS_SPILLS_MAX;
        loop {
            if self.on {
                session.encode_ready();
            }
            let unsent = session.out.len() + output.len() + self.bytes;
            // Once the client has read what was put aside, it counts as any other.
            let wanted = if self.on || !self.outputs.is_empty() {
                unsent
            } else {
                0
            };
            self.counted = budget.spill(self.counted, wanted);
            session.count_unwritten(unsent, unsent.saturating_sub(self.counted));
            if !self.on || session.out.len() < OUTPUT_BYTES_SOFT {
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
            let full = std::mem::take(&mut session.out);
            self.bytes += full.held();
            self.outputs.push_back(full);
        }
    }

    /// The client is gone, or is told the end.
    fn end(&mut self, budget: &Budget) {
        self.outputs.clear();
        self.bytes = 0;
        self.counted = budget.spill(self.counted, 0);
    }
}

/// A socket by the kernel's own calls: those of the C library are points where threads may be
/// cancelled, and note that each time.
struct Raw<'a>(&'a TcpStream);

impl Read for Raw<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self.0, into, rustix::net::RecvFlags::empty())?.0)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A client that is gone is an error here and no signal.
        Ok(rustix::net::send(
            self.0,
            bytes,
            rustix::net::SendFlags::NOSIGNAL,
        )?)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = rustix::net::SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(
            self.0,
            slices,
            &mut nothing,
            rustix::net::SendFlags::NOSIGNAL,
        )?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
