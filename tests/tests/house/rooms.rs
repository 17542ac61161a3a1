//! The rooms of the engine: imports between its folders run down. ARCHITECTURE.md has the rooms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) const ENGINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../node/engine/src");
/// The crates that are production code, by the folders of their sources.
pub(super) const CRATES: [&str; 10] = [
    "gossip",
    "node",
    "node/cli",
    "node/disk",
    "node/engine",
    "node/macros",
    "node/rdb",
    "node/scripts",
    "node/web",
    "placement",
];

pub(super) fn crate_root(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .join(name)
        .join("src")
}

/// The rooms, the lowest first.
pub(super) const ROOMS: [&str; 7] = ["value", "store", "log", "command", "wire", "role", "shard"];
/// Files below all rooms. Other files of the crate's root lie above them.
const GROUND: [&str; 2] = ["mutant", "fault"];

/// The shard's own types, and the room that alone teaches them.
const SHARD: (&str, [&str; 2]) = ("shard", ["Shard", "Context"]);

/// The sources of a crate: module paths, as `store/index`, and the code without comments, texts and
/// unit tests.
pub(super) type Sources = BTreeMap<String, String>;

/// An import.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrow {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) name: String,
}

/// The sources of a crate, without files that only tests have.
pub(super) fn texts(root: &Path) -> Sources {
    let mut found = Sources::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root).expect("below it");
            let name = name.with_extension("").to_string_lossy().into_owned();
            if name.split('/').any(|part| part == "tests") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).expect("text");
                found.insert(name, text);
            }
        }
    }
    let only_tests: Vec<String> = (found.iter())
        .flat_map(|(file, text)| test_files(file, text))
        .collect();
    let is_test = |file: &str| {
        let mut files = only_tests.iter();
        files.any(|test| file == test || file.starts_with(&format!("{test}/")))
    };
    found.retain(|file, _| !is_test(file));
    found
}

pub(super) fn read(root: &Path) -> Sources {
    let texts = texts(root).into_iter();
    texts
        .map(|(file, text)| (file, without_tests(&without_words(&text))))
        .collect()
}

/// The modules in files of their own that a file declares for tests alone.
fn test_files(file: &str, text: &str) -> Vec<String> {
    let declared = text.split("#[cfg(test)]\n").skip(1).filter_map(|rest| {
        let line = rest.lines().next()?.strip_suffix(';')?;
        let (before, name) = line.split_once("mod ")?;
        (before.is_empty() || before.starts_with("pub")).then_some(name)
    });
    let within = if file == "lib" { "" } else { file };
    let path = |name: &str| format!("{within}/{name}").trim_matches('/').to_owned();
    declared.map(path).collect()
}

/// The code without comments, and with empty texts.
fn without_words(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let raw = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'));
        let hashes = raw.map_or(0, |r| r.bytes().take_while(|b| *b == b'#').count());
        let raw = raw.and_then(|r| r[hashes..].strip_prefix('"'));
        let after_word = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if let (Some(raw), false) = (raw, after_word) {
            let end = format!("\"{}", "#".repeat(hashes));
            let at = raw.find(&end).map_or(raw.len(), |at| at + end.len());
            code.push_str("\"\"");
            rest = &raw[at..];
        } else if let Some(inside) = rest.strip_prefix('"') {
            let mut escaped = false;
            let end = inside.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            code.push_str("\"\"");
            rest = &inside[end.map_or(inside.len(), |at| at + 1)..];
        } else if let Some(length) = character(rest) {
            code.push_str("' '");
            rest = &rest[length..];
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// The length of a character's literal at the beginning, and not of a lifetime.
fn character(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let mut chars = inside.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        return inside[2..].find('\'').map(|at| at + 4);
    }
    let (at, next) = chars.next()?;
    (next == '\'').then_some(at + 2)
}

/// The code without modules that only tests have.
fn without_tests(code: &str) -> String {
    let mut code = code.to_owned();
    while let Some(begin) = module_of_tests(&code) {
        let block = code[begin..].find('{').map(|at| begin + at);
        let line = code[begin..].find(';').map(|at| begin + at);
        let end = match (block, line) {
            (Some(block), line) if line.is_none_or(|line| block < line) => {
                block + closing(&code[block..])
            }
            (_, line) => line.expect("a declaration ends"),
        };
        code.replace_range(begin..=end, "");
    }
    code
}

/// Where the first module begins that only tests have, whatever its visibility.
fn module_of_tests(code: &str) -> Option<usize> {
    let only_tests = ["#[cfg(test)]\n", "#[cfg(all(test, feature = \"\"))]\n"];
    let is_module = |item: &str| {
        let head = item.split(['{', ';', '\n']).next().unwrap_or(item);
        let before = head.split_once("mod ").map(|(before, _)| before);
        before.is_some_and(|before| before.is_empty() || before.starts_with("pub"))
    };
    let begins = only_tests.iter().flat_map(|only| {
        let all = code.match_indices(only);
        all.filter(|(at, only)| is_module(&code[at + only.len()..]))
    });
    begins.map(|(at, _)| at).min()
}

/// Where the first bracket of this code is closed.
pub(super) fn closing(code: &str) -> usize {
    let mut depth = 0;
    let end = code.char_indices().find(|(_, c)| {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        depth == 0
    });
    end.map_or(code.len() - 1, |(at, _)| at)
}

/// The paths that begin with one of these words: each with its segments. Trees of `use` are
/// unfolded.
pub(super) fn paths(code: &str, words: &[&str]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let words: Vec<(usize, &str)> = words
        .iter()
        .flat_map(|word| code.match_indices(word))
        .collect();
    for (at, _) in words {
        let before = code[..at].chars().next_back();
        if before.is_none_or(|c| !(c.is_alphanumeric() || "_:$".contains(c))) {
            unfold(&code[at..], &mut Vec::new(), &mut found);
        }
    }
    found
}

/// Reads one path or tree, and returns what follows.
pub(super) fn unfold<'a>(
    code: &'a str,
    before: &mut Vec<String>,
    found: &mut Vec<Vec<String>>,
) -> &'a str {
    let mut rest = code.trim_start();
    let depth = before.len();
    loop {
        if let Some(mut inside) = rest.strip_prefix('{') {
            loop {
                inside = unfold(inside, before, found).trim_start();
                match inside.strip_prefix(',') {
                    Some(more) if !more.trim_start().starts_with('}') => inside = more,
                    Some(more) => inside = more.trim_start(),
                    None => break,
                }
                if inside.starts_with('}') {
                    break;
                }
            }
            before.truncate(depth);
            return inside.strip_prefix('}').unwrap_or(inside);
        }
        let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let length = length.unwrap_or(rest.len());
        before.push(rest[..length].to_owned());
        match rest[length..].strip_prefix("::") {
            Some(more) => rest = more,
            None => {
                found.push(before.clone());
                before.truncate(depth);
                let rest = &rest[length..];
                // `name as other`
                let other = rest.trim_start().strip_prefix("as ").map(str::trim_start);
                return other.map_or(rest, |other| {
                    let end = other.find(|c: char| !(c.is_alphanumeric() || c == '_'));
                    &other[end.unwrap_or(other.len())..]
                });
            }
        }
    }
}

