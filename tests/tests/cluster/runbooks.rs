//! The commands of docs/operations.md are typed, and have the promised effect; on real processes.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::Reply;
use doyen_tests::runbook::{Operator, metrics};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::collections::BTreeMap;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const KEYS: usize = 300;

/// A cluster of these members, each with its flags, and its operator.
fn begin(options: &[&str], members: &[(&str, &[&str])]) -> (Cluster, Operator) {
    let (mut cluster, mut operator) = (Cluster::new(BINARY), Operator::new(BINARY));
    cluster
        .options
        .extend(options.iter().map(ToString::to_string));
    for (name, flags) in members {
        operator.joins(&mut cluster, name, flags);
    }
    cluster.await_safe(members.len());
    (cluster, operator)
}

/// Kills both with SIGKILL at once: otherwise the first death would leave the second a vote that
/// the others need.
fn kill_both(cluster: &mut Cluster, both: [&str; 2]) {
    for name in both {
        cluster.nodes.get_mut(name).expect("it runs").stop();
    }
    both.into_iter().for_each(|name| cluster.kill(name));
}

/// How many members the cluster waits for because they alone hold something.
fn silent(cluster: &Cluster, node: &str) -> usize {
    let status = cluster.report(node, "/status");
    status["members"].as_array().map_or(0, |members| {
        members.iter().filter(|m| m["state"] == "silent").count()
    })
}

/// The members that a member knows, and their process ids.
fn members(cluster: &Cluster, node: &str) -> BTreeMap<String, String> {
    let status = cluster.report(node, "/status");
    let members = status["members"].as_array().into_iter().flatten();
    members
        .filter_map(|m| Some((m["name"].as_str()?.to_owned(), m["id"].as_str()?.to_owned())))
        .collect()
}

fn names(cluster: &Cluster, node: &str) -> Vec<String> {
    members(cluster, node).into_keys().collect()
}

fn is_safe(cluster: &Cluster, node: &str) -> bool {
    cluster.report(node, "/status")["safe"] == true
}

fn write(cluster: &Cluster, node: &str, keys: usize, bytes: usize) {
    let mut client = cluster.client(node);
    let value = vec![b'v'; bytes];
    for key in 0..keys {
        let reply = client
            .command(&[b"SET", format!("key-{key}").as_bytes(), &value])
            .expect("a reply");
        assert_eq!(reply, Reply::Simple("OK".into()), "key-{key}");
    }
}

fn assert_all_there(cluster: &Cluster, node: &str) {
    let mut client = cluster.client(node);
    for key in 0..KEYS {
        let reply = client
            .command(&[b"STRLEN", format!("key-{key}").as_bytes()])
            .expect("a reply");
        assert_eq!(reply, Reply::Int(10), "key-{key}");
    }
}

/// The largest value of the series with this name and label, over all members.
fn worst(cluster: &Cluster, name: &str, label: &str) -> f64 {
    let all = cluster.nodes.keys().flat_map(|node| metrics(cluster, node));
    let of =
        all.filter(|(series, _)| series.split('{').next() == Some(name) && series.contains(label));
    of.map(|(_, value)| value).fold(0.0, f64::max)
}

#[test]
fn a_cluster_is_scaled_out_drained_scaled_in_and_restarted() {
    let (mut cluster, mut operator) = begin(
        &[],
        &[
            ("n1", &["--zone", "a"]),
            ("n2", &["--zone", "b"]),
            ("n3", &["--zone", "c"]),
        ],
    );
    write(&cluster, "n1", KEYS, 10);

    operator.types(&mut cluster, "n1", "Scale out");
    assert!(is_safe(&cluster, "n1"));
    // Zones a, b and c get a third of 128 copies each. The zone of two members gets a half where
    // that comes nearer to equal shares.
    assert!(
        (31..=33).contains(&cluster.held("n1", "n4")),
        "n4 holds {}",
        cluster.held("n1", "n4")
    );
    assert_all_there(&cluster, "n4");

    operator.types(&mut cluster, "n2", "Drain");
    assert_eq!(cluster.held("n1", "n3"), 0);
    assert_all_there(&cluster, "n3");
    operator.types(&mut cluster, "n3", "Drain");
    cluster.eventually("n3 has its share again", |c| {
        (31..=33).contains(&c.held("n1", "n3")) && is_safe(c, "n1")
    });

    operator.types(&mut cluster, "n1", "Scale in");
    assert_eq!(names(&cluster, "n1"), ["n1", "n2", "n3"]);
    assert!(is_safe(&cluster, "n1"));
    assert_all_there(&cluster, "n1");

    let before = members(&cluster, "n1");
    operator.types(&mut cluster, "n1", "Rolling restart");
    let after = members(&cluster, "n1");
    assert!(
        after.keys().eq(before.keys()) && after.iter().all(|(name, id)| before[name] != *id),
        "{before:?}, then {after:?}"
    );
    assert!(is_safe(&cluster, "n1"));
    assert_all_there(&cluster, "n2");
    operator.finish();
}

