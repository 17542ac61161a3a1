//! Loads of members, as the coordinator learns them. Each member regularly sends what has changed,
//! straight to the coordinator.
//!
//! Loads are soft state: a report that is lost is sent again, all loads are reported to a new
//! coordinator, and no load is ever in a table.

use super::api::Oversight;
use super::context::Context;
use super::event::Event;
use super::tasks::CoordinatorTasks;
use super::timing::Timing;
use crate::time::Time;
use doyen_placement::hash::Digest;
use doyen_placement::loads::{
    LoadWindow, Loads, MemberLoad, PROGRESS_MAX, Progress, REPORT_BYTES_MAX, Report, Reporter,
    Uneven, WATERMARKS,
};
use doyen_placement::planner::{self, Lasting};
use doyen_placement::{KeyspaceId, MemberId, PartitionId, Reshape, THREADS_MAX, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// The time between two reports of a member, and between two looks of the coordinator at all loads.
const REPORT: Duration = Duration::from_secs(2);
/// The time between reports while copies are on their way, because people watch their progress.
const REPORT_MOVES: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_secs(5);
/// A member is below a watermark again once it is this much below it, in percent.
const WATERMARK_MARGIN: u8 = 2;
/// The number of members in a report that the reporting member is not connected with.
const UNHEARD_MAX: usize = 256;
/// The number of partitions in a report that is believed: each takes at least ten bytes.
const REPORTED_MAX: usize = REPORT_BYTES_MAX / 10;

/// What this member has to report.
#[derive(Debug, Default)]
pub(super) struct Telling {
    reporter: Reporter,
    /// By data thread.
    threads: BTreeMap<u8, MemberLoad>,
    /// Moves, by data thread.
    moves: BTreeMap<u8, Vec<Progress>>,
    /// Members without a connection, by data thread.
    unheard: BTreeMap<u8, Vec<MemberId>>,
    due: Time,
    /// The highest watermark that this member's memory is above.
    watermark: u8,
}

impl Telling {
    /// A new coordinator knows nothing of what its predecessor was told.
    pub(super) fn new_coordinator(&mut self) {
        self.reporter.forget();
        self.due = Time::ZERO;
    }

    /// A data thread of this node has measured its load. Returns what the coordinator is to be
    /// told, if it is time to.
    pub(super) fn measured(
        &mut self,
        cx: &mut Context,
        table: &Table,
        leader: Option<MemberId>,
        thread: u8,
        Report {
            member,
            partitions,
            moves,
            unheard,
        }: Report,
    ) -> Option<Report> {
        let me = cx.process();
        if thread >= THREADS_MAX {
            return None;
        }
        self.threads.insert(thread, member);
        self.moves.insert(thread, moves);
        self.unheard.insert(thread, unheard);
        self.reporter.measure(partitions);
        if self.due > cx.now || leader.is_none() {
            return None;
        }
        let moves: Vec<Progress> = self
            .moves
            .values()
            .flatten()
            .copied()
            .take(PROGRESS_MAX)
            .collect();
        self.due = cx.now
            + if moves.is_empty() {
                REPORT
            } else {
                REPORT_MOVES
            };
        let tenure = |at| {
            table
                .partition(at)
                .filter(|p| p.primary() == me)
                .map(|p| p.since)
        };
        let partitions = self.reporter.report(tenure);
        let member = self.member();
        // The coordinator tells events about this member as long as there is a coordinator.
        let own =
            passed(&mut self.watermark, member.told(), table, me).filter(|_| leader != Some(me));
        // A member that one thread hears is connected.
        let unheard = self
            .unheard
            .values()
            .map(|unheard| unheard.iter().copied().collect::<BTreeSet<_>>())
            .reduce(|all, one| &all & &one);
        let unheard = unheard.into_iter().flatten().take(UNHEARD_MAX).collect();
        own.into_iter().for_each(|event| cx.event(event));
        Some(Report {
            member,
            partitions,
            moves,
            unheard,
        })
    }

    /// The sums over all threads, which share the memory. Each thread has a core of its own.
    fn member(&self) -> MemberLoad {
        self.threads
            .values()
            .fold(MemberLoad::default(), |all, one| MemberLoad {
                memory: all.memory.saturating_add(one.memory),
                memory_max: all.memory_max.saturating_add(one.memory_max),
                cpu: all.cpu.saturating_add(one.cpu),
                busy: all.busy || one.busy,
            })
    }
}

/// What the coordinator was told.
#[derive(Debug, Default)]
pub(super) struct ReportedLoads {
    pub(super) loads: Loads,
    work: LoadWindow,
    bytes: LoadWindow,
    memory: LoadWindow,
    /// The highest watermark that each member is above.
    watermarks: BTreeMap<MemberId, u8>,
    /// The members that the last plan spared because they were busy.
    spared: BTreeSet<MemberId>,
    /// For how long one of the spared members has had time again.
    eased: LoadWindow,
    looked: Time,
    /// For each primary of partitions that move: a digest of their progress, and since when it has
    /// been the same.
    standing: BTreeMap<MemberId, (u64, Time)>,
    /// Since when ranges have been busy, and neighbours cold.
    busy: BTreeMap<(KeyspaceId, PartitionId), Time>,
    cold: BTreeMap<(KeyspaceId, [PartitionId; 2]), Time>,
    /// Ranges that are due to be split.
    pub(super) splits: Vec<(KeyspaceId, Reshape)>,
    /// Neighbours that are due to be merged.
    pub(super) merges: Vec<(KeyspaceId, [PartitionId; 2])>,
}

impl ReportedLoads {
    /// Looks at all loads, once in a while. Returns true if it is time to plan: something has been
    /// uneven for long, or a member that was spared has had time again for long.
    fn look(&mut self, now: Time, table: &Table, range_bytes_max: u64, timing: &Timing) -> bool {
        if now.since(self.looked) < LOOK {
            return false;
        }
        self.looked = now;
        self.loads.retain(table);
        let (judged, at) = (self.loads.judge(table), now.since(Time::ZERO));
        let uneven = Uneven {
            work: self.work.look(at, judged.work),
            bytes: self.bytes.look(at, judged.bytes),
            memory: self.memory.look(at, judged.memory),
        };
        let busy = self.busy_members();
        let eased = self
            .eased
            .look(at, self.spared.iter().any(|spared| !busy.contains(spared)));
        if uneven != Uneven::default() {
            self.loads.set_uneven(uneven);
        }
        let wanted = uneven != Uneven::default() || eased;
        self.look_at_ranges(now, table, range_bytes_max, timing);
        self.look_at_moves(now, table);
        wanted
    }

    /// Notes the primaries whose moves make no progress. A primary makes some copies after the
    /// others, so its moves count together: a move that waits for its turn does not stand still.
    fn look_at_moves(&mut self, now: Time, table: &Table) {
        let mut digests: BTreeMap<MemberId, Digest> = BTreeMap::new();
        for (at, partition) in table
            .partitions()
            .filter(|(_, p)| p.goal.is_some() || p.learners().next().is_some())
        {
            let digest = digests.entry(partition.primary()).or_default();
            partition.hash(digest);
            for progress in partition
                .learners()
                .filter_map(|learner| self.loads.progress(at, learner))
            {
                (progress.phase, progress.keys_sent, progress.bytes_sent).hash(digest);
            }
        }
        self.standing
            .retain(|member, _| digests.contains_key(member));
        for (member, digest) in digests {
            let (known, since) = self
                .standing
                .entry(member)
                .or_insert((digest.finish(), now));
            if *known != digest.finish() {
                (*known, *since) = (digest.finish(), now);
            }
        }
    }

    /// For how long the moves of some primary have made no progress, as of the last look.
    pub(super) fn standing(&self) -> Duration {
        self.standing
            .values()
            .map(|(_, since)| self.looked.since(*since))
            .max()
            .unwrap_or_default()
    }

    /// Whether this member has passed a watermark since its last report.
    fn pass_watermark(&mut self, table: &Table, id: MemberId) -> Option<Event> {
        let filled = self.loads.member(id)?.told();
        self.watermarks.retain(|m, _| table.member(*m).is_some());
        passed(self.watermarks.entry(id).or_default(), filled, table, id)
    }

    fn busy_members(&self) -> BTreeSet<MemberId> {
        self.loads
            .members()
            .filter(|(_, load)| load.busy)
            .map(|(member, _)| member)
            .collect()
    }

    /// Notes the ranges that have been busy, and the neighbours that have been cold, for long
    /// enough.
    fn look_at_ranges(&mut self, now: Time, table: &Table, range_bytes_max: u64, timing: &Timing) {
        let Lasting {
            splits: busy,
            merges: cold,
        } = planner::lasting(table, &self.loads, range_bytes_max);
        let named = |(keyspace, split): &(KeyspaceId, Reshape)| {
            split
                .partitions()
                .map(|p| (*keyspace, p))
                .collect::<Vec<_>>()
        };
        let known: BTreeSet<(KeyspaceId, PartitionId)> = busy.iter().flat_map(named).collect();
        self.busy.retain(|range, _| known.contains(range));
        known
            .into_iter()
            .for_each(|range| _ = self.busy.entry(range).or_insert(now));
        self.cold.retain(|pair, _| cold.contains(pair));
        cold.iter()
            .for_each(|pair| _ = self.cold.entry(*pair).or_insert(now));
        let long =
            |since: Option<&Time>, least| since.is_some_and(|since| now.since(*since) >= least);
        self.splits = busy
            .into_iter()
            .filter(|split| {
                named(split)
                    .iter()
                    .all(|range| long(self.busy.get(range), timing.busy_for))
            })
            .collect();
        self.merges = cold
            .into_iter()
            .filter(|pair| long(self.cold.get(pair), timing.cold_for))
            .collect();
    }

    /// The loads to plan with. This counts as the plan for everything that was uneven.
    pub(super) fn take(&mut self, table: &Table) -> Arc<Loads> {
        self.loads.retain(table);
        self.spared = self.busy_members();
        let loads = Arc::new(self.loads.clone());
        self.loads.set_uneven(Uneven::default());
        loads
    }
}

/// The event, if a member that has filled this much of its memory has passed a watermark. `mark` is
/// the highest watermark that it is above.
fn passed(mark: &mut u8, filled: u8, table: &Table, id: MemberId) -> Option<Event> {
    let above = |margin: u8| {
        WATERMARKS
            .into_iter()
            .rev()
            .find(|mark| filled + margin >= *mark)
            .unwrap_or(0)
    };
    // Without the margin, a member near a watermark would pass it with every report.
    let now = if above(0) > *mark {
        above(0)
    } else {
        above(WATERMARK_MARGIN).min(*mark)
    };
    let name = table.member(id).filter(|_| now != *mark)?.name.clone();
    let before = std::mem::replace(mark, now);
    Some(Event::Watermark {
        name,
        percent: now,
        before,
    })
}

impl CoordinatorTasks {
    /// A member reports. The report is believed as to the member itself and to partitions that it
    /// leads.
    pub(super) fn on_loads(
        &mut self,
        cx: &mut Context,
        table: &Table,
        from: MemberId,
        report: Report,
    ) {
        if report.partitions.len() > REPORTED_MAX {
            return cx.ignore();
        }
        let unheard = report.unheard.iter().copied().take(UNHEARD_MAX);
        self.unheard(cx.now, from, unheard);
        let told = &mut self.told;
        told.loads.tell(table, from, report);
        let passed = told.pass_watermark(table, from);
        let known = told.loads.uneven();
        let config = &cx.config;
        let wanted = told.look(cx.now, table, config.range_bytes_max, &config.timing);
        let uneven = told.loads.uneven();
        if wanted {
            self.want_plan();
        }
        self.look_for_room(cx.now);
        if passed.is_some() {
            // A target of a move may be full by now, and another member may have room.
            self.think_again();
        }
        passed.into_iter().for_each(|event| cx.event(event));
        for (of, is, was) in [
            ("work", uneven.work, known.work),
            ("bytes", uneven.bytes, known.bytes),
        ] {
            if is && !was {
                cx.event(Event::Imbalance { of: of.into() });
            }
        }
    }

    /// What this node sees of moves.
    pub(super) fn oversight(&self) -> Oversight {
        Oversight {
            moves_standing: self.told.standing(),
            moves_failed: self.moves_failed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::fixtures::{moving, planned};
    use doyen_placement::loads::CopyPhase;

    #[test]
    fn a_watermark_that_is_passed_tells_from_which_side() {
        let (table, mut mark) = (planned(4), 0);
        let mut pass = |filled| match passed(&mut mark, filled, &table, table.members[0].id) {
            Some(Event::Watermark {
                percent, before, ..
            }) => Some((before, percent)),
            _ => None,
        };
        let seen = [50, 71, 69, 91, 89, 79, 60].map(&mut pass);
        assert_eq!(
            seen,
            [
                None,
                Some((0, 70)),
                None,
                Some((70, 90)),
                None,
                Some((90, 80)),
                Some((80, 0))
            ]
        );
    }

    #[test]
    fn moves_stand_still_from_when_nothing_of_one_primary_went_on() {
        let (mut table, mut told) = (moving(&planned(4)), ReportedLoads::default());
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let look = |told: &mut ReportedLoads, table: &Table, seconds| {
            told.look(at(seconds), table, 64 << 20, &Timing::default());
            told.standing().as_secs()
        };
        let copies: Vec<_> = table
            .partitions()
            .flat_map(|(at, p)| p.learners().map(move |m| (at, p.primary(), m)))
            .collect();
        let (_, source, learner) = copies[0];
        let report = |bytes_sent| {
            let own = copies.iter().filter(|(_, by, _)| *by == source).enumerate();
            let moves = own.map(|(n, (partition, _, learner))| {
                // Only the first move makes progress. The others wait for their turn.
                let bytes_sent = if n == 0 { bytes_sent } else { 0 };
                let phase = CopyPhase::Copying;
                Progress {
                    partition: *partition,
                    learner: *learner,
                    phase,
                    keys: 9,
                    keys_sent: 1,
                    bytes_sent,
                    rate: bytes_sent,
                }
            });
            Report {
                moves: moves.collect(),
                ..Report::default()
            }
        };
        // Nothing is known here of other primaries.
        let others = |p: &std::sync::Arc<doyen_placement::Partition>| p.primary() != source;
        for keyspace in &mut table.keyspaces {
            for partition in keyspace.partitions.iter_mut().filter(|p| others(p)) {
                let settled = std::sync::Arc::make_mut(partition);
                settled.goal = None;
                settled
                    .replicas
                    .retain(|r| r.state != doyen_placement::ReplicaState::Learner);
            }
        }
        told.loads.tell(&table, source, report(100));
        assert_eq!(look(&mut told, &table, 10), 0);
        assert_eq!(look(&mut told, &table, 40), 30);
        // A falling rate is no progress, but more bytes are.
        told.loads.tell(&table, source, report(200));
        assert_eq!(look(&mut told, &table, 50), 0);
        assert_eq!(look(&mut told, &table, 70), 20);
        // The next stage of any move is progress, too.
        for keyspace in &mut table.keyspaces {
            for partition in keyspace
                .partitions
                .iter_mut()
                .filter(|p| p.learners().any(|m| m == learner))
                .take(1)
            {
                std::sync::Arc::make_mut(partition)
                    .replicas
                    .retain(|r| r.member != learner);
            }
        }
        assert_eq!(look(&mut told, &table, 80), 0);
        assert_eq!(look(&mut told, &table, 100), 20);
        // If nothing moves, nothing stands still.
        let settled = planner::cancel(&table, None).expect("it can be cancelled");
        assert_eq!(look(&mut told, &settled, 200), 0);
    }
}
