//! Prints what a run of some scripts costs, in nanoseconds, or runs the scripts that it is given.
//!
//!     cargo run --release -p doyen-scripts --example bench [-- SCRIPT...]

use std::time::{Duration, Instant};

use bytes::Bytes;
use doyen_scripts::{Commands, Interpreter, Script, ScriptLimits, ScriptProtocol, ScriptReply};

/// Answers at once, so that only the scripts are measured.
struct Instantly;

impl Commands for Instantly {
    fn call(&mut self, args: Vec<Bytes>, _: ScriptProtocol) -> ScriptReply {
        ScriptReply::Bulk(args.into_iter().next_back().unwrap_or_default())
    }

    fn restart(&mut self) {}

    fn may_call(&mut self, _: &[Bytes]) -> Option<bool> {
        Some(true)
    }
}

const SCRIPTS: [(&str, &str); 8] = [
    ("nothing", "return 1"),
    ("one command", "return redis.call('GET', KEYS[1])"),
    (
        "compare and delete",
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) \
         else return 0 end",
    ),
    (
        "a rate limit",
        "local n = tonumber(redis.call('INCR', KEYS[1])) if n == 1 then \
         redis.call('EXPIRE', KEYS[1], ARGV[1]) end return n",
    ),
    ("an error", "return redis.call()"),
    (
        "JSON",
        "return cjson.encode(cjson.decode('{\"a\":[1,2,3],\"b\":\"x\"}'))",
    ),
    (
        "a pattern",
        "return string.match('2024-01-02', '(%d+)-(%d+)')",
    ),
    (
        "a million instructions",
        "local n = 0 for i = 1, 250000 do n = n + i % 7 end return n",
    ),
];

fn main() {
    let limits = ScriptLimits::default();
    let keys = [Bytes::from("key")];
    let args = [Bytes::from("10")];
    let mut interpreter = Interpreter::new();
    let given: Vec<String> = std::env::args().skip(1).collect();
    if !given.is_empty() {
        for body in given {
            let script = Script::parse(body).expect("a first line that is right");
            let begin = Instant::now();
            let reply = interpreter.run(&script, &keys, &args, &mut Instantly, &limits);
            println!("{reply:?} in {:?}", begin.elapsed());
        }
        return;
    }
    for (name, body) in SCRIPTS {
        let script = Script::parse(body).expect("a first line that is right");
        let mut run = || interpreter.run(&script, &keys, &args, &mut Instantly, &limits);
        for _ in 0..100 {
            let _ = run();
        }
        let (begin, mut runs) = (Instant::now(), 0);
        while begin.elapsed() < Duration::from_millis(500) {
            let _ = run();
            runs += 1;
        }
        println!("{:>12} ns  {name}", begin.elapsed().as_nanos() / runs);
    }
    let begin = Instant::now();
    for _ in 0..100 {
        interpreter.clear();
        let script = Script::parse("return 1").expect("no first line");
        let _ = interpreter.run(&script, &[], &[], &mut Instantly, &limits);
    }
    println!(
        "{:>12} ns  a new Lua state",
        begin.elapsed().as_nanos() / 100
    );
}
