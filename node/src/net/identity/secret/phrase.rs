//! Makes a secret of a phrase, so slowly that guessing costs memory and time. It takes crates of
//! its own, so a program says whether it needs it (feature `phrases`).

use super::Secret;

/// Whether this program can do so.
pub(super) const ARE_BUILT: bool = cfg!(feature = "phrases");

/// Phrases whose stretching is remembered, at most: a process has few.
#[cfg(feature = "phrases")]
const STRETCHED_MAX: usize = 64;

/// Makes 32 bytes of a phrase, slowly. Once per process and phrase: the result is remembered.
#[cfg(feature = "phrases")]
pub(super) fn stretched(phrase: &[u8]) -> Option<Secret> {
    use std::sync::{Mutex, PoisonError};

    /// Digests of phrases, and what became of them.
    static KNOWN: Mutex<Vec<([u8; 32], Secret)>> = Mutex::new(Vec::new());
    let mut digest = [0; 32];
    digest.copy_from_slice(super::sha256(phrase).as_ref());
    // Held while stretching, so that several threads do not each take the memory.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, secret)) = known.iter().find(|(of, _)| *of == digest) {
        return Some(secret.clone());
    }
    let secret = stretch(phrase);
    if known.len() == STRETCHED_MAX {
        known.remove(0);
    }
    known.push((digest, secret.clone()));
    Some(secret)
}

/// Without the feature, no line is a phrase.
#[cfg(not(feature = "phrases"))]
pub(super) fn stretched(_: &[u8]) -> Option<Secret> {
    None
}

/// Argon2id, with the second recommended option of RFC 9106, section 4, and one lane.
#[cfg(feature = "phrases")]
fn stretch(phrase: &[u8]) -> Secret {
    use super::SECRET_BYTES;
    use argon2::{Algorithm, Argon2, Params, Version};

    /// Memory in KiB, passes and lanes.
    const STRETCHING: (u32, u32, u32) = (64 << 10, 3, 1);
    /// The salt is fixed, because every node must derive the same from a phrase alone.
    const SALT: &[u8] = b"doyen/2 phrase";
    let (memory, passes, lanes) = STRETCHING;
    let mut out = zeroize::Zeroizing::new([0; SECRET_BYTES]);
    // The parameters are constants within argon2's bounds, and a line is far below its 4 GiB.
    let params = Params::new(memory, passes, lanes, Some(SECRET_BYTES)).expect("valid parameters");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(phrase, SALT, out.as_mut())
        .expect("a phrase and a salt of valid lengths");
    Secret(out)
}
