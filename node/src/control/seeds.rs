//! Seed names to addresses, again and again: names move, and in some places do not resolve until their node runs.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::sync::{mpsc, watch};

/// One name may take this long.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Names are looked up this often until this process is a member.
const INTERVAL_JOINING: Duration = Duration::from_secs(1);
/// And this often afterwards.
const INTERVAL_MEMBER: Duration = Duration::from_secs(30);
/// Addresses of one name at most.
const ADDRESSES_MAX: usize = 16;

/// What seeds resolve to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Distinct addresses.
    pub(crate) addresses: Vec<SocketAddr>,
    /// What did not resolve.
    pub(crate) unresolved: Vec<String>,
}

/// Resolves every seed once.
pub(crate) async fn resolve(seeds: &[String]) -> Resolved {
    let mut addresses = BTreeSet::new();
    let mut unresolved = Vec::new();
    for seed in seeds {
        if let Ok(address) = seed.parse() {
            addresses.insert(address);
            continue;
        }
        match tokio::time::timeout(TIMEOUT, lookup_host(seed.as_str())).await {
            Ok(Ok(found)) => {
                let before = addresses.len();
                // A host with addresses of both families would count twice; the first family that answers is enough.
                let mut family = None;
                for address in found.take(ADDRESSES_MAX) {
                    if *family.get_or_insert(address.is_ipv4()) == address.is_ipv4() {
                        addresses.insert(address);
                    }
                }
                if addresses.len() == before && family.is_none() {
                    unresolved.push(seed.clone());
                }
            }
            Ok(Err(_)) | Err(_) => unresolved.push(seed.clone()),
        }
    }
    Resolved { addresses: addresses.into_iter().collect(), unresolved }
}

/// Resolves names for as long as somebody listens, and tells changes. Without names there is nothing to do.
pub(super) async fn watch_names(seeds: Vec<String>, mut last: Resolved, member: watch::Receiver<bool>, changes: mpsc::Sender<Resolved>) {
    if seeds.iter().all(|seed| seed.parse::<SocketAddr>().is_ok()) {
        return;
    }
    loop {
        tokio::time::sleep(if *member.borrow() { INTERVAL_MEMBER } else { INTERVAL_JOINING }).await;
        let now = resolve(&seeds).await;
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

    #[tokio::test]
    async fn addresses_are_distinct_and_failures_are_named() {
        let seeds = ["127.0.0.1:7400", "127.0.0.1:7400", "localhost:7401", "no-such-host.invalid:1", "no port"].map(str::to_owned);
        let resolved = resolve(&seeds).await;
        assert!(resolved.addresses.contains(&([127, 0, 0, 1], 7400).into()));
        assert!(resolved.addresses.iter().any(|a| a.port() == 7401));
        assert_eq!(resolved.unresolved, ["no-such-host.invalid:1", "no port"]);
    }
}
