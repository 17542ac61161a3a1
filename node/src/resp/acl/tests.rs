use super::compiled::{Compiled, Denied, Home};
use super::log::{AclLog, AclRefusal, DenialReason, Within};
use super::password::Hashing;
use super::rules::User;
use super::users::Users;
use super::{file, operator, rules};
use crate::resp::command::table::COMMANDS;
use crate::resp::encode::{Encoder, Protocol};
use bytes::{Bytes, BytesMut};
use doyen_engine::command::Arguments;
use doyen_placement::access::{AccessSettings, AccessUser};
use proptest::prelude::*;
use std::sync::Arc;

const HOME: Home<'_> = Home {
    keyspace: "default",
    database: 0,
};

fn changed(user: &User, words: &str) -> Result<User, String> {
    let mut next = user.clone();
    let words = words.split(' ').map(str::as_bytes);
    next.apply_all(words, Hashing::Redis)
        .map_err(|why| why.to_string())?;
    Ok(next)
}

fn user(words: &str) -> User {
    changed(&User::default(), words).expect("the rules are right")
}

fn shown(user: &User) -> String {
    String::from_utf8(user.print()).expect("text")
}

fn compiled(words: &str) -> Compiled {
    Compiled::new(b"alice", None, user(words))
}

fn judge_at(user: &Compiled, line: &str, home: Home<'_>) -> Result<(), Denied> {
    let words: Vec<Bytes> = line
        .split(' ')
        .map(|word| Bytes::copy_from_slice(word.as_bytes()))
        .collect();
    let words = &words[..];
    let args: &dyn Arguments = &words;
    user.judge(COMMANDS.find(args).expect("it exists"), args, home)
}

fn judge(user: &Compiled, line: &str) -> Result<(), Denied> {
    judge_at(user, line, HOME)
}

/// As `ACL LIST` of Redis 8 shows them.
#[test]
fn rules_are_shown_as_redis_shows_them() {
    let hash = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
    let cases = [
        ("", "off sanitize-payload resetchannels -@all"),
        (
            "on nopass",
            "on nopass sanitize-payload resetchannels -@all",
        ),
        (
            "ON NoPass ALLKEYS",
            "on nopass sanitize-payload ~* resetchannels -@all",
        ),
        (
            ">password",
            &format!("off sanitize-payload #{hash} resetchannels -@all"),
        ),
        (
            "nopass >password <password",
            "off sanitize-payload resetchannels -@all",
        ),
        (
            "~a ~b %R~c %W~c %rW~d",
            "off sanitize-payload ~a ~b ~c ~d resetchannels -@all",
        ),
        (
            "%R~* %W~* ~b",
            "off sanitize-payload %RW~* ~b resetchannels -@all",
        ),
        (
            "%R~x &a &b &a",
            "off sanitize-payload %R~x resetchannels &a &b -@all",
        ),
        (
            "+GET +set -get",
            "off sanitize-payload resetchannels -@all +set -get",
        ),
        (
            "+@all -@DANGEROUS +keys",
            "off sanitize-payload resetchannels +@all -@dangerous +keys",
        ),
        (
            "+config|get +config",
            "off sanitize-payload resetchannels -@all +config",
        ),
        (
            "+config -config|set",
            "off sanitize-payload resetchannels -@all +config -config|set",
        ),
        (
            "+select|0 +SELECT|1",
            "off sanitize-payload resetchannels -@all +select|0 +select|1",
        ),
        (
            "+get nocommands",
            "off sanitize-payload resetchannels -@all",
        ),
        (
            "(~a +get) ( %W~b +set )",
            "off sanitize-payload resetchannels -@all (~a resetchannels -@all +get) (%W~b resetchannels -@all +set)",
        ),
        (
            "(~a) clearselectors",
            "off sanitize-payload resetchannels -@all",
        ),
        (
            "on ~* &* +@all reset",
            "off sanitize-payload resetchannels -@all",
        ),
        (
            "skip-sanitize-payload",
            "off skip-sanitize-payload resetchannels -@all",
        ),
        (
            "keyspace=a keyspace=b/3",
            "off sanitize-payload resetchannels resetkeyspaces keyspace=a keyspace=b/3 -@all",
        ),
        (
            "keyspace=a allkeyspaces",
            "off sanitize-payload resetchannels -@all",
        ),
    ];
    for (words, expected) in cases {
        let user = user(words);
        assert_eq!(shown(&user), expected, "{words}");
        assert_eq!(User::parse(expected.as_bytes()), Ok(user), "{words}");
    }
    assert_eq!(
        shown(&User::of_default()),
        "on nopass sanitize-payload ~* &* +@all"
    );
}

