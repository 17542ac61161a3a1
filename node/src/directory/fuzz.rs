//! Any bytes as files of a directory.

use super::decoded;
use super::file::{DirectoryId, FileKind, decode, encode};
use doyen_gossip::agreement::Durable;
use doyen_gossip::{Agreement, AgreementConfig, Input, Output, Time};
use doyen_placement::{MemberId, codec};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Ticks that a machine gets, a tenth of a second apart.
const TICKS: u32 = 20;

fn config(id: u64) -> AgreementConfig {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    AgreementConfig {
        directory: Some(1),
        ..AgreementConfig::of_test(MemberId(id << 20), "one", at)
    }
}

/// Lets a machine go on for a while. Returns what it stored first.
fn live(mut agreement: Agreement) -> Option<Durable> {
    let (mut now, mut first) = (Time::ZERO, None);
    for _ in 0..TICKS {
        now = now + Duration::from_millis(100);
        agreement.handle(now, Input::DataThreadAlive);
        agreement.handle(now, Input::Tick);
        while let Some(output) = agreement.poll_output() {
            if let Output::Store(write, durable) = output {
                first.get_or_insert(*durable);
                agreement.handle(now, Input::Stored(write));
            }
        }
    }
    first
}

/// Files of each kind, and what the largest of them has.
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let id = DirectoryId([7; 16]);
    let durable = live(Agreement::new(config(1), Time::ZERO));
    let durable =
        durable.and_then(|durable| codec::encode_numbered(&durable, codec::BYTES_MAX).ok());
    let durable = durable.unwrap_or_default();
    vec![
        encode((FileKind::Count, id), &3_u64.to_le_bytes()),
        encode((FileKind::Key, id), &[1; 33]),
        encode((FileKind::Agreement, id), &durable),
        durable,
    ]
}

/// Reads bytes as files, and as what the file `agreement` has. A process goes on with that.
pub(crate) fn read(bytes: &[u8]) {
    for kind in [FileKind::Count, FileKind::Key, FileKind::Agreement] {
        let _ = decode(kind, bytes);
    }
    if let Ok(durable) = decoded(bytes) {
        live(Agreement::resume(config(2), durable, Time::ZERO));
    }
}
