//! How large the types of a crate are: their methods, and their fields; and whether their names are
//! theirs alone.
//!
//! What acts on a type counts as a method of it: a function that takes `&mut` of it, and what a
//! trait of the crate adds. A field counts as its fields if its type is only a bag: a struct of one
//! owner that is declared beside it or has no methods. If types share a name, code counts for the
//! nearest one.

use super::rooms::{CRATES, ENGINE, Sources, closing, crate_root, read};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(super) const METHODS_MAX: usize = 60;
pub(super) const FIELDS_MAX: usize = 25;
/// The types of the shard, and the files that may teach them.
const SHARD: [&str; 2] = ["Shard", "ShardContext"];
const SHARD_FILES_MAX: usize = 8;
/// Crates in which types still share names, and how many names. No number may rise.
/// `node` has the `Cache` of a facade that is named as in another crate.
const SHARED: [(&str, usize); 1] = [("node", 1)];

#[derive(Debug, Default)]
pub(super) struct Class {
    /// The file that declares it.
    file: Option<String>,
    /// The types of its fields. Bare names only: others are empty.
    fields: Vec<String>,
    /// Its methods, by the files that have them.
    methods: BTreeMap<String, usize>,
    /// Its methods, without those of traits and functions.
    own: usize,
}

impl Class {
    /// How many methods it has.
    pub(super) fn methods(&self) -> usize {
        self.methods.values().sum()
    }
}

/// The items of a file or of a block: what stands before the brackets, and what is in them.
fn items(code: &str) -> Vec<(&str, &str)> {
    let (mut found, mut begin, mut depth, mut at) = (Vec::new(), 0, 0_usize, 0);
    while let Some(next) = code[at..].find(|c| "([{;)]".contains(c)) {
        let here = at + next;
        at = here + 1;
        match code.as_bytes()[here] {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b';' if depth == 0 => {
                found.push((code[begin..here].trim(), ""));
                begin = at;
            }
            b'{' if depth == 0 => {
                let end = here + closing(&code[here..]);
                found.push((code[begin..here].trim(), &code[here + 1..end]));
                (begin, at) = (end + 1, end + 1);
            }
            _ => {}
        }
    }
    found
}

/// The same without attributes and visibility.
fn bare(head: &str) -> &str {
    let mut rest = head.trim_start();
    loop {
        let after = if rest.starts_with("#[") {
            let ends = rest.char_indices().scan(0, |depth, (at, c)| {
                *depth += i32::from(c == '[') - i32::from(c == ']');
                Some((at, c == ']' && *depth == 0))
            });
            let end = ends.filter(|(_, ends)| *ends).map(|(at, _)| at).next();
            end.map(|at| &rest[at + 1..])
        } else if let Some(within) = rest.strip_prefix("pub(") {
            within.split_once(')').map(|(_, after)| after)
        } else {
            ["pub ", "const ", "unsafe ", "async "]
                .iter()
                .find_map(|word| rest.strip_prefix(word))
        };
        match after {
            Some(after) => rest = after.trim_start(),
            None => return rest,
        }
    }
}

/// The name that a type begins with, without its path.
fn name(of: &str) -> &str {
    let of = of.trim_start().trim_start_matches('&');
    let of = of.strip_prefix("dyn ").unwrap_or(of);
    let end = of.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
    let path = &of[..end.unwrap_or(of.len())];
    path.rsplit("::").next().unwrap_or(path)
}

/// What follows generic parameters, if there are any.
fn after_generics(head: &str) -> &str {
    if !head.starts_with('<') {
        return head;
    }
    let mut depth = 0;
    let end = head.char_indices().find(|(at, c)| {
        let arrow = head[..*at].ends_with('-');
        depth += i32::from(*c == '<') - i32::from(*c == '>' && !arrow);
        depth == 0
    });
    end.map_or("", |(at, _)| &head[at + 1..])
}

/// The parts between commas that are in no brackets.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0_i32, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if list[..at].ends_with('-') => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                found.push(list[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(list[begin..].trim());
    found.retain(|part| !part.is_empty());
    found
}

/// The types that a function takes by `&mut`.
fn changed(head: &str) -> BTreeSet<&str> {
    let borrowed = head.match_indices('&').filter_map(|(at, _)| {
        let rest = &head[at + 1..];
        let rest = match rest.strip_prefix('\'') {
            Some(lifetime) => lifetime.split_once(' ')?.1,
            None => rest,
        };
        rest.strip_prefix("mut ").map(name)
    });
    borrowed.collect()
}

