//! The commands that there are: one table for parsing, `COMMAND`, `COMMAND DOCS`, arity errors and
//! counters. It is made from the descriptions in the files beside this one, a file for each group.
//!
//! A description whose name has a bar is that of a subcommand: `client|list` is `CLIENT LIST`. A
//! container with such subcommands takes no other words. (`CLUSTER` has none yet, and tells its
//! subcommands apart itself.)

use super::{
    Call, Parsed, client, cluster, connection, generic, pubsub, scripting, server, string,
    transactions,
};
use std::ops::Deref;

/// Where keys stand among a command's arguments: first, last (negative: from the end), step.
pub type Keys = (i64, i64, i64);
/// No argument is a key.
pub(super) const NO_KEYS: Keys = (0, 0, 0);
/// The first argument is the only key.
pub(super) const ONE_KEY: Keys = (1, 1, 1);
/// All arguments are keys.
pub(super) const ALL_KEYS: Keys = (1, -1, 1);

/// Everything that is to be said of one command.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// Its name, in small letters.
    pub name: &'static str,
    /// The Redis version that it came with.
    pub since: &'static str,
    /// How many arguments it takes, its name among them; negative: at least so many.
    pub arity: i64,
    /// What `COMMAND` says of it.
    pub flags: &'static [&'static str],
    /// Where its keys are.
    pub keys: Keys,
    /// A line for people.
    pub summary: &'static str,
    /// What it asks for. Its arity was checked.
    pub parse: fn(Call<'_>) -> Parsed,
}

/// A command in the table.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    description: &'static Description,
    /// Its group in the documentation.
    pub group: &'static str,
    /// Its place in the table, for counters.
    pub number: u16,
}

impl Deref for Spec {
    type Target = Description;

    fn deref(&self) -> &Description {
        self.description
    }
}

impl Spec {
    /// The command of this name, in letters of any size; `client|list` for a subcommand.
    #[must_use]
    pub fn find(name: &[u8]) -> Option<&'static Self> {
        Self::find_parts([name, b"", b""])
    }

    /// The subcommand of this name, in letters of any size.
    #[must_use]
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Self> {
        Self::find_parts([self.name.as_bytes(), b"|", name])
    }

    fn find_parts(parts: [&[u8]; 3]) -> Option<&'static Self> {
        let mut small = [0; NAME_BYTES_MAX];
        let mut length = 0;
        for part in parts {
            small
                .get_mut(length..length + part.len())?
                .copy_from_slice(part);
            length += part.len();
        }
        let small = &mut small[..length];
        small.make_ascii_lowercase();
        TABLE
            .binary_search_by(|spec| spec.name.as_bytes().cmp(small))
            .ok()
            .map(|i| &TABLE[i])
    }

    /// Its subcommands: none, if it is no container.
    #[must_use]
    pub fn subcommands(&self) -> &'static [Self] {
        let from = usize::from(self.number) + 1;
        let rest = TABLE.get(from..).unwrap_or_default();
        let belongs = |s: &Self| s.container() == Some(self.name);
        &rest[..rest.iter().take_while(|s| belongs(s)).count()]
    }

    /// The container that it is a subcommand of.
    #[must_use]
    pub fn container(&self) -> Option<&'static str> {
        self.name.split_once('|').map(|(container, _)| container)
    }

    /// Whether it takes so many arguments, its name among them.
    #[must_use]
    pub fn takes(&self, args: usize) -> bool {
        if self.arity < 0 {
            args >= self.arity.unsigned_abs() as usize
        } else {
            args == self.arity.unsigned_abs() as usize
        }
    }

    /// Whether it is allowed before the password was said.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    /// Whether it may change keys.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.flags.contains(&"write")
    }

    /// What access lists would call it.
    pub fn categories(&self) -> impl Iterator<Item = &'static str> {
        let flag = |name| self.flags.contains(&name);
        let contained = self.container().is_some();
        let group = match self.group {
            "generic" if self.name == "wait" => Some("@connection"),
            "generic" if self.name != "object" => Some("@keyspace"),
            "string" => Some("@string"),
            "connection" if self.name != "client" => Some("@connection"),
            "cluster" if matches!(self.name, "asking" | "readonly" | "readwrite") => {
                Some("@connection")
            }
            "transactions" => Some("@transaction"),
            "scripting" if contained => Some("@scripting"),
            "server" if matches!(self.name, "flushall" | "flushdb" | "dbsize") => Some("@keyspace"),
            "server" if self.name.split('|').next() == Some("command") => Some("@connection"),
            _ => None,
        };
        let access = if flag("write") {
            Some("@write")
        } else {
            flag("readonly").then_some("@read")
        };
        let admin = flag("admin") || matches!(self.name, "role" | "lastsave");
        let dangerous = admin || matches!(self.name, "flushall" | "flushdb" | "keys" | "info");
        let speed = if flag("fast") { "@fast" } else { "@slow" };
        let pubsub = flag("pubsub").then_some("@pubsub");
        let further = [
            pubsub,
            admin.then_some("@admin"),
            Some(speed),
            dangerous.then_some("@dangerous"),
        ];
        group
            .into_iter()
            .chain(access)
            .chain(further.into_iter().flatten())
    }
}

