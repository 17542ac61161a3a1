//! Loads entries in groups before their turns come.
//!
//! Keys that follow one another lie anywhere in memory. A loop that copies or sums them one by one
//! waits for memory at each of them, twice if the value is stored apart. The beginnings of a group
//! arrive together.

use super::index::WARM_GROUP;
use super::sums::Piece;

/// The same entries, in the same order.
#[derive(Debug)]
pub(crate) struct Ahead<'a, I> {
    entries: I,
    group: [Option<Piece<'a>>; WARM_GROUP],
    next: usize,
}

impl<'a, I: Iterator<Item = Piece<'a>>> Ahead<'a, I> {
    pub(crate) fn of(entries: I) -> Self {
        Self {
            entries,
            group: [None; WARM_GROUP],
            next: WARM_GROUP,
        }
    }
}

impl<'a, I: Iterator<Item = Piece<'a>>> Iterator for Ahead<'a, I> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == WARM_GROUP {
            self.next = 0;
            self.group.fill_with(|| self.entries.next());
            let touched = self.group.iter().flatten().fold(0, |sum, piece| {
                sum ^ piece.entry.touch() ^ piece.entry.touch_value()
            });
            std::hint::black_box(touched);
        }
        // The entry after the last one of the group is not loaded ahead.
        let next = self.group[self.next]?;
        self.next += 1;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::entry::Entry;
    use doyen_placement::MapId;

    #[test]
    fn every_entry_comes_exactly_once() {
        for count in [
            0,
            1,
            WARM_GROUP - 1,
            WARM_GROUP,
            WARM_GROUP + 1,
            5 * WARM_GROUP,
        ] {
            let all: Vec<Entry> = (0..count)
                .map(|n| Entry::new(&n.to_le_bytes(), &vec![7; n * 50], 0, 1))
                .collect();
            let mut ahead = Ahead::of(all.iter().map(|entry| Piece {
                map: MapId(3),
                of: None,
                entry,
            }));
            let seen: Vec<_> = ahead
                .by_ref()
                .map(|piece| (piece.map, piece.entry.key().to_vec()))
                .collect();
            assert_eq!(
                seen,
                (0..count)
                    .map(|n| (MapId(3), n.to_le_bytes().to_vec()))
                    .collect::<Vec<_>>()
            );
            assert!(ahead.next().is_none() && ahead.next().is_none());
        }
    }
}
