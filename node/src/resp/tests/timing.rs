//! Latencies of commands, as a node counts them.

use super::*;
use crate::data::latency::{CommandFamily, LatencyCounts};

async fn latencies(node: &Node) -> [LatencyCounts; 5] {
    let latency = node.handle.stats().await.command_latency;
    CommandFamily::ALL.map(|(family, _)| *latency.of(family))
}

async fn counted(node: &Node) -> [u64; 5] {
    latencies(node).await.map(|counts| counts.total())
}

#[tokio::test]
async fn every_reply_is_counted_once_in_its_family() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    let lines = [
        "GET a",
        "SET a 1",
        "GET a",
        "PING",
        "INCR a",
        "EVAL return{1} 0",
        "MULTI",
        "SET a 2",
        "EXEC",
        "NOSUCH",
        "WAIT 0 1",
        "MGET a b",
    ];
    client.pipeline(&lines.map(words)).await.unwrap();
    // WAIT waits on purpose. SET is queued: its reply is one of the transaction.
    assert_eq!(counted(&node).await, [3, 2, 1, 3, 2]);
    for line in lines {
        ask(&mut client, line).await;
    }
    assert_eq!(counted(&node).await, [6, 4, 2, 6, 4]);
    ask(&mut client, "SUBSCRIBE a").await;
    assert_eq!(counted(&node).await, [6, 4, 2, 6, 4]);
    node.stop().await;
}

/// They were encoded in the pass in which they came, and left many passes later.
#[tokio::test]
async fn replies_that_were_taken_back_count_once_and_with_their_whole_time() {
    const AT_LEAST: Duration = Duration::from_millis(50);
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    node.shared.extend_lease(Time::ZERO);
    let commands = ["GET a", "PING", "GET b", "SET a 3", "GET a", "PING"].map(words);
    let replies = client.pipeline(&commands);
    let mut replies = std::pin::pin!(replies);
    let stats = || async { node.handle.stats().await.front.commands };
    let came = async { while stats().await < commands.len() as u64 {} };
    tokio::select! {
        replies = &mut replies => panic!("there is no lease: {replies:?}"),
        () = came => {}
    }
    assert!(tokio::time::timeout(AT_LEAST, &mut replies).await.is_err());
    node.shared.extend_lease(Time(u64::MAX));
    assert_eq!(replies.await.unwrap().len(), commands.len());
    assert_eq!(counted(&node).await, [3, 1, 0, 0, 2]);
    for counts in latencies(&node).await {
        let shortest = counts.quantile(0.0);
        // The shortest time of its class is at least half of it.
        assert!(shortest.is_none_or(|shortest| shortest >= AT_LEAST / 2));
    }
    node.stop().await;
}

#[tokio::test]
async fn operations_of_the_library_are_counted() {
    let node = Node::start(None, 10);
    for action in [Action::set("1".into()), Action::Get, Action::Get] {
        node.handle.execute(operation(action)).await;
    }
    let native = node.handle.stats().await.native_latency;
    let of = |family| native.of(family).total();
    assert_eq!((of(CommandFamily::Read), of(CommandFamily::Write)), (2, 1));
    assert_eq!(native.all().total(), 3);
    node.stop().await;
}
