//! `docs/agreement.md` states the rules and invariants that the code cites, and names the tests
//! that check them.
//!
//! A comment cites them in brackets: `(rule 4)`, `(rules 8 to 10)`, `(I5, I6)`.

use super::pages::files;
use doyen_tests::mutants;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// How many rules docs/agreement.md must have, so that a lost one is noticed.
const RULES: u32 = 14;
const INVARIANTS: u32 = 17;

/// A rule or an invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Law {
    Rule(u32),
    Invariant(u32),
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(number) => write!(f, "rule {number}"),
            Self::Invariant(number) => write!(f, "I{number}"),
        }
    }
}

/// A place that cites a law.
#[derive(Debug, PartialEq, Eq)]
struct Citation {
    law: Law,
    /// Byte offset in the text.
    at: usize,
}

/// The number at the beginning of a text, and its length.
fn number(text: &str) -> Option<(u32, usize)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let ends = !text[digits..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
    text[..digits]
        .parse()
        .ok()
        .filter(|_| ends)
        .map(|number| (number, digits))
}

/// Whether a word begins there.
pub(super) fn begins_word(text: &str, at: usize) -> bool {
    !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// All citations in a text: `rule 4`, `rules 1, 3 and 4`, `rules 8 to 10`, `I7`.
fn citations(text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    for word in ["rule ", "Rule ", "rules ", "Rules "] {
        for (begin, _) in text
            .match_indices(word)
            .filter(|(begin, _)| begins_word(text, *begin))
        {
            let mut at = begin + word.len();
            let mut last = None;
            while let Some((rule, length)) = number(&text[at..]) {
                let first = last.map_or(rule, |before: u32| before + 1);
                found.extend((first.min(rule)..=rule).map(|rule| Citation {
                    law: Law::Rule(rule),
                    at,
                }));
                let rest = &text[at + length..];
                let next = [(", ", false), (" and ", false), (" to ", true)]
                    .into_iter()
                    .find(|(sign, _)| rest.starts_with(sign));
                let Some((sign, range)) = next.filter(|_| word.trim_end().ends_with('s')) else {
                    break;
                };
                last = range.then_some(rule);
                at += length + sign.len();
            }
        }
    }
    for (at, _) in text
        .match_indices('I')
        .filter(|(at, _)| begins_word(text, *at))
    {
        if let Some((invariant, _)) = number(&text[at + 1..]) {
            found.push(Citation {
                law: Law::Invariant(invariant),
                at,
            });
        }
    }
    found
}

/// Lines as one text, and where each of them begins.
#[derive(Debug, Default)]
pub(super) struct Comment {
    pub(super) text: String,
    lines: Vec<(usize, usize)>,
}

/// The comments of a source: runs of lines. A line that also holds code is a comment of its own.
pub(super) fn comments(source: &str) -> Vec<Comment> {
    let mut all: Vec<Comment> = Vec::new();
    let mut goes_on = false;
    for (line, text) in (1..).zip(source.lines()) {
        let begin = if text.trim_start().starts_with("//") {
            text.find("//")
        } else {
            text.find(" // ")
        };
        let Some(begin) = begin else {
            goes_on = false;
            continue;
        };
        let whole = text[..begin].trim().is_empty();
        if !(goes_on && whole) {
            all.push(Comment::default());
        }
        goes_on = whole;
        if let Some(comment) = all.last_mut() {
            comment.push(line, text[begin..].trim_start_matches([' ', '/', '!']));
        }
    }
    all
}

impl Comment {
    pub(super) fn push(&mut self, line: usize, text: &str) {
        self.lines.push((self.text.len(), line));
        self.text.push_str(text);
        self.text.push(' ');
    }

    pub(super) fn line_of(&self, at: usize) -> usize {
        self.lines
            .iter()
            .rev()
            .find(|(begin, _)| *begin <= at)
            .map_or(0, |(_, line)| *line)
    }

    /// Whether a place stands in brackets.
    fn bracketed(&self, at: usize) -> bool {
        let before = &self.text[..at];
        before.matches('(').count() > before.matches(')').count()
    }
}

/// All sources except those of this test and of [`super::words`]: their examples are wrong on
/// purpose.
pub(super) fn sources() -> BTreeMap<PathBuf, String> {
    let wrong = ["citations.rs", "words.rs"].map(|name| Path::new("tests/tests/house").join(name));
    let mut sources = files(Path::new(ROOT), |name| name.ends_with(".rs"));
    sources.retain(|path, _| !wrong.contains(path));
    sources
}

/// All pages except notes.
pub(super) fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = files(Path::new(ROOT), |name| name.ends_with(".md"));
    pages.retain(|path, _| !path.starts_with("docs/notes"));
    pages
}

