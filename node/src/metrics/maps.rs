//! Figures by keyspace and by map: what this node leads, and what the near caches of this process
//! have.
//!
//! A cluster may have thousands of maps, and each label costs memory in Prometheus. So at most
//! `MAPS_MAX` maps have figures of their own, the largest, and the map `other` of each keyspace has
//! the sum of all further ones.

use super::MetricsSnapshot;
use crate::report::maps::named;
use doyen_placement::{KeyspaceId, MapId, Table};
use std::collections::BTreeMap;

/// Most maps that have figures of their own.
const MAPS_MAX: usize = 100;
/// The map that has the figures of all others.
const OTHERS: &str = "other";

/// Figures by the names of keyspaces and maps.
type NamedFigures<const N: usize> = BTreeMap<(String, String), [u64; N]>;

/// Names figures. The first one of each says how large the map is.
fn bounded<const N: usize>(
    table: &Table,
    figures: BTreeMap<(KeyspaceId, MapId), [u64; N]>,
) -> NamedFigures<N> {
    let mut figures: Vec<_> = figures.into_iter().collect();
    figures.sort_by_key(|(_, figures)| std::cmp::Reverse(figures[0]));
    let mut all = NamedFigures::new();
    for (place, ((keyspace, map), figures)) in figures.into_iter().enumerate() {
        // One that was dropped is being cleared.
        let Some(keyspace) = table.keyspace(keyspace) else {
            continue;
        };
        let name = if place < MAPS_MAX {
            named(table, map).1
        } else {
            OTHERS.to_owned()
        };
        add(
            all.entry((keyspace.name.clone(), name)).or_insert([0; N]),
            figures,
        );
    }
    all
}

fn add<const N: usize>(sum: &mut [u64; N], figures: [u64; N]) {
    for (sum, figure) in sum.iter_mut().zip(figures) {
        *sum = sum.saturating_add(figure);
    }
}

/// Writes what this node leads of each keyspace and map.
pub(super) fn gauge_maps(seen: &MetricsSnapshot, table: &Table) {
    let mut maps = BTreeMap::new();
    let mut keyspaces: BTreeMap<KeyspaceId, [u64; 2]> = BTreeMap::new();
    for (keyspace, size) in &seen.sizes {
        let figures = [size.bytes, size.keys];
        add(maps.entry((*keyspace, size.map)).or_default(), figures);
        add(keyspaces.entry(*keyspace).or_default(), figures);
    }
    for keyspace in &table.keyspaces {
        let name = &keyspace.name;
        let [bytes, keys] = keyspaces.get(&keyspace.id).copied().unwrap_or_default();
        metrics::gauge!("doyen_keyspace_keys", "keyspace" => name.clone()).set(keys as f64);
        metrics::gauge!("doyen_keyspace_bytes", "keyspace" => name.clone()).set(bytes as f64);
        let (hits, misses) = seen.data.shard.lookups.of(keyspace.id);
        metrics::counter!("doyen_keyspace_hits_total", "keyspace" => name.clone()).absolute(hits);
        metrics::counter!("doyen_keyspace_misses_total", "keyspace" => name.clone())
            .absolute(misses);
    }
    for ((keyspace, map), [bytes, keys]) in bounded(table, maps) {
        let labels = [("keyspace", keyspace), ("map", map)];
        metrics::gauge!("doyen_map_bytes", &labels).set(bytes as f64);
        metrics::gauge!("doyen_map_keys", &labels).set(keys as f64);
    }
}

/// Writes what the near caches of this process were asked, and what they have.
pub(super) fn gauge_nears(seen: &MetricsSnapshot, table: &Table) {
    let figures = seen.nears.iter().map(|near| {
        let asked = [near.entries, near.hits, near.misses, near.unconfirmed];
        (near.map, asked)
    });
    for ((keyspace, map), asked) in bounded(table, figures.collect()) {
        let labels = [("keyspace", keyspace), ("map", map)];
        let [entries, hits, misses, unconfirmed] = asked;
        metrics::gauge!("doyen_near_entries", &labels).set(entries as f64);
        metrics::counter!("doyen_near_hits_total", &labels).absolute(hits);
        metrics::counter!("doyen_near_misses_total", &labels).absolute(misses);
        metrics::counter!("doyen_near_unconfirmed_total", &labels).absolute(unconfirmed);
    }
    let lag = seen.nears.iter().filter_map(|near| near.lag).max();
    metrics::gauge!("doyen_near_lag_seconds").set(lag.unwrap_or_default().as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::cluster;
    use doyen_placement::{MapEntry, MapLimits};

    #[test]
    fn the_largest_maps_have_figures_and_the_others_have_their_sum() {
        let mut table = cluster(1);
        let ids = 1..=MAPS_MAX as u32 + 3;
        for id in ids.clone() {
            table.maps.push(MapEntry {
                id: MapId(id),
                name: format!("m{id}"),
                keyspace: KeyspaceId(0),
                limits: MapLimits::NONE,
            });
        }
        let place = |id| (KeyspaceId(0), MapId(id));
        let mut figures: BTreeMap<_, _> = ids.map(|id| (place(id), [u64::from(id), 1])).collect();
        figures.insert((KeyspaceId(77), MapId(1)), [0, 9]);
        let named = bounded(&table, figures);
        let of = |map: &str| named.get(&("default".to_owned(), map.to_owned())).copied();
        assert_eq!(named.len(), MAPS_MAX + 1);
        assert_eq!(of("m103"), Some([103, 1]));
        // The smallest three.
        assert_eq!((of("m3"), of(OTHERS)), (None, Some([6, 3])));
    }
}
