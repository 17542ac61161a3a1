//! A client's questions about the cluster and the server.

use crate::clock;
use crate::resp::command::{ClusterCommand, ServerCommand, table};
use crate::resp::common::Question;
use crate::resp::encode::{Encoder, Protocol};
use crate::resp::info::{self, InfoNeeds};
use crate::resp::session::Session;
use crate::resp::session::pending::PendingReply;
use crate::resp::session::pending::threads::ThreadsReply;
use crate::resp::{RespContext, cluster, describe, settings};

impl Session {
    /// `INFO` shows the keys of this node, and on the cluster-aware port those of this thread.
    /// `DBSIZE` tells how many the cluster has.
    pub(crate) fn about_server(&mut self, context: &mut RespContext, asked: ServerCommand) {
        match asked {
            ServerCommand::Info(sections) => {
                let needs = info::needs(&sections);
                let asking = ThreadsReply::info(self.client.facts(context, needs), needs, sections);
                self.ask(context, asking);
            }
            ServerCommand::MemoryStats => {
                let asking =
                    ThreadsReply::memory_stats(self.client.facts(context, InfoNeeds::Counts));
                self.ask(context, asking);
            }
            ServerCommand::MemoryDoctor => {
                let asking =
                    ThreadsReply::memory_doctor(self.client.facts(context, InfoNeeds::Counts));
                self.ask(context, asking);
            }
            ServerCommand::ConfigGet(patterns) => {
                let facts = self.client.facts(context, InfoNeeds::Nothing);
                self.replies.answer(|e| {
                    settings::encode(e, &facts, &context.front.common.settings, &patterns)
                });
            }
            ServerCommand::ConfigSet(pairs) => self.configure(context, &pairs),
            ServerCommand::ResetStat => {
                context.reset_counts();
                self.ask(context, ThreadsReply::done(Question::ResetCounts));
            }
            ServerCommand::SlowlogGet(count) => {
                let count = count.min(context.front.common.settings.slow_entries());
                self.ask(
                    context,
                    ThreadsReply::slow(context.front.slow.newest(count), count),
                );
            }
            ServerCommand::SlowlogLen => self.ask(
                context,
                ThreadsReply::slow_length(
                    context.front.slow.len(),
                    context.front.common.settings.slow_entries(),
                ),
            ),
            ServerCommand::SlowlogReset => {
                context.front.slow.clear();
                self.ask(context, ThreadsReply::done(Question::ResetSlow));
            }
            ServerCommand::CommandCount => {
                let count = i64::try_from(table::COMMANDS.commands().count()).unwrap_or(i64::MAX);
                self.replies.answer(|e| e.integer(count));
            }
            ServerCommand::CommandInfo(names) => self
                .replies
                .answer(|e| describe::command_info(e, names.as_deref())),
            ServerCommand::CommandDocs(names) => self
                .replies
                .answer(|e| describe::command_docs(e, names.as_deref())),
            ServerCommand::CommandList(listed) => {
                self.replies.answer(|e| describe::command_list(e, &listed))
            }
            ServerCommand::CommandGetKeys(args) => {
                self.replies.answer(|e| describe::command_keys(e, &args))
            }
            ServerCommand::Help(container) => self.replies.answer(|e| describe::help(e, container)),
            ServerCommand::Acl(asked) => self.about_users(context, asked),
            ServerCommand::Time => {
                let us = clock::unix_us();
                self.replies.answer(|e| {
                    e.array(2);
                    e.bulk((us / 1_000_000).to_string().as_bytes());
                    e.bulk((us % 1_000_000).to_string().as_bytes());
                });
            }
            // No node follows another one as a whole: each partition has its own primary and
            // backups.
            ServerCommand::Role => self.replies.answer(|e| {
                e.array(3);
                e.bulk(b"master");
                e.integer(0);
                e.array(0);
            }),
            // Nothing is saved. Redis answers the start of the process before its first save.
            ServerCommand::LastSave => {
                let began = i64::try_from(
                    self.client
                        .facts(context, InfoNeeds::Nothing)
                        .began_unix_s(),
                )
                .unwrap_or(i64::MAX);
                self.replies.answer(|e| e.integer(began));
            }
            ServerCommand::LolWut => {
                let version = env!("CARGO_PKG_VERSION");
                let text = format!(
                    "The doyen of a circle is its longest-serving member. \
                     Here it coordinates the others.\n\nDoyen ver. {version}\n"
                );
                self.replies.answer(|e| e.text(&text));
            }
            // `Session::run` does that.
            ServerCommand::Monitor => {}
            ServerCommand::LatencyHistogram(names) => {
                let asking =
                    ThreadsReply::latency(self.client.facts(context, InfoNeeds::Counts), names);
                self.ask(context, asking);
            }
            ServerCommand::FunctionStats => self.replies.answer(|e| {
                e.map(2);
                e.bulk(b"running_script");
                e.nil();
                e.bulk(b"engines");
                e.map(0);
            }),
        }
    }

    /// Answers with this thread's part, or once the others have answered theirs. On the
    /// cluster-aware port, each thread is a node and answers for itself.
    pub(crate) fn ask(&mut self, context: &RespContext, mut reply: ThreadsReply) {
        if !self.client.cluster_port {
            reply.ask(context, self.client.id, self.replies.next());
        }
        if reply.is_whole() {
            self.replies.answer(|e| {
                reply.encode(e);
            });
        } else {
            self.replies.collect(reply, 0, 0);
        }
    }
}

/// What `CLUSTER` answers.
pub(crate) fn about_cluster(
    e: &mut Encoder<'_>,
    context: &mut RespContext,
    protocol: Protocol,
    asked: ClusterCommand,
) {
    let me = context.me();
    match asked {
        ClusterCommand::Topology(asked) => {
            let view = context.view().cloned();
            let answers = &mut context.front.topology;
            e.encoded(&answers.answer(view.as_ref(), me, asked, protocol));
        }
        ClusterCommand::Info => e.text(&cluster::info(context.view(), me, context.is_led())),
        ClusterCommand::MyId => e.bulk(cluster::my_id(context.view(), me).as_bytes()),
        ClusterCommand::MyShardId => e.bulk(cluster::my_shard_id(context.view(), me).as_bytes()),
        ClusterCommand::Replicas(of) => cluster::replicas(e, context.view(), me, &of),
        // Members are connected by QUIC. This command is about links of Redis's cluster bus,
        // which does not exist here.
        ClusterCommand::Links => e.array(0),
        ClusterCommand::KeySlot(slot) => e.integer(slot.into()),
    }
}
