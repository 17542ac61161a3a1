//! The nodes of a cluster, and events that change them.

use doyen_placement::id::{Age, MemberId};
use doyen_placement::planner::may_receive;
use doyen_placement::table::validate::{MEMBERS_MAX, WEIGHT_MAX};
use doyen_placement::table::{Addresses, Location, Member, Table};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// An event that changes a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SimulatedEvent {
    /// Nodes of weight 100 join, and get the zones in turn: `+1`.
    Join(usize),
    /// The node of this name leaves: `-node3`.
    Leave(String),
    /// The number of nodes is multiplied: `x2`.
    Times(usize),
    /// The node of this name gets another weight: `node3=200`.
    Weigh(String, u32),
}

/// An event is malformed or impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum EventError {
    /// The text is not an event.
    #[error(
        "`{0}` is not an event: give +1 (a node joins), -node3 (node3 leaves), x2 (twice as many \
         nodes) or node3=200 (another weight)"
    )]
    Unknown(String),
    /// At that stage there is no node of this name.
    #[error("`{event}`: at that stage there is no node {name}; there are {first} to {last}")]
    NoSuchNode {
        /// The event.
        event: String,
        /// The name that is missing.
        name: String,
        /// The first node.
        first: String,
        /// The last node.
        last: String,
    },
    /// No node would be left.
    #[error("`{0}`: this is the last node, and a cluster needs one")]
    LastNode(String),
    /// There would be no nodes, or too many.
    #[error("{0}: a cluster has 1 to {MEMBERS_MAX} nodes")]
    Nodes(String),
    /// The weight is out of bounds.
    #[error("{0}: a weight is 1 to {WEIGHT_MAX}; the default is 100")]
    Weight(String),
}

impl FromStr for SimulatedEvent {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        let unknown = || EventError::Unknown(text.to_owned());
        let count = |digits: &str| {
            digits
                .parse::<usize>()
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(unknown)
        };
        if let Some((name, weight)) = text.split_once('=') {
            let weight = weight
                .parse()
                .map_err(|_| EventError::Weight(format!("`{text}`")))?;
            return if name.is_empty() {
                Err(unknown())
            } else {
                Ok(Self::Weigh(name.to_owned(), weight))
            };
        }
        match text.split_at_checked(1) {
            Some(("+", digits)) => count(digits).map(Self::Join),
            Some(("x", digits)) => count(digits).map(Self::Times),
            Some(("-", name)) if !name.is_empty() => Ok(Self::Leave(name.to_owned())),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for SimulatedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(count) => write!(f, "+{count}"),
            Self::Leave(name) => write!(f, "-{name}"),
            Self::Times(count) => write!(f, "x{count}"),
            Self::Weigh(name, weight) => write!(f, "{name}={weight}"),
        }
    }
}

/// The nodes at one stage.
#[derive(Debug, Clone)]
pub(super) struct SimulatedStage {
    /// The latest event; empty at the start.
    pub(super) event: String,
    /// The nodes, in order of age.
    pub(super) nodes: Vec<Arc<Member>>,
}

/// A cluster and its events. Its nodes are called node1, node2 and so on. No number is used twice.
#[derive(Debug, Clone)]
pub(super) struct SimulatedCluster {
    nodes: Vec<Arc<Member>>,
    zones: Vec<String>,
    next: u64,
}

impl SimulatedCluster {
    /// A cluster of `nodes` nodes. They get the zones in turn, and the weights in order; further
    /// nodes have weight 100.
    ///
    /// # Errors
    /// There are no nodes or too many, more weights than nodes, or a weight is out of bounds.
    pub(super) fn new(nodes: usize, weights: &[u32], zones: &[String]) -> Result<Self, EventError> {
        if !(1..=MEMBERS_MAX).contains(&nodes) {
            return Err(EventError::Nodes(format!("{nodes} nodes")));
        }
        if weights.len() > nodes {
            return Err(EventError::Weight(format!(
                "there are {} weights for {nodes} nodes",
                weights.len()
            )));
        }
        let mut cluster = Self {
            nodes: Vec::with_capacity(nodes),
            zones: zones.to_vec(),
            next: 1,
        };
        for number in 0..nodes {
            cluster.join(weights.get(number).copied().unwrap_or(100))?;
        }
        Ok(cluster)
    }

    /// The members of this table that may hold data. Nodes that join later get their zones in turn.
    pub(super) fn of(table: &Table) -> Result<Self, EventError> {
        let nodes: Vec<Arc<Member>> = table
            .members
            .iter()
            .filter(|m| may_receive(m))
            .cloned()
            .collect();
        if nodes.is_empty() {
            return Err(EventError::Nodes(
                "no member in the table may hold data".into(),
            ));
        }
        let mut zones: Vec<String> = nodes
            .iter()
            .map(|m| m.location.zone.clone())
            .filter(|zone| !zone.is_empty())
            .collect();
        zones.sort_unstable();
        zones.dedup();
        Ok(Self {
            nodes,
            zones,
            next: 1,
        })
    }

    /// The nodes at the start, and after each of these events.
    ///
    /// # Errors
    /// An event is impossible.
    pub(super) fn stages(
        mut self,
        events: &[SimulatedEvent],
    ) -> Result<Vec<SimulatedStage>, EventError> {
        let mut stages = vec![SimulatedStage {
            event: String::new(),
            nodes: self.nodes.clone(),
        }];
        for event in events {
            self.apply(event)?;
            stages.push(SimulatedStage {
                event: event.to_string(),
                nodes: self.nodes.clone(),
            });
        }
        Ok(stages)
    }

