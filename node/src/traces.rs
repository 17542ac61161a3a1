//! Spans across processes, for programs whose spans of `tracing` go to OpenTelemetry
//! (`tracing-opentelemetry`).
//!
//! `tracing` has no ids that mean anything to another process. The layer of `tracing-opentelemetry`
//! gives each span those of W3C (`traceparent`). A caller's are read when its operation begins, and
//! travel with the call if another member executes it; see `traces.rs` of the engine.

use doyen_engine::TraceContext;

/// The context of the caller's span; `None`: there is none, or its trace is not sampled.
#[cfg(feature = "otel")]
pub(crate) fn current() -> Option<Box<TraceContext>> {
    use opentelemetry::trace::TraceContextExt;
    use tracing_opentelemetry::OpenTelemetrySpanExt;
    let span = tracing::Span::current();
    // Without a subscriber, and outside of spans, this is all.
    if span.is_none() {
        return None;
    }
    let context = span.context();
    let span = context.span();
    let found = span.span_context();
    (found.is_valid() && found.is_sampled()).then(|| {
        Box::new(TraceContext {
            trace: found.trace_id().to_bytes(),
            span: found.span_id().to_bytes(),
            flags: found.trace_flags().to_u8(),
        })
    })
}

/// Without the feature `otel`, no operation has a context.
#[cfg(not(feature = "otel"))]
pub(crate) const fn current() -> Option<Box<TraceContext>> {
    None
}

/// Begins the span of an operation that another process asked for.
#[cfg(feature = "otel")]
pub(crate) fn serve(
    context: &TraceContext,
    operation: &'static str,
) -> Box<dyn std::any::Any + Send> {
    use opentelemetry::Context;
    use opentelemetry::trace::{
        SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState,
    };
    use tracing_opentelemetry::OpenTelemetrySpanExt;
    let parent = SpanContext::new(
        TraceId::from_bytes(context.trace),
        SpanId::from_bytes(context.span),
        TraceFlags::new(context.flags),
        true,
        TraceState::default(),
    );
    let span = tracing::info_span!(
        parent: None,
        "doyen.serve",
        otel.kind = "server",
        doyen.operation = operation,
    );
    // A program without the layer of tracing-opentelemetry has no parents.
    let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    Box::new(span)
}
