//! How much memory a node may use: what the operator gives, or a part of the lowest limit on this
//! process (`machine::cgroup`).

use super::value::Size;
use super::{ConfigError, Defaults, Options, fail};
use crate::data::ITSELF_BYTES;
use crate::machine::cgroup::{MemoryBound, bound};
use std::fmt;

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
    bound: Option<MemoryBound>,
}

impl Memory {
    /// The amount that the operator gave, or this many quarters of the bound.
    pub(super) fn resolve(said: Option<u64>, bound: Option<MemoryBound>, quarters: u64) -> Self {
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
                bound.source,
                mib(bound.bytes)
            ),
            (Some(bound), false) if self.quarters == 1 => write!(
                f,
                "a quarter of the {} MiB that {} allows",
                mib(bound.bytes),
                bound.source
            ),
            (Some(bound), false) => write!(
                f,
                "three quarters of the {} MiB that {} allows, less the needs of the process itself",
                mib(bound.bytes),
                bound.source
            ),
            (None, true) => write!(f, "given by --memory-max"),
            (None, false) => write!(
                f,
                "because this system does not report its memory; give --memory-max"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_quarters_of_the_bound_are_used_and_the_text_says_why() {
        let bound = MemoryBound {
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
            Some(MemoryBound {
                bytes: 32 << 20,
                source: "/proc/meminfo".into(),
            }),
            3,
        );
        assert_eq!(small.bytes, 8 << 20, "there is always something");
    }
}
