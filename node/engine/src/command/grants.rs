//! What a caller may do: many patterns judged at once, and the grants of scripts' callers.
//!
//! A user of Redis clients may have thousands of patterns, and each command is judged. So patterns
//! are sorted by kind: all, literals, prefixes (`user:*`), and others. Literals and prefixes are
//! found by one binary search each, however many there are. Other patterns are compared one by one
//! ([`Pattern`]).

use crate::command::Rights;
use crate::command::pattern::Pattern;
use std::ops::Range;

/// Patterns of keys or channels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns {
    all: bool,
    literals: Sorted,
    /// No element begins with another one.
    prefixes: Sorted,
    others: Vec<Pattern>,
}

impl Patterns {
    /// These patterns.
    #[must_use]
    pub fn of<'a>(patterns: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let (mut literals, mut prefixes) = (Vec::new(), Vec::new());
        let (mut all, mut others) = (false, Vec::new());
        for pattern in patterns {
            let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
            match pattern.iter().position(is_special) {
                None => literals.push(pattern),
                Some(0) if pattern.iter().all(|byte| *byte == b'*') => all = true,
                Some(at) if pattern[at..].iter().all(|byte| *byte == b'*') => {
                    prefixes.push(&pattern[..at]);
                }
                Some(_) => others.push(Pattern::new(pattern)),
            }
        }
        if all {
            return Self {
                all,
                ..Self::default()
            };
        }
        prefixes.sort_unstable();
        // What begins with a shorter prefix is covered by that one.
        let mut last: Option<&[u8]> = None;
        prefixes.retain(|prefix| {
            let covered = last.is_some_and(|last| prefix.starts_with(last));
            last = if covered { last } else { Some(prefix) };
            !covered
        });
        literals.sort_unstable();
        literals.dedup();
        Self {
            all,
            literals: Sorted::of(&literals),
            prefixes: Sorted::of(&prefixes),
            others,
        }
    }

    /// Whether they match everything.
    #[must_use]
    pub const fn match_all(&self) -> bool {
        self.all
    }

    /// Whether one of them matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.all
            || self
                .prefixes
                .before(text)
                .is_some_and(|rest| self.prefixes.rest_of(text).starts_with(rest))
            || self
                .literals
                .before(text)
                .is_some_and(|rest| self.literals.rest_of(text) == rest)
            || self.others.iter().any(|pattern| pattern.matches(text))
    }
}

/// Sorted texts. What all have in common is compared once, and then eight bytes at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sorted {
    common: Box<[u8]>,
    heads: Box<[u64]>,
    rests: Box<[Box<[u8]>]>,
}

impl Sorted {
    fn of(sorted: &[&[u8]]) -> Self {
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        // What the first and the last share, all share.
        let common = first.iter().zip(*last).take_while(|(a, b)| a == b).count();
        let rests: Box<[Box<[u8]>]> = sorted.iter().map(|text| text[common..].into()).collect();
        Self {
            common: first[..common].into(),
            heads: rests.iter().map(|rest| head(rest)).collect(),
            rests,
        }
    }

    fn rest_of<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.common.len()..).unwrap_or_default()
    }

    /// The last text that is not after this one, without what all have in common. `None`: there is
    /// none, or this text does not begin with what all have in common.
    fn before(&self, text: &[u8]) -> Option<&[u8]> {
        if self.heads.is_empty() {
            return None;
        }
        let rest = text.strip_prefix(&*self.common)?;
        let wanted = head(rest);
        let end = self.heads.partition_point(|head| *head <= wanted);
        let mut start = end;
        while start > 0 && self.heads[start - 1] == wanted {
            start -= 1;
            // Many texts may have the same head.
            if end - start == 8 {
                start = self.heads.partition_point(|head| *head < wanted);
                break;
            }
        }
        let within = self.rests[start..end].partition_point(|other| &**other <= rest);
        let at = (start + within).checked_sub(1)?;
        Some(&self.rests[at])
    }
}

/// The first eight bytes as a number, in the order of bytes.
fn head(text: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = text.len().min(8);
    bytes[..length].copy_from_slice(&text[..length]);
    u64::from_be_bytes(bytes)
}

/// Patterns of keys, each with what may be done with the keys that it matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyGrants {
    /// The patterns that give at least these rights: none, to read, to write, both.
    by_rights: [Patterns; 4],
}

impl KeyGrants {
    /// These patterns. One pattern must give all the rights that a command needs for a key.
    #[must_use]
    pub fn of(patterns: &[(Rights, &[u8])]) -> Self {
        let giving = |wanted: Rights| {
            let giving = patterns.iter().filter(|(rights, _)| rights.include(wanted));
            Patterns::of(giving.map(|(_, pattern)| *pattern))
        };
        Self {
            by_rights: [Rights::NONE, Rights::READ, Rights::WRITE, Rights::BOTH].map(giving),
        }
    }

    /// Whether every key may be read and written.
    #[must_use]
    pub const fn give_all(&self) -> bool {
        self.by_rights[3].match_all()
    }

