#include "support/sweep_exceptions.h"

#include <string.h>

/* Each wait adds an order when it is made. A later one, before the next work, adds that order too and more. Which one
 * that will be is not known when the first is made. */
static const char covered[] = "a later wait of the same call, or of the next try, covers it";

/* direct and pool wait for the whole freeing stream, since Strata is not told of a program's work on a block's own
 * stream. */
static const char whole[] = "the stream is waited for as a whole, and its newest work is on other blocks";

static const char noted[] = "the use is noted and never made";
static const char on_alloc_stream[] = "nothing touches the block on its own stream";
static const char joined[] = "the pool had joined memory that nobody had touched with what the stream freed beside it";
static const char reused[] = "the pool waits for what its memory's last stream did, which may have finished meanwhile";
static const char untaken[] = "nothing takes the freed memory again";
static const char awaited[] = "the case waits for the device before the memory goes";
static const char another[] =
    "a stack that the case makes itself frees in stream order: only what is free waits for it";
static const char twice[] = "a pool has waited on the host for what touched a frame, and a guard below it waits, too";
static const char chance[] = "random traffic: whether anything is done before a later wait covers this one is chance";
static const char ordered[] = "the program has ordered that work before another stream's, which is waited for";
static const char finished[] =
    "the work is over by then, and the library may have learnt it, since the device is a thread";
static const char threads[] = "threads make it another run each time: the edge with that number is another one";

