//! A kill test in one process: sessions outlive the node that took them, and not their time.

use std::time::Duration;

#[doyen::test(nodes = 3)]
async fn a_session_survives_a_node(cluster: doyen::testkit::Local) -> anyhow::Result<()> {
    let sessions = cluster.node(0).map::<u64, String>("sessions").await?;
    sessions
        .put(&7, &"ada".into())
        .ttl(Duration::from_secs(60))
        .await?;
    cluster.kill(0).await;
    let there = cluster.node(1).map::<u64, String>("sessions").await?;
    assert_eq!(there.get(&7).await?.as_deref(), Some("ada"));
    cluster.advance(Duration::from_secs(61)).await;
    assert_eq!(there.get(&7).await?, None);
    Ok(())
}
