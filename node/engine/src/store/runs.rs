//! A list as procedures read and edit it: one run of elements while it is small, and rows of runs
//! when it is large (`value/types/list.rs`).
//!
//! ```text
//!   row      row      row            cuts: these elements go, and others come in their place
//!   a b c  | d e f  | g h
//!        ╰──cut──╯                   a window: all rows that one cut touches, or several together
//!   a b      X f    | g h            its runs replace theirs; a row whose run is as before stays
//! ```
//! So an edit costs the bytes of the rows at its ends, which are few, however long the list is.
//! What comes at an end leaves full runs behind. A small run joins the one that follows it. A list
//! that is small again becomes one run.

use super::budget::Budget;
use super::change::{FewFields, KeyChange, RowChange};
use super::cuts::{self, RowSpan};
use super::run_context::{RunContext, kept};
use super::{FoundKey, RowTable};
use crate::value::entry::Entry;
use crate::value::items::{Items, put};
use crate::value::kind::Kind;
use crate::value::outcome::Failure;
use crate::value::types::list::{COUNT_BYTES, ElementRun, RUN_ITEMS_MAX, count_bytes, position};
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// The position of the first row, and how far apart rows are that come at an end. So there is room
/// for 2^47 rows in each direction.
const FIRST_POSITION: u64 = 1 << 63;
const GAP: u64 = 1 << 16;
/// Rows that are moved to make room between two others, at first.
const MOVED_LEAST: usize = 8;
/// A run that has no more than this together with the next one joins it. A list that has no more
/// becomes one run again.
const JOINED_MAX: usize = RUN_ITEMS_MAX / 2;
/// The most bytes of a run of several elements.
const RUN_BYTES: usize = RUN_ITEMS_MAX + COUNT_BYTES;
/// A list with more elements than this stays a table.
const LEFT_MAX: usize = 256;
/// Rows that go one by one before the others that follow go as one range.
#[cfg(not(test))]
const PASSED_MAX: usize = 64;
#[cfg(test)]
const PASSED_MAX: usize = 3;

/// A list as a procedure reads it.
#[derive(Clone, Copy)]
pub(crate) struct ListView<'a> {
    entry: Option<&'a Entry>,
    table: Option<&'a RowTable>,
    budget: &'a Budget,
}

/// These elements go, and others come in their place.
#[derive(Debug, Clone)]
pub(crate) struct ListCut<'a> {
    pub(crate) gone: Range<usize>,
    /// How many come.
    pub(crate) count: usize,
    /// These, one after the other (`items.rs`).
    pub(crate) items: &'a [u8],
}

impl ListCut<'_> {
    /// These elements go.
    pub(crate) const fn removal(gone: Range<usize>) -> Self {
        Self {
            gone,
            count: 0,
            items: &[],
        }
    }
}

impl<'a> ListView<'a> {
    /// What a key with a list holds. An absent list is empty.
    pub(crate) const fn of(found: FoundKey<'a>, cx: &RunContext<'a>) -> Self {
        Self {
            entry: found.entry,
            table: found.table,
            budget: cx.budget,
        }
    }

