/* strata_malloc and strata_free: memory for code that has no stream, of the process's runtime; and which runtime has an
 * address. */
#include "support/captures.h"
#include "support/child.h"
#include "support/effort.h"
#include "support/faults.h"
#include "support/stall.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 1 << 20, SMALL = 4096 };

static strata_runtime *process_runtime(void)
{
    strata_runtime *runtime;
    check_ok(strata_runtime_get(0, &runtime));
    return runtime;
}

static size_t live_blocks(void)
{
    strata_usage usage;
    check_ok(strata_runtime_usage(process_runtime(), &usage));
    return usage.live_blocks;
}

static CUstream new_stream(void)
{
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void *allocated(size_t bytes)
{
    void *memory;
    check_ok(strata_malloc(&memory, bytes));
    assert_non_null(memory);
    return memory;
}

static CUdeviceptr address_of(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

static void fill(const void *memory, unsigned char value, CUstream stream)
{
    check_cu(test_cu()->MemsetD8Async(address_of(memory), value, BYTES, stream));
}

/* Once all streams have finished. */
static size_t count_wrong(const void *memory, unsigned char value)
{
    unsigned char *host = test_malloc(BYTES);
    size_t wrong = 0;
    check_cu(test_cu()->CtxSynchronize());
    check_cu(test_cu()->MemcpyDtoHAsync(host, address_of(memory), BYTES, CU_STREAM_LEGACY));
    check_cu(test_cu()->CtxSynchronize());
    for (size_t i = 0; i < BYTES; i++)
        wrong += host[i] != value;
    test_free(host);
    return wrong;
}

/* ---- orders ---- */

/* The memory's last user is a stream that has not finished: whichever stream begins with the memory, and without a word
 * to Strata, comes after it. */
static void check_fresh_memory_on(CUstream stream)
{
    strata_runtime *runtime = process_runtime();
    strata_block block;
    CUstream other;
    check_ok(strata_runtime_stream_acquire(runtime, &other));
    check_ok(strata_runtime_allocate(runtime, BYTES, other, &block));
    fill((void *)(uintptr_t)block.address, 7, other);
    check_ok(strata_runtime_deallocate(runtime, &block));
    void *memory = allocated(BYTES);
    fill(memory, 9, stream);
    check_cu(test_cu()->StreamSynchronize(stream));
    assert_int_equal(count_wrong(memory, 9), 0);
    check_ok(strata_free(memory));
    check_ok(strata_runtime_stream_release(runtime, other));
}

/* The stream's work is under way when its memory is freed; other streams take the memory then. */
static void check_freed_memory_of(CUstream stream, CUstream other)
{
    void *memory = allocated(BYTES), *next;
    fill(memory, 7, stream);
    check_ok(strata_free(memory));
    memory = allocated(BYTES);
    check_ok(strata_malloc_on(&next, BYTES, other));
    fill(memory, 9, other);
    fill(next, 9, other);
    check_cu(test_cu()->StreamSynchronize(other));
    assert_int_equal(count_wrong(memory, 9), 0);
    assert_int_equal(count_wrong(next, 9), 0);
    check_ok(strata_free(memory));
    check_ok(strata_free_on(next, other));
}

static void any_stream_may_use_the_memory_at_once(void **state)
{
    (void)state;
    CUstream stream = new_stream();
    check_fresh_memory_on(stream);
    check_fresh_memory_on(CU_STREAM_LEGACY);
    check_fresh_memory_on(CU_STREAM_PER_THREAD);
    check_cu(test_cu()->StreamDestroy(stream));
}

static void any_stream_may_still_use_the_memory_at_its_free(void **state)
{
    (void)state;
    CUstream stream = new_stream(), other = new_stream();
    check_freed_memory_of(stream, other);
    check_freed_memory_of(CU_STREAM_LEGACY, other);
    check_freed_memory_of(CU_STREAM_PER_THREAD, stream);
    check_cu(test_cu()->StreamDestroy(stream));
    check_cu(test_cu()->StreamDestroy(other));
}

static void a_free_on_a_stream_is_ordered_with_it_and_waits_for_nothing(void **state)
{
    (void)state;
    CUstream stream = new_stream();
    strata_usage usage;
    void *memory = allocated(BYTES), *next;
    check_ok(strata_runtime_usage(process_runtime(), &usage));
    const bool ordered = strata_resource_capabilities(strata_stack_top(strata_runtime_stack(process_runtime()))) &
                         STRATA_CAPABILITY_STREAM_ORDERED;
    test_stall *stall = ordered ? test_stall_begin(stream) : NULL;
    fill(memory, 7, stream);
    check_ok(strata_free_on(memory, stream));
    if (stall)
        test_stall_end(stall); /* fails if the free has waited for it */
    next = allocated(BYTES);
    fill(next, 9, CU_STREAM_LEGACY);
    assert_int_equal(count_wrong(next, 9), 0);
    check_ok(strata_free(next));
    check_cu(test_cu()->StreamDestroy(stream));
}

static void memory_for_a_stream_is_freed_by_either_call(void **state)
{
    (void)state;
    CUstream stream = new_stream();
    void *first, *second;
    check_ok(strata_malloc_on(&first, BYTES, stream));
    check_ok(strata_malloc_on(&second, BYTES, stream));
    fill(first, 1, stream);
    fill(second, 2, stream);
    check_ok(strata_free(first));
    check_ok(strata_free_on(second, stream));
    check_cu(test_cu()->StreamSynchronize(stream));
    check_cu(test_cu()->StreamDestroy(stream));
}

/* ---- sizes and refusals ---- */

static void no_bytes_are_no_memory(void **state)
{
    (void)state;
    void *memory = &memory;
    check_ok(strata_malloc(&memory, 0));
    assert_null(memory);
    memory = &memory;
    check_ok(strata_malloc_on(&memory, 0, NULL));
    assert_null(memory);
    check_ok(strata_free(NULL));
    check_ok(strata_free_on(NULL, NULL));
    check_status(strata_malloc(NULL, SMALL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_malloc_on(NULL, SMALL, NULL), STRATA_ERROR_INVALID_VALUE);
    memory = &memory;
    check_status(strata_malloc(&memory, (size_t)1 << 60), STRATA_ERROR_OUT_OF_MEMORY);
    assert_null(memory);
}

static void memory_is_aligned_as_cudas(void **state)
{
    (void)state;
    enum { COUNT = 24 };
    void *memory[COUNT];
    strata_block block;
    const strata_request request = {.bytes = SMALL, .alignment = 512};
    const strata_status aligns = strata_runtime_allocate_request(process_runtime(), &request, &block);
    if (aligns == STRATA_SUCCESS)
        check_ok(strata_runtime_deallocate(process_runtime(), &block));
    for (size_t i = 0; i < COUNT; i++) {
        memory[i] = allocated(1 + 131 * i);
        assert_int_equal(address_of(memory[i]) % (aligns == STRATA_SUCCESS ? 512 : 256), 0);
    }
    for (size_t i = 0; i < COUNT; i++)
        check_ok(strata_free(memory[i]));
}

static void check_refused(void *address, const char *words)
{
    check_status(strata_free(address), STRATA_ERROR_FOREIGN_POINTER);
    check_last_error(STRATA_ERROR_FOREIGN_POINTER, words);
    check_status(strata_free_on(address, NULL), STRATA_ERROR_FOREIGN_POINTER);
    check_last_error(STRATA_ERROR_FOREIGN_POINTER, words);
}

static void what_strata_does_not_hold_is_never_freed(void **state)
{
    (void)state;
    CUdeviceptr foreign;
    int on_host;
    void *memory = allocated(SMALL);
    const size_t live = live_blocks();
    check_refused((char *)memory + 256, "inside of block");
    check_refused((char *)memory + 1, "inside of block");
    assert_int_equal(live_blocks(), live);
    check_ok(strata_free(memory));
    check_refused(memory, "no live block of this process begins at");
    check_refused(&on_host, "no live block of this process begins at");
    check_cu(test_cu()->MemAlloc(&foreign, SMALL));
    check_refused((void *)(uintptr_t)foreign, "no live block of this process begins at");
    check_cu(test_cu()->MemFree(foreign)); /* it was left alone */
}

static unsigned findings_of(strata_runtime *runtime)
{
    strata_guard_finding finding;
    unsigned count = 0;
    while (strata_guard_take_finding(strata_stack_top(strata_runtime_stack(runtime)), &finding))
        count += finding.kind == STRATA_GUARD_DOUBLE_FREE && finding.freed;
    return count;
}

/* Only the guard that knows the first free reports the second. */
static void a_second_free_is_a_finding_of_the_guard_that_knows_the_first(void **state)
{
    (void)state;
    strata_runtime *own, *other;
    strata_block block;
    int on_host;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard, pool"}, &own));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard, async"}, &other));
    check_ok(strata_runtime_allocate(own, SMALL, NULL, &block));
    check_ok(strata_free((void *)(uintptr_t)block.address));
    check_refused((void *)(uintptr_t)block.address, "freed already");
    assert_int_equal(findings_of(own), 2);
    assert_int_equal(findings_of(other), 0);
    check_refused(&on_host, "freed already");
    assert_int_equal(findings_of(own) + findings_of(other), 0);
    check_ok(strata_runtime_destroy(own));
    check_ok(strata_runtime_destroy(other));
}

