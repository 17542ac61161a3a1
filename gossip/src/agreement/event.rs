//! What happens in a cluster, for people: each event is reported once, by the node that learns of
//! it.
//!
//! Every member tells what follows from tables. The coordinator tells what is only suspected or
//! measured.

use super::context::NamedTable;
use doyen_placement::planner;
use doyen_placement::words::{PARTITIONS, counted};
use doyen_placement::{
    Keyspace, KeyspaceId, Lineage, MapEntry, MapLimits, MemberId, MemberState, Mode, OnLoss,
    Partition, PartitionRef, Paused, Scheduler, Table,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The number of partitions that an event names. It always gives their count.
const NAMED_MAX: usize = 8;

/// Something that operators want to know.
///
/// ```
/// # use doyen_gossip::agreement as doyen;
/// use doyen::{Event, Severity};
///
/// let why = "no copy is left".to_owned();
/// let event = Event::Lost { partitions: 3, keyspace: "orders".to_owned(), why };
/// assert_eq!((event.kind(), event.severity()), ("lost", Severity::Error));
/// println!("{event}"); // for people
/// assert!(Event::Repaired.severity() < Severity::Warning);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A member was admitted.
    Joined {
        /// Its name.
        name: String,
        /// Its id.
        #[serde(serialize_with = "as_text")]
        id: MemberId,
    },
    /// A member left in order.
    Left {
        /// Its name.
        name: String,
        /// Its id.
        #[serde(serialize_with = "as_text")]
        id: MemberId,
    },
    /// A member was expelled.
    Expelled {
        /// Its name.
        name: String,
        /// Its id.
        #[serde(serialize_with = "as_text")]
        id: MemberId,
        /// The reason.
        why: String,
    },
    /// A member does not answer as it should. The coordinator asks it at shorter intervals, and
    /// expels it if it remains silent.
    Suspected {
        /// Its name.
        name: String,
        /// Its id.
        #[serde(serialize_with = "as_text")]
        id: MemberId,
    },
    /// A member is being emptied. It receives no more copies, and its data moves to other members.
    Draining {
        /// Its name.
        name: String,
    },
    /// A member that was being emptied holds no data any more.
    Drained {
        /// Its name.
        name: String,
    },
    /// A copy does not fit on a member beside the memory that is kept free for writes.
    NoRoom {
        /// Its name.
        name: String,
    },
    /// A member answers pings, but several others cannot copy to it. It receives no copies for a
    /// while.
    Unreached {
        /// Its name.
        name: String,
        /// The address of its data port.
        data: String,
    },
    /// A member that was being emptied may hold data again: an operator said so, or no other member
    /// is left that could.
    Filled {
        /// Its name.
        name: String,
    },
    /// A coordinator was heard of for the first time.
    Coordinator {
        /// Its name.
        name: String,
        /// Its term.
        term: u64,
    },
    /// No member coordinates at the moment.
    NoCoordinator {
        /// The reason, and what a person can do about it.
        why: String,
    },
    /// Partitions began empty.
    Lost {
        /// The number of partitions.
        partitions: usize,
        /// Their keyspace.
        keyspace: String,
        /// The reason.
        why: String,
    },
    /// Moves have reached their next stage.
    Moved {
        /// The stage.
        stage: Stage,
        /// The number of partitions.
        count: usize,
        /// Some of the partitions, the first ones in order.
        partitions: Vec<String>,
        /// The members concerned: depending on the stage they receive a copy, lead now, or hold the
        /// copy no more. The first ones in order of age.
        members: Vec<String>,
    },
    /// Partitions were split or merged.
    Reshaped {
        /// The number of partitions that were replaced.
        before: usize,
        /// The number of partitions that replaced them.
        after: usize,
        /// Their keyspace.
        keyspace: String,
    },
    /// More partitions than before lack copies in sync.
    UnderReplicated {
        /// The number of such partitions now.
        partitions: usize,
    },
    /// Every partition has all its copies in sync again.
    Repaired,
    /// More partitions than before are not served: the primary does not answer, and no other member
    /// has the data.
    Unavailable {
        /// The number of such partitions now.
        partitions: usize,
    },
    /// Every partition is served again.
    Available,
    /// A new copy was not equal to its primary's data, so it is made again.
    Differed {
        /// The partition.
        partition: String,
        /// The member that made the copy.
        learner: String,
    },
    /// Nothing moves for balance any more.
    BalancePaused {
        /// What paused it.
        by: String,
    },
    /// Copies and primaries move for balance again.
    BalanceResumed,
    /// The cluster runs at a higher level, because every member speaks it.
    Level {
        /// The level.
        level: u16,
    },
    /// An operator changed how the cluster behaves.
    Changed {
        /// What changed, and to what.
        what: String,
    },
    /// The load has been uneven for a minute. If a move helps, something moves.
    Imbalance {
        /// What is uneven: `work` or `bytes`.
        of: String,
    },
    /// A member passed a watermark of its memory, upwards or downwards.
    Watermark {
        /// Its name.
        name: String,
        /// The highest watermark that it is above, in percent of its limit. 0: it is below all
        /// watermarks again.
        percent: u8,
        /// The highest watermark that it was above before.
        before: u8,
    },
    /// Another cluster of the same secret was met, and both hold data.
    OtherCluster {
        /// The member of the other cluster.
        name: String,
        /// Its control port.
        address: String,
        /// The id of the other cluster.
        cluster: String,
        /// The id of this cluster.
        own: String,
    },
    /// The other cluster was silent for long, or the process that was met has joined this cluster.
    OtherClusterGone {
        /// The id of the other cluster.
        cluster: String,
        /// The member of this cluster at whose address the other cluster's member was met.
        #[serde(skip_serializing_if = "Option::is_none")]
        joined: Option<String>,
    },
    /// An operator's word (`recover`) split this cluster: another half lives.
    Split {
        /// A process of the other half.
        name: String,
        /// Its control port.
        address: String,
        /// What that means for this half.
        half: Half,
    },
    /// Nothing was heard of the other half for long, or an operator has kept this one.
    SplitEnded,
    /// A person or a program changed something by an interface of this node, or tried to. Only this
    /// node tells it.
    Audit {
        /// Whose credential it was: a token, a user, an operator's secret.
        who: String,
        /// `http` or `resp`.
        interface: String,
        /// The address from which the request came.
        from: String,
        /// The request, without secrets and keys.
        what: String,
        /// What came of it.
        outcome: String,
        /// The caller may not do that.
        refused: bool,
        /// Further refused attempts from the same network since the last such event. They have no
        /// event of their own.
        others: u64,
    },
    /// Another message that belongs in the log.
    Note {
        /// The text.
        text: String,
    },
}

