//! HTTP in TLS: who sends tokens to whom; on real processes.

use super::zones::Authority;
use doyen_tests::cluster::{Cluster, write_secret};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
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

/// What a port answers to a request in the clear with so long a body.
fn in_the_clear(at: SocketAddr, body: usize) -> String {
    let mut stream = TcpStream::connect(at).expect("it listens");
    let head = format!("POST /drop HTTP/1.1\r\nHost: {at}\r\nContent-Length: {body}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it takes a head");
    stream.write_all(&vec![b'x'; body]).expect("and a body");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("an answer, and the end");
    answer
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

    // Without a scheme as well, a command begins with TLS: it leaves no warning in the node's log.
    let asked = status(&cluster, &at.to_string(), &by_operator);
    assert!(asked.status.success(), "{asked:?}");
    let warning = "the TLS handshake of a client";
    assert!(!cluster.node("n0").log().contains(warning));
    // A client that asks in the clear gets an answer in the clear, however much it sends.
    for body in [0, 300_000] {
        let told = in_the_clear(at, body);
        assert!(told.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{told}");
        assert!(
            told.contains("this port speaks HTTPS: ask https://"),
            "{told}"
        );
    }
    assert!(cluster.node("n0").log().contains("it speaks no TLS"));

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
    refused(
        &cluster,
        &http,
        &["--http-token-file", &token],
        "speaks TLS, and nothing says which certificate to trust",
    );
    // No scheme needs to be typed: what speaks TLS is asked in TLS, with the same trust.
    for address in [at.to_string(), http] {
        let asked = status(&cluster, &address, &by_operator);
        assert!(asked.status.success(), "{address}: {asked:?}");
        refused(&cluster, &address, &["--secret-file", &foreign], untrusted);
    }

    // A node in the clear gets nothing of a command that asks for TLS.
    cluster.join_with("n1", &["--secret-file", &member]);
    let clear = format!("https://{}", cluster.node("n1").ready.http);
    refused(&cluster, &clear, &by_operator, "does not speak TLS");
    // Neither does a RESP port, and it says so at once.
    let resp = cluster.node("n1").ready.resp;
    refused(
        &cluster,
        &format!("https://{resp}"),
        &by_operator,
        "does not speak TLS",
    );
    let foreign = "does not answer like a Doyen node's HTTP";
    refused(&cluster, &resp.to_string(), &by_operator, foreign);
    assert!(
        cluster
            .node("n1")
            .log()
            .contains("because it does not send RESP: ")
    );

    // A rotation reaches each member as it talks.
    let rotate = ["secret", "rotate", "--new", "--secret-file", &member];
    let clear = cluster.node("n1").ready.http.to_string();
    cluster.eventually("there are two members", |cluster| {
        let status = cluster.status("n1").unwrap_or_default();
        status["members"]
            .as_array()
            .is_some_and(|all| all.len() == 2)
    });
    let rotated = cluster.command(&[&rotate[..], &["--http", &clear]].concat());
    let said = String::from_utf8_lossy(&rotated.stdout);
    assert!(
        rotated.status.success() && said.contains("before the next step, copy"),
        "{rotated:?}"
    );
}

#[test]
fn a_node_with_certificates_takes_tokens_once_there_is_one() {
    let mut cluster = Cluster::new(BINARY);
    let authority = Authority::new(&cluster, "ca");
    let ca = authority.file.display().to_string();
    let tokens = cluster.file("tokens");
    write_secret(&tokens, "0123456789abcdef0123456789abcdef\n");
    let tokens = tokens.display().to_string();
    for (name, more) in [
        ("n0", &["--http-tls"][..]),
        ("n1", &["--http-tls", "--http-token-file", &tokens]),
    ] {
        let flags = authority.flags(&cluster, name);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        cluster.join_with(name, &[&flags[..], more].concat());
    }
    // The certificate of the node is that of its HTTP, and names localhost.
    let at = |name: &str| format!("https://localhost:{}", cluster.node(name).ready.http.port());
    let by_file = ["--http-token-file", &tokens, "--http-ca", &ca];
    let refused = status(&cluster, &at("n0"), &by_file);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("has no token yet"),
        "{said}"
    );
    cluster.eventually("the other one serves", |cluster| {
        status(cluster, &at("n1"), &by_file).status.success()
    });
    let named = cluster.file("named").display().to_string();
    let made = ["token", "new", "ops", "--role", "operate", "--out", &named];
    let made = cluster.command(&[&made[..], &["--http", &at("n1")], &by_file].concat());
    assert!(made.status.success(), "{made:?}");
    let by_name = ["--http-token-file", &named, "--http-ca", &ca];
    cluster.eventually("both take the named token", |cluster| {
        ["n0", "n1"]
            .iter()
            .all(|name| status(cluster, &at(name), &by_name).status.success())
    });
}
