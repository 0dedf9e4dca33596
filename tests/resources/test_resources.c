/* What every resource must do, whatever it is made of: sizes, alignments, random traffic, threads, finding, and what it
 * answers to frees that are wrong. */
#include "support/fixture.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const size_t KIB = 1024, MIB = (size_t)1 << 20, GIB = (size_t)1 << 30, PIB = (size_t)1 << 50;

/* The same numbers on every machine. */
static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static bool overlap(const strata_block *a, const strata_block *b)
{
    return a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

/* ---- sizes ---- */

static void check_block(const strata_block *block, size_t bytes, CUstream stream)
{
    assert_int_not_equal(block->address, 0);
    assert_int_equal(block->address % 256, 0);
    assert_true(block->bytes >= bytes);
    assert_int_equal(block->requested, bytes);
    assert_true(block->alignment >= 256 && block->address % block->alignment == 0);
    assert_int_equal(block->device, 0);
    assert_ptr_equal(block->stream, stream);
    assert_int_not_equal(block->id.generation, 0);
}

/* Fills and reads back the first and the last bytes. */
static void check_usable(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    size_t part = block->requested < 64 * KIB ? block->requested : 64 * KIB;
    CUdeviceptr last = block->address + block->requested - part;
    test_fill(block->address, 0x5a, part, stream);
    test_fill(last, 0x3c, part, stream);
    const unsigned char *seen = test_copy_back(fixture, last, part, stream);
    test_synchronize(stream);
    check_bytes(seen, 0x3c, part);
    fixture->seen_used = 0;
}

static void sizes_from_four_bytes_to_a_gibibyte_are_served_on_every_stream(test_fixture *fixture)
{
    const size_t sizes[] = {1, 4, 255, 256, KIB, MIB, MIB + 1, GIB};
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream stream = test_stream(fixture, kind);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            strata_device_info info;
            check_ok(strata_device_get_info(0, &info));
            if (sizes[i] == GIB && info.free_bytes < 2 * GIB)
                continue;
            strata_block block = test_allocate(fixture, sizes[i], stream);
            check_block(&block, sizes[i], stream);
            check_usable(fixture, &block, stream);
            test_free_on(fixture, &block, stream);
        }
        test_stream_close(fixture, stream);
    }
}

static void zero_bytes_give_an_empty_block_whose_free_does_nothing(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream stream = test_stream(fixture, kind);
        strata_block block = {.bytes = 1};
        check_ok(strata_runtime_allocate(fixture->runtime, 0, stream, &block));
        assert_memory_equal(&block, &(strata_block){0}, sizeof block);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        test_free_on(fixture, &block, stream);
        assert_int_equal(test_usage(fixture).live_blocks, 0);
        assert_int_equal(test_usage(fixture).bytes_outstanding, 0);
        test_stream_close(fixture, stream);
    }
}

