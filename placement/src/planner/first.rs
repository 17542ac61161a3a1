//! The first table of a cluster.

use super::{allow_present, assign, choose_voters};
use crate::id::{Age, ClusterId, MapId, OrderKey, Term, Version};
use crate::level::LEVELS;
use crate::table::{Keyspace, Member, MemberState, Settings, Table};
use crate::tags::Tags;
use std::sync::Arc;

/// The first table: the founders, oldest first, and one keyspace. It has the highest level that
/// this program speaks, and no key of the order of keys yet. The keyspace is assigned at once if
/// enough founders hold data. Founders whose weight is far above the others' may have it again when
/// they restart.
#[must_use]
pub fn first(
    cluster: ClusterId,
    settings: Settings,
    keyspace: Keyspace,
    founders: Vec<Member>,
) -> Table {
    let mut members = Vec::with_capacity(founders.len());
    let mut next_age = Age(1);
    for founder in founders {
        members.push(Arc::new(Member {
            age: next_age,
            state: MemberState::Live,
            ..founder
        }));
        next_age = next_age.next();
    }
    let (next_keyspace, next_map) = (keyspace.id.next(), MapId(1));
    let keyspaces = vec![Keyspace {
        tags: Tags::Databases,
        partitions: Vec::new(),
        ..keyspace
    }];
    let (term, version) = (Term::default(), Version::default());
    let mut table = Table {
        level: LEVELS.1,
        cluster,
        order_key: OrderKey::default(),
        term,
        version,
        settings,
        members,
        voters: Vec::new(),
        next_age,
        keyspaces,
        next_keyspace,
        maps: Vec::new(),
        next_map,
        access: Arc::default(),
        annex: Arc::default(),
    };
    table.voters = choose_voters(&table);
    allow_present(&mut table);
    assign(&table)
}