static void a_block_with_a_prepared_use_stays(void **state)
{
    (void)state;
    strata_runtime *runtime = process_runtime();
    void *memory = allocated(SMALL);
    strata_block block;
    check_ok(strata_runtime_find(runtime, address_of(memory), &block));
    check_ok(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_READ));
    check_status(strata_free(memory), STRATA_ERROR_BLOCK_IN_USE);
    check_ok(strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_NONE));
    check_ok(strata_free(memory));
}

static void a_failed_wait_leaves_the_block_live(void **state)
{
    (void)state;
    void *memory = allocated(SMALL);
    const size_t live = live_blocks();
    test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_LAUNCH_FAILED);
    const strata_status status = strata_free(memory);
    assert_int_equal(test_fault_end(), 1);
    check_status(status, STRATA_ERROR_DRIVER);
    assert_int_equal(strata_status_to_cuda(status), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(live_blocks(), live);
    check_ok(strata_free(memory));
    assert_int_equal(live_blocks(), live - 1);
}

static void memory_that_cannot_be_waited_for_is_not_handed_out(void **state)
{
    (void)state;
    const size_t live = live_blocks();
    void *memory = &memory;
    check_ok(strata_free(allocated(SMALL))); /* makes what the call below needs */
    test_fault_begin(TEST_FAULT_STREAM_SYNCHRONIZE, 1, true, CUDA_ERROR_LAUNCH_FAILED);
    const strata_status status = strata_malloc(&memory, SMALL);
    assert_true(test_fault_end() > 0);
    check_status(status, STRATA_ERROR_DRIVER);
    assert_null(memory);
    check_ok(strata_free(allocated(SMALL))); /* frees it, where its own free failed, too */
    assert_int_equal(live_blocks(), live);
}

