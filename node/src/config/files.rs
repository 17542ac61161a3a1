//! The files that options name.

use super::{ConfigError, Secrets, fail};
use crate::files::read_bytes;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The permission bit of a file that lets all other users read it.
const OTHERS_READ: u32 = 0o004;
/// The permission bits of a directory that let all other users do anything there, or its group
/// change it.
const DIRECTORY_OPEN: u32 = 0o027;

/// A warning if all users of this machine can read a file with a secret. The file's group may read
/// it: groups of users and volumes of containers share secrets that way.
pub(super) fn exposure(flag: &str, path: &Path) -> Option<String> {
    let mode = fs::metadata(path)
        .ok()
        .filter(fs::Metadata::is_file)?
        .permissions()
        .mode();
    let path = path.display();
    (mode & OTHERS_READ != 0).then(|| {
        format!("every user of this machine can read {path} ({flag}): run `chmod 600 {path}`")
    })
}

/// A warning if other users of this machine can look into the directory of the node, or change it.
pub(super) fn directory_exposure(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_dir)?;
    let (mode, path) = (found.permissions().mode(), path.display());
    (mode & DIRECTORY_OPEN != 0).then(|| {
        format!(
            "other users of this machine can look into {path} (--dir), or change it: run \
             `chmod 700 {path}`"
        )
    })
}

/// Reads a short text file.
pub(super) fn read(path: &Path, flag: &str) -> Result<String, ConfigError> {
    let cannot = |why: &str| ConfigError(format!("cannot read {} ({flag}): {why}", path.display()));
    let bytes = read_bytes(path).map_err(|why| cannot(&why))?;
    String::from_utf8(bytes).map_err(|_| cannot("it is not text"))
}

/// The secrets in a file.
///
/// ```no_run
/// use doyen::config::secrets_of;
///
/// let secrets = secrets_of("/etc/doyen/member".as_ref(), "--secret-file")?;
/// let (all, signs) = (secrets.lines().len(), secrets.first().fingerprint());
/// println!("{all} secrets, and this one signs: {signs}");
/// # Ok::<(), doyen::config::ConfigError>(())
/// ```
///
/// # Errors
/// It cannot be read, or has no usable secret. The message names the file and the flag.
pub fn secrets_of(path: &Path, flag: &str) -> Result<Secrets, ConfigError> {
    Secrets::of_file(path, flag).map_err(ConfigError)
}

/// Reads a file without its line end.
///
/// ```
/// let file = tempfile::NamedTempFile::new()?;
/// std::fs::write(&file, "a token\n")?;
/// assert_eq!(doyen::config::read_line(file.path(), "--http-token-file")?, "a token");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub fn read_line(path: &Path, flag: &str) -> Result<String, ConfigError> {
    let text = read(path, flag)?;
    let text = text.trim();
    if text.is_empty() {
        return fail(format!(
            "{} ({flag}) is empty: it must have one line",
            path.display()
        ));
    }
    if let Some(wrong) = text.chars().find(|c| c.is_control() && *c != '\t') {
        return fail(format!(
            "{} ({flag}) has the control character {wrong:?}: it must have one line of text; \
             `openssl rand -hex 32` makes one",
            path.display()
        ));
    }
    Ok(text.to_owned())
}
