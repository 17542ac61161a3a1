//! Which partition executes what a caller of this thread asks, or why none may.

use super::tables::ShardTables;
use crate::command::operation::{
    Operation, OperationBatch, OperationStep, PartitionAction, PartitionOperation, ScriptCall, Work,
};
use crate::value::kind::Kind;
use crate::value::outcome::Failure;
use crate::value::tags::TAG_BYTES_MAX;
use crate::wire::api::Limits;
use bytes::Bytes;
use doyen_placement::{MapId, PartitionRef};

impl ShardTables {
    /// The partition of an operation of a local caller.
    ///
    /// # Errors
    /// It is too large, a member does not know it, or there is no such partition.
    pub(crate) fn place_work(&self, limits: &Limits, work: &Work) -> Result<PartitionRef, Failure> {
        match work {
            Work::Key(operation) if operation.action.is_joint() => self
                .may_join(limits, work)
                .and_then(|()| self.place_of(operation.keyspace, work)),
            Work::Key(operation) => self.may_submit(limits, operation).and_then(|()| {
                let Operation {
                    keyspace, map, key, ..
                } = operation;
                let at = self.place(*keyspace, *map, key);
                at.ok_or(Failure::NoPartition)
            }),
            Work::Partition(operation) => self
                .may_sweep(limits, operation)
                .map(|()| PartitionRef::new(operation.keyspace, operation.partition)),
            Work::Script(call) => self
                .may_run(limits, call)
                .and_then(|()| self.place_of(call.keyspace, work)),
            Work::Transaction(transaction) => self
                .may_transact(limits, transaction)
                .and_then(|()| self.place_of(transaction.keyspace, work)),
        }
    }

    /// Whether an operation of a local caller may be executed.
    ///
    /// # Errors
    /// Its key is too long, or not every member knows it.
    fn may_submit(&self, limits: &Limits, operation: &Operation) -> Result<(), Failure> {
        if operation.key.len() > limits.key_bytes_max {
            Err(Failure::TooLarge)
        } else {
            self.need_level(operation.action.level())
        }
    }

    /// The same for an operation on several keys.
    ///
    /// # Errors
    /// It is too large, or a member does not know it.
    fn may_join(&self, limits: &Limits, work: &Work) -> Result<(), Failure> {
        let mut keys = work.keys();
        if work.given().bytes > limits.value_bytes_max
            || keys.any(|(_, key)| key.len() > limits.key_bytes_max)
        {
            return Err(Failure::TooLarge);
        }
        match work {
            Work::Key(operation) => self.need_level(operation.action.level()),
            _ => Ok(()),
        }
    }

    /// The same for an operation on a partition.
    ///
    /// # Errors
    /// It is too large, or not every member knows it.
    fn may_sweep(&self, limits: &Limits, operation: &PartitionOperation) -> Result<(), Failure> {
        match &operation.action {
            PartitionAction::Find(query) => {
                let tag = query.holding.as_ref().map_or(0, Bytes::len);
                if query.prefix.len() > limits.key_bytes_max || tag > TAG_BYTES_MAX {
                    return Err(Failure::TooLarge);
                }
                Ok(())
            }
            PartitionAction::Scan { kind, .. } => self.need_level(kind.map_or(0, Kind::level)),
            PartitionAction::Count
            | PartitionAction::Sizes
            | PartitionAction::Clear
            | PartitionAction::Range(_)
            | PartitionAction::Fields { .. } => Ok(()),
        }
    }

    /// The same for a script.
    ///
    /// # Errors
    /// It is too large.
    fn may_run(&self, limits: &Limits, call: &ScriptCall) -> Result<(), Failure> {
        let Limits {
            key_bytes_max,
            value_bytes_max,
            ..
        } = *limits;
        if call.bytes() > value_bytes_max || call.keys.iter().any(|k| k.len() > key_bytes_max) {
            return Err(Failure::TooLarge);
        }
        Ok(())
    }

    /// The same for a transaction.
    ///
    /// # Errors
    /// It is too large, or not every member knows a step of it.
    fn may_transact(&self, limits: &Limits, transaction: &OperationBatch) -> Result<(), Failure> {
        let Limits {
            key_bytes_max,
            value_bytes_max,
            ..
        } = *limits;
        let long = |(_, key): (MapId, &Bytes)| key.len() > key_bytes_max;
        if !transaction.is_sound(transaction.keyspace)
            || transaction.bytes() > value_bytes_max
            || transaction.named().any(long)
        {
            return Err(Failure::TooLarge);
        }
        let levels = transaction.steps.iter().map(|step| match step {
            OperationStep::Key { action, .. } => action.level(),
            // The primary looks at what a script calls.
            OperationStep::Script(_) => 0,
        });
        self.need_level(levels.max().unwrap_or(0))
    }
}
