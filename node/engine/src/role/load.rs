//! Measures the load of partitions: it is counted with each operation, and read every two seconds.

use super::partition::Held;
use crate::command::operation::{OperationStep, Work};
use crate::role::holding::PartitionRole;
use crate::role::host::Host;
use crate::role::slots::Slots;
use crate::value::outcome::Outcome;
use crate::wire::api::ShardRequest;
use doyen_gossip::Time;
use doyen_placement::loads::{
    FILLED, MemberLoad, PROGRESS_MAX, PartitionLoad, Progress, Report, Rounding, Sample,
};
use doyen_placement::planner::may_receive;
use doyen_placement::{MapId, MemberId};
use std::time::Duration;

/// Time between two measurements.
const MEASURE: Duration = Duration::from_secs(2);
/// The same while copies are made, because people watch their progress.
const MEASURE_COPIES: Duration = Duration::from_secs(1);
/// After this many measurements everything is reported again, so a lost report is not missing for
/// long.
const ROUND: u32 = 30;

impl Held {
    /// An operation was executed here.
    pub(crate) fn count(&mut self, work: &Work, outcome: &Outcome) {
        let sampled = match work {
            _ if !work.is_write() => self.meter.read(outcome.bytes()),
            Work::Key(op) => {
                let stores = op.action.footprint().stores;
                return self.count_write((op.map, &op.key), stores, outcome);
            }
            Work::Partition(_) => self.meter.write(0),
            Work::Script(call) => self.meter.write(call.bytes()),
            Work::Transaction(transaction) => {
                let outcomes = match outcome {
                    Outcome::Many(outcomes) => &outcomes[..],
                    _ => &[],
                };
                let written = |(step, outcome): (&OperationStep, &Outcome)| match step {
                    OperationStep::Key { key, action, .. } => {
                        stored(key, action.footprint().stores, outcome)
                    }
                    OperationStep::Script(call) => call.bytes(),
                };
                let all = transaction.steps.iter().zip(outcomes).map(written);
                self.meter.write(all.fold(0, usize::saturating_add))
            }
        };
        if sampled && let Some((map, key)) = work.keys().next() {
            self.meter.sample(map, key);
        }
    }

    /// A write of one key was executed here. It `stores` about this many bytes besides its key.
    pub(crate) fn count_write(
        &mut self,
        (map, key): (MapId, &[u8]),
        stores: usize,
        outcome: &Outcome,
    ) {
        if self.meter.write(stored(key, stores, outcome)) {
            self.meter.sample(map, key);
        }
    }
}

/// Bytes that a write with this outcome has stored. What is refused stores nothing, however much it
/// named.
fn stored(key: &[u8], stores: usize, outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Failed(_) => 0,
        _ => stores.saturating_add(key.len()),
    }
}

impl Held {
    /// Reports the progress of this partition's copies.
    fn tell_progress(&mut self, now: Time, moves: &mut Vec<Progress>) {
        let keys = self.store.keys() as u64;
        let at = self.at;
        let Some(lead) = self.lead_mut().filter(|l| l.teaches()) else {
            return;
        };
        let room = PROGRESS_MAX.saturating_sub(moves.len());
        let told = lead
            .links
            .iter_mut()
            .filter_map(|(id, link)| link.teaching.as_mut()?.progress(at, id.member(), keys, now));
        moves.extend(told.take(room));
    }
}

impl Host {
    /// Live members to which this thread has no connection at all.
    fn unheard(&self) -> Vec<MemberId> {
        let members = self
            .tables
            .view
            .iter()
            .flat_map(|view| &view.installed.members);
        let others = members.filter(|m| m.id != self.me.member() && may_receive(m));
        others
            .map(|m| m.id)
            .filter(|id| self.peers.heard_last(|peer| peer == *id).is_none())
            .collect()
    }
}

impl Slots {
    /// Reports changes to the control thread, if it is time.
    pub(crate) fn measure(&mut self, host: &mut Host, now: Time) {
        let (before, looks) = host.upkeep.measured;
        let since = now.since(before);
        if since
            < if host.copying.all > 0 {
                MEASURE_COPIES
            } else {
                MEASURE
            }
            || host.me.is_client()
        {
            return;
        }
        let everything = looks % ROUND == 0;
        host.upkeep.measured = (now, looks.wrapping_add(1));
        let (mut loads, mut moves, mut rounding) = (Vec::new(), Vec::new(), Rounding::default());
        for slot in self.iter_mut() {
            let Some(held) = slot.held.as_deref_mut() else {
                continue;
            };
            held.tell_progress(now, &mut moves);
            let Held {
                role: PartitionRole::Primary(lead),
                store,
                meter,
                ..
            } = held
            else {
                continue;
            };
            let (bytes, keys) = (store.bytes() as u64, store.keys() as u64);
            if meter.is_idle() && lead.said == Some((bytes, keys)) && !everything {
                continue;
            }
            lead.said = Some((bytes, keys));
            let rates = rounding.round(meter.look(since));
            let load = PartitionLoad {
                bytes,
                keys,
                reads: rates.reads,
                writes: rates.writes,
                read_bytes: rates.read_bytes,
                written_bytes: rates.written_bytes,
                skew: meter.sampled().map(Sample::skew).unwrap_or_default(),
            };
            loads.push((slot.at, load));
        }
        let (memory, memory_max) = (
            host.memory_held() as u64,
            host.limits.memory_bytes_max as u64,
        );
        let mut member = MemberLoad {
            memory,
            memory_max,
            cpu: 0,
            busy: false,
        };
        // Other members should take new partitions.
        member.busy = member.filled() >= FILLED;
        let unheard = host.unheard();
        host.outbox.push(ShardRequest::Loads(Report {
            member,
            partitions: loads,
            moves,
            unheard,
        }));
    }
}
