/* Streams that use a block until its free: the memory goes on only behind their work, also behind what was submitted
 * after they were named. The work itself is recorded nowhere. */
#include "support/captures.h"
#include "support/effort.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/base/error.h"
#include "core/streams/stream_map.h"

#include <pthread.h>

enum { BYTES = 1 << 16, MANY = 8 };

/* Of the case. */
static strata_ref *ref;
static strata_graph *graph;

static void clear_away(void)
{
    strata_error_suppress_begin();
    strata_ref_release(ref);
    strata_graph_destroy(graph);
    strata_error_suppress_end(false);
    ref = NULL;
    graph = NULL;
}

static void name(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    check_ok(strata_runtime_use_until_free(fixture->runtime, block, stream));
}

/* A block with 0x11 in it, which `user` may read. */
static strata_block filled(test_fixture *fixture, CUstream stream, CUstream user)
{
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x11, stream);
    test_order_after(user, stream);
    return block;
}

/* Unrecorded work. */
static const unsigned char *read_it(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    return test_copy_back(fixture, block->address, BYTES, stream);
}

/* Also on the stream that frees, which comes after nothing but its own work. */
static void read_on_both(test_fixture *fixture, const strata_block *block, CUstream freeing, CUstream user,
                         const unsigned char *seen[2])
{
    seen[0] = read_it(fixture, block, user);
    seen[1] = read_it(fixture, block, freeing);
}

static void take_and_fill(test_fixture *fixture, CUstream stream)
{
    strata_block blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = test_allocate(fixture, BYTES, stream);
        test_fill(blocks[i].address, 0x99, BYTES, stream);
    }
    for (size_t i = 0; i < MANY; i++)
        test_free_on(fixture, &blocks[i], stream);
}

/* Whichever stream takes the freed memory, the readers saw what was there before. */
static void check_reuse(test_fixture *fixture, CUstream alloc_stream, const unsigned char *const *seen, size_t count)
{
    CUstream third = test_stream(fixture, TEST_STREAM_POOL);
    take_and_fill(fixture, alloc_stream);
    take_and_fill(fixture, third);
    check_cu(test_cu()->CtxSynchronize());
    for (size_t i = 0; i < count; i++)
        check_bytes(seen[i], 0x11, BYTES);
    test_stream_close(fixture, third);
    fixture->seen_used = 0;
}

/* ---- orders ---- */

static void a_free_comes_after_what_a_named_stream_was_given_before_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream user = test_stream(fixture, kind);
        strata_block block = filled(fixture, stream, user);
        name(fixture, &block, user);
        const unsigned char *seen[2];
        read_on_both(fixture, &block, stream, user, seen);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        check_reuse(fixture, stream, seen, 2);
        test_stream_close(fixture, user);
    }
}

static void a_free_on_another_stream_comes_after_it_too(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    CUstream other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = filled(fixture, stream, user);
    test_order_after(other, stream);
    name(fixture, &block, user);
    const unsigned char *seen[2];
    read_on_both(fixture, &block, other, user, seen);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, other));
    check_reuse(fixture, other, seen, 2);
    block = filled(fixture, stream, user);
    name(fixture, &block, user);
    read_on_both(fixture, &block, stream, user, seen);
    check_ok(strata_runtime_deallocate_address(fixture->runtime, block.address, stream));
    check_reuse(fixture, stream, seen, 2);
}

static void a_free_comes_after_every_named_stream(test_fixture *fixture)
{
    enum { USERS = 7 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), users[USERS];
    const unsigned char *seen[USERS];
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x11, stream);
    for (size_t i = 0; i < USERS; i++) {
        users[i] = test_stream(fixture, i % 3);
        test_order_after(users[i], stream);
        name(fixture, &block, users[i]);
    }
    for (size_t i = 0; i < USERS; i++)
        seen[i] = read_it(fixture, &block, users[i]);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_reuse(fixture, stream, seen, USERS);
}

/* The stream is destroyed before the free: its work until then counts. */
static void a_named_stream_may_be_unregistered_before_the_free(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_block block = filled(fixture, stream, user);
    name(fixture, &block, user);
    const unsigned char *seen[2];
    read_on_both(fixture, &block, stream, user, seen);
    test_stream_close(fixture, user);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_reuse(fixture, stream, seen, 2);
}

