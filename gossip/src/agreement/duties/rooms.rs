//! Members that had no room for a copy that they were to get.
//!
//! Nobody else may have any either, so the planner names them again. Without a pause each copy would be begun and given up every few seconds,
//! in a table for each, for as long as memory is short. So what is as large waits; then the smallest of it is tried, and the rest after
//! that one found room.

use crate::time::Time;
use doyen_placement::loads::Loads;
use doyen_placement::{MemberId, PartitionRef, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Nothing as large begins for this long, and for twice as long each time after,
const PAUSE: Duration = Duration::from_secs(5);
/// but never for longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(40);
/// People are told so often of a member that has no room.
const TOLD_PAUSE: Duration = Duration::from_secs(60);

/// What a coordinator knows of room that was lacking.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    full: BTreeMap<MemberId, Full>,
    /// When people were told.
    told: BTreeMap<MemberId, Time>,
}

#[derive(Debug)]
struct Full {
    /// The smallest copy for which there was none.
    bytes: u64,
    /// What the member held then.
    memory: u64,
    until: Time,
    pause: Duration,
}

impl Rooms {
    /// A member had no room for a copy. True: it is time to tell people.
    pub(super) fn refused(&mut self, now: Time, member: MemberId, at: PartitionRef, loads: &Loads) -> bool {
        let memory = loads.member(member).map_or(0, |load| load.memory);
        let full = self.full.entry(member).or_insert(Full { bytes: u64::MAX, memory, until: now, pause: PAUSE / 2 });
        // Those that were on their way together are one attempt.
        if full.until <= now {
            full.pause = (full.pause * 2).min(PAUSE_MAX);
            (full.until, full.bytes) = (now + full.pause, u64::MAX);
        }
        (full.bytes, full.memory) = (full.bytes.min(bytes(loads, at)), memory);
        let tells = self.told.get(&member).is_none_or(|at| now.since(*at) >= TOLD_PAUSE);
        if tells {
            self.told.insert(member, now);
        }
        tells
    }

    /// A copy there counts.
    pub(super) fn admitted(&mut self, member: MemberId) {
        self.full.remove(&member);
    }

    /// Whoever comes, goes or comes back has other copies than before.
    pub(super) fn members_changed(&mut self, table: &Table) {
        self.full.clear();
        self.told.retain(|m, _| table.member(*m).is_some());
    }

    /// Forgets those that have room for what they had none for. True: there are such.
    pub(super) fn look(&mut self, loads: &Loads) -> bool {
        let before = self.full.len();
        let frees =
            |m: &MemberId, full: &Full| loads.member(*m).is_some_and(|load| load.memory.saturating_add(full.bytes.max(1)) <= full.memory);
        self.full.retain(|m, full| !frees(m, full));
        self.full.len() < before
    }

    /// Copies that do not begin now.
    pub(super) fn paused(&self, now: Time, table: &Table, loads: &Loads) -> BTreeSet<(PartitionRef, MemberId)> {
        let mut paused = BTreeSet::new();
        for (&member, full) in &self.full {
            let shall = table.partitions().filter(|(_, p)| p.goal.as_ref().is_some_and(|goal| goal.contains(&member)) && !p.holds(member));
            let mut large: Vec<(u64, PartitionRef)> =
                shall.map(|(at, _)| (bytes(loads, at), at)).filter(|(bytes, _)| *bytes >= full.bytes).collect();
            large.sort_unstable();
            let learns = || table.partitions().any(|(_, p)| p.learners().any(|learner| learner == member));
            let tried = usize::from(full.until <= now && !learns());
            paused.extend(large.into_iter().skip(tried).map(|(_, at)| (at, member)));
        }
        paused
    }

    /// When something that waits is tried again.
    pub(super) fn due(&self, now: Time) -> Option<Time> {
        self.full.values().map(|full| full.until).filter(|until| *until > now).min()
    }
}

/// What a copy takes; none, where nobody said.
fn bytes(loads: &Loads, at: PartitionRef) -> u64 {
    loads.partition(at).map_or(0, |load| load.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::fixtures::{moving, planned};
    use doyen_placement::loads::{MemberLoad, PartitionLoad, Report};

    const THIRD: MemberId = MemberId(3 << 4);

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    /// What the third is to have, the smaller first: of 100 bytes, of 200 and so on.
    fn wanted(table: &Table, loads: &mut Loads) -> Vec<PartitionRef> {
        let all: Vec<_> = table.partitions().filter(|(_, p)| p.goal.as_ref().is_some_and(|goal| goal.contains(&THIRD))).collect();
        for (n, (at, partition)) in all.iter().enumerate() {
            let load = PartitionLoad { bytes: 100 * (n as u64 + 1), ..PartitionLoad::default() };
            loads.tell(table, partition.primary(), Report { partitions: vec![(*at, load)], ..Report::default() });
        }
        all.into_iter().map(|(at, _)| at).collect()
    }

    fn holds(table: &Table, loads: &mut Loads, memory: u64) {
        let member = MemberLoad { memory, memory_max: 10_000, ..MemberLoad::default() };
        loads.tell(table, THIRD, Report { member, ..Report::default() });
    }

    #[test]
    fn what_is_as_large_waits_and_one_of_it_is_tried() {
        let (table, mut loads, mut rooms) = (planned(8), Loads::default(), Rooms::default());
        let wanted = wanted(&table, &mut loads);
        assert!(wanted.len() >= 4);
        holds(&table, &mut loads, 9_000);
        let pairs = |of: &[PartitionRef]| of.iter().map(|at| (*at, THIRD)).collect::<BTreeSet<_>>();
        assert_eq!((rooms.paused(at(0), &table, &loads), rooms.due(at(0))), (BTreeSet::new(), None));
        // People are told once in a while.
        assert!(rooms.refused(at(10), THIRD, wanted[3], &loads));
        assert!(!rooms.refused(at(10), THIRD, wanted[2], &loads));
        assert_eq!(rooms.due(at(10)), Some(at(15)));
        assert_eq!(rooms.paused(at(14), &table, &loads), pairs(&wanted[2..]), "what is smaller may fit");
        assert_eq!(rooms.paused(at(15), &table, &loads), pairs(&wanted[3..]));
        let tried = moving(&table);
        assert!(rooms.paused(at(15), &tried, &loads).is_empty(), "all are on their way there");
        // Each time in vain it waits for longer, but not for ever.
        let mut now = 15;
        for (pause, tells) in [(10, false), (20, false), (40, false), (40, true)] {
            assert_eq!(rooms.refused(at(now), THIRD, wanted[2], &loads), tells, "people are told once a minute");
            assert_eq!(rooms.due(at(now)), Some(at(now + pause)));
            now += pause;
        }
        rooms.admitted(THIRD);
        assert!(rooms.paused(at(now), &table, &loads).is_empty());
    }

    #[test]
    fn who_holds_less_or_is_another_has_room() {
        let (table, mut loads, mut rooms) = (planned(8), Loads::default(), Rooms::default());
        let wanted = wanted(&table, &mut loads);
        holds(&table, &mut loads, 9_000);
        rooms.refused(at(10), THIRD, wanted[1], &loads);
        holds(&table, &mut loads, 8_801);
        assert!(!rooms.look(&loads), "not enough for those 200 bytes");
        holds(&table, &mut loads, 8_800);
        assert!(rooms.look(&loads));
        assert!(rooms.paused(at(11), &table, &loads).is_empty());
        rooms.refused(at(20), THIRD, wanted[1], &loads);
        rooms.members_changed(&table);
        assert!(rooms.paused(at(21), &table, &loads).is_empty());
    }
}
