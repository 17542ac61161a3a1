//! A node's metrics: as the text that Prometheus reads, and for the recorder of the host program.
//! [`count`] and [`gauge`] write them into any recorder of the crate `metrics`.
//!
//! Each node has its own recorder for the text, because several nodes may live in one process. The
//! counters of the text stay in that recorder. Gauges go to a recorder that is made for each text.
//! Otherwise a dropped keyspace, or the gauges of a former coordinator, would show their last
//! values for ever. The host's recorder keeps what it has, so such a gauge becomes NaN there.

mod histograms;
mod maps;

use crate::clock;
use crate::control::counted::Counted;
use crate::control::{ClusterStatus, ControlHandle, Coordinated};
use crate::data::latency::FamilyLatencies;
use crate::data::{DataHandle, DataStats, Longest, NearFigures};
use crate::net::identity::{CertificateReport, Identity};
use crate::net::traffic::TrafficKind;
use crate::report::status::ClusterReport;
use doyen_engine::sizes::MapSize;
use doyen_gossip::agreement::{Oversight, Stage};
use doyen_placement::{KeyspaceId, Paused, planner};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit,
    with_local_recorder, with_recorder,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Times of commits that are kept for the host's recorder until it is asked for. Of more, the
/// oldest are kept.
const SAMPLES_MAX: usize = 4096;

/// A node's metrics.
pub(crate) struct Metrics {
    control: ControlHandle,
    data: DataHandle,
    identity: Arc<Identity>,
    /// Wrong tokens that HTTP clients sent.
    http_auth_failures: AtomicU64,
    recorders: Recorders,
}

/// Where a node's figures go.
struct Recorders {
    /// The name of the node.
    node: String,
    text: PrometheusRecorder,
    /// Two callers at a time write one after the other. It is not held across an await.
    host: Mutex<HostRecorder>,
}

/// What the host's recorder was told, and what it must still be told.
#[derive(Default)]
struct HostRecorder {
    described: bool,
    gauges: HashSet<Key>,
    /// Times of commits that the text has shown since.
    commits: Vec<f64>,
}

/// The clocks of a node at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Clocks {
    /// In seconds since 1970.
    wall: f64,
    /// CLOCK_BOOTTIME, in seconds.
    boot: f64,
}

