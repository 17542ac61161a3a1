//! `CLIENT TRACKING`, `CLIENT CACHING`, `CLIENT GETREDIR` and `CLIENT TRACKINGINFO`.

use crate::resp::RespContext;
use crate::resp::command::{TrackingCommand, TrackingOptions};
use crate::resp::session::Connection;
use crate::resp::session::client::SessionClient;
use crate::resp::session::client_tracking::ClientTracking;
use crate::resp::session::held::HeldCause;
use crate::resp::session::replies::Replies;
use crate::resp::session::subscriptions::ClientSubscriptions;
use doyen_engine::command::SYNTAX;
use std::rc::Rc;

const NO_TARGET: &str = "ERR The client ID you want redirect to does not exist";
const NOT_TRACKING: &str = "ERR CLIENT CACHING can be called only when the client is in tracking \
    mode with OPTIN or OPTOUT mode enabled";
const NOT_TOLD: &str = "TRYAGAIN this node is not told of the changes of all keys at the moment, so \
    the client could keep values that are stale: send CLIENT TRACKING ON again";

/// The parts of a session that commands about tracking need.
pub(super) struct TrackingParts<'a> {
    pub(super) connection: &'a Rc<Connection>,
    pub(super) context: &'a mut RespContext,
    pub(super) client: &'a SessionClient,
    pub(super) replies: &'a mut Replies,
    pub(super) subscriptions: &'a mut ClientSubscriptions,
}

impl TrackingParts<'_> {
    pub(super) fn run(mut self, asked: TrackingCommand) {
        match asked {
            TrackingCommand::On(options) => self.track(*options),
            TrackingCommand::Off => {
                let id = self.client.id;
                self.subscriptions.end_tracking(self.context, id);
                self.replies.answer(|e| e.simple("OK"));
            }
            TrackingCommand::Caching(wanted) => self.give_caching(wanted),
            TrackingCommand::Redirection => {
                let tracking = self.subscriptions.tracking();
                let redirection = tracking.map_or(-1, ClientTracking::redirection);
                self.replies.answer(|e| e.integer(redirection));
            }
            TrackingCommand::Info => self.describe(),
        }
        self.subscriptions.forget_idle(self.replies);
    }

    /// It is answered once this thread hears of all changes.
    fn track(&mut self, options: TrackingOptions) {
        self.subscriptions.take_cause();
        let until = self.subscriptions.take_until();
        let target = options.redirect;
        let homes = &self.context.front.common;
        if target.is_some_and(|id| homes.home_of(id).is_none()) {
            return self.replies.answer(|e| e.error(NO_TARGET));
        }
        let before = self.subscriptions.tracking();
        let tracking = match ClientTracking::new(before, options) {
            Ok(tracking) => tracking,
            Err(why) => return self.replies.answer(|e| e.error(&why)),
        };
        let (now, keyspace) = (self.context.now(), self.client.keyspace);
        let until = until.unwrap_or(now + self.context.limits().park);
        if !self.context.follows(self.connection, keyspace, until) {
            if now >= until {
                return self.replies.answer(|e| e.error(NOT_TOLD));
            }
            self.subscriptions.hold(HeldCause::Woken);
            self.subscriptions.state().held.until = Some(until);
            return;
        }
        let client = (self.client.id, self.connection);
        let prefixes = tracking.prefixes().map(|all| all.iter().cloned().collect());
        let how = (prefixes, tracking.no_loop());
        self.context.track(client, keyspace, how);
        self.subscriptions.state().tracking = Some(Box::new(tracking));
        self.replies.answer(|e| e.simple("OK"));
    }

    fn give_caching(&mut self, wanted: Option<bool>) {
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

    fn describe(&mut self) {
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
}
