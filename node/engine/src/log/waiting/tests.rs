use super::*;
use crate::value::cause::Cause;
use doyen_placement::{KeyspaceId, PartitionId};
use proptest::prelude::*;

const LEASE: Duration = Duration::from_millis(500);
const MOST: Filled = Filled {
    tickets: 10_000,
    bytes: 64 << 20,
};
/// What a ticket of these tests takes.
const EACH: usize = 10 + 1 + TICKET_OVERHEAD;

fn at(partition: u32) -> PartitionRef {
    PartitionRef::new(KeyspaceId(0), PartitionId(partition))
}

fn key(partition: u32, key: u8) -> WaitedKey {
    let key = Bytes::copy_from_slice(&[key]);
    (at(partition), MapId(0), key, Bytes::new())
}

fn ticket(member: u64, n: u64) -> Ticket<()> {
    Ticket {
        name: (MemberId(member), n),
        work: (),
        bytes: 10,
        takes_grant: false,
    }
}

fn ms(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn deletion(key: u8) -> Effect {
    Effect::Delete {
        map: MapId(0),
        key: [key].as_slice().into(),
        cause: Cause::Command,
    }
}

impl WaitingRoom<()> {
    fn come(&mut self, n: u64, now: u64, age: u64) {
        let times = (ms(now), Duration::from_millis(age), LEASE);
        self.enter(key(0, 1), ticket(1, n), times, MOST)
            .expect("room");
    }

    /// The tickets of a line, as they go on one after the other.
    fn served(&mut self) -> Vec<u64> {
        let mut served = Vec::new();
        while let Some(name) = self.first(&key(0, 1)).map(|(name, ())| name) {
            served.push(name.1);
            self.leave(name);
        }
        served
    }
}

#[test]
fn those_that_wait_come_in_the_order_in_which_they_came() {
    let mut room = WaitingRoom::default();
    for (n, now) in [(5, 0), (3, 1), (9, 1), (4, 700), (1, 701)] {
        room.come(n, now, 0);
    }
    assert_eq!(room.served(), [5, 3, 9, 4, 1]);
    assert!(room.is_empty());
}

#[test]
fn those_that_ask_again_within_a_lease_are_ordered_by_their_age() {
    let mut room = WaitingRoom::default();
    for (n, now, age) in [
        (3, 1_000, 10),
        (1, 1_100, 900),
        (4, 1_200, 0),
        (2, 1_500, 800),
    ] {
        room.come(n, now, age);
    }
    // It is too late to be put before those that are here.
    room.come(5, 1_501, 5_000);
    assert_eq!(room.served(), [1, 2, 3, 4, 5]);
}

#[test]
fn a_change_wakes_one_and_only_those_of_its_key() {
    let mut room = WaitingRoom::default();
    for n in 0..1_000 {
        room.come(n, n, 0);
    }
    let times = (ms(0), Duration::ZERO, LEASE);
    room.enter(key(0, 2), ticket(2, 1), times, MOST)
        .expect("room");
    while let Some(woken) = room.next_woken() {
        room.rest(&woken, ms(0), Duration::from_secs(60));
    }
    room.changed(at(1), &deletion(1));
    assert!(!room.has_woken(), "it is another partition");
    room.changed(at(0), &deletion(1));
    assert_eq!(room.next_woken(), Some(key(0, 1)));
    assert_eq!(room.next_woken(), None);
    // It goes on, so the next one has its turn, and is blocked.
    room.leave((MemberId(1), 0));
    assert_eq!(room.next_woken(), Some(key(0, 1)));
    room.rest(&key(0, 1), ms(0), Duration::from_secs(70));
    assert!(!room.has_woken());
    room.changed(at(0), &Effect::Clear { map: MapId(1) });
    assert!(!room.has_woken(), "it is another map");
    room.changed(at(0), &Effect::Clear { map: MapId(0) });
    let all = [room.next_woken(), room.next_woken(), room.next_woken()];
    assert_eq!(all, [Some(key(0, 1)), Some(key(0, 2)), None]);
}

#[test]
fn lines_of_one_key_do_not_wait_for_each_other() {
    let mut room = WaitingRoom::default();
    let times = (ms(0), Duration::ZERO, LEASE);
    let lines: Vec<WaitedKey> = (0..3_u8)
        .map(|name| {
            let (at, map, key, _) = key(0, 1);
            (at, map, key, Bytes::copy_from_slice(&[name]))
        })
        .collect();
    for (n, line) in (1..).zip(&lines) {
        room.enter(line.clone(), ticket(1, n), times, MOST)
            .expect("room");
    }
    for line in &lines {
        assert_eq!(room.next_woken().as_ref(), Some(line));
        room.rest(line, ms(0), Duration::from_secs(60));
    }
    assert_eq!(room.waiting(at(0), MapId(0), &[1]), 3);
    room.leave((MemberId(1), 2));
    room.changed(at(0), &deletion(1));
    let woken: Vec<WaitedKey> = std::iter::from_fn(|| room.next_woken()).collect();
    assert_eq!(woken, [lines[0].clone(), lines[2].clone()]);
    assert_eq!(room.end(at(0)).len(), 2);
    assert!(room.lines.is_empty() && room.is_empty() && !room.has_woken());
}

#[test]
fn a_line_that_rests_is_tried_at_its_time() {
    let mut room = WaitingRoom::default();
    room.come(1, 0, 0);
    let first = room.next_woken().expect("it is to be tried");
    room.rest(&first, ms(0), Duration::from_millis(50));
    room.rest(&first, ms(10), Duration::from_millis(70));
    assert_eq!(room.next_due(), Some(ms(80)));
    room.wake_due(ms(79));
    assert!(!room.has_woken());
    room.wake_due(ms(80));
    assert_eq!((room.next_woken(), room.next_due()), (Some(first), None));
}

/// One key that is woken again and again, by a peer that changes it or by a time that has come,
/// costs each pass one look, and the other keys nothing.
#[test]
fn lines_are_tried_in_the_order_in_which_they_were_woken_and_rest_for_a_while() {
    let mut room = WaitingRoom::default();
    for name in [3, 1, 2] {
        let times = (ms(0), Duration::ZERO, LEASE);
        let ticket = ticket(1, name.into());
        room.enter(key(0, name), ticket, times, MOST).expect("room");
    }
    for name in [3, 1, 2] {
        assert_eq!(room.next_woken(), Some(key(0, name)));
        room.rest(&key(0, name), ms(0), Duration::from_secs(60));
    }
    for name in [1, 2, 3] {
        room.changed(at(0), &deletion(name));
    }
    let mut tried = Vec::new();
    for _ in 0..4 {
        let woken = room.next_woken().expect("it is woken");
        tried.push(woken.2[0]);
        room.rest(&woken, ms(0), Duration::ZERO);
        room.changed(at(0), &deletion(1));
    }
    assert_eq!(tried, [1, 2, 3, 1]);
    // Without a change it is not tried at once, whatever its operation says.
    while let Some(woken) = room.next_woken() {
        room.rest(&woken, ms(1), Duration::ZERO);
    }
    room.wake_due(ms(4));
    assert!(!room.has_woken());
}

#[test]
fn lines_of_a_partition_that_executes_nothing_are_tried_once_it_does() {
    let mut room = WaitingRoom::default();
    for (partition, name) in [(0, 1), (0, 2), (1, 1)] {
        let times = (ms(0), Duration::ZERO, LEASE);
        let ticket = ticket(1, u64::from(10 * partition) + u64::from(name));
        let key = key(partition, name);
        room.enter(key, ticket, times, MOST).expect("room");
    }
    while let Some(woken) = room.next_woken() {
        room.stall(&woken);
    }
    room.wake_due(ms(600_000));
    assert_eq!((room.next_due(), room.has_woken()), (None, false));
    room.leave((MemberId(1), 11));
    room.stir(at(1));
    assert_eq!([room.next_woken(), room.next_woken()], [None, None]);
    room.stir(at(0));
    let both = [room.next_woken(), room.next_woken(), room.next_woken()];
    assert_eq!(both, [Some(key(0, 1)), Some(key(0, 2)), None]);
}

#[test]
fn a_grant_leaves_its_line_when_it_is_withdrawn_lapses_or_is_asked_for_again() {
    let line = key(0, 1);
    let mut room = WaitingRoom::default();
    for n in 1..=4 {
        room.come(n, n, 0);
    }
    for n in 1..=3 {
        assert_eq!(room.next_woken(), Some(line.clone()));
        room.grant((MemberId(1), n), ms(500 + n));
    }
    assert_eq!(
        (
            room.grants(&line, ms(500)),
            room.waiting(line.0, line.1, &line.2)
        ),
        (3, 1)
    );
    let _ = room.next_woken();
    // The line rests no longer than until the next grant lapses.
    room.rest(&line, ms(400), Duration::from_secs(60));
    assert_eq!(room.next_due(), Some(ms(501)));
    assert_eq!(room.grants(&line, ms(501)), 2);
    assert!(room.leave((MemberId(1), 2)) && !room.leave((MemberId(1), 1)));
    assert_eq!(room.next_woken(), Some(line.clone()));
    // Its caller asks again, so it was never told, and is before the fourth.
    room.come(3, 700, 0);
    assert_eq!(room.grants(&line, ms(502)), 0);
    assert_eq!(room.first(&line).map(|(name, ())| name.1), Some(3));
    assert_eq!(room.served(), [3, 4]);
    assert!(room.lines.is_empty() && room.filled == Filled::default());
    // Grants alone keep a line, and leave nothing behind.
    room.come(5, 1_000, 0);
    room.grant((MemberId(1), 5), ms(1_500));
    assert_eq!(room.grants(&line, ms(1_499)), 1);
    assert_eq!(room.grants(&line, ms(1_500)), 0);
    assert!(room.lines.is_empty() && room.is_empty() && !room.has_woken());
}

/// How many more tickets of this size a thread of a process gets in.
fn fill(room: &mut WaitingRoom<()>, member: u64, most: Filled, bytes: usize) -> usize {
    let first = 1_000 * room.number;
    let times = (ms(0), Duration::ZERO, LEASE);
    let fits = |n: &u64| {
        let ticket = Ticket {
            bytes,
            ..ticket(member, first + n)
        };
        room.enter(key(0, 1), ticket, times, most).is_ok()
    };
    (0..1_000).take_while(fits).count()
}

#[test]
fn each_process_may_fill_as_much_of_a_room_as_is_left() {
    let by_number = Filled {
        tickets: 12,
        bytes: usize::MAX,
    };
    let by_bytes = Filled {
        tickets: usize::MAX,
        bytes: 12 * EACH,
    };
    for most in [by_number, by_bytes] {
        let mut room = WaitingRoom::default();
        // Two threads of one process have a part together.
        let process = MemberId::of_member(5 << 4).0;
        assert_eq!(fill(&mut room, process, most, 10), 6);
        assert_eq!(fill(&mut room, process + 1, most, 10), 0);
        let parts: Vec<usize> = (6..10).map(|n| fill(&mut room, n << 4, most, 10)).collect();
        assert_eq!(parts, [3, 2, 1, 0], "{most:?}");
        // What one leaves is room for all.
        room.leave_all_of(MemberId(process));
        assert_eq!(fill(&mut room, 9 << 4, most, 10), 3);
        (6..10).for_each(|n| room.leave_all_of(MemberId(n << 4)));
        assert!(room.is_empty() && room.of_processes.is_empty());
        assert_eq!(room.filled, Filled::default());
    }
    // Nothing that is larger than all gets in.
    let mut room = WaitingRoom::default();
    assert_eq!(fill(&mut room, 16, by_bytes, 12 * EACH), 0);
}

/// What happens to a room.
#[derive(Debug, Clone)]
enum Event {
    Enter {
        key: (u32, u8),
        member: u64,
        age: u64,
    },
    Leave(usize),
    Gone(u64),
    End(u32),
    Change(u32, u8),
    /// The first of the next woken line goes on, or is blocked for so long.
    Try(bool, u64),
    /// It goes on, and has a grant for so long.
    Grant(u64),
    /// The partition of the next woken line executes nothing.
    Stall,
    Stir(u32),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let key = || (0..2_u32, 0..3_u8);
    prop_oneof![
        4 => (key(), 1..4_u64, 0..900_u64)
            .prop_map(|(key, member, age)| Event::Enter { key, member, age }),
        2 => any::<usize>().prop_map(Event::Leave),
        1 => (1..4_u64).prop_map(Event::Gone),
        1 => (0..2_u32).prop_map(Event::End),
        3 => key().prop_map(|(at, key)| Event::Change(at, key)),
        4 => (any::<bool>(), 0..1_000_u64).prop_map(|(goes, rest)| Event::Try(goes, rest)),
        2 => (1..2_000_u64).prop_map(Event::Grant),
        2 => Just(Event::Stall),
        1 => (0..2_u32).prop_map(Event::Stir),
        2 => (1..900_u64).prop_map(Event::Pass),
    ]
}

/// The tickets of each key in order.
type Lines = BTreeMap<WaitedKey, Vec<(Rank, TicketName)>>;

/// The tickets of each key that have grants, by the time at which these lapse.
type Grants = BTreeMap<WaitedKey, BTreeSet<(Time, TicketName)>>;

/// Takes a ticket out of its line, which is returned if it was the first there or had a grant.
fn leave(lines: &mut Lines, grants: &mut Grants, name: TicketName) -> Option<WaitedKey> {
    for (key, of) in grants.iter_mut() {
        let before = of.len();
        of.retain(|(_, granted)| *granted != name);
        if of.len() < before {
            return Some(key.clone());
        }
    }
    let (key, line) = lines
        .iter_mut()
        .find(|(_, line)| line.iter().any(|(_, of)| *of == name))?;
    let was_first = line[0].1 == name;
    line.retain(|(_, of)| *of != name);
    was_first.then(|| key.clone())
}

proptest! {
    /// In any course of events: no ticket is lost, each line is in order, and a line whose key has
    /// changed since its first one was last tried, or whose time has come, is woken.
    #[test]
    fn no_ticket_is_lost_and_no_change_slept_through(events in prop::collection::vec(event(), 0..80)) {
        let mut room = WaitingRoom::default();
        let (mut lines, mut grants) = (Lines::new(), Grants::new());
        let mut began: BTreeMap<WaitedKey, Time> = BTreeMap::new();
        let mut stirred: Vec<WaitedKey> = Vec::new();
        let mut stalled: Vec<WaitedKey> = Vec::new();
        let mut due: BTreeMap<WaitedKey, Time> = BTreeMap::new();
        let (mut now, mut n) = (Time(10_000_000_000), 0);
        for event in events {
            match event {
                Event::Enter { key: (partition, name), member, age } => {
                    n += 1;
                    let at = key(partition, name);
                    let age = Duration::from_millis(age);
                    let times = (now, age, LEASE);
                    let entered = room.enter(at.clone(), ticket(member, n), times, MOST);
                    prop_assert_eq!(entered, Ok(()));
                    let line = lines.entry(at.clone()).or_default();
                    if line.is_empty() && !grants.contains_key(&at) {
                        began.insert(at.clone(), now);
                    }
                    let aged = now.since(began[&at]) <= LEASE;
                    let since = if aged { Time(now.0 - age.as_nanos() as u64) } else { now };
                    line.push(((since, n), (MemberId(member), n)));
                    line.sort();
                    if line[0].1.1 == n {
                        stirred.push(at);
                    }
                }
                Event::Leave(which) => {
                    let granted = grants.values().flatten().map(|(_, n)| *n);
                    let all: Vec<TicketName> =
                        lines.values().flatten().map(|(_, n)| *n).chain(granted).collect();
                    if !all.is_empty() {
                        let name = all[which % all.len()];
                        prop_assert!(room.leave(name));
                        prop_assert!(!room.leave(name), "it has left");
                        stirred.extend(leave(&mut lines, &mut grants, name));
                    }
                }
                Event::Gone(member) => {
                    room.leave_all_of(MemberId(member));
                    let granted = grants.values().flatten().map(|(_, name)| *name);
                    let all = lines.values().flatten().map(|(_, name)| *name).chain(granted);
                    let gone: BTreeSet<TicketName> =
                        all.filter(|name| name.0 == MemberId(member)).collect();
                    for name in gone {
                        stirred.extend(leave(&mut lines, &mut grants, name));
                    }
                }
                Event::End(partition) => {
                    let ended: BTreeSet<TicketName> = room.end(at(partition)).into_iter().collect();
                    let of = lines.iter().filter(|(line, _)| line.0 == at(partition));
                    let wanted = of.flat_map(|(_, line)| line).map(|(_, name)| *name).collect();
                    prop_assert_eq!(ended, wanted);
                    lines.retain(|line, _| line.0 != at(partition));
                    grants.retain(|line, _| line.0 != at(partition));
                }
                Event::Change(partition, name) => {
                    room.changed(at(partition), &deletion(name));
                    stirred.push(key(partition, name));
                }
                Event::Try(goes, rest) => {
                    let Some(woken) = room.next_woken() else { continue };
                    prop_assert_eq!(stirred.remove(0), woken.clone(), "it was woken first");
                    let first = lines.get(&woken).map(|line| line[0].1);
                    prop_assert_eq!(room.first(&woken).map(|(name, ())| name), first);
                    if let Some(first) = first.filter(|_| goes) {
                        room.leave(first);
                        lines.entry(woken.clone()).or_default().remove(0);
                        stirred.push(woken);
                    } else {
                        let within = Duration::from_millis(rest);
                        room.rest(&woken, now, within);
                        let lapses = grants.get(&woken).and_then(|of| of.first());
                        let until = lapses.map_or(now + within, |(at, _)| (now + within).min(*at));
                        due.insert(woken, until.max(now + REST_LEAST));
                    }
                }
                Event::Grant(within) => {
                    let Some(woken) = room.next_woken() else { continue };
                    prop_assert_eq!(stirred.remove(0), woken.clone());
                    let of = grants.entry(woken.clone()).or_default();
                    of.retain(|(until, _)| *until > now);
                    prop_assert_eq!(room.grants(&woken, now), of.len());
                    if let Some(line) = lines.get_mut(&woken) {
                        let (_, first) = line.remove(0);
                        let until = now + Duration::from_millis(within);
                        room.grant(first, until);
                        of.insert((until, first));
                        stirred.push(woken);
                    } else {
                        // Nothing is tried: the line waits for the next lapse, if it is left.
                        room.rest(&woken, now, LEASE);
                        if let Some((lapses, _)) = of.first() {
                            due.insert(woken, (now + LEASE).min(*lapses).max(now + REST_LEAST));
                        }
                    }
                }
                Event::Stall => {
                    let Some(woken) = room.next_woken() else { continue };
                    prop_assert_eq!(stirred.remove(0), woken.clone());
                    room.stall(&woken);
                    stalled.push(woken);
                }
                Event::Stir(partition) => {
                    room.stir(at(partition));
                    let of = stalled.iter().filter(|line| line.0 == at(partition));
                    stirred.extend(of.cloned());
                }
                Event::Pass(time) => {
                    now = now + Duration::from_millis(time);
                    room.wake_due(now);
                    let mut over: Vec<(Time, WaitedKey)> =
                        due.iter().map(|(line, at)| (*at, line.clone())).collect();
                    over.retain(|(at, _)| *at <= now);
                    over.sort();
                    stirred.extend(over.into_iter().map(|(_, line)| line));
                }
            }
            lines.retain(|_, line| !line.is_empty());
            grants.retain(|_, of| !of.is_empty());
            let is_left = |line: &WaitedKey| lines.contains_key(line) || grants.contains_key(line);
            // A line that is woken already keeps its place.
            let mut seen = BTreeSet::new();
            stirred.retain(|line| is_left(line) && seen.insert(line.clone()));
            stalled.retain(|line| is_left(line) && !stirred.contains(line));
            due.retain(|line, _| is_left(line) && !stirred.contains(line));
            prop_assert_eq!(room.woken.values().cloned().collect::<Vec<_>>(), stirred.clone());
            prop_assert_eq!(room.stalled.len(), stalled.len());
            prop_assert_eq!(room.next_due(), due.values().min().copied());
            let tickets = lines.values().flatten().count() + grants.values().flatten().count();
            prop_assert_eq!(room.len(), tickets);
            let filled = Filled { tickets, bytes: tickets * EACH };
            prop_assert_eq!(room.filled, filled);
            let parts = room.of_processes.values();
            let sum = parts.fold((0, 0), |(n, sum), own| (n + own.tickets, sum + own.bytes));
            prop_assert_eq!(sum, (filled.tickets, filled.bytes));
        }
    }
}