/// Regression: an access list that Redis had written, with `-function|load`, kept a node from
/// starting.
#[test]
fn rules_about_commands_that_only_redis_has_are_kept_without_effect() {
    for name in include_str!("../command/redis.txt").lines() {
        for sign in ["+", "-"] {
            let rules = format!("on nopass sanitize-payload ~* resetchannels +@all {sign}{name}");
            assert_eq!(shown(&user(&rules)), rules);
        }
    }
    let rules = "off sanitize-payload resetchannels -@all +@read -@search -function|load -cluster|reset \
                 +ft.search -json.set +client|capa -script|show -cluster|slots +lpush -xgroup|create";
    let user = user(rules);
    assert_eq!(shown(&user), rules);
    assert_eq!(User::parse(rules.as_bytes()), Ok(user));
    let some = compiled("+@all -cluster|slots -function|load");
    assert_eq!(judge(&some, "cluster slots"), Err(Denied::Command));
    assert_eq!(judge(&some, "cluster info"), Ok(()));
    let none = compiled("+cluster|slots");
    assert_eq!(judge(&none, "cluster slots"), Ok(()));
    assert_eq!(judge(&none, "cluster info"), Err(Denied::Command));
}

#[test]
fn wrong_rules_are_refused_as_redis_refuses_them_and_change_nothing() {
    let all = "Adding a pattern after the * pattern (or the";
    for (words, why) in [
        ("nonsense", "Syntax error"),
        ("%~a", "Syntax error"),
        ("%RR~a", "Syntax error"),
        ("%Ra", "Syntax error"),
        ("+nosuch", "Unknown command or category name in ACL"),
        ("-config|nosuch", "Unknown command or category name in ACL"),
        ("-cluster|nosuch", "Unknown command or category name in ACL"),
        ("+ft.", "Unknown command or category name in ACL"),
        ("-xgroup|nosuch", "Unknown command or category name in ACL"),
        ("+config|nosuch", "Unknown command or category name in ACL"),
        ("+@nosuch", "Unknown command or category name in ACL"),
        ("-select|0", "Unknown command or category name in ACL"),
        ("+config|", "Syntax error"),
        (
            "+config|get|x",
            "Allowing first-arg of a subcommand is not supported",
        ),
        (
            "<nosuch",
            "The password you are trying to remove from the user does not exist",
        ),
        (
            "#abc",
            "The password hash must be exactly 64 characters and contain only lowercase",
        ),
        (
            "!ABC",
            "The password hash must be exactly 64 characters and contain only lowercase",
        ),
        ("(~a) nonsense)", "Syntax error"),
        ("(on)", "Syntax error"),
        ("keyspace=", "Syntax error"),
        ("keyspace=a/99", "Syntax error"),
        ("keyspace=default/0/1", "Syntax error"),
        ("keyspace=default/0/*", "Syntax error"),
    ] {
        let refused = changed(&User::default(), words).expect_err(words);
        assert!(
            refused.starts_with("Error in ACL SETUSER modifier '"),
            "{refused}"
        );
        assert!(refused.contains(&format!("': {why}")), "{words}: {refused}");
    }
    for (words, why) in [("~* ~a", "'allkeys'"), ("&* &a", "'allchannels'")] {
        let refused = changed(&User::default(), words).expect_err(words);
        assert!(refused.contains(all) && refused.contains(why), "{refused}");
    }
    let unmatched = changed(&User::default(), "on (~a +get").expect_err("it is open");
    assert_eq!(
        unmatched,
        "Unmatched parenthesis in acl selector starting at '(~a'."
    );
}

