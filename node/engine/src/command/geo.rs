//! Searches among places: sorted sets whose scores are cells of the earth (`geohash`). Their
//! commands are in `geo_commands`.

use super::collections::{CollectionDone, TOO_LARGE, store_fields};
use super::geohash::{GeoExtent, GeoPoint, GeoShape, coordinate_text, distance_text};
use super::reply_tree::ReplyTree;
use super::sorted_ranges::{Ordered, ScoredAnswer};
use crate::command::operation::Footprint;
use crate::command::procedure::{Inputs, JOINT, Joint, Procedure, WRITES, procedure, values};
use crate::command::rows::Rows;
use crate::store::collection::{self, CollectionView, Edit, UnpackedItems};
use crate::store::run_context::RunContext;
use crate::value::items::{Items, put};
use crate::value::kind::Kind;
use crate::value::outcome::{Failure, Outcome};
use crate::value::types::sorted_set::{score_of, stored_score};
use bytes::Bytes;
use doyen_placement::MapId;
use doyen_placement::level::SORTED;

pub(crate) static PROCEDURES: &[&Procedure] = &[&POSITIONS, &LETTERS, &DISTANCE, &SEARCH];

pub(crate) static JOINTS: &[&Joint] = &[&STORE_SEARCH, &STORE_RADIUS];

/// The first of these numbers.
const NUMBER: u16 = 290;

/// The positions of members. → a tree
pub(super) static POSITIONS: Procedure =
    procedure(NUMBER, "geo positions", Kind::SortedSet, (0, 1))
        .costs(values)
        .on_fields(|inputs, view, cx| {
            each_member(inputs, view, cx, |tree, point| match point {
                Some(point) => put_position(tree, point),
                None => tree.nil_array(),
            })
        });

/// The geohashes of members. → a tree
pub(super) static LETTERS: Procedure =
    procedure(NUMBER + 1, "geo letters", Kind::SortedSet, (0, 1))
        .costs(values)
        .on_fields(|inputs, view, cx| {
            each_member(inputs, view, cx, |tree, point| match point {
                Some(point) => tree.bulk(&point.letters()),
                None => tree.nil(),
            })
        });

/// The distance of two members, in a unit whose metres are the last run. → a tree
pub(super) static DISTANCE: Procedure =
    procedure(NUMBER + 2, "geo distance", Kind::SortedSet, (0, 3)).on_fields(|inputs, view, _| {
        let [one, other, unit] = &inputs.bytes[..] else {
            return (Some(Outcome::Nil), Edit::None);
        };
        let mut tree = ReplyTree::new();
        match (point_of(view, one), point_of(view, other)) {
            (Some(one), Some(other)) => {
                let distance = one.distance(other) / Floats(unit).next().unwrap_or(1.0);
                tree.bulk(distance_text(distance).as_bytes());
            }
            _ => tree.nil(),
        }
        (Some(tree.outcome()), Edit::None)
    });

/// The members within a shape. The numbers: flags, the most that are answered (0: all), and whether
/// they are to be stored (1). The runs: a member, and the numbers of the shape. → a tree, or
/// `Many`: what is to be stored, each with its score
pub(super) static SEARCH: Procedure = procedure(NUMBER + 3, "geo search", Kind::SortedSet, (3, 2))
    .costs(values)
    .on_fields(|inputs, view, cx| {
        let outcome = match found(inputs, view) {
            Ok(found) if inputs.numbers[2] == 1 => {
                let mut answer = ScoredAnswer::new(true);
                let mut scored = found.iter().map(|hit| (hit.member, hit.stored(inputs)));
                if scored.all(|(member, score)| answer.take((member, &score), cx)) {
                    answer.outcome()
                } else {
                    Outcome::Failed(Failure::TooLarge)
                }
            }
            Ok(found) => answered(inputs, &found, cx),
            Err(refused) => refused,
        };
        (Some(outcome), Edit::None)
    });

