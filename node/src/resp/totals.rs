//! What a data thread counts of its clients, and what `INFO` shows of all threads together.

use super::acl::log::Reason;
use super::counts::CommandCounts;
use super::databases;
use crate::data::DataStats;

/// The counters of one data thread.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)] // Each is named after its line.
pub struct ThreadCounts {
    pub connected_clients: u64,
    pub client_bytes: u64,
    pub client_output_bytes: u64,
    pub memory_bytes: u64,
    pub memory_peak_bytes: u64,
    pub parked: u64,
    /// For the partitions of `default` that are led here: the keys of each database, and how many
    /// of them expire.
    pub databases: Box<[(u64, u64); databases::COUNT]>,
    /// The scripts that are stored in these partitions or kept by the thread, and their bytes.
    pub scripts: u64,
    pub script_bytes: u64,
    /// Keys of all keyspaces, including those of backups.
    pub keys_held: u64,
    pub totals: Totals,
    /// Commands, bytes received and bytes sent, per second.
    pub rates: [u64; 3],
    pub counts: CommandCounts,
}

/// Counters that `CONFIG RESETSTAT` sets to zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named after its line.
pub struct Totals {
    pub connections_received: u64,
    pub connections_rejected: u64,
    pub commands: u64,
    pub errors: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub expired: u64,
    pub evicted: u64,
    pub auth_failures: u64,
    pub denied: [u64; 3],
    /// Because of the output that waited for them.
    pub connections_expelled: u64,
    pub hits: u64,
    pub misses: u64,
}

impl Totals {
    fn map(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            connections_received: of(self.connections_received, other.connections_received),
            connections_rejected: of(self.connections_rejected, other.connections_rejected),
            commands: of(self.commands, other.commands),
            errors: of(self.errors, other.errors),
            input_bytes: of(self.input_bytes, other.input_bytes),
            output_bytes: of(self.output_bytes, other.output_bytes),
            expired: of(self.expired, other.expired),
            evicted: of(self.evicted, other.evicted),
            auth_failures: of(self.auth_failures, other.auth_failures),
            denied: [0, 1, 2].map(|at| of(self.denied[at], other.denied[at])),
            connections_expelled: of(self.connections_expelled, other.connections_expelled),
            hits: of(self.hits, other.hits),
            misses: of(self.misses, other.misses),
        }
    }

    /// What was counted since `earlier`. (Counters of a former member of this process are gone with
    /// it.)
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.map(earlier, u64::saturating_sub)
    }
}

impl ThreadCounts {
    /// Adds what another thread counts.
    pub fn add(&mut self, other: &Self) {
        self.connected_clients += other.connected_clients;
        self.client_bytes += other.client_bytes;
        self.client_output_bytes += other.client_output_bytes;
        self.memory_bytes += other.memory_bytes;
        self.memory_peak_bytes += other.memory_peak_bytes;
        self.parked += other.parked;
        for ((keys, expires), (more, expire)) in self.databases.iter_mut().zip(*other.databases) {
            *keys += more;
            *expires += expire;
        }
        self.scripts += other.scripts;
        self.script_bytes += other.script_bytes;
        self.keys_held += other.keys_held;
        self.totals = self.totals.map(&other.totals, u64::saturating_add);
        self.rates
            .iter_mut()
            .zip(other.rates)
            .for_each(|(mine, other)| *mine += other);
        self.counts.add(&other.counts);
    }
}

/// What a thread counts of its clients.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientCounters {
    pub(super) connections: u64,
    pub(super) connections_rejected: u64,
    pub(super) connections_expelled: u64,
    pub(super) commands: u64,
    pub(super) errors: u64,
    pub(super) protocol_errors: u64,
    /// Bytes received from clients, and sent to them.
    pub(super) input_bytes: u64,
    pub(super) output_bytes: u64,
    pub(super) auth_timeouts: u64,
    pub(super) idle_timeouts: u64,
    pub(super) strangers_ended: u64,
    /// Wrong passwords.
    pub(super) auth_failures: u64,
    /// Clients without subscriptions that were closed because too much output waited for them.
    pub(super) output_limited: u64,
    /// Commands that were refused because of the command, a key, and a channel.
    pub(super) denied: [u64; 3],
}

impl ClientCounters {
    /// A user may not do something.
    pub(super) fn count_denied(&mut self, reason: Reason) {
        let [command, key, channel] = &mut self.denied;
        match reason {
            Reason::Command | Reason::Keyspace => *command += 1,
            Reason::Key => *key += 1,
            Reason::Channel => *channel += 1,
            // The wrong passwords of each address are counted elsewhere.
            Reason::Auth => {}
        }
    }

    pub(super) fn add_to(&self, stats: &mut DataStats) {
        stats.connections_accepted += self.connections;
        stats.connections_rejected += self.connections_rejected;
        stats.connections_expelled += self.connections_expelled;
        stats.commands += self.commands;
        stats.command_errors += self.errors;
        stats.protocol_errors += self.protocol_errors;
        stats.auth_failures += self.auth_failures;
        stats.auth_timeouts += self.auth_timeouts;
        stats.idle_timeouts += self.idle_timeouts;
        stats.strangers_ended += self.strangers_ended;
        stats.output_limited += self.output_limited;
    }
}
