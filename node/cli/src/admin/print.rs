//! Reports as text: aligned columns, the important line first.

use crate::{PARTITIONS, bytes, counted, wrap};
use doyen::report::loads::PartitionLoadReport;
use doyen::report::moves::BalanceReport;
use doyen::report::status::{ClusterReport, GoneReport, KeyspaceReport, MemberReport};
use doyen::report::table::{
    KeysReport, PartitionReport, PartitionState, PartitionsReport, StartReport, TableReport,
};
use doyen_gossip::agreement::consequence;
use doyen_placement::loads::{FILLED, FULL};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;

/// Rows of cells. Each column is as wide as its widest cell.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        rows.iter()
            .filter_map(|r| r.get(c))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, w)| format!("{cell:<w$}"))
            .collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
    }
    text
}

/// A column of a table: its head, and what is in it of a thing.
pub(super) type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

/// A table of things, one a row.
pub(super) fn grid<T>(things: &[T], shown: &[Column<'_, T>]) -> String {
    let mut rows = vec![shown.iter().map(|(head, _)| (*head).to_owned()).collect()];
    let row = |thing| shown.iter().map(|(_, cell)| cell(thing)).collect();
    rows.extend(things.iter().map(row));
    columns(&rows)
}

pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.into_iter().map(Into::into).collect()
}

/// `doyen status`.
pub(super) fn cluster(report: &ClusterReport) -> String {
    let mut text = String::new();
    let Some(id) = &report.cluster_id else {
        let waiting = report
            .waiting
            .as_deref()
            .unwrap_or("it looks for its cluster");
        return format!("no cluster yet: {waiting}\n");
    };
    let verdict = verdict(report);
    let coordinator = report.coordinator.as_deref().unwrap_or("none");
    let _ = writeln!(
        text,
        "{verdict}   coordinator {coordinator}   table {} of term {}   cluster {id}",
        report.version, report.term
    );
    if report.level < report.level_max {
        let _ = writeln!(
            text,
            "level: {}; this node speaks {}, and at least one member does not (it is older, or was \
             started with --level-max)",
            report.level, report.level_max
        );
    }
    if let Some(split) = &report.split {
        let verdict = if split.ready { "SPLIT" } else { "NOT READY" };
        let _ = writeln!(text, "{verdict}: {}", split.text);
    }
    for other in &report.others {
        let _ = writeln!(text, "NOT READY: {other}");
    }
    if let Some(failure) = report.directory.as_ref().and_then(|d| d.failure.as_ref()) {
        let _ = writeln!(
            text,
            "directory: {failure}. Until it works, this node agrees to no change of the cluster"
        );
    }
    if let Some(waiting) = &report.waiting {
        let _ = writeln!(text, "waiting: {waiting}");
    }
    if report.balancing != BalanceReport::ON && !report.balancing.is_empty() {
        let _ = writeln!(
            text,
            "balancing: {} (`doyen rebalance status`)",
            report.balancing
        );
    }
    text += &members_of(report);
    // A half that stopped joins the other one, so it misses no member.
    let stopped = report.split.as_ref().is_some_and(|split| split.stopped);
    let missed = |gone: &&GoneReport| gone.is_missed() && !stopped;
    for gone in report.gone.iter().filter(missed) {
        let _ = writeln!(
            text,
            "\n  {gone}. Start it again, or `doyen forget {}` if it is not to come back",
            gone.name
        );
    }
    text += &here_only(&report.members);
    let full = report
        .members
        .iter()
        .filter_map(|m| Some((m, m.memory_percent.filter(|percent| *percent >= FILLED)?)));
    for (n, (m, percent)) in full.enumerate() {
        let before = if n == 0 { "\n" } else { "" };
        let _ = writeln!(
            text,
            "{before}  {} has filled {percent} % of its memory: {}",
            m.name,
            when_filled(percent, &report.keyspaces)
        );
    }
    text += &keyspaces_of(report);
    text += &moves_of(report);
    text
}

