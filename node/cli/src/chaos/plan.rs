//! Which fault comes next, for how long, and whether it may come: by the seed alone, as far as that
//! can be.
//!
//! What Doyen promises holds while a majority of the voters is there and every partition keeps a
//! copy in sync. A fault comes only when all is safe, and takes nodes away (or cuts them off from
//! all others) only if, by the table of that moment, both stay true of the rest. With seven members
//! at most, every member votes. A death beside a pause, or within another's failover, can need an
//! operator (ARCHITECTURE.md has the known cases): so there is one fault at a time, though the
//! links may be bad under it.

use doyen::testkit::{Cluster, Faults, Plane};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Members at most: all of them vote.
pub(super) const MEMBERS_MAX: usize = 7;
/// Members at least: of fewer, none may go.
pub(super) const MEMBERS_MIN: usize = 3;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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
const KINDS: [(Kind, u32); 20] = [
    (Kind::Kill, 4),
    (Kind::KillCoordinator, 3),
    (Kind::KillTwo, 2),
    (Kind::Pause, 4),
    (Kind::Restart, 3),
    (Kind::Join, 3),
    (Kind::Leave, 3),
    (Kind::CutOneWay, 3),
    (Kind::CutPair, 3),
    (Kind::CutPlane, 3),
    (Kind::Isolate, 3),
    (Kind::Mute, 2),
    (Kind::Deafen, 2),
    (Kind::Loss, 2),
    (Kind::Delay, 2),
    (Kind::Duplicate, 1),
    (Kind::Reorder, 1),
    (Kind::Corrupt, 2),
    (Kind::Bandwidth, 1),
    (Kind::BlackHole, 1),
];

impl Kind {
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

