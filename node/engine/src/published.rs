//! Tables as they are sent to clients: what is new since the client's table, or the whole table.
//!
//! A client is no member, so it may speak less than the level of the cluster. It is shown each table
//! as one of the level that it speaks, which has another name ([`Table::at_level`]).

use super::Malformed;
use crate::codec;
use bytes::Bytes;
use doyen_placement::{DeltaError, Table, TableDelta, TableName};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// Tables before the last one, of which it is known what is new since. Who has missed more is sent
/// the whole.
const FORMER_MAX: usize = 8;

/// What a client is sent; read as [`Received`].
#[derive(Serialize)]
enum Sent<'a> {
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
pub(super) struct Published {
    /// The last one is in force. With their names, which take going through the whole.
    recent: VecDeque<(TableName, Arc<Table>)>,
    /// The same as clients are shown them that speak less than their level, if such a client asked.
    lower: VecDeque<(TableName, Arc<Table>)>,
    /// Between which two.
    encoded: Option<(Option<TableName>, TableName, Bytes)>,
}

impl Published {
    /// Another table is in force. Those before it are kept where somebody may have them.
    pub(super) fn install(&mut self, name: TableName, table: &Arc<Table>, keeps: bool) {
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

    /// The tables as a client is shown them that speaks no more than this level. There are two
    /// levels, so all clients that speak less than the table speak the same.
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

    /// What the table in force is called that a client is shown which speaks no more than this.
    pub(super) fn name(&mut self, level: u16) -> Option<TableName> {
        self.shown(level).back().map(|(name, _)| *name)
    }

    /// Since which table somebody who has this one is told what is new; `None`: it is sent the
    /// whole.
    pub(super) fn base(&mut self, have: Option<TableName>, level: u16) -> Option<TableName> {
        self.shown(level)
            .iter()
            .rev()
            .skip(1)
            .map(|(former, _)| *former)
            .find(|former| Some(*former) == have)
    }

    /// The table in force, since this one. `None`: there is none, or it is above what may be sent.
    pub(super) fn encoded(&mut self, base: Option<TableName>, level: u16) -> Option<Bytes> {
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
            || Sent::Whole(table),
            |(_, base)| Sent::News(Box::new(TableDelta::between(base, table))),
        );
        let bytes: Bytes = codec::encode(&sent, codec::BYTES_MAX).ok()?.into();
        self.encoded = Some((since, name, bytes.clone()));
        Some(bytes)
    }
}

/// The table that a member sent under this name to a client that has this one; none, if it is what
/// is new since another one: an answer that is late.
pub(super) fn read(
    bytes: &[u8],
    name: TableName,
    own: Option<&Table>,
) -> Result<Option<Table>, Malformed> {
    let table = match codec::decode(bytes, codec::BYTES_MAX)
        .map_err(|_| Malformed("a table that is none"))?
    {
        Received::Whole(table) => table
            .validate()
            .map(|()| *table)
            .map_err(|_| Malformed("a table that does not hold"))?,
        Received::News(news) => {
            let own = own.ok_or(Malformed("news of a table that is not there"))?;
            match news.apply(own) {
                Err(DeltaError::Base) => return Ok(None),
                applied => applied
                    .map_err(|_| Malformed("news that lead to a table that does not hold"))?,
            }
        }
    };
    if table.name() == name {
        Ok(Some(table))
    } else {
        Err(Malformed("a table with the name of another one"))
    }
}

/// As a member sends it that knows nothing of the receiver: for tests and fuzzers.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn whole(table: &Table) -> Bytes {
    codec::encode(&Sent::Whole(table), codec::BYTES_MAX)
        .unwrap_or_default()
        .into()
}

/// What is new, likewise.
#[cfg(feature = "fuzz")]
pub(super) fn news(delta: &TableDelta) -> Bytes {
    codec::encode(&Sent::News(Box::new(delta.clone())), codec::BYTES_MAX)
        .unwrap_or_default()
        .into()
}

/// Reads what a client is sent, and lays it out again.
#[cfg(feature = "fuzz")]
pub(super) fn again(bytes: &[u8]) -> Result<Bytes, String> {
    match codec::decode(bytes, codec::BYTES_MAX).map_err(|e| e.to_string())? {
        Received::Whole(table) => Ok(whole(&table)),
        Received::News(delta) => Ok(news(&delta)),
    }
}
