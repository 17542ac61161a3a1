//! Reads a log.

use crate::error::DiskError;
use crate::files::Files;
use crate::record::{self, ALIGNMENT, ReadHead, RecordHead, record_bytes};
use crate::segment::{LogName, LogSegment, OPENING_BYTES};
use std::collections::VecDeque;

/// What was found in a log.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundInLog<'a> {
    /// A record.
    Record {
        /// What it is of.
        head: RecordHead,
        /// Where it begins in the log.
        place: u64,
        /// Its bytes.
        body: &'a [u8],
    },
    /// Records that were there once cannot be read.
    Damage(Damage),
}

/// A part of a log that was synced, and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where it begins in the log.
    pub place: u64,
    /// How many bytes of the log it takes up.
    pub bytes: u64,
}

/// What a log ends with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogEnd {
    pub(crate) segments: VecDeque<LogSegment>,
    /// How many bytes of the last file are no whole records, and were never synced.
    pub torn: u64,
}

impl LogEnd {
    /// Where the next record begins.
    pub(crate) fn place(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.ends)
    }
}

/// A part of a file.
#[derive(Debug, Clone, Copy)]
enum LogPart<'a> {
    /// A whole record, with its body.
    Record(ReadHead, &'a [u8]),
    Wrong,
}

/// Reads a log from its beginning to its end. Changes nothing.
///
/// # Errors
/// The system refuses to read a file, or a file is of a later program or of another directory.
pub fn read<F: Files>(
    files: &F,
    name: LogName,
    found: &mut dyn FnMut(FoundInLog<'_>),
) -> Result<LogEnd, DiskError> {
    let names = files.names();
    let names = names.map_err(DiskError::system("the directory", "it cannot be listed"))?;
    let mut begins: Vec<u64> = names.iter().filter_map(|file| name.begins(file)).collect();
    begins.sort_unstable();
    let mut end = LogEnd::default();
    for (at, begin) in begins.iter().enumerate() {
        let file = name.file(*begin);
        let bytes = files.read(&file);
        let bytes = bytes.map_err(DiskError::system(&file, "it cannot be read"))?;
        let opens = name.opens(&file, *begin, &bytes)?;
        let records = bytes.get(OPENING_BYTES..).unwrap_or_default();
        let parts = parts(name.seed(), *begin, records);
        let next = begins.get(at + 1).copied();
        let log = SegmentReading {
            file: &file,
            begins: *begin,
        };
        let segment = match next {
            // The next file was made when all of this one was synced.
            Some(next) => log.report(&parts, next, found),
            None => {
                let synced = proof(&parts);
                let (whole, ends) = log.whole(&parts, synced);
                let segment = log.report(whole, ends, found);
                end.torn = (records.len() as u64).saturating_sub(ends - begin);
                if !opens && segment.latest.is_empty() {
                    // Not even its beginning was synced.
                    end.torn = bytes.len() as u64;
                }
                segment
            }
        };
        end.segments.push_back(segment);
    }
    Ok(end)
}

/// The parts of a file, with where each begins and ends in the log. The wrong ones reach to the next
/// whole head.
fn parts(seed: u64, begins: u64, records: &[u8]) -> Vec<(u64, u64, LogPart<'_>)> {
    let mut parts = Vec::new();
    let (mut at, mut wrong) = (0, None);
    while at < records.len() {
        let place = begins + at as u64;
        let rest = &records[at..];
        let whole = record::head(seed, place, rest)
            .and_then(|head| Some((head, head.body(seed, place, rest)?)));
        let Some((head, body)) = whole else {
            wrong = wrong.or(Some(place));
            at += ALIGNMENT;
            continue;
        };
        if let Some(from) = wrong.take() {
            parts.push((from, place, LogPart::Wrong));
        }
        at += record_bytes(head.length);
        parts.push((place, begins + at as u64, LogPart::Record(head, body)));
    }
    if let Some(from) = wrong {
        parts.push((from, begins + records.len() as u64, LogPart::Wrong));
    }
    parts
}

/// Up to where the log was synced, as its whole records say.
fn proof(parts: &[(u64, u64, LogPart<'_>)]) -> u64 {
    let synced = parts.iter().filter_map(|(_, _, part)| match part {
        LogPart::Record(head, _) => Some(head.synced),
        LogPart::Wrong => None,
    });
    synced.max().unwrap_or(0)
}

/// A file that is read.
struct SegmentReading<'a> {
    file: &'a str,
    begins: u64,
}

impl SegmentReading<'_> {
    /// The parts before the first wrong one that was not synced, and where they end.
    fn whole<'p, 'b>(
        &self,
        parts: &'p [(u64, u64, LogPart<'b>)],
        synced: u64,
    ) -> (&'p [(u64, u64, LogPart<'b>)], u64) {
        let torn = parts
            .iter()
            .position(|(from, _, part)| matches!(part, LogPart::Wrong) && *from >= synced);
        let whole = &parts[..torn.unwrap_or(parts.len())];
        let ends = whole.last().map_or(self.begins, |(_, to, _)| *to);
        (whole, ends)
    }

    /// Reports what is in the file. It ends there.
    fn report(
        &self,
        parts: &[(u64, u64, LogPart<'_>)],
        ends: u64,
        found: &mut dyn FnMut(FoundInLog<'_>),
    ) -> LogSegment {
        let mut segment = LogSegment::empty(self.begins);
        segment.ends = ends;
        // Up to where the file was reported. What is between two records is one damage.
        let mut reported = self.begins;
        for (from, to, part) in parts {
            let LogPart::Record(ReadHead { head, .. }, body) = part else {
                continue;
            };
            self.damage(reported, *from, found);
            reported = *to;
            segment.note(head.at, *from);
            found(FoundInLog::Record {
                head: *head,
                place: *from,
                body,
            });
        }
        self.damage(reported, ends, found);
        segment
    }

    fn damage(&self, from: u64, to: u64, found: &mut dyn FnMut(FoundInLog<'_>)) {
        if from < to {
            found(FoundInLog::Damage(Damage {
                file: self.file.to_owned(),
                place: from,
                bytes: to - from,
            }));
        }
    }
}
