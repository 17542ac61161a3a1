//! Each rule alone, on one key; then properties against simple models.

mod permits;
mod rates;

use super::layout::StateKind;
use super::*;
use crate::command::action::apply;
use crate::store::change::KeyChange;
use crate::store::run_context::RunContext;
use crate::value::deadline;
use crate::value::entry::Entry;
use crate::value::outcome::Value;
use bytes::Bytes;
use proptest::prelude::*;

/// A key at its primary.
#[derive(Debug, Clone)]
struct Key {
    entry: Option<Entry>,
    clock: u64,
    /// Writes of its partition so far.
    writes: u64,
}

impl Key {
    fn new() -> Self {
        Self {
            entry: None,
            clock: 100_000,
            writes: 0,
        }
    }

    fn context(&self) -> RunContext<'static> {
        RunContext {
            next_write: (1 << 44) + self.writes + 1,
            ..RunContext::at(self.clock, 1_700_000_000_000 + self.clock)
        }
    }

    /// Executes an action, as a primary does.
    fn run(&mut self, action: &Action) -> Outcome {
        if self.entry.as_ref().is_some_and(|e| e.overdue(self.clock)) {
            self.vanish();
        }
        let (outcome, change) = apply(action, self.entry.as_ref(), &self.context());
        if !action.is_write() {
            assert_eq!(change, KeyChange::None, "{action:?}");
        }
        match change {
            KeyChange::None => return outcome,
            KeyChange::Put { value, deadline } => {
                self.entry = Some(Entry::new(b"k", &value, deadline, 0));
            }
            KeyChange::Delete => self.entry = None,
            other => panic!("{other:?}"),
        }
        self.writes += 1;
        outcome
    }

    /// The key is deleted.
    fn vanish(&mut self) {
        self.entry = None;
        self.writes += 1;
    }

    /// The key has this deadline.
    fn date(&mut self, deadline: u64) {
        self.entry = self
            .entry
            .take()
            .map(|entry| Entry::new(b"k", entry.value(), deadline, 0));
    }

    /// A merge makes the clock go on from this much later.
    fn merge(&mut self, ahead_ms: u64) {
        self.clock += ahead_ms;
        if let Some(entry) = &self.entry {
            self.date(deadline::moved(entry.deadline(), ahead_ms));
        }
    }

    fn acquire(&mut self, owner: u8, permits: u16, ttl: u64, wait: u64) -> Acquired {
        let permits = Permits::new(permits).unwrap();
        read_acquired(&self.run(&acquire(of(owner), permits, ttl, wait))).unwrap()
    }

    fn renew(&mut self, owner: u8, token: u64, ttl: u64) -> Option<u64> {
        read_renewed(&self.run(&renew(of(owner), token, ttl))).unwrap()
    }

    fn release(&mut self, owner: u8, token: u64) -> bool {
        read_done(&self.run(&release(of(owner), token))).unwrap()
    }

    fn cancel(&mut self, owner: u8) -> bool {
        read_done(&self.run(&cancel(of(owner)))).unwrap()
    }

    fn look(&mut self) -> Looked {
        read_looked(&self.run(&look())).unwrap()
    }

    fn decide(&mut self, action: &Action) -> PermitDecision {
        read_decision(&self.run(action)).unwrap()
    }
}

fn of(owner: u8) -> Owner {
    Owner([owner; 16])
}

/// The token of a grant, and for how long it is.
fn granted(acquired: Acquired) -> (u64, u64) {
    match acquired {
        Acquired::Granted {
            token,
            remaining_ms,
        } => (token, remaining_ms),
        other => panic!("{other:?}"),
    }
}

fn queued(place: usize, ask_within_ms: u64) -> Acquired {
    Acquired::Queued {
        place,
        ask_within_ms,
    }
}

#[test]
fn an_owner_is_the_same_as_inputs_of_a_call() {
    for byte in [0, 1, 0x7f, 0x80, 0xff] {
        assert_eq!(Owner::of_numbers(of(byte).numbers()), of(byte));
    }
    let owner = Owner(std::array::from_fn(|at| at as u8 * 17));
    assert_eq!(Owner::of_numbers(owner.numbers()), owner);
    assert_eq!(Permits::new(0), None);
    assert_eq!(Permits::new(PERMITS_MAX + 1), None);
    assert_eq!(Permits::new(1), Some(Permits::ONE));
}

