//! A keyspace in memory, with the replies of Redis for a few commands.

use std::collections::BTreeMap;
use std::sync::Once;

use bytes::Bytes;
use doyen_scripts::{
    Commands, Interpreter, Script, ScriptLimits, ScriptProtocol, ScriptReply, errors,
};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";

enum Stored {
    String(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    List(Vec<Bytes>),
}

/// A keyspace for tests.
#[derive(Default)]
pub(crate) struct Store {
    keys: BTreeMap<Bytes, Stored>,
    /// Commands that were called.
    pub(crate) calls: usize,
    /// Runs that began again.
    pub(crate) restarts: usize,
}

fn error(text: &str) -> ScriptReply {
    ScriptReply::Error(text.to_owned().into())
}

impl Store {
    fn string(&self, key: &Bytes) -> Result<Option<Bytes>, ScriptReply> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(Stored::String(value)) => Ok(Some(value.clone())),
            Some(_) => Err(error(WRONG_TYPE)),
        }
    }

    fn increment(&mut self, key: &Bytes, by: i64) -> Result<ScriptReply, ScriptReply> {
        let value = self.string(key)?.unwrap_or_else(|| Bytes::from("0"));
        let sum = integer(&value)?
            .checked_add(by)
            .ok_or_else(|| error("ERR increment or decrement would overflow"))?;
        self.keys
            .insert(key.clone(), Stored::String(Bytes::from(sum.to_string())));
        Ok(ScriptReply::Int(sum))
    }

    fn run(
        &mut self,
        args: &[Bytes],
        protocol: ScriptProtocol,
    ) -> Result<ScriptReply, ScriptReply> {
        let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
        let (least, most) = match name.as_str() {
            "get" | "incr" | "hgetall" | "type" | "echo" => (2, 2),
            "set" | "hget" | "incrby" | "expire" => (3, 3),
            "hset" => (4, usize::MAX),
            "del" | "exists" | "mget" => (2, usize::MAX),
            "rpush" => (3, usize::MAX),
            "lrange" => (4, 4),
            "ping" => (1, 2),
            "subscribe" => return Err(error(errors::NOT_ALLOWED)),
            _ => return Err(error(errors::UNKNOWN_COMMAND)),
        };
        if args.len() < least || args.len() > most {
            return Err(error(errors::WRONG_ARITY));
        }
        let bulk = |value: Option<Bytes>| value.map_or(ScriptReply::Nil, ScriptReply::Bulk);
        Ok(match name.as_str() {
            "get" => bulk(self.string(&args[1])?),
            "set" => {
                self.keys
                    .insert(args[1].clone(), Stored::String(args[2].clone()));
                ScriptReply::ok()
            }
            "incr" => return self.increment(&args[1], 1),
            "incrby" => return self.increment(&args[1], integer(&args[2])?),
            "expire" => {
                integer(&args[2])?;
                ScriptReply::Int(i64::from(self.keys.contains_key(&args[1])))
            }
            "del" => {
                let removed = args[1..]
                    .iter()
                    .filter(|key| self.keys.remove(*key).is_some());
                ScriptReply::Int(removed.count() as i64)
            }
            "exists" => {
                let found = args[1..].iter().filter(|key| self.keys.contains_key(*key));
                ScriptReply::Int(found.count() as i64)
            }
            "mget" => ScriptReply::Array(
                args[1..]
                    .iter()
                    .map(|key| bulk(self.string(key).unwrap_or(None)))
                    .collect(),
            ),
            "type" => ScriptReply::Status(
                match self.keys.get(&args[1]) {
                    None => "none",
                    Some(Stored::String(_)) => "string",
                    Some(Stored::Hash(_)) => "hash",
                    Some(Stored::List(_)) => "list",
                }
                .into(),
            ),
            "hset" => {
                if !args.len().is_multiple_of(2) {
                    return Err(error("ERR wrong number of arguments for 'hset' command"));
                }
                let stored = self.keys.entry(args[1].clone());
                let Stored::Hash(hash) = stored.or_insert_with(|| Stored::Hash(BTreeMap::new()))
                else {
                    return Err(error(WRONG_TYPE));
                };
                let pairs = args[2..].chunks(2);
                let new = pairs
                    .filter(|pair| hash.insert(pair[0].clone(), pair[1].clone()).is_none())
                    .count();
                ScriptReply::Int(new as i64)
            }
            "hget" | "hgetall" => {
                let empty = BTreeMap::new();
                let hash = match self.keys.get(&args[1]) {
                    None => &empty,
                    Some(Stored::Hash(hash)) => hash,
                    Some(_) => return Err(error(WRONG_TYPE)),
                };
                if name == "hget" {
                    return Ok(bulk(hash.get(&args[2]).cloned()));
                }
                let pairs = hash.iter();
                let pairs = pairs.map(|(key, value)| {
                    (
                        ScriptReply::Bulk(key.clone()),
                        ScriptReply::Bulk(value.clone()),
                    )
                });
                match protocol {
                    ScriptProtocol::Resp2 => {
                        ScriptReply::Array(pairs.flat_map(|(k, v)| [k, v]).collect())
                    }
                    ScriptProtocol::Resp3 => ScriptReply::Map(pairs.collect()),
                }
            }
            "rpush" => {
                let stored = self.keys.entry(args[1].clone());
                let Stored::List(list) = stored.or_insert_with(|| Stored::List(Vec::new())) else {
                    return Err(error(WRONG_TYPE));
                };
                list.extend_from_slice(&args[2..]);
                ScriptReply::Int(list.len() as i64)
            }
            "lrange" => {
                let (from, to) = (integer(&args[2])?, integer(&args[3])?);
                let empty = Vec::new();
                let list = match self.keys.get(&args[1]) {
                    None => &empty,
                    Some(Stored::List(list)) => list,
                    Some(_) => return Err(error(WRONG_TYPE)),
                };
                let place = |at: i64| if at < 0 { at + list.len() as i64 } else { at };
                let elements = list
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| (place(from)..=place(to)).contains(&(*at as i64)));
                ScriptReply::Array(
                    elements
                        .map(|(_, value)| ScriptReply::Bulk(value.clone()))
                        .collect(),
                )
            }
            "echo" => ScriptReply::Bulk(args[1].clone()),
            "ping" => match args.get(1) {
                Some(text) => ScriptReply::Bulk(text.clone()),
                None => ScriptReply::Status("PONG".into()),
            },
            _ => return Err(error(errors::UNKNOWN_COMMAND)),
        })
    }
}

