//! The cases that are measured.

use super::systems::Kind;
use serde::{Deserialize, Serialize};

/// A system, and the way to reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Doyen by the port for cluster-aware clients.
    Doyen,
    /// Doyen by the plain port of one node, which forwards two thirds of the operations.
    DoyenOneNode,
    /// Doyen by its own client.
    DoyenClient,
    /// Redis Cluster.
    Redis,
    /// Hazelcast, by its own client.
    Hazelcast,
    /// Olric, by RESP.
    Olric,
}

impl Subject {
    /// Which system it is.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Doyen | Self::DoyenOneNode | Self::DoyenClient => Kind::Doyen,
            Self::Redis => Kind::Redis,
            Self::Hazelcast => Kind::Hazelcast,
            Self::Olric => Kind::Olric,
        }
    }

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DoyenOneNode => "Doyen, one node",
            Self::DoyenClient => "Doyen, own client",
            other => other.kind().name(),
        }
    }
}

/// What one operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Write.
    Set,
    /// Read.
    Get,
    /// Count up.
    Incr,
    /// Write a field. redis-benchmark writes the fields of one large hash for each master.
    HSet,
}

impl Operation {
    /// The name of its Redis command.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Get => "GET",
            Self::Incr => "INCR",
            Self::HSet => "HSET",
        }
    }

    /// Its name in flags of generators.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::Incr => "incr",
            Self::HSet => "hset",
        }
    }
}

/// The load of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// redis-benchmark; for Hazelcast its own client, with one operation in flight for each of
    /// these clients.
    Clients {
        /// The operation.
        operation: Operation,
        /// Connections.
        clients: u32,
        /// Operations that a client sends at once.
        pipeline: u32,
    },
    /// Each system's own client, with this many operations in flight. For Olric, as many RESP
    /// connections, spread over all members.
    OwnClients {
        /// The operation.
        operation: Operation,
        /// Operations in flight.
        in_flight: u32,
    },
    /// Each SET is followed by `WAIT 1`, so the write is on the other copy before the next one
    /// begins.
    Wait {
        /// Connections.
        clients: u32,
    },
    /// All clients connect to a single node.
    OneNode {
        /// The operation.
        operation: Operation,
        /// Connections.
        clients: u32,
    },
    /// Open loop, at half of the system's throughput in the closed loop. Latency counts from when
    /// an operation was due.
    HalfPeak {
        /// The operation.
        operation: Operation,
        /// Connections.
        clients: u32,
    },
    /// GETs of [`LARGE_BYTES`].
    Large,
    /// [`SMALL_RATE`] small GETs a second.
    Small {
        /// Whether large GETs run beside them.
        beside_large: bool,
    },
}

/// A large value.
pub const LARGE_BYTES: usize = 1_000_000;
/// How many large values there are.
pub const LARGE_KEYS: u32 = 32;
/// Connections that ask for large values.
pub const LARGE_CLIENTS: u32 = 4;
/// Small operations a second beside large ones.
pub const SMALL_RATE: f64 = 2_000.0;

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name in flags and files.
    pub id: String,
    /// The title in tables.
    pub title: String,
    /// The load.
    pub work: Work,
    /// The systems to measure, Doyen first: its figures are divided by those of the others.
    pub subjects: Vec<Subject>,
    /// Whether the short list has it.
    pub quick: bool,
    /// Whether `check` measures it.
    pub checked: bool,
}

impl Case {
    /// Whether its operations a second are given, and so no comparison.
    #[must_use]
    pub fn is_rated(&self) -> bool {
        matches!(self.work, Work::HalfPeak { .. } | Work::Small { .. })
    }

    /// Whether it needs `doyen bench` as a generator.
    #[must_use]
    pub fn needs_native(&self) -> bool {
        !matches!(self.work, Work::Clients { .. })
    }
}

