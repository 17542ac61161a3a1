//! Keyspaces on a ring: the tokens decide which members hold an arc, and tokens come and go with
//! members.
//!
//! ```text
//!   a member comes   it takes over tokens of members that are gone: their arcs go to it whole
//!                    it gets the tokens that it lacks: each splits an arc, and the part before
//!                      the token goes to it
//!   a member goes    its tokens count no more: each of its arcs goes to the members of the next
//!                      arc, and is merged with that one
//! ```
//!
//! Only the arcs concerned move. If a keyspace has rules, or nothing moves for balance, its arcs
//! are laid out as other partitions are.

use super::edit::{may_receive, states};
use super::health::copies_wanted;
use super::{Plan, reshape};
use crate::division::{Arcs, Brought, Cut, Division};
use crate::id::{KeyspaceId, MemberId, PartitionId, PartitionRef};
use crate::loads::Loads;
use crate::ring::{self, Ring, RingWalk, tokens_of_weight};
use crate::scheduler::{Scheduler, Schedulers};
use crate::table::validate::{PARTITIONS_MAX, RESHAPED_MAX};
use crate::table::{Keyspace, Member, MemberState, Mode, Partition, Reshape, Table};
use crate::token::Token;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The arcs of a keyspace whose copies follow its ring.
pub(super) fn walked(keyspace: &Keyspace, on: Schedulers) -> Option<&Arcs> {
    use Scheduler::{Copies, Drain, Primaries, Repair};
    let balances = [Repair, Drain, Copies, Primaries]
        .into_iter()
        .all(|scheduler| on.has(scheduler));
    match &keyspace.division {
        Division::Arcs(arcs) if balances && keyspace.rules.is_empty() => Some(arcs),
        _ => None,
    }
}

/// Goals for the arcs that are not held as their ring says. An arc that lacks nothing stays if
/// there is no room at its new place.
pub(super) fn plan((table, keyspace): (&Table, &Keyspace), arcs: &Arcs, loads: &Loads) -> Plan {
    let receivers = receivers(table);
    let copies = copies_wanted(keyspace, receivers.len());
    let states = states(table);
    let silent = |m: MemberId| states.get(&m) == Some(&MemberState::Silent);
    let held = super::plan::held(table, keyspace);
    let walk = RingWalk::new(arcs.ring(), &receivers, copies);
    let goal = |(arc, id): (usize, PartitionId)| {
        let partition = keyspace.partition(id)?;
        let at = PartitionRef::new(keyspace.id, id);
        let mut goal = walk.replicas(arc);
        let refused = |m: &MemberId| loads.refuses(table, at, *m);
        if goal.iter().any(refused) && super::ranges::may_stay(table, at) {
            // A member that would refuse it is skipped, and a present holder keeps it instead.
            goal.retain(|m| !refused(m));
            let has = partition
                .in_sync()
                .filter(|m| !goal.contains(m))
                .collect::<Vec<_>>();
            goal.extend(has.into_iter().take(copies.saturating_sub(goal.len())));
        }
        fill(&mut goal, copies, partition, &receivers);
        let whole = goal.len() == copies && copies > 0;
        let stays = silent(partition.primary())
            || keyspace.is_reshaped(id)
            || held.contains(&id)
            || under_way(partition, copies, &receivers);
        let known = partition.goal.as_ref() == Some(&goal);
        let reached = partition.goal.is_none() && super::plan::is_reached(partition, &goal);
        (whole && !stays && !known && !reached).then_some((at, goal))
    };
    arcs.partitions().enumerate().filter_map(goal).collect()
}

/// Fills the goal up to its number of copies while too few members have tokens. Present holders
/// keep their copies.
fn fill(goal: &mut Vec<MemberId>, copies: usize, partition: &Partition, receivers: &[Arc<Member>]) {
    let present = partition
        .replicas
        .iter()
        .map(|r| r.member)
        .filter(|m| receivers.iter().any(|r| r.id == *m));
    let begin = partition.id.0 as usize % receivers.len().max(1);
    let others = receivers[begin..]
        .iter()
        .chain(&receivers[..begin])
        .map(|r| r.id);
    for member in present.chain(others) {
        if goal.len() < copies && !goal.contains(&member) {
            goal.push(member);
        }
    }
}

