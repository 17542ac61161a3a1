//! The stored bytes of each wire version, which later states of the program read and write as they
//! always were: the files in `tests/corpus/v*`, one for each layer. The fuzz targets begin with
//! them.
//!
//! Tables and hellos are made here. Frames and messages are found by a search (`grown`): it changes
//! the bytes that are there, and keeps what a decoder reads if a variant of an enum in it is new.
//! So a new frame or message gets its bytes without code of its own. Each kind must have some; the
//! variants within a kind have them as far as the search meets them.

use super::members::{Members, encoded};
use super::mutate::Mutator;
use super::targets::LIMITS;
use doyen::net::endpoint::Purpose;
use doyen::net::envelope::Envelope;
use doyen::net::hello::Hello;
use doyen::net::identity::Proof;
use doyen_engine::fuzz;
use doyen_gossip::Signature;
use doyen_gossip::agreement::AdminRequest;
use doyen_gossip::wire::Message;
use doyen_placement::access::{
    AccessChange, TokenChange, TokenGrant, TokenRole, UserChange, WeightChange,
};
use doyen_placement::codec;
use doyen_placement::level::LEVELS;
use doyen_placement::planner::{self, Absence, HandOverUrgency, NewKeyspace};
use doyen_placement::{
    Division, Durability, Eviction, KeyspaceId, Label, Loads, MapLimits, MapWish, MemberId, Mode,
    MoveRate, OnLoss, Origin, PartitionId, PartitionRef, Paused, Place, Reshape, Rule, Table,
    TableDelta, Tags, Version, VoteKey, WantedMap,
};
use minicbor::{Decode, Decoder, Encode};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Encoded bytes, with a name.
pub type Sample = (String, Vec<u8>);

/// What a decoder reads at the beginning of some bytes: its name, its own bytes, and its content as
/// a text.
type Begun = fn(&[u8]) -> Option<(String, Vec<u8>, String)>;

/// Decodes a sample, and encodes it.
type Again = fn(&[u8]) -> Result<Vec<u8>, String>;

/// One layer of the wire.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Its name, and that of its file.
    pub name: &'static str,
    /// Samples of the newest version that are made here.
    made: fn() -> Vec<Sample>,
    /// How further samples are found, and the place of the byte that tells their kind.
    found: Option<(Begun, usize)>,
    /// Reads a sample and writes it again.
    pub again: Again,
    /// The kinds that these samples lack.
    kinds_lacking: fn(&[Sample]) -> Vec<String>,
}

/// All layers.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "frames",
        made: Vec::new,
        found: Some((fuzz::begun, 4)),
        again: |bytes| fuzz::again(bytes),
        kinds_lacking: |samples| {
            let is_there = |kind| samples.iter().any(|(_, bytes)| bytes[4] == kind);
            let kinds = fuzz::kinds().into_iter();
            kinds
                .filter(|kind| !is_there(*kind))
                .map(|kind| kind.to_string())
                .collect()
        },
    },
    Section {
        name: "chunks",
        made: || vec![("nothing".to_owned(), Vec::new())],
        found: Some((fuzz::chunk_begun, 0)),
        again: |bytes| fuzz::chunk_again(bytes),
        kinds_lacking: |_| Vec::new(),
    },
    Section {
        name: "envelopes",
        made: || {
            let said = Members::messages().into_iter().map(encoded);
            let named = said.filter_map(|bytes| envelope_begun(&bytes));
            named.map(|(name, bytes, _)| (name, bytes)).collect()
        },
        // Behind an array, the kind of the envelope, another array, and a byte that says that the
        // kind of the message is 24 or more.
        found: Some((envelope_begun, 4)),
        again: |bytes| {
            let envelope = Envelope::decode(bytes).map_err(|e| e.to_string())?;
            envelope.encode().map_err(|e| e.to_string())
        },
        kinds_lacking: |samples| {
            let found = samples
                .iter()
                .filter_map(|(_, bytes)| Envelope::decode(bytes).ok());
            let found: BTreeSet<String> = found.flat_map(|said| kinds_of(&said)).collect();
            let mut kinds = known::<Envelope>("envelope");
            kinds.extend(known::<Message>("message"));
            kinds.extend(known::<AdminRequest>("request"));
            kinds.retain(|kind| !found.contains(kind));
            kinds
        },
    },
    Section {
        name: "tables",
        made: || named(tables(), |table| encode(&table)),
        found: None,
        again: |bytes| again::<Table>(bytes),
        kinds_lacking: |_| Vec::new(),
    },
    Section {
        name: "deltas",
        made: || named(deltas(), |delta| encode(&delta)),
        found: None,
        again: |bytes| again::<TableDelta>(bytes),
        kinds_lacking: |_| Vec::new(),
    },
    Section {
        name: "clients",
        made: || {
            let whole = tables()
                .into_iter()
                .map(|(name, table)| (format!("whole-{name}"), fuzz::for_clients(&table)));
            let news = deltas()
                .into_iter()
                .map(|(name, delta)| (format!("news-{name}"), fuzz::news_for_clients(&delta)));
            whole.chain(news).collect()
        },
        found: None,
        again: |bytes| fuzz::for_clients_again(bytes),
        kinds_lacking: |_| Vec::new(),
    },
    Section {
        name: "hello",
        made: hellos,
        found: None,
        again: |bytes| Hello::decode(bytes).map(|hello| hello.encode()),
        kinds_lacking: |_| Vec::new(),
    },
];

