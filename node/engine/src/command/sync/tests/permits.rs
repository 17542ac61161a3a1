//! Locks and semaphores.

use super::*;

#[test]
fn callers_that_have_to_agree_are_told_the_number_of_the_others() {
    let mut key = Key::new();
    let ask = |key: &mut Key, owner, permits, wait| {
        let permits = Permits::new(permits).unwrap();
        read_acquired(&key.run(&acquire_same(of(owner), permits, 1_000, wait))).unwrap()
    };
    let (token, _) = granted(ask(&mut key, 1, 2, 0));
    let otherwise = Acquired::Otherwise { permits: 2 };
    let before = key.entry.clone();
    for (permits, wait) in [(1, 0), (3, 0), (5, 500)] {
        assert_eq!(ask(&mut key, 2, permits, wait), otherwise);
    }
    assert_eq!(key.entry, before, "nothing has changed");
    granted(ask(&mut key, 2, 2, 0));
    assert_eq!(ask(&mut key, 3, 2, 500), queued(0, 250));
    assert_eq!(ask(&mut key, 4, 3, 0), otherwise);
    // A holder that asks again, renews and releases as others do.
    assert_eq!(granted(ask(&mut key, 1, 2, 0)).0, token);
    assert!(key.renew(1, token, 1_000).is_some() && key.release(1, token));
    assert_eq!(ask(&mut key, 4, 3, 0), otherwise);
    // Once none of them holds or waits, the number is free.
    key.clock += 2_000;
    granted(ask(&mut key, 4, 3, 0));
    // Callers that need not agree are judged as ever.
    assert!(matches!(key.acquire(5, 1, 1_000, 0), Acquired::Busy { .. }));
    granted(key.acquire(5, 2, 1_000, 0));
    assert_eq!(ask(&mut key, 6, 2, 0), Acquired::Otherwise { permits: 3 });
    let state = super::super::permits::PermitState::of(key.entry.as_ref()).unwrap();
    assert_eq!((state.permits, state.holders.len()), (Some(3), 2));
}

#[test]
fn a_lock_is_granted_to_one_owner_and_the_next_one_gets_a_higher_token() {
    let mut key = Key::new();
    let (token, remaining) = granted(key.acquire(1, 1, 1_000, 0));
    assert_eq!(remaining, 1_000);
    let busy = Acquired::Busy {
        place: 0,
        ask_within_ms: 1_000,
    };
    assert_eq!(key.acquire(2, 1, 1_000, 0), busy);
    assert_eq!(key.look().waiters, 0, "it did not want to wait");
    assert!(!key.release(2, token) && !key.release(1, token + 1));
    assert!(key.release(1, token));
    assert!(!key.release(1, token));
    assert!(key.entry.is_none(), "nothing is kept of a released lock");
    let (next, _) = granted(key.acquire(2, 1, 1_000, 0));
    assert!(next > token);
}

#[test]
fn a_holder_that_asks_again_keeps_its_token_and_its_time_never_gets_shorter() {
    let mut key = Key::new();
    let (token, _) = granted(key.acquire(1, 1, 1_000, 0));
    key.clock += 400;
    assert_eq!(granted(key.acquire(1, 1, 1_000, 500)), (token, 1_000));
    assert_eq!(granted(key.acquire(1, 1, 100, 0)), (token, 1_000));
    assert_eq!(key.renew(1, token, 100), Some(1_000));
    assert_eq!(key.renew(1, token, 3_000), Some(3_000));
    assert_eq!(key.renew(1, token + 1, 3_000), None);
    assert_eq!(key.renew(2, token, 3_000), None);
    let looked = Looked {
        holders: 1,
        waiters: 0,
        token: Some(token),
    };
    assert_eq!(key.look(), looked);
}

#[test]
fn a_holder_whose_time_is_over_has_lost_the_lock() {
    let mut key = Key::new();
    let (token, _) = granted(key.acquire(1, 1, 1_000, 0));
    assert_eq!(key.acquire(2, 1, 1_000, 10_000), queued(0, 1_000));
    key.clock += 999;
    assert_eq!(key.renew(1, token, 10), Some(10));
    key.clock += 10;
    assert_eq!(key.renew(1, token, 1_000), None);
    assert!(!key.release(1, token));
    // It stands in line behind the one that waits.
    assert_eq!(key.acquire(1, 1, 1_000, 1_000), queued(1, 500));
    assert!(granted(key.acquire(2, 1, 1_000, 0)).0 > token);
}