#[test]
fn outcomes_of_other_operations_are_refused() {
    let failed = Outcome::Failed(Failure::Unknown);
    let unknown = UnansweredReason::Failed(Failure::Unknown);
    assert_eq!(read_acquired(&failed), Err(unknown));
    assert_eq!(read_renewed(&failed), Err(unknown));
    assert_eq!(read_done(&failed), Err(unknown));
    assert_eq!(read_looked(&failed), Err(unknown));
    assert_eq!(read_decision(&failed), Err(unknown));
    for outcome in [
        Outcome::Ok,
        Outcome::Int(-1),
        Outcome::Many(Vec::new()),
        many(&[4, 0, 0]),
        many(&[0, -1, 0]),
        Outcome::Many(vec![Outcome::Nil; 3]),
    ] {
        assert_eq!(read_acquired(&outcome), Err(UnansweredReason::Foreign));
        assert_eq!(read_renewed(&outcome), Err(UnansweredReason::Foreign));
        assert_eq!(read_done(&outcome), Err(UnansweredReason::Foreign));
        assert_eq!(read_decision(&outcome), Err(UnansweredReason::Foreign));
    }
}

fn all_actions() -> Vec<Action> {
    vec![
        acquire(of(1), Permits::ONE, 1_000, 1_000),
        renew(of(1), 1, 1_000),
        release(of(1), 1),
        cancel(of(1)),
        look(),
        TokenBucket::new(10, 1, 1_000).unwrap().take(1),
        SlidingWindow::new(10, 1_000).unwrap().count(1),
    ]
}

#[test]
fn a_value_of_another_kind_is_refused_and_stays() {
    let foreign = |value: &[u8], deadline| {
        for action in all_actions() {
            let mut key = Key::new();
            key.entry = Some(Entry::new(b"k", value, deadline, 0));
            let refused = Outcome::Failed(Failure::WrongType);
            assert_eq!(key.run(&action), refused, "{action:?} on {value:?}");
            assert_eq!(key.writes, 0);
        }
    };
    let later = Key::new().context().after(1_000);
    foreign(b"", later);
    foreign(b"text", later);
    foreign(&[0xD0], later);
    for kind in [StateKind::Permits, StateKind::Bucket, StateKind::Window] {
        foreign(&kind.head(), later);
    }
    // Of a later version.
    foreign(&[0xD0, 0x01, 1, 2], later);
    // Each kind is foreign to the others, and all are without their deadline.
    let written = |action: &Action| {
        let mut key = Key::new();
        key.run(action);
        key.entry.unwrap().value().to_vec()
    };
    let actions = all_actions();
    for kind in [0, 5, 6] {
        let value = written(&actions[kind]);
        foreign(&value, 0);
        for action in &actions {
            let mut key = Key::new();
            key.entry = Some(Entry::new(b"k", &value, later, 0));
            let own = match kind {
                0 => !matches!(&action, a if **a == actions[5] || **a == actions[6]),
                kind => *action == actions[kind],
            };
            let refused = key.run(action) == Outcome::Failed(Failure::WrongType);
            assert_eq!(refused, !own, "{action:?} on kind {kind}");
        }
    }
}

