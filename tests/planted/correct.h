/* Programs without a bug whose order is not obvious. The checker must report none of them. Where a program says that it
 * needs each wait and record that it makes, dropping any of these must give a report. */
#ifndef STRATA_TEST_PLANTED_CORRECT_H
#define STRATA_TEST_PLANTED_CORRECT_H

#include "planted/world.h"

/* ---- streams and events ---- */

static void one_stream(struct world *world)
{
    fill(world->a, world->x);
    kernel(world, world->a, world->x, BYTES, UPDATES);
    copy(world->a, world->y, world->x);
    fill(world->a, world->x);
}

static void an_event_between_two_streams(struct world *world)
{
    fill(world->a, world->x);
    hand_over(world->event, world->a, world->b);
    copy(world->b, world->y, world->x);
}

static void transitive_waits_through_three_streams(struct world *world)
{
    kernel(world, world->a, world->x, BYTES, WRITES);
    hand_over(world->event, world->a, world->b);
    hand_over(world->other, world->b, world->c);
    kernel(world, world->c, world->x, BYTES, UPDATES);
    hand_over(world->event, world->c, world->d);
    copy(world->d, world->y, world->x);
}

static void an_event_is_recorded_again(struct world *world)
{
    fill(world->a, world->x);
    OK(p_cuEventRecord(world->event, world->a));
    OK(p_cuStreamWaitEvent(world->b, world->event, 0));
    copy(world->b, world->y, world->x);
    OK(p_cuEventRecord(world->event, world->b));
    OK(p_cuStreamWaitEvent(world->a, world->event, 0));
    fill(world->a, world->x);
}

/* A wait is for the record that it was made for, even if the event is recorded again or destroyed. */
static void an_event_is_destroyed_after_the_wait(struct world *world)
{
    CUevent event;
    OK(p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    fill(world->a, world->x);
    hand_over(event, world->a, world->b);
    OK(p_cuEventRecord(event, world->c));
    OK(p_cuEventDestroy(event));
    copy(world->b, world->y, world->x);
}

static void two_readers_and_a_writer(struct world *world)
{
    fill(world->a, world->x);
    hand_over(world->event, world->a, world->b);
    OK(p_cuStreamWaitEvent(world->c, world->event, 0));
    kernel(world, world->b, world->x, BYTES, READS);
    copy(world->c, world->y, world->x);
    hand_over(world->event, world->b, world->d);
    hand_over(world->other, world->c, world->d);
    fill(world->d, world->x);
}

static void two_readers_at_once(struct world *world)
{
    kernel(world, world->a, world->x, BYTES, READS);
    kernel(world, world->b, world->x, BYTES, READS);
    copy(world->c, world->y, world->x);
}

static void two_kernels_count_with_atomics(struct world *world)
{
    fill(world->a, world->x);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->a, world->x, 16, ATOMICS);
    kernel(world, world->b, world->x, 16, ATOMICS);
    kernel(world, world->b, world->x, 16, ATOMICS);
}

static void disjoint_ranges(struct world *world)
{
    OK(p_cuMemsetD8Async(world->x, 1, 100, world->a));
    OK(p_cuMemsetD8Async(world->x + 100, 1, 100, world->b));
    kernel(world, world->c, world->x + 200, 100, UPDATES);
}

/* A fill does not touch the bytes between its rows. */
static void between_the_rows_of_a_fill(struct world *world)
{
    OK(p_cuMemsetD2D8Async(world->x, 512, 1, 100, 8, world->a));
    kernel(world, world->b, world->x + 512 + 100, 412, UPDATES);
}

static void an_earlier_wait_covers_a_later_use(struct world *world)
{
    fill(world->a, world->x);
    fill(world->a, world->y);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, world->x, BYTES, UPDATES);
    kernel(world, world->b, world->y, BYTES, UPDATES);
}

/* The kernel runs last, although the write that it precedes was submitted long ago. */
static void a_kernel_says_late_what_it_read(struct world *world)
{
    kernel(world, world->a, world->x, BYTES, READS);
    hand_over(world->event, world->a, world->b);
    fill(world->b, world->x);
    fill(world->b, world->x);
    hand_over(world->other, world->b, world->a);
    kernel(world, world->a, world->x, BYTES, UPDATES);
}

