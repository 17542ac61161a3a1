//! Locks and a semaphore beside the clients. Callers at two clients of the cluster acquire them,
//! hold them, give them back or lose them, and write a key with the token of their grant, also
//! after they have lost it. `judge` says what must hold.
//!
//! A caller sometimes stands still, as a process does that is paused: the grant is acquired in a
//! runtime of its own, which is not driven after that, so that nothing renews the grant.

mod judge;

use super::SharedBook;
use crate::CommandFailed;
use doyen::{Error, Grant, Happened, Lock, Map, Node};
pub(super) use judge::Locks;
use judge::{FencedValue, GrantId, LockObservations, WriteEnd};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The permits of each name: three locks, and a semaphore.
const PERMITS: [u16; 4] = [1, 1, 1, 2];
/// The callers of each name.
const CALLERS: u64 = 4;
/// The time to live of a grant: the shortest one, so that grants are lost now and then.
const TTL: Duration = Duration::from_secs(5);
/// How long a grant is held at least if nothing renews it: the time to live less 2 % and 1.3 s.
const CERTAIN: Duration = Duration::from_millis(3_600);
/// How long a caller waits in line.
const WAIT: Duration = Duration::from_secs(5);
/// How long a grant is held, mostly and now and then, in milliseconds. After a third of its time to
/// live it is renewed.
const HOLD_MS: Range<u64> = 20..100;
const LONG_MS: Range<u64> = 1_500..6_000;
/// In how many of 100 attempts a caller holds its grant for long, and stands still.
const LONG: u32 = 2;
const STILL: u32 = 1;
/// The pause after a grant, and after an error, in milliseconds.
const PAUSE_MS: Range<u64> = 100..400;
/// How much later a former holder writes, in milliseconds.
const LATE_MS: Range<u64> = 0..400;
/// How often a holder asks whether it still holds its grant.
const LOOK: Duration = Duration::from_millis(20);
/// How long a lock may take to be granted and its key to be served in the end.
const END_MAX: Duration = Duration::from_secs(30);

/// The running callers.
pub(super) struct LockCallers {
    all: Vec<Rc<Contended>>,
    tasks: Vec<JoinHandle<()>>,
}

/// A lock or a semaphore that several callers want.
struct Contended {
    /// The lock as each client has it.
    locks: Vec<Lock>,
    /// The key that holders of a lock write.
    map: Map<u64, FencedValue>,
    key: u64,
    permits: u16,
    seen: RefCell<LockObservations>,
    book: SharedBook,
}

impl LockCallers {
    /// Begins to acquire, at each of these clients, while `running`.
    pub(super) async fn start(
        clients: &[Node],
        book: &SharedBook,
        running: &Rc<Cell<bool>>,
        seed: u64,
    ) -> Result<Self, CommandFailed> {
        let (mut all, mut tasks) = (Vec::new(), Vec::new());
        let Some(client) = clients.first() else {
            return Ok(Self { all, tasks });
        };
        let map: Map<u64, FencedValue> = client
            .map("chaos locks")
            .await
            .map_err(|e| CommandFailed::new(format!("the map that locks protect: {e}")))?;
        for (key, permits) in (0..).zip(PERMITS) {
            let name = format!("chaos {key}");
            let lock = |client: &Node| {
                let lock = match permits {
                    1 => client.lock(&name),
                    permits => client.semaphore(&name, permits),
                };
                lock.ttl(TTL)
            };
            let kind = if permits == 1 { "lock" } else { "semaphore" };
            let seen = LockObservations::new(format!("{kind} {name:?}"), permits, CERTAIN);
            let contended = Rc::new(Contended {
                locks: clients.iter().map(lock).collect(),
                map: map.clone(),
                key,
                permits,
                seen: RefCell::new(seen),
                book: book.clone(),
            });
            for caller in 0..CALLERS {
                let own = seed.rotate_left(48) ^ (key * CALLERS + caller);
                let caller = LockCaller {
                    lock: contended.lock(caller).clone(),
                    of: contended.clone(),
                    running: running.clone(),
                    rng: ChaCha8Rng::seed_from_u64(own),
                };
                tasks.push(tokio::task::spawn_local(caller.run()));
            }
            all.push(contended);
        }
        Ok(Self { all, tasks })
    }