/// The stages of a move.
///
/// ```
/// # use doyen_gossip::agreement as doyen;
/// use doyen::{Event, Stage};
///
/// /// How many copies were completed.
/// fn completed(event: &Event) -> usize {
///     match event {
///         Event::Moved { stage: Stage::InSync, count, .. } => *count,
///         _ => 0,
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// A learner was added.
    Copying,
    /// A learner has all the data, and counts as a copy.
    InSync,
    /// Another member is the primary now.
    Switched,
    /// A copy that is no longer needed was dropped.
    Dropped,
    /// A learner was given up, because it failed or has no room.
    GivenUp,
    /// A learner is no longer wanted: an operator said so, or another plan is better.
    Cancelled,
}

/// What a split means for the half that a node is of (rule 13).
///
/// ```
/// # use doyen_gossip::agreement as doyen;
/// use doyen::Half;
///
/// /// Whether clients of this node should go elsewhere.
/// fn turns_away(half: Half) -> bool {
///     half != Half::Serves
/// }
/// # assert!(turns_away(Half::Stopped { both: false }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// Another half was recovered, and gives way: this one went on by elections, or an operator
    /// kept it. It serves on.
    Serves,
    /// This half was recovered, and a process that cannot prove that it was asserted dead says that
    /// the others went on. It serves, and is not ready.
    Doubted,
    /// This half was recovered, and a process that was asserted dead lives and follows other
    /// tables. It serves nothing.
    Stopped {
        /// Whether the other half was recovered as well, so that it is stopped, too.
        both: bool,
    },
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Serves => {
                "follows a half that was recovered (`recover`) while this one went on. This half \
                 serves on, and what the other one acknowledges is lost"
            }
            Self::Doubted => {
                "follows tables without the recovery (`recover`) of this half, and does not prove \
                 that it is one of those that were asserted dead. This node serves on, and is not \
                 ready"
            }
            Self::Stopped { both: false } => {
                "was asserted dead (`recover`), and lives. The others went on without this half, so \
                 this half serves nothing any more"
            }
            Self::Stopped { both: true } => {
                "was asserted dead (`recover`), and lives. Its half was recovered as well, so both \
                 serve nothing until an operator chooses"
            }
        })
    }
}

/// How serious an event is.
///
/// Example: [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The cluster works as it should.
    Info,
    /// A person should look at it.
    Warning,
    /// Data was lost, or cannot be reached.
    Error,
}

impl Event {
    /// A message for the log.
    #[must_use]
    pub fn note(text: impl Into<String>) -> Self {
        Self::Note { text: text.into() }
    }

