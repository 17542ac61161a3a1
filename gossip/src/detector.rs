//! Which peers answer: runs of unanswered pings, sent while this process was awake.
//!
//! A run says that a peer is silent, and never why. Pings that were sent before a pause of this
//! process do not count (rule 6). So a process that was paused suspects no peer when it resumes.

use crate::time::Time;
use doyen_placement::MemberId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The number of unanswered pings to one peer that are remembered.
const OUTSTANDING_MAX: usize = 64;
/// The number of hints against a peer, each from a separate probe, that it takes to believe them.
/// An attacker that can forge the address of the peer's host can forge one hint.
const REFUSALS: u32 = 3;
/// Quick pings that follow a hint. The hint counts only if the peer leaves all of them unanswered.
const QUICK_PINGS: u32 = 2;
/// The time between quick pings, and the least time from the last one to the verdict.
pub(crate) const QUICK_INTERVAL: Duration = Duration::from_millis(25);
/// A round trip counts as this long at most. A longer one is a pause of the peer, and says nothing
/// about the network.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);

/// How long a peer may be silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SilencePatience {
    /// The number of unanswered pings that make a peer silent if there are no hints against it.
    pub(crate) missed_max: u32,
    /// The age at which an unanswered ping counts as missed.
    pub(crate) each: Duration,
    /// If there are hints against a peer, it is silent once nothing was heard of it for this long.
    pub(crate) hinted: Duration,
    /// How late this process itself has been lately, with a margin.
    pub(crate) lateness: Duration,
}

/// What a hint against a peer changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hinted {
    /// Nothing.
    Known,
    /// It is the first hint: ping the peer at once.
    First,
    /// There are enough hints to believe them.
    Enough,
}

/// Pings and their answers.
#[derive(Debug, Default)]
pub(crate) struct Detector {
    sequence: u64,
    awake_from: u64,
    /// When this process was last seen to have slept.
    awake_at: Time,
    peers: BTreeMap<MemberId, Track>,
}

#[derive(Debug, Default)]
struct Track {
    /// Pings without an answer to them or to a later ping.
    outstanding: VecDeque<(u64, Time)>,
    /// When the last answered ping was sent.
    answered: Option<Time>,
    /// When the last ping or pong came from it.
    heard: Option<Time>,
    round_trip: RoundTrip,
    suspicion: Option<Suspicion>,
}

/// The round-trip time of a peer, as TCP measures it (RFC 6298).
#[derive(Debug, Default)]
struct RoundTrip {
    smoothed: Option<Duration>,
    deviation: Duration,
}

/// The peer's host says that no process listens there.
#[derive(Debug)]
struct Suspicion {
    since: Time,
    refusals: u32,
    quick_pings: u32,
    due: Time,
}

impl RoundTrip {
    fn measured(&mut self, sample: Duration) {
        let sample = sample.min(ROUND_TRIP_MAX);
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.deviation) = (Some(sample), sample / 2);
            return;
        };
        self.deviation = (self.deviation * 3 + smoothed.abs_diff(sample)) / 4;
        self.smoothed = Some((smoothed * 7 + sample) / 8);
    }

    /// An answer takes longer than this only if something is wrong.
    fn most(&self) -> Duration {
        (self.smoothed.unwrap_or_default() + self.deviation * 4).min(ROUND_TRIP_MAX)
    }
}

impl Track {
    /// When hints alone make this peer silent. `None`: as far as is known now, they do not.
    fn silent_by_hints(&self, awake_at: Time, patience: &SilencePatience) -> Option<Time> {
        let suspicion = self
            .suspicion
            .as_ref()
            .filter(|s| s.refusals >= REFUSALS && s.quick_pings >= QUICK_PINGS)?;
        let answer = self.round_trip.most() + patience.lateness;
        let heard = self.heard.unwrap_or(suspicion.since).max(awake_at);
        // `due` is one quick interval after the last quick ping.
        Some((suspicion.due + answer.saturating_sub(QUICK_INTERVAL)).max(heard + patience.hinted))
    }
}

