//! The adapters with real nodes on real sockets, in the process of the test.

mod cached;
mod http;
mod idempotency;
mod rate_limit;
mod sessions;
