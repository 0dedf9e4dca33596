/* Orders that only a certain moment would break: in the middle of one call, other threads come in. Where that is, a
 * test says with a driver call that it replaces, with a layer of its own, or with a function of the library that the
 * linker puts it in front of (--wrap). */
#include "core/base/host_memory.h"
#include "core/streams/known_streams.h"
#include "core/streams/stream_map.h"
#include "core/streams/use_records.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/child.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { BYTES = 4096 };

/* What comes in: another thread that does something, from begin to end. */
typedef struct meddler {
    bool (*meddle)(void *data);
    void *data;
    bool armed; /* for once */
    bool good;
} meddler;

static void *run_meddler(void *data)
{
    meddler *self = data;
    test_make_current();
    self->good = self->meddle(self->data);
    return NULL;
}

static void meddle_once(meddler *other)
{
    pthread_t thread;
    if (!other->armed)
        return;
    other->armed = false;
    if (pthread_create(&thread, NULL, run_meddler, other) == 0)
        pthread_join(thread, NULL);
}

static bool came_in(const meddler *other)
{
    return !other->armed && other->good;
}

/* A use without work: only to be noted. */
static bool use(strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access)
{
    return strata_runtime_prepare_block_use(runtime, block, stream, access) == STRATA_SUCCESS &&
           strata_runtime_finish_block_use(runtime, block, stream, access) == STRATA_SUCCESS;
}

/* ---- between the calls of a commit ---- */

static meddler in_finish;
static unsigned finishes_before; /* that come before the meddler */

static strata_status meddling_finish(strata_resource *self, const strata_block *block, CUstream stream,
                                     strata_access access)
{
    if (finishes_before)
        finishes_before--;
    else
        meddle_once(&in_finish);
    return self->upstream->ops->finish_use(self->upstream, block, stream, access);
}

static void end_layer(strata_resource *self)
{
    free(self);
}

static strata_status make_meddling(int device, const void *options, strata_resource **out)
{
    static const strata_resource_ops ops = {
        .size = sizeof ops, .name = "meddling", .finish_use = meddling_finish, .destroy = end_layer};
    (void)device, (void)options;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return strata_fail(STRATA_ERROR_OUT_OF_HOST_MEMORY, "meddling: out of host memory");
    (*out)->ops = &ops;
    return STRATA_SUCCESS;
}

static const strata_layer meddling = {.size = sizeof(strata_layer), .name = "meddling", .create = make_meddling};

typedef struct registration {
    strata_runtime *runtime;
    CUstream stream;
} registration;

static bool register_stream(void *data)
{
    registration *one = data;
    return strata_runtime_register_stream(one->runtime, one->stream) == STRATA_SUCCESS;
}

/* The event that the commit records on the stream must not count as covering later work: on a known stream it is
 * not recorded again. */
static void
a_stream_that_is_registered_in_the_middle_of_a_commit_keeps_the_order_of_its_later_work(test_fixture *fixture)
{
    char text[64];
    strata_runtime *runtime;
    strata_launch launch;
    strata_block block;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    snprintf(text, sizeof text, "meddling, %s", fixture->stack);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    check_ok(strata_runtime_allocate(runtime, BYTES, reader, &block));
    check_ok(strata_launch_begin(&launch, runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&launch));
    test_fill(block.address, 0x22, BYTES, stream);
    registration one = {.runtime = runtime, .stream = stream};
    finishes_before = 0;
    in_finish = (meddler){.meddle = register_stream, .data = &one, .armed = true};
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    assert_true(came_in(&in_finish));
    test_synchronize(stream);
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_runtime_prepare_block_use(runtime, &block, stream, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x33, BYTES, stream);
    check_ok(strata_runtime_finish_block_use(runtime, &block, stream, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_prepare_block_use(runtime, &block, reader, STRATA_ACCESS_READ));
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, reader);
    check_ok(strata_runtime_finish_block_use(runtime, &block, reader, STRATA_ACCESS_READ));
    test_stall_release(stall);
    test_synchronize(reader);
    check_ok(strata_runtime_unregister_stream(runtime, stream));
    check_bytes(seen, 0x33, BYTES);
    test_stall_end(stall);
    check_ok(strata_runtime_deallocate_on(runtime, &block, reader));
    check_ok(strata_runtime_destroy(runtime));
}

enum { STREAMS = 400 };