#[test]
fn a_far_heavier_node_joins_once_an_operator_allows_its_weight() {
    let (mut cluster, mut operator) = begin(&[], &[("n1", &[]), ("n2", &[])]);
    cluster.join_with("n5", &["--weight", "1600"]);
    cluster.eventually("its log says what an operator must do", |c| {
        let log = c.node("n5").log();
        log.contains("doyen weight allow n5 1600")
    });
    assert_eq!(names(&cluster, "n1"), ["n1", "n2"]);
    operator.types(&mut cluster, "n1", "A node with a far higher weight");
    cluster.await_safe(3);
    assert_eq!(names(&cluster, "n1"), ["n1", "n2", "n5"]);
    operator.finish();
}

#[test]
fn an_operator_gives_up_a_lost_zone_and_its_data() {
    let (mut cluster, mut operator) = begin(
        &[],
        &[
            ("n1", &["--zone", "a"]),
            ("n2", &["--zone", "a"]),
            ("n3", &["--zone", "b"]),
            ("n4", &["--zone", "b"]),
        ],
    );
    cluster.change(
        "n1",
        &[
            "keyspace",
            "alter",
            "default",
            "--rule",
            "copies 1 per zone",
        ],
    );
    cluster.change(
        "n1",
        &[
            "keyspace",
            "create",
            "sessions",
            "--partitions",
            "16",
            "--backups",
            "0",
            "--on-loss",
            "wait",
        ],
    );
    write(&cluster, "n1", KEYS, 10);
    cluster.await_safe(4);

    kill_both(&mut cluster, ["n3", "n4"]);
    cluster.eventually("the cluster waits for both", |c| {
        silent(c, "n1") == 2 && silent(c, "n2") == 2
    });
    let section = "Emergency: a zone is lost";
    let status = operator.types(&mut cluster, "n2", section);
    assert!(
        status.contains("coordinator n1") && status.contains("silent"),
        "{status}"
    );
    operator.skips(section);
    operator.types(&mut cluster, "n2", section);
    let events = operator.types(&mut cluster, "n2", section);
    assert!(
        events.contains("of keyspace sessions began empty")
            && !events.contains("of keyspace default began empty"),
        "{events}"
    );
    assert_eq!(names(&cluster, "n1"), ["n1", "n2"]);
    assert!(is_safe(&cluster, "n1"));
    assert_all_there(&cluster, "n2");
    operator.finish();
}

#[test]
fn an_operator_gives_up_a_lost_zone_that_had_the_majority() {
    // The oldest of four members has the casting vote, and is in the lost zone.
    let (mut cluster, mut operator) = begin(
        &[],
        &[
            ("n3", &["--zone", "b"]),
            ("n4", &["--zone", "b"]),
            ("n1", &["--zone", "a"]),
            ("n2", &["--zone", "a"]),
        ],
    );
    write(&cluster, "n1", KEYS, 10);
    kill_both(&mut cluster, ["n3", "n4"]);
    cluster.eventually("there is no coordinator", |c| {
        worst(c, "doyen_coordinator_known", "") == 0.0
    });
    let section = "Emergency: a zone is lost";
    let status = operator.types(&mut cluster, "n1", section);
    assert!(status.contains("coordinator none"), "{status}");
    let said = operator.types(&mut cluster, "n1", section);
    assert!(said.contains("no partition began empty"), "{said}");
    operator.skips(section);
    operator.types(&mut cluster, "n2", section);
    assert_eq!(names(&cluster, "n1"), ["n1", "n2"]);
    assert!(is_safe(&cluster, "n2"));
    assert_all_there(&cluster, "n1");
    operator.finish();
}

