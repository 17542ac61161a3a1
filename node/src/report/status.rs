//! The status of a cluster, for people and programs: `doyen status`, `GET /status` and the demo
//! print it.

use crate::config::value::{EvictionPolicy, Lifetime, LossPolicy};
use crate::control::{ClusterStatus, DirectoryState};
use crate::remedy;
use crate::report::moves::BalanceReport;
use crate::report::table::name;
use doyen_gossip::agreement::{Half, OtherCluster, Split, Status};
use doyen_placement::planner::{self, Unmet};
use doyen_placement::quorum;
use doyen_placement::table::annex::{Gone, GoneMember};
use doyen_placement::{
    Keyspace, MemberId, MemberState, Mode, Partition, PartitionRef, ReplicaState, Role, Table, Tags,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// A cluster at one moment, as one node knows it.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::ReportError> {
/// let status = node.admin().status().await?;
/// for member in status.members.iter().filter(|member| member.state != "live") {
///     println!("{} ({}) is {}", member.name, member.address, member.state);
/// }
/// for keyspace in &status.keyspaces {
///     println!("{}: {} partitions lack copies", keyspace.name, keyspace.under_replicated);
///     for rule in &keyspace.unmet {
///         println!("{} is not met: {}", rule.rule, rule.why);
///     }
/// }
/// for each in &status.moves {
///     println!("{}/{} moves to {:?}", each.keyspace, each.partition, each.goal);
/// }
/// for other in &status.others {
///     println!("another cluster has this secret: {other}");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterReport {
    /// The cluster; `None` until this node is a member of one.
    pub cluster_id: Option<String>,
    /// The term of the installed table.
    pub term: u64,
    /// The version of the installed table.
    pub version: u64,
    /// The level of the installed table: every member speaks it.
    #[serde(default)]
    pub level: u16,
    /// The highest level that the reporting node speaks.
    #[serde(default)]
    pub level_max: u16,
    /// The coordinator's name, if one is known.
    pub coordinator: Option<String>,
    /// Whether the cluster is healthy, according to the coordinator, which must have the table that
    /// is shown here. In a healthy cluster, every partition serves and has as many copies in sync
    /// as its keyspace wants, or as many as there are live members that may hold data, if these
    /// are fewer. No move is pending or still to be planned, every member that should vote does,
    /// and every member has answered a ping that was sent after the question.
    pub safe: bool,
    /// Why it is not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsafe_for: Option<String>,
    /// The members, oldest first.
    pub members: Vec<MemberReport>,
    /// The last members that went and did not come back, in the order in which they went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<GoneReport>,
    /// The keyspaces.
    pub keyspaces: Vec<KeyspaceReport>,
    /// Moves under way.
    pub moves: Vec<MovingPartition>,
    /// Why nothing moves, if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Other clusters of the same secret that were met lately and that hold data. They never merge
    /// with this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherClusterReport>,
    /// Another half of this cluster, if a recovery split it and both halves live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitReport>,
    /// Whether copies move for balance: `on`, or why not.
    #[serde(default)]
    pub balancing: String,
    /// The directory of the reporting node, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<DirectoryReport>,
}

/// The directory of a node (`--dir`).
///
/// Example: [`ClusterReport`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryReport {
    /// The directory.
    pub path: String,
    /// Why the last write failed. Until one succeeds, the node agrees to no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How many milliseconds the last write took, or the present one has taken so far, if that is
    /// longer.
    pub write_ms: u64,
}

