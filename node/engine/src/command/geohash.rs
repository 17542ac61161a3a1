//! Places on the earth as Redis keeps them: a cell of a grid of 2^26 by 2^26, as a number of 52
//! bits, which is the score of a member.
//!
//! ```text
//!   longitude, latitude ──> bits of both in turn ──> score
//!   a circle or a box ──> 9 larger cells ──> 9 ranges of scores
//! ```
//! All numbers are computed in the order in which Redis does it, so that scores, positions and
//! distances are the same to the last digit.

use std::ops::Range;

/// The limits of what has a place (EPSG:3857).
const LONGITUDES: (f64, f64) = (-180.0, 180.0);
const LATITUDES: (f64, f64) = (-85.051_128_78, 85.051_128_78);
/// The latitudes of geohashes outside of Redis.
const ALL_LATITUDES: (f64, f64) = (-90.0, 90.0);
const EARTH_RADIUS: f64 = 6_372_797.560_856;
/// Half of the circumference, in metres.
const MERCATOR_MAX: f64 = 20_037_726.37;
/// The digits of a place in each direction.
const STEPS_MAX: u32 = 26;
/// Scores are below this, if 64 bits hold them: 2^64.
const SCORES: f64 = 18_446_744_073_709_551_616.0;
const LONGITUDE_BITS: u64 = 0xAAAA_AAAA_AAAA_AAAA;
const LATITUDE_BITS: u64 = !LONGITUDE_BITS;
const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// A longitude and a latitude in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct GeoPoint {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

impl GeoPoint {
    /// Whether Redis takes it.
    pub(super) fn is_valid(self) -> bool {
        (LONGITUDES.0..=LONGITUDES.1).contains(&self.longitude)
            && (LATITUDES.0..=LATITUDES.1).contains(&self.latitude)
    }

    /// Its score. It is whole, and a double holds it exactly.
    pub(super) fn score(self) -> f64 {
        GeoCell::of(self, STEPS_MAX, LATITUDES).bits as f64
    }

    /// The middle of the cell of a score.
    pub(super) fn of_score(score: f64) -> Self {
        // A score below 0 is no cell. Redis makes the last one of it, and the first one of a score
        // that no 64 bits hold.
        let bits = if score < 0.0 {
            (score as i64).cast_unsigned()
        } else if score < SCORES {
            score as u64
        } else {
            0
        };
        let cell = GeoCell {
            bits,
            steps: STEPS_MAX,
        };
        let area = cell.area();
        let middle = |(least, most): (f64, f64), within: (f64, f64)| {
            f64::midpoint(least, most).clamp(within.0, within.1)
        };
        Self {
            longitude: middle(area.longitudes, LONGITUDES),
            latitude: middle(area.latitudes, LATITUDES),
        }
    }

    /// The eleven letters that other programs know it by.
    pub(super) fn letters(self) -> [u8; 11] {
        let bits = GeoCell::of(self, STEPS_MAX, ALL_LATITUDES).bits;
        // There are 52 bits, and so ten letters. Redis writes a zero behind them.
        let mut letters = [ALPHABET[0]; 11];
        for (at, letter) in letters.iter_mut().take(10).enumerate() {
            *letter = ALPHABET[(bits >> (52 - (at + 1) * 5)) as usize & 0x1F];
        }
        letters
    }

    /// How far another point is, in metres, on a ball.
    pub(super) fn distance(self, other: Self) -> f64 {
        let longitude = (radians(other.longitude) - radians(self.longitude)) / 2.0;
        let across = longitude.sin();
        if across == 0.0 {
            return latitudes_apart(self.latitude, other.latitude);
        }
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let up = ((to - from) / 2.0).sin();
        let part = up * up + from.cos() * to.cos() * across * across;
        2.0 * EARTH_RADIUS * part.sqrt().asin()
    }
}

const RADIANS: f64 = std::f64::consts::PI / 180.0;

