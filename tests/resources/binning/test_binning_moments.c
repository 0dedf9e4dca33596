/* fixed: in the middle of one call others come in, at a driver call or a function that a test replaces. Streams that
 * Strata does not know lose their timelines to others, and several threads wait for the same memory. */
#include "core/streams/stream_map.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>

#include "support/fixture.h"
#include "support/sweep.h"

enum { BYTES = 64 << 10, STREAMS = 200 };

static CUstream pooled(test_fixture *fixture)
{
    return test_stream(fixture, TEST_STREAM_POOL);
}

static CUstream unknown(test_fixture *fixture)
{
    return test_stream(fixture, TEST_STREAM_UNKNOWN);
}

/* What cannot be waited for is left to others, and a chunk is taken. */
static bool is_or_is_swept(bool is)
{
    return is || test_is_swept();
}

/* ---- counting the waits of a stream ---- */

static struct {
    PFN_cuStreamWaitEvent_v3020 real;
    CUstream stream;
    unsigned count;
} waits;

static CUresult CUDAAPI count_wait(CUstream stream, CUevent event, unsigned flags)
{
    waits.count += stream == waits.stream;
    return waits.real(stream, event, flags);
}

static void count_waits_of(CUstream stream)
{
    waits.real = strata_cu.StreamWaitEvent;
    waits.stream = stream;
    waits.count = 0;
    strata_cu.StreamWaitEvent = count_wait;
}

static unsigned waits_counted(void)
{
    strata_cu.StreamWaitEvent = waits.real;
    return waits.count;
}

/* ---- a timeline that goes to another stream ---- */

static struct {
    test_fixture *fixture;
    strata_timeline *timeline; /* of a stream that has nothing pending, to be had by another one */
    CUstream streams[STREAMS]; /* of which one gets it */
    CUstream heir;             /* that one; NULL: none yet */
    strata_block left[2];      /* what the heir then writes, behind a stall, and frees; unless they are empty */
    test_stall *stall;
    bool armed; /* for once */
    bool good;
} heirs;

/* Another thread makes it so. */
static void *inherit(void *data)
{
    (void)data;
    strata_runtime *runtime = heirs.fixture->runtime;
    test_make_current();
    for (size_t i = 0; i < STREAMS && !heirs.heir; i++) {
        strata_stream_ref ref;
        if (strata_stream_resolve(runtime->device, heirs.streams[i], &ref) != STRATA_SUCCESS)
            break;
        if (ref.timeline == heirs.timeline)
            heirs.heir = heirs.streams[i];
    }
    heirs.good = heirs.heir != NULL;
    for (size_t i = 0; i < 2 && heirs.good && heirs.left[i].bytes; i++) {
        const strata_block *block = &heirs.left[i];
        if (!heirs.stall)
            heirs.stall = test_stall_begin(heirs.heir);
        heirs.good = !strata_runtime_prepare_block_use(runtime, block, heirs.heir, STRATA_ACCESS_WRITE);
        if (!heirs.good)
            break;
        test_fill(block->address, 0x11, block->bytes, heirs.heir);
        heirs.good = heirs.good && !strata_runtime_finish_block_use(runtime, block, heirs.heir, STRATA_ACCESS_WRITE) &&
                     !strata_runtime_deallocate_on(runtime, block, heirs.heir);
    }
    test_leave_thread();
    return NULL;
}

static void inherit_once(void)
{
    pthread_t thread;
    if (!heirs.armed)
        return;
    heirs.armed = false;
    if (pthread_create(&thread, NULL, inherit, NULL) == 0)
        pthread_join(thread, NULL);
}

/* From now on the stream has a timeline that it may lose. */
static void open_heirs(test_fixture *fixture, CUstream stream)
{
    strata_stream_ref ref;
    check_ok(strata_stream_resolve(fixture->runtime->device, stream, &ref));
    assert_false(ref.known);
    heirs.fixture = fixture;
    heirs.timeline = ref.timeline;
    heirs.heir = NULL;
    heirs.stall = NULL;
    heirs.left[0] = heirs.left[1] = (strata_block){0};
    heirs.good = false;
    heirs.armed = true;
    for (size_t i = 0; i < STREAMS; i++)
        check_cu(test_cu()->StreamCreate(&heirs.streams[i], CU_STREAM_NON_BLOCKING));
}

