/* Free memory that its own stream may still use moves in the order of that stream: the host waits for nothing, the old
 * work goes on at the former addresses, and these are given up once it is over. */
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "support/effort.h"
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/sweep.h"

/* Of 16 MiB, in chunks of 2, with nothing else in the pool:
 *
 *     | first | block | second | block |
 *     0       6       8       14      16 */
typedef struct scene {
    test_fixture *fixture;
    CUstream stream;
    strata_block first, second, blocks[2];
    test_stall *stall; /* holds a stream; NULL: none, or released */
} scene;

static scene begin_scene(test_fixture *fixture, uint64_t limit)
{
    needs_granule(2 * MIB);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scene made = {.fixture = fixture, .stream = stream};
    empty_the_pool(fixture);
    made.first = test_allocate(fixture, 6 * MIB, stream);
    made.blocks[0] = test_allocate(fixture, 2 * MIB, stream);
    made.second = test_allocate(fixture, 6 * MIB, stream);
    made.blocks[1] = test_allocate(fixture, 2 * MIB, stream);
    test_write(fixture, &made.blocks[0], 0x61, stream);
    test_write(fixture, &made.blocks[1], 0x62, stream);
    check_ok(strata_runtime_trim(fixture->runtime, SIZE_MAX, NULL));
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 16 * MIB);
    set_limit(fixture, limit);
    return made;
}

/* Both parts are written and freed behind what holds the stream. */
static scene begin_unfinished(test_fixture *fixture)
{
    scene made = begin_scene(fixture, 16 * MIB);
    made.stall = test_stall_begin(made.stream);
    test_write(fixture, &made.first, 0x11, made.stream);
    test_write(fixture, &made.second, 0x22, made.stream);
    test_free_on(fixture, &made.first, made.stream);
    test_free_on(fixture, &made.second, made.stream);
    return made;
}

static strata_status take(const scene *made, size_t bytes, strata_block *out)
{
    return try_to_allocate(made->fixture, bytes, made->stream, out);
}

static void end_stall(scene *made, strata_status status)
{
    test_stall_end(made->stall);
    made->stall = NULL;
    check_ok(status);
}

static void end_scene(scene *made)
{
    for (size_t i = 0; i < 2; i++) {
        check_ends(made->fixture, &made->blocks[i], (unsigned char)(0x61 + i), made->stream);
        test_free_on(made->fixture, &made->blocks[i], made->stream);
    }
}

/* All that is free, as one block. */
static void check_all(const scene *made, unsigned char value)
{
    strata_block all = test_allocate(made->fixture, 12 * MIB, made->stream);
    test_write(made->fixture, &all, value, made->stream);
    check_ends(made->fixture, &all, value, made->stream);
    test_free_on(made->fixture, &all, made->stream);
}

static size_t waits_of(const test_calls *calls)
{
    return test_calls_of(calls, "cuEventSynchronize") + test_calls_of(calls, "cuStreamSynchronize") +
           test_calls_of(calls, "cuCtxSynchronize");
}

static bool is_finished(CUstream stream)
{
    return test_cu()->StreamQuery(stream) == CUDA_SUCCESS;
}

/* ---- moving ---- */

static void a_request_takes_its_streams_unfinished_memory_from_anywhere(test_fixture *fixture)
{
    scene made = begin_unfinished(fixture);
    test_calls calls;
    test_calls_begin(&calls);
    strata_block block;
    const strata_status status = take(&made, 12 * MIB, &block);
    const size_t waits = waits_of(&calls), unmapped = test_calls_of(&calls, "cuMemUnmap");
    const unsigned char *seen = NULL;
    if (status == STRATA_SUCCESS) {
        test_write(fixture, &block, 0x55, made.stream);
        seen = test_copy_back(fixture, block.address, EDGE, made.stream);
    }
    const bool finished = is_finished(made.stream);
    end_stall(&made, status);
    assert_true(test_is_swept() || (waits == 0 && unmapped == 0 && !finished));
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 16 * MIB);
    check_bytes(seen, 0x55, EDGE);
    check_ends(fixture, &block, 0x55, made.stream);
    test_free_on(fixture, &block, made.stream);
    end_scene(&made);
}