impl DirectoryReport {
    pub(crate) fn new(state: &DirectoryState) -> Self {
        Self {
            path: state.path.display().to_string(),
            failure: state.failure.clone(),
            write_ms: u64::try_from(state.write.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Another half of the same cluster
/// ([operations](https://github.com/doyen-grid/doyen/blob/main/docs/operations.md#doyensplit)).
///
/// Example: [`ClusterReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitReport {
    /// A process of the other half.
    pub member: String,
    /// Its control port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Whether this half serves nothing.
    pub stopped: bool,
    /// Whether this node is ready all the same: this half went on by elections alone.
    pub ready: bool,
    /// What is wrong, and what to do.
    pub text: String,
}

impl SplitReport {
    fn new(split: &Split) -> Self {
        Self {
            member: split.name.clone(),
            address: split.address,
            stopped: split.is_stopped(),
            ready: split.half == Half::Serves,
            text: remedy::split_text(split),
        }
    }
}

/// Another cluster of the same secret.
///
/// Example: [`ClusterReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherClusterReport {
    /// The cluster.
    pub cluster_id: String,
    /// The name of its member that was met last.
    pub member: String,
    /// That member's control port.
    pub address: SocketAddr,
}

/// A member.
///
/// Example: [`ClusterReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// Its name.
    pub name: String,
    /// Its identity: one process start.
    pub id: String,
    /// Its seniority; the lowest is the oldest.
    pub age: u64,
    /// `live`, `draining`, `drained` (it holds nothing any more), `leaving` or `silent`;
    /// `unanswered` if the table says `live` and the member does not answer now.
    pub state: String,
    /// Whether its process is gone. Another one has its directory and none of its data, and waits
    /// for its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heir: bool,
    /// `data` or `witness`.
    #[serde(default)]
    pub role: String,
    /// Its zone, if one was named.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Its rack, if one was named.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rack: String,
    /// Its host, if one was named.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Its capacity; 100 is the default.
    #[serde(default)]
    pub weight: u32,
    /// How much of its memory (`--memory-max`) it has filled, in percent. `None`: the coordinator
    /// did not answer, or the member has not told it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<u8>,
    /// QUIC, control.
    pub address: SocketAddr,
    /// QUIC, data.
    pub data: SocketAddr,
    /// RESP.
    pub resp: Option<SocketAddr>,
    /// RESP for cluster-aware clients.
    pub resp_cluster: Option<SocketAddr>,
    /// HTTP.
    pub http: Option<SocketAddr>,
    /// Its data threads, including the first one.
    #[serde(default)]
    pub threads: Vec<ThreadReport>,
}

/// A member that went.
///
/// ```
/// use doyen::report::status::GoneReport;
///
/// let answered = r#"{"name": "n3", "why": "silent", "seconds": 240}"#;
/// let gone: GoneReport = serde_json::from_str(answered)?;
/// assert_eq!(gone.to_string(), "n3: gone 4 min ago: it does not answer");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneReport {
    /// Its name.
    pub name: String,
    /// `silent`: it did not answer any more. `left`: it left in order.
    pub why: String,
    /// For how long the reporting node has known that it is gone. The stream of the console has a
    /// moment in place of it (`since`, in Unix seconds), which stays the same.
    #[serde(default)]
    pub seconds: u64,
    /// Whether it went before the reporting node was a member, so that it is gone for longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub longer: bool,
}

impl GoneReport {
    /// Whether it is missed: it did not leave in order.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        self.why != "left"
    }
}

impl std::fmt::Display for GoneReport {
    /// For people.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (number, unit) = match self.seconds {
            seconds @ 0..120 => (seconds, "s"),
            seconds @ 120..7200 => (seconds / 60, "min"),
            seconds @ 7200..172_800 => (seconds / 3600, "h"),
            seconds => (seconds / 86_400, "days"),
        };
        let longer = if self.longer { "more than " } else { "" };
        let name = &self.name;
        match self.is_missed() {
            true => write!(
                f,
                "{name}: gone {longer}{number} {unit} ago: it does not answer"
            ),
            false => write!(f, "{name}: left in order {longer}{number} {unit} ago"),
        }
    }
}

/// A data thread of a member.
///
/// ```
/// use doyen::report::status::MemberReport;
///
/// /// Where native clients reach a member: one address for each of its threads.
/// fn seeds(member: &MemberReport) -> Vec<String> {
///     member.threads.iter().filter_map(|thread| Some(thread.data?.to_string())).collect()
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// QUIC, data.
    pub data: Option<SocketAddr>,
    /// RESP for cluster-aware clients.
    pub resp_cluster: Option<SocketAddr>,
}