/// A later primary whose clock is behind does not bring back what was told to be over.
#[test]
fn what_a_call_found_to_be_over_stays_over_if_the_clock_goes_back() {
    let mut key = Key::new();
    let (token, _) = granted(key.acquire(1, 1, 1_000, 0));
    key.acquire(2, 1, 1_000, 10_000);
    key.clock += 1_000;
    assert_eq!(key.renew(1, token, 1_000), None);
    key.clock -= 500;
    assert_eq!(key.renew(1, token, 1_000), None);
    assert_eq!(key.look().holders, 0);
}

#[test]
fn a_lock_that_is_free_waits_for_the_first_live_waiter() {
    let mut key = Key::new();
    let (token, _) = granted(key.acquire(1, 1, 1_000, 0));
    assert_eq!(key.acquire(2, 1, 1_000, 600), queued(0, 300));
    key.clock += 100;
    assert_eq!(key.acquire(3, 1, 1_000, 10_000), queued(1, 900));
    assert!(key.release(1, token));
    // Owner 2 is expected until 600.
    assert_eq!(key.acquire(3, 1, 1_000, 10_000), queued(1, 500));
    assert_eq!(
        key.acquire(4, 1, 1_000, 0),
        Acquired::Busy {
            place: 2,
            ask_within_ms: 10_000
        }
    );
    key.clock += 499;
    assert_eq!(key.acquire(3, 1, 1_000, 10_000), queued(1, 1));
    key.clock += 1;
    assert!(granted(key.acquire(3, 1, 1_000, 10_000)).0 > token);
    assert_eq!(key.look().waiters, 0, "owner 2 has lost its place");
}

#[test]
fn a_waiter_that_asks_keeps_its_place_and_one_that_gives_up_leaves_it() {
    let mut key = Key::new();
    let (token, _) = granted(key.acquire(1, 1, 60_000, 0));
    assert_eq!(key.acquire(2, 1, 1_000, 500), queued(0, 250));
    assert_eq!(key.acquire(3, 1, 1_000, 500), queued(1, 250));
    key.clock += 400;
    assert_eq!(key.acquire(2, 1, 1_000, 500), queued(0, 250));
    key.clock += 400;
    assert_eq!(key.acquire(2, 1, 1_000, 500), queued(0, 250));
    assert_eq!(key.acquire(3, 1, 1_000, 500), queued(1, 250), "a new place");
    assert!(key.cancel(2));
    assert!(!key.cancel(2));
    // To ask without a wait leaves its place as it is.
    key.clock += 499;
    let busy = key.acquire(3, 1, 1_000, 0);
    assert!(matches!(busy, Acquired::Busy { place: 0, .. }));
    assert_eq!(key.look().waiters, 1);
    key.clock += 1;
    assert_eq!(key.look().waiters, 0);
    assert!(key.release(1, token));
}

#[test]
fn no_more_than_so_many_wait() {
    let mut key = Key::new();
    let owner = |n: usize| Owner((n as u128).to_be_bytes());
    let ask = |key: &mut Key, n: usize| {
        read_acquired(&key.run(&acquire(owner(n), Permits::ONE, 5_000, 60_000))).unwrap()
    };
    granted(ask(&mut key, 0));
    for n in 1..=WAITERS_MAX {
        assert_eq!(
            ask(&mut key, n),
            queued(n - 1, if n == 1 { 5_000 } else { 30_000 })
        );
    }
    let full = Acquired::QueueFull {
        ask_within_ms: 60_000,
    };
    assert_eq!(ask(&mut key, WAITERS_MAX + 1), full);
    assert_eq!(ask(&mut key, 5), queued(4, 30_000), "it has its place");
    assert_eq!(key.look().waiters, WAITERS_MAX);
    assert!(key.entry.as_ref().unwrap().value().len() < 24 << 10);
    assert!(read_done(&key.run(&cancel(owner(1)))).unwrap());
    assert_eq!(
        ask(&mut key, WAITERS_MAX + 1),
        queued(WAITERS_MAX - 1, 30_000)
    );
}

