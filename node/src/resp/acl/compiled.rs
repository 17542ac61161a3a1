//! A user's rules in the form in which commands are judged: a set of bits for commands, and sorted
//! patterns for keys and channels.

use super::rules::{Selector, User, keyspace_parts};
use crate::resp::command::table::{COMMANDS, COUNT, RespSpec};
use crate::resp::command::{
    self, Acl, All, ClientCommand, ConnectionCommand, RespRequest, ScriptCommand, ServerCommand,
};
use crate::resp::databases;
use crate::resp::notices::database_of;
use bytes::Bytes;
use doyen_engine::command::{self as data, Access, Arguments, Rights};
use doyen_engine::glob;
use doyen_engine::grants::{KeyGrants, Patterns};
use doyen_placement::planner::DEFAULT_KEYSPACE;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// A user whose sessions are judged.
#[derive(Debug)]
pub(crate) struct Compiled {
    name: Box<[u8]>,
    /// The rules that it was made of; `None`: the user has none of its own.
    source: Option<Box<[u8]>>,
    user: User,
    /// It may do everything.
    all: bool,
    selectors: Vec<Judging>,
    /// Some selector is bound to keyspaces.
    bound: bool,
    /// What its scripts may do, in every keyspace.
    grants: OnceLock<Bytes>,
}

/// A selector.
#[derive(Debug)]
struct Judging {
    commands: CommandSet,
    keys: KeyGrants,
    channels: Patterns,
    /// The patterns of channels as they are written.
    patterns: BTreeSet<Box<[u8]>>,
    /// `None`: all.
    keyspaces: Option<Vec<Keyspaces>>,
}

/// A pattern of names of keyspaces, and the database in them; `None`: all.
type Keyspaces = (Box<[u8]>, Option<i64>);

/// The commands of a selector, by their places in the table.
#[derive(Debug, Default)]
struct CommandSet {
    bits: [u64; COUNT.div_ceil(64)],
    /// First arguments, in small letters, with which other commands are allowed.
    first: BTreeMap<u16, Vec<Box<[u8]>>>,
}

/// Where a client's commands work: the name of its keyspace, and the number of its database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home<'a> {
    pub(crate) keyspace: &'a str,
    pub(crate) database: i64,
}

impl Home<'_> {
    /// For users to whom it does not matter.
    pub(crate) const ANY: Self = Self {
        keyspace: "",
        database: 0,
    };
}

/// What a user lacks for a command. Of several reasons, the error names the latest in this order:
/// the user has more of what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denied {
    /// The right to run the command.
    Command,
    /// The right to use its keyspace and database, or those that it names.
    Keyspace,
    /// The right to the key at this place of its arguments.
    Key(usize),
    /// The right to the channel at this place of its arguments.
    Channel(usize),
}

impl Compiled {
    /// A user of this name with these rules.
    pub(super) fn new(name: &[u8], source: Option<&[u8]>, user: User) -> Self {
        let selectors = user.all_selectors().map(Judging::new).collect();
        let bound = user.all_selectors().any(|s| s.keyspaces.is_some());
        Self {
            name: name.into(),
            source: source.map(Into::into),
            all: user.root.is_all(),
            selectors,
            bound,
            user,
            grants: OnceLock::new(),
        }
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The rules that it was made of.
    pub(super) fn source(&self) -> Option<&[u8]> {
        self.source.as_deref()
    }

    pub(crate) fn user(&self) -> &User {
        &self.user
    }

    /// Whether it may do everything.
    pub(crate) const fn may_all(&self) -> bool {
        self.all
    }

    /// Whether it matters where commands work.
    pub(crate) const fn is_bound(&self) -> bool {
        self.bound
    }

    /// Whether it may run the command at this place of the table, with this one key. False: it may
    /// not, or [`Self::judge`] must find out.
    #[inline]
    pub(crate) fn may_plainly(&self, number: u16, rights: Rights, key: &[u8]) -> bool {
        self.selectors.iter().any(|selector| {
            selector.keyspaces.is_none()
                && selector.commands.has(number)
                && selector.keys.give(rights, key)
        })
    }

    /// Whether it may run this command with these arguments.
    ///
    /// # Errors
    /// What it lacks.
    pub(crate) fn judge(
        &self,
        spec: &RespSpec,
        args: &dyn Arguments,
        home: Home<'_>,
    ) -> Result<(), Denied> {
        let mut denied = Denied::Command;
        for selector in &self.selectors {
            match selector.judge(spec, args, home) {
                Ok(()) => return Ok(()),
                Err(why) => denied = denied.max(why),
            }
        }
        Err(denied)
    }

    /// Whether it may look at the keys of this database.
    pub(crate) fn may_look(&self, home: Home<'_>) -> bool {
        self.selectors.iter().any(|s| s.is_home(home))
    }

    /// Whether it gets messages about keys of this database of the default keyspace, as a
    /// subscriber to this channel, or to this pattern of channels.
    pub(crate) fn may_hear_of(&self, name: &[u8], pattern: bool, database: i64) -> bool {
        let hears = |s: &Judging| s.names(name, pattern) && s.hears_of(database);
        !self.bound || self.selectors.iter().any(hears)
    }

    /// Whether it may see here that this key has changed, which it may if it may read the key.
    pub(crate) fn may_see(&self, home: Home<'_>, key: &[u8]) -> bool {
        let sees = |s: &Judging| s.is_home(home) && s.keys.give(Rights::READ, key);
        self.selectors.iter().any(sees)
    }

    /// Whether it may subscribe to this channel, or to this pattern of channels.
    pub(crate) fn may_hear(&self, name: &[u8], pattern: bool) -> bool {
        self.selectors.iter().any(|s| s.hears(name, pattern))
    }

    /// What its scripts may do here, as text of [`Grants`](doyen_engine::grants::Grants); empty:
    /// everything.
    pub(crate) fn grants(&self, home: Home<'_>) -> Bytes {
        if self.all {
            return Bytes::new();
        }
        let text = || {
            let mut text = self.name.to_vec();
            let both = self.selectors.iter().zip(self.user.all_selectors());
            for (judging, selector) in both.filter(|(judging, _)| judging.is_home(home)) {
                text.push(b'\n');
                judging.print_grants(selector, &mut text);
            }
            Bytes::from(text)
        };
        if self.bound {
            return text();
        }
        self.grants.get_or_init(text).clone()
    }
}

impl Judging {
    fn new(selector: &Selector) -> Self {
        let keys: Vec<(Rights, &[u8])> = if selector.all_keys {
            vec![(Rights::BOTH, b"*")]
        } else {
            let keys = selector.keys.iter();
            keys.map(|(rights, pattern)| (*rights, &**pattern))
                .collect()
        };
        let channels = if selector.all_channels {
            Patterns::of([&b"*"[..]])
        } else {
            Patterns::of(selector.channels.iter().map(|pattern| &**pattern))
        };
        let keyspaces = selector.keyspaces.as_ref().map(|all| {
            let parts = all.iter().map(|rule| keyspace_parts(rule));
            let parts = parts.map(|(name, database)| (name.into(), database.unwrap_or_default()));
            parts.collect()
        });
        Self {
            commands: CommandSet::new(selector),
            keys: KeyGrants::of(&keys),
            channels,
            patterns: selector.channels.iter().cloned().collect(),
            keyspaces,
        }
    }

