//! The RESP front end of a data thread: what its clients share besides the shard.
//!
//! `server` has the sockets, which are the other half of the front end (see
//! [`crate::data::front`]).

use super::RespContext;
use super::acl::log::DenialReason;
use super::acl::users::Users;
use super::budget::ClientBudget;
use super::cluster;
use super::common::Common;
use super::counts::{CommandCounts, Sampling};
use super::monitor::Monitors;
use super::notices::KeyNotices;
use super::pubsub::hub::Hub;
use super::ready::ReadyClients;
use super::reply_steps::ReplySteps;
use super::scripts::ScriptCache;
use super::server::Clients;
use super::session::pause::ClientPause;
use super::session::{Connection, ReplyWaiter};
use super::slowlog::SlowLog;
use super::timing::CommandTiming;

#[cfg(feature = "console")]
use crate::client_list::ClientList;
use crate::data::front_end::{FrontEnd, FrontEndHalves, FrontEndSlot, HeldBytes, Opener};
use crate::data::{DataStats, FrontEndCounters};
use crate::key_events::KeyEvents;
use crate::log_limit::{A_MINUTE, LogLimit};
use crate::net::identity::ports::Ports;
use doyen_engine::op::Outcome;
use doyen_gossip::Time;
use doyen_gossip::agreement::{AdminReply, View};
use doyen_placement::access::AccessSettings;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often connections without progress are looked for while others want room.
const STALLED_INTERVAL: Duration = Duration::from_secs(1);

/// The settings of the RESP ports.
#[derive(Debug)]
pub(crate) struct RespOptions {
    /// The plain port: the first thread accepts for all.
    pub(crate) plain: Option<TcpListener>,
    /// The cluster-aware ports. To such clients each thread is a node, so each has a port.
    pub(crate) cluster: Vec<Option<TcpListener>>,
    /// TLS, which all clients must speak then.
    pub(crate) tls: Option<Arc<Ports>>,
    /// The password that clients must send first.
    pub(crate) password: Option<String>,
    /// The users of a file; `None`: the table has them.
    pub(crate) users: Option<(PathBuf, AccessSettings)>,
    /// How long clients may take to authenticate; `None`: for ever.
    pub(crate) auth_timeout: Option<Duration>,
    /// How long clients may send nothing; `None`: for ever.
    pub(crate) idle_timeout: Option<Duration>,
    /// How long clients may be silent before the system asks for a sign of life; 0: for ever.
    pub(crate) tcp_keepalive: Duration,
    /// Which messages about keys clients may subscribe to, until one of them changes that.
    pub(crate) key_events: KeyEvents,
    /// Whether transactions with keys in several partitions are refused.
    pub(crate) strict_transactions: bool,
    /// Clients at the same time, of all ports together.
    pub(crate) connections_max: usize,
    /// Memory of all threads together.
    pub(crate) memory_bytes_max: usize,
}

/// The front ends of a node's data threads, one for each cluster-aware port.
pub(crate) fn fronts(options: RespOptions) -> Vec<RespOpener> {
    let common = Arc::new(Common::new(
        options.cluster.len(),
        options.memory_bytes_max,
        options.connections_max,
        (options.idle_timeout, options.tcp_keepalive),
        options.key_events,
        options.users,
    ));
    let mut plain = options.plain;
    let open = |cluster| RespOpener {
        common: common.clone(),
        plain: plain.take(),
        cluster,
        tls: options.tls.clone(),
        password: options.password.clone(),
        auth_timeout: options.auth_timeout,
        strict_transactions: options.strict_transactions,
    };
    options.cluster.into_iter().map(open).collect()
}

/// The settings of one thread's front end.
#[derive(Debug)]
pub(crate) struct RespOpener {
    common: Arc<Common>,
    plain: Option<TcpListener>,
    cluster: Option<TcpListener>,
    tls: Option<Arc<Ports>>,
    password: Option<String>,
    auth_timeout: Option<Duration>,
    strict_transactions: bool,
}

impl Opener for RespOpener {
    type Sockets = Clients;

