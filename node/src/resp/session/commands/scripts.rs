//! Scripts: `EVAL`, `EVALSHA`, `SCRIPT`.
//!
//! The node that has a script's keys runs it, and is sent its text. So this node must know the
//! text: `EVAL` brings it, and `EVALSHA` finds it here, where scripts are stored, or at another
//! member (`resp::scripts`).

use super::super::pending::parts::{Running, Then};
use super::transactions::COMMAND_OVERHEAD;
use super::*;
use crate::resp::command::ScriptCommand;
use crate::resp::scripts;
use doyen_engine::AskedSubscribers;
use doyen_engine::op::ScriptCall;
use doyen_scripts::{errors, sha1_hex};

impl Session {
    pub(in crate::resp::session) fn about_scripts(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
        asked: ScriptCommand,
    ) {
        match asked {
            ScriptCommand::Run {
                by_digest,
                keys,
                read_only,
            } => self.run_script(connection, context, args, (by_digest, keys, read_only)),
            ScriptCommand::Load => self.load_script(connection, context, args),
            ScriptCommand::Exists => {
                let digests: Vec<_> = args.iter_from(2).map(digest_of).collect();
                let weight = digests.len() * (DIGEST_BYTES + COMMAND_OVERHEAD);
                let asked = (self.next(), self.patience(context));
                let mut running = Running::new(Then::Exists(digests));
                Self::ask_for_next(&mut running, connection, context, asked);
                self.expect(State::Running(Box::new(running)), weight, 0);
            }
            ScriptCommand::Flush => {
                context.door.scripts.clear();
                let asked = || Some(AskedSubscribers::ForgetScripts);
                if self.asks_first(connection, context, asked) {
                    return;
                }
                self.waits_no_more();
                // Another member may have told a text before it forgot it.
                context.door.scripts.clear();
                let all = All::Clear { databases: false };
                let gather = Gather::of_sweep(all, cluster::KEYSPACE, &[scripts::MAP], false);
                self.gather(connection, context, gather);
            }
        }
    }

    /// Looks up the next digests of a `SCRIPT EXISTS`, once the outcomes of those before have come:
    /// so many at a time that other clients can wait for them.
    pub(in crate::resp::session) fn ask_for_next(
        running: &mut Running,
        connection: &Rc<Connection>,
        context: &mut Context,
        (slot, patience): (u64, Patience),
    ) {
        for digest in running.asks_next().to_vec() {
            let exists = scripts::about(&digest, Action::Exists);
            running.submit(connection, context, (slot, patience), exists);
        }
    }

    /// `EVAL` and the like.
    fn run_script(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut Context,
        args: Args<'_>,
        (by_digest, keys, read_only): (bool, usize, bool),
    ) {
        if let Err(why) = self.admits_keys(context, args, keys) {
            return self.refuse(&why);
        }
        if args.get(1).len() > doyen_scripts::BODY_BYTES_MAX {
            let why = doyen_scripts::errors::LARGE_BODY;
            return self.answer(|e| e.error(if by_digest { NO_SCRIPT } else { why }));
        }
        let resp3 = self.protocol == Protocol::Resp3;
        let mut call = call_of(self.about(), args, keys, (read_only, resp3));
        call.grants = self.grants(context);
        let digest = if by_digest {
            digest_of(args.get(1))
        } else {
            sha1_hex(args.get(1)).into()
        };
        let now = context.now();
        match context.door.scripts.get(&digest, now) {
            Some(body) => call.body = body,
            None if by_digest => {
                let find = scripts::about(&digest, Action::Get).into();
                call.body = Bytes::new();
                let running = Running::new(Then::Find(digest, Box::new(call)));
                return self.run_parts(connection, context, running, vec![find]);
            }
            None => {
                if let Err(why) = Self::bring(context, &call.body) {
                    return self.answer(|e| e.error(&why));
                }
            }
        }
        let (weight, patience) = (call.bytes(), self.patience(context));
        let (waiter, slot) = (connection.clone(), self.next());
        let (token, elsewhere) = context.submit(call, patience, |read| ReplyWaiter {
            connection: waiter,
            slot,
            part: 0,
            read,
        });
        let expected = if elsewhere { self.expected } else { 0 };
        let shape = Shape::Encoded;
        self.expect(State::Waiting { shape, token }, weight, expected);
    }

