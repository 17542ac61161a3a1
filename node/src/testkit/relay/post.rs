//! Holds datagrams until they are due.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Weak;
use std::time::Instant;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// Limit of waiting datagrams. Further ones are lost.
const PARCELS_MAX: usize = 1 << 16;
/// Limit of those that the post has not looked at yet.
const INBOX_MAX: usize = 4096;

/// A datagram that is sent later.
#[derive(Debug)]
pub(super) struct RelayParcel {
    pub(super) due: Instant,
    pub(super) datagram: Vec<u8>,
    /// The socket that sends it. A front that closed meanwhile sends nothing.
    pub(super) by: Weak<UdpSocket>,
    /// The destination; `None`: the peer of a connected socket.
    pub(super) to: Option<SocketAddr>,
}

/// Takes parcels.
#[derive(Debug)]
pub(super) struct PostOffice {
    inbox: mpsc::Sender<RelayParcel>,
}

impl PostOffice {
    /// Starts on the present runtime. It ends with this value.
    pub(super) fn open() -> Self {
        let (inbox, parcels) = mpsc::channel(INBOX_MAX);
        tokio::spawn(deliver(parcels));
        Self { inbox }
    }

    /// Sends it when it is due. Returns false if there is no room for it.
    pub(super) fn take(&self, parcel: RelayParcel) -> bool {
        self.inbox.try_send(parcel).is_ok()
    }
}

async fn deliver(mut inbox: mpsc::Receiver<RelayParcel>) {
    let mut waiting: BinaryHeap<Reverse<WaitingParcel>> = BinaryHeap::new();
    let mut number = 0;
    loop {
        let due = waiting.peek().map(|Reverse(next)| next.parcel.due);
        let next = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            parcel = inbox.recv() => match parcel {
                None => return,
                Some(parcel) if waiting.len() < PARCELS_MAX => {
                    number += 1;
                    waiting.push(Reverse(WaitingParcel { number, parcel }));
                }
                Some(_) => {}
            },
            () = next => {
                let now = Instant::now();
                while let Some(Reverse(next)) = waiting.peek()
                    && next.parcel.due <= now
                    && let Some(Reverse(WaitingParcel { parcel, .. })) = waiting.pop()
                {
                    if let Some(by) = parcel.by.upgrade() {
                        send(&by, &parcel.datagram, parcel.to);
                    }
                }
            }
        }
    }
}

/// Sends a datagram. A full socket, or a port without a listener, loses it, as UDP does.
pub(super) fn send(by: &UdpSocket, datagram: &[u8], to: Option<SocketAddr>) {
    let _ = match to {
        Some(to) => by.try_send_to(datagram, to),
        None => by.try_send(datagram),
    };
}

/// Ordered by their due times, then by arrival.
#[derive(Debug)]
struct WaitingParcel {
    number: u64,
    parcel: RelayParcel,
}

impl Ord for WaitingParcel {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.parcel.due, self.number).cmp(&(other.parcel.due, other.number))
    }
}

impl PartialOrd for WaitingParcel {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for WaitingParcel {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for WaitingParcel {}
