/* Blocks: identities that are never mistaken for one another, and what a free checks. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/stack/stack.h"
#include "support/effort.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { BYTES = 4096, MANY = 9000, THREADS = 8 };

static strata_tag test_tag;

static strata_block tagged_block(test_fixture *fixture)
{
    strata_block block;
    strata_request request = {.bytes = BYTES, .tag = test_tag};
    check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &block));
    return block;
}

static void check_refused(strata_status got, strata_status want, const strata_block *block)
{
    char generation[48];
    snprintf(generation, sizeof generation, "generation %llu", (unsigned long long)block->id.generation);
    check_status(got, want);
    check_last_error(want, "tag \"blocks\"");
    check_last_error(want, generation);
    assert_int_equal(strata_last_error()->tag, block->tag);
    assert_true(strata_last_error()->generation == block->id.generation);
}

static void check_still_usable(test_fixture *fixture, const strata_block *block)
{
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block->id), STRATA_BLOCK_LIVE);
    test_write(fixture, block, 0x5c, NULL);
    const unsigned char *seen = test_read(fixture, block, NULL);
    test_synchronize(NULL);
    check_bytes(seen, 0x5c, block->requested);
    strata_usage usage = test_usage(fixture);
    assert_int_equal(usage.live_blocks, 1);
    assert_true(usage.live_bytes == block->bytes);
}

static void free_block(test_fixture *fixture, const strata_block *block)
{
    check_ok(strata_runtime_deallocate(fixture->runtime, block));
}

/* ---- facts ---- */

static void a_block_has_the_facts_of_its_request(test_fixture *fixture)
{
    static const size_t sizes[] = {1, 255, 256, 257, 4095, 1 << 20, (3 << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        strata_block block;
        strata_request request = {.bytes = sizes[i], .alignment = 1u << i, .tag = test_tag, .stream = NULL};
        check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &block));
        assert_true(block.address != 0);
        assert_true(block.bytes >= sizes[i]);
        assert_true(block.requested == sizes[i]);
        assert_true(block.alignment >= request.alignment && block.alignment >= 256);
        assert_true(block.address % block.alignment == 0);
        assert_int_equal(block.device, 0);
        assert_int_equal(block.tag, test_tag);
        assert_null(block.stream);
        assert_int_not_equal(block.id.generation, 0);
        free_block(fixture, &block);
    }
}

static void an_alignment_that_is_no_power_of_two_is_refused(test_fixture *fixture)
{
    strata_block block = {.address = 1};
    strata_request request = {.bytes = BYTES, .alignment = 384};
    check_status(strata_runtime_allocate_request(fixture->runtime, &request, &block), STRATA_ERROR_INVALID_VALUE);
    assert_true(block.address == 0);
    request.alignment = (size_t)1 << 40;
    check_status(strata_runtime_allocate_request(fixture->runtime, &request, &block), STRATA_ERROR_UNSUPPORTED);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
}

static void zero_bytes_give_an_empty_block_whose_free_does_nothing(test_fixture *fixture)
{
    strata_block block, empty = {0};
    memset(&block, 0xff, sizeof block);
    check_ok(strata_runtime_allocate(fixture->runtime, 0, NULL, &block));
    assert_true(block.address == 0 && block.bytes == 0 && block.requested == 0);
    assert_true(block.id.generation == 0 && block.id.slot == 0);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_record_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, NULL));
    check_ok(strata_runtime_deallocate(fixture->runtime, &empty));
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
}

/* ---- stale identities ---- */

static void every_use_of_a_freed_block_is_recognised(test_fixture *fixture)
{
    strata_block block = tagged_block(fixture);
    free_block(fixture, &block);
    strata_runtime *runtime = fixture->runtime;
    strata_launch launch;
    assert_int_not_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_LIVE);
    check_refused(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_READ),
                  STRATA_ERROR_USE_AFTER_FREE, &block);
    check_refused(strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_READ),
                  STRATA_ERROR_USE_AFTER_FREE, &block);
    check_refused(strata_runtime_prepare_first_use(runtime, &block, NULL, STRATA_ACCESS_WRITE),
                  STRATA_ERROR_USE_AFTER_FREE, &block);
    check_refused(strata_runtime_record_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE),
                  STRATA_ERROR_USE_AFTER_FREE, &block);
    check_refused(strata_runtime_deallocate(runtime, &block), STRATA_ERROR_DOUBLE_FREE, &block);
    check_refused(strata_runtime_deallocate_on(runtime, &block, CU_STREAM_PER_THREAD), STRATA_ERROR_DOUBLE_FREE,
                  &block);
    for (int mode = STRATA_LAUNCH_STRICT; mode <= STRATA_LAUNCH_PERMISSIVE; mode++) {
        check_ok(strata_launch_begin(&launch, runtime, NULL, (strata_launch_mode)mode));
        check_refused(strata_launch_use(&launch, &block, STRATA_ACCESS_READ), STRATA_ERROR_USE_AFTER_FREE, &block);
        check_ok(strata_launch_end(&launch));
    }
}

