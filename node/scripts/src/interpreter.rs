//! The cache of compiled scripts, and one run from its keys to its reply.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use mlua::{Error, Function, IntoLua, Lua, MultiValue, Result as LuaResult, Value};

use crate::api;
use crate::budget::{ErrorSite, ScriptBudget, Stop};
use crate::convert::{FromLua, Names, Unfit, line};
use crate::number::RANDOM_FIRST;
use crate::raise::{self, Raise, RaiseCause, cause};
use crate::reply::{Commands, ScriptReply};
use crate::sandbox::{self, Sandbox};
use crate::script::Script;
use crate::source::{self, Uncompiled};

/// Compiled scripts that are kept. Their texts are the caller's to keep.
const SCRIPTS_MAX: usize = 500;

/// Bytes of the texts whose compiled scripts are kept. Compiled, they take a few times as much.
const SCRIPT_BYTES_MAX: usize = 4 << 20;

/// Memory for one compilation.
const COMPILE_BYTES: usize = 64 << 20;

/// Time for one compilation. Most scripts take some 10 microseconds, and 100 KB of usual text 5 ms.
const COMPILE_TIME: Duration = Duration::from_millis(20);

/// Scripts that are remembered as those whose runs take much memory.
const LEVELS_MAX: usize = 500;

/// Memory of Lua beyond which garbage is collected after a run, besides twice what is in use.
const GARBAGE_BYTES: usize = 1 << 20;

/// Bounds of one run.
#[derive(Clone, Debug)]
pub struct ScriptLimits {
    /// Instructions of Lua. Functions cost more by the bytes that they handle. A command costs 50,
    /// and an error that the script catches costs 200. A million takes about 10 ms.
    pub instructions: u64,
    /// Bytes that Lua's values may take, and each thing that is built outside of Lua.
    pub memory_bytes: usize,
    /// Bytes of the reply. An element counts as 32 bytes more than it has.
    pub reply_bytes: usize,
    /// Time. It counts only if the interpreter has a clock.
    pub time: Duration,
}

impl Default for ScriptLimits {
    fn default() -> ScriptLimits {
        ScriptLimits {
            instructions: 10_000_000,
            memory_bytes: 16 << 20,
            reply_bytes: 16 << 20,
            time: Duration::from_secs(1),
        }
    }
}

/// What a run took of its [`ScriptLimits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Instructions: all of them, if the run was stopped for its instructions or its time.
    pub instructions: u64,
    /// Time, if the interpreter has a clock.
    pub time: Duration,
}

/// Why a script has no reply. Commands that it had run before may have changed something: the
/// caller undoes that, or says that it stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptFailure {
    /// The script does not compile.
    Compile(String),
    /// The script raised an error, or a command that it called did. A script's texts are bytes.
    Raised(Bytes),
    /// The run met one of its [`ScriptLimits`]. The text says that nothing was changed.
    Stopped(String),
}

impl ScriptFailure {
    /// The error for the client, with its code, as a text for people.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            ScriptFailure::Compile(text) | ScriptFailure::Stopped(text) => Cow::Borrowed(text),
            ScriptFailure::Raised(text) => String::from_utf8_lossy(text),
        }
    }
}

impl fmt::Display for ScriptFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl std::error::Error for ScriptFailure {}

impl From<ScriptFailure> for ScriptReply {
    fn from(failure: ScriptFailure) -> ScriptReply {
        ScriptReply::Error(match failure {
            ScriptFailure::Compile(text) | ScriptFailure::Stopped(text) => text.into(),
            ScriptFailure::Raised(text) => text,
        })
    }
}

/// Runs scripts, one at a time. It stays in the thread that made it.
///
/// It keeps compiled scripts by their digest, at most 500 and those of 4 MB of text.
pub struct Interpreter {
    clock: Option<fn() -> Duration>,
    machine: Option<Machine>,
    /// The state of the random numbers, which goes on from run to run.
    random: u64,
    /// The levels at which scripts begin whose runs took much memory.
    levels: BTreeMap<String, usize>,
    used: Used,
}