/* What is left of the moved memory waits for the work at the former addresses, as what was moved does. */
static void what_another_stream_takes_of_it_waits_for_the_old_work(test_fixture *fixture)
{
    scene made = begin_unfinished(fixture);
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block, rest;
    strata_status status = take(&made, 11 * MIB, &block);
    bool finished = false;
    if (status == STRATA_SUCCESS && (status = try_to_allocate(fixture, MIB, other, &rest)) == STRATA_SUCCESS) {
        test_write(fixture, &rest, 0x77, other);
        finished = is_finished(other);
    }
    end_stall(&made, status);
    assert_true(test_is_swept() || !finished);
    check_ends(fixture, &rest, 0x77, other);
    test_free_on(fixture, &rest, other);
    test_free_on(fixture, &block, made.stream);
    end_scene(&made);
}

/* It is made instead; the first part moves. */
static void what_another_stream_may_use_does_not_move(test_fixture *fixture)
{
    scene made = begin_scene(fixture, 22 * MIB);
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    const uint64_t moved = value_of(fixture->runtime, "pool.chunks.moved");
    made.stall = test_stall_begin(made.stream);
    test_write(fixture, &made.first, 0x11, made.stream);
    write_head(fixture, &made.second, 0x22, other);
    test_free_on(fixture, &made.first, made.stream);
    test_free_on(fixture, &made.second, made.stream);
    strata_block block;
    end_stall(&made, take(&made, 10 * MIB, &block));
    assert_true(test_is_swept() || value_of(fixture->runtime, "pool.chunks.moved") - moved == 3);
    assert_true(test_is_swept() || value_of(fixture->runtime, "pool.reserved") == 20 * MIB);
    test_free_on(fixture, &block, made.stream);
    end_scene(&made);
}

/* At a limit, or with prefer=memory: the request's stream waits for the other, and the host for neither. */
static void what_another_stream_may_use_moves_behind_a_wait(test_fixture *fixture)
{
    scene made = begin_scene(fixture, 16 * MIB);
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    test_calls calls;
    made.stall = test_stall_begin(other);
    write_head(fixture, &made.second, 0x22, other);
    test_free_on(fixture, &made.first, other);
    test_free_on(fixture, &made.second, other);
    test_calls_begin(&calls);
    strata_block block;
    const strata_status status = take(&made, 12 * MIB, &block);
    const size_t waits = waits_of(&calls);
    if (status == STRATA_SUCCESS)
        test_write(fixture, &block, 0x55, made.stream);
    const bool finished = is_finished(made.stream);
    end_stall(&made, status);
    assert_true(test_is_swept() || (waits == 0 && !finished));
    check_ends(fixture, &block, 0x55, made.stream);
    test_free_on(fixture, &block, made.stream);
    end_scene(&made);
}

/* ---- former addresses ---- */

/* Moves all that is free, and frees it again at its new place: all is complete, or only the stall is over. */
static scene move_and_free(test_fixture *fixture, bool ended)
{
    scene made = begin_unfinished(fixture);
    strata_block block;
    const strata_status status = take(&made, 12 * MIB, &block);
    if (ended)
        test_stall_end(made.stall);
    else
        test_stall_release(made.stall);
    check_ok(status);
    test_free_on(fixture, &block, made.stream);
    made.stall = NULL;
    return made;
}

static void a_miss_after_the_old_work_gives_former_addresses_up(test_fixture *fixture)
{
    scene made = move_and_free(fixture, true);
    test_calls calls;
    test_calls_begin(&calls);
    check_refused(fixture, 14 * MIB, made.stream);
    assert_true(test_is_swept() || test_calls_of(&calls, "cuMemUnmap") == 2);
    check_all(&made, 0x33);
    end_scene(&made);
}

static void a_trim_waits_for_the_old_work(test_fixture *fixture)
{
    scene made = move_and_free(fixture, false);
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    assert_true(test_is_swept() || value_of(fixture->runtime, "pool.reserved") == 4 * MIB);
    test_stall_end_all();
    end_scene(&made);
}

