//! A typed list.

use super::{CollectionKey, count, decode_element, encode_element, indexes};
use crate::error::Error;
use crate::map::value::Form;
use crate::map::{Codec, OpenMap};
use bytes::Bytes;
use doyen_engine::elements::list_calls as list;
pub use doyen_engine::elements::list_calls::ListEnd;
use doyen_engine::op::{Action, Outcome};
use doyen_placement::MapId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The map of all lists.
pub(super) const LISTS: &str = "doyen.lists";

/// A named list that the whole cluster shares, from [`Node::list`](crate::Node::list). Cheap to
/// clone.
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Visit { page: String }
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::List;
///
/// let latest: List<Visit> = node.list("visits of ada").await?;
/// latest.push_front(&Visit { page: "/tea".into() }).await?;
/// latest.trim(..100).await?; // keeps the hundred newest
/// for visit in latest.range(..10).await? {
///     println!("{}", visit.page);
/// }
/// let oldest = latest.pop_back().await?;
/// # Ok(()) }
/// ```
///
/// An index counts from 0 at the front; negative ones count from the back, where -1 is the last
/// element. An operation at an end costs about the same however long the list is.
/// [`remove`](List::remove) looks at every element.
///
/// It is one key of the map `doyen.lists`. How that is placed is as for [`Set`](crate::Set). A list
/// without elements does not exist. [`Error::OldMembers`]: some member of the cluster has no lists
/// yet.
///
/// For work that must not be lost when the process that took it dies, use
/// [`JobQueue`](crate::JobQueue).
///
/// # Elements
/// Elements are encoded by a [`Codec`], as values of a [`Map`](crate::Map#values) are.
///
/// # Time limits and cancel safety
/// As for [`Map`](crate::Map#time-limits-and-cancel-safety).
pub struct List<T> {
    at: CollectionKey,
    form: Arc<Form>,
    kind: PhantomData<fn(T) -> T>,
}

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        Self {
            at: self.at.clone(),
            form: self.form.clone(),
            kind: PhantomData,
        }
    }
}

impl<T> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl<T> List<T> {
    /// The name of the list.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.at.name
    }
}

impl<T: Serialize + DeserializeOwned> List<T> {
    /// Puts an element before the first one. Returns how many there are then.
    ///
    /// # Errors
    /// As for [`Map::insert`](crate::Map::insert).
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may happen or not, now or a little later, as after
    /// [`Error::Unknown`]. Nothing happens before the first poll.
    pub async fn push_front(&self, element: &T) -> Result<u64, Error> {
        self.push(ListEnd::Front, std::iter::once(element)).await
    }

    /// Puts an element behind the last one. Returns how many there are then.
    ///
    /// # Errors
    /// As for [`List::push_front`].
    ///
    /// # Cancel safety
    /// As for [`List::push_front`].
    pub async fn push_back(&self, element: &T) -> Result<u64, Error> {
        self.push(ListEnd::Back, std::iter::once(element)).await
    }

