//! The rows of a table in an order of their own, with counts: a B-tree.
//!
//! ```text
//!   inner: child, child, ...        each: what its rows weigh together
//!   leaf:  row, row, ...            handles of entries that the index of the table has, too
//!                                   scores: with half of each, so that a search loads few rows
//! ```
//! Each row has a weight: how many elements it holds. So the row of the n-th element, and the
//! number of elements before a bound, are found in O(log n). A range of rows is cut out, and put
//! back, in O(log n), too.
//!
//! Rows that were removed together are apart until they are freed (`cuts.rs`).
//!
//! It is derived from the rows and the table's cuts: no log, snapshot or checksum knows it.

use super::cuts::{RowCut, RowSpan};
use crate::value::entry::Entry;
use crate::value::types::RowOrder;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::slice;

/// The most rows of a leaf, and children of an inner node.
const NODE_MAX: usize = 64;
/// How many items at the end are looked at before others, if rows come there. The last row of a
/// stream says what is to be known of it, so its entries come before that.
const LOOKED_AT_END: usize = 2;
/// Two neighbours that have no more than this together become one.
const JOINED_MAX: usize = NODE_MAX / 2;

/// The rows of a table in order.
#[derive(Debug)]
pub(crate) struct Ranked {
    order: &'static RowOrder,
    root: Child,
    /// Those of cuts, the earliest first. If several cuts hide a row, it is with the first of them.
    hidden: Vec<HiddenRows>,
}

#[derive(Debug)]
struct HiddenRows {
    cut: RowCut,
    root: Child,
}

#[derive(Debug)]
struct Child {
    mass: Mass,
    /// What the order says of its first row as a number. A search reads that before the row, which
    /// is in no cache.
    begins: u64,
    node: Node,
}

/// What rows have together.
#[derive(Debug, Clone, Copy, Default)]
struct Mass {
    /// What they weigh.
    weight: usize,
    rows: usize,
    /// Bytes of their fields and values.
    bytes: usize,
    /// No row has a later version.
    newest: u64,
}

impl Mass {
    fn of(row: &Entry, order: &RowOrder) -> Self {
        Self {
            weight: (order.weight)(row),
            rows: 1,
            bytes: row.len(),
            newest: row.version(),
        }
    }

    const fn and(self, more: Self) -> Self {
        Self {
            weight: self.weight + more.weight,
            rows: self.rows + more.rows,
            bytes: self.bytes + more.bytes,
            newest: if self.newest > more.newest {
                self.newest
            } else {
                more.newest
            },
        }
    }

    /// Without a part of it.
    const fn without(self, part: Self) -> Self {
        Self {
            weight: self.weight - part.weight,
            rows: self.rows - part.rows,
            bytes: self.bytes - part.bytes,
            newest: self.newest,
        }
    }
}

#[derive(Debug)]
enum Node {
    Leaf(Leaf),
    Inner(Vec<Child>),
}

impl Node {
    const fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.rows.len(),
            Self::Inner(children) => children.len(),
        }
    }
}

/// Rows, and of each the upper half of what the order says of it as a number: rows are in no cache,
/// and numbers lie beside each other. There are none if rows are looked for at the ends.
#[derive(Debug)]
struct Leaf {
    rows: Vec<Entry>,
    numbers: Vec<u32>,
}

impl Leaf {
    const EMPTY: Self = Self {
        rows: Vec::new(),
        numbers: Vec::new(),
    };

    fn number(row: &Entry, order: &RowOrder) -> u32 {
        ((order.number)(row) >> u32::BITS) as u32
    }

    /// Where it has this row, or would have it.
    fn place(&self, row: &Entry, order: &RowOrder) -> Result<usize, usize> {
        let compare = |held: &Entry| (order.compare)(held, row);
        let (mut from, mut end) = (0, self.rows.len());
        if order.grows_at_ends {
            match self.rows.first().map(compare) {
                None | Some(Ordering::Greater) => return Err(0),
                Some(Ordering::Equal) => return Ok(0),
                Some(Ordering::Less) => {}
            }
            for _ in 0..LOOKED_AT_END.min(end) {
                match compare(&self.rows[end - 1]) {
                    Ordering::Less => return Err(end),
                    Ordering::Equal => return Ok(end - 1),
                    Ordering::Greater => end -= 1,
                }
            }
        } else {
            let number = Self::number(row, order);
            from = self.numbers.partition_point(|held| *held < number);
            end = from + self.numbers[from..].partition_point(|held| *held == number);
        }
        let place = self.rows[from..end].binary_search_by(compare);
        place.map(|at| from + at).map_err(|at| from + at)
    }

