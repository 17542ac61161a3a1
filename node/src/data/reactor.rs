//! The loop of the data thread.
//!
//! ```text
//!   poll ─> network in ─> other threads ─> clients in ─> judge and hand out ─┐
//!    ^                                                                       │
//!    └──────────────────────────────── clients out <─ network out <──────────┘
//! ```
//!
//! One pass takes what is ready from every source, up to bounds that keep the pass below some
//! milliseconds, and then sends the results once. So the load itself decides how much a packet and
//! a system call carry: one operation if one waits, hundreds if hundreds wait. No operation is
//! delayed to form a batch.

use super::core::Core;
use super::front_end::{FrontEnd, FrontEndSlot, FrontEndSockets, Opener};
use super::inbox::{Inbox, Left};
use super::passes::Passes;
use super::turns::Turns;
use super::watching::Watching;
use super::{DataMessage, DataStats, ThreadOptions};
use crate::control::Upcall;
use crate::control::shared::Shared;
use crate::hooks::Hooks;
use crate::net::links::Links;
use crate::waking;
use doyen_engine::RestoredPartition;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

pub(super) const WAKE: Token = Token(0);
const NETWORK: Token = Token(1);
const FRONT_END_FROM: usize = 2;
/// Limit of socket events in one pass.
const EVENTS_MAX: usize = 256;
/// Limit of operations of other threads in one pass.
const BATCH_MAX: usize = 512;
/// About how many partitions, and maps in them, are measured in one pass: some tenths of a
/// millisecond.
#[cfg(feature = "metrics")]
const SIZES_MAX: usize = 2048;
/// How long the end of the thread waits until peers were told.
const CLOSE_MAX: Duration = Duration::from_millis(300);

pub(super) struct Reactor<S: FrontEndSockets> {
    poll: Poll,
    events: Events,
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
    core: Core<S::FrontEnd>,
    sockets: S,
    /// Taken from the inbox, for this pass or the next.
    calls: VecDeque<Left>,
    drained: Vec<oneshot::Sender<()>>,
    passes: Passes,
    turns: Turns,
    watching: Watching,
    /// The network's socket was full: epoll reports when it takes more.
    awaits_room: bool,
    /// The last pass left work for the next one.
    more: bool,
    hooks: Hooks,
}

impl<S: FrontEndSockets> Reactor<S> {
    pub(super) fn new(
        poll: Poll,
        inbox: Arc<Inbox>,
        options: ThreadOptions,
        front: impl Opener<Sockets = S>,
        shared: Arc<Shared>,
        upcalls: mpsc::Sender<Upcall>,
    ) -> io::Result<(Self, Vec<RestoredPartition>)> {
        let mut links = Links::new(
            options.data.try_clone()?,
            options.identity.clone(),
            options.me,
        )?;
        links.set_level_max(options.level_max);
        links.set_hooks(options.hooks.clone());
        links.set_partial_max(options.limits.frames_bytes_max(options.group.threads()));
        poll.registry().register(
            &mut SourceFd(&links.socket().as_raw_fd()),
            NETWORK,
            Interest::READABLE,
        )?;
        let (sockets, front) = front.open(FrontEndSlot {
            registry: poll.registry().try_clone()?,
            token_first: FRONT_END_FROM,
            threads: options.group.threads(),
            limits: &options.limits,
        })?;
        let hooks = options.hooks.clone();
        let directory = options.directory.clone();
        let mut core = Core::new(
            options,
            front,
            links,
            shared.clone(),
            upcalls,
            inbox.clone(),
        );
        let restored = core.open_disk(directory.as_ref())?;
        let reactor = Self {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            inbox,
            shared,
            core,
            sockets,
            calls: VecDeque::new(),
            drained: Vec::new(),
            passes: Passes::new(),
            turns: Turns::new(Instant::now()),
            watching: Watching::new(),
            awaits_room: false,
            more: true,
            hooks,
        };
        Ok((reactor, restored))
    }