/* Whatever fails, a call either does its work or leaves nothing; what it could not undo, the next one does. */
static void every_driver_call_may_fail_once(void **state)
{
    (void)state;
    const size_t live = live_blocks();
    unsigned failed = 0;
    for (test_fault_call call = 0; call < TEST_FAULT_CALLS; call++)
        for (unsigned nth = 1; nth <= 3; nth++) {
            void *memory = NULL;
            test_fault_begin(call, nth, false, CUDA_ERROR_OUT_OF_MEMORY);
            const strata_status made = strata_malloc(&memory, (size_t)3 << 20);
            const strata_status freed = made == STRATA_SUCCESS ? strata_free(memory) : STRATA_SUCCESS;
            failed += test_fault_end();
            assert_true((made == STRATA_SUCCESS) == (memory != NULL));
            if (freed != STRATA_SUCCESS)
                check_ok(strata_free(memory));
            check_ok(strata_free(allocated(SMALL)));
            assert_int_equal(live_blocks(), live);
        }
    assert_true(failed > 0);
}

/* ---- captures ---- */

static void captures_go_on(void **state)
{
    (void)state;
    CUstream stream = new_stream();
    void *before = allocated(BYTES), *memory = NULL;
    test_begin_capture(stream);
    const strata_status allocated_inside = strata_malloc(&memory, BYTES);
    const strata_status freed_inside = strata_free(memory);
    const strata_status freed_before = strata_free(before);
    assert_int_equal(test_end_capture(stream), 0); /* valid, and as it was */
    check_ok(allocated_inside);
    check_ok(freed_inside);
    check_ok(freed_before);
    check_cu(test_cu()->StreamDestroy(stream));
}