    fn apply(&mut self, event: &SimulatedEvent) -> Result<(), EventError> {
        let find = |name: &str| {
            let end =
                |node: Option<&Arc<Member>>| node.map_or_else(String::new, |n| n.name.clone());
            let missing = || EventError::NoSuchNode {
                event: event.to_string(),
                name: name.to_owned(),
                first: end(self.nodes.first()),
                last: end(self.nodes.last()),
            };
            self.nodes
                .iter()
                .position(|node| node.name == name)
                .ok_or_else(missing)
        };
        let newcomers = match event {
            SimulatedEvent::Join(count) => *count,
            SimulatedEvent::Times(count) => (count - 1).saturating_mul(self.nodes.len()),
            SimulatedEvent::Leave(name) => {
                let place = find(name)?;
                if self.nodes.len() == 1 {
                    return Err(EventError::LastNode(event.to_string()));
                }
                self.nodes.remove(place);
                return Ok(());
            }
            SimulatedEvent::Weigh(name, weight) => {
                let place = find(name)?;
                let weight = checked(*weight, || format!("`{event}`"))?;
                self.nodes[place] = Arc::new(Member {
                    weight,
                    ..Member::clone(&self.nodes[place])
                });
                return Ok(());
            }
        };
        if newcomers > MEMBERS_MAX - self.nodes.len() {
            return Err(EventError::Nodes(format!("`{event}`")));
        }
        (0..newcomers).try_for_each(|_| self.join(100))
    }

    fn join(&mut self, weight: u32) -> Result<(), EventError> {
        let weight = checked(weight, || format!("weight {weight}"))?;
        // Nodes of a running cluster may have any name and number.
        let taken = |number: u64| {
            self.nodes
                .iter()
                .any(|n| n.name == format!("node{number}") || n.id == MemberId(number << 4))
        };
        let number = (self.next..)
            .find(|number| !taken(*number))
            .unwrap_or(self.next);
        self.next = number + 1;
        let zone = (number as usize - 1)
            .checked_rem(self.zones.len())
            .map(|place| self.zones[place].clone());
        // No node listens at the address, but a valid table needs distinct ones.
        let [high, low] = (number as u16).to_be_bytes();
        let address = ([10, 0, high, low], 7400).into();
        self.nodes.push(Arc::new(Member {
            age: Age(number),
            location: Location {
                zone: zone.unwrap_or_default(),
                ..Location::default()
            },
            weight,
            ..Member::new(
                MemberId(number << 4),
                format!("node{number}"),
                Addresses::new(address, ([10, 0, high, low], 7401).into()),
            )
        }));
        Ok(())
    }
}

fn checked(weight: u32, what: impl Fn() -> String) -> Result<u32, EventError> {
    if (1..=WEIGHT_MAX).contains(&weight) {
        Ok(weight)
    } else {
        Err(EventError::Weight(what()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(nodes: usize, events: &[&str]) -> Result<Vec<Vec<String>>, EventError> {
        let events = events
            .iter()
            .map(|e| e.parse())
            .collect::<Result<Vec<SimulatedEvent>, _>>()?;
        let stages = SimulatedCluster::new(nodes, &[], &[])?.stages(&events)?;
        Ok(stages
            .into_iter()
            .map(|s| s.nodes.iter().map(|n| n.name.clone()).collect())
            .collect())
    }

    #[test]
    fn events_happen_in_order() {
        let stages = stages(2, &["+1", "-node2", "x2", "node1=300"]).expect("possible");
        let now: Vec<String> = stages.iter().map(|nodes| nodes.join(" ")).collect();
        assert_eq!(
            now,
            [
                "node1 node2",
                "node1 node2 node3",
                "node1 node3",
                "node1 node3 node4 node5",
                "node1 node3 node4 node5"
            ]
        );
    }

    #[test]
    fn zones_and_weights_are_given_in_turn() {
        let cluster = SimulatedCluster::new(3, &[50], &["a".into(), "b".into()]).expect("possible");
        let nodes: Vec<(u32, &str)> = cluster
            .nodes
            .iter()
            .map(|n| (n.weight, &*n.location.zone))
            .collect();
        assert_eq!(nodes, [(50, "a"), (100, "b"), (100, "a")]);
    }

    #[test]
    fn malformed_and_impossible_events_are_reported_in_a_line() {
        let cases: [(usize, &[&str], &str); 12] = [
            (0, &[], "0 nodes"),
            (1001, &[], "1001 nodes"),
            (2, &["fly"], "`fly` is not an event"),
            (2, &["+0"], "`+0` is not an event"),
            (2, &["x"], "`x` is not an event"),
            (2, &["-"], "`-` is not an event"),
            (2, &["ä"], "`ä` is not an event"),
            (
                2,
                &["-node3"],
                "there is no node node3; there are node1 to node2",
            ),
            (1, &["-node1"], "this is the last node"),
            (2, &["node1=0"], "a weight is 1 to"),
            (2, &["node1=much"], "a weight is 1 to"),
            (2, &["+999"], "a cluster has 1 to 1000 nodes"),
        ];
        for (nodes, events, told) in cases {
            let error = stages(nodes, events).expect_err("impossible").to_string();
            assert!(error.contains(told) && !error.contains('\n'), "{error}");
        }
        assert!(
            SimulatedCluster::new(1, &[1, 2], &[]).is_err()
                && SimulatedCluster::new(1, &[0], &[]).is_err()
        );
        assert!(stages(2, &["x18446744073709551615"]).is_err());
    }
}
