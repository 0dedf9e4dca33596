/* Programs with one bug each, of every kind that the checker knows. Memory that may be freed when it is used is used by
 * a kernel that only declares its accesses: a real access could poison the device for the programs after it. */
#ifndef STRATA_TEST_PLANTED_BUGS_H
#define STRATA_TEST_PLANTED_BUGS_H

#include "planted/world.h"

/* ---- a read does not come after a write ---- */

static void no_wait_at_all(struct world *world)
{
    fill(world->a, world->x);
    copy(world->b, world->y, world->x);
}

/* The copy has returned: its bytes are staged. */
static void a_synchronous_copy_from_pageable_memory(struct world *world)
{
    static const char bytes[BYTES];
    OK(p_cuMemcpyHtoD(world->x, bytes, BYTES));
    copy(world->b, world->y, world->x);
}

static void a_synchronous_copy_of_rows_from_pageable_memory(struct world *world)
{
    static const char bytes[BYTES];
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = bytes,
                                .srcPitch = 64,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = world->x,
                                .dstPitch = 64,
                                .WidthInBytes = 32,
                                .Height = 2};
    OK(p_cuMemcpy2D(&rows));
    copy(world->b, world->y, world->x);
}

static void the_event_is_recorded_before_the_write(struct world *world)
{
    OK(p_cuEventRecord(world->event, world->a));
    fill(world->a, world->x);
    OK(p_cuStreamWaitEvent(world->b, world->event, 0));
    copy(world->b, world->y, world->x);
}

static void the_wrong_stream_waits(struct world *world)
{
    fill(world->a, world->x);
    hand_over(world->event, world->a, world->c);
    copy(world->b, world->y, world->x);
}

static void the_wait_is_for_another_event(struct world *world)
{
    OK(p_cuEventRecord(world->other, world->c));
    fill(world->a, world->x);
    OK(p_cuEventRecord(world->event, world->a));
    OK(p_cuStreamWaitEvent(world->b, world->other, 0));
    copy(world->b, world->y, world->x);
}

static void the_event_was_never_recorded(struct world *world)
{
    fill(world->a, world->x);
    OK(p_cuStreamWaitEvent(world->b, world->event, 0));
    copy(world->b, world->y, world->x);
}

/* B waits for A and hands on to C, but records for C before it waits. */
static void the_chain_is_recorded_too_early(struct world *world)
{
    fill(world->a, world->x);
    OK(p_cuEventRecord(world->event, world->a));
    OK(p_cuEventRecord(world->other, world->b));
    OK(p_cuStreamWaitEvent(world->b, world->event, 0));
    OK(p_cuStreamWaitEvent(world->c, world->other, 0));
    copy(world->c, world->y, world->x);
}

/* The event is recorded again, on another stream, before the wait. */
static void the_record_was_replaced(struct world *world)
{
    fill(world->a, world->x);
    OK(p_cuEventRecord(world->event, world->a));
    OK(p_cuEventRecord(world->event, world->c));
    OK(p_cuStreamWaitEvent(world->b, world->event, 0));
    copy(world->b, world->y, world->x);
}

/* A pool hands memory on to C, which waits for B alone; B's event was recorded before B waited for A. */
static void inherited_through_two_hand_overs_and_forgotten(struct world *world)
{
    fill(world->a, world->x);
    OK(p_cuEventRecord(world->event, world->a));
    OK(p_cuEventRecord(world->other, world->b));
    OK(p_cuStreamWaitEvent(world->b, world->event, 0));
    OK(p_cuStreamWaitEvent(world->c, world->other, 0));
    kernel(world, world->c, world->x, BYTES, READS);
}

static void non_blocking_streams_ignore_the_legacy_stream(struct world *world)
{
    fill(NULL, world->x);
    copy(world->a, world->y, world->x);
}

static void per_thread_fill(struct world *world)
{
    fill(CU_STREAM_PER_THREAD, world->x);
}

static void per_thread_streams_are_two(struct world *world)
{
    in_thread(world, per_thread_fill);
    copy(CU_STREAM_PER_THREAD, world->y, world->x);
}

