//! How much memory this process may use: the machine's, or the lowest limit of its control groups.
//!
//! ```text
//!   /proc/self/mountinfo   where hierarchies of control groups are mounted, and which part of each
//!   /proc/self/cgroup      the group of this process in each hierarchy
//!          └─> the directory of the group, and of each visible group around it
//! ```
//! The limits of its group and of every group around it hold for a process. The version of the
//! hierarchy decides which files have the limits. Some machines have both versions.

use super::value::Size;
use super::{ConfigError, Defaults, Options, fail};
use crate::data::ITSELF_BYTES;
use std::path::{Component, Path, PathBuf};
use std::{fmt, fs};

/// By default, the largest value is this part of a data thread's memory.
const VALUE_PART: usize = 8;
/// The lowest `--value-max`.
const VALUE_BYTES_LEAST: usize = 1024;
/// The highest `--value-max`. A value travels in one piece, and a data thread closes a connection
/// with more than 96 MiB of incomplete frames (`net::links`).
const VALUE_BYTES_MOST: usize = 64 << 20;
/// The least memory of a data thread, as its part of `--memory-max`.
const MEMORY_BYTES_LEAST: usize = 1 << 20;
/// The lowest `--range-max`.
const RANGE_BYTES_LEAST: usize = 64 << 10;

/// What the memory of a node is for. Example: [`Memory`].
#[derive(Debug, Clone)]
pub struct MemoryConfig {
    /// The memory that the node may hold: entries, log tails, snapshots, buffers, and what the
    /// allocator keeps.
    pub of_node: Memory,
    /// Whether the process belongs to this node alone.
    pub whole_process: bool,
    /// The largest value.
    pub value_bytes_max: usize,
    /// A range of keys is split when it has more bytes than this.
    pub range_bytes_max: usize,
}

impl MemoryConfig {
    pub(super) fn resolve(
        options: &Options,
        defaults: Defaults,
        threads: u8,
    ) -> Result<Self, ConfigError> {
        // The program that embeds a node needs the larger part of the memory for itself.
        let quarters = match defaults {
            Defaults::Binary => 3,
            Defaults::Embedded => 1,
        };
        let of_node = Memory::resolve(options.memory_max.map(|size| size.0), bound(), quarters);
        let bytes_max = bytes(Size(of_node.bytes));
        let of_thread = bytes_max / usize::from(threads);
        if of_thread < MEMORY_BYTES_LEAST {
            let least = MEMORY_BYTES_LEAST >> 20;
            return fail(format!(
                "--memory-max {bytes_max} is too small: give at least {least}mb for each \
                 of --threads {threads}"
            ));
        }
        let range_bytes_max = options.range_max.map_or(64 << 20, bytes);
        if range_bytes_max < RANGE_BYTES_LEAST {
            return fail(format!(
                "--range-max {range_bytes_max} would split ranges without end: give at least 64kb"
            ));
        }
        Ok(Self {
            of_node,
            whole_process: defaults == Defaults::Binary,
            value_bytes_max: value_bytes_max(options, bytes_max, threads)?,
            range_bytes_max,
        })
    }

    /// How much memory the node may hold, in bytes.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        bytes(Size(self.of_node.bytes))
    }
}

/// `--value-max`, of a node with this memory.
fn value_bytes_max(options: &Options, memory: usize, threads: u8) -> Result<usize, ConfigError> {
    let of_thread = memory / usize::from(threads);
    let Some(value) = options.value_max.map(bytes) else {
        return Ok((16 << 20).min(of_thread / VALUE_PART));
    };
    if value < VALUE_BYTES_LEAST {
        return fail(format!(
            "--value-max {value} is too small: give at least {VALUE_BYTES_LEAST} bytes"
        ));
    }
    if value > VALUE_BYTES_MOST {
        return fail(format!(
            "--value-max {value} is too large: give at most {}mb, because a value travels in one \
             piece",
            VALUE_BYTES_MOST >> 20
        ));
    }
    if value > memory {
        return fail(format!(
            "--value-max {value} is more than --memory-max {memory}: give a lower value, or more \
             memory"
        ));
    }
    if value > of_thread {
        return fail(format!(
            "--value-max {value} is more than the part of --memory-max {memory} that each of \
             --threads {threads} has: give a lower value, more memory, or fewer threads"
        ));
    }
    Ok(value)
}