impl Section {
    /// Its stored samples of a version.
    #[must_use]
    pub fn stored(&self, version: u16) -> Vec<Sample> {
        stored(version, self.name)
    }

    /// What these samples of the newest version lack: kinds, and samples that are made here.
    #[must_use]
    pub fn lacking(&self, samples: &[Sample]) -> Vec<String> {
        let is_there = |name: &String| samples.iter().any(|(known, _)| known == name);
        let made = (self.made)().into_iter().map(|(name, _)| name);
        let mut lacking = (self.kinds_lacking)(samples);
        lacking.extend(made.filter(|name| !is_there(name)));
        lacking
    }

    /// The stored samples of the newest version as far as they still hold, with what they lack.
    #[must_use]
    pub fn completed(&self, mut samples: Vec<Sample>) -> Vec<Sample> {
        let again = |bytes: &[u8]| (self.again)(bytes).ok();
        samples.retain(|(_, bytes)| again(bytes).as_ref() == Some(bytes));
        // The version before had most kinds.
        let former = self
            .stored(LEVELS.0)
            .into_iter()
            .filter_map(|(name, bytes)| {
                let bytes = again(&bytes)?;
                let begun = self.found.and_then(|(begun, _)| begun(&bytes));
                Some((begun.map_or(name, |(name, ..)| name), bytes))
            });
        for (name, bytes) in (self.made)().into_iter().chain(former) {
            if samples.iter().all(|(known, _)| *known != name) {
                samples.push((name, bytes));
            }
        }
        if let Some((begun, kind_at)) = self.found {
            for search in 0..SEARCHES_MAX {
                samples = grown(
                    samples,
                    begun,
                    kind_at,
                    search * ROUNDS..(search + 1) * ROUNDS,
                );
                if self.lacking(&samples).is_empty() {
                    break;
                }
            }
        }
        samples
    }

    /// Writes the stored samples of the newest version.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn write(&self, samples: Vec<Sample>) {
        let path = file(LEVELS.1, self.name);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("it is made");
        let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let lines: String = samples
            .into_iter()
            .map(|(name, bytes)| format!("{name} {}\n", hex(bytes)))
            .collect();
        fs::write(path, lines).expect("it is written");
    }
}

/// The file of a layer: a line is a name and bytes in hexadecimal.
fn file(version: u16, section: &str) -> PathBuf {
    Path::new(super::CORPUS)
        .join(format!("v{version}"))
        .join(format!("{section}.txt"))
}

/// The stored samples of a layer; none if there is no such file.
pub(super) fn stored(version: u16, section: &str) -> Vec<Sample> {
    let text = fs::read_to_string(file(version, section)).unwrap_or_default();
    text.lines()
        .map(|line| {
            let (name, hex) = line.split_once(' ').expect("a name and bytes");
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
            let bytes = (0..hex.len()).step_by(2).map(byte).collect();
            (name.to_owned(), bytes)
        })
        .collect()
}

