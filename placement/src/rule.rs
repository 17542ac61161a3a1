//! Rules of placement: which members may hold, or lead, the partitions of a keyspace.
//!
//! ```text
//!  primary in zone=a         the primary is a member of zone a
//!  primary not in host=h3    the primary is any member but those of host h3
//!  copies in zone=a          every copy, the primary's among them, is in zone a
//!  copies not in rack=r1     no copy is in rack r1
//!  copies 1 per zone         no zone has more than one copy
//! ```
//!
//! Labels are the location of a member (zone, rack, host) and its name. A member without a label
//! has no value of it, and is not counted for any. If racks of two zones have the same name,
//! `copies N per rack` counts them separately, as copies are kept apart everywhere; `in rack=r1`
//! means both.
//!
//! Rules have precedence over keeping copies apart and over balance, but not over the number of
//! copies: no rule reduces that. A rule that cannot be met is broken as little as possible, and
//! [`crate::planner::rules_unmet`] reports it with the reason.

use crate::table::validate::BACKUPS_MAX;
use crate::table::{Location, Member};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The largest number of rules of a keyspace.
pub const RULES_MAX: usize = 16;
/// The largest number of bytes of a value in a rule, as of a member's labels.
pub const VALUE_BYTES_MAX: usize = 64;
/// The largest number in a rule for copies in one value of a label: a partition can have no more
/// copies.
pub const PER_MAX: u8 = BACKUPS_MAX + 1;
/// The number of characters that an error repeats of a text that is no rule.
const SHOWN_CHARS_MAX: usize = 40;

/// One rule. [`fmt::Display`] writes what [`FromStr`] reads.
///
/// ```
/// # use doyen_placement as doyen;
/// use doyen::Rule;
///
/// let rule: Rule = "copies 1 per zone".parse()?;
/// assert_eq!(rule.to_string(), "copies 1 per zone");
/// # Ok::<_, doyen_placement::RuleError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Rule {
    /// Where the primary stands.
    Primary(Place),
    /// Where every copy stands, the primary included.
    Copies(Place),
    /// The largest number of copies in each value of a label.
    Per {
        /// The number.
        most: u8,
        /// The label.
        label: Label,
    },
}

/// A place inside or outside of one value of a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Whether it means inside rather than outside.
    pub inside: bool,
    /// The label.
    pub label: Label,
    /// Its value: 1 to [`VALUE_BYTES_MAX`] visible ASCII characters.
    pub value: String,
}

/// The labels by which rules tell members apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Label {
    /// [`crate::Location::zone`].
    Zone,
    /// [`crate::Location::rack`].
    Rack,
    /// [`crate::Location::host`].
    Host,
    /// [`Member::name`].
    Name,
}

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The text has another form.
    #[error(
        "{0:?} is no rule: write for example `primary in zone=a`, `copies not in rack=r1` or \
         `copies 1 per zone`"
    )]
    Shape(String),
    /// The label does not exist.
    #[error("{0:?} is no label of members: there are zone, rack, host and name")]
    Label(String),
    /// The value is empty, too long, or has other characters.
    #[error(
        "{0:?} is no value for a rule: use 1 to {VALUE_BYTES_MAX} visible ASCII characters \
         without spaces"
    )]
    Value(String),
    /// The number is missing or out of range.
    #[error("{0:?} copies make no rule: 1 to {PER_MAX} in each value of a label")]
    Most(String),
}

/// Why several rules contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// There are too many.
    #[error("at most {RULES_MAX} rules")]
    TooMany,
    /// One of them is not valid.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// Two rules say the same.
    #[error("`{0}` and `{1}` say the same, or one includes the other: leave out one of them")]
    Twice(Rule, Rule),
    /// No member can meet both.
    #[error("`{0}` and `{1}` contradict each other")]
    Contradiction(Rule, Rule),
}

impl Rule {
    /// Checks this rule. A rule from another member may contain anything.
    ///
    /// # Errors Its value or its number is out of bounds.
    pub fn validate(&self) -> Result<(), RuleError> {
        match self {
            Self::Primary(place) | Self::Copies(place) => {
                let visible = place.value.bytes().all(|c| c.is_ascii_graphic());
                let fits = (1..=VALUE_BYTES_MAX).contains(&place.value.len());
                if visible && fits {
                    Ok(())
                } else {
                    Err(RuleError::Value(shown(&place.value)))
                }
            }
            Self::Per { most, .. } if (1..=PER_MAX).contains(most) => Ok(()),
            Self::Per { most, .. } => Err(RuleError::Most(most.to_string())),
        }
    }

