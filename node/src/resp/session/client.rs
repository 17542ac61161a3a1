//! Who the client of a connection is, what it has set, and what it may do.

use super::commands::transactions::CommandQueue;
use super::{NAME_BYTES_MAX, brings_password};
use crate::audit::{Audit, AuditOutcome};
use crate::clock;
use crate::resp::acl::compiled::{Compiled, Home};
use crate::resp::acl::users::Users;
use crate::resp::frame::Args;
use crate::resp::info::{self, InfoNeeds};
use crate::resp::pubsub::{Board, ChannelKind, ChannelNames};
use crate::resp::{RespContext, cluster, databases};
use bytes::Bytes;
use doyen_engine::command::ErrorText;
use doyen_engine::op::Action;
use doyen_gossip::Time;
use doyen_placement::planner::{DEFAULT_KEYSPACE, Refused};
use doyen_placement::{KeyspaceId, MapId};
use std::net::SocketAddr;
use std::sync::Arc;

/// Which connections `CLIENT LIST` shows and `CLIENT KILL` ends: those that match all of these
/// filters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Their numbers.
    pub ids: Option<Vec<u64>>,
    /// Their kind.
    pub kind: Option<ClientKind>,
    /// The client's address, as text.
    pub address: Option<Bytes>,
    /// The address of ours that it came to, as text.
    pub local: Option<Bytes>,
    /// Their least age in seconds.
    pub age_s: Option<u64>,
    /// The name of their user.
    pub user: Option<Bytes>,
}

/// The kinds of connections that Redis knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKind {
    /// Every connection without subscriptions.
    Normal,
    /// It has subscriptions.
    Subscriber,
    /// A replica or a master: there are none.
    Other,
}

/// Why a client waits no more, although it got nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unblocking {
    /// Its time is over, or another client says so.
    Timeout,
    /// Another client wants it to get an error.
    Error,
}

/// What a client library tells about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lib {
    /// Its name.
    Name,
    /// Its version.
    Version,
}

/// Which replies a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mute {
    /// All of them.
    #[default]
    No,
    /// All but the reply to the next command.
    Skip,
    /// None of them.
    All,
}

/// What a client library has told about itself.
#[derive(Debug, Default)]
pub(crate) struct Library {
    pub(crate) name: Bytes,
    pub(crate) version: Bytes,
}

/// Why a keyspace cannot be used, and the error text.
pub(crate) enum Unusable {
    /// The installed table does not have the keyspace.
    Missing(String),
    /// This connection cannot use the keyspace.
    Refused(String),
}

/// A client, as it has introduced itself, and what it has selected.
#[derive(Debug)]
pub(crate) struct SessionClient {
    pub(crate) id: u64,
    /// It came through the cluster-aware port.
    pub(crate) cluster_port: bool,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// When the connection was accepted.
    pub(crate) began: Time,
    pub(crate) authenticated: bool,
    /// Since when the client has not been authenticated.
    pub(crate) stranger_since: Time,
    /// Who the client is: `default` until it authenticates.
    pub(crate) user: Arc<Compiled>,
    /// The user may do everything.
    pub(crate) free: bool,
    pub(crate) name: Bytes,
    pub(crate) library: Option<Box<Library>>,
    /// Which replies the client wants.
    pub(crate) mute: Mute,
    /// Whether its reads are uses of keys, which keep them from eviction.
    pub(crate) touches: bool,
    /// Commands are about this keyspace and this map of it, which is the selected database.
    pub(crate) keyspace: KeyspaceId,
    pub(crate) map: MapId,
}

impl SessionClient {
    pub(crate) fn new(
        id: u64,
        cluster_port: bool,
        (local, peer): (SocketAddr, SocketAddr),
        users: &Users,
        now: Time,
    ) -> Self {
        Self {
            id,
            cluster_port,
            local,
            peer,
            began: now,
            authenticated: users.is_open(),
            stranger_since: now,
            user: users.default().clone(),
            free: users.default().may_all(),
            name: Bytes::new(),
            library: None,
            mute: Mute::No,
            touches: true,
            keyspace: cluster::KEYSPACE,
            map: MapId(0),
        }
    }

    /// `RESET`: it is as it was when it connected.
    pub(crate) fn reset(&mut self, users: &Users, now: Time) {
        let (addresses, began) = ((self.local, self.peer), self.began);
        let library = self.library.take();
        *self = Self {
            began,
            library,
            ..Self::new(self.id, self.cluster_port, addresses, users, now)
        };
    }

    /// The keyspace and the map that commands are about.
    pub(crate) const fn about(&self) -> (KeyspaceId, MapId) {
        (self.keyspace, self.map)
    }