/* A driver that refuses the wait for the sake of a capture. */
static void a_free_that_a_capture_bars_is_done_by_a_later_call(void **state)
{
    (void)state;
    const size_t live = live_blocks();
    void *memory = allocated(SMALL), *other = allocated(SMALL);
    test_fault_begin(TEST_FAULT_FREE, 1, true, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const strata_status first = strata_free(memory), second = strata_free(other), again = strata_free(memory);
    const bool held = strata_holds(memory);
    assert_true(test_fault_end() >= 2);
    check_ok(first);
    check_ok(second);
    check_status(again, STRATA_ERROR_DOUBLE_FREE);
    assert_true(held);
    assert_int_equal(live_blocks(), live + 2);
    memory = allocated(SMALL);
    assert_int_equal(live_blocks(), live + 1);
    check_ok(strata_free(memory));
    assert_int_equal(live_blocks(), live);
}

/* The program frees such a block otherwise, and ends its runtime. */
static void a_free_to_come_outlives_neither_the_block_nor_its_runtime(void **state)
{
    (void)state;
    strata_runtime *own;
    strata_block block, other;
    check_ok(strata_runtime_create(NULL, &own));
    check_ok(strata_runtime_allocate(own, SMALL, NULL, &block));
    check_ok(strata_runtime_allocate(own, SMALL, NULL, &other));
    test_fault_begin(TEST_FAULT_FREE, 1, true, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const strata_status first = strata_free((void *)(uintptr_t)block.address);
    const strata_status second = strata_free((void *)(uintptr_t)other.address);
    test_fault_end();
    check_ok(first);
    check_ok(second);
    check_ok(strata_runtime_deallocate(own, &block));
    check_ok(strata_runtime_destroy(own)); /* frees the other one */
    check_ok(strata_free(allocated(SMALL)));
}

/* Abandoned, with a reference. */
static void a_free_to_come_keeps_no_runtime_from_being_abandoned(void **state)
{
    (void)state;
    strata_runtime *own;
    strata_block block;
    strata_ref *ref;
    check_ok(strata_runtime_create(NULL, &own));
    check_ok(strata_ref_allocate(own, STRATA_ELEMENT_U8, SMALL, false, NULL, &ref));
    check_ok(strata_runtime_allocate(own, SMALL, NULL, &block));
    test_fault_begin(TEST_FAULT_FREE, 1, true, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const strata_status freed = strata_free((void *)(uintptr_t)block.address);
    test_fault_end();
    const strata_status abandoned = strata_runtime_abandon(own);
    check_ok(strata_ref_release(ref));
    check_ok(freed);
    check_ok(abandoned);
}

/* A thread that tries what another one has freed, and is held up in the driver. */
typedef struct trier {
    sem_t begun;
    strata_status status;
} trier;

static trier *held_up; /* its thread is the first to free, which waits for the device */
static __typeof__(strata_cu.MemFree) real_free;

static CUresult CUDAAPI free_after_a_while(CUdeviceptr address)
{
    static _Atomic unsigned calls;
    if (atomic_fetch_add(&calls, 1) == 0) {
        sem_post(&held_up->begun);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return real_free(address);
}

static void *try_frees(void *data)
{
    trier *self = data;
    void *memory;
    self->status = strata_malloc(&memory, SMALL);
    if (self->status == STRATA_SUCCESS)
        self->status = strata_free(memory);
    return NULL;
}

static void a_free_that_another_thread_tries_is_still_to_come(void **state)
{
    (void)state;
    strata_runtime *own;
    strata_block block;
    trier other;
    pthread_t thread;
    check_ok(strata_free(allocated(SMALL)));
    check_ok(strata_runtime_create(NULL, &own));
    check_ok(strata_runtime_allocate(own, SMALL, NULL, &block));
    void *memory = (void *)(uintptr_t)block.address;
    test_fault_begin(TEST_FAULT_FREE, 1, true, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const strata_status freed = strata_free(memory);
    test_fault_end();
    assert_int_equal(sem_init(&other.begun, 0, 0), 0);
    held_up = &other;
    real_free = strata_cu.MemFree;
    strata_cu.MemFree = free_after_a_while;
    assert_int_equal(pthread_create(&thread, NULL, try_frees, &other), 0);
    sem_wait(&other.begun);
    const strata_status again = strata_free(memory), destroyed = strata_runtime_destroy(own);
    pthread_join(thread, NULL);
    strata_cu.MemFree = real_free;
    sem_destroy(&other.begun);
    check_ok(freed);
    check_status(again, STRATA_ERROR_DOUBLE_FREE);
    check_ok(destroyed);
    check_ok(other.status);
}

/* ---- the runtime of an address ---- */

static void an_address_leads_to_its_runtime(void **state)
{
    (void)state;
    strata_runtime *own, *found;
    strata_block block;
    void *memory = allocated(SMALL);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard, pool"}, &own));
    check_ok(strata_runtime_allocate(own, SMALL, NULL, &block));
    check_ok(strata_runtime_of_address(address_of(memory) + SMALL - 1, &found));
    assert_ptr_equal(found, process_runtime());
    check_ok(strata_runtime_of_address(block.address + 5, &found));
    assert_ptr_equal(found, own);
    assert_true(strata_holds((void *)(uintptr_t)block.address));
    check_ok(strata_free((void *)(uintptr_t)block.address));
    check_status(strata_runtime_of_address(block.address, &found), STRATA_ERROR_FOREIGN_POINTER);
    assert_null(found);
    assert_false(strata_holds((void *)(uintptr_t)block.address));
    check_status(strata_runtime_of_address(block.address, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_of_address(0, &found), STRATA_ERROR_FOREIGN_POINTER);
    assert_false(strata_holds(NULL));
    check_ok(strata_runtime_destroy(own));
    check_ok(strata_free(memory));
}

/* The driver would free the whole chunk, with the other block. */
static void a_freed_block_of_a_chunk_is_held(void **state)
{
    (void)state;
    static const char *const stacks[] = {"pool, direct", "statistics, pool, async", "binning, direct"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        strata_runtime *own, *found;
        strata_block blocks[2];
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stacks[i]}, &own));
        for (int b = 0; b < 2; b++)
            check_ok(strata_runtime_allocate(own, SMALL, NULL, &blocks[b]));
        check_ok(strata_runtime_deallocate(own, &blocks[0]));
        assert_true(strata_holds((void *)(uintptr_t)blocks[0].address));
        check_status(strata_runtime_of_address(blocks[0].address, &found), STRATA_ERROR_FOREIGN_POINTER);
        check_refused((void *)(uintptr_t)blocks[0].address, "freed already");
        check_ok(strata_runtime_deallocate(own, &blocks[1]));
        check_ok(strata_runtime_destroy(own));
        assert_false(strata_holds((void *)(uintptr_t)blocks[0].address));
    }
}

static void child_frees_a_block_of_a_chunk(void)
{
    strata_runtime *runtime;
    strata_block blocks[2];
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime));
    for (int i = 0; i < 2; i++)
        child_ok(strata_runtime_allocate(runtime, SMALL, NULL, &blocks[i]));
    child_ok(strata_runtime_deallocate(runtime, &blocks[0]));
    child_check(strata_holds((void *)(uintptr_t)blocks[0].address));
    child_ok(strata_runtime_deallocate(runtime, &blocks[1]));
    child_ok(strata_runtime_destroy(runtime));
    child_check(!strata_holds((void *)(uintptr_t)blocks[0].address));
}

/* Where chunks are the driver's own allocations. */
static void a_freed_block_is_held_on_a_device_without_virtual_memory(void **state)
{
    (void)state;
    test_needs_simulated_driver("an H200 has virtual memory management");
    test_child_run("child_frees_a_block_of_a_chunk", (const char *const[]){"STRATA_SIM_LACKS=virtual-memory", NULL});
}

typedef struct searcher {
    void *memory;
    _Atomic bool *stop;
    unsigned found, wrong;
} searcher;

static void *search(void *data)
{
    searcher *self = data;
    strata_runtime *found;
    while (!atomic_load(self->stop)) {
        self->wrong += strata_runtime_of_address(address_of(self->memory), &found) != STRATA_SUCCESS;
        self->wrong += strata_holds((char *)self->memory + ((size_t)1 << 50));
        self->found++;
    }
    return NULL;
}

static void runtimes_come_and_go_while_addresses_are_looked_for(void **state)
{
    (void)state;
    _Atomic bool stop = false;
    searcher searchers[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        searchers[i] = (searcher){.memory = allocated(SMALL), .stop = &stop};
        assert_int_equal(pthread_create(&threads[i], NULL, search, &searchers[i]), 0);
    }
    const size_t rounds = test_effort(60, 8);
    for (size_t i = 0; i < rounds; i++) {
        strata_runtime *own, *found;
        strata_block block;
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = i % 2 ? "pool" : "async"}, &own));
        check_ok(strata_runtime_allocate(own, SMALL, NULL, &block));
        check_ok(strata_runtime_of_address(block.address, &found));
        assert_ptr_equal(found, own);
        check_ok(strata_runtime_deallocate_on(own, &block, NULL));
        check_ok(strata_runtime_destroy(own));
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(searchers[i].wrong, 0);
        check_ok(strata_free(searchers[i].memory));
    }
}

/* ---- threads ---- */

enum { ROUNDS = 40, THREADS = 4 };

static void *allocate_and_free(void *failed)
{
    CUstream stream;
    test_make_current();
    if (test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return failed;
    const size_t rounds = test_effort(ROUNDS, 5);
    for (size_t i = 0; i < rounds; i++) {
        void *memory[3] = {NULL};
        for (size_t j = 0; j < 3; j++)
            if (strata_malloc(&memory[j], (size_t)SMALL << (i + j) % 5) != STRATA_SUCCESS ||
                test_cu()->MemsetD8Async(address_of(memory[j]), 3, SMALL, stream) != CUDA_SUCCESS)
                return failed;
        for (size_t j = 0; j < 3; j++)
            if ((i % 2 ? strata_free(memory[j]) : strata_free_on(memory[j], stream)) != STRATA_SUCCESS)
                return failed;
    }
    return test_cu()->StreamDestroy(stream) == CUDA_SUCCESS ? NULL : failed;
}

static void threads_allocate_and_free_at_the_same_time(void **state)
{
    (void)state;
    const size_t live = live_blocks();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &threads), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(live_blocks(), live);
}

