//! Scripts: `EVAL`, `EVALSHA`, `SCRIPT`.
//!
//! The node that has a script's keys runs it, and is sent its text. So this node must know the
//! text: `EVAL` brings it, and `EVALSHA` finds it where scripts are stored (`resp::scripts`).

use super::running::{Running, Then};
use super::*;
use crate::resp::command::ScriptCommand;
use crate::resp::scripts;
use doyen_engine::op::ScriptCall;
use doyen_scripts::{Interpreter, Script, errors, sha1_hex};

impl Session {
    pub(super) fn about_scripts(
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
                let digests = args.iter_from(2).map(digest_of);
                let running = Running::new(Then::Exists);
                let operations = digests
                    .map(|digest| scripts::about(&digest, Action::Exists).into())
                    .collect();
                self.run_parts(connection, context, running, operations);
            }
            ScriptCommand::Flush => {
                context.door.scripts.clear();
                let all = All::Clear { databases: false };
                let gather = Gather::of_sweep(all, cluster::KEYSPACE, &[scripts::MAP], false);
                self.gather(connection, context, gather);
            }
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
        // The arguments are copied: a slice of them would hold all of the input around it.
        let copied = |at: usize| Bytes::copy_from_slice(args.get(at));
        let key_bytes_max = context.limits().key_bytes_max;
        if (3..3 + keys).any(|at| args.get(at).len() > key_bytes_max) {
            let text = format!("ERR the key is too long: at most {key_bytes_max} bytes");
            return self.refuse(&text.into());
        }
        if self.cluster_port
            && let Err(why) = here(context, (3..3 + keys).map(|at| args.get(at)))
        {
            return self.refuse(&why);
        }
        let digest = if by_digest {
            digest_of(args.get(1))
        } else {
            sha1_hex(args.get(1)).into()
        };
        let known = context.door.scripts.get(&digest, context.now()).cloned();
        let call = ScriptCall {
            keyspace: self.keyspace,
            map: self.map,
            body: match &known {
                Some(body) => body.clone(),
                None if by_digest => Bytes::new(),
                None => copied(1),
            },
            keys: (3..3 + keys).map(copied).collect(),
            args: (3 + keys..args.len()).map(copied).collect(),
            read_only,
            resp3: self.protocol == Protocol::Resp3,
        };
        if known.is_none() && by_digest {
            let find = scripts::about(&digest, Action::Get).into();
            let running = Running::new(Then::Find(digest, Box::new(call)));
            return self.run_parts(connection, context, running, vec![find]);
        }
        if known.is_none() {
            let store = scripts::about(&digest, scripts::evaluated(call.body.clone())).into();
            let (body, now) = (call.body.clone(), context.now());
            context.door.scripts.saw(digest, body, now);
            let running = Running::new(Then::Script);
            return self.run_parts(connection, context, running, vec![call.into(), store]);
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

    /// `SCRIPT LOAD`.
    fn load_script(&mut self, connection: &Rc<Connection>, context: &mut Context, args: Args<'_>) {
        let body = Bytes::copy_from_slice(args.get(2));
        let script = match Script::parse(body.clone()) {
            Ok(script) => script,
            Err(text) => return self.answer(|e| e.error(&text)),
        };
        if let Err(why) = Interpreter::new().compile(&script) {
            return self.answer(|e| e.error(why.text()));
        }
        let digest: scripts::Digest = script.sha1().into();
        let store = scripts::about(&digest, scripts::loaded(body)).into();
        let running = Running::new(Then::Stored(digest));
        self.run_parts(connection, context, running, vec![store]);
    }

    /// The text of a script was looked up: it is run, or there is none.
    pub(super) fn run_found(
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
        context.door.scripts.saw(digest, body, now);
        running.submit(connection, context, (slot, patience), *call);
    }
}

/// The digest that a client wrote, in small letters.
fn digest_of(text: &[u8]) -> scripts::Digest {
    String::from_utf8_lossy(text).to_ascii_lowercase().into()
}

/// What is answered if no script has the digest.
pub(super) const NO_SCRIPT: &str = errors::NO_SCRIPT;
