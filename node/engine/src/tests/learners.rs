//! Collections of all kinds change while a learner copies them, and chunks overtake the log.
//!
//! No line draws at random, as `SPOP` does: each seed is the same again.

use super::hashes::parsed;
use super::*;
use crate::command::ParsedRequest;

// `+2` at the end: the last two words are given again, up to nine times. `Lines::word` says what the
// words in capitals stand for that are not of Redis.

const HASHES: &[&str] = &[
    "HSET KEY F V +2",
    "HSET KEY F V +2",
    "HSET KEY F V",
    "HSETNX KEY F V",
    "HINCRBY KEY count I",
    "HDEL KEY F +1",
    "HDEL KEY F",
    "HPEXPIRE KEY MS FIELDS 2 F F",
    "HPERSIST KEY FIELDS 1 F",
    "HSETEX KEY PX MS FIELDS 1 F V",
    "HGETEX KEY PX MS FIELDS 1 F",
    "HGETDEL KEY FIELDS 1 F",
];
const LISTS: &[&str] = &[
    "RPUSH KEY E +1",
    "RPUSH KEY E +1",
    "LPUSH KEY E +1",
    "LSET KEY I E",
    "LINSERT KEY BEFORE E E",
    "LINSERT KEY AFTER E E",
    "LREM KEY I E",
    "LTRIM KEY N I",
    "LPOP KEY N",
    "RPOP KEY N",
    "LMOVE KEY KEY LEFT RIGHT",
    "LMPOP 2 KEY KEY RIGHT COUNT N",
    "SORT KEY ALPHA STORE KEY",
];
const SETS: &[&str] = &[
    "SADD KEY F +1",
    "SADD KEY F +1",
    "SREM KEY F +1",
    "SREM KEY F",
    "SMOVE KEY KEY F",
    "SUNIONSTORE KEY KEY KEY",
    "SDIFFSTORE KEY KEY KEY",
];
const SORTED_SETS: &[&str] = &[
    "ZADD KEY S F +2",
    "ZADD KEY S F +2",
    "ZADD KEY S F",
    "ZINCRBY KEY I F",
    "ZREM KEY F +1",
    "ZREM KEY F",
    "ZREMRANGEBYSCORE KEY SPAN",
    "ZREMRANGEBYSCORE KEY SPAN",
    "ZREMRANGEBYRANK KEY N I",
    "ZREMRANGEBYLEX KEY - [F",
    "ZPOPMIN KEY N",
    "ZMPOP 2 KEY KEY MAX COUNT N",
    "ZUNIONSTORE KEY 2 KEY KEY",
    "ZRANGESTORE KEY KEY N I",
];
const STREAMS: &[&str] = &[
    "XADD KEY * F V +2",
    "XADD KEY * F V",
    "XADD KEY * F V",
    "XADD KEY MAXLEN 20 * F V",
    "XDEL KEY ID +1",
    "XTRIM KEY MAXLEN N",
    "XTRIM KEY MINID ID",
    "XSETID KEY 1700000000000-9999",
    "XGROUP CREATE KEY G ID MKSTREAM",
    "XGROUP CREATE KEY G 0 MKSTREAM",
    "XGROUP SETID KEY G ID",
    "XGROUP DESTROY KEY G",
    "XGROUP DELCONSUMER KEY G C",
    "XREADGROUP GROUP G C COUNT N STREAMS KEY >",
    "XREADGROUP GROUP G C COUNT N STREAMS KEY >",
    "XREADGROUP GROUP G C COUNT N STREAMS KEY ID",
    "XACK KEY G ID +1",
    "XCLAIM KEY G C 0 ID +1",
    "XAUTOCLAIM KEY G C 0 ID COUNT N",
];
const STRINGS: &[&str] = &["SET KEY V", "APPEND KEY V", "SET KEY V PX MS"];
const OF_ANY_KIND: &[&str] = &[
    "DEL KEY",
    "RENAME KEY KEY",
    "COPY KEY KEY REPLACE",
    "RENAME KEY ANY",
    "COPY ANY KEY REPLACE",
    "PEXPIRE KEY MS",
    "PEXPIRE KEY 99000",
    "PERSIST KEY",
];
const KINDS: [(&str, &[&str]); 6] = [
    ("hash", HASHES),
    ("list", LISTS),
    ("set", SETS),
    ("sorted", SORTED_SETS),
    ("stream", STREAMS),
    ("string", STRINGS),
];

