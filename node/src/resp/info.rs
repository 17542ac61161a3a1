//! `INFO`, `MEMORY STATS` and `MEMORY DOCTOR`: what a node reports about itself.

use super::databases;
use super::encode::Encoder;
use super::pubsub::ChannelKind;
use super::totals::ThreadCounts;
use super::usage::Usage;
use doyen_placement::Eviction;
use std::net::{IpAddr, Ipv4Addr};

/// The version of Redis whose commands and texts this server follows. Clients choose their commands
/// by it.
pub const REDIS_VERSION: &str = "7.0.15";

/// The facts that `INFO` and `CONFIG GET` need.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // Each is named after its line.
pub struct InfoFacts {
    /// How many channels, patterns and shard channels have subscribers.
    pub subscribed: [u64; 3],
    /// Whether the keys of each database are shown to the user.
    pub databases_shown: [bool; databases::COUNT],
    pub cluster_port: bool,
    pub process_id: u32,
    pub run_id: String,
    /// The cluster of the node, once there is one.
    pub cluster: Option<String>,
    pub address: IpAddr,
    pub tcp_port: u16,
    pub threads: u8,
    pub unix_us: u64,
    pub uptime_s: u64,
    pub connections_max: usize,
    pub memory_bytes_max: u64,
    pub memory_policy: &'static str,
    pub backups: i64,
    pub has_password: bool,
    pub value_bytes_max: usize,
    /// The threads' counters, if they are needed.
    pub counted: ThreadCounts,
}

/// Redis's name for the policy that is most like this one.
pub(crate) const fn memory_policy(eviction: Eviction) -> &'static str {
    match eviction {
        Eviction::None => "noeviction",
        Eviction::Lru => "allkeys-lru",
        Eviction::Random => "allkeys-random",
        Eviction::Ttl => "volatile-ttl",
        Eviction::Lfu => "allkeys-lfu",
    }
}

/// Which of the data threads' counters a question needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InfoNeeds {
    /// Nothing.
    Nothing,
    /// All but `ThreadCounts::databases` and `ThreadCounts::scripts`.
    Counts,
    /// All of them. This looks at each partition.
    Databases,
}

impl Default for InfoFacts {
    fn default() -> Self {
        Self {
            subscribed: [0; 3],
            databases_shown: [true; databases::COUNT],
            cluster_port: false,
            process_id: 0,
            run_id: String::new(),
            cluster: None,
            address: Ipv4Addr::LOCALHOST.into(),
            tcp_port: 0,
            threads: 1,
            unix_us: 0,
            uptime_s: 0,
            connections_max: 0,
            memory_bytes_max: 0,
            memory_policy: "noeviction",
            backups: 0,
            has_password: false,
            value_bytes_max: 0,
            counted: ThreadCounts::default(),
        }
    }
}

/// `INFO` with these sections, named in small letters; with the usual ones if none is named.
#[must_use]
pub fn info(facts: &InfoFacts, sections: &[String]) -> String {
    let mut text = String::new();
    for section in shown(sections) {
        if !text.is_empty() {
            text += "\r\n";
        }
        text += &format!("# {}\r\n", section.name);
        text.extend(
            (section.lines)(facts)
                .into_iter()
                .map(|(name, value)| format!("{name}:{value}\r\n")),
        );
    }
    text
}

/// What `info` with these sections needs.
#[must_use]
pub fn needs(sections: &[String]) -> InfoNeeds {
    shown(sections)
        .map(|section| section.needs)
        .max()
        .unwrap_or(InfoNeeds::Nothing)
}

fn shown(sections: &[String]) -> impl Iterator<Item = &'static InfoSection> {
    /// Sections that are shown only on request.
    const UNUSUAL: [&str; 2] = ["Commandstats", "Latencystats"];
    let asks = |name: &str| sections.iter().any(|s| s.eq_ignore_ascii_case(name));
    let all = asks("all") || asks("everything");
    let usual = sections.is_empty() || asks("default");
    SECTIONS
        .iter()
        .filter(move |s| all || usual && !UNUSUAL.contains(&s.name) || asks(s.name))
}

