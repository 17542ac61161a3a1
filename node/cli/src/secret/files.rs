//! The files of a secret: written whole or not at all, and readable by their owner alone.

use super::authorities;
use crate::CommandFailed;
use doyen::config::Secrets;
use doyen::net::identity::secret::SecretRole;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// For nodes.
pub(super) const MEMBER: &str = "member";
/// For programs that use data.
pub(super) const CLIENT: &str = "client";
/// For administration.
pub(super) const OPERATOR: &str = "operator";
/// The certificate of the authority.
pub(super) const AUTHORITY: &str = "ca.pem";

const OWNER_ALONE: u32 = 0o600;
const EVERYONE_READS: u32 = 0o644;
const OWNER_ENTERS: u32 = 0o700;

/// The content of the files that belong together.
pub(super) struct SecretFiles(Vec<(&'static str, u32, Zeroizing<String>)>);

impl SecretFiles {
    /// All files of these members' secrets. The secrets get prefixes, if they have none.
    pub(super) fn derive(secrets: &Secrets) -> Result<Self, CommandFailed> {
        let of = |role| {
            let derived = secrets.for_role(role).map(|secrets| secrets.expose());
            derived.ok_or_else(|| CommandFailed::usage("this is not the secret of a member"))
        };
        Ok(Self(vec![
            (MEMBER, OWNER_ALONE, of(SecretRole::Member)?),
            (CLIENT, OWNER_ALONE, of(SecretRole::Client)?),
            (OPERATOR, OWNER_ALONE, of(SecretRole::Operator)?),
            (
                AUTHORITY,
                EVERYONE_READS,
                Zeroizing::new(authorities(secrets)?),
            ),
        ]))
    }

    /// Writes new files. If one of them exists, none is written.
    pub(super) fn create(&self, dir: &Path) -> Result<(), CommandFailed> {
        DirBuilder::new()
            .recursive(true)
            .mode(OWNER_ENTERS)
            .create(dir)
            .map_err(|e| {
                CommandFailed::usage(format!("--dir: cannot make {}: {e}", dir.display()))
            })?;
        for (name, ..) in &self.0 {
            let path = dir.join(name);
            if path.symlink_metadata().is_ok() {
                return Err(CommandFailed::usage(format!(
                    "{} exists, and secrets are never overwritten: choose another directory, or \
                     replace the secret of a running cluster with `doyen secret rotate`",
                    path.display()
                )));
            }
        }
        for (name, mode, content) in &self.0 {
            let path = dir.join(name);
            let written = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(*mode)
                .open(&path)
                .and_then(|mut file| {
                    file.write_all(content.as_bytes())?;
                    file.sync_all()
                });
            written.map_err(|e| cannot_write(&path, &e))?;
        }
        Ok(())
    }

    /// Replaces those of the files beside this member's file that exist, and returns them.
    pub(super) fn replace_beside(&self, member: &Path) -> Result<Vec<PathBuf>, CommandFailed> {
        let mut replaced = Vec::new();
        for (name, _, content) in self.0.iter().filter(|(name, ..)| *name != MEMBER) {
            let path = member.with_file_name(name);
            if path.is_file() && path != member {
                replace(&path, content)?;
                replaced.push(path);
            }
        }
        Ok(replaced)
    }
}

/// The directory of a secret, locked while this lives. Two rotations at once would each add a
/// secret of its own, and the one that ends first would lose its own.
#[derive(Debug)]
pub(super) struct Alone {
    _directory: fs::File,
}

impl Alone {
    /// Locks the directory of this file. The lock ends with the process.
    pub(super) fn with(path: &Path) -> Result<Self, CommandFailed> {
        let unread = |e| {
            let path = path.display();
            CommandFailed::usage(format!("cannot read {path} (--secret-file): {e}"))
        };
        let path = path.canonicalize().map_err(unread)?;
        let directory = directory_of(&path);
        let opened = fs::File::open(directory).map_err(unread)?;
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _directory: opened }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(CommandFailed::new(format!(
                "nothing was changed: another `doyen secret rotate` works in {}. Wait until it has \
                 ended, and see what is left to do by running this command again",
                directory.display()
            ))),
            Err(e) => Err(CommandFailed::new(format!(
                "nothing was changed: {} cannot be locked ({e}), and two rotations at once would \
                 lose a secret. Rotate with a copy of its files on a local disk",
                directory.display()
            ))),
        }
    }
}