    fn insert(&mut self, at: usize, row: Entry, order: &RowOrder) {
        if !order.grows_at_ends {
            self.numbers.insert(at, Self::number(&row, order));
        }
        self.rows.insert(at, row);
    }

    fn remove(&mut self, at: usize) -> Entry {
        if at < self.numbers.len() {
            self.numbers.remove(at);
        }
        self.rows.remove(at)
    }

    /// Keeps the first rows, and returns the others.
    fn split_off(&mut self, at: usize) -> Self {
        Self {
            numbers: self.numbers.split_off(at.min(self.numbers.len())),
            rows: self.rows.split_off(at),
        }
    }

    fn append(&mut self, behind: &mut Self) {
        self.rows.append(&mut behind.rows);
        self.numbers.append(&mut behind.numbers);
    }

    fn truncate(&mut self, count: usize) {
        self.rows.truncate(count);
        self.numbers.truncate(count);
    }
}

/// The child that has this row, or would have it.
fn child_of(children: &[Child], row: &Entry, order: &RowOrder) -> usize {
    let number = (order.number)(row);
    let begins = |child: &Child| match child.begins.cmp(&number) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal => {
            let first = child.first();
            first.is_none_or(|first| (order.compare)(first, row) != Ordering::Greater)
        }
    };
    let mut end = children.len();
    if order.grows_at_ends {
        if children.get(1).is_none_or(|second| !begins(second)) {
            return 0;
        }
        for _ in 0..LOOKED_AT_END {
            end -= 1;
            if end == 0 || begins(&children[end]) {
                return end;
            }
        }
    }
    children[..end].partition_point(begins).saturating_sub(1)
}

/// The item that has the n-th of `whole` elements, and how many elements come before it. It is
/// searched from the end that is nearer.
fn item_at<T>(
    items: &[T],
    weight: impl Fn(&T) -> usize,
    (n, whole): (usize, usize),
) -> Option<(usize, usize)> {
    if n < whole / 2 {
        let mut before = 0;
        for (at, item) in items.iter().enumerate() {
            let end = before + weight(item);
            if n < end {
                return Some((at, before));
            }
            before = end;
        }
        return None;
    }
    let mut end = whole;
    for (at, item) in items.iter().enumerate().rev() {
        let before = end.saturating_sub(weight(item));
        if n >= before {
            return (n < end).then_some((at, before));
        }
        end = before;
    }
    None
}

impl Child {
    const EMPTY: Self = Self {
        mass: Mass {
            weight: 0,
            rows: 0,
            bytes: 0,
            newest: 0,
        },
        begins: 0,
        node: Node::Leaf(Leaf::EMPTY),
    };

    fn of(node: Node, order: &RowOrder) -> Self {
        let mass = match &node {
            Node::Leaf(Leaf { rows, .. }) => {
                let each = rows.iter().map(|row| Mass::of(row, order));
                each.fold(Mass::default(), Mass::and)
            }
            Node::Inner(children) => mass_of(children),
        };
        let mut it = Self {
            mass,
            begins: 0,
            node,
        };
        it.note_first(order);
        it
    }

    /// Its first row is another one, perhaps.
    fn note_first(&mut self, order: &RowOrder) {
        self.begins = match &self.node {
            Node::Leaf(Leaf { rows, .. }) => rows.first().map_or(0, order.number),
            Node::Inner(children) => children.first().map_or(0, |child| child.begins),
        };
    }

    /// How many levels of nodes lie below it.
    fn height(&self) -> usize {
        match &self.node {
            Node::Leaf(_) => 0,
            Node::Inner(children) => 1 + children.first().map_or(0, Self::height),
        }
    }

    /// Without nodes above that have one child alone.
    fn trimmed(mut self) -> Self {
        while let Node::Inner(children) = &mut self.node
            && children.len() <= 1
        {
            self = children.pop().unwrap_or(Self::EMPTY);
        }
        self
    }

    fn trim(&mut self) {
        if let Node::Inner(children) = &self.node
            && children.len() <= 1
        {
            *self = std::mem::replace(self, Self::EMPTY).trimmed();
        }
    }