    /// Whether an operation names keys of databases that the port does not have.
    pub(crate) fn leaves_database(&self, action: &Action) -> bool {
        let left = |(map, _)| map != self.map;
        self.cluster_port && action.others(self.map).any(left)
    }

    /// The same action, if its reads are uses of keys.
    pub(crate) fn touching(&self, action: Action) -> Action {
        if self.touches {
            action
        } else {
            action.untouching()
        }
    }

    pub(crate) fn set_user(&mut self, user: Arc<Compiled>) {
        self.free = user.may_all();
        self.user = user;
    }

    /// The client has shown a certificate with this name, which makes it this user, if there is one
    /// that may log in.
    pub(crate) fn recognize(&mut self, context: &RespContext, name: &[u8]) {
        let found = context.front.users.borrow_mut().find(name);
        if let Some(found) = found.filter(|found| found.user().on) {
            self.authenticated = true;
            self.set_user(found);
        }
    }

    /// Where commands work: in the keyspace of the connection, and in the database that it or its
    /// transaction has selected.
    pub(crate) fn home<'a>(
        &self,
        context: &'a RespContext,
        queue: Option<&CommandQueue>,
    ) -> Home<'a> {
        let keyspace = context
            .view()
            .and_then(|v| v.installed.keyspace(self.keyspace));
        Home {
            // A keyspace that was dropped has no keys.
            keyspace: keyspace.map_or("", |k| &k.name),
            database: self.database(queue) as i64,
        }
    }

    /// The same, if the rules of its user name places.
    pub(crate) fn home_if_bound<'a>(
        &self,
        context: &'a RespContext,
        queue: Option<&CommandQueue>,
    ) -> Home<'a> {
        if self.user.is_bound() {
            self.home(context, queue)
        } else {
            Home::ANY
        }
    }

    /// The database that the present command uses.
    pub(crate) fn database(&self, queue: Option<&CommandQueue>) -> usize {
        databases::index(queue.map_or(self.map, CommandQueue::map))
    }

    /// Whether the client may look at the keys of this database of the default keyspace.
    pub(crate) fn may_look_at(&self, database: i64) -> bool {
        let keyspace = DEFAULT_KEYSPACE;
        self.free || self.user.may_look(Home { keyspace, database })
    }

    /// Shows the present command to clients that monitor. Those of strangers are not executed.
    #[cold]
    pub(crate) fn show_to_monitors(
        &self,
        context: &mut RespContext,
        queue: Option<&CommandQueue>,
        args: Args<'_>,
    ) {
        if self.authenticated || brings_password(args) {
            context.show_command((self.database(queue), self.peer), args);
        }
    }

    /// What a script of this client may do.
    pub(crate) fn grants(&self, context: &RespContext, queue: Option<&CommandQueue>) -> Bytes {
        if self.free {
            return Bytes::new();
        }
        self.user.grants(self.home_if_bound(context, queue))
    }

    /// Whether this thread answers for the keys of a script: `keys` of its arguments.
    pub(crate) fn admits_keys(
        &self,
        context: &RespContext,
        args: Args<'_>,
        keys: usize,
    ) -> Result<(), ErrorText> {
        let key_bytes_max = context.limits().key_bytes_max;
        if (3..3 + keys).any(|at| args.get(at).len() > key_bytes_max) {
            return Err(format!("ERR the key is too long: at most {key_bytes_max} bytes").into());
        }
        if self.cluster_port {
            cluster::here(context, (3..3 + keys).map(|at| args.get(at)))?;
        }
        Ok(())
    }

    pub(crate) fn set_name(&mut self, name: &Bytes) -> Result<(), &'static str> {
        if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.");
        }
        // A copy, because a slice would keep the whole read buffer.
        self.name = Bytes::copy_from_slice(name);
        Ok(())
    }

    pub(crate) fn set_library(&mut self, which: Lib, value: &Bytes) -> Result<(), String> {
        if value.len() > NAME_BYTES_MAX || !value.iter().all(u8::is_ascii_graphic) {
            let option = if which == Lib::Name {
                "lib-name"
            } else {
                "lib-ver"
            };
            return Err(format!(
                "ERR {option} cannot contain spaces, newlines or special characters."
            ));
        }
        let library = self.library.get_or_insert_default();
        // A copy, because a slice would keep the whole read buffer.
        let value = Bytes::copy_from_slice(value);
        match which {
            Lib::Name => library.name = value,
            Lib::Version => library.version = value,
        }
        Ok(())
    }

    /// Whether the present command gets no reply.
    pub(crate) fn take_mute(&mut self) -> bool {
        match self.mute {
            Mute::No => false,
            Mute::Skip => {
                self.mute = Mute::No;
                true
            }
            Mute::All => true,
        }
    }

    /// Later commands use this keyspace. Earlier ones keep theirs.
    pub(crate) fn choose_keyspace(
        &mut self,
        context: &RespContext,
        name: &[u8],
    ) -> Result<(), Unusable> {
        if self.cluster_port && name != DEFAULT_KEYSPACE.as_bytes() {
            return Err(Unusable::Refused(
                "ERR this port serves the keyspace `default` only, because it is for cluster-aware \
                 clients: connect to the plain port (--resp) and send CLIENT KEYSPACE there"
                    .into(),
            ));
        }
        let table = context.view().map(|v| &v.installed);
        let table = table.ok_or_else(|| {
            Unusable::Refused(
                "CLUSTERDOWN this node has not joined a cluster yet: try again later".into(),
            )
        })?;
        let wanted = std::str::from_utf8(name)
            .ok()
            .and_then(|name| table.keyspace_named(name));
        let known = || table.keyspaces.iter().map(|k| &k.name);
        let missing = || {
            Unusable::Missing(format!(
                "ERR {}",
                Refused::no_keyspace(&String::from_utf8_lossy(name), known())
            ))
        };
        self.keyspace = wanted.ok_or_else(missing)?.id;
        self.map = MapId(0);
        Ok(())
    }

    /// Whether `CLIENT LIST` shows it and `CLIENT KILL` ends it.
    pub(crate) fn is_chosen(&self, chosen: &Chosen, kind: ClientKind, now: Time) -> bool {
        let is = |text: &Option<Bytes>, address: SocketAddr| {
            text.as_ref()
                .is_none_or(|t| **t == *address.to_string().as_bytes())
        };
        chosen.ids.as_ref().is_none_or(|ids| ids.contains(&self.id))
            && chosen.kind.is_none_or(|wanted| wanted == kind)
            && chosen
                .age_s
                .is_none_or(|least| now.since(self.began).as_secs() >= least)
            && chosen
                .user
                .as_ref()
                .is_none_or(|name| **name == *self.user.name())
            && is(&chosen.address, self.peer)
            && is(&chosen.local, self.local)
    }

    pub(crate) fn audit(&self, context: &mut RespContext, what: &str, outcome: AuditOutcome) {
        context.audit(Audit {
            who: format!("user {}", String::from_utf8_lossy(self.user.name())),
            interface: "resp",
            from: self.peer.ip().to_canonical(),
            what: what.to_owned(),
            outcome,
        });
    }

    /// The names with subscribers that this client may see.
    pub(in crate::resp) fn names<'a>(
        &self,
        context: &'a RespContext,
        board: &'a Board,
    ) -> ChannelNames<'a> {
        if self.cluster_port {
            ChannelNames::Thread(context.front.hub.registry())
        } else {
            board.look()
        }
    }

    /// What `INFO` and the like say about the server that the client is connected to.
    pub(crate) fn facts(&self, context: &RespContext, needs: InfoNeeds) -> info::InfoFacts {
        // On the plain port, the node is one server. On the cluster-aware port, each of its threads
        // is one.
        let (me, memory) = match self.cluster_port {
            true => (context.me(), context.limits().memory_bytes_max),
            false => (
                context.me().member(),
                context.front.common.memory_bytes_max(),
            ),
        };
        let keyspace = context
            .view()
            .and_then(|v| v.installed.keyspace(self.keyspace));
        let common = context.front.common.clone();
        let names = self.names(context, common.board());
        let subscribed = ChannelKind::ALL.map(|kind| names.len(kind) as u64);
        info::InfoFacts {
            subscribed,
            databases_shown: std::array::from_fn(|n| self.may_look_at(n as i64)),
            cluster_port: self.cluster_port,
            process_id: std::process::id(),
            run_id: cluster::node_id(me),
            cluster: context.view().map(|v| v.installed.cluster.to_string()),
            address: self.local.ip(),
            tcp_port: self.local.port(),
            threads: context.threads(),
            unix_us: clock::unix_us(),
            uptime_s: context.now().since(context.started()).as_secs(),
            connections_max: context.front.common.settings.clients_max(),
            memory_bytes_max: u64::try_from(memory).unwrap_or(u64::MAX),
            memory_policy: info::memory_policy(keyspace.map(|k| k.eviction).unwrap_or_default()),
            backups: context.front.backups_least,
            has_password: !context.front.users.borrow().is_open(),
            value_bytes_max: context.limits().value_bytes_max,
            counted: context.counted(needs),
        }
    }
}