    /// Runs until the thread is asked to stop, or every handle is dropped.
    ///
    /// # Errors
    /// A socket is broken.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let mut ended = Ok(());
        while ended.is_ok() && !self.inbox.thread_waker().is_stopped() && !self.inbox.is_closed() {
            ended = self.pass();
        }
        self.close();
        ended
    }

    fn pass(&mut self) -> io::Result<()> {
        self.wait()?;
        self.hooks.hold();
        let now = Instant::now();
        self.core.begin();
        self.core.hear_disk()?;
        self.more = self.core.receive(now)?;
        self.core.tick();
        self.take_messages();
        self.sockets.read(&mut self.core.context, now);
        // Clients may ask for what they saw under a newer view.
        self.core.catch_up();
        self.sockets.run(&mut self.core.context, now);
        self.more |= self.core.pump();
        self.core.give_disk();
        // Clients first: they continue while the peers get their messages.
        self.sockets.write(&mut self.core.context, now);
        self.more |= self.transmit(now)?;
        if self.core.context.front.is_empty() {
            self.drained
                .drain(..)
                .for_each(|answer| waking::answer(answer, ()));
        }
        self.passes.ended(now);
        Ok(())
    }

    /// Sends to peers. True: there is more to send.
    fn transmit(&mut self, now: Instant) -> io::Result<bool> {
        let more = self.core.transmit(now);
        let links = self.core.links();
        // Only while the socket is full. Otherwise every datagram that leaves would be reported as
        // room, and wake the thread for nothing.
        if links.is_blocked() != self.awaits_room {
            self.awaits_room = !self.awaits_room;
            let interest = if self.awaits_room {
                Interest::READABLE | Interest::WRITABLE
            } else {
                Interest::READABLE
            };
            self.poll.registry().reregister(
                &mut SourceFd(&links.socket().as_raw_fd()),
                NETWORK,
                interest,
            )?;
        }
        Ok(more)
    }

    /// Waits for events or timers, and notes which sockets are ready.
    fn wait(&mut self) -> io::Result<()> {
        // If events come one by one, waiting longer would help none of them. (Before the thread
        // asks to be woken.)
        if self.events.iter().nth(1).is_some() {
            self.turns.offer();
        }
        let busy = self.more || self.sockets.is_busy();
        // A shard that pauses for the sake of others checks whether there are any, here or at other
        // threads.
        let disturbed = self.passes.is_disturbed(Instant::now());
        self.core.set_short_of_time(disturbed);
        let pauses = !busy && self.core.pauses() && !disturbed;
        let mut timeout = if busy || pauses {
            Duration::ZERO
        } else {
            self.idle()
        };
        let watches = !timeout.is_zero() && self.watching.is_due();
        self.inbox.signals().set_watches(self.watching.is_due());
        if watches && self.watching.watch(self.inbox.signals()) {
            self.events.clear();
            return Ok(());
        }
        if !timeout.is_zero() {
            self.inbox.thread_waker().prepare_sleep();
            let nothing = self.inbox.is_empty()
                && self.core.is_left_alone()
                && self.core.is_disk_quiet()
                && self.core.is_current(&self.shared);
            if !nothing || self.inbox.thread_waker().is_stopped() {
                timeout = Duration::ZERO;
            }
        }
        let result = self.poll.poll(&mut self.events, Some(timeout));
        self.inbox.thread_waker().woken();
        match result {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        if pauses && self.events.is_empty() && self.inbox.is_empty() && self.core.is_left_alone() {
            self.core.go_on();
        }
        for event in &self.events {
            match event.token() {
                WAKE => {}
                NETWORK => self.core.links().ready(),
                _ => self.sockets.event(event),
            }
        }
        Ok(())
    }

    fn idle(&mut self) -> Duration {
        let due = self
            .core
            .links()
            .timeout()
            .into_iter()
            .chain(self.sockets.timeout())
            .min();
        let idle = self.core.idle();
        due.map_or(idle, |due| {
            idle.min(due.saturating_duration_since(Instant::now()))
        })
    }

    /// Takes what other threads left.
    fn take_messages(&mut self) {
        let messages = if self.calls.is_empty() {
            self.inbox.take(&mut self.calls)
        } else {
            Vec::new()
        };
        self.core.catch_up();
        if !self.calls.is_empty() {
            self.watching.asked(Instant::now());
        }
        let context = &mut self.core.context;
        for left in self.calls.drain(..self.calls.len().min(BATCH_MAX)) {
            context.submit_left(left);
        }
        self.more |= !self.calls.is_empty();
        for message in messages {
            match message {
                DataMessage::Stats(answer) => waking::answer(answer, self.stats()),
                DataMessage::LongestPass(answer) => waking::answer(answer, self.passes.take()),
                DataMessage::Drain(answer) => {
                    self.sockets.drain(&mut self.core.context);
                    self.drained.push(answer);
                }
                DataMessage::Map { wanted, answer } => self.core.want_map(wanted, answer),
                #[cfg(feature = "http")]
                DataMessage::Paths(answer) => {
                    waking::answer(answer, self.core.links().paths(Instant::now()))
                }
                DataMessage::Refusals(answer) => {
                    waking::answer(answer, self.core.links().refusals())
                }
                DataMessage::Seeds(addresses) => self.core.links().set_seeds(&addresses),
                DataMessage::Subscribe(asked) => self.core.subscribe(*asked),
                DataMessage::Bookmark(marking) => self.core.mark(marking),
                DataMessage::Room => self.core.look_at_streams(),
                DataMessage::FrontEnd(message) => {
                    self.sockets.receive(&mut self.core.context, message)
                }
                #[cfg(feature = "metrics")]
                DataMessage::Sizes { after, answer } => {
                    let partitions = self.core.context.shard.partitions();
                    waking::answer(answer, partitions.sizes_led(after, SIZES_MAX));
                }
                #[cfg(feature = "http")]
                DataMessage::SinceRecovery(answer) => {
                    let context = &mut self.core.context;
                    waking::answer(answer, context.shard.since_recovery(context.now));
                }
                #[cfg(feature = "http")]
                DataMessage::KeysSince(wanted, answer) => {
                    let context = &self.core.context;
                    waking::answer(
                        answer,
                        context.shard.partitions().keys_since(context.now, &wanted),
                    );
                }
                #[cfg(feature = "console")]
                DataMessage::Clients(answer) => {
                    waking::answer(answer, S::FrontEnd::clients(&self.core.context));
                }
                #[cfg(test)]
                DataMessage::Panic => panic!("a test ends this data thread"),
            }
        }
    }

    fn stats(&mut self) -> DataStats {
        let clients = self.core.links().clients() as u64;
        let context = &self.core.context;
        let mut stats = DataStats {
            clients,
            shard: context.shard.stats(),
            malformed_links: context.malformed,
            long_passes: self.passes.long(),
            native_latency: *context.native.counts(),
            disk: self.core.disk_figures(),
            ..DataStats::default()
        };
        context.front.add_stats(&mut stats);
        stats
    }

    /// Tells the peers, for a limited time.
    fn close(&mut self) {
        if !self.hooks.lets_in() {
            // A test has isolated this node: no peer would hear it.
            return;
        }
        let me = self.core.context.me;
        self.core.links().reset(me);
        let end = Instant::now() + CLOSE_MAX;
        loop {
            let now = Instant::now();
            if self.transmit(now).is_err() || self.core.links().is_idle() || now >= end {
                return;
            }
            let wait = self
                .core
                .links()
                .timeout()
                .map_or(end, |t| t.min(end))
                .saturating_duration_since(now);
            if self.poll.poll(&mut self.events, Some(wait)).is_err() {
                return;
            }
            self.core.links().ready();
            // A broken socket cannot tell the peers anything.
            if self.core.receive(Instant::now()).is_err() {
                return;
            }
        }
    }
}
