//! Users: who clients are, what they may do, and how that changes while they are connected.

use super::*;
use crate::resp::acl::file;

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

/// The text of a reply of any kind.
fn text(reply: &Reply) -> String {
    match reply {
        Reply::Simple(text) | Reply::Error(text) => text.clone(),
        Reply::Int(number) => number.to_string(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Nil => "nil".to_owned(),
        Reply::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" "),
    }
}

/// Whether the server ends the connection.
async fn ends(mut client: Client) -> bool {
    for _ in 0..200 {
        match client.command(&["PING"]).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(_) => return true,
        }
    }
    false
}

#[tokio::test]
async fn users_of_the_table_are_judged_by_their_rules() {
    for threads in [1, 2] {
        let node = Node::of_threads(threads, None, 20, limits());
        let mut admin = node.client().await;
        let rules = "ACL SETUSER alice on >pw ~a* %R~r* &news +@all -@dangerous";
        assert_eq!(ask(&mut admin, rules).await, ok());
        assert_eq!(ask(&mut admin, rules).await, ok(), "nothing changes");
        for address in [node.resp, node.resp, node.cluster] {
            let mut alice = Client::connect(address).await.unwrap();
            let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
            assert_eq!(ask(&mut alice, "AUTH alice wrong").await, error(wrong));
            assert_eq!(ask(&mut alice, "ACL WHOAMI").await, bulk("default"));
            assert_eq!(ask(&mut alice, "AUTH alice pw").await, ok());
            assert_eq!(ask(&mut alice, "ACL WHOAMI").await, bulk("alice"));
            if address != node.resp {
                continue;
            }
            assert_eq!(ask(&mut alice, "SET a1 x").await, ok());
            assert_eq!(ask(&mut alice, "GET a1").await, bulk("x"));
            let key = error("NOPERM No permissions to access a key");
            for line in [
                "GET b",
                "SET b 1",
                "SET r 1",
                "MGET a r b",
                "INCR r",
                "EVAL x 1 b",
            ] {
                assert_eq!(ask(&mut alice, line).await, key, "{line}");
            }
            let command =
                error("NOPERM User alice has no permissions to run the 'flushall' command");
            assert_eq!(ask(&mut alice, "FLUSHALL").await, command);
            let command =
                error("NOPERM User alice has no permissions to run the 'acl|list' command");
            assert_eq!(ask(&mut alice, "ACL LIST").await, command);
            let channel = error("NOPERM No permissions to access a channel");
            assert_eq!(ask(&mut alice, "PUBLISH other x").await, channel);
            let script = "redis.call('SET',KEYS[1],1)return(redis.call('DEL','r'))";
            let reply = alice.command(&["EVAL", script, "1", "a"]).await.unwrap();
            assert!(
                text(&reply).contains("No permissions to access a key"),
                "{reply:?}"
            );
            let script = "return tostring(redis.acl_check_cmd('DEL','r'))";
            let reply = alice.command(&["EVAL", script, "1", "a"]).await.unwrap();
            assert_eq!(reply, bulk("false"));
            assert_eq!(ask(&mut alice, "MULTI").await, ok());
            assert_eq!(ask(&mut alice, "SET b 1").await, key);
            let aborted = "EXECABORT Transaction discarded because of previous errors.";
            assert_eq!(ask(&mut alice, "EXEC").await, error(aborted));
            let list = text(&ask(&mut admin, "CLIENT LIST").await);
            assert!(
                list.contains(" user=alice ") && list.contains(" user=default "),
                "{list}"
            );
            assert_eq!(
                ask(&mut alice, "RESET").await,
                Reply::Simple("RESET".into())
            );
            assert_eq!(ask(&mut alice, "ACL WHOAMI").await, bulk("default"));
        }
        let log = text(&ask(&mut admin, "ACL LOG 100").await);
        for part in [
            "reason auth context toplevel object AUTH username alice",
            "reason key context multi object b",
            "reason channel context toplevel object other",
            "count 2 reason key context lua object r username alice",
            "object flushall username alice",
        ] {
            assert!(log.contains(part), "{part}: {log}");
        }
        let info = text(&ask(&mut admin, "INFO stats").await);
        for line in [
            "acl_access_denied_auth:3",
            "acl_access_denied_cmd:4",
            "acl_access_denied_channel:2",
        ] {
            assert!(info.contains(&format!("\r\n{line}\r\n")), "{line}: {info}");
        }
        assert_eq!(ask(&mut admin, "ACL LOG RESET").await, ok());
        assert_eq!(ask(&mut admin, "ACL LOG").await, Reply::Array(Vec::new()));
        node.stop().await;
    }
}

