//! A client's questions about its connection, the cluster and the server: everything that touches
//! no key.

use super::*;
use crate::clock;
use crate::resp::acl::DEFAULT;
use crate::resp::info::Needs;
use crate::resp::pubsub::Kind;
use crate::resp::settings;
use doyen_placement::planner::{DEFAULT_KEYSPACE, Refused};

/// Why a keyspace cannot be used, and the error text.
enum Unusable {
    /// The installed table does not have the keyspace.
    Missing(String),
    /// This connection cannot use the keyspace.
    Refused(String),
}

impl Session {
    pub(in crate::resp::session) fn about_connection(
        &mut self,
        connection: &Connection,
        context: &mut Context,
        asked: command::ConnectionCommand,
    ) {
        use command::ConnectionCommand as C;
        match asked {
            C::Ping(text) if self.pings_as_subscriber() => self.answer(|e| {
                e.array(2);
                e.bulk(b"pong");
                e.bulk(text.as_deref().unwrap_or_default());
            }),
            C::Ping(None) => self.answer(|e| e.simple("PONG")),
            C::Ping(Some(text)) | C::Echo(text) => self.answer(|e| e.bulk(&text)),
            C::Hello {
                protocol,
                auth,
                name,
            } => self.hello(context, protocol, auth, name),
            C::Auth { user, password } => {
                let open = context.door.users.borrow().default().user().nopass;
                if user.is_none() && open {
                    let text = "ERR AUTH <password> called without any password configured for the \
                                default user. Are you sure your configuration is correct?";
                    return self.answer(|e| e.error(text));
                }
                let user = user.as_deref().unwrap_or(DEFAULT);
                if self.authenticate(context, user, &password, b"AUTH") {
                    self.answer(|e| e.simple("OK"));
                } else {
                    self.answer(|e| e.error(WRONGPASS));
                }
            }
            C::Accept => self.answer(|e| e.simple("OK")),
            C::Select(index) if self.cluster_port && index != 0 => {
                self.answer(|e| e.error("ERR SELECT is not allowed in cluster mode"))
            }
            C::Select(index) => match databases::map(index) {
                Some(map) => {
                    self.map = map;
                    self.answer(|e| e.simple("OK"));
                }
                None => self.answer(|e| e.error("ERR DB index is out of range")),
            },
            C::Quit => {
                self.answer(|e| e.simple("OK"));
                self.closing = true;
            }
            C::Reset => {
                self.protocol = Protocol::Resp2;
                let users = context.door.users.borrow();
                self.authenticated = users.is_open();
                self.set_user(users.default().clone());
                drop(users);
                self.stranger_since = context.now();
                self.name = Bytes::new();
                self.keyspace = cluster::KEYSPACE;
                (self.mute, self.silent) = (Mute::No, false);
                self.map = MapId(0);
                self.touches = true;
                self.end_transaction();
                self.leave_channels(context);
                self.answer(|e| e.simple("RESET"));
            }
            C::Multi if self.is_queueing() => {
                self.answer(|e| e.error("ERR MULTI calls can not be nested"));
            }
            C::Multi => self.begin_transaction(),
            C::Discard if self.is_queueing() => {
                self.end_transaction();
                self.answer(|e| e.simple("OK"));
            }
            C::Discard => self.answer(|e| e.error("ERR DISCARD without MULTI")),
            C::Unwatch => {
                self.unwatch();
                self.answer(|e| e.simple("OK"));
            }
            // They ask the shard (`Session::run`).
            C::Exec | C::Watch => {}
            C::ClientId => {
                let id = i64::try_from(self.id).unwrap_or(i64::MAX);
                self.answer(|e| e.integer(id));
            }
            C::ClientSetName(name) => match self.set_name(name) {
                Ok(()) => self.answer(|e| e.simple("OK")),
                Err(text) => self.answer(|e| e.error(text)),
            },
            C::ClientGetName if self.name.is_empty() => self.answer(|e| e.nil()),
            C::ClientGetName => {
                let name = self.name.clone();
                self.answer(|e| e.bulk(&name));
            }
            C::ClientKeyspace => {
                let name = context
                    .view()
                    .and_then(|v| v.installed.keyspace(self.keyspace))
                    .map(|k| k.name.as_str());
                match name {
                    Some(name) => self.answer(|e| e.bulk(name.as_bytes())),
                    // The keyspace was dropped, or this node has no table yet.
                    None => self.answer(|e| e.nil()),
                }
            }
            C::ClientUse(name) => match (
                self.choose_keyspace(context, &name),
                std::mem::take(&mut self.looking),
            ) {
                (Ok(()), _) => self.answer(|e| e.simple("OK")),
                // Another member may have made it a moment ago.
                (Err(Unusable::Missing(_)), Looking::No) => {
                    self.looking = Looking::Waits;
                    context.look_for_table(self.id);
                }
                (Err(Unusable::Missing(text) | Unusable::Refused(text)), _) => {
                    self.answer(|e| e.error(&text))
                }
            },
            C::ClientInfo => {
                let line = self.own_line(connection, context.now());
                self.answer(|e| e.text(&line));
            }
            C::ClientList(chosen) => self.list_clients(connection, context, chosen),
            C::ClientKill {
                chosen,
                old_form,
                skip_me,
            } => self.kill_clients(context, chosen, old_form, skip_me),
            C::ClientSetInfo(which, value) => self.set_library(which, &value),
            C::ClientReply(wanted) => self.set_mute(wanted),
            C::ClientTouches(touches) => {
                self.touches = touches;
                self.answer(|e| e.simple("OK"));
            }
            C::ClientPause(pause) => {
                context.pause(pause);
                self.ask(context, Asking::done(Question::Pause(pause)));
            }
            C::ClientUnpause => {
                context.unpause();
                self.ask(context, Asking::done(Question::Unpause));
            }
            C::ClientTrackingInfo => self.answer(|e| {
                e.map(3);
                e.bulk(b"flags");
                e.set(1);
                e.bulk(b"off");
                e.bulk(b"redirect");
                e.integer(-1);
                e.bulk(b"prefixes");
                e.array(0);
            }),
        }
    }

