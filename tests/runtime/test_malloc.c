/* strata_malloc and strata_free: memory for code that has no stream, of the process's runtime; and which runtime has an
 * address. */
#include "support/captures.h"
#include "support/effort.h"
#include "support/faults.h"
#include "support/stall.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
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

int main(void)
{
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
        cmocka_unit_test(runtimes_come_and_go_while_addresses_are_looked_for),
        cmocka_unit_test(threads_allocate_and_free_at_the_same_time),
        cmocka_unit_test(a_thread_without_a_context_gets_the_first_device),
        cmocka_unit_test(another_context_than_the_primary_one_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
