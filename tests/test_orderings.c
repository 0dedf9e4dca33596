/* Orders that only a certain moment would break: in the middle of one call, other threads come in. Where that is, a
 * test says with a driver call that it replaces, with a layer of its own, or with a function of the library that the
 * linker puts it in front of (--wrap). */
#include "core/memory.h"
#include "core/stream_map.h"
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

static strata_status meddling_finish(strata_resource *self, const strata_block *block, CUstream stream,
                                     strata_access access)
{
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
        return strata_fail(STRATA_ERROR_OUT_OF_HOST_MEMORY, "meddling: the host has no memory");
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

/* The event that the commit records on the stream must not be taken for one that covers what comes after it: nobody
 * records it again on a stream that is known. */
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

/* ---- between two waits of a prepare ---- */

enum { STREAMS = 400 };

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
    strata_block block;        /* what that stream then comes after */
    CUstream streams[STREAMS];
} takeover;

static bool take_timeline_over(void *data)
{
    takeover *self = data;
    strata_device *device = self->fixture->runtime->device;
    for (size_t i = 0; i < STREAMS; i++) {
        strata_stream_ref ref;
        if (strata_stream_resolve(device, self->streams[i], &ref) != STRATA_SUCCESS)
            return false;
        if (ref.timeline == self->timeline)
            return use(self->fixture->runtime, &self->block, self->streams[i], STRATA_ACCESS_READ);
    }
    return false;
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
    strata_stream_ref ref;
    other.fixture = fixture;
    other.block = test_allocate(fixture, BYTES, slow);
    for (size_t i = 0; i < STREAMS; i++)
        check_cu(test_cu()->StreamCreate(&other.streams[i], CU_STREAM_NON_BLOCKING));
    check_ok(strata_stream_resolve(fixture->runtime->device, stream, &ref));
    other.timeline = ref.timeline;
    test_write(fixture, &block, 0x11, writer);
    test_stall *stall = test_stall_begin(slow);
    const unsigned char *seen = test_read(fixture, &block, slow);
    test_write(fixture, &other.block, 0x22, slow);
    in_wait.wait = strata_cu.StreamWaitEvent;
    in_wait.stream = stream;
    in_wait.waits = 0;
    in_wait.meddler = (meddler){.meddle = take_timeline_over, .data = &other, .armed = true};
    strata_cu.StreamWaitEvent = meddling_wait;
    strata_status status = strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE);
    strata_cu.StreamWaitEvent = in_wait.wait;
    check_ok(status);
    assert_true(came_in(&in_wait.meddler));
    assert_int_equal(in_wait.waits, 2); /* for the write, and for the slow read */
    test_fill(block.address, 0x33, BYTES, stream);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE));
    test_stall_end(stall);
    check_bytes(seen, 0x11, BYTES);
    test_free_on(fixture, &block, writer);
    test_free_on(fixture, &other.block, slow);
    for (size_t i = 0; i < STREAMS; i++)
        check_cu(test_cu()->StreamDestroy(other.streams[i]));
}

/* ---- between reading the stream's epoch and noting it in the block ---- */

static _Thread_local meddler *in_note;

strata_clock *__real_strata_note_clock(const strata_note *note);
strata_clock *__wrap_strata_note_clock(const strata_note *note);

strata_clock *__wrap_strata_note_clock(const strata_note *note)
{
    if (in_note)
        meddle_once(in_note);
    return __real_strata_note_clock(note);
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
        TEST_CASE(a_stream_whose_timeline_goes_to_another_in_the_middle_of_a_prepare_waits_for_all_it_must),
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
