//! What the library asks of its typed sets, sorted sets and lists, and what the outcomes say. The
//! procedures are those of Redis's commands; here they are called without texts.
//!
//! ```text
//!   doyen: node.set("x") ── insert ──> set_calls::add ──> Action ──> primary ──> Outcome
//!   Redis: SADD x ... ────────────────> sets::ROWS ─────────────┘
//! ```
//! Elements are runs of bytes. The library decides how they are encoded.

pub mod list_calls;
pub mod set_calls;
pub mod sorted_set_calls;

#[cfg(test)]
mod tests;
