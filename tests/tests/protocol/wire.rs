//! The bytes of each wire version, as they were when that version was made: later states of the
//! program read them, and write the same bytes on connections of that version.

use doyen::net::envelope::Envelope;
use doyen_placement::level::LEVELS;
use doyen_tests::fuzz::wire::SECTIONS;

/// `DOYEN_CORPUS=17 cargo test -p doyen-tests --test protocol -- --ignored` adds to the files of
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

/// The stored messages between control threads, of every version that is spoken.
fn control_messages() -> Vec<(String, Envelope)> {
    let section = SECTIONS.iter().find(|section| section.name == "envelopes");
    let section = section.expect("a section");
    let read = |version| {
        section
            .stored(version)
            .into_iter()
            .map(move |(name, bytes)| {
                let envelope = Envelope::decode(&bytes).expect("it is read");
                (name, envelope)
            })
    };
    (LEVELS.0..=LEVELS.1).flat_map(read).collect()
}

fn encoded(envelope: &Envelope) -> Vec<u8> {
    envelope.encode().expect("it is small")
}

#[test]
fn fields_of_later_versions_do_not_change_a_control_message() {
    // Two that are missing, and an array with a map.
    let later = [
        0xf6, 0xf6, 0x82, 1, 0xa1, 0x65, b'l', b'a', b't', b'e', b'r', 2,
    ];
    for (name, envelope) in control_messages() {
        let mut bytes = encoded(&envelope);
        // A message for agreement ends with its envelope, behind the head and the kind of that.
        let head = match envelope {
            Envelope::Agreement(_) => 2,
            _ => 0,
        };
        assert!(matches!(bytes[head], 0x80..0x94), "{name} is a short array");
        bytes[head] += 3;
        bytes.extend(later);
        let again = Envelope::decode(&bytes);
        let again = again.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(format!("{again:?}"), format!("{envelope:?}"));
    }
}

#[test]
fn a_control_message_that_is_cut_is_none() {
    for (name, envelope) in control_messages() {
        let bytes = encoded(&envelope);
        for end in 0..bytes.len() {
            let cut = Envelope::decode(&bytes[..end]);
            assert!(cut.is_err(), "{name} with {end} bytes: {cut:?}");
        }
    }
}
