//! Members that had no room for a copy.
//!
//! Other members may have no room either, so the planner chooses them again. Without a pause, each
//! copy would begin and be given up every few seconds, with tables for each attempt, for as long as
//! memory is short. So copies of that size wait. Then the smallest of them is tried, and the others
//! follow once that one found room.
//!
//! Each data thread has memory of its own, and a copy for balance must leave more room than one
//! that is lacking. So these wait separately.

use crate::time::Time;
use doyen_placement::loads::Loads;
use doyen_placement::planner::ranges;
use doyen_placement::{MemberId, Partition, PartitionRef, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// After a copy found no room, no copy of that size begins for this long. The time doubles after
/// each further failure.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(40);
/// The longest such pause of copies that only balance: no partition lacks them, and each attempt
/// costs tables. If a member has several data threads, the full thread may never get room, because
/// members report the memory of all threads together.
const BALANCE_PAUSE_MAX: Duration = Duration::from_secs(600);
/// The time between two reports to people about a member without room.
const TOLD_PAUSE: Duration = Duration::from_secs(60);

/// What a coordinator knows of missing room.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    full: BTreeMap<SharedRoom, Full>,
    /// When people were told about each member.
    told: BTreeMap<MemberId, Time>,
}

/// Copies that share the same room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SharedRoom {
    /// The data thread of a member.
    thread: MemberId,
    /// Whether the copies only balance.
    balances: bool,
}

/// A pause of copies to one room.
#[derive(Debug)]
struct Full {
    /// The size of the smallest copy that found no room. `None`: a copy as large as that found room
    /// since.
    bytes: Option<u64>,
    /// The memory that the member used then.
    memory: u64,
    until: Time,
    pause: Duration,
}

impl Rooms {
    /// A member had no room for a copy. Returns true if it is time to tell people.
    pub(super) fn refused(
        &mut self,
        now: Time,
        table: &Table,
        at: PartitionRef,
        member: MemberId,
        loads: &Loads,
    ) -> bool {
        if let Some(room) = room(table, at, member) {
            let full = self.full.entry(room).or_insert(Full {
                bytes: None,
                memory: 0,
                until: now,
                pause: PAUSE / 2,
            });
            // Copies that were on their way together count as one attempt.
            if full.until <= now {
                // After a long time without failures, the pauses begin short again.
                let most = if room.balances {
                    BALANCE_PAUSE_MAX
                } else {
                    PAUSE_MAX
                };
                let before = if now.since(full.until) > PAUSE_MAX.max(full.pause) {
                    PAUSE / 2
                } else {
                    full.pause
                };
                full.pause = (before * 2).min(most);
                (full.until, full.bytes) = (now + full.pause, None);
            }
            full.bytes = Some(full.bytes.unwrap_or(u64::MAX).min(bytes(loads, at)));
            full.memory = loads.member(member).map_or(0, |load| load.memory);
        }
        let tells = self
            .told
            .get(&member)
            .is_none_or(|at| now.since(*at) >= TOLD_PAUSE);
        if tells {
            self.told.insert(member, now);
        }
        tells
    }

    /// A copy on this member counts. If it is as large as the one that found no room, there is room
    /// again. The length of the last pause is kept, because the next copy may be one too many.
    pub(super) fn admitted(
        &mut self,
        now: Time,
        table: &Table,
        at: PartitionRef,
        member: MemberId,
        loads: &Loads,
    ) {
        let Some(full) = room(table, at, member).and_then(|room| self.full.get_mut(&room)) else {
            return;
        };
        if full.bytes.is_some_and(|least| bytes(loads, at) >= least) {
            full.free(now);
        }
    }

    /// A member that comes, goes or returns has other copies than before.
    pub(super) fn members_changed(&mut self, table: &Table) {
        self.full.clear();
        self.told.retain(|m, _| table.member(*m).is_some());
    }

    /// Data threads that had no room for a copy that only balances, with the size of the smallest
    /// such copy. Plans give them no copies for balance: a partition that need not move, and
    /// cannot, should stay.
    pub(super) fn full(&self) -> BTreeMap<MemberId, u64> {
        self.full
            .iter()
            .filter(|(room, _)| room.balances)
            .filter_map(|(room, full)| Some((room.thread, full.bytes?)))
            .collect()
    }

