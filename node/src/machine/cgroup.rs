//! How much memory and processor time this process may use, by its control groups and the machine,
//! and which file says so.
//!
//! ```text
//!   /proc/self/mountinfo   where hierarchies of control groups are mounted, and which part of each
//!   /proc/self/cgroup      the group of this process in each hierarchy
//!          └─> the directory of the group, and of each visible group around it
//! ```
//! The limits of its group and of every group around it hold for a process. The version of the
//! hierarchy decides which files have the limits. Some machines have both versions.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The lowest limit on the memory of this process.
///
/// Example: [`Examination`].
///
/// [`Examination`]: crate::report::examination::Examination
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryBound {
    /// The limit.
    pub bytes: u64,
    /// The file with the limit.
    pub source: String,
}

/// The lowest limit on the processor time of this process.
///
/// Example: [`Examination`].
///
/// [`Examination`]: crate::report::examination::Examination
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuBound {
    /// Thousandths of a processor.
    pub millis: u64,
    /// The file with the limit.
    pub source: String,
    /// Periods in which processes of the group ran, since it was made.
    pub periods: u64,
    /// Those in which the system stopped them, because the limit was reached.
    pub throttled: u64,
}

/// The file with the memory of the machine.
const MEMINFO: &str = "/proc/meminfo";
/// Files of a version 2 group with limits. Above `memory.high`, the kernel slows the group's
/// processes down until they hold less.
const LIMITS_V2: [&str; 2] = ["memory.max", "memory.high"];
const LIMIT_V1: &str = "memory.limit_in_bytes";
/// A file of version 1 with the lowest limit of all groups around this one, also of those that are
/// not visible.
const STAT_V1: &str = "memory.stat";
const HIERARCHICAL_V1: &str = "hierarchical_memory_limit";
/// The file with the microseconds of processor time in a period, and the period.
const CPU_V2: &str = "cpu.max";
/// The same in two files.
const CPU_V1: [&str; 2] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"];

/// The bound of this process; `None` if it is unknown, as on systems other than Linux.
pub(crate) fn bound() -> Option<MemoryBound> {
    bound_under(Path::new("/"))
}

/// The same, with all paths below `root`.
fn bound_under(root: &Path) -> Option<MemoryBound> {
    let read = |path: &str| fs::read_to_string(under(root, Path::new(path))).unwrap_or_default();
    let machine = meminfo(&read(MEMINFO)).map(|bytes| MemoryBound {
        bytes,
        source: MEMINFO.into(),
    });
    let groups = groups_of(root, "memory").into_iter();
    let limits = groups.flat_map(|(version, directory)| memory_limits(root, version, &directory));
    // The machine comes first: a group without a limit reports a number above any machine's memory.
    machine
        .into_iter()
        .chain(limits)
        .min_by_key(|bound| bound.bytes)
}

/// The lowest limit on processor time; `None`: there is none.
pub(crate) fn cpu_bound() -> Option<CpuBound> {
    cpu_bound_under(Path::new("/"))
}

fn cpu_bound_under(root: &Path) -> Option<CpuBound> {
    let groups = groups_of(root, "cpu").into_iter();
    let limits = groups.filter_map(|(version, directory)| cpu_limit(root, version, &directory));
    limits.min_by_key(|bound| bound.millis)
}

/// The name of the service of systemd that this process belongs to.
pub(crate) fn unit() -> Option<String> {
    unit_in(&fs::read_to_string("/proc/self/cgroup").ok()?)
}

fn unit_in(groups: &str) -> Option<String> {
    let names = groups.lines().filter_map(|line| line.rsplit_once('/'));
    let units = names
        .map(|(_, name)| name)
        .filter(|name| name.ends_with(".service"));
    units.map(str::to_owned).next()
}

/// The directories of the groups of this process that may limit what a controller controls, each
/// with the version of its hierarchy.
fn groups_of(root: &Path, controller: &str) -> Vec<(Version, PathBuf)> {
    let read = |path: &str| fs::read_to_string(under(root, Path::new(path))).unwrap_or_default();
    let groups = read("/proc/self/cgroup");
    let mounts = read("/proc/self/mountinfo");
    let hierarchies = mounts
        .lines()
        .filter_map(|line| Hierarchy::of(line, controller));
    let directories = hierarchies.flat_map(|hierarchy| {
        let group = groups
            .lines()
            .find_map(|line| hierarchy.version.group(line, controller))
            .unwrap_or("/");
        let version = hierarchy.version;
        let directories = hierarchy.directories(Path::new(group)).into_iter();
        directories.map(move |directory| (version, directory))
    });
    directories.collect()
}

