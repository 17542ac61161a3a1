//! What a run may still use, and how it is stopped.
//!
//! A run is stopped once: from then on, every instruction of every coroutine fails, and every
//! function of this crate. A `pcall` of the script therefore returns into code that fails, too,
//! until the outermost call ends. The Lua state is thrown away afterwards.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mlua::state::{GcIncParams, GcMode};
use mlua::{
    Error, FromLuaMulti, Function, HookTriggers, IntoLuaMulti, Lua, Result, Table, VmState,
};

use crate::interpreter::ScriptLimits;
use crate::json::JsonConfig;
use crate::number::{random_next, random_seed};
use crate::raise::{Raise, is_memory};
use crate::reply::ScriptProtocol;

/// What a run may take before it begins again at the next level, garbage included, and how many
/// instructions it executes between two looks at the budget and the clock. One instruction may
/// compare or copy all of its memory: for 8 MB, that takes up to 10 ms. A level therefore looks the
/// more often the more memory it has. Only the last one collects garbage.
const LEVELS: [(usize, u32); 3] = [(1 << 20, 32), (4 << 20, 8), (usize::MAX, 2)];

/// The last level, at which a run has all the memory that it may use.
const LEVEL_LAST: usize = LEVELS.len() - 1;

/// Things that cost no instruction and are done between two looks at the clock.
const COUNT_EVERY: u64 = 32;

/// Elements that are moved for the price of one instruction.
const MOVES: u64 = 2;

/// Messages that one run may log.
const LOGS_MAX: u32 = 16;

/// Why a run was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Instructions,
    Time,
    /// The run took what its level may take. It begins again at the next one.
    Grown,
}

/// Where a script's error was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorSite {
    pub(crate) source: String,
    pub(crate) line: i64,
}

/// The state of the current run. The Rust functions of a Lua state and its interpreter share it.
#[derive(Default)]
pub(crate) struct ScriptBudget {
    left: Cell<u64>,
    /// Cost since the last look at the clock.
    unseen: Cell<u64>,
    level: Cell<usize>,
    /// Memory of Lua when the run began.
    base: Cell<usize>,
    stopped: Cell<Option<Stop>>,
    bytes_max: Cell<usize>,
    clock: Option<fn() -> Duration>,
    deadline: Cell<Duration>,
    logs: Cell<u32>,
    /// Memory of Lua from which on garbage is collected early.
    tight_at: Cell<usize>,
    tight: Cell<bool>,
    /// The state of `math.random`.
    random: Cell<u64>,
    /// The state before the run seeded it.
    unseeded: Cell<Option<u64>>,
    pub(crate) protocol: Cell<ScriptProtocol>,
    pub(crate) json: Rc<Cell<JsonConfig>>,
    /// The error that ends the run, and where it was raised.
    pub(crate) error: RefCell<Option<(mlua::Value, Option<ErrorSite>)>>,
    /// Functions of C that runs of the first level get, and what others get in their place: a
    /// table, a name, and the two.
    pub(crate) swapped: RefCell<Vec<(Table, &'static str, Function, Function)>>,
    /// The read-only tables: what scripts see, and what has the fields.
    pub(crate) fronts: RefCell<Vec<(Table, Table)>>,
}

impl ScriptBudget {
    /// A function for scripts that draws on this budget.
    pub(crate) fn function<A: FromLuaMulti, R: IntoLuaMulti>(
        self: &Rc<Self>,
        lua: &Lua,
        call: impl Fn(&Lua, &Self, A) -> Result<R> + 'static,
    ) -> Result<Function> {
        let shared = Rc::clone(self);
        lua.create_function(move |lua, args| call(lua, &shared, args))
    }

    pub(crate) fn new(clock: Option<fn() -> Duration>) -> Rc<ScriptBudget> {
        Rc::new(ScriptBudget {
            clock,
            ..ScriptBudget::default()
        })
    }

    /// Counts instructions of this Lua state's threads from now on.
    pub(crate) fn watch(self: &Rc<ScriptBudget>, lua: &Lua) -> Result<()> {
        let budget = Rc::clone(self);
        let every = self.look_every();
        let triggers = HookTriggers::new().every_nth_instruction(every);
        lua.set_global_hook(triggers, move |lua, _| {
            budget.make_room(lua);
            budget.charge(lua, u64::from(every))?;
            Ok(VmState::Continue)
        })
    }