/// The file that a path of another file leads to, and the name there.
pub(super) fn target(sources: &Sources, file: &str, path: &[String]) -> (String, String) {
    let mut at: Vec<&str> = file.split('/').filter(|part| *part != "lib").collect();
    let mut segments = path.iter().map(String::as_str).peekable();
    if segments.next_if_eq(&"crate").is_some() {
        at.clear();
    }
    while segments.next_if_eq(&"super").is_some() {
        at.pop();
    }
    while let Some(next) = segments.peek() {
        let deeper = [&at[..], &[*next]].concat().join("/");
        if !sources.contains_key(&deeper) {
            break;
        }
        at.extend(segments.next());
    }
    let to = if at.is_empty() {
        "lib".into()
    } else {
        at.join("/")
    };
    let name = segments.next().unwrap_or("(the module)").to_owned();
    (to, name)
}

pub(super) fn arrows(sources: &Sources) -> BTreeSet<Arrow> {
    let mut found = BTreeSet::new();
    for (file, code) in sources {
        for path in paths(code, &["crate::", "super::"]) {
            let (to, name) = target(sources, file, &path);
            // A unit's inner module names its file by `super`.
            if to != *file {
                let from = file.clone();
                found.insert(Arrow { from, to, name });
            }
        }
    }
    found
}

fn floor(file: &str) -> usize {
    let first = file.split('/').next().unwrap_or(file);
    if GROUND.contains(&first) {
        return 0;
    }
    let room = ROOMS.iter().position(|room| *room == first);
    room.map_or(ROOMS.len() + 1, |room| room + 1)
}

fn upward(sources: &Sources) -> BTreeSet<Arrow> {
    let all = arrows(sources).into_iter();
    all.filter(|a| floor(&a.to) > floor(&a.from)).collect()
}

#[test]
fn imports_between_rooms_run_down() {
    let sources = read(Path::new(ENGINE));
    for room in ROOMS {
        assert!(sources.contains_key(room), "the room {room} has no page");
    }
    let up = upward(&sources).into_iter();
    let up: Vec<String> = up
        .map(|a| format!("{} imports {} from {}", a.from, a.name, a.to))
        .collect();
    assert!(
        up.is_empty(),
        "imports run up. Move the name down, or what uses it up:\n{}",
        up.join("\n")
    );
}

#[test]
fn the_shard_and_its_context_are_taught_in_their_room_alone() {
    let (room, types) = SHARD;
    for (file, code) in read(Path::new(ENGINE)) {
        for name in types {
            let teaches = code.contains(&format!("\nimpl {name} {{"));
            let within = file.starts_with(&format!("{room}/"));
            assert!(
                !teaches || within,
                "{file} has an `impl {name}`: give the act to what it acts on"
            );
        }
    }
}

#[test]
fn an_import_that_runs_up_is_found() {
    let text = "//! crate::shard::Comment\nuse crate::{shard::machine::Shard as S, value::{self, a}};\n\
                fn f() { let c = '\\''; let t = \"crate::shard::Text\"; super::super::role::g(c); }\n\
                #[cfg(test)]\nmod tests {\n use crate::shard::Test;\n}\n\
                #[cfg(test)]\npub(super) mod more {\n use crate::role::Test;\n}\n";
    let mut sources: Sources = [
        "value",
        "value/a",
        "role",
        "shard",
        "shard/machine",
        "store",
    ]
    .map(|file| (file.to_owned(), String::new()))
    .into();
    sources.insert("store/b".into(), without_tests(&without_words(text)));
    let found: Vec<(String, String)> = (upward(&sources).into_iter())
        .map(|arrow| (arrow.to, arrow.name))
        .collect();
    let expected = [("role", "g"), ("shard/machine", "Shard")];
    assert_eq!(found, expected.map(|(to, name)| (to.into(), name.into())));
}
