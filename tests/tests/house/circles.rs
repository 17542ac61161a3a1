//! Circles of imports within a room of the engine: a file that needs another one, which needs it.

use super::rooms::{ENGINE, ROOMS, Sources, paths, read, target, unfold};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Files that may need each other.
const CIRCLE_FILES_MAX: usize = 12;

/// What each file names of others. A name that a page only passes on is that of its own file.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The paths that a file passes on with `pub use`, by their last name.
fn passed_on(code: &str) -> BTreeMap<String, Vec<String>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rfind('\n').map_or(0, |end| end + 1);
        if code[line..at].trim_start().starts_with("pub") {
            unfold(&code[at + 4..], &mut Vec::new(), &mut found);
        }
    }
    let named = found.into_iter();
    named
        .filter_map(|path| Some((path.last()?.clone(), path)))
        .collect()
}

/// The file that has what a file names by this path.
fn defining(sources: &Sources, file: &str, path: &[String]) -> String {
    let (mut to, mut name) = target(sources, file, path);
    // A page may pass on what another page passes on.
    for _ in 0..4 {
        let on = sources.get(&to).map(|code| passed_on(code));
        let Some(path) = on.and_then(|mut on| on.remove(&name)) else {
            break;
        };
        (to, name) = target(sources, &to, &path);
    }
    to
}

fn imports(sources: &Sources) -> Imports {
    let mut all = Imports::new();
    for (file, code) in sources {
        let mut named = paths(code, &["crate::", "super::"]);
        // Its own modules, by their names.
        let within = format!("{file}/");
        let children = sources.keys().filter_map(|f| f.strip_prefix(&within));
        for child in children.filter(|child| !child.contains('/')) {
            named.extend(paths(code, &[&format!("{child}::")]));
        }
        let found = named.iter().map(|path| defining(sources, file, path));
        let others = found.filter(|to| to != file).collect();
        all.insert(file.clone(), others);
    }
    all
}

/// The files that a file needs, also by way of others.
fn needs<'a>(imports: &'a Imports, file: &'a str) -> BTreeSet<&'a str> {
    let (mut found, mut next) = (BTreeSet::new(), vec![file]);
    while let Some(file) = next.pop() {
        for to in imports.get(file).into_iter().flatten() {
            if found.insert(&**to) {
                next.push(to);
            }
        }
    }
    found
}

/// The largest circle among the files of a room.
fn largest_circle(imports: &Imports, room: &str) -> Vec<String> {
    let is_here = |file: &str| file.split('/').next() == Some(room);
    let mut here = imports.clone();
    here.retain(|file, _| is_here(file));
    here.values_mut()
        .for_each(|named| named.retain(|to| is_here(to)));
    let all: BTreeMap<&str, BTreeSet<&str>> = here
        .keys()
        .map(|file| (&**file, needs(&here, file)))
        .collect();
    let circles = all.iter().map(|(file, needed)| {
        let back = needed.iter().filter(|to| all[*to].contains(file));
        back.map(|to| (*to).to_owned()).collect()
    });
    circles.max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn no_circle_within_a_room_is_large() {
    let imports = imports(&read(Path::new(ENGINE)));
    for room in ROOMS {
        let circle = largest_circle(&imports, room);
        assert!(
            circle.len() <= CIRCLE_FILES_MAX,
            "{} files of {room} need each other. Move what several need to a file below them:\n{}",
            circle.len(),
            circle.join("\n")
        );
    }
}

#[test]
fn a_circle_is_found_also_by_way_of_pages() {
    let sources: Sources = [
        ("role", "pub mod a;\npub(crate) use a::{A, deep::Deep};\n"),
        (
            "role/a",
            "mod deep;\npub(crate) struct A;\npub(crate) use deep::Deep;\n",
        ),
        (
            "role/a/deep",
            "use crate::role::b;\npub(crate) struct Deep;",
        ),
        ("role/b", "fn b() { crate::role::Deep }"),
        ("role/c", "use super::A;\n"),
        ("role/d", "use crate::shard::Shard;\n"),
        ("shard", "use crate::role::d::D;"),
    ]
    .map(|(file, code)| (file.to_owned(), code.to_owned()))
    .into();
    let imports = imports(&sources);
    assert_eq!(largest_circle(&imports, "role"), ["role/a/deep", "role/b"]);
    assert_eq!(imports["role/c"], BTreeSet::from(["role/a".to_owned()]));
    assert!(largest_circle(&imports, "shard").is_empty());
}
