//! Chooses the next fault, its length, and whether it may come. The seed alone decides, as far as
//! possible.
//!
//! Doyen keeps its promises while a majority of the voters is alive and every partition keeps a
//! copy in sync. So a fault comes only when all data is safe. It takes nodes away, or cuts them
//! off, only if the current table says that both conditions hold for the other nodes. There are at
//! most seven members, so every member votes. Some pairs of faults need an operator, for example a
//! death during another member's failover: see the known defects in ARCHITECTURE.md. So there is
//! one fault at a time, but the links may be bad meanwhile.

use doyen::testkit::{Cluster, Faults, Plane};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Members at most, so that all of them vote.
pub(super) const MEMBERS_MAX: usize = 7;
/// Members at least: a smaller cluster cannot spare one.
pub(super) const MEMBERS_MIN: usize = 3;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    Kill,
    KillCoordinator,
    KillTwo,
    Pause,
    Restart,
    Join,
    Leave,
    CutOneWay,
    CutPair,
    CutPlane,
    Isolate,
    Mute,
    Deafen,
    Loss,
    Delay,
    Duplicate,
    Reorder,
    Corrupt,
    Bandwidth,
    BlackHole,
}

/// Every kind, and how often it comes.
const KINDS: [(FaultKind, u32); 20] = [
    (FaultKind::Kill, 4),
    (FaultKind::KillCoordinator, 3),
    (FaultKind::KillTwo, 2),
    (FaultKind::Pause, 4),
    (FaultKind::Restart, 3),
    (FaultKind::Join, 3),
    (FaultKind::Leave, 3),
    (FaultKind::CutOneWay, 3),
    (FaultKind::CutPair, 3),
    (FaultKind::CutPlane, 3),
    (FaultKind::Isolate, 3),
    (FaultKind::Mute, 2),
    (FaultKind::Deafen, 2),
    (FaultKind::Loss, 2),
    (FaultKind::Delay, 2),
    (FaultKind::Duplicate, 1),
    (FaultKind::Reorder, 1),
    (FaultKind::Corrupt, 2),
    (FaultKind::Bandwidth, 1),
    (FaultKind::BlackHole, 1),
];

impl FaultKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillCoordinator => "kill the coordinator",
            Self::KillTwo => "kill two",
            Self::Pause => "pause",
            Self::Restart => "restart in order",
            Self::Join => "join",
            Self::Leave => "leave",
            Self::CutOneWay => "one-way cut",
            Self::CutPair => "cut",
            Self::CutPlane => "cut of one port",
            Self::Isolate => "isolation",
            Self::Mute => "unheard by all",
            Self::Deafen => "deaf to all",
            Self::Loss => "loss",
            Self::Delay => "delay",
            Self::Duplicate => "duplication",
            Self::Reorder => "reordering",
            Self::Corrupt => "corruption",
            Self::Bandwidth => "little bandwidth",
            Self::BlackHole => "MTU black hole",
        }
    }

    /// How many nodes the fault takes away from all others.
    const fn victims(self) -> usize {
        match self {
            Self::KillTwo => 2,
            Self::Kill
            | Self::KillCoordinator
            | Self::Pause
            | Self::Restart
            | Self::Leave
            | Self::Isolate
            | Self::Mute
            | Self::Deafen => 1,
            _ => 0,
        }
    }
}

/// Draws the faults.
#[derive(Debug)]
pub(super) struct ChaosPlan {
    seed: u64,
    number: u64,
    /// Kinds that have not come yet: every kind comes once before any comes twice.
    first: VecDeque<FaultKind>,
}

/// A planned fault. Each has random numbers of its own, so the course of one fault does not change
/// the next.
#[derive(Debug)]
pub(super) struct Episode {
    pub(super) kind: FaultKind,
    /// The quiet time before it.
    pub(super) calm: Duration,
    /// Its length.
    pub(super) span: Duration,
    /// The faults of all links meanwhile.
    pub(super) links: Faults,
    /// Chooses between the two forms of the kind, if it has two.
    pub(super) coin: bool,
    rng: ChaCha8Rng,
}

