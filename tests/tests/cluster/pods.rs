//! What Kubernetes does to the pods of a StatefulSet, with the configuration of the manifests
//! (`node/packaging/kubernetes/doyen.yaml`). A pod is a process with an address of its own on
//! loopback. The headless Service is a file `/etc/hosts` that only these processes see: each has a
//! mount namespace. Where the system forbids those, the tests say so, and check nothing.

use doyen_tests::cluster::{Cluster, last_lines};
use doyen_tests::load::{Load, Tally};
use doyen_tests::resp::Reply;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
/// The first port between nodes. Each pod has an address of its own, so all have the same ports.
const CONTROL_PORT: u16 = 7400;
/// What an eviction for a lack of memory or disk leaves a pod at most, by default.
const EVICTION_GRACE: Duration = Duration::from_secs(30);

/// A StatefulSet with its headless Service.
struct Pods {
    cluster: Cluster,
    /// What the Service publishes, ready or not.
    published: BTreeMap<String, Ipv4Addr>,
    addresses: u8,
    block: [u8; 2],
}

impl Pods {
    /// None: this system has no mount namespaces for us.
    fn new() -> Option<Self> {
        static CLUSTERS: AtomicU8 = AtomicU8::new(0);
        let flags = ["-m", "-rm"].into_iter().find(|flags| {
            let mut command = Command::new("unshare");
            command.args([flags, "mount", "--bind", "/etc/hosts", "/etc/hosts"]);
            command.output().is_ok_and(|done| done.status.success())
        });
        let Some(flags) = flags else {
            eprintln!("NOT CHECKED: pods, because this system gives us no mount namespaces");
            return None;
        };
        let mut cluster = Cluster::new(BINARY);
        // Several programs of tests may run: the process id tells their addresses apart.
        let program = u8::try_from(std::process::id() % 120).expect("below 120");
        let own = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let (hosts, names) = (cluster.file("hosts"), cluster.file("nsswitch.conf"));
        fs::write(&names, "hosts: files\n").expect("a file of ours");
        fs::write(cluster.file("doyen.toml"), configuration()).expect("a file of ours");
        let pod = cluster.file("pod");
        let script = format!(
            "#!/bin/sh\nexec unshare {flags} sh -c 'mount --bind {} /etc/hosts && mount --bind {} \
             /etc/nsswitch.conf && exec {BINARY} \"$@\"' pod \"$@\"\n",
            hosts.display(),
            names.display()
        );
        fs::write(&pod, script).expect("a file of ours");
        fs::set_permissions(&pod, fs::Permissions::from_mode(0o755)).expect("it is ours");
        cluster.runs(pod);
        let mut pods = Self {
            cluster,
            published: BTreeMap::new(),
            addresses: 0,
            block: [100 + program, own],
        };
        pods.publish(&[]);
        Some(pods)
    }

    /// The first three, which form the cluster.
    fn three() -> Option<Self> {
        let mut pods = Self::new()?;
        for name in ["doyen-0", "doyen-1", "doyen-2"] {
            pods.start(name);
        }
        pods.cluster.await_safe(3);
        Some(pods)
    }

    /// Writes what the names resolve to, in place: the pods have mounted this file.
    fn publish(&mut self, withheld: &[&str]) {
        let mut text = String::from("127.0.0.1 localhost\n");
        for (name, address) in &self.published {
            if !withheld.contains(&name.as_str()) {
                writeln!(text, "{address} doyen-peers").expect("a text grows");
            }
        }
        fs::write(self.cluster.file("hosts"), text).expect("a file of ours");
    }

