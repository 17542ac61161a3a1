//! Replies that lie deeper within each other than outcomes may: a tree in one run of bytes.
//!
//! ```text
//!   i number | b length bytes | , length digits | f length fields | e length text | n | a   leaves
//!   [ count, and then as many trees | % and & the same for maps             branches
//! ```
//! Numbers have 8 bytes, lengths and counts 4, all of them little-endian. A primary writes a tree,
//! and the node that the client asked makes a reply of it. An error that names keys or groups
//! travels so, too.

use super::error::ErrorText;
use super::reply::CommandReply;
use crate::value::items::{Fields, Part};
use crate::value::outcome::{Outcome, Value};

const INT: u8 = b'i';
const BULK: u8 = b'b';
const DOUBLE: u8 = b',';
const FIELDS: u8 = b'f';
const ERROR: u8 = b'e';
const NIL: u8 = b'n';
const NIL_ARRAY: u8 = b'a';
const ARRAY: u8 = b'[';
const MAP: u8 = b'%';
const KEYED: u8 = b'&';

/// Trees do not lie deeper within each other.
const DEPTH_MAX: usize = 10;

/// Writes a tree, from its root on. Each branch says how many trees follow as its own.
#[derive(Debug, Default)]
pub(super) struct ReplyTree(Vec<u8>);