static void a_stale_identity_is_recognised_when_its_entry_and_address_live_again(test_fixture *fixture)
{
    strata_block first = tagged_block(fixture), last = first;
    free_block(fixture, &first);
    bool entry_came_back = false;
    for (int i = 0; i < 400; i++) {
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        strata_block block = tagged_block(fixture);
        if (block.id.slot == first.id.slot) {
            entry_came_back = true;
            assert_true(block.id.generation > last.id.generation || last.id.slot != block.id.slot);
            last = block;
            check_refused(strata_runtime_deallocate(fixture->runtime, &first), STRATA_ERROR_DOUBLE_FREE, &first);
            check_refused(strata_runtime_prepare_block_use(fixture->runtime, &first, NULL, STRATA_ACCESS_READ),
                          STRATA_ERROR_USE_AFTER_FREE, &first);
            assert_int_equal(strata_runtime_block_state(fixture->runtime, first.id), STRATA_BLOCK_FREED);
            check_still_usable(fixture, &block);
        }
        free_block(fixture, &block);
    }
    assert_true(entry_came_back);
}

static void a_freed_block_is_retired_until_its_free_has_finished(test_fixture *fixture)
{
    if (!test_owner_is(fixture, "async")) {
        strata_block block = tagged_block(fixture);
        free_block(fixture, &block);
        assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
        return;
    }
    CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_stall *stall = test_stall_begin(stream);
    test_free_on(fixture, &block, stream);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_RETIRED);
    strata_usage usage = test_usage(fixture);
    assert_int_equal(usage.live_blocks, 0);
    assert_true(usage.live_bytes == 0 && usage.retired_bytes == block.bytes);
    assert_true(usage.bytes_outstanding == block.bytes);
    test_stall_end(stall);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
    test_stream_close(fixture, stream);
}

/* ---- identities that are none ---- */

static void made_up_identities_are_foreign(test_fixture *fixture)
{
    strata_block real = tagged_block(fixture);
    const strata_block_id ids[] = {
        {.table = real.id.table, .slot = real.id.slot, .generation = real.id.generation + 1},
        {.table = real.id.table, .slot = real.id.slot, .generation = UINT64_MAX},
        {.table = real.id.table, .slot = real.id.slot, .generation = (real.id.generation | UINT64_C(1) << 48)},
        {.table = real.id.table, .slot = real.id.slot + 1000, .generation = 1},
        {.table = real.id.table, .slot = 1u << 23, .generation = 1},
        {.table = real.id.table, .slot = UINT32_MAX, .generation = 1},
        {.table = real.id.table, .slot = 0, .generation = 1},
        {.table = 0, .slot = real.id.slot, .generation = real.id.generation},
        {.table = UINT32_MAX, .slot = real.id.slot, .generation = real.id.generation},
        {.table = real.id.table, .slot = real.id.slot, .generation = 0},
    };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        strata_block block = real;
        block.id = ids[i];
        check_refused(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_FOREIGN_POINTER, &block);
        check_refused(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_READ),
                      STRATA_ERROR_FOREIGN_POINTER, &block);
        assert_int_equal(strata_runtime_block_state(fixture->runtime, ids[i]), STRATA_BLOCK_FREED);
        check_still_usable(fixture, &real);
    }
    free_block(fixture, &real);
}

