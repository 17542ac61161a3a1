//! The high scores of a game whose players are on several servers: each server embeds a node.
//!
//! ```text
//!   players ──> server "north" ── node ─┐
//!                                       ├── sorted sets: "best" score and "games" of each player
//!   players ──> server "south" ── node ─┘
//! ```
//!
//! Start it: `cargo run -p doyen-examples --bin leaderboard`. It plays some hundred games on both
//! servers, prints the board of each, and ends.

use doyen::{Error, Node, SortedSet};
use doyen_examples::two_nodes;

const PLAYERS: [&str; 6] = ["ada", "alan", "barbara", "edsger", "grace", "john"];
/// Games that each player plays on each server.
const GAMES: u64 = 50;

/// What players have reached.
#[derive(Debug, Clone)]
struct Scores {
    best: SortedSet<String>,
    games: SortedSet<String>,
}

impl Scores {
    async fn open(node: &Node) -> Result<Self, Error> {
        Ok(Self {
            best: node.sorted_set("best").await?,
            games: node.sorted_set("games").await?,
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let [north, south] = two_nodes().await?;
    let servers = [Scores::open(&north).await?, Scores::open(&south).await?];

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
        for (place, (player, best)) in scores.best.rev_range(0..3).await?.into_iter().enumerate() {
            let games = scores.games.score(&player).await?.unwrap_or_default();
            println!("  {}. {player}: {best} points in {games} games", place + 1);
        }
    }
    south.shutdown().await;
    north.shutdown().await;
    Ok(())
}

async fn play(scores: Scores, server: usize, player: usize) -> Result<(), Error> {
    for game in 0..GAMES {
        let points = points(server as u64, player as u64, game);
        // Each of these is one operation at the primary, so servers that change the same player at
        // the same time lose no game and no best score.
        scores.best.raise(PLAYERS[player], points as f64).await?;
        scores.games.increment(PLAYERS[player], 1.0).await?;
    }
    Ok(())
}

/// Stands for a game: points that look random, and are the same in each run.
fn points(server: u64, player: u64, game: u64) -> u64 {
    let mixed = (server * 31 + player * 7 + game + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) % 10_000
}
