//! Members that answer the coordinator, but that others cannot copy to.
//!
//! Control and data have ports of their own. If a firewall blocks the data port alone, a member is
//! live and votes, but is of no use: each copy to it is begun and given up, while the partition
//! lacks a copy, and other members cannot use the partitions that it leads. The other members know
//! of such a member. They have no connection with it; or, as primaries, they give up copies to it,
//! or drop its copies. One such report alone proves nothing, because its sender may be the one that
//! is cut off.
//!
//! The planner treats such a member as one that is being emptied: it receives no copies, and its
//! data goes elsewhere. After a while it is tried again.

use crate::time::Time;
use doyen_placement::planner::may_receive;
use doyen_placement::{MemberId, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Complaints that are older than this do not count.
const REMEMBERED: Duration = Duration::from_secs(30);
/// The number of members that must complain about one.
const COMPLAINING: usize = 2;
/// The least age of the first complaint. While a machine stands still, every member complains about
/// every other one.
const LASTING: Duration = Duration::from_secs(3);
/// How long such a member is spared the first time. The time doubles with each further pause.
const PAUSE: Duration = Duration::from_secs(30);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(240);

/// By the member that is complained about, then by the complaining one: the time since when.
type Complaints = BTreeMap<MemberId, BTreeMap<MemberId, Time>>;

/// What a coordinator knows of unreached members.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// By the member complained about, then by the one that complains: the first and the last time.
    complaints: BTreeMap<MemberId, BTreeMap<MemberId, (Time, Time)>>,
    /// Missing connections, as the members last reported them.
    unheard: Complaints,
    /// Pauses. A pause that is over is kept, because it says how long the next one is.
    spared: BTreeMap<MemberId, Spared>,
}

#[derive(Debug)]
struct Spared {
    until: Time,
    pause: Duration,
    /// Whether several members had no connection with it. Once they have one, the pause is over.
    apart: bool,
}

impl Reach {
    /// A primary has given up a copy to a member, or dropped the member's copy.
    pub(super) fn complain(&mut self, now: Time, by: MemberId, about: MemberId) {
        if by != about {
            self.complaints
                .entry(about)
                .or_default()
                .entry(by)
                .or_insert((now, now))
                .1 = now;
        }
    }

    /// A member reports the members that it has no connection with.
    pub(super) fn unheard(
        &mut self,
        now: Time,
        by: MemberId,
        unheard: impl Iterator<Item = MemberId>,
    ) {
        let unheard: BTreeSet<MemberId> = unheard.collect();
        for (about, complaining) in &mut self.unheard {
            if !unheard.contains(about) {
                complaining.remove(&by);
            }
        }
        unheard.into_iter().for_each(|about| {
            _ = self
                .unheard
                .entry(about)
                .or_default()
                .entry(by)
                .or_insert(now)
        });
    }

    /// A copy on this member counts by now.
    pub(super) fn reached(&mut self, member: MemberId) {
        self.complaints.remove(&member);
        self.spared.remove(&member);
    }

    /// Spares the members that several others have complained about for long enough. Returns those
    /// that were not spared before.
    pub(super) fn judge(&mut self, now: Time, table: &Table) -> Vec<MemberId> {
        self.complaints.retain(|about, by| {
            by.retain(|by, (_, last)| table.member(*by).is_some() && now.since(*last) < REMEMBERED);
            !by.is_empty() && table.member(*about).is_some()
        });
        self.spared
            .retain(|member, _| table.member(*member).is_some());
        self.unheard.retain(|about, by| {
            by.retain(|by, _| table.member(*by).is_some());
            !by.is_empty() && table.member(*about).is_some()
        });
        let apart = |member: MemberId| {
            self.unheard
                .get(&member)
                .is_some_and(|by| by.len() >= COMPLAINING)
        };
        for (member, spared) in &mut self.spared {
            // A single member may complain because it hears no other member.
            if spared.apart && spared.until > now && !apart(*member) {
                spared.until = now;
                self.complaints.remove(member);
            }
        }
        let all = table.members.iter().filter(|m| may_receive(m)).count();
        let mut unreached = self.unreached(now);
        let mut found = Vec::new();
        // Copies are given up for other reasons, too, and that is remembered for a while. It does
        // not count against the present connections.
        let mut lasting = self.unheard.clone();
        lasting
            .values_mut()
            .for_each(|by| by.retain(|_, since| now.since(*since) >= LASTING));
        let mut together = lasting.clone();
        for (about, by) in &self.complaints {
            let known = together.entry(*about).or_default();
            by.iter().for_each(|(by, (first, _))| {
                _ = known
                    .entry(*by)
                    .and_modify(|since| *since = (*since).min(*first))
                    .or_insert(*first)
            });
        }
        for complaints in [&lasting, &together] {
            for about in cut_off(now, complaints) {
                // If most members were unreached, the fault would be elsewhere.
                if (unreached.len() + 1) * 2 < all && unreached.insert(about) {
                    found.push(about);
                }
            }
        }
        for member in &found {
            self.complaints.remove(member);
            let spared = self.spared.entry(*member).or_insert(Spared {
                until: now,
                pause: PAUSE / 2,
                apart: false,
            });
            spared.pause = (spared.pause * 2).min(PAUSE_MAX);
            (spared.until, spared.apart) = (now + spared.pause, apart(*member));
        }
        found
    }

    /// The members that are spared.
    pub(super) fn unreached(&self, now: Time) -> BTreeSet<MemberId> {
        self.spared
            .iter()
            .filter(|(_, spared)| spared.until > now)
            .map(|(member, _)| *member)
            .collect()
    }

