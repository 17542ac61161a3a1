//! A user of Redis clients as rules say it: parsed word by word, and printed so that the same words
//! make the same user.

use super::AclRuleError;
use super::password::{Hashing, Password};
use crate::resp::command::absent::{self, is_absent};
use crate::resp::command::table::COMMANDS;
use crate::resp::databases;
use doyen_engine::command::{CATEGORIES, Rights};
use doyen_engine::integer;
use doyen_engine::pattern::Pattern;
use doyen_placement::access::USER_RULES_BYTES_MAX;
use std::fmt;

/// Longest pattern.
const PATTERN_BYTES_MAX: usize = 1 << 10;
/// What the patterns of a user may cost together, for each byte of a key ([`Pattern::cost`]). With
/// a megabyte of keys in one command, that is a tenth of a second at worst.
const PATTERNS_COST_MAX: usize = 128;
/// Most rules of a user, and most passwords. Each rule is compared with those before it.
const RULES_MAX: usize = 4096;
const PASSWORDS_MAX: usize = 64;

/// A user, as far as rules say it. It has no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Whether clients can log in.
    pub on: bool,
    /// Whether every password is right.
    pub nopass: bool,
    /// Kept for Redis's sake: `RESTORE` does not exist here.
    pub skips_sanitizing: bool,
    /// Each of them is right.
    pub passwords: Vec<Password>,
    /// What the rules outside of parentheses give.
    pub root: Selector,
    /// What each pair of parentheses gives besides.
    pub selectors: Vec<Selector>,
}

/// Commands, keys, channels and keyspaces that go together: a command is allowed if one selector
/// allows it with all that it names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    /// Whether all keys may be read and written. Then `keys` is empty.
    pub all_keys: bool,
    /// Patterns of keys, each with what may be done with them.
    pub keys: Vec<(Rights, Box<[u8]>)>,
    /// Whether all channels are allowed. Then `channels` is empty.
    pub all_channels: bool,
    /// Patterns of channels.
    pub channels: Vec<Box<[u8]>>,
    /// The keyspaces that may be used; `None`: all.
    pub keyspaces: Option<Vec<Box<[u8]>>>,
    /// Whether the commands are all, except what `commands` takes away.
    pub all_commands: bool,
    /// What is added and taken away after that, in order: commands and categories, in small
    /// letters.
    pub commands: Vec<(bool, String)>,
}

impl Selector {
    /// Everything.
    fn all() -> Self {
        Self {
            all_keys: true,
            all_channels: true,
            all_commands: true,
            ..Self::default()
        }
    }

    /// Whether it restricts nothing.
    pub fn is_all(&self) -> bool {
        self.all_keys
            && self.all_channels
            && self.keyspaces.is_none()
            && self.all_commands
            && self.commands.iter().all(|(allow, _)| *allow)
    }

