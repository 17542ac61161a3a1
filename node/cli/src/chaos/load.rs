//! Clients: RESP clients of every node, and native ones. All of them share the same keys, and every
//! operation is recorded. Some keys are fields of hashes, which are large or small, and some are
//! used by scripts and transactions. To those who judge, each of these is a key like others.

use super::SharedBook;
use super::follow::{FollowRecord, FollowVerdict, SubscriberTask};
use super::locks::{LockCallers, Locks};
use super::near::{NearVerdict, Watcher};
use super::queues::{QueueClients, Queues};
use crate::CommandFailed;
use doyen::Database;
use doyen::resp::client::{Reply, RespClient, nothing_happened};
use doyen::testkit::linear::{Answer, Call};
use doyen::testkit::{Cluster, History, PendingCall};
use doyen::{Error, Happened};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Clients that speak RESP.
const RESP_CLIENTS: u32 = 12;
/// Tasks that use the native client.
const NATIVE_CLIENTS: u32 = 4;
/// Keys in use at a time.
const KEYS: usize = 200;
/// The keys among them that are counters.
const COUNTERS: usize = 40;
/// The keys behind those that are fields of hashes.
const FIELDS: usize = 40;
/// The number of these hashes. Every second one is large: its values are long.
const HASHES: usize = 4;
const LONG: usize = 300;
/// Operations on one key, after which a new key takes its place: long histories take long to judge.
const HISTORY_MAX: usize = 200;
/// How long a client waits for an answer. A node parks a request for 5 s at most.
const ANSWER_MAX: Duration = Duration::from_secs(6);
/// How long connecting may take.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The pause before another attempt after an operation that did not happen.
const RETRY: Duration = Duration::from_millis(10);
/// How often the final reading tries each key.
const TRIES: u32 = 50;
/// The client that reads all keys back at the end.
pub(super) const READER: u32 = u32::MAX;

/// The running clients.
pub(super) struct ChaosLoad {
    running: Rc<Cell<bool>>,
    tasks: Vec<JoinHandle<()>>,
    native: doyen::Node,
    /// Another client, so that locks have callers in more than one.
    other: doyen::Node,
    follower: SubscriberTask,
    watcher: Watcher,
    callers: LockCallers,
    queues: QueueClients,
}

/// State that all clients share.
#[derive(Clone)]
struct ChaosShared {
    book: SharedBook,
    history: History,
    keys: Rc<RefCell<Vec<(u32, usize)>>>,
    running: Rc<Cell<bool>>,
    followed: Rc<RefCell<FollowRecord>>,
    /// The time between two operations of a client.
    pace: Duration,
}

impl ChaosLoad {
    /// Connects the native clients and starts all clients.
    pub(super) async fn start(
        book: &SharedBook,
        history: &History,
        cluster: &Cluster,
        rate: u32,
        seed: u64,
    ) -> Result<Self, CommandFailed> {
        let (native, other) = (native(cluster).await?, native(cluster).await?);
        let follower = SubscriberTask::start(&native, book).await?;
        let running = Rc::new(Cell::new(true));
        let watcher = Watcher::start(&native, &running, seed).await?;
        let both = [native.clone(), other.clone()];
        let callers = LockCallers::start(&both, book, &running, seed).await?;
        let queues = QueueClients::start(book, &running);
        let clients = RESP_CLIENTS + NATIVE_CLIENTS;
        let common = ChaosShared {
            book: book.clone(),
            history: history.clone(),
            keys: Rc::new(RefCell::new(vec![(0, 0); KEYS])),
            running: running.clone(),
            followed: follower.followed().clone(),
            pace: Duration::from_secs(clients.into()) / rate,
        };
        let mut tasks = Vec::new();
        for id in 0..clients {
            let rng = ChaCha8Rng::seed_from_u64(seed.rotate_left(32) ^ u64::from(id));
            let asker: LoadClient = if id < RESP_CLIENTS {
                LoadClient::Resp(RespLoad::new(book, id as usize))
            } else {
                LoadClient::Native(native.database())
            };
            tasks.push(tokio::task::spawn_local(run(
                id,
                common.clone(),
                rng,
                asker,
            )));
        }
        Ok(Self {
            running,
            tasks,
            native,
            other,
            follower,
            watcher,
            callers,
            queues,
        })
    }