#[test]
fn rules_are_bounded() {
    let refused = |words: String| changed(&User::default(), &words).expect_err("too much");
    assert!(refused(format!("~{}", "x".repeat(2000))).contains("at most 1024 bytes"));
    let long = refused("~x ".repeat(5 << 20));
    assert!(long.contains("too long") && long.len() < 1000, "{long}");
    let many: Vec<String> = (0..5000).map(|n| format!("~{n}")).collect();
    assert!(refused(many.join(" ")).contains("at most 4096 rules"));
    let many: Vec<String> = (0..65).map(|n| format!(">{n}")).collect();
    assert!(refused(many.join(" ")).contains("at most 64 passwords"));
    let shown = refused("x".repeat(10_000));
    assert!(shown.len() < 300, "{shown}");
}

#[test]
fn a_password_is_right_in_any_of_its_forms() {
    let mut user = User::default();
    for (word, hashing) in [(">one", Hashing::Salted), (">two", Hashing::Redis)] {
        user.apply_all([word.as_bytes()], hashing)
            .expect("it is right");
    }
    assert!(user.is_password(b"one") && user.is_password(b"two") && !user.is_password(b"three"));
    assert!(!user.admits(b"one"), "the user is off");
    let again = User::parse(&user.print()).expect("it was printed");
    assert_eq!(again, user);
    let twice = changed(&again, "on >one >two").expect("they are there");
    assert_eq!(twice.passwords, user.passwords);
    assert!(twice.admits(b"one") && !twice.admits(b""));
    let fewer = changed(&twice, "<one").expect("it is there");
    assert!(!fewer.admits(b"one") && fewer.admits(b"two"));
    let open = changed(&fewer, "nopass").expect("it may be");
    assert!(open.admits(b"anything") && open.passwords.is_empty());
    let salted = twice.passwords[0].to_string();
    assert_eq!(salted.len(), 32 + 1 + 64);
    let without = changed(&twice, &format!("!{salted}")).expect("it is there");
    assert!(!without.admits(b"one"));
}

/// Which keys the patterns name is known only once the elements are.
#[test]
fn patterns_of_sort_take_the_right_to_read_every_key() {
    let some = compiled("~a* %R~r* +@all");
    let all = compiled("%R~* %W~a* +@all");
    for user in [&some, &all] {
        for line in ["sort a", "sort r1 store a", "sort a by nosort get # desc"] {
            assert_eq!(judge(user, line), Ok(()), "{line}");
        }
        for line in ["sort a store r1", "sort a store a store r"] {
            assert!(judge(user, line).is_err(), "{line}");
        }
    }
    for (line, at) in [("sort a by a*", 3), ("sort_ro a limit 0 1 get # get a*", 8)] {
        assert_eq!(judge(&some, line), Err(Denied::Key(at)), "{line}");
        assert_eq!(judge(&all, line), Ok(()), "{line}");
    }
}

