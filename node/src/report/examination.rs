//! What one member sees of itself, its machine and its peers: `GET /examination`, and what
//! `doyen doctor` is made of.

pub use crate::machine::{CpuBound, MachineReading, MemoryBound};
pub use crate::net::path::PathReading;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What a check has found. The worst comes first.
///
/// Example: [`Examination`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthVerdict {
    /// Something does not work, or will not for long.
    Critical,
    /// Something is slower or less safe than it could be.
    Warning,
    /// The check could not be made.
    Unseen,
    /// Nothing is wrong.
    Fine,
}

impl HealthVerdict {
    /// Its name: `critical`, `warning`, `unseen`, `fine`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Unseen => "unseen",
            Self::Fine => "fine",
        }
    }
}

/// What one check has found.
///
/// Example: [`Examination`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthFinding {
    /// What it found.
    pub verdict: HealthVerdict,
    /// The name of the check.
    pub check: String,
    /// The member that it is about; `None`: the cluster, or the machine of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// What was measured.
    pub text: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl HealthFinding {
    pub(crate) fn new(verdict: HealthVerdict, check: &str, text: impl Into<String>) -> Self {
        Self {
            verdict,
            check: check.to_owned(),
            member: None,
            text: text.into(),
            remedy: None,
        }
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    pub(crate) fn of(mut self, member: &str) -> Self {
        self.member = Some(member.to_owned());
        self
    }

    /// Whether a person should do something.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.verdict <= HealthVerdict::Warning
    }
}

/// What was counted while a member was examined, for about a second.
///
/// Example: [`Examination`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CountedMeanwhile {
    /// Periods in which the system stopped processes of the control group.
    pub throttled: u64,
    /// Datagrams that UDP sockets lost.
    pub udp_lost: u64,
    /// Datagrams that were not sent, by port and error: `data ENOBUFS`.
    pub send_errors: BTreeMap<String, u64>,
}

/// What a member knows of the way to another one.
///
/// Example: [`Examination`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerReading {
    /// The other member.
    pub name: String,
    /// Its data port.
    pub address: SocketAddr,
    /// What the control connections have measured, if there are any. In a large cluster, there are
    /// none to most members.
    pub control: Option<PathReading>,
    /// What the data connections have measured.
    pub data: PathReading,
    /// How many data connections there should be: one between each two threads.
    pub links: u64,
    /// Why one is missing.
    pub missing: Option<String>,
}

/// What one member sees of itself, its machine and its peers. It has no secrets, no keys and no
/// values.
///
/// ```
/// use doyen::report::examination::Examination;
///
/// /// What to do at a member, the most urgent first.
/// fn to_do(seen: &Examination) -> Vec<&str> {
///     let wrong = seen.findings.iter().filter(|finding| finding.is_wrong());
///     wrong.filter_map(|finding| finding.remedy.as_deref()).collect()
/// }
///
/// let answered = r#"{"name": "n1", "findings": [{"verdict": "warning", "check": "swap",
///     "text": "12 MiB of this process are swapped out", "remedy": "run `swapoff -a`"}]}"#;
/// let seen: Examination = serde_json::from_str(answered)?;
/// assert_eq!(to_do(&seen), ["run `swapoff -a`"]);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Examination {
    /// The member.
    pub name: String,
    /// Its identity: one process start.
    pub id: String,
    /// The version of its program.
    pub version: String,
    /// The highest level that it speaks.
    pub level_max: u16,
    /// Its time of day as it answered, in Unix milliseconds.
    pub wall_ms: u64,
    /// What is wrong, unseen and fine, the worst first.
    pub findings: Vec<HealthFinding>,
    /// What its machine grants it.
    pub machine: MachineReading,
    /// What was counted meanwhile.
    pub meanwhile: CountedMeanwhile,
    /// How many data threads it has.
    pub threads: u64,
    /// How many Redis clients may connect.
    pub connections_max: u64,
    /// How much memory it may hold, in bytes (`--memory-max`).
    pub memory_max: u64,
    /// The memory that the process itself needs beyond that.
    pub memory_itself: u64,
    /// Datagrams that were not sent since its start, by port and error.
    pub send_errors: BTreeMap<String, u64>,
    /// Whether the system sends several datagrams at a time (GSO).
    pub segments: Option<bool>,
    /// How many seconds its certificates are still valid, by port.
    pub certificates: BTreeMap<String, i64>,
    /// The ports whose certificate a new secret should sign and has not: why.
    pub certificates_behind: Vec<String>,
    /// How many seeds it has, as addresses and as names that do not resolve.
    pub seeds: u64,
    /// Names of seeds that do not resolve.
    pub seeds_unresolved: Vec<String>,
    /// Control ports that it could not dial within the last seconds, and why.
    pub unreached: BTreeMap<SocketAddr, String>,
    /// The other members.
    pub peers: Vec<PeerReading>,
    /// Its threads that did not answer in time.
    pub silent: Vec<String>,
}
