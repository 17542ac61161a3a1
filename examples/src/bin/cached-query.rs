//! Queries of a database that each run once for the whole cluster.
//!
//! ```text
//!   20 requests ──> "north" ── node ─┐
//!                                    ├── one cache, "products" ── one query ──> SQLite
//!   20 requests ──> "south" ── node ─┘
//! ```
//!
//! Start it: `cargo run -p doyen-examples --bin cached-query`. The database is in memory.

use doyen::{Cache, Error};
use doyen_examples::two_nodes;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Product {
    name: String,
    cents: i64,
}

/// The database, and how often it was asked.
#[derive(Clone)]
struct Shop {
    pool: SqlitePool,
    queries: Arc<AtomicU32>,
}

impl Shop {
    async fn open() -> Result<Self, sqlx::Error> {
        // Each connection would have a database of its own in memory, so there is one.
        let options = SqlitePoolOptions::new().max_connections(1);
        let pool = options.connect("sqlite::memory:").await?;
        sqlx::query("CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT, cents INTEGER)")
            .execute(&pool)
            .await?;
        sqlx::query("INSERT INTO product VALUES (7, 'tea', 350)")
            .execute(&pool)
            .await?;
        Ok(Self {
            pool,
            queries: Arc::default(),
        })
    }

    async fn product(&self, id: i64) -> Result<Option<Product>, sqlx::Error> {
        self.queries.fetch_add(1, Ordering::SeqCst);
        let row: Option<(String, i64)> =
            sqlx::query_as("SELECT name, cents FROM product WHERE id = ?")
                .bind(id)
                .fetch_optional(&self.pool)
                .await?;
        Ok(row.map(|(name, cents)| Product { name, cents }))
    }

    async fn set_price(&self, id: i64, cents: i64) -> Result<(), sqlx::Error> {
        sqlx::query("UPDATE product SET cents = ? WHERE id = ?")
            .bind(cents)
            .bind(id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    fn queries(&self) -> u32 {
        self.queries.load(Ordering::SeqCst)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let [north, south] = two_nodes().await?;
    let shop = Shop::open().await?;
    let mut caches = Vec::new();
    for node in [&north, &south] {
        let cache = node
            .cache::<i64, Product>("products")
            .fresh_for(Duration::from_secs(60))
            // That there is no such product is remembered, too.
            .absent_for(Duration::from_secs(10))
            .await?;
        caches.push(cache);
    }

    let mut requests = tokio::task::JoinSet::new();
    for cache in &caches {
        for _ in 0..20 {
            let (cache, shop) = (cache.clone(), shop.clone());
            requests.spawn(async move { look_up(&cache, &shop, 7).await });
        }
    }
    let mut answers = Vec::new();
    while let Some(answer) = requests.join_next().await {
        answers.extend(answer??);
    }
    println!("{} requests, {} query", answers.len(), shop.queries());

    // First the database, then the cache: a load that is under way meanwhile is void.
    shop.set_price(7, 290).await?;
    caches[0].invalidate(&7).await?;
    if let Some(product) = look_up(&caches[1], &shop, 7).await? {
        println!("{} costs {} cents now", product.name, product.cents);
    }
    println!("{} queries", shop.queries());

    for cache in &caches {
        let found = look_up(cache, &shop, 8).await?;
        println!(
            "product 8 is {}",
            if found.is_some() { "there" } else { "unknown" }
        );
    }
    println!("{} queries", shop.queries());
    south.shutdown().await;
    north.shutdown().await;
    Ok(())
}

async fn look_up(
    cache: &Cache<i64, Product>,
    shop: &Shop,
    id: i64,
) -> Result<Option<Product>, Error> {
    let shop = shop.clone();
    cache
        .find_or_load(&id, move || async move { shop.product(id).await })
        .await
}
