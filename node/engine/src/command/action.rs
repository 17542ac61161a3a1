//! The effect of an action on a key: a pure function of the action, the entry and the clocks.

use crate::command::operation::{Action, Condition, ExpireCondition, Expiry};
use crate::store::FoundKey;
use crate::store::change::KeyChange;
use crate::store::collection;
use crate::store::run_context::{RunContext, fresh, kept, version};
use crate::value::deadline;
use crate::value::entry::Entry;
use crate::value::extended::Extended;
use crate::value::integer::integer;
use crate::value::outcome::{Failure, Outcome, Value};
use bytes::Bytes;

/// Applies `action` to what its key holds: nothing, if that is overdue.
pub(crate) fn apply<'a>(
    action: &Action,
    found: impl Into<FoundKey<'a>>,
    cx: &RunContext,
) -> (Outcome, KeyChange) {
    let found = found.into();
    let entry = found.entry;
    if let Some(entry) = entry
        && action.kind().is_some_and(|kind| kind != entry.kind())
    {
        return failed(Failure::WrongType);
    }
    match action {
        Action::Get | Action::Peek => (bulk(entry), KeyChange::None),
        Action::Strlen | Action::PeekLength => (
            Outcome::Int(entry.map_or(0, |e| bytes(e.value().len()))),
            KeyChange::None,
        ),
        Action::Exists => (Outcome::Int(i64::from(entry.is_some())), KeyChange::None),
        Action::PTtl => (
            time(entry, |deadline| {
                signed(deadline::clock(deadline).saturating_sub(cx.clock))
            }),
            KeyChange::None,
        ),
        Action::PExpireTime => (
            time(entry, |deadline| signed(cx.unix_ms_of(deadline))),
            KeyChange::None,
        ),
        Action::Set {
            value,
            condition,
            expiry,
            get,
        } => set(entry, value, *condition, *expiry, *get, cx),
        Action::CompareAndSwap { expected, value } => {
            if entry.map(Entry::value) != expected.as_deref() {
                return (Outcome::Int(0), KeyChange::None);
            }
            if value.len() > cx.value_bytes_max {
                return failed(Failure::TooLarge);
            }
            (
                Outcome::Int(1),
                KeyChange::put(value.clone(), kept(entry, cx)),
            )
        }
        Action::GetEx { expiry } => match entry {
            None => (Outcome::Nil, KeyChange::None),
            Some(e) => (bulk(entry), redated(e, deadline(*expiry, cx))),
        },
        Action::GetDel => (
            bulk(entry),
            if entry.is_some() {
                KeyChange::Delete
            } else {
                KeyChange::None
            },
        ),
        Action::Append { value } => append(entry, value, cx),
        Action::IncrBy(by) => add(entry, *by, cx),
        Action::IncrByFloat(by) => add_float(entry, *by, cx),
        Action::Delete => (
            Outcome::Int(i64::from(entry.is_some())),
            if entry.is_some() {
                KeyChange::Delete
            } else {
                KeyChange::None
            },
        ),
        Action::Expire { expiry, condition } => expire(entry, *expiry, *condition, cx),
        Action::Persist => match entry {
            Some(e) if e.deadline() != 0 => (Outcome::Int(1), KeyChange::Deadline(0)),
            _ => (Outcome::Int(0), KeyChange::None),
        },
        Action::Touch => (Outcome::Int(i64::from(entry.is_some())), KeyChange::None),
        Action::Encoding => (
            entry.map_or(Outcome::Nil, |e| {
                Outcome::Int(collection::encoding(e, found).number)
            }),
            KeyChange::None,
        ),
        Action::Footprint => (
            entry.map_or(Outcome::Nil, |_| Outcome::Int(bytes(found.cost()))),
            KeyChange::None,
        ),
        Action::Call(call) => call.run(found, cx),
        Action::Version => (
            version(entry, cx).map_or(Outcome::Nil, Outcome::Int),
            KeyChange::None,
        ),
    }
}

pub(crate) const fn failed(failure: Failure) -> (Outcome, KeyChange) {
    (Outcome::Failed(failure), KeyChange::None)
}

