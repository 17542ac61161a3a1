//! One direction between two nodes: what happens to each datagram on it. A machine without I/O: the
//! relay passes it datagrams and the time, and carries out its decisions.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::time::{Duration, Instant};

/// How long a datagram is held back so that later ones overtake it.
const OVERTAKEN_FOR: Duration = Duration::from_millis(15);
/// How long datagrams may wait for bandwidth. A datagram that would wait longer is dropped, as by a
/// full queue of a router.
const BACKLOG_MAX: Duration = Duration::from_millis(200);

/// The faults of a link. Shares are probabilities from 0 to 1, and each datagram is drawn by
/// itself.
///
/// ```
/// use doyen::testkit::Faults;
/// use std::time::Duration;
///
/// let bad = Faults {
///     loss: 0.1,
///     delay: Duration::from_millis(20),
///     jitter: Duration::from_millis(10),
///     ..Faults::NONE
/// };
/// assert!(!bad.is_none() && Faults::NONE.is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faults {
    /// The share of datagrams that is lost.
    pub loss: f64,
    /// The share that arrives twice.
    pub duplicate: f64,
    /// The share that is held back for 15 ms, so that later ones overtake it.
    pub reorder: f64,
    /// The share in which one bit is flipped.
    pub corrupt: f64,
    /// How long every datagram takes.
    pub delay: Duration,
    /// Limit of the random time beyond `delay`. It is drawn evenly, so datagrams overtake each
    /// other.
    pub jitter: Duration,
    /// Bandwidth, in bytes of datagrams a second. A datagram that would wait for more than 200 ms
    /// is dropped.
    pub bytes_per_second: Option<u64>,
    /// The largest datagram that passes, in bytes; larger ones are dropped silently. QUIC needs
    /// 1200.
    pub datagram_bytes_max: Option<usize>,
}

impl Faults {
    /// A link without faults.
    pub const NONE: Self = Self {
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        corrupt: 0.0,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        bytes_per_second: None,
        datagram_bytes_max: None,
    };

    /// Whether the link has no faults.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// Counts of datagrams.
///
/// ```no_run
/// # fn example(cluster: &doyen::testkit::Cluster) {
/// let counts = cluster.datagrams();
/// println!("{} of {} datagrams were dropped", counts.dropped, counts.received);
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct DatagramCounts {
    /// Datagrams that came in.
    pub received: u64,
    /// Of these, the dropped ones, for any reason.
    pub dropped: u64,
    /// Datagrams that were sent on twice.
    pub duplicated: u64,
    /// Datagrams in which a bit was flipped.
    pub corrupted: u64,
    /// Datagrams that were sent on later than they came.
    pub delayed: u64,
}

impl DatagramCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.dropped += other.dropped;
        self.duplicated += other.duplicated;
        self.corrupted += other.corrupted;
        self.delayed += other.delayed;
    }
}

/// One direction of a path.
#[derive(Debug)]
pub(super) struct RelayLink {
    rng: ChaCha8Rng,
    /// When the last byte of earlier datagrams has left, if bandwidth is limited.
    free_at: Option<Instant>,
    pub(super) counts: DatagramCounts,
}

impl RelayLink {
    /// Links with the same seed draw from different streams of randomness.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self {
            rng,
            free_at: None,
            counts: DatagramCounts::default(),
        }
    }

    /// A datagram arrives. The result says when it is sent on, if at all; `None` means at once. The
    /// bytes may be changed.
    pub(super) fn pass(
        &mut self,
        now: Instant,
        faults: &Faults,
        cut: bool,
        datagram: &mut [u8],
    ) -> SentDatagram {
        self.counts.received += 1;
        let too_large = faults
            .datagram_bytes_max
            .is_some_and(|max| datagram.len() > max);
        if cut || too_large || self.draw(faults.loss) {
            return self.drop();
        }
        let mut after = faults.delay;
        match faults.bytes_per_second {
            None => self.free_at = None,
            Some(bytes) => {
                let began = self.free_at.map_or(now, |at| at.max(now));
                if began - now > BACKLOG_MAX {
                    return self.drop();
                }
                let done =
                    began + Duration::from_secs_f64(datagram.len() as f64 / bytes.max(1) as f64);
                self.free_at = Some(done);
                after += done - now;
            }
        }
        if !faults.jitter.is_zero() {
            after += faults.jitter.mul_f64(self.rng.random());
        }
        if self.draw(faults.reorder) {
            after += OVERTAKEN_FOR;
        }
        if self.draw(faults.corrupt) && !datagram.is_empty() {
            let at = self.rng.random_range(0..datagram.len());
            datagram[at] ^= 1 << self.rng.random_range(0..8);
            self.counts.corrupted += 1;
        }
        let twice = self.draw(faults.duplicate);
        self.counts.duplicated += u64::from(twice);
        self.counts.delayed += u64::from(!after.is_zero());
        let due = (!after.is_zero()).then(|| now + after);
        if twice {
            SentDatagram::Twice(due)
        } else {
            SentDatagram::Once(due)
        }
    }

    fn draw(&mut self, share: f64) -> bool {
        // Draw nothing for a fault with a share of 0: then switching a fault on does not shift the
        // draws of the others.
        share > 0.0 && self.rng.random_bool(share.min(1.0))
    }

    fn drop(&mut self) -> SentDatagram {
        self.counts.dropped += 1;
        SentDatagram::Never
    }
}

