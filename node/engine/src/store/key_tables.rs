//! The tables of a map's keys, found by the order of the key, as its entry is.
//!
//! By their bytes, keys of as many tables would be compared as a search has steps, each of them
//! somewhere in memory. Orders lie beside each other. They hardly ever are equal.

use crate::value::entry::Key;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The tables of keys.
#[derive(Debug)]
pub(super) struct KeyTables<T>(BTreeMap<u64, SmallVec<[(Key, T); 1]>>);

impl<T> Default for KeyTables<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> KeyTables<T> {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The table of a key with this order, and the key.
    #[inline]
    pub(super) fn get(&self, order: u64, key: &[u8]) -> Option<(&Key, &T)> {
        let mut same = self.0.get(&order)?.iter();
        same.find(|(held, _)| **held == *key)
            .map(|(held, table)| (held, table))
    }

    /// The same, to be changed.
    #[inline]
    pub(super) fn get_mut(&mut self, order: u64, key: &[u8]) -> Option<&mut T> {
        let mut same = self.0.get_mut(&order)?.iter_mut();
        same.find(|(held, _)| **held == *key)
            .map(|(_, table)| table)
    }

    /// The first key after one with this order.
    pub(super) fn after(&self, order: u64, key: &[u8]) -> Option<&Key> {
        let mut later = self.0.range(order..).flat_map(|(at, same)| {
            let same = same.iter().map(|(held, _)| held);
            same.map(move |held| (*at, held))
        });
        let later = later.find(|(at, held)| (*at, &***held) > (order, key));
        later.map(|(_, held)| held)
    }

    /// The first key of all.
    pub(super) fn first(&self) -> Option<&Key> {
        let (_, same) = self.0.first_key_value()?;
        same.first().map(|(held, _)| held)
    }

    /// A key that has none gets this table.
    pub(super) fn put(&mut self, order: u64, key: Key, table: T) {
        let same = self.0.entry(order).or_default();
        let at = same.partition_point(|(held, _)| *held < key);
        same.insert(at, (key, table));
    }

    /// Takes the table of a key out, with the key.
    pub(super) fn take(&mut self, order: u64, key: &[u8]) -> Option<(Key, T)> {
        let same = self.0.get_mut(&order)?;
        let at = same.iter().position(|(held, _)| **held == *key)?;
        let taken = same.remove(at);
        if same.is_empty() {
            self.0.remove(&order);
        }
        Some(taken)
    }

    /// Gives up some of a table, and with the last of it the table. False: there is none.
    pub(super) fn shed(&mut self, is_left: impl FnOnce(&mut T) -> bool) -> bool {
        let Some(mut first) = self.0.first_entry() else {
            return false;
        };
        let same = first.get_mut();
        if same.last_mut().is_none_or(|(_, table)| !is_left(table)) {
            same.pop();
        }
        if same.is_empty() {
            first.remove();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_equal_orders_are_told_apart() {
        let key = |name: &str| Key::from(name.as_bytes());
        let mut tables = KeyTables::new();
        for (order, name) in [(7, "b"), (9, "a"), (7, "a"), (1, "z")] {
            tables.put(order, key(name), format!("{order}{name}"));
        }
        let mut after = tables.first().cloned();
        let mut walk = Vec::new();
        while let Some(next) = after {
            let orders = [1, 7, 9];
            let all = orders.map(|order| tables.get(order, &next).map(|(_, table)| table.clone()));
            let new = all.iter().flatten().find(|table| !walk.contains(*table));
            let table = new.cloned().unwrap();
            after = tables.after(table[..1].parse().unwrap(), &next).cloned();
            walk.push(table);
        }
        assert_eq!(walk, ["1z", "7a", "7b", "9a"]);
        assert!(tables.get(8, b"a").is_none() && tables.get(7, b"c").is_none());
        tables.get_mut(7, b"b").unwrap().push('!');
        assert_eq!(
            tables.take(7, b"b").map(|(_, table)| table),
            Some("7b!".into())
        );
        assert!(tables.take(7, b"b").is_none() && tables.get(7, b"a").is_some());
        let mut left = 0;
        while tables.shed(|_| false) {
            left += 1;
        }
        assert!(left == 3 && tables.is_empty());
    }
}
