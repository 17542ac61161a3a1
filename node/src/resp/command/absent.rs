//! Commands that Redis and its kin have and Doyen does not: rules of users may name them, so that
//! an access list of Redis is read as it is, and errors to clients name what is missing.

/// Absent commands, and subcommands of commands that there are: why they are absent, and what to do
/// instead where there is something.
#[rustfmt::skip]
const ABSENT: &[(&str, &[&str])] = &[
    ("entries of streams are deleted with XDEL, acknowledged with XACK, and trimmed with XTRIM", &[
        "xackdel", "xcfgset", "xdelex",
    ]),
    ("PFCOUNT counts; how it does that is neither shown nor tested here", &["pfdebug", "pfselftest"]),
    ("there are no vector sets here; COMMAND LIST names the commands", &[
        "vadd", "vcard", "vdim", "vemb", "vgetattr", "vinfo", "vismember", "vlinks", "vrandmember",
        "vrange", "vrem", "vsetattr", "vsim",
    ]),
    ("COPY key key DB n writes a key to another database, and DEL deletes it here", &[
        "move", "swapdb",
    ]),
    ("nothing is written to disk: the data is in memory, and other nodes have copies of it", &[
        "bgrewriteaof", "bgsave", "save",
    ]),
    ("nothing is written to disk; WAIT tells how many nodes have a write", &["waitaof"]),
    ("DUMP and RESTORE move a value; `doyen import` and `doyen export` move them all", &[
        "migrate", "restore-asking",
    ]),
    ("there are no functions here; EVAL and EVALSHA run Lua scripts", &[
        "fcall", "fcall_ro", "function|delete", "function|dump", "function|load",
        "function|restore",
    ]),
    (NO_MODULES, &["module|load", "module|loadex", "module|unload"]),
    ("end the process with SIGTERM, and the node hands over its data first", &["shutdown"]),
    ("nodes copy data to each other and fail over by themselves; ROLE and INFO show it", &[
        "failover", "psync", "replconf", "replicaof", "sentinel", "slaveof", "sync",
    ]),
    ("nodes join, take slots and fail over by themselves; `doyen help` lists what changes that", &[
        "cluster|addslots", "cluster|addslotsrange", "cluster|bumpepoch",
        "cluster|cancelslotmigrations", "cluster|delslots", "cluster|delslotsrange",
        "cluster|failover", "cluster|flushslots", "cluster|forget", "cluster|getslotmigrations",
        "cluster|meet", "cluster|migrateslots", "cluster|migration", "cluster|replicate",
        "cluster|reset", "cluster|saveconfig", "cluster|set-config-epoch", "cluster|setslot",
    ]),
    ("SLOWLOG GET lists slow commands", &["commandlog"]),
    ("COMMAND GETKEYS names the keys of a command", &["command|getkeysandflags"]),
    ("INFO and `doyen status` tell what nodes do", &[
        "cluster|count-failure-reports", "cluster|slot-stats", "hotkeys",
    ]),
    ("clients need not send it", &["client|capa", "client|import-source"]),
    ("scripts run, and are neither debugged nor shown here", &["script|debug", "script|show"]),
];

const NO_MODULES: &str = "there are no modules here; COMMAND LIST names the commands";

/// Subcommands of absent commands.
#[rustfmt::skip]
const SUBCOMMANDS: &[(&str, &[&str])] = &[
    ("commandlog", &["get", "help", "len", "reset"]),
    ("hotkeys", &["get", "help", "reset", "start", "stop"]),
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
    if why_absent(name).is_some() {
        return true;
    }
    name.split_once('|').is_some_and(|(command, subcommand)| {
        let of = SUBCOMMANDS.iter().find(|(absent, _)| *absent == command);
        of.is_some_and(|(_, all)| all.contains(&subcommand))
    })
}

/// Why there is no command of this name, in small letters, and what to do instead where there is
/// something.
pub(super) fn why_absent(name: &str) -> Option<&'static str> {
    let mut groups = ABSENT.iter();
    if let Some((why, _)) = groups.find(|(_, names)| names.contains(&name)) {
        return Some(why);
    }
    let (module, rest) = name.split_once('.')?;
    (!rest.is_empty() && MODULES.contains(&module)).then_some(NO_MODULES)
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