/// What a seed writes: collections of these kinds, numbers of keys of each, and of fields and
/// elements.
pub(super) struct Load {
    kinds: Vec<usize>,
    keys: u64,
    fields: u64,
}

impl Load {
    pub(super) fn of(rng: &mut Rng) -> Self {
        // Many changes of a few kinds, or of all.
        let kinds = match 1 + rng.below(4) as usize {
            4 => (0..KINDS.len()).collect(),
            few => (0..few)
                .map(|_| rng.below(KINDS.len() as u64) as usize)
                .collect(),
        };
        Self {
            kinds,
            keys: 1 + rng.below(3),
            fields: 10 + rng.below(50),
        }
    }
}

/// Makes commands.
struct Lines<'a> {
    rng: &'a mut Rng,
    load: &'a Load,
}

impl Lines<'_> {
    fn kind(&mut self) -> (&'static str, &'static [&'static str]) {
        let kinds = &self.load.kinds;
        KINDS[kinds[self.rng.below(kinds.len() as u64) as usize]]
    }

    fn line(&mut self) -> String {
        let (kind, own) = self.kind();
        let all = if self.rng.one_in(8) { OF_ANY_KIND } else { own };
        let mut words: Vec<&str> = all[self.rng.below(all.len() as u64) as usize]
            .split(' ')
            .collect();
        let again = words.last().and_then(|last| last.strip_prefix('+'));
        if let Some(count) = again.and_then(|count| count.parse::<usize>().ok()) {
            words.pop();
            let unit = words.split_off(words.len() - count);
            let times = 1 + self.rng.below(9) as usize;
            words.extend(unit.iter().cycle().take(count * times));
        }
        let words: Vec<String> = words.iter().map(|word| self.word(word, kind)).collect();
        words.join(" ")
    }

    /// What stands for itself, or is drawn.
    fn word(&mut self, word: &str, kind: &str) -> String {
        if word == "ANY" {
            let (kind, _) = self.kind();
            return self.word("KEY", kind);
        }
        let rng = &mut *self.rng;
        let Load { keys, fields, .. } = *self.load;
        match word {
            "KEY" => format!("{{a}}{kind}{}", rng.below(keys)),
            "F" => format!("field-{:03}", rng.below(fields)),
            "[F" => format!("[field-{:03}", rng.below(fields)),
            "E" => {
                let element = rng.below(fields / 2);
                format!("e{element}-{}", "x".repeat(element as usize * 5 % 40))
            }
            "V" => format!("v{}", "y".repeat(rng.below(40) as usize)),
            "N" => (1 + rng.below(7)).to_string(),
            "I" => (rng.below(30) as i64 - 15).to_string(),
            "S" => rng.below(fields).to_string(),
            "SPAN" => {
                let first = rng.below(fields);
                format!("{first} {}", first + rng.below(fields / 2))
            }
            "MS" => (1 + rng.below(300)).to_string(),
            "ID" => format!("1700000000000-{}", rng.below(fields)),
            "G" => format!("group{}", rng.below(3)),
            "C" => format!("consumer{}", rng.below(3)),
            other => other.to_owned(),
        }
    }
}

/// The operation of a command. `None`: it names the same key twice, and may not.
fn operation_of(line: &str) -> Option<(String, Action)> {
    let (words, request) = parsed(line);
    let (key, action) = match request {
        Ok(ParsedRequest::One { key, action, .. }) => (key, action),
        Ok(ParsedRequest::Pop(pop)) => pop.take_all(),
        Ok(ParsedRequest::Many(_)) => (words[1].clone(), Action::Delete),
        Err(why) if why.0.ends_with("objects are the same") => return None,
        Err(why) => panic!("{line}: {why:?}"),
    };
    Some((String::from_utf8(key.to_vec()).expect("text"), action))
}

