use super::*;
use crate::value::cause::Cause;
use doyen_placement::{KeyspaceId, PartitionId};
use proptest::prelude::*;

const LEASE: Duration = Duration::from_millis(500);

fn at(partition: u32) -> PartitionRef {
    PartitionRef {
        keyspace: KeyspaceId(0),
        partition: PartitionId(partition),
    }
}

fn key(partition: u32, key: u8) -> WaitedKey {
    (at(partition), MapId(0), Bytes::copy_from_slice(&[key]))
}

fn ticket(member: u64, n: u64) -> Ticket<()> {
    Ticket {
        name: (MemberId(member), n),
        work: (),
        bytes: 10,
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
        self.enter(key(0, 1), ticket(1, n), times).expect("room");
    }

    /// The tickets of a line, as they go on one after the other.
    fn served(&mut self) -> Vec<u64> {
        let mut served = Vec::new();
        while let Some(name) = self.first(&key(0, 1)).map(|first| first.name) {
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
    room.enter(key(0, 2), ticket(2, 1), (ms(0), Duration::ZERO, LEASE))
        .expect("room");
    while let Some(woken) = room.next_woken() {
        room.rest(&woken, ms(60_000));
    }
    room.changed(at(1), &deletion(1));
    assert!(!room.has_woken(), "it is another partition");
    room.changed(at(0), &deletion(1));
    assert_eq!(room.next_woken(), Some(key(0, 1)));
    assert_eq!(room.next_woken(), None);
    // It goes on, so the next one has its turn, and is blocked.
    room.leave((MemberId(1), 0));
    assert_eq!(room.next_woken(), Some(key(0, 1)));
    room.rest(&key(0, 1), ms(70_000));
    assert!(!room.has_woken());
    room.changed(at(0), &Effect::Clear { map: MapId(0) });
    let all = [room.next_woken(), room.next_woken(), room.next_woken()];
    assert_eq!(all, [Some(key(0, 1)), Some(key(0, 2)), None]);
}

#[test]
fn a_line_that_rests_is_tried_at_its_time() {
    let mut room = WaitingRoom::default();
    room.come(1, 0, 0);
    let first = room.next_woken().expect("it is to be tried");
    room.rest(&first, ms(50));
    room.rest(&first, ms(80));
    assert_eq!(room.next_due(), Some(ms(80)));
    room.wake_due(ms(79));
    assert!(!room.has_woken());
    room.wake_due(ms(80));
    assert_eq!((room.next_woken(), room.next_due()), (Some(first), None));
}

#[test]
fn a_room_is_bounded_by_bytes_and_free_again_once_they_leave() {
    let mut room = WaitingRoom::default();
    let large = |n| Ticket {
        bytes: BYTES_MAX / 4,
        ..ticket(7, n)
    };
    let times = (ms(0), Duration::ZERO, LEASE);
    let fit: Vec<bool> = (0..5)
        .map(|n| room.enter(key(n, 1), large(n.into()), times).is_ok())
        .collect();
    assert_eq!(fit, [true, true, true, false, false]);
    assert!(room.leave((MemberId(7), 1)));
    assert!(room.enter(key(9, 1), large(9), times).is_ok());
    room.leave_all_of(MemberId(7));
    assert!(room.is_empty());
    assert_eq!(room.bytes, 0);
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
        4 => (any::<bool>(), 1..1_000_u64).prop_map(|(goes, rest)| Event::Try(goes, rest)),
        2 => (1..900_u64).prop_map(Event::Pass),
    ]
}

proptest! {
    /// In any course of events: no ticket is lost, each line is in order, and a line whose key has
    /// changed since its first one was last tried, or whose time has come, is woken.
    #[test]
    fn no_ticket_is_lost_and_no_change_slept_through(events in prop::collection::vec(event(), 0..80)) {
        let mut room = WaitingRoom::default();
        // By key: (since, n) of each ticket in order, and the names; and what is to be tried.
        let mut lines: BTreeMap<WaitedKey, Vec<(Rank, TicketName)>> = BTreeMap::new();
        let mut began: BTreeMap<WaitedKey, Time> = BTreeMap::new();
        let mut stirred: BTreeSet<WaitedKey> = BTreeSet::new();
        let mut due: BTreeMap<WaitedKey, Time> = BTreeMap::new();
        let (mut now, mut n) = (Time(10_000_000_000), 0);
        for event in events {
            match event {
                Event::Enter { key: (partition, name), member, age } => {
                    n += 1;
                    let at = key(partition, name);
                    let age = Duration::from_millis(age);
                    let entered = room.enter(at.clone(), ticket(member, n), (now, age, LEASE));
                    prop_assert_eq!(entered, Ok(()));
                    let line = lines.entry(at.clone()).or_default();
                    if line.is_empty() {
                        began.insert(at.clone(), now);
                    }
                    let aged = now.since(began[&at]) <= LEASE;
                    let since = if aged { Time(now.0 - age.as_nanos() as u64) } else { now };
                    line.push(((since, n), (MemberId(member), n)));
                    line.sort();
                    if line[0].1.1 == n {
                        stirred.insert(at);
                    }
                }
                Event::Leave(which) => {
                    let all: Vec<TicketName> = lines.values().flatten().map(|(_, n)| *n).collect();
                    if !all.is_empty() {
                        let name = all[which % all.len()];
                        prop_assert!(room.leave(name));
                        prop_assert!(!room.leave(name), "it has left");
                        for (at, line) in &mut lines {
                            if line.first().is_some_and(|(_, first)| *first == name) {
                                stirred.insert(at.clone());
                            }
                            line.retain(|(_, n)| *n != name);
                        }
                    }
                }
                Event::Gone(member) => {
                    room.leave_all_of(MemberId(member));
                    for (at, line) in &mut lines {
                        if line.first().is_some_and(|(_, first)| first.0 == MemberId(member)) {
                            stirred.insert(at.clone());
                        }
                        line.retain(|(_, n)| n.0 != MemberId(member));
                    }
                }
                Event::End(partition) => {
                    let ended: BTreeSet<TicketName> = room.end(at(partition)).into_iter().collect();
                    let of = lines.iter().filter(|(line, _)| line.0 == at(partition));
                    let wanted = of.flat_map(|(_, line)| line).map(|(_, name)| *name).collect();
                    prop_assert_eq!(ended, wanted);
                    lines.retain(|line, _| line.0 != at(partition));
                }
                Event::Change(partition, name) => {
                    room.changed(at(partition), &deletion(name));
                    stirred.insert(key(partition, name));
                }
                Event::Try(goes, rest) => {
                    let Some(woken) = room.next_woken() else { continue };
                    prop_assert!(stirred.remove(&woken), "{woken:?} had no reason");
                    let first = lines[&woken][0].1;
                    prop_assert_eq!(room.first(&woken).map(|first| first.name), Some(first));
                    if goes {
                        room.leave(first);
                        lines.entry(woken.clone()).or_default().remove(0);
                        stirred.insert(woken);
                    } else {
                        let again = now + Duration::from_millis(rest);
                        room.rest(&woken, again);
                        due.insert(woken, again);
                    }
                }
                Event::Pass(time) => {
                    now = now + Duration::from_millis(time);
                    room.wake_due(now);
                    let over = due.iter().filter(|(_, at)| **at <= now);
                    stirred.extend(over.map(|(line, _)| line.clone()));
                    due.retain(|_, at| *at > now);
                }
            }
            lines.retain(|_, line| !line.is_empty());
            stirred.retain(|line| lines.contains_key(line));
            due.retain(|line, _| lines.contains_key(line));
            prop_assert_eq!(&room.woken, &stirred);
            prop_assert_eq!(room.next_due(), due.values().min().copied());
            prop_assert_eq!(room.len(), lines.values().map(Vec::len).sum::<usize>());
            let bytes = lines.values().flatten().count() * (10 + 1 + TICKET_OVERHEAD);
            prop_assert_eq!(room.bytes, bytes);
        }
    }
}
