//! Files in memory, which lose in a power cut what was not synced. For tests.

use crate::files::{Files, LogFile};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

/// A power cut loses each of these parts of a file by itself.
const SECTOR_BYTES: usize = 512;

#[derive(Debug, Clone, Default)]
struct MemoryContent {
    written: Vec<u8>,
    /// What the disk has for sure.
    synced: Vec<u8>,
}

#[derive(Debug, Default)]
struct MemoryDisk {
    files: BTreeMap<String, MemoryContent>,
    /// Which files there are for sure.
    names: BTreeSet<String>,
    /// Files that were removed, and may come back.
    removed: BTreeMap<String, MemoryContent>,
    lies: bool,
    /// Writes and syncs until one fails.
    fails_in: Option<u32>,
    syncs: u64,
}

impl MemoryDisk {
    fn act(&mut self) -> io::Result<()> {
        match &mut self.fails_in {
            Some(0) => Err(io::Error::other("the disk is broken")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn file(&mut self, name: &str) -> io::Result<&mut MemoryContent> {
        self.files
            .get_mut(name)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Files in memory. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryFiles(Rc<RefCell<MemoryDisk>>);

impl MemoryFiles {
    /// No files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, syncs say that they have worked, and do nothing.
    pub fn lie(&self) {
        self.0.borrow_mut().lies = true;
    }

    /// Lets `count` further writes and syncs succeed, and no others. `None`: all of them.
    pub fn fail_after(&self, count: Option<u32>) {
        self.0.borrow_mut().fails_in = count;
    }

    /// How many syncs of files there were.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.0.borrow().syncs
    }

    /// Changes the bytes of a file, on the disk too.
    pub fn change(&self, name: &str, change: impl Fn(&mut Vec<u8>)) {
        if let Ok(file) = self.0.borrow_mut().file(name) {
            change(&mut file.written);
            change(&mut file.synced);
        }
    }

    /// Loses power. What was not synced is there in part: `keeps` answers for each part whether it
    /// is.
    pub fn cut_power(&self, keeps: &mut dyn FnMut() -> bool) {
        let disk = &mut *self.0.borrow_mut();
        for (name, content) in std::mem::take(&mut disk.removed) {
            if keeps() {
                disk.files.insert(name, content);
            }
        }
        let MemoryDisk { files, names, .. } = disk;
        files.retain(|name, content| {
            if !names.contains(name) && !keeps() {
                return false;
            }
            let written = std::mem::take(&mut content.written);
            let mut left = content.synced.clone();
            for (at, byte) in written.iter().enumerate().skip(left.len()) {
                let begins = at == left.len() && at == content.synced.len();
                if (begins || at % SECTOR_BYTES == 0) && !keeps() {
                    // The rest of this sector: zeros, or the file ends before it.
                    let next = (at + 1).next_multiple_of(SECTOR_BYTES);
                    if !keeps() {
                        break;
                    }
                    left.resize(next.min(written.len()), 0);
                } else if at >= left.len() {
                    left.push(*byte);
                }
            }
            content.synced.clone_from(&left);
            content.written = left;
            true
        });
        disk.names = disk.files.keys().cloned().collect();
        disk.fails_in = None;
    }
}

impl Files for MemoryFiles {
    type File = MemoryFile;

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.borrow().files.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(self.0.borrow_mut().file(name)?.written.clone())
    }

    fn create(&self, name: &str) -> io::Result<Self::File> {
        let mut disk = self.0.borrow_mut();
        disk.act()?;
        if disk.files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        disk.files.insert(name.to_owned(), MemoryContent::default());
        Ok(MemoryFile {
            disk: self.0.clone(),
            name: name.to_owned(),
        })
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.act()?;
        let lies = disk.lies;
        let file = disk.file(name)?;
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        file.written.resize(bytes, 0);
        if !lies {
            file.synced = file.written.clone();
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.act()?;
        let gone = disk.files.remove(name);
        let gone = gone.ok_or(io::ErrorKind::NotFound)?;
        if disk.names.contains(name) {
            disk.removed.insert(name.to_owned(), gone);
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.act()?;
        if !disk.lies {
            disk.names = disk.files.keys().cloned().collect();
            disk.removed.clear();
        }
        Ok(())
    }
}

/// A file in memory.
#[derive(Debug)]
pub struct MemoryFile {
    disk: Rc<RefCell<MemoryDisk>>,
    name: String,
}

impl LogFile for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.disk.borrow_mut();
        let acts = disk.act();
        // A write that fails may have written a part.
        let bytes = if acts.is_ok() {
            bytes
        } else {
            &bytes[..bytes.len() / 2]
        };
        disk.file(&self.name)?.written.extend_from_slice(bytes);
        acts
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.disk.borrow_mut();
        disk.act()?;
        disk.syncs += 1;
        if !disk.lies {
            let file = disk.file(&self.name)?;
            file.synced.clone_from(&file.written);
        }
        Ok(())
    }
}
