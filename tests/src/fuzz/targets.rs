//! The targets, and what each does with its bytes.

use super::members::{Members, encoded, framed};
use super::wire::{lived, stored};
use super::{Target, pair};
use bytes::{Bytes, BytesMut};
use doyen::config::{Defaults, Options};
use doyen::net::endpoint::Purpose;
use doyen::net::envelope::{Envelope, FRAME_BYTES_MAX};
use doyen::net::hello::Hello;
use doyen::net::identity::secret::{Line, SecretRole, Secrets};
use doyen::net::relay::Carried;
use doyen::resp::command;
use doyen::resp::frame::Parser;
use doyen::{http, net, resp};
use doyen_disk::{Files, FoundInLog, LogFile, LogName, LogWriter, MemoryFiles, RecordHead};
use doyen_placement::codec;
use doyen_placement::level::LEVELS;
use doyen_placement::planner::{
    self, Absence, HandOverUrgency, InSyncChange, InSyncRequest, MoveLimits,
};
use doyen_placement::quorum::majority;
use doyen_placement::{
    KeyspaceId, Lineage, Loads, MapId, MemberId, PartitionId, PartitionRef, Table, TableDelta,
};
use doyen_rdb::{
    HashField, NdjsonReader, NdjsonWriter, RdbPendingEntry, RdbReader, RdbStream,
    RdbStreamConsumer, RdbStreamEntry, RdbStreamGroup, RdbStreamId, RdbValue, RdbWriter,
    ScoredMember,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Limit of a decoder's allocations for an input: 16 times its size, rounded up to steps of 8, and
/// a little more.
const fn decoded(bytes: usize) -> usize {
    (64 << 10) + 2 * 8 * 16 * bytes
}

/// The same for serde, which reserves up to 1 MiB for the announced length of each list, also of
/// nested lists.
const fn decoded_lists(bytes: usize) -> usize {
    (8 << 20) + decoded(bytes)
}

/// Limit of the machines' allocations for an input, with all their work before and after it.
const fn machines(_: usize) -> usize {
    64 << 20
}

/// Every decoder.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frames",
        seeds: || of("frames"),
        run: doyen_engine::fuzz::frame,
        // Rare frames are decoded by serde, and some of them have a list.
        allocates: decoded_lists,
        rounds: 20_000,
    },
    Target {
        name: "shard",
        seeds: pair::streams,
        run: pair::stream,
        allocates: machines,
        rounds: 600,
    },
    Target {
        name: "envelopes",
        seeds: || {
            let samples = stored(LEVELS.1, "envelopes").into_iter();
            samples.map(|(_, bytes)| bytes).collect()
        },
        run: envelope,
        allocates: decoded_lists,
        rounds: 5_000,
    },
    Target {
        name: "agreement",
        seeds: messages,
        run: messages_of_a_broken_member,
        allocates: machines,
        rounds: 300,
    },
    Target {
        name: "tables",
        seeds: || of("tables"),
        run: table,
        allocates: machines,
        rounds: 1_000,
    },
    Target {
        name: "deltas",
        seeds: || of("deltas"),
        run: delta,
        allocates: machines,
        rounds: 1_000,
    },
    Target {
        name: "hello",
        seeds: || of("hello"),
        run: hello,
        allocates: decoded,
        rounds: 10_000,
    },
    Target {
        name: "directory",
        seeds: doyen::control::fuzz_samples,
        run: doyen::control::fuzz,
        allocates: machines,
        rounds: 2_000,
    },
    Target {
        name: "log",
        seeds: logs,
        run: read_log,
        allocates: decoded,
        rounds: 5_000,
    },
    Target {
        name: "carried",
        seeds: carried,
        run: carry,
        allocates: decoded,
        rounds: 10_000,
    },
    Target {
        name: "gossip",
        // Its inputs are in the corpus alone.
        seeds: Vec::new,
        run: net::hints::read,
        allocates: machines,
        rounds: 3_000,
    },
    Target {
        name: "requests",
        seeds: requests,
        run: request,
        allocates: machines,
        rounds: 10_000,
    },
    Target {
        name: "replies",
        seeds: replies,
        run: resp::client::read_all,
        allocates: machines,
        rounds: 10_000,
    },
    Target {
        name: "users",
        seeds: users,
        run: resp::acl::fuzz,
        allocates: machines,
        rounds: 3_000,
    },
    Target {
        name: "config",
        seeds: configurations,
        run: configuration,
        allocates: machines,
        rounds: 1_000,
    },
    Target {
        name: "secrets",
        seeds: secret_files,
        run: secret_file,
        allocates: decoded,
        rounds: 10_000,
    },
    Target {
        name: "tokens",
        seeds: tokens,
        run: http::fuzz,
        allocates: machines,
        rounds: 10_000,
    },
    Target {
        name: "answers",
        seeds: answers,
        run: http::client::read,
        allocates: machines,
        rounds: 3_000,
    },
    Target {
        name: "rdb",
        seeds: redis_files,
        run: redis_file,
        allocates: machines,
        rounds: 10_000,
    },
    Target {
        name: "ndjson",
        seeds: json_lines,
        run: json_line,
        // Each element of a list has its own allocation, also if it is empty.
        allocates: decoded,
        rounds: 10_000,
    },
];

