//! A pattern of [`glob`] that is compared with many texts.
//!
//! It is split at its `*` once. Each element between them takes exactly one byte, so what comes
//! before the first `*` stands at the beginning of a text, and what follows the last one at its
//! end. Only what is *between* two `*` is searched for, and each part is taken where it is found
//! first: no text is gone through twice.
//!
//! ```text
//!   user:*:a[0-9]*:z     head "user:"     between ":a[0-9]"     tail ":z"
//! ```

use crate::command::glob::{self, one};
use memchr::memmem::Finder;

/// How much more a byte of a part with `?`, `[...]` or `\` costs than one of a literal part.
const SLOWER: usize = 4;

/// A pattern, ready to be compared.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: Box<[u8]>,
    head: PatternPart,
    /// `None`: the pattern has no `*`.
    rest: Option<PatternRest>,
}

/// What follows the first `*`.
#[derive(Debug, Clone)]
struct PatternRest {
    between: Box<[PatternPart]>,
    tail: PatternPart,
}

/// A part without `*`.
#[derive(Debug, Clone)]
struct PatternPart {
    text: Box<[u8]>,
    /// How many bytes of a text it takes.
    takes: usize,
    literal: bool,
    /// Finds it, if it is literal and is searched for.
    finder: Option<Box<Finder<'static>>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Pattern {
    /// This pattern.
    #[must_use]
    pub fn new(pattern: &[u8]) -> Self {
        let mut parts = parts(pattern);
        let head = parts.next().unwrap_or_default();
        let mut rest: Vec<&[u8]> = parts.collect();
        let rest = rest.pop().map(|tail| PatternRest {
            // Several `*` in a row are as one.
            between: rest
                .iter()
                .filter(|part| !part.is_empty())
                .map(|part| PatternPart::new(part, true))
                .collect(),
            tail: PatternPart::new(tail, false),
        });
        Self {
            text: pattern.into(),
            head: PatternPart::new(head, false),
            rest,
        }
    }

    /// What it costs to compare it, for each byte of a text: 0 if its own length alone bounds that,
    /// 1 if a literal part is searched for, and more for other parts.
    #[must_use]
    pub fn cost(&self) -> usize {
        let between = self.rest.iter().flat_map(|rest| &rest.between);
        between.map(PatternPart::cost).max().unwrap_or(0)
    }

    /// Whether the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_counting(text, &mut 0)
    }

    /// The same. Adds the steps that it took: bytes of the pattern that were compared, and bytes of
    /// the text that were searched for a literal.
    fn matches_counting(&self, text: &[u8], steps: &mut usize) -> bool {
        let Some(PatternRest { between, tail }) = &self.rest else {
            return text.len() == self.head.takes && self.head.is_at(text, steps);
        };
        let Some(end) = text.len().checked_sub(tail.takes) else {
            return false;
        };
        if end < self.head.takes
            || !self.head.is_at(text, steps)
            || !tail.is_at(&text[end..], steps)
        {
            return false;
        }
        let mut middle = &text[self.head.takes..end];
        for part in between {
            let Some(at) = part.find(middle, steps) else {
                return false;
            };
            middle = &middle[at + part.takes..];
        }
        true
    }
}

impl PatternPart {
    fn new(text: &[u8], searched: bool) -> Self {
        let (mut rest, mut takes) = (text, 0);
        while !rest.is_empty() {
            rest = glob::after(rest);
            takes += 1;
        }
        let literal = !text.iter().any(|byte| matches!(byte, b'?' | b'[' | b'\\'));
        let finder = || Box::new(Finder::new(text).into_owned());
        Self {
            text: text.into(),
            takes,
            literal,
            finder: (searched && literal).then(finder),
        }
    }

    fn cost(&self) -> usize {
        match self.finder {
            Some(_) => 1,
            None => SLOWER * self.text.len(),
        }
    }

