//! The audit log: who changed something, or tried to, from where, and what came of it.
//!
//! An audit is an event of its node and a line in its log (target `doyen::audit`). Refused attempts
//! are reported once a minute for each network that they come from, with the number of the others,
//! and have places of their own among the events: a flood of them pushes nothing else out.

use crate::log_limit::{A_MINUTE, LogLimit, network};
use doyen_gossip::agreement::Event;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Instant;

/// Networks whose refused attempts are counted apart. Of more, the one is forgotten whose line is
/// the oldest.
const NETWORKS_MAX: usize = 256;
/// Longest text of a name or a request that strangers choose.
const SHOWN_CHARS: usize = 200;

/// A change, or an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Audit {
    /// The credential: never its secret part.
    pub(crate) who: String,
    /// `http` or `resp`.
    pub(crate) interface: &'static str,
    /// Where the request came from.
    pub(crate) from: IpAddr,
    /// The request, without secrets and keys.
    pub(crate) what: String,
    pub(crate) outcome: AuditOutcome,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "http", feature = "resp")),
    expect(dead_code, reason = "only these interfaces are audited")
)]
pub(crate) enum AuditOutcome {
    /// It is done.
    Done,
    /// It was allowed, and failed for this reason.
    Failed(String),
    /// The caller may not do it, for this reason.
    Refused(String),
}

impl fmt::Display for AuditOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Failed(why) => write!(f, "failed ({why})"),
            Self::Refused(why) => write!(f, "refused ({why})"),
        }
    }
}

/// The lines about refused attempts that are due.
#[derive(Debug, Default)]
pub(crate) struct Refusals(BTreeMap<IpAddr, (Instant, LogLimit)>);

impl Refusals {
    /// The event to tell of an audit; `None` if it is merged with a later one.
    pub(crate) fn event(&mut self, now: Instant, audit: &Audit) -> Option<Event> {
        let refused = matches!(audit.outcome, AuditOutcome::Refused(_));
        let others = if refused {
            self.due(now, audit.from)?
        } else {
            0
        };
        Some(Event::Audit {
            who: shown(&audit.who),
            interface: audit.interface.to_owned(),
            from: audit.from.to_string(),
            what: shown(&audit.what),
            outcome: audit.outcome.to_string(),
            refused,
            others,
        })
    }

    fn due(&mut self, now: Instant, from: IpAddr) -> Option<u64> {
        let from = network(from);
        if self.0.len() >= NETWORKS_MAX && !self.0.contains_key(&from) {
            let oldest = self.0.iter().min_by_key(|(_, (at, _))| *at);
            let oldest = oldest.map(|(from, _)| *from);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        let (at, log_limit) = self
            .0
            .entry(from)
            .or_insert_with(|| (now, LogLimit::new(A_MINUTE)));
        let left_out = log_limit.happened(now)?;
        *at = now;
        Some(left_out.count())
    }
}

/// A text that a stranger may have chosen, in one short line.
fn shown(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(SHOWN_CHARS) {
        match c {
            '"' | '\'' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(SHOWN_CHARS).is_some() {
        out.push_str("..");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn audit(from: u32, outcome: AuditOutcome) -> Audit {
        Audit {
            who: "token ci".into(),
            interface: "http",
            from: Ipv4Addr::from(from).into(),
            what: "POST /recover".into(),
            outcome,
        }
    }

    #[test]
    fn refused_attempts_of_a_network_are_told_once_a_minute_and_changes_always() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        let no = || AuditOutcome::Refused("no token".into());
        let mut others = |after: u64, audit: &Audit| {
            let event = refusals.event(begin + Duration::from_secs(after), audit)?;
            let Event::Audit { others, .. } = event else {
                panic!("{event:?}");
            };
            Some(others)
        };
        assert_eq!(others(0, &audit(1, no())), Some(0));
        for _ in 0..7 {
            assert_eq!(others(1, &audit(1, no())), None);
        }
        assert_eq!(others(1, &audit(2, no())), Some(0), "another network");
        assert_eq!(others(1, &audit(1, AuditOutcome::Done)), Some(0));
        assert_eq!(
            others(1, &audit(1, AuditOutcome::Failed("409".into()))),
            Some(0)
        );
        assert_eq!(others(61, &audit(1, no())), Some(7));
    }

    #[test]
    fn networks_that_are_told_apart_are_bounded() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for n in 0..10_000 {
            let audit = audit(n, AuditOutcome::Refused("no token".into()));
            assert!(refusals.event(now, &audit).is_some());
        }
        assert_eq!(refusals.0.len(), NETWORKS_MAX);
    }

    #[test]
    fn what_strangers_choose_is_one_short_line() {
        assert_eq!(shown("a\nb"), "a\\nb");
        assert_eq!(shown(&"x".repeat(1000)).len(), SHOWN_CHARS + 2);
    }
}