/// Compared with redis-server 7.0.15, but for the words of `NOPERM`, which are those of 7.2.
///
/// Regression: a refused `EXEC` left the client in its transaction, so that every later command was
/// queued, and none was executed.
#[tokio::test]
async fn a_refused_command_never_leaves_a_transaction_waiting() {
    let node = Node::start(None, 20);
    let mut admin = node.client().await;
    let user = |name: &str| format!("ACL SETUSER {name} on nopass ~* &* +@all -{name}");
    for name in ["exec", "discard", "watch", "reset", "quit"] {
        assert_eq!(ask(&mut admin, &user(name)).await, ok());
    }
    let noperm =
        |name: &str| format!("NOPERM User {name} has no permissions to run the '{name}' command");
    let because = |why: &str| {
        error(&format!(
            "EXECABORT Transaction discarded because of: {why}"
        ))
    };
    let aborted = error("EXECABORT Transaction discarded because of previous errors.");
    let (queued, pong) = (
        Reply::Simple("QUEUED".to_owned()),
        Reply::Simple("PONG".to_owned()),
    );

    // EXEC itself: the transaction is over, and so is what was watched.
    let mut client = node.client().await;
    ask(&mut client, "AUTH exec x").await;
    ask(&mut client, "WATCH a").await;
    ask(&mut client, "MULTI").await;
    assert_eq!(ask(&mut client, "SET a 1").await, queued);
    assert_eq!(ask(&mut client, "EXEC").await, because(&noperm("exec")));
    assert_eq!(ask(&mut client, "GET a").await, Reply::Nil);
    assert_eq!(ask(&mut client, "PING").await, pong);
    assert_eq!(ask(&mut client, "EXEC").await, because(&noperm("exec")));
    let list = text(&ask(&mut client, "CLIENT LIST").await);
    let own = list.lines().find(|line| line.contains(" user=exec "));
    let own = own.expect("its own connection");
    assert!(
        own.contains(" multi=-1 ") && own.contains(" watch=0 "),
        "{own}"
    );

    // Another command: the transaction goes on, and EXEC executes nothing.
    for (name, line) in [("discard", "DISCARD"), ("watch", "WATCH b")] {
        let mut client = node.client().await;
        ask(&mut client, &format!("AUTH {name} x")).await;
        ask(&mut client, "MULTI").await;
        assert_eq!(ask(&mut client, "SET a 1").await, queued);
        assert_eq!(ask(&mut client, line).await, error(&noperm(name)));
        assert_eq!(ask(&mut client, "PING").await, queued);
        assert_eq!(ask(&mut client, "EXEC").await, aborted, "{name}");
        assert_eq!(ask(&mut client, "GET a").await, Reply::Nil);
    }

    // No rule takes these away, so a client can always leave.
    for (name, reply) in [("reset", "RESET"), ("quit", "OK")] {
        let mut client = node.client().await;
        ask(&mut client, &format!("AUTH {name} x")).await;
        ask(&mut client, "MULTI").await;
        assert_eq!(ask(&mut client, "SET a 1").await, queued);
        let left = ask(&mut client, &name.to_uppercase()).await;
        assert_eq!(left, Reply::Simple(reply.to_owned()));
    }
    assert_eq!(ask(&mut admin, "GET a").await, Reply::Nil);
    node.stop().await;

    // So it is before the password was given.
    let node = Node::start(Some("pass"), 20);
    let mut client = node.client().await;
    assert_eq!(
        ask(&mut client, "EXEC").await,
        because("NOAUTH Authentication required.")
    );
    node.stop().await;
}