/// The figures of a node at one moment.
struct MetricsSnapshot {
    clocks: Clocks,
    data: DataStats,
    longest_pass: Longest,
    /// `None`: the node is stopping, or it is a client.
    cluster: Option<ClusterStatus>,
    /// `None`: another node coordinates, or none does.
    coordinated: Option<Box<Coordinated>>,
    certificate: CertificateReport,
    /// Handshakes: port, outcome, how many.
    handshakes: Vec<(&'static str, &'static str, u64)>,
    /// Datagrams that were not sent: port, error, how many.
    send_errors: Vec<(&'static str, &'static str, u64)>,
    /// Bytes of datagrams that were sent: port, how many.
    sent: Vec<(&'static str, u64)>,
    http_auth_failures: u64,
    /// Times from proposals to commits, in seconds, that were not seen before.
    commits: Vec<f64>,
    /// How much each map has that this node leads, in parts.
    sizes: Vec<(KeyspaceId, MapSize)>,
    /// The near caches of this process.
    nears: Vec<NearFigures>,
}

impl Clocks {
    #[allow(clippy::cast_precision_loss)] // microseconds of this age
    fn now() -> Self {
        Self {
            wall: clock::unix_ms() as f64 / 1e3,
            boot: clock::now().0 as f64 / 1e9,
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// A metric: what people read of it, and where its value is, unless it has labels.
struct MetricRow<S: 'static, V: 'static = f64> {
    name: &'static str,
    unit: Unit,
    meaning: &'static str,
    labels: &'static [&'static str],
    value: Option<fn(&S) -> V>,
}

const fn metric<S, V>(name: &'static str) -> MetricRow<S, V> {
    MetricRow {
        name,
        unit: Unit::Count,
        meaning: "",
        labels: &[],
        value: None,
    }
}

impl<S, V> MetricRow<S, V> {
    const fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    const fn about(mut self, meaning: &'static str) -> Self {
        self.meaning = meaning;
        self
    }

    /// Its labels.
    const fn by(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    const fn is(mut self, value: fn(&S) -> V) -> Self {
        self.value = Some(value);
        self
    }
}

/// Gauges of this node.
const NODE_GAUGES: &[MetricRow<MetricsSnapshot>] = &[
    metric("doyen_keys")
        .about("Keys held by this node, as primary and as copy")
        .is(|s| s.data.shard.keys as f64),
    metric("doyen_memory_bytes")
        .unit(Unit::Bytes)
        .about("Memory of entries, tails and snapshots")
        .is(|s| s.data.shard.memory_bytes as f64),
    metric("doyen_memory_outside_bytes")
        .unit(Unit::Bytes)
        .about(
            "Other memory: buffers of clients and peers, dropped data that is not freed yet, and \
             what the allocator keeps",
        )
        .is(|s| s.data.shard.memory_outside_bytes as f64),
    metric("doyen_memory_max_bytes")
        .unit(Unit::Bytes)
        .about("Limit of data and other memory together (--memory-max)")
        .is(|s| s.data.shard.memory_bytes_max as f64),
    metric("doyen_memory_filled_ratio")
        .about(
            "Filled part of that limit, 0 to 1, of the fullest data thread: from 0.7 on other \
             members are given copies, from 0.8 on copies move away, at 0.9, and a little below \
             it, writes are refused or keys evicted",
        )
        .is(|s| s.data.shard.memory_filled as f64 / 1000.0),
    metric("doyen_wall_clock_timestamp_seconds")
        .unit(Unit::Seconds)
        .about("This node's time of day when it was asked")
        .is(|s| s.clocks.wall),
    metric("doyen_boot_clock_seconds")
        .unit(Unit::Seconds)
        .about(
            "The clock with which this node measures leases and expiry (CLOCK_BOOTTIME), when it \
             was asked: its rate matters, not its value",
        )
        .is(|s| s.clocks.boot),
    metric("doyen_operations_parked")
        .about("Operations that wait for a partition to be served")
        .is(|s| s.data.shard.parked as f64),
    metric("doyen_partitions_open")
        .about("Partitions that this node leads and serves")
        .is(|s| s.data.shard.open as f64),
    metric("doyen_partitions_divided")
        .about(
            "Copies that this node already serves and still fills from partitions that were \
             split or merged",
        )
        .is(|s| s.data.shard.divided as f64),
    metric("doyen_partitions_closed")
        .about("Partitions that this node leads and does not serve yet")
        .is(|s| s.data.shard.closed as f64),
    metric("doyen_resp_connections")
        .about("Open RESP connections")
        .is(|s| s.data.connections as f64),
    metric("doyen_resp_connections_max")
        .about("Limit on RESP connections (--connections-max, or CONFIG SET maxclients)")
        .is(|s| s.data.connections_max as f64),
    metric("doyen_clients")
        .about("Connected native clients")
        .is(|s| s.data.clients as f64),
    metric("doyen_resp_input_bytes")
        .unit(Unit::Bytes)
        .about("Bytes of RESP commands that are incomplete or not run yet")
        .is(|s| s.data.input_bytes as f64),
    metric("doyen_resp_answer_bytes")
        .unit(Unit::Bytes)
        .about(
            "Bytes of RESP commands in progress and of answers not written yet, without stored \
             values",
        )
        .is(|s| s.data.answer_bytes as f64),
    metric("doyen_resp_spilled_bytes")
        .unit(Unit::Bytes)
        .about("Bytes of answers kept for RESP clients that send commands and do not read")
        .is(|s| s.data.spilled_bytes as f64),
    metric("doyen_log_bytes")
        .unit(Unit::Bytes)
        .about("Bytes of the logs in the directory of this node (--durability log)")
        .is(|s| s.data.disk.bytes as f64),
];

/// Gauges that every node knows of its cluster.
const CLUSTER_GAUGES: &[MetricRow<ClusterReport>] = &[
    metric("doyen_members")
        .about("Members of the cluster")
        .is(|r| r.members.len() as f64),
    metric("doyen_coordinator_known")
        .about("1 if this node is a member and knows the coordinator")
        .is(|r| yes(r.coordinator.is_some())),
    metric("doyen_members_gone")
        .about(
            "Members that went without leaving in order, and whose names no member has since \
             then",
        )
        .is(|r| r.gone.iter().filter(|gone| gone.is_missed()).count() as f64),
    metric("doyen_other_clusters")
        .about(
            "Other clusters of the same secret that this node has met within half a minute, if \
             both hold data: this node is not ready",
        )
        .is(|r| r.others.len() as f64),
    metric("doyen_directory_failing")
        .about(
            "1 if the last write to the directory of this node (--dir) failed: the node agrees to \
             no change of the cluster",
        )
        .is(|r| yes(r.directory.as_ref().is_some_and(|d| d.failure.is_some()))),
    metric("doyen_directory_write_seconds")
        .unit(Unit::Seconds)
        .about(
            "How long the last write to the directory of this node took, or the present one has \
             taken so far, if that is longer",
        )
        .is(|r| {
            r.directory
                .as_ref()
                .map_or(0.0, |d| d.write_ms as f64 / 1e3)
        }),
    metric("doyen_split")
        .about(
            "1 if another half of this cluster lives, which a recovery split, as far as this \
             node knows",
        )
        .is(|r| yes(r.split.is_some())),
    metric("doyen_term")
        .about("Term of the installed table")
        .is(|r| r.term as f64),
    metric("doyen_table_version")
        .about("Version of the installed table")
        .is(|r| r.version as f64),
    metric("doyen_level")
        .about("Level of the cluster: what every member speaks")
        .is(|r| r.level.into()),
    metric("doyen_level_max")
        .about(
            "The highest level that this node speaks: if it is above doyen_level, some member \
             speaks less",
        )
        .is(|r| r.level_max.into()),
    metric("doyen_safe")
        .about(
            "1 if every partition serves with as many copies as the keyspace wants and the live \
             members allow, and nothing moves, as the coordinator says",
        )
        .is(|r| yes(r.safe)),
    metric("doyen_moves")
        .about("Partitions that move")
        .is(|r| r.moves.len() as f64),
];

/// Gauges that only the coordinator knows.
const COORDINATOR_GAUGES: &[MetricRow<Oversight>] = &[
    metric("doyen_moves_standing_seconds")
        .unit(Unit::Seconds)
        .about(
            "At the coordinator: seconds without progress in all copies and handovers that are due",
        )
        .is(|o| o.moves_standing.as_secs_f64()),
    metric("doyen_moves_failed")
        .about(
            "At the coordinator: consecutive failed moves for balance; the third pauses balancing",
        )
        .is(|o| o.moves_failed.into()),
];

/// Gauges with labels.
const LABELLED_GAUGES: &[MetricRow<()>] = &[
    metric("doyen_certificate_expiry_timestamp_seconds")
        .unit(Unit::Seconds)
        .about(
            "When the first certificate of this node's chain expires (--tls-cert, or made from a \
             secret)",
        ),
    metric("doyen_certificate_expiry_seconds")
        .by(&["port"])
        .unit(Unit::Seconds)
        .about(
            "How long the certificate of these ports is still valid, by port: listen (nodes), \
             resp, http; negative if it has expired, by this node's clock",
        ),
    metric("doyen_data_pass_longest_seconds")
        .by(&["clock"])
        .unit(Unit::Seconds)
        .about(
            "The longest pass of a data thread since this was last read, by the wall clock and \
             by the thread's own CPU time",
        ),
    metric("doyen_balance_paused")
        .by(&["by"])
        .about("1 if nothing moves for balance, because an operator or failed moves paused it"),
    metric("doyen_load_uneven").by(&["of"]).about(
        "At the coordinator: 1 if a member has far more work or bytes than its share, as \
             balancing judges it (by ratio and by gap)",
    ),
    metric("doyen_load_ratio").by(&["of"]).about(
        "At the coordinator: work or bytes of the member that is furthest above its share, \
             as a multiple of that share",
    ),
    metric("doyen_partitions_surplus")
        .by(&["keyspace", "of"])
        .about(
            "At the coordinator: by how many partitions of a keyspace a member holds or leads \
             more than its share; absent for rings and where there are rules",
        ),
    metric("doyen_keyspace_under_replicated")
        .by(&["keyspace"])
        .about(
            "Partitions of a keyspace with fewer copies in sync than it wants and the live \
             members allow",
        ),
    metric("doyen_keyspace_copies_without_place")
        .by(&["keyspace"])
        .about(
            "Copies of each partition that a keyspace asks for, beyond the number of live \
             members that may hold data",
        ),
    metric("doyen_keyspace_unavailable")
        .by(&["keyspace"])
        .about("Partitions of a keyspace that no member serves"),
    metric("doyen_keyspace_keys")
        .by(&["keyspace"])
        .about("Keys of a keyspace that this node leads"),
    metric("doyen_keyspace_bytes")
        .by(&["keyspace"])
        .unit(Unit::Bytes)
        .about(
            "Memory of the keys of a keyspace that this node leads, at one copy: keys, values, and \
             about 80 bytes each",
        ),
    metric("doyen_map_keys").by(&["keyspace", "map"]).about(
        "Keys of a map, or of a database of Redis clients, that this node leads. The largest 100 \
         have figures of their own; `other` has the sum of all further ones",
    ),
    metric("doyen_map_bytes")
        .by(&["keyspace", "map"])
        .unit(Unit::Bytes)
        .about("Memory of the keys of a map that this node leads, at one copy"),
    metric("doyen_near_entries")
        .by(&["keyspace", "map"])
        .about("Copies in the near caches of this process"),
    metric("doyen_near_lag_seconds").unit(Unit::Seconds).about(
        "How long ago the near caches of this process learned of changes, of the partition \
             that waits for that the longest",
    ),
];

/// Counters of what may be dropped. They are written with the gauges.
const DROPPED_COUNTERS: &[MetricRow<()>] = &[
    metric("doyen_keyspace_hits_total")
        .by(&["keyspace"])
        .about("Lookups of keys at this node as primary that found their key"),
    metric("doyen_keyspace_misses_total")
        .by(&["keyspace"])
        .about("Lookups of keys at this node as primary that found none"),
    metric("doyen_near_hits_total")
        .by(&["keyspace", "map"])
        .about("Reads that near caches of this process answered"),
    metric("doyen_near_misses_total")
        .by(&["keyspace", "map"])
        .about("Reads of near caches that went to the primary, because there was no copy"),
    metric("doyen_near_unconfirmed_total")
        .by(&["keyspace", "map"])
        .about(
            "Reads of near caches that went to the primary, because their copy was not confirmed \
         within the bound",
        ),
];

/// Counters of this node.
const COUNTERS: &[MetricRow<MetricsSnapshot, u64>] = &[
    metric("doyen_operations_executed_total")
        .about("Operations executed here as primary")
        .is(|s| s.data.shard.executed),
    metric("doyen_operations_forwarded_total")
        .about("Operations forwarded to another primary")
        .is(|s| s.data.shard.forwarded),
    metric("doyen_entries_replicated_total")
        .about("Log entries sent to copies")
        .is(|s| s.data.shard.copies.replicated),
    metric("doyen_snapshot_bytes_total")
        .unit(Unit::Bytes)
        .about("Bytes of snapshots sent")
        .is(|s| s.data.shard.copies.snapshot_bytes),
    metric("doyen_copies_continued_total")
        .about("Snapshots that were resumed where they had been interrupted")
        .is(|s| s.data.shard.copies.continued),
    metric("doyen_copies_caught_up_total")
        .about("Copies that came back and needed only the log, no snapshot")
        .is(|s| s.data.shard.copies.caught_up),
    metric("doyen_checksum_mismatches_total")
        .about("Copies whose checksum differed before they were admitted")
        .is(|s| s.data.shard.copies.checksum_mismatches),
    metric("doyen_malformed_frames_total")
        .about("Frames of peers that were refused as malformed")
        .is(|s| s.data.shard.malformed),
    metric("doyen_keys_expired_total")
        .about("Keys expired")
        .is(|s| s.data.shard.expired),
    metric("doyen_memory_compactions_total")
        .about("Times that entries were moved so that the memory between them was freed")
        .is(|s| s.data.shard.compactions),
    metric("doyen_evicted_keys_total")
        .about("Keys evicted because memory was full")
        .is(|s| s.data.shard.evicted),
    metric("doyen_writes_refused_total")
        .about("Writes that this node refused as primary because it or a copy had no room for them")
        .is(|s| s.data.shard.refused),
    metric("doyen_range_scans_total")
        .about("Times that a partition was asked for a range of keys")
        .is(|s| s.data.shard.ranges),
    metric("doyen_resp_commands_total")
        .about("RESP commands answered")
        .is(|s| s.data.front.commands),
    metric("doyen_resp_command_errors_total")
        .about("RESP commands answered with an error")
        .is(|s| s.data.front.errors),
    metric("doyen_resp_protocol_errors_total")
        .about("RESP connections closed because of invalid bytes")
        .is(|s| s.data.front.protocol_errors),
    metric("doyen_resp_connections_accepted_total")
        .about("RESP connections accepted")
        .is(|s| s.data.front.connections),
    metric("doyen_resp_connections_rejected_total")
        .about("RESP connections refused because too many were open")
        .is(|s| s.data.front.connections_rejected),
    metric("doyen_resp_connections_expelled_total")
        .about("RESP connections closed because they held much memory and made no progress")
        .is(|s| s.data.front.connections_expelled),
    metric("doyen_resp_subscribers_expelled_total")
        .about("RESP connections closed because too many messages of channels waited for them")
        .is(|s| s.data.subscribers_expelled),
    metric("doyen_resp_output_limited_total")
        .about(
            "RESP connections without subscriptions closed because too much output waited for \
             them",
        )
        .is(|s| s.data.front.output_limited),
    metric("doyen_pops_returned_total")
        .about(
            "Elements that blocking pops took for clients that were gone by then, and that were \
             put back",
        )
        .is(|s| s.data.front.pops_returned),
    metric("doyen_pops_unknown_total")
        .about(
            "Elements that blocking pops have perhaps taken without an answer, or have perhaps not \
             put back",
        )
        .is(|s| s.data.front.pops_unknown),
    metric("doyen_messages_published_total")
        .about("Messages of channels that data threads with subscribers took")
        .is(|s| s.data.shard.published),
    metric("doyen_messages_dropped_total")
        .about(
            "Messages of channels that a member or a data thread did not get, because it was too \
             slow",
        )
        .is(|s| s.data.shard.published_dropped),
    metric("doyen_key_messages_lost_total")
        .about("About how many changes of keys their subscribers got no message of")
        .is(|s| s.data.key_messages_lost),
    metric("doyen_resp_auth_failures_total")
        .about("Wrong passwords of RESP clients")
        .is(|s| s.data.front.auth_failures),
    metric("doyen_resp_strangers_ended_total")
        .about(
            "RESP connections that had not authenticated and were closed to make room for others",
        )
        .is(|s| s.data.front.strangers_ended),
    metric("doyen_http_auth_failures_total")
        .about("Wrong tokens of HTTP clients")
        .is(|s| s.http_auth_failures),
    metric("doyen_data_passes_long_total")
        .about("Passes of a data thread in which it ran for more than 20 ms")
        .is(|s| s.data.long_passes),
    metric("doyen_log_syncs_total")
        .about("Syncs of the logs in the directory of this node (--durability log)")
        .is(|s| s.data.disk.syncs),
    metric("doyen_log_records_total")
        .about(
            "Records written to the logs in the directory of this node: entries of one partition \
             that came together, or a part of a snapshot",
        )
        .is(|s| s.data.disk.records),
    metric("doyen_links_malformed_total")
        .about("Connections of peers closed because of invalid bytes")
        .is(|s| s.data.malformed_links),
];

/// Counters with labels, and those of the control thread.
const FURTHER_COUNTERS: &[MetricRow<()>] = &[
    metric("doyen_resp_connections_timed_out_total")
        .by(&["why"])
        .about(
            "RESP connections closed because no password came in time (why=auth), or because \
             they were idle for too long (why=idle)",
        ),
    metric("doyen_events_total")
        .by(&["kind"])
        .about("Events of the cluster by kind"),
    metric("doyen_move_steps_total")
        .by(&["stage"])
        .about("Partitions that reached a stage of a move, by table changes"),
    metric("doyen_certificate_reloads_total")
        .by(&["outcome"])
        .about(
            "Times that changed files of secrets and certificates, of any port, came into force \
             (done) or could not be used (failed)",
        ),
    metric("doyen_udp_send_errors_total")
        .by(&["port", "errno"])
        .about(
            "Datagrams between nodes that the system did not send, by port (control, data) and \
             error. Those without a buffer (ENOBUFS) are tried again at once, up to 4 times",
        ),
    metric("doyen_udp_sent_bytes_total")
        .by(&["port"])
        .unit(Unit::Bytes)
        .about(
            "Bytes of datagrams sent to other nodes, by port (control, data), with those that were \
             sent again",
        ),
    metric("doyen_handshakes_total")
        .by(&["port", "outcome"])
        .about(
            "Connections that others began at the ports of nodes (control, data), by outcome: \
             begun, proof_asked (the address must prove itself first), passed_over (too many at \
             once); and TLS handshakes of clients (resp, http) that failed",
        ),
    metric("doyen_control_messages_total")
        .by(&["kind"])
        .about("Messages to other control threads, by purpose"),
    metric("doyen_control_bytes_total")
        .by(&["kind"])
        .unit(Unit::Bytes)
        .about("Bytes of messages to other control threads, before encryption"),
    metric("doyen_control_messages_dropped_total")
        .about("Messages to other control threads that were dropped"),
    metric("doyen_lease_lapses_total").about("How often this node's lease ran out and came back"),
    metric("doyen_lease_lapsed_milliseconds_total")
        .unit(Unit::Milliseconds)
        .about("For how long this node's lease had run out when it came back"),
    metric("doyen_partitions_lost_total")
        .about("Partitions that began empty because every copy was lost"),
];

/// Times that are kept one by one: the text has their quantiles.
const SUMMARIES: &[MetricRow<()>] = &[metric("doyen_table_commit_seconds")
    .unit(Unit::Seconds)
    .about("From a proposal of this node to its commit")];

/// Times that are counted in classes.
const HISTOGRAMS: &[MetricRow<MetricsSnapshot, FamilyLatencies>] = &[
    metric("doyen_resp_command_seconds")
        .by(&["family"])
        .unit(Unit::Seconds)
        .about(
            "How long RESP commands took here, by family: from the pass in which a command was \
             read to the moment when its reply left. Commands that wait on purpose, as \
             subscriptions do, are left out",
        )
        .is(|s| s.data.command_latency),
    metric("doyen_native_operation_seconds")
        .by(&["family"])
        .unit(Unit::Seconds)
        .about(
            "How long operations of the library took here, by family: from the pass in which the \
             data thread took one to the moment when its outcome was handed out",
        )
        .is(|s| s.data.native_latency),
];

impl Metrics {
    pub(crate) fn new(
        node: String,
        control: ControlHandle,
        data: DataHandle,
        identity: Arc<Identity>,
    ) -> Self {
        Self {
            control,
            data,
            identity,
            http_auth_failures: AtomicU64::new(0),
            recorders: Recorders::new(node),
        }
    }

    /// HTTP clients have sent `count` wrong tokens since the start.
    #[cfg(feature = "http")]
    pub(crate) fn http_auth_failures(&self, count: u64) {
        self.http_auth_failures.store(count, Ordering::Relaxed);
    }

    /// The text that Prometheus reads.
    pub(crate) async fn text(&self) -> String {
        let seen = self.look().await;
        self.recorders.render(&seen, self.control.counted())
    }

    /// Writes all figures into the recorder that the host program has installed.
    pub(crate) async fn report(&self) {
        let seen = self.look().await;
        self.recorders.tell_host(&seen, self.control.counted());
    }

    async fn look(&self) -> MetricsSnapshot {
        // Read the clocks first: they are compared with the moment of the request.
        let clocks = Clocks::now();
        let (data, sizes, longest_pass, cluster, coordinated) = tokio::join!(
            self.data.stats(),
            self.data.sizes(),
            self.data.longest_pass(),
            self.control.status(),
            self.control.coordinated()
        );
        MetricsSnapshot {
            clocks,
            data,
            longest_pass,
            cluster: cluster.ok(),
            coordinated: coordinated.ok().flatten(),
            certificate: self.identity.certificate(),
            handshakes: handshakes(&self.identity),
            send_errors: self.identity.send_errors().all().collect(),
            sent: self.identity.send_errors().bytes().collect(),
            http_auth_failures: self.http_auth_failures.load(Ordering::Relaxed),
            commits: self.control.counted().take_commits(),
            sizes,
            nears: self.data.near_figures(),
        }
    }
}

impl Recorders {
    fn new(node: String) -> Self {
        let text = PrometheusBuilder::new().build_recorder();
        with_local_recorder(&text, describe_counters);
        Self {
            node,
            text,
            host: Mutex::default(),
        }
    }

    fn render(&self, seen: &MetricsSnapshot, control: &Counted) -> String {
        with_local_recorder(&self.text, || count(seen, control, &seen.commits));
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        // A program that never reports to a recorder keeps nothing for it.
        if host.described {
            let room = SAMPLES_MAX.saturating_sub(host.commits.len());
            host.commits.extend(seen.commits.iter().take(room));
        }
        drop(host);
        let now = PrometheusBuilder::new().build_recorder();
        with_local_recorder(&now, || {
            describe_gauges();
            gauge(seen);
        });
        self.text.handle().render() + &now.handle().render() + &histograms::text(seen)
    }

    fn tell_host(&self, seen: &MetricsSnapshot, control: &Counted) {
        // The text shows these as well.
        with_local_recorder(&self.text, || observe(&seen.commits));
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        let HostRecorder {
            described,
            gauges,
            commits,
        } = &mut *host;
        commits.extend(&seen.commits);
        with_recorder(|recorder| {
            let named = NamedGauge {
                recorder,
                node: &self.node,
                gauges: Mutex::default(),
            };
            with_local_recorder(&named, || {
                if !std::mem::replace(described, true) {
                    describe_counters();
                    describe_gauges();
                    histograms::describe();
                }
                count(seen, control, commits);
                gauge(seen);
                histograms::count(seen);
            });
            let set = named.gauges.into_inner();
            let set = set.unwrap_or_else(PoisonError::into_inner);
            for gone in gauges.difference(&set) {
                recorder.register_gauge(gone, &METADATA).set(f64::NAN);
            }
            // One that is set again later is found again.
            *gauges = set;
        });
        commits.clear();
    }
}

/// Where the figures come from, for recorders that filter by it.
const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), metrics::Level::INFO, Some(module_path!()));

/// The host's recorder, where each figure has the name of its node: several nodes may live in one
/// process.
struct NamedGauge<'a> {
    recorder: &'a dyn Recorder,
    node: &'a str,
    /// The gauges that were set. One thread uses this.
    gauges: Mutex<HashSet<Key>>,
}

impl NamedGauge<'_> {
    fn name(&self, key: &Key) -> Key {
        key.with_extra_labels(vec![Label::new("node", self.node.to_owned())])
    }
}

