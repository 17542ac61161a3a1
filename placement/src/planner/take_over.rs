//! Heirs: processes that have the directory of a member that is gone.

use crate::id::{Age, MemberId};
use crate::table::validate::MEMBERS_MAX;
use crate::table::{Member, MemberState, Table};
use std::sync::Arc;

/// The table in which a process has taken the place of the member whose directory it has: it has
/// that member's age and key, and votes if that member voted. The former process becomes the
/// youngest member, silent under another name. It holds what it held, until
/// [`remove`](super::remove) says what becomes of that.
///
/// `former` names it after its new age. `None`: there is no such member, or the table has the heir,
/// or no room for it.
#[must_use]
pub fn take_over(
    table: &Table,
    member: MemberId,
    heir: &Member,
    former: impl FnOnce(&str, Age) -> String,
) -> Option<Table> {
    let place = table.members.iter().position(|m| m.id == member)?;
    if table.member(heir.id).is_some() || table.members.len() >= MEMBERS_MAX {
        return None;
    }
    let mut next = table.clone();
    let before = Arc::clone(&next.members[place]);
    let drained = next.settings.balancing.drains(member) || heir.state == MemberState::Draining;
    next.settings.balancing.set_drained(heir.id, drained);
    let state = if drained {
        MemberState::Draining
    } else {
        MemberState::Live
    };
    next.members[place] = Arc::new(Member {
        age: before.age,
        state,
        vote_key: before.vote_key,
        ..heir.clone()
    });
    next.members.push(Arc::new(Member {
        age: next.next_age,
        name: former(&before.name, next.next_age),
        state: MemberState::Silent,
        ..Member::clone(&before)
    }));
    next.next_age = next.next_age.next();
    let seats = next.voters.iter_mut().filter(|voter| **voter == member);
    seats.for_each(|voter| *voter = heir.id);
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Addresses, Keyspace};
    use crate::vote_key::VoteKey;

    fn member(id: u64) -> Member {
        let at = std::net::SocketAddr::from(([10, 0, 0, 1], 7000));
        let member = Member::new(MemberId(id << 4), format!("n{id}"), Addresses::new(at, at));
        Member {
            vote_key: Some(VoteKey([u8::try_from(id).unwrap(); 32])),
            ..member
        }
    }

    #[test]
    fn an_heir_has_the_seat_and_the_key_of_its_predecessor_and_none_of_its_copies() {
        let table = Table::of_test((1..=3).map(member), Keyspace::fixed(4, 1));
        let table = crate::planner::assign(&table);
        let (one, heir) = (MemberId(1 << 4), member(9));
        let heir = Member {
            name: "n1".into(),
            ..heir
        };
        let former = |name: &str, age: Age| format!("{name}~{age}");
        let next = take_over(&table, one, &heir, former).unwrap();
        assert_eq!(next.validate(), Ok(()));
        assert!(next.may_follow(&table));
        let heir = next.member(MemberId(9 << 4)).unwrap();
        assert_eq!((heir.age, heir.vote_key), (Age(1), member(1).vote_key));
        assert_eq!(next.voters, [heir.id, MemberId(2 << 4), MemberId(3 << 4)]);
        let before = next.member(one).unwrap();
        assert_eq!((before.state, &*before.name), (MemberState::Silent, "n1~4"));
        assert!(
            next.partitions()
                .all(|(at, p)| table.partition(at) == Some(p))
        );
        assert_eq!(take_over(&next, one, heir, former), None);
    }
}
