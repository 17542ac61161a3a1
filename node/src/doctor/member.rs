//! What is wrong at one member, by what it has read of itself, its machine and its peers.

use crate::net::endpoint::DATA_SOCKET_BYTES;
use crate::report::alerts::{CERTIFICATE_CRITICAL_S, CERTIFICATE_SOON_S};
use crate::report::examination::HealthVerdict::{Critical, Fine, Unseen, Warning};
use crate::report::examination::{Examination, HealthFinding, HealthVerdict, PeerReading};
use crate::report::status::DirectoryReport;
use doyen_placement::words::{MEMBERS, counted};
use std::collections::BTreeMap;

/// Open files that are not connections of Redis clients: sockets, probes of peers, HTTP, the
/// runtimes' own.
const OTHER_FILES: u64 = 256;
/// Peers and addresses that a finding names, at most.
const NAMED_MAX: usize = 5;
/// From this part of its limit on, in percent, a process is close to being killed.
const MEMORY_USED_MAX: u64 = 95;
/// From this part of its limit on, in percent, a process has too many files open.
const FILES_USED_MAX: u64 = 90;
/// A group that was stopped in more of its periods than this, in percent, has too little time.
const THROTTLED_MAX: u64 = 1;
/// Fewer packets or periods say nothing about a share of them.
const SAMPLE_LEAST: u64 = 1_000;
/// A path that loses more of its packets than this, in percent, is bad.
const LOST_MAX: u64 = 1;
/// An Ethernet without tunnels carries more than this.
const MTU_LEAST: u16 = 1_400;
/// A write waits for a round trip, and members of one region are closer than this.
const ROUND_TRIP_MAX_US: u64 = 50_000;

/// From this on, a write is slow: an election waits for votes about as long.
const SLOW_WRITE_MS: u64 = 1_000;
/// A directory needs a few times the size of the table, which is some MiB.
const DISK_LEFT_LEAST: u64 = 64 << 20;

/// A check: from readings to what it found.
type Check = fn(&Examination) -> Vec<HealthFinding>;

/// The checks of a machine.
const OF_MACHINE: [Check; 6] = [
    open_files,
    udp_buffers,
    memory,
    swap,
    processors,
    throttling,
];
/// The checks of a running member.
const OF_MEMBER: [Check; 12] = [
    threads,
    seeds,
    control_ports,
    data_ports,
    relay,
    loss,
    mtu,
    round_trips,
    send_errors,
    segmentation,
    udp_losses,
    certificates,
];

/// What a member finds of itself, the worst first.
pub(super) fn judge_member(seen: &Examination) -> Vec<HealthFinding> {
    let checks = OF_MEMBER.iter().chain(&OF_MACHINE);
    let found = checks.flat_map(|check| check(seen));
    let mut found: Vec<_> = found.map(|finding| finding.of(&seen.name)).collect();
    found.sort_by_key(|finding| finding.verdict);
    found
}

/// What is found of a machine on which no node runs.
pub(super) fn judge_machine(seen: &Examination) -> Vec<HealthFinding> {
    OF_MACHINE.iter().flat_map(|check| check(seen)).collect()
}

/// What a node should log at its start: limits of its machine that are too small, each in one line
/// with its remedy. Memory has a line of its own there.
#[must_use]
pub fn machine_warnings(connections_max: usize) -> Vec<String> {
    let seen = Examination {
        machine: crate::machine::MachineReading::new(DATA_SOCKET_BYTES),
        connections_max: connections_max as u64,
        ..Examination::default()
    };
    let found = open_files(&seen).into_iter().chain(udp_buffers(&seen));
    let wrong = found.filter(HealthFinding::is_wrong);
    wrong
        .map(|finding| match finding.remedy {
            Some(remedy) => format!("{}: {remedy}", finding.text),
            None => finding.text,
        })
        .collect()
}

pub(super) fn one(
    verdict: HealthVerdict,
    check: &str,
    text: impl Into<String>,
) -> Vec<HealthFinding> {
    vec![HealthFinding::new(verdict, check, text)]
}

pub(super) fn wrong(
    check: &str,
    text: impl Into<String>,
    remedy: impl Into<String>,
) -> Vec<HealthFinding> {
    vec![HealthFinding::new(Warning, check, text).remedy(remedy)]
}

