//! `CLIENT`: what a client asks about its own connection and the connections of others.

use super::table::Spec;
use super::{
    ConnectionCommand, ErrorText, NOT_AN_INTEGER, Request, SYNTAX, constant, is, wrong_arguments,
};
use crate::resp::frame::{Args, integer};
use crate::resp::session::client::{Chosen, ClientKind, Lib, Mute};
use crate::resp::session::pause::Pause;
use bytes::Bytes;
use std::time::Duration;

/// Longest pause. A longer one can only be a mistake, and its deadline could not be computed.
const PAUSE_MS_MAX: i64 = i64::MAX / 1_000_000 / 2;
/// Most clients that one command may name by their ids.
const IDS_MAX: usize = 1024;

pub(super) fn parse(spec: &Spec, args: Args<'_>) -> Result<Request, ErrorText> {
    let on = |at: usize| match args.get(at) {
        word if is(word, "on") => Some(true),
        word if is(word, "off") => Some(false),
        _ => None,
    };
    let subcommand = spec.name.strip_prefix("client|").unwrap_or_default();
    Ok(Request::Connection(match subcommand {
        "id" => ConnectionCommand::ClientId,
        "info" => ConnectionCommand::ClientInfo,
        "list" => list(args)?,
        "kill" => kill(args)?,
        "getname" => ConnectionCommand::ClientGetName,
        "setname" => ConnectionCommand::ClientSetName(args.bytes(2)),
        "setinfo" if is(args.get(2), "lib-name") => {
            ConnectionCommand::ClientSetInfo(Lib::Name, args.bytes(3))
        }
        "setinfo" if is(args.get(2), "lib-ver") => {
            ConnectionCommand::ClientSetInfo(Lib::Version, args.bytes(3))
        }
        "setinfo" => {
            return Err(format!(
                "ERR Unrecognized option '{}'",
                String::from_utf8_lossy(args.get(2))
            )
            .into());
        }
        "reply" if is(args.get(2), "skip") => ConnectionCommand::ClientReply(Mute::Skip),
        "reply" => ConnectionCommand::ClientReply(if on(2).ok_or(SYNTAX)? {
            Mute::No
        } else {
            Mute::All
        }),
        "pause" => ConnectionCommand::ClientPause(pause(args)?),
        "unpause" => ConnectionCommand::ClientUnpause,
        "unblock" => return unblock(args),
        "keyspace" if args.len() == 2 => ConnectionCommand::ClientKeyspace,
        "keyspace" if args.len() == 3 => ConnectionCommand::ClientUse(args.bytes(2)),
        "trackinginfo" => ConnectionCommand::ClientTrackingInfo,
        "getredir" => return constant(super::Constant::Integer(-1)),
        "tracking" if on(2) == Some(false) => ConnectionCommand::Accept,
        "tracking" if on(2) == Some(true) => {
            return Err(
                "ERR client tracking is not available: this server does not say which keys change; \
                 turn client-side caching off"
                    .into(),
            );
        }
        "caching" => {
            let text = "ERR CLIENT CACHING can be called only when the client is in tracking \
                        mode with OPTIN or OPTOUT mode enabled";
            return Err(text.into());
        }
        "no-evict" if on(2).is_some() => ConnectionCommand::Accept,
        "no-touch" if on(2).is_some() => ConnectionCommand::ClientTouches(on(2) == Some(false)),
        "tracking" | "no-evict" | "no-touch" => return Err(SYNTAX.into()),
        _ => return Err(wrong_arguments(args)),
    }))
}

fn kind(word: &[u8]) -> Result<ClientKind, ErrorText> {
    let kinds = [
        ("normal", ClientKind::Normal),
        ("slave", ClientKind::Other),
        ("replica", ClientKind::Other),
        ("pubsub", ClientKind::Other),
        ("master", ClientKind::Other),
    ];
    let found = kinds.into_iter().find(|(name, _)| is(word, name));
    found.map(|(_, kind)| kind).ok_or_else(|| {
        format!(
            "ERR Unknown client type '{}'",
            String::from_utf8_lossy(word)
        )
        .into()
    })
}

