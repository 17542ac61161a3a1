//! Reads what a running member knows: its threads, its machine, and the ways to its peers.

use super::member::{judge_directory, judge_member};
use crate::clock;
use crate::control::{ClusterStatus, ControlHandle, ControlPaths};
use crate::data::{DataHandle, DataStats, ITSELF_BYTES};
use crate::machine::MachineReading;
use crate::net::endpoint::DATA_SOCKET_BYTES;
use crate::net::identity::Identity;
use crate::net::links::paths::ThreadPaths;
use crate::net::path::PathReading;
use crate::report::examination::{CountedMeanwhile, Examination, PeerReading};
use crate::report::status::DirectoryReport;
use doyen_placement::{Member, Table};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The time between the two looks of an examination, and between two examinations.
const LOOK: Duration = Duration::from_secs(1);
/// How long a thread of this node may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Examines a running member, once a second at most.
#[derive(Debug)]
pub struct Examiner {
    control: ControlHandle,
    data: DataHandle,
    identity: Arc<Identity>,
    /// The last examination, and when it ended. The lock is held while one is made, so further
    /// callers wait for it.
    last: Mutex<Option<(Instant, Examination)>>,
}

/// What is counted, at one moment.
struct LookCounters {
    machine: MachineReading,
    send_errors: BTreeMap<String, u64>,
}

/// What the threads of the node answered. `None`: nothing in time.
struct ThreadAnswers {
    cluster: Option<ClusterStatus>,
    control: Option<ControlPaths>,
    stats: Option<DataStats>,
    data: Option<Vec<ThreadPaths>>,
}

impl Examiner {
    pub(crate) fn new(control: ControlHandle, data: DataHandle, identity: Arc<Identity>) -> Self {
        Self {
            control,
            data,
            identity,
            last: Mutex::default(),
        }
    }

    /// Examines this member, which takes about a second. One that ended within the last second
    /// counts for this call, too.
    pub async fn examine(&self) -> Examination {
        let mut last = self.last.lock().await;
        let lately = last.as_ref().filter(|(at, _)| at.elapsed() < LOOK);
        let lately = lately.map(|(_, seen)| seen.clone());
        let seen = match lately {
            Some(seen) => seen,
            None => {
                let seen = self.look().await;
                *last = Some((Instant::now(), seen.clone()));
                seen
            }
        };
        Examination {
            // Callers compare it with the time at which they get the answer.
            wall_ms: clock::unix_ms(),
            ..seen
        }
    }

    async fn look(&self) -> Examination {
        let before = self.counters().await;
        let (answers, ()) = tokio::join!(self.ask(), tokio::time::sleep(LOOK));
        let after = self.counters().await;
        self.identity.clone().keep().await;
        let mut seen = Examination {
            name: self.identity.name().to_owned(),
            version: env!("CARGO_PKG_VERSION").into(),
            meanwhile: before.until(&after),
            memory_itself: ITSELF_BYTES,
            machine: after.machine,
            send_errors: after.send_errors,
            certificates_behind: self.identity.ports_behind(),
            ..Examination::default()
        };
        let now = i64::try_from(clock::unix_ms() / 1000).unwrap_or(i64::MAX);
        let ends = self.identity.certificate().ends.into_iter();
        seen.certificates = ends
            .map(|(port, ends)| (port.to_owned(), ends.saturating_sub(now)))
            .collect();
        let directory = answers.cluster.as_ref().and_then(|c| c.directory.as_ref());
        let directory = directory.map(DirectoryReport::new);
        answers.tell(&mut seen);
        seen.findings = judge_member(&seen);
        if let Some(writes) = directory {
            let found = judge_directory(&writes, bytes_left(&writes.path).await);
            let found = found.into_iter().map(|finding| finding.of(&seen.name));
            seen.findings.extend(found);
            seen.findings.sort_by_key(|finding| finding.verdict);
        }
        seen
    }