#[test]
fn commands_keys_and_channels_are_judged_together() {
    let user = compiled("~a* %R~r* %W~w* +@all -@dangerous -del &news.*");
    for line in [
        "get a",
        "set a 1",
        "get r1",
        "set w1 1",
        "mget a r1",
        "exists w1",
        "copy r1 w1",
    ] {
        assert_eq!(judge(&user, line), Ok(()), "{line}");
    }
    for (line, why) in [
        ("get w1", Denied::Key(1)),
        ("set r1 1", Denied::Key(1)),
        ("set w1 1 get", Denied::Key(1)),
        ("set w1 1 ifeq x", Denied::Key(1)),
        ("incr w1", Denied::Key(1)),
        ("mget a b", Denied::Key(2)),
        ("copy w1 r1", Denied::Key(1)),
        ("copy r1 r2", Denied::Key(2)),
        ("bitfield r1 set u8 0 1", Denied::Key(1)),
        ("mset a 1 b 2", Denied::Key(3)),
        ("eval x 1 b", Denied::Key(3)),
        ("watch b", Denied::Key(1)),
        ("del a", Denied::Command),
        ("flushall", Denied::Command),
        ("acl list", Denied::Command),
        ("publish other x", Denied::Channel(1)),
        ("subscribe news.a other", Denied::Channel(2)),
        ("psubscribe news.a*", Denied::Channel(1)),
        ("spublish other x", Denied::Channel(1)),
    ] {
        assert_eq!(judge(&user, line), Err(why), "{line}");
    }
    for line in [
        "publish news.a x",
        "psubscribe news.*",
        "unsubscribe other",
        "eval x 0",
        "auth x",
    ] {
        assert_eq!(judge(&user, line), Ok(()), "{line}");
    }
    assert_eq!(judge(&user, "bitfield r1 get u8 0 get u8 1"), Ok(()));
}

#[test]
fn subcommands_and_first_arguments_are_judged_apart() {
    let user = compiled("+config|get +select|1 +@connection -client|kill -select +select|2");
    for line in ["config get x", "client list", "select 2", "ping", "hello"] {
        assert_eq!(judge(&user, line), Ok(()), "{line}");
    }
    for line in ["config set a b", "client kill x", "select 1", "get a"] {
        assert_eq!(judge(&user, line), Err(Denied::Command), "{line}");
    }
}

#[test]
fn one_selector_must_allow_all_of_a_command() {
    let user = compiled("~a +get (~b +set) (&c +publish)");
    assert_eq!(judge(&user, "get a"), Ok(()));
    assert_eq!(judge(&user, "set b 1"), Ok(()));
    assert_eq!(judge(&user, "publish c 1"), Ok(()));
    assert_eq!(judge(&user, "get b"), Err(Denied::Key(1)));
    assert_eq!(judge(&user, "set a 1"), Err(Denied::Key(1)));
    assert_eq!(judge(&user, "del a"), Err(Denied::Command));
}

#[test]
fn keyspaces_and_databases_bound_what_touches_data() {
    let user = compiled("~* &* +@all keyspace=app* keyspace=default/2");
    let at =
        |line: &str, keyspace: &str, database| judge_at(&user, line, Home { keyspace, database });
    let denied = Err(Denied::Keyspace);
    for line in [
        "get a", "dbsize", "flushdb", "scan 0", "eval x 0", "watch a",
    ] {
        assert_eq!(at(line, "default", 0), denied, "{line}");
        assert_eq!(at(line, "default", 2), Ok(()), "{line}");
        assert_eq!(at(line, "apple", 7), Ok(()), "{line}");
    }
    assert_eq!(at("flushall", "default", 2), denied);
    assert_eq!(at("flushall", "apple", 0), Ok(()));
    assert_eq!(at("select 2", "default", 0), Ok(()));
    assert_eq!(at("select 3", "default", 2), denied);
    assert_eq!(at("copy a b db 3", "default", 2), denied);
    assert_eq!(at("copy a b", "default", 2), Ok(()));
    assert_eq!(at("client keyspace apple", "default", 0), Ok(()));
    assert_eq!(at("client keyspace other", "default", 2), denied);
    for line in ["ping", "publish a b", "info", "acl whoami"] {
        assert_eq!(at(line, "default", 0), Ok(()), "{line}");
    }
    assert!(!user.may_all() && compiled("~* &* +@all").may_all());
}

