use super::list_calls::{self as list, ListEnd};
use super::set_calls as set;
use super::sorted_set_calls::{self as sorted_set, SortedSlice};
use crate::command::operation::Action;
use crate::value::outcome::Outcome;
use bytes::Bytes;
use std::ops::Bound;

/// A call whose inputs a procedure does not take would only ask whether the key exists.
#[test]
fn each_call_has_the_inputs_that_its_procedure_takes() {
    let one = || std::iter::once(&b"a"[..]);
    let a = || Bytes::from_static(b"a");
    let scores = SortedSlice::Scores(Bound::Excluded(1.0), Bound::Unbounded);
    let mut all = vec![
        (true, set::add(one())),
        (true, set::remove(one())),
        (true, set::pop()),
        (false, set::has(a())),
        (false, set::length()),
        (false, set::page(0, 10)),
        (true, sorted_set::add([(&b"a"[..], 1.0)].into_iter())),
        (true, sorted_set::raise(b"a", 1.0)),
        (true, sorted_set::increase(b"a", 1.0)),
        (true, sorted_set::remove(b"a")),
        (false, sorted_set::score(a())),
        (false, sorted_set::rank(a(), true)),
        (false, sorted_set::length()),
        (false, list::length()),
        (false, list::get(-1)),
        (false, list::range(0, -1)),
        (true, list::set(0, a())),
        (true, list::trim(0, 1)),
        (true, list::remove(a(), Some(1))),
    ];
    for slice in [SortedSlice::Ranks(0, -1), scores] {
        all.push((true, sorted_set::remove_slice(slice)));
        all.push((false, sorted_set::count(slice)));
        all.push((false, sorted_set::range(slice, true, Some(3))));
    }
    for from in [ListEnd::Front, ListEnd::Back] {
        all.push((true, sorted_set::pop(from == ListEnd::Back, 1)));
        all.push((true, list::push(from, one())));
        all.push((true, list::pop(from)));
        for to in [ListEnd::Front, ListEnd::Back] {
            all.push((true, list::move_to(from, a(), to)));
        }
    }
    for (writes, action) in all {
        assert!(matches!(action, Action::Call(_)), "{action:?}");
        assert_eq!(action.is_write(), writes, "{action:?}");
    }
}

#[test]
fn outcomes_of_another_form_say_nothing() {
    for other in [Outcome::Ok, Outcome::Int(3)] {
        assert_eq!(sorted_set::score_of(&other), None);
        assert!(list::elements(&other).is_none());
        assert_eq!(sorted_set::scored(other), None);
    }
    assert_eq!(sorted_set::score_of(&Outcome::Nil), Some(None));
    assert_eq!(sorted_set::scored(Outcome::Many(vec![Outcome::Ok])), None);
    let nothing = list::elements(&Outcome::Nil).map(Iterator::count);
    assert_eq!(nothing, Some(0));
}