/// A keyspace.
///
/// Example: [`ClusterReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyspaceReport {
    /// Its name.
    pub name: String,
    /// How a key finds its partition.
    pub mode: String,
    /// How many partitions it has.
    pub partitions: usize,
    /// Copies beside the primary.
    pub backups: u8,
    /// The fewest copies, including the primary, with which writes are acknowledged.
    pub min_in_sync: u8,
    /// What happens when every in-sync copy of a partition is gone: `wait`, or `reset:10m`.
    pub on_loss: String,
    /// Where a write is when it is acknowledged: `none` (in memory), or `log` (also on disk).
    #[serde(default)]
    pub durability: String,
    /// Expiry for keys that are written without one: `60s`, or `none`.
    pub default_ttl: String,
    /// Which keys are evicted if memory is full: `none`, `lru`, `random` or `ttl`.
    #[serde(default)]
    pub eviction: String,
    /// Whether keys are kept in order within a partition. They always are in a keyspace of ranges.
    #[serde(default)]
    pub ordered: bool,
    /// Where a `{tag}` alone decides the partition of a key: in every database (`databases`), or in
    /// database 0 alone (`zero`), as in keyspaces that are older than level 15. Ranges have no
    /// tags.
    #[serde(default)]
    pub tags: String,
    /// Which members may hold and lead its partitions: `primary in zone=a`.
    #[serde(default)]
    pub rules: Vec<String>,
    /// The rules that are not met.
    #[serde(default)]
    pub unmet: Vec<UnmetReport>,
    /// Splits and merges under way.
    #[serde(default)]
    pub reshaping: usize,
    /// Partitions with fewer copies in sync than the keyspace wants and the live members allow.
    pub under_replicated: usize,
    /// Partitions that no member serves.
    pub unavailable: usize,
}

/// A rule that is not met.
///
/// Example: [`ClusterReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmetReport {
    /// The rule.
    pub rule: String,
    /// Partitions that break it.
    pub partitions: usize,
    /// Why it cannot be met, or that it is not met yet.
    pub why: String,
}

/// A partition that moves, or that gets another copy.
///
/// Example: [`ClusterReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovingPartition {
    /// The keyspace.
    pub keyspace: String,
    /// The partition.
    pub partition: u32,
    /// The members that hold it in sync, the primary first.
    pub in_sync: Vec<String>,
    /// The members that are catching up.
    pub learners: Vec<String>,
    /// The members that shall hold it, the primary first; empty if only a copy is made.
    pub goal: Vec<String>,
}

/// The keyspaces with partitions of this kind, and how many each has; empty if there are none.
fn counted(keyspaces: &[KeyspaceReport], count: impl Fn(&KeyspaceReport) -> usize) -> String {
    let some = keyspaces
        .iter()
        .map(|k| (count(k), k))
        .filter(|(n, _)| *n > 0);
    some.map(|(n, k)| format!("{n} of {} in {}", k.partitions, k.name))
        .collect::<Vec<_>>()
        .join(", ")
}

impl OtherClusterReport {
    fn new(other: &OtherCluster) -> Self {
        Self {
            cluster_id: other.cluster.to_string(),
            member: other.name.clone(),
            address: other.address,
        }
    }
}

impl std::fmt::Display for OtherClusterReport {
    /// For people who look at one of the two clusters.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "there are two clusters: {} at {} is of another one ({}). They never merge: stop the \
             nodes of one, and start them again with --seed and an address of the other. If that \
             is done already, wait: a cluster that is \
             silent for 30 s is forgotten",
            self.member, self.address, self.cluster_id
        )
    }
}

impl ClusterReport {
    /// How many live members may hold data, including those that do not answer now.
    #[must_use]
    pub fn holders(&self) -> usize {
        let lives = |state: &str| ["live", "unanswered"].contains(&state);
        let holds = |m: &&MemberReport| m.role == "data" && lives(&m.state);
        self.members.iter().filter(holds).count()
    }
}

impl KeyspaceReport {
    /// How many of the copies that it asks for have no place, because each of the `holders` holds
    /// at most one copy of a partition.
    #[must_use]
    pub fn copies_without_place(&self, holders: usize) -> usize {
        (usize::from(self.backups) + 1).saturating_sub(holders)
    }
}