    /// The verdict, once the tasks have ended because nothing is `running` any more.
    pub(super) async fn finish(self) -> Result<Locks, CommandFailed> {
        let joined = |e| CommandFailed::new(format!("a caller of the locks panicked: {e}"));
        for task in self.tasks {
            task.await.map_err(joined)?;
        }
        let last = self.all.iter().cloned().map(|of| async move {
            if let Err(what) = of.end().await {
                of.seen.borrow_mut().stuck(&what);
            }
        });
        for task in last.map(tokio::task::spawn_local).collect::<Vec<_>>() {
            task.await.map_err(joined)?;
        }
        let seen: Vec<_> = self.all.iter().map(|of| of.seen.borrow()).collect();
        Ok(Locks::judge(seen.iter().map(|seen| &**seen)))
    }
}

impl Contended {
    fn lock(&self, caller: u64) -> &Lock {
        // There are few clients, and one at least.
        &self.locks[caller as usize % self.locks.len()]
    }

    fn now(&self) -> Duration {
        self.book.borrow().elapsed()
    }

    fn granted(&self, grant: &Grant, asked: Duration) -> GrantId {
        let got = self.now();
        self.seen.borrow_mut().granted(grant.token(), asked, got)
    }

    /// Whether the grant says that it is held.
    fn look(&self, id: GrantId, grant: &Grant) -> bool {
        let before = self.now();
        let held = grant.is_held();
        let mut seen = self.seen.borrow_mut();
        if held {
            seen.held(id, before);
        } else {
            seen.lost(id, self.now());
        }
        held
    }

    /// Writes with this token. Returns the outcome.
    async fn write(&self, token: u64) -> WriteEnd {
        let trial = self.seen.borrow_mut().begin_write(token);
        let written = match self.map.put(&self.key, &trial.mark).fenced(token).await {
            Ok(()) => WriteEnd::Accepted,
            Err(Error::Fenced) => WriteEnd::Fenced,
            Err(e) if e.happened() == Happened::No => WriteEnd::NotDone,
            Err(_) => WriteEnd::Unknown,
        };
        self.seen.borrow_mut().written(&trial, written);
        written
    }

    /// Reads the key. Returns whether it was answered.
    async fn read(&self) -> bool {
        let floor = self.seen.borrow().begin_read();
        let read = self.map.get(&self.key).await;
        if let Ok(value) = &read {
            self.seen.borrow_mut().read(floor, *value);
        }
        read.is_ok()
    }