/// The stored bytes of the newest wire version.
fn of(section: &str) -> Vec<Vec<u8>> {
    let samples = stored(LEVELS.1, section).into_iter();
    samples.map(|(_, bytes)| bytes).collect()
}

// ---- secrets

/// Files with secrets of each role and form.
fn secret_files() -> Vec<Vec<u8>> {
    let line = |byte: u8| Line::member(std::array::from_fn(|at| byte.wrapping_add(at as u8)));
    let of = |role| {
        let lines = [line(1), line(99)].map(|line| line.for_role(role));
        let lines = lines.into_iter().flatten().collect();
        Secrets::new(lines).map_or_else(|_| Vec::new(), |s| s.expose().as_bytes().to_vec())
    };
    let mut files = [SecretRole::Member, SecretRole::Client, SecretRole::Operator]
        .map(of)
        .to_vec();
    files.extend(
        [
            "# a comment\n\n000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\r\n",
            "  a phrase of some words  \nanother phrase of some words",
            "doyen-member-2 AAEC",
        ]
        .map(|text| text.as_bytes().to_vec()),
    );
    files
}

/// A file is read or refused, and what was read can be written and read again. Phrases are not
/// stretched, which would take longer than all the rest.
fn secret_file(bytes: &[u8]) {
    let _ = Secrets::of_bytes(bytes);
    if let Ok(secrets) = Secrets::parse(bytes) {
        let again = Secrets::parse(secrets.expose().as_bytes());
        assert_eq!(again.as_ref(), Ok(&secrets), "what was read can be written");
    }
}

// ---- files of Redis

/// What values of the target may take. Packed bytes unfold to many times their size.
const REDIS_VALUE_BYTES_MAX: usize = 1 << 20;

/// A value of each type.
fn redis_values() -> [RdbValue<&'static str>; 7] {
    let member = |member, score| ScoredMember { member, score };
    let field = |field, deadline| HashField {
        field,
        value: "v",
        deadline,
    };
    [
        RdbValue::String("a string"),
        RdbValue::List(vec!["a", "b"]),
        RdbValue::Set(vec!["1", "two"]),
        RdbValue::SortedSet(vec![member("m", 1.5), member("n", f64::INFINITY)]),
        RdbValue::Hash(vec![field("f", None)]),
        RdbValue::Hash(vec![field("f", Some(9_999)), field("g", None)]),
        RdbValue::Stream(redis_stream()),
    ]
}

/// A file with a value of each type, and the payloads of its values.
fn redis_files() -> Vec<Vec<u8>> {
    let values = redis_values();
    let mut file = RdbWriter::new(Vec::new(), 12).expect("it is a version");
    for value in &values {
        let written = file.key(0, b"key", Some(1), value);
        written.expect("a Vec takes all");
    }
    let payloads = values.iter().map(doyen_rdb::dump);
    payloads
        .chain([file.finish()])
        .map(|bytes| bytes.expect("a Vec takes all"))
        .collect()
}