fn radians(degrees: f64) -> f64 {
    degrees * RADIANS
}

fn degrees(radians: f64) -> f64 {
    radians / RADIANS
}

fn latitudes_apart(one: f64, other: f64) -> f64 {
    EARTH_RADIUS * (radians(other) - radians(one)).abs()
}

/// What is searched, around a point. Lengths are in the unit that has this many metres.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct GeoShape {
    pub(super) center: GeoPoint,
    pub(super) extent: GeoExtent,
    pub(super) unit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum GeoExtent {
    Radius(f64),
    Box { width: f64, height: f64 },
}

impl GeoShape {
    /// How far a point of it is from its center, in metres. `None`: the point is outside.
    pub(super) fn distance_within(&self, point: GeoPoint) -> Option<f64> {
        match self.extent {
            GeoExtent::Radius(radius) => {
                let distance = self.center.distance(point);
                // Nothing is outside of a radius that is no number, as in Redis.
                let outside = distance > radius * self.unit;
                (!outside).then_some(distance)
            }
            GeoExtent::Box { width, height } => {
                let up = latitudes_apart(point.latitude, self.center.latitude);
                let beside = GeoPoint {
                    latitude: point.latitude,
                    ..self.center
                };
                let outside = up > height * self.unit / 2.0
                    || point.distance(beside) > width * self.unit / 2.0;
                (!outside).then(|| self.center.distance(point))
            }
        }
    }

    /// The longitudes and latitudes that it touches.
    fn bounds(&self) -> GeoArea {
        let (width, height) = match self.extent {
            GeoExtent::Radius(radius) => (self.unit * radius, self.unit * radius),
            GeoExtent::Box { width, height } => {
                (self.unit * (width / 2.0), self.unit * (height / 2.0))
            }
        };
        let GeoPoint {
            longitude,
            latitude,
        } = self.center;
        let up = degrees(height / EARTH_RADIUS);
        // The edge that is nearer to a pole is the shorter one.
        let edge = if latitude < 0.0 {
            latitude - up
        } else {
            latitude + up
        };
        let across = degrees(width / EARTH_RADIUS / radians(edge).cos());
        GeoArea {
            longitudes: (longitude - across, longitude + across),
            latitudes: (latitude - up, latitude + up),
        }
    }

    /// The size at which nine cells cover it, mostly.
    fn steps(&self) -> u32 {
        let mut metres = self.unit
            * match self.extent {
                GeoExtent::Radius(radius) => radius,
                GeoExtent::Box { width, height } => {
                    ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
                }
            };
        if metres == 0.0 {
            return STEPS_MAX;
        }
        let mut steps = -1;
        // Two more than are used, and two for latitudes. A peer may send any numbers.
        while metres < MERCATOR_MAX && steps < STEPS_MAX.cast_signed() + 4 {
            metres *= 2.0;
            steps += 1;
        }
        // Cells are narrower near the poles.
        let latitude = self.center.latitude.abs();
        steps -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        u32::try_from(steps).unwrap_or(0).clamp(1, STEPS_MAX)
    }

