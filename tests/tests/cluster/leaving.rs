//! Real processes that are asked to leave: no data is lost with them even if others die, and no
//! process waits in vain.

use doyen_tests::cluster::Cluster;
use doyen_tests::process::Process;
use doyen_tests::resp::{Client, Reply};
use std::sync::mpsc;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const KEYS: usize = 2000;

fn fill(client: &mut Client) {
    for i in 0..KEYS {
        client
            .send(&[
                b"SET",
                format!("key-{i}").as_bytes(),
                format!("value-{i}").as_bytes(),
            ])
            .expect("the socket takes it");
    }
    for i in 0..KEYS {
        assert_eq!(
            client.reply().expect("a reply"),
            Reply::Simple("OK".into()),
            "key-{i}"
        );
    }
}

/// Checks every key through this node, once all partitions serve again.
fn check(cluster: &Cluster, name: &str) {
    cluster.eventually("every partition serves", |c| {
        let mut client = c.client(name);
        (0..KEYS).all(|i| {
            !matches!(
                client.command(&[b"EXISTS", format!("key-{i}").as_bytes()]),
                Ok(Reply::Error(_)) | Err(_)
            )
        })
    });
    let mut client = cluster.client(name);
    let is_there = |client: &mut Client, i: usize| {
        client
            .command(&[b"GET", format!("key-{i}").as_bytes()])
            .expect("a reply")
            == Reply::Bulk(format!("value-{i}").into_bytes())
    };
    let lost = (0..KEYS).filter(|i| !is_there(&mut client, *i)).count();
    assert_eq!(lost, 0, "of {KEYS} keys");
}

#[test]
fn the_data_of_a_leaver_survives_the_next_death() {
    // Once the leaver has gone, everything has been copied. While it leaves, it is itself a copy.
    // The younger of the two others is killed, because a pair goes on without its younger member.
    for wait_for_its_end in [true, false] {
        let mut cluster = Cluster::of(BINARY, 3);
        fill(&mut cluster.client("n0"));
        let mut leaver = cluster.nodes.remove("n0").expect("it runs");
        leaver.terminate();
        if wait_for_its_end {
            assert!(leaver.wait().success());
            cluster.kill("n2");
        } else {
            cluster.kill("n2");
            assert!(leaver.wait().success());
        }
        check(&cluster, "n1");
    }
}

#[test]
fn the_last_holder_leaves_once_others_have_its_data() {
    let mut cluster = Cluster::new(BINARY);
    cluster
        .options
        .extend(["--backups", "0"].map(str::to_owned));
    for name in ["n0", "n1", "n2"] {
        cluster.join(name);
    }
    cluster.await_safe(3);
    fill(&mut cluster.client("n0"));
    assert!(cluster.leave("n0").success());
    check(&cluster, "n1");
    assert!(cluster.leave("n2").success());
    check(&cluster, "n1");
}

#[test]
fn a_cluster_that_is_stopped_as_a_whole_ends_and_says_what_is_lost() {
    for full in [false, true] {
        let mut cluster = Cluster::new(BINARY);
        // They end, so none of them waited for a member to hand over to.
        cluster
            .options
            .extend(["--leave-timeout", "1h"].map(str::to_owned));
        for name in ["n0", "n1", "n2"] {
            cluster.join(name);
        }
        cluster.await_safe(3);
        if full {
            fill(&mut cluster.client("n0"));
        }
        let mut leavers = std::mem::take(&mut cluster.nodes);
        leavers.values_mut().for_each(Process::terminate);
        let codes: Vec<Option<i32>> = leavers
            .into_values()
            .map(|process| process.wait().code())
            .collect();
        // A member that handed over everything before the others were told to leave has lost
        // nothing.
        assert!(
            codes.iter().all(|code| matches!(code, Some(0 | 3))),
            "{codes:?}"
        );
        assert_eq!(codes.contains(&Some(3)), full, "{codes:?}");
    }
}

