//! Resolves the names of seeds, again and again: names change, and in some environments they do not
//! resolve until their node runs.

use crate::address::{AddressFamilies, canonical};
use doyen_gossip::agreement::Seeds;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::sync::{mpsc, watch};

/// How long resolving one name may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often names are resolved while this process is not in a cluster.
const INTERVAL_JOINING: Duration = Duration::from_secs(1);
/// How often while it is the only member. Another cluster may have begun at the same time, and one
/// of the two can give way as long as it is unused.
const INTERVAL_ALONE: Duration = Duration::from_secs(2);
/// How often while there are other members.
const INTERVAL_MEMBER: Duration = Duration::from_secs(30);
/// Addresses of one name, at most. Of more, every node takes the same ones: the first in order.
const ADDRESSES_MAX: usize = 64;

/// Seeds that have names, and those that are former members.
#[derive(Debug)]
pub(super) struct SeedNames {
    names: Vec<String>,
    /// The addresses of the other members when the cluster continued without this process. They are
    /// seeds from then on.
    pub(super) former: Vec<SocketAddr>,
    /// Who is there decides how often names are resolved.
    company: watch::Sender<Company>,
}

impl SeedNames {
    pub(super) fn new(names: Vec<String>, company: watch::Sender<Company>) -> Self {
        Self {
            names,
            former: Vec::new(),
            company,
        }
    }

    /// This node is in such company from now on.
    pub(super) fn keeps(&self, company: Company) {
        self.company
            .send_if_modified(|before| std::mem::replace(before, company) != company);
    }

    /// The seeds, now that their names have been resolved.
    pub(super) fn seeds(&self, resolved: Resolved) -> Seeds {
        let mut seeds = resolved.into_seeds(&self.names);
        self.add_former(&mut seeds);
        seeds
    }

    /// Adds the former members, which must stay seeds when names are resolved again.
    pub(super) fn add_former(&self, seeds: &mut Seeds) {
        for address in &self.former {
            if !seeds.addresses.contains(address) {
                seeds.addresses.push(*address);
            }
        }
    }
}

/// The result of resolving the seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Distinct addresses.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Seeds that did not resolve.
    pub(crate) unresolved: Vec<String>,
}

impl Resolved {
    /// The form that the machine takes; `names` are the seeds that are names.
    pub(super) fn into_seeds(self, names: &[String]) -> Seeds {
        Seeds {
            addresses: self.addresses,
            names: names.to_vec(),
            unresolved: self.unresolved,
        }
    }
}

/// Which addresses of a name a process can use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    /// The families of its socket.
    pub(crate) reach: AddressFamilies,
    /// Where others reach this node; `None` for a client. A node takes the addresses of one family,
    /// if possible of this one: otherwise a host with addresses of both families would count as two
    /// seeds. A client takes all addresses.
    pub(crate) own: Option<IpAddr>,
}

impl Choice {
    fn choose(self, mut found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        // If no address is in reach, the attempt to dial reports that.
        if found.iter().any(|a| self.reach.takes(a.ip())) {
            found.retain(|a| self.reach.takes(a.ip()));
        }
        if let (Some(own), Some(first)) = (self.own, found.first()) {
            let v4 = if found.iter().any(|a| a.is_ipv4() == own.is_ipv4()) {
                own.is_ipv4()
            } else {
                first.is_ipv4()
            };
            found.retain(|a| a.is_ipv4() == v4);
        }
        found.truncate(ADDRESSES_MAX);
        found
    }
}

/// Resolves every seed once.
pub(crate) async fn resolve(seeds: &[String], choice: Choice) -> Resolved {
    let mut addresses = BTreeSet::new();
    let mut unresolved = Vec::new();
    for seed in seeds {
        if let Ok(address) = seed.parse() {
            addresses.insert(canonical(address));
            continue;
        }
        match tokio::time::timeout(TIMEOUT, lookup_host(seed.as_str())).await {
            Ok(Ok(found)) => {
                let chosen = choice.choose(found.map(canonical).collect());
                if chosen.is_empty() {
                    unresolved.push(seed.clone());
                }
                addresses.extend(chosen);
            }
            Ok(Err(_)) | Err(_) => unresolved.push(seed.clone()),
        }
    }
    Resolved {
        addresses: addresses.into_iter().collect(),
        unresolved,
    }
}

/// How many members the cluster of this process has. The interval depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// The process is not in a cluster.
    None,
    /// It is the only member.
    Alone,
    /// There are other members.
    Others,
}