impl Recorder for NamedGauge<'_> {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.recorder.describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.recorder.describe_gauge(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.recorder.describe_histogram(key, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.recorder.register_counter(&self.name(key), metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        let key = self.name(key);
        let gauge = self.recorder.register_gauge(&key, metadata);
        let mut gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.insert(key);
        gauge
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.recorder.register_histogram(&self.name(key), metadata)
    }
}

fn describe_counters() {
    for (name, unit, meaning) in described_counters() {
        metrics::describe_counter!(name, unit, meaning);
    }
    for row in SUMMARIES {
        metrics::describe_histogram!(row.name, row.unit, row.meaning);
    }
}

fn describe_gauges() {
    for (name, unit, meaning) in described_gauges() {
        metrics::describe_gauge!(name, unit, meaning);
    }
    for row in DROPPED_COUNTERS {
        metrics::describe_counter!(row.name, row.unit, row.meaning);
    }
}

type MetricWords = (&'static str, Unit, &'static str);

fn words<S, V>(rows: &'static [MetricRow<S, V>]) -> impl Iterator<Item = MetricWords> {
    rows.iter().map(|row| (row.name, row.unit, row.meaning))
}

fn described_counters() -> impl Iterator<Item = MetricWords> {
    words(COUNTERS).chain(words(FURTHER_COUNTERS))
}