// ---- the search

/// Inputs that a search tries, searches until no kind is lacking, and the longest sample.
const ROUNDS: u64 = 50_000;
const SEARCHES_MAX: u64 = 40;
const FOUND_BYTES_MAX: usize = 200;

/// These samples, and others with variants that they do not have.
fn grown(mut samples: Vec<Sample>, begun: Begun, kind_at: usize, seeds: Range<u64>) -> Vec<Sample> {
    let mut known = BTreeSet::new();
    for (_, bytes) in &samples {
        let content = begun(bytes).map(|(_, _, content)| content);
        known.extend(content.iter().flat_map(|content| variants(content)));
    }
    let mut inputs: Vec<Vec<u8>> = samples.iter().map(|(_, bytes)| bytes.clone()).collect();
    inputs.push(vec![0; FOUND_BYTES_MAX]);
    for seed in seeds {
        let mut input = Mutator::new(seed).input(&inputs);
        if let Some(kind) = input.get_mut(kind_at).filter(|_| seed % 2 == 0) {
            *kind = (seed / 2) as u8;
        }
        input.truncate(FOUND_BYTES_MAX);
        if let Some((name, bytes, content)) = begun(&input) {
            let before = known.len();
            known.extend(variants(&content));
            if known.len() > before {
                inputs.push(bytes.clone());
                samples.push((name, bytes));
            }
        }
    }
    samples
}

/// The names of types and variants in the text of a value, each with the variant of the whole.
fn variants(content: &str) -> Vec<String> {
    let mut outside = String::new();
    let (mut quoted, mut chars) = (false, content.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' if quoted => drop(chars.next()),
            c if !quoted => outside.push(c),
            _ => {}
        }
    }
    let words = outside.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()))
        .map(str::to_owned)
        .collect()
}

fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    codec::encode(value, codec::BYTES_MAX).expect("it is small")
}

fn again<T: serde::Serialize + serde::de::DeserializeOwned>(
    bytes: &[u8],
) -> Result<Vec<u8>, String> {
    let value: T = codec::decode(bytes, codec::BYTES_MAX).map_err(|e| e.to_string())?;
    codec::encode(&value, codec::BYTES_MAX).map_err(|e| e.to_string())
}

fn named<T>(values: Vec<(String, T)>, encode: impl Fn(T) -> Vec<u8>) -> Vec<Sample> {
    values
        .into_iter()
        .map(|(name, value)| (name, encode(value)))
        .collect()
}

/// The name of a value's variant: the first word of its debug form.
fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect()
}

/// The kinds that a numbered value of this type can have, as `what` and their numbers.
fn known<T: for<'b> Decode<'b, ()>>(what: &str) -> Vec<String> {
    let is_known = |number: &u8| {
        let begun = codec::decode_numbered::<T>(&[0x81, 0x18, *number], codec::BYTES_MAX);
        !matches!(begun, Err(codec::CodecError::UnknownKind(_)))
    };
    let numbers = (0..=u8::MAX).filter(is_known);
    numbers.map(|number| format!("{what} {number}")).collect()
}

/// The kinds of an envelope and of what it has, in the words of [`known`].
fn kinds_of(envelope: &Envelope) -> Vec<String> {
    fn kind<T: Encode<()>>(what: &str, value: &T) -> String {
        let bytes = codec::encode_numbered(value, codec::BYTES_MAX).expect("it is small");
        // Behind the head of an array.
        let number = Decoder::new(&bytes[1..])
            .u8()
            .expect("the number of a kind");
        format!("{what} {number}")
    }
    let mut kinds = vec![kind("envelope", envelope)];
    if let Envelope::Agreement(message) = envelope {
        kinds.push(kind("message", message));
        if let Message::Admin { request, .. } = message {
            kinds.push(kind("request", request));
        }
    }
    kinds
}

