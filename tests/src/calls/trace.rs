//! The kernel's tracepoints for some processes. They are taken in an instance of their own, so that
//! other traces are left alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where tracefs is mounted today, and where it was in old kernels.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Room for events, by processor.
const BUFFER_KB: u32 = 64 << 10;

/// What was counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// System calls by the name of the thread and of the call.
    pub(super) calls: BTreeMap<(String, String), usize>,
    /// How often the data thread woke another thread of these processes. Wake-ups by interrupts
    /// that happened to run on the data thread do not count.
    pub(super) woken_others: usize,
}

/// A trace that is being taken.
#[derive(Debug)]
pub(super) struct Tracer {
    instance: PathBuf,
}

impl Tracer {
    /// Traces all threads of these processes.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub(super) fn start(pids: &[u32]) -> Result<Self, String> {
        let root = ROOTS
            .iter()
            .map(Path::new)
            .find(|root| root.join("instances").is_dir());
        let root = root.ok_or(
            "cannot count system calls: there is no tracefs here; \
             mount it at /sys/kernel/tracing, and run this as root",
        )?;
        let instance = root
            .join("instances")
            .join(format!("doyen-{}", std::process::id()));
        fs::create_dir(&instance).map_err(|e| cannot(&instance, &e))?;
        let tracer = Self { instance };
        tracer.write("tracing_on", "0")?;
        tracer.write("buffer_size_kb", &BUFFER_KB.to_string())?;
        tracer.write("set_event_pid", &threads(pids).join(" "))?;
        tracer.write("events/raw_syscalls/sys_enter/enable", "1")?;
        tracer.write("events/sched/sched_waking/enable", "1")?;
        tracer.write("tracing_on", "1")?;
        Ok(tracer)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.instance.join(file);
        fs::write(&path, text).map_err(|e| cannot(&path, &e))
    }

    fn read(&self, file: &str) -> Result<String, String> {
        let path = self.instance.join(file);
        // Names of threads may be anything.
        Ok(String::from_utf8_lossy(&fs::read(&path).map_err(|e| cannot(&path, &e))?).into_owned())
    }

    /// Ends the trace, and counts.
    ///
    /// # Errors
    /// Events were lost, or there are none: then the counts would say nothing.
    pub(super) fn finish(self) -> Result<Counts, String> {
        self.write("tracing_on", "0")?;
        let own = self.read("set_event_pid")?;
        let own: Vec<&str> = own.split_whitespace().collect();
        for cpu in fs::read_dir(self.instance.join("per_cpu"))
            .map_err(|e| cannot(&self.instance, &e))?
            .flatten()
        {
            let stats = fs::read_to_string(cpu.path().join("stats")).unwrap_or_default();
            let lost = stats
                .lines()
                .filter_map(|l| l.split_once(": "))
                .find(|(name, _)| *name == "overrun")
                .is_some_and(|(_, n)| n.trim() != "0");
            if lost {
                return Err(
                    "cannot count system calls: the kernel's buffer was too small for all of them"
                        .into(),
                );
            }
        }
        let counts = count(&self.read("trace")?, &own);
        if counts.calls.is_empty() {
            Err("cannot count system calls: the kernel told of none".into())
        } else {
            Ok(counts)
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // What we cannot remove goes when the machine restarts.
        let _ = self.write("tracing_on", "0");
        let _ = self.write("events/enable", "0");
        let _ = fs::remove_dir(&self.instance);
    }
}

fn cannot(path: &Path, e: &std::io::Error) -> String {
    format!(
        "cannot count system calls: {}: {e}; \
         run this as root, on a kernel with tracepoints for system calls",
        path.display()
    )
}

fn threads(pids: &[u32]) -> Vec<String> {
    let tasks = pids
        .iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    tasks
        .flat_map(|tasks| {
            tasks
                .flatten()
                .filter_map(|t| t.file_name().into_string().ok())
        })
        .collect()
}

