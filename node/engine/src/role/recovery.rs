//! What this node holds of the time since the last recovery (`recover`). If a member that was
//! asserted dead lives, the other half of the cluster has none of it (rule 13), and an operator
//! lists and exports it before this half rejoins the other one.
//!
//! The mark of a partition is set once, by the first table that has the branch of the recovery. No
//! operation pays for it: upkeep looks once a second whether more was committed.

use super::partition::Slot;
use super::tables::SEQS;
use crate::command::idle;
use crate::role::host::Host;
use crate::role::slots::Slots;
use crate::store::Piece;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::types::hash::Items;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::{Lineage, MapId, PartitionRef, Table};
use std::time::Duration;

/// Entries that one page looks at, and about how many bytes it has.
const LOOKED_MAX: usize = 10_000;
const PAGE_BYTES: usize = 256 << 10;
/// The largest value on a page. A page must have room for one.
const VALUE_BYTES_MAX: usize = 32 << 20;

/// The state of a partition's log when the cluster was recovered.
#[derive(Debug)]
pub(crate) struct Mark {
    lineage: Lineage,
    /// What was known to be committed: later entries may have been acknowledged afterwards.
    seq: u64,
    /// Every in-sync copy was in this half, so the other one has nothing of the partition.
    alone: bool,
    /// What was committed when upkeep last looked.
    seen: u64,
    first: Option<Time>,
    last: Option<Time>,
}

impl Mark {
    fn new(slot: &Slot, table: &Table) -> Option<Box<Self>> {
        let held = slot.held.as_ref()?;
        let here = |assigned: &super::partition::Assigned| {
            let mut holders = assigned.partition.in_sync();
            holders.all(|holder| table.member(holder).is_some())
        };
        let seq = held.log.committed();
        Some(Box::new(Self {
            lineage: held.lineage,
            seq,
            alone: slot.installed.as_ref().is_some_and(here),
            seen: seq,
            first: None,
            last: None,
        }))
    }

    /// The first version that counts.
    fn from(&self) -> u64 {
        if self.alone {
            0
        } else {
            u64::from(self.lineage.0) * SEQS + self.seq + 1
        }
    }
}

impl Slot {
    /// The number of entries that were committed since the mark.
    fn committed_since(&self) -> u64 {
        let Some(held) = &self.held else { return 0 };
        let before = self.recovered.as_ref();
        let before = before.filter(|mark| mark.lineage == held.lineage);
        let committed = held.log.committed();
        committed.saturating_sub(before.map_or(0, |mark| mark.seq))
    }

    /// A partition whose copies were all in the other half begins empty in this one: it has a mark
    /// once this node leads it. `before`: the table from which the recovery went on.
    fn mark_if_empty(&mut self, before: &Table) {
        let Some(held) = self.held.as_ref().filter(|held| held.lead().is_some()) else {
            return;
        };
        let lineage = before.partition(self.at).map(|before| before.lineage);
        let marked = self.recovered.as_ref().map(|mark| mark.lineage);
        if marked != Some(held.lineage) && lineage.is_none_or(|before| before < held.lineage) {
            self.recovered = Some(Box::new(Mark {
                lineage: held.lineage,
                seq: 0,
                alone: false,
                seen: 0,
                first: None,
                last: None,
            }));
        }
    }

    fn look_at_mark(&mut self, now: Time) {
        let committed = self.held.as_ref().map(|held| held.log.committed());
        if let Some((mark, committed)) = self.recovered.as_mut().zip(committed)
            && committed != mark.seen
        {
            mark.seen = committed;
            mark.first.get_or_insert(now);
            mark.last = Some(now);
        }
    }
}

/// What was committed in a partition since the last recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinceRecovery {
    /// The partition.
    pub at: PartitionRef,
    /// Whether this node leads it.
    pub leads: bool,
    /// What [`KeysWanted::from`] gets, if this node held the partition when the cluster was
    /// recovered.
    pub from: Option<u64>,
    /// Whether all copies were in this half: then all of the partition counts.
    pub alone: bool,
    /// How many changes were committed since, or ever if `from` is absent. Deletions count.
    pub changes: u64,
    /// How long ago the first and the last of them was, to a second.
    pub age: Option<(Duration, Duration)>,
}

/// A page of keys that were written since a recovery.
#[derive(Debug, Clone)]
pub struct KeysWanted {
    /// The partition.
    pub at: PartitionRef,
    /// Only what was written since ([`SinceRecovery::from`]). 0: everything.
    pub from: u64,
    /// The page begins after this key, or after this field of it.
    pub after: Option<(MapId, Bytes, Option<Bytes>)>,
}

/// A string, or a field of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptKey {
    /// Its map.
    pub map: MapId,
    /// Its key.
    pub key: Bytes,
    /// The field, if it is one.
    pub field: Option<Bytes>,
    /// The value. `None`: it is too large for a page.
    pub value: Option<Bytes>,
    /// When it expires.
    pub expires_in: Option<Duration>,
}

