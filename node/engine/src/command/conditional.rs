//! Commands on strings that do something only if the value is, or is not, a given one.

use super::{
    Access, CommandCall, Description, ErrorText, ONE_KEY, ParseFn, Parsed, SYNTAX, command, is,
};
use crate::command::action::set;
use crate::command::operation::{Action, Condition, Expiry, Footprint, ValueSizes};
use crate::command::procedure::{Procedure, WRITES, procedure, values};
use crate::store::budget::Budget;
use crate::store::change::KeyChange;
use crate::value::entry::Entry;
use crate::value::kind::Kind;
use crate::value::outcome::{Outcome, Value};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("delex", "8.4.0", -2, "string", "write fast")
        .on(ONE_KEY, Access::BOTH, "string")
        .about("Conditionally remove a key, by a comparison with its value or with its digest")
        .parse(delete),
    command("delifeq", "9.0.0", 3, "string", "write fast")
        .on(ONE_KEY, Access::BOTH, "string")
        .about("Delete a key if its value is equal to the given string")
        .parse(|c| delete_if(c, Comparison::Equal, 2)),
    command("digest", "8.4.0", 2, "string", "readonly fast")
        .on(ONE_KEY, Access::READ, "string")
        .about("Get the XXH3 digest of a string value")
        .parse(|c| c.one(Action::call(&DIGEST, &[], Vec::new()))),
];

pub(crate) static PROCEDURES: &[&Procedure] = &[&SET_IF, &DELETE_IF, &DIGEST];

/// Writes a value if the present one compares so with a given one, and answers with the old value
/// or (0) only whether it did. → as `Set`
static SET_IF: Procedure = procedure(44, "set if", Kind::String, (4, 2))
    .costs(|inputs| {
        let get = inputs.numbers[3] != 0;
        Footprint {
            answers_value: get,
            looks_up: get,
            given: inputs.given(),
            stores: inputs.bytes[0].len(),
            ..WRITES
        }
    })
    .told_as("set")
    .on_entry(|inputs, entry, cx| {
        let [comparison, unit, ms, get] = inputs.numbers[..] else {
            return (Outcome::Nil, KeyChange::None);
        };
        // The write has its condition from here on.
        let condition = match (
            is_met(comparison, entry, &inputs.bytes[1], cx.budget),
            entry,
        ) {
            (true, _) => Condition::Always,
            (false, Some(_)) => Condition::IfAbsent,
            (false, None) => Condition::IfPresent,
        };
        let expiry = Expiry::of_numbers([unit, ms]);
        set(entry, &inputs.bytes[0], condition, expiry, get != 0, cx)
    });

/// Deletes a key if its value compares so with a given one. → `Int` 1 or 0
static DELETE_IF: Procedure = procedure(45, "delete if", Kind::String, (1, 1))
    .costs(|inputs| Footprint {
        given: ValueSizes::one(&inputs.bytes[0]),
        ..WRITES
    })
    .told_as("del")
    .on_entry(|inputs, entry, cx| {
        if entry.is_some() && is_met(inputs.numbers[0], entry, &inputs.bytes[0], cx.budget) {
            (Outcome::Int(1), KeyChange::Delete)
        } else {
            (Outcome::Int(0), KeyChange::None)
        }
    });

/// The digest of a value, which counts as large as the value. → `Bulk` or `Nil`
static DIGEST: Procedure = procedure(46, "digest", Kind::String, (0, 0))
    .costs(values)
    .on_entry(|_, entry, cx| {
        let digest = entry.map(|entry| digest(entry.value(), cx.budget));
        let digest = digest.map(|digest| Outcome::Bulk(Value::from(digest.as_bytes())));
        (digest.unwrap_or(Outcome::Nil), KeyChange::None)
    });

/// What is asked of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// It is this one.
    Equal,
    /// It is another one, or there is none.
    Different,
    /// It has this digest.
    EqualDigest,
    /// It has another digest, or there is none.
    DifferentDigest,
}

impl Comparison {
    /// The comparison that this option names.
    pub(super) fn of_option(arg: &[u8]) -> Option<Self> {
        let options = [
            ("IFEQ", Self::Equal),
            ("IFNE", Self::Different),
            ("IFDEQ", Self::EqualDigest),
            ("IFDNE", Self::DifferentDigest),
        ];
        let named = options.into_iter().find(|(word, _)| is(arg, word));
        named.map(|(_, comparison)| comparison)
    }

    const fn number(self) -> i64 {
        match self {
            Self::Equal => 0,
            Self::Different => 1,
            Self::EqualDigest => 2,
            Self::DifferentDigest => 3,
        }
    }

    /// What a value is compared with: the argument at this place.
    ///
    /// # Errors
    /// It should be a digest, and is none.
    fn other(self, c: CommandCall<'_>, at: usize) -> Result<Bytes, ErrorText> {
        let other = c.args.bytes(at);
        let is_digest = other.len() == 16 && other.iter().all(u8::is_ascii_hexdigit);
        if matches!(self, Self::EqualDigest | Self::DifferentDigest) && !is_digest {
            return Err(
                "ERR the digest must be 16 hexadecimal digits, as DIGEST answers it".into(),
            );
        }
        Ok(other)
    }

