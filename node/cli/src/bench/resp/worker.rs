//! One thread: a loop over the connections that are ready and the starts that are due.

use super::super::CommandFailed;
use super::super::rate;
use super::connection::{BenchConnection, RespShared};
use super::dial::Dial;
use mio::{Events, Interest, Poll, Token};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The size of the read buffer.
const BUFFER_BYTES: usize = 256 << 10;
/// Events of one poll, at most.
const EVENTS_MAX: usize = 1024;
/// The connections of a thread.
#[derive(Debug)]
pub(super) struct RespWorker {
    poll: Poll,
    connections: Vec<BenchConnection>,
    buffer: Vec<u8>,
    dial: Dial,
    pub(super) shared: RespShared,
}

impl RespWorker {
    /// Connects to all servers: to `addresses` in turn, or to the masters of a cluster.
    pub(super) fn connect(
        dial: Dial,
        addresses: &[SocketAddr],
        lanes: usize,
        shared: RespShared,
    ) -> Result<Self, CommandFailed> {
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

    fn open(
        &self,
        lane: usize,
        master: usize,
        address: SocketAddr,
    ) -> Result<BenchConnection, CommandFailed> {
        let mut stream = mio::net::TcpStream::from_std(self.dial.connect(address)?);
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut stream, Token(lane), interest)
            .map_err(|e| system(&e))?;
        Ok(BenchConnection::new(stream, address, lane, master))
    }

    /// Runs until the plan or the schedule ends and every operation is answered. Ends early if
    /// another thread has failed.
    pub(super) fn run(&mut self, failed: &AtomicBool) -> Result<(), CommandFailed> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.send_all()?;
        while !self.is_over()? && !failed.load(Ordering::Relaxed) {
            let sleep = rate::sleep(self.shared.clock, &self.shared.schedule);
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
                // The servers may share this core.
                std::thread::yield_now();
            }
        }
        self.shared.recorder.finish(self.shared.clock.now());
        Ok(())
    }

    fn send_all(&mut self) -> Result<(), CommandFailed> {
        for connection in &mut self.connections {
            let now = self.shared.clock.now();
            connection.send(&mut self.shared, now)?;
        }
        Ok(())
    }

    fn is_over(&self) -> Result<bool, CommandFailed> {
        let RespShared {
            clock,
            plan,
            schedule,
            recorder,
            ..
        } = &self.shared;
        rate::is_over(*clock, plan, schedule, recorder)
    }

    /// After slots have moved, idle connections go to the masters whose operations wait.
    fn follow(&mut self) -> Result<(), CommandFailed> {
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

fn system(e: &std::io::Error) -> CommandFailed {
    CommandFailed::new(format!("cannot watch connections: {e}"))
}
