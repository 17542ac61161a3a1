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

use crate::mutants;
use doyen_engine::mutant as shard;
use doyen_gossip::mutant as gossip;
use doyen_placement::mutant::{self as placement, Mutant};
use std::ptr;

/// What says which invariant broke.
pub type Check = fn() -> Result<(), String>;

/// The rules that are checked, and how.
pub static CHECKS: &[(&Mutant, Check)] = &[
    (&gossip::VOTES_TWICE, elections::two_stand_at_once),
    (
        &gossip::VOTES_FOR_STALE,
        elections::a_candidate_lacks_what_is_committed_by_then,
    ),
    (
        &gossip::TAKES_OLD_TERMS,
        elections::a_proposal_of_a_former_term_comes_late,
    ),
    (
        &gossip::COMMITS_WITHOUT_NEW,
        elections::three_voters_survive_the_death_of_one,
    ),
    (
        &gossip::COMMITS_WITHOUT_OLD,
        elections::those_who_voted_before_have_their_say,
    ),
    (
        &gossip::PROPOSES_UNSTORED,
        elections::who_proposes_gives_no_lease_against_it,
    ),
    (
        &gossip::WINS_BY_VERSION,
        elections::who_wins_counts_what_it_proposed,
    ),
    (
        &gossip::INSTALLS_BY_VERSION,
        elections::what_is_in_force_has_a_name,
    ),
    (
        &gossip::NEWCOMERS_VOTE,
        elections::who_joins_needs_no_vote_of_its_own,
    ),
    (
        &gossip::VOTERS_UNSETTLED,
        elections::voters_change_from_settled_ones_only,
    ),
    (&gossip::PREEMPTS, elections::who_works_stays_coordinator),
    (
        &gossip::LEADS_UNHEARD,
        elections::who_hears_nobody_expels_nobody,
    ),
    (
        &gossip::COUNTS_OLD_PINGS,
        elections::who_slept_expels_nobody,
    ),
    (&placement::ANYONE_ASKS, elections::only_the_primary_asks),
    (
        &placement::ADMITS_THE_SILENT,
        membership::who_is_on_its_way_out_is_not_admitted,
    ),
    (
        &shard::ADMITS_UNREQUIRED,
        data::who_is_about_to_count_is_waited_for,
    ),
    (
        &placement::WITHDRAWS_QUIETLY,
        membership::a_withdrawn_learner_is_not_counted,
    ),
    (
        &placement::DROPS_QUIETLY,
        membership::who_learns_again_is_not_counted_for_before,
    ),
    (
        &placement::EXPELS_LAST_COPY,
        membership::who_alone_holds_something_is_waited_for,
    ),
    (
        &gossip::VOUCHES_FROM_ANYWHERE,
        membership::a_namesake_elsewhere_proves_nobody_dead,
    ),
    (
        &gossip::ADMITS_LATE,
        membership::who_was_removed_is_not_let_in_by_what_it_asked_before,
    ),
    (
        &gossip::RAISES_UNHEARD,
        membership::who_was_not_heard_keeps_the_level,
    ),
    (
        &gossip::ADMITS_LOWER,
        membership::who_speaks_less_stays_outside,
    ),
    (
        &gossip::STAYS_SILENT,
        elections::who_coordinates_is_not_silent,
    ),
    (
        &gossip::LEASE_FROM_ARRIVAL,
        tenures::a_lease_counts_from_the_ping,
    ),
    (
        &gossip::LEASE_BY_VERSION,
        tenures::voters_of_another_term_give_no_lease,
    ),
    (
        &gossip::LEASE_FROM_LATER,
        tenures::an_answer_counts_with_its_own_table,
    ),
    (
        &gossip::LEASE_BY_INSTALLED,
        tenures::former_voters_give_no_lease,
    ),
    (&gossip::WAITS_WITHOUT_DRIFT, tenures::two_clocks_are_wrong),
    (
        &gossip::AGES_WITHOUT_TENURE,
        tenures::a_short_tenure_hides_the_one_before,
    ),
    (
        &gossip::AGES_WITHOUT_VOTERS,
        tenures::new_voters_know_nothing_of_leases_before,
    ),
    (
        &gossip::COMMIT_OF_OTHERS,
        tenures::who_missed_a_table_waits_for_every_lease,
    ),
    (
        &gossip::AGES_UNKNOWN,
        tenures::who_does_not_know_seals_nothing,
    ),
    (
        &gossip::SEALS_UNOPENED,
        tenures::who_has_not_opened_seals_nothing,
    ),
    (
        &gossip::LEAVES_EARLY,
        membership::who_leaves_stays_until_that_is_known,
    ),
    (
        &gossip::LEAVES_BY_PROPOSAL,
        membership::who_leaves_goes_by_what_is_in_force,
    ),
    (
        &gossip::LEAVES_THE_SILENT,
        membership::who_leaves_waits_for_the_silent,
    ),
    (
        &gossip::LEAVES_THE_NEWCOMER,
        membership::who_leaves_last_waits_for_a_newcomer,
    ),
    (
        &gossip::LEAVES_BY_ITS_OWN_WORD,
        membership::who_leaves_with_all_others_goes_one_after_another,
    ),
    (
        &shard::SERVES_BY_INSTALLED,
        data::who_sealed_answers_nothing,
    ),
    (
        &shard::ANSWERS_BY_OLD_VIEW,
        data::a_view_that_is_not_shown_any_more_answers_nothing,
    ),
    (
        &mutants::CHECKS_THEN_READS,
        data::what_is_read_is_judged_after_that,
    ),
    (
        &shard::OPENS_WITHOUT_TAIL,
        data::who_says_it_is_open_acknowledges,
    ),
    (&shard::KEEPS_TENURE, data::another_tenure_begins_anew),
    (
        &shard::COMMITS_DEPOSED,
        data::who_sealed_acknowledges_nothing,
    ),
    (
        &shard::NO_FENCE,
        data::what_comes_from_an_old_epoch_changes_nothing,
    ),
    (
        &shard::FENCE_BY_INSTALLED,
        data::who_has_heard_a_later_epoch_follows_no_earlier_one,
    ),
    (
        &shard::KEEPS_TAIL,
        data::a_copy_gives_up_what_its_primary_does_not_have,
    ),
    (&shard::READS_DELETIONS, data::what_is_gone_stays_gone),
    (&shard::READS_CLEARS, data::what_is_cleared_stays_gone),
    (&shard::READS_OVERDUE, data::what_is_overdue_is_gone),
    (
        &shard::RETIRES_EARLY,
        data::a_late_retry_of_a_client_finds_its_outcome,
    ),
    (
        &shard::TAKES_STRANGERS,
        data::who_is_expelled_asks_for_nothing,
    ),
    (
        &shard::KEEPS_OUTCOMES,
        data::a_learner_forgets_what_was_undone,
    ),
    (
        &shard::REFUSED_UNAPPLIED,
        data::who_is_refused_does_not_know,
    ),
    (
        &shard::EXECUTES_REFUSED,
        data::what_follows_a_refusal_waits_for_it,
    ),
    (
        &shard::SNAPSHOT_FORGETS,
        data::a_snapshot_knows_what_was_applied,
    ),
    (&shard::FINISHES_EARLY, data::a_retry_finds_its_outcome),
    (
        &shard::ASKS_NEW_LINEAGE,
        data::what_was_applied_before_a_loss_is_not_applied_after_it,
    ),
    (
        &shard::RAISES_THE_DEAD,
        data::a_snapshot_brings_nothing_back,
    ),
    (
        &shard::CONTINUES_TOO_FAR,
        moves::a_snapshot_goes_on_where_it_was_broken_off,
    ),
    (
        &shard::LOSES_TAIL,
        moves::what_follows_a_comparison_is_on_the_copy,
    ),
    (
        &placement::SWITCHES_EARLY,
        moves::a_step_waits_for_who_learns,
    ),
    (
        &placement::DROPS_UNREADY,
        moves::a_step_waits_for_who_learns,
    ),
    (&placement::BALANCES_PAUSED, moves::what_is_paused_rests),
    (
        &gossip::FAILS_FOR_EVER,
        moves::what_fails_again_and_again_rests,
    ),
    (
        &placement::CALLS_IT_EMPTY,
        moves::who_is_drained_is_empty_when_that_is_said,
    ),
    (
        &gossip::LEAVES_THE_DRAINED,
        moves::who_leaves_last_gives_what_it_holds_to_the_drained,
    ),
    (
        &gossip::HANDS_OVER_THE_DEAD,
        moves::who_dies_while_it_leaves_is_dead,
    ),
    (&shard::FILLS_THE_FULL, moves::a_copy_leaves_room),
    (&shard::DISCARDS_EARLY, moves::what_others_lack_is_kept),
    (
        &shard::DEAF_TO_THE_CLOCK,
        data::a_deadline_holds_after_a_failover,
    ),
    (
        &shard::WRITES_WHILE_RESHAPED,
        data::what_is_split_takes_no_writes,
    ),
    (
        &shard::SERVES_FORMER,
        moves::what_was_split_is_served_no_more,
    ),
    (
        &gossip::PINGS_THOUGH_HUNG,
        membership::a_hung_data_thread_deposes_its_member,
    ),
    (
        &gossip::FOUNDS_WITH_MOST,
        membership::two_write_a_first_table,
    ),
    (&gossip::PROMISES_TWICE, membership::two_write_a_first_table),
    (
        &gossip::HEARS_OLD_WORDS,
        membership::two_write_a_first_table,
    ),
    (
        &gossip::FOUNDS_WITH_HALF,
        membership::half_of_the_seeds_found_nothing,
    ),
    (
        &gossip::RECOVERS_WITH_MOST,
        elections::an_operator_s_word_needs_all_others,
    ),
    (&shard::SLOW_IS_SILENT, data::a_slow_way_costs_no_copy),
    (
        &shard::SENDS_ALL_AT_ONCE,
        data::a_write_waits_where_nothing_has_happened,
    ),
    (
        &gossip::SURRENDERS_USED,
        membership::who_is_used_gives_way_to_nobody,
    ),
];

/// The check of a rule, if it has one.
#[must_use]
pub fn check(mutant: &Mutant) -> Option<Check> {
    CHECKS
        .iter()
        .find(|(m, _)| ptr::eq(*m, mutant))
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
            if !run.iter().any(|other| ptr::fn_addr_eq(*other, *check)) {
                run.push(*check);
                assert_eq!(check(), Ok(()), "{}", mutant.id());
            }
        }
    }
}
