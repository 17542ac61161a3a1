//! `CONFIG`: the settings that dashboards read, and the few that can change while the server runs.

use super::acl::log::ENTRIES_MAX;
use super::databases;
use super::encode::Encoder;
use super::info::InfoFacts;
use crate::key_events::KeyEvents;
use crate::net::keepalive::KEEPALIVE_S_MAX;
use bytes::Bytes;
use doyen_engine::glob;
use doyen_gossip::Time;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Most entries in the slow log of each thread.
const SLOW_ENTRIES_MAX: i64 = 1024;
/// Most entries of `ACL LOG`.
const ACL_ENTRIES_MAX: i64 = 10_000;
/// If the threshold of the slow log is below this, every command is timed, including those that
/// never take so long.
const TIMES_ALL_BELOW_US: i64 = 1000;
/// Files that a node needs besides those of clients.
const OTHER_FILES: i64 = 64;

/// Settings that can change while the node runs. All threads read them, and each setting is
/// independent of the others.
#[derive(Debug)]
pub(crate) struct RespSettings {
    /// Commands from this many microseconds on are slow. Negative: no command is.
    slow_us: AtomicI64,
    slow_entries: AtomicUsize,
    /// Entries of `ACL LOG`.
    acl_entries: AtomicUsize,
    /// Milliseconds that a client may be idle. 0: for ever.
    timeout_ms: AtomicU64,
    clients_max: AtomicUsize,
    /// Which messages about keys there are, and which there are unless the table says.
    events: AtomicU32,
    own_events: AtomicU32,
    /// Seconds until the system asks a silent client for a sign of life. 0: for ever.
    keepalive_s: AtomicU32,
    /// `client-output-buffer-limit` of each class, in the order of its numbers.
    output: [[AtomicU64; 3]; CLASSES.len()],
}

/// What `CONFIG SET` sets: checked, and not set yet.
#[derive(Debug, Default)]
pub(crate) struct WantedSettings {
    numbers: Vec<(String, i64)>,
    output: Vec<(usize, OutputLimit)>,
    /// Which messages about keys there are to be.
    pub(crate) events: Option<KeyEvents>,
}

/// The classes of clients that have limits of their own.
const CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

/// How much output of one client may wait until it is closed. 0: there is no such limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OutputLimit {
    /// It is closed at once.
    pub(crate) hard: u64,
    /// It is closed if this much has waited for longer than `soft_s`.
    pub(crate) soft: u64,
    soft_s: u64,
}

impl OutputLimit {
    /// The limits of Redis: nothing for normal clients, which wait for their answers; replicas,
    /// which do not exist here; and subscribers.
    const DEFAULTS: [Self; CLASSES.len()] = [
        Self::of(0, 0, 0),
        Self::of(256 << 20, 64 << 20, 60),
        Self::of(32 << 20, 8 << 20, 60),
    ];

    const fn of(hard: u64, soft: u64, soft_s: u64) -> Self {
        Self { hard, soft, soft_s }
    }

    /// Whether there is none.
    pub(crate) const fn is_none(&self) -> bool {
        self.hard == 0 && self.soft == 0
    }

    /// Whether a client with `waiting` bytes of output is closed at once.
    pub(crate) const fn is_reached(&self, waiting: usize) -> bool {
        self.hard > 0 && waiting as u64 >= self.hard
    }

    /// Whether a client with `waiting` bytes of output is closed. It has exceeded the soft limit
    /// since `since`.
    pub(crate) fn ends(&self, waiting: usize, since: &mut Option<Time>, now: Time) -> bool {
        if self.is_reached(waiting) {
            return true;
        }
        if self.soft == 0 || (waiting as u64) < self.soft {
            *since = None;
            return false;
        }
        now.since(*since.get_or_insert(now)) > Duration::from_secs(self.soft_s)
    }

