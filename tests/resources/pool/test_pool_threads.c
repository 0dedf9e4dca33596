/* pool: one thread meets another in the middle of a call, holding memory that is neither in a block nor free. */
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>

#include "support/effort.h"
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/sweep.h"

enum { WITHIN_S = 10, MEANWHILE_MS = 50 };

static bool wait_a_while(sem_t *semaphore)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += test_timeout(WITHIN_S);
    return sem_timedwait(semaphore, &until) == 0;
}

/* ---- a thread that waits for the device ---- */

typedef struct caller {
    test_fixture *fixture;
    CUstream stream;
    size_t bytes; /* to be allocated; 0: */
    bool reaps;   /* a full reap, or a trim */
    strata_block block;
    strata_status status;
    _Atomic bool done;
    sem_t *last; /* posted at the end; may be NULL */
    pthread_t thread;
} caller;

static void *call(void *data)
{
    caller *self = data;
    test_make_current();
    if (self->bytes)
        self->status = try_to_allocate(self->fixture, self->bytes, self->stream, &self->block);
    else if (self->reaps)
        self->status = strata_runtime_reap_pending(self->fixture->runtime);
    else
        self->status = strata_runtime_trim(self->fixture->runtime, 0, NULL);
    self->done = true;
    if (self->last)
        sem_post(self->last);
    return NULL;
}

static struct {
    CUresult(CUDAAPI *synchronize)(CUevent);
    _Atomic bool armed; /* for once */
    sem_t entered;
} waits;

static CUresult CUDAAPI say_and_synchronize(CUevent event)
{
    if (atomic_exchange(&waits.armed, false))
        sem_post(&waits.entered);
    return waits.synchronize(event);
}

/* Starts a call that will wait for the device on the host. */
static void begin_to_wait(caller *one)
{
    sem_init(&waits.entered, 0, 0);
    waits.armed = true;
    one->last = &waits.entered;
    waits.synchronize = strata_cu.EventSynchronize;
    strata_cu.EventSynchronize = say_and_synchronize;
    assert_int_equal(pthread_create(&one->thread, NULL, call, one), 0);
}

/* A call for memory, and a full reap beside it, wait for a stalled stream. */
static void check_reap_beside(test_fixture *fixture, caller *one, test_stall *stall)
{
    caller reap = {.fixture = fixture, .reaps = true};
    begin_to_wait(one);
    const bool entered = wait_a_while(&waits.entered) && !waits.armed;
    const bool started = pthread_create(&reap.thread, NULL, call, &reap) == 0;
    const struct timespec meanwhile = {.tv_nsec = MEANWHILE_MS * 1000000};
    nanosleep(&meanwhile, NULL);
    const bool early = reap.done && !test_stall_timed_out();
    test_stall_release(stall);
    pthread_join(one->thread, NULL);
    if (started)
        pthread_join(reap.thread, NULL);
    strata_cu.EventSynchronize = waits.synchronize;
    test_stall_end(stall);
    check_ok(one->status);
    check_ok(reap.status);
    assert_true(entered && started);
    assert_false(early);
}

static void a_full_reap_waits_for_memory_that_a_trim_has_taken(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 2 * MIB, stream);
    test_stall *stall = test_stall_begin(stream);
    test_write(fixture, &block, 0x11, stream);
    test_free_on(fixture, &block, stream);
    caller trim = {.fixture = fixture};
    check_reap_beside(fixture, &trim, stall);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 0);
}

/* The trim waits for all memory that the pool may have. A request that needs it comes after the trim: the test waits
 * long enough for a refusal. */
