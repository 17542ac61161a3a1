//! Commands that Redis and its kin have and Doyen does not: rules of users may name them, so that
//! an access list of Redis is read as it is, and errors to clients name what is missing.

/// Commands on types that Doyen does not have, by the name of the type.
#[rustfmt::skip]
pub(super) const TYPES: &[(&str, &[&str])] = &[
    ("lists", &[
        "blmove", "blmpop", "blpop", "brpop", "brpoplpush", "lindex", "linsert", "llen", "lmove",
        "lmpop", "lpop", "lpos", "lpush", "lpushx", "lrange", "lrem", "lset", "ltrim", "rpop",
        "rpoplpush", "rpush", "rpushx",
    ]),
    ("sorted sets", &[
        "bzmpop", "bzpopmax", "bzpopmin", "geoadd", "geodist", "geohash", "geopos", "georadius",
        "georadius_ro", "georadiusbymember", "georadiusbymember_ro", "geosearch", "geosearchstore",
        "zadd", "zcard", "zcount", "zdiff", "zdiffstore", "zincrby", "zinter", "zintercard",
        "zinterstore", "zlexcount", "zmpop", "zmscore", "zpopmax", "zpopmin", "zrandmember",
        "zrange", "zrangebylex", "zrangebyscore", "zrangestore", "zrank", "zrem", "zremrangebylex",
        "zremrangebyrank", "zremrangebyscore", "zrevrange", "zrevrangebylex", "zrevrangebyscore",
        "zrevrank", "zscan", "zscore", "zunion", "zunionstore",
    ]),
    ("streams", &[
        "xack", "xackdel", "xadd", "xautoclaim", "xcfgset", "xclaim", "xdel", "xdelex", "xgroup",
        "xinfo", "xlen", "xpending", "xrange", "xread", "xreadgroup", "xrevrange", "xsetid",
        "xtrim",
    ]),
    ("counts of distinct elements", &["pfadd", "pfcount", "pfdebug", "pfmerge", "pfselftest"]),
];

/// The others, with subcommands of commands that there are.
#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "bgrewriteaof", "bgsave", "bitop", "client|capa", "client|import-source", "cluster|addslots",
    "cluster|addslotsrange", "cluster|bumpepoch", "cluster|cancelslotmigrations",
    "cluster|count-failure-reports", "cluster|delslots", "cluster|delslotsrange",
    "cluster|failover", "cluster|flushslots", "cluster|forget", "cluster|getslotmigrations",
    "cluster|meet", "cluster|migrateslots", "cluster|migration", "cluster|replicate",
    "cluster|reset", "cluster|saveconfig", "cluster|set-config-epoch", "cluster|setslot",
    "cluster|slot-stats", "command|getkeysandflags", "commandlog", "dump", "failover", "fcall",
    "fcall_ro", "function|delete", "function|dump", "function|load", "function|restore", "hotkeys",
    "lcs", "migrate", "module|load", "module|loadex", "module|unload", "move",
    "psync", "replconf", "replicaof", "restore", "restore-asking", "save", "script|debug",
    "script|show", "sentinel", "shutdown", "slaveof", "sort", "sort_ro", "swapdb", "sync", "vadd",
    "vcard", "vdim", "vemb", "vgetattr", "vinfo", "vismember", "vlinks", "vrandmember", "vrange",
    "vrem", "vsetattr", "vsim", "waitaof",
];

/// Subcommands of absent commands.
#[rustfmt::skip]
const SUBCOMMANDS: &[(&str, &[&str])] = &[
    ("commandlog", &["get", "help", "len", "reset"]),
    ("hotkeys", &["get", "help", "reset", "start", "stop"]),
    ("xgroup", &["create", "createconsumer", "delconsumer", "destroy", "help", "setid"]),
    ("xinfo", &["consumers", "groups", "help", "stream"]),
];

/// How the commands of well-known modules begin, before a dot.
const MODULES: &[&str] = &[
    "bf",
    "cf",
    "cms",
    "ft",
    "json",
    "tdigest",
    "timeseries",
    "topk",
    "ts",
];

/// Categories of well-known modules.
pub(crate) const CATEGORIES: &[&str] = &[
    "bloom",
    "cms",
    "cuckoo",
    "json",
    "search",
    "tdigest",
    "timeseries",
    "topk",
    "vector",
];

/// Whether Redis, Valkey or a well-known module has a command of this name, in small letters, that
/// Doyen does not have.
pub(crate) fn is_absent(name: &str) -> bool {
    let of_type = || TYPES.iter().flat_map(|(_, names)| *names);
    if of_type().chain(OTHERS).any(|absent| *absent == name) {
        return true;
    }
    if let Some((command, subcommand)) = name.split_once('|') {
        let of = SUBCOMMANDS.iter().find(|(absent, _)| *absent == command);
        return of.is_some_and(|(_, all)| all.contains(&subcommand));
    }
    let module = name
        .split_once('.')
        .map(|(module, rest)| (module, !rest.is_empty()));
    module.is_some_and(|(module, named)| named && MODULES.contains(&module))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::command::table::COMMANDS;

    #[test]
    fn no_command_is_both_there_and_absent() {
        for spec in COMMANDS.all() {
            assert!(!is_absent(spec.name), "{}", spec.name);
        }
    }

    /// The list of redis-server 7.0.15 (`COMMAND`), without what there is here.
    #[test]
    fn every_command_of_redis_is_there_or_known_to_be_absent() {
        for name in include_str!("redis.txt").lines() {
            let there = COMMANDS.named(name.as_bytes()).is_some();
            assert!(there || is_absent(name), "{name}");
        }
    }
}