fn page() -> String {
    std::fs::read_to_string(Path::new(ROOT).join("docs/agreement.md")).expect("docs/agreement.md")
}

/// The text under each heading `### Rule 1. ...` and `### I1. ...`.
fn sections(page: &str) -> BTreeMap<Law, String> {
    let mut sections = BTreeMap::new();
    let mut current = None;
    for line in page.lines() {
        if line.starts_with('#') {
            let title = line.trim_start_matches(['#', ' ']);
            let stated = title.split_once(". ").filter(|_| line.starts_with("### "));
            let stated = stated.and_then(|(name, _)| citations(name).into_iter().next());
            current = stated.map(|citation| citation.law);
            if let Some(law) = current {
                assert!(
                    sections.insert(law, String::new()).is_none(),
                    "docs/agreement.md states {law} twice"
                );
            }
        } else if let Some(text) = current.and_then(|law| sections.get_mut(&law)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    sections
}

/// Words in code spans of a page, outside of blocks.
fn code_words(page: &str) -> Vec<&str> {
    let blocks = page.split("```").step_by(2);
    blocks
        .flat_map(|text| text.split('`').skip(1).step_by(2))
        .collect()
}

fn is_identifier(word: &str) -> bool {
    word.bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[test]
fn every_rule_and_invariant_that_a_source_cites_is_stated() {
    let stated = sections(&page());
    let mut wrong = Vec::new();
    let mut cited = BTreeSet::new();
    for (path, source) in sources() {
        for Citation { law, at } in citations(&source) {
            cited.insert(law);
            if !stated.contains_key(&law) {
                let line = source[..at].lines().count();
                wrong.push(format!(
                    "{}:{line}: docs/agreement.md does not state {law}",
                    path.display()
                ));
            }
        }
        for comment in comments(&source) {
            for Citation { law, at } in citations(&comment.text)
                .into_iter()
                .filter(|c| !comment.bracketed(c.at))
            {
                let line = comment.line_of(at);
                wrong.push(format!(
                    "{}:{line}: a comment cites in brackets, as in ({law})",
                    path.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let silent: Vec<String> = stated
        .keys()
        .filter(|law| !cited.contains(law))
        .map(ToString::to_string)
        .collect();
    assert!(silent.is_empty(), "no source cites these: {silent:?}");
}

#[test]
fn every_rule_and_invariant_that_a_page_cites_is_stated() {
    let stated = sections(&page());
    for (path, text) in pages() {
        for Citation { law, at } in citations(&text) {
            let line = text[..at].lines().count();
            assert!(
                stated.contains_key(&law),
                "{}:{line}: docs/agreement.md does not state {law}",
                path.display()
            );
        }
    }
}

#[test]
fn each_rule_and_invariant_has_a_reason_and_a_test() {
    let sections = sections(&page());
    let all = (1..=RULES)
        .map(Law::Rule)
        .chain((1..=INVARIANTS).map(Law::Invariant));
    assert_eq!(
        sections.keys().copied().collect::<Vec<_>>(),
        all.collect::<Vec<_>>()
    );
    for (law, text) in sections {
        assert!(text.contains("**Why.**"), "{law} does not say why");
        let tests = code_words(&text)
            .into_iter()
            .filter(|word| word.contains('_') && is_identifier(word))
            .count();
        assert!(tests > 0, "{law} names no test");
    }
}

#[test]
fn every_test_and_mutant_that_the_page_names_exists() {
    let page = page();
    let code: String = sources().into_values().collect();
    let mutants: BTreeSet<&str> = mutants::all().map(|m| m.id()).collect();
    let mut wrong = Vec::new();
    for word in code_words(&page) {
        if word.contains('_') && is_identifier(word) && !code.contains(&format!("fn {word}(")) {
            wrong.push(format!("there is no test or function {word}"));
        }
        let hyphenated = word.contains('-')
            && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
            && !word.starts_with('-');
        if hyphenated && !mutants.contains(word) {
            wrong.push(format!("there is no mutant {word}"));
        }
    }
    assert!(wrong.is_empty(), "docs/agreement.md: {wrong:#?}");
}

/// There is one row for each mutant: `| name | what it breaks | its check, or simulation |`.
#[test]
fn each_mutant_stands_under_its_rule_with_the_check_that_notices_it() {
    let page = page();
    let sections = sections(&page);
    let checks =
        std::fs::read_to_string(Path::new(ROOT).join("tests/src/rules.rs")).expect("the checks");
    // One entry may take several lines.
    let checks = checks.split_whitespace().collect::<Vec<_>>().join(" ");
    for mutant in mutants::all() {
        let begin = format!("| `{}` |", mutant.id());
        let rows: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with(&begin))
            .collect();
        let [row] = rows[..] else {
            panic!(
                "{} has {} rows in docs/agreement.md",
                mutant.id(),
                rows.len()
            )
        };
        let entry = format!("::{}, ", mutant.id().to_uppercase().replace('-', "_"));
        let check = checks.split_once(&entry).map(|(_, rest)| rest);
        let check = check
            .and_then(|rest| rest.split_once([',', ')']))
            .and_then(|(path, _)| path.rsplit("::").next());
        let noticed = check.map_or("simulation".to_owned(), |name| format!("`{name}`"));
        assert!(
            row.ends_with(&format!("| {noticed} |")),
            "{} is noticed by {noticed}: {row}",
            mutant.id()
        );
        for Citation { law, .. } in citations(mutant.rule()) {
            let stands = sections
                .get(&law)
                .is_some_and(|text| text.lines().any(|line| line == row));
            assert!(
                stands,
                "{} breaks {law}, and does not stand in its section",
                mutant.id()
            );
        }
    }
}

#[test]
fn citations_are_found_in_every_form() {
    let laws = |text| {
        citations(text)
            .into_iter()
            .map(|c| c.law.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(laws("(rule 4), and Rule 12: so"), "rule 4 rule 12");
    assert_eq!(laws("(rules 1, 3 and 4)"), "rule 1 rule 3 rule 4");
    assert_eq!(laws("(rules 8 to 10)"), "rule 8 rule 9 rule 10");
    assert_eq!(laws("I2: two tables; (I14, I15) and I99"), "I2 I14 I15 I99");
    assert_eq!(laws("a rule 4 and 5 others"), "rule 4");
    assert_eq!(laws("MODI5, I8x, I_9, overrule 7, rule of 3, I2C"), "");
}

#[test]
fn a_comment_that_cites_without_brackets_is_found_over_lines() {
    let source =
        "    // Only the primary asks (rules 7\n    // and 8).\n    let a = 1; // Rule 9.\n";
    let comments = comments(source);
    let cited: Vec<(usize, String, bool)> = comments
        .iter()
        .flat_map(|c| {
            citations(&c.text)
                .into_iter()
                .map(|f| (c.line_of(f.at), f.law.to_string(), c.bracketed(f.at)))
        })
        .collect();
    assert_eq!(
        cited,
        [
            (1, "rule 7".into(), true),
            (2, "rule 8".into(), true),
            (3, "rule 9".into(), false)
        ]
    );
}
