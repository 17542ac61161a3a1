//! Tokens that programs send to HTTP, as the command that makes them has them.

use crate::admin::tokens::TOKEN_NAMES;
use crate::hex::hex;
use crate::net::identity::hash_of;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doyen_placement::access::may_be_token;
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

/// Whether a token may have this name: the nodes judge in the same way.
///
/// ```
/// use doyen::http::check_token_name;
///
/// assert!(check_token_name("prometheus").is_ok());
/// println!("{}", check_token_name("..").unwrap_err()); // what names may have
/// ```
///
/// # Errors
/// It may not; the text says what names may have.
pub fn check_token_name(name: &str) -> Result<(), &'static str> {
    if may_be_token(name) {
        Ok(())
    } else {
        Err(TOKEN_NAMES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::unhex;

    #[test]
    fn names_of_tokens_are_no_steps_of_paths() {
        for name in ["", ".", "..", "a/b", "a b", "\u{e9}", &"a".repeat(65)] {
            assert!(check_token_name(name).is_err(), "{name:?}");
        }
        for name in ["a", "...", ".a", "ci-2.x_y", &"a".repeat(64)] {
            assert_eq!(check_token_name(name), Ok(()), "{name:?}");
        }
    }

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