    async fn counters(&self) -> LookCounters {
        let send_errors = self.identity.send_errors().all();
        let send_errors = send_errors.filter(|(_, _, times)| *times > 0);
        let send_errors =
            send_errors.map(|(port, errno, times)| (format!("{port} {errno}"), times));
        let send_errors = send_errors.collect();
        let machine = tokio::task::spawn_blocking(|| MachineReading::new(DATA_SOCKET_BYTES));
        LookCounters {
            // It fails only if the runtime ends, and then there is no answer anyway.
            machine: machine.await.unwrap_or_default(),
            send_errors,
        }
    }

    async fn ask(&self) -> ThreadAnswers {
        let (cluster, control, stats, data) = tokio::join!(
            in_time(self.control.status()),
            in_time(self.control.paths()),
            in_time(self.data.stats()),
            in_time(self.data.paths()),
        );
        ThreadAnswers {
            cluster: cluster.and_then(Result::ok),
            control: control.and_then(Result::ok),
            stats: stats.filter(|_| !self.data.has_ended()),
            data: data.filter(|_| !self.data.has_ended()),
        }
    }
}

/// The bytes that the disk of a directory has left. A disk that does not answer is not waited for.
async fn bytes_left(path: &str) -> Option<u64> {
    let path = path.to_owned();
    let disk = tokio::task::spawn_blocking(move || rustix::fs::statvfs(path).ok());
    let disk = in_time(disk).await?.ok()??;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

async fn in_time<T>(answer: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(ANSWER_MAX, answer).await.ok()
}

impl LookCounters {
    /// What was counted until the second look.
    fn until(&self, after: &Self) -> CountedMeanwhile {
        let grown = |before: Option<u64>, after: Option<u64>| {
            after.unwrap_or(0).saturating_sub(before.unwrap_or(0))
        };
        let throttled = |at: &Self| at.machine.cpu.as_ref().map(|cpu| cpu.throttled);
        let errors = after.send_errors.iter().map(|(error, times)| {
            let before = self.send_errors.get(error).copied();
            (error.clone(), grown(before, Some(*times)))
        });
        CountedMeanwhile {
            throttled: grown(throttled(self), throttled(after)),
            udp_lost: grown(self.machine.udp_lost, after.machine.udp_lost),
            send_errors: errors.filter(|(_, times)| *times > 0).collect(),
        }
    }
}

impl ThreadAnswers {
    /// Adds what the threads answered.
    fn tell(self, seen: &mut Examination) {
        let silent = [
            (
                "the control thread",
                self.cluster.is_none() || self.control.is_none(),
            ),
            ("a data thread", self.stats.is_none() || self.data.is_none()),
        ];
        let silent = silent.iter().filter(|(_, is_silent)| *is_silent);
        seen.silent = silent.map(|(thread, _)| (*thread).to_owned()).collect();
        let stats = self.stats.unwrap_or_default();
        seen.connections_max = stats.connections_max;
        seen.memory_max = stats.shard.memory_bytes_max;
        let threads = self.data.unwrap_or_default();
        seen.threads = threads.len() as u64;
        seen.segments = match &threads[..] {
            [] => None,
            all => Some(all.iter().all(|thread| thread.segments)),
        };
        let control = self.control.unwrap_or_default();
        let mut known = control.seeds.clone();
        if let Some(cluster) = self.cluster {
            seen.id = cluster.status.me.to_string();
            seen.level_max = cluster.level_max;
            if let Some(table) = cluster.installed.as_deref() {
                known.extend(table.members.iter().map(|member| member.addresses.control));
                seen.peers = peers(table, &cluster, &control, &threads);
            }
        }
        seen.seeds = (control.seeds.len() + control.unresolved.len()) as u64;
        seen.seeds_unresolved = control.unresolved;
        let failed = control.failures.into_iter();
        seen.unreached = failed.filter(|(at, _)| known.contains(at)).collect();
    }
}

/// The ways to all other members.
fn peers(
    table: &Table,
    cluster: &ClusterStatus,
    control: &ControlPaths,
    threads: &[ThreadPaths],
) -> Vec<PeerReading> {
    let reading = |member: &Member| {
        let links = threads.iter().flat_map(|thread| &thread.peers);
        let links: Vec<_> = links
            .filter(|(id, _)| id.member() == member.id)
            .map(|(_, link)| link)
            .collect();
        let open = links.iter().filter_map(|link| link.as_ref().ok().copied());
        PeerReading {
            name: member.name.clone(),
            address: member.addresses.data,
            control: control.paths.get(&member.id).copied(),
            data: open.fold(PathReading::default(), PathReading::with),
            links: links.len() as u64,
            missing: links.iter().find_map(|link| link.as_ref().err().cloned()),
        }
    };
    let members = table.members.iter();
    let peers = members.filter(|member| member.id != cluster.status.me);
    peers.map(|member| reading(member)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::CpuBound;
    use crate::report::fixtures;
    use doyen_placement::MemberId;

    fn counters(throttled: u64, lost: u64, errors: &[(&str, u64)]) -> LookCounters {
        let cpu = CpuBound {
            millis: 500,
            source: "cpu.max".into(),
            periods: 10,
            throttled,
        };
        let errors = errors
            .iter()
            .map(|(error, times)| ((*error).into(), *times));
        LookCounters {
            machine: MachineReading {
                cpu: Some(cpu),
                udp_lost: Some(lost),
                ..MachineReading::default()
            },
            send_errors: errors.collect(),
        }
    }

    #[test]
    fn only_what_was_counted_between_the_two_looks_counts() {
        let before = counters(3, 7, &[("data EPERM", 2)]);
        let after = counters(5, 7, &[("data EPERM", 2), ("data ENOBUFS", 4)]);
        let meanwhile = before.until(&after);
        assert_eq!((meanwhile.throttled, meanwhile.udp_lost), (2, 0));
        let errors: Vec<_> = meanwhile.send_errors.into_iter().collect();
        assert_eq!(errors, [("data ENOBUFS".to_owned(), 4)]);
        // A counter that began again has counted nothing.
        assert_eq!(after.until(&before).throttled, 0);
    }

    #[test]
    fn threads_that_do_not_answer_are_named_and_nothing_is_invented() {
        let mut seen = Examination::default();
        let silent = ThreadAnswers {
            cluster: None,
            control: None,
            stats: None,
            data: None,
        };
        silent.tell(&mut seen);
        assert_eq!(seen.silent, ["the control thread", "a data thread"]);
        assert_eq!(
            (seen.segments, seen.peers.len(), seen.threads),
            (None, 0, 0)
        );
    }

    #[test]
    fn the_ways_to_a_member_are_those_of_all_threads() {
        let table = fixtures::cluster(3);
        let ids: Vec<MemberId> = table.members.iter().map(|member| member.id).collect();
        let mut cluster = fixtures::seen(table.clone(), Vec::new(), true);
        cluster.status.me = ids[0];
        let up = PathReading {
            links: 1,
            rtt_us: 500,
            ..PathReading::default()
        };
        let thread = |second: Result<PathReading, String>| ThreadPaths {
            segments: true,
            peers: vec![(ids[1], Ok(up)), (ids[2], second)],
        };
        let threads = vec![thread(Ok(up)), thread(Err("no answer".into()))];
        let failed = |address: std::net::SocketAddr| (address, "refused".to_owned());
        let stranger = ([127, 0, 0, 9], 9).into();
        let control = ControlPaths {
            failures: [failed(table.members[2].addresses.control), failed(stranger)].into(),
            ..ControlPaths::default()
        };
        let answers = ThreadAnswers {
            cluster: Some(cluster),
            control: Some(control),
            stats: Some(DataStats::default()),
            data: Some(threads),
        };
        let mut seen = Examination::default();
        answers.tell(&mut seen);
        assert!(seen.silent.is_empty() && seen.segments == Some(true));
        let of = |at: usize| {
            let peer = &seen.peers[at];
            (peer.data.links, peer.links, peer.missing.as_deref())
        };
        assert_eq!((of(0), of(1)), ((2, 2, None), (1, 2, Some("no answer"))));
        // An address that is neither a member nor a seed is no business of this node any more.
        assert_eq!(seen.unreached.len(), 1, "{:?}", seen.unreached);
    }
}