static void a_request_is_not_refused_for_what_a_trim_waits_for(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, 4 * MIB);
    strata_block block = test_allocate(fixture, 4 * MIB, a);
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &block, 0x11, a);
    test_free_on(fixture, &block, a);
    caller trim = {.fixture = fixture};
    caller request = {.fixture = fixture, .stream = b, .bytes = 4 * MIB};
    begin_to_wait(&trim);
    const bool entered = wait_a_while(&waits.entered) && !waits.armed && !trim.done;
    const bool started = pthread_create(&request.thread, NULL, call, &request) == 0;
    const struct timespec meanwhile = {.tv_nsec = MEANWHILE_MS * 1000000};
    nanosleep(&meanwhile, NULL);
    test_stall_release(stall);
    pthread_join(trim.thread, NULL);
    if (started)
        pthread_join(request.thread, NULL);
    strata_cu.EventSynchronize = waits.synchronize;
    test_stall_end(stall);
    assert_true(entered && started);
    check_ok(trim.status);
    check_ok(request.status);
    test_write(fixture, &request.block, 0x22, b);
    check_ends(fixture, &request.block, 0x22, b);
    test_free_on(fixture, &request.block, b);
}

/* Two free extents between live blocks, one complete and one of a stalled stream; a request of `b` needs both. */
static test_stall *leave_gaps(test_fixture *fixture, strata_block *walls, CUstream b)
{
    strata_block gaps[2];
    CUstream a = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, 8 * MIB);
    for (int i = 0; i < 2; i++) {
        gaps[i] = test_allocate(fixture, 2 * MIB, i ? a : b);
        walls[i] = test_allocate(fixture, 2 * MIB, b);
    }
    test_free_on(fixture, &gaps[0], b);
    check_cu(test_cu()->CtxSynchronize());
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &gaps[1], 0x11, a);
    test_free_on(fixture, &gaps[1], a);
    return stall;
}

static void a_full_reap_waits_for_memory_that_a_request_has_taken(test_fixture *fixture)
{
    strata_block walls[2];
    CUstream b = test_stream(fixture, TEST_STREAM_POOL);
    test_stall *stall = leave_gaps(fixture, walls, b);
    caller request = {.fixture = fixture, .stream = b, .bytes = 4 * MIB};
    check_reap_beside(fixture, &request, stall);
    test_write(fixture, &request.block, 0x22, b);
    check_ends(fixture, &request.block, 0x22, b);
    test_free_on(fixture, &request.block, b);
    for (int i = 0; i < 2; i++)
        test_free_on(fixture, &walls[i], b);
}

/* The addresses that the request has taken for mapping are no memory. */
static void what_is_free_is_no_more_than_there_is_while_a_request_waits(test_fixture *fixture)
{
    strata_block walls[2];
    CUstream b = test_stream(fixture, TEST_STREAM_POOL);
    test_stall *stall = leave_gaps(fixture, walls, b);
    caller request = {.fixture = fixture, .stream = b, .bytes = 4 * MIB};
    begin_to_wait(&request);
    const bool entered = wait_a_while(&waits.entered);
    const uint64_t free = value_of(fixture->runtime, "pool.free"),
                   largest = value_of(fixture->runtime, "pool.free.largest");
    test_stall_release(stall);
    pthread_join(request.thread, NULL);
    strata_cu.EventSynchronize = waits.synchronize;
    test_stall_end(stall);
    assert_true(entered && free == 4 * MIB && largest <= free);
    check_ok(request.status);
    test_free_on(fixture, &request.block, b);
    for (int i = 0; i < 2; i++)
        test_free_on(fixture, &walls[i], b);
}

/* ---- a thread that is about to return memory ---- */

static struct {
    _Atomic bool armed; /* for once */
    sem_t reached, go;
} releases;

strata_status __real_pool_release(pool *self);
strata_status __wrap_pool_release(pool *self);

strata_status __wrap_pool_release(pool *self)
{
    if (atomic_exchange(&releases.armed, false)) {
        sem_post(&releases.reached);
        wait_a_while(&releases.go);
    }
    return __real_pool_release(self);
}

/* Starts a full reap, and stops it after its waits. */
static bool begin_to_release(caller *one)
{
    sem_init(&releases.reached, 0, 0);
    sem_init(&releases.go, 0, 0);
    releases.armed = true;
    return pthread_create(&one->thread, NULL, call, one) == 0 && wait_a_while(&releases.reached);
}

