//! `CLIENT`: what a client asks about its own connection and the connections of others.

use super::table::{Access, NO_KEYS, RespDescription, command};
use super::{
    ADMIN, ALWAYS, CachedReads, ClientCommand, CommandCall, ConnectionCommand, ErrorText,
    ParsedCommand, SYNTAX, TrackingCommand, TrackingMode, TrackingOptions, client, connection,
    container, help_of, is, on_connection,
};
use crate::resp::session::client::{Chosen, ClientKind, Lib, Mute, Unblocking};
use crate::resp::session::pause::Pause;
use bytes::Bytes;
use doyen_engine::integer;
use std::time::Duration;

/// Longest pause. A longer one can only be a mistake, and its deadline could not be computed.
const PAUSE_MS_MAX: i64 = i64::MAX / 1_000_000 / 2;
/// Most clients that one command may name by their ids.
const IDS_MAX: usize = 1024;

pub(super) const ROWS: &[RespDescription] = &[
    command("client", "2.4.0", -2, "connection", "")
        .about("A container for client connection commands")
        .parse(container),
    on_connection("client|caching", "6.0.0", 3, ALWAYS)
        .about("Instruct the server about tracking or not keys in the next request")
        .parse(caching),
    on_connection("client|getname", "2.6.9", 2, ALWAYS)
        .about("Get the current connection name")
        .parse(|_| client(ClientCommand::GetName)),
    on_connection("client|getredir", "6.0.0", 2, ALWAYS)
        .about("Get tracking notifications redirection client ID if any")
        .parse(|_| track(TrackingCommand::Redirection)),
    help_of("client|help", "5.0.0", "connection").on(NO_KEYS, Access::Nothing, "connection"),
    on_connection("client|id", "5.0.0", 2, ALWAYS)
        .about("Returns the client ID for the current connection")
        .parse(|_| client(ClientCommand::Id)),
    on_connection("client|info", "6.2.0", 2, ALWAYS)
        .about("Returns information about the current client connection.")
        .parse(|_| client(ClientCommand::Info)),
    on_connection("client|keyspace", "0.1.0", -2, ALWAYS)
        .about("Which keyspace commands are about, or use this one from now on")
        .parse(keyspace),
    on_connection("client|kill", "2.4.0", -3, ADMIN)
        .about("Kill the connection of a client")
        .parse(kill),
    on_connection("client|list", "2.4.0", -2, ADMIN)
        .about("Get the list of client connections")
        .parse(list),
    on_connection("client|no-evict", "7.0.0", 3, ADMIN)
        .about("Set client eviction mode for the current connection")
        .parse(|c| {
            switch(c)
                .map(|_| ConnectionCommand::Accept)
                .and_then(connection)
        }),
    on_connection("client|no-touch", "7.2.0", 3, ALWAYS)
        .about("Controls whether commands sent by the client affect the LRU/LFU of accessed keys")
        .parse(|c| client(ClientCommand::Touches(!switch(c)?))),
    on_connection("client|pause", "2.9.50", -3, ADMIN)
        .about("Stop processing commands from clients for some time")
        .parse(pause),
    on_connection("client|reply", "3.2.0", 3, ALWAYS)
        .about("Instruct the server whether to reply to commands")
        .parse(reply),
    on_connection("client|setinfo", "7.2.0", 4, ALWAYS)
        .about("Set client or connection specific info")
        .parse(setinfo),
    on_connection("client|setname", "2.6.9", 3, ALWAYS)
        .about("Set the current connection name")
        .parse(|c| client(ClientCommand::SetName(c.args.bytes(2)))),
    on_connection("client|tracking", "6.0.0", -3, ALWAYS)
        .about("Enable or disable server assisted client side caching support")
        .parse(tracking),
    on_connection("client|trackinginfo", "6.2.0", 2, ALWAYS)
        .about(
            "Return information about server assisted client side caching for the current \
             connection",
        )
        .parse(|_| track(TrackingCommand::Info)),
    on_connection("client|unblock", "5.0.0", -3, ADMIN)
        .about("Unblock a client blocked in a blocking command from a different connection")
        .parse(unblock),
    on_connection("client|unpause", "6.2.0", 2, ADMIN)
        .about("Resume processing of clients that were paused")
        .parse(|_| client(ClientCommand::Unpause)),
];

/// ON or OFF, if the option is one of them.
fn on(c: CommandCall<'_>) -> Option<bool> {
    match c.args.get(2) {
        word if is(word, "on") => Some(true),
        word if is(word, "off") => Some(false),
        _ => None,
    }
}

/// ON or OFF.
fn switch(c: CommandCall<'_>) -> Result<bool, ErrorText> {
    on(c).ok_or_else(|| SYNTAX.into())
}

fn setinfo(c: CommandCall<'_>) -> ParsedCommand {
    let lib = match c.args.get(2) {
        option if is(option, "lib-name") => Lib::Name,
        option if is(option, "lib-ver") => Lib::Version,
        option => {
            return Err(format!(
                "ERR Unrecognized option '{}'",
                String::from_utf8_lossy(option)
            )
            .into());
        }
    };
    client(ClientCommand::SetInfo(lib, c.args.bytes(3)))
}

