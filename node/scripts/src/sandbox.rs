//! Builds a Lua state: its globals, its libraries and their protection.
//!
//! Lua 5.1 cannot make a table read-only. A script therefore sees an empty table in place of each
//! library and of the globals, a *front*. Its metatable looks fields up in the real table, and
//! refuses to set any. What could write to a front past its metatable (`rawset`, `setmetatable`) is
//! replaced here. `table.insert` could do so, too: after such a run, the state is thrown away.

use std::rc::Rc;

use mlua::{Function, Lua, LuaOptions, MultiValue, Result, StdLib};
use mlua::{Table, Value};

use crate::budget::{ScriptBudget, collect_late};
use crate::raise::{self, LuaArgs, Raise};
use crate::source::Pieces;
use crate::{api, bits, json, msgpack, sorting, strings, structs};

/// The name of a script's chunk, as in Redis.
pub(crate) const CHUNK: &str = "@user_script";

/// What scripts get of Lua's global functions, besides those that are replaced.
const FUNCTIONS: [&str; 10] = [
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "next",
    "rawequal",
    "select",
    "tonumber",
    "tostring",
    "type",
];

/// Texts that exist from the start. Lua makes the messages outside of any protected call, and ends
/// the process if the memory is full then. The parser keeps the name of a chunk where no collection
/// of garbage sees it.
const TEXTS: [&str; 5] = [
    "not enough memory",
    "error in error handling",
    "C stack overflow",
    "cannot resume non-suspended coroutine",
    CHUNK,
];

/// The most results of `unpack`: what fits on Lua's stack besides its three arguments.
const UNPACK_MAX: i64 = 7_997;

/// What the interpreter needs of a Lua state.
pub(crate) struct Sandbox {
    pub(crate) lua: Lua,
    /// Runs a script: the prelude's `run`.
    pub(crate) run: Function,
    /// Lua's `tostring`.
    pub(crate) tostring: Function,
    /// Lua's `load`.
    pub(crate) load: Function,
}

/// Makes a Lua state whose runs are bounded by `budget`.
pub(crate) fn build(budget: &Rc<ScriptBudget>) -> Result<Sandbox> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    collect_late(&lua);
    lua.set_named_registry_value("doyen.texts", lua.create_sequence_from(TEXTS)?)?;
    let original = lua.globals();
    let globals = lua.create_table()?;
    for name in FUNCTIONS {
        globals.raw_set(name, original.raw_get::<Value>(name)?)?;
    }
    globals.raw_set("_VERSION", "Lua 5.1")?;
    let string: Table = original.raw_get("string")?;
    let table: Table = original.raw_get("table")?;
    let coroutine: Table = original.raw_get("coroutine")?;
    let os = lua.create_table()?;
    os.raw_set(
        "clock",
        original.raw_get::<Table>("os")?.raw_get::<Value>("clock")?,
    )?;
    let redis = api::library(&lua, budget)?;

    let mut fronts = Fronts {
        lua: &lua,
        budget,
        metamethods: None,
    };
    let front = fronts.add(&globals)?;
    let prelude = prelude(&lua, budget, &original, &globals, &redis, &front)?;
    fronts.metamethods = Some((
        prelude.raw_get("readonly")?,
        prelude.raw_get("nonexistent")?,
    ));

    for name in ["pcall", "xpcall", "loadstring", "load", "unpack"] {
        globals.raw_set(name, prelude.raw_get::<Function>(name)?)?;
    }
    for name in ["create", "resume", "wrap"] {
        coroutine.raw_set(name, prelude.raw_get::<Function>(name)?)?;
    }
    let replaced = strings::functions(&lua, budget)?;
    for name in ["find", "match", "rep", "lower", "upper", "reverse"] {
        string.raw_set(name, replaced.raw_get::<Function>(name)?)?;
    }
    for (library, name) in [(&string, "format"), (&table, "concat")] {
        let (plain, counted) = (library.raw_get(name)?, prelude.raw_get(name)?);
        let swapped = (library.clone(), name, plain, counted);
        budget.swapped.borrow_mut().push(swapped);
    }
    for (name, ours) in [("gmatch", "gmatch"), ("gfind", "gmatch"), ("gsub", "gsub")] {
        string.raw_set(name, prelude.raw_get::<Function>(ours)?)?;
    }
    for name in ["sort", "insert", "remove", "foreachi"] {
        table.raw_set(name, prelude.raw_get::<Function>(name)?)?;
    }
    protections(&lua, budget, &globals)?;
    let math = math(&lua, budget, original.raw_get("math")?)?;

    let json = json::library(&lua, budget, &budget.json)?;
    for (name, library) in [
        ("string", string),
        ("table", table),
        ("math", math),
        ("coroutine", coroutine),
        ("os", os),
        ("bit", bits::library(&lua)?),
        ("struct", structs::library(&lua, budget)?),
        ("cjson", json),
        ("cmsgpack", msgpack::library(&lua, budget)?),
        ("redis", redis),
    ] {
        let front = fronts.add(&library)?;
        fronts.protect(&front, &library)?;
        globals.raw_set(name, front)?;
    }
    // The name by which Valkey's scripts call it.
    globals.raw_set("server", globals.raw_get::<Table>("redis")?)?;
    globals.raw_set("_G", &front)?;
    fronts.protect(&front, &globals)?;
    fronts.protect_globals(&globals)?;
    // The metatable of strings leads to the real table, so scripts see another one.
    if let Some(meta) = lua.type_metatable::<mlua::LuaString>() {
        let shown = lua.create_table()?;
        shown.raw_set("__index", globals.raw_get::<Table>("string")?)?;
        let front = fronts.add(&shown)?;
        fronts.protect(&front, &shown)?;
        meta.raw_set("__metatable", front)?;
    }
    lua.set_globals(front)?;

    budget.watch(&lua)?;
    let run = prelude.raw_get("run")?;
    let tostring = globals.raw_get("tostring")?;
    let load = original.raw_get("load")?;
    lua.gc_collect()?;
    Ok(Sandbox {
        lua,
        run,
        tostring,
        load,
    })
}

