//! A typed set.

use super::{CollectionKey, count, decode_member, encode_member, is_some};
use crate::error::Error;
use crate::map::{KeyOf, OpenMap};
use bytes::Bytes;
use doyen_engine::elements::set_calls as set;
use doyen_engine::op::Outcome;
use doyen_placement::MapId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

/// The map of all sets.
pub(super) const SETS: &str = "doyen.sets";
/// Members of one page.
const PAGE: u32 = 1_000;

/// A named set that the whole cluster shares, from [`Node::set`](crate::Node::set). Cheap to clone.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::Set;
///
/// let admins: Set<String> = node.set("admins").await?;
/// let is_new = admins.insert("ada").await?;
/// if admins.contains("ada").await? {
///     println!("{} admins, and ada is one", admins.len().await?);
/// }
/// let mut members = admins.members();
/// while let Some(member) = members.next().await? {
///     println!("{member}");
/// }
/// admins.remove("ada").await?;
/// # Ok(()) }
/// ```
///
/// The set is one key of the map `doyen.sets`, which all sets of a keyspace share, so it is placed,
/// copied, moved and evicted as any key of a [`Map`](crate::Map), and one primary executes all of
/// its operations. Each operation is atomic and linearizable. A set without members does not exist:
/// the last [`remove`](Set::remove) ends its time to live, too.
///
/// # Members
/// Members are encoded as keys of a map: the same bytes for every type with the same content, 64
/// KiB at most ([`Map`](crate::Map#keys) says what cannot be a key, and what must not change). All
/// programs that open a set must give it types with the same content. A member that is none of
/// theirs is [`Error::Key`].
///
/// # Time limits and cancel safety
/// As for [`Map`](crate::Map#time-limits-and-cancel-safety).
pub struct Set<T> {
    at: CollectionKey,
    kind: PhantomData<fn(T) -> T>,
}

impl<T> Clone for Set<T> {
    fn clone(&self) -> Self {
        Self {
            at: self.at.clone(),
            kind: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Set<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl<T> Set<T> {
    /// The name of the set.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.at.name
    }
}

impl<T: Serialize + DeserializeOwned> Set<T> {
    /// Adds a member. Returns whether it is new.
    ///
    /// # Errors
    /// As for [`Map::insert`](crate::Map::insert). [`Error::Key`]: the member cannot be encoded.
    /// [`Error::TooLarge`]: it has more than 64 KiB.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn insert<Q: KeyOf<T> + ?Sized>(&self, member: &Q) -> Result<bool, Error> {
        let member = encode_member(member)?;
        is_some(
            self.at
                .write(set::add(std::iter::once(&member[..])))
                .await?,
        )
    }

    /// Adds several members, all or none. Returns how many are new.
    ///
    /// ```no_run
    /// # async fn example(admins: doyen::Set<String>) -> Result<(), doyen::Error> {
    /// let new = admins.insert_many(["ada", "grace"]).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Set::insert`]. [`Error::TooLarge`]: together they have more bytes than a value may
    /// have; nothing happened.
    ///
    /// # Cancel safety
    /// As for [`Set::insert`].
    pub async fn insert_many<'q, Q: KeyOf<T> + ?Sized + 'q>(
        &self,
        members: impl IntoIterator<Item = &'q Q>,
    ) -> Result<u64, Error> {
        let members = members.into_iter().map(encode_member);
        let members: Vec<Bytes> = members.collect::<Result<_, _>>()?;
        if members.is_empty() {
            return Ok(0);
        }
        let action = set::add(members.iter().map(|member| &member[..]));
        count(self.at.write(action).await?)
    }

    /// Removes a member. Returns whether it was there.
    ///
    /// # Errors
    /// As for [`Set::insert`].
    ///
    /// # Cancel safety
    /// As for [`Set::insert`].
    pub async fn remove<Q: KeyOf<T> + ?Sized>(&self, member: &Q) -> Result<bool, Error> {
        let member = encode_member(member)?;
        let action = set::remove(std::iter::once(&member[..]));
        is_some(self.at.write(action).await?)
    }

    /// Whether there is this member.
    ///
    /// # Errors
    /// No node serves the set for 5 s. [`Error::Key`]: the member cannot be encoded.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn contains<Q: KeyOf<T> + ?Sized>(&self, member: &Q) -> Result<bool, Error> {
        is_some(self.at.read(set::has(encode_member(member)?)).await?)
    }

