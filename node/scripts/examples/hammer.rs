//! hammer (temporary)
#[path = "../tests/common/mod.rs"]
mod common;
use common::run_with;
use doyen_scripts::{Interpreter, Limits, Reply};
/// Values, and functions with few arguments. `X` and `Y` become other values.
const VALUES: [&str; 62] = [
    "nil",
    "true",
    "false",
    "0",
    "-1",
    "1.5",
    "1e300",
    "2^31",
    "-2^63",
    "0/0",
    "1/0",
    "''",
    "'abc'",
    "'%d+'",
    "'(.-)%1'",
    "'[^a'",
    "'.-.-.-x'",
    "'{\"a\":[1,null]}'",
    "'\\0\\255'",
    "'>i4!8c0s'",
    "{}",
    "{1,2,3}",
    "{a=1,[2]=2}",
    "{X,Y}",
    "{X}",
    "t",
    "t.x",
    "f",
    "g",
    "co",
    "KEYS",
    "ARGV",
    "_G",
    "string",
    "redis",
    "cjson",
    "getmetatable('')",
    "cjson.null",
    "redis.call",
    "redis.pcall",
    "pcall",
    "xpcall",
    "error",
    "rawset",
    "rawequal",
    "setmetatable",
    "coroutine.wrap",
    "tostring",
    "string.rep",
    "string.gsub",
    "table.sort",
    "table.insert",
    "table.foreach",
    "unpack",
    "loadstring",
    "string.rep(X, 1000)",
    "string.rep(X, 1e7)",
    "coroutine.create(f)",
    "setmetatable({}, {__index=X,__newindex=Y,__call=f,__lt=g,__tostring=f,__concat=g})",
    "function(...) return X, ... end",
    "function() while true do X = Y end end",
    "#X",
];

const CALLS: [&str; 46] = [
    "X(Y)",
    "X(Y, Z)",
    "X(Y, Z, W)",
    "pcall(X, Y, Z)",
    "xpcall(X, Y)",
    "redis.call(X, Y, Z)",
    "redis.pcall('SET', X, Y)",
    "redis.call('ECHO', X)",
    "string.find(X, Y, Z, W)",
    "string.match(X, Y, Z)",
    "string.gsub(X, Y, Z, W)",
    "string.gmatch(X, Y)()",
    "string.format(X, Y, Z)",
    "string.rep(X, Y)",
    "string.sub(X, Y, Z)",
    "string.byte(X, Y, Z)",
    "table.sort(X, Y)",
    "table.concat(X, Y, Z, W)",
    "table.insert(X, Y, Z)",
    "table.remove(X, Y)",
    "table.foreach(X, Y)",
    "unpack(X, Y, Z)",
    "select(X, Y, Z)",
    "setmetatable(X, Y)",
    "rawset(X, Y, Z)",
    "rawget(X, Y)",
    "next(X, Y)",
    "pairs(X)",
    "tonumber(X, Y)",
    "tostring(X)",
    "cjson.encode(X)",
    "cjson.decode(X)",
    "cmsgpack.pack(X, Y)",
    "cmsgpack.unpack(X)",
    "cmsgpack.unpack_limit(X, Y, Z)",
    "struct.pack(X, Y, Z)",
    "struct.unpack(X, Y, Z)",
    "struct.size(X)",
    "bit.band(X, Y)",
    "bit.tohex(X, Y)",
    "math.random(X, Y)",
    "coroutine.resume(X, Y)",
    "coroutine.wrap(X)(Y)",
    "coroutine.yield(X)",
    "load(X, Y)",
    "collectgarbage(X)",
];

const STATEMENTS: [&str; 18] = [
    "t = C",
    "t.x = C",
    "t[X] = C",
    "f = X",
    "g = X",
    "co = X",
    "C",
    "pcall(function() C end)",
    "for k, v in pairs(X) do C end",
    "for i = 1, 100 do C end",
    "while X do C end",
    "for a, b in X, Y do C end",
    "local ok, e = pcall(X, Y) t = e",
    "error(X)",
    "t = X .. Y",
    "t = X < Y",
    "redis.setresp(3)",
    "setmetatable(t, {__index = function(t, k) C end})",
];

fn fill(template: &str, holes: &[&str]) -> String {
    let mut holes = holes.iter();
    let mut filled = String::new();
    for character in template.chars() {
        match character {
            'X' | 'Y' | 'Z' | 'W' => filled.push_str(holes.next().unwrap_or(&"nil")),
            other => filled.push(other),
        }
    }
    filled
}