static void close_heirs(void)
{
    for (size_t i = 0; i < STREAMS; i++)
        check_cu(test_cu()->StreamDestroy(heirs.streams[i]));
}

static PFN_cuEventQuery_v2000 real_query;

static CUresult CUDAAPI inherit_and_query(CUevent event)
{
    inherit_once();
    return real_query(event);
}

static void replace_query(void)
{
    real_query = strata_cu.EventQuery;
    strata_cu.EventQuery = inherit_and_query;
}

static void check_block(test_fixture *fixture, const strata_block *block, unsigned char expected, CUstream stream)
{
    check_cu(test_cu()->CtxSynchronize());
    const unsigned char *seen = test_copy_back(fixture, block->address, block->bytes, stream);
    test_synchronize(stream);
    check_bytes(seen, expected, block->bytes);
}

/* The first thing that the request meets is not complete. By the time when the driver has said so, what lies in the
 * list of its timeline is another stream's. */
static void a_request_whose_timeline_goes_to_another_stream_waits_for_what_that_one_freed(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream stream = unknown(fixture), writer = pooled(fixture), other = pooled(fixture);
    open_heirs(fixture, stream);
    for (size_t i = 0; i < 2; i++)
        heirs.left[i] = test_allocate(fixture, BYTES, other);
    strata_block pending = test_allocate(fixture, BYTES, writer), block;
    test_stall *stall = test_stall_begin(writer);
    test_write(fixture, &pending, 0x22, writer);
    test_free_on(fixture, &pending, writer);
    replace_query();
    count_waits_of(stream);
    strata_status status = strata_runtime_allocate(fixture->runtime, BYTES, stream, &block);
    unsigned waited = waits_counted();
    strata_cu.EventQuery = real_query;
    check_ok(status);
    assert_true(!heirs.armed && heirs.good);
    bool is_of_heir = block.address == heirs.left[0].address || block.address == heirs.left[1].address;
    assert_true(is_or_is_swept(is_of_heir && waited == 1));
    test_write(fixture, &block, 0x33, stream);
    test_stall_release(heirs.stall); /* both, before anything behind one of them is waited for */
    test_stall_end(stall);
    test_stall_end(heirs.stall);
    check_block(fixture, &block, 0x33, stream);
    test_free_on(fixture, &block, stream);
    close_heirs();
}

static PFN_cuStreamGetId_v12000 real_get_id;
static CUstream named; /* the stream of the request */

/* Answers for the first stream that is neither this one nor might get the timeline as if it were the one that has. So
 * that stream gets the timeline, and for good, since the answer makes it known. */
static CUresult CUDAAPI inherit_and_answer(CUstream stream, unsigned long long *id)
{
    bool might = stream == named || !heirs.armed;
    for (size_t i = 0; i < STREAMS && !might; i++)
        might = stream == heirs.streams[i];
    if (!might)
        inherit_once();
    return real_get_id(!might && heirs.good ? heirs.heir : stream, id);
}

/* The layer makes its stream when it first needs it: for this chunk. */
static void a_request_whose_timeline_goes_to_the_layers_own_stream_waits_for_its_chunk(test_fixture *fixture)
{
    if (!strata_cu.StreamGetId)
        skip();
    CUstream stream = unknown(fixture);
    strata_block block;
    open_heirs(fixture, stream);
    named = stream;
    real_get_id = strata_cu.StreamGetId;
    strata_cu.StreamGetId = inherit_and_answer;
    count_waits_of(stream);
    strata_status status = strata_runtime_allocate(fixture->runtime, BYTES, stream, &block);
    unsigned waited = waits_counted();
    strata_cu.StreamGetId = real_get_id;
    check_ok(status);
    assert_true(!heirs.armed && heirs.good);
    assert_int_equal(waited, 1);
    test_write(fixture, &block, 0x33, stream);
    check_block(fixture, &block, 0x33, stream);
    test_free_on(fixture, &block, stream);
    close_heirs();
}