/// The nodes that the fault hits.
#[derive(Debug)]
pub(super) struct Aim {
    /// The nodes that are taken away come first, or the two ends of a cut.
    pub(super) nodes: Vec<usize>,
    pub(super) plane: Plane,
    /// The fault in one line.
    pub(super) text: String,
}

impl ChaosPlan {
    pub(super) fn new(seed: u64, nodes: usize) -> Self {
        let mut first: Vec<FaultKind> = KINDS.iter().map(|(kind, _)| *kind).collect();
        first.shuffle(&mut randomness(seed, 0));
        // With three nodes, a fourth must join before one may leave.
        let (join, leave) = (
            first.iter().position(|k| *k == FaultKind::Join),
            first.iter().position(|k| *k == FaultKind::Leave),
        );
        if let (Some(join), Some(leave)) = (join, leave)
            && (leave < join) == (nodes <= MEMBERS_MIN)
        {
            first.swap(join, leave);
        }
        Self {
            seed,
            number: 0,
            first: first.into(),
        }
    }

    pub(super) fn next(&mut self) -> Episode {
        self.number += 1;
        let mut rng = randomness(self.seed, self.number);
        // Drawn in any case, so that an episode does not depend on the ones before it.
        let drawn = draw(&mut rng);
        let kind = self.first.pop_front().unwrap_or(drawn);
        let calm = Duration::from_millis(rng.random_range(500..2500));
        let span = span(&mut rng);
        let bad = rng.random_bool(0.25);
        let links = links(kind, bad, &mut rng);
        let coin = rng.random_bool(0.5);
        Episode {
            kind,
            calm,
            span,
            links,
            coin,
            rng,
        }
    }
}

fn randomness(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // The relays use the lower streams.
    rng.set_stream(stream | 1 << 63);
    rng
}

fn draw(rng: &mut ChaCha8Rng) -> FaultKind {
    let mut at = rng.random_range(0..KINDS.iter().map(|(_, weight)| weight).sum());
    for (kind, weight) in KINDS {
        if at < weight {
            return kind;
        }
        at -= weight;
    }
    FaultKind::Kill
}

/// Mostly short, sometimes long.
fn span(rng: &mut ChaCha8Rng) -> Duration {
    let longest = [1000, 3000, 9000][rng.random_range(0..3)];
    Duration::from_millis(rng.random_range(200..longest))
}

/// The faults of links. A kind that has none gets mildly bad links now and then.
fn links(kind: FaultKind, bad: bool, rng: &mut ChaCha8Rng) -> Faults {
    let none = Faults::NONE;
    let ms = |rng: &mut ChaCha8Rng, from, to| Duration::from_millis(rng.random_range(from..to));
    match kind {
        FaultKind::Loss => Faults {
            loss: rng.random_range(0.05..0.3),
            ..none
        },
        FaultKind::Delay => Faults {
            delay: ms(rng, 5, 60),
            jitter: ms(rng, 1, 60),
            ..none
        },
        FaultKind::Duplicate => Faults {
            duplicate: rng.random_range(0.2..1.0),
            ..none
        },
        FaultKind::Reorder => Faults {
            reorder: rng.random_range(0.1..0.5),
            ..none
        },
        FaultKind::Corrupt => Faults {
            corrupt: rng.random_range(0.05..0.3),
            ..none
        },
        FaultKind::Bandwidth => Faults {
            bytes_per_second: Some(rng.random_range(200_000..1_000_000)),
            ..none
        },
        FaultKind::BlackHole => Faults {
            datagram_bytes_max: Some(rng.random_range(1200..1500)),
            ..none
        },
        _ if bad => Faults {
            loss: 0.02,
            delay: ms(rng, 1, 10),
            jitter: ms(rng, 1, 10),
            ..none
        },
        _ => none,
    }
}

