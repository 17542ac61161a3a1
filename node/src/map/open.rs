//! Opens a map with what the program says of its values.

use super::Map;
use super::counters::Counters;
use super::value::{Codec, Form, Schema, Undecodable, number_of};
use crate::data::DataHandle;
use crate::error::Error;
use doyen_placement::{Eviction, MapEntry, MapLimits, MapWish, WantedMap};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_reflection::{ContainerFormat, Format, Tracer, TracerConfig};
use std::borrow::Cow;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

/// Finds a map that is as it is wanted.
pub(crate) type OpenedMap<'a> =
    Pin<Box<dyn Future<Output = Result<(MapEntry, DataHandle), Error>> + Send + 'a>>;
type Open<'a> = Box<dyn FnOnce(WantedMap, Codec) -> OpenedMap<'a> + Send + 'a>;

/// A map that is about to be opened, from [`Node::map`](crate::Node::map). Await it.
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] struct User;
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use doyen::{Codec, Map, Undecodable};
/// use std::time::Duration;
///
/// let users: Map<u64, User> = node
///     .map("users")
///     .keyspace("accounts")
///     .codec(Codec::Bincode)
///     .schema("user", 2)
///     .on_undecodable(Undecodable::Miss)
///     .ttl(Duration::from_secs(3600))
///     .await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// If the future is dropped, the map may exist or not. It is empty then.
#[must_use = "it is opened when it is awaited"]
pub struct OpenMap<'a, K, V> {
    open: Open<'a>,
    keyspace: String,
    name: String,
    codec: Codec,
    schema: Schema,
    undecodable: Undecodable,
    ttl: Option<Duration>,
    limits: MapLimits,
    /// `None`: as the limits need it.
    eviction: Option<Eviction>,
    /// The limits replace those that the map has, also if they are lower.
    replaces: bool,
    kinds: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for OpenMap<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenMap")
            .field("keyspace", &self.keyspace)
            .field("name", &self.name)
            .field("codec", &self.codec)
            .field("schema", &self.schema)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl<'a, K, V> OpenMap<'a, K, V> {
    pub(crate) fn new(
        keyspace: &str,
        name: &str,
        open: impl FnOnce(WantedMap, Codec) -> OpenedMap<'a> + Send + 'a,
    ) -> Self {
        Self {
            open: Box::new(open),
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
            codec: Codec::default(),
            schema: Schema::None,
            undecodable: Undecodable::default(),
            ttl: None,
            limits: MapLimits::NONE,
            eviction: None,
            replaces: false,
            kinds: PhantomData,
        }
    }

    /// The keyspace of the map, which must exist
    /// ([`Admin::create_keyspace`](crate::Admin::create_keyspace)). Without this it is `default`.
    pub fn keyspace(mut self, keyspace: impl Into<String>) -> Self {
        self.keyspace = keyspace.into();
        self
    }

    /// How values are encoded. Every program must give the map the same codec.
    pub const fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// What the values are, with a version that you raise if programs of the former version must
    /// not read them. A value of another schema or version is not decoded.
    pub fn schema(mut self, name: impl Into<Cow<'static, str>>, version: u16) -> Self {
        self.schema = Schema::Named(name.into(), version);
        self
    }

    /// What happens if a value cannot be decoded. Without this it is an error.
    pub const fn on_undecodable(mut self, undecodable: Undecodable) -> Self {
        self.undecodable = undecodable;
        self
    }

    /// How long the entries that this program writes live, unless a write says otherwise. Without
    /// this they do not expire.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The most entries of the map in the whole cluster. Beyond that, entries are evicted
    /// ([`eviction`](OpenMap::eviction)). For some milliseconds the map may hold a few more.
    ///
    /// Each member keeps its part of the limit for the partitions that it leads, so a limit should
    /// be much larger than the number of members. A map in a keyspace of ranges has no limit of
    /// entries or bytes.
    ///
    /// ```no_run
    /// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
    /// use doyen::{Eviction, Map};
    /// use std::time::Duration;
    ///
    /// let pages: Map<String, String> = node
    ///     .map("pages")
    ///     .max_entries(100_000)
    ///     .max_bytes(200 << 20)
    ///     .eviction(Eviction::Lru)
    ///     .max_idle(Duration::from_secs(3600))
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Limits are settings of the map
    /// All limits of a map (entries, bytes, eviction, idle time) are shared by the cluster and last
    /// as long as the map. A program that opens it without limits takes those that it has. A
    /// program that opens it with higher limits raises them for all programs. Lower limits, a limit
    /// where the map has none, and another eviction do nothing but write a warning into the log,
    /// because they would remove entries of other programs:
    /// [`replace_limits`](OpenMap::replace_limits) sets them. So does an operator, for single
    /// limits: `doyen map limits pages --max-entries 10000`. While a cluster is upgraded from level
    /// 15, opening a map replaces its limits.
    ///
    /// # How exactly they are kept
    /// A member evicts some milliseconds after a write. A value that is larger than the limit is
    /// written, and evicted at once. With [`Eviction::None`], a member may refuse a key before the
    /// others are full.
    pub const fn max_entries(mut self, entries: u64) -> Self {
        self.limits.entries = Some(entries);
        self
    }

    /// The most bytes of the map in the whole cluster, without copies. An entry counts with its
    /// key, its value and about 80 bytes more. As for [`max_entries`](OpenMap::max_entries).
    pub const fn max_bytes(mut self, bytes: u64) -> Self {
        self.limits.bytes = Some(bytes);
        self
    }

    /// Which entries are evicted beyond [`max_entries`](OpenMap::max_entries) or
    /// [`max_bytes`](OpenMap::max_bytes). Without this, those that are used least often
    /// ([`Eviction::Lfu`]), as in moka. A new entry may be evicted soon, if it is not used as often
    /// as others. With [`Eviction::Ttl`], if no entry expires, some entry. With [`Eviction::None`],
    /// a new entry is refused ([`Error::MapFull`]).
    ///
    /// Hit ratios of [`Eviction::Lfu`] are those of moka or better on Zipf's law, with scans, with
    /// shifts and on loops: scans and loops drive out nothing that is used often.
    pub const fn eviction(mut self, eviction: Eviction) -> Self {
        self.eviction = Some(eviction);
        self
    }

    /// An entry expires if no caller uses it for so long: between that time and an eighth more
    /// after the last read or write of its key. It also expires at its deadline, if it has one.
    /// Reads within a transaction, or from a near cache, and [`Map::iter`] and its like do not
    /// count. A read that counts may be a write, which [`Map::compare_and_swap`] takes for one.
    /// [`Put::max_idle`](crate::Put::max_idle) gives one entry another time.
    ///
    /// It is a setting of the map, as [`max_entries`](OpenMap::max_entries) says. A map that exists
    /// may get one, and then the time of the entries that are there begins. With [`Codec::Bytes`]
    /// it must be given when the map is made: values without a label could be misread.
    pub fn max_idle(mut self, idle: Duration) -> Self {
        self.limits.idle_ms = Some(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Gives the map the limits that this program says, and no others, also if entries go for that.
    /// Without this, limits are only raised. A [`max_idle`](OpenMap::max_idle) can be shortened so,
    /// but not removed.
    ///
    /// ```no_run
    /// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
    /// use doyen::Map;
    ///
    /// // From 100,000 pages to 10,000: the others are evicted.
    /// let open = node.map("pages").max_entries(10_000).replace_limits();
    /// let pages: Map<String, String> = open.await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Let one program do so, not all replicas of a service: while it is deployed, its former
    /// version would raise them again. Each change of limits is an event
    /// ([`Node::events`](crate::Node::events)) that says from what to what, and at which member it
    /// was asked for. If an operator did so, the audits of that member say who.
    pub const fn replace_limits(mut self) -> Self {
        self.replaces = true;
        self
    }

    /// The same settings as another map that is about to be opened.
    pub(super) fn like(self, other: &OpenMap<'a, K, V>) -> Self {
        Self {
            keyspace: other.keyspace.clone(),
            codec: other.codec,
            schema: other.schema.clone(),
            undecodable: other.undecodable,
            ttl: other.ttl,
            limits: other.limits,
            eviction: other.eviction,
            replaces: other.replaces,
            ..self
        }
    }

    /// What is wanted of the map.
    fn wish(&self) -> Result<MapWish, Error> {
        let mut limits = self.limits;
        let zero = [
            ("max_entries", limits.entries),
            ("max_bytes", limits.bytes),
            ("max_idle", limits.idle_ms),
        ];
        if let Some((limit, _)) = zero.into_iter().find(|(_, of)| *of == Some(0)) {
            return Err(Error::Refused(format!(
                "{limit} of the map {} is 0, so it would keep nothing: give more",
                self.name
            )));
        }
        match self.eviction {
            Some(_) if !limits.bounds() => {
                return Err(Error::Refused(format!(
                    "the map {} would evict, and has no limit: give it max_entries or max_bytes",
                    self.name
                )));
            }
            Some(eviction) => limits.eviction = eviction,
            None if limits.bounds() => limits.eviction = Eviction::Lfu,
            None => {}
        }
        Ok(if self.replaces {
            MapWish::Replaced(limits)
        } else if limits == MapLimits::NONE {
            MapWish::Exists
        } else {
            MapWish::Limited(limits)
        })
    }
}

impl<'a, K, V> IntoFuture for OpenMap<'a, K, V>
where
    K: Serialize + 'a,
    V: Serialize + DeserializeOwned + 'a,
{
    type Output = Result<Map<K, V>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let ttl = self.ttl;
        Box::pin(async move {
            self.can_have_codec(&format!("map {}", self.name))?;
            let ((entry, data), form) = self.found().await?;
            // Only a map writes values as they are stored.
            let form = form.limited(&entry.limits);
            Ok(Map::new(entry, data, form, ttl))
        })
    }
}

impl<K, V: DeserializeOwned> OpenMap<'_, K, V> {
    /// Whether values of this type may have the codec.
    ///
    /// # Errors
    /// They may not. The text names this.
    pub(super) fn can_have_codec(&self, what: &str) -> Result<(), Error> {
        if self.codec == Codec::Bytes && !is_run_of_bytes::<V>() {
            return Err(Error::Refused(format!(
                "the {what} cannot have the codec Bytes, which is for texts and bytes alone: give \
                 it the codec MessagePack"
            )));
        }
        Ok(())
    }

    /// Finds the map, and how its values are encoded.
    pub(super) async fn found(self) -> Result<((MapEntry, DataHandle), Form), Error> {
        let wish = self.wish()?;
        let Self {
            open,
            keyspace,
            name,
            codec,
            schema,
            undecodable,
            ..
        } = self;
        let schema = match (codec, schema) {
            (Codec::Bincode, Schema::None) => fingerprint::<V>().map_err(|why| {
                Error::Refused(format!(
                    "the map {name} cannot have the codec Bincode without a schema, because \
                         its type has no fingerprint ({why}): give it schema(NAME, VERSION), or \
                         the codec MessagePack"
                ))
            })?,
            (_, schema) => schema,
        };
        let wanted = WantedMap {
            keyspace,
            name,
            wish,
        };
        let (entry, data) = open(wanted, codec).await?;
        if let MapWish::Limited(limits) = wish
            && is_below(&limits, &entry.limits)
        {
            tracing::warn!(
                "the map {} keeps its limits, {:?}: those of this program, {limits:?}, would remove \
                 entries; give all programs the same, or say replace_limits()",
                entry.name,
                entry.limits
            );
        }
        let form = Form::new(entry.name.clone(), codec, schema, undecodable).typed::<V>();
        Ok(((entry, data), form))
    }
}

