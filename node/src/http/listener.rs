//! Accepts a limited number of connections, and closes idle ones: after a while, or at once if
//! another caller waits. The memory of a connection is bounded: a head has a largest size and a
//! deadline, and bodies have limits by route (`routes.rs`).

use super::client::SPEAKS_HTTPS;
use super::guard::HttpPeer;
use super::wait;
use crate::log_limit::{A_MINUTE, LogLimit};
use crate::net::identity::ports::Ports;
use crate::net::keepalive;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

/// Connections at a time. Further ones wait in the system's queue.
const CONNECTIONS_MAX: usize = 256;
/// An idle connection is closed after this time, which is longer than an answer may take.
const IDLE_MAX: Duration = Duration::from_secs(15);
/// Deadline for the whole head of a request, however steadily it comes, and its largest size.
const HEAD_MAX: Duration = IDLE_MAX;
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Bytes of a request in the clear that a port with TLS reads and drops.
const CLEAR_BYTES_MAX: u64 = 1 << 20;
/// How long requests under way may still take when the node stops.
const STOP_MAX: Duration = Duration::from_millis(200);
/// How long a request may take if other callers wait for a connection.
const ASKING_MAX: Duration = Duration::from_secs(2);
/// Interval at which the server looks for a connection that it may close.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// The first byte of a caller that speaks TLS.
const TLS_HANDSHAKE: u8 = 22;
/// How long accepting pauses when the system refuses (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener with a bound on connections. When all places are taken, the connection that has been
/// idle for longest is closed: a program that keeps connections open must not keep operators out.
pub(super) struct BoundedListener {
    listener: TcpListener,
    /// TLS, which all clients must speak then.
    tls: Option<Arc<Ports>>,
    places: Arc<Semaphore>,
    seats: HttpSeats,
    next: u64,
    failed: LogLimit,
}

/// Connections that are open. The lock is held for moments. It is there because hyper wants `Send`;
/// one thread runs all of it.
#[derive(Clone, Default)]
struct HttpSeats(Arc<Mutex<BTreeMap<u64, HttpSeat>>>);

/// A connection that may be closed, and how.
struct HttpSeat {
    moved: Instant,
    /// It was read from and not written to since: a request may be under way.
    asked: bool,
    _close: oneshot::Sender<()>,
}

impl HttpSeats {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, HttpSeat>> {
        // No holder of the lock panics, and each change leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved(&self, id: u64, asked: bool) {
        if let Some(seat) = self.lock().get_mut(&id) {
            (seat.moved, seat.asked) = (Instant::now(), asked);
        }
    }

    /// Closes the connection that has been idle for longest. If none is idle, closes one whose
    /// request takes long to arrive or to answer.
    fn make_room(&self) {
        let mut seats = self.lock();
        let may_go = |seat: &HttpSeat| !seat.asked || seat.moved.elapsed() >= ASKING_MAX;
        let idlest = seats
            .iter()
            .filter(|(_, seat)| may_go(seat))
            .min_by_key(|(_, seat)| (seat.asked, seat.moved))
            .map(|(id, _)| *id);
        if let Some(id) = idlest {
            // The connection ends when its sender is dropped.
            seats.remove(&id);
        }
    }
}

impl BoundedListener {
    pub(super) fn new(
        listener: std::net::TcpListener,
        tls: Option<Arc<Ports>>,
    ) -> io::Result<Self> {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Ok(Self {
            listener: TcpListener::from_std(listener)?,
            tls,
            places,
            seats: HttpSeats::default(),
            next: 0,
            failed: LogLimit::new(A_MINUTE),
        })
    }

    /// Answers requests until the node stops.
    pub(super) async fn serve(mut self, router: Router, mut stopped: watch::Receiver<bool>) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .max_buf_size(HEAD_BYTES_MAX);
        let mut open = JoinSet::new();
        loop {
            // Do not cancel `accept` elsewhere: a connection that it has accepted, and that has no
            // place yet, would be lost.
            let (connection, peer) = tokio::select! {
                accepted = self.accept() => accepted,
                () = wait(&mut stopped) => break,
            };
            while open.try_join_next().is_some() {}
            let service = TowerToHyperService::new(router.clone());
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer);
                service.call(request)
            });
            let (http, tls) = (http.clone(), self.tls.clone());
            let mut stopped = stopped.clone();
            open.spawn(async move {
                let mut connection = connection;
                let connection: Box<dyn Talk> = match tls {
                    None => Box::new(connection),
                    Some(tls) => {
                        match connection.first_byte().await {
                            Some(TLS_HANDSHAKE) => {}
                            Some(_) => {
                                tls.handshake_failed(peer.0, &"it speaks no TLS");
                                return connection.refuse_clear().await;
                            }
                            None => return,
                        }
                        let handshake = TlsAcceptor::from(tls.config()).accept(connection);
                        match tokio::time::timeout(HEAD_MAX, handshake).await {
                            Ok(Ok(connection)) => Box::new(connection),
                            Ok(Err(why)) => {
                                // Of a client that only went away, nothing is wrong.
                                if why.kind() == io::ErrorKind::InvalidData {
                                    tls.handshake_failed(peer.0, &why);
                                }
                                return;
                            }
                            Err(_) => return,
                        }
                    }
                };
                let mut serving = pin!(http.serve_connection(TokioIo::new(connection), service));
                // The reason why a connection ended does not matter: its client ended it.
                tokio::select! {
                    _ = serving.as_mut() => return,
                    () = wait(&mut stopped) => {}
                }
                serving.as_mut().graceful_shutdown();
                let _ = serving.await;
            });
        }
        // The remaining connections end with their tasks.
        let _ = tokio::time::timeout(STOP_MAX, async {
            while open.join_next().await.is_some() {}
        })
        .await;
    }

    async fn place(&self) -> OwnedSemaphorePermit {
        loop {
            if self.places.available_permits() == 0 {
                self.seats.make_room();
            }
            // The semaphore is never closed. A busy connection may be idle a moment later.
            if let Ok(Ok(place)) =
                tokio::time::timeout(LOOK_AGAIN, self.places.clone().acquire_owned()).await
            {
                return place;
            }
        }
    }

    fn seat(&mut self, stream: TcpStream, place: OwnedSemaphorePermit) -> HttpConnection {
        let (close, closed) = oneshot::channel();
        self.next += 1;
        self.seats.lock().insert(
            self.next,
            HttpSeat {
                moved: Instant::now(),
                asked: false,
                _close: close,
            },
        );
        let idle = Box::pin(tokio::time::sleep(IDLE_MAX));
        HttpConnection {
            id: self.next,
            stream,
            idle,
            closed,
            makes_room: false,
            seats: self.seats.clone(),
            _place: place,
        }
    }
}

