//! The members that may hold data, by number, and how near to one another they are.

use crate::id::{MemberId, PartitionRef};
use crate::loads::{EVACUATED, FULL, Loads, MemberLoad};
use crate::table::Member;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The levels, widest first: zone, rack, host.
pub(crate) const LEVELS: usize = 3;

/// If all members are busy, those are spared whose memory is filled to this percentage: the first
/// value that not all members reach. The values are steps, so that members that are similarly full
/// are treated alike.
const FULLER: [u8; 4] = [EVACUATED, FULL - 5, FULL - 2, FULL];

/// Members that may hold data, in order of age. A member's place in that order names it.
#[derive(Debug)]
pub(crate) struct Topology {
    members: Vec<Arc<Member>>,
    places: BTreeMap<MemberId, usize>,
    /// For each member the number of its group at each level. Groups nest: members of one host
    /// share rack and zone.
    groups: Vec<[usize; LEVELS]>,
    /// Whether each member should take no more copies, because others have more to spare.
    busy: Vec<bool>,
    /// For each member, the percentage of its copies that it should keep: less than 100 if its
    /// memory is nearly full.
    keeps: Vec<u64>,
}

impl Topology {
    /// These members, in order of age.
    pub(crate) fn new(members: Vec<Arc<Member>>) -> Self {
        let places = members
            .iter()
            .enumerate()
            .map(|(place, m)| (m.id, place))
            .collect();
        let mut known: [BTreeMap<(usize, String), usize>; LEVELS] = Default::default();
        let groups = members
            .iter()
            .map(|member| {
                let mut within = 0;
                let mut groups = [0; LEVELS];
                for (level, known) in known.iter_mut().enumerate() {
                    let next = known.len();
                    within = *known
                        .entry((within, group_name(member, level)))
                        .or_insert(next);
                    groups[level] = within;
                }
                groups
            })
            .collect();
        let (busy, keeps) = (vec![false; members.len()], vec![100; members.len()]);
        Self {
            members,
            places,
            groups,
            busy,
            keeps,
        }
    }

    /// The same, with the members that reported no spare time or memory. If all members are busy,
    /// those with the fullest memory take no more copies, because they would refuse them, and all
    /// others are treated alike.
    pub(crate) fn told(self, loads: &Loads) -> Self {
        let busy: Vec<bool> = self
            .members
            .iter()
            .map(|m| loads.member(m.id).is_some_and(|load| load.busy))
            .collect();
        if busy.iter().all(|busy| *busy) {
            let filled = |m: &Arc<Member>| loads.member(m.id).map_or(0, MemberLoad::filled);
            let filled: Vec<u8> = self.members.iter().map(filled).collect();
            let fuller = |most: &u8| {
                filled
                    .iter()
                    .map(|filled| filled >= most)
                    .collect::<Vec<bool>>()
            };
            let some = FULLER
                .iter()
                .map(fuller)
                .find(|fuller| fuller.contains(&false));
            return Self {
                busy: some.unwrap_or_else(|| vec![false; filled.len()]),
                ..self
            };
        }
        // The aim is somewhat below the threshold, because writes replace what moves away.
        let relieved = |filled: u8| {
            if filled >= EVACUATED {
                u64::from(EVACUATED - 8) * 100 / u64::from(filled)
            } else {
                100
            }
        };
        let keeps = |m: &Arc<Member>| {
            loads
                .member(m.id)
                .filter(|_| loads.uneven().memory)
                .map_or(100, |load| relieved(load.filled()))
        };
        let keeps = self.members.iter().map(keeps).collect();
        Self {
            busy,
            keeps,
            ..self
        }
    }

    /// How many of its `present` copies a member should keep, if it can do without some. All of
    /// them, unless its memory is nearly full.
    pub(crate) fn keeps(&self, place: usize, present: u64) -> u64 {
        if self.keeps[place] < 100 {
            present * self.keeps[place] / 100
        } else {
            u64::MAX
        }
    }

    /// Whether a member should take no more copies than it must.
    pub(crate) fn is_busy(&self, place: usize) -> bool {
        self.busy[place]
    }

    /// The places of members that would refuse a copy of this partition for balance.
    pub(crate) fn refusing(&self, loads: &Loads, at: PartitionRef) -> impl Iterator<Item = usize> {
        let members = if loads.full().is_empty() {
            &[][..]
        } else {
            &self.members[..]
        };
        members
            .iter()
            .enumerate()
            .filter(move |(_, member)| loads.is_full_for(member, at))
            .map(|(place, _)| place)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// All members, in order of age.
    pub(crate) fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    pub(crate) fn id(&self, place: usize) -> MemberId {
        self.members[place].id
    }

    pub(crate) fn member(&self, place: usize) -> &Member {
        &self.members[place]
    }

    pub(crate) fn name(&self, place: usize) -> &str {
        &self.members[place].name
    }

    pub(crate) fn weight(&self, place: usize) -> u64 {
        // A valid table has no weight 0. With a weight of 0, divisions would fail.
        u64::from(self.members[place].weight.max(1))
    }

    /// The place of a member, if it may hold data.
    pub(crate) fn place(&self, member: MemberId) -> Option<usize> {
        self.places.get(&member).copied()
    }

    /// The groups of a member, widest first.
    pub(crate) fn groups(&self, place: usize) -> &[usize; LEVELS] {
        &self.groups[place]
    }

    /// How near a copy on this member would stand to copies on the others. Sharing a host is worse
    /// than any sharing of racks, and sharing a rack is worse than any sharing of zones.
    pub(crate) fn nearness(&self, place: usize, others: impl Iterator<Item = usize>) -> u32 {
        others.map(|other| self.nearness_of_two(place, other)).sum()
    }

    fn nearness_of_two(&self, one: usize, other: usize) -> u32 {
        // REPLICAS_MAX is 32, so a weight of 256 outweighs all others together.
        let shared = self.groups[one]
            .iter()
            .zip(&self.groups[other])
            .take_while(|(a, b)| a == b)
            .count();
        [0, 1, 1 << 8, 1 << 16][shared]
    }

    /// A load that is comparable between members of different weights.
    pub(crate) fn relative(&self, load: u64, place: usize) -> u64 {
        (load << 20) / self.weight(place)
    }
}

/// The name of a member's group at this level. If the level has no name, the next narrower one
/// stands for it, and in the end the member itself. The prefixes keep the levels apart.
fn group_name(member: &Member, level: usize) -> String {
    let location = &member.location;
    let named = [
        ("z", &location.zone),
        ("r", &location.rack),
        ("h", &location.host),
    ];
    match named[level..].iter().find(|(_, name)| !name.is_empty()) {
        Some((kind, name)) => format!("{kind}{name}"),
        None => format!("m{}", member.id),
    }
}
