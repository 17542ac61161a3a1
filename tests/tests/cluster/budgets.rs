//! Commands that do much with few bytes keep no thread busy for so long that its node counts as
//! dead.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::{Client, Reply};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

/// The longest pass of a data thread.
const LONGEST: &str = "doyen_data_pass_longest_seconds{";
/// Members of a set: as many as one command may add.
const COUNT: usize = 131_000;
/// Bytes of a string.
const BYTES: usize = 15 << 20;

fn ask(client: &mut Client, line: &str) -> Reply {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    client.command(&words).expect("a reply")
}

/// The replies of these commands, sent together. The last one is `EXEC`'s, in a transaction.
fn pipeline(client: &mut Client, lines: &[&str]) -> Vec<Reply> {
    client
        .raw((lines.join("\r\n") + "\r\n").as_bytes())
        .expect("sent");
    lines
        .iter()
        .map(|_| client.reply().expect("a reply"))
        .collect()
}

fn too_much(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("ERR too much work"))
}

/// Regression: 100 `SINTERCARD` in one `EXEC`, 1,500 `BITCOUNT`, or one large `SUNIONSTORE` kept
/// the thread of the primary busy for seconds. The members expelled it, and the next primary was
/// given the same.
#[test]
fn operations_that_do_too_much_are_refused_and_expel_no_node() {
    let cluster = Cluster::of(BINARY, 3);
    cluster.await_safe(3);
    let members = |cluster: &Cluster| {
        let status = cluster.status("n0").expect("a status");
        let all = status["members"].as_array().cloned().unwrap_or_default();
        let ids = all.iter().map(|member| member["id"].to_string());
        let mut ids: Vec<String> = ids.collect();
        ids.sort();
        ids
    };
    let before = members(&cluster);
    let mut client = cluster.client("n0");
    for set in 0..3 {
        let given: String = (0..COUNT).map(|n| format!(" {set}:{n}")).collect();
        let added = ask(&mut client, &format!("SADD {{k}}{set}{given}"));
        assert_eq!(added, Reply::Int(COUNT as i64));
    }
    let length = ask(&mut client, &format!("SETRANGE {{k}}s {} x", BYTES - 1));
    assert_eq!(length, Reply::Int(BYTES as i64));
    // By another node than the primary, too: the refusal travels.
    for node in ["n0", "n1", "n2"] {
        let mut client = cluster.client(node);
        let stored = ask(&mut client, "SUNIONSTORE {k}all {k}0 {k}1 {k}2");
        assert!(too_much(&stored), "{stored:?}");
        for (heavy, count) in [("SINTERCARD 2 {k}0 {k}0", 100), ("BITCOUNT {k}s", 1_500)] {
            let mut lines = vec!["MULTI", "SET {k}new 1"];
            lines.extend(vec![heavy; count]);
            lines.push("EXEC");
            let replies = pipeline(&mut client, &lines);
            let executed = replies.last().expect("a reply");
            assert!(too_much(executed), "{heavy}: {executed:?}");
        }
        let script = "for n = 1, 100 do redis.pcall('SINTERCARD', 2, KEYS[1], KEYS[1]) end";
        let words = ["EVAL", script, "1", "{k}0"].map(str::as_bytes);
        let run = client.command(&words).expect("a reply");
        assert!(matches!(run, Reply::Error(_)), "{run:?}");
        assert_eq!(ask(&mut client, "EXISTS {k}new {k}all"), Reply::Int(0));
        // Without a transaction, each is little enough, and they take turns with other clients.
        let counted = pipeline(&mut client, &["BITCOUNT {k}s"; 100]);
        assert!(
            counted.iter().all(|reply| *reply == Reply::Int(4)),
            "{counted:?}"
        );
    }
    for node in ["n0", "n1", "n2"] {
        let metrics = cluster.node(node).http("/metrics").expect("metrics");
        let passes = metrics.lines().filter(|line| line.starts_with(LONGEST));
        passes.for_each(|line| eprintln!("{node}: {line}"));
    }
    assert_eq!(ask(&mut client, "SCARD {k}0"), Reply::Int(COUNT as i64));
    assert_eq!(members(&cluster), before, "no member was expelled");
}