    /// The name under which events of this kind are counted: `joined`, `moved` and so on.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Joined { .. } => "joined",
            Self::Left { .. } => "left",
            Self::Expelled { .. } => "expelled",
            Self::Suspected { .. } => "suspected",
            Self::Draining { .. } => "draining",
            Self::Drained { .. } => "drained",
            Self::Filled { .. } => "filled",
            Self::NoRoom { .. } => "no_room",
            Self::Unreached { .. } => "unreached",
            Self::Coordinator { .. } => "coordinator",
            Self::NoCoordinator { .. } => "no_coordinator",
            Self::Lost { .. } => "lost",
            Self::Moved { .. } => "moved",
            Self::Reshaped { .. } => "reshaped",
            Self::UnderReplicated { .. } => "under_replicated",
            Self::Repaired => "repaired",
            Self::Unavailable { .. } => "unavailable",
            Self::Available => "available",
            Self::Differed { .. } => "differed",
            Self::BalancePaused { .. } => "balance_paused",
            Self::BalanceResumed => "balance_resumed",
            Self::Level { .. } => "level",
            Self::Changed { .. } => "changed",
            Self::Imbalance { .. } => "imbalance",
            Self::Watermark { .. } => "watermark",
            Self::OtherCluster { .. } => "other_cluster",
            Self::OtherClusterGone { .. } => "other_cluster_gone",
            Self::Split { .. } => "split",
            Self::SplitEnded => "split_ended",
            Self::Audit { .. } => "audit",
            Self::Note { .. } => "note",
        }
    }

    /// How serious the event is.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Lost { .. }
            | Self::Unavailable { .. }
            | Self::OtherCluster { .. }
            | Self::Split { .. } => Severity::Error,
            Self::Expelled { .. }
            | Self::Suspected { .. }
            | Self::NoCoordinator { .. }
            | Self::UnderReplicated { .. }
            | Self::Differed { .. }
            | Self::Moved {
                stage: Stage::GivenUp,
                ..
            }
            | Self::Imbalance { .. }
            | Self::NoRoom { .. }
            | Self::Unreached { .. }
            | Self::Audit { refused: true, .. }
            | Self::Note { .. } => Severity::Warning,
            Self::Watermark {
                percent, before, ..
            } if *percent > *before => Severity::Warning,
            Self::Watermark { .. }
            | Self::Joined { .. }
            | Self::Left { .. }
            | Self::Draining { .. }
            | Self::Drained { .. }
            | Self::Filled { .. }
            | Self::Coordinator { .. }
            | Self::Moved { .. }
            | Self::Reshaped { .. }
            | Self::Repaired
            | Self::Available
            | Self::BalancePaused { .. }
            | Self::BalanceResumed
            | Self::Level { .. }
            | Self::OtherClusterGone { .. }
            | Self::SplitEnded
            | Self::Audit { .. }
            | Self::Changed { .. } => Severity::Info,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { name, id } => write!(f, "{name} joined (process {id})"),
            Self::Left { name, id } => write!(f, "{name} left in order (process {id})"),
            Self::Expelled { name, id, why } => {
                write!(f, "{name} was expelled (process {id}): {why}")
            }
            Self::Suspected { name, id } => write!(
                f,
                "{name} does not answer as it should (process {id}): if it stays silent, it is \
                 expelled"
            ),
            Self::Draining { name } => write!(f, "{name} is being emptied"),
            Self::Drained { name } => write!(f, "{name} holds no data any more: it may be stopped"),
            Self::NoRoom { name } => {
                write!(f, "{name} has no room for a copy that it was to get")
            }
            Self::Unreached { name, data } => write!(
                f,
                "{name} answers, but others cannot copy to it: is its data port ({data}) open to \
                 them? It receives no copies for a while, and its data is copied to other members"
            ),
            Self::Filled { name } => write!(f, "{name} may hold data again"),
            Self::Coordinator { name, term } => write!(f, "{name} coordinates, term {term}"),
            Self::NoCoordinator { why } => write!(f, "no member coordinates: {why}"),
            Self::Lost {
                partitions,
                keyspace,
                why,
            } => write!(
                f,
                "{} of keyspace {keyspace} began empty, and the data is lost: {why}",
                counted(*partitions, PARTITIONS)
            ),
            Self::Moved {
                stage,
                count,
                partitions,
                members,
            } => fmt_moved(f, *stage, *count, partitions, members),
            Self::Reshaped {
                before: n,
                after,
                keyspace,
            } => {
                let verb = if n < after { "split" } else { "merged" };
                write!(f, "keyspace {keyspace}: {} {verb} into {after}", were(*n))
            }
            Self::UnderReplicated { partitions } => fmt_under_replicated(f, *partitions),
            Self::Repaired => f.write_str("every partition has all its copies again"),
            Self::Unavailable { partitions } => fmt_unavailable(f, *partitions),
            Self::Available => f.write_str("every partition is served again"),
            Self::Differed { partition, learner } => write!(
                f,
                "the new copy of {partition} on {learner} differed from the primary's data, so it \
                 is made again"
            ),
            Self::BalancePaused { by } => write!(f, "nothing moves for balance, {by}"),
            Self::BalanceResumed => f.write_str("copies and primaries move for balance again"),
            Self::Level { level } => write!(
                f,
                "every member speaks level {level}: the cluster runs at it from now on, and a \
                 process that speaks less cannot join"
            ),
            Self::Changed { what } => f.write_str(what),
            Self::Imbalance { of } => {
                let share = match &**of {
                    "work" => "much more work".to_owned(),
                    of => format!("many more {of}"),
                };
                write!(
                    f,
                    "some members have had {share} than their share for a minute"
                )
            }
            Self::Watermark {
                name,
                percent,
                before,
            } => fmt_watermark(f, name, *percent, *before),
            Self::OtherCluster {
                name,
                address,
                cluster,
                own,
            } => write!(
                f,
                "there are two clusters: {name} at {address} is of cluster {cluster}, and this \
                 node is of {own}. Both hold data, so they never merge, and nodes that know of \
                 both are not ready"
            ),
            Self::OtherClusterGone { cluster, joined } => fmt_gone(f, cluster, joined.as_deref()),
            Self::Split {
                name,
                address,
                half,
            } => write!(f, "the cluster is split: {name} at {address} {half}"),
            Self::SplitEnded => f.write_str("the other half of the cluster counts as gone"),
            Self::Audit {
                who,
                interface,
                from,
                what,
                outcome,
                refused: _,
                others,
            } => {
                write!(f, "{who} at {from} ({interface}): {what}: {outcome}")?;
                match others {
                    0 => Ok(()),
                    others => write!(f, "; {others} more from there were refused before"),
                }
            }
            Self::Note { text } => f.write_str(text),
        }
    }
}

