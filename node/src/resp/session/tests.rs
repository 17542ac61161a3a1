use super::charges::EXPECTED_BYTES_MIN;
use super::deadlines::HURRIED_FOR;
use super::pending::keys::KeysReply;
use super::*;
use crate::resp::acl::users::Users;
use crate::resp::budget::{ClientBudget, FREE_INPUT_BYTES, STALLED_MAX};
use doyen_engine::command::Shape;
use doyen_engine::op::{Failure, Outcome};
use doyen_gossip::Time;
use std::net::SocketAddr;
use std::sync::Arc;

fn connection(id: u64, budget: &Rc<ClientBudget>) -> Rc<Connection> {
    let any: SocketAddr = ([127, 0, 0, 1], 1).into();
    Connection::new(
        (id, id as usize),
        false,
        (any, any),
        &Users::new(Arc::default(), None),
        (budget.clone(), Rc::default()),
        Time::ZERO,
    )
}

fn budget() -> Rc<ClientBudget> {
    Rc::new(ClientBudget::small())
}

fn waiting(connection: &Rc<Connection>, expected: usize) -> u64 {
    let mut session = connection.session.borrow_mut();
    session.replies.wait((Shape::Plain, 0), 0, expected);
    session.replies.next() - 1
}

fn value(bytes: usize) -> Outcome {
    Outcome::Bulk(vec![0; bytes].as_slice().into())
}

/// Regression: thousands of reads were forwarded before the first answer told their size.
#[test]
fn other_nodes_answers_are_expected_to_weigh_what_recent_ones_weighed() {
    let (budget, large) = (budget(), 1 << 20);
    let connection = connection(1, &budget);
    let expected =
        |connection: &Connection| connection.session.borrow().replies.charges.expects(true);
    assert_eq!(expected(&connection), large, "the worst, at first");
    let slots: Vec<u64> = (0..32).map(|_| waiting(&connection, large)).collect();
    assert!(connection.session.borrow().is_blocked());
    assert_eq!(budget.answers().0, 32 << 20);
    for slot in slots {
        assert!(!connection.deliver((Time::ZERO, None), (slot, 0), 0, value(10), true));
    }
    assert_eq!(expected(&connection), EXPECTED_BYTES_MIN);
    connection.session.borrow_mut().encode_ready();
    assert!(!connection.session.borrow().is_blocked());
    assert_eq!(budget.answers().0, 0);
    let slot = waiting(&connection, EXPECTED_BYTES_MIN);
    connection.deliver((Time::ZERO, None), (slot, 0), 0, value(large), true);
    assert_eq!(
        expected(&connection),
        large,
        "one large answer, and large ones are expected"
    );
}

/// Regression: answers that were asked for within the budget were refused once others had filled
/// it.
#[test]
fn an_answer_that_was_weighed_has_its_room() {
    let (budget, large) = (budget(), 1 << 20);
    let connections: Vec<_> = (1..=32).map(|id| connection(id, &budget)).collect();
    let slots: Vec<u64> = connections.iter().map(|c| waiting(c, large)).collect();
    assert!(budget.is_short() && connections.iter().all(|c| c.session.borrow().is_blocked()));
    for (connection, slot) in connections.iter().zip(slots) {
        connection.deliver((Time::ZERO, None), (slot, 0), 0, value(large), true);
        assert!(
            connection.session.borrow().replies.out.len() > large,
            "not an error"
        );
    }
}

#[test]
fn unread_copies_are_refused_and_given_back_at_the_end() {
    let budget = budget();
    let (greedy, modest) = (connection(1, &budget), connection(2, &budget));
    let front = waiting(&greedy, 0);
    let (mut refused, slots) = (0, (0..50).map(|_| waiting(&greedy, 0)).collect::<Vec<_>>());
    for slot in slots {
        greedy.deliver((Time::ZERO, None), (slot, 0), 0, value(1 << 20), true);
        let done = greedy.session.borrow().replies.done(slot);
        refused += usize::from(done == Some(Outcome::Failed(Failure::Overloaded)));
    }
    assert_eq!(
        (refused, budget.answers().0),
        (18, 32 << 20),
        "twice the share, all together"
    );
    let shared: Outcome = value(1 << 20);
    greedy.deliver((Time::ZERO, None), (front, 0), 0, shared.clone(), true);
    assert_eq!(budget.answers().0, 32 << 20, "stored values cost nothing");
    drop(greedy);
    assert_eq!(budget.answers().0, 0);
    let slot = waiting(&modest, 0);
    modest.deliver((Time::ZERO, None), (slot, 0), 0, value(1 << 20), true);
    assert!(modest.session.borrow().replies.out.len() > 1 << 20);
}

