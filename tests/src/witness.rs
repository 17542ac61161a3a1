//! Clients of several keyspaces that record every operation. At the end, all of them are judged:
//! can the answers be explained?
//!
//! The writers of [`crate::load`] own their keys. The clients here contend: they read, write, add
//! and delete the same few keys, from several connections through several nodes.

use crate::resp::{Client, Reply};
use doyen::testkit::History;
use doyen::testkit::linear::{Answer, Call};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections to each keyspace.
const CLIENTS: u32 = 2;
/// Keys of a keyspace in use at a time.
const KEYS: usize = 24;
/// How many of those keys are counters.
const COUNTERS: usize = 6;
/// Operations on a key, after which another one takes its place: long histories take long to judge.
const HISTORY_MAX: usize = 150;
/// How long a client waits for an answer. A node parks a request for 5 s at most.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// The pause between two operations of a client, because others need the processor, too.
const PAUSE: Duration = Duration::from_millis(1);
/// How often a key is tried at the end.
const TRIES: u32 = 100;

/// Running clients.
#[derive(Debug)]
pub struct Witness {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    history: History,
    stop: AtomicBool,
    answered: AtomicU64,
    addresses: Mutex<Vec<SocketAddr>>,
    /// By keyspace.
    keys: Vec<(String, Mutex<Vec<Slot>>)>,
}

/// A place for a key: how often another one took it, and operations on the present one.
type Slot = (u32, usize);

impl Witness {
    /// Starts clients of these keyspaces, which exist.
    #[must_use]
    pub fn start(addresses: Vec<SocketAddr>, keyspaces: &[&str]) -> Self {
        let keys = keyspaces
            .iter()
            .map(|name| ((*name).to_owned(), Mutex::new(vec![(0, 0); KEYS])))
            .collect();
        let shared = Arc::new(Shared {
            history: History::new(),
            stop: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            addresses: Mutex::new(addresses),
            keys,
        });
        let ids =
            (0..keyspaces.len()).flat_map(|keyspace| (0..CLIENTS).map(move |n| (keyspace, n)));
        let clients = ids.zip(0_u32..).map(|((keyspace, _), id)| {
            let asker = Asker {
                id,
                keyspace,
                shared: shared.clone(),
                turn: id as usize,
                client: None,
            };
            std::thread::spawn(move || asker.run())
        });
        Self {
            clients: clients.collect(),
            shared,
        }
    }

    /// From now on, clients connect to these addresses.
    pub fn redirect(&self, addresses: Vec<SocketAddr>) {
        *self
            .shared
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// Operations that were answered so far.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Ends the clients, reads every key once more, and judges. Returns the number of operations
    /// that were answered.
    ///
    /// # Panics
    /// Something has no explanation, or a key cannot be read.
    pub fn judge(self) -> u64 {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("a client does not panic");
        }
        for (keyspace, (name, _)) in self.shared.keys.iter().enumerate() {
            let mut reader = Asker {
                id: u32::MAX,
                keyspace,
                shared: self.shared.clone(),
                turn: 0,
                client: None,
            };
            let of_it = |key: &String| {
                key.split_once('/')
                    .is_some_and(|(keyspace, _)| keyspace == name)
            };
            for key in self.shared.history.keys().into_iter().filter(of_it) {
                let read = (0..TRIES).any(|_| reader.ask(&key, &Call::Get));
                assert!(read, "{key} cannot be read");
            }
        }
        let violations = self.shared.history.judge();
        let told: Vec<String> = violations.iter().take(3).map(ToString::to_string).collect();
        assert!(
            violations.is_empty(),
            "{} keys are wrong:\n{}",
            violations.len(),
            told.join("\n")
        );
        self.shared.answered.load(Ordering::Relaxed)
    }
}

/// One client.
struct Asker {
    id: u32,
    keyspace: usize,
    shared: Arc<Shared>,
    turn: usize,
    client: Option<Client>,
}

impl Asker {
    fn run(mut self) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.id.into());
        let mut serial = 0_u64;
        while !self.shared.stop.load(Ordering::Relaxed) {
            serial += 1;
            let slot = rng.random_range(0..KEYS);
            let key = self.key(slot);
            let value = format!("{}.{serial}", self.id).into_bytes();
            let call = match rng.random_range(0..20) {
                0..8 => Call::Get,
                _ if slot < COUNTERS => Call::Incr(rng.random_range(1..4)),
                8..16 => Call::Set(value),
                16..18 => Call::GetSet(value),
                _ => Call::Delete,
            };
            self.ask(&key, &call);
            std::thread::sleep(PAUSE);
        }
    }

    fn key(&self, slot: usize) -> String {
        let (name, keys) = &self.shared.keys[self.keyspace];
        let mut keys = keys.lock().unwrap_or_else(PoisonError::into_inner);
        let (generation, used) = &mut keys[slot];
        if *used >= HISTORY_MAX {
            (*generation, *used) = (*generation + 1, 0);
        }
        *used += 1;
        format!("{name}/{slot}.{generation}")
    }

    /// Asks, and records the outcome. Returns false if there is no answer.
    fn ask(&mut self, key: &str, call: &Call) -> bool {
        let Some(mut client) = self.client.take().or_else(|| self.connect()) else {
            // Nothing listens there: do not spin while the process starts.
            std::thread::sleep(PAUSE * 10);
            return false;
        };
        let sum;
        let words: Vec<&[u8]> = match call {
            Call::Set(value) => vec![b"SET", key.as_bytes(), value],
            Call::GetSet(value) => vec![b"GETSET", key.as_bytes(), value],
            Call::Delete => vec![b"DEL", key.as_bytes()],
            Call::Incr(by) => {
                sum = by.to_string();
                vec![b"INCRBY", key.as_bytes(), sum.as_bytes()]
            }
            _ => vec![b"GET", key.as_bytes()],
        };
        let pending = self.shared.history.call(key, self.id, call.clone());
        let answer = match client.command(&words) {
            Ok(Reply::Simple(_)) => Answer::Ok,
            Ok(Reply::Nil) => Answer::Nil,
            Ok(Reply::Int(n)) => Answer::Int(n),
            Ok(Reply::Bulk(value)) => Answer::Bulk(value),
            Ok(Reply::Error(text))
                if text.starts_with("TRYAGAIN") || text.starts_with("CLUSTERDOWN") =>
            {
                pending.refused();
                std::thread::sleep(PAUSE * 10);
                self.client = Some(client);
                return false;
            }
            Ok(Reply::Error(text)) if text.starts_with("UNKNOWN") => {
                pending.unknown();
                return false;
            }
            // An impossible answer is recorded too: nothing explains it, so the judgement
            // fails.
            Ok(other) => Answer::Bulk(format!("{other:?}").into_bytes()),
            Err(_) => {
                pending.unknown();
                return false;
            }
        };
        pending.answered(answer);
        self.shared.answered.fetch_add(1, Ordering::Relaxed);
        self.client = Some(client);
        true
    }

    fn connect(&mut self) -> Option<Client> {
        self.turn += 1;
        let addresses = self
            .shared
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let address = addresses.get(self.turn % addresses.len().max(1))?;
        let mut client = Client::connect(*address, ANSWER_MAX).ok()?;
        let (name, _) = &self.shared.keys[self.keyspace];
        let chosen = client
            .command(&[b"CLIENT", b"KEYSPACE", name.as_bytes()])
            .ok()?;
        // A node that has just joined may not know the keyspace yet.
        (chosen == Reply::Simple("OK".into())).then_some(client)
    }
}