    /// Whether a partition with copies on these members, the primary first, breaks this rule.
    #[must_use]
    pub fn is_broken_by(&self, members: &[&Member]) -> bool {
        match self {
            Self::Primary(place) => members.first().is_some_and(|m| !place.allows(m)),
            Self::Copies(place) => members.iter().any(|m| !place.allows(m)),
            Self::Per { most, label } => {
                let places = || members.iter().filter_map(|m| label.place_of(m));
                places().any(|place| {
                    places().filter(|other| *other == place).count() > usize::from(*most)
                })
            }
        }
    }

    fn contradicts(&self, other: &Self) -> bool {
        let (Self::Primary(one) | Self::Copies(one), Self::Primary(two) | Self::Copies(two)) =
            (self, other)
        else {
            return false;
        };
        // The primary is one of the copies, so the kind of the rules does not matter, unless both
        // only exclude.
        let same = one.value == two.value;
        one.label == two.label
            && match (one.inside, two.inside) {
                (true, true) => !same,
                (true, false) | (false, true) => same,
                (false, false) => false,
            }
    }

    fn repeats(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Per { label, .. }, Self::Per { label: known, .. }) => label == known,
            _ => self == other,
        }
    }
}

/// Checks rules of one keyspace, each by itself and with the others.
///
/// # Errors
/// The first fault that is found.
pub fn check(rules: &[Rule]) -> Result<(), RulesError> {
    if rules.len() > RULES_MAX {
        return Err(RulesError::TooMany);
    }
    for (place, rule) in rules.iter().enumerate() {
        rule.validate()?;
        for earlier in &rules[..place] {
            if rule.repeats(earlier) {
                return Err(RulesError::Twice(earlier.clone(), rule.clone()));
            }
            if rule.contradicts(earlier) {
                return Err(RulesError::Contradiction(earlier.clone(), rule.clone()));
            }
        }
    }
    Ok(())
}

impl Place {
    /// Whether a member fits this place.
    #[must_use]
    pub fn allows(&self, member: &Member) -> bool {
        (self.label.of(member) == self.value) == self.inside
    }
}

impl Label {
    /// The member's value of this label. Empty if it has none.
    #[must_use]
    pub fn of(self, member: &Member) -> &str {
        match self {
            Self::Zone => &member.location.zone,
            Self::Rack => &member.location.rack,
            Self::Host => &member.location.host,
            Self::Name => &member.name,
        }
    }

    /// The group in which copies are counted: the zone of a member, the rack of its zone, and so
    /// on. `None`: the member has no such label.
    #[must_use]
    pub fn place_of(self, member: &Member) -> Option<[&str; 3]> {
        let Location { zone, rack, host } = &member.location;
        let place: [&str; 3] = match self {
            Self::Zone => [zone, "", ""],
            Self::Rack => [zone, rack, ""],
            Self::Host => [zone, rack, host],
            Self::Name => [&member.name, "", ""],
        };
        (!self.of(member).is_empty()).then_some(place)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primary(place) => write!(f, "primary {place}"),
            Self::Copies(place) => write!(f, "copies {place}"),
            Self::Per { most, label } => write!(f, "copies {most} per {label}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            inside,
            label,
            value,
        } = self;
        write!(
            f,
            "{}{label}={value}",
            if *inside { "in " } else { "not in " }
        )
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zone => "zone",
            Self::Rack => "rack",
            Self::Host => "host",
            Self::Name => "name",
        })
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let words: Vec<&str> = text.split_ascii_whitespace().take(5).collect();
        let rule = match words[..] {
            ["primary", "in", place] => Self::Primary(Place::read(true, place)?),
            ["primary", "not", "in", place] => Self::Primary(Place::read(false, place)?),
            ["copies", "in", place] => Self::Copies(Place::read(true, place)?),
            ["copies", "not", "in", place] => Self::Copies(Place::read(false, place)?),
            ["copies", most, "per", label] => {
                let label = label.parse()?;
                Self::Per {
                    most: most.parse().map_err(|_| RuleError::Most(shown(most)))?,
                    label,
                }
            }
            _ => return Err(RuleError::Shape(shown(text))),
        };
        rule.validate()?;
        Ok(rule)
    }
}

impl FromStr for Label {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        match text {
            "zone" => Ok(Self::Zone),
            "rack" => Ok(Self::Rack),
            "host" => Ok(Self::Host),
            "name" => Ok(Self::Name),
            _ => Err(RuleError::Label(shown(text))),
        }
    }
}

