//! Where partitions should be: the fewest moves to a table that is repaired, spread and balanced.

use super::Plan;
use super::edit::may_receive;
use super::health::copies_wanted;
use super::layout::Ground;
use crate::id::{MemberId, PartitionRef};
use crate::table::Table;

/// Goals for the partitions whose replicas should be others. Empty: all is well.
#[must_use]
pub fn plan(table: &Table) -> Plan {
    let ground = Ground::new(table.members.iter().filter(|m| may_receive(m)).cloned().collect());
    let mut plan = Plan::new();
    for keyspace in &table.keyspaces {
        let wanted = copies_wanted(keyspace, ground.len());
        let mut loads = vec![0_u64; ground.len()];
        keyspace.partitions.iter().flat_map(|p| &p.replicas).filter_map(|r| ground.place(r.member)).for_each(|m| loads[m] += 1);
        for partition in keyspace.partitions.iter().filter(|p| p.goal.is_none()) {
            let present: Vec<MemberId> = partition.replicas.iter().map(|r| r.member).collect();
            let mut chosen: Vec<usize> = present.iter().filter_map(|m| ground.place(*m)).take(wanted).collect();
            while chosen.len() < wanted {
                let free = (0..ground.len()).filter(|m| !chosen.contains(m));
                let Some(best) = free.min_by_key(|&m| (ground.nearness(m, &chosen), ground.relative(loads[m], m), m)) else { break };
                loads[best] += 1;
                chosen.push(best);
            }
            let goal: Vec<MemberId> = chosen.into_iter().map(|m| ground.id(m)).collect();
            if !goal.is_empty() && goal != present {
                plan.push((PartitionRef { keyspace: keyspace.id, partition: partition.id }, goal));
            }
        }
    }
    plan
}
