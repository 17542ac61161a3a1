//! Power cuts, damage and disks that fail: what was synced is read again, and nothing else.

use doyen_disk::{
    DiskError, Files, FoundInLog, LogFile, LogName, LogWriter, MemoryFiles, RecordHead, read,
};
use doyen_placement::{KeyspaceId, Lineage, PartitionId, PartitionRef};
use proptest::prelude::*;

const NAME: LogName = LogName {
    directory: *b"0123456789abcdef",
    thread: 3,
};
/// Small, so that a log has several files.
const SEGMENT_BYTES: u64 = 1_500;

type Records = Vec<(RecordHead, Vec<u8>)>;

fn head(partition: u32, seq: u64) -> RecordHead {
    RecordHead {
        kind: 1,
        at: PartitionRef::new(KeyspaceId(2), PartitionId(partition)),
        lineage: Lineage(1),
        first: seq,
        last: seq,
    }
}

/// The records of a log, and how many places of it are damaged.
fn all(files: &MemoryFiles) -> (Records, usize) {
    let (mut records, mut damaged) = (Vec::new(), 0);
    read(files, NAME, &mut |found| match found {
        FoundInLog::Record { head, body, .. } => records.push((head, body.to_vec())),
        FoundInLog::Damage(_) => damaged += 1,
    })
    .expect("files can be read");
    (records, damaged)
}

fn begin(files: &MemoryFiles) -> LogWriter<MemoryFiles> {
    begin_with(files, SEGMENT_BYTES)
}

fn begin_with(files: &MemoryFiles, segment_bytes: u64) -> LogWriter<MemoryFiles> {
    let end = read(files, NAME, &mut |_| {}).expect("files can be read");
    LogWriter::resume(files.clone(), NAME, segment_bytes, end).expect("the log goes on")
}

/// A log of `groups` groups of two records each. Returns its records.
fn written(files: &MemoryFiles, groups: u64) -> Records {
    write(begin(files), groups)
}

fn write(mut log: LogWriter<MemoryFiles>, groups: u64) -> Records {
    let mut records = Vec::new();
    for seq in 1..=groups {
        for partition in 0..2 {
            let (head, body) = (head(partition, seq), vec![seq as u8; 100]);
            log.append(&head, &body).expect("it fits");
            records.push((head, body));
        }
        log.sync().expect("the disk works");
    }
    records
}

fn names(files: &MemoryFiles) -> Vec<String> {
    files.names().expect("there are files")
}

#[derive(Debug, Clone)]
enum Step {
    Append {
        partition: u32,
        bytes: usize,
    },
    Sync,
    /// A snapshot of a partition has all that is appended so far.
    Cover(u32),
    /// The process ends, and the system does not.
    Kill,
    /// The power is cut. Bits say which parts are kept.
    Cut(Vec<bool>),
    /// This number of further acts of the disk work.
    Fail(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..4_u32, 0..700_usize)
            .prop_map(|(partition, bytes)| Step::Append { partition, bytes }),
        5 => Just(Step::Sync),
        1 => (0..4_u32).prop_map(Step::Cover),
        1 => Just(Step::Kill),
        1 => prop::collection::vec(any::<bool>(), 1..30).prop_map(Step::Cut),
        1 => (0..4_u32).prop_map(Step::Fail),
    ];
    prop::collection::vec(step, 1..80)
}

/// What should be in a log.
#[derive(Default)]
struct Model {
    appended: Records,
    /// How many of them are synced.
    synced: usize,
    seqs: [u64; 4],
    covered: [u64; 4],
    /// The places up to there.
    places: [u64; 4],
}