/* Its memory would stay anyway. */
static void a_trim_does_not_wait_for_the_old_work_of_what_is_live(test_fixture *fixture)
{
    scene made = begin_unfinished(fixture);
    strata_block block;
    strata_status status = take(&made, 12 * MIB, &block);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_trim(fixture->runtime, 0, NULL);
    const bool finished = is_finished(made.stream);
    end_stall(&made, status);
    assert_true(test_is_swept() || !finished);
    test_free_on(fixture, &block, made.stream);
    end_scene(&made);
}

static void a_stack_is_destroyed_with_former_addresses(test_fixture *fixture)
{
    scene made = move_and_free(fixture, true);
    end_scene(&made); /* the fixture destroys it */
}

static struct {
    test_stall *stall; /* NULL: released */
    CUresult (*synchronize)(CUevent event);
} host;

/* The host waits, so the device goes on. */
static CUresult release_and_synchronize(CUevent event)
{
    if (host.stall)
        test_stall_release(host.stall);
    host.stall = NULL;
    return host.synchronize(event);
}

/* Cuts what is free in three, and frees the outer two, so that only by a move they serve one request. */
static strata_status move_again(const scene *made)
{
    strata_block parts[3], moved;
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < 3 && status == STRATA_SUCCESS; i++)
        status = take(made, 4 * MIB, &parts[i]);
    if (status != STRATA_SUCCESS)
        return status;
    test_free_on(made->fixture, &parts[0], made->stream);
    test_free_on(made->fixture, &parts[2], made->stream);
    status = take(made, 8 * MIB, &moved);
    if (status == STRATA_SUCCESS) {
        test_write(made->fixture, &moved, 0x44, made->stream);
        test_free_on(made->fixture, &moved, made->stream);
    }
    test_free_on(made->fixture, &parts[1], made->stream);
    return status;
}

/* Returns how often memory moved; *waited: the host waited at last. */
static size_t move_often(test_fixture *fixture, size_t most, bool *waited)
{
    scene made = begin_unfinished(fixture);
    host.stall = made.stall;
    host.synchronize = strata_cu.EventSynchronize;
    strata_cu.EventSynchronize = release_and_synchronize;
    strata_block all;
    size_t times = 0;
    strata_status status = take(&made, 12 * MIB, &all);
    if (status == STRATA_SUCCESS)
        test_free_on(fixture, &all, made.stream);
    for (; status == STRATA_SUCCESS && times < most && host.stall; times++)
        status = move_again(&made);
    strata_cu.EventSynchronize = host.synchronize;
    *waited = !host.stall;
    end_stall(&made, status);
    check_all(&made, 0x33);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 16 * MIB);
    end_scene(&made);
    return times;
}

static void what_moved_moves_again(test_fixture *fixture)
{
    bool waited;
    const size_t times = move_often(fixture, 20, &waited);
    assert_true(test_is_swept() || (times == 20 && !waited));
}

/* All former places together have less than the addresses that are left: then the host waits. */
static void former_places_leave_addresses_for_all_memory(test_fixture *fixture)
{
    bool waited;
    const size_t times = move_often(fixture, 20, &waited);
    assert_true(test_is_swept() || (times > 1 && times < 10 && waited));
}

/* ---- beside a thread that waits for the old work ---- */

static struct {
    strata_runtime *runtime;
    CUresult (*synchronize)(CUevent event);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    _Atomic bool armed; /* for once */
    bool refused;       /* one cuMemMap */
    sem_t waits, go_on;
} trimmer;

static CUresult say_and_synchronize(CUevent event)
{
    if (atomic_exchange(&trimmer.armed, false)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1; /* for a request that waits for the trim instead */
        sem_post(&trimmer.waits);
        sem_timedwait(&trimmer.go_on, &until);
    }
    return trimmer.synchronize(event);
}

/* The trim goes on once the request has failed to map memory, and waits for its turn. */
static CUresult refuse_once(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long flags)
{
    if (trimmer.refused)
        return trimmer.map(address, bytes, offset, handle, flags);
    trimmer.refused = true;
    sem_post(&trimmer.go_on);
    return CUDA_ERROR_UNKNOWN;
}