#[test]
fn inputs_that_no_caller_of_this_version_gives_are_refused() {
    let refused = Outcome::Failed(Failure::NotAnInteger);
    let cases: [(&'static Procedure, &[i64]); 11] = [
        (&super::permits::ACQUIRE, &[0, 0, 0, 1, 1]),
        (&super::permits::ACQUIRE, &[0, 0, 1_025, 1, 1]),
        (&super::permits::ACQUIRE, &[0, 0, 1, -1, 1]),
        (&super::permits::ACQUIRE, &[0, 0, 1, 1, i64::MAX]),
        (&super::permits::RENEW, &[0, 0, -1, 1]),
        (&super::permits::RENEW, &[0, 0, 1, i64::MIN]),
        (&super::permits::RELEASE, &[0, 0, -1]),
        (&bucket::TAKE, &[0, 1, 1, 1]),
        (&bucket::TAKE, &[1, 1, 1, -1]),
        (&window::COUNT, &[1, 0, 1]),
        (&window::COUNT, &[1, i64::MAX, 1]),
    ];
    for (procedure, numbers) in cases {
        let mut key = Key::new();
        let outcome = key.run(&Action::call(procedure, numbers, Vec::new()));
        assert_eq!(outcome, refused, "{procedure:?} {numbers:?}");
        assert_eq!(key.writes, 0);
    }
}

/// A state that was written, with some of its bytes changed, cut off or added.
fn like_states() -> impl Strategy<Value = Vec<u8>> {
    let head = (any::<bool>(), 1_u8..=3).prop_map(|(whole, kind)| match whole {
        true => vec![0xD0, 0x01, kind, 1],
        false => Vec::new(),
    });
    let random = (head, prop::collection::vec(any::<u8>(), 0..120))
        .prop_map(|(head, rest)| [head, rest].concat());
    let owners = prop::collection::vec(1_u8..6, 1..8);
    let changed = (
        owners,
        0_usize..7,
        prop::collection::vec((any::<u8>(), any::<u8>()), 0..4),
        0_usize..40,
    );
    let changed = changed.prop_map(|(owners, action, changes, cut)| {
        let mut key = Key::new();
        match action {
            0..=4 => owners.iter().for_each(|owner| {
                key.acquire(*owner, 2, 1_000, 500);
            }),
            other => {
                key.run(&all_actions()[other]);
            }
        }
        let mut value = key.entry.unwrap().value().to_vec();
        for (at, byte) in changes {
            let at = usize::from(at) % value.len();
            value[at] = byte;
        }
        if cut < 10 {
            value.truncate(value.len() - cut.min(value.len()));
        }
        value
    });
    prop_oneof![random, changed]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Nothing panics, and what is decoded is encoded to the same bytes.
    #[test]
    fn any_bytes_are_a_state_or_refused(value in like_states(), left in 0_u64..5_000) {
        let base = 100_000 + left;
        if let Some(state) = super::permits::PermitState::decode(&value, base) {
            prop_assert_eq!(&state.encode(base), &value);
        }
        if let Some(state) = bucket::BucketState::decode(&value, base) {
            prop_assert_eq!(&state.encode(), &value);
        }
        if let Some(state) = window::WindowState::decode(&value, base) {
            prop_assert_eq!(&state.encode(), &value);
        }
        for action in all_actions() {
            // The clock may be at its beginning, and the deadline anywhere.
            let moments = [(100_000, base), (1, base), (1, 1 << 48), (u64::MAX >> 17, 2)];
            for (clock, deadline) in moments {
                let mut key = Key::new();
                key.clock = clock;
                key.entry = Some(Entry::new(b"k", &value, deadline::new(deadline, 0), 0));
                let outcome = key.run(&action);
                let known = matches!(
                    outcome,
                    Outcome::Many(_)
                        | Outcome::Int(_)
                        | Outcome::Nil
                        | Outcome::Failed(Failure::WrongType)
                );
                prop_assert!(known, "{:?}: {:?}", action, outcome);
            }
        }
    }
}

#[test]
fn a_state_is_a_string_that_no_text_is_mistaken_for() {
    let mut key = Key::new();
    key.acquire(1, 1, 1_000, 0);
    let value = key.entry.as_ref().unwrap().value().to_vec();
    assert!(std::str::from_utf8(&value).is_err());
    assert_eq!(
        key.run(&Action::Get),
        Outcome::Bulk(Value::from(&value[..]))
    );
    let tiny = RunContext {
        value_bytes_max: value.len() - 1,
        ..key.context()
    };
    let action = acquire(of(1), Permits::ONE, 1_000, 0);
    let (outcome, change) = apply(&action, None::<&Entry>, &tiny);
    assert_eq!(outcome, Outcome::Failed(Failure::TooLarge));
    assert_eq!(change, KeyChange::None);
    key.entry = Some(Entry::new(b"k", &Bytes::from(value), 0, 0));
    assert_eq!(key.run(&look()), Outcome::Failed(Failure::WrongType));
}

/// Decoded with a deadline before the beginning of the clock, it came back as another value.
#[test]
fn a_deadline_before_the_clock_began_is_no_state() {
    let mut key = Key::new();
    key.acquire(1, 2, 1_000, 0);
    key.clock += 500;
    key.acquire(2, 2, 1_000, 0);
    let value = key.entry.unwrap().value().to_vec();
    let decode = super::permits::PermitState::decode;
    assert!(decode(&value, 500).is_some());
    assert_eq!(decode(&value, 499), None);
}