/// Whether limits would allow less than others, or evict otherwise.
fn is_below(wanted: &MapLimits, there: &MapLimits) -> bool {
    let below = |wanted: Option<u64>, there: Option<u64>| {
        wanted.is_some_and(|wanted| there.is_none_or(|there| there > wanted))
    };
    below(wanted.entries, there.entries)
        || below(wanted.bytes, there.bytes)
        || below(wanted.idle_ms, there.idle_ms)
        || (wanted.bounds() && wanted.eviction != there.eviction)
}

/// Counters that are about to be opened, from [`Node::counters`](crate::Node::counters). Await it.
///
/// ```no_run
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::Error> {
/// use std::time::Duration;
///
/// let day = Duration::from_secs(24 * 3600);
/// let downloads = node.counters::<String>("downloads").keyspace("statistics").ttl(day).await?;
/// downloads.add("report.pdf", 1).await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// If the future is dropped, the map may exist or not. It is empty then.
#[must_use = "they are opened when it is awaited"]
pub struct OpenCounters<'a, K> {
    map: OpenMap<'a, K, ()>,
}

impl<K> fmt::Debug for OpenCounters<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenCounters").field(&self.map).finish()
    }
}

impl<'a, K> OpenCounters<'a, K> {
    pub(crate) const fn new(map: OpenMap<'a, K, ()>) -> Self {
        Self { map }
    }