    /// Whether the text begins with it. The text is long enough.
    fn is_at(&self, text: &[u8], steps: &mut usize) -> bool {
        if self.literal {
            *steps += self.takes;
            return text.starts_with(&self.text);
        }
        let mut rest = &*self.text;
        for byte in &text[..self.takes] {
            let before = rest.len();
            *steps += before - glob::after(rest).len();
            match one(rest, Some(*byte)) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        true
    }

    /// Where it begins in the text for the first time.
    fn find(&self, text: &[u8], steps: &mut usize) -> Option<usize> {
        if let Some(finder) = &self.finder {
            let found = finder.find(text);
            *steps += found.map_or(text.len(), |at| at + self.takes);
            return found;
        }
        let last = text.len().checked_sub(self.takes)?;
        (0..=last).find(|at| self.is_at(&text[*at..], steps))
    }
}

/// What is between the `*` of a pattern, and before and after them.
fn parts(pattern: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut left = Some(pattern);
    std::iter::from_fn(move || {
        let whole = left?;
        let mut rest = whole;
        while let [first, ..] = rest {
            if *first == b'*' {
                left = Some(&rest[1..]);
                return Some(&whole[..whole.len() - rest.len()]);
            }
            rest = glob::after(rest);
        }
        left = None;
        Some(whole)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost(pattern: &str) -> usize {
        Pattern::new(pattern.as_bytes()).cost()
    }

    #[test]
    fn only_what_is_between_two_stars_costs() {
        for free in [
            "",
            "a",
            "a*",
            "*a",
            "a?[b-z]*\\*c",
            "***a",
            "a***",
            "*",
            "**",
        ] {
            assert_eq!(cost(free), 0, "{free}");
        }
        assert_eq!(cost("*a*"), 1);
        assert_eq!(cost("*long-literal*b*x"), 1, "one after the other");
        assert_eq!(cost("*a?*"), 2 * SLOWER);
        assert_eq!(cost("*a*[0-9]*b?c*"), 5 * SLOWER);
        // A star in a class is a literal.
        assert_eq!(cost("*[*]"), 0);
    }

    /// 200 stars and a text of a megabyte took a tenth of a second.
    #[test]
    fn the_work_is_bounded_by_the_cost_whatever_the_pattern_and_the_text_are() {
        let literal = [&b"a".repeat(400)[..], b"b"].concat();
        let patterns = [
            "*a".repeat(200),
            format!("{}b", "*a".repeat(200)),
            format!("*{}*", String::from_utf8_lossy(&literal)),
            format!("*{}b*", "?".repeat(400)),
            format!("*{}b*{}b*", "[a-c]".repeat(80), "a?".repeat(40)),
        ];
        for pattern in patterns {
            for length in [0, 1, 1_000, 20_000] {
                let (text, mut steps) = (b"a".repeat(length), 0);
                let compiled = Pattern::new(pattern.as_bytes());
                let _ = compiled.matches_counting(&text, &mut steps);
                let most = (length + 1) * compiled.cost().max(1) + 2 * pattern.len();
                assert!(
                    steps <= most,
                    "{steps} of {most} for {pattern} and {length}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn it_matches_what_its_glob_matches(
            pattern in "[*?\\[\\]^a-c\\\\-]{0,20}",
            text in "[a-c\\]*-]{0,20}",
        ) {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(Pattern::new(pattern).matches(text), glob::matches(pattern, text));
        }

        #[test]
        fn texts_that_it_was_made_for_match(
            parts in prop::collection::vec("[a-c]{0,4}", 1..6),
            fills in prop::collection::vec("[a-c]{0,9}", 6),
        ) {
            let pattern = parts.join("*");
            let filled: Vec<String> = parts.iter().zip(&fills).map(|(p, f)| p.clone() + f).collect();
            let mut text = filled.concat();
            // Nothing follows the last part.
            text.truncate(text.len() - fills[parts.len() - 1].len());
            prop_assert!(Pattern::new(pattern.as_bytes()).matches(text.as_bytes()));
        }
    }
}
