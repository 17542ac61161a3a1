//! The commands that there are: one table for parsing, `COMMAND`, `COMMAND DOCS` and arity errors.

/// What to do for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its command.
pub enum Verb {
    Append,
    Asking,
    Auth,
    Client,
    Cluster,
    Command,
    Config,
    DbSize,
    Decr,
    DecrBy,
    Del,
    Echo,
    Exists,
    Expire,
    ExpireAt,
    ExpireTime,
    Flush,
    Get,
    GetDel,
    GetEx,
    GetSet,
    Hello,
    Incr,
    IncrBy,
    IncrByFloat,
    Info,
    Keys,
    MGet,
    MSet,
    PExpire,
    PExpireAt,
    PExpireTime,
    PSetEx,
    PTtl,
    Persist,
    Ping,
    Quit,
    ReadOnly,
    ReadWrite,
    Reset,
    Scan,
    ScanRange,
    Select,
    Set,
    SetEx,
    SetNx,
    StrLen,
    Ttl,
    Type,
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
    /// Where keys stand among the arguments: first, last (negative: from the end), step. All 0: it takes none.
    pub keys: (i64, i64, i64),
    /// Its group in the documentation.
    pub group: &'static str,
    /// The Redis version that it came with.
    pub since: &'static str,
    /// What it does.
    pub verb: Verb,
    /// A line for people.
    pub summary: &'static str,
}

impl Spec {
    /// The command of this name, in letters of any size.
    #[must_use]
    pub fn find(name: &[u8]) -> Option<&'static Self> {
        let mut small = [0; NAME_BYTES_MAX];
        let small = small.get_mut(..name.len())?;
        small.copy_from_slice(name);
        small.make_ascii_lowercase();
        TABLE.binary_search_by(|spec| spec.name.as_bytes().cmp(small)).ok().map(|i| &TABLE[i])
    }

    /// Whether it takes so many arguments, its name among them.
    #[must_use]
    pub const fn takes(&self, args: usize) -> bool {
        if self.arity < 0 { args >= self.arity.unsigned_abs() as usize } else { args == self.arity.unsigned_abs() as usize }
    }

    /// Whether it is allowed before the password was said.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    /// What access lists would call it.
    pub fn categories(&self) -> impl Iterator<Item = &'static str> {
        let flag = |name| self.flags.contains(&name);
        let speed = if flag("fast") { "@fast" } else { "@slow" };
        let group = match self.group {
            "generic" if self.name != "wait" => Some("@keyspace"),
            "string" => Some("@string"),
            "connection" => Some("@connection"),
            _ => None,
        };
        let access = if flag("write") { Some("@write") } else { flag("readonly").then_some("@read") };
        let dangerous = matches!(self.name, "flushall" | "flushdb" | "keys" | "info" | "config").then_some("@dangerous");
        group.into_iter().chain(access).chain([speed]).chain(dangerous)
    }
}

/// Every command, in order of name.
#[must_use]
pub const fn all() -> &'static [Spec] {
    TABLE
}

/// No command's name is longer.
const NAME_BYTES_MAX: usize = 16;

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
    Spec { name, arity, flags, keys, group, since, verb, summary }
}