impl Detector {
    /// Forgets peers that are no longer asked.
    pub(crate) fn retain(&mut self, asked: impl Fn(MemberId) -> bool) {
        self.peers.retain(|peer, _| asked(*peer));
    }

    /// This process slept. The pings that it sent before prove nothing, and neither does what it
    /// did not hear meanwhile.
    pub(crate) fn woke(&mut self, now: Time) {
        self.awake_from = self.sequence + 1;
        self.awake_at = now;
        self.peers.values_mut().for_each(|t| t.suspicion = None);
    }

    /// A ping leaves. Returns its number.
    pub(crate) fn sent(&mut self, peer: MemberId, now: Time) -> u64 {
        self.sequence += 1;
        let track = self.peers.entry(peer).or_default();
        if track.outstanding.len() >= OUTSTANDING_MAX {
            track.outstanding.pop_front();
        }
        track.outstanding.push_back((self.sequence, now));
        self.sequence
    }

    /// An answer arrived. Returns when its ping was sent. `None`: the ping is not known, or a later
    /// ping has been answered.
    pub(crate) fn answered(&mut self, peer: MemberId, sequence: u64, now: Time) -> Option<Time> {
        let track = self.peers.get_mut(&peer)?;
        let place = track.outstanding.iter().position(|(s, _)| *s == sequence)?;
        let (_, at) = track.outstanding[place];
        track.outstanding.drain(..=place);
        (track.answered, track.heard) = (Some(at), Some(now));
        track.round_trip.measured(now.since(at));
        if track.suspicion.as_ref().is_some_and(|s| at >= s.since) {
            track.suspicion = None;
        }
        Some(at)
    }

    /// The peer sent a request of its own.
    pub(crate) fn heard(&mut self, peer: MemberId, now: Time) {
        if let Some(track) = self.peers.get_mut(&peer) {
            track.heard = Some(now);
        }
    }

    /// The peer's host says, in answer to one probe, that no process listens there.
    pub(crate) fn refused(&mut self, peer: MemberId, now: Time) -> Hinted {
        self.suspect(peer, now, 1)
    }

    /// A later process on the peer's address says that the peer is dead.
    pub(crate) fn vouched_dead(&mut self, peer: MemberId, now: Time) -> Hinted {
        self.suspect(peer, now, REFUSALS)
    }

    fn suspect(&mut self, peer: MemberId, now: Time, weight: u32) -> Hinted {
        let Some(track) = self.peers.get_mut(&peer) else {
            return Hinted::Known;
        };
        let Some(suspicion) = &mut track.suspicion else {
            track.suspicion = Some(Suspicion {
                since: now,
                refusals: weight,
                quick_pings: 1,
                due: now + QUICK_INTERVAL,
            });
            return Hinted::First;
        };
        let before = suspicion.refusals;
        suspicion.refusals = before.saturating_add(weight);
        if before < REFUSALS && suspicion.refusals >= REFUSALS {
            Hinted::Enough
        } else {
            Hinted::Known
        }
    }

    /// Peers that get another quick ping now.
    pub(crate) fn quick_pings(&mut self, now: Time) -> Vec<MemberId> {
        let due = |s: &&mut Suspicion| s.due <= now && s.quick_pings < QUICK_PINGS;
        let mut peers = Vec::new();
        for (peer, track) in &mut self.peers {
            if let Some(suspicion) = track.suspicion.as_mut().filter(due) {
                suspicion.quick_pings += 1;
                suspicion.due = now + QUICK_INTERVAL;
                peers.push(*peer);
            }
        }
        peers
    }

    /// Whether no ping to this peer is open: all were answered, or none was sent yet.
    pub(crate) fn is_calm(&self, peer: MemberId) -> bool {
        self.peers
            .get(&peer)
            .is_none_or(|t| t.outstanding.is_empty() && t.suspicion.is_none())
    }

    /// Whether there are enough hints against the peer to believe them.
    pub(crate) fn suspected(&self, peer: MemberId) -> bool {
        self.peers
            .get(&peer)
            .is_some_and(|t| t.suspicion.as_ref().is_some_and(|s| s.refusals >= REFUSALS))
    }

