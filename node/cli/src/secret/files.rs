//! The files of a secret: written whole or not at all, and readable by their owner alone.

use super::authorities;
use crate::Failed;
use doyen::config::Secrets;
use doyen::net::identity::secret::Role;
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
pub(super) struct Set(Vec<(&'static str, u32, Zeroizing<String>)>);

impl Set {
    /// All files of these members' secrets. The secrets get prefixes, if they have none.
    pub(super) fn derive(secrets: &Secrets) -> Result<Self, Failed> {
        let of = |role| {
            let derived = secrets.for_role(role).map(|secrets| secrets.expose());
            derived.ok_or_else(|| Failed::usage("this is not the secret of a member"))
        };
        Ok(Self(vec![
            (MEMBER, OWNER_ALONE, of(Role::Member)?),
            (CLIENT, OWNER_ALONE, of(Role::Client)?),
            (OPERATOR, OWNER_ALONE, of(Role::Operator)?),
            (
                AUTHORITY,
                EVERYONE_READS,
                Zeroizing::new(authorities(secrets)?),
            ),
        ]))
    }

    /// Writes new files. If one of them exists, none is written.
    pub(super) fn create(&self, dir: &Path) -> Result<(), Failed> {
        DirBuilder::new()
            .recursive(true)
            .mode(OWNER_ENTERS)
            .create(dir)
            .map_err(|e| Failed::usage(format!("--dir: cannot make {}: {e}", dir.display())))?;
        for (name, ..) in &self.0 {
            let path = dir.join(name);
            if path.symlink_metadata().is_ok() {
                return Err(Failed::usage(format!(
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
    pub(super) fn replace_beside(&self, member: &Path) -> Result<Vec<PathBuf>, Failed> {
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

/// Replaces the content of a file at once, and keeps its owner and its permissions: nodes must be
/// able to read it as before.
pub(super) fn replace(path: &Path, content: &str) -> Result<(), Failed> {
    let write = || {
        // A link stays one: its target is replaced.
        let path = path.canonicalize()?;
        let known = fs::metadata(&path)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let other = path.with_file_name(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(OWNER_ALONE)
            .open(&other)?;
        let written = file
            .write_all(content.as_bytes())
            .and_then(|()| keep_owner(&other, &known))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&other, &path));
        if written.is_err() {
            let _ = fs::remove_file(&other);
        }
        written
    };
    write().map_err(|e| cannot_write(path, &e))
}

fn keep_owner(path: &Path, known: &fs::Metadata) -> io::Result<()> {
    let own = fs::metadata(path)?;
    if (own.uid(), own.gid()) != (known.uid(), known.gid()) {
        chown(path, Some(known.uid()), Some(known.gid()))?;
    }
    fs::set_permissions(path, Permissions::from_mode(known.mode() & 0o777))
}

fn cannot_write(path: &Path, e: &io::Error) -> Failed {
    Failed::new(format!("cannot write {}: {e}", path.display()))
}
