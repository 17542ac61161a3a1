//! Maps with limits: how much they hold, how long entries live unused, and maps that are dropped.

use crate::embedded::node_with;
use doyen::admin::maps::MapLimitOptions;
use doyen::config::value::{MapEviction, Most};
use doyen::report::maps::{MapKind, MapSizeReport};
use doyen::testkit::Local;
use doyen::{AdminError, Cache, Codec, Error, Eviction, Map, Node, Refusal};
use std::time::Duration;

type Tested = Result<(), Box<dyn std::error::Error>>;

/// A limit that only a defect exceeds.
const PATIENCE: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(80);

/// Waits until a map has at most `most` entries.
async fn holds(map: &Map<u64, String>, most: usize) -> Result<usize, Error> {
    let looking = async {
        loop {
            let count = map.len().await? as usize;
            if count <= most {
                return Ok(count);
            }
            tokio::task::yield_now().await;
        }
    };
    let held = tokio::time::timeout(PATIENCE, looking).await;
    held.unwrap_or_else(|_| panic!("it holds more than {most}"))
}

#[doyen::test(nodes = 3)]
async fn a_map_keeps_to_its_limits_on_all_nodes(cluster: Local) -> Tested {
    let one = cluster.node(0);
    let few: Map<u64, String> = one.map("few").max_entries(300).await?;
    // Another program, which knows nothing of limits, and a client.
    let there: Map<u64, String> = cluster.node(1).map("few").await?;
    let client = cluster.client().await?;
    let outside: Map<u64, String> = client.map("few").max_entries(300).await?;
    for n in 0..1_000 {
        for (map, part) in [(&few, 0), (&there, 1), (&outside, 2)] {
            map.insert(&(3 * n + part), &"v".to_owned()).await?;
        }
    }
    let held = holds(&few, 300).await?;
    assert!(held >= 250, "no more is evicted than must be: {held}");
    // A client opens it with fewer, which removes nothing, and then changes the limit on purpose.
    let same: Map<u64, String> = client.map("few").max_entries(90).await?;
    assert!(same.len().await? > 90, "it was not lowered by opening");
    let fewer: Map<u64, String> = (client.map("few").max_entries(90)).replace_limits().await?;
    assert!(holds(&fewer, 90).await? >= 60);
    // Bytes.
    let small: Map<u64, String> = one.map("small").max_bytes(60_000).await?;
    let value = "x".repeat(1_000);
    for n in 0..500 {
        small.insert(&n, &value).await?;
    }
    assert!(holds(&small, 60).await? >= 30);
    // A map that evicts nothing refuses.
    let full: Map<u64, String> = (one.map("full").max_entries(30))
        .eviction(Eviction::None)
        .await?;
    let mut refused = 0;
    for n in 0..60 {
        match full.insert(&n, &value).await {
            Ok(()) => {}
            Err(Error::MapFull) => refused += 1,
            Err(why) => return Err(why.into()),
        }
    }
    assert_eq!(full.len().await? + refused, 60);
    assert!((30..40).contains(&refused), "{refused}");
    client.shutdown().await;
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn entries_expire_unused_and_only_then(cluster: Local) -> Tested {
    let here: Map<u64, String> = cluster.node(0).map("sessions").max_idle(IDLE).await?;
    let there: Map<u64, String> = cluster.node(1).map("sessions").await?;
    let hour = Duration::from_secs(3600);
    here.insert(&1, &"used".into()).await?;
    here.insert(&2, &"unused".into()).await?;
    here.put(&3, &"long".into()).max_idle(hour).await?;
    there.put(&4, &"short".into()).ttl(2 * IDLE).await?;
    assert_eq!(there.ttl(&1).await?, None, "it has no deadline");
    let ttl = here.ttl(&4).await?.expect("it has one");
    assert!(ttl > IDLE && ttl <= 2 * IDLE, "{ttl:?}");
    assert_eq!(
        here.update(&1, |it| it.cloned()).await?.as_deref(),
        Some("used")
    );
    let mut all = Vec::new();
    let mut entries = there.iter();
    while let Some((key, value)) = entries.next().await? {
        all.push((key, value));
    }
    all.sort();
    let texts: Vec<&str> = all.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["used", "unused", "long", "short"]);
    for _ in 0..4 {
        cluster.advance(IDLE / 2).await;
        assert_eq!(there.get(&1).await?.as_deref(), Some("used"));
        here.get(&4).await?;
    }
    // 160 s later: used entries live, but not beyond their deadline.
    assert_eq!(here.get(&2).await?, None);
    assert_eq!(here.get(&3).await?.as_deref(), Some("long"));
    assert_eq!(here.get(&4).await?, None);
    // A primary that dies takes no use with it.
    cluster.kill(2).await;
    assert_eq!(here.get(&1).await?.as_deref(), Some("used"));
    cluster.advance(IDLE + IDLE / 8).await;
    assert_eq!(here.get(&1).await?, None);
    // What does not fit.
    let plain: Map<u64, String> = cluster.node(0).map("plain").await?;
    let put = plain.put(&1, &"x".into()).max_idle(IDLE).await;
    assert!(matches!(put, Err(Error::Refused(_))), "{put:?}");
    let fenced = here.put(&1, &"x".into()).max_idle(IDLE).fenced(7).await;
    assert!(matches!(fenced, Err(Error::Refused(_))), "{fenced:?}");
    here.put(&1, &"fenced".into()).fenced(7).await?;
    assert_eq!(there.get(&1).await?.as_deref(), Some("fenced"));
    let late = there.put(&1, &"late".into()).fenced(6).await;
    assert_eq!(late, Err(Error::Fenced));
    Ok(())
}