#[tokio::test]
async fn a_change_of_rules_reaches_sessions_before_their_next_command() {
    let node = Node::of_threads(2, None, 20, limits());
    let mut admin = node.client().await;
    assert_eq!(
        ask(&mut admin, "ACL SETUSER bob on nopass ~* +@all &*").await,
        ok()
    );
    let (mut bob, mut hearer, mut queueing) = (
        node.client().await,
        node.client().await,
        node.client().await,
    );
    for client in [&mut bob, &mut hearer, &mut queueing] {
        assert_eq!(ask(client, "AUTH bob any").await, ok());
    }
    assert_eq!(ask(&mut bob, "SET k 1").await, ok());
    ask(&mut hearer, "SUBSCRIBE news").await;
    ask(&mut queueing, "MULTI").await;
    ask(&mut queueing, "SET k 2").await;
    assert_eq!(
        ask(&mut admin, "ACL SETUSER bob -set resetchannels &other").await,
        ok()
    );
    let refused = error("NOPERM User bob has no permissions to run the 'set' command");
    assert_eq!(ask(&mut bob, "SET k 3").await, refused);
    assert_eq!(ask(&mut bob, "GET k").await, bulk("1"));
    assert!(ends(hearer).await, "it may not hear that any more");
    let reply = text(&ask(&mut queueing, "EXEC").await);
    assert!(
        reply.starts_with("EXECABORT ") && reply.contains("rules"),
        "{reply}"
    );
    assert_eq!(ask(&mut bob, "GET k").await, bulk("1"));
    // As in Redis, what concerns the login ends no session.
    assert_eq!(ask(&mut admin, "ACL SETUSER bob off resetpass").await, ok());
    assert_eq!(ask(&mut bob, "GET k").await, bulk("1"));
    assert_eq!(
        ask(&mut admin, "ACL DELUSER bob nosuch bob").await,
        Reply::Int(1)
    );
    assert!(ends(bob).await && ends(queueing).await);
    assert_eq!(
        ask(&mut admin, "ACL USERS").await,
        Reply::Array(vec![bulk("default")])
    );
    let why = error("ERR The 'default' user cannot be removed");
    assert_eq!(ask(&mut admin, "ACL DELUSER default").await, why);
    // A user that removes itself gets an error that says so.
    ask(&mut admin, "ACL SETUSER eve on nopass +@all").await;
    let mut eve = node.client().await;
    assert_eq!(ask(&mut eve, "AUTH eve x").await, ok());
    assert_eq!(ask(&mut eve, "ACL DELUSER eve").await, Reply::Int(1));
    assert!(ends(eve).await);
    node.stop().await;
}

#[tokio::test]
async fn users_are_shown_as_redis_shows_them() {
    let node = Node::start(None, 10);
    let mut admin = node.client().await;
    let hash = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
    let rules = format!("ACL SETUSER u on #{hash} ~a %R~b &c +@read -get (+set ~d)");
    assert_eq!(ask(&mut admin, &rules).await, ok());
    let shown = format!(
        "flags on sanitize-payload passwords {hash} commands -@all +@read -get keys ~a %R~b \
         channels &c selectors commands -@all +set keys ~d channels "
    );
    assert_eq!(text(&ask(&mut admin, "ACL GETUSER u").await), shown);
    let list = text(&ask(&mut admin, "ACL LIST").await);
    assert_eq!(
        list,
        format!(
            "user default on nopass sanitize-payload ~* &* +@all user u on sanitize-payload \
             #{hash} ~a %R~b resetchannels &c -@all +@read -get (~d resetchannels -@all +set)"
        )
    );
    for (line, reply) in [
        ("ACL DRYRUN u set d 1", "OK"),
        (
            "ACL DRYRUN u set a 1",
            "User u has no permissions to access the 'a' key",
        ),
        (
            "ACL DRYRUN u get a",
            "User u has no permissions to run the 'get' command",
        ),
        (
            "ACL DRYRUN u strlen",
            "ERR wrong number of arguments for 'strlen' command",
        ),
        ("ACL DRYRUN u nosuch", "ERR Command 'nosuch' not found"),
        ("ACL DRYRUN nosuch get a", "ERR User 'nosuch' not found"),
        (
            "ACL SETUSER u nonsense",
            "ERR Error in ACL SETUSER modifier 'nonsense': Syntax error",
        ),
        (
            "ACL SETUSER u (~a",
            "ERR Unmatched parenthesis in acl selector starting at '(~a'.",
        ),
        ("ACL CAT nosuch", "ERR Unknown category 'nosuch'"),
        ("ACL GETUSER nosuch", "nil"),
        ("CLIENT KILL USER nosuch", "ERR No such user 'nosuch'"),
        ("CLIENT KILL USER u", "0"),
    ] {
        assert_eq!(text(&ask(&mut admin, line).await), reply, "{line}");
    }
    for name in ["a b", "a\0b", "a\nb"] {
        let refused = admin
            .command(&["ACL", "SETUSER", name, "on"])
            .await
            .unwrap();
        assert_eq!(
            text(&refused),
            "ERR Usernames can't contain spaces or null characters"
        );
    }
    let long = "x".repeat(3 << 20);
    let refused = admin
        .command(&["ACL", "SETUSER", "u", &format!("~{long}")])
        .await
        .unwrap();
    assert!(text(&refused).contains("too long") && text(&refused).len() < 1000);
    let refused = admin
        .command(&["ACL", "SETUSER", &long, "on"])
        .await
        .unwrap();
    assert!(text(&refused).contains("1 to 256 bytes"));
    assert_eq!(
        text(&ask(&mut admin, "ACL LIST").await),
        list,
        "nothing changed"
    );
    let no_file = text(&ask(&mut admin, "ACL LOAD").await);
    assert!(
        no_file.contains("not configured to use an ACL file"),
        "{no_file}"
    );
    node.stop().await;
}