/// Whether it is under way to members that may hold it. Otherwise another member would have to
/// learn from the beginning.
fn under_way(partition: &Partition, copies: usize, receivers: &[Arc<Member>]) -> bool {
    let may = |m: &MemberId| receivers.iter().any(|r| r.id == *m);
    let begun = |goal: &Vec<MemberId>| partition.learners().any(|m| goal.contains(&m));
    partition
        .goal
        .as_ref()
        .is_some_and(|goal| goal.len() == copies && goal.iter().all(may) && begun(goal))
}

/// Splits that give rings the tokens that members lack.
pub(super) fn arrivals(table: &Table) -> Vec<(KeyspaceId, Reshape)> {
    reshapes(table, arriving)
}

/// Merges that remove the tokens of members that are gone.
pub(super) fn departures(table: &Table) -> Vec<(KeyspaceId, Reshape)> {
    reshapes(table, |keyspace, arcs, receivers| {
        departing(table, keyspace, arcs, receivers)
    })
}

/// These splits or merges, as many as may be under way.
fn reshapes(
    table: &Table,
    of: impl Fn(&Keyspace, &Arcs, &[Arc<Member>]) -> Vec<Reshape>,
) -> Vec<(KeyspaceId, Reshape)> {
    let receivers = receivers(table);
    let of = |keyspace: &Keyspace| {
        let arcs =
            walked(keyspace, table.settings.active()).filter(|_| !keyspace.partitions.is_empty());
        let room = RESHAPED_MAX.saturating_sub(keyspace.reshaping.under_way.len());
        let found = arcs
            .map(|arcs| of(keyspace, arcs, &receivers))
            .unwrap_or_default();
        found
            .into_iter()
            .take(room)
            .map(|reshape| (keyspace.id, reshape))
            .collect::<Vec<_>>()
    };
    table.keyspaces.iter().flat_map(of).collect()
}

/// Tokens of members that are gone, with the members that take them over because they have too few.
pub(super) fn heirs(table: &Table) -> Vec<(KeyspaceId, Token, MemberId)> {
    let receivers = receivers(table);
    let gone = |m: MemberId| table.member(m).is_none();
    let of = |keyspace: &Keyspace| {
        let mut found = Vec::new();
        let arcs = walked(keyspace, table.settings.active()).zip(tokens_each(keyspace, &receivers));
        if let Some((arcs, tokens)) = arcs {
            let mut left = arcs
                .ring()
                .tokens()
                .iter()
                .filter(|(_, by)| gone(*by))
                .map(|(token, _)| *token);
            for member in &receivers {
                let lacking = tokens_of_weight(tokens, member.weight)
                    .saturating_sub(arcs.ring().tokens_of(member.id).count());
                found.extend(
                    left.by_ref()
                        .take(lacking)
                        .map(|token| (keyspace.id, token, member.id)),
                );
            }
        }
        found
    };
    table.keyspaces.iter().flat_map(of).collect()
}

/// The table in which these members have taken over these tokens.
#[must_use]
pub fn inherit(table: &Table, heirs: &[(KeyspaceId, Token, MemberId)]) -> Table {
    let mut next = table.clone();
    for keyspace in &mut next.keyspaces {
        let own = |token: Token| {
            heirs
                .iter()
                .find(|(k, t, _)| (*k, *t) == (keyspace.id, token))
                .map(|(.., member)| *member)
        };
        if let Division::Arcs(arcs) = &keyspace.division
            && heirs.iter().any(|(id, ..)| *id == keyspace.id)
        {
            let brought = arcs.brought().map(|b| Brought {
                by: own(b.token).unwrap_or(b.by),
                ..b
            });
            if let Ok(arcs) = Arcs::new(brought.collect()) {
                keyspace.division = Division::Arcs(Arc::new(arcs));
            }
        }
    }
    next
}