fn bytes(size: Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

/// The lowest limit on the memory of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    bytes: u64,
    /// The file with the limit.
    source: PathBuf,
}

/// How much memory the node may hold, and why.
///
/// ```
/// use doyen::config::{Defaults, Options};
///
/// let config = Options::default().resolve(Defaults::Embedded)?;
/// println!("{} ({} bytes)", config.memory.of_node, config.memory.bytes_max());
/// assert!(!config.memory.of_node.exceeds_bound());
/// # Ok::<_, doyen::config::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The amount in bytes.
    pub bytes: u64,
    said: bool,
    quarters: u64,
    bound: Option<Bound>,
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

impl Memory {
    /// The amount that the operator gave, or this many quarters of the bound.
    pub(super) fn resolve(said: Option<u64>, bound: Option<Bound>, quarters: u64) -> Self {
        // If the bound is unknown (not Linux), make a careful guess.
        let there = bound.as_ref().map_or(4 << 30, |bound| bound.bytes);
        // The rest is for the kernel's buffers and for peaks.
        let default = (there.saturating_sub(ITSELF_BYTES) / 4 * quarters).max(there / 4);
        Self {
            bytes: said.unwrap_or(default),
            said: said.is_some(),
            quarters,
            bound,
        }
    }

    /// Whether the system would kill the process before it holds as much as it may.
    #[must_use]
    pub fn exceeds_bound(&self) -> bool {
        self.bound
            .as_ref()
            .is_some_and(|bound| self.bytes.saturating_add(ITSELF_BYTES) > bound.bytes)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        write!(f, "memory: at most {} MiB, ", mib(self.bytes))?;
        match (&self.bound, self.said) {
            (Some(bound), true) => write!(
                f,
                "given by --memory-max; {} allows {} MiB",
                bound.source.display(),
                mib(bound.bytes)
            ),
            (Some(bound), false) if self.quarters == 1 => write!(
                f,
                "a quarter of the {} MiB that {} allows",
                mib(bound.bytes),
                bound.source.display()
            ),
            (Some(bound), false) => write!(
                f,
                "three quarters of the {} MiB that {} allows, less the needs of the process itself",
                mib(bound.bytes),
                bound.source.display()
            ),
            (None, true) => write!(f, "given by --memory-max"),
            (None, false) => write!(
                f,
                "because this system does not report its memory; give --memory-max"
            ),
        }
    }
}

/// The bound of this process; `None` if it is unknown, as on systems other than Linux.
pub(super) fn bound() -> Option<Bound> {
    bound_under(Path::new("/"))
}

