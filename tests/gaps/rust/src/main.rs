//! Writes keys by redis-rs and by fred: LIBRARY MODE SETTINGS PREFIX ADDRESSES (see
//! tests/gaps/README.md)

use fred::prelude::*;
use fred::types::config::{ClusterDiscoveryPolicy, UnresponsiveConfig};
use redis::AsyncCommands as _;
use redis::cluster::ClusterClient;
use std::fmt::Display;
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

fn redis_default(nodes: Vec<String>) -> Result<ClusterClient, Failure> {
    Ok(ClusterClient::new(nodes)?)
}

fn redis_good(nodes: Vec<String>) -> Result<ClusterClient, Failure> {
    // settings: redis-rs cluster
    let client = ClusterClient::builder(nodes)
        .connection_timeout(Duration::from_millis(500))
        .response_timeout(Duration::from_secs(1))
        .overall_response_timeout(Some(Duration::from_millis(1_500)))
        .retries(20)
        .min_retry_wait(50)
        .max_retry_wait(300)
        .build()?;
    // end
    Ok(client)
}

fn fred_config(nodes: Vec<(String, u16)>) -> Config {
    Config {
        server: ServerConfig::new_clustered(nodes),
        ..Config::default()
    }
}

async fn fred_default(nodes: Vec<(String, u16)>) -> Result<Client, Failure> {
    let client = Builder::from_config(fred_config(nodes)).build()?;
    client.init().await?;
    Ok(client)
}

async fn fred_good(nodes: Vec<(String, u16)>) -> Result<Client, Failure> {
    // settings: fred cluster
    let mut config = fred_config(nodes);
    config
        .server
        .set_cluster_discovery_policy(ClusterDiscoveryPolicy::UseCache)?;
    let client = Builder::from_config(config)
        .with_connection_config(|connection| {
            connection.connection_timeout = Duration::from_millis(500);
            connection.internal_command_timeout = Duration::from_millis(500);
            connection.max_command_attempts = 20;
            connection.unresponsive = UnresponsiveConfig {
                max_timeout: Some(Duration::from_secs(1)),
                interval: Duration::from_millis(100),
            };
        })
        .set_policy(ReconnectPolicy::new_constant(0, 100))
        .build()?;
    // end
    client.init().await?;
    Ok(client)
}

fn say(task: usize, number: u64, outcome: Result<(), impl Display>) {
    match outcome {
        Ok(()) => println!("+ {task} {number}"),
        Err(why) => {
            let text = why.to_string();
            println!(
                "- {task} {number} {}",
                text.lines().next().unwrap_or_default()
            );
        }
    }
}

async fn write(task: usize, prefix: String, mut set: impl AsyncFnMut(String, u64, usize)) {
    let mut number = 0;
    loop {
        set(format!("{prefix}:{task}:{number}"), number, task).await;
        number += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [library, _, settings, prefix, addresses] = &words[..] else {
        return Err("usage: gaps LIBRARY MODE SETTINGS PREFIX ADDRESSES".into());
    };
    let addresses = addresses.split(',');
    if library == "redis-rs" {
        let nodes = addresses.map(|a| format!("redis://{a}")).collect();
        let is_good = settings == "good";
        let client = if is_good {
            redis_good(nodes)?
        } else {
            redis_default(nodes)?
        };
        let connection = client.get_async_connection().await?;
        let task = |task| {
            let (client, mut connection) = (client.clone(), connection.clone());
            write(task, prefix.clone(), async move |key, number, task| {
                let outcome = connection.set::<_, _, ()>(key, number).await;
                // A timeout does not make the library ask for the topology.
                if is_good
                    && outcome.is_err()
                    && let Ok(another) = client.get_async_connection().await
                {
                    connection = another;
                }
                say(task, number, outcome);
            })
        };
        tokio::join!(task(0), task(1), task(2), task(3));
    } else {
        let nodes = addresses
            .filter_map(|a| a.rsplit_once(':'))
            .map(|(host, port)| Ok((host.to_owned(), port.parse()?)))
            .collect::<Result<_, std::num::ParseIntError>>()?;
        let client = match settings.as_str() {
            "good" => fred_good(nodes).await?,
            _ => fred_default(nodes).await?,
        };
        let task = |task| {
            let client = client.clone();
            write(task, prefix.clone(), async move |key, number, task| {
                let number_there = i64::try_from(number).unwrap_or_default();
                say(
                    task,
                    number,
                    client
                        .set::<(), _, _>(key, number_there, None, None, false)
                        .await,
                );
            })
        };
        tokio::join!(task(0), task(1), task(2), task(3));
    }
    Ok(())
}