    fn open(self, place: FrontEndSlot<'_>) -> io::Result<FrontEndHalves<Clients>> {
        let listeners = [(self.plain, false), (self.cluster, true)];
        let listeners = listeners
            .into_iter()
            .filter_map(|(listener, cluster_port)| Some((listener?, cluster_port)))
            .collect();
        let ready = Rc::new(ReadyClients::default());
        let budget = ClientBudget::new(
            place.limits,
            place.threads,
            ready.clone(),
            self.common.spill().clone(),
        );
        let clients = Clients::new(place.registry, listeners, place.token_first, ready)?;
        let users = self.common.users().unwrap_or_default();
        let scripts = ScriptCache::new(self.common.evaluated().clone());
        let front = Resp {
            users: RefCell::new(Users::new(users, self.password)),
            common: self.common,
            connections: BTreeMap::new(),
            provisional: Vec::new(),
            steps: ReplySteps::default(),
            paused: ClientPause::default(),
            hub: Hub::new(place.limits.memory_bytes_max),
            notices: KeyNotices::new(),
            monitors: Monitors::default(),
            draining: false,
            budget: Rc::new(budget),
            stalled_at: Time::ZERO,
            expelled: LogLimit::new(A_MINUTE),
            misread: LogLimit::new(A_MINUTE),
            tls: self.tls,
            auth_timeout: self.auth_timeout,
            strict_transactions: self.strict_transactions,
            backups_least: 0,
            topology: cluster::TopologyCache::default(),
            counters: FrontEndCounters::default(),
            counts: CommandCounts::new(),
            sampling: Sampling::default(),
            timing: CommandTiming::new(),
            slow: SlowLog::default(),
            scripts,
        };
        Ok((clients, front))
    }
}

/// What the RESP clients of one data thread share.
pub(crate) struct Resp {
    pub(super) common: Arc<Common>,
    pub(super) connections: BTreeMap<u64, Rc<Connection>>,
    /// Connections with replies that must not leave before the pass is judged.
    pub(super) provisional: Vec<Rc<Connection>>,
    pub(super) steps: ReplySteps,
    pub(super) paused: ClientPause,
    /// The clients that subscribe to channels.
    pub(super) hub: Hub,
    /// What this thread follows for messages about keys.
    pub(super) notices: KeyNotices,
    /// The clients that see the commands of all clients.
    pub(super) monitors: Monitors,
    /// No more clients are accepted, and those that are connected leave once they are answered.
    pub(super) draining: bool,
    /// The limits on what connections hold together.
    pub(super) budget: Rc<ClientBudget>,
    stalled_at: Time,
    expelled: LogLimit,
    /// The log of clients that send something else than RESP.
    pub(super) misread: LogLimit,
    /// The users. In a cell, because sessions borrow everything else at the same time.
    pub(super) users: RefCell<Users>,
    /// TLS, which all clients must speak then.
    pub(super) tls: Option<Arc<Ports>>,
    /// How long a client may take to authenticate; `None`: for ever.
    pub(super) auth_timeout: Option<Duration>,
    /// Whether transactions with keys in several partitions are refused.
    pub(super) strict_transactions: bool,
    /// The least number of in-sync backups that any partition of `default` has in the view.
    pub(super) backups_least: i64,
    /// What cluster-aware clients learn of the view.
    pub(super) topology: cluster::TopologyCache,
    pub(super) counters: FrontEndCounters,
    /// The clients' activity for `INFO`.
    pub(super) counts: CommandCounts,
    pub(super) sampling: Sampling,
    pub(super) timing: CommandTiming,
    pub(super) slow: SlowLog,
    /// Scripts that clients used lately.
    pub(super) scripts: ScriptCache,
}

impl Resp {
    /// These replies of connections have a next step.
    pub(super) fn goes_on(&mut self, replies: impl IntoIterator<Item = (Rc<Connection>, u64)>) {
        replies.into_iter().for_each(|reply| self.steps.push(reply));
    }
}

impl FrontEnd for Resp {
    type Waiter = ReplyWaiter;

    fn deliver(context: &mut RespContext, token: u64, waiter: ReplyWaiter, outcome: Outcome) {
        let ReplyWaiter {
            connection,
            slot,
            part,
            read,
        } = waiter;
        let at = (context.now(), context.judged());
        let goes_on = connection.deliver(at, (slot, part), token, outcome, read);
        let goes_on = goes_on.then_some((connection, slot));
        context.front.goes_on(goes_on);
    }

    fn settle(context: &mut RespContext, well: bool) {
        let mut connections = std::mem::take(&mut context.front.provisional);
        connections.drain(..).for_each(|c| c.settle(context, well));
        context.front.provisional = connections;
    }

    fn is_provisional(&self) -> bool {
        !self.provisional.is_empty()
    }

    fn step(context: &mut RespContext, work: &mut usize) -> usize {
        context.log_refusals_of_scripts();
        context.show_commands();
        let steps = context.front.steps.len();
        for _ in 0..steps {
            if *work > 0
                && let Some((connection, slot)) = context.front.steps.next()
                && connection.step(context, slot, work)
            {
                context.front.steps.push((connection, slot));
            }
        }
        let untold = context.tell_trackers();
        steps + usize::from(context.hand_out() || untold)
    }

