//! `CLIENT`: the list of connections, and how they are ended.

use super::*;
use std::fmt::Write;

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
pub(in crate::resp::session) struct Library {
    pub(in crate::resp::session) name: Bytes,
    pub(in crate::resp::session) version: Bytes,
}

impl Session {
    fn is_chosen(&self, chosen: &Chosen, now: Time) -> bool {
        let is = |text: &Option<Bytes>, address: SocketAddr| {
            text.as_ref()
                .is_none_or(|t| **t == *address.to_string().as_bytes())
        };
        chosen.ids.as_ref().is_none_or(|ids| ids.contains(&self.id))
            && chosen.kind.is_none_or(|kind| kind == self.kind())
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

    fn kind(&self) -> ClientKind {
        match self.subscriptions() {
            Some(_) => ClientKind::Subscriber,
            None => ClientKind::Normal,
        }
    }

    /// The client's line of `CLIENT LIST`. `active_at`: when it last did something. `input`: bytes of
    /// commands that it holds.
    pub(in crate::resp::session) fn line(
        &self,
        now: Time,
        active_at: Time,
        input: usize,
    ) -> String {
        let (id, peer, local) = (self.id, self.peer, self.local);
        let name = String::from_utf8_lossy(&self.name);
        let (age, idle) = (
            now.since(self.began).as_secs(),
            now.since(active_at).as_secs(),
        );
        let (waiting, output) = (self.slots.len(), self.out.len());
        let [sub, psub, ssub] = self.subscriptions().unwrap_or_default();
        let (held, db) = (self.charged, databases::index(self.map));
        let all = held + input;
        let command = table::COMMANDS
            .all()
            .get(usize::from(self.command))
            .map_or("NULL", |spec| spec.name);
        let version = if self.protocol == Protocol::Resp3 {
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
            _ if self.is_monitor() => "O",
            _ if self.kind() == ClientKind::Subscriber => "P",
            _ if !self.touches => "T",
            _ => "N",
        };
        let user = String::from_utf8_lossy(self.user.name());
        let mut line = format!(
            "id={id} addr={peer} laddr={local} fd=-1 name={name} age={age} idle={idle} \
             flags={flags} db={db} sub={sub} psub={psub} ssub={ssub} multi={multi} watch={watch} qbuf={input} qbuf-free=0 \
             argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl={output} oll={waiting} omem={held} \
             tot-mem={all} events=r cmd={command} user={user} redir=-1 resp={version}"
        );
        let (lib_name, lib_version) = self
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

    /// The client's line, with what its connection knows.
    pub(in crate::resp::session) fn own_line(&self, connection: &Connection, now: Time) -> String {
        self.line(now, connection.active_at(), connection.input_held.get())
    }

    pub(in crate::resp::session) fn set_library(&mut self, which: Lib, value: &Bytes) {
        if value.len() > NAME_BYTES_MAX || !value.iter().all(u8::is_ascii_graphic) {
            let option = if which == Lib::Name {
                "lib-name"
            } else {
                "lib-ver"
            };
            return self.answer(|e| {
                e.error(&format!(
                    "ERR {option} cannot contain spaces, newlines or special characters."
                ))
            });
        }
        let library = self.library.get_or_insert_default();
        // A copy, because a slice would keep the whole read buffer.
        let value = Bytes::copy_from_slice(value);
        match which {
            Lib::Name => library.name = value,
            Lib::Version => library.version = value,
        }
        self.answer(|e| e.simple("OK"));
    }

    pub(in crate::resp::session) fn list_clients(
        &mut self,
        connection: &Connection,
        context: &Context,
        chosen: Chosen,
    ) {
        // This session is borrowed. The others are not.
        let mut lines = context.client_lines(&chosen);
        if self.is_chosen(&chosen, context.now()) {
            lines.push((self.id, self.own_line(connection, context.now())));
        }
        self.ask(context, Asking::clients(lines, chosen));
    }

    /// Ends connections. This one ends once it is answered.
    pub(in crate::resp::session) fn kill_clients(
        &mut self,
        context: &Context,
        chosen: Chosen,
        old_form: bool,
        skip_me: bool,
    ) {
        if let Some(name) = &chosen.user
            && context.door.users.borrow_mut().find(name).is_none()
        {
            let text = format!("ERR No such user '{}'", String::from_utf8_lossy(name));
            return self.answer(|e| e.error(&text));
        }
        let mut killed = context.kill_clients(&chosen);
        if !skip_me && self.is_chosen(&chosen, context.now()) {
            self.closing = true;
            killed += 1;
        }
        self.ask(context, Asking::killed(killed, chosen, old_form));
    }

    pub(in crate::resp::session) fn set_mute(&mut self, wanted: Mute) {
        match wanted {
            Mute::No => {
                self.mute = Mute::No;
                self.silent = false;
                self.answer(|e| e.simple("OK"));
            }
            // A client that wants no replies has none to skip.
            Mute::Skip if self.mute == Mute::All => {}
            Mute::Skip | Mute::All => self.mute = wanted,
        }
    }

    /// Whether the present command gets no reply.
    pub(in crate::resp::session) fn take_mute(&mut self) -> bool {
        match self.mute {
            Mute::No => false,
            Mute::Skip => {
                self.mute = Mute::No;
                true
            }
            Mute::All => true,
        }
    }
}

impl Context {
    /// A line for each of these connections of this thread, except one that is borrowed.
    pub(crate) fn client_lines(&self, chosen: &Chosen) -> Vec<(u64, String)> {
        let lines = self.door.connections.iter().filter_map(|(id, c)| {
            let session = c.session.try_borrow().ok()?;
            session
                .is_chosen(chosen, self.now())
                .then(|| (*id, session.own_line(c, self.now())))
        });
        lines.collect()
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
            .door
            .connections
            .values()
            .filter(is_chosen)
            .map(|c| c.end());
        killed.count() as u64
    }
}