/* A request makes half of its memory, and waits for a stalled stream for the other half. */
static void chunks_in_hand_of_a_request_are_not_returned(test_fixture *fixture)
{
    needs_granule(2 * MIB);
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), "pool.release_threshold", NULL, &(uint64_t){1}));
    set_limit(fixture, 6 * MIB);
    strata_block gap = test_allocate(fixture, 2 * MIB, a), wall = test_allocate(fixture, 2 * MIB, b);
    caller reap = {.fixture = fixture, .reaps = true};
    const bool started = begin_to_release(&reap);
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &gap, 0x11, a);
    test_free_on(fixture, &gap, a);
    caller request = {.fixture = fixture, .stream = b, .bytes = 4 * MIB};
    begin_to_wait(&request);
    const bool entered = wait_a_while(&waits.entered) && !request.done;
    const uint64_t made = value_of(fixture->runtime, "pool.chunks.made");
    sem_post(&releases.go);
    pthread_join(reap.thread, NULL);
    test_stall_release(stall);
    pthread_join(request.thread, NULL);
    strata_cu.EventSynchronize = waits.synchronize;
    test_stall_end(stall);
    assert_true(started && entered);
    check_ok(reap.status);
    check_ok(request.status);
    assert_int_equal(made, 3);
    assert_int_equal(value_of(fixture->runtime, "pool.chunks.made"), 3);
    assert_int_equal(value_of(fixture->runtime, "pool.released"), 0);
    test_write(fixture, &request.block, 0x22, b);
    check_ends(fixture, &request.block, 0x22, b);
    test_free_on(fixture, &request.block, b);
    test_free_on(fixture, &wall, b);
}

/* ---- a thread that inserts a wait into its stream ---- */

static struct {
    CUresult(CUDAAPI *wait)(CUstream, CUevent, unsigned);
    caller *meanwhile; /* for once */
} orders;

static CUresult CUDAAPI wait_while_another_calls(CUstream stream, CUevent event, unsigned flags)
{
    caller *other = orders.meanwhile;
    orders.meanwhile = NULL;
    if (other && pthread_create(&other->thread, NULL, call, other) == 0)
        pthread_join(other->thread, NULL);
    return orders.wait(stream, event, flags);
}

/* Blocks of one stream that another frees are handed over in magazines, with one wait each. During that wait of a third
 * stream's thread, another thread takes the rest of the magazine. */
static void a_request_that_fits_is_served_while_a_magazine_is_handed_over(test_fixture *fixture)
{
    enum { COUNT = 33, BYTES = 128 << 10 };
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL), d = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT];
    set_limit(fixture, 6 * MIB);
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = test_allocate(fixture, BYTES, a);
        test_write(fixture, &blocks[i], 0x11, a);
    }
    strata_block wall = test_allocate(fixture, 6 * MIB - COUNT * BYTES, d);
    for (int i = 0; i < COUNT; i++)
        test_free_on(fixture, &blocks[i], b);
    caller other = {.fixture = fixture, .stream = d, .bytes = 2 * MIB};
    orders.wait = strata_cu.StreamWaitEvent;
    orders.meanwhile = &other;
    strata_cu.StreamWaitEvent = wait_while_another_calls;
    strata_block block;
    const strata_status status = try_to_allocate(fixture, BYTES, c, &block);
    strata_cu.StreamWaitEvent = orders.wait;
    check_ok(status);
    check_ok(other.status);
    assert_true(other.done);
    assert_false(overlap(&block, &other.block));
    test_write(fixture, &block, 0x22, c);
    test_write(fixture, &other.block, 0x33, d);
    check_ends(fixture, &block, 0x22, c);
    check_ends(fixture, &other.block, 0x33, d);
    test_free_on(fixture, &block, c);
    test_free_on(fixture, &other.block, d);
    test_free_on(fixture, &wall, d);
}

