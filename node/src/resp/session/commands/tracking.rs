//! `CLIENT TRACKING`, `CLIENT CACHING` and `CLIENT TRACKINGINFO`, and the keys of commands whose
//! values the client keeps.

use crate::resp::RespContext;
use crate::resp::command::{TrackingOptions, table};
use crate::resp::session::client_tracking::ClientTracking;
use crate::resp::session::held::HeldCause;
use crate::resp::session::{Connection, Session};
use doyen_engine::command::SYNTAX;
use std::rc::Rc;

const NO_TARGET: &str = "ERR The client ID you want redirect to does not exist";
const NOT_TRACKING: &str = "ERR CLIENT CACHING can be called only when the client is in tracking \
    mode with OPTIN or OPTOUT mode enabled";
const NOT_TOLD: &str = "TRYAGAIN this node is not told of the changes of all keys at the moment, so \
    the client could keep values that are stale: send CLIENT TRACKING ON again";

impl Session {
    /// `CLIENT TRACKING ON`. It is answered once this thread hears of all changes.
    pub(super) fn track(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        options: TrackingOptions,
    ) {
        self.subscriptions.take_cause();
        let until = self.subscriptions.take_until();
        let target = options.redirect;
        if target.is_some_and(|id| context.front.common.home_of(id).is_none()) {
            return self.refuse_tracking(NO_TARGET);
        }
        let before = self.subscriptions.tracking();
        let tracking = match ClientTracking::new(before, target, options.mode) {
            Ok(tracking) => tracking,
            Err(why) => return self.refuse_tracking(&why),
        };
        let (now, keyspace) = (context.now(), self.client.keyspace);
        let until = until.unwrap_or(now + context.limits().park);
        if !context.follows(connection, keyspace, until) {
            if now >= until {
                return self.refuse_tracking(NOT_TOLD);
            }
            self.subscriptions.hold(HeldCause::Woken);
            self.subscriptions.state().held.until = Some(until);
            return;
        }
        let client = (self.client.id, connection);
        let prefixes = tracking.prefixes().map(|all| all.iter().cloned().collect());
        context.track(client, keyspace, prefixes);
        self.subscriptions.state().tracking = Some(Box::new(tracking));
        self.replies.answer(|e| e.simple("OK"));
    }

    fn refuse_tracking(&mut self, why: &str) {
        self.replies.answer(|e| e.error(why));
        self.subscriptions.forget_idle(&mut self.replies);
    }

    /// `CLIENT TRACKING OFF`.
    pub(super) fn end_tracking(&mut self, context: &mut RespContext) {
        self.subscriptions.end_tracking(context, self.client.id);
        self.replies.answer(|e| e.simple("OK"));
        self.subscriptions.forget_idle(&mut self.replies);
    }

    /// `CLIENT CACHING`.
    pub(super) fn give_caching(&mut self, wanted: Option<bool>) {
        let given = match (self.subscriptions.tracking_mut(), wanted) {
            (None, _) => Err(NOT_TRACKING),
            (_, None) => Err(SYNTAX),
            (Some(tracking), Some(wanted)) => tracking.give_caching(wanted),
        };
        match given {
            Ok(()) => self.replies.answer(|e| e.simple("OK")),
            Err(why) => self.replies.answer(|e| e.error(why)),
        }
    }

    /// `CLIENT TRACKINGINFO`.
    pub(super) fn describe_tracking(&mut self) {
        let tracking = self.subscriptions.tracking();
        let words = tracking.map_or_else(|| vec!["off"], ClientTracking::words);
        let redirection = tracking.map_or(-1, ClientTracking::redirection);
        let prefixes = tracking.and_then(ClientTracking::prefixes);
        let prefixes: Vec<_> = prefixes.into_iter().flatten().cloned().collect();
        self.replies.answer(|e| {
            e.map(3);
            e.bulk(b"flags");
            e.set(words.len());
            words.iter().for_each(|word| e.bulk(word.as_bytes()));
            e.bulk(b"redirect");
            e.integer(redirection);
            e.bulk(b"prefixes");
            e.array(prefixes.len());
            prefixes.iter().for_each(|prefix| e.bulk(prefix));
        });
    }

    /// The present command may read these keys: if the client keeps their values, it hears when
    /// they change. This comes before the operation, so that no change is missed.
    pub(in crate::resp::session) fn remember_keys<'k>(
        &self,
        context: &mut RespContext,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        let tracking = self.subscriptions.tracking();
        if tracking.is_some_and(ClientTracking::keeps_reads) {
            keys.for_each(|key| context.remember(self.client.id, key));
        }
    }

    /// A command was executed, which `CLIENT CACHING` may have been for. It is for the first one
    /// that is not about clients.
    pub(in crate::resp::session) fn end_caching(&mut self) {
        let number = usize::from(self.replies.command);
        let Some(tracking) = self.subscriptions.tracking_mut() else {
            return;
        };
        let spec = table::COMMANDS.all().get(number);
        let about_clients = spec.is_some_and(|spec| spec.name.starts_with("client"));
        tracking.caching &= about_clients;
    }
}