static void *trim(void *data)
{
    test_make_current();
    *(strata_status *)data = strata_runtime_trim(trimmer.runtime, 0, NULL);
    if (atomic_exchange(&trimmer.armed, false)) /* it did not wait */
        sem_post(&trimmer.waits);
    return NULL;
}

/* Six blocks of a chunk each, in memory that moved. Every second one is free again. */
static strata_status cut_what_moved(const scene *made, size_t odd, strata_block parts[6])
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < 6 && status == STRATA_SUCCESS; i++)
        status = take(made, 2 * MIB, &parts[i]);
    for (size_t i = odd; i < 6 && status == STRATA_SUCCESS; i += 2)
        test_free_on(made->fixture, &parts[i], made->stream);
    return status;
}

/* Moves chunks that a trim waits for, but they cannot be mapped: they go back to their places. */
static strata_status fail_to_move_beside_a_trim(const scene *made)
{
    strata_block moved;
    pthread_t thread;
    strata_status trimmed = STRATA_SUCCESS;
    trimmer.runtime = made->fixture->runtime;
    trimmer.armed = true;
    trimmer.synchronize = strata_cu.EventSynchronize;
    sem_init(&trimmer.waits, 0, 0);
    sem_init(&trimmer.go_on, 0, 0);
    strata_cu.EventSynchronize = say_and_synchronize;
    assert_int_equal(pthread_create(&thread, NULL, trim, &trimmed), 0);
    sem_wait(&trimmer.waits);
    test_stall_release(made->stall);
    test_synchronize(made->stream);
    trimmer.refused = false;
    trimmer.map = strata_cu.MemMap;
    strata_cu.MemMap = refuse_once;
    if (take(made, 6 * MIB, &moved) == STRATA_SUCCESS)
        test_free_on(made->fixture, &moved, made->stream);
    strata_cu.MemMap = trimmer.map;
    if (!trimmer.refused)
        sem_post(&trimmer.go_on);
    pthread_join(thread, NULL);
    strata_cu.EventSynchronize = trimmer.synchronize;
    return trimmed;
}

static void a_failed_move_beside_a_thread_that_waits_leaves_all_in_its_place(test_fixture *fixture)
{
    for (size_t odd = 0; odd < 2; odd++) {
        scene made = begin_unfinished(fixture);
        strata_block parts[6], all;
        check_ok(take(&made, 12 * MIB, &all));
        test_free_on(fixture, &all, made.stream);
        check_ok(cut_what_moved(&made, odd, parts));
        end_stall(&made, fail_to_move_beside_a_trim(&made));
        for (size_t i = 1 - odd; i < 6; i += 2) {
            test_write(fixture, &parts[i], 0x35, made.stream);
            check_ends(fixture, &parts[i], 0x35, made.stream);
            test_free_on(fixture, &parts[i], made.stream);
        }
        check_all(&made, 0x36);
        check_cu(test_cu()->CtxSynchronize());
        check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
        assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 4 * MIB);
        end_scene(&made);
    }
}

enum { READERS = 4, UNKNOWN = 1 };

/* A trim that waits for the work of several streams at one place. */
static struct {
    pool *inside;
    CUstream readers[READERS];
    test_stall *stall; /* holds them all */
    CUresult (*synchronize)(CUevent event);
    unsigned calls;
    bool good;
} places;

/* All work is over. At the places that becomes known but for one reader: its point comes to stand where that of another
 * one was. */
static void *look_at_places(void *data)
{
    (void)data;
    test_make_current();
    test_stall_release(places.stall);
    for (size_t i = 0; i < READERS; i++) {
        strata_stream_ref reader;
        test_synchronize(places.readers[i]);
        const strata_status status = strata_stream_resolve(places.inside->device, places.readers[i], &reader);
        places.good = places.good && status == STRATA_SUCCESS;
        if (status == STRATA_SUCCESS && i != UNKNOWN)
            strata_timeline_poll_up_to_now(reader.timeline);
    }
    strata_lock_take(&places.inside->map_lock);
    pool_unmap_formers(places.inside);
    strata_lock_release(&places.inside->map_lock);
    return NULL;
}