    /// The ranges of scores of the cells that cover it, in the order in which Redis reads them.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<f64>> + use<> {
        let bounds = self.bounds();
        let mut steps = self.steps();
        let mut cell = GeoCell::of(self.center, steps, LATITUDES);
        let is_covered = |cell: GeoCell| {
            let at = |east, north| cell.beside(east, north).area();
            !(at(0, 1).latitudes.1 < bounds.latitudes.1
                || at(0, -1).latitudes.0 > bounds.latitudes.0
                || at(1, 0).longitudes.1 < bounds.longitudes.1
                || at(-1, 0).longitudes.0 > bounds.longitudes.0)
        };
        if steps > 1 && !is_covered(cell) {
            steps -= 1;
            cell = GeoCell::of(self.center, steps, LATITUDES);
        }
        // Cells on a side on which the middle one is enough are left out.
        let area = cell.area();
        let is_useless = |(east, north)| {
            steps >= 2
                && (north < 0 && area.latitudes.0 < bounds.latitudes.0
                    || north > 0 && area.latitudes.1 > bounds.latitudes.1
                    || east < 0 && area.longitudes.0 < bounds.longitudes.0
                    || east > 0 && area.longitudes.1 > bounds.longitudes.1)
        };
        let beside = BESIDE.into_iter().enumerate();
        let mut cells: Vec<GeoCell> = Vec::new();
        let mut last = None;
        for (place, (east, north)) in beside {
            let next = cell.beside(east, north);
            // Around a large shape, neighbours are the same cell.
            if is_useless((east, north)) || last == Some(next) {
                continue;
            }
            // As in Redis, the middle one is not compared.
            last = (place > 0).then_some(next);
            cells.push(next);
        }
        cells.into_iter().map(GeoCell::scores)
    }
}

/// The order of the cells: east and north of the middle one.
const BESIDE: [(i8, i8); 9] = [
    (0, 0),
    (0, 1),
    (0, -1),
    (1, 0),
    (-1, 0),
    (1, 1),
    (-1, 1),
    (1, -1),
    (-1, -1),
];

/// A part of the earth.
#[derive(Debug, Clone, Copy)]
struct GeoArea {
    longitudes: (f64, f64),
    latitudes: (f64, f64),
}

/// A cell of a grid of 2^steps by 2^steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GeoCell {
    bits: u64,
    steps: u32,
}

impl GeoCell {
    fn of(point: GeoPoint, steps: u32, latitudes: (f64, f64)) -> Self {
        let size = (1_u64 << steps) as f64;
        let place =
            |at: f64, (least, most): (f64, f64)| ((at - least) / (most - least) * size) as u32;
        let (x, y) = (
            place(point.latitude, latitudes),
            place(point.longitude, LONGITUDES),
        );
        Self {
            bits: spread(x) | spread(y) << 1,
            steps,
        }
    }

    fn area(self) -> GeoArea {
        let size = (1_u64 << self.steps) as f64;
        let edges = |place: u32, (least, most): (f64, f64)| {
            let edge = |at: u32| least + (f64::from(at) / size) * (most - least);
            (edge(place), edge(place.wrapping_add(1)))
        };
        GeoArea {
            longitudes: edges(gathered(self.bits >> 1), LONGITUDES),
            latitudes: edges(gathered(self.bits), LATITUDES),
        }
    }

    /// The cell that is one further east or west (-1), and north or south (-1). Beyond an end of
    /// the earth, the other one follows.
    fn beside(self, east: i8, north: i8) -> Self {
        let unused = 64 - self.steps * 2;
        let moved = |bits: u64, (own, others): (u64, u64), by: i8| {
            let (bits, filled) = (bits & own, others >> unused);
            let moved = match by {
                0 => return bits,
                1.. => bits.wrapping_add(filled.wrapping_add(1)),
                _ => (bits | filled).wrapping_sub(filled.wrapping_add(1)),
            };
            moved & (own >> unused)
        };
        Self {
            bits: moved(self.bits, (LONGITUDE_BITS, LATITUDE_BITS), east)
                | moved(self.bits, (LATITUDE_BITS, LONGITUDE_BITS), north),
            steps: self.steps,
        }
    }

    /// The scores within it. The last one is outside.
    fn scores(self) -> Range<f64> {
        let score = |bits: u64| (bits << (52 - self.steps * 2)) as f64;
        score(self.bits)..score(self.bits.wrapping_add(1))
    }
}

const SPREADING: [(u32, u64); 5] = [
    (16, 0x0000_FFFF_0000_FFFF),
    (8, 0x00FF_00FF_00FF_00FF),
    (4, 0x0F0F_0F0F_0F0F_0F0F),
    (2, 0x3333_3333_3333_3333),
    (1, 0x5555_5555_5555_5555),
];

