//! Sockets of Redis clients.
//!
//! The first data thread accepts the clients of the plain port and hands them to all threads, so
//! that each has as many. For the cluster-aware port, each thread has a listener of its own. Each
//! pass of the data thread's loop reads what the ready clients sent (`read`) and runs every whole
//! command (`run`). Once the outcomes are handed out, it writes all answers (`write`).

mod served;

use super::RespContext;
use super::budget::STALLED_MAX;
use super::cluster;
use super::common::{Seat, ThreadMessage};
use super::front_end::Resp;
use super::pubsub::hub::OVER_LIMIT;
use super::ready::ReadyClients;
use super::session::{Connection, PasswordJudging};
use super::stream::ClientStream;
use crate::address::canonical;
use crate::data::front_end::{self, FrontEndSockets};
use crate::log_limit::{A_MINUTE, LogLimit};
use crate::net::keepalive;
use bytes::BytesMut;
use doyen_placement::MapId;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use served::{ClientStep, ServedClient};
use slab::Slab;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Commands of all clients in one pass, and about how many bytes of their values. Clients for which
/// there was no time come first in the next pass.
const PASS_ALL_COMMANDS_MAX: usize = 1024;
const PASS_ALL_WORK_MAX: usize = 4 << 20;
/// With this many commands, it pays to load the entries of their keys beforehand.
const WARM_LEAST: usize = 3;
/// Clients accepted in one pass.
const PASS_ACCEPTS_MAX: usize = 64;
/// Clients whose TLS handshake is continued in one pass. Each takes a tenth of a millisecond or
/// two.
const PASS_HANDSHAKES_MAX: usize = 8;
/// About how many bytes all clients with large outputs are sent in one pass, so that others do not
/// wait while megabytes are copied. It is a tenth of a millisecond's work. A lower limit would cost
/// more, because each write wakes its reader. Clients for which there was no room come first in the
/// next pass.
const PASS_LARGE_BYTES: usize = 512 << 10;
/// File descriptors that Redis clients leave for everything else, or a quarter of a small limit. So
/// a node that is full of clients still answers HTTP.
const FILES_KEPT: u64 = 64;
/// If a client takes none of its answers for so long while its commands wait, it is taken to write
/// its whole pipeline before it reads.
const SPILL_AFTER: Duration = Duration::from_millis(100);
/// Among the clients that have taken nothing for so long, the one that holds most is disconnected
/// once it has taken nothing for `STALLED_MAX`.
const SPILL_STILL: Duration = Duration::from_secs(1);
/// The error that a client gets if its password may not even wait.
const TOO_MANY_WAIT: &str = "ERR there were wrong passwords from this address, and too many other \
    passwords from it wait to be judged: connect again in some seconds";
/// How often the thread looks for clients whose password is to be judged, and for clients that have
/// sent nothing for too long; and how many of the latter it checks in one pass.
const JUDGE_INTERVAL: Duration = Duration::from_millis(50);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
const PASS_IDLE_MAX: usize = 1024;
/// Clients whose keepalive is changed in one pass. Each takes five calls of the system.
const PASS_KEEPALIVE_MAX: usize = 256;
/// How long a client may take to notice that its connection was closed in order.
const LINGER: Duration = Duration::from_secs(1);
/// Pause after `accept` failed, for instance because no file descriptor was left. Also the pause
/// while this node is no member yet.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listeners and the clients of one data thread.
pub(crate) struct Clients {
    registry: Registry,
    listeners: Vec<RespListener>,
    /// Tokens of sockets: the listeners from the first on, the clients from the second on.
    first_tokens: (usize, usize),
    all: Slab<ServedClient>,
    ready: Rc<ReadyClients>,
    /// The clients of this pass, and those for which there was no time.
    turn: Vec<usize>,
    late: Vec<usize>,
    /// How many commands the clients of this pass have sent.
    commands: usize,
    /// The shared read buffer.
    scratch: BytesMut,
    /// Connections that were closed in order, and when each is dropped.
    lingering: Vec<(Instant, usize, u64)>,
    /// File descriptors from this one on are not for clients.
    files_max: u64,
    refused: LogLimit,
    /// Clients that had not authenticated when they came, in order. Some have since, or are gone.
    strangers: VecDeque<(usize, u64)>,
    crowded: LogLimit,
    /// Clients that may have to put answers aside or have done so, and when to look at them.
    spilling: Vec<(usize, u64)>,
    spilling_at: Instant,
    ended: LogLimit,
    /// Clients whose passwords are judged later, with their addresses, and when to look at them.
    judged_later: Vec<(usize, u64, IpAddr)>,
    judge_at: Instant,
    /// The keepalive of clients, and the next client whose socket has another one.
    keepalive_s: u32,
    keepalive_next: Option<usize>,
    limited: LogLimit,
    /// The next client that may have been idle for too long, and when to look at it.
    idle_next: usize,
    idle_at: Instant,
    looks_for_idle: bool,
}