/// Gives the key what is found in another one; deletes it if that is nothing. The numbers and runs
/// are those of `SEARCH` without the last number, and the other key. → `Int`, how many members, or
/// a tree: an error
pub(super) static STORE_SEARCH: Joint = Joint {
    number: NUMBER + 4,
    name: "geo store search",
    event: "geosearchstore",
    kind: Some(Kind::SortedSet),
    level: SORTED,
    numbers: 2,
    others: |runs| (runs == 3).then_some((2..3, 1)),
    footprint: |inputs| Footprint {
        given: inputs.given(),
        stores: inputs.given().bytes,
        ..WRITES
    },
    run: store_found,
    ..JOINT
};

/// The same for an older command.
pub(super) static STORE_RADIUS: Joint = Joint {
    number: NUMBER + 5,
    name: "geo store radius",
    event: "georadiusstore",
    ..STORE_SEARCH
};

fn store_found(inputs: &Inputs, key: (MapId, &[u8]), rows: &mut Rows<'_>) -> Outcome {
    let (cx, unpacked) = (*rows.cx(), UnpackedItems::new());
    let held = rows.seen(key.0, &inputs.bytes[2]);
    if held.entry.is_some() && held.kind() != Kind::SortedSet {
        return Outcome::Failed(Failure::WrongType);
    }
    let Some(view) = CollectionView::of(Kind::SortedSet, held, &unpacked, &cx) else {
        return Outcome::Failed(Failure::WrongType);
    };
    let mut members = Vec::new();
    match found(inputs, view) {
        Ok(found) => {
            for hit in found {
                put(&mut members, hit.member);
                put(&mut members, &hit.stored(inputs));
            }
        }
        Err(refused) => return refused,
    }
    store_fields(key, (Kind::SortedSet, &members), rows)
}

/// What a search asks for: bits of its first number.
pub(super) const WITH_DISTANCE: i64 = 1;
pub(super) const WITH_SCORE: i64 = 2;
pub(super) const WITH_POSITION: i64 = 4;
pub(super) const NEAR_FIRST: i64 = 8;
pub(super) const FAR_FIRST: i64 = 16;
/// It ends once it has found enough.
pub(super) const ANY: i64 = 32;
pub(super) const IN_BOX: i64 = 64;
/// The center is where a member is.
pub(super) const AROUND_MEMBER: i64 = 128;
/// What is stored has its distance as its score.
pub(super) const STORE_DISTANCE: i64 = 256;

/// Numbers in a run of bytes.
struct Floats<'a>(&'a [u8]);

impl Iterator for Floats<'_> {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f64::from_le_bytes(*number))
    }
}

/// The run of bytes of numbers.
pub(super) fn floats(numbers: &[f64]) -> Bytes {
    let bytes: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    bytes.into()
}

fn point_of(view: CollectionView<'_>, member: &[u8]) -> Option<GeoPoint> {
    let score = view.get(member).map(score_of);
    score.map(GeoPoint::of_score)
}

fn put_position(tree: &mut ReplyTree, point: GeoPoint) {
    tree.array(2);
    tree.double(coordinate_text(point.longitude).as_bytes());
    tree.double(coordinate_text(point.latitude).as_bytes());
}

/// Answers something for each member of the run.
fn each_member<'a>(
    inputs: &'a Inputs,
    view: CollectionView<'a>,
    cx: &RunContext,
    put: impl Fn(&mut ReplyTree, Option<GeoPoint>),
) -> CollectionDone<'a> {
    let (members, mut tree) = (Items(&inputs.bytes[0]), ReplyTree::new());
    tree.array(Items(&inputs.bytes[0]).count());
    for member in members {
        put(&mut tree, point_of(view, member));
        if tree.len() > collection::answer_max(cx) {
            return TOO_LARGE;
        }
    }
    (Some(tree.outcome()), Edit::None)
}

/// A member within a shape.
#[derive(Debug, Clone, Copy)]
struct GeoHit<'a> {
    member: &'a [u8],
    score: f64,
    point: GeoPoint,
    /// How far it is from the center, in the unit of the shape.
    distance: f64,
}

