//! Advice about problems: flags and commands of this program, ports of this node.
//!
//! `doyen-placement` and `doyen-gossip` say what is wrong, in the terms of the protocol. The texts
//! here begin with that, and continue with what to type.

use doyen_gossip::agreement::{Event, Explain, Half, MissingVoter, Problem, Split, VotersGone};
#[cfg(feature = "resp")]
use doyen_placement::NoRange;
use doyen_placement::planner::{NotCancelled, NotDrained, Refused};
use std::net::SocketAddr;

/// The number of other members that a node that is cut off says to ask.
const ASKED_MAX: usize = 3;

/// What this node requires of a command before it changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpAccess {
    /// Nothing: the node trusts its machine.
    Open,
    /// The cluster's secret.
    Secret,
    /// The token of `--http-token-file`.
    Token,
    /// The node has neither, so it refuses every command that changes something.
    Nothing,
}

/// How commands reach this node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemedyScope {
    /// Its HTTP address.
    pub(crate) http: Option<SocketAddr>,
    pub(crate) access: HttpAccess,
}

/// Explains problems of agreement at this node.
pub(crate) fn explain(reach: RemedyScope) -> Explain {
    Explain::new(move |problem| problem_text(problem, reach))
}

fn problem_text(problem: &Problem, reach: RemedyScope) -> String {
    let remedy = match problem {
        Problem::SeedsMissing { .. } => {
            ". Start those nodes, or give every node --expect and the number of nodes that shall \
             form the first cluster. `doyen doctor` here says which seeds do not answer, and why"
                .to_owned()
        }
        Problem::StillLooking { .. } => {
            ". If N nodes shall begin together, start each of them with --expect N; with \
             --expect 1 this one begins at once"
                .to_owned()
        }
        Problem::BeginsAlone { .. } => {
            ". If others should be here, start all nodes with --expect and their number".to_owned()
        }
        Problem::OtherInitialMembers { .. } => {
            ". Start both with the same seeds, or with the same --expect".to_owned()
        }
        Problem::MembersMissing { present, expect } => format!(
            ". {} more must start with the same seeds and --expect {expect}; if fewer shall form \
             the first cluster, start all of them again with a lower --expect",
            usize::from(*expect).saturating_sub(present.len())
        ),
        Problem::NotAgreed { late: true, .. } => {
            ": do their control ports (--listen) reach each other? `doyen doctor` looks".to_owned()
        }
        Problem::NameTaken { .. } | Problem::NameReserved { .. } => {
            "; choose another with --name".to_owned()
        }
        Problem::HeirNameTaken { former, .. } => format!(
            ": start it with --name {} or another name that is free. If directories were \
             exchanged, give each node its own (--dir)",
            argument(former)
        ),
        Problem::SpeaksLess { .. } => {
            "; update its program, or start it without --level-max".to_owned()
        }
        Problem::StartedLater { .. } => {
            ". Start the latest one. If it is gone, give this node an empty directory (--dir)"
                .to_owned()
        }
        Problem::NoDirectory { .. } => {
            ": start it with --dir DIR, or as a witness (--witness)".to_owned()
        }
        Problem::Keyspace(Refused::NoDirectory { names }) => {
            let names: Vec<&str> = names.iter().map(|name| argument(name)).collect();
            format!(": start {} with --dir DIR first", names.join(", "))
        }
        Problem::OldMembers { .. } => {
            ": update the program of all members, and the level rises".to_owned()
        }
        Problem::TooHeavy(heavy) => {
            let (name, weight) = (argument(&heavy.name), heavy.weight);
            format!(
                ". It waits until an operator runs `doyen weight allow {name} {weight}`, or until \
                 it is started with a lower --weight"
            )
        }
        Problem::NotAdmitted { .. } => {
            ". If that takes long, `doyen status` at that member says what its cluster lacks"
                .to_owned()
        }
        Problem::NoMajority {
            missing,
            voters,
            votes,
            heir,
        } => cut_off(missing, (*voters, *votes, *heir), reach),
        Problem::NotCoordinated => {
            ": `doyen status` says what is missing, and what to do about it".to_owned()
        }
        Problem::Answers {
            former: Some(former),
            ..
        } => format!(". If that one is meant, run: doyen remove {former:?} --lost"),
        Problem::Answers { name, former: None } => {
            format!(". To stop it, empty it first: `doyen drain {name}`")
        }
        Problem::Drain(NotDrained::Silent(name)) => {
            format!(": if it will not come back, `doyen remove {name} --lost` goes on without it")
        }
        Problem::Drain(NotDrained::NoReceiver(_)) => {
            ": start another, or end a drain (`doyen drain NAME --cancel`)".to_owned()
        }
        Problem::Keyspace(Refused::OtherSettings(name)) => {
            format!(": `doyen keyspace show {name}` shows them")
        }
        Problem::Keyspace(Refused::NoSplit(name)) => {
            format!(": `doyen keyspace show {name}` lists where they begin")
        }
        Problem::Keyspace(Refused::NoRanges(_)) => {
            "; `doyen keyspace alter --partitions` doubles a fixed keyspace".to_owned()
        }
        Problem::Cancel(NotCancelled::NoMove(_)) => {
            ": `doyen moves` names the partitions that move".to_owned()
        }
        Problem::NotAgreed { late: false, .. }
        | Problem::NoFirstTable(_)
        | Problem::Election
        | Problem::Keyspace(_)
        | Problem::Drain(_)
        | Problem::Forget(_)
        | Problem::Cancel(_)
        | Problem::Access(_)
        | Problem::Plan(_)
        | Problem::Invalid(_) => String::new(),
    };
    format!("{problem}{remedy}")
}

