//! Maps: what they hold, their limits, and dropping them.

use super::Admin;
use super::error::{AdminError, InvalidField, Refusal, ReportError};
use crate::config::value::{Lifetime, MapEviction, Most};
use crate::map::schemas_of;
use crate::remedy;
use crate::report::maps::MapSizeReport;
use doyen_engine::op::{Outcome, PartitionAction, PartitionOperation};
use doyen_engine::sizes::MapSize;
use doyen_gossip::agreement::Split;
use doyen_placement::planner::Refused;
use doyen_placement::{Eviction, MapEntry, MapId, MapLimits, MapWish, WantedMap};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long all partitions together may take to say what they hold.
const COUNTED_WITHIN: Duration = Duration::from_secs(5);
/// Partitions that are asked at the same time.
const UNDER_WAY: usize = 16;

/// Limits of a map that an operator sets: flags of `doyen map limits`, and the body of
/// `PATCH /keyspaces/KEYSPACE/maps/MAP`. What is left out stays as it is.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::AdminError> {
/// use doyen::admin::maps::MapLimitOptions;
/// use doyen::config::value::Most;
///
/// let fewer = MapLimitOptions {
///     max_entries: Some(Most(Some(10_000))),
///     ..MapLimitOptions::default()
/// };
/// node.admin().limit_map("default", "pages", &fewer).await
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "flags", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct MapLimitOptions {
    /// The most entries in the whole cluster, without copies, or none
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<Most>,
    /// The most bytes in the whole cluster, without copies, as in 200mb, or none
    #[cfg_attr(feature = "flags", arg(long, value_name = "SIZE"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<Most>,
    /// Which entries go beyond that: lfu (used least often), lru, random, ttl (of those that
    /// expire), or none (new keys are refused) [default: lfu, if the map had no limit]
    #[cfg_attr(feature = "flags", arg(long, value_name = "POLICY"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction: Option<MapEviction>,
    /// After this time without use, an entry expires. A map that has one cannot lose it
    #[cfg_attr(feature = "flags", arg(long, value_name = "TIME"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_idle: Option<Lifetime>,
}

impl MapLimitOptions {
    /// These limits in place of those that a map has.
    fn limits(&self, had: MapLimits) -> Result<MapLimits, InvalidField> {
        if *self == Self::default() {
            let why = "say what to limit: max_entries, max_bytes, eviction or max_idle";
            return Err(InvalidField::new("max_entries", why));
        }
        let mut limits = MapLimits {
            entries: self.max_entries.map_or(had.entries, |most| most.0),
            bytes: self.max_bytes.map_or(had.bytes, |most| most.0),
            eviction: had.eviction,
            idle_ms: self.max_idle.map_or(had.idle_ms, Lifetime::millis),
        };
        limits.eviction = match (limits.bounds(), self.eviction) {
            (true, Some(eviction)) => eviction.0,
            (true, None) if had.bounds() => had.eviction,
            (true, None) => Eviction::Lfu,
            (false, None) => Eviction::None,
            (false, Some(_)) => {
                let why = "a map evicts only if it has a limit: give max_entries or max_bytes, too";
                return Err(InvalidField::new("eviction", why));
            }
        };
        Ok(limits)
    }
}