/// The read-only tables.
struct Fronts<'a> {
    lua: &'a Lua,
    budget: &'a ScriptBudget,
    /// The functions for `__newindex` and for the globals' `__index`.
    metamethods: Option<(Function, Function)>,
}

impl Fronts<'_> {
    fn add(&self, real: &Table) -> Result<Table> {
        let front = self.lua.create_table()?;
        self.budget
            .fronts
            .borrow_mut()
            .push((front.clone(), real.clone()));
        Ok(front)
    }

    fn protect(&self, front: &Table, real: &Table) -> Result<()> {
        let meta = self.lua.create_table()?;
        meta.raw_set("__index", real)?;
        meta.raw_set(
            "__newindex",
            self.metamethods.as_ref().map(|(readonly, _)| readonly),
        )?;
        meta.raw_set("__metatable", false)?;
        front.set_metatable(Some(meta))
    }

    /// Refuses to read a global that does not exist.
    fn protect_globals(&self, globals: &Table) -> Result<()> {
        let meta = self.lua.create_table()?;
        meta.raw_set(
            "__index",
            self.metamethods
                .as_ref()
                .map(|(_, nonexistent)| nonexistent),
        )?;
        globals.set_metatable(Some(meta))
    }
}

fn prelude(
    lua: &Lua,
    budget: &Rc<ScriptBudget>,
    original: &Table,
    globals: &Table,
    redis: &Table,
    front: &Table,
) -> Result<Table> {
    let of_lua = lua.create_table()?;
    for name in [
        "type", "error", "select", "tostring", "pcall", "xpcall", "load", "next", "unpack",
    ] {
        of_lua.raw_set(name, original.raw_get::<Function>(name)?)?;
    }
    for (library, name) in [
        ("table", "sort"),
        ("table", "concat"),
        ("table", "insert"),
        ("table", "remove"),
        ("table", "foreachi"),
        ("string", "sub"),
        ("string", "format"),
        ("coroutine", "create"),
        ("coroutine", "resume"),
    ] {
        let library: Table = original.raw_get(library)?;
        of_lua.raw_set(name, library.raw_get::<Function>(name)?)?;
    }
    let of_rust = strings::functions(lua, budget)?;
    of_rust.raw_set("rawget", original.raw_get::<Function>("rawget")?)?;
    of_rust.raw_set("caught", lua.create_function(raise::caught)?)?;
    let caught = |cost: u64| {
        budget.function(lua, move |lua, budget, error: Value| {
            budget.failed(lua, raise::is_memory(&error))?;
            budget.charge(lua, cost)
        })
    };
    // For an error that a script may catch: it ends a run that was stopped, or whose level is full.
    of_rust.raw_set("check", caught(0)?)?;
    of_rust.raw_set("failed", caught(raise::COST)?)?;
    let stopped = |_: &Lua, budget: &ScriptBudget, ()| Ok(budget.stopped().is_some());
    of_rust.raw_set("stopped", budget.function(lua, stopped)?)?;
    let fail = |lua: &Lua, text: String| Err::<(), _>(raise::message(lua, text));
    of_rust.raw_set("fail", lua.create_function(fail)?)?;
    let sort = |lua: &Lua, budget: &ScriptBudget, args| sorting::sort(lua, budget, args);
    of_rust.raw_set("sort_plain", budget.function(lua, sort)?)?;
    let native = |_: &Lua, function: Function| Ok(function.info().what == "C");
    of_rust.raw_set("native", lua.create_function(native)?)?;
    of_rust.raw_set(
        "unplaced",
        lua.create_function(|_, text: String| Ok(unplaced(&text)))?,
    )?;
    checks(lua, budget, &of_rust)?;
    let handler = |lua: &Lua, budget: &ScriptBudget, error: Value| {
        *budget.error.borrow_mut() = Some((error, raise::place(lua)));
        Ok(())
    };
    of_rust.raw_set("handler", budget.function(lua, handler)?)?;
    of_rust.raw_set("globals", globals)?;
    of_rust.raw_set("api", redis)?;
    lua.load(include_str!("prelude.lua"))
        .set_name(raise::PRELUDE)
        .set_environment(front.clone())
        .call((of_lua, of_rust))
}

