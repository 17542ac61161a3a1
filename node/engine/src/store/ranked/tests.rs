use super::*;
use proptest::prelude::*;

/// Rows by their values, and by their fields if these are equal. A row weighs what its value
/// says, and 1 at least.
const BY_VALUE: RowOrder = RowOrder {
    compare: |one, other| (one.value(), one.key()).cmp(&(other.value(), other.key())),
    number: |row| u64::from(row.value()[0] / 4) << 30,
    weight: |row| usize::from(row.value()[0] % 3) + 1,
    valued: true,
    grows_at_ends: false,
};
static ORDERS: [RowOrder; 2] = [
    BY_VALUE,
    RowOrder {
        grows_at_ends: true,
        ..BY_VALUE
    },
];

fn row(field: u16, value: u8) -> Entry {
    Entry::of_row(&field.to_be_bytes(), &[value], 0)
}

/// Each node says of its first row what the order says of it.
fn begins_are_right(child: &Child) -> bool {
    let begins = child.first().map_or(0, BY_VALUE.number);
    let below = match &child.node {
        Node::Leaf(Leaf { rows, numbers }) => {
            let of_rows = rows.iter().map(|row| Leaf::number(row, &BY_VALUE));
            numbers.is_empty() || numbers.iter().copied().eq(of_rows)
        }
        Node::Inner(children) => children.iter().all(begins_are_right),
    };
    child.begins == begins && below
}

fn check(ranked: &Ranked, rows: &[Entry]) {
    let hidden = ranked.hidden.iter().map(|hidden| &hidden.root);
    assert!(hidden.chain([&ranked.root]).all(begins_are_right));
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
        changes in prop::collection::vec((0_u16..400, any::<u8>(), 0_u8..4), 0..900),
        order in 0_usize..2,
    ) {
        let mut ranked = Ranked::new(&ORDERS[order]);
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

/// Rows. Cuts hide some of them.
struct CutRows {
    ranked: Ranked,
    all: std::collections::BTreeMap<u16, Entry>,
    cuts: Vec<RowCut>,
    seq: u64,
}

impl CutRows {
    fn put(&mut self, field: u16, value: u8) {
        self.seq += 1;
        let new = row(field, value);
        new.date(0, self.seq);
        let old = self.all.insert(field, new.clone());
        self.ranked.put(old.as_ref(), new);
    }

    fn remove(&mut self, field: u16) {
        if let Some(old) = self.all.remove(&field) {
            self.ranked.remove(&old);
        }
    }

    /// The rows that the first cut hides, or those that none hides.
    fn of_cut(&self, n: Option<usize>) -> Vec<Entry> {
        let cut_of = |row: &Entry| self.cuts.iter().position(|cut| cut.hides(row, &BY_VALUE));
        let rows = self.all.values().filter(|row| cut_of(row) == n);
        let mut rows: Vec<Entry> = rows.cloned().collect();
        rows.sort_by(BY_VALUE.compare);
        rows
    }

    fn cut(&mut self, one: usize, other: usize) {
        let live = self.of_cut(None);
        self.seq += 1;
        if !live.is_empty() {
            let [one, other] = [one, other].map(|n| n % live.len());
            let [first, last] = [one.min(other), one.max(other)].map(|n| live[n].clone());
            let (span, seq) = (RowSpan { first, last }, self.seq);
            self.cuts.push(RowCut { seq, span });
            self.ranked.set_cuts(self.cuts.clone());
        }
    }

    /// The first cut loses its first rows.
    fn free(&mut self, count: usize) {
        let rows = self.of_cut(Some(0));
        if self.cuts.is_empty() {
            return;
        }
        for row in rows.iter().take(count) {
            self.ranked.remove(row);
            self.all.retain(|_, held| held.key() != row.key());
        }
        match rows.get(count) {
            Some(next) => self.cuts[0].span.first = next.clone(),
            None => _ = self.cuts.remove(0),
        }
        self.ranked.set_cuts(self.cuts.clone());
    }

    fn check(&self) {
        check(&self.ranked, &self.of_cut(None));
        let mut hidden = 0;
        for (n, cut) in self.cuts.iter().enumerate() {
            let rows = self.of_cut(Some(n));
            assert_eq!(self.ranked.hidden_in(cut, &cut.span), rows);
            hidden += rows.len();
        }
        assert_eq!(self.ranked.hidden().0, hidden);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn ranges_are_cut_out_freed_and_put_back(
        first in 0_u16..900,
        changes in prop::collection::vec((0_u16..900, any::<u8>(), 0_u8..16), 0..300)
    ) {
        let ranked = Ranked::new(&ORDERS[usize::from(first) % 2]);
        let (all, cuts) = (std::collections::BTreeMap::new(), Vec::new());
        let mut rows = CutRows { ranked, all, cuts, seq: 0 };
        (0..first).for_each(|field| rows.put(field, (field * 7) as u8));
        for (n, value, change) in changes {
            match change {
                0 | 1 => rows.cut(usize::from(n), usize::from(n) + usize::from(value)),
                2 => {
                    rows.cuts.pop();
                    rows.ranked.set_cuts(rows.cuts.clone());
                }
                3 => {
                    // As at a learner, where a later cut may have come first.
                    let at = usize::from(value) % rows.cuts.len().max(1);
                    let cut = (at < rows.cuts.len()).then(|| rows.cuts.remove(at));
                    rows.ranked.set_cuts(rows.cuts.clone());
                    cut.into_iter().for_each(|cut| rows.cuts.insert(at, cut));
                    rows.ranked.set_cuts(rows.cuts.clone());
                }
                4 | 5 => rows.free(usize::from(n)),
                6..9 => rows.remove(n),
                _ => rows.put(n, value),
            }
            if n % 16 == 0 {
                rows.check();
            }
        }
        rows.check();
        while rows.ranked.shed(7) {}
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