    /// The keyspace, as for [`OpenMap::keyspace`].
    pub fn keyspace(mut self, keyspace: impl Into<String>) -> Self {
        self.map = self.map.keyspace(keyspace);
        self
    }

    /// How long a counter lives from its first addition on, unless an addition says otherwise.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.map = self.map.ttl(ttl);
        self
    }
}

impl<'a, K: Serialize + 'a> IntoFuture for OpenCounters<'a, K> {
    type Output = Result<Counters<K>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let ttl = self.map.ttl;
        let map = self.map.codec(Codec::Bytes);
        Box::pin(async move {
            let ((entry, data), form) = map.found().await?;
            Ok(Counters::new(Map::new(entry, data, form, ttl)))
        })
    }
}

/// Whether a type is a text or bytes, as far as that can be found out.
fn is_run_of_bytes<V: DeserializeOwned>() -> bool {
    let mut tracer = Tracer::new(TracerConfig::default());
    let (Ok((format, _)), Ok(registry)) = (tracer.trace_simple_type::<V>(), tracer.registry())
    else {
        return true;
    };
    let mut format = &format;
    while let Format::TypeName(name) = format {
        match registry.get(name) {
            Some(ContainerFormat::NewTypeStruct(inner)) => format = inner,
            _ => return false,
        }
    }
    match format {
        Format::Str | Format::Bytes => true,
        Format::Seq(of) | Format::TupleArray { content: of, .. } => **of == Format::U8,
        Format::Tuple(of) => of.iter().all(|of| *of == Format::U8),
        _ => false,
    }
}

