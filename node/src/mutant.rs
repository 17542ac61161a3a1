//! Ways to break a rule of the front end on purpose: see [`doyen_placement::mutant`].

doyen_placement::mutants! {
    /// Clients keep their values though a partition is silent.
    TRUSTS_THE_SILENT = ("trusts-the-silent", "tracking"),
    /// A process begins with a directory and does not count that.
    STARTS_UNCOUNTED = ("starts-uncounted", "rule 14: counts"),
    /// Clients keep their values though changes are missing.
    OVERLOOKS_GAPS = ("overlooks-gaps", "tracking"),
}