    /// Puts several elements behind the last one, in this order, all or none. Returns how many
    /// there are then.
    ///
    /// # Errors
    /// As for [`List::push_front`]. [`Error::TooLarge`]: together they have more bytes than a value
    /// may have; nothing happened.
    ///
    /// # Cancel safety
    /// As for [`List::push_front`].
    pub async fn extend<'v>(&self, elements: impl IntoIterator<Item = &'v T>) -> Result<u64, Error>
    where
        T: 'v,
    {
        self.push(ListEnd::Back, elements.into_iter()).await
    }

    async fn push<'v>(
        &self,
        end: ListEnd,
        elements: impl Iterator<Item = &'v T>,
    ) -> Result<u64, Error>
    where
        T: 'v,
    {
        let elements = elements.map(|one| encode_element(&self.form, one));
        let elements: Vec<Bytes> = elements.collect::<Result<_, _>>()?;
        if elements.is_empty() {
            return self.len().await;
        }
        let action = list::push(end, elements.iter().map(|element| &element[..]));
        count(self.at.write(action).await?)
    }

    /// Takes the first element out: of several callers, one gets it. `None`: the list is empty.
    ///
    /// # Errors
    /// As for [`List::push_front`]. [`Error::Value`]: the element cannot be decoded; it is lost.
    ///
    /// # Cancel safety
    /// As for [`List::push_front`]. If an element was taken out, it is lost.
    pub async fn pop_front(&self) -> Result<Option<T>, Error> {
        self.one(self.at.write(list::pop(ListEnd::Front)).await?)
    }

    /// Takes the last element out, as [`List::pop_front`].
    ///
    /// # Errors
    /// As for [`List::pop_front`].
    ///
    /// # Cancel safety
    /// As for [`List::pop_front`].
    pub async fn pop_back(&self) -> Result<Option<T>, Error> {
        self.one(self.at.write(list::pop(ListEnd::Back)).await?)
    }

    /// The element of an outcome.
    fn one(&self, outcome: Outcome) -> Result<Option<T>, Error> {
        match outcome {
            Outcome::Bulk(element) => decode_element(&self.form, &element).map(Some),
            Outcome::Nil => Ok(None),
            other => Err(Error::unexpected(other)),
        }
    }

    /// How many elements there are.
    ///
    /// # Errors
    /// No node serves the list for 5 s.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn len(&self) -> Result<u64, Error> {
        count(self.at.read(list::length()).await?)
    }

    /// Whether there is no element.
    ///
    /// # Errors
    /// As for [`List::len`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// The element at an index. `None`: there is none.
    ///
    /// # Errors
    /// As for [`List::len`]. [`Error::Value`]: the element cannot be decoded.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn get(&self, index: i64) -> Result<Option<T>, Error> {
        self.one(self.at.read(list::get(index)).await?)
    }

    /// The elements at these indexes, in their order: `..10` are the first ten, `-10..` the last
    /// ten.
    ///
    /// # Errors
    /// As for [`List::get`]. [`Error::TooLarge`]: they have more bytes than a value may have; ask
    /// for fewer at once.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn range(&self, indexes_of: impl RangeBounds<i64>) -> Result<Vec<T>, Error> {
        let Some((first, last)) = indexes(&indexes_of) else {
            return Ok(Vec::new());
        };
        let outcome = self.at.read(list::range(first, last)).await?;
        let Some(all) = list::elements(&outcome) else {
            return Err(Error::Unexpected("no elements of a list".into()));
        };
        all.map(|one| decode_element(&self.form, one)).collect()
    }

    /// Gives the element at an index another value. Returns whether there is such an element;
    /// otherwise nothing happened.
    ///
    /// # Errors
    /// As for [`List::push_front`].
    ///
    /// # Cancel safety
    /// As for [`List::push_front`].
    pub async fn set(&self, index: i64, element: &T) -> Result<bool, Error> {
        let element = encode_element(&self.form, element)?;
        match self.at.write(list::set(index, element)).await? {
            Outcome::Ok => Ok(true),
            Outcome::Nil | Outcome::Int(_) => Ok(false),
            other => Err(Error::unexpected(other)),
        }
    }

    /// Keeps the elements at these indexes and removes all others.
    ///
    /// # Errors
    /// As for [`List::push_front`].
    ///
    /// # Cancel safety
    /// As for [`List::push_front`].
    pub async fn trim(&self, kept: impl RangeBounds<i64>) -> Result<(), Error> {
        let Some((first, last)) = indexes(&kept) else {
            return self.clear().await.map(|_| ());
        };
        match self.at.write(list::trim(first, last)).await? {
            Outcome::Ok => Ok(()),
            other => Err(Error::unexpected(other)),
        }
    }

    /// Removes all elements with this value. Returns how many. Values are equal if their encodings
    /// are: with sets and maps in them, whose order is not fixed, equal ones may differ.
    ///
    /// # Errors
    /// As for [`List::push_front`].
    ///
    /// # Cancel safety
    /// As for [`List::push_front`].
    pub async fn remove(&self, element: &T) -> Result<u64, Error> {
        self.remove_up_to(element, None).await
    }

    /// Removes the first element with this value, as [`List::remove`]. Returns whether there was
    /// one.
    ///
    /// # Errors
    /// As for [`List::push_front`].
    ///
    /// # Cancel safety
    /// As for [`List::push_front`].
    pub async fn remove_first(&self, element: &T) -> Result<bool, Error> {
        Ok(self.remove_up_to(element, Some(1)).await? > 0)
    }

    async fn remove_up_to(&self, element: &T, most: Option<u32>) -> Result<u64, Error> {
        let element = encode_element(&self.form, element)?;
        count(self.at.write(list::remove(element, most)).await?)
    }

    /// Takes the element at an end out, puts it at an end of another list, and returns it: both or
    /// nothing. `None`: this list is empty.
    ///
    /// The other list may be this one. Another one must be in the same partition. Only lists of a
    /// database whose names have the same `{tag}` certainly are ([`OpenList::database`]).
    ///
    /// ```no_run
    /// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
    /// use doyen::{List, ListEnd};
    ///
    /// let open: List<String> = node.list("{orders}:open").database().await?;
    /// let packed: List<String> = node.list("{orders}:packed").database().await?;
    /// let order = open.move_to(ListEnd::Front, &packed, ListEnd::Back).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`List::pop_front`], but the element is not lost. [`Error::CrossPartition`]: the
    /// lists are in several partitions. [`Error::Refused`]: they are in several keyspaces, one is
    /// in a database and the other is not, or they have different codecs or schemas. Nothing
    /// happened.
    ///
    /// # Cancel safety
    /// As for [`List::push_front`].
    pub async fn move_to(
        &self,
        from: ListEnd,
        other: &Self,
        to: ListEnd,
    ) -> Result<Option<T>, Error> {
        let (here, there) = (&self.at, &other.at);
        if (here.keyspace, here.map) != (there.keyspace, there.map) {
            return Err(Error::Refused(format!(
                "the lists {} and {} are not in one keyspace, or only one of them is in a \
                 database: open both in the same way",
                here.name, there.name
            )));
        }
        if !self.form.is_like(&other.form) {
            return Err(Error::Refused(format!(
                "the lists {} and {} have different codecs or schemas: give both the same",
                here.name, there.name
            )));
        }
        let action: Action = list::move_to(from, there.key.clone(), to);
        self.one(here.write(action).await?)
    }

    /// Removes all elements. Returns whether there was any.
    ///
    /// # Errors
    /// As for [`List::push_front`].
    ///
    /// # Cancel safety
    /// As for [`List::push_front`].
    pub async fn clear(&self) -> Result<bool, Error> {
        self.at.clear().await
    }

    /// Lets the whole list expire after `ttl` from now on. Returns whether it has elements. Later
    /// changes do not move that time.
    ///
    /// # Errors
    /// As for [`List::push_front`].
    ///
    /// # Cancel safety
    /// As for [`List::push_front`].
    pub async fn expire(&self, ttl: Duration) -> Result<bool, Error> {
        self.at.expire(ttl).await
    }
}