#[test]
fn a_semaphore_has_as_many_holders_as_permits() {
    let mut key = Key::new();
    let tokens: Vec<u64> = (1..=3)
        .map(|owner| granted(key.acquire(owner, 3, u64::from(owner) * 1_000, 0)).0)
        .collect();
    assert!(tokens.is_sorted() && tokens[0] < tokens[1] && tokens[1] < tokens[2]);
    assert_eq!(key.acquire(4, 3, 1_000, 60_000), queued(0, 1_000));
    assert_eq!(key.acquire(5, 3, 1_000, 60_000), queued(1, 2_000));
    // The third in line waits for three that end.
    assert_eq!(key.acquire(6, 3, 1_000, 60_000), queued(2, 3_000));
    assert!(key.release(1, tokens[0]) && key.release(2, tokens[1]));
    // Two permits are free, for the first two in line.
    assert_eq!(key.acquire(6, 3, 1_000, 60_000), queued(2, 3_000));
    granted(key.acquire(5, 3, 1_000, 60_000));
    assert_eq!(key.acquire(6, 3, 1_000, 60_000), queued(1, 1_000));
    granted(key.acquire(4, 3, 1_000, 60_000));
    assert_eq!(key.look().holders, 3);
}

#[test]
fn calls_that_disagree_about_the_permits_take_nothing_away() {
    let mut key = Key::new();
    for owner in 1..=3 {
        granted(key.acquire(owner, 3, 1_000 * u64::from(owner), 0));
    }
    // With two permits, it waits until one holder is left.
    assert_eq!(key.acquire(4, 2, 1_000, 60_000), queued(0, 2_000));
    assert_eq!(key.look().holders, 3);
    granted(key.acquire(5, 5, 1_000, 0));
    assert_eq!(key.look().holders, 4);
}

#[test]
fn tokens_grow_after_the_key_is_gone_however_that_came() {
    let mut key = Key::new();
    let (first, _) = granted(key.acquire(1, 1, 1_000, 0));
    key.vanish();
    let (second, _) = granted(key.acquire(1, 1, 1_000, 0));
    key.clock += 1_000;
    let (third, _) = granted(key.acquire(1, 1, 1_000, 0));
    assert!(first < second && second < third);
    // A partition whose writes count from less, which does not happen.
    key.writes = 0;
    assert_eq!(granted(key.acquire(2, 2, 1_000, 0)).0, third + 1);
}

#[test]
fn a_client_that_moves_the_deadline_of_the_key_moves_all_that_it_holds() {
    let mut key = Key::new();
    let (token, _) = granted(key.acquire(1, 1, 1_000, 0));
    key.acquire(2, 1, 1_000, 3_000);
    // The waiter was the last one.
    key.date(key.context().after(5_000));
    assert_eq!(key.renew(1, token, 1), Some(3_000));
}

/// Something that happens to a key.
#[derive(Debug, Clone)]
enum Event {
    Acquire {
        owner: u8,
        ttl: u64,
        wait: u64,
    },
    Renew {
        owner: u8,
        ttl: u64,
        stale: bool,
    },
    Release {
        owner: u8,
        stale: bool,
    },
    Cancel {
        owner: u8,
    },
    Look,
    Pass(u64),
    /// A primary goes on whose clock is behind.
    Behind(u64),
    Merge(u64),
    Vanish,
}

fn events() -> impl Strategy<Value = Event> {
    let owner = 0_u8..6;
    let ttl = prop_oneof![Just(0_u64), 1..50_u64, 1..1_000_u64];
    let wait = prop_oneof![Just(0_u64), 1..50_u64, 1..1_000_u64];
    prop_oneof![
        12 => (owner.clone(), ttl.clone(), wait)
            .prop_map(|(owner, ttl, wait)| Event::Acquire { owner, ttl, wait }),
        3 => (owner.clone(), ttl, prop::bool::weighted(0.1))
            .prop_map(|(owner, ttl, stale)| Event::Renew { owner, ttl, stale }),
        5 => (owner.clone(), prop::bool::weighted(0.1))
            .prop_map(|(owner, stale)| Event::Release { owner, stale }),
        1 => owner.prop_map(|owner| Event::Cancel { owner }),
        1 => Just(Event::Look),
        8 => (1_u64..100).prop_map(Event::Pass),
        1 => (1_u64..50).prop_map(Event::Behind),
        1 => (1_u64..5_000).prop_map(Event::Merge),
        1 => Just(Event::Vanish),
    ]
}