static void a_kernel_writes_and_a_copy_reads(struct world *world)
{
    kernel(world, world->a, world->x, BYTES, WRITES);
    copy(world->b, world->y, world->x);
}

static void a_kernel_reads_what_a_copy_writes(struct world *world)
{
    fill(world->a, world->x);
    kernel(world, world->b, world->x + 100, 8, READS);
}

static void two_kernels(struct world *world)
{
    kernel(world, world->a, world->x, BYTES, UPDATES);
    hand_over(world->event, world->a, world->c);
    kernel(world, world->b, world->x, 16, READS);
}

static void ranges_overlap_in_one_byte(struct world *world)
{
    OK(p_cuMemsetD8Async(world->x, 1, 64, world->a));
    kernel(world, world->b, world->x + 63, 64, READS);
}

static void a_row_of_a_fill_in_two_dimensions(struct world *world)
{
    OK(p_cuMemsetD2D8Async(world->x, 512, 1, 100, 8, world->a));
    kernel(world, world->b, world->x + 3 * 512 + 99, 1, READS);
}

/* The new stream has the handle of a destroyed one, but not its order. */
static void a_stream_comes_back(struct world *world)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    fill(stream, world->x);
    OK(p_cuStreamDestroy(stream));
    CUstream again = new_stream(CU_STREAM_NON_BLOCKING);
    copy(again, world->y, world->x);
    OK(p_cuStreamDestroy(again));
}

/* The pool may give A's memory to B; that does not order A's other work. */
static void reuse_by_the_pool_is_no_order(struct world *world)
{
    fill(world->a, world->x);
    release(allocate(world->a), world->a);
    CUdeviceptr mine = allocate(world->b);
    copy(world->b, mine, world->x);
    release(mine, world->b);
}

static void the_host_reads_too_early(struct world *world)
{
    download(world, world->a, world->x);
    host_reads(world);
}

static void the_host_waits_for_the_wrong_stream(struct world *world)
{
    download(world, world->a, world->x);
    OK(p_cuStreamSynchronize(world->b));
    host_reads(world);
}

static void the_host_waits_for_an_earlier_record(struct world *world)
{
    OK(p_cuEventRecord(world->event, world->a));
    download(world, world->a, world->x);
    OK(p_cuEventSynchronize(world->event));
    host_reads(world);
}

/* ---- a write does not come after a read ---- */

static void the_source_is_overwritten(struct world *world)
{
    copy(world->a, world->y, world->x);
    fill(world->b, world->x);
}

static void only_one_of_two_readers_is_waited_for(struct world *world)
{
    kernel(world, world->b, world->x, BYTES, READS);
    kernel(world, world->c, world->x, BYTES, READS);
    hand_over(world->event, world->b, world->a);
    fill(world->a, world->x);
}

static void the_host_refills_a_buffer_too_early(struct world *world)
{
    upload(world, world->a, world->x);
    host_writes(world);
}

static void the_legacy_stream_does_not_wait_for_a_non_blocking_one(struct world *world)
{
    copy(world->a, world->y, world->x);
    fill(CU_STREAM_LEGACY, world->x);
}

/* ---- a write does not come after another ---- */

static void two_fills(struct world *world)
{
    fill(world->a, world->x);
    fill(world->b, world->x);
}

static void atomics_beside_a_plain_write(struct world *world)
{
    kernel(world, world->a, world->x, 16, ATOMICS);
    kernel(world, world->b, world->x, 16, ATOMICS);
    hand_over(world->event, world->b, world->c);
    kernel(world, world->c, world->x, 16, WRITES);
}

static void atomics_beside_a_read(struct world *world)
{
    kernel(world, world->a, world->x, 16, ATOMICS);
    download(world, world->b, world->x);
}

/* The kernel is ordered after the second fill, but not the first, which is no longer the last write when the kernel
 * declares what it writes. */
static void a_write_that_another_displaced(struct world *world)
{
    kernel(world, world->b, world->x, BYTES, WRITES);
    fill(world->a, world->x);
    hand_over(world->event, world->b, world->a);
    fill(world->a, world->x);
}