    /// When the next member is tried again, or the next complaint has lasted for long enough.
    pub(super) fn due(&self, now: Time) -> Option<Time> {
        let pauses = self.spared.values().map(|spared| spared.until);
        let lasting = self
            .complaints
            .values()
            .filter(|by| by.len() >= COMPLAINING)
            .flat_map(BTreeMap::values);
        pauses
            .chain(lasting.map(|(first, _)| *first + LASTING))
            .filter(|at| *at > now)
            .min()
    }
}

/// Members that several others complain about, if those others are complained about less. So the
/// members that are cut off are found.
fn cut_off(now: Time, complaints: &Complaints) -> Vec<MemberId> {
    let of = |member: MemberId| complaints.get(&member).map_or(0, BTreeMap::len);
    let is_cut_off = |(about, by): &(&MemberId, &BTreeMap<MemberId, Time>)| {
        let believed = || by.iter().filter(|(by, _)| of(**by) < of(**about));
        believed().count() >= COMPLAINING
            && believed().any(|(_, since)| now.since(*since) >= LASTING)
    };
    complaints
        .iter()
        .filter(is_cut_off)
        .map(|(about, _)| *about)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::fixtures::members;

    fn id(number: u64) -> MemberId {
        MemberId(number << 4)
    }

    #[test]
    fn a_member_that_several_complain_about_for_long_is_spared_and_tried_again_later() {
        let (table, mut reach) = (members(4), Reach::default());
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        reach.complain(at(0), id(1), id(4));
        assert_eq!(
            reach.judge(at(9_000), &table),
            [],
            "one alone may be the one that is cut off"
        );
        reach.complain(at(9_000), id(2), id(4));
        // The member that is cut off complains about all others.
        (1..=3).for_each(|m| reach.complain(at(9_000), id(4), id(m)));
        assert_eq!(reach.judge(at(9_001), &table), [id(4)]);
        assert_eq!(reach.judge(at(9_002), &table), [], "once");
        assert!(
            reach.unreached(at(9_002)).contains(&id(4)) && reach.unreached(at(40_000)).is_empty()
        );
        assert_eq!(reach.due(at(9_002)), Some(at(39_001)));
        for by in [1, 2] {
            reach.complain(at(40_000), id(by), id(4));
        }
        assert_eq!(reach.judge(at(40_000), &table), [], "not at once");
        assert_eq!(reach.judge(at(43_000), &table), [id(4)]);
        assert!(
            reach.unreached(at(100_000)).contains(&id(4)),
            "twice as long"
        );
        reach.reached(id(4));
        assert!(reach.unreached(at(100_000)).is_empty());
    }

    #[test]
    fn a_member_that_several_are_not_connected_with_is_spared() {
        let (table, mut reach) = (members(4), Reach::default());
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        for second in 0..6 {
            // The third member is heard again at once. The first one hears no other member.
            let once = |m| {
                if second == 1 {
                    vec![id(3), id(m)]
                } else {
                    vec![id(m)]
                }
            };
            reach.unheard(at(second * 1_000), id(1), [2, 3, 4].map(id).into_iter());
            reach.unheard(at(second * 1_000), id(2), once(1).into_iter());
            reach.unheard(at(second * 1_000), id(4), once(1).into_iter());
            let found = reach.judge(at(second * 1_000), &table);
            assert_eq!(
                found,
                if second == 3 { vec![id(1)] } else { Vec::new() },
                "{second}"
            );
        }
        [1, 2, 4]
            .into_iter()
            .for_each(|by| reach.unheard(at(6_000), id(by), std::iter::empty()));
        assert!(reach.unreached(at(6_000)).contains(&id(1)));
        assert_eq!(
            reach.judge(at(6_000), &table),
            [],
            "no member says so any more"
        );
        assert!(
            reach.unreached(at(6_000)).is_empty(),
            "and it is over at once"
        );
    }

    #[test]
    fn present_connections_count_more_than_copies_given_up_before() {
        let (table, mut reach) = (members(4), Reach::default());
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        // While machines were slow, copies to every member were given up.
        let every_pair = || (1..=4).flat_map(|by| (1..=4).map(move |about| (by, about)));
        every_pair().for_each(|(by, about)| reach.complain(at(0), id(by), id(about)));
        let shut = |reach: &mut Reach, now| {
            reach.unheard(now, id(4), [1, 2, 3].map(id).into_iter());
            (1..=3).for_each(|by| reach.unheard(now, id(by), [id(4)].into_iter()));
        };
        shut(&mut reach, at(1_000));
        assert_eq!(reach.judge(at(3_500), &table), [], "not for long enough");
        assert_eq!(reach.judge(at(4_000), &table), [id(4)]);
        // Each new connection ends a complaint.
        let (mut reach, now) = (Reach::default(), at(60_000));
        shut(&mut reach, now);
        (2..=4).for_each(|by| reach.unheard(now + LASTING, id(by), std::iter::empty()));
        assert_eq!(reach.judge(now + LASTING, &table), [], "one alone says so");
    }

    #[test]
    fn if_every_member_complains_about_every_other_none_is_spared() {
        let (table, mut reach) = (members(4), Reach::default());
        let complain = |reach: &mut Reach, at: Time| {
            (1..=4)
                .flat_map(|by| (1..=4).map(move |about| (by, about)))
                .for_each(|(by, about)| reach.complain(at, id(by), id(about)));
        };
        for second in 0..20 {
            let at = Time::ZERO + Duration::from_secs(second);
            complain(&mut reach, at);
            assert_eq!(reach.judge(at, &table), []);
        }
        // Two members cannot tell which of them is cut off.
        let (two, mut reach) = (members(2), Reach::default());
        reach.complain(Time::ZERO, id(1), id(2));
        assert_eq!(reach.judge(Time::ZERO + Duration::from_secs(9), &two), []);
    }
}