    /// A root takes a row, in place of one that is equal by the order.
    fn put(&mut self, row: Entry, order: &RowOrder) {
        if let Some(right) = self.insert(row, order) {
            let left = std::mem::replace(self, Self::EMPTY);
            *self = Self::of(Node::Inner(vec![left, right]), order);
        }
    }

    /// A root loses the rows of a range. Returns them.
    fn cut(&mut self, span: &RowSpan, order: &RowOrder) -> Self {
        let mut cut = self.split_where(&mut |row| span.begins_behind(row, order), order);
        let behind = cut.split_where(&mut |row| span.ends_behind(row, order), order);
        let before = std::mem::replace(self, Self::EMPTY);
        *self = before.joined(behind, order);
        cut.trimmed()
    }

    /// Keeps the rows for which this holds. It holds for none behind one for which it does not.
    /// Returns those, in a child of the same height.
    fn split_where(&mut self, holds: &mut impl FnMut(&Entry) -> bool, order: &RowOrder) -> Self {
        let right = match &mut self.node {
            Node::Leaf(leaf) => {
                let end = leaf.rows.partition_point(&mut *holds);
                Node::Leaf(leaf.split_off(end))
            }
            Node::Inner(children) => {
                let end = children.partition_point(|child| child.first().is_none_or(&mut *holds));
                let mut right = children.split_off(end);
                if let Some(last) = children.last_mut() {
                    let part = last.split_where(holds, order);
                    if part.node.len() > 0 {
                        right.insert(0, part);
                    }
                    if last.node.len() == 0 {
                        children.pop();
                    }
                }
                Node::Inner(right)
            }
        };
        let right = Self::of(right, order);
        self.mass = match &self.node {
            Node::Inner(children) => mass_of(children),
            Node::Leaf(_) => self.mass.without(right.mass),
        };
        self.note_first(order);
        right
    }

    /// The rows of both: those of the first, then those of the second.
    fn joined(self, behind: Self, order: &RowOrder) -> Self {
        let (mut one, mut other) = (self.trimmed(), behind.trimmed());
        if one.node.len() == 0 {
            return other;
        }
        if other.node.len() == 0 {
            return one;
        }
        let (left, right) = (one.height(), other.height());
        let (first, second) = if left < right {
            let more = other.put_beside(one, right - left, true, order);
            (other, more)
        } else if left > right {
            let more = one.put_beside(other, left - right, false, order);
            (one, more)
        } else {
            (one, Some(other))
        };
        match second {
            Some(second) => Self::of(Node::Inner(vec![first, second]), order),
            None => first,
        }
    }

    /// Takes a child that is this many levels lower, as its first or its last one. Returns what did
    /// not fit, and follows.
    fn put_beside(
        &mut self,
        child: Self,
        levels: usize,
        first: bool,
        order: &RowOrder,
    ) -> Option<Self> {
        let Node::Inner(children) = &mut self.node else {
            return Some(child);
        };
        self.mass = self.mass.and(child.mass);
        self.begins = if first { child.begins } else { self.begins };
        if levels <= 1 {
            let at = if first { 0 } else { children.len() };
            children.insert(at, child);
        } else {
            let at = if first { 0 } else { children.len() - 1 };
            if let Some(right) = children[at].put_beside(child, levels - 1, first, order) {
                children.insert(at + 1, right);
            }
        }
        let right = Self::of(Node::Inner(split(children, !first)?), order);
        self.mass = mass_of(children);
        Some(right)
    }

    /// Adds the rows that have this version or a later one.
    fn since(&self, version: u64, found: &mut Vec<Entry>) {
        if self.mass.newest < version {
            return;
        }
        match &self.node {
            Node::Leaf(Leaf { rows, .. }) => {
                let new = rows.iter().filter(|row| row.version() >= version);
                found.extend(new.cloned());
            }
            Node::Inner(children) => {
                children
                    .iter()
                    .for_each(|child| child.since(version, found));
            }
        }
    }

    /// Its first row.
    fn first(&self) -> Option<&Entry> {
        match &self.node {
            Node::Leaf(Leaf { rows, .. }) => rows.first(),
            Node::Inner(children) => children.first()?.first(),
        }
    }

