//! Each finding about a member, provoked by readings that are made up.

use super::*;
use crate::machine::{CpuBound, MachineReading, MemoryBound};
use crate::net::path::PathReading;

/// A path on which nothing is wrong.
const GOOD: PathReading = PathReading {
    links: 1,
    rtt_us: 400,
    mtu: 6_500,
    sent: 20_000,
    lost: 3,
    probes_lost: 1,
    black_holes: 0,
    relayed: false,
    deaf: false,
};

fn peer(name: &str) -> PeerReading {
    PeerReading {
        name: name.into(),
        address: ([10, 0, 0, 2], 7401).into(),
        control: Some(GOOD),
        data: GOOD,
        links: 1,
        missing: None,
    }
}

/// A member at which nothing is wrong.
fn healthy() -> Examination {
    let machine = MachineReading {
        files_max: Some(20_000),
        files: Some(43),
        udp_receive: Some(DATA_SOCKET_BYTES as u64),
        udp_send: Some(DATA_SOCKET_BYTES as u64),
        udp_lost: Some(12),
        memory: Some(MemoryBound {
            bytes: 8 << 30,
            source: "/sys/fs/cgroup/memory.max".into(),
        }),
        memory_used: Some(1 << 30),
        swapped: Some(0),
        cpus: Some(4),
        cpu: Some(CpuBound {
            millis: 4_000,
            source: "/sys/fs/cgroup/cpu.max".into(),
            periods: 50_000,
            throttled: 3,
        }),
        ..MachineReading::default()
    };
    Examination {
        name: "ada".into(),
        machine,
        threads: 2,
        connections_max: 10_000,
        memory_max: 6 << 30,
        memory_itself: 32 << 20,
        segments: Some(true),
        certificates: [("listen".to_owned(), 90 * 86_400)].into(),
        seeds: 2,
        peers: vec![peer("boris"), peer("clara")],
        ..Examination::default()
    }
}

/// What a check finds once the readings were changed. There is one finding of it.
fn found(check: &str, change: impl FnOnce(&mut Examination)) -> HealthFinding {
    let mut seen = healthy();
    change(&mut seen);
    let all = judge_member(&seen);
    let of: Vec<_> = all
        .iter()
        .filter(|finding| finding.check == check)
        .collect();
    assert_eq!(of.len(), 1, "{check}: {all:?}");
    assert_eq!(of[0].member.as_deref(), Some("ada"));
    let wrong = all.iter().filter(|finding| finding.is_wrong());
    let apart: Vec<_> = wrong.filter(|finding| finding.check != check).collect();
    assert!(apart.is_empty(), "only {check} should be wrong: {apart:?}");
    of[0].clone()
}

/// The finding has this verdict, its text has these words, and its remedy those.
fn assert_found(finding: &HealthFinding, verdict: HealthVerdict, text: &str, remedy: &str) {
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.text.contains(text), "{text}: {finding:?}");
    let said = finding.remedy.as_deref().unwrap_or_default();
    assert!(said.contains(remedy), "{remedy}: {finding:?}");
}

#[test]
fn at_a_healthy_member_every_check_is_fine_and_has_a_row_in_the_list() {
    let all = judge_member(&healthy());
    assert_eq!(all.len(), OF_MEMBER.len() + OF_MACHINE.len());
    for finding in all {
        assert_eq!(finding.verdict, Fine, "{finding:?}");
        assert!(
            crate::doctor::CHECKS.contains(&&*finding.check),
            "{finding:?}"
        );
    }
}

#[test]
fn what_the_system_does_not_say_is_unseen_and_never_wrong() {
    let all = judge_member(&Examination::default());
    assert!(!all.iter().any(HealthFinding::is_wrong), "{all:?}");
    let unseen = all.iter().filter(|finding| finding.verdict == Unseen);
    let unseen: Vec<&str> = unseen.map(|finding| &*finding.check).collect();
    for check in [
        "mtu",
        "segmentation",
        "udp-buffers",
        "memory",
        "swap",
        "processors",
    ] {
        assert!(unseen.contains(&check), "{check}: {unseen:?}");
    }
}

#[test]
fn few_open_files_name_the_unit_or_the_shell_and_a_number_of_connections_that_fits() {
    let low = found("open-files", |seen| seen.machine.files_max = Some(4_096));
    let shell = "`ulimit -n 10256` before the node (systemd: LimitNOFILE=10256), or start the node \
                 with --connections-max 3840";
    assert_found(&low, Warning, "4096 open files", shell);
    let service = found("open-files", |seen| {
        seen.machine.files_max = Some(100);
        seen.machine.unit = Some("doyen.service".into());
    });
    let unit = "LimitNOFILE=10256 in doyen.service (`systemctl edit doyen.service`)";
    assert_found(&service, Warning, "100 open files", unit);
    assert!(
        !service
            .remedy
            .unwrap_or_default()
            .contains("--connections-max")
    );
    let full = found("open-files", |seen| seen.machine.files = Some(18_000));
    assert_found(&full, Critical, "18000 of 20000", "ulimit -n 40000");
    let endless = found("open-files", |seen| seen.machine.files_max = None);
    assert_eq!(endless.verdict, Fine);
}