/// Checks of arguments for functions of the prelude.
fn checks(lua: &Lua, budget: &Rc<ScriptBudget>, table: &Table) -> Result<()> {
    let shared = Rc::clone(budget);
    let loadstring = move |lua: &Lua, args: MultiValue| {
        let args = LuaArgs::new(lua, args);
        let text = args.string(1)?;
        let name = if args.value(2).is_nil() {
            text.clone()
        } else {
            args.string(2)?
        };
        // Lua reads a name up to its first zero byte. The parser does not protect this text from
        // the collection of garbage, but the stack does, as long as it is the same text.
        let end = name.as_bytes().iter().position(|byte| *byte == 0);
        let name = match end {
            Some(end) => lua.create_string(&name.as_bytes()[..end])?,
            None => name,
        };
        shared.charge_bytes(lua, text.as_bytes().len() * 8)?;
        // Bytecode is read as text, which fails as in Redis.
        let mut space = text.as_bytes().first() == Some(&0x1b);
        let (budget, mut pieces) = (Rc::clone(&shared), Pieces::new());
        let reader = lua.create_function_mut(move |lua, ()| {
            budget.look(lua)?;
            if std::mem::take(&mut space) {
                return lua.create_string(" ").map(Some);
            }
            let piece = pieces.next(lua, &text.as_bytes());
            if piece.is_err() {
                // A handler of the script may replace the error.
                budget.failed(lua, true)?;
            }
            piece
        })?;
        Ok((reader, name))
    };
    table.raw_set("loadstring_check", lua.create_function(loadstring)?)?;
    let format = |lua: &Lua, budget: &ScriptBudget, args| strings::format_check(lua, budget, args);
    table.raw_set("format_check", budget.function(lua, format)?)?;
    let concat = |lua: &Lua, budget: &ScriptBudget, args| strings::concat_check(lua, budget, args);
    table.raw_set("concat_check", budget.function(lua, concat)?)?;
    let load = |lua: &Lua, args: MultiValue| {
        let args = LuaArgs::new(lua, args);
        let Value::Function(function) = args.value(1) else {
            return Err(args.wrong_type(1, "function"));
        };
        let name = match args.value(2) {
            Value::Nil => lua.create_string("=(load)")?,
            _ => args.string(2)?,
        };
        Ok((function, name))
    };
    table.raw_set("load_check", lua.create_function(load)?)?;
    let create = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        budget.charge(lua, 10)?;
        let args = LuaArgs::new(lua, args);
        match args.value(1) {
            Value::Function(function) if function.info().what != "C" => Ok(()),
            _ => Err(args.wrong(1, "Lua function expected")),
        }
    };
    table.raw_set("create_check", budget.function(lua, create)?)?;
    let resume = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        budget.charge(lua, 1)?;
        let args = LuaArgs::new(lua, args);
        match args.value(1) {
            Value::Thread(_) => Ok(()),
            _ => Err(args.wrong(1, "coroutine expected")),
        }
    };
    table.raw_set("resume_check", budget.function(lua, resume)?)?;
    table.raw_set("unpack_check", lua.create_function(unpack_check)?)?;
    let insert = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        let args = LuaArgs::new(lua, args);
        let end = args.table(1)?.raw_len() as i64 + 1;
        if !(2..=3).contains(&args.len()) {
            return Err(raise::message(lua, "wrong number of arguments to 'insert'"));
        }
        let moved = match args.len() {
            3 => end - i64::from(args.c_int(2)?),
            _ => 0,
        };
        budget.charge_moves(lua, moved)
    };
    table.raw_set("insert_check", budget.function(lua, insert)?)?;
    let remove = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        let args = LuaArgs::new(lua, args);
        let end = args.table(1)?.raw_len() as i64;
        match args.value(2) {
            Value::Nil => Ok(()),
            _ => match i64::from(args.c_int(2)?) {
                at if (1..=end).contains(&at) => budget.charge_moves(lua, end - at),
                _ => Ok(()),
            },
        }
    };
    table.raw_set("remove_check", budget.function(lua, remove)?)?;
    let foreachi = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        let args = LuaArgs::new(lua, args);
        let calls = args.table(1)?.raw_len();
        if !matches!(args.value(2), Value::Function(_)) {
            return Err(args.wrong_type(2, "function"));
        }
        budget.charge(lua, calls as u64)
    };
    table.raw_set("foreachi_check", budget.function(lua, foreachi)?)
}

