//! Keepalive of TCP: a client that vanished (a dead machine, a NAT that forgot it) sends no end of
//! its connection, so the system asks for a sign of life while the connection is silent.

use rustix::net::sockopt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// How long a connection is silent before the system asks: the default of Redis.
pub(crate) const KEEPALIVE_S: u32 = 300;
/// The longest time that Linux takes.
pub(crate) const KEEPALIVE_S_MAX: u32 = 32_767;
/// Questions without an answer until the connection ends. They come at a third of the first
/// interval, as in Redis.
const PROBES: u32 = 3;

/// Sets how long a connection may be silent before the system asks, in seconds; 0: for ever. A
/// client that answers nothing is gone after twice that time, and so is one that has acknowledged
/// no output for so long.
///
/// # Errors
/// The system refuses, for example because the connection has ended.
pub(crate) fn set(socket: impl AsFd, idle_s: u32) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_socket_keepalive(socket, idle_s > 0)?;
    if idle_s > 0 {
        let idle_s = idle_s.min(KEEPALIVE_S_MAX);
        sockopt::set_tcp_keepidle(socket, seconds(idle_s))?;
        sockopt::set_tcp_keepintvl(socket, seconds(interval_s(idle_s)))?;
        sockopt::set_tcp_keepcnt(socket, PROBES)?;
    }
    // While output is on its way, the system sends that again and asks nothing.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    sockopt::set_tcp_user_timeout(socket, unanswered_ms(idle_s))?;
    Ok(())
}

fn interval_s(idle_s: u32) -> u32 {
    (idle_s / PROBES).max(1)
}

/// How long output may stay without an acknowledgement; 0: as long as the system likes.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn unanswered_ms(idle_s: u32) -> u32 {
    let idle_s = idle_s.min(KEEPALIVE_S_MAX);
    let asks_s = if idle_s > 0 {
        PROBES * interval_s(idle_s)
    } else {
        0
    };
    (idle_s + asks_s) * 1000
}

const fn seconds(count: u32) -> Duration {
    Duration::from_secs(count as u64)
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;
    use socket2::SockRef;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_system_asks_three_times_and_gives_unread_output_as_long() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let seen = |socket: &TcpStream| {
            let socket = SockRef::from(socket);
            (
                socket.keepalive().unwrap(),
                socket.tcp_keepalive_time().unwrap().as_secs(),
                socket.tcp_keepalive_interval().unwrap().as_secs(),
                socket.tcp_keepalive_retries().unwrap(),
                socket.tcp_user_timeout().unwrap().map(|t| t.as_secs()),
            )
        };
        for (idle_s, expected) in [
            (300, (true, 300, 100, 3, Some(600))),
            (1, (true, 1, 1, 3, Some(4))),
            (u32::MAX, (true, 32_767, 10_922, 3, Some(65_533))),
            (60, (true, 60, 20, 3, Some(120))),
            (0, (false, 60, 20, 3, None)),
        ] {
            set(&socket, idle_s).unwrap();
            let mut seen = seen(&socket);
            seen.4 = seen.4.filter(|s| *s > 0);
            assert_eq!(seen, expected, "{idle_s}");
        }
    }
}