/* While the driver is asked about a use that another stream made, the freeing stream's timeline goes. What the block
 * still waits for is that stream's. */
static void a_free_whose_timeline_goes_to_another_stream_leaves_that_one_nothing(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream stream = unknown(fixture), reader = pooled(fixture), third = pooled(fixture);
    strata_block block = test_allocate(fixture, BYTES, third), marked = test_allocate(fixture, BYTES, third), taken;
    test_write(fixture, &block, 0x11, stream);
    test_read(fixture, &block, reader);
    test_write(fixture, &marked, 0x44, reader);
    test_read(fixture, &marked, third); /* so there is an event */
    check_cu(test_cu()->CtxSynchronize());
    open_heirs(fixture, stream);
    test_stall *stall = test_stall_begin(stream);
    test_fill(block.address, 0x22, BYTES, stream); /* which a free on the stream comes after, noted or not */
    replace_query();
    strata_status status = strata_runtime_deallocate_on(fixture->runtime, &block, stream);
    strata_cu.EventQuery = real_query;
    check_ok(status);
    assert_true(!heirs.armed && heirs.good);
    count_waits_of(heirs.heir);
    status = strata_runtime_allocate(fixture->runtime, BYTES, heirs.heir, &taken);
    unsigned waited = waits_counted();
    check_ok(status);
    assert_true(is_or_is_swept(taken.address == block.address && waited == 1));
    test_write(fixture, &taken, 0x33, heirs.heir);
    test_stall_end(stall);
    check_block(fixture, &taken, 0x33, heirs.heir);
    test_free_on(fixture, &taken, heirs.heir);
    test_free_on(fixture, &marked, third);
    close_heirs();
}

/* ---- threads that wait for the same memory ---- */

enum { IN_VAIN_MS = 100 };

/* Another thread that waits for all that was freed. */
static struct {
    test_fixture *fixture;
    pthread_t thread;
    bool began;
    sem_t changed; /* it waits too, or came back */
    _Atomic bool came_back;
    strata_status status;
    size_t retired; /* bytes, by then */
} reaper;

static void *reap(void *data)
{
    (void)data;
    strata_usage usage = {.retired_bytes = 77};
    test_make_current();
    reaper.status = strata_runtime_reap_pending(reaper.fixture->runtime);
    strata_runtime_usage(reaper.fixture->runtime, &usage);
    reaper.retired = usage.retired_bytes;
    atomic_store(&reaper.came_back, true);
    sem_post(&reaper.changed);
    test_leave_thread();
    return NULL;
}

static void open_reaper(test_fixture *fixture)
{
    reaper.fixture = fixture;
    reaper.began = false;
    atomic_store(&reaper.came_back, false);
    assert_int_equal(sem_init(&reaper.changed, 0, 0), 0);
}

/* Lets the other thread wait, and says whether it came back or waits in the driver within some time. */
static bool begin_to_reap(unsigned ms)
{
    struct timespec until;
    int waited;
    reaper.began = pthread_create(&reaper.thread, NULL, reap, NULL) == 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ms % 1000 * 1000000L;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    do
        waited = sem_timedwait(&reaper.changed, &until);
    while (waited != 0 && errno == EINTR);
    return waited == 0;
}

static void close_reaper(void)
{
    assert_true(reaper.began);
    assert_int_equal(pthread_join(reaper.thread, NULL), 0);
    assert_int_equal(sem_destroy(&reaper.changed), 0);
}

static struct {
    PFN_cuEventSynchronize_v2000 real;
    _Atomic unsigned calls;
    bool early; /* the other thread came back while the stream was held up */
    test_stall *stall;
} first;

/* The first one to wait holds the stream up until the other thread waits as well. */
static CUresult CUDAAPI synchronize_beside_another(CUevent event)
{
    if (first.calls++) {
        sem_post(&reaper.changed);
    } else {
        begin_to_reap(10000);
        first.early = atomic_load(&reaper.came_back);
        test_stall_release(first.stall);
    }
    return first.real(event);
}

