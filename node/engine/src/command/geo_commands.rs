//! Commands on places (`geo`).

use super::collections::rest;
use super::description::{TWO_KEYS, key_and_stored};
use super::geo::{
    ANY, AROUND_MEMBER, DISTANCE, FAR_FIRST, IN_BOX, LETTERS, NEAR_FIRST, POSITIONS, SEARCH,
    STORE_DISTANCE, STORE_RADIUS, STORE_SEARCH, WITH_DISTANCE, WITH_POSITION, WITH_SCORE, floats,
};
use super::geohash::{GeoExtent, GeoPoint};
use super::sorted_sets::{ADD, COUNTS_CHANGED, ONLY_NEW, ONLY_OLD, adding};
use super::{
    Access, CommandCall, Description, ErrorText, NOT_A_FLOAT, ONE_KEY, ParseFn, Parsed, Rights,
    SYNTAX, Shape, command, is,
};
use crate::command::operation::Action;
use crate::command::procedure::Joint;
use crate::value::items::put;
use crate::value::types::sorted_set::{parse_score, stored_score};
use bytes::Bytes;

pub(super) const ROWS: &[Description<ParseFn>] = &[
    command("geoadd", "3.2.0", -5, "geo", "write denyoom")
        .on(ONE_KEY, Access::WRITE, "geo")
        .about(
            "Add one or more geospatial items in the geospatial index represented using a sorted \
             set",
        )
        .parse(add),
    command("geodist", "3.2.0", -4, "geo", "readonly")
        .on(ONE_KEY, Access::READ, "geo")
        .about("Returns the distance between two members of a geospatial index")
        .parse(distance),
    command("geohash", "3.2.0", -2, "geo", "readonly")
        .on(ONE_KEY, Access::READ, "geo")
        .about("Returns members of a geospatial index as standard geohash strings")
        .parse(|c| c.shaped(Action::call(&LETTERS, &[], [rest(c, 2)]), Shape::Tree)),
    command("geopos", "3.2.0", -2, "geo", "readonly")
        .on(ONE_KEY, Access::READ, "geo")
        .about("Returns longitude and latitude of members of a geospatial index")
        .parse(|c| c.shaped(Action::call(&POSITIONS, &[], [rest(c, 2)]), Shape::Tree)),
    command("georadius", "3.2.0", -6, "geo", "write denyoom movablekeys")
        .on(key_and_stored(5), STORES, "geo")
        .about(
            "Query a sorted set representing a geospatial index to fetch members matching a given \
             maximum distance from a point",
        )
        .parse(|c| around_point(c, true)),
    command("georadius_ro", "3.2.10", -6, "geo", "readonly")
        .on(ONE_KEY, Access::READ, "geo")
        .about("A read-only variant for GEORADIUS")
        .parse(|c| around_point(c, false)),
    command(
        "georadiusbymember",
        "3.2.0",
        -5,
        "geo",
        "write denyoom movablekeys",
    )
    .on(key_and_stored(5), STORES, "geo")
    .about(
        "Query a sorted set representing a geospatial index to fetch members matching a given \
         maximum distance from a member",
    )
    .parse(|c| around_member(c, true)),
    command("georadiusbymember_ro", "3.2.10", -5, "geo", "readonly")
        .on(ONE_KEY, Access::READ, "geo")
        .about("A read-only variant for GEORADIUSBYMEMBER")
        .parse(|c| around_member(c, false)),
    command("geosearch", "6.2.0", -7, "geo", "readonly")
        .on(ONE_KEY, Access::READ, "geo")
        .about(
            "Query a sorted set representing a geospatial index to fetch members inside an area of \
             a box or a circle",
        )
        .parse(|c| GeoQuery::default().search(c, 2, None)),
    command("geosearchstore", "6.2.0", -8, "geo", "write denyoom")
        .on(TWO_KEYS, Access::Pair(Rights::WRITE, Rights::READ), "geo")
        .about(
            "Query a sorted set representing a geospatial index to fetch members inside an area of \
             a box or a circle, and store the result in another key",
        )
        .parse(|c| GeoQuery::default().search(c, 3, Some(1))),
];

/// The first key is searched, and what is found is stored at the other one.
const STORES: Access = Access::Pair(Rights::READ, Rights::WRITE);

fn point(c: CommandCall<'_>, at: usize) -> Result<GeoPoint, ErrorText> {
    let coordinate = |at: usize| parse_score(c.args.get(at)).ok_or(NOT_A_FLOAT);
    let point = GeoPoint {
        longitude: coordinate(at)?,
        latitude: coordinate(at + 1)?,
    };
    if point.is_valid() {
        return Ok(point);
    }
    let (longitude, latitude) = (point.longitude, point.latitude);
    Err(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into())
}

