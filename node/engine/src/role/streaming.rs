//! To which holders logs are sent when a peer has room again, and what frames look up.

use super::copying::Teaching;
use super::host::Host;
use super::partition::Slot;
use super::slots::Slots;
use crate::command::operation::Work;
use crate::store::index::{Index, WARM_GROUP};
use crate::wire::api::{Lane, Malformed};
use crate::wire::frame::{self, Frame};
use crate::wire::traffic;
use bytes::BytesMut;
use doyen_placement::{Epoch, MapId, MemberId, PartitionRef};
use std::collections::VecDeque;
use std::time::Duration;

/// About how many bytes of values and frames one `receive` handles: a few milliseconds of work.
pub(crate) const RECEIVE_WORK_MAX: usize = 4 << 20;
/// With this many frames, it pays to load what they look up beforehand.
const WARM_LEAST: usize = 3;
/// The work of a frame besides its bytes.
const FRAME_WORK: usize = 512;

/// A holder that was not sent all of the log.
pub(crate) enum Lagging {
    /// Writes wait for its acks.
    Copy,
    /// They do not. What it lacks is sent in this order: first to those that have their snapshot,
    /// and of these, to the one that lacks the least. So one after the other catches up.
    Learner((bool, u64)),
}

impl Slot {
    /// Whether this node leads, and the peer was not sent all of the log.
    pub(crate) fn lags_at(&self, peer: MemberId) -> Option<Lagging> {
        let held = self.held.as_ref()?;
        let link = held.lead()?.links.get(&peer)?;
        if link.next > held.log.last() {
            return None;
        }
        Some(if link.required {
            Lagging::Copy
        } else {
            let lag = held.log.bytes_between(link.acked, held.log.last());
            let copied = link.teaching.as_ref().is_some_and(Teaching::is_copied);
            Lagging::Learner((!copied, lag))
        })
    }
}

impl Slots {
    /// Loads what these frames will look up.
    pub(crate) fn warm_batch(&self, batch: &VecDeque<Frame>) {
        let entries = |frame: &Frame| {
            if let Frame::Append { entries, .. } = frame {
                entries.len()
            } else {
                1
            }
        };
        if batch.iter().map(entries).sum::<usize>() < WARM_LEAST {
            return;
        }
        let keys = batch.iter().flat_map(|frame| {
            let (head, entries) = match frame {
                Frame::Append { head, entries } => (Some(head.at), &entries[..]),
                _ => (None, &[][..]),
            };
            let logged = entries
                .iter()
                .flat_map(|e| e.effect.parts())
                .filter_map(move |effect| {
                    let (map, key) = effect.place()?;
                    Some((head?, map, key, effect.field().unwrap_or_default()))
                });
            let asked = match frame {
                Frame::Forward {
                    forwarded,
                    work: Work::Key(op),
                    ..
                } => Some((forwarded.at, op.map, &*op.key, &[][..])),
                Frame::ForwardSet {
                    forwarded,
                    map,
                    entry,
                } => Some((forwarded.at, *map, entry.key(), &[][..])),
                _ => None,
            };
            logged.chain(asked)
        });
        self.warm_lookups(keys);
    }

    /// Loads these keys, and the fields that are not empty.
    pub(crate) fn warm_lookups<'a>(
        &self,
        keys: impl Iterator<Item = (PartitionRef, MapId, &'a [u8], &'a [u8])>,
    ) {
        // Finding the partitions of all keys once more would cost more than this list.
        let mut fields = Vec::new();
        Index::warm(keys.filter_map(|(at, map, key, field)| {
            let store = &self.get(at)?.held.as_ref()?.store;
            if !field.is_empty() {
                fields.push((store, map, key, field));
            }
            store.lookup(map, key)
        }));
        let rows = fields.into_iter();
        Index::warm(rows.filter_map(|(store, map, key, field)| store.lookup_row(map, key, field)));
    }

    /// A member accepts operations: calls that were parked for it are sent, once the time was read
    /// again (`clients`).
    pub(crate) fn pump_calls_of(&self, host: &mut Host, primary: MemberId) {
        let soon = host.now + Duration::from_nanos(1);
        let parked = self
            .iter()
            .filter(|slot| !slot.calls.parked.is_empty() && slot.primary() == Some(primary));
        parked.for_each(|slot| host.timers.wake(slot.at, soon));
    }

    /// Sends the logs that a peer lacks as a learner of these partitions, while there is room.
    pub(crate) fn stream_to_learners(
        &mut self,
        host: &mut Host,
        learners: &[((bool, u64), PartitionRef)],
        peer: MemberId,
    ) {
        for (_, at) in learners {
            if let Some(slot) = self.get_mut(*at) {
                if let Some(mut leading) = slot.leading() {
                    leading.stream(host, peer);
                    leading.compare_next(host, peer);
                }
                host.notice(slot);
            }
        }
    }

    /// A primary tells its clocks, or a copy what its clocks show.
    pub(crate) fn hear_clocks(
        &mut self,
        host: &Host,
        peer: MemberId,
        clocks: &[(PartitionRef, Epoch, u64)],
    ) {
        for (at, epoch, ms) in clocks {
            let Some(slot) = self.get_mut(*at) else {
                continue;
            };
            if let Some(mut leading) = slot.leading() {
                leading.hear_clock(host, peer, (*epoch, *ms));
            } else if let Some(mut following) = slot.following() {
                following.hear_clock(host, peer, (*epoch, *ms));
            }
        }
    }
}

impl Host {
    /// Takes some whole frames.
    pub(crate) fn read_batch(
        &mut self,
        peer: MemberId,
        lane: Lane,
        bytes: &mut BytesMut,
        frame_bytes_max: usize,
        batch: &mut VecDeque<Frame>,
    ) -> Result<(), Malformed> {
        // A part of a snapshot needs no lookups, and is counted once it is handled.
        let most = if lane == Lane::Bulk { 1 } else { WARM_GROUP };
        while batch.len() < most && self.worked < RECEIVE_WORK_MAX {
            let Some((read, length)) = frame::take(bytes, frame_bytes_max)? else {
                break;
            };
            self.worked += length + FRAME_WORK;
            let Some(known) = self.peers.get(peer) else {
                // These are bytes of a connection that is gone.
                batch.clear();
                break;
            };
            known.traffic.received[traffic::index(lane)] += length as u64;
            known.traffic.heard = self.now;
            let bulk = matches!(
                read,
                Frame::Chunk { .. }
                    | Frame::Outcomes { .. }
                    | Frame::Finish { .. }
                    | Frame::Table { .. }
            );
            if bulk != (lane == Lane::Bulk) {
                return Err(Malformed("a frame on the wrong lane"));
            }
            batch.push_back(read);
        }
        Ok(())
    }
}
