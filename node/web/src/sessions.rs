//! Sessions of `tower-sessions` in a map of the cluster.

use async_trait::async_trait;
use doyen::{Error, Happened, Map};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use time::OffsetDateTime;
use tower_sessions_core::session::{Id, Record};
use tower_sessions_core::session_store::{self, SessionStore};

/// How many ids a new session tries. An id has 128 random bits, so one that is taken is rare.
const IDS_MAX: usize = 4;

/// The session store of `tower-sessions` over a map: each node of the cluster serves every session.
/// Cheap to clone.
///
/// ```no_run
/// # use axum::Router;
/// # async fn example(node: &doyen::Node, app: Router) -> Result<Router, doyen::Error> {
/// use doyen_web::Sessions;
/// use tower_sessions::SessionManagerLayer;
///
/// let sessions = Sessions::new(node.map("sessions").await?);
/// let app = app.layer(SessionManagerLayer::new(sessions));
/// # Ok(app) }
/// ```
///
/// A session expires when its record says so, and its memory is free then: no task has to delete
/// expired sessions. A request that saves a session which another request has deleted (a logout)
/// does not bring it back.
///
/// # Errors
/// [`session_store::Error::Encode`] and [`session_store::Error::Decode`]: the data are no JSON, or
/// another program wrote them. [`session_store::Error::Backend`]: the text of the [`Error`] of the
/// grid. The session manager answers all of them with 500.
#[derive(Clone)]
pub struct Sessions(Map<Id, StoredSession>);

/// What a map holds of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredSession {
    /// JSON, which is the form that `tower-sessions` has the values of a session in.
    data: String,
    /// When it expires: seconds since 1970, and nanoseconds of the second.
    seconds: i64,
    nanoseconds: u32,
}

impl Sessions {
    /// Keeps sessions in this map. The codec and the time to live of the map do not matter.
    #[must_use]
    pub const fn new(map: Map<Id, StoredSession>) -> Self {
        Self(map)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sessions").field(&self.0.name()).finish()
    }
}

#[async_trait]
impl SessionStore for Sessions {
    async fn create(&self, record: &mut Record) -> session_store::Result<()> {
        let (session, ttl) = stored(record)?;
        for _ in 0..IDS_MAX {
            match self.0.put(&record.id, &session).ttl(ttl).if_absent().await {
                Ok(None) => return Ok(()),
                // The id is taken.
                Ok(Some(_)) => record.id = Id::default(),
                // Perhaps it is ours, perhaps another session's. An entry that nobody knows of
                // expires.
                Err(why) if why.happened() == Happened::Unknown => record.id = Id::default(),
                Err(why) => return Err(failure(why)),
            }
        }
        Err(session_store::Error::Backend(format!(
            "no free session id among {IDS_MAX}"
        )))
    }

    async fn save(&self, record: &Record) -> session_store::Result<()> {
        let (session, ttl) = stored(record)?;
        match self.0.put(&record.id, &session).ttl(ttl).if_present().await {
            // `None`: it was deleted or has expired since this request loaded it, and stays so.
            Ok(Some(_) | None) => Ok(()),
            Err(why) if why.happened() == Happened::Yes => Ok(()),
            Err(why) => Err(failure(why)),
        }
    }

    async fn load(&self, id: &Id) -> session_store::Result<Option<Record>> {
        let Some(session) = self.0.get(id).await.map_err(failure)? else {
            return Ok(None);
        };
        let record = record(*id, &session)?;
        // The clock of this node may be ahead of the clock of the node that holds the entry.
        Ok(Some(record).filter(|record| record.expiry_date > OffsetDateTime::now_utc()))
    }

    async fn delete(&self, id: &Id) -> session_store::Result<()> {
        self.0.remove(id).await.map(drop).map_err(failure)
    }
}

/// What is stored of a record, and for how long.
fn stored(record: &Record) -> session_store::Result<(StoredSession, Duration)> {
    let data = serde_json::to_string(&record.data)
        .map_err(|why| session_store::Error::Encode(why.to_string()))?;
    let session = StoredSession {
        data,
        seconds: record.expiry_date.unix_timestamp(),
        nanoseconds: record.expiry_date.nanosecond(),
    };
    let left = record.expiry_date - OffsetDateTime::now_utc();
    // A record that has expired already is written with no time to live, so that it is gone.
    Ok((session, Duration::try_from(left).unwrap_or_default()))
}

fn record(id: Id, session: &StoredSession) -> session_store::Result<Record> {
    let decode = |why: String| session_store::Error::Decode(why);
    Ok(Record {
        id,
        data: serde_json::from_str(&session.data).map_err(|why| decode(why.to_string()))?,
        expiry_date: OffsetDateTime::from_unix_timestamp(session.seconds)
            .and_then(|date| date.replace_nanosecond(session.nanoseconds))
            .map_err(|why| decode(why.to_string()))?,
    })
}

fn failure(why: Error) -> session_store::Error {
    match why {
        Error::Value(why) => session_store::Error::Decode(why.to_string()),
        why => session_store::Error::Backend(why.to_string()),
    }
}
