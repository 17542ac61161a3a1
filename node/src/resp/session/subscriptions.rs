//! What a client subscribes to, and what its present command waits for. Few connections have
//! either.

use super::client_tracking::ClientTracking;
use super::connection::Connection;
use super::held::{HeldCause, HeldCommand};
use super::replies::Replies;
use crate::resp::RespContext;
use crate::resp::command::table;
use crate::resp::encode::Protocol;
use crate::resp::pubsub::ChannelKind;
use bytes::Bytes;
use doyen_engine::command::ErrorText;
use doyen_engine::{AskedSubscribers, CountedReceivers};
use doyen_gossip::Time;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The subscriptions of a client, if it has any, or if pushes or its present command wait.
#[derive(Debug, Default)]
pub(crate) struct ClientSubscriptions(Option<Box<Subscribing>>);

/// The state of a client that has subscriptions, or for which pushes wait, or whose command waits.
#[derive(Debug, Default)]
pub(crate) struct Subscribing {
    /// The names, by kind.
    pub(crate) names: [BTreeSet<Bytes>; 3],
    /// It sees the commands of all clients.
    pub(crate) monitors: bool,
    /// It keeps values, and hears which keys change.
    pub(crate) tracking: Option<Box<ClientTracking>>,
    /// What its present command waits for.
    pub(crate) held: HeldCommand,
}

impl Subscribing {
    /// How many subscriptions of these kinds count together.
    pub(crate) fn count(&self, kind: ChannelKind) -> usize {
        let len = |kind: ChannelKind| self.names[kind.at()].len();
        match kind {
            ChannelKind::Shard => len(ChannelKind::Shard),
            ChannelKind::Channel | ChannelKind::Pattern => {
                len(ChannelKind::Channel) + len(ChannelKind::Pattern)
            }
        }
    }

    pub(crate) fn is_subscriber(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }
}

impl ClientSubscriptions {
    /// Whether there is no such state.
    #[inline]
    pub(crate) const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The state, which begins if there is none.
    pub(crate) fn state(&mut self) -> &mut Subscribing {
        self.0.get_or_insert_default()
    }

