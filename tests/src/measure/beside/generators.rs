//! The generators of load: redis-benchmark, `doyen bench`, and Hazelcast's own client.

use super::cases::{LARGE_BYTES, LARGE_CLIENTS, LARGE_KEYS, Operation, SMALL_RATE};
use super::parse::{self, Load};
use super::systems::{Kind, System, VALUE_BYTES};
use crate::cluster::last_lines;
use crate::measure::children::{Cores, Running, go_on, run};
use crate::resp::{Client, Reply};
use anyhow::{Context, Result, bail};
use doyen_placement::hash::slot;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Keys that are read and written.
pub const KEYS: u32 = 100_000;
/// The prefix of the names of large values. Its tag puts them all into one slot, so one master has
/// all of them.
const LARGE: &str = "{large}";
/// How much longer than planned a generator may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Commands that are sent before their replies are read, while filling.
const FILL_BATCH: u32 = 128;
/// Connections that fill. Several, because some systems answer the commands of one connection one
/// by one.
const FILL_CONNECTIONS: u32 = 12;
/// How many times as many writes as keys fill a cluster. redis-benchmark draws keys at random: this
/// leaves fewer than one key in a hundred unwritten.
const FILL_TIMES: u32 = 5;

/// Whether this binary has `doyen bench`.
#[must_use]
pub fn has_native(binary: &Path, cores: Cores) -> bool {
    run(
        &cores.anywhere(&[&binary.to_string_lossy(), "bench", "--help"]),
        None,
        Duration::from_secs(10),
    )
    .is_ok()
}

// ---- redis-benchmark

/// The options of redis-benchmark.
#[derive(Debug, Clone, Copy)]
pub struct RedisBenchmark {
    /// The operation of its clients.
    pub operation: Operation,
    /// Connections.
    pub clients: u32,
    /// Commands that a client sends at once.
    pub pipeline: u32,
}

impl RedisBenchmark {
    /// Runs this many operations.
    ///
    /// # Errors
    /// It failed.
    pub fn run(&self, system: &System, cores: Cores, operations: u64) -> Result<Load> {
        let words = self.words(system.kind, system.resp()?, operations);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = Running::start(
            &cores.generator(&words),
            None,
            PATIENCE + Duration::from_secs(60),
        )?
        .finish()?;
        parse::redis_benchmark(&output.stdout).with_context(|| last_lines(output.stderr.trim(), 3))
    }

    fn words(&self, kind: Kind, at: SocketAddr, operations: u64) -> Vec<String> {
        let mut words = vec!["redis-benchmark".to_owned()];
        let mut flag =
            |name: &str, value: &dyn ToString| words.extend([name.to_owned(), value.to_string()]);
        flag("-h", &at.ip());
        flag("-p", &at.port());
        flag("-c", &self.clients);
        flag("-P", &self.pipeline);
        flag("-d", &VALUE_BYTES);
        flag("-r", &KEYS);
        flag("-n", &operations);
        match (kind, self.operation) {
            (Kind::Olric, Operation::Set) => words.extend(
                [
                    "DM.PUT",
                    "bench",
                    "key:__rand_int__",
                    &"v".repeat(VALUE_BYTES),
                ]
                .map(str::to_owned),
            ),
            (Kind::Olric, Operation::Get) => {
                words.extend(["DM.GET", "bench", "key:__rand_int__"].map(str::to_owned))
            }
            (_, operation) => words.extend(["--cluster", "-t", operation.id()].map(str::to_owned)),
        }
        words
    }

    /// Writes (nearly) all keys that it reads. In a cluster, it uses as many keys for each master,
    /// all in the first slot of that master.
    ///
    /// # Errors
    /// It failed.
    pub fn fill(system: &System, cores: Cores) -> Result<()> {
        let masters = system.cluster.len().max(1) as u32;
        let writes = Self {
            operation: Operation::Set,
            clients: 50,
            pipeline: 32,
        };
        writes
            .run(system, cores, u64::from(KEYS * masters * FILL_TIMES))
            .map(drop)
    }
}

// ---- doyen bench

