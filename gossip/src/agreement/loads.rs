//! What members have to carry, told to the coordinator: every now and then, what has changed, and to nobody who passes it on.
//!
//! It is soft: what is lost on the way is said again, a new coordinator hears everything anew, and nothing here is ever in a table.

use super::api::Timing;
use super::context::Context;
use super::council::Council;
use super::election::Role;
use super::event::Event;
use crate::time::Time;
use crate::wire::Message;
use doyen_placement::loads::{
    Loads, Measured, MemberLoad, PROGRESS_MAX, Progress, REPORT_BYTES_MAX, Report, Reporter, Uneven, WATERMARKS, Window,
};
use doyen_placement::planner::{self, Lasting};
use doyen_placement::{KeyspaceId, MemberId, PartitionId, Reshape, THREADS_MAX, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Between two reports of a member, and between two looks of the coordinator at all of them.
const REPORT: Duration = Duration::from_secs(2);
/// While copies are on their way people look at how far they have come.
const REPORT_MOVES: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_secs(5);
/// So much less than a watermark a member has before it is below it again, in percent.
const WATERMARK_MARGIN: u8 = 2;
/// Partitions in a report that is believed: none takes less than ten bytes.
const REPORTED_MAX: usize = REPORT_BYTES_MAX / 10;

/// What this member has to say.
#[derive(Debug, Default)]
pub(super) struct Telling {
    reporter: Reporter,
    /// By data thread.
    threads: BTreeMap<u8, MemberLoad>,
    /// Likewise.
    moves: BTreeMap<u8, Vec<Progress>>,
    due: Time,
}

impl Telling {
    /// Another coordinator knows nothing of what its predecessor was told.
    pub(super) fn new_coordinator(&mut self) {
        self.reporter.forget();
        self.due = Time::ZERO;
    }

    /// Of all threads together: they share the memory, and each has a core of its own.
    fn member(&self) -> MemberLoad {
        self.threads.values().fold(MemberLoad::default(), |all, one| MemberLoad {
            memory: all.memory.saturating_add(one.memory),
            memory_max: all.memory_max.saturating_add(one.memory_max),
            cpu: all.cpu.saturating_add(one.cpu),
            busy: all.busy || one.busy,
        })
    }
}

/// What a coordinator was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) loads: Loads,
    work: Window,
    bytes: Window,
    memory: Window,
    /// The highest watermark that a member is above.
    watermarks: BTreeMap<MemberId, u8>,
    /// Who was spared by the last plan because of being busy,
    spared: BTreeSet<MemberId>,
    /// and whether somebody of those is busy no more.
    eased: Window,
    looked: Time,
    /// Since when ranges have been busy, and neighbours cold.
    busy: BTreeMap<(KeyspaceId, PartitionId), Time>,
    cold: BTreeMap<(KeyspaceId, [PartitionId; 2]), Time>,
    /// Those that are to be split by now,
    pub(super) splits: Vec<(KeyspaceId, Reshape)>,
    /// and to be merged.
    pub(super) merges: Vec<(KeyspaceId, [PartitionId; 2])>,
}