static void a_pebibyte_is_refused_with_everything_that_explains_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block live = test_allocate(fixture, MIB, stream), block = {.bytes = 1};
    strata_tag tag;
    check_ok(strata_tag_intern("the large one", &tag));
    strata_request request = {.bytes = PIB, .stream = stream, .tag = tag};
    check_status(strata_runtime_allocate_request(fixture->runtime, &request, &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    const strata_error *error = strata_last_error();
    assert_int_equal(error->driver_code, CUDA_ERROR_OUT_OF_MEMORY);
    assert_string_equal(error->driver_name, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_int_equal(error->requested, PIB);
    assert_true(error->in_use >= MIB);
    assert_true(error->device_free > 0);
    assert_int_equal(error->tag, tag);
    static const char *const words[] = {
        "1125899906842624", "the large one",     "limit",        "live 1 MiB (1048576 bytes)",
        "retired",          "reserved but free", "largest free", "free on the device"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        check_last_error(STRATA_ERROR_OUT_OF_MEMORY, words[i]);
    /* A refusal spoils nothing. */
    strata_block after = test_allocate(fixture, MIB, stream);
    check_usable(fixture, &after, stream);
    test_free_on(fixture, &live, stream);
    test_free_on(fixture, &after, stream);
}

static void sizes_near_the_end_of_the_number_range_are_refused(test_fixture *fixture)
{
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 255, SIZE_MAX / 2 + 1, (size_t)1 << 62};
    strata_block block;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_int_not_equal(strata_runtime_allocate(fixture->runtime, sizes[i], NULL, &block), STRATA_SUCCESS);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    assert_int_equal(test_usage(fixture).bytes_outstanding, 0);
}

static void live_blocks_are_different_and_do_not_overlap(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        enum { COUNT = 40 };
        CUstream stream = test_stream(fixture, kind);
        strata_block blocks[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            blocks[i] = test_allocate(fixture, 8, stream);
            for (size_t j = 0; j < i; j++)
                assert_false(overlap(&blocks[i], &blocks[j]));
        }
        for (size_t i = 0; i < COUNT; i++)
            test_free_on(fixture, &blocks[i], stream);
        test_stream_close(fixture, stream);
    }
}

static void alignments_are_powers_of_two_up_to_the_owners_most(test_fixture *fixture)
{
    const size_t most = test_owner_is(fixture, "pool") ? (size_t)1 << 30 : 256;
    static const size_t wrong[] = {3, 255, 257, 384, 768, SIZE_MAX};
    strata_block block = {.bytes = 1};
    for (size_t alignment = 1; alignment <= most; alignment *= 2) {
        strata_request request = {.bytes = 100, .alignment = alignment};
        check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &block));
        assert_int_equal(block.address % alignment, 0);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        strata_request request = {.bytes = 100, .alignment = wrong[i]};
        check_status(strata_runtime_allocate_request(fixture->runtime, &request, &block), STRATA_ERROR_INVALID_VALUE);
        assert_int_equal(block.address, 0);
    }
    strata_request request = {.bytes = 100, .alignment = 2 * most};
    check_status(strata_runtime_allocate_request(fixture->runtime, &request, &block), STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "\"aligned, ");
    assert_int_equal(block.address, 0);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
}

static void calls_without_what_they_need_are_refused(test_fixture *fixture)
{
    strata_block block = {.bytes = 1};
    strata_request request = {.bytes = 1};
    check_status(strata_runtime_allocate(NULL, 1, NULL, &block), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(block.bytes, 0);
    check_status(strata_runtime_allocate(fixture->runtime, 1, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_allocate_request(fixture->runtime, NULL, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_allocate_request(NULL, &request, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_deallocate(fixture->runtime, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_deallocate(NULL, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_deallocate_on(fixture->runtime, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
}

/* ---- wrong frees ---- */

static void freeing_twice_is_told_however_it_is_done(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_tag tag;
    check_ok(strata_tag_intern("freed twice", &tag));
    strata_request request = {.bytes = MIB, .stream = stream, .tag = tag};
    strata_block block, copy;
    check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &block));
    copy = block;
    check_ok(strata_runtime_deallocate(fixture->runtime, &copy)); /* a copy is as good as the original */
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    check_last_error(STRATA_ERROR_DOUBLE_FREE, "freed twice");
    assert_int_equal(strata_last_error()->generation, block.id.generation);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    /* The same memory and entry, handed out again, belong to the new block. */
    strata_block next = test_allocate(fixture, MIB, stream);
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    assert_int_equal(test_usage(fixture).live_blocks, 1);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    check_ok(strata_runtime_deallocate(fixture->runtime, &next));
}

static void wrong_facts_are_told_and_free_nothing(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, MIB, stream), other = test_allocate(fixture, MIB, stream), wrong;
    wrong = block;
    wrong.bytes--;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_SIZE_MISMATCH);
    wrong = block;
    wrong.requested++;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_SIZE_MISMATCH);
    wrong = block;
    wrong.device = 1;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_WRONG_DEVICE);
    wrong = block;
    wrong.address = other.address;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER);
    wrong = block;
    wrong.id.slot += 100000;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER);
    wrong = block;
    wrong.id.generation += 1000;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER);
    wrong = block;
    wrong.id = (strata_block_id){0};
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(test_usage(fixture).live_bytes, 2 * MIB);
    assert_int_equal(test_usage(fixture).live_blocks, 2);
    check_usable(fixture, &block, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(strata_runtime_deallocate(fixture->runtime, &other));
}