/// A map that exists gets limits by programs that know of them later.
#[doyen::test(nodes = 3)]
async fn limits_are_raised_by_opening_and_an_idle_time_is_added(cluster: Local) -> Tested {
    let (one, two) = (cluster.node(0), cluster.node(1));
    let many: Map<u64, String> = one.map("many").max_entries(5_000).await?;
    for n in 0..2_000 {
        many.insert(&n, &"v".to_owned()).await?;
    }
    // Neither fewer entries, nor bytes, nor another eviction take anything away.
    let open = || two.map::<u64, String>("many");
    open().max_entries(10).await?;
    open().max_bytes(10).await?;
    open().max_entries(10).eviction(Eviction::None).await?;
    open().await?;
    let higher = open().max_entries(6_000).await?;
    assert_eq!(higher.len().await?, 2_000);
    let lower = open().max_entries(300).replace_limits().await?;
    assert!(holds(&lower, 300).await? >= 250);
    // Every member tells what was changed, and by whose program.
    for node in 0..3 {
        let told = cluster.node(node).logged_events(0);
        let told: Vec<String> = told.iter().map(|told| format!("{told:?}")).collect();
        for change in [
            "map many was limited: max_entries 6000 instead of 5000, by a program, a client or an operator of node-1",
            "map many was limited: max_entries 300 instead of 6000, by a program, a client or an operator of node-1",
        ] {
            assert!(told.iter().any(|told| told.contains(change)), "{told:#?}");
        }
        assert!(!told.iter().any(|told| told.contains(" 10 ")), "{told:#?}");
    }

    let plain: Map<u64, String> = one.map("plain").await?;
    for key in [1, 2, 3] {
        plain.insert(&key, &"before".into()).await?;
    }
    let idle: Map<u64, String> = two.map("plain").max_idle(IDLE).await?;
    // A handle of before goes on.
    plain.insert(&4, &"after".into()).await?;
    assert_eq!(plain.get(&1).await?.as_deref(), Some("before"));
    idle.put(&3, &"long".into())
        .max_idle(IDLE * 1_000_000)
        .await?;
    let mut all = Vec::new();
    let mut entries = plain.iter();
    while let Some((key, value)) = entries.next().await? {
        all.push((key, value));
    }
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(plain.update(&1, |it| it.cloned()).await?.is_some());
    // What is never used again is gone in the end.
    let gone = async {
        while idle.len().await? > 1 {
            cluster.advance(IDLE * 2).await;
        }
        Ok::<_, Error>(())
    };
    tokio::time::timeout(PATIENCE, gone).await??;
    assert_eq!(plain.get(&3).await?.as_deref(), Some("long"));
    let bytes: Map<u64, Vec<u8>> = one.map("bytes").codec(Codec::Bytes).await?;
    bytes.insert(&1, &vec![0xE2; 40]).await?;
    let later = one.map::<u64, Vec<u8>>("bytes").codec(Codec::Bytes);
    let why = later.max_idle(IDLE).await.expect_err("it was made without");
    assert!(why.to_string().contains("made without max_idle"), "{why}");
    Ok(())
}

