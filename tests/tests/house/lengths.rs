//! How long functions are, and how large the types of sessions of the front end are.

use super::classes::{FIELDS_MAX, METHODS_MAX, classes, fields};
use super::rooms::{CRATES, ENGINE, crate_root, read, texts};
use std::path::Path;

/// Most lines of a function, with its head.
const LINES_MAX: usize = 120;
/// The files of the engine in which a primary executes operations, and most lines of their
/// functions.
const EXECUTION: [&str; 2] = ["shard/execute.rs", "role/one_key.rs"];
const EXECUTION_LINES_MAX: usize = 80;
/// Functions that are longer still.
const LONG: [(&str, &str); 0] = [];
/// The types that share the work of a session.
const PARTS: [&str; 5] = [
    "Session",
    "Connection",
    "SessionClient",
    "Replies",
    "Charges",
];

/// The name of the function that begins in this line.
fn declared(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(within) = rest.strip_prefix("pub(") {
        rest = within.split_once(") ")?.1;
    }
    for word in ["pub ", "const ", "async "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// The functions of a source that is formatted, each with how many lines it has.
fn functions(source: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = declared(line) else {
            continue;
        };
        let mut heads = lines[at..].iter();
        let head = heads.position(|line| line.ends_with(['{', ';', '}']));
        let head = head.expect("the end of a head");
        let mut length = head + 1;
        if lines[at + head].ends_with('{') {
            let indent = &line[..line.len() - line.trim_start().len()];
            let mut body = lines[at..].iter();
            let end = body.position(|line| line.strip_prefix(indent) == Some("}"));
            length = end.expect("the end of a function") + 1;
        }
        found.push((name, length));
    }
    found
}

#[test]
fn no_function_is_long() {
    let (mut long, mut count, mut left) = (Vec::new(), 0, LONG.to_vec());
    for name in CRATES {
        for (file, text) in texts(&crate_root(name)) {
            let code = text.split("#[cfg(test)]\nmod tests {").next();
            for (function, length) in functions(code.unwrap_or_default()) {
                count += 1;
                let path = format!("{name}/src/{file}.rs");
                let known = left.iter().position(|known| *known == (&*path, function));
                if length > LINES_MAX && known.map(|at| left.remove(at)).is_none() {
                    long.push(format!("{path}: {function} has {length} lines"));
                }
            }
        }
    }
    assert!(count > 5000, "only {count} functions");
    assert!(
        long.is_empty(),
        "more than {LINES_MAX} lines: give each part a name of its own\n{}",
        long.join("\n")
    );
    assert_eq!(left, [], "these are not long any more: strike them");
}

#[test]
fn a_primary_executes_operations_in_short_steps() {
    let mut long = Vec::new();
    for file in EXECUTION {
        let source = std::fs::read_to_string(Path::new(ENGINE).join(file)).expect("a source");
        let functions = functions(&source);
        assert!(functions.len() > 5, "{file} executes nothing any more");
        long.extend(
            (functions.into_iter())
                .filter(|(_, length)| *length > EXECUTION_LINES_MAX)
                .map(|(name, length)| format!("{file}: {name} has {length} lines")),
        );
    }
    assert!(long.is_empty(), "more than {EXECUTION_LINES_MAX}: {long:?}");
}

#[test]
fn a_session_is_made_of_small_parts() {
    let all = classes(&read(&crate_root("node")));
    for part in PARTS {
        let class = all
            .get(part)
            .or_else(|| all.get(&format!("{part} of resp/session/connection")));
        let class = class.expect("a part of a session");
        let (methods, fields) = (class.methods(), fields(&all, class));
        assert!(methods > 5 && fields > 2, "{part} is no part any more");
        assert!(
            methods <= METHODS_MAX && fields <= FIELDS_MAX,
            "{part} has {methods} methods and {fields} fields: at most {METHODS_MAX} and \
             {FIELDS_MAX}; what acts on few of its fields belongs to a type of its own"
        );
    }
}

#[test]
fn functions_are_measured_from_their_head_to_their_end() {
    let body = "        call();\n".repeat(LINES_MAX - 2);
    let source = format!(
        "trait Front end {{\n    fn declared(&self);\n    fn empty() {{}}\n}}\n\nimpl A {{\n    \
         pub(in crate::resp) const fn longest() {{\n{body}    }}\n\n    async fn spread(\n        \
         &self,\n    ) -> u8 {{\n        if a {{\n            1\n        }}\n    }}\n}}\n\n\
         pub fn free<'a>(x: &'a u8) {{\n{body}        more();\n}}\n"
    );
    assert_eq!(
        functions(&source),
        [
            ("declared", 1),
            ("empty", 1),
            ("longest", LINES_MAX),
            ("spread", 7),
            ("free", LINES_MAX + 1)
        ]
    );
}