/* Without other threads, the thread has the rest for its stream. */
static void a_magazine_is_handed_over_with_one_wait(test_fixture *fixture)
{
    enum { COUNT = 33, MAGAZINE = 32 };
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = test_allocate(fixture, 8192, a);
        test_write(fixture, &blocks[i], 0x22, a);
    }
    set_limit(fixture, value_of(fixture->runtime, "pool.reserved"));
    strata_block rest = test_allocate(fixture, value_of(fixture->runtime, "pool.free.largest"), c);
    for (int i = 0; i < COUNT; i++)
        test_free_on(fixture, &blocks[i], b);
    const uint64_t hits = value_of(fixture->runtime, "pool.hits");
    for (int i = 0; i < MAGAZINE; i++)
        blocks[i] = test_allocate(fixture, 8192, c);
    assert_true(test_is_swept() || value_of(fixture->runtime, "pool.hits") - hits == MAGAZINE - 1);
    for (int i = 0; i < MAGAZINE; i++)
        test_write(fixture, &blocks[i], 0x33, c);
    for (int i = 0; i < MAGAZINE; i++)
        test_free_on(fixture, &blocks[i], c);
    test_free_on(fixture, &rest, c);
}

enum { EXTENT = 8192, SMALLER = 4096, COLLIDING = EXTENT + POOL_DEPOT * POOL_GRANULE };

static strata_block written(test_fixture *fixture, size_t bytes, CUstream stream)
{
    const strata_block block = test_allocate(fixture, bytes, stream);
    test_write(fixture, &block, 0x11, stream);
    return block;
}

/* Magazines of two sizes are in one bucket of the depot, and the one behind is taken, once. */
static void a_magazine_behind_one_of_another_size_is_handed_over_once(test_fixture *fixture)
{
    enum { BLOCKS = 5, GOT = 4 };
    static const size_t sizes[BLOCKS] = {EXTENT, EXTENT, COLLIDING, COLLIDING, EXTENT};
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[BLOCKS], got[GOT];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = written(fixture, sizes[i], a);
    set_limit(fixture, value_of(fixture->runtime, "pool.reserved"));
    strata_block wall = test_allocate(fixture, value_of(fixture->runtime, "pool.free.largest"), c);
    for (int i = 0; i < BLOCKS; i++)
        test_free_on(fixture, &blocks[i], b);
    for (int i = 0; i < GOT; i++) {
        got[i] = test_allocate(fixture, EXTENT, c);
        test_write(fixture, &got[i], (unsigned char)(0x20 + i), c);
        for (int before = 0; before < i; before++)
            assert_false(overlap(&got[i], &got[before]));
    }
    assert_true(overlap(&got[0], &blocks[0]) || overlap(&got[0], &blocks[1]));
    for (int i = 0; i < GOT; i++) {
        check_ends(fixture, &got[i], (unsigned char)(0x20 + i), c);
        test_free_on(fixture, &got[i], c);
    }
    test_free_on(fixture, &wall, c);
}

/* The stream with the rest of a magazine waits for its writer, and a stream that gets memory from there waits for both.
 */
static void the_rest_of_a_magazine_is_waited_for_by_each_thread_that_gets_it(test_fixture *fixture)
{
    enum { BLOCKS = 3 };
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL), d = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[BLOCKS], wall, next;
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = test_allocate(fixture, EXTENT, a);
    strata_block smaller = written(fixture, SMALLER, a);
    set_limit(fixture, value_of(fixture->runtime, "pool.reserved"));
    wall = test_allocate(fixture, value_of(fixture->runtime, "pool.free.largest"), d);
    test_stall *stall = test_stall_begin(a);
    for (int i = 0; i < BLOCKS; i++)
        test_write(fixture, &blocks[i], 0x22, a);
    for (int i = 0; i < BLOCKS; i++)
        test_free_on(fixture, &blocks[i], b);
    test_free_on(fixture, &smaller, b); /* takes the magazine's place; the magazine goes to the depot */
    strata_block first = test_allocate(fixture, EXTENT, c);
    check_ok(try_to_allocate(fixture, EXTENT, d, &next));
    test_write(fixture, &next, 0x33, d);
    test_stall_end(stall);
    check_ends(fixture, &next, 0x33, d);
    test_free_on(fixture, &next, d);
    test_free_on(fixture, &first, c);
    test_free_on(fixture, &wall, d);
}