impl Told {
    /// Looks at everything, once in a while. True: something has been uneven for so long that it is time to plan, or who was spared
    /// has had time again for so long.
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
        let eased = self.eased.look(at, self.spared.iter().any(|spared| !busy.contains(spared)));
        if uneven != Uneven::default() {
            self.loads.set_uneven(uneven);
        }
        let wanted = uneven != Uneven::default() || eased;
        self.look_at_ranges(now, table, range_bytes_max, timing);
        wanted
    }

    /// Whether this member has passed a watermark since it was told last.
    fn pass_watermark(&mut self, table: &Table, id: MemberId) -> Option<Event> {
        let filled = self.loads.member(id)?.filled();
        let before = self.watermarks.get(&id).copied().unwrap_or(0);
        self.watermarks.retain(|m, _| table.member(*m).is_some());
        let above = |margin: u8| WATERMARKS.into_iter().rev().find(|mark| filled + margin >= *mark).unwrap_or(0);
        // Whoever is near one would pass it with every report.
        let now = if above(0) > before { above(0) } else { above(WATERMARK_MARGIN).min(before) };
        if now == before {
            return None;
        }
        self.watermarks.insert(id, now);
        Some(Event::Watermark { name: table.member(id)?.name.clone(), percent: now })
    }

    fn busy_members(&self) -> BTreeSet<MemberId> {
        self.loads.members().filter(|(_, load)| load.busy).map(|(member, _)| member).collect()
    }

    /// Notes which ranges have been busy, and which neighbours cold, for long enough.
    fn look_at_ranges(&mut self, now: Time, table: &Table, range_bytes_max: u64, timing: &Timing) {
        let Lasting { splits: busy, merges: cold } = planner::lasting(table, &self.loads, range_bytes_max);
        let named = |(keyspace, split): &(KeyspaceId, Reshape)| split.partitions().map(|p| (*keyspace, p)).collect::<Vec<_>>();
        let known: BTreeSet<(KeyspaceId, PartitionId)> = busy.iter().flat_map(named).collect();
        self.busy.retain(|range, _| known.contains(range));
        known.into_iter().for_each(|range| _ = self.busy.entry(range).or_insert(now));
        self.cold.retain(|pair, _| cold.contains(pair));
        cold.iter().for_each(|pair| _ = self.cold.entry(*pair).or_insert(now));
        let long = |since: Option<&Time>, least| since.is_some_and(|since| now.since(*since) >= least);
        self.splits =
            busy.into_iter().filter(|split| named(split).iter().all(|range| long(self.busy.get(range), timing.busy_for))).collect();
        self.merges = cold.into_iter().filter(|pair| long(self.cold.get(pair), timing.cold_for)).collect();
    }

    /// What to plan with. What was uneven has had its plan then.
    pub(super) fn take(&mut self, table: &Table) -> Arc<Loads> {
        self.loads.retain(table);
        self.spared = self.busy_members();
        let loads = Arc::new(self.loads.clone());
        self.loads.set_uneven(Uneven::default());
        loads
    }
}

impl Council {
    /// A data thread of this node has measured: tells the coordinator, if it is time again.
    pub(super) fn measured(
        &mut self,
        cx: &mut Context,
        thread: u8,
        (member, partitions, moves): (MemberLoad, Vec<Measured>, Vec<Progress>),
    ) {
        let me = cx.me();
        if thread >= THREADS_MAX {
            return;
        }
        let telling = &mut self.requests.telling;
        telling.threads.insert(thread, member);
        telling.moves.insert(thread, moves);
        telling.reporter.measure(partitions);
        if telling.due > cx.now || self.leader.is_none() {
            return;
        }
        let moves: Vec<Progress> = telling.moves.values().flatten().copied().take(PROGRESS_MAX).collect();
        telling.due = cx.now + if moves.is_empty() { REPORT } else { REPORT_MOVES };
        let table = &self.committed.table;
        let partitions = telling.reporter.report(|at| table.partition(at).is_some_and(|p| p.primary() == me));
        let report = Report { member: telling.member(), partitions, moves };
        let cluster = self.cluster();
        self.tell_coordinator(cx, Message::Loads { cluster, origin: me, report: Box::new(report) });
    }

    /// A member reports: believed of itself, and of what it leads.
    pub(super) fn on_loads(&mut self, cx: &mut Context, from: MemberId, report: Report) {
        let Role::Leader(leader) = &mut self.role else { return };
        if report.partitions.len() > REPORTED_MAX {
            return cx.ignore();
        }
        let told = &mut leader.duties.told;
        told.loads.tell(&self.committed.table, from, report);
        let passed = told.pass_watermark(&self.committed.table, from);
        let known = told.loads.uneven();
        let wanted = told.look(cx.now, &self.committed.table, cx.config.range_bytes_max, &cx.config.timing);
        let uneven = told.loads.uneven();
        if wanted {
            leader.duties.want_plan();
        }
        passed.into_iter().for_each(|event| cx.event(event));
        for (of, is, was) in [("work", uneven.work, known.work), ("bytes", uneven.bytes, known.bytes)] {
            if is && !was {
                cx.event(Event::Imbalance { of: of.into() });
            }
        }
    }

    /// The loads of the cluster, at its coordinator.
    pub(super) fn loads(&self) -> Option<&Loads> {
        match &self.role {
            Role::Leader(leader) => Some(&leader.duties.told.loads),
            Role::Follower | Role::PreCandidate(_) | Role::Candidate(_) => None,
        }
    }
}