/* While the trim waits for a first point, another thread looks at the places. */
static CUresult look_and_synchronize(CUevent event)
{
    pthread_t thread;
    if (!places.calls++ && pthread_create(&thread, NULL, look_at_places, NULL) == 0)
        pthread_join(thread, NULL);
    return places.synchronize(event);
}

/* The free leaves the points of the last and the first reader in the entry, and the two others beside it. */
static void read_behind_a_stall(const scene *made)
{
    const CUstream held = test_stream(made->fixture, TEST_STREAM_POOL);
    places.stall = test_stall_begin(held);
    for (size_t i = 0; i < READERS; i++) {
        places.readers[i] = test_stream(made->fixture, TEST_STREAM_POOL);
        test_order_after(places.readers[i], held);
        read_head(made->fixture, &made->first, places.readers[i]);
        read_head(made->fixture, &made->second, places.readers[i]);
    }
}

static void a_trim_waits_for_each_stream_beside_a_thread_that_looks_at_former_places(test_fixture *fixture)
{
    scene made = begin_scene(fixture, 16 * MIB);
    strata_block all;
    places.inside = pool_inside(fixture->runtime);
    places.calls = 0;
    places.good = true;
    read_behind_a_stall(&made);
    test_free_on(fixture, &made.first, made.stream);
    test_free_on(fixture, &made.second, made.stream);
    strata_status status = take(&made, 12 * MIB, &all);
    if (status == STRATA_SUCCESS)
        test_free_on(fixture, &all, made.stream);
    places.synchronize = strata_cu.EventSynchronize;
    strata_cu.EventSynchronize = look_and_synchronize;
    if (status == STRATA_SUCCESS)
        status = strata_runtime_trim(fixture->runtime, 0, NULL);
    strata_cu.EventSynchronize = places.synchronize;
    test_stall_end(places.stall);
    check_ok(status);
    assert_true(places.calls && places.good);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 4 * MIB);
    end_scene(&made);
}

/* In bytes, of the simulated driver. */
static uint64_t reserved_by_all(void)
{
    strata_sim_accounts accounts = {0};
    if (test_sim_control())
        check_cu(test_sim_control()->get_accounts(&accounts));
    return accounts.reserved_bytes;
}

int main(void)
{
    static const char *const stacks[] = {"pool(chunk=2MiB, decay=0)", "pool(chunk=2MiB, prefer=memory, decay=0)"};
    static const test_case cases[] = {
        TEST_CASE(a_request_takes_its_streams_unfinished_memory_from_anywhere),
        TEST_CASE(what_another_stream_takes_of_it_waits_for_the_old_work),
        TEST_CASE(what_another_stream_may_use_moves_behind_a_wait),
        TEST_CASE(a_miss_after_the_old_work_gives_former_addresses_up),
        TEST_CASE(a_trim_waits_for_the_old_work),
        TEST_CASE(a_trim_does_not_wait_for_the_old_work_of_what_is_live),
        TEST_CASE(a_stack_is_destroyed_with_former_addresses),
        TEST_CASE(what_moved_moves_again),
    };
    static const test_case beside_a_trim[] = {
        /* not in sweeps: a fault of its own, or threads */
        TEST_CASE(a_failed_move_beside_a_thread_that_waits_leaves_all_in_its_place),
        TEST_CASE(a_trim_waits_for_each_stream_beside_a_thread_that_looks_at_former_places),
    };
    test_before_clearing = lift_limit;
    test_open_driver();
    static const test_case without_limit[] = {TEST_CASE(what_another_stream_may_use_does_not_move)};
    static const char *const few_addresses[] = {"pool(chunk=2MiB, max_size=16MiB, decay=0)"};
    static const test_case of_addresses[] = {TEST_CASE(former_places_leave_addresses_for_all_memory)};
    const uint64_t before = reserved_by_all();
    int failed = test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]) +
                 test_run_on(stacks, 1, without_limit, 1) + test_run_on(few_addresses, 1, of_addresses, 1);
    if (!test_is_swept())
        failed += test_run_on(stacks, sizeof stacks / sizeof stacks[0], beside_a_trim,
                              sizeof beside_a_trim / sizeof beside_a_trim[0]);
    return failed + (!test_is_swept() && reserved_by_all() != before);
}
