//! Questions about connections and servers, through one data thread and through several.

use super::*;

fn bulk(reply: Reply) -> String {
    let Reply::Bulk(text) = reply else {
        panic!("{reply:?}")
    };
    String::from_utf8(text).unwrap()
}

fn array(reply: Reply) -> Vec<Reply> {
    let Reply::Array(replies) = reply else {
        panic!("{reply:?}")
    };
    replies
}

async fn ok(client: &mut Client, line: &str) {
    assert_eq!(
        ask(client, line).await,
        Reply::Simple("OK".to_owned()),
        "{line}"
    );
}

/// The value of a line of `INFO`.
async fn info(client: &mut Client, line: &str) -> String {
    let text = bulk(ask(client, "INFO everything").await);
    text.lines()
        .find_map(|l| l.strip_prefix(line)?.strip_prefix(':'))
        .map(str::to_owned)
        .unwrap_or_default()
}

async fn id(client: &mut Client) -> i64 {
    let Reply::Int(id) = ask(client, "CLIENT ID").await else {
        panic!("no id")
    };
    id
}

/// A node with `threads`, and clients at each of them.
async fn node_and_clients(threads: usize, password: Option<&str>) -> (Node, Vec<Client>) {
    let node = Node::of_threads(threads, password, 20, limits());
    let mut clients = Vec::new();
    for _ in 0..2 * threads {
        let mut client = node.client().await;
        if let Some(password) = password {
            ok(&mut client, &format!("AUTH {password}")).await;
        }
        ask(&mut client, "PING").await;
        clients.push(client);
    }
    (node, clients)
}

#[tokio::test]
async fn slow_commands_are_kept_by_all_threads_without_passwords() {
    let (node, mut clients) = node_and_clients(2, Some("secret")).await;
    ok(
        &mut clients[0],
        "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 50",
    )
    .await;
    ok(&mut clients[0], "SLOWLOG RESET").await;
    for (i, client) in clients.iter_mut().enumerate() {
        ok(client, &format!("CLIENT SETNAME c{i}")).await;
        ok(client, &format!("SET key:{i} {}", "x".repeat(200))).await;
        ok(client, "AUTH secret").await;
    }
    let slow = array(ask(&mut clients[3], "SLOWLOG GET -1").await);
    let mut seen = Vec::new();
    let mut last = i64::MAX;
    for entry in slow {
        let entry = array(entry);
        let [
            Reply::Int(id),
            Reply::Int(at),
            Reply::Int(took),
            Reply::Array(args),
            Reply::Bulk(peer),
            Reply::Bulk(name),
        ] = &entry[..]
        else {
            panic!("{entry:?}")
        };
        assert!(
            *id < last && *at > 1_600_000_000 && *took >= 0 && peer.starts_with(b"127.0.0.1:"),
            "{entry:?}"
        );
        last = *id;
        let words: Vec<String> = args.iter().cloned().map(bulk).collect();
        seen.push((String::from_utf8(name.clone()).unwrap(), words.join(" ")));
    }
    for i in 0..4 {
        let shown = format!("SET key:{i} {}... (72 more bytes)", "x".repeat(128));
        assert!(seen.contains(&(format!("c{i}"), shown)), "{seen:?}");
        assert!(
            seen.contains(&(format!("c{i}"), "AUTH (redacted)".to_owned())),
            "{seen:?}"
        );
    }
    assert_eq!(array(ask(&mut clients[1], "SLOWLOG GET 2").await).len(), 2);
    ok(
        &mut clients[2],
        "CONFIG SET slowlog-log-slower-than -1 slowlog-max-len 3",
    )
    .await;
    assert_eq!(
        ask(&mut clients[0], "SLOWLOG LEN").await,
        Reply::Int(3),
        "of all threads together"
    );
    assert_eq!(array(ask(&mut clients[1], "SLOWLOG GET -1").await).len(), 3);
    ok(&mut clients[1], "SLOWLOG RESET").await;
    assert_eq!(ask(&mut clients[0], "SLOWLOG LEN").await, Reply::Int(0));
    node.stop().await;
}

