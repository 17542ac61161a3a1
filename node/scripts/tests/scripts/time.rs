//! No script and no text of one holds its thread, whatever it does. What is measured is the time of
//! this thread's processor, so a busy machine changes nothing.

use std::time::Duration;

use crate::common::Store;
use bytes::Bytes;
use doyen_scripts::{
    Commands, Interpreter, Script, ScriptFailure, ScriptLimits, ScriptProtocol, ScriptReply,
};
use rustix::time::{ClockId, clock_gettime};

/// The limits of a node.
const LIMITS: ScriptLimits = ScriptLimits {
    instructions: 500_000,
    memory_bytes: 16 << 20,
    reply_bytes: 16 << 20,
    time: Duration::from_millis(20),
};

/// How long a call may take: 20 ms, one instruction on 16 MB, and making a new Lua state. Without
/// optimization, that is three times as much as in a release.
const LONGEST: Duration = Duration::from_millis(150);

fn clock() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Runs a script, and checks how long that takes.
fn run(body: &str, args: &[Bytes]) -> Result<ScriptReply, ScriptFailure> {
    let script = Script::parse(body.to_owned()).unwrap();
    let mut interpreter = Interpreter::with_clock(clock);
    let shown = &body[..body.len().min(120)];
    let mut last = None;
    // The second time, it is known whether the script is a large one.
    for _ in 0..2 {
        let begin = clock();
        let ended = interpreter.run(&script, &[], args, &mut Store::default(), &LIMITS);
        let took = clock() - begin;
        println!(
            "{:>6.1} ms {shown} {}",
            took.as_secs_f64() * 1e3,
            ended.is_ok()
        );
        assert!(took < LONGEST, "{took:?}: {shown}: {ended:?}");
        last = Some(ended);
    }
    last.unwrap()
}

/// Texts of about `bytes` that are slow to compile.
fn slow_texts(bytes: usize) -> Vec<String> {
    let times = |text: &str| text.repeat(bytes / text.len());
    let nested = 60;
    vec![
        format!("return {}1", times("1 or ")),
        format!("return {}1", times("x and ")),
        format!("return {}1", times("a<b or ")),
        format!("return {}1", times("not a and ")),
        format!("return {}1", times("a==b and c or ")),
        format!("if {}a then end", times("a or ")),
        format!("if a then {} end", times("elseif a then ")),
        format!("if a then {} else end", times("elseif a and b then x() ")),
        format!("while true do {} end", times("if a then break end ")),
        format!("repeat {} until a", times("do if a then break end end ")),
        format!(
            "for i=1,2 do {} end",
            times("if i then break else x() end ")
        ),
        format!("while {}a do end", times("a and ")),
        format!("repeat until {}a", times("a or ")),
        format!("return function() return {}1 end", times("1 or ")),
        format!("x = {{{}}}", times("a and b or c,")),
        // Each name is looked for in all functions around it, and in all of their local variables.
        format!(
            "{} {} {}",
            format!("local {} = 1 return function() ", locals(180)).repeat(nested),
            times("x=y "),
            "end ".repeat(nested)
        ),
    ]
}

fn locals(number: usize) -> String {
    let names: Vec<_> = (0..number).map(|n| format!("l{n}")).collect();
    names.join(",")
}

#[test]
fn a_text_that_is_slow_to_compile_is_refused() {
    let mut refused = 0;
    for text in slow_texts(900_000) {
        // A fast machine compiles some of them in time. Then they may run for too long.
        let failure = run(&text, &[]).expect_err("it is slow");
        let expected = "ERR Error compiling script (new function): it takes more than 20 ms of \
                        processor time; make it smaller, or use a table instead";
        let text_of = failure.text();
        let compiles = !matches!(failure, ScriptFailure::Compile(_));
        assert!(compiles || text_of.starts_with(expected), "{failure}");
        let script = Script::parse(text).unwrap();
        let begin = clock();
        let mut interpreter = Interpreter::with_clock(clock);
        refused += usize::from(interpreter.check(&script).is_err());
        assert!(clock() - begin < LONGEST);
        // Others still compile.
        let script = Script::parse("return 1").unwrap();
        assert_eq!(interpreter.check(&script), Ok(()));
    }
    assert!(refused > 0);
}