typedef struct passers_by {
    test_fixture *fixture;
    CUstream streams[STREAMS];
} passers_by;

/* So many streams that what is remembered of idle ones is forgotten. */
static bool pass_by(void *data)
{
    const passers_by *self = data;
    bool good = true;
    for (size_t i = 0; i < STREAMS && good; i++) {
        strata_stream_ref ref;
        good = strata_stream_resolve(self->fixture->runtime->device, self->streams[i], &ref) == STRATA_SUCCESS;
    }
    return good;
}

static void make_streams(CUstream streams[STREAMS])
{
    for (size_t i = 0; i < STREAMS; i++)
        check_cu(test_cu()->StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

static void destroy_streams(const CUstream streams[STREAMS])
{
    for (size_t i = 0; i < STREAMS; i++)
        check_cu(test_cu()->StreamDestroy(streams[i]));
}

/* Its event comes when all blocks are noted: until then the stream has work that nothing covers. */
static void a_stream_that_looks_idle_in_the_middle_of_a_commit_is_not_forgotten(test_fixture *fixture)
{
    static passers_by others;
    char text[64];
    strata_runtime *runtime;
    strata_launch launch;
    strata_block blocks[2];
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    others.fixture = fixture;
    make_streams(others.streams);
    snprintf(text, sizeof text, "meddling, %s", fixture->stack);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    check_ok(strata_launch_begin(&launch, runtime, stream, STRATA_LAUNCH_STRICT));
    for (size_t i = 0; i < 2; i++) {
        check_ok(strata_runtime_allocate(runtime, BYTES, reader, &blocks[i]));
        check_ok(strata_launch_use(&launch, &blocks[i], STRATA_ACCESS_WRITE));
    }
    check_ok(strata_launch_preflight(&launch));
    test_stall *stall = test_stall_begin(stream);
    for (size_t i = 0; i < 2; i++)
        test_fill(blocks[i].address, 0x22, BYTES, stream);
    finishes_before = 1;
    in_finish = (meddler){.meddle = pass_by, .data = &others, .armed = true};
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    assert_true(came_in(&in_finish));
    const unsigned char *seen[2];
    for (size_t i = 0; i < 2; i++) {
        check_ok(strata_runtime_prepare_block_use(runtime, &blocks[i], reader, STRATA_ACCESS_READ));
        seen[i] = test_copy_back(fixture, blocks[i].address, BYTES, reader);
        check_ok(strata_runtime_finish_block_use(runtime, &blocks[i], reader, STRATA_ACCESS_READ));
    }
    test_stall_release(stall);
    test_synchronize(reader);
    for (size_t i = 0; i < 2; i++)
        check_bytes(seen[i], 0x22, BYTES);
    test_stall_end(stall);
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_runtime_deallocate_on(runtime, &blocks[i], reader));
    check_ok(strata_runtime_destroy(runtime));
    destroy_streams(others.streams);
}

/* ---- between two waits of a prepare ---- */

static struct {
    PFN_cuStreamWaitEvent_v3020 wait;
    CUstream stream; /* whose waits count, and come before the meddler */
    unsigned waits;
    meddler meddler;
} in_wait;

static CUresult CUDAAPI meddling_wait(CUstream stream, CUevent event, unsigned flags)
{
    CUresult result = in_wait.wait(stream, event, flags);
    if (stream != in_wait.stream)
        return result;
    in_wait.waits++;
    meddle_once(&in_wait.meddler);
    return result;
}

typedef struct takeover {
    test_fixture *fixture;
    strata_timeline *timeline; /* to be had by another stream */
    strata_block block;        /* what that stream then comes after; none: nothing */
    CUstream streams[STREAMS];
    CUstream taker; /* which of them it was */
} takeover;

static bool take_timeline_over(void *data)
{
    takeover *self = data;
    strata_runtime *runtime = self->fixture->runtime;
    for (size_t i = 0; i < STREAMS; i++) {
        strata_stream_ref ref;
        if (strata_stream_resolve(runtime->device, self->streams[i], &ref) != STRATA_SUCCESS)
            return false;
        if (ref.timeline != self->timeline)
            continue;
        self->taker = self->streams[i];
        return !self->block.id.generation || use(runtime, &self->block, self->taker, STRATA_ACCESS_READ);
    }
    return false;
}

/* Prepares a use on the stream, which another one takes the timeline from behind its first wait; how many it made. */
static unsigned prepare_and_be_taken_over(takeover *other, const strata_block *block, CUstream stream,
                                          strata_access access)
{
    strata_stream_ref ref;
    check_ok(strata_stream_resolve(other->fixture->runtime->device, stream, &ref));
    other->timeline = ref.timeline;
    in_wait.wait = strata_cu.StreamWaitEvent;
    in_wait.stream = stream;
    in_wait.waits = 0;
    in_wait.meddler = (meddler){.meddle = take_timeline_over, .data = other, .armed = true};
    strata_cu.StreamWaitEvent = meddling_wait;
    const strata_status status = strata_runtime_prepare_block_use(other->fixture->runtime, block, stream, access);
    strata_cu.StreamWaitEvent = in_wait.wait;
    check_ok(status);
    assert_true(came_in(&in_wait.meddler));
    return in_wait.waits;
}

/* The stream has nothing pending when it is found, so its timeline may go to another one before the call is over. What
 * that one has waited for, the first has not. */
static void
a_stream_whose_timeline_goes_to_another_in_the_middle_of_a_prepare_waits_for_all_it_must(test_fixture *fixture)
{
    static takeover other;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), slow = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, writer);
    other.fixture = fixture;
    other.block = test_allocate(fixture, BYTES, slow);
    make_streams(other.streams);
    test_write(fixture, &block, 0x11, writer);
    test_stall *stall = test_stall_begin(slow);
    const unsigned char *seen = test_read(fixture, &block, slow);
    test_write(fixture, &other.block, 0x22, slow);
    const unsigned waits = prepare_and_be_taken_over(&other, &block, stream, STRATA_ACCESS_WRITE);
    assert_int_equal(waits, 2); /* for the write, and for the slow read */
    test_fill(block.address, 0x33, BYTES, stream);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE));
    test_stall_end(stall);
    check_bytes(seen, 0x11, BYTES);
    test_free_on(fixture, &block, writer);
    test_free_on(fixture, &other.block, slow);
    destroy_streams(other.streams);
}