#[test]
fn stuck_moves_and_uneven_loads_are_mended() {
    let (mut cluster, mut operator) = begin(&[], &[("n1", &[]), ("n2", &[]), ("n3", &[])]);
    write(&cluster, "n1", KEYS, 10);

    // With manual balance, a newcomer gets no share.
    cluster.change("n1", &["rebalance", "manual"]);
    cluster.join("n4");
    cluster.await_safe(4);
    cluster.eventually("the alert's metric says so", |c| {
        worst(c, "doyen_partitions_surplus", "of=\"copies\"") > 2.0
    });
    let plan = operator.types(&mut cluster, "n1", "DoyenPartitionsUneven");
    assert!(plan.contains("n4"), "{plan}");
    operator.types(&mut cluster, "n1", "DoyenPartitionsUneven");
    cluster.eventually("every member has its share", |c| {
        worst(c, "doyen_partitions_surplus", "") == 0.0 && c.held("n1", "n4") == 32
    });

    cluster.change("n1", &["rebalance", "pause"]);
    cluster.eventually("it is paused", |c| {
        metrics(c, "n1")["doyen_balance_paused{by=\"operator\"}"] == 1.0
    });
    let events = operator.types(&mut cluster, "n1", "DoyenMovesFailing");
    assert!(
        events.contains("nothing moves for balance, by an operator")
            && events.contains("paused by an operator"),
        "{events}"
    );
    operator.types(&mut cluster, "n1", "DoyenMovesFailing");
    cluster.eventually("balance goes on", |c| {
        worst(c, "doyen_balance_paused", "") == 0.0
    });

    cluster.change("n1", &["rebalance", "manual"]);
    let shown = operator.types(&mut cluster, "n1", "DoyenLoadUneven");
    assert!(shown.contains("default"), "{shown}");
    operator.types(&mut cluster, "n1", "DoyenLoadUneven");
    cluster.eventually("the load becomes even by itself", |c| {
        c.report("n1", "/balance")["automatic"]
            .as_array()
            .is_some_and(|all| all.iter().any(|reason| reason == "hot"))
    });

    // With these settings, missing copies are not made again.
    cluster.change("n1", &["rebalance", "--automatic", "copies,primaries"]);
    cluster.kill("n4");
    cluster.eventually("copies are missing", |c| {
        worst(c, "doyen_keyspace_under_replicated", "default") > 0.0
    });
    operator.types(&mut cluster, "n1", "DoyenUnderReplicated");
    operator.types(&mut cluster, "n1", "DoyenUnderReplicated");
    cluster.eventually("every member knows that no copy is missing", |c| {
        worst(c, "doyen_keyspace_under_replicated", "default") == 0.0
    });
    assert_all_there(&cluster, "n1");

    // Data whose moves would take a minute.
    let mut client = cluster.client("n1");
    for key in 0..1_000 {
        let reply = client
            .command(&[b"SET", format!("large-{key}").as_bytes(), &[b'v'; 4_000]])
            .expect("a reply");
        assert_eq!(reply, Reply::Simple("OK".into()));
    }
    cluster.change("n1", &["rebalance", "--move-rate", "64kb"]);
    cluster.join("n4");
    cluster.eventually("copies are under way", |c| {
        c.report("n1", "/moves")["moves"]
            .as_array()
            .is_some_and(|all| all.iter().any(|m| m["stage"] == "copying"))
    });
    let moves = operator.types(&mut cluster, "n1", "DoyenMovesStuck");
    assert!(
        moves.contains("under way") && moves.contains("n4 joined"),
        "{moves}"
    );
    let said = operator.types(&mut cluster, "n1", "DoyenMovesStuck");
    assert!(
        said.contains("is cancelled") && said.contains("balancing: on"),
        "{said}"
    );
    cluster.change("n1", &["rebalance", "--move-rate", "adaptive"]);
    cluster.eventually("n4 has its share", |c| c.held("n1", "n4") == 32);
    cluster.await_safe(4);
    assert!(worst(&cluster, "doyen_move_steps_total", "stage=\"in_sync\"") >= 32.0);
    operator.finish();
}

