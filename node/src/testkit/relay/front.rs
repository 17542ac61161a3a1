//! One port that a node advertises. It receives datagrams, and has a socket towards the node for
//! each sender.

use super::post::{RelayParcel, send};
use super::{Plane, Switch};
use crate::testkit::link::SentDatagram;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, JoinSet};

/// The largest datagram that UDP has.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// The system's buffer for a socket that is not being read.
const BUFFER_BYTES: usize = 4 << 20;
/// Limit of senders. Beyond it, the sender that was silent for longest is forgotten.
const SENDERS_MAX: usize = 256;
/// Shorter datagrams are not QUIC: other programs than nodes send them to see whether the port is
/// open, which it is.
const QUIC_BYTES_MIN: usize = 21;

pub(super) struct Front {
    switch: Arc<Switch>,
    node: usize,
    plane: Plane,
    socket: Arc<UdpSocket>,
    /// Where upstream sockets are bound.
    ip: IpAddr,
    behind: SocketAddr,
    /// By the sender's address.
    upstreams: BTreeMap<SocketAddr, Upstream>,
    returning: JoinSet<()>,
    /// The number of datagrams so far, to know the last turn of each sender.
    turn: u64,
}

struct Upstream {
    socket: Arc<UdpSocket>,
    used: u64,
    returning: AbortHandle,
}

/// Binds outside of the runtime, so that the caller gets the error.
pub(super) fn bind(address: SocketAddr) -> io::Result<(std::net::UdpSocket, SocketAddr)> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    enlarge(&socket2::SockRef::from(&socket));
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// The system gives what it allows. With less, a busy machine loses a little more.
fn enlarge(socket: &socket2::SockRef<'_>) {
    let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(BUFFER_BYTES);
}

impl Front {
    /// To be called within the runtime.
    pub(super) fn new(
        switch: Arc<Switch>,
        (node, plane): (usize, Plane),
        socket: std::net::UdpSocket,
        ip: IpAddr,
        behind: SocketAddr,
    ) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        Ok(Self {
            switch,
            node,
            plane,
            socket,
            ip,
            behind,
            upstreams: BTreeMap::new(),
            returning: JoinSet::new(),
            turn: 0,
        })
    }

    /// Serves for ever, unless the socket breaks.
    pub(super) async fn serve(&mut self) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        // Before the first wait a socket counts as full, and `try_send` would lose the datagram.
        if self.socket.writable().await.is_err() {
            return;
        }
        while let Ok((length, from)) = self.socket.recv_from(&mut buffer).await {
            self.datagram(from, &mut buffer[..length]).await;
        }
    }

    /// Returns when the sockets are closed.
    pub(super) async fn close(mut self) {
        // Every task on the way back holds the front's socket: after they ended, it is closed.
        self.returning.shutdown().await;
    }

    async fn datagram(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let sender = self.switch.sender(from);
        if sender.is_none() && datagram.len() < QUIC_BYTES_MIN {
            return;
        }
        let sent = sender.map_or(SentDatagram::Once(None), |sender| {
            self.switch.pass((sender, self.node, self.plane), datagram)
        });
        if sent == SentDatagram::Never {
            return;
        }
        // Without a socket the datagram is lost, as on any other failure.
        if let Ok(upstream) = self.upstream(from).await {
            forward(&self.switch, sent, datagram, &upstream, None);
        }
    }

    async fn upstream(&mut self, from: SocketAddr) -> io::Result<Arc<UdpSocket>> {
        self.turn += 1;
        if let Some(upstream) = self.upstreams.get_mut(&from) {
            upstream.used = self.turn;
            return Ok(upstream.socket.clone());
        }
        if self.upstreams.len() >= SENDERS_MAX
            && let Some(oldest) = self
                .upstreams
                .iter()
                .min_by_key(|(_, u)| u.used)
                .map(|(from, _)| *from)
            && let Some(upstream) = self.upstreams.remove(&oldest)
        {
            upstream.returning.abort();
        }
        let socket = UdpSocket::bind(SocketAddr::new(self.ip, 0)).await?;
        enlarge(&socket2::SockRef::from(&socket));
        socket.connect(self.behind).await?;
        socket.writable().await?;
        let socket = Arc::new(socket);
        let back = RelayBack {
            switch: self.switch.clone(),
            front: self.socket.clone(),
            upstream: socket.clone(),
            from: (self.node, self.plane),
            to: from,
        };
        // Forget ended tasks now and then, so that they do not pile up.
        while self.returning.try_join_next().is_some() {}
        let returning = self.returning.spawn(back.serve());
        self.upstreams.insert(
            from,
            Upstream {
                socket: socket.clone(),
                used: self.turn,
                returning,
            },
        );
        Ok(socket)
    }
}

/// The way back to one sender.
struct RelayBack {
    switch: Arc<Switch>,
    front: Arc<UdpSocket>,
    upstream: Arc<UdpSocket>,
    from: (usize, Plane),
    to: SocketAddr,
}

impl RelayBack {
    async fn serve(self) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        loop {
            // An error means that no process received an earlier datagram. It comes once for each
            // datagram, so this loop cannot spin.
            let Ok(length) = self.upstream.recv(&mut buffer).await else {
                continue;
            };
            let datagram = &mut buffer[..length];
            // Look it up each time: a node that has just started sends before its address is known.
            let (node, plane) = self.from;
            let sent = self
                .switch
                .sender(self.to)
                .map_or(SentDatagram::Once(None), |to| {
                    self.switch.pass((node, to, plane), datagram)
                });
            forward(&self.switch, sent, datagram, &self.front, Some(self.to));
        }
    }
}

fn forward(
    switch: &Switch,
    sent: SentDatagram,
    datagram: &[u8],
    by: &Arc<UdpSocket>,
    to: Option<SocketAddr>,
) {
    let (due, copies) = match sent {
        SentDatagram::Never => return,
        SentDatagram::Once(due) => (due, 1),
        SentDatagram::Twice(due) => (due, 2),
    };
    for _ in 0..copies {
        match due {
            None => send(by, datagram, to),
            Some(due) => {
                // If the post is full, the datagram is lost.
                let _ = switch.post.take(RelayParcel {
                    due,
                    datagram: datagram.to_vec(),
                    by: Arc::downgrade(by),
                    to,
                });
            }
        }
    }
}
