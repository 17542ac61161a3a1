//! A typed set whose members have scores.

use super::{CollectionKey, count, decode_member, encode_member, indexes, is_some};
use crate::error::Error;
use crate::map::{KeyOf, OpenMap};
use bytes::Bytes;
use doyen_engine::elements::sorted_set_calls::{self as sorted_set, SortedSlice};
use doyen_engine::op::{Action, Outcome};
use doyen_placement::MapId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::pin::Pin;
use std::time::Duration;

/// The map of all sorted sets.
pub(super) const SORTED_SETS: &str = "doyen.sorted-sets";

/// A named set whose members are ordered by their scores, which the whole cluster shares, from
/// [`Node::sorted_set`](crate::Node::sorted_set). Cheap to clone.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::SortedSet;
///
/// let board: SortedSet<String> = node.sorted_set("board").await?;
/// board.insert("ada", 120.0).await?;
/// let points = board.increment("ada", 15.0).await?;
/// for (place, (player, points)) in board.rev_range(0..3).await?.into_iter().enumerate() {
///     println!("{}. {player}: {points}", place + 1);
/// }
/// if let Some(rank) = board.rev_rank("ada").await? {
///     println!("ada is number {} of {}", rank + 1, board.len().await?);
/// }
/// # Ok(()) }
/// ```
///
/// Members are in the order of their scores, and those with the same score in the order of their
/// keys (as in a keyspace of ranges). A score is any `f64` that is a number. Ranks begin at 0;
/// negative ones count from the end. A rank, a score or a position costs O(log n).
///
/// It is one key of the map `doyen.sorted-sets`. How that is placed, and how members are encoded,
/// is as for [`Set`](crate::Set). [`Error::OldMembers`]: some member of the cluster has no sorted
/// sets yet.
///
/// # Time limits and cancel safety
/// As for [`Map`](crate::Map#time-limits-and-cancel-safety).
pub struct SortedSet<T> {
    at: CollectionKey,
    kind: PhantomData<fn(T) -> T>,
}

impl<T> Clone for SortedSet<T> {
    fn clone(&self) -> Self {
        Self {
            at: self.at.clone(),
            kind: PhantomData,
        }
    }
}

impl<T> fmt::Debug for SortedSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedSet")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl<T> SortedSet<T> {
    /// The name of the sorted set.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.at.name
    }
}

/// A score that is given.
fn number(score: f64) -> Result<f64, Error> {
    if score.is_nan() {
        return Err(Error::Refused(
            "a score of a sorted set is no number (NaN): give a number".into(),
        ));
    }
    Ok(score)
}

/// The part of a range of scores.
fn scores(range: &impl RangeBounds<f64>) -> SortedSlice {
    SortedSlice::Scores(range.start_bound().cloned(), range.end_bound().cloned())
}

/// The members of an outcome.
fn members<T: DeserializeOwned>(outcome: Outcome) -> Result<Vec<(T, f64)>, Error> {
    let unexpected = || Error::Unexpected("no members of a sorted set".into());
    let scored = sorted_set::scored(outcome).ok_or_else(unexpected)?;
    let decoded = scored.into_iter().map(|(member, score)| {
        let member = decode_member(&member)?;
        Ok((member, score))
    });
    decoded.collect()
}