/// Chooses the nodes that the fault hits. An error says why the fault may not come now.
pub(super) async fn aim(episode: &mut Episode, cluster: &Cluster) -> Result<Aim, String> {
    let mut nodes: Vec<usize> = cluster.running().collect();
    let count = nodes.len();
    nodes.shuffle(&mut episode.rng);
    let plane = if episode.coin {
        Plane::Control
    } else {
        Plane::Data
    };
    match episode.kind {
        FaultKind::Join if count >= MEMBERS_MAX => {
            return Err(format!(
                "there are {count} members already, and a further one would not vote"
            ));
        }
        FaultKind::Leave if count <= MEMBERS_MIN => {
            return Err(format!(
                "there are only {count} members, and no fewer may stay"
            ));
        }
        FaultKind::KillCoordinator => {
            let coordinator = cluster
                .coordinator()
                .await
                .ok_or("no node knows the coordinator")?;
            nodes.sort_by_key(|node| *node != coordinator);
        }
        _ => {}
    }
    let victims: BTreeSet<usize> = nodes.iter().take(episode.kind.victims()).copied().collect();
    if !victims.is_empty() {
        may_go(&victims, cluster).await?;
    }
    let text = told(episode, &nodes, plane, cluster);
    Ok(Aim { nodes, plane, text })
}

/// Whether the cluster promises to continue without these nodes.
async fn may_go(victims: &BTreeSet<usize>, cluster: &Cluster) -> Result<(), String> {
    let asked = cluster
        .running()
        .find(|node| !victims.contains(node))
        .ok_or("no node would be left")?;
    let status = cluster.status(asked).await.map_err(|e| e.to_string())?;
    let table = cluster.table(asked).await.map_err(|e| e.to_string())?;
    let gone: BTreeSet<&str> = victims.iter().map(|node| cluster.name(*node)).collect();
    let left = status
        .members
        .iter()
        .filter(|m| !gone.contains(m.name.as_str()))
        .count();
    if 2 * left <= status.members.len() {
        return Err(format!(
            "only {left} of {} voters would be left, which is no majority",
            status.members.len()
        ));
    }
    let partitions = table
        .keyspaces
        .iter()
        .flat_map(|keyspace| &keyspace.partitions);
    let lost = partitions
        .filter(|p| {
            std::iter::once(&p.primary)
                .chain(&p.backups)
                .all(|name| gone.contains(name.as_str()))
        })
        .count();
    if lost > 0 {
        let names: Vec<&str> = gone.into_iter().collect();
        return Err(format!(
            "only {} {} copies of {lost} partitions",
            names.join(" and "),
            if names.len() == 1 { "has" } else { "have" }
        ));
    }
    Ok(())
}

