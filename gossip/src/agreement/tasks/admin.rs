//! Requests of people, as a step from one table to the next.

use super::super::api::AdminRequest;
use super::super::problem::Problem;
use super::newcomers::bore;
use doyen_placement::planner;
use doyen_placement::{MapEntry, MapWish, Member, MemberId, MemberState, Table, WantedMap};

pub(super) type Administered = Result<(Option<Table>, Option<MapEntry>), Problem>;

fn changed(table: &Table, next: Result<Table, impl Into<Problem>>) -> Administered {
    let next = next.map_err(Into::into)?;
    Ok(((next != *table).then_some(next), None))
}

impl AdminRequest {
    /// Why a coordinator with this table would refuse it; `None`: it would not.
    #[must_use]
    pub fn refused_by(&self, table: &Table) -> Option<Problem> {
        // Who asks matters only for what is noted of a change.
        administer(table, MemberId(0), self.clone()).err()
    }
}

/// Carries out what this member, or a client of it, asks for.
pub(super) fn administer(table: &Table, by: MemberId, request: AdminRequest) -> Administered {
    let next = match request {
        AdminRequest::CreateMap { name, keyspace } => {
            let wish = MapWish::Exists;
            let wanted = WantedMap {
                keyspace,
                name,
                wish,
            };
            let (next, map) = planner::want_map(table, &wanted)?;
            return Ok((next, Some(map)));
        }
        AdminRequest::WantMap(wanted) => {
            let (mut next, map) = planner::want_map(table, &wanted)?;
            if let Some(next) = &mut next {
                let by = table.member(by).map_or("a member", |member| &member.name);
                planner::note_limits(table, next, map.id, by);
            }
            return Ok((next, Some(map)));
        }
        AdminRequest::KeepHalf(branch) => {
            let kept = table.annex.keeping(branch).map(|annex| Table {
                annex: annex.into(),
                ..table.clone()
            });
            return Ok((kept, None));
        }
        AdminRequest::ChangeAccess(change) => {
            return Ok((planner::change_access(table, &change)?, None));
        }
        AdminRequest::TellOfKeys { events } => {
            return Ok((planner::tell_of_keys(table, events), None));
        }
        AdminRequest::CreateKeyspace(wanted) => planner::create_keyspace(table, wanted),
        AdminRequest::AlterKeyspace { name, change } => {
            planner::alter_keyspace(table, &name, change)
        }
        AdminRequest::DropKeyspace { name } => planner::drop_keyspace(table, &name).map(Some),
        AdminRequest::SplitAt { keyspace, map, key } => {
            planner::split_at(table, &keyspace, map, &key)
        }
        AdminRequest::MergeAt { keyspace, map, key } => {
            planner::merge_at(table, &keyspace, map, &key)
        }
        AdminRequest::ApplyPlan { base, goals } => {
            return Ok((Some(planner::apply(table, base, &goals)?), None));
        }
        AdminRequest::Schedule(schedulers) => {
            let next = planner::schedule(table, schedulers);
            next.validate()?;
            Ok((next != *table).then_some(next))
        }
        AdminRequest::Balance(change) => {
            let next = planner::balance(table, &change);
            next.validate()?;
            return Ok(((next != *table).then_some(next), None));
        }
        AdminRequest::Cancel(partition) => {
            return changed(table, planner::cancel(table, partition));
        }
        AdminRequest::Drain { name } => return changed(table, planner::drain(table, &name)),
        AdminRequest::Forget { name } => return changed(table, planner::forget(table, &name)),
        AdminRequest::Fill { name } => return changed(table, planner::fill(table, &name)),
        AdminRequest::GiveUp { name } => {
            let member = planner::named(table, &name)?;
            if member.state != MemberState::Silent {
                // A silent process has another name once a newcomer took its name.
                let former = |m: &Member| m.id != member.id && bore(m, &member.name);
                let dead = table
                    .members
                    .iter()
                    .find(|m| m.state == MemberState::Silent && former(m));
                return Err(Problem::Answers {
                    name,
                    former: dead.map(|m| m.name.clone()),
                });
            }
            Ok(Some(planner::reset(table, member.id)))
        }
    };
    Ok((next?, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::fixtures::planned;
    use doyen_placement::planner::NotDrained;

    #[test]
    fn only_a_silent_member_is_given_up() {
        let table = planned(8);
        let give_up = |name: &str| {
            let request = AdminRequest::GiveUp { name: name.into() };
            administer(&table, table.members[0].id, request).expect_err("no member is silent")
        };
        let names: Vec<&str> = table.members.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(
            give_up("n99"),
            Problem::Drain(NotDrained::NoMember("n99".into(), names.join(", ")))
        );
        assert_eq!(
            give_up(names[0]),
            Problem::Answers {
                name: names[0].into(),
                former: None
            }
        );
    }
}
