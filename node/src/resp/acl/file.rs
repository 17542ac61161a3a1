//! Files of users, in Redis's form: a line `user NAME RULE ...` for each.

use super::DEFAULT;
use super::password::Hashing;
use super::rules::{User, is_space, words};
use doyen_placement::access::{AccessSettings, AccessUser, may_be_user};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The largest file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads a file of users.
///
/// # Errors
/// It cannot be read, or a line is wrong: all that is wrong with it, in one line.
pub(crate) fn load(path: &Path) -> Result<AccessSettings, String> {
    let shown = path.display();
    let opened = fs::File::open(path)
        .map_err(|why| format!("Error loading ACLs, opening file '{shown}': {why}"))?;
    let mut text = Vec::new();
    opened
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|why| format!("Error loading ACLs, reading file '{shown}': {why}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "{shown}: the file is too large: at most {FILE_BYTES_MAX} bytes"
        ));
    }
    parse(&text).map_err(|wrong| {
        let wrong: Vec<String> = wrong.iter().map(|why| format!("{shown}:{why}. ")).collect();
        wrong.concat()
            + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    })
}

/// The users of a file with this text.
///
/// # Errors
/// Each line that is wrong, with its number.
pub(crate) fn parse(text: &[u8]) -> Result<AccessSettings, Vec<String>> {
    /// The most mistakes that are reported.
    const TOLD: usize = 16;
    let (mut users, mut wrong) = (BTreeMap::new(), Vec::new());
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        if line.iter().all(is_space) {
            continue;
        }
        match user(line) {
            Ok(AccessUser { name, .. }) if users.contains_key(&name) => {
                let name = String::from_utf8_lossy(&name);
                wrong.push(format!("{number}: Duplicate user '{name}' found"));
            }
            Ok(AccessUser { name, rules }) => _ = users.insert(name, rules),
            Err(why) => wrong.push(format!("{number}: {why}")),
        }
        if wrong.len() >= TOLD {
            break;
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let users = users.into_iter();
    let users = users.map(|(name, rules)| AccessUser { name, rules });
    Ok(AccessSettings::of_users(users.collect()))
}

/// The name and the rules of a line.
fn user(line: &[u8]) -> Result<AccessUser, String> {
    let mut words = words(line);
    let (Some(b"user"), Some(name)) = (words.next(), words.next()) else {
        return Err("should start with user keyword followed by the username".to_owned());
    };
    if !may_be_user(name) {
        return Err("the username contains invalid characters or is too long".to_owned());
    }
    let mut user = User::default();
    user.apply_all(words, Hashing::Redis)
        .map_err(|why| why.to_string())?;
    Ok(AccessUser {
        name: name.into(),
        rules: user.print().into(),
    })
}

/// The text of a file with these users.
pub(crate) fn print(access: &AccessSettings) -> Vec<u8> {
    let mut text = Vec::new();
    let mut line = |name: &[u8], rules: &[u8]| {
        [b"user ", name, b" ", rules, b"\n"]
            .iter()
            .for_each(|part| text.extend_from_slice(part));
    };
    if access.rules(DEFAULT).is_none() {
        line(DEFAULT, &User::of_default().print());
    }
    access
        .users
        .iter()
        .for_each(|user| line(&user.name, &user.rules));
    text
}

/// Replaces a file of users: readers find the old text or the new one. Others may not read it.
///
/// # Errors
/// It cannot be written.
pub(crate) fn save(path: &Path, access: &AccessSettings) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(
        ".tmp-{}-{}",
        std::process::id(),
        rand::random::<u32>()
    ));
    let beside = path.with_file_name(name);
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(&print(access))?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    let written = write();
    if written.is_err() {
        // The error of the write is the one that matters.
        let _ = fs::remove_file(&beside);
    }
    written
}