/// A number that differs if the fields or the variants of a type differ, or their types or order.
pub(super) fn fingerprint<V: DeserializeOwned>() -> Result<Schema, String> {
    let mut tracer = Tracer::new(TracerConfig::default());
    let (format, _) = tracer
        .trace_simple_type::<V>()
        .map_err(|why| why.to_string())?;
    let registry = tracer.registry().map_err(|why| why.to_string())?;
    let shape = serde_json::to_string(&(format, registry)).map_err(|why| why.to_string())?;
    Ok(Schema::Fingerprint(number_of(&shape)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Html(#[allow(dead_code, reason = "only its shape counts")] String);

    #[derive(Deserialize)]
    struct User {
        #[allow(dead_code, reason = "only its shape counts")]
        name: String,
    }

    #[test]
    fn texts_and_bytes_are_told_from_other_types() {
        assert!(is_run_of_bytes::<String>() && is_run_of_bytes::<Vec<u8>>());
        assert!(is_run_of_bytes::<[u8; 4]>());
        assert!(is_run_of_bytes::<Html>());
        assert!(!is_run_of_bytes::<u64>() && !is_run_of_bytes::<User>());
        assert!(!is_run_of_bytes::<Vec<u64>>() && !is_run_of_bytes::<Option<String>>());
    }
}