    /// Limits as Redis writes them: groups of a class, two sizes and seconds.
    fn parse(text: &str) -> Result<Vec<(usize, Self)>, &'static str> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (groups, rest) = words.as_chunks::<4>();
        if !rest.is_empty() || groups.is_empty() {
            return Err("Wrong number of arguments in buffer limit configuration.");
        }
        let group = |[class, hard, soft, soft_s]: &[&str; 4]| {
            let class = class.to_ascii_lowercase();
            let class = if class == "replica" { "slave" } else { &class };
            let at = CLASSES.iter().position(|known| *known == class);
            let at = at.ok_or("Invalid client class specified in buffer limit configuration.")?;
            let limit = size(hard).zip(size(soft)).zip(soft_s.parse().ok());
            let wrong =
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
            let ((hard, soft), soft_s) = limit.ok_or(wrong)?;
            Ok((at, Self::of(hard, soft, soft_s)))
        };
        groups.iter().map(group).collect()
    }
}

/// A number of bytes as Redis writes it: `1k` is 1000, `1kb` is 1024.
fn size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let factor: u64 = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(factor)
}

impl RespSettings {
    pub(crate) fn new(
        clients_max: usize,
        timeout: Option<Duration>,
        keepalive: Duration,
        events: KeyEvents,
    ) -> Self {
        let keepalive_s = keepalive.as_millis().div_ceil(1000);
        let keepalive_s = u32::try_from(keepalive_s).unwrap_or(u32::MAX);
        let timeout_ms = timeout.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX));
        Self {
            slow_us: AtomicI64::new(10_000),
            slow_entries: AtomicUsize::new(128),
            acl_entries: AtomicUsize::new(ENTRIES_MAX),
            timeout_ms: AtomicU64::new(timeout_ms),
            clients_max: AtomicUsize::new(clients_max),
            events: AtomicU32::new(events.bits()),
            own_events: AtomicU32::new(events.bits()),
            keepalive_s: AtomicU32::new(keepalive_s.min(KEEPALIVE_S_MAX)),
            output: OutputLimit::DEFAULTS
                .map(|limit| [limit.hard, limit.soft, limit.soft_s].map(AtomicU64::new)),
        }
    }

    /// Seconds until the system asks a silent client for a sign of life. 0: for ever.
    #[inline]
    pub(crate) fn keepalive_s(&self) -> u32 {
        self.keepalive_s.load(Ordering::Relaxed)
    }

    /// How much output of a client without subscriptions may wait.
    pub(crate) fn output_normal(&self) -> OutputLimit {
        self.output_of(0)
    }

    /// How many messages of a client with subscriptions may wait, in bytes.
    pub(crate) fn output_pubsub(&self) -> OutputLimit {
        self.output_of(2)
    }

    fn output_of(&self, class: usize) -> OutputLimit {
        let [hard, soft, soft_s] = &self.output[class];
        let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
        OutputLimit::of(number(hard), number(soft), number(soft_s))
    }

    fn output_text(&self) -> String {
        let class = |(at, name): (usize, &&str)| {
            let limit = self.output_of(at);
            format!("{name} {} {} {}", limit.hard, limit.soft, limit.soft_s)
        };
        let all: Vec<String> = CLASSES.iter().enumerate().map(class).collect();
        all.join(" ")
    }

    /// Whether a command that took so long is kept in the slow log.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        let least = self.slow_us.load(Ordering::Relaxed);
        u128::try_from(least).is_ok_and(|least| took.as_micros() >= least)
    }

    /// Whether every command is to be timed.
    #[inline]
    pub(crate) fn times_all(&self) -> bool {
        (0..TIMES_ALL_BELOW_US).contains(&self.slow_us.load(Ordering::Relaxed))
    }

    pub(crate) fn slow_entries(&self) -> usize {
        self.slow_entries.load(Ordering::Relaxed)
    }

    /// Most entries of `ACL LOG`.
    pub(crate) fn acl_entries(&self) -> usize {
        self.acl_entries.load(Ordering::Relaxed)
    }

    /// How long a client may be idle.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        Some(self.timeout_ms.load(Ordering::Relaxed))
            .filter(|ms| *ms > 0)
            .map(Duration::from_millis)
    }

    pub(crate) fn clients_max(&self) -> usize {
        self.clients_max.load(Ordering::Relaxed)
    }

    /// Which messages about keys there are.
    pub(crate) fn events(&self) -> KeyEvents {
        KeyEvents::of_bits(self.events.load(Ordering::Relaxed))
    }

    /// The messages about keys that the table says; `None`: those that this node was started with.
    pub(crate) fn use_events(&self, of_table: Option<u32>) {
        let events = of_table.unwrap_or_else(|| self.own_events.load(Ordering::Relaxed));
        self.events.store(events, Ordering::Relaxed);
    }

    /// What is to be set: all of these, or none.
    ///
    /// # Errors
    /// Redis's text about the first setting that cannot be set.
    pub(crate) fn check(
        &self,
        facts: &InfoFacts,
        wanted: &[(String, Bytes)],
    ) -> Result<WantedSettings, String> {
        let (mut numbers, mut events, mut output) = (Vec::new(), None, Vec::new());
        for (at, (name, value)) in wanted.iter().enumerate() {
            let failed = |why: &str| {
                format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
            };
            if wanted[..at].iter().any(|(before, _)| before == name) {
                return Err(failed("duplicate parameter"));
            }
            let range = match name.as_str() {
                "notify-keyspace-events" => {
                    let letters = String::from_utf8_lossy(value);
                    let set: KeyEvents = letters.parse().map_err(|why: String| failed(&why))?;
                    events = Some(set);
                    continue;
                }
                "client-output-buffer-limit" => {
                    let limits = String::from_utf8_lossy(value);
                    output = OutputLimit::parse(&limits).map_err(failed)?;
                    continue;
                }
                "tcp-keepalive" => 0..=i64::from(KEEPALIVE_S_MAX),
                "slowlog-log-slower-than" => -1..=i64::MAX,
                "acllog-max-len" => 0..=ACL_ENTRIES_MAX,
                "slowlog-max-len" => 0..=SLOW_ENTRIES_MAX,
                "timeout" => 0..=i64::from(i32::MAX),
                "maxclients" => 1..=files_max().saturating_sub(OTHER_FILES).max(1),
                _ => {
                    let present = all(facts, self)
                        .into_iter()
                        .find(|(known, _)| known == name);
                    let Some((_, present)) = present else {
                        return Err(format!(
                            "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                        ));
                    };
                    if present.as_bytes() != value {
                        return Err(failed("can't set immutable config"));
                    }
                    continue;
                }
            };
            let number = doyen_engine::integer(value)
                .ok_or_else(|| failed("argument couldn't be parsed into an integer"))?;
            if !range.contains(&number) {
                return Err(failed(&format!(
                    "argument must be between {} and {} inclusive",
                    range.start(),
                    range.end()
                )));
            }
            numbers.push((name.clone(), number));
        }
        Ok(WantedSettings {
            numbers,
            output,
            events,
        })
    }

    /// Sets these at this node. Messages about keys: unless the table says which ones there are.
    pub(crate) fn set(&self, wanted: WantedSettings, of_table: bool) {
        if let Some(events) = wanted.events.filter(|_| !of_table) {
            self.own_events.store(events.bits(), Ordering::Relaxed);
            self.events.store(events.bits(), Ordering::Relaxed);
        }
        for (class, limit) in wanted.output {
            let numbers = [limit.hard, limit.soft, limit.soft_s];
            let stored = self.output[class].iter().zip(numbers);
            stored.for_each(|(stored, number)| stored.store(number, Ordering::Relaxed));
        }
        for (name, number) in wanted.numbers {
            let count = usize::try_from(number).unwrap_or_default();
            match name.as_str() {
                "slowlog-log-slower-than" => self.slow_us.store(number, Ordering::Relaxed),
                "acllog-max-len" => self.acl_entries.store(count, Ordering::Relaxed),
                "slowlog-max-len" => self.slow_entries.store(count, Ordering::Relaxed),
                "tcp-keepalive" => self.keepalive_s.store(
                    u32::try_from(count).unwrap_or(KEEPALIVE_S_MAX),
                    Ordering::Relaxed,
                ),
                "timeout" => self
                    .timeout_ms
                    .store((count as u64).saturating_mul(1000), Ordering::Relaxed),
                _ => self.clients_max.store(count, Ordering::Relaxed),
            }
        }
    }
}

/// Open files that the system allows this process.
fn files_max() -> i64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit
        .and_then(|files| i64::try_from(files).ok())
        .unwrap_or(i64::MAX)
}