static void a_block_of_another_runtime_is_foreign(test_fixture *fixture)
{
    strata_runtime *other;
    strata_runtime_config config = {.stack_text = fixture->stack};
    check_ok(strata_runtime_create(&config, &other));
    strata_block block = tagged_block(fixture);
    check_refused(strata_runtime_deallocate(other, &block), STRATA_ERROR_FOREIGN_POINTER, &block);
    check_refused(strata_runtime_deallocate_on(other, &block, NULL), STRATA_ERROR_FOREIGN_POINTER, &block);
    check_refused(strata_runtime_prepare_block_use(other, &block, NULL, STRATA_ACCESS_READ),
                  STRATA_ERROR_FOREIGN_POINTER, &block);
    check_status(strata_runtime_find(other, block.address, &(strata_block){0}), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_destroy(other));

    /* A stack that is made afterwards does not mistake identities of the one that was there before it. */
    check_ok(strata_runtime_create(&config, &other));
    strata_block theirs;
    check_ok(strata_runtime_allocate(other, BYTES, NULL, &theirs));
    strata_block stale = theirs;
    check_ok(strata_runtime_deallocate(other, &theirs));
    check_ok(strata_runtime_destroy(other));
    check_ok(strata_runtime_create(&config, &other));
    check_ok(strata_runtime_allocate(other, BYTES, NULL, &theirs));
    check_status(strata_runtime_deallocate(other, &stale), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_deallocate(other, &theirs));
    check_ok(strata_runtime_destroy(other));
    check_still_usable(fixture, &block);
    free_block(fixture, &block);
}

static void a_free_with_a_wrong_fact_is_refused_and_changes_nothing(test_fixture *fixture)
{
    strata_block real = tagged_block(fixture), wrong;
    wrong = real;
    wrong.bytes--;
    check_refused(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_SIZE_MISMATCH, &real);
    char words[128];
    snprintf(words, sizeof words, "block size mismatch: passed %zu bytes, allocated %zu (requested %zu)", wrong.bytes,
             real.bytes, real.requested);
    check_last_error(STRATA_ERROR_SIZE_MISMATCH, words);
    check_still_usable(fixture, &real);
    wrong = real;
    wrong.requested += 8;
    check_refused(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_SIZE_MISMATCH, &real);
    snprintf(words, sizeof words, "block size mismatch: passed %zu requested bytes, allocated with %zu",
             wrong.requested, real.requested);
    check_last_error(STRATA_ERROR_SIZE_MISMATCH, words);
    check_still_usable(fixture, &real);
    wrong = real;
    wrong.address += 256;
    check_refused(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER, &real);
    check_still_usable(fixture, &real);
    wrong = real;
    wrong.device = 1;
    check_refused(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_WRONG_DEVICE, &real);
    check_still_usable(fixture, &real);
    free_block(fixture, &real);
}

static void a_kept_block_is_freed_by_its_keepers_alone(test_fixture *fixture)
{
    strata_block block = tagged_block(fixture);
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    strata_table *table = strata_resource_table(top);
    strata_entry *entry = strata_table_lookup(table, block.id);
    for (int by_layer = 0; by_layer < 2; by_layer++) {
        assert_false(strata_block_is_kept(table, &block));
        assert_true(strata_entry_keep(entry, block.id.generation));
        const bool kept = strata_block_is_kept(table, &block);
        const strata_status status = by_layer ? strata_resource_deallocate(top, &block, NULL)
                                              : strata_runtime_deallocate(fixture->runtime, &block);
        strata_entry_unkeep(entry, block.id.generation); /* before anything that may end the test */
        assert_true(kept);
        check_refused(status, STRATA_ERROR_BLOCK_IN_USE, &block);
    }
    check_still_usable(fixture, &block);
    free_block(fixture, &block);
    assert_false(strata_entry_keep(entry, block.id.generation));
    assert_false(strata_block_is_kept(table, &block));
}

static void a_pinned_block_is_not_freed(test_fixture *fixture)
{
    strata_block block = tagged_block(fixture);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_READ));
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_refused(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_BLOCK_IN_USE, &block);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_NONE));
    check_refused(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_BLOCK_IN_USE, &block);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_status(strata_runtime_finish_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_WRITE),
                 STRATA_ERROR_STREAM_MISUSE);
    check_still_usable(fixture, &block);
    free_block(fixture, &block);
}

typedef struct pin_elsewhere {
    test_fixture *fixture;
    strata_block block;
    strata_status status;
} pin_elsewhere;

static void *prepare_elsewhere(void *data)
{
    pin_elsewhere *pin = data;
    test_make_current();
    pin->status = strata_runtime_prepare_block_use(pin->fixture->runtime, &pin->block, NULL, STRATA_ACCESS_READ);
    if (pin->status == STRATA_SUCCESS)
        pin->status = strata_runtime_deallocate(pin->fixture->runtime, &pin->block);
    return NULL;
}