    /// Follows one rule.
    fn apply(&mut self, rule: &[u8]) -> Result<(), AclRuleError> {
        let word = rule.to_ascii_lowercase();
        match &*word {
            b"allkeys" | b"~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            b"resetkeys" => {
                self.all_keys = false;
                self.keys.clear();
            }
            b"allchannels" | b"&*" => {
                self.all_channels = true;
                self.channels.clear();
            }
            b"resetchannels" => {
                self.all_channels = false;
                self.channels.clear();
            }
            b"allkeyspaces" => self.keyspaces = None,
            b"resetkeyspaces" => self.keyspaces = Some(Vec::new()),
            b"allcommands" | b"+@all" | b"nocommands" | b"-@all" => {
                self.all_commands = matches!(&*word, b"allcommands" | b"+@all");
                self.commands.clear();
            }
            [b'~' | b'%', ..] => self.apply_keys(rule)?,
            [b'&', ..] => {
                if self.all_channels {
                    return Err(AclRuleError::AllChannels);
                }
                add(&mut self.channels, pattern(&rule[1..])?);
            }
            [b'+' | b'-', ..] => self.apply_command(word[0] == b'+', &word[1..])?,
            _ if word.starts_with(KEYSPACE) => {
                let keyspace = pattern(&rule[KEYSPACE.len()..])?;
                let (name, database) = keyspace_parts(&keyspace);
                if name.is_empty() || database == Err(()) {
                    return Err(AclRuleError::Syntax);
                }
                // The first one that is named leaves no others.
                add(self.keyspaces.get_or_insert_default(), keyspace);
            }
            _ => return Err(AclRuleError::Syntax),
        }
        Ok(())
    }

    fn apply_keys(&mut self, rule: &[u8]) -> Result<(), AclRuleError> {
        if self.all_keys {
            return Err(AclRuleError::AllKeys);
        }
        let (rights, text) = match rule {
            [b'~', text @ ..] => (Rights::BOTH, text),
            _ => {
                let tilde = rule.iter().position(|byte| *byte == b'~');
                let tilde = tilde.ok_or(AclRuleError::Syntax)?;
                let mut rights = Rights::NONE;
                for letter in &rule[1..tilde] {
                    let right = match letter {
                        b'R' | b'r' if !rights.read => Rights::READ,
                        b'W' | b'w' if !rights.write => Rights::WRITE,
                        _ => return Err(AclRuleError::Syntax),
                    };
                    rights = rights.and(right);
                }
                if rights == Rights::NONE {
                    return Err(AclRuleError::Syntax);
                }
                (rights, &rule[tilde + 1..])
            }
        };
        let pattern = pattern(text)?;
        match self.keys.iter_mut().find(|(_, known)| *known == pattern) {
            Some((known, _)) => *known = known.and(rights),
            None => self.keys.push((rights, pattern)),
        }
        Ok(())
    }

    fn apply_command(&mut self, allow: bool, name: &[u8]) -> Result<(), AclRuleError> {
        let name = std::str::from_utf8(name).map_err(|_| AclRuleError::Unknown)?;
        if name.bytes().any(|byte| is_space(&byte)) {
            return Err(AclRuleError::Syntax);
        }
        let known = |name: &str| COMMANDS.named(name.as_bytes());
        if let Some(category) = name.strip_prefix('@') {
            if !CATEGORIES.contains(&category) && !absent::CATEGORIES.contains(&category) {
                return Err(AclRuleError::Unknown);
            }
        } else if is_absent(name) {
            // It has no effect, and is kept: a later version may have the command.
        } else if let Some((command, first)) = name.rsplit_once('|').filter(|_| allow) {
            let spec = known(command).ok_or(AclRuleError::Unknown)?;
            if spec.container().is_some() {
                return Err(AclRuleError::FirstOfSubcommand);
            }
            if first.is_empty() {
                return Err(AclRuleError::Syntax);
            }
            if !COMMANDS.subcommands(spec).is_empty() {
                known(name).ok_or(AclRuleError::Unknown)?;
            }
        } else {
            known(name).ok_or(AclRuleError::Unknown)?;
        }
        // Earlier rules about the same, and about its subcommands, have no effect any more.
        self.commands.retain(|(_, other)| {
            let rest = other.strip_prefix(name);
            !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        });
        self.commands.push((allow, name.to_owned()));
        Ok(())
    }

    fn print(&self, out: &mut Vec<u8>) {
        self.print_keys(out);
        self.print_channels(out, true);
        if let Some(keyspaces) = &self.keyspaces {
            word(out, &[b"resetkeyspaces"]);
            keyspaces.iter().for_each(|k| word(out, &[KEYSPACE, k]));
        }
        self.print_commands(out);
    }

    /// The rules of keys, separated by spaces.
    pub fn print_keys(&self, out: &mut Vec<u8>) {
        if self.all_keys {
            word(out, &[b"~*"]);
        }
        for (rights, pattern) in &self.keys {
            let sign: &[u8] = match (rights.read, rights.write) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                // Two rules gave both rights: `~*` would be another rule.
                _ if **pattern == *b"*" => b"%RW~",
                _ => b"~",
            };
            word(out, &[sign, pattern]);
        }
    }

    /// The rules of channels, separated by spaces.
    pub fn print_channels(&self, out: &mut Vec<u8>, reset: bool) {
        if self.all_channels {
            word(out, &[b"&*"]);
        } else if reset {
            word(out, &[b"resetchannels"]);
        }
        self.channels.iter().for_each(|c| word(out, &[b"&", c]));
    }

    /// The rules of keyspaces, separated by spaces: those that may be used.
    pub fn print_keyspaces(&self, out: &mut Vec<u8>) {
        match &self.keyspaces {
            None => word(out, &[KEYSPACE, b"*"]),
            Some(some) => some.iter().for_each(|k| word(out, &[KEYSPACE, k])),
        }
    }

    /// The rules of commands, separated by spaces.
    pub fn print_commands(&self, out: &mut Vec<u8>) {
        word(
            out,
            &[if self.all_commands {
                b"+@all"
            } else {
                b"-@all"
            }],
        );
        for (allow, name) in &self.commands {
            word(out, &[if *allow { b"+" } else { b"-" }, name.as_bytes()]);
        }
    }
}