/// A name that another process chose, as a word of a command. People paste commands, so the shell
/// must read the name as a name.
fn argument(name: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if name.bytes().all(is_plain) && !name.starts_with('-') {
        name
    } else {
        "NAME"
    }
}

/// What to do at a node that reaches no majority: first what does no harm if this node is the one
/// that is cut off. The command comes last, and works as it is printed: it names this node, not the
/// one that commands ask by default.
fn cut_off(
    missing: &[MissingVoter],
    (voters, votes, heir): (usize, bool, bool),
    reach: RemedyScope,
) -> String {
    let asks = missing.iter().filter_map(|voter| voter.http);
    let asks: Vec<String> = asks
        .take(ASKED_MAX)
        .map(|http| format!("`doyen status --http {http}`"))
        .collect();
    let asks = match &asks[..] {
        [] => "`doyen status` on their machines".to_owned(),
        asks => asks.join(" or "),
    };
    let names: Vec<&str> = missing.iter().map(|voter| argument(&voter.name)).collect();
    let whole = names.join(" ");
    let here = reach
        .http
        .map_or_else(String::new, |http| format!("--http {http} "));
    let doctor = match reach.http {
        Some(http) => format!("`doyen doctor --http {http}`"),
        None => "`doyen doctor`".to_owned(),
    };
    let shows = match reach.access {
        HttpAccess::Open => "",
        HttpAccess::Secret => " --secret-file FILE",
        HttpAccess::Token => " --http-token-file FILE",
        HttpAccess::Nothing => {
            " --http-token-file FILE (at a member that was started with --http-token-file: this \
             node was not, and refuses)"
        }
    };
    let command = if votes {
        let gone = VotersGone {
            gone: missing.len(),
            voters,
        };
        format!("doyen recover {here}--assert-dead {whole} --gone {gone}{shows}")
    } else {
        "`doyen recover` at a member that has a vote, which this one has not".to_owned()
    };
    let first = if heir {
        "Start the others with their directories".to_owned()
    } else {
        format!(
            "Do nothing here: restore the network ({doctor} says what this node does not reach)"
        )
    };
    format!(
        ". {first}, and this node goes on or joins again by itself. Ask what the others see, from \
         a machine that reaches them: {asks}. Only if {} are off and stay off, read \"Lost \
         majority\" in docs/operations.md, and then run: {command}. A process that was started \
         again under such a name is a new member: --assert-dead means the former process. If a \
         named process still runs, the cluster splits in two, and what one half acknowledges is \
         lost",
        names.join(", ")
    )
}

/// What clients of a stopped half are answered.
#[cfg(feature = "resp")]
pub(crate) const STOPPED: &str = "CLUSTERDOWN The cluster is split, and this half, which was \
    recovered, serves nothing: stop its nodes and start them again, and they join the other half; \
    `doyen status` here says more";

