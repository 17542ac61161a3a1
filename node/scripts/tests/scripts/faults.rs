//! Scripts that want to break the process: whatever they do, it is an error, and the next script
//! does not notice.

use std::time::Duration;

use crate::common::run_with;
use doyen_scripts::{Interpreter, ScriptLimits, ScriptReply};

const LIMITS: ScriptLimits = ScriptLimits {
    instructions: 20_000_000,
    memory_bytes: 16 << 20,
    reply_bytes: 1 << 20,
    time: Duration::from_secs(30),
};

/// A thread of a node has a stack that is four times as large.
const STACK_BYTES: usize = 2 << 20;

fn in_thread(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(run).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Checks that an interpreter works.
fn check(interpreter: &mut Interpreter, after: &str) {
    let body = "local t = {} for i = 1, 100 do t[i] = {pcall(string.rep, {})} end
        collectgarbage()
        math.randomseed(0)
        return {redis.call('ECHO', #KEYS), math.random(100)}";
    let reply = run_with(interpreter, body, &[], &LIMITS);
    let expected = vec![ScriptReply::bulk("2"), ScriptReply::Int(18)];
    assert_eq!(reply, ScriptReply::Array(expected), "after {after}");
}

/// Names of all functions that a script sees, such as `string.rep`.
fn functions(interpreter: &mut Interpreter) -> Vec<String> {
    let body = "local names = {}
        for name, value in pairs(_G) do
            if type(value) == 'function' then
                names[#names + 1] = name
            elseif type(value) == 'table' and name ~= '_G' then
                for inner, value in pairs(value) do
                    if type(value) == 'function' then names[#names + 1] = name .. '.' .. inner end
                end
            end
        end
        table.sort(names)
        return names";
    let ScriptReply::Array(names) = run_with(interpreter, body, &[], &LIMITS) else {
        panic!("no names");
    };
    let names = names.into_iter().map(|name| match name {
        ScriptReply::Bulk(name) => String::from_utf8(name.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    });
    names.collect()
}

#[test]
fn as_many_arguments_as_mlua_can_take_break_no_function() {
    in_thread(|| {
        let mut interpreter = Interpreter::new();
        let names = functions(&mut interpreter);
        assert!(names.len() > 80, "{names:?}");
        // What `unpack` gives is less than what fits on a stack, and the rest makes it more.
        let more = "'x', ".repeat(200);
        for name in &names {
            if name == "coroutine.yield" {
                continue;
            }
            let body = format!(
                "local values = {{}} for i = 1, 7900 do values[i] = 'x' end
                local function call(f, n, a, b) return f(a, b, {more} unpack(values, 1, n)) end
                local few, many = 7000, 7900
                while many - few > 1 do
                    local n = math.floor((few + many) / 2)
                    if pcall(call, redis.breakpoint, n) then few = n else many = n end
                end
                local f = {name}
                for n = few - 5, many + 2 do
                    pcall(call, f, n, setmetatable({{}}, {{}}), {{}})
                    pcall(call, f, n, {{}}, function() end)
                    pcall(call, f, n, function() end, {{}})
                    pcall(call, f, n, 'x', 1)
                    pcall(call, f, n, 1, 'x')
                    pcall(call, f, n, coroutine.create(function() end), 'x')
                end
                return many"
            );
            let reply = run_with(&mut interpreter, &body, &[], &LIMITS);
            assert!(
                matches!(reply, ScriptReply::Int(7001..7900)),
                "{name}: {reply:?}"
            );
            check(&mut interpreter, &body);
        }
    });
}

/// Scripts that take memory in as many ways as there are.
const GREEDY: [&str; 24] = [
    "local t = {} for i = 1, 30 do t[i] = {i} t['k' .. i] = 'v' .. i end return #t",
    "local co = coroutine.create(function(...) return select('#', ...) end)
        local t = {} for i = 1, 500 do t[i] = 1 end
        return {coroutine.resume(co, unpack(t))}",
    "local f = coroutine.wrap(function() for i = 1, 50 do coroutine.yield(i, {}) end end)
        for i = 1, 50 do f() end return 1",
    "local co = coroutine.create(function() local t = {} for i = 1, 500 do t[i] = 1 end
            coroutine.yield(unpack(t)) end)
        return select('#', coroutine.resume(co))",
    "local co co = coroutine.create(function() return coroutine.resume(co) end)
        return {coroutine.resume(co), coroutine.resume(co)}",
    "local function f(n) if n > 0 then return coroutine.wrap(f)(n - 1) end return n end
        return f(40)",
    "local function f(n) if n > 0 then return 1 + f(n - 1) end return n end return f(300)",
    "local function f(n) if n > 0 then return (pcall(f, n - 1)) end error({}) end return {f(60)}",
    "return {xpcall(function() error({}) end, function(e) return {e} end)}",
    "return {xpcall(function() return 1 + {} end, function(e) error(e .. e) end)}",
    "return {xpcall(function() string.format({}) end, function(e) return e .. string.rep('x', 99) end)}",
    "local a = {} for i = 1, 20 do local b = i a[i] = function() b = b + 1 return b end end
        for i = 1, 20 do a[i]() end return a[3]()",
    "return loadstring('local a, b, c = 1, 2, \"three\" return function(x) return x + a, b, c end')()(1)",
    "return {loadstring('return return'), loadstring('x = = 1', '=' .. string.rep('n', 99))}",
    "local n = 0 return load(function() n = n + 1 return n < 9 and 'return 1 ' .. '--' or nil end)()",
    "return {cjson.encode(cjson.decode('[1,{\"a\":[true,null,1.5,\"x\\\\u0041\"]}]')), cjson.null}",
    "return {cmsgpack.unpack(cmsgpack.pack({1, 'x', {a = 1.5}}, 2))}",
    "return {struct.unpack('>i4s', struct.pack('>i4s', 7, 'abc'))}",
    "return {string.gsub('hello world', '(%w+)', function(w) return w:upper() .. '!' end)}",
    "local t = {} for w in string.gmatch(string.rep('ab ', 20), '%a+') do t[#t + 1] = w end
        return table.concat(t, ',')",
    "local t = {} for i = 1, 40 do t[i] = {n = -i} end
        table.sort(t, function(a, b) return a.n < b.n end) return t[1].n",
    "for i = 1, 5 do pcall(redis.call, 'SET') redis.pcall('SET', 'k' .. i, i) end
        return {redis.call('MGET', 'k1', 'k2'), redis.sha1hex('x'), redis.error_reply('E x')}",
    "local m = {__index = function(t, k) return k .. k end, __concat = function() return {} end,
            __call = function(self, ...) return ... end}
        local t = setmetatable({}, m) return {t.x, #(t .. t), t(1, 2, 3)}",
    "for i = 1, 60 do pcall(error, {i}) pcall(string.rep) collectgarbage('step') end
        collectgarbage() return collectgarbage('count') > 0",
];

#[test]
fn memory_may_end_at_any_allocation() {
    let step: usize = std::env::var("STEP").map_or(509, |step| step.parse().unwrap());
    in_thread(move || {
        let mut interpreter = Interpreter::new();
        let mut ends = 0;
        for body in GREEDY {
            // The errors of the script are caught, so that it goes on without memory.
            for caught in [false, true] {
                let body = match caught {
                    false => body.to_owned(),
                    true => format!(
                        "local function run() {body} end
                        local last
                        for i = 1, 4 do
                            last = {{pcall(run)}}
                            pcall(redis.call, 'ECHO', 'x')
                            xpcall(run, function(e) return {{e}} end)
                        end
                        return last"
                    ),
                };
                for memory_bytes in (0..).step_by(step) {
                    let limits = ScriptLimits {
                        memory_bytes,
                        ..LIMITS
                    };
                    let reply = run_with(&mut interpreter, &body, &["a"], &limits);
                    check(&mut interpreter, &body);
                    match reply {
                        _ if memory_bytes > 32 << 10 => break,
                        ScriptReply::Error(_) => ends += 1,
                        _ if !caught => break,
                        _ => {}
                    }
                }
            }
        }
        assert!(ends > 50, "{ends}");
    });
}

/// Functions that go as deep as Lua lets them, and call `last` there.
const DEEP: [&str; 12] = [
    // A function in C that fails has a frame of 8 KB, and a handler runs inside of it.
    "local function f() reach() xpcall(string.format, f) last() end f()",
    "local function f() reach() xpcall(function() string.upper({}) end, f) last() end f()",
    "local function f() reach() coroutine.wrap(function() xpcall(table.concat, f) last() end)() end
        f()",
    "local function fail() last() string.format({}) end
        local function f() reach() xpcall(function() xpcall(fail, f) end, f) end f()",
    "local m = {__index = function() last() string.format({}) end}
        local function f() reach() xpcall(function() return setmetatable({}, m).x end, f) end f()",
    "local function f() reach() pcall(f) last() end f()",
    "local function f() reach() coroutine.resume(coroutine.create(f)) last() end f()",
    "local function less() reach() pcall(table.sort, {{}, {}, {}}, less) last() return false end
        table.sort({{}, {}}, less)",
    "local m = {} m.__index = function() reach() pcall(function() return setmetatable({}, m).x end)
            last() end
        return setmetatable({}, m).x",
    "local m = {} m.__tostring = function() reach() pcall(tostring, setmetatable({}, m)) last() end
        tostring(setmetatable({}, m))",
    "local function f() reach() pcall(string.gsub, 'abc', '.', f) last() end f()",
    "local function f() reach() pcall(table.foreach, {1}, f) last() end f()",
];

#[test]
fn no_depth_of_calls_overflows_the_stack_of_a_thread() {
    in_thread(|| {
        let mut interpreter = Interpreter::new();
        for deep in DEEP {
            let body = format!(
                "local depth, lasts = 0, 0
                local open, close = string.rep('[', 999), string.rep(']', 999)
                local nested = {{}} for i = 1, 990 do nested = {{nested}} end
                local function reach() depth = depth + 1 if depth > 200 then error('deep') end end
                local function last()
                    lasts = lasts + 1
                    if lasts > 30 then return end
                    pcall(cjson.decode, open .. close)
                    pcall(cjson.encode, nested)
                    pcall(cmsgpack.unpack, string.rep('\\145', 999) .. '\\1')
                    pcall(cmsgpack.pack, nested)
                    pcall(string.find, string.rep('a', 999), string.rep('a-', 999) .. 'b')
                    pcall(loadstring, 'return ' .. string.rep('(', 190) .. string.rep(')', 190))
                    pcall(loadstring, string.rep('return function() ', 190))
                    pcall(redis.call, 'ECHO', 'x')
                    pcall(redis.call)
                end
                pcall(function() {deep} end)
                return {{depth, lasts}}"
            );
            let reply = run_with(&mut interpreter, &body, &[], &LIMITS);
            let ScriptReply::Array(counts) = reply else {
                panic!("{deep}: {reply:?}");
            };
            assert!(
                matches!(counts[0], ScriptReply::Int(40..)),
                "{deep}: {counts:?}"
            );
            assert!(
                matches!(counts[1], ScriptReply::Int(1..)),
                "{deep}: {counts:?}"
            );
            check(&mut interpreter, &body);
        }
    });
}
