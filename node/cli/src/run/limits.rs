//! Limits of the system that are too small for a node, said once at the start, each with the
//! command that mends it.

use doyen::net::endpoint::DATA_SOCKET_BYTES as SOCKET_BYTES;
use rustix::process::{Resource, getrlimit};
use std::net::{Ipv4Addr, UdpSocket};

/// Files beside those of Redis clients: sockets, probes of peers, HTTP, the runtimes' own.
const OTHER_FILES: u64 = 256;

/// What the system grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Granted {
    /// Bytes of a UDP socket's buffers.
    receive: usize,
    send: usize,
    /// `None`: without a limit.
    files: Option<u64>,
}

/// Logs what is too small.
pub(super) fn warn(connections_max: usize) {
    for line in complaints(&granted(), connections_max as u64) {
        tracing::warn!("{line}");
    }
}

fn complaints(granted: &Granted, connections_max: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for (bytes, what, key) in [
        (granted.receive, "receive", "rmem"),
        (granted.send, "send", "wmem"),
    ] {
        if bytes < SOCKET_BYTES {
            let command = if cfg!(any(target_os = "linux", target_os = "android")) {
                format!(
                    "sysctl -w net.core.{key}_max={SOCKET_BYTES} (and a line in /etc/sysctl.d keeps it)"
                )
            } else {
                format!("sysctl -w kern.ipc.maxsockbuf={}", SOCKET_BYTES * 2)
            };
            let (kib, wanted) = (bytes >> 10, SOCKET_BYTES >> 10);
            lines.push(format!(
                "the system gives a UDP socket {kib} KiB to {what}, {wanted} are wanted; under load, packets are lost: {command}"
            ));
        }
    }
    let wanted = connections_max.saturating_add(OTHER_FILES);
    if let Some(files) = granted.files.filter(|files| *files < wanted) {
        let fits = files.saturating_sub(OTHER_FILES);
        lines.push(format!(
            "the system allows {files} open files, --connections-max {connections_max} may need {wanted}: ulimit -n {wanted} (systemd: \
             LimitNOFILE={wanted}){}",
            if fits > 0 { format!(", or --connections-max {fits}") } else { String::new() }
        ));
    }
    lines
}

/// Asks with a socket of its own: the limit is the system's, whichever socket meets it.
fn granted() -> Granted {
    let (receive, send) = buffers().unwrap_or((SOCKET_BYTES, SOCKET_BYTES));
    Granted {
        receive,
        send,
        files: getrlimit(Resource::Nofile).current,
    }
}

/// `None`: it could not be found out, so there is nothing to say.
fn buffers() -> Option<(usize, usize)> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    let socket = socket2::SockRef::from(&socket);
    // Some systems refuse what is too much, and keep what there was.
    let _ = socket.set_recv_buffer_size(SOCKET_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BYTES);
    // Linux doubles what it grants, for its own bookkeeping, and says the double.
    let own = if cfg!(any(target_os = "linux", target_os = "android")) {
        2
    } else {
        1
    };
    Some((
        socket.recv_buffer_size().ok()? / own,
        socket.send_buffer_size().ok()? / own,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: Granted = Granted {
        receive: SOCKET_BYTES,
        send: SOCKET_BYTES,
        files: Some(20_000),
    };

    #[test]
    fn who_has_enough_hears_nothing() {
        assert_eq!(complaints(&ENOUGH, 10_000), Vec::<String>::new());
        assert_eq!(
            complaints(
                &Granted {
                    files: None,
                    ..ENOUGH
                },
                u64::MAX
            ),
            Vec::<String>::new()
        );
    }

    #[test]
    fn each_limit_is_one_line_with_what_mends_it() {
        let lines = complaints(
            &Granted {
                receive: 212_992,
                send: 212_992,
                files: Some(4_096),
            },
            10_000,
        );
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| !line.contains('\n')));
        assert!(
            lines[2].contains("ulimit -n 10256") && lines[2].contains("LimitNOFILE=10256"),
            "{}",
            lines[2]
        );
        assert!(lines[2].contains("--connections-max 3840"), "{}", lines[2]);
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn linux_is_told_which_sysctl() {
        let lines = complaints(
            &Granted {
                receive: 212_992,
                ..ENOUGH
            },
            10_000,
        );
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].contains("208 KiB")
                && lines[0].contains("sysctl -w net.core.rmem_max=4194304"),
            "{}",
            lines[0]
        );
        let lines = complaints(
            &Granted {
                send: 212_992,
                ..ENOUGH
            },
            10_000,
        );
        assert!(
            lines[0].contains("sysctl -w net.core.wmem_max=4194304"),
            "{}",
            lines[0]
        );
    }

    #[test]
    fn a_handful_of_files_names_no_number_of_connections() {
        let lines = complaints(
            &Granted {
                files: Some(100),
                ..ENOUGH
            },
            10,
        );
        assert!(
            lines[0].contains("ulimit -n 266") && !lines[0].contains(", or"),
            "{}",
            lines[0]
        );
    }

    #[test]
    fn a_system_grants_something() {
        let (receive, send) = buffers().expect("a socket on loopback");
        assert!(receive > 0 && send > 0);
    }
}
