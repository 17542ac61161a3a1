//! All commands, procedures and joints, by name and by number. A new family is a line here.

use super::description::{Description, ParseFn};
use super::procedure::{Called, Joint, Procedure};
use super::table::{CommandTable, Sorting, Spec};
use super::{
    bit_operations, bitfields, cached, conditional, dump, element_move, fenced, gather, geo,
    geo_commands, hashes, hyperloglogs, increase, keys, lcs, lists, member_move, queue, ranges,
    sets, several, sort, sorted_joints, sorted_sets, stream_claims, stream_groups, stream_reads,
    streams, strings, sync, transfer,
};
use crate::value::cause::By;
use crate::value::kind::Kind;

/// The commands on data, a slice for each family. Tables that have more commands begin with them.
pub const FAMILIES: &[&[Description<ParseFn>]] = &[
    bit_operations::ROWS,
    bitfields::ROWS,
    conditional::ROWS,
    dump::ROWS,
    geo_commands::ROWS,
    increase::ROWS,
    hashes::ROWS,
    hyperloglogs::ROWS,
    keys::ROWS,
    lcs::ROWS,
    lists::ROWS,
    ranges::ROWS,
    sets::ROWS,
    several::ROWS,
    sort::ROWS,
    sorted_joints::ROWS,
    sorted_sets::ROWS,
    stream_claims::ROWS,
    stream_groups::ROWS,
    stream_reads::ROWS,
    streams::ROWS,
    strings::ROWS,
];

/// The procedures that commands and the library call, a slice for each family.
static PROCEDURES: &[&[&Procedure]] = &[
    ranges::PROCEDURES,
    hashes::PROCEDURES,
    sets::PROCEDURES,
    sorted_sets::PROCEDURES,
    geo::PROCEDURES,
    lists::PROCEDURES,
    streams::PROCEDURES,
    stream_groups::PROCEDURES,
    stream_claims::PROCEDURES,
    stream_reads::PROCEDURES,
    bitfields::PROCEDURES,
    conditional::PROCEDURES,
    increase::PROCEDURES,
    cached::PROCEDURES,
    fenced::PROCEDURES,
    sync::PROCEDURES,
    queue::PROCEDURES,
];

/// The operations on several keys that commands call.
static JOINTS: &[&[&Joint]] = &[
    several::JOINTS,
    transfer::JOINTS,
    sets::JOINTS,
    dump::JOINTS,
    sorted_joints::JOINTS,
    lists::JOINTS,
    gather::JOINTS,
    geo::JOINTS,
    hyperloglogs::JOINTS,
    bit_operations::JOINTS,
    lcs::JOINTS,
    sort::JOINTS,
    element_move::JOINTS,
    member_move::JOINTS,
    stream_reads::JOINTS,
];

/// The commands on data.
pub static COMMANDS: CommandTable<ParseFn> = CommandTable::of(&SORTED);
static SORTED: [Spec<ParseFn>; count(FAMILIES)] = sorted();

const fn sorted() -> [Spec<ParseFn>; count(FAMILIES)] {
    let mut sorting = Sorting::of(FAMILIES[0][0]);
    let mut family = 0;
    while family < FAMILIES.len() {
        let mut row = 0;
        while row < FAMILIES[family].len() {
            sorting.add(FAMILIES[family][row]);
            row += 1;
        }
        family += 1;
    }
    sorting.finish()
}

/// How many commands these families have.
#[must_use]
pub const fn count<P>(families: &[&[Description<P>]]) -> usize {
    let (mut count, mut family) = (0, 0);
    while family < families.len() {
        count += families[family].len();
        family += 1;
    }
    count
}

impl Called {
    /// What has this number.
    pub(crate) fn of_number(number: u16) -> Option<Self> {
        let joints = JOINTS.iter().flat_map(|family| family.iter());
        let joint = |joint: &&&Joint| joint.number == number;
        Procedure::of_number(number)
            .map(Self::One)
            .or_else(|| joints.into_iter().find(joint).copied().map(Self::Several))
    }
}

impl Procedure {
    /// The procedure of this number.
    pub(crate) fn of_number(number: u16) -> Option<&'static Self> {
        let mut all = PROCEDURES.iter().flat_map(|family| family.iter());
        all.find(|procedure| procedure.number == number).copied()
    }
}

/// The procedure of a type that does this, by its name: `hash length`.
pub(super) fn procedure_of(kind: Kind, does: &str) -> Option<&'static Procedure> {
    let mut all = PROCEDURES.iter().flat_map(|family| family.iter());
    let named = |name: &str| {
        let rest = name.strip_prefix(kind.name());
        rest.and_then(|rest| rest.strip_prefix(' ')) == Some(does)
    };
    let found = all.find(|procedure| procedure.kind == kind && named(procedure.name));
    found.copied()
}

impl By {
    /// The name of the event that Redis tells of it, if it is not that of the change itself.
    #[must_use]
    pub fn event(self) -> Option<&'static str> {
        match self {
            Self::FIELD_EXPIRED => Some("hexpired"),
            Self::SET | Self::SET_FOR => Some("set"),
            Self::APPEND => Some("append"),
            Self::INCREASE => Some("incrby"),
            Self::INCREASE_FLOAT => Some("incrbyfloat"),
            Self::PERSIST => Some("persist"),
            Self::EXPIRE => Some("expire"),
            by => match by.called()? {
                Called::Several(joint) if by.is_of_other_key() => {
                    Some(joint.event_of_others.unwrap_or(joint.event))
                }
                called => called.event(),
            },
        }
    }

    /// The name of the event that Redis tells of it before `del`, if it has taken the last field of
    /// a collection, and its kind.
    #[must_use]
    pub fn emptied(self) -> Option<(&'static str, Kind)> {
        let (event, kind) = match self.called()? {
            Called::One(procedure) => (procedure.event, procedure.kind),
            Called::Several(joint) => {
                // One that stores a result tells only that its former value is gone.
                joint.event_of_others?;
                (Some(joint.event), joint.kind?)
            }
        };
        let event = event.unwrap_or(kind.events().removed);
        kind.has_rows().then_some((event, kind))
    }

    fn called(self) -> Option<Called> {
        Called::of_number(self.procedure_number()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_procedure_has_a_number_of_its_own() {
        let all: Vec<_> = PROCEDURES.iter().flat_map(|family| family.iter()).collect();
        let numbers: BTreeSet<u16> = all.iter().map(|procedure| procedure.number).collect();
        assert_eq!(numbers.len(), all.len());
        let joints: Vec<_> = JOINTS.iter().flat_map(|family| family.iter()).collect();
        let both = joints.iter().map(|joint| joint.number);
        let both: BTreeSet<u16> = both.chain(numbers).collect();
        assert_eq!(both.len(), all.len() + joints.len());
        for number in both {
            let called = Called::of_number(number).map(Called::number);
            assert_eq!(called, Some(number));
        }
        for procedure in all {
            let found = Procedure::of_number(procedure.number).map(|found| found.name);
            assert_eq!(found, Some(procedure.name));
        }
        assert!(Procedure::of_number(u16::MAX).is_none());
    }
}
