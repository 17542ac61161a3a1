//! What this node holds of the time since recoveries (`recover`). If a member that was asserted
//! dead lives, the other half of the cluster has none of it (rule 13), and an operator lists and
//! exports it before this half rejoins the other one.
//!
//! A half can be recovered more than once, and the other half may lack all of its branches. So a
//! partition has a mark of each recovery, which is set once, by the first table that has the
//! branch. No operation pays for it: upkeep looks once a second whether more was committed.

use super::copying::Sink;
use super::marks::Committed;
use super::partition::{Assigned, Held, Slot};
use crate::command::idle;
use crate::role::host::Host;
use crate::role::slots::Slots;
use crate::store::Piece;
use crate::value::dated;
use crate::value::deadline;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_gossip::agreement::View;
use doyen_placement::{MapId, PartitionRef, Table};
use std::time::Duration;

/// Entries that one page looks at, and about how many bytes it has.
const LOOKED_MAX: usize = 10_000;
const PAGE_BYTES: usize = 256 << 10;
/// The largest value on a page. A page must have room for one.
const VALUE_BYTES_MAX: usize = 32 << 20;

fn committed(held: &Held) -> Committed {
    Committed {
        lineage: held.lineage,
        seq: held.log.committed(),
    }
}

/// Whether nothing is missing of what was copied or inherited.
fn is_whole(held: &Held) -> bool {
    held.store.is_whole() && held.sink().is_none_or(Sink::complete)
}

impl Slot {
    fn mark(&mut self, recovery: u32, table: &Table) {
        let Some(held) = self.held.as_ref().filter(|held| is_whole(held)) else {
            return;
        };
        let here = |assigned: &Assigned| {
            let mut holders = assigned.partition.in_sync();
            holders.all(|holder| table.member(holder).is_some())
        };
        let alone = self.installed.as_ref().is_some_and(here);
        let committed = committed(held);
        self.marks.seen = Some(committed.seq);
        self.marks.add(recovery, Some(committed), alone);
    }

    /// Notes when something was committed. `before`: the table from which the last recovery went
    /// on.
    fn look_at_marks(&mut self, recovery: u32, before: &Table, now: Time) {
        let Some(held) = self.held.as_ref().filter(|held| is_whole(held)) else {
            self.marks.seen = None;
            return;
        };
        let seq = held.log.committed();
        let mut seen = self.marks.seen.replace(seq);
        if !self.marks.has(recovery) {
            // The partition came later, or its copies were all in the other half and it began
            // empty.
            let lineage = before.partition(self.at).map(|before| before.lineage);
            if held.lead().is_some() && lineage.is_none_or(|before| before < held.lineage) {
                seen = Some(0);
            }
            self.marks.add(recovery, None, false);
        }
        if seen.is_some_and(|seen| seen != seq) {
            for mark in &mut self.marks.of {
                mark.changed.get_or_insert((now, now)).1 = now;
            }
        }
    }
}

/// What a node knows of a partition and of recoveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinceRecovery {
    /// The partition.
    pub at: PartitionRef,
    /// Whether this node leads it.
    pub leads: bool,
    /// How far it is committed, if this node holds it.
    pub committed: Option<Committed>,
    /// What was noted at each recovery, the earliest first.
    pub marks: Vec<RecoveryMark>,
}

/// What a node noted of a partition when the cluster was recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryMark {
    /// The number of the recovery. The first one has number 1.
    pub recovery: u32,
    /// How far the partition was committed then: [`KeysWanted::since`]. `None`: this node held no
    /// whole copy.
    pub committed: Option<Committed>,
    /// Whether all copies were in this half: then all of the partition counts.
    pub alone: bool,
    /// How long ago the first and the last change since then was, to a second, as far as this node
    /// held a copy.
    pub age: Option<(Duration, Duration)>,
}

/// A page of keys that were written since a recovery.
#[derive(Debug, Clone)]
pub struct KeysWanted {
    /// The partition.
    pub at: PartitionRef,
    /// Only what was written since ([`RecoveryMark::committed`]). `None`: everything.
    pub since: Option<Committed>,
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
    /// What the key holds.
    pub kind: Kind,
    /// The field, if it is one.
    pub field: Option<Bytes>,
    /// The value, which is empty if fields have none. `None`: it is too large for a page.
    pub value: Option<Bytes>,
    /// When it expires.
    pub expires_in: Option<Duration>,
}

/// A page, and what [`KeysWanted::after`] gets for the next one.
pub type KeysPage = (Vec<KeptKey>, Option<(MapId, Bytes, Option<Bytes>)>);

