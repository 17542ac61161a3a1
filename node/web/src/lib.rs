//! Doyen for web services: what several processes of one service share, in the words of the crates
//! that they are built with.
//!
//! | feature | type | for |
//! |---|---|---|
//! | `sessions` | `Sessions` | the session store of `tower-sessions` |
//! | `axum` | `IdempotencyLayer` | a request with an `Idempotency-Key` runs once in the cluster |
//! | `axum` | `Failed` | `?` in handlers: each error of the grid is an answer |
//! | `tower` | `RateLimitLayer` | limits that the whole cluster counts |
//! | `cached` | `CachedMap` | functions that the crate `cached` remembers |
//!
//! No feature is on by default. Each adapter stands on a [`doyen::Map`] or a limiter that you open,
//! so it has the keyspace that you choose. docs/web.md has an example of each.

#[cfg(feature = "cached")]
mod cached;
#[cfg(feature = "axum")]
mod failed;
#[cfg(feature = "axum")]
pub mod idempotency;
#[cfg(feature = "problem")]
mod problem;
#[cfg(feature = "tower")]
pub mod rate_limit;
#[cfg(feature = "sessions")]
mod sessions;

#[cfg(feature = "cached")]
pub use cached::CachedMap;
#[cfg(feature = "axum")]
pub use failed::Failed;
#[cfg(feature = "axum")]
pub use idempotency::IdempotencyLayer;
#[cfg(feature = "tower")]
pub use rate_limit::RateLimitLayer;
#[cfg(feature = "sessions")]
pub use sessions::{Sessions, StoredSession};

/// The Rust code of docs/web.md compiles.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/web.md")]
    struct Web;
}