/// The first ones of these texts, and how many more there are.
pub(super) fn listed(all: impl IntoIterator<Item = String>) -> String {
    let mut all: Vec<String> = all.into_iter().collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    all.truncate(NAMED_MAX);
    match more {
        0 => all.join("; "),
        _ => format!("{}; and {more} more", all.join("; ")),
    }
}

const fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

// ---- the machine

fn open_files(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "open-files";
    let machine = &seen.machine;
    let Some(most) = machine.files_max else {
        return one(Fine, CHECK, "there is no limit on open files");
    };
    let wanted = seen.connections_max.saturating_add(OTHER_FILES);
    let raise = |to: u64| match &machine.unit {
        Some(unit) => format!("set LimitNOFILE={to} in {unit} (`systemctl edit {unit}`)"),
        None => format!("run `ulimit -n {to}` before the node (systemd: LimitNOFILE={to})"),
    };
    let open = machine.files.unwrap_or(0);
    if open.saturating_mul(100) >= most.saturating_mul(FILES_USED_MAX) {
        let text = format!("{open} of {most} files are open, and no connection is taken beyond");
        let remedy = raise(most.saturating_mul(2).max(wanted));
        return vec![HealthFinding::new(Critical, CHECK, text).remedy(remedy)];
    }
    if most >= wanted {
        return one(Fine, CHECK, format!("{open} of {most} files are open"));
    }
    let text = format!(
        "the system allows {most} open files, but --connections-max {} may need {wanted}",
        seen.connections_max
    );
    let fits = most.saturating_sub(OTHER_FILES);
    let fewer = match fits {
        0 => String::new(),
        _ => format!(", or start the node with --connections-max {fits}"),
    };
    wrong(CHECK, text, raise(wanted) + &fewer)
}

fn udp_buffers(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "udp-buffers";
    let both = [
        (seen.machine.udp_receive, "receive", "rmem"),
        (seen.machine.udp_send, "send", "wmem"),
    ];
    let wanted = DATA_SOCKET_BYTES as u64;
    let small = both.iter().filter_map(|(bytes, what, key)| {
        let bytes = (*bytes)?;
        let text = format!(
            "the system gives a UDP socket {} KiB to {what} (net.core.{key}_max), but Doyen wants \
             {} KiB, and loses packets under load",
            bytes >> 10,
            wanted >> 10
        );
        let remedy = match cfg!(any(target_os = "linux", target_os = "android")) {
            true => format!(
                "run `sysctl -w net.core.{key}_max={wanted}` (a line in /etc/sysctl.d keeps it), \
                 and start the node again"
            ),
            false => format!("run `sysctl -w kern.ipc.maxsockbuf={}`", wanted * 2),
        };
        (bytes < wanted).then(|| HealthFinding::new(Warning, CHECK, text).remedy(remedy))
    });
    let small: Vec<_> = small.collect();
    if !small.is_empty() {
        return small;
    }
    match both[0].0 {
        Some(bytes) => one(Fine, CHECK, format!("UDP sockets get {} KiB", bytes >> 10)),
        None => one(
            Unseen,
            CHECK,
            "the system does not say how large UDP buffers are",
        ),
    }
}

fn udp_losses(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "udp-losses";
    let Some(total) = seen.machine.udp_lost else {
        return one(
            Unseen,
            CHECK,
            "the system does not count what UDP sockets lose",
        );
    };
    let total = format!("{total} since the machine or container started, of all its processes");
    match seen.meanwhile.udp_lost {
        0 => one(
            Fine,
            CHECK,
            format!("full UDP buffers lost no datagram within a second ({total})"),
        ),
        lost => wrong(
            CHECK,
            format!("full UDP buffers lost {lost} datagrams within a second ({total})"),
            "give sockets more room (udp-buffers), or the node more processor time (processors, \
             throttling)",
        ),
    }
}