/* ---- a thread that calls the source ---- */

/* The second thread is released when the first one's call is over, so the order does not depend on a clock. */
static struct {
    CUresult(CUDAAPI *allocate)(CUdeviceptr *, size_t);
    CUresult(CUDAAPI *free)(CUdeviceptr);
    _Atomic bool armed; /* for once: while the first thread is in the driver, the second one calls */
    _Atomic bool waits; /* the second one stops where it waits, until the first one's call is over */
    pthread_t first;
    caller *second;
    bool started;
    sem_t met;  /* the second one waits, calls the driver itself, or is done */
    sem_t over; /* the first one's call */
} turns;

int __real_sched_yield(void);
int __wrap_sched_yield(void);

/* The second thread waits for the first. */
int __wrap_sched_yield(void)
{
    if (!pthread_equal(pthread_self(), turns.first) && atomic_exchange(&turns.waits, false)) {
        sem_post(&turns.met);
        wait_a_while(&turns.over);
    }
    return __real_sched_yield();
}

/* The driver's answer to the first thread comes after the second one's call. */
static void meet(void)
{
    if (!pthread_equal(pthread_self(), turns.first)) {
        sem_post(&turns.met);
    } else if (atomic_exchange(&turns.armed, false)) {
        turns.started = pthread_create(&turns.second->thread, NULL, call, turns.second) == 0;
        if (turns.started)
            wait_a_while(&turns.met);
    }
}

static CUresult CUDAAPI meet_and_allocate(CUdeviceptr *address, size_t bytes)
{
    meet();
    return turns.allocate(address, bytes);
}

static CUresult CUDAAPI free_and_meet(CUdeviceptr address)
{
    const CUresult result = turns.free(address);
    meet();
    return result;
}

static void begin_turns(caller *second)
{
    turns.allocate = strata_cu.MemAlloc;
    turns.free = strata_cu.MemFree;
    sem_init(&turns.met, 0, 0);
    sem_init(&turns.over, 0, 0);
    turns.first = pthread_self();
    turns.second = second;
    turns.started = false;
    second->last = &turns.met;
    turns.waits = true;
    turns.armed = true;
    strata_cu.MemAlloc = meet_and_allocate;
    strata_cu.MemFree = free_and_meet;
}

/* The first thread's call is over. */
static void end_turns(void)
{
    sem_post(&turns.over);
    if (turns.started)
        pthread_join(turns.second->thread, NULL);
    turns.waits = turns.armed = false;
    strata_cu.MemAlloc = turns.allocate;
    strata_cu.MemFree = turns.free;
    assert_true(turns.started);
}

static void one_chunk_serves_all_threads_that_need_memory_at_a_time(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    caller second = {.fixture = fixture, .stream = other, .bytes = MIB / 2};
    strata_block block;
    begin_turns(&second);
    const strata_status status = try_to_allocate(fixture, MIB / 2, stream, &block);
    end_turns();
    check_ok(status);
    check_ok(second.status);
    assert_false(overlap(&block, &second.block));
    assert_int_equal(value_of(fixture->runtime, "pool.chunks.made"), 1);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &second.block, other);
}

static void a_request_is_not_refused_for_memory_that_a_trim_is_about_to_return(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    caller second = {.fixture = fixture, .stream = other, .bytes = 4 * MIB};
    set_limit(fixture, 4 * MIB);
    strata_block block = test_allocate(fixture, 2 * MIB, stream);
    test_free_on(fixture, &block, stream);
    test_synchronize(stream);
    begin_turns(&second);
    const strata_status status = strata_runtime_trim(fixture->runtime, 0, NULL);
    end_turns();
    check_ok(status);
    check_ok(second.status);
    test_free_on(fixture, &second.block, other);
}

static struct {
    test_fixture *fixture;
    CUstream stream;
    strata_block block;
    strata_status statuses[3];
    _Atomic bool armed; /* for once: after the driver's answer */
    bool started;
} beside;

