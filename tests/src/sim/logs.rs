//! What the partitions' logs must never show: an old tenure acknowledges (I5), a copy in sync lacks
//! an acknowledged write (I6), two entries have one name (I8), a committed entry differs or is gone
//! (I9), copies hold different things at one place of one log (I13).

use super::process::{Process, ThreadId};
use super::schedule::Nanos;
use doyen_engine::{Change, Former, InspectedCalls, Inspection, Shard};
use doyen_placement::{ClusterId, Epoch, Lineage, MemberId, Partition, PartitionRef, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What is known of one partition's log, from what all nodes showed.
#[derive(Debug, Default)]
struct Truth {
    entries: BTreeMap<(u64, Epoch), u64>,
    committed: BTreeMap<u64, (Epoch, u64)>,
    /// A digest of the changes of each of these.
    told: BTreeMap<u64, u64>,
    /// The youngest tenure that acknowledged anything: its epoch, its member, and how far it
    /// acknowledged.
    tenure: Option<(Epoch, MemberId)>,
    acknowledged: u64,
    /// When it was how far acknowledged.
    history: Vec<(Nanos, u64)>,
    /// Content by the name of the last entry.
    contents: BTreeMap<(u64, Epoch), (MemberId, u64)>,
}

/// What one node showed last about one partition.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    committed: u64,
    /// How far it could acknowledge: what is committed without a lease is answered once there is
    /// How far it could acknowledge. An entry that is committed without a lease is answered once
    /// there is one.
    acknowledged: u64,
    /// The tenure in which it leads by the installed table, but not by the accepted one.
    deposed: Option<Epoch>,
    last: (u64, Epoch),
    /// The last entry of the contents that were compared last.
    compared: (u64, Epoch),
    opened: Epoch,
}

/// What a data thread showed at the end of its last pass. What has not changed since is not checked
/// again.
#[derive(Debug, Default)]
struct Shown {
    by: Option<(Option<ClusterId>, MemberId, u64, bool)>,
    partitions: Vec<Inspection>,
}

/// A log: that of a lineage of a partition, in one cluster.
pub(crate) type LogId = (Option<ClusterId>, PartitionRef, Lineage);

/// What a cluster is called for a member: the halves of a split have the same logs up to a point.
pub(crate) type Line<'a> = dyn Fn(MemberId, Option<ClusterId>) -> Option<ClusterId> + 'a;

/// All logs.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    truths: BTreeMap<LogId, Truth>,
    seen: BTreeMap<(Option<ClusterId>, MemberId, PartitionRef, Lineage), Seen>,
    shown: BTreeMap<ThreadId, Shown>,
    /// Contents that were compared.
    pub(crate) compared: u64,
}

/// A digest of changes that a subscriber gets.
pub(crate) fn digest(changes: &[Change]) -> u64 {
    let mut digest = DefaultHasher::new();
    for change in changes {
        let Change { map, key, what, .. } = change;
        let new = change.before == Former::Nothing;
        (map, key, format!("{what:?}"), new).hash(&mut digest);
    }
    digest.finish()
}

impl Logs {
    /// An entry between two others that is known to be committed.
    pub(crate) fn committed_between(&self, log: LogId, from: u64, to: u64) -> Option<u64> {
        let committed = &self.truths.get(&log)?.committed;
        committed.range(from + 1..to).next().map(|(seq, _)| *seq)
    }

    /// An entry after this one that was acknowledged at that moment.
    pub(crate) fn acknowledged_after(&self, log: LogId, from: u64, moment: Nanos) -> Option<u64> {
        let truth = self.truths.get(&log)?;
        let known = truth.history.partition_point(|(at, _)| *at <= moment);
        let (_, to) = truth.history[..known].last()?;
        if *to <= from {
            return None;
        }
        self.committed_between(log, from, to + 1)
    }

    /// The digest of the changes of an entry, if it is known.
    pub(crate) fn told_digest(&self, log: LogId, seq: u64) -> Option<u64> {
        self.truths.get(&log)?.told.get(&seq).copied()
    }

