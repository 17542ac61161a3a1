//! The adapters with real nodes on real sockets, two in one process.

mod cached;
mod embedded;
mod http;
mod idempotency;
mod rate_limit;
mod sessions;