/// What a session answers at once is what `judge` says.
#[test]
fn plain_commands_are_judged_as_all_others() {
    use doyen_engine::command::Rights;
    let get = COMMANDS.named(b"get").expect("it exists").number;
    for rules in [
        "~a +get",
        "%W~a +get",
        "+get (~a +get)",
        "~* +@all -get",
        "~* +@all",
        "~a* -@all",
    ] {
        let user = compiled(rules);
        for key in ["a", "ab", "b"] {
            let plainly = user.may_plainly(get, Rights::READ, key.as_bytes());
            assert_eq!(
                plainly,
                judge(&user, &format!("get {key}")).is_ok(),
                "{rules} {key}"
            );
        }
    }
    let elsewhere = compiled("~* +@all keyspace=default");
    assert!(
        !elsewhere.may_plainly(get, Rights::READ, b"a"),
        "it must be judged"
    );
}

#[test]
fn scripts_get_what_their_caller_may_do() {
    use doyen_engine::grants::Grants;
    let user = compiled("~a +get +select|0 (~b +@all keyspace=app)");
    let text = user.grants(HOME);
    let grants = Grants::parse(&text);
    let may = |command, key: &'static str| {
        let keys = [(1, doyen_engine::command::Rights::READ, key.as_bytes())];
        grants
            .judge((command, None), keys.into_iter(), (0..0, |_| &b""[..]))
            .is_ok()
    };
    assert!(may("get", "a") && !may("get", "b") && !may("strlen", "b"));
    let home = Home {
        keyspace: "app",
        database: 0,
    };
    let grants = Grants::parse(&user.grants(home));
    let keys = [(1, doyen_engine::command::Rights::READ, &b"b"[..])];
    let judged = grants.judge(("strlen", None), keys.into_iter(), (0..0, |_| &b""[..]));
    assert_eq!(judged, Ok(()));
    assert!(compiled("~* &* +@all").grants(HOME).is_empty());
    assert_eq!(Grants::parse(&compiled("").grants(HOME)).name(), b"alice");
}

fn access(users: &[(&str, &str)]) -> Arc<AccessSettings> {
    let users = users.iter().map(|(name, rules)| AccessUser {
        name: name.as_bytes().into(),
        rules: rules.as_bytes().into(),
    });
    Arc::new(AccessSettings::of_users(users.collect()))
}

#[test]
fn the_password_of_a_node_is_one_more_password_of_its_default_user() {
    let mut users = Users::new(Arc::default(), Some("node".into()));
    assert!(!users.is_open() && users.default().user().admits(b"node"));
    assert!(users.default().may_all());
    let rules = user("on nopass ~a +get").print();
    let rules = String::from_utf8(rules).expect("text");
    assert!(users.replace(&access(&[("default", &rules)])));
    assert!(!users.is_open() && users.default().user().admits(b"node"));
    assert!(!users.default().may_all());
    let stored = operator::stored(users.access(), b"default");
    let stored = stored.expect("known").expect("there");
    assert!(
        stored.nopass && stored.passwords.is_empty(),
        "it stays with the node"
    );
    assert!(users.replace(&Arc::default()) && users.default().may_all());
    let mut open = Users::new(Arc::default(), None);
    assert!(open.is_open() && open.find(b"nosuch").is_none());
}

#[test]
fn a_session_keeps_its_rules_until_they_change() {
    let on = "on nopass sanitize-payload resetchannels -@all";
    let mut users = Users::new(access(&[("a", on), ("b", on)]), None);
    let (a, b) = (users.find(b"a").expect("a"), users.find(b"b").expect("b"));
    assert!(users.replace(&access(&[("a", on), ("b", &format!("{on} +get"))])));
    assert!(Arc::ptr_eq(&a, &users.find(b"a").expect("a")));
    let other = users.find(b"b").expect("b");
    assert!(!Arc::ptr_eq(&b, &other) && judge(&other, "get x") == Err(Denied::Key(1)));
    assert!(!users.replace(&access(&[("a", on), ("b", &format!("{on} +get"))])));
    assert_eq!(users.names(), [&b"a"[..], b"b", b"default"]);
}

