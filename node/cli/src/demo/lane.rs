//! A client: one connection at a time, one write after the other, and a read now and then.

use super::Shared;
use super::ledger::{Ledger, Verdict};
use doyen::resp::client::{Client, Reply, nothing_happened};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Keys of a lane.
const KEYS: usize = 500;
/// How long a client waits for an answer. A node parks a request for 5 s at most.
const ANSWER_MAX: Duration = Duration::from_secs(6);
/// How long it takes to connect at most.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Before trying again what did not happen.
const RETRY: Duration = Duration::from_millis(10);
/// Between two operations: a demo is no benchmark, and the machine has other things to do.
const PACE: Duration = Duration::from_micros(500);
/// How often a key is tried at the end.
const TRIES: usize = 20;

/// A client and what it was promised.
pub(super) struct Lane {
    scene: Shared,
    ledger: Ledger,
    /// Which of the nodes it talks to; the next one after an error.
    turn: usize,
    client: Option<Client>,
    last_ack: Option<Instant>,
}

/// How a command ended.
enum Answer {
    Reply(Reply),
    /// It certainly did not happen.
    NotDone,
    /// The connection broke, or nothing came: it may have happened.
    Unknown,
}

impl Lane {
    pub(super) fn new(number: usize, scene: Shared) -> Self {
        Self {
            scene,
            ledger: Ledger::new(number, KEYS),
            turn: number,
            client: None,
            last_ack: None,
        }
    }

    /// Writes and reads until it is told to stop.
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
            Answer::Reply(Reply::Simple(_)) => {
                self.ledger.acked(at, sequence);
                let now = Instant::now();
                let gap = self.last_ack.map(|last| now - last).unwrap_or_default();
                self.last_ack = Some(now);
                self.scene.borrow_mut().acked(gap);
            }
            Answer::NotDone => tokio::time::sleep(RETRY).await,
            // An answer that makes no sense promises nothing.
            Answer::Reply(_) | Answer::Unknown => self.ledger.unknown(at, sequence),
        }
    }

    async fn read(&mut self) {
        let entry = self.ledger.to_read().clone();
        if let Some(read) = self.get(&entry.key).await {
            let stale = entry.judge(read.as_deref()) == Verdict::Missing;
            self.scene.borrow_mut().read(stale);
        }
    }

    /// Reads back everything that was promised. Returns how many keys there were and how many were
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
            let mut verdict = Verdict::Missing;
            for _ in 0..TRIES {
                if let Some(read) = self.get(&entry.key).await {
                    verdict = entry.judge(read.as_deref());
                    break;
                }
                tokio::time::sleep(RETRY * 10).await;
            }
            // What cannot be read back at all counts as lost.
            lost += u64::from(verdict == Verdict::Missing);
        }
        (entries.len() as u64, lost)
    }

    /// `None`: no answer.
    async fn get(&mut self, key: &str) -> Option<Option<Vec<u8>>> {
        match self.command(&[b"GET", key.as_bytes()]).await {
            Answer::Reply(Reply::Bulk(value)) => Some(Some(value.to_vec())),
            Answer::Reply(Reply::Nil) => Some(None),
            Answer::Reply(_) | Answer::NotDone | Answer::Unknown => None,
        }
    }

    async fn command(&mut self, args: &[&[u8]]) -> Answer {
        let Some(client) = self.connected().await else {
            return Answer::NotDone;
        };
        match tokio::time::timeout(ANSWER_MAX, client.command(args)).await {
            Ok(Ok(Reply::Error(text))) => {
                self.client = None;
                if nothing_happened(&text) {
                    Answer::NotDone
                } else {
                    Answer::Unknown
                }
            }
            Ok(Ok(reply)) => Answer::Reply(reply),
            Ok(Err(_)) | Err(_) => {
                self.client = None;
                Answer::Unknown
            }
        }
    }

    async fn connected(&mut self) -> Option<&mut Client> {
        if self.client.is_none() {
            self.turn += 1;
            let address: SocketAddr = {
                let scene = self.scene.borrow();
                let nodes = &scene.endpoints;
                *nodes.get(self.turn.checked_rem(nodes.len())?)?
            };
            self.client = tokio::time::timeout(CONNECT_MAX, Client::connect(address))
                .await
                .ok()?
                .ok();
        }
        self.client.as_mut()
    }
}
