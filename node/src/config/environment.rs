//! Options from the environment: `DOYEN_SEED`, `DOYEN_MEMORY_MAX` and so on. The command line reads
//! the same variables with clap; a program that embeds a node needs no clap for them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

/// What a variable may hold.
pub(super) trait Variable: Sized {
    /// # Errors
    /// What is wrong with the text.
    fn read(text: OsString) -> Result<Self, String>;
}

/// The text of a variable.
fn text(from: OsString) -> Result<String, String> {
    from.into_string()
        .map_err(|from| format!("`{}` is not UTF-8", from.display()))
}

impl Variable for PathBuf {
    fn read(text: OsString) -> Result<Self, String> {
        Ok(text.into())
    }
}

impl Variable for String {
    fn read(from: OsString) -> Result<Self, String> {
        text(from)
    }
}

impl Variable for Vec<String> {
    fn read(from: OsString) -> Result<Self, String> {
        let parts = text(from)?;
        Ok(parts
            .split(',')
            .map(|part| part.trim().to_owned())
            .collect())
    }
}

impl Variable for Vec<u8> {
    fn read(from: OsString) -> Result<Self, String> {
        use std::os::unix::ffi::OsStringExt;
        Ok(from.into_vec())
    }
}

impl Variable for bool {
    fn read(from: OsString) -> Result<Self, String> {
        match text(from)?.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(format!("`{other}` is neither true nor false")),
        }
    }
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl Variable for $kind {
            fn read(from: OsString) -> Result<Self, String> {
                let text = text(from)?;
                text.trim().parse().map_err(|_| {
                    format!("`{text}` is not a number from {} to {}", <$kind>::MIN, <$kind>::MAX)
                })
            }
        }
    )*};
}

numbers!(u8, u16, u32);

macro_rules! values {
    ($($kind:ty),*) => {$(
        impl Variable for $kind {
            fn read(from: OsString) -> Result<Self, String> {
                <$kind>::from_str(&text(from)?).map_err(|why| why.to_string())
            }
        }
    )*};
}

values!(
    super::value::AssignmentName,
    doyen_placement::Durability,
    super::value::EvictionPolicy,
    super::value::KeyEvents,
    super::value::LogFormat,
    super::value::TlsMin,
    super::value::LossPolicy,
    super::value::Preset,
    super::value::Size,
    super::value::DurationOption,
    super::value::Toggle
);