fn redis_stream() -> RdbStream<&'static str> {
    let id = |ms| RdbStreamId { ms, seq: 1 };
    let entry = |ms, field| RdbStreamEntry {
        id: id(ms),
        fields: vec![(field, "v")],
    };
    RdbStream {
        entries: vec![entry(1, "f"), entry(2, "f"), entry(300, "g")],
        last: id(400),
        added: 5,
        deleted: id(400),
        groups: vec![RdbStreamGroup {
            name: "group",
            last: id(2),
            read: Some(2),
            consumers: vec![RdbStreamConsumer {
                name: "me",
                seen: 9_999,
                active: Some(9_999),
            }],
            pending: vec![RdbPendingEntry {
                id: id(2),
                given: 9_999,
                times: 3,
                consumer: 0,
            }],
        }],
    }
}

/// What has no form in a payload is left out.
fn as_dumped(mut value: RdbValue) -> RdbValue {
    if let RdbValue::Stream(stream) = &mut value {
        let consumers = stream.groups.iter_mut().flat_map(|it| &mut it.consumers);
        consumers.for_each(|it| it.active = Some(it.seen));
    }
    value
}

/// A payload is restored or refused, and what was restored is dumped as the same value. The
/// checksum is set, so that the value is read.
fn redis_file(bytes: &[u8]) {
    if let Ok(reader) = RdbReader::new(bytes) {
        reader.for_each(drop);
    }
    let mut payload = bytes.to_vec();
    let sum = payload.len().saturating_sub(8);
    payload[sum..].fill(0);
    if let Ok(value) = doyen_rdb::restore(&payload, REDIS_VALUE_BYTES_MAX)
        && let Ok(again) = doyen_rdb::dump(&value)
    {
        let again = doyen_rdb::restore(&again, REDIS_VALUE_BYTES_MAX);
        assert_eq!(
            again.ok(),
            Some(as_dumped(value)),
            "what was restored can be dumped"
        );
    }
}

/// A line of JSON for a value of each type, and one with bytes that are no text.
fn json_lines() -> Vec<Vec<u8>> {
    fn line<B: AsRef<[u8]>>(value: &RdbValue<B>) -> Vec<u8> {
        let mut file = NdjsonWriter::new(Vec::new());
        let written = file.key(3, b"key", Some(1), value);
        written.expect("a Vec takes all");
        file.finish().expect("a Vec takes all")
    }
    let binary = line(&RdbValue::List(vec![&b"\xff\0"[..], b"\n"]));
    let values = redis_values();
    values.iter().map(line).chain([binary]).collect()
}

/// Lines are read or refused, and what was read can be written and read again.
fn json_line(bytes: &[u8]) {
    let found: Vec<_> = NdjsonReader::new(bytes).map_while(Result::ok).collect();
    let mut file = NdjsonWriter::new(Vec::new());
    for it in &found {
        let written = file.key(it.database, &it.key, it.deadline, &it.value);
        written.expect("a Vec takes all");
    }
    let file = file.finish().expect("a Vec takes all");
    let again: Vec<_> = NdjsonReader::new(&file[..]).map_while(Result::ok).collect();
    assert_eq!(again, found, "what was read can be written");
}

// ---- control

fn envelope(bytes: &[u8]) {
    if let Ok(envelope) = Envelope::decode(bytes) {
        let again = envelope.encode().expect("what was decoded can be said");
        assert!(Envelope::decode(&again).is_ok(), "and is understood");
    }
}

/// A control stream: frames, as they travel.
fn messages() -> Vec<Vec<u8>> {
    let mut seen = BTreeSet::new();
    let said = Members::messages().into_iter().map(encoded);
    // One message of each kind and length: most messages are pings.
    said.chain(of("envelopes"))
        .filter(|bytes| seen.insert((bytes.get(3..5).map(<[u8]>::to_vec), bytes.len())))
        .map(framed)
        .collect()
}

/// Three members agree. One sends these bytes to both others, then continues normally. After any
/// input the members must agree again, and commit a change.
fn messages_of_a_broken_member(bytes: &[u8]) {
    let mut members = Members::new();
    assert!(members.agrees(), "they agree before it");
    members.hear(bytes);
    let mut waited = Duration::ZERO;
    while !members.commits() {
        assert!(
            waited < Duration::from_secs(60),
            "they do not agree any more: {}",
            members.summary()
        );
        members.pass(Duration::from_millis(500));
        waited += Duration::from_millis(500);
    }
}

// ---- tables

pub(super) const LIMITS: MoveLimits = MoveLimits {
    learners_per_source: 4,
    learners_per_target: 4,
    learners: 8,
};

