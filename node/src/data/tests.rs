//! Data threads without a front end, end to end: the real shard, a hand-made view, and the test in
//! place of the control thread.

use super::front_end::NoFrontEnd;
use super::*;
use crate::control::Errand;
use doyen_engine::op::{Action, Failure, PartitionAction};
use doyen_engine::sync::{self, Acquired, Permits};
use doyen_gossip::Time;
use doyen_gossip::agreement::{AdminReply, AdminRequest, View};
use doyen_placement::planner::NotGranted;
use doyen_placement::{
    Addresses, Age, ClusterId, Keyspace, KeyspaceId, MapId, Member, PartitionId, PartitionRef,
    Settings, Table, ThreadPorts,
};
use std::time::Duration;

mod ending;
mod transactions;

pub(crate) const ME: MemberId = MemberId(0xabc0);

/// A node of one member. The test takes the place of its control thread.
pub(crate) struct Running {
    pub(crate) data: Data,
    pub(crate) handle: DataHandle,
    pub(crate) shared: Arc<Shared>,
    upcalls: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Starts one thread for each front end.
    pub(crate) fn start<O: Opener>(fronts: Vec<O>, limits: Limits, view: View) -> Self {
        let shared = Arc::new(Shared::new(ME));
        let socket = |_: &O| UdpSocket::bind("127.0.0.1:0").unwrap();
        let (upcalls, mut incoming) = mpsc::channel(16);
        let options = DataOptions {
            me: ME,
            limits,
            sockets: fronts.iter().map(socket).collect(),
            identity: Arc::new(Identity::insecure_loopback("one").unwrap()),
            clients_max: 10,
            level_max: doyen_placement::level::LEVELS.1,
            whole_process: false,
            seeds: Vec::new(),
            directory: None,
            hooks: Hooks::default(),
        };
        shared.publish(crate::control::shared::LocalView {
            me: ME,
            view: Some(view),
        });
        shared.extend_lease(Time(u64::MAX));
        let (data, handle, _) = start(options, fronts, shared.clone(), upcalls).unwrap();
        let coordinated = shared.clone();
        let upcalls = tokio::spawn(async move {
            while let Some(upcall) = incoming.recv().await {
                match upcall {
                    Upcall::Used(answer) => answer.send(()).unwrap(),
                    Upcall::Errand { errand, answer } => {
                        // The client may be gone.
                        let _ = answer.send(run_errand(&coordinated, errand));
                    }
                    _ => {}
                }
            }
        });
        Self {
            data,
            handle,
            shared,
            upcalls,
        }
    }

    pub(crate) async fn stop(self) {
        self.handle.stop();
        self.data.join();
        self.upcalls.await.unwrap();
    }
}

/// Does what the control thread, the coordinator and the disk do.
fn run_errand(shared: &Shared, errand: Errand) -> AdminReply {
    let request = match errand {
        Errand::Admin(request) => request,
        Errand::Blocking(work) => return work(),
    };
    let local = shared.local();
    let mut view = local.view.clone().expect("a view");
    let table = view.installed.clone();
    let next = match request {
        AdminRequest::ChangeAccess(change) => {
            doyen_placement::planner::change_access(&table, &change)
        }
        AdminRequest::TellOfKeys { events } => {
            Ok(doyen_placement::planner::tell_of_keys(&table, events))
        }
        _ => return AdminReply::Refused("no test asks for it".to_owned()),
    };
    match next {
        Ok(next) => {
            if let Some(mut next) = next {
                next.version = doyen_placement::Version(table.version.0 + 1);
                let next = Arc::new(next);
                (view.installed, view.accepted) = (next.clone(), next);
                shared.publish(crate::control::shared::LocalView {
                    me: ME,
                    view: Some(view),
                });
            }
            AdminReply::Done(None)
        }
        Err(why @ NotGranted::Changed { .. }) => AdminReply::Outdated(why.to_string()),
        Err(why) => AdminReply::Refused(why.to_string()),
    }
}