fn described_gauges() -> impl Iterator<Item = MetricWords> {
    let unlabelled = words(NODE_GAUGES).chain(words(CLUSTER_GAUGES));
    let unlabelled = unlabelled.chain(words(COORDINATOR_GAUGES));
    unlabelled.chain(words(LABELLED_GAUGES))
}

/// Writes counters that other modules keep.
fn count(seen: &MetricsSnapshot, control: &Counted, commits: &[f64]) {
    for row in COUNTERS {
        if let Some(value) = row.value {
            metrics::counter!(row.name).absolute(value(seen));
        }
    }
    let front = &seen.data.front;
    for (why, times) in [("auth", front.auth_timeouts), ("idle", front.idle_timeouts)] {
        metrics::counter!("doyen_resp_connections_timed_out_total", "why" => why).absolute(times);
    }
    for (kind, name) in TrafficKind::ALL {
        let (messages, bytes) = control.traffic.of(kind);
        metrics::counter!("doyen_control_messages_total", "kind" => name).absolute(messages);
        metrics::counter!("doyen_control_bytes_total", "kind" => name).absolute(bytes);
    }
    let (lapses, lapsed) = control.lapses();
    metrics::counter!("doyen_control_messages_dropped_total")
        .absolute(control.traffic.dropped_total());
    metrics::counter!("doyen_lease_lapses_total").absolute(lapses);
    metrics::counter!("doyen_lease_lapsed_milliseconds_total")
        .absolute(u64::try_from(lapsed.as_millis()).unwrap_or(u64::MAX));
    let happened = control.happened();
    for (kind, times) in happened.events {
        metrics::counter!("doyen_events_total", "kind" => kind).absolute(times);
    }
    // Prometheus sees the growth of a counter only if the counter existed before.
    metrics::counter!("doyen_partitions_lost_total").absolute(happened.lost);
    for (stage, reached) in Stage::ALL.iter().zip(happened.stages) {
        metrics::counter!("doyen_move_steps_total", "stage" => stage.name()).absolute(reached);
    }
    observe(commits);
    let CertificateReport {
        reloads,
        reloads_failed,
        ..
    } = seen.certificate;
    for (outcome, times) in [("done", reloads), ("failed", reloads_failed)] {
        metrics::counter!("doyen_certificate_reloads_total", "outcome" => outcome).absolute(times);
    }
    for (port, errno, times) in &seen.send_errors {
        metrics::counter!("doyen_udp_send_errors_total", "port" => *port, "errno" => *errno)
            .absolute(*times);
    }
    for (port, bytes) in &seen.sent {
        metrics::counter!("doyen_udp_sent_bytes_total", "port" => *port).absolute(*bytes);
    }
    for (port, outcome, times) in &seen.handshakes {
        metrics::counter!("doyen_handshakes_total", "port" => *port, "outcome" => *outcome)
            .absolute(*times);
    }
}

