//! Every decoder as a function of bytes from a peer, and a generator of such bytes.
//!
//! ```text
//!   stored bytes (wire) ──> Mutator ──bytes──> Target::run: decode, then use the result
//! ```
//!
//! `tests/hostile.rs` and the program `fuzz` run the same targets for different times, and count
//! what they allocate. A target panics if anything is wrong, and returns otherwise.

mod members;
mod mutate;
mod pair;
mod targets;
pub mod wire;

pub use mutate::Mutator;
pub use targets::TARGETS;

use std::any::Any;
use std::io;
use std::panic::catch_unwind;
use std::path::Path;

/// The longest input that is generated.
pub const INPUT_BYTES_MAX: usize = 64 << 10;

/// A decoder, with the code that acts on its results.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name, also of the directory with its inputs.
    pub name: &'static str,
    /// Small valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Panics if the input does something that no input may do.
    pub run: fn(&[u8]),
    /// The limit on the bytes that one run may allocate, for an input of this many bytes.
    pub allocates: fn(usize) -> usize,
    /// The number of inputs that a test makes.
    pub rounds: u32,
}

/// The committed inputs: a directory for each target.
pub const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
/// The longest input that is kept there, and how many of a target's own inputs are kept.
const KEPT_BYTES_MAX: usize = 2 << 10;
const KEPT_MAX: usize = 12;
/// Runs that making an input small may take.
const ATTEMPTS_MAX: u32 = 3_000;

/// The inputs of one target in a directory of them, in order of their names, without the target's
/// own.
///
/// # Errors
/// A file cannot be read. If the directory does not exist, there are no inputs and no error.
pub fn read(corpus: &Path, target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let directory = match std::fs::read_dir(corpus.join(target.name)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        directory => directory?,
    };
    let mut files = directory
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    files.sort();
    files.iter().map(std::fs::read).collect()
}

/// Writes the shortest of a target's own inputs there.
///
/// # Errors
/// The directory cannot be written.
pub fn write(corpus: &Path, target: &Target) -> io::Result<usize> {
    let mut seeds = (target.seeds)();
    seeds.sort_by_key(|seed| (seed.len(), seed.clone()));
    seeds.dedup();
    seeds.retain(|seed| seed.len() <= KEPT_BYTES_MAX);
    let every = seeds.len().div_ceil(KEPT_MAX).max(1);
    let kept: Vec<_> = seeds.into_iter().step_by(every).collect();
    std::fs::create_dir_all(corpus.join(target.name))?;
    for (n, seed) in kept.iter().enumerate() {
        std::fs::write(corpus.join(target.name).join(format!("valid-{n:02}")), seed)?;
    }
    Ok(kept.len())
}

/// Runs a target once; `allocated` says how many bytes this process has allocated so far.
///
/// # Errors
/// The panic of the target, or that it allocated more than it may.
pub fn run(target: &Target, input: &[u8], allocated: impl Fn() -> usize) -> Result<(), String> {
    let before = allocated();
    catch_unwind(|| (target.run)(input)).map_err(|panic| text(&*panic))?;
    let (bytes, limit) = (allocated() - before, (target.allocates)(input.len()));
    if bytes > limit {
        return Err(format!(
            "{bytes} bytes were allocated for an input of {}; {limit} are allowed",
            input.len()
        ));
    }
    Ok(())
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

/// A shorter input that fails too: parts of it are left out, and others become zeros.
pub fn minimise(input: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let (mut least, mut attempts) = (input.to_vec(), 0);
    let mut try_it = |candidate: Vec<u8>, least: &mut Vec<u8>| {
        attempts += 1;
        let better = attempts <= ATTEMPTS_MAX && candidate != *least && fails(&candidate);
        if better {
            *least = candidate;
        }
        better
    };
    let mut part = least.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        while at < least.len() {
            let end = (at + part).min(least.len());
            let without = [&least[..at], &least[end..]].concat();
            if !try_it(without, &mut least) {
                at += part;
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    for at in 0..least.len() {
        let mut zero = least.clone();
        zero[at] = 0;
        try_it(zero, &mut least);
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_input_is_made_as_small_as_possible() {
        let input: Vec<u8> = (0..200).collect();
        let fails = |input: &[u8]| input.contains(&77) && input.contains(&150) && input.len() > 3;
        let least = minimise(&input, fails);
        assert_eq!(
            (least.len(), least.iter().filter(|b| **b == 0).count()),
            (4, 2),
            "{least:?}"
        );
        assert!(fails(&least));
    }
}