/* ---- contexts ---- */

static void a_thread_without_a_context_gets_the_first_device(void **state)
{
    (void)state;
    CUcontext before, now;
    void *memory = NULL;
    check_cu(test_cu()->CtxGetCurrent(&before));
    check_cu(test_cu()->CtxSetCurrent(NULL));
    const strata_status status = strata_malloc(&memory, SMALL);
    check_cu(test_cu()->CtxGetCurrent(&now));
    check_cu(test_cu()->CtxSetCurrent(before));
    check_ok(status);
    assert_ptr_equal(now, before);
    check_ok(strata_free(memory));
}

static void another_context_than_the_primary_one_is_refused(void **state)
{
    (void)state;
    CUresult (*create)(CUcontext *, unsigned, CUdevice), (*destroy)(CUcontext);
    CUcontext before, other;
    void *memory;
    test_find_driver_call("cuCtxCreate", 3020, &create);
    test_find_driver_call("cuCtxDestroy", 4000, &destroy);
    check_cu(test_cu()->CtxGetCurrent(&before));
    if (create(&other, 0, 0) != CUDA_SUCCESS) {
        print_message("skipped: the driver makes no other context\n");
        skip();
    }
    const strata_status status = strata_malloc(&memory, SMALL);
    const strata_status information = strata_memory_info(NULL, NULL);
    check_cu(destroy(other));
    check_cu(test_cu()->CtxSetCurrent(before));
    check_status(status, STRATA_ERROR_UNSUPPORTED);
    check_status(information, STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "cuCtxSetCurrent");
}

/* ---- a process of its own ---- */

static void child_memory_info_is_the_budgets(void)
{
    size_t free_bytes, total, later;
    void *memory;
    test_open_driver_quietly();
    child_ok(strata_memory_info(&free_bytes, &total));
    child_check(total == (size_t)64 << 20);
    child_check(free_bytes == total);
    child_ok(strata_malloc(&memory, (size_t)16 << 20));
    child_ok(strata_memory_info(&later, NULL));
    child_check(later == free_bytes - ((size_t)16 << 20));
    child_status(strata_malloc(&memory, (size_t)64 << 20), STRATA_ERROR_OUT_OF_BUDGET);
    child_check(strata_status_to_cuda(STRATA_ERROR_OUT_OF_BUDGET) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void memory_info_is_that_of_the_budget(void **state)
{
    (void)state;
    test_child_run("child_memory_info_is_the_budgets",
                   (const char *const[]){"STRATA_STACK=budget(limit=64MiB), pool", NULL});
}

/* The driver is asked by each call, and answers that a free is complete soon after its wait. */
static void child_memory_info_counts_complete_frees(void)
{
    size_t free_bytes, total;
    void *memory;
    test_open_driver_quietly();
    child_ok(strata_malloc(&memory, (size_t)16 << 20));
    child_ok(strata_free(memory));
    int calls = 0;
    do
        child_ok(strata_memory_info(&free_bytes, &total));
    while (free_bytes < total && ++calls < 100000);
    child_check(free_bytes == total && total == (size_t)64 << 20);
}

static void memory_info_counts_complete_frees(void **state)
{
    (void)state;
    test_child_run("child_memory_info_counts_complete_frees",
                   (const char *const[]){"STRATA_STACK=budget(limit=64MiB), async", "STRATA_SIM_POLICY=early", NULL});
}

static void child_memory_comes_from_each_branch(void)
{
    void *first, *second, *none;
    test_open_driver_quietly();
    child_ok(strata_malloc(&first, (size_t)48 << 20));
    child_ok(strata_malloc(&second, (size_t)48 << 20)); /* of managed, which aligns to less than cudaMalloc */
    child_check(address_of(second) % 512 == 0);
    child_status(strata_malloc(&none, (size_t)48 << 20), STRATA_ERROR_OUT_OF_BUDGET);
    child_ok(strata_free(first));
    child_ok(strata_free(second));
}

static void memory_comes_from_each_branch_of_a_fallback(void **state)
{
    (void)state;
    test_child_run(
        "child_memory_comes_from_each_branch",
        (const char *const[]){"STRATA_STACK=budget(limit=120MiB), fallback(pool(max_size=64MiB) | managed)", NULL});
}

static strata_status take_of_process(CUdeviceptr *address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    void *memory;
    const strata_status status = strata_malloc_on(&memory, bytes, stream);
    (void)alignment, (void)data;
    *address = address_of(memory);
    return status;
}

static strata_status give_to_process(CUdeviceptr address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    (void)bytes, (void)alignment, (void)data;
    return strata_free_on((void *)(uintptr_t)address, stream);
}

static strata_runtime *runtime_over_the_process_s(bool pooled)
{
    const strata_callback_options options = {
        .allocate = take_of_process, .deallocate = give_to_process, .stream_ordered = true};
    strata_resource *layers[2];
    strata_stack *stack;
    strata_runtime *made;
    child_ok(strata_pool_create(0, NULL, &layers[0]));
    child_ok(strata_callback_create(0, &options, &layers[1]));
    child_ok(strata_stack_build(pooled ? layers : layers + 1, pooled ? 2 : 1, 0, &stack));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &made));
    if (!pooled)
        child_ok(strata_resource_destroy(layers[0]));
    return made;
}

static size_t live_in(strata_runtime *runtime)
{
    strata_usage usage;
    child_ok(strata_runtime_usage(runtime, &usage));
    return usage.live_blocks;
}