/// Counts the events of a trace, for the threads of these processes.
fn count(trace: &str, own: &[&str]) -> Counts {
    let mut counts = Counts::default();
    for line in trace.lines().filter(|l| !l.starts_with('#')) {
        let Some(event) = Event::parse(line) else {
            continue;
        };
        if let Some(number) = event.what.strip_prefix("sys_enter: NR ") {
            let number = number.split_whitespace().next().unwrap_or_default();
            *counts
                .calls
                .entry((event.thread.to_owned(), name(number)))
                .or_default() += 1;
        } else if let Some(woken) = event.what.strip_prefix("sched_waking: ")
            && event.thread == super::DATA
            && !event.in_interrupt
        {
            let pid = woken
                .split_whitespace()
                .find_map(|w| w.strip_prefix("pid="));
            counts.woken_others +=
                usize::from(pid.is_some_and(|p| own.contains(&p) && p != event.pid));
        }
    }
    counts
}

/// `   doyen-data-24641   [001] d.s5. 24926.533056: sched_waking: comm=figures pid=25280 prio=130
/// target_cpu=000`
#[derive(Debug, PartialEq, Eq)]
struct Event<'a> {
    thread: &'a str,
    pid: &'a str,
    /// It came from a device, a timer or the network: the thread was only interrupted.
    in_interrupt: bool,
    what: &'a str,
}

impl<'a> Event<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (who, rest) = line.split_once(" [")?;
        let (thread, pid) = who.trim().rsplit_once('-')?;
        let (_, rest) = rest.split_once("] ")?;
        let (flags, rest) = rest.split_once(' ')?;
        let (_, what) = rest.split_once(": ")?;
        Some(Self {
            thread,
            pid,
            in_interrupt: flags.contains(['h', 'H', 's', 'z', 'Z']),
            what: what.trim(),
        })
    }
}

/// The name of a system call if a data thread makes it; otherwise its number.
fn name(number: &str) -> String {
    #[cfg(target_arch = "x86_64")]
    const NAMES: &[(&str, &str)] = &[
        ("0", "read"),
        ("1", "write"),
        ("20", "writev"),
        ("28", "madvise"),
        ("44", "sendto"),
        ("45", "recvfrom"),
        ("46", "sendmsg"),
        ("47", "recvmsg"),
        ("202", "futex"),
        ("228", "clock_gettime"),
        ("232", "epoll_wait"),
        ("281", "epoll_pwait"),
        ("299", "recvmmsg"),
        ("307", "sendmmsg"),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const NAMES: &[(&str, &str)] = &[
        ("22", "epoll_pwait"),
        ("63", "read"),
        ("64", "write"),
        ("66", "writev"),
        ("98", "futex"),
        ("113", "clock_gettime"),
        ("206", "sendto"),
        ("207", "recvfrom"),
        ("211", "sendmsg"),
        ("212", "recvmsg"),
        ("233", "madvise"),
        ("243", "recvmmsg"),
        ("269", "sendmmsg"),
    ];
    NAMES.iter().find(|(n, _)| *n == number).map_or_else(
        || format!("number {number}"),
        |(_, name)| (*name).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# tracer: nop
      doyen-data-11   [001] ..... 24926.641139: sys_enter: NR 0 (11, 7fbb9cc73758, 10, 0, 0, 0)
      doyen-data-11   [001] ..... 24926.641140: sys_enter: NR 0 (11, 7fbb9cc73758, 10, 0, 0, 0)
     name with-a-12   [000] ..... 24926.641141: sys_enter: NR 9999 (11, 7fbb9cc73758, 10, 0, 0, 0)
      doyen-data-11   [001] d.s5. 24926.533056: sched_waking: comm=doyen-control pid=12 prio=130 target_cpu=000
      doyen-data-11   [001] d..2. 24926.533056: sched_waking: comm=figures pid=77 prio=130 target_cpu=000
      doyen-data-11   [001] d..2. 24926.533056: sched_waking: comm=doyen-control pid=12 prio=130 target_cpu=000
     name with-a-12   [001] d..2. 24926.533056: sched_waking: comm=doyen-data pid=11 prio=130 target_cpu=000
";

    #[test]
    fn calls_count_by_thread_and_wakeups_where_the_data_thread_made_them() {
        let counts = count(TRACE, &["11", "12"]);
        let first = if cfg!(target_arch = "x86_64") {
            "read"
        } else {
            "number 0"
        };
        let calls: Vec<_> = counts
            .calls
            .iter()
            .map(|((thread, call), n)| (thread.as_str(), call.as_str(), *n))
            .collect();
        assert_eq!(
            calls,
            [("doyen-data", first, 2), ("name with-a", "number 9999", 1)]
        );
        assert_eq!(counts.woken_others, 1);
    }
}