#[doyen::test(nodes = 1)]
async fn a_full_cache_loads_and_limits_of_nothing_are_refused(cluster: Local) -> Tested {
    let node = cluster.node(0);
    let cache: Cache<u64, u64> = (node.cache("full").max_entries(2))
        .eviction(Eviction::None)
        .await?;
    for n in 0..20 {
        let load = move || async move { Ok::<_, std::io::Error>(n) };
        assert_eq!(cache.get_or_load(&n, load).await?, n);
    }
    assert!(cache.len().await? <= 2);
    let nothing = node.map::<u64, u64>("none").max_entries(0).await;
    let why = nothing.expect_err("it would keep nothing").to_string();
    assert!(why.contains("max_entries of the map none is 0"), "{why}");
    let number = node.map::<u64, u64>("number").codec(Codec::Bytes).await;
    let why = number.expect_err("it is no bytes").to_string();
    assert!(why.contains("for texts and bytes alone"), "{why}");
    Ok(())
}

#[test]
fn administration_outside_of_tokio_is_a_typed_error() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let node = runtime.block_on(node_with("one", &[], |builder| builder));
    let options = doyen::KeyspaceOptions::new();
    let admin = node.admin();
    let made = futures_util::FutureExt::now_or_never(admin.create_keyspace("k", &options));
    let made = made.expect("nothing waits");
    assert_eq!(made, Err(doyen::AdminError::NoRuntime));
    // A runtime without timers.
    let bare = tokio::runtime::Builder::new_current_thread();
    let bare = { bare }.enable_io().build().expect("a runtime");
    let started = bare.block_on(Node::builder().listen("127.0.0.1:0").start());
    assert_eq!(started.map(drop), Err(Error::NoRuntime));
    runtime.block_on(node.kill());
}

