//! What a client asks of its connection, of the cluster and of the server: nothing that touches a key.

use super::*;
use crate::config::value::EvictionPolicy;
use doyen_placement::planner::{DEFAULT_KEYSPACE, Refused};

impl Session {
    pub(super) fn about_connection(&mut self, inner: &Inner, asked: command::Connection) {
        use command::Connection as C;
        match asked {
            C::Ping(None) => self.answer(|e| e.simple("PONG")),
            C::Ping(Some(text)) | C::Echo(text) => self.answer(|e| e.bulk(&text)),
            C::Hello { protocol, auth, name } => self.hello(inner, protocol, auth, name),
            C::Auth { user, password } => {
                if user.is_none() && inner.password.is_none() {
                    let text = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";
                    return self.answer(|e| e.error(text));
                }
                if self.authenticate(inner, user.as_deref().unwrap_or(b"default"), &password) {
                    self.answer(|e| e.simple("OK"));
                } else {
                    self.answer(|e| e.error(WRONGPASS));
                }
            }
            C::Select(0) | C::Accept => self.answer(|e| e.simple("OK")),
            C::Select(_) if self.cluster_port => self.answer(|e| e.error("ERR SELECT is not allowed in cluster mode")),
            C::Select(_) => self.answer(|e| e.error("ERR DB index is out of range")),
            C::Quit => {
                self.answer(|e| e.simple("OK"));
                self.closing = true;
            }
            C::Reset => {
                self.protocol = Protocol::Resp2;
                self.authenticated = inner.password.is_none();
                self.name = Bytes::new();
                self.keyspace = cluster::KEYSPACE;
                self.answer(|e| e.simple("RESET"));
            }
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
                let name = inner.view.as_ref().and_then(|v| v.installed.keyspace(self.keyspace)).map(|k| k.name.as_str());
                match name {
                    Some(name) => self.answer(|e| e.bulk(name.as_bytes())),
                    // It was dropped, or this node has no table yet.
                    None => self.answer(|e| e.nil()),
                }
            }
            C::ClientUse(name) => match self.choose_keyspace(inner, &name) {
                Ok(()) => self.answer(|e| e.simple("OK")),
                Err(text) => self.answer(|e| e.error(&text)),
            },
            C::ClientInfo => {
                let line = self.line();
                self.answer(|e| e.text(&line));
            }
            C::ClientList => {
                // This session is borrowed; the others are not.
                let mut lines = inner.client_lines();
                lines.push((self.id, self.line()));
                self.ask(inner, Asking::clients(lines));
            }
        }
    }

    /// Commands that follow are about this keyspace; those before keep theirs.
    fn choose_keyspace(&mut self, inner: &Inner, name: &[u8]) -> Result<(), String> {
        if self.cluster_port && name != DEFAULT_KEYSPACE.as_bytes() {
            return Err(
                "ERR CLIENT KEYSPACE is for the plain port (--resp): slots tell cluster-aware clients where keys of `default` are".into()
            );
        }
        let table = inner.view.as_ref().map(|v| &v.installed).ok_or("CLUSTERDOWN this node knows no cluster yet")?;
        let wanted = std::str::from_utf8(name).ok().and_then(|name| table.keyspace_named(name));
        let known = || table.keyspaces.iter().map(|k| &k.name);
        let missing = || format!("ERR {}", Refused::no_keyspace(&String::from_utf8_lossy(name), known()));
        self.keyspace = wanted.ok_or_else(missing)?.id;
        Ok(())
    }

    fn hello(&mut self, inner: &Inner, protocol: Option<i64>, auth: Option<(Bytes, Bytes)>, name: Option<Bytes>) {
        if let Some((user, password)) = auth
            && !self.authenticate(inner, &user, &password)
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
        let version = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
        let id = i64::try_from(self.id).unwrap_or(i64::MAX);
        let mode: &[u8] = if self.cluster_port { b"cluster" } else { b"standalone" };
        self.answer(|e| {
            e.map(7);
            e.bulk(b"server");
            e.bulk(b"redis");
            e.bulk(b"version");
            e.bulk(describe::REDIS_VERSION.as_bytes());
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

    fn authenticate(&mut self, inner: &Inner, user: &[u8], password: &[u8]) -> bool {
        let right = user == b"default" && inner.password.as_ref().is_none_or(|p| equal_in_constant_time(p.as_bytes(), password));
        self.authenticated |= right;
        right
    }

    fn set_name(&mut self, name: Bytes) -> Result<(), &'static str> {
        if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.");
        }
        // A copy, because a slice would keep the whole read buffer.
        self.name = Bytes::copy_from_slice(&name);
        Ok(())
    }

    pub(super) fn line(&self) -> String {
        let version = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
        let name = String::from_utf8_lossy(&self.name);
        let (id, peer, local, waiting) = (self.id, self.peer, self.local, self.slots.len());
        format!(
            "id={id} addr={peer} laddr={local} fd=-1 name={name} flags=N db=0 oll={waiting} omem={} user=default resp={version}\n",
            self.out.len()
        )
    }

    pub(super) fn about_cluster(&mut self, inner: &Inner, asked: Cluster) {
        let view = inner.view.as_ref();
        match asked {
            Cluster::Slots => self.answer(|e| cluster::slots(e, view)),
            Cluster::Shards => self.answer(|e| cluster::shards(e, view)),
            Cluster::Nodes => self.answer(|e| e.text(&cluster::nodes(view, inner.me))),
            Cluster::Info => self.answer(|e| e.text(&cluster::info(view, inner.is_led()))),
            Cluster::MyId => self.answer(|e| e.bulk(cluster::node_id(inner.me).as_bytes())),
            Cluster::KeySlot(slot) => self.answer(|e| e.integer(slot.into())),
        }
    }

    /// `INFO` shows what this node holds, on the cluster-aware port what this thread of it does; how many keys the cluster has takes
    /// `DBSIZE`.
    pub(super) fn about_server(&mut self, inner: &Inner, asked: Server) {
        match asked {
            Server::Info(sections) => {
                let asking = Asking::info(self.facts(inner), sections);
                self.ask(inner, asking);
            }
            Server::ConfigGet(patterns) => {
                let facts = self.facts(inner);
                self.answer(|e| describe::config(e, &facts, &patterns));
            }
            Server::CommandCount => {
                let count = i64::try_from(command::table::all().len()).unwrap_or(i64::MAX);
                self.answer(|e| e.integer(count));
            }
            Server::CommandInfo(names) => self.answer(|e| describe::command_info(e, names.as_deref())),
            Server::CommandDocs(names) => self.answer(|e| describe::command_docs(e, names.as_deref())),
            Server::CommandList => self.answer(describe::command_list),
            Server::CommandGetKeys(args) => self.answer(|e| describe::command_keys(e, &args)),
        }
    }

    fn facts(&self, inner: &Inner) -> describe::Facts {
        // On the plain port a node is one server, on the other one each of its threads is.
        let (me, memory) = match self.cluster_port {
            true => (inner.me, inner.limits.memory_bytes_max),
            false => (inner.me.member(), inner.crew.memory_bytes_max()),
        };
        let keyspace = inner.view.as_ref().and_then(|v| v.installed.keyspace(self.keyspace));
        describe::Facts {
            cluster_port: self.cluster_port,
            process_id: std::process::id(),
            run_id: cluster::node_id(me),
            tcp_port: self.local.port(),
            uptime_s: inner.now.since(inner.started).as_secs(),
            connections_max: inner.connections_max,
            memory_bytes_max: u64::try_from(memory).unwrap_or(u64::MAX),
            process_memory: inner.crew.process_memory(),
            memory_policy: EvictionPolicy(keyspace.map(|k| k.eviction).unwrap_or_default()).in_redis(),
            backups: inner.backups_least,
            has_password: inner.password.is_some(),
            value_bytes_max: inner.limits.value_bytes_max,
            counted: inner.counted(),
        }
    }
}