/// A path below another root.
fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Version {
    /// The group in a line of `/proc/self/cgroup`, if the line is about this hierarchy.
    fn group<'a>(self, line: &'a str, controller: &str) -> Option<&'a str> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let ours = match self {
            Self::V1 => controllers.split(',').any(|c| c == controller),
            Self::V2 => controllers.is_empty(),
        };
        ours.then_some(group)
    }
}

/// A mounted hierarchy of groups.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// The group that is mounted: the groups below it are visible.
    mounted: PathBuf,
    at: PathBuf,
}

impl Hierarchy {
    /// Parses a line of `mountinfo`, if it is about a hierarchy that may have the controller: `36 35
    /// 98:0 /group /mount/point rw,noatime master:1 - type source options`. There may be any number
    /// of words before the dash.
    fn of(line: &str, controller: &str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
        let version = match kind {
            "cgroup2" => Version::V2,
            "cgroup" if options.split(',').any(|option| option == controller) => Version::V1,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3);
        let (mounted, at) = (unescaped(fields.next()?), unescaped(fields.next()?));
        Some(Self {
            version,
            mounted: mounted.into(),
            at: at.into(),
        })
    }

    /// The directories of a group and of the groups around it that are visible.
    fn directories(&self, group: &Path) -> Vec<PathBuf> {
        let plain = |path: &Path| !path.components().any(|c| c == Component::ParentDir);
        // The group may be above the mounted part or beside it, for example in a container that
        // mounts only its own part and still sees the full name. Then the mounted part is the
        // nearest that is visible.
        let below = group
            .strip_prefix(&self.mounted)
            .ok()
            .filter(|below| plain(below))
            .unwrap_or(Path::new(""))
            .to_owned();
        let ancestors = below.ancestors().map(|below| self.at.join(below));
        ancestors.collect()
    }
}

/// The limits of a group on memory.
fn memory_limits(root: &Path, version: Version, directory: &Path) -> Vec<MemoryBound> {
    let read = |path: &Path| fs::read_to_string(under(root, path)).ok();
    let bound = |bytes, source: PathBuf| MemoryBound {
        bytes,
        source: source.display().to_string(),
    };
    let names: &[&str] = match version {
        Version::V1 => &[LIMIT_V1],
        Version::V2 => &LIMITS_V2,
    };
    let mut limits = Vec::new();
    for source in names.iter().map(|name| directory.join(name)) {
        // `max` is not a number, and means no limit.
        let bytes = read(&source).and_then(|text| text.trim().parse().ok());
        limits.extend(bytes.map(|bytes| bound(bytes, source)));
    }
    if version == Version::V1 {
        let source = directory.join(STAT_V1);
        let bytes = read(&source).and_then(|text| figure(&text, HIERARCHICAL_V1));
        limits.extend(bytes.map(|bytes| bound(bytes, source)));
    }
    limits
}

/// The limit of a group on processor time.
fn cpu_limit(root: &Path, version: Version, directory: &Path) -> Option<CpuBound> {
    let read = |name: &str| fs::read_to_string(under(root, &directory.join(name))).ok();
    let (source, quota, period) = match version {
        Version::V1 => (CPU_V1[0], read(CPU_V1[0])?, read(CPU_V1[1])?),
        Version::V2 => {
            let text = read(CPU_V2)?;
            let (quota, period) = text.trim().split_once(' ')?;
            (CPU_V2, quota.to_owned(), period.to_owned())
        }
    };
    // `max` and -1 mean no limit.
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    let stat = read("cpu.stat").unwrap_or_default();
    Some(CpuBound {
        millis: quota.saturating_mul(1000).checked_div(period)?,
        source: directory.join(source).display().to_string(),
        periods: figure(&stat, "nr_periods").unwrap_or(0),
        throttled: figure(&stat, "nr_throttled").unwrap_or(0),
    })
}

/// The number behind this word in a file of lines `word number`.
pub(super) fn figure(text: &str, word: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
}