/// Handshakes at all ports: of nodes, and those that failed at ports for clients.
fn handshakes(identity: &Identity) -> Vec<(&'static str, &'static str, u64)> {
    let nodes = identity.handshakes().all();
    #[cfg(any(feature = "http", feature = "resp"))]
    let clients = identity.handshakes_failed();
    #[cfg(not(any(feature = "http", feature = "resp")))]
    let clients = Vec::new();
    let clients = clients
        .into_iter()
        .map(|(port, times)| (port, "failed", times));
    nodes.chain(clients).collect()
}

fn observe(commits: &[f64]) {
    for took in commits {
        metrics::histogram!("doyen_table_commit_seconds").record(*took);
    }
}

/// Writes gauges: of this node, of its cluster, and of what it coordinates.
fn gauge(seen: &MetricsSnapshot) {
    gauge_node(seen);
    seen.cluster.iter().for_each(gauge_cluster);
    let table = seen.cluster.as_ref().and_then(|c| c.installed.as_deref());
    if let Some(table) = table {
        maps::gauge_maps(seen, table);
        maps::gauge_nears(seen, table);
    }
    seen.coordinated
        .iter()
        .for_each(|coordinated| gauge_coordinated(coordinated));
}

/// Gauges of this node.
fn gauge_node(seen: &MetricsSnapshot) {
    set(NODE_GAUGES, seen);
    for (port, ends) in &seen.certificate.ends {
        let ends = *ends as f64;
        if *port == "listen" {
            metrics::gauge!("doyen_certificate_expiry_timestamp_seconds").set(ends);
        }
        metrics::gauge!("doyen_certificate_expiry_seconds", "port" => *port)
            .set(ends - seen.clocks.wall);
    }
    for (clock, longest) in [
        ("wall", seen.longest_pass.wall),
        ("thread", seen.longest_pass.own),
    ] {
        metrics::gauge!("doyen_data_pass_longest_seconds", "clock" => clock)
            .set(longest.as_secs_f64());
    }
}

