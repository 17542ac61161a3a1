//! Scripts that are put together from fragments: whatever they do, they end within their limits,
//! and the next script does not notice.

use std::cell::RefCell;

use crate::common::run_with;
use doyen_scripts::{Interpreter, ScriptLimits, ScriptReply};
use proptest::prelude::*;
use proptest::sample::select;

const LIMITS: ScriptLimits = ScriptLimits {
    instructions: 200_000,
    memory_bytes: 4 << 20,
    reply_bytes: 1 << 20,
    time: std::time::Duration::from_secs(10),
};

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

fn value() -> impl Strategy<Value = String> {
    (
        select(&VALUES[..]),
        prop::collection::vec(select(&VALUES[..]), 3),
    )
        .prop_map(|(value, holes)| {
            // The holes of the holes are nil.
            fill(&fill(value, &holes), &[])
        })
}

fn statement() -> impl Strategy<Value = String> {
    let call = (select(&CALLS[..]), prop::collection::vec(value(), 4));
    (
        select(&STATEMENTS[..]),
        call,
        prop::collection::vec(value(), 2),
    )
        .prop_map(|(statement, (call, holes), values)| {
            let holes: Vec<_> = holes.iter().map(String::as_str).collect();
            let call = fill(call, &holes);
            let values: Vec<_> = values.iter().map(String::as_str).collect();
            let statement = fill(statement, &values);
            match statement.as_str() {
                // A call is no statement if its function is not a name.
                "C" => format!("t = {call}"),
                _ if statement.starts_with("t") => statement.replace('C', &call),
                _ => statement.replace('C', &format!("t = {call}")),
            }
        })
}

/// 1,536 cases, or six times as many as the environment's `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases * 6,
        ..default
    }
}

thread_local! {
    static INTERPRETER: RefCell<Interpreter> = RefCell::default();
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_script_breaks_the_interpreter(
        statements in prop::collection::vec(statement(), 1..8),
        result in value(),
    ) {
        let statements = statements.join("\n");
        // Half of the statements would fail otherwise, and the rest not be tried.
        let body = format!(
            "local t, f, g, co = {{}}, error, pcall, coroutine.create(function() end)\n\
             {}\nreturn {result}",
            statements
                .lines()
                .map(|line| format!("pcall(function() {line} end)"))
                .collect::<Vec<_>>()
                .join("\n")
        );
        INTERPRETER.with_borrow_mut(|interpreter| {
            run_with(interpreter, &body, &["a", "1"], &LIMITS);
            let after = run_with(interpreter, "math.randomseed(0) return {redis.call('ECHO', #KEYS), math.random(100)}", &[], &LIMITS);
            assert_eq!(after, ScriptReply::Array(vec![ScriptReply::bulk("2"), ScriptReply::Int(18)]), "{body}");
        });
    }

    #[test]
    fn no_text_breaks_the_compiler(body in "[ -~\\n]{0,200}") {
        INTERPRETER.with_borrow_mut(|interpreter| {
            run_with(interpreter, &body, &[], &LIMITS);
        });
    }

    #[test]
    fn no_bytes_break_a_decoder(bytes in prop::collection::vec(any::<u8>(), 0..64), json in "[\\[\\]{}\",:0-9a-fnulltrue\\\\ .eE+-]{0,64}") {
        let escaped: String = bytes.iter().map(|byte| format!("\\{byte:03}")).collect();
        let json: String = json.bytes().map(|byte| format!("\\{byte:03}")).collect();
        let body = format!(
            "local b, j = '{escaped}', '{json}' \
             pcall(cmsgpack.unpack, b) pcall(cjson.decode, b) pcall(struct.unpack, b, b) \
             pcall(struct.pack, b, 1, 'x', 2) pcall(struct.size, b) pcall(string.find, b, b) \
             pcall(string.gsub, b, b, b) pcall(string.format, b, 1, 'x') \
             local ok, v = pcall(cjson.decode, j) if ok then cjson.encode(v) end return 1"
        );
        INTERPRETER.with_borrow_mut(|interpreter| {
            let reply = run_with(interpreter, &body, &[], &LIMITS);
            assert!(matches!(reply, ScriptReply::Int(1) | ScriptReply::Error(_)), "{reply:?}");
        });
    }
}
