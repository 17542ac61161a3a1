//! Opens a map with what the program says of its values.

use super::Map;
use super::value::{Codec, Form, Schema, Undecodable, number_of};
use crate::data::DataHandle;
use crate::error::{ClientError, NodeError};
use doyen_placement::MapEntry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_reflection::{Tracer, TracerConfig};
use std::borrow::Cow;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;

/// Finds the map of a keyspace and a name.
pub(super) type Opened<'a, E> =
    Pin<Box<dyn Future<Output = Result<(MapEntry, DataHandle), E>> + Send + 'a>>;
type Open<'a, E> = Box<dyn FnOnce(String, String) -> Opened<'a, E> + Send + 'a>;

/// What cannot open a map with these options.
pub trait Refuse {
    /// Nothing happened, because of this.
    fn refused(why: String) -> Self;
}

impl Refuse for NodeError {
    fn refused(why: String) -> Self {
        Self::Refused(why)
    }
}

impl Refuse for ClientError {
    fn refused(why: String) -> Self {
        Self::Refused(why)
    }
}

/// A map that is about to be opened, from [`Node::map`](crate::Node::map) or
/// [`Client::map`](crate::Client::map). Await it.
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] struct User;
/// # async fn example(node: &doyen::Node) -> Result<(), doyen::NodeError> {
/// use doyen::{Codec, Map, Undecodable};
///
/// let users: Map<u64, User> = node
///     .map("users")
///     .keyspace("accounts")
///     .codec(Codec::Bincode)
///     .schema("user", 2)
///     .on_undecodable(Undecodable::Miss)
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "it is opened when it is awaited"]
pub struct OpenMap<'a, K, V, E> {
    open: Open<'a, E>,
    keyspace: String,
    name: String,
    codec: Codec,
    schema: Schema,
    undecodable: Undecodable,
    kinds: PhantomData<fn(K) -> V>,
}

impl<K, V, E> fmt::Debug for OpenMap<'_, K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenMap")
            .field("keyspace", &self.keyspace)
            .field("name", &self.name)
            .field("codec", &self.codec)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl<'a, K, V, E> OpenMap<'a, K, V, E> {
    pub(crate) fn new(
        keyspace: &str,
        name: &str,
        open: impl FnOnce(String, String) -> Opened<'a, E> + Send + 'a,
    ) -> Self {
        Self {
            open: Box::new(open),
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
            codec: Codec::default(),
            schema: Schema::None,
            undecodable: Undecodable::default(),
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
}

impl<'a, K, V, E> IntoFuture for OpenMap<'a, K, V, E>
where
    K: Serialize + 'a,
    V: Serialize + DeserializeOwned + 'a,
    E: Refuse + 'a,
{
    type Output = Result<Map<K, V>, E>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self {
            open,
            keyspace,
            name,
            codec,
            schema,
            undecodable,
            ..
        } = self;
        Box::pin(async move {
            let schema = match (codec, schema) {
                (Codec::Bincode, Schema::None) => fingerprint::<V>().map_err(|why| {
                    E::refused(format!(
                        "the map {name} cannot have the codec Bincode without a schema, because \
                         its type has no fingerprint ({why}): give it schema(NAME, VERSION), or \
                         the codec MessagePack"
                    ))
                })?,
                (_, schema) => schema,
            };
            let (entry, data) = open(keyspace, name).await?;
            let form = Form::new(entry.name.clone(), codec, schema, undecodable);
            Ok(Map::new(entry, data, form))
        })
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
