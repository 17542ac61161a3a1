//! What the machine and its control groups grant this process, and how much of that is used: read
//! once, for `doyen doctor` and the warnings at the start of a node.

pub(crate) mod cgroup;

pub use cgroup::{CpuBound, MemoryBound};

use cgroup::figure;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};

/// Where Linux counts what UDP sockets lost.
const SNMP: [&str; 2] = ["/proc/self/net/snmp", "/proc/self/net/snmp6"];

/// What this process may use, and uses. `None`: the system does not say, or there is no limit.
///
/// Example: [`Examination`].
///
/// [`Examination`]: crate::report::examination::Examination
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineReading {
    /// How many files it may open.
    pub files_max: Option<u64>,
    /// How many it may open if it raises its own limit.
    pub files_hard: Option<u64>,
    /// How many it has open.
    pub files: Option<u64>,
    /// Bytes of the receive buffer that a UDP socket gets, of those that it asks for.
    pub udp_receive: Option<u64>,
    /// The same of the send buffer.
    pub udp_send: Option<u64>,
    /// Datagrams that UDP sockets of this machine (or of this container) lost, because their
    /// receive buffers were full.
    pub udp_lost: Option<u64>,
    /// The lowest limit on its memory.
    pub memory: Option<MemoryBound>,
    /// Bytes of memory that it has.
    pub memory_used: Option<u64>,
    /// Bytes of it that were swapped out.
    pub swapped: Option<u64>,
    /// Processors that it may use.
    pub cpus: Option<u64>,
    /// The lowest limit on its processor time.
    pub cpu: Option<CpuBound>,
    /// The service of systemd that it belongs to.
    pub unit: Option<String>,
}

impl MachineReading {
    /// Reads all of it. Sockets ask for buffers of this size.
    #[must_use]
    pub(crate) fn new(socket_bytes: usize) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |word| Some(kib(&status, word)? << 10);
        let files = getrlimit(Resource::Nofile);
        let (udp_receive, udp_send) = buffers(socket_bytes).unzip();
        Self {
            files_max: files.current,
            files_hard: files.maximum,
            // One of them is the directory itself.
            files: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|files| (files.count() as u64).saturating_sub(1)),
            udp_receive,
            udp_send,
            udp_lost: udp_lost(),
            memory: cgroup::bound(),
            memory_used: kib("VmRSS:"),
            swapped: kib("VmSwap:"),
            cpus: std::thread::available_parallelism()
                .ok()
                .map(|cpus| cpus.get() as u64),
            cpu: cgroup::cpu_bound(),
            unit: cgroup::unit(),
        }
    }
}

/// The number in a line `Word:  123 kB`.
fn kib(status: &str, word: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(word))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Asks with a socket of its own. The limit holds for every socket alike.
fn buffers(wanted: usize) -> Option<(u64, u64)> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    let socket = socket2::SockRef::from(&socket);
    // Some systems refuse a size that is too large, and keep the former one.
    let _ = socket.set_recv_buffer_size(wanted);
    let _ = socket.set_send_buffer_size(wanted);
    // Linux doubles the size for its own bookkeeping, and reports the double.
    let own = if cfg!(any(target_os = "linux", target_os = "android")) {
        2
    } else {
        1
    };
    let receive = socket.recv_buffer_size().ok()? / own;
    Some((
        receive as u64,
        (socket.send_buffer_size().ok()? / own) as u64,
    ))
}

/// Datagrams that sockets of this network namespace lost.
fn udp_lost() -> Option<u64> {
    let [v4, v6] = SNMP.map(|path| fs::read_to_string(path).ok());
    let v6 = v6.and_then(|text| figure(&text, "Udp6RcvbufErrors"));
    Some(udp_lost_in(&v4?)? + v6.unwrap_or(0))
}

/// The column `RcvbufErrors` of the two lines about UDP: the names, and the numbers.
fn udp_lost_in(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == "RcvbufErrors")?;
    numbers.split(' ').nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_what_it_grants() {
        let read = MachineReading::new(1 << 16);
        assert!(
            read.udp_receive > Some(0) && read.udp_send > Some(0),
            "{read:?}"
        );
        assert!(read.cpus > Some(0), "{read:?}");
        #[cfg(target_os = "linux")]
        assert!(
            read.files > Some(2) && read.memory_used > Some(0) && read.memory.is_some(),
            "{read:?}"
        );
    }

    #[test]
    fn lost_datagrams_and_memory_are_found_in_the_texts_of_the_kernel() {
        let snmp = "Tcp: a b\nTcp: 1 2\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors \
                    SndbufErrors\nUdp: 10 2 3 11 7 0\nUdpLite: RcvbufErrors\nUdpLite: 9\n";
        assert_eq!(udp_lost_in(snmp), Some(7));
        assert_eq!(udp_lost_in("Udp: InDatagrams\nUdp: 1\n"), None);
        let status = "VmRSS:\t   2048 kB\nVmSwap:\t       0 kB\n";
        assert_eq!(
            (kib(status, "VmRSS:"), kib(status, "VmSwap:")),
            (Some(2048), Some(0))
        );
        assert_eq!(kib(status, "VmHWM:"), None);
    }
}
