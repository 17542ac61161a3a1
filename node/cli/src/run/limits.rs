//! Limits of the system that are too small for a node. Each is logged once at the start, with the
//! command that raises it.

use doyen::net::endpoint::DATA_SOCKET_BYTES as SOCKET_BYTES;
use rustix::process::{Resource, getrlimit};
use std::net::{Ipv4Addr, UdpSocket};

/// Open files that are not connections of Redis clients: sockets, probes of peers, HTTP, the
/// runtimes' own.
const OTHER_FILES: u64 = 256;

/// The limits that the system grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Granted {
    /// Bytes of a UDP socket's receive buffer.
    receive: usize,
    send: usize,
    /// `None`: unlimited.
    files: Option<u64>,
}

/// Logs every limit that is too small.
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
                    "sysctl -w net.core.{key}_max={SOCKET_BYTES} \
                     (a line in /etc/sysctl.d keeps it)"
                )
            } else {
                format!("sysctl -w kern.ipc.maxsockbuf={}", SOCKET_BYTES * 2)
            };
            let (kib, wanted) = (bytes >> 10, SOCKET_BYTES >> 10);
            lines.push(format!(
                "the system gives a UDP socket {kib} KiB to {what}, but Doyen wants {wanted} KiB; \
                 under load, packets are lost: run {command}"
            ));
        }
    }
    let wanted = connections_max.saturating_add(OTHER_FILES);
    if let Some(files) = granted.files.filter(|files| *files < wanted) {
        let fits = files.saturating_sub(OTHER_FILES);
        lines.push(format!(
            "the system allows {files} open files, but --connections-max {connections_max} may \
             need {wanted}: run ulimit -n {wanted} (systemd: LimitNOFILE={wanted}){}",
            if fits > 0 {
                format!(", or start with --connections-max {fits}")
            } else {
                String::new()
            }
        ));
    }
    lines
}

/// Asks with a socket of its own. The limit holds for every socket alike.
fn granted() -> Granted {
    let (receive, send) = buffers().unwrap_or((SOCKET_BYTES, SOCKET_BYTES));
    Granted {
        receive,
        send,
        files: getrlimit(Resource::Nofile).current,
    }
}

/// `None` if the system does not tell: then there is nothing to warn about.
fn buffers() -> Option<(usize, usize)> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    let socket = socket2::SockRef::from(&socket);
    // Some systems refuse a size that is too large, and keep the former one.
    let _ = socket.set_recv_buffer_size(SOCKET_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BYTES);
    // Linux doubles the size for its own bookkeeping, and reports the double.
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
    fn sufficient_limits_log_nothing() {
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
    fn each_low_limit_is_one_line_with_its_remedy() {
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
    fn linux_lines_name_the_sysctl() {
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
    fn a_limit_below_the_nodes_own_files_suggests_no_number_of_connections() {
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
    fn the_system_reports_its_limits() {
        let (receive, send) = buffers().expect("a socket on loopback");
        assert!(receive > 0 && send > 0);
    }
}
