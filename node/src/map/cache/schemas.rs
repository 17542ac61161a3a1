//! Where the entries of a cache lie, if programs of several versions have values of other schemas.
//!
//! ```text
//!   no schema    map NAME              the key
//!   a schema     map NAME/schemas      one of four bytes, the key
//! ```
//! So a rolling deploy with another schema keeps two entries of a key, instead of one for which
//! both versions load by turns. The byte is drawn from name and version: versions that follow each
//! other have different ones. What removes or writes a key does so for all schemas, because it says
//! that the value has changed.

use super::Cache;
use crate::error::Error;
use crate::map::value::Form;
use crate::map::{Map, Pages, key};
use bytes::Bytes;
use doyen_engine::op::{Action, Operation, Outcome};
use doyen_placement::MapEntry;
use futures_util::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// How many schemas of one cache have entries of their own.
pub(super) const SLOTS: u8 = 4;

/// The name of the map of entries with a schema.
pub(crate) fn map_of(cache: &str) -> String {
    format!("{cache}/schemas")
}

/// Where the entries of a handle lie.
#[derive(Debug, Clone)]
pub(super) struct SchemaSlot {
    /// The name of the cache.
    pub(super) cache: Arc<str>,
    /// The first byte of keys; `None`: they have none.
    pub(super) byte: Option<u8>,
}

impl SchemaSlot {
    /// The slot of values of this form.
    pub(super) fn of(form: &Form) -> Option<u8> {
        let (name, version) = form.schema_label()?;
        // Below 4.
        Some((name.wrapping_add(version.into()) % u32::from(SLOTS)) as u8)
    }

    /// A key as it is stored.
    pub(super) fn key<Q: Serialize + ?Sized>(&self, key: &Q) -> Result<Bytes, Error> {
        let mut bytes = Vec::new();
        bytes.extend(self.byte);
        key::encode_into(key, &mut bytes).map_err(Error::Key)?;
        Ok(bytes.into())
    }

    /// The part of a stored key that is the same in all slots.
    fn without<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        &key[usize::from(self.byte.is_some())..]
    }
}

impl<K: Serialize, V: Serialize + DeserializeOwned> Cache<K, V> {
    /// The other map in which entries of this cache lie, if there is one.
    fn other(&self) -> Option<Arc<MapEntry>> {
        let table = self.map.data.table()?;
        let other = match self.slot.byte {
            Some(_) => self.slot.cache.to_string(),
            None => map_of(&self.slot.cache),
        };
        let of = |map: &&MapEntry| map.keyspace == self.map.entry.keyspace && map.name == other;
        table.maps.iter().find(of).cloned().map(Arc::new)
    }

    /// All other places in which a key or a prefix may have entries: the map, and the key there.
    fn elsewhere(&self, key: &[u8]) -> Vec<(Arc<MapEntry>, Bytes)> {
        let key = self.slot.without(key);
        let in_slot = |slot: u8| Bytes::from([&[slot], key].concat());
        let other = self.other();
        match (self.slot.byte, other) {
            (None, None) => Vec::new(),
            (None, Some(schemas)) => (0..SLOTS).map(|n| (schemas.clone(), in_slot(n))).collect(),
            (Some(own), plain) => {
                let slots = (0..SLOTS).filter(|slot| *slot != own);
                let slots = slots.map(|slot| (self.map.entry.clone(), in_slot(slot)));
                let plain = plain.map(|plain| (plain, Bytes::copy_from_slice(key)));
                slots.chain(plain).collect()
            }
        }
    }

    /// Removes the entries that other schemas have of a stored key. Returns whether there were any.
    pub(super) async fn remove_elsewhere(&self, key: &[u8]) -> Result<bool, Error> {
        let removals = self.elsewhere(key).into_iter().map(|(map, key)| {
            self.map.data.execute(Operation {
                keyspace: map.keyspace,
                map: map.id,
                key,
                action: Action::Delete,
            })
        });
        let mut any = false;
        for outcome in join_all(removals).await {
            match outcome {
                Outcome::Int(removed) => any |= removed > 0,
                Outcome::Failed(failure) => return Err(Error::of_write(failure)),
                other => return Err(Error::unexpected(other)),
            }
        }
        Ok(any)
    }

    /// Pages of all entries of a prefix, of all schemas: each with a handle of its map.
    pub(super) fn pages(&self, prefix: &[u8]) -> Vec<(Map<K, V>, Pages)> {
        let own = (self.map.entry.clone(), Bytes::copy_from_slice(prefix));
        let all = [own].into_iter().chain(self.elsewhere(prefix));
        all.map(|(entry, prefix)| {
            let pages = Pages::new((entry.keyspace, entry.id), self.map.data.clone(), prefix);
            let mut map = self.map.clone();
            map.entry = entry;
            (map, pages)
        })
        .collect()
    }

    /// The maps in which entries of this cache lie.
    pub(super) fn maps(&self) -> Vec<Map<K, V>> {
        let other = self.other().map(|entry| {
            let mut map = self.map.clone();
            map.entry = entry;
            map
        });
        [self.map.clone()].into_iter().chain(other).collect()
    }
}