/// The envelope with which these bytes begin.
fn envelope_begun(bytes: &[u8]) -> Option<(String, Vec<u8>, String)> {
    let whole = match Envelope::decode(bytes) {
        Err(codec::CodecError::Trailing(more)) => Envelope::decode(&bytes[..bytes.len() - more]),
        whole => whole,
    };
    let envelope = whole.ok()?;
    let name = match &envelope {
        Envelope::Agreement(Message::Admin { request, .. }) => {
            format!("Admin/{}", variant(request))
        }
        Envelope::Agreement(message) => variant(message),
        other => variant(other),
    };
    let bytes = envelope.encode().ok()?;
    Some((name, bytes, format!("{envelope:?}")))
}

// ---- tables

/// Tables from the life of a small cluster.
pub(super) fn lived() -> Vec<Table> {
    let first = Members::new().table(0).expect("they have formed a cluster");
    let mut tables = vec![(*first).clone()];
    let mut next = |table: Table| {
        let mut table = table;
        table.version = table.version.next();
        tables.push(table);
    };
    let second = first.members[1].id;
    next(planner::remove(
        &first,
        &BTreeMap::from([(second, Absence::Silent)]),
    ));
    next(planner::hand_over(&first, second, HandOverUrgency::Repair));
    let lacking = planner::remove(&first, &BTreeMap::from([(second, Absence::Dead)]));
    let planned = planner::adopt(&lacking, &planner::plan(&lacking, &Loads::default()));
    next(planner::advance(&planned, &LIMITS, &planner::MoveFacts::default()).unwrap_or(planned));
    tables
}

/// Tables that together have every feature of a table.
fn tables() -> Vec<(String, Table)> {
    let mut tables: Vec<(String, Table)> = (0..)
        .zip(lived())
        .map(|(n, table)| (format!("lived-{n}"), table))
        .collect();
    let mut full = tables[0].1.clone();
    let wanted = |name: &str, mode, division, ordered| NewKeyspace {
        name: name.into(),
        mode,
        division,
        backups: 2,
        min_in_sync: 2,
        on_loss: OnLoss::Reset { after_ms: 60_000 },
        default_ttl_ms: Some(5_000),
        eviction: Eviction::Ttl,
        ordered,
        rules: vec![
            Rule::Primary(Place {
                inside: true,
                label: Label::Zone,
                value: "a".into(),
            }),
            Rule::Per {
                most: 1,
                label: Label::Rack,
            },
        ],
        durability: None,
    };
    let ranges = Division::split_at(["m"].iter()).expect("one key is in order");
    for keyspace in [
        wanted(
            "ring",
            Mode::Ring {
                tokens: 2,
                random: false,
            },
            Division::no_arcs(),
            true,
        ),
        wanted("range", Mode::Range, ranges, false),
    ] {
        full = planner::create_keyspace(&full, keyspace)
            .expect("its name is free")
            .expect("it is new");
    }
    full = planner::assign(&full);
    for (map, keyspace) in [("users", "default"), ("events", "range")] {
        let entries = (keyspace != "range").then_some(1_000);
        let (table, _) = planner::want_map(
            &full,
            &WantedMap {
                keyspace: keyspace.into(),
                name: map.into(),
                wish: MapWish::Limited(MapLimits {
                    entries,
                    idle_ms: Some(60_000),
                    ..MapLimits::NONE
                }),
            },
        )
        .expect("its name is free");
        full = table.expect("it is new");
    }
    let user = UserChange {
        name: b"bob"[..].into(),
        before: None,
        after: Some(b"off resetchannels -@all"[..].into()),
    };
    let access = AccessChange {
        users: vec![user],
        tokens: vec![TokenChange {
            name: "prometheus".into(),
            before: None,
            after: Some(TokenGrant {
                role: TokenRole::Read,
                sha256: [7; 32],
                made: 1_700_000_000,
            }),
        }],
        weights: vec![WeightChange {
            name: "n9".into(),
            before: None,
            after: Some(900),
        }],
        keep_operate: false,
    };
    full = planner::change_access(&full, &access)
        .expect("its name is free")
        .expect("it is new");
    let balancing = &mut full.settings.balancing;
    balancing.paused = Some(Paused::Failures);
    balancing.window = Some("22:00-06:00".parse().expect("a window"));
    balancing.rate = MoveRate::Bytes(1 << 20);
    balancing.held = vec![at(0)];
    balancing.drained = vec![full.members[2].id];
    let member = Arc::make_mut(&mut full.members[1]);
    member.location.zone = "a".into();
    member.addresses.hostname = Some("n1.example.org".into());
    let v6 = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    member.addresses.resp = Some((v6, 7379).into());
    let keyspace = &mut full.keyspaces[0];
    keyspace.reshaping.next = PartitionId(9);
    keyspace.reshaping.under_way = vec![Reshape::Merge {
        partitions: [PartitionId(0), PartitionId(1)],
    }];
    let partition = Arc::make_mut(&mut keyspace.partitions[0]);
    partition.goal = Some(partition.in_sync().collect());
    partition.from = vec![Origin {
        partition: PartitionId(7),
        behind_ms: 3,
    }];
    full.version = Version(99);
    full.keyspaces[0].tags = Tags::Zero;
    full.keyspaces[0].durability = Durability::Log;
    Arc::make_mut(&mut full.members[0]).start = Some(3);
    tables.push(("full".into(), full));
    tables
}

