//! Real processes whose wall clocks are set, or that are suspended: no key expires early or late,
//! and no read is stale.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const HOUR: i64 = 3_600_000;

fn number(client: &mut Client, words: &[&str]) -> i64 {
    let words: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
    match client.command(&words).expect("a reply") {
        Reply::Int(n) => n,
        other => panic!("{other:?} to {words:?}"),
    }
}

fn unix_ms() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    i64::try_from(since.as_millis()).expect("a time of this age")
}

/// How far a node's wall clock is ahead, in milliseconds: the node converts wall times with it.
fn ahead_by(client: &mut Client) -> i64 {
    assert_eq!(
        client
            .command(&[b"SET", b"probe", b"x", b"PX", b"100000000"])
            .expect("a reply"),
        Reply::Simple("OK".into())
    );
    number(client, &["PEXPIRETIME", "probe"]) - unix_ms() - 100_000_000
}

#[test]
fn a_wall_clock_that_is_set_expires_no_key_early_or_late() {
    let mut cluster = Cluster::of(BINARY, 3);
    let mut client = cluster.client("n0");
    let set = Instant::now();
    for i in 0..32 {
        let key = format!("relative-{i}");
        client
            .command(&[b"SET", key.as_bytes(), b"x", b"PX", b"1800000"])
            .expect("a reply");
        let key = format!("short-{i}");
        client
            .command(&[b"SET", key.as_bytes(), b"x", b"PX", b"1500"])
            .expect("a reply");
    }
    for (forward, ahead) in [(true, HOUR), (false, 0), (false, -HOUR)] {
        for process in cluster.nodes.values_mut() {
            if forward {
                process.set_clock_forward()
            } else {
                process.set_clock_back()
            }
        }
        // Every primary has a key of the probe. Each process takes the signal in its own time.
        cluster.eventually("the clocks are set", |c| {
            c.nodes
                .keys()
                .all(|name| (ahead_by(&mut c.client(name)) - ahead).abs() < HOUR / 2)
                && {
                    let mut client = c.client("n0");
                    (0..32).all(|i| {
                        let key = format!("at-{i}");
                        client
                            .command(&[b"SET", key.as_bytes(), b"x", b"PX", b"50000000"])
                            .expect("a reply");
                        (number(&mut client, &["PEXPIRETIME", &key])
                            - unix_ms()
                            - 50_000_000
                            - ahead)
                            .abs()
                            < HOUR / 2
                    })
                }
        });
        for i in 0..32 {
            let left = number(&mut client, &["PTTL", &format!("relative-{i}")]);
            let passed = i64::try_from(set.elapsed().as_millis()).expect("a short test");
            // If the primary has changed, the new one's clock is behind by the age of the last
            // notice.
            assert!(
                (1_800_000 - passed - 50..=1_801_000).contains(&left),
                "{left} ms are left after {passed} ms"
            );
        }
    }
    // Keys that should expire by now, or soon, do so, though the clocks are an hour back.
    cluster.eventually("overdue keys are gone", |c| {
        let mut client = c.client("n1");
        (0..32).all(|i| number(&mut client, &["EXISTS", &format!("short-{i}")]) == 0)
    });
    assert!(
        set.elapsed() >= Duration::from_millis(1_450),
        "it expired early"
    );
    // Wall times that callers give are read with the clock that the node has now.
    let at = (unix_ms() - HOUR + 600_000).to_string();
    for i in 0..32 {
        assert_eq!(
            number(&mut client, &["PEXPIREAT", &format!("relative-{i}"), &at]),
            1
        );
        let left = number(&mut client, &["PTTL", &format!("relative-{i}")]);
        assert!((500_000..=600_100).contains(&left), "{left}");
    }
}

#[test]
fn keys_that_expire_while_their_primary_is_suspended_are_gone() {
    let mut cluster = Cluster::of(BINARY, 3);
    let frozen = cluster.coordinator();
    let other = cluster
        .nodes
        .keys()
        .find(|n| **n != frozen)
        .cloned()
        .expect("another");
    let mut client = cluster.client(&other);
    let set = Instant::now();
    for i in 0..64 {
        for (kind, ms) in [("short", "1000"), ("long", "600000")] {
            client
                .command(&[
                    b"SET",
                    format!("{kind}-{i}").as_bytes(),
                    b"x",
                    b"PX",
                    ms.as_bytes(),
                ])
                .expect("a reply");
        }
    }
    // These requests wait in the frozen process's socket, and are read when it resumes.
    let mut late = cluster.client(&frozen);
    cluster.nodes.get_mut(&frozen).expect("it runs").stop();
    for i in 0..64 {
        late.send(&[b"GET", format!("short-{i}").as_bytes()])
            .expect("the socket takes it");
    }
    cluster.eventually("every partition serves without it", |c| {
        let mut client = c.client(&other);
        (0..64).all(|i| {
            client
                .command(&[b"PTTL", format!("long-{i}").as_bytes()])
                .is_ok_and(|r| matches!(r, Reply::Int(_)))
        })
    });
    for i in 0..64 {
        let left = number(&mut client, &["PTTL", &format!("long-{i}")]);
        let passed = i64::try_from(set.elapsed().as_millis()).expect("a short test");
        // A new primary goes on from the last time that it heard, which is at most a second old,
        // and adds the time that has passed since.
        assert!(
            (600_000 - passed - 100..=600_000 - passed + 3_000).contains(&left),
            "{left} ms are left after {passed} ms"
        );
    }
    cluster.eventually("overdue keys are gone", |c| {
        let mut client = c.client(&other);
        (0..64).all(|i| {
            client
                .command(&[b"GET", format!("short-{i}").as_bytes()])
                .is_ok_and(|r| r == Reply::Nil)
        })
    });
    cluster.nodes.get_mut(&frozen).expect("it runs").resume();
    for i in 0..64 {
        match late.reply().expect("the resumed process answers") {
            Reply::Nil => {}
            Reply::Error(text) => assert!(
                text.starts_with("TRYAGAIN") || text.starts_with("CLUSTERDOWN"),
                "{text}"
            ),
            other => panic!("short-{i} was read after its deadline: {other:?}"),
        }
    }
    cluster.await_safe(3);
}
