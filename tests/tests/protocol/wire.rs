//! The bytes of each wire version, as they were when that version was made: later states of the
//! program read them, and write the same bytes on connections of that version.

use doyen::fuzz::wire::{SECTIONS, Sample, Section};
use doyen_placement::level::LEVELS;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a wire version, one for each layer: a line is a name and bytes in hexadecimal.
fn file(version: u16, section: &Section) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("corpus/v{version}"))
        .join(format!("{}.txt", section.name))
}

fn read(version: u16, section: &Section) -> Vec<Sample> {
    let path = file(version, section);
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{}: {e}; `just corpus {version}` writes it", path.display()));
    text.lines()
        .map(|line| {
            let (name, hex) = line.split_once(' ').expect("a name and bytes");
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
            (
                name.to_owned(),
                (0..hex.len()).step_by(2).map(byte).collect(),
            )
        })
        .collect()
}

/// `DOYEN_CORPUS=15 cargo test -p doyen-tests --test protocol -- --ignored` writes the files of that
/// version. Once it is released, only new lines may be added.
#[test]
#[ignore = "writes files"]
fn the_corpus_of_a_version_is_written() {
    let version = std::env::var("DOYEN_CORPUS").expect("DOYEN_CORPUS names the version");
    let version = version.parse().expect("a number");
    for section in SECTIONS {
        let path = file(version, section);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("it is made");
        let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let lines: String = (section.samples)(version)
            .into_iter()
            .map(|(name, bytes)| format!("{name} {}\n", hex(bytes)))
            .collect();
        fs::write(path, lines).expect("it is written");
    }
}

#[test]
fn every_version_that_is_spoken_is_read_and_written_as_it_always_was() {
    for version in LEVELS.0..=LEVELS.1 {
        for section in SECTIONS {
            let samples = read(version, section);
            let mut lacking = (section.lacking)(&samples);
            let new = (section.samples)(version).into_iter().map(|(name, _)| name);
            lacking.extend(new.filter(|name| samples.iter().all(|(known, _)| known != name)));
            assert!(
                lacking.is_empty() || version < LEVELS.1,
                "v{version} {}: no bytes of {lacking:?}; `just corpus {version}` writes them",
                section.name
            );
            for (name, bytes) in samples {
                let again = (section.again)(version, &bytes)
                    .unwrap_or_else(|why| panic!("v{version} {} {name}: {why}", section.name));
                assert!(
                    again == bytes,
                    "v{version} {} {name} is written with other bytes",
                    section.name
                );
            }
        }
    }
}
