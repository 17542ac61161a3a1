//! Whole control threads over real sockets, in one process.

use super::*;
use crate::clock;
use crate::events::ClusterEvent;
use doyen_gossip::agreement::Event;
use doyen_placement::planner::HandOverUrgency;
use doyen_placement::{Keyspace, MemberId, MemberState, OnLoss, Table};
use std::net::SocketAddr;
use tokio::task::JoinHandle as Task;

const PATIENCE: Duration = Duration::from_secs(30);
const SECRET: &[u8] = b"a secret of the tests";

struct Node {
    name: String,
    shared: Arc<Shared>,
    /// Notified after each published view.
    changed: Arc<Notify>,
    control: Option<Control>,
    handle: ControlHandle,
    alive: Task<()>,
    upcalls: mpsc::Sender<Upcall>,
}

fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

impl Node {
    fn start(
        name: &str,
        (socket, control): (UdpSocket, SocketAddr),
        seeds: &[SocketAddr],
        secret: &[u8],
    ) -> Self {
        let id = MemberId::of_member(rand::random());
        let agreement = AgreementConfig {
            default_keyspace: Keyspace {
                on_loss: OnLoss::Reset { after_ms: 60_000 },
                ..Keyspace::fixed(16, 1)
            },
            // No data thread listens at the data address here.
            ..AgreementConfig::of_test(id, name, control)
        };
        let (shared, changed) = (Arc::new(Shared::new(id)), Arc::new(Notify::new()));
        let listener = changed.clone();
        shared.listen(move || listener.notify_one());
        let identity = Arc::new(Identity::from_secret(secret, name).unwrap());
        let (upcalls, upcalls_out) = mpsc::channel(64);
        let seeds = seeds.iter().map(ToString::to_string).collect();
        let (control, handle) = start(
            ControlOptions {
                agreement,
                identity,
                socket,
                seeds,
                directory: None,
                hooks: Hooks::default(),
            },
            shared.clone(),
            upcalls_out,
        )
        .unwrap();
        let alive = tokio::spawn({
            let upcalls = upcalls.clone();
            async move {
                while upcalls.send(Upcall::Alive(0)).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        });
        Self {
            name: name.to_owned(),
            shared,
            changed,
            control: Some(control),
            handle,
            alive,
            upcalls,
        }
    }

    fn installed(&self) -> Option<Arc<Table>> {
        self.shared
            .local()
            .view
            .as_ref()
            .map(|view| view.installed.clone())
    }

    /// Waits until the installed table and the node satisfy `condition`.
    async fn until(&self, what: &str, condition: impl Fn(&Self, &Table) -> bool) {
        let wait = async {
            while !self
                .installed()
                .is_some_and(|table| condition(self, &table))
            {
                // A lease causes no notification, so look again after a while.
                let _ =
                    tokio::time::timeout(Duration::from_millis(20), self.changed.notified()).await;
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            panic!(
                "{} waits for {what}; status: {:?}",
                self.name,
                self.handle.status().await
            );
        }
    }

    fn has_lease(&self) -> bool {
        self.shared.lease() > clock::now()
    }

    fn stop(&mut self) {
        self.handle.stop();
        self.alive.abort();
        self.control.take().unwrap().join();
    }
}

fn live(table: &Table) -> usize {
    table
        .members
        .iter()
        .filter(|m| m.state == MemberState::Live)
        .count()
}

/// A cluster of nodes that are each other's seeds, once all of them serve with the same members.
async fn cluster(size: usize) -> Vec<Node> {
    let sockets: Vec<_> = (0..size).map(|_| socket()).collect();
    let seeds: Vec<_> = sockets.iter().map(|(_, address)| *address).collect();
    let nodes: Vec<_> = sockets
        .into_iter()
        .enumerate()
        .map(|(i, s)| Node::start(&format!("node {i}"), s, &seeds, SECRET))
        .collect();
    for node in &nodes {
        node.until("the whole cluster and a lease", |node, table| {
            live(table) == size && node.has_lease()
        })
        .await;
    }
    nodes
}

#[tokio::test]
async fn a_node_without_seeds_is_a_cluster_and_leaves_it() {
    let mut node = Node::start("alone", socket(), &[], SECRET);
    node.until("itself", |node, table| live(table) == 1 && node.has_lease())
        .await;
    let (answer, used) = oneshot::channel();
    node.upcalls.send(Upcall::Used(answer)).await.unwrap();
    used.await.unwrap();
    let status = node.handle.status().await.unwrap();
    assert_eq!(
        status.status.installed,
        status.installed.map(|table| table.name())
    );
    node.stop();
    assert_eq!(node.handle.status().await.unwrap_err(), ControlClosed);
    assert!(!node.has_lease(), "a stopped node serves nothing");
}

#[tokio::test]
async fn two_nodes_form_one_cluster_and_the_coordinator_answers_for_both() {
    let mut nodes = cluster(2).await;
    let ids: Vec<_> = nodes
        .iter()
        .map(|node| node.installed().unwrap().cluster)
        .collect();
    assert_eq!(ids[0], ids[1]);
    for node in &nodes {
        assert!(node.handle.status().await.unwrap().from_coordinator);
    }
    for node in &mut nodes {
        node.stop();
    }
}

#[tokio::test]
async fn three_nodes_continue_without_the_one_that_stops() {
    let mut nodes = cluster(3).await;
    let coordinator = nodes[0]
        .handle
        .status()
        .await
        .unwrap()
        .status
        .coordinator
        .unwrap();
    let at = nodes
        .iter()
        .position(|node| node.shared.local().me == coordinator)
        .unwrap();
    nodes.remove(at).stop();
    for node in &nodes {
        node.until("the other two", |node, table| {
            table.member(coordinator).is_none() && live(table) == 2 && node.has_lease()
        })
        .await;
    }
    for node in &mut nodes {
        node.stop();
    }
}

#[tokio::test]
async fn a_leaving_node_learns_when_it_may_end() {
    let mut nodes = cluster(3).await;
    let mut leaver = nodes.pop().unwrap();
    let id = leaver.shared.local().me;
    // There are no data threads here to hand over copies. This test shows only that the node is
    // asked to.
    let asked = tokio::time::timeout(
        Duration::from_secs(1),
        leaver.handle.hand_over(HandOverUrgency::Repair),
    )
    .await;
    if asked.is_ok() {
        leaver.handle.depart().await.unwrap();
        for node in &nodes {
            node.until("the other two", |_, table| table.member(id).is_none())
                .await;
        }
    }
    leaver.stop();
    for node in &mut nodes {
        node.stop();
    }
}

#[tokio::test]
async fn a_node_with_another_secret_ends_in_one_line() {
    let (seed_socket, seed) = socket();
    let mut member = Node::start("member", (seed_socket, seed), &[], SECRET);
    member.until("itself", |_, table| live(table) == 1).await;
    let mut events = member.handle.events();
    let mut stranger = Node::start("stranger", socket(), &[seed], b"another secret!!!");
    let mut fatal = stranger.handle.fatal();
    let why = tokio::time::timeout(PATIENCE, fatal.wait_for(Option::is_some))
        .await
        .unwrap()
        .unwrap()
        .clone()
        .unwrap();
    assert!(
        why.contains(&seed.to_string())
            && why.contains("start every node with the same --secret-file"),
        "{why}"
    );
    let noted = async {
        loop {
            if let Some(ClusterEvent::Event(logged)) = events.next().await
                && let Event::Note { text } = logged.event
                && text.contains("--secret-file")
            {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, noted).await.unwrap();
    stranger.stop();
    member.stop();
}
