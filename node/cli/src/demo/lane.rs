//! A client: one connection at a time, one write after the other, and a read now and then.

use super::SharedScene;
use super::ledger::{Ledger, LedgerVerdict};
use doyen::resp::client::{Reply, RespClient, nothing_happened};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The number of keys of a lane.
const KEYS: usize = 500;
/// How long a client waits for an answer. A node parks a request for 5 s at most.
const ANSWER_MAX: Duration = Duration::from_secs(6);
/// How long connecting may take.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The pause before another attempt after a command that did not happen.
const RETRY: Duration = Duration::from_millis(10);
/// The pause between two operations. The demo is not a benchmark, and leaves the machine some room.
const PACE: Duration = Duration::from_micros(500);
/// How often the final reading tries each key.
const TRIES: usize = 20;

/// A client, and the writes that the cluster acknowledged to it.
pub(super) struct DemoLane {
    scene: SharedScene,
    ledger: Ledger,
    /// The node that it talks to; after an error, the next one.
    turn: usize,
    client: Option<RespClient>,
    last_ack: Option<Instant>,
}

/// The outcome of a command.
enum LaneAnswer {
    Reply(Reply),
    /// The command certainly did not happen.
    NotDone,
    /// The connection broke, or no answer came: the command may have happened.
    Unknown,
}

impl DemoLane {
    pub(super) fn new(number: usize, scene: SharedScene) -> Self {
        Self {
            scene,
            ledger: Ledger::new(number, KEYS),
            turn: number,
            client: None,
            last_ack: None,
        }
    }

    /// Writes and reads until it is asked to stop.
    pub(super) async fn run(mut self) -> Self {
        while self.scene.borrow().under_load {
            self.write().await;
            self.read().await;
            tokio::time::sleep(PACE).await;
        }
        self
    }

    async fn write(&mut self) {
        let (at, key, sequence, value) = self.ledger.next();
        match self.command(&[b"SET", key.as_bytes(), &value]).await {
            LaneAnswer::Reply(Reply::Simple(_)) => {
                self.ledger.acked(at, sequence);
                let now = Instant::now();
                let gap = self.last_ack.map(|last| now - last).unwrap_or_default();
                self.last_ack = Some(now);
                self.scene.borrow_mut().acked(gap);
            }
            LaneAnswer::NotDone => tokio::time::sleep(RETRY).await,
            // A malformed answer promises nothing.
            LaneAnswer::Reply(_) | LaneAnswer::Unknown => self.ledger.unknown(at, sequence),
        }
    }

    async fn read(&mut self) {
        let entry = self.ledger.to_read().clone();
        if let Some(read) = self.get(&entry.key).await {
            let stale = entry.judge(read.as_deref()) == LedgerVerdict::Missing;
            self.scene.borrow_mut().read(stale);
        }
    }

    /// Reads back every acknowledged write. Returns the number of keys, and how many of them are
    /// wrong.
    pub(super) async fn verify(mut self) -> (u64, u64) {
        let entries: Vec<_> = self
            .ledger
            .entries()
            .filter(|e| e.acked > 0)
            .cloned()
            .collect();
        let mut lost = 0;
        for entry in &entries {
            let mut verdict = LedgerVerdict::Missing;
            for _ in 0..TRIES {
                if let Some(read) = self.get(&entry.key).await {
                    verdict = entry.judge(read.as_deref());
                    break;
                }
                tokio::time::sleep(RETRY * 10).await;
            }
            // A key that cannot be read back counts as lost.
            lost += u64::from(verdict == LedgerVerdict::Missing);
        }
        (entries.len() as u64, lost)
    }

    /// `None`: no answer.
    async fn get(&mut self, key: &str) -> Option<Option<Vec<u8>>> {
        match self.command(&[b"GET", key.as_bytes()]).await {
            LaneAnswer::Reply(Reply::Bulk(value)) => Some(Some(value.to_vec())),
            LaneAnswer::Reply(Reply::Nil) => Some(None),
            LaneAnswer::Reply(_) | LaneAnswer::NotDone | LaneAnswer::Unknown => None,
        }
    }

    async fn command(&mut self, args: &[&[u8]]) -> LaneAnswer {
        let Some(client) = self.connected().await else {
            return LaneAnswer::NotDone;
        };
        match tokio::time::timeout(ANSWER_MAX, client.command(args)).await {
            Ok(Ok(Reply::Error(text))) => {
                self.client = None;
                if nothing_happened(&text) {
                    LaneAnswer::NotDone
                } else {
                    LaneAnswer::Unknown
                }
            }
            Ok(Ok(reply)) => LaneAnswer::Reply(reply),
            Ok(Err(_)) | Err(_) => {
                self.client = None;
                LaneAnswer::Unknown
            }
        }
    }

    async fn connected(&mut self) -> Option<&mut RespClient> {
        if self.client.is_none() {
            self.turn += 1;
            let address: SocketAddr = {
                let scene = self.scene.borrow();
                let nodes = &scene.endpoints;
                *nodes.get(self.turn.checked_rem(nodes.len())?)?
            };
            self.client = tokio::time::timeout(CONNECT_MAX, RespClient::connect(address))
                .await
                .ok()?
                .ok();
        }
        self.client.as_mut()
    }
}
