//! The first assignment.

use super::edit::may_receive;
use super::health::copies_wanted;
use super::layout::{Ground, Seating, Seats, copies_each, leads_each};
use crate::hash::Digest;
use crate::id::{Epoch, Lineage, PartitionId};
use crate::scheduler::Schedulers;
use crate::table::{Assignment, Keyspace, Partition, Replica, ReplicaState, Table};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The table in which every keyspace without partitions has them, once `members_min` members may hold data: each partition
/// in its first lineage, epoch and tenure, and all its copies in sync, since there is nothing to copy.
#[must_use]
pub fn assign(table: &Table) -> Table {
    let mut next = table.clone();
    if next.keyspaces.iter().all(|k| !k.partitions.is_empty()) {
        return next;
    }
    let ground = Ground::new(table.members.iter().filter(|m| may_receive(m)).cloned().collect());
    if ground.len() < usize::from(table.settings.members_min).max(1) {
        return next;
    }
    for keyspace in next.keyspaces.iter_mut().filter(|k| k.partitions.is_empty()) {
        let seatings = match table.settings.assignment {
            Assignment::RoundRobin => in_turn(&ground, keyspace),
            Assignment::Rendezvous => by_rendezvous(&ground, keyspace),
        };
        // What either way leaves uneven is evened out at once: nothing has to be copied yet, and the first plan is empty.
        let seats = Seats::new(&ground, keyspace, copies_wanted(keyspace, ground.len()), seatings).improve(Schedulers::ALL);
        keyspace.partitions = (0..keyspace.mode.partitions()).map(|number| Arc::new(begun(number, &seats))).collect();
    }
    next
}

fn begun(number: u32, seats: &Seats<'_>) -> Partition {
    let members = seats.members(number as usize);
    let replicas = members.into_iter().map(|member| Replica { member, state: ReplicaState::InSync }).collect();
    Partition { id: PartitionId(number), replicas, epoch: Epoch(1), since: Epoch(1), lineage: Lineage(1), goal: None }
}

/// Primaries in turn, by order of age, a heavier member more often (nginx's smooth weighted round robin). The copies are
/// left to the layout, which scatters them: were they handed out in turn as well, all that one member leads would fall to
/// the same other one.
fn in_turn(ground: &Ground, keyspace: &Keyspace) -> Vec<Seating> {
    let weights: Vec<i64> = (0..ground.len()).map(|m| ground.weight(m) as i64).collect();
    let all: i64 = weights.iter().sum();
    let mut credit = vec![0_i64; weights.len()];
    let mut turn = || {
        credit.iter_mut().zip(&weights).for_each(|(credit, weight)| *credit += weight);
        let lead = (0..credit.len()).min_by_key(|&m| (-credit[m], m))?;
        credit[lead] -= all;
        Some(lead)
    };
    (0..keyspace.mode.partitions()).map(|_| Seating { members: turn().into_iter().collect(), fixed: false }).collect()
}

/// Each partition on those members that rank highest for it and have not got their share yet: rendezvous hashing with a
/// bound on loads. It ranks by name, so that a cluster that is started again with the same names assigns alike.
fn by_rendezvous(ground: &Ground, keyspace: &Keyspace) -> Vec<Seating> {
    let count = keyspace.mode.partitions();
    let copies = copies_wanted(keyspace, ground.len());
    let total = u64::from(count) * copies as u64;
    let (mut loads, mut leads) = (vec![0; ground.len()], vec![0; ground.len()]);
    let turn = keyspace.id.0.into();
    let load_bounds = copies_each(ground, count.into(), copies, total, &loads, turn);
    let lead_bounds = leads_each(ground, count.into(), &load_bounds, &leads, turn);
    let mut seating = |number: u32| {
        let ranks: Vec<u64> = (0..ground.len()).map(|m| rank(keyspace, number, ground.name(m))).collect();
        let mut members: Vec<usize> = Vec::with_capacity(copies);
        for copy in 0..copies {
            let open = |m: &usize| !members.contains(m) && loads[*m] < load_bounds[*m] && (copy > 0 || leads[*m] < lead_bounds[*m]);
            // The ranking decides among those that stand equally far from the others.
            let best = (0..ground.len()).filter(open).min_by_key(|&m| (ground.nearness(m, members.iter().copied()), ranks[m], m));
            let Some(best) = best else { break };
            loads[best] += 1;
            leads[best] += u64::from(copy == 0);
            members.push(best);
        }
        Seating { members, fixed: false }
    };
    (0..count).map(&mut seating).collect()
}

fn rank(keyspace: &Keyspace, partition: u32, member: &str) -> u64 {
    let mut digest = Digest::new();
    (keyspace.id, partition, member).hash(&mut digest);
    digest.finish()
}