/* Makes a chunk and returns it. */
static void *come_and_go(void *data)
{
    (void)data;
    test_make_current();
    beside.statuses[0] = try_to_allocate(beside.fixture, 4 * MIB, beside.stream, &beside.block);
    if (beside.statuses[0] == STRATA_SUCCESS)
        beside.statuses[1] = strata_runtime_deallocate_on(beside.fixture->runtime, &beside.block, beside.stream);
    beside.statuses[2] = strata_runtime_trim(beside.fixture->runtime, 0, NULL);
    return NULL;
}

static CUresult CUDAAPI free_and_let_others_in(CUdeviceptr address)
{
    const CUresult result = turns.free(address);
    pthread_t thread;
    if (atomic_exchange(&beside.armed, false)) {
        beside.started = pthread_create(&thread, NULL, come_and_go, NULL) == 0;
        if (beside.started)
            pthread_join(thread, NULL);
    }
    return result;
}

/* The driver has freed the chunk, and the pool does not know yet. Another chunk comes in its place, under a later
 * number. It is returned once, and not also for the first. */
static void a_leaving_chunk_is_not_returned_again_for_the_one_in_its_place(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, 2 * MIB, stream), wall = test_allocate(fixture, 2 * MIB, stream);
    strata_block last = test_allocate(fixture, 4 * MIB, stream);
    test_free_on(fixture, &first, stream);
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL)); /* the next chunk gets its number */
    test_free_on(fixture, &last, stream);
    turns.free = strata_cu.MemFree;
    beside.fixture = fixture;
    beside.stream = stream;
    beside.started = false;
    beside.armed = true;
    strata_cu.MemFree = free_and_let_others_in;
    const strata_status status = strata_runtime_trim(fixture->runtime, 0, NULL);
    strata_cu.MemFree = turns.free;
    check_ok(status);
    assert_true(beside.started);
    for (int i = 0; i < 3; i++)
        check_ok(beside.statuses[i]);
    assert_true(beside.block.address == last.address || !test_on_simulated_driver());
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 2 * MIB);
    test_free_on(fixture, &wall, stream);
    empty_the_pool(fixture);
}

/* One extent of a magazine was written later than the others. */
static void a_magazine_waits_for_the_latest_writes_of_all_its_extents(test_fixture *fixture)
{
    enum { COUNT = 33, MAGAZINE = 32 };
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT], got[MAGAZINE];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = test_allocate(fixture, 8192, a);
        test_write(fixture, &blocks[i], 0x22, a);
    }
    strata_block mark = test_allocate(fixture, 4096, a);
    test_write(fixture, &mark, 0x11, a);
    test_read(fixture, &mark, c); /* an event on a: later work is of the next epoch */
    test_synchronize(a);
    set_limit(fixture, value_of(fixture->runtime, "pool.reserved"));
    strata_block rest = test_allocate(fixture, value_of(fixture->runtime, "pool.free.largest"), c);
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &blocks[0], 0x33, a);
    for (int i = 0; i < COUNT; i++)
        test_free_on(fixture, &blocks[i], b);
    bool met = false;
    for (int i = 0; i < MAGAZINE; i++) {
        got[i] = test_allocate(fixture, 8192, c);
        test_write(fixture, &got[i], 0x44, c);
        met = met || got[i].address == blocks[0].address;
    }
    test_stall_release(stall);
    test_stall_end(stall);
    assert_true(met);
    check_cu(test_cu()->CtxSynchronize());
    for (int i = 0; i < MAGAZINE; i++) {
        check_ends(fixture, &got[i], 0x44, c);
        test_free_on(fixture, &got[i], c);
    }
    test_free_on(fixture, &rest, c);
    test_free_on(fixture, &mark, c);
}

/* ---- a thread after its search ---- */

static _Thread_local bool looks_armed; /* for once */

static struct {
    sem_t looked, go;
} looks;

pool_result __real_pool_find_fixed(pool_search *search);
pool_result __wrap_pool_find_fixed(pool_search *search);

/* The thread has searched; it is about to take a ticket. */
pool_result __wrap_pool_find_fixed(pool_search *search)
{
    if (looks_armed) {
        looks_armed = false;
        sem_post(&looks.looked);
        wait_a_while(&looks.go);
    }
    return __real_pool_find_fixed(search);
}