/// The options of `doyen bench`.
#[derive(Debug, Clone, Copy)]
pub struct Native<'a> {
    /// The program.
    pub binary: &'a Path,
    /// The operation of its clients.
    pub operation: Operation,
    /// Connections.
    pub clients: u32,
    /// Seconds that are measured.
    pub seconds: f64,
    /// Whether `WAIT 1` follows each write.
    pub wait: bool,
    /// Whether all connections go to one node's plain port.
    pub one_node: bool,
    /// Operations a second; `None` if each waits for the answer to the one before.
    pub rate: Option<f64>,
    /// Whether values are large.
    pub large: bool,
    /// Whether it uses Doyen's own client.
    pub own_client: bool,
    /// Whether it writes all keys first.
    pub fill: bool,
    /// Whether it has a low priority, because it only makes load beside the generator that
    /// measures.
    pub behind: bool,
}

impl<'a> Native<'a> {
    /// A closed loop with small values, through every node.
    #[must_use]
    pub fn closed(binary: &'a Path, operation: Operation, clients: u32, seconds: f64) -> Self {
        Self {
            binary,
            operation,
            clients,
            seconds,
            wait: false,
            one_node: false,
            rate: None,
            large: false,
            own_client: false,
            fill: false,
            behind: false,
        }
    }

    /// Small GETs at a low rate.
    #[must_use]
    pub fn small(binary: &'a Path, seconds: f64) -> Self {
        Self {
            rate: Some(SMALL_RATE),
            ..Self::closed(binary, Operation::Get, 50, seconds)
        }
    }

    /// Large GETs.
    #[must_use]
    pub fn large(binary: &'a Path, seconds: f64) -> Self {
        Self {
            large: true,
            ..Self::closed(binary, Operation::Get, LARGE_CLIENTS, seconds)
        }
    }

    fn words(&self, system: &System) -> Result<Vec<String>> {
        let cluster =
            !self.own_client && !self.one_node && !self.large && !system.cluster.is_empty();
        let addresses = match (self.large, cluster) {
            (true, _) => vec![
                owners(
                    *system
                        .cluster
                        .first()
                        .context("the system has no cluster port")?,
                )?[usize::from(slot(LARGE.as_bytes()))],
            ],
            (false, true) => system.cluster.clone(),
            (false, false) => system.plain.clone(),
        };
        let addresses: Vec<String> = addresses
            .iter()
            .take(if self.one_node { 1 } else { usize::MAX })
            .map(ToString::to_string)
            .collect();
        if addresses.is_empty() && !self.own_client {
            bail!("{} has no address of that kind", system.kind.name());
        }
        let mut words = vec![self.binary.to_string_lossy().into_owned()];
        // The next measurement reads what this one wrote.
        words.extend(["bench", "--keep"].map(str::to_owned));
        let mut flag =
            |name: &str, value: &dyn ToString| words.extend([name.to_owned(), value.to_string()]);
        if self.own_client {
            let (nodes, secret) = system.data();
            let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            flag("--data", &nodes.join(","));
            flag("--secret-file", &secret.display());
        } else {
            flag("--resp", &addresses.join(","));
        }
        flag("--operation", &self.operation.id());
        flag("--keys", &if self.large { LARGE_KEYS } else { KEYS });
        flag(
            "--value-bytes",
            &if self.large { LARGE_BYTES } else { VALUE_BYTES },
        );
        flag("--connections", &self.clients);
        flag("--in-flight", &1);
        flag("--seconds", &self.seconds);
        // A warm-up would count for the processor time of the members, and not for the operations.
        flag("--warmup", &0);
        if let Some(rate) = self.rate {
            flag("--rate", &format!("{rate:.0}"));
        }
        if self.wait {
            flag("--wait", &1);
        }
        if system.kind == Kind::Olric {
            flag("--command-set", &"DM.PUT bench {key} {value}");
            flag("--command-get", &"DM.GET bench {key}");
        } else if self.large {
            flag("--command-get", &format!("GET {LARGE}{{key}}"));
        }
        let switches = [
            (cluster, "--cluster"),
            (self.own_client, "--native"),
            (self.fill, "--fill"),
        ];
        words.extend(
            switches
                .into_iter()
                .filter(|(on, _)| *on)
                .map(|(_, word)| word.to_owned()),
        );
        words.push("--json".into());
        Ok(words)
    }

    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, system: &System, cores: Cores) -> Result<Running> {
        let words = self.words(system)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let words = if self.behind {
            cores.generator_behind(&words)
        } else {
            cores.generator(&words)
        };
        Running::start(
            &words,
            None,
            Duration::from_secs_f64(self.seconds) + PATIENCE,
        )
    }

    /// Runs it.
    ///
    /// # Errors
    /// It failed.
    pub fn run(&self, system: &System, cores: Cores) -> Result<Load> {
        finish(self.start(system, cores)?)
    }
}

