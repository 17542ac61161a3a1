//! Members that went, and are remembered.

use crate::common::*;
use doyen_placement::planner::{forget, note_gone};
use doyen_placement::table::annex::{GONE_MAX, GoneMember};
use doyen_placement::{MemberId, MemberState, Table};
use std::sync::Arc;

fn without(table: &Table, id: u64) -> Table {
    let mut next = table.clone();
    next.members.retain(|m| m.id != MemberId(id));
    next
}

fn gone(table: &Table) -> Vec<(&str, GoneMember)> {
    table
        .annex
        .gone
        .iter()
        .map(|gone| (&*gone.name, gone.why))
        .collect()
}

/// Regression: a machine that died was missed by no alert once the others had its copies.
#[test]
fn the_table_remembers_members_that_went_until_one_of_their_name_is_there() {
    let table = cluster(4, 0, &[PLAIN; 3]);
    let [first, second, third] = [0, 1, 2].map(|n: usize| table.members[n].clone());
    assert_eq!(note_gone(&table, &table), None);
    let after = without(&table, first.id.0);
    let noted = note_gone(&table, &after).expect("it went");
    assert_eq!(gone(&noted), [(&*first.name, GoneMember::Silent)]);
    assert_eq!(note_gone(&after, &noted), None, "it is known");

    // Another one leaves in order.
    let mut leaving = noted.clone();
    let place = leaving
        .members
        .iter()
        .position(|m| m.id == second.id)
        .expect("there");
    Arc::make_mut(&mut leaving.members[place]).state = MemberState::Leaving;
    let left = note_gone(&leaving, &without(&leaving, second.id.0)).expect("it went");
    let both = [
        (&*first.name, GoneMember::Silent),
        (&*second.name, GoneMember::Left),
    ];
    assert_eq!(gone(&left), both);

    // A process of its name is there.
    let mut back = left.clone();
    Arc::make_mut(&mut back.members[0]).name = first.name.clone();
    assert_eq!(back.members[0].id, third.id);
    let known = note_gone(&left, &back).expect("it is back");
    assert_eq!(gone(&known), [(&*second.name, GoneMember::Left)]);

    // A process whose name a newcomer took is not missed.
    let mut former = left.clone();
    Arc::make_mut(&mut former.members[0]).name = "n9~3".into();
    assert_eq!(note_gone(&former, &without(&former, third.id.0)), None);
}

#[test]
fn the_last_departures_are_kept_and_can_be_forgotten() {
    let mut now = cluster(4, 0, &[PLAIN]);
    for n in 0..GONE_MAX + 10 {
        let mut before = now.clone();
        let mut member = (*before.members[0]).clone();
        (member.id, member.name) = (MemberId(1600 + 16 * n as u64), format!("m{n}"));
        before.members.push(member.into());
        now = note_gone(&before, &now).expect("one more went");
    }
    assert_eq!(now.annex.gone.len(), GONE_MAX);
    assert_eq!(now.annex.gone[0].name, "m10");
    let forgotten = forget(&now, "m10").expect("it is known");
    assert_eq!(forgotten.annex.gone[0].name, "m11");
    let why = forget(&forgotten, "m10")
        .expect_err("it is forgotten")
        .to_string();
    assert!(
        why.contains("no member \"m10\" is remembered") && why.contains("m11"),
        "{why}"
    );
}