fn bulk(entry: Option<&Entry>) -> Outcome {
    entry.map_or(Outcome::Nil, |e| Outcome::Bulk(Value::of(e)))
}

fn time(entry: Option<&Entry>, of: impl Fn(u64) -> i64) -> Outcome {
    Outcome::Int(match entry {
        None => -2,
        Some(e) if e.deadline() == 0 => -1,
        Some(e) => of(e.deadline()),
    })
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn bytes(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// A deadline as the client asked for it, on the partition's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deadline {
    Keep,
    Never,
    Past,
    At(u64),
}

fn deadline(expiry: Expiry, cx: &RunContext) -> Deadline {
    let left = match expiry {
        Expiry::Keep => return Deadline::Keep,
        Expiry::None => return Deadline::Never,
        Expiry::In(ms) => ms,
        Expiry::At(unix_ms) => unix_ms.saturating_sub(signed(cx.unix_ms)),
    };
    match u64::try_from(left) {
        Ok(left) if left > 0 => Deadline::At(cx.after(left)),
        _ => Deadline::Past,
    }
}

/// The deadline of a field at this time; 0: never. `None`: it is over.
pub(crate) fn field_deadline(expiry: Expiry, cx: &RunContext) -> Option<u64> {
    match deadline(expiry, cx) {
        Deadline::Keep | Deadline::Never => Some(0),
        Deadline::Past => None,
        Deadline::At(at) => Some(at),
    }
}

fn redated(entry: &Entry, to: Deadline) -> KeyChange {
    match to {
        Deadline::Keep => KeyChange::None,
        Deadline::Never if entry.deadline() == 0 => KeyChange::None,
        Deadline::Never => KeyChange::Deadline(0),
        Deadline::Past => KeyChange::Delete,
        Deadline::At(at) => KeyChange::Deadline(at),
    }
}

pub(crate) fn set(
    entry: Option<&Entry>,
    value: &Bytes,
    condition: Condition,
    expiry: Expiry,
    get: bool,
    cx: &RunContext,
) -> (Outcome, KeyChange) {
    if value.len() > cx.value_bytes_max {
        return failed(Failure::TooLarge);
    }
    let met = match condition {
        Condition::Always => true,
        Condition::IfAbsent => entry.is_none(),
        Condition::IfPresent => entry.is_some(),
    };
    let outcome = match (get, met) {
        (true, _) => bulk(entry),
        (false, true) => Outcome::Ok,
        (false, false) => Outcome::Nil,
    };
    if !met {
        return (outcome, KeyChange::None);
    }
    let at = match deadline(expiry, cx) {
        Deadline::Keep => kept(entry, cx),
        Deadline::Never => fresh(cx.default_ttl_ms, || cx.now()),
        Deadline::At(at) => at,
        // The key was written and expired at once.
        Deadline::Past => {
            return (
                outcome,
                if entry.is_some() {
                    KeyChange::Delete
                } else {
                    KeyChange::None
                },
            );
        }
    };
    (outcome, KeyChange::put(value.clone(), at))
}

fn append(entry: Option<&Entry>, value: &[u8], cx: &RunContext) -> (Outcome, KeyChange) {
    let old: &[u8] = entry.map_or(&[], Entry::value);
    if old.len().saturating_add(value.len()) > cx.value_bytes_max {
        return failed(Failure::TooLarge);
    }
    if value.is_empty() && entry.is_some() {
        return (Outcome::Int(bytes(old.len())), KeyChange::None);
    }
    cx.budget.copy(old.len());
    let new = [old, value].concat();
    (
        Outcome::Int(bytes(new.len())),
        KeyChange::put(Bytes::from(new), kept(entry, cx)),
    )
}

fn add(entry: Option<&Entry>, by: i64, cx: &RunContext) -> (Outcome, KeyChange) {
    let Some(old) = entry.map_or(Some(0), |e| integer(e.value())) else {
        return failed(Failure::NotAnInteger);
    };
    let Some(new) = old.checked_add(by) else {
        return failed(Failure::Overflow);
    };
    let deadline = kept(entry, cx);
    let change = KeyChange::Number {
        number: new,
        deadline,
    };
    (Outcome::Int(new), change)
}

fn add_float(entry: Option<&Entry>, by: Extended, cx: &RunContext) -> (Outcome, KeyChange) {
    let Some(old) = entry.map_or(Some(Extended::ZERO), |e| Extended::parse(e.value())) else {
        return failed(Failure::NotAFloat);
    };
    let sum = old.plus(by);
    if !sum.is_finite() {
        return failed(Failure::Overflow);
    }
    let text = sum.text();
    if text.len() > cx.value_bytes_max {
        return failed(Failure::TooLarge);
    }
    (
        Outcome::Bulk(Value::from(text.as_bytes())),
        KeyChange::put(Bytes::from(text), kept(entry, cx)),
    )
}

fn expire(
    entry: Option<&Entry>,
    expiry: Expiry,
    condition: ExpireCondition,
    cx: &RunContext,
) -> (Outcome, KeyChange) {
    let Some(entry) = entry else {
        return (Outcome::Int(0), KeyChange::None);
    };
    let to = deadline(expiry, cx);
    // No deadline counts as the latest of all. Wall times are compared, because clients give and
    // read wall times.
    let (old, new) = (
        if entry.deadline() == 0 {
            u64::MAX
        } else {
            cx.unix_ms_of(entry.deadline())
        },
        match to {
            Deadline::Keep => return (Outcome::Int(0), KeyChange::None),
            Deadline::Never => u64::MAX,
            Deadline::Past => 0,
            Deadline::At(at) => cx.unix_ms_of(at),
        },
    );
    let met = match condition {
        ExpireCondition::Always => true,
        ExpireCondition::IfNone => entry.deadline() == 0,
        ExpireCondition::IfSome => entry.deadline() != 0,
        ExpireCondition::IfLater => new > old,
        ExpireCondition::IfEarlier => new < old,
        ExpireCondition::IfSomeEarlier => entry.deadline() != 0 && new < old,
    };
    if met {
        (Outcome::Int(1), redated(entry, to))
    } else {
        (Outcome::Int(0), KeyChange::None)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// In a map of small values.
    pub(in crate::command) fn context() -> RunContext<'static> {
        RunContext {
            value_bytes_max: 64,
            packed_bytes_max: 64,
            versions_from: 1 << 44,
            next_write: 1 << 44,
            ..RunContext::at(1_000, 50_000)
        }
    }

    /// The deadline at this moment of the partition's clock; 0: never.
    fn at(clock: u64) -> u64 {
        if clock == 0 {
            0
        } else {
            context().after(clock - context().clock)
        }
    }

    fn entry(value: &str, clock: u64) -> Entry {
        Entry::new(b"k", value.as_bytes(), at(clock), 1)
    }

    fn put(value: &str, clock: u64) -> KeyChange {
        KeyChange::put(Bytes::copy_from_slice(value.as_bytes()), at(clock))
    }

    fn text(value: &str) -> Outcome {
        Outcome::Bulk(Value::from(value.as_bytes()))
    }

    fn set_with(condition: Condition, expiry: Expiry, get: bool) -> Action {
        Action::Set {
            value: Bytes::from_static(b"new"),
            condition,
            expiry,
            get,
        }
    }

    #[test]
    fn reads_see_value_length_presence_and_deadline() {
        let e = entry("abc", 3_500);
        assert_eq!(
            apply(&Action::Get, Some(&e), &context()),
            (text("abc"), KeyChange::None)
        );
        assert_eq!(apply(&Action::Get, None, &context()).0, Outcome::Nil);
        assert_eq!(
            apply(&Action::Strlen, Some(&e), &context()).0,
            Outcome::Int(3)
        );
        assert_eq!(apply(&Action::Strlen, None, &context()).0, Outcome::Int(0));
        assert_eq!(
            apply(&Action::Exists, Some(&e), &context()).0,
            Outcome::Int(1)
        );
        assert_eq!(apply(&Action::Exists, None, &context()).0, Outcome::Int(0));
        assert_eq!(
            apply(&Action::PTtl, Some(&e), &context()).0,
            Outcome::Int(2_500)
        );
        assert_eq!(
            apply(&Action::PTtl, Some(&entry("a", 0)), &context()).0,
            Outcome::Int(-1)
        );
        assert_eq!(apply(&Action::PTtl, None, &context()).0, Outcome::Int(-2));
        assert_eq!(
            apply(&Action::PExpireTime, Some(&e), &context()).0,
            Outcome::Int(52_500)
        );
    }

    #[test]
    fn set_writes_under_its_condition_and_gives_the_old_value_when_asked() {
        let e = entry("old", 3_000);
        let cases = [
            (Condition::Always, None, false, Outcome::Ok, true),
            (Condition::Always, Some(&e), true, text("old"), true),
            (Condition::Always, None, true, Outcome::Nil, true),
            (Condition::IfAbsent, None, false, Outcome::Ok, true),
            (Condition::IfAbsent, Some(&e), false, Outcome::Nil, false),
            (Condition::IfAbsent, Some(&e), true, text("old"), false),
            (Condition::IfAbsent, None, true, Outcome::Nil, true),
            (Condition::IfPresent, Some(&e), false, Outcome::Ok, true),
            (Condition::IfPresent, None, false, Outcome::Nil, false),
            (Condition::IfPresent, None, true, Outcome::Nil, false),
        ];
        for (condition, present, get, outcome, written) in cases {
            let change = if written {
                put("new", 0)
            } else {
                KeyChange::None
            };
            assert_eq!(
                apply(&set_with(condition, Expiry::None, get), present, &context()),
                (outcome, change),
                "{condition:?} {get}"
            );
        }
    }

    #[test]
    fn set_converts_deadlines_to_the_partitions_clock() {
        let e = entry("old", 3_000);
        let with = |expiry, present, cx: &RunContext| {
            apply(&set_with(Condition::Always, expiry, false), present, cx).1
        };
        assert_eq!(
            with(Expiry::In(10), Some(&e), &context()),
            put("new", 1_010)
        );
        assert_eq!(
            with(Expiry::At(50_020), Some(&e), &context()),
            put("new", 1_020)
        );
        assert_eq!(with(Expiry::Keep, Some(&e), &context()), put("new", 3_000));
        assert_eq!(with(Expiry::Keep, None, &context()), put("new", 0));
        assert_eq!(with(Expiry::None, Some(&e), &context()), put("new", 0));
        assert_eq!(with(Expiry::At(1), Some(&e), &context()), KeyChange::Delete);
        assert_eq!(with(Expiry::In(0), None, &context()), KeyChange::None);
        let latest = with(Expiry::In(i64::MAX), None, &context());
        assert!(
            matches!(latest, KeyChange::Put { deadline: latest, .. } if deadline::moved(latest, 1) == latest),
            "{latest:?}"
        );
        assert_eq!(
            with(Expiry::At(i64::MIN), Some(&e), &context()),
            KeyChange::Delete
        );
        let cx = RunContext {
            default_ttl_ms: Some(500),
            ..context()
        };
        assert_eq!(with(Expiry::None, Some(&e), &cx), put("new", 1_500));
        assert_eq!(with(Expiry::Keep, None, &cx), put("new", 1_500));
    }

    #[test]
    fn values_above_the_limit_change_nothing() {
        let big = Bytes::from(vec![b'x'; 65]);
        let set = Action::Set {
            value: big.clone(),
            condition: Condition::Always,
            expiry: Expiry::None,
            get: false,
        };
        for action in [
            set,
            Action::CompareAndSwap {
                expected: None,
                value: big.clone(),
            },
            Action::Append { value: big },
        ] {
            assert_eq!(apply(&action, None, &context()), failed(Failure::TooLarge));
        }
    }

    #[test]
    fn compare_and_swap_writes_only_over_what_was_expected() {
        let e = entry("old", 3_000);
        let cas = |expected: Option<&'static str>| Action::CompareAndSwap {
            expected: expected.map(|s| Bytes::from_static(s.as_bytes())),
            value: Bytes::from_static(b"new"),
        };
        assert_eq!(
            apply(&cas(Some("old")), Some(&e), &context()),
            (Outcome::Int(1), put("new", 3_000))
        );
        assert_eq!(
            apply(&cas(Some("other")), Some(&e), &context()),
            (Outcome::Int(0), KeyChange::None)
        );
        assert_eq!(
            apply(&cas(None), Some(&e), &context()),
            (Outcome::Int(0), KeyChange::None)
        );
        assert_eq!(
            apply(&cas(None), None, &context()),
            (Outcome::Int(1), put("new", 0))
        );
        assert_eq!(
            apply(&cas(Some("old")), None, &context()),
            (Outcome::Int(0), KeyChange::None)
        );
    }

    #[test]
    fn getex_reads_and_redates() {
        let e = entry("v", 3_000);
        let with = |expiry| apply(&Action::GetEx { expiry }, Some(&e), &context());
        assert_eq!(with(Expiry::Keep), (text("v"), KeyChange::None));
        assert_eq!(with(Expiry::None), (text("v"), KeyChange::Deadline(0)));
        assert_eq!(
            with(Expiry::In(5)),
            (text("v"), KeyChange::Deadline(at(1_005)))
        );
        assert_eq!(with(Expiry::At(5)), (text("v"), KeyChange::Delete));
        assert_eq!(
            apply(
                &Action::GetEx {
                    expiry: Expiry::In(5)
                },
                None,
                &context()
            ),
            (Outcome::Nil, KeyChange::None)
        );
    }

    #[test]
    fn deletes_say_whether_there_was_something() {
        let e = entry("v", 0);
        assert_eq!(
            apply(&Action::Delete, Some(&e), &context()),
            (Outcome::Int(1), KeyChange::Delete)
        );
        assert_eq!(
            apply(&Action::Delete, None, &context()),
            (Outcome::Int(0), KeyChange::None)
        );
        assert_eq!(
            apply(&Action::GetDel, Some(&e), &context()),
            (text("v"), KeyChange::Delete)
        );
        assert_eq!(
            apply(&Action::GetDel, None, &context()),
            (Outcome::Nil, KeyChange::None)
        );
    }

    #[test]
    fn append_extends_and_keeps_the_deadline() {
        let append = |s: &'static str| Action::Append {
            value: Bytes::from_static(s.as_bytes()),
        };
        assert_eq!(
            apply(&append("b"), Some(&entry("a", 9_000)), &context()),
            (Outcome::Int(2), put("ab", 9_000))
        );
        assert_eq!(
            apply(&append("b"), None, &context()),
            (Outcome::Int(1), put("b", 0))
        );
        assert_eq!(
            apply(&append(""), None, &context()),
            (Outcome::Int(0), put("", 0))
        );
        assert_eq!(
            apply(&append(""), Some(&entry("a", 0)), &context()),
            (Outcome::Int(1), KeyChange::None)
        );
    }

    #[test]
    fn encodings_are_those_of_redis() {
        let of = |value: &str| collection::encoding(&entry(value, 0), FoundKey::default()).name;
        for number in ["0", "-1", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(of(number), "int");
        }
        for text in [
            "",
            "x",
            "01",
            "+1",
            "-0",
            " 1",
            "1.5",
            "9223372036854775808",
            &"x".repeat(44),
            &"1".repeat(44),
        ] {
            assert_eq!(of(text), "embstr", "{text}");
        }
        assert_eq!((of(&"x".repeat(45)), of(&"1".repeat(45))), ("raw", "raw"));
    }

    #[test]
    fn looking_at_a_key_changes_nothing() {
        let e = Entry::new(b"key", b"value", 7, 1);
        let bytes = Outcome::Int(i64::try_from(crate::store::map::cost(&e)).unwrap());
        for (action, there, absent, uses) in [
            (Action::Touch, Outcome::Int(1), Outcome::Int(0), true),
            (Action::Peek, text("value"), Outcome::Nil, false),
            (Action::PeekLength, Outcome::Int(5), Outcome::Int(0), false),
            (Action::Encoding, Outcome::Int(1), Outcome::Nil, false),
            (Action::Footprint, bytes, Outcome::Nil, false),
        ] {
            assert_eq!(
                apply(&action, Some(&e), &context()),
                (there, KeyChange::None)
            );
            assert_eq!(apply(&action, None, &context()), (absent, KeyChange::None));
            let footprint = action.footprint();
            assert!(!footprint.writes && footprint.looks_up);
            assert_eq!(footprint.uses, uses, "{action:?}");
        }
    }

    proptest! {
        /// Back-pressure, routing and retries rely on the footprint: it must not say less than the
        /// action does.
        #[test]
        fn an_action_does_no_more_than_its_footprint_says(
            action in crate::wire::frame::tests::action(),
            there in prop::option::of(prop_oneof![
                any::<i64>().prop_map(|n| n.to_string()),
                "[a-z]{0,200}",
            ]),
            deadline in prop_oneof![Just(0), Just(5_000)],
        ) {
            let cx = RunContext { value_bytes_max: 1 << 20, ..context() };
            let found = there.as_deref().map(|value| entry(value, deadline));
            let (outcome, change) = apply(&action, found.as_ref(), &cx);
            let footprint = action.footprint();
            prop_assert!(footprint.writes || change == KeyChange::None);
            // A number is small, and it is all that INCRBYFLOAT answers with.
            if !matches!(action, Action::IncrByFloat(_)) {
                prop_assert!(footprint.answers_value || outcome.bytes() == 0);
                if let KeyChange::Put { value, .. } = &change.in_bytes() {
                    let before = found.as_ref().map_or(0, |e| e.value().len());
                    prop_assert!(value.len() <= before + footprint.stores);
                }
            }
            prop_assert!(footprint.given.largest <= footprint.given.bytes);
        }
    }

    #[test]
    fn integers_are_read_strictly_and_never_overflow() {
        let apply_to = |found: Option<&Entry>, by| {
            let (outcome, change) = apply(&Action::IncrBy(by), found, &context());
            (outcome, change.in_bytes())
        };
        let add = |value: &str, by| apply_to(Some(&entry(value, 7_000)), by);
        assert_eq!(apply_to(None, -3), (Outcome::Int(-3), put("-3", 0)));
        assert_eq!(add("41", 1), (Outcome::Int(42), put("42", 7_000)));
        assert_eq!(add("9223372036854775807", 1), failed(Failure::Overflow));
        assert_eq!(add("-9223372036854775808", -1), failed(Failure::Overflow));
        assert_eq!(add("9223372036854775807", i64::MIN).0, Outcome::Int(-1));
        for bad in [
            "",
            " 1",
            "1 ",
            "+1",
            "01",
            "-0",
            "1.0",
            "x",
            "9223372036854775808",
        ] {
            assert_eq!(add(bad, 1), failed(Failure::NotAnInteger), "{bad:?}");
        }
    }

    /// The digits are tested in `extended`.
    #[test]
    fn floats_are_added_to_numbers_only_and_keep_the_deadline() {
        let number = |text: &str| Extended::parse(text.as_bytes()).expect(text);
        let add = |value: &str, by| {
            apply(
                &Action::IncrByFloat(number(by)),
                Some(&entry(value, 7_000)),
                &context(),
            )
        };
        assert_eq!(add("10.50", "0.1"), (text("10.6"), put("10.6", 7_000)));
        assert_eq!(
            apply(&Action::IncrByFloat(number("2.5")), None, &context()),
            (text("2.5"), put("2.5", 0))
        );
        for bad in ["", "abc", " 1", "1 ", "nan"] {
            assert_eq!(add(bad, "1"), failed(Failure::NotAFloat), "{bad:?}");
        }
        for (old, by) in [("1", "inf"), ("-inf", "inf"), ("1e4932", "1e4932")] {
            assert_eq!(add(old, by), failed(Failure::Overflow), "{old} + {by}");
        }
        assert_eq!(
            add("1e70", "1"),
            failed(Failure::TooLarge),
            "64 bytes are the most"
        );
    }

    #[test]
    fn expire_changes_the_deadline_under_its_condition() {
        let (none, some) = (entry("v", 0), entry("v", 2_000));
        let with = |e: &Entry, ms, condition| {
            apply(
                &Action::Expire {
                    expiry: Expiry::In(ms),
                    condition,
                },
                Some(e),
                &context(),
            )
        };
        let (yes, no) = (
            |clock| (Outcome::Int(1), KeyChange::Deadline(at(clock))),
            (Outcome::Int(0), KeyChange::None),
        );
        assert_eq!(with(&none, 5, ExpireCondition::Always), yes(1_005));
        assert_eq!(with(&none, 5, ExpireCondition::IfNone), yes(1_005));
        assert_eq!(with(&some, 5, ExpireCondition::IfNone), no);
        assert_eq!(with(&none, 5, ExpireCondition::IfSome), no);
        assert_eq!(with(&some, 5, ExpireCondition::IfSome), yes(1_005));
        assert_eq!(with(&some, 5_000, ExpireCondition::IfLater), yes(6_000));
        assert_eq!(with(&some, 5, ExpireCondition::IfLater), no);
        assert_eq!(with(&none, 5, ExpireCondition::IfLater), no);
        assert_eq!(with(&some, 5, ExpireCondition::IfEarlier), yes(1_005));
        assert_eq!(with(&some, 5_000, ExpireCondition::IfEarlier), no);
        assert_eq!(with(&none, 5, ExpireCondition::IfEarlier), yes(1_005));
        assert_eq!(with(&some, 5, ExpireCondition::IfSomeEarlier), yes(1_005));
        assert_eq!(with(&some, 5_000, ExpireCondition::IfSomeEarlier), no);
        assert_eq!(with(&none, 5, ExpireCondition::IfSomeEarlier), no);
        assert_eq!(
            with(&some, -5, ExpireCondition::Always),
            (Outcome::Int(1), KeyChange::Delete)
        );
        assert_eq!(
            apply(
                &Action::Expire {
                    expiry: Expiry::In(5),
                    condition: ExpireCondition::Always
                },
                None,
                &context()
            ),
            no
        );
    }

    /// Regression: a wall time was converted with the clocks of one moment and converted back with
    /// those of another. GT and LT were wrong by a millisecond in every second case.
    #[test]
    fn wall_times_are_compared_and_returned_as_given_whenever_the_clocks_tick() {
        for (clock, unix_ms) in [
            (1_000, 50_000),
            (1_000, 50_001),
            (1_001, 50_000),
            (4_000, 60_000),
        ] {
            let given = 90_000;
            let set = |expiry| match apply(
                &set_with(Condition::Always, expiry, false),
                None,
                &context(),
            )
            .1
            {
                KeyChange::Put {
                    value, deadline, ..
                } => Entry::new(b"k", &value, deadline, 1),
                other => panic!("{other:?}"),
            };
            let cx = RunContext {
                clock,
                unix_ms,
                ..context()
            };
            for entry in [
                set(Expiry::At(given)),
                set(Expiry::In(given - context().unix_ms as i64)),
            ] {
                assert_eq!(
                    apply(&Action::PExpireTime, Some(&entry), &cx).0,
                    Outcome::Int(given)
                );
                let met = |unix_ms, condition| {
                    apply(
                        &Action::Expire {
                            expiry: Expiry::At(unix_ms),
                            condition,
                        },
                        Some(&entry),
                        &cx,
                    )
                    .0 == Outcome::Int(1)
                };
                for condition in [ExpireCondition::IfLater, ExpireCondition::IfEarlier] {
                    assert!(!met(given, condition), "{condition:?} {clock} {unix_ms}");
                    assert_eq!(
                        met(given + 1, condition),
                        condition == ExpireCondition::IfLater
                    );
                    assert_eq!(
                        met(given - 1, condition),
                        condition == ExpireCondition::IfEarlier
                    );
                }
                // The next one is exact, too.
                let KeyChange::Deadline(again) = apply(
                    &Action::GetEx {
                        expiry: Expiry::At(given + 7),
                    },
                    Some(&entry),
                    &cx,
                )
                .1
                else {
                    panic!()
                };
                assert_eq!(context().unix_ms_of(again), given as u64 + 7);
            }
        }
    }

    #[test]
    fn persist_removes_a_deadline() {
        assert_eq!(
            apply(&Action::Persist, Some(&entry("v", 5_000)), &context()),
            (Outcome::Int(1), KeyChange::Deadline(0))
        );
        assert_eq!(
            apply(&Action::Persist, Some(&entry("v", 0)), &context()),
            (Outcome::Int(0), KeyChange::None)
        );
        assert_eq!(
            apply(&Action::Persist, None, &context()),
            (Outcome::Int(0), KeyChange::None)
        );
    }
}
