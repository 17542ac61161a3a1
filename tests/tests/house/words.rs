//! Words: comments and pages name what they speak of, and the name of a type leads to one type.

use super::citations::{Comment, begins_word, comments, pages, sources};
use super::classes::declared;
use super::rooms::{CRATES, crate_root, read};
use std::collections::{BTreeMap, BTreeSet};

/// Phrases where a parameter, a noun or the mechanism should be named, and what to write instead.
const VAGUE: [(&str, &str); 6] = [
    ("so many", "name the parameter: `count`"),
    ("so much", "name the parameter: `bytes`"),
    ("of which", "begin a sentence with the noun"),
    ("anew", "say again, or what happens"),
    ("is told", "say how: gets, receives, hears of"),
    ("are told", "say how: get, receive, hear of"),
];

/// The most declarations of types, in percent, whose name another crate declares, too.
const SHARED_PERCENT_MAX: usize = 2;

/// Words that a newcomer would have to learn, and the field's words for them. `docs/glossary.md`
/// explains the words of our own that stay.
const PRIVATE: [(&str, &str); 18] = [
    ("advice", "remedy"),
    ("cadence", "schedule"),
    ("detour", "relay"),
    ("door", "front end"),
    ("doors", "front ends"),
    ("drawing", "migration"),
    ("elders", "voters"),
    ("guesses", "login throttle"),
    ("halving", "search of a split point"),
    ("mandate", "election proof"),
    ("mandates", "election proofs"),
    ("others", "say which: other clusters"),
    ("pace", "rate"),
    ("places", "say which: positions, accept limit"),
    ("pulse", "heartbeat"),
    ("rounds", "queue"),
    ("seldom", "log limit"),
    ("still", "frozen"),
];

/// The private words in the name of a type or of a file.
fn private(name: &str) -> Vec<&'static str> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter == '/' || letter.is_uppercase() {
            words.push(String::new());
        }
        let last = words.last_mut().expect("a word has begun");
        last.extend(
            letter
                .is_alphanumeric()
                .then(|| letter.to_ascii_lowercase()),
        );
    }
    let all = PRIVATE.iter().map(|(word, _)| *word);
    all.filter(|private| words.iter().any(|word| word == private))
        .collect()
}

#[test]
fn types_and_files_have_the_words_of_the_field() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for root in CRATES.into_iter().chain(["examples"]) {
        let sources = read(&crate_root(root));
        let files = sources.keys().map(|file| file.trim_end_matches(".rs"));
        for name in declared(&sources).into_keys().chain(files) {
            count += 1;
            for word in private(name) {
                let instead = PRIVATE.iter().find(|(private, _)| *private == word);
                let instead = instead.map_or("", |(_, instead)| instead);
                wrong.push(format!("{root}: {name}: \"{word}\": {instead}"));
            }
        }
    }
    assert!(count > 1_500, "only {count} names");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn private_words_are_found_in_names() {
    assert_eq!(private("AtTheDoors"), ["doors"]);
    assert_eq!(private("role/other_places"), ["places"]);
    assert_eq!(private("Others"), ["others"]);
    assert_eq!(private("PlacesOfPulse"), ["places", "pulse"]);
    for name in ["OtherClusters", "KeySpaces", "Impulse", "spaces/paces"] {
        assert_eq!(private(name), [""; 0], "{name}");
    }
}

/// The vague phrases of a text: their places in [`VAGUE`], each with its line.
fn vague(comment: &Comment) -> Vec<(usize, usize)> {
    let text = comment.text.to_ascii_lowercase();
    let mut found = Vec::new();
    for (which, (phrase, _)) in VAGUE.iter().enumerate() {
        for (at, _) in text.match_indices(phrase) {
            let ends = !text[at + phrase.len()..].starts_with(char::is_alphanumeric);
            if ends && begins_word(&text, at) {
                found.push((which, comment.line_of(at)));
            }
        }
    }
    found
}

/// A page as one text.
fn whole(page: &str) -> Comment {
    let mut whole = Comment::default();
    for (line, text) in (1..).zip(page.lines()) {
        whole.push(line, text.trim());
    }
    whole
}

