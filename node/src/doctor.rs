//! Examines members and machines, and says what is wrong.
//!
//! ```text
//!   machine, threads ──examine──> Examination (readings)  ──member──┐
//!     of this node        two looks, a second apart                  ├─> HealthFinding: verdict,
//!   Examinations of all members, ClusterReport ──────────cluster────┤   what was measured, remedy
//!   sockets and seeds before a start ──> Preflight ──────preflight──┘
//! ```
//! All judgement is pure: from what was read to findings. `GET /examination` answers one member's
//! readings with its own findings, and `doyen doctor` asks all members and compares them. What the
//! console shows as alerts is not judged again here (`report::alerts`).

mod cluster;
mod examine;
mod member;
mod preflight;

pub use cluster::{AskedMember, judge_cluster};
pub use examine::Examiner;
pub use member::machine_warnings;
pub use preflight::{Preflight, TriedSeed, judge_preflight};

/// Every check, in the order in which a page lists them.
pub const CHECKS: [&str; 25] = [
    "answers",
    "membership",
    "alert",
    "versions",
    "clocks",
    "threads",
    "directory",
    "seeds",
    "control-ports",
    "data-ports",
    "relay",
    "loss",
    "mtu",
    "round-trips",
    "send-errors",
    "segmentation",
    "udp-buffers",
    "udp-losses",
    "open-files",
    "memory",
    "swap",
    "processors",
    "throttling",
    "certificates",
    "ports",
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_lists_every_check() {
        let page = include_str!("../../docs/operations.md");
        let table = page.split("| check | it is found if |\n|---|---|\n").nth(1);
        let rows = table.expect("a table").lines();
        let rows = rows.map_while(|row| row.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<Vec<_>>(), super::CHECKS);
    }
}