/// The rules in their simplest form. Times are moments of the partition's clock.
#[derive(Debug, Default)]
struct Model {
    permits: usize,
    /// Owner, token, end.
    holders: Vec<(u8, u64, u64)>,
    /// Owner, end.
    line: Vec<(u8, u64)>,
    /// The highest token since the key was last absent, and of all.
    token: u64,
    highest: u64,
}

impl Model {
    fn purge(&mut self, now: u64) {
        self.holders.retain(|(.., end)| *end > now);
        self.line.retain(|(_, end)| *end > now);
        self.forget_if_empty();
    }

    fn forget_if_empty(&mut self) {
        if self.holders.is_empty() && self.line.is_empty() {
            self.token = 0;
        }
    }

    /// The first moment at which an owner with `ahead` waiters before it could get a permit, if the
    /// others do nothing.
    fn turn(&self, ahead: usize, now: u64) -> u64 {
        let could = |at: u64| {
            let live = self.holders.iter().filter(|(.., end)| *end > at).count();
            let before = self.line[..ahead]
                .iter()
                .filter(|(_, end)| *end > at)
                .count();
            live + before < self.permits
        };
        (now..).find(|at| could(*at)).unwrap()
    }

    /// Judges the answer to an owner that asks.
    fn acquire(
        &mut self,
        (owner, ttl, wait): (u8, u64, u64),
        now: u64,
        answer: Acquired,
    ) -> Result<(), TestCaseError> {
        let ttl = ttl.max(1);
        if let Some((_, token, end)) = self.holders.iter_mut().find(|(of, ..)| *of == owner) {
            *end = (*end).max(now + ttl);
            prop_assert_eq!(granted(answer), (*token, *end - now));
            return Ok(());
        }
        let place = self.line.iter().position(|(of, _)| *of == owner);
        let ahead = place.unwrap_or(self.line.len());
        if self.holders.len() + ahead < self.permits {
            let (token, remaining) = granted(answer);
            prop_assert_eq!(remaining, ttl);
            prop_assert!(token > self.highest, "tokens grow");
            (self.token, self.highest) = (token, token);
            self.line.retain(|(of, _)| *of != owner);
            self.holders.push((owner, token, now + ttl));
            prop_assert!(self.holders.len() <= self.permits);
            return Ok(());
        }
        let turn = self.turn(ahead, now) - now;
        if wait == 0 {
            let busy = Acquired::Busy {
                place: ahead,
                ask_within_ms: turn,
            };
            prop_assert_eq!(answer, busy);
            return Ok(());
        }
        prop_assert_eq!(answer, queued(ahead, turn.min(wait / 2).max(1)));
        match place {
            Some(at) => self.line[at].1 = now + wait,
            None => self.line.push((owner, now + wait)),
        }
        Ok(())
    }
}

