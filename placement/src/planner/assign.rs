//! The first assignment.

use super::edit::may_receive;
use super::health::copies_wanted;
use super::layout::{Seating, Seats, Topology, copies_each, leads_each};
use crate::division::{Arcs, Brought, Division};
use crate::hash::Digest;
use crate::id::{KeyspaceId, PartitionId};
use crate::ring::{self, Ring, RingWalk, tokens_of_weight};
use crate::scheduler::Schedulers;
use crate::table::validate::{PARTITIONS_ALL_MAX, PARTITIONS_MAX};
use crate::table::{Assignment, Keyspace, Mode, Partition, Table};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The table in which every keyspace without partitions gets them, once `members_min` members may
/// hold data. Each partition is in its first lineage, epoch and tenure. All its copies are in sync,
/// because there is nothing to copy.
#[must_use]
pub fn assign(table: &Table) -> Table {
    let mut next = table.clone();
    if next.keyspaces.iter().all(|k| !k.partitions.is_empty()) {
        return next;
    }
    let topology = Topology::new(
        table
            .members
            .iter()
            .filter(|m| may_receive(m))
            .cloned()
            .collect(),
    );
    if topology.len() < usize::from(table.settings.members_min).max(1) {
        return next;
    }
    let mut room =
        PARTITIONS_ALL_MAX.saturating_sub(next.keyspaces.iter().map(Keyspace::count).sum());
    for keyspace in next
        .keyspaces
        .iter_mut()
        .filter(|k| k.partitions.is_empty())
    {
        let copies = copies_wanted(keyspace, topology.len());
        let seatings = match (keyspace.mode, table.settings.assignment) {
            (Mode::Ring { tokens, random }, _) => {
                // One partition is counted already.
                let Some(arcs) = bring(
                    &topology,
                    keyspace.id,
                    Bring {
                        tokens,
                        random,
                        copies,
                        most: room + 1,
                    },
                ) else {
                    continue;
                };
                room -= arcs.partitions().count() - 1;
                // If there are rules, the layout follows them, beginning with the owners as
                // primaries.
                let walk = RingWalk::new(
                    arcs.ring(),
                    topology.members(),
                    if keyspace.rules.is_empty() { copies } else { 1 },
                );
                let walked = (0..arcs.ring().tokens().len()).map(|arc| {
                    walk.replicas(arc)
                        .into_iter()
                        .filter_map(|m| topology.place(m))
                });
                let seatings = walked
                    .map(|members| Seating {
                        members: members.collect(),
                        going: 0,
                        fixed: keyspace.rules.is_empty(),
                    })
                    .collect();
                keyspace.division = Division::Arcs(Arc::new(arcs));
                seatings
            }
            (_, Assignment::RoundRobin) => in_turn(&topology, keyspace.count()),
            (_, Assignment::Rendezvous) => by_rendezvous(&topology, keyspace),
        };
        let count = seatings.len();
        // Both ways leave some unevenness, which is evened out at once. Nothing has to be copied
        // yet, and the first plan is empty.
        let seats = Seats::new(&topology, keyspace, copies, seatings).improve(Schedulers::ALL);
        keyspace.partitions = (0..count)
            .map(|number| Arc::new(begun(number, &seats)))
            .collect();
    }
    next
}

/// The tokens that members bring to a ring.
struct Bring {
    /// The number of tokens of a member with weight 100.
    tokens: u16,
    random: bool,
    copies: usize,
    /// The largest number of tokens of all members together.
    most: usize,
}