    /// Whether this thread answers for so many keys of a script.
    pub(in crate::resp::session) fn admits_keys(
        &self,
        context: &Context,
        args: Args<'_>,
        keys: usize,
    ) -> Result<(), ErrorText> {
        let key_bytes_max = context.limits().key_bytes_max;
        if (3..3 + keys).any(|at| args.get(at).len() > key_bytes_max) {
            return Err(format!("ERR the key is too long: at most {key_bytes_max} bytes").into());
        }
        if self.cluster_port {
            here(context, (3..3 + keys).map(|at| args.get(at)))?;
        }
        Ok(())
    }

    /// A client brought the text of a script, which is kept.
    ///
    /// # Errors
    /// It does not compile.
    pub(in crate::resp::session) fn bring(
        context: &mut Context,
        body: &Bytes,
    ) -> Result<(), String> {
        let digest = context.door.scripts.compiles(body)?;
        let now = context.now();
        context.door.scripts.evaluated(digest, body.clone(), now);
        Ok(())
    }

    /// `SCRIPT LOAD`.
    fn load_script(&mut self, connection: &Rc<Connection>, context: &mut Context, args: Args<'_>) {
        let body = Bytes::copy_from_slice(args.get(2));
        let digest = match context.door.scripts.compiles(&body) {
            Ok(digest) => digest,
            Err(why) => return self.answer(|e| e.error(&why)),
        };
        let store = scripts::about(&digest, scripts::loaded(body.clone())).into();
        let now = context.now();
        context.door.scripts.saw(digest.clone(), body, now);
        let running = Running::new(Then::Stored(digest));
        self.run_parts(connection, context, running, vec![store]);
    }

    /// Texts of scripts were looked up where they are stored, and then asked of the other members.
    /// Takes what is here by now, and asks for the others once.
    pub(in crate::resp::session) fn look_elsewhere(
        running: &mut Running,
        connection: &Rc<Connection>,
        context: &mut Context,
        slot: u64,
    ) {
        let first = running.looks_elsewhere();
        for (at, digest) in running.unknown() {
            let now = context.now();
            if let Some(body) = context.door.scripts.get(&digest, now) {
                running.bring(at, &body);
            } else if first && context.ask_for_script(connection, slot, &digest) {
                running.wait_for_script();
            }
        }
        running.looked_elsewhere = true;
    }

    /// The text of a script was looked up: it is run, or there is none.
    pub(in crate::resp::session) fn run_found(
        running: &mut Running,
        connection: &Rc<Connection>,
        context: &mut Context,
        (slot, patience): (u64, Patience),
    ) {
        let Some((digest, mut call, body)) = running.take_found() else {
            return;
        };
        let body = Bytes::copy_from_slice(&body);
        call.body = body.clone();
        let now = context.now();
        context.door.scripts.found(digest, body, now);
        running.submit(connection, context, (slot, patience), *call);
    }
}

/// The call that `EVAL` or the like asks for. Its text is the first argument.
pub(in crate::resp::session) fn call_of(
    (keyspace, map): (KeyspaceId, MapId),
    args: Args<'_>,
    keys: usize,
    (read_only, resp3): (bool, bool),
) -> ScriptCall {
    // The arguments are copied: a slice of them would hold all of the input around it.
    let copied = |at: usize| Bytes::copy_from_slice(args.get(at));
    ScriptCall {
        keyspace,
        map,
        body: copied(1),
        keys: (3..3 + keys).map(copied).collect(),
        args: (3 + keys..args.len()).map(copied).collect(),
        read_only,
        resp3,
        grants: Bytes::new(),
    }
}

/// The digest that a client wrote, in small letters.
pub(in crate::resp::session) fn digest_of(text: &[u8]) -> scripts::Digest {
    // No script has the empty digest. What has another length is none, and may be too long for a key.
    if text.len() != DIGEST_BYTES || !text.iter().all(u8::is_ascii_hexdigit) {
        return scripts::Digest::default();
    }
    String::from_utf8_lossy(text).to_ascii_lowercase().into()
}

/// A digest is written as 40 hexadecimal digits.
const DIGEST_BYTES: usize = 40;

/// What is answered if no script has the digest.
pub(in crate::resp::session) const NO_SCRIPT: &str = errors::NO_SCRIPT;
