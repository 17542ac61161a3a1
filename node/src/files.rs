//! Short files: configurations, secrets, passwords and tokens.

use std::io::Read;
use std::path::Path;
use std::{fs, io};

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The bytes of a short file.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // The length that the system reports may be wrong: a device has none.
    let file = fs::File::open(path).map_err(|e| reason(&e))?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| reason(&e))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "it is too long: at most {FILE_BYTES_MAX} bytes are expected"
        ));
    }
    Ok(bytes)
}

fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::IsADirectory => "it is a directory, but a file is expected".into(),
        io::ErrorKind::InvalidData => "it is not text".into(),
        _ => e.to_string(),
    }
}
