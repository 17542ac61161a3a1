//! Limits guessing of passwords and tokens by address: guesses are slow, and the log reports them.
//!
//! After a wrong password, each further attempt of the same address waits before it is judged, and
//! after each wrong one, all others of that address wait again. With this, a hundred connections
//! guess no faster than one. Right passwords wait too: otherwise a guesser would hang up on each
//! answer that does not come at once. But a right one makes no other wait, so that a pool of
//! clients whose address has a wrong one among them is let in soon. At the front ends of RESP,
//! passwords of an address are judged in their order, and few may wait, so that a client with the
//! password is judged before its time to log in is over.

use crate::log_limit::{A_MINUTE, LeftOut, LogLimit, network};
use doyen_gossip::Time;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The delay after the first wrong password. Each further one doubles it.
const DELAY_FIRST: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(2);
/// An address is forgotten if it gave no wrong password for so long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Passwords of one address that wait at the same time: the last of them waits for less than
/// `--resp-auth-timeout`.
#[cfg(feature = "resp")]
const WAITING_MAX: u32 = 28;
/// How long the address waits for the outcome of a password whose turn it is.
#[cfg(feature = "resp")]
const TURN: Duration = Duration::from_millis(40);
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 4096;

/// The wrong guesses at one front end.
#[derive(Debug)]
pub(crate) struct LoginThrottle {
    wrong: BTreeMap<IpAddr, WrongLogins>,
    failures: u64,
    told: LogLimit,
    #[cfg(feature = "resp")]
    waiting: WaitingLogin,
}

#[derive(Debug, Clone, Copy)]
struct WrongLogins {
    times: u32,
    last: Time,
    /// Until when another password of the address has its turn.
    #[cfg(feature = "resp")]
    turn: Time,
}

impl WrongLogins {
    fn until(self) -> Time {
        let doubled = DELAY_FIRST.saturating_mul(1 << self.times.saturating_sub(1).min(16));
        self.last + doubled.min(DELAY_MAX)
    }
}

/// How many passwords of each address wait.
#[cfg(feature = "resp")]
#[derive(Debug, Default)]
struct WaitingLogin(BTreeMap<IpAddr, u32>);

impl LoginThrottle {
    pub(crate) fn new() -> Self {
        Self {
            wrong: BTreeMap::new(),
            failures: 0,
            told: LogLimit::new(A_MINUTE),
            #[cfg(feature = "resp")]
            waiting: WaitingLogin::default(),
        }
    }

