//! Which master of a Redis Cluster gets which key.
//!
//! Each connection belongs to one master and asks only for keys of that master, like those of
//! redis-benchmark. All masters have the same number of connections. If a master answers MOVED, the
//! slot belongs to the new owner at once, and the operation is sent to it, once.

use super::super::keys;
use super::super::plan::{BenchPlan, LoadOperation};
use super::connection::SentOperation;
use doyen_placement::hash::{SLOTS, slot};
use std::collections::VecDeque;
use std::net::{SocketAddr, ToSocketAddrs};

/// The owner of a slot that no master owns.
const NO_OWNER: u16 = u16::MAX;
/// Draws in a row that may give keys of other masters. After them the router takes the next key of
/// the right master.
const DRAWS_MAX: usize = 10_000;
/// Keys that are tried to see whether a master has any.
const KEYS_LOOKED_AT: u64 = 1_000_000;

/// The masters, their slots, and operations that wait for a connection with room.
#[derive(Debug, Clone)]
pub(super) struct Router {
    keys: u64,
    masters: Vec<Master>,
    owners: Vec<u16>,
    /// The indices of the masters that have keys.
    with_keys: Vec<usize>,
    /// The number of operations that wait for a new master.
    moved: usize,
}

#[derive(Debug, Clone)]
struct Master {
    address: SocketAddr,
    /// Operations that were drawn for another master, and that the plan gives only once.
    set_aside: VecDeque<LoadOperation>,
    /// Operations that another master redirected to this one.
    moved: VecDeque<SentOperation>,
}

impl Router {
    /// Takes ranges of slots with their masters, as CLUSTER SLOTS tells them.
    ///
    /// # Errors
    /// A slot has no master.
    pub(super) fn new(keys: u64, runs: &[(u16, u16, SocketAddr)]) -> Result<Self, String> {
        let mut router = Self {
            keys,
            masters: Vec::new(),
            owners: vec![NO_OWNER; SLOTS.into()],
            with_keys: Vec::new(),
            moved: 0,
        };
        for (from, to, address) in runs {
            let master = router.master(*address);
            router
                .owners
                .iter_mut()
                .take(usize::from(*to) + 1)
                .skip((*from).into())
                .for_each(|owner| *owner = master as u16);
        }
        if let Some(slot) = router.owners.iter().position(|owner| *owner == NO_OWNER) {
            return Err(format!(
                "the cluster is incomplete: no master owns slot {slot}"
            ));
        }
        router.find_keys();
        Ok(router)
    }

    fn master(&mut self, address: SocketAddr) -> usize {
        self.masters
            .iter()
            .position(|m| m.address == address)
            .unwrap_or_else(|| {
                self.masters.push(Master {
                    address,
                    set_aside: VecDeque::new(),
                    moved: VecDeque::new(),
                });
                self.masters.len() - 1
            })
    }

    fn owner(&self, key: u64) -> usize {
        self.owners[usize::from(slot(&keys::name(key)))].into()
    }

    fn find_keys(&mut self) {
        let mut found = vec![false; self.masters.len()];
        let owning = self
            .masters
            .iter()
            .enumerate()
            .filter(|(m, _)| self.owners.iter().any(|owner| usize::from(*owner) == *m))
            .count();
        let mut left = owning;
        for key in 0..self.keys.min(KEYS_LOOKED_AT) {
            if left == 0 {
                break;
            }
            left -= usize::from(!std::mem::replace(&mut found[self.owner(key)], true));
        }
        self.with_keys = (0..found.len()).filter(|m| found[*m]).collect();
    }

    /// The number of masters that have keys.
    pub(super) fn masters(&self) -> usize {
        self.with_keys.len()
    }

    /// The master that a connection belongs to, by the number of the connection.
    pub(super) fn home(&self, lane: usize) -> (usize, SocketAddr) {
        let master = self.with_keys[lane % self.with_keys.len()];
        (master, self.masters[master].address)
    }

    /// The next operation of the plan for this master; `None` if the plan has ended.
    pub(super) fn next(&mut self, master: usize, plan: &mut BenchPlan) -> Option<LoadOperation> {
        if let Some(operation) = self.masters[master].set_aside.pop_front() {
            return Some(operation);
        }
        let mut last = None;
        let finite = plan.is_finite();
        // A finite plan gives each operation once, so all of them are kept. Of an endless plan only
        // a few draws are tried: it draws further ones.
        for operation in plan.take(if finite { usize::MAX } else { DRAWS_MAX }) {
            match self.owner(operation.key) {
                owner if owner == master => return Some(operation),
                owner if finite => self.masters[owner].set_aside.push_back(operation),
                _ => last = Some(operation),
            }
        }
        // The keys of this master are drawn rarely: take its next key after the one drawn last.
        let LoadOperation { kind, key } = last?;
        let found = (key..self.keys)
            .chain(0..key)
            .find(|key| self.owner(*key) == master);
        if found.is_none() {
            // The master lost all its keys when slots moved.
            self.find_keys();
        }
        found.map(|key| LoadOperation { kind, key })
    }