#[test]
fn a_connection_that_holds_much_and_makes_no_progress_is_expelled() {
    let budget = budget();
    let (hoarder, waiter, modest) = (
        connection(1, &budget),
        connection(2, &budget),
        connection(3, &budget),
    );
    let late = Time::ZERO + STALLED_MAX + Duration::from_secs(1);
    assert!(!hoarder.expel_if_stalled(late), "it holds nothing");
    for connection in [&hoarder, &waiter] {
        connection.input_held.set(8 << 20);
    }
    modest.input_held.set(FREE_INPUT_BYTES);
    budget.count_input(1, 0, 16 << 20);
    assert!(hoarder.may_read(1, late) && !waiter.may_read(2, late));
    assert!(budget.is_wanted());
    assert!(
        !waiter.expel_if_stalled(Time::ZERO + STALLED_MAX),
        "it has waited no longer than it may"
    );
    assert!(
        hoarder.expel_if_stalled(late)
            && waiter.expel_if_stalled(late)
            && !modest.expel_if_stalled(late)
    );
    assert!(!hoarder.expel_if_stalled(late), "once");
}

fn collecting(connection: &Rc<Connection>, reply: KeysReply, expected: usize) -> u64 {
    let mut session = connection.session.borrow_mut();
    session.replies.collect(reply, 0, expected);
    session.replies.next() - 1
}

#[test]
fn a_reply_of_many_values_fails_as_soon_as_it_is_too_large_and_gives_back_what_it_held() {
    const PARTS: usize = 600;
    let (budget, large) = (budget(), 1 << 20);
    let connection = connection(1, &budget);
    let slot = collecting(&connection, KeysReply::asked_for(PARTS), 0);
    connection.deliver((Time::ZERO, None), (slot, 0), 0, value(large), true);
    assert_eq!(budget.answers().0, large, "a copy");
    let stored = value(large);
    // The first value is the only copy. It is given back once the reply fails.
    let failed = || budget.answers().0 == 0;
    for part in 1..PARTS as u32 - 1 {
        connection.deliver(
            (Time::ZERO, None),
            (slot, part),
            u64::from(part),
            stored.clone(),
            true,
        );
        assert_eq!(
            failed(),
            (part as usize + 1) * large > REPLY_BYTES_MAX,
            "{part}"
        );
    }
    assert_eq!(budget.answers().0, 0, "the reply will not be sent");
    connection.deliver(
        (Time::ZERO, None),
        (slot, PARTS as u32 - 1),
        PARTS as u64 - 1,
        value(large),
        true,
    );
    let session = connection.session.borrow();
    assert_eq!(
        &session.replies.out.bytes[..],
        b"-ERR the reply would be too large\r\n"
    );
    let charges = &session.replies.charges;
    assert_eq!((charges.pending(), charges.charged()), (0, 0));
}

/// Regression: the commands waited for room that no connection released.
#[test]
fn commands_under_way_go_on_in_turns_while_there_is_too_little_room() {
    let (budget, large) = (budget(), 1 << 20);
    let connections: Vec<_> = (1..=3).map(|id| connection(id, &budget)).collect();
    for connection in &connections {
        let reply = KeysReply::asked_for(8).waiting_for_room();
        collecting(connection, reply, 6 * large);
        connection.session.borrow_mut().replies.partway = true;
    }
    let [first, second, third] = &connections[..] else {
        panic!("three")
    };
    let blocked = |connection: &Connection| connection.session.borrow().is_blocked();
    assert!(
        !blocked(first) && blocked(second) && blocked(third),
        "18 MiB, where the share is 16"
    );
    first.session.borrow_mut().replies.discharge();
    let mut ready = Vec::new();
    budget.ready().append_to(&mut ready);
    assert_eq!(ready, [2, 3], "waiting connections hear that it is gone");
    assert!(!blocked(second) && !blocked(third), "there is room");
    budget.count_answers(0, 8 * large);
    assert!(
        !blocked(second) && blocked(third),
        "the first to come has the turn"
    );
    // A command that fails has nothing to wait for.
    third.deliver(
        (Time::ZERO, None),
        (0, 0),
        0,
        Outcome::Failed(Failure::Unavailable),
        true,
    );
    assert!(!blocked(third));
}