#[test]
fn a_member_that_cannot_write_to_its_directory_says_so_until_it_can() {
    let (mut cluster, mut operator) = begin(&[], &[("n1", &[])]);
    let directory = operator.file("n2.dir");
    let flags = ["--dir", &directory.display().to_string()];
    operator.joins(&mut cluster, "n2", &flags);
    cluster.await_safe(2);
    let failing = |c: &Cluster| worst(c, "doyen_directory_failing", "") > 0.0;
    assert!(!failing(&cluster));
    // The next content of the file is written beside it.
    let beside = directory.join("agreement.new");
    std::fs::create_dir(&beside).expect("no write is under way");
    let create = ["keyspace", "create", "orders", "--partitions", "8"];
    let (done, said) = cluster.asks("n1", &create);
    assert!(done, "n1 is the oldest, so it decides alone: {said}");
    cluster.eventually("the write fails", failing);
    let said = operator.types(&mut cluster, "n2", "DoyenDirectoryFailing");
    let line = said.lines().find(|line| line.starts_with("directory: "));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains("n2.dir/agreement") && line.contains("agrees to no change"),
        "{line}"
    );
    std::fs::remove_dir(&beside).expect("it is empty");
    cluster.eventually("it works again", |c| !failing(c));
    cluster.await_safe(2);
    operator.finish();
}

#[test]
fn a_member_with_a_wrong_clock_is_found_and_taken_out() {
    let (mut cluster, mut operator) = begin(&[], &[("n1", &[]), ("n2", &[]), ("n3", &[])]);
    write(&cluster, "n1", KEYS, 10);
    let wall = |c: &Cluster, node: &str| metrics(c, node)["doyen_wall_clock_timestamp_seconds"];
    // The two are asked one after the other. The rule compares each with Prometheus instead.
    let apart = |c: &Cluster| wall(c, "n2") - wall(c, "n1");
    assert!(apart(&cluster).abs() < 1800.0);
    cluster
        .nodes
        .get_mut("n2")
        .expect("it runs")
        .set_clock_forward();
    cluster.eventually("its clock is an hour ahead", |c| apart(c) > 1800.0);
    let said = operator.types(&mut cluster, "n2", "DoyenClocksApart");
    assert!(
        said.lines()
            .any(|line| line.starts_with("doyen_wall_clock_timestamp_seconds ")),
        "{said}"
    );
    cluster.eventually("its clock is right again", |c| apart(c).abs() < 1800.0);

    let boot = |c: &Cluster| metrics(c, "n2")["doyen_boot_clock_seconds"];
    let before = boot(&cluster);
    assert!(before > 0.0 && boot(&cluster) > before, "it goes on");
    operator.types(&mut cluster, "n1", "DoyenClockRate");
    assert_eq!(names(&cluster, "n1"), ["n1", "n3"]);
    assert!(is_safe(&cluster, "n1"));
    assert_all_there(&cluster, "n3");

    // A keyspace that waits for the data that only one member has.
    cluster.change(
        "n1",
        &[
            "keyspace",
            "create",
            "sessions",
            "--partitions",
            "16",
            "--backups",
            "0",
            "--on-loss",
            "wait",
        ],
    );
    cluster.await_safe(2);
    cluster.kill("n3");
    cluster.eventually("the cluster waits for n3", |c| silent(c, "n1") == 1);
    assert!(worst(&cluster, "doyen_keyspace_unavailable", "sessions") > 0.0);
    let said = operator.types(&mut cluster, "n1", "DoyenUnavailable");
    assert!(said.contains("silent"), "{said}");
    operator.types(&mut cluster, "n1", "DoyenUnavailable");
    assert_eq!(worst(&cluster, "doyen_keyspace_unavailable", ""), 0.0);
    assert_eq!(names(&cluster, "n1"), ["n1"]);
    assert_all_there(&cluster, "n1");
    operator.finish();
}

#[test]
fn full_members_evict_and_the_last_one_goes_on_by_an_operators_word() {
    let (mut cluster, mut operator) = begin(
        &["--memory-max", "16mb"],
        &[("n1", &[]), ("n2", &[]), ("n3", &[])],
    );
    let filled = |c: &Cluster| worst(c, "doyen_memory_filled_ratio", "");
    assert!(filled(&cluster) < 0.7);
    assert_eq!(
        metrics(&cluster, "n1")["doyen_memory_max_bytes"],
        f64::from(16 << 20)
    );
    // Each key is on two of three members: 13 MB a member.
    write(&cluster, "n1", 1_250, 16_000);
    cluster.eventually("memory is nearly full", |c| filled(c) >= 0.7);
    let shown = operator.types(&mut cluster, "n2", "DoyenMemoryHigh");
    assert!(
        shown.contains("default") && shown.contains("none"),
        "{shown}"
    );
    operator.types(&mut cluster, "n2", "DoyenMemoryHigh");
    // More than there is room for.
    write(&cluster, "n1", 2_000, 16_000);
    assert!(worst(&cluster, "doyen_evicted_keys_total", "") > 0.0);

    kill_both(&mut cluster, ["n2", "n3"]);
    cluster.eventually("there is no coordinator", |c| {
        metrics(c, "n1").get("doyen_coordinator_known") == Some(&0.0)
    });
    let status = operator.types(&mut cluster, "n1", "DoyenNoCoordinator");
    assert!(status.contains("coordinator none"), "{status}");
    let said = operator.types(&mut cluster, "n1", "DoyenNoCoordinator");
    assert!(said.contains("continuing without n2, n3"), "{said}");
    cluster.eventually("it coordinates", |c| {
        worst(c, "doyen_coordinator_known", "") == 1.0 && is_safe(c, "n1")
    });
    operator.finish();
}