/// The fate of a datagram. The moment is when it is sent; `None`: at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SentDatagram {
    Never,
    Once(Option<Instant>),
    Twice(Option<Instant>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fates of this many datagrams of 100 bytes that arrive at the same moment.
    fn sent(faults: &Faults, count: usize) -> (Vec<SentDatagram>, DatagramCounts, Instant) {
        let (mut link, now) = (RelayLink::new(7, 1), Instant::now());
        let sent = (0..count)
            .map(|_| link.pass(now, faults, false, &mut [0; 100]))
            .collect();
        (sent, link.counts, now)
    }

    #[test]
    fn a_link_without_faults_sends_everything_at_once() {
        let (sent, counts, _) = sent(&Faults::NONE, 100);
        assert!(sent.iter().all(|s| *s == SentDatagram::Once(None)));
        assert_eq!(
            counts,
            DatagramCounts {
                received: 100,
                ..DatagramCounts::default()
            }
        );
    }

    #[test]
    fn the_same_seed_loses_the_same_datagrams() {
        let faults = Faults {
            loss: 0.3,
            ..Faults::NONE
        };
        let (first, counts, _) = sent(&faults, 1000);
        assert_eq!(first, sent(&faults, 1000).0);
        assert!((250..350).contains(&counts.dropped), "{counts:?}");
        let mut other = RelayLink::new(7, 2);
        let others: Vec<SentDatagram> = (0..1000)
            .map(|_| other.pass(Instant::now(), &faults, false, &mut [0; 100]))
            .collect();
        assert_ne!(first, others, "another link draws by itself");
    }

    #[test]
    fn limited_bandwidth_spreads_datagrams_and_drops_late_ones() {
        // Ten datagrams a second.
        let faults = Faults {
            bytes_per_second: Some(1000),
            ..Faults::NONE
        };
        let (sent, counts, now) = sent(&faults, 10);
        let after =
            |tenths: u32| SentDatagram::Once(Some(now + Duration::from_millis(100) * tenths));
        assert_eq!(sent[..3], [after(1), after(2), after(3)]);
        assert!(sent[3..].iter().all(|s| *s == SentDatagram::Never));
        assert_eq!(counts.dropped, 7);
    }

    #[test]
    fn delay_and_jitter_stay_between_their_bounds() {
        let [delay, jitter] = [20, 10].map(Duration::from_millis);
        let (sent, _, now) = sent(
            &Faults {
                delay,
                jitter,
                ..Faults::NONE
            },
            100,
        );
        let bounds = now + delay..=now + delay + jitter;
        assert!(
            sent.iter()
                .all(|s| matches!(s, SentDatagram::Once(Some(due)) if bounds.contains(due))),
            "{sent:?}"
        );
    }

    #[test]
    fn corruption_flips_one_bit() {
        let mut link = RelayLink::new(1, 1);
        let mut datagram = [0_u8; 50];
        link.pass(
            Instant::now(),
            &Faults {
                corrupt: 1.0,
                ..Faults::NONE
            },
            false,
            &mut datagram,
        );
        assert_eq!(datagram.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
        assert_eq!(
            link.pass(
                Instant::now(),
                &Faults {
                    corrupt: 1.0,
                    ..Faults::NONE
                },
                false,
                &mut []
            ),
            SentDatagram::Once(None)
        );
    }

    #[test]
    fn a_cut_and_a_black_hole_swallow() {
        let (mut link, now) = (RelayLink::new(1, 1), Instant::now());
        assert_eq!(
            link.pass(now, &Faults::NONE, true, &mut [0; 10]),
            SentDatagram::Never
        );
        let hole = Faults {
            datagram_bytes_max: Some(1200),
            ..Faults::NONE
        };
        assert_eq!(
            link.pass(now, &hole, false, &mut [0; 1200]),
            SentDatagram::Once(None)
        );
        assert_eq!(
            link.pass(now, &hole, false, &mut [0; 1201]),
            SentDatagram::Never
        );
    }
}