/* And what the first has waited for, the other one has not. */
static void a_stream_that_takes_a_timeline_over_in_the_middle_of_a_wait_still_waits_by_itself(test_fixture *fixture)
{
    static takeover other;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), writer = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, writer);
    other = (takeover){.fixture = fixture};
    make_streams(other.streams);
    test_stall *stall = test_stall_begin(writer);
    test_write(fixture, &block, 0x11, writer);
    const unsigned waits = prepare_and_be_taken_over(&other, &block, stream, STRATA_ACCESS_READ);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_NONE));
    assert_int_equal(waits, 1);
    const unsigned char *seen = test_read(fixture, &block, other.taker);
    test_stall_release(stall);
    test_synchronize(other.taker);
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, writer);
    destroy_streams(other.streams);
}

/* Nor has it waited for anything that the first one had, however long ago. */
static void a_stream_that_has_another_ones_timeline_does_not_come_after_what_that_one_waited_for(test_fixture *fixture)
{
    static takeover other;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), writer = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, writer);
    strata_stream_ref ref;
    other = (takeover){.fixture = fixture};
    make_streams(other.streams);
    test_stall *stall = test_stall_begin(writer);
    test_write(fixture, &block, 0x11, writer);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_NONE));
    check_ok(strata_stream_resolve(fixture->runtime->device, stream, &ref));
    other.timeline = ref.timeline;
    assert_true(take_timeline_over(&other));
    const unsigned char *seen = test_read(fixture, &block, other.taker);
    test_stall_release(stall);
    test_synchronize(other.taker);
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, writer);
    destroy_streams(other.streams);
}

/* ---- while an event is waited for on the host ---- */

static struct {
    PFN_cuEventSynchronize_v2000 real;
    test_fixture *fixture;
    CUstream stream, reader;
    const strata_block *block;
    test_stall *stall;
    bool armed;
} in_synchronize;

