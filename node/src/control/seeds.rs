//! Seed names to addresses, again and again: names move, and in some places do not resolve until
//! their node runs.

use crate::net::address::{Reach, canonical};
use doyen_gossip::agreement::Seeds;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::sync::{mpsc, watch};

/// One name may take this long.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Names are looked up this often while this process is part of no cluster.
const INTERVAL_JOINING: Duration = Duration::from_secs(1);
/// This often while it is the only member: others may have begun beside it, and one of the two can
/// give way as long as it is unused.
const INTERVAL_ALONE: Duration = Duration::from_secs(2);
/// And this often afterwards.
const INTERVAL_MEMBER: Duration = Duration::from_secs(30);
/// Addresses of one name at most. Of more, everybody takes the same ones: those that come first in
/// their order.
const ADDRESSES_MAX: usize = 64;

/// What seeds resolve to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Distinct addresses.
    pub(crate) addresses: Vec<SocketAddr>,
    /// What did not resolve.
    pub(crate) unresolved: Vec<String>,
}

impl Resolved {
    /// As the machine is told it, where these of the seeds are names.
    pub(super) fn into_seeds(self, names: &[String]) -> Seeds {
        Seeds {
            addresses: self.addresses,
            names: names.to_vec(),
            unresolved: self.unresolved,
        }
    }
}

/// Which addresses of a name are of use to a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    /// The families of its socket.
    pub(crate) reach: Reach,
    /// Of a node: where others reach it. A node takes the addresses of one family only, if possible
    /// of this one, because a host with addresses of both would count as two seeds. A client takes
    /// all.
    pub(crate) own: Option<IpAddr>,
}

impl Choice {
    fn choose(self, mut found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        // Where none is in reach, the attempt to dial says so.
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

/// How many members the cluster of this process has, as far as looking names up depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// It is part of no cluster.
    None,
    /// It is the only member.
    Alone,
    /// There are others.
    Others,
}

/// Those of the seeds that are names.
pub(super) fn names(seeds: &[String]) -> Vec<String> {
    seeds
        .iter()
        .filter(|seed| seed.parse::<SocketAddr>().is_err())
        .cloned()
        .collect()
}

/// Resolves names for as long as somebody listens, and tells changes. Without names there is
/// nothing to do.
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
            // A node that is part of no cluster any more does not wait for half a minute.
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

    /// Addresses of both families.
    const ANY: Choice = Choice {
        reach: Reach::Both,
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
        // Nothing was resolved before, so the first look is a change.
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
        // It is left alone: the next look does not wait for the half minute that was begun.
        company.send_replace(Company::Alone);
        assert_eq!(changes.recv().await, Some(resolve(&seeds, ANY).await));
        assert!(
            began.elapsed() <= INTERVAL_ALONE + TIMEOUT,
            "{:?}",
            began.elapsed()
        );
        watching.abort();
    }

    /// A node on 127.0.0.1 was told of `localhost`, which is ::1 first, and found nobody.
    #[test]
    fn of_a_name_a_node_takes_the_family_that_it_is_reached_at_and_a_client_takes_both() {
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
        assert_eq!(choose(Reach::V4, Some(v4), &[v6, v4]), [v4]);
        assert_eq!(choose(Reach::Both, Some(v4), &[v6, v4]), [v4]);
        assert_eq!(choose(Reach::Both, Some(v6), &[v4, v6]), [v6]);
        assert_eq!(choose(Reach::Both, Some(v4), &[v6]), [v6]);
        assert_eq!(choose(Reach::Both, None, &[v6, v4]), [v6, v4]);
        assert_eq!(choose(Reach::V4, None, &[v6, v4]), [v4]);
        assert_eq!(
            choose(Reach::V4, Some(v4), &[v6]),
            [v6],
            "the dial says that it is out of reach"
        );
    }
}