/* The process's runtime is made inside of the first request, and so is the younger one. */
static void child_stacks_its_own_runtime_on_the_process_s(void)
{
    strata_runtime *own, *found;
    strata_block block;
    test_open_driver_quietly();
    own = runtime_over_the_process_s(false);
    child_ok(strata_runtime_allocate(own, SMALL, NULL, &block));
    child_ok(strata_runtime_of_address(block.address, &found));
    child_check(found == own);
    child_ok(strata_free((void *)(uintptr_t)block.address));
    child_check(live_in(own) == 0);
    child_ok(strata_runtime_get(0, &found));
    child_check(live_in(found) == 0);
    child_ok(strata_runtime_destroy(own));
}

/* The first block of a pool begins where its chunk does, a block of the process's runtime. */
static void child_frees_twice_in_its_own_pool(void)
{
    strata_runtime *own, *process;
    strata_block blocks[2];
    test_open_driver_quietly();
    own = runtime_over_the_process_s(true);
    for (int i = 0; i < 2; i++)
        child_ok(strata_runtime_allocate(own, SMALL, NULL, &blocks[i]));
    void *first = (void *)(uintptr_t)blocks[0].address;
    child_ok(strata_free(first));
    child_check(strata_holds(first));
    child_status(strata_free(first), STRATA_ERROR_FOREIGN_POINTER);
    child_ok(strata_runtime_get(0, &process));
    child_check(live_in(process) == 1);
    child_ok(strata_runtime_deallocate(own, &blocks[1]));
    child_ok(strata_runtime_destroy(own));
    child_check(live_in(process) == 0);
}

static void a_block_inside_of_anothers_is_the_inner_one(void **state)
{
    (void)state;
    test_child_run("child_stacks_its_own_runtime_on_the_process_s", NULL);
    test_child_run("child_frees_twice_in_its_own_pool", NULL);
}

/* The first block begins where the layer's chunk does. */
static void child_frees_twice(void)
{
    void *first, *second;
    test_open_driver_quietly();
    child_ok(strata_malloc(&first, SMALL));
    child_ok(strata_malloc(&second, SMALL));
    child_ok(strata_free(first));
    child_check(strata_holds(first));
    child_status(strata_free(first), STRATA_ERROR_FOREIGN_POINTER);
    child_check(strata_cu.MemsetD8Async(address_of(second), 1, SMALL, NULL) == CUDA_SUCCESS);
    child_ok(strata_free(second));
}

static void a_second_free_does_not_reach_the_chunk_of_a_layer(void **state)
{
    (void)state;
    static const char *const stacks[] = {"STRATA_STACK=pool, direct", "STRATA_STACK=binning, async",
                                         "STRATA_STACK=fixed(bytes=4KiB), managed"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++)
        test_child_run("child_frees_twice", (const char *const[]){stacks[i], NULL});
}

static void child_memory_that_a_branch_keeps_is_free(void)
{
    size_t free_bytes, total;
    void *memory;
    test_open_driver_quietly();
    child_ok(strata_malloc(&memory, (size_t)16 << 20));
    child_ok(strata_memory_info(&free_bytes, &total));
    child_ok(strata_free(memory));
    size_t later;
    child_ok(strata_memory_info(&later, NULL));
    child_check(later > free_bytes + ((size_t)15 << 20));
}

static void memory_that_a_branch_keeps_is_free(void **state)
{
    (void)state;
    test_child_run("child_memory_that_a_branch_keeps_is_free",
                   (const char *const[]){"STRATA_STACK=fallback(pool(max_size=16MiB) | managed)", NULL});
}

static void child_memory_info_is_no_more_than_the_device(void)
{
    size_t free_bytes, total;
    void *memory;
    test_open_driver_quietly();
    child_ok(strata_malloc(&memory, (size_t)16 << 20));
    child_ok(strata_free(memory));
    child_ok(strata_memory_info(&free_bytes, &total));
    child_check(free_bytes <= total);
}

static void memory_of_the_host_is_no_memory_of_the_device(void **state)
{
    (void)state;
    test_child_run("child_memory_info_is_no_more_than_the_device", (const char *const[]){"STRATA_STACK=pinned", NULL});
}

static void child_memory_info_without_a_budget_is_the_devices(void)
{
    size_t free_bytes, total, device_free, device_total;
    test_open_driver_quietly();
    child_ok(strata_memory_info(&free_bytes, &total));
    child_check(strata_cu.MemGetInfo(&device_free, &device_total) == CUDA_SUCCESS);
    child_check(total == device_total);
    child_check(free_bytes >= device_free && free_bytes <= total);
}

static void memory_info_without_a_budget_is_that_of_the_device(void **state)
{
    (void)state;
    test_child_run("child_memory_info_without_a_budget_is_the_devices",
                   (const char *const[]){"STRATA_STACK=pool", NULL});
}