    fn view_changed(&mut self, view: Option<&View>) {
        self.backups_least = cluster::backups_least(view, cluster::KEYSPACE);
        if let Some(view) = view {
            // The accepted table: a change that a client hears of is known to a majority then.
            self.common
                .settings
                .use_events(view.accepted.annex.key_events);
        }
        // A process that is no member for a moment keeps its users.
        let of_table = self.common.users_file().is_none();
        if let Some(view) = view.filter(|_| of_table) {
            self.use_users(&view.installed.access);
        }
    }

    fn looked(&mut self, asked: Vec<u64>) {
        for id in asked {
            if let Some(connection) = self.connections.get(&id) {
                connection.looked();
            }
        }
    }

    fn ran(&mut self, asked: u64, reply: AdminReply) {
        if let Some(connection) = self.connections.get(&asked) {
            connection.ran(reply);
        }
    }

    fn tick(context: &mut RespContext) {
        context.end_pause();
        context.look_at_subscribers();
        context.look_at_tracking();
        context.expel_stalled();
        let now = context.now();
        if context.front.sampling.is_due(now) {
            let memory = context.shard().memory() as u64;
            let Resp {
                counters, sampling, ..
            } = &mut context.front;
            sampling.sample(now, memory, counters);
        }
    }

    fn due(&self) -> Option<Time> {
        if self.steps.len() > 0 {
            // At once.
            return Some(Time::ZERO);
        }
        let due = [self.paused.due(), self.hub.due(), self.notices.due()];
        due.into_iter().flatten().min()
    }

    fn held(&self) -> HeldBytes {
        let (input, answers) = self.budget.held();
        HeldBytes {
            bounded: input + answers,
            other: self.budget.spilled() + self.hub.bytes(),
        }
    }

    fn has_given_back(&self, bytes: usize) -> bool {
        self.budget.has_given_back(bytes)
    }

    fn set_room(&self, now: Time, bytes: usize, over: bool) {
        self.budget.set_room(now, bytes, over);
    }

    fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.steps.is_put_back()
    }

    #[cfg(feature = "console")]
    fn clients(context: &RespContext) -> ClientList {
        context.listed()
    }

    fn add_stats(&self, stats: &mut DataStats) {
        let (input, answers) = self.budget.held();
        stats.connections += self.connections.len() as u64;
        stats.connections_max = self.common.settings.clients_max() as u64;
        stats.front = stats.front.with(&self.counters, u64::saturating_add);
        stats.input_bytes += input as u64;
        stats.answer_bytes += answers as u64;
        stats.spilled_bytes += self.budget.spilled() as u64;
        stats.subscribers += self.hub.clients() as u64;
        stats.subscribers_expelled += self.hub.expelled;
        stats.key_messages_lost += self.notices.lost;
        stats.command_latency.add(&self.timing.latency.counts());
    }
}

impl Resp {
    /// A user may not do something.
    pub(super) fn count_denied(&mut self, reason: DenialReason) {
        let [command, key, channel] = &mut self.counters.denied;
        match reason {
            DenialReason::Command | DenialReason::Keyspace => *command += 1,
            DenialReason::Key => *key += 1,
            DenialReason::Channel => *channel += 1,
            // The wrong passwords of each address are counted elsewhere.
            DenialReason::Auth => {}
        }
    }

    /// Uses these users from now on, for all clients but one whose session is borrowed.
    pub(super) fn use_users(&mut self, access: &Arc<AccessSettings>) {
        let users = self.users.get_mut();
        if users.replace(access) {
            for connection in self.connections.values() {
                connection.use_users(users);
            }
        }
    }
}

impl RespContext {
    /// Disconnects clients that hold much and make no progress while others want room.
    fn expel_stalled(&mut self) {
        let now = self.now();
        let front = &mut self.front;
        if now < front.stalled_at || !front.budget.is_wanted() {
            return;
        }
        front.stalled_at = now + STALLED_INTERVAL;
        let expelled = front
            .connections
            .values()
            .filter(|c| c.expel_if_stalled(now))
            .count();
        front.counters.connections_expelled += expelled as u64;
        if expelled > 0
            && let Some(others) = front.expelled.happened(Instant::now())
        {
            tracing::warn!(
                "{expelled} RESP clients were disconnected, because other clients wait for memory: \
                 each of them held more than 128 KiB of commands or answers and made no progress \
                 for 10 s; let clients read their answers, or raise --memory-max{others}"
            );
        }
    }
}