    /// Acquires all permits, writes, and reads what is there in the end.
    async fn end(&self) -> Result<(), String> {
        let until = Instant::now() + END_MAX;
        let mut grants = Vec::new();
        for caller in 0..self.permits.into() {
            let asked = self.now();
            let left = until.saturating_duration_since(Instant::now());
            let grant = self.lock(caller).acquire(left).await.map_err(|e| {
                format!("not granted within {END_MAX:.0?} after all callers had ended: {e}")
            })?;
            let id = self.granted(&grant, asked);
            self.look(id, &grant);
            grants.push((id, grant));
        }
        for (id, grant) in &grants {
            self.look(*id, grant);
        }
        let token = grants.last().map_or(0, |(_, grant)| grant.token());
        if self.permits == 1 {
            // A write whose outcome is unknown must be the last one with its token.
            while self.write(token).await == WriteEnd::NotDone && Instant::now() < until {
                tokio::time::sleep(LOOK).await;
            }
            while !self.read().await {
                if Instant::now() >= until {
                    return Err(format!("its key was not read within {END_MAX:.0?}"));
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }
}

/// A task that acquires.
struct LockCaller {
    of: Rc<Contended>,
    lock: Lock,
    running: Rc<Cell<bool>>,
    rng: ChaCha8Rng,
}

impl LockCaller {
    async fn run(mut self) {
        while self.running.get() {
            let draw = self.rng.random_range(0..100);
            if draw < STILL {
                self.stand_still().await;
            } else if draw < STILL + LONG {
                self.hold(LONG_MS).await;
            } else {
                self.hold(HOLD_MS).await;
            }
            self.sleep(PAUSE_MS).await;
        }
    }

    async fn sleep(&mut self, ms: Range<u64>) {
        let ms = self.rng.random_range(ms);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Acquires, holds the grant for so long unless it is lost, and gives it back. Sometimes writes
    /// once more after that.
    async fn hold(&mut self, ms: Range<u64>) {
        let asked = self.of.now();
        let Ok(grant) = self.lock.acquire(WAIT).await else {
            return;
        };
        let (id, token) = (self.of.granted(&grant, asked), grant.token());
        let until = Instant::now() + Duration::from_millis(self.rng.random_range(ms));
        // After an unknown outcome there is no further write with the token, because that write
        // may still take place after it.
        let mut writes = self.of.permits == 1;
        let mut held = self.of.look(id, &grant);
        if writes && held {
            writes = self.of.write(token).await != WriteEnd::Unknown;
        }
        while held && self.running.get() && Instant::now() < until {
            tokio::select! {
                () = grant.lost() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            held = self.of.look(id, &grant);
        }
        if writes && self.rng.random_bool(0.5) {
            writes = self.of.write(token).await != WriteEnd::Unknown && self.of.read().await;
        }
        if self.of.look(id, &grant) && self.rng.random_bool(0.7) {
            self.give_back(id, grant).await;
        } else {
            drop(grant);
        }
        if writes && self.rng.random_bool(0.2) {
            self.sleep(LATE_MS).await;
            self.of.write(token).await;
        }
    }

    /// Gives back a grant that was held a moment ago.
    async fn give_back(&self, id: GrantId, grant: Grant) {
        let lost = grant.lost();
        if grant.release().await == Ok(false) {
            let certain = tokio::time::timeout(Duration::ZERO, lost).await.is_err();
            self.of.seen.borrow_mut().taken(id, certain);
        }
    }

    /// Acquires, and does not renew the grant. Sometimes gives it back when it is lost, and
    /// sometimes the next caller gets it only after its time to live. Writes at the end.
    async fn stand_still(&mut self) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // Without memory for it, there is no attempt.
        let Ok(runtime) = builder.enable_time().build() else {
            return;
        };
        let (asked, lock) = (self.of.now(), self.lock.clone());
        let acquire = move || (runtime.block_on(lock.acquire(WAIT)), runtime);
        let Ok((grant, runtime)) = tokio::task::spawn_blocking(acquire).await else {
            return;
        };
        let Ok(grant) = grant else {
            return runtime.shutdown_background();
        };
        let (id, token) = (self.of.granted(&grant, asked), grant.token());
        let mut writes = self.of.permits == 1;
        if writes && self.of.look(id, &grant) {
            writes = self.of.write(token).await != WriteEnd::Unknown;
        }
        let until = Instant::now() + 2 * TTL;
        let waits = self.rng.random_bool(0.7);
        let is_over = |held: bool| {
            let overtaken = self.of.seen.borrow().is_overtaken(token);
            !held && (!waits || overtaken || Instant::now() >= until)
        };
        let mut held = self.of.look(id, &grant);
        while self.running.get() && !is_over(held) {
            tokio::time::sleep(LOOK).await;
            held = held && self.of.look(id, &grant);
        }
        if writes {
            // As if it woke up, and did not know yet that it has lost the lock.
            self.of.write(token).await;
        }
        drop(grant);
        runtime.shutdown_background();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::book::Book;

    #[tokio::test]
    async fn callers_that_hold_two_locks_as_if_they_were_one_are_found() {
        let builder = Node::builder().name("one").listen("127.0.0.1:0");
        let node = builder.partitions(16).memory_max(256 << 20).start().await;
        let node = node.expect("the node starts");
        let map = node.map("written").await.expect("a map");
        let of = Contended {
            locks: vec![node.lock("one"), node.lock("another")],
            map,
            key: 0,
            permits: 1,
            seen: RefCell::new(LockObservations::new("lock".into(), 1, CERTAIN)),
            book: Rc::new(RefCell::new(Book::new(false))),
        };
        let mut held = Vec::new();
        for caller in 0..2 {
            let asked = of.now();
            let grant = of.lock(caller).acquire(WAIT).await.expect("it is free");
            let id = of.granted(&grant, asked);
            assert!(of.look(id, &grant));
            held.push((id, grant));
            let crowded = Locks::judge([&*of.seen.borrow()]).crowded;
            assert_eq!(crowded, 0, "the first was not seen to be held since");
            held.iter().for_each(|(id, grant)| {
                of.look(*id, grant);
            });
        }
        let (_, grant) = &held[0];
        assert_eq!(of.write(grant.token() + 1).await, WriteEnd::Accepted);
        assert_eq!(of.write(grant.token()).await, WriteEnd::Fenced);
        assert!(of.read().await);
        let locks = Locks::judge([&*of.seen.borrow()]);
        assert_eq!((locks.grants, locks.crowded, locks.lost), (2, 1, 0));
        assert_eq!((locks.fenced, locks.unfenced, locks.holds()), (1, 0, false));
        drop(held);
        node.shutdown().await;
    }
}