/// Every setting that is shown, in order of name: the settings of Redis that have a meaning here.
fn all(facts: &InfoFacts, settings: &RespSettings) -> Vec<(&'static str, String)> {
    let no = || "no".to_owned();
    vec![
        ("acl-pubsub-default", "resetchannels".to_owned()),
        ("acllog-max-len", settings.acl_entries().to_string()),
        ("activedefrag", no()),
        ("appendfsync", "everysec".to_owned()),
        ("appendonly", no()),
        ("bind", facts.address.to_string()),
        ("client-output-buffer-limit", settings.output_text()),
        (
            "cluster-enabled",
            if facts.cluster_port { "yes" } else { "no" }.to_owned(),
        ),
        ("cluster-require-full-coverage", no()),
        (
            "databases",
            if facts.cluster_port {
                1
            } else {
                databases::COUNT
            }
            .to_string(),
        ),
        ("enable-debug-command", no()),
        ("enable-module-command", no()),
        ("hz", "10".to_owned()),
        ("io-threads", facts.threads.to_string()),
        ("latency-monitor-threshold", "0".to_owned()),
        ("latency-tracking", "yes".to_owned()),
        ("maxclients", settings.clients_max().to_string()),
        ("maxmemory", facts.memory_bytes_max.to_string()),
        ("maxmemory-clients", "0".to_owned()),
        ("maxmemory-policy", facts.memory_policy.to_owned()),
        ("notify-keyspace-events", settings.events().to_string()),
        ("port", facts.tcp_port.to_string()),
        ("protected-mode", no()),
        ("proto-max-bulk-len", facts.value_bytes_max.to_string()),
        (
            "requirepass",
            if facts.has_password { "(set)" } else { "" }.to_owned(),
        ),
        ("save", String::new()),
        (
            "slowlog-log-slower-than",
            settings.slow_us.load(Ordering::Relaxed).to_string(),
        ),
        ("slowlog-max-len", settings.slow_entries().to_string()),
        ("tcp-keepalive", settings.keepalive_s().to_string()),
        (
            "timeout",
            settings
                .timeout_ms
                .load(Ordering::Relaxed)
                .div_ceil(1000)
                .to_string(),
        ),
    ]
}

