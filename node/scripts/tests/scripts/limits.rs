//! What ends a script that takes too much, and that the next script does not notice.

use std::time::Duration;

use crate::common::{Store, run, run_with};
use bytes::Bytes;
use doyen_scripts::{Interpreter, Script, ScriptFailure, ScriptLimits, ScriptReply};

const LIMITS: ScriptLimits = ScriptLimits {
    instructions: 2_000_000,
    memory_bytes: 8 << 20,
    reply_bytes: 1 << 20,
    time: Duration::from_secs(5),
};

/// The processor time of this thread, as a node measures it: other load takes none of it.
fn clock() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}

/// Runs a script, and checks that the interpreter works afterwards.
fn fail_in(interpreter: &mut Interpreter, body: &str, limits: &ScriptLimits) -> ScriptFailure {
    let script = Script::parse(body.to_owned()).unwrap();
    let mut store = Store::default();
    let ended = interpreter.run(&script, &[], &[], &mut store, limits);
    let after = run_with(
        interpreter,
        "return redis.call('ECHO', 'still here')",
        &[],
        limits,
    );
    assert_eq!(after, ScriptReply::bulk("still here"), "after {body}");
    ended.expect_err(body)
}

fn fail(body: &str) -> String {
    match fail_in(&mut Interpreter::new(), body, &LIMITS) {
        ScriptFailure::Stopped(text) => text,
        failure => panic!("{body}: {failure}"),
    }
}

fn too_long(body: &str) {
    assert_eq!(
        fail(body),
        "ERR the script ran too long: at most 2000000 instructions; nothing was changed; give it \
         less to do at once",
        "{body}"
    );
}

fn too_much(body: &str) {
    assert_eq!(
        fail(body),
        "ERR the script used too much memory: at most 8388608 bytes; nothing was changed",
        "{body}"
    );
}

#[test]
fn a_script_cannot_run_for_ever() {
    too_long("while true do end");
    too_long("local function f() return f() end return f()");
    too_long("repeat until false");
    too_long("for i = 1, 1e18 do end");
    too_long(
        "local t = setmetatable({}, {__index = function(t, k) return k end}) while t.x do end",
    );
}

#[test]
fn a_script_cannot_catch_that_its_time_is_over() {
    too_long("while true do pcall(function() while true do end end) end");
    too_long("local function f() pcall(f) end while true do pcall(f) end");
    too_long("while true do xpcall(function() while true do end end, function() end) end");
    too_long("xpcall(function() while true do end end, function() while true do end end)");
    too_long("pcall(function() while true do end end) return 1");
    too_long("pcall(pcall, pcall, function() while true do end end) return 1");
    too_long("while true do pcall(string.gsub, 'aaa', 'a', function() while true do end end) end");
    too_long("while true do pcall(table.sort, {3,2,1}, function() while true do end end) end");
    too_long("for e in pcall, error do end");
    too_long("local function f() xpcall(f, f) error('x') end f()");
    too_long("xpcall(function() error('x') end, function() while true do end end)");
    too_long("local function f() xpcall(f, function() while true do end end) end f()");
}

#[test]
fn coroutines_take_from_the_same_budget() {
    too_long("local f = coroutine.wrap(function() while true do end end) f()");
    too_long(
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    );
    too_long(
        "local f = coroutine.wrap(function() while true do coroutine.yield() end end) while true do f() end",
    );
    too_long(
        "local function f() while true do pcall(coroutine.wrap(f)) end end \
         while true do pcall(coroutine.wrap(f)) end",
    );
    too_long(
        "local co = {} for i = 1, 100 do co[i] = coroutine.create(function() \
         while true do pcall(coroutine.yield) end end) end \
         while true do for i = 1, 100 do pcall(coroutine.resume, co[i]) end end",
    );
}

