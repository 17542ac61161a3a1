//! Commands on the connection, without `CLIENT`.

use super::table::RespDescription;
use super::{
    CommandCall, ConnectionCommand, ParsedCommand, SYNTAX, connection, is, on_connection,
    wrong_arity,
};
use doyen_engine::integer;

/// What is taken from a client that has not authenticated.
const BEFORE_AUTH: &str = "noscript loading stale fast no_auth allow_busy";

pub(super) const ROWS: &[RespDescription] = &[
    on_connection("auth", "1.0.0", -2, BEFORE_AUTH)
        .about("Authenticate to the server")
        .parse(auth),
    on_connection("echo", "1.0.0", 2, "loading stale fast")
        .about("Echo the given string")
        .parse(|c| connection(ConnectionCommand::Echo(c.args.bytes(1)))),
    on_connection("hello", "6.0.0", -1, BEFORE_AUTH)
        .about("Handshake with Redis")
        .parse(hello),
    on_connection("ping", "1.0.0", -1, "fast")
        .about("Ping the server")
        .parse(ping),
    on_connection("quit", "1.0.0", -1, BEFORE_AUTH)
        .about("Close the connection")
        .parse(|_| connection(ConnectionCommand::Quit)),
    on_connection("reset", "6.2.0", 1, BEFORE_AUTH)
        .about("Reset the connection")
        .parse(|_| connection(ConnectionCommand::Reset)),
    on_connection("select", "1.0.0", 2, "loading stale fast")
        .about("Change the selected database for the current connection")
        .parse(select),
];

fn ping(c: CommandCall<'_>) -> ParsedCommand {
    if c.args.len() > 2 {
        return Err(wrong_arity(c.name));
    }
    let text = (c.args.len() == 2).then(|| c.args.bytes(1));
    connection(ConnectionCommand::Ping(text))
}

fn auth(c: CommandCall<'_>) -> ParsedCommand {
    let (user, password) = match c.args.len() {
        2 => (None, c.args.bytes(1)),
        3 => (Some(c.args.bytes(1)), c.args.bytes(2)),
        _ => return Err(SYNTAX.into()),
    };
    connection(ConnectionCommand::Auth { user, password })
}

fn select(c: CommandCall<'_>) -> ParsedCommand {
    let index = c.number(1)?;
    if i32::try_from(index).is_err() {
        return Err(
            "ERR value is out of range, value must between -2147483648 and 2147483647".into(),
        );
    }
    connection(ConnectionCommand::Select(index))
}

fn hello(c: CommandCall<'_>) -> ParsedCommand {
    let args = c.args;
    let (mut protocol, mut auth, mut name) = (None, None, None);
    if args.len() > 1 {
        let asked =
            integer(args.get(1)).ok_or("ERR Protocol version is not an integer or out of range")?;
        if !(2..=3).contains(&asked) {
            return Err("NOPROTO unsupported protocol version".into());
        }
        protocol = Some(asked);
    }
    let mut i = 2;
    while i < args.len() {
        let option = args.get(i);
        let left = args.len() - i - 1;
        if is(option, "AUTH") && left >= 2 {
            auth = Some((args.bytes(i + 1), args.bytes(i + 2)));
            i += 3;
        } else if is(option, "SETNAME") && left >= 1 {
            name = Some(args.bytes(i + 1));
            i += 2;
        } else {
            return Err(format!(
                "ERR Syntax error in HELLO option '{}'",
                String::from_utf8_lossy(option)
            )
            .into());
        }
    }
    connection(ConnectionCommand::Hello {
        protocol,
        auth,
        name,
    })
}