    /// Stops the clients, once each has its last answer. Returns what the subscriber was told,
    /// what the near cache gave, what callers of locks saw, and what became of queues.
    pub(super) async fn finish(
        self,
    ) -> Result<(FollowVerdict, NearVerdict, Locks, Queues), CommandFailed> {
        self.running.set(false);
        for task in self.tasks {
            task.await
                .map_err(|e| CommandFailed::new(format!("a client of the chaos panicked: {e}")))?;
        }
        let near = self.watcher.finish().await?;
        let locks = self.callers.finish().await?;
        let queues = self.queues.finish().await?;
        let told = self.follower.finish().await;
        self.native.shutdown().await;
        self.other.shutdown().await;
        Ok((told, near, locks, queues))
    }
}

/// A native client of the cluster.
async fn native(cluster: &Cluster) -> Result<doyen::Node, CommandFailed> {
    let seeds: Vec<String> = cluster
        .running()
        .filter_map(|node| Some(cluster.data(node)?.to_string()))
        .collect();
    let builder = doyen::Node::builder().client().seeds(seeds);
    let native = builder.secret_file(cluster.secret_file()).start().await;
    native.map_err(|e| CommandFailed::new(format!("the native client: {e}")))
}

/// The outcome of an operation.
enum LoadOutcome {
    Answered(Answer),
    Unknown,
    NotDone,
}

/// How a client talks to the cluster.
enum LoadClient {
    Resp(RespLoad),
    Native(Database),
}

async fn run(id: u32, common: ChaosShared, mut rng: ChaCha8Rng, mut asker: LoadClient) {
    // Every value names its writer and a serial number, so no two values are equal.
    let mut serial = 0_u64;
    let mut since = None;
    while common.running.get() {
        serial += 1;
        let place = common.place(&mut rng, matches!(asker, LoadClient::Native(_)));
        let call = asker.choose(&mut rng, &place, format!("{id}.{serial}"));
        let key = place.name.clone();
        let began = Instant::now();
        let excused = asker.is_excused(&common.book);
        let pending = common.history.call(key.clone(), id, call.clone());
        let outcome = asker.ask(&place, &call).await;
        let excused = excused || asker.is_excused(&common.book);
        let answered = matches!(outcome, LoadOutcome::Answered(_));
        // Subscribers get strings with their values.
        if answered
            && place.hash().is_none()
            && let Call::Set(value) | Call::GetSet(value) = &call
        {
            let mut followed = common.followed.borrow_mut();
            followed.acknowledged(place.name.as_bytes(), value);
        }
        common.note(pending, outcome);
        // After a wait for a node that was taken away, the client starts a new wait with the next
        // node.
        let first = *since.get_or_insert(began);
        if answered && !excused {
            common.book.borrow_mut().waited(first);
        }
        if answered || excused {
            since = None;
        }
        if answered {
            tokio::time::sleep(common.pace.mul_f64(rng.random_range(0.5..1.5))).await;
        } else {
            asker.turn_away();
            tokio::time::sleep(RETRY).await;
        }
    }
}

impl ChaosShared {
    /// A random place. Native clients use no fields.
    fn place(&self, rng: &mut ChaCha8Rng, native: bool) -> KeyPlace {
        let fields = COUNTERS..COUNTERS + FIELDS;
        let slot = loop {
            let slot = rng.random_range(0..KEYS);
            if !(native && fields.contains(&slot)) {
                break slot;
            }
        };
        let mut keys = self.keys.borrow_mut();
        let (generation, used) = &mut keys[slot];
        if *used >= HISTORY_MAX {
            (*generation, *used) = (*generation + 1, 0);
        }
        *used += 1;
        KeyPlace::of(&format!("chaos:{slot}:{generation}"))
    }

    fn note(&self, pending: PendingCall, outcome: LoadOutcome) {
        let mut book = self.book.borrow_mut();
        match outcome {
            LoadOutcome::Answered(answer) => {
                book.second.answered += 1;
                pending.answered(answer);
            }
            LoadOutcome::Unknown => {
                book.second.unknown += 1;
                pending.unknown();
            }
            LoadOutcome::NotDone => {
                book.second.refused += 1;
                pending.refused();
            }
        }
    }
}