#[test]
fn functions_of_the_libraries_take_from_the_same_budget() {
    too_long("return string.find(string.rep('a', 5000), '.-.-.-.-.-b')");
    too_long("return string.match(string.rep('a', 5000), '(.*)(.*)(.*)(.*)b')");
    too_long("return string.gsub(string.rep('a', 5000), '.-.-.-.-b', 'x')");
    too_long("for w in string.gmatch(string.rep('a', 5000), '.-.-.-.-b') do end");
    too_long("return string.gsub(string.rep('a', 5000), '.-.-.-.-b', function() end)");
    too_long("while true do string.find(string.rep('a', 1e6), 'b', 1, true) end");
    too_long("while true do string.rep('a', 1e6) end");
    too_long("local s = string.rep('a', 1e6) while true do cjson.encode(s) end");
    too_long("local s = string.rep('a', 1e6) while true do cmsgpack.pack(s) end");
    too_long("local s = '[' .. string.rep('1,', 1e5) .. '1]' while true do cjson.decode(s) end");
    too_long("local s = string.rep('a', 1e6) while true do struct.pack('s', s) end");
    too_long("local s = string.rep('a', 1e6) while true do redis.sha1hex(s) end");
    too_long("local s = string.rep('a', 1e6) while true do redis.call('ECHO', s) end");
    too_long("local s = string.rep('a', 1e6) while true do loadstring(s) end");
    too_long("while true do collectgarbage() end");
    too_long("local t = {} for i = 1, 1e5 do t[i] = i end while true do table.sort(t) end");
    too_long(
        "local t = {} for i = 1, 2e4 do t[i] = {} end table.sort(t, rawequal) while true do table.sort(t, rawequal) end",
    );
    too_long("while true do redis.call('PING') end");
    too_long("return load(function() return ' ' end)");
}

#[test]
fn a_script_cannot_use_more_memory_than_its_limit() {
    too_much("return string.rep('x', 2^31)");
    too_much("local s = 'x' while true do s = s .. s end");
    too_much("local t = {} for i = 1, 1e9 do t[i] = {} end");
    too_much("local t = {} while true do t = {t, t} end");
    too_much(
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 100 do t[i] = s end return cjson.encode(t)",
    );
    too_much(
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 100 do t[i] = s end return cmsgpack.pack(t)",
    );
    too_much(
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 100 do t[i] = s end return table.concat(t)",
    );
    too_much("local s = string.rep('x', 1e6) return string.gsub(s, 'x', s)");
    too_much(
        "local s = string.rep('x', 1e6) return string.format(string.rep('%s', 20), s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s)",
    );
    too_much(
        "local s = string.rep('x', 1e6) return struct.pack('c0c0c0c0c0c0c0c0c0c0', s,s,s,s,s,s,s,s,s,s)",
    );
    too_much("return cjson.decode('[' .. string.rep('[],', 5e5) .. '1]')");
    too_much("local co = {} for i = 1, 1e6 do co[i] = coroutine.create(function() end) end");
    too_much("return loadstring('return {' .. string.rep('{},', 3e5) .. '}')()");
}

#[test]
fn arguments_of_a_command_are_bounded() {
    let body = "local s = string.rep('x', 1e6) local t = {} for i = 1, 1000 do t[i] = s end \
                return redis.call('MGET', unpack(t))";
    let failure = fail_in(&mut Interpreter::new(), body, &LIMITS);
    assert!(
        failure
            .text()
            .starts_with("ERR not enough memory for the arguments"),
        "{failure}"
    );
}

#[test]
fn a_script_may_catch_that_its_memory_is_full() {
    let body = "local ok, e = pcall(string.rep, 'x', 2^31) return {tostring(ok), e}";
    let reply = run_with(&mut Interpreter::new(), body, &[], &LIMITS);
    let wanted = vec![
        ScriptReply::bulk("false"),
        ScriptReply::bulk("not enough memory"),
    ];
    assert_eq!(reply, ScriptReply::Array(wanted));
}

#[test]
fn garbage_of_earlier_scripts_is_not_counted() {
    let mut interpreter = Interpreter::new();
    let body = "local t = {} for i = 1, 50 do t[i] = string.rep('x', 1e5) .. i end return #t";
    for _ in 0..50 {
        assert_eq!(
            run_with(&mut interpreter, body, &[], &LIMITS),
            ScriptReply::Int(50)
        );
    }
    assert!(
        interpreter.memory_bytes() < 16 << 20,
        "{}",
        interpreter.memory_bytes()
    );
}

#[test]
fn garbage_of_the_same_script_is_collected() {
    let body =
        "local n = 0 for i = 1, 2000 do n = n + #(string.rep('x', 1e4) .. i) end return n > 0";
    assert_eq!(
        run_with(&mut Interpreter::new(), body, &[], &LIMITS),
        ScriptReply::Int(1)
    );
}