    /// Later commands use this keyspace. Earlier ones keep theirs.
    fn choose_keyspace(&mut self, context: &Context, name: &[u8]) -> Result<(), Unusable> {
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

    fn hello(
        &mut self,
        context: &mut Context,
        protocol: Option<i64>,
        auth: Option<(Bytes, Bytes)>,
        name: Option<Bytes>,
    ) {
        if let Some((user, password)) = auth
            && !self.authenticate(context, &user, &password, b"HELLO")
        {
            return self.answer(|e| e.error(WRONGPASS));
        }
        if !self.authenticated {
            return self.answer(|e| e.error(HELLO_NOAUTH));
        }
        if let Some(Err(text)) = name.map(|name| self.set_name(name)) {
            return self.answer(|e| e.error(text));
        }
        match protocol {
            Some(3) => self.protocol = Protocol::Resp3,
            Some(_) => self.protocol = Protocol::Resp2,
            None => {}
        }
        let version = if self.protocol == Protocol::Resp3 {
            3
        } else {
            2
        };
        let id = i64::try_from(self.id).unwrap_or(i64::MAX);
        let mode: &[u8] = if self.cluster_port {
            b"cluster"
        } else {
            b"standalone"
        };
        self.answer(|e| {
            e.map(7);
            e.bulk(b"server");
            e.bulk(b"redis");
            e.bulk(b"version");
            e.bulk(info::REDIS_VERSION.as_bytes());
            e.bulk(b"proto");
            e.integer(version);
            e.bulk(b"id");
            e.integer(id);
            e.bulk(b"mode");
            e.bulk(mode);
            e.bulk(b"role");
            e.bulk(b"master");
            e.bulk(b"modules");
            e.array(0);
        });
    }

    fn set_name(&mut self, name: Bytes) -> Result<(), &'static str> {
        if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.");
        }
        // A copy, because a slice would keep the whole read buffer.
        self.name = Bytes::copy_from_slice(&name);
        Ok(())
    }

    pub(in crate::resp::session) fn about_cluster(
        &mut self,
        context: &mut Context,
        asked: ClusterCommand,
    ) {
        let me = context.me();
        match asked {
            ClusterCommand::Topology(asked) => {
                let view = context.view().cloned();
                let answers = &mut context.door.topology;
                let reply = answers.answer(view.as_ref(), me, asked, self.protocol);
                self.answer(|e| e.encoded(&reply));
            }
            ClusterCommand::Info => {
                self.answer(|e| e.text(&cluster::info(context.view(), me, context.is_led())))
            }
            ClusterCommand::MyId => {
                self.answer(|e| e.bulk(cluster::my_id(context.view(), me).as_bytes()))
            }
            ClusterCommand::MyShardId => {
                self.answer(|e| e.bulk(cluster::my_shard_id(context.view(), me).as_bytes()))
            }
            ClusterCommand::Replicas(of) => {
                self.answer(|e| cluster::replicas(e, context.view(), me, &of))
            }
            // Members are connected by QUIC. This command is about links of Redis's cluster bus,
            // which does not exist here.
            ClusterCommand::Links => self.answer(|e| e.array(0)),
            ClusterCommand::KeySlot(slot) => self.answer(|e| e.integer(slot.into())),
        }
    }

    pub(in crate::resp::session) fn answer_constant(&mut self, answer: Constant) {
        self.answer(|e| match answer {
            Constant::Ok => e.simple("OK"),
            Constant::Integer(value) => e.integer(value),
            Constant::Array => e.array(0),
            Constant::Map => e.map(0),
            Constant::Bulk(text) => e.bulk(text.as_bytes()),
            Constant::Text(text) => e.text(text),
        });
    }

    /// `INFO` shows the keys of this node, and on the cluster-aware port those of this thread.
    /// `DBSIZE` tells how many the cluster has.
    pub(in crate::resp::session) fn about_server(
        &mut self,
        context: &mut Context,
        asked: ServerCommand,
    ) {
        match asked {
            ServerCommand::Info(sections) => {
                let needs = info::needs(&sections);
                let asking = Asking::info(self.facts(context, needs), needs, sections);
                self.ask(context, asking);
            }
            ServerCommand::MemoryStats => {
                let asking = Asking::memory_stats(self.facts(context, Needs::Counts));
                self.ask(context, asking);
            }
            ServerCommand::MemoryDoctor => {
                let asking = Asking::memory_doctor(self.facts(context, Needs::Counts));
                self.ask(context, asking);
            }
            ServerCommand::ConfigGet(patterns) => {
                let facts = self.facts(context, Needs::Nothing);
                self.answer(|e| {
                    settings::encode(e, &facts, &context.door.common.settings, &patterns)
                });
            }
            ServerCommand::ConfigSet(pairs) => self.configure(context, &pairs),
            ServerCommand::ResetStat => {
                context.reset_counts();
                self.ask(context, Asking::done(Question::ResetCounts));
            }
            ServerCommand::SlowlogGet(count) => {
                let count = count.min(context.door.common.settings.slow_entries());
                self.ask(
                    context,
                    Asking::slow(context.door.slow.newest(count), count),
                );
            }
            ServerCommand::SlowlogLen => self.ask(
                context,
                Asking::slow_length(
                    context.door.slow.len(),
                    context.door.common.settings.slow_entries(),
                ),
            ),
            ServerCommand::SlowlogReset => {
                context.door.slow.clear();
                self.ask(context, Asking::done(Question::ResetSlow));
            }
            ServerCommand::CommandCount => {
                let count = i64::try_from(table::COMMANDS.commands().count()).unwrap_or(i64::MAX);
                self.answer(|e| e.integer(count));
            }
            ServerCommand::CommandInfo(names) => {
                self.answer(|e| describe::command_info(e, names.as_deref()))
            }
            ServerCommand::CommandDocs(names) => {
                self.answer(|e| describe::command_docs(e, names.as_deref()))
            }
            ServerCommand::CommandList(listed) => {
                self.answer(|e| describe::command_list(e, &listed))
            }
            ServerCommand::CommandGetKeys(args) => {
                self.answer(|e| describe::command_keys(e, &args))
            }
            ServerCommand::Help(container) => self.answer(|e| describe::help(e, container)),
            ServerCommand::Acl(asked) => self.about_users(context, asked),
            ServerCommand::Time => {
                let us = clock::unix_us();
                self.answer(|e| {
                    e.array(2);
                    e.bulk((us / 1_000_000).to_string().as_bytes());
                    e.bulk((us % 1_000_000).to_string().as_bytes());
                });
            }
            // No node follows another one as a whole: each partition has its own primary and
            // backups.
            ServerCommand::Role => self.answer(|e| {
                e.array(3);
                e.bulk(b"master");
                e.integer(0);
                e.array(0);
            }),
            // Nothing is saved. Redis answers the start of the process before its first save.
            ServerCommand::LastSave => {
                let began = i64::try_from(self.facts(context, Needs::Nothing).began_unix_s())
                    .unwrap_or(i64::MAX);
                self.answer(|e| e.integer(began));
            }
            ServerCommand::LolWut => {
                let version = env!("CARGO_PKG_VERSION");
                let text = format!(
                    "The doyen of a circle is its longest-serving member. \
                     Here it coordinates the others.\n\nDoyen ver. {version}\n"
                );
                self.answer(|e| e.text(&text));
            }
            // `Session::run` does that.
            ServerCommand::Monitor => {}
            ServerCommand::LatencyHistogram(names) => {
                let asking = Asking::latency(self.facts(context, Needs::Counts), names);
                self.ask(context, asking);
            }
            ServerCommand::FunctionStats => self.answer(|e| {
                e.map(2);
                e.bulk(b"running_script");
                e.nil();
                e.bulk(b"engines");
                e.map(0);
            }),
        }
    }

    pub(in crate::resp::session) fn facts(&self, context: &Context, needs: Needs) -> info::Facts {
        // On the plain port, the node is one server. On the cluster-aware port, each of its threads
        // is one.
        let (me, memory) = match self.cluster_port {
            true => (context.me(), context.limits().memory_bytes_max),
            false => (
                context.me().member(),
                context.door.common.memory_bytes_max(),
            ),
        };
        let keyspace = context
            .view()
            .and_then(|v| v.installed.keyspace(self.keyspace));
        let common = context.door.common.clone();
        let names = self.names(context, common.board());
        let subscribed = Kind::ALL.map(|kind| names.len(kind) as u64);
        info::Facts {
            subscribed,
            databases_shown: std::array::from_fn(|n| self.may_look_at(n as i64)),
            cluster_port: self.cluster_port,
            process_id: std::process::id(),
            run_id: cluster::node_id(me),
            address: self.local.ip(),
            tcp_port: self.local.port(),
            threads: context.threads(),
            unix_us: clock::unix_us(),
            uptime_s: context.now().since(context.started()).as_secs(),
            connections_max: context.door.common.settings.clients_max(),
            memory_bytes_max: u64::try_from(memory).unwrap_or(u64::MAX),
            memory_policy: info::memory_policy(keyspace.map(|k| k.eviction).unwrap_or_default()),
            backups: context.door.backups_least,
            has_password: !context.door.users.borrow().is_open(),
            value_bytes_max: context.limits().value_bytes_max,
            counted: context.counted(needs),
        }
    }
}