impl MemberReport {
    /// Whether it may be given copies.
    pub fn may_hold(&self) -> bool {
        self.state == "live" && self.role == "data"
    }
}

#[cfg(any(test, feature = "testkit"))]
impl ClusterReport {
    /// A report with members of these names, and two partitions with a backup. If it is not safe,
    /// one partition lacks a copy.
    #[doc(hidden)]
    #[must_use]
    pub fn sample(members: &[&str], safe: bool) -> Self {
        use serde_json::json;
        let member = |name: &&str| {
            json!({
                "name": name, "id": "1", "age": 1, "state": "live", "role": "data",
                "address": "127.0.0.1:1", "data": "127.0.0.1:2",
                "resp": null, "resp_cluster": null, "http": null,
            })
        };
        let few = u8::from(!safe);
        serde_json::from_value(json!({
            "cluster_id": "c", "term": 1, "version": 1, "coordinator": "ada", "safe": safe,
            "moves": [],
            "members": members.iter().map(member).collect::<Vec<_>>(),
            "keyspaces": [{
                "name": "default", "mode": "fixed", "partitions": 2, "backups": 1,
                "min_in_sync": 1, "on_loss": "wait", "default_ttl": "none",
                "under_replicated": few, "unavailable": 0,
            }],
        }))
        .expect("a report")
    }
}

impl ClusterReport {
    /// Made from the control thread's status.
    #[must_use]
    pub fn new(cluster: &ClusterStatus) -> Self {
        Self::made(cluster, planner::rules_unmet)
    }

    /// The same, without the rules that are not met: finding those goes through every layout.
    pub fn brief(cluster: &ClusterStatus) -> Self {
        Self::made(cluster, |_| Vec::new())
    }

    fn made(cluster: &ClusterStatus, unmet: impl FnOnce(&Table) -> Vec<Unmet>) -> Self {
        let status = &cluster.status;
        let directory = cluster.directory.as_ref().map(DirectoryReport::new);
        let Some(table) = cluster.installed.as_deref() else {
            return Self {
                level_max: cluster.level_max,
                waiting: status.waiting.clone(),
                directory,
                ..Self::default()
            };
        };
        let closed: BTreeSet<PartitionRef> = status.closed.iter().copied().collect();
        let unanswered: BTreeSet<MemberId> = status.unanswered.iter().copied().collect();
        let stopped = status.split.as_ref().is_some_and(Split::is_stopped);
        // Without the answers of a majority no member holds a lease, so no member serves (rule 8).
        let halted = stopped
            || status.coordinator.is_none()
                && !quorum::majority(&table.voters, |v| !unanswered.contains(&v));
        let unmet = unmet(table);
        let seen = SeenStatus {
            table,
            closed: &closed,
            unanswered: &unanswered,
            unmet: &unmet,
            halted,
        };
        let keyspaces: Vec<_> = table.keyspaces.iter().map(|k| seen.keyspace(k)).collect();
        let moves: Vec<_> = table
            .keyspaces
            .iter()
            .flat_map(|k| k.partitions.iter().filter_map(|p| movement(table, k, p)))
            .collect();
        // The coordinator may be a table ahead of this node.
        let current = status
            .installed
            .is_some_and(|name| (name.term, name.version) == (table.term, table.version));
        // If few of many members vote, the death of a few stops the cluster.
        let settled = planner::choose_voters(table) == table.voters;
        let unserved = counted(&keyspaces, |k| k.unavailable);
        let lacking = counted(&keyspaces, |k| k.under_replicated);
        let silence = match status.coordinator {
            None => "no member coordinates",
            Some(id) if unanswered.contains(&id) => "the coordinator does not answer",
            // It may have been elected just now.
            Some(_) => "the coordinator has not answered yet",
        };
        let safe = [
            (!stopped, "this half of a split cluster serves nothing", ""),
            (cluster.from_coordinator, silence, ""),
            (current, "a newer table is on its way to this node", ""),
            (unserved.is_empty(), "partitions are not served", &unserved),
            (lacking.is_empty(), "copies are lacking", &lacking),
            (moves.is_empty(), "copies are on their way", ""),
            (
                !status.planning,
                "the coordinator looks whether anything is to be moved",
                "",
            ),
            (settled, "members that should vote do not yet", ""),
        ];
        let said = |why: &str, which: &str| {
            if which.is_empty() {
                why.to_owned()
            } else {
                format!("{why} ({which})")
            }
        };
        let unsafe_for = safe
            .iter()
            .find(|(holds, ..)| !holds)
            .map(|(_, why, which)| said(why, which));
        Self {
            cluster_id: Some(table.cluster.to_string()),
            term: table.term.0,
            version: table.version.0,
            level: table.level,
            level_max: cluster.level_max,
            coordinator: status
                .coordinator
                .and_then(|id| table.member(id))
                .map(|m| m.name.clone()),
            safe: unsafe_for.is_none(),
            unsafe_for,
            members: table
                .members
                .iter()
                .map(|m| member(table, m, status))
                .collect(),
            gone: table
                .annex
                .gone
                .iter()
                .map(|one| gone(one, cluster))
                .collect(),
            keyspaces,
            moves,
            waiting: status.waiting.clone(),
            others: status.others.iter().map(OtherClusterReport::new).collect(),
            split: status.split.as_ref().map(SplitReport::new),
            directory,
            balancing: BalanceReport::new(table).state,
        }
    }