#[test]
fn deep_recursion_is_an_error() {
    for body in [
        "local function f() return 1 + f() end return f()",
        "local function f() return pcall(f) end f() local function g() g() end g()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k] end return t.x",
        "local t = {} setmetatable(t, {__index = t}) return t.x.y",
        "local t = setmetatable({}, {__newindex = function(t, k, v) t[k] = v end}) t.x = 1",
        "local t = setmetatable({}, {__eq = function(a, b) return a == b end}) local u = setmetatable({}, getmetatable(t)) return t == u",
        "local function f() string.gsub('a', 'a', f) end f()",
        "local function f() table.sort({2, 1}, f) end f()",
        "local function f() coroutine.wrap(f)() end f()",
        "local function f() xpcall(f, f) error('x') end f()",
        "return {string.find(string.rep('a', 1e5), string.rep('a?', 1e5))}",
        "return {string.find('a', string.rep('(', 1e5))}",
        "return loadstring('return ' .. string.rep('(', 1e5))()",
        "return loadstring('return ' .. string.rep('{', 1e5))()",
        "return loadstring(string.rep('a = ', 1e5) .. '1')()",
        "return unpack({}, 1, 1e8)",
        "return struct.unpack(string.rep('b', 1e4), string.rep('x', 1e4))",
        "return cmsgpack.unpack(string.rep('x', 1e4))",
        "return cmsgpack.unpack(string.rep('\\145', 1e5))",
        "return cjson.decode(string.rep('[', 1e5))",
        "cjson.decode_max_depth(1e6) return cjson.decode(string.rep('[', 1e5))",
        "cjson.encode_max_depth(1e6) local t = {} for i = 1, 1e4 do t = {t} end return cjson.encode(t)",
        "cjson.encode_max_depth(1e6) local t = {} t.t = t return cjson.encode(t)",
    ] {
        let failure = fail_in(&mut Interpreter::new(), body, &LIMITS);
        assert!(failure.text().starts_with("ERR "), "{body}: {failure}");
    }
}

#[test]
fn a_reply_is_bounded_in_size_and_depth() {
    assert_eq!(
        fail("return string.rep('x', 2^20 + 1)"),
        "ERR the script's reply is too large: at most 1048576 bytes; nothing was changed"
    );
    let large = "ERR the script's reply is too large";
    assert!(fail("local t = {} for i = 1, 1e5 do t[i] = i end return t").starts_with(large));
    assert!(
        fail("local s = string.rep('x', 1e5) local t = {} for i = 1, 100 do t[i] = s end return t")
            .starts_with(large)
    );
    let deep = "ERR the script's reply has too many nested tables; nothing was changed";
    assert_eq!(fail("local t = {} t[1] = t return t"), deep);
    assert_eq!(fail("local t = {} t.map = t return t"), deep);
    assert_eq!(
        fail("local t = {} for i = 1, 128 do t = {t} end return t"),
        deep
    );
    let nested = run("local t = 1 for i = 1, 128 do t = {t} end return t");
    assert!(matches!(nested, ScriptReply::Array(_)), "{nested:?}");
}

/// The time to compile is that of each time: a script that grew after it had been passed was
/// refused as one that takes long to compile.
#[test]
fn a_script_that_grows_late_is_compiled_again() {
    let limits = ScriptLimits {
        instructions: u64::MAX,
        time: Duration::from_secs(60),
        memory_bytes: 16 << 20,
        ..LIMITS
    };
    let body = "for i = 1, 2e7 do end local s = string.rep('x', 4e6) return #s";
    let script = Script::parse(body.to_owned()).unwrap();
    let mut interpreter = Interpreter::with_clock(clock);
    let mut store = Store::default();
    let ended = interpreter.run(&script, &[], &[], &mut store, &limits);
    assert_eq!(ended, Ok(ScriptReply::Int(4_000_000)));
}

#[test]
fn a_clock_bounds_the_time() {
    let limits = ScriptLimits {
        instructions: u64::MAX,
        time: Duration::from_millis(50),
        memory_bytes: 16 << 20,
        ..LIMITS
    };
    for body in [
        "while true do end",
        "local s = string.rep('x', 4e6) while true do local t = s .. 'y' end",
        "local s = string.rep('x', 4e6) while true do pcall(string.upper, s) end",
        "local t = {} for i = 1, 2e5 do t[i] = '' end while true do table.concat(t) end",
        "local t = {} for i = 1, 2e5 do t[i] = i end while true do table.insert(t, 1, 1) table.remove(t, 1) end",
        "coroutine.wrap(function() while true do pcall(error) end end)()",
    ] {
        let begin = clock();
        let failure = fail_in(&mut Interpreter::with_clock(clock), body, &limits);
        assert_eq!(
            failure,
            ScriptFailure::Stopped(
                "ERR the script ran too long: at most 50 ms; nothing was changed; give it less to do at once".to_owned()
            ),
            "{body}"
        );
        println!("{:?} {body}", clock().saturating_sub(begin));
    }
}