/* ---- the legacy stream, per-thread streams ---- */

static void the_legacy_stream_comes_after_blocking_ones(struct world *world)
{
    fill(world->blocking, world->x);
    copy(NULL, world->y, world->x);
}

static void blocking_streams_come_after_the_legacy_one(struct world *world)
{
    fill(CU_STREAM_LEGACY, world->x);
    kernel(world, world->blocking, world->x, BYTES, UPDATES);
    copy(NULL, world->y, world->x);
}

/* Work on the legacy stream orders two blocking streams, whatever it touches. */
static void through_the_legacy_stream(struct world *world)
{
    CUstream second = new_stream(CU_STREAM_DEFAULT);
    fill(world->blocking, world->x);
    OK(p_cuMemsetD8Async(world->y, 1, 1, NULL));
    kernel(world, second, world->x, BYTES, UPDATES);
    OK(p_cuStreamDestroy(second));
}

static void fill_on_my_stream(struct world *world)
{
    fill(CU_STREAM_PER_THREAD, world->x);
}

static void per_thread_streams_and_the_legacy_one(struct world *world)
{
    in_thread(world, fill_on_my_stream);
    copy(CU_STREAM_LEGACY, world->y, world->x);
    kernel(world, CU_STREAM_PER_THREAD, world->y, BYTES, UPDATES);
}

static void record_mine(struct world *world)
{
    fill(CU_STREAM_PER_THREAD, world->x);
    OK(p_cuEventRecord(world->event, CU_STREAM_PER_THREAD));
}

static void an_event_between_two_threads(struct world *world)
{
    in_thread(world, record_mine);
    OK(p_cuStreamWaitEvent(CU_STREAM_PER_THREAD, world->event, 0));
    copy(CU_STREAM_PER_THREAD, world->y, world->x);
}

static void the_end_of_a_blocking_stream(struct world *world)
{
    CUstream stream = new_stream(CU_STREAM_DEFAULT);
    fill(stream, world->x);
    OK(p_cuStreamDestroy(stream));
    copy(NULL, world->y, world->x);
}

/* ---- what the host waits for ---- */

static void the_host_waits_for_a_stream(struct world *world)
{
    download(world, world->a, world->x);
    OK(p_cuStreamSynchronize(world->a));
    host_reads(world);
    host_writes(world);
    upload(world, world->b, world->x);
}

static void the_host_waits_for_an_event(struct world *world)
{
    download(world, world->a, world->x);
    OK(p_cuEventRecord(world->event, world->a));
    upload(world, world->a, world->y);
    OK(p_cuEventSynchronize(world->event));
    host_reads(world);
}

static void the_host_waits_for_the_context(struct world *world)
{
    download(world, world->a, world->x);
    OK(p_cuCtxSynchronize());
    host_writes(world);
}

static void the_host_waits_for_a_context_that_a_stream_left(struct world *world)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    download(world, stream, world->x);
    OK(p_cuStreamDestroy(stream));
    OK(p_cuCtxSynchronize());
    host_writes(world);
}

static void an_event_of_a_stream_that_is_gone(struct world *world)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    fill(stream, world->x);
    OK(p_cuEventRecord(world->event, stream));
    OK(p_cuStreamDestroy(stream));
    OK(p_cuStreamWaitEvent(world->b, world->event, 0));
    copy(world->b, world->y, world->x);
}

static void the_host_polls_a_stream(struct world *world)
{
    download(world, world->a, world->x);
    poll_stream(world->a);
    host_reads(world);
}

static void the_host_polls_an_event(struct world *world)
{
    fill(world->a, world->x);
    OK(p_cuEventRecord(world->event, world->a));
    poll_event(world->event);
    fill(world->b, world->x);
}

static void the_host_waits_for_a_stream_that_waited(struct world *world)
{
    download(world, world->a, world->x);
    hand_over(world->event, world->a, world->b);
    OK(p_cuStreamSynchronize(world->b));
    host_writes(world);
}