/// What an operation is about: a key, or a field of a hash.
struct KeyPlace {
    /// Its name, which is the key or the field.
    name: String,
    slot: usize,
}

impl KeyPlace {
    /// The place of this name, which holds its slot.
    fn of(name: &str) -> Self {
        let slot = name.split(':').nth(1).and_then(|slot| slot.parse().ok());
        Self {
            name: name.to_owned(),
            slot: slot.unwrap_or(KEYS),
        }
    }

    const fn is_counter(&self) -> bool {
        self.slot < COUNTERS
    }

    /// The hash whose field it is.
    fn hash(&self) -> Option<usize> {
        let fields = COUNTERS..COUNTERS + FIELDS;
        fields
            .contains(&self.slot)
            .then(|| (self.slot - COUNTERS) % HASHES)
    }

    /// The commands that do this. The last one is answered.
    fn commands(&self, call: &Call) -> Vec<Vec<Vec<u8>>> {
        let name = self.name.clone();
        let line = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let with = |words: &[&str], value: &[u8]| {
            let mut words: Vec<Vec<u8>> = line(words);
            words.push(value.to_vec());
            words
        };
        if let Some(hash) = self.hash() {
            let key = format!("chaos:hash:{hash}");
            return vec![match call {
                Call::Set(value) => with(&["HSET", &key, &name], value),
                Call::Delete => line(&["HDEL", &key, &name]),
                _ => line(&["HGET", &key, &name]),
            }];
        }
        let odd = self.slot % 2 == 1;
        match call {
            Call::Set(value) => vec![with(&["SET", &name], value)],
            Call::GetSet(value) if odd => vec![
                line(&["MULTI"]),
                line(&["GET", &name]),
                with(&["SET", &name], value),
                line(&["EXEC"]),
            ],
            Call::GetSet(value) => vec![with(&["GETSET", &name], value)],
            Call::GetDel => vec![line(&["GETDEL", &name])],
            Call::Delete => vec![line(&["DEL", &name])],
            Call::Incr(by) if odd => {
                let script = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
                vec![line(&["EVAL", script, "1", &name, &by.to_string()])]
            }
            Call::Incr(by) => vec![line(&["INCRBY", &name, &by.to_string()])],
            // `choose` gives it no other call.
            _ => vec![line(&["GET", &name])],
        }
    }
}

impl LoadClient {
    fn choose(&self, rng: &mut ChaCha8Rng, place: &KeyPlace, value: String) -> Call {
        let mut value = value.into_bytes();
        let native = matches!(self, Self::Native(_));
        let counter = place.is_counter();
        if let Some(hash) = place.hash() {
            if hash % 2 == 1 {
                value.resize(value.len() + LONG, b'.');
            }
            return match rng.random_range(0..20) {
                0..9 => Call::Get,
                9..17 => Call::Set(value),
                _ => Call::Delete,
            };
        }
        match rng.random_range(0..20) {
            0..9 => Call::Get,
            // The native client has no sums, and must not overwrite counters.
            _ if counter && native => Call::Get,
            _ if counter => Call::Incr(rng.random_range(1..4)),
            9..16 => Call::Set(value),
            16..18 if !native => Call::GetSet(value),
            18 if !native => Call::GetDel,
            _ => Call::Delete,
        }
    }

    async fn ask(&mut self, place: &KeyPlace, call: &Call) -> LoadOutcome {
        match self {
            Self::Resp(resp) => resp.ask(place, call).await,
            Self::Native(database) => ask_native(database, &place.name, call).await,
        }
    }

    /// Whether the present fault took away the node that this client talks to.
    fn is_excused(&self, book: &SharedBook) -> bool {
        match self {
            Self::Resp(RespLoad {
                connection: Some((node, _)),
                ..
            }) => book.borrow().excused.contains(node),
            _ => false,
        }
    }

    /// Uses another node next time.
    fn turn_away(&mut self) {
        if let Self::Resp(resp) = self {
            resp.turn_away();
        }
    }
}