impl<T: Serialize + DeserializeOwned> SortedSet<T> {
    /// Gives a member this score, whatever it had. Returns whether the member is new.
    ///
    /// # Errors
    /// As for [`Map::insert`](crate::Map::insert). [`Error::Key`]: the member cannot be encoded.
    /// [`Error::Refused`]: the score is no number.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn insert<Q: KeyOf<T> + ?Sized>(
        &self,
        member: &Q,
        score: f64,
    ) -> Result<bool, Error> {
        let (member, score) = (encode_member(member)?, number(score)?);
        let action = sorted_set::add(std::iter::once((&member[..], score)));
        is_some(self.at.write(action).await?)
    }

    /// Gives several members their scores, all or none. Returns how many are new.
    ///
    /// # Errors
    /// As for [`SortedSet::insert`]. [`Error::TooLarge`]: together they have more bytes than a
    /// value may have; nothing happened.
    ///
    /// # Cancel safety
    /// As for [`SortedSet::insert`].
    pub async fn insert_many<'q, Q: KeyOf<T> + ?Sized + 'q>(
        &self,
        members: impl IntoIterator<Item = (&'q Q, f64)>,
    ) -> Result<u64, Error> {
        let members = members
            .into_iter()
            .map(|(member, score)| Ok((encode_member(member)?, number(score)?)));
        let members: Vec<(Bytes, f64)> = members.collect::<Result<_, Error>>()?;
        if members.is_empty() {
            return Ok(0);
        }
        let scored = members.iter().map(|(member, score)| (&member[..], *score));
        count(self.at.write(sorted_set::add(scored)).await?)
    }

    /// Gives a member this score if it has none or a lower one: for the best score of a player.
    /// Returns whether it was given.
    ///
    /// # Errors
    /// As for [`SortedSet::insert`].
    ///
    /// # Cancel safety
    /// As for [`SortedSet::insert`].
    pub async fn raise<Q: KeyOf<T> + ?Sized>(&self, member: &Q, score: f64) -> Result<bool, Error> {
        let (member, score) = (encode_member(member)?, number(score)?);
        is_some(self.at.write(sorted_set::raise(&member, score)).await?)
    }

    /// Adds to the score of a member, which is 0 if it is not there. Returns its new score.
    ///
    /// # Errors
    /// As for [`SortedSet::insert`]. [`Error::Overflow`]: the sum would be no number, as that of
    /// two infinities; nothing happened.
    ///
    /// # Cancel safety
    /// As for [`SortedSet::insert`].
    pub async fn increment<Q: KeyOf<T> + ?Sized>(&self, member: &Q, by: f64) -> Result<f64, Error> {
        let (member, by) = (encode_member(member)?, number(by)?);
        let outcome = self.at.write(sorted_set::increase(&member, by)).await?;
        match sorted_set::score_of(&outcome) {
            Some(Some(score)) => Ok(score),
            Some(None) | None => Err(Error::unexpected(outcome)),
        }
    }

    /// Removes a member. Returns whether it was there.
    ///
    /// # Errors
    /// As for [`SortedSet::insert`].
    ///
    /// # Cancel safety
    /// As for [`SortedSet::insert`].
    pub async fn remove<Q: KeyOf<T> + ?Sized>(&self, member: &Q) -> Result<bool, Error> {
        let member = encode_member(member)?;
        is_some(self.at.write(sorted_set::remove(&member)).await?)
    }

    /// Removes the members with these ranks. Returns how many.
    ///
    /// ```no_run
    /// # async fn example(board: doyen::SortedSet<String>) -> Result<(), doyen::Error> {
    /// board.remove_range(..-100).await?; // keeps the hundred with the highest scores
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`SortedSet::insert`].
    ///
    /// # Cancel safety
    /// As for [`SortedSet::insert`].
    pub async fn remove_range(&self, ranks: impl RangeBounds<i64>) -> Result<u64, Error> {
        let Some((first, last)) = indexes(&ranks) else {
            return Ok(0);
        };
        self.remove_slice(SortedSlice::Ranks(first, last)).await
    }

    /// Removes the members with these scores. Returns how many.
    ///
    /// # Errors
    /// As for [`SortedSet::insert`].
    ///
    /// # Cancel safety
    /// As for [`SortedSet::insert`].
    pub async fn remove_range_by_score(&self, of: impl RangeBounds<f64>) -> Result<u64, Error> {
        self.remove_slice(scores(&of)).await
    }

    async fn remove_slice(&self, slice: SortedSlice) -> Result<u64, Error> {
        count(self.at.write(sorted_set::remove_slice(slice)).await?)
    }

    /// The score of a member. `None`: it is not there.
    ///
    /// # Errors
    /// No node serves the sorted set for 5 s. [`Error::Key`]: the member cannot be encoded.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn score<Q: KeyOf<T> + ?Sized>(&self, member: &Q) -> Result<Option<f64>, Error> {
        let outcome = self
            .at
            .read(sorted_set::score(encode_member(member)?))
            .await?;
        sorted_set::score_of(&outcome).ok_or_else(|| Error::unexpected(outcome))
    }

    /// How many members have a lower place. `None`: the member is not there.
    ///
    /// # Errors
    /// As for [`SortedSet::score`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn rank<Q: KeyOf<T> + ?Sized>(&self, member: &Q) -> Result<Option<u64>, Error> {
        self.place_of(sorted_set::rank(encode_member(member)?, false))
            .await
    }

    /// How many members have a higher place: 0 is the one with the highest score. `None`: the
    /// member is not there.
    ///
    /// # Errors
    /// As for [`SortedSet::score`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn rev_rank<Q: KeyOf<T> + ?Sized>(&self, member: &Q) -> Result<Option<u64>, Error> {
        self.place_of(sorted_set::rank(encode_member(member)?, true))
            .await
    }

    async fn place_of(&self, action: Action) -> Result<Option<u64>, Error> {
        match self.at.read(action).await? {
            Outcome::Nil => Ok(None),
            other => count(other).map(Some),
        }
    }

    /// The members with these ranks, with their scores, the lowest first. Negative ranks count from
    /// the end: `-3..` are the last three.
    ///
    /// # Errors
    /// As for [`SortedSet::score`]. [`Error::TooLarge`]: they have more bytes than a value may
    /// have; ask for fewer at once. [`Error::Key`]: a member is of another type.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn range(&self, ranks: impl RangeBounds<i64>) -> Result<Vec<(T, f64)>, Error> {
        match indexes(&ranks) {
            Some((first, last)) => {
                let slice = SortedSlice::Ranks(first, last);
                self.slice(sorted_set::range(slice, false, None)).await
            }
            None => Ok(Vec::new()),
        }
    }

    /// The same, the highest first. Ranks count from there: `0..3` are those with the three highest
    /// scores.
    ///
    /// # Errors
    /// As for [`SortedSet::range`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn rev_range(&self, ranks: impl RangeBounds<i64>) -> Result<Vec<(T, f64)>, Error> {
        match indexes(&ranks) {
            Some((first, last)) => {
                let slice = SortedSlice::Ranks(first, last);
                self.slice(sorted_set::range(slice, true, None)).await
            }
            None => Ok(Vec::new()),
        }
    }

    /// The members with these scores, the lowest first, `limit` at most.
    ///
    /// ```no_run
    /// # async fn example(due: doyen::SortedSet<u64>) -> Result<(), doyen::Error> {
    /// // The first hundred that are due by second 1,000.
    /// for (id, at) in due.range_by_score(..=1_000.0, 100).await? {
    ///     println!("{id} was due at {at}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`SortedSet::range`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn range_by_score(
        &self,
        of: impl RangeBounds<f64>,
        limit: u64,
    ) -> Result<Vec<(T, f64)>, Error> {
        let action = sorted_set::range(scores(&of), false, Some(limit));
        self.slice(action).await
    }

    /// The same, the highest first.
    ///
    /// # Errors
    /// As for [`SortedSet::range`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn rev_range_by_score(
        &self,
        of: impl RangeBounds<f64>,
        limit: u64,
    ) -> Result<Vec<(T, f64)>, Error> {
        let action = sorted_set::range(scores(&of), true, Some(limit));
        self.slice(action).await
    }

    async fn slice(&self, action: Action) -> Result<Vec<(T, f64)>, Error> {
        members(self.at.read(action).await?)
    }

    /// How many members have these scores.
    ///
    /// # Errors
    /// As for [`SortedSet::score`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn count(&self, of: impl RangeBounds<f64>) -> Result<u64, Error> {
        count(self.at.read(sorted_set::count(scores(&of))).await?)
    }

    /// Takes the member with the lowest score out, with its score: of several callers, one gets it.
    ///
    /// # Errors
    /// As for [`SortedSet::insert`]. [`Error::Key`]: the member is of another type; it is lost.
    ///
    /// # Cancel safety
    /// As for [`SortedSet::insert`]. If a member was taken out, it is lost.
    pub async fn pop_first(&self) -> Result<Option<(T, f64)>, Error> {
        Ok(members(self.at.write(sorted_set::pop(false, 1)).await?)?.pop())
    }

    /// The same with the highest score.
    ///
    /// # Errors
    /// As for [`SortedSet::pop_first`].
    ///
    /// # Cancel safety
    /// As for [`SortedSet::pop_first`].
    pub async fn pop_last(&self) -> Result<Option<(T, f64)>, Error> {
        Ok(members(self.at.write(sorted_set::pop(true, 1)).await?)?.pop())
    }

    /// How many members there are.
    ///
    /// # Errors
    /// As for [`SortedSet::score`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn len(&self) -> Result<u64, Error> {
        count(self.at.read(sorted_set::length()).await?)
    }

    /// Whether there is no member.
    ///
    /// # Errors
    /// As for [`SortedSet::score`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Removes all members. Returns whether there was any.
    ///
    /// # Errors
    /// As for [`SortedSet::insert`].
    ///
    /// # Cancel safety
    /// As for [`SortedSet::insert`].
    pub async fn clear(&self) -> Result<bool, Error> {
        self.at.clear().await
    }

    /// Lets the whole sorted set expire after `ttl` from now on. Returns whether it has members.
    /// Later changes do not move that time.
    ///
    /// # Errors
    /// As for [`SortedSet::insert`].
    ///
    /// # Cancel safety
    /// As for [`SortedSet::insert`].
    pub async fn expire(&self, ttl: Duration) -> Result<bool, Error> {
        self.at.expire(ttl).await
    }
}