fn fmt_moved(
    f: &mut fmt::Formatter<'_>,
    stage: Stage,
    count: usize,
    partitions: &[String],
    members: &[String],
) -> fmt::Result {
    let more = if partitions.len() < count { ", .." } else { "" };
    let list = partitions.join(", ");
    write!(f, "{stage}: {} ({list}{more})", counted(count, PARTITIONS))?;
    match members.is_empty() {
        true => Ok(()),
        false => write!(f, " {} {}", stage.whereabouts(), members.join(", ")),
    }
}

fn fmt_watermark(f: &mut fmt::Formatter<'_>, name: &str, percent: u8, before: u8) -> fmt::Result {
    let consequence = consequence(percent);
    match percent {
        0 => write!(f, "{name} has memory to spare again"),
        _ if percent < before => write!(
            f,
            "{name} has filled less than {before} % of its memory again; while it is more than \
             {percent} %, {consequence}"
        ),
        _ => write!(
            f,
            "{name} has filled {percent} % of its memory: {consequence}"
        ),
    }
}

fn fmt_under_replicated(f: &mut fmt::Formatter<'_>, partitions: usize) -> fmt::Result {
    match partitions {
        1 => f.write_str("1 partition has fewer copies than it should"),
        n => write!(f, "{n} partitions have fewer copies than they should"),
    }
}

fn fmt_unavailable(f: &mut fmt::Formatter<'_>, partitions: usize) -> fmt::Result {
    match partitions {
        1 => f.write_str(
            "1 partition is not served: its primary does not answer, and no other member has its \
             data",
        ),
        _ => write!(
            f,
            "{partitions} partitions are not served: their primaries do not answer, and no other \
             member has their data"
        ),
    }
}

fn fmt_gone(
    f: &mut fmt::Formatter<'_>,
    cluster: impl fmt::Display,
    joined: Option<&str>,
) -> fmt::Result {
    match joined {
        None => write!(
            f,
            "nothing was heard of the other cluster {cluster} for half a minute, so it counts as \
             gone"
        ),
        Some(name) => write!(
            f,
            "{name}, which was met as a member of the other cluster {cluster}, has joined this \
             one, so the other cluster counts as gone"
        ),
    }
}

/// The number with its noun and verb.
fn were(count: usize) -> String {
    format!(
        "{} {}",
        counted(count, PARTITIONS),
        if count == 1 { "was" } else { "were" }
    )
}

/// Many readers of JSON cannot hold numbers with this many digits.
fn as_text<S: serde::Serializer>(id: &MemberId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// The consequence of memory that is filled above the first watermark.
#[must_use]
pub const fn consequence(percent: u8) -> &'static str {
    match percent {
        ..80 => "it receives no copy that another member can hold",
        80..90 => "copies move to other members, if any have filled less than 70 %",
        90.. => {
            "writes that need more memory are refused, or evict keys, as --eviction of their \
             keyspace says"
        }
    }
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 6] = [
        Self::Copying,
        Self::InSync,
        Self::Switched,
        Self::Dropped,
        Self::GivenUp,
        Self::Cancelled,
    ];

    /// The name under which moves are counted: `copying`, `in_sync` and so on, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copying => "copying",
            Self::InSync => "in_sync",
            Self::Switched => "switched",
            Self::Dropped => "dropped",
            Self::GivenUp => "given_up",
            Self::Cancelled => "cancelled",
        }
    }

    /// The words between the stage and the members that it concerns.
    const fn whereabouts(self) -> &'static str {
        match self {
            Self::Copying | Self::Switched | Self::GivenUp | Self::Cancelled => "to",
            Self::InSync => "on",
            Self::Dropped => "from",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copying => "copying begins",
            Self::InSync => "in sync",
            Self::Switched => "primary moved",
            Self::Dropped => "old copy dropped",
            Self::GivenUp => "copying was given up",
            Self::Cancelled => "copying was cancelled",
        })
    }
}

/// The events that follow from the difference of two tables.
pub(super) fn between(old: &NamedTable, new: &NamedTable) -> Vec<Event> {
    let mut told = members(old, new);
    told.extend(losses(old, new));
    told.extend(moves(old, new));
    told.extend(shapes(old, new));
    let ((lacked, unserved), (lack, unserved_now)) = (amiss(&old.table), amiss(&new.table));
    match (lacked, lack) {
        (0, 0) => {}
        // Fewer members may hold copies, so fewer copies are possible: that repairs nothing.
        (_, 0) if receivers(old) > receivers(new) => {}
        (_, 0) => told.push(Event::Repaired),
        (before, now) if now > before => told.push(Event::UnderReplicated { partitions: now }),
        _ => {}
    }
    match (unserved, unserved_now) {
        (0, 0) => {}
        (_, 0) => told.push(Event::Available),
        (before, now) if now > before => told.push(Event::Unavailable { partitions: now }),
        _ => {}
    }
    let (before, now) = (old.settings.balancing.paused, new.settings.balancing.paused);
    match now.filter(|_| before.is_none()) {
        Some(by) => told.push(Event::BalancePaused { by: by_whom(by) }),
        None if before.is_some() && now.is_none() => told.push(Event::BalanceResumed),
        None => {}
    }
    if new.level != old.level {
        told.push(Event::Level { level: new.level });
    }
    told.extend(
        changes(old, new)
            .into_iter()
            .map(|what| Event::Changed { what }),
    );
    told
}