#[tokio::test]
async fn commands_lookups_and_errors_are_counted_over_all_threads() {
    let (node, mut clients) = node_and_clients(2, None).await;
    for (i, client) in clients.iter_mut().enumerate() {
        ok(client, &format!("SET key:{i} x")).await;
        ask(client, &format!("GET key:{i}")).await;
        ask(client, "GET absent").await;
        ask(client, &format!("INCR key:{i}")).await;
        ask(client, "GET").await;
        ask(client, "CLIENT GETNAME").await;
        ask(client, "nosuch").await;
    }
    let client = &mut clients[1];
    for (line, starts, ends) in [
        ("cmdstat_get", "calls=8,", "rejected_calls=4,failed_calls=0"),
        ("cmdstat_set", "calls=4,", "rejected_calls=0,failed_calls=0"),
        (
            "cmdstat_incr",
            "calls=4,",
            "rejected_calls=0,failed_calls=4",
        ),
        (
            "cmdstat_client|getname",
            "calls=4,",
            "rejected_calls=0,failed_calls=0",
        ),
        ("errorstat_ERR", "count=12", ""),
        ("total_error_replies", "12", ""),
        ("keyspace_hits", "4", ""),
        ("keyspace_misses", "4", ""),
        ("connected_clients", "4", ""),
        ("db0", "keys=4,", ""),
        ("loading", "0", ""),
        ("role", "master", ""),
    ] {
        let value = info(client, line).await;
        assert!(
            value.starts_with(starts) && value.ends_with(ends),
            "{line}:{value}"
        );
    }
    for line in [
        "total_net_input_bytes",
        "total_net_output_bytes",
        "used_memory_rss",
        "total_system_memory",
        "used_memory_peak",
    ] {
        assert!(
            info(client, line).await.parse::<u64>().unwrap() > 100,
            "{line}"
        );
    }
    ok(client, "CONFIG RESETSTAT").await;
    assert_eq!(info(client, "cmdstat_get").await, "");
    assert_eq!(info(client, "errorstat_ERR").await, "");
    assert_eq!(info(client, "keyspace_hits").await, "0");
    assert!(
        info(client, "total_commands_processed")
            .await
            .parse::<u64>()
            .unwrap()
            < 10
    );
    let stats = node.handle.stats().await;
    assert!(
        stats.front.commands > 20,
        "the counters of Prometheus never go back"
    );
    node.stop().await;
}

#[tokio::test]
async fn connections_are_listed_and_ended_at_whichever_thread_they_are() {
    let (node, mut clients) = node_and_clients(2, None).await;
    let mut ids = Vec::new();
    for client in &mut clients {
        ids.push(id(client).await);
    }
    ok(&mut clients[0], "CLIENT SETINFO lib-name tester").await;
    ok(&mut clients[0], "CLIENT SETINFO LIB-VER 1.2").await;
    let list = bulk(
        ask(
            &mut clients[3],
            &format!("CLIENT LIST ID {} {}", ids[0], ids[2]),
        )
        .await,
    );
    assert_eq!(list.lines().count(), 2, "{list}");
    let first = list.lines().next().unwrap().to_owned();
    assert!(
        first.starts_with(&format!("id={} ", ids[0])) && first.contains(" cmd=client|setinfo "),
        "{first}"
    );
    assert!(first.ends_with(" lib-name=tester lib-ver=1.2"), "{first}");
    assert_eq!(
        bulk(ask(&mut clients[3], "CLIENT LIST TYPE pubsub").await),
        ""
    );
    // By its number, by its address, and all but the asking client.
    assert_eq!(
        ask(&mut clients[3], &format!("CLIENT KILL ID {}", ids[0])).await,
        Reply::Int(1)
    );
    let address = first
        .split(' ')
        .find_map(|w| w.strip_prefix("addr="))
        .unwrap();
    let no_such = Reply::Error("ERR No such client".to_owned());
    while ask(&mut clients[3], &format!("CLIENT KILL {address}")).await != no_such {
        tokio::task::yield_now().await;
    }
    clients[0].command(&["PING"]).await.unwrap_err();
    assert_eq!(
        ask(&mut clients[3], "CLIENT KILL TYPE normal MAXAGE 1000").await,
        Reply::Int(0)
    );
    assert_eq!(
        ask(&mut clients[3], &format!("CLIENT KILL ID {}", ids[3])).await,
        Reply::Int(0),
        "itself is spared"
    );
    assert_eq!(
        ask(
            &mut clients[3],
            &format!("CLIENT KILL LADDR {} USER default", node.resp)
        )
        .await,
        Reply::Int(2)
    );
    for at in [1, 2] {
        clients[at].command(&["PING"]).await.unwrap_err();
    }
    assert_eq!(
        ask(
            &mut clients[3],
            &format!("CLIENT KILL ID {} SKIPME no", ids[3])
        )
        .await,
        Reply::Int(1)
    );
    clients[3].command(&["PING"]).await.unwrap_err();
    node.stop().await;
}