/// The types that a crate declares, each with its files.
pub(super) fn declared(sources: &Sources) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, code) in sources {
        for (head, _) in items(code) {
            let words = ["struct ", "enum ", "trait ", "type ", "union "];
            let mut words = words.into_iter();
            if let Some(declared) = words.find_map(|word| bare(head).strip_prefix(word)) {
                all.entry(name(declared)).or_default().insert(file);
            }
        }
    }
    all
}

/// The type that a file means by a name: if several types have it, the nearest one.
fn meant(declared: &BTreeMap<&str, BTreeSet<&str>>, name: &str, file: &str) -> String {
    let files = declared.get(name).filter(|files| files.len() > 1);
    let Some(files) = files else {
        return name.to_owned();
    };
    let common = |of: &&&str| {
        let parts = of.split('/').zip(file.split('/'));
        let common = parts.take_while(|(one, other)| one == other).count();
        (**of == file, common)
    };
    let nearest = files.iter().max_by_key(common).expect("a file");
    format!("{name} of {nearest}")
}

pub(super) fn classes(sources: &Sources) -> BTreeMap<String, Class> {
    let mut all: BTreeMap<String, Class> = BTreeMap::new();
    let declared = declared(sources);
    let traits: BTreeSet<&str> = (sources.values().flat_map(|code| items(code)))
        .filter_map(|(head, _)| bare(head).strip_prefix("trait ").map(name))
        .collect();
    for (file, code) in sources {
        let meant = |name: &str| meant(&declared, name, file);
        for (head, body) in items(code) {
            let head = bare(head);
            if let Some(declared) = head.strip_prefix("struct ") {
                let class = all.entry(meant(name(declared))).or_default();
                class.file = Some(file.clone());
                for field in parts(body) {
                    let (_, of) = bare(field).split_once(':').unwrap_or_default();
                    let of = of.trim();
                    let is_bare = of.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
                    let of = if is_bare { name(of) } else { "" };
                    class.fields.push(meant(of));
                }
            } else if let Some(taught) = head.strip_prefix("impl") {
                let taught = after_generics(taught);
                let (of, own) = match taught.split_once(" for ") {
                    Some((added, _)) if !traits.contains(name(added)) => continue,
                    Some((_, of)) => (of, false),
                    None => (taught, true),
                };
                let methods = items(body).into_iter();
                let methods = methods.filter(|(head, _)| bare(head).starts_with("fn "));
                let count = methods.count();
                let class = all.entry(meant(name(of))).or_default();
                *class.methods.entry(file.clone()).or_default() += count;
                class.own += if own { count } else { 0 };
            } else if let Some(function) = head.strip_prefix("fn ") {
                for of in changed(function) {
                    let class = all.entry(meant(of)).or_default();
                    *class.methods.entry(file.clone()).or_default() += 1;
                }
            }
        }
    }
    all
}

/// How many fields a type has, with those of its bags.
pub(super) fn fields(all: &BTreeMap<String, Class>, class: &Class) -> usize {
    let owners = |of: &str| {
        let fields = all.values().flat_map(|class| &class.fields);
        fields.filter(|field| *field == of).count()
    };
    let of = class.fields.iter().map(|of| match all.get(of) {
        Some(bag)
            if owners(of) == 1
                && !bag.fields.is_empty()
                && !bag.fields.contains(of)
                && (bag.own == 0 || bag.file == class.file) =>
        {
            fields(all, bag)
        }
        _ => 1,
    });
    of.sum()
}

fn too_large(sources: &Sources) -> Vec<String> {
    let all = classes(sources);
    let declared = all.iter().filter(|(_, class)| class.file.is_some());
    let sizes = declared.map(|(name, class)| (name, class.methods(), fields(&all, class)));
    sizes
        .filter(|(_, methods, fields)| *methods > METHODS_MAX || *fields > FIELDS_MAX)
        .map(|(name, methods, fields)| format!("{name}: {methods} methods, {fields} fields"))
        .collect()
}

/// The names that several types of a crate share, with their files.
fn shared(sources: &Sources) -> Vec<String> {
    let declared = declared(sources).into_iter();
    declared
        .filter(|(_, files)| files.len() > 1)
        .map(|(name, files)| format!("{name}: {files:?}"))
        .collect()
}

