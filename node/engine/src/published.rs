//! Tables as they are sent to clients: what is new since the client's table, or the whole table.

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
        }
        self.recent.push_back((name, table.clone()));
        if self.recent.len() > FORMER_MAX + 1 {
            self.recent.pop_front();
        }
    }

    /// Since which table somebody who has this one is told what is new; `None`: it is sent the
    /// whole.
    pub(super) fn base(&self, have: Option<TableName>) -> Option<TableName> {
        self.recent
            .iter()
            .rev()
            .skip(1)
            .map(|(former, _)| *former)
            .find(|former| Some(*former) == have)
    }

    /// The table in force, since this one. `None`: there is none, or it is above what may be sent.
    pub(super) fn encoded(&mut self, base: Option<TableName>) -> Option<Bytes> {
        let (name, table) = self.recent.back()?;
        let base = self.recent.iter().find(|(former, _)| Some(*former) == base);
        let since = base.map(|(base, _)| *base);
        if let Some((known, of, bytes)) = &self.encoded
            && (*known, of) == (since, name)
        {
            return Some(bytes.clone());
        }
        let sent = base.map_or_else(
            || Sent::Whole(table),
            |(_, base)| Sent::News(Box::new(TableDelta::between(base, table))),
        );
        let bytes: Bytes = codec::encode(&sent, codec::BYTES_MAX).ok()?.into();
        self.encoded = Some((since, *name, bytes.clone()));
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