static const struct {
    const char *begins; /* start of the name */
    const char *stack;  /* contained in the name */
    const char *reason;
} known[] = {
    {"a_capture_of_somebody_elses_survives", "", covered},
    {"a_free_without_a_stream_that_met_a_capture_is_done_by_the_next_reap", "", covered},
    {"a_chain_of_launches_on_streams_of_every_kind_passes_the_bytes_on", "", covered},
    {"a_permissive_launch_skips_what_it_cannot_track", "", covered},
    {"a_launch_waits_for_each_event_of_a_producer_that_it_needs", "", covered}, /* its blocks are checked one by one */
    {"a_launch_waits_once_for_each_of_its_producers", "[direct", covered},
    {"with_early_events_a_launch_of_64_blocks_records_one_event", "[direct", covered},
    {"a_block_that_is_prepared_cannot_be_freed_from_any_thread", "", covered},
    {"a_use_that_meets_a_commit_half_way_waits_for_its_event", "", covered},
    {"a_block_whose_stream_is_still_known_cannot_be_freed_as_if_that_were_gone", "", covered},
    {"a_reader_waits_for_the_last_writer_whatever_their_streams", "", covered},
    {"early_events_order_as_late_ones_do", "[async",
     covered}, /* its other stream adds the order of the legacy stream */
    {"a_free_on_an_unknown_stream_identifies_it_once", "", covered},
    {"work_that_can_neither_be_marked_nor_waited_for_is_not_covered_by_an_older_event", "", covered},
    {"every_driver_call_of_a_free_may_fail_and_the_block_stays", "[direct", covered},
    {"a_free_that_fails_without_host_memory_loses_nothing", "[direct", covered},
    {"allocating_and_freeing", "[direct", covered}, /* each block without an event waits for its stream */
    {"launching_with_many_blocks", "", covered},
    {"reading_on_many_streams", "", covered}, /* without memory for a clock, a record covered by a write is kept */

    {"a_free_comes_after_uses_on_every_stream", "[pinned(single", covered},
    {"a_free_never_waits_for_a_stream", "[pool", awaited},
    {"frees_never_fail_for_want_of_memory", "[pool", reused},

    {"a_block_of_a_capture_is_found_by_address", "", noted},
    {"a_block_of_a_capture_outlives_its_graph", "", awaited},
    {"what_cannot_be_captured_is_refused", "", noted},
    {"a_body_that_is_given_up_leaves_no_graph_and_nothing_else", "", noted},
    {"a_block_that_is_freed_on_a_forked_stream_goes_with_the_graph", "[async", noted},
    {"a_handle_that_comes_back_is_another_stream", "[direct", awaited},
    {"work_of_a_stream_that_is_gone_is_learnt_by_a_wait_for_all_that_is_pending", "[direct", awaited},
    {"work_that_is_left_unmarked_during_a_wait_for_the_device_is_not_learnt_by_it", "[direct", awaited},
    {"blocks_of_a_registered_stream_whose_end_is_refused_are_freed", "[direct", awaited},
    {"a_runtime_ends_after_a_registered_stream_whose_end_is_refused", "[direct", noted},
    {"work_after_a_wait_for_the_device_is_waited_for_again", "[direct", awaited},
    {"a_call_that_waits_for_all_that_is_pending_fails_if_the_device_cannot_be_waited_for", "[direct", awaited},
    {"an_end_that_fails_since_the_device_cannot_be_waited_for_says_so_and_the_next_one_ends", "[direct", noted},
    {"a_stack_ends_after_a_registered_stream_whose_end_is_refused", "[direct", noted},
    {"work_that_is_left_on_a_stream_of_another_device_is_learnt_by_a_wait_for_that_one", "[direct", awaited},
    {"an_update_that_was_made_reports_no_error_of_what_it_let_go", "[direct", noted}, /* no launch has used it */
    {"a_pool_does_not_keep_its_own_memory", "[async", untaken},
    {"inputs_that_are_there_are_not_copied", "[async", awaited},
    {"a_reference_may_go_while_its_product_is_under_way", "[async", awaited}, /* the workspace */
    {"a_free_on_another_stream_comes_after_it_too", "[async", ordered},
    {"in_a_capture_of_stratas_the_graph_keeps_the_block", "[async", ordered},
    {"random_captures_do_what_the_model_does", "[pool", chance},
    {"a_function_is_called_as_a_graph", "[direct", awaited}, /* by the free of its other input */
    {"launches_wait_for_uses_of_the_blocks_that_live_in_the_pool", "[pool", untaken},
    {"graphs_that_share_memory_are_launched_and_destroyed", "", threads},
    {"a_trim_gives_back_what_is_free_below_before_it_waits_for_checks", "", threads}, /* one trims, one looks */

    {"mixed_random_allocations_and_frees_on_streams_of_every_kind", "[direct", whole},
    {"mixed_random_allocations_and_frees_on_streams_of_every_kind", "[pool", whole},
    {"a_later_stream_is_never_taken_for_the_one_that_a_block_was_allocated_on", "[direct", whole},

    {"blocks_have_no_more_bytes_than_were_free_without_them", "[managed", whole},

    {"blocks_that_begin_anywhere_are_chunks", "", twice},
    {"chunks_that_layers_below_do_not_let_go_at_once_make_room_too", "", twice},

    {"a_free_that_fails_leaves_the_block_as_it_was", "", noted},

    {"only_the_allocating_thread_can_name_the_stream_of_its_block", "", on_alloc_stream},
    {"stream_0_of_one_thread_comes_after_stream_0_of_another", "", on_alloc_stream},
    {"calls_through_a_stack_mean_the_same", "[direct", on_alloc_stream},
    {"every_call_leaves_the_callers_context_as_it_was", "", on_alloc_stream},
    {"a_free_inside_a_capture_waits_until_its_end_is_seen", "[fixed", on_alloc_stream},
    {"a_use_on_another_stream_waits_for_the_allocation", "[direct", on_alloc_stream},
    {"a_free_that_fails_is_made_by_a_later_release", "[direct", on_alloc_stream},
    {"nothing_wrote_fresh_memory_once_its_allocation_is_complete", "[direct", on_alloc_stream},
    {"a_use_on_another_stream_waits_for_the_allocation", "[pool", on_alloc_stream},
    {"captures_of_others_survive_every_call_and_see_nothing_of_them", "[pool", joined}, /* two of five */
    {"later_work_on_a_stream_is_waited_for_again", "[pool", reused},
    {"later_work_on_a_stream_is_waited_for_again", "[direct", finished}, /* in one of 20 runs */
    {"streams_that_come_and_go_leave_nothing_behind", "[pool", reused},  /* eleven of 300 */

    {"an_event_that_is_waited_for_stays_while_others_cannot_be_recorded", "", awaited},
    {"a_freed_block_is_unmapped_after_every_use_and_nobody_waits", "[guard(sample", awaited},
    {"uses_on_other_streams_are_ordered_through_the_layer", "[guard(sample", awaited},

    {"memory_that_is_not_managed_is_asked_about_once_and_never_moved", "", another},

    {"one_threads_random_traffic_is_as_the_model_says", "", chance}, /* four of 116 */
    {"calls_answer_as_the_model_says", "", chance},                  /* three quarters are found all the same */

    {"a_free_that_races_with_a_free_and_a_new_block_is_recognised", "", threads},
    {"blocks_go_from_a_thread_that_allocates_to_one_that_frees", "", threads},
    {"blocks_made_in_one_thread_are_freed_in_another", "", threads},
    {"threads_allocate_and_free_on_streams_of_every_kind", "", threads},
    {"threads_use_it_at_the_same_time", "", threads},
    {"threads_sample_at_the_same_time", "", threads},
    {"threads_never_hold_more_streams_than_the_pool_has", "", threads},
    {"many_threads_make_register_and_destroy_streams_at_the_same_time", "", threads},
    {"what_a_stream_freed_is_reaped_while_it_is_registered_and_unregistered", "", threads},
    {"many_threads_use_one_block_at_the_same_time", "", threads},
    {"the_per_thread_stream_of_another_thread_cannot_be_meant", "", threads},
};