fn table(bytes: &[u8]) {
    if let Ok(table) = codec::decode::<Table>(bytes, FRAME_BYTES_MAX)
        && table.validate().is_ok()
    {
        use_table(&table, 2);
    }
}

fn delta(bytes: &[u8]) {
    thread_local! {
        static BASE: Table = lived().swap_remove(0);
    }
    if let Ok(delta) = codec::decode::<TableDelta>(bytes, FRAME_BYTES_MAX) {
        BASE.with(|base| {
            if let Ok(table) = delta.apply(base) {
                assert_eq!(table.name(), delta.target());
                use_table(&table, 2);
            }
            // Also without the right name, which a changed delta hardly ever has.
            if let Ok(table) = delta.apply_unnamed(base) {
                use_table(&table, 2);
            }
        });
    }
}

/// Uses a table in every way that production does, and the tables that result.
fn use_table(table: &Table, further: u32) {
    let members: Vec<MemberId> = table.members.iter().map(|m| m.id).collect();
    let _ = (
        majority(&table.voters, |v| members.contains(&v)),
        table.oldest_voter(),
        table.name(),
        planner::health(table),
    );
    for keyspace in &table.keyspaces {
        for slot in [0, 1, 8_191, 16_383, u16::MAX] {
            let _ = keyspace
                .partition_of_slot(slot)
                .map(|p| keyspace.slots_of(p));
        }
        let _ = (
            keyspace.partition_of(MapId(0), b"{k}1"),
            keyspace.partition_of(MapId(9), b"k"),
        );
    }
    for member in &table.members {
        for thread in 0..member.addresses.threads() {
            let _ = (
                member.addresses.data_of(thread),
                member.addresses.resp_cluster_of(thread),
                member.id.thread(thread),
            );
        }
    }
    let mut next = vec![
        planner::assign(table),
        planner::adopt(table, &planner::plan(table, &Loads::default())),
    ];
    next.extend(planner::advance(
        table,
        &LIMITS,
        &planner::MoveFacts::default(),
    ));
    for id in members.iter().take(3) {
        let _ = planner::holds_anything(table, *id);
        next.push(planner::reset(table, *id));
        next.push(planner::revive(table, &BTreeSet::from([*id])));
        next.extend(
            [HandOverUrgency::Repair, HandOverUrgency::AtOnce]
                .map(|pace| planner::hand_over(table, *id, pace)),
        );
        let gone = [Absence::Silent, Absence::Dead, Absence::Left];
        next.extend(gone.map(|how| planner::remove(table, &BTreeMap::from([(*id, how)]))));
    }
    let elders = planner::choose_voters(table);
    next.push(Table {
        voters: elders,
        ..table.clone()
    });
    if let Some(newcomer) = table.members.first() {
        let mut newcomer = (**newcomer).clone();
        (newcomer.id, newcomer.name) = (MemberId(0x7000), "newcomer".into());
        next.push(planner::admit(table, vec![newcomer]));
    }
    let mut requests = Vec::new();
    for keyspace in &table.keyspaces {
        for partition in keyspace.partitions.iter().take(4) {
            let at = PartitionRef {
                keyspace: keyspace.id,
                partition: partition.id,
            };
            for member in members.iter().take(3) {
                let changes = [
                    InSyncChange::Remove,
                    InSyncChange::Admit,
                    InSyncChange::Abandon,
                    InSyncChange::NoRoom,
                    InSyncChange::Withdraw,
                ];
                requests.extend(changes.map(|c| InSyncRequest {
                    partition: at,
                    epoch: partition.epoch,
                    change: c(*member),
                }));
            }
        }
    }
    next.push(planner::change_in_sync(table, &requests).0);
    for table in next {
        let _ = TableDelta::between(&table, &table);
        // A plan for a valid table may be refused in the end (a name or an id is taken), but
        // nothing worse may happen.
        if further > 0 && table.validate().is_ok() && table.members.len() <= 8 {
            let next = TableDelta::between(&table, &table);
            let _ = next.apply(&table);
            if further == 2 {
                use_table(&table, 0);
            }
        }
    }
}

// ---- hellos

fn hello(bytes: &[u8]) {
    if let Ok(hello) = Hello::decode(bytes) {
        assert_eq!(
            Hello::decode(&hello.encode()),
            Ok(hello.clone()),
            "what it says can be said again"
        );
        let _ = hello.suits(&Hello::new(Purpose::Data, MemberId(0x10), "beta"));
    }
}