/// The number of partitions that lack copies, and the number that no member serves. A partition
/// that was never assigned has lost nothing.
fn amiss(table: &Table) -> (usize, usize) {
    let health = planner::health(table);
    let begun = |id: &KeyspaceId| {
        table
            .keyspace(*id)
            .is_some_and(|k| !k.partitions.is_empty())
    };
    let all = |of: &BTreeMap<KeyspaceId, usize>| {
        of.iter()
            .filter(|(id, _)| begun(id))
            .map(|(_, count)| count)
            .sum()
    };
    (all(&health.under_replicated), all(&health.unavailable))
}

/// The settings of a keyspace that people can alter. Its partitions and its division change by
/// themselves as well.
fn said(k: &Keyspace) -> impl PartialEq {
    (
        k.mode,
        k.backups,
        k.min_in_sync,
        k.on_loss,
        k.durability,
        k.default_ttl_ms,
        k.eviction,
        &k.rules,
    )
}

/// The altered settings, in the words of the commands.
fn altered(before: &Keyspace, now: &Keyspace) -> Vec<String> {
    let lasting = |ms: u64| format!("{:?}", Duration::from_millis(ms));
    let words = |k: &Keyspace| {
        let on_loss = match k.on_loss {
            OnLoss::Wait => "wait".to_owned(),
            OnLoss::Reset { after_ms } => format!("reset after {}", lasting(after_ms)),
        };
        let none = || "none".to_owned();
        let rules = k.rules.iter().map(ToString::to_string).collect::<Vec<_>>();
        [
            (
                "partitions",
                if let Mode::Fixed { partitions } = k.mode {
                    partitions.to_string()
                } else {
                    none()
                },
            ),
            ("backups", k.backups.to_string()),
            ("min-in-sync", k.min_in_sync.to_string()),
            ("on-loss", on_loss),
            ("durability", k.durability.to_string()),
            ("default-ttl", k.default_ttl_ms.map_or_else(none, lasting)),
            ("eviction", k.eviction.name().to_owned()),
            (
                "rules",
                if rules.is_empty() {
                    none()
                } else {
                    rules.join("; ")
                },
            ),
        ]
    };
    let both = words(before).into_iter().zip(words(now));
    both.filter(|(before, now)| before != now)
        .map(|((what, before), (_, now))| format!("{what} {now} instead of {before}"))
        .collect()
}

/// What differs between the limits of a map, in words.
fn limits(before: &MapLimits, now: &MapLimits) -> Vec<String> {
    let words = |limits: &MapLimits| {
        let number = |n: Option<u64>| n.map_or_else(|| "none".to_owned(), |n| n.to_string());
        let idle = limits.idle_ms.map(Duration::from_millis);
        [
            ("max_entries", number(limits.entries)),
            ("max_bytes", number(limits.bytes)),
            ("eviction", limits.eviction.name().to_owned()),
            (
                "max_idle",
                idle.map_or_else(|| "none".to_owned(), |idle| format!("{idle:?}")),
            ),
        ]
    };
    let both = words(before).into_iter().zip(words(now));
    both.filter(|(before, now)| before != now)
        .map(|((what, before), (_, now))| format!("{what} {now} instead of {before}"))
        .collect()
}

fn receivers(table: &Table) -> usize {
    table
        .members
        .iter()
        .filter(|m| planner::may_receive(m))
        .count()
}