    /// These members of a cluster are a half of it from now on, which is called otherwise. What they
    /// acknowledged before was judged.
    pub(crate) fn parts(&mut self, half: &BTreeSet<MemberId>, of: ClusterId, named: ClusterId) {
        let is_of_half = |(cluster, me, ..): &(Option<ClusterId>, MemberId, _, _)| {
            *cluster == Some(of) && half.contains(&me.member())
        };
        let before = self.seen.iter().filter(|(place, _)| is_of_half(place));
        let before: Vec<_> = before
            .map(|((_, me, at, lineage), seen)| ((Some(named), *me, *at, *lineage), *seen))
            .collect();
        self.seen.extend(before);
    }

    /// A data thread has given all answers that it could, by now. `may_answer` says whether lease
    /// and view allowed that. `newest` is the last table that was seen to be committed.
    pub(crate) fn look(
        &mut self,
        processes: &[Process],
        (p, t): ThreadId,
        (at, may_answer): (Nanos, bool),
        newest: Option<&Table>,
        line: &Line<'_>,
    ) -> Result<(), String> {
        let count = processes[p].threads.len();
        let process = &processes[p].threads[t];
        let me = process.shard_me;
        let cluster = line(me, process.shard.inspector().cluster());
        let shown = self.shown.entry((p, t)).or_default();
        let same = shown
            .by
            .replace((cluster, me, processes[p].generation, may_answer))
            == shown.by;
        let before = std::mem::take(&mut shown.partitions);
        shown
            .partitions
            .extend(process.shard.inspector().partitions());
        for (i, now) in shown.partitions.iter().enumerate() {
            if same && before.get(i) == Some(now) {
                continue;
            }
            hold!(
                thread_of(now.at, count) == t,
                "thread {t} of {count} of {me} holds {}",
                now.at
            );
            let seen = self
                .seen
                .entry((cluster, me, now.at, now.lineage))
                .or_default();
            let truth = self
                .truths
                .entry((cluster, now.at, now.lineage))
                .or_default();
            let last = now.last_epoch.unwrap_or(Epoch(0));
            let grown = now.committed > seen.committed;
            if seen.last != (now.last, last) || grown {
                entries(&process.shard, now, seen.committed, truth)?;
            }
            let deposed = now.since.filter(|_| now.open && !now.serving);
            let goes_on = grown && deposed.is_some() && deposed == seen.deposed;
            hold!(
                !goes_on,
                "I5: {me} commits {} of {}, and has accepted that it does not lead",
                now.committed,
                now.at
            );
            if let Some(since) = now.since.filter(|_| now.serves() && may_answer) {
                by_both_tables(&processes[p], now, since)?;
                if now.committed > seen.acknowledged {
                    if let Some((other, of)) = truth.tenure {
                        let later = since > other || (since == other && of == me);
                        hold!(
                            later,
                            "I5: {me} acknowledges {} of {} in tenure {since}, and {of} did in \
                             {other}",
                            now.committed,
                            now.at
                        );
                    }
                    truth.tenure = Some((since, me));
                    if now.committed > truth.acknowledged {
                        truth.acknowledged = now.committed;
                        truth.history.push((at, now.committed));
                    }
                    seen.acknowledged = now.committed;
                    copies_have(processes, (p, t), now, newest)?;
                    no_other_member_answers(processes, (p, t), at, now, line)?;
                }
                if seen.opened != since {
                    seen.opened = since;
                    hold!(
                        now.last >= truth.acknowledged,
                        "I9: {} opens at {} in tenure {since}, but {} was acknowledged",
                        now.at,
                        now.last,
                        truth.acknowledged
                    );
                }
            }
            if !now.arriving && last != Epoch(0) && seen.compared != (now.last, last) {
                seen.compared = (now.last, last);
                let content = process.shard.inspector().content(now.at).unwrap_or(0);
                let (first, known) = *truth
                    .contents
                    .entry((now.last, last))
                    .or_insert((me, content));
                hold!(
                    known == content,
                    "I13: {} holds something else in {} at {}@{last} than {first} did",
                    me,
                    now.at,
                    now.last
                );
                self.compared += u64::from(first != me);
            }
            seen.committed = now.committed;
            seen.last = (now.last, last);
            seen.deposed = deposed;
        }
        Ok(())
    }