fn integer(text: &[u8]) -> Result<i64, ScriptReply> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| error(NO_INTEGER))
}

impl Commands for Store {
    fn call(&mut self, args: Vec<Bytes>, protocol: ScriptProtocol) -> ScriptReply {
        self.calls += 1;
        self.run(&args, protocol).unwrap_or_else(|error| error)
    }

    fn restart(&mut self) {
        self.keys.clear();
        self.restarts += 1;
    }

    /// The caller may do everything.
    fn may_call(&mut self, args: &[Bytes]) -> Option<bool> {
        matches!(&*args[0].to_ascii_lowercase(), b"set" | b"get").then_some(true)
    }
}

/// Lets the process end at a panic of the crate or of mlua, as a node does. mlua would give it to
/// the script as an error otherwise, which the script can catch.
fn end_at_panics() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            hook(panic);
            let file = panic.location().map_or("", |place| place.file());
            if !file.contains("tests") {
                std::process::abort();
            }
        }));
    });
}

/// Runs a script over an empty keyspace, with the keys `k1` and `k2` and the given arguments.
pub(crate) fn run_with(
    interpreter: &mut Interpreter,
    body: &str,
    args: &[&str],
    limits: &ScriptLimits,
) -> ScriptReply {
    end_at_panics();
    let script = match Script::parse(body.as_bytes().to_vec()) {
        Ok(script) => script,
        Err(text) => return ScriptReply::Error(text.into()),
    };
    let keys = [Bytes::from("k1"), Bytes::from("k2")];
    let args: Vec<_> = args
        .iter()
        .map(|arg| Bytes::from(arg.to_string()))
        .collect();
    let mut store = Store::default();
    interpreter
        .run(&script, &keys, &args, &mut store, limits)
        .unwrap_or_else(|failure| failure.into())
}

/// Runs a script in an interpreter of its own.
pub(crate) fn run(body: &str) -> ScriptReply {
    run_with(
        &mut Interpreter::new(),
        body,
        &["a1", "2"],
        &ScriptLimits::default(),
    )
}

/// What a script returns as a bulk string, or its error.
pub(crate) fn text(body: &str) -> String {
    match run(body) {
        ScriptReply::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        ScriptReply::Error(text) => String::from_utf8_lossy(&text).into_owned(),
        reply => format!("{reply:?}"),
    }
}