#[test]
fn rules_of_a_newer_version_count_as_far_as_they_are_known() {
    let rules =
        "on nopass sanitize-payload ~* resetchannels -@all +get +newer -@newer (~x -@all +newer)";
    let mut users = Users::new(access(&[("a", rules), ("b", "on nonsense")]), None);
    let a = users.find(b"a").expect("a");
    assert_eq!(judge(&a, "get x"), Ok(()));
    assert!(operator::stored(users.access(), b"a").is_err());
    let b = users.find(b"b").expect("b");
    assert!(!b.user().admits(b""), "damaged rules let nobody in");
}

#[test]
fn files_of_users_are_read_whole_or_not_at_all() {
    let text = b"user default on nopass ~* &* +@all\n\nuser alice on >pw ~a* (~b +get)\r\n";
    let read = file::parse(text).expect("it is right");
    assert_eq!(read.users.len(), 2);
    let again = file::parse(&file::print(&read)).expect("it was printed");
    assert_eq!(again, read);
    let printed = String::from_utf8(file::print(&AccessSettings::default())).expect("text");
    assert_eq!(
        printed,
        "user default on nopass sanitize-payload ~* &* +@all\n"
    );
    let wrong = file::parse(b"user a on\nuser a off\nalice on\nuser b +nosuch\nuser\n");
    let wrong = wrong.expect_err("it is wrong");
    assert_eq!(wrong.len(), 4, "{wrong:?}");
    assert!(wrong[0].starts_with("2: Duplicate user 'a'") && wrong[2].starts_with("4: Error in"));
}

#[test]
fn it_is_known_whether_a_user_is_left_who_may_change_users() {
    let has = |users: &[(&str, &str)]| operator::has_administrator(&access(users));
    assert!(
        has(&[]) && has(&[("app", "on nopass ~* +get")]),
        "default may"
    );
    let off = ("default", "off nopass ~* &* +@all");
    assert!(!has(&[off]) && !has(&[("app", "on nopass ~* &* +@all -@admin"), off]));
    for rules in [
        "on nopass +@all",
        "on nopass +@all -@dangerous +acl",
        "on nopass -@all +acl|setuser",
        "on nopass resetchannels -@all (-@all +@admin)",
    ] {
        assert!(has(&[("admin", rules), off]), "{rules}");
    }
    for rules in [
        "off nopass +@all",
        "on +@all",
        "on nopass +@all -acl",
        "on nopass -@all +acl|whoami",
    ] {
        assert!(!has(&[("admin", rules), off]), "{rules}");
    }
}

#[cfg(feature = "http")]
#[test]
fn lists_for_operators_have_no_passwords() {
    let rules = String::from_utf8(user("on >secret ~a +get").print()).expect("text");
    let listed = operator::list(&access(&[("app", &rules)]));
    assert_eq!((&*listed[0].0, listed[0].1), (&b"app"[..], 1));
    let shown = String::from_utf8_lossy(&listed[0].2);
    assert_eq!(shown, "on sanitize-payload ~a resetchannels -@all +get");
    assert_eq!((&*listed[1].0, listed.len()), (&b"default"[..], 2));
}