/// Decodes a path of `mountinfo`, where a backslash and three octal digits stand for a space, tab,
/// line end or backslash.
fn unescaped(field: &str) -> String {
    let mut path = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        path += before;
        let digits = after
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(digits.map_or('\\', char::from));
        rest = digits.map_or(after, |_| &after[3..]);
    }
    path + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const GIB: u64 = 1 << 30;
    const UNIFIED: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const MEMORY_V1: &str =
        "41 32 0:37 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";

    /// A machine with 16 GiB, and with these groups, mounts and files.
    fn machine(groups: &str, mounts: &str, files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let all = [
            ("/proc/meminfo", "MemTotal: 16777216 kB\n"),
            ("/proc/self/cgroup", groups),
            ("/proc/self/mountinfo", mounts),
        ];
        for (path, text) in all.iter().chain(files) {
            let path = under(root.path(), Path::new(path));
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, text).expect("written");
        }
        root
    }

    /// The bound of a process on such a machine.
    fn found(groups: &str, mounts: &str, files: &[(&str, &str)]) -> (u64, String) {
        let bound =
            bound_under(machine(groups, mounts, files).path()).expect("the machine has memory");
        (bound.bytes, bound.source)
    }

    #[test]
    fn meminfo_is_parsed() {
        assert_eq!(
            meminfo("MemTotal:       16318412 kB\nMemFree: 1 kB\n"),
            Some(16_318_412 * 1024)
        );
        assert_eq!(meminfo("nothing"), None);
    }

    #[test]
    fn without_groups_the_machine_counts_and_without_it_the_bound_is_unknown() {
        assert_eq!(found("", "", &[]), (16 * GIB, "/proc/meminfo".into()));
        assert_eq!(
            bound_under(tempfile::tempdir().expect("a directory").path()),
            None
        );
    }

    #[test]
    fn the_group_of_a_systemd_service_counts() {
        let max = (
            "/sys/fs/cgroup/system.slice/doyen.service/memory.max",
            "536870912\n",
        );
        let rest = [
            ("/sys/fs/cgroup/system.slice/memory.max", "max\n"),
            (
                "/sys/fs/cgroup/system.slice/doyen.service/memory.high",
                "max\n",
            ),
        ];
        let (bytes, source) = found(
            "0::/system.slice/doyen.service\n",
            UNIFIED,
            &[max, rest[0], rest[1]],
        );
        assert_eq!((bytes, source.as_str()), (GIB / 2, max.0));
    }

    #[test]
    fn the_lowest_limit_of_all_groups_around_counts_including_the_one_that_slows_down() {
        let files = [
            ("/sys/fs/cgroup/a/b/c/memory.max", "4294967296\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "2147483648\n"),
            ("/sys/fs/cgroup/a/beside/memory.max", "1\n"),
        ];
        assert_eq!(
            found("0::/a/b/c\n", UNIFIED, &files),
            (2 * GIB, files[2].0.into())
        );
        let high = ("/sys/fs/cgroup/a/b/memory.high", "1073741824\n");
        assert_eq!(
            found("0::/a/b/c\n", UNIFIED, &[files[0], files[2], high]),
            (GIB, high.0.into())
        );
    }

    #[test]
    fn a_container_that_sees_its_own_group_as_the_root_is_bound_by_it() {
        let max = ("/sys/fs/cgroup/memory.max", "1073741824\n");
        assert_eq!(found("0::/\n", UNIFIED, &[max]), (GIB, max.0.into()));
    }

    /// Docker with the host's namespace, version 1: the name of the group begins at the host's
    /// root, but only its own part is mounted.
    #[test]
    fn a_mounted_part_of_a_hierarchy_is_found_below_its_mount_point() {
        let mount =
            "41 32 0:37 /docker/abc /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n";
        let limit = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
        assert_eq!(
            found("4:memory:/docker/abc\n", mount, &[limit]),
            (GIB / 2, limit.0.into())
        );
        let inner = (
            "/sys/fs/cgroup/memory/inner/memory.limit_in_bytes",
            "268435456\n",
        );
        assert_eq!(
            found("4:cpu,memory:/docker/abc/inner\n", mount, &[limit, inner]),
            (GIB / 4, inner.0.into())
        );
    }

    #[test]
    fn for_a_group_outside_the_mounted_part_the_mounted_part_counts() {
        let limit = ("/sys/fs/cgroup/memory.max", "1073741824\n");
        for group in ["0::/../elsewhere\n", "0::/..\n", "0::/docker/other\n"] {
            let mount = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
            assert_eq!(
                found(
                    group,
                    mount,
                    &[limit, ("/sys/fs/elsewhere/memory.max", "1\n")]
                ),
                (GIB, limit.0.into()),
                "{group}"
            );
            let other = found(
                group,
                UNIFIED,
                &[limit, ("/sys/fs/elsewhere/memory.max", "1\n")],
            );
            assert_eq!(other, (GIB, limit.0.into()), "{group}");
        }
    }

    #[test]
    fn version_1_without_a_limit_reports_a_number_above_any_machine() {
        let none = (
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(
            found("4:memory:/a\n", MEMORY_V1, &[none]),
            (16 * GIB, "/proc/meminfo".into())
        );
    }

    #[test]
    fn version_1_reports_limits_of_groups_that_are_not_visible() {
        let mount =
            "41 32 0:37 /docker/abc /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n";
        let stat = (
            "/sys/fs/cgroup/memory/memory.stat",
            "cache 4096\nhierarchical_memory_limit 1073741824\nhierarchical_memsw_limit 5\n",
        );
        let files = [
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            stat,
        ];
        assert_eq!(
            found("4:memory:/docker/abc\n", mount, &files),
            (GIB, stat.0.into())
        );
    }

    /// Both versions on one machine: version 2 has the process, version 1 controls the memory.
    #[test]
    fn with_both_versions_the_lowest_limit_counts() {
        let unified = "43 32 0:39 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw\n";
        let (groups, mounts) = (
            "4:memory:/a\n3:cpu,cpuacct:/other\n0::/b\n",
            format!("{MEMORY_V1}{unified}"),
        );
        let first = (
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "2147483648\n",
        );
        let second = ("/sys/fs/cgroup/unified/b/memory.max", "1073741824\n");
        assert_eq!(found(groups, &mounts, &[first]), (2 * GIB, first.0.into()));
        assert_eq!(
            found(groups, &mounts, &[first, second]),
            (GIB, second.0.into())
        );
    }

    #[test]
    fn mount_points_with_spaces_are_parsed_and_other_lines_are_ignored() {
        let line = r"41 32 0:37 / /a\040b\134 rw shared:9 master:1 - cgroup2 cgroup2 rw";
        let found = Hierarchy::of(line, "memory").expect("it is one");
        assert_eq!(
            (found.version, found.at),
            (Version::V2, PathBuf::from(r"/a b\"))
        );
        for other in [
            "",
            "41 32",
            "1 2 3 / /x rw - ext4 /dev/sda rw",
            "1 2 3 / /x rw - cgroup cgroup rw,cpu",
            "1 2 - cgroup2",
        ] {
            assert_eq!(Hierarchy::of(other, "memory"), None, "{other}");
        }
        assert_eq!(
            (unescaped(r"a\"), unescaped(r"a\09"), unescaped(r"\999")),
            (r"a\".into(), r"a\09".into(), r"\999".into())
        );
    }

    #[test]
    fn the_lowest_limit_on_processor_time_counts_with_the_periods_of_its_own_group() {
        let stat = "usage_usec 9\nnr_periods 200\nnr_throttled 30\nthrottled_usec 5\n";
        let files = [
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/a/cpu.stat", stat),
            ("/sys/fs/cgroup/cpu.max", "400000 100000\n"),
        ];
        let found = cpu_bound_under(machine("0::/a/b\n", UNIFIED, &files).path());
        let wanted = CpuBound {
            millis: 1500,
            source: files[1].0.into(),
            periods: 200,
            throttled: 30,
        };
        assert_eq!(found, Some(wanted));
        let mount = "42 32 0:38 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
        let quota = |quota| {
            [
                ("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", quota),
                ("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
            ]
        };
        let of = |text| {
            let root = machine("3:cpu,cpuacct:/a\n", mount, &quota(text));
            cpu_bound_under(root.path()).map(|bound| bound.millis)
        };
        assert_eq!((of("50000\n"), of("-1\n")), (Some(500), None));
        assert_eq!(cpu_bound_under(machine("", "", &[]).path()), None);
    }

    #[test]
    fn the_service_of_systemd_is_named_by_the_group() {
        let service = unit_in("4:memory:/\n0::/system.slice/doyen.service\n");
        assert_eq!(service.as_deref(), Some("doyen.service"));
        assert_eq!(unit_in("0::/user.slice/session-1.scope\n"), None);
    }
}