static void host_function_writes(void *data)
{
    host_writes(data);
}

static void a_host_function_races_with_a_copy(struct world *world)
{
    download(world, world->a, world->x);
    OK(p_cuLaunchHostFunc(world->b, host_function_writes, world));
}

static void a_kernel_and_a_host_function(struct world *world)
{
    OK(p_cuLaunchHostFunc(world->a, host_function_writes, world));
    kernel(world, world->b, (CUdeviceptr)(uintptr_t)world->pinned, 32, WRITES);
}

/* ---- the life of memory ---- */

static void used_on_another_stream_before_it_is_allocated(struct world *world)
{
    CUdeviceptr mine;
    OK(p_cuEventRecord(world->other, world->a));
    mine = allocate(world->a);
    OK(p_cuStreamWaitEvent(world->b, world->other, 0));
    kernel(world, world->b, mine, BYTES, WRITES);
    hand_over(world->event, world->b, world->a);
    release(mine, world->a);
}

static void a_kernel_uses_it_before_it_is_allocated(struct world *world)
{
    CUdeviceptr mine = allocate(world->a);
    kernel(world, world->b, mine, 8, UPDATES);
    hand_over(world->event, world->b, world->a);
    release(mine, world->a);
}

static void freed_on_another_stream_before_it_is_allocated(struct world *world)
{
    release(allocate(world->a), world->b);
}

static void plain_memory_freed_in_a_stream_while_another_uses_it(struct world *world)
{
    CUdeviceptr mine;
    OK(p_cuMemAlloc(&mine, BYTES));
    kernel(world, world->b, mine + 512, 512, WRITES);
    release(mine, world->a);
}

static void freed_while_a_kernel_uses_it(struct world *world)
{
    CUdeviceptr mine = allocate(world->a);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, mine, BYTES, READS);
    release(mine, world->a);
}

static void freed_on_another_stream_without_a_wait(struct world *world)
{
    CUdeviceptr mine = allocate(world->a);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->a, mine, BYTES, WRITES);
    release(mine, world->b);
}

/* cuMemFree of memory from a pool waits for the allocation only. */
static void freed_by_the_host_while_it_is_used(struct world *world)
{
    CUdeviceptr mine = allocate(world->a);
    OK(p_cuStreamSynchronize(world->a));
    kernel(world, world->b, mine, BYTES, WRITES);
    OK(p_cuMemFree(mine));
    trim();
}

static void a_kernel_uses_freed_memory(struct world *world)
{
    CUdeviceptr mine = allocate(world->a);
    release(mine, world->a);
    kernel(world, world->a, mine, BYTES, READS);
}

static void a_kernel_uses_memory_that_the_host_freed(struct world *world)
{
    CUdeviceptr mine;
    OK(p_cuMemAlloc(&mine, BYTES));
    OK(p_cuMemFree(mine));
    kernel(world, world->a, mine + 40, 8, WRITES);
}

static void the_host_uses_freed_pinned_memory(struct world *world)
{
    void *mine;
    (void)world;
    OK(p_cuMemHostAlloc(&mine, BYTES, 0));
    OK(p_cuMemFreeHost(mine));
    OK(p_host_write(mine, 1));
}

static void a_kernel_writes_behind_the_end(struct world *world)
{
    kernel(world, world->a, world->x + BYTES - 8, 16, WRITES);
}

static void a_kernel_has_a_wild_address(struct world *world)
{
    kernel(world, world->a, 64, 16, READS);
}

/* ---- memory that is mapped at two addresses ---- */

static void written_here_and_read_through_another_mapping(struct world *world)
{
    struct twice memory = map_twice();
    fill(world->a, memory.one + 512);
    copy(world->b, world->y, memory.two + 512);
    OK(p_cuCtxSynchronize());
    unmap_twice(&memory);
}

