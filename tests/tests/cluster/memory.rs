//! `--memory-max` bounds the process under all changes of values and all behaviour of clients.

use doyen_tests::cluster::Cluster;
use doyen_tests::procfs;
use doyen_tests::resp::{Client, Reply};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const MIB: u64 = 1 << 20;
const MEMORY: u64 = 96 * MIB;
/// A control group whose default for `--memory-max` is `MEMORY`: three quarters of what is left
/// besides 32 MiB. Above the limit of the group, the system would end the process.
const GROUP: u64 = MEMORY / 3 * 4 + 32 * MIB;
const BATCH: usize = 200;

/// One node with this policy.
fn node(policy: &str) -> Cluster {
    let mut cluster = Cluster::new(BINARY);
    cluster
        .options
        .extend(["--memory-max", "96mb", "--eviction", policy].map(str::to_owned));
    cluster.join("n0");
    cluster.await_safe(1);
    cluster
}

/// Bytes of the process that the system cannot reclaim.
fn held(cluster: &Cluster) -> u64 {
    procfs::memory(cluster.nodes["n0"].pid()).1
}

fn bounded(cluster: &Cluster, when: &str) {
    let held = held(cluster);
    assert!(
        held <= GROUP,
        "the process holds {} MiB, where a group may have {} MiB, {when}",
        held / MIB,
        GROUP / MIB
    );
}

/// Writes this many keys of this name, or up to the first that is refused. Returns how many were
/// taken.
fn write(cluster: &Cluster, client: &mut Client, name: &str, value: &[u8], count: usize) -> usize {
    for batch in 0..count / BATCH {
        for n in 0..BATCH {
            client
                .send(&[
                    b"SET",
                    format!("{name}-{}", batch * BATCH + n).as_bytes(),
                    value,
                ])
                .expect("the socket takes it");
        }
        let replies: Vec<Reply> = (0..BATCH)
            .map(|_| client.reply().expect("a reply"))
            .collect();
        if let Some(n) = replies
            .iter()
            .position(|reply| *reply != Reply::Simple("OK".into()))
        {
            assert!(
                matches!(&replies[n], Reply::Error(why) if why.starts_with("OOM ")),
                "{:?}",
                replies[n]
            );
            return batch * BATCH + n;
        }
        if batch % 20 == 0 {
            bounded(
                cluster,
                &format!(
                    "after {} keys {name} of {} bytes",
                    batch * BATCH,
                    value.len()
                ),
            );
        }
    }
    count
}

/// The process used twice its limit: dropped values that were not freed yet did not count, nor did
/// the gaps between small values.
#[test]
fn values_of_another_size_stay_within_the_limit_and_memory_comes_back() {
    let cluster = node("none");
    let mut client = cluster.client("n0");
    let small = write(&cluster, &mut client, "small", &[b's'; 100], 1_000_000);
    assert!((300_000..600_000).contains(&small), "{small} were taken");
    assert_eq!(
        client.command(&[b"FLUSHALL"]).expect("a reply"),
        Reply::Simple("OK".into())
    );
    let large = write(&cluster, &mut client, "large", &[b'l'; 3_000], 100_000);
    assert!((15_000..35_000).contains(&large), "{large} were taken");
    let info = cluster.command_at("n0", &["INFO", "memory"]);
    let Reply::Bulk(info) = info else {
        panic!("{info:?}")
    };
    let info = String::from_utf8_lossy(&info);
    let said = |name: &str| {
        info.lines()
            .find_map(|l| l.strip_prefix(name))
            .and_then(|v| v.parse::<f64>().ok())
            .expect("a line of INFO")
    };
    let (used, resident, ratio) = (
        said("used_memory:"),
        said("used_memory_rss:"),
        said("mem_fragmentation_ratio:"),
    );
    assert!(
        used <= MEMORY as f64 && resident > used / 2.0 && (ratio - resident / used).abs() < 0.2,
        "{info}"
    );
    assert_eq!(
        client.command(&[b"FLUSHALL"]).expect("a reply"),
        Reply::Simple("OK".into())
    );
    cluster.eventually("memory comes back", |c| held(c) < 48 * MIB);
}

