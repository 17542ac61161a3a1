//! The point at which this process ends.

use super::Point;
use doyen_gossip::agreement::{Stage, stages};
use doyen_placement::Table;
use rustix::process::{Signal, getpid, kill_process};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every point, by its name.
const NAMES: [(&str, Point); 17] = [
    ("source-begins", Point::SourceBegins),
    ("source-sends", Point::SourceSends),
    ("source-finishes", Point::SourceFinishes),
    ("source-compares", Point::SourceCompares),
    ("source-admits", Point::SourceAdmits),
    ("target-begins", Point::TargetBegins),
    ("target-receives", Point::TargetReceives),
    ("target-finishes", Point::TargetFinishes),
    ("target-compares", Point::TargetCompares),
    ("copying-accepted", Point::CopyingAccepted),
    ("copying-installed", Point::CopyingInstalled),
    ("in-sync-accepted", Point::InSyncAccepted),
    ("in-sync-installed", Point::InSyncInstalled),
    ("switched-accepted", Point::SwitchedAccepted),
    ("switched-installed", Point::SwitchedInstalled),
    ("dropped-accepted", Point::DroppedAccepted),
    ("dropped-installed", Point::DroppedInstalled),
];

/// The place in `NAMES` of the point at which to end. This number means none.
static ARMED: AtomicUsize = AtomicUsize::new(usize::MAX);

/// No point has this name.
#[derive(Debug, thiserror::Error)]
#[error(
    "no fault point has the name {said:?}; choose from {}",
    NAMES.map(|(name, _)| name).join(", ")
)]
pub struct UnknownFault {
    said: String,
}

impl FromStr for Point {
    type Err = UnknownFault;

    fn from_str(said: &str) -> Result<Self, UnknownFault> {
        let found = NAMES.iter().find(|(name, _)| *name == said);
        found.map(|(_, point)| *point).ok_or_else(|| UnknownFault {
            said: said.to_owned(),
        })
    }
}

/// From now on, this process ends at this point.
pub fn arm(point: Point) {
    ARMED.store(place(point), Ordering::Relaxed);
}

fn place(point: Point) -> usize {
    NAMES
        .iter()
        .position(|(_, p)| *p == point)
        .unwrap_or(usize::MAX)
}

pub(crate) fn pass(point: Point) {
    let armed = ARMED.load(Ordering::Relaxed);
    if armed == usize::MAX || place(point) != armed {
        return;
    }
    eprintln!("fault point {}", NAMES[armed].0);
    // A process may always kill itself, and it ends before the call returns.
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Passes the points of a table that this process accepts or installs after another one.
pub fn pass_tables(before: &Table, now: &Table, accepted: bool) {
    if ARMED.load(Ordering::Relaxed) == usize::MAX {
        return;
    }
    for stage in stages(before, now) {
        let (when_accepted, when_installed) = match stage {
            Stage::Copying => (Point::CopyingAccepted, Point::CopyingInstalled),
            Stage::InSync => (Point::InSyncAccepted, Point::InSyncInstalled),
            Stage::Switched => (Point::SwitchedAccepted, Point::SwitchedInstalled),
            Stage::Dropped => (Point::DroppedAccepted, Point::DroppedInstalled),
            Stage::GivenUp | Stage::Cancelled => continue,
        };
        pass(if accepted {
            when_accepted
        } else {
            when_installed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_one_name() {
        for (name, point) in NAMES {
            assert_eq!(name.parse::<Point>().ok(), Some(point));
            assert_eq!(NAMES[place(point)].0, name);
        }
        let wrong = "source-ends".parse::<Point>().expect_err("there is none");
        assert!(
            wrong.to_string().contains("source-begins, source-sends"),
            "{wrong}"
        );
    }
}
