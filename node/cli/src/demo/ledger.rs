//! The writes that the cluster acknowledged to one lane. Each key has one writer, so the value that
//! a read must return is known exactly.

/// A key, and its acknowledged write.
#[derive(Debug, Clone)]
pub(super) struct LedgerEntry {
    pub(super) key: String,
    /// The number of the last acknowledged write; 0: none.
    pub(super) acked: u64,
    /// A write with an unknown outcome. It may have happened, or may still happen, so the key is
    /// not written again.
    pub(super) unknown: Option<u64>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LedgerVerdict {
    /// The read saw every acknowledged write.
    Holds,
    /// The read missed an acknowledged write.
    Missing,
}

/// The keys of one lane.
#[derive(Debug)]
pub(super) struct Ledger {
    lane: usize,
    live: Vec<LedgerEntry>,
    retired: Vec<LedgerEntry>,
    sequence: u64,
}

/// Bytes of a value, its sequence number included.
const VALUE_BYTES: usize = 100;

impl LedgerEntry {
    /// Judges a read that began after every write in the ledger was acknowledged.
    pub(super) fn judge(&self, read: Option<&[u8]>) -> LedgerVerdict {
        let sequence = match read {
            None => 0,
            Some(value) => match parse(value) {
                Some(sequence) => sequence,
                None => return LedgerVerdict::Missing,
            },
        };
        if sequence == self.acked || self.unknown == Some(sequence) {
            LedgerVerdict::Holds
        } else {
            LedgerVerdict::Missing
        }
    }
}

impl Ledger {
    pub(super) fn new(lane: usize, keys: usize) -> Self {
        let live = (0..keys)
            .map(|k| LedgerEntry {
                key: format!("demo:{lane}:{k}"),
                acked: 0,
                unknown: None,
            })
            .collect();
        Self {
            lane,
            live,
            retired: Vec::new(),
            sequence: 0,
        }
    }

    /// The next write: the index of its entry, its key, its number, its value.
    pub(super) fn next(&mut self) -> (usize, String, u64, Vec<u8>) {
        self.sequence += 1;
        let at = usize::try_from(self.sequence).unwrap_or(0) % self.live.len();
        let mut value = format!("{}:", self.sequence).into_bytes();
        value.resize(VALUE_BYTES, b'.');
        (at, self.live[at].key.clone(), self.sequence, value)
    }

    /// The write was acknowledged.
    pub(super) fn acked(&mut self, at: usize, sequence: u64) {
        self.live[at].acked = sequence;
    }

    /// The outcome of the write is unknown. It may still happen, and overwrite an acknowledged
    /// write without a fault of the cluster. So this key is not written again, and another key
    /// takes its place.
    pub(super) fn unknown(&mut self, at: usize, sequence: u64) {
        let fresh = LedgerEntry {
            key: format!("demo:{}:{at}:{sequence}", self.lane),
            acked: 0,
            unknown: None,
        };
        let mut entry = std::mem::replace(&mut self.live[at], fresh);
        entry.unknown = Some(sequence);
        self.retired.push(entry);
    }

    /// An entry to read, some writes behind the latest.
    pub(super) fn to_read(&self) -> &LedgerEntry {
        let behind = self.sequence.saturating_sub(self.sequence % 7);
        &self.live[usize::try_from(behind).unwrap_or(0) % self.live.len()]
    }

    /// All entries, also those of keys that are no longer written.
    pub(super) fn entries(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.retired.iter().chain(&self.live)
    }
}

fn parse(value: &[u8]) -> Option<u64> {
    let colon = value.iter().position(|&b| b == b':')?;
    std::str::from_utf8(value.get(..colon)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_write_must_be_read() {
        let mut ledger = Ledger::new(0, 1);
        let (at, _, first, value) = ledger.next();
        ledger.acked(at, first);
        assert_eq!(ledger.to_read().judge(Some(&value)), LedgerVerdict::Holds);
        assert_eq!(ledger.to_read().judge(None), LedgerVerdict::Missing);
        let (at, _, second, newer) = ledger.next();
        ledger.acked(at, second);
        assert_eq!(
            ledger.to_read().judge(Some(&value)),
            LedgerVerdict::Missing,
            "stale"
        );
        assert_eq!(ledger.to_read().judge(Some(&newer)), LedgerVerdict::Holds);
        assert_eq!(
            ledger.to_read().judge(Some(b"nonsense")),
            LedgerVerdict::Missing
        );
    }

    #[test]
    fn an_unknown_write_may_be_read_or_not() {
        let mut ledger = Ledger::new(0, 1);
        let (at, _, first, old) = ledger.next();
        ledger.acked(at, first);
        let (at, _, second, new) = ledger.next();
        ledger.unknown(at, second);
        let retired: Vec<_> = ledger.entries().filter(|e| e.unknown.is_some()).collect();
        assert_eq!(retired.len(), 1);
        assert_eq!(retired[0].judge(Some(&old)), LedgerVerdict::Holds);
        assert_eq!(retired[0].judge(Some(&new)), LedgerVerdict::Holds);
        assert_eq!(retired[0].judge(None), LedgerVerdict::Missing);
        assert_eq!(
            ledger.to_read().judge(None),
            LedgerVerdict::Holds,
            "its successor was never written"
        );
    }
}