    /// These members have not answered a ping that was sent after the question.
    pub(crate) fn note_silent<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let names: Vec<&str> = names.collect();
        if !names.is_empty() {
            self.safe = false;
            self.unsafe_for = Some(format!(
                "no answer within a second from {}",
                names.join(", ")
            ));
        }
    }
}

fn gone(gone: &Gone, cluster: &ClusterStatus) -> GoneReport {
    let counted = cluster.gone.get(&gone.id);
    GoneReport {
        name: gone.name.clone(),
        why: match gone.why {
            GoneMember::Left => "left",
            GoneMember::Silent => "silent",
        }
        .into(),
        seconds: counted.map_or(0, |counted| counted.known.as_secs()),
        longer: counted.is_none_or(|counted| counted.longer),
    }
}

fn member(table: &Table, m: &doyen_placement::Member, status: &Status) -> MemberReport {
    let unanswered = status.unanswered.contains(&m.id);
    let state = match m.state {
        MemberState::Live if unanswered => "unanswered",
        MemberState::Draining if !planner::holds_anything(table, m.id) => "drained",
        other => state(other),
    };
    MemberReport {
        name: m.name.clone(),
        id: m.id.to_string(),
        age: m.age.0,
        state: state.into(),
        heir: status.heirs.contains(&m.id),
        role: if m.role == Role::Data {
            "data"
        } else {
            "witness"
        }
        .into(),
        zone: m.location.zone.clone(),
        rack: m.location.rack.clone(),
        host: m.location.host.clone(),
        weight: m.weight,
        memory_percent: status
            .filled
            .iter()
            .find(|(id, _)| *id == m.id)
            .map(|(_, filled)| *filled),
        address: m.addresses.control,
        data: m.addresses.data,
        resp: m.addresses.resp,
        resp_cluster: m.addresses.resp_cluster,
        http: m.addresses.http,
        threads: (0..m.addresses.threads())
            .map(|t| ThreadReport {
                data: m.addresses.data_of(t),
                resp_cluster: m.addresses.resp_cluster_of(t),
            })
            .collect(),
    }
}

fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Live => "live",
        MemberState::Draining => "draining",
        MemberState::Leaving => "leaving",
        MemberState::Silent => "silent",
    }
}

/// How many members may hold data: the limit of copies.
fn holders(table: &Table) -> usize {
    table
        .members
        .iter()
        .filter(|m| planner::may_receive(m))
        .count()
}

/// A table, and what is known beyond it.
struct SeenStatus<'a> {
    table: &'a Table,
    closed: &'a BTreeSet<PartitionRef>,
    unanswered: &'a BTreeSet<MemberId>,
    unmet: &'a [Unmet],
    /// Too few members answer, so no member serves.
    halted: bool,
}

