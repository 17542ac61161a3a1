//! The commands that there are: one table for parsing, `COMMAND`, `COMMAND DOCS`, arity errors and
//! counters.
//!
//! A row whose name has a bar is a subcommand: `client|list` is `CLIENT LIST`. A container with
//! such rows takes no other words. (`CLUSTER` has none yet, and tells its subcommands apart
//! itself.)

/// What to do for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its command.
pub enum Verb {
    Acl,
    Append,
    Asking,
    Auth,
    Client,
    Cluster,
    Command,
    Config,
    DbSize,
    Debug,
    Decr,
    DecrBy,
    Del,
    Echo,
    Exists,
    Expire,
    ExpireAt,
    ExpireTime,
    Flush,
    Function,
    Get,
    GetDel,
    GetEx,
    GetSet,
    Hello,
    Help,
    Incr,
    IncrBy,
    IncrByFloat,
    Info,
    Keys,
    LastSave,
    Latency,
    LolWut,
    MGet,
    MSet,
    Memory,
    Module,
    Object,
    PExpire,
    PExpireAt,
    PExpireTime,
    PSetEx,
    PTtl,
    Persist,
    Ping,
    PubSub,
    Quit,
    ReadOnly,
    ReadWrite,
    Reset,
    Role,
    Scan,
    ScanRange,
    Script,
    Select,
    Set,
    SetEx,
    SetNx,
    Slowlog,
    StrLen,
    Time,
    Touch,
    Ttl,
    Type,
    Unwatch,
    Wait,
}