/// `CONFIG GET` of these patterns.
pub(crate) fn encode(
    encoder: &mut Encoder<'_>,
    facts: &InfoFacts,
    settings: &RespSettings,
    patterns: &[Bytes],
) {
    let wanted = |name: &str| {
        patterns
            .iter()
            .any(|p| glob::matches(&p.to_ascii_lowercase(), name.as_bytes()))
    };
    let found: Vec<_> = all(facts, settings)
        .into_iter()
        .filter(|(name, _)| wanted(name))
        .collect();
    encoder.map(found.len());
    for (name, value) in found {
        encoder.bulk(name.as_bytes());
        encoder.bulk(value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &RespSettings, pairs: &[(&str, &str)]) -> Result<(), String> {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Bytes::copy_from_slice(value.as_bytes())))
            .collect();
        settings
            .check(&InfoFacts::default(), &pairs)
            .map(|wanted| settings.set(wanted, false))
    }

    #[test]
    fn settings_are_set_all_or_none() {
        let settings = RespSettings::new(10, None, Duration::ZERO, KeyEvents::default());
        set(
            &settings,
            &[
                ("slowlog-log-slower-than", "0"),
                ("timeout", "7"),
                ("maxclients", "5"),
            ],
        )
        .unwrap();
        assert!(settings.is_slow(Duration::ZERO) && settings.times_all());
        assert_eq!(
            (settings.timeout(), settings.clients_max()),
            (Some(Duration::from_secs(7)), 5)
        );
        let failed = "ERR CONFIG SET failed (possibly related to argument";
        for (pairs, why) in [
            (
                &[("timeout", "1"), ("port", "1")][..],
                format!("{failed} 'port') - can't set immutable config"),
            ),
            (
                &[("timeout", "1"), ("timeout", "2")],
                format!("{failed} 'timeout') - duplicate parameter"),
            ),
            (
                &[("timeout", "1"), ("maxclients", "x")],
                format!("{failed} 'maxclients') - argument couldn't be parsed into an integer"),
            ),
            (
                &[("timeout", "1"), ("slowlog-max-len", "-1")],
                format!(
                    "{failed} 'slowlog-max-len') - argument must be between 0 and 1024 inclusive"
                ),
            ),
            (
                &[("timeout", "1"), ("nosuch", "1")],
                "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'".to_owned(),
            ),
        ] {
            assert_eq!(set(&settings, pairs), Err(why));
        }
        assert_eq!(
            settings.timeout(),
            Some(Duration::from_secs(7)),
            "nothing was set"
        );
        set(&settings, &[("save", ""), ("appendonly", "no")]).expect("they are so already");
        set(&settings, &[("slowlog-log-slower-than", "-1")]).unwrap();
        assert!(!settings.is_slow(Duration::MAX) && !settings.times_all());
    }

    #[test]
    fn settings_are_told_in_order_of_name() {
        assert!(
            all(
                &InfoFacts::default(),
                &RespSettings::new(1, None, Duration::ZERO, KeyEvents::default())
            )
            .is_sorted_by_key(|(name, _)| *name)
        );
    }

    /// Every text was compared with redis-server 7.0.15.
    #[test]
    fn limits_of_output_are_those_of_redis() {
        let settings =
            RespSettings::new(1, None, Duration::from_millis(1_500), KeyEvents::default());
        assert_eq!(settings.keepalive_s(), 2);
        let text = |settings: &RespSettings| settings.output_text();
        assert_eq!(
            text(&settings),
            "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
        );
        let name = "client-output-buffer-limit";
        set(&settings, &[(name, "normal 1mb 2k 3 PubSub 4gb 5KB 6")]).unwrap();
        set(
            &settings,
            &[(name, "replica 1 2 3"), ("tcp-keepalive", "0")],
        )
        .unwrap();
        let now = "normal 1048576 2000 3 slave 1 2 3 pubsub 4294967296 5120 6";
        assert_eq!((text(&settings).as_str(), settings.keepalive_s()), (now, 0));
        for (wrong, why) in [
            (
                "",
                "Wrong number of arguments in buffer limit configuration.",
            ),
            (
                "normal 1 2",
                "Wrong number of arguments in buffer limit configuration.",
            ),
            (
                "master 1 2 3",
                "Invalid client class specified in buffer limit configuration.",
            ),
            (
                "normal 1 2 3 pubsub 1 x 3",
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            ),
            (
                "normal 1 2 -3",
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            ),
            (
                "normal 99999999999gb 2 3",
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            ),
        ] {
            let failed = "ERR CONFIG SET failed (possibly related to argument";
            let why = format!("{failed} '{name}') - {why}");
            assert_eq!(set(&settings, &[(name, wrong)]), Err(why));
        }
        assert_eq!(text(&settings), now, "nothing was set");
    }

    #[test]
    fn a_client_is_closed_at_the_hard_limit_and_after_the_time_of_the_soft_one() {
        let at = |s: u64| Time(s * 1_000_000_000);
        let (limit, mut since) = (OutputLimit::of(100, 10, 60), None);
        assert!(!limit.ends(99, &mut since, at(5)) && limit.ends(100, &mut since, at(5)));
        assert!(!limit.ends(10, &mut since, at(65)), "not longer than that");
        assert!(limit.ends(10, &mut since, at(66)));
        assert!(!limit.ends(9, &mut since, at(67)), "it has caught up");
        assert!(!limit.ends(50, &mut since, at(68)) && !limit.ends(50, &mut since, at(128)));
        assert!(limit.ends(50, &mut since, at(129)));
        let none = OutputLimit::default();
        assert!(none.is_none() && !none.ends(usize::MAX, &mut since, at(500)));
        assert_eq!(since, None);
    }
}