impl Default for Interpreter {
    fn default() -> Interpreter {
        Interpreter {
            clock: None,
            machine: None,
            random: RANDOM_FIRST,
            levels: BTreeMap::new(),
            used: Used::default(),
        }
    }
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scripts = self
            .machine
            .as_ref()
            .map_or(0, |machine| machine.scripts.len());
        f.debug_struct("Interpreter")
            .field("scripts", &scripts)
            .finish_non_exhaustive()
    }
}

impl Interpreter {
    /// An interpreter without a clock: [`ScriptLimits::time`] does not count, and what a script
    /// does depends on nothing but its arguments and its commands (and on `os.clock`).
    pub fn new() -> Interpreter {
        Interpreter::default()
    }

    /// An interpreter that bounds the time of a run. The clock returns the time since any moment.
    pub fn with_clock(clock: fn() -> Duration) -> Interpreter {
        Interpreter {
            clock: Some(clock),
            ..Interpreter::default()
        }
    }

    /// Lets `math.random` give another sequence than that of other interpreters.
    pub fn seed(&mut self, random: u64) {
        self.random = random & 0xffff_ffff_ffff;
    }

    /// Compiles a script, and does not keep it.
    ///
    /// An error is [`ScriptFailure::Compile`], such as
    /// `ERR Error compiling script (new function): user_script:1: unexpected symbol near 'x'`.
    pub fn check(&mut self, script: &Script) -> Result<(), ScriptFailure> {
        let until = self.compile_until();
        let machine = self.machine()?;
        let compiled = machine.load(script, until).map(drop);
        machine.collect();
        compiled
    }

    /// Forgets all compiled scripts, as `SCRIPT FLUSH` does.
    pub fn clear(&mut self) {
        self.machine = None;
    }

    /// Bytes that Lua takes: its libraries, compiled scripts and garbage.
    pub fn memory_bytes(&self) -> usize {
        self.machine
            .as_ref()
            .map_or(0, |machine| machine.sandbox.lua.used_memory())
    }

    /// What the last run used.
    pub fn used(&self) -> Used {
        self.used
    }

    /// Runs a script with its keys and arguments.
    ///
    /// The reply is what the script returns; this can be an error that the script made. If the run
    /// fails, the caller decides what becomes of the changes that `commands` made before. No run
    /// sees anything of another one, but that `math.random` goes on in its sequence.
    pub fn run(
        &mut self,
        script: &Script,
        keys: &[Bytes],
        args: &[Bytes],
        commands: &mut dyn Commands,
        limits: &ScriptLimits,
    ) -> Result<ScriptReply, ScriptFailure> {
        self.used = Used::default();
        let began = self.clock.map(|clock| clock()).unwrap_or_default();
        let deadline = began.saturating_add(limits.time);
        let given: usize = keys.iter().chain(args).map(|arg| arg.len() + 64).sum();
        let known = self.levels.get(script.sha1()).copied().unwrap_or(0);
        let mut level = ScriptBudget::level_of(given).max(known);
        let (ended, left) = loop {
            let random = self.random;
            // A script that has grown is compiled again, in a new machine.
            let until = self.compile_until().map(|until| until.min(deadline));
            let machine = self.machine()?;
            let function = machine.compile(script, until).map_err(|why| match why {
                // Other scripts of the caller took its time.
                _ if until == Some(deadline) && machine.is_late(deadline) => {
                    Machine::ran_too_long(limits)
                }
                why => why,
            });
            machine.budget.set_random(random);
            let compiled = function.is_ok();
            let ended = function.and_then(|function| {
                let bounds = (limits, deadline, level);
                machine.run(script, function, (keys, args), commands, bounds)
            });
            let (stopped, left) = match compiled {
                true => (machine.budget.stopped(), machine.budget.left()),
                false => (None, 0),
            };
            let (random, clean) = (machine.budget.random_left(), machine.budget.is_clean());
            if stopped.is_some() || matches!(ended, Err(ScriptFailure::Stopped(_))) || !clean {
                self.machine = None;
            }
            if stopped != Some(Stop::Grown) {
                self.random = random;
                break (ended, left);
            }
            commands.restart();
            level += 1;
            if self.levels.len() >= LEVELS_MAX {
                self.levels.clear();
            }
            self.levels.insert(script.sha1().to_owned(), level);
        };
        self.used = Used {
            instructions: match ended {
                Err(ScriptFailure::Compile(_)) => 0,
                _ => limits.instructions.saturating_sub(left),
            },
            time: match self.clock {
                Some(clock) => clock().saturating_sub(began),
                None => Duration::ZERO,
            },
        };
        ended
    }