/// A node without a front end.
pub(crate) fn doorless(threads: u8) -> Running {
    let further = (2..).take(usize::from(threads) - 1);
    let further = further.map(|data| ThreadPorts {
        data,
        resp_cluster: None,
    });
    let addresses = Addresses {
        resp: None,
        resp_cluster: None,
        further: further.collect(),
        ..addresses()
    };
    let view = view_of(vec![member(ME, addresses)], 1);
    Running::start(vec![NoFrontEnd; usize::from(threads)], limits(), view)
}

pub(crate) fn limits() -> Limits {
    Limits {
        value_bytes_max: 4 << 20,
        memory_bytes_max: 256 << 20,
        waiting_max: 100_000,
        copies_max: 4,
        ..Limits::default()
    }
}

/// The addresses of one thread, without ports for clients.
pub(crate) fn addresses() -> Addresses {
    let any: SocketAddr = "127.0.0.1:1".parse().unwrap();
    Addresses::new(any, any)
}

pub(crate) fn member(me: MemberId, addresses: Addresses) -> Member {
    Member {
        age: Age(1),
        ..Member::new(me, "one", addresses)
    }
}

pub(crate) fn view_of(members: Vec<Member>, backups: u8) -> View {
    let keyspace = Keyspace::fixed(64, backups);
    let settings = Settings::default();
    let table = doyen_placement::planner::first(ClusterId(7), settings, keyspace, members);
    // Tests of maps use the first one.
    let users = doyen_placement::WantedMap {
        keyspace: "default".to_owned(),
        name: "users".to_owned(),
        wish: doyen_placement::MapWish::Exists,
    };
    let (table, _) = doyen_placement::planner::want_map(&table, &users).expect("it may be");
    let table: Arc<Table> = Arc::new(table.expect("it is new"));
    let partitions = &table.keyspaces[0].partitions;
    let opens_at = partitions
        .iter()
        .map(|p| {
            (
                PartitionRef {
                    keyspace: KeyspaceId(0),
                    partition: p.id,
                },
                p.since,
                Time::ZERO,
            )
        })
        .collect();
    View {
        installed: table.clone(),
        accepted: table,
        opens_at: Arc::new(opens_at),
    }
}

pub(crate) fn operation(action: Action) -> Operation {
    Operation {
        keyspace: KeyspaceId(0),
        map: MapId(0),
        key: "a".into(),
        action,
    }
}

#[tokio::test]
async fn the_library_reaches_keys_and_partitions() {
    let node = doorless(1);
    assert_eq!(
        node.handle
            .execute(operation(Action::Append {
                value: "xyz".into()
            }))
            .await,
        Outcome::Int(3)
    );
    assert_eq!(
        node.handle.execute(operation(Action::Strlen)).await,
        Outcome::Int(3)
    );
    let slot = doyen_placement::hash::slot(b"a");
    let partition = PartitionId(u32::from(slot) / 256);
    let count = PartitionOperation {
        keyspace: KeyspaceId(0),
        partition,
        map: MapId(0),
        action: PartitionAction::Count,
    };
    assert_eq!(node.handle.execute_partition(count).await, Outcome::Int(1));
    node.stop().await;
}

#[tokio::test]
async fn the_library_leaves_operations_at_the_thread_that_has_the_key() {
    let node = doorless(4);
    for i in 0..100 {
        let operation = Operation {
            key: format!("key:{i}").into(),
            ..operation(Action::IncrBy(1))
        };
        assert_eq!(node.handle.execute(operation).await, Outcome::Int(1));
    }
    for partition in 0..64 {
        let partition = PartitionId(partition);
        let count = PartitionOperation {
            keyspace: KeyspaceId(0),
            partition,
            map: MapId(0),
            action: PartitionAction::Count,
        };
        assert!(matches!(
            node.handle.execute_partition(count).await,
            Outcome::Int(_)
        ));
    }
    let stats = node.handle.stats().await;
    assert_eq!((stats.shard.keys, stats.shard.forwarded), (100, 0));
    node.stop().await;
}