/// What becomes of rules about commands and categories that do not exist here.
#[derive(Debug, Clone, Copy)]
enum Unknown {
    Refuse,
    Skip,
}

impl Unknown {
    fn judge(self, applied: Result<(), AclRuleError>) -> Result<(), AclRuleError> {
        match (self, applied) {
            (Self::Skip, Err(AclRuleError::Unknown)) => Ok(()),
            (Self::Skip | Self::Refuse, applied) => applied,
        }
    }
}

/// How a rule begins that names a keyspace.
const KEYSPACE: &[u8] = b"keyspace=";

/// The pattern of keyspaces' names, and the number of the database, if there is one.
pub(super) fn keyspace_parts(rule: &[u8]) -> (&[u8], Result<Option<i64>, ()>) {
    let Some(at) = rule.iter().rposition(|byte| *byte == b'/') else {
        return (rule, Ok(None));
    };
    let database = match &rule[at + 1..] {
        // No name of a keyspace has a slash, so such a pattern would match nothing.
        _ if rule[..at].contains(&b'/') => Err(()),
        b"*" => Ok(None),
        number => match integer(number) {
            Some(index) if databases::map(index).is_some() => Ok(Some(index)),
            _ => Err(()),
        },
    };
    (&rule[..at], database)
}

fn add(all: &mut Vec<Box<[u8]>>, one: Box<[u8]>) {
    if !all.contains(&one) {
        all.push(one);
    }
}

fn pattern(text: &[u8]) -> Result<Box<[u8]>, AclRuleError> {
    if text.iter().any(is_space) {
        return Err(AclRuleError::Syntax);
    }
    if text.len() > PATTERN_BYTES_MAX {
        return Err(AclRuleError::LongPattern);
    }
    Ok(text.into())
}

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(is_space).filter(|word| !word.is_empty())
}