/// Whether a member may be lost, in words.
fn verdict(report: &ClusterReport) -> String {
    let alone = report.members.iter().filter(|m| m.state == "live").count() == 1;
    match (report.safe, alone, &report.unsafe_for) {
        (true, true, _) if report.members.len() == 1 => {
            "safe, with one copy: there is no other member".to_owned()
        }
        (true, true, _) => "safe, with one copy: no other member may hold data".to_owned(),
        (true, false, _) => match full(report) {
            none if none.is_empty() => "safe".to_owned(),
            names => format!("safe, but full: writes are refused at {}", names.join(" ")),
        },
        (false, _, Some(why)) => format!("not safe: {why}"),
        (false, _, None) => "not safe".to_owned(),
    }
}

/// The members, one a line.
fn members_of(report: &ClusterReport) -> String {
    let several = report.members.iter().any(|m| m.threads.len() > 1);
    let zones = report.members.iter().any(|m| !m.zone.is_empty());
    let leads = |m: &MemberReport| report.coordinator.as_ref() == Some(&m.name);
    let address = |a: Option<SocketAddr>| a.map_or_else(|| "off".to_owned(), |a| a.to_string());
    let memory = |m: &MemberReport| match m.memory_percent {
        _ if m.role == "witness" => "-".to_owned(),
        Some(percent) => format!("{percent} %"),
        None => "?".to_owned(),
    };
    let mark = |m: &MemberReport| if leads(m) { "*" } else { "" }.to_owned();
    let always: [Column<'_, MemberReport>; 8] = [
        ("", &mark),
        ("member", &|m| m.name.clone()),
        ("age", &|m| m.age.to_string()),
        ("state", &|m| m.state.clone()),
        ("resp", &|m| address(m.resp)),
        ("cluster-aware", &|m| address(m.resp_cluster)),
        ("http", &|m| address(m.http)),
        ("control", &|m| m.address.to_string()),
    ];
    let mut shown = always.to_vec();
    if several {
        shown.push(("threads", &|m| m.threads.len().to_string()));
    }
    if zones {
        shown.push(("zone", &|m| m.zone.clone()));
    }
    shown.push(("memory", &memory));
    let mut text = format!("\n{}", grid(&report.members, &shown));
    if report.members.iter().any(leads) {
        text += "  * the coordinator\n";
    }
    if report.members.iter().any(|m| memory(m) == "?") {
        text += "  ? not reported yet\n";
    }
    text
}

/// The keyspaces, one a line, and those whose copies have no place.
fn keyspaces_of(report: &ClusterReport) -> String {
    let shown: [Column<'_, KeyspaceReport>; 6] = [
        ("", &|_| String::new()),
        ("keyspace", &|k| k.name.clone()),
        ("mode", &|k| k.mode.clone()),
        ("partitions", &|k| k.partitions.to_string()),
        ("with too few copies", &|k| k.under_replicated.to_string()),
        ("not served", &|k| k.unavailable.to_string()),
    ];
    let mut text = format!("\n{}", grid(&report.keyspaces, &shown));
    let holders = report.holders();
    for k in report
        .keyspaces
        .iter()
        .filter(|k| holders > 1 && k.copies_without_place(holders) > 0)
    {
        let wanted = usize::from(k.backups) + 1;
        let _ = writeln!(
            text,
            "\n  keyspace {}: it asks for {wanted} copies, but only {holders} members may hold \
             data",
            k.name
        );
    }
    text
}

/// The first of the partitions that move.
fn moves_of(report: &ClusterReport) -> String {
    if report.moves.is_empty() {
        return String::new();
    }
    let are = if report.moves.len() == 1 { "is" } else { "are" };
    let mut text = format!(
        "\n  {} {are} moving (`doyen moves` shows the progress and the reasons)",
        counted(report.moves.len(), PARTITIONS)
    );
    for m in report.moves.iter().take(10) {
        let learners = if m.learners.is_empty() {
            String::new()
        } else {
            format!(", copying to {}", m.learners.join(", "))
        };
        let _ = write!(
            text,
            "\n    {}/{}: held by {}{learners}",
            m.keyspace,
            m.partition,
            m.in_sync.join(", ")
        );
    }
    if report.moves.len() > 10 {
        let _ = write!(
            text,
            "\n    and {} more (--json shows all)",
            report.moves.len() - 10
        );
    }
    text.push('\n');
    text
}