#[tokio::test]
async fn replies_that_a_client_does_not_want_are_left_out() {
    let node = Node::start(None, 10);
    let large = "x".repeat(60_000);
    for (sent, expected) in [
        (
            "CLIENT REPLY OFF\r\nSET a 1\r\nGET a\r\nnosuch\r\nKEYS *\r\n\
             CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nGET a\r\n",
            "+OK\r\n$1\r\n1\r\n".to_owned(),
        ),
        (
            "CLIENT REPLY SKIP\r\nGET a\r\nGET a\r\nCLIENT REPLY SKIP\r\n\
             INCR a\r\nPING\r\nGET a\r\n",
            "$1\r\n1\r\n+PONG\r\n$1\r\n2\r\n".to_owned(),
        ),
        (
            "CLIENT REPLY SKIP\r\nMGET a b\r\nINCR a\r\nCLIENT REPLY SKIP\r\nDBSIZE\r\nPING\r\n",
            ":3\r\n+PONG\r\n".to_owned(),
        ),
        (
            "CLIENT REPLY OFF\r\nRESET\r\nPING\r\nCLIENT REPLY OFF\r\nPING\r\n",
            "+RESET\r\n+PONG\r\n".to_owned(),
        ),
        (
            &format!("SET big {large}\r\nCLIENT REPLY SKIP\r\nGET big\r\nSTRLEN big\r\n"),
            "+OK\r\n:60000\r\n".to_owned(),
        ),
    ] {
        // The commands come in one piece and in several. The end of the input alone does not show
        // that everything is answered.
        let sent = sent.to_owned() + "CLIENT REPLY ON\r\nQUIT\r\n";
        assert_eq!(
            raw(node.resp, sent.as_bytes()).await,
            expected + "+OK\r\n+OK\r\n",
            "{}",
            &sent[..40]
        );
    }
    node.stop().await;
}

