//! The tables that a shard acts on, and what follows from them.

use super::threads::MemberThreads;
use crate::command::operation::Work;
use crate::store::Store;
use crate::value::outcome::Failure;
use crate::wire::published::Published;
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::{
    Durability, Epoch, Keyspace, KeyspaceId, Lineage, MapId, MemberId, Mode, OrderKey, Partition,
    PartitionRef, Table, TableName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// More writes than one lineage of a partition has.
pub(crate) const SEQS: u64 = 1 << 44;

/// The installed and the accepted table.
#[derive(Debug, Default)]
pub(crate) struct ShardTables {
    pub(crate) view: Option<View>,
    /// The name of the installed one.
    pub(crate) name: Option<TableName>,
    /// When new tenures may acknowledge (rule 9).
    pub(crate) opens: BTreeMap<PartitionRef, (Epoch, Time)>,
    /// Members that are about to leave.
    pub(crate) leaving: BTreeSet<MemberId>,
    pub(crate) threads: MemberThreads,
    /// The number of the last recovery, and the table from which it went on, if this node was a
    /// member then.
    pub(crate) recovered_from: Option<(u32, Arc<Table>)>,
    /// The installed table in the encoding for clients.
    pub(crate) published: Published,
}

impl ShardTables {
    /// As if this table had been installed.
    pub(crate) fn of(table: Arc<Table>) -> Self {
        let name = table.name();
        let view = View {
            installed: Arc::clone(&table),
            accepted: table,
            opens_at: Arc::default(),
        };
        Self {
            view: Some(view),
            name: Some(name),
            ..Self::default()
        }
    }

    /// Since which setting entries of a keyspace count once they are on the disk. `None`: they do
    /// not wait for it.
    pub(crate) fn durable_since(&self, keyspace: KeyspaceId) -> Option<u64> {
        let keyspace = self.installed()?.keyspace(keyspace)?;
        (keyspace.durability == Durability::Log).then_some(keyspace.durable_since.0)
    }

    fn installed(&self) -> Option<&Table> {
        self.view.as_ref().map(|view| &*view.installed)
    }

    /// What the numbers of versions count from in a partition of this lineage.
    ///
    /// A cluster that was founded again counts lineages and sequences from 1 again, and a member of
    /// the former cluster may still know versions of it. The id of a cluster is drawn at random.
    ///
    /// Partitions that are merged go on in the latest lineage among them. So keys of the others
    /// have other versions then, and who watches one reads it again.
    pub(crate) fn versions_from(&self, lineage: Lineage) -> u64 {
        let cluster = self.name.map_or(0, |name| name.cluster.0 as u64);
        cluster.wrapping_add(u64::from(lineage.0).wrapping_mul(SEQS))
    }

    /// The partition and slot of a key by the installed table.
    pub(crate) fn place(
        &self,
        keyspace: KeyspaceId,
        map: MapId,
        key: &[u8],
    ) -> Option<PartitionRef> {
        let partition = self
            .installed()?
            .keyspace(keyspace)?
            .partition_of(map, key)?;
        Some(PartitionRef::new(keyspace, partition))
    }

    /// The partition of all keys of an operation by the installed table.
    ///
    /// # Errors
    /// There is none, or they are in several.
    pub(crate) fn place_of(
        &self,
        keyspace: KeyspaceId,
        work: &Work,
    ) -> Result<PartitionRef, Failure> {
        let mut places = work.keys().map(|(map, key)| self.place(keyspace, map, key));
        let first = places.next().flatten().ok_or(Failure::NoPartition)?;
        if places.all(|place| place == Some(first)) {
            Ok(first)
        } else {
            Err(Failure::CrossPartition)
        }
    }

    /// Whether every member knows what came with this level.
    ///
    /// # Errors
    /// Some do not yet.
    #[inline]
    pub(crate) fn need_level(&self, level: u16) -> Result<(), Failure> {
        match self.installed() {
            Some(table) if table.level < level => Err(Failure::OldMembers),
            _ => Ok(()),
        }
    }

    /// The level of the installed table.
    pub(crate) fn level(&self) -> u16 {
        self.installed().map_or(0, |table| table.level)
    }

    /// Why there is no such partition.
    pub(crate) fn missing(&self, at: PartitionRef) -> Failure {
        let keyspace = self.installed().and_then(|t| t.keyspace(at.keyspace));
        let was =
            keyspace.is_some_and(|k| !k.partitions.is_empty() && at.partition < k.next_partition());
        if was {
            Failure::Stale
        } else {
            Failure::NoPartition
        }
    }

    /// An empty store for a partition of a keyspace. It keeps keys sorted if the partitions are
    /// ranges.
    pub(crate) fn store_of(&self, keyspace: KeyspaceId) -> Store {
        let table = self.installed();
        let keyspace = table.and_then(|table| table.keyspace(keyspace));
        // The same at every member of the cluster, so that cursors of scans are, too.
        let order_key = table.map_or_else(OrderKey::default, |table| table.order_key);
        Store::new(order_key).sorted(keyspace.is_some_and(|k| k.mode == Mode::Range || k.ordered))
    }

    /// Whether one of the tables names this member.
    pub(crate) fn name_member(&self, member: MemberId) -> bool {
        self.view.as_ref().is_some_and(|v| {
            v.installed.member(member).is_some() || v.accepted.member(member).is_some()
        })
    }

    /// Whether a key belongs to this partition, whose range never changes. `None` if no table names
    /// the partition.
    pub(crate) fn belongs(&self, at: PartitionRef, map: MapId, key: &[u8]) -> Option<bool> {
        let keyspace = self.keyspace_with(at)?;
        Some(keyspace.partition_of(map, key) == Some(at.partition))
    }

    /// Whether this partition is the only one of its keyspace.
    pub(crate) fn has_all_keys(&self, at: PartitionRef) -> bool {
        let keyspace = self.keyspace_with(at);
        keyspace.is_some_and(|keyspace| keyspace.partitions.len() == 1)
    }

    /// The keyspace of a partition, in a table that names it.
    fn keyspace_with(&self, at: PartitionRef) -> Option<&Keyspace> {
        let view = self.view.as_ref()?;
        [&view.installed, &view.accepted]
            .into_iter()
            .filter_map(|table| table.keyspace(at.keyspace))
            .find(|k| k.partition(at.partition).is_some())
    }

    /// The thread of a member that has a partition, if that member has it.
    pub(crate) fn peer_of(&self, member: MemberId, at: PartitionRef) -> MemberId {
        self.threads.peer_of(member, at.partition)
    }

    /// The threads whose copies count, the primary's first.
    pub(crate) fn in_sync<'a>(
        &'a self,
        partition: &'a Partition,
    ) -> impl Iterator<Item = MemberId> + 'a {
        partition
            .in_sync()
            .map(|member| self.threads.peer_of(member, partition.id))
    }

    /// The threads that are catching up.
    pub(crate) fn learners<'a>(
        &'a self,
        partition: &'a Partition,
    ) -> impl Iterator<Item = MemberId> + 'a {
        partition
            .learners()
            .map(|member| self.threads.peer_of(member, partition.id))
    }
}
