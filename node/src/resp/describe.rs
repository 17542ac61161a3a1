//! What the server says of itself: `INFO`, `CONFIG GET`, `COMMAND`.

use super::command::table::{self, Spec};
use super::encode::Encoder;
use super::glob;
use bytes::Bytes;

/// The version of Redis whose commands and texts are spoken. Clients choose what they send by it.
pub const REDIS_VERSION: &str = "7.0.15";

/// What `INFO` and `CONFIG GET` need to know.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)] // Each is named after its line.
pub struct Facts {
    pub cluster_port: bool,
    pub process_id: u32,
    pub run_id: String,
    pub tcp_port: u16,
    pub uptime_s: u64,
    pub connections_max: usize,
    pub memory_bytes_max: u64,
    pub process_memory: (u64, u64),
    pub memory_policy: &'static str,
    pub backups: i64,
    pub has_password: bool,
    pub value_bytes_max: usize,
    pub counted: Counted,
}

/// What each data thread counts for itself.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)] // Each is named after its line.
pub struct Counted {
    pub connected_clients: u64,
    pub memory_bytes: u64,
    pub connections_received: u64,
    pub connections_rejected: u64,
    pub commands: u64,
    pub expired: u64,
    pub evicted: u64,
    pub parked: u64,
    pub keys: u64,
    pub expires: u64,
}

impl Counted {
    /// Adds what another thread counts.
    pub fn add(&mut self, other: &Self) {
        self.connected_clients += other.connected_clients;
        self.memory_bytes += other.memory_bytes;
        self.connections_received += other.connections_received;
        self.connections_rejected += other.connections_rejected;
        self.commands += other.commands;
        self.expired += other.expired;
        self.evicted += other.evicted;
        self.parked += other.parked;
        self.keys += other.keys;
        self.expires += other.expires;
    }
}

/// `INFO` of these sections; of all if none is named.
#[must_use]
pub fn info(facts: &Facts, sections: &[String]) -> String {
    let all = sections.is_empty() || sections.iter().any(|s| matches!(s.as_str(), "all" | "default" | "everything"));
    let mut text = String::new();
    for (name, lines) in info_sections(facts) {
        if all || sections.iter().any(|s| s.eq_ignore_ascii_case(name)) {
            if !text.is_empty() {
                text += "\r\n";
            }
            text += &format!("# {name}\r\n");
            text.extend(lines.into_iter().map(|(name, value)| format!("{name}:{value}\r\n")));
        }
    }
    text
}