    /// All is at rest: every in-sync copy must hold what its primary holds.
    pub(crate) fn compare_at_rest(&self, running: &[&Process]) -> Result<u64, String> {
        let mut compared = 0;
        for process in running {
            let Some(view) = &process.view else { continue };
            for keyspace in &view.installed.keyspaces {
                for partition in keyspace
                    .partitions
                    .iter()
                    .filter(|p| p.primary() == process.me)
                {
                    let at = PartitionRef {
                        keyspace: keyspace.id,
                        partition: partition.id,
                    };
                    let shard = shard_of(process, at);
                    let content = shard.inspector().content(at);
                    hold!(content.is_some(), "{at}: its primary holds nothing");
                    // No client calls any more, but keys still expire. A deletion that is on its
                    // way to a copy is not at rest.
                    if shard
                        .inspector()
                        .partitions()
                        .any(|held| held.at == at && held.committed < held.last)
                    {
                        continue;
                    }
                    for member in partition.in_sync().filter(|m| *m != process.me) {
                        let copy = running.iter().find(|p| p.me == member);
                        let other = copy.and_then(|p| shard_of(p, at).inspector().content(at));
                        if other != content {
                            let entries = |p: &Process| shard_of(p, at).inspector().entries(at);
                            let how = difference(entries(process), copy.and_then(|p| entries(p)));
                            return Err(format!(
                                "I6: at rest the copy of {at} on {member} differs from its \
                                 primary's: {how}"
                            ));
                        }
                        same_outcomes(process, copy, at)?;
                        compared += 1;
                    }
                }
            }
        }
        Ok(compared)
    }
}

/// Which of this many data threads has a partition.
fn thread_of(at: PartitionRef, threads: usize) -> usize {
    // There are 16 at most.
    doyen_engine::thread_of(at.partition, threads as u8).into()
}

/// The shard of the data thread that has a partition.
fn shard_of(process: &Process, at: PartitionRef) -> &Shard {
    &process.threads[thread_of(at, process.threads.len())].shard
}

/// Entries of one name are one (I8), and committed ones never change (I9).
fn entries(shard: &Shard, now: &Inspection, from: u64, truth: &mut Truth) -> Result<(), String> {
    for seq in (from.max(now.base) + 1)..=now.last {
        let Some((epoch, digest)) = shard.inspector().entry(now.at, seq) else {
            continue;
        };
        let known = *truth.entries.entry((seq, epoch)).or_insert(digest);
        hold!(
            known == digest,
            "I8: two entries of {} are called {seq}@{epoch}",
            now.at
        );
        if seq <= now.committed {
            let changes = || self::digest(&shard.inspector().changes(now.at, seq));
            truth.told.entry(seq).or_insert_with(changes);
            let known = *truth.committed.entry(seq).or_insert((epoch, digest));
            hold!(
                known == (epoch, digest),
                "I9: {} committed {seq}@{} and now {seq}@{epoch}",
                now.at,
                known.0
            );
        }
    }
    Ok(())
}

/// A node that answers must lead by the table in force, and by the one that it has accepted (I7,
/// rule 5).
fn by_both_tables(process: &Process, now: &Inspection, since: Epoch) -> Result<(), String> {
    let Some(view) = &process.view else {
        return Err(format!(
            "rule 5: {} answers for {} without a table",
            process.me, now.at
        ));
    };
    for table in [&view.installed, &view.accepted] {
        let leads = table
            .partition(now.at)
            .filter(|p| p.primary() == process.me && p.since == since && p.lineage == now.lineage);
        hold!(
            leads.is_some_and(|p| p.in_sync().any(|m| m == process.me)),
            "I7: {} answers for {} in tenure {since}, which it does not lead by table {}.{}",
            process.me,
            now.at,
            table.term,
            table.version
        );
    }
    Ok(())
}

/// When a write is acknowledged, no other node may still answer a read in another tenure: its lease
/// must be over, or it must know the new table (I5). This check needs no read to arrive.
fn no_other_member_answers(
    processes: &[Process],
    (p, t): ThreadId,
    at: Nanos,
    now: &Inspection,
    line: &Line<'_>,
) -> Result<(), String> {
    let me = processes[p].threads[t].shard_me;
    let cluster = line(me, processes[p].threads[t].shard.inspector().cluster());
    for (_, other) in processes
        .iter()
        .enumerate()
        .filter(|(o, other)| *o != p && !other.gone)
    {
        let thread = &other.threads[thread_of(now.at, other.threads.len())];
        let may = Shard::may_answer(
            other.clock(at),
            other.lease,
            thread.shard_generation == other.generation,
        );
        if !may || thread.shard_me != other.me {
            continue;
        }
        if line(other.me, thread.shard.inspector().cluster()) != cluster {
            continue;
        }
        let stale = thread.shard.inspector().partitions().find(|i| {
            i.at == now.at && i.serves() && i.lineage == now.lineage && i.since != now.since
        });
        hold!(
            stale.is_none(),
            "I5: {me} acknowledges {} of {} in tenure {:?}, and {} may still answer as its \
             primary: {stale:?}",
            now.committed,
            now.at,
            now.since,
            other.me
        );
    }
    Ok(())
}