/// Every command and subcommand, in order of name.
#[must_use]
pub fn all() -> &'static [Spec] {
    &TABLE
}

/// Every command, without the subcommands.
pub fn commands() -> impl Iterator<Item = &'static Spec> + Clone {
    TABLE.iter().filter(|s| s.container().is_none())
}

/// How many commands and subcommands there are.
pub const COUNT: usize = count();
/// The places of the commonest commands, which are not looked up.
pub const GET: u16 = number("get");
/// Likewise.
pub const SET: u16 = number("set");

/// No command's name is longer.
const NAME_BYTES_MAX: usize = 32;

/// The groups of the documentation, with the descriptions of their commands.
const GROUPS: [(&str, &[Description]); 9] = [
    ("cluster", cluster::ROWS),
    ("connection", client::ROWS),
    ("connection", connection::ROWS),
    ("generic", generic::ROWS),
    ("pubsub", pubsub::ROWS),
    ("scripting", scripting::ROWS),
    ("server", server::ROWS),
    ("string", string::ROWS),
    ("transactions", transactions::ROWS),
];

static TABLE: [Spec; COUNT] = SORTED;
const SORTED: [Spec; COUNT] = sorted();

const fn count() -> usize {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        count += GROUPS[group].1.len();
        group += 1;
    }
    count
}

/// All descriptions in order of name.
const fn sorted() -> [Spec; COUNT] {
    let first = Spec {
        description: &GROUPS[0].1[0],
        group: GROUPS[0].0,
        number: 0,
    };
    let mut table = [first; COUNT];
    let (mut filled, mut group) = (0, 0);
    while group < GROUPS.len() {
        let (name, descriptions) = GROUPS[group];
        let mut i = 0;
        while i < descriptions.len() {
            // Those with later names make room.
            let mut at = filled;
            while at > 0 && is_before(descriptions[i].name, table[at - 1].description.name) {
                table[at] = table[at - 1];
                at -= 1;
            }
            table[at] = Spec {
                description: &descriptions[i],
                group: name,
                number: 0,
            };
            filled += 1;
            i += 1;
        }
        group += 1;
    }
    let mut i = 0;
    while i < COUNT {
        table[i].number = i as u16;
        i += 1;
    }
    table
}

const fn number(name: &str) -> u16 {
    let mut i = 0;
    while is_before(SORTED[i].description.name, name) {
        i += 1;
    }
    i as u16
}

const fn is_before(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i < b.len() && (i == a.len() || a[i] < b[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        for (number, spec) in (0..).zip(all()) {
            assert_eq!(
                Spec::find(spec.name.to_ascii_uppercase().as_bytes()).map(|s| s.name),
                Some(spec.name)
            );
            assert_eq!(spec.number, number);
        }
        assert!(TABLE.is_sorted_by_key(|s| s.name));
        for name in ["", "ge", "gett", "a name that is longer than any command's"] {
            assert!(Spec::find(name.as_bytes()).is_none());
        }
        assert_eq!(
            (all()[usize::from(GET)].name, all()[usize::from(SET)].name),
            ("get", "set")
        );
    }

    #[test]
    fn subcommands_belong_to_their_containers() {
        let client = Spec::find(b"client").unwrap();
        assert_eq!(client.subcommand(b"LIST").unwrap().name, "client|list");
        assert!(client.subcommand(b"nosuch").is_none() && client.subcommand(b"").is_none());
        let all = |name: &[u8]| Spec::find(name).unwrap().subcommands().len();
        assert_eq!((all(b"get"), all(b"object")), (0, 5));
        let contained = commands().map(|c| c.subcommands().len()).sum::<usize>();
        assert_eq!(
            commands().count() + contained,
            COUNT,
            "each subcommand has its container"
        );
    }
}
