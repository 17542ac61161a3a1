//! What happens in a cluster, for people: told once, where it is learned.
//!
//! What follows from tables every member tells; what is only suspected or measured the coordinator
//! tells.

use super::context::Named;
use doyen_placement::planner;
use doyen_placement::{
    Keyspace, KeyspaceId, Lineage, MemberId, MemberState, Mode, OnLoss, Partition, PartitionRef,
    Paused, Scheduler, Table,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Partitions that an event names at most; their number it tells in any case.
const NAMED_MAX: usize = 8;

/// Something that people want to know.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
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
        /// Why.
        why: String,
    },
    /// A member does not answer as it should: it is looked at closely, and expelled if that goes
    /// on.
    Suspected {
        /// Its name.
        name: String,
        /// Its id.
        #[serde(serialize_with = "as_text")]
        id: MemberId,
    },
    /// A member is being emptied: it is given nothing more, and what it holds goes elsewhere.
    Draining {
        /// Its name.
        name: String,
    },
    /// A member that was being emptied holds nothing any more.
    Drained {
        /// Its name.
        name: String,
    },
    /// A copy does not fit on a member, beside what is kept there for those who write.
    NoRoom {
        /// Its name.
        name: String,
    },
    /// A member answers, and several others cannot copy to it: it is given nothing for a while.
    Unreached {
        /// Its name.
        name: String,
        /// Its address for data.
        data: String,
    },
    /// A member that was to be emptied may hold data again: somebody said so, or nobody else is
    /// left who may.
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
    /// Nobody coordinates at the moment.
    NoCoordinator {
        /// Why, and what a person can do about it.
        why: String,
    },
    /// Partitions began empty.
    Lost {
        /// How many.
        partitions: usize,
        /// Of which keyspace.
        keyspace: String,
        /// Why.
        why: String,
    },
    /// Moves have come to their next stage.
    Moved {
        /// Which.
        stage: Stage,
        /// How many partitions.
        count: usize,
        /// Some of them, the first ones in order.
        partitions: Vec<String>,
        /// Members that are given a copy, lead by now or hold none any more, whichever it is; the
        /// first ones in order of age.
        members: Vec<String>,
    },
    /// Partitions were split or merged.
    Reshaped {
        /// Partitions that are no more.
        before: usize,
        /// Those that came of them.
        after: usize,
        /// Of which keyspace.
        keyspace: String,
    },
    /// Partitions have fewer copies in sync than they should; more than before.
    UnderReplicated {
        /// How many there are by now.
        partitions: usize,
    },
    /// Every partition has as many copies in sync as it should again.
    Repaired,
    /// Nobody serves partitions: who leads them does not answer, and nobody else has what they
    /// hold; more than before.
    Unavailable {
        /// How many there are by now.
        partitions: usize,
    },
    /// Every partition is served again.
    Available,
    /// What was copied to a member was not equal to what its primary has: it is copied anew.
    Differed {
        /// The partition.
        partition: String,
        /// Who learned it.
        learner: String,
    },
    /// Nothing moves for balance any more.
    BalancePaused {
        /// By whose word.
        by: String,
    },
    /// Balance goes on.
    BalanceResumed,
    /// The cluster runs at a higher level, because every member speaks it.
    Level {
        /// The level.
        level: u16,
    },
    /// Somebody changed how the cluster behaves.
    Changed {
        /// What, and to what.
        what: String,
    },
    /// Members have unequally much, and have for a minute: something is moved for that, if anything
    /// helps.
    Imbalance {
        /// Of what: `work` or `bytes`.
        of: String,
    },
    /// A member has passed a watermark of its memory, upwards or downwards.
    Watermark {
        /// Its name.
        name: String,
        /// The highest watermark that it is above, in percent of what it may hold; 0: it is below
        /// all of them again.
        percent: u8,
        /// The highest that it was above before.
        before: u8,
    },
    /// Another cluster of the same secret was met, and both hold data.
    OtherCluster {
        /// The member of it that was met.
        name: String,
        /// Its control port.
        address: String,
        /// Which cluster it is of.
        cluster: String,
        /// Which one this is.
        own: String,
    },
    /// Nothing was heard of another cluster for long, or its member that was met has joined this
    /// one.
    OtherClusterGone {
        /// Which one.
        cluster: String,
        /// The member of this cluster that runs where a member of the other one was met.
        #[serde(skip_serializing_if = "Option::is_none")]
        joined: Option<String>,
    },
    /// Something else worth a line in the log.
    Note {
        /// The line.
        text: String,
    },
}