    /// A `SET` of the value at the second place, with this condition.
    pub(super) fn set(
        self,
        c: CommandCall<'_>,
        other: usize,
        expiry: Expiry,
        get: bool,
    ) -> Result<Action, ErrorText> {
        let [unit, ms] = expiry.numbers();
        let numbers = [self.number(), unit, ms, i64::from(get)];
        let bytes = vec![c.args.bytes(2), self.other(c, other)?];
        Ok(Action::call(&SET_IF, &numbers, bytes))
    }
}

/// Whether a key compares so with this value or digest. An absent key is different from any.
fn is_met(comparison: i64, entry: Option<&Entry>, other: &[u8], budget: &Budget) -> bool {
    let by_digest = comparison >= Comparison::EqualDigest.number();
    let equal = entry.is_some_and(|entry| {
        if by_digest {
            digest(entry.value(), budget)
                .as_bytes()
                .eq_ignore_ascii_case(other)
        } else {
            entry.value() == other
        }
    });
    equal == (comparison % 2 == 0)
}

/// The digest of a value: XXH3 in 16 hexadecimal digits.
fn digest(value: &[u8], budget: &Budget) -> String {
    budget.read(value.len());
    format!("{:016x}", xxh3_64(value))
}

fn delete(c: CommandCall<'_>) -> Parsed {
    match c.args.len() {
        2 => c.one(Action::Delete),
        4 => match Comparison::of_option(c.args.get(2)) {
            Some(comparison) => delete_if(c, comparison, 3),
            None => Err(SYNTAX.into()),
        },
        _ => Err(SYNTAX.into()),
    }
}

fn delete_if(c: CommandCall<'_>, comparison: Comparison, at: usize) -> Parsed {
    let other = comparison.other(c, at)?;
    c.one(Action::call(
        &DELETE_IF,
        &[comparison.number()],
        vec![other],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ranges::tests::{answer_of, of};

    const HELLO: Option<&[u8]> = Some(b"hello");
    /// As `xxhsum -H3` says.
    const DIGEST_OF_HELLO: &str = "9555e8555c62dcfd";

    #[test]
    fn a_value_is_written_only_if_the_present_one_is_as_asked() {
        let other = "0123456789abcdef";
        for (condition, now, met) in [
            ("IFEQ hello".to_owned(), HELLO, true),
            ("IFEQ other".to_owned(), HELLO, false),
            ("IFEQ hello".to_owned(), None, false),
            ("IFNE hello".to_owned(), HELLO, false),
            ("ifne other".to_owned(), HELLO, true),
            ("IFNE hello".to_owned(), None, true),
            (format!("IFDEQ {DIGEST_OF_HELLO}"), HELLO, true),
            (
                format!("IFDEQ {}", DIGEST_OF_HELLO.to_uppercase()),
                HELLO,
                true,
            ),
            (format!("IFDEQ {other}"), HELLO, false),
            (format!("IFDEQ {other}"), None, false),
            (format!("IFDNE {DIGEST_OF_HELLO}"), HELLO, false),
            (format!("IFDNE {other}"), HELLO, true),
            (format!("IFDNE {other}"), None, true),
        ] {
            let (outcome, after) = of(&format!("SET k new {condition}"), now);
            let (said, value) = if met {
                (Outcome::Ok, Some(b"new".to_vec()))
            } else {
                (Outcome::Nil, None)
            };
            assert_eq!((outcome, after), (said, value), "{condition}");
            let old = now.map_or(Outcome::Nil, |now| Outcome::Bulk(Value::from(now)));
            assert_eq!(
                of(&format!("SET k new {condition} GET"), now).0,
                old,
                "{condition}"
            );
            let (outcome, change) = answer_of(&format!("DELEX k {condition}"), now).unwrap();
            let deletes = met && now.is_some();
            assert_eq!(outcome, Outcome::Int(i64::from(deletes)), "{condition}");
            assert_eq!(change == KeyChange::Delete, deletes, "{condition}");
        }
        let deleted = (Outcome::Int(1), KeyChange::Delete);
        assert_eq!(answer_of("DELIFEQ k hello", HELLO), Ok(deleted.clone()));
        assert_eq!(
            answer_of("DELIFEQ k other", HELLO),
            Ok((Outcome::Int(0), KeyChange::None))
        );
        assert_eq!(answer_of("DELEX k", HELLO), Ok(deleted));
    }

    #[test]
    fn digests_are_those_of_xxh3() {
        let bulk = |text: &str| Outcome::Bulk(Value::from(text.as_bytes()));
        assert_eq!(of("DIGEST k", HELLO).0, bulk(DIGEST_OF_HELLO));
        // The digest of nothing, as the specification has it.
        assert_eq!(of("DIGEST k", Some(b"")).0, bulk("2d06800538d394c2"));
        assert_eq!(of("DIGEST k", None).0, Outcome::Nil);
    }

    #[test]
    fn conditions_that_contradict_each_other_are_refused() {
        for line in [
            "SET k v IFEQ",
            "SET k v IFEQ a NX",
            "SET k v XX IFEQ a",
            "SET k v IFEQ a IFNE b",
            "DELEX k IFEQ",
            "DELEX k NX a",
            "DELEX k IFEQ a IFNE b",
        ] {
            assert_eq!(answer_of(line, HELLO), Err(SYNTAX.into()), "{line}");
        }
        for line in ["SET k v IFDEQ abc", "DELEX k IFDNE 0123456789abcdeg"] {
            let why = answer_of(line, HELLO).expect_err(line);
            assert!(why.0.starts_with("ERR the digest must be"), "{why:?}");
        }
    }
}
