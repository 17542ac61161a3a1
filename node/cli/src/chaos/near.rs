//! A near cache beside the clients, over keys whose values only grow: each read must give at least
//! what was acknowledged before the cache's bound.

use crate::CommandFailed;
use doyen::{Map, NearMap};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How old a copy may be.
const BOUND: Duration = Duration::from_millis(250);
/// Tasks that read. Each has keys of its own, so that it reads each key at ever later moments.
const READERS: u64 = 4;
/// Keys of a reader.
const KEYS: u64 = 16;
/// The pause after a read, and after a write.
const READ_PAUSE: Duration = Duration::from_millis(4);
const WRITE_PAUSE: Duration = Duration::from_millis(8);

/// What was written and read.
#[derive(Debug, Default)]
struct NearHistory {
    keys: Vec<Growth>,
    reads: u64,
    stale: u64,
}

/// The values of one key.
#[derive(Debug, Default, Clone)]
struct Growth {
    /// Each read must give this at least.
    floor: u64,
    /// Values that were acknowledged later, and when.
    acknowledged: VecDeque<(Instant, u64)>,
    /// The highest value that was given to a write.
    highest: u64,
}

/// The verdict on a near cache.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(super) struct NearVerdict {
    /// Reads that were answered.
    pub(super) reads: u64,
    /// Those among them that a copy answered.
    pub(super) copies: u64,
    /// Reads that gave less than was acknowledged before the bound, or what was never written.
    pub(super) old: u64,
}

impl NearVerdict {
    pub(super) const fn holds(&self) -> bool {
        self.old == 0
    }
}

impl NearHistory {
    fn new(keys: u64) -> Self {
        Self {
            keys: (0..keys).map(|_| Growth::default()).collect(),
            ..Self::default()
        }
    }

    fn key(&mut self, key: u64) -> &mut Growth {
        // There are few keys.
        &mut self.keys[key as usize]
    }

    /// A write of this key has a value: the next one.
    fn next(&mut self, key: u64) -> u64 {
        let growth = self.key(key);
        growth.highest += 1;
        growth.highest
    }

    /// A write was acknowledged at this moment.
    fn written(&mut self, key: u64, value: u64, at: Instant) {
        self.key(key).acknowledged.push_back((at, value));
    }

    /// A read that began at this moment gave this value. It returned later, so what it gave was the
    /// value at some moment that is at most the bound before its beginning, or later.
    fn read(&mut self, key: u64, began: Instant, value: Option<u64>) {
        let growth = self.key(key);
        while let Some((at, acknowledged)) = growth.acknowledged.front()
            && *at + BOUND < began
        {
            growth.floor = growth.floor.max(*acknowledged);
            growth.acknowledged.pop_front();
        }
        let possible = growth.floor..=growth.highest;
        let stale = !possible.contains(&value.unwrap_or(0));
        self.reads += 1;
        self.stale += u64::from(stale);
    }
}

/// The running near cache, its readers and its writer.
pub(super) struct Watcher {
    watched: Rc<RefCell<NearHistory>>,
    near: NearMap<u64, u64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Watcher {
    /// Opens the cache, and begins to write and to read while `running`.
    pub(super) async fn start(
        client: &doyen::Node,
        running: &Rc<Cell<bool>>,
        seed: u64,
    ) -> Result<Self, CommandFailed> {
        let failed = |e| CommandFailed::new(format!("the near cache: {e}"));
        let map: Map<u64, u64> = client.map("chaos near").await.map_err(failed)?;
        let near = map.near(BOUND).await.map_err(failed)?;
        let watched = Rc::new(RefCell::new(NearHistory::new(READERS * KEYS)));
        let rng = |task: u64| ChaCha8Rng::seed_from_u64(seed.rotate_left(16) ^ task);
        let mut tasks = vec![tokio::task::spawn_local(write(
            map,
            watched.clone(),
            running.clone(),
            rng(READERS),
        ))];
        for reader in 0..READERS {
            tasks.push(tokio::task::spawn_local(read(
                near.clone(),
                watched.clone(),
                running.clone(),
                (reader, rng(reader)),
            )));
        }
        Ok(Self {
            watched,
            near,
            tasks,
        })
    }

    /// The verdict, once the tasks have ended because nothing is `running` any more.
    pub(super) async fn finish(self) -> Result<NearVerdict, CommandFailed> {
        for task in self.tasks {
            let ended = task.await;
            ended.map_err(|e| {
                CommandFailed::new(format!("a task of the near cache panicked: {e}"))
            })?;
        }
        let watched = self.watched.borrow();
        Ok(NearVerdict {
            reads: watched.reads,
            copies: self.near.stats().hits,
            old: watched.stale,
        })
    }
}

/// Lets values grow. `update` writes only over what it has read, so a write whose answer is lost
/// cannot overtake a later one and make a value smaller.
async fn write(
    map: Map<u64, u64>,
    watched: Rc<RefCell<NearHistory>>,
    running: Rc<Cell<bool>>,
    mut rng: ChaCha8Rng,
) {
    while running.get() {
        let key = rng.random_range(0..READERS * KEYS);
        let next = watched.borrow_mut().next(key);
        let grown = |there: Option<&u64>| Some(next.max(there.copied().unwrap_or(0)));
        if let Ok(Some(value)) = map.update(&key, grown).await {
            watched.borrow_mut().written(key, value, Instant::now());
        }
        tokio::time::sleep(WRITE_PAUSE).await;
    }
}

async fn read(
    near: NearMap<u64, u64>,
    watched: Rc<RefCell<NearHistory>>,
    running: Rc<Cell<bool>>,
    (reader, mut rng): (u64, ChaCha8Rng),
) {
    while running.get() {
        let key = reader * KEYS + rng.random_range(0..KEYS);
        let began = Instant::now();
        if let Ok(value) = near.get(&key).await {
            watched.borrow_mut().read(key, began, value);
        }
        tokio::time::sleep(READ_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_below_what_was_acknowledged_before_the_bound_is_stale() {
        let (mut watched, began) = (NearHistory::new(2), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        let bound = u64::try_from(BOUND.as_millis()).unwrap_or(u64::MAX);
        watched.read(0, at(0), None);
        for (value, ms) in [(1, 10), (2, 20), (3, 30)] {
            assert_eq!(watched.next(0), value);
            watched.written(0, value, at(ms));
        }
        // Each is allowed: the later ones were acknowledged within the bound, or are under way.
        assert_eq!(watched.next(0), 4);
        watched.read(0, at(40), None);
        watched.read(0, at(10 + bound), None);
        watched.read(0, at(20 + bound), Some(1));
        watched.read(0, at(30 + bound), Some(2));
        watched.read(0, at(31 + bound), Some(3));
        watched.read(0, at(32 + bound), Some(4));
        watched.read(1, at(33 + bound), None);
        assert_eq!((watched.reads, watched.stale), (8, 0));

        watched.read(0, at(34 + bound), Some(2));
        assert_eq!(watched.stale, 1, "3 was acknowledged before the bound");
        watched.read(0, at(35 + bound), None);
        assert_eq!(watched.stale, 2);
        watched.read(0, at(36 + bound), Some(5));
        assert_eq!(watched.stale, 3, "it was never written");
    }
}
