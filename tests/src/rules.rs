//! Checks of single rules of docs/agreement.md. Each check drives the production machines, message
//! by message, into the situation in which its rule matters, and reports the invariant that broke.
//!
//! The simulation meets most situations by chance, but hardly ever these. `cargo test` runs every
//! check with its rule intact. `just mutants` runs it with the rule broken, and then it must fail.

mod data;
mod durable;
mod elections;
mod members;
mod membership;
mod moves;
mod orders;
mod shards;
mod splits;
mod tenures;
mod waiting;

use crate::mutants;
use doyen_engine::mutant as shard;
use doyen_gossip::mutant as gossip;
use doyen_placement::mutant::{self as placement, Mutant};
use std::ptr;

/// Returns the invariant that broke as an error.
pub type Check = fn() -> Result<(), String>;

/// The rules that have a check, and the checks.
pub static CHECKS: &[(&Mutant, Check)] = &[
    (
        &gossip::VOTES_TWICE,
        elections::two_candidates_of_one_term_are_not_both_elected,
    ),
    (
        &gossip::VOTES_FOR_STALE,
        elections::a_candidate_that_lacks_a_committed_table_loses,
    ),
    (
        &gossip::VOTES_UNSYNCED,
        durable::a_vote_leaves_once_it_is_synced,
    ),
    (
        &gossip::ACCEPTS_UNSYNCED,
        durable::an_acknowledgement_leaves_once_the_table_is_synced,
    ),
    (
        &gossip::HEIRS_KNOW_AGES,
        durable::an_heir_does_not_know_what_its_predecessor_answered,
    ),
    (
        &gossip::BELIEVES_UNSIGNED,
        elections::a_term_without_an_election_is_not_joined,
    ),
    (
        &gossip::VOTES_WHILE_LED,
        elections::a_member_that_asks_for_votes_replaces_no_coordinator,
    ),
    (
        &gossip::BELIEVES_ANY_TABLE,
        elections::a_table_that_any_member_hands_out_is_not_installed,
    ),
    (
        &gossip::TAKES_OLD_TERMS,
        elections::a_late_proposal_of_a_former_term_is_refused,
    ),
    (
        &gossip::COMMITS_WITHOUT_NEW,
        elections::three_voters_survive_the_death_of_one,
    ),
    (
        &gossip::COMMITS_WITHOUT_OLD,
        elections::former_voters_must_accept_their_replacement,
    ),
    (
        &gossip::PROPOSES_UNSTORED,
        elections::a_proposer_gives_no_lease_against_its_proposal,
    ),
    (
        &gossip::WINS_BY_VERSION,
        elections::a_winner_settles_its_own_proposal,
    ),
    (
        &gossip::INSTALLS_BY_VERSION,
        elections::tables_of_one_version_differ_by_their_term,
    ),
    (
        &gossip::NEWCOMERS_VOTE,
        elections::a_newcomer_is_admitted_without_its_own_vote,
    ),
    (
        &gossip::VOTERS_UNSETTLED,
        elections::voters_change_only_from_settled_voters,
    ),
    (
        &gossip::PREEMPTS,
        elections::a_working_coordinator_is_not_replaced,
    ),
    (
        &gossip::LEADS_UNHEARD,
        elections::a_coordinator_that_hears_no_member_expels_none,
    ),
    (
        &gossip::COUNTS_OLD_PINGS,
        elections::a_suspended_coordinator_expels_no_member,
    ),
    (&placement::ANYONE_ASKS, elections::only_the_primary_asks),
    (
        &placement::ADMITS_THE_SILENT,
        membership::a_silent_or_leaving_learner_is_not_admitted,
    ),
    (
        &shard::ADMITS_UNREQUIRED,
        data::a_learner_about_to_count_must_acknowledge,
    ),
    (
        &placement::WITHDRAWS_QUIETLY,
        membership::a_withdrawn_learner_is_not_counted,
    ),
    (
        &placement::DROPS_QUIETLY,
        membership::a_new_learner_is_not_counted_by_an_old_request,
    ),
    (
        &placement::EXPELS_LAST_COPY,
        membership::the_only_holder_of_a_partition_is_waited_for,
    ),
    (
        &placement::HEIR_HOLDS_ANYTHING,
        membership::an_heir_holds_what_its_disk_has,
    ),
    (
        &placement::HEIR_IN_SYNC_BESIDE_THE_LIVING,
        membership::an_heir_learns_beside_the_living,
    ),
    (
        &gossip::VOUCHES_FROM_ANYWHERE,
        membership::a_namesake_at_another_address_proves_no_death,
    ),
    (
        &gossip::ADMITS_LATE,
        membership::a_removed_member_is_not_admitted_by_an_old_request,
    ),
    (
        &gossip::RAISES_UNHEARD,
        membership::a_process_that_was_not_heard_keeps_the_level,
    ),
    (
        &gossip::ADMITS_LOWER,
        membership::a_process_that_speaks_less_stays_outside,
    ),
    (
        &gossip::STAYS_SILENT,
        elections::a_coordinator_is_not_silent,
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
    (
        &gossip::WAITS_WITHOUT_DRIFT,
        tenures::leases_hold_while_two_clocks_drift,
    ),
    (
        &gossip::AGES_WITHOUT_TENURE,
        tenures::a_short_tenure_does_not_hide_the_one_before,
    ),
    (
        &gossip::AGES_WITHOUT_VOTERS,
        tenures::new_voters_know_nothing_of_leases_before,
    ),
    (
        &gossip::COMMIT_OF_OTHERS,
        tenures::a_member_that_missed_a_table_waits_for_every_lease,
    ),
    (
        &gossip::AGES_UNKNOWN,
        tenures::an_unaware_primary_seals_nothing,
    ),
    (
        &gossip::SEALS_UNOPENED,
        tenures::an_unopened_primary_seals_nothing,
    ),
    (
        &gossip::LEAVES_EARLY,
        membership::a_leaver_stays_until_the_others_know,
    ),
    (
        &gossip::LEAVES_BY_PROPOSAL,
        membership::a_leaver_goes_only_by_a_table_in_force,
    ),
    (
        &gossip::LEAVES_THE_SILENT,
        membership::a_leaver_waits_for_a_silent_holder,
    ),
    (
        &gossip::LEAVES_THE_NEWCOMER,
        membership::the_last_leaver_waits_for_a_newcomer,
    ),
    (
        &gossip::LEAVES_BY_ITS_OWN_WORD,
        membership::members_that_leave_together_go_one_by_one,
    ),
    (
        &shard::SERVES_BY_INSTALLED,
        data::a_sealed_primary_answers_nothing,
    ),
    (
        &shard::ANSWERS_BY_OLD_VIEW,
        data::an_outdated_view_answers_nothing,
    ),
    (
        &mutants::CHECKS_THEN_READS,
        data::the_lease_is_checked_after_the_read,
    ),
    (
        &shard::OPENS_WITHOUT_TAIL,
        data::an_open_primary_acknowledges,
    ),
    (
        &shard::ACKS_UNSYNCED,
        data::a_write_counts_once_the_disks_have_it,
    ),
    (&shard::KEEPS_TENURE, data::a_new_tenure_waits_again),
    (
        &shard::COMMITS_DEPOSED,
        data::a_sealed_primary_acknowledges_nothing,
    ),
    (
        &shard::NO_FENCE,
        data::entries_of_an_old_epoch_change_nothing,
    ),
    (
        &shard::FENCE_BY_INSTALLED,
        data::a_copy_follows_no_earlier_epoch,
    ),
    (
        &shard::KEEPS_TAIL,
        data::a_copy_undoes_entries_that_its_primary_lacks,
    ),
    (&shard::READS_DELETIONS, data::a_deleted_key_stays_deleted),
    (&shard::READS_CLEARS, data::a_cleared_map_stays_empty),
    (&shard::READS_OVERDUE, data::an_overdue_key_is_gone),
    (
        &shard::RETIRES_EARLY,
        data::a_late_retry_of_a_client_finds_its_outcome,
    ),
    (
        &shard::TAKES_STRANGERS,
        data::an_expelled_member_gets_no_retry,
    ),
    (
        &shard::KEEPS_OUTCOMES,
        data::a_learner_forgets_undone_outcomes,
    ),
    (
        &shard::REFUSED_UNAPPLIED,
        data::a_refusal_after_a_lost_answer_is_unknown,
    ),
    (
        &shard::EXECUTES_REFUSED,
        data::a_write_waits_for_a_refused_one_before_it,
    ),
    (&shard::SNAPSHOT_FORGETS, data::a_snapshot_carries_outcomes),
    (&shard::FINISHES_EARLY, data::a_retry_finds_its_outcome),
    (
        &shard::ASKS_NEW_LINEAGE,
        data::a_write_before_a_loss_is_not_applied_after_it,
    ),
    (
        &shard::RAISES_THE_DEAD,
        data::a_snapshot_does_not_bring_deleted_keys_back,
    ),
    (
        &shard::RAISES_FIELDS,
        data::a_snapshot_does_not_bring_deleted_fields_back,
    ),
    (
        &shard::CONTINUES_TOO_FAR,
        moves::a_snapshot_continues_after_a_broken_connection,
    ),
    (
        &shard::LOSES_TAIL,
        moves::writes_after_a_comparison_reach_the_copy,
    ),
    (
        &placement::SWITCHES_EARLY,
        moves::a_move_step_waits_for_its_learner,
    ),
    (
        &placement::DROPS_UNREADY,
        moves::a_move_step_waits_for_its_learner,
    ),
    (
        &placement::BALANCES_PAUSED,
        moves::a_paused_balance_moves_nothing,
    ),
    (
        &gossip::FAILS_FOR_EVER,
        moves::moves_that_keep_failing_pause_the_balance,
    ),
    (
        &placement::CALLS_IT_EMPTY,
        moves::a_member_reported_as_drained_is_empty,
    ),
    (
        &gossip::LEAVES_THE_DRAINED,
        moves::the_last_leaver_hands_over_to_drained_members,
    ),
    (
        &gossip::HANDS_OVER_THE_DEAD,
        moves::a_leaver_that_dies_is_dead,
    ),
    (&shard::FILLS_THE_FULL, moves::a_copy_leaves_room),
    (
        &shard::DISCARDS_EARLY,
        moves::a_dropped_copy_is_kept_while_others_are_missing,
    ),
    (
        &shard::DEAF_TO_THE_CLOCK,
        data::a_deadline_holds_after_a_failover,
    ),
    (
        &shard::CLOCKS_BEHIND_DATA,
        data::a_deadline_does_not_slip_behind_large_values,
    ),
    (
        &shard::KEEPS_OWN_CLOCK,
        data::a_new_primary_takes_the_greatest_clock,
    ),
    (
        &shard::WRITES_WHILE_RESHAPED,
        data::a_partition_being_split_takes_no_writes,
    ),
    (
        &shard::SERVES_FORMER,
        moves::a_split_partition_is_not_served_any_more,
    ),
    (
        &gossip::PINGS_THOUGH_HUNG,
        membership::a_hung_data_thread_deposes_its_member,
    ),
    (
        &gossip::FOUNDS_WITH_MOST,
        membership::two_first_tables_make_one_cluster,
    ),
    (
        &gossip::PROMISES_TWICE,
        membership::two_first_tables_make_one_cluster,
    ),
    (
        &gossip::HEARS_OLD_WORDS,
        membership::two_first_tables_make_one_cluster,
    ),
    (
        &gossip::FOUNDS_WITH_HALF,
        membership::half_of_the_seeds_form_no_cluster,
    ),
    (
        &gossip::RECOVERS_WITH_MOST,
        elections::an_operators_word_needs_all_other_members,
    ),
    (
        &gossip::BELIEVES_UNPROVED_SPLITS,
        splits::a_recovered_half_is_stopped_by_named_members_alone,
    ),
    (
        &gossip::SERVES_THOUGH_SPLIT,
        splits::a_recovered_half_serves_nothing_once_a_named_member_lives,
    ),
    (
        &gossip::OUTRANKS_THE_ELECTED,
        splits::a_half_that_was_kept_gives_way_to_members_that_went_on,
    ),
    (
        &shard::SLEEPS_THROUGH_CHANGES,
        waiting::a_change_wakes_the_first_that_waits,
    ),
    (
        &shard::LOSES_TICKETS,
        waiting::those_that_wait_ask_the_next_primary,
    ),
    (
        &shard::STALLS_FOR_EVER,
        waiting::those_that_come_early_go_on_once_the_primary_is_open,
    ),
    (
        &shard::SERVES_THE_GONE,
        waiting::those_that_leave_get_nothing,
    ),
    (
        &shard::GRANTS_TWICE,
        waiting::one_thing_is_granted_to_one_caller,
    ),
    (
        &shard::GRANTS_FOR_EVER,
        waiting::a_grant_that_is_not_used_is_the_next_callers,
    ),
    (&shard::SLOW_IS_SILENT, data::a_slow_link_costs_no_copy),
    (
        &shard::BELIEVES_LATE_FOR_EVER,
        data::a_copy_that_is_always_late_is_given_up,
    ),
    (
        &shard::SENDS_ALL_AT_ONCE,
        data::a_write_waits_while_its_link_is_full,
    ),
    (
        &shard::OUTRUNS_LEARNERS,
        data::a_large_write_waits_for_the_learner_of_a_missing_copy,
    ),
    (
        &gossip::SURRENDERS_USED,
        membership::a_used_cluster_does_not_give_way,
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
    fn every_check_passes_with_its_rule_intact() {
        let mut run: Vec<Check> = Vec::new();
        for (mutant, check) in CHECKS {
            // Some checks notice more than one mutant.
            if !run.iter().any(|other| ptr::fn_addr_eq(*other, *check)) {
                run.push(*check);
                assert_eq!(check(), Ok(()), "{}", mutant.id());
            }
        }
    }
}
