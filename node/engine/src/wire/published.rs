//! Tables as they are sent to clients: the changes since the client's table, or the whole table.
//!
//! A client is no member, so it may speak less than the level of the cluster. It is sent each table
//! at the level that it speaks, where the table has another name ([`Table::at_level`]).

use super::api::Malformed;
use bytes::Bytes;
use doyen_placement::codec;
use doyen_placement::{DeltaError, Table, TableDelta, TableName};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of former tables since which changes are known. A client that has missed more is sent the
/// whole table.
const FORMER_MAX: usize = 8;

/// What is sent to a client. It is read as [`Received`].
#[derive(Serialize)]
enum PublishedFrame<'a> {
    Whole(&'a Table),
    News(Box<TableDelta>),
}

#[derive(Deserialize)]
enum Received {
    Whole(Box<Table>),
    News(Box<TableDelta>),
}

/// The last tables, and the last answer.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// The last one is installed. With their names, because computing a name takes reading the
    /// whole table.
    recent: VecDeque<(TableName, Arc<Table>)>,
    /// The same tables for clients that speak less than their level, if such a client has asked.
    lower: VecDeque<(TableName, Arc<Table>)>,
    /// The last answer, and between which two tables it is.
    encoded: Option<(Option<TableName>, TableName, Bytes)>,
}

impl Published {
    /// Another table is installed. Former ones are kept while clients may have them.
    pub(crate) fn install(&mut self, name: TableName, table: &Arc<Table>, keeps: bool) {
        if self.recent.back().is_some_and(|(last, _)| *last == name) {
            return;
        }
        self.encoded = None;
        if !keeps {
            self.recent.clear();
            self.lower.clear();
        }
        self.recent.push_back((name, table.clone()));
        if self.recent.len() > FORMER_MAX + 1 {
            self.recent.pop_front();
        }
    }

    /// The tables for clients that speak no more than this level. There are two levels, so all
    /// clients that speak less than the table speak the same.
    fn shown(&mut self, level: u16) -> &VecDeque<(TableName, Arc<Table>)> {
        if self
            .recent
            .back()
            .is_none_or(|(_, table)| table.level <= level)
        {
            return &self.recent;
        }
        let former = std::mem::take(&mut self.lower);
        self.lower = self
            .recent
            .iter()
            .map(|(name, table)| {
                let known = former
                    .iter()
                    .find(|(known, _)| known.order() == name.order());
                known.cloned().unwrap_or_else(|| {
                    let shown = table.at_level(level);
                    (shown.name(), Arc::new(shown))
                })
            })
            .collect();
        &self.lower
    }

    /// The name of the installed table for a client that speaks no more than this level.
    pub(crate) fn name(&mut self, level: u16) -> Option<TableName> {
        self.shown(level).back().map(|(name, _)| *name)
    }

    /// The table since which a client with this one is sent the changes. `None`: it is sent the
    /// whole table.
    pub(crate) fn base(&mut self, have: Option<TableName>, level: u16) -> Option<TableName> {
        self.shown(level)
            .iter()
            .rev()
            .skip(1)
            .map(|(former, _)| *former)
            .find(|former| Some(*former) == have)
    }

    /// The installed table as changes since this one. `None`: there is no table, or it is above the
    /// size limit.
    pub(crate) fn encoded(&mut self, base: Option<TableName>, level: u16) -> Option<Bytes> {
        let encoded = self.encoded.take();
        let shown = self.shown(level);
        let (name, table) = shown.back()?;
        let base = shown.iter().find(|(former, _)| Some(*former) == base);
        let since = base.map(|(base, _)| *base);
        if let Some((known, of, bytes)) = encoded
            && (known, of) == (since, *name)
        {
            self.encoded = Some((known, of, bytes.clone()));
            return Some(bytes);
        }
        let name = *name;
        let sent = base.map_or_else(
            || PublishedFrame::Whole(table),
            |(_, base)| PublishedFrame::News(Box::new(TableDelta::between(base, table))),
        );
        let bytes: Bytes = codec::encode(&sent, codec::BYTES_MAX).ok()?.into();
        self.encoded = Some((since, name, bytes.clone()));
        Some(bytes)
    }
}

/// Decodes the table that a member sent under this name to a client with this table. `None` if it
/// is the changes since another table: a late answer.
pub(crate) fn read(
    bytes: &[u8],
    name: TableName,
    own: Option<&Table>,
) -> Result<Option<Table>, Malformed> {
    let table = match codec::decode(bytes, codec::BYTES_MAX)
        .map_err(|_| Malformed("bytes that are not a table"))?
    {
        Received::Whole(table) => table
            .validate()
            .map(|()| *table)
            .map_err(|_| Malformed("an invalid table"))?,
        Received::News(news) => {
            let own = own.ok_or(Malformed(
                "changes since a table that this client does not have",
            ))?;
            match news.apply(own) {
                Err(DeltaError::Base) => return Ok(None),
                applied => {
                    applied.map_err(|_| Malformed("changes that lead to an invalid table"))?
                }
            }
        }
    };
    if table.name() == name {
        Ok(Some(table))
    } else {
        Err(Malformed("a table with the name of another one"))
    }
}

/// A table as a member sends it whole: for tests and fuzzers.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn whole(table: &Table) -> Bytes {
    codec::encode(&PublishedFrame::Whole(table), codec::BYTES_MAX)
        .unwrap_or_default()
        .into()
}

/// The changes, likewise.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn news(delta: &TableDelta) -> Bytes {
    codec::encode(
        &PublishedFrame::News(Box::new(delta.clone())),
        codec::BYTES_MAX,
    )
    .unwrap_or_default()
    .into()
}

/// Decodes what is sent to a client, and encodes it again.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn again(bytes: &[u8]) -> Result<Bytes, String> {
    match codec::decode(bytes, codec::BYTES_MAX).map_err(|e| e.to_string())? {
        Received::Whole(table) => Ok(whole(&table)),
        Received::News(delta) => Ok(news(&delta)),
    }
}