    /// Its only run, if it is small.
    fn run(self) -> ElementRun<'a> {
        let small = self.entry.filter(|_| self.table.is_none());
        ElementRun(small.map_or(&[], Entry::value))
    }

    /// How many elements it has.
    pub(crate) fn len(self) -> usize {
        match self.table {
            Some(table) => table.ranked().map_or(0, super::ranked::Ranked::len),
            None => self.run().len(),
        }
    }

    /// The runs from that of an element on, in order or in reverse, and how many elements of the
    /// first one come before it.
    fn runs_at(
        self,
        n: usize,
        reverse: bool,
    ) -> (impl Iterator<Item = (u64, ElementRun<'a>)>, usize) {
        let rows = self.table.and_then(RowTable::ranked);
        let (rows, within) = rows.map_or((None, n), |ranked| {
            let (rows, within) = ranked.rows_at(n, reverse);
            (Some(rows), within)
        });
        let budget = self.budget;
        let rows = rows.into_iter().flatten();
        let rows = rows.map(|row| (position(row.key()), ElementRun(row.value())));
        let small = (self.table.is_none() && n < self.run().len()).then(|| (0, self.run()));
        let runs = small.into_iter().chain(rows);
        let runs = runs.take_while(move |(_, run)| budget.element_of(run.0.len()));
        (runs, within)
    }

    /// Its elements from one on.
    pub(crate) fn from(self, n: usize) -> impl Iterator<Item = &'a [u8]> {
        let (runs, within) = self.runs_at(n, false);
        let budget = self.budget;
        let elements = runs.flat_map(|(_, run)| run.elements()).skip(within);
        elements.take_while(move |_| budget.element())
    }

    /// Its last element.
    pub(crate) fn last(self) -> Option<&'a [u8]> {
        let n = self.len().checked_sub(1)?;
        let (mut runs, _) = self.runs_at(n, false);
        runs.next()?.1.elements().last()
    }

    /// The same in reverse.
    pub(crate) fn back_from(self, n: usize) -> impl Iterator<Item = &'a [u8]> {
        let (runs, within) = self.runs_at(n, true);
        let budget = self.budget;
        let mut first = Some(within + 1);
        let elements = runs.flat_map(move |(_, run)| {
            let most = first.take().unwrap_or(usize::MAX);
            let all: Vec<&[u8]> = run.elements().take(most).collect();
            all.into_iter().rev()
        });
        elements.take_while(move |_| budget.element())
    }

    /// How the key changes if these cuts are made, in order. No two of them overlap.
    ///
    /// # Errors
    /// More comes than a value may have.
    pub(crate) fn edited(
        self,
        cuts: &[ListCut<'_>],
        cx: &RunContext,
    ) -> Result<KeyChange, Failure> {
        let comes: usize = cuts.iter().map(|cut| cut.items.len()).sum();
        if comes > cx.value_bytes_max {
            return Err(Failure::TooLarge);
        }
        if cuts.is_empty() {
            return Ok(KeyChange::None);
        }
        match self.table {
            None => Ok(self.edited_run(cuts, cx)),
            Some(table) => TableEdit::new(self, table, cx).edited(cuts),
        }
    }

    fn edited_run(self, cuts: &[ListCut<'_>], cx: &RunContext) -> KeyChange {
        let comes: usize = cuts.iter().map(|cut| cut.items.len()).sum();
        let mut window = ListWindow {
            items: Vec::with_capacity(self.run().0.len() + comes),
            ..ListWindow::default()
        };
        let mut cuts = CutsLeft::of(cuts);
        cuts.apply(0, (self.run(), true), &mut window);
        if window.count == 0 {
            return KeyChange::Delete;
        }
        let deadline = kept(self.entry, cx);
        if window.items.len() <= RUN_ITEMS_MAX.min(cx.packed_bytes_max) {
            return packed(window.run(), deadline);
        }
        let rows = window.chopped(RunFill::FromBegin).into_iter().zip(0..);
        let rows = rows.map(|(run, n)| row(FIRST_POSITION + n * GAP, &run));
        KeyChange::Table {
            kind: Kind::List,
            rows: rows.collect(),
            deadline,
        }
    }
}

/// A list of these elements, one after the other (`items.rs`), however it lies.
pub(crate) fn list_of(items: &[u8], cx: &RunContext<'_>) -> Result<KeyChange, Failure> {
    let count = Items(items).count();
    let empty = ListView::of(FoundKey::default(), cx);
    let cut = ListCut {
        gone: 0..0,
        count,
        items,
    };
    empty.edited(&[cut], cx)
}

fn packed(run: Vec<u8>, deadline: u64) -> KeyChange {
    KeyChange::Packed {
        kind: Kind::List,
        packed: run.into(),
        deadline,
        fields: FewFields::new(),
        removes: false,
    }
}

fn row(at: u64, run: &[u8]) -> Entry {
    Entry::of_row(&at.to_be_bytes(), run, 0)
}

/// Cuts that are still to be made.
struct CutsLeft<'c, 'b> {
    left: &'c [ListCut<'b>],
    /// Whether what the first of them brings was put.
    is_put: bool,
}

