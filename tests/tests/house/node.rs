//! The floors of a node: imports between its rooms run down, as the table in ARCHITECTURE.md says.

use super::rooms::{Arrow, Sources, arrows, read};
use std::collections::BTreeMap;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The section of ARCHITECTURE.md with the table.
const SECTION: &str = "## The floors of a node\n";

/// The floor of each room, from 0 on.
type Floors = BTreeMap<String, usize>;

/// The rooms in the second column of a table, by its rows.
fn floors(page: &str) -> Floors {
    let (_, section) = page.split_once(SECTION).expect("a section with the floors");
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut floors = Floors::new();
    for (floor, row) in rows.enumerate() {
        let rooms = row.split('|').nth(2).expect("a column with the rooms");
        for room in rooms.split_whitespace() {
            let again = floors.insert(room.trim_matches('`').to_owned(), floor);
            assert!(again.is_none(), "{room} is on two floors");
        }
    }
    floors
}

fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or(file)
}

/// Imports from one room into another that is not below it.
fn upward(sources: &Sources, floors: &Floors) -> Vec<Arrow> {
    let all = arrows(sources).into_iter();
    let is_down = |a: &Arrow| floors[room(&a.to)] < floors[room(&a.from)];
    all.filter(|a| room(&a.to) != room(&a.from) && !is_down(a))
        .collect()
}

fn of_the_page() -> Floors {
    let page = Path::new(ROOT).join("ARCHITECTURE.md");
    floors(&std::fs::read_to_string(page).expect("a page"))
}

#[test]
fn each_room_of_a_node_has_a_floor() {
    let (sources, floors) = (read(&Path::new(ROOT).join("node/src")), of_the_page());
    for file in sources.keys() {
        let room = room(file);
        assert!(
            floors.contains_key(room),
            "give {room} a floor in ARCHITECTURE.md"
        );
    }
    for room in floors.keys() {
        assert!(sources.contains_key(room), "{room} has a floor and no file");
    }
}

#[test]
fn imports_between_the_rooms_of_a_node_run_down() {
    let sources = read(&Path::new(ROOT).join("node/src"));
    let up = upward(&sources, &of_the_page()).into_iter();
    let up: Vec<String> = up
        .map(|a| format!("{} imports {} from {}", a.from, a.name, a.to))
        .collect();
    assert!(
        up.is_empty(),
        "imports do not run down. Move the name down, or what uses it up:\n{}",
        up.join("\n")
    );
}

#[test]
fn an_import_of_a_node_that_does_not_run_down_is_found() {
    let page = format!(
        "# A\n| a |\n{SECTION}text\n| floor | rooms |\n|---|---|\n| low | `a` `b` |\n\
         | high | `c` |\n| crate | `lib` |\n\n## Next\n| x | `y` |\n|---|---|\n| z | `z` |\n"
    );
    let floors = floors(&page);
    assert_eq!(floors.len(), 4, "{floors:?}");
    let sources = Sources::from([
        ("a".into(), "use crate::b::Beside;".into()),
        (
            "a/within".into(),
            "use super::Own; use crate::a::Other;".into(),
        ),
        (
            "b".into(),
            "use crate::c::deep::Up; use crate::Root;".into(),
        ),
        ("c".into(), "use crate::a::Down;".into()),
        ("c/deep".into(), "use crate::b::{self, Down};".into()),
        ("lib".into(), "pub use c::Down;".into()),
    ]);
    let up = upward(&sources, &floors).into_iter();
    let up: Vec<String> = up
        .map(|a| format!("{} {} {}", a.from, a.to, a.name))
        .collect();
    assert_eq!(up, ["a b Beside", "b c/deep Up", "b lib Root"]);
}
