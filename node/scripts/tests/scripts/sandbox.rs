//! What a script can reach, and what it can leave behind: nothing.

use crate::common::{run, run_with, text};
use doyen_scripts::{
    Interpreter, Script, ScriptFailure, ScriptLimits, ScriptProtocol, ScriptReply,
};

/// Runs one script after another in the same interpreter, and returns what the last one answers.
fn after(first: &str, second: &str) -> ScriptReply {
    let mut interpreter = Interpreter::new();
    run_with(&mut interpreter, first, &[], &ScriptLimits::default());
    run_with(&mut interpreter, second, &[], &ScriptLimits::default())
}

#[test]
fn nothing_of_a_run_is_left_for_the_next_one() {
    for (first, second, reply) in [
        (
            "math.randomseed(7) math.random()",
            "return math.random(1000)",
            ScriptReply::Int(397),
        ),
        (
            "redis.setresp(3)",
            "return redis.call('GET', 'k') == false",
            ScriptReply::Int(1),
        ),
        ("redis.setresp(3)", "return true", ScriptReply::Int(1)),
        (
            "cjson.encode_max_depth(1)",
            "return cjson.encode({{1}})",
            ScriptReply::bulk("[[1]]"),
        ),
        (
            "cjson.encode_number_precision(1)",
            "return cjson.encode(1.25)",
            ScriptReply::bulk("1.25"),
        ),
        (
            "cjson.encode_invalid_numbers(true)",
            "return (pcall(cjson.encode, 1/0))",
            ScriptReply::Nil,
        ),
        ("KEYS.x = 1", "return KEYS.x", ScriptReply::Nil),
        (
            "pcall(rawset, _G, 'x', 1)",
            "return rawget(_G, 'x')",
            ScriptReply::Nil,
        ),
        (
            "table.insert(_G, 5)",
            "return rawget(_G, 1)",
            ScriptReply::Nil,
        ),
        (
            "table.insert(string, 5)",
            "return string[1]",
            ScriptReply::Nil,
        ),
        (
            "table.insert(getmetatable(''), 5)",
            "return getmetatable('')[1]",
            ScriptReply::Nil,
        ),
        (
            "for k, v in pairs(string) do v = 1 end",
            "return type(string.len)",
            ScriptReply::bulk("function"),
        ),
        (
            "local s = {} for k in pairs(_G) do s[k] = 1 end s.redis = nil",
            "return type(redis)",
            ScriptReply::bulk("table"),
        ),
        (
            "local copy = nil for k, v in pairs(redis) do copy = v end",
            "return redis.call('ECHO', 'x')",
            ScriptReply::bulk("x"),
        ),
        (
            "getmetatable(_G)",
            "return type(redis.call)",
            ScriptReply::bulk("function"),
        ),
        (
            "collectgarbage('stop') collectgarbage('setpause', 1e6)",
            "return 1",
            ScriptReply::Int(1),
        ),
        (
            "while true do end",
            "return math.random(1000)",
            ScriptReply::Int(397),
        ),
        ("error('x')", "return 1", ScriptReply::Int(1)),
    ] {
        assert_eq!(after(first, second), reply, "{first} / {second}");
    }
}

#[test]
fn random_numbers_go_on_from_run_to_run() {
    let mut interpreter = Interpreter::new();
    let mut number = |body: &str| run_with(&mut interpreter, body, &[], &ScriptLimits::default());
    // Those of redis-server 7.0.15 after its start.
    let first = number("return {math.random(1000), math.random(1000)}");
    assert_eq!(
        first,
        ScriptReply::Array(vec![ScriptReply::Int(397), ScriptReply::Int(841)])
    );
    assert_eq!(number("return math.random(1000)"), ScriptReply::Int(354));
    // A seed counts in its own run.
    for _ in 0..2 {
        assert_eq!(
            number("math.randomseed(0) return math.random(1000)"),
            ScriptReply::Int(171)
        );
    }
    assert!(matches!(number("retrun 1"), ScriptReply::Error(_)));
    assert_eq!(number("return math.random(1000)"), ScriptReply::Int(447));
    assert!(matches!(number("while true do end"), ScriptReply::Error(_)));
    assert_eq!(number("return math.random(1000)"), ScriptReply::Int(319));
    interpreter.seed(7);
    let other = run_with(
        &mut interpreter,
        "return math.random(1000)",
        &[],
        &ScriptLimits::default(),
    );
    assert_ne!(other, ScriptReply::Int(397));
}