/// The same, with all paths below `root`.
fn bound_under(root: &Path) -> Option<Bound> {
    let read = |path: &str| fs::read_to_string(under(root, Path::new(path))).unwrap_or_default();
    let machine = meminfo(&read(MEMINFO)).map(|bytes| Bound {
        bytes,
        source: PathBuf::from(MEMINFO),
    });
    let groups = read("/proc/self/cgroup");
    let hierarchies: Vec<Hierarchy> = read("/proc/self/mountinfo")
        .lines()
        .filter_map(Hierarchy::of)
        .collect();
    let limits = hierarchies.iter().flat_map(|hierarchy| {
        let group = groups
            .lines()
            .find_map(|line| hierarchy.version.group(line))
            .unwrap_or("/");
        hierarchy.limits(root, Path::new(group))
    });
    // The machine comes first: a group without a limit reports a number above any machine's memory.
    machine
        .into_iter()
        .chain(limits)
        .min_by_key(|bound| bound.bytes)
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
    fn group(self, line: &str) -> Option<&str> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let ours = match self {
            Self::V1 => controllers.split(',').any(|c| c == "memory"),
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
    /// Parses a line of `mountinfo`, if it is about a hierarchy that may limit memory: `36 35 98:0
    /// /group /mount/point rw,noatime master:1 - type source options`. There may be any number of
    /// words before the dash.
    fn of(line: &str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
        let version = match kind {
            "cgroup2" => Version::V2,
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::V1,
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
    fn directories(&self, group: &Path) -> impl Iterator<Item = PathBuf> {
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
        let at = self.at.clone();
        let ancestors: Vec<PathBuf> = below.ancestors().map(|below| at.join(below)).collect();
        ancestors.into_iter()
    }

    /// The limits of a group and of the groups around it.
    fn limits(&self, root: &Path, group: &Path) -> Vec<Bound> {
        let read = |path: &Path| fs::read_to_string(under(root, path)).ok();
        let mut limits = Vec::new();
        for directory in self.directories(group) {
            let names: &[&str] = if self.version == Version::V1 {
                &[LIMIT_V1]
            } else {
                &LIMITS_V2
            };
            for source in names.iter().map(|name| directory.join(name)) {
                // `max` is not a number, and means no limit.
                let bytes = read(&source).and_then(|text| text.trim().parse().ok());
                limits.extend(bytes.map(|bytes| Bound { bytes, source }));
            }
            if self.version == Version::V1 {
                let source = directory.join(STAT_V1);
                let bytes = read(&source).and_then(|text| {
                    text.lines()
                        .find_map(|l| l.strip_prefix(HIERARCHICAL_V1)?.trim().parse().ok())
                });
                limits.extend(bytes.map(|bytes| Bound { bytes, source }));
            }
        }
        limits
    }
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
        (bound.bytes, bound.source.display().to_string())
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
    fn three_quarters_of_the_bound_are_used_and_the_text_says_why() {
        let bound = Bound {
            bytes: 512 << 20,
            source: "/sys/fs/cgroup/a/memory.max".into(),
        };
        let default = Memory::resolve(None, Some(bound.clone()), 3);
        assert_eq!((default.bytes, default.exceeds_bound()), (360 << 20, false));
        assert_eq!(
            default.to_string(),
            "memory: at most 360 MiB, three quarters of the 512 MiB that \
             /sys/fs/cgroup/a/memory.max allows, less the needs of the process itself"
        );
        let said = Memory::resolve(Some(480 << 20), Some(bound.clone()), 3);
        assert_eq!((said.bytes, said.exceeds_bound()), (480 << 20, false));
        assert_eq!(
            said.to_string(),
            "memory: at most 480 MiB, given by --memory-max; /sys/fs/cgroup/a/memory.max allows \
             512 MiB"
        );
        assert!(
            Memory::resolve(Some(481 << 20), Some(bound.clone()), 3).exceeds_bound(),
            "the process itself needs some"
        );
        let embedded = Memory::resolve(None, Some(bound.clone()), 1);
        assert_eq!(
            embedded.to_string(),
            "memory: at most 128 MiB, a quarter of the 512 MiB that \
             /sys/fs/cgroup/a/memory.max allows"
        );
        assert!(!Memory::resolve(Some(1 << 60), None, 3).exceeds_bound());
        assert_eq!(
            Memory::resolve(None, None, 3).bytes,
            (4 << 30) / 4 * 3 - (24 << 20)
        );
        let small = Memory::resolve(
            None,
            Some(Bound {
                bytes: 32 << 20,
                source: MEMINFO.into(),
            }),
            3,
        );
        assert_eq!(small.bytes, 8 << 20, "there is always something");
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
        let found = Hierarchy::of(line).expect("it is one");
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
            assert_eq!(Hierarchy::of(other), None, "{other}");
        }
        assert_eq!(
            (unescaped(r"a\"), unescaped(r"a\09"), unescaped(r"\999")),
            (r"a\".into(), r"a\09".into(), r"\999".into())
        );
    }
}
