//! Real processes that are killed, frozen or told to leave under load: no acknowledged write may be
//! lost, and no read be stale.

use doyen_tests::cluster::Cluster;
use doyen_tests::load::{Load, Tally};
use doyen_tests::resp::Reply;
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// Waits until the load has got this many more writes through.
fn progress(cluster: &Cluster, load: &Load, writes: u64) {
    let from = load.acknowledged();
    cluster.eventually("writes go on", |_| load.acknowledged() >= from + writes);
}

fn check(cluster: &Cluster, tally: &Tally) {
    assert!(
        tally.acknowledged > 0 && !tally.keys.is_empty(),
        "the load did nothing: {tally:?}"
    );
    assert!(tally.stale.is_empty(), "stale: {:?}", tally.stale);
    for name in cluster.nodes.keys() {
        let lost = tally.lost(&mut cluster.client(name));
        assert!(
            lost.is_empty(),
            "read through {name}: {} of {} keys are wrong: {:?}",
            lost.len(),
            tally.keys.len(),
            &lost[..lost.len().min(5)]
        );
    }
}

/// Kills one of three under load, and checks that the other two go on.
fn kill_one_of_three(pick: impl Fn(&Cluster) -> String) {
    let mut cluster = Cluster::of(BINARY, 3);
    let load = Load::start(cluster.resp_addresses(), 6);
    progress(&cluster, &load, 300);
    let victim = pick(&cluster);
    cluster.kill(&victim);
    load.redirect(cluster.resp_addresses());
    cluster.await_safe(2);
    progress(&cluster, &load, 300);
    let tally = load.finish();
    check(&cluster, &tally);
}

#[test]
fn killing_the_coordinator_loses_nothing() {
    kill_one_of_three(Cluster::coordinator);
}

#[test]
fn killing_a_primary_that_is_not_coordinator_loses_nothing() {
    kill_one_of_three(|c| c.by_age()[1].clone());
}

#[test]
fn killing_the_youngest_loses_nothing() {
    kill_one_of_three(|c| c.by_age().last().expect("members").clone());
}

#[test]
fn a_second_of_five_may_die_once_the_cluster_is_safe() {
    let mut cluster = Cluster::of(BINARY, 5);
    let load = Load::start(cluster.resp_addresses(), 6);
    for left in [4, 3] {
        progress(&cluster, &load, 200);
        let victim = cluster.coordinator();
        cluster.kill(&victim);
        load.redirect(cluster.resp_addresses());
        cluster.await_safe(left);
    }
    progress(&cluster, &load, 200);
    check(&cluster, &load.finish());
}

/// Regression: for 0.3 s after a death, until it was noticed, the status was `safe`. So a script
/// that killed a node, waited for `safe` and killed the next did not wait at all.
#[test]
fn nothing_is_called_safe_before_every_member_has_answered() {
    let mut cluster = Cluster::of(BINARY, 3);
    for left in [2, 1] {
        let coordinator = cluster.coordinator();
        let mut names = cluster.nodes.keys().filter(|name| **name != coordinator);
        let victim = names.next().expect("another member").clone();
        cluster.kill(&victim);
        let (well, said) = cluster.asks(&coordinator, &["status", "--check"]);
        assert!(!well, "{said}");
        let wait = ["wait", "safe", "--timeout", "1m"];
        let (safe, said) = cluster.asks(&coordinator, &wait);
        assert!(safe && said == "safe\n", "{said}");
        let status = cluster.status(&coordinator).expect("it answers");
        let members = status["members"].as_array().map(Vec::len);
        assert_eq!(members, Some(left), "{status}");
        let (well, said) = cluster.asks(&coordinator, &["status", "--check"]);
        assert!(well, "{said}");
        cluster.join("again");
        cluster.await_safe(left + 1);
        cluster.kill("again");
        let (safe, said) = cluster.asks(&coordinator, &["wait", "safe", "--timeout", "0"]);
        assert!(!safe && said.contains("not safe after 0ms"), "{said}");
        cluster.await_safe(left);
    }
}

