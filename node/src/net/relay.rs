//! Relays: if two members do not reach each other's data ports, a third one that reaches both
//! carries their datagrams.
//!
//! ```text
//!   A ── directly: no answer ─────────────X   B
//!   A ── its lane to C: "carry this to B" ──> C ── its lane to B: "this is from A" ──> B
//! ```
//!
//! The carried datagrams belong to the QUIC connection between A and B, and are encrypted for these
//! two: C can neither read nor forge them. For all layers above it is one connection that lost a
//! few datagrams. So no call is sent twice, the order stays, and the layers above need not know. C
//! carries only between its own peers, over direct connections: one hop, never a circle. A datagram
//! that C cannot pass on at once is lost, as on any path, and the protocol sends it again.
//!
//! Datagrams on a relay are sent directly as well, so that both ends learn at once when the direct
//! path works again.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use doyen_placement::MemberId;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The direct path counts as broken if nothing has come for this long after a send: an ack of QUIC
/// takes a round trip and 25 ms.
const PATIENCE: Duration = Duration::from_millis(300);
/// On a slow path, the wait is this many round trips, and at most this long.
const ROUND_TRIPS: u32 = 3;
const PATIENCE_MAX: Duration = Duration::from_secs(1);
/// At least this many sends must be unanswered. QUIC repeats every datagram that needs an answer.
const SENDS_LEAST: u32 = 3;
/// How long the other end's last message about its path counts: longer than a connection is silent.
const DEAF: Duration = Duration::from_millis(1200);
/// A relay that lasts this long is reported to operators.
const NOTICEABLE: Duration = Duration::from_secs(2);
/// A member that carried a datagram within this time carries the next one as well.
const CARRIES: Duration = Duration::from_secs(1);
/// Otherwise each candidate has a turn of this length.
const TURN: Duration = Duration::from_millis(400);
/// Bytes that may wait for one peer to be carried; further ones are lost.
pub(super) const CARRIED_BYTES_MAX: usize = 256 << 10;

/// Flag: the carrier has passed the datagram on. Without it, the carrier shall pass it on.
const COMES: u8 = 1;
/// Flag: its sender receives nothing directly.
const IS_DEAF: u8 = 2;
/// `[flags u8][other end u64][length u16]`, followed by the datagram.
const HEAD: usize = 1 + 8 + 2;

/// What one end of a connection knows of the direct path to the other.
#[derive(Debug, Default)]
pub(super) struct DirectPath {
    /// The member at the other end; `None`: never takes a relay.
    pub(super) peer: Option<MemberId>,
    /// The connection was begun by a relay: the other end's address is unknown until something
    /// comes directly.
    pub(super) begun_around: bool,
    /// The other end's address, once it is known.
    pub(super) straight: Option<SocketAddr>,
    /// How many sends are unanswered, and since when. The time starts at the second one: the first
    /// may be an ack, which gets no answer.
    unheard: Option<(Instant, u32)>,
    /// When the other end said that it receives nothing directly, if that was its last word.
    deaf: Option<Instant>,
    /// The member that carried the last datagram to this end, and when.
    carrier: Option<(MemberId, Instant)>,
}

impl DirectPath {
    /// A datagram came directly.
    pub(super) fn heard(&mut self) {
        self.unheard = None;
    }

    /// A datagram was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        match &mut self.unheard {
            Some((since, sends)) => {
                *since = if *sends == 1 { now } else { *since };
                *sends = sends.saturating_add(1);
            }
            None => self.unheard = Some((now, 1)),
        }
    }

    /// A datagram came by a relay. `deaf`: its sender receives nothing directly.
    pub(super) fn came_around(&mut self, now: Instant, by: MemberId, deaf: bool) {
        self.carrier = Some((by, now));
        self.deaf = deaf.then_some(now);
    }

    /// Whether the direct path has been broken for so long that operators should know.
    pub(super) fn is_noticeable(&self, now: Instant) -> bool {
        self.unheard.is_some_and(|(since, sends)| {
            sends >= SENDS_LEAST && now.saturating_duration_since(since) >= NOTICEABLE
        })
    }

    /// Whether nothing comes directly, on a path with this round trip.
    pub(super) fn is_deaf(&self, now: Instant, round_trip: impl FnOnce() -> Duration) -> bool {
        let Some((since, _)) = self.unheard.filter(|(_, sends)| *sends >= SENDS_LEAST) else {
            return false;
        };
        let passed = now.saturating_duration_since(since);
        passed >= PATIENCE && passed >= (round_trip() * ROUND_TRIPS).min(PATIENCE_MAX)
    }

    /// Whether datagrams must take a relay, for either end.
    pub(super) fn strays(&self, now: Instant, round_trip: impl FnOnce() -> Duration) -> bool {
        self.deaf
            .is_some_and(|at| now.saturating_duration_since(at) < DEAF)
            || self.is_deaf(now, round_trip)
    }

    /// The candidate that shall carry: the one that carried just now, or each in turn.
    pub(super) fn carrier(&self, now: Instant, candidates: &[MemberId]) -> Option<MemberId> {
        if let Some((by, at)) = self.carrier
            && now.saturating_duration_since(at) < CARRIES
            && candidates.contains(&by)
        {
            return Some(by);
        }
        let since = self.unheard.map(|(since, _)| since).or(self.deaf)?;
        let turn = now.saturating_duration_since(since).as_millis() / TURN.as_millis();
        candidates
            .get(turn as usize % candidates.len().max(1))
            .copied()
    }
}

/// A datagram on a relay, as it is encoded on a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// True: it was passed on, and comes from `end`. False: it shall be passed on to `end`.
    pub comes: bool,
    /// Its sender receives nothing directly.
    pub deaf: bool,
    /// The other end, from the view of the reader.
    pub end: MemberId,
    /// The datagram of QUIC.
    pub datagram: Bytes,
}