impl ReplyTree {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// How many bytes it has.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    fn sized(&mut self, tag: u8, size: usize) {
        self.0.push(tag);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.0.extend_from_slice(&size.to_le_bytes());
    }

    pub(super) fn int(&mut self, number: i64) {
        self.0.push(INT);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// A number of things.
    pub(super) fn count(&mut self, of: usize) {
        self.int(i64::try_from(of).unwrap_or(i64::MAX));
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.0.reserve(1 + size_of::<u32>() + bytes.len());
        self.sized(BULK, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// A number with a fraction, as a text.
    pub(super) fn double(&mut self, text: &[u8]) {
        self.sized(DOUBLE, text.len());
        self.0.extend_from_slice(text);
    }

    /// An array of runs of bytes, which lie one after the other (`value/items.rs`).
    pub(super) fn fields(&mut self, items: &[u8]) {
        self.sized(FIELDS, items.len());
        self.0.extend_from_slice(items);
    }

    pub(super) fn nil(&mut self) {
        self.0.push(NIL);
    }

    pub(super) fn nil_array(&mut self) {
        self.0.push(NIL_ARRAY);
    }

    /// This many trees follow.
    pub(super) fn array(&mut self, count: usize) {
        self.sized(ARRAY, count);
    }

    /// This many names follow, each with a tree: a map in RESP3, and all in one array in RESP2.
    pub(super) fn map(&mut self, pairs: usize) {
        self.sized(MAP, 2 * pairs);
    }

    /// The same. In RESP2, each pair is an array of its own.
    pub(super) fn keyed(&mut self, pairs: usize) {
        self.sized(KEYED, 2 * pairs);
    }

    /// Trees that were written apart.
    pub(super) fn append(&mut self, trees: &Self) {
        self.append_bytes(&trees.0);
    }

    /// Trees that an outcome carries.
    pub(super) fn append_bytes(&mut self, trees: &[u8]) {
        self.0.extend_from_slice(trees);
    }

    /// The outcome that carries it.
    pub(super) fn outcome(&self) -> Outcome {
        Outcome::Bulk(Value::from(&self.0[..]))
    }

    /// The outcome that carries an error.
    pub(super) fn error(text: &str) -> Outcome {
        let mut tree = Self::new();
        tree.sized(ERROR, text.len());
        tree.0.extend_from_slice(text.as_bytes());
        tree.outcome()
    }
}

/// How many names with trees there are in a tree that [`ReplyTree::keyed`] began, and these.
/// `None`: it is another tree.
pub(super) fn pairs_of(tree: &[u8]) -> Option<(usize, &[u8])> {
    let mut reader = TreeReader(tree.strip_prefix(&[KEYED])?);
    let size = reader.size()?;
    Some((size / 2, reader.0))
}

/// The reply that a tree says.
pub(super) fn reply_of(tree: &[u8]) -> CommandReply {
    let mut reader = TreeReader(tree);
    let reply = reader.next(DEPTH_MAX);
    let whole = reply.filter(|_| reader.0.is_empty());
    whole.unwrap_or_else(|| CommandReply::Error("ERR unexpected outcome".into()))
}

struct TreeReader<'a>(&'a [u8]);

impl<'a> TreeReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn size(&mut self) -> Option<usize> {
        let size = self.take(size_of::<u32>())?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(size)).ok()
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let size = self.size()?;
        self.take(size)
    }

    fn branch(&mut self, depth: usize) -> Option<Vec<CommandReply>> {
        let depth = depth.checked_sub(1)?;
        // A peer's word is no reason to take memory.
        let mut parts = Vec::new();
        for _ in 0..self.size()? {
            parts.push(self.next(depth)?);
        }
        Some(parts)
    }

    fn next(&mut self, depth: usize) -> Option<CommandReply> {
        Some(match *self.take(1)?.first()? {
            INT => {
                let number = self.take(size_of::<i64>())?.try_into().ok()?;
                CommandReply::Int(i64::from_le_bytes(number))
            }
            BULK => CommandReply::Bulk(Value::from(self.sized()?)),
            DOUBLE => CommandReply::Double(Value::from(self.sized()?)),
            FIELDS => {
                let items = Value::from(self.sized()?);
                CommandReply::Fields(Fields::new(Some(items), Part::Elements))
            }
            ERROR => {
                let text = String::from_utf8_lossy(self.sized()?).into_owned();
                CommandReply::Error(ErrorText::from(text))
            }
            NIL => CommandReply::Nil,
            NIL_ARRAY => CommandReply::NilArray,
            ARRAY => CommandReply::Array(self.branch(depth)?),
            MAP => CommandReply::Map(self.branch(depth)?),
            KEYED => CommandReply::Keyed(self.branch(depth)?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut ReplyTree)) -> Vec<u8> {
        let mut tree = ReplyTree::new();
        write(&mut tree);
        tree.0
    }

    #[test]
    fn a_tree_comes_back_as_the_reply_that_it_says() {
        let tree = written(|tree| {
            tree.array(4);
            tree.int(-7);
            tree.keyed(1);
            tree.bulk(b"k");
            tree.fields(b"\x01a\x02bc");
            tree.map(0);
            tree.nil_array();
        });
        let CommandReply::Array(parts) = reply_of(&tree) else {
            panic!("it is an array")
        };
        let [number, keyed, map, nil] = &parts[..] else {
            panic!("{parts:?}")
        };
        assert_eq!(
            (number, nil),
            (&CommandReply::Int(-7), &CommandReply::NilArray)
        );
        assert_eq!(map, &CommandReply::Map(Vec::new()));
        let CommandReply::Keyed(pairs) = keyed else {
            panic!("{keyed:?}")
        };
        let CommandReply::Fields(fields) = &pairs[1] else {
            panic!("{pairs:?}")
        };
        assert!(fields.iter().eq([&b"a"[..], b"bc"]));
        let error = ReplyTree::error("NOGROUP x");
        let Outcome::Bulk(error) = error else {
            panic!("it is bytes")
        };
        assert_eq!(reply_of(&error), CommandReply::Error("NOGROUP x".into()));
    }

    #[test]
    fn wrong_trees_are_errors() {
        let deep = written(|tree| {
            for _ in 0..=DEPTH_MAX {
                tree.array(1);
            }
            tree.nil();
        });
        let good = written(|tree| {
            tree.array(2);
            tree.bulk(b"ab");
            tree.int(1);
        });
        let mut all = vec![deep, [&good[..], b"n"].concat(), b"x".to_vec()];
        all.extend((0..good.len()).map(|end| good[..end].to_vec()));
        all.push(written(|tree| tree.sized(ARRAY, usize::MAX)));
        for tree in all {
            assert!(
                matches!(reply_of(&tree), CommandReply::Error(_)),
                "{tree:?}"
            );
        }
    }
}