    /// Starts a pod at a new address, which its name resolves to only later: after `publish`.
    fn schedule(&mut self, name: &str) {
        self.addresses += 1;
        let ip = Ipv4Addr::new(127, self.block[0], self.block[1], self.addresses);
        let at = |port: u16| SocketAddr::from((ip, port)).to_string();
        let config = self.cluster.file("doyen.toml").display().to_string();
        let mut flags = vec!["--config".to_owned(), config];
        for (flag, port) in [
            ("--listen", CONTROL_PORT),
            ("--data", 7401),
            ("--resp", 7379),
            ("--resp-cluster", 7380),
            ("--http", 7480),
        ] {
            flags.extend([flag.to_owned(), at(port)]);
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        if let Err(refused) = self.cluster.try_start(name, &[], &flags) {
            panic!("{name} does not start: {refused:?}");
        }
        self.published.insert(name.to_owned(), ip);
    }

    /// Starts a pod at a new address, which is published at once.
    fn start(&mut self, name: &str) {
        self.schedule(name);
        self.publish(&[]);
    }

    fn is_ready(&self, name: &str) -> bool {
        self.cluster.node(name).http("/readyz").is_ok()
    }

    /// Stops a pod as an eviction does: once all others are ready, which a PodDisruptionBudget with
    /// `maxUnavailable: 1` asks for, SIGTERM, and SIGKILL after the grace.
    fn evict(&mut self, name: &str) {
        self.cluster.eventually("all pods are ready", |cluster| {
            let mut pods = cluster.nodes.values();
            pods.all(|pod| pod.http("/readyz").is_ok())
        });
        let began = Instant::now();
        let status = self.cluster.leave(name);
        assert!(
            status.success() && began.elapsed() < EVICTION_GRACE,
            "{name} ended with {status} after {:?}",
            began.elapsed()
        );
        self.published.remove(name);
        self.publish(&[]);
    }

    fn clusters(&self) -> BTreeSet<String> {
        let names = self.cluster.nodes.keys();
        let ids = names.map(|name| self.cluster.report(name, "/status")["cluster_id"].to_string());
        ids.collect()
    }

    /// Writes until there are as many more acknowledged writes.
    fn progress(&self, load: &Load, more: u64) {
        let wanted = load.acknowledged() + more;
        self.cluster
            .eventually("writes are acknowledged", |_| load.acknowledged() >= wanted);
    }

    /// Nothing that was acknowledged is lost, and nothing that was read was stale.
    fn judge(&self, tally: &Tally) {
        assert!(
            tally.acknowledged > 0 && tally.stale.is_empty(),
            "{tally:?}"
        );
        let lost = tally.lost(&mut self.cluster.client("doyen-0"));
        assert!(lost.is_empty(), "{lost:?}");
    }
}

/// The configuration of the manifests, without passwords and TLS, which our clients do not speak,
/// and with a leave timeout for pods that are evicted.
fn configuration() -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../node/packaging/kubernetes/doyen.yaml");
    let manifests = fs::read_to_string(path).expect("a file of the repository");
    let (_, config) = manifests
        .split_once("  doyen.toml: |\n")
        .expect("the manifests have a configuration");
    let lines = config.lines().map_while(|line| line.strip_prefix("    "));
    let kept = lines.filter(|line| {
        let of_clients = ["resp-tls", "resp-password-file", "secret-file"];
        !of_clients.iter().any(|key| line.starts_with(key))
    });
    kept.map(|line| match line.starts_with("leave-timeout") {
        true => "leave-timeout = \"25s\"\n".to_owned(),
        false => format!("{line}\n"),
    })
    .collect()
}

/// Pods begin one after the other, and the names of the first ones do not resolve yet: to no
/// address, to one pod, to some of them.
#[test]
fn pods_whose_names_resolve_late_begin_one_cluster() {
    let Some(mut pods) = Pods::new() else { return };
    pods.schedule("doyen-0");
    pods.cluster
        .eventually("it looks for the others", |cluster| {
            cluster.nodes["doyen-0"].log().contains("doyen-peers:7400")
        });
    pods.schedule("doyen-1");
    pods.publish(&["doyen-1"]);
    // Two of three form no cluster.
    assert!(!pods.is_ready("doyen-0") && !pods.is_ready("doyen-1"));
    pods.schedule("doyen-2");
    pods.publish(&["doyen-2"]);
    pods.publish(&[]);
    pods.cluster.await_safe(3);
    assert_eq!(pods.clusters().len(), 1);
}

