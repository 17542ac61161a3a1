//! `CONFIG`: the settings that dashboards read, and the few that can change while the server runs.

use super::acl::log::ENTRIES_MAX;
use super::databases;
use super::encode::Encoder;
use super::info::Facts;
use crate::config::KeyEvents;
use bytes::Bytes;
use doyen_engine::glob;
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
pub(crate) struct Settings {
    /// Commands from so many microseconds on are slow. Negative: no command is.
    slow_us: AtomicI64,
    slow_entries: AtomicUsize,
    /// Entries of `ACL LOG`.
    acl_entries: AtomicUsize,
    /// Milliseconds that a client may be idle. 0: for ever.
    timeout_ms: AtomicU64,
    clients_max: AtomicUsize,
    /// Which messages about keys there are.
    events: AtomicU32,
}

impl Settings {
    pub(crate) fn new(clients_max: usize, timeout: Option<Duration>, events: KeyEvents) -> Self {
        let timeout_ms = timeout.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX));
        Self {
            slow_us: AtomicI64::new(10_000),
            slow_entries: AtomicUsize::new(128),
            acl_entries: AtomicUsize::new(ENTRIES_MAX),
            timeout_ms: AtomicU64::new(timeout_ms),
            clients_max: AtomicUsize::new(clients_max),
            events: AtomicU32::new(events.bits()),
        }
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

    /// Sets all of these, or none.
    ///
    /// # Errors
    /// Redis's text about the first setting that cannot be set.
    pub(crate) fn set(&self, facts: &Facts, wanted: &[(String, Bytes)]) -> Result<(), String> {
        let (mut numbers, mut events) = (Vec::new(), None);
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
            numbers.push((name.as_str(), number));
        }
        if let Some(events) = events {
            self.events.store(events.bits(), Ordering::Relaxed);
        }
        for (name, number) in numbers {
            let count = usize::try_from(number).unwrap_or_default();
            match name {
                "slowlog-log-slower-than" => self.slow_us.store(number, Ordering::Relaxed),
                "acllog-max-len" => self.acl_entries.store(count, Ordering::Relaxed),
                "slowlog-max-len" => self.slow_entries.store(count, Ordering::Relaxed),
                "timeout" => self
                    .timeout_ms
                    .store((count as u64).saturating_mul(1000), Ordering::Relaxed),
                _ => self.clients_max.store(count, Ordering::Relaxed),
            }
        }
        Ok(())
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
fn all(facts: &Facts, settings: &Settings) -> Vec<(&'static str, String)> {
    let no = || "no".to_owned();
    vec![
        ("acl-pubsub-default", "resetchannels".to_owned()),
        ("acllog-max-len", settings.acl_entries().to_string()),
        ("activedefrag", no()),
        ("appendfsync", "everysec".to_owned()),
        ("appendonly", no()),
        ("bind", facts.address.to_string()),
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
        ("latency-tracking", no()),
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
        ("tcp-keepalive", "0".to_owned()),
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
    facts: &Facts,
    settings: &Settings,
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

    fn set(settings: &Settings, pairs: &[(&str, &str)]) -> Result<(), String> {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Bytes::copy_from_slice(value.as_bytes())))
            .collect();
        settings.set(&Facts::default(), &pairs)
    }

    #[test]
    fn settings_are_set_all_or_none() {
        let settings = Settings::new(10, None, KeyEvents::default());
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
                &Facts::default(),
                &Settings::new(1, None, KeyEvents::default())
            )
            .is_sorted_by_key(|(name, _)| *name)
        );
    }
}