static void the_host_waits_for_the_legacy_stream(struct world *world)
{
    download(world, world->blocking, world->x);
    OK(p_cuStreamSynchronize(NULL));
    host_writes(world);
}

/* The copy to plain memory returns when it is done, and with it everything before it on the stream. */
static void a_synchronous_copy_from_pinned_memory(struct world *world)
{
    OK(p_cuMemcpyHtoD(world->x, world->pinned, BYTES));
    copy(world->a, world->y, world->x);
    host_writes(world);
}

static void a_blocking_stream_after_a_copy_from_pageable_memory(struct world *world)
{
    static const char bytes[BYTES];
    OK(p_cuMemcpyHtoD(world->x, bytes, BYTES));
    copy(world->blocking, world->y, world->x);
}

static void the_host_waits_for_a_copy_from_pageable_memory(struct world *world)
{
    static const char bytes[BYTES];
    OK(p_cuMemcpyHtoD(world->x, bytes, BYTES));
    OK(p_cuStreamSynchronize(NULL));
    copy(world->a, world->y, world->x);
}

static void what_a_copy_from_pageable_memory_waits_for(struct world *world)
{
    static const char bytes[BYTES];
    fill(world->blocking, world->y);
    OK(p_cuMemcpyHtoD(world->x, bytes, BYTES));
    fill(world->a, world->y);
}

static void a_copy_that_waits(struct world *world)
{
    char plain[16];
    download(world, world->a, world->x);
    OK(p_cuMemcpyDtoHAsync(plain, world->x, sizeof plain, world->a));
    host_writes(world);
}

static void a_time_that_was_measured(struct world *world)
{
    CUevent start;
    CUevent end;
    float milliseconds;
    OK(p_cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(p_cuEventCreate(&end, CU_EVENT_DEFAULT));
    OK(p_cuEventRecord(start, world->a));
    download(world, world->a, world->x);
    OK(p_cuEventRecord(end, world->a));
    OK(p_cuEventSynchronize(end));
    OK(p_cuEventElapsedTime(&milliseconds, start, end));
    host_reads(world);
    OK(p_cuEventDestroy(start));
    OK(p_cuEventDestroy(end));
}

static void wait_for_a(struct world *world)
{
    OK(p_cuStreamSynchronize(world->a));
}

static void another_thread_waited(struct world *world)
{
    fill(world->a, world->x);
    in_thread(world, wait_for_a);
    fill(world->b, world->x);
}

static void the_host_writes_before_the_copy(struct world *world)
{
    host_writes(world);
    upload(world, world->a, world->x);
    upload(world, world->b, world->y);
}

/* ---- host functions ---- */

static void read_pinned(void *data)
{
    host_reads(data);
}

static void write_pinned(void *data)
{
    host_writes(data);
}

static void a_host_function_in_its_stream(struct world *world)
{
    download(world, world->a, world->x);
    OK(p_cuLaunchHostFunc(world->a, read_pinned, world));
    OK(p_cuLaunchHostFunc(world->a, write_pinned, world));
    upload(world, world->a, world->x);
}

static void a_host_function_after_another_stream(struct world *world)
{
    download(world, world->a, world->x);
    hand_over(world->event, world->a, world->b);
    OK(p_cuLaunchHostFunc(world->b, write_pinned, world));
    hand_over(world->event, world->b, world->c);
    upload(world, world->c, world->x);
}

static void call_back(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    assert_int_equal(status, CUDA_SUCCESS);
    write_pinned(data);
}

static void a_callback(struct world *world)
{
    download(world, world->a, world->x);
    OK(p_cuStreamAddCallback(world->a, call_back, world, 0));
    upload(world, world->a, world->y);
}

static void tell(void *data)
{
    struct world *world = data;
    sem_post(world->told);
}

/* No driver call waits. A query makes the work run, and may answer that it is not done. */
static void a_host_function_tells_the_host(struct world *world)
{
    download(world, world->a, world->x);
    OK(p_cuLaunchHostFunc(world->a, tell, world));
    while (sem_trywait(world->told) != 0) {
        p_cuStreamQuery(world->a);
    }
    host_writes(world);
}

static void tell_and_say_so(void *data)
{
    OK(p_host_signals());
    tell(data);
}

static void a_host_function_says_that_it_tells(struct world *world)
{
    download(world, world->a, world->x);
    OK(p_cuLaunchHostFunc(world->a, tell_and_say_so, world));
    while (sem_trywait(world->told) != 0) {
        p_cuEventQuery(world->event);
        p_set_policy(STRATA_SIM_EARLY);
    }
    host_writes(world);
}

/* The host writes what the copy reads while a host function holds the stream back. */
static void the_host_holds_the_stream_back(struct world *world)
{
    shut_gate(world, world->a);
    upload(world, world->a, world->x);
    host_writes(world);
    open_gate(world);
}

static void the_host_holds_a_kernel_back(struct world *world)
{
    shut_gate(world, world->a);
    kernel(world, world->a, (CUdeviceptr)(uintptr_t)world->pinned, BYTES, UPDATES);
    host_writes(world);
    open_gate(world);
}

/* ---- the life of memory ---- */

static void allocated_used_and_freed_in_a_stream(struct world *world)
{
    CUdeviceptr mine = allocate(world->a);
    kernel(world, world->a, mine, BYTES, WRITES);
    copy(world->a, world->x, mine);
    release(mine, world->a);
}

static void allocated_here_and_used_there(struct world *world)
{
    CUdeviceptr mine = allocate(world->a);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, mine, BYTES, WRITES);
    hand_over(world->event, world->b, world->a);
    release(mine, world->a);
}