/// Does this to the key and to the model, and compares them.
fn happen(key: &mut Key, model: &mut Model, event: &Event) -> Result<(), TestCaseError> {
    let now = key.clock;
    if !matches!(
        event,
        Event::Pass(_) | Event::Behind(_) | Event::Merge(_) | Event::Look
    ) {
        model.purge(now);
    }
    let held = |model: &Model, owner: u8, stale: bool| {
        let token = model.holders.iter().find(|(of, ..)| *of == owner);
        let token = token.map_or(model.highest, |(_, token, _)| *token);
        token.saturating_sub(u64::from(stale))
    };
    match *event {
        Event::Acquire { owner, ttl, wait } => {
            let answer = key.acquire(owner, model.permits as u16, ttl, wait);
            model.acquire((owner, ttl, wait), now, answer)?;
        }
        Event::Renew { owner, ttl, stale } => {
            let token = held(model, owner, stale);
            let answer = key.renew(owner, token, ttl);
            let mut holders = model.holders.iter_mut();
            let holder = holders.find(|(of, its, _)| (*of, *its) == (owner, token));
            let expected = holder.map(|(.., end)| {
                *end = (*end).max(now + ttl.max(1));
                *end - now
            });
            prop_assert_eq!(answer, expected);
        }
        Event::Release { owner, stale } => {
            let token = held(model, owner, stale);
            let before = model.holders.len();
            model
                .holders
                .retain(|(of, its, _)| (*of, *its) != (owner, token));
            prop_assert_eq!(key.release(owner, token), model.holders.len() < before);
        }
        Event::Cancel { owner } => {
            let before = model.line.len() + model.holders.len();
            model.line.retain(|(of, _)| *of != owner);
            model.holders.retain(|(of, ..)| *of != owner);
            let after = model.line.len() + model.holders.len();
            prop_assert_eq!(key.cancel(owner), after < before);
        }
        Event::Look => {
            let holders = model.holders.iter().filter(|(.., end)| *end > now).count();
            let waiters = model.line.iter().filter(|(_, end)| *end > now).count();
            if holders + waiters == 0 {
                // The entry has expired.
                model.purge(now);
            }
            let token = Some(model.token).filter(|token| *token > 0);
            let looked = Looked {
                holders,
                waiters,
                token,
            };
            prop_assert_eq!(key.look(), looked);
        }
        Event::Pass(ms) => key.clock += ms,
        Event::Behind(ms) => key.clock -= ms,
        Event::Merge(ms) => {
            key.merge(ms);
            model.holders.iter_mut().for_each(|(.., end)| *end += ms);
            model.line.iter_mut().for_each(|(_, end)| *end += ms);
        }
        Event::Vanish => {
            key.vanish();
            (model.holders, model.line) = (Vec::new(), Vec::new());
        }
    }
    model.forget_if_empty();
    // Nothing is kept longer than it has an effect.
    let last = model.holders.iter().map(|(.., end)| *end);
    let last = last.chain(model.line.iter().map(|(_, end)| *end)).max();
    let ends = key.entry.as_ref().map(|e| deadline::clock(e.deadline()));
    prop_assert_eq!(ends, last);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// There are never more holders than permits, tokens grow, and those that wait are served in
    /// their order.
    #[test]
    fn any_course_of_events_is_that_of_the_model(
        permits in 1_usize..4,
        course in prop::collection::vec(events(), 1..120),
    ) {
        let (mut key, mut model) = (Key::new(), Model { permits, ..Model::default() });
        for event in &course {
            happen(&mut key, &mut model, event)?;
        }
    }

    /// No wake-up is lost: an owner that asks as often as answers say gets its permit when its turn
    /// has come at the latest, and asks only a few times.
    #[test]
    fn a_live_waiter_is_granted_at_last(
        permits in 1_usize..4,
        course in prop::collection::vec(events(), 1..60),
        wait in 2_u64..1_000,
        others_ask in any::<bool>(),
    ) {
        let (mut key, mut model) = (Key::new(), Model { permits, ..Model::default() });
        for event in &course {
            happen(&mut key, &mut model, event)?;
        }
        let owner = 9;
        let ask = Event::Acquire { owner, ttl: 1_000, wait };
        // Others that wait may go on asking; then each is granted before, and lets its time pass.
        let others: Vec<u8> = model.line.iter().map(|(of, _)| *of).collect();
        let mut asked = 0;
        while !model.holders.iter().any(|(of, ..)| *of == owner) {
            prop_assert!(asked < 5_000, "{:?}", model);
            happen(&mut key, &mut model, &ask)?;
            asked += 1;
            let Acquired::Queued { ask_within_ms, .. } =
                key.clone().acquire(owner, permits as u16, 1_000, wait)
            else {
                continue;
            };
            if others_ask && asked < 20 {
                for other in &others {
                    let ask = Event::Acquire { owner: *other, ttl: 30, wait: 40 };
                    happen(&mut key, &mut model, &ask)?;
                }
            }
            happen(&mut key, &mut model, &Event::Pass(ask_within_ms))?;
        }
    }
}
