//! Watches the cluster as `doyen status` and `doyen table` do, and updates the scene.

use super::SharedScene;
use doyen::http::api;
use std::time::Duration;

/// Time between two requests.
const LOOK: Duration = Duration::from_millis(50);
/// How long a node may take to answer; then the next one is asked.
const ANSWER_MAX: Duration = Duration::from_millis(700);
/// One in this many requests also asks for the table, which is large.
const TABLE_EVERY: u32 = 4;

/// Watches until the demo ends.
pub(super) async fn run(scene: SharedScene) {
    let mut turn = 0_usize;
    let mut looks = 0_u32;
    loop {
        let client = {
            let scene = scene.borrow();
            let nodes = &scene.observed;
            let at = turn.checked_rem(nodes.len());
            at.and_then(|i| nodes.get(i)).cloned()
        };
        if let Some(client) = client {
            match tokio::time::timeout(ANSWER_MAX, client.ask(&api::STATUS)).await {
                Ok(Ok(report)) => {
                    // A node that knows no coordinator may be cut off: ask the next one.
                    turn += usize::from(report.coordinator.is_none());
                    scene.borrow_mut().see(report);
                }
                _ => turn += 1,
            }
            if looks.is_multiple_of(TABLE_EVERY)
                && let Ok(Ok(table)) =
                    tokio::time::timeout(ANSWER_MAX, client.ask(&api::TABLE)).await
            {
                scene.borrow_mut().see_table(&table);
            }
            looks = looks.wrapping_add(1);
        }
        tokio::time::sleep(LOOK).await;
    }
}