/// How far moves have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// A learner was added.
    Copying,
    /// A learner has everything, and counts.
    InSync,
    /// Another member leads.
    Switched,
    /// A copy is needed no more, and was dropped.
    Dropped,
    /// A learner was given up, because it failed or has no room.
    GivenUp,
    /// A learner is not wanted any more: somebody said so, or another plan serves better.
    Cancelled,
}

/// How grave an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// As it should be.
    Info,
    /// Somebody should look at it.
    Warning,
    /// Data was lost, or cannot be had.
    Error,
}

impl Event {
    /// A line for the log.
    #[must_use]
    pub fn note(text: impl Into<String>) -> Self {
        Self::Note { text: text.into() }
    }

    /// Its name where events are counted: `joined`, `moved` and so on.
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
            Self::Note { .. } => "note",
        }
    }

    /// How grave it is.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Lost { .. } | Self::Unavailable { .. } | Self::OtherCluster { .. } => {
                Severity::Error
            }
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
                "{name} may be dead (process {id}): it is asked whether it is"
            ),
            Self::Draining { name } => write!(f, "{name} is being emptied"),
            Self::Drained { name } => write!(f, "{name} holds nothing any more: it may be stopped"),
            Self::NoRoom { name } => {
                write!(
                    f,
                    "{name} has no room for a copy that it was to get: add a member, or memory (--memory-max)"
                )
            }
            Self::Unreached { name, data } => write!(
                f,
                "{name} answers, but others cannot copy to it: is its data port ({data}) open to them? It is given nothing for a while, and what it holds is copied elsewhere"
            ),
            Self::Filled { name } => write!(f, "{name} may hold data again"),
            Self::Coordinator { name, term } => write!(f, "{name} coordinates, term {term}"),
            Self::NoCoordinator { why } => write!(f, "nobody coordinates: {why}"),
            Self::Lost {
                partitions,
                keyspace,
                why,
            } => {
                write!(
                    f,
                    "{} of keyspace {keyspace} began empty, their data is lost: {why}",
                    of_them(*partitions)
                )
            }
            Self::Moved {
                stage,
                count,
                partitions,
                members,
            } => {
                let more = if partitions.len() < *count {
                    ", .."
                } else {
                    ""
                };
                write!(
                    f,
                    "{stage}: {} ({}{more})",
                    of_them(*count),
                    partitions.join(", ")
                )?;
                if members.is_empty() {
                    Ok(())
                } else {
                    write!(f, " {} {}", stage.whereabouts(), members.join(", "))
                }
            }
            Self::Reshaped {
                before,
                after,
                keyspace,
            } if before < after => {
                write!(
                    f,
                    "keyspace {keyspace}: {} split into {after}",
                    were(*before)
                )
            }
            Self::Reshaped {
                before,
                after,
                keyspace,
            } => write!(
                f,
                "keyspace {keyspace}: {} merged into {after}",
                were(*before)
            ),
            Self::UnderReplicated { partitions: 1 } => {
                f.write_str("1 partition has fewer copies than it should")
            }
            Self::UnderReplicated { partitions } => write!(
                f,
                "{partitions} partitions have fewer copies than they should"
            ),
            Self::Repaired => f.write_str("every partition has all its copies again"),
            Self::Unavailable { partitions } => {
                let (are, them, they_hold) = if *partitions == 1 {
                    ("is", "it", "it holds")
                } else {
                    ("are", "them", "they hold")
                };
                write!(
                    f,
                    "{} {are} not served: who leads {them} does not answer, and nobody else has what {they_hold}; that is waited for as long as \
                     --on-loss says (`doyen status` shows who is silent)",
                    of_them(*partitions)
                )
            }
            Self::Available => f.write_str("every partition is served again"),
            Self::Differed { partition, learner } => {
                write!(
                    f,
                    "the copy of {partition} on {learner} was not equal to its primary's: it is made anew"
                )
            }
            Self::BalancePaused { by } => write!(
                f,
                "nothing moves for balance, {by}: `doyen rebalance resume` goes on"
            ),
            Self::BalanceResumed => f.write_str("copies and primaries move for balance again"),
            Self::Level { level } => write!(
                f,
                "every member speaks level {level}: the cluster runs at it from now on, and a process that speaks less cannot join"
            ),
            Self::Changed { what } => f.write_str(what),
            Self::Imbalance { of } if of == "work" => {
                f.write_str("some members have had much more to do than their share for a minute")
            }
            Self::Imbalance { of } => write!(
                f,
                "some members have had many more {of} than their share for a minute"
            ),
            Self::Watermark {
                name, percent: 0, ..
            } => write!(f, "{name} has memory to spare again"),
            Self::Watermark {
                name,
                percent,
                before,
            } if percent < before => write!(
                f,
                "{name} has filled less than {before} % of its memory again; while it is more than {percent} %, {}",
                consequence(*percent)
            ),
            Self::Watermark { name, percent, .. } => write!(
                f,
                "{name} has filled {percent} % of its memory: {}",
                consequence(*percent)
            ),
            Self::OtherCluster {
                name,
                address,
                cluster,
                own,
            } => write!(
                f,
                "there are two clusters: {name} at {address} is of cluster {cluster}, and this node is of {own}. Both hold data, so they \
                 never merge, and nodes that know of both are not ready. Decide which data to keep. Stop the nodes of the other \
                 cluster, and start them again with --seed and an address of the cluster that stays. If both shall live, give each a \
                 secret of its own (--secret-file). Once nothing was heard of the other cluster for 30 s, the nodes that stay are ready again"
            ),
            Self::OtherClusterGone {
                cluster,
                joined: None,
            } => {
                write!(
                    f,
                    "nothing was heard of the other cluster {cluster} for half a minute: it does not count any more"
                )
            }
            Self::OtherClusterGone {
                cluster,
                joined: Some(name),
            } => {
                write!(
                    f,
                    "{name} was met as a member of the other cluster {cluster}, and is a member of this one now: the other does not count any more"
                )
            }
            Self::Note { text } => f.write_str(text),
        }
    }
}