    /// Begins a run that ends at `deadline`, if there is a clock: everything that a run can change
    /// has its first value again. It ends as [`Stop::Grown`] if it takes more memory than a run of
    /// its level may.
    pub(crate) fn begin(
        self: &Rc<ScriptBudget>,
        lua: &Lua,
        limits: &ScriptLimits,
        deadline: Duration,
        level: usize,
    ) -> Result<()> {
        if self.level.replace(level) != level {
            self.watch(lua)?;
            for (table, name, plain, counted) in self.swapped.borrow().iter() {
                table.raw_set(*name, if level > 0 { counted } else { plain })?;
            }
        }
        if self.collects() {
            lua.gc_restart();
        } else {
            lua.gc_stop();
        }
        self.tight_at
            .set(lua.used_memory().saturating_add(limits.memory_bytes / 8));
        if self.tight.replace(false) {
            collect_late(lua);
        }
        self.left.set(limits.instructions);
        self.unseen.set(0);
        self.bytes_max.set(limits.memory_bytes);
        self.deadline.set(deadline);
        self.logs.set(0);
        self.protocol.set(ScriptProtocol::default());
        self.json.set(JsonConfig::default());
        Ok(())
    }

    /// Limits the memory of the run that has begun, beside what Lua takes already.
    pub(crate) fn limit_memory(&self, lua: &Lua) {
        let most = self.bytes_max.get().min(LEVELS[self.level.get()].0);
        self.base.set(lua.used_memory());
        // It fails only for states whose allocator is not mlua's.
        let _ = lua.set_memory_limit(self.base.get().saturating_add(most));
    }

    /// The level at which a run with `bytes` of arguments begins.
    pub(crate) fn level_of(bytes: usize) -> usize {
        let fits = |(most, _): &(usize, u32)| bytes <= most / 4;
        LEVELS.iter().position(fits).unwrap_or(LEVEL_LAST)
    }

    /// Whether garbage is collected during the run.
    pub(crate) fn collects(&self) -> bool {
        self.level.get() == LEVEL_LAST
    }

    fn look_every(&self) -> u32 {
        LEVELS[self.level.get()].1
    }

    /// Takes the cost of some work from the budget. An instruction costs 1.
    pub(crate) fn charge(&self, lua: &Lua, cost: u64) -> Result<()> {
        if self.stopped.get().is_some() {
            return Err(Raise::Stopped.into());
        }
        let Some(left) = self.left.get().checked_sub(cost) else {
            return Err(self.stop(lua, Stop::Instructions));
        };
        self.left.set(left);
        let unseen = self.unseen.get().saturating_add(cost);
        self.unseen.set(unseen);
        if unseen >= u64::from(self.look_every()) {
            self.look(lua)?;
        }
        Ok(())
    }

    /// Stops the run if its time is over.
    pub(crate) fn look(&self, lua: &Lua) -> Result<()> {
        if self.stopped.get().is_some() {
            return Err(Raise::Stopped.into());
        }
        self.unseen.set(0);
        match self.clock {
            Some(clock) if clock() > self.deadline.get() => Err(self.stop(lua, Stop::Time)),
            _ => Ok(()),
        }
    }

    /// What is done for each of many things that cost no instruction: looks at the clock now and
    /// then. Lua finds a string by a hash that clients can let collide, so each may take long.
    pub(crate) fn count_one(&self, lua: &Lua) -> Result<()> {
        let unseen = self.unseen.get().saturating_add(1);
        self.unseen.set(unseen);
        if unseen >= COUNT_EVERY {
            self.look(lua)?;
        }
        Ok(())
    }