#[test]
fn three_of_seven_killed_at_once_leave_a_working_cluster() {
    let mut cluster = Cluster::new(BINARY);
    // Partitions that had both copies among the three begin empty, soon.
    cluster
        .options
        .extend(["--on-loss", "reset:2s"].map(str::to_owned));
    for i in 0..7 {
        cluster.join(&format!("n{i}"));
    }
    cluster.await_safe(7);
    let first = cluster.coordinator();
    for name in [first.as_str(), "n3", "n5"] {
        if cluster.nodes.contains_key(name) {
            cluster.kill(name);
        }
    }
    let left = cluster.nodes.len();
    cluster.await_safe(left);
    let load = Load::start(cluster.resp_addresses(), 4);
    progress(&cluster, &load, 300);
    check(&cluster, &load.finish());
}

/// Both processes that held a partition come back empty, each at its address. So their deaths are
/// proved, and the cluster need not wait for ten minutes.
#[test]
fn partitions_that_are_proved_lost_begin_empty_at_once() {
    let mut cluster = Cluster::of(BINARY, 5);
    let leader = cluster.coordinator();
    // A partition whose only copies are at two others.
    let pair = |c: &Cluster| {
        let table = c.report(&leader, "/table");
        let partitions = table["keyspaces"][0]["partitions"].as_array()?.clone();
        let names = |p: serde_json::Value| {
            let first = p["primary"].as_str()?.to_owned();
            let others = p["backups"].as_array()?.iter();
            let others = others.filter_map(|b| Some(b.as_str()?.to_owned()));
            Some(std::iter::once(first).chain(others).collect::<Vec<_>>())
        };
        let mut all = partitions.into_iter().filter_map(names);
        all.find(|names| names.len() == 2 && !names.contains(&leader))
    };
    cluster.eventually("two others hold a partition", |c| pair(c).is_some());
    cluster.await_safe(5);
    let victims = pair(&cluster).expect("copies stay where they are");
    let addresses: Vec<_> = cluster.nodes.values().map(|p| p.ready.listen).collect();
    let places: Vec<_> = victims
        .iter()
        .map(|name| (name.clone(), cluster.node(name).ready.listen))
        .collect();
    // They die at the same moment, so that the data of one is not copied first.
    victims
        .iter()
        .for_each(|name| cluster.nodes.get_mut(name).expect("it runs").stop());
    victims.iter().for_each(|name| cluster.kill(name));
    // The first that is missed may be expelled, because the other has its copies. Then the cluster
    // waits for the other alone.
    let waited = |c: &Cluster| {
        let status = c.status(&leader).unwrap_or_default();
        let lives = |m: &serde_json::Value| {
            m["state"] == "live" && victims.iter().any(|v| m["name"] == **v)
        };
        let living = status["members"]
            .as_array()
            .is_none_or(|members| members.iter().any(lives));
        !living && status["keyspaces"][0]["unavailable"].as_u64() > Some(0)
    };
    cluster.eventually("the cluster waits for what both held", waited);
    for (name, address) in places {
        cluster
            .try_start(&name, &addresses, &["--listen", &address.to_string()])
            .expect("it starts");
    }
    cluster.await_safe(5);
    assert!(
        cluster.node(&leader).log().contains("began empty"),
        "{}",
        cluster.node(&leader).log()
    );
}

/// The name was refused for a minute, and the process ended.
#[test]
fn a_name_comes_back_while_the_cluster_waits_for_its_former_process() {
    let mut cluster = Cluster::new(BINARY);
    cluster
        .options
        .extend(["--backups", "0"].map(str::to_owned));
    (0..3).for_each(|i| cluster.join(&format!("n{i}")));
    cluster.await_safe(3);
    cluster.kill("n2");
    let members = |c: &Cluster| -> Vec<(String, String)> {
        let status = c.status("n0").unwrap_or_default();
        let text =
            |m: &serde_json::Value, what: &str| m[what].as_str().unwrap_or_default().to_owned();
        status["members"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|m| (text(m, "name"), text(m, "state")))
            .collect()
    };
    cluster.eventually("the cluster waits for it", |c| {
        members(c).iter().any(|(_, state)| state == "silent")
    });
    cluster.join("n2");
    let state = |c: &Cluster, is: &dyn Fn(&str) -> bool| {
        members(c)
            .into_iter()
            .find(|(name, _)| is(name))
            .map(|(_, state)| state)
    };
    cluster.eventually("its name is back", |c| {
        state(c, &|name| name == "n2").as_deref() == Some("live")
    });
    assert_eq!(
        state(&cluster, &|name| name.starts_with("n2~")).as_deref(),
        Some("silent"),
        "{:?}",
        members(&cluster)
    );
    let former = members(&cluster)
        .into_iter()
        .find(|(name, _)| name.starts_with("n2~"))
        .expect("the cluster waits for it")
        .0;
    cluster.change("n0", &["remove", &former, "--lost"]);
    cluster.await_safe(3);
}