static void *finish_elsewhere(void *data)
{
    pin_elsewhere *pin = data;
    test_make_current();
    pin->status = strata_runtime_finish_block_use(pin->fixture->runtime, &pin->block, NULL, STRATA_ACCESS_READ);
    return NULL;
}

static void run_thread(void *(*body)(void *), void *data)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, data), 0);
    pthread_join(thread, NULL);
}

static void a_block_pinned_by_another_thread_is_not_freed(test_fixture *fixture)
{
    pin_elsewhere pin = {.fixture = fixture, .block = tagged_block(fixture)};
    run_thread(prepare_elsewhere, &pin);
    assert_int_equal(pin.status, STRATA_ERROR_BLOCK_IN_USE);
    check_refused(strata_runtime_deallocate(fixture->runtime, &pin.block), STRATA_ERROR_BLOCK_IN_USE, &pin.block);
    run_thread(finish_elsewhere, &pin);
    check_ok(pin.status);
    free_block(fixture, &pin.block);
}

/* An entry's generations are many, so the test takes all but the last away. */
static void an_entry_whose_generations_are_used_up_has_no_further_block(test_fixture *fixture)
{
    strata_table *table = strata_runtime_stack(fixture->runtime)->head.table;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (int reaped = 0; reaped < 2; reaped++) {
        strata_block last = test_allocate(fixture, BYTES, stream);
        strata_entry *entry = strata_table_lookup(table, last.id);
        last.id.generation = STRATA_GENERATION_LAST;
        entry->word = last.id.generation << STRATA_WORD_GENERATION | STRATA_BLOCK_LIVE;
        check_ok(strata_runtime_deallocate(fixture->runtime, &last));
        if (reaped)
            check_ok(strata_runtime_reap_pending(fixture->runtime));
        for (int i = 0; i < 200; i++) { /* with the address of the last one, as a rule */
            strata_block next = test_allocate(fixture, BYTES, stream);
            assert_int_not_equal(next.id.slot, last.id.slot);
            assert_int_not_equal(next.id.generation, 0);
            assert_int_equal(strata_runtime_block_state(fixture->runtime, next.id), STRATA_BLOCK_LIVE);
            check_status(strata_runtime_deallocate(fixture->runtime, &last), STRATA_ERROR_DOUBLE_FREE);
            check_ok(strata_runtime_deallocate(fixture->runtime, &next));
        }
    }
    test_stream_close(fixture, stream);
}

/* ---- many ---- */

static int by_identity(const void *left, const void *right)
{
    const strata_block *a = left, *b = right;
    return a->id.slot < b->id.slot ? -1 : a->id.slot > b->id.slot;
}

static void the_table_grows_over_several_chunks_and_its_identities_stay_apart(test_fixture *fixture)
{
    strata_block *blocks = calloc(MANY, sizeof *blocks);
    assert_non_null(blocks);
    const size_t each = test_owner_is(fixture, "pool") ? 512 : 256; /* what such a block takes */
    for (size_t i = 0; i < MANY; i++)
        blocks[i] = test_allocate(fixture, 256, NULL);
    strata_usage usage = test_usage(fixture);
    assert_int_equal(usage.live_blocks, MANY);
    assert_true(usage.live_bytes == MANY * each);
    qsort(blocks, MANY, sizeof *blocks, by_identity);
    for (size_t i = 0; i < MANY; i++) {
        strata_block found;
        assert_true(i == 0 || blocks[i - 1].id.slot < blocks[i].id.slot);
        assert_int_equal(strata_runtime_block_state(fixture->runtime, blocks[i].id), STRATA_BLOCK_LIVE);
        check_ok(strata_runtime_find(fixture->runtime, blocks[i].address + 255, &found));
        assert_memory_equal(&found.id, &blocks[i].id, sizeof found.id);
    }
    for (size_t i = 0; i < MANY; i++)
        free_block(fixture, &blocks[i]);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    for (size_t i = 0; i < MANY; i++)
        check_status(strata_runtime_deallocate(fixture->runtime, &blocks[i]), STRATA_ERROR_DOUBLE_FREE);
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
    free(blocks);
}