/// Changes of settings and of keyspaces, in words.
fn changes(old: &NamedTable, new: &NamedTable) -> Vec<String> {
    let mut told = Vec::new();
    let (before, now) = (&old.settings.balancing, &new.settings.balancing);
    if before.rate != now.rate {
        told.push(format!("the rate of moves is now {}", now.rate));
    }
    if before.window != now.window {
        let window = now
            .window
            .map_or_else(|| "always".to_owned(), |window| format!("{window} UTC"));
        told.push(format!("the window for balancing is now {window}"));
    }
    if old.settings.schedulers != new.settings.schedulers {
        let on = Scheduler::ALL
            .iter()
            .filter(|s| new.settings.schedulers.has(**s))
            .map(Scheduler::to_string);
        told.push(format!(
            "what moves by itself is now {}",
            on.collect::<Vec<_>>().join(", ")
        ));
    }
    for keyspace in &new.keyspaces {
        let name = &keyspace.name;
        match old.keyspace(keyspace.id) {
            None => told.push(format!("keyspace {name} was created")),
            Some(before) if said(before) != said(keyspace) => {
                told.push(format!(
                    "keyspace {name} was altered: {}",
                    altered(before, keyspace).join(", ")
                ));
            }
            Some(_) => {}
        }
    }
    for map in &new.maps {
        let Some(before) = old.map(map.id).filter(|before| before.limits != map.limits) else {
            continue;
        };
        let changes = limits(&before.limits, &map.limits).join(", ");
        let by = match new.annex.limited.get(&map.id) {
            Some(name) => format!(", by a program, a client or an operator of {name}"),
            None => String::new(),
        };
        told.push(format!("map {} was limited: {changes}{by}", map.name));
    }
    let dropped = old
        .keyspaces
        .iter()
        .filter(|k| new.keyspace(k.id).is_none());
    told.extend(dropped.map(|k| format!("keyspace {} was dropped", k.name)));
    let remains = |map: &MapEntry| new.keyspace(map.keyspace).is_some();
    let dropped = old.maps.iter().filter(|map| new.map(map.id).is_none());
    let dropped = dropped.filter(|map| remains(map));
    told.extend(dropped.map(|map| format!("map {} was dropped", map.name)));
    for token in &new.access.tokens {
        let (name, role) = (&token.name, token.grant.role);
        match old.access.grant(name) {
            None => told.push(format!("token {name} was made, with the role {role}")),
            Some(before) if before != token.grant => {
                told.push(format!("token {name} was replaced, with the role {role}"));
            }
            Some(_) => {}
        }
    }
    let revoked = old.access.tokens.iter();
    let revoked = revoked.filter(|token| new.access.grant(&token.name).is_none());
    told.extend(revoked.map(|token| format!("token {} was revoked", token.name)));
    let allowed = new.access.weights.iter();
    let allowed = allowed.filter(|now| old.access.weight(&now.name) != Some(now.weight));
    told.extend(allowed.map(|now| format!("weight {} is allowed for {}", now.weight, now.name)));
    let forgotten = old.access.weights.iter();
    let forgotten = forgotten.filter(|was| new.access.weight(&was.name).is_none());
    told.extend(forgotten.map(|was| {
        let (weight, name) = (was.weight, &was.name);
        format!("weight {weight} is no longer allowed for {name}")
    }));
    told
}

fn by_whom(paused: Paused) -> String {
    paused.to_string()
}

fn members(old: &NamedTable, new: &NamedTable) -> Vec<Event> {
    let mut told = Vec::new();
    if planner::stops(&new.table) && !planner::stops(&old.table) && !new.always_alone() {
        told.push(Event::note(
            "every member leaves, and no new member came to take over: the cluster ends",
        ));
    }
    for member in new.members.iter().filter(|m| old.member(m.id).is_none()) {
        told.push(Event::Joined {
            name: member.name.clone(),
            id: member.id,
        });
        if member.state == MemberState::Draining {
            told.push(Event::Draining {
                name: member.name.clone(),
            });
        }
    }
    for member in &old.members {
        let (name, id) = (member.name.clone(), member.id);
        match (member.state, new.member(id).map(|m| m.state)) {
            (MemberState::Leaving, None) => told.push(Event::Left { name, id }),
            (MemberState::Silent, Some(MemberState::Live | MemberState::Draining)) => {
                told.push(Event::note(format!("{name} answers again")))
            }
            (_, None) => told.push(Event::Expelled {
                name,
                id,
                why: "it does not answer".into(),
            }),
            (MemberState::Live, Some(MemberState::Draining)) => told.push(Event::Draining { name }),
            (MemberState::Draining, Some(MemberState::Live)) => told.push(Event::Filled { name }),
            (MemberState::Draining, Some(MemberState::Draining))
                if planner::holds_anything(&old.table, id)
                    && !planner::holds_anything(&new.table, id) =>
            {
                told.push(Event::Drained { name });
            }
            (state, Some(MemberState::Silent)) if state != MemberState::Silent => {
                told.push(Event::note(format!(
                    "{name} does not answer, and stays a member because it alone holds data"
                )));
            }
            _ => {}
        }
        if let Some(now) = new.member(id).filter(|now| now.name != member.name) {
            let (before, now) = (&member.name, &now.name);
            told.push(Event::note(format!(
                "{before} is another process now; the silent process that had this name before is \
                 called {now}"
            )));
        }
    }
    told
}

fn losses(old: &NamedTable, new: &NamedTable) -> Vec<Event> {
    let mut lost = BTreeMap::new();
    for (at, partition) in new.partitions() {
        let of = |at| old.partition(at).map(|p| p.lineage);
        let parents = partition.from.iter().filter_map(|from| {
            of(PartitionRef {
                partition: from.partition,
                ..at
            })
        });
        let before = of(at).or(parents.max()).unwrap_or(Lineage(0));
        if before > Lineage(0) && partition.lineage > before {
            *lost.entry(at.keyspace).or_insert(0_usize) += 1;
        }
    }
    let told = lost.into_iter().map(|(keyspace, partitions)| {
        let keyspace = new
            .keyspace(keyspace)
            .map_or_else(String::new, |k| k.name.clone());
        Event::Lost {
            partitions,
            keyspace,
            why: "no copy in sync is left".into(),
        }
    });
    told.collect()
}

/// The stages that moves pass from one table to the next.
#[must_use]
pub fn stages(old: &Table, new: &Table) -> BTreeSet<Stage> {
    moved(old, new).into_keys().collect()
}