/// One command.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Its name, in small letters.
    pub name: &'static str,
    /// How many arguments it takes, its name among them; negative: at least so many.
    pub arity: i64,
    /// What `COMMAND` says of it.
    pub flags: &'static [&'static str],
    /// Where keys stand among the arguments: first, last (negative: from the end), step. All 0: it
    /// takes none.
    pub keys: (i64, i64, i64),
    /// Its group in the documentation.
    pub group: &'static str,
    /// The Redis version that it came with.
    pub since: &'static str,
    /// What it does.
    pub verb: Verb,
    /// A line for people.
    pub summary: &'static str,
    /// Its place in the table, for counters.
    pub number: u16,
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
    pub const fn takes(&self, args: usize) -> bool {
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

/// How many rows there are.
pub const COUNT: usize = ROWS.len();
/// The rows of the commonest commands, which are not looked up.
pub const GET: u16 = number("get");
/// Likewise.
pub const SET: u16 = number("set");

/// No command's name is longer.
const NAME_BYTES_MAX: usize = 32;

static TABLE: [Spec; COUNT] = numbered();

const fn numbered() -> [Spec; COUNT] {
    let mut table = [ROWS[0]; COUNT];
    let mut i = 0;
    while i < COUNT {
        table[i] = ROWS[i];
        table[i].number = i as u16;
        i += 1;
    }
    table
}

const fn number(name: &str) -> u16 {
    let mut i = 0;
    while !equal(ROWS[i].name.as_bytes(), name.as_bytes()) {
        i += 1;
    }
    i as u16
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    a.len() == b.len() && i == a.len()
}

#[allow(clippy::too_many_arguments)] // One line a command reads better than one line a field.
const fn spec(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: (i64, i64, i64),
    group: &'static str,
    since: &'static str,
    verb: Verb,
    summary: &'static str,
) -> Spec {
    Spec {
        name,
        arity,
        flags,
        keys,
        group,
        since,
        verb,
        summary,
        number: 0,
    }
}

#[rustfmt::skip]
const ROWS: &[Spec] = &[
    spec("acl", -2, &[], (0, 0, 0), "server", "6.0.0", Verb::Acl, "A container for Access List Control commands "),
    spec("acl|cat", -2, &["noscript", "loading", "stale"], (0, 0, 0), "server", "6.0.0", Verb::Acl, "List the ACL categories or the commands inside a category"),
    spec("acl|genpass", -2, &["noscript", "loading", "stale"], (0, 0, 0), "server", "6.0.0", Verb::Acl, "Generate a pseudorandom secure password to use for ACL users"),
    spec("acl|getuser", 3, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "6.0.0", Verb::Acl, "Get the rules for a specific ACL user"),
    spec("acl|help", 2, &["loading", "stale"], (0, 0, 0), "server", "6.0.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("acl|list", 2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "6.0.0", Verb::Acl, "List the current ACL rules in ACL config file format"),
    spec("acl|log", -2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "6.0.0", Verb::Acl, "List latest events denied because of ACLs in place"),
    spec("acl|users", 2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "6.0.0", Verb::Acl, "List the username of all the configured ACL rules"),
    spec("acl|whoami", 2, &["noscript", "loading", "stale"], (0, 0, 0), "server", "6.0.0", Verb::Acl, "Return the name of the user associated to the current connection"),
    spec("append", 3, &["write", "denyoom", "fast"], (1, 1, 1), "string", "2.0.0", Verb::Append, "Append a value to a key"),
    spec("asking", 1, &["fast"], (0, 0, 0), "cluster", "3.0.0", Verb::Asking, "Accepted and without effect: moves never need it"),
    spec("auth", -2, &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"], (0, 0, 0), "connection", "1.0.0", Verb::Auth, "Authenticate to the server"),
    spec("client", -2, &[], (0, 0, 0), "connection", "2.4.0", Verb::Client, "A container for client connection commands"),
    spec("client|caching", 3, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "6.0.0", Verb::Client, "Instruct the server about tracking or not keys in the next request"),
    spec("client|getname", 2, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "2.6.9", Verb::Client, "Get the current connection name"),
    spec("client|getredir", 2, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "6.0.0", Verb::Client, "Get tracking notifications redirection client ID if any"),
    spec("client|help", 2, &["loading", "stale"], (0, 0, 0), "connection", "5.0.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("client|id", 2, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "5.0.0", Verb::Client, "Returns the client ID for the current connection"),
    spec("client|info", 2, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "6.2.0", Verb::Client, "Returns information about the current client connection."),
    spec("client|keyspace", -2, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "0.1.0", Verb::Client, "Which keyspace commands are about, or use this one from now on"),
    spec("client|kill", -3, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "connection", "2.4.0", Verb::Client, "Kill the connection of a client"),
    spec("client|list", -2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "connection", "2.4.0", Verb::Client, "Get the list of client connections"),
    spec("client|no-evict", 3, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "connection", "7.0.0", Verb::Client, "Set client eviction mode for the current connection"),
    spec("client|no-touch", 3, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "7.2.0", Verb::Client, "Controls whether commands sent by the client affect the LRU/LFU of accessed keys"),
    spec("client|pause", -3, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "connection", "2.9.50", Verb::Client, "Stop processing commands from clients for some time"),
    spec("client|reply", 3, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "3.2.0", Verb::Client, "Instruct the server whether to reply to commands"),
    spec("client|setinfo", 4, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "7.2.0", Verb::Client, "Set client or connection specific info"),
    spec("client|setname", 3, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "2.6.9", Verb::Client, "Set the current connection name"),
    spec("client|tracking", -3, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "6.0.0", Verb::Client, "Enable or disable server assisted client side caching support"),
    spec("client|trackinginfo", 2, &["noscript", "loading", "stale"], (0, 0, 0), "connection", "6.2.0", Verb::Client, "Return information about server assisted client side caching for the current connection"),
    spec("client|unblock", -3, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "connection", "5.0.0", Verb::Client, "Unblock a client blocked in a blocking command from a different connection"),
    spec("client|unpause", 2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "connection", "6.2.0", Verb::Client, "Resume processing of clients that were paused"),
    spec("cluster", -2, &[], (0, 0, 0), "cluster", "3.0.0", Verb::Cluster, "A container for cluster commands"),
    spec("command", -1, &["loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Command, "Get array of Redis command details"),
    spec("command|count", 2, &["loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Command, "Get total number of Redis commands"),
    spec("command|docs", -2, &["loading", "stale"], (0, 0, 0), "server", "7.0.0", Verb::Command, "Get array of specific Redis command documentation"),
    spec("command|getkeys", -4, &["loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Command, "Extract keys given a full Redis command"),
    spec("command|help", 2, &["loading", "stale"], (0, 0, 0), "server", "5.0.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("command|info", -2, &["loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Command, "Get array of specific Redis command details, or all when no argument is given."),
    spec("command|list", -2, &["loading", "stale"], (0, 0, 0), "server", "7.0.0", Verb::Command, "Get an array of Redis command names"),
    spec("config", -2, &[], (0, 0, 0), "server", "2.0.0", Verb::Config, "A container for server configuration commands"),
    spec("config|get", -3, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "2.0.0", Verb::Config, "Get the values of configuration parameters"),
    spec("config|help", 2, &["loading", "stale"], (0, 0, 0), "server", "5.0.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("config|resetstat", 2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "2.0.0", Verb::Config, "Reset the stats returned by INFO"),
    spec("config|rewrite", 2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "2.8.0", Verb::Config, "Rewrite the configuration file with the in memory configuration"),
    spec("config|set", -4, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "2.0.0", Verb::Config, "Set configuration parameters to the given values"),
    spec("dbsize", 1, &["readonly", "fast"], (0, 0, 0), "server", "1.0.0", Verb::DbSize, "Return the number of keys in the selected database"),
    spec("debug", -2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "1.0.0", Verb::Debug, "A container for debugging commands"),
    spec("decr", 2, &["write", "denyoom", "fast"], (1, 1, 1), "string", "1.0.0", Verb::Decr, "Decrement the integer value of a key by one"),
    spec("decrby", 3, &["write", "denyoom", "fast"], (1, 1, 1), "string", "1.0.0", Verb::DecrBy, "Decrement the integer value of a key by the given number"),
    spec("del", -2, &["write"], (1, -1, 1), "generic", "1.0.0", Verb::Del, "Delete a key"),
    spec("echo", 2, &["loading", "stale", "fast"], (0, 0, 0), "connection", "1.0.0", Verb::Echo, "Echo the given string"),
    spec("exists", -2, &["readonly", "fast"], (1, -1, 1), "generic", "1.0.0", Verb::Exists, "Determine if a key exists"),
    spec("expire", -3, &["write", "fast"], (1, 1, 1), "generic", "1.0.0", Verb::Expire, "Set a key's time to live in seconds"),
    spec("expireat", -3, &["write", "fast"], (1, 1, 1), "generic", "1.2.0", Verb::ExpireAt, "Set the expiration for a key as a UNIX timestamp"),
    spec("expiretime", 2, &["readonly", "fast"], (1, 1, 1), "generic", "7.0.0", Verb::ExpireTime, "Get the expiration Unix timestamp for a key"),
    spec("flushall", -1, &["write"], (0, 0, 0), "server", "1.0.0", Verb::Flush, "Remove all keys from all databases"),
    spec("flushdb", -1, &["write"], (0, 0, 0), "server", "1.0.0", Verb::Flush, "Remove all keys from the current database"),
    spec("function", -2, &[], (0, 0, 0), "scripting", "7.0.0", Verb::Function, "A container for function commands"),
    spec("function|flush", -2, &["write", "noscript"], (0, 0, 0), "scripting", "7.0.0", Verb::Function, "Deleting all functions"),
    spec("function|help", 2, &["loading", "stale"], (0, 0, 0), "scripting", "7.0.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("function|kill", 2, &["noscript", "allow_busy"], (0, 0, 0), "scripting", "7.0.0", Verb::Function, "Kill the function currently in execution."),
    spec("function|list", -2, &["noscript"], (0, 0, 0), "scripting", "7.0.0", Verb::Function, "List information about all the functions"),
    spec("function|stats", 2, &["noscript", "allow_busy"], (0, 0, 0), "scripting", "7.0.0", Verb::Function, "Return information about the function currently running (name, description, duration)"),
    spec("get", 2, &["readonly", "fast"], (1, 1, 1), "string", "1.0.0", Verb::Get, "Get the value of a key"),
    spec("getdel", 2, &["write", "fast"], (1, 1, 1), "string", "6.2.0", Verb::GetDel, "Get the value of a key and delete the key"),
    spec("getex", -2, &["write", "fast"], (1, 1, 1), "string", "6.2.0", Verb::GetEx, "Get the value of a key and optionally set its expiration"),
    spec("getset", 3, &["write", "denyoom", "fast"], (1, 1, 1), "string", "1.0.0", Verb::GetSet, "Set the string value of a key and return its old value"),
    spec("hello", -1, &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"], (0, 0, 0), "connection", "6.0.0", Verb::Hello, "Handshake with Redis"),
    spec("incr", 2, &["write", "denyoom", "fast"], (1, 1, 1), "string", "1.0.0", Verb::Incr, "Increment the integer value of a key by one"),
    spec("incrby", 3, &["write", "denyoom", "fast"], (1, 1, 1), "string", "1.0.0", Verb::IncrBy, "Increment the integer value of a key by the given amount"),
    spec("incrbyfloat", 3, &["write", "denyoom", "fast"], (1, 1, 1), "string", "2.6.0", Verb::IncrByFloat, "Increment the float value of a key by the given amount"),
    spec("info", -1, &["loading", "stale"], (0, 0, 0), "server", "1.0.0", Verb::Info, "Get information and statistics about the server"),
    spec("keys", 2, &["readonly"], (0, 0, 0), "generic", "1.0.0", Verb::Keys, "Find all keys matching the given pattern"),
    spec("lastsave", 1, &["loading", "stale", "fast"], (0, 0, 0), "server", "1.0.0", Verb::LastSave, "Get the UNIX time stamp of the last successful save to disk"),
    spec("latency", -2, &[], (0, 0, 0), "server", "2.8.13", Verb::Latency, "A container for latency diagnostics commands"),
    spec("latency|doctor", 2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Latency, "Return a human readable latency analysis report."),
    spec("latency|graph", 3, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Latency, "Return a latency graph for the event."),
    spec("latency|help", 2, &["loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Help, "Show helpful text about the different subcommands."),
    spec("latency|histogram", -2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "7.0.0", Verb::Latency, "Return the cumulative distribution of latencies of a subset of commands or all."),
    spec("latency|history", 3, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Latency, "Return timestamp-latency samples for the event."),
    spec("latency|latest", 2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Latency, "Return the latest latency samples for all events."),
    spec("latency|reset", -2, &["admin", "noscript", "loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Latency, "Reset latency data for one or more events."),
    spec("lolwut", -1, &["readonly", "fast"], (0, 0, 0), "server", "5.0.0", Verb::LolWut, "Display some computer art and the Redis version"),
    spec("memory", -2, &[], (0, 0, 0), "server", "4.0.0", Verb::Memory, "A container for memory diagnostics commands"),
    spec("memory|doctor", 2, &[], (0, 0, 0), "server", "4.0.0", Verb::Memory, "Outputs memory problems report"),
    spec("memory|help", 2, &["loading", "stale"], (0, 0, 0), "server", "4.0.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("memory|malloc-stats", 2, &[], (0, 0, 0), "server", "4.0.0", Verb::Memory, "Show allocator internal stats"),
    spec("memory|purge", 2, &[], (0, 0, 0), "server", "4.0.0", Verb::Memory, "Ask the allocator to release memory"),
    spec("memory|stats", 2, &[], (0, 0, 0), "server", "4.0.0", Verb::Memory, "Show memory usage details"),
    spec("memory|usage", -3, &["readonly"], (2, 2, 1), "server", "4.0.0", Verb::Memory, "Estimate the memory usage of a key"),
    spec("mget", -2, &["readonly", "fast"], (1, -1, 1), "string", "1.0.0", Verb::MGet, "Get the values of all the given keys, each atomically for itself"),
    spec("module", -2, &[], (0, 0, 0), "server", "4.0.0", Verb::Module, "A container for module commands"),
    spec("module|help", 2, &["loading", "stale"], (0, 0, 0), "server", "5.0.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("module|list", 2, &["admin", "noscript"], (0, 0, 0), "server", "4.0.0", Verb::Module, "List all modules loaded by the server"),
    spec("mset", -3, &["write", "denyoom"], (1, -1, 2), "string", "1.0.1", Verb::MSet, "Set multiple keys to multiple values, each atomically for itself"),
    spec("object", -2, &[], (0, 0, 0), "generic", "2.2.3", Verb::Object, "A container for object introspection commands"),
    spec("object|encoding", 3, &["readonly"], (2, 2, 1), "generic", "2.2.3", Verb::Object, "Inspect the internal encoding of a Redis object"),
    spec("object|freq", 3, &["readonly"], (2, 2, 1), "generic", "4.0.0", Verb::Object, "Get the logarithmic access frequency counter of a Redis object"),
    spec("object|help", 2, &["loading", "stale"], (0, 0, 0), "generic", "6.2.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("object|idletime", 3, &["readonly"], (2, 2, 1), "generic", "2.2.3", Verb::Object, "Get the time since a Redis object was last accessed"),
    spec("object|refcount", 3, &["readonly"], (2, 2, 1), "generic", "2.2.3", Verb::Object, "Get the number of references to the value of the key"),
    spec("persist", 2, &["write", "fast"], (1, 1, 1), "generic", "2.2.0", Verb::Persist, "Remove the expiration from a key"),
    spec("pexpire", -3, &["write", "fast"], (1, 1, 1), "generic", "2.6.0", Verb::PExpire, "Set a key's time to live in milliseconds"),
    spec("pexpireat", -3, &["write", "fast"], (1, 1, 1), "generic", "2.6.0", Verb::PExpireAt, "Set the expiration for a key as a UNIX timestamp specified in milliseconds"),
    spec("pexpiretime", 2, &["readonly", "fast"], (1, 1, 1), "generic", "7.0.0", Verb::PExpireTime, "Get the expiration Unix timestamp for a key in milliseconds"),
    spec("ping", -1, &["fast"], (0, 0, 0), "connection", "1.0.0", Verb::Ping, "Ping the server"),
    spec("psetex", 4, &["write", "denyoom"], (1, 1, 1), "string", "2.6.0", Verb::PSetEx, "Set the value and expiration in milliseconds of a key"),
    spec("pttl", 2, &["readonly", "fast"], (1, 1, 1), "generic", "2.6.0", Verb::PTtl, "Get the time to live for a key in milliseconds"),
    spec("pubsub", -2, &[], (0, 0, 0), "pubsub", "2.8.0", Verb::PubSub, "A container for Pub/Sub commands"),
    spec("pubsub|channels", -2, &["pubsub", "loading", "stale"], (0, 0, 0), "pubsub", "2.8.0", Verb::PubSub, "List active channels"),
    spec("pubsub|help", 2, &["loading", "stale"], (0, 0, 0), "pubsub", "6.2.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("pubsub|numpat", 2, &["pubsub", "loading", "stale"], (0, 0, 0), "pubsub", "2.8.0", Verb::PubSub, "Get the count of unique patterns pattern subscriptions"),
    spec("pubsub|numsub", -2, &["pubsub", "loading", "stale"], (0, 0, 0), "pubsub", "2.8.0", Verb::PubSub, "Get the count of subscribers for channels"),
    spec("pubsub|shardchannels", -2, &["pubsub", "loading", "stale"], (0, 0, 0), "pubsub", "7.0.0", Verb::PubSub, "List active shard channels"),
    spec("pubsub|shardnumsub", -2, &["pubsub", "loading", "stale"], (0, 0, 0), "pubsub", "7.0.0", Verb::PubSub, "Get the count of subscribers for shard channels"),
    spec("quit", -1, &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"], (0, 0, 0), "connection", "1.0.0", Verb::Quit, "Close the connection"),
    spec("readonly", 1, &["loading", "stale", "fast"], (0, 0, 0), "cluster", "3.0.0", Verb::ReadOnly, "Accepted and without effect: every node answers reads"),
    spec("readwrite", 1, &["loading", "stale", "fast"], (0, 0, 0), "cluster", "3.0.0", Verb::ReadWrite, "Accepted and without effect"),
    spec("reset", 1, &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"], (0, 0, 0), "connection", "6.2.0", Verb::Reset, "Reset the connection"),
    spec("role", 1, &["noscript", "loading", "stale", "fast"], (0, 0, 0), "server", "2.8.12", Verb::Role, "Return the role of the instance in the context of replication"),
    spec("scan", -2, &["readonly"], (0, 0, 0), "generic", "2.8.0", Verb::Scan, "Incrementally iterate the keys space"),
    spec("scanrange", -3, &["readonly"], (0, 0, 0), "generic", "0.1.0", Verb::ScanRange, "Keys of an ordered keyspace, from one on, up to another"),
    spec("script", -2, &[], (0, 0, 0), "scripting", "2.6.0", Verb::Script, "A container for Lua scripts management commands"),
    spec("script|exists", -3, &["noscript"], (0, 0, 0), "scripting", "2.6.0", Verb::Script, "Check existence of scripts in the script cache."),
    spec("script|flush", -2, &["noscript"], (0, 0, 0), "scripting", "2.6.0", Verb::Script, "Remove all the scripts from the script cache."),
    spec("script|help", 2, &["loading", "stale"], (0, 0, 0), "scripting", "5.0.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("script|kill", 2, &["noscript", "allow_busy"], (0, 0, 0), "scripting", "2.6.0", Verb::Script, "Kill the script currently in execution."),
    spec("select", 2, &["loading", "stale", "fast"], (0, 0, 0), "connection", "1.0.0", Verb::Select, "Change the selected database for the current connection"),
    spec("set", -3, &["write", "denyoom"], (1, 1, 1), "string", "1.0.0", Verb::Set, "Set the string value of a key"),
    spec("setex", 4, &["write", "denyoom"], (1, 1, 1), "string", "2.0.0", Verb::SetEx, "Set the value and expiration of a key"),
    spec("setnx", 3, &["write", "denyoom", "fast"], (1, 1, 1), "string", "1.0.0", Verb::SetNx, "Set the value of a key, only if the key does not exist"),
    spec("slowlog", -2, &[], (0, 0, 0), "server", "2.2.12", Verb::Slowlog, "A container for slow log commands"),
    spec("slowlog|get", -2, &["admin", "loading", "stale"], (0, 0, 0), "server", "2.2.12", Verb::Slowlog, "Get the slow log's entries"),
    spec("slowlog|help", 2, &["loading", "stale"], (0, 0, 0), "server", "6.2.0", Verb::Help, "Show helpful text about the different subcommands"),
    spec("slowlog|len", 2, &["admin", "loading", "stale"], (0, 0, 0), "server", "2.2.12", Verb::Slowlog, "Get the slow log's length"),
    spec("slowlog|reset", 2, &["admin", "loading", "stale"], (0, 0, 0), "server", "2.2.12", Verb::Slowlog, "Clear all entries from the slow log"),
    spec("strlen", 2, &["readonly", "fast"], (1, 1, 1), "string", "2.2.0", Verb::StrLen, "Get the length of the value stored in a key"),
    spec("time", 1, &["loading", "stale", "fast"], (0, 0, 0), "server", "2.6.0", Verb::Time, "Return the current server time"),
    spec("touch", -2, &["readonly", "fast"], (1, -1, 1), "generic", "3.2.1", Verb::Touch, "Alters the last access time of a key(s). Returns the number of existing keys specified."),
    spec("ttl", 2, &["readonly", "fast"], (1, 1, 1), "generic", "1.0.0", Verb::Ttl, "Get the time to live for a key in seconds"),
    spec("type", 2, &["readonly", "fast"], (1, 1, 1), "generic", "1.0.0", Verb::Type, "Determine the type stored at key"),
    spec("unlink", -2, &["write", "fast"], (1, -1, 1), "generic", "4.0.0", Verb::Del, "Delete a key"),
    spec("unwatch", 1, &["noscript", "loading", "stale", "fast", "allow_busy"], (0, 0, 0), "transactions", "2.2.0", Verb::Unwatch, "Forget about all watched keys"),
    spec("wait", 3, &["noscript"], (0, 0, 0), "generic", "3.0.0", Verb::Wait, "How many other nodes hold every acknowledged write of this connection"),
];

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