impl Model {
    /// What a process finds that starts again.
    fn check(&mut self, files: &MemoryFiles) -> Result<(), TestCaseError> {
        let (found, damaged) = all(files);
        prop_assert_eq!(damaged, 0, "damage without a cause");
        // Files are removed from the front, and only what was never synced is lost at the end.
        let begins = self.appended.len() - self.tail(&found)?;
        let lost = &self.appended[..begins];
        for (head, _) in lost {
            let partition = head.at.partition.0 as usize;
            prop_assert!(head.last <= self.covered[partition], "{head:?} is lost");
        }
        prop_assert!(
            begins + found.len() >= self.synced,
            "synced records are lost"
        );
        self.appended = found;
        // A process that goes on syncs what it found.
        self.synced = self.appended.len();
        for (partition, seq) in self.seqs.iter_mut().enumerate() {
            let own = self
                .appended
                .iter()
                .filter(|(head, _)| head.at.partition.0 as usize == partition);
            *seq = own
                .map(|(head, _)| head.last)
                .max()
                .unwrap_or(0)
                .max(self.covered[partition]);
        }
        Ok(())
    }

    /// How many of the last appended records there are from the first found one on.
    fn tail(&self, found: &Records) -> Result<usize, TestCaseError> {
        let Some(first) = found.first() else {
            return Ok(self.appended.len() - self.synced);
        };
        let begins = self.appended.iter().position(|record| record == first);
        let Some(begins) = begins else {
            return Err(TestCaseError::fail(format!("{first:?} was never appended")));
        };
        let rest = &self.appended[begins..];
        prop_assert!(found.len() <= rest.len() && found[..] == rest[..found.len()]);
        Ok(rest.len())
    }
}

proptest! {
    #[test]
    fn what_was_synced_is_read_again_after_any_crash(steps in steps()) {
        let files = MemoryFiles::new();
        let (mut log, mut model) = (begin(&files), Model::default());
        for step in steps {
            let crashes = match step {
                Step::Append { partition, bytes } => {
                    let seq = model.seqs[partition as usize] + 1;
                    let (head, body) = (head(partition, seq), vec![seq as u8; bytes]);
                    let appended = log.append(&head, &body);
                    if appended.is_ok() {
                        model.seqs[partition as usize] = seq;
                        model.appended.push((head, body));
                    }
                    appended.is_err()
                }
                Step::Sync => {
                    let synced = log.sync();
                    if synced.is_ok() {
                        model.synced = model.appended.len();
                    } else {
                        prop_assert!(matches!(log.sync(), Err(DiskError::Failed)));
                        prop_assert!(log.append(&head(0, 1), b"").is_err());
                    }
                    synced.is_err()
                }
                Step::Cover(partition) => {
                    let seq = model.seqs[partition as usize];
                    model.covered[partition as usize] = seq;
                    model.places[partition as usize] = log.place();
                    log.cover(head(partition, 0).at, log.place()).is_err()
                }
                Step::Fail(acts) => {
                    files.fail_after(Some(acts));
                    false
                }
                Step::Kill => true,
                Step::Cut(bits) => {
                    let mut bits = bits.into_iter().cycle();
                    files.cut_power(&mut || bits.next().unwrap_or_default());
                    true
                }
            };
            if crashes {
                files.fail_after(None);
                model.check(&files)?;
                log = begin(&files);
                for (partition, place) in model.places.iter_mut().enumerate() {
                    let at = head(partition as u32, 0).at;
                    // What was covered and never synced is gone.
                    *place = log.place().min(*place);
                    log.cover(at, *place).expect("the disk works");
                }
            }
        }
        files.fail_after(None);
        model.check(&files)?;
    }

    #[test]
    fn changed_bytes_are_damage_and_hide_only_what_they_are_in(
        at in 0..2_600_usize,
        bit in 0..8_u32,
    ) {
        let files = MemoryFiles::new();
        let records = written(&files, 12);
        let names = names(&files);
        // The last group has no group behind it that says that it was synced.
        let name = &names[at % (names.len() - 1)];
        let length = files.read(name).expect("a file").len();
        files.change(name, |bytes| bytes[at % length] ^= 1 << bit);
        let (found, damaged) = all(&files);
        let missing = records.iter().filter(|record| !found.contains(record)).count();
        prop_assert!(found.iter().all(|record| records.contains(record)));
        prop_assert!(missing <= 1);
        prop_assert_eq!(damaged, missing);
    }
}

