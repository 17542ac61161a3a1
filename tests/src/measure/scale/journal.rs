//! What nodes wrote into their logs about tables. With `--log info,doyen::table=debug`, each node
//! says when it stored and when it installed a table. Nodes of one machine share a clock, so tests
//! need not ask the nodes, which would cost them time.

use std::collections::BTreeMap;

/// The log filter with which a node writes down its tables.
pub(super) const LOG: &str = "info,doyen::table=debug";

/// One table at one node. Times are microseconds of the machine's wall clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Proposed or stored.
    pub(super) accepted: Option<u64>,
    /// Known to be committed.
    pub(super) installed: Option<u64>,
    /// Members that it names.
    pub(super) members: usize,
}

/// A log's tables by term and version.
pub(super) fn tables(log: &str) -> BTreeMap<(u64, u64), Entry> {
    let mut tables: BTreeMap<(u64, u64), Entry> = BTreeMap::new();
    for line in log.lines() {
        let mut words = line.split_whitespace();
        let (Some(at), Some("DEBUG"), Some(what)) = (
            words.next().and_then(microseconds),
            words.next(),
            words.next(),
        ) else {
            continue;
        };
        let fields: BTreeMap<&str, u64> = words
            .filter_map(|w| w.split_once('='))
            .filter_map(|(n, v)| Some((n, v.parse().ok()?)))
            .collect();
        let (Some(term), Some(version), Some(members)) = (
            fields.get("term"),
            fields.get("version"),
            fields.get("members"),
        ) else {
            continue;
        };
        let entry = tables.entry((*term, *version)).or_default();
        entry.members = usize::try_from(*members).unwrap_or(usize::MAX);
        match what {
            "accepted" => entry.accepted = entry.accepted.or(Some(at)),
            "installed" => entry.installed = entry.installed.or(Some(at)),
            _ => {}
        }
    }
    tables
}

/// Reads `2026-11-21T12:15:07.123456Z` as microseconds since 1970.
fn microseconds(stamp: &str) -> Option<u64> {
    let (date, time) = stamp.strip_suffix('Z')?.split_once('T')?;
    let number = |text: &str| text.parse::<u64>().ok();
    let [year, month, day] = date
        .splitn(3, '-')
        .map(number)
        .collect::<Option<Vec<_>>>()?
        .try_into()
        .ok()?;
    let (clock, fraction) = time.split_once('.')?;
    let [hour, minute, second] = clock
        .splitn(3, ':')
        .map(number)
        .collect::<Option<Vec<_>>>()?
        .try_into()
        .ok()?;
    if fraction.len() != 6 {
        return None;
    }
    // Days from the civil calendar, with years that begin in March.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year.checked_sub(1)?, month + 9)
    };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day.checked_sub(1)?;
    let days = (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year)
        .checked_sub(719_468)?;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + number(fraction)?)
}

/// Now, as the logs would say it.
pub(super) fn now() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read() {
        assert_eq!(microseconds("1970-01-01T00:00:00.000001Z"), Some(1));
        assert_eq!(
            microseconds("2000-03-01T00:00:00.000000Z"),
            Some(951_868_800_000_000)
        );
        assert_eq!(
            microseconds("2026-11-21T12:15:07.123456Z"),
            Some(1_795_263_307_123_456)
        );
        assert_eq!(microseconds("yesterday"), None);
    }

    #[test]
    fn tables_in_a_log_are_found() {
        let log = "2026-11-21T12:15:07.000001Z DEBUG accepted term=1 version=2 members=3\n\
                   2026-11-21T12:15:07.000002Z  INFO n2 joined (process 12)\n\
                   2026-11-21T12:15:07.000009Z DEBUG installed term=1 version=2 members=3\n";
        let entry = tables(log)[&(1, 2)];
        assert_eq!(
            (
                entry.installed.unwrap() - entry.accepted.unwrap(),
                entry.members
            ),
            (8, 3)
        );
    }
}