struct RespListener {
    socket: TcpListener,
    cluster_port: bool,
    ready: bool,
    paused: Option<Instant>,
}

impl Clients {
    /// `first_token` is the first token of the listeners. The tokens of clients follow theirs.
    pub(crate) fn new(
        registry: Registry,
        listeners: Vec<(std::net::TcpListener, bool)>,
        first_token: usize,
        ready: Rc<ReadyClients>,
    ) -> io::Result<Self> {
        let mut clients = Self {
            registry,
            listeners: Vec::new(),
            first_tokens: (first_token, first_token + listeners.len()),
            all: Slab::new(),
            ready,
            turn: Vec::new(),
            late: Vec::new(),
            commands: 0,
            scratch: BytesMut::new(),
            lingering: Vec::new(),
            files_max: files_max(),
            refused: LogLimit::new(A_MINUTE),
            strangers: VecDeque::new(),
            crowded: LogLimit::new(A_MINUTE),
            spilling: Vec::new(),
            spilling_at: Instant::now(),
            ended: LogLimit::new(A_MINUTE),
            judged_later: Vec::new(),
            judge_at: Instant::now(),
            keepalive_s: 0,
            keepalive_next: None,
            limited: LogLimit::new(A_MINUTE),
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
            clients.listeners.push(RespListener {
                socket,
                cluster_port,
                ready: true,
                paused: None,
            });
        }
        Ok(clients)
    }
}

/// The part of the front end that the loop drives.
impl FrontEndSockets for Clients {
    type FrontEnd = Resp;