/// The members that refuse writes because their memory is full.
fn full(report: &ClusterReport) -> Vec<&str> {
    let refuses = report.keyspaces.iter().any(|k| k.eviction == "none");
    let is_full = |m: &&MemberReport| m.memory_percent.is_some_and(|percent| percent >= FULL);
    let members = report.members.iter().filter(|_| refuses);
    members.filter(is_full).map(|m| &*m.name).collect()
}

/// A line for each kind of port that programs on other machines do not reach, with the members.
fn here_only(members: &[MemberReport]) -> String {
    let mut text = String::new();
    type PortOf = fn(&MemberReport) -> Option<SocketAddr>;
    let ports: [(&str, &str, PortOf); 3] = [
        ("resp", "--resp", |m| m.resp),
        ("cluster-aware", "--resp-cluster", |m| m.resp_cluster),
        ("http", "--http", |m| m.http),
    ];
    for (port, flag, of) in ports {
        let on_loopback = |at: SocketAddr| at.ip().to_canonical().is_loopback();
        let here = |m: &&MemberReport| !on_loopback(m.address) && of(m).is_some_and(on_loopback);
        let names: Vec<&str> = members.iter().filter(here).map(|m| &*m.name).collect();
        if !names.is_empty() {
            let _ = writeln!(
                text,
                "\n  {port} of {}: this machine only. It listens on loopback; {flag} ADDRESS:PORT \
                 opens it to other machines",
                names.join(", ")
            );
        }
    }
    text
}

/// `doyen keyspace list`.
pub(super) fn keyspaces(keyspaces: &[KeyspaceReport]) -> String {
    let shown: [Column<'_, KeyspaceReport>; 12] = [
        ("", &|_| String::new()),
        ("keyspace", &|k| k.name.clone()),
        ("mode", &|k| k.mode.clone()),
        ("partitions", &|k| k.partitions.to_string()),
        ("backups", &|k| k.backups.to_string()),
        ("min in sync", &|k| k.min_in_sync.to_string()),
        ("on loss", &|k| k.on_loss.clone()),
        ("durability", &|k| k.durability.clone()),
        ("default ttl", &|k| k.default_ttl.clone()),
        ("eviction", &|k| k.eviction.clone()),
        ("with too few copies", &|k| k.under_replicated.to_string()),
        ("not served", &|k| k.unavailable.to_string()),
    ];
    grid(keyspaces, &shown)
}

/// Keyspaces with at most this many partitions show each of them.
const SHOWN_MAX: usize = 64;

/// `doyen keyspace show`, with what the partitions of that keyspace carry.
pub(super) fn keyspace(
    keyspace: &KeyspaceReport,
    partitions: &PartitionsReport,
    loads: &[PartitionLoadReport],
    maps: &[String],
) -> String {
    let loads: PartitionLoads<'_> = loads.iter().map(|load| (load.partition, load)).collect();
    let mut text = keyspaces(std::slice::from_ref(keyspace));
    for rule in &keyspace.rules {
        let unmet = keyspace.unmet.iter().find(|unmet| unmet.rule == *rule);
        let unmet = unmet.map(|u| match u.partitions {
            0 => format!("   {}", u.why),
            some => format!(
                "   not met by {some} of {} partitions: {}",
                keyspace.partitions, u.why
            ),
        });
        let _ = write!(text, "\nrule: {rule}{}", unmet.unwrap_or_default());
    }
    if !keyspace.rules.is_empty() {
        text.push('\n');
    }
    match partitions.partitions.len() {
        0 => {}
        1..=SHOWN_MAX => {
            _ = write!(
                text,
                "\n{}\n{}",
                runs(partitions, &loads),
                shares(partitions, &loads)
            )
        }
        _ => {
            _ = write!(
                text,
                "\n{}\n`doyen table` shows every partition\n",
                shares(partitions, &loads)
            )
        }
    }
    for (partition, load) in &loads {
        if let Some(key) = &load.hot_key {
            let asked = load.reads + load.writes;
            let _ = write!(
                text,
                "\nhot: most of the {asked} operations a second of partition {partition} are for \
                 \"{}\"",
                key.escape_default()
            );
        }
    }
    if loads.values().any(|load| load.hot_key.is_some()) {
        text.push('\n');
    }
    if !maps.is_empty() {
        let _ = writeln!(text, "\nmaps: {}", maps.join(", "));
    }
    text
}

