//! What people asked for, as a step from one table to the next.

use super::super::api::AdminRequest;
use super::newcomers::bore;
use doyen_placement::planner;
use doyen_placement::{MapEntry, Member, MemberState, Table};

pub(super) type Administered = Result<(Option<Table>, Option<MapEntry>), String>;

fn changed(table: &Table, next: Result<Table, impl ToString>) -> Administered {
    let next = next.map_err(|why| why.to_string())?;
    Ok(((next != *table).then_some(next), None))
}

pub(super) fn administer(table: &Table, request: AdminRequest) -> Administered {
    let next = match request {
        AdminRequest::CreateMap { name, keyspace } => {
            let (next, entry) =
                planner::create_map(table, &name, &keyspace).map_err(|why| why.to_string())?;
            return Ok((next, Some(entry)));
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
            return Ok((
                Some(planner::apply(table, base, &goals).map_err(|why| why.to_string())?),
                None,
            ));
        }
        AdminRequest::Schedule(schedulers) => {
            let next = planner::schedule(table, schedulers);
            next.validate().map_err(|why| why.to_string())?;
            Ok((next != *table).then_some(next))
        }
        AdminRequest::Balance(change) => {
            let next = planner::balance(table, &change);
            next.validate().map_err(|why| why.to_string())?;
            return Ok(((next != *table).then_some(next), None));
        }
        AdminRequest::Cancel(partition) => {
            return changed(table, planner::cancel(table, partition));
        }
        AdminRequest::Drain { name } => return changed(table, planner::drain(table, &name)),
        AdminRequest::Fill { name } => return changed(table, planner::fill(table, &name)),
        AdminRequest::GiveUp { name } => {
            let member = planner::named(table, &name).map_err(|why| why.to_string())?;
            if member.state != MemberState::Silent {
                // A silent process is called otherwise since another one has its name.
                let former = |m: &Member| m.id != member.id && bore(m, &member.name);
                let dead = table
                    .members
                    .iter()
                    .find(|m| m.state == MemberState::Silent && former(m));
                let hint = dead
                    .map(|m| {
                        format!(
                            "; the one before it, which is waited for, is called {}",
                            m.name
                        )
                    })
                    .unwrap_or_default();
                return Err(format!(
                    "{name} answers: `doyen drain {name}` empties it, and then it may be stopped{hint}"
                ));
            }
            Ok(Some(planner::reset(table, member.id)))
        }
    };
    Ok((next.map_err(|why| why.to_string())?, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::fixtures::planned;

    #[test]
    fn who_is_to_be_given_up_is_a_member_that_does_not_answer() {
        let table = planned(8);
        let give_up = |name: &str| {
            administer(&table, AdminRequest::GiveUp { name: name.into() })
                .expect_err("nobody is waited for")
        };
        let names: Vec<&str> = table.members.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(
            give_up("n99"),
            format!("there is no member \"n99\": there are {}", names.join(", "))
        );
        assert!(give_up(names[0]).starts_with(&format!("{} answers: `doyen drain", names[0])));
    }
}