static void a_named_stream_may_be_registered_again_before_the_free(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_block block = filled(fixture, stream, user);
    name(fixture, &block, user);
    const unsigned char *seen[3] = {read_it(fixture, &block, user)};
    check_ok(strata_runtime_unregister_stream(fixture->runtime, user));
    const strata_status again = strata_runtime_register_stream(fixture->runtime, user);
    if (again != STRATA_SUCCESS) { /* a sweep's fault */
        check_cu(test_cu()->StreamSynchronize(user));
        test_stream_forget(fixture, user);
        check_cu(test_cu()->StreamDestroy(user));
    }
    check_ok(again);
    read_on_both(fixture, &block, stream, user, seen + 1);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_reuse(fixture, stream, seen, 3);
}

static void a_stream_that_was_unknown_may_be_registered_before_the_free(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = filled(fixture, stream, user);
    name(fixture, &block, user);
    check_ok(strata_runtime_register_stream(fixture->runtime, user));
    const unsigned char *seen[2];
    read_on_both(fixture, &block, stream, user, seen);
    const strata_status freed = strata_runtime_deallocate(fixture->runtime, &block);
    const strata_status left = strata_runtime_unregister_stream(fixture->runtime, user);
    if (left != STRATA_SUCCESS)
        strata_runtime_unregister_stream(fixture->runtime, user);
    check_ok(freed);
    check_ok(left);
    check_reuse(fixture, stream, seen, 2);
}

/* ---- streams that the free cannot identify ---- */

static void a_free_waits_for_the_device_if_a_named_stream_is_captured(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = filled(fixture, stream, user);
    name(fixture, &block, user);
    const unsigned char *seen[2];
    read_on_both(fixture, &block, stream, user, seen);
    test_begin_capture(user);
    const strata_status freed = strata_runtime_deallocate(fixture->runtime, &block);
    assert_int_equal(test_end_capture(user), 0); /* the capture is as it was */
    check_ok(freed);
    check_reuse(fixture, stream, seen, 2);
}

static void a_named_stream_may_be_left_to_a_capture_of_stratas(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = filled(fixture, stream, user);
    name(fixture, &block, user);
    const unsigned char *seen[2];
    read_on_both(fixture, &block, stream, user, seen);
    check_ok(strata_capture_begin(fixture->runtime, user, STRATA_CAPTURE_GLOBAL, NULL));
    const strata_status freed = strata_runtime_deallocate(fixture->runtime, &block);
    const strata_status ended = strata_capture_end(fixture->runtime, user, &graph);
    clear_away();
    check_ok(freed);
    check_ok(ended);
    check_reuse(fixture, stream, seen, 2);
}

typedef struct other_thread {
    test_fixture *fixture;
    const strata_block *block;
    CUstream after; /* its work comes first */
    const unsigned char *seen;
    strata_status named;
    pthread_barrier_t step;
} other_thread;

static void *name_own_stream(void *data)
{
    other_thread *self = data;
    test_make_current();
    test_order_after(CU_STREAM_PER_THREAD, self->after);
    self->named = strata_runtime_use_until_free(self->fixture->runtime, self->block, CU_STREAM_PER_THREAD);
    if (self->named == STRATA_SUCCESS) /* else a sweep's fault */
        self->seen = read_it(self->fixture, self->block, CU_STREAM_PER_THREAD);
    pthread_barrier_wait(&self->step);
    pthread_barrier_wait(&self->step); /* the stream lives until the free */
    test_leave_thread();
    return NULL;
}

static void a_free_waits_for_the_device_for_another_threads_default_stream(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = filled(fixture, stream, CU_STREAM_PER_THREAD);
    other_thread other = {.fixture = fixture, .block = &block, .after = stream};
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&other.step, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, name_own_stream, &other), 0);
    pthread_barrier_wait(&other.step);
    const strata_status freed = strata_runtime_deallocate(fixture->runtime, &block);
    pthread_barrier_wait(&other.step);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&other.step);
    check_ok(other.named);
    check_ok(freed);
    check_reuse(fixture, stream, &other.seen, 1);
}

/* ---- which frees ---- */

static void a_free_that_fails_leaves_the_streams_named(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = filled(fixture, stream, user);
    name(fixture, &block, user);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ));
    const strata_status freed = strata_runtime_deallocate(fixture->runtime, &block);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_NONE));
    check_status(freed, STRATA_ERROR_BLOCK_IN_USE);
    const unsigned char *seen = read_it(fixture, &block, user);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_reuse(fixture, stream, &seen, 1);
}

