//! `CLIENT`: the list of connections, how they are ended, and what a client sets for itself.

use super::tracking::TrackingParts;
use crate::resp::command::{ClientCommand, table};
use crate::resp::common::Question;
use crate::resp::encode::Protocol;
use crate::resp::session::client::{Chosen, ClientKind, Mute, Unblocking, Unusable};
use crate::resp::session::client_tracking::ClientTracking;
use crate::resp::session::pending::threads::ThreadsReply;
use crate::resp::session::{Connection, Session};
use crate::resp::{RespContext, databases};
use doyen_gossip::Time;
use std::fmt::Write;
use std::rc::Rc;

const TRACKS: &str = "ERR this client tracks keys of its keyspace: send CLIENT TRACKING OFF before \
    it uses another keyspace";

impl Session {
    pub(crate) fn about_client(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        asked: ClientCommand,
    ) {
        use ClientCommand as C;
        match asked {
            C::Id => {
                let id = i64::try_from(self.client.id).unwrap_or(i64::MAX);
                self.replies.answer(|e| e.integer(id));
            }
            C::SetName(name) => match self.client.set_name(&name) {
                Ok(()) => self.replies.answer(|e| e.simple("OK")),
                Err(text) => self.replies.answer(|e| e.error(text)),
            },
            C::GetName if self.client.name.is_empty() => self.replies.answer(|e| e.nil()),
            C::GetName => {
                let name = self.client.name.clone();
                self.replies.answer(|e| e.bulk(&name));
            }
            C::Keyspace => {
                let name = context
                    .view()
                    .and_then(|v| v.installed.keyspace(self.client.keyspace))
                    .map(|k| k.name.as_str());
                match name {
                    Some(name) => self.replies.answer(|e| e.bulk(name.as_bytes())),
                    // The keyspace was dropped, or this node has no table yet.
                    None => self.replies.answer(|e| e.nil()),
                }
            }
            // The changes of one keyspace come for each client.
            C::Use(_) if self.subscriptions.tracking().is_some() => {
                self.replies.answer(|e| e.error(TRACKS));
            }
            C::Use(name) => match (
                self.client.choose_keyspace(context, &name),
                self.errands.take_looked(),
            ) {
                (Ok(()), _) => self.replies.answer(|e| e.simple("OK")),
                // Another member may have made it a moment ago.
                (Err(Unusable::Missing(_)), false) => {
                    self.errands.await_table(context, self.client.id);
                }
                (Err(Unusable::Missing(text) | Unusable::Refused(text)), _) => {
                    self.replies.answer(|e| e.error(&text))
                }
            },
            C::Info => {
                let line = connection.line(self, context.now());
                self.replies.answer(|e| e.text(&line));
            }
            C::List(chosen) => self.list_clients(connection, context, chosen),
            C::Kill {
                chosen,
                old_form,
                skip_me,
            } => self.kill_clients(context, chosen, old_form, skip_me),
            C::SetInfo(which, value) => match self.client.set_library(which, &value) {
                Ok(()) => self.replies.answer(|e| e.simple("OK")),
                Err(text) => self.replies.answer(|e| e.error(&text)),
            },
            C::Reply(Mute::No) => {
                self.client.mute = Mute::No;
                self.replies.silent = false;
                self.replies.answer(|e| e.simple("OK"));
            }
            // A client that wants no replies has none to skip.
            C::Reply(Mute::Skip) if self.client.mute == Mute::All => {}
            C::Reply(wanted) => self.client.mute = wanted,
            C::Touches(touches) => {
                self.client.touches = touches;
                self.replies.answer(|e| e.simple("OK"));
            }
            C::Pause(pause) => {
                context.pause(pause);
                self.ask(context, ThreadsReply::done(Question::Pause(pause)));
            }
            C::Unpause => {
                context.unpause();
                self.ask(context, ThreadsReply::done(Question::Unpause));
            }
            C::Unblock(id, how) => {
                let woken = u64::from(context.unblock(id, how));
                self.ask(context, ThreadsReply::unblocked(woken, id, how));
            }
            C::Tracking(asked) => {
                let parts = TrackingParts {
                    connection,
                    context,
                    client: &self.client,
                    replies: &mut self.replies,
                    subscriptions: &mut self.subscriptions,
                };
                parts.run(asked);
            }
        }
    }

    fn is_chosen(&self, chosen: &Chosen, now: Time) -> bool {
        let kind = if self.subscriptions.is_subscriber() {
            ClientKind::Subscriber
        } else {
            ClientKind::Normal
        };
        self.client.is_chosen(chosen, kind, now)
    }