    /// Wrong guesses since the start.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Until when an attempt of this address waits; `None` if it is judged now.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn waits_until(&self, now: Time, from: IpAddr) -> Option<Time> {
        self.wrong
            .get(&network(from))
            .map(|wrong| wrong.until())
            .filter(|until| now < *until)
    }

    /// Whether a password of this address is judged now, while others of it wait for its outcome.
    /// Otherwise, it waits until the time in the error at least.
    #[cfg(feature = "resp")]
    pub(crate) fn take_turn(&mut self, now: Time, from: IpAddr) -> Result<(), Time> {
        let Some(wrong) = self.wrong.get_mut(&network(from)) else {
            return Ok(());
        };
        if now.since(wrong.last) >= FORGOTTEN_AFTER {
            return Ok(());
        }
        let until = wrong.until().max(wrong.turn);
        if now < until {
            return Err(until);
        }
        wrong.turn = now + TURN;
        Ok(())
    }

    /// Another password of this address waits. False: it may not, because too many do.
    #[cfg(feature = "resp")]
    pub(crate) fn begin_waiting(&mut self, from: IpAddr) -> bool {
        let waiting = self.waiting.0.entry(network(from)).or_default();
        let may = *waiting < WAITING_MAX;
        *waiting += u32::from(may);
        may
    }

    /// A password of this address waits no longer.
    #[cfg(feature = "resp")]
    pub(crate) fn end_waiting(&mut self, from: IpAddr) {
        let from = network(from);
        if let Some(waiting) = self.waiting.0.get_mut(&from) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.0.remove(&from);
            }
        }
    }

    /// This address guessed wrong. If a line in the log is due, returns how many were left out.
    pub(crate) fn failed(&mut self, now: Time, from: IpAddr) -> Option<LeftOut> {
        self.failures += 1;
        let due = self.told.happened(Instant::now());
        let from = network(from);
        if self.wrong.len() >= ADDRESSES_MAX && !self.wrong.contains_key(&from) {
            self.wrong
                .retain(|_, wrong| now.since(wrong.last) < FORGOTTEN_AFTER);
            let oldest = self
                .wrong
                .iter()
                .min_by_key(|(_, wrong)| wrong.last)
                .map(|(at, _)| *at);
            if let Some(oldest) = oldest.filter(|_| self.wrong.len() >= ADDRESSES_MAX) {
                self.wrong.remove(&oldest);
            }
        }
        let wrong = self.wrong.entry(from).or_insert(WrongLogins {
            times: 0,
            last: now,
            #[cfg(feature = "resp")]
            turn: now,
        });
        if now.since(wrong.last) >= FORGOTTEN_AFTER {
            wrong.times = 0;
        }
        (wrong.times, wrong.last) = (wrong.times.saturating_add(1), now);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_wrong_password_of_an_address_makes_its_next_one_wait_longer() {
        let (mut throttle, from) = (LoginThrottle::new(), ip("192.0.2.1"));
        let mut now = Time::ZERO + Duration::from_secs(1000);
        assert_eq!(throttle.waits_until(now, from), None);
        let mut waited = Vec::new();
        for _ in 0..8 {
            throttle.failed(now, from);
            let until = throttle.waits_until(now, from).expect("it waits");
            waited.push(until.since(now).as_millis());
            now = until;
            assert_eq!(throttle.waits_until(now, from), None, "then it is judged");
        }
        assert_eq!(waited, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        throttle.failed(now, from);
        assert_eq!(
            throttle.waits_until(now, ip("192.0.2.2")),
            None,
            "others do not wait"
        );
        assert!(
            throttle.waits_until(now, ip("::ffff:192.0.2.1")).is_some(),
            "the same address, written otherwise"
        );
        now = now + FORGOTTEN_AFTER;
        throttle.failed(now, from);
        assert_eq!(
            throttle.waits_until(now, from),
            Some(now + DELAY_FIRST),
            "it begins again"
        );
        assert_eq!(throttle.failures(), 10);
    }

    /// Regression: 50 connections of an address guessed 31 passwords a second.
    #[cfg(feature = "resp")]
    #[test]
    fn many_connections_of_an_address_guess_no_faster_than_one() {
        let guesses_within = |connections: u32, seconds: u64| {
            let (mut throttle, from) = (LoginThrottle::new(), ip("192.0.2.1"));
            let (mut now, mut judged) = (Time::ZERO + Duration::from_secs(1000), 0);
            let end = now + Duration::from_secs(seconds);
            throttle.failed(now, from);
            let waiting = (0..connections)
                .filter(|_| throttle.begin_waiting(from))
                .count();
            assert!(waiting <= WAITING_MAX as usize);
            while now < end {
                now = now + Duration::from_millis(10);
                // Two threads resume what waits at the same moment; judging takes a moment.
                let turns = (0..waiting.max(1)).filter(|_| throttle.take_turn(now, from).is_ok());
                for _ in 0..turns.count() {
                    throttle.failed(now + Duration::from_millis(5), from);
                    judged += 1;
                }
            }
            (0..waiting).for_each(|_| throttle.end_waiting(from));
            assert!(throttle.waiting.0.is_empty());
            judged
        };
        let of_one = guesses_within(1, 3600);
        assert!((1700..=1810).contains(&of_one), "{of_one}");
        assert_eq!(guesses_within(10_000, 3600), of_one);
    }

    /// A pool of clients with the password, one of whose address mistyped it.
    #[cfg(feature = "resp")]
    #[test]
    fn right_passwords_that_wait_are_judged_soon_one_after_the_other() {
        let (mut throttle, from) = (LoginThrottle::new(), ip("192.0.2.1"));
        let begin = Time::ZERO + Duration::from_secs(1000);
        assert_eq!(throttle.take_turn(begin, from), Ok(()), "nothing was wrong");
        throttle.failed(begin, from);
        let (mut now, mut judged) = (begin, 0);
        while judged < 40 {
            match throttle.take_turn(now, from) {
                Ok(()) => judged += 1,
                Err(until) => now = until,
            }
        }
        assert!(
            now.since(begin) <= Duration::from_secs(2),
            "{:?}",
            now.since(begin)
        );
        assert_eq!(throttle.take_turn(now + FORGOTTEN_AFTER, from), Ok(()));
        assert_eq!(throttle.take_turn(now + FORGOTTEN_AFTER, from), Ok(()));
    }

    #[test]
    fn remembered_addresses_are_bounded_and_a_network_counts_as_one() {
        let (mut throttle, mut now) = (LoginThrottle::new(), Time::ZERO);
        let nth = |n: usize| IpAddr::V6(Ipv6Addr::from((n as u128) << 64));
        for n in 0..ADDRESSES_MAX + 10 {
            now = now + Duration::from_micros(1);
            throttle.failed(now, nth(n));
        }
        assert_eq!(throttle.wrong.len(), ADDRESSES_MAX);
        assert!(
            throttle.waits_until(now, nth(0)).is_none()
                && throttle.waits_until(now, nth(ADDRESSES_MAX)).is_some()
        );
        throttle.failed(now, ip("2001:db8::1"));
        assert!(
            throttle.waits_until(now, ip("2001:db8::2")).is_some()
                && throttle.waits_until(now, ip("2001:db8:0:1::1")).is_none()
        );
    }
}