/// A section of `INFO`.
struct InfoSection {
    name: &'static str,
    needs: InfoNeeds,
    lines: fn(&InfoFacts) -> Lines,
}

const fn section(
    name: &'static str,
    needs: InfoNeeds,
    lines: fn(&InfoFacts) -> Lines,
) -> InfoSection {
    InfoSection { name, needs, lines }
}

/// All of them, in their order.
static SECTIONS: [InfoSection; 13] = [
    section("Server", InfoNeeds::Nothing, server),
    section("Clients", InfoNeeds::Counts, clients),
    section("Memory", InfoNeeds::Databases, memory),
    section("Persistence", InfoNeeds::Nothing, persistence),
    section("Stats", InfoNeeds::Counts, stats),
    section("Replication", InfoNeeds::Nothing, replication),
    section("CPU", InfoNeeds::Nothing, cpu),
    section("Modules", InfoNeeds::Nothing, |_| Vec::new()),
    section("Commandstats", InfoNeeds::Counts, command_stats),
    section("Errorstats", InfoNeeds::Counts, error_stats),
    section("Latencystats", InfoNeeds::Counts, latency_stats),
    section("Cluster", InfoNeeds::Nothing, |facts| {
        lines([("cluster_enabled", u8::from(facts.cluster_port).to_string())])
    }),
    section("Keyspace", InfoNeeds::Databases, keyspace),
];

type Lines = Vec<(String, String)>;