fn memory(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "memory";
    let Some(bound) = &seen.machine.memory else {
        let text = "the system does not say how much memory this process may have";
        return one(Unseen, CHECK, text);
    };
    let (allows, source) = (mib(bound.bytes), &bound.source);
    let used = seen.machine.memory_used.unwrap_or(0);
    let fits = mib(bound.bytes.saturating_sub(seen.memory_itself) / 4 * 3);
    if used.saturating_mul(100) >= bound.bytes.saturating_mul(MEMORY_USED_MAX) {
        let text = format!(
            "the process has {} MiB, and {source} allows {allows} MiB: the system is about to kill \
             it",
            mib(used)
        );
        let remedy = format!("raise that limit, or start the node with --memory-max {fits}mb");
        return vec![HealthFinding::new(Critical, CHECK, text).remedy(remedy)];
    }
    if seen.memory_max.saturating_add(seen.memory_itself) > bound.bytes {
        let text = format!(
            "--memory-max allows {} MiB, but {source} allows {allows} MiB for the whole process: \
             the system would kill it before it refuses a write",
            mib(seen.memory_max)
        );
        let remedy = format!("start the node with --memory-max {fits}mb, or raise that limit");
        return wrong(CHECK, text, remedy);
    }
    let text = format!(
        "the process has {} MiB; --memory-max is {} MiB, and {source} allows {allows} MiB",
        mib(used),
        mib(seen.memory_max)
    );
    one(Fine, CHECK, text)
}

/// What is found of the directory of a member (`--dir`). `bytes_left`: what its disk has left, if the
/// system says that.
pub(super) fn judge_directory(
    writes: &DirectoryReport,
    bytes_left: Option<u64>,
) -> Vec<HealthFinding> {
    const CHECK: &str = "directory";
    let (path, took) = (&writes.path, writes.write_ms);
    if let Some(failure) = &writes.failure {
        let text = format!("{failure}; the member agrees to no change of the cluster");
        let remedy = format!(
            "look for space, rights and errors of the disk of {path} (`df`, `mount`, `dmesg`); the \
             write is tried again each second"
        );
        return vec![HealthFinding::new(Critical, CHECK, text).remedy(remedy)];
    }
    if took >= SLOW_WRITE_MS {
        let text = format!("a write to {path} takes {took} ms, and changes of the cluster wait");
        let remedy = "look for what else writes to that disk, or give the directory another one";
        return wrong(CHECK, text, remedy);
    }
    match bytes_left {
        Some(left) if left < DISK_LEFT_LEAST => wrong(
            CHECK,
            format!("the disk of {path} has {} MiB left", mib(left)),
            "make room: without it, the member agrees to no change of the cluster",
        ),
        _ => one(
            Fine,
            CHECK,
            format!("the last write to {path} took {took} ms"),
        ),
    }
}

fn swap(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "swap";
    match seen.machine.swapped {
        None => one(Unseen, CHECK, "the system does not say what is swapped out"),
        Some(0) => one(Fine, CHECK, "nothing of this process is swapped out"),
        Some(bytes) => wrong(
            CHECK,
            format!(
                "{} KiB of this process are swapped out: operations on them wait for a disk, and \
                 the node looks dead meanwhile",
                bytes >> 10
            ),
            match &seen.machine.unit {
                Some(unit) => format!("set MemorySwapMax=0 in {unit} (`systemctl edit {unit}`)"),
                None => "run `swapoff -a`, and start the node again".into(),
            },
        ),
    }
}

fn processors(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "processors";
    let Some(cpus) = seen.machine.cpus else {
        return one(
            Unseen,
            CHECK,
            "the system does not say how many processors there are",
        );
    };
    let limit = match &seen.machine.cpu {
        Some(cpu) => format!(
            " ({}.{:03} by {})",
            cpu.millis / 1000,
            cpu.millis % 1000,
            cpu.source
        ),
        None => String::new(),
    };
    let threads = seen.threads;
    if threads > cpus {
        return wrong(
            CHECK,
            format!(
                "{threads} data threads share {cpus} processors{limit}, and wait for each other"
            ),
            format!("start the node with --threads {cpus}, or give it {threads} processors"),
        );
    }
    let threads = counted(threads, ("data thread", "data threads"));
    one(
        Fine,
        CHECK,
        format!("for {threads}: {cpus} processors{limit}"),
    )
}