/// The metres of the unit at this place.
fn unit(c: CommandCall<'_>, at: usize) -> Result<f64, ErrorText> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let unit = units.into_iter().find(|(name, _)| is(c.args.get(at), name));
    unit.map(|(_, metres)| metres)
        .ok_or_else(|| "ERR unsupported unit provided. please use M, KM, FT, MI".into())
}

fn add(c: CommandCall<'_>) -> Parsed {
    let options = [("NX", ONLY_NEW), ("XX", ONLY_OLD), ("CH", COUNTS_CHANGED)];
    let (flags, at) = adding(c, &options);
    let both = ONLY_NEW | ONLY_OLD;
    // What is left is for ZADD, and it takes no empty list.
    if at >= c.args.len() || !(c.args.len() - at).is_multiple_of(3) || flags & both == both {
        return Err(SYNTAX.into());
    }
    let mut given = Vec::new();
    for at in (at..c.args.len()).step_by(3) {
        let score = point(c, at)?.score();
        put(&mut given, c.args.get(at + 2));
        put(&mut given, &stored_score(score));
    }
    c.one(Action::call(&ADD, &[flags], [Bytes::from(given)]))
}

fn distance(c: CommandCall<'_>) -> Parsed {
    let unit = match c.args.len() {
        4 => 1.0,
        5 => unit(c, 4)?,
        _ => return Err(SYNTAX.into()),
    };
    let runs = [c.args.bytes(2), c.args.bytes(3), floats(&[unit])];
    c.shaped(Action::call(&DISTANCE, &[], runs.to_vec()), Shape::Tree)
}

fn around_point(c: CommandCall<'_>, stores: bool) -> Parsed {
    let mut query = GeoQuery {
        center: Some(point(c, 2)?),
        ..GeoQuery::default()
    };
    query.take_radius(c, 4)?;
    query.older(c, 6, stores)
}

fn around_member(c: CommandCall<'_>, stores: bool) -> Parsed {
    let mut query = GeoQuery {
        member: Some(c.args.bytes(2)),
        ..GeoQuery::default()
    };
    query.take_radius(c, 3)?;
    query.older(c, 5, stores)
}

/// What a search asks for.
#[derive(Debug, Default)]
struct GeoQuery {
    flags: i64,
    /// 0: all.
    most: i64,
    center: Option<GeoPoint>,
    member: Option<Bytes>,
    extent: Option<GeoExtent>,
    unit: f64,
    /// The place of the key at which what is found is stored.
    to: Option<usize>,
}

impl GeoQuery {
    fn take_radius(&mut self, c: CommandCall<'_>, at: usize) -> Result<(), ErrorText> {
        let radius = parse_score(c.args.get(at)).ok_or("ERR need numeric radius")?;
        if radius < 0.0 {
            return Err("ERR radius cannot be negative".into());
        }
        self.unit = unit(c, at + 1)?;
        self.flags &= !IN_BOX;
        self.extent = Some(GeoExtent::Radius(radius));
        Ok(())
    }

    fn take_box(&mut self, c: CommandCall<'_>, at: usize) -> Result<(), ErrorText> {
        let width = parse_score(c.args.get(at)).ok_or("ERR need numeric width")?;
        let height = parse_score(c.args.get(at + 1)).ok_or("ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err("ERR height or width cannot be negative".into());
        }
        self.unit = unit(c, at + 2)?;
        self.flags |= IN_BOX;
        self.extent = Some(GeoExtent::Box { width, height });
        Ok(())
    }

    /// Reads an option that all searches have. Returns where the next one is, or `None`: it is
    /// another one.
    fn take_option(&mut self, c: CommandCall<'_>, at: usize) -> Result<Option<usize>, ErrorText> {
        let option = c.args.get(at);
        let order = NEAR_FIRST | FAR_FIRST;
        match () {
            () if is(option, "WITHDIST") => self.flags |= WITH_DISTANCE,
            () if is(option, "WITHHASH") => self.flags |= WITH_SCORE,
            () if is(option, "WITHCOORD") => self.flags |= WITH_POSITION,
            () if is(option, "ANY") => self.flags |= ANY,
            () if is(option, "ASC") => self.flags = self.flags & !order | NEAR_FIRST,
            () if is(option, "DESC") => self.flags = self.flags & !order | FAR_FIRST,
            () if is(option, "COUNT") && at + 1 < c.args.len() => {
                self.most = c.number(at + 1)?;
                if self.most <= 0 {
                    return Err("ERR COUNT must be > 0".into());
                }
                return Ok(Some(at + 2));
            }
            () => return Ok(None),
        }
        Ok(Some(at + 1))
    }

