//! Transactions of several nodes and of clients, on real sockets in one process.

use crate::embedded::{node_with, safe};
use doyen::{Database, Error, KeyspaceOptions, Map, Node, Value, Versioned};

const SECRET: &str = "the secret of the tests";
const ACCOUNTS: u64 = 4;
const OPENED_WITH: u64 = 1_000;
const TRANSFERS: u64 = 50;

async fn node(name: &str, seeds: &[&Node]) -> Node {
    node_with(name, seeds, |builder| builder.secret(SECRET)).await
}

fn account(n: u64) -> String {
    format!("{{bank}}:{}", n % ACCOUNTS)
}

fn balance(seen: &Versioned<Value>) -> u64 {
    let text = String::from_utf8_lossy(seen.value().expect("it was opened"));
    text.parse().expect("a number")
}

/// Moves one unit at a time from an account to another. Returns how often another writer was
/// faster.
async fn transfer(database: Database, seed: u64) -> u64 {
    let mut conflicts = 0;
    for round in 0..TRANSFERS {
        let payer = seed + round;
        let payee = payer + 1 + round % (ACCOUNTS - 1);
        let (from, to) = (account(payer), account(payee));
        loop {
            let payer = database.get_versioned(from.clone()).await.expect("read");
            let payee = database.get_versioned(to.clone()).await.expect("read");
            let mut transaction = database.transaction();
            transaction.watch(&payer);
            transaction.watch(&payee);
            transaction.set(from.clone(), (balance(&payer) - 1).to_string());
            transaction.set(to.clone(), (balance(&payee) + 1).to_string());
            match transaction.commit().await {
                Ok(_) => break,
                Err(Error::Changed) => conflicts += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    conflicts
}

#[tokio::test]
async fn transfers_through_nodes_and_a_client_create_and_lose_nothing() {
    let one = node("one", &[]).await;
    let two = node("two", &[&one]).await;
    let three = node("three", &[&one]).await;
    safe(&one, 3).await;
    let client = Node::builder()
        .client()
        .seeds([two.addresses().data.to_string()])
        .secret(SECRET)
        .start()
        .await
        .expect("it connects");
    let database = one.database();
    let mut opening = database.transaction();
    (0..ACCOUNTS).for_each(|n| opening.set(account(n), OPENED_WITH.to_string()));
    opening.commit().await.expect("opened");

    let (a, b, c, d) = tokio::join!(
        transfer(one.database(), 0),
        transfer(two.database(), 0),
        transfer(three.database(), 0),
        transfer(client.database(), 0),
    );
    assert!(a + b + c + d > 0, "they were in each other's way");
    // All accounts at one moment.
    let mut closing = three.database().transaction();
    let last = [0, 1, 2, 3].map(|n| closing.get(account(n)));
    let answers = closing.commit().await.expect("read");
    let last = last.map(|asked| {
        let value = answers.of(asked).expect("bytes").expect("it was opened");
        String::from_utf8_lossy(&value)
            .parse::<u64>()
            .expect("a number")
    });
    assert_eq!(last.iter().sum::<u64>(), ACCOUNTS * OPENED_WITH, "{last:?}");

    client.shutdown().await;
    for node in [three, two, one] {
        node.kill().await;
    }
}

#[tokio::test]
async fn keys_of_a_typed_map_are_together_in_a_keyspace_of_one_partition() {
    let one = node("one", &[]).await;
    one.admin()
        .create_keyspace("ledger", &KeyspaceOptions::new().partitions(1))
        .await
        .expect("made");
    for (keyspace, whole) in [("ledger", true), ("default", false)] {
        let map: Map<u64, String> = one.map(keyspace).keyspace(keyspace).await.expect("a map");
        let mut transaction = map.transaction();
        (0..20).for_each(|id| transaction.insert(&id, &format!("entry {id}")));
        let done = transaction.commit().await;
        assert_eq!(done.is_ok(), whole, "{keyspace}: {done:?}");
        for id in 0..20 {
            assert_eq!(map.contains(&id).await.expect("asked"), whole, "{keyspace}");
        }
    }
    one.kill().await;
}