/// Gauges that every node knows of its cluster.
fn gauge_cluster(cluster: &ClusterStatus) {
    let report = ClusterReport::brief(cluster);
    set(CLUSTER_GAUGES, &report);
    let holders = report.holders();
    for k in report.keyspaces {
        metrics::gauge!("doyen_keyspace_copies_without_place", "keyspace" => k.name.clone())
            .set(k.copies_without_place(holders) as f64);
        metrics::gauge!("doyen_keyspace_under_replicated", "keyspace" => k.name.clone())
            .set(k.under_replicated as f64);
        metrics::gauge!("doyen_keyspace_unavailable", "keyspace" => k.name)
            .set(k.unavailable as f64);
    }
    let paused = cluster
        .installed
        .as_deref()
        .and_then(|table| table.settings.balancing.paused);
    for (by, name) in [
        (Paused::Operator, "operator"),
        (Paused::Failures, "failures"),
    ] {
        metrics::gauge!("doyen_balance_paused", "by" => name).set(yes(paused == Some(by)));
    }
}

/// Gauges that only the coordinator knows.
fn gauge_coordinated(coordinated: &Coordinated) {
    let Coordinated {
        table,
        loads,
        oversight,
    } = coordinated;
    set(COORDINATOR_GAUGES, oversight);
    let (uneven, (work, bytes)) = (loads.judge(table), loads.furthest(table));
    for (of, uneven, percent) in [("work", uneven.work, work), ("bytes", uneven.bytes, bytes)] {
        metrics::gauge!("doyen_load_uneven", "of" => of).set(yes(uneven));
        metrics::gauge!("doyen_load_ratio", "of" => of).set(percent as f64 / 100.0);
    }
    for (keyspace, surplus) in planner::surplus(table, loads) {
        let name = table
            .keyspace(keyspace)
            .map(|k| k.name.clone())
            .unwrap_or_default();
        for (of, count) in [("copies", surplus.copies), ("leads", surplus.leads)] {
            metrics::gauge!("doyen_partitions_surplus", "keyspace" => name.clone(), "of" => of)
                .set(count as f64);
        }
    }
}