static void child_goes_on_after_a_reset(void)
{
    void *before, *freed, *memory;
    CUcontext context;
    test_open_driver_quietly();
    child_ok(strata_malloc(&before, SMALL));
    child_ok(strata_malloc(&freed, SMALL));
    child_ok(strata_free(freed));
    child_check(strata_cu.DevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
    child_ok(strata_malloc(&memory, SMALL)); /* of a new runtime */
    child_check(strata_cu.MemsetD8Async(address_of(memory), 1, SMALL, NULL) == CUDA_SUCCESS);
    child_ok(strata_free(memory));
    child_ok(strata_free(before)); /* without effect */
    child_status(strata_free(before), STRATA_ERROR_FOREIGN_POINTER);
}

static void a_program_goes_on_after_a_reset_of_its_device(void **state)
{
    (void)state;
    test_needs_simulated_driver("a reset ends what other cases hold");
    test_child_run("child_goes_on_after_a_reset", NULL);
}

/* As cudaDeviceReset, or numba.cuda.close(): the program gives its own reference back first. */
static void reset_after_release(void)
{
    child_check(strata_cu.DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    child_check(strata_cu.DevicePrimaryCtxReset(0) == CUDA_SUCCESS);
}

static void use_context(void)
{
    CUcontext context;
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
}

/* The first call after each reset is another one: each finds out by itself. */
static void first_call_after_reset(unsigned which, strata_runtime *before)
{
    size_t free_bytes, total;
    void *memory = NULL;
    strata_runtime *runtime = NULL;
    switch (which) {
    case 0:
        child_ok(strata_malloc(&memory, SMALL));
        break;
    case 1:
        child_ok(strata_malloc_on(&memory, SMALL, NULL));
        break;
    case 2:
        child_ok(strata_memory_info(&free_bytes, &total));
        break;
    default:
        child_ok(strata_runtime_get(0, &runtime));
        child_check(runtime != before);
    }
    child_ok(strata_free(memory));
}

static void child_goes_on_after_each_reset(void)
{
    void *live[8], *freed, *memory;
    strata_runtime *before, *after;
    test_open_driver_quietly();
    for (unsigned i = 0; i < 8; i++) {
        use_context();
        child_ok(strata_malloc(&live[i], SMALL));
        child_ok(strata_malloc(&freed, SMALL)); /* left in the pool: a hit asks no driver */
        child_ok(strata_free(freed));
        child_ok(strata_runtime_get(0, &before));
        reset_after_release();
        if (i % 8 >= 4) /* else the context is begun anew by Strata, or stays ended until the program needs it */
            use_context();
        first_call_after_reset(i % 4, before);
        child_ok(strata_runtime_get(0, &after));
        child_check(after != before);
        child_ok(strata_malloc(&memory, SMALL));
        child_check(strata_cu.MemsetD8Async(address_of(memory), 1, SMALL, NULL) == CUDA_SUCCESS);
        child_ok(strata_free(memory));
        if (i >= 4)
            child_check(strata_cu.DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    }
    for (unsigned i = 0; i < 8; i++)
        child_ok(strata_free(live[i])); /* without effect */
}

static void a_program_goes_on_after_each_reset_of_its_device(void **state)
{
    (void)state;
    test_needs_simulated_driver("a reset ends what other cases hold");
    test_child_run("child_goes_on_after_each_reset", NULL);
}

/* All memory is a busy stream's: the pool makes the internal stream wait for it. */
static void child_takes_the_last_memory(void)
{
    enum { ALL = 2 << 20 };
    static unsigned char host[ALL];
    strata_runtime *runtime;
    strata_block block;
    CUstream busy, user;
    void *memory;
    test_open_driver_quietly();
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &busy));
    child_check(strata_cu.StreamCreate(&user, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_ok(strata_runtime_allocate(runtime, ALL, busy, &block));
    child_check(strata_cu.MemsetD8Async(block.address, 7, ALL, busy) == CUDA_SUCCESS);
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_malloc(&memory, ALL));
    child_check(address_of(memory) == block.address);
    child_check(strata_cu.MemsetD8Async(address_of(memory), 9, ALL, user) == CUDA_SUCCESS);
    child_check(strata_cu.StreamSynchronize(user) == CUDA_SUCCESS);
    child_check(strata_cu.StreamSynchronize(busy) == CUDA_SUCCESS);
    child_check(strata_cu.MemcpyDtoHAsync(host, address_of(memory), ALL, user) == CUDA_SUCCESS);
    child_check(strata_cu.StreamSynchronize(user) == CUDA_SUCCESS);
    for (size_t i = 0; i < ALL; i++)
        child_check(host[i] == 9);
    child_ok(strata_free(memory));
}

static void memory_of_a_busy_stream_is_waited_for(void **state)
{
    (void)state;
    test_child_run("child_takes_the_last_memory",
                   (const char *const[]){"STRATA_STACK=pool(max_size=2MiB)", "STRATA_SIM_POLICY=late", NULL});
}

static void child_uses_the_second_device(void)
{
    strata_runtime *first, *second;
    strata_device_info info;
    CUcontext context;
    void *memory;
    strata_runtime *found;
    test_open_driver_quietly();
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 1) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
    child_ok(strata_malloc(&memory, SMALL));
    child_ok(strata_runtime_of_address(address_of(memory), &found));
    child_ok(strata_runtime_get(0, &first));
    child_ok(strata_runtime_get(1, &second));
    child_check(found == second && found != first);
    child_check(strata_runtime_device(found) == 1);
    test_make_current(); /* device 0: the free finds its device */
    child_ok(strata_free(memory));
    child_ok(strata_device_get_info(1, &info));
}

static void memory_comes_from_the_current_device(void **state)
{
    (void)state;
    test_needs_simulated_driver("it has a second device");
    test_child_run("child_uses_the_second_device", (const char *const[]){"STRATA_SIM_DEVICES=2", NULL});
}

/* Memory for the stream is of that device. */
static void check_device_of(CUstream stream, int device)
{
    CUcontext before, after;
    strata_runtime *found;
    void *memory;
    child_check(strata_cu.CtxGetCurrent(&before) == CUDA_SUCCESS);
    child_ok(strata_malloc_on(&memory, SMALL, stream));
    child_check(strata_cu.CtxGetCurrent(&after) == CUDA_SUCCESS && after == before);
    child_ok(strata_runtime_of_address(address_of(memory), &found));
    child_check(strata_runtime_device(found) == device);
    child_ok(strata_free_on(memory, stream));
}

static void child_names_streams_of_both_devices(void)
{
    CUstream streams[2];
    CUcontext contexts[2];
    test_open_driver_quietly();
    for (int i = 0; i < 2; i++) {
        child_check(strata_cu.DevicePrimaryCtxRetain(&contexts[i], i) == CUDA_SUCCESS);
        child_check(strata_cu.CtxSetCurrent(contexts[i]) == CUDA_SUCCESS);
        child_check(strata_cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    }
    for (int current = 0; current < 2; current++) {
        child_check(strata_cu.CtxSetCurrent(contexts[current]) == CUDA_SUCCESS);
        for (int i = 1; i >= 0; i--) /* at first with the other one's runtime not made */
            check_device_of(streams[i], i);
        check_device_of(NULL, current);
        check_device_of(CU_STREAM_PER_THREAD, current);
    }
}

static void memory_for_a_stream_is_of_the_streams_device(void **state)
{
    (void)state;
    test_needs_simulated_driver("it has a second device");
    test_child_run("child_names_streams_of_both_devices", (const char *const[]){"STRATA_SIM_DEVICES=2", NULL});
}

static void child_is_the_first_to_use_the_device(void)
{
    void *memory;
    CUcontext context;
    strata_runtime *runtime, *made;
    child_ok(strata_runtime_get_if_present(0, &made));
    child_check(!made && !strata_driver_is_open());
    child_ok(strata_malloc(&memory, SMALL));
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_get_if_present(0, &made));
    child_check(made == runtime);
    child_status(strata_runtime_get_if_present(-1, &made), STRATA_ERROR_INVALID_VALUE);
    child_status(strata_runtime_get_if_present(64, &made), STRATA_ERROR_INVALID_VALUE);
    child_check(!made);
    child_check(strata_cu.CtxGetCurrent(&context) == CUDA_SUCCESS && context != NULL);
    child_ok(strata_free(memory));
}

static void a_program_may_begin_with_it(void **state)
{
    (void)state;
    test_child_run("child_is_the_first_to_use_the_device", NULL);
}

int main(int count, char **arguments)
{
    const test_scenario scenarios[] = {
        TEST_SCENARIO(child_memory_info_is_the_budgets),
        TEST_SCENARIO(child_memory_info_without_a_budget_is_the_devices),
        TEST_SCENARIO(child_memory_info_counts_complete_frees),
        TEST_SCENARIO(child_memory_comes_from_each_branch),
        TEST_SCENARIO(child_stacks_its_own_runtime_on_the_process_s),
        TEST_SCENARIO(child_frees_twice_in_its_own_pool),
        TEST_SCENARIO(child_frees_twice),
        TEST_SCENARIO(child_memory_that_a_branch_keeps_is_free),
        TEST_SCENARIO(child_memory_info_is_no_more_than_the_device),
        TEST_SCENARIO(child_goes_on_after_a_reset),
        TEST_SCENARIO(child_goes_on_after_each_reset),
        TEST_SCENARIO(child_takes_the_last_memory),
        TEST_SCENARIO(child_uses_the_second_device),
        TEST_SCENARIO(child_names_streams_of_both_devices),
        TEST_SCENARIO(child_is_the_first_to_use_the_device),
        TEST_SCENARIO(child_frees_a_block_of_a_chunk),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_stream_may_use_the_memory_at_once),
        cmocka_unit_test(any_stream_may_still_use_the_memory_at_its_free),
        cmocka_unit_test(a_free_on_a_stream_is_ordered_with_it_and_waits_for_nothing),
        cmocka_unit_test(memory_for_a_stream_is_freed_by_either_call),
        cmocka_unit_test(no_bytes_are_no_memory),
        cmocka_unit_test(memory_is_aligned_as_cudas),
        cmocka_unit_test(what_strata_does_not_hold_is_never_freed),
        cmocka_unit_test(a_second_free_is_a_finding_of_the_guard_that_knows_the_first),
        cmocka_unit_test(a_block_with_a_prepared_use_stays),
        cmocka_unit_test(a_failed_wait_leaves_the_block_live),
        cmocka_unit_test(memory_that_cannot_be_waited_for_is_not_handed_out),
        cmocka_unit_test(every_driver_call_may_fail_once),
        cmocka_unit_test(captures_go_on),
        cmocka_unit_test(a_free_that_a_capture_bars_is_done_by_a_later_call),
        cmocka_unit_test(a_free_to_come_outlives_neither_the_block_nor_its_runtime),
        cmocka_unit_test(a_free_to_come_keeps_no_runtime_from_being_abandoned),
        cmocka_unit_test(a_free_that_another_thread_tries_is_still_to_come),
        cmocka_unit_test(an_address_leads_to_its_runtime),
        cmocka_unit_test(a_freed_block_of_a_chunk_is_held),
        cmocka_unit_test(a_freed_block_is_held_on_a_device_without_virtual_memory),
        cmocka_unit_test(runtimes_come_and_go_while_addresses_are_looked_for),
        cmocka_unit_test(threads_allocate_and_free_at_the_same_time),
        cmocka_unit_test(a_thread_without_a_context_gets_the_first_device),
        cmocka_unit_test(another_context_than_the_primary_one_is_refused),
        cmocka_unit_test(memory_info_is_that_of_the_budget),
        cmocka_unit_test(memory_info_without_a_budget_is_that_of_the_device),
        cmocka_unit_test(memory_info_counts_complete_frees),
        cmocka_unit_test(memory_comes_from_each_branch_of_a_fallback),
        cmocka_unit_test(a_block_inside_of_anothers_is_the_inner_one),
        cmocka_unit_test(a_second_free_does_not_reach_the_chunk_of_a_layer),
        cmocka_unit_test(memory_that_a_branch_keeps_is_free),
        cmocka_unit_test(memory_of_the_host_is_no_memory_of_the_device),
        cmocka_unit_test(a_program_goes_on_after_a_reset_of_its_device),
        cmocka_unit_test(a_program_goes_on_after_each_reset_of_its_device),
        cmocka_unit_test(memory_of_a_busy_stream_is_waited_for),
        cmocka_unit_test(memory_comes_from_the_current_device),
        cmocka_unit_test(memory_for_a_stream_is_of_the_streams_device),
        cmocka_unit_test(a_program_may_begin_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