// ---- datagrams on a relay

fn carried() -> Vec<Vec<u8>> {
    let datagram = |length| Bytes::from(vec![7; length]);
    let asked = Carried {
        comes: false,
        deaf: true,
        end: MemberId(0x70),
        datagram: datagram(40),
    };
    let came = Carried {
        comes: true,
        deaf: false,
        end: MemberId(0x20),
        datagram: datagram(0),
    };
    let all: Vec<Bytes> = [asked, came].iter().filter_map(Carried::encode).collect();
    vec![all[0].to_vec(), all[1].to_vec(), all.concat()]
}

fn carry(bytes: &[u8]) {
    let mut lane = BytesMut::from(bytes);
    let mut said = BytesMut::new();
    while let Ok(Some(carried)) = Carried::take(&mut lane) {
        said.extend_from_slice(
            &carried
                .encode()
                .expect("what was read is no longer than it may be"),
        );
    }
    assert_eq!(
        said[..],
        bytes[..bytes.len() - lane.len()],
        "what it says can be said again"
    );
}

// ---- RESP

fn requests() -> Vec<Vec<u8>> {
    let array = |words: &[&str]| {
        let words: String = words
            .iter()
            .map(|w| format!("${}\r\n{w}\r\n", w.len()))
            .collect::<Vec<_>>()
            .concat();
        words
    };
    let commands: [&[&str]; 14] = [
        &["SET", "k", "v", "PX", "100", "NX", "GET"],
        &["GETEX", "k", "EXAT", "9999999999"],
        &["MSET", "a", "1", "b", "2"],
        &["MGET", "a", "b", "c"],
        &["INCRBYFLOAT", "n", "1.5e3"],
        &["EXPIRE", "k", "-1", "GT"],
        &["SCAN", "0", "MATCH", "a*[^b-c]?\\", "COUNT", "10"],
        &["HELLO", "3", "AUTH", "default", "x", "SETNAME", "n"],
        &["CLIENT", "KILL", "ID", "7"],
        &["CLUSTER", "KEYSLOT", "{a}b"],
        &["COMMAND", "GETKEYS", "SET", "a", "b"],
        &["CONFIG", "GET", "*"],
        &["INFO", "everything"],
        &["SELECT", "0"],
    ];
    let mut seeds: Vec<Vec<u8>> = commands
        .iter()
        .map(|c| format!("*{}\r\n{}", c.len(), array(c)).into_bytes())
        .collect();
    seeds.push(b"SET  a \"x\\x41\\n\\\"\" \r\nget 'it\\'s'\n*0\r\n*-1\r\nPING ''\r\n".to_vec());
    seeds
}

/// Parses as the server does, with reads of any size, before and after authentication.
fn request(bytes: &[u8]) {
    for authenticated in [true, false] {
        for read in [bytes.len().max(1), 7] {
            let mut parser = Parser::new(1 << 10);
            let mut buffer: Vec<u8> = Vec::new();
            for part in bytes.chunks(read) {
                buffer.extend_from_slice(part);
                let (taken, result) = parser.parse(&buffer, authenticated, 64);
                let chunk = Bytes::copy_from_slice(&buffer[..taken]);
                for args in parser.commands(&chunk) {
                    if args.too_large().is_none()
                        && let Ok(spec) = command::find(args)
                    {
                        let _ = command::parse(spec, &args, 1_700_000_000_000);
                    }
                }
                parser.clear();
                buffer.drain(..taken);
                if result.is_err() {
                    break;
                }
            }
        }
    }
}

fn replies() -> Vec<Vec<u8>> {
    let texts = [
        "+OK\r\n",
        "-ERR no\r\n",
        ":42\r\n",
        "$5\r\nhello\r\n",
        "$-1\r\n",
        "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        "_\r\n*-1\r\n*0\r\n",
    ];
    texts.map(|t| t.as_bytes().to_vec()).into()
}

// ---- configuration, HTTP