#[test]
fn a_text_that_a_script_compiles_takes_from_its_time() {
    for text in slow_texts(900_000) {
        let args = [Bytes::from(text)];
        for body in [
            "return loadstring(ARGV[1])",
            "return pcall(loadstring, ARGV[1])",
            "local at = 1 - 10000 return load(function() at = at + 10000 return ARGV[1]:sub(at, at + 9999) end)",
            "while true do pcall(load, function() return ARGV[1] end) end",
        ] {
            match run(body, &args) {
                Err(failure) => {
                    let expected = "ERR the script ran too long: at most ";
                    assert!(failure.text().starts_with(expected), "{body}: {failure}");
                }
                // A fast machine compiles some of them once in time, and none for ever.
                Ok(_) => assert!(!body.starts_with("while"), "{body}"),
            }
        }
    }
}

#[test]
fn a_text_of_the_usual_kind_compiles() {
    let function = "local function update_%(key, value, limit)\n  -- Counts how often it was called.\n  \
                    if value ~= nil and tonumber(value) > limit or key == 'none' then\n    \
                    redis.call('HSET', key, 'value', value, 'limit', limit)\n  elseif limit == 0 then\n    \
                    return redis.error_reply('no limit for ' .. key)\n  end\n  \
                    for i = 1, 10 do if i > limit then break end end\n  return 1\nend\nupdate_%('a', 1, 2)\n";
    let mut text = String::new();
    while text.len() < 60_000 {
        text.push_str("do ");
        text.push_str(&function.replace('%', &text.len().to_string()));
        text.push_str(" end ");
    }
    let script = Script::parse(text).unwrap();
    let begin = clock();
    let mut interpreter = Interpreter::with_clock(clock);
    assert_eq!(interpreter.check(&script), Ok(()));
    println!("{:?} for {} bytes", clock() - begin, script.body().len());
}

#[test]
fn a_text_larger_than_a_megabyte_is_refused() {
    let text = format!("--{}\nreturn 1", " ".repeat(1 << 20));
    let error = Script::parse(text).unwrap_err();
    assert!(error.contains("at most 1048576 bytes"), "{error}");
    assert!(Script::parse(format!("--{}\nreturn 1", " ".repeat(1_000_000))).is_ok());
}

