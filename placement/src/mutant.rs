//! Mutants: ways to break a rule on purpose, to prove that the tests notice it.
//!
//! A *mutant* is consulted where its rule is kept, as `broken(&mutant::...)`. Each crate lists the
//! mutants of its own code with [`mutants!`](crate::mutants). This module has the mechanism and the
//! list of this crate. The whole process breaks one rule at a time, chosen at run time.
//!
//! Only builds with debug assertions or with the feature `mutants` can break a rule. In all other
//! builds [`broken`] is `false` to the compiler, so the program contains no trace of a mutant.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A way to break a rule.
///
/// Each mutant is a `static`, and its address tells it from all others.
#[derive(Debug)]
pub struct Mutant {
    id: &'static str,
    rule: &'static str,
    what: &'static str,
}

impl Mutant {
    /// For [`mutants!`](crate::mutants).
    #[doc(hidden)]
    #[must_use]
    pub const fn new(id: &'static str, rule: &'static str, what: &'static str) -> Self {
        Self { id, rule, what }
    }

    /// Its name on a command line: that of the `static`, in lower case and with hyphens.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        self.id
    }

    /// The rule or invariant of docs/agreement.md that it breaks, or another promise.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        self.rule
    }

    /// What it does.
    #[must_use]
    pub const fn what(&self) -> &'static str {
        self.what
    }
}

/// Lists the mutants of a crate: a `static` for each, and `ALL` of them in this order.
#[doc(hidden)]
#[macro_export]
macro_rules! mutants {
    ($($(#[doc = $what:literal])+ $name:ident = ($id:literal, $rule:literal),)*) => {
        $(
            $(#[doc = $what])+
            pub static $name: $crate::mutant::Mutant =
                $crate::mutant::Mutant::new($id, $rule, concat!($($what),+).trim_ascii());
        )*

        /// All mutants of this crate.
        pub static ALL: &[&$crate::mutant::Mutant] = &[$(&$name),*];
    };
}

/// Whether this build can break rules.
pub const BREAKABLE: bool = cfg!(any(feature = "mutants", debug_assertions));

static CHOSEN: AtomicPtr<Mutant> = AtomicPtr::new(ptr::null_mut());

/// From now on the whole process breaks this rule, or none. A build that is not [`BREAKABLE`]
/// breaks none.
pub fn choose(mutant: Option<&'static Mutant>) {
    let chosen = mutant.map_or(ptr::null(), ptr::from_ref);
    CHOSEN.store(chosen.cast_mut(), Ordering::SeqCst);
}

/// Whether this rule is broken.
#[must_use]
#[inline(always)]
pub fn broken(mutant: &'static Mutant) -> bool {
    BREAKABLE && ptr::eq(CHOSEN.load(Ordering::Relaxed), mutant)
}

mutants! {
    /// Half of the voters are a majority, even without the casting vote.
    HALF_IS_ENOUGH = ("half-is-enough", "casting vote"),
    /// Takes requests of any epoch, from any member.
    ANYONE_ASKS = ("anyone-asks", "rule 7"),
    /// A learner that is silent or leaving is admitted.
    ADMITS_THE_SILENT = ("admits-the-silent", "rule 7"),
    /// The admission of a learner is withdrawn without a new epoch.
    WITHDRAWS_QUIETLY = ("withdraws-quietly", "rule 7"),
    /// A learner is dropped without a new epoch.
    DROPS_QUIETLY = ("drops-quietly", "rule 7"),
    /// A member that alone holds a partition is expelled for silence.
    EXPELS_LAST_COPY = ("expels-last-copy", "rule 7"),
    /// An heir takes places in sync of copies that its directory does not have.
    HEIR_HOLDS_ANYTHING = ("heir-holds-anything", "rule 7"),
    /// An heir takes a place in sync though another member in sync lives.
    HEIR_IN_SYNC_BESIDE_THE_LIVING = ("heir-in-sync-beside-the-living", "rule 7"),
    /// A member that is still a learner becomes primary.
    SWITCHES_EARLY = ("switches-early", "moves"),
    /// A copy is dropped while its successor is still a learner.
    DROPS_UNREADY = ("drops-unready", "moves"),
    /// Balancing goes on while it is paused, or outside of its window.
    BALANCES_PAUSED = ("balances-paused", "moves"),
    /// A member that is being drained counts as empty while it still holds copies.
    CALLS_IT_EMPTY = ("calls-it-empty", "drain"),
}
