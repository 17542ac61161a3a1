//! Ways of breaking a rule on purpose, so that the tests prove that they would notice.
//!
//! Each [`Mutant`] stands where its rule is kept, as `broken(Mutant::...)`. Builds with debug
//! assertions can break them, so that the tests do with what they were built with anyway, and
//! others with the feature `mutants`, which is for our own tests; one is chosen at run time. In any
//! other build [`broken`] is `false` to the compiler, so that nothing of this is in the program.

use std::sync::atomic::{AtomicU8, Ordering};

macro_rules! mutants {
    ($($(#[doc = $doc:literal])* $name:ident = ($id:literal, $rule:literal),)*) => {
        /// A way of breaking a rule.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Mutant {
            $($(#[doc = $doc])* $name,)*
        }

        impl Mutant {
            /// All of them, in the order of the rules.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What it is called on a command line.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// What it breaks: a rule or an invariant of docs/agreement.md, or another promise.
            #[must_use]
            pub const fn rule(self) -> &'static str {
                match self { $(Self::$name => $rule,)* }
            }

            /// What it does.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)*).trim_ascii(),)* }
            }
        }
    };
}

mutants! {
    /// Votes for every candidate of a term.
    VotesTwice = ("votes-twice", "rule 1"),
    /// Votes for candidates that have accepted less.
    VotesForStale = ("votes-for-stale", "rule 1"),
    /// Stores what a coordinator of an earlier term proposes.
    TakesOldTerms = ("takes-old-terms", "rule 1"),
    /// Wins with a majority of the committed configuration alone.
    WinsWithoutAccepted = ("wins-without-accepted", "rule 2"),
    /// Wins with a majority of the accepted configuration alone.
    WinsWithoutCommitted = ("wins-without-committed", "rule 2"),
    /// Goes on from the committed table, and forgets what it had accepted.
    ForgetsAccepted = ("forgets-accepted", "rule 2"),
    /// A candidate counts whoever has accepted any table of the version of its own.
    WinsByVersion = ("wins-by-version", "rule 2: names"),
    /// Commits with a majority of the committed voters alone.
    CommitsWithoutNew = ("commits-without-new", "rule 3"),
    /// Commits with a majority of the new voters alone.
    CommitsWithoutOld = ("commits-without-old", "rule 3"),
    /// Proposes without having stored.
    ProposesUnstored = ("proposes-unstored", "rule 3"),
    /// What is stored is in force as soon as any table of its version is.
    InstallsByVersion = ("installs-by-version", "rule 3: names"),
    /// Half of the voters are a majority, whichever half.
    HalfIsEnough = ("half-is-enough", "casting vote"),
    /// A newcomer votes in the very table that admits it.
    NewcomersVote = ("newcomers-vote", "rule 4"),
    /// Voters are changed though those before them are not settled, or have not joined the term.
    VotersUnsettled = ("voters-unsettled", "rule 4"),
    /// Serves what only the installed table says.
    ServesByInstalled = ("serves-by-installed", "rule 5"),
    /// Gives its vote although a coordinator is heard.
    Preempts = ("preempts", "rule 6: pre-vote"),
    /// A coordinator that hears no majority goes on.
    LeadsUnheard = ("leads-unheard", "rule 6"),
    /// Pings sent before a pause count as unanswered.
    CountsOldPings = ("counts-old-pings", "rule 6"),
    /// Takes requests of any epoch, from anybody.
    AnyoneAsks = ("anyone-asks", "rule 7"),
    /// The ack of a copy that the accepted table leaves out is not required any more.
    DropsEarly = ("drops-early", "rule 7"),
    /// A learner that is silent, or leaves, is admitted.
    AdmitsTheSilent = ("admits-the-silent", "rule 7"),
    /// The ack of a newcomer is not required before its admission is committed.
    AdmitsUnrequired = ("admits-unrequired", "rule 7"),
    /// A withdrawn newcomer is no new epoch.
    WithdrawsQuietly = ("withdraws-quietly", "rule 7"),
    /// A learner that is dropped leaves the epoch as it is.
    DropsQuietly = ("drops-quietly", "rule 7"),
    /// Who alone holds a partition is expelled for silence.
    ExpelsLastCopy = ("expels-last-copy", "rule 7"),
    /// A later process of a member's name proves it dead, wherever it is.
    VouchesFromAnywhere = ("vouches-from-anywhere", "rule 7"),
    /// A coordinator that its table calls silent stays so.
    StaysSilent = ("stays-silent", "rule 7"),
    /// A lease counts from the arrival of the answers.
    LeaseFromArrival = ("lease-from-arrival", "rule 8"),
    /// Answers of voters that have accepted more count at once.
    LeaseFromNewer = ("lease-from-newer", "rule 8"),
    /// Answers of voters that have accepted another term's table of the same version count at once.
    LeaseByVersion = ("lease-by-version", "rule 8: names"),
    /// Whatever is accepted, the answers of all voters that have accepted more count.
    LeaseFromLater = ("lease-from-later", "rule 8"),
    /// A lease takes the installed voters only.
    LeaseByInstalled = ("lease-by-installed", "rule 8"),
    /// Answers without a lease.
    AnswersWithoutLease = ("answers-without-lease", "rule 8"),
    /// Answers by a view that is not shown any more.
    AnswersByOldView = ("answers-by-old-view", "rule 8"),
    /// Checks the lease, and then reads.
    ChecksThenReads = ("checks-then-reads", "rule 8: order"),
    /// Acknowledges a table before the data threads see it.
    AcksUnseen = ("acks-unseen", "rule 8"),
    /// A new primary does not wait for the lease of the old one.
    OpensAtOnce = ("opens-at-once", "rule 9"),
    /// A new primary waits as if no clock were wrong.
    WaitsWithoutDrift = ("waits-without-drift", "rule 9: clocks"),
    /// The age that a voter reports ignores when the tenure began.
    AgesWithoutTenure = ("ages-without-tenure", "rule 9"),
    /// The age that a voter reports ignores that it answered the old primary.
    AgesWithoutAnswers = ("ages-without-answers", "rule 9"),
    /// The age that a voter reports ignores when the voters became voters.
    AgesWithoutVoters = ("ages-without-voters", "rule 9"),
    /// An age is reported by one who has not installed the table before.
    AgesUnknown = ("ages-unknown", "rule 9"),
    /// What a commit says of the table before is believed by one who has not installed that.
    CommitOfOthers = ("commit-of-others", "rule 9"),
    /// A primary seals what it had not opened.
    SealsUnopened = ("seals-unopened", "rule 9: seal"),
    /// A new primary opens before its tail is on every copy.
    OpensWithoutTail = ("opens-without-tail", "rule 9"),
    /// A tenure goes on in another one's epoch.
    KeepsTenure = ("keeps-tenure", "rule 9"),
    /// A leaver ends before a majority has installed the table without it.
    LeavesEarly = ("leaves-early", "rule 10"),
    /// A leaver has handed over as soon as a table says so that is only proposed.
    LeavesByProposal = ("leaves-by-proposal", "rule 10"),
    /// A leaver waits for no member that is silent, though the table keeps it.
    LeavesTheSilent = ("leaves-the-silent", "rule 10"),
    /// A leaver goes with what it holds though others could take it, because somebody had them
    /// emptied.
    LeavesTheDrained = ("leaves-the-drained", "rule 10"),
    /// A leaver goes with what it holds though a newcomer asks to be let in.
    LeavesTheNewcomer = ("leaves-the-newcomer", "rule 10"),
    /// While every member leaves, each goes with what it holds, and asks no coordinator.
    LeavesByItsOwnWord = ("leaves-by-its-own-word", "rule 10"),
    /// A leaver that dies is handed over again and again.
    HandsOverTheDead = ("hands-over-the-dead", "rule 10"),
    /// A deposed primary commits and acknowledges.
    CommitsDeposed = ("commits-deposed", "rule 10"),
    /// A pulled table is installed though it is older.
    GoesBack = ("goes-back", "rule 11"),
    /// A node whose data threads hang answers pings.
    PingsThoughHung = ("pings-though-hung", "rule 12"),
    /// Copies take entries of any epoch.
    NoFence = ("no-fence", "fencing"),
    /// Copies take entries of the epoch that they have installed, whatever they were sent in a
    /// later one.
    FenceByInstalled = ("fence-by-installed", "fencing"),
    /// Commits what one copy has.
    OneCopySuffices = ("one-copy-suffices", "I6"),
    /// A copy keeps what its new primary does not have.
    KeepsTail = ("keeps-tail", "I8"),
    /// Reads what is not committed.
    ReadsUncommitted = ("reads-uncommitted", "I10"),
    /// Reads that something is gone, of which the deletion is not committed.
    ReadsDeletions = ("reads-deletions", "I10"),
    /// Reads that something is gone, of which the clearing of its map is not committed.
    ReadsClears = ("reads-clears", "I10"),
    /// Reads at once what is overdue.
    ReadsOverdue = ("reads-overdue", "expiry"),
    /// Applies a retry again.
    AppliesTwice = ("applies-twice", "idempotence"),
    /// A snapshot is without what is known of operations.
    SnapshotForgets = ("snapshot-forgets", "idempotence"),
    /// What a caller may still ask again is forgotten.
    FinishesEarly = ("finishes-early", "idempotence"),
    /// What became of a client's operations is kept for as long as one of them may be on its way,
    /// and not for as long as it may be sent.
    RetiresEarly = ("retires-early", "idempotence"),
    /// Takes operations of processes that are no members, of which nobody keeps what became of
    /// them.
    TakesStrangers = ("takes-strangers", "idempotence"),
    /// A learner that begins anew keeps what became of operations that were undone.
    KeepsOutcomes = ("keeps-outcomes", "idempotence"),
    /// What was sent before a refused operation counts as not applied.
    RefusedUnapplied = ("refused-unapplied", "unknown outcomes"),
    /// Executes what follows a refused operation, which comes again after it.
    ExecutesRefused = ("executes-refused", "order"),
    /// Executes what a later write has overtaken.
    ExecutesOvertaken = ("executes-overtaken", "order"),
    /// Asks again in a lineage that began empty.
    AsksNewLineage = ("asks-new-lineage", "on_loss"),
    /// A learner that lost a part of its snapshot calls itself equal.
    LearnsUnproven = ("learns-unproven", "learner checksum"),
    /// A snapshot brings back what was deleted meanwhile.
    RaisesTheDead = ("raises-the-dead", "copying"),
    /// A snapshot whose connection was lost goes on behind a chunk that did not arrive.
    ContinuesTooFar = ("continues-too-far", "copying"),
    /// A learner that was found equal acknowledges what follows, and does not take it.
    LosesTail = ("loses-tail", "copying"),
    /// Who is only learning leads.
    SwitchesEarly = ("switches-early", "moves"),
    /// Who held a partition before is dropped from it while its successor learns.
    DropsUnready = ("drops-unready", "moves"),
    /// Balance goes on while it is paused, or outside of its window.
    BalancesPaused = ("balances-paused", "moves"),
    /// Moves that fail one after the other are made for ever.
    FailsForEver = ("fails-for-ever", "moves"),
    /// A member that is drained is told to hold nothing while it still does.
    CallsItEmpty = ("calls-it-empty", "drain"),
    /// A copy is made where it leaves too little memory.
    FillsTheFull = ("fills-the-full", "watermarks"),
    /// What no table gives to a member is deleted there at once, however few others have it.
    DiscardsEarly = ("discards-early", "deletion of old copies"),
    /// A copy is deleted as soon as a table that is only proposed leaves it out.
    DeletesByProposal = ("deletes-by-proposal", "deletion of old copies"),
    /// Copies expire by themselves.
    CopiesExpire = ("copies-expire", "expiry on replicas"),
    /// Copies do not follow the clock of their primary.
    DeafToTheClock = ("deaf-to-the-clock", "expiry on replicas"),
    /// A first table is committed when most founders have promised.
    FoundsWithMost = ("founds-with-most", "bootstrap"),
    /// A process promises every first table.
    PromisesTwice = ("promises-twice", "bootstrap"),
    /// A promise lapses by what the writer of the first table said before it wrote that.
    HearsOldWords = ("hears-old-words", "bootstrap"),
    /// Half of the seeds are enough for a first table.
    FoundsWithHalf = ("founds-with-half", "bootstrap"),
    /// After an operator's word most of those who are left are enough.
    RecoversWithMost = ("recovers-with-most", "recover"),
    /// Lets a process in that asked before somebody was removed, and may be who was.
    AdmitsLate = ("admits-late", "I11"),
    /// The level rises though some members have not said that they speak it.
    RaisesUnheard = ("raises-unheard", "I17"),
    /// Lets a process in that speaks less than the level.
    AdmitsLower = ("admits-lower", "I17"),
    /// Frames are laid out by the highest version that their sender speaks.
    SendsByOwnVersion = ("sends-by-own-version", "I17"),
    /// A partition takes writes while it is split or merged.
    WritesWhileReshaped = ("writes-while-reshaped", "splits"),
    /// A primary says that all copies have everything without their word in that epoch.
    ReshapesUnconfirmed = ("reshapes-unconfirmed", "splits"),
    /// Serves what the accepted table has split or merged.
    ServesFormer = ("serves-former", "splits"),
    /// What was deleted while a partition was divided comes back.
    DrawsTheDead = ("draws-the-dead", "splits"),
    /// What a partition had before it was divided replaces what was written since.
    DrawsOver = ("draws-over", "splits"),
    /// A write while a partition is divided does not look at what it replaces.
    ReplacesUndrawn = ("replaces-undrawn", "splits"),
    /// A copy is taken for silent while what it was given is still on its way.
    SlowIsSilent = ("slow-is-silent", "copies that are slow"),
    /// Writes go on, however much is on its way to a copy.
    SendsAllAtOnce = ("sends-all-at-once", "copies that are slow"),
    /// A used cluster of one gives way.
    SurrendersUsed = ("surrenders-used", "bootstrap"),
}

/// Whether this build can break rules.
pub const BREAKABLE: bool = cfg!(any(feature = "mutants", debug_assertions));

const NONE: u8 = u8::MAX;

static CHOSEN: AtomicU8 = AtomicU8::new(NONE);

/// From now on the whole process breaks this rule, or none; nothing where a build is not
/// [`BREAKABLE`].
pub fn choose(mutant: Option<Mutant>) {
    CHOSEN.store(mutant.map_or(NONE, |m| m as u8), Ordering::SeqCst);
}

/// Whether this rule is broken.
#[must_use]
#[inline(always)]
pub fn broken(mutant: Mutant) -> bool {
    BREAKABLE && CHOSEN.load(Ordering::Relaxed) == mutant as u8
}
