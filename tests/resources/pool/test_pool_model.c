/* Random traffic on the pool against a model, by one thread, and by several that share streams and a small limit, so
 * that memory is handed over, remapped and refused all the time. Every block is filled on its stream, its bytes are
 * read back in stream order until it is freed, no two live blocks may share a byte, and the pool's counts are the
 * model's.
 *
 * STRATA_TEST_OPERATIONS sets the number of operations; STRATA_TEST_FULL=1 is a million. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/effort.h"
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/sweep.h"

enum {
    CLASSED = 128 << 10, /* sizes up to here are rounded up to classes, eight for each doubling */
    GRANULE = 2 << 20,   /* contiguous blocks are rounded up to it */
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DEFAULT_OPERATIONS = 2000 };
#else
enum { DEFAULT_OPERATIONS = 20000 };
#endif

enum {
    FULL_OPERATIONS = 1000000,
    SWEPT_OPERATIONS = 150,
    THREADS = 8, /* at most */
    BLOCKS = 64, /* live ones of a thread at most */
    STREAMS = 8,
    READS = 512, /* of a thread, not yet verified */
    EXTENT = 64, /* bytes that are read at a time */
    LIMIT = 24,  /* MiB */
    SEEN = TEST_SEEN_BYTES / THREADS,
};

_Static_assert(READS *EXTENT <= SEEN, "each thread has its part of the pinned memory");

typedef struct model_block {
    strata_block block;
    unsigned char value;
    bool alloc_stream_is_known; /* and remains */
} model_block;

typedef struct model_read {
    unsigned char value;
    size_t bytes;
} model_read;

/* The streams of a case. Those that all threads share come first, and of them the known ones; the others belong to one
 * thread each, and come and go. */
typedef struct model_streams {
    size_t known, shared, all;
} model_streams;

static const model_streams of_all_kinds = {3, 6, STREAMS};

/* A few streams that never change: a missing wait between two of them is found soon. */
static const model_streams few = {3, 3, 3};

/* One thread's data; used by it alone. */
typedef struct model {
    test_fixture *fixture;
    const model_streams *of;
    uint64_t random;
    size_t operation, operations;
    bool alone; /* there is no other thread */
    CUstream streams[STREAMS];
    model_block blocks[BLOCKS];
    size_t block_count;
    uint64_t live_bytes;
    model_read reads[READS];
    size_t read_count;
    unsigned char *seen; /* READS * PIECE bytes */
    size_t refused, served;
    char wrong[160];   /* the failure, if any */
    strata_error said; /* the library's error at the failure */
} model;

/* ---- switches of threads ---- */

/* Threads seldom switch within a call, and hardly ever between a check of a stream and the record of its result. At
 * such points they switch on purpose, once in a while. */
enum { CALLS_FOR_A_TICKET = 8 };

static _Atomic bool takes_turns;

static void take_turns(void)
{
    static _Thread_local unsigned calls;
    if (atomic_load_explicit(&takes_turns, memory_order_relaxed) && ++calls % CALLS_FOR_A_TICKET == 0)
        sched_yield();
}

bool __real_pool_points_add(strata_entry *entry, strata_point point);
bool __wrap_pool_points_add(strata_entry *entry, strata_point point);

bool __wrap_pool_points_add(strata_entry *entry, strata_point point)
{
    take_turns();
    return __real_pool_points_add(entry, point);
}

strata_status __real_strata_timeline_wait(const strata_stream_ref *stream, strata_point point);
strata_status __wrap_strata_timeline_wait(const strata_stream_ref *stream, strata_point point);

strata_status __wrap_strata_timeline_wait(const strata_stream_ref *stream, strata_point point)
{
    take_turns();
    return __real_strata_timeline_wait(stream, point);
}

/* The blocks of all threads, to find overlaps. */
static struct {
    pthread_mutex_t mutex;
    struct {
        CUdeviceptr begin, end; /* 0: free */
    } blocks[THREADS * BLOCKS];
} everybody = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool wrong(model *self, const char *what, int line)
{
    snprintf(self->wrong, sizeof self->wrong, "line %d, operation %zu: not %s", line, self->operation, what);
    self->said = *strata_last_error();
    return false;
}