async fn ask_native(database: &Database, key: &str, call: &Call) -> LoadOutcome {
    let key = key.to_owned();
    let written = |written: Result<Answer, Error>| match written {
        Ok(answer) => LoadOutcome::Answered(answer),
        Err(e) if e.happened() != Happened::No => LoadOutcome::Unknown,
        Err(_) => LoadOutcome::NotDone,
    };
    match call {
        Call::Set(value) => written(database.set(key, value.clone()).await.map(|()| Answer::Ok)),
        Call::Delete => written(
            database
                .remove(key)
                .await
                .map(|was| Answer::Int(was.into())),
        ),
        // `choose` gives it no other call.
        _ => match database.get(key).await {
            Ok(Some(value)) => LoadOutcome::Answered(Answer::Bulk(value.to_vec())),
            Ok(None) => LoadOutcome::Answered(Answer::Nil),
            Err(_) => LoadOutcome::NotDone,
        },
    }
}

fn words(command: &[Vec<u8>]) -> Vec<&[u8]> {
    command.iter().map(Vec::as_slice).collect()
}

/// A client with one connection at a time, to one node after the other.
pub(super) struct RespLoad {
    book: SharedBook,
    turn: usize,
    /// The number of the node, and the connection.
    connection: Option<(usize, RespClient)>,
}

/// What became of a command.
pub(super) enum Sent {
    Answered(Reply),
    Unknown,
    NotDone,
}

impl RespLoad {
    pub(super) fn new(book: &SharedBook, turn: usize) -> Self {
        Self {
            book: book.clone(),
            turn,
            connection: None,
        }
    }

    /// Uses another node next time.
    pub(super) fn turn_away(&mut self) {
        self.connection = None;
    }

    /// Sends a command.
    pub(super) async fn command(&mut self, words: &[&str]) -> Sent {
        let Some(client) = self.connected().await else {
            return Sent::NotDone;
        };
        match tokio::time::timeout(ANSWER_MAX, client.command(words)).await {
            Ok(Ok(Reply::Error(text))) if nothing_happened(&text) => Sent::NotDone,
            Ok(Ok(Reply::Error(_)) | Err(_)) | Err(_) => Sent::Unknown,
            Ok(Ok(reply)) => Sent::Answered(reply),
        }
    }

    async fn ask(&mut self, place: &KeyPlace, call: &Call) -> LoadOutcome {
        let Some(client) = self.connected().await else {
            return LoadOutcome::NotDone;
        };
        let commands = place.commands(call);
        let Some((last, before)) = commands.split_last() else {
            return LoadOutcome::NotDone;
        };
        for command in before {
            let reply = tokio::time::timeout(ANSWER_MAX, client.command(&words(command))).await;
            // Nothing is done before EXEC.
            if !matches!(reply, Ok(Ok(Reply::Simple(_)))) {
                self.connection = None;
                return LoadOutcome::NotDone;
            }
        }
        match tokio::time::timeout(ANSWER_MAX, client.command(&words(last))).await {
            Ok(Ok(Reply::Error(text))) if nothing_happened(&text) => LoadOutcome::NotDone,
            Ok(Ok(Reply::Int(0 | 1))) if place.hash().is_some() && *call != Call::Delete => {
                LoadOutcome::Answered(Answer::Ok)
            }
            Ok(Ok(Reply::Array(mut replies))) if !before.is_empty() && replies.len() == 2 => {
                LoadOutcome::Answered(match replies.swap_remove(0) {
                    Reply::Nil => Answer::Nil,
                    Reply::Bulk(value) => Answer::Bulk(value),
                    other => Answer::Bulk(format!("{other:?}").into_bytes()),
                })
            }
            Ok(Ok(Reply::Simple(_))) => LoadOutcome::Answered(Answer::Ok),
            Ok(Ok(Reply::Nil)) => LoadOutcome::Answered(Answer::Nil),
            Ok(Ok(Reply::Int(n))) => LoadOutcome::Answered(Answer::Int(n)),
            Ok(Ok(Reply::Bulk(value))) => LoadOutcome::Answered(Answer::Bulk(value)),
            Ok(Ok(Reply::Error(text))) if text.starts_with("UNKNOWN") => LoadOutcome::Unknown,
            // A malformed answer becomes one that no order of events explains.
            Ok(Ok(Reply::Error(text))) => LoadOutcome::Answered(Answer::Bulk(text.into_bytes())),
            Ok(Ok(Reply::Array(_))) => LoadOutcome::Answered(Answer::Bulk(b"an array".to_vec())),
            Ok(Err(_)) | Err(_) => LoadOutcome::Unknown,
        }
    }