#[test]
fn no_type_has_many_methods_or_fields() {
    for name in CRATES {
        let found = too_large(&read(&crate_root(name)));
        assert!(
            found.is_empty(),
            "{name}: more than {METHODS_MAX} methods or {FIELDS_MAX} fields. Give what belongs \
             together a type of its own:\n{}",
            found.join("\n")
        );
    }
}

#[test]
fn names_of_types_are_unique_in_their_crate() {
    for name in CRATES {
        let found = shared(&read(&crate_root(name)));
        let limit = SHARED.iter().find(|(of, _)| *of == name);
        let limit = limit.map_or(0, |(_, limit)| *limit);
        assert!(
            found.len() <= limit,
            "{name}: more than {limit} names of types are shared. Say what each of them is a place, a \
             step or a state of:\n{}",
            found.join("\n")
        );
        assert!(
            found.len() == limit,
            "{name}: {} names are shared: lower the limit",
            found.len()
        );
    }
}

#[test]
fn the_shard_and_its_context_are_taught_in_few_files() {
    let all = classes(&read(Path::new(ENGINE)));
    for name in SHARD {
        let files: Vec<&str> = all[name].methods.keys().map(|file| &**file).collect();
        assert!(!files.is_empty(), "{name} has no methods");
        assert!(
            files.len() <= SHARD_FILES_MAX,
            "{name} is taught in {files:?}"
        );
    }
}

#[test]
fn names_of_files_are_unique() {
    let sources = read(Path::new(ENGINE));
    let mut seen = BTreeMap::new();
    for file in sources.keys() {
        let name = file.rsplit('/').next().unwrap_or(file);
        let other = seen.insert(name, file);
        assert_eq!(other, None, "{file} has the name of another file");
    }
}

#[test]
fn a_type_that_is_too_large_is_found() {
    let methods: String = (0..58)
        .map(|n| format!("#[inline]\npub(crate) fn m{n}(&self) {{}}\n"))
        .collect();
    let mut sources: Sources = [
        ("a", format!("pub(crate) struct A<'a> {{ pub(crate) b: Bag, c: Option<C>, d: fn(u8, u8) -> u8 }}\n\
                       struct Bag {{ x: [u8; 4], y: u8 }}\nimpl<'a> A<'a> {{\n{methods}}}\n")),
        ("b", "trait More { fn more(&mut self); }\nimpl More for a::A<'_> { fn more(&mut self) {} }\n\
               impl Debug for A<'_> { fn fmt(&self) {} }\nstruct C(u8);\n".into()),
        ("c", "fn act(a: &mut A, x: [u8; 2], c: &'a mut C) {}\n".into()),
    ]
    .map(|(file, code)| (file.to_owned(), code))
    .into();
    assert!(too_large(&sources).is_empty(), "60 methods");
    let all = classes(&sources);
    assert_eq!(all["A"].methods.values().sum::<usize>(), METHODS_MAX);
    assert_eq!(fields(&all, &all["A"]), 4);
    sources.insert(
        "d".into(),
        "const fn more(b: u8, a: &mut crate::a::A<'_>) {}".into(),
    );
    assert_eq!(too_large(&sources), ["A: 61 methods, 4 fields"]);
    let many: String = (0..25)
        .map(|n| format!("pub(crate) f{n}: BTreeMap<u8, u8>,"))
        .collect();
    sources.insert("d".into(), format!("struct D {{ {many} }}"));
    assert!(too_large(&sources).is_empty(), "25 fields");
    sources.insert(
        "d".into(),
        format!("struct D {{ {many} #[cfg(x)] e: e::E }}"),
    );
    sources.insert("e".into(), "struct E { a: u8, b: u8 }".into());
    assert_eq!(too_large(&sources), ["D: 0 methods, 27 fields"]);
}

#[test]
fn a_name_that_types_share_is_found() {
    let sources: Sources = [
        ("a", "struct Place; fn act(p: &mut Place) {}"),
        ("b", "pub enum Place<T> { One(T) }"),
        (
            "b/deep",
            "fn act(p: &mut Place<u8>) {}\nstruct Own { place: Place }",
        ),
        ("c", "use super::Place; type Own2 = u8;"),
    ]
    .map(|(file, code)| (file.to_owned(), code.to_owned()))
    .into();
    assert_eq!(shared(&sources), ["Place: {\"a\", \"b\"}"]);
    let all = classes(&sources);
    assert_eq!(all["Own"].fields, ["Place of b"]);
    assert_eq!(all["Place of a"].methods["a"], 1);
    assert_eq!(all["Place of b"].methods["b/deep"], 1);
}