/// All cases, in the order of the table: SET before GET, so that GET finds something.
#[must_use]
pub fn all() -> Vec<Case> {
    use Operation::{Get, HSet, Incr, Set};
    use Subject::{Doyen, DoyenClient, DoyenOneNode, Hazelcast, Olric, Redis};
    let mut cases = Vec::new();
    let mut add = |id: String, title: String, work, subjects: &[Subject], quick, checked| {
        cases.push(Case {
            id,
            title,
            work,
            subjects: subjects.to_vec(),
            quick,
            checked,
        });
    };
    for (clients, pipeline) in [(50, 1), (512, 1), (50, 16), (512, 16)] {
        let few = clients == 50;
        let more: &[Operation] = if few { &[Incr, HSet] } else { &[] };
        for operation in [Set, Get].iter().chain(more).copied() {
            let plain = matches!(operation, Set | Get);
            let pipelined = if pipeline > 1 {
                format!(", pipeline {pipeline}")
            } else {
                String::new()
            };
            let subjects: &[Subject] = match (plain, pipeline) {
                (false, _) => &[Doyen, Redis],
                (true, 1) => &[Doyen, Redis, Hazelcast, Olric],
                (true, _) => &[Doyen, Redis, Olric],
            };
            let id = format!("{}-{clients}-p{pipeline}", operation.id());
            let title = format!("{}, {clients} clients{pipelined}", operation.name());
            add(
                id,
                title,
                Work::Clients {
                    operation,
                    clients,
                    pipeline,
                },
                subjects,
                few || pipeline == 1,
                few && plain,
            );
        }
    }
    for in_flight in [50, 512] {
        for (operation, name) in [(Set, "insert"), (Get, "get")] {
            let title = format!("{name} by its own client, {in_flight} in flight");
            let subjects = &[DoyenClient, Hazelcast, Olric];
            add(
                format!("own-{name}-{in_flight}"),
                title,
                Work::OwnClients {
                    operation,
                    in_flight,
                },
                subjects,
                true,
                false,
            );
        }
    }
    for clients in [50, 512] {
        let title = format!("SET then WAIT 1, {clients} clients");
        add(
            format!("wait-{clients}"),
            title,
            Work::Wait { clients },
            &[Doyen, Redis],
            clients == 50,
            clients == 50,
        );
    }
    for clients in [50, 512] {
        for operation in [Set, Get] {
            let (id, title) = (
                format!("one-node-{}-{clients}", operation.id()),
                format!("{} by one node, {clients} clients", operation.name()),
            );
            add(
                id,
                title,
                Work::OneNode { operation, clients },
                &[DoyenOneNode, Doyen, Olric],
                clients == 50,
                false,
            );
        }
    }
    for operation in [Set, Get] {
        let (id, title) = (
            format!("half-{}", operation.id()),
            format!("{} at half of its own peak, open loop", operation.name()),
        );
        add(
            id,
            title,
            Work::HalfPeak {
                operation,
                clients: 50,
            },
            &[Doyen, Redis, Olric],
            true,
            false,
        );
    }
    add(
        "large".into(),
        "GET of 1 MB, 4 clients (k/s = GB/s)".into(),
        Work::Large,
        &[Doyen, Redis],
        false,
        false,
    );
    for beside_large in [false, true] {
        let (id, beside) = if beside_large {
            ("small-beside-large", "beside GETs of 1 MB")
        } else {
            ("small-alone", "alone")
        };
        let title = format!("GET, {SMALL_RATE} a second, {beside}");
        add(
            id.into(),
            title,
            Work::Small { beside_large },
            &[Doyen, Redis],
            false,
            false,
        );
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_case_has_a_name_of_its_own_and_begins_with_doyen() {
        let cases = all();
        assert_eq!(
            cases.iter().map(|c| &c.id).collect::<BTreeSet<_>>().len(),
            cases.len()
        );
        assert!(
            cases
                .iter()
                .all(|c| c.subjects[0].kind() == Kind::Doyen && c.subjects.len() > 1)
        );
    }

    #[test]
    fn counters_and_hashes_are_measured_beside_redis_alone_and_pipelined() {
        let cases = all();
        for id in ["incr-50-p1", "incr-50-p16", "hset-50-p1", "hset-50-p16"] {
            let case = cases.iter().find(|case| case.id == id).expect(id);
            assert_eq!(case.subjects, [Subject::Doyen, Subject::Redis], "{id}");
            assert!(case.quick, "{id}");
        }
    }

    #[test]
    fn checked_cases_are_in_both_lists_and_measure_redis() {
        let checked: Vec<Case> = all().into_iter().filter(|c| c.checked).collect();
        assert_eq!(checked.len(), 5);
        assert!(
            checked
                .iter()
                .all(|c| c.quick && c.subjects.starts_with(&[Subject::Doyen, Subject::Redis]))
        );
    }
}