    /// The request of a command whose options begin at this place, and which may store what it
    /// finds.
    fn older(mut self, c: CommandCall<'_>, from: usize, stores: bool) -> Parsed {
        let mut at = from;
        while at < c.args.len() {
            let option = c.args.get(at);
            if let Some(next) = self.take_option(c, at)? {
                at = next;
                continue;
            }
            let by_distance = is(option, "STOREDIST");
            if !stores || at + 1 >= c.args.len() || !(by_distance || is(option, "STORE")) {
                return Err(SYNTAX.into());
            }
            self.to = Some(at + 1);
            self.flags = (self.flags & !STORE_DISTANCE) | (i64::from(by_distance) * STORE_DISTANCE);
            at += 2;
        }
        self.request(c, 1, (&STORE_RADIUS, "STORE option in GEORADIUS"))
    }

    /// The request of a command whose options begin at this place, and which stores what it finds
    /// at the key at another one.
    fn search(mut self, c: CommandCall<'_>, from: usize, to: Option<usize>) -> Parsed {
        self.to = to;
        let mut at = from;
        while at < c.args.len() {
            let (option, left) = (c.args.get(at), c.args.len() - at - 1);
            if let Some(next) = self.take_option(c, at)? {
                at = next;
                continue;
            }
            let in_box = self.flags & IN_BOX != 0;
            at += match () {
                () if to.is_some() && is(option, "STOREDIST") => {
                    self.flags |= STORE_DISTANCE;
                    1
                }
                () if is(option, "FROMMEMBER") && left >= 1 && self.center.is_none() => {
                    self.member = Some(c.args.bytes(at + 1));
                    2
                }
                () if is(option, "FROMLONLAT") && left >= 2 && self.member.is_none() => {
                    self.center = Some(point(c, at + 1)?);
                    3
                }
                () if is(option, "BYRADIUS") && left >= 2 && !in_box => {
                    self.take_radius(c, at + 1)?;
                    3
                }
                () if is(option, "BYBOX") && left >= 3 && (in_box || self.extent.is_none()) => {
                    self.take_box(c, at + 1)?;
                    4
                }
                () => return Err(SYNTAX.into()),
            };
        }
        self.request(c, from - 1, (&STORE_SEARCH, "GEOSEARCHSTORE"))
    }

    /// The request on the key at this place. `storing` stores what it finds, and is called so.
    fn request(
        mut self,
        c: CommandCall<'_>,
        from: usize,
        storing: (&'static Joint, &str),
    ) -> Parsed {
        let with = WITH_DISTANCE | WITH_SCORE | WITH_POSITION;
        if self.to.is_some() && self.flags & with != 0 {
            let name = storing.1;
            let why = "is not compatible with WITHDIST, WITHHASH and WITHCOORD options";
            return Err(format!("ERR {name} {why}").into());
        }
        let name = String::from_utf8_lossy(c.args.get(0));
        let center = match (self.center, &self.member) {
            (Some(center), _) => center,
            (None, Some(_)) => {
                self.flags |= AROUND_MEMBER;
                GeoPoint {
                    longitude: 0.0,
                    latitude: 0.0,
                }
            }
            (None, None) => {
                let why = "exactly one of FROMMEMBER or FROMLONLAT can be specified for";
                return Err(format!("ERR {why} {name}").into());
            }
        };
        let (width, height) = match self.extent {
            Some(GeoExtent::Radius(radius)) => (radius, 0.0),
            Some(GeoExtent::Box { width, height }) => (width, height),
            None => {
                let why = "exactly one of BYRADIUS and BYBOX can be specified for";
                return Err(format!("ERR {why} {name}").into());
            }
        };
        if self.flags & ANY != 0 && self.most == 0 {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        // As in Redis, the nearest are answered if not all are.
        if self.most != 0 && self.flags & (NEAR_FIRST | FAR_FIRST | ANY) == 0 {
            self.flags |= NEAR_FIRST;
        }
        let shape = [center.longitude, center.latitude, self.unit, width, height];
        let mut runs = vec![self.member.unwrap_or_default(), floats(&shape)];
        match self.to {
            Some(to) => {
                runs.push(c.args.bytes(from));
                let action = Action::call(storing.0, &[self.flags, self.most], runs);
                c.of_key(to, action, Shape::Tree)
            }
            None => {
                let action = Action::call(&SEARCH, &[self.flags, self.most, 0], runs);
                c.of_key(from, action, Shape::Tree)
            }
        }
    }
}
