//! Zones, witnesses and certificates from files, with real processes.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::Reply;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

fn table(cluster: &Cluster, name: &str) -> Value {
    serde_json::from_str(&cluster.node(name).http("/table").expect("a table")).expect("JSON")
}

fn partitions(table: &Value) -> Vec<(String, Vec<String>)> {
    let names = |v: &Value| {
        v.as_array()
            .into_iter()
            .flatten()
            .filter_map(|n| n.as_str().map(str::to_owned))
            .collect()
    };
    let all = table["keyspaces"][0]["partitions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    all.iter()
        .map(|p| {
            (
                p["primary"].as_str().unwrap_or_default().to_owned(),
                names(&p["backups"]),
            )
        })
        .collect()
}

fn fill(cluster: &Cluster, name: &str) {
    let mut client = cluster.client(name);
    for i in 0..500 {
        let reply = client.command(&[
            b"SET",
            format!("key-{i}").as_bytes(),
            format!("value-{i}").as_bytes(),
        ]);
        assert_eq!(reply.expect("a reply"), Reply::Simple("OK".into()));
    }
}

fn check(cluster: &Cluster, name: &str) {
    let mut client = cluster.client(name);
    for i in 0..500 {
        let reply = client
            .command(&[b"GET", format!("key-{i}").as_bytes()])
            .expect("a reply");
        assert_eq!(
            reply,
            Reply::Bulk(format!("value-{i}").into_bytes()),
            "key-{i}"
        );
    }
}

#[test]
fn a_whole_zone_dies_and_nothing_is_lost() {
    let mut cluster = Cluster::new(BINARY);
    for (name, zone) in [
        ("n0", "a"),
        ("n1", "a"),
        ("n2", "a"),
        ("n3", "b"),
        ("n4", "b"),
    ] {
        cluster.join_with(name, &["--zone", zone]);
    }
    cluster.await_safe(5);
    let of_zone = |name: &String| {
        if ["n3", "n4"].contains(&name.as_str()) {
            "b"
        } else {
            "a"
        }
    };
    let all = partitions(&table(&cluster, "n0"));
    assert_eq!(all.len(), 64);
    for (primary, backups) in &all {
        assert_eq!(backups.len(), 1);
        assert_ne!(
            of_zone(primary),
            of_zone(&backups[0]),
            "two copies in one zone: {primary} and {backups:?}"
        );
    }
    fill(&cluster, "n0");
    cluster.kill("n3");
    cluster.kill("n4");
    cluster.await_safe(3);
    check(&cluster, "n1");
}

#[test]
fn with_a_witness_either_of_two_members_may_die() {
    let mut cluster = Cluster::new(BINARY);
    cluster.join("n0");
    cluster.join("n1");
    cluster.join_with("w", &["--witness"]);
    cluster.await_safe(3);
    let all = partitions(&table(&cluster, "n0"));
    assert!(
        all.iter()
            .all(|(primary, backups)| primary != "w" && !backups.iter().any(|b| b == "w")),
        "a witness holds nothing"
    );
    // Every node takes every operation, also a node that holds nothing.
    fill(&cluster, "w");
    let older = cluster.coordinator();
    assert_eq!(older, "n0");
    cluster.kill(&older);
    cluster.await_safe(2);
    check(&cluster, "n1");
    check(&cluster, "w");
}

/// A certificate authority, with what it signs, in the cluster's directory.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) file: PathBuf,
}

impl Authority {
    pub(super) fn new(cluster: &Cluster, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let file = cluster.file(&format!("{name}.pem"));
        std::fs::write(
            &file,
            params.self_signed(&key).expect("a certificate").pem(),
        )
        .expect("a file of ours");
        Self {
            issuer: Issuer::new(params, key),
            file,
        }
    }

