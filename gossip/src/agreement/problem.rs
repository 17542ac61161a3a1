//! What is wrong: typed, in the words of the protocol.
//!
//! A [`Problem`] says what is wrong. What a person can do about it depends on the program around
//! this machine: on its flags, its commands and the ports of this node. So the program gives the
//! machine an [`Explain`], and the machine puts its text wherever people read: into events, into
//! the status, and into replies that travel to another node.

use doyen_placement::ClusterId;
use doyen_placement::planner::{
    NotApplied, NotCancelled, NotDrained, NotForgotten, NotGranted, Refused, TooHeavy,
};
use doyen_placement::table::Invalid;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Turns a [`Problem`] into a text for people: what is wrong, then what to do.
#[derive(Clone)]
pub struct Explain(Arc<dyn Fn(&Problem) -> String + Send + Sync>);

impl Explain {
    /// Explains with this function. It must give the same text for the same problem.
    pub fn new(explain: impl Fn(&Problem) -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(explain))
    }

    pub(super) fn text(&self, problem: &Problem) -> String {
        (self.0)(problem)
    }
}

/// Says what is wrong, and not what to do.
impl Default for Explain {
    fn default() -> Self {
        Self::new(Problem::to_string)
    }
}

impl fmt::Debug for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Explain")
    }
}