/* The event is over when the stream goes on, and records as many as a timeline has. */
static CUresult CUDAAPI go_on_meanwhile(CUevent event)
{
    const CUresult result = in_synchronize.real(event);
    if (!in_synchronize.armed)
        return result;
    in_synchronize.armed = false;
    in_synchronize.stall = test_stall_begin(in_synchronize.stream);
    for (int i = 0; i < STRATA_TIMELINE_EVENTS; i++) {
        if (!use(in_synchronize.fixture->runtime, in_synchronize.block, in_synchronize.stream, STRATA_ACCESS_WRITE) ||
            test_cu()->MemsetD8Async(in_synchronize.block->address, 0x22, BYTES, in_synchronize.stream) !=
                CUDA_SUCCESS ||
            !use(in_synchronize.fixture->runtime, in_synchronize.block, in_synchronize.stream, STRATA_ACCESS_WRITE) ||
            !use(in_synchronize.fixture->runtime, in_synchronize.block, in_synchronize.reader, STRATA_ACCESS_READ))
            return CUDA_ERROR_UNKNOWN;
    }
    return result;
}

/* What is over is what the event stood for when it began to be waited for. */
static void an_event_that_is_waited_for_does_not_come_to_stand_for_later_work(test_fixture *fixture)
{
    if (test_is_swept())
        return; /* the wait is for its own sake */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_stream_ref ref;
    test_write(fixture, &block, 0x11, stream);
    check_ok(strata_stream_resolve(fixture->runtime->device, stream, &ref));
    in_synchronize.fixture = fixture;
    in_synchronize.stream = stream;
    in_synchronize.reader = reader;
    in_synchronize.block = &block;
    in_synchronize.stall = NULL;
    in_synchronize.armed = true;
    in_synchronize.real = strata_cu.EventSynchronize;
    strata_cu.EventSynchronize = go_on_meanwhile;
    const strata_status status = strata_point_synchronize(strata_timeline_now(ref.timeline));
    strata_cu.EventSynchronize = in_synchronize.real;
    check_ok(status);
    assert_false(in_synchronize.armed);
    CUstream late = test_stream(fixture, TEST_STREAM_POOL);
    const unsigned char *seen = test_read(fixture, &block, late);
    test_stall_release(in_synchronize.stall);
    test_synchronize(late);
    check_bytes(seen, 0x22, BYTES);
    test_stall_end(in_synchronize.stall);
    test_free_on(fixture, &block, stream);
}

/* ---- between reading the stream's epoch and noting it in the block ---- */

static _Thread_local meddler *in_note;

strata_clock *__real_strata_use_record_clock(const strata_use_record *note);
strata_clock *__wrap_strata_use_record_clock(const strata_use_record *note);

strata_clock *__wrap_strata_use_record_clock(const strata_use_record *note)
{
    if (in_note)
        meddle_once(in_note);
    return __real_strata_use_record_clock(note);
}

typedef struct later_read {
    test_fixture *fixture;
    strata_block block, other;
    CUstream stream, follower;
    const unsigned char *seen;
} later_read;

/* The follower comes after what the stream has been given so far, which ends its epoch; then the stream reads again. */
static bool read_later(void *data)
{
    later_read *self = data;
    strata_runtime *runtime = self->fixture->runtime;
    if (!use(runtime, &self->other, self->follower, STRATA_ACCESS_WRITE) ||
        test_cu()->StreamSynchronize(self->stream) != CUDA_SUCCESS)
        return false;
    test_stall_begin(self->stream);
    if (strata_runtime_prepare_block_use(runtime, &self->block, self->stream, STRATA_ACCESS_READ) != STRATA_SUCCESS)
        return false;
    self->seen = test_copy_back(self->fixture, self->block.address, BYTES, self->stream);
    return strata_runtime_finish_block_use(runtime, &self->block, self->stream, STRATA_ACCESS_READ) == STRATA_SUCCESS;
}

static void an_earlier_note_of_a_stream_does_not_replace_a_later_one_of_another_thread(test_fixture *fixture)
{
    later_read later = {.fixture = fixture,
                        .stream = test_stream(fixture, TEST_STREAM_POOL),
                        .follower = test_stream(fixture, TEST_STREAM_POOL)};
    meddler other = {.meddle = read_later, .data = &later, .armed = true};
    test_calls calls;
    later.block = test_allocate(fixture, BYTES, later.follower);
    later.other = test_allocate(fixture, BYTES, later.stream);
    test_write(fixture, &later.block, 0x11, later.follower);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &later.block, later.stream, STRATA_ACCESS_READ));
    test_copy_back(fixture, later.block.address, BYTES, later.stream);
    in_note = &other;
    strata_status status =
        strata_runtime_finish_block_use(fixture->runtime, &later.block, later.stream, STRATA_ACCESS_READ);
    in_note = NULL;
    check_ok(status);
    assert_true(came_in(&other));
    test_calls_begin(&calls);
    test_write(fixture, &later.block, 0x22, later.follower);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 1);
    test_stall_end_all();
    check_cu(test_cu()->CtxSynchronize());
    check_bytes(later.seen, 0x11, BYTES);
    test_free_on(fixture, &later.block, later.follower);
    test_free_on(fixture, &later.other, later.follower);
}