/// Every counting copy must have what a primary acknowledges (I6): by the table that the primary
/// acts on, and by the newest table in force, if it still leads there. A copy that acts on a later
/// table is excused if it does not count there.
fn copies_have(
    processes: &[Process],
    (p, t): ThreadId,
    now: &Inspection,
    newest: Option<&Table>,
) -> Result<(), String> {
    let me = processes[p].threads[t].shard_me;
    let Some(view) = &processes[p].view else {
        return Ok(());
    };
    let Some(installed) = view.installed.partition(now.at) else {
        return Ok(());
    };
    let still = |p: &Partition| {
        p.primary() == me.member() && Some(p.since) == now.since && p.lineage == now.lineage
    };
    let newest = newest
        .and_then(|t| t.partition(now.at))
        .filter(|p| still(p));
    let counting: BTreeSet<MemberId> = installed
        .in_sync()
        .chain(newest.into_iter().flat_map(|p| p.in_sync()))
        .collect();
    for member in counting.into_iter().filter(|m| *m != me.member()) {
        let Some(other) = processes.iter().find(|o| !o.gone && o.me == member) else {
            continue;
        };
        let thread = &other.threads[thread_of(now.at, other.threads.len())];
        if thread.shard_me != member {
            continue;
        }
        let later = other
            .view
            .as_ref()
            .and_then(|v| v.installed.partition(now.at))
            .filter(|p| p.epoch > now.epoch);
        if later.is_some_and(|p| p.lineage != now.lineage || !p.in_sync().any(|m| m == member)) {
            continue;
        }
        let copy = thread
            .shard
            .inspector()
            .partitions()
            .find(|i| i.at == now.at);
        let has = copy.is_some_and(|c| c.lineage == now.lineage && c.last >= now.committed);
        hold!(
            has,
            "I6: {me} acknowledges {} of {}, and {member} has {copy:?}",
            now.committed,
            now.at
        );
    }
    Ok(())
}

/// A retry must find the same outcome at every copy: of each member, the outcomes of operations
/// that it has not finished with. (An undone entry may have told one copy that more is finished.)
fn same_outcomes(
    primary: &Process,
    copy: Option<&&Process>,
    at: PartitionRef,
) -> Result<(), String> {
    let (Some(table), Some(copy)) = (primary.view.as_ref().map(|v| &v.installed), copy) else {
        return Ok(());
    };
    let known = |p: &Process| shard_of(p, at).inspector().outcomes(at).unwrap_or_default();
    let (ours, theirs) = (known(primary), known(copy));
    for origin in ours
        .keys()
        .chain(theirs.keys())
        .filter(|o| table.member(o.member()).is_some())
    {
        let mark = [&ours, &theirs]
            .iter()
            .filter_map(|k| k.get(origin))
            .map(|(mark, _)| *mark)
            .max()
            .unwrap_or(0);
        let unfinished = |known: &BTreeMap<MemberId, InspectedCalls>| {
            let applied = known
                .get(origin)
                .map(|(_, applied)| applied.clone())
                .unwrap_or_default();
            applied
                .into_iter()
                .filter(|(n, _)| *n >= mark)
                .collect::<Vec<_>>()
        };
        let (one, other) = (unfinished(&ours), unfinished(&theirs));
        hold!(
            one == other,
            "idempotence: at rest {at} knows of {origin}'s operations {one:?}, and its copy on {} \
             {other:?}",
            copy.me
        );
    }
    Ok(())
}

/// The first difference between two contents.
fn difference(one: Option<Vec<String>>, other: Option<Vec<String>>) -> String {
    let (Some(one), Some(other)) = (one, other) else {
        return "one of them holds nothing".into();
    };
    let at = one
        .iter()
        .zip(&other)
        .position(|(a, b)| a != b)
        .unwrap_or(one.len().min(other.len()));
    format!(
        "{:?} and {:?} ({} and {} in all)",
        one.get(at),
        other.get(at),
        one.len(),
        other.len()
    )
}
