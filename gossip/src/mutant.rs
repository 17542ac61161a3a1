//! Mutants of this crate, which break a rule on purpose: see [`doyen_placement::mutant`].

pub(crate) use doyen_placement::mutant::{Mutant, broken};

doyen_placement::mutants! {
    /// Votes for every candidate of a term.
    VOTES_TWICE = ("votes-twice", "rule 1"),
    /// Votes for candidates that have accepted less.
    VOTES_FOR_STALE = ("votes-for-stale", "rule 1"),
    /// Believes every member that calls itself the coordinator of a later term.
    BELIEVES_UNSIGNED = ("believes-unsigned", "rule 1: election proof"),
    /// Votes for any candidate although a coordinator is heard.
    VOTES_WHILE_LED = ("votes-while-led", "rule 1"),
    /// Stores a proposal of a coordinator of an earlier term.
    TAKES_OLD_TERMS = ("takes-old-terms", "rule 1"),
    /// Wins with a majority of the committed configuration alone.
    WINS_WITHOUT_ACCEPTED = ("wins-without-accepted", "rule 2"),
    /// Wins with a majority of the accepted configuration alone.
    WINS_WITHOUT_COMMITTED = ("wins-without-committed", "rule 2"),
    /// Continues from the committed table, and forgets the accepted one.
    FORGETS_ACCEPTED = ("forgets-accepted", "rule 2"),
    /// A candidate counts members that have accepted any table of its version.
    WINS_BY_VERSION = ("wins-by-version", "rule 2: names"),
    /// Commits with a majority of the committed voters only.
    COMMITS_WITHOUT_NEW = ("commits-without-new", "rule 3"),
    /// Commits with a majority of the new voters only.
    COMMITS_WITHOUT_OLD = ("commits-without-old", "rule 3"),
    /// A coordinator proposes a table that it has not stored itself.
    PROPOSES_UNSTORED = ("proposes-unstored", "rule 3"),
    /// A stored table is in force as soon as any table of its version is.
    INSTALLS_BY_VERSION = ("installs-by-version", "rule 3: names"),
    /// A newcomer votes in the very table that admits it.
    NEWCOMERS_VOTE = ("newcomers-vote", "rule 4"),
    /// Voters change although the former voters are not settled, or have not joined the term.
    VOTERS_UNSETTLED = ("voters-unsettled", "rule 4"),
    /// Votes although a coordinator is heard.
    PREEMPTS = ("preempts", "rule 6: pre-vote"),
    /// A coordinator continues although no majority answers it.
    LEADS_UNHEARD = ("leads-unheard", "rule 6"),
    /// Pings from before a pause count as unanswered.
    COUNTS_OLD_PINGS = ("counts-old-pings", "rule 6"),
    /// A later process with a member's name proves the member dead from any address.
    VOUCHES_FROM_ANYWHERE = ("vouches-from-anywhere", "rule 7"),
    /// A coordinator that its table calls silent remains silent.
    STAYS_SILENT = ("stays-silent", "rule 7"),
    /// A lease counts from the arrival of the answers.
    LEASE_FROM_ARRIVAL = ("lease-from-arrival", "rule 8"),
    /// Answers of voters that have accepted more count at once.
    LEASE_FROM_NEWER = ("lease-from-newer", "rule 8"),
    /// Answers of voters that have accepted another term's table of the same version count at once.
    LEASE_BY_VERSION = ("lease-by-version", "rule 8: names"),
    /// The answers of all voters that have accepted more count, even if this member has accepted
    /// less.
    LEASE_FROM_LATER = ("lease-from-later", "rule 8"),
    /// A lease takes the voters of the installed table only.
    LEASE_BY_INSTALLED = ("lease-by-installed", "rule 8"),
    /// Acknowledges a table before the data threads see it.
    ACKS_UNSEEN = ("acks-unseen", "rule 8"),
    /// A new primary does not wait for the lease of the old one.
    OPENS_AT_ONCE = ("opens-at-once", "rule 9"),
    /// A new primary waits as if no clock were wrong.
    WAITS_WITHOUT_DRIFT = ("waits-without-drift", "rule 9: clocks"),
    /// The age that a voter reports ignores when the tenure began.
    AGES_WITHOUT_TENURE = ("ages-without-tenure", "rule 9"),
    /// The age that a voter reports ignores that it answered the old primary.
    AGES_WITHOUT_ANSWERS = ("ages-without-answers", "rule 9"),
    /// The age that a voter reports ignores when the voters became voters.
    AGES_WITHOUT_VOTERS = ("ages-without-voters", "rule 9"),
    /// A member reports an age although it has not installed the table before.
    AGES_UNKNOWN = ("ages-unknown", "rule 9"),
    /// A member believes a commit's words about the table before, although it has not installed
    /// that.
    COMMIT_OF_OTHERS = ("commit-of-others", "rule 9"),
    /// A primary seals partitions that it had not opened.
    SEALS_UNOPENED = ("seals-unopened", "rule 9: seal"),
    /// A leaver ends before a majority has installed the table without it.
    LEAVES_EARLY = ("leaves-early", "rule 10"),
    /// A leaver believes that it has handed over as soon as a proposed table says so.
    LEAVES_BY_PROPOSAL = ("leaves-by-proposal", "rule 10"),
    /// A leaver does not wait for a silent member, although the table keeps that member.
    LEAVES_THE_SILENT = ("leaves-the-silent", "rule 10"),
    /// A leaver ends with its data, although members that are being emptied could take it.
    LEAVES_THE_DRAINED = ("leaves-the-drained", "rule 10"),
    /// A leaver ends with its data, although a newcomer asks to be admitted.
    LEAVES_THE_NEWCOMER = ("leaves-the-newcomer", "rule 10"),
    /// While every member leaves, each ends with its data and asks no coordinator.
    LEAVES_BY_ITS_OWN_WORD = ("leaves-by-its-own-word", "rule 10"),
    /// A coordinator hands over to a dead leaver, again and again.
    HANDS_OVER_THE_DEAD = ("hands-over-the-dead", "rule 10"),
    /// Installs a table that any member calls committed.
    BELIEVES_ANY_TABLE = ("believes-any-table", "rule 11"),
    /// A pulled table is installed although it is older.
    GOES_BACK = ("goes-back", "rule 11"),
    /// A node whose data threads hang answers pings.
    PINGS_THOUGH_HUNG = ("pings-though-hung", "rule 12"),
    /// A coordinator makes moves for ever although they fail one after the other.
    FAILS_FOR_EVER = ("fails-for-ever", "moves"),
    /// A first table is committed when most founders have promised.
    FOUNDS_WITH_MOST = ("founds-with-most", "bootstrap"),
    /// A process promises every first table.
    PROMISES_TWICE = ("promises-twice", "bootstrap"),
    /// A promise lapses by a message that the writer of the first table sent before it wrote the
    /// table.
    HEARS_OLD_WORDS = ("hears-old-words", "bootstrap"),
    /// Half of the seeds are enough for a first table.
    FOUNDS_WITH_HALF = ("founds-with-half", "bootstrap"),
    /// After an operator declared voters dead, a majority of the others is enough.
    RECOVERS_WITH_MOST = ("recovers-with-most", "recover"),
    /// A recovered half is stopped by a statement that no named member signed.
    BELIEVES_UNPROVED_SPLITS = ("believes-unproved-splits", "rule 13"),
    /// A recovered half serves on though a named member lives and follows other tables.
    SERVES_THOUGH_SPLIT = ("serves-though-split", "rule 13"),
    /// A recovered half gives up its lease once, and renews it.
    RENEWS_THOUGH_SPLIT = ("renews-though-split", "rule 13"),
    /// A half that an operator kept serves on though the others came back.
    OUTRANKS_THE_ELECTED = ("outranks-the-elected", "rule 13"),
    /// A process with a directory votes before its vote is synced.
    VOTES_UNSYNCED = ("votes-unsynced", "rule 14"),
    /// A process with a directory acknowledges a table before it is synced.
    ACCEPTS_UNSYNCED = ("accepts-unsynced", "rule 14"),
    /// An heir says of leases what is true of itself alone.
    HEIRS_KNOW_AGES = ("heirs-know-ages", "rule 14: ages"),
    /// Admits a process that asked before a member was removed, and that may be that member.
    ADMITS_LATE = ("admits-late", "I11"),
    /// The level rises although some members have not said that they speak it.
    RAISES_UNHEARD = ("raises-unheard", "I17"),
    /// Admits a process that speaks only lower levels.
    ADMITS_LOWER = ("admits-lower", "I17"),
    /// A used cluster of one gives way.
    SURRENDERS_USED = ("surrenders-used", "bootstrap"),
}