impl BoundedListener {
    async fn accept(&mut self) -> (HttpConnection, HttpPeer) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if let Err(why) = keepalive::set(&stream, keepalive::KEEPALIVE_S) {
                        tracing::debug!("keepalive of an HTTP connection: {why}");
                    }
                    // An answer would wait until the caller acknowledged the end of the handshake.
                    if let Err(why) = stream.set_nodelay(true) {
                        tracing::debug!("no delay for an HTTP connection: {why}");
                    }
                    let place = self.place().await;
                    return (self.seat(stream, place), HttpPeer(peer.ip().to_canonical()));
                }
                Err(e) => {
                    if let Some(others) = self.failed.happened(std::time::Instant::now()) {
                        tracing::warn!(
                            "HTTP connections wait, because they cannot be accepted: {e}{others}"
                        );
                    }
                    // The process may lack file descriptors: an idle connection gives its own back.
                    self.seats.make_room();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// A connection in the clear, or in TLS.
trait Talk: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Talk for T {}

/// A connection that ends when it has been idle for long, or when it must make room.
pub(super) struct HttpConnection {
    id: u64,
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    /// Resolves when this connection must make room.
    closed: oneshot::Receiver<()>,
    makes_room: bool,
    seats: HttpSeats,
    _place: OwnedSemaphorePermit,
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.seats.lock().remove(&self.id);
    }
}

impl HttpConnection {
    /// The first byte that the caller sends, which is read again afterwards. `None`: none comes.
    async fn first_byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        let peeked = poll_fn(|cx| {
            let result = self.stream.poll_peek(cx, &mut ReadBuf::new(&mut byte));
            self.judge(cx, result, true)
        });
        let count = tokio::time::timeout(HEAD_MAX, peeked).await.ok()?.ok()?;
        byte.get(..count)?.first().copied()
    }

    /// Tells a caller that speaks no TLS to do so.
    async fn refuse_clear(mut self) {
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{SPEAKS_HTTPS}",
            SPEAKS_HTTPS.len()
        );
        let told = async {
            self.write_all(answer.as_bytes()).await?;
            self.shutdown().await?;
            // If the request were left unread, the system would take the answer back.
            let mut rest = (&mut self).take(CLEAR_BYTES_MAX);
            tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
        };
        // The reason why a connection ended does not matter.
        let _ = tokio::time::timeout(ASKING_MAX, told).await;
    }

    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
        asked: bool,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.idle.as_mut().reset(Instant::now() + IDLE_MAX);
            self.seats.moved(self.id, asked);
            return result;
        }
        // A oneshot channel must not be polled again once it has answered.
        self.makes_room = self.makes_room || Pin::new(&mut self.closed).poll(cx).is_ready();
        match self.idle.as_mut().poll(cx) {
            Poll::Pending if !self.makes_room => Poll::Pending,
            Poll::Ready(()) | Poll::Pending => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl AsyncRead for HttpConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.judge(cx, result, true)
    }
}

impl AsyncWrite for HttpConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, result, false)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_asks_silent_callers_for_a_sign_of_life() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let mut bounded = BoundedListener::new(listener, None).unwrap();
        let caller = std::net::TcpStream::connect(address).unwrap();
        let (connection, _) = bounded.accept().await;
        let socket = socket2::SockRef::from(&connection.stream);
        assert!(socket.keepalive().unwrap());
        assert!(connection.stream.nodelay().unwrap());
        assert_eq!(
            socket.tcp_keepalive_time().unwrap(),
            Duration::from_secs(300)
        );
        assert_eq!(
            socket.tcp_user_timeout().unwrap(),
            Some(Duration::from_secs(600))
        );
        drop(caller);
    }
}