static void a_block_of_another_runtime_is_not_freed_here(test_fixture *fixture)
{
    strata_runtime *other;
    strata_block theirs;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &other));
    check_ok(strata_runtime_allocate(other, MIB, stream, &theirs));
    check_status(strata_runtime_deallocate(fixture->runtime, &theirs), STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(strata_runtime_block_state(other, theirs.id), STRATA_BLOCK_LIVE);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, theirs.id), STRATA_BLOCK_FREED);
    check_ok(strata_runtime_deallocate(other, &theirs));
    check_ok(strata_runtime_destroy(other));
    check_status(strata_runtime_deallocate(fixture->runtime, &theirs), STRATA_ERROR_FOREIGN_POINTER);
}

/* ---- finding ---- */

static void a_block_is_found_by_every_address_inside_it_and_by_no_other(test_fixture *fixture)
{
    enum { COUNT = 50 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT], found;
    uint64_t seed = 7;
    for (size_t i = 0; i < COUNT; i++)
        blocks[i] = test_allocate(fixture, 1 + (size_t)(next_random(&seed) % (3 * MIB)), stream);
    for (size_t i = 0; i < COUNT; i++) {
        const strata_block *block = &blocks[i];
        CUdeviceptr addresses[] = {block->address, block->address + block->bytes - 1,
                                   block->address + next_random(&seed) % block->bytes};
        for (size_t j = 0; j < 3; j++) {
            check_ok(strata_runtime_find(fixture->runtime, addresses[j], &found));
            assert_memory_equal(&found, block, sizeof found);
        }
    }
    const strata_block *last = &blocks[0];
    for (size_t i = 1; i < COUNT; i++)
        last = blocks[i].address > last->address ? &blocks[i] : last;
    check_status(strata_runtime_find(fixture->runtime, last->address + last->bytes, &found),
                 STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(found.address, 0);
    check_status(strata_runtime_find(fixture->runtime, 0, &found), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_find(fixture->runtime, ~(CUdeviceptr)0, &found), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_find(fixture->runtime, last->address, NULL), STRATA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < COUNT; i++) {
        test_free_on(fixture, &blocks[i], stream);
        check_status(strata_runtime_find(fixture->runtime, blocks[i].address, &found), STRATA_ERROR_FOREIGN_POINTER);
    }
}

static void a_block_is_freed_by_its_first_address_alone(test_fixture *fixture)
{
    enum { BYTES = 3000 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_runtime *runtime = fixture->runtime;
    strata_block block = test_allocate(fixture, BYTES, stream), next = test_allocate(fixture, BYTES, stream);
    check_ok(strata_runtime_deallocate_address(runtime, 0, stream));
    check_status(strata_runtime_deallocate_address(NULL, block.address, stream), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_deallocate_address(runtime, block.address + 8, stream), STRATA_ERROR_FOREIGN_POINTER);
    check_last_error(STRATA_ERROR_FOREIGN_POINTER, "is inside of block 0x");
    check_status(strata_runtime_deallocate_address(runtime, 4096, stream), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_deallocate_address(runtime, block.address, STRATA_STREAM_GONE),
                 STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_LIVE);
    check_ok(strata_runtime_deallocate_address(runtime, block.address, stream));
    assert_int_not_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_LIVE);
    check_status(strata_runtime_deallocate_address(runtime, block.address, stream), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_deallocate_address(runtime, next.address, other)); /* in that one's order */
    check_ok(strata_runtime_reap_pending(runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(runtime), 0);
}

/* ---- traffic ---- */

enum { LIVE_MOST = 100 };

typedef struct traffic {
    test_fixture *fixture;
    uint64_t seed;
    size_t count;
    strata_block blocks[LIVE_MOST];
    CUstream streams[LIVE_MOST];
    size_t bytes;
} traffic;

static void allocate_one(traffic *self, CUstream stream)
{
    size_t bytes = 1 + (size_t)(next_random(&self->seed) % (5 * MIB));
    strata_block block = test_allocate(self->fixture, bytes, stream);
    test_fill(block.address, (unsigned char)self->count, bytes < KIB ? bytes : KIB, stream);
    for (size_t i = 0; i < self->count; i++)
        assert_false(overlap(&self->blocks[i], &block));
    self->bytes += block.bytes;
    self->streams[self->count] = stream;
    self->blocks[self->count++] = block;
}

static void free_one(traffic *self)
{
    size_t at = (size_t)next_random(&self->seed) % self->count;
    test_free_on(self->fixture, &self->blocks[at], self->streams[at]);
    self->bytes -= self->blocks[at].bytes;
    self->blocks[at] = self->blocks[--self->count];
    self->streams[at] = self->streams[self->count];
}

static void check_account(const traffic *self)
{
    strata_usage usage = test_usage(self->fixture);
    assert_int_equal(usage.live_bytes, self->bytes);
    assert_int_equal(usage.live_blocks, self->count);
    assert_int_equal(usage.bytes_outstanding, usage.live_bytes + usage.retired_bytes);
    assert_true(usage.reserved_bytes >= usage.live_bytes);
}

static void random_allocations_of_up_to_five_mebibytes(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        traffic run = {.fixture = fixture, .seed = kind};
        CUstream stream = test_stream(fixture, kind);
        while (run.count < LIVE_MOST)
            allocate_one(&run, stream);
        check_account(&run);
        while (run.count)
            free_one(&run);
        check_account(&run);
        test_synchronize(stream);
        test_stream_close(fixture, stream);
    }
}

static void mixed_random_allocations_and_frees_on_streams_of_every_kind(test_fixture *fixture)
{
    traffic run = {.fixture = fixture, .seed = 99};
    CUstream streams[TEST_STREAM_KINDS];
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++)
        streams[kind] = test_stream(fixture, kind);
    for (int i = 0; i < 600; i++) {
        bool allocate = run.count == 0 || (run.count < LIVE_MOST && next_random(&run.seed) % 100 < 53);
        if (allocate)
            allocate_one(&run, streams[next_random(&run.seed) % TEST_STREAM_KINDS]);
        else
            free_one(&run);
        check_account(&run);
    }
    while (run.count)
        free_one(&run);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

/* ---- threads ---- */

enum { THREADS = 4, TURNS = 100 };

typedef struct worker {
    test_fixture *fixture;
    CUstream stream;
    uint64_t seed;
    unsigned failures;
} worker;

static void *allocate_and_free(void *data)
{
    worker *self = data;
    strata_runtime *runtime = self->fixture->runtime;
    strata_block blocks[16];
    size_t count = 0;
    test_make_current();
    for (int i = 0; i < TURNS || count > 0; i++) {
        bool allocate = i < TURNS && (count == 0 || (count < 16 && next_random(&self->seed) % 100 < 53));
        size_t bytes = 1 + (size_t)(next_random(&self->seed) % MIB);
        if (!allocate)
            self->failures += strata_runtime_deallocate_on(runtime, &blocks[--count], self->stream) != STRATA_SUCCESS;
        else if (strata_runtime_allocate(runtime, bytes, self->stream, &blocks[count]) == STRATA_SUCCESS)
            test_cu()->MemsetD8Async(blocks[count++].address, (unsigned char)i, bytes < KIB ? bytes : KIB,
                                     self->stream);
        else
            self->failures++;
    }
    test_leave_thread();
    return NULL;
}

static void threads_allocate_and_free_on_streams_of_every_kind(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        pthread_t threads[THREADS];
        worker workers[THREADS];
        for (size_t i = 0; i < THREADS; i++) /* what can fail comes before the threads */
            workers[i] = (worker){.fixture = fixture, .stream = test_stream(fixture, kind), .seed = i};
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &workers[i]), 0);
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (size_t i = 0; i < THREADS; i++) {
            assert_int_equal(workers[i].failures, 0);
            test_stream_close(fixture, workers[i].stream);
        }
        assert_int_equal(test_usage(fixture).live_blocks, 0);
    }
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