/// The table of `unpack`, its first and its last index, whose number of results is in bounds.
fn unpack_check(lua: &Lua, args: MultiValue) -> Result<(Table, i32, i32)> {
    let args = LuaArgs::new(lua, args);
    let table = args.table(1)?;
    let first = match args.value(2) {
        Value::Nil => 1,
        _ => args.c_int(2)?,
    };
    let last = match args.value(3) {
        Value::Nil => i32::try_from(table.raw_len()).unwrap_or(i32::MAX),
        _ => args.c_int(3)?,
    };
    if i64::from(last) - i64::from(first) >= UNPACK_MAX {
        return Err(raise::message(lua, "too many results to unpack"));
    }
    Ok((table, first, last))
}

/// A message without the place in the prelude where Lua says that it was raised.
fn unplaced(text: &str) -> String {
    let rest = text
        .strip_prefix(&raise::PRELUDE[1..])
        .and_then(|rest| rest.strip_prefix(':'));
    match rest.and_then(|rest| rest.split_once(": ")) {
        Some((line, message)) if line.bytes().all(|byte| byte.is_ascii_digit()) => {
            message.to_owned()
        }
        _ => text.to_owned(),
    }
}

/// The global functions that could write past a metatable, and those that know of fronts.
fn protections(lua: &Lua, budget: &Rc<ScriptBudget>, globals: &Table) -> Result<()> {
    let readonly = || Raise::Message(b"Attempt to modify a readonly table".to_vec()).into();
    let rawset = move |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        let args = LuaArgs::new(lua, args);
        let table = args.table(1)?;
        if args.len() < 2 {
            return Err(args.wrong(2, "value expected"));
        }
        if args.len() < 3 {
            return Err(args.wrong(3, "value expected"));
        }
        if real(budget, &table).is_some() {
            return Err(readonly());
        }
        table.raw_set(args.value(2), args.value(3))?;
        Ok(table)
    };
    globals.raw_set("rawset", budget.function(lua, rawset)?)?;
    let rawget = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        let args = LuaArgs::new(lua, args);
        let table = args.table(1)?;
        if args.len() < 2 {
            return Err(args.wrong(2, "value expected"));
        }
        real(budget, &table)
            .unwrap_or(table)
            .raw_get::<Value>(args.value(2))
    };
    globals.raw_set("rawget", budget.function(lua, rawget)?)?;
    let setmetatable = move |lua: &Lua, budget: &ScriptBudget, mut args: MultiValue| {
        // mlua panics if it has no reference left for the old metatable.
        args.truncate(2);
        let args = LuaArgs::new(lua, args);
        let table = args.table(1)?;
        let meta = match args.value(2) {
            Value::Nil if args.len() >= 2 => None,
            Value::Table(meta) => Some(meta),
            _ => return Err(args.wrong(2, "nil or table expected")),
        };
        if real(budget, &table).is_some() {
            return Err(readonly());
        }
        if let Some(old) = table.metatable()
            && !old.raw_get::<Value>("__metatable")?.is_nil()
        {
            return Err(raise::message(lua, "cannot change a protected metatable"));
        }
        table.set_metatable(meta)?;
        Ok(table)
    };
    globals.raw_set("setmetatable", budget.function(lua, setmetatable)?)?;
    let next: Function = globals.raw_get("next")?;
    let pairs = move |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        let args = LuaArgs::new(lua, args);
        let table = args.table(1)?;
        // A front has no fields of its own. A script that looks through one gets a copy.
        let table = match real(budget, &table) {
            Some(real) => {
                let copy = lua.create_table()?;
                real.for_each(|key: Value, value: Value| copy.raw_set(key, value))?;
                copy
            }
            None => table,
        };
        Ok((next.clone(), table, Value::Nil))
    };
    globals.raw_set("pairs", budget.function(lua, pairs)?)?;

    let collectgarbage = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        let args = LuaArgs::new(lua, args);
        let option = match args.value(1) {
            Value::Nil => "collect".to_owned(),
            _ => args.string(1)?.to_string_lossy(),
        };
        let used = lua.used_memory();
        match option.as_str() {
            "count" => Ok(Value::Number(used as f64 / 1024.0)),
            "collect" => {
                budget.charge_bytes(lua, used)?;
                if budget.collects() {
                    lua.gc_collect()?;
                }
                Ok(Value::Integer(0))
            }
            "step" => {
                budget.charge_bytes(lua, used / 8)?;
                Ok(Value::Boolean(!budget.collects() || lua.gc_step()?))
            }
            // These would change how later scripts run.
            "stop" | "restart" | "setpause" | "setstepmul" => Ok(Value::Integer(0)),
            option => Err(args.wrong(1, format_args!("invalid option '{option}'"))),
        }
    };
    globals.raw_set("collectgarbage", budget.function(lua, collectgarbage)?)?;
    let gcinfo = |lua: &Lua, _: MultiValue| Ok(lua.used_memory() / 1024);
    globals.raw_set("gcinfo", lua.create_function(gcinfo)?)
}

