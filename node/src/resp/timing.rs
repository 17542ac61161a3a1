//! Latencies of commands, by family: from the pass in which a command was read to the pass in which
//! its reply leaves.

use super::command::table::{self, RespSpec};
use super::counts::Stopwatch;
use crate::data::latency::{CommandFamily, FamilyLatencies, LatencyMeter};
use doyen_gossip::Time;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::LazyLock;

/// The family of each command, by its place in the table. `None`: it waits on purpose, so its time
/// says nothing about this node.
static FAMILIES: LazyLock<Vec<Option<CommandFamily>>> =
    LazyLock::new(|| table::COMMANDS.all().iter().map(family).collect());

fn family(spec: &RespSpec) -> Option<CommandFamily> {
    let subscribes = spec.is_in("pubsub") && spec.has_flag("noscript");
    let waits = spec.is_in("blocking") || subscribes || spec.name == "monitor";
    let families = [
        ("scripting", CommandFamily::Script),
        ("transaction", CommandFamily::Transaction),
        ("write", CommandFamily::Write),
        ("read", CommandFamily::Read),
    ];
    let of = families.iter().find(|(category, _)| spec.is_in(category));
    (!waits).then(|| of.map_or(CommandFamily::Other, |(_, family)| *family))
}

/// The clocks of a data thread's commands.
#[derive(Debug)]
pub(crate) struct CommandTiming {
    /// How long they run.
    pub(crate) stopwatch: Stopwatch,
    /// How long their clients wait.
    pub(crate) latency: Rc<CommandLatency>,
}

impl CommandTiming {
    pub(crate) fn new() -> Self {
        Self {
            stopwatch: Stopwatch::new(),
            latency: Rc::default(),
        }
    }
}

/// Counts the latencies of the commands of a data thread. Its connections share it.
#[derive(Debug, Default)]
pub(crate) struct CommandLatency(RefCell<LatencyMeter>);

impl CommandLatency {
    /// The reply to this command leaves in this pass. The command came in the pass that began at
    /// `came`.
    #[inline]
    pub(crate) fn leaves(&self, command: u16, came: Time) {
        let family = FAMILIES.get(usize::from(command));
        if let Some(family) = family.copied().unwrap_or(Some(CommandFamily::Other)) {
            self.0.borrow_mut().note(family, came, 1);
        }
    }

    /// Likewise for `times` reads.
    #[inline]
    pub(crate) fn reads_leave(&self, came: Time, times: u64) {
        if times > 0 {
            self.0.borrow_mut().note(CommandFamily::Read, came, times);
        }
    }

    /// The replies of this pass are written.
    pub(crate) fn count(&self) {
        self.0.borrow_mut().count();
    }

    pub(crate) fn counts(&self) -> FamilyLatencies {
        *self.0.borrow().counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_belong_to_families_unless_they_wait_on_purpose() {
        let of = |name: &str| family(table::COMMANDS.named(name.as_bytes()).expect(name));
        for (names, expected) in [
            ("get mget hgetall smembers scan", Some(CommandFamily::Read)),
            ("set del hset sadd incr expire", Some(CommandFamily::Write)),
            (
                "eval evalsha eval_ro script|load",
                Some(CommandFamily::Script),
            ),
            ("multi exec watch discard", Some(CommandFamily::Transaction)),
            ("ping publish info client|list", Some(CommandFamily::Other)),
            ("subscribe psubscribe ssubscribe wait monitor", None),
        ] {
            for name in names.split(' ') {
                assert_eq!(of(name), expected, "{name}");
            }
        }
    }
}