/* The kernel declares its read after the fill was checked. */
static void a_kernel_reads_what_is_filled_through_another_mapping(struct world *world)
{
    struct twice memory = map_twice();
    kernel(world, world->a, memory.one, 64, READS);
    OK(p_cuMemsetD8Async(memory.two + 63, 1, 64, world->b));
    OK(p_cuCtxSynchronize());
    unmap_twice(&memory);
}

/* A later fill, ordered after both, replaces the racing access before the kernel runs. */
static void a_write_through_another_mapping_that_another_displaced(struct world *world)
{
    struct twice memory = map_twice();
    kernel(world, world->a, memory.one, BYTES, READS);
    fill(world->b, memory.two);
    hand_over(world->event, world->a, world->c);
    hand_over(world->other, world->b, world->c);
    fill(world->c, memory.two);
    OK(p_cuCtxSynchronize());
    unmap_twice(&memory);
}

static void the_other_mapping_is_gone_when_the_kernel_runs(struct world *world)
{
    struct twice memory = map_twice();
    kernel(world, world->a, memory.one, BYTES, READS);
    fill(world->b, memory.two);
    OK(p_cuStreamSynchronize(world->b));
    unmap(memory.two);
    OK(p_cuCtxSynchronize());
    unmap(memory.one);
    release_twice(&memory);
}

static void two_writes_to_memory_that_was_exported_and_imported(struct world *world)
{
    struct twice memory = map_shared();
    fill(world->a, memory.one);
    fill(world->b, memory.two);
    OK(p_cuCtxSynchronize());
    unmap_twice(&memory);
}

/* The fill through the second mapping comes after the kernel, but does not order the unmapping of the first mapping
 * after it. */
static void unmapped_here_after_a_wait_for_nothing(struct world *world)
{
    struct twice memory = map_twice();
    kernel(world, world->a, memory.one, BYTES, WRITES);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, memory.two, BYTES, WRITES);
    unmap(memory.one);
    OK(p_cuCtxSynchronize());
    unmap(memory.two);
    release_twice(&memory);
}

/* ---- reads of bytes that were never written ---- */

static void a_copy_of_fresh_memory(struct world *world)
{
    copy(world->a, world->y, world->x);
}

static void half_of_it_is_written(struct world *world)
{
    OK(p_cuMemsetD8Async(world->x, 1, BYTES / 2, world->a));
    kernel(world, world->a, world->x, BYTES, READS);
}

static void it_is_written_only_afterwards(struct world *world)
{
    kernel(world, world->a, world->x, BYTES, READS);
    fill(world->a, world->x);
}

static void what_an_earlier_user_of_the_memory_wrote(struct world *world)
{
    CUdeviceptr mine = allocate(world->a);
    fill(world->a, mine);
    release(mine, world->a);
    mine = allocate(world->a);
    copy(world->a, world->x, mine);
    release(mine, world->a);
}

/* The host writes when it no longer holds the stream back. */
static void the_host_writes_after_it_let_the_kernel_go_on(struct world *world)
{
    shut_gate(world, world->a);
    OK(p_cuEventRecord(world->event, world->a));
    kernel(world, world->a, (CUdeviceptr)(uintptr_t)world->pinned, BYTES, WRITES);
    open_gate(world);
    OK(p_cuEventSynchronize(world->event));
    host_writes(world);
}

#define BUG(function, kind)                                     \
    {                                                           \
#function, function, STRATA_SIM_REPORT_##kind, 0, false \
    }
#define BUG_IN(function, kind, mode)                                                  \
    {                                                                                 \
#function, function, STRATA_SIM_REPORT_##kind, STRATA_SIM_CHECK_##mode, false \
    }