#[test]
fn no_command_runs_after_the_end() {
    let script = Script::parse(
        "local function last() while true do pcall(redis.call, 'PING') end end \
         local co = coroutine.create(function() pcall(last) pcall(last) redis.call('SET', 'k', 1) end) \
         pcall(coroutine.resume, co) redis.call('SET', 'k', 1)",
    )
    .unwrap();
    let mut store = Store::default();
    let limits = ScriptLimits {
        instructions: 10_000,
        ..LIMITS
    };
    let ended = Interpreter::new().run(&script, &[], &[], &mut store, &limits);
    assert!(matches!(ended, Err(ScriptFailure::Stopped(_))), "{ended:?}");
    // A command costs 50.
    assert!((10..=200).contains(&store.calls), "{}", store.calls);
    let key = [Bytes::from("EXISTS"), Bytes::from("k")];
    let found = doyen_scripts::Commands::call(&mut store, key.to_vec(), Default::default());
    assert_eq!(found, ScriptReply::Int(0));
}

/// A table of 30 elements with a length of 2^29. Elements are set from the last to the first, so
/// that Lua keeps them in no array.
const LONG: &str = "local t = {} for i = 29, 0, -1 do t[2 ^ i] = 1 end assert(#t == 2 ^ 29)";

#[test]
fn unpack_with_bounds_that_overflow_is_an_error() {
    let too_many = |body: &str| {
        let failure = fail_in(&mut Interpreter::new(), body, &LIMITS);
        let expected = "ERR user_script:1: too many results to unpack script: ";
        assert!(failure.text().starts_with(expected), "{body}: {failure}");
    };
    for bounds in [
        "-2^31, 2^31 - 1",
        "-2^31 + 1, 2^31 - 1",
        "-2^31, 0",
        "-2^63, 2^31 - 1",
        "0/0, 2^31 - 1",
        "1, 7998",
    ] {
        too_many(&format!("return {{unpack({{1, 2}}, {bounds})}}"));
    }
    too_many(&format!("{LONG} return {{unpack(t)}}"));
    for (call, results) in [
        ("unpack({1, 2, 3})", "1,2,3"),
        ("unpack({1, 2, 3}, nil, 2)", "1,2"),
        ("unpack({1, 2, 3}, '2')", "2,3"),
        ("unpack({1, 2, 3}, 2^32 + 2, 2^32 + 3)", "2,3"),
        ("unpack({1, 2, 3}, 2^31 - 1)", ""),
        ("unpack({1, 2, 3}, 2^31 - 1, -2^31)", ""),
        ("#{unpack({}, 1, 7997)}", "0"),
    ] {
        let body = format!("return table.concat({{{call}}}, ',')");
        let reply = run_with(&mut Interpreter::new(), &body, &[], &LIMITS);
        assert_eq!(reply, ScriptReply::bulk(results), "{call}");
    }
}

#[test]
fn a_handler_that_fails_does_not_fill_the_stack() {
    // In C, each of these functions has a frame of 8 KB. Threads of a node have 2 MB, which 200 of
    // the frames fill; this one has less, because an optimized build may use less as well.
    let run = || {
        for call in [
            "string.format({})",
            "table.concat(1)",
            "('x').upper({})",
            "string.reverse({})",
            "string.char({})",
        ] {
            let body = format!("return {{xpcall(function() {call} end, function() {call} end)}}");
            let reply = run_with(&mut Interpreter::new(), &body, &[], &LIMITS);
            let ScriptReply::Array(results) = reply else {
                panic!("{call}: {reply:?}");
            };
            assert_eq!(
                results[1],
                ScriptReply::bulk("error in error handling"),
                "{call}"
            );
        }
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run);
    thread.expect("a thread").join().expect("no panic");
}

#[test]
fn a_handler_that_fails_is_called_with_its_own_error() {
    let body = "local calls = 0
        local ok, e = xpcall(function() error('a', 0) end, function(e)
            calls = calls + 1
            if calls < 5 then error(e .. calls, 0) end
            return e
        end)
        return {tostring(ok), e}";
    let reply = run_with(&mut Interpreter::new(), body, &[], &LIMITS);
    let expected = vec![ScriptReply::bulk("false"), ScriptReply::bulk("a1234")];
    assert_eq!(reply, ScriptReply::Array(expected));
}

#[test]
fn tables_with_a_great_length_and_few_elements_take_from_the_budget() {
    // These loops are in C. Without a bound, each takes seconds to minutes.
    for call in [
        "table.insert({}, -2^31 + 1, 1)",
        "table.insert(t, 1, 1)",
        "table.remove(t, 1)",
        "table.foreachi(t, rawequal)",
    ] {
        too_long(&format!("{LONG} {call}"));
    }
}
