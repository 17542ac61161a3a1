//! How much each member should hold: shares by weight, within the limits of keeping copies apart.

use super::topology::{LEVELS, Topology};
use std::collections::BTreeMap;

/// A claim to a share.
#[derive(Debug, Clone, Copy)]
struct ShareClaim {
    /// Its capacity.
    weight: u64,
    /// The least it can take.
    least: u64,
    /// The most it can take.
    most: u64,
    /// What it has.
    present: u64,
}

/// Whole shares of `total`, in proportion to weights within the bounds. Each is less than one away
/// from the exact share.
///
/// The remainders go first to those that have them already, so that shares stay. Then they go to
/// the largest fractions, and among equal ones in turn, beginning at `turn`.
fn shares(total: u64, claims: &[ShareClaim], turn: usize) -> Vec<u64> {
    let mut shares = vec![0; claims.len()];
    let mut open: Vec<usize> = (0..claims.len()).collect();
    let mut left = total;
    // As in the layout of flexible boxes: fix the claims that a bound limits, on the side where the
    // bounds weigh more, and then share the rest among the others. Each round fixes at least one.
    let weight = loop {
        let weight: u64 = open.iter().map(|&i| claims[i].weight).sum();
        let exact = |i: usize| u128::from(left) * u128::from(claims[i].weight);
        let bound = |bound: u64| u128::from(bound) * u128::from(weight);
        let below: u128 = open
            .iter()
            .map(|&i| bound(claims[i].least).saturating_sub(exact(i)))
            .sum();
        let above: u128 = open
            .iter()
            .map(|&i| exact(i).saturating_sub(bound(claims[i].most)))
            .sum();
        if below == 0 && above == 0 {
            break weight;
        }
        let held: Vec<usize> = if below >= above {
            open.iter()
                .copied()
                .filter(|&i| exact(i) < bound(claims[i].least))
                .collect()
        } else {
            open.iter()
                .copied()
                .filter(|&i| exact(i) > bound(claims[i].most))
                .collect()
        };
        for i in held {
            shares[i] = if below >= above {
                claims[i].least
            } else {
                claims[i].most
            };
            left = left.saturating_sub(shares[i]);
            open.retain(|&other| other != i);
        }
    };
    if weight == 0 {
        return shares;
    }
    let product = |i: usize| u128::from(left) * u128::from(claims[i].weight);
    // Both are at most `left`, because a weight is at most the sum of weights.
    let floor = |i: usize| (product(i) / u128::from(weight)) as u64;
    let fraction = |i: usize| product(i) % u128::from(weight);
    open.iter().for_each(|&i| shares[i] = floor(i));
    let spare = left - open.iter().map(|&i| shares[i]).sum::<u64>();
    let mut takers: Vec<usize> = open.into_iter().filter(|&i| fraction(i) > 0).collect();
    let in_turn = |i: usize| (i + claims.len() - turn % claims.len()) % claims.len();
    takers.sort_by_key(|&i| {
        (
            claims[i].present <= shares[i],
            std::cmp::Reverse(fraction(i)),
            in_turn(i),
        )
    });
    takers
        .into_iter()
        .take(spare as usize)
        .for_each(|i| shares[i] += 1);
    shares
}

/// The number of copies that each member should hold, if each of `partitions` partitions has
/// `copies` copies, and members hold `present` and would refuse `refused` more. A zone, rack or
/// host takes no more than keeps copies apart, and no less than the others leave to it. The shares
/// may be less than `total`, because busy and full members take no more.
pub(crate) fn copies_each(
    topology: &Topology,
    (partitions, copies): (u64, usize),
    total: u64,
    (present, refused): (&[u64], &[u64]),
    turn: usize,
) -> Vec<u64> {
    let all: Vec<usize> = (0..topology.len()).collect();
    // Copies need not share a group of the widest level that has enough groups. Each of those takes
    // at most one copy.
    let apart = (0..LEVELS)
        .find(|&level| count_groups(topology, &all, level) >= copies)
        .unwrap_or(LEVELS);
    let mut each = vec![0; topology.len()];
    let sharing = Sharing {
        topology,
        partitions,
        present,
        refused,
        turn,
        apart,
    };
    sharing.hand_out(&all, 0, (copies, copies), total, &mut each);
    each
}

/// The number of partitions that each member should lead, if it holds copies of at most `held` and
/// leads `present`.
pub(crate) fn leads_each(
    topology: &Topology,
    total: u64,
    held: &[u64],
    present: &[u64],
    turn: usize,
) -> Vec<u64> {
    let most = |m: usize| {
        if topology.is_busy(m) {
            held[m].min(present[m])
        } else {
            held[m]
        }
    };
    let claim = |m: usize| ShareClaim {
        weight: topology.weight(m),
        least: 0,
        most: most(m),
        present: present[m],
    };
    shares(
        total,
        &(0..topology.len()).map(claim).collect::<Vec<_>>(),
        turn,
    )
}