/// Sets the gauges without labels.
fn set<S>(rows: &[MetricRow<S>], source: &S) {
    for row in rows {
        if let Some(value) = row.value {
            metrics::gauge!(row.name).set(value(source));
        }
    }
}

fn yes(it: bool) -> f64 {
    f64::from(u8::from(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;
    use doyen_gossip::agreement::Event;
    use doyen_placement::{Loads, MapId, Table};
    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
    use std::collections::BTreeMap;

    fn table() -> Table {
        fixtures::cluster(1)
    }

    fn status(table: &Table) -> ClusterStatus {
        fixtures::seen(table.clone(), Vec::new(), true)
    }

    fn seen(table: Option<&Table>, coordinates: bool) -> MetricsSnapshot {
        let coordinated = |table: &Table| {
            Box::new(Coordinated {
                table: Arc::new(table.clone()),
                loads: Loads::default(),
                oversight: Oversight::default(),
            })
        };
        MetricsSnapshot {
            clocks: Clocks::now(),
            data: DataStats::default(),
            longest_pass: Longest::default(),
            cluster: table.map(status),
            coordinated: table.filter(|_| coordinates).map(coordinated),
            certificate: CertificateReport {
                ends: vec![("listen", 1), ("resp", 2)],
                reloads: 2,
                reloads_failed: 0,
            },
            handshakes: vec![("control", "begun", 1)],
            send_errors: vec![("data", "ENOBUFS", 1)],
            sent: vec![("data", 1_200)],
            http_auth_failures: 0,
            commits: vec![0.003],
            sizes: vec![(
                KeyspaceId(0),
                MapSize {
                    map: MapId(0),
                    keys: 3,
                    bytes: 400,
                },
            )],
            nears: vec![NearFigures {
                map: (KeyspaceId(0), MapId(0)),
                hits: 1,
                misses: 2,
                unconfirmed: 3,
                entries: 2,
                lag: None,
            }],
        }
    }

    fn shown(recorders: &Recorders, table: Option<&Table>, coordinates: bool) -> String {
        recorders.render(&seen(table, coordinates), &Counted::default())
    }

    /// What the page says of a metric, besides its labels.
    struct Described {
        kind: &'static str,
        name: &'static str,
        unit: Unit,
        labels: &'static [&'static str],
        meaning: &'static str,
    }

    fn described<S, V>(
        kind: &'static str,
        rows: &'static [MetricRow<S, V>],
    ) -> impl Iterator<Item = Described> {
        rows.iter().map(move |row| Described {
            kind,
            name: row.name,
            unit: row.unit,
            labels: row.labels,
            meaning: row.meaning,
        })
    }

    /// All metrics.
    fn every() -> impl Iterator<Item = Described> {
        described("gauge", NODE_GAUGES)
            .chain(described("gauge", CLUSTER_GAUGES))
            .chain(described("gauge", COORDINATOR_GAUGES))
            .chain(described("gauge", LABELLED_GAUGES))
            .chain(described("counter", COUNTERS))
            .chain(described("counter", FURTHER_COUNTERS))
            .chain(described("counter", DROPPED_COUNTERS))
            .chain(described("histogram", HISTOGRAMS))
            .chain(described("summary", SUMMARIES))
    }

    /// The names of all metrics.
    fn all() -> impl Iterator<Item = &'static str> {
        every().map(|described| described.name)
    }

    /// To write the table of the page, run this with `DOYEN_WRITE_PAGES=1`.
    #[test]
    fn the_page_of_metrics_is_what_nodes_show() {
        const HEAD: &str = "|---|---|---|---|---|\n";
        let row = |described: Described| {
            let Described {
                kind,
                name,
                unit,
                labels,
                meaning,
            } = described;
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = labels.join(", ");
            let unit = match unit {
                Unit::Count => "",
                unit => unit.as_str(),
            };
            format!("| `{name}` | {kind} | {labels} | {unit} | {meaning} |\n")
        };
        let mut rows: Vec<String> = every().map(row).collect();
        rows.sort();
        let wanted = rows.concat();
        let at = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
        let page = std::fs::read_to_string(at).expect("there is a page");
        let (words, table) = page.split_once(HEAD).expect("the page has a table");
        if std::env::var_os("DOYEN_WRITE_PAGES").is_some() {
            std::fs::write(at, [words, HEAD, &wanted].concat()).expect("the page is written");
        } else {
            assert!(
                table == wanted,
                "the table of docs/metrics.md is outdated: run this test with DOYEN_WRITE_PAGES=1"
            );
        }
    }

    fn recorders(name: &str) -> Recorders {
        Recorders::new(name.to_owned())
    }

    #[test]
    fn every_metric_is_described_and_nodes_do_not_share() {
        let (one, other) = (recorders("one"), recorders("other"));
        let counted = Counted::default();
        counted.event(&Event::Lost {
            partitions: 3,
            keyspace: "default".into(),
            why: "test".into(),
        });
        counted.event(&Event::Moved {
            stage: Stage::GivenUp,
            count: 2,
            partitions: Vec::new(),
            members: Vec::new(),
        });
        let text = one.render(&seen(Some(&table()), true), &counted);
        assert!(text.contains("doyen_partitions_lost_total 3"), "{text}");
        assert!(
            text.contains("doyen_move_steps_total{stage=\"given_up\"} 2"),
            "{text}"
        );
        assert!(shown(&other, None, false).contains("doyen_partitions_lost_total 0"));
        for line in text
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty())
        {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let name = ["_sum", "_count", "_bucket"]
                .iter()
                .find_map(|part| name.strip_suffix(part))
                .unwrap_or(name);
            let described = every().find(|described| described.name == name);
            let described = described.unwrap_or_else(|| panic!("{name} is not described"));
            let shown = line
                .split_once('{')
                .and_then(|(_, rest)| rest.split_once('}'));
            let shown = shown.map_or("", |(labels, _)| labels).split(',');
            let shown = shown.filter_map(|label| Some(label.split_once('=')?.0));
            let shown: Vec<_> = shown
                .filter(|label| !["le", "quantile"].contains(label))
                .collect();
            assert_eq!(shown, described.labels, "{line}");
            assert!(
                text.contains(&format!("# HELP {name} ")),
                "{name} has no help"
            );
        }
        for name in all() {
            assert!(
                text.contains(&format!("# TYPE {name} ")),
                "{name} is described, and never shown"
            );
        }
    }

    /// Regression: one member alone is `safe`, and no metric said that the backups of its keyspaces
    /// had no place.
    #[test]
    fn copies_that_no_member_can_hold_are_counted() {
        let (metrics, mut table) = (recorders("n1"), table());
        let shows = |table: &Table, copies: usize| {
            let text = shown(&metrics, Some(table), true);
            let line =
                format!("doyen_keyspace_copies_without_place{{keyspace=\"default\"}} {copies}\n");
            assert!(
                text.contains(&line) && text.contains("doyen_safe 1\n"),
                "{text}"
            );
        };
        shows(&table, 1);
        table.keyspaces[0].backups = 3;
        shows(&table, 3);
        table.keyspaces[0].backups = 0;
        shows(&table, 0);
    }

    #[test]
    fn outdated_gauges_are_not_shown() {
        let (metrics, mut table) = (recorders("n1"), table());
        let text = shown(&metrics, Some(&table), true);
        assert!(
            text.contains("doyen_keyspace_unavailable{keyspace=\"default\"} 0")
                && text.contains("doyen_coordinator_known 1"),
            "{text}"
        );
        assert!(
            text.contains("doyen_partitions_surplus{keyspace=\"default\",of=\"copies\"} 0"),
            "{text}"
        );
        table.keyspaces.clear();
        table.settings.balancing.paused = Some(Paused::Failures);
        let text = shown(&metrics, Some(&table), false);
        assert!(
            !text.contains("keyspace=") && !text.contains("doyen_load_ratio"),
            "{text}"
        );
        assert!(
            text.contains("doyen_balance_paused{by=\"failures\"} 1")
                && text.contains("doyen_balance_paused{by=\"operator\"} 0"),
            "{text}"
        );
    }

    type Figures = BTreeMap<String, DebugValue>;

    /// The figures of the host's recorder by name and labels; each is described.
    fn figures(snapshotter: &Snapshotter) -> Figures {
        let snapshot = snapshotter.snapshot().into_vec();
        let each = snapshot.into_iter().map(|(key, unit, meaning, value)| {
            assert!(unit.is_some() && meaning.is_some(), "{key:?}");
            let labels = key.key().labels();
            let labels: String = labels
                .map(|l| format!(" {}={}", l.key(), l.value()))
                .collect();
            (format!("{}{labels}", key.key().name()), value)
        });
        each.collect()
    }

    #[test]
    fn the_recorder_of_the_host_is_told_what_the_text_shows() {
        let (metrics, host) = (recorders("n1"), DebuggingRecorder::new());
        let (table, counted) = (table(), Counted::default());
        let snapshotter = host.snapshotter();
        let report = |seen: &MetricsSnapshot| {
            with_local_recorder(&host, || metrics.tell_host(seen, &counted));
            figures(&snapshotter)
        };
        let told = report(&seen(Some(&table), true));
        let names: HashSet<_> = told.keys().filter_map(|k| k.split(' ').next()).collect();
        for name in all() {
            // The kinds of events appear with the first event.
            let told = names.contains(name)
                || name == "doyen_events_total"
                || names.contains(format!("{name}_bucket").as_str());
            assert!(told, "{name} is not told");
        }
        let gauge = |figures: &Figures, name: &str| match figures.get(name) {
            Some(DebugValue::Gauge(value)) => value.into_inner(),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(gauge(&told, "doyen_load_ratio of=work node=n1"), 1.0);

        // The text has shown a time of a commit meanwhile. The host gets both.
        assert!(shown(&metrics, None, false).contains("doyen_table_commit_seconds_count 2"));
        let told = report(&seen(Some(&table), false));
        let times = told.get("doyen_table_commit_seconds node=n1");
        assert!(
            matches!(times, Some(DebugValue::Histogram(times)) if times.len() == 2),
            "{times:?}"
        );
        assert!(
            gauge(&told, "doyen_load_ratio of=work node=n1").is_nan(),
            "another coordinates"
        );
        assert_eq!(gauge(&told, "doyen_members node=n1"), 1.0);
        assert!(shown(&metrics, None, false).contains("doyen_table_commit_seconds_count 4"));
    }
}
