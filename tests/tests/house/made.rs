//! Drawings and pages that are made of something else are what it makes of them.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn drawings_are_those_of_their_script() {
    let script = Path::new(ROOT).join("docs/drawings/draw.py");
    let made = Command::new("python3").arg(&script).arg("--check").output();
    let made = made.expect("python3, which makes the drawings: install it");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
}

/// A kind of event, as the enum that declares it says.
#[derive(Debug, PartialEq, Eq)]
struct DeclaredEvent {
    variant: String,
    fields: Vec<String>,
    meaning: String,
}

impl DeclaredEvent {
    /// As serde writes it: `NoRoom` becomes `no_room`.
    fn kind(&self) -> String {
        let mut kind = String::new();
        for letter in self.variant.chars() {
            if letter.is_uppercase() && !kind.is_empty() {
                kind.push('_');
            }
            kind.extend(letter.to_lowercase());
        }
        kind
    }

    /// The severities that the function `severity` gives to this variant.
    fn severities(&self, function: &str) -> Vec<String> {
        let arms: Vec<&str> = function.split("=> Severity::").collect();
        let mut found: Vec<String> = Vec::new();
        for arm in arms.windows(2) {
            let names = arm[0].split(|c: char| !c.is_alphanumeric() && c != ':');
            let is_named = names
                .filter_map(|name| name.strip_prefix("Self::"))
                .any(|name| name == self.variant);
            let severity = arm[1].split(|c: char| !c.is_alphanumeric()).next();
            let severity = severity.unwrap_or_default().to_lowercase();
            if is_named && !found.contains(&severity) {
                found.push(severity);
            }
        }
        found
    }
}

/// The variants of the enum `Event`, in their order.
fn declared_events(source: &str) -> Vec<DeclaredEvent> {
    let (_, body) = source.split_once("pub enum Event {\n").expect("the enum");
    let (body, _) = body.split_once("\n}\n").expect("its end");
    let (mut events, mut meaning) = (Vec::<DeclaredEvent>::new(), String::new());
    for line in body.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if let (4, Some(text)) = (indent, line.strip_prefix("///")) {
            meaning.push_str(text);
        } else if indent == 4 && line.starts_with(char::is_uppercase) {
            let variant = line.trim_end_matches([',', '{', ' ']).to_owned();
            events.push(DeclaredEvent {
                variant,
                fields: Vec::new(),
                meaning: std::mem::take(&mut meaning).trim().to_owned(),
            });
        } else if let (8, Some((name, _)), Some(event)) =
            (indent, line.split_once(": "), events.last_mut())
            && name.chars().all(|c| c.is_lowercase() || c == '_')
        {
            event.fields.push(format!("`{name}`"));
        }
    }
    events
}

/// The rows of `docs/events.md`.
fn table_of_events(source: &str) -> String {
    let (_, function) = source
        .split_once("const fn severity(")
        .expect("the function");
    let (function, _) = function.split_once("\n    }\n").expect("its end");
    let mut table = String::new();
    for event in declared_events(source) {
        let severities = event.severities(function);
        assert!(!severities.is_empty(), "{event:?} has no severity");
        let (kind, severity) = (event.kind(), severities.join(" or "));
        let (fields, meaning) = (event.fields.join(", "), &event.meaning);
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| `{kind}` | {severity} | {fields} | {meaning} |");
    }
    table
}

/// To write the table of the page, run this with `DOYEN_WRITE_PAGES=1`.
#[test]
fn the_page_of_events_is_what_nodes_tell() {
    const HEAD: &str = "|---|---|---|---|\n";
    let read = |path: &str| std::fs::read_to_string(Path::new(ROOT).join(path)).expect("text");
    let wanted = table_of_events(&read("gossip/src/agreement/event.rs"));
    let page = read("docs/events.md");
    let (words, table) = page.split_once(HEAD).expect("the page has a table");
    if std::env::var_os("DOYEN_WRITE_PAGES").is_some() {
        let page = [words, HEAD, &wanted].concat();
        std::fs::write(Path::new(ROOT).join("docs/events.md"), page).expect("it is written");
    } else {
        assert!(
            table == wanted,
            "the table of docs/events.md is outdated: run this test with DOYEN_WRITE_PAGES=1"
        );
    }
}

#[test]
fn events_are_found_with_fields_and_severities() {
    let source = "\
pub enum Event {
    /// A member was
    /// admitted.
    Joined {
        /// Its name.
        #[serde(skip)]
        name: String,
    },
    /// It is full.
    NoRoom,
}
impl Event {
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Joined { name: 1 } | Self::NoRoom => Severity::Error,
            Self::Joined { .. } => Severity::Info,
        }
    }
}
";
    let wanted = "| `joined` | error or info | `name` | A member was admitted. |\n\
                  | `no_room` | error |  | It is full. |\n";
    assert_eq!(table_of_events(source), wanted);
}