/// 150 patterns of 200 stars and a key of a megabyte stopped a node for seconds.
#[test]
fn patterns_that_take_too_long_to_compare_are_refused_together() {
    let rules = |patterns: &[String]| {
        let mut user = User::default();
        let words = patterns.iter().map(|pattern| pattern.as_bytes());
        user.apply_all(words, Hashing::Redis).map(|()| user)
    };
    let many = |count: usize, of: &dyn Fn(usize) -> String| -> Vec<String> {
        (0..count).map(of).collect()
    };
    let anchored = many(2_000, &|n| format!("~app:{n}:*:config"));
    assert!(rules(&anchored).is_ok());
    let between = many(128, &|n| format!("~*:{n}:*"));
    assert!(rules(&between).is_ok());
    let one_more = many(129, &|n| format!("~*:{n}:*"));
    let attack = many(150, &|n| format!("~{}{n}?*", "*a".repeat(200)));
    let spread = many(129, &|n| format!("(~*:{n}:* +get)"));
    let channels = many(129, &|n| format!("&*:{n}:*"));
    for wrong in [one_more, attack, spread, channels] {
        let Err(why) = rules(&wrong) else {
            panic!("{} are taken", wrong[0]);
        };
        let why = why.to_string();
        assert!(why.contains("128") && why.contains("~app:*"), "{why}");
    }
}

#[test]
fn refusals_that_are_alike_are_one_entry() {
    let mut log = AclLog::default();
    let mut add = |ms, object: &str| {
        let refusal = AclRefusal {
            reason: DenialReason::Key,
            within: Within::Nothing,
            object: object.as_bytes(),
            user: b"bob",
            client: format!("id={ms}\n"),
        };
        log.add(ms, refusal, 3);
    };
    for (ms, object) in [
        (0, "a"),
        (1, "b"),
        (60_000, "a"),
        (120_001, "a"),
        (120_002, "c"),
    ] {
        add(ms, object);
    }
    let mut out = BytesMut::new();
    log.encode(&mut Encoder::new(&mut out, Protocol::Resp3), 121_000, 10);
    let text = String::from_utf8_lossy(&out).replace("\r\n", " ");
    assert!(text.starts_with("*3 "), "{text}");
    assert!(
        text.contains("id=120002 ") && text.contains("id=60000 "),
        "{text}"
    );
    let counts: Vec<&str> = text
        .split("count :")
        .skip(1)
        .map(|rest| &rest[..1])
        .collect();
    assert_eq!(counts, ["1", "1", "2"]);
    log.clear();
    out.clear();
    log.encode(&mut Encoder::new(&mut out, Protocol::Resp2), 0, 10);
    assert_eq!(&out[..], b"*0\r\n");
}

/// A word that rules may have, right or wrong.
fn word() -> impl Strategy<Value = String> {
    let fixed = [
        "on",
        "off",
        "nopass",
        "resetpass",
        "reset",
        "allkeys",
        "resetkeys",
        "allchannels",
        "resetchannels",
        "allcommands",
        "nocommands",
        "clearselectors",
        "sanitize-payload",
        "skip-sanitize-payload",
        "allkeyspaces",
        "resetkeyspaces",
        "+get",
        "-get",
        "+@read",
        "-@write",
        "+config|get",
        "-config",
        "+select|0",
        "+@all",
        "-@all",
        "keyspace=a",
        "keyspace=b/1",
        "(~x +get)",
        "(",
        ")",
        "()",
    ];
    prop_oneof![
        4 => proptest::sample::select(fixed.to_vec()).prop_map(str::to_owned),
        3 => "[~&][a-c*?(){}\\[\\]\\\\^-]{0,4}",
        2 => "%[RWrw]{0,2}~[a-c*]{0,3}",
        1 => "[>#<!(][a-z0-9]{0,4}",
        1 => "[+-]@?[a-z|]{0,9}",
        1 => "\\PC{0,6}",
    ]
}

proptest! {
    #[test]
    fn printed_rules_make_the_same_user(words in proptest::collection::vec(word(), 0..24)) {
        let mut user = User::default();
        for word in &words {
            // Whatever is refused changes nothing.
            let before = user.clone();
            if user.apply_all([word.as_bytes()], Hashing::Salted).is_err() {
                prop_assert_eq!(&user, &before);
            }
        }
        let printed = user.print();
        prop_assert_eq!(rules::User::parse(&printed), Ok(user.clone()));
        prop_assert_eq!(rules::User::parse_known(&printed), Ok(user));
    }
}
