//! The contexts of callers' spans, and the spans of the members that execute their calls.

use super::*;
use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What `serve` was told, and how many of its spans have not ended. `serve` is a plain function, so
/// all tests of this file share this, one after the other.
static SERVED: Mutex<(Vec<(TraceContext, &str)>, usize)> = Mutex::new((Vec::new(), 0));
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn served() -> MutexGuard<'static, (Vec<(TraceContext, &'static str)>, usize)> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Span;

impl Drop for Span {
    fn drop(&mut self) {
        served().1 -= 1;
    }
}

fn serve(context: &TraceContext, operation: &'static str) -> Box<dyn Any + Send> {
    let mut served = served();
    served.0.push((*context, operation));
    served.1 += 1;
    Box::new(Span)
}

fn context(span: u8) -> TraceContext {
    TraceContext {
        trace: [7; 16],
        span: [span; 8],
        flags: 1,
    }
}

/// Node 1 leads, node 2 has the copies, and node 3 asks.
fn world(seed: u64) -> (World, MutexGuard<'static, ()>) {
    let alone = ONE_AT_A_TIME.lock();
    let alone = alone.unwrap_or_else(PoisonError::into_inner);
    *served() = (Vec::new(), 0);
    let mut w = World::new(seed, 3, |_| vec![1, 2]);
    for node in w.nodes.values_mut() {
        node.shard.set_serve(serve);
    }
    w.settle(Duration::from_millis(50));
    (w, alone)
}

fn submit_traced(w: &mut World, n: u64, span: u8, action: Action) -> CallToken {
    let token = w.next_token;
    w.nodes
        .get_mut(&n)
        .unwrap()
        .shard
        .trace(token, context(span));
    let operation = Operation {
        keyspace: KeyspaceId(0),
        map: MapId(0),
        key: key_of(0).into(),
        action,
    };
    w.submit_work(n, operation)
}

/// No node keeps anything of calls that are over.
fn check_kept(w: &World) {
    assert_eq!(served().1, 0, "every span has ended");
    for node in w.nodes.values() {
        assert!(node.shard.cx.host.traces.is_empty());
        assert!(!node.shard.cx.host.callers.is_tracing());
    }
}

#[test]
fn a_span_lasts_from_the_call_to_its_answer() {
    let (mut w, _alone) = world(41);
    w.released = false;
    let write = submit_traced(&mut w, 3, 1, set("v"));
    w.settle(Duration::from_millis(50));
    assert_eq!(
        *served(),
        (vec![(context(1), "write")], 1),
        "it is not answered"
    );
    w.released = true;
    assert_eq!(w.outcome(write), Outcome::Ok);
    let read = submit_traced(&mut w, 3, 2, Action::Get);
    assert_eq!(w.outcome(read), text("v"));
    // Calls without a context, and those of the primary's own callers, have no span.
    assert_eq!(w.get(3, &key_of(0)), text("v"));
    let own = submit_traced(&mut w, 1, 3, Action::Get);
    assert_eq!(w.outcome(own), text("v"));
    assert_eq!(served().0, [(context(1), "write"), (context(2), "read")]);
    check_kept(&w);
}

#[test]
fn a_call_that_is_sent_again_has_its_context_again() {
    let (mut w, _alone) = world(42);
    w.disconnect(1, 3);
    w.disconnect(2, 3);
    let write = submit_traced(&mut w, 3, 1, set("v"));
    w.settle(Duration::from_millis(50));
    assert!(served().0.is_empty(), "it waits at its origin");
    w.connect(1, 3);
    w.connect(2, 3);
    w.released = false;
    w.settle(Duration::from_millis(50));
    assert_eq!(served().0, [(context(1), "write")]);
    w.kill(1);
    w.released = true;
    w.propose(|t| {
        remove(t, 1);
        (0..4).for_each(|p| promote(t, PartitionId(p), 2));
    });
    w.settle(Duration::from_millis(900));
    assert_eq!(w.outcome(write), Outcome::Ok);
    assert_eq!(served().0, [(context(1), "write"), (context(1), "write")]);
    w.nodes.remove(&1); // with the span of its unanswered call
    check_kept(&w);
}

#[test]
fn a_peer_that_goes_takes_its_spans_with_it() {
    let (mut w, _alone) = world(43);
    w.released = false;
    submit_traced(&mut w, 3, 1, set("v"));
    w.settle(Duration::from_millis(50));
    assert_eq!(served().1, 1);
    w.disconnect(1, 3);
    assert_eq!(served().1, 0);
}