/// A page, and what [`KeysWanted::after`] gets for the next one.
pub type KeysPage = (Vec<KeptKey>, Option<(MapId, Bytes, Option<Bytes>)>);

impl Slots {
    /// The tables of a recovery came: what is committed from now on is in this half alone.
    pub(crate) fn mark_recovery(&mut self, host: &mut Host, former: &View, view: &View) {
        let branches = |view: &View| view.installed.annex.branches.len();
        if branches(view) <= branches(former) {
            return;
        }
        for slot in self.iter_mut() {
            slot.recovered = Mark::new(slot, &view.installed);
        }
        host.tables.recovered_from = Some(former.installed.clone());
    }

    /// Notes when something was committed.
    pub(crate) fn look_at_marks(&mut self, host: &mut Host, now: Time) {
        if let Some(before) = &host.tables.recovered_from {
            for slot in self.iter_mut() {
                slot.mark_if_empty(before);
                slot.look_at_mark(now);
            }
        }
    }

    /// What was committed here since the last recovery, by partition. Empty if there was none.
    pub(crate) fn since_recovery(&mut self, host: &mut Host, now: Time) -> Vec<SinceRecovery> {
        self.look_at_marks(host, now);
        let view = host.tables.view.as_ref();
        if view.is_none_or(|view| view.installed.annex.branches.is_empty()) {
            return Vec::new();
        }
        let known = self.iter();
        let known = known.filter(|slot| slot.recovered.is_some() || slot.held.is_some());
        let since = known.map(|slot| {
            let mark = slot.recovered.as_ref();
            let age = mark.and_then(|mark| mark.first.zip(mark.last));
            SinceRecovery {
                at: slot.at,
                leads: slot.held.as_ref().is_some_and(|h| h.lead().is_some()),
                from: mark.map(|mark| mark.from()),
                alone: mark.is_some_and(|mark| mark.alone),
                changes: slot.committed_since(),
                age: age.map(|(first, last)| (now.since(first), now.since(last))),
            }
        });
        since.collect()
    }

    /// A page of what this node holds that was written since a recovery, with or without a lease.
    /// `None`: it does not hold the partition, or has not all of it yet.
    pub(crate) fn keys_since(&self, now: Time, wanted: &KeysWanted) -> Option<KeysPage> {
        let held = self.get(wanted.at)?.held.as_ref()?;
        if !held.store.is_whole() || held.sink().is_some() {
            return None;
        }
        // What has a later lineage began empty since.
        let of_lineage = wanted.from / SEQS >= u64::from(held.lineage.0);
        let from = if of_lineage { wanted.from % SEQS } else { 0 };
        let clock = held.clock.advance(now);
        let after = wanted.after.clone();
        let after = after.map(|(map, key, field)| held.store.position_of(map, &key, field));
        let (mut keys, mut bytes, mut last) = (Vec::new(), 0, None);
        for (looked, piece) in held.store.following(&after).enumerate() {
            if looked >= LOOKED_MAX || bytes >= PAGE_BYTES {
                return Some((keys, last));
            }
            let Piece { map, of, entry } = piece;
            let own = Bytes::copy_from_slice(entry.key());
            let (key, field) = match of {
                Some(key) => (Bytes::copy_from_slice(key), Some(own)),
                None => (own, None),
            };
            if entry.version() >= from && !entry.overdue(clock) && !entry.is_table() {
                let before = keys.len();
                take(&mut keys, (map, &key, field.as_ref()), entry, clock);
                let taken = keys[before..].iter().filter_map(|k| k.value.as_ref());
                bytes += key.len() + taken.map(Bytes::len).sum::<usize>();
            }
            last = Some((map, key, field));
        }
        Some((keys, None))
    }
}

/// Adds a string or a field, or all fields of a small hash: they share one version.
fn take(
    keys: &mut Vec<KeptKey>,
    (map, key, field): (MapId, &Bytes, Option<&Bytes>),
    entry: &Entry,
    clock: u64,
) {
    let deadline = entry.deadline();
    let left = crate::value::deadline::clock(deadline).saturating_sub(clock);
    let mut add = |field: Option<Bytes>, value: &[u8]| {
        let value = (value.len() <= VALUE_BYTES_MAX).then(|| Bytes::copy_from_slice(value));
        keys.push(KeptKey {
            map,
            key: key.clone(),
            field,
            value,
            expires_in: (deadline != 0).then(|| Duration::from_millis(left)),
        });
    };
    if field.is_some() || entry.kind() == Kind::String {
        return add(field.cloned(), idle::content(entry.value()));
    }
    let mut items = Items(entry.value());
    while let (Some(field), Some(value)) = (items.next(), items.next()) {
        add(Some(Bytes::copy_from_slice(field)), value);
    }
}