#define need(what)                               \
    do {                                         \
        if (!(what))                             \
            return wrong(self, #what, __LINE__); \
    } while (0)

#define need_ok(call) need((call) == STRATA_SUCCESS)

static size_t pick(model *self, size_t below)
{
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return (size_t)((self->random >> 11) % below);
}

/* ---- the owners of bytes ---- */

static bool enter(const strata_block *block)
{
    bool apart = true;
    size_t mine = THREADS * BLOCKS;
    pthread_mutex_lock(&everybody.mutex);
    for (size_t i = 0; i < THREADS * BLOCKS; i++) {
        if (!everybody.blocks[i].begin)
            mine = i;
        else
            apart = apart && (everybody.blocks[i].end <= block->address ||
                              block->address + block->bytes <= everybody.blocks[i].begin);
    }
    if (mine < THREADS * BLOCKS) {
        everybody.blocks[mine].begin = block->address;
        everybody.blocks[mine].end = block->address + block->bytes;
    }
    pthread_mutex_unlock(&everybody.mutex);
    return apart && mine < THREADS * BLOCKS;
}

/* Before the free: afterwards another thread may have the memory at once. */
static void leave(const strata_block *block)
{
    pthread_mutex_lock(&everybody.mutex);
    for (size_t i = 0; i < THREADS * BLOCKS; i++)
        if (everybody.blocks[i].begin == block->address)
            everybody.blocks[i].begin = everybody.blocks[i].end = 0;
    pthread_mutex_unlock(&everybody.mutex);
}

/* ---- contents ---- */

static bool verify_reads(model *self)
{
    need(test_cu()->CtxSynchronize() == CUDA_SUCCESS);
    for (size_t i = 0; i < self->read_count; i++)
        for (size_t j = 0; j < self->reads[i].bytes; j++)
            need(self->seen[i * EXTENT + j] == self->reads[i].value);
    self->read_count = 0;
    return true;
}

/* The beginning, the end, or a part between, on a stream that is ordered after the last write. */
static bool read_some(model *self, const model_block *one, CUstream stream)
{
    const size_t bytes = one->block.bytes < EXTENT ? one->block.bytes : EXTENT;
    const size_t room = one->block.bytes - bytes;
    const size_t places[3] = {0, room, room ? pick(self, room) : 0};
    need(self->read_count < READS || verify_reads(self));
    const size_t slot = self->read_count++;
    self->reads[slot] = (model_read){.value = one->value, .bytes = bytes};
    need(test_cu()->MemcpyDtoHAsync(self->seen + slot * EXTENT, one->block.address + places[pick(self, 3)], bytes,
                                    stream) == CUDA_SUCCESS);
    return true;
}

static bool fill(model *self, model_block *one, CUstream stream)
{
    one->value = (unsigned char)pick(self, 256);
    need(test_cu()->MemsetD8Async(one->block.address, one->value, one->block.bytes, stream) == CUDA_SUCCESS);
    return true;
}

static bool use(model *self, model_block *one, CUstream stream, strata_access access)
{
    strata_runtime *runtime = self->fixture->runtime;
    need_ok(strata_runtime_prepare_block_use(runtime, &one->block, stream, access));
    if (access & STRATA_ACCESS_READ && !read_some(self, one, stream))
        return false;
    if (access & STRATA_ACCESS_WRITE && !fill(self, one, stream))
        return false;
    need_ok(strata_runtime_finish_block_use(runtime, &one->block, stream, access));
    return true;
}

/* ---- operations ---- */

/* Mostly of a few sizes, as in programs; some odd, some large. */
static size_t pick_size(model *self)
{
    static const size_t usual[] = {512, 2048, 20000, 65536, 300000};
    const size_t kind = pick(self, 64);
    if (kind < 40)
        return usual[pick(self, sizeof usual / sizeof usual[0])];
    if (kind < 58)
        return 1 + pick(self, 100000);
    return kind < 63 ? 1 + pick(self, 2 * MIB) : (2 + pick(self, 8)) * MIB;
}

static bool free_one(model *self, size_t which, CUstream stream)
{
    model_block one = self->blocks[which];
    strata_runtime *runtime = self->fixture->runtime;
    if (pick(self, 4) && !use(self, &one, stream, STRATA_ACCESS_READ))
        return false;
    leave(&one.block);
    self->blocks[which] = self->blocks[--self->block_count];
    self->live_bytes -= one.block.bytes;
    if (one.alloc_stream_is_known && pick(self, 2))
        need_ok(strata_runtime_deallocate(runtime, &one.block));
    else
        need_ok(strata_runtime_deallocate_on(runtime, &one.block, stream));
    if (pick(self, 64) == 0) {
        need(strata_runtime_deallocate_on(runtime, &one.block, stream) == STRATA_ERROR_DOUBLE_FREE);
        need(strata_runtime_block_state(runtime, one.block.id) != STRATA_BLOCK_LIVE);
    }
    return true;
}

static bool take_in(model *self, const strata_block *block, size_t stream)
{
    need(enter(block));
    model_block *one = &self->blocks[self->block_count++];
    *one = (model_block){.block = *block, .alloc_stream_is_known = stream < self->of->known};
    self->live_bytes += block->bytes;
    self->served++;
    if (!fill(self, one, self->streams[stream])) /* fresh memory may be used at once on its own stream */
        return false;
    need_ok(strata_runtime_record_block_use(self->fixture->runtime, block, self->streams[stream], STRATA_ACCESS_WRITE));
    return true;
}

/* A refused request fits once all is free. */
static bool try_again_with_nothing_live(model *self, size_t bytes, size_t stream)
{
    strata_block block;
    while (self->block_count)
        if (!free_one(self, self->block_count - 1, self->streams[pick(self, self->of->all)]))
            return false;
    need_ok(strata_runtime_allocate(self->fixture->runtime, bytes, self->streams[stream], &block));
    return take_in(self, &block, stream);
}

static bool allocate(model *self)
{
    strata_block block;
    const size_t stream = pick(self, self->of->all), bytes = pick_size(self);
    const strata_request request = {
        .bytes = bytes, .stream = self->streams[stream], .alignment = pick(self, 32) ? 0 : (size_t)1 << pick(self, 17)};
    strata_status status = strata_runtime_allocate_request(self->fixture->runtime, &request, &block);
    if (status == STRATA_ERROR_OUT_OF_MEMORY) {
        need(block.address == 0 && block.id.generation == 0);
        self->refused++;
        return !self->alone || pick(self, 4) || try_again_with_nothing_live(self, bytes, stream);
    }
    need_ok(status);
    const size_t step = bytes > MIB - 512 && strstr(self->fixture->stack, "contiguous") ? GRANULE : 512;
    need(block.bytes >= bytes && block.bytes < bytes + step + (bytes <= CLASSED ? bytes / 8 : 0));
    need(block.requested == bytes);
    need(block.address % (request.alignment > 512 ? request.alignment : 512) == 0);
    return take_in(self, &block, stream);
}

static bool check_usage(model *self)
{
    strata_usage usage;
    need_ok(strata_runtime_usage(self->fixture->runtime, &usage));
    need(usage.reserved_bytes <= LIMIT * MIB && usage.reserved_peak <= LIMIT * MIB);
    need(!self->alone || (usage.live_bytes == self->live_bytes && usage.live_blocks == self->block_count));
    need(!self->alone || (usage.retired_bytes == 0 && usage.reserved_bytes >= usage.live_bytes));
    return true;
}

static bool open_stream(model *self, size_t which)
{
    need(test_cu()->StreamCreate(&self->streams[which], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    if (which % 2)
        need_ok(strata_runtime_register_stream(self->fixture->runtime, self->streams[which]));
    return true;
}

static bool close_stream(model *self, size_t which)
{
    if (which % 2)
        need_ok(strata_runtime_unregister_stream(self->fixture->runtime, self->streams[which]));
    need(test_cu()->StreamDestroy(self->streams[which]) == CUDA_SUCCESS);
    return true;
}

/* Memory of blocks allocated, freed or used on the stream waits for the stream's work. */
static bool change_streams(model *self)
{
    if (test_is_swept() || self->of->shared == self->of->all)
        return true;
    const size_t which = self->of->shared + pick(self, self->of->all - self->of->shared);
    return close_stream(self, which) && open_stream(self, which);
}

static bool give_back(model *self)
{
    const size_t keep = pick(self, LIMIT * MIB);
    need_ok(strata_runtime_trim(self->fixture->runtime, keep, NULL));
    return true;
}

static bool operate(model *self)
{
    const size_t what = pick(self, 1000);
    CUstream stream = self->streams[pick(self, self->of->all)];
    if (what < 400 && self->block_count < BLOCKS)
        return allocate(self);
    if (what >= 990)
        return what < 994 ? give_back(self) : what < 997 ? change_streams(self) : check_usage(self);
    if (!self->block_count)
        return true;
    const size_t which = pick(self, self->block_count);
    if (what < 800)
        return free_one(self, which, stream);
    return use(self, &self->blocks[which], stream, (strata_access)(1 + pick(self, 3)));
}

/* ---- running ---- */

static bool run(model *self)
{
    for (size_t i = self->of->shared; i < self->of->all && !test_is_swept(); i++)
        if (!open_stream(self, i))
            return false;
    for (; self->operation < self->operations; self->operation++)
        if (!operate(self))
            return false;
    while (self->block_count)
        if (!free_one(self, self->block_count - 1, self->streams[pick(self, self->of->all)]))
            return false;
    for (size_t i = self->of->shared; i < self->of->all && !test_is_swept(); i++)
        if (!close_stream(self, i))
            return false;
    return verify_reads(self);
}

static void *run_in_thread(void *data)
{
    test_make_current();
    run(data);
    return NULL;
}

static size_t count_operations(void)
{
    const char *operations = getenv("STRATA_TEST_OPERATIONS"), *full = getenv("STRATA_TEST_FULL");
    if (test_is_swept())
        return SWEPT_OPERATIONS;
    if (operations && *operations)
        return (size_t)strtoull(operations, NULL, 10);
    const bool all = full && strtoul(full, NULL, 10) != 0 && !test_under_valgrind();
    return all ? FULL_OPERATIONS : test_effort(DEFAULT_OPERATIONS, 400);
}

static model models[THREADS];

/* In a sweep the fixture has all streams. */
static void begin(test_fixture *fixture, const model_streams *of, size_t threads, uint64_t seed)
{
    CUstream streams[STREAMS];
    memset(everybody.blocks, 0, sizeof everybody.blocks);
    set_limit(fixture, LIMIT * MIB);
    for (size_t i = 0; i < (test_is_swept() ? of->all : of->shared); i++)
        streams[i] = i == 0 ? NULL : test_stream(fixture, i < of->known ? TEST_STREAM_POOL : TEST_STREAM_UNKNOWN);
    for (size_t i = 0; i < threads; i++) {
        models[i] = (model){.fixture = fixture,
                            .of = of,
                            .random = (seed * threads + i + 1) * UINT64_C(0x9e3779b97f4a7c15),
                            .operations = count_operations() / threads,
                            .alone = threads == 1,
                            .seen = fixture->seen + i * SEEN};
        memcpy(models[i].streams, streams, sizeof streams);
    }
}

static void end(test_fixture *fixture, size_t threads)
{
    size_t refused = 0, served = 0;
    for (size_t i = 0; i < threads; i++) {
        if (models[i].wrong[0])
            fail_msg("thread %zu, %s\n  last error: %s", i, models[i].wrong, models[i].said.message);
        refused += models[i].refused;
        served += models[i].served;
    }
    const strata_usage usage = test_usage(fixture);
    assert_int_equal(usage.live_bytes, 0);
    assert_int_equal(usage.live_blocks, 0);
    assert_int_equal(usage.bytes_outstanding, 0);
    assert_true(usage.reserved_peak <= LIMIT * MIB);
    const char *policy = getenv("STRATA_SIM_POLICY");
    if (threads == 1 && served >= 1000) { /* otherwise this traffic covers too little */
        assert_true(refused > 0);
        assert_true(!policy || strcmp(policy, "late") != 0 || value_of(fixture->runtime, "pool.steals") > 0);
        assert_true(strchr(fixture->stack, ',') || value_of(fixture->runtime, "pool.chunks.moved") > 0);
        assert_true(value_of(fixture->runtime, "pool.hits") > 0);
    }
    empty_the_pool(fixture);
}

static void one_threads_random_traffic_is_as_the_model_says(test_fixture *fixture)
{
    begin(fixture, &of_all_kinds, 1, 1);
    run(&models[0]);
    end(fixture, 1);
}

static void run_in_threads(test_fixture *fixture, const model_streams *of, size_t threads, uint64_t seed)
{
    pthread_t made[THREADS];
    size_t count = 0;
    begin(fixture, of, threads, seed);
    takes_turns = true;
    while (count < threads && pthread_create(&made[count], NULL, run_in_thread, &models[count]) == 0)
        count++;
    for (size_t i = 0; i < count; i++)
        pthread_join(made[i], NULL);
    takes_turns = false;
    assert_int_equal(count, threads);
    end(fixture, threads);
}

static void several_threads_random_traffic_is_as_the_model_says(test_fixture *fixture)
{
    run_in_threads(fixture, &of_all_kinds, 4, 2);
}

static void many_threads_random_traffic_on_few_streams_is_as_the_model_says(test_fixture *fixture)
{
    run_in_threads(fixture, &few, THREADS, 3);
}

int main(void)
{
    static const char *const stacks[] = {"pool", "pool(cache=64KiB, chunk=2MiB, decay=100us)",
                                         "pool(chunk=2MiB), direct", "pool, async", "pool(contiguous=1MiB, decay=1ms)"};
    static const test_case cases[] = {
        TEST_CASE(one_threads_random_traffic_is_as_the_model_says),
        TEST_CASE(several_threads_random_traffic_is_as_the_model_says), /* not in sweeps: no two runs are the same */
        TEST_CASE(many_threads_random_traffic_on_few_streams_is_as_the_model_says),
    };
    test_before_clearing = lift_limit;
    test_open_driver();
    return test_run_on(stacks, test_is_swept() ? 1 : sizeof stacks / sizeof stacks[0], cases,
                       test_is_swept() ? 1 : sizeof cases / sizeof cases[0]);
}