    /// Ends the pauses of copies that fit by now. Returns true if there are any.
    pub(super) fn look(&mut self, now: Time, loads: &Loads) -> bool {
        let mut freed = false;
        for (room, full) in &mut self.full {
            let (Some(least), Some(load)) = (full.bytes, loads.member(room.thread.member())) else {
                continue;
            };
            // A member that evicts uses a little less memory for a moment, which is no room. If a
            // member has several data threads, their sum says little. So the memory must have
            // become less, and low enough. Copies that only balance are not planned any more, so
            // none of them is tried by itself: for them, after a while, the sum alone decides.
            let less = load.memory.saturating_add(least.max(1)) <= full.memory
                || room.balances && full.until <= now;
            if less && load.has_room(least, room.balances) {
                full.free(now);
                freed = true;
            }
        }
        freed
    }

    /// Copies that must not begin now.
    pub(super) fn paused(
        &self,
        now: Time,
        table: &Table,
        loads: &Loads,
    ) -> BTreeSet<(PartitionRef, MemberId)> {
        if self.full.values().all(|full| full.bytes.is_none()) {
            return BTreeSet::new();
        }
        let members: BTreeSet<MemberId> =
            self.full.keys().map(|room| room.thread.member()).collect();
        let mut large: BTreeMap<SharedRoom, Vec<(u64, PartitionRef)>> = BTreeMap::new();
        let mut learn: BTreeSet<SharedRoom> = BTreeSet::new();
        for (at, partition) in table.partitions() {
            learn.extend(
                partition
                    .learners()
                    .filter(|m| members.contains(m))
                    .filter_map(|m| room(table, at, m)),
            );
            for room in shall(partition)
                .filter(|m| members.contains(m))
                .filter_map(|m| room(table, at, m))
            {
                let bytes = bytes(loads, at);
                if self
                    .full
                    .get(&room)
                    .and_then(|full| full.bytes)
                    .is_some_and(|least| bytes >= least)
                {
                    large.entry(room).or_default().push((bytes, at));
                }
            }
        }
        let mut paused = BTreeSet::new();
        for (room, mut large) in large {
            large.sort_unstable();
            let tried = usize::from(
                self.full.get(&room).is_some_and(|full| full.until <= now)
                    && !learn.contains(&room),
            );
            paused.extend(
                large
                    .into_iter()
                    .skip(tried)
                    .map(|(_, at)| (at, room.thread.member())),
            );
        }
        paused
    }

    /// Whether a member has no room now, or had none a short time ago.
    pub(super) fn lacked(&self, now: Time) -> bool {
        self.full
            .values()
            .any(|full| full.bytes.is_some() || now.since(full.until) <= PAUSE_MAX)
    }

    /// When the next copy that waits is tried again.
    pub(super) fn due(&self, now: Time) -> Option<Time> {
        self.full
            .values()
            .map(|full| full.until)
            .filter(|until| *until > now)
            .min()
    }
}

impl Full {
    fn free(&mut self, now: Time) {
        (self.bytes, self.until) = (None, now);
    }
}

/// Members that are to get a copy and have not begun to.
fn shall(partition: &Partition) -> impl Iterator<Item = MemberId> {
    partition
        .goal
        .iter()
        .flatten()
        .copied()
        .filter(|m| !partition.holds(*m))
}

fn room(table: &Table, at: PartitionRef, member: MemberId) -> Option<SharedRoom> {
    let threads = table.member(member)?.addresses.threads();
    Some(SharedRoom {
        thread: member.thread(at.partition.thread(threads)),
        balances: ranges::may_stay(table, at),
    })
}