/// Two clusters of one secret said so once in their logs, and were both ready.
#[test]
fn two_clusters_that_hold_data_are_not_ready_and_say_what_to_do() {
    let (mut cluster, mut operator) = begin(&[], &[("n1", &[])]);
    assert_eq!(
        cluster.command_at("n1", &["SET", "a", "1"]),
        Reply::Simple("OK".into())
    );
    cluster
        .try_start("n2", &[], &[])
        .expect("it begins a cluster of its own");
    cluster.eventually("it is written to", |c| {
        c.command_at("n2", &["SET", "a", "2"]) == Reply::Simple("OK".into())
    });
    let not_ready = |c: &Cluster, node: &str| {
        c.node(node)
            .http("/readyz")
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default()
    };
    assert_eq!(
        (not_ready(&cluster, "n1"), not_ready(&cluster, "n2")),
        (String::new(), String::new())
    );
    let (n1, n2) = (
        cluster.node("n1").ready.listen,
        cluster.node("n2").ready.listen,
    );
    // It joins the one cluster, and hears of the other at its second seed.
    cluster.try_start("n3", &[n1, n2], &[]).expect("it joins");
    cluster.eventually("n3 and the one that it did not join are not ready", |c| {
        let other = if names(c, "n1").len() == 2 {
            "n2"
        } else {
            "n1"
        };
        let texts = ["n3", other].map(|node| not_ready(c, node));
        texts.iter().all(|text| {
            text.contains("503") && text.contains("two clusters") && text.contains("--seed")
        })
    });
    assert!(worst(&cluster, "doyen_other_clusters", "") == 1.0);
    let said = operator.types(&mut cluster, "n3", "DoyenTwoClusters");
    assert!(
        said.contains("NOT READY: there are two clusters") && said.contains("--secret-file"),
        "{said}"
    );
    operator.finish();
}

/// Files of a node `n2` that expires in this year, by an authority of its own.
struct Certificates {
    issuer: Issuer<'static, KeyPair>,
    authority: String,
}

impl Certificates {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            authority,
        }
    }

    /// A certificate that expires in this year, and its key.
    fn until(&self, year: i32) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["n2".to_owned()]).expect("a name");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let role = "doyen:member".try_into().expect("a URI");
        params.subject_alt_names.push(rcgen::SanType::URI(role));
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        (
            params
                .signed_by(&key, &self.issuer)
                .expect("a certificate")
                .pem(),
            key.serialize_pem(),
        )
    }
}

/// Regression: three nodes, one dies, the others are safe again: no alert, and no line anywhere.
#[test]
fn a_member_that_died_is_missed_until_it_is_forgotten_and_one_that_left_is_not() {
    let members = ["n1", "n2", "n3", "n4"].map(|name| (name, &[][..]));
    let (mut cluster, mut operator) = begin(&[], &members);
    let missed = |c: &Cluster| metrics(c, "n1")["doyen_members_gone"];
    let gone = |c: &Cluster| {
        let gone = c.report("n1", "/status")["gone"].clone();
        let gone = gone.as_array().cloned().unwrap_or_default();
        let of = |gone: &serde_json::Value| format!("{} {}", gone["name"], gone["why"]);
        gone.iter().map(of).collect::<Vec<_>>()
    };
    cluster.leave("n4");
    cluster.eventually("n4 has left", |c| gone(c) == ["\"n4\" \"left\""]);
    assert_eq!(missed(&cluster), 0.0, "it left in order");
    cluster.kill("n3");
    let both = ["\"n4\" \"left\"", "\"n3\" \"silent\""];
    cluster.eventually("n3 is missed", |c| missed(c) == 1.0 && gone(c) == both);
    let said = operator.types(&mut cluster, "n1", "DoyenMemberGone");
    assert!(
        said.contains("n3: gone ") && said.contains(" ago: it does not answer"),
        "{said}"
    );
    assert!(!said.contains("n4: "), "{said}");
    let said = operator.types(&mut cluster, "n1", "DoyenMemberGone");
    assert!(said.contains("n3 is forgotten"), "{said}");
    assert_eq!(missed(&cluster), 0.0);
    let (done, said) = cluster.asks("n2", &["forget", "n3"]);
    assert!(
        !done && said.contains("no member \"n3\" is remembered as gone"),
        "{said}"
    );
    let all = |c: &Cluster| c.asks("n2", &["forget", "--all"]);
    assert_eq!(all(&cluster), (true, "n4 is forgotten\n".into()));
    cluster.eventually("n4 is missed no more", |c| gone(c).is_empty());
    assert_eq!(all(&cluster), (true, "no member is gone\n".into()));
    operator.finish();
}