static void freed_on_another_stream_after_a_wait(struct world *world)
{
    CUdeviceptr mine = allocate(world->a);
    kernel(world, world->a, mine, BYTES, WRITES);
    hand_over(world->event, world->a, world->b);
    release(mine, world->b);
}

static void freed_by_the_host(struct world *world)
{
    CUdeviceptr mine = allocate(world->a);
    kernel(world, world->a, mine, BYTES, WRITES);
    OK(p_cuStreamSynchronize(world->a));
    OK(p_cuMemFree(mine));
    trim();
}

/* cuMemFree of plain memory waits for the context. */
static void freed_by_the_host_while_it_is_used_and_waited_for(struct world *world)
{
    CUdeviceptr mine;
    OK(p_cuMemAlloc(&mine, BYTES));
    kernel(world, world->a, mine, BYTES, WRITES);
    OK(p_cuMemFree(mine));
    kernel(world, world->b, world->x, BYTES, WRITES);
}

static CUmemoryPool pool_with(CUmemPool_attribute policy)
{
    static const CUmemPool_attribute policies[] = {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                                   CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                                   CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                 .maxSize = 32 << 20};
    CUmemoryPool pool;
    OK(p_cuMemPoolCreate(&pool, &properties));
    for (int i = 0; i < 3; i++) {
        int on = policies[i] == policy;
        OK(p_cuMemPoolSetAttribute(pool, policies[i], &on));
    }
    return pool;
}

enum { WHOLE_POOL = 32 << 20 };

/* A uses and frees the whole pool, and B allocates it, so B has A's memory. */
static void pass_through_pool(struct world *world, CUmemoryPool pool, bool wait, bool finish)
{
    CUdeviceptr mine;
    OK(p_cuMemAllocFromPoolAsync(&mine, WHOLE_POOL, pool, world->a));
    fill(world->a, mine);
    release(mine, world->a);
    if (wait) {
        hand_over(world->event, world->a, world->b);
    }
    if (finish) {
        poll_stream(world->a);
    }
    OK(p_cuMemAllocFromPoolAsync(&mine, WHOLE_POOL, pool, world->b));
    fill(world->b, mine);
    release(mine, world->b);
    OK(p_cuStreamSynchronize(world->b));
    OK(p_cuMemPoolDestroy(pool));
}

static void a_pool_follows_events(struct world *world)
{
    pass_through_pool(world, pool_with(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES), true, false);
}

static void a_pool_reuses_opportunistically(struct world *world)
{
    pass_through_pool(world, pool_with(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), false, true);
}

static void a_pool_makes_dependencies_of_its_own(struct world *world)
{
    pass_through_pool(world, pool_with(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES), false, false);
}