static void the_last_release_of_a_reference_is_such_a_free(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = filled(fixture, stream, user);
    name(fixture, &block, user);
    const strata_status adopted = strata_ref_adopt(fixture->runtime, &block, STRATA_ELEMENT_F32, BYTES / 4, &ref);
    const unsigned char *seen[2];
    read_on_both(fixture, &block, stream, user, seen);
    if (adopted != STRATA_SUCCESS)
        strata_runtime_deallocate(fixture->runtime, &block);
    check_ok(adopted);
    strata_ref *last = ref;
    ref = NULL;
    check_ok(strata_ref_release(last));
    check_reuse(fixture, stream, seen, 2);
}

static void the_next_block_of_the_memory_has_no_named_streams(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    name(fixture, &block, user);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    block = test_allocate(fixture, BYTES, stream);
    test_synchronize(user);
    test_stall *stall = test_stall_begin(user);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    take_and_fill(fixture, stream);
    test_synchronize(stream); /* the stall would run out if the stream waited for it */
    test_stall_end(stall);
}

/* What happens in the middle of a naming: the block is freed, its slot is the next one's, which a stream is named for.
 */
typedef struct midst {
    test_fixture *fixture; /* NULL: nothing happens */
    CUstream stream, user;
    strata_block block, next;
} midst;

static midst in_the_midst;

strata_status __real_strata_stream_identify(strata_device *device, CUstream handle, strata_stream_ref *out);
strata_status __wrap_strata_stream_identify(strata_device *device, CUstream handle, strata_stream_ref *out);

strata_status __wrap_strata_stream_identify(strata_device *device, CUstream handle, strata_stream_ref *out)
{
    midst *now = &in_the_midst;
    test_fixture *fixture = now->fixture;
    now->fixture = NULL;
    if (fixture) {
        check_ok(strata_runtime_deallocate(fixture->runtime, &now->block));
        now->next = filled(fixture, now->stream, now->user);
        name(fixture, &now->next, now->user);
    }
    return __real_strata_stream_identify(device, handle, out);
}

static void a_naming_that_a_free_overtakes_leaves_the_next_block_its_streams(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    CUstream unknown = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream);
    in_the_midst = (midst){.fixture = fixture, .stream = stream, .user = user, .block = block};
    const strata_status named = strata_runtime_use_until_free(fixture->runtime, &block, unknown);
    in_the_midst.fixture = NULL;
    strata_block next = in_the_midst.next;
    const unsigned char *seen[2];
    read_on_both(fixture, &next, stream, user, seen);
    check_ok(strata_runtime_deallocate(fixture->runtime, &next));
    check_reuse(fixture, stream, seen, 2);
    assert_int_equal(next.id.slot, block.id.slot);
    check_status(named, STRATA_ERROR_USE_AFTER_FREE);
}

enum { FREED_BESIDE = 24 };

typedef struct freeing_thread {
    test_fixture *fixture;
    strata_block blocks[FREED_BESIDE];
    pthread_barrier_t begin;
    unsigned failed;
} freeing_thread;

static void *free_all(void *data)
{
    freeing_thread *self = data;
    test_make_current();
    pthread_barrier_wait(&self->begin);
    for (size_t i = 0; i < FREED_BESIDE; i++)
        self->failed += strata_runtime_deallocate(self->fixture->runtime, &self->blocks[i]) != STRATA_SUCCESS;
    return NULL;
}

/* The frees use the stream's handle, or find that it is known no more; then its owner destroys it. */
static void free_beside_the_end_of(test_fixture *fixture, CUstream stream, CUstream user)
{
    freeing_thread other = {.fixture = fixture};
    pthread_t thread;
    for (size_t i = 0; i < FREED_BESIDE; i++) {
        other.blocks[i] = test_allocate(fixture, BYTES, stream);
        name(fixture, &other.blocks[i], user);
        test_order_after(user, stream);
        test_fill(other.blocks[i].address, 0x22, BYTES, user);
    }
    assert_int_equal(pthread_barrier_init(&other.begin, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, free_all, &other), 0);
    pthread_barrier_wait(&other.begin);
    test_stream_close(fixture, user);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&other.begin);
    assert_int_equal(other.failed, 0);
    take_and_fill(fixture, stream);
}

static void a_named_stream_may_end_while_other_threads_free(test_fixture *fixture)
{
    if (test_is_swept()) /* no two runs make the same calls */
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const size_t rounds = test_effort(40, 4);
    for (size_t i = 0; i < rounds; i++)
        free_beside_the_end_of(fixture, stream, test_stream(fixture, TEST_STREAM_REGISTERED));
}

/* ---- costs, and refusals ---- */