    /// A run has failed, or an error was caught: if that may be because its level has no more
    /// memory, the run stops and begins again at the next one. (Lua says "too many results", for
    /// instance, if there is no memory for them.)
    pub(crate) fn failed(&self, lua: &Lua, for_memory: bool) -> Result<()> {
        let part = self
            .base
            .get()
            .saturating_add(LEVELS[self.level.get()].0 / 4);
        if self.stopped.get().is_none()
            && self.level.get() < LEVEL_LAST
            && (for_memory || lua.used_memory() > part)
        {
            return Err(self.stop(lua, Stop::Grown));
        }
        Ok(())
    }

    /// Takes the cost of handling some bytes.
    pub(crate) fn charge_bytes(&self, lua: &Lua, bytes: usize) -> Result<()> {
        self.make_room(lua);
        self.charge(lua, 1 + bytes as u64 / 32)
    }

    /// Takes the cost of moving elements of a table by one place.
    pub(crate) fn charge_moves(&self, lua: &Lua, moved: i64) -> Result<()> {
        self.charge(lua, 1 + u64::try_from(moved).unwrap_or(0) / MOVES)
    }

    /// Whether the error that ended the run is that the memory is full.
    pub(crate) fn raised_memory(&self) -> bool {
        let error = self.error.borrow();
        error.as_ref().is_some_and(|(error, _)| is_memory(error))
    }

    /// Collects garbage early once a run has used an eighth of its memory.
    fn make_room(&self, lua: &Lua) {
        if !self.collects() || self.tight.get() || lua.used_memory() <= self.tight_at.get() {
            return;
        }
        self.tight.set(true);
        collect_early(lua);
        // Otherwise, the old rule says when the next collection begins. Lua collects again later if
        // it cannot now: an error would call a handler of the script where no instruction counts.
        let _ = lua.gc_collect();
    }

    /// The next random number, 0 to 2^31 - 1.
    pub(crate) fn random(&self) -> u32 {
        let (state, number) = random_next(self.random.get());
        self.random.set(state);
        number
    }

    /// Begins the sequence of a seed. It lasts until the run ends.
    pub(crate) fn seed(&self, seed: i32) {
        if self.unseeded.get().is_none() {
            self.unseeded.set(Some(self.random.get()));
        }
        self.random.set(random_seed(seed));
    }

    /// Sets the state of the random numbers.
    pub(crate) fn set_random(&self, state: u64) {
        self.random.set(state);
        self.unseeded.set(None);
    }

    /// The state of the random numbers for the next run.
    pub(crate) fn random_left(&self) -> u64 {
        self.unseeded.get().unwrap_or(self.random.get())
    }

    /// The cost that is left.
    pub(crate) fn left(&self) -> u64 {
        self.left.get()
    }

    /// The most bytes that one function of this crate may build.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max.get()
    }

    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.stopped.get()
    }

    /// Whether all read-only tables are as they were: `table.insert` can write into one.
    pub(crate) fn is_clean(&self) -> bool {
        self.fronts
            .borrow()
            .iter()
            .all(|(front, _)| front.is_empty())
    }

    /// Whether one more message may be logged.
    pub(crate) fn may_log(&self) -> bool {
        self.logs.set(self.logs.get() + 1);
        self.logs.get() <= LOGS_MAX
    }

    fn stop(&self, lua: &Lua, why: Stop) -> Error {
        self.stopped.set(Some(why));
        self.left.set(0);
        fail_always(lua);
        Raise::Stopped.into()
    }
}

/// Collects garbage late, for the many scripts that make little of it.
pub(crate) fn collect_late(lua: &Lua) {
    lua.gc_set_mode(GcMode::Incremental(
        GcIncParams::default().pause(400).step_multiplier(400),
    ));
}

/// Collects garbage early, because the limit of the memory counts it as well.
fn collect_early(lua: &Lua) {
    lua.gc_set_mode(GcMode::Incremental(
        GcIncParams::default().pause(150).step_multiplier(400),
    ));
}

/// Lets every further instruction of the running thread fail, and every hook of other threads.
fn fail_always(lua: &Lua) {
    let triggers = HookTriggers::new().every_nth_instruction(1);
    // Without memory for the new hook, the old one stays: it fails as well, but not as often.
    let _ = lua.set_global_hook(triggers, |lua, _| {
        // This may be another thread, which still has the old interval.
        fail_always(lua);
        Err(Raise::Stopped.into())
    });
}
