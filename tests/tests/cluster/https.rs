//! HTTP in TLS: who sends tokens to whom; on real processes.

use doyen_tests::cluster::Cluster;
use std::process::Output;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// The files of a new secret, in this folder.
fn secret(cluster: &Cluster, dir: &str) -> [String; 3] {
    let dir = cluster.file(dir);
    let shown = dir.display().to_string();
    let made = cluster.command(&["secret", "new", "--dir", &shown]);
    assert!(made.status.success(), "{made:?}");
    ["member", "operator", "ca.pem"].map(|name| dir.join(name).display().to_string())
}

/// Asks for the status at this address.
fn status(cluster: &Cluster, address: &str, more: &[&str]) -> Output {
    cluster.command(&[&["status", "--json", "--http", address][..], more].concat())
}

#[test]
fn commands_send_their_token_only_to_nodes_of_their_cluster() {
    let mut cluster = Cluster::new(BINARY);
    let [member, operator, ca] = secret(&cluster, "own");
    let [_, foreign, foreign_ca] = secret(&cluster, "foreign");
    cluster.join_with("n0", &["--http-tls", "--secret-file", &member]);
    let at = cluster.node("n0").ready.http;
    let (https, http) = (format!("https://{at}"), format!("http://{at}"));

    let by_operator = ["--secret-file", &operator];
    cluster.eventually("it serves", |cluster| {
        status(cluster, &https, &by_operator).status.success()
    });

    // A command with the cluster's secret knows its authority. With a token, it must be told.
    let token = cluster.file("read.token").display().to_string();
    let made = ["token", "new", "watch", "--out", &token, "--http", &https];
    let made = cluster.command(&[&made[..], &["--secret-file", &operator]].concat());
    assert!(made.status.success(), "{made:?}");
    for credential in [
        &by_operator[..],
        &["--secret-file", &member],
        &["--http-token-file", &token, "--http-ca", &ca],
    ] {
        let asked = status(&cluster, &https, credential);
        assert!(asked.status.success(), "{credential:?}: {asked:?}");
    }

    let refused = |cluster: &Cluster, address: &str, credential: &[&str], why: &str| {
        let asked = status(cluster, address, credential);
        let said = String::from_utf8_lossy(&asked.stderr);
        assert!(
            !asked.status.success() && said.contains(why),
            "{credential:?}: {said}"
        );
    };
    let untrusted = "is not one of this cluster, so nothing was sent";
    refused(&cluster, &https, &["--secret-file", &foreign], untrusted);
    let others = ["--http-token-file", &token, "--http-ca", &foreign_ca];
    refused(&cluster, &https, &others, untrusted);
    refused(
        &cluster,
        &https,
        &["--http-token-file", &token],
        "which certificate to trust",
    );
    refused(&cluster, &http, &by_operator, "speaks TLS");

    // A node in the clear gets nothing of a command that asks for TLS.
    cluster.join_with("n1", &["--secret-file", &member]);
    let clear = format!("https://{}", cluster.node("n1").ready.http);
    refused(&cluster, &clear, &by_operator, "does not speak TLS");
}
