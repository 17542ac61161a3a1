//! The numbered databases of Redis clients. Each is a map whose number is reserved
//! ([`MapId::database`]).

use doyen_placement::MapId;

/// Number of databases on the plain port. The cluster-aware port has one, as in Redis Cluster.
pub const COUNT: usize = MapId::DATABASES as usize;

/// The map of a database, if there is such a database.
pub fn map(index: i64) -> Option<MapId> {
    u32::try_from(index).ok().and_then(MapId::database)
}

/// The maps of all, in order.
pub fn all() -> [MapId; COUNT] {
    // Below `COUNT`, there is a map for each number.
    std::array::from_fn(|n| MapId::database(n as u32).unwrap_or_default())
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
        assert!(maps.iter().all(|map| map.is_database()));
        let others = [1, 7, u32::MAX / 2, u32::MAX - 16, u32::MAX];
        assert!(!others.into_iter().any(|n| MapId(n).is_database()));
        assert_eq!(
            [-1, 16, i64::from(u32::MAX), i64::MIN].map(super::map),
            [None; 4]
        );
    }
}