/// Some commands at once, alone or in a transaction.
pub(super) fn commands(w: &mut World, load: &Load) {
    let mut rng = Rng(w.rng.0);
    let mut lines = Lines {
        rng: &mut rng,
        load,
    };
    if lines.rng.one_in(6) {
        let count = 2 + lines.rng.below(5);
        let steps = (0..count).filter_map(|_| operation_of(&lines.line()));
        let steps: Vec<_> = steps.collect();
        let steps = steps.iter().map(|(key, action)| (&**key, action.clone()));
        w.submit_work(1, transaction(&[], steps));
    } else {
        for _ in 0..lines.rng.below(5) {
            if let Some((key, action)) = operation_of(&lines.line()) {
                let caller = if lines.rng.one_in(8) { 3 } else { 1 };
                w.submit(caller, &key, action);
            }
        }
    }
    w.rng = rng;
}

fn learns_under_load(seed: u64) {
    let at = {
        let t = table(1, |_| vec![1]);
        let at = t.keyspaces[0].partition_of(MapId(0), b"{a}");
        at.expect("all keys are in partitions")
    };
    let mut w = World::new(seed, 3, |_| vec![1, 2]);
    let one_of = |w: &mut World, all: &[usize]| all[w.rng.below(all.len() as u64) as usize];
    let (chunk, packed) = (
        one_of(&mut w, &[60, 200, 600]),
        one_of(&mut w, &[40, 150, 600]),
    );
    let load = Load::of(&mut w.rng);
    for node in w.nodes.values_mut() {
        let limits = &mut node.shard.cx.host.limits;
        limits.chunk_bytes = chunk;
        (limits.packed_bytes_max, limits.packed_small_bytes_max) = (packed, packed);
    }
    w.settle(Duration::from_millis(50));
    for _ in 0..50 {
        commands(&mut w, &load);
    }
    w.settle(Duration::from_millis(50));
    w.propose(|t| {
        partition_mut(t, at).replicas.push(Replica {
            member: id(3),
            state: ReplicaState::Learner,
        });
    });
    let in_sync = |w: &World| partition_of(w, at).in_sync().count() == 3;
    // How seldom bytes arrive: of calls and of bulk, in either direction.
    let mut seldom = [1; 4];
    for step in 0..300 {
        if step % 16 == 0 {
            seldom = std::array::from_fn(|_| [1, 2, 5, 15][w.rng.below(4) as usize]);
        }
        commands(&mut w, &load);
        for wire in w.wires.keys().copied().collect::<Vec<_>>() {
            let (from, _, lane) = wire;
            let nth = usize::from(from == 1) + 2 * usize::from(lane == Lane::Bulk);
            if w.rng.one_in(seldom[nth]) {
                let whole = w.rng.one_in(4);
                w.deliver(wire, whole);
            }
        }
        w.agree(false);
        let ms = w.rng.below(3);
        w.pass(Duration::from_millis(ms));
        if in_sync(&w) {
            break;
        }
    }
    w.settle(Duration::from_secs(2));
    assert!(in_sync(&w), "the learner is not in sync");
    let stats = |w: &World, n: u64| w.nodes[&n].shard.stats().copies.checksum_mismatches;
    assert_eq!((1..=3).map(|n| stats(&w, n)).sum::<u64>(), 0);
    w.check_copies();
    for node in w.nodes.values() {
        let slots = node.shard.slots.iter();
        let held = slots.filter_map(|slot| slot.held.as_ref());
        let held: usize = held.map(|held| held.bytes()).sum();
        assert_eq!(node.shard.cx.host.memory.bytes, held);
    }
}

pub(super) fn partition_of(w: &World, at: PartitionId) -> &Partition {
    let mut all = w.tables[w.committed].keyspaces[0].partitions.iter();
    all.find(|p| p.id == at).expect("no partition goes")
}

/// `DOYEN_STORM=first..last` selects other seeds.
#[test]
fn a_learner_gets_collections_that_change_whatever_arrives_first() {
    let text = std::env::var("DOYEN_STORM").unwrap_or_default();
    let seeds = text
        .split_once("..")
        .and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    for seed in seeds.unwrap_or(0..20) {
        let result = std::panic::catch_unwind(|| learns_under_load(seed));
        if let Err(panic) = result {
            println!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