/// The partitions that pass a stage, and the members concerned.
type Concerned = (Vec<PartitionRef>, BTreeSet<MemberId>);

fn moved(old: &Table, new: &Table) -> BTreeMap<Stage, Concerned> {
    let mut stages: BTreeMap<Stage, Concerned> = BTreeMap::new();
    for (before, now) in old
        .keyspaces
        .iter()
        .filter_map(|k| Some((k, new.keyspace(k.id)?)))
    {
        for partition in &before.partitions {
            let Some(next) = now
                .partition(partition.id)
                .filter(|next| !Arc::ptr_eq(next, partition))
            else {
                continue;
            };
            let at = PartitionRef::new(before.id, partition.id);
            for (stage, member) in
                stages_between(partition, next, |m| new.member(m).map(|m| m.state))
            {
                let (partitions, members) = stages.entry(stage).or_default();
                if partitions.last() != Some(&at) {
                    partitions.push(at);
                }
                members.insert(member);
            }
        }
    }
    stages
}

fn moves(old: &NamedTable, new: &NamedTable) -> Vec<Event> {
    let told = moved(&old.table, &new.table)
        .into_iter()
        .map(|(stage, (partitions, concerned))| Event::Moved {
            stage,
            count: partitions.len(),
            partitions: partitions
                .iter()
                .take(NAMED_MAX)
                .map(|at| new.name_of(*at))
                .collect(),
            members: new
                .members
                .iter()
                .filter(|m| concerned.contains(&m.id))
                .take(NAMED_MAX)
                .map(|m| m.name.clone())
                .collect(),
        });
    told.collect()
}

/// The stages that a partition passes, each with the member concerned. Changes that follow from the
/// removal of a member are no moves.
fn stages_between(
    old: &Partition,
    new: &Partition,
    state: impl Fn(MemberId) -> Option<MemberState>,
) -> BTreeSet<(Stage, MemberId)> {
    let stays = |m| state(m).is_some();
    let mut stages = BTreeSet::new();
    if old.replicas == new.replicas || old.lineage != new.lineage {
        return stages;
    }
    let (was, is): (Vec<MemberId>, Vec<MemberId>) =
        (old.in_sync().collect(), new.in_sync().collect());
    for learner in new.learners() {
        if !old.learners().any(|m| m == learner) {
            stages.insert((Stage::Copying, learner));
        }
    }
    for learner in old.learners().filter(|m| stays(*m)) {
        if is.contains(&learner) {
            stages.insert((Stage::InSync, learner));
        } else if !new.learners().any(|m| m == learner) {
            // A learner that fails stays in the goal, unless it is silent. If a learner is not
            // wanted, its goal is taken away first, or in the same table.
            let stands = old.goal == new.goal || state(learner) == Some(MemberState::Silent);
            let wanted = stands
                && old
                    .goal
                    .as_ref()
                    .is_some_and(|goal| goal.contains(&learner));
            stages.insert((
                if wanted {
                    Stage::GivenUp
                } else {
                    Stage::Cancelled
                },
                learner,
            ));
        }
    }
    if stays(old.primary()) && old.primary() != new.primary() {
        stages.insert((Stage::Switched, new.primary()));
    }
    let dropped = was
        .iter()
        .filter(|m| stays(**m) && !new.replicas.iter().any(|r| r.member == **m));
    stages.extend(dropped.map(|m| (Stage::Dropped, *m)));
    stages
}