/// The seeds that are names.
pub(super) fn names(seeds: &[String]) -> Vec<String> {
    seeds
        .iter()
        .filter(|seed| seed.parse::<SocketAddr>().is_err())
        .cloned()
        .collect()
}

/// Resolves names until the receiver is dropped, and reports changes. Without names it ends at
/// once.
pub(super) async fn watch_names(
    seeds: Vec<String>,
    choice: Choice,
    mut last: Resolved,
    mut company: watch::Receiver<Company>,
    changes: mpsc::Sender<Resolved>,
) {
    if names(&seeds).is_empty() {
        return;
    }
    loop {
        let interval = match *company.borrow_and_update() {
            Company::None => INTERVAL_JOINING,
            Company::Alone => INTERVAL_ALONE,
            Company::Others => INTERVAL_MEMBER,
        };
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            // A node that has left its cluster must not wait for half a minute.
            changed = company.changed() => if changed.is_err() { return } else { continue },
        }
        let now = resolve(&seeds, choice).await;
        if now != last {
            last = now.clone();
            if changes.send(now).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes addresses of both families.
    const ANY: Choice = Choice {
        reach: AddressFamilies::Both,
        own: None,
    };

    #[tokio::test]
    async fn addresses_are_distinct_and_failures_are_named() {
        let seeds = [
            "127.0.0.1:7400",
            "127.0.0.1:7400",
            "localhost:7401",
            "no-such-host.invalid:1",
            "no port",
        ]
        .map(str::to_owned);
        let resolved = resolve(&seeds, ANY).await;
        assert!(resolved.addresses.contains(&([127, 0, 0, 1], 7400).into()));
        assert!(resolved.addresses.iter().any(|a| a.port() == 7401));
        assert_eq!(resolved.unresolved, ["no-such-host.invalid:1", "no port"]);
        let told = resolved.clone().into_seeds(&names(&seeds));
        assert_eq!(
            told.names,
            ["localhost:7401", "no-such-host.invalid:1", "no port"]
        );
        assert_eq!(
            (told.addresses, told.unresolved),
            (resolved.addresses, resolved.unresolved)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_looked_up_often_until_there_are_others() {
        let seeds = vec!["localhost:7401".to_owned()];
        let (company, has_company) = watch::channel(Company::None);
        let (changes_in, mut changes) = mpsc::channel(1);
        // Nothing was resolved before, so the first result is a change.
        let watching = tokio::spawn(watch_names(
            seeds.clone(),
            ANY,
            Resolved::default(),
            has_company,
            changes_in,
        ));
        let began = tokio::time::Instant::now();
        company.send_replace(Company::Others);
        tokio::task::yield_now().await;
        // The node becomes the only member: the wait of half a minute ends early.
        company.send_replace(Company::Alone);
        assert_eq!(changes.recv().await, Some(resolve(&seeds, ANY).await));
        assert!(
            began.elapsed() <= INTERVAL_ALONE + TIMEOUT,
            "{:?}",
            began.elapsed()
        );
        watching.abort();
    }

    /// A node on 127.0.0.1 resolved `localhost` to ::1 first, and reached no seed.
    #[test]
    fn a_node_takes_the_addresses_of_its_own_family_and_a_client_takes_all() {
        let (v4, v6) = (
            SocketAddr::from(([127, 0, 0, 1], 7400)),
            SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 7400)),
        );
        let choose = |reach, own: Option<SocketAddr>, found: &[SocketAddr]| {
            Choice {
                reach,
                own: own.map(|a| a.ip()),
            }
            .choose(found.to_vec())
        };
        assert_eq!(choose(AddressFamilies::V4, Some(v4), &[v6, v4]), [v4]);
        assert_eq!(choose(AddressFamilies::Both, Some(v4), &[v6, v4]), [v4]);
        assert_eq!(choose(AddressFamilies::Both, Some(v6), &[v4, v6]), [v6]);
        assert_eq!(choose(AddressFamilies::Both, Some(v4), &[v6]), [v6]);
        assert_eq!(choose(AddressFamilies::Both, None, &[v6, v4]), [v6, v4]);
        assert_eq!(choose(AddressFamilies::V4, None, &[v6, v4]), [v4]);
        assert_eq!(
            choose(AddressFamilies::V4, Some(v4), &[v6]),
            [v6],
            "the dial reports that it is out of reach"
        );
    }
}