/// Returns when a client's command has come and waits for the end of a pause.
async fn until_one_waits(client: &mut Client) {
    while !bulk(ask(client, "CLIENT LIST").await).contains(" flags=b ") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_node_that_ends_answers_what_a_pause_held() {
    let (node, mut clients) = node_and_clients(2, None).await;
    ok(&mut clients[0], "CLIENT PAUSE 100000000 WRITE").await;
    let mut writer = clients.remove(1);
    let write = tokio::spawn(async move { ask(&mut writer, "SET a 1").await });
    until_one_waits(&mut clients[0]).await;
    node.handle.drain().await;
    assert_eq!(write.await.unwrap(), Reply::Simple("OK".to_owned()));
    node.stop().await;
}

#[tokio::test]
async fn a_pause_holds_commands_of_all_threads_until_it_is_over() {
    let (node, mut clients) = node_and_clients(2, None).await;
    ok(&mut clients[0], "SET a 1").await;
    ok(&mut clients[0], "CLIENT PAUSE 100000 WRITE").await;
    let (mut writer, mut reader) = (clients.remove(3), clients.remove(0));
    let write = tokio::spawn(async move {
        let written = writer
            .pipeline(&["SET a 2", "GET a"].map(words))
            .await
            .unwrap();
        (writer, written)
    });
    until_one_waits(&mut reader).await;
    assert_eq!(
        ask(&mut reader, "GET a").await,
        Reply::Bulk(b"1".to_vec()),
        "reads go on"
    );
    ok(&mut reader, "CLIENT UNPAUSE").await;
    let (mut writer, written) = write.await.unwrap();
    assert_eq!(
        written,
        [Reply::Simple("OK".to_owned()), Reply::Bulk(b"2".to_vec())]
    );
    // All commands wait, including those that would end the pause. It ends by itself.
    let began = std::time::Instant::now();
    ok(&mut reader, "CLIENT PAUSE 300").await;
    for client in [&mut writer, &mut reader] {
        assert_eq!(ask(client, "GET a").await, Reply::Bulk(b"2".to_vec()));
    }
    assert!(
        began.elapsed() >= Duration::from_millis(300),
        "{:?}",
        began.elapsed()
    );
    node.stop().await;
}

/// A write of a client that was gone was executed once the pause was over.
#[tokio::test]
async fn what_waits_in_a_pause_goes_with_its_client() {
    let (node, mut clients) = node_and_clients(2, None).await;
    let client = &mut clients[0];
    ok(client, "CLIENT PAUSE 100000 WRITE").await;
    let sent = raw(node.resp, b"GET a\r\nSET a 1\r\nGET a\r\n");
    let answered = tokio::time::timeout(Duration::from_secs(30), sent).await;
    assert_eq!(answered.expect("it is closed"), "$-1\r\n");
    assert_eq!(info(client, "blocked_clients").await, "0");
    ok(client, "CLIENT UNPAUSE").await;
    assert_eq!(ask(client, "GET a").await, Reply::Nil);
    node.stop().await;
}

#[tokio::test]
async fn a_pause_of_writes_holds_scripts_messages_and_transactions_that_write() {
    const READS: &str = "#!lua flags=no-writes\nreturn 1";
    let (node, mut clients) = node_and_clients(2, None).await;
    let digest = bulk(
        clients[0]
            .command(&["SCRIPT", "LOAD", READS])
            .await
            .unwrap(),
    );
    let queued = Reply::Simple("QUEUED".to_owned());
    let mut writer = clients.remove(3);
    ok(&mut writer, "MULTI").await;
    assert_eq!(ask(&mut writer, "SET a 2").await, queued);
    ok(&mut clients[0], "CLIENT PAUSE 100000 WRITE").await;
    // Not those that only read, nor mistakes.
    let reader = &mut clients[0];
    let one = Reply::Int(1);
    assert_eq!(reader.command(&["EVAL", READS, "0"]).await.unwrap(), one);
    assert_eq!(ask(reader, &format!("EVALSHA {digest} 0")).await, one);
    assert_eq!(ask(reader, "EVAL_RO return(1) 0").await, one);
    ok(reader, "MULTI").await;
    assert_eq!(ask(reader, "GET a").await, queued);
    assert_eq!(reader.command(&["EVAL", READS, "0"]).await.unwrap(), queued);
    assert_eq!(array(ask(reader, "EXEC").await), [Reply::Nil, one.clone()]);
    let mistake = ask(reader, "SET a").await;
    assert!(matches!(mistake, Reply::Error(_)), "{mistake:?}");
    assert_eq!(info(reader, "blocked_clients").await, "0");
    let exec = tokio::spawn(async move { ask(&mut writer, "EXEC").await });
    let mut others = Vec::new();
    for line in ["EVAL return(1) 0", "PUBLISH c hello"] {
        let mut client = clients.remove(1);
        others.push(tokio::spawn(async move { ask(&mut client, line).await }));
    }
    let reader = &mut clients[0];
    while info(reader, "blocked_clients").await != "3" {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(reader, "GET a").await, Reply::Nil);
    ok(reader, "CLIENT UNPAUSE").await;
    assert_eq!(array(exec.await.unwrap()), [Reply::Simple("OK".to_owned())]);
    for (answered, expected) in others.into_iter().zip([1, 0]) {
        assert_eq!(answered.await.unwrap(), Reply::Int(expected));
    }
    node.stop().await;
}

#[tokio::test]
async fn settings_that_change_while_the_node_runs_take_effect() {
    let (node, mut clients) = node_and_clients(2, None).await;
    ok(&mut clients[1], "CONFIG SET maxclients 5").await;
    let mut fifth = node.client().await;
    ask(&mut fifth, "PING").await;
    let mut refused = TcpStream::connect(node.resp).await.unwrap();
    let mut answer = String::new();
    refused.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "-ERR max number of clients reached\r\n");
    let both = array(ask(&mut clients[0], "CONFIG GET maxclients").await)
        .into_iter()
        .map(bulk)
        .collect::<Vec<_>>();
    assert_eq!(both, ["maxclients", "5"]);
    // Idle clients are disconnected. An active one stays.
    ok(&mut clients[0], "CONFIG SET timeout 1").await;
    let mut asking = clients.remove(0);
    while info(&mut asking, "connected_clients").await != "1" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for client in clients.iter_mut().chain([&mut fifth]) {
        client.command(&["PING"]).await.unwrap_err();
    }
    node.stop().await;
}

