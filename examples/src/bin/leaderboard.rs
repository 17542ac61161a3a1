//! The high scores of a game whose players are on several servers: each server embeds a node.
//!
//! ```text
//!   players ──> server "north" ── node ─┐
//!                                       ├── one map, "scores": the best score of each player
//!   players ──> server "south" ── node ─┘
//! ```
//!
//! Start it: `cargo run -p doyen-examples --bin leaderboard`. It plays some hundred games on both
//! servers, prints the board of each, and ends.

use doyen::{Error, Map};
use doyen_examples::two_nodes;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

const PLAYERS: [&str; 6] = ["ada", "alan", "barbara", "edsger", "grace", "john"];
/// Games that each player plays on each server.
const GAMES: u64 = 50;

/// What a player has reached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Score {
    best: u64,
    games: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let [north, south] = two_nodes().await?;
    let servers: [Map<String, Score>; 2] = [north.map("scores").await?, south.map("scores").await?];

    // All players play on both servers at the same time.
    let mut playing = tokio::task::JoinSet::new();
    for (server, scores) in servers.iter().enumerate() {
        for player in 0..PLAYERS.len() {
            playing.spawn(play(scores.clone(), server, player));
        }
    }
    while let Some(played) = playing.join_next().await {
        played??;
    }

    for (node, scores) in [&north, &south].into_iter().zip(&servers) {
        println!("the board of {}:", node.name());
        for (place, (player, score)) in top(scores, 3).await?.into_iter().enumerate() {
            let Score { best, games } = score;
            println!("  {}. {player}: {best} points in {games} games", place + 1);
        }
    }
    south.shutdown().await;
    north.shutdown().await;
    Ok(())
}

async fn play(scores: Map<String, Score>, server: usize, player: usize) -> Result<(), Error> {
    for game in 0..GAMES {
        let points = points(server as u64, player as u64, game);
        // If the other server writes the same player meanwhile, this is done again with what it
        // wrote: no game is lost.
        let played = |score: Option<&Score>| {
            let before = score.cloned().unwrap_or_default();
            Some(Score {
                best: before.best.max(points),
                games: before.games + 1,
            })
        };
        scores.update(PLAYERS[player], played).await?;
    }
    Ok(())
}

/// The best players, best first.
async fn top(scores: &Map<String, Score>, count: usize) -> Result<Vec<(String, Score)>, Error> {
    let (mut board, mut all) = (Vec::new(), scores.iter());
    while let Some(entry) = all.next().await? {
        board.push(entry);
    }
    board.sort_by_key(|(player, score)| (Reverse(score.best), player.clone()));
    // While partitions split, an entry may come twice.
    board.dedup();
    board.truncate(count);
    Ok(board)
}

/// Stands for a game: points that look random, and are the same in each run.
fn points(server: u64, player: u64, game: u64) -> u64 {
    let mixed = (server * 31 + player * 7 + game + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) % 10_000
}