#[test]
#[cfg(any(target_os = "linux", target_os = "android"))]
fn small_udp_buffers_name_their_sysctl() {
    let low = found("udp-buffers", |seen| {
        seen.machine.udp_receive = Some(212_992)
    });
    assert_found(
        &low,
        Warning,
        "208 KiB",
        "sysctl -w net.core.rmem_max=4194304",
    );
    let low = found("udp-buffers", |seen| seen.machine.udp_send = Some(212_992));
    assert_found(
        &low,
        Warning,
        "to send",
        "sysctl -w net.core.wmem_max=4194304",
    );
}

#[test]
fn datagrams_that_full_buffers_lose_now_count_and_former_ones_do_not() {
    let lost = found("udp-losses", |seen| seen.meanwhile.udp_lost = 9);
    assert_found(&lost, Warning, "lost 9 datagrams", "udp-buffers");
    let fine = found("udp-losses", |seen| seen.machine.udp_lost = Some(1_000_000));
    assert_found(&fine, Fine, "1000000 since", "");
}

#[test]
fn a_memory_limit_that_the_node_would_exceed_names_its_file() {
    let above = found("memory", |seen| seen.memory_max = 8 << 30);
    assert_found(
        &above,
        Warning,
        "/sys/fs/cgroup/memory.max",
        "--memory-max 6120mb",
    );
    let full = found("memory", |seen| seen.machine.memory_used = Some(8 << 30));
    assert_found(&full, Critical, "about to kill it", "raise that limit");
}

#[test]
fn a_directory_that_cannot_be_written_or_soon_cannot_is_wrong() {
    let of = |failure: Option<&str>, write_ms, bytes_left| {
        let writes = DirectoryReport {
            path: "/var/lib/doyen".into(),
            failure: failure.map(str::to_owned),
            write_ms,
        };
        let mut found = judge_directory(&writes, bytes_left);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(crate::doctor::CHECKS.contains(&&*found[0].check));
        found.remove(0)
    };
    let fine = of(None, 12, Some(1 << 30));
    assert_eq!(fine.verdict, Fine);
    assert!(fine.text.contains("took 12 ms"), "{fine:?}");
    assert_eq!(of(None, 12, None).verdict, Fine);
    let failing = of(Some("it is read-only"), 12, None);
    assert_found(&failing, Critical, "it is read-only", "/var/lib/doyen");
    let slow = of(None, 2_000, None);
    assert_found(&slow, Warning, "takes 2000 ms", "another one");
    let full = of(None, 12, Some(5 << 20));
    assert_found(&full, Warning, "5 MiB left", "make room");
}

#[test]
fn memory_that_is_swapped_out_is_a_warning() {
    let swapped = found("swap", |seen| seen.machine.swapped = Some(5 << 20));
    assert_found(&swapped, Warning, "5120 KiB", "swapoff");
    let service = found("swap", |seen| {
        seen.machine.swapped = Some(5 << 20);
        seen.machine.unit = Some("doyen.service".into());
    });
    assert_found(&service, Warning, "", "MemorySwapMax=0 in doyen.service");
}

#[test]
fn more_threads_than_processors_and_a_group_that_is_throttled_are_warnings() {
    let few = found("processors", |seen| seen.machine.cpus = Some(1));
    assert_found(
        &few,
        Warning,
        "(4.000 by /sys/fs/cgroup/cpu.max)",
        "--threads 1",
    );
    let now = found("throttling", |seen| seen.meanwhile.throttled = 2);
    assert_found(&now, Warning, "2 within the last second", "limits.cpu");
    let often = found("throttling", |seen| {
        seen.machine.cpu.as_mut().expect("there is one").throttled = 500;
        seen.machine.unit = Some("doyen.service".into());
    });
    assert_found(
        &often,
        Warning,
        "500 of 50000 periods",
        "CPUQuota= in doyen.service",
    );
    let free = found("throttling", |seen| seen.machine.cpu = None);
    assert_eq!(free.verdict, Fine);
}

#[test]
fn a_thread_that_does_not_answer_is_critical() {
    let stuck = found("threads", |seen| seen.silent = vec!["a data thread".into()]);
    assert_found(&stuck, Critical, "a data thread", "start the node again");
}

#[test]
fn names_of_seeds_that_do_not_resolve_name_the_command_that_tries() {
    let unknown = found("seeds", |seen| {
        seen.seeds_unresolved = vec!["n9.example:7400".into()]
    });
    assert_found(
        &unknown,
        Warning,
        "n9.example:7400",
        "`getent hosts n9.example`",
    );
}

#[test]
fn control_ports_that_are_not_reached_say_why() {
    let shut = found("control-ports", |seen| {
        seen.unreached = [(([10, 0, 0, 3], 7400).into(), "no answer".into())].into();
    });
    assert_found(
        &shut,
        Warning,
        "10.0.0.3:7400: no answer",
        "port 7400 of 10.0.0.3",
    );
}

