//! Tokens that programs send to HTTP, as the command that makes them has them.

use crate::hex::hex;
use crate::net::identity::hash_of;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

/// How tokens begin that [`new_token`] makes, so that people and scanners recognize them.
pub const TOKEN_PREFIX: &str = "doyen_";

/// A new token: 32 random bytes as base64url, behind [`TOKEN_PREFIX`].
#[must_use]
pub fn new_token() -> Zeroizing<String> {
    let random = Zeroizing::new(rand::random::<[u8; 32]>());
    let digits = Zeroizing::new(URL_SAFE_NO_PAD.encode(*random));
    Zeroizing::new(format!("{TOKEN_PREFIX}{}", *digits))
}

/// The SHA-256 of a token, in 64 hexadecimal digits: what nodes keep of it.
#[must_use]
pub fn token_hash(token: &str) -> String {
    hex(&hash_of(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::unhex;

    #[test]
    fn tokens_are_random_and_kept_as_hashes() {
        let (one, other) = (new_token(), new_token());
        assert!(one.starts_with("doyen_") && one.len() == 6 + 43 && one != other);
        let hash = token_hash("abc");
        assert!(hash.starts_with("ba7816bf8f01cfea") && hash.len() == 64);
        let bytes = unhex::<32>(hash.as_bytes());
        assert_eq!(bytes.map(|bytes| hex(&bytes)), Some(hash));
        for wrong in ["", "ba", &"g".repeat(64), &"\u{e9}".repeat(32)] {
            assert_eq!(unhex::<32>(wrong.as_bytes()), None);
        }
    }
}