/// A node that is started again under its name is missed no more.
#[test]
fn a_member_that_comes_back_is_not_missed() {
    let members = ["n1", "n2", "n3"].map(|name| (name, &[][..]));
    let (mut cluster, _) = begin(&[], &members);
    let missed = |c: &Cluster| metrics(c, "n1")["doyen_members_gone"];
    cluster.kill("n3");
    cluster.eventually("n3 is missed", |c| missed(c) == 1.0);
    cluster.join_with("n3", &[]);
    cluster.eventually("n3 is back", |c| missed(c) == 0.0);
}

#[test]
fn what_clients_get_is_looked_at() {
    let (mut cluster, mut operator) = begin(&[], &[("n1", &[])]);
    let said = operator.types(&mut cluster, "n1", "DoyenNotScraped");
    assert!(said.contains("doyen_members 1"), "{said}");
    let said = operator.types(&mut cluster, "n1", "DoyenConnectionsNearLimit");
    assert!(said.contains("doyen_resp_connections_max 10000"), "{said}");
    let said = operator.types(&mut cluster, "n1", "DoyenCommandErrors");
    assert!(said.contains("doyen_resp_command_errors_total"), "{said}");
    let said = operator.types(&mut cluster, "n1", "DoyenCommandsSlow");
    assert!(said.contains("nothing moves"), "{said}");
    operator.finish();
}

#[test]
fn a_certificate_that_expires_is_replaced_without_a_restart() {
    let (mut cluster, mut operator) = (Cluster::new(BINARY), Operator::new(BINARY));
    let certificates = Certificates::new();
    let (cert, key) = certificates.until(2090);
    for (name, text) in [
        ("ca.crt", &certificates.authority),
        ("n2.crt", &cert),
        ("n2.key", &key),
    ] {
        std::fs::write(cluster.file(name), text).expect("a file in our own directory");
    }
    let files = ["ca.crt", "n2.crt", "n2.key"].map(|name| cluster.file(name).display().to_string());
    operator.joins(
        &mut cluster,
        "n2",
        &[
            "--tls-ca",
            &files[0],
            "--tls-cert",
            &files[1],
            "--tls-key",
            &files[2],
        ],
    );
    cluster.await_safe(1);
    let ends = |c: &Cluster| metrics(c, "n2")["doyen_certificate_expiry_timestamp_seconds"];
    assert_eq!(ends(&cluster), 3_786_912_000.0, "2090-01-01");

    let (cert, key) = certificates.until(2095);
    std::fs::write(operator.file("n2.crt"), cert).expect("a file in our own directory");
    std::fs::write(operator.file("n2.key"), key).expect("a file in our own directory");
    let said = operator.types(&mut cluster, "n2", "DoyenCertificateExpires");
    assert!(
        said.contains("doyen_certificate_reloads_total{outcome=\"done\"} 1"),
        "{said}"
    );
    assert_eq!(ends(&cluster), 3_944_678_400.0, "2095-01-01");
    operator.finish();
}

#[test]
fn prometheus_gets_a_token_of_its_own() {
    let (mut cluster, mut operator) = begin(&[], &[("n1", &[])]);
    operator.types(&mut cluster, "n1", "Metrics");
    let token = std::fs::read_to_string(operator.file("prometheus")).expect("a file with a token");
    let address = cluster.node("n1").ready.http;
    let read = |path: &str| doyen_tests::process::http(address, path, Some(token.trim()));
    assert!(read("/metrics").is_ok_and(|text| text.contains("doyen_safe")));
    // It sees no keys.
    assert!(read("/table").is_err());
    operator.finish();
}
