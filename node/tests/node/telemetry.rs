//! What a node tells the monitoring of its host program.

use crate::embedded::{node_with, safe};
use doyen::Error;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

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
