//! What every phase needs: the configuration, the time, the outputs, who answers.

use super::api::{Config, Event, Output, Peer};
use crate::detector::Detector;
use crate::time::Time;
use crate::wire::Message;
use doyen_placement::{Age, Member, MemberId, MemberState};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// Addresses whose process is remembered at most.
const ADDRESSES_MAX: usize = 1024;
/// The same remark is not made again for this long.
const REMARK_INTERVAL: Duration = Duration::from_secs(10);
/// Remarks that are remembered.
const REMARKS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) me: MemberId,
    pub(super) now: Time,
    pub(super) out: VecDeque<Output>,
    pub(super) detector: Detector,
    /// Who was found at an address that was dialled.
    pub(super) addresses: BTreeMap<SocketAddr, MemberId>,
    pub(super) data_alive: Time,
    /// A cluster of one: something was done in it, and it may not surrender any more.
    pub(super) used: bool,
    pub(super) used_asked: bool,
    pub(super) leaving: bool,
    pub(super) departing: bool,
    pub(super) ignored: u64,
    remarks: BTreeMap<String, Time>,
    random: u64,
}

impl Context {
    pub(super) fn new(config: Config, now: Time) -> Self {
        Self {
            me: config.id,
            now,
            out: VecDeque::new(),
            detector: Detector::default(),
            addresses: BTreeMap::new(),
            data_alive: now,
            used: false,
            used_asked: false,
            leaving: false,
            departing: false,
            ignored: 0,
            remarks: BTreeMap::new(),
            random: config.rng_seed,
            config,
        }
    }

    pub(super) fn send(&mut self, to: MemberId, message: Message) {
        debug_assert_ne!(to, self.me);
        self.out.push_back(Output::Send { to: Peer::Member(to), message });
    }

    pub(super) fn send_to(&mut self, address: SocketAddr, message: Message) {
        self.out.push_back(Output::Send { to: Peer::Address(address), message });
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.out.push_back(Output::Event(event));
    }

    /// Says something to people, but not again and again.
    pub(super) fn remark(&mut self, text: String) {
        if self.is_news(&text) {
            self.tell(Event::Note(text));
        }
    }

    /// Says why nobody coordinates, but not again and again.
    pub(super) fn lament(&mut self, why: String) {
        if self.is_news(&why) {
            self.tell(Event::NoCoordinator { why });
        }
    }

    fn is_news(&mut self, text: &str) -> bool {
        let now = self.now;
        if self.remarks.get(text).is_some_and(|at| now.since(*at) < REMARK_INTERVAL) {
            return false;
        }
        if self.remarks.len() >= REMARKS_MAX {
            self.remarks.retain(|_, at| now.since(*at) < REMARK_INTERVAL);
        }
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.insert(text.to_owned(), now);
        }
        true
    }

    pub(super) fn ignore(&mut self) {
        self.ignored += 1;
    }

    pub(super) fn identified(&mut self, address: SocketAddr, id: MemberId) {
        if self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(&address) {
            self.addresses.insert(address, id);
        }
    }

    pub(super) fn set_seeds(&mut self, mut seeds: Vec<SocketAddr>) {
        seeds.sort();
        seeds.dedup();
        self.config.seeds = seeds;
    }

    /// Rule 12: the data threads hang, so this node must look dead.
    pub(super) fn mute(&self) -> bool {
        self.now.since(self.data_alive) > self.config.timing.lease * 2
    }

    /// Up to `most`, evenly (splitmix64: the machine's own numbers, from its seed).
    pub(super) fn jitter(&mut self, most: Duration) -> Duration {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        most.mul_f64((z >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// 128 random bits for the name of a cluster.
    pub(super) fn random_u128(&mut self) -> u128 {
        let mut half = || {
            let d = self.jitter(Duration::from_secs(1 << 30));
            u128::from(d.as_nanos() as u64 ^ self.random)
        };
        (half() << 64) | half()
    }

    /// This process as it describes itself.
    pub(super) fn self_description(&self) -> Member {
        let c = &self.config;
        Member {
            id: self.me,
            age: Age(0),
            name: c.name.clone(),
            role: c.role,
            state: MemberState::Live,
            addresses: c.addresses.clone(),
            location: c.location.clone(),
            weight: c.weight,
        }
    }
}