impl Place {
    fn read(inside: bool, text: &str) -> Result<Self, RuleError> {
        let (label, value) = text
            .split_once('=')
            .ok_or_else(|| RuleError::Shape(shown(text)))?;
        Ok(Self {
            inside,
            label: label.parse()?,
            value: value.to_owned(),
        })
    }
}

/// The part of a text that an error repeats.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts
            .iter()
            .map(|text| text.parse().expect("it is a rule"))
            .collect()
    }

    fn label() -> impl Strategy<Value = Label> {
        prop_oneof![
            Just(Label::Zone),
            Just(Label::Rack),
            Just(Label::Host),
            Just(Label::Name)
        ]
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let place = || {
            (any::<bool>(), label(), "[!-~]{1,64}").prop_map(|(inside, label, value)| Place {
                inside,
                label,
                value,
            })
        };
        let per = (1..=PER_MAX, label()).prop_map(|(most, label)| Rule::Per { most, label });
        prop_oneof![
            place().prop_map(Rule::Primary),
            place().prop_map(Rule::Copies),
            per
        ]
    }

    proptest! {
        #[test]
        fn rules_survive_a_round_trip(rule in rule()) {
            prop_assert_eq!(rule.to_string().parse(), Ok(rule));
        }

        #[test]
        fn any_text_is_a_rule_or_a_short_error_in_one_line(
            text in any::<String>(),
            sentence in "(primary|copies|in|not|per|[0-9]|[a-z]*=?[a-z]*| ){0,9}",
        ) {
            for text in [text, sentence] {
                match text.parse::<Rule>() {
                    Ok(rule) => prop_assert_eq!(rule.to_string().parse(), Ok(rule)),
                    Err(error) => prop_assert!(
                        !error.to_string().contains('\n') && error.to_string().len() < 600
                    ),
                }
            }
        }
    }

    #[test]
    fn a_text_that_is_no_rule_is_refused_with_an_example() {
        let wrong = |text: &str| text.parse::<Rule>().expect_err("it is no rule").to_string();
        for text in [
            "",
            "primary",
            "primary zone=a",
            "primary in zone",
            "copies 1 per zone please",
            "backups in zone=a",
        ] {
            assert!(
                wrong(text).contains("is no rule"),
                "{text:?}: {}",
                wrong(text)
            );
        }
        assert!(wrong("primary in colour=red").contains("is no label of members"));
        assert!(wrong("copies 1 per colour").contains("zone, rack, host and name"));
        for odd in ["", "caf\u{e9}", "a\u{7}", "a\u{a0}b", &"x".repeat(65)] {
            assert!(
                wrong(&format!("copies in zone={odd}"))
                    .contains("1 to 64 visible ASCII characters"),
                "{odd:?}"
            );
        }
        for most in ["0", "8", "-1", "many", "99999999999"] {
            assert!(
                wrong(&format!("copies {most} per zone")).contains("1 to 7"),
                "{most}"
            );
        }
    }

    #[test]
    fn rules_that_contradict_each_other_are_refused() {
        let contradictions = [
            ["primary in zone=a", "primary not in zone=a"],
            ["primary in zone=a", "primary in zone=b"],
            ["primary in zone=a", "copies not in zone=a"],
            ["primary in zone=a", "copies in zone=b"],
            ["copies in rack=r", "copies not in rack=r"],
            ["copies in rack=r", "copies in rack=s"],
            ["copies in rack=r", "primary not in rack=r"],
        ];
        for [one, two] in contradictions {
            for both in [[one, two], [two, one]] {
                assert!(
                    matches!(check(&rules(&both)), Err(RulesError::Contradiction(..))),
                    "{both:?}"
                );
            }
        }
        for twice in [
            ["primary in zone=a"; 2],
            ["copies 1 per zone", "copies 2 per zone"],
        ] {
            assert!(
                matches!(check(&rules(&twice)), Err(RulesError::Twice(..))),
                "{twice:?}"
            );
        }
        let fine = [
            "primary in zone=a",
            "primary not in host=h",
            "copies not in rack=r",
            "copies not in rack=s",
            "copies 2 per zone",
        ];
        assert_eq!(check(&rules(&fine)), Ok(()));
        let many: Vec<Rule> = (0..17)
            .map(|n| {
                Rule::Copies(Place {
                    inside: false,
                    label: Label::Host,
                    value: format!("h{n}"),
                })
            })
            .collect();
        assert_eq!(
            (check(&many[..16]), check(&many)),
            (Ok(()), Err(RulesError::TooMany))
        );
    }
}
