//! Clusters in the process of a test.

use doyen::testkit::{Local, TestkitError};
use doyen::{Cause, Departure, Error, Map, MapChange, Node};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

type Tested = Result<(), Box<dyn std::error::Error>>;

/// A limit that only a defect exceeds. A machine that has much else to do does not.
const PATIENCE: Duration = Duration::from_secs(60);

async fn map(node: &Node) -> Result<Map<u64, String>, Error> {
    node.map("notes").await
}

/// Waits until a node sees this many members.
async fn sees(node: &Node, members: usize) {
    let looking = async {
        while !(node.status().await).is_ok_and(|s| live(&s) == members) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, looking).await.is_err() {
        let status = node.status().await;
        panic!("{} does not see {members} members: {status:?}", node.name());
    }
}

/// Looks once whether this is done.
async fn is_done<T>(future: Pin<&mut impl Future<Output = T>>) -> bool {
    tokio::select! {
        biased;
        _ = future => true,
        () = std::future::ready(()) => false,
    }
}

fn live(status: &doyen::report::status::ClusterReport) -> usize {
    let members = status.members.iter();
    members.filter(|m| m.state == "live").count()
}

#[doyen::test(nodes = 3)]
async fn a_session_survives_a_node_and_ends_in_time(cluster: Local) -> Tested {
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

/// Prints how long the cluster of a test takes. A test must not judge it.
#[tokio::test]
async fn three_nodes_are_ready_together() -> Tested {
    let began = Instant::now();
    let cluster = Local::builder().nodes(3).backups(2).start().await?;
    println!("ready after {:?}", began.elapsed());
    for number in 0..3 {
        let report = cluster.node(number).status().await?;
        assert!(report.safe && report.members.len() == 3, "{report:?}");
        assert_eq!(report.keyspaces[0].partitions, 16);
        assert_eq!(report.keyspaces[0].backups, 2);
    }
    let ending = Instant::now();
    cluster.kill(2).await;
    println!("one node ended after {:?}", ending.elapsed());
    Ok(())
}

#[doyen::test(nodes = 3, backups = 1)]
async fn what_was_answered_survives_one_node_after_the_other(cluster: Local) -> Tested {
    let notes = map(&cluster.node(1)).await?;
    for id in 0..64 {
        notes.put(&id, &format!("note {id}")).await?;
    }
    for killed in [0, 1] {
        cluster.kill(killed).await;
        assert!(matches!(
            cluster.node(killed).closed().await,
            Err(Error::Closed)
        ));
        let joined = cluster.start_another().await?;
        cluster.await_safe(PATIENCE).await?;
        let notes = map(&cluster.node(joined)).await?;
        for id in 0..64 {
            assert_eq!(notes.get(&id).await?, Some(format!("note {id}")));
        }
    }
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn a_node_leaves_in_order(cluster: Local) -> Tested {
    let notes = map(&cluster.node(0)).await?;
    for id in 0..16 {
        notes.put(&id, &"kept".into()).await?;
    }
    assert_eq!(cluster.shutdown(2).await, Departure::Complete);
    cluster.await_safe(PATIENCE).await?;
    assert_eq!(cluster.node(1).status().await?.members.len(), 2);
    for id in 0..16 {
        assert_eq!(notes.get(&id).await?.as_deref(), Some("kept"));
    }
    Ok(())
}

/// A node that is held for longer than the others wait for it is silent, and has lost nothing when
/// it goes on.
#[doyen::test(nodes = 3)]
async fn a_paused_node_is_replaced_and_returns(cluster: Local) -> Tested {
    let (held, there) = (map(&cluster.node(2)).await?, map(&cluster.node(0)).await?);
    for id in 0..64 {
        held.put(&id, &"before".into()).await?;
    }
    cluster.pause(2).await;
    // It does nothing: an operation on it has no answer, however long the others take below.
    let mut waits = pin!(held.get(&1));
    assert!(!is_done(waits.as_mut()).await);
    sees(&cluster.node(0), 2).await;
    for id in 0..64 {
        there.put(&id, &"meanwhile".into()).await?;
    }
    assert!(!is_done(waits.as_mut()).await);
    cluster.resume(2);
    // A read that began before may be answered by a node that has joined again, and sees it all.
    let answer = tokio::time::timeout(PATIENCE, waits).await?;
    assert!(matches!(
        answer.as_ref().map(Option::as_deref),
        Ok(Some("meanwhile")) | Err(_)
    ));
    cluster.await_safe(PATIENCE).await?;
    for id in 0..64 {
        assert_eq!(held.get(&id).await?.as_deref(), Some("meanwhile"));
    }
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn a_node_that_is_paused_can_be_killed(cluster: Local) -> Tested {
    cluster.pause(1).await;
    cluster.kill(1).await;
    cluster.await_safe(PATIENCE).await?;
    assert_eq!(cluster.node(0).status().await?.members.len(), 2);
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn an_isolated_node_answers_nothing_old_and_returns(cluster: Local) -> Tested {
    let (apart, there) = (map(&cluster.node(0)).await?, map(&cluster.node(1)).await?);
    for id in 0..64 {
        apart.put(&id, &"before".into()).await?;
    }
    let mut changes = apart.subscribe().await?;
    cluster.isolate(0);
    sees(&cluster.node(1), 2).await;
    for id in 0..64 {
        there.put(&id, &"since".into()).await?;
    }
    // It led some of these keys, and knows that it may not answer now.
    let read = apart.get(&0).await;
    assert!(
        matches!(&read, Err(Error::Unavailable)),
        "an isolated node answered {read:?}"
    );
    cluster.heal();
    cluster.await_safe(PATIENCE).await?;
    for id in 0..64 {
        assert_eq!(apart.get(&id).await?.as_deref(), Some("since"));
    }
    // As another member, it goes on in the logs where it was.
    let mut told = BTreeSet::new();
    while told.len() < 64 {
        let change = tokio::time::timeout(PATIENCE, changes.next()).await?;
        match change.ok_or("the subscription ended")?? {
            MapChange::Updated { key, value, .. } => assert!(value == "since" && told.insert(key)),
            // A primary that came later does not have all of the log.
            MapChange::Lagged(count) => {
                assert!(count.is_none_or(|count| count > 0));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    Ok(())
}

/// Two nodes that do not reach each other are both members, and the coordinator carries their data.
#[doyen::test(nodes = 3)]
async fn two_nodes_that_are_cut_apart_go_on_through_the_third(cluster: Local) -> Tested {
    let (one, other) = (map(&cluster.node(1)).await?, map(&cluster.node(2)).await?);
    cluster.cut(1, 2);
    for id in 0..64 {
        let writes = async { while one.put(&id, &format!("{id}")).await.is_err() {} };
        tokio::time::timeout(PATIENCE, writes).await?;
    }
    for id in 0..64 {
        let reads = async {
            loop {
                if let Ok(read) = other.get(&id).await {
                    return read;
                }
            }
        };
        let read = tokio::time::timeout(PATIENCE, reads).await?;
        assert_eq!(read, Some(format!("{id}")));
    }
    cluster.heal();
    cluster.await_safe(PATIENCE).await?;
    Ok(())
}

/// A node that is heard, and hears nothing, does not count.
#[doyen::test(nodes = 3)]
async fn a_node_that_hears_nothing_is_out_until_it_hears_again(cluster: Local) -> Tested {
    let (deaf, there) = (map(&cluster.node(2)).await?, map(&cluster.node(0)).await?);
    deaf.put(&1, &"before".into()).await?;
    cluster.cut_one_way(0, 2);
    cluster.cut_one_way(1, 2);
    sees(&cluster.node(0), 2).await;
    there.put(&1, &"since".into()).await?;
    cluster.heal();
    cluster.await_safe(PATIENCE).await?;
    assert_eq!(deaf.get(&1).await?.as_deref(), Some("since"));
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn deadlines_pass_on_all_nodes_at_once_and_no_member_looks_silent(cluster: Local) -> Tested {
    let ttl = Duration::from_secs(3600);
    let nodes: Vec<Node> = (0..3).map(|number| cluster.node(number)).collect();
    let notes = map(&nodes[0]).await?;
    let before = nodes[0].status().await?;
    let mut changes = notes.subscribe().await?;
    for id in 0..64 {
        notes.put(&id, &"short".into()).ttl(ttl).await?;
        notes.put(&(100 + id), &"long".into()).ttl(3 * ttl).await?;
    }
    cluster.advance(ttl / 2).await;
    for node in &nodes {
        assert_eq!(map(node).await?.get(&1).await?.as_deref(), Some("short"));
    }
    cluster.advance(ttl).await;
    for node in &nodes {
        let notes = map(node).await?;
        for id in 0..64 {
            assert_eq!(notes.get(&id).await?, None, "{}", node.name());
            assert_eq!(notes.get(&(100 + id)).await?.as_deref(), Some("long"));
        }
    }
    // The subscriber hears what expired.
    let mut expired = 0;
    while expired < 64 {
        let change = tokio::time::timeout(PATIENCE, changes.next()).await?;
        let cause = Cause::Expired;
        let change = change.ok_or("the subscription ended")??;
        expired += usize::from(matches!(change, MapChange::Removed { cause: c, .. } if c == cause));
    }
    let after = nodes[0].status().await?;
    assert_eq!((after.term, live(&after)), (before.term, 3));
    // A node that joins later has the same clock.
    let joined = cluster.start_another().await?;
    let notes = map(&cluster.node(joined)).await?;
    notes.put(&500, &"new".into()).ttl(ttl).await?;
    assert_eq!(notes.get(&500).await?.as_deref(), Some("new"));
    cluster.await_safe(PATIENCE).await?;
    cluster.advance(ttl).await;
    assert_eq!(notes.get(&500).await?, None);
    assert_eq!(notes.get(&101).await?.as_deref(), Some("long"));
    cluster.kill(0).await;
    // The other copies have it, too.
    cluster.advance(ttl).await;
    assert_eq!(notes.get(&101).await?, None);
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn a_client_uses_the_cluster_and_its_clock(cluster: Local) -> Tested {
    let client = cluster.client().await?;
    assert!(client.is_client());
    let (outside, inside) = (map(&client).await?, map(&cluster.node(1)).await?);
    let ttl = Duration::from_secs(60);
    outside.put(&1, &"ada".into()).ttl(ttl).await?;
    assert_eq!(inside.get(&1).await?.as_deref(), Some("ada"));
    cluster.kill(0).await;
    assert_eq!(outside.get(&1).await?.as_deref(), Some("ada"));
    cluster.advance(ttl).await;
    assert_eq!(outside.get(&1).await?, None);
    Ok(())
}

#[tokio::test]
async fn two_clusters_of_one_process_do_not_meet() -> Tested {
    let build = || Local::builder().nodes(2).start();
    let (one, other) = tokio::try_join!(build(), build())?;
    map(&one.node(0)).await?.put(&1, &"one".into()).await?;
    map(&other.node(0)).await?.put(&1, &"other".into()).await?;
    one.advance(Duration::from_secs(3600)).await;
    for (cluster, note) in [(&one, "one"), (&other, "other")] {
        let notes = map(&cluster.node(1)).await?;
        assert_eq!(notes.get(&1).await?.as_deref(), Some(note));
    }
    let later = map(&other.node(0)).await?;
    later
        .put(&2, &"ttl".into())
        .ttl(Duration::from_secs(600))
        .await?;
    one.advance(Duration::from_secs(3600)).await;
    assert_eq!(later.get(&2).await?.as_deref(), Some("ttl"));
    drop(one);
    other.await_safe(PATIENCE).await?;
    Ok(())
}

#[tokio::test]
async fn all_nodes_end_with_the_cluster() -> Tested {
    let cluster = Local::builder().nodes(2).start().await?;
    let nodes = [cluster.node(0), cluster.node(1), cluster.client().await?];
    cluster.pause(1).await;
    drop(cluster);
    for node in nodes {
        let end = tokio::time::timeout(PATIENCE, node.closed()).await?;
        assert!(matches!(end, Err(Error::Closed)), "{end:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_wait_for_safety_says_what_is_missing() -> Tested {
    let cluster = Local::builder().nodes(2).start().await?;
    cluster.pause(1).await;
    let waits = cluster.await_safe(Duration::from_millis(50)).await;
    let Err(TestkitError::TimedOut { what, .. }) = waits else {
        return Err(format!("a paused node is safe: {waits:?}").into());
    };
    assert_eq!(what, "node-1 is paused: resume it");
    Ok(())
}

/// The nodes of a test that panics end before the test does.
#[test]
fn a_test_that_panics_leaves_no_node() {
    let (tell, told) = std::sync::mpsc::channel();
    let end = std::panic::catch_unwind(|| {
        doyen::testkit::run(Local::builder().nodes(1), async move |cluster: Local| {
            tell.send(cluster.node(0)).expect("it is received");
            panic!("as a failed assertion does")
        })
    });
    let why = end.expect_err("it panicked");
    assert_eq!(why.downcast_ref(), Some(&"as a failed assertion does"));
    let node = told.recv().expect("it was sent");
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let closed = runtime
        .expect("a runtime")
        .block_on(async { is_done(pin!(node.closed())).await });
    assert!(closed, "it still runs");
}

#[doyen::test(nodes = 1, backups = 0)]
#[should_panic(expected = "there is no node 1: 1 were started")]
async fn a_wrong_number_is_named(cluster: Local) {
    let _ = cluster.node(1);
}