/// `doyen table`: neighbouring partitions with the same holders share a line.
pub(super) fn table(report: &TableReport) -> String {
    let Some(id) = &report.cluster_id else {
        return "no cluster yet\n".into();
    };
    let mut text = format!(
        "table {} of term {}   cluster {id}\n",
        report.version, report.term
    );
    for keyspace in &report.keyspaces {
        let _ = writeln!(text, "\nkeyspace {}", keyspace.name);
        if keyspace.partitions.is_empty() {
            let _ = writeln!(
                text,
                "  not assigned yet: the cluster waits for more members"
            );
            continue;
        }
        // The summary comes last: it stays on the screen.
        let _ = write!(
            text,
            "{}\n{}",
            runs(keyspace, &PartitionLoads::new()),
            shares(keyspace, &PartitionLoads::new())
        );
    }
    for m in &report.maps {
        let _ = writeln!(
            text,
            "\nmap {} (number {}) in keyspace {}",
            m.name, m.id, m.keyspace
        );
    }
    text
}

/// The load of partitions, by their numbers; empty if the loads were not asked for.
type PartitionLoads<'a> = BTreeMap<u32, &'a PartitionLoadReport>;

/// Keys, bytes, and reads and writes a second.
fn carried<'a>(loads: impl Iterator<Item = &'a &'a PartitionLoadReport>) -> [String; 4] {
    let [keys, stored, reads, writes] =
        loads.fold([0; 4], |[keys, stored, reads, writes], load| {
            [
                keys + load.keys,
                stored + load.bytes,
                reads + load.reads,
                writes + load.writes,
            ]
        });
    [
        keys.to_string(),
        bytes(stored),
        reads.to_string(),
        writes.to_string(),
    ]
}

const CARRIED: [&str; 4] = ["keys", "stored", "reads/s", "writes/s"];

/// How many partitions each member leads and copies, and the load of those that it leads.
fn shares(keyspace: &PartitionsReport, loads: &PartitionLoads<'_>) -> String {
    let mut shares: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for p in &keyspace.partitions {
        shares.entry(&p.primary).or_default()[0] += 1;
        for m in &p.backups {
            shares.entry(m).or_default()[1] += 1;
        }
        for m in &p.learners {
            shares.entry(m).or_default()[2] += 1;
        }
    }
    let mut rows = vec![row(["member", "leads", "backs up", "receives"])];
    rows.extend(shares.iter().map(|(name, n)| {
        vec![
            (*name).to_owned(),
            n[0].to_string(),
            n[1].to_string(),
            n[2].to_string(),
        ]
    }));
    if !loads.is_empty() {
        rows[0].extend(CARRIED.map(|head| format!("{head} led")));
        for (row, name) in rows[1..].iter_mut().zip(shares.keys()) {
            row.extend(carried(
                loads.values().filter(|load| load.primary == **name),
            ));
        }
    }
    columns(&rows)
}

fn runs(keyspace: &PartitionsReport, loads: &PartitionLoads<'_>) -> String {
    let keys = match keyspace.partitions.first().map(|p| &p.keys) {
        Some(KeysReport::Tokens(_)) => "tokens after, up to",
        Some(KeysReport::Range(_)) => "keys from, up to",
        _ => "slots",
    };
    let mut rows = vec![row([
        "partitions",
        keys,
        "primary",
        "backups",
        "being copied to",
        "state",
    ])];
    if !loads.is_empty() {
        rows[0].extend(CARRIED.map(str::to_owned));
    }
    let alike = |a: &PartitionReport, b: &PartitionReport| {
        // For ranges, their borders matter most.
        let folds = !matches!(a.keys, KeysReport::Range(_));
        folds
            && (&a.primary, &a.backups, &a.learners, a.state)
                == (&b.primary, &b.backups, &b.learners, b.state)
    };
    for run in keyspace.partitions.chunk_by(alike) {
        // A chunk is never empty.
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let ids = numbers(run);
        let state = match first.state {
            PartitionState::Open => "open",
            PartitionState::Assigned => "assigned",
            PartitionState::Unknown => "unknown: the coordinator did not answer",
        };
        rows.push(row([
            &ids,
            &keys_of(&first.keys, &last.keys),
            &first.primary,
            &first.backups.join(" "),
            &first.learners.join(" "),
            state,
        ]));
        if let Some(row) = rows.last_mut().filter(|_| !loads.is_empty()) {
            row.extend(carried(run.iter().filter_map(|p| loads.get(&p.id))));
        }
    }
    columns(&rows)
}