impl Carried {
    /// Encodes it for a lane; `None` if it is longer than any datagram.
    #[must_use]
    pub fn encode(&self) -> Option<Bytes> {
        let length = u16::try_from(self.datagram.len()).ok()?;
        let mut bytes = BytesMut::with_capacity(HEAD + self.datagram.len());
        bytes.put_u8(if self.comes { COMES } else { 0 } | if self.deaf { IS_DEAF } else { 0 });
        bytes.put_u64_le(self.end.0);
        bytes.put_u16_le(length);
        bytes.put_slice(&self.datagram);
        Some(bytes.freeze())
    }

    /// Takes one off the front, if it is complete.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn take(bytes: &mut BytesMut) -> Result<Option<Self>, Nonsense> {
        let Some(mut head) = bytes.get(..HEAD) else {
            return Ok(None);
        };
        let (flags, end, length) = (
            head.get_u8(),
            MemberId(head.get_u64_le()),
            usize::from(head.get_u16_le()),
        );
        if flags & !(COMES | IS_DEAF) != 0 {
            return Err(Nonsense);
        }
        if bytes.len() < HEAD + length {
            return Ok(None);
        }
        bytes.advance(HEAD);
        let datagram = bytes.split_to(length).freeze();
        Ok(Some(Self {
            comes: flags & COMES != 0,
            deaf: flags & IS_DEAF != 0,
            end,
            datagram,
        }))
    }
}

/// The bytes on a lane are not a carried datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Nonsense;

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: fn() -> Duration = || Duration::from_millis(1);

    fn after(ms: u64) -> impl Fn(Instant) -> Instant {
        move |start| start + Duration::from_millis(ms)
    }

    #[test]
    fn a_way_strays_once_several_sends_were_unheard_for_long_enough() {
        let start = Instant::now();
        let mut way = DirectPath::default();
        way.sent(start);
        // An ack, which gets no answer.
        assert!(!way.strays(after(5000)(start), FAST));
        way.sent(after(5000)(start));
        way.sent(after(5001)(start));
        assert!(
            !way.strays(after(5299)(start), FAST),
            "one that was lost is sent again"
        );
        assert!(way.strays(after(5300)(start), FAST));
        way.heard();
        assert!(!way.strays(after(5300)(start), FAST));
        (0..50).for_each(|_| way.sent(start));
        assert!(!way.strays(after(299)(start), FAST));
        assert!(way.strays(after(300)(start), FAST));
        assert!(
            !way.strays(after(800)(start), || Duration::from_millis(300)),
            "a slow way is not a broken one"
        );
        assert!(way.strays(after(1000)(start), || Duration::from_secs(9)));
    }

    #[test]
    fn a_peer_takes_a_detour_only_while_the_other_end_is_deaf() {
        let start = Instant::now();
        let mut way = DirectPath::default();
        way.came_around(start, MemberId(16), false);
        assert!(
            !way.strays(start, FAST),
            "two that hear each other would never stop"
        );
        way.came_around(start, MemberId(16), true);
        way.heard();
        assert!(way.strays(after(1199)(start), FAST) && !way.is_deaf(after(1199)(start), FAST));
        assert!(!way.strays(after(1200)(start), FAST));
        way.came_around(after(10)(start), MemberId(16), false);
        assert!(
            !way.strays(after(10)(start), FAST),
            "it hears straight again, and said so"
        );
    }

    #[test]
    fn the_last_carrier_carries_on_and_otherwise_each_has_a_turn() {
        let start = Instant::now();
        let (c, d) = (MemberId(16), MemberId(32));
        let mut way = DirectPath::default();
        assert_eq!(way.carrier(start, &[c, d]), None);
        way.sent(start);
        let asked: Vec<_> = [0, 399, 400, 800]
            .into_iter()
            .map(|ms| way.carrier(after(ms)(start), &[c, d]))
            .collect();
        assert_eq!(asked, [Some(c), Some(c), Some(d), Some(c)]);
        way.came_around(start, d, true);
        assert_eq!(way.carrier(after(900)(start), &[c, d]), Some(d));
        assert_eq!(
            way.carrier(after(900)(start), &[c]),
            Some(c),
            "it does not reach him directly any more"
        );
        assert_eq!(way.carrier(after(900)(start), &[]), None);
    }

    #[test]
    fn carried_datagrams_survive_a_round_trip_and_malformed_ones_are_refused() {
        let all = [(true, false), (false, true), (true, true), (false, false)];
        let sent: Vec<_> = all
            .into_iter()
            .zip([0_usize, 1, 1200, 65_535])
            .map(|((comes, deaf), length)| Carried {
                comes,
                deaf,
                end: MemberId(1 << 60),
                datagram: vec![7; length].into(),
            })
            .collect();
        let mut bytes: BytesMut = BytesMut::new();
        sent.iter()
            .for_each(|carried| bytes.extend_from_slice(&carried.encode().unwrap()));
        let mut torn = bytes.split_to(bytes.len() - 1);
        let mut read = Vec::new();
        while let Some(carried) = Carried::take(&mut torn).unwrap() {
            read.push(carried);
        }
        assert_eq!(read, sent[..3]);
        torn.unsplit(bytes);
        assert_eq!(Carried::take(&mut torn), Ok(Some(sent[3].clone())));
        assert!(torn.is_empty());
        assert_eq!(
            Carried {
                datagram: vec![0; 65_536].into(),
                ..sent[0].clone()
            }
            .encode(),
            None
        );
        assert_eq!(
            Carried::take(&mut BytesMut::from(&[4; 64][..])),
            Err(Nonsense)
        );
    }
}
