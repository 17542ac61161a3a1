//! Programs to copy. Each is one file in `src/bin`. This file has what they share.

use axum::Router;
use doyen::Node;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How long requests in flight may take to end.
const FINISH_MAX: Duration = Duration::from_secs(10);

/// How long two nodes may take to become a cluster.
const SAFE_MAX: Duration = Duration::from_secs(30);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Two nodes of one cluster, in this process. Each holds a copy of every entry.
///
/// # Errors
/// A node cannot start, or the cluster is not there in 30 s.
pub async fn two_nodes() -> anyhow::Result<[Node; 2]> {
    let north = node("north", &[]).await?;
    let south = node("south", &[&north]).await?;
    safe(&north, 2).await?;
    Ok([north, south])
}

/// A node that looks for these, on ports that the system chooses. In production its process has one
/// node, which has `seeds` on other machines, and a `secret`.
///
/// # Errors
/// The node cannot start.
pub async fn node(name: &str, seeds: &[&Node]) -> Result<Node, doyen::Error> {
    let seeds = seeds
        .iter()
        .map(|seed| seed.addresses().control.to_string());
    Node::builder()
        .name(name)
        .listen("127.0.0.1:0")
        .seeds(seeds)
        .start()
        .await
}

/// Waits until a cluster has this many members, and every entry its copies. A service does not need
/// that: its maps work before. These examples end nodes on purpose.
///
/// # Errors
/// It takes longer than 30 s.
pub async fn safe(node: &Node, members: usize) -> anyhow::Result<()> {
    let looking = async {
        loop {
            match node.status().await {
                Ok(status) if status.safe && status.members.len() == members => return,
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    };
    tokio::time::timeout(SAFE_MAX, looking)
        .await
        .map_err(|_| anyhow::anyhow!("the cluster is not there in {SAFE_MAX:?}"))
}

/// Serves until `stop`, and then answers the requests in flight, for ten seconds at most. A service
/// leaves its cluster after that: a node that leaves first would fail those requests.
///
/// # Errors
/// The listener is broken.
pub async fn serve_until(
    listener: TcpListener,
    app: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (stopping, stopped) = oneshot::channel();
    let stop = async move {
        stop.await;
        let _ = stopping.send(());
    };
    let too_late = async {
        // If the other end is dropped, serving has ended.
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(FINISH_MAX).await;
    };
    tokio::select! {
        served = axum::serve(listener, app).with_graceful_shutdown(stop) => served,
        () = too_late => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::Notify;

    /// A request that was in flight when the service was told to stop lost its connection.
    #[tokio::test]
    async fn a_request_in_flight_is_answered_before_serving_ends() {
        let (asked, go_on, stop) = (
            Arc::new(Notify::new()),
            Arc::new(Notify::new()),
            Arc::new(Notify::new()),
        );
        let (came, may_end) = (asked.clone(), go_on.clone());
        let slow = async move || {
            came.notify_one();
            may_end.notified().await;
            "done"
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("known");
        let told = stop.clone();
        let serving = serve_until(listener, Router::new().route("/", get(slow)), async move {
            told.notified().await
        });
        let serving = tokio::spawn(serving);
        let mut client = TcpStream::connect(at).await.expect("it serves");
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .expect("written");
        asked.notified().await;
        stop.notify_one();
        // Once connections are refused, the service knows that it must stop.
        while TcpStream::connect(at).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!serving.is_finished());
        go_on.notify_one();
        let mut answer = String::new();
        client
            .read_to_string(&mut answer)
            .await
            .expect("it is answered, then closed");
        assert!(answer.ends_with("done"), "{answer}");
        serving.await.expect("no panic").expect("it ends well");
    }
}