/// Reads its figures. If operations failed, the figures say so, also if its status is 0.
///
/// # Errors
/// It printed no figures.
pub fn finish(running: Running) -> Result<Load> {
    let output = running.finish()?;
    parse::json_load(&output.stdout).with_context(|| last_lines(output.stderr.trim(), 3))
}

// ---- Hazelcast

/// A closed loop of Hazelcast's own client.
///
/// # Errors
/// It failed.
pub fn hazelcast(
    system: &mut System,
    operation: Operation,
    in_flight: u32,
    seconds: f64,
) -> Result<Load> {
    let client = system
        .client
        .as_mut()
        .context("Hazelcast's client does not run")?;
    let question = format!(
        "run {} {KEYS} {VALUE_BYTES} {in_flight} {seconds}",
        operation.id()
    );
    parse::json_load(&client.ask(&question, Duration::from_secs_f64(seconds) + PATIENCE)?)
}

// ---- filling

/// The name of a key: 16 bytes, as redis-benchmark and `doyen bench` make them.
fn key(n: u32) -> String {
    format!("key:{n:012}")
}

/// Writes this many keys, from 0, each once.
///
/// # Errors
/// A write was refused.
pub fn fill(system: &mut System, keys: u32) -> Result<()> {
    if let Some(client) = &mut system.client {
        let said = client.ask(
            &format!("fill {keys} {VALUE_BYTES}"),
            Duration::from_secs(600),
        )?;
        return if said == format!("{{\"filled\":{keys}}}") {
            Ok(())
        } else {
            bail!("Hazelcast filled {said}, not {keys}")
        };
    }
    let value = vec![b'v'; VALUE_BYTES];
    let share = keys.div_ceil(FILL_CONNECTIONS);
    let target = Target::of(system);
    std::thread::scope(|scope| {
        let fillers: Vec<_> = (0..FILL_CONNECTIONS)
            .map(|n| {
                let (value, range) = (&value, n * share..keys.min((n + 1) * share));
                scope.spawn(move || fill_range(target, n as usize, range, key, value))
            })
            .collect();
        fillers
            .into_iter()
            .try_for_each(|filler| filler.join().expect("filling does not panic"))
    })
}

/// Writes the large values that [`Native::large`] reads.
///
/// # Errors
/// A write was refused.
pub fn fill_large(system: &System) -> Result<()> {
    for n in 0..LARGE_KEYS {
        fill_range(
            Target::of(system),
            0,
            n..n + 1,
            |n| format!("{LARGE}{}", key(n)),
            &vec![b'v'; LARGE_BYTES],
        )?;
    }
    Ok(())
}

/// The system to fill.
#[derive(Debug, Clone, Copy)]
struct Target<'a> {
    kind: Kind,
    plain: &'a [SocketAddr],
    cluster: &'a [SocketAddr],
}

impl<'a> Target<'a> {
    fn of(system: &'a System) -> Self {
        Self {
            kind: system.kind,
            plain: &system.plain,
            cluster: &system.cluster,
        }
    }
}

