use super::work::DiskEvent;
use super::writer::DirectoryWriter;
use super::*;
use doyen_gossip::{Agreement, AgreementConfig, Input, Output, Time};
use doyen_placement::MemberId;
use doyen_placement::level::LEVELS;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// What a node stores that forms a cluster of its own.
fn durable() -> Box<Durable> {
    let at = "127.0.0.1:1".parse().unwrap();
    let config = AgreementConfig {
        directory: Some(1),
        ..AgreementConfig::of_test(MemberId(1 << 20), "one", at)
    };
    let mut agreement = Agreement::new(config, Time::ZERO);
    let mut now = Time::ZERO;
    loop {
        now = now + Duration::from_millis(10);
        agreement.handle(now, Input::DataThreadAlive);
        agreement.handle(now, Input::Tick);
        while let Some(output) = agreement.poll_output() {
            if let Output::Store(_, durable) = output {
                return durable;
            }
        }
    }
}

fn started(directory: Directory) -> (DirectoryWriter, UnboundedReceiver<DiskEvent>) {
    let (events, says) = unbounded_channel();
    (DirectoryWriter::start(directory, events).unwrap(), says)
}

fn open(dir: &TempDir) -> Result<Directory, DirectoryError> {
    Directory::open(dir.path(), LEVELS.1)
}

fn refusal(dir: &TempDir) -> String {
    open(dir).unwrap_err().to_string()
}

/// A directory with all its files.
fn used() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (writer, mut says) = started(open(&dir).unwrap());
    writer.store(1, durable());
    let synced = DiskEvent::Synced {
        machine: 0,
        write: 1,
    };
    assert_eq!(says.blocking_recv(), Some(synced));
    dir
}

#[test]
fn what_was_stored_is_there_at_the_next_start_with_the_same_key() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(&dir).unwrap();
    assert_eq!((first.starts(), &first.durable), (1, &None));
    let key = first.signing_seed.vote_key();
    let (writer, _says) = started(first);
    let stored = durable();
    // The latest replaces those before it.
    let mut other = stored.clone();
    other.voted = None;
    writer.store(1, other);
    writer.store(2, stored.clone());
    drop(writer);
    let next = open(&dir).unwrap();
    assert_eq!((next.starts(), &next.durable), (2, &Some(stored)));
    assert_eq!(next.signing_seed.vote_key(), key);
    for entry in fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.path());
    }
}

#[test]
fn a_directory_that_is_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(&dir).unwrap();
    assert!(refusal(&dir).contains("in use by another process"));
    drop(first);
    assert_eq!(open(&dir).unwrap().starts(), 2);
}

#[test]
fn a_directory_whose_cluster_went_on_begins_empty_with_another_key() {
    let dir = used();
    let before = open(&dir).unwrap();
    assert!(before.durable.is_some());
    let key = before.signing_seed.vote_key();
    let (writer, mut says) = started(before);
    assert_eq!(writer.begin_again([9; 32]), 1);
    writer.store(1, durable());
    let synced = DiskEvent::Synced {
        machine: 1,
        write: 1,
    };
    assert_eq!(says.blocking_recv(), Some(synced));
    drop(writer);
    let next = open(&dir).unwrap();
    assert!(next.durable.is_some());
    assert_ne!(next.signing_seed.vote_key(), key);
}

#[test]
fn damaged_missing_and_mixed_files_are_refused_and_say_what_to_do() {
    let other = used();
    for name in ["count", "key", "agreement"] {
        let dir = used();
        let path = dir.path().join(name);
        let good = fs::read(&path).unwrap();
        for (bad, why) in [
            (good[..good.len() - 1].to_vec(), "another length"),
            (vec![], "cut off"),
            (
                [&good[..40], &[good[40] ^ 1], &good[41..]].concat(),
                "its checksum differs",
            ),
            ([&good[..9], &[9], &good[10..]].concat(), "of version 9"),
        ] {
            fs::write(&path, bad).unwrap();
            let refused = refusal(&dir);
            assert!(refused.contains(why) && refused.contains(name), "{refused}");
        }
        fs::copy(other.path().join(name), &path).unwrap();
        assert!(refusal(&dir).contains("another directory"));
        fs::remove_file(&path).unwrap();
        assert!(refusal(&dir).contains("a part of the directory was lost"));
    }
}

/// A process that has joined no cluster has promised nothing.
#[test]
fn a_directory_without_an_agreement_is_taken_only_if_it_never_had_one() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir).unwrap());
    assert_eq!(open(&dir).unwrap().durable, None);
    // The power failed after the first agreement was written, and before it counted.
    let other = used();
    let key = fs::read(dir.path().join("key")).unwrap();
    for name in ["count", "agreement"] {
        fs::copy(other.path().join(name), dir.path().join(name)).unwrap();
    }
    let (_, content) = file::decode(FileKind::Key, &key).unwrap();
    let (id, _) = read(dir.path(), FileKind::Count, None).unwrap().unwrap();
    replace(dir.path(), (FileKind::Key, id), content).unwrap();
    assert_eq!(open(&dir).unwrap().durable, None);
}

/// Regression: a start waited for ever for what a pipe would say.
#[test]
fn what_is_no_regular_file_is_refused() {
    for name in ["lock", "count", "key", "agreement"] {
        let dir = used();
        let path = dir.path().join(name);
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(refusal(&dir).contains("no regular file"), "{name}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let refused = refusal(&dir);
        assert!(refused.contains(name), "{refused}");
    }
    // A file that is being written is nobody's.
    let dir = used();
    let beside = dir.path().join("count.new");
    mknodat(CWD, &beside, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert_eq!(open(&dir).unwrap().starts(), 2);
}

#[test]
fn a_node_that_speaks_less_than_its_cluster_does_not_start() {
    let dir = used();
    let before = open(&dir).unwrap().starts();
    let refused = Directory::open(dir.path(), LEVELS.0).unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("start it without --level-max"),
        "{refused}"
    );
    assert_eq!(open(&dir).unwrap().starts(), before + 1);
}

#[test]
fn a_process_ends_whose_directory_was_replaced() {
    let dir = used();
    let (writer, mut says) = started(open(&dir).unwrap());
    fs::remove_file(dir.path().join(LOCK)).unwrap();
    let next = open(&dir).unwrap();
    assert_eq!(next.starts(), 3);
    writer.store(1, durable());
    assert!(matches!(says.blocking_recv(), Some(DiskEvent::Lost(_))));
}

#[test]
fn what_cannot_be_written_is_said_and_tried_again() {
    let dir = used();
    let (writer, mut says) = started(open(&dir).unwrap());
    // The file beside it cannot be made.
    let beside = dir.path().join("agreement.new");
    fs::create_dir(&beside).unwrap();
    writer.store(7, durable());
    assert!(matches!(says.blocking_recv(), Some(DiskEvent::Failed(_))));
    fs::remove_dir(&beside).unwrap();
    let synced = DiskEvent::Synced {
        machine: 0,
        write: 7,
    };
    loop {
        match says.blocking_recv() {
            Some(DiskEvent::Failed(_)) => {}
            said => break assert_eq!(said, Some(synced)),
        }
    }
}