#[rustfmt::skip]
const TABLE: &[Spec] = &[
    spec("append", 3, &["write", "denyoom", "fast"], (1, 1, 1), "string", "2.0.0", Verb::Append, "Append a value to a key"),
    spec("asking", 1, &["fast"], (0, 0, 0), "cluster", "3.0.0", Verb::Asking, "Accepted and without effect: moves never need it"),
    spec("auth", -2, &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"], (0, 0, 0), "connection", "1.0.0", Verb::Auth, "Authenticate to the server"),
    spec("client", -2, &[], (0, 0, 0), "connection", "2.4.0", Verb::Client, "A container for client connection commands"),
    spec("cluster", -2, &[], (0, 0, 0), "cluster", "3.0.0", Verb::Cluster, "A container for cluster commands"),
    spec("command", -1, &["loading", "stale"], (0, 0, 0), "server", "2.8.13", Verb::Command, "Get array of Redis command details"),
    spec("config", -2, &[], (0, 0, 0), "server", "2.0.0", Verb::Config, "A container for server configuration commands"),
    spec("dbsize", 1, &["readonly", "fast"], (0, 0, 0), "server", "1.0.0", Verb::DbSize, "Return the number of keys in the selected database"),
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
    spec("mget", -2, &["readonly", "fast"], (1, -1, 1), "string", "1.0.0", Verb::MGet, "Get the values of all the given keys, each atomically for itself"),
    spec("mset", -3, &["write", "denyoom"], (1, -1, 2), "string", "1.0.1", Verb::MSet, "Set multiple keys to multiple values, each atomically for itself"),
    spec("persist", 2, &["write", "fast"], (1, 1, 1), "generic", "2.2.0", Verb::Persist, "Remove the expiration from a key"),
    spec("pexpire", -3, &["write", "fast"], (1, 1, 1), "generic", "2.6.0", Verb::PExpire, "Set a key's time to live in milliseconds"),
    spec("pexpireat", -3, &["write", "fast"], (1, 1, 1), "generic", "2.6.0", Verb::PExpireAt, "Set the expiration for a key as a UNIX timestamp specified in milliseconds"),
    spec("pexpiretime", 2, &["readonly", "fast"], (1, 1, 1), "generic", "7.0.0", Verb::PExpireTime, "Get the expiration Unix timestamp for a key in milliseconds"),
    spec("ping", -1, &["fast"], (0, 0, 0), "connection", "1.0.0", Verb::Ping, "Ping the server"),
    spec("psetex", 4, &["write", "denyoom"], (1, 1, 1), "string", "2.6.0", Verb::PSetEx, "Set the value and expiration in milliseconds of a key"),
    spec("pttl", 2, &["readonly", "fast"], (1, 1, 1), "generic", "2.6.0", Verb::PTtl, "Get the time to live for a key in milliseconds"),
    spec("quit", -1, &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"], (0, 0, 0), "connection", "1.0.0", Verb::Quit, "Close the connection"),
    spec("readonly", 1, &["loading", "stale", "fast"], (0, 0, 0), "cluster", "3.0.0", Verb::ReadOnly, "Accepted and without effect: every node answers reads"),
    spec("readwrite", 1, &["loading", "stale", "fast"], (0, 0, 0), "cluster", "3.0.0", Verb::ReadWrite, "Accepted and without effect"),
    spec("reset", 1, &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"], (0, 0, 0), "connection", "6.2.0", Verb::Reset, "Reset the connection"),
    spec("scan", -2, &["readonly"], (0, 0, 0), "generic", "2.8.0", Verb::Scan, "Incrementally iterate the keys space"),
    spec("scanrange", -3, &["readonly"], (0, 0, 0), "generic", "0.1.0", Verb::ScanRange, "Keys of an ordered keyspace, from one on, up to another"),
    spec("select", 2, &["loading", "stale", "fast"], (0, 0, 0), "connection", "1.0.0", Verb::Select, "Change the selected database for the current connection"),
    spec("set", -3, &["write", "denyoom"], (1, 1, 1), "string", "1.0.0", Verb::Set, "Set the string value of a key"),
    spec("setex", 4, &["write", "denyoom"], (1, 1, 1), "string", "2.0.0", Verb::SetEx, "Set the value and expiration of a key"),
    spec("setnx", 3, &["write", "denyoom", "fast"], (1, 1, 1), "string", "1.0.0", Verb::SetNx, "Set the value of a key, only if the key does not exist"),
    spec("strlen", 2, &["readonly", "fast"], (1, 1, 1), "string", "2.2.0", Verb::StrLen, "Get the length of the value stored in a key"),
    spec("ttl", 2, &["readonly", "fast"], (1, 1, 1), "generic", "1.0.0", Verb::Ttl, "Get the time to live for a key in seconds"),
    spec("type", 2, &["readonly", "fast"], (1, 1, 1), "generic", "1.0.0", Verb::Type, "Determine the type stored at key"),
    spec("unlink", -2, &["write", "fast"], (1, -1, 1), "generic", "4.0.0", Verb::Del, "Delete a key"),
    spec("wait", 3, &["noscript"], (0, 0, 0), "generic", "3.0.0", Verb::Wait, "How many other nodes hold every acknowledged write of this connection"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        for spec in TABLE {
            assert_eq!(Spec::find(spec.name.to_ascii_uppercase().as_bytes()).map(|s| s.name), Some(spec.name));
        }
        assert!(TABLE.is_sorted_by_key(|s| s.name));
        for name in ["", "ge", "gett", "a name that is longer than any command's"] {
            assert!(Spec::find(name.as_bytes()).is_none());
        }
    }
}