    /// Takes a row, in place of one that is equal by the order. Returns what did not fit, and
    /// follows.
    fn insert(&mut self, row: Entry, order: &RowOrder) -> Option<Self> {
        let came = Mass::of(&row, order);
        let right = match &mut self.node {
            Node::Leaf(leaf) => {
                let place = leaf.place(&row, order);
                let at_end = place.is_err_and(|at| at + LOOKED_AT_END > leaf.rows.len());
                match place {
                    Ok(at) => {
                        let held = std::mem::replace(&mut leaf.rows[at], row);
                        self.mass = self.mass.without(Mass::of(&held, order));
                    }
                    Err(at) => {
                        if at == 0 {
                            self.begins = (order.number)(&row);
                        }
                        leaf.insert(at, row, order);
                    }
                }
                self.mass = self.mass.and(came);
                let is_full = leaf.rows.len() > NODE_MAX;
                is_full.then(|| Node::Leaf(leaf.split_off(kept(at_end))))
            }
            Node::Inner(children) => {
                let at = child_of(children, &row, order);
                let before = children[at].mass;
                let right = children[at].insert(row, order);
                let more = right.as_ref().map(|right| right.mass);
                let after = children[at].mass.and(more.unwrap_or_default());
                self.mass = self.mass.and(after).without(before);
                self.begins = children[0].begins;
                if let Some(right) = right {
                    children.insert(at + 1, right);
                }
                let at_end = at + 1 + LOOKED_AT_END >= children.len();
                split(children, at_end).map(Node::Inner)
            }
        };
        let right = Self::of(right?, order);
        self.mass = self.mass.without(right.mass);
        Some(right)
    }

    /// Loses a row. Returns whether it had it.
    fn remove(&mut self, row: &Entry, order: &RowOrder) -> bool {
        match &mut self.node {
            Node::Leaf(leaf) => {
                let Ok(at) = leaf.place(row, order) else {
                    return false;
                };
                self.mass = self.mass.without(Mass::of(&leaf.remove(at), order));
                if at == 0 {
                    self.note_first(order);
                }
            }
            Node::Inner(children) => {
                let at = child_of(children, row, order);
                let Some(child) = children.get_mut(at) else {
                    return false;
                };
                let was = child.mass;
                if !child.remove(row, order) {
                    return false;
                }
                self.mass = self.mass.and(child.mass).without(was);
                join(children, at);
                self.note_first(order);
            }
        }
        true
    }

    /// What the rows weigh for which this holds. It holds for none behind one for which it does
    /// not.
    fn weight_while(&self, holds: &mut impl FnMut(&Entry) -> bool, order: &RowOrder) -> usize {
        match &self.node {
            Node::Leaf(Leaf { rows, .. }) => {
                let end = rows.partition_point(&mut *holds);
                rows[..end].iter().map(order.weight).sum()
            }
            Node::Inner(children) => {
                let end = children.partition_point(|child| child.first().is_none_or(&mut *holds));
                let Some(last) = end.checked_sub(1) else {
                    return 0;
                };
                let whole: usize = children[..last].iter().map(|child| child.mass.weight).sum();
                whole + children[last].weight_while(holds, order)
            }
        }
    }