impl<'c, 'b> CutsLeft<'c, 'b> {
    const fn of(left: &'c [ListCut<'b>]) -> Self {
        Self {
            left,
            is_put: false,
        }
    }

    /// Where the first one goes on.
    fn next(&self) -> Option<usize> {
        self.left.first().map(|cut| cut.gone.start)
    }

    /// Makes those that touch a run, whose first element is the n-th. What comes behind the last
    /// element of the list belongs to its last run. True: the first of those that are left goes on
    /// in the next run.
    fn apply(
        &mut self,
        n: usize,
        (run, is_last): (ElementRun<'_>, bool),
        window: &mut ListWindow,
    ) -> bool {
        let end = n + run.len();
        let (mut rest, mut at) = (run.elements(), n);
        while let Some(cut) = self.left.first() {
            let is_here = cut.gone.start < end || (is_last && cut.gone.start <= end);
            if !is_here && !self.is_put {
                break;
            }
            if !self.is_put {
                at = window.keep(&mut rest, (at, cut.gone.start));
                window.items.extend_from_slice(cut.items);
                window.count += cut.count;
                self.is_put = true;
            }
            if cut.gone.end > end && !is_last {
                return true;
            }
            if cut.gone.end >= end {
                (rest, at) = (Items(&[]), end.max(at));
            } else {
                rest.by_ref().take(cut.gone.end.saturating_sub(at)).count();
                at = cut.gone.end.max(at);
            }
            self.left = &self.left[1..];
            self.is_put = false;
        }
        window.keep(&mut rest, (at, end));
        false
    }
}

/// The elements that come in the place of some rows that follow each other.
#[derive(Debug, Default)]
struct ListWindow {
    /// The rows.
    rows: Vec<u64>,
    count: usize,
    items: Vec<u8>,
    /// How many elements and bytes there were after each row.
    ends: Vec<(usize, usize)>,
}

/// Which runs are full, if there are more than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunFill {
    FromBegin,
    FromEnd,
    /// None: they are of about the same size.
    Evenly,
}

impl ListWindow {
    /// Keeps elements up to one, and returns its place.
    fn keep(&mut self, rest: &mut Items<'_>, (at, to): (usize, usize)) -> usize {
        let before = rest.0;
        let kept = rest.by_ref().take(to.saturating_sub(at)).count();
        let bytes = before.len() - rest.0.len();
        self.items.extend_from_slice(&before[..bytes]);
        self.count += kept;
        to.max(at)
    }

    fn run(&self) -> Vec<u8> {
        ElementRun::of(self.count, &self.items)
    }

    /// Its runs.
    fn chopped(&self, fill: RunFill) -> Vec<Vec<u8>> {
        if self.count == 0 {
            return Vec::new();
        }
        if self.items.len() <= RUN_ITEMS_MAX {
            return vec![self.run()];
        }
        let parts = self.items.len().div_ceil(RUN_ITEMS_MAX);
        let most = match fill {
            RunFill::FromBegin | RunFill::FromEnd => RUN_ITEMS_MAX,
            RunFill::Evenly => self.items.len().div_ceil(parts),
        };
        // Each element with its length, as it lies.
        let (mut all, mut rest) = (Vec::with_capacity(self.count), Items(&self.items));
        loop {
            let before = rest.0;
            if rest.next().is_none() {
                break;
            }
            all.push(&before[..before.len() - rest.0.len()]);
        }
        if fill == RunFill::FromEnd {
            all.reverse();
        }
        let (mut runs, mut run, mut bytes) = (Vec::new(), Vec::new(), 0);
        for element in all {
            let fits = bytes < most && bytes + element.len() <= RUN_ITEMS_MAX;
            if !fits && !run.is_empty() {
                runs.push(std::mem::take(&mut run));
                bytes = 0;
            }
            bytes += element.len();
            run.push(element);
        }
        runs.push(run);
        if fill == RunFill::FromEnd {
            runs.reverse();
            runs.iter_mut().for_each(|run| run.reverse());
        }
        if runs.len() > self.ends.len()
            && let Some(runs) = self.as_they_were()
        {
            return runs;
        }
        let made = runs.into_iter();
        made.map(|run| ElementRun::of(run.len(), &run.concat()))
            .collect()
    }

    /// The runs that the rows have without what went. `None`: they have become too large.
    fn as_they_were(&self) -> Option<Vec<Vec<u8>>> {
        let (mut runs, mut from) = (Vec::new(), (0, 0));
        for end in &self.ends {
            let (count, items) = (end.0 - from.0, self.items.get(from.1..end.1)?);
            if count > 1 && items.len() > RUN_ITEMS_MAX {
                return None;
            }
            if count > 0 {
                runs.push(ElementRun::of(count, items));
            }
            from = *end;
        }
        (from.0 == self.count).then_some(runs)
    }
}