/// So many partitions.
fn of_them(count: usize) -> String {
    if count == 1 {
        "1 partition".to_owned()
    } else {
        format!("{count} partitions")
    }
}

/// So many partitions were something.
fn were(count: usize) -> String {
    format!(
        "{} {}",
        of_them(count),
        if count == 1 { "was" } else { "were" }
    )
}

/// Numbers of so many digits are more than many readers of JSON can hold.
fn as_text<S: serde::Serializer>(id: &MemberId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// What comes of so much filled memory, above the first watermark.
#[must_use]
pub const fn consequence(percent: u8) -> &'static str {
    match percent {
        ..80 => "it is given nothing that has another place",
        80..90 => "copies move to other members, if any have filled less than 70 %",
        90.. => "it takes no writes that need more",
    }
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Self; 6] = [
        Self::Copying,
        Self::InSync,
        Self::Switched,
        Self::Dropped,
        Self::GivenUp,
        Self::Cancelled,
    ];

    /// Its name where moves are counted: `copying`, `in_sync` and so on, as in JSON.
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

    /// How those whom it concerns are told.
    const fn whereabouts(self) -> &'static str {
        match self {
            Self::Copying | Self::GivenUp | Self::Cancelled => "to",
            Self::InSync => "on",
            Self::Switched => "by now",
            Self::Dropped => "from",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copying => "copying begins",
            Self::InSync => "in sync",
            Self::Switched => "another member leads",
            Self::Dropped => "old copy dropped",
            Self::GivenUp => "copying was given up",
            Self::Cancelled => "copying is not wanted any more",
        })
    }
}