static void a_block_is_found_by_every_address_inside_it(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, 1000, NULL), found;
    static const size_t inside[] = {0, 1, 255, 256, 999};
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        check_ok(strata_runtime_find(fixture->runtime, block.address + inside[i], &found));
        assert_memory_equal(&found.id, &block.id, sizeof found.id);
        assert_true(found.address == block.address && found.bytes == block.bytes);
        assert_true(found.requested == block.requested && found.alignment == block.alignment);
        assert_true(found.tag == block.tag && found.device == block.device && found.stream == block.stream);
    }
    check_status(strata_runtime_find(fixture->runtime, block.address + block.bytes, &found),
                 STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_find(fixture->runtime, block.address - 1, &found), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_find(fixture->runtime, UINT64_MAX, &found), STRATA_ERROR_FOREIGN_POINTER);
    assert_true(found.address == 0 && found.id.generation == 0);
    free_block(fixture, &block);
    check_status(strata_runtime_find(fixture->runtime, block.address, &found), STRATA_ERROR_FOREIGN_POINTER);
}

typedef struct racing_free {
    test_fixture *fixture;
    pthread_barrier_t *start;
    const strata_block *block;
    strata_status status;
} racing_free;

static void *free_at_once(void *data)
{
    racing_free *racer = data;
    test_make_current();
    pthread_barrier_wait(racer->start);
    racer->status = strata_runtime_deallocate_on(racer->fixture->runtime, racer->block, NULL);
    return NULL;
}

static void of_many_frees_of_one_block_exactly_one_succeeds(test_fixture *fixture)
{
    for (int round = 0; round < 30; round++) {
        strata_block block = tagged_block(fixture);
        pthread_barrier_t start;
        pthread_t threads[THREADS];
        racing_free racers[THREADS];
        pthread_barrier_init(&start, NULL, THREADS);
        for (size_t i = 0; i < THREADS; i++) {
            racers[i] = (racing_free){.fixture = fixture, .start = &start, .block = &block};
            assert_int_equal(pthread_create(&threads[i], NULL, free_at_once, &racers[i]), 0);
        }
        size_t freed = 0;
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL); /* all of them, before a check can leave */
        for (size_t i = 0; i < THREADS; i++) {
            freed += racers[i].status == STRATA_SUCCESS;
            assert_true(racers[i].status == STRATA_SUCCESS || racers[i].status == STRATA_ERROR_DOUBLE_FREE);
        }
        pthread_barrier_destroy(&start);
        assert_int_equal(freed, 1);
    }
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
}

typedef struct shared_block {
    test_fixture *fixture;
    pthread_barrier_t *turn;
    strata_block block;
    strata_status other; /* what the second free answered */
} shared_block;

enum { RACES = 2000 };

static void *free_what_is_being_freed(void *data)
{
    shared_block *shared = data;
    test_make_current();
    for (int i = 0; i < RACES; i++) {
        pthread_barrier_wait(shared->turn);
        shared->other = strata_runtime_deallocate(shared->fixture->runtime, &shared->block);
        pthread_barrier_wait(shared->turn);
    }
    return NULL;
}

typedef struct forger {
    strata_runtime *runtime;
    strata_block forged;   /* written before `turn` becomes odd */
    _Atomic unsigned turn; /* odd: there is something to forge */
    _Atomic unsigned taken;
    _Atomic bool stop;
    size_t accepted;
} forger;

static void *free_what_is_about_to_live(void *data)
{
    forger *self = data;
    test_make_current();
    while (!atomic_load(&self->stop)) {
        const unsigned turn = atomic_load(&self->turn);
        if (turn % 2 == 0 || turn == atomic_load(&self->taken)) {
            sched_yield();
            continue;
        }
        const strata_block forged = self->forged;
        atomic_store(&self->taken, turn);
        while (atomic_load(&self->turn) == turn && !atomic_load(&self->stop))
            self->accepted += strata_runtime_deallocate(self->runtime, &forged) == STRATA_SUCCESS;
    }
    return NULL;
}

