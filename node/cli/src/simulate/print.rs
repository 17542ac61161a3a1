//! A table for people, and CSV for programs.

use super::figures::{Imbalance, Moved, StageFigures, StrategyOutcome};
use crate::bytes;
use std::fmt::Write;

const MEANING: &str = "\
keys, bytes, load   the fullest node in the end, as a multiple of its fair share: 1.00 is even
p99                 the same for bytes, but the 99th percentile of all nodes
moved               bytes that events copied, as a multiple of the least that a fair cluster
                    needs (below 1.00: the result is less even)
led                 the share of keys with another primary after an event, on average
table, look-up      the table that look-ups need; the time to find all copies of a key here
";

/// One row for each strategy.
pub(super) fn table(outcomes: &[StrategyOutcome]) -> String {
    let salted = outcomes.iter().any(|o| o.load_salted.is_some());
    let mut header = vec!["", "keys", "bytes", "p99", "load"];
    header.extend(salted.then_some("load, salted"));
    header.extend(["moved", "led", "table", "look-up"]);
    let mut rows = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for outcome in outcomes {
        let Some(last) = outcome.stages.last() else {
            continue;
        };
        let mut row = vec![
            outcome.strategy.clone(),
            part(last.keys.max),
            part(last.bytes.max),
            part(last.bytes.p99),
            part(last.load.max),
        ];
        if salted {
            row.push(
                outcome
                    .load_salted
                    .map_or_else(|| "-".to_owned(), |load| part(load.max)),
            );
        }
        let moved: Vec<&Moved> = outcome
            .stages
            .iter()
            .filter_map(|s| s.moved.as_ref())
            .collect();
        row.push(times(&moved).map_or_else(|| "-".to_owned(), |times| format!("{times:.2}x")));
        let led = moved.iter().map(|m| m.led).sum::<f64>() / moved.len().max(1) as f64;
        row.push(if moved.is_empty() {
            "-".to_owned()
        } else {
            format!("{:.1}%", led * 100.0)
        });
        row.extend([
            bytes(outcome.table_bytes as u64),
            outcome
                .lookup_ns
                .map_or_else(|| "-".to_owned(), nanoseconds),
        ]);
        rows.push(row);
    }
    format!("{}\n{MEANING}", aligned(&rows))
}

/// One line for each strategy and stage. The names of the columns must not change.
pub(super) fn csv(outcomes: &[StrategyOutcome]) -> String {
    let mut text = "strategy,stage,event,nodes,keys_max,keys_p99,bytes_max,bytes_p99,load_max,\
                    load_p99,load_salted_max,moved_bytes,moved_bytes_least,moved_keys,moved_led,\
                    table_bytes,lookup_ns\n"
        .to_owned();
    for outcome in outcomes {
        for (
            number,
            StageFigures {
                event,
                keys,
                bytes,
                load,
                moved,
                nodes,
            },
        ) in outcome.stages.iter().enumerate()
        {
            // Writing to a String cannot fail. Names of events and strategies contain no comma.
            let _ = write!(
                text,
                "{},{number},{event},{}",
                outcome.strategy,
                nodes.len()
            );
            for Imbalance { max, p99 } in [keys, bytes, load] {
                let _ = write!(text, ",{max:.4},{p99:.4}");
            }
            let salted = outcome
                .load_salted
                .filter(|_| number + 1 == outcome.stages.len());
            let _ = write!(
                text,
                ",{}",
                salted.map_or_else(String::new, |load| format!("{:.4}", load.max))
            );
            let _ = match moved {
                Some(m) => write!(
                    text,
                    ",{:.0},{:.0},{:.4},{:.4}",
                    m.bytes, m.bytes_least, m.keys, m.led
                ),
                None => write!(text, ",,,,"),
            };
            let _ = writeln!(
                text,
                ",{},{}",
                outcome.table_bytes,
                outcome
                    .lookup_ns
                    .map_or_else(String::new, |ns| format!("{ns:.1}"))
            );
        }
    }
    text
}

/// What all events moved, as a multiple of what must move. An event that need not move anything
/// counts with what it moved.
pub(super) fn times(moved: &[&Moved]) -> Option<f64> {
    let (bytes, least) = moved.iter().fold((0.0, 0.0), |sum, m| {
        (sum.0 + m.bytes, sum.1 + m.bytes_least)
    });
    (least > 0.0).then(|| bytes / least)
}

fn part(of_fair: f64) -> String {
    format!("{of_fair:.2}")
}

fn nanoseconds(ns: f64) -> String {
    if ns < 10_000.0 {
        format!("{ns:.0} ns")
    } else {
        format!("{:.0} us", ns / 1e3)
    }
}

/// Aligns the first column to the left, and the others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("{cell:<width$}", width = width(column)),
            _ => format!("{cell:>width$}", width = width(column).max(5)),
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::figures::NodeFigures;
    use super::*;

    fn outcome() -> StrategyOutcome {
        let even = |max| Imbalance { max, p99: 1.0 };
        let node = NodeFigures {
            name: "node1".into(),
            zone: String::new(),
            weight: 100,
            keys: 5,
            bytes: 10.0,
            load: 1.0,
            bytes_fair: 1.0,
        };
        let stage = |event: &str, moved| StageFigures {
            event: event.into(),
            keys: even(1.5),
            bytes: even(1.25),
            load: even(2.0),
            moved,
            nodes: vec![node.clone()],
        };
        let moved = Moved {
            bytes: 40.0,
            bytes_least: 20.0,
            keys: 0.5,
            led: 0.25,
        };
        StrategyOutcome {
            strategy: "ring-16".into(),
            stages: vec![stage("", None), stage("+1", Some(moved))],
            load_salted: Some(even(1.1)),
            table_bytes: 123_456,
            lookup_ns: Some(41.7),
        }
    }

    #[test]
    fn the_table_has_aligned_columns_and_explains_them() {
        let text = table(&[outcome()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "          keys  bytes    p99   load  load, salted  moved    led     table  look-up"
        );
        assert_eq!(
            lines[1],
            "ring-16   1.50   1.25   1.00   2.00          1.10  2.00x  25.0%  123.5 KB    42 ns"
        );
        assert!(text.contains("1.00 is even"));
    }

    #[test]
    fn the_csv_has_as_many_fields_as_the_header() {
        let text = csv(&[outcome()]);
        let fields: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(fields, [17; 3]);
        assert!(
            text.contains("\nring-16,0,,1,1.5000,")
                && text.ends_with(",1.1000,40,20,0.5000,0.2500,123456,41.7\n"),
            "{text}"
        );
    }

    #[test]
    fn a_move_that_nothing_required_has_no_multiple() {
        assert_eq!(times(&[]), None);
        let moved = |bytes, bytes_least| Moved {
            bytes,
            bytes_least,
            keys: 0.0,
            led: 0.0,
        };
        assert_eq!(times(&[&moved(30.0, 10.0), &moved(10.0, 10.0)]), Some(2.0));
    }
}