fn list(args: Args<'_>) -> Result<ConnectionCommand, ErrorText> {
    let mut chosen = Chosen::default();
    match args.len() {
        2 => {}
        4 if is(args.get(2), "type") => chosen.kind = Some(kind(args.get(3))?),
        4.. if is(args.get(2), "id") => {
            if args.len() - 3 > IDS_MAX {
                return Err(format!("ERR too many client ids: at most {IDS_MAX}").into());
            }
            // No client has the number 0.
            let ids = args
                .iter_from(3)
                .map(|id| integer(id).map(|id| u64::try_from(id).unwrap_or(0)));
            chosen.ids = Some(ids.collect::<Option<_>>().ok_or("ERR Invalid client ID")?);
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(ConnectionCommand::ClientList(chosen))
}

fn kill(args: Args<'_>) -> Result<ConnectionCommand, ErrorText> {
    if args.len() == 3 {
        let chosen = Chosen {
            address: Some(text(args.get(2))),
            ..Chosen::default()
        };
        return Ok(ConnectionCommand::ClientKill {
            chosen,
            old_form: true,
            skip_me: false,
        });
    }
    let (mut chosen, mut skip_me) = (Chosen::default(), true);
    let mut i = 2;
    while i < args.len() {
        let (option, value) = (args.get(i), args.get(i + 1));
        if i + 1 >= args.len() {
            return Err(SYNTAX.into());
        }
        if is(option, "id") {
            let id = integer(value)
                .and_then(|id| u64::try_from(id).ok())
                .filter(|id| *id > 0);
            chosen.ids = Some(vec![id.ok_or("ERR client-id should be greater than 0")?]);
        } else if is(option, "type") {
            chosen.kind = Some(kind(value)?);
        } else if is(option, "addr") {
            chosen.address = Some(text(value));
        } else if is(option, "laddr") {
            chosen.local = Some(text(value));
        } else if is(option, "user") {
            if value != b"default" {
                return Err(
                    format!("ERR No such user '{}'", String::from_utf8_lossy(value)).into(),
                );
            }
        } else if is(option, "maxage") {
            let age = integer(value).ok_or("ERR maxage is not an integer or out of range")?;
            let age = u64::try_from(age).ok().filter(|age| *age > 0);
            chosen.age_s = Some(age.ok_or("ERR maxage should be greater than 0")?);
        } else if is(option, "skipme") && (is(value, "yes") || is(value, "no")) {
            skip_me = is(value, "yes");
        } else {
            return Err(SYNTAX.into());
        }
        i += 2;
    }
    Ok(ConnectionCommand::ClientKill {
        chosen,
        old_form: false,
        skip_me,
    })
}

fn pause(args: Args<'_>) -> Result<Pause, ErrorText> {
    let writes_only = match args.len() {
        3 => false,
        4 if is(args.get(3), "write") => true,
        4 if is(args.get(3), "all") => false,
        4 => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => return Err(wrong_arguments(args)),
    };
    let ms = integer(args.get(2))
        .filter(|ms| *ms <= PAUSE_MS_MAX)
        .ok_or("ERR timeout is not an integer or out of range")?;
    let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
    Ok(Pause {
        lasts: Duration::from_millis(ms),
        writes_only,
    })
}

/// No command of this server blocks its client, so there is never one to wake.
fn unblock(args: Args<'_>) -> Result<Request, ErrorText> {
    match args.len() {
        3 => {}
        4 if is(args.get(3), "timeout") || is(args.get(3), "error") => {}
        4 => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
        _ => return Err(wrong_arguments(args)),
    }
    integer(args.get(2)).ok_or(NOT_AN_INTEGER)?;
    constant(super::Constant::Integer(0))
}

/// A copy: a slice would keep the whole read buffer while the other threads are asked.
fn text(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
