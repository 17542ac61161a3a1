//! The steps that move a member of a set to a set in another partition.
//!
//! ```text
//!   look at the source ──> put into the target ──> take out of the source ──> done
//!        ▲                                                 │ the member was written meanwhile
//!        └─────────────────────────────────────────────────┘ again
//! ```
//! The member is taken out last, so it may be seen in both sets, and is never in none. Two callers
//! may move it in opposite directions at the same time: each would rely on the copy that the other
//! one takes out. So putting is a write even if the member is there, and only a member that was not
//! written since the look is taken out.

use super::sets::REMOVE;
use crate::command::operation::{Action, stores};
use crate::command::procedure::{JOINT, Joint, Procedure, ProcedureCall, READS, WRITES, procedure};
use crate::command::rows::Rows;
use crate::store::collection::{CollectionView, Edit, FieldDeadline, UnpackedItems};
use crate::store::run_context;
use crate::value::items::{Pairs, packed};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::GATHERED;

pub(crate) static JOINTS: &[&Joint] = &[&LOOK, &PUT, &TAKE];

/// The first of these numbers.
const NUMBER: u16 = 280;

/// What a set knows of a member. → `Nil`: there is no set; `Many`: 1 or 0, whether it is there, and
/// the version of its last write
static LOOK: Joint = Joint {
    number: NUMBER,
    name: "set look",
    footprint: |_| READS,
    run: |inputs, (map, key), rows| {
        if rows.find(map, key).is_none() {
            return Outcome::Nil;
        }
        match version_of((map, key), &inputs.bytes[0], rows) {
            Ok(found) => Outcome::Many(vec![
                Outcome::Int(i64::from(found.is_some())),
                Outcome::Int(found.unwrap_or_default()),
            ]),
            Err(failure) => Outcome::Failed(failure),
        }
    },
    ..STEP
};

/// Adds a member, and writes it again if it is there. → `Int`, 1 if it is new
static PUT: Joint = Joint {
    number: NUMBER + 1,
    name: "set put",
    event: "sadd",
    footprint: |inputs| stores(&inputs.bytes[0]),
    run: |inputs, (map, key), rows| {
        let member = packed(std::iter::once(&*inputs.bytes[0]));
        rows.step(map, key, &Action::call(&WRITE, &[], [member]))
    },
    ..STEP
};

/// Removes a member, if its last write has this version. → `Int` 1; 0: it is absent; `Nil`: it was
/// written since
static TAKE: Joint = Joint {
    number: NUMBER + 2,
    name: "set take",
    event: "srem",
    // The last member leaves as one that is removed.
    event_of_others: Some("srem"),
    numbers: 1,
    footprint: |_| WRITES,
    run: |inputs, (map, key), rows| {
        let member = &inputs.bytes[0];
        match version_of((map, key), member, rows) {
            Ok(None) => Outcome::Int(0),
            Ok(Some(version)) if version != inputs.numbers[0] => Outcome::Nil,
            Ok(Some(_)) => {
                let member = packed(std::iter::once(&**member));
                rows.step(map, key, &Action::call(&REMOVE, &[], [member]))
            }
            Err(failure) => Outcome::Failed(failure),
        }
    },
    ..STEP
};

const STEP: Joint = Joint {
    kind: Some(Kind::Set),
    level: GATHERED,
    others: |runs| (runs == 1).then_some((0..0, 1)),
    ..JOINT
};

/// Adds members, and writes those again that are there. Only [`PUT`] calls it. → `Int`, how many
/// are new
static WRITE: Procedure = procedure(NUMBER + 3, "set write", Kind::Set, (0, 1))
    .costs(|_| WRITES)
    .on_fields(|inputs, _, _| {
        let given = Pairs::of(&inputs.bytes[0], false);
        (None, Edit::Set(given, FieldDeadline::Never))
    });

/// The version of a member's last write; in a small set that of the set's. `None`: it is absent.
///
/// # Errors
/// The key holds no set.
fn version_of(
    (map, key): (MapId, &[u8]),
    member: &[u8],
    rows: &mut Rows<'_>,
) -> Result<Option<i64>, Failure> {
    let (cx, unpacked) = (*rows.cx(), UnpackedItems::new());
    let held = rows.seen(map, key);
    if held.entry.is_some() && held.kind() != Kind::Set {
        return Err(Failure::WrongType);
    }
    let view = CollectionView::of(Kind::Set, held, &unpacked, &cx).ok_or(Failure::WrongType)?;
    if view.get(member).is_none() {
        return Ok(None);
    }
    let written = match held.table {
        Some(table) => table.row(member),
        None => held.entry,
    };
    Ok(run_context::version(written, &cx))
}

/// A command that moves a member of a set. The caller takes the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberMove {
    /// The key that has it.
    pub from: Bytes,
    /// The key that gets it.
    pub to: Bytes,
    member: Bytes,
}

/// What a set knows of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberFound {
    /// There is no set.
    NoSet,
    /// It is not there.
    No,
    /// It is there, and this is the version of its last write.
    Yes(i64),
}

impl MemberFound {
    /// What [`MemberMove::look`] answered.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Many(parts) => match parts[..] {
                [Outcome::Int(1), Outcome::Int(version)] => Self::Yes(version),
                _ => Self::No,
            },
            _ => Self::NoSet,
        }
    }
}

impl MemberMove {
    /// What a call on this key and another one moves, if it does.
    pub(super) fn of(call: &ProcedureCall, key: &Bytes) -> Option<Self> {
        let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        match &call.inputs.bytes[..] {
            [to, member] if call.called.number() == super::sets::MOVE.number => Some(Self {
                from: own(key),
                to: own(to),
                member: own(member),
            }),
            _ => None,
        }
    }

    /// Looks at one of the sets. → [`MemberFound::of`]
    #[must_use]
    pub fn look(&self) -> Action {
        Action::call(&LOOK, &[], [self.member.clone()])
    }

    /// Puts the member into the second set. → `Int`
    #[must_use]
    pub fn put(&self) -> Action {
        Action::call(&PUT, &[], [self.member.clone()])
    }

    /// Takes it out of the first set, if it has this version there. → `Int` 1 or 0, or `Nil`: it
    /// was written since the look
    #[must_use]
    pub fn take(&self, version: i64) -> Action {
        Action::call(&TAKE, &[version], [self.member.clone()])
    }
}
