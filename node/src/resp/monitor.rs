//! `MONITOR`: a client sees the commands of the node's clients, as they are taken.
//!
//! ```text
//!   a command ── is any client monitoring? ──> Feed of this thread ── once a pass ──> its monitors
//!                                                     └─ Monitored ─> monitors of other threads
//! ```
//! While no client monitors, a command costs one look at a flag of its thread. What a monitor has
//! not taken waits in the queue of its session, with the limits of a subscriber.

use super::RespContext;
use super::command::{self, table};
use super::common::ThreadMessage;
use super::frame::Args;
use super::pubsub::Push;
use super::pubsub::hub::OVER_LIMIT;
use super::session::{Connection, Took};
use super::slowlog::{KeptCommand, kept};
use crate::clock;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// Most bytes of lines that a thread makes in one pass. Further commands are only counted.
const PASS_BYTES_MAX: usize = 1 << 20;
/// What is shown of a command.
const SHOWN: KeptCommand = KeptCommand {
    args: 128,
    bytes: 1 << 10,
};

/// The monitoring clients of a thread, and the lines that they get next.
#[derive(Debug, Default)]
pub(super) struct Monitors {
    /// Whether commands are shown to clients of any thread. It is looked up once a pass.
    pub(super) any: bool,
    /// By number of the connection, and whether it came through the cluster-aware port: to such
    /// clients, each thread is a node.
    all: BTreeMap<u64, (Rc<Connection>, bool)>,
    lines: BytesMut,
    /// Commands of this pass that found no room.
    left_out: u64,
}

/// The line of a command: when, which database, who, and the arguments.
fn line(unix_us: u64, database: usize, peer: SocketAddr, args: &[Bytes], out: &mut BytesMut) {
    let head = format!(
        "+{}.{:06} [{database} {peer}]",
        unix_us / 1_000_000,
        unix_us % 1_000_000
    );
    out.extend_from_slice(head.as_bytes());
    for arg in args {
        out.extend_from_slice(b" \"");
        for byte in &**arg {
            match byte {
                b'\\' | b'"' => out.extend_from_slice(&[b'\\', *byte]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0x07 => out.extend_from_slice(b"\\a"),
                0x08 => out.extend_from_slice(b"\\b"),
                b' '..=b'~' => out.extend_from_slice(&[*byte]),
                other => out.extend_from_slice(format!("\\x{other:02x}").as_bytes()),
            }
        }
        out.extend_from_slice(b"\"");
    }
    out.extend_from_slice(b"\r\n");
}

impl Monitors {
    /// Notes a command of this pass, if there is room for it.
    fn note(&mut self, database: usize, peer: SocketAddr, args: impl FnOnce() -> Vec<Bytes>) {
        if self.lines.len() >= PASS_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        line(clock::unix_us(), database, peer, &args(), &mut self.lines);
    }

    /// The lines of this pass.
    fn take_lines(&mut self) -> Option<Bytes> {
        if self.lines.is_empty() {
            return None;
        }
        let mut lines = std::mem::take(&mut self.lines);
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            let text = format!("+{left_out} more commands are not shown: there were too many\r\n");
            lines.extend_from_slice(text.as_bytes());
        }
        Some(lines.freeze())
    }
}

impl RespContext {
    /// Looks up whether any client of the node monitors.
    pub(super) fn look_for_monitors(&mut self) {
        let own = !self.front.monitors.all.is_empty();
        self.front.monitors.any = own || self.front.common.has_monitors();
    }

    /// A client monitors from now on.
    pub(super) fn monitor(&mut self, id: u64, connection: &Rc<Connection>, cluster_port: bool) {
        let monitors = &mut self.front.monitors;
        monitors.any = true;
        let before = monitors.all.insert(id, (connection.clone(), cluster_port));
        if before.is_none() && !cluster_port {
            let thread = self.me().thread_number();
            self.front.common.count_monitor(thread, true);
        }
    }

    /// A client monitors no more.
    pub(super) fn end_monitor(&mut self, id: u64) {
        if let Some((_, false)) = self.front.monitors.all.remove(&id) {
            let thread = self.me().thread_number();
            self.front.common.count_monitor(thread, false);
        }
    }

    /// Shows a command to those that monitor. As in Redis, commands for administrators are not
    /// shown, and passwords are left out.
    #[cold]
    pub(super) fn show_command(&mut self, (database, peer): (usize, SocketAddr), args: Args<'_>) {
        let Ok(spec) = command::find(args) else {
            return;
        };
        if spec.has_flag("admin") {
            return;
        }
        let args = || kept(Some(spec.name), args, SHOWN);
        self.front.monitors.note(database, peer, args);
    }

    /// Hands the lines of this pass to the monitors of all threads.
    pub(super) fn show_commands(&mut self) {
        let Some(lines) = self.front.monitors.take_lines() else {
            return;
        };
        let own = self.me().thread_number();
        let others = (0..self.threads()).filter(|thread| *thread != own);
        for thread in others.filter(|thread| self.front.common.monitors_at(*thread) > 0) {
            self.tell(thread, Box::new(ThreadMessage::Monitored(lines.clone())));
        }
        self.show(&lines, true);
    }

    /// Another thread's clients have sent these commands.
    pub(super) fn show_others(&mut self, lines: &Bytes) {
        self.show(lines, false);
    }

    fn show(&mut self, lines: &Bytes, own: bool) {
        if self.front.monitors.all.is_empty() {
            return;
        }
        let limit = self.front.common.settings.output_pubsub();
        let push = Push::new(BytesMut::from(&lines[..]), self.front.hub.held());
        let all = self.front.monitors.all.values();
        let shown = all.filter(|(_, cluster_port)| own || !cluster_port);
        let too_slow: Vec<_> = shown
            .filter(|(monitor, _)| monitor.take_push(limit, |_| push.clone()) == Took::TooMuch)
            .map(|(monitor, _)| monitor.clone())
            .collect();
        for monitor in too_slow {
            self.front.hub.expel(&monitor, OVER_LIMIT);
        }
    }
}

/// The description of the command, by which the rules of users are judged.
pub(super) fn spec() -> Option<&'static table::RespSpec> {
    table::COMMANDS.named(b"monitor")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with redis-server 7.0.15.
    #[test]
    fn a_command_is_shown_as_redis_shows_it() {
        let args: Vec<Bytes> = [&b"set"[..], b"a \"b\"", b"\\\r\n\t\x07\x08\x00\xff z"]
            .map(Bytes::from_static)
            .to_vec();
        let mut out = BytesMut::new();
        let peer = "127.0.0.1:5".parse().unwrap();
        line(1_700_000_000_000_042, 3, peer, &args, &mut out);
        let expected = "+1700000000.000042 [3 127.0.0.1:5] \"set\" \"a \\\"b\\\"\" \
                        \"\\\\\\r\\n\\t\\a\\b\\x00\\xff z\"\r\n";
        assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
    }
}