#[tokio::test]
async fn a_node_without_a_door_drains_at_once_and_counts_no_connections() {
    let node = doorless(2);
    assert_eq!(
        node.handle.execute(operation(Action::Strlen)).await,
        Outcome::Int(0)
    );
    node.handle.drain().await;
    let stats = node.handle.stats().await;
    assert_eq!((stats.connections, stats.front.commands), (0, 0));
    node.stop().await;
}

/// A node is expelled and joins again while its callers wait: they ask again, and are served.
#[tokio::test]
async fn callers_in_line_wait_on_as_those_of_the_next_incarnation() {
    let node = doorless(2);
    let take = |owner| {
        operation(sync::try_acquire(
            sync::Owner([owner; 16]),
            Permits::ONE,
            60_000,
        ))
    };
    let granted = |outcome: &Outcome| {
        let read = sync::read_acquired(outcome);
        matches!(read, Ok(Acquired::Granted { .. }))
    };
    assert!(granted(&node.handle.execute(take(1)).await));
    let soon = Duration::from_millis(300);
    let wait = |owner, limit: Option<Duration>| {
        let now = Instant::now();
        let until = limit.map(|limit| now + limit);
        tokio::spawn(node.handle.wait(take(owner), now, until))
    };
    let first = wait(2, None);
    while waiters(&node.handle).await < 1 {
        tokio::task::yield_now().await;
    }
    let late = wait(3, Some(soon));
    let gone = wait(4, None);
    while waiters(&node.handle).await < 3 {
        tokio::task::yield_now().await;
    }
    let me = MemberId(0xbee0);
    let addresses = Addresses {
        further: vec![ThreadPorts {
            data: 2,
            resp_cluster: None,
        }],
        ..addresses()
    };
    let publish = |view| {
        let local = crate::control::shared::LocalView { me, view };
        node.shared.publish(local);
    };
    // It has no table for a while.
    publish(None);
    gone.abort();
    assert!(gone.await.is_err());
    publish(Some(view_of(vec![member(me, addresses)], 1)));
    let (_, outcome) = first.await.unwrap().expect("it is free there");
    assert!(granted(&outcome), "{outcome:?}");
    assert_eq!(late.await.unwrap(), Err(Outcome::Nil));
    assert_eq!(waiters(&node.handle).await, 0);
    node.stop().await;
}

/// How many callers wait for the lock of these tests.
async fn waiters(node: &DataHandle) -> usize {
    let looked = node.execute(operation(sync::look())).await;
    sync::read_looked(&looked).expect("looked").waiters
}

#[tokio::test]
async fn another_incarnation_answers_waiting_reads_and_says_that_writes_are_unknown() {
    let node = doorless(1);
    let first = operation(Action::set("1".into()));
    assert_eq!(node.handle.execute(first).await, Outcome::Ok);
    node.shared.extend_lease(Time::ZERO);
    let read = node.handle.clone();
    let read = tokio::spawn(async move { read.execute(operation(Action::Get)).await });
    let write = node.handle.clone();
    let write = tokio::spawn(async move { write.execute(operation(Action::IncrBy(1))).await });
    // Both are in the shard once a later message was answered.
    while node.handle.stats().await.shard.executed < 3 {
        tokio::task::yield_now().await;
    }
    let me = MemberId(0xbee0);
    node.shared.publish(crate::control::shared::LocalView {
        me,
        view: Some(view_of(vec![member(me, addresses())], 1)),
    });
    node.shared.extend_lease(Time(u64::MAX));
    assert_eq!(write.await.unwrap(), Outcome::Failed(Failure::Unknown));
    assert_eq!(
        read.await.unwrap(),
        Outcome::Nil,
        "the new incarnation began empty"
    );
    node.stop().await;
}