/// Bytes that look like the head of a value are bytes.
#[doyen::test(nodes = 1)]
async fn any_bytes_are_kept_in_a_map_with_an_idle_time(cluster: Local) -> Tested {
    let node = cluster.node(0);
    let bytes: Map<u64, Vec<u8>> = (node.map("bytes").codec(Codec::Bytes))
        .max_idle(IDLE)
        .await?;
    let euro = "€ 17,50 and some more text".as_bytes().to_vec();
    for value in [euro, vec![0xE2; 40], Vec::new()] {
        bytes.insert(&1, &value).await?;
        assert_eq!(bytes.get(&1).await?, Some(value.clone()));
        assert_eq!(bytes.iter().next().await?, Some((1, value.clone())));
        assert_eq!(bytes.append(&1, b"!").await?, value.len() as u64 + 1);
        assert_eq!(bytes.take(&1).await?, Some([&value[..], b"!"].concat()));
    }
    let texts: Map<u64, String> = node.map("texts").await?;
    let why = texts.append(&1, b"x").await.expect_err("it has a label");
    assert!(matches!(why, Error::Refused(_)), "{why}");
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn a_dropped_map_is_gone_everywhere_and_its_name_is_free(cluster: Local) -> Tested {
    let (one, two) = (cluster.node(0), cluster.node(1));
    let old: Map<u64, String> = one.map("old").await?;
    let there: Map<u64, String> = two.map("old").await?;
    for n in 0..100 {
        old.insert(&n, &"v".into()).await?;
    }
    let mut changes = there.subscribe().await?;
    // Two programs drop it at once: one of them did it.
    let three = cluster.node(2);
    let (here, elsewhere) = (
        two.drop_map("default", "old"),
        three.drop_map("default", "old"),
    );
    let (here, elsewhere) = tokio::join!(here, elsewhere);
    assert!(here? || elsewhere?);
    let ended = async { while changes.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await?;
    // As soon as the primaries know it.
    let dropping = async {
        while old.insert(&1, &"v".into()).await != Err(Error::Dropped) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, dropping).await?;
    assert_eq!(there.get(&1).await, Err(Error::Dropped));
    let again = there.subscribe().await;
    assert_eq!(again.map(drop), Err(Error::Dropped));
    assert!(!two.drop_map("default", "old").await?, "there is none");
    assert!(two.drop_map("elsewhere", "old").await.is_err());
    let new: Map<u64, String> = two.map("old").await?;
    assert_eq!(new.get(&1).await?, None, "it is another map");
    new.insert(&1, &"w".into()).await?;
    // A client drops it.
    let client = cluster.client().await?;
    assert!(client.drop_map("default", "old").await?);
    client.shutdown().await;
    Ok(())
}

/// What the cluster holds under this name, once each entry is at a primary and one copy.
async fn held(node: &Node, name: &str, entries: u64) -> MapSizeReport {
    let looking = async {
        loop {
            let maps = node.admin().maps().await.expect("it is a member");
            let map = maps.into_iter().find(|map| map.name == name);
            let counted = |map: &MapSizeReport| {
                (map.entries, map.uncounted) == (entries, 0) && map.with_copies() == 2 * map.bytes
            };
            if let Some(map) = map.filter(counted) {
                return map;
            }
            tokio::task::yield_now().await;
        }
    };
    let looked = tokio::time::timeout(PATIENCE, looking).await;
    looked.unwrap_or_else(|_| panic!("{name} does not hold {entries}"))
}

#[doyen::test(nodes = 3)]
async fn an_operator_sees_what_maps_hold_and_limits_and_drops_them(cluster: Local) -> Tested {
    let (one, two) = (cluster.node(0), cluster.node(1));
    let admin = two.admin();
    let pages: Map<u64, String> = one.map("pages").await?;
    for n in 0..200 {
        pages.insert(&n, &"x".repeat(1_000)).await?;
    }
    one.map::<u64, String>("empty").await?;
    one.database().set("k", "v").await?;
    let report = held(&two, "pages", 200).await;
    assert_eq!((report.kind, &report.limits), (MapKind::Map, &None));
    let least = 200 * 1_000;
    assert!(
        (least..least + least / 4).contains(&report.bytes),
        "{report:?}"
    );
    assert!(report.members.len() == 3 && report.keyspace == "default");
    assert_eq!(held(&two, "empty", 0).await.members, []);
    assert_eq!(held(&two, "0", 1).await.kind, MapKind::Database);

    // Lower limits, one after the other: what is not given stays.
    let limit = |max_entries, eviction| MapLimitOptions {
        max_entries,
        eviction,
        ..MapLimitOptions::default()
    };
    let fewer = limit(Some(Most(Some(60))), None);
    admin.limit_map("default", "pages", &fewer).await?;
    assert!(holds(&pages, 60).await? >= 40);
    let lru = limit(None, Some(MapEviction(Eviction::Lru)));
    admin.limit_map("default", "pages", &lru).await?;
    let all = admin.maps().await?;
    let limits = all.iter().find(|map| map.name == "pages");
    let limits = limits.and_then(|map| map.limits.clone()).expect("limits");
    assert_eq!(
        (limits.max_entries, limits.eviction.as_str()),
        (Some(60), "lru")
    );
    let refused = admin.limit_map("default", "empty", &lru).await;
    let of = |refused: Result<(), AdminError>| match refused {
        Err(AdminError::Refused(refusal)) => refusal,
        other => panic!("it is not refused: {other:?}"),
    };
    assert!(matches!(
        of(refused),
        Refusal::Invalid {
            field: "eviction",
            ..
        }
    ));

    // A cache is dropped with what it keeps by schema.
    let cache: Cache<u64, String> = one.cache("users").schema("user", 1).await?;
    cache.insert(&1, &"ada".into()).await?;
    admin.drop_map("default", "users").await?;
    admin.drop_map("default", "pages").await?;
    let dropping = async {
        while pages.get(&1).await != Err(Error::Dropped) {
            tokio::task::yield_now().await;
        }
        while cache.get(&1).await != Err(Error::Dropped) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, dropping).await?;
    let gone = of(admin.drop_map("default", "pages").await);
    assert!(matches!(&gone, Refusal::NotFound { why } if why.contains("doyen map list")));
    // What it left is cleared, and then nothing remains to be seen of it.
    let clearing = async {
        let left = |map: &MapSizeReport| map.kind == MapKind::Dropped || map.name == "pages";
        while admin.maps().await.is_ok_and(|maps| maps.iter().any(left)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, clearing).await?;
    let again: Map<u64, String> = one.map("pages").await?;
    assert_eq!(
        (again.len().await?, held(&two, "pages", 0).await.limits),
        (0, None)
    );
    for node in 0..3 {
        let told = cluster.node(node).logged_events(0);
        let told: Vec<String> = told.iter().map(|told| format!("{told:?}")).collect();
        for change in [
            "map pages was limited: max_entries 60 instead of none, eviction lfu instead of none, \
             by a program, a client or an operator of node-1",
            "map pages was limited: eviction lru instead of lfu",
            "map pages was dropped",
            "map users/schemas was dropped",
        ] {
            assert!(told.iter().any(|told| told.contains(change)), "{told:#?}");
        }
    }
    Ok(())
}
