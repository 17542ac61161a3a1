//! Callers of this process that change one key by what it holds wait for each other here, so that
//! only processes contend at the primary.
//!
//! ```text
//!   update ── queue (one a key) ── enter ── read ── write unless changed ──> done
//!                                    ^                     └─ changed: pause, a little at random
//! ```
//! A queue is there as long as a caller waits in it. A process whose queue is never empty leaves a
//! gap now and then: otherwise a process that is farther from the primary would never find the
//! key unchanged.

use super::DataHandle;
use bytes::Bytes;
use doyen_placement::{KeyspaceId, MapId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A caller tries for this long while other processes are faster.
const TRIES_FOR: Duration = Duration::from_secs(30);
/// The longest first pause after another process was faster, and the longest of all.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(32);
/// After so long without a gap, a queue leaves one.
const BURST: Duration = Duration::from_millis(20);

type QueueKey = (KeyspaceId, MapId, Bytes);
/// Holds since when there was no gap.
type WaitingLine = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// All queues of this node. A lock that is held for moments, because callers are on any thread.
#[derive(Debug, Default)]
pub(super) struct Queues(Mutex<HashMap<QueueKey, WaitingLine>>);

impl Queues {
    fn all(&self) -> MutexGuard<'_, HashMap<QueueKey, WaitingLine>> {
        // Each change of it is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller in the queue of a key.
#[derive(Debug)]
pub(crate) struct Queue {
    data: DataHandle,
    key: QueueKey,
    line: WaitingLine,
}

/// It is a caller's turn to change the key.
#[derive(Debug)]
pub(crate) struct QueueTurn<'a> {
    data: &'a DataHandle,
    _turn: tokio::sync::MutexGuard<'a, Option<Instant>>,
    until: Instant,
    pause: Duration,
}

impl DataHandle {
    /// A place in the queue of a key. The caller may wait in it on any runtime, or on none.
    pub(crate) fn queue(&self, keyspace: KeyspaceId, map: MapId, key: Bytes) -> Queue {
        let key = (keyspace, map, key);
        let line = self.0.queues.all().entry(key.clone()).or_default().clone();
        let data = self.clone();
        Queue { data, key, line }
    }
}

impl Queue {
    /// Waits for this caller's turn. Callers come in the order in which they asked.
    pub(crate) async fn enter(&self) -> QueueTurn<'_> {
        let mut turn = self.line.lock().await;
        match *turn {
            Some(since) if since.elapsed() >= BURST => {
                self.data.0.keeper.pause(PAUSE).await;
                *turn = Some(Instant::now());
            }
            Some(_) => {}
            None => *turn = Some(Instant::now()),
        }
        QueueTurn {
            data: &self.data,
            _turn: turn,
            until: Instant::now() + TRIES_FOR,
            pause: PAUSE,
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut all = self.data.0.queues.all();
        // New callers come in under this lock: without another one, only this and the map have it.
        if Arc::strong_count(&self.line) == 2 {
            all.remove(&self.key);
        }
    }
}

impl QueueTurn<'_> {
    /// Another process was faster. Returns whether the caller may try again, after a pause.
    pub(crate) async fn again(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        let pause = self.pause.mul_f64(rand::random::<f64>());
        self.data.0.keeper.pause(pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}