#[test]
fn data_ports_that_are_not_reached_are_named_and_a_long_list_is_cut() {
    let shut = found("data-ports", |seen| {
        seen.peers[0].data = PathReading::default();
        seen.peers[0].missing = Some("no node answers".into());
    });
    let text = "boris (10.0.0.2:7401): no node answers";
    assert_found(&shut, Warning, text, "port 7401 of 10.0.0.2");
    let many = found("data-ports", |seen| {
        seen.peers = (0..9).map(|n| peer(&format!("n{n}"))).collect();
        for peer in &mut seen.peers {
            peer.links = 2;
        }
    });
    assert_found(&many, Warning, "; and 4 more", "n0");
}

#[test]
fn a_way_around_says_which_direction_is_cut() {
    let deaf = found("relay", |seen| {
        seen.peers[1].data.relayed = true;
        seen.peers[1].data.deaf = true;
    });
    assert_found(
        &deaf,
        Warning,
        "nothing arrives from clara",
        "in both directions",
    );
    let mute = found("relay", |seen| seen.peers[1].data.relayed = true);
    assert_found(
        &mute,
        Warning,
        "nothing arrives at clara",
        "clara (10.0.0.2:7401) and ada",
    );
}

#[test]
fn a_path_that_loses_packets_is_named_with_its_port() {
    let bad = found("loss", |seen| seen.peers[0].data.lost = 260);
    assert_found(
        &bad,
        Warning,
        "1.30 % of 20000 packets to boris (data)",
        "ip -s link",
    );
    let control = found("loss", |seen| {
        seen.peers[1].control = Some(PathReading {
            lost: 4_000,
            ..GOOD
        });
    });
    assert_found(
        &control,
        Warning,
        "20.00 % of 20000 packets to clara (control)",
        "",
    );
    // A handful of packets at the beginning says nothing.
    let young = found("loss", |seen| {
        (seen.peers[0].data.sent, seen.peers[0].data.lost) = (90, 9);
    });
    assert_eq!(young.verdict, Fine);
}

#[test]
fn small_datagrams_alone_on_a_path_and_black_holes_are_warnings() {
    let small = found("mtu", |seen| seen.peers[0].data.mtu = 1_200);
    assert_found(
        &small,
        Warning,
        "to boris, no more than 1200 bytes",
        "tracepath",
    );
    let hole = found("mtu", |seen| seen.peers[1].data.black_holes = 2);
    assert_found(
        &hole,
        Warning,
        "to clara, larger datagrams stopped arriving 2 times",
        "MTU",
    );
    // Nothing larger was tried yet.
    let young = found("mtu", |seen| {
        (seen.peers[0].data.mtu, seen.peers[0].data.probes_lost) = (1_200, 0);
    });
    assert_eq!(young.verdict, Fine);
}

#[test]
fn a_member_that_is_far_away_is_a_warning_and_the_range_is_shown_otherwise() {
    let far = found("round-trips", |seen| seen.peers[1].data.rtt_us = 81_500);
    assert_found(&far, Warning, "81.5 ms to clara", "one region");
    let near = found("round-trips", |seen| seen.peers[1].data.rtt_us = 1_250);
    assert_found(&near, Fine, "0.4 ms to 1.2 ms (clara", "");
}

#[test]
fn each_error_of_sends_has_its_remedy_and_former_ones_are_only_shown() {
    for (errno, remedy) in [
        ("EPERM", "nft list"),
        ("EHOSTUNREACH", "ip route get"),
        ("ENOBUFS", "txqueuelen"),
        ("EIO", "dmesg"),
    ] {
        let error = format!("data {errno}");
        let now = found("send-errors", |seen| {
            seen.meanwhile.send_errors = [(error.clone(), 3)].into();
        });
        assert_found(&now, Warning, &format!("3 {error}"), remedy);
    }
    let before = found("send-errors", |seen| {
        seen.send_errors = [("control EPERM".to_owned(), 8)].into();
    });
    assert_found(&before, Fine, "since the start: 8 control EPERM", "");
}

#[test]
fn without_segmentation_the_interface_is_the_remedy() {
    let off = found("segmentation", |seen| seen.segments = Some(false));
    assert_found(&off, Warning, "system call of its own", "ethtool");
}

#[test]
fn certificates_warn_before_they_end() {
    let left = |seconds: i64| {
        found("certificates", |seen| {
            seen.certificates.insert("resp".into(), seconds);
        })
    };
    assert_found(
        &left(13 * 86_400),
        Warning,
        "resp expires in 13 days",
        "PEM",
    );
    assert_found(&left(86_400), Critical, "resp expires in 24 h", "PEM");
    assert_found(&left(-7_200), Critical, "resp expired 2 h ago", "clock");
    assert_found(&left(15 * 86_400), Fine, "15 days", "");
    let behind = found("certificates", |seen| {
        seen.certificates_behind = vec!["resp: it is from a file".into()];
    });
    assert_found(
        &behind,
        Warning,
        "resp: it is from a file",
        "docs/security.md",
    );
}

/// A node logs them at its start.
#[test]
fn warnings_of_a_start_are_one_line_each_with_the_remedy() {
    for line in machine_warnings(usize::MAX) {
        assert!(!line.contains('\n') && line.contains(": "), "{line}");
    }
}