/// A list that is about to be opened, from [`Node::list`](crate::Node::list). Await it.
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Visit;
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::{Codec, List};
///
/// let visits: List<Visit> = node.list("visits").codec(Codec::Bincode).schema("visit", 1).await?;
/// // The list that a Redis client sees as `LRANGE log 0 -1`, with texts as they are.
/// let log: List<String> = node.list("log").database().codec(Codec::Bytes).await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// If the future is dropped, nothing has changed but that the map of lists may exist.
#[must_use = "it is opened when it is awaited"]
pub struct OpenList<'a, T> {
    map: OpenMap<'a, (), T>,
    name: String,
    in_database: bool,
}

impl<T> fmt::Debug for OpenList<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenList")
            .field("name", &self.name)
            .field("in_database", &self.in_database)
            .finish_non_exhaustive()
    }
}

impl<'a, T> OpenList<'a, T> {
    pub(crate) fn new(open: impl FnOnce(&str) -> OpenMap<'a, (), T>, name: &str) -> Self {
        Self {
            map: open(LISTS),
            name: name.to_owned(),
            in_database: false,
        }
    }

    /// The keyspace, as for [`OpenMap::keyspace`].
    pub fn keyspace(mut self, keyspace: impl Into<String>) -> Self {
        self.map = self.map.keyspace(keyspace);
        self
    }

    /// How elements are encoded, as for [`OpenMap::codec`].
    pub fn codec(mut self, codec: Codec) -> Self {
        self.map = self.map.codec(codec);
        self
    }

    /// What elements are, as for [`OpenMap::schema`].
    pub fn schema(mut self, name: impl Into<Cow<'static, str>>, version: u16) -> Self {
        self.map = self.map.schema(name, version);
        self
    }

    /// The list is the key of this name in map 0 of the keyspace ([`Database`](crate::Database)),
    /// so that Redis clients see it, and a `{tag}` in its name decides its partition. With
    /// [`Codec::Bytes`], elements are there as they are.
    pub const fn database(mut self) -> Self {
        self.in_database = true;
        self
    }
}

impl<'a, T: Serialize + DeserializeOwned + 'a> IntoFuture for OpenList<'a, T> {
    type Output = Result<List<T>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            self.map.can_have_codec(&format!("list {}", self.name))?;
            let ((entry, data), form) = self.map.found().await?;
            let map = if self.in_database { MapId(0) } else { entry.id };
            Ok(List {
                at: CollectionKey::new((entry.keyspace, map), data, &self.name),
                form: Arc::new(form),
                kind: PhantomData,
            })
        })
    }
}