fn throttling(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "throttling";
    let Some(cpu) = &seen.machine.cpu else {
        return one(Fine, CHECK, "no control group limits the processor time");
    };
    let lately = seen.meanwhile.throttled;
    let often = cpu.periods >= SAMPLE_LEAST
        && cpu.throttled.saturating_mul(100) >= cpu.periods.saturating_mul(THROTTLED_MAX);
    let text = format!(
        "the system stopped this process in {} of {} periods, and in {lately} within the last \
         second, because it may use {}.{:03} processors by {}",
        cpu.throttled,
        cpu.periods,
        cpu.millis / 1000,
        cpu.millis % 1000,
        cpu.source
    );
    if lately == 0 && !often {
        return one(Fine, CHECK, text);
    }
    let remedy = match &seen.machine.unit {
        Some(unit) => format!("raise or remove CPUQuota= in {unit} (`systemctl edit {unit}`)"),
        None => "raise or remove that limit (Kubernetes: limits.cpu; Docker: --cpus)".into(),
    };
    wrong(
        CHECK,
        format!("{text}. A node that is stopped for long looks dead"),
        remedy,
    )
}

// ---- the member

fn threads(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "threads";
    match &seen.silent[..] {
        [] => one(Fine, CHECK, "all threads answer"),
        silent => {
            let text = format!("no answer within a second: {}", silent.join(", "));
            let remedy = "look for a machine that is overloaded (processors, throttling, swap); if \
                          this goes on, start the node again";
            vec![HealthFinding::new(Critical, CHECK, text).remedy(remedy)]
        }
    }
}

pub(super) fn seeds(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "seeds";
    match &seen.seeds_unresolved[..] {
        [] if seen.seeds == 0 => one(
            Fine,
            CHECK,
            "there are no seeds: it waits for others to join",
        ),
        [] => one(Fine, CHECK, "the names of all seeds resolve"),
        [first, ..] => {
            let host = first
                .rsplit_once(':')
                .map_or(first.as_str(), |(host, _)| host);
            let text = format!(
                "these seeds do not resolve: {}",
                listed(seen.seeds_unresolved.iter().cloned())
            );
            let remedy = format!(
                "run `getent hosts {host}` on that machine, and correct the name (--seed) or the \
                 name server"
            );
            wrong(CHECK, text, remedy)
        }
    }
}

fn control_ports(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "control-ports";
    let failed: Vec<_> = seen.unreached.iter().collect();
    let Some((first, _)) = failed.first() else {
        let linked = seen
            .peers
            .iter()
            .filter(|peer| peer.control.is_some())
            .count();
        let linked = counted(linked, MEMBERS);
        let text = format!("control connections to {linked}, and none that fails");
        return one(Fine, CHECK, text);
    };
    let remedy = format!(
        "start the node there, if it has ended; if it runs, let UDP through to port {} of {} and \
         back, on both machines and between them",
        first.port(),
        first.ip()
    );
    let failed = failed
        .iter()
        .map(|(address, why)| format!("{address}: {why}"));
    let text = format!(
        "this member cannot talk with the control port {}",
        listed(failed)
    );
    wrong(CHECK, text, remedy)
}

fn data_ports(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "data-ports";
    let missing = |peer: &&PeerReading| peer.data.links < peer.links;
    let apart: Vec<_> = seen.peers.iter().filter(missing).collect();
    let Some(first) = apart.first() else {
        let others = counted(seen.peers.len(), MEMBERS);
        let text = format!("connected with the data ports of {others}");
        return one(Fine, CHECK, text);
    };
    let remedy = format!(
        "if {} runs, let UDP through to port {} of {} and from there to this member's data port \
         (--data)",
        first.name,
        first.address.port(),
        first.address.ip()
    );
    let named = apart.iter().map(|peer| {
        let why = peer.missing.as_deref().unwrap_or("it does not answer");
        format!("{} ({}): {why}", peer.name, peer.address)
    });
    let text = format!("no data connection to {}", listed(named));
    wrong(CHECK, text, remedy)
}