fn reply(c: CommandCall<'_>) -> ParsedCommand {
    let mute = match c.args.get(2) {
        word if is(word, "skip") => Mute::Skip,
        _ if switch(c)? => Mute::No,
        _ => Mute::All,
    };
    client(ClientCommand::Reply(mute))
}

fn keyspace(c: CommandCall<'_>) -> ParsedCommand {
    match c.args.len() {
        2 => client(ClientCommand::Keyspace),
        3 => client(ClientCommand::Use(c.args.bytes(2))),
        _ => c.refused(),
    }
}

const fn track(command: TrackingCommand) -> ParsedCommand {
    client(ClientCommand::Tracking(command))
}

fn caching(c: CommandCall<'_>) -> ParsedCommand {
    track(TrackingCommand::Caching(match c.args.get(2) {
        word if is(word, "yes") => Some(true),
        word if is(word, "no") => Some(false),
        _ => None,
    }))
}

fn tracking(c: CommandCall<'_>) -> ParsedCommand {
    let args = c.args;
    let (mut redirect, mut prefixes) = (None, Vec::new());
    let (mut broadcast, mut opt_in, mut opt_out, mut no_loop) = (false, false, false, false);
    let mut at = 3;
    while at < args.len() {
        let more = at + 1 < args.len();
        match args.get(at) {
            word if is(word, "redirect") && more => {
                at += 1;
                if redirect.is_some() {
                    let why = "ERR A client can only redirect to a single other client";
                    return Err(why.into());
                }
                // No client has the number 0.
                redirect = Some(u64::try_from(c.number(at)?).unwrap_or(0));
            }
            word if is(word, "prefix") && more => {
                at += 1;
                prefixes.push(text(args.get(at)));
            }
            word if is(word, "bcast") => broadcast = true,
            word if is(word, "optin") => opt_in = true,
            word if is(word, "optout") => opt_out = true,
            word if is(word, "noloop") => no_loop = true,
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    if !switch(c)? {
        return track(TrackingCommand::Off);
    }
    let mode = match (broadcast, opt_in, opt_out) {
        (false, ..) if !prefixes.is_empty() => {
            return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
        }
        (true, false, false) => TrackingMode::Broadcast(prefixes),
        (true, ..) => return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into()),
        (_, true, true) => {
            return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
        }
        (_, true, _) => TrackingMode::Reads(CachedReads::OptIn),
        (_, _, true) => TrackingMode::Reads(CachedReads::OptOut),
        _ => TrackingMode::Reads(CachedReads::All),
    };
    let options = TrackingOptions {
        redirect,
        mode,
        no_loop,
    };
    track(TrackingCommand::On(Box::new(options)))
}

fn kind(word: &[u8]) -> Result<ClientKind, ErrorText> {
    let kinds = [
        ("normal", ClientKind::Normal),
        ("slave", ClientKind::Other),
        ("replica", ClientKind::Other),
        ("pubsub", ClientKind::Subscriber),
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

fn list(c: CommandCall<'_>) -> ParsedCommand {
    let args = c.args;
    let mut chosen = Chosen::default();
    match args.len() {
        2 => {}
        4 if is(args.get(2), "type") => chosen.kind = Some(kind(args.get(3))?),
        4.. if is(args.get(2), "id") => {
            if args.len() - 3 > IDS_MAX {
                return Err(format!("ERR too many client ids: at most {IDS_MAX}").into());
            }
            // No client has the number 0.
            let ids = c
                .args_from(3)
                .map(|id| integer(id).map(|id| u64::try_from(id).unwrap_or(0)));
            chosen.ids = Some(ids.collect::<Option<_>>().ok_or("ERR Invalid client ID")?);
        }
        _ => return Err(SYNTAX.into()),
    }
    client(ClientCommand::List(chosen))
}

fn kill(c: CommandCall<'_>) -> ParsedCommand {
    let args = c.args;
    if args.len() == 3 {
        let chosen = Chosen {
            address: Some(text(args.get(2))),
            ..Chosen::default()
        };
        return client(ClientCommand::Kill {
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
            chosen.user = Some(Bytes::copy_from_slice(value));
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
    client(ClientCommand::Kill {
        chosen,
        old_form: false,
        skip_me,
    })
}

fn pause(c: CommandCall<'_>) -> ParsedCommand {
    let args = c.args;
    let writes_only = match args.len() {
        3 => false,
        4 if is(args.get(3), "write") => true,
        4 if is(args.get(3), "all") => false,
        4 => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => return c.refused(),
    };
    let ms = integer(args.get(2))
        .filter(|ms| *ms <= PAUSE_MS_MAX)
        .ok_or("ERR timeout is not an integer or out of range")?;
    let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
    client(ClientCommand::Pause(Pause {
        lasts: Duration::from_millis(ms),
        writes_only,
    }))
}

fn unblock(c: CommandCall<'_>) -> ParsedCommand {
    let args = c.args;
    let how = match args.len() {
        3 => Unblocking::Timeout,
        4 if is(args.get(3), "timeout") => Unblocking::Timeout,
        4 if is(args.get(3), "error") => Unblocking::Error,
        4 => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
        _ => return c.refused(),
    };
    // No client has the number 0.
    let id = u64::try_from(c.number(2)?).unwrap_or(0);
    client(ClientCommand::Unblock(id, how))
}

/// A copy: a slice would keep the whole read buffer while the other threads are asked.
fn text(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