    /// The client's line of `CLIENT LIST`. `active_at`: when it last did something. `input`: bytes
    /// of commands that it holds.
    pub(crate) fn line(&self, now: Time, active_at: Time, input: usize) -> String {
        let (id, peer, local) = (self.client.id, self.client.peer, self.client.local);
        let name = String::from_utf8_lossy(&self.client.name);
        let (age, idle) = (
            now.since(self.client.began).as_secs(),
            now.since(active_at).as_secs(),
        );
        let (waiting, output) = (self.replies.len(), self.replies.out.len());
        let [sub, psub, ssub] = self.subscriptions.counts();
        let (held, db) = (
            self.replies.charges.charged(),
            databases::index(self.client.map),
        );
        let all = held + input;
        let command = table::COMMANDS
            .all()
            .get(usize::from(self.replies.command))
            .map_or("NULL", |spec| spec.name);
        let version = if self.replies.protocol == Protocol::Resp3 {
            3
        } else {
            2
        };
        let (multi, watch) = self.transacting.as_ref().map_or((None, 0), |t| t.counts());
        let multi = multi.map_or(-1, |queued| i64::try_from(queued).unwrap_or(i64::MAX));
        let flags = match (self.closing, self.paused) {
            (true, _) => "c",
            _ if multi >= 0 => "x",
            (_, true) => "b",
            _ if self.replies.waits_in_line().is_some() => "b",
            _ if self.subscriptions.is_monitor() => "O",
            _ if self.subscriptions.is_subscriber() => "P",
            _ if !self.client.touches => "T",
            _ if self.subscriptions.tracking().is_some() => "",
            _ => "N",
        };
        let tracking = self.subscriptions.tracking();
        let tracks = tracking.map_or_else(String::new, ClientTracking::letters);
        let redirection = tracking.map_or(-1, ClientTracking::redirection);
        let user = String::from_utf8_lossy(self.client.user.name());
        let mut line = format!(
            "id={id} addr={peer} laddr={local} fd=-1 name={name} age={age} idle={idle} \
             flags={flags}{tracks} db={db} sub={sub} psub={psub} ssub={ssub} multi={multi} watch={watch} qbuf={input} qbuf-free=0 \
             argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl={output} oll={waiting} omem={held} \
             tot-mem={all} events=r cmd={command} user={user} redir={redirection} resp={version}"
        );
        let (lib_name, lib_version) = self
            .client
            .library
            .as_ref()
            .map_or((&b""[..], &b""[..]), |l| (&l.name, &l.version));
        // Writing to a string does not fail.
        let _ = writeln!(
            line,
            " lib-name={} lib-ver={}",
            String::from_utf8_lossy(lib_name),
            String::from_utf8_lossy(lib_version)
        );
        line
    }

    fn list_clients(&mut self, connection: &Connection, context: &RespContext, chosen: Chosen) {
        // This session is borrowed. The others are not.
        let mut lines = context.client_lines(&chosen);
        if self.is_chosen(&chosen, context.now()) {
            lines.push((self.client.id, connection.line(self, context.now())));
        }
        self.ask(context, ThreadsReply::clients(lines, chosen));
    }

    /// Ends connections. This one ends once it is answered.
    fn kill_clients(
        &mut self,
        context: &RespContext,
        chosen: Chosen,
        old_form: bool,
        skip_me: bool,
    ) {
        if let Some(name) = &chosen.user
            && context.front.users.borrow_mut().find(name).is_none()
        {
            let text = format!("ERR No such user '{}'", String::from_utf8_lossy(name));
            return self.replies.answer(|e| e.error(&text));
        }
        let mut killed = context.kill_clients(&chosen);
        if !skip_me && self.is_chosen(&chosen, context.now()) {
            self.closing = true;
            killed += 1;
        }
        self.ask(context, ThreadsReply::killed(killed, chosen, old_form));
    }
}

impl Connection {
    /// The client's line, with what its connection knows.
    fn line(&self, session: &Session, now: Time) -> String {
        session.line(now, self.active_at(), self.input_held.get())
    }
}

impl RespContext {
    /// A line for each of these connections of this thread, except one that is borrowed.
    pub(crate) fn client_lines(&self, chosen: &Chosen) -> Vec<(u64, String)> {
        let lines = self.front.connections.iter().filter_map(|(id, c)| {
            let session = c.session.try_borrow().ok()?;
            session
                .is_chosen(chosen, self.now())
                .then(|| (*id, c.line(&session, self.now())))
        });
        lines.collect()
    }

    /// Ends the wait of a client of this thread. False: it did not wait.
    pub(crate) fn unblock(&mut self, id: u64, how: Unblocking) -> bool {
        let connection = self.front.connections.get(&id).cloned();
        connection.is_some_and(|connection| connection.unblock(self, how))
    }

    /// Ends these connections of this thread, except one that is borrowed. Returns how many there
    /// are.
    pub(crate) fn kill_clients(&self, chosen: &Chosen) -> u64 {
        let is_chosen = |c: &&Rc<Connection>| {
            c.session
                .try_borrow()
                .is_ok_and(|s| s.is_chosen(chosen, self.now()))
        };
        let killed = self
            .front
            .connections
            .values()
            .filter(is_chosen)
            .map(|c| c.end());
        killed.count() as u64
    }
}