/* Driver calls of a free after so many namings. */
static uint64_t calls_of_free(test_fixture *fixture, int times, CUstream stream, CUstream user)
{
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_calls calls;
    test_calls_begin(&calls);
    for (int i = 0; i < times; i++)
        name(fixture, &block, user);
    assert_int_equal(test_calls_total(&calls), 0);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    return test_calls_total(&calls);
}

static void a_stream_that_is_named_again_costs_no_driver_call(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    calls_of_free(fixture, 1, stream, user); /* makes what the free needs */
    const uint64_t once = calls_of_free(fixture, 1, stream, user);
    const uint64_t often = calls_of_free(fixture, 100, stream, user);
    assert_true(often < once + 20); /* a few differ by how far earlier frees are; a call for each naming would be 99 */
}

static void what_is_no_live_block_cannot_be_named(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_runtime *runtime = fixture->runtime;
    strata_block block = test_allocate(fixture, BYTES, stream), foreign = block;
    const strata_block empty = {0};
    foreign.id.table ^= 1;
    check_status(strata_runtime_use_until_free(runtime, &foreign, stream), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_use_until_free(runtime, NULL, stream), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_use_until_free(NULL, &block, stream), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_use_until_free(runtime, &block, STRATA_STREAM_GONE), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_runtime_use_until_free(runtime, &empty, stream));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_status(strata_runtime_use_until_free(runtime, &block, stream), STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_runtime_deallocate(runtime, &block), STRATA_ERROR_DOUBLE_FREE);
}

static void a_stream_that_other_code_captures_cannot_be_named(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_begin_capture(user);
    const strata_status refused = strata_runtime_use_until_free(fixture->runtime, &block, user);
    assert_int_equal(test_end_capture(user), 0);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_status(refused, STRATA_ERROR_STREAM_CAPTURE);
}

/* In a capture of Strata's the graph keeps the block: its launches come before the reuse. */
static void in_a_capture_of_stratas_the_graph_keeps_the_block(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = filled(fixture, stream, user);
    check_ok(strata_capture_begin(fixture->runtime, user, STRATA_CAPTURE_GLOBAL, NULL));
    const unsigned char *seen = read_it(fixture, &block, user);
    const strata_status named = strata_runtime_use_until_free(fixture->runtime, &block, user);
    strata_status status = strata_capture_end(fixture->runtime, user, &graph);
    const strata_status freed = strata_runtime_deallocate(fixture->runtime, &block);
    if (status == STRATA_SUCCESS)
        status = strata_graph_launch(graph, user);
    take_and_fill(fixture, stream);
    test_synchronize(user);
    strata_graph *ended = graph;
    graph = NULL;
    const strata_status destroyed = strata_graph_destroy(ended);
    check_ok(named);
    check_ok(freed);
    check_ok(status);
    check_ok(destroyed);
    check_reuse(fixture, stream, &seen, 1);
}

int main(void)
{
    test_open_driver();
    test_before_clearing = clear_away;
    const test_case cases[] = {
        TEST_CASE(a_free_comes_after_what_a_named_stream_was_given_before_it),
        TEST_CASE(a_free_on_another_stream_comes_after_it_too),
        TEST_CASE(a_free_comes_after_every_named_stream),
        TEST_CASE(a_named_stream_may_be_unregistered_before_the_free),
        TEST_CASE(a_named_stream_may_be_registered_again_before_the_free),
        TEST_CASE(a_stream_that_was_unknown_may_be_registered_before_the_free),
        TEST_CASE(a_free_waits_for_the_device_if_a_named_stream_is_captured),
        TEST_CASE(a_named_stream_may_be_left_to_a_capture_of_stratas),
        TEST_CASE(a_free_waits_for_the_device_for_another_threads_default_stream),
        TEST_CASE(a_free_that_fails_leaves_the_streams_named),
        TEST_CASE(the_last_release_of_a_reference_is_such_a_free),
        TEST_CASE(the_next_block_of_the_memory_has_no_named_streams),
        TEST_CASE(a_naming_that_a_free_overtakes_leaves_the_next_block_its_streams),
        TEST_CASE(a_named_stream_may_end_while_other_threads_free),
        TEST_CASE(a_stream_that_is_named_again_costs_no_driver_call),
        TEST_CASE(what_is_no_live_block_cannot_be_named),
        TEST_CASE(a_stream_that_other_code_captures_cannot_be_named),
        TEST_CASE(in_a_capture_of_stratas_the_graph_keeps_the_block),
    };
    return test_run_on_stream_ordered(cases, sizeof cases / sizeof cases[0]);
}