/// Why a cluster does not begin, a process is not admitted, no member coordinates, or a request is
/// refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Seeds do not answer or do not resolve, and all of them are needed.
    #[error("{present} of {expect} initial members are here{}", unseen(.silent, .unresolved))]
    SeedsMissing {
        /// The number of initial members that are here.
        present: usize,
        /// The number of members that form the first cluster.
        expect: u16,
        /// Seeds that do not answer.
        silent: Vec<SocketAddr>,
        /// Seeds whose names do not resolve.
        unresolved: Vec<String>,
    },
    /// This node looks for a cluster before it begins one by itself.
    #[error(
        "{found}. {}If this node finds no cluster for another {seconds} s, it begins one by itself",
        .first.as_ref().map_or_else(String::new, |name| format!(
            "{name} is to begin a cluster by itself, which this node then joins. "
        ))
    )]
    StillLooking {
        /// The nodes that it has found so far.
        found: SearchFindings,
        /// Another node that is to begin a cluster before this one.
        first: Option<String>,
        /// How long it continues to look.
        seconds: u64,
    },
    /// This node begins a cluster by itself, and others may be there.
    #[error(
        "{found}: this node begins a cluster by itself. While that cluster is unused, it gives \
         way to another one that it meets"
    )]
    BeginsAlone {
        /// The nodes that it has found in all that time.
        found: SearchFindings,
    },
    /// Two initial members were told different seeds or different numbers.
    #[error(
        "{name} has another list of initial members ({} of {}) than this node ({} of {})",
        .theirs.0, .theirs.1, .ours.0, .ours.1
    )]
    OtherInitialMembers {
        /// The other member.
        name: String,
        /// How many initial members it knows, and how many it expects.
        theirs: (usize, u16),
        /// The same of this node.
        ours: (usize, u16),
    },
    /// Fewer processes are here than shall form the first cluster.
    #[error(
        "{} of {expect} initial members are here: {}",
        .present.len(),
        .present.join(", ")
    )]
    MembersMissing {
        /// The members that are here.
        present: Vec<String>,
        /// The number of members that form the first cluster.
        expect: u16,
    },
    /// All initial members are here, and have not agreed yet.
    #[error(
        "{} of {expect} initial members are here: {}{}",
        .present.len(),
        .present.join(", "),
        if *.late { ", and they have not agreed yet" } else { "" }
    )]
    NotAgreed {
        /// The members that are here.
        present: Vec<String>,
        /// The number of members that form the first cluster.
        expect: u16,
        /// Whether they had the time to agree.
        late: bool,
    },
    /// The initial members cannot form a cluster.
    #[error("the initial members cannot form a cluster: {0}")]
    NoFirstTable(Invalid),
    /// A living process has this name.
    #[error("the name {name} is taken by the node at {at}")]
    NameTaken {
        /// The name.
        name: String,
        /// The control port of the process that has it.
        at: SocketAddr,
    },
    /// A process has the directory of a member, and the name of another one that lives.
    #[error(
        "the name {name} is taken by the node at {at}, and the directory of this node is that of \
         {former}"
    )]
    HeirNameTaken {
        /// The name.
        name: String,
        /// The control port of the process that has it.
        at: SocketAddr,
        /// The name of the member whose directory it is.
        former: String,
    },
    /// A process has an earlier state of the directory of a member.
    #[error(
        "the directory of {name} was started later elsewhere: here it is start {}, and the cluster \
         has met start {}",
        .start.unwrap_or_default(),
        .last.unwrap_or_default()
    )]
    StartedLater {
        /// The name of the process.
        name: String,
        /// How often processes began with its directory.
        start: Option<u64>,
        /// The same of the member.
        last: Option<u64>,
    },
    /// A process would hold data in memory alone that is to be on disk.
    #[error("the keyspace {keyspace} keeps its data on disk, and {name} has no directory")]
    NoDirectory {
        /// The name of the process.
        name: String,
        /// A keyspace with a durability.
        keyspace: String,
    },
    /// Names of processes that were replaced contain this.
    #[error("the name {name} must not contain `{part}`")]
    NameReserved {
        /// The name.
        name: String,
        /// What it must not contain.
        part: char,
    },
    /// A process speaks less than every member does.
    #[error("this cluster runs at level {level}, and {name} speaks no more than level {speaks}")]
    SpeaksLess {
        /// Its name.
        name: String,
        /// The highest level that it speaks.
        speaks: u16,
        /// The level of the cluster.
        level: u16,
    },
    /// A request needs more than every member speaks.
    #[error("this cluster runs at level {level}, at which no keyspace has a durability")]
    OldMembers {
        /// The level of the cluster.
        level: u16,
    },
    /// A process has a weight that is far above the others', and that no operator has allowed.
    #[error(transparent)]
    TooHeavy(#[from] TooHeavy),
    /// This process asks to be admitted, and the cluster has not admitted it.
    #[error(
        "waits to be admitted to {cluster}{}, for {seconds} s already",
        .by.as_ref().map_or_else(String::new, |(name, at)| format!(" by {name} at {at}"))
    )]
    NotAdmitted {
        /// The cluster.
        cluster: ClusterId,
        /// The member that this process asks, with its control port.
        by: Option<(String, SocketAddr)>,
        /// How long it has waited.
        seconds: u64,
    },
    /// The voters are electing a coordinator.
    #[error("an election is under way")]
    Election,
    /// Too few voters answer this node, so it can elect no coordinator. Most often this node is the
    /// one that is cut off.
    #[error(
        "{}: it reaches {} of {voters} voters (not {}), which is no majority{}",
        if *.heir {
            "this node has what its directory had, and waits for the others"
        } else {
            "this node is probably the one that is cut off"
        },
        .voters.saturating_sub(.missing.len()),
        .missing.iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(", "),
        if *.heir { "" } else { ", and the others go on without it if they are a majority" }
    )]
    NoMajority {
        /// The number of voters.
        voters: usize,
        /// The voters that do not answer.
        missing: Vec<MissingVoter>,
        /// Whether this node has a vote.
        votes: bool,
        /// Whether this process speaks for the one that had its directory before (rule 14).
        heir: bool,
    },
    /// A request found no coordinator.
    #[error("no coordinator answered in time")]
    NotCoordinated,
    /// A member that answers is not given up.
    #[error(
        "{name} answers, so it is not given up{}",
        .former.as_ref().map_or_else(String::new, |former| format!(
            "; the silent process that had this name before is called {former}"
        ))
    )]
    Answers {
        /// The member.
        name: String,
        /// The name of a silent process whose former name this member now has.
        former: Option<String>,
    },
    /// A change of a keyspace is refused.
    #[error(transparent)]
    Keyspace(#[from] Refused),
    /// A member cannot be emptied or filled again.
    #[error(transparent)]
    Drain(#[from] NotDrained),
    /// A member that went is not forgotten.
    #[error(transparent)]
    Forget(#[from] NotForgotten),
    /// A move cannot be cancelled.
    #[error(transparent)]
    Cancel(#[from] NotCancelled),
    /// Users, tokens and allowed weights are not changed.
    #[error(transparent)]
    Access(#[from] NotGranted),
    /// A plan cannot be applied.
    #[error(transparent)]
    Plan(#[from] NotApplied),
    /// The table or the member would not be valid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// A voter that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingVoter {
    /// Its name.
    pub name: String,
    /// Its HTTP port, where it can be asked what it sees.
    pub http: Option<SocketAddr>,
}

/// What a node that looks for a cluster has found so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchFindings {
    /// No other node at its seeds.
    Nothing {
        /// The seeds, as they were given.
        seeds: String,
        /// How long it looked, after it has given up.
        looked: Option<u64>,
    },
    /// A seed leads to nodes at other addresses.
    Elsewhere {
        /// The seed.
        seed: SocketAddr,
        /// The nodes that were found and for how long this node looked, once it has given up.
        looked: Option<(Vec<String>, u64)>,
    },
}

impl fmt::Display for SearchFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing { seeds, looked } => match looked {
                None => write!(f, "no other node answers yet at the seeds ({seeds})"),
                Some(seconds) => write!(
                    f,
                    "no other node answered at the seeds ({seeds}) for {seconds} s"
                ),
            },
            Self::Elsewhere { seed, looked: None } => write!(
                f,
                "the seed {seed} leads to nodes at other addresses, and there may be more of them"
            ),
            Self::Elsewhere {
                seed,
                looked: Some((others, seconds)),
            } => {
                let others = if others.is_empty() {
                    "none".to_owned()
                } else {
                    others.join(", ")
                };
                write!(
                    f,
                    "the seed {seed} leads to nodes at other addresses (those found: {others}), \
                     and no cluster was found for {seconds} s"
                )
            }
        }
    }
}

fn unseen(silent: &[SocketAddr], unresolved: &[String]) -> String {
    let mut text = String::new();
    if !silent.is_empty() {
        let silent: Vec<String> = silent.iter().map(ToString::to_string).collect();
        text += &format!(
            "; these seeds do not answer (a seed is the address of a node's --listen, UDP): {}",
            silent.join(", ")
        );
    }
    if !unresolved.is_empty() {
        text += &format!("; these seeds do not resolve: {}", unresolved.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_is_missing() {
        let missing = Problem::SeedsMissing {
            present: 1,
            expect: 3,
            silent: vec![([10, 0, 0, 2], 7400).into()],
            unresolved: vec!["n3:7400".into()],
        };
        assert_eq!(
            missing.to_string(),
            "1 of 3 initial members are here; these seeds do not answer (a seed is the address of \
             a node's --listen, UDP): 10.0.0.2:7400; these seeds do not resolve: n3:7400"
        );
        let looking = Problem::StillLooking {
            found: SearchFindings::Nothing {
                seeds: "n2:7400".into(),
                looked: None,
            },
            first: Some("n2".into()),
            seconds: 4,
        };
        assert_eq!(
            looking.to_string(),
            "no other node answers yet at the seeds (n2:7400). n2 is to begin a cluster by \
             itself, which this node then joins. If this node finds no cluster for another 4 s, \
             it begins one by itself"
        );
    }

    #[test]
    fn the_program_around_the_machine_adds_what_to_do() {
        let explain = Explain::new(|problem| format!("{problem}: wait"));
        assert_eq!(
            explain.text(&Problem::Election),
            "an election is under way: wait"
        );
        assert_eq!(
            Explain::default().text(&Problem::Election),
            "an election is under way"
        );
    }
}