    /// The next operation that was redirected to this master.
    pub(super) fn next_moved(&mut self, master: usize) -> Option<SentOperation> {
        self.masters[master]
            .moved
            .pop_front()
            .inspect(|_| self.moved -= 1)
    }

    /// Whether operations wait for a new master.
    pub(super) fn has_moved(&self) -> bool {
        self.moved > 0
    }

    /// A master answered `MOVED slot address`. `false` if the redirection cannot be followed.
    pub(super) fn moved(&mut self, error: &str, sent: SentOperation) -> bool {
        let mut words = error.split_whitespace().skip(1);
        let (Some(slot), Some(address)) = (
            words.next().and_then(|s| s.parse::<u16>().ok()),
            words.next(),
        ) else {
            return false;
        };
        let (Some(address), true) = (endpoint(address), slot < SLOTS && !sent.moved) else {
            return false;
        };
        let master = self.master(address);
        self.masters[master].moved.push_back(sent.sent_on());
        self.moved += 1;
        let before = std::mem::replace(&mut self.owners[usize::from(slot)], master as u16);
        if !self.with_keys.contains(&master) || !self.owners.contains(&before) {
            self.find_keys();
        }
        true
    }
}

/// `HOST:PORT` as Redis writes it: a name, or an IP address without brackets.
fn endpoint(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    (host, port.parse::<u16>().ok()?)
        .to_socket_addrs()
        .ok()?
        .next()
}

#[cfg(test)]
mod tests {
    use super::super::super::keys::BenchKeys;
    use super::super::super::plan::OperationKind;
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn three(keys: u64) -> Router {
        Router::new(
            keys,
            &[
                (0, 4999, address(1)),
                (5000, 9999, address(2)),
                (10000, 16383, address(3)),
            ],
        )
        .expect("whole")
    }

    fn sent(key: u64) -> SentOperation {
        SentOperation::new(
            LoadOperation {
                kind: OperationKind::Set,
                key,
            },
            5,
            1,
        )
    }

    #[test]
    fn every_master_is_asked_for_its_own_keys() {
        let (mut router, mut plan) = (
            three(1000),
            BenchPlan::drawn(BenchKeys::uniform(1000), 50, 1),
        );
        for lane in 0..9 {
            let (master, at) = router.home(lane);
            assert_eq!(at, address(lane as u16 % 3 + 1));
            for _ in 0..100 {
                let operation = router.next(master, &mut plan).expect("plans go on");
                assert_eq!(router.owner(operation.key), master);
            }
        }
    }

    #[test]
    fn filling_leaves_no_key_out() {
        let (mut router, mut plan) = (three(1000), BenchPlan::every(OperationKind::Set, 0..1000));
        // One master after the other: the first one sets aside all operations of the others.
        let mut filled: Vec<u64> = (0..3)
            .flat_map(|m| {
                std::iter::from_fn(|| router.next(m, &mut plan))
                    .map(|o| o.key)
                    .collect::<Vec<_>>()
            })
            .collect();
        filled.sort_unstable();
        assert_eq!(filled, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn masters_without_keys_get_no_connections() {
        let router = three(1);
        assert_eq!(router.masters(), 1);
        assert_eq!(router.home(0), router.home(1));
    }

    #[test]
    fn rarely_drawn_keys_are_found_all_the_same() {
        let (mut router, mut plan) = (
            three(1000),
            BenchPlan::drawn(BenchKeys::zipf(1000, 20.0).expect("an exponent"), 100, 1),
        );
        for master in 0..3 {
            let operation = router.next(master, &mut plan).expect("plans go on");
            assert_eq!(router.owner(operation.key), master);
        }
    }

    #[test]
    fn a_moved_slot_is_asked_for_at_its_new_owner_once() {
        let mut router = three(1000);
        let slot = slot(&keys::name(7));
        assert!(router.moved(&format!("MOVED {slot} 127.0.0.1:4"), sent(7)));
        assert_eq!(
            (router.masters.len(), router.owner(7), router.has_moved()),
            (4, 3, true)
        );
        assert_eq!((router.masters(), router.home(3).1), (4, address(4)));
        let again = router.next_moved(3).expect("it waits");
        assert!(again.operation.key == 7 && again.intended == 5 && !router.has_moved());
        assert!(!router.moved(&format!("MOVED {slot} 127.0.0.1:1"), again));
        assert_eq!(endpoint("::1:27630"), "[::1]:27630".parse().ok());
        assert!(
            !router.moved("MOVED where", sent(7))
                && !router.moved("MOVED 99999 127.0.0.1:1", sent(7))
        );
    }

    #[test]
    fn a_cluster_with_unowned_slots_is_refused() {
        assert!(Router::new(10, &[(0, 99, address(1))]).is_err_and(|why| why.contains("slot 100")));
    }
}
