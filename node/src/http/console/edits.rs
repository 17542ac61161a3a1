//! Changes of single keys, for people: a string is replaced, a key gets another lifetime, or is
//! deleted. They need the operators' token, and are audited without the key.
//!
//! Entries of maps are not changed here: only their programs know what the bytes mean, and keep
//! copies of them.

use super::super::HttpState;
use super::super::failure::{HttpAnswer, HttpFailure};
use super::super::reports::table_of;
use super::super::row::ChangeBody;
use super::keys::{BrowsedKey, absent};
use super::locate::{key_of, place_of};
use crate::config::value::Lifetime;
use crate::error::Error;
use doyen_engine::browse;
use doyen_engine::op::{Action, Condition, ExpireCondition, Expiry, Kind, Outcome};
use serde::{Deserialize, Serialize};

/// A string to write. A key is text, or any bytes in base64; the same of its value.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct WrittenKey {
    /// Its keyspace; without one, the first.
    keyspace: Option<String>,
    /// Its database.
    #[serde(default)]
    database: u32,
    /// The key, as text.
    key: Option<String>,
    /// The key.
    #[serde(rename = "key-base64")]
    key_base64: Option<String>,
    /// The value, as text.
    value: Option<String>,
    /// The value.
    #[serde(rename = "value-base64")]
    value_base64: Option<String>,
}

/// Another lifetime of a key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct KeyLifetime {
    /// Its keyspace; without one, the first.
    keyspace: Option<String>,
    /// Its database.
    #[serde(default)]
    database: u32,
    /// The key, as text.
    key: Option<String>,
    /// The key.
    #[serde(rename = "key-base64")]
    key_base64: Option<String>,
    /// A time with its unit, or `none`.
    ttl: String,
}

/// A key to delete.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct DeletedKey {
    /// Its keyspace; without one, the first.
    keyspace: Option<String>,
    /// Its database.
    #[serde(default)]
    database: u32,
    /// The key, as text.
    key: Option<String>,
    /// The key.
    #[serde(rename = "key-base64")]
    key_base64: Option<String>,
}

/// What the audit log says of a change of a key: never the key.
fn database_of(keyspace: Option<&str>, database: u32) -> String {
    match keyspace {
        Some(keyspace) => format!("in {keyspace}/{database}"),
        None => format!("in database {database}"),
    }
}

/// Largest body with a value. JSON may write each of its bytes as several.
const VALUE_BYTES_MAX: usize = 8 << 20;

impl ChangeBody for WrittenKey {
    const EXAMPLE: &'static str =
        r#"{"keyspace": "default", "database": 0, "key": "KEY", "value": "TEXT"}"#;
    const BYTES_MAX: usize = VALUE_BYTES_MAX;

    fn summary(&self, _: &[u8]) -> String {
        database_of(self.keyspace.as_deref(), self.database)
    }
}

impl ChangeBody for KeyLifetime {
    const EXAMPLE: &'static str =
        r#"{"keyspace": "default", "database": 0, "key": "KEY", "ttl": "30m"}"#;
    const BYTES_MAX: usize = KEY_BYTES_MAX;

    fn summary(&self, _: &[u8]) -> String {
        database_of(self.keyspace.as_deref(), self.database)
    }
}

impl ChangeBody for DeletedKey {
    const EXAMPLE: &'static str = r#"{"keyspace": "default", "database": 0, "key": "KEY"}"#;
    const BYTES_MAX: usize = KEY_BYTES_MAX;

    fn summary(&self, _: &[u8]) -> String {
        database_of(self.keyspace.as_deref(), self.database)
    }
}

/// Largest body with a key of 64 KiB.
const KEY_BYTES_MAX: usize = 512 << 10;

/// A key in a database, which may be changed here.
fn writable<'a>(
    state: &'a HttpState,
    keyspace: Option<&str>,
    database: u32,
    key: Vec<u8>,
) -> HttpAnswer<BrowsedKey<'a>> {
    let table = table_of(state)?;
    let (keyspace, map) = place_of(&table, keyspace, (None, Some(database)))?;
    Ok(BrowsedKey {
        state,
        keyspace: keyspace.id,
        map,
        key: key.into(),
    })
}

/// Replaces a string. Its deadline stays.
pub(in super::super) async fn write(state: &HttpState, wanted: WrittenKey) -> HttpAnswer<bool> {
    let key = key_of(wanted.key, wanted.key_base64.as_deref())?;
    let value = key_of(wanted.value, wanted.value_base64.as_deref()).map_err(|_| {
        HttpFailure::bad_request("give the value once: `value` if it is text, else `value-base64`")
    })?;
    let at = writable(state, wanted.keyspace.as_deref(), wanted.database, key)?;
    let kind = browse::kind_of(&at.ask(Action::Encoding).await?);
    if kind.ok_or_else(absent)? != Kind::String {
        return Err(Error::WrongType.into());
    }
    let write = Action::Set {
        value: value.into(),
        condition: Condition::IfPresent,
        expiry: Expiry::Keep,
        get: false,
    };
    match at.change(write).await? {
        Outcome::Nil => Err(absent()),
        _ => Ok(true),
    }
}

/// Gives a key another lifetime, or none.
pub(in super::super) async fn expire(state: &HttpState, wanted: KeyLifetime) -> HttpAnswer<bool> {
    let key = key_of(wanted.key, wanted.key_base64.as_deref())?;
    let at = writable(state, wanted.keyspace.as_deref(), wanted.database, key)?;
    let ttl = wanted.ttl.parse::<Lifetime>();
    let ttl = ttl.map_err(HttpFailure::bad_request)?;
    let change = match ttl.millis() {
        Some(ms) => Action::Expire {
            expiry: Expiry::In(i64::try_from(ms).unwrap_or(i64::MAX)),
            condition: ExpireCondition::Always,
        },
        None => Action::Persist,
    };
    let exists = at.ask(Action::Exists).await?;
    match (at.change(change).await?, exists) {
        // A key without a deadline loses none.
        (Outcome::Int(0), Outcome::Int(1)) if ttl.millis().is_none() => Ok(true),
        (Outcome::Int(0), _) => Err(absent()),
        _ => Ok(true),
    }
}

/// Deletes a key.
pub(in super::super) async fn delete(state: &HttpState, wanted: DeletedKey) -> HttpAnswer<bool> {
    let key = key_of(wanted.key, wanted.key_base64.as_deref())?;
    let at = writable(state, wanted.keyspace.as_deref(), wanted.database, key)?;
    match at.change(Action::Delete).await? {
        Outcome::Int(0) => Err(absent()),
        _ => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::row::parse;

    #[test]
    fn the_audit_log_says_where_a_key_is_and_never_the_key() {
        let body = br#"{"keyspace": "default", "database": 3, "key": "k", "value": "secret"}"#;
        let written: WrittenKey = parse(body).expect("it is read");
        assert_eq!(written.summary(body), "in default/3");
        let body = br#"{"key-base64": "/w==", "ttl": "30m"}"#;
        let lifetime: KeyLifetime = parse(body).expect("it is read");
        assert_eq!(lifetime.summary(body), "in database 0");
        let deleted = parse::<DeletedKey>(br#"{"key": "k", "map": "m"}"#);
        assert!(deleted.is_err(), "entries of maps are not changed here");
    }
}