/// How rows change.
struct TableEdit<'a> {
    view: ListView<'a>,
    table: &'a RowTable,
    cx: &'a RunContext<'a>,
    /// Rows that go as a whole.
    spans: Vec<RowSpan>,
    /// The rows that change. `None`: it is deleted.
    changed: BTreeMap<u64, Option<Vec<u8>>>,
}

impl<'a> TableEdit<'a> {
    const fn new(view: ListView<'a>, table: &'a RowTable, cx: &'a RunContext<'a>) -> Self {
        Self {
            view,
            table,
            cx,
            spans: Vec::new(),
            changed: BTreeMap::new(),
        }
    }

    fn edited(mut self, cuts: &[ListCut<'_>]) -> Result<KeyChange, Failure> {
        let (length, cx) = (self.view.len(), self.cx);
        if let [cut] = cuts
            && let Some(row) = self.in_one_run(cut, length)
        {
            return Ok(KeyChange::Rows {
                kind: Kind::List,
                rows: vec![row],
            });
        }
        if let Some(left) = self.little_left(cuts, length) {
            return Ok(left);
        }
        let mut cuts = CutsLeft::of(cuts);
        while let Some(next) = cuts.next() {
            self.window(next, length, &mut cuts)?;
        }
        let (mut rows, mut bytes) = (self.table.len(), self.table.content_bytes());
        for (at, run) in &self.changed {
            let old = self.table.row(&at.to_be_bytes());
            rows -= usize::from(old.is_some());
            bytes = bytes.saturating_sub(old.map_or(0, Entry::len));
            if let Some(run) = run {
                rows += 1;
                bytes += size_of::<u64>() + run.len();
            }
        }
        if rows == 0 {
            return Ok(KeyChange::Delete);
        }
        if self.spans.is_empty() && bytes <= JOINED_MAX.min(cx.packed_bytes_max) {
            return Ok(packed(self.together().run(), kept(self.view.entry, cx)));
        }
        let change = |(at, run): (u64, Option<Vec<u8>>)| match run {
            Some(run) => RowChange::Put(row(at, &run)),
            None => RowChange::Delete(Bytes::copy_from_slice(&at.to_be_bytes())),
        };
        let spans = self.spans.into_iter().map(RowChange::Cut);
        let rows: Vec<_> = spans.chain(self.changed.into_iter().map(change)).collect();
        Ok(if rows.is_empty() {
            KeyChange::None
        } else {
            KeyChange::Rows {
                kind: Kind::List,
                rows,
            }
        })
    }

    /// What one cut does to the only row that changes, as most do: elements of one run go, others
    /// come there, and they still fit; or an element begins a run at an end. `None`: it may be that
    /// more changes.
    fn in_one_run(&self, cut: &ListCut<'_>, length: usize) -> Option<RowChange> {
        let gone = &cut.gone;
        let first = gone.start.min(length.checked_sub(1)?);
        let (mut rows, within) = self.view.runs_at(first, false);
        let (at, was) = rows.next()?;
        let begin = first - within.min(first);
        let end = begin + was.len();
        let many_left = length - gone.len().min(length) > LEFT_MAX || gone.len() < length / 2;
        let changes = cut.count > 0 || !gone.is_empty();
        if gone.end > end || !many_left || !changes {
            return None;
        }
        let (count, mut rest) = (was.len() + cut.count - gone.len(), was.elements());
        let all = rest.0;
        if gone.start < end {
            rest.by_ref().take(gone.start - begin).for_each(drop);
        } else {
            rest.0 = &[];
        }
        let before = &all[..all.len() - rest.0.len()];
        rest.by_ref().take(gone.len()).for_each(drop);
        let bytes = before.len() + cut.items.len() + rest.0.len();
        let others = self.table.content_bytes().saturating_sub(was.0.len());
        let least = JOINED_MAX.min(self.cx.packed_bytes_max);
        if others <= least {
            return None;
        }
        if count == 0 {
            let key = Bytes::copy_from_slice(&at.to_be_bytes());
            let others = others.saturating_sub(key.len());
            return (others > least).then_some(RowChange::Delete(key));
        }
        if bytes > RUN_ITEMS_MAX {
            let at = match (gone.start, cut.count) {
                _ if !gone.is_empty() => return None,
                (0, 1) => at.checked_sub(GAP)?,
                (start, 1) if start == length => at.checked_add(GAP)?,
                _ => return None,
            };
            return Some(RowChange::Put(row(at, &ElementRun::of(1, cut.items))));
        }
        let joins = bytes <= JOINED_MAX
            && end < length
            && rows
                .next()
                .is_none_or(|(_, next)| bytes + next.0.len() <= JOINED_MAX);
        if joins {
            return None;
        }
        let mut run: SmallVec<[u8; RUN_BYTES]> = SmallVec::from_slice(&count_bytes(count));
        for part in [before, cut.items, rest.0] {
            run.extend_from_slice(part);
        }
        let is_same = !gone.is_empty() && was.0 == &run[..];
        (!is_same).then(|| RowChange::Put(row(at, &run)))
    }

    /// What is left of a long list, if that is very little: all else is dropped with the table.
    fn little_left(&self, cuts: &[ListCut<'_>], length: usize) -> Option<KeyChange> {
        let comes: usize = cuts.iter().map(|cut| cut.count).sum();
        let gone: usize = cuts.iter().map(|cut| cut.gone.len()).sum();
        let left = length.saturating_sub(gone);
        if cuts.len() > 2 || comes > 0 || left > LEFT_MAX || gone < length - length / 2 {
            return None;
        }
        let ends = cuts.iter().map(|cut| cut.gone.end);
        let begins = cuts.iter().map(|cut| cut.gone.start).chain([length]);
        let kept = std::iter::once(0).chain(ends).zip(begins);
        let (mut items, mut count) = (Vec::new(), 0);
        for (from, to) in kept {
            for element in self.view.from(from).take(to.saturating_sub(from)) {
                put(&mut items, element);
                count += 1;
            }
        }
        if count == 0 {
            return Some(KeyChange::Delete);
        }
        let fits = items.len() <= JOINED_MAX.min(self.cx.packed_bytes_max);
        let deadline = self::kept(self.view.entry, self.cx);
        fits.then(|| packed(ElementRun::of(count, &items), deadline))
    }

    /// All elements after the change.
    fn together(&self) -> ListWindow {
        let rows = self.view.runs_at(0, false).0;
        let mut all: BTreeMap<u64, &[u8]> = rows
            .filter(|(at, _)| !self.changed.contains_key(at))
            .map(|(at, run)| (at, run.0))
            .collect();
        let changed = self.changed.iter();
        all.extend(changed.filter_map(|(at, run)| Some((*at, run.as_deref()?))));
        let mut window = ListWindow::default();
        for run in all.into_values().map(ElementRun) {
            window.keep(&mut run.elements(), (0, run.len()));
        }
        window
    }

    /// Makes the cuts that touch the row of this element, and the rows behind it up to one that no
    /// cut touches.
    fn window(
        &mut self,
        next: usize,
        length: usize,
        cuts: &mut CutsLeft<'_, '_>,
    ) -> Result<(), Failure> {
        let first = next.min(length.saturating_sub(1));
        let (mut rows, within) = self.view.runs_at(first, false);
        let mut n = first - within.min(first);
        let begins = next == 0;
        let mut window = ListWindow::default();
        let (mut ends, mut following, mut passed) = (false, None, 0);
        while let Some((at, run)) = rows.next() {
            window.rows.push(at);
            let end = n + run.len().max(1);
            ends = end >= length;
            let goes_on = cuts.apply(n, (run, ends), &mut window);
            window.ends.push((window.count, window.items.len()));
            n = end;
            if !goes_on && cuts.next().is_none_or(|next| next > n || ends) {
                following = rows.next();
                break;
            }
            passed = if goes_on { passed + 1 } else { 0 };
            if passed == PASSED_MAX
                && let Some(cut) = cuts.left.first()
                && let Some((span, to)) = self.passed(n, cut.gone.end.min(length - 1))
            {
                self.spans.push(span);
                (rows, n) = (self.view.runs_at(to, false).0, to);
            }
        }
        if window.rows.is_empty() || ends && cuts.next().is_some() {
            // A peer's rows have other elements than they say: the rest cannot be found.
            cuts.left = &[];
        }
        if let Some((at, run)) = following
            && window.count > 0
            && window.items.len() + run.0.len() <= JOINED_MAX
            && cuts.next().is_none_or(|next| next > n + run.len())
        {
            window.rows.push(at);
            window.keep(&mut run.elements(), (0, run.len()));
            following = rows.next();
        }
        let runs = window.chopped(match (begins, ends) {
            (true, _) => RunFill::FromEnd,
            (false, true) => RunFill::FromBegin,
            (false, false) => RunFill::Evenly,
        });
        let positions = self.positions(&window.rows, runs.len(), (begins, following))?;
        for at in window.rows {
            self.changed.insert(at, None);
        }
        for (at, run) in positions.into_iter().zip(runs) {
            let is_same = |old: &Entry| old.value() == run;
            if self.table.row(&at.to_be_bytes()).is_some_and(is_same) {
                self.changed.remove(&at);
            } else {
                self.changed.insert(at, Some(run));
            }
        }
        Ok(())
    }

    /// The rows from that of an element up to that of another one, which is not one of them, as one
    /// range; and the first element of that row. `None`: they are few.
    fn passed(&self, from: usize, to: usize) -> Option<(RowSpan, usize)> {
        let ranked = self.table.ranked()?;
        let to = to.checked_sub(ranked.rows_at(to, false).1)?;
        let last = to.checked_sub(1).filter(|last| *last >= from)?;
        let [first, last] = [from, last].map(|n| ranked.rows_from(n, false).next());
        let span = cuts::removal(self.table, (first?, last?), to - from, self.cx)?;
        Some((span, to))
    }

    /// The positions of `count` runs that come in the place of rows, before the row that follows.
    /// What comes at the beginning of the list leaves the positions of what is there.
    fn positions(
        &mut self,
        rows: &[u64],
        count: usize,
        (begins, following): (bool, Option<(u64, ElementRun<'a>)>),
    ) -> Result<Vec<u64>, Failure> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok((0..count as u64)
                .map(|n| FIRST_POSITION + n * GAP)
                .collect());
        };
        let Some(more) = count.checked_sub(rows.len()).filter(|more| *more > 0) else {
            let spare = if begins { rows.len() - count } else { 0 };
            return Ok(rows[spare..spare + count].to_vec());
        };
        let steps = 1..=more as u64;
        let positions: Option<Vec<u64>> = match following {
            _ if begins => {
                let before = steps.rev().map(|n| first.checked_sub(n * GAP));
                before.chain(rows.iter().copied().map(Some)).collect()
            }
            None => {
                let behind = steps.map(|n| last.checked_add(n * GAP));
                rows.iter().copied().map(Some).chain(behind).collect()
            }
            Some((next, _)) => {
                let next = self.make_room(*last, next, more)?;
                let apart = (next - last) / (more as u64 + 1);
                let between = steps.map(|n| Some(last + n * apart));
                rows.iter().copied().map(Some).chain(between).collect()
            }
        };
        positions.ok_or(Failure::TooLarge)
    }

    /// Moves the rows from this one on, so that others have room between it and the last one
    /// before. Returns its position.
    fn make_room(&mut self, last: u64, next: u64, more: usize) -> Result<u64, Failure> {
        if next.saturating_sub(last) > more as u64 {
            return Ok(next);
        }
        let ranked = self.table.ranked().ok_or(Failure::TooLarge)?;
        let before = ranked.len_while(|row| position(row.key()) < next);
        let mut count = MOVED_LEAST;
        loop {
            let mut rows = self.view.runs_at(before, false).0;
            let moved: Vec<_> = rows.by_ref().take(count).collect();
            let places = (more + moved.len() + 1) as u64;
            let end = rows.next().map(|(at, _)| at);
            let room = end.unwrap_or(u64::MAX) - last;
            let apart = (room / places).min(GAP);
            // Room for as many again, so that rows are moved seldom.
            if apart < 2 * moved.len() as u64 && end.is_some() {
                count *= 2;
                continue;
            }
            if apart == 0 {
                return Err(Failure::TooLarge);
            }
            for (at, _) in &moved {
                self.changed.insert(*at, None);
            }
            let to = |n: usize| last + apart * (more + 1 + n) as u64;
            for (n, (_, run)) in moved.iter().enumerate() {
                self.changed.insert(to(n), Some(run.0.to_vec()));
            }
            return Ok(to(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use crate::value::items::packed as items_of;
    use doyen_placement::{MapId, OrderKey};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const KEY: &[u8] = b"list";
    const MAP: MapId = MapId(0);

    /// A list in a store, and what it must be.
    struct Lists {
        store: Store,
        model: VecDeque<Vec<u8>>,
        seq: u64,
    }

    impl Lists {
        fn new() -> Self {
            Self {
                store: Store::new(OrderKey::default()),
                model: VecDeque::new(),
                seq: 0,
            }
        }

        /// Makes these cuts. Undoing them must lead back to the same rows.
        fn cut(&mut self, cuts: &[(Range<usize>, Vec<Vec<u8>>)]) -> KeyChange {
            let given: Vec<_> = cuts
                .iter()
                .map(|(gone, comes)| {
                    let items = items_of(comes.iter().map(|element| &element[..]));
                    (gone.clone(), comes.len(), items)
                })
                .collect();
            let made: Vec<_> = given
                .iter()
                .map(|(gone, count, items)| ListCut {
                    gone: gone.clone(),
                    count: *count,
                    items,
                })
                .collect();
            let cx = RunContext::at(1, 1);
            let order = self.store.order(KEY);
            let found = self.store.found(MAP, order, KEY);
            let entry = found.entry.cloned();
            let change = ListView::of(found, &cx)
                .edited(&made, &cx)
                .expect("it fits");
            self.seq += 1;
            let of = (entry.as_ref(), None, self.seq, false);
            if let Some(effect) = change.clone().into_effect(MAP, KEY, of) {
                let before = self.elements();
                let undo = self.store.apply(self.seq, &effect);
                self.store.undo(&effect, undo);
                assert_eq!(self.elements(), before);
                self.store.apply(self.seq, &effect);
            }
            for (gone, comes) in cuts.iter().rev() {
                let behind = self.model.split_off(gone.end);
                self.model.truncate(gone.start);
                self.model.extend(comes.iter().cloned());
                self.model.extend(behind);
            }
            change
        }

        fn view<R>(&self, look: impl FnOnce(ListView<'_>) -> R) -> R {
            let found = self.store.found(MAP, self.store.order(KEY), KEY);
            look(ListView::of(found, &RunContext::at(1, 1)))
        }

        fn elements(&self) -> Vec<Vec<u8>> {
            self.view(|list| list.from(0).map(<[u8]>::to_vec).collect())
        }

        fn rows(&self) -> usize {
            let found = self.store.found(MAP, self.store.order(KEY), KEY);
            found.table.map_or(0, RowTable::len)
        }

        fn check(&self) {
            assert_eq!(self.elements(), Vec::from(self.model.clone()));
            self.view(|list| {
                assert_eq!(list.len(), self.model.len());
                for n in [
                    0,
                    1,
                    self.model.len() / 2,
                    self.model.len().saturating_sub(1),
                ] {
                    assert!(list.from(n).eq(self.model.iter().skip(n)));
                    let back = self.model.iter().take(n + 1).rev();
                    if n < self.model.len() {
                        assert!(list.back_from(n).eq(back));
                    }
                }
            });
            let found = self.store.found(MAP, self.store.order(KEY), KEY);
            assert_eq!(found.entry.is_some(), !self.model.is_empty());
            for row in found.table.into_iter().flat_map(|table| table.rows_from(0)) {
                let run = ElementRun(row.value());
                assert_eq!(run.len(), run.elements().count());
                assert!(run.len() == 1 || run.0.len() <= RUN_ITEMS_MAX + 2);
            }
        }
    }

    fn elements(most: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
        let element = prop_oneof![
            8 => prop::collection::vec(any::<u8>(), 0..40),
            1 => prop::collection::vec(any::<u8>(), 100..700),
        ];
        prop::collection::vec(element, 0..most)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn a_list_is_edited_as_a_vector_is(
            edits in prop::collection::vec(
                (0_u8..7, any::<u16>(), any::<u16>(), elements(30)),
                0..60,
            )
        ) {
            let mut lists = Lists::new();
            for (edit, one, other, comes) in edits {
                let length = lists.model.len();
                let (one, other) = (usize::from(one) % (length + 1), usize::from(other) % (length + 1));
                let (from, to) = (one.min(other), one.max(other));
                let cuts = match edit {
                    0 | 1 => vec![(length..length, comes)],
                    2 => vec![(0..0, comes)],
                    3 => vec![(one..one, comes)],
                    4 => vec![(from..to, comes)],
                    5 => vec![(0..from / 4, Vec::new()), (to.max(from / 4)..length, Vec::new())],
                    _ => {
                        let step = 1 + one % 7;
                        (other % step..length).step_by(step).map(|n| (n..n + 1, Vec::new())).collect()
                    }
                };
                let nothing = |(gone, comes): &(Range<usize>, Vec<Vec<u8>>)| gone.is_empty() && comes.is_empty();
                let cuts: Vec<_> = cuts.into_iter().filter(|cut| !nothing(cut)).collect();
                if length == 0 && cuts.iter().all(|(_, comes)| comes.is_empty()) {
                    continue;
                }
                lists.cut(&cuts);
                lists.check();
            }
        }

        #[test]
        fn what_a_peer_sent_wrong_is_read_and_edited(
            rows in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..10), prop::collection::vec(any::<u8>(), 0..60)),
                0..9,
            ),
            cuts in prop::collection::vec((0_usize..12, 0_usize..6), 1..4),
        ) {
            let mut store = Store::new(OrderKey::default());
            let rows = rows.iter().map(|(at, run)| Entry::of_row(at, run, 0)).collect();
            let table = KeyChange::Table { kind: Kind::List, rows, deadline: 0 };
            let effect = table.into_effect(MAP, KEY, (None, None, 1, false)).expect("it changes");
            store.apply(1, &effect);
            let cx = RunContext::at(1, 1);
            let list = ListView::of(store.found(MAP, store.order(KEY), KEY), &cx);
            let (mut at, mut made) = (0, Vec::new());
            for (gap, length) in cuts {
                let start = (at + gap).min(list.len());
                at = (start + length).min(list.len());
                made.push(ListCut { gone: start..at, count: 1, items: b"\x01a" });
            }
            _ = list.edited(&made, &cx);
            list.from(0).chain(list.back_from(3)).for_each(drop);
        }
    }

    #[test]
    fn an_edit_of_a_long_list_costs_one_row() {
        let mut lists = Lists::new();
        let element = |n: usize| format!("element number {n:04}").into_bytes();
        for n in 0..2_000 {
            let length = lists.model.len();
            lists.cut(&[(length..length, vec![element(n)])]);
        }
        let rows = lists.rows();
        assert!(
            rows <= 2_000_usize.div_ceil(RUN_ITEMS_MAX / 21) + 1,
            "{rows} rows: runs are full"
        );
        for (gone, comes) in [
            (0..1, 0),
            (0..0, 1),
            (2_000..2_000, 1),
            (1_999..2_000, 0),
            (900..901, 1),
        ] {
            let change = lists.cut(&[(gone.clone(), (0..comes).map(element).collect())]);
            let KeyChange::Rows { rows, .. } = change else {
                panic!("{change:?}");
            };
            assert!(rows.len() <= 2, "{gone:?} changed {} rows", rows.len());
        }
        lists.check();
    }

    #[test]
    fn a_list_that_is_small_again_is_one_run() {
        let mut lists = Lists::new();
        lists.cut(&[(0..0, vec![b"a twenty byte element".to_vec(); 500])]);
        assert!(lists.rows() > 1);
        lists.cut(&[(3..500, Vec::new())]);
        assert_eq!(lists.rows(), 0);
        lists.check();
        lists.cut(&[(0..3, Vec::new())]);
        lists.check();
    }

    #[test]
    fn there_is_always_room_between_two_elements() {
        let mut lists = Lists::new();
        let large = |n: u32| [&n.to_be_bytes()[..], &[b'x'; 400]].concat();
        lists.cut(&[(0..0, (0..30).map(large).collect())]);
        for n in 0..400 {
            // Always before the same one, and always behind the same one.
            let at = if n % 2 == 0 {
                15
            } else {
                lists.model.len() - 14
            };
            lists.cut(&[(at..at, vec![large(n)])]);
        }
        lists.check();
    }
}