impl Admin {
    /// What each map holds, and each database of Redis clients, the largest of each keyspace first.
    /// The primaries of all partitions are asked, for 5 s at most: `uncounted` says how many did
    /// not answer.
    ///
    /// # Errors
    /// - [`ReportError::NotMember`] until this node is a member.
    /// - [`ReportError::Split`]: this half of a split cluster serves nothing, and counts nothing.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn maps(&self) -> Result<Vec<MapSizeReport>, ReportError> {
        // Another member may have just made a map.
        self.changes.control.catch_up().await;
        let table = self.table_in_force().await?;
        let cluster = self.changes.control.status().await;
        let cluster = cluster.map_err(|_| ReportError::Stopped)?;
        if let Some(split) = cluster.status.split.filter(Split::is_stopped) {
            let why = remedy::split_text(&split);
            return Err(ReportError::Split { why });
        }
        let until = Instant::now() + COUNTED_WITHIN;
        let places: Vec<_> = table.partitions().map(|(at, _)| at).collect();
        let asked = places.into_iter().map(async |at| {
            let operation = PartitionOperation {
                keyspace: at.keyspace,
                partition: at.partition,
                map: MapId(0),
                action: PartitionAction::Sizes,
            };
            (at, self.data.execute_partition(operation).await)
        });
        let mut answers = stream::iter(asked).buffer_unordered(UNDER_WAY);
        let mut sizes = BTreeMap::new();
        while let Ok(Some((at, outcome))) =
            tokio::time::timeout_at(until.into(), answers.next()).await
        {
            if let Outcome::Keys { keys, .. } = outcome {
                let keys = keys.iter().filter_map(|key| MapSize::decode(key));
                sizes.insert(at, keys.collect());
            }
        }
        Ok(MapSizeReport::all(&table, &sizes))
    }

    /// Sets limits of a map, also lower ones: entries that are too many are evicted soon. A cache
    /// is limited with what it keeps by schema. The change is an event of every member, with what
    /// was changed from what.
    ///
    /// A program that opens the map with higher limits raises them again.
    ///
    /// Example: [`MapLimitOptions`].
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: there is no such keyspace or map.
    /// - [`Refusal::Invalid`]: no limit is given, or the map would evict without a limit.
    /// - [`Refusal::Conflict`]: the map cannot have such limits: it lies in ranges, or it would
    ///   lose its idle time.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn limit_map(
        &self,
        keyspace: &str,
        map: &str,
        options: &MapLimitOptions,
    ) -> Result<(), AdminError> {
        for entry in self.maps_of(keyspace, map).await? {
            let limits = options.limits(entry.limits)?;
            let wish = MapWish::Replaced(limits);
            self.changes
                .want_map(wanted(keyspace, &entry, wish))
                .await?;
        }
        Ok(())
    }

    /// Drops a map with all its entries; a cache, with what it keeps by schema. Programs that have
    /// it open get [`Error::Dropped`](crate::Error::Dropped) from their next use on, until they
    /// open it again: then it is another map, which is empty.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::AdminError> {
    /// node.admin().drop_map("default", "sessions").await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: there is no such keyspace or map.
    ///
    /// # Cancel safety
    /// If the future is dropped, the map may be dropped or not, as after [`AdminError::Unknown`].
    pub async fn drop_map(&self, keyspace: &str, map: &str) -> Result<(), AdminError> {
        for entry in self.maps_of(keyspace, map).await? {
            self.changes
                .want_map(wanted(keyspace, &entry, MapWish::Dropped))
                .await?;
        }
        Ok(())
    }

    /// The map of this name, and that in which a cache of this name keeps entries by schema.
    async fn maps_of(&self, keyspace: &str, map: &str) -> Result<Vec<MapEntry>, AdminError> {
        let until = self.changes.deadline();
        let table = self.changes.newest(until).await?;
        if table.keyspace_named(keyspace).is_none() {
            let known = table.keyspaces.iter().map(|k| &k.name);
            let why = Refused::no_keyspace(keyspace, known).to_string();
            return Err(Refusal::NotFound { why }.into());
        }
        let names = [map.to_owned(), schemas_of(map)];
        let found = names.iter().filter_map(|name| table.map_in(keyspace, name));
        let found: Vec<MapEntry> = found.cloned().collect();
        if found.is_empty() {
            let why = format!(
                "there is no map {map:?} in the keyspace {keyspace}: `doyen map list` names them; \
                 databases of Redis clients are no maps, and FLUSHDB empties one"
            );
            return Err(Refusal::NotFound { why }.into());
        }
        Ok(found)
    }
}

fn wanted(keyspace: &str, map: &MapEntry, wish: MapWish) -> WantedMap {
    WantedMap {
        keyspace: keyspace.to_owned(),
        name: map.name.clone(),
        wish,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_left_out_stay_and_none_takes_one_away() {
        let read = |body: &str| serde_json::from_str::<MapLimitOptions>(body);
        let had = MapLimits {
            entries: Some(100),
            bytes: Some(1 << 20),
            eviction: Eviction::Lru,
            idle_ms: Some(60_000),
        };
        let told = |body: &str, had| {
            let options = read(body).expect("it is read");
            options.limits(had).map_err(|wrong| wrong.field)
        };
        let fewer = MapLimits {
            entries: Some(10),
            bytes: None,
            ..had
        };
        assert_eq!(
            told(r#"{"max_entries": 10, "max_bytes": "none"}"#, had),
            Ok(fewer)
        );
        let by = MapLimits {
            eviction: Eviction::None,
            bytes: Some(2 << 20),
            ..had
        };
        assert_eq!(
            told(r#"{"max_bytes": "2mb", "eviction": "none"}"#, had),
            Ok(by)
        );
        let first = MapLimits {
            entries: Some(5),
            eviction: Eviction::Lfu,
            ..MapLimits::NONE
        };
        assert_eq!(told(r#"{"max_entries": "5"}"#, MapLimits::NONE), Ok(first));
        let unbounded = MapLimits {
            idle_ms: had.idle_ms,
            ..MapLimits::NONE
        };
        let none = r#"{"max_entries": "none", "max_bytes": "none"}"#;
        assert_eq!(told(none, had), Ok(unbounded));
        assert_eq!(told("{}", had), Err("max_entries"));
        assert_eq!(
            told(r#"{"eviction": "lru"}"#, MapLimits::NONE),
            Err("eviction")
        );
        for body in [
            r#"{"max_entries": 0}"#,
            r#"{"max_entries": -1}"#,
            r#"{"max_bytes": "much"}"#,
            r#"{"eviction": "lifo"}"#,
            r#"{"max_idle": "0s"}"#,
            r#"{"max_idle": 5}"#,
            r#"{"entries": 5}"#,
        ] {
            assert!(read(body).is_err(), "{body}");
        }
    }
}
