//! Checks of single rules of docs/agreement.md: each drives the production machines, message by
//! message, into the situation in which its rule matters, and says which invariant broke if one
//! did.
//!
//! The simulation meets most situations by chance, these hardly ever. `cargo test` runs every check
//! as it is, and `just mutants` with its rule broken, when it must fail.

mod data;
mod elections;
mod members;
mod membership;
mod moves;
mod orders;
mod shards;
mod tenures;

use doyen_placement::mutant::Mutant;

/// What says which invariant broke.
pub type Check = fn() -> Result<(), String>;

/// The rules that are checked, and how.
pub const CHECKS: &[(Mutant, Check)] = &[
    (Mutant::VotesTwice, elections::two_stand_at_once),
    (
        Mutant::VotesForStale,
        elections::a_candidate_lacks_what_is_committed_by_then,
    ),
    (
        Mutant::TakesOldTerms,
        elections::a_proposal_of_a_former_term_comes_late,
    ),
    (
        Mutant::CommitsWithoutNew,
        elections::three_voters_survive_the_death_of_one,
    ),
    (
        Mutant::CommitsWithoutOld,
        elections::those_who_voted_before_have_their_say,
    ),
    (
        Mutant::ProposesUnstored,
        elections::who_proposes_gives_no_lease_against_it,
    ),
    (
        Mutant::WinsByVersion,
        elections::who_wins_counts_what_it_proposed,
    ),
    (
        Mutant::InstallsByVersion,
        elections::what_is_in_force_has_a_name,
    ),
    (
        Mutant::NewcomersVote,
        elections::who_joins_needs_no_vote_of_its_own,
    ),
    (
        Mutant::VotersUnsettled,
        elections::voters_change_from_settled_ones_only,
    ),
    (Mutant::Preempts, elections::who_works_stays_coordinator),
    (
        Mutant::LeadsUnheard,
        elections::who_hears_nobody_expels_nobody,
    ),
    (Mutant::CountsOldPings, elections::who_slept_expels_nobody),
    (Mutant::AnyoneAsks, elections::only_the_primary_asks),
    (
        Mutant::AdmitsTheSilent,
        membership::who_is_on_its_way_out_is_not_admitted,
    ),
    (
        Mutant::AdmitsUnrequired,
        data::who_is_about_to_count_is_waited_for,
    ),
    (
        Mutant::WithdrawsQuietly,
        membership::a_withdrawn_learner_is_not_counted,
    ),
    (
        Mutant::DropsQuietly,
        membership::who_learns_again_is_not_counted_for_before,
    ),
    (
        Mutant::ExpelsLastCopy,
        membership::who_alone_holds_something_is_waited_for,
    ),
    (
        Mutant::VouchesFromAnywhere,
        membership::a_namesake_elsewhere_proves_nobody_dead,
    ),
    (
        Mutant::AdmitsLate,
        membership::who_was_removed_is_not_let_in_by_what_it_asked_before,
    ),
    (
        Mutant::RaisesUnheard,
        membership::who_was_not_heard_keeps_the_level,
    ),
    (
        Mutant::AdmitsLower,
        membership::who_speaks_less_stays_outside,
    ),
    (
        Mutant::StaysSilent,
        elections::who_coordinates_is_not_silent,
    ),
    (
        Mutant::LeaseFromArrival,
        tenures::a_lease_counts_from_the_ping,
    ),
    (
        Mutant::LeaseByVersion,
        tenures::voters_of_another_term_give_no_lease,
    ),
    (
        Mutant::LeaseFromLater,
        tenures::an_answer_counts_with_its_own_table,
    ),
    (
        Mutant::LeaseByInstalled,
        tenures::former_voters_give_no_lease,
    ),
    (Mutant::WaitsWithoutDrift, tenures::two_clocks_are_wrong),
    (
        Mutant::AgesWithoutTenure,
        tenures::a_short_tenure_hides_the_one_before,
    ),
    (
        Mutant::AgesWithoutVoters,
        tenures::new_voters_know_nothing_of_leases_before,
    ),
    (
        Mutant::CommitOfOthers,
        tenures::who_missed_a_table_waits_for_every_lease,
    ),
    (
        Mutant::AgesUnknown,
        tenures::who_does_not_know_seals_nothing,
    ),
    (
        Mutant::SealsUnopened,
        tenures::who_has_not_opened_seals_nothing,
    ),
    (
        Mutant::LeavesEarly,
        membership::who_leaves_stays_until_that_is_known,
    ),
    (
        Mutant::LeavesByProposal,
        membership::who_leaves_goes_by_what_is_in_force,
    ),
    (
        Mutant::LeavesTheSilent,
        membership::who_leaves_waits_for_the_silent,
    ),
    (
        Mutant::LeavesTheNewcomer,
        membership::who_leaves_last_waits_for_a_newcomer,
    ),
    (
        Mutant::LeavesByItsOwnWord,
        membership::who_leaves_with_all_others_goes_one_after_another,
    ),
    (Mutant::ServesByInstalled, data::who_sealed_answers_nothing),
    (
        Mutant::AnswersByOldView,
        data::a_view_that_is_not_shown_any_more_answers_nothing,
    ),
    (
        Mutant::ChecksThenReads,
        data::what_is_read_is_judged_after_that,
    ),
    (
        Mutant::OpensWithoutTail,
        data::who_says_it_is_open_acknowledges,
    ),
    (Mutant::KeepsTenure, data::another_tenure_begins_anew),
    (
        Mutant::CommitsDeposed,
        data::who_sealed_acknowledges_nothing,
    ),
    (
        Mutant::NoFence,
        data::what_comes_from_an_old_epoch_changes_nothing,
    ),
    (
        Mutant::FenceByInstalled,
        data::who_has_heard_a_later_epoch_follows_no_earlier_one,
    ),
    (
        Mutant::KeepsTail,
        data::a_copy_gives_up_what_its_primary_does_not_have,
    ),
    (Mutant::ReadsDeletions, data::what_is_gone_stays_gone),
    (Mutant::ReadsClears, data::what_is_cleared_stays_gone),
    (Mutant::ReadsOverdue, data::what_is_overdue_is_gone),
    (
        Mutant::RetiresEarly,
        data::a_late_retry_of_a_client_finds_its_outcome,
    ),
    (
        Mutant::TakesStrangers,
        data::who_is_expelled_asks_for_nothing,
    ),
    (
        Mutant::KeepsOutcomes,
        data::a_learner_forgets_what_was_undone,
    ),
    (Mutant::RefusedUnapplied, data::who_is_refused_does_not_know),
    (
        Mutant::ExecutesRefused,
        data::what_follows_a_refusal_waits_for_it,
    ),
    (
        Mutant::SnapshotForgets,
        data::a_snapshot_knows_what_was_applied,
    ),
    (Mutant::FinishesEarly, data::a_retry_finds_its_outcome),
    (
        Mutant::AsksNewLineage,
        data::what_was_applied_before_a_loss_is_not_applied_after_it,
    ),
    (Mutant::RaisesTheDead, data::a_snapshot_brings_nothing_back),
    (
        Mutant::ContinuesTooFar,
        moves::a_snapshot_goes_on_where_it_was_broken_off,
    ),
    (
        Mutant::LosesTail,
        moves::what_follows_a_comparison_is_on_the_copy,
    ),
    (Mutant::SwitchesEarly, moves::a_step_waits_for_who_learns),
    (Mutant::DropsUnready, moves::a_step_waits_for_who_learns),
    (Mutant::BalancesPaused, moves::what_is_paused_rests),
    (
        Mutant::FailsForEver,
        moves::what_fails_again_and_again_rests,
    ),
    (
        Mutant::CallsItEmpty,
        moves::who_is_drained_is_empty_when_that_is_said,
    ),
    (
        Mutant::LeavesTheDrained,
        moves::who_leaves_last_gives_what_it_holds_to_the_drained,
    ),
    (
        Mutant::HandsOverTheDead,
        moves::who_dies_while_it_leaves_is_dead,
    ),
    (Mutant::FillsTheFull, moves::a_copy_leaves_room),
    (Mutant::DiscardsEarly, moves::what_others_lack_is_kept),
    (
        Mutant::DeafToTheClock,
        data::a_deadline_holds_after_a_failover,
    ),
    (
        Mutant::WritesWhileReshaped,
        data::what_is_split_takes_no_writes,
    ),
    (
        Mutant::ServesFormer,
        moves::what_was_split_is_served_no_more,
    ),
    (
        Mutant::PingsThoughHung,
        membership::a_hung_data_thread_deposes_its_member,
    ),
    (Mutant::FoundsWithMost, membership::two_write_a_first_table),
    (Mutant::PromisesTwice, membership::two_write_a_first_table),
    (Mutant::HearsOldWords, membership::two_write_a_first_table),
    (
        Mutant::FoundsWithHalf,
        membership::half_of_the_seeds_found_nothing,
    ),
    (
        Mutant::RecoversWithMost,
        elections::an_operator_s_word_needs_all_others,
    ),
    (Mutant::SlowIsSilent, data::a_slow_way_costs_no_copy),
    (
        Mutant::SendsAllAtOnce,
        data::a_write_waits_where_nothing_has_happened,
    ),
    (
        Mutant::SurrendersUsed,
        membership::who_is_used_gives_way_to_nobody,
    ),
];

/// The check of a rule, if it has one.
#[must_use]
pub fn check(mutant: Mutant) -> Option<Check> {
    CHECKS
        .iter()
        .find(|(m, _)| *m == mutant)
        .map(|(_, check)| *check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_holds_in_the_situation_in_which_it_matters() {
        let mut run: Vec<Check> = Vec::new();
        for (mutant, check) in CHECKS {
            // Some notice more than one mutant.
            if !run.iter().any(|other| std::ptr::fn_addr_eq(*other, *check)) {
                run.push(*check);
                assert_eq!(check(), Ok(()), "{}", mutant.id());
            }
        }
    }
}
