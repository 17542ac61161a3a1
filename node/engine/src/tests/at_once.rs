//! Writes of one key that are executed as they arrive do what they do as calls.

use super::hashes::of;
use super::*;
use crate::log::dedup::OpId;
use crate::role::calls::{CallSource, PendingCall};
use crate::role::one_key::OneKey;
use crate::role::partition::Slot;
use crate::shard::context::ShardContext;
use crate::store::Effect;

impl World {
    /// Does something with a partition at its primary, and lets its copies know.
    fn at_primary<T>(
        &mut self,
        operation: &Operation,
        does: impl FnOnce(&mut ShardContext, &mut Slot) -> T,
    ) -> T {
        let (now, shard) = (self.now, &mut self.nodes.get_mut(&1).unwrap().shard);
        shard.cx.host.now = now;
        let Operation { map, key, .. } = operation;
        let at = shard.cx.host.tables.place(operation.keyspace, *map, key);
        let slot = shard.slots.get_mut(at.unwrap()).unwrap();
        let done = does(&mut shard.cx, slot);
        shard.cx.host.notice(slot);
        self.drain(1);
        done
    }

    fn do_at_once(&mut self, operation: &Operation) -> Outcome {
        let done = self.at_primary(operation, |cx, slot| {
            let n = cx.host.callers.number();
            let id = OpId {
                origin: cx.host.me,
                n,
                finished: n,
            };
            slot.write_at_once(
                &mut cx.host,
                &mut cx.budgets,
                &OneKey::of(operation, Some(id), None),
            )
        });
        self.settle(Duration::from_millis(20));
        done.expect("nothing is in its way").outcome
    }

    fn do_by_call(&mut self, operation: &Operation) -> Outcome {
        let (token, until) = (self.next_token, self.now + Duration::from_secs(5));
        self.next_token += 1;
        self.at_primary(operation, |cx, slot| {
            let n = cx.host.callers.number();
            slot.calls.begin(n);
            let call = PendingCall {
                source: CallSource::Local(token),
                n,
                work: Work::Key(operation.clone()),
                until,
                hurried: false,
                maybe: false,
                tried: None,
            };
            cx.take_call(slot, call);
        });
        self.settle(Duration::from_millis(20));
        self.outcomes.get(&token).expect("an outcome").clone()
    }

    /// What the primary has logged, with the outcomes that retries find.
    fn logged(&self) -> Vec<(Effect, Outcome)> {
        let slots = self.nodes[&1].shard.slots.iter();
        let held = slots.filter_map(|slot| slot.held.as_deref());
        let logged = held.flat_map(|held| (1..=held.log.last()).map(|seq| held.log.entry(seq)));
        let logged = logged.map(|entry| entry.expect("it is not trimmed yet"));
        logged
            .map(|entry| (entry.effect.clone(), entry.outcome.clone()))
            .collect()
    }
}

#[test]
fn a_write_does_the_same_at_once_and_as_a_call() {
    let world = || World::new(71, 2, |_| vec![1, 2]);
    let (mut at_once, mut by_call) = (world(), world());
    for w in [&mut at_once, &mut by_call] {
        assert_eq!(
            w.set(1, "first", "1"),
            Outcome::Ok,
            "the cluster is in use then"
        );
    }
    let mut failed = 0;
    for line in [
        "SET k 1",
        "INCR k",
        "SET k x NX",
        "SET k 5 XX GET",
        "SET k 6 PX 70000",
        "APPEND k 7",
        "DECRBY k 3",
        "INCRBYFLOAT k 1.5",
        "INCR k",
        "HSET k f 1",
        "EXPIRE k 100 NX",
        "PERSIST k",
        "GETEX k EX 50",
        "GETDEL k",
        "DEL k",
        "SETNX k 1",
        "DEL k",
        "EXPIRE k 5",
        "HSET h f 1 g 2",
        "HSET h f 2",
        "HSET h f 2 name value",
        "HSETNX h f 3",
        "HINCRBY h n 5",
        "HDEL h f missing",
        "HDEL h missing",
        "INCR h",
        "SADD s a b",
        "SADD s a",
        "SREM s a",
        "SREM s b",
        "SREM s b",
    ] {
        let key = line.split(' ').nth(1).expect("a key");
        let operation = Operation {
            keyspace: KeyspaceId(0),
            map: MapId(0),
            key: Bytes::from_static(key.as_bytes()),
            action: of(line),
        };
        let outcome = at_once.do_at_once(&operation);
        assert_eq!(outcome, by_call.do_by_call(&operation), "{line}");
        assert_eq!(at_once.logged(), by_call.logged(), "{line}");
        failed += usize::from(matches!(outcome, Outcome::Failed(_)));
    }
    assert_eq!(failed, 3, "three are of the wrong type, or no number");
    assert_eq!(at_once.logged().len(), 21);
    at_once.settle(Duration::from_millis(500));
    at_once.check_copies();
}
