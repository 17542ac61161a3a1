//! Messages about keys, with several data threads.

use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

async fn ok(client: &mut Client, line: &str) {
    let reply = client.command(&words(line)).await.unwrap();
    assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
}

/// The next message: its channel, and its text.
async fn next(client: &mut Client) -> String {
    let reply = tokio::time::timeout(PATIENCE, client.reply()).await;
    match reply.expect("a message in time").unwrap() {
        Reply::Array(parts) => {
            let texts = parts.iter().rev().take(2).rev().map(|part| match part {
                Reply::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
                other => panic!("{other:?}"),
            });
            texts.collect::<Vec<_>>().join(" ")
        }
        other => panic!("{other:?}"),
    }
}

/// Every line was compared with redis-server 7.0.15: the messages about each command.
#[tokio::test]
async fn a_subscriber_is_told_of_keys_what_redis_tells() {
    let node = Node::of_threads(3, None, 10, limits());
    let (mut writer, mut subscriber) = (node.client().await, node.client().await);
    ok(&mut writer, "CONFIG SET notify-keyspace-events KEAn").await;
    ok(&mut subscriber, "PSUBSCRIBE __key*__:*").await;
    for case in include_str!("notices.txt").lines() {
        let Some((line, expected)) = case.split_once(" => ") else {
            continue;
        };
        ok(&mut writer, line).await;
        for event in expected.split(' ') {
            let (name, key) = event.split_once(':').unwrap();
            let by_key = format!("__keyspace@0__:{key} {name}");
            let by_event = format!("__keyevent@0__:{name} {key}");
            assert_eq!(next(&mut subscriber).await, by_key, "{line}");
            assert_eq!(next(&mut subscriber).await, by_event, "{line}");
        }
    }
    // `A` does not stand for new keys.
    ok(&mut writer, "CONFIG SET notify-keyspace-events KEA").await;
    // A key that expires by itself.
    ok(&mut writer, "SET soon x PX 30").await;
    for event in ["set", "expire", "expired"] {
        let by_key = format!("__keyspace@0__:soon {event}");
        assert_eq!(next(&mut subscriber).await, by_key);
        next(&mut subscriber).await;
    }
    // A field that expires by itself, and with the last one its hash.
    ok(&mut writer, "HSET fields f x").await;
    ok(&mut writer, "HPEXPIRE fields 30 FIELDS 1 f").await;
    for event in ["hset", "hexpire", "hexpired", "del"] {
        let by_key = format!("__keyspace@0__:fields {event}");
        assert_eq!(next(&mut subscriber).await, by_key);
        next(&mut subscriber).await;
    }
    // Other databases have other channels.
    ok(&mut writer, "SELECT 3").await;
    ok(&mut writer, "SET a x").await;
    assert_eq!(next(&mut subscriber).await, "__keyspace@3__:a set");
    assert_eq!(next(&mut subscriber).await, "__keyevent@3__:set a");
    node.stop().await;
}

#[tokio::test]
async fn nothing_is_told_that_the_setting_does_not_name() {
    let node = Node::of_threads(2, None, 10, limits());
    let (mut writer, mut subscriber) = (node.client().await, node.client().await);
    ok(&mut subscriber, "SUBSCRIBE __keyevent@0__:expired news").await;
    subscriber.reply().await.unwrap();
    ok(&mut writer, "SET a x").await;
    let get = words("CONFIG GET notify-keyspace-events");
    match writer.command(&get).await.unwrap() {
        Reply::Array(pair) => assert_eq!(pair[1], Reply::Bulk(Vec::new())),
        other => panic!("{other:?}"),
    }
    ok(&mut writer, "CONFIG SET notify-keyspace-events Ex").await;
    // It is in the table, and those that subscribed before hear at once.
    let annex = node
        .shared
        .local()
        .view
        .clone()
        .unwrap()
        .installed
        .annex
        .clone();
    assert!(annex.key_events.is_some());
    ok(&mut writer, "SET b x PX 1").await;
    ok(&mut writer, "HSET h f x").await;
    assert_eq!(next(&mut subscriber).await, "__keyevent@0__:expired b");
    ok(&mut writer, "PUBLISH news end").await;
    loop {
        let message = next(&mut subscriber).await;
        if message == "news end" {
            break;
        }
        assert_eq!(message, "__keyevent@0__:expired b");
    }
    let bad = words("CONFIG SET notify-keyspace-events Q");
    let bad = writer.command(&bad);
    let why = "ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - \
               Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
    assert_eq!(bad.await.unwrap(), Reply::Error(why.into()));
    node.stop().await;
}

/// Regression: SUBSCRIBE was answered before the thread was told of all keys, so the first messages
/// were missing.
#[tokio::test]
async fn a_client_has_subscribed_once_the_changes_of_all_keys_are_told() {
    let park = Duration::from_secs(2);
    let node = Node::of_threads(2, None, 10, Limits { park, ..limits() });
    let view = view(ME, node.resp, &node.clusters);
    let me = member(ME, node.resp, &node.clusters);
    let silent = Member {
        id: MemberId(0xdef0),
        age: Age(2),
        name: "two".to_owned(),
        ..me.clone()
    };
    let mut admin = node.client().await;
    ok(&mut admin, "CONFIG SET notify-keyspace-events KEA").await;
    let annex = node.shared.local().view.clone().unwrap();
    let annex = annex.installed.annex.clone();
    let publish = |view: View| {
        node.shared.publish(crate::control::shared::LocalView {
            me: ME,
            view: Some(view),
        });
    };
    // Half of the partitions have a primary that answers nothing.
    let mut half = view_of(vec![me, silent], 0);
    let mut table = (*half.installed).clone();
    table.version.0 += 2;
    table.annex = annex.clone();
    half.installed = Arc::new(table);
    half.accepted = half.installed.clone();
    publish(half);
    let awaits = async |line: &str| {
        let mut client = node.client().await;
        let began = std::time::Instant::now();
        let reply = client.command(&words(line)).await.unwrap();
        (reply, began.elapsed())
    };
    for line in ["SUBSCRIBE __keyevent@0__:set", "PSUBSCRIBE *"] {
        // The thread may still be told of all by the former table.
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            let (reply, took) = awaits(line).await;
            match reply {
                Reply::Error(why) => {
                    assert!(why.starts_with("TRYAGAIN "), "{why}");
                    assert!(took >= park, "{took:?}");
                    break;
                }
                other => assert!(std::time::Instant::now() < until, "{other:?}"),
            }
        }
    }
    let (reply, _) = awaits("SUBSCRIBE news").await;
    assert!(
        matches!(reply, Reply::Array(_)),
        "it is about no keys: {reply:?}"
    );
    // Its primary comes back while a client waits.
    let mut subscriber = node.client().await;
    subscriber
        .send(&[words("SUBSCRIBE __keyevent@0__:set")])
        .await
        .unwrap();
    let mut whole = view;
    let mut table = (*whole.installed).clone();
    table.version.0 += 3;
    table.annex = annex;
    whole.installed = Arc::new(table);
    whole.accepted = whole.installed.clone();
    publish(whole);
    let reply = tokio::time::timeout(PATIENCE, subscriber.reply())
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(reply, Reply::Array(_)), "{reply:?}");
    for n in 0..50 {
        ok(&mut admin, &format!("SET key:{n} x")).await;
        assert_eq!(
            next(&mut subscriber).await,
            format!("__keyevent@0__:set key:{n}")
        );
    }
    node.stop().await;
}