static void kernels_under_way_while_the_pool_hands_memory_on(struct world *world)
{
    for (int i = 0; i < 20; i++) {
        CUstream stream = i % 3 == 0 ? world->a : i % 3 == 1 ? world->b : world->c;
        CUdeviceptr mine = allocate(stream);
        kernel(world, stream, mine, BYTES, WRITES);
        kernel(world, stream, mine + 512, 512, READS);
        release(mine, stream);
    }
}

/* ---- memory that is mapped at two addresses ---- */

static void an_event_between_two_mappings(struct world *world)
{
    struct twice memory = map_twice();
    kernel(world, world->a, memory.one, BYTES, WRITES);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, memory.two, BYTES, UPDATES);
    hand_over(world->other, world->b, world->c);
    kernel(world, world->c, memory.one, BYTES, UPDATES);
    OK(p_cuStreamSynchronize(world->c));
    unmap_twice(&memory);
}

static void different_bytes_of_two_mappings(struct world *world)
{
    struct twice memory = map_twice();
    fill(world->a, memory.one);
    fill(world->b, memory.two + BYTES);
    kernel(world, world->c, memory.one + 2 * BYTES, BYTES, READS);
    kernel(world, world->d, memory.two + 2 * BYTES, BYTES, READS);
    OK(p_cuCtxSynchronize());
    unmap_twice(&memory);
}

/* The bytes are in use, but not through the mapping that is removed. */
static void one_mapping_goes_while_the_other_is_used(struct world *world)
{
    struct twice memory = map_twice();
    kernel(world, world->a, memory.one, BYTES, WRITES);
    OK(p_cuStreamSynchronize(world->a));
    kernel(world, world->b, memory.two, BYTES, UPDATES);
    unmap(memory.one);
    kernel(world, world->b, memory.two, BYTES, UPDATES);
    OK(p_cuStreamSynchronize(world->b));
    unmap(memory.two);
    release_twice(&memory);
}

static void mapped_again_after_an_unmapping(struct world *world)
{
    struct twice memory = map_twice();
    unmap(memory.two);
    kernel(world, world->a, memory.one, BYTES, WRITES);
    OK(p_cuStreamSynchronize(world->a));
    unmap(memory.one);
    struct twice again = map_both(memory.handle, memory.again);
    kernel(world, world->b, again.two, BYTES, UPDATES);
    OK(p_cuStreamSynchronize(world->b));
    unmap_twice(&again);
}

/* The awaited flag is written through another mapping. */
static void a_value_that_is_awaited_elsewhere(struct world *world)
{
    struct twice memory = map_twice();
    OK(p_cuMemsetD8Async(memory.one, 0, 4, world->a));
    OK(p_cuStreamSynchronize(world->a));
    fill(world->a, world->x);
    OK(p_cuStreamWriteValue32(world->a, memory.one, 1, 0));
    OK(p_cuStreamWaitValue32(world->b, memory.two, 1, CU_STREAM_WAIT_VALUE_EQ));
    copy(world->b, world->y, world->x);
    OK(p_cuCtxSynchronize());
    unmap_twice(&memory);
}

/* ---- reads of bytes that were written ---- */

static void written_by_a_kernel_that_says_so_late(struct world *world)
{
    kernel(world, world->a, world->x, BYTES, WRITES);
    copy(world->a, world->y, world->x);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, world->y, BYTES, UPDATES);
}

static void written_in_parts(struct world *world)
{
    OK(p_cuMemsetD8Async(world->x, 1, 1000, world->a));
    upload(world, world->b, world->y);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, world->x + 1000, BYTES - 1000, WRITES);
    copy(world->b, world->y, world->x);
}

static void a_global_variable_of_a_module(struct world *world)
{
    CUdeviceptr table;
    size_t bytes;
    OK(p_cuModuleGetGlobal(&table, &bytes, world->module, "table"));
    kernel(world, world->a, table, bytes, READS);
}

#define RIGHT(function)                          \
    {                                            \
#function, function, NO_REPORT, 0, false \
    }
