//! Secrets with roles, and their replacement; on real processes.

use doyen::{Error, Map, Node};
use doyen_tests::cluster::{Cluster, last_lines};
use doyen_tests::load::Load;
use doyen_tests::native;
use doyen_tests::resp::Reply;
use std::path::Path;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// Runs a command that must succeed, and returns what it prints.
fn succeeds(cluster: &Cluster, words: &[&str]) -> String {
    let output = cluster.command(words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must fail because of how it was called.
fn refused(cluster: &Cluster, words: &[&str]) -> String {
    let output = cluster.command(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Derives the other files from the cluster's secret, which lies beside them.
fn derive(cluster: &Cluster) -> [String; 2] {
    let dir = cluster.file("derived");
    let secret = text(&cluster.secret_file());
    succeeds(
        cluster,
        &["secret", "new", "--dir", &text(&dir), "--from", &secret],
    );
    ["client", "operator"].map(|name| {
        let beside = cluster.file(name);
        std::fs::copy(dir.join(name), &beside).expect("a file of ours");
        text(&beside)
    })
}

/// Connects as a client with this file, and writes something.
async fn uses_data(cluster: &Cluster, file: &str) -> Result<(), Error> {
    let client = Node::builder()
        .client()
        .seeds([cluster.node("n0").ready.data.to_string()])
        .secret_file(file)
        .start()
        .await?;
    let map: Map<String, u32> = client.map("used").await?;
    map.insert("key", &1).await?;
    // Administration is not among what a client may do.
    assert!(client.admin().drain("n0").await.is_err());
    client.shutdown().await;
    Ok(())
}

#[test]
fn each_file_opens_what_its_role_may_do_and_nothing_else() {
    let cluster = Cluster::of(BINARY, 1);
    let secret = text(&cluster.secret_file());
    let [client, operator] = derive(&cluster);
    let shown = succeeds(&cluster, &["secret", "show", &secret, &client, &operator]);
    for said in ["for a node", "for a client", "for an operator"] {
        assert!(shown.contains(said), "{shown}");
    }
    let fingerprints: Vec<&str> = shown.lines().filter(|l| l.starts_with("  ")).collect();
    assert_eq!(fingerprints.len(), 3);
    assert!(
        fingerprints.iter().all(|f| *f == fingerprints[0]),
        "{shown}"
    );

    // A node.
    for (file, role) in [(&client, "a client"), (&operator, "an operator")] {
        let said = refused(&cluster, &["run", "--secret-file", file, "--http", "off"]);
        assert!(
            said.contains(&format!("secret of {role}"))
                && said.contains("a node needs the member's"),
            "{said}"
        );
    }

    // Data.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for file in [&client, &secret] {
        runtime
            .block_on(uses_data(&cluster, file))
            .expect("it opens data");
    }
    let refusal = runtime
        .block_on(uses_data(&cluster, &operator))
        .unwrap_err();
    assert!(refusal.to_string().contains("of an operator"), "{refusal}");

    // Administration.
    let http = cluster.node("n0").ready.http.to_string();
    let create = |name: &str, file: &str| {
        let words = [
            "keyspace",
            "create",
            name,
            "--http",
            &http,
            "--secret-file",
            file,
        ];
        cluster.command(&words)
    };
    for (name, file) in [("by-member", &secret), ("by-operator", &operator)] {
        let output = create(name, file);
        assert!(output.status.success(), "{output:?}");
    }
    let output = create("by-client", &client);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("use data"),
        "{said}"
    );
    // The same with a token that the client's secret might yield.
    let report = cluster.node("n0").http("/keyspaces").expect("keyspaces");
    assert!(
        report.contains("by-operator") && !report.contains("by-client"),
        "{report}"
    );
}

#[test]
fn new_secrets_overwrite_nothing_and_only_their_owner_reads_them() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = Cluster::new(BINARY);
    let dir = cluster.file("new");
    let said = succeeds(&cluster, &["secret", "new", "--dir", &text(&dir)]);
    assert!(said.contains("doyen run --secret-file"), "{said}");
    for (name, wanted) in [
        ("member", 0o600),
        ("client", 0o600),
        ("operator", 0o600),
        ("ca.pem", 0o644),
    ] {
        let mode = std::fs::metadata(dir.join(name)).expect(name).permissions();
        assert_eq!(mode.mode() & 0o777, wanted, "{name}");
        let content = std::fs::read_to_string(dir.join(name)).expect("text");
        assert!(!said.contains(content.trim()), "{name} was printed");
    }
    std::fs::remove_file(dir.join("member")).expect("it is ours");
    let before = std::fs::read(dir.join("client")).expect("a file");
    let said = refused(&cluster, &["secret", "new", "--dir", &text(&dir)]);
    assert!(said.contains("never overwritten"), "{said}");
    assert!(!dir.join("member").exists(), "nothing is written");
    assert_eq!(std::fs::read(dir.join("client")).expect("a file"), before);
}

#[test]
fn phrases_that_are_guessed_easily_do_not_start_a_node() {
    let cluster = Cluster::new(BINARY);
    let file = cluster.file("phrase");
    for weak in ["aaaaaaaaaaaaaaaaaaaaaaaa", "passwordpassword123"] {
        doyen_tests::cluster::write_secret(&file, weak);
        let said = refused(
            &cluster,
            &["run", "--secret-file", &text(&file), "--http", "off"],
        );
        assert!(
            said.contains("guessed too easily") && said.contains("secret new"),
            "{said}"
        );
        assert!(!said.contains(weak), "{said}");
    }
}

/// The control of the rotation below: a node that has another secret is refused.
fn is_refused(cluster: &mut Cluster, file: &str) -> bool {
    let seed = cluster.node("n0").ready.listen;
    let started = cluster.try_start("stranger", &[seed], &["--secret-file", file]);
    let log = match started {
        Err(refused) => refused.stderr,
        Ok(()) => {
            let mut stranger = cluster.nodes.remove("stranger").expect("just started");
            cluster.eventually("it ends", |_| stranger.ended());
            stranger.log()
        }
    };
    log.contains("do not trust each other")
}

#[test]
fn a_secret_is_replaced_under_load_and_no_operation_fails() {
    let mut cluster = Cluster::of(BINARY, 3);
    let secret = text(&cluster.secret_file());
    let former = cluster.file("former");
    std::fs::copy(cluster.secret_file(), &former).expect("a file of ours");
    let [client, operator] = derive(&cluster);
    let redis = Load::start(cluster.resp_addresses(), 4);
    let native = native::Load::start(
        cluster.nodes.values().map(|p| p.ready.data).collect(),
        client.clone().into(),
        4,
    );
    let progress = |cluster: &Cluster| {
        let (r, n) = (redis.acknowledged(), native.answered());
        cluster.eventually("operations go on", |_| {
            redis.acknowledged() >= r + 200 && native.answered() >= n + 200
        });
    };
    progress(&cluster);

    // A member that cannot be asked: nothing is changed.
    let http = cluster.node("n0").ready.http.to_string();
    let content = std::fs::read(cluster.secret_file()).expect("a file");
    let rotate = [
        "secret",
        "rotate",
        "--secret-file",
        &secret,
        "--http",
        &http,
    ];
    let said = refused(
        &cluster,
        &[&rotate[..], &["--new", "--confirmed", "nobody"]].concat(),
    );
    assert!(said.contains("no member is called nobody"), "{said}");
    assert_eq!(
        std::fs::read(cluster.secret_file()).expect("a file"),
        content
    );

    // Nothing is under way, so a call without --new begins nothing.
    let said = refused(&cluster, &rotate);
    assert!(said.contains("begin a rotation with --new"), "{said}");
    assert_eq!(
        std::fs::read(cluster.secret_file()).expect("a file"),
        content
    );

    // The first step waits for the members, and stops: programs may need the new authorities.
    let said = succeeds(&cluster, &[&rotate[..], &["--new", "--wait"]].concat());
    for part in ["added", "every member has it", "ca.pem before"] {
        assert!(said.contains(part), "{said}");
    }
    let said = refused(&cluster, &[&rotate[..], &["--new"]].concat());
    assert!(said.contains("a rotation is under way"), "{said}");
    progress(&cluster);

    // All nodes and clients read these files, so one command makes the other steps.
    let said = succeeds(
        &cluster,
        &[&rotate[..], &["--all", "--timeout", "120"]].concat(),
    );
    for step in ["used", "removed", "done"] {
        assert!(said.contains(step), "{said}");
    }
    let said = refused(&cluster, &rotate);
    assert!(said.contains("no rotation is under way"), "{said}");
    progress(&cluster);

    let (redis, native) = (redis.finish(), native.finish());
    assert!(redis.errors.is_empty(), "failed: {:?}", redis.errors);
    assert_eq!((redis.refused, redis.unknown, redis.reconnected), (0, 0, 0));
    assert!(redis.stale.is_empty(), "stale: {:?}", redis.stale);
    assert!(native.refused.is_empty(), "failed: {:?}", native.refused);
    assert_eq!(native.unknown, 0);
    assert_eq!(native.violations(), Vec::<String>::new());
    println!(
        "{} writes and {} reads of Redis clients, {} operations of native clients: 0 failed; the \
         longest took {:?} and {:?}",
        redis.acknowledged, redis.reads, native.answered, redis.longest, native.longest
    );

    // The new secret opens everything, and the former one nothing.
    let shown = succeeds(&cluster, &["secret", "show", &secret, &client, &operator]);
    assert_eq!(shown.matches("signs").count(), 3, "{shown}");
    assert_eq!(shown.lines().count(), 6, "{shown}");
    cluster.join("n3");
    cluster.await_safe(4);
    assert!(is_refused(&mut cluster, &text(&former)));
    for name in ["n0", "n3"] {
        let log = cluster.node(name).log();
        assert!(!log.contains("cannot be used"), "{}", last_lines(&log, 20));
    }
    assert_eq!(
        cluster.command_at("n3", &["PING"]),
        Reply::Simple("PONG".into())
    );
    let with_former = cluster.command(&[
        "keyspace",
        "create",
        "late",
        "--http",
        &http,
        "--secret-file",
        &text(&former),
    ]);
    assert!(!with_former.status.success(), "{with_former:?}");
}