fn fill_range(
    target: Target<'_>,
    nth: usize,
    range: std::ops::Range<u32>,
    name: fn(u32) -> String,
    value: &[u8],
) -> Result<()> {
    // A plain address takes any key; otherwise each key goes to its master.
    let owners = if target.plain.is_empty() {
        Some(owners(
            *target
                .cluster
                .first()
                .context("the system has no address to write to")?,
        )?)
    } else {
        None
    };
    let mut clients: BTreeMap<SocketAddr, Client> = BTreeMap::new();
    for from in range.clone().step_by(FILL_BATCH as usize) {
        go_on()?;
        let mut sent: BTreeMap<SocketAddr, u32> = BTreeMap::new();
        for n in from..range.end.min(from + FILL_BATCH) {
            let name = name(n);
            let at = match &owners {
                Some(owners) => owners[usize::from(slot(name.as_bytes()))],
                None => target.plain[nth % target.plain.len()],
            };
            if let std::collections::btree_map::Entry::Vacant(vacant) = clients.entry(at) {
                vacant.insert(Client::connect(at, PATIENCE)?);
            }
            let client = clients.get_mut(&at).context("connected just above")?;
            match target.kind {
                Kind::Olric => client.send(&[b"DM.PUT", b"bench", name.as_bytes(), value])?,
                _ => client.send(&[b"SET", name.as_bytes(), value])?,
            }
            *sent.entry(at).or_default() += 1;
        }
        for (at, count) in sent {
            let client = clients.get_mut(&at).context("connected just above")?;
            for _ in 0..count {
                let reply = client.reply()?;
                if !matches!(reply, Reply::Simple(_)) {
                    bail!("{} refuses a write: {reply:?}", target.kind.name());
                }
            }
        }
    }
    Ok(())
}

/// The master of each slot.
fn owners(at: SocketAddr) -> Result<Vec<SocketAddr>> {
    let Reply::Array(runs) = Client::connect(at, PATIENCE)?.command(&[b"CLUSTER", b"SLOTS"])?
    else {
        bail!("the node does not answer CLUSTER SLOTS")
    };
    let mut owners = vec![at; 16_384];
    for run in &runs {
        let Reply::Array(run) = run else {
            bail!("CLUSTER SLOTS has no range of slots: {run:?}")
        };
        let [Reply::Int(from), Reply::Int(to), Reply::Array(master), ..] = &run[..] else {
            bail!("CLUSTER SLOTS has no range of slots: {run:?}")
        };
        let [Reply::Bulk(host), Reply::Int(port), ..] = &master[..] else {
            bail!("CLUSTER SLOTS has no master: {master:?}")
        };
        let owner: SocketAddr = format!("{}:{port}", String::from_utf8_lossy(host)).parse()?;
        let run = usize::try_from(*from)?..=usize::try_from(*to)?;
        owners
            .get_mut(run)
            .context("CLUSTER SLOTS has slots beyond the last")?
            .fill(owner);
    }
    Ok(owners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmark_gets_the_commands_of_each_system() {
        let benchmark = RedisBenchmark {
            operation: Operation::Get,
            clients: 50,
            pipeline: 16,
        };
        let at = SocketAddr::from(([127, 0, 0, 1], 7380));
        let words = benchmark.words(Kind::Redis, at, 1000).join(" ");
        assert_eq!(
            words,
            "redis-benchmark -h 127.0.0.1 -p 7380 -c 50 -P 16 -d 100 -r 100000 -n 1000 --cluster \
             -t get"
        );
        let hashes = RedisBenchmark {
            operation: Operation::HSet,
            ..benchmark
        };
        let words = hashes.words(Kind::Doyen, at, 1000).join(" ");
        assert!(words.ends_with("--cluster -t hset"), "{words}");
        let words = benchmark.words(Kind::Olric, at, 1000).join(" ");
        assert!(
            words.ends_with("-n 1000 DM.GET bench key:__rand_int__"),
            "{words}"
        );
    }

    #[test]
    fn large_values_are_all_in_one_slot() {
        assert_eq!(
            slot(format!("{LARGE}{}", key(7)).as_bytes()),
            slot(LARGE.as_bytes())
        );
        assert_eq!(key(7).len(), 16);
    }
}
