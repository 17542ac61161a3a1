//! How a span goes on in another process.

use serde::{Deserialize, Serialize};

/// What a span passes on to its children in other processes, as in the `traceparent` of W3C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// The trace.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
    /// Flags; bit 0: the trace is sampled.
    pub flags: u8,
}