static void two_threads_that_wait_for_the_same_frees_both_wait(test_fixture *fixture)
{
    CUstream stream = pooled(fixture), user = pooled(fixture);
    for (int mixed = 0; mixed < 2; mixed++) {
        strata_block block = test_allocate(fixture, BYTES, stream);
        first.stall = test_stall_begin(mixed ? user : stream);
        if (mixed)
            test_write(fixture, &block, 0x11, user); /* which the free does not come after */
        test_free_on(fixture, &block, stream);
        open_reaper(fixture);
        first.calls = 0;
        first.real = strata_cu.EventSynchronize;
        strata_cu.EventSynchronize = synchronize_beside_another;
        strata_status status = strata_runtime_reap_pending(fixture->runtime);
        if (reaper.began)
            pthread_join(reaper.thread, NULL);
        strata_cu.EventSynchronize = first.real;
        sem_destroy(&reaper.changed);
        test_stall_end(first.stall);
        check_ok(status);
        assert_true(reaper.began && first.calls >= 2 && !first.early);
        check_ok(reaper.status);
        assert_int_equal(reaper.retired, 0);
        assert_int_equal(test_usage(fixture).retired_bytes, 0);
    }
}

static struct {
    PFN_cuStreamWaitEvent_v3020 real;
    CUstream stream;
    bool armed, early;
} in_hand;