    /// Flags of a node with a certificate for this name, and for localhost.
    pub(super) fn flags(&self, cluster: &Cluster, names: &str) -> Vec<String> {
        let key = KeyPair::generate().expect("a key");
        let both = vec![names.to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(both).expect("names");
        let role = "doyen:member".try_into().expect("a URI");
        params.subject_alt_names.push(SanType::URI(role));
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let (cert, key_file) = (
            cluster.file(&format!("{names}.crt")),
            cluster.file(&format!("{names}.key")),
        );
        std::fs::write(
            &cert,
            params
                .signed_by(&key, &self.issuer)
                .expect("a certificate")
                .pem(),
        )
        .expect("a file of ours");
        std::fs::write(&key_file, key.serialize_pem()).expect("a file of ours");
        let path = |p: &PathBuf| p.display().to_string();
        [
            "--tls-ca".into(),
            path(&self.file),
            "--tls-cert".into(),
            path(&cert),
            "--tls-key".into(),
            path(&key_file),
        ]
        .to_vec()
    }
}

/// SIGHUP ended a node. A terminal sends it when it closes, and many programs reload their files on
/// it.
#[test]
fn a_hang_up_reads_secrets_and_certificates_again_and_ends_nothing() {
    let mut cluster = Cluster::new(BINARY);
    cluster.join("secret");
    let secret = cluster.nodes.get_mut("secret").expect("it runs");
    secret.hang_up();
    cluster.eventually("it has read its secret again", |c| {
        let log = c.node("secret").log();
        log.contains("were read again") && log.contains("SIGHUP: all other options need a restart")
    });
    assert_eq!(
        cluster.command_at("secret", &["PING"]),
        Reply::Simple("PONG".into())
    );
    // A signal that comes while a node leaves does not end it either.
    let mut secret = cluster.nodes.remove("secret").expect("it runs");
    secret.terminate();
    secret.hang_up();
    assert_eq!(secret.wait().code(), Some(0));

    let ours = Authority::new(&cluster, "ca");
    let flags = ours.flags(&cluster, "n0");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    cluster.join_with("n0", &flags);
    cluster.await_safe(1);
    for read in 1..=2 {
        // The same file names, with another key. The node may also have noticed by itself, even
        // before all files were written.
        let _same = ours.flags(&cluster, "n0");
        let reads = |c: &Cluster| c.node("n0").log().matches("were read again").count();
        let hang_ups = |c: &Cluster| c.node("n0").log().matches("SIGHUP: ").count();
        let before = reads(&cluster);
        cluster.nodes.get_mut("n0").expect("it runs").hang_up();
        cluster.eventually("the new files are in force", |c| {
            reads(c) > before && hang_ups(c) == read
        });
    }
    assert_eq!(
        cluster.command_at("n0", &["PING"]),
        Reply::Simple("PONG".into())
    );
    // With the files of its second key, it works with other members as before.
    let newcomer = ours.flags(&cluster, "n1");
    cluster.join_with(
        "n1",
        &newcomer.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    cluster.await_safe(2);
    assert_eq!(cluster.leave("n0").code(), Some(0));
}

#[test]
fn a_node_warns_of_secrets_that_every_user_can_read() {
    let mut cluster = Cluster::new(BINARY);
    let password = cluster.file("password");
    std::fs::write(&password, "sesame of the tests\n").expect("a file of ours");
    let path = password.display().to_string();
    let warns = |cluster: &Cluster, name: &str| {
        let log = cluster.node(name).log();
        log.lines()
            .filter(|line| {
                line.contains("WARN") && line.contains("every user of this machine can read")
            })
            .collect::<Vec<_>>()
            .join("\n")
    };
    for (name, mode) in [("open", 0o644), ("shut", 0o600)] {
        std::fs::set_permissions(&password, std::fs::Permissions::from_mode(mode))
            .expect("it is ours");
        cluster
            .try_start(name, &[], &["--resp-password-file", &path])
            .expect("it starts");
    }
    let said = warns(&cluster, "open");
    assert!(
        said.lines().count() == 1 && said.contains(&path) && said.contains("chmod 600"),
        "{said}"
    );
    assert_eq!(warns(&cluster, "shut"), "");
}

#[test]
fn certificates_from_files_bind_members_to_their_names() {
    let mut cluster = Cluster::new(BINARY);
    let ours = Authority::new(&cluster, "ca");
    for name in ["n0", "n1", "n2"] {
        let flags = ours.flags(&cluster, name);
        cluster.join_with(name, &flags.iter().map(String::as_str).collect::<Vec<_>>());
    }
    cluster.await_safe(3);
    fill(&cluster, "n0");
    cluster.kill("n0");
    cluster.await_safe(2);
    check(&cluster, "n2");

    // One node has a certificate of another authority. The other has a name that is not in its
    // certificate. Neither becomes a member.
    let theirs = Authority::new(&cluster, "other-ca");
    let stranger = theirs.flags(&cluster, "n3");
    let liar = ours.flags(&cluster, "n4");
    for (name, flags, why) in [
        ("n3", stranger, "authority"),
        ("n5", liar, "its certificate names neither"),
    ] {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let seeds: Vec<_> = cluster.nodes.values().map(|p| p.ready.listen).collect();
        let log = match cluster.try_start(name, &seeds, &flags) {
            Err(refused) => refused.stderr,
            Ok(()) => {
                let process = cluster.nodes.remove(name).expect("it was started");
                cluster.eventually("it ends, and says why", |_| {
                    process
                        .log()
                        .lines()
                        .any(|line| line.starts_with("doyen: "))
                });
                let log = process.log();
                assert!(!process.wait().success());
                log
            }
        };
        assert!(
            log.lines()
                .any(|line| line.starts_with("doyen: ") && line.contains(why)),
            "{name}: {log}"
        );
    }
    cluster.await_safe(2);
    let members = cluster.status("n1").expect("a status")["members"]
        .as_array()
        .map_or(0, Vec::len);
    assert_eq!(members, 2);
}
