//! Patterns as `KEYS` and `SCAN MATCH` take them: `*`, `?`, `[abc]`, `[^a]`, `[a-z]`, and `\` before a character.

/// Whether the whole text matches.
///
/// Goes back only to the last `*`, so that the work is bounded by the product of both lengths whatever the pattern is.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (pattern, text);
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', after @ ..] = p {
            retry = Some((after, t));
            p = after;
            continue;
        }
        match (one(p, t.first().copied()), t) {
            (Some(after), [_, rest @ ..]) => (p, t) = (after, rest),
            _ if p.is_empty() && t.is_empty() => return true,
            _ => match retry {
                Some((after, [_, rest @ ..])) => {
                    retry = Some((after, rest));
                    (p, t) = (after, rest);
                }
                _ => return false,
            },
        }
    }
}

/// What is left of the pattern once its first element took this character; `None` if it does not take it.
fn one(pattern: &[u8], character: Option<u8>) -> Option<&[u8]> {
    let character = character?;
    match pattern {
        [] => None,
        [b'?', after @ ..] => Some(after),
        [b'[', after @ ..] => class(after, character),
        [b'\\', literal, after @ ..] => (*literal == character).then_some(after),
        [literal, after @ ..] => (*literal == character).then_some(after),
    }
}

/// A class without its opening bracket. One that is never closed ends with the pattern, as in Redis.
fn class(mut rest: &[u8], character: u8) -> Option<&[u8]> {
    let negated = rest.first() == Some(&b'^');
    if negated {
        rest = &rest[1..];
    }
    let mut found = false;
    let after = loop {
        rest = match rest {
            [] => break rest,
            [b']', after @ ..] => break after,
            [b'\\', literal, after @ ..] => {
                found |= *literal == character;
                after
            }
            [from, b'-', to, after @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&character);
                after
            }
            [literal, after @ ..] => {
                found |= *literal == character;
                after
            }
        };
    };
    (found != negated).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases = [
            ("*", "", true),
            ("*", "anything", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xxaxxbxx", false),
            ("", "", true),
            ("", "a", false),
            ("[a", "a", true),
            ("user:*:name", "user:17:name", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        }
    }

    proptest! {
        #[test]
        fn no_pattern_panics(pattern in "[*?\\[\\]^a-c\\\\-]{0,20}", text in "[a-c\\]-]{0,20}") {
            let _ = matches(pattern.as_bytes(), text.as_bytes());
        }

        #[test]
        fn an_escaped_text_matches_itself_alone(text in prop::collection::vec(any::<u8>(), 0..20), other in prop::collection::vec(any::<u8>(), 0..20)) {
            let pattern: Vec<u8> = text.iter().flat_map(|b| [b'\\', *b]).collect();
            prop_assert!(matches(&pattern, &text));
            prop_assert_eq!(matches(&pattern, &other), text == other);
        }
    }
}
