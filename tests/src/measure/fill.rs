//! Writes many keys through every node, pipelined, at a rate or as fast as the nodes take them.

use crate::resp::{Client, Reply};
use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Writes that are sent at once.
const BATCH: u64 = 128;
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Writes each of these keys of 16 bytes once, with values of this size: `rate` a second, or as
/// fast as the nodes take them. They expire at `deadline`, in Unix milliseconds.
pub(super) fn insert(
    addresses: &[SocketAddr],
    keys: Range<u64>,
    value_bytes: usize,
    rate: Option<u64>,
    deadline: Option<u64>,
) {
    let value = &vec![b'v'; value_bytes][..];
    let share = (keys.end - keys.start).div_ceil(addresses.len() as u64);
    std::thread::scope(|scope| {
        for (address, n) in addresses.iter().zip(0..) {
            let from = keys.start + n * share;
            let mine = from..keys.end.min(from + share);
            let rate = rate.map(|r| r.div_ceil(addresses.len() as u64));
            scope.spawn(move || write(*address, mine, value, rate, deadline));
        }
    });
}

fn write(
    address: SocketAddr,
    keys: Range<u64>,
    value: &[u8],
    rate: Option<u64>,
    deadline: Option<u64>,
) {
    let mut client = Client::connect(address, ANSWER_MAX).expect("a node takes clients");
    let mut out = Vec::new();
    let (began, first) = (Instant::now(), keys.start);
    for from in keys.clone().step_by(BATCH as usize) {
        let to = keys.end.min(from + BATCH);
        if let Some(rate) = rate {
            let due = began + Duration::from_secs_f64((from - first) as f64 / rate.max(1) as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        out.clear();
        for key in from..to {
            command(&mut out, key, value, deadline);
        }
        client.raw(&out).expect("a node takes writes");
        for _ in from..to {
            let reply = client.reply().expect("a node answers");
            assert!(
                matches!(reply, Reply::Simple(_)),
                "a write was refused: {reply:?}"
            );
        }
    }
}

fn command(out: &mut Vec<u8>, key: u64, value: &[u8], deadline: Option<u64>) {
    let words = if deadline.is_some() { 5 } else { 3 };
    // Writing to a vector cannot fail.
    let _ = write!(
        out,
        "*{words}\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${}\r\n",
        value.len()
    );
    out.extend_from_slice(value);
    if let Some(deadline) = deadline {
        let text = deadline.to_string();
        let _ = write!(out, "\r\n$4\r\nPXAT\r\n${}\r\n{text}", text.len());
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_carries_its_deadline_if_it_has_one() {
        let text = |deadline| {
            let mut out = Vec::new();
            command(&mut out, 7, &[b'v'; 100], deadline);
            String::from_utf8(out)
                .expect("text")
                .replace(&"v".repeat(100), "V")
                .replace("\r\n", " ")
        };
        assert_eq!(text(None), "*3 $3 SET $16 key:000000000007 $100 V ");
        assert_eq!(
            text(Some(1_234)),
            "*5 $3 SET $16 key:000000000007 $100 V $4 PXAT $4 1234 "
        );
    }
}