impl Slots {
    /// The tables of a recovery came: what is committed from now on is in this half alone.
    pub(crate) fn mark_recovery(
        &mut self,
        host: &mut Host,
        (former, view): (&View, &View),
        now: Time,
    ) {
        let (before, after) = (recoveries(former), recoveries(view));
        if after <= before {
            return;
        }
        self.look_at_marks(host, now);
        for slot in self.iter_mut() {
            for recovery in before + 1..=after {
                slot.mark(recovery, &view.installed);
            }
        }
        host.tables.recovered_from = Some((after, former.installed.clone()));
    }

    /// Notes when something was committed.
    pub(crate) fn look_at_marks(&mut self, host: &Host, now: Time) {
        if let Some((recovery, before)) = &host.tables.recovered_from {
            for slot in self.iter_mut() {
                slot.look_at_marks(*recovery, before, now);
            }
        }
    }

    /// What this node knows of each partition since recoveries. Empty if there was none.
    pub(crate) fn since_recovery(&mut self, host: &Host, now: Time) -> Vec<SinceRecovery> {
        self.look_at_marks(host, now);
        if host.tables.view.as_ref().is_none_or(|v| recoveries(v) == 0) {
            return Vec::new();
        }
        let known = self.iter();
        let known = known.filter(|slot| !slot.marks.of.is_empty() || slot.held.is_some());
        let since = known.map(|slot| {
            let held = slot.held.as_ref();
            let marks = slot.marks.of.iter().map(|mark| RecoveryMark {
                recovery: mark.recovery,
                committed: mark.committed,
                alone: mark.alone,
                age: (mark.changed).map(|(first, last)| (now.since(first), now.since(last))),
            });
            SinceRecovery {
                at: slot.at,
                leads: held.is_some_and(|held| held.lead().is_some()),
                committed: held.map(|held| committed(held)),
                marks: marks.collect(),
            }
        });
        since.collect()
    }

    /// A page of what this node holds that was written since a recovery, with or without a lease.
    /// `None`: it does not hold the partition, or has not all of it yet.
    pub(crate) fn keys_since(&self, now: Time, wanted: &KeysWanted) -> Option<KeysPage> {
        let held = self.get(wanted.at)?.held.as_ref()?;
        if !is_whole(held) {
            return None;
        }
        // What has a later lineage began empty since.
        let since = wanted.since.filter(|since| since.lineage >= held.lineage);
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
            let counts = since.is_none_or(|since| entry.version() > since.seq);
            if counts && !entry.overdue(clock) && !entry.is_table() {
                let before = keys.len();
                let kind = match of {
                    Some(key) => {
                        let order = held.store.order(key);
                        held.store.found(map, order, key).kind()
                    }
                    None => entry.kind(),
                };
                take(&mut keys, (map, kind, &key, field.as_ref()), entry, clock);
                let taken = keys[before..].iter().filter_map(|k| k.value.as_ref());
                bytes += key.len() + taken.map(Bytes::len).sum::<usize>();
            }
            last = Some((map, key, field));
        }
        Some((keys, None))
    }
}

/// The number of recoveries that a view has.
fn recoveries(view: &View) -> u32 {
    // A valid table has at most `BRANCHES_MAX`.
    u32::try_from(view.installed.annex.branches.len()).unwrap_or(u32::MAX)
}

/// Adds a string or a field, or all fields of a small collection: they share one version.
fn take(
    keys: &mut Vec<KeptKey>,
    (map, kind, key, field): (MapId, Kind, &Bytes, Option<&Bytes>),
    entry: &Entry,
    clock: u64,
) {
    let of_key = entry.deadline();
    let mut add = |field: Option<Bytes>, value: &[u8], of_field: u64| {
        let deadlines = [of_key, of_field].into_iter().filter(|at| *at != 0);
        let left = deadlines
            .min()
            .map(|at| deadline::clock(at).saturating_sub(clock));
        let value = (value.len() <= VALUE_BYTES_MAX).then(|| Bytes::copy_from_slice(value));
        keys.push(KeptKey {
            map,
            key: key.clone(),
            kind,
            field,
            value,
            expires_in: left.map(Duration::from_millis),
        });
    };
    match kind.collection() {
        Some(collection) if field.is_none() => {
            let items = collection.packing.items(entry.value());
            let fields = kind.pairs(&items).zip(dated::deadlines(entry.value()));
            for ((field, value), at) in fields {
                add(Some(Bytes::copy_from_slice(field)), value, at);
            }
        }
        _ => add(field.cloned(), idle::content(entry.value()), 0),
    }
}
