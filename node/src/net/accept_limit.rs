//! Places for handshakes: whether a connection that begins is accepted.
//!
//! A stranger costs a node some cryptography and, until it has shown who it is, a place. So places
//! are few, and each address may take only some of them: a flood from few addresses leaves places
//! for others. From a certain number on, an address must first prove that it receives what is sent
//! to it (a retry packet, RFC 9000, section 8.1). That costs the node nothing that it must
//! remember, so forged addresses take no places.

use super::endpoint::Purpose;
use crate::log_limit::{A_MINUTE, LogLimit, network};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Handshakes and hellos under way, at most.
pub(super) const HANDSHAKES_MAX: usize = 256;
/// The same for one address.
const PLACES_OF_ONE: usize = 16;
/// From this many under way on, an address must prove itself.
const BEFORE_PROOF: usize = 32;
/// The same for one address.
const BEFORE_PROOF_OF_ONE: usize = 8;

/// What becomes of a connection that begins.
#[derive(Debug)]
pub(super) enum AcceptVerdict {
    /// It is accepted, and has this place until the place is dropped.
    Accept(SourcePlace),
    /// Its address must prove itself first.
    Prove,
    /// Nothing is answered. An honest dialler sends again within some tenths of a second, and may
    /// find a place then.
    PassOver,
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
enum PlaceOutcome {
    Begun,
    ProofAsked,
    PassedOver,
}

impl PlaceOutcome {
    /// In the order of the counters, with the names in metrics.
    const ALL: [(Self, &'static str); 3] = [
        (Self::Begun, "begun"),
        (Self::ProofAsked, "proof_asked"),
        (Self::PassedOver, "passed_over"),
    ];
}

/// Handshakes, counted for metrics.
#[derive(Debug, Default)]
pub struct PlaceCounts {
    by_port: [[AtomicU64; 3]; 2],
}

impl PlaceCounts {
    /// What was counted: the port, the outcome, and how often.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let ports = ["control", "data"].into_iter().zip(&self.by_port);
        ports.flat_map(|(port, counts)| {
            let outcomes = PlaceOutcome::ALL.into_iter();
            outcomes.map(move |(outcome, name)| {
                let count = &counts[outcome as usize];
                (port, name, count.load(Ordering::Relaxed))
            })
        })
    }

    fn add(&self, port: Purpose, outcome: PlaceOutcome) {
        let port = match port {
            Purpose::Control => 0,
            Purpose::Data => 1,
        };
        self.by_port[port][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The places of one port.
#[derive(Debug)]
pub(super) struct AcceptLimit {
    port: Purpose,
    taken: Rc<RefCell<Taken>>,
    told: LogLimit,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_origin: HashMap<IpAddr, usize>,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub(super) struct SourcePlace {
    origin: IpAddr,
    taken: Rc<RefCell<Taken>>,
}

impl Drop for SourcePlace {
    fn drop(&mut self) {
        let mut taken = self.taken.borrow_mut();
        taken.total -= 1;
        if let Some(own) = taken.by_origin.get_mut(&self.origin) {
            *own -= 1;
            if *own == 0 {
                taken.by_origin.remove(&self.origin);
            }
        }
    }
}

impl AcceptLimit {
    pub(super) fn new(port: Purpose) -> Self {
        Self {
            port,
            taken: Rc::default(),
            told: LogLimit::new(A_MINUTE),
        }
    }

    /// Judges a connection that begins at this address, which has proved itself or not.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        from: SocketAddr,
        proven: bool,
        counts: &PlaceCounts,
    ) -> AcceptVerdict {
        let origin = network(from.ip());
        let (total, own) = {
            let taken = self.taken.borrow();
            let own = taken.by_origin.get(&origin).copied().unwrap_or(0);
            (taken.total, own)
        };
        if !proven && (total >= BEFORE_PROOF || own >= BEFORE_PROOF_OF_ONE) {
            counts.add(self.port, PlaceOutcome::ProofAsked);
            return AcceptVerdict::Prove;
        }
        if total >= HANDSHAKES_MAX || own >= PLACES_OF_ONE {
            counts.add(self.port, PlaceOutcome::PassedOver);
            if let Some(left_out) = self.told.happened(now) {
                tracing::warn!(
                    "many connections begin at the {}: {total} are under way, {own} of them from \
                     {origin}, and another one was passed over{left_out}; if they are not yours, \
                     let a firewall drop them",
                    self.port
                );
            }
            return AcceptVerdict::PassOver;
        }
        counts.add(self.port, PlaceOutcome::Begun);
        let mut taken = self.taken.borrow_mut();
        taken.total += 1;
        *taken.by_origin.entry(origin).or_default() += 1;
        AcceptVerdict::Accept(SourcePlace {
            origin,
            taken: self.taken.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of a port, and those that were taken.
    struct Flood {
        places: AcceptLimit,
        counts: PlaceCounts,
        held: Vec<SourcePlace>,
    }

    impl Flood {
        fn new() -> Self {
            Self {
                places: AcceptLimit::new(Purpose::Control),
                counts: PlaceCounts::default(),
                held: Vec::new(),
            }
        }

        fn begin(&mut self, from: &str, proven: bool) -> &'static str {
            let from = SocketAddr::new(from.parse().unwrap(), 1);
            let now = Instant::now();
            match self.places.judge(now, from, proven, &self.counts) {
                AcceptVerdict::Accept(place) => {
                    self.held.push(place);
                    "accept"
                }
                AcceptVerdict::Prove => "prove",
                AcceptVerdict::PassOver => "pass over",
            }
        }
    }

    #[test]
    fn forged_addresses_take_few_places_and_a_newcomer_gets_one() {
        let mut flood = Flood::new();
        for n in 0..10_000_u32 {
            let from = format!("10.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255);
            let told = flood.begin(&from, false);
            assert_eq!(told, if n < 32 { "accept" } else { "prove" });
        }
        assert_eq!(flood.begin("192.0.2.1", false), "prove");
        assert_eq!(flood.begin("192.0.2.1", true), "accept");
        let counted: Vec<_> = flood.counts.all().take(3).map(|(_, _, n)| n).collect();
        assert_eq!(counted, [33, 9_969, 0]);
    }

    #[test]
    fn few_addresses_that_answer_leave_places_for_others() {
        let mut flood = Flood::new();
        for n in 0..1_000 {
            for host in 1..=7 {
                flood.begin(&format!("192.0.2.{host}"), true);
                // A customer with one address of IPv6 has a whole network, which counts as one.
                flood.begin(&format!("2001:db8:0:{host}::{n:x}"), true);
            }
        }
        assert_eq!(flood.held.len(), 14 * PLACES_OF_ONE);
        assert_eq!(flood.begin("192.0.2.1", true), "pass over");
        assert_eq!(flood.begin("192.0.2.99", true), "accept");
        // The control: from many addresses, a flood takes all places.
        (0..100).for_each(|n| _ = flood.begin(&format!("198.51.100.{n}"), true));
        assert_eq!(flood.begin("192.0.2.100", true), "pass over");
    }

    #[test]
    fn places_are_free_again_after_use() {
        let mut flood = Flood::new();
        for _ in 0..3 {
            for n in 0..PLACES_OF_ONE {
                let told = flood.begin("::ffff:192.0.2.1", n >= BEFORE_PROOF_OF_ONE);
                assert_eq!(told, "accept");
            }
            assert_eq!(flood.begin("192.0.2.1", true), "pass over");
            flood.held.clear();
        }
        assert!(flood.places.taken.borrow().by_origin.is_empty());
    }
}