    /// When a compilation that begins now must have ended.
    fn compile_until(&self) -> Option<Duration> {
        Some(self.clock?().saturating_add(COMPILE_TIME))
    }

    fn machine(&mut self) -> Result<&mut Machine, ScriptFailure> {
        let machine = match self.machine.take() {
            Some(machine) => machine,
            None => Machine::new(self.clock).map_err(|error| {
                ScriptFailure::Stopped(format!("ERR no script engine: {error}"))
            })?,
        };
        Ok(self.machine.insert(machine))
    }
}

/// A Lua state with the scripts that are compiled in it.
struct Machine {
    clock: Option<fn() -> Duration>,
    sandbox: Sandbox,
    budget: Rc<ScriptBudget>,
    names: Names,
    scripts: HashMap<String, CompiledScript>,
    script_bytes: usize,
    /// Counts uses of scripts, to know which is the oldest.
    uses: u64,
    /// Memory in use after the last collection of garbage.
    floor: usize,
}

struct CompiledScript {
    function: Function,
    bytes: usize,
    used: u64,
}

impl Machine {
    fn new(clock: Option<fn() -> Duration>) -> LuaResult<Machine> {
        let budget = ScriptBudget::new(clock);
        let sandbox = sandbox::build(&budget)?;
        let names = Names::new(&sandbox.lua)?;
        let floor = sandbox.lua.used_memory();
        Ok(Machine {
            clock,
            sandbox,
            budget,
            names,
            scripts: HashMap::new(),
            script_bytes: 0,
            uses: 0,
            floor,
        })
    }

    fn compile(
        &mut self,
        script: &Script,
        until: Option<Duration>,
    ) -> Result<Function, ScriptFailure> {
        self.uses += 1;
        if let Some(compiled) = self.scripts.get_mut(script.sha1()) {
            compiled.used = self.uses;
            return Ok(compiled.function.clone());
        }
        let function = self.load(script, until)?;
        let bytes = script.body().len();
        self.make_room(bytes);
        self.script_bytes += bytes;
        let compiled = CompiledScript {
            function: function.clone(),
            bytes,
            used: self.uses,
        };
        self.scripts.insert(script.sha1().to_owned(), compiled);
        Ok(function)
    }

    fn load(&self, script: &Script, until: Option<Duration>) -> Result<Function, ScriptFailure> {
        let lua = &self.sandbox.lua;
        // It fails only for states whose allocator is not mlua's.
        let _ = lua.set_memory_limit(lua.used_memory().saturating_add(COMPILE_BYTES));
        // Bytecode is read as text, which fails as in Redis.
        let code = match script.code() {
            code @ [0x1b, ..] => Cow::Owned([b" ", code].concat()),
            code => Cow::Borrowed(code),
        };
        let until = self.clock.zip(until);
        let compiled = source::compile(lua, &self.sandbox.load, (&code, sandbox::CHUNK), until);
        let _ = lua.set_memory_limit(0);
        compiled.map_err(|why| {
            let text = match why {
                Uncompiled::Message(text) => String::from_utf8_lossy(&line(&text)).into_owned(),
                Uncompiled::Late => format!(
                    "it takes more than {} ms of processor time; make it smaller, or use a table \
                     instead of a long chain of 'and', 'or', 'elseif' or 'break'",
                    COMPILE_TIME.as_millis()
                ),
            };
            ScriptFailure::Compile(format!("ERR Error compiling script (new function): {text}"))
        })
    }