struct Sharing<'a> {
    topology: &'a Topology,
    partitions: u64,
    present: &'a [u64],
    refused: &'a [u64],
    turn: usize,
    apart: usize,
}

impl Sharing<'_> {
    /// Shares `total` copies among the groups of one group, which has between `range.0` and
    /// `range.1` copies of a partition.
    fn hand_out(
        &self,
        members: &[usize],
        level: usize,
        range: (usize, usize),
        total: u64,
        each: &mut [u64],
    ) {
        let groups = self.groups(members, level);
        let rooms: Vec<usize> = groups.iter().map(|group| self.room(group, level)).collect();
        let (least, _) = filled_level(&rooms, range.0);
        let (full, more) = filled_level(&rooms, range.1);
        let range_of = |room: usize| (room.min(least), room.min(full + usize::from(more)));
        let claims: Vec<ShareClaim> = groups
            .iter()
            .zip(&rooms)
            .map(|(group, &room)| {
                let (least, most) = range_of(room);
                let least = least as u64 * self.partitions;
                // A busy member takes no more than it has, and a full one no more than it does not
                // refuse, unless only that keeps copies apart.
                let taken = |m: usize| {
                    self.partitions
                        .saturating_sub(self.refused[m])
                        .max(self.present[m])
                };
                let spared = |m: &usize| {
                    if self.topology.is_busy(*m) {
                        self.present[*m]
                    } else {
                        taken(*m)
                    }
                };
                ShareClaim {
                    weight: group.iter().map(|&m| self.topology.weight(m)).sum(),
                    least,
                    most: (most as u64 * self.partitions)
                        .min(group.iter().map(spared).sum())
                        .max(least),
                    present: group.iter().map(|&m| self.present[m]).sum(),
                }
            })
            .collect();
        for ((group, share), room) in groups
            .iter()
            .zip(shares(total, &claims, self.turn))
            .zip(rooms)
        {
            match group[..] {
                [member] => each[member] = share,
                _ => self.hand_out(group, level + 1, range_of(room), share, each),
            }
        }
    }

    fn groups(&self, members: &[usize], level: usize) -> Vec<Vec<usize>> {
        if level >= LEVELS {
            return members.iter().map(|&m| vec![m]).collect();
        }
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        members.iter().for_each(|&m| {
            groups
                .entry(self.topology.groups(m)[level])
                .or_default()
                .push(m)
        });
        groups.into_values().collect()
    }

    /// The number of copies of one partition that a group of this level takes while copies are kept
    /// apart.
    fn room(&self, group: &[usize], level: usize) -> usize {
        if level >= self.apart {
            1
        } else {
            count_groups(self.topology, group, self.apart)
        }
    }
}

/// The number of groups of this level that these members stand in. Below the levels, each member is
/// a group.
fn count_groups(topology: &Topology, members: &[usize], level: usize) -> usize {
    if level >= LEVELS {
        return members.len();
    }
    let mut groups: Vec<usize> = members.iter().map(|&m| topology.groups(m)[level]).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.len()
}

/// Fills vessels of these sizes evenly with `copies`: the level that all vessels reach, as far as
/// their size allows, and whether something is left.
fn filled_level(rooms: &[usize], copies: usize) -> (usize, bool) {
    let at = |level: usize| rooms.iter().map(|room| (*room).min(level)).sum::<usize>();
    let level = (0..=copies)
        .rev()
        .find(|&level| at(level) <= copies)
        .unwrap_or(0);
    (level, at(level) < copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(weight: u64, most: u64, present: u64) -> ShareClaim {
        ShareClaim {
            weight,
            least: 0,
            most,
            present,
        }
    }

    #[test]
    fn shares_follow_weights_and_stop_at_bounds() {
        assert_eq!(shares(12, &[claim(1, 99, 0), claim(2, 99, 0)], 0), [4, 8]);
        assert_eq!(shares(12, &[claim(1, 99, 0), claim(2, 5, 0)], 0), [7, 5]);
        assert_eq!(
            shares(10, &[claim(10, 6, 0), claim(1, 6, 0), claim(1, 6, 0)], 0),
            [6, 2, 2]
        );
    }

    #[test]
    fn the_remainder_stays_where_it_is() {
        assert_eq!(
            shares(10, &[claim(1, 99, 3), claim(1, 99, 3), claim(1, 99, 4)], 0),
            [3, 3, 4]
        );
        assert_eq!(
            shares(10, &[claim(1, 99, 0), claim(1, 99, 0), claim(1, 99, 0)], 1),
            [3, 4, 3]
        );
    }

    #[test]
    fn a_ring_without_members_gives_no_share() {
        assert!(shares(10, &[], 0).is_empty());
        assert_eq!(shares(10, &[claim(1, 3, 0)], 0), [3]);
    }
}
