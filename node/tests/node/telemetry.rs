//! What a node tells the monitoring of its host program.

use crate::embedded::{node_with, safe};
use doyen::Error;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use opentelemetry::trace::{SpanKind, TraceContextExt, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider};
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

/// The program has installed a recorder, and keeps an HTTP server of its own.
#[tokio::test]
async fn figures_of_operations_reach_the_recorder_of_the_program_and_the_text() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().expect("no other test installs one");
    let (one, other) = (
        node_with("told-1", &[], |b| b).await,
        node_with("told-2", &[], |b| b).await,
    );
    safe(&one, 1).await;
    let map = one.map::<u64, String>("users").await.expect("a map");
    for key in 0..3 {
        map.insert(&key, &"Ada".to_owned()).await.expect("stored");
    }
    one.report_metrics().await.expect("it runs");
    other.report_metrics().await.expect("it runs");
    // Looking takes the figures out of this recorder.
    let told = snapshotter.snapshot().into_vec();
    let find = |node: &str, name: &str| {
        let found = told.iter().find(|(key, ..)| {
            let mut labels = key.key().labels();
            key.key().name() == name && labels.any(|l| (l.key(), l.value()) == ("node", node))
        });
        let (_, unit, meaning, value) = found.unwrap_or_else(|| panic!("{name} of {node}"));
        assert!(unit.is_some() && meaning.is_some(), "{name} is described");
        value
    };
    let executed = "doyen_operations_executed_total";
    assert_eq!(find("told-1", executed), &DebugValue::Counter(3));
    assert_eq!(find("told-2", executed), &DebugValue::Counter(0));
    assert_eq!(find("told-1", "doyen_keys"), &DebugValue::Gauge(3.0.into()));
    assert_eq!(
        find("told-1", "doyen_members"),
        &DebugValue::Gauge(1.0.into())
    );

    let text = one.metrics_text().await.expect("it runs");
    assert!(
        text.contains("\ndoyen_operations_executed_total 3\n"),
        "{text}"
    );
    assert!(text.contains("\ndoyen_keys 3\n"), "{text}");

    one.kill().await;
    other.kill().await;
    assert!(matches!(one.metrics_text().await, Err(Error::Closed)));
    assert!(matches!(one.report_metrics().await, Err(Error::Closed)));
}

/// Keys. Each of two nodes leads some.
const KEYS: u64 = 32;

#[tokio::test]
async fn the_member_that_executes_a_call_goes_on_with_the_trace_of_its_caller() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    // The spans of other tests are dropped: data threads take only the global subscriber.
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).expect("no other test sets one");

    let one = node_with("traced-1", &[], |b| b).await;
    let other = node_with("traced-2", &[&one], |b| b).await;
    safe(&one, 2).await;
    let map = one.map::<u64, u64>("traced").await.expect("a map");
    let served = |trace| {
        let spans = exporter.get_finished_spans().expect("they are kept");
        let of_trace = spans
            .into_iter()
            .filter(|span| span.name == "doyen.serve" && span.span_context.trace_id() == trace);
        of_trace.collect::<Vec<_>>()
    };
    let use_all = async || {
        for key in 0..KEYS {
            map.insert(&key, &key).await.expect("stored");
            assert_eq!(map.get(&key).await.expect("read"), Some(key));
        }
    };

    let span = tracing::info_span!("request");
    let context = span.context().span().span_context().clone();
    use_all().instrument(span).await;
    let spans = served(context.trace_id());
    let operation = |name: &str| {
        let named = spans.iter().filter(|span| {
            let mut attributes = span.attributes.iter();
            attributes.any(|a| a.key.as_str() == "doyen.operation" && a.value.as_str() == name)
        });
        named.count()
    };
    // Those for which the caller's node leads have no span of their own.
    assert_eq!(operation("read"), operation("write"));
    assert!((1..KEYS as usize).contains(&operation("read")), "{spans:?}");
    for span in &spans {
        assert_eq!(span.parent_span_id, context.span_id());
        assert!(span.parent_span_is_remote && span.span_kind == SpanKind::Server);
    }

    // Neither a caller without a span nor one whose trace is not sampled causes spans.
    let before = exporter.get_finished_spans().expect("they are kept").len();
    use_all().await;
    let unsampled = opentelemetry::trace::SpanContext::new(
        opentelemetry::trace::TraceId::from(7),
        opentelemetry::trace::SpanId::from(7),
        opentelemetry::trace::TraceFlags::default(),
        true,
        opentelemetry::trace::TraceState::default(),
    );
    let span = tracing::info_span!("request");
    let parent = opentelemetry::Context::new().with_remote_span_context(unsampled);
    span.set_parent(parent).expect("the layer is there");
    use_all().instrument(span).await;
    let after = exporter.get_finished_spans().expect("they are kept");
    let served = after[before..]
        .iter()
        .filter(|span| span.name == "doyen.serve");
    assert_eq!(served.count(), 0);

    one.kill().await;
    other.kill().await;
}