#[test]
fn a_record_before_the_end_that_is_cut_out_is_damage() {
    let files = MemoryFiles::new();
    let records = written(&files, 12);
    let names = names(&files);
    assert!(names.len() > 2, "{names:?}");
    files.change(&names[0], |bytes| bytes.truncate(bytes.len() - 200));
    let (found, damaged) = all(&files);
    assert_eq!(damaged, 1);
    assert!(found.len() < records.len());
    assert_eq!(found.last(), records.last());
}

#[test]
fn a_changed_record_of_the_last_file_is_damage_if_a_later_group_is_whole() {
    for (group, damages) in [(0, 1), (9, 1), (10, 0)] {
        let files = MemoryFiles::new();
        let records = write(begin_with(&files, 1 << 20), 11);
        // Each record has 168 bytes, behind what the file begins with.
        let at = 48 + 2 * group * 168 + 10;
        files.change(&names(&files)[0], |bytes| bytes[at] ^= 1);
        let (found, damaged) = all(&files);
        assert_eq!(damaged, damages, "group {group}");
        // A record of the last group may never have been synced: the log ends before it.
        let left = if damages == 1 { 21 } else { 20 };
        assert_eq!(found.len(), left, "group {group}");
        assert!(found.iter().all(|record| records.contains(record)));
    }
}

#[test]
fn a_disk_that_lies_loses_records() {
    let files = MemoryFiles::new();
    files.lie();
    written(&files, 3);
    assert_eq!(all(&files).0.len(), 6);
    files.cut_power(&mut || false);
    assert_eq!(all(&files), (Vec::new(), 0));
}

#[test]
fn one_sync_is_for_all_records_of_a_group() {
    let files = MemoryFiles::new();
    let mut log = begin(&files);
    for seq in 1..=100 {
        log.append(&head(seq as u32 % 7, seq), b"x")
            .expect("it fits");
    }
    log.sync().expect("the disk works");
    log.sync().expect("the disk works");
    assert_eq!(files.syncs(), 1);
}

#[test]
fn files_go_once_snapshots_have_what_is_in_them() {
    let files = MemoryFiles::new();
    written(&files, 30);
    let mut log = begin(&files);
    let (all_bytes, ends) = (log.bytes(), log.place());
    assert_eq!(log.uncovered(), Some(head(0, 0).at));
    assert_eq!(log.cover(head(0, 0).at, ends).expect("the disk works"), 0);
    assert_eq!(log.uncovered(), Some(head(1, 0).at));
    assert!(log.cover(head(1, 0).at, ends / 3).expect("the disk works") > 0);
    assert!(log.bytes() < all_bytes);
    // The last file stays until there are records behind it.
    log.cover(head(1, 0).at, ends).expect("the disk works");
    assert_eq!(names(&files).len(), 1);
    log.append(&head(2, 1), b"x").expect("it fits");
    log.sync().expect("the disk works");
    log.cover(head(1, 0).at, ends).expect("the disk works");
    assert_eq!(all(&files), (vec![(head(2, 1), b"x".to_vec())], 0));
}

#[test]
fn files_of_later_programs_and_of_other_directories_are_refused() {
    let files = MemoryFiles::new();
    written(&files, 1);
    let other = LogName {
        directory: [9; 16],
        ..NAME
    };
    let refused = read(&files, other, &mut |_| {}).expect_err("it is of another directory");
    assert!(
        refused
            .to_string()
            .contains("of another directory: move it away"),
        "{refused}"
    );
    files.change(&names(&files)[0], |bytes| {
        bytes[8] = 2;
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..40]);
        bytes[40..48].copy_from_slice(&sum.to_le_bytes());
    });
    let refused = read(&files, NAME, &mut |_| {}).expect_err("it is of a later program");
    assert!(refused.to_string().contains("is of version 2"), "{refused}");
    // What no log is called is none of its files.
    let strange = [
        "03-ffffffffffffffff.log",
        "03-0.log",
        "03-000000000000000G.log",
    ];
    for name in strange {
        let mut file = files.create(name).expect("it is new");
        file.write(&[1; 100]).expect("the disk works");
    }
    assert!(read(&files, NAME, &mut |_| {}).is_err());
    // Another thread has files of its own.
    let empty = LogName { thread: 4, ..NAME };
    assert!(read(&files, empty, &mut |_| panic!("a record")).is_ok());
}
