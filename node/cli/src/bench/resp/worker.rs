//! One thread: a loop over whatever connection is ready, and over the starts that are due.

use super::super::Failed;
use super::super::pace;
use super::connection::{Connection, Shared};
use super::dial::Dial;
use mio::{Events, Interest, Poll, Token};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Read at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// Events at a time.
const EVENTS_MAX: usize = 1024;
/// A thread's connections, and what they do.
#[derive(Debug)]
pub(super) struct Worker {
    poll: Poll,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    dial: Dial,
    pub(super) shared: Shared,
}

impl Worker {
    /// Connects to all servers: to `addresses` in turn, or to the masters of a cluster.
    pub(super) fn connect(
        dial: Dial,
        addresses: &[SocketAddr],
        lanes: usize,
        shared: Shared,
    ) -> Result<Self, Failed> {
        let poll = Poll::new().map_err(|e| system(&e))?;
        let mut worker = Self {
            poll,
            connections: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            dial,
            shared,
        };
        for lane in 0..lanes {
            let (master, address) = worker.home(lane, addresses);
            let connection = worker.open(lane, master, address)?;
            worker.connections.push(connection);
        }
        Ok(worker)
    }

    fn home(&self, lane: usize, addresses: &[SocketAddr]) -> (usize, SocketAddr) {
        match &self.shared.router {
            Some(router) => router.home(lane),
            None => (0, addresses[lane % addresses.len()]),
        }
    }

    fn open(&self, lane: usize, master: usize, address: SocketAddr) -> Result<Connection, Failed> {
        let mut stream = mio::net::TcpStream::from_std(self.dial.connect(address)?);
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut stream, Token(lane), interest)
            .map_err(|e| system(&e))?;
        Ok(Connection::new(stream, address, lane, master))
    }

    /// Until the plan or the schedule ends, and what was sent is answered. Ends early when another
    /// thread has failed.
    pub(super) fn run(&mut self, failed: &AtomicBool) -> Result<(), Failed> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.send_all()?;
        while !self.is_over()? && !failed.load(Ordering::Relaxed) {
            let sleep = pace::sleep(self.shared.clock, &self.shared.schedule);
            match self.poll.poll(&mut events, Some(sleep)) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                done => done.map_err(|e| system(&e))?,
            }
            for event in &events {
                let connection = &mut self.connections[event.token().0];
                if event.is_writable() {
                    connection.write()?;
                }
                if event.is_readable() {
                    connection.read(&mut self.shared, &mut self.buffer, event.is_read_closed())?;
                }
            }
            if self.shared.router.is_some() {
                self.follow()?;
            }
            let now = self.shared.clock.now();
            while let Some(lane) = self.shared.schedule.due_lane(now) {
                self.connections[lane].send(&mut self.shared, now)?;
            }
            if sleep.is_zero() && events.is_empty() {
                // Servers may share this core.
                std::thread::yield_now();
            }
        }
        self.shared.recorder.finish(self.shared.clock.now());
        Ok(())
    }

    fn send_all(&mut self) -> Result<(), Failed> {
        for connection in &mut self.connections {
            let now = self.shared.clock.now();
            connection.send(&mut self.shared, now)?;
        }
        Ok(())
    }

    fn is_over(&self) -> Result<bool, Failed> {
        let Shared {
            clock,
            plan,
            schedule,
            recorder,
            ..
        } = &self.shared;
        pace::is_over(*clock, plan, schedule, recorder)
    }

    /// Slots have moved: what waits for a new master is sent to it, by connections that are moved
    /// there when nothing is awaited on them.
    fn follow(&mut self) -> Result<(), Failed> {
        for lane in 0..self.connections.len() {
            if self.connections[lane].is_elsewhere(&self.shared) && self.connections[lane].is_idle()
            {
                let (master, address) = self.home(lane, &[]);
                self.connections[lane] = self.open(lane, master, address)?;
                let now = self.shared.clock.now();
                self.connections[lane].send(&mut self.shared, now)?;
            }
        }
        if self
            .shared
            .router
            .as_ref()
            .is_some_and(|router| router.has_moved())
        {
            self.send_all()?;
        }
        Ok(())
    }
}

fn system(e: &std::io::Error) -> Failed {
    Failed::new(format!("the system lets no connections be watched: {e}"))
}