/// The number of tokens of a member with weight 100. As in the first assignment, it is limited by
/// the room for partitions.
fn tokens_each(keyspace: &Keyspace, receivers: &[Arc<Member>]) -> Option<usize> {
    let Mode::Ring { tokens, .. } = keyspace.mode else {
        return None;
    };
    let wanted = |tokens: usize| {
        receivers
            .iter()
            .map(move |m| tokens_of_weight(tokens, m.weight))
            .sum::<usize>()
    };
    let mut halves = std::iter::successors(Some(usize::from(tokens)), |tokens| {
        (*tokens > 1).then_some(tokens / 2)
    });
    halves.find(|tokens| wanted(*tokens) <= PARTITIONS_MAX)
}

/// Arcs that are to be split by the tokens that members lack, each once.
fn arriving(keyspace: &Keyspace, arcs: &Arcs, receivers: &[Arc<Member>]) -> Vec<Reshape> {
    let Mode::Ring { random, .. } = keyspace.mode else {
        return Vec::new();
    };
    let Some(tokens) = tokens_each(keyspace, receivers) else {
        return Vec::new();
    };
    let copies = copies_wanted(keyspace, receivers.len());
    let mut ring = arcs.ring().clone();
    let mut splits: Vec<Reshape> = Vec::new();
    let mut split: BTreeSet<PartitionId> = BTreeSet::new();
    for member in receivers {
        let lacking = tokens_of_weight(tokens, member.weight)
            .saturating_sub(ring.tokens_of(member.id).count());
        if lacking == 0 || splits.len() >= RESHAPED_MAX {
            continue;
        }
        let seed = keyspace.id.0.into();
        let drawn = if random {
            ring::random(&ring, member.id, lacking, seed)
        } else {
            ring::allocate(&ring, receivers, member.id, lacking, copies, seed)
        };
        let free = |ring: &Ring, token| {
            ring.tokens()
                .binary_search_by_key(&token, |(t, _)| *t)
                .is_err()
        };
        let drawn: BTreeSet<_> = drawn
            .into_iter()
            .filter(|token| free(&ring, *token))
            .collect();
        for token in &drawn {
            let arc = arcs
                .ring()
                .arc_of(*token)
                .and_then(|arc| arcs.partitions().nth(arc));
            if let Some(partition) = arc.filter(|p| split.insert(*p)) {
                splits.push(Reshape::Split {
                    partition,
                    cut: Cut::Token {
                        token: *token,
                        by: member.id,
                    },
                });
            }
        }
        let Ok(joined) = ring.join(member.id, drawn) else {
            break;
        };
        ring = joined;
    }
    splits
}

/// Arcs that end with a token of a member that receives no copies any more, each with the next arc.
fn departing(
    table: &Table,
    keyspace: &Keyspace,
    arcs: &Arcs,
    receivers: &[Arc<Member>],
) -> Vec<Reshape> {
    let threads = reshape::threads(table);
    let brought: Vec<_> = arcs.brought().collect();
    let gone = |m: MemberId| receivers.iter().all(|r| r.id != m);
    let alike = |one: PartitionId, other: PartitionId| {
        let of = |id| {
            keyspace
                .partition(id)
                .filter(|p| p.goal.is_none() && p.learners().next().is_none())
        };
        of(one)
            .zip(of(other))
            .is_some_and(|(one, other)| reshape::held_alike(one, other))
    };
    let mut used = BTreeSet::new();
    let mut merges = Vec::new();
    for (at, token) in brought
        .iter()
        .enumerate()
        .filter(|(_, token)| gone(token.by))
    {
        let next = brought[(at + 1) % brought.len()].partition;
        let free =
            token.partition != next && !used.contains(&token.partition) && !used.contains(&next);
        if free
            && reshape::same_threads(&threads, token.partition, next)
            && alike(token.partition, next)
        {
            used.extend([token.partition, next]);
            merges.push(Reshape::Merge {
                partitions: [token.partition, next],
            });
        }
    }
    merges
}

fn receivers(table: &Table) -> Vec<Arc<Member>> {
    table
        .members
        .iter()
        .filter(|m| may_receive(m))
        .cloned()
        .collect()
}