/* ---- while a timeline is made ---- */

enum { WITHIN_MS = 200 };

static _Thread_local bool opening;
static sem_t registered;
static registration beside;

static void *register_beside(void *data)
{
    bool *good = data;
    *good = register_stream(&beside);
    sem_post(&registered);
    return NULL;
}

static pthread_t registering;
static bool registering_began, registered_well, stayed_out;

/* Another thread wants a timeline too. It has to be kept out until this one is made, so the wait is in vain; it is long
 * enough for one that is not. */
static void register_another(void)
{
    struct timespec until;
    int waited;
    opening = false;
    registering_began = pthread_create(&registering, NULL, register_beside, &registered_well) == 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WITHIN_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    do
        waited = registering_began ? sem_timedwait(&registered, &until) : 0;
    while (waited != 0 && errno == EINTR);
    stayed_out = waited != 0;
}

void *__real_strata_host_zalloc_aligned(size_t alignment, size_t bytes);
void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes);

void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes)
{
    if (opening && bytes == sizeof(strata_timeline))
        register_another();
    return __real_strata_host_zalloc_aligned(alignment, bytes);
}

static void open_device_while_a_stream_is_registered(void)
{
    strata_driver_info info;
    strata_device *second;
    CUcontext context;
    child_ok(strata_driver_get_info(&info));
    if (info.device_count < 2)
        exit(77);
    child_ok(strata_runtime_create(NULL, &beside.runtime));
    child_check(test_cu()->DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(test_cu()->CtxSetCurrent(context) == CUDA_SUCCESS);
    child_check(test_cu()->StreamCreate(&beside.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_check(sem_init(&registered, 0, 0) == 0);
    opening = true;
    child_ok(strata_device_get(1, &second));
    child_check(stayed_out);
    child_check(registering_began && pthread_join(registering, NULL) == 0 && registered_well);
    const strata_timeline *legacy = second->legacy;
    const strata_timeline *own = strata_known_timeline(beside.runtime->device, beside.stream);
    child_check(legacy != own && legacy->number != own->number);
    child_check(strata_timeline_of(strata_point_make(legacy->number, 1)) == legacy);
    child_check(strata_timeline_of(strata_point_make(own->number, 1)) == own);
}

static void a_device_that_is_opened_while_a_stream_is_registered_shares_no_timeline_with_it(void **state)
{
    (void)state;
    static const char *const changes[] = {"STRATA_SIM_DEVICES=2", NULL};
    test_child_run("open_device_while_a_stream_is_registered", changes);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(open_device_while_a_stream_is_registered)};
    setenv("STRATA_DRIVER", "auto", 0);
    test_child_begin(count, arguments, scenarios, 1);
    static const test_case cases[] = {
        TEST_CASE(a_stream_that_is_registered_in_the_middle_of_a_commit_keeps_the_order_of_its_later_work),
        TEST_CASE(a_stream_that_looks_idle_in_the_middle_of_a_commit_is_not_forgotten),
        TEST_CASE(a_stream_whose_timeline_goes_to_another_in_the_middle_of_a_prepare_waits_for_all_it_must),
        TEST_CASE(a_stream_that_takes_a_timeline_over_in_the_middle_of_a_wait_still_waits_by_itself),
        TEST_CASE(a_stream_that_has_another_ones_timeline_does_not_come_after_what_that_one_waited_for),
        TEST_CASE(an_event_that_is_waited_for_does_not_come_to_stand_for_later_work),
        TEST_CASE(an_earlier_note_of_a_stream_does_not_replace_a_later_one_of_another_thread),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_is_opened_while_a_stream_is_registered_shares_no_timeline_with_it),
    };
    test_open_driver();
    if (strata_layer_register(&meddling) != STRATA_SUCCESS)
        return 1;
    int failed = test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
    return failed + (test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL));
}