type Lines = Vec<(&'static str, String)>;

fn info_sections(facts: &Facts) -> [(&'static str, Lines); 7] {
    let mode = if facts.cluster_port { "cluster" } else { "standalone" };
    let counted = &facts.counted;
    let (resident, counted_there) = facts.process_memory;
    let human = |bytes: u64| format!("{:.2}M", bytes as f64 / f64::from(1 << 20));
    [
        (
            "Server",
            vec![
                ("redis_version", REDIS_VERSION.to_owned()),
                ("doyen_version", env!("CARGO_PKG_VERSION").to_owned()),
                ("redis_mode", mode.to_owned()),
                ("os", std::env::consts::OS.to_owned()),
                ("arch_bits", usize::BITS.to_string()),
                ("process_id", facts.process_id.to_string()),
                ("run_id", facts.run_id.clone()),
                ("tcp_port", facts.tcp_port.to_string()),
                ("uptime_in_seconds", facts.uptime_s.to_string()),
                ("uptime_in_days", (facts.uptime_s / 86400).to_string()),
            ],
        ),
        (
            "Clients",
            vec![
                ("connected_clients", counted.connected_clients.to_string()),
                ("maxclients", facts.connections_max.to_string()),
                ("blocked_clients", counted.parked.to_string()),
            ],
        ),
        (
            "Memory",
            vec![
                ("used_memory", counted.memory_bytes.to_string()),
                ("used_memory_human", human(counted.memory_bytes)),
                ("used_memory_rss", resident.to_string()),
                ("used_memory_rss_human", human(resident)),
                ("mem_fragmentation_ratio", format!("{:.2}", resident as f64 / counted_there.max(1) as f64)),
                ("maxmemory", facts.memory_bytes_max.to_string()),
                ("maxmemory_human", human(facts.memory_bytes_max)),
                ("maxmemory_policy", facts.memory_policy.to_owned()),
            ],
        ),
        (
            "Stats",
            vec![
                ("total_connections_received", counted.connections_received.to_string()),
                ("total_commands_processed", counted.commands.to_string()),
                ("rejected_connections", counted.connections_rejected.to_string()),
                ("expired_keys", counted.expired.to_string()),
                ("evicted_keys", counted.evicted.to_string()),
            ],
        ),
        (
            "Replication",
            vec![("role", "master".to_owned()), ("connected_slaves", facts.backups.to_string()), ("master_replid", facts.run_id.clone())],
        ),
        ("Cluster", vec![("cluster_enabled", u8::from(facts.cluster_port).to_string())]),
        (
            "Keyspace",
            if counted.keys == 0 {
                Vec::new()
            } else {
                vec![("db0", format!("keys={},expires={},avg_ttl=0", counted.keys, counted.expires))]
            },
        ),
    ]
}

/// `CONFIG GET` of these patterns.
pub fn config(encoder: &mut Encoder<'_>, facts: &Facts, patterns: &[Bytes]) {
    let settings = [
        ("appendonly", "no".to_owned()),
        ("cluster-enabled", if facts.cluster_port { "yes" } else { "no" }.to_owned()),
        ("databases", "1".to_owned()),
        ("maxclients", facts.connections_max.to_string()),
        ("maxmemory", facts.memory_bytes_max.to_string()),
        ("maxmemory-policy", facts.memory_policy.to_owned()),
        ("port", facts.tcp_port.to_string()),
        ("proto-max-bulk-len", facts.value_bytes_max.to_string()),
        ("requirepass", if facts.has_password { "(set)" } else { "" }.to_owned()),
        ("save", String::new()),
        ("timeout", "0".to_owned()),
    ];
    let wanted = |name: &str| patterns.iter().any(|p| glob::matches(&p.to_ascii_lowercase(), name.as_bytes()));
    let found: Vec<_> = settings.iter().filter(|(name, _)| wanted(name)).collect();
    encoder.map(found.len());
    for (name, value) in found {
        encoder.bulk(name.as_bytes());
        encoder.bulk(value.as_bytes());
    }
}

/// `COMMAND`, and `COMMAND INFO` of these names.
pub fn command_info(encoder: &mut Encoder<'_>, names: Option<&[Bytes]>) {
    match names {
        None => {
            encoder.array(table::all().len());
            table::all().iter().for_each(|spec| command(encoder, spec));
        }
        Some(names) => {
            encoder.array(names.len());
            for name in names {
                match Spec::find(name) {
                    Some(spec) => command(encoder, spec),
                    None => encoder.nil(),
                }
            }
        }
    }
}

fn command(encoder: &mut Encoder<'_>, spec: &Spec) {
    encoder.array(10);
    encoder.bulk(spec.name.as_bytes());
    encoder.integer(spec.arity);
    encoder.set(spec.flags.len());
    spec.flags.iter().for_each(|flag| encoder.simple(flag));
    let (first, last, step) = spec.keys;
    encoder.integer(first);
    encoder.integer(last);
    encoder.integer(step);
    encoder.set(spec.categories().count());
    spec.categories().for_each(|category| encoder.simple(category));
    encoder.set(0);
    encoder.set(usize::from(first > 0));
    if first > 0 {
        key_specification(encoder, spec);
    }
    encoder.set(0);
}

fn key_specification(encoder: &mut Encoder<'_>, spec: &Spec) {
    let (first, last, step) = spec.keys;
    encoder.map(3);
    encoder.bulk(b"flags");
    encoder.set(1);
    encoder.simple(if spec.flags.contains(&"readonly") { "RO" } else { "RW" });
    for (part, kind, numbers) in [
        ("begin_search", "index", &[("index", first)][..]),
        ("find_keys", "range", &[("lastkey", if last < 0 { last } else { last - first }), ("keystep", step), ("limit", 0)]),
    ] {
        encoder.bulk(part.as_bytes());
        encoder.map(2);
        encoder.bulk(b"type");
        encoder.bulk(kind.as_bytes());
        encoder.bulk(b"spec");
        encoder.map(numbers.len());
        for (name, number) in numbers {
            encoder.bulk(name.as_bytes());
            encoder.integer(*number);
        }
    }
}

/// `COMMAND DOCS`, of these names.
pub fn command_docs(encoder: &mut Encoder<'_>, names: Option<&[Bytes]>) {
    let specs: Vec<&Spec> = match names {
        None => table::all().iter().collect(),
        Some(names) => names.iter().filter_map(|name| Spec::find(name)).collect(),
    };
    encoder.map(specs.len());
    for spec in specs {
        encoder.bulk(spec.name.as_bytes());
        encoder.map(3);
        for (name, value) in [("summary", spec.summary), ("since", spec.since), ("group", spec.group)] {
            encoder.bulk(name.as_bytes());
            encoder.bulk(value.as_bytes());
        }
    }
}

/// `COMMAND LIST`.
pub fn command_list(encoder: &mut Encoder<'_>) {
    encoder.array(table::all().len());
    table::all().iter().for_each(|spec| encoder.bulk(spec.name.as_bytes()));
}

/// `COMMAND GETKEYS` of this command.
pub fn command_keys(encoder: &mut Encoder<'_>, args: &[Bytes]) {
    let Some(spec) = args.first().and_then(|name| Spec::find(name)) else { return encoder.error("ERR Invalid command specified") };
    if !spec.takes(args.len()) {
        return encoder.error("ERR Invalid number of arguments specified for command");
    }
    let (first, last, step) = spec.keys;
    let (Ok(first), Ok(step @ 1..)) = (usize::try_from(first), usize::try_from(step)) else {
        return encoder.error("ERR The command has no key arguments");
    };
    let end = if last < 0 { args.len() } else { (first + 1).min(args.len()) };
    let keys: Vec<&Bytes> = args.get(first..end).unwrap_or_default().iter().step_by(step).collect();
    encoder.array(keys.len());
    keys.iter().for_each(|key| encoder.bulk(key));
}