static const struct program bugs[] = {
    BUG(no_wait_at_all, WRITE_READ),
    BUG(a_synchronous_copy_from_pageable_memory, WRITE_READ),
    BUG(a_synchronous_copy_of_rows_from_pageable_memory, WRITE_READ),
    BUG(the_event_is_recorded_before_the_write, WRITE_READ),
    BUG(the_wrong_stream_waits, WRITE_READ),
    BUG(the_wait_is_for_another_event, WRITE_READ),
    BUG(the_event_was_never_recorded, WRITE_READ),
    BUG(the_chain_is_recorded_too_early, WRITE_READ),
    BUG(the_record_was_replaced, WRITE_READ),
    BUG(inherited_through_two_hand_overs_and_forgotten, WRITE_READ),
    BUG(non_blocking_streams_ignore_the_legacy_stream, WRITE_READ),
    BUG(per_thread_streams_are_two, WRITE_READ),
    BUG(a_kernel_writes_and_a_copy_reads, WRITE_READ),
    BUG(a_kernel_reads_what_a_copy_writes, WRITE_READ),
    BUG(two_kernels, WRITE_READ),
    BUG(ranges_overlap_in_one_byte, WRITE_READ),
    BUG(a_row_of_a_fill_in_two_dimensions, WRITE_READ),
    BUG(a_stream_comes_back, WRITE_READ),
    BUG(reuse_by_the_pool_is_no_order, WRITE_READ),
    BUG(the_host_reads_too_early, WRITE_READ),
    BUG(the_host_waits_for_the_wrong_stream, WRITE_READ),
    BUG(the_host_waits_for_an_earlier_record, WRITE_READ),
    BUG(the_source_is_overwritten, READ_WRITE),
    BUG(only_one_of_two_readers_is_waited_for, READ_WRITE),
    BUG(the_host_refills_a_buffer_too_early, READ_WRITE),
    BUG(the_legacy_stream_does_not_wait_for_a_non_blocking_one, READ_WRITE),
    BUG(two_fills, WRITE_WRITE),
    BUG(atomics_beside_a_plain_write, WRITE_WRITE),
    BUG(atomics_beside_a_read, WRITE_READ),
    BUG(a_write_that_another_displaced, WRITE_WRITE),
    BUG(a_host_function_races_with_a_copy, WRITE_WRITE),
    BUG_IN(a_kernel_and_a_host_function, WRITE_WRITE, HOST_FUNCTIONS),
    BUG(used_on_another_stream_before_it_is_allocated, USE_BEFORE_ALLOCATION),
    BUG(a_kernel_uses_it_before_it_is_allocated, USE_BEFORE_ALLOCATION),
    BUG(freed_on_another_stream_before_it_is_allocated, USE_BEFORE_ALLOCATION),
    BUG(plain_memory_freed_in_a_stream_while_another_uses_it, FREE_IN_USE),
    BUG(freed_while_a_kernel_uses_it, FREE_IN_USE),
    BUG(freed_on_another_stream_without_a_wait, FREE_IN_USE),
    BUG(freed_by_the_host_while_it_is_used, FREE_IN_USE),
    BUG(the_host_writes_after_it_let_the_kernel_go_on, WRITE_WRITE),
    BUG(a_kernel_uses_freed_memory, USE_AFTER_FREE),
    BUG(a_kernel_uses_memory_that_the_host_freed, USE_AFTER_FREE),
    BUG(the_host_uses_freed_pinned_memory, USE_AFTER_FREE),
    BUG(a_kernel_writes_behind_the_end, OUTSIDE),
    BUG(a_kernel_has_a_wild_address, OUTSIDE),
    BUG(written_here_and_read_through_another_mapping, WRITE_READ),
    BUG(a_kernel_reads_what_is_filled_through_another_mapping, READ_WRITE),
    BUG(a_write_through_another_mapping_that_another_displaced, READ_WRITE),
    BUG(the_other_mapping_is_gone_when_the_kernel_runs, READ_WRITE),
    BUG(two_writes_to_memory_that_was_exported_and_imported, WRITE_WRITE),
    BUG(unmapped_here_after_a_wait_for_nothing, FREE_IN_USE),
    BUG_IN(a_copy_of_fresh_memory, UNWRITTEN, UNWRITTEN),
    BUG_IN(half_of_it_is_written, UNWRITTEN, UNWRITTEN),
    BUG_IN(it_is_written_only_afterwards, UNWRITTEN, UNWRITTEN),
    BUG_IN(what_an_earlier_user_of_the_memory_wrote, UNWRITTEN, UNWRITTEN),
};

#endif