impl GeoHit<'_> {
    /// The score with which it is stored.
    fn stored(&self, inputs: &Inputs) -> [u8; 8] {
        let by_distance = inputs.numbers[0] & STORE_DISTANCE != 0;
        stored_score(if by_distance {
            self.distance
        } else {
            self.score
        })
    }
}

/// The shape that inputs say. `None`: its center is a member that is not there.
fn shape_of(inputs: &Inputs, view: CollectionView<'_>) -> Option<GeoShape> {
    let flags = inputs.numbers[0];
    let mut numbers = Floats(&inputs.bytes[1]);
    let [longitude, latitude, unit, width, height] =
        std::array::from_fn(|_| numbers.next().unwrap_or(0.0));
    let given = GeoPoint {
        longitude,
        latitude,
    };
    let center = if flags & AROUND_MEMBER == 0 {
        given
    } else {
        point_of(view, &inputs.bytes[0])?
    };
    let extent = if flags & IN_BOX == 0 {
        GeoExtent::Radius(width)
    } else {
        GeoExtent::Box { width, height }
    };
    Some(GeoShape {
        center,
        extent,
        unit,
    })
}

/// What a search finds.
///
/// # Errors
/// The outcome that says why it is not made.
fn found<'a>(inputs: &Inputs, view: CollectionView<'a>) -> Result<Vec<GeoHit<'a>>, Outcome> {
    if view.len() == 0 {
        return Ok(Vec::new());
    }
    let refused = || ReplyTree::error("ERR could not decode requested zset member");
    let shape = shape_of(inputs, view).ok_or_else(refused)?;
    let flags = inputs.numbers[0];
    let most = usize::try_from(inputs.numbers[1]).unwrap_or(0);
    let most = if most == 0 { usize::MAX } else { most };
    let enough = if flags & ANY == 0 { usize::MAX } else { most };
    let (ordered, mut hits) = (Ordered::of(view), Vec::new());
    for scores in shape.ranges() {
        let (least, end) = (stored_score(scores.start), stored_score(scores.end));
        let first = ordered.len_while(|(_, score)| *score < least[..]);
        let within = ordered.from(first, false);
        for (member, score) in within.take_while(|(_, score)| **score < end[..]) {
            if hits.len() >= enough {
                break;
            }
            let score = score_of(score);
            let point = GeoPoint::of_score(score);
            if let Some(metres) = shape.distance_within(point) {
                hits.push(GeoHit {
                    member,
                    score,
                    point,
                    distance: metres / shape.unit,
                });
            }
        }
    }
    if flags & (NEAR_FIRST | FAR_FIRST) != 0 {
        hits.iter().all(|_| view.budget().sort());
        hits.sort_by(|one, other| {
            let order = one.distance.total_cmp(&other.distance);
            if flags & FAR_FIRST == 0 {
                order
            } else {
                order.reverse()
            }
        });
    }
    hits.truncate(most);
    Ok(hits)
}

/// The answer of a search.
fn answered(inputs: &Inputs, found: &[GeoHit<'_>], cx: &RunContext) -> Outcome {
    let has = |flag: i64| inputs.numbers[0] & flag != 0;
    let parts = [WITH_DISTANCE, WITH_SCORE, WITH_POSITION];
    let parts = parts.into_iter().filter(|flag| has(*flag)).count();
    let mut tree = ReplyTree::new();
    tree.array(found.len());
    for hit in found {
        if parts > 0 {
            tree.array(1 + parts);
        }
        tree.bulk(hit.member);
        if has(WITH_DISTANCE) {
            tree.bulk(distance_text(hit.distance).as_bytes());
        }
        if has(WITH_SCORE) {
            tree.int(hit.score as i64);
        }
        if has(WITH_POSITION) {
            put_position(&mut tree, hit.point);
        }
        if tree.len() > collection::answer_max(cx) {
            return Outcome::Failed(Failure::TooLarge);
        }
    }
    tree.outcome()
}