/// What a table says that the one before it did not.
pub(super) fn between(old: &Named, new: &Named) -> Vec<Event> {
    let mut told = members(old, new);
    told.extend(losses(old, new));
    told.extend(moves(old, new));
    told.extend(shapes(old, new));
    let ((lacked, unserved), (lack, nobody)) = (amiss(&old.table), amiss(&new.table));
    match (lacked, lack) {
        (0, 0) => {}
        // Nobody is left on whom more could be: that mends nothing.
        (_, 0) if receivers(old) > receivers(new) => {}
        (_, 0) => told.push(Event::Repaired),
        (before, now) if now > before => told.push(Event::UnderReplicated { partitions: now }),
        _ => {}
    }
    match (unserved, nobody) {
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

/// How many partitions lack copies, and how many nobody serves. What was never assigned has lost
/// nothing.
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

/// What people can alter of a keyspace. Its partitions and what divides them change by themselves
/// as well.
fn said(k: &Keyspace) -> impl PartialEq {
    (
        k.mode,
        k.backups,
        k.min_in_sync,
        k.on_loss,
        k.default_ttl_ms,
        k.eviction,
        &k.rules,
    )
}

/// What somebody has altered, in the words in which it is said.
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

fn receivers(table: &Table) -> usize {
    table
        .members
        .iter()
        .filter(|m| planner::may_receive(m))
        .count()
}

/// What somebody said of the whole cluster, or of its keyspaces.
fn changes(old: &Named, new: &Named) -> Vec<String> {
    let mut told = Vec::new();
    let (before, now) = (&old.settings.balancing, &new.settings.balancing);
    if before.rate != now.rate {
        told.push(format!("how fast copies are made, now: {}", now.rate));
    }
    if before.window != now.window {
        let window = now
            .window
            .map_or_else(|| "always".to_owned(), |window| format!("{window} UTC"));
        told.push(format!("when there is balancing, now: {window}"));
    }
    if old.settings.schedulers != new.settings.schedulers {
        let on = Scheduler::ALL
            .iter()
            .filter(|s| new.settings.schedulers.has(**s))
            .map(Scheduler::to_string);
        told.push(format!(
            "what moves by itself, now: {}",
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
    let dropped = old
        .keyspaces
        .iter()
        .filter(|k| new.keyspace(k.id).is_none());
    told.extend(dropped.map(|k| format!("keyspace {} was dropped", k.name)));
    told
}

fn by_whom(paused: Paused) -> String {
    paused.to_string()
}

fn members(old: &Named, new: &Named) -> Vec<Event> {
    let mut told = Vec::new();
    if planner::stops(&new.table) && !planner::stops(&old.table) && !new.always_alone() {
        told.push(Event::note(
            "every member leaves, and no other came to take over: the cluster ends",
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
                    "{name} does not answer; it is kept because it alone holds data"
                )));
            }
            _ => {}
        }
        if let Some(now) = new.member(id).filter(|now| now.name != member.name) {
            let (before, now) = (&member.name, &now.name);
            told.push(Event::note(format!("{before} is another process now; the one before it does not answer, and is called {now}")));
        }
    }
    told
}

fn losses(old: &Named, new: &Named) -> Vec<Event> {
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
            why: "every copy that counted is gone; they begin empty".into(),
        }
    });
    told.collect()
}

/// Through which stages moves go from one table to the next.
#[must_use]
pub fn stages(old: &Table, new: &Table) -> BTreeSet<Stage> {
    moved(old, new).into_keys().collect()
}

/// What goes through a stage: partitions, and whom it concerns.
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
            let at = PartitionRef {
                keyspace: before.id,
                partition: partition.id,
            };
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

fn moves(old: &Named, new: &Named) -> Vec<Event> {
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

/// Through which stages a partition has gone, and whom each concerns. What a member's going does to
/// it is no move.
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
            // Whoever fails is asked for again, unless it is silent; from what is not wanted the
            // goal is taken first, or with it.
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

fn shapes(old: &Named, new: &Named) -> Vec<Event> {
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
    fn what_was_altered_is_told_in_words() {
        let old = Named::new(Arc::new(planned(8)));
        let mut table = planned(8);
        let keyspace = &mut table.keyspaces[0];
        let (name, backups) = (keyspace.name.clone(), keyspace.backups);
        (keyspace.backups, keyspace.default_ttl_ms) = (backups + 1, Some(90_000));
        let told = changes(&old, &Named::new(Arc::new(table)));
        let wanted = format!(
            "keyspace {name} was altered: backups {} instead of {backups}, default-ttl 90s instead of none",
            backups + 1
        );
        assert_eq!(told, [wanted]);
        assert!(changes(&old, &old).is_empty());
    }

    #[test]
    fn what_nobody_serves_is_told_apart_from_what_lacks_copies() {
        let (whole, moving) = (planned(8), moving(&planned(8)));
        let (at, _) = moving.partitions().next().expect("there are partitions");
        let primary = moving.partition(at).expect("it is there").primary();
        let lonely = alone(&moving, at, primary);
        let silent = planner::remove(&lonely, &[(primary, planner::Departure::Silent)].into());
        let told = |old: &Table, new: &Table| {
            between(
                &Named::new(Arc::new(old.clone())),
                &Named::new(Arc::new(new.clone())),
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
        // What waits for its first assignment is no loss, nor is its assignment a repair.
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
    fn what_failed_is_told_as_something_else_than_what_nobody_wants_any_more() {
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
        // Whoever stops to answer has failed, too.
        let (other, _) = table
            .partitions()
            .find(|(other, _)| *other != at)
            .expect("there are others");
        let lonely = alone(&table, other, learner);
        let silent = planner::remove(&lonely, &[(learner, planner::Departure::Silent)].into());
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
        // Fewer copies are wanted: whoever learns without being in the goal is left out with the
        // next step.
        let paused = planner::balance(&table, &BalanceChange::Pause(Paused::Operator));
        let fewer = planner::adopt(&paused, &vec![(at, partition.in_sync().collect())]);
        let limits = planner::MoveLimits {
            learners_per_source: 9,
            learners_per_target: 9,
            learners: 9,
        };
        let next = planner::advance(&fewer, &limits, &planner::Waits::default()).expect("a step");
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
