//! Commands about keys: one, several, or all.

use crate::remedy;
use crate::resp::command::All;
use crate::resp::session::pending::gather::GatherSteps;
use crate::resp::session::pending::moves::MemberSteps;
use crate::resp::session::pending::pages::PagesReply;
use crate::resp::session::pending::pops::PopReply;
use crate::resp::session::pending::steps::StepsReply;
use crate::resp::session::pending::sweep::Sweep;
use crate::resp::session::pending::transfer::TransferReply;
use crate::resp::session::replies::Replies;
use crate::resp::session::{Connection, Session};
use crate::resp::{RespContext, cluster, databases};
use bytes::Bytes;
use doyen_engine::command::{Apart, Shape};
use doyen_engine::op::{Action, Failure, Operation};
use doyen_placement::{KeyspaceId, MapId, PartitionId};
use std::rc::Rc;

pub(crate) const OTHER_DATABASE: &str =
    "ERR Copying to another database is not allowed in cluster mode";

impl Session {
    /// A command about one key.
    pub(crate) fn about_key(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        (key, action, shape): (Bytes, Action, Shape),
    ) {
        let action = self.client.touching(action);
        if self.client.leaves_database(&action) {
            return self.replies.answer(|e| e.error(OTHER_DATABASE));
        }
        let about = self.client.about();
        if !self.client.cluster_port
            && are_apart(context, about, (&key, &action))
            && let Some(apart) = action.apart(about.1, &key)
        {
            let at = (connection, context);
            return begin_apart(&mut self.replies, at, about, (apart, shape));
        }
        let mut asker = self.replies.asker(connection, context);
        if let Some(transfer) = action.transfer(about.1) {
            let what = (key, action, shape);
            let (transfer, weight) = TransferReply::ask(&mut asker, about, what, transfer);
            return self.replies.collect(transfer, weight, 0);
        }
        let footprint = action.footprint();
        if let Shape::Fields(part) = shape
            && action.reads_all()
        {
            let mut pages = PagesReply::new(about, key, action.in_pages(), part);
            let elsewhere = pages.ask(&mut asker);
            let expected = self.replies.charges.expects(elsewhere);
            return self.replies.collect(pages, 0, expected);
        }
        let (keyspace, map) = about;
        let (token, elsewhere) = asker.submit(
            0,
            Operation {
                keyspace,
                map,
                key,
                action,
            },
        );
        let expects = elsewhere && footprint.answers_value;
        let expected = self.replies.charges.expects(expects);
        self.replies
            .wait((shape, token), footprint.given.bytes, expected);
    }

    /// A command about all keys, or those of a range.
    pub(crate) fn about_all_keys(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        mut all: All,
    ) {
        // What is read in pages is lost if the map is cleared.
        let reads = matches!(all, All::Clear { .. }) && self.replies.is_paged();
        let subscriptions = &mut self.subscriptions;
        let waits = reads || subscriptions.is_held();
        if waits && subscriptions.waits_for_answers(&self.replies) {
            return;
        }
        let (keyspace, map) = self.client.about();
        let Some(keyspace) = cluster::assigned(context.view(), keyspace) else {
            let text = Shape::Plain.failure(Failure::NoPartition);
            return self.replies.answer(|e| e.error(text));
        };
        if let All::Range(query) = &mut all
            && query.to.is_empty()
        {
            query.to = keyspace.end_from(&query.from).into();
        }
        if let All::Range(query) = &all
            && let Err(why) = keyspace.partitions_within(map, &query.from, &query.to)
        {
            let why = remedy::range_text(&why);
            let text = format!("ERR SCANRANGE: {why}");
            return self.replies.answer(|e| e.error(&text));
        }
        let partitions = &keyspace.partitions;
        let partition = partitions.get(rand::random_range(0..partitions.len().max(1)));
        let partition = partition.map_or(PartitionId(0), |partition| partition.id);
        let (keyspace, own_only) = (keyspace.id, self.client.cluster_port);
        let sweep = match all {
            All::Random => {
                let sweep = Sweep::new(all, keyspace, &[map], own_only);
                sweep.at_random(partition, rand::random())
            }
            All::Clear { databases: true } => {
                Sweep::new(all, keyspace, &databases::all(), own_only)
            }
            all => Sweep::new(all, keyspace, &[map], own_only),
        };
        self.sweep(connection, context, sweep);
    }

    /// Asks all partitions of a sweep.
    pub(crate) fn sweep(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        mut sweep: Sweep,
    ) {
        sweep.ask(&mut self.replies.asker(connection, context));
        self.replies.collect(sweep, 0, 0);
        self.encode_ready();
    }
}

/// Begins the reply of a command on keys of several partitions, which goes in steps.
fn begin_apart(
    replies: &mut Replies,
    (connection, context): (&Rc<Connection>, &mut RespContext),
    about: (KeyspaceId, MapId),
    (apart, shape): (Apart, Shape),
) {
    match apart {
        Apart::Gather(gathering) => {
            let weight = gathering.key_bytes();
            let steps = GatherSteps::new(gathering, shape, context.now());
            let mut asker = replies.asker(connection, context);
            let reply = StepsReply::ask(&mut asker, about, steps);
            replies.collect(reply, weight, 0);
        }
        Apart::Move(moves) => {
            let weight = moves.from.len() + moves.to.len();
            let steps = MemberSteps::new(moves, context.now());
            let mut asker = replies.asker(connection, context);
            let reply = StepsReply::ask(&mut asker, about, steps);
            replies.collect(reply, weight, 0);
        }
        Apart::Pop(pop) => PopReply::begin(replies, (connection, context), about, (pop, false)),
    }
}

/// Whether an operation names keys of several partitions.
fn are_apart(
    context: &RespContext,
    (keyspace, map): (KeyspaceId, MapId),
    (key, action): (&Bytes, &Action),
) -> bool {
    let mut others = action.others(map).peekable();
    if others.peek().is_none() {
        return false;
    }
    let view = context.view();
    let Some(keyspace) = view.and_then(|view| view.installed.keyspace(keyspace)) else {
        return false;
    };
    let first = keyspace.partition_of(map, key);
    others.any(|(map, key)| keyspace.partition_of(map, key) != first)
}