#[test]
fn what_a_script_sees_of_a_library_cannot_change_it() {
    let body = "local _, copy = pairs(string) copy.len = nil \
                local _, globals = pairs(_G) globals.type = nil \
                return {type(string.len), type(_G.type)}";
    let wanted = vec![ScriptReply::bulk("function"), ScriptReply::bulk("function")];
    assert_eq!(run(body), ScriptReply::Array(wanted));
    for body in [
        "string.len = 1",
        "rawset(string, 'len', 1)",
        "setmetatable(string, {})",
        "setmetatable(_G, {})",
        "getmetatable('').__index = {}",
        "rawset(getmetatable(''), '__index', {})",
        "getmetatable('').__index.len = 1",
        "x = 1",
        "_G.x = 1",
        "loadstring('x = 1')()",
        "coroutine.wrap(function() x = 1 end)()",
        "server.call = nil",
    ] {
        let failure = text(body);
        assert!(
            failure.contains("Attempt to modify a readonly table"),
            "{body}: {failure}"
        );
    }
}

#[test]
fn functions_that_reach_outside_do_not_exist() {
    for name in [
        "io", "require", "package", "module", "dofile", "loadfile", "print", "debug", "newproxy",
        "getfenv", "setfenv", "arg",
    ] {
        let failure = text(&format!("return {name}"));
        let wanted = format!("nonexistent global variable '{name}'");
        assert!(failure.contains(&wanted), "{name}: {failure}");
    }
    assert_eq!(
        run("return {os.execute, os.exit, os.getenv}"),
        ScriptReply::Array(vec![])
    );
    assert_eq!(run("return type(os.clock())"), ScriptReply::bulk("number"));
}

#[test]
fn bytecode_is_not_loaded() {
    let body = "return {loadstring(string.dump(function() return 1 end))}";
    let ScriptReply::Array(parts) = run(body) else {
        panic!()
    };
    assert!(parts.is_empty(), "nil comes first: {parts:?}");
    let script = Script::parse(&b"\x1bLuaQ\0"[..]).unwrap();
    let failure = Interpreter::new().check(&script).unwrap_err();
    assert!(
        failure.text().contains("user_script:1: unexpected symbol"),
        "{failure}"
    );
}

#[test]
fn no_script_sees_an_error_of_rust() {
    for body in [
        "return type(select(2, pcall(redis.call, 'NOSUCH')))",
        "return type(select(2, pcall(string.rep)))",
        "return type(select(2, pcall(string.rep, 'x', 1e9)))",
        "return type(select(2, pcall(string.find, 'x', '[')))",
        "return type(select(2, pcall(coroutine.wrap(function() string.rep() end))))",
        "return type(select(2, coroutine.resume(coroutine.create(function() string.rep() end))))",
        "local seen xpcall(string.rep, function(e) seen = type(e) end) return seen",
        "return type(select(2, pcall(table.sort, {2, 1}, function() string.rep() end)))",
        "return type(select(2, pcall(string.gsub, 'a', 'a', function() string.rep() end)))",
        "return type(select(2, pcall(string.gsub, 'a', 'a', string.rep)))",
    ] {
        assert_eq!(run(body), ScriptReply::bulk("string"), "{body}");
    }
}

#[test]
fn a_script_with_many_arguments_and_results_ends() {
    for body in [
        "local t = {} for i = 1, 7000 do t[i] = 'v' .. i end return #{unpack(t)}",
        "local t = {} for i = 1, 7900 do t[i] = 'v' .. i end return redis.call('EXISTS', unpack(t))",
        "local t = {} for i = 1, 7990 do t[i] = 'v' .. i end return redis.pcall('EXISTS', unpack(t))",
        "local t = {} for i = 1, 7990 do t[i] = {} end return cmsgpack.pack(unpack(t))",
        "local t = {} for i = 1, 7990 do t[i] = {} end return redis.log(1, unpack(t))",
        "local t = {} for i = 1, 7990 do t[i] = {} end return bit.band(unpack(t))",
        "local t = {} for i = 1, 7990 do t[i] = {} end return pcall(unpack(t))",
        "local t = {} for i = 1, 7990 do t[i] = {} end return coroutine.wrap(function(...) return #{...} end)(unpack(t))",
        "return #{cmsgpack.unpack(string.rep('\\1', 7000))}",
        "return #{cmsgpack.unpack(string.rep('\\161a', 7500))}",
        "return #{string.byte(string.rep('x', 7000), 1, -1)}",
        "local t = {} for i = 1, 20000 do t[i] = 'v' .. i end table.sort(t) return #t",
        "local t = {} for i = 1, 20000 do t[i] = {'v' .. i} end return #cjson.encode(t)",
        "local t = {} for i = 1, 20000 do t[i] = {} end return #t",
    ] {
        // Some are errors, because Lua's stack is bounded. None may panic.
        run(body);
    }
}