#[test]
fn commands_queued_behind_one_that_timed_out_have_a_short_deadline() {
    let budget = budget();
    let connection = connection(1, &budget);
    let hurried = |at: u64| {
        let session = connection.session.borrow();
        session.replies.deadlines.is_hurried(Time(at))
    };
    let fails = |now: u64, why| {
        let slot = waiting(&connection, EXPECTED_BYTES_MIN);
        connection.deliver((Time(now), None), (slot, 0), 0, Outcome::Failed(why), true);
    };
    fails(7, Failure::Unavailable);
    assert!(!hurried(8), "nothing waited behind it");
    connection.behind.set(true);
    fails(9, Failure::Overloaded);
    assert!(!hurried(10), "it did not wait");
    fails(11, Failure::Unknown);
    assert!(hurried(12));
    let long = u64::try_from(HURRIED_FOR.as_nanos()).unwrap();
    assert!(hurried(10 + long) && !hurried(11 + long));
    connection.caught_up();
    assert!(!hurried(12), "the next command did not wait");
}

/// What memory holds of all answers together.
fn held(budget: &ClientBudget) -> usize {
    budget.held().1
}

/// Regression: the expected answers of new connections counted as memory of the process, so writes
/// were refused while nothing was stored.
#[test]
fn expected_answers_bound_what_may_come_and_are_no_memory() {
    let (budget, large) = (budget(), 1 << 20);
    let connections: Vec<_> = (1..=5).map(|id| connection(id, &budget)).collect();
    let [one, parts, failing, leaving, silenced] = &connections[..] else {
        panic!("five")
    };
    let fail = || Outcome::Failed(Failure::Unavailable);
    let take = |connection: &Connection, at: (u64, u32), outcome| {
        let token = u64::from(at.1);
        connection.deliver((Time::ZERO, None), at, token, outcome, true);
    };

    let slot = waiting(one, large);
    let part_slot = collecting(parts, KeysReply::asked_for(3), 3 * large);
    let fail_slot = collecting(failing, KeysReply::asked_for(2), large);
    waiting(leaving, 2 * large);
    collecting(leaving, KeysReply::asked_for(2), large);
    silenced.session.borrow_mut().replies.silent = true;
    let silent = waiting(silenced, large);
    let all = 9 * large;
    assert_eq!((budget.answers(), held(&budget)), ((all, all), 0));

    // An answer takes the place of what was expected, and counts as memory until it is written.
    take(one, (slot, 0), value(10));
    assert_eq!(budget.answers(), (all - large, all - large));
    take(parts, (part_slot, 0), value(large));
    assert_eq!(
        (budget.answers(), held(&budget)),
        ((8 * large, 7 * large), large)
    );
    take(parts, (part_slot, 1), fail());
    take(parts, (part_slot, 2), value(large));
    parts.session.borrow_mut().encode_ready();
    assert_eq!(
        (budget.answers(), held(&budget)),
        ((5 * large, 5 * large), 0)
    );

    // A command that has failed still waits for the other outcomes of what it asked.
    take(failing, (fail_slot, 0), fail());
    assert_eq!(budget.answers().1, 5 * large - large / 2);
    take(failing, (fail_slot, 1), value(100));
    assert_eq!(budget.answers(), (4 * large, 4 * large));

    // A reply that no client wants, and a client that leaves.
    take(silenced, (silent, 0), value(10));
    silenced.session.borrow_mut().encode_ready();
    assert_eq!(budget.answers(), (3 * large, 3 * large));
    leaving.session.borrow_mut().replies.discharge();
    assert_eq!((budget.answers(), held(&budget)), ((0, 0), 0));
    waiting(leaving, large);
    drop(connections);
    assert_eq!((budget.answers(), held(&budget)), ((0, 0), 0));
}
