"""Mistakes that whoever writes such a protocol is likely to make, and the tests that would notice.

They were foreseen before the code was written, from what is known of other systems and from a model of
the rules; docs/reference/foreseen-mistakes.md is made from this.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Mistake(NamedTuple):
    text: str
    tests: tuple[str, ...]  # file and function
    bugs: tuple[str, ...] = ()  # planted ones, which seeds or tests find


ORDERING, VIEWS = "core/test_bridge_ordering", "core/test_bridge_views"
COUNCIL, REGISTER = "core/test_bridge_council", "core/test_bridge_register"
STREAMS, WAYS = "core/test_bridge_streams", "core/test_bridge_ways"
CHOOSING, PENDING = "core/test_bridge_choosing", "core/test_bridge_pending"
CLIENTS, TIMES = "sim/test_cluster_clients", "sim/test_protocol_times"


def _m(text: str, tests: str, bugs: str = "") -> Mistake:
    return Mistake(text, tuple(tests.split()), tuple(bugs.split()))


GROUPS: Final = {
    "Acks, durability, restart": (
        _m(
            "An ack leaves before the sync.",
            f"{ORDERING}::test_no_ack_leaves_before_the_sync",
            "ack_before_persist",
        ),
        _m(
            "The origin's own copy is taken for granted.",
            f"{ORDERING}::test_the_origins_own_copy_counts_when_it_is_durable",
            "own_ack_assumed",
        ),
        _m(
            "A process goes on in the view that names its former run, and makes a bundle of a known name.",
            f"{VIEWS}::test_a_restarted_member_never_acts_in_the_view_that_names_its_former_run",
            "same_incarnation",
        ),
        _m(
            "A clock begins anew in a restart, and something sorts below what was delivered.",
            f"{VIEWS}::test_a_restarted_member_never_acts_in_the_view_that_names_its_former_run",
            "same_incarnation",
        ),
        _m(
            "One that forgot its acks reports in good faith what it has, and the cut drops the rest.",
            f"{VIEWS}::test_a_lost_member_that_forgot_its_acks_reports_nothing",
            "amnesiac_reports",
        ),
        _m(
            "Having the mark of a view again is taken for a memory of what was acked in it.",
            "core/test_bridge_exactness::test_having_the_mark_again_is_no_memory_of_what_was_acked",
            "followed_again_is_exact",
        ),
        _m(
            "A member acts before the row before it is durable.",
            f"{VIEWS}::test_a_joiner_acts_only_when_it_has_the_row_and_durably",
            "followed_again_is_exact",
        ),
        _m(
            "A sync failed, the next one succeeded, and all goes on.",
            "sim/test_leaving::test_a_failed_disk_ends_it_and_frees_everything "
            "sim/test_journal::test_after_a_failed_sync_no_start_vouches_for_its_boot "
            "real/test_realio::test_after_a_failed_sync_the_next_one_succeeds "
            "real/test_chaos::test_everything_at_once_breaks_no_promise",
        ),
        _m(
            "A record goes from the journal before the item that holds it is durable.",
            "sim/test_journal::test_what_is_staged_or_waits_keeps_its_segment "
            "sim/test_journal::test_after_a_crash_a_member_knows_what_it_said",
        ),
        _m(
            "A sync that comes later is called durable.",
            f"{ORDERING}::test_at_weak_levels_acks_wait_for_no_sync "
            "seeds/test_s1::test_s1_1_at_level_write_the_last_fifty_milliseconds_may_be_lost_and_no_more "
            "core/test_bridge_changing::test_at_another_durability_acks_come_as_the_view_says",
        ),
    ),
    "Wedge and view change": (
        _m(
            "Something is acked after the promise, or by a sync that was under way at the promise.",
            f"{COUNCIL}::test_nothing_is_acked_made_or_delivered_after_a_promise "
            f"{COUNCIL}::test_a_sync_that_was_under_way_at_the_promise_acks_nothing",
            "no_wedge late_sync_counts",
        ),
        _m(
            "What a majority has is delivered.",
            f"{ORDERING}::test_a_majority_of_acks_delivers_nothing",
            "majority_delivers",
        ),
        _m(
            "What all have is delivered although it is not the head.",
            f"{ORDERING}::test_what_all_acked_waits_for_a_head_that_they_did_not",
            "skip_head",
        ),
        _m(
            "Acks count that overtook bundles of their member.",
            f"{STREAMS}::test_acks_that_overtook_their_members_bundles_do_not_count_yet",
            "acks_unordered",
        ),
        _m(
            "Taking a bundle does not raise the clock.",
            f"{ORDERING}::test_taking_a_bundle_raises_the_clock",
            "clock_not_raised",
        ),
        _m(
            "An accepted value is overlooked, or improved.",
            f"{REGISTER}::test_the_accepted_value_of_the_highest_ballot_is_taken_bit_for_bit "
            f"{COUNCIL}::test_an_accepted_value_is_found_again_and_decided",
            "accepted_ignored",
        ),
        _m(
            "Something is accepted below the promise.",
            f"{REGISTER}::test_a_lower_ballot_is_refused_in_both_phases "
            f"{REGISTER}::test_two_duelling_proposers_never_decide_differently",
            "accept_any_ballot",
        ),
        _m(
            "A promise is not durable because the level is a weak one.",
            f"{COUNCIL}::test_a_promise_is_durable_before_it_is_told_at_every_level "
            f"{COUNCIL}::test_an_acceptance_is_durable_before_it_is_told_at_every_level",
            "promise_forgotten",
        ),
        _m(
            "Heads are counted instead of weights, or members instead of voters.",
            f"{VIEWS}::test_members_of_a_small_view_are_no_majority_of_the_voters "
            f"{CHOOSING}::test_members_are_a_majority_of_all_weights",
            "any_two_are_a_quorum",
        ),
        _m(
            "The highest cut is taken, and nobody alive holds it.",
            f"{CHOOSING}::test_the_cut_is_the_least_that_the_exact_ones_hold_of_every_member",
            "highest_cut",
        ),
        _m(
            "A view is accepted that could not be installed.",
            f"{COUNCIL}::test_a_value_is_accepted_only_when_it_could_be_installed",
            "accept_empty_handed",
        ),
        _m(
            "A tail is asked of those alone who carry the view over, and they are dead.",
            f"{COUNCIL}::test_a_tail_is_asked_of_every_data_voter_in_turn "
            f"{COUNCIL}::test_whoever_holds_a_tail_gives_it",
            "tail_of_cont_alone",
        ),
        _m(
            "The first majority of promises is taken, and views change for ever; or a ballot is given up at "
            "once for want of an exact report.",
            f"{REGISTER}::test_a_proposer_waits_for_a_majority_and_for_all_who_seem_alive "
            f"{COUNCIL}::test_a_proposer_without_an_exact_report_keeps_listening",
            "first_majority gives_up_at_once",
        ),
        _m(
            "Counters are taken for possession.",
            f"{STREAMS}::test_counters_are_not_possession",
            "counters_are_possession",
        ),
        _m(
            "What the cut has left is installed in the order in which it came.",
            f"{STREAMS}::test_what_is_left_of_a_cut_comes_in_the_order_of_the_row",
            "cut_unsorted",
        ),
        _m(
            "A joiner acts before it has the row before.",
            f"{VIEWS}::test_a_joiner_acts_only_when_it_has_the_row_and_durably",
            "join_without_prefix",
        ),
        _m(
            "A restart is waited out although it announced itself.",
            f"{VIEWS}::test_a_restart_is_announced_and_not_waited_out "
            f"{TIMES}::test_a_restart_costs_a_view_change_and_no_patience",
        ),
        _m(
            "One that restarts all the time stops the others.",
            f"{TIMES}::test_one_that_restarts_all_the_time_does_not_stop_the_others",
        ),
        _m(
            "A stale call for a view wedges somebody.",
            f"{COUNCIL}::test_a_stale_prepare_is_answered_with_the_view_and_wedges_nobody",
        ),
        _m(
            "A call from the future is not understood.",
            f"{COUNCIL}::test_a_prepare_from_the_future_brings_its_view",
        ),
    ),
    "Disks and identity": (
        _m(
            "A wiped node votes under its old name.",
            f"{COUNCIL}::test_a_wiped_voter_does_not_vote",
            "wiped_votes",
        ),
        _m(
            "A wiped witness never votes again.",
            f"{VIEWS}::test_a_wiped_witness_asks_to_vote_again",
            "wiped_witness_is_silent",
        ),
        _m(
            "A disk that was restored from a copy breaks its promises.",
            "core/test_bridge_handshake::test_a_store_whose_starts_go_backwards_is_refused_by_who_knew_it",
            "old_copy_comes_in",
        ),
        _m(
            "Two processes have one store, or two stores one id.",
            "real/test_machines::test_a_folder_has_one_node_and_one_bridge "
            "core/test_bridge_handshake::test_a_second_store_of_one_id_is_refused_while_the_first_is_linked",
        ),
        _m(
            "A cluster is founded twice.",
            "core/test_bridge_founding::test_where_one_of_them_knows_a_view_none_is_made "
            f"{VIEWS}::test_a_node_that_knows_a_view_founds_nothing",
            "founder_tells_first clusters_mix",
        ),
    ),
    "Feeds, chains, followers": (
        _m(
            "A relay jumps, and does not tell whom it feeds.",
            f"{ORDERING}::test_a_jump_is_passed_on_to_whom_this_node_feeds",
            "base_not_passed_on",
        ),
        _m(
            "Members alone relay.",
            f"{VIEWS}::test_in_a_chain_a_node_that_is_no_member_relays_for_the_others",
            "only_members_relay",
        ),
        _m(
            "A cut between two who both see a third makes them remove each other.",
            f"{VIEWS}::test_a_cut_between_two_who_both_see_a_third_removes_nobody",
            "suspects_its_links",
        ),
        _m(
            "A link that is deaf in one direction is believed in.",
            "sim/test_cluster::test_a_link_that_is_deaf_in_one_direction_ends "
            f"{VIEWS}::test_a_link_that_hears_nothing_is_closed",
            "silence_is_not_noticed",
        ),
        _m(
            "When the way changes, something is doubled or left out.",
            f"{ORDERING}::test_a_link_that_comes_and_goes_doubles_and_drops_nothing "
            f"{TIMES}::test_a_link_that_comes_and_goes_removes_nobody",
        ),
        _m(
            "Items of a former subscription are taken for those of the new one.",
            f"{WAYS}::test_items_of_an_older_subscription_are_not_taken",
            "any_generation",
        ),
        _m(
            "A neighbour that does not read makes a queue grow.",
            "sim/test_links::test_a_neighbour_that_does_not_read_costs_a_bounded_amount_and_then_the_link "
            "sim/test_follower::test_what_waits_for_it_is_bounded_and_read_again",
        ),
        _m(
            "One that was paused acts on what it finds in its buffers.",
            f"{VIEWS}::test_one_that_was_paused_does_no_harm_with_what_it_finds_in_its_buffers",
        ),
        _m(
            "Bundles and acks of an older view count in the new one.",
            f"{STREAMS}::test_bundles_and_acks_of_another_view_are_ignored",
            "any_view",
        ),
    ),
    "Commands and exactly once": (
        _m(
            "Copies are found at the door only.",
            "core/test_lanes::test_a_copy_of_a_command_gets_the_first_answer_and_numbers_nothing "
            f"{CLIENTS}::test_a_producer_that_moves_in_mid_flight_writes_everything_once_and_in_order",
            "retry_is_new",
        ),
        _m(
            "What producers have done is no part of the state: a restart or an image forgets it.",
            "core/test_capture::test_the_hash_sees_every_table "
            "core/test_capture::test_a_restored_state_is_the_same_state",
            "lanes_not_in_snapshots",
        ),
        _m(
            "Producers are forgotten by the clock of each node.",
            "core/test_lanes::test_the_lane_that_applied_nothing_for_longest_is_forgotten_first "
            "core/test_state_determinism::test_neither_hash_seeds_nor_locales_nor_optimisation_decide_anything",
        ),
        _m(
            "A command overtakes an earlier one of its producer at another node.",
            "core/test_lanes::test_a_command_that_overtook_another_is_not_applied",
            "no_gap_rule",
        ),
        _m(
            "Commands are sent again at the wedge, and some of them are in the cut.",
            f"{VIEWS}::test_what_is_in_the_cut_is_not_sent_again",
            "cut_sent_again",
        ),
        _m(
            "Names are used again after a restart.",
            f"{ORDERING}::test_stages_of_two_runs_have_different_names",
        ),
        _m(
            "What waits at one node and was ordered through another is never answered.",
            "sim/test_cluster_waits::test_what_waits_here_and_was_ordered_elsewhere_is_answered_with_that_number",
        ),
        _m(
            "A refused command does not consume its seq.",
            "core/test_lanes::test_a_rejected_command_consumes_its_seq_and_is_remembered",
        ),
        _m(
            "Numbers of a deleted topic are applied to a new one of that name.",
            "core/test_lanes::test_a_command_for_another_topic_of_the_name_is_a_conflict_and_consumes_nothing "
            "core/test_lanes::test_a_lane_goes_with_its_topic",
        ),
        _m(
            "Applying depends on the process: hashes, locale, limits, disks.",
            "core/test_state_determinism::test_neither_hash_seeds_nor_locales_nor_optimisation_decide_anything",
        ),
        _m(
            "What is accepted is shown as if it were ordered.",
            "sim/test_cluster_waits::test_nobody_sees_what_is_accepted_and_has_no_number",
        ),
    ),
    "Reads and time": (
        _m(
            "A local read is taken for a new one.",
            f"{CLIENTS}::test_a_barrier_makes_a_read_new "
            "sim/test_keeper::test_a_barrier_comes_after_everything_that_was_ordered_before",
        ),
        _m(
            "A barrier is answered by a machine that is cut off.",
            "sim/test_cluster_waits::test_a_barrier_at_a_machine_that_is_cut_off_is_not_answered_there "
            "sim/test_cluster_waits::"
            "test_a_barrier_that_is_under_way_when_its_machine_is_cut_off_waits_for_the_order",
        ),
        _m(
            "One clock that is a year ahead decides what is pruned.",
            "core/test_rowtime::test_one_clock_that_is_years_ahead_moves_nothing "
            "sim/test_cluster_time::test_where_one_machine_alone_produces_the_time_of_the_row_goes_on",
        ),
        _m(
            "Pruning changes numbers, or who begins behind it counts from one.",
            "core/test_pruning::test_prune_drops_up_to_a_number "
            "sim/test_images::test_who_was_away_too_long_takes_an_image_and_goes_on",
        ),
    ),
    "Tests that lie": (
        _m(
            "The simulated net drops single frames, as TCP does not, or a resumed process gets them in another order.",
            "sim/test_net::test_loss_is_a_stall_and_nothing_is_missing "
            "sim/test_net::test_a_stopped_process_still_accepts_and_answers_when_it_goes_on",
        ),
        _m(
            "Everything is healed before it is asked whether things go on.",
            "sim/test_protocol::test_nothing_breaks_whatever_fails",
            "highest_cut accept_empty_handed tail_of_cont_alone",
        ),
        _m(
            "Faults are only random, and windows of milliseconds are never hit.",
            "sim/test_protocol_planted::test_a_planted_bug_is_found_again",
            "accepted_ignored accept_any_ballot promise_forgotten",
        ),
        _m(
            "Only the end is looked at.",
            "sim/test_protocol_planted::test_a_planted_bug_is_found_again",
            "ack_before_persist own_ack_assumed",
        ),
    ),
}


def lines() -> list[tuple[str, Mistake]]:
    """All of them, numbered from 1, with the group of each."""
    return [(group, each) for group, those in GROUPS.items() for each in those]