fn told(episode: &Episode, nodes: &[usize], plane: Plane, cluster: &Cluster) -> String {
    let name = |at: usize| nodes.get(at).map_or("no node", |node| cluster.name(*node));
    let (a, b) = (name(0), name(1));
    let seconds = episode.span.as_secs_f64();
    let links = &episode.links;
    let percent = |share: f64| format!("{:.0} % of all datagrams", share * 100.0);
    let milliseconds = |d: Duration| d.as_millis();
    let mut text = match episode.kind {
        FaultKind::Kill => format!("SIGKILL to {a}, back {seconds:.1} s later"),
        FaultKind::KillCoordinator => {
            format!("SIGKILL to {a}, the coordinator, back {seconds:.1} s later")
        }
        FaultKind::KillTwo => format!("SIGKILL to {a} and {b}, back {seconds:.1} s later"),
        FaultKind::Pause => format!("SIGSTOP to {a} for {seconds:.1} s"),
        FaultKind::Restart => format!("{a} leaves in order and comes back {seconds:.1} s later"),
        FaultKind::Join => "a new node joins".into(),
        FaultKind::Leave => format!("{a} leaves in order, for good"),
        FaultKind::CutOneWay => format!("nothing passes from {a} to {b} for {seconds:.1} s"),
        FaultKind::CutPair => format!("nothing passes between {a} and {b} for {seconds:.1} s"),
        FaultKind::CutPlane => {
            let port = if plane == Plane::Control {
                "control"
            } else {
                "data"
            };
            format!("nothing passes between the {port} ports of {a} and {b} for {seconds:.1} s")
        }
        FaultKind::Isolate => {
            format!("nothing passes between {a} and all others for {seconds:.1} s")
        }
        FaultKind::Mute => format!("nothing passes from {a} to all others for {seconds:.1} s"),
        FaultKind::Deafen => format!("nothing passes from all others to {a} for {seconds:.1} s"),
        FaultKind::Loss => format!("{} are lost for {seconds:.1} s", percent(links.loss)),
        FaultKind::Delay => {
            let (least, most) = (
                milliseconds(links.delay),
                milliseconds(links.delay + links.jitter),
            );
            format!("every datagram takes {least} to {most} ms for {seconds:.1} s")
        }
        FaultKind::Duplicate => format!(
            "{} arrive twice for {seconds:.1} s",
            percent(links.duplicate)
        ),
        FaultKind::Reorder => format!(
            "{} are overtaken for {seconds:.1} s",
            percent(links.reorder)
        ),
        FaultKind::Corrupt => format!(
            "in {} a bit is flipped for {seconds:.1} s",
            percent(links.corrupt)
        ),
        FaultKind::Bandwidth => format!(
            "{} kB/s a link for {seconds:.1} s",
            links.bytes_per_second.unwrap_or_default() / 1000
        ),
        FaultKind::BlackHole => {
            format!(
                "datagrams above {} bytes vanish for {seconds:.1} s",
                links.datagram_bytes_max.unwrap_or_default()
            )
        }
    };
    if episode.under_bad_links() {
        text += &format!(
            " (with 2 % loss and up to {} ms of delay everywhere)",
            milliseconds(links.delay + links.jitter)
        );
    }
    text
}

impl Episode {
    fn under_bad_links(&self) -> bool {
        let own = matches!(
            self.kind,
            FaultKind::Loss
                | FaultKind::Delay
                | FaultKind::Duplicate
                | FaultKind::Reorder
                | FaultKind::Corrupt
                | FaultKind::Bandwidth
                | FaultKind::BlackHole
        );
        !own && !self.links.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seed: u64, nodes: usize, count: usize) -> Vec<(FaultKind, Duration, Duration, Faults)> {
        let mut plan = ChaosPlan::new(seed, nodes);
        (0..count)
            .map(|_| plan.next())
            .map(|e| (e.kind, e.calm, e.span, e.links))
            .collect()
    }

    #[test]
    fn the_same_seed_plans_the_same_and_another_one_something_else() {
        assert_eq!(told(7, 5, 100), told(7, 5, 100));
        assert_ne!(told(7, 5, 100), told(8, 5, 100));
    }

    #[test]
    fn every_kind_comes_before_any_comes_again() {
        for seed in 0..20 {
            let kinds: Vec<FaultKind> = told(seed, 5, KINDS.len()).iter().map(|e| e.0).collect();
            assert!(
                KINDS.iter().all(|(kind, _)| kinds.contains(kind)),
                "{kinds:?}"
            );
        }
    }

    #[test]
    fn with_three_nodes_one_joins_before_one_leaves() {
        for seed in 0..20 {
            let kinds: Vec<FaultKind> = told(seed, 3, KINDS.len()).iter().map(|e| e.0).collect();
            let at = |kind| kinds.iter().position(|k| *k == kind);
            assert!(at(FaultKind::Join) < at(FaultKind::Leave), "{kinds:?}");
        }
    }
}