impl SeenStatus<'_> {
    fn keyspace(&self, k: &Keyspace) -> KeyspaceReport {
        let partitions = k.count();
        let report = KeyspaceReport {
            name: k.name.clone(),
            mode: match k.mode {
                Mode::Fixed { .. } => "fixed",
                Mode::Ring { .. } => "ring",
                Mode::Range => "range",
            }
            .to_owned(),
            partitions,
            backups: k.backups,
            min_in_sync: k.min_in_sync,
            on_loss: LossPolicy(k.on_loss).to_string(),
            durability: k.durability.to_string(),
            default_ttl: Lifetime(k.default_ttl_ms.map(Duration::from_millis)).to_string(),
            eviction: EvictionPolicy(k.eviction).to_string(),
            ordered: k.ordered || k.mode == Mode::Range,
            tags: match k.tags {
                Tags::Zero => "zero",
                Tags::Databases => "databases",
            }
            .to_owned(),
            rules: k.rules.iter().map(ToString::to_string).collect(),
            unmet: self
                .unmet
                .iter()
                .filter(|u| u.keyspace == k.id)
                .map(unmet)
                .collect(),
            reshaping: k.reshaping.under_way.len(),
            under_replicated: partitions,
            unavailable: partitions,
        };
        if k.partitions.is_empty() {
            return report;
        }
        let wanted = holders(self.table).min(usize::from(k.backups) + 1);
        // A silent member's copy does not count.
        let copies = |p: &Partition| p.in_sync().filter(|&m| !self.silent(m)).count();
        let closed = |p: &Partition| {
            self.closed.contains(&PartitionRef {
                keyspace: k.id,
                partition: p.id,
            })
        };
        let serves = |p: &Partition| !self.halted && !self.silent(p.primary()) && !closed(p);
        KeyspaceReport {
            under_replicated: k.partitions.iter().filter(|p| copies(p) < wanted).count(),
            unavailable: k.partitions.iter().filter(|p| !serves(p)).count(),
            ..report
        }
    }

    fn silent(&self, id: MemberId) -> bool {
        self.unanswered.contains(&id)
            || self
                .table
                .member(id)
                .is_none_or(|m| m.state == MemberState::Silent)
    }
}

fn unmet(unmet: &Unmet) -> UnmetReport {
    let Unmet {
        keyspace: _,
        rule,
        partitions,
        why,
    } = unmet;
    UnmetReport {
        rule: rule.to_string(),
        partitions: *partitions,
        why: why.to_string(),
    }
}

