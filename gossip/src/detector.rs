//! Who answers: runs of unanswered pings, sent while awake.
//!
//! A run says that somebody is silent, never why. Pings that were sent before a pause of this process do not count (rule 6),
//! so whoever was paused suspects nobody when it resumes.

use crate::time::Time;
use doyen_placement::MemberId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Pings to one peer that are remembered while no answer comes.
const OUTSTANDING_MAX: usize = 64;
/// After a hint, this many quick pings decide.
const QUICK_PINGS: u32 = 2;
/// Between quick pings, and from the last one to the verdict.
pub(crate) const QUICK_INTERVAL: Duration = Duration::from_millis(25);

/// Pings and their answers.
#[derive(Debug, Default)]
pub(crate) struct Detector {
    sequence: u64,
    awake_from: u64,
    peers: BTreeMap<MemberId, Track>,
}

#[derive(Debug, Default)]
struct Track {
    /// Sent, and neither it nor a later one answered.
    outstanding: VecDeque<(u64, Time)>,
    /// When the last answered ping was sent.
    answered: Option<Time>,
    suspicion: Option<Suspicion>,
}

/// The peer's host says that nobody listens there.
#[derive(Debug)]
struct Suspicion {
    since: Time,
    quick_pings: u32,
    due: Time,
}

impl Detector {
    /// Forgets whoever is not asked any more.
    pub(crate) fn retain(&mut self, asked: impl Fn(MemberId) -> bool) {
        self.peers.retain(|peer, _| asked(*peer));
    }

    /// This process slept: what it sent before proves nothing.
    pub(crate) fn woke(&mut self) {
        self.awake_from = self.sequence + 1;
        self.peers.values_mut().for_each(|t| t.suspicion = None);
    }

    /// A ping goes out; its number.
    pub(crate) fn sent(&mut self, peer: MemberId, now: Time) -> u64 {
        self.sequence += 1;
        let track = self.peers.entry(peer).or_default();
        if track.outstanding.len() >= OUTSTANDING_MAX {
            track.outstanding.pop_front();
        }
        track.outstanding.push_back((self.sequence, now));
        self.sequence
    }

    /// An answer came; when its ping was sent. `None`: that ping is not known, or a later one is answered.
    pub(crate) fn answered(&mut self, peer: MemberId, sequence: u64) -> Option<Time> {
        let track = self.peers.get_mut(&peer)?;
        let place = track.outstanding.iter().position(|(s, _)| *s == sequence)?;
        let (_, at) = track.outstanding[place];
        track.outstanding.drain(..=place);
        track.answered = Some(at);
        if track.suspicion.as_ref().is_some_and(|s| at >= s.since) {
            track.suspicion = None;
        }
        Some(at)
    }

    /// Somebody's host says that nobody listens there. True: ping at once.
    pub(crate) fn suspect(&mut self, peer: MemberId, now: Time) -> bool {
        let Some(track) = self.peers.get_mut(&peer) else { return false };
        if track.suspicion.is_some() {
            return false;
        }
        track.suspicion = Some(Suspicion { since: now, quick_pings: 1, due: now + QUICK_INTERVAL });
        true
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

    /// Whether nothing is open between us: every ping was answered, or none was sent yet.
    pub(crate) fn is_calm(&self, peer: MemberId) -> bool {
        self.peers.get(&peer).is_none_or(|t| t.outstanding.is_empty() && t.suspicion.is_none())
    }

    /// Whether a hint against it stands.
    pub(crate) fn suspected(&self, peer: MemberId) -> bool {
        self.peers.get(&peer).is_some_and(|t| t.suspicion.is_some())
    }

    /// Whether it is silent: `missed_max` pings sent while awake, each given `patience`, or the quick ones after a hint.
    pub(crate) fn silent(&self, peer: MemberId, now: Time, missed_max: u32, patience: Duration) -> bool {
        let Some(track) = self.peers.get(&peer) else { return false };
        let missed = track.outstanding.iter().filter(|(s, at)| *s >= self.awake_from && now.since(*at) >= patience).count();
        missed >= missed_max as usize || track.suspicion.as_ref().is_some_and(|s| s.quick_pings >= QUICK_PINGS && s.due <= now)
    }

    /// When the last answered ping was sent.
    pub(crate) fn answered_at(&self, peer: MemberId) -> Option<Time> {
        self.peers.get(&peer)?.answered
    }

    /// When a suspicion needs attention.
    pub(crate) fn due(&self, now: Time) -> Option<Time> {
        self.peers.values().filter_map(|t| t.suspicion.as_ref()).filter(|s| s.quick_pings < QUICK_PINGS || s.due > now).map(|s| s.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: MemberId = MemberId(9);
    const TICK: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn six_unanswered_pings_make_a_member_silent() {
        let mut detector = Detector::default();
        for tick in 0..6 {
            detector.sent(PEER, at(tick * 100));
            assert!(!detector.silent(PEER, at(tick * 100), 6, TICK));
        }
        assert!(!detector.silent(PEER, at(599), 6, TICK));
        assert!(detector.silent(PEER, at(600), 6, TICK));
    }

    #[test]
    fn an_answer_ends_the_run_and_tells_when_its_ping_was_sent() {
        let mut detector = Detector::default();
        let sequences: Vec<u64> = (0..6).map(|tick| detector.sent(PEER, at(tick * 100))).collect();
        assert_eq!(detector.answered(PEER, sequences[4]), Some(at(400)));
        assert!(!detector.silent(PEER, at(600), 6, TICK));
        assert_eq!(detector.answered(PEER, sequences[2]), None);
    }

    #[test]
    fn pings_sent_before_a_pause_do_not_count() {
        let mut detector = Detector::default();
        (0..6).for_each(|tick| _ = detector.sent(PEER, at(tick * 100)));
        detector.woke();
        assert!(!detector.silent(PEER, at(10_000), 6, TICK));
    }

    #[test]
    fn a_refused_port_needs_two_quick_pings_and_an_answer_clears_it() {
        let mut detector = Detector::default();
        detector.sent(PEER, at(0));
        assert!(detector.suspect(PEER, at(10)));
        detector.sent(PEER, at(10));
        assert_eq!(detector.quick_pings(at(34)), []);
        assert_eq!(detector.quick_pings(at(35)), [PEER]);
        let quick = detector.sent(PEER, at(35));
        assert!(!detector.silent(PEER, at(59), 6, TICK));
        assert!(detector.silent(PEER, at(60), 6, TICK));
        detector.answered(PEER, quick);
        assert!(!detector.silent(PEER, at(60), 6, TICK));
    }
}
