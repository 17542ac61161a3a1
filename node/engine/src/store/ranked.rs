//! The rows of a table in an order of their own, with counts: a B-tree.
//!
//! ```text
//!   inner: child, child, ...        each: what its rows weigh together
//!   leaf:  row, row, ...            handles of entries that the index of the table has, too
//! ```
//! Each row has a weight: how many elements it holds. So the row of the n-th element, and the
//! number of elements before a bound, are found in O(log n).
//!
//! It is derived from the rows: no log, snapshot or checksum knows it.

use crate::value::entry::Entry;
use crate::value::types::RowOrder;
use std::cmp::Ordering;
use std::slice;

/// The most rows of a leaf, and children of an inner node.
const NODE_MAX: usize = 64;
/// Two neighbours that have no more than this together become one.
const JOINED_MAX: usize = NODE_MAX / 2;

/// The rows of a table in order.
#[derive(Debug)]
pub(crate) struct Ranked {
    order: &'static RowOrder,
    root: Child,
}

#[derive(Debug)]
struct Child {
    /// What its rows weigh together.
    weight: usize,
    node: Node,
}

#[derive(Debug)]
enum Node {
    Leaf(Vec<Entry>),
    Inner(Vec<Child>),
}

impl Node {
    const fn len(&self) -> usize {
        match self {
            Self::Leaf(rows) => rows.len(),
            Self::Inner(children) => children.len(),
        }
    }
}

/// The child that has this row, or would have it.
fn child_of(children: &[Child], row: &Entry, order: &RowOrder) -> usize {
    let begins = |child: &Child| match child.first() {
        Some(first) => (order.compare)(first, row) != Ordering::Greater,
        None => true,
    };
    children.partition_point(begins).saturating_sub(1)
}

impl Child {
    const EMPTY: Self = Self {
        weight: 0,
        node: Node::Leaf(Vec::new()),
    };

    fn of(node: Node, order: &RowOrder) -> Self {
        let weight = match &node {
            Node::Leaf(rows) => rows.iter().map(order.weight).sum(),
            Node::Inner(children) => children.iter().map(|child| child.weight).sum(),
        };
        Self { weight, node }
    }

    /// Its first row.
    fn first(&self) -> Option<&Entry> {
        match &self.node {
            Node::Leaf(rows) => rows.first(),
            Node::Inner(children) => children.first()?.first(),
        }
    }

    /// Takes a row, in place of one that is equal by the order. Returns what did not fit, and
    /// follows.
    fn insert(&mut self, row: Entry, order: &RowOrder) -> Option<Self> {
        let came = (order.weight)(&row);
        let right = match &mut self.node {
            Node::Leaf(rows) => {
                let place = rows.binary_search_by(|held| (order.compare)(held, &row));
                let at_end = place == Err(rows.len());
                match place {
                    Ok(at) => {
                        self.weight -= (order.weight)(&rows[at]);
                        rows[at] = row;
                    }
                    Err(at) => rows.insert(at, row),
                }
                self.weight += came;
                split(rows, at_end).map(Node::Leaf)
            }
            Node::Inner(children) => {
                let at = child_of(children, &row, order);
                let before = children[at].weight;
                let right = children[at].insert(row, order);
                let after = children[at].weight + right.as_ref().map_or(0, |right| right.weight);
                self.weight = self.weight - before + after;
                if let Some(right) = right {
                    children.insert(at + 1, right);
                }
                split(children, at + 2 == children.len()).map(Node::Inner)
            }
        };
        let right = Self::of(right?, order);
        self.weight -= right.weight;
        Some(right)
    }

    /// Loses a row. Returns whether it had it.
    fn remove(&mut self, row: &Entry, order: &RowOrder) -> bool {
        let before = self.weight;
        match &mut self.node {
            Node::Leaf(rows) => {
                let place = rows.binary_search_by(|held| (order.compare)(held, row));
                let Ok(at) = place else { return false };
                self.weight -= (order.weight)(&rows.remove(at));
            }
            Node::Inner(children) => {
                let at = child_of(children, row, order);
                let Some(child) = children.get_mut(at) else {
                    return false;
                };
                let was = child.weight;
                if !child.remove(row, order) {
                    return false;
                }
                self.weight = before - was + child.weight;
                join(children, at);
            }
        }
        true
    }

    /// What the rows weigh for which this holds. It holds for none behind one for which it does
    /// not.
    fn weight_while(&self, holds: &mut impl FnMut(&Entry) -> bool, order: &RowOrder) -> usize {
        match &self.node {
            Node::Leaf(rows) => {
                let end = rows.partition_point(&mut *holds);
                rows[..end].iter().map(order.weight).sum()
            }
            Node::Inner(children) => {
                let end = children.partition_point(|child| child.first().is_none_or(&mut *holds));
                let Some(last) = end.checked_sub(1) else {
                    return 0;
                };
                let whole: usize = children[..last].iter().map(|child| child.weight).sum();
                whole + children[last].weight_while(holds, order)
            }
        }
    }