#[tokio::test]
async fn keys_behind_a_subcommand_are_looked_for_where_they_are() {
    let node = Node::of_threads(2, None, 20, limits());
    let mut plain = node.client().await;
    for i in 0..20 {
        ok(&mut plain, &format!("SET key:{i} {i}")).await;
        assert_eq!(
            ask(&mut plain, &format!("OBJECT ENCODING key:{i}")).await,
            Reply::Bulk(b"int".to_vec())
        );
        let Reply::Int(bytes) = ask(&mut plain, &format!("MEMORY USAGE key:{i}")).await else {
            panic!("no number")
        };
        assert!((20..500).contains(&bytes), "{bytes}");
    }
    assert_eq!(
        ask(&mut plain, "TOUCH key:1 key:2 absent key:1").await,
        Reply::Int(3)
    );
    let mut moved = 0;
    let mut client = Client::connect(node.cluster).await.unwrap();
    for i in 0..20 {
        match ask(&mut client, &format!("OBJECT REFCOUNT key:{i}")).await {
            Reply::Int(1) => {}
            Reply::Error(why) if why.starts_with("MOVED ") => moved += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!((1..20).contains(&moved), "{moved} are at the other thread");
    node.stop().await;
}

#[tokio::test]
async fn every_container_explains_itself_and_every_command_is_described() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    for container in [
        "CLIENT", "CONFIG", "COMMAND", "MEMORY", "OBJECT", "SLOWLOG", "LATENCY", "ACL", "PUBSUB",
        "SCRIPT", "FUNCTION", "MODULE",
    ] {
        let lines = array(ask(&mut client, &format!("{container} HELP")).await);
        let begins =
            format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        assert_eq!(lines[0], Reply::Simple(begins));
        assert_eq!(lines[lines.len() - 2], Reply::Simple("HELP".to_owned()));
    }
    let Reply::Int(count) = ask(&mut client, "COMMAND COUNT").await else {
        panic!("no number")
    };
    assert_eq!(array(ask(&mut client, "COMMAND").await).len() as i64, count);
    assert_eq!(
        array(ask(&mut client, "COMMAND DOCS").await).len() as i64,
        2 * count
    );
    let listed = array(ask(&mut client, "COMMAND LIST FILTERBY PATTERN object|*").await);
    assert_eq!(listed.len(), 5);
    let in_category = array(ask(&mut client, "COMMAND LIST FILTERBY ACLCAT connection").await);
    assert_eq!(
        in_category,
        array(ask(&mut client, "ACL CAT connection").await)
    );
    assert!(in_category.contains(&Reply::Bulk(b"client|list".to_vec())));
    let password = bulk(ask(&mut client, "ACL GENPASS 5").await);
    assert!(
        password.len() == 2 && password.bytes().all(|b| b.is_ascii_hexdigit()),
        "{password}"
    );
    assert_ne!(
        ask(&mut client, "ACL GENPASS").await,
        ask(&mut client, "ACL GENPASS").await
    );
    assert!(matches!(
        &array(ask(&mut client, "TIME").await)[..],
        [Reply::Bulk(_), Reply::Bulk(_)]
    ));
    node.stop().await;
}

/// Regression: `CLIENT NO-TOUCH ON` was accepted and ignored, so a client that looked at every key
/// kept all of them from eviction.
#[tokio::test]
async fn reads_of_a_client_that_touches_nothing_keep_no_key() {
    const EACH: usize = 16;
    let node = Node::with(
        None,
        10,
        Limits {
            memory_bytes_max: 8 << 20,
            ..limits()
        },
    );
    let mut view = node.shared.local().view.clone().unwrap();
    let mut table = (*view.installed).clone();
    table.version.0 += 1;
    table.keyspaces[0].eviction = Eviction::Lru;
    (view.installed, view.accepted) = (Arc::new(table.clone()), Arc::new(table));
    node.shared.publish(crate::control::shared::LocalView {
        me: ME,
        view: Some(view),
    });

    let (mut writer, mut looker) = (node.client().await, node.client().await);
    ok(&mut looker, "CLIENT NO-TOUCH ON").await;
    assert!(bulk(ask(&mut looker, "CLIENT INFO").await).contains(" flags=T "));
    let value = "x".repeat(4000);
    // All keys are in one partition, because each partition has an eviction hand of its own. If a
    // partition has a dozen keys, its hand may go round twice between two reads.
    let named = |name: &str| {
        (0..EACH)
            .map(|n| format!("{{tag}}{name}-{n}"))
            .collect::<Vec<_>>()
    };
    let (used, touched) = (named("used"), named("touched"));
    let [got, many, length] = ["got", "many", "length"].map(named);
    for key in [&used, &touched, &got, &many, &length]
        .into_iter()
        .flatten()
    {
        ok(&mut writer, &format!("SET {key} {value}")).await;
    }
    // Five times as much as fits. All keys count as used until the hand has passed them, and then
    // the keys in front of the hand go first. So only the second half counts.
    let rounds = 5 * (8 << 20) / value.len();
    for n in 0..rounds {
        ok(&mut writer, &format!("SET {{tag}}new-{n} {value}")).await;
        if n % 50 != 0 {
            continue;
        }
        for key in &used {
            let gone = ask(&mut writer, &format!("GET {key}")).await == Reply::Nil;
            assert!(
                !gone || n < rounds / 2,
                "{key} went at {n} of {rounds} though it was read"
            );
            if gone {
                ok(&mut writer, &format!("SET {key} {value}")).await;
            }
        }
        // TOUCH is a use for every client that asks for it.
        for key in &touched {
            let gone = ask(&mut looker, &format!("TOUCH {key}")).await == Reply::Int(0);
            assert!(
                !gone || n < rounds / 2,
                "{key} went at {n} of {rounds} though it was touched"
            );
            if gone {
                ok(&mut writer, &format!("SET {key} {value}")).await;
            }
        }
        for (key, other) in got.iter().zip(&length) {
            ask(&mut looker, &format!("GET {key}")).await;
            ask(&mut looker, &format!("STRLEN {other}")).await;
        }
        ask(&mut looker, &format!("MGET {}", many.join(" "))).await;
    }
    for key in [&got, &many, &length].into_iter().flatten() {
        assert!(
            ask(&mut writer, &format!("GET {key}")).await == Reply::Nil,
            "{key} stayed though nothing used it"
        );
    }
    // A client may switch it off again, and RESET does too.
    ok(&mut looker, "CLIENT NO-TOUCH OFF").await;
    assert!(bulk(ask(&mut looker, "CLIENT INFO").await).contains(" flags=N "));
    ok(&mut looker, "CLIENT NO-TOUCH ON").await;
    ask(&mut looker, "RESET").await;
    assert!(bulk(ask(&mut looker, "CLIENT INFO").await).contains(" flags=N "));
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_monitors_sees_the_commands_of_all_threads() {
    let (node, mut clients) = node_and_clients(2, Some("secret")).await;
    ok(
        &mut clients[0],
        "ACL SETUSER small on nopass ~* &* +@all -monitor",
    )
    .await;
    let (mut monitor, mut seen) = (clients.remove(1), Vec::new());
    ok(&mut monitor, "MONITOR").await;
    for (n, client) in clients.iter_mut().enumerate() {
        ok(client, &format!("SET key:{n} a\"b")).await;
        ask(client, "CONFIG GET maxmemory").await;
        ask(client, "nosuch command").await;
        ok(client, "AUTH secret").await;
        ok(client, "SELECT 3").await;
        ask(client, "GET last").await;
    }
    let patience = Duration::from_secs(60);
    while seen
        .iter()
        .filter(|line: &&String| line.ends_with("\"last\""))
        .count()
        < clients.len()
    {
        match tokio::time::timeout(patience, monitor.reply())
            .await
            .unwrap()
            .unwrap()
        {
            Reply::Simple(line) => seen.push(line),
            other => panic!("{other:?}"),
        }
    }
    let has = |part: &str| seen.iter().any(|line| line.ends_with(part));
    for n in 0..clients.len() {
        assert!(has(&format!(" \"SET\" \"key:{n}\" \"a\\\"b\"")), "{seen:?}");
    }
    assert!(
        has("\"AUTH\" \"(redacted)\"") && has("\"SELECT\" \"3\""),
        "{seen:?}"
    );
    assert!(
        seen.iter()
            .any(|line| line.contains(" [3 127.0.0.1:") && line.ends_with("\"last\""))
    );
    let text = seen.concat();
    assert!(!text.contains("CONFIG") && !text.contains("nosuch") && !text.contains("secret"));
    let list = bulk(ask(&mut clients[0], "CLIENT LIST").await);
    assert!(
        list.lines().any(|line| line.contains(" flags=O ")),
        "{list}"
    );
    // A user that may not run it any more sees nothing more.
    let mut small = node.client().await;
    ok(&mut small, "AUTH small x").await;
    let refused = ask(&mut small, "MONITOR").await;
    assert!(matches!(refused, Reply::Error(why) if why.starts_with("NOPERM")));
    ok(&mut clients[0], "ACL SETUSER small +monitor").await;
    ok(&mut small, "MONITOR").await;
    ok(&mut clients[0], "ACL SETUSER small -monitor").await;
    let end = async { while small.reply().await.is_ok() {} };
    tokio::time::timeout(patience, end)
        .await
        .expect("it is disconnected");
    // After RESET it is a client as any other.
    monitor.send(&[words("RESET")]).await.unwrap();
    while monitor.reply().await.unwrap() != Reply::Simple("RESET".to_owned()) {}
    ok(&mut monitor, "AUTH secret").await;
    ok(&mut clients[0], "SET unseen x").await;
    ok(&mut monitor, "SET seen x").await;
    node.stop().await;
}

/// One that reads nothing is disconnected as a subscriber is.
#[tokio::test]
async fn a_client_that_monitors_and_reads_nothing_is_disconnected() {
    let node = Node::with(
        None,
        20,
        Limits {
            memory_bytes_max: 1 << 30,
            ..limits()
        },
    );
    let mut admin = node.client().await;
    let limit = [
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "pubsub 1mb 0 0",
    ];
    assert_eq!(
        admin.command(&limit).await.unwrap(),
        Reply::Simple("OK".to_owned())
    );
    let mut monitor = node.client().await;
    ok(&mut monitor, "MONITOR").await;
    let value = "x".repeat(10_000);
    let commands: Vec<_> = (0..1_000)
        .map(|_| words(&format!("ECHO {value}")))
        .collect();
    let mut sent = 0;
    while node.handle.stats().await.subscribers_expelled == 0 {
        admin.pipeline(&commands).await.unwrap();
        sent += 1;
        assert!(sent < 500, "it is still connected");
    }
    ok(&mut admin, "SET a x").await;
    node.stop().await;
}

/// Regression: the answer was always empty.
#[tokio::test]
async fn latencies_of_commands_are_told_of_all_threads() {
    let (node, mut clients) = node_and_clients(2, None).await;
    for client in &mut clients {
        for n in 0..40 {
            ok(client, &format!("SET key:{n} x")).await;
            ask(client, "STRLEN key:1").await;
        }
        ask(client, "CONFIG GET port").await;
    }
    let client = &mut clients[2];
    let told = array(ask(client, "LATENCY HISTOGRAM strlen set config nosuch").await);
    let names: Vec<String> = told.iter().step_by(2).cloned().map(bulk).collect();
    assert_eq!(names, ["strlen", "set", "config|get"]);
    for (name, calls) in [("strlen", 160), ("set", 160), ("config|get", 4)] {
        let at = names.iter().position(|known| known == name).unwrap();
        let parts = array(told[2 * at + 1].clone());
        assert_eq!(parts[1], Reply::Int(calls), "{name}");
        let times = array(parts[3].clone());
        assert!(times.len() >= 2 && times.len().is_multiple_of(2));
        assert_eq!(times.last(), Some(&Reply::Int(calls)), "{name}");
    }
    let all = array(ask(client, "LATENCY HISTOGRAM").await);
    assert!(all.len() >= 2 * names.len());
    let percentiles = info(client, "latency_percentiles_usec_strlen").await;
    assert!(
        percentiles.starts_with("p50=") && percentiles.contains(",p99.9="),
        "{percentiles}"
    );
    ok(client, "CONFIG RESETSTAT").await;
    assert_eq!(
        array(ask(client, "LATENCY HISTOGRAM strlen").await).len(),
        0
    );
    node.stop().await;
}
