//! Two shards that hold everything, without a network between them. The first is the primary.

use bytes::{Bytes, BytesMut};
use doyen_engine::command::{Arguments, COMMANDS, ParsedRequest};
use doyen_engine::op::{Action, Operation, Outcome};
use doyen_engine::{Lane, Limits, Patience, Shard};
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::level::LEVELS;
use doyen_placement::{
    Addresses, Epoch, Keyspace, KeyspaceId, MapId, Member, MemberId, Partition, PartitionId,
    PartitionRef, Table,
};
use std::sync::Arc;
use std::time::Duration;

const UNIX_MS: u64 = 1_700_000_000_000;

/// Two shards.
pub(crate) struct Pair {
    pub(crate) primary: Shard,
    pub(crate) backup: Shard,
    now: Time,
    token: u64,
}

impl Pair {
    /// A pair that is connected and open.
    pub(crate) fn new(partitions: u16) -> Self {
        let now = Time(1_000_000_000);
        let table = Arc::new(table(2, partitions, |_| vec![1, 2]));
        let opens_at: Vec<_> = (0..u32::from(partitions))
            .map(|p| {
                (
                    PartitionRef {
                        keyspace: KeyspaceId(0),
                        partition: PartitionId(p),
                    },
                    Epoch(1),
                    now,
                )
            })
            .collect();
        let view = View {
            installed: table.clone(),
            accepted: table,
            opens_at: Arc::new(opens_at),
        };
        let [primary, backup] = [1, 2].map(|n| Shard::new(id(n), limits(), n, now));
        let mut pair = Self {
            primary,
            backup,
            now,
            token: 0,
        };
        pair.primary.install(now, view.clone());
        pair.backup.install(now, view);
        pair.primary.connected(now, id(2), LEVELS.1);
        pair.backup.connected(now, id(1), LEVELS.1);
        for _ in 0..20 {
            pair.exchange();
            pair.now = pair.now + Duration::from_millis(60);
            pair.primary.tick(pair.now);
            pair.backup.tick(pair.now);
        }
        pair
    }

    /// An operation of a caller at the primary's node.
    pub(crate) fn submit(&mut self, key: &Bytes, action: Action) {
        self.token += 1;
        let operation = Operation {
            keyspace: KeyspaceId(0),
            map: MapId(0),
            key: key.clone(),
            action,
        };
        self.primary
            .submit(self.now, UNIX_MS, self.token, operation, Patience::Whole);
    }

    /// A write without conditions, as a Redis client's `SET`.
    pub(crate) fn set(&mut self, key: &Bytes, value: &Bytes) {
        self.token += 1;
        let token = self.token;
        assert!(
            self.primary
                .set(self.now, KeyspaceId(0), MapId(0), (key, value), || token)
        );
    }

    /// These keys come next.
    pub(crate) fn warm(&mut self, keys: &[Bytes]) {
        self.primary.warm(
            KeyspaceId(0),
            MapId(0),
            keys.iter().map(|key| (&**key, &[][..])),
        );
    }

    /// The bytes that the primary has for its copy.
    pub(crate) fn sent(&mut self) -> Option<(Lane, BytesMut)> {
        self.primary
            .poll_transmit()
            .map(|(_, lane, bytes)| (lane, bytes.into()))
    }

    /// The copy takes them, and returns its acknowledgement.
    pub(crate) fn copied(
        &mut self,
        (lane, mut bytes): (Lane, BytesMut),
    ) -> Option<(Lane, BytesMut)> {
        while self
            .backup
            .receive(self.now, UNIX_MS, id(1), lane, &mut bytes)
            .unwrap()
        {}
        self.backup
            .poll_transmit()
            .map(|(_, lane, bytes)| (lane, bytes.into()))
    }

    /// The primary takes the acknowledgement.
    pub(crate) fn acked(&mut self, (lane, mut bytes): (Lane, BytesMut)) {
        while self
            .primary
            .receive(self.now, UNIX_MS, id(2), lane, &mut bytes)
            .unwrap()
        {}
    }

    /// Passes bytes both ways until there are none, and releases all outcomes that it may. Returns
    /// how many.
    pub(crate) fn exchange(&mut self) -> usize {
        loop {
            let sent = self.sent();
            let quiet = sent.is_none();
            let mut answer = sent.and_then(|sent| self.copied(sent));
            if quiet {
                answer = self
                    .backup
                    .poll_transmit()
                    .map(|(_, lane, bytes)| (lane, bytes.into()));
            }
            match answer {
                Some(answer) => self.acked(answer),
                None if quiet => break,
                None => {}
            }
        }
        self.release()
    }

    /// Hands outcomes to their callers. Returns how many.
    pub(crate) fn release(&mut self) -> usize {
        self.primary
            .release(self.now, self.now + Duration::from_millis(500), true);
        let mut count = 0;
        while let Some((_, outcome)) = self.primary.poll_outcome() {
            assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
            count += 1;
        }
        count
    }

    /// Lets time pass.
    pub(crate) fn tick(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        self.primary.tick(self.now);
        self.backup.tick(self.now);
    }

    /// Writes this many keys.
    pub(crate) fn fill(&mut self, count: usize, value: &Bytes) -> Vec<Bytes> {
        let keys: Vec<Bytes> = (0..count)
            .map(|n| Bytes::from(format!("key:{n:012}")))
            .collect();
        for batch in keys.chunks(64) {
            batch.iter().for_each(|key| self.submit(key, set(value)));
            assert_eq!(self.exchange(), batch.len());
        }
        keys
    }
}

/// The lowest bits of ids are for threads.
pub(crate) fn id(number: u64) -> MemberId {
    MemberId(number << 4)
}

/// What a client asks for with these words, about one key.
pub(crate) fn action_of(words: &[&'static str]) -> Action {
    let words: Vec<Bytes> = words.iter().map(|word| Bytes::from(*word)).collect();
    let args: &dyn Arguments = &words.as_slice();
    match COMMANDS.find(args).and_then(|spec| spec.request(args, 0)) {
        Ok(ParsedRequest::One { action, .. }) => action,
        other => unreachable!("{words:?} is {other:?}"),
    }
}

/// A write without conditions.
pub(crate) fn set(value: &Bytes) -> Action {
    Action::set(value.clone())
}

fn limits() -> Limits {
    Limits {
        memory_bytes_max: 8 << 30,
        waiting_max: 1 << 20,
        ..Limits::default()
    }
}

/// A table in which every partition has the replicas that `holders` names.
pub(crate) fn table(members: u64, partitions: u16, holders: impl Fn(u64) -> Vec<u64>) -> Table {
    let address = "127.0.0.1:1".parse().unwrap();
    let member = |n| Member::new(id(n), format!("n{n}"), Addresses::new(address, address));
    let partition = |p: u32| {
        let holders = holders(p.into()).into_iter().map(id);
        Arc::new(Partition::new(PartitionId(p), holders))
    };
    let keyspace = Keyspace {
        partitions: (0..u32::from(partitions)).map(partition).collect(),
        ..Keyspace::fixed(partitions, 1)
    };
    Table::of_test((1..=members).map(member), keyspace)
}
