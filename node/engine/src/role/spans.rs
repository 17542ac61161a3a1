//! Spans of operations that another process asked for: each is a child of its caller's span.
//!
//! ```text
//!   trace, submit ──> dispatch ── Traced, Forward ──> announced ── executed ──> serving
//!                                                                  answered ──> the span ends
//! ```
//!
//! The shell says which operations of its callers have a sampled context. The context travels in a
//! frame of its own before the call, so calls without one cost nothing but a look at an empty map.
//! The shell makes the span: this module only holds it. What is lost is a span, never an operation,
//! so nothing here is repeated or acknowledged.
//!

use crate::command::operation::Work;
use crate::wire::frame::Forwarded;
use crate::wire::trace::TraceContext;
use doyen_gossip::Time;
use doyen_placement::{MemberId, PartitionRef};
use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

/// Spans of one thread at a time. Further operations have none.
const SERVING_MAX: usize = 4096;
/// A call without an answer was dropped long before: its origin gives up after 5 s.
const SERVING_FOR: Duration = Duration::from_secs(10);

/// A span of the shell, which ends when this is dropped.
pub type Span = Box<dyn Any + Send>;

/// Begins the span of an operation of this name, as a child of that span.
pub type Serve = fn(&TraceContext, &'static str) -> Span;

/// A call of a peer, by its number there.
type Served = (MemberId, PartitionRef, u64);

/// The spans of operations that peers asked for.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    serve: Option<Serve>,
    /// The last context of each peer, until its call arrives.
    announced: BTreeMap<MemberId, (PartitionRef, u64, TraceContext)>,
    /// The spans of peers' calls, and when each began.
    serving: BTreeMap<Served, (Time, Span)>,
}

impl Traces {
    pub(crate) fn set_serve(&mut self, serve: Serve) {
        self.serve = Some(serve);
    }

    /// The peer's call of this number was answered.
    pub(crate) fn served(&mut self, peer: MemberId, at: PartitionRef, n: u64) {
        if !self.serving.is_empty() {
            self.serving.remove(&(peer, at, n));
        }
    }

    /// The peer is gone.
    pub(crate) fn disconnected(&mut self, peer: MemberId) {
        self.announced.remove(&peer);
        self.serving.retain(|(of, ..), _| *of != peer);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.announced.is_empty() && self.serving.is_empty()
    }

    /// A call follows that has this context.
    pub(crate) fn announced(
        &mut self,
        peer: MemberId,
        at: PartitionRef,
        n: u64,
        context: TraceContext,
    ) {
        if self.serve.is_some() {
            self.announced.insert(peer, (at, n, context));
        }
    }

    /// A peer's call is accepted: its span begins, if it has a context.
    pub(crate) fn begin_serving(
        &mut self,
        now: Time,
        peer: MemberId,
        forwarded: &Forwarded,
        name: impl FnOnce() -> &'static str,
    ) {
        if self.announced.is_empty() {
            return;
        }
        let (Some((at, n, context)), Some(serve)) = (self.announced.remove(&peer), self.serve)
        else {
            return;
        };
        if (at, n) == (forwarded.at, forwarded.n) && self.serving.len() < SERVING_MAX {
            let span = serve(&context, name());
            self.serving.insert((peer, at, n), (now, span));
        }
    }

    /// Ends the spans of calls that were dropped without an answer.
    pub(crate) fn sweep(&mut self, now: Time) {
        self.serving
            .retain(|_, (began, _)| now.since(*began) < SERVING_FOR);
    }
}

/// What a span says of an operation.
pub(crate) fn name(work: &Work) -> &'static str {
    match work {
        Work::Key(_) if work.is_write() => "write",
        Work::Key(_) => "read",
        Work::Partition(_) => "partition",
        Work::Transaction(_) => "transaction",
        Work::Script(_) => "script",
    }
}