fn movement(table: &Table, k: &Keyspace, p: &Partition) -> Option<MovingPartition> {
    let learning = p.replicas.iter().any(|r| r.state == ReplicaState::Learner);
    (learning || p.goal.is_some()).then(|| MovingPartition {
        keyspace: k.name.clone(),
        partition: p.id.0,
        in_sync: p.in_sync().map(|m| name(table, m)).collect(),
        learners: p.learners().map(|m| name(table, m)).collect(),
        goal: p.goal.iter().flatten().map(|&m| name(table, m)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{cluster, id, seen};
    use std::collections::BTreeMap;

    #[test]
    fn a_whole_cluster_is_safe_when_its_coordinator_says_so() {
        let mut status = seen(cluster(3), vec![], true);
        status.status.filled = vec![(id(2), 91)];
        let report = ClusterReport::new(&status);
        assert!(report.safe, "{report:?}");
        assert_eq!(
            report
                .members
                .iter()
                .map(|m| m.memory_percent)
                .collect::<Vec<_>>(),
            [None, Some(91), None]
        );
        assert_eq!(report.coordinator.as_deref(), Some("node-1"));
        assert_eq!(
            report.members.iter().map(|m| m.age).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert_eq!(report.keyspaces[0].partitions, 16);
        assert!(
            !ClusterReport::new(&seen(cluster(3), vec![], false)).safe,
            "others do not hear what is open"
        );
    }

    #[test]
    fn a_lost_copy_is_not_safe_until_one_node_is_all_there_is() {
        let gone = BTreeMap::from([(id(2), planner::Absence::Silent)]);
        let report = ClusterReport::new(&seen(planner::remove(&cluster(3), &gone), vec![], true));
        assert!(
            !report.safe && report.keyspaces[0].under_replicated > 0,
            "{report:?}"
        );
        let report = ClusterReport::new(&seen(planner::remove(&cluster(2), &gone), vec![], true));
        assert!(
            report.safe,
            "one copy is all that one node can hold: {report:?}"
        );
    }

    #[test]
    fn a_cluster_of_few_voters_is_not_safe_yet() {
        let mut table = cluster(3);
        table.voters.truncate(1);
        assert!(
            !ClusterReport::new(&seen(table, vec![], true)).safe,
            "one death would stop it"
        );
    }

    /// `safe` came a moment early after a join: before the plan for the newcomer was made, nothing
    /// was on its way.
    #[test]
    fn an_unplanned_table_is_not_safe() {
        let mut status = seen(cluster(3), vec![], true);
        status.status.planning = true;
        assert!(!ClusterReport::new(&status).safe);
        status.status.planning = false;
        assert!(ClusterReport::new(&status).safe);
        // The coordinator's status is about a table that this node does not show yet.
        status.status.installed = Some(cluster(4).name());
        status
            .status
            .installed
            .as_mut()
            .expect("set above")
            .version
            .0 += 1;
        assert!(!ClusterReport::new(&status).safe);
    }

    /// While an election went on, the headline said that the member which won it does not answer.
    #[test]
    fn a_coordinator_that_was_just_elected_is_not_called_silent() {
        let mut status = seen(cluster(3), vec![], true);
        status.from_coordinator = false;
        let why = |status: &ClusterStatus| ClusterReport::new(status).unsafe_for;
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(why(&status), said("the coordinator has not answered yet"));
        status.status.unanswered = status.status.coordinator.into_iter().collect();
        assert_eq!(why(&status), said("the coordinator does not answer"));
        status.status.coordinator = None;
        assert_eq!(why(&status), said("no member coordinates"));
    }

    /// The survivor of a pair showed its dead elder as live, and every partition as served.
    #[test]
    fn a_node_without_a_majority_shows_it() {
        let mut status = seen(cluster(2), vec![], false);
        status.status = Status {
            coordinator: None,
            leading: false,
            unanswered: vec![id(1)],
            me: id(2),
            ..status.status
        };
        let report = ClusterReport::new(&status);
        assert_eq!(
            report
                .members
                .iter()
                .map(|m| m.state.as_str())
                .collect::<Vec<_>>(),
            ["unanswered", "live"]
        );
        assert_eq!((report.coordinator, report.safe), (None, false));
        assert_eq!(
            (
                report.keyspaces[0].unavailable,
                report.keyspaces[0].under_replicated
            ),
            (16, 16)
        );
    }

    #[test]
    fn the_json_has_the_fields_that_programs_rely_on() {
        let json = serde_json::to_value(ClusterReport::new(&seen(cluster(2), vec![], true)))
            .expect("json");
        let keys = |v: &serde_json::Value| {
            v.as_object()
                .expect("an object")
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            keys(&json),
            [
                "balancing",
                "cluster_id",
                "coordinator",
                "keyspaces",
                "level",
                "level_max",
                "members",
                "moves",
                "safe",
                "term",
                "version"
            ]
        );
        let member = [
            "address",
            "age",
            "data",
            "http",
            "id",
            "name",
            "resp",
            "resp_cluster",
            "role",
            "state",
            "threads",
            "weight",
        ];
        assert_eq!(keys(&json["members"][0]), member);
        let keyspace = [
            "backups",
            "default_ttl",
            "durability",
            "eviction",
            "min_in_sync",
            "mode",
            "name",
            "on_loss",
            "ordered",
            "partitions",
            "reshaping",
            "rules",
            "tags",
            "unavailable",
            "under_replicated",
            "unmet",
        ];
        assert_eq!(keys(&json["keyspaces"][0]), keyspace);
    }
}