/// A split, and what to do about it.
pub(crate) fn split_text(split: &Split) -> String {
    format!("{split}{}", half_remedy(split.half))
}

fn half_remedy(half: Half) -> &'static str {
    match half {
        Half::Serves => {
            ". Run `doyen split export FILE` at a node of the other half, to save what it alone \
             acknowledged. Then stop the nodes of that half, and start them again with --seed and \
             an address of this one: they join it. Read \"DoyenSplit\" in docs/operations.md"
        }
        Half::Doubted => {
            ". Find out which half shall stay, stop the nodes of the other one, and start them \
             again with --seed and an address of the half that stays. Read \"DoyenSplit\" in \
             docs/operations.md"
        }
        Half::Stopped { both: false } => {
            ". `doyen split export FILE` saves what this half acknowledged since the recovery. Then \
             stop the nodes of this half, and start them again with --seed and an address of the \
             other one: they join it, and what is not saved is lost. Read \"DoyenSplit\" in docs/operations.md"
        }
        Half::Stopped { both: true } => {
            ". At one node of the half that shall stay, run `doyen split keep`. Then stop the nodes \
             of the other half, and start them again with --seed and an address of the half that \
             stays: what they acknowledged since the recovery is lost, so save it first with \
             `doyen split export FILE` there. Read \"DoyenSplit\" in \
             docs/operations.md"
        }
    }
}

/// An event as a line for people.
pub(crate) fn event_text(event: &Event) -> String {
    let remedy = match event {
        Event::NoRoom { .. } => ": add a member, or memory (--memory-max)",
        Event::Unavailable { .. } => {
            ". The cluster waits for as long as --on-loss says; `doyen status` shows which members \
             are silent"
        }
        Event::BalancePaused { .. } => ": `doyen rebalance resume` goes on",
        Event::OtherCluster { .. } => {
            ". Decide which data to keep. Stop the nodes of the other cluster, and start them \
             again with --seed and an address of the cluster that stays. If both shall live, give \
             each a secret of its own (--secret-file). Once nothing was heard of the other cluster \
             for 30 s, the nodes that stay are ready again"
        }
        Event::Split { half, .. } => half_remedy(*half),
        _ => "",
    };
    format!("{event}{remedy}")
}