/// A ring of these members, each with its tokens, in order of age. Partitions are numbered in the
/// order of the tokens. `None`: there is not room for one token of each member.
fn bring(
    topology: &Topology,
    keyspace: KeyspaceId,
    Bring {
        tokens,
        random,
        copies,
        most,
    }: Bring,
) -> Option<Arcs> {
    let (members, most) = (topology.members(), most.min(PARTITIONS_MAX));
    let each = |tokens: usize| {
        members
            .iter()
            .map(move |m| tokens_of_weight(tokens, m.weight))
    };
    let halves = std::iter::successors(Some(usize::from(tokens)), |tokens| {
        (*tokens > 0).then_some(tokens / 2)
    });
    let tokens = halves
        .map(|tokens| each(tokens).collect::<Vec<usize>>())
        .find(|each| each.iter().sum::<usize>() <= most)?;
    let mut ring = Ring::default();
    for (number, (member, tokens)) in members.iter().zip(tokens).enumerate() {
        let seed = keyspace.0.into();
        let tokens = if random {
            ring::random(&ring, member.id, tokens, seed)
        } else {
            ring::allocate(&ring, &members[..=number], member.id, tokens, copies, seed)
        };
        // A member that draws a token that is there goes without it.
        let free = tokens
            .into_iter()
            .filter(|t| {
                ring.tokens()
                    .binary_search_by_key(t, |(token, _)| *token)
                    .is_err()
            })
            .collect::<BTreeSet<_>>();
        ring = ring.join(member.id, free).ok()?;
    }
    let brought = ring
        .tokens()
        .iter()
        .zip(0..)
        .map(|(&(token, by), number)| Brought {
            token,
            by,
            partition: PartitionId(number),
        });
    Arcs::new(brought.collect()).ok()
}

fn begun(number: usize, seats: &Seats<'_>) -> Partition {
    let id = PartitionId(u32::try_from(number).unwrap_or(u32::MAX));
    Partition::new(id, seats.members(number))
}

/// Primaries in turn, in order of age, heavier members more often (nginx's smooth weighted round
/// robin). The layout scatters the copies. If copies were dealt in turn as well, all partitions
/// that one member leads would fall to the same other member.
fn in_turn(topology: &Topology, count: usize) -> Vec<Seating> {
    let weights: Vec<i64> = (0..topology.len())
        .map(|m| topology.weight(m) as i64)
        .collect();
    let all: i64 = weights.iter().sum();
    let mut credit = vec![0_i64; weights.len()];
    let mut turn = || {
        credit
            .iter_mut()
            .zip(&weights)
            .for_each(|(credit, weight)| *credit += weight);
        let lead = (0..credit.len()).min_by_key(|&m| (-credit[m], m))?;
        credit[lead] -= all;
        Some(lead)
    };
    (0..count)
        .map(|_| Seating {
            members: turn().into_iter().collect(),
            going: 0,
            fixed: false,
        })
        .collect()
}

/// Each partition goes to the members that rank highest for it and do not have their share yet:
/// rendezvous hashing with bounded loads. The rank depends on names, so a cluster that is started
/// again with the same names is assigned in the same way.
fn by_rendezvous(topology: &Topology, keyspace: &Keyspace) -> Vec<Seating> {
    let count = keyspace.count() as u64;
    let copies = copies_wanted(keyspace, topology.len());
    let total = count * copies as u64;
    let (mut loads, mut leads) = (vec![0; topology.len()], vec![0; topology.len()]);
    let turn = keyspace.id.0.into();
    let load_bounds = copies_each(topology, (count, copies), total, (&loads, &loads), turn);
    let lead_bounds = leads_each(topology, count, &load_bounds, &leads, turn);
    let mut seating = |number: u64| {
        let ranks: Vec<u64> = (0..topology.len())
            .map(|m| rank(keyspace, number as u32, topology.name(m)))
            .collect();
        let mut members: Vec<usize> = Vec::with_capacity(copies);
        for copy in 0..copies {
            let open = |m: &usize| {
                !members.contains(m)
                    && loads[*m] < load_bounds[*m]
                    && (copy > 0 || leads[*m] < lead_bounds[*m])
            };
            // The rank decides among members that are equally far from the others.
            let best = (0..topology.len())
                .filter(open)
                .min_by_key(|&m| (topology.nearness(m, members.iter().copied()), ranks[m], m));
            let Some(best) = best else { break };
            loads[best] += 1;
            leads[best] += u64::from(copy == 0);
            members.push(best);
        }
        Seating {
            members,
            going: 0,
            fixed: false,
        }
    };
    (0..count).map(&mut seating).collect()
}

fn rank(keyspace: &Keyspace, partition: u32, member: &str) -> u64 {
    let mut digest = Digest::new();
    (keyspace.id, partition, member).hash(&mut digest);
    digest.finish()
}