    /// How many nodes it takes from all others.
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

/// Draws faults.
#[derive(Debug)]
pub(super) struct Plan {
    seed: u64,
    number: u64,
    /// Every kind comes once, before any comes again.
    first: VecDeque<Kind>,
}

/// A fault to come. Each has randomness of its own: what one of them meets does not change the
/// next.
#[derive(Debug)]
pub(super) struct Episode {
    pub(super) kind: Kind,
    /// Before it.
    pub(super) calm: Duration,
    /// How long it lasts.
    pub(super) span: Duration,
    /// What is wrong with all links meanwhile.
    pub(super) links: Faults,
    /// Where the kind has two forms: which.
    pub(super) coin: bool,
    rng: ChaCha8Rng,
}

/// Whom it hits.
#[derive(Debug)]
pub(super) struct Aim {
    /// First those that are taken away, or the two ends of a cut.
    pub(super) nodes: Vec<usize>,
    pub(super) plane: Plane,
    /// In a line.
    pub(super) text: String,
}

impl Plan {
    pub(super) fn new(seed: u64, nodes: usize) -> Self {
        let mut first: Vec<Kind> = KINDS.iter().map(|(kind, _)| *kind).collect();
        first.shuffle(&mut randomness(seed, 0));
        // Of three nodes nobody may leave until a fourth has come.
        let (join, leave) = (
            first.iter().position(|k| *k == Kind::Join),
            first.iter().position(|k| *k == Kind::Leave),
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
        // Drawn in any case, so that an episode is the same wherever it stands.
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
    // The relays draw from the low ones.
    rng.set_stream(stream | 1 << 63);
    rng
}

fn draw(rng: &mut ChaCha8Rng) -> Kind {
    let mut at = rng.random_range(0..KINDS.iter().map(|(_, weight)| weight).sum());
    for (kind, weight) in KINDS {
        if at < weight {
            return kind;
        }
        at -= weight;
    }
    Kind::Kill
}

/// Mostly short, now and then long.
fn span(rng: &mut ChaCha8Rng) -> Duration {
    let longest = [1000, 3000, 9000][rng.random_range(0..3)];
    Duration::from_millis(rng.random_range(200..longest))
}

/// The kind's own, or where it is none of links, mildly bad ones now and then.
fn links(kind: Kind, bad: bool, rng: &mut ChaCha8Rng) -> Faults {
    let none = Faults::NONE;
    let ms = |rng: &mut ChaCha8Rng, from, to| Duration::from_millis(rng.random_range(from..to));
    match kind {
        Kind::Loss => Faults {
            loss: rng.random_range(0.05..0.3),
            ..none
        },
        Kind::Delay => Faults {
            delay: ms(rng, 5, 60),
            jitter: ms(rng, 1, 60),
            ..none
        },
        Kind::Duplicate => Faults {
            duplicate: rng.random_range(0.2..1.0),
            ..none
        },
        Kind::Reorder => Faults {
            reorder: rng.random_range(0.1..0.5),
            ..none
        },
        Kind::Corrupt => Faults {
            corrupt: rng.random_range(0.05..0.3),
            ..none
        },
        Kind::Bandwidth => Faults {
            bytes_per_second: Some(rng.random_range(200_000..1_000_000)),
            ..none
        },
        Kind::BlackHole => Faults {
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

/// Finds whom it hits. An error says why it may not come.
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
        Kind::Join if count >= MEMBERS_MAX => {
            return Err(format!(
                "there are {count} members already, and another one would not vote"
            ));
        }
        Kind::Leave if count <= MEMBERS_MIN => {
            return Err(format!(
                "there are only {count} members, and so many must stay"
            ));
        }
        Kind::KillCoordinator => {
            let coordinator = cluster
                .coordinator()
                .await
                .ok_or("nobody says who coordinates")?;
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

/// Whether the cluster is promised to go on without these.
async fn may_go(victims: &BTreeSet<usize>, cluster: &Cluster) -> Result<(), String> {
    let asked = cluster
        .running()
        .find(|node| !victims.contains(node))
        .ok_or("nobody would be left")?;
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
            "of {} voters {left} would be left, which is no majority",
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
            "{} alone {} all copies of {lost} partitions",
            names.join(" and "),
            if names.len() == 1 { "has" } else { "have" }
        ));
    }
    Ok(())
}

fn told(episode: &Episode, nodes: &[usize], plane: Plane, cluster: &Cluster) -> String {
    let name = |at: usize| nodes.get(at).map_or("nobody", |node| cluster.name(*node));
    let (a, b) = (name(0), name(1));
    let seconds = episode.span.as_secs_f64();
    let links = &episode.links;
    let percent = |share: f64| format!("{:.0} % of all datagrams", share * 100.0);
    let milliseconds = |d: Duration| d.as_millis();
    let mut text = match episode.kind {
        Kind::Kill => format!("SIGKILL to {a}, back {seconds:.1} s later"),
        Kind::KillCoordinator => {
            format!("SIGKILL to {a}, the coordinator, back {seconds:.1} s later")
        }
        Kind::KillTwo => format!("SIGKILL to {a} and {b}, back {seconds:.1} s later"),
        Kind::Pause => format!("SIGSTOP to {a} for {seconds:.1} s"),
        Kind::Restart => format!("{a} leaves in order and comes back {seconds:.1} s later"),
        Kind::Join => "a new node joins".into(),
        Kind::Leave => format!("{a} leaves in order, for good"),
        Kind::CutOneWay => format!("nothing passes from {a} to {b} for {seconds:.1} s"),
        Kind::CutPair => format!("nothing passes between {a} and {b} for {seconds:.1} s"),
        Kind::CutPlane => {
            let port = if plane == Plane::Control {
                "control"
            } else {
                "data"
            };
            format!("nothing passes between the {port} ports of {a} and {b} for {seconds:.1} s")
        }
        Kind::Isolate => format!("nothing passes between {a} and all others for {seconds:.1} s"),
        Kind::Mute => format!("nothing passes from {a} to all others for {seconds:.1} s"),
        Kind::Deafen => format!("nothing passes from all others to {a} for {seconds:.1} s"),
        Kind::Loss => format!("{} are lost for {seconds:.1} s", percent(links.loss)),
        Kind::Delay => {
            let (least, most) = (
                milliseconds(links.delay),
                milliseconds(links.delay + links.jitter),
            );
            format!("every datagram takes {least} to {most} ms for {seconds:.1} s")
        }
        Kind::Duplicate => format!(
            "{} arrive twice for {seconds:.1} s",
            percent(links.duplicate)
        ),
        Kind::Reorder => format!(
            "{} are overtaken for {seconds:.1} s",
            percent(links.reorder)
        ),
        Kind::Corrupt => format!(
            "in {} a bit is flipped for {seconds:.1} s",
            percent(links.corrupt)
        ),
        Kind::Bandwidth => format!(
            "{} kB/s a link for {seconds:.1} s",
            links.bytes_per_second.unwrap_or_default() / 1000
        ),
        Kind::BlackHole => {
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
            Kind::Loss
                | Kind::Delay
                | Kind::Duplicate
                | Kind::Reorder
                | Kind::Corrupt
                | Kind::Bandwidth
                | Kind::BlackHole
        );
        !own && !self.links.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seed: u64, nodes: usize, count: usize) -> Vec<(Kind, Duration, Duration, Faults)> {
        let mut plan = Plan::new(seed, nodes);
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
            let kinds: Vec<Kind> = told(seed, 5, KINDS.len()).iter().map(|e| e.0).collect();
            assert!(
                KINDS.iter().all(|(kind, _)| kinds.contains(kind)),
                "{kinds:?}"
            );
        }
    }

    #[test]
    fn of_three_nodes_one_joins_before_one_leaves() {
        for seed in 0..20 {
            let kinds: Vec<Kind> = told(seed, 3, KINDS.len()).iter().map(|e| e.0).collect();
            let at = |kind| kinds.iter().position(|k| *k == kind);
            assert!(at(Kind::Join) < at(Kind::Leave), "{kinds:?}");
        }
    }
}