    /// Gives up about this many rows from the end. Returns how many.
    fn shed(&mut self, count: usize) -> usize {
        match &mut self.node {
            Node::Leaf(rows) => {
                let before = rows.len();
                rows.truncate(before.saturating_sub(count));
                before - rows.len()
            }
            Node::Inner(children) => {
                let mut shed = 0;
                while shed < count
                    && let Some(last) = children.last_mut()
                {
                    shed += last.shed(count - shed);
                    if last.node.len() == 0 {
                        children.pop();
                    }
                }
                shed
            }
        }
    }
}

/// What does not fit into a node, and follows it. What comes in order leaves full nodes behind.
fn split<T>(items: &mut Vec<T>, at_end: bool) -> Option<Vec<T>> {
    let kept = if at_end { NODE_MAX } else { NODE_MAX / 2 };
    (items.len() > NODE_MAX).then(|| items.split_off(kept))
}

/// A child became smaller: it joins a neighbour if both are small, and goes if it is empty.
fn join(children: &mut Vec<Child>, at: usize) {
    if children[at].node.len() == 0 {
        children.remove(at);
        return;
    }
    let left = at.min(children.len().saturating_sub(2));
    let Some([first, second]) = children.get_mut(left..left + 2) else {
        return;
    };
    if first.node.len() + second.node.len() > JOINED_MAX {
        return;
    }
    match (&mut first.node, &mut second.node) {
        (Node::Leaf(rows), Node::Leaf(more)) => rows.append(more),
        (Node::Inner(all), Node::Inner(more)) => all.append(more),
        _ => return,
    }
    first.weight += second.weight;
    children.remove(left + 1);
}

impl Ranked {
    pub(crate) const fn new(order: &'static RowOrder) -> Self {
        Self {
            order,
            root: Child::EMPTY,
        }
    }

    /// How many elements the rows have together.
    pub(crate) const fn len(&self) -> usize {
        self.root.weight
    }

    /// A row comes, in place of the one that its field had.
    pub(crate) fn put(&mut self, old: Option<&Entry>, row: Entry) {
        if let Some(old) = old
            && (self.order.compare)(old, &row) != Ordering::Equal
        {
            self.remove(old);
        }
        if let Some(right) = self.root.insert(row, self.order) {
            let left = std::mem::replace(&mut self.root, Child::EMPTY);
            self.root = Child::of(Node::Inner(vec![left, right]), self.order);
        }
    }

    /// A row goes.
    pub(crate) fn remove(&mut self, row: &Entry) {
        self.root.remove(row, self.order);
        while let Node::Inner(children) = &mut self.root.node
            && children.len() <= 1
        {
            self.root = children.pop().unwrap_or(Child::EMPTY);
        }
    }

    /// How many elements the rows have for which this holds. It holds for none behind one for which
    /// it does not.
    pub(crate) fn len_while(&self, mut holds: impl FnMut(&Entry) -> bool) -> usize {
        self.root.weight_while(&mut holds, self.order)
    }

    /// The rows from that of an element on, in order or in reverse.
    pub(crate) fn rows_from(&self, n: usize, reverse: bool) -> RankedRows<'_> {
        self.rows_at(n, reverse).0
    }

    /// The same, and how many elements of its row come before that one.
    pub(crate) fn rows_at(&self, n: usize, reverse: bool) -> (RankedRows<'_>, usize) {
        RankedRows::of(&self.root, n, (self.order, reverse))
    }

    /// Gives up about this many rows. False: none is left.
    pub(crate) fn shed(&mut self, count: usize) -> bool {
        self.root.shed(count);
        self.root.node.len() > 0
    }
}

/// The rows from a place on, in order or in reverse.
pub(crate) struct RankedRows<'a> {
    leaf: slice::Iter<'a, Entry>,
    /// What is left of the nodes above the leaf.
    above: Vec<slice::Iter<'a, Child>>,
    reverse: bool,
}

