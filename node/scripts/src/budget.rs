//! What a run may still use, and how it is stopped.
//!
//! A run is stopped once: from then on, every instruction of every coroutine fails, and every
//! function of this crate. A `pcall` of the script therefore returns into code that fails, too,
//! until the outermost call ends. The Lua state is thrown away afterwards.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mlua::state::{GcIncParams, GcMode};
use mlua::{Error, HookTriggers, Lua, Result, Table, VmState};

use crate::interpreter::Limits;
use crate::json::JsonConfig;
use crate::number::{random_next, random_seed};
use crate::raise::Raise;
use crate::reply::Protocol;

/// Instructions between two looks at the budget. Each can copy as much as fits into the memory, so
/// this is a compromise: 100 instructions that concatenate 1 MB each take 10 ms.
const HOOK_EVERY: u32 = 100;

/// Elements that are moved for the price of one instruction.
const MOVES: u64 = 2;

/// Messages that one run may log.
const LOGS_MAX: u32 = 16;

/// Why a run was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Instructions,
    Time,
}

/// Where a script's error was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) source: String,
    pub(crate) line: i64,
}

/// The state of the current run. The Rust functions of a Lua state and its interpreter share it.
#[derive(Default)]
pub(crate) struct Budget {
    left: Cell<u64>,
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
    pub(crate) protocol: Cell<Protocol>,
    pub(crate) json: Rc<Cell<JsonConfig>>,
    /// The error that ends the run, and where it was raised.
    pub(crate) error: RefCell<Option<(mlua::Value, Option<Place>)>>,
    /// The read-only tables: what scripts see, and what has the fields.
    pub(crate) fronts: RefCell<Vec<(Table, Table)>>,
}

impl Budget {
    pub(crate) fn new(clock: Option<fn() -> Duration>) -> Rc<Budget> {
        Rc::new(Budget {
            clock,
            ..Budget::default()
        })
    }

    /// Counts instructions of this Lua state's threads from now on.
    pub(crate) fn watch(self: &Rc<Budget>, lua: &Lua) -> Result<()> {
        let budget = Rc::clone(self);
        let triggers = HookTriggers::new().every_nth_instruction(HOOK_EVERY);
        lua.set_global_hook(triggers, move |lua, _| {
            budget.charge(lua, u64::from(HOOK_EVERY))?;
            budget.make_room(lua);
            if let Some(clock) = budget.clock
                && clock() > budget.deadline.get()
            {
                return Err(budget.stop(lua, Stop::Time));
            }
            Ok(VmState::Continue)
        })
    }

    /// Begins a run: everything that a run can change has its first value again.
    pub(crate) fn begin(&self, lua: &Lua, limits: &Limits) {
        self.tight_at
            .set(lua.used_memory().saturating_add(limits.memory_bytes / 8));
        if self.tight.replace(false) {
            collect_late(lua);
        }
        self.left.set(limits.instructions);
        self.bytes_max.set(limits.memory_bytes);
        if let Some(clock) = self.clock {
            self.deadline.set(clock().saturating_add(limits.time));
        }
        self.logs.set(0);
        self.protocol.set(Protocol::default());
        self.json.set(JsonConfig::default());
    }

    /// Takes the cost of some work from the budget. An instruction costs 1.
    pub(crate) fn charge(&self, lua: &Lua, cost: u64) -> Result<()> {
        if self.stopped.get().is_some() {
            return Err(Raise::Stopped.into());
        }
        match self.left.get().checked_sub(cost) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(self.stop(lua, Stop::Instructions)),
        }
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

    /// Collects garbage early once a run has used an eighth of its memory.
    fn make_room(&self, lua: &Lua) {
        if self.tight.get() || lua.used_memory() <= self.tight_at.get() {
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