fn relay(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "relay";
    let around = |peer: &&PeerReading| peer.data.relayed || peer.data.deaf;
    let around: Vec<_> = seen.peers.iter().filter(around).collect();
    let Some(first) = around.first() else {
        return one(Fine, CHECK, "data goes directly to every member");
    };
    let remedy = format!(
        "let UDP through between the data ports of {} ({}) and {}, in both directions",
        first.name, first.address, seen.name
    );
    let named = around.iter().map(|peer| match peer.data.deaf {
        true => format!("nothing arrives from {} ({})", peer.name, peer.address),
        false => format!("nothing arrives at {} ({})", peer.name, peer.address),
    });
    let text = format!(
        "other members carry data, because directly {}",
        listed(named)
    );
    wrong(CHECK, text, remedy)
}

fn loss(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "loss";
    let paths = seen.peers.iter().flat_map(|peer| {
        let data = ("data", peer.data);
        let control = peer.control.map(|path| ("control", path));
        let paths = [Some(data), control].into_iter().flatten();
        paths.map(move |(port, path)| (peer, port, path))
    });
    let paths: Vec<_> = paths.collect();
    let share = |lost: u64, sent: u64| {
        let hundredths = lost.saturating_mul(10_000) / sent.max(1);
        format!("{}.{:02} %", hundredths / 100, hundredths % 100)
    };
    let bad = paths.iter().filter(|(_, _, path)| {
        path.sent >= SAMPLE_LEAST && path.lost * 100 >= path.sent * LOST_MAX
    });
    let bad: Vec<String> = bad
        .map(|(peer, port, path)| {
            let share = share(path.lost, path.sent);
            format!("{share} of {} packets to {} ({port})", path.sent, peer.name)
        })
        .collect();
    if !bad.is_empty() {
        return wrong(
            CHECK,
            format!("the network lost {}", listed(bad)),
            "look for errors and drops on the way: `ip -s link` on both machines, and \
             `ethtool -S INTERFACE`; if udp-buffers or throttling is found as well, begin there",
        );
    }
    let (lost, sent) = paths.iter().fold((0, 0), |(lost, sent), (_, _, path)| {
        (lost + path.lost, sent + path.sent)
    });
    let text = format!(
        "{} of {sent} packets to other members were lost",
        share(lost, sent)
    );
    one(Fine, CHECK, text)
}

fn mtu(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "mtu";
    let linked = seen.peers.iter().filter(|peer| peer.data.links > 0);
    let linked: Vec<_> = linked.collect();
    let bad = linked.iter().filter_map(|peer| {
        let path = &peer.data;
        let (name, bytes) = (&peer.name, path.mtu);
        if path.black_holes > 0 {
            let times = path.black_holes;
            return Some(format!(
                "to {name}, larger datagrams stopped arriving {times} times"
            ));
        }
        let small = bytes < MTU_LEAST && path.probes_lost > 0;
        small.then(|| format!("to {name}, no more than {bytes} bytes arrive in one datagram"))
    });
    let bad: Vec<String> = bad.collect();
    if !bad.is_empty() {
        return wrong(
            CHECK,
            format!("{}. Doyen works with that, but slower", listed(bad)),
            "give every interface on the way the same MTU of 1500 or more (`ip link`, and \
             `tracepath ADDRESS` shows where it is smaller)",
        );
    }
    match linked.iter().map(|peer| peer.data.mtu).min() {
        Some(bytes) => one(
            Fine,
            CHECK,
            format!("datagrams of {bytes} bytes arrive everywhere"),
        ),
        None => one(
            Unseen,
            CHECK,
            "there is no connection to another member to measure",
        ),
    }
}

fn round_trips(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "round-trips";
    let mut linked: Vec<_> = seen
        .peers
        .iter()
        .filter(|peer| peer.data.links > 0)
        .collect();
    linked.sort_by_key(|peer| peer.data.rtt_us);
    let ms = |us: u64| format!("{}.{} ms", us / 1000, us / 100 % 10);
    let slow = linked.iter().rev();
    let slow = slow.filter(|peer| peer.data.rtt_us >= ROUND_TRIP_MAX_US);
    let slow: Vec<String> = slow
        .map(|peer| format!("{} to {}", ms(peer.data.rtt_us), peer.name))
        .collect();
    if !slow.is_empty() {
        return wrong(
            CHECK,
            format!(
                "a round trip takes {}, and each write waits for one",
                listed(slow)
            ),
            "keep the members of a cluster in one region; if they are, look for a machine or a \
             link that is overloaded",
        );
    }
    let (Some(first), Some(last)) = (linked.first(), linked.last()) else {
        return one(
            Unseen,
            CHECK,
            "there is no connection to another member to measure",
        );
    };
    let (least, most) = (ms(first.data.rtt_us), ms(last.data.rtt_us));
    let name = &last.name;
    one(
        Fine,
        CHECK,
        format!("{least} to {most} ({name} is the farthest)"),
    )
}