/// The numbers of neighbouring partitions. After splits they need not be consecutive.
fn numbers(run: &[PartitionReport]) -> String {
    match run {
        [one] => one.id.to_string(),
        [first, .., last] if run.windows(2).all(|two| two[0].id + 1 == two[1].id) => {
            format!("{}-{}", first.id, last.id)
        }
        [first, .., last] if run.len() > 3 => format!("{}..{} ({})", first.id, last.id, run.len()),
        some => some
            .iter()
            .map(|p| p.id.to_string())
            .collect::<Vec<_>>()
            .join(","),
    }
}

/// The keys of neighbouring partitions, from the first to the last.
fn keys_of(first: &KeysReport, last: &KeysReport) -> String {
    // The first range begins with the empty key, and the last one has no end.
    let start = |s: &Option<StartReport>| match s {
        None => "the end".to_owned(),
        Some(StartReport { map: 0, key }) if key.is_empty() => "the beginning".to_owned(),
        Some(StartReport { map: 0, key }) => format!("\"{key}\""),
        Some(StartReport { map, key }) => format!("map {map} \"{key}\""),
    };
    match (first, last) {
        (KeysReport::Slots([from, _]), KeysReport::Slots([_, to])) => format!("{from}-{to}"),
        (KeysReport::Tokens([after, _]), KeysReport::Tokens([_, upto])) => {
            format!("{after} {upto}")
        }
        (KeysReport::Range([from, _]), KeysReport::Range([_, to])) => {
            format!("{} {}", start(from), start(to))
        }
        _ => String::new(),
    }
}

/// The part of a text that fits on a terminal, drawn over the former one. The screen does not
/// flash, and no line wraps and moves the others.
pub(super) fn screen(text: &str, columns: usize, rows: usize) -> String {
    let columns = columns.max(1);
    let lines: Vec<String> = text.lines().flat_map(|line| fit(line, columns)).collect();
    // The last row stays empty for the cursor: text there would scroll.
    let room = rows.saturating_sub(1).max(1);
    let mut out = String::from("\x1b[H");
    let mut draw = |line: &str| {
        let _ = write!(out, "{line}\x1b[K\r\n");
    };
    if lines.len() <= room {
        lines.iter().for_each(|line| draw(line));
    } else {
        lines.iter().take(room - 1).for_each(|line| draw(line));
        draw(&clip(
            &format!("... {} more lines", lines.len() - (room - 1)),
            columns,
        ));
    }
    out + "\x1b[J"
}

/// Rows of tables are cut; sentences wrap.
fn fit(line: &str, columns: usize) -> Vec<String> {
    if line.starts_with(' ') || line.chars().count() <= columns {
        return vec![clip(line, columns)];
    }
    wrap(line, columns)
        .iter()
        .map(|line| clip(line, columns))
        .collect()
}

fn clip(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars()
        .take(columns.saturating_sub(1))
        .chain(['>'])
        .collect()
}