/// A word after those that are there.
fn word(out: &mut Vec<u8>, parts: &[&[u8]]) {
    if !out.is_empty() {
        out.push(b' ');
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// What no word has.
pub(super) fn is_space(byte: &u8) -> bool {
    matches!(byte, 0 | b'\t'..=b'\r' | b' ')
}

impl Default for User {
    /// A new user can do nothing.
    fn default() -> Self {
        Self {
            on: false,
            nopass: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            root: Selector::default(),
            selectors: Vec::new(),
        }
    }
}

impl User {
    /// The user `default` if no rules say otherwise: it may do everything.
    pub fn of_default() -> Self {
        Self {
            on: true,
            nopass: true,
            root: Selector::all(),
            ..Self::default()
        }
    }

    /// Parses printed rules.
    ///
    /// # Errors
    /// The first word that is wrong, and why.
    pub fn parse(rules: &[u8]) -> Result<Self, WrongRule> {
        let mut user = Self::default();
        user.apply_all(words(rules), Hashing::Redis)?;
        Ok(user)
    }

    /// Parses printed rules, without those about commands and categories that do not exist here: a
    /// newer version may know them.
    ///
    /// # Errors
    /// The first other word that is wrong, and why.
    pub fn parse_known(rules: &[u8]) -> Result<Self, WrongRule> {
        let mut user = Self::default();
        user.follow(words(rules), Hashing::Redis, Unknown::Skip)?;
        Ok(user)
    }

    /// Follows these rules in order: all of them, or none if one is wrong.
    ///
    /// # Errors
    /// The first word that is wrong, and why.
    pub fn apply_all<'a>(
        &mut self,
        words: impl IntoIterator<Item = &'a [u8]>,
        hashing: Hashing,
    ) -> Result<(), WrongRule> {
        self.follow(words, hashing, Unknown::Refuse)
    }

    fn follow<'a>(
        &mut self,
        words: impl IntoIterator<Item = &'a [u8]>,
        hashing: Hashing,
        unknown: Unknown,
    ) -> Result<(), WrongRule> {
        let mut next = self.clone();
        // A selector may be spread over several words.
        let mut open: Option<Vec<u8>> = None;
        let (mut count, mut bytes) = (0, 0_usize);
        for word in words {
            (count, bytes) = (count + 1, bytes.saturating_add(word.len() + 1));
            if count > RULES_MAX || bytes > 2 * USER_RULES_BYTES_MAX {
                return Err(WrongRule::TooLong);
            }
            let whole = match open.take() {
                None if word.first() == Some(&b'(') && word.last() != Some(&b')') => {
                    open = Some(word.to_vec());
                    continue;
                }
                None => None,
                Some(mut begun) => {
                    begun.push(b' ');
                    begun.extend_from_slice(word);
                    if word.last() != Some(&b')') {
                        open = Some(begun);
                        continue;
                    }
                    Some(begun)
                }
            };
            let word = whole.as_deref().unwrap_or(word);
            let applied = next.apply(word, hashing, unknown);
            unknown
                .judge(applied)
                .map_err(|why| WrongRule::of(word, why))?;
        }
        if let Some(begun) = open {
            let first = begun.split(|byte| *byte == b' ').next();
            return Err(WrongRule::Unmatched(short(first.unwrap_or_default())));
        }
        let printed = next.print();
        let rules = printed.iter().filter(|byte| **byte == b' ').count() + 1;
        if printed.len() > USER_RULES_BYTES_MAX || rules > RULES_MAX {
            return Err(WrongRule::TooLong);
        }
        if next.patterns_cost() > PATTERNS_COST_MAX {
            return Err(WrongRule::SlowPatterns);
        }
        *self = next;
        Ok(())
    }

    /// Follows one rule.
    fn apply(
        &mut self,
        rule: &[u8],
        hashing: Hashing,
        unknown: Unknown,
    ) -> Result<(), AclRuleError> {
        match &*rule.to_ascii_lowercase() {
            b"" => {}
            b"on" => self.on = true,
            b"off" => self.on = false,
            b"skip-sanitize-payload" => self.skips_sanitizing = true,
            b"sanitize-payload" => self.skips_sanitizing = false,
            b"nopass" => {
                self.nopass = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.nopass = false;
                self.passwords.clear();
            }
            b"clearselectors" => self.selectors.clear(),
            b"reset" => *self = Self::default(),
            [b'>', ..] => {
                if !self.is_password(&rule[1..]) {
                    self.add_password(Password::new(&rule[1..], hashing))?;
                }
                self.nopass = false;
            }
            [b'#', ..] => {
                let password = Password::parse(&rule[1..]).ok_or(AclRuleError::Hash)?;
                if !self.passwords.contains(&password) {
                    self.add_password(password)?;
                }
                self.nopass = false;
            }
            [b'<', ..] => self.remove(|password| password.is(&rule[1..]))?,
            [b'!', ..] => {
                let gone = Password::parse(&rule[1..]).ok_or(AclRuleError::Hash)?;
                self.remove(|password| *password == gone)?;
            }
            [b'(', within @ .., b')'] => {
                let within = &rule[1..1 + within.len()];
                // It would end the selector where it is printed.
                let ends = |word: &[u8]| word.last() == Some(&b')');
                let mut selector = Selector::default();
                for word in words(within) {
                    if ends(word) {
                        return Err(AclRuleError::Syntax);
                    }
                    unknown.judge(selector.apply(word))?;
                }
                self.selectors.push(selector);
            }
            _ => self.root.apply(rule)?,
        }
        Ok(())
    }

    /// What it costs to compare all patterns, for each byte of a key or a channel.
    fn patterns_cost(&self) -> usize {
        let of = |selector: &Selector| {
            let keys = selector.keys.iter().map(|(_, pattern)| pattern);
            let patterns = keys.chain(&selector.channels);
            patterns.map(|p| Pattern::new(p).cost()).sum::<usize>()
        };
        self.all_selectors().map(of).sum()
    }

    fn add_password(&mut self, password: Password) -> Result<(), AclRuleError> {
        if self.passwords.len() >= PASSWORDS_MAX {
            return Err(AclRuleError::ManyPasswords);
        }
        self.passwords.push(password);
        Ok(())
    }

    /// Removes these passwords.
    fn remove(&mut self, gone: impl Fn(&Password) -> bool) -> Result<(), AclRuleError> {
        let before = self.passwords.len();
        self.passwords.retain(|password| !gone(password));
        if self.passwords.len() == before {
            return Err(AclRuleError::NoPassword);
        }
        Ok(())
    }

    /// Whether this is one of its passwords.
    pub fn is_password(&self, given: &[u8]) -> bool {
        // All are compared, so that the time does not tell which one is right.
        let all = self.passwords.iter();
        all.fold(false, |found, password| found | password.is(given))
    }

    /// Whether a client with this password becomes this user.
    pub fn admits(&self, given: &[u8]) -> bool {
        self.on && (self.nopass || self.is_password(given))
    }

    /// What selectors it has, the one outside of parentheses first.
    pub fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// The words that Redis shows as flags.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let on = if self.on { "on" } else { "off" };
        let nopass = self.nopass.then_some("nopass");
        let sanitize = if self.skips_sanitizing {
            "skip-sanitize-payload"
        } else {
            "sanitize-payload"
        };
        [Some(on), nopass, Some(sanitize)].into_iter().flatten()
    }

    /// The rules that make this user, in one line.
    pub fn print(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.flags()
            .for_each(|flag| word(&mut out, &[flag.as_bytes()]));
        for password in &self.passwords {
            word(&mut out, &[b"#", password.to_string().as_bytes()]);
        }
        self.root.print(&mut out);
        for selector in &self.selectors {
            let mut within = Vec::new();
            selector.print(&mut within);
            word(&mut out, &[b"(", &within, b")"]);
        }
        out
    }
}