    /// Gives up about this many rows from the end. Returns how many.
    fn shed(&mut self, count: usize) -> usize {
        match &mut self.node {
            Node::Leaf(leaf) => {
                let before = leaf.rows.len();
                leaf.truncate(before.saturating_sub(count));
                before - leaf.rows.len()
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

fn mass_of(children: &[Child]) -> Mass {
    let each = children.iter().map(|child| child.mass);
    each.fold(Mass::default(), Mass::and)
}

/// What does not fit into a node, and follows it. What comes in order leaves full nodes behind.
fn split<T>(items: &mut Vec<T>, at_end: bool) -> Option<Vec<T>> {
    (items.len() > NODE_MAX).then(|| items.split_off(kept(at_end)))
}

/// How many of its items a node keeps that is split.
const fn kept(at_end: bool) -> usize {
    if at_end { NODE_MAX } else { NODE_MAX / 2 }
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
        (Node::Leaf(leaf), Node::Leaf(more)) => leaf.append(more),
        (Node::Inner(all), Node::Inner(more)) => all.append(more),
        _ => return,
    }
    first.mass = first.mass.and(second.mass);
    children.remove(left + 1);
}

impl Ranked {
    pub(crate) const fn new(order: &'static RowOrder) -> Self {
        Self {
            order,
            root: Child::EMPTY,
            hidden: Vec::new(),
        }
    }

    /// How many elements the rows have together.
    pub(crate) const fn len(&self) -> usize {
        self.root.mass.weight
    }

    /// Their order.
    pub(crate) const fn order(&self) -> &'static RowOrder {
        self.order
    }

    /// A row comes, in place of the one that its field had.
    pub(crate) fn put(&mut self, old: Option<&Entry>, row: Entry) {
        let stays = |old: &Entry| {
            self.hidden.is_empty() && (self.order.compare)(old, &row) == Ordering::Equal
        };
        if let Some(old) = old
            && !stays(old)
        {
            self.remove(old);
        }
        let order = self.order;
        self.root_of(&row).put(row, order);
    }

    /// A row goes.
    pub(crate) fn remove(&mut self, row: &Entry) {
        let order = self.order;
        let root = self.root_of(row);
        root.remove(row, order);
        root.trim();
    }

    /// Where a row is, or would be.
    fn root_of(&mut self, row: &Entry) -> &mut Child {
        let order = self.order;
        let mut hidden = self.hidden.iter_mut();
        let hides = hidden.find(|hidden| hidden.cut.hides(row, order));
        hides.map_or(&mut self.root, |hidden| &mut hidden.root)
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
        let mut shed = self.root.shed(count);
        while shed < count
            && let Some(last) = self.hidden.last_mut()
        {
            shed += last.root.shed(count - shed);
            if last.root.node.len() == 0 {
                self.hidden.pop();
            }
        }
        self.root.node.len() > 0 || !self.hidden.is_empty()
    }
}

/// With rows that are hidden.
impl Ranked {
    /// The cuts, the earliest first.
    pub(super) fn cuts(&self) -> impl Iterator<Item = &RowCut> {
        self.hidden.iter().map(|hidden| &hidden.cut)
    }

    /// Whether a row is hidden.
    #[inline]
    pub(super) fn hides(&self, row: &Entry) -> bool {
        let mut cuts = self.cuts();
        cuts.any(|cut| cut.hides(row, self.order))
    }

    /// How many rows are hidden, and their bytes.
    pub(super) fn hidden(&self) -> (usize, usize) {
        let each = self.hidden.iter().map(|hidden| hidden.root.mass);
        each.fold((0, 0), |(rows, bytes), mass| {
            (rows + mass.rows, bytes + mass.bytes)
        })
    }

    /// The first cut, and its rows.
    pub(super) fn first_hidden(&self) -> Option<(&RowCut, RankedRows<'_>)> {
        let HiddenRows { cut, root } = self.hidden.first()?;
        Some((cut, RankedRows::of(root, 0, (self.order, false)).0))
    }

    /// The rows of a cut in a range.
    pub(super) fn hidden_in(&self, cut: &RowCut, span: &RowSpan) -> Vec<Entry> {
        let mut hidden = self.hidden.iter();
        let hidden = hidden.find(|hidden| hidden.cut.is_same(cut));
        hidden.map_or_else(Vec::new, |hidden| {
            self.rows_in(&hidden.root, span).collect()
        })
    }

    /// The rows in a range that are not hidden, though they are older than a cut of it.
    pub(super) fn older_in(&self, seq: u64, span: &RowSpan) -> Vec<Entry> {
        let rows = self.rows_in(&self.root, span);
        rows.filter(|row| row.version() < seq).collect()
    }

    fn rows_in<'a>(&self, root: &'a Child, span: &'a RowSpan) -> impl Iterator<Item = Entry> + 'a {
        let order = self.order;
        let before = root.weight_while(&mut |row| span.begins_behind(row, order), order);
        let rows = RankedRows::of(root, before, (order, false)).0;
        let rows = rows.take_while(move |row| span.ends_behind(row, order));
        rows.cloned()
    }

    /// It has these cuts, the earliest first, and no others.
    pub(super) fn set_cuts(&mut self, cuts: Vec<RowCut>) {
        let mut former = std::mem::take(&mut self.hidden);
        // The latest first: what it hid may be what an earlier one hides, too.
        let stays = |hidden: &HiddenRows| cuts.iter().any(|cut| cut.is_same(&hidden.cut));
        let (stay, gone): (Vec<_>, Vec<_>) = former.drain(..).partition(stays);
        self.hidden = stay;
        for HiddenRows { cut, root } in gone.into_iter().rev() {
            self.show(&cut, root);
        }
        for cut in cuts {
            let mut known = self.hidden.iter_mut();
            match known.position(|hidden| hidden.cut.is_same(&cut)) {
                Some(at) => self.set_span(at, cut.span),
                None => self.hide(cut),
            }
        }
    }

    /// The rows of a cut that is none any more are seen again.
    fn show(&mut self, cut: &RowCut, root: Child) {
        let order = self.order;
        if root.mass.rows == 0 {
            return;
        }
        if !self.hidden.is_empty() {
            let rows = RankedRows::of(&root, 0, (order, false)).0;
            rows.for_each(|row| self.put(None, row.clone()));
            return;
        }
        // What came into the range since then.
        let later = self.root.cut(&cut.span, order);
        let Some(first) = root.first().cloned() else {
            return;
        };
        let mut is_before = |row: &Entry| (order.compare)(row, &first) == Ordering::Less;
        let behind = self.root.split_where(&mut is_before, order);
        let before = std::mem::replace(&mut self.root, Child::EMPTY);
        self.root = before.joined(root, order).joined(behind, order);
        let later = RankedRows::of(&later, 0, (order, false)).0;
        later.for_each(|row| self.root.put(row.clone(), order));
    }

    /// The rows that a cut hides go out of sight.
    fn hide(&mut self, cut: RowCut) {
        let order = self.order;
        let root = self.root.cut(&cut.span, order);
        let (mut since, seq) = (Vec::new(), cut.seq);
        root.since(seq, &mut since);
        let mut hidden = HiddenRows { cut, root };
        for row in &since {
            hidden.root.remove(row, order);
            hidden.root.trim();
        }
        let at = self.hidden.partition_point(|hidden| hidden.cut.seq <= seq);
        // At a learner, a later cut may have come first.
        let mut others = Vec::new();
        for later in &mut self.hidden[at..] {
            others.push(later.root.cut(&hidden.cut.span, order));
        }
        self.hidden.insert(at, hidden);
        let others = others.iter();
        let others = others.flat_map(|root| RankedRows::of(root, 0, (order, false)).0);
        for row in since.iter().chain(others) {
            self.put(None, row.clone());
        }
    }

    /// A cut has this range now. It has no rows in the others as a rule.
    fn set_span(&mut self, at: usize, span: RowSpan) {
        let order = self.order;
        let hidden = &mut self.hidden[at];
        if hidden.cut.span == span {
            return;
        }
        let within = hidden.root.cut(&span, order);
        let others = std::mem::replace(&mut hidden.root, within);
        hidden.cut.span = span;
        let others = RankedRows::of(&others, 0, (order, false)).0;
        others.for_each(|row| self.put(None, row.clone()));
    }
}

/// The rows from a place on, in order or in reverse.
pub(crate) struct RankedRows<'a> {
    leaf: slice::Iter<'a, Entry>,
    /// What is left of the nodes above the leaf.
    above: SmallVec<[slice::Iter<'a, Child>; 3]>,
    reverse: bool,
}

impl<'a> RankedRows<'a> {
    fn of(mut from: &'a Child, mut n: usize, (order, reverse): (&RowOrder, bool)) -> (Self, usize) {
        let mut rows = Self {
            leaf: [].iter(),
            above: SmallVec::new(),
            reverse,
        };
        loop {
            let place = (n, from.mass.weight);
            match &from.node {
                Node::Leaf(Leaf { rows: all, .. }) => {
                    let found = if from.mass.weight == from.mass.rows {
                        (n < all.len()).then_some((n, n))
                    } else {
                        item_at(all, order.weight, place)
                    };
                    let Some((at, before)) = found else {
                        return (rows, n.saturating_sub(from.mass.weight));
                    };
                    rows.leaf = if reverse {
                        all[..=at].iter()
                    } else {
                        all[at..].iter()
                    };
                    return (rows, n - before);
                }
                Node::Inner(children) => {
                    let found = item_at(children, |child| child.mass.weight, place);
                    let Some((at, before)) = found else {
                        return (rows, n.saturating_sub(from.mass.weight));
                    };
                    rows.above.push(if reverse {
                        children[..at].iter()
                    } else {
                        children[at + 1..].iter()
                    });
                    from = &children[at];
                    n -= before;
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
                Some(Node::Leaf(leaf)) => self.leaf = leaf.rows.iter(),
                Some(Node::Inner(children)) => self.above.push(children.iter()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