fn send_errors(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "send-errors";
    let shown = |errors: &BTreeMap<String, u64>| {
        listed(
            errors
                .iter()
                .map(|(error, times)| format!("{times} {error}")),
        )
    };
    let lately = &seen.meanwhile.send_errors;
    let Some(first) = lately.keys().next() else {
        let before = match seen.send_errors.is_empty() {
            true => "none since the start".into(),
            false => format!("since the start: {}", shown(&seen.send_errors)),
        };
        return one(
            Fine,
            CHECK,
            format!("the system sent every datagram within a second ({before})"),
        );
    };
    let remedy = match first.rsplit_once(' ').map_or("", |(_, errno)| errno) {
        "EPERM" | "EACCES" => {
            "a firewall or a route on that machine forbids it: look at `nft list \
                               ruleset` and `ip route`"
        }
        "ENETUNREACH" | "EHOSTUNREACH" => {
            "that machine has no way to another member: run `ip route get ADDRESS` there"
        }
        "ENOBUFS" => {
            "a queue of that machine is full: look at `tc -s qdisc`, and raise txqueuelen (`ip \
             link set INTERFACE txqueuelen 10000`)"
        }
        _ => "look at that machine's network: `ip -s link`, `dmesg`",
    };
    let text = format!(
        "the system did not send datagrams within a second: {}",
        shown(lately)
    );
    wrong(CHECK, text, remedy)
}

fn segmentation(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "segmentation";
    match seen.segments {
        Some(true) => one(Fine, CHECK, "one system call sends several datagrams (GSO)"),
        Some(false) => wrong(
            CHECK,
            "each datagram takes a system call of its own, which costs throughput: the system or \
             the interface did not take several at a time (GSO), or there was no way to a member \
             for a while",
            "start the node again; if it says so again, use Linux 4.18 or newer, and run `ethtool \
             -K INTERFACE tx-udp-segmentation on tx-checksumming on`",
        ),
        None => one(Unseen, CHECK, "no data thread answered"),
    }
}

fn certificates(seen: &Examination) -> Vec<HealthFinding> {
    const CHECK: &str = "certificates";
    let lasts = |seconds: i64| match seconds.unsigned_abs() {
        seconds @ 0..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    };
    let mut found = Vec::new();
    for (port, &left) in &seen.certificates {
        let (verdict, text) = match left {
            ..0 => (
                Critical,
                format!("the certificate of {port} expired {} ago", lasts(left)),
            ),
            0..CERTIFICATE_CRITICAL_S => (
                Critical,
                format!("the certificate of {port} expires in {}", lasts(left)),
            ),
            CERTIFICATE_CRITICAL_S..CERTIFICATE_SOON_S => (
                Warning,
                format!("the certificate of {port} expires in {}", lasts(left)),
            ),
            _ => continue,
        };
        let remedy = "replace the PEM files, which the node reads again by itself; with a secret, \
                      set this machine's clock (\"DoyenCertificateExpires\" in docs/operations.md)";
        found.push(HealthFinding::new(verdict, CHECK, text).remedy(remedy));
    }
    for why in &seen.certificates_behind {
        let text = format!("a port has no certificate of the new secret yet: {why}");
        found.extend(wrong(
            CHECK,
            text,
            "read \"Replace the secret\" in docs/security.md",
        ));
    }
    if !found.is_empty() {
        return found;
    }
    match seen.certificates.values().min() {
        Some(left) => one(Fine, CHECK, format!("valid for {} at least", lasts(*left))),
        None => one(Fine, CHECK, "no port has a certificate"),
    }
}

#[cfg(test)]
mod tests;