#[tokio::test]
async fn clients_of_a_closed_default_user_must_say_who_they_are() {
    let node = Node::start(Some("node"), 10);
    let mut admin = node.client().await;
    let noauth = error("NOAUTH Authentication required.");
    assert_eq!(ask(&mut admin, "ACL WHOAMI").await, noauth);
    assert_eq!(ask(&mut admin, "AUTH node").await, ok());
    assert_eq!(
        ask(&mut admin, "ACL SETUSER ops on >pw +@all ~* &*").await,
        ok()
    );
    assert_eq!(ask(&mut admin, "ACL SETUSER default off").await, ok());
    let mut other = node.client().await;
    assert_eq!(ask(&mut other, "GET a").await, noauth);
    assert!(text(&ask(&mut other, "AUTH node").await).starts_with("WRONGPASS"));
    let hello = text(&ask(&mut other, "HELLO 2 AUTH ops pw").await);
    assert!(hello.starts_with("server redis"), "{hello}");
    assert_eq!(ask(&mut other, "ACL SETUSER default on nopass").await, ok());
    let mut third = node.client().await;
    assert_eq!(
        ask(&mut third, "GET a").await,
        noauth,
        "the node has a password"
    );
    assert_eq!(ask(&mut third, "AUTH node").await, ok());
    node.stop().await;
}

/// A client that may do little must not guess the passwords of others faster than a stranger.
#[tokio::test]
async fn guesses_of_a_client_that_is_logged_in_wait_too() {
    let node = Node::start(None, 10);
    let mut client = node.client().await;
    ask(&mut client, "ACL SETUSER ops on >pw").await;
    let began = std::time::Instant::now();
    for _ in 0..4 {
        assert!(text(&ask(&mut client, "AUTH ops guess").await).starts_with("WRONGPASS"));
    }
    // 50, 100 and 200 ms.
    assert!(began.elapsed() >= Duration::from_millis(350));
    assert_eq!(node.handle.stats().await.front.auth_failures, 4);
    node.stop().await;
}

#[tokio::test]
async fn a_file_has_the_users_in_place_of_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    std::fs::write(
        &path,
        "user default on nopass ~* &* +@all\nuser al on >pw ~a +get\n",
    )
    .unwrap();
    let users = file::load(&path).unwrap();
    let node = Node::told(2, limits(), |options| {
        options.users = Some((path.clone(), users));
    });
    let mut admin = node.client().await;
    let mut al = node.client().await;
    assert_eq!(ask(&mut al, "AUTH al pw").await, ok());
    assert_eq!(ask(&mut al, "GET a").await, Reply::Nil);
    assert_eq!(ask(&mut admin, "ACL SETUSER bo on >pw").await, ok());
    assert_eq!(ask(&mut admin, "ACL SETUSER al +set").await, ok());
    assert_eq!(ask(&mut al, "SET a 1").await, ok());
    assert_eq!(ask(&mut admin, "ACL SAVE").await, ok());
    let saved = std::fs::read_to_string(&path).unwrap();
    let hash = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
    assert!(
        saved.contains(&format!("user bo on sanitize-payload #{hash} ")),
        "{saved}"
    );
    std::fs::write(&path, "user al on nopass ~a +get\nuser bo on nonsense\n").unwrap();
    let refused = text(&ask(&mut admin, "ACL LOAD").await);
    assert!(
        refused.contains(":2: Error in") && refused.contains("no change"),
        "{refused}"
    );
    assert_eq!(ask(&mut al, "SET a 2").await, ok(), "nothing changed");
    std::fs::write(&path, "user al on nopass ~a +get\n").unwrap();
    assert_eq!(ask(&mut admin, "ACL LOAD").await, ok());
    let refused = error("NOPERM User al has no permissions to run the 'set' command");
    // The other thread hears of it meanwhile.
    while ask(&mut al, "SET a 3").await == ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&mut al, "SET a 3").await, refused);
    assert_eq!(text(&ask(&mut admin, "ACL USERS").await), "al default");
    std::fs::remove_file(&path).unwrap();
    let missing = text(&ask(&mut admin, "ACL LOAD").await);
    assert!(
        missing.starts_with("ERR Error loading ACLs, opening file"),
        "{missing}"
    );
    node.stop().await;
}