/* A producer allocates and writes, a consumer on another thread waits for the producer's event, reads and frees. */
enum { PASSED = 100, QUEUE = 8 };

typedef struct relay {
    test_fixture *fixture;
    CUstream producer, consumer;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t made, taken; /* guarded by lock, with the slots between them */
    strata_block blocks[QUEUE];
    CUevent events[QUEUE];
    unsigned failures; /* of the producer */
} relay;

static void *produce(void *data)
{
    relay *self = data;
    strata_runtime *runtime = self->fixture->runtime;
    uint64_t seed = 5;
    test_make_current();
    for (size_t i = 0; i < PASSED; i++) {
        strata_block block;
        CUevent event;
        bool good = strata_runtime_allocate(runtime, KIB + (size_t)(next_random(&seed) % MIB), self->producer,
                                            &block) == STRATA_SUCCESS;
        good = good && test_cu()->MemsetD8Async(block.address, (unsigned char)i, KIB, self->producer) == CUDA_SUCCESS;
        good = good && test_cu()->EventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
        good = good && test_cu()->EventRecord(event, self->producer) == CUDA_SUCCESS;
        pthread_mutex_lock(&self->lock);
        while (self->made - self->taken == QUEUE)
            pthread_cond_wait(&self->changed, &self->lock);
        self->blocks[self->made % QUEUE] = block;
        self->events[self->made++ % QUEUE] = event;
        self->failures += !good;
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->lock);
    }
    test_leave_thread();
    return NULL;
}