fn configurations() -> Vec<Vec<u8>> {
    let one = "seed = [\"10.0.0.1:7400\", \"node:7400\"]\nexpect = 3\nlisten = \"127.0.0.1:0\"\n\
               resp = \"off\"\nthreads = 2\nname = \"a\"\n";
    let other = "memory-max = \"2gb\"\nvalue-max = \"64kb\"\npartitions = 64\nbackups = 1\n\
                 weight = 100\nleave-timeout = \"30s\"\non-loss = \"reset after 60s\"\n";
    vec![one.into(), other.into()]
}

fn users() -> Vec<Vec<u8>> {
    let files = [
        "user default on nopass sanitize-payload ~* &* +@all\n",
        "user a on >pw ~a* %R~b?[c] &news.* resetchannels &x +@all -@dangerous -config|set\n\n\
         user b off #5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8 -@all \
         +select|0 +@read (%W~q +set -get) keyspace=app/3 keyspace=x*\n",
        "bob\n-@all +get +set|x ~k* %R~r &c\n+@all -del %RW~*",
    ];
    files.map(|text| text.as_bytes().to_vec()).to_vec()
}

fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(options) = Options::from_text(&text, "file") {
        // No named file is opened, because an input could name any file.
        let named = [
            &options.secret_file,
            &options.resp_password_file,
            &options.resp_acl_file,
            &options.http_token_file,
            &options.tls_ca,
            &options.tls_cert,
            &options.tls_key,
        ];
        if named.iter().all(|path| path.is_none()) {
            let _ = options.resolve(Defaults::Binary);
        }
    }
}

fn answers() -> Vec<Vec<u8>> {
    let ok = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
               content-length: 14\r\n\r\n{\"ready\":true}"
        .to_vec();
    vec![
        ok,
        b"HTTP/1.1 409 Conflict\r\n\r\n{\"error\":\"there is no member n9\"}".to_vec(),
    ]
}

fn tokens() -> Vec<Vec<u8>> {
    let texts = [
        "Bearer doyen_ungjjn1DKXOJWkNxz2nVCnbVHyWnBpGgeRDdKKP6TkU",
        "bearer  loopback ",
        "Basic YTpi",
        "{\"role\": \"operate\", \"sha256\": \
         \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"}",
        r#"{"role": "read", "sha256": "ba78"}"#,
        r#"{"rules": ["on >secret ~app:*", "(+get %R~x)", "-@all"]}"#,
        "# until May\n0123456789abcdef\n\n  fedcba9876543210\r\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

const LOG: LogName = LogName {
    directory: [7; 16],
    thread: 0,
};
/// The only file of a log that has just begun.
const LOG_FILE: &str = "00-0000000000000000.log";

fn record(seq: u64) -> RecordHead {
    RecordHead {
        kind: 1,
        at: PartitionRef::new(KeyspaceId(0), PartitionId(7)),
        lineage: Lineage(1),
        first: seq,
        last: seq,
    }
}

/// Files of a log with a group of records, and with several.
fn logs() -> Vec<Vec<u8>> {
    let of_groups = |groups: u64| {
        let files = MemoryFiles::new();
        let mut log = LogWriter::resume(files.clone(), LOG, 1 << 20, Default::default()).ok()?;
        for seq in 1..=groups {
            log.append(&record(2 * seq), b"an entry").ok()?;
            log.append(&record(2 * seq + 1), &[9; 100]).ok()?;
            log.sync().ok()?;
        }
        files.read(LOG_FILE).ok()
    };
    [1, 3].into_iter().filter_map(of_groups).collect()
}

/// Reads bytes as the file of a log, and goes on with it.
fn read_log(bytes: &[u8]) {
    let files = MemoryFiles::new();
    let mut file = files.create(LOG_FILE).expect("there is no file");
    file.write(bytes).expect("the disk works");
    let mut before = 0;
    let Ok(end) = doyen_disk::read(&files, LOG, &mut |_| before += 1) else {
        return;
    };
    let log = LogWriter::resume(files.clone(), LOG, 1 << 20, end);
    let mut log = log.expect("the disk works");
    log.append(&record(99), b"the next one").expect("it fits");
    log.sync().expect("the disk works");
    let (mut found, mut last) = (0, None);
    let read = doyen_disk::read(&files, LOG, &mut |what| {
        found += 1;
        last = match what {
            FoundInLog::Record { head, .. } => Some(head),
            FoundInLog::Damage(_) => None,
        };
    });
    read.expect("what was read once can be read");
    assert_eq!((found, last), (before + 1, Some(record(99))));
}