    fn judge(&self, spec: &RespSpec, args: &dyn Arguments, home: Home<'_>) -> Result<(), Denied> {
        if !self.commands.allow(spec, args) && !spec.has_flag("no_auth") {
            return Err(Denied::Command);
        }
        if self.keyspaces.is_some() && !self.may_work(spec, args, home) {
            return Err(Denied::Keyspace);
        }
        if !self.keys.give_all() {
            let mut keys = spec.accesses(args);
            if let Some((at, _)) = keys.find(|(at, rights)| !self.keys.give(*rights, args.get(*at)))
            {
                return Err(Denied::Key(at));
            }
        }
        let pattern = matches!(spec.access, Access::Patterns);
        let mut channels = spec.channel_indexes(args);
        match channels.find(|at| !self.hears(args.get(*at), pattern)) {
            Some(at) => Err(Denied::Channel(at)),
            None => Ok(()),
        }
    }

    /// Whether a client may subscribe. Messages about keys belong to the database of the keys.
    /// Those that a pattern takes from several databases are judged one by one
    /// (`Compiled::may_hear_of`).
    fn hears(&self, name: &[u8], pattern: bool) -> bool {
        let within = || database_of(name).is_none_or(|database| self.hears_of(database));
        self.names(name, pattern) && (self.keyspaces.is_none() || within())
    }

    /// Only keys of the default keyspace have messages.
    fn hears_of(&self, database: i64) -> bool {
        self.is_home(Home {
            keyspace: DEFAULT_KEYSPACE,
            database,
        })
    }

    /// A pattern of channels must be one of those in the rules: whether one covers another is not
    /// looked at.
    fn names(&self, name: &[u8], pattern: bool) -> bool {
        self.channels.match_all()
            || if pattern {
                self.patterns.contains(name)
            } else {
                self.channels.matches(name)
            }
    }

    fn is_home(&self, home: Home<'_>) -> bool {
        self.keyspaces.as_ref().is_none_or(|all| {
            all.iter().any(|(name, database)| {
                database.is_none_or(|one| one == home.database)
                    && glob::matches(name, home.keyspace.as_bytes())
            })
        })
    }

    /// Whether it may use all databases of all keyspaces.
    fn is_everywhere(&self) -> bool {
        let all = |(name, database): &Keyspaces| **name == *b"*" && database.is_none();
        self.keyspaces
            .as_ref()
            .is_none_or(|rules| rules.iter().any(all))
    }