#[test]
fn a_name_of_valkey_leads_to_the_same_functions() {
    assert_eq!(
        run("return server.call('ECHO', 'x')"),
        ScriptReply::bulk("x")
    );
    assert_eq!(
        run("return server.sha1hex == redis.sha1hex"),
        ScriptReply::Int(1)
    );
}

#[test]
fn a_command_gets_the_version_of_resp_that_the_script_asked_for() {
    struct Versions;
    impl doyen_scripts::Commands for Versions {
        fn call(&mut self, _: Vec<bytes::Bytes>, protocol: ScriptProtocol) -> ScriptReply {
            match protocol {
                ScriptProtocol::Resp2 => ScriptReply::Int(2),
                ScriptProtocol::Resp3 => {
                    ScriptReply::Set(vec![ScriptReply::Double(1.5), ScriptReply::Bool(true)])
                }
            }
        }

        fn restart(&mut self) {}

        fn may_call(&mut self, _: &[bytes::Bytes]) -> Option<bool> {
            None
        }
    }
    let body = "local a = redis.call('x') redis.setresp(3) return {a, redis.call('x')}";
    let script = Script::parse(body).unwrap();
    let reply = Interpreter::new()
        .run(&script, &[], &[], &mut Versions, &ScriptLimits::default())
        .unwrap();
    let ScriptReply::Array(parts) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(parts[0], ScriptReply::Int(2));
    let ScriptReply::Set(members) = &parts[1] else {
        panic!("{parts:?}")
    };
    assert_eq!(members.len(), 2);
}

#[test]
fn a_script_that_does_not_compile_says_where() {
    let script = Script::parse("local y\nx = = 2").unwrap();
    let mut interpreter = Interpreter::new();
    let failure = ScriptFailure::Compile(
        "ERR Error compiling script (new function): user_script:2: unexpected symbol near '='"
            .to_owned(),
    );
    assert_eq!(interpreter.check(&script), Err(failure));
    assert_eq!(
        interpreter.check(&Script::parse("return 1").unwrap()),
        Ok(())
    );
}

#[test]
fn more_scripts_than_are_kept_still_run() {
    let mut interpreter = Interpreter::new();
    for number in 0..1_200 {
        let body = format!("return {number}");
        let reply = run_with(&mut interpreter, &body, &[], &ScriptLimits::default());
        assert_eq!(reply, ScriptReply::Int(number));
    }
    assert_eq!(
        run_with(&mut interpreter, "return 0", &[], &ScriptLimits::default()),
        ScriptReply::Int(0)
    );
    let large = format!("return 7 --{}", "x".repeat(1 << 19));
    assert_eq!(
        run_with(&mut interpreter, &large, &[], &ScriptLimits::default()),
        ScriptReply::Int(7)
    );
    assert!(
        interpreter.memory_bytes() < 32 << 20,
        "{}",
        interpreter.memory_bytes()
    );
}

/// Regression: bytes that are no UTF-8 became U+FFFD.
#[test]
fn texts_of_replies_and_errors_are_bytes() {
    let bytes = |reply: ScriptReply| match reply {
        ScriptReply::Status(text) | ScriptReply::Error(text) | ScriptReply::Bulk(text) => {
            text.to_vec()
        }
        other => panic!("{other:?}"),
    };
    for (body, expected) in [
        ("return {ok='\\255\\128 a\\nb\\0c'}", &b"\xff\x80 a b"[..]),
        ("return {err='MY \\255'}", b"MY \xff"),
        ("return redis.status_reply('\\255')", b"\xff"),
        ("return redis.error_reply('\\255')", b"ERR \xff"),
        ("local ok, why = pcall(error, '\\255') return why", b"\xff"),
        ("return redis.pcall('GET').err and '\\255'", b"\xff"),
    ] {
        assert_eq!(bytes(run(body)), expected, "{body}");
    }
    for body in ["error('\\255\\128')", "error({err='MY \\255\\128'})"] {
        let text = bytes(run(body));
        assert!(
            text.windows(2).any(|two| two == b"\xff\x80"),
            "{body}: {text:?}"
        );
    }
    let encoded = run("return {ok='\\255'}").to_resp(ScriptProtocol::Resp2);
    assert_eq!(encoded, b"+\xff\r\n");
}