/// What `percent` of filled memory means for a member, with these keyspaces.
fn when_filled(percent: u8, keyspaces: &[KeyspaceReport]) -> String {
    if percent < FULL {
        return consequence(percent).to_owned();
    }
    let evicts = |k: &&KeyspaceReport| !["", "none"].contains(&k.eviction.as_str());
    let (evicting, refusing): (Vec<_>, Vec<_>) = keyspaces.iter().partition(evicts);
    let names = |of: &[&KeyspaceReport]| of.iter().map(|k| &*k.name).collect::<Vec<_>>().join(", ");
    match (&*evicting, &*refusing) {
        ([], _) => "it refuses writes that need more memory".to_owned(),
        (_, []) => "it evicts keys to make room for writes".to_owned(),
        (some, others) => format!(
            "it evicts keys of {}, and refuses writes to {} that need more memory",
            names(some),
            names(others)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_member_refuses_writes_only_to_keyspaces_that_do_not_evict() {
        let keyspace = |(name, eviction): (&str, &str)| KeyspaceReport {
            name: name.to_owned(),
            eviction: eviction.to_owned(),
            ..ClusterReport::sample(&["ada"], true).keyspaces.remove(0)
        };
        let told = |percent, of: &[(&str, &str)]| {
            when_filled(
                percent,
                &of.iter().copied().map(keyspace).collect::<Vec<_>>(),
            )
        };
        let (a, b, c) = (("a", "none"), ("b", "lru"), ("c", "ttl"));
        assert_eq!(told(90, &[a]), "it refuses writes that need more memory");
        assert_eq!(told(95, &[b, c]), "it evicts keys to make room for writes");
        assert_eq!(
            told(99, &[a, b, c]),
            "it evicts keys of b, c, and refuses writes to a that need more memory"
        );
        assert_eq!(told(89, &[b]), consequence(89));
    }

    #[test]
    fn the_table_of_members_keeps_its_columns_and_explains_its_signs() {
        let mut report = ClusterReport::sample(&["n1", "n2", "n3"], true);
        report.coordinator = Some("n2".to_owned());
        report.members[0].memory_percent = Some(12);
        report.members[2].role = "witness".to_owned();
        let text = cluster(&report);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start));
        let ends = |start: &str, end: &str| line(start).is_some_and(|line| line.ends_with(end));
        assert!(ends("     member", "  memory"), "{text}");
        assert!(ends("     n1 ", "  12 %"), "{text}");
        assert!(ends("  *  n2 ", "  ?") && ends("     n3 ", "  -"), "{text}");
        assert!(
            text.contains("\n  * the coordinator\n  ? not reported yet\n"),
            "{text}"
        );
        for m in &mut report.members {
            m.memory_percent = Some(0);
        }
        report.coordinator = None;
        let text = cluster(&report);
        assert!(
            !text.contains("the coordinator\n") && !text.contains('?'),
            "{text}"
        );
    }

    #[test]
    fn ports_that_no_other_machine_reaches_are_named() {
        let at = |text: &str| text.parse().expect("an address");
        let mut report = ClusterReport::sample(&["n1", "n2", "n3"], true);
        for m in &mut report.members {
            (m.resp, m.http) = (Some(at("127.0.0.1:7379")), Some(at("[::1]:7480")));
        }
        assert!(
            !cluster(&report).contains("this machine only"),
            "it is one machine"
        );
        for m in &mut report.members {
            m.address = at("10.0.0.1:7400");
        }
        report.members[1].resp = Some(at("10.0.0.2:7379"));
        let text = cluster(&report);
        assert!(
            text.contains("\n  resp of n1, n3: this machine only. "),
            "{text}"
        );
        assert!(
            text.contains("\n  http of n1, n2, n3: this machine only. "),
            "{text}"
        );
        assert!(!text.contains("cluster-aware of"), "those are off: {text}");
    }

    /// In a terminal of 40x10, lines wrapped, and the picture scrolled away at every refresh.
    #[test]
    fn a_small_terminal_shows_as_much_as_fits() {
        let text = format!(
            "safe   coordinator a   cluster {}\n\n{}",
            "7".repeat(32),
            "  a row that is wider than the terminal is\n".repeat(30)
        );
        for (columns, rows) in [(40, 10), (20, 3), (1, 1), (0, 0), (200, 60)] {
            let drawn = screen(&text, columns, rows);
            assert!(drawn.starts_with("\x1b[H") && drawn.ends_with("\x1b[J"));
            let lines: Vec<&str> = drawn[3..drawn.len() - 3]
                .split_terminator("\x1b[K\r\n")
                .collect();
            assert!(
                lines.len() <= rows.saturating_sub(1).max(1),
                "{columns}x{rows}: {lines:?}"
            );
            assert!(
                lines
                    .iter()
                    .all(|line| line.chars().count() <= columns.max(1)),
                "{columns}x{rows}: {lines:?}"
            );
        }
        let drawn = screen(&text, 40, 10);
        assert!(
            drawn.contains("safe coordinator a cluster") && drawn.contains("more lines"),
            "{drawn:?}"
        );
    }
}
