//! What `/metrics` shows. Each node has its own recorder, because several nodes may live in one process.

use crate::control::counted::{Counted, Kind};
use crate::data::{DataStats, Longest};
use crate::status::ClusterReport;
use doyen_gossip::agreement::Event;
use metrics::{Unit, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use std::fmt;

/// A node's metrics.
pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Gauges: name, unit, meaning.
const GAUGES: &[(&str, Unit, &str)] = &[
    ("doyen_keys", Unit::Count, "Keys held by this node, as primary and as copy"),
    ("doyen_memory_bytes", Unit::Bytes, "Memory of entries, tails and snapshots"),
    ("doyen_operations_parked", Unit::Count, "Operations that wait at present for a partition to be served"),
    ("doyen_partitions_open", Unit::Count, "Partitions that this node leads and serves"),
    (
        "doyen_partitions_divided",
        Unit::Count,
        "Copies of partitions that this node still fills from those that were split or merged, while it serves them",
    ),
    ("doyen_partitions_closed", Unit::Count, "Partitions that this node leads and does not serve yet"),
    ("doyen_resp_connections", Unit::Count, "RESP connections at present"),
    ("doyen_clients", Unit::Count, "Native clients at present"),
    ("doyen_resp_input_bytes", Unit::Bytes, "Bytes of RESP commands that are not whole or not run"),
    ("doyen_resp_answer_bytes", Unit::Bytes, "Bytes of RESP commands not answered and of answers not written, but for what is stored"),
    (
        "doyen_data_pass_longest_seconds",
        Unit::Seconds,
        "The longest pass of a data thread since this was last read, by the wall clock and by the thread's own",
    ),
    ("doyen_members", Unit::Count, "Members of the cluster"),
    ("doyen_term", Unit::Count, "Term of the installed table"),
    ("doyen_table_version", Unit::Count, "Version of the installed table"),
    ("doyen_safe", Unit::Count, "1 if every partition serves with all its copies and nothing moves, as the coordinator says"),
    ("doyen_moves", Unit::Count, "Partitions that are on their way"),
    ("doyen_keyspace_under_replicated", Unit::Count, "Partitions of a keyspace with fewer copies in sync than there should be"),
    ("doyen_keyspace_unavailable", Unit::Count, "Partitions of a keyspace that nobody serves"),
];

/// Counters: name, unit, meaning.
const COUNTERS: &[(&str, Unit, &str)] = &[
    ("doyen_operations_executed_total", Unit::Count, "Operations executed here as primary"),
    ("doyen_operations_forwarded_total", Unit::Count, "Operations forwarded to another primary"),
    ("doyen_entries_replicated_total", Unit::Count, "Log entries sent to copies"),
    ("doyen_snapshot_bytes_total", Unit::Bytes, "Bytes of snapshots sent"),
    ("doyen_copies_continued_total", Unit::Count, "Snapshots that went on where they had been broken off"),
    ("doyen_copies_caught_up_total", Unit::Count, "Copies that came back and needed the log only, no snapshot"),
    ("doyen_checksum_mismatches_total", Unit::Count, "Copies whose checksum differed before they were to count"),
    ("doyen_malformed_frames_total", Unit::Count, "Frames of peers that were refused as malformed"),
    ("doyen_keys_expired_total", Unit::Count, "Keys expired"),
    ("doyen_evicted_keys_total", Unit::Count, "Keys evicted because memory was full"),
    ("doyen_range_scans_total", Unit::Count, "Times that a partition was asked for a range of keys"),
    ("doyen_resp_commands_total", Unit::Count, "RESP commands answered"),
    ("doyen_resp_command_errors_total", Unit::Count, "RESP commands answered with an error"),
    ("doyen_resp_protocol_errors_total", Unit::Count, "RESP connections closed because their bytes made no sense"),
    ("doyen_resp_connections_accepted_total", Unit::Count, "RESP connections accepted"),
    ("doyen_resp_connections_rejected_total", Unit::Count, "RESP connections refused because there were too many"),
    ("doyen_resp_connections_expelled_total", Unit::Count, "RESP connections closed because they held much and stood still"),
    ("doyen_data_passes_long_total", Unit::Count, "Passes of a data thread in which it ran for more than 20 ms"),
    ("doyen_links_malformed_total", Unit::Count, "Connections of peers closed because their bytes made no sense"),
    ("doyen_events_total", Unit::Count, "Events of the cluster by kind"),
    ("doyen_control_messages_total", Unit::Count, "Messages to other control threads, by what they are for"),
    ("doyen_control_bytes_total", Unit::Bytes, "Bytes of those messages, before encryption"),
    ("doyen_control_messages_dropped_total", Unit::Count, "Messages to other control threads that were dropped"),
    ("doyen_lease_lapses_total", Unit::Count, "How often this node's lease ran out and came back"),
    ("doyen_lease_lapsed_milliseconds_total", Unit::Milliseconds, "For how long this node's lease had run out when it came back"),
    ("doyen_partitions_lost_total", Unit::Count, "Partitions that began empty because every copy was gone"),
];

/// Histograms: name, unit, meaning.
const HISTOGRAMS: &[(&str, Unit, &str)] = &[("doyen_table_commit_seconds", Unit::Seconds, "From a proposal of this node to its commit")];

impl Metrics {
    pub(crate) fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        with_local_recorder(&recorder, || {
            for &(name, unit, meaning) in GAUGES {
                metrics::describe_gauge!(name, unit, meaning);
            }
            for &(name, unit, meaning) in COUNTERS {
                metrics::describe_counter!(name, unit, meaning);
            }
            for &(name, unit, meaning) in HISTOGRAMS {
                metrics::describe_histogram!(name, unit, meaning);
            }
            metrics::counter!("doyen_partitions_lost_total").absolute(0);
        });
        Self { recorder }
    }

    /// Counts an event.
    pub(crate) fn event(&self, event: &Event) {
        let kind = event.kind();
        with_local_recorder(&self.recorder, || {
            metrics::counter!("doyen_events_total", "kind" => kind).increment(1);
            if let Event::Lost { partitions, .. } = event {
                metrics::counter!("doyen_partitions_lost_total").increment(*partitions as u64);
            }
        });
    }

    /// The text that Prometheus reads.
    #[allow(clippy::cast_precision_loss)] // gauges are floats
    pub(crate) fn render(&self, data: &DataStats, longest_pass: Longest, control: &Counted, cluster: Option<&ClusterReport>) -> String {
        let shard = &data.shard;
        with_local_recorder(&self.recorder, || {
            for (name, value) in [
                ("doyen_keys", shard.keys),
                ("doyen_memory_bytes", shard.memory_bytes),
                ("doyen_operations_parked", shard.parked),
                ("doyen_partitions_open", shard.open),
                ("doyen_partitions_closed", shard.closed),
                ("doyen_partitions_divided", shard.divided),
                ("doyen_resp_connections", data.connections),
                ("doyen_clients", data.clients),
                ("doyen_resp_input_bytes", data.input_bytes),
                ("doyen_resp_answer_bytes", data.answer_bytes),
            ] {
                metrics::gauge!(name).set(value as f64);
            }
            for (clock, longest) in [("wall", longest_pass.wall), ("thread", longest_pass.own)] {
                metrics::gauge!("doyen_data_pass_longest_seconds", "clock" => clock).set(longest.as_secs_f64());
            }
            for (name, value) in [
                ("doyen_operations_executed_total", shard.executed),
                ("doyen_operations_forwarded_total", shard.forwarded),
                ("doyen_entries_replicated_total", shard.replicated),
                ("doyen_snapshot_bytes_total", shard.snapshot_bytes),
                ("doyen_copies_caught_up_total", shard.caught_up),
                ("doyen_copies_continued_total", shard.continued),
                ("doyen_checksum_mismatches_total", shard.checksum_mismatches),
                ("doyen_malformed_frames_total", shard.malformed),
                ("doyen_keys_expired_total", shard.expired),
                ("doyen_evicted_keys_total", shard.evicted),
                ("doyen_range_scans_total", shard.ranges),
                ("doyen_resp_commands_total", data.commands),
                ("doyen_resp_command_errors_total", data.command_errors),
                ("doyen_resp_protocol_errors_total", data.protocol_errors),
                ("doyen_resp_connections_accepted_total", data.connections_accepted),
                ("doyen_resp_connections_rejected_total", data.connections_rejected),
                ("doyen_resp_connections_expelled_total", data.connections_expelled),
                ("doyen_links_malformed_total", data.malformed_links),
                ("doyen_data_passes_long_total", data.long_passes),
            ] {
                metrics::counter!(name).absolute(value);
            }
            for (kind, name) in Kind::ALL {
                let (messages, bytes) = control.traffic(kind);
                metrics::counter!("doyen_control_messages_total", "kind" => name).absolute(messages);
                metrics::counter!("doyen_control_bytes_total", "kind" => name).absolute(bytes);
            }
            let (lapses, lapsed) = control.lapses();
            metrics::counter!("doyen_control_messages_dropped_total").absolute(control.dropped_total());
            metrics::counter!("doyen_lease_lapses_total").absolute(lapses);
            metrics::counter!("doyen_lease_lapsed_milliseconds_total").absolute(u64::try_from(lapsed.as_millis()).unwrap_or(u64::MAX));
            for took in control.take_commits() {
                metrics::histogram!("doyen_table_commit_seconds").record(took);
            }
            if let Some(cluster) = cluster {
                metrics::gauge!("doyen_members").set(cluster.members.len() as f64);
                metrics::gauge!("doyen_term").set(cluster.term as f64);
                metrics::gauge!("doyen_table_version").set(cluster.version as f64);
                metrics::gauge!("doyen_safe").set(f64::from(u8::from(cluster.safe)));
                metrics::gauge!("doyen_moves").set(cluster.moves.len() as f64);
                for k in &cluster.keyspaces {
                    metrics::gauge!("doyen_keyspace_under_replicated", "keyspace" => k.name.clone()).set(k.under_replicated as f64);
                    metrics::gauge!("doyen_keyspace_unavailable", "keyspace" => k.name.clone()).set(k.unavailable as f64);
                }
            }
        });
        self.recorder.handle().render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_described_and_nodes_do_not_share() {
        let (one, other) = (Metrics::new(), Metrics::new());
        one.event(&Event::Lost { partitions: 3, keyspace: "default".into(), why: "test".into() });
        let control = Counted::default();
        control.committed(std::time::Duration::from_millis(3));
        let text = one.render(&DataStats::default(), Longest::default(), &control, None);
        assert!(text.contains("doyen_partitions_lost_total 3"), "{text}");
        assert!(
            other.render(&DataStats::default(), Longest::default(), &Counted::default(), None).contains("doyen_partitions_lost_total 0")
        );
        for line in text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let name = name.trim_end_matches("_sum").trim_end_matches("_count");
            assert!(GAUGES.iter().chain(COUNTERS).chain(HISTOGRAMS).any(|(n, ..)| *n == name), "{name} is not described");
            assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
        }
    }
}
