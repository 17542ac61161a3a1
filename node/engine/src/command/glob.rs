//! Patterns of `KEYS` and `SCAN MATCH`: `*`, `?`, `[abc]`, `[^a]`, `[a-z]`, and `\` before a
//! character.

/// Whether the whole text matches.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Without a limit on work it always comes to an end.
    Matching::default()
        .run(pattern, text, &mut usize::MAX.clone())
        .unwrap_or_default()
}

/// The progress of one comparison.
///
/// It goes back only to the last `*`, so the work is bounded by the product of both lengths for
/// every pattern. That is still a tenth of a second for the longest pattern and key, so it can be
/// done in slices.
#[derive(Debug, Default)]
pub struct Matching {
    pattern_at: usize,
    text_at: usize,
    /// The pattern after the last `*`, and the first byte of the text that this `*` does not take.
    retry: Option<(usize, usize)>,
}

impl Matching {
    /// Whether the whole text matches; `None` if the work did not suffice to find out. The work
    /// that was done is subtracted.
    pub fn run(&mut self, pattern: &[u8], text: &[u8], work: &mut usize) -> Option<bool> {
        while *work > 0 {
            let rest = pattern.get(self.pattern_at..).unwrap_or_default();
            if rest.first() == Some(&b'*') {
                self.pattern_at += 1;
                self.retry = Some((self.pattern_at, self.text_at));
                *work -= 1;
                continue;
            }
            if let Some(after) = one(rest, text.get(self.text_at).copied()) {
                let used = rest.len() - after.len();
                self.pattern_at += used;
                self.text_at += 1;
                *work = work.saturating_sub(used);
                continue;
            }
            if rest.is_empty() && self.text_at == text.len() {
                return Some(true);
            }
            // A class that does not match was read to its end, or to the end of the pattern.
            *work = work.saturating_sub(if rest.first() == Some(&b'[') {
                rest.len()
            } else {
                1
            });
            match self.retry {
                Some((after, at)) if at < text.len() => {
                    self.retry = Some((after, at + 1));
                    (self.pattern_at, self.text_at) = (after, at + 1);
                }
                _ => return Some(false),
            }
        }
        None
    }
}

/// The rest of the pattern after its first element has taken this character; `None` if the element
/// does not match it.
pub(crate) fn one(pattern: &[u8], character: Option<u8>) -> Option<&[u8]> {
    let character = character?;
    match pattern {
        [] => None,
        [b'?', after @ ..] => Some(after),
        [b'[', after @ ..] => class(after, character),
        [b'\\', literal, after @ ..] => (*literal == character).then_some(after),
        [literal, after @ ..] => (*literal == character).then_some(after),
    }
}

/// The rest of a pattern after its first element, which is not `*`.
pub(crate) fn after(pattern: &[u8]) -> &[u8] {
    match pattern {
        [b'[', class @ ..] => ranges(class, |_, _| {}),
        [b'\\', _, after @ ..] | [_, after @ ..] => after,
        [] => pattern,
    }
}

/// Matches a class without its opening bracket. A class that is never closed ends with the pattern,
/// as in Redis.
fn class(class: &[u8], character: u8) -> Option<&[u8]> {
    let (negated, mut found) = (class.first() == Some(&b'^'), false);
    let after = ranges(class, |from, to| {
        found |= (from.min(to)..=from.max(to)).contains(&character);
    });
    (found != negated).then_some(after)
}

/// Tells the ranges of a class without its opening bracket, and returns what follows it.
fn ranges(class: &[u8], mut tell: impl FnMut(u8, u8)) -> &[u8] {
    let mut rest = class.strip_prefix(b"^").unwrap_or(class);
    loop {
        rest = match rest {
            [] => return rest,
            [b']', after @ ..] => return after,
            [b'\\', literal, after @ ..] => {
                tell(*literal, *literal);
                after
            }
            [from, b'-', to, after @ ..] => {
                tell(*from, *to);
                after
            }
            [literal, after @ ..] => {
                tell(*literal, *literal);
                after
            }
        };
    }
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
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} on {text}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_pattern_panics(pattern in "[*?\\[\\]^a-c\\\\-]{0,20}", text in "[a-c\\]-]{0,20}") {
            let _ = matches(pattern.as_bytes(), text.as_bytes());
        }

        #[test]
        fn slices_find_the_same_as_a_whole_run(
            pattern in "[*?\\[\\]^a-c\\\\-]{0,20}",
            text in "[a-c]{0,20}",
            slice in 1_usize..5,
        ) {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let mut matching = Matching::default();
            let mut run = || matching.run(pattern, text, &mut slice.clone());
            let found = std::iter::repeat_with(&mut run).flatten().next();
            prop_assert_eq!(found, Some(matches(pattern, text)));
        }

        #[test]
        fn an_escaped_text_matches_itself_alone(
            text in prop::collection::vec(any::<u8>(), 0..20),
            other in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let pattern: Vec<u8> = text.iter().flat_map(|b| [b'\\', *b]).collect();
            prop_assert!(matches(&pattern, &text));
            prop_assert_eq!(matches(&pattern, &other), text == other);
        }
    }
}
