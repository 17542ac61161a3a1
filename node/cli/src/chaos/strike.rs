//! Carries out a fault and ends it. Afterwards every node runs that should, and the network is
//! whole. The caller waits until all data is safe.

use super::SharedBook;
use super::end::ChaosEnd;
use super::plan::{Aim, Episode, FaultKind};
use doyen::testkit::{Cluster, TestkitError};
use std::cell::Cell;
use std::time::Instant;

/// Begins the fault, waits, and ends it, at the latest shortly after the end of the run. Returns
/// whether the fault lasted its full time.
///
/// # Errors
/// A node does not obey, or ends by itself.
pub(super) async fn strike(
    episode: &Episode,
    aim: &Aim,
    cluster: &mut Cluster,
    book: &SharedBook,
    end: &ChaosEnd,
) -> Result<bool, TestkitError> {
    let nodes = &aim.nodes;
    let (a, b) = (
        nodes.first().copied().unwrap_or_default(),
        nodes.get(1).copied().unwrap_or_default(),
    );
    let others = || nodes.iter().copied().filter(move |node| *node != a);
    let whole = Cell::new(true);
    let wait = async {
        // If the end of the run is near, the fault ends soon after it.
        let (began, left) = (Instant::now(), end.left().max(episode.span / 4));
        end.sleep(episode.span.min(left)).await;
        whole.set(began.elapsed() >= episode.span);
    };
    cluster.degrade(episode.links);
    match episode.kind {
        FaultKind::Kill | FaultKind::KillCoordinator | FaultKind::KillTwo => {
            let victims = if episode.kind == FaultKind::KillTwo {
                vec![a, b]
            } else {
                vec![a]
            };
            book.borrow_mut().excused.extend(&victims);
            victims.iter().for_each(|victim| cluster.kill(*victim));
            wait.await;
            for victim in victims {
                cluster.start(victim).await?;
            }
        }
        FaultKind::Pause => {
            book.borrow_mut().excused.insert(a);
            cluster.pause(a);
            wait.await;
            cluster.resume(a);
        }
        FaultKind::Restart => {
            leave(cluster, book, a).await?;
            wait.await;
            cluster.start(a).await?;
        }
        FaultKind::Leave => leave(cluster, book, a).await?,
        FaultKind::Join => drop(cluster.join().await?),
        FaultKind::CutOneWay => {
            cluster.cut_one_way(a, b);
            wait.await;
        }
        FaultKind::CutPair => {
            cluster.cut(a, b);
            wait.await;
        }
        FaultKind::CutPlane => {
            cluster.cut_plane(a, b, aim.plane);
            cluster.cut_plane(b, a, aim.plane);
            wait.await;
        }
        FaultKind::Isolate | FaultKind::Mute | FaultKind::Deafen => {
            // No other node can serve its clients.
            book.borrow_mut().excused.insert(a);
            for other in others() {
                if episode.kind != FaultKind::Deafen {
                    cluster.cut_one_way(a, other);
                }
                if episode.kind != FaultKind::Mute {
                    cluster.cut_one_way(other, a);
                }
            }
            wait.await;
        }
        FaultKind::Loss
        | FaultKind::Delay
        | FaultKind::Duplicate
        | FaultKind::Reorder
        | FaultKind::Corrupt
        | FaultKind::Bandwidth
        | FaultKind::BlackHole => wait.await,
    }
    cluster.heal();
    book.borrow_mut().see(cluster);
    cluster.check().map(|()| whole.get())
}

/// Makes a node leave in order; a process that merely ends is an error.
async fn leave(cluster: &mut Cluster, book: &SharedBook, node: usize) -> Result<(), TestkitError> {
    // Answers that the node gives while it leaves count. Its absence afterwards does not.
    let left = cluster.stop(node).await;
    book.borrow_mut().excused.insert(node);
    let status = left?;
    if status.success() {
        return Ok(());
    }
    Err(TestkitError::Unanswered {
        name: cluster.name(node).to_owned(),
        why: format!("it left with {status}, not in order"),
    })
}