/// Lines with fixed names.
fn lines<const N: usize>(lines: [(&str, String); N]) -> Lines {
    lines
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn clients(facts: &InfoFacts) -> Lines {
    let no = || "0".to_owned();
    lines([
        (
            "connected_clients",
            facts.counted.connected_clients.to_string(),
        ),
        ("cluster_connections", no()),
        ("maxclients", facts.connections_max.to_string()),
        ("blocked_clients", facts.counted.parked.to_string()),
        (
            "tracking_clients",
            facts.counted.tracking.clients.to_string(),
        ),
        ("clients_in_timeout_table", no()),
    ])
}

fn replication(facts: &InfoFacts) -> Lines {
    let no = || "0".to_owned();
    lines([
        ("role", "master".to_owned()),
        ("connected_slaves", facts.backups.to_string()),
        ("master_failover_state", "no-failover".to_owned()),
        ("master_replid", facts.run_id.clone()),
        ("master_replid2", "0".repeat(40)),
        ("master_repl_offset", no()),
        ("second_repl_offset", "-1".to_owned()),
        ("repl_backlog_active", no()),
        ("repl_backlog_size", no()),
        ("repl_backlog_first_byte_offset", no()),
        ("repl_backlog_histlen", no()),
    ])
}

fn cpu(_: &InfoFacts) -> Lines {
    let usage = Usage::now();
    lines([
        ("used_cpu_sys", format!("{:.6}", usage.cpu_system)),
        ("used_cpu_user", format!("{:.6}", usage.cpu_user)),
        (
            "used_cpu_sys_children",
            format!("{:.6}", usage.children_system),
        ),
        (
            "used_cpu_user_children",
            format!("{:.6}", usage.children_user),
        ),
    ])
}

fn error_stats(facts: &InfoFacts) -> Lines {
    facts
        .counted
        .counts
        .errors()
        .iter()
        .map(|(code, n)| (format!("errorstat_{code}"), format!("count={n}")))
        .collect()
}

fn keyspace(facts: &InfoFacts) -> Lines {
    let used = facts
        .counted
        .databases
        .iter()
        .enumerate()
        .filter(|(n, (keys, _))| *keys > 0 && facts.databases_shown[*n]);
    used.map(|(n, (keys, expires))| {
        (
            format!("db{n}"),
            format!("keys={keys},expires={expires},avg_ttl=0"),
        )
    })
    .collect()
}

fn server(facts: &InfoFacts) -> Lines {
    let mode = if facts.cluster_port {
        "cluster"
    } else {
        "standalone"
    };
    let uname = rustix::system::uname();
    let part = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let mut server = lines([
        ("redis_version", REDIS_VERSION.to_owned()),
        ("redis_git_sha1", "00000000".to_owned()),
        ("redis_git_dirty", "0".to_owned()),
        ("redis_build_id", "0".to_owned()),
        ("doyen_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("redis_mode", mode.to_owned()),
        (
            "os",
            format!(
                "{} {} {}",
                part(uname.sysname()),
                part(uname.release()),
                part(uname.machine())
            ),
        ),
        ("arch_bits", usize::BITS.to_string()),
        ("multiplexing_api", "epoll".to_owned()),
        ("process_id", facts.process_id.to_string()),
        ("process_supervised", "no".to_owned()),
        ("run_id", facts.run_id.clone()),
        ("tcp_port", facts.tcp_port.to_string()),
        ("server_time_usec", facts.unix_us.to_string()),
        ("uptime_in_seconds", facts.uptime_s.to_string()),
        ("uptime_in_days", (facts.uptime_s / 86400).to_string()),
        ("hz", "10".to_owned()),
        ("configured_hz", "10".to_owned()),
        (
            "executable",
            std::env::current_exe()
                .map_or_else(|_| String::new(), |path| path.display().to_string()),
        ),
        ("config_file", String::new()),
        ("io_threads_active", u8::from(facts.threads > 1).to_string()),
    ]);
    // `doyen import` must not take the keys of a cluster from the cluster itself.
    let cluster = facts.cluster.iter();
    server.extend(cluster.map(|id| ("doyen_cluster_id".to_owned(), id.clone())));
    server
}

fn memory(facts: &InfoFacts) -> Lines {
    let (counted, usage) = (&facts.counted, Usage::now());
    let (used, peak, resident) = (
        counted.memory_bytes,
        counted.memory_peak_bytes,
        usage.resident_bytes,
    );
    let at_least = used_at_least(used);
    lines([
        ("used_memory", used.to_string()),
        ("used_memory_human", human(used)),
        ("used_memory_rss", resident.to_string()),
        ("used_memory_rss_human", human(resident)),
        ("used_memory_peak", peak.to_string()),
        ("used_memory_peak_human", human(peak)),
        (
            "used_memory_peak_perc",
            format!("{:.2}%", percent(used, peak)),
        ),
        ("used_memory_overhead", counted.client_bytes.to_string()),
        ("used_memory_startup", "0".to_owned()),
        ("used_memory_dataset", used.to_string()),
        ("used_memory_dataset_perc", "100.00%".to_owned()),
        ("total_system_memory", usage.machine_bytes.to_string()),
        ("total_system_memory_human", human(usage.machine_bytes)),
        ("used_memory_lua", "0".to_owned()),
        ("used_memory_lua_human", human(0)),
        ("used_memory_scripts", counted.script_bytes.to_string()),
        ("used_memory_scripts_human", human(counted.script_bytes)),
        ("number_of_cached_scripts", counted.scripts.to_string()),
        ("number_of_functions", "0".to_owned()),
        ("number_of_libraries", "0".to_owned()),
        ("maxmemory", facts.memory_bytes_max.to_string()),
        ("maxmemory_human", human(facts.memory_bytes_max)),
        ("maxmemory_policy", facts.memory_policy.to_owned()),
        (
            "mem_fragmentation_ratio",
            format!("{:.2}", ratio(resident, at_least)),
        ),
        (
            "mem_fragmentation_bytes",
            i128::from(resident)
                .saturating_sub(i128::from(at_least))
                .to_string(),
        ),
        ("mem_not_counted_for_evict", "0".to_owned()),
        ("mem_replication_backlog", "0".to_owned()),
        ("mem_clients_slaves", "0".to_owned()),
        ("mem_clients_normal", counted.client_bytes.to_string()),
        (
            "mem_clients_output",
            counted.client_output_bytes.to_string(),
        ),
        ("mem_cluster_links", "0".to_owned()),
        ("mem_aof_buffer", "0".to_owned()),
        ("mem_allocator", "mimalloc".to_owned()),
        ("active_defrag_running", "0".to_owned()),
        ("lazyfree_pending_objects", "0".to_owned()),
        ("lazyfreed_objects", "0".to_owned()),
    ])
}

/// Nothing is stored on disk, so nothing is loaded and nothing can fail.
fn persistence(facts: &InfoFacts) -> Lines {
    let no = || "0".to_owned();
    let ok = || "ok".to_owned();
    let never = || "-1".to_owned();
    lines([
        ("loading", no()),
        ("async_loading", no()),
        ("current_cow_size", no()),
        ("current_fork_perc", "0.00".to_owned()),
        ("rdb_changes_since_last_save", no()),
        ("rdb_bgsave_in_progress", no()),
        ("rdb_last_save_time", facts.began_unix_s().to_string()),
        ("rdb_last_bgsave_status", ok()),
        ("rdb_last_bgsave_time_sec", never()),
        ("rdb_current_bgsave_time_sec", never()),
        ("rdb_saves", no()),
        ("rdb_last_cow_size", no()),
        ("aof_enabled", no()),
        ("aof_rewrite_in_progress", no()),
        ("aof_rewrite_scheduled", no()),
        ("aof_last_rewrite_time_sec", never()),
        ("aof_current_rewrite_time_sec", never()),
        ("aof_last_bgrewrite_status", ok()),
        ("aof_last_write_status", ok()),
        ("aof_last_cow_size", no()),
        ("module_fork_in_progress", no()),
    ])
}

fn stats(facts: &InfoFacts) -> Lines {
    let (totals, [commands, input, output]) = (&facts.counted.totals, facts.counted.rates);
    let tracking = facts.counted.tracking;
    let no = || "0".to_owned();
    let kilobytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    lines([
        (
            "total_connections_received",
            totals.front.connections.to_string(),
        ),
        (
            "total_commands_processed",
            totals.front.commands.to_string(),
        ),
        ("instantaneous_ops_per_sec", commands.to_string()),
        (
            "total_net_input_bytes",
            totals.front.input_bytes.to_string(),
        ),
        (
            "total_net_output_bytes",
            totals.front.output_bytes.to_string(),
        ),
        ("instantaneous_input_kbps", kilobytes(input)),
        ("instantaneous_output_kbps", kilobytes(output)),
        (
            "rejected_connections",
            totals.front.connections_rejected.to_string(),
        ),
        ("sync_full", no()),
        ("sync_partial_ok", no()),
        ("sync_partial_err", no()),
        (
            "acl_access_denied_auth",
            totals.front.auth_failures.to_string(),
        ),
        ("acl_access_denied_cmd", totals.front.denied[0].to_string()),
        ("acl_access_denied_key", totals.front.denied[1].to_string()),
        (
            "acl_access_denied_channel",
            totals.front.denied[2].to_string(),
        ),
        (
            "client_output_buffer_limit_disconnections",
            totals.connections_expelled.to_string(),
        ),
        ("expired_keys", totals.expired.to_string()),
        ("expired_stale_perc", "0.00".to_owned()),
        ("expired_time_cap_reached_count", no()),
        ("evicted_keys", totals.evicted.to_string()),
        ("evicted_clients", no()),
        ("keyspace_hits", totals.hits.to_string()),
        ("keyspace_misses", totals.misses.to_string()),
        (
            "pubsub_channels",
            facts.subscribed[ChannelKind::Channel.at()].to_string(),
        ),
        (
            "pubsub_patterns",
            facts.subscribed[ChannelKind::Pattern.at()].to_string(),
        ),
        (
            "pubsubshard_channels",
            facts.subscribed[ChannelKind::Shard.at()].to_string(),
        ),
        ("latest_fork_usec", no()),
        ("total_forks", no()),
        ("migrate_cached_sockets", no()),
        ("slave_expires_tracked_keys", no()),
        ("active_defrag_hits", no()),
        ("active_defrag_misses", no()),
        ("active_defrag_key_hits", no()),
        ("active_defrag_key_misses", no()),
        ("tracking_total_keys", tracking.keys.to_string()),
        ("tracking_total_items", tracking.items.to_string()),
        ("tracking_total_prefixes", tracking.prefixes.to_string()),
        ("unexpected_error_replies", no()),
        ("total_error_replies", totals.front.errors.to_string()),
    ])
}

fn command_stats(facts: &InfoFacts) -> Lines {
    let lines = facts.counted.counts.commands().map(|(name, count)| {
        let each = if count.calls == 0 {
            0.0
        } else {
            count.micros() as f64 / count.calls as f64
        };
        let value = format!(
            "calls={},usec={},usec_per_call={each:.2},rejected_calls={},failed_calls={}",
            count.calls,
            count.micros(),
            count.rejected,
            count.failed
        );
        (format!("cmdstat_{name}"), value)
    });
    lines.collect()
}

fn latency_stats(facts: &InfoFacts) -> Lines {
    let all = facts.counted.counts.percentiles([500, 990, 999]);
    let lines = all.map(|(name, [half, most, nearly_all])| {
        (
            format!("latency_percentiles_usec_{name}"),
            format!("p50={half}.000,p99={most}.000,p99.9={nearly_all}.000"),
        )
    });
    lines.collect()
}

impl InfoFacts {
    /// When this node began, in Unix seconds.
    #[must_use]
    pub fn began_unix_s(&self) -> u64 {
        (self.unix_us / 1_000_000).saturating_sub(self.uptime_s)
    }
}

/// As Redis shortens numbers of bytes.
fn human(bytes: u64) -> String {
    let units = ["K", "M", "G", "T"];
    let mut scaled = bytes as f64;
    let mut unit = "B";
    for larger in units {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = larger;
    }
    if unit == "B" {
        format!("{bytes}B")
    } else {
        format!("{scaled:.2}{unit}")
    }
}

/// Redis divides its resident memory by all that it uses, with the program's own part. Here that is
/// data alone, so less of it than the program takes counts as that.
fn used_at_least(used: u64) -> u64 {
    used.max(Usage::resident_bytes_at_start())
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * ratio(part, whole)
}

/// `MEMORY STATS`.
pub(crate) fn memory_stats(encoder: &mut Encoder<'_>, facts: &InfoFacts) {
    let counted = &facts.counted;
    let (used, resident) = (counted.memory_bytes, Usage::now().resident_bytes);
    let at_least = used_at_least(used);
    let numbers = [
        ("peak.allocated", counted.memory_peak_bytes),
        ("total.allocated", used),
        ("startup.allocated", 0),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", counted.client_bytes),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
        ("overhead.total", counted.client_bytes),
        ("keys.count", counted.keys_held),
        (
            "keys.bytes-per-key",
            used.checked_div(counted.keys_held).unwrap_or(0),
        ),
        ("dataset.bytes", used),
        ("fragmentation.bytes", resident.saturating_sub(at_least)),
    ];
    let ratios = [
        ("dataset.percentage", 100.0),
        ("peak.percentage", percent(used, counted.memory_peak_bytes)),
        ("fragmentation", ratio(resident, at_least)),
    ];
    encoder.map(numbers.len() + ratios.len());
    for (name, number) in numbers {
        encoder.bulk(name.as_bytes());
        encoder.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }
    for (name, ratio) in ratios {
        encoder.bulk(name.as_bytes());
        encoder.double(ratio);
    }
}

/// `MEMORY DOCTOR`.
pub(crate) fn memory_doctor(facts: &InfoFacts) -> String {
    /// From this percentage of the limit on, writes may be refused or keys evicted.
    const FULL: f64 = 90.0;
    let counted = &facts.counted;
    let filled = percent(counted.memory_bytes, facts.memory_bytes_max);
    let used = human(counted.memory_bytes);
    if filled < FULL {
        return format!(
            "This node uses {used}, {filled:.0} % of its memory limit. No action is needed.\n"
        );
    }
    let evicts = facts.memory_policy != "noeviction";
    let then = if evicts {
        "keys are evicted"
    } else {
        "writes that need memory are refused"
    };
    format!(
        "This node uses {used}, {filled:.0} % of its memory limit, so {then}. \
         Add a node, or raise --memory-max.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::totals::Totals;

    fn sections(asked: &[&str]) -> Vec<String> {
        let asked: Vec<String> = asked.iter().map(|s| (*s).to_owned()).collect();
        let text = info(&InfoFacts::default(), &asked);
        text.lines()
            .filter_map(|l| l.strip_prefix("# "))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn sections_are_chosen_as_redis_chooses_them() {
        let usual = sections(&[]);
        assert_eq!(usual, sections(&["default"]));
        assert!(
            usual.contains(&"Errorstats".to_owned()) && !usual.contains(&"Commandstats".to_owned())
        );
        assert_eq!(sections(&["all"]), sections(&["everything"]));
        assert_eq!(sections(&["all"]).len(), usual.len() + 2);
        assert_eq!(
            sections(&["cpu", "server"]),
            ["Server", "CPU"],
            "in their order"
        );
        assert_eq!(
            sections(&["default", "commandstats"]).len(),
            usual.len() + 1
        );
        assert!(sections(&["nosuch"]).is_empty());
    }

    /// Regression: `INFO server` looked at all partitions of all threads.
    #[test]
    fn a_section_takes_no_more_than_it_shows() {
        let needs = |asked: &[&str]| {
            super::needs(&asked.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            needs(&["server", "cpu", "replication", "cluster"]),
            InfoNeeds::Nothing
        );
        assert_eq!(needs(&["nosuch"]), InfoNeeds::Nothing);
        assert_eq!(needs(&["server", "Stats"]), InfoNeeds::Counts);
        for all in [&[][..], &["default"], &["everything"], &["keyspace"]] {
            assert_eq!(needs(all), InfoNeeds::Databases);
        }
    }

    /// The ratio of a node without keys was some thousands, which monitoring takes for a leak.
    #[test]
    fn memory_of_the_program_itself_is_no_fragmentation() {
        Usage::resident_bytes_at_start();
        for used in [0, 800] {
            let counted = ThreadCounts {
                memory_bytes: used,
                ..ThreadCounts::default()
            };
            let facts = InfoFacts {
                counted,
                ..InfoFacts::default()
            };
            let text = info(&facts, &["memory".to_owned()]);
            let mut ratios = text
                .lines()
                .filter_map(|line| line.strip_prefix("mem_fragmentation_ratio:"));
            let ratio: f64 = ratios.next().expect("a line").parse().expect("a number");
            assert!((0.1..100.0).contains(&ratio), "{used}: {ratio}");
        }
    }

    #[test]
    fn bytes_are_shortened_as_redis_shortens_them() {
        let shown = [0, 1023, 1024, 894_960, 12 << 20, 25_276_502_016, u64::MAX].map(human);
        assert_eq!(
            shown,
            [
                "0B",
                "1023B",
                "1.00K",
                "873.98K",
                "12.00M",
                "23.54G",
                "16777216.00T"
            ]
        );
    }

    #[test]
    fn counters_of_threads_are_added_and_earlier_counts_left_out() {
        let mut one = ThreadCounts {
            totals: Totals {
                hits: 5,
                evicted: 7,
                ..Totals::default()
            },
            rates: [1, 2, 3],
            ..ThreadCounts::default()
        };
        one.databases[3] = (1, 0);
        let mut all = one.clone();
        all.add(&one);
        assert_eq!(
            (all.databases[3].0, all.totals.hits, all.rates),
            (2, 10, [2, 4, 6])
        );
        let since = all.totals.since(&one.totals);
        assert_eq!((since.hits, since.evicted), (5, 7));
    }
}