/// Scripts that do much with few instructions.
const SCRIPTS: &[&str] = &[
    // Strings with zero bytes are compared piece by piece.
    "local a=string.rep('\\0',7900000) local b=string.rep('\\0',7900000) for i=1,100000 do local x=a<b end return 1",
    "local a=string.rep('\\0',7900000) local b=a:sub(2) for i=1,100000 do local x=a<=b end",
    "local a='\\0' for i=1,22 do a=a..a end local b=a..'x' a=a..'y' for i=1,100000 do local x=a<b end",
    "local a='\\0' for i=1,18 do a=a..a end local b=a..'x' a=a..'y' for i=1,100000 do local x=a>b end",
    "local a=('\\0'):rep(120000) local b=a..'x' a=a..'y' for i=1,100000 do local x=a>b end",
    "local a=ARGV[2]..'a' local b=ARGV[2]..'b' for i=1,1e5 do local x=a<b end",
    "local t={} for i=1,30 do t[i]=('\\0'):rep(250000)..i end table.sort(t) table.sort(t, function(a,b) return a<b end)",
    "local m={__lt=function() return true end} local a=setmetatable({},m) while a<a do end",
    // Text.
    "return cjson.encode(string.rep('\\1', 2500000))",
    "return cjson.encode(string.rep('\"', 7900000))",
    "local s=string.rep('x', 7900000) while true do cjson.encode(s) end",
    "return cjson.decode(ARGV[1])",
    "return cjson.decode('\"'..string.rep('\\\\u0001', 1300000)..'\"')",
    "return cjson.decode('['..string.rep('nan(,', 1500000)..']')",
    "return cjson.decode('['..string.rep('1,', 2000000)..'1]')",
    "return cjson.decode('['..string.rep('{},', 200000)..'1]')",
    "return cjson.decode(string.rep('1', 7900000))",
    "local s=string.rep('\\1',7900000) while true do string.format('%q', s) end",
    "local s=string.rep('\\0',3500000) while true do string.format('%q', s) end",
    "local s=string.rep('\\1',900000) while true do string.format('%q', s) end",
    "local s=string.rep('x',7900000) while true do string.format('%s', s) end",
    "local s=string.rep('x',7900000) while true do string.format(s) end",
    "local s=string.rep('x',7900000) while true do s:upper() end",
    "local s=string.rep('x',7900000) while true do s:lower() end",
    "local s=string.rep('x',7900000) while true do s:reverse() end",
    "local s=string.rep('x',7900000) while true do s:rep(2) end",
    "local s=string.rep('x',7900000) while true do local t=s:sub(2) end",
    "local s=string.rep('x',7900000) while true do local t=s..'y' end",
    "local s=string.rep('x',400000) while true do local t=s..'y' end",
    "local s=string.rep(' ',7900000) while true do tonumber(s) end",
    "local s=string.rep('1',7900000) while true do tonumber(s) end",
    "local s=string.rep('1',7900000) while true do local n=s+1 end",
    "local s=string.rep('x',7900000) while true do s:byte(-1) s:len() end",
    "local s=string.rep('x',7900000) while true do redis.sha1hex(s) end",
    "local s=string.rep('x',7900000) while true do cmsgpack.pack(s) end",
    "local s=cmsgpack.pack(string.rep('x',7900000)) while true do cmsgpack.unpack(s) end",
    "local s=string.rep('x',3900000) while true do struct.pack('sss',s,s,s) end",
    "local s=string.rep('x',2000000) while true do struct.pack(s) end",
    "local s=string.rep('x',7900000) while true do redis.call('ECHO',s) end",
    "local s=string.rep('x',7900000) return {s:find('y',1,true), s:find('xy',1,true)}",
    "local s=string.rep('x',7900000) while true do s:find(string.rep('x',32)..'y',1,true) end",
    "local s=string.rep('x',7900000) while true do s:find(string.rep('x',300)..'y') end",
    "local s=string.rep('x',7900000) while true do s:match(s..'(') end",
    // The captures are empty, so the result does not grow.
    "return string.gsub(string.rep('a',1e6),'a(b*)',string.rep('%1',5e5))",
    "return string.gsub(string.rep('a',1e6),'a',string.rep('%0',5))",
    "return string.gsub(string.rep('a',1e6),'.',{a=''})",
    "local n=0 for w in string.gmatch(string.rep('a',1e6),'a-') do n=n+1 end",
    // Tables.
    "local t={} for i=1,250000 do t[i]='' end while true do table.concat(t) end",
    "local t={} for i=1,60000 do t[i]='' end while true do table.concat(t) end",
    "local t={} for i=1,9e4 do t[i]=i end while true do table.insert(t,1,1) table.remove(t,1) end",
    "local t={} for i=1,9e4 do t[i]=i end while true do table.foreach(t,rawequal) end",
    "local t={} for i=1,9e4 do t[i]=i end while true do table.maxn(t) end",
    "local t={} for i=1,9e4 do t[i]=i end while true do cjson.encode(t) end",
    "local t={} for i=1,9e4 do t[i]=i end while true do cmsgpack.pack(t) end",
    "local t={} for i=1,9e4 do t[i]=i end return t",
    "local t={} for i=1,9e4 do t[i]={} end return t",
    "local t={} for i=1,2e4 do t[i]='k'..i end while true do table.sort(t) end",
    "local t={} for i=1,16384 do t['k'..i]=i end local i=16384 while true do t['k'..i]=nil i=i+1 t['k'..i]=1 end",
    "local t={} for i=1,9e4 do t[i]=i end for i=1,9e4 do t[i]=nil end while true do next(t) end",
    // Many values at once.
    "local function f(n,...) if n==0 then while true do local a=select('#',...) end end \
     return f(n-1,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,...) end f(10000)",
    "local function f(n,...) if n==0 then while true do pcall(redis.call,'DEL',...) end end \
     return f(n-1,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,...) end f(10000)",
    "local t={} while true do t={t,t} collectgarbage('step') end",
    "while true do collectgarbage() end",
    "local t={} for i=1,1e5 do t[i]={} end while true do collectgarbage() end",
    "for i=1,1e9 do coroutine.wrap(function() while true do coroutine.yield(('x'):rep(1e5)) end end)() end",
];

#[test]
fn no_script_holds_its_thread() {
    let json = format!("[{}1]", "\"a\",".repeat(1_500_000));
    let args = [Bytes::from(json), Bytes::from(vec![0; 4 << 20])];
    for body in SCRIPTS {
        let _ = run(body, &args);
    }
}

/// Different strings for which Lua has one hash: it looks at each third byte of them only.
fn colliding(number: usize) -> impl Iterator<Item = String> {
    (0..number).map(|n| {
        let mut text = vec![b'x'; 64];
        for (bit, place) in (1..64).step_by(3).enumerate() {
            text[place] = b'a' + (n >> bit & 1) as u8;
        }
        String::from_utf8(text).unwrap()
    })
}