#[test]
fn comments_and_pages_name_what_they_speak_of() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    let sources = sources().into_iter();
    let sources = sources.map(|(path, text)| (path, comments(&text)));
    let pages = pages().into_iter();
    let pages = pages.map(|(path, text)| (path, vec![whole(&text)]));
    for (path, texts) in sources.chain(pages) {
        count += texts.len();
        for (which, line) in texts.iter().flat_map(vague) {
            let (phrase, instead) = VAGUE[which];
            let path = path.display();
            wrong.push(format!("{path}:{line}: \"{phrase}\": {instead}"));
        }
    }
    assert!(count > 10_000, "only {count} comments and pages");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How many declarations of types there are in crates, and the names that several crates declare:
/// each with the crates, and with how many declarations.
fn shared<'a>(
    crates: &[(&'a str, BTreeMap<&'a str, BTreeSet<&'a str>>)],
) -> (usize, BTreeMap<&'a str, (Vec<&'a str>, usize)>) {
    let (mut all, mut names) = (0, BTreeMap::<_, (Vec<_>, usize)>::new());
    for (of, declared) in crates {
        for (name, files) in declared {
            let (crates, count) = names.entry(*name).or_default();
            crates.push(*of);
            *count += files.len();
            all += files.len();
        }
    }
    names.retain(|_, (crates, _)| crates.len() > 1);
    (all, names)
}

#[test]
fn names_of_types_are_seldom_shared_between_crates() {
    let sources = CRATES.into_iter().chain(["examples"]);
    let sources = sources.map(|name| (name, read(&crate_root(name))));
    let sources: Vec<_> = sources.collect();
    let crates = sources.iter().map(|(name, of)| (*name, declared(of)));
    let (all, shared) = shared(&crates.collect::<Vec<_>>());
    assert!(all > 1_000, "only {all} types");
    let count: usize = shared.values().map(|(_, count)| count).sum();
    let listed = shared.iter();
    let listed = listed.map(|(name, (crates, _))| format!("{name}: {}", crates.join(", ")));
    assert!(
        count * 100 <= all * SHARED_PERCENT_MAX,
        "{count} of {all} declarations have the name of a type of another crate: more than \
         {SHARED_PERCENT_MAX} %. Say in the name what each of them is a place, a step or a state \
         of:\n{}",
        listed.collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn vague_phrases_are_found_with_their_lines() {
    let found = |text: &Comment| {
        let found = vague(text).into_iter();
        found
            .map(|(which, line)| format!("{line} {}", VAGUE[which].0))
            .collect::<Vec<_>>()
    };
    let source = "//! Two, of\n//! which one counts. So MANY bytes.\nfn anew() {}\n\
                  let a = 1; // It is told.\nlet b = \"so much\";\n/// Also many, so muchness.\n";
    let comments = comments(source);
    assert_eq!(found(&comments[0]), ["2 so many", "1 of which"]);
    assert_eq!(found(&comments[1]), ["4 is told"]);
    assert_eq!(found(&comments[2]), [""; 0]);
    assert_eq!(comments.len(), 3);
    let page = whole("# A\n\n- They are\n  told. It begins\n  anew.\n");
    assert_eq!(found(&page), ["5 anew", "3 are told"]);
}

#[test]
fn names_that_crates_share_are_counted() {
    let declared = |names: &[(&'static str, &[&'static str])]| {
        let names = names.iter();
        names
            .map(|(name, files)| (*name, files.iter().copied().collect()))
            .collect()
    };
    let crates = [
        ("low", declared(&[("Place", &["a", "b"]), ("Low", &["a"])])),
        (
            "high",
            declared(&[("Place", &["c"]), ("High", &["a", "c"])]),
        ),
    ];
    let (all, shared) = shared(&crates);
    assert_eq!(all, 6);
    let expected = BTreeMap::from([("Place", (vec!["low", "high"], 3))]);
    assert_eq!(shared, expected);
}
