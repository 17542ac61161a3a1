//! Options in a TOML file, and what unknown names of options probably mean.

use super::{ConfigError, Options, files};
use std::collections::BTreeSet;
use std::path::Path;

/// The most bytes of a name that is compared with those that are known.
const NAME_BYTES_MAX: usize = 128;
/// The prefix of Doyen's variables.
const VARIABLES: &str = "DOYEN_";
/// Variables that are not options of a node.
const FURTHER_VARIABLES: [&str; 5] = [
    "DOYEN_CONFIG",
    "DOYEN_SECRET",
    "DOYEN_BENCH_PASSWORD",
    "DOYEN_NODE",
    "DOYEN_ADDRESS",
];

impl Options {
    /// Reads a TOML file. Needs the feature `flags`.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or has a key that is not an option.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        Self::from_text(&files::read(path, "--config")?, &path.display().to_string())
    }

    /// Parses TOML. Errors call the text by this name.
    #[doc(hidden)]
    pub fn from_text(text: &str, name: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|e| {
            let before = e
                .span()
                .and_then(|s| text.get(..s.start))
                .unwrap_or_default();
            let at = before.matches('\n').count();
            let message = e.message().lines().next().unwrap_or_default();
            let message = unknown_key(message).unwrap_or_else(|| {
                // The value may be a secret, so only the key is shown.
                let line = text.lines().nth(at).unwrap_or_default();
                let key = line.split_once('=').map_or("", |(key, _)| key.trim());
                match key {
                    "" => plain_toml(message),
                    key => format!("`{key}`: {}", plain_toml(message)),
                }
            });
            ConfigError(format!("{name} line {}: {message}", at + 1))
        })
    }
}

impl ConfigError {
    /// The same, with the lines of a file that set options which the message names, apart from
    /// options that were given elsewhere ([`Options::given`]).
    #[doc(hidden)]
    #[must_use]
    pub fn in_file(self, path: &Path, elsewhere: &[&str]) -> Self {
        // If the file cannot be read again, the message is as good as it can be.
        let text = files::read(path, "--config").unwrap_or_default();
        let keys = text.lines().enumerate().filter_map(|(at, line)| {
            let key = line.split_once('=')?.0.trim();
            let from_here = !elsewhere.contains(&&*key.replace('-', "_"));
            (from_here && names_flag(&self.0, key)).then_some((at + 1, key))
        });
        let places = keys.map(|(line, key)| format!("`{key}` is in line {line}"));
        match places.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => self,
            places => Self(format!("{} ({}: {places})", self.0, path.display())),
        }
    }
}

/// Whether a message names the flag of this key.
fn names_flag(message: &str, key: &str) -> bool {
    let flag = format!("--{key}");
    let continues = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    let mut found = message.match_indices(&flag);
    key.len() > 1 && found.any(|(at, _)| !continues(&message[at + flag.len()..]))
}

/// A message about a wrong value, without Rust's names of types.
fn plain_toml(message: &str) -> String {
    let quotes = ["invalid basic string", "string values must be quoted"];
    if quotes.iter().any(|begin| message.starts_with(begin)) {
        return "a text stands in quotes: write \"...\"".to_owned();
    }
    if message == "duplicate key" {
        return "this key stands in the file twice: remove one of them".to_owned();
    }
    let Some((found, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number",
        "a sequence" => "a list such as [\"a\", \"b\"]",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        other => other,
    };
    format!("{found}, but {expected} is expected")
}

/// Serde's message about an unknown key, with the nearest key instead of all keys.
fn unknown_key(message: &str) -> Option<String> {
    let mut words = message
        .strip_prefix("unknown field ")?
        .split('`')
        .skip(1)
        .step_by(2);
    let wrong = words.next()?;
    let hint = match nearest(wrong, words) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "the keys are the flags of `doyen run --help`, without the --".into(),
    };
    Some(format!("there is no key `{wrong}`: {hint}"))
}

/// Warnings about variables `DOYEN_*` that no command reads, given the names of all variables.
///
/// ```
/// let names = ["DOYEN_SEED", "DOYEN_MEMORY", "PATH"].map(str::to_owned);
/// let warnings = doyen::config::unread_variables(names.into_iter());
/// assert_eq!(warnings.len(), 1, "DOYEN_MEMORY_MAX was probably meant: {warnings:?}");
/// ```
pub fn unread_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let run = <Options as clap::Args>::augment_args(clap::Command::new("run"));
    let of_flags = run
        .get_arguments()
        .filter_map(|arg| arg.get_env()?.to_str());
    let known: BTreeSet<&str> = of_flags
        .chain(FURTHER_VARIABLES)
        .filter_map(|name| name.strip_prefix(VARIABLES))
        .collect();
    // For a service named `doyen`, Kubernetes and Docker set such variables in every other
    // container.
    let link = |name: &str| {
        let parts = ["_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP"];
        let name = format!("_{name}");
        name.ends_with("_PORT") || parts.iter().any(|part| name.contains(part))
    };
    let mut unread: Vec<String> = names
        .filter_map(|name| name.strip_prefix(VARIABLES).map(str::to_owned))
        .collect();
    unread.retain(|name| !known.contains(name.as_str()) && !link(name));
    unread.sort();
    let said = unread
        .iter()
        .map(|wrong| match nearest(wrong, known.iter().copied()) {
            Some(name) => format!(
                "the variable {VARIABLES}{wrong} has no effect: did you mean \
                               {VARIABLES}{name}?"
            ),
            None => format!(
                "the variable {VARIABLES}{wrong} has no effect: `doyen run --help` lists \
                         the variable of each flag"
            ),
        });
    said.collect()
}

/// The name that was probably meant, if one is near enough.
pub(crate) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // `loglevel` is near `log`, and `password` near `resp-password-file`, however many letters
    // differ.
    let akin = |name: &str| wrong.len() > 2 && (name.contains(wrong) || wrong.starts_with(name));
    let nearest = names
        .map(|name| (if akin(name) { 1 } else { distance(wrong, name) }, name))
        .min();
    nearest
        .filter(|(distance, name)| distance * 2 <= name.len())
        .map(|(_, name)| name)
}

/// How many letters must be added, dropped or changed to turn one text into the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().take(NAME_BYTES_MAX).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            // A key with _ instead of - is nearly right.
            let same = a == *b || (a, *b) == ('_', '-');
            let best = (row[j] + 1)
                .min(row[j + 1] + 1)
                .min(diagonal + usize::from(!same));
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[to.len()]
}
