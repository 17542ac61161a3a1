//! The numbered databases of Redis clients. Database 0 is map 0. Each of the others is a map of its
//! own.
//!
//! The numbers of these maps are reserved, so that nothing must be made, agreed on or looked up
//! before the first key. They are the last numbers that a map can have. The cluster numbers other
//! maps from 1 on, and would have to make four billion of them first.

use doyen_placement::MapId;

/// Number of databases on the plain port. The cluster-aware port has one, as in Redis Cluster.
pub const COUNT: usize = 16;

/// The map of a database, if there is such a database.
pub fn map(index: i64) -> Option<MapId> {
    match u32::try_from(index) {
        Ok(0) => Some(MapId(0)),
        Ok(n) if (n as usize) < COUNT => Some(MapId(u32::MAX - n)),
        _ => None,
    }
}

/// The maps of all, in order.
pub fn all() -> [MapId; COUNT] {
    std::array::from_fn(|n| {
        if n == 0 {
            MapId(0)
        } else {
            MapId(u32::MAX - n as u32)
        }
    })
}

/// The number of the database that this map is.
pub fn index(map: MapId) -> usize {
    all().iter().position(|m| *m == map).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_database_has_a_map_of_its_own() {
        let maps = all();
        for (n, map) in maps.into_iter().enumerate() {
            assert_eq!((super::map(n as i64), index(map)), (Some(map), n));
        }
        assert_eq!(std::collections::BTreeSet::from(maps).len(), COUNT);
        assert_eq!(
            [-1, 16, i64::from(u32::MAX), i64::MIN].map(super::map),
            [None; 4]
        );
    }
}