/// Its bits at every second place.
fn spread(number: u32) -> u64 {
    let spread = |bits: u64, (by, mask): (u32, u64)| (bits | bits << by) & mask;
    SPREADING.into_iter().fold(u64::from(number), spread)
}

/// The bits at every second place.
fn gathered(bits: u64) -> u32 {
    let gather = |bits: u64, (by, mask): (u32, u64)| (bits | bits >> by) & mask;
    let folds = [
        (1, SPREADING[3].1),
        (2, SPREADING[2].1),
        (4, SPREADING[1].1),
        (8, SPREADING[0].1),
        (16, 0xFFFF_FFFF),
    ];
    folds.into_iter().fold(bits & SPREADING[4].1, gather) as u32
}

/// A coordinate as Redis writes it: with up to 17 digits behind the point.
pub(super) fn coordinate_text(coordinate: f64) -> String {
    let text = format!("{coordinate:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

/// A distance as Redis writes it: with four digits behind the point.
pub(super) fn distance_text(distance: f64) -> String {
    let scaled = (distance * 10_000.0).round_ties_even() as i64;
    let sign = if scaled < 0 { "-" } else { "" };
    let scaled = scaled.unsigned_abs();
    format!("{sign}{}.{:04}", scaled / 10_000, scaled % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The numbers are those of valkey-server 7.2.7. The replies of all commands are compared at
    /// the port of clients.
    #[test]
    fn places_have_the_scores_positions_and_letters_of_redis() {
        let palermo = GeoPoint {
            longitude: 13.361_389,
            latitude: 38.115_556,
        };
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        let kept = GeoPoint::of_score(palermo.score());
        assert_eq!(coordinate_text(kept.longitude), "13.36138933897018433");
        assert_eq!(coordinate_text(kept.latitude), "38.11555639549629859");
        assert_eq!(&kept.letters(), b"sqc8b49rny0");
        let corner = GeoPoint {
            longitude: 180.0,
            latitude: LATITUDES.1,
        };
        assert_eq!(corner.score(), 13_510_798_882_111_488.0);
        for score in [-1.0, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert!(GeoPoint::of_score(score).is_valid());
        }
        assert_eq!(GeoPoint::of_score(f64::INFINITY), GeoPoint::of_score(0.0));
        assert_eq!(distance_text(-0.01), "-0.0100");
        assert_eq!(distance_text(f64::INFINITY), "922337203685477.5807");
    }

    proptest! {
        #[test]
        fn what_is_near_is_in_one_of_the_ranges(
            (longitude, latitude) in (-170.0..170.0, -60.0..60.0),
            (east, north) in (-1.0..1.0, -1.0..1.0),
            metres in 1.0..500_000.0,
        ) {
            let center = GeoPoint { longitude, latitude };
            let degrees = metres / 120_000.0;
            let point = GeoPoint {
                longitude: longitude + east * degrees,
                latitude: latitude + north * degrees,
            };
            let extent = GeoExtent::Radius(metres);
            let shape = GeoShape { center, extent, unit: 1.0 };
            let score = point.score();
            let near = shape.distance_within(GeoPoint::of_score(score)).is_some();
            let found = shape.ranges().filter(|range| range.contains(&score)).count();
            prop_assert!(!near || found == 1);
        }

        #[test]
        fn no_shape_is_too_strange(numbers: [f64; 6], boxed: bool) {
            let [longitude, latitude, width, height, unit, score] = numbers;
            let extent = if boxed {
                GeoExtent::Box { width, height }
            } else {
                GeoExtent::Radius(width)
            };
            let center = GeoPoint { longitude, latitude };
            let shape = GeoShape { center, extent, unit };
            prop_assert!(shape.ranges().count() <= 9);
            let _ = shape.distance_within(GeoPoint::of_score(score));
        }
    }
}
