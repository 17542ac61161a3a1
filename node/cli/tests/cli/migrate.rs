//! `doyen export` and `doyen import` between real nodes, by files of both formats.

use crate::common::{Node, doyen, node, serving};
use doyen::resp::client::{Reply, RespClient};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The replies to commands. Each is text with blanks between its words.
fn ask(node: &Node, commands: &[&str]) -> Vec<Reply> {
    let commands = commands.iter().map(|command| {
        let words = command.split(' ').map(|word| word.as_bytes().to_vec());
        words.collect()
    });
    ask_words(node, &commands.collect::<Vec<_>>())
}

fn ask_words(node: &Node, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let address = node.address("resp").parse().expect("an address");
    runtime.block_on(async {
        let mut client = RespClient::connect(address)
            .await
            .expect("its port is open");
        let replies = client.pipeline(commands).await.expect("it answers");
        for (reply, command) in replies.iter().zip(commands) {
            assert!(!matches!(reply, Reply::Error(_)), "{command:?}: {reply:?}");
        }
        replies
    })
}

/// Keys of each type, in two databases: with deadlines, bytes that are no text, and large ones,
/// which are read or written in parts.
fn fill(node: &Node) {
    let numbers = (0..20_000).map(|n| format!(" element-{n}"));
    let large = format!("RPUSH large{}", numbers.collect::<String>());
    let fields = (0..10_000).map(|n| format!(" f{n} {}", "x".repeat(20)));
    let wide = format!("HSET wide{}", fields.collect::<String>());
    ask(
        node,
        &[
            "SET text some",
            "SET dated v PXAT 4000000000000",
            "RPUSH list b a b",
            "SADD set 1 2 three",
            "HSET hash f 1 g 2",
            "HPEXPIREAT hash 4000000000000 FIELDS 1 f",
            "ZADD scores 0.1 m inf n -inf o -0.30000000000000004 p",
            "XADD log 5-1 level warn level info",
            "XADD log 6-0 f v",
            "XADD log 7-0 f w",
            "XDEL log 7-0",
            "XGROUP CREATE log readers 0",
            "XREADGROUP GROUP readers me COUNT 1 STREAMS log >",
            "XGROUP CREATECONSUMER log readers idle",
            "SELECT 3",
            &large,
            &wide,
            "PEXPIREAT wide 4000000000000",
        ],
    );
    let words = |words: [&[u8]; 3]| words.map(<[u8]>::to_vec).to_vec();
    ask_words(
        node,
        &[
            words([b"SET", b"\xff\0key", b"\x80\n\"value\""]),
            words([b"SADD", b"bytes", b"\xff"]),
        ],
    );
}

/// Runs the command. Returns its status, and what it said.
fn ended(args: &[&str]) -> (i32, String) {
    let output = doyen(args).output().expect("the binary runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.code().unwrap_or(-1), said)
}

/// Runs the command, which must succeed and say this.
fn done(args: &[&str], words: &str) {
    let (status, said) = ended(args);
    assert!(status == 0 && said.contains(words), "{args:?}: {said}");
}

/// The lines of a file by database and key, with what has no order in one.
fn lines(path: &Path) -> BTreeMap<(u64, String), Value> {
    let text = std::fs::read_to_string(path).expect("UTF-8");
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        if let (true, Value::Array(all)) = (line["type"] != "list", &mut line["value"]) {
            all.sort_by_key(Value::to_string);
        }
        let key = (
            line["database"].as_u64().unwrap_or(0),
            line["key"].to_string(),
        );
        (key, line)
    };
    text.lines().map(line).collect()
}

