//! Scripts: `EVAL`, `EVALSHA`, `SCRIPT`.
//!
//! The node that has a script's keys runs it, and is sent its text. So this node must know the
//! text: `EVAL` brings it, and `EVALSHA` finds it here, where scripts are stored, or at another
//! member (`resp::scripts`).

use super::transactions::COMMAND_OVERHEAD;
use crate::resp::command::{All, ScriptCommand};
use crate::resp::encode::Protocol;
use crate::resp::frame::Args;
use crate::resp::session::pending::parts::{PartsPurpose, PartsReply};
use crate::resp::session::pending::sweep::Sweep;
use crate::resp::session::{Connection, Session};
use crate::resp::{RespContext, cluster, scripts};
use bytes::Bytes;
use doyen_engine::AskedSubscribers;
use doyen_engine::command::Shape;
use doyen_engine::op::{Action, ScriptCall};
use doyen_placement::{KeyspaceId, MapId};
use doyen_scripts::{errors, sha1_hex};
use std::rc::Rc;

impl Session {
    pub(crate) fn about_scripts(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
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
                let mut parts = PartsReply::new(PartsPurpose::Exists(digests));
                parts.ask_for_next(&mut self.replies.asker(connection, context));
                self.replies.collect(parts, weight, 0);
            }
            ScriptCommand::Flush => {
                context.front.scripts.clear();
                let asked = || Some(AskedSubscribers::ForgetScripts);
                if self.subscriptions.asks_first(connection, context, asked) {
                    return;
                }
                self.subscriptions.end_command(&mut self.replies);
                // Another member may have told a text before it forgot it.
                context.front.scripts.clear();
                let all = All::Clear { databases: false };
                let sweep = Sweep::new(all, cluster::KEYSPACE, &[scripts::MAP], false);
                self.sweep(connection, context, sweep);
            }
        }
    }

    /// `EVAL` and the like.
    fn run_script(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
        (by_digest, keys, read_only): (bool, usize, bool),
    ) {
        if let Err(why) = self.client.admits_keys(context, args, keys) {
            return self.replies.refuse(&why);
        }
        if args.get(1).len() > doyen_scripts::BODY_BYTES_MAX {
            let why = doyen_scripts::errors::LARGE_BODY;
            return self
                .replies
                .answer(|e| e.error(if by_digest { NO_SCRIPT } else { why }));
        }
        // It may read any of them.
        let names = (3..3 + keys).map(|at| args.get(at));
        let subscriptions = &self.subscriptions;
        subscriptions.remember_keys(context, self.client.id, names);
        let resp3 = self.replies.protocol == Protocol::Resp3;
        let mut call = call_of(self.client.about(), args, keys, (read_only, resp3));
        call.grants = self.client.grants(context, self.queue());
        let digest = if by_digest {
            digest_of(args.get(1))
        } else {
            sha1_hex(args.get(1)).into()
        };
        let now = context.now();
        match context.front.scripts.get(&digest, now) {
            Some(body) => call.body = body,
            None if by_digest => {
                let find = scripts::about(&digest, Action::Get).into();
                call.body = Bytes::new();
                let mut parts = PartsReply::new(PartsPurpose::Find(digest, Box::new(call)));
                let mut asker = self.replies.asker(connection, context);
                let weight = parts.submit_all(&mut asker, vec![find]);
                return self.replies.collect(parts, weight, 0);
            }
            None => {
                if let Err(why) = bring(context, &call.body) {
                    return self.replies.answer(|e| e.error(&why));
                }
            }
        }
        let weight = call.bytes();
        let mut asker = self.replies.asker(connection, context);
        let (token, elsewhere) = asker.submit(0, call);
        let expected = self.replies.charges.expects(elsewhere);
        self.replies.wait((Shape::Encoded, token), weight, expected);
    }

    /// `SCRIPT LOAD`.
    fn load_script(
        &mut self,
        connection: &Rc<Connection>,
        context: &mut RespContext,
        args: Args<'_>,
    ) {
        let body = Bytes::copy_from_slice(args.get(2));
        let digest = match context.front.scripts.compiles(&body) {
            Ok(digest) => digest,
            Err(why) => return self.replies.answer(|e| e.error(&why)),
        };
        let store = scripts::about(&digest, scripts::loaded(body.clone())).into();
        let now = context.now();
        context.front.scripts.saw(digest.clone(), body, now);
        let mut parts = PartsReply::new(PartsPurpose::Stored(digest));
        let mut asker = self.replies.asker(connection, context);
        let weight = parts.submit_all(&mut asker, vec![store]);
        self.replies.collect(parts, weight, 0);
    }
}

/// A client brought the text of a script, which is kept.
///
/// # Errors
/// It does not compile.
pub(crate) fn bring(context: &mut RespContext, body: &Bytes) -> Result<(), String> {
    let digest = context.front.scripts.compiles(body)?;
    let now = context.now();
    context.front.scripts.evaluated(digest, body.clone(), now);
    Ok(())
}

/// The call that `EVAL` or the like asks for. Its text is the first argument.
pub(crate) fn call_of(
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
pub(crate) fn digest_of(text: &[u8]) -> scripts::ScriptDigest {
    // No script has the empty digest. What has another length is none, and may be too long for a
    // key.
    if text.len() != DIGEST_BYTES || !text.iter().all(u8::is_ascii_hexdigit) {
        return scripts::ScriptDigest::default();
    }
    String::from_utf8_lossy(text).to_ascii_lowercase().into()
}

/// A digest is written as 40 hexadecimal digits.
const DIGEST_BYTES: usize = 40;

/// What is answered if no script has the digest.
pub(crate) const NO_SCRIPT: &str = errors::NO_SCRIPT;
