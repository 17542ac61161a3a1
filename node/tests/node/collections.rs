//! Typed sets, sorted sets, lists and queues of jobs, on several nodes.

use doyen::testkit::Local;
use doyen::{
    Codec, Error, Eviction, JobQueue, KeyspaceOptions, List, ListEnd, Node, QueueCounts, Set,
    SortedSet,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

type Tested = Result<(), Box<dyn std::error::Error>>;

/// A guard against hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Mail {
    to: String,
    copies: u32,
}

fn mail(to: &str) -> Mail {
    Mail {
        to: to.to_owned(),
        copies: 1,
    }
}

async fn all<T: Serialize + serde::de::DeserializeOwned>(set: &Set<T>) -> Result<Vec<T>, Error> {
    let (mut found, mut members) = (Vec::new(), set.members());
    while let Some(member) = members.next().await? {
        found.push(member);
    }
    Ok(found)
}

#[doyen::test(nodes = 3)]
async fn a_set_is_the_same_at_every_node_and_after_its_primary_has_died(cluster: Local) -> Tested {
    let set: Set<u64> = cluster.node(0).set("primes").await?;
    assert!(set.is_empty().await? && set.pop().await?.is_none());
    assert!(set.insert(&2).await? && !set.insert(&2).await?);
    assert_eq!(set.insert_many(&[2, 3, 5]).await?, 2);
    assert_eq!(set.insert_many::<u64>(&[]).await?, 0);
    // More than are packed into one value, and more than one page.
    let many: Vec<u64> = (1_000..4_000).collect();
    assert_eq!(set.insert_many(&many).await?, 3_000);
    for killed in [None, Some(0), Some(1)] {
        if let Some(number) = killed {
            cluster.kill(number).await;
            cluster.start_another().await?;
            cluster.await_safe(PATIENCE).await?;
        }
        let there: Set<u64> = cluster.node(2).set("primes").await?;
        assert_eq!(there.len().await?, 3_003);
        assert!(there.contains(&3).await? && !there.contains(&4).await?);
        let members: BTreeSet<u64> = all(&there).await?.into_iter().collect();
        let wanted: BTreeSet<u64> = [2, 3, 5].into_iter().chain(many.clone()).collect();
        assert_eq!(members, wanted);
    }
    let set: Set<u64> = cluster.node(2).set("primes").await?;
    let popped = set.pop().await?.expect("one");
    assert!(!set.contains(&popped).await?);
    assert!(set.remove(&if popped == 2 { 3 } else { 2 }).await?);
    assert!(set.clear().await? && !set.clear().await?);
    assert_eq!(all(&set).await?, Vec::<u64>::new());
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn members_of_another_type_are_errors_and_hide_no_others(cluster: Local) -> Tested {
    let texts: Set<String> = cluster.node(0).set("mixed").await?;
    texts.insert_many(["ada", "grace"]).await?;
    let numbers: Set<(u64, bool)> = cluster.node(1).set("mixed").await?;
    let mut members = numbers.members();
    for _ in 0..2 {
        let refused = members.next().await;
        assert!(matches!(refused, Err(Error::Key(_))), "{refused:?}");
    }
    assert!(members.next().await?.is_none());
    let long = texts.insert(&"a".repeat(70_000)).await;
    assert_eq!(long, Err(Error::TooLarge));
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn a_sorted_set_ranks_its_members_and_survives_its_primary(cluster: Local) -> Tested {
    let board: SortedSet<String> = cluster.node(0).sorted_set("board").await?;
    assert!(board.insert("ada", 10.0).await? && !board.insert("ada", 12.5).await?);
    assert_eq!(
        board.insert_many([("grace", 30.0), ("alan", 12.5)]).await?,
        2
    );
    assert!(!board.raise("grace", 20.0).await? && board.raise("grace", 31.0).await?);
    assert!(board.raise("john", f64::NEG_INFINITY).await?);
    assert_eq!(board.increment("edsger", 1.5).await, Ok(1.5));
    assert_eq!(board.increment("edsger", 1e300).await, Ok(1e300));
    let nan = board.increment("john", f64::INFINITY).await;
    assert_eq!(nan, Err(Error::Overflow));
    assert!(matches!(
        board.insert("ada", f64::NAN).await,
        Err(Error::Refused(_))
    ));
    cluster.kill(0).await;
    let board: SortedSet<String> = cluster.node(1).sorted_set("board").await?;
    let names = |scored: Vec<(String, f64)>| -> Vec<String> {
        scored.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(
        board.range(..).await?,
        [
            ("john".to_owned(), f64::NEG_INFINITY),
            ("ada".to_owned(), 12.5),
            ("alan".to_owned(), 12.5),
            ("grace".to_owned(), 31.0),
            ("edsger".to_owned(), 1e300),
        ]
    );
    assert_eq!(names(board.rev_range(0..2).await?), ["edsger", "grace"]);
    assert_eq!(names(board.range(-2..).await?), ["grace", "edsger"]);
    assert_eq!(board.range(..0).await?, []);
    assert_eq!(
        names(board.range_by_score(12.5..31.0, 9).await?),
        ["ada", "alan"]
    );
    assert_eq!(
        names(board.rev_range_by_score(..=31.0, 2).await?),
        ["grace", "alan"]
    );
    assert_eq!(board.count(12.5..=31.0).await?, 3);
    assert_eq!(board.rank("ada").await?, Some(1));
    assert_eq!(board.rev_rank("ada").await?, Some(3));
    assert_eq!(board.rank("nobody").await?, None);
    assert_eq!(board.score("grace").await?, Some(31.0));
    assert_eq!(board.score("nobody").await?, None);
    assert_eq!(
        board.pop_first().await?,
        Some(("john".to_owned(), f64::NEG_INFINITY))
    );
    assert_eq!(board.pop_last().await?, Some(("edsger".to_owned(), 1e300)));
    assert!(board.remove("ada").await? && !board.remove("ada").await?);
    assert_eq!(board.remove_range_by_score(..20.0).await?, 1);
    assert_eq!(board.remove_range(0..).await?, 1);
    assert!(board.is_empty().await? && board.pop_first().await?.is_none());
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn a_list_keeps_its_order_and_survives_its_primary(cluster: Local) -> Tested {
    let mails: List<Mail> = cluster.node(0).list("mails").await?;
    assert_eq!(mails.push_back(&mail("b")).await?, 1);
    assert_eq!(mails.push_front(&mail("a")).await?, 2);
    assert_eq!(mails.extend(&[mail("c"), mail("b"), mail("d")]).await?, 5);
    cluster.kill(0).await;
    let mails: List<Mail> = cluster.node(1).list("mails").await?;
    let names = |mails: Vec<Mail>| -> String { mails.into_iter().map(|mail| mail.to).collect() };
    assert_eq!(names(mails.range(..).await?), "abcbd");
    assert_eq!(
        names(
            mails
                .range((Bound::Included(1), Bound::Excluded(-1)))
                .await?
        ),
        "bcb"
    );
    assert_eq!(mails.get(-1).await?, Some(mail("d")));
    assert_eq!(mails.get(5).await?, None);
    assert!(mails.set(2, &mail("x")).await? && !mails.set(9, &mail("x")).await?);
    assert!(mails.remove_first(&mail("b")).await?);
    assert_eq!(names(mails.range(..).await?), "axbd");
    assert_eq!(mails.remove(&mail("b")).await?, 1);
    let moved = mails.move_to(ListEnd::Front, &mails, ListEnd::Back).await?;
    assert_eq!(moved, Some(mail("a")));
    assert_eq!(names(mails.range(..).await?), "xda");
    mails.trim(..2).await?;
    assert_eq!(mails.len().await?, 2);
    assert_eq!(mails.pop_front().await?, Some(mail("x")));
    assert_eq!(mails.pop_back().await?, Some(mail("d")));
    assert_eq!(mails.pop_back().await?, None);
    assert!(mails.is_empty().await?);
    let texts: List<String> = cluster.node(2).list("mails").await?;
    mails.push_back(&mail("e")).await?;
    assert!(matches!(texts.get(0).await, Err(Error::Value(_))));
    let bytes = cluster.node(2).list::<Mail>("m").codec(Codec::Bytes).await;
    assert!(matches!(bytes, Err(Error::Refused(_))), "{bytes:?}");
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn elements_move_between_lists_of_one_tag(cluster: Local) -> Tested {
    let node = cluster.node(0);
    let open: List<String> = node.list("{orders}:open").database().await?;
    let packed: List<String> = node.list("{orders}:packed").database().await?;
    open.extend(&["tea".to_owned(), "milk".to_owned()]).await?;
    let moved = open.move_to(ListEnd::Front, &packed, ListEnd::Back).await?;
    assert_eq!(moved.as_deref(), Some("tea"));
    assert_eq!(packed.range(..).await?, ["tea"]);
    assert_eq!(open.range(..).await?, ["milk"]);
    let typed: List<String> = node.list("{orders}:packed").await?;
    let refused = open.move_to(ListEnd::Front, &typed, ListEnd::Back).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    let mut crossed = 0;
    for n in 0..20 {
        let other: List<String> = node.list(&format!("other-{n}")).database().await?;
        match open.move_to(ListEnd::Front, &other, ListEnd::Back).await {
            Err(Error::CrossPartition) => crossed += 1,
            Ok(moved) => {
                assert_eq!(moved.as_deref(), Some("milk"));
                open.push_back(&"milk".to_owned()).await?;
            }
            Err(other) => return Err(other.into()),
        }
    }
    assert!(crossed > 0, "keys spread over partitions");
    assert_eq!(open.range(..).await?, ["milk"]);
    // The bytes are those that Redis clients see.
    let tags: Set<String> = node.set("tags").database().await?;
    tags.insert("rust").await?;
    assert_eq!(node.database().get("tags").await, Err(Error::WrongType));
    Ok(())
}

async fn mails(node: &Node) -> Result<JobQueue<Mail>, Error> {
    node.queue("mails").max_attempts(2).await
}

#[doyen::test(nodes = 3)]
async fn a_job_is_taken_again_after_its_lease_and_its_former_owner_is_refused(
    cluster: Local,
) -> Tested {
    let (one, two) = (
        mails(&cluster.node(1)).await?,
        mails(&cluster.node(2)).await?,
    );
    let id = one.push(&mail("ada")).await?;
    let mut first = one.take(LEASE).await?.expect("it is due");
    assert_eq!(
        (&*first, first.id(), first.attempt()),
        (&mail("ada"), id, 1)
    );
    assert!(two.take(LEASE).await?.is_none(), "it is leased");
    assert!(first.extend(LEASE).await?);
    // The primary dies, and with it nothing of the lease.
    cluster.kill(0).await;
    assert!(two.take(LEASE).await?.is_none(), "it is leased");
    cluster.advance(LEASE + Duration::from_secs(5)).await;
    // Until another worker has it, its owner may still say that it is done.
    let second = two.take(LEASE).await?.expect("its lease is over");
    assert_eq!((second.id(), second.attempt()), (id, 2));
    assert!(second.token() > first.token());
    assert!(!first.extend(LEASE).await?, "it is lost");
    assert!(!first.retry(Duration::ZERO).await?, "it is lost");
    assert!(!first.done().await?, "it is lost");
    assert_eq!(two.counts().await?.later, 1);
    assert!(second.done().await?);
    assert!(!second.done().await?, "it is gone");
    assert_eq!(two.counts().await?, QueueCounts::default());
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn an_owner_whose_lease_is_over_is_done_if_no_other_has_the_job(cluster: Local) -> Tested {
    let queue = mails(&cluster.node(1)).await?;
    queue.push(&mail("ada")).await?;
    let job = queue.take(LEASE).await?.expect("it is due");
    cluster.advance(LEASE * 2).await;
    assert_eq!(queue.counts().await?.due, 1);
    assert!(job.done().await?);
    assert!(queue.take(LEASE).await?.is_none());
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn delays_hold_jobs_back_and_order_them(cluster: Local) -> Tested {
    let queue = mails(&cluster.node(0)).await?;
    let hour = Duration::from_secs(3600);
    queue.push_after(&mail("later"), 2 * hour).await?;
    queue.push_after(&mail("sooner"), hour).await?;
    let ids = queue.push_many(&[mail("a"), mail("b"), mail("c")]).await?;
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(ids[1].to_string().parse(), Ok(ids[1]));
    for wanted in ["a", "b", "c"] {
        let job = queue.take(LEASE).await?.expect("it is due");
        assert_eq!(job.to, wanted);
        assert!(job.done().await?);
    }
    assert!(queue.take(LEASE).await?.is_none());
    cluster.advance(3 * hour).await;
    for wanted in ["sooner", "later"] {
        let job = queue.take(LEASE).await?.expect("it is due");
        assert_eq!(job.to, wanted);
        assert!(job.retry(hour).await?);
        assert!(!job.done().await?, "it was given back");
    }
    assert!(queue.take(LEASE).await?.is_none());
    let refused = queue.take(Duration::from_millis(1)).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn jobs_that_fail_are_dead_until_they_are_revived(cluster: Local) -> Tested {
    let queue = mails(&cluster.node(0)).await?;
    let names: Vec<Mail> = (0..600).map(|n| mail(&format!("job {n}"))).collect();
    let ids = queue.push_many(&names).await?;
    for attempt in 1..=2 {
        for _ in &names {
            let job = queue.take(LEASE).await?.expect("it is due");
            assert_eq!(job.attempt(), attempt);
        }
        assert!(queue.take(LEASE).await?.is_none());
        cluster.advance(LEASE * 2).await;
    }
    // One call buries all of them, and finds none that it may take.
    assert_eq!(queue.counts().await?.due, 600);
    assert!(queue.take(LEASE).await?.is_none());
    let counts = queue.counts().await?;
    assert_eq!((counts.due, counts.later, counts.dead), (0, 0, 600));
    cluster.kill(0).await;
    let queue = mails(&cluster.node(1)).await?;
    let (mut dead, mut found) = (queue.dead(), Vec::new());
    while let Some(job) = dead.next().await? {
        assert_eq!(
            (job.attempts, job.value),
            (2, Ok(names[found.len()].clone()))
        );
        found.push(job.id);
    }
    assert_eq!(found, ids);
    assert!(queue.discard(ids[0]).await? && !queue.discard(ids[0]).await?);
    assert!(!queue.revive(ids[0]).await?, "it is gone");
    assert!(queue.revive(ids[7]).await? && !queue.revive(ids[7]).await?);
    let job = queue.take(LEASE).await?.expect("it is due");
    assert_eq!((job.id(), job.attempt()), (ids[7], 1));
    // The last attempt that asks for a retry is the end, too.
    assert!(job.retry(Duration::ZERO).await?);
    let job = queue.take(LEASE).await?.expect("it is due");
    assert!(job.retry(Duration::ZERO).await?);
    assert_eq!(queue.counts().await?.dead, 599);
    assert!(queue.clear().await?);
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn workers_that_wait_get_each_job_once_while_a_primary_dies(cluster: Local) -> Tested {
    const JOBS: u32 = 60;
    let workers = (0..6).map(|n| {
        let node = cluster.node(1 + n % 2);
        tokio::spawn(async move {
            let queue: JobQueue<u32> = node.queue("numbers").await?;
            let mut mine = Vec::new();
            while let Some(job) = queue.take_waiting(LEASE, PATIENCE).await? {
                if *job == u32::MAX {
                    // It is for the others, too.
                    job.retry(Duration::ZERO).await?;
                    return Ok(mine);
                }
                // An outcome may be unknown when the primary dies: the first call may have done it.
                match job.done().await {
                    Ok(is_mine) => assert!(is_mine),
                    Err(Error::Unknown) => _ = job.done().await?,
                    Err(other) => return Err(other),
                }
                mine.push(*job);
            }
            Ok(mine)
        })
    });
    let workers: Vec<tokio::task::JoinHandle<Result<Vec<u32>, Error>>> = workers.collect();
    let queue: JobQueue<u32> = cluster.node(1).queue("numbers").await?;
    for n in 0..JOBS {
        if n == JOBS / 2 {
            cluster.kill(0).await;
        }
        while let Err(why) = queue.push(&n).await {
            assert!(why.retryable(), "{why}");
        }
    }
    // Each worker that takes one of these gives it back and ends, so that all workers end.
    while queue.counts().await?.due > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let end: JobQueue<u32> = cluster.node(2).queue("numbers").await?;
    for _ in 0..2 {
        end.push(&u32::MAX).await?;
    }
    let mut done = BTreeSet::new();
    for worker in workers {
        for job in tokio::time::timeout(PATIENCE * 2, worker).await??? {
            assert!(done.insert(job), "{job} was done twice");
        }
    }
    assert_eq!(done, (0..JOBS).collect());
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn a_worker_that_waits_hears_of_delays_and_ends_in_time(cluster: Local) -> Tested {
    let queue = mails(&cluster.node(1)).await?;
    let nothing = queue.take_waiting(LEASE, Duration::from_millis(50)).await?;
    assert!(nothing.is_none());
    queue
        .push_after(&mail("soon"), Duration::from_millis(300))
        .await?;
    let job = queue.take_waiting(LEASE, PATIENCE).await?.expect("it came");
    assert_eq!(job.to, "soon");
    // Many wait, and each job wakes one of them.
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.take_waiting(LEASE, PATIENCE).await })
        })
        .collect();
    for n in 0..20 {
        queue.push(&mail(&n.to_string())).await?;
    }
    let mut ids = BTreeSet::new();
    for waiter in waiting {
        let job = waiter.await??.expect("a job for each");
        assert!(ids.insert(job.id()));
    }
    Ok(())
}

#[doyen::test(nodes = 3)]
async fn queues_refuse_keyspaces_that_lose_keys(cluster: Local) -> Tested {
    let node = cluster.node(0);
    let options = KeyspaceOptions::new().partitions(8).eviction(Eviction::Lru);
    node.admin().create_keyspace("cache", &options).await?;
    let refused = node.queue::<u64>("jobs").keyspace("cache").await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    let refused = node.queue::<u64>("jobs").max_attempts(0).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    let set: Set<u64> = node.set("numbers").keyspace("cache").await?;
    assert!(set.insert(&1).await? && set.expire(Duration::from_secs(60)).await?);
    cluster.advance(Duration::from_secs(61)).await;
    assert!(set.is_empty().await?);
    Ok(())
}