    /// Whether the client has subscriptions.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.0.as_ref().is_some_and(|s| s.is_subscriber())
    }

    /// Whether the client sees the commands of all clients.
    pub(crate) fn is_monitor(&self) -> bool {
        self.0.as_ref().is_some_and(|s| s.monitors)
    }

    /// How the client tracks keys, if it does.
    pub(crate) fn tracking(&self) -> Option<&ClientTracking> {
        self.0.as_ref()?.tracking.as_deref()
    }

    /// The same, to change it.
    pub(crate) fn tracking_mut(&mut self) -> Option<&mut ClientTracking> {
        self.0.as_mut()?.tracking.as_deref_mut()
    }

    /// The present command may read these keys: if the client keeps their values, it hears when
    /// they change. This comes before the operation, so that no change is missed.
    pub(crate) fn remember_keys<'k>(
        &self,
        context: &mut RespContext,
        connection: u64,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        if self.tracking().is_some_and(ClientTracking::keeps_reads) {
            keys.for_each(|key| context.remember(connection, key));
        }
    }

    /// This command was executed, which `CLIENT CACHING` may have been for. It is for the first one
    /// that is not about clients.
    pub(crate) fn end_caching(&mut self, command: u16) {
        let Some(tracking) = self.tracking_mut() else {
            return;
        };
        let spec = table::COMMANDS.all().get(usize::from(command));
        tracking.caching &= spec.is_some_and(|spec| spec.name.starts_with("client"));
    }

    /// The client tracks no keys any more.
    pub(crate) fn end_tracking(&mut self, context: &mut RespContext, connection: u64) {
        let tracking = self.0.as_mut().and_then(|state| state.tracking.take());
        if tracking.is_some() {
            context.front.hub.tracking.end(connection);
        }
    }

    /// How many subscriptions there are of each kind.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let all = self.0.as_ref().map(|s| &s.names);
        all.map_or([0; 3], |names| {
            ChannelKind::ALL.map(|kind| names[kind.at()].len())
        })
    }

    /// What the client subscribes to, of this kind.
    pub(crate) fn names(&self, kind: ChannelKind) -> impl Iterator<Item = &Bytes> {
        let names = self.0.as_ref().map(|s| &s.names[kind.at()]);
        names.into_iter().flatten()
    }

    /// Whether the present command is to be run again.
    pub(crate) fn is_held(&self) -> bool {
        self.0.as_ref().is_some_and(|s| s.held.is_held())
    }

    /// Whether the present command waits for something.
    pub(crate) fn waits(&self, replies: &Replies) -> bool {
        let waits = |s: &Subscribing| s.held.waits(replies.is_settled());
        self.0.as_deref().is_some_and(waits)
    }

    /// The present command is run again for this cause.
    pub(crate) fn hold(&mut self, cause: HeldCause) {
        self.state().held.hold(cause);
    }

    /// The present command is run. Returns why it was held.
    pub(crate) fn take_cause(&mut self) -> HeldCause {
        self.0.as_mut().map_or(HeldCause::No, |s| s.held.take())
    }

    /// What a command waited for is over. False: none waited.
    pub(crate) fn wake(&mut self) -> bool {
        self.0.as_mut().is_some_and(|s| s.held.wake())
    }

    /// The other members have answered.
    pub(crate) fn count(&mut self, counted: CountedReceivers) {
        if let Some(state) = &mut self.0 {
            state.held.count(counted);
        }
    }

    /// What other members answered to the question of the present command.
    pub(crate) fn take_counted(&mut self) -> CountedReceivers {
        let counted = self.0.as_mut().map(|s| s.held.take_counted());
        counted.unwrap_or_default()
    }

    /// How long the present command waits until this thread gets all changes of keys.
    pub(crate) fn take_until(&mut self) -> Option<Time> {
        self.0.as_mut().and_then(|s| s.held.until.take())
    }

    /// Lets the present command wait until the replies to all earlier commands are in the output.
    /// False: they are.
    pub(crate) fn waits_for_answers(&mut self, replies: &Replies) -> bool {
        self.take_cause();
        let waits = !replies.is_settled();
        if waits {
            self.hold(HeldCause::Answers);
        }
        waits
    }

    /// Asks the other members before the present command is executed. True: it is run again with
    /// the answer.
    pub(crate) fn asks_first(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        asked: impl FnOnce() -> Option<AskedSubscribers>,
    ) -> bool {
        if let HeldCause::Ready = self.take_cause() {
            return false;
        }
        self.take_counted();
        let asks = asked().is_some_and(|asked| context.ask_members(connection, None, asked));
        if asks {
            self.hold(HeldCause::Woken);
        }
        asks
    }

    /// The present command is not run again.
    pub(crate) fn end_command(&mut self, replies: &mut Replies) {
        if let Some(state) = &mut self.0 {
            state.held = HeldCommand::default();
        }
        self.forget_idle(replies);
    }

    /// A subscriber cannot tell messages and replies of RESP2 apart, so it may run few commands.
    pub(crate) fn admits(
        &self,
        protocol: Protocol,
        spec: &table::RespSpec,
    ) -> Result<(), ErrorText> {
        let allowed = matches!(
            spec.name,
            "subscribe"
                | "unsubscribe"
                | "psubscribe"
                | "punsubscribe"
                | "ssubscribe"
                | "sunsubscribe"
                | "ping"
                | "quit"
                | "reset"
        );
        if allowed || protocol == Protocol::Resp3 || !self.is_subscriber() {
            return Ok(());
        }
        Err(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
             are allowed in this context",
            spec.name
        )
        .into())
    }

    /// All subscriptions of the connection with this number end, and what it tracks.
    pub(crate) fn leave(&mut self, context: &mut RespContext, connection: u64) {
        self.end_tracking(context, connection);
        let Some(state) = &mut self.0 else {
            return;
        };
        if std::mem::take(&mut state.monitors) {
            context.end_monitor(connection);
        }
        if state.is_subscriber() {
            let names = std::mem::take(&mut state.names);
            let (common, now) = (context.front.common.clone(), context.now());
            let hub = &mut context.front.hub;
            hub.leave(common.board(), now, connection, names);
        }
    }

    /// Frees the state of a client that does not need it any more.
    pub(crate) fn forget_idle(&mut self, replies: &mut Replies) {
        let idle = replies.has_no_pushes();
        let is_idle = |s: &Subscribing| {
            !s.is_subscriber() && !s.monitors && s.tracking.is_none() && s.held.is_empty()
        };
        let forgotten = self.0.take_if(|s| idle && is_idle(s));
        if forgotten.is_some() {
            replies.forget_pushes();
        }
    }
}
