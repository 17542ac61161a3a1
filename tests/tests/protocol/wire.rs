//! The bytes of each wire version, as they were when that version was made: later states of the
//! program read them, and write the same bytes on connections of that version.

use doyen_placement::level::LEVELS;
use doyen_tests::fuzz::wire::SECTIONS;

/// `DOYEN_CORPUS=16 cargo test -p doyen-tests --test protocol -- --ignored` adds to the files of
/// that version what they lack, and drops what does not hold any more. Once the version is
/// released, its lines never change.
#[test]
#[ignore = "writes files"]
fn the_corpus_of_a_version_is_written() {
    let version = std::env::var("DOYEN_CORPUS").expect("DOYEN_CORPUS names the version");
    assert_eq!(
        version,
        LEVELS.1.to_string(),
        "only the newest one can be written"
    );
    for section in SECTIONS {
        section.write(section.completed(section.stored(LEVELS.1)));
    }
}

#[test]
fn every_version_that_is_spoken_is_read_and_written_as_it_always_was() {
    for version in LEVELS.0..=LEVELS.1 {
        for section in SECTIONS {
            let samples = section.stored(version);
            assert!(
                !samples.is_empty(),
                "v{version} {} has no bytes",
                section.name
            );
            let lacking = section.lacking(&samples);
            assert!(
                lacking.is_empty() || version < LEVELS.1,
                "v{version} {}: no bytes of {lacking:?}; `just corpus {version}` writes them",
                section.name
            );
            for (name, bytes) in samples {
                let again = (section.again)(&bytes)
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