const char *test_sweep_exception_reason(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(name, known[i].begins, strlen(known[i].begins)) == 0 && strstr(name, known[i].stack))
            return known[i].reason;
    return NULL;
}

static const char *const waits_by_frees[] = {
    "exported_memory_is_freed_after_everything_submitted_so_far",
    "a_view_of_exported_memory_is_freed_after_everything_too",
    "a_free_waits_for_the_device_if_a_named_stream_is_captured",
    "a_free_waits_for_the_device_for_another_threads_default_stream",
    "work_of_a_stream_that_is_gone_is_learnt_by_a_wait_for_all_that_is_pending",
    "work_that_is_left_unmarked_during_a_wait_for_the_device_is_not_learnt_by_it",
    "blocks_of_a_registered_stream_whose_end_is_refused_are_freed",
    "a_runtime_ends_after_a_registered_stream_whose_end_is_refused",
    "work_after_a_wait_for_the_device_is_waited_for_again",
    "a_call_that_waits_for_all_that_is_pending_fails_if_the_device_cannot_be_waited_for",
    "an_end_that_fails_since_the_device_cannot_be_waited_for_says_so_and_the_next_one_ends",
    "a_stack_ends_after_a_registered_stream_whose_end_is_refused",
    "work_that_is_left_on_a_stream_of_another_device_is_learnt_by_a_wait_for_that_one",
};

#define COUNT_OF(list) (sizeof(list) / sizeof(list)[0])

static bool begins_with_one_of(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(name, list[i], strlen(list[i])) == 0)
            return true;
    return false;
}

bool test_sweep_waits_by_frees(const char *name)
{
    return begins_with_one_of(name, waits_by_frees, COUNT_OF(waits_by_frees));
}

/* Cases in which a failed call shows and no error is said: the library recovers, by another way or by a later try. */
static const char *const recovered[] = {
    /* a word that its stream does not write: the other process waits as long as it may */
    "an_idle_process_gives_its_memory_to_others",
    "an_idle_process_with_a_pool_does_too",
    /* a step of decay that failed is made a window later */
    "a_program_that_slept_returns_memory_at_its_first_call",
    "decay_stops_at_the_release_threshold",
    "memory_in_a_thread_cache_is_returned_too",
    "the_peak_falls_after_two_windows",
    "what_is_live_counts_as_a_peak",
    "what_the_driver_does_not_take_back_is_used_and_tried_again",
    /* memory that cannot be mapped, unmapped or waited for is replaced by other memory */
    "a_chunk_that_is_too_large_for_a_hole_is_replaced_by_one_that_is_not",
    "a_request_waits_for_all_streams_that_freed_its_memory",
    "memory_of_a_destroyed_stream_serves_the_next_request",
    "nothing_is_returned_for_a_request_that_is_refused",
    "parts_come_in_the_order_of_addresses_whichever_chunk_is_older",
    /* what the device does not say that it can is not used */
    "memory_is_made_for_network_cards_where_the_device_can",
    /* the request is served without the call that the case waits for */
    "a_miss_of_one_stream_does_not_keep_another_from_hits",
    "a_request_whose_timeline_goes_to_another_stream_waits_for_what_that_one_freed",
    /* a request in the middle of another one, whose errors are suppressed */
    "a_chunk_being_requested_counts_towards_the_limit",
    /* a use whose stream the driver does not name is finished as the use that there is */
    "the_guards_own_fills_and_checks_are_no_use_of_a_block",
    /* the end of a graph spoils captures if the thread's capture mode cannot be changed for it */
    "a_deferred_free_waits_for_the_capture_that_its_stream_was_forked_into",
};

bool test_sweep_recovers(const char *name)
{
    return begins_with_one_of(name, recovered, COUNT_OF(recovered));
}