    /// Whether this may be done with this key.
    #[must_use]
    pub fn give(&self, rights: Rights, key: &[u8]) -> bool {
        let patterns = &self.by_rights[usize::from(rights.read) + 2 * usize::from(rights.write)];
        if rights.any {
            patterns.match_all()
        } else {
            patterns.matches(key)
        }
    }
}

/// What the caller of a script may do in it. It travels with the script as text:
///
/// ```text
///   NAME
///   (+@all|-@all) (+COMMAND|-COMMAND)* (~PATTERN|%R~PATTERN|%W~PATTERN|%RW~PATTERN)* (&PATTERN)*
/// ```
///
/// The first line is the caller's name. Each further line is a *selector*: a command is allowed if
/// one of them allows it with all its keys and channels. `+COMMAND|WORD` allows a command with this
/// first argument. Words are separated by spaces, which patterns do not have. A text that is not
/// like that gives nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    name: Box<[u8]>,
    selectors: Vec<GrantSelector>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct GrantSelector {
    all_commands: bool,
    /// Commands that are allowed, or if all are, those that are not. Sorted.
    commands: Vec<Box<[u8]>>,
    keys: KeyGrants,
    channels: Patterns,
}

/// A command of a script that its caller may not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRefusal {
    /// The caller's name.
    pub user: Box<[u8]>,
    /// What the caller lacks.
    pub lacks: Lacks,
    /// The command, key or channel that was refused: at most [`OBJECT_BYTES_MAX`] bytes of it.
    pub object: Box<[u8]>,
}

/// Bytes that are kept of what was refused.
pub const OBJECT_BYTES_MAX: usize = 1 << 10;

#[cfg(feature = "scripts")]
impl GrantRefusal {
    pub(crate) fn new(user: &[u8], lacks: Lacks, object: &[u8]) -> Self {
        Self {
            user: user.into(),
            lacks,
            object: object[..object.len().min(OBJECT_BYTES_MAX)].into(),
        }
    }
}

/// What a caller lacks for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lacks {
    /// The right to run the command.
    Command,
    /// The right to the key at this place of the arguments.
    Key(usize),
    /// The right to the channel at this place of the arguments.
    Channel(usize),
}

impl Grants {
    /// What this text gives.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut lines = text.split(|byte| *byte == b'\n');
        let name = lines.next().unwrap_or_default().into();
        Self {
            name,
            selectors: lines.filter_map(GrantSelector::parse).collect(),
        }
    }

    /// The caller's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether they allow this command, by its name in small letters, with these keys and channels.
    /// `first` is its first argument.
    ///
    /// # Errors
    /// What is missing.
    pub fn judge<'a>(
        &self,
        (command, first): (&str, Option<&[u8]>),
        keys: impl Iterator<Item = (usize, Rights, &'a [u8])> + Clone,
        channels: (Range<usize>, impl Fn(usize) -> &'a [u8]),
    ) -> Result<(), Lacks> {
        let mut lacks = Lacks::Command;
        for selector in &self.selectors {
            match selector.judge((command, first), keys.clone(), &channels) {
                Ok(()) => return Ok(()),
                Err(why) => lacks = lacks.max(why),
            }
        }
        Err(lacks)
    }
}

impl GrantSelector {
    fn parse(line: &[u8]) -> Option<Self> {
        let (mut keys, mut channels) = (Vec::new(), Vec::new());
        let mut words = line.split(|byte| *byte == b' ');
        let all_commands = match words.next()? {
            b"+@all" => true,
            b"-@all" => false,
            _ => return None,
        };
        let mut commands: Vec<Box<[u8]>> = Vec::new();
        for word in words {
            match word {
                [sign @ (b'+' | b'-'), name @ ..] if (*sign == b'-') == all_commands => {
                    commands.push(name.into());
                }
                [b'~', pattern @ ..] | [b'%', b'R', b'W', b'~', pattern @ ..] => {
                    keys.push((Rights::BOTH, pattern))
                }
                [b'%', b'R', b'~', pattern @ ..] => keys.push((Rights::READ, pattern)),
                [b'%', b'W', b'~', pattern @ ..] => keys.push((Rights::WRITE, pattern)),
                [b'&', pattern @ ..] => channels.push(pattern),
                _ => return None,
            }
        }
        commands.sort_unstable();
        Some(Self {
            all_commands,
            commands,
            keys: KeyGrants::of(&keys),
            channels: Patterns::of(channels),
        })
    }

    fn lists(&self, name: &[u8]) -> bool {
        self.commands
            .binary_search_by(|other| (**other).cmp(name))
            .is_ok()
    }