/// All machines are replaced: the data is gone, and the names resolve to former addresses first.
#[test]
fn all_pods_may_come_back_with_new_addresses() {
    let Some(mut pods) = Pods::three() else {
        return;
    };
    let former = pods.clusters();
    for name in ["doyen-0", "doyen-1", "doyen-2"] {
        pods.cluster.kill(name);
    }
    // The Service still has the former addresses while these begin.
    for name in ["doyen-2", "doyen-0", "doyen-1"] {
        pods.schedule(name);
    }
    pods.publish(&[]);
    pods.cluster.await_safe(3);
    let now = pods.clusters();
    assert!(now.len() == 1 && now.is_disjoint(&former), "{now:?}");
    let said = pods.cluster.command_at("doyen-1", &["SET", "k", "v"]);
    assert_eq!(said, Reply::Simple("OK".into()));
}

/// A machine hangs, its pod is deleted by force, and the next pod of that name begins elsewhere
/// while the former process is silent. Then the machine goes on.
#[test]
fn a_pod_may_come_back_elsewhere_while_its_former_process_is_silent() {
    let Some(mut pods) = Pods::three() else {
        return;
    };
    let load = Load::start(pods.cluster.resp_addresses(), 4);
    pods.progress(&load, 200);
    let mut silent = pods.cluster.nodes.remove("doyen-1").expect("it runs");
    load.redirect(pods.cluster.resp_addresses());
    silent.stop();
    pods.start("doyen-1");
    pods.cluster.await_safe(3);
    load.redirect(pods.cluster.resp_addresses());
    pods.progress(&load, 200);

    silent.resume();
    let log = silent.log();
    let status = silent.wait();
    assert_eq!(status.code(), Some(1), "{}", last_lines(&log, 20));
    pods.cluster.await_safe(3);
    assert_eq!(pods.clusters().len(), 1);
    pods.judge(&load.finish());
}

/// As a rolling update does, and `kubectl drain` of one machine after the other: each pod comes
/// back at a new address. The budget alone decides when the next one goes.
#[test]
fn a_rolling_update_within_a_disruption_budget_loses_nothing() {
    let Some(mut pods) = Pods::three() else {
        return;
    };
    let load = Load::start(pods.cluster.resp_addresses(), 4);
    for name in ["doyen-2", "doyen-1", "doyen-0"] {
        pods.progress(&load, 200);
        let others = pods
            .cluster
            .nodes
            .iter()
            .filter(|(other, _)| *other != name);
        load.redirect(others.map(|(_, pod)| pod.ready.resp).collect());
        pods.evict(name);
        pods.start(name);
        pods.cluster.eventually("the new pod is ready", |cluster| {
            cluster.nodes[name].http("/readyz").is_ok()
        });
        load.redirect(pods.cluster.resp_addresses());
    }
    pods.progress(&load, 200);
    pods.cluster.await_safe(3);
    pods.judge(&load.finish());
}

/// With `podManagementPolicy: Parallel`, two pods begin at once, and later leave at once.
#[test]
fn five_pods_become_three_again_and_lose_nothing() {
    let Some(mut pods) = Pods::three() else {
        return;
    };
    let load = Load::start(pods.cluster.resp_addresses(), 4);
    pods.progress(&load, 200);
    for name in ["doyen-3", "doyen-4"] {
        pods.schedule(name);
    }
    pods.publish(&[]);
    pods.cluster.await_safe(5);
    pods.progress(&load, 200);
    for name in ["doyen-3", "doyen-4"] {
        let pod = pods.cluster.nodes.get_mut(name).expect("it runs");
        pod.terminate();
    }
    for name in ["doyen-3", "doyen-4"] {
        let status = pods.cluster.nodes.remove(name).expect("it runs").wait();
        assert!(status.success(), "{name} ended with {status}");
        pods.published.remove(name);
    }
    pods.publish(&[]);
    pods.cluster.await_safe(3);
    pods.progress(&load, 200);
    pods.judge(&load.finish());
}