#[test]
fn strings_that_collide_hold_no_thread() {
    let args: Vec<_> = colliding(50_000).map(Bytes::from).collect();
    let failure = run("return #ARGV", &args).expect_err("it is slow");
    assert!(
        failure.text().starts_with("ERR the script ran too long"),
        "{failure}"
    );
    let list = colliding(50_000).collect::<Vec<_>>().join("\",\"");
    let json = [Bytes::from(format!("[\"{list}\"]"))];
    run("return #cjson.decode(ARGV[1])", &json).expect_err("it is slow");
    let code = colliding(16_000)
        .map(|text| format!("'{text}';"))
        .collect::<String>();
    let code = format!("return {{{}}}", &code[..900_000 / 67 * 67]);
    run(&code, &[]).expect_err("it is slow");

    struct Lists;
    impl Commands for Lists {
        fn call(&mut self, _: Vec<Bytes>, _: ScriptProtocol) -> ScriptReply {
            ScriptReply::Array(colliding(50_000).map(ScriptReply::bulk).collect())
        }

        fn restart(&mut self) {}

        fn may_call(&mut self, _: &[Bytes]) -> Option<bool> {
            None
        }
    }
    let script = Script::parse("return #redis.call('x')").unwrap();
    let begin = clock();
    let mut interpreter = Interpreter::with_clock(clock);
    let ended = interpreter.run(&script, &[], &[], &mut Lists, &LIMITS);
    assert!(matches!(ended, Err(ScriptFailure::Stopped(_))), "{ended:?}");
    assert!(clock() - begin < 2 * LONGEST, "{:?}", clock() - begin);
}

#[test]
fn a_run_that_takes_much_memory_begins_again_once() {
    let body = "redis.call('INCR', 'n') local s = string.rep('x', 2e6) \
                return {redis.call('INCR', 'n'), #s, tostring(pcall(string.rep, 'x', 2^31))}";
    let script = Script::parse(body).unwrap();
    let mut interpreter = Interpreter::with_clock(clock);
    for restarts in [2, 0] {
        let mut store = Store::default();
        let reply = interpreter.run(&script, &[], &[], &mut store, &LIMITS);
        let expected = [
            ScriptReply::Int(2),
            ScriptReply::Int(2_000_000),
            ScriptReply::bulk("false"),
        ];
        assert_eq!(reply, Ok(ScriptReply::Array(expected.to_vec())));
        assert_eq!(store.restarts, restarts);
    }
    // What fails for the bound of a level does not say something else.
    let body = "local s = ('x'):rep(1e6) local t = {} for i = 1, 7900 do t[i] = i end \
                return select('#', unpack(t)) + select('#', ('x'):rep(7900):byte(1, -1))";
    let reply = interpreter.run(
        &Script::parse(body).unwrap(),
        &[],
        &[],
        &mut Store::default(),
        &LIMITS,
    );
    assert_eq!(reply, Ok(ScriptReply::Int(15_800)));
    let mut restarted = 0;
    // However a script catches that the memory is full, it does not see the smaller bound.
    for catches in [
        "local ok = pcall(string.rep, 'x', 2e6) return tostring(ok)",
        "local ok = xpcall(function() return string.rep('x', 2e6) end, error) return tostring(ok)",
        "local ok = xpcall(function() local s = 'x' for i = 1, 21 do s = s .. s end end, function() end) return tostring(ok)",
        "local f = coroutine.wrap(function() local s = 'x' for i = 1, 21 do s = s .. s end return true end) return tostring(f())",
        "local ok = coroutine.resume(coroutine.create(function() return ('x'):rep(2e6) end)) return tostring(ok)",
        "local f = loadstring('return {' .. ('1,'):rep(40000) .. '}') return tostring(f ~= nil)",
        "local t = {3, 2, 1} local ok = pcall(table.sort, t, function(a, b) return #(('x'):rep(2e6)) > 0 and a < b end) return tostring(ok)",
    ] {
        let mut store = Store::default();
        let script = Script::parse(catches).unwrap();
        let reply = interpreter.run(&script, &[], &[], &mut store, &LIMITS);
        assert_eq!(reply, Ok(ScriptReply::bulk("true")), "{catches}");
        // What is garbage already counts, so a run may outgrow no level, one or two.
        assert!(store.restarts <= 2, "{catches}");
        restarted += usize::from(store.restarts > 0);
    }
    assert!(restarted >= 5, "{restarted}");
}
