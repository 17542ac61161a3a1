//! Ways to break a rule of the data path on purpose: see [`doyen_placement::mutant`].

pub(crate) use doyen_placement::mutant::broken;

doyen_placement::mutants! {
    /// Serves by the installed table alone.
    SERVES_BY_INSTALLED = ("serves-by-installed", "rule 5"),
    /// A copy that the accepted table leaves out is no longer required.
    DROPS_EARLY = ("drops-early", "rule 7"),
    /// A learner is not required before its admission is committed.
    ADMITS_UNREQUIRED = ("admits-unrequired", "rule 7"),
    /// Answers without a lease.
    ANSWERS_WITHOUT_LEASE = ("answers-without-lease", "rule 8"),
    /// Answers by a view that is no longer shown.
    ANSWERS_BY_OLD_VIEW = ("answers-by-old-view", "rule 8"),
    /// A new primary opens before its tail is on every copy.
    OPENS_WITHOUT_TAIL = ("opens-without-tail", "rule 9"),
    /// An entry counts before the disk has it.
    ACKS_UNSYNCED = ("acks-unsynced", "rule 14"),
    /// A tenure goes on in another one's epoch.
    KEEPS_TENURE = ("keeps-tenure", "rule 9"),
    /// A deposed primary commits and acknowledges.
    COMMITS_DEPOSED = ("commits-deposed", "rule 10"),
    /// Copies take entries of any epoch.
    NO_FENCE = ("no-fence", "fencing"),
    /// Copies take entries of the installed epoch, though they have taken entries of a later one.
    FENCE_BY_INSTALLED = ("fence-by-installed", "fencing"),
    /// Commits what one copy has.
    ONE_COPY_SUFFICES = ("one-copy-suffices", "I6"),
    /// A copy keeps what its new primary does not have.
    KEEPS_TAIL = ("keeps-tail", "I8"),
    /// Reads a write that is not committed.
    READS_UNCOMMITTED = ("reads-uncommitted", "I10"),
    /// Reads that a key is missing while its deletion is not committed.
    READS_DELETIONS = ("reads-deletions", "I10"),
    /// Reads that a key is missing while the clearing of its map is not committed.
    READS_CLEARS = ("reads-clears", "I10"),
    /// Reads that a key has expired before the expiry is committed.
    READS_OVERDUE = ("reads-overdue", "expiry"),
    /// Applies a retry again.
    APPLIES_TWICE = ("applies-twice", "idempotence"),
    /// A snapshot lacks the outcomes of operations.
    SNAPSHOT_FORGETS = ("snapshot-forgets", "idempotence"),
    /// A primary forgets an outcome that the caller may still ask for.
    FINISHES_EARLY = ("finishes-early", "idempotence"),
    /// Outcomes of a client are kept while calls travel, but not while it may resend them.
    RETIRES_EARLY = ("retires-early", "idempotence"),
    /// Accepts operations of processes that are no members, and whose outcomes no copy keeps.
    TAKES_STRANGERS = ("takes-strangers", "idempotence"),
    /// A learner that begins again keeps the outcomes of operations that were undone.
    KEEPS_OUTCOMES = ("keeps-outcomes", "idempotence"),
    /// An operation counts as not applied though it was sent before a refused one.
    REFUSED_UNAPPLIED = ("refused-unapplied", "unknown outcomes"),
    /// Executes the operations behind a refused one, which comes again after them.
    EXECUTES_REFUSED = ("executes-refused", "order"),
    /// Executes an operation that a later write has overtaken.
    EXECUTES_OVERTAKEN = ("executes-overtaken", "order"),
    /// Executes a transaction although a watched key has changed.
    IGNORES_WATCHED = ("ignores-watched", "transactions"),
    /// The tokens of locks are counted only in their entries.
    FORGETS_TOKENS = ("forgets-tokens", "locks"),
    /// Locks end before their time.
    ENDS_LOCKS_EARLY = ("ends-locks-early", "locks"),
    /// A caller that waits does not ask again, at the next primary or after a lost connection.
    LOSES_TICKETS = ("loses-tickets", "waiting"),
    /// What a caller waited for that has left is executed.
    SERVES_THE_GONE = ("serves-the-gone", "waiting"),
    /// What was asked of a partition that executed nothing yet is not tried once it does.
    STALLS_FOR_EVER = ("stalls-for-ever", "waiting"),
    /// A primary does not look at those that wait when their key changes.
    SLEEPS_THROUGH_CHANGES = ("sleeps-through-changes", "waiting"),
    /// What one caller was granted is granted to the next ones, too.
    GRANTS_TWICE = ("grants-twice", "waiting"),
    /// A grant whose caller takes nothing never lapses.
    GRANTS_FOR_EVER = ("grants-for-ever", "waiting"),
    /// An element that is moved to another list stays where it was, too.
    MOVES_AND_KEEPS = ("moves-and-keeps", "queues"),
    /// The id of a new entry of a stream is the time, though the last one is higher.
    IDS_BY_CLOCK = ("ids-by-clock", "streams"),
    /// What a group has given to a consumer is still to be given.
    GIVES_AGAIN = ("gives-again", "streams"),
    /// Entries are claimed from consumers that have just got them.
    CLAIMS_FROM_THE_BUSY = ("claims-from-the-busy", "streams"),
    /// Entries are acknowledged, and stay pending.
    ACKNOWLEDGES_NOTHING = ("acknowledges-nothing", "streams"),
    /// A job is leased that another caller has.
    LEASES_THE_LEASED = ("leases-the-leased", "jobs"),
    /// An owner whose job was given to another one is not refused.
    BELIEVES_FORMER_OWNERS = ("believes-former-owners", "jobs"),
    /// The token of a job is the number of its attempts.
    TOKENS_BY_ATTEMPTS = ("tokens-by-attempts", "jobs"),
    /// What had another score before is found where it was.
    RANKS_AS_BEFORE = ("ranks-as-before", "sorted sets"),
    /// A primary does not tell all changes that were committed together.
    SKIPS_CHANGES = ("skips-changes", "subscribers"),
    /// A primary logs a changed value as that of a new key.
    TELLS_UPDATES_AS_INSERTS = ("tells-updates-as-inserts", "subscribers"),
    /// A subscriber is not told that changes are missing.
    HIDES_GAPS = ("hides-gaps", "subscribers"),
    /// A primary confirms that a subscriber was told all, though it was not.
    CONFIRMS_UNTOLD = ("confirms-untold", "subscribers"),
    /// A primary confirms that a subscriber was told all, without a lease.
    CONFIRMS_WITHOUT_LEASE = ("confirms-without-lease", "subscribers"),
    /// The next page of a query begins behind keys that the page before did not reach.
    HIDES_KEYS = ("hides-keys", "queries"),
    /// A copy undoes only one change of a record.
    UNDOES_ONE = ("undoes-one", "transactions"),
    /// Sends an operation again to a lineage that began empty.
    ASKS_NEW_LINEAGE = ("asks-new-lineage", "on_loss"),
    /// A learner that lost a part of its snapshot calls itself equal.
    LEARNS_UNPROVEN = ("learns-unproven", "learner checksum"),
    /// A snapshot brings back a key that was deleted meanwhile.
    RAISES_THE_DEAD = ("raises-the-dead", "copying"),
    /// A snapshot brings back a field that was deleted meanwhile.
    RAISES_FIELDS = ("raises-fields", "copying"),
    /// A snapshot whose connection was lost continues after a chunk that did not arrive.
    CONTINUES_TOO_FAR = ("continues-too-far", "copying"),
    /// A learner that was found equal acknowledges entries and does not apply them.
    LOSES_TAIL = ("loses-tail", "copying"),
    /// A copy is made where it leaves too little memory.
    FILLS_THE_FULL = ("fills-the-full", "watermarks"),
    /// A copy that the table leaves out is deleted at once, however few other copies there are.
    DISCARDS_EARLY = ("discards-early", "deletion of old copies"),
    /// A copy is deleted as soon as a table that is only proposed leaves it out.
    DELETES_BY_PROPOSAL = ("deletes-by-proposal", "deletion of old copies"),
    /// Copies expire by themselves.
    COPIES_EXPIRE = ("copies-expire", "expiry on replicas"),
    /// The clocks of partitions travel only behind the data.
    CLOCKS_BEHIND_DATA = ("clocks-behind-data", "expiry on replicas"),
    /// A new primary does not ask what the clock shows on the other copies.
    KEEPS_OWN_CLOCK = ("keeps-own-clock", "expiry on replicas"),
    /// Copies do not follow the clock of their primary.
    DEAF_TO_THE_CLOCK = ("deaf-to-the-clock", "expiry on replicas"),
    /// A partition takes writes while it is split or merged.
    WRITES_WHILE_RESHAPED = ("writes-while-reshaped", "splits"),
    /// A primary reports that all copies are equal without their acks in that epoch.
    RESHAPES_UNCONFIRMED = ("reshapes-unconfirmed", "splits"),
    /// Serves a partition that the accepted table has split or merged.
    SERVES_FORMER = ("serves-former", "splits"),
    /// A key that was deleted while its partition was split or merged comes back.
    DRAWS_THE_DEAD = ("draws-the-dead", "splits"),
    /// A value from before a split or a merge replaces a later write.
    DRAWS_OVER = ("draws-over", "splits"),
    /// A write to a partition that is drawing does not look at the value that it replaces.
    REPLACES_UNDRAWN = ("replaces-undrawn", "splits"),
    /// A copy counts as silent while bytes for it are still on their way.
    SLOW_IS_SILENT = ("slow-is-silent", "copies that are slow"),
    /// A copy whose thread says that it is late is never silent.
    BELIEVES_LATE_FOR_EVER = ("believes-late-for-ever", "copies that are slow"),
    /// Writes to a partition that lacks copies do not wait for the learner that replaces one.
    OUTRUNS_LEARNERS = ("outruns-learners", "copies that are missing"),
    /// Writes go on, however many bytes are on their way to a copy.
    SENDS_ALL_AT_ONCE = ("sends-all-at-once", "copies that are slow"),
}