#[test]
fn evicted_values_leave_room_for_values_of_another_size() {
    let cluster = node("lru");
    let mut client = cluster.client("n0");
    for (name, bytes, count) in [
        ("small", 100, 600_000),
        ("large", 3_000, 60_000),
        ("middle", 700, 200_000),
        ("tiny", 20, 600_000),
    ] {
        assert_eq!(
            write(&cluster, &mut client, name, &vec![b'v'; bytes], count),
            count,
            "no write is refused"
        );
        bounded(&cluster, name);
        let last = client
            .command(&[b"STRLEN", format!("{name}-{}", count - 1).as_bytes()])
            .expect("a reply");
        assert_eq!(last, Reply::Int(bytes as i64), "the latest keys are there");
        let Reply::Int(left) = client.command(&[b"DBSIZE"]).expect("a reply") else {
            panic!("a number")
        };
        // No more keys than necessary are evicted: three quarters of the memory stay in use.
        let most = MEMORY as usize / (bytes + 100);
        assert!(
            left as usize > most / 2,
            "{left} keys are left, where {most} of {bytes} bytes would fit"
        );
    }
}

/// Each connection sends half a command with the largest value. Their sum is far more than the
/// memory.
#[test]
fn unfinished_commands_do_not_exceed_the_memory() {
    let cluster = node("none");
    let mut client = cluster.client("n0");
    let taken = write(&cluster, &mut client, "key", &[b'v'; 1_000], 200_000);
    assert!(taken > 50_000, "{taken}");
    let mut half: Vec<Client> = (0..24).map(|_| cluster.client("n0")).collect();
    let part = vec![b'x'; 64 << 10];
    for (n, client) in half.iter_mut().enumerate() {
        client
            .raw(format!("*3\r\n$3\r\nSET\r\n$6\r\nhalf{n:02}\r\n$10000000\r\n").as_bytes())
            .expect("the socket takes it");
    }
    for round in 0..128 {
        for client in &mut half {
            // Bytes that the node does not read stay in the sockets until these are full.
            client.raw_if_taken(&part);
        }
        if round % 8 == 0 {
            bounded(&cluster, &format!("after {round} parts"));
            assert!(
                matches!(client.command(&[b"GET", b"key-1"]), Ok(Reply::Bulk(_))),
                "others are served"
            );
        }
    }
    bounded(&cluster, "with half commands");
}

/// A whole command that waited for memory let the next one be read, so the process used several
/// times its limit.
#[test]
fn large_values_without_room_do_not_exceed_the_memory() {
    let cluster = node("none");
    let value = vec![b'v'; 8 << 20];
    let taken: usize = std::thread::scope(|scope| {
        let write = |n: usize| {
            let mut client = cluster.client("n0");
            let mut taken = 0;
            for k in 0..6 {
                if client
                    .send(&[b"SET", format!("large{n}-{k}").as_bytes(), &value])
                    .is_err()
                {
                    // It waited for too long, with others waiting too.
                    break;
                }
                match client.reply() {
                    Ok(Reply::Simple(_)) => taken += 1,
                    Ok(Reply::Error(why)) => {
                        assert!(why.starts_with("OOM ") || why.starts_with("BUSY "), "{why}")
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => break,
                }
                bounded(&cluster, "while large values come");
            }
            taken
        };
        let writers: Vec<_> = (0..24).map(|n| scope.spawn(move || write(n))).collect();
        writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer ends"))
            .sum()
    });
    assert!((3..12).contains(&taken), "{taken} values were taken");
    let mut client = cluster.client("n0");
    assert_eq!(
        client.command(&[b"FLUSHALL"]).expect("a reply"),
        Reply::Simple("OK".into())
    );
    cluster.eventually("memory comes back", |c| held(c) < 48 * MIB);
}