    /// How many members there are.
    ///
    /// # Errors
    /// No node serves the set for 5 s.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn len(&self) -> Result<u64, Error> {
        count(self.at.read(set::length()).await?)
    }

    /// Whether there is no member.
    ///
    /// # Errors
    /// As for [`Set::len`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Takes a random member out: of several callers, one gets it. `None`: there is none.
    ///
    /// # Errors
    /// As for [`Set::insert`]. [`Error::Key`]: the member is of another type; it is lost.
    ///
    /// # Cancel safety
    /// As for [`Set::insert`]. If a member was taken out, it is lost.
    pub async fn pop(&self) -> Result<Option<T>, Error> {
        match self.at.write(set::pop()).await? {
            Outcome::Bulk(member) => decode_member(&member).map(Some),
            Outcome::Nil => Ok(None),
            other => Err(Error::unexpected(other)),
        }
    }

    /// All members, in no order. A member that is there all the time is returned at least once.
    /// Members that are added or removed meanwhile may be returned or not. Pages are read as they
    /// are needed.
    #[must_use]
    pub fn members(&self) -> Members<T> {
        Members {
            at: self.at.clone(),
            page: VecDeque::new(),
            next: Some(0),
            kind: PhantomData,
        }
    }

    /// Removes all members. Returns whether there was any.
    ///
    /// # Errors
    /// As for [`Set::insert`].
    ///
    /// # Cancel safety
    /// As for [`Set::insert`].
    pub async fn clear(&self) -> Result<bool, Error> {
        self.at.clear().await
    }

    /// Lets the whole set expire after `ttl` from now on. Returns whether it has members. Later
    /// changes do not move that time.
    ///
    /// # Errors
    /// As for [`Set::insert`].
    ///
    /// # Cancel safety
    /// As for [`Set::insert`].
    pub async fn expire(&self, ttl: Duration) -> Result<bool, Error> {
        self.at.expire(ttl).await
    }
}

/// The members of a set, from [`Set::members`]. Pages are read as they are needed.
///
/// Example: [`Set`].
pub struct Members<T> {
    at: CollectionKey,
    page: VecDeque<Bytes>,
    /// Where the next page begins. `None`: there is none.
    next: Option<u64>,
    kind: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Members<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members")
            .field("name", &self.at.name)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Members<T> {
    /// The next member; `None` at the end. After an error it may be called again, and goes on.
    ///
    /// # Errors
    /// No node serves the set for 5 s. [`Error::Key`]: a member is of another type; the next call
    /// goes on behind it.
    ///
    /// # Cancel safety
    /// Dropping the future loses no member, so this may stand in a `select!`.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        loop {
            if let Some(member) = self.page.pop_front() {
                return decode_member(&member).map(Some);
            }
            let Some(from) = self.next else {
                return Ok(None);
            };
            match self.at.read(set::page(from, PAGE)).await? {
                Outcome::Keys { next, keys } => {
                    self.page = keys.into();
                    self.next = (next != 0).then_some(next);
                }
                other => return Err(Error::unexpected(other)),
            }
        }
    }
}

/// A set that is about to be opened, from [`Node::set`](crate::Node::set). Await it.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::Set;
///
/// let banned: Set<u64> = node.set("banned").keyspace("accounts").await?;
/// // The set that a Redis client sees as `SMEMBERS {forum}:tags`.
/// let tags: Set<String> = node.set("{forum}:tags").database().await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// If the future is dropped, nothing has changed but that the map of sets may exist.
#[must_use = "it is opened when it is awaited"]
pub struct OpenSet<'a, T> {
    map: OpenMap<'a, (), ()>,
    name: String,
    in_database: bool,
    kind: PhantomData<fn(T) -> T>,
}

impl<T> fmt::Debug for OpenSet<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSet")
            .field("name", &self.name)
            .field("in_database", &self.in_database)
            .finish_non_exhaustive()
    }
}

impl<'a, T> OpenSet<'a, T> {
    pub(crate) fn new(open: impl FnOnce(&str) -> OpenMap<'a, (), ()>, name: &str) -> Self {
        Self {
            map: open(SETS),
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

    /// The set is the key of this name in map 0 of the keyspace ([`Database`](crate::Database)), so
    /// that Redis clients see it. Members that are texts or bytes are there as they are.
    pub const fn database(mut self) -> Self {
        self.in_database = true;
        self
    }
}

impl<'a, T: 'a> IntoFuture for OpenSet<'a, T> {
    type Output = Result<Set<T>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let ((entry, data), _) = self.map.found().await?;
            let map = if self.in_database { MapId(0) } else { entry.id };
            Ok(Set {
                at: CollectionKey::new((entry.keyspace, map), data, &self.name),
                kind: PhantomData,
            })
        })
    }
}