#[tokio::test]
async fn keyspaces_and_databases_bound_a_user() {
    let node = Node::start(None, 10);
    let mut admin = node.client().await;
    let rules = "ACL SETUSER al on nopass ~* +@all keyspace=default/3";
    assert_eq!(ask(&mut admin, rules).await, ok());
    let mut al = node.client().await;
    assert_eq!(ask(&mut al, "AUTH al x").await, ok());
    for line in ["GET a", "SET a 1", "DBSIZE", "SELECT 2"] {
        let refused = text(&ask(&mut al, line).await);
        assert!(
            refused.starts_with("NOPERM ") && refused.contains("keyspace"),
            "{refused}"
        );
    }
    assert_eq!(ask(&mut al, "SELECT 3").await, ok());
    assert_eq!(ask(&mut al, "SET a 1").await, ok());
    assert_eq!(ask(&mut al, "GET a").await, bulk("1"));
    ask(&mut al, "MULTI").await;
    let refused = text(&ask(&mut al, "SELECT 0").await);
    assert!(refused.starts_with("NOPERM "), "{refused}");
    ask(&mut al, "DISCARD").await;
    let shown = text(&ask(&mut admin, "ACL GETUSER al").await);
    assert!(shown.contains("keyspaces keyspace=default/3"), "{shown}");
    node.stop().await;
}

/// Regression: the change was made, and then refused by the rules that it had made.
#[tokio::test]
async fn a_user_that_takes_a_right_from_itself_is_told_that_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    for file in [false, true] {
        let node = Node::told(2, limits(), |options| {
            if file {
                std::fs::write(&path, "user default on nopass ~* &* +@all\n").unwrap();
                options.users = Some((path.clone(), file::load(&path).unwrap()));
            }
        });
        let mut admin = node.client().await;
        for (n, rules) in [
            "-acl|setuser",
            "-@all",
            "-@admin +get",
            "nocommands",
            "off -acl",
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("user{n}");
            let make = format!("ACL SETUSER {name} on nopass ~* &* +@all");
            assert_eq!(ask(&mut admin, &make).await, ok());
            let mut own = node.client().await;
            assert_eq!(ask(&mut own, &format!("AUTH {name} x")).await, ok());
            let line = format!("ACL SETUSER {name} {rules}");
            let commands = [words(&line), words(&line)];
            let replies = own.pipeline(&commands).await.unwrap();
            assert_eq!(replies[0], ok(), "{rules}");
            let refused =
                format!("NOPERM User {name} has no permissions to run the 'acl|setuser' command");
            assert_eq!(replies[1], error(&refused), "{rules}");
        }
        // It stays connected until it is gone.
        let make = "ACL SETUSER gone on nopass ~* &* +@all";
        assert_eq!(ask(&mut admin, make).await, ok());
        let mut own = node.client().await;
        assert_eq!(ask(&mut own, "AUTH gone x").await, ok());
        assert_eq!(ask(&mut own, "ACL DELUSER gone").await, Reply::Int(1));
        assert!(ends(own).await);
        node.stop().await;
    }
}

/// Regression: a command that waited, and that its user may not run any more, was refused again and
/// again.
#[tokio::test]
async fn a_command_that_waits_while_its_user_loses_it_is_refused_once() {
    let node = Node::of_threads(2, None, 20, limits());
    let mut admin = node.client().await;
    assert_eq!(
        ask(&mut admin, "ACL SETUSER eve on nopass ~* &* +@all").await,
        ok()
    );
    for _ in 0..20 {
        assert_eq!(ask(&mut admin, "ACL SETUSER eve +subscribe").await, ok());
        let mut eve = node.client().await;
        assert_eq!(ask(&mut eve, "AUTH eve x").await, ok());
        let names: Vec<String> = (0..5_000).map(|n| format!("c{n}")).collect();
        let subscribe = [vec!["SUBSCRIBE".to_owned()], names].concat();
        let narrow = words("ACL SETUSER eve -subscribe");
        let narrow = admin.command(&narrow);
        let subscribe = eve.send(std::slice::from_ref(&subscribe));
        let (narrowed, sent) = tokio::join!(narrow, subscribe);
        assert_eq!(narrowed.unwrap(), ok());
        sent.unwrap();
        eve.send(&[words("PING end")]).await.unwrap();
        let mut refused = 0;
        loop {
            match eve.reply().await.unwrap() {
                Reply::Error(why) if why.starts_with("NOPERM") => refused += 1,
                Reply::Array(parts) if parts.last() == Some(&bulk("end")) => break,
                Reply::Bulk(end) if end == b"end" => break,
                Reply::Array(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(refused <= 1, "{refused}");
    }
    node.stop().await;
}
