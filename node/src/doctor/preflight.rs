//! What is wrong with a machine on which a node is about to start.

use super::member::{judge_machine, listed, one, seeds};
use crate::report::examination::HealthVerdict::{Critical, Fine, Unseen, Warning};
use crate::report::examination::{Examination, HealthFinding};
use doyen_placement::words::counted;
use std::net::SocketAddr;

/// What was tried on a machine before a node starts there.
#[derive(Debug, Clone)]
pub struct Preflight {
    /// The machine, the options that matter, and which seeds do not resolve.
    pub machine: Examination,
    /// Why the ports of the node cannot be opened.
    pub ports: Result<(), String>,
    /// The seeds that were asked.
    pub seeds: Vec<TriedSeed>,
}

/// A seed that was asked which node answers there.
#[derive(Debug, Clone)]
pub struct TriedSeed {
    /// Its address.
    pub address: SocketAddr,
    /// Why no node answers that would take this one.
    pub failure: Option<String>,
    /// Whether that lasts until an operator changes something.
    pub lasts: bool,
}

/// What is wrong there.
#[must_use]
pub fn judge_preflight(tried: &Preflight) -> Vec<HealthFinding> {
    let found = [
        ports(tried),
        seeds(&tried.machine),
        seeds_answer(tried),
        judge_machine(&tried.machine),
        one(
            Unseen,
            "data-ports",
            "whether other machines reach this one shows only when a node runs here: start it, \
             and run `doyen doctor`",
        ),
    ];
    found.into_iter().flatten().collect()
}

fn ports(tried: &Preflight) -> Vec<HealthFinding> {
    const CHECK: &str = "ports";
    match &tried.ports {
        Ok(()) => one(Fine, CHECK, "all ports of the node can be opened"),
        Err(why) => {
            let remedy = "if a node uses it, that one can be asked: `doyen doctor --http ADDRESS`";
            vec![HealthFinding::new(Critical, CHECK, why).remedy(remedy)]
        }
    }
}

fn seeds_answer(tried: &Preflight) -> Vec<HealthFinding> {
    const CHECK: &str = "control-ports";
    let failed = |lasts: Option<bool>| {
        let seeds = tried.seeds.iter();
        let some = seeds.filter(move |seed| lasts.is_none_or(|lasts| seed.lasts == lasts));
        some.filter_map(|seed| Some(format!("{}: {}", seed.address, seed.failure.as_ref()?)))
    };
    let answered = tried.seeds.len() - failed(None).count();
    let shown = |lasts| listed(failed(Some(lasts)));
    let mut found = Vec::new();
    let refused = shown(true);
    if !refused.is_empty() {
        let text = format!("these seeds would not let this node in: {refused}");
        let remedy = "start this node with what those nodes have: the same --secret-file, or \
                      certificates of the same authority";
        found.push(HealthFinding::new(Critical, CHECK, text).remedy(remedy));
    }
    let silent = shown(false);
    if !silent.is_empty() {
        let text = format!(
            "{answered} of {} seeds answer; not {silent}",
            tried.seeds.len()
        );
        let remedy = "if nodes run there, let UDP through to their control ports and back. A \
                      node that starts before its seeds waits for them";
        found.push(HealthFinding::new(Warning, CHECK, text).remedy(remedy));
    }
    if found.is_empty() && answered > 0 {
        found = one(
            Fine,
            CHECK,
            counted(answered, ("seed answers", "seeds answer")),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examination::HealthVerdict;

    fn seed(last: u8, failure: Option<&str>, lasts: bool) -> TriedSeed {
        TriedSeed {
            address: ([10, 0, 0, last], 7400).into(),
            failure: failure.map(str::to_owned),
            lasts,
        }
    }

    fn tried() -> Preflight {
        Preflight {
            machine: Examination::default(),
            ports: Ok(()),
            seeds: vec![seed(1, None, false)],
        }
    }

    fn verdicts(tried: &Preflight, check: &str) -> Vec<HealthVerdict> {
        let all = judge_preflight(tried).into_iter();
        let of = all.filter(|finding| finding.check == check);
        of.map(|finding| finding.verdict).collect()
    }

    #[test]
    fn a_port_that_is_taken_is_critical() {
        assert_eq!(verdicts(&tried(), "ports"), [Fine]);
        let taken = Preflight {
            ports: Err("--listen 127.0.0.1:7400: the port is in use".into()),
            ..tried()
        };
        assert_eq!(verdicts(&taken, "ports"), [Critical]);
    }

    #[test]
    fn seeds_that_are_silent_are_a_warning_and_those_that_refuse_are_critical() {
        assert_eq!(verdicts(&tried(), "control-ports"), [Fine]);
        let mut some = tried();
        some.seeds.push(seed(2, Some("no answer"), false));
        assert_eq!(verdicts(&some, "control-ports"), [Warning]);
        some.seeds.push(seed(3, Some("another secret"), true));
        assert_eq!(verdicts(&some, "control-ports"), [Critical, Warning]);
        some.seeds.clear();
        assert_eq!(verdicts(&some, "control-ports"), []);
    }

    #[test]
    fn a_name_that_does_not_resolve_is_a_warning_and_what_cannot_be_seen_is_said() {
        let mut unresolved = tried();
        unresolved.machine.seeds = 2;
        unresolved.machine.seeds_unresolved = vec!["n2.example:7400".into()];
        assert_eq!(verdicts(&unresolved, "seeds"), [Warning]);
        assert_eq!(verdicts(&unresolved, "data-ports"), [Unseen]);
    }
}