/// Copies that were planned for full members held up those for the member that came back empty, for
/// ever.
#[test]
fn a_member_that_comes_back_is_filled_by_nearly_full_members() {
    let mut cluster = Cluster::new(BINARY);
    cluster
        .options
        .extend(["--memory-max", "32mb", "--value-max", "1mb"].map(str::to_owned));
    (0..3).for_each(|i| cluster.join(&format!("n{i}")));
    cluster.await_safe(3);
    let value = vec![b'x'; 50_000];
    let mut client = cluster.client("n0");
    // 84 % of what three members can hold with two copies: two members cannot hold it.
    for i in 0..800 {
        let key = format!("key-{i}");
        assert_eq!(
            client
                .command(&[b"SET", key.as_bytes(), &value])
                .expect("a reply"),
            Reply::Simple("OK".into()),
            "{key}"
        );
    }
    cluster.kill("n2");
    cluster.eventually("its death is noticed", |c| {
        c.status("n0").is_some_and(|s| {
            s["safe"] == false && s["members"].as_array().is_some_and(|m| m.len() == 2)
        })
    });
    cluster.join("n2");
    cluster.await_safe(3);
    for i in 0..800 {
        let reply = client
            .command(&[b"STRLEN", format!("key-{i}").as_bytes()])
            .expect("a reply");
        assert_eq!(reply, Reply::Int(50_000), "key-{i}");
    }
    // Copies that were begun elsewhere meanwhile are given up, and freed some seconds later.
    cluster.eventually("there is room again", |c| {
        c.command_at("n0", &["SET", "small", "x"]) == Reply::Simple("OK".into())
    });
}

#[test]
fn a_frozen_coordinator_is_replaced_and_serves_nothing_stale() {
    let mut cluster = Cluster::of(BINARY, 3);
    let frozen = cluster.coordinator();
    let survivors: Vec<String> = cluster
        .nodes
        .keys()
        .filter(|n| **n != frozen)
        .cloned()
        .collect();
    for i in 0..64 {
        assert_eq!(
            cluster.command_at(&survivors[0], &["SET", &format!("key-{i}"), "old"]),
            Reply::Simple("OK".into())
        );
    }
    // Requests that wait in the frozen process's sockets: reads, and writes that must not be
    // acknowledged late.
    let mut stale_reader = cluster.client(&frozen);
    let mut stale_writer = cluster.client(&frozen);
    cluster.nodes.get_mut(&frozen).expect("it runs").stop();
    for i in 0..64 {
        stale_reader
            .send(&[b"GET", format!("key-{i}").as_bytes()])
            .expect("the socket takes it");
    }
    stale_writer
        .send(&[b"SET", b"late", b"from the past"])
        .expect("the socket takes it");
    let frozen_at = Instant::now();
    cluster.eventually("a successor", |c| {
        survivors.iter().all(|n| {
            c.status(n)
                .is_some_and(|s| s["coordinator"].as_str().is_some_and(|name| name != frozen))
        })
    });
    let mut writer = cluster.client(&survivors[0]);
    for i in 0..64 {
        let key = format!("key-{i}");
        cluster.eventually("writes go on", |_| {
            matches!(
                writer.command(&[b"SET", key.as_bytes(), b"new"]),
                Ok(Reply::Simple(ok)) if ok == "OK"
            )
        });
    }
    // The freeze lasts ten seconds in all.
    std::thread::sleep(Duration::from_secs(10).saturating_sub(frozen_at.elapsed()));
    cluster.nodes.get_mut(&frozen).expect("it runs").resume();
    for i in 0..64 {
        match stale_reader.reply().expect("the resumed process answers") {
            Reply::Bulk(value) => assert_eq!(value, b"new", "key-{i} was read stale"),
            Reply::Error(text) => assert!(
                text.starts_with("TRYAGAIN") || text.starts_with("CLUSTERDOWN"),
                "{text}"
            ),
            other => panic!("key-{i}: {other:?}"),
        }
    }
    let late = stale_writer.reply().expect("the resumed process answers");
    cluster.await_safe(3);
    let found = cluster.command_at(&survivors[0], &["GET", "late"]);
    match late {
        Reply::Simple(_) => assert_eq!(
            found,
            Reply::Bulk(b"from the past".to_vec()),
            "acknowledged, and lost"
        ),
        Reply::Error(text) => assert!(
            text.starts_with("UNKNOWN") || found == Reply::Nil,
            "{text}, and yet {found:?}"
        ),
        other => panic!("{other:?}"),
    }
    for name in cluster.nodes.keys() {
        for i in 0..64 {
            assert_eq!(
                cluster.command_at(name, &["GET", &format!("key-{i}")]),
                Reply::Bulk(b"new".to_vec()),
                "through {name}"
            );
        }
    }
}