/* The identity that comes next, guessed, with the facts of the block before: whenever that one is looked at. */
static void a_forged_free_is_refused_also_while_its_block_comes_to_life(test_fixture *fixture)
{
    enum { FORGERIES = 50000 };
    const time_t most_s = getenv("STRATA_TEST_FULL") ? 5 : 1;
    if (test_is_swept() || test_under_valgrind())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    forger other = {.runtime = fixture->runtime};
    pthread_t thread;
    size_t failed = 0;
    const time_t end = time(NULL) + most_s;
    assert_int_equal(pthread_create(&thread, NULL, free_what_is_about_to_live, &other), 0);
    for (unsigned i = 0; i < FORGERIES && !failed && time(NULL) <= end; i++) {
        strata_block first, second;
        failed += strata_runtime_allocate(fixture->runtime, 1000, stream, &first) != STRATA_SUCCESS;
        failed += strata_runtime_deallocate(fixture->runtime, &first) != STRATA_SUCCESS;
        other.forged = first;
        other.forged.id.generation++;
        const unsigned turn = atomic_fetch_add(&other.turn, 1) + 1;
        while (atomic_load(&other.taken) != turn)
            sched_yield();
        for (volatile unsigned wait = 0; wait < i % 600; wait++)
            ;
        failed += strata_runtime_allocate(fixture->runtime, 600, stream, &second) != STRATA_SUCCESS;
        for (volatile unsigned wait = 0; wait < 100; wait++)
            ;
        atomic_fetch_add(&other.turn, 1);
        failed += strata_runtime_deallocate(fixture->runtime, &second) != STRATA_SUCCESS;
    }
    atomic_store(&other.stop, true);
    pthread_join(thread, NULL); /* before a check can leave */
    assert_int_equal(other.accepted, 0);
    assert_int_equal(failed, 0);
}

/* The second free may come when the entry already is another block's. */
static void a_free_that_races_with_a_free_and_a_new_block_is_recognised(test_fixture *fixture)
{
    pthread_barrier_t turn;
    pthread_t thread;
    shared_block shared = {.fixture = fixture, .turn = &turn};
    size_t wrong = 0;
    pthread_barrier_init(&turn, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, free_what_is_being_freed, &shared), 0);
    for (size_t i = 0; i < RACES; i++) {
        strata_block next = {0};
        /* Nothing may leave here while the other thread looks at these locals. */
        wrong += strata_runtime_allocate(fixture->runtime, BYTES, NULL, &shared.block) != STRATA_SUCCESS;
        pthread_barrier_wait(&turn);
        strata_status mine = strata_runtime_deallocate(fixture->runtime, &shared.block);
        strata_status allocated = strata_runtime_allocate(fixture->runtime, 2 * BYTES + 256 * (i % 7), NULL, &next);
        pthread_barrier_wait(&turn);
        bool one = (mine == STRATA_SUCCESS) != (shared.other == STRATA_SUCCESS);
        strata_status refused = mine == STRATA_SUCCESS ? shared.other : mine;
        wrong += !one || refused != STRATA_ERROR_DOUBLE_FREE || allocated != STRATA_SUCCESS;
        wrong += strata_runtime_deallocate(fixture->runtime, &next) != STRATA_SUCCESS;
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&turn);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    test_open_driver();
    if (strata_tag_intern("blocks", &test_tag) != STRATA_SUCCESS)
        return 1;
    static const test_case cases[] = {
        TEST_CASE(a_block_has_the_facts_of_its_request),
        TEST_CASE(an_alignment_that_is_no_power_of_two_is_refused),
        TEST_CASE(zero_bytes_give_an_empty_block_whose_free_does_nothing),
        TEST_CASE(every_use_of_a_freed_block_is_recognised),
        TEST_CASE(a_stale_identity_is_recognised_when_its_entry_and_address_live_again),
        TEST_CASE(a_freed_block_is_retired_until_its_free_has_finished),
        TEST_CASE(made_up_identities_are_foreign),
        TEST_CASE(a_block_of_another_runtime_is_foreign),
        TEST_CASE(a_free_with_a_wrong_fact_is_refused_and_changes_nothing),
        TEST_CASE(a_kept_block_is_freed_by_its_keepers_alone),
        TEST_CASE(a_pinned_block_is_not_freed),
        TEST_CASE(a_block_pinned_by_another_thread_is_not_freed),
        TEST_CASE(an_entry_whose_generations_are_used_up_has_no_further_block),
        TEST_CASE(the_table_grows_over_several_chunks_and_its_identities_stay_apart),
        TEST_CASE(a_block_is_found_by_every_address_inside_it),
        TEST_CASE(of_many_frees_of_one_block_exactly_one_succeeds),
        TEST_CASE(a_forged_free_is_refused_also_while_its_block_comes_to_life),
        TEST_CASE(a_free_that_races_with_a_free_and_a_new_block_is_recognised),
    };
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