static CUresult CUDAAPI refuse_to_wait_beside_another(CUstream stream, CUevent event, unsigned flags)
{
    if (stream != in_hand.stream || !in_hand.armed)
        return in_hand.real(stream, event, flags);
    in_hand.armed = false;
    in_hand.early = begin_to_reap(IN_VAIN_MS);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A request has the memory of another stream in hand, which it cannot wait for and puts back. */
static void who_waits_for_all_frees_waits_for_memory_that_a_request_puts_back(test_fixture *fixture)
{
    CUstream stream = pooled(fixture), other = pooled(fixture);
    strata_block freed = test_allocate(fixture, BYTES, stream), block;
    test_stall *stall = test_stall_begin(stream);
    test_free_on(fixture, &freed, stream);
    open_reaper(fixture);
    in_hand.real = strata_cu.StreamWaitEvent;
    in_hand.stream = other;
    in_hand.armed = true;
    strata_cu.StreamWaitEvent = refuse_to_wait_beside_another;
    strata_status status = strata_runtime_allocate(fixture->runtime, BYTES, other, &block);
    strata_cu.StreamWaitEvent = in_hand.real;
    test_stall_end(stall);
    check_ok(status);
    close_reaper();
    assert_true(!in_hand.armed && !in_hand.early);
    check_ok(reaper.status);
    assert_int_equal(reaper.retired, 0);
    assert_true(block.address != freed.address);
    test_free_on(fixture, &block, other);
}

static _Thread_local bool lacks_entry; /* for once */

uint32_t __real_strata_table_take_slot(strata_table *table);
uint32_t __wrap_strata_table_take_slot(strata_table *table);

uint32_t __wrap_strata_table_take_slot(strata_table *table)
{
    if (!lacks_entry)
        return __real_strata_table_take_slot(table);
    lacks_entry = false;
    in_hand.early = begin_to_reap(IN_VAIN_MS);
    return 0;
}

/* A request on a stream that is not known has what the stream freed last in hand, and finds no host memory for a block.
 */
static void who_waits_for_all_frees_waits_for_memory_of_the_requests_own_stream(test_fixture *fixture)
{
    CUstream stream = unknown(fixture);
    strata_block freed = test_allocate(fixture, BYTES, stream), block;
    test_free_on(fixture, &freed, stream);
    open_reaper(fixture);
    lacks_entry = true;
    strata_status status = strata_runtime_allocate(fixture->runtime, BYTES, stream, &block);
    close_reaper();
    check_status(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
    assert_true(!lacks_entry && !in_hand.early);
    check_ok(reaper.status);
    assert_int_equal(reaper.retired, 0);
}

enum { CROWD = 300 }; /* more than one look at the mixed list checks */

/* Another thread that frees many blocks whose work waits for the same stall, and then requests one. */
static struct {
    test_fixture *fixture;
    CUstream stream, user, other;
    strata_block blocks[CROWD], got;
    test_stall *stall;
    PFN_cuEventSynchronize_v2000 real;
    bool came, good;
} crowd;

static void *crowd_in(void *data)
{
    (void)data;
    strata_runtime *runtime = crowd.fixture->runtime;
    test_make_current();
    crowd.good = true;
    for (size_t i = 0; i < CROWD && crowd.good; i++) {
        const strata_block *block = &crowd.blocks[i];
        crowd.good = !strata_runtime_prepare_block_use(runtime, block, crowd.user, STRATA_ACCESS_WRITE);
        if (!crowd.good)
            break;
        test_fill(block->address, 0x11, block->bytes, crowd.user);
        crowd.good = !strata_runtime_finish_block_use(runtime, block, crowd.user, STRATA_ACCESS_WRITE) &&
                     !strata_runtime_deallocate_on(runtime, block, crowd.stream);
    }
    crowd.good = crowd.good && !strata_runtime_allocate(runtime, BYTES, crowd.other, &crowd.got);
    test_leave_thread();
    return NULL;
}

static CUresult CUDAAPI synchronize_behind_a_crowd(CUevent event)
{
    pthread_t thread;
    if (!crowd.came) {
        crowd.came = true;
        if (pthread_create(&thread, NULL, crowd_in, NULL) == 0)
            pthread_join(thread, NULL);
        test_stall_release(crowd.stall);
    }
    return crowd.real(event);
}

/* While a thread waits for a free, many others come, and a request polls the oldest ones: they then stand last. That
 * the others are over, too, is not known. */
static void what_was_waited_for_is_finished_behind_any_number_of_other_frees(test_fixture *fixture)
{
    memset(&crowd, 0, sizeof crowd);
    crowd.fixture = fixture;
    crowd.stream = pooled(fixture);
    crowd.user = pooled(fixture);
    crowd.other = pooled(fixture);
    CUstream user = pooled(fixture);
    strata_block freed = test_allocate(fixture, BYTES, crowd.stream);
    for (size_t i = 0; i < CROWD; i++)
        crowd.blocks[i] = test_allocate(fixture, BYTES, crowd.stream);
    crowd.stall = test_stall_begin(user);
    test_order_after(crowd.user, user);
    test_write(fixture, &freed, 0x11, user); /* which the free does not come after */
    test_free_on(fixture, &freed, crowd.stream);
    crowd.real = strata_cu.EventSynchronize;
    strata_cu.EventSynchronize = synchronize_behind_a_crowd;
    strata_status status = strata_runtime_reap_pending(fixture->runtime);
    strata_cu.EventSynchronize = crowd.real;
    const size_t retired = test_usage(fixture).retired_bytes;
    test_stall_end(crowd.stall);
    check_ok(status);
    assert_true(crowd.came && crowd.good);
    assert_true(crowd.got.address != freed.address);
    assert_int_equal(retired, (CROWD - 1) * BYTES); /* less the one that serves the request */
    test_free_on(fixture, &crowd.got, crowd.other);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_request_whose_timeline_goes_to_another_stream_waits_for_what_that_one_freed),
        TEST_CASE(a_request_whose_timeline_goes_to_the_layers_own_stream_waits_for_its_chunk),
        TEST_CASE(a_free_whose_timeline_goes_to_another_stream_leaves_that_one_nothing),
        /* not in sweeps: no two runs are the same */
        TEST_CASE(two_threads_that_wait_for_the_same_frees_both_wait),
        TEST_CASE(who_waits_for_all_frees_waits_for_memory_that_a_request_puts_back),
        TEST_CASE(who_waits_for_all_frees_waits_for_memory_of_the_requests_own_stream),
        TEST_CASE(what_was_waited_for_is_finished_behind_any_number_of_other_frees),
    };
    static const char *const stacks[] = {"fixed(bytes=64KiB, chunk=64KiB), async"};
    test_open_driver();
    return test_run_on(stacks, 1, cases, test_is_swept() ? 3 : sizeof cases / sizeof cases[0]);
}