#[test]
fn a_frozen_member_does_not_disturb_the_coordinator() {
    let mut cluster = Cluster::of(BINARY, 3);
    let coordinator = cluster.coordinator();
    let term = cluster.status(&coordinator).expect("a status")["term"].clone();
    let frozen = cluster
        .by_age()
        .into_iter()
        .find(|n| *n != coordinator)
        .expect("another");
    let load = {
        let others = cluster
            .nodes
            .iter()
            .filter(|(n, _)| **n != frozen)
            .map(|(_, p)| p.ready.resp)
            .collect();
        Load::start(others, 4)
    };
    progress(&cluster, &load, 200);
    cluster.nodes.get_mut(&frozen).expect("it runs").stop();
    let calm: Vec<String> = cluster
        .nodes
        .keys()
        .filter(|n| **n != frozen)
        .cloned()
        .collect();
    let same = |c: &Cluster, n: &str| {
        c.status(n)
            .is_some_and(|s| s["coordinator"] == coordinator.as_str() && s["term"] == term)
    };
    cluster.eventually("the frozen one is out", |c| {
        assert!(
            calm.iter().all(|n| same(c, n)),
            "the coordinator or its term changed"
        );
        c.status(&coordinator).is_some_and(|s| {
            s["safe"] == true && s["members"].as_array().is_some_and(|m| m.len() == 2)
        })
    });
    progress(&cluster, &load, 200);
    cluster.nodes.get_mut(&frozen).expect("it runs").resume();
    cluster.await_safe(3);
    assert!(
        cluster.nodes.keys().all(|n| same(&cluster, n)),
        "the coordinator or its term changed"
    );
    check(&cluster, &load.finish());
}

#[test]
fn rolling_restarts_fail_no_operation() {
    let mut cluster = Cluster::of(BINARY, 3);
    let load = Load::start(cluster.resp_addresses(), 6);
    for name in ["n0", "n1", "n2"] {
        progress(&cluster, &load, 200);
        let others = cluster
            .nodes
            .iter()
            .filter(|(n, _)| *n != name)
            .map(|(_, p)| p.ready.resp)
            .collect();
        // Open connections stay; the leaver answers them before it closes them.
        load.redirect(others);
        let status = cluster.leave(name);
        assert!(status.success(), "{name} ended with {status}");
        cluster.join(name);
        load.redirect(cluster.resp_addresses());
        cluster.await_safe(3);
    }
    progress(&cluster, &load, 200);
    let tally = load.finish();
    assert!(
        tally.errors.is_empty(),
        "operations failed: {:?}",
        tally.errors
    );
    assert_eq!((tally.refused, tally.unknown), (0, 0));
    check(&cluster, &tally);
}