/// A sorted set that is about to be opened, from [`Node::sorted_set`](crate::Node::sorted_set).
/// Await it.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::SortedSet;
///
/// let board: SortedSet<String> = node.sorted_set("board").keyspace("games").await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// If the future is dropped, nothing has changed but that the map of sorted sets may exist.
#[must_use = "it is opened when it is awaited"]
pub struct OpenSortedSet<'a, T> {
    map: OpenMap<'a, (), ()>,
    name: String,
    in_database: bool,
    kind: PhantomData<fn(T) -> T>,
}

impl<T> fmt::Debug for OpenSortedSet<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSortedSet")
            .field("name", &self.name)
            .field("in_database", &self.in_database)
            .finish_non_exhaustive()
    }
}

impl<'a, T> OpenSortedSet<'a, T> {
    pub(crate) fn new(open: impl FnOnce(&str) -> OpenMap<'a, (), ()>, name: &str) -> Self {
        Self {
            map: open(SORTED_SETS),
            name: name.to_owned(),
            in_database: false,
            kind: PhantomData,
        }
    }

    /// The keyspace, as for [`OpenMap::keyspace`].
    pub fn keyspace(mut self, keyspace: impl Into<String>) -> Self {
        self.map = self.map.keyspace(keyspace);
        self
    }

    /// The sorted set is the key of this name in map 0 of the keyspace
    /// ([`Database`](crate::Database)), so that Redis clients see it. Members that are texts or
    /// bytes are there as they are.
    pub const fn database(mut self) -> Self {
        self.in_database = true;
        self
    }
}

impl<'a, T: 'a> IntoFuture for OpenSortedSet<'a, T> {
    type Output = Result<SortedSet<T>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let ((entry, data), _) = self.map.found().await?;
            let map = if self.in_database { MapId(0) } else { entry.id };
            Ok(SortedSet {
                at: CollectionKey::new((entry.keyspace, map), data, &self.name),
                kind: PhantomData,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Bound;

    #[test]
    fn scores_are_numbers_and_ranges_keep_their_ends() {
        assert!(matches!(number(f64::NAN), Err(Error::Refused(_))));
        assert_eq!(number(f64::NEG_INFINITY), Ok(f64::NEG_INFINITY));
        let half_open = SortedSlice::Scores(Bound::Included(1.0), Bound::Excluded(2.0));
        assert_eq!(scores(&(1.0..2.0)), half_open);
        let all = SortedSlice::Scores(Bound::Unbounded, Bound::Unbounded);
        assert_eq!(scores(&..), all);
    }
}