/// Why a range of keys cannot be read in this keyspace.
#[cfg(feature = "resp")]
pub(crate) fn range_text(why: &NoRange) -> String {
    let remedy = match why {
        NoRange::Unordered => {
            ": one does that `doyen keyspace create NAME --mode range` makes, or `--ordered` \
             within a {tag}; choose it by CLIENT KEYSPACE NAME"
        }
        NoRange::Tag => "",
    };
    format!("{why}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_gossip::agreement::SearchFindings;
    use doyen_placement::planner::TooHeavy;

    const OPEN: RemedyScope = RemedyScope {
        http: None,
        access: HttpAccess::Open,
    };

    #[test]
    fn a_node_that_waits_for_others_says_what_to_type() {
        let missing = Problem::MembersMissing {
            present: vec!["n0".into(), "n1".into()],
            expect: 3,
        };
        assert_eq!(
            problem_text(&missing, OPEN),
            "2 of 3 initial members are here: n0, n1. 1 more must start with the same seeds and \
             --expect 3; if fewer shall form the first cluster, start all of them again with a \
             lower --expect"
        );
        let alone = Problem::BeginsAlone {
            found: SearchFindings::Nothing {
                seeds: "n2:7400".into(),
                looked: Some(10),
            },
        };
        let text = problem_text(&alone, OPEN);
        assert!(
            text.ends_with("start all nodes with --expect and their number"),
            "{text}"
        );
    }

    /// The command that splits the cluster was the first thing that a node said that was cut off.
    #[test]
    fn a_node_that_is_cut_off_says_so_first_and_shows_the_command_last() {
        let missing = ["n2", "n3"].map(|name| MissingVoter {
            name: name.into(),
            http: (name == "n3").then_some(([10, 0, 0, 3], 7480).into()),
        });
        let alone = |votes| Problem::NoMajority {
            missing: missing.to_vec(),
            voters: 3,
            votes,
            heir: false,
        };
        let text = problem_text(&alone(true), OPEN);
        assert!(
            text.starts_with(
                "this node is probably the one that is cut off: it reaches 1 of 3 voters (not n2, \
                 n3), which is no majority, "
            ),
            "{text}"
        );
        let order = [
            "Do nothing here",
            "`doyen status --http 10.0.0.3:7480`. Only if n2, n3 are off and stay off",
            "\"Lost majority\" in docs/operations.md",
            "doyen recover --assert-dead n2 n3 --gone 2/3. A process",
        ]
        .map(|part| text.find(part));
        assert!(order.is_sorted() && order[0].is_some(), "{order:?}: {text}");
        // Without advice, as a probe shows it, there is nothing to type.
        let brief = alone(true).to_string();
        assert!(
            !brief.contains("doyen") && text.starts_with(&brief),
            "{brief}"
        );

        let http = Some(([127, 0, 0, 1], 7480).into());
        for (access, shows) in [
            (HttpAccess::Secret, "2/3 --secret-file FILE. "),
            (HttpAccess::Token, "2/3 --http-token-file FILE. "),
            (HttpAccess::Nothing, "this node was not, and refuses). "),
        ] {
            let text = problem_text(&alone(true), RemedyScope { http, access });
            assert!(
                text.contains("doyen recover --http 127.0.0.1:7480 --assert-dead n2 n3 --gone 2/3")
                    && text.contains(shows),
                "{text}"
            );
        }
        let heir = Problem::NoMajority {
            missing: missing.to_vec(),
            voters: 3,
            votes: true,
            heir: true,
        };
        let text = problem_text(&heir, OPEN);
        assert!(
            text.starts_with("this node has what its directory had, and waits for the others: ")
                && text
                    .contains(". Start the others with their directories, and this node goes on"),
            "{text}"
        );
        // A member without a vote refuses the command, so it shows none.
        let text = problem_text(&alone(false), OPEN);
        assert!(
            !text.contains("--assert-dead n2") && text.contains("a member that has a vote"),
            "{text}"
        );
    }

    #[test]
    fn a_name_that_a_shell_would_read_as_more_is_no_part_of_the_command() {
        let missing = vec![MissingVoter {
            name: "$(reboot)".into(),
            http: None,
        }];
        let problem = Problem::NoMajority {
            missing,
            voters: 2,
            votes: true,
            heir: false,
        };
        let text = problem_text(&problem, OPEN);
        assert!(
            text.contains("--assert-dead NAME --gone 1/2")
                && text.contains("`doyen status` on their machines"),
            "{text}"
        );
    }

    #[test]
    fn a_newcomer_that_is_too_heavy_says_which_command_admits_it() {
        let text = |name: &str| {
            let heavy = TooHeavy {
                name: name.into(),
                weight: 900,
                median: 100,
                allowed: None,
            };
            problem_text(&Problem::TooHeavy(heavy), OPEN)
        };
        assert_eq!(
            text("n4"),
            "n4 has weight 900, more than 8 times the median weight of the data members, 100. It \
             waits until an operator runs `doyen weight allow n4 900`, or until it is started with \
             a lower --weight"
        );
        assert!(text("10.0.0.1:7400").contains("allow 10.0.0.1:7400 900`"));
        for name in ["$(reboot)", "a b", "--http", "n4; reboot", "n4`"] {
            let text = text(name);
            assert!(text.contains("`doyen weight allow NAME 900`"), "{text}");
        }
    }

    #[test]
    fn events_that_need_a_person_say_what_to_do() {
        let paused = Event::BalancePaused {
            by: "by an operator".into(),
        };
        assert_eq!(
            event_text(&paused),
            "nothing moves for balance, by an operator: `doyen rebalance resume` goes on"
        );
        let unserved = event_text(&Event::Unavailable { partitions: 2 });
        assert!(
            unserved.starts_with("2 partitions are not served: ")
                && unserved.contains("--on-loss")
                && unserved.contains("`doyen status`"),
            "{unserved}"
        );
        assert_eq!(event_text(&Event::Repaired), Event::Repaired.to_string());
    }
}