    fn judge<'a>(
        &self,
        (command, first): (&str, Option<&[u8]>),
        mut keys: impl Iterator<Item = (usize, Rights, &'a [u8])>,
        (places, channel): &(Range<usize>, impl Fn(usize) -> &'a [u8]),
    ) -> Result<(), Lacks> {
        let with_first = || {
            let first = first.unwrap_or_default().to_ascii_lowercase();
            self.lists(&[command.as_bytes(), b"|", &first].concat())
        };
        let allowed = self.lists(command.as_bytes()) != self.all_commands
            || !self.all_commands && first.is_some() && with_first();
        if !allowed {
            return Err(Lacks::Command);
        }
        if let Some((at, ..)) = keys.find(|(_, rights, key)| !self.keys.give(*rights, key)) {
            return Err(Lacks::Key(at));
        }
        match places
            .clone()
            .find(|at| !self.channels.matches(channel(*at)))
        {
            Some(at) => Err(Lacks::Channel(at)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::glob;
    use proptest::prelude::*;

    fn patterns(words: &str) -> Patterns {
        Patterns::of(words.split_whitespace().map(str::as_bytes))
    }

    #[test]
    fn a_text_is_judged_by_all_patterns() {
        let some = patterns("user:* user:1* ab exact us?r x[12]y* a\\*");
        for text in [
            "user:", "user:22", "ab", "exact", "usor", "x1y", "x2yz", "a*",
        ] {
            assert!(some.matches(text.as_bytes()), "{text}");
        }
        for text in ["", "use", "a", "abc", "exac", "x3y", "ax", "zzz"] {
            assert!(!some.matches(text.as_bytes()), "{text}");
        }
        assert!(patterns("ab *").match_all() && patterns("**").match_all());
        assert!(!patterns("").matches(b""));
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![4 => Just(b'a'), 4 => Just(b'b'), 1 => Just(0), 1 => Just(255)];
        proptest::collection::vec(byte, 0..12)
    }

    fn pattern() -> impl Strategy<Value = Vec<u8>> {
        let tail = prop_oneof![Just(""), Just("*"), Just("?"), Just("*b"), Just("[ab]")];
        (text(), tail).prop_map(|(text, tail)| [&text, tail.as_bytes()].concat())
    }

    proptest! {
        #[test]
        fn patterns_together_match_what_one_of_them_matches(
            all in proptest::collection::vec(pattern(), 0..40),
            texts in proptest::collection::vec(text(), 1..20),
        ) {
            let together = Patterns::of(all.iter().map(Vec::as_slice));
            for text in &texts {
                let one = all.iter().any(|pattern| glob::matches(pattern, text));
                prop_assert_eq!(together.matches(text), one, "{:?}", text);
            }
        }
    }

    #[test]
    fn one_pattern_must_give_all_that_is_needed() {
        let keys: [(Rights, &[u8]); 4] = [
            (Rights::READ, b"a*"),
            (Rights::WRITE, b"*z"),
            (Rights::BOTH, b"own"),
            (Rights::READ, b"own"),
        ];
        let keys = KeyGrants::of(&keys);
        assert!(keys.give(Rights::READ, b"az") && keys.give(Rights::WRITE, b"az"));
        assert!(!keys.give(Rights::BOTH, b"az") && keys.give(Rights::BOTH, b"own"));
        assert!(keys.give(Rights::NONE, b"a") && !keys.give(Rights::NONE, b"b"));
        assert!(KeyGrants::of(&[(Rights::BOTH, b"*")]).give_all());
    }

    #[test]
    fn a_script_may_do_what_one_selector_of_its_caller_gives() {
        let grants = Grants::parse(
            b"alice\n-@all +get +select|0 ~a* &news\n+@all -del %R~r* %W~w*\n-@all wrong",
        );
        assert_eq!(grants.name(), b"alice");
        let judge =
            |command, first: &str, keys: &[(Rights, &'static str)], channels: &[&'static str]| {
                let keys = keys
                    .iter()
                    .zip(1..)
                    .map(|((rights, key), at)| (at, *rights, key.as_bytes()));
                let places = (0..channels.len(), |at: usize| channels[at].as_bytes());
                grants.judge((command, Some(first.as_bytes())), keys, places)
            };
        assert_eq!(judge("get", "ab", &[(Rights::READ, "ab")], &[]), Ok(()));
        assert_eq!(judge("get", "r", &[(Rights::READ, "r")], &[]), Ok(()));
        assert_eq!(
            judge("get", "w", &[(Rights::READ, "w")], &[]),
            Err(Lacks::Key(1))
        );
        assert_eq!(
            judge("del", "w", &[(Rights::WRITE, "w")], &[]),
            Err(Lacks::Command)
        );
        assert_eq!(judge("set", "w", &[(Rights::WRITE, "w")], &[]), Ok(()));
        assert_eq!(
            judge("publish", "news", &[], &["news"]),
            Err(Lacks::Channel(0))
        );
        assert_eq!(judge("get", "", &[], &["news"]), Ok(()));
        let nothing = Grants::parse(b"bob\nnothing");
        assert_eq!(
            nothing.judge(("get", None), std::iter::empty(), (0..0, |_| &b""[..])),
            Err(Lacks::Command)
        );
    }
}