    /// Whether the peer is silent: too many pings that were sent while awake are missed. If there
    /// are hints against it, fewer missed pings are enough.
    pub(crate) fn silent(&self, peer: MemberId, now: Time, patience: &SilencePatience) -> bool {
        let Some(track) = self.peers.get(&peer) else {
            return false;
        };
        let missed = track
            .outstanding
            .iter()
            .filter(|(s, at)| *s >= self.awake_from && now.since(*at) >= patience.each)
            .count();
        missed >= patience.missed_max as usize
            || track
                .silent_by_hints(self.awake_at, patience)
                .is_some_and(|at| at <= now)
    }

    /// When the last answered ping was sent.
    pub(crate) fn answered_at(&self, peer: MemberId) -> Option<Time> {
        self.peers.get(&peer)?.answered
    }

    /// When a suspicion needs attention.
    pub(crate) fn due(&self, now: Time, patience: &SilencePatience) -> Option<Time> {
        let ping = |s: &Suspicion| Some(s.due).filter(|_| s.quick_pings < QUICK_PINGS);
        let suspected = self.peers.values().filter_map(|t| {
            let verdict = t
                .silent_by_hints(self.awake_at, patience)
                .filter(|at| *at > now);
            t.suspicion.as_ref().and_then(ping).or(verdict)
        });
        suspected.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: MemberId = MemberId(9);
    const TICK: Duration = Duration::from_millis(100);
    const PATIENCE: SilencePatience = SilencePatience {
        missed_max: 6,
        each: TICK,
        hinted: Duration::from_millis(200),
        lateness: Duration::ZERO,
    };

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// A peer that answers each ping within a millisecond, until 100 ms. It leaves the next ping,
    /// at 200 ms, unanswered.
    fn answering() -> Detector {
        let mut detector = Detector::default();
        for ms in [0, 100] {
            let ping = detector.sent(PEER, at(ms));
            detector.answered(PEER, ping, at(ms + 1));
        }
        detector.sent(PEER, at(200));
        detector
    }

    /// Hints of three separate probes, with the quick pings that follow.
    fn refuse(detector: &mut Detector, from: u64) {
        assert_eq!(detector.refused(PEER, at(from)), Hinted::First);
        detector.sent(PEER, at(from));
        assert_eq!(detector.quick_pings(at(from + 24)), []);
        assert_eq!(detector.quick_pings(at(from + 25)), [PEER]);
        detector.sent(PEER, at(from + 25));
        assert_eq!(detector.refused(PEER, at(from + 25)), Hinted::Known);
        assert!(!detector.suspected(PEER));
        assert_eq!(detector.refused(PEER, at(from + 50)), Hinted::Enough);
        assert!(detector.suspected(PEER));
    }

    #[test]
    fn six_unanswered_pings_make_a_member_silent() {
        let mut detector = Detector::default();
        for tick in 0..6 {
            detector.sent(PEER, at(tick * 100));
            assert!(!detector.silent(PEER, at(tick * 100), &PATIENCE));
        }
        assert!(!detector.silent(PEER, at(599), &PATIENCE));
        assert!(detector.silent(PEER, at(600), &PATIENCE));
    }

    #[test]
    fn an_answer_ends_the_run_and_tells_when_its_ping_was_sent() {
        let mut detector = Detector::default();
        let sequences: Vec<u64> = (0..6)
            .map(|tick| detector.sent(PEER, at(tick * 100)))
            .collect();
        assert_eq!(
            detector.answered(PEER, sequences[4], at(550)),
            Some(at(400))
        );
        assert!(!detector.silent(PEER, at(600), &PATIENCE));
        assert_eq!(detector.answered(PEER, sequences[2], at(560)), None);
    }

    #[test]
    fn pings_sent_before_a_pause_do_not_count() {
        let mut detector = Detector::default();
        (0..6).for_each(|tick| _ = detector.sent(PEER, at(tick * 100)));
        detector.woke(at(9_000));
        assert!(!detector.silent(PEER, at(10_000), &PATIENCE));
    }

    #[test]
    fn refusals_of_three_probes_shorten_the_silence_that_is_waited_for() {
        let mut detector = answering();
        refuse(&mut detector, 210);
        // The last answer came at 101 ms.
        assert!(!detector.silent(PEER, at(300), &PATIENCE));
        assert_eq!(detector.due(at(300), &PATIENCE), Some(at(301)));
        assert!(detector.silent(PEER, at(301), &PATIENCE));
    }

    /// One refusal, 50 ms and two unanswered pings expelled a member. Any host on the network could
    /// forge that refusal.
    #[test]
    fn fewer_refusals_change_nothing_however_long_it_is_silent() {
        let mut detector = answering();
        detector.refused(PEER, at(210));
        detector.quick_pings(at(235));
        detector.refused(PEER, at(240));
        assert!(!detector.silent(PEER, at(799), &PATIENCE));
        assert!(!detector.suspected(PEER));
    }

    /// A flood of forged refusals meets a pause of 200 ms. The answer comes before a third of the
    /// patience of 1 s has passed.
    #[test]
    fn no_number_of_refusals_makes_a_member_silent_that_stood_still_for_less_than_is_waited_for() {
        let patience = SilencePatience {
            missed_max: 10,
            hinted: TICK * 10 / 3,
            ..PATIENCE
        };
        let mut detector = answering();
        let last = detector.sent(PEER, at(201));
        for ms in 201..401 {
            detector.refused(PEER, at(ms));
            detector
                .quick_pings(at(ms))
                .into_iter()
                .for_each(|peer| _ = detector.sent(peer, at(ms)));
            assert!(!detector.silent(PEER, at(ms), &patience), "after {ms} ms");
        }
        detector.answered(PEER, last, at(401));
        assert!(!detector.silent(PEER, at(600), &patience));
    }

    #[test]
    fn an_answer_to_a_later_ping_clears_a_peer_and_its_hints() {
        let mut detector = answering();
        refuse(&mut detector, 210);
        let quick = detector.sent(PEER, at(270));
        detector.answered(PEER, quick, at(271));
        assert!(!detector.silent(PEER, at(800), &PATIENCE) && !detector.suspected(PEER));
        assert_eq!(detector.refused(PEER, at(280)), Hinted::First);
    }

    #[test]
    fn a_peer_that_asks_something_itself_is_not_silent_by_hints() {
        let mut detector = answering();
        refuse(&mut detector, 210);
        detector.heard(PEER, at(290));
        assert!(!detector.silent(PEER, at(489), &PATIENCE));
        assert!(detector.silent(PEER, at(490), &PATIENCE));
    }

    #[test]
    fn a_long_way_and_a_late_process_have_more_patience_with_hints() {
        let mut detector = Detector::default();
        for ms in [0, 300] {
            let ping = detector.sent(PEER, at(ms));
            detector.answered(PEER, ping, at(ms + 120));
        }
        detector.sent(PEER, at(400));
        refuse(&mut detector, 430);
        // An answer may take 120 ms and four times a deviation of 45 ms; the last quick ping went
        // out at 455 ms.
        assert!(!detector.silent(PEER, at(455 + 299), &PATIENCE));
        assert!(detector.silent(PEER, at(455 + 300), &PATIENCE));
        let late = SilencePatience {
            lateness: Duration::from_millis(100),
            ..PATIENCE
        };
        assert!(!detector.silent(PEER, at(455 + 399), &late));
        assert!(detector.silent(PEER, at(455 + 400), &late));
    }

    #[test]
    fn a_pause_of_this_process_is_no_silence_of_its_peers() {
        let mut detector = answering();
        detector.woke(at(1_000));
        refuse(&mut detector, 1_001);
        assert!(!detector.silent(PEER, at(1_199), &PATIENCE));
        assert!(detector.silent(PEER, at(1_200), &PATIENCE));
    }
}