#[test]
fn what_is_exported_is_imported_into_an_empty_cluster_in_both_formats() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let first = serving(&[]);
    fill(&first);
    let exported = path("first.ndjson");
    let to_file = |node: &Node, name: &str, more: &[&str]| {
        let (file, from) = (path(name), node.address("resp"));
        let file = file.to_str().expect("UTF-8");
        done(
            &[&["export", file, "--from", from], more].concat(),
            "11 keys are in",
        );
    };
    to_file(&first, "first.ndjson", &[]);
    let whole = lines(&exported);
    assert_eq!(whole.len(), 11, "{:?}", whole.keys());
    let binary = &whole[&(0, r#"{"base64":"/wBrZXk="}"#.to_owned())];
    assert_eq!(binary["value"]["base64"], "gAoidmFsdWUi");

    // By way of each format, the same comes out of another cluster.
    for (between, more) in [
        ("between.jsonl", &[][..]),
        ("between.rdb", &["--rdb-version", "12"]),
        ("between", &["--format", "ndjson"]),
    ] {
        to_file(&first, between, more);
        let second = serving(&[]);
        let (file, to) = (path(between), second.address("resp"));
        let file = file.to_str().expect("UTF-8");
        let mut import = vec!["import", file, "--to", to, "--verify"];
        if between == "between" {
            import.extend(more);
        }
        done(&import, "11 keys were written");
        done(&import, "11 keys were compared: all are the same");
        let again = format!("{between}.again.ndjson");
        to_file(&second, &again, &[]);
        assert_eq!(lines(&path(&again)), whole, "{between}");
    }
}

#[test]
fn an_import_ends_at_a_damaged_line_and_goes_on_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keys.ndjson");
    let file = path.to_str().expect("UTF-8");
    let write = |third: &str| {
        let first = r#"{"key":"a","type":"string","value":"1"}"#;
        let second = r#"{"key":"b","type":"hash","value":[{"field":"f","value":"2"}]}"#;
        let fourth = r#"{"key":"d","type":"string","value":"4"}"#;
        let expired = r#"{"key":"e","type":"string","value":"5","expires_at_ms":1}"#;
        // Nothing is left of it, either.
        let hash =
            r#"{"key":"f","type":"hash","value":[{"field":"f","value":"v","expires_at_ms":1}]}"#;
        let lines = [first, second, third, fourth, expired, hash, ""].join("\n");
        std::fs::write(&path, lines).expect("it is written");
    };
    let node = serving(&[]);
    let import = ["import", file, "--to", node.address("resp")];
    write(r#"{"key":"c","type":"list","value":["x",7]}"#);
    let (status, said) = ended(&import);
    assert_eq!(status, 1, "{said}");
    for words in [
        "2 keys were written",
        "keys.ndjson: line 3: at its byte 39: invalid type: integer `7`",
        "correct the line, or remove it; 2 keys before it are done: continue with --from-key 2",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let there = |keys: &str| ask(&node, &[&format!("EXISTS {keys}")]);
    assert_eq!(there("a b"), [Reply::Int(2)]);
    assert_eq!(there("c d e f"), [Reply::Int(0)]);

    ask(&node, &["DEL a b"]);
    write(r#"{"key":"c","type":"list","value":["x","7"]}"#);
    let (status, said) = ended(&[&import[..], &["--from-key", "2"]].concat());
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("2 keys were written"), "{said}");
    assert!(
        said.contains("2 keys had expired and were left out"),
        "{said}"
    );
    assert_eq!(there("a b"), [Reply::Int(0)], "they were passed over");
    assert_eq!(there("c d"), [Reply::Int(2)]);

    // That all keys are the same was said of none.
    let beyond = ["--verify", "--from-key"];
    let (status, said) = ended(&[&import[..], &beyond, &["7"]].concat());
    let words = "--from-key 7 is beyond the end of the file, which has 6 keys: nothing was";
    assert!(status == 2 && said.contains(words), "{said}");
    done(
        &[&import[..], &beyond, &["6"]].concat(),
        "0 keys were compared: there is none to compare",
    );
}

#[test]
fn nodes_and_sources_are_asked_in_tls() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (member, ca) = (path("secret/member"), path("secret/ca.pem"));
    done(&["secret", "new", "--dir", &path("secret")], "");
    let node = node(&["--secret-file", &member, "--resp-tls"]);
    let (_, port) = node.address("resp").rsplit_once(':').expect("a port");
    let to = format!("localhost:{port}");
    let line = r#"{"key":"a","type":"string","value":"1"}"#.to_owned() + "\n";
    std::fs::write(path("keys.ndjson"), line).expect("it is written");
    let import = ["import", &path("keys.ndjson"), "--to", &to];
    let (status, said) = ended(&import);
    let words = "it speaks TLS: give --tls-ca FILE with the cluster's ca.pem";
    assert!(status == 1 && said.contains(words), "{said}");
    let trusted = ["--tls-ca", &ca];
    done(
        &[&import[..], &trusted, &["--verify"]].concat(),
        "1 key was compared: it is the same",
    );
    done(
        &[&["export", &path("all.rdb"), "--from", &to][..], &trusted].concat(),
        "1 key is in",
    );

    // The node as a source, which refuses replicas.
    let plain = serving(&[]);
    let source = format!("rediss://{to}");
    let import = ["import", &source, "--to", plain.address("resp")];
    let (status, said) = ended(&import);
    assert!(
        status == 2 && said.contains("--source-tls-ca FILE"),
        "{said}"
    );
    done(
        &[&import[..], &["--source-tls-ca", &ca, "--verify"]].concat(),
        "1 key was compared: it is the same",
    );
    // Another authority, and a node without TLS.
    done(&["secret", "new", "--dir", &path("other")], "");
    let source_ca = path("other/ca.pem");
    for (args, words) in [
        (
            [&import[..], &["--source-tls-ca", &source_ca]].concat(),
            "is not trusted",
        ),
        (
            [
                &import[..3],
                &[
                    plain.address("resp"),
                    "--tls-ca",
                    &ca,
                    "--source-tls-ca",
                    &ca,
                ],
            ]
            .concat(),
            "it does not speak TLS: connect without --tls-ca",
        ),
    ] {
        let (status, said) = ended(&args);
        assert!(status == 1 && said.contains(words), "{said}");
    }
}

/// The key was deleted and written without its large element.
#[test]
fn a_key_with_an_element_that_is_too_large_stays_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keys.ndjson");
    let node = serving(&["--value-max", "1mb"]);
    let value = |length: usize| format!(r#""{}""#, "x".repeat(length));
    let line = |key: &str, middle: usize| {
        let all = [value(300_000), value(middle), value(9)].join(",");
        format!("{{\"key\":\"{key}\",\"type\":\"list\",\"value\":[{all}]}}\n")
    };
    let lines = line("above", (1 << 20) + 1) + &line("below", (1 << 20) - 100);
    std::fs::write(&path, lines).expect("it is written");
    ask(&node, &["RPUSH above old", "RPUSH below old"]);
    let file = path.to_str().expect("UTF-8");
    let import = ["import", file, "--to", node.address("resp")];
    let (status, said) = ended(&import);
    assert_eq!(status, 1, "{said}");
    let refused = "1 of list, the first of them \"above\": an element or an entry is too large, \
                   and the key stays as it was: nodes take about 1048576 bytes";
    assert!(said.contains(refused), "{said}");
    let old = Reply::Array(vec![Reply::Bulk("old".into())]);
    let replies = ask(&node, &["LRANGE above 0 -1", "LLEN below"]);
    assert_eq!(replies, [old, Reply::Int(3)]);

    // A user that may not ask for the limit hears what has become of the key.
    ask(&node, &["ACL SETUSER writer on >pw ~* +@all -config"]);
    let password = directory.path().join("password");
    std::fs::write(&password, "pw\n").expect("it is written");
    let password = password.to_str().expect("UTF-8");
    let login = ["--user", "writer", "--password-file", password];
    let (status, said) = ended(&[&import[..], &login].concat());
    let refused = "(--value-max); only a part of the key is there now";
    assert!(status == 1 && said.contains(refused), "{said}");
    assert_eq!(ask(&node, &["LLEN above"]), [Reply::Int(2)]);
}

/// An import repeated for a minute what could not be done, and ended.
#[test]
fn keys_of_databases_that_are_not_there_are_left_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let line = |key: &str, database: u32| {
        format!(r#"{{"key":"{key}","database":{database},"type":"string","value":"v"}}"#) + "\n"
    };
    let lines = line("a", 16) + &line("b", 15) + &line("c", 16) + &line("d", 0);
    std::fs::write(path("keys.ndjson"), lines).expect("it is written");
    let commands = appended(&["SELECT 16", "SET a 1", "SET c 1", "SELECT 15", "SET b 1"]);
    std::fs::write(path("commands.aof"), commands).expect("it is written");
    let node = serving(&[]);
    for (file, what, more, words) in [
        (
            "keys.ndjson",
            "string",
            &["--verify"][..],
            "2 keys were written",
        ),
        (
            "commands.aof",
            "SET",
            &[],
            "1 command of the source was executed",
        ),
    ] {
        let file = path(file);
        let import = [
            "import",
            file.to_str().expect("UTF-8"),
            "--to",
            node.address("resp"),
        ];
        let (status, said) = ended(&[&import[..], more].concat());
        assert_eq!(status, 1, "{said}");
        let refused = format!(
            "NOT WRITTEN: 2 of {what}, the first of them \"a\": nodes refuse its database 16 (ERR \
             DB index is out of range): give it another one"
        );
        for words in [words, &refused] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(said.contains("2 DIFFER"), !more.is_empty(), "{said}");
    }
    let replies = ask(&node, &["GET d", "SELECT 15", "GET b"]);
    let bulk = |text: &str| Reply::Bulk(text.into());
    assert_eq!(replies, [bulk("v"), Reply::Simple("OK".into()), bulk("1")]);
}

/// A node counts in INFO the keys that it leads alone, so those of a whole database were left out.
#[test]
fn an_export_has_all_databases_whichever_node_is_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let node = serving(&[]);
    ask(&node, &["SET a 1", "SELECT 3", "SET b 2"]);
    let witness = serving(&["--witness", "--seed", node.address("listen")]);
    let from = witness.address("resp");
    done(
        &["export", &path("all.ndjson"), "--from", from],
        "2 keys are in",
    );
    // It would never end with keys that it has itself written.
    for node in [&node, &witness] {
        let source = format!("redis://{}", node.address("resp"));
        let (status, said) = ended(&["import", &source, "--to", from]);
        assert!(status == 2 && said.contains("the source itself"), "{said}");
    }
    // The other port has the keys of one node.
    let port = node.address("resp-cluster");
    let file = path("part.ndjson");
    for refused in [
        &["export", &file, "--from", port][..],
        &["import", &path("all.ndjson"), "--to", port],
    ] {
        let (status, said) = ended(refused);
        let words = "(--resp-cluster), which has the keys of one node alone: give the port";
        assert!(status == 1 && said.contains(words), "{said}");
    }
}

