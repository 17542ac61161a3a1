//! Ways to break a rule of the front end on purpose: see [`doyen_placement::mutant`].

doyen_placement::mutants! {
    /// Clients keep their values though a partition is silent.
    TRUSTS_THE_SILENT = ("trusts-the-silent", "tracking"),
    /// Clients keep their values though changes are missing.
    OVERLOOKS_GAPS = ("overlooks-gaps", "tracking"),
}