/// Each node is asked to leave and started again, and then the next one at once. The last one left
/// while the others waited to be admitted: all data was gone, and its status was 0.
#[test]
fn a_rolling_restart_that_waits_for_nothing_loses_nothing() {
    let mut cluster = Cluster::of(BINARY, 3);
    fill(&mut cluster.client("n0"));
    let names = ["n0", "n1", "n2"];
    let addresses = names.map(|name| cluster.node(name).ready.listen);
    for (name, address) in names.iter().zip(addresses) {
        let status = cluster.leave(name);
        assert!(status.success(), "{name} ended with {status}");
        cluster
            .try_start(name, &addresses, &["--listen", &address.to_string()])
            .expect("it starts");
    }
    cluster.await_safe(3);
    check(&cluster, "n1");
}

/// All nodes are asked to leave before the first has handed over. Each listened for newcomers by a
/// clock of its own. So the first two ended together with half of the votes, and the others could
/// not admit those that started again: all data was gone.
#[test]
fn a_rolling_restart_in_which_all_leave_at_the_same_time_loses_nothing() {
    const LARGE: usize = 32;
    let mut cluster = Cluster::of(BINARY, 4);
    let mut client = cluster.client("n0");
    fill(&mut client);
    let large = |i: usize| vec![b'a' + i as u8 % 26; 1 << 20];
    for i in 0..LARGE {
        assert_eq!(
            client
                .command(&[b"SET", format!("large-{i}").as_bytes(), &large(i)])
                .expect("a reply"),
            Reply::Simple("OK".into())
        );
    }
    let addresses: Vec<_> = cluster
        .nodes
        .values()
        .map(|node| node.ready.listen)
        .collect();
    let (ended, ends) = mpsc::channel();
    for (name, mut leaver) in std::mem::take(&mut cluster.nodes) {
        leaver.terminate();
        cluster.eventually("it begins to leave", |_| {
            leaver.log().contains("leaving: handing over")
        });
        let (ended, address) = (ended.clone(), leaver.ready.listen);
        std::thread::spawn(move || ended.send((name, address, leaver.wait())));
    }
    drop(ended);
    for (name, address, status) in ends {
        assert!(status.success(), "{name} ended with {status}");
        cluster
            .try_start(&name, &addresses, &["--listen", &address.to_string()])
            .expect("it starts");
    }
    cluster.await_safe(4);
    check(&cluster, "n1");
    let mut client = cluster.client("n2");
    for i in 0..LARGE {
        assert_eq!(
            client
                .command(&[b"GET", format!("large-{i}").as_bytes()])
                .expect("a reply"),
            Reply::Bulk(large(i)),
            "large-{i}"
        );
    }
}

/// A pair whose older member is frozen: there is no coordinator, so the younger cannot hand over.
fn stuck_leaver(leave_timeout: &str, full: bool) -> (Cluster, doyen_tests::process::Process) {
    let mut cluster = Cluster::new(BINARY);
    cluster
        .options
        .extend(["--leave-timeout", leave_timeout].map(str::to_owned));
    cluster.join("n0");
    cluster.join("n1");
    cluster.await_safe(2);
    if full {
        fill(&mut cluster.client("n0"));
    }
    cluster.nodes.get_mut("n0").expect("it runs").stop();
    let mut leaver = cluster.nodes.remove("n1").expect("it runs");
    leaver.terminate();
    cluster.eventually("it begins to leave", |_| {
        leaver.log().contains("leaving: handing over")
    });
    (cluster, leaver)
}

#[test]
fn the_leave_timeout_ends_a_leave_that_cannot_be_completed() {
    // No member that answers has its partitions. If they had no key, nothing is lost.
    for (full, code) in [(true, 3), (false, 0)] {
        let (_cluster, leaver) = stuck_leaver("500ms", full);
        let status = leaver.wait();
        assert_eq!(status.code(), Some(code), "{status}");
    }
}

#[test]
fn a_second_signal_leaves_at_once() {
    let (_cluster, mut leaver) = stuck_leaver("1h", false);
    leaver.terminate();
    let status = leaver.wait();
    assert_eq!(status.code(), Some(128 + 15), "{status}");
}
