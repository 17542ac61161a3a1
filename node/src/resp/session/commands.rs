//! What the commands of a client do, a file for each family.

pub(super) mod clients;
mod connection;
mod keys;
pub(super) mod scripts;
mod server;
pub(super) mod subscriptions;
mod tracking;
pub(super) mod transactions;
pub(super) mod users;

use super::pending::keys::KeysReply;
use super::pending::pops::PopReply;
use super::{Connection, Session};
use crate::remedy;
use crate::resp::command::{
    ClusterCommand, ConnectionCommand, Constant, RespRequest, ServerCommand, table,
};
use crate::resp::encode::Encoder;
use crate::resp::frame::Args;
use crate::resp::{RespContext, cluster};
use doyen_engine::command::{self as data, ErrorText};
use std::rc::Rc;

/// Bytes of the keys of one command at the cluster-aware port, where all keys are hashed before the
/// first operation.
const HASHED_BYTES_MAX: usize = 2 << 20;

/// Begins as Redis's error does, because clients compare it.
const NO_CLUSTER: &str = "ERR This instance has cluster support disabled: \
     cluster-aware clients connect to the port of --resp-cluster";

impl Session {
    /// Whether this client may run this command, and whether this thread answers for its keys.
    pub(super) fn admits(
        &self,
        context: &mut RespContext,
        spec: &table::RespSpec,
        args: Args<'_>,
    ) -> Result<(), ErrorText> {
        if !self.client.authenticated && !spec.has_flag("no_auth") {
            return Err("NOAUTH Authentication required.".into());
        }
        self.may_run(context, spec, &args)?;
        let keys = spec.key_indexes(&args).map(|at| args.get(at));
        let max = context.limits().key_bytes_max;
        if keys.clone().any(|key| key.len() > max) {
            return Err(format!("ERR the key is too long: at most {max} bytes").into());
        }
        if context.is_stopped() && keys.clone().next().is_some() {
            return Err(remedy::STOPPED.into());
        }
        if self.client.cluster_port {
            if keys.clone().map(<[u8]>::len).sum::<usize>() > HASHED_BYTES_MAX {
                return Err(format!(
                    "ERR the keys are too long together: at most {HASHED_BYTES_MAX} bytes; \
                     send fewer keys in one command"
                )
                .into());
            }
            cluster::here(context, keys)?;
        }
        Ok(())
    }

    pub(super) fn run(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
        request: RespRequest,
    ) {
        match request {
            RespRequest::Data(data::ParsedRequest::One { key, action, shape }) => {
                self.about_key(connection, context, (key, action, shape));
            }
            RespRequest::Data(data::ParsedRequest::Many(many)) => {
                let keys = (args.len() - 1) / many.step();
                let (about, touches) = (self.client.about(), self.client.touches);
                let reply = KeysReply::new(about, touches, many, keys);
                self.replies.collect(reply, 0, 0);
                self.replies.ask_further(connection, context, args);
            }
            RespRequest::Data(data::ParsedRequest::Pop(pop)) => {
                let (about, at) = (self.client.about(), (connection, context));
                PopReply::begin(&mut self.replies, at, about, (*pop, true));
            }
            RespRequest::All(all) => self.about_all_keys(connection, context, all),
            RespRequest::Wait => {
                let least = match self.client.keyspace {
                    // Some clients ask this after every write, so it is kept.
                    cluster::KEYSPACE => context.front.backups_least,
                    other => cluster::backups_least(context.view(), other),
                };
                self.replies.answer(|e| e.integer(least));
            }
            RespRequest::Script(asked) => self.about_scripts(connection, context, args, asked),
            RespRequest::Connection(ConnectionCommand::Exec) => {
                self.execute_transaction(connection, context);
            }
            RespRequest::Connection(ConnectionCommand::Watch) => {
                self.watch(connection, context, args)
            }
            RespRequest::Connection(asked) => self.about_connection(context, asked),
            RespRequest::Client(asked) => self.about_client(connection, context, asked),
            // Some clients look for a cluster wherever they connect. The plain port is one server
            // to them, as its replies to HELLO and INFO say.
            RespRequest::Cluster(ClusterCommand::Topology(_)) if !self.client.cluster_port => {
                self.replies.answer(|e| e.error(NO_CLUSTER));
            }
            RespRequest::Cluster(asked) => {
                let protocol = self.replies.protocol;
                self.replies
                    .answer(|e| server::about_cluster(e, context, protocol, asked));
            }
            RespRequest::Server(ServerCommand::Monitor) => self.monitor(connection, context),
            RespRequest::Server(asked) => self.about_server(context, asked),
            RespRequest::PubSub(asked) => {
                self.about_subscriptions(connection, context, args, asked)
            }
            RespRequest::Constant(answer) => self.replies.answer(|e| encode_constant(e, answer)),
        }
    }
}

fn encode_constant(e: &mut Encoder<'_>, answer: Constant) {
    match answer {
        Constant::Ok => e.simple("OK"),
        Constant::Integer(value) => e.integer(value),
        Constant::Array => e.array(0),
        Constant::Map => e.map(0),
        Constant::Bulk(text) => e.bulk(text.as_bytes()),
        Constant::Text(text) => e.text(text),
    }
}