impl<'a> RankedRows<'a> {
    fn of(mut from: &'a Child, mut n: usize, (order, reverse): (&RowOrder, bool)) -> (Self, usize) {
        let mut rows = Self {
            leaf: [].iter(),
            above: Vec::new(),
            reverse,
        };
        loop {
            // Where the element is, or nothing if there are fewer.
            let mut is_before = |weight: usize| {
                let is_before = weight <= n;
                n -= if is_before { weight } else { 0 };
                is_before
            };
            match &from.node {
                Node::Leaf(all) => {
                    let at = all.iter().position(|row| !is_before((order.weight)(row)));
                    rows.leaf = match at {
                        Some(at) if reverse => all[..=at].iter(),
                        Some(at) => all[at..].iter(),
                        None => [].iter(),
                    };
                    return (rows, n);
                }
                Node::Inner(children) => {
                    let at = children.iter().position(|child| !is_before(child.weight));
                    let Some(at) = at else { return (rows, n) };
                    rows.above.push(if reverse {
                        children[..at].iter()
                    } else {
                        children[at + 1..].iter()
                    });
                    from = &children[at];
                }
            }
        }
    }
}

impl<'a> Iterator for RankedRows<'a> {
    type Item = &'a Entry;

    fn next(&mut self) -> Option<&'a Entry> {
        loop {
            let row = if self.reverse {
                self.leaf.next_back()
            } else {
                self.leaf.next()
            };
            if row.is_some() {
                return row;
            }
            let above = self.above.last_mut()?;
            let child = if self.reverse {
                above.next_back()
            } else {
                above.next()
            };
            match child.map(|child| &child.node) {
                None => _ = self.above.pop(),
                Some(Node::Leaf(rows)) => self.leaf = rows.iter(),
                Some(Node::Inner(children)) => self.above.push(children.iter()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rows by their values, and by their fields if these are equal. A row weighs what its value
    /// says, and 1 at least.
    static BY_VALUE: RowOrder = RowOrder {
        compare: |one, other| (one.value(), one.key()).cmp(&(other.value(), other.key())),
        weight: |row| usize::from(row.value()[0] % 3) + 1,
    };

    fn row(field: u16, value: u8) -> Entry {
        Entry::of_row(&field.to_be_bytes(), &[value], 0)
    }

    fn check(ranked: &Ranked, rows: &[Entry]) {
        let weight = |row: &Entry| (BY_VALUE.weight)(row);
        let total = rows.iter().map(weight).sum::<usize>();
        assert_eq!(ranked.len(), total);
        let all: Vec<_> = ranked.rows_from(0, false).cloned().collect();
        assert_eq!(all, rows);
        assert_eq!(ranked.rows_from(total, false).count(), 0);
        assert_eq!(ranked.rows_from(total, true).count(), 0);
        let mut before = 0;
        for (at, held) in rows.iter().enumerate() {
            let rank = ranked.len_while(|row| (BY_VALUE.compare)(row, held).is_lt());
            assert_eq!(rank, before);
            for offset in 0..weight(held) {
                let (mut at_it, within) = ranked.rows_at(before + offset, false);
                assert_eq!((at_it.next(), within), (Some(held), offset));
                if at % 7 == 0 {
                    let ahead = ranked.rows_from(before + offset, false);
                    assert!(ahead.take(70).eq(rows[at..].iter().take(70)));
                    let back = ranked.rows_from(before + offset, true);
                    assert!(back.take(70).eq(rows[..=at].iter().rev().take(70)));
                }
            }
            before += weight(held);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn rows_are_ordered_and_counted_as_in_a_sorted_list(
            changes in prop::collection::vec((0_u16..400, any::<u8>(), 0_u8..4), 0..900)
        ) {
            let mut ranked = Ranked::new(&BY_VALUE);
            let mut model = std::collections::BTreeMap::new();
            for (field, value, change) in changes {
                if change == 0 {
                    if let Some(old) = model.remove(&field) {
                        ranked.remove(&old);
                    }
                } else {
                    let new = row(field, value);
                    let old = model.insert(field, new.clone());
                    ranked.put(old.as_ref(), new);
                }
            }
            let mut rows: Vec<Entry> = model.into_values().collect();
            rows.sort_by(BY_VALUE.compare);
            check(&ranked, &rows);
            while let Some(gone) = rows.pop() {
                ranked.remove(&gone);
                if rows.len().is_multiple_of(61) {
                    check(&ranked, &rows);
                }
            }
            prop_assert_eq!(ranked.len(), 0);
        }
    }

    #[test]
    fn rows_that_come_in_order_leave_a_flat_tree_that_is_shed_in_slices() {
        let mut ranked = Ranked::new(&BY_VALUE);
        let rows: Vec<Entry> = (0..20_000).map(|field| row(field, 0)).collect();
        for row in &rows {
            ranked.put(None, row.clone());
        }
        assert_eq!(ranked.len(), rows.len());
        assert_eq!(ranked.rows_from(12_345, false).next(), Some(&rows[12_345]));
        let mut slices = 1;
        while ranked.shed(100) {
            slices += 1;
        }
        assert_eq!(slices, 200);
    }
}