    /// Forgets the scripts that were not used for longest.
    fn make_room(&mut self, bytes: usize) {
        while !self.scripts.is_empty()
            && (self.scripts.len() >= SCRIPTS_MAX || self.script_bytes + bytes > SCRIPT_BYTES_MAX)
        {
            let oldest = self.scripts.iter().min_by_key(|(_, script)| script.used);
            let Some(sha1) = oldest.map(|(sha1, _)| sha1.clone()) else {
                break;
            };
            if let Some(script) = self.scripts.remove(&sha1) {
                self.script_bytes -= script.bytes;
            }
        }
    }

    fn run(
        &mut self,
        script: &Script,
        function: Function,
        given: (&[Bytes], &[Bytes]),
        commands: &mut dyn Commands,
        (limits, deadline, level): (&ScriptLimits, Duration, usize),
    ) -> Result<ScriptReply, ScriptFailure> {
        let lua = &self.sandbox.lua;
        let result = (self.budget.begin(lua, limits, deadline, level))
            .and_then(|()| self.execute(function, given, commands));
        let _ = lua.set_memory_limit(0);
        let for_memory = match &result {
            Ok((_, value)) => raise::is_memory(value) || self.budget.raised_memory(),
            Err(error) => raise::is_memory_error(error),
        };
        if !matches!(result, Ok((true, _))) {
            // What it returns is the reason, which is looked at below.
            let _ = self.budget.failed(lua, for_memory);
        }
        let mut ended = match result {
            Ok((true, value)) => self.reply(&value, limits),
            Ok((false, value)) => Err(self.raised(script, value, limits)),
            Err(error) => Err(self.failed(script, &error, None, limits)),
        };
        if self.budget.stopped().is_some() {
            ended = Err(self.stopped(limits));
        }
        self.budget.error.take();
        self.collect();
        ended
    }

    fn execute(
        &self,
        function: Function,
        (keys, args): (&[Bytes], &[Bytes]),
        commands: &mut dyn Commands,
    ) -> LuaResult<(bool, Value)> {
        let lua = &self.sandbox.lua;
        let budget = &self.budget;
        let given = |bytes| LuaInput { bytes, budget };
        let keys = lua.create_sequence_from(keys.iter().map(given))?;
        let args = lua.create_sequence_from(args.iter().map(given))?;
        let commands = RefCell::new(commands);
        lua.scope(|scope| {
            let call = scope.create_function(|lua, args: MultiValue| {
                api::call(lua, budget, &commands, args, true)
            })?;
            let pcall = scope.create_function(|lua, args: MultiValue| {
                api::call(lua, budget, &commands, args, false)
            })?;
            let check = scope.create_function(|lua, args: MultiValue| {
                api::check(lua, budget, &commands, args)
            })?;
            // Not earlier: without a limit, mlua needs no protected calls for what is above.
            budget.limit_memory(lua);
            let run = &self.sandbox.run;
            run.call((function, keys, args, call, pcall, check))
        })
    }

    fn reply(&self, value: &Value, limits: &ScriptLimits) -> Result<ScriptReply, ScriptFailure> {
        let mut convert = FromLua {
            names: &self.names,
            protocol: self.budget.protocol.get(),
            bytes_left: limits.reply_bytes,
            count: &|| self.budget.count_one(&self.sandbox.lua),
        };
        let text = match convert.reply(value) {
            Ok(reply) => return Ok(reply),
            Err(Unfit::Large) => {
                let most = limits.reply_bytes;
                format!("ERR the script's reply is too large: at most {most} bytes")
            }
            Err(Unfit::Deep) => "ERR the script's reply has too many nested tables".to_owned(),
            Err(Unfit::Lua(error)) => format!("ERR the script's reply cannot be read: {error}"),
        };
        Err(ScriptFailure::Stopped(format!(
            "{text}; nothing was changed"
        )))
    }

    fn stopped(&self, limits: &ScriptLimits) -> ScriptFailure {
        match self.budget.stopped() {
            Some(Stop::Time) => Machine::ran_too_long(limits),
            _ => Machine::too_much(&format!("{} instructions", limits.instructions)),
        }
    }