#[test]
fn of_a_long_key_that_is_refused_the_beginning_is_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keys.ndjson");
    let line = |key: &str| format!("{{\"key\":\"{key}\",\"type\":\"string\",\"value\":\"v\"}}\n");
    std::fs::write(&path, line(&"k".repeat(70_000)) + &line("a")).expect("it is written");
    let node = serving(&[]);
    let file = path.to_str().expect("UTF-8");
    let (status, said) = ended(&["import", file, "--to", node.address("resp"), "--verify"]);
    assert_eq!(status, 1, "{said}");
    for words in [
        "1 key was written",
        "1 of string, the first of them \"kkk",
        "k... (70000 bytes)\": ",
        "2 keys were compared: 1 DIFFERS",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.len() < 1_500, "{said}");
}

/// The commands of a server, as its append-only file has them.
fn appended(commands: &[&str]) -> String {
    let word = |word: &str| format!("${}\r\n{word}\r\n", word.len());
    let command = |command: &&str| {
        let words: Vec<&str> = command.split(' ').collect();
        let count = format!("*{}\r\n", words.len());
        count + &words.into_iter().map(word).collect::<String>()
    };
    commands.iter().map(command).collect()
}

#[test]
fn append_only_files_are_read_in_their_order_up_to_a_command_that_is_cut() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("it is written");
    let source = serving(&[]);
    ask(&source, &["SET a 1", "RPUSH l x", "SELECT 3", "SET c 1"]);
    let base = path("a.aof.1.base.rdb");
    let base = base.to_str().expect("UTF-8");
    done(
        &["export", base, "--from", source.address("resp")],
        "3 keys",
    );
    write(
        "a.aof.1.incr.aof",
        &appended(&["SELECT 0", "INCR a", "MULTI", "RPUSH l y", "EXEC"]),
    );
    let last = "#TS:1700000000\r\n".to_owned() + &appended(&["SELECT 3", "INCR c", "SET d 1"]);
    write("a.aof.2.incr.aof", &(last.clone() + "*2\r\n$3\r\nDEL"));
    write("a.aof.0.incr.aof", &appended(&["SET gone 1"]));
    write(
        "a.aof.manifest",
        "file a.aof.0.incr.aof seq 0 type h\nfile a.aof.1.base.rdb seq 1 type b\n\
         file a.aof.2.incr.aof seq 2 type i\nfile a.aof.1.incr.aof seq 1 type i\n",
    );
    let node = serving(&[]);
    let (from, to) = (
        directory.path().to_str().expect("UTF-8"),
        node.address("resp"),
    );
    let (status, said) = ended(&["import", from, "--to", to]);
    assert_eq!(status, 1, "{said}");
    let cut = format!("a.aof.2.incr.aof: at its byte {}: ", last.len());
    for words in ["3 keys were written", "4 commands of the source", &cut] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let replies = ask(
        &node,
        &[
            "GET a",
            "LLEN l",
            "EXISTS gone",
            "SELECT 3",
            "GET c",
            "GET d",
        ],
    );
    let two = || Reply::Bulk("2".into());
    let ok = Reply::Simple("OK".into());
    let (int, one) = (Reply::Int, Reply::Bulk("1".into()));
    assert_eq!(replies, [two(), int(2), int(0), ok, two(), one]);

    // One file, and what is not for it.
    let empty = serving(&[]);
    // The first node is gone.
    let (one, to) = (
        path("a.aof.1.incr.aof"),
        format!("127.0.0.1:1,{}", empty.address("resp")),
    );
    let import = ["import", one.to_str().expect("UTF-8"), "--to", &to];
    done(&import, "2 commands of the source");
    let (status, said) = ended(&[&import[..], &["--verify"]].concat());
    assert!(
        status == 2 && said.contains("--verify is not for"),
        "{said}"
    );
    std::fs::remove_file(path("a.aof.manifest")).expect("it was there");
    let (status, said) = ended(&["import", from, "--to", &to]);
    assert!(status == 2 && said.contains("one manifest"), "{said}");
}

#[test]
fn options_of_one_format_are_refused_for_the_other() {
    let exported = ["export", "new.ndjson", "--from", "127.0.0.1:1"];
    for (args, words) in [
        (
            [&exported[..], &["--rdb-version", "12"]].concat(),
            "--rdb-version is for RDB files",
        ),
        (
            [
                &["import", "redis://127.0.0.1:1", "--to", "127.0.0.1:1"][..],
                &["--format", "ndjson"],
            ]
            .concat(),
            "--format is for files",
        ),
        (
            [&exported[..], &["--format", "json"]].concat(),
            "[possible values: rdb, ndjson]",
        ),
    ] {
        let (status, said) = ended(&args);
        assert!(status == 2 && said.contains(words), "{args:?}: {said}");
    }
}