    async fn connected(&mut self) -> Option<&mut RespClient> {
        if self.connection.is_none() {
            self.turn += 1;
            let (node, address): (usize, SocketAddr) = {
                let book = self.book.borrow();
                let at = self.turn.checked_rem(book.endpoints.len())?;
                book.endpoints
                    .iter()
                    .nth(at)
                    .map(|(node, address)| (*node, *address))?
            };
            let client = tokio::time::timeout(CONNECT_MAX, RespClient::connect(address))
                .await
                .ok()?
                .ok()?;
            self.connection = Some((node, client));
        }
        self.connection.as_mut().map(|(_, client)| client)
    }
}

/// Reads every key back, through one node after the other until one answers. Returns the number of
/// keys without an answer.
pub(super) async fn read_back(book: &SharedBook, history: &History) -> u64 {
    let mut reader = RespLoad::new(book, 0);
    let mut unread = 0;
    for key in history.keys() {
        let mut read = false;
        for _ in 0..TRIES {
            let pending = history.call(key.clone(), READER, Call::Get);
            if let LoadOutcome::Answered(answer) = reader.ask(&KeyPlace::of(&key), &Call::Get).await
            {
                pending.answered(answer);
                read = true;
                break;
            }
            pending.refused();
            reader.turn_away();
            tokio::time::sleep(RETRY * 10).await;
        }
        unread += u64::from(!read);
    }
    unread
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::book::Book;
    use doyen::testkit::Wrong;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A client of a server that gives these answers to any requests.
    async fn client_of(answers: &'static [&'static str]) -> RespLoad {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let book = Rc::new(RefCell::new(Book::new(false)));
        book.borrow_mut()
            .endpoints
            .insert(0, listener.local_addr().expect("bound"));
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut asked = [0; 1000];
            for answer in answers {
                let _ = stream.read(&mut asked).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        RespLoad {
            book,
            turn: 0,
            connection: None,
        }
    }

    async fn judged(calls: [Call; 2], answers: &'static [&'static str]) -> Vec<Wrong> {
        let (mut resp, history) = (client_of(answers).await, History::new());
        for call in calls {
            let pending = history.call("key", 1, call.clone());
            match resp.ask(&KeyPlace::of("key"), &call).await {
                LoadOutcome::Answered(answer) => pending.answered(answer),
                LoadOutcome::Unknown => pending.unknown(),
                LoadOutcome::NotDone => pending.refused(),
            }
        }
        history
            .judge()
            .iter()
            .map(|violation| violation.wrong)
            .collect()
    }

    #[tokio::test]
    async fn lost_writes_and_refused_writes_that_happened_are_found() {
        let set = || Call::Set(b"x".to_vec());
        assert_eq!(
            judged([set(), Call::Get], &["+OK\r\n", "$1\r\nx\r\n"]).await,
            []
        );
        assert_eq!(
            judged([set(), Call::Get], &["+OK\r\n", "$-1\r\n"]).await,
            [Wrong::Missing]
        );
        assert_eq!(
            judged([set(), Call::Get], &["-TRYAGAIN later\r\n", "$1\r\nx\r\n"]).await,
            [Wrong::Answer]
        );
        assert_eq!(
            judged(
                [set(), Call::Get],
                &["-UNKNOWN it may have happened\r\n", "$1\r\nx\r\n"]
            )
            .await,
            []
        );
        assert_eq!(
            judged([set(), Call::Get], &["-ERR what?\r\n", "$-1\r\n"]).await,
            [Wrong::Answer],
            "an ERR does not say that nothing happened"
        );
        assert_eq!(
            judged([Call::Incr(2), Call::Incr(2)], &[":2\r\n", ":6\r\n"]).await,
            [Wrong::Answer]
        );
    }
}
