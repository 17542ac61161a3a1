//! Times that are counted in classes. The text has a histogram of Prometheus for each.
//!
//! The exporter of the crate `metrics` keeps every single time, which takes too long for operations
//! that come by the million. So the text is written here, and the recorder of the host program gets
//! counters with the names of the series of such a histogram.

use super::{HISTOGRAMS, MetricsSnapshot};
use crate::data::latency::{CommandFamily, FamilyLatencies, LatencyCounts};
use std::fmt::Write;

/// The times of a family up to each bound: the bound in seconds, and how many times there are. The
/// last class has no bound.
fn buckets(counts: &LatencyCounts) -> impl Iterator<Item = (String, u64)> {
    let classes = LatencyCounts::longest().zip(counts.classes());
    let last = classes.len() - 1;
    let mut within = 0;
    classes.enumerate().map(move |(class, (longest, times))| {
        within += times;
        let bound = if class == last {
            "+Inf".to_owned()
        } else {
            longest.as_secs_f64().to_string()
        };
        (bound, within)
    })
}

fn families(
    latencies: &FamilyLatencies,
) -> impl Iterator<Item = (&'static str, &LatencyCounts)> + '_ {
    CommandFamily::ALL
        .into_iter()
        .map(|(family, name)| (name, latencies.of(family)))
}

/// The histograms, as Prometheus reads them.
pub(super) fn text(seen: &MetricsSnapshot) -> String {
    let mut text = String::new();
    for row in HISTOGRAMS {
        let Some(value) = row.value else { continue };
        let (name, meaning) = (row.name, row.meaning);
        // Writing into a String cannot fail.
        let _ = write!(text, "# HELP {name} {meaning}\n# TYPE {name} histogram\n");
        for (family, counts) in families(&value(seen)) {
            for (bound, within) in buckets(counts) {
                let _ = writeln!(
                    text,
                    "{name}_bucket{{family=\"{family}\",le=\"{bound}\"}} {within}"
                );
            }
            let (sum, total) = (counts.sum().as_secs_f64(), counts.total());
            let _ = write!(
                text,
                "{name}_sum{{family=\"{family}\"}} {sum}\n\
                 {name}_count{{family=\"{family}\"}} {total}\n"
            );
        }
        text.push('\n');
    }
    text
}

/// Describes the counters for the recorder of the host program.
pub(super) fn describe() {
    for row in HISTOGRAMS {
        for series in ["bucket", "count"] {
            metrics::describe_counter!(format!("{}_{series}", row.name), row.unit, row.meaning);
        }
    }
}

/// Writes the counters for the recorder of the host program.
pub(super) fn count(seen: &MetricsSnapshot) {
    for row in HISTOGRAMS {
        let Some(value) = row.value else { continue };
        for (family, counts) in families(&value(seen)) {
            let (bucket, count) = (
                format!("{}_bucket", row.name),
                format!("{}_count", row.name),
            );
            for (bound, within) in buckets(counts) {
                metrics::counter!(bucket.clone(), "family" => family, "le" => bound)
                    .absolute(within);
            }
            metrics::counter!(count, "family" => family).absolute(counts.total());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn buckets_are_cumulative_and_the_last_has_no_bound() {
        let mut counts = LatencyCounts::default();
        for micros in [1, 50, 50, 20_000_000] {
            counts.count(Duration::from_micros(micros), 1);
        }
        let all: Vec<_> = buckets(&counts).collect();
        assert_eq!(all[0], ("0.000001024".into(), 1));
        assert_eq!(all[6], ("0.000065536".into(), 3));
        let [.., before, last] = &all[..] else {
            panic!("there are many")
        };
        assert_eq!((before.1, last), (3, &("+Inf".into(), 4)));
    }
}