/// Replaces the content of a file at once, and keeps its owner and its permissions: nodes must be
/// able to read it as before. The caller holds [`Alone`], so what an earlier call left beside the
/// file when it was killed is removed: it may be a secret.
pub(super) fn replace(path: &Path, content: &str) -> Result<(), CommandFailed> {
    // A link stays one: its target is replaced.
    let target = path.canonicalize().map_err(|e| cannot_write(path, &e))?;
    remove_left_over(&target)?;
    let other = beside(&target, &format!(".{:016x}", rand::random::<u64>()));
    let write = || {
        let known = fs::metadata(&target)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(OWNER_ALONE)
            .open(&other)?;
        file.write_all(content.as_bytes())?;
        keep_owner(&other, &known)?;
        file.sync_all()?;
        fs::rename(&other, &target)?;
        // Only then does the new name survive a loss of power.
        fs::File::open(directory_of(&target))?.sync_all()
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&other);
        cannot_write(path, &e)
    })
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// The name of a new content of this file until it replaces the file.
fn beside(path: &Path, random: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}{random}.new"))
}

/// Removes new contents of this file that never replaced it.
fn remove_left_over(path: &Path) -> Result<(), CommandFailed> {
    let is_hex = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_left_over = |other: &str| {
        let rest = other
            .strip_prefix(&*name)
            .and_then(|r| r.strip_suffix(".new"));
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(is_hex))
    };
    let cannot = |e: io::Error| cannot_write(path, &e);
    for entry in fs::read_dir(directory_of(path)).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        if is_left_over(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path()).map_err(|e| {
                let path = entry.path();
                CommandFailed::new(format!("{} is in the way: remove it ({e})", path.display()))
            })?;
        }
    }
    Ok(())
}

fn keep_owner(path: &Path, known: &fs::Metadata) -> io::Result<()> {
    let own = fs::metadata(path)?;
    if (own.uid(), own.gid()) != (known.uid(), known.gid()) {
        chown(path, Some(known.uid()), Some(known.gid()))?;
    }
    fs::set_permissions(path, Permissions::from_mode(known.mode() & 0o777))
}

fn cannot_write(path: &Path, e: &io::Error) -> CommandFailed {
    CommandFailed::new(format!("cannot write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a rotation that was killed left `FILE.new`, and no rotation worked any more.
    #[test]
    fn what_a_killed_rotation_left_is_removed_and_other_files_are_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let write = |name: &str| fs::write(at(name), "before").expect("a file");
        let left = ["member.new", "member.0123456789abcdef.new"];
        let others = ["member.old", "members.new", "member.mine.new", "client.new"];
        ["member"]
            .iter()
            .chain(&left)
            .chain(&others)
            .for_each(|name| write(name));
        fs::set_permissions(at("member"), Permissions::from_mode(0o640)).expect("ours");
        replace(&at("member"), "after").expect("replaced");
        assert_eq!(fs::read_to_string(at("member")).expect("a file"), "after");
        let mode = fs::metadata(at("member")).expect("a file").mode();
        assert_eq!(mode & 0o777, 0o640);
        let mut names: Vec<String> = fs::read_dir(dir.path())
            .expect("a directory")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        let mut kept = vec!["member"];
        kept.extend(others);
        kept.sort_unstable();
        assert_eq!(names, kept);

        // What cannot be removed is named.
        fs::create_dir(at("member.new")).expect("a directory");
        let why = replace(&at("member"), "later")
            .expect_err("it is in the way")
            .message;
        assert!(why.contains("member.new is in the way"), "{why}");
        assert_eq!(fs::read_to_string(at("member")).expect("a file"), "after");
    }

    #[test]
    fn a_link_stays_one_and_its_target_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let (link, target) = (dir.path().join("member"), dir.path().join("..data"));
        fs::write(&target, "before").expect("a file");
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        replace(&link, "after").expect("replaced");
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&target).expect("a file"), "after");
    }

    /// Regression: of two rotations at once, both said "added", and one secret was lost.
    #[test]
    fn two_rotations_of_one_directory_do_not_work_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let member = dir.path().join("member");
        assert!(Alone::with(&member).is_err(), "there is no such file");
        fs::write(&member, "secret").expect("a file");
        let first = Alone::with(&member).expect("nothing is under way");
        let refused = Alone::with(&member)
            .expect_err("the first is at work")
            .message;
        assert!(
            refused.contains("another `doyen secret rotate`"),
            "{refused}"
        );
        drop(first);
        Alone::with(&member).expect("the first has ended");
    }
}
