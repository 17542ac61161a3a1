//! The socket of the control port for quinn. It waits only for incoming datagrams.
//!
//! If a program waits for room in a UDP socket, Linux wakes it each time a datagram has left.
//! Quinn's own socket waits for both, so each datagram of an idle node wakes it once more, for
//! nothing. A full socket is rare here, and is tried again after a moment.

use super::endpoint::Purpose;
use super::sending::SendErrors;
use crate::hooks::Hooks;
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

/// When a full socket is tried again.
const AGAIN: Duration = Duration::from_millis(1);

/// Quinn's tokio runtime, with this socket.
#[derive(Debug, Default)]
pub(super) struct ControlRuntime {
    pub(super) hooks: Hooks,
    pub(super) errors: Arc<SendErrors>,
}

impl Runtime for ControlRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        TokioRuntime.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let state = UdpSocketState::new((&socket).into())?;
        // The replacement is unsafe, because some types may change or close what they own. This
        // type does neither.
        #[expect(deprecated)]
        let io = AsyncFd::with_interest(socket, Interest::READABLE)?;
        Ok(Arc::new(Socket {
            io,
            state,
            full: Arc::default(),
            hooks: self.hooks.clone(),
            errors: self.errors.clone(),
        }))
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

#[derive(Debug)]
struct Socket {
    io: AsyncFd<UdpSocket>,
    state: UdpSocketState,
    /// Whether the socket was full at the last attempt.
    full: Arc<AtomicBool>,
    hooks: Hooks,
    errors: Arc<SendErrors>,
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(SocketRoom {
            full: self.full.clone(),
            again: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.hooks.hold();
        if !self.hooks.lets_out(transmit.destination) {
            return Ok(());
        }
        let attempt = || self.state.try_send(self.io.get_ref().into(), transmit);
        let sent = self.errors.send(
            Purpose::Control,
            transmit.destination,
            transmit.contents.len(),
            attempt,
        );
        self.full.store(
            sent.as_ref()
                .is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock),
            Ordering::Relaxed,
        );
        sent
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.io.poll_read_ready(cx))?;
            self.hooks.hold();
            // Other errors are ICMP errors of some peer, or pass, as with quinn's own socket.
            if let Ok(Ok(received)) =
                ready.try_io(|io| self.state.recv(io.get_ref().into(), buffers, metas))
                && self.hooks.lets_in()
            {
                return Poll::Ready(Ok(received));
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Where a connection waits while the socket is full. It is polled before every send.
#[derive(Debug)]
struct SocketRoom {
    full: Arc<AtomicBool>,
    again: Option<Pin<Box<Sleep>>>,
}

impl UdpPoller for SocketRoom {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.full.load(Ordering::Relaxed) {
            let again = self
                .again
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(AGAIN)));
            ready!(Future::poll(again.as_mut(), cx));
            // The next attempt finds out.
            self.full.store(false, Ordering::Relaxed);
        }
        self.again = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn transmit(to: SocketAddr) -> Transmit<'static> {
        Transmit {
            destination: to,
            ecn: None,
            contents: b"hello",
            segment_size: None,
            src_ip: None,
        }
    }

    #[tokio::test]
    async fn datagrams_go_and_come() {
        let bound = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            ControlRuntime::default().wrap_udp_socket(socket).unwrap()
        };
        let (one, other) = (bound(), bound());
        let mut bytes = [0; 100];
        for _ in 0..3 {
            one.try_send(&transmit(other.local_addr().unwrap()))
                .unwrap();
            let mut metas = [RecvMeta::default()];
            let count =
                poll_fn(|cx| other.poll_recv(cx, &mut [IoSliceMut::new(&mut bytes)], &mut metas))
                    .await
                    .unwrap();
            assert_eq!(
                (count, metas[0].len, metas[0].addr),
                (1, 5, one.local_addr().unwrap())
            );
            assert_eq!(&bytes[..5], b"hello");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_send_waits_only_if_the_socket_is_full_and_then_a_moment() {
        let full = Arc::new(AtomicBool::new(false));
        let mut room: Pin<Box<dyn UdpPoller>> = Box::pin(SocketRoom {
            full: full.clone(),
            again: None,
        });
        for (is_full, least, most) in [
            (false, Duration::ZERO, Duration::ZERO),
            (true, AGAIN, 2 * AGAIN),
            (true, AGAIN, 2 * AGAIN),
        ] {
            full.store(is_full, Ordering::Relaxed);
            let began = tokio::time::Instant::now();
            poll_fn(|cx| room.as_mut().poll_writable(cx)).await.unwrap();
            assert!(
                (least..=most).contains(&began.elapsed()),
                "{is_full}: {:?}",
                began.elapsed()
            );
            assert!(!full.load(Ordering::Relaxed), "the next attempt finds out");
        }
    }
}
