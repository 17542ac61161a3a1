//! Shows the log of each partition to the oracle of the simulation. Production code does not use
//! this.

use crate::log::changes::{Change, Filter, KeyFilter, Maps, Position, changes};
use crate::role::host::Host;
use crate::role::slots::Slots;
use crate::store::cuts::RowSpan;
use crate::store::{Effect, Undo};
use crate::value::cause::By;
use crate::value::entry::Entry;
use crate::value::outcome::Outcome;
use doyen_placement::{ClusterId, Epoch, Lineage, MemberId, PartitionRef};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a node holds of one partition.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inspection {
    /// The partition.
    pub at: PartitionRef,
    /// Whose data it is.
    pub lineage: Lineage,
    /// The epoch that was installed last.
    pub epoch: Epoch,
    /// Everything up to here is trimmed from the log.
    pub base: u64,
    /// Sequence of the last entry.
    pub last: u64,
    /// Its epoch, if it is still kept.
    pub last_epoch: Option<Epoch>,
    /// Everything up to here is known to be committed.
    pub committed: u64,
    /// If this node leads: the epoch in which its tenure began.
    pub since: Option<Epoch>,
    /// Whether it leads and may acknowledge: it has waited for its predecessors, and every in-sync
    /// copy has its log.
    pub open: bool,
    /// Whether it is the primary in both the installed and the accepted table.
    pub serving: bool,
    /// Whether a snapshot is still arriving.
    pub arriving: bool,
}

impl Inspection {
    /// Whether it answers if it has a lease.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.open && self.serving
    }
}

/// The outcomes that are kept of a process's operations: those below the mark are finished;
/// [(number, outcome)].
#[doc(hidden)]
pub type InspectedCalls = (u64, Vec<(u64, Outcome)>);

/// What an oracle of the simulation sees of a shard.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Inspector<'a> {
    pub(crate) slots: &'a Slots,
    pub(crate) host: &'a Host,
}

#[doc(hidden)]
impl<'a> Inspector<'a> {
    /// The cluster of the table installed last.
    #[must_use]
    pub fn cluster(self) -> Option<ClusterId> {
        self.host.tables.name.map(|name| name.cluster)
    }

    /// Everything that this node holds.
    pub fn partitions(self) -> impl Iterator<Item = Inspection> + 'a {
        self.slots.iter().filter_map(|slot| {
            let held = slot.held.as_ref()?;
            Some(Inspection {
                at: held.at,
                lineage: held.lineage,
                epoch: held.epoch,
                base: held.log.base(),
                last: held.log.last(),
                last_epoch: held.log.entry(held.log.last()).map(|logged| logged.epoch),
                committed: held.log.committed(),
                since: held.lead().map(|l| l.since),
                open: held.lead().is_some_and(|l| l.open),
                serving: held.lead().is_some_and(|l| l.serving),
                arriving: held.sink().is_some(),
            })
        })
    }

    /// The epoch of an entry that is still kept, and a digest of its effect.
    #[must_use]
    pub fn entry(self, at: PartitionRef, seq: u64) -> Option<(Epoch, u64)> {
        let logged = self.slots.get(at)?.held.as_ref()?.log.entry(seq)?;
        let mut digest = DefaultHasher::new();
        Digested(&logged.effect).hash(&mut digest);
        logged
            .op
            .as_ref()
            .map(|op| (op.origin, op.n))
            .hash(&mut digest);
        Some((logged.epoch, digest.finish()))
    }

    /// The changes of an entry that is still kept, as subscribers get them.
    #[must_use]
    pub fn changes(self, at: PartitionRef, seq: u64) -> Vec<Change> {
        let mut found = Vec::new();
        let filter = Filter {
            keyspace: at.keyspace,
            maps: Maps::All,
            keys: KeyFilter::All,
            values: true,
            fields: true,
            old: false,
        };
        if let Some(held) = self.slots.get(at).and_then(|slot| slot.held.as_ref())
            && let Some(logged) = held.log.entry(seq)
        {
            let position = Position {
                partition: at.partition,
                lineage: held.lineage,
                seq,
            };
            let told = (&logged.effect, &Undo::Nothing, By::UNKNOWN);
            changes(told, position, (&filter, 0), &mut found);
        }
        found
    }

    /// The contents of a partition, one line an entry, to show where two copies differ.
    #[must_use]
    pub fn entries(self, at: PartitionRef) -> Option<Vec<String>> {
        let store = &self.slots.get(at)?.held.as_ref()?.store;
        let line =
            |(map, of, entry): (_, Option<crate::store::Key>, crate::value::entry::Entry)| {
                let at = format!("{map:?} {entry:?} {}@{}", entry.deadline(), entry.stamp());
                of.map_or(at.clone(), |of| format!("{of:?}: {at}"))
            };
        Some(store.contents().map(line).collect())
    }

    /// The outcomes on a partition that members may ask for again, by their origins. (Each node
    /// forgets clients in its own time.)
    #[must_use]
    pub fn outcomes(self, at: PartitionRef) -> Option<BTreeMap<MemberId, InspectedCalls>> {
        let held = self.slots.get(at)?.held.as_ref()?;
        let of_members = held.dedup.all().filter(|(origin, ..)| !origin.is_client());
        Some(
            of_members
                .map(|(id, mark, applied)| {
                    (
                        id,
                        (
                            mark,
                            applied.iter().map(|(n, _, o)| (*n, o.clone())).collect(),
                        ),
                    )
                })
                .collect(),
        )
    }

    /// A checksum of the contents of a partition.
    #[must_use]
    pub fn content(self, at: PartitionRef) -> Option<u64> {
        Some(self.slots.get(at)?.held.as_ref()?.store.content())
    }
}

fn pair(row: &Entry) -> (&[u8], &[u8]) {
    (row.key(), row.value())
}

fn ends(span: &RowSpan) -> [(&[u8], &[u8]); 2] {
    [pair(&span.first), pair(&span.last)]
}

/// The meaning of an effect, however its entry is stored.
struct Digested<'a>(&'a Effect);

impl Hash for Digested<'_> {
    fn hash<H: Hasher>(&self, digest: &mut H) {
        std::mem::discriminant(self.0).hash(digest);
        self.0.place().hash(digest);
        match self.0 {
            Effect::Put {
                entry,
                deadline,
                before,
                ..
            } => (entry.kind(), entry.value(), deadline, before).hash(digest),
            Effect::Deadline { deadline, .. } => deadline.hash(digest),
            Effect::Row { kind, row, .. } | Effect::Field { kind, row, .. } => {
                (kind, row.key(), row.value(), row.deadline()).hash(digest);
            }
            Effect::RowDelete { kind, field, .. } => (kind, field).hash(digest),
            Effect::RowsCut { kind, span, .. } => (kind, ends(span)).hash(digest),
            Effect::RowsFreed { kind, freed, .. } => {
                let upto = freed.upto.as_ref();
                let upto = upto.map(|(last, next)| [pair(last), pair(next)]);
                (kind, freed.cut.seq, ends(&freed.cut.span), upto).hash(digest);
            }
            Effect::Delete { cause, .. } => cause.hash(digest),
            Effect::Clear { map } => map.hash(digest),
            Effect::Many(parts) => parts.iter().for_each(|part| Digested(part).hash(digest)),
        }
    }
}