fn shapes(old: &NamedTable, new: &NamedTable) -> Vec<Event> {
    let mut told = Vec::new();
    for (before, now) in old
        .keyspaces
        .iter()
        .filter_map(|k| Some((k, new.keyspace(k.id)?)))
    {
        if before.partitions.is_empty() || before.reshaping == now.reshaping {
            continue;
        }
        let gone = before
            .partitions
            .iter()
            .filter(|p| now.partition(p.id).is_none());
        let gone: BTreeSet<_> = gone.map(|p| p.id).collect();
        let born: Vec<_> = now
            .partitions
            .iter()
            .filter(|p| before.partition(p.id).is_none())
            .collect();
        let of_one = |split: bool| {
            let after: Vec<_> = born
                .iter()
                .filter(|p| (p.from.len() == 1) == split)
                .collect();
            let from: BTreeSet<_> = after
                .iter()
                .flat_map(|p| &p.from)
                .map(|from| from.partition)
                .filter(|p| gone.contains(p))
                .collect();
            (from.len(), after.len())
        };
        for (before, after) in [of_one(true), of_one(false)] {
            if before > 0 && after > 0 {
                told.push(Event::Reshaped {
                    before,
                    after,
                    keyspace: now.name.clone(),
                });
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::fixtures::{alone, moving, planned};
    use doyen_placement::planner::{BalanceChange, InSyncChange, InSyncRequest};

    #[test]
    fn an_altered_setting_is_told_in_words() {
        let old = NamedTable::new(Arc::new(planned(8)));
        let mut table = planned(8);
        let keyspace = &mut table.keyspaces[0];
        let (name, backups) = (keyspace.name.clone(), keyspace.backups);
        (keyspace.backups, keyspace.default_ttl_ms) = (backups + 1, Some(90_000));
        let told = changes(&old, &NamedTable::new(Arc::new(table)));
        let wanted = format!(
            "keyspace {name} was altered: backups {} instead of {backups}, default-ttl 90s \
             instead of none",
            backups + 1
        );
        assert_eq!(told, [wanted]);
        assert!(changes(&old, &old).is_empty());
    }

    #[test]
    fn unserved_partitions_are_told_apart_from_partitions_that_lack_copies() {
        let (whole, moving) = (planned(8), moving(&planned(8)));
        let (at, _) = moving.partitions().next().expect("there are partitions");
        let primary = moving.partition(at).expect("it is there").primary();
        let lonely = alone(&moving, at, primary);
        let silent = planner::remove(&lonely, &[(primary, planner::Absence::Silent)].into());
        let told = |old: &Table, new: &Table| {
            between(
                &NamedTable::new(Arc::new(old.clone())),
                &NamedTable::new(Arc::new(new.clone())),
            )
        };
        let unserved = planner::health(&silent).unavailable.values().sum::<usize>();
        assert!(unserved > 0);
        assert!(told(&lonely, &silent).contains(&Event::Unavailable {
            partitions: unserved
        }));
        let again = told(&silent, &whole);
        assert!(
            again.contains(&Event::Available) && !told(&whole, &lonely).contains(&Event::Available),
            "{again:?}"
        );
        assert_eq!(
            Event::Unavailable { partitions: 1 }.severity(),
            Severity::Error
        );
        // A partition that waits for its first assignment is no loss, and its assignment is no
        // repair.
        let mut waiting = whole.clone();
        waiting.keyspaces[0].partitions.clear();
        let amiss = |e: &Event| {
            matches!(
                e,
                Event::Unavailable { .. }
                    | Event::Available
                    | Event::UnderReplicated { .. }
                    | Event::Repaired
            )
        };
        for (old, new) in [(&waiting, &whole), (&whole, &moving)] {
            assert!(!told(old, new).iter().any(amiss), "{:?}", told(old, new));
        }
        let mut none = whole.clone();
        none.keyspaces.clear();
        assert!(!told(&none, &waiting).iter().any(amiss));
    }

    #[test]
    fn watermarks_read_differently_upwards_and_downwards() {
        let passed = |percent, before| Event::Watermark {
            name: "n1".into(),
            percent,
            before,
        };
        let texts = [(80, 70), (80, 90), (0, 70)]
            .map(|(percent, before)| passed(percent, before).to_string());
        assert!(
            texts[0].starts_with("n1 has filled 80 %")
                && texts[1].starts_with("n1 has filled less than 90 %"),
            "{texts:?}"
        );
        assert_eq!(texts[2], "n1 has memory to spare again");
        let grave =
            [(80, 70), (80, 90)].map(|(percent, before)| passed(percent, before).severity());
        assert_eq!(grave, [Severity::Warning, Severity::Info]);
    }

    #[test]
    fn a_failed_copy_and_a_cancelled_copy_are_told_apart() {
        let table = moving(&planned(8));
        let (at, partition) = table
            .partitions()
            .find(|(_, p)| p.learners().next().is_some())
            .expect("some learn");
        let learner = partition.learners().next().expect("it learns");
        let abandon = InSyncRequest {
            partition: at,
            epoch: partition.epoch,
            change: InSyncChange::Abandon(learner),
        };
        let (failed, done) = planner::change_in_sync(&table, &[abandon]);
        assert_eq!(
            (done, stages(&table, &failed)),
            (vec![true], [Stage::GivenUp].into())
        );
        let cancelled = planner::cancel(&table, Some(at)).expect("it moves");
        assert_eq!(stages(&table, &cancelled), [Stage::Cancelled].into());
        // A learner that becomes silent has failed, too.
        let (other, _) = table
            .partitions()
            .find(|(other, _)| *other != at)
            .expect("there are others");
        let lonely = alone(&table, other, learner);
        let silent = planner::remove(&lonely, &[(learner, planner::Absence::Silent)].into());
        assert!(
            silent
                .member(learner)
                .is_some_and(|m| m.state == MemberState::Silent),
            "it alone holds something"
        );
        assert!(
            stages(&lonely, &silent).contains(&Stage::GivenUp)
                && !stages(&lonely, &silent).contains(&Stage::Cancelled)
        );
        // Fewer copies are wanted. The next step leaves out a learner that is not in the goal.
        let paused = planner::balance(&table, &BalanceChange::Pause(Paused::Operator));
        let fewer = planner::adopt(&paused, &vec![(at, partition.in_sync().collect())]);
        let limits = planner::MoveLimits {
            learners_per_source: 9,
            learners_per_target: 9,
            learners: 9,
        };
        let next =
            planner::advance(&fewer, &limits, &planner::MoveFacts::default()).expect("a step");
        assert!(
            stages(&fewer, &next).contains(&Stage::Cancelled)
                && !stages(&fewer, &next).contains(&Stage::GivenUp)
        );
        assert_eq!(
            Event::Moved {
                stage: Stage::Cancelled,
                count: 1,
                partitions: Vec::new(),
                members: Vec::new()
            }
            .severity(),
            Severity::Info
        );
    }
}