static void *look_and_call(void *data)
{
    looks_armed = true;
    return call(data);
}

/* Meanwhile another thread had the ticket, and got a chunk that suffices for both. */
static void check_rest_of_new_chunk(test_fixture *fixture, uint64_t limit)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    caller second = {.fixture = fixture, .stream = other, .bytes = MIB / 2};
    sem_init(&looks.looked, 0, 0);
    sem_init(&looks.go, 0, 0);
    set_limit(fixture, limit);
    assert_int_equal(pthread_create(&second.thread, NULL, look_and_call, &second), 0);
    const bool looked = wait_a_while(&looks.looked);
    strata_block block;
    const strata_status status = try_to_allocate(fixture, MIB / 2, stream, &block);
    sem_post(&looks.go);
    pthread_join(second.thread, NULL);
    assert_true(looked);
    check_ok(status);
    check_ok(second.status);
    assert_int_equal(value_of(fixture->runtime, "pool.chunks.made"), 1);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &second.block, other);
}

static void the_rest_of_a_new_chunk_serves_threads_that_searched_before(test_fixture *fixture)
{
    check_rest_of_new_chunk(fixture, 0);
}

static void a_request_is_not_refused_beside_what_is_left_of_a_new_chunk(test_fixture *fixture)
{
    check_rest_of_new_chunk(fixture, 2 * MIB);
}

int main(void)
{
    static const char *const stacks[] = {"pool(chunk=2MiB)", "pool(chunk=2MiB), async"};
    static const char *const over_direct[] = {"pool(chunk=2MiB), direct"};
    static const char *const without_progress[] = {"pool(chunk=2MiB, opportunistic=off)"}; /* the host waits */
    static const test_case cases[] = {
        TEST_CASE(a_magazine_is_handed_over_with_one_wait),
        /* not in sweeps: no two runs are the same, and two threads may wait for each other */
        TEST_CASE(a_request_that_fits_is_served_while_a_magazine_is_handed_over),
        TEST_CASE(a_full_reap_waits_for_memory_that_a_trim_has_taken),
    };
    static const test_case that_wait[] = {
        TEST_CASE(a_full_reap_waits_for_memory_that_a_request_has_taken),
        TEST_CASE(what_is_free_is_no_more_than_there_is_while_a_request_waits),
        TEST_CASE(chunks_in_hand_of_a_request_are_not_returned),
    };
    static const test_case of_mapped[] = {
        TEST_CASE(a_request_is_not_refused_for_what_a_trim_waits_for),
        TEST_CASE(a_magazine_waits_for_the_latest_writes_of_all_its_extents),
        TEST_CASE(a_magazine_behind_one_of_another_size_is_handed_over_once),
        TEST_CASE(the_rest_of_a_magazine_is_waited_for_by_each_thread_that_gets_it),
    };
    static const test_case of_turns[] = {
        TEST_CASE(one_chunk_serves_all_threads_that_need_memory_at_a_time),
        TEST_CASE(a_request_is_not_refused_for_memory_that_a_trim_is_about_to_return),
        TEST_CASE(a_leaving_chunk_is_not_returned_again_for_the_one_in_its_place),
        TEST_CASE(the_rest_of_a_new_chunk_serves_threads_that_searched_before),
        TEST_CASE(a_request_is_not_refused_beside_what_is_left_of_a_new_chunk),
    };
    test_before_clearing = lift_limit;
    test_open_driver();
    if (test_is_swept())
        return test_run_on(stacks, 2, cases, 1);
    const int failed = test_run_on(stacks, 2, cases, sizeof cases / sizeof cases[0]) +
                       test_run_on(without_progress, 1, that_wait, sizeof that_wait / sizeof that_wait[0]) +
                       test_run_on(stacks, 1, of_mapped, sizeof of_mapped / sizeof of_mapped[0]);
    return failed + test_run_on(over_direct, 1, of_turns, sizeof of_turns / sizeof of_turns[0]);
}