    fn ran_too_long(limits: &ScriptLimits) -> ScriptFailure {
        Machine::too_much(&format!("{} ms", limits.time.as_millis()))
    }

    fn too_much(most: &str) -> ScriptFailure {
        ScriptFailure::Stopped(format!(
            "ERR the script ran too long: at most {most}; nothing was changed; give it less to do at \
             once"
        ))
    }

    fn is_late(&self, deadline: Duration) -> bool {
        self.clock.is_some_and(|clock| clock() > deadline)
    }

    fn out_of_memory(limits: &ScriptLimits) -> ScriptFailure {
        let most = limits.memory_bytes;
        ScriptFailure::Stopped(format!(
            "ERR the script used too much memory: at most {most} bytes; nothing was changed"
        ))
    }

    /// The failure of a script that raised an error.
    fn raised(&self, script: &Script, value: Value, limits: &ScriptLimits) -> ScriptFailure {
        let (value, place) = match self.budget.error.take() {
            Some(error) => error,
            // The handler did not run: the memory was full, or the handler itself failed.
            None => match &value {
                value if raise::is_memory(value) => return Machine::out_of_memory(limits),
                _ => (value, None),
            },
        };
        if let Value::Error(error) = &value {
            return self.failed(script, error, place, limits);
        }
        let text = match &value {
            Value::Table(table) => match table.raw_get(&self.names.err) {
                Ok(Value::String(text)) => text.as_bytes().to_vec(),
                Ok(Value::Nil) | Err(_) => b"ERR unknown error".to_vec(),
                Ok(number) => self.tostring(number),
            },
            _ => [b"ERR ".as_slice(), &self.tostring(value)].concat(),
        };
        placed(script, &text, place)
    }

    /// The failure of a function of this crate.
    fn failed(
        &self,
        script: &Script,
        error: &Error,
        place: Option<ErrorSite>,
        limits: &ScriptLimits,
    ) -> ScriptFailure {
        match cause(error) {
            RaiseCause::Raise(Raise::Reply(text)) => placed(script, &text, place),
            RaiseCause::Raise(Raise::Message(text)) => {
                placed(script, &[b"ERR ".as_slice(), &text].concat(), place)
            }
            RaiseCause::Raise(Raise::Stopped) => self.stopped(limits),
            RaiseCause::Other(text) if text == "not enough memory" => {
                Machine::out_of_memory(limits)
            }
            RaiseCause::Other(text) => placed(script, format!("ERR {text}").as_bytes(), place),
        }
    }

    /// A value as Lua's `tostring` shows it. No table comes here, so no metamethod runs.
    fn tostring(&self, value: Value) -> Vec<u8> {
        let text: LuaResult<mlua::LuaString> = match &value {
            Value::String(text) => Ok(text.clone()),
            _ => self.sandbox.tostring.call(value),
        };
        text.map_or_else(
            |_| b"unknown error".to_vec(),
            |text| text.as_bytes().to_vec(),
        )
    }

    fn collect(&mut self) {
        let lua = &self.sandbox.lua;
        if lua.used_memory() > 2 * self.floor + GARBAGE_BYTES && lua.gc_collect().is_ok() {
            self.floor = lua.used_memory();
        }
    }
}

/// A key or an argument on its way into Lua.
struct LuaInput<'a> {
    bytes: &'a Bytes,
    budget: &'a ScriptBudget,
}

impl IntoLua for LuaInput<'_> {
    fn into_lua(self, lua: &Lua) -> LuaResult<Value> {
        self.budget.count_one(lua)?;
        lua.create_string(self.bytes).map(Value::String)
    }
}

/// An error with the place where it was raised, in the form of Redis 7.0.
fn placed(script: &Script, text: &[u8], place: Option<ErrorSite>) -> ScriptFailure {
    let mut text = line(text);
    if let Some(ErrorSite { source, line }) = place {
        let sha1 = script.sha1();
        text.extend_from_slice(format!(" script: {sha1}, on {source}:{line}.").as_bytes());
    }
    ScriptFailure::Raised(text.into())
}