#define TIGHT(function)                         \
    {                                           \
#function, function, NO_REPORT, 0, true \
    }

static const struct program correct[] = {
    RIGHT(one_stream),
    TIGHT(an_event_between_two_streams),
    TIGHT(transitive_waits_through_three_streams),
    TIGHT(an_event_is_recorded_again),
    RIGHT(an_event_is_destroyed_after_the_wait),
    TIGHT(two_readers_and_a_writer),
    RIGHT(two_readers_at_once),
    TIGHT(two_kernels_count_with_atomics),
    RIGHT(disjoint_ranges),
    RIGHT(between_the_rows_of_a_fill),
    TIGHT(an_earlier_wait_covers_a_later_use),
    TIGHT(a_kernel_says_late_what_it_read),
    RIGHT(the_legacy_stream_comes_after_blocking_ones),
    RIGHT(blocking_streams_come_after_the_legacy_one),
    RIGHT(through_the_legacy_stream),
    RIGHT(per_thread_streams_and_the_legacy_one),
    TIGHT(an_event_between_two_threads),
    RIGHT(the_end_of_a_blocking_stream),
    TIGHT(the_host_waits_for_a_stream),
    TIGHT(the_host_waits_for_an_event),
    TIGHT(the_host_waits_for_the_context),
    TIGHT(the_host_waits_for_a_context_that_a_stream_left),
    TIGHT(an_event_of_a_stream_that_is_gone),
    TIGHT(the_host_polls_a_stream),
    TIGHT(the_host_polls_an_event),
    TIGHT(the_host_waits_for_a_stream_that_waited),
    TIGHT(the_host_waits_for_the_legacy_stream),
    RIGHT(a_copy_that_waits),
    RIGHT(a_synchronous_copy_from_pinned_memory),
    RIGHT(a_blocking_stream_after_a_copy_from_pageable_memory),
    TIGHT(the_host_waits_for_a_copy_from_pageable_memory),
    RIGHT(what_a_copy_from_pageable_memory_waits_for),
    RIGHT(a_time_that_was_measured),
    TIGHT(another_thread_waited),
    RIGHT(the_host_writes_before_the_copy),
    RIGHT(a_host_function_in_its_stream),
    {"a_host_function_after_another_stream", a_host_function_after_another_stream, NO_REPORT,
     STRATA_SIM_CHECK_HOST_FUNCTIONS, true},
    RIGHT(a_callback),
    RIGHT(a_host_function_tells_the_host),
    {"a_host_function_says_that_it_tells", a_host_function_says_that_it_tells, NO_REPORT,
     STRATA_SIM_CHECK_HOST_FUNCTIONS, false},
    RIGHT(the_host_holds_the_stream_back),
    RIGHT(the_host_holds_a_kernel_back),
    RIGHT(allocated_used_and_freed_in_a_stream),
    TIGHT(allocated_here_and_used_there),
    TIGHT(freed_on_another_stream_after_a_wait),
    TIGHT(freed_by_the_host),
    RIGHT(freed_by_the_host_while_it_is_used_and_waited_for),
    RIGHT(a_pool_follows_events),
    RIGHT(a_pool_reuses_opportunistically),
    RIGHT(a_pool_makes_dependencies_of_its_own),
    RIGHT(kernels_under_way_while_the_pool_hands_memory_on),
    TIGHT(an_event_between_two_mappings),
    RIGHT(different_bytes_of_two_mappings),
    TIGHT(one_mapping_goes_while_the_other_is_used),
    TIGHT(mapped_again_after_an_unmapping),
    RIGHT(a_value_that_is_awaited_elsewhere),
    {"written_by_a_kernel_that_says_so_late", written_by_a_kernel_that_says_so_late, NO_REPORT,
     STRATA_SIM_CHECK_UNWRITTEN, true},
    {"written_in_parts", written_in_parts, NO_REPORT, STRATA_SIM_CHECK_UNWRITTEN, true},
    {"a_global_variable_of_a_module", a_global_variable_of_a_module, NO_REPORT, STRATA_SIM_CHECK_UNWRITTEN, false},
};

enum { CORRECT = sizeof correct / sizeof correct[0] };

#endif