/// What is wrong with rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrongRule {
    /// A word, and why.
    Word(String, AclRuleError),
    /// A selector that begins with this word has no end.
    Unmatched(String),
    /// All of them together.
    TooLong,
    /// The patterns together.
    SlowPatterns,
}

impl WrongRule {
    fn of(word: &[u8], why: AclRuleError) -> Self {
        Self::Word(short(word), why)
    }
}

/// A word as errors show it.
fn short(word: &[u8]) -> String {
    const SHOWN: usize = 128;
    let shown = String::from_utf8_lossy(&word[..word.len().min(SHOWN)]);
    let shown = shown.replace(|c: char| c.is_control(), " ");
    if word.len() > SHOWN {
        shown + "..."
    } else {
        shown
    }
}

impl fmt::Display for WrongRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word, why) => write!(f, "Error in ACL SETUSER modifier '{word}': {why}"),
            Self::Unmatched(word) => {
                write!(
                    f,
                    "Unmatched parenthesis in acl selector starting at '{word}'."
                )
            }
            Self::TooLong => write!(
                f,
                "the rules of a user are too long: at most {RULES_MAX} rules and \
                 {USER_RULES_BYTES_MAX} bytes; use patterns and categories in place of long lists"
            ),
            Self::SlowPatterns => write!(
                f,
                "the patterns of this user take too long to compare: it may have \
                 {PATTERNS_COST_MAX} patterns with text between two `*`, and one with `?`, `[...]` \
                 or `\\` there counts as four for each byte of that; use patterns whose only `*` is \
                 at the end, as in ~app:*"
            ),
        }
    }
}