/// The size of a copy. Zero if no primary reported it.
fn bytes(loads: &Loads, at: PartitionRef) -> u64 {
    loads.partition(at).map_or(0, |load| load.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::fixtures::{alone, moving, planned};
    use doyen_placement::loads::{MemberLoad, PartitionLoad, Report};

    const THIRD: MemberId = MemberId(3 << 4);

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    /// The partitions that the third member is to get, the smaller first: of 100 bytes, of 200 and
    /// so on.
    fn wanted(table: &Table, loads: &mut Loads) -> Vec<PartitionRef> {
        let all: Vec<_> = table
            .partitions()
            .filter(|(_, p)| p.goal.as_ref().is_some_and(|goal| goal.contains(&THIRD)))
            .collect();
        for (n, (at, partition)) in all.iter().enumerate() {
            let load = PartitionLoad {
                bytes: 100 * (n as u64 + 1),
                ..PartitionLoad::default()
            };
            loads.tell(
                table,
                partition.primary(),
                Report {
                    partitions: vec![(*at, load)],
                    ..Report::default()
                },
            );
        }
        all.into_iter().map(|(at, _)| at).collect()
    }

    fn holds(table: &Table, loads: &mut Loads, memory: u64) {
        let member = MemberLoad {
            memory,
            memory_max: 10_000,
            ..MemberLoad::default()
        };
        loads.tell(
            table,
            THIRD,
            Report {
                member,
                ..Report::default()
            },
        );
    }

    fn pairs(of: &[PartitionRef]) -> BTreeSet<(PartitionRef, MemberId)> {
        of.iter().map(|at| (*at, THIRD)).collect()
    }

    #[test]
    fn copies_of_the_same_size_wait_and_one_of_them_is_tried() {
        let (table, mut loads, mut rooms) = (planned(8), Loads::default(), Rooms::default());
        let wanted = wanted(&table, &mut loads);
        assert!(wanted.len() >= 4);
        holds(&table, &mut loads, 7_900);
        assert_eq!(
            (rooms.paused(at(0), &table, &loads), rooms.due(at(0))),
            (BTreeSet::new(), None)
        );
        // Refusals are reported at most once in a while.
        assert!(rooms.refused(at(10), &table, wanted[3], THIRD, &loads));
        assert!(!rooms.refused(at(10), &table, wanted[2], THIRD, &loads));
        assert_eq!(rooms.due(at(10)), Some(at(15)));
        assert_eq!(
            rooms.paused(at(14), &table, &loads),
            pairs(&wanted[2..]),
            "what is smaller may fit"
        );
        assert_eq!(rooms.paused(at(15), &table, &loads), pairs(&wanted[3..]));
        let tried = moving(&table);
        assert!(
            rooms.paused(at(15), &tried, &loads).is_empty(),
            "all are on their way there"
        );
        // After each failure the pause is longer, up to its limit.
        let mut now = 15;
        for (pause, tells) in [(10, false), (20, false), (40, false), (80, true)] {
            assert_eq!(
                rooms.refused(at(now), &table, wanted[2], THIRD, &loads),
                tells,
                "refusals are reported once a minute"
            );
            assert_eq!(rooms.due(at(now)), Some(at(now + pause)));
            now += pause;
        }
        rooms.admitted(at(now), &table, wanted[1], THIRD, &loads);
        assert_eq!(
            rooms.paused(at(now - 1), &table, &loads),
            pairs(&wanted[2..]),
            "that a smaller one found room says nothing"
        );
        rooms.admitted(at(now), &table, wanted[2], THIRD, &loads);
        assert!(rooms.paused(at(now), &table, &loads).is_empty());
        // The next copy may be one too many. Then the pause is as long as before. After a long
        // time, pauses begin short again.
        rooms.refused(at(now + 1), &table, wanted[3], THIRD, &loads);
        assert_eq!(rooms.due(at(now + 1)), Some(at(now + 161)));
        rooms.admitted(at(now + 161), &table, wanted[3], THIRD, &loads);
        rooms.refused(at(now + 400), &table, wanted[3], THIRD, &loads);
        assert_eq!(rooms.due(at(now + 400)), Some(at(now + 405)));
        // Copies that only balance are tried less and less often. Copies that are lacking never
        // wait that long.
        let lacking = alone(
            &table,
            wanted[1],
            table.partition(wanted[1]).expect("it is there").primary(),
        );
        let mut now = now + 405;
        for table in [&table, &lacking] {
            let mut pauses = Vec::new();
            for _ in 0..10 {
                rooms.refused(at(now), table, wanted[1], THIRD, &loads);
                let due = rooms
                    .due(at(now))
                    .map_or(0, |due| due.since(at(now)).as_secs());
                pauses.push(due);
                now += due;
            }
            let most = if std::ptr::eq(table, &lacking) {
                PAUSE_MAX
            } else {
                BALANCE_PAUSE_MAX
            };
            assert!(
                pauses.is_sorted() && pauses.last() == Some(&most.as_secs()),
                "{pauses:?}"
            );
            rooms = Rooms::default();
        }
    }

    #[test]
    fn a_member_that_holds_less_or_is_another_has_room() {
        let (table, mut loads, mut rooms) = (planned(8), Loads::default(), Rooms::default());
        let wanted = wanted(&table, &mut loads);
        holds(&table, &mut loads, 7_900);
        rooms.refused(at(10), &table, wanted[1], THIRD, &loads);
        holds(&table, &mut loads, 7_701);
        assert!(
            !rooms.look(at(11), &loads),
            "not enough for those 200 bytes"
        );
        holds(&table, &mut loads, 7_700);
        assert!(rooms.look(at(11), &loads) && !rooms.look(at(11), &loads));
        assert!(rooms.paused(at(11), &table, &loads).is_empty());
        // A member that evicts uses less for a moment, which is no room.
        holds(&table, &mut loads, 9_000);
        rooms.refused(at(20), &table, wanted[1], THIRD, &loads);
        holds(&table, &mut loads, 8_700);
        assert!(!rooms.look(at(21), &loads));
        rooms.members_changed(&table);
        assert!(rooms.paused(at(21), &table, &loads).is_empty());
    }

    #[test]
    fn copies_that_only_balance_are_planned_again_once_there_is_room_and_not_before() {
        let (table, mut loads, mut rooms) = (planned(8), Loads::default(), Rooms::default());
        let wanted = wanted(&table, &mut loads);
        holds(&table, &mut loads, 7_900);
        assert_eq!(rooms.full(), BTreeMap::new());
        rooms.refused(at(10), &table, wanted[1], THIRD, &loads);
        rooms.refused(at(10), &table, wanted[2], THIRD, &loads);
        assert_eq!(rooms.full(), [(THIRD, 200)].into(), "the smallest");
        assert!(
            !rooms.look(at(60), &loads) && !rooms.full().is_empty(),
            "it holds as much as before"
        );
        // There was room for this copy, but not for the others that were on their way then.
        holds(&table, &mut loads, 7_750);
        assert!(!rooms.look(at(14), &loads), "too soon");
        assert!(rooms.look(at(15), &loads));
        assert_eq!(rooms.full(), BTreeMap::new());
        // A copy that is lacking is tried by itself. It is no reason not to plan.
        let lacking = alone(
            &table,
            wanted[1],
            table.partition(wanted[1]).expect("it is there").primary(),
        );
        rooms.refused(at(20), &lacking, wanted[1], THIRD, &loads);
        assert_eq!(rooms.full(), BTreeMap::new());
        assert!(!rooms.look(at(60), &loads) && !rooms.paused(at(24), &lacking, &loads).is_empty());
    }

    #[test]
    fn missing_copies_do_not_wait_for_copies_that_only_balance() {
        let (table, mut loads, mut rooms) = (planned(8), Loads::default(), Rooms::default());
        let wanted = wanted(&table, &mut loads);
        holds(&table, &mut loads, 8_500);
        rooms.refused(at(10), &table, wanted[0], THIRD, &loads);
        assert_eq!(rooms.paused(at(11), &table, &loads), pairs(&wanted));
        // One of the partitions comes to lack a copy, which may fill more of its learner.
        let lacking = alone(
            &table,
            wanted[2],
            table.partition(wanted[2]).expect("it is there").primary(),
        );
        let rest = [&wanted[..2], &wanted[3..]].concat();
        assert_eq!(rooms.paused(at(11), &lacking, &loads), pairs(&rest));
        // If that copy finds no room, it waits.
        rooms.refused(at(12), &lacking, wanted[2], THIRD, &loads);
        assert_eq!(rooms.paused(at(13), &lacking, &loads), pairs(&wanted));
    }

    #[test]
    fn a_full_data_thread_does_not_hold_back_another() {
        let (mut table, mut loads, mut rooms) = (planned(32), Loads::default(), Rooms::default());
        let place = table
            .members
            .iter()
            .position(|m| m.id == THIRD)
            .expect("it is there");
        let member = std::sync::Arc::make_mut(&mut table.members[place]);
        member.addresses.further = vec![doyen_placement::ThreadPorts {
            data: 7402,
            resp_cluster: None,
        }];
        let wanted = wanted(&table, &mut loads);
        holds(&table, &mut loads, 7_900);
        let (full, other): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|at| at.partition.thread(2) == 1);
        assert!(full.len() > 1 && !other.is_empty());
        rooms.refused(at(10), &table, full[0], THIRD, &loads);
        assert_eq!(rooms.paused(at(11), &table, &loads), pairs(&full));
    }
}