/// The real table behind a front.
fn real(budget: &ScriptBudget, table: &Table) -> Option<Table> {
    let pointer = table.to_pointer();
    let fronts = budget.fronts.borrow();
    let (_, real) = fronts
        .iter()
        .find(|(front, _)| front.to_pointer() == pointer)?;
    Some(real.clone())
}

/// The library with Redis's random numbers.
fn math(lua: &Lua, budget: &Rc<ScriptBudget>, math: Table) -> Result<Table> {
    let random = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        let args = LuaArgs::new(lua, args);
        let number = budget.random();
        // 2^31 - 1 itself becomes 0, so that the result stays below 1.
        let most = f64::from(i32::MAX);
        let fraction = f64::from(number % i32::MAX as u32) / most;
        let integer = |number| args.integer(number).map(|integer| integer as i32);
        match args.len() {
            0 => Ok(fraction),
            1 => {
                let upper = integer(1)?;
                if upper < 1 {
                    return Err(args.wrong(1, "interval is empty"));
                }
                Ok((fraction * f64::from(upper)).floor() + 1.0)
            }
            2 => {
                let (lower, upper) = (integer(1)?, integer(2)?);
                if lower > upper {
                    return Err(args.wrong(2, "interval is empty"));
                }
                let width = f64::from(upper.wrapping_sub(lower).wrapping_add(1));
                Ok((fraction * width).floor() + f64::from(lower))
            }
            _ => Err(raise::message(lua, "wrong number of arguments")),
        }
    };
    math.raw_set("random", budget.function(lua, random)?)?;
    let randomseed = |lua: &Lua, budget: &ScriptBudget, args: MultiValue| {
        let seed = LuaArgs::new(lua, args).integer(1)?;
        budget.seed(seed as i32);
        Ok(())
    };
    math.raw_set("randomseed", budget.function(lua, randomseed)?)?;
    Ok(math)
}
