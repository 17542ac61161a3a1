use super::writer::{DirectoryWriter, DiskEvent};
use super::*;
use doyen_gossip::{Agreement, AgreementConfig, Input, Output, Time};
use doyen_placement::MemberId;
use std::fs;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// What a node stores that forms a cluster of its own.
fn durable() -> Box<Durable> {
    let at = "127.0.0.1:1".parse().unwrap();
    let config = AgreementConfig {
        directory: true,
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

fn refusal(dir: &TempDir) -> String {
    Directory::open(dir.path()).unwrap_err().to_string()
}

/// A directory with all its files.
fn used() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (writer, mut says) = started(Directory::open(dir.path()).unwrap());
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
    let first = Directory::open(dir.path()).unwrap();
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
    let next = Directory::open(dir.path()).unwrap();
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
    let first = Directory::open(dir.path()).unwrap();
    assert!(refusal(&dir).contains("in use by another process"));
    drop(first);
    assert_eq!(Directory::open(dir.path()).unwrap().starts(), 2);
}

#[test]
fn a_directory_whose_cluster_went_on_begins_empty_with_another_key() {
    let dir = used();
    let before = Directory::open(dir.path()).unwrap();
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
    let next = Directory::open(dir.path()).unwrap();
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
        match name {
            // A process that has joined no cluster has none.
            "agreement" => assert!(Directory::open(dir.path()).is_ok()),
            _ => assert!(refusal(&dir).contains("a part of the directory was lost")),
        }
    }
}

#[test]
fn a_process_ends_whose_directory_was_replaced() {
    let dir = used();
    let (writer, mut says) = started(Directory::open(dir.path()).unwrap());
    fs::remove_file(dir.path().join(LOCK)).unwrap();
    let next = Directory::open(dir.path()).unwrap();
    assert_eq!(next.starts(), 3);
    writer.store(1, durable());
    assert!(matches!(says.blocking_recv(), Some(DiskEvent::Lost(_))));
}

#[test]
fn what_cannot_be_written_is_said_and_tried_again() {
    let dir = used();
    let (writer, mut says) = started(Directory::open(dir.path()).unwrap());
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