    /// Whether a command may work in the keyspaces and databases that it would work in. That is
    /// judged by what it would execute: its options may repeat each other.
    fn may_work(&self, spec: &RespSpec, args: &dyn Arguments, home: Home<'_>) -> bool {
        use ConnectionCommand as C;
        let in_database = |database| self.is_home(Home { database, ..home });
        let at_home = || self.is_home(home);
        // The time only decides whether a deadline is too far away.
        let Ok(request) = command::parse(spec, args, 0) else {
            // Nothing is executed. Only users that may use the keys learn what is wrong.
            let names_keys = matches!(
                spec.access,
                Access::Keys(_) | Access::Pair(..) | Access::Depends(_) | Access::Sorting
            );
            return !(names_keys || spec.is_in("keyspace")) || at_home();
        };
        match &request {
            RespRequest::Data(data::ParsedRequest::One { action, .. }) => {
                let own = databases::map(home.database).unwrap_or_default();
                let others = action.others(own);
                let mut others = others.map(|(map, _)| databases::index(map) as i64);
                at_home() && others.all(in_database)
            }
            RespRequest::Data(data::ParsedRequest::Many(_) | data::ParsedRequest::Pop(_))
            | RespRequest::Script(ScriptCommand::Run { .. })
            | RespRequest::Connection(C::Watch) => at_home(),
            RespRequest::All(All::Clear { databases: true }) => {
                (0..databases::COUNT as i64).all(in_database)
            }
            RespRequest::All(_) => at_home(),
            RespRequest::Connection(C::Select(index)) => in_database(*index),
            RespRequest::Client(ClientCommand::Use(name)) => self.is_home(Home {
                keyspace: &String::from_utf8_lossy(name),
                database: 0,
            }),
            // They show keys of other clients' commands.
            RespRequest::Server(
                ServerCommand::SlowlogGet(_)
                | ServerCommand::Monitor
                | ServerCommand::Acl(Acl::Log(_)),
            ) => self.is_everywhere(),
            // They touch no keys. Channels are judged by their names.
            RespRequest::Script(
                ScriptCommand::Load | ScriptCommand::Exists | ScriptCommand::Flush,
            )
            | RespRequest::Connection(_)
            | RespRequest::Client(_)
            | RespRequest::Server(_)
            | RespRequest::Cluster(_)
            | RespRequest::PubSub(_)
            | RespRequest::Wait
            | RespRequest::Constant(_) => true,
        }
    }

    /// Says what this selector gives to scripts.
    fn print_grants(&self, selector: &Selector, out: &mut Vec<u8>) {
        // The commands that scripts call: those on data, and few others.
        let others = ["echo", "ping", "publish", "spublish", "time"];
        let on_data = data::COMMANDS.all().iter().map(|spec| spec.name);
        // A script that copied to another database would not be judged by that.
        let callable = on_data.filter(|name| self.keyspaces.is_none() || *name != "copy");
        let specs = callable
            .chain(others)
            .filter_map(|name| COMMANDS.named(name.as_bytes()));
        out.extend_from_slice(b"-@all");
        for spec in specs {
            if self.commands.has(spec.number) {
                out.extend_from_slice(b" +");
                out.extend_from_slice(spec.name.as_bytes());
            }
            for first in self.commands.first.get(&spec.number).into_iter().flatten() {
                out.extend_from_slice(b" +");
                out.extend_from_slice(spec.name.as_bytes());
                out.push(b'|');
                out.extend_from_slice(first);
            }
        }
        selector.print_keys(out);
        selector.print_channels(out, false);
    }
}

impl CommandSet {
    fn new(selector: &Selector) -> Self {
        let mut commands = Self::default();
        if selector.all_commands {
            commands.bits.fill(u64::MAX);
        }
        // Rules of a newer version may name commands that do not exist here.
        for (allow, name) in &selector.commands {
            if let Some(category) = name.strip_prefix('@') {
                let within = COMMANDS.all().iter().filter(|spec| spec.is_in(category));
                within.for_each(|spec| commands.set(spec, *allow));
            } else if let Some(spec) = COMMANDS.named(name.as_bytes()) {
                commands.set(spec, *allow);
            } else if let Some((command, first)) = name.rsplit_once('|')
                && let Some(spec) = COMMANDS.named(command.as_bytes())
                && COMMANDS.subcommands(spec).is_empty()
            {
                let known = commands.first.entry(spec.number).or_default();
                known.push(first.as_bytes().into());
            }
        }
        commands
    }

    /// Allows a command with its subcommands, or forbids them.
    fn set(&mut self, spec: &RespSpec, allow: bool) {
        self.first.remove(&spec.number);
        for spec in std::iter::once(spec).chain(COMMANDS.subcommands(spec)) {
            let (word, bit) = place(spec.number);
            if allow {
                self.bits[word] |= bit;
            } else {
                self.bits[word] &= !bit;
            }
        }
    }

    fn has(&self, number: u16) -> bool {
        let (word, bit) = place(number);
        self.bits[word] & bit != 0
    }

    fn allow(&self, spec: &RespSpec, args: &dyn Arguments) -> bool {
        self.has(spec.number)
            || self.first.get(&spec.number).is_some_and(|first| {
                let given = args.get(1);
                args.len() > 1 && first.iter().any(|first| first.eq_ignore_ascii_case(given))
            })
    }
}

fn place(number: u16) -> (usize, u64) {
    (usize::from(number) / 64, 1 << (number % 64))
}
