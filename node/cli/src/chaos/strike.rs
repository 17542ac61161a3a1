//! Carries a fault out, and ends it: afterwards every node runs that should, and the network is
//! whole. Whether all is safe is for others to wait for.

use super::Shared;
use super::end::End;
use super::plan::{Aim, Episode, Kind};
use doyen::testkit::{Cluster, TestkitError};
use std::cell::Cell;
use std::time::Instant;

/// Begins it, waits, ends it; not much later than the run. Says whether it lasted as long as it
/// should.
///
/// # Errors
/// A node does not do what it is told, or ends unasked.
pub(super) async fn strike(
    episode: &Episode,
    aim: &Aim,
    cluster: &mut Cluster,
    book: &Shared,
    end: &End,
) -> Result<bool, TestkitError> {
    let nodes = &aim.nodes;
    let (a, b) = (
        nodes.first().copied().unwrap_or_default(),
        nodes.get(1).copied().unwrap_or_default(),
    );
    let others = || nodes.iter().copied().filter(move |node| *node != a);
    let whole = Cell::new(true);
    let wait = async {
        // Not for long beyond the end, where that is near.
        let (began, left) = (Instant::now(), end.left().max(episode.span / 4));
        end.sleep(episode.span.min(left)).await;
        whole.set(began.elapsed() >= episode.span);
    };
    cluster.degrade(episode.links);
    match episode.kind {
        Kind::Kill | Kind::KillCoordinator | Kind::KillTwo => {
            let victims = if episode.kind == Kind::KillTwo {
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
        Kind::Pause => {
            book.borrow_mut().excused.insert(a);
            cluster.pause(a);
            wait.await;
            cluster.resume(a);
        }
        Kind::Restart => {
            leave(cluster, book, a).await?;
            wait.await;
            cluster.start(a).await?;
        }
        Kind::Leave => leave(cluster, book, a).await?,
        Kind::Join => drop(cluster.join().await?),
        Kind::CutOneWay => {
            cluster.cut_one_way(a, b);
            wait.await;
        }
        Kind::CutPair => {
            cluster.cut(a, b);
            wait.await;
        }
        Kind::CutPlane => {
            cluster.cut_plane(a, b, aim.plane);
            cluster.cut_plane(b, a, aim.plane);
            wait.await;
        }
        Kind::Isolate | Kind::Mute | Kind::Deafen => {
            // Nobody can serve its clients.
            book.borrow_mut().excused.insert(a);
            for other in others() {
                if episode.kind != Kind::Deafen {
                    cluster.cut_one_way(a, other);
                }
                if episode.kind != Kind::Mute {
                    cluster.cut_one_way(other, a);
                }
            }
            wait.await;
        }
        Kind::Loss
        | Kind::Delay
        | Kind::Duplicate
        | Kind::Reorder
        | Kind::Corrupt
        | Kind::Bandwidth
        | Kind::BlackHole => wait.await,
    }
    cluster.heal();
    book.borrow_mut().see(cluster);
    cluster.check().map(|()| whole.get())
}

/// A node leaves in order, which is more than that its process ends.
async fn leave(cluster: &mut Cluster, book: &Shared, node: usize) -> Result<(), TestkitError> {
    // What it answers while it leaves counts; that it is gone afterwards does not.
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
