//! Power cuts of processes: what a process had not synced is lost.
//!
//! To kill a process loses nothing that it wrote, because the system has it. So the nodes under test
//! note what they sync (`node/src/directory/synced.rs`), and after a kill, their directory gets that
//! alone.

use crate::cluster::{Cluster, write_secret};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where a node notes what it syncs.
fn journal(directory: &Path) -> PathBuf {
    let mut beside = directory.as_os_str().to_owned();
    beside.push(".synced");
    PathBuf::from(beside)
}

impl Cluster {
    /// Before these nodes first start: their power can be cut.
    pub fn note_syncs(&self, names: &[&str]) {
        for name in names {
            let journal = journal(&self.directory(name));
            fs::create_dir(journal).expect("the node did not start yet");
        }
    }

    /// Syncs of this node say that they have worked, and do nothing.
    pub fn lie_about_syncs(&self, name: &str) {
        let journal = journal(&self.directory(name));
        fs::write(journal.join("lies"), "").expect("its syncs are noted");
    }

    /// Cuts the power of all nodes at the same moment, as far as processes are killed one after the
    /// other.
    pub fn cut_power(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in &names {
            self.kill(name);
        }
        for name in &names {
            lose_unsynced(&self.directory(name));
        }
    }
}

/// Puts a directory back to what was synced.
fn lose_unsynced(directory: &Path) {
    let journal = journal(directory);
    // Files that only grow: what is there, without the end that was not synced.
    let mut grown = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a node had it") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|end| end == "log") {
            let inode = fs::metadata(&path).expect("it is ours").ino().to_string();
            let length = fs::read_to_string(journal.join("length").join(&inode));
            let length = length.map_or(0, |length| length.parse().expect("a length"));
            let mut bytes = fs::read(&path).expect("it is ours");
            bytes.truncate(length);
            grown.insert(inode, bytes);
        }
        fs::remove_file(path).expect("it has files alone");
    }
    // Without this file, not even the name of a file was synced.
    let names = fs::read_to_string(journal.join("names")).unwrap_or_default();
    for line in names.lines() {
        let (inode, name) = line.split_once(' ').expect("an inode and a name");
        let path = directory.join(name);
        if name.ends_with(".log") {
            // Without it, the node has removed it, and needs it no more.
            if let Some(bytes) = grown.get(inode) {
                write_secret(&path, "");
                fs::write(&path, bytes).expect("it is ours");
            }
            continue;
        }
        write_secret(&path, "");
        let content = journal.join("content").join(inode);
        if content.exists() {
            fs::write(&path, fs::read(content).expect("it is ours")).expect("it is ours");
        }
    }
}