/// Deltas from the first table to each other one, and back; also to one with a higher level.
fn deltas() -> Vec<(String, TableDelta)> {
    let tables = tables();
    let (_, first) = &tables[0];
    let raised = TableDelta::between(&first.at_level(LEVELS.0), first);
    tables[1..]
        .iter()
        .flat_map(|(name, table)| {
            [
                (format!("to-{name}"), TableDelta::between(first, table)),
                (format!("from-{name}"), TableDelta::between(table, first)),
            ]
        })
        .chain([("raised".to_owned(), raised)])
        .collect()
}

fn at(partition: u32) -> PartitionRef {
    PartitionRef {
        keyspace: KeyspaceId(0),
        partition: PartitionId(partition),
    }
}

// ---- hello

fn hellos() -> Vec<Sample> {
    let node = Hello::new(Purpose::Control, MemberId(0x70), "alpha");
    let client = Hello::new(Purpose::Data, MemberId::of_client(7), "a client");
    let at = ([10, 0, 0, 1], 7400).into();
    [
        ("node", node.clone()),
        ("client", client),
        ("somewhere", node.clone().at(at)),
        ("passing", node.clone().at(at).passing()),
        (
            "answering",
            Hello {
                certificate: Some(vec![7; 40].into()),
                ..node.clone().at(at)
            },
        ),
        (
            "proving",
            Hello {
                proof: Some(Proof {
                    key: VoteKey([3; 32]),
                    signature: Signature::new([[1; 32], [2; 32]]),
                }),
                ..node.at(at)
            },
        ),
    ]
    .into_iter()
    .map(|(name, hello)| (name.to_owned(), hello.encode()))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_frame_without_a_sample_is_found() {
        let section = SECTIONS.iter().find(|section| section.name == "frames");
        let section = section.expect("a section");
        let (begun, kind_at) = section.found.expect("they are found");
        let mut samples = section.stored(LEVELS.1);
        samples.retain(|(name, _)| !["Want", "Forward/IncrBy", "Waited"].contains(&&**name));
        let lacking = section.lacking(&samples).len();
        let found = grown(samples, begun, kind_at, 0..20_000);
        assert!(section.lacking(&found).len() < lacking);
        let again = found.iter().find(|(name, _)| name == "Want");
        let (_, bytes) = again.expect("it is found");
        assert_eq!((section.again)(bytes).as_ref(), Ok(bytes));
    }

    #[test]
    fn variants_are_the_capitalized_words_outside_of_texts() {
        let value = (
            Some("None \" Ok"),
            vec![Err::<u8, _>(HandOverUrgency::Repair)],
        );
        let found: BTreeSet<_> = variants(&format!("{value:?}")).into_iter().collect();
        assert_eq!(found, ["Some", "Err", "Repair"].map(str::to_owned).into());
    }
}