    fn event(&mut self, event: &Event) {
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

    fn is_busy(&self) -> bool {
        !self.ready.is_empty()
            || !self.late.is_empty()
            || self.keepalive_next.is_some()
            || self.listeners.iter().any(|l| l.ready && l.paused.is_none())
    }

    fn timeout(&self) -> Option<Instant> {
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

    fn read(&mut self, context: &mut RespContext, now: Instant) {
        self.keep_alive(context);
        context.look_for_monitors();
        self.accept(context, now);
        while let Some((_, at, id)) = self
            .lingering
            .first()
            .copied()
            .filter(|(until, ..)| *until <= now)
        {
            self.lingering.remove(0);
            if self.all.get(at).is_some_and(|c| c.id == id) {
                self.remove(context, at);
            }
        }
        self.look_at_spilling(context, now);
        self.look_at_judged(context, now);
        self.look_at_idle(context, now);
        // The list of the last pass is empty by now, so its room is reused.
        let mut turn = std::mem::take(&mut self.turn);
        turn.append(&mut self.late);
        self.ready.append_to(&mut turn);
        let (mut commands, mut handshakes) = (0, 0);
        let mut next = 0;
        while next < turn.len() {
            if commands >= PASS_ALL_COMMANDS_MAX {
                self.late.extend(turn.drain(next..));
                break;
            }
            let Some(client) = self.all.get_mut(turn[next]) else {
                next += 1;
                continue;
            };
            if client.readable && client.stream.is_handshaking() {
                handshakes += 1;
                if handshakes > PASS_HANDSHAKES_MAX {
                    // It has its turn in a later pass, and no part in this one: otherwise it would
                    // be put on the list again, once more in each pass.
                    self.late.push(turn.swap_remove(next));
                    continue;
                }
            }
            next += 1;
            // From now on, a change puts the client in the list of those to write.
            client.connection.queued.set(false);
            commands += client.prepare(context, &mut self.scratch);
        }
        self.turn = turn;
        self.commands = commands;
    }

    fn run(&mut self, context: &mut RespContext, now: Instant) {
        let mut turn = std::mem::take(&mut self.turn);
        if self.commands >= WARM_LEAST {
            let keys = turn
                .iter()
                .filter_map(|at| self.all.get(*at))
                .flat_map(ServedClient::keys);
            context.shard().warm(cluster::KEYSPACE, MapId(0), keys);
        }
        let mut bytes = 0;
        for next in 0..turn.len() {
            if bytes >= PASS_ALL_WORK_MAX {
                // The parsed commands of the others stay as they are.
                self.late.extend(turn.drain(next..));
                break;
            }
            let Some(client) = self.all.get_mut(turn[next]) else {
                continue;
            };
            bytes += client.run_commands(context);
            if client.connection.is_judged_later()
                && !std::mem::replace(&mut client.judged_later, true)
            {
                let from = client.connection.session.borrow().client.peer.ip();
                if !context.front.common.throttle().begin_waiting(from) {
                    let mut session = client.connection.session.borrow_mut();
                    session.end(Some(TOO_MANY_WAIT.into()));
                    client.judged_later = false;
                    client.connection.wake();
                    continue;
                }
                if self.judged_later.is_empty() {
                    self.judge_at = now + JUDGE_INTERVAL;
                }
                self.judged_later.push((turn[next], client.id, from));
            }
        }
        self.turn = turn;
    }

    fn write(&mut self, context: &mut RespContext, now: Instant) {
        let mut turn = std::mem::take(&mut self.turn);
        self.ready.append_to(&mut turn);
        let (mut left, mut again, mut room) = (Vec::new(), 0, PASS_LARGE_BYTES);
        let limit = context.front.common.settings.output_normal();
        for next in 0..turn.len() {
            let at = turn[next];
            let Some(client) = self.all.get_mut(at) else {
                continue;
            };
            client.connection.queued.set(false);
            let next = client.output(context, &mut room);
            if limit.hard > 0 && !client.writable {
                let (waiting, subscribes) = client.connection.session.borrow().output_waiting();
                if !subscribes && limit.is_reached(waiting) {
                    self.end_limited(context, at, waiting, now);
                    continue;
                }
            }
            if (client.spill.stuck || client.spill.counted > 0)
                && !std::mem::replace(&mut client.spill.listed, true)
            {
                if self.spilling.is_empty() {
                    self.spilling_at = now + SPILL_AFTER;
                }
                self.spilling.push((at, client.id));
            }
            match next {
                ClientStep::Wait => {}
                ClientStep::Left => left.push(at),
                ClientStep::Again => {
                    turn[again] = at;
                    again += 1;
                }
                ClientStep::Finished => self.close(context, at, now),
                ClientStep::Broken => self.remove(context, at),
            }
        }
        for at in left.into_iter().chain(turn.drain(..).take(again)) {
            if let Some(client) = self.all.get(at) {
                client.connection.wake();
            }
        }
        self.turn = turn;
        context.front.timing.latency.count();
    }

    fn receive(&mut self, context: &mut RespContext, message: front_end::FrontEndMessage) {
        // All threads of a node have this kind of front end, and it sends no other messages.
        let Ok(message) = message.downcast::<ThreadMessage>() else {
            return;
        };
        match *message {
            ThreadMessage::Accepted(stream, seat) => self.seat(context, stream, false, seat),
            ThreadMessage::Question(question, back) => {
                let told = context.answer(&question);
                context.tell(back.thread, Box::new(ThreadMessage::Told(told, back)));
            }
            ThreadMessage::Told(told, back) => {
                if let Some(connection) = context.front.connections.get(&back.connection) {
                    connection.told(back.slot, told);
                }
            }
            ThreadMessage::Invalidated(target, client, keys) => {
                context.invalidate_redirected(target, client, keys.as_deref());
            }
            ThreadMessage::LostTarget(client) => context.lost_target(client),
            ThreadMessage::Monitored(lines) => context.show_others(&lines),
            ThreadMessage::Users => {
                if let Some(users) = context.front.common.users() {
                    context.front.use_users(&users);
                }
            }
        }
    }

    fn drain(&mut self, context: &mut RespContext) {
        context.front.draining = true;
        context.unpause();
        for mut listener in self.listeners.drain(..) {
            let _ = self.registry.deregister(&mut listener.socket);
        }
        self.all
            .iter()
            .for_each(|(_, client)| client.connection.wake());
    }
}

impl Clients {
    /// Finds clients that take no answers and send more commands, and puts their answers aside. If
    /// the room for such answers is used up, the client that holds most is disconnected.
    fn look_at_spilling(&mut self, context: &mut RespContext, now: Instant) {
        if self.spilling.is_empty() || now < self.spilling_at {
            return;
        }
        self.spilling_at = now + SPILL_AFTER;
        let (mut wanted_at, mut largest) = (None, None);
        let all = &mut self.all;
        self.spilling.retain(|&(at, id)| {
            let Some(client) = all.get_mut(at).filter(|c| c.id == id && !c.lingers) else {
                return false;
            };
            let idle = context.now().since(client.spill.took_at);
            if client.spill.stuck && idle >= SPILL_AFTER {
                client.spill.on = true;
                client.connection.wake();
            }
            wanted_at = wanted_at.max(client.spill.waits);
            let unsent = client.connection.session.borrow().replies.unsent;
            if idle > SPILL_STILL && (client.spill.waits.is_some() || client.spill.counted > 0) {
                largest = largest.max(Some((unsent, at, idle > STALLED_MAX)));
            }
            client.spill.listed = client.spill.stuck || client.spill.counted > 0;
            client.spill.listed
        });
        let (bytes, at, long) = largest.unwrap_or_default();
        let spill = context.front.common.spill().clone();
        if !spill.largest_ends(
            context.now(),
            context.me().thread_number(),
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
                "the RESP client {} was disconnected: it sends commands and reads no answers; \
                 {bytes} bytes of answers wait for it, and the {} bytes for such answers of all \
                 clients are used up; let it read while it writes, or send shorter \
                 pipelines{others}",
                client.connection.session.borrow().client.peer,
                spill.bytes_max(),
            );
        }
        context.front.counters.connections_expelled += 1;
        client.connection.expelled.set(true);
        client.connection.wake();
    }

    /// Resumes the clients whose passwords may be judged now.
    fn look_at_judged(&mut self, context: &RespContext, now: Instant) {
        if self.judged_later.is_empty() || now < self.judge_at {
            return;
        }
        self.judge_at = now + JUDGE_INTERVAL;
        let all = &mut self.all;
        let mut throttle = context.front.common.throttle();
        // In their order: they are judged one after the other, and those behind a wrong one wait
        // again.
        self.judged_later.retain(|&(at, id, from)| {
            let Some(client) = all.get_mut(at).filter(|c| c.id == id && !c.lingers) else {
                throttle.end_waiting(from);
                return false;
            };
            let mut session = client.connection.session.borrow_mut();
            match session.judging {
                PasswordJudging::Later if throttle.take_turn(context.now(), from).is_err() => {
                    return true;
                }
                PasswordJudging::Later => session.judging = PasswordJudging::Now,
                PasswordJudging::AtOnce | PasswordJudging::Now => {}
            }
            throttle.end_waiting(from);
            client.judged_later = false;
            client.connection.wake();
            false
        });
    }

    /// Lets the sockets of all clients have the keepalive of the settings.
    fn keep_alive(&mut self, context: &RespContext) {
        let wanted = context.front.common.settings.keepalive_s();
        if std::mem::replace(&mut self.keepalive_s, wanted) != wanted {
            self.keepalive_next = Some(0);
        }
        let Some(from) = self.keepalive_next else {
            return;
        };
        let end = from + PASS_KEEPALIVE_MAX;
        for at in from..end {
            if let Some(client) = self.all.get_mut(at) {
                set_keepalive(client.stream.socket(), wanted);
            }
        }
        self.keepalive_next = (end < self.all.capacity()).then_some(end);
    }

    /// Closes a client without subscriptions for which too much output waits.
    fn end_limited(&mut self, context: &mut RespContext, at: usize, waiting: usize, now: Instant) {
        let Some(client) = self.all.get(at) else {
            return;
        };
        context.front.counters.output_limited += 1;
        if let Some(others) = self.limited.happened(now) {
            let peer = client.connection.session.borrow().client.peer;
            tracing::warn!(
                "the RESP client {peer} was disconnected: {waiting} bytes of output waited for \
                 it, which is more than client-output-buffer-limit allows (normal); let it read \
                 faster, or raise the limit{others}"
            );
        }
        self.remove(context, at);
    }

    /// Disconnects clients that have not authenticated in time, were idle for too long, or let too
    /// much output wait.
    fn look_at_idle(&mut self, context: &mut RespContext, now: Instant) {
        let auth_timeout = context
            .front
            .auth_timeout
            .filter(|_| context.front.tls.is_some() || !context.front.users.borrow().is_open());
        let idle_timeout = context.front.common.settings.timeout();
        let (normal, pubsub) = {
            let settings = &context.front.common.settings;
            (settings.output_normal(), settings.output_pubsub())
        };
        let hears = context.front.hub.clients() > 0 || context.front.monitors.any;
        let limited = !normal.is_none() || hears && !pubsub.is_none();
        self.looks_for_idle = auth_timeout.is_some() || idle_timeout.is_some() || limited;
        if !self.looks_for_idle || now < self.idle_at {
            return;
        }
        let end = self.idle_next + PASS_IDLE_MAX;
        for at in self.idle_next..end {
            let Some(client) = self
                .all
                .get_mut(at)
                .filter(|c| !c.lingers && !c.connection.expelled.get())
            else {
                continue;
            };
            if limited {
                let (waiting, subscribes) = client.connection.session.borrow().output_waiting();
                let limit = if subscribes { pubsub } else { normal };
                if limit.ends(waiting, &mut client.over_since, context.now()) {
                    if subscribes {
                        context.front.hub.expel(&client.connection, OVER_LIMIT);
                    } else {
                        self.end_limited(context, at, waiting, now);
                    }
                    continue;
                }
            }
            let mut session = client.connection.session.borrow_mut();
            let handshaking = client.stream.is_handshaking();
            let late = auth_timeout.filter(|most| {
                (handshaking || !session.client.authenticated)
                    && context.now().since(session.client.stranger_since) > *most
            });
            let idle = idle_timeout.is_some_and(|most| {
                session.is_at_rest() && context.now().since(client.connection.active_at()) > most
            });
            if session.closing || late.is_none() && !idle {
                continue;
            }
            context.front.counters.auth_timeouts += u64::from(late.is_some());
            context.front.counters.idle_timeouts += u64::from(late.is_none());
            // A client that does not read its answers is not sent another one.
            if !handshaking
                && client.output.is_empty()
                && session.replies.out.is_empty()
                && session.is_answered()
            {
                session.end(late.map(|most| {
                    format!(
                        "NOAUTH no AUTH came within {most:?}: connect again and authenticate first"
                    )
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

    fn accept(&mut self, context: &mut RespContext, now: Instant) {
        // A client that connects before this node is a member waits, as for anything else that is
        // not served at the moment.
        let early = context.view().is_none()
            && context.now().since(context.started()) < context.limits().park;
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
                                "RESP clients are refused: this process has nearly as many open \
                                 files as it may have; raise the limit (ulimit -n), or lower \
                                 --connections-max{others}"
                            );
                        }
                        refuse(context, stream);
                    }
                    Ok((stream, _)) => {
                        let cluster_port = listener.cluster_port;
                        self.admit(context, stream, cluster_port);
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => listener.ready = false,
                    // The client was gone before it was accepted.
                    Err(e)
                        if matches!(
                            e.kind(),
                            ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                        ) => {}
                    Err(why) => {
                        listener.paused = Some(now + ACCEPT_PAUSE);
                        if let Some(others) = self.refused.happened(now) {
                            tracing::warn!(
                                "RESP clients wait, because this node cannot accept them: \
                                 {why}{others}"
                            );
                        }
                    }
                }
            }
        }
    }

    /// Gives a client its place at this thread or another one.
    fn admit(&mut self, context: &mut RespContext, stream: TcpStream, cluster_port: bool) {
        let own = context.me().thread_number();
        let thread = cluster_port.then_some(own);
        let mut seat = context.front.common.seat(thread);
        if seat.is_none() && self.end_a_stranger(context) {
            seat = context.front.common.seat(thread);
        }
        let Some(seat) = seat else {
            if let Some(others) = self.refused.happened(Instant::now()) {
                tracing::warn!(
                    "RESP clients are refused: as many are connected as --connections-max allows; \
                     find them with CLIENT LIST, or raise --connections-max{others}"
                );
            }
            return refuse(context, stream);
        };
        if seat.thread() == own {
            self.seat(context, stream, cluster_port, seat);
        } else {
            context.hand_over(stream, seat);
        }
    }

    /// Ends the client of this thread that has been here longest without authenticating. False:
    /// there is none.
    fn end_a_stranger(&mut self, context: &mut RespContext) -> bool {
        while let Some((at, id)) = self.strangers.pop_front() {
            let is_stranger = self.all.get(at).is_some_and(|client| {
                let is_known =
                    !client.stream.is_handshaking() && client.connection.is_authenticated();
                client.id == id && !client.lingers && !is_known
            });
            if is_stranger {
                context.front.counters.strangers_ended += 1;
                if let Some(others) = self.crowded.happened(Instant::now()) {
                    tracing::warn!(
                        "as many RESP clients are connected as --connections-max allows, so one \
                         that had not authenticated was disconnected; find them with CLIENT LIST, \
                         lower --resp-auth-timeout, or raise --connections-max{others}"
                    );
                }
                self.remove(context, at);
                return true;
            }
        }
        false
    }

    fn seat(
        &mut self,
        context: &mut RespContext,
        stream: TcpStream,
        cluster_port: bool,
        seat: Seat,
    ) {
        if let Err(why) = self.begin(context, stream, cluster_port, seat) {
            tracing::warn!("this node could not admit a RESP client: {why}");
        }
    }

    fn begin(
        &mut self,
        context: &mut RespContext,
        stream: TcpStream,
        cluster_port: bool,
        seat: Seat,
    ) -> io::Result<()> {
        let (Ok(local), Ok(peer)) = (
            stream.local_addr().map(canonical),
            stream.peer_addr().map(canonical),
        ) else {
            return Ok(());
        };
        if let Err(why) = stream.set_nodelay(true) {
            tracing::debug!("TCP_NODELAY: {why}");
        }
        set_keepalive(&stream, self.keepalive_s);
        let tls = context.front.tls.as_ref().map(|tls| tls.config());
        let mut stream = ClientStream::new(stream, tls)?;
        let entry = self.all.vacant_entry();
        let at = entry.key();
        let token = Token(self.first_tokens.1 + at);
        self.registry.register(
            stream.socket(),
            token,
            Interest::READABLE | Interest::WRITABLE,
        )?;
        context.front.counters.connections += 1;
        let id = context.front.common.next_connection();
        let connection = Connection::new(
            (id, at),
            cluster_port,
            (local, peer),
            &context.front.users.borrow(),
            (
                context.front.budget.clone(),
                context.front.timing.latency.clone(),
            ),
            context.now(),
        );
        context.front.connections.insert(id, connection.clone());
        let thread = context.me().thread_number();
        context.front.common.set_home(id, Some(thread));
        let is_stranger = stream.is_handshaking() || !connection.is_authenticated();
        entry.insert(ServedClient::new(context, id, connection, stream, seat));
        if is_stranger {
            self.strangers.push_back((at, id));
        }
        // Those that are strangers no longer are forgotten now and then.
        if self.strangers.len() > 2 * self.all.len() + 16 {
            let all = &self.all;
            self.strangers
                .retain(|(at, id)| all.get(*at).is_some_and(|client| client.id == *id));
        }
        Ok(())
    }

    /// Shuts down the sending side, and reads on for a while. Closing with unread input would send
    /// a reset, which can overtake the last replies.
    fn close(&mut self, context: &mut RespContext, at: usize, now: Instant) {
        let Some(client) = self.all.get_mut(at) else {
            return;
        };
        client.forget(context);
        if client.stream.shutdown().is_err() || client.ended {
            return self.remove(context, at);
        }
        client.lingers = true;
        self.lingering.push((now + LINGER, at, client.id));
        if client.sink() == ClientStep::Broken {
            self.remove(context, at);
        }
    }

    fn remove(&mut self, context: &mut RespContext, at: usize) {
        if let Some(mut client) = self.all.try_remove(at) {
            client.forget(context);
            self.lingering.retain(|(_, _, id)| *id != client.id);
            let _ = self.registry.deregister(client.stream.socket());
        }
    }
}

/// A socket that refuses has ended, which its next event says.
fn set_keepalive(socket: &TcpStream, idle_s: u32) {
    if let Err(why) = keepalive::set(socket, idle_s) {
        tracing::debug!("TCP keepalive: {why}");
    }
}

/// Tells a client that there are too many.
fn refuse(context: &mut RespContext, mut stream: TcpStream) {
    context.front.counters.connections_rejected += 1;
    // In TLS, nothing can be said before the handshake.
    if context.front.tls.is_some() {
        return;
    }
    // The socket buffer is empty, so the text fits. If the write fails, the client sees a closed
    // connection.
    let _ = stream.write(b"-ERR max number of clients reached\r\n");
}

/// The file descriptor from which on clients are refused.
fn files_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(u64::MAX);
    limit - FILES_KEPT.min(limit / 4)
}