const EXTRA: [&str; 18] = [
    "local function r() return (r()) end r()",
    "local function r(...) return pcall(r, ...) end r(X, Y)",
    "local n = 0 local function r() n = n + 1 local ok, e = pcall(r) string.rep(X, Y) return e end r()",
    "local function r() return coroutine.wrap(r)() end r()",
    "local n = 0 local function r() n = n + 1 if n < N then return coroutine.wrap(r)() end for i = 1, 50 do pcall(string.rep) C end end r()",
    "local n = 0 local function r() n = n + 1 if n < N then return (pcall(r)) end for i = 1, 50 do pcall(string.rep) C end end r()",
    "local m = {} m.__index = function(t, k) return t[k + 1] end t = setmetatable({}, m)[1]",
    "local m = setmetatable({}, {}) getmetatable(m).__index = function(t, k) pcall(string.rep) return m[k + 1] end t = m[1]",
    "xpcall(function() local a = X local b = function() a = Y return a end C b() while true do b() end end, function(e) C return e end)",
    "xpcall(function() local function r() return 1 + r() end r() end, function(e) C return e end)",
    "local z = {} for i = 1, 1e5 do z[i] = X end",
    "local z = {} for i = 1, 1e5 do z['k' .. i] = {i} end",
    "for i = 1, 200 do pcall(string.rep) pcall(redis.call) end collectgarbage()",
    "local s = 'x' while true do s = s .. s end",
    "local l = {} for i = 1, 1000 do l[i] = coroutine.create(function() coroutine.yield(X) C end) coroutine.resume(l[i]) end",
    "f = function() C end co = coroutine.create(f) coroutine.resume(co) coroutine.resume(co)",
    "f = coroutine.wrap(function() while true do coroutine.yield(X) C end end) f() f() f()",
    "local a, b = coroutine.create(function() C coroutine.yield() C end) for i = 1, 4 do coroutine.resume(a, X) end",
];

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E3779B97F4A7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }
}
fn value(rng: &mut Rng) -> String {
    let value = rng.pick(&VALUES);
    let holes = [rng.pick(&VALUES), rng.pick(&VALUES), rng.pick(&VALUES)];
    fill(&fill(value, &holes), &[])
}
fn call(rng: &mut Rng) -> String {
    let call = rng.pick(&CALLS);
    let holes: Vec<String> = (0..4).map(|_| value(rng)).collect();
    let holes: Vec<&str> = holes.iter().map(String::as_str).collect();
    fill(call, &holes)
}
fn statement(rng: &mut Rng) -> String {
    let call = call(rng);
    let values = [value(rng), value(rng)];
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    if rng.below(3) == 0 {
        let statement = rng.pick(&EXTRA);
        let n = (150 + rng.below(60)).to_string();
        let mut s = String::new();
        let mut holes = values.iter();
        for c in statement.chars() {
            match c {
                'X' | 'Y' => s.push_str(holes.next().unwrap_or(&"nil")),
                'N' => s.push_str(&n),
                'C' => s.push_str(&format!("t = {call}")),
                c => s.push(c),
            }
        }
        return s;
    }
    let statement = fill(rng.pick(&STATEMENTS), &values);
    match statement.as_str() {
        "C" => format!("t = {call}"),
        _ if statement.starts_with('t') => statement.replace('C', &call),
        _ => statement.replace('C', &format!("t = {call}")),
    }
}
fn body(rng: &mut Rng) -> String {
    let mut body =
        String::from("local t, f, g, co = {}, error, pcall, coroutine.create(function() end)\n");
    for _ in 0..1 + rng.below(8) {
        let statement = statement(rng);
        body.push_str(&format!("pcall(function() {statement} end)\n"));
    }
    body.push_str(&format!("return {}", value(rng)));
    body
}
fn main() {
    let env = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(default)
    };
    let (seed, from, cases, loud) = (
        env("SEED", 1),
        env("FROM", 0),
        env("CASES", 1000),
        env("LOUD", 0),
    );
    let mode = env("MODE", 0);
    let work = move || {
        let mut interpreter = Interpreter::default();
        for case in from..from + cases {
            let mut rng = Rng(seed.wrapping_mul(1_000_003).wrapping_add(case * 7919));
            rng.next();
            let body = body(&mut rng);
            let limits = if mode == 0 {
                Limits {
                    instructions: 200_000,
                    memory_bytes: 4 << 20,
                    reply_bytes: 1 << 20,
                    time: std::time::Duration::from_secs(10),
                }
            } else {
                let memory_bytes = 1 + match rng.below(3) {
                    0 => rng.below(3_000),
                    1 => rng.below(40_000),
                    _ => rng.below(600_000),
                };
                Limits {
                    instructions: 500 + rng.below(60_000) as u64,
                    memory_bytes,
                    reply_bytes: 1 << 20,
                    time: std::time::Duration::from_secs(10),
                }
            };
            if loud > 0 {
                eprintln!(
                    "case {case} memory {} instructions {}",
                    limits.memory_bytes, limits.instructions
                );
            }
            if loud > 1 {
                eprintln!("{body}\n");
            }
            let reply = run_with(&mut interpreter, &body, &["a", "1"], &limits);
            if loud > 2 {
                eprintln!("{reply:?}\n");
            }
            let full = Limits {
                instructions: 200_000,
                memory_bytes: 4 << 20,
                reply_bytes: 1 << 20,
                time: std::time::Duration::from_secs(10),
            };
            let after = run_with(
                &mut interpreter,
                "return {redis.call('ECHO', #KEYS), math.random(100)}",
                &[],
                &full,
            );
            assert_eq!(
                after,
                Reply::Array(vec![Reply::bulk("2"), Reply::Int(18)]),
                "case {case}: {body}"
            );
        }
    };
    std::thread::spawn(work).join().unwrap();
}
