//! The texts of errors, as Redis words them.

use super::Arguments;
use std::borrow::Cow;

/// An error reply without its `-`: a code word, a blank, a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorText(pub Cow<'static, str>);

impl ErrorText {
    /// A text that is always the same.
    pub(super) const fn fixed(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<&'static str> for ErrorText {
    fn from(text: &'static str) -> Self {
        Self::fixed(text)
    }
}

impl From<String> for ErrorText {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

/// The options of a command contradict each other, or one of them is unknown.
pub const SYNTAX: &str = "ERR syntax error";
/// An argument or a stored value is no 64-bit integer.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// An argument or a stored value is no number.
pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";

/// How many bytes of a caller's words are shown.
const SHOWN_BYTES: usize = 128;

/// A command does not take this number of arguments.
#[must_use]
pub fn wrong_arity(name: &str) -> ErrorText {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// There is no such command.
pub(super) fn unknown_command(args: &dyn Arguments) -> ErrorText {
    // Redis shows `SHOWN_BYTES` of the name, and as many of the arguments together.
    let mut list = String::new();
    for at in 1..args.len() {
        if list.len() >= SHOWN_BYTES {
            break;
        }
        list += &format!("'{}' ", shown(args.get(at), SHOWN_BYTES - list.len()));
    }
    format!(
        "ERR unknown command '{}', with args beginning with: {list}",
        shown(args.get(0), SHOWN_BYTES)
    )
    .into()
}

/// A container has no such subcommand.
#[must_use]
pub fn unknown_subcommand(container: &str, args: &dyn Arguments) -> ErrorText {
    format!(
        "ERR unknown subcommand '{}'. Try {} HELP.",
        shown(args.get(1), SHOWN_BYTES),
        container.to_uppercase()
    )
    .into()
}

/// A subcommand does not take these arguments.
pub(super) fn wrong_subcommand(args: &dyn Arguments) -> ErrorText {
    format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try {} HELP.",
        shown(args.get(1), SHOWN_BYTES),
        shown(args.get(0), SHOWN_BYTES).to_uppercase()
    )
    .into()
}

fn shown(bytes: &[u8], bytes_max: usize) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(bytes_max)]).into_owned()
}