static void consume_one(relay *self, size_t number)
{
    pthread_mutex_lock(&self->lock);
    while (self->taken == self->made)
        pthread_cond_wait(&self->changed, &self->lock);
    strata_block block = self->blocks[self->taken % QUEUE];
    CUevent event = self->events[self->taken++ % QUEUE];
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    check_cu(test_cu()->StreamWaitEvent(self->consumer, event, CU_EVENT_WAIT_DEFAULT));
    check_cu(test_cu()->EventDestroy(event));
    const unsigned char *seen = test_copy_back(self->fixture, block.address, KIB, self->consumer);
    test_free_on(self->fixture, &block, self->consumer);
    test_synchronize(self->consumer);
    check_bytes(seen, (unsigned char)number, KIB);
}

static void run_relay(test_fixture *fixture, CUstream producer, CUstream consumer)
{
    relay *run = calloc(1, sizeof *run); /* outlives this frame if a check fails while the producer runs */
    pthread_t thread;
    assert_non_null(run);
    *run = (relay){.fixture = fixture, .producer = producer, .consumer = consumer};
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->changed, NULL);
    assert_int_equal(pthread_create(&thread, NULL, produce, run), 0);
    for (size_t i = 0; i < PASSED; i++)
        consume_one(run, i);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(run->failures, 0);
    fixture->seen_used = 0;
    free(run);
}

static void blocks_made_in_one_thread_are_freed_in_another(test_fixture *fixture)
{
    CUstream pooled = test_stream(fixture, TEST_STREAM_POOL), unknown = test_stream(fixture, TEST_STREAM_UNKNOWN);
    run_relay(fixture, NULL, NULL);
    run_relay(fixture, CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD);
    run_relay(fixture, pooled, pooled);
    run_relay(fixture, unknown, unknown);
    run_relay(fixture, pooled, unknown);
    run_relay(fixture, unknown, pooled);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(sizes_from_four_bytes_to_a_gibibyte_are_served_on_every_stream),
        TEST_CASE(zero_bytes_give_an_empty_block_whose_free_does_nothing),
        TEST_CASE(a_pebibyte_is_refused_with_everything_that_explains_it),
        TEST_CASE(sizes_near_the_end_of_the_number_range_are_refused),
        TEST_CASE(live_blocks_are_different_and_do_not_overlap),
        TEST_CASE(alignments_are_powers_of_two_up_to_the_owners_most),
        TEST_CASE(calls_without_what_they_need_are_refused),
        TEST_CASE(freeing_twice_is_told_however_it_is_done),
        TEST_CASE(wrong_facts_are_told_and_free_nothing),
        TEST_CASE(a_block_of_another_runtime_is_not_freed_here),
        TEST_CASE(a_block_is_found_by_every_address_inside_it_and_by_no_other),
        TEST_CASE(a_block_is_freed_by_its_first_address_alone),
        TEST_CASE(random_allocations_of_up_to_five_mebibytes),
        TEST_CASE(mixed_random_allocations_and_frees_on_streams_of_every_kind),
        TEST_CASE(threads_allocate_and_free_on_streams_of_every_kind),
        TEST_CASE(blocks_made_in_one_thread_are_freed_in_another),
    };
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
