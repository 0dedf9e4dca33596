/* Completions: how the second moment of a stream-ordered free reaches the layers above an owner. */
#include <string.h>

#include "support/fixture.h"

enum { REPORTS = 64 };

typedef struct hearing_layer {
    strata_resource resource;
    size_t count;
    strata_completion reports[REPORTS];
    size_t order[REPORTS];
} hearing_layer;

static size_t heard; /* by all layers together */

static void keep_memory(strata_resource *resource)
{
    (void)resource;
}

static void hear(strata_resource *resource, const strata_completion *completion)
{
    hearing_layer *self = (hearing_layer *)resource;
    if (self->count == REPORTS)
        return;
    self->order[self->count] = heard++;
    self->reports[self->count++] = *completion;
}

static const strata_resource_ops hearing_ops = {
    .size = sizeof(strata_resource_ops), .name = "hearing", .completed = hear, .destroy = keep_memory};

typedef struct hearing_stack {
    strata_runtime *runtime;
    hearing_layer layers[2]; /* with a layer between them that hears nothing */
    strata_resource between;
} hearing_stack;

static void hearing_begin(hearing_stack *all, const test_fixture *fixture)
{
    static const strata_resource_ops deaf = {
        .size = sizeof(strata_resource_ops), .name = "deaf", .destroy = keep_memory};
    memset(all, 0, sizeof *all);
    heard = 0;
    all->layers[0].resource.ops = all->layers[1].resource.ops = &hearing_ops;
    all->between.ops = &deaf;
    strata_resource *resources[] = {&all->layers[0].resource, &all->between, &all->layers[1].resource, NULL};
    check_ok(test_owner_create(fixture, &resources[3]));
    strata_runtime_config config = {.device = 0};
    check_ok(strata_stack_build(resources, 4, 0, &config.stack));
    check_ok(strata_runtime_create(&config, &all->runtime));
}

static size_t bytes_reported(const hearing_layer *layer, strata_block_id id, size_t *last)
{
    size_t bytes = 0;
    *last = 0;
    for (size_t i = 0; i < layer->count; i++) {
        if (memcmp(&layer->reports[i].id, &id, sizeof id) != 0)
            continue;
        assert_int_equal(*last, 0);
        bytes += layer->reports[i].bytes;
        *last += layer->reports[i].last;
    }
    return bytes;
}

static void check_reported_once(const hearing_stack *all, const strata_block *block)
{
    for (size_t i = 0; i < 2; i++) {
        size_t last;
        assert_true(bytes_reported(&all->layers[i], block->id, &last) == block->bytes);
        assert_int_equal(last, 1);
    }
    assert_int_equal(all->layers[0].count, all->layers[1].count);
    for (size_t i = 0; i < all->layers[0].count; i++)
        assert_true(all->layers[1].order[i] < all->layers[0].order[i]);
}

static void a_finished_free_is_reported_upward_from_the_lowest_layer(test_fixture *fixture)
{
    hearing_stack all;
    hearing_begin(&all, fixture);
    strata_block blocks[8];
    for (size_t i = 0; i < 8; i++)
        check_ok(strata_runtime_allocate(all.runtime, 4096 * (i + 1), NULL, &blocks[i]));
    assert_int_equal(heard, 0);
    for (size_t i = 0; i < 8; i++)
        check_ok(strata_runtime_deallocate(all.runtime, &blocks[i]));
    check_ok(strata_runtime_reap_pending(all.runtime));
    assert_int_equal(heard, 16);
    for (size_t i = 0; i < 8; i++) {
        check_reported_once(&all, &blocks[i]);
        assert_int_equal(all.layers[0].reports[i].kind, STRATA_COMPLETION_FINISHED);
    }
    check_ok(strata_runtime_destroy(all.runtime));
}

static void bytes_that_are_handed_out_again_are_reported_as_reused(test_fixture *fixture)
{
    hearing_stack all;
    hearing_begin(&all, fixture);
    CUstream stream;
    strata_block whole, quarters[4];
    check_ok(strata_runtime_stream_acquire(all.runtime, &stream));
    check_ok(strata_runtime_allocate(all.runtime, 4 << 20, stream, &whole));
    const bool ordered = test_owner_is(fixture, "async"), pool = test_owner_is(fixture, "pool");
    test_stall *stall = ordered || pool ? test_stall_begin(stream) : NULL;
    check_ok(strata_runtime_deallocate(all.runtime, &whole));
    if (pool) { /* the bytes are free already: nothing is left to be reported */
        check_reported_once(&all, &whole);
        assert_int_equal(all.layers[0].reports[0].kind, STRATA_COMPLETION_FINISHED);
    }
    size_t overlap = 0;
    for (size_t i = 0; i < 4; i++) {
        check_ok(strata_runtime_allocate(all.runtime, 1 << 20, stream, &quarters[i]));
        CUdeviceptr from = quarters[i].address;
        overlap += from >= whole.address && from < whole.address + whole.bytes ? 1 << 20 : 0;
    }
    if (ordered) {
        size_t last, reused = bytes_reported(&all.layers[0], whole.id, &last);
        assert_true(overlap > 0);
        assert_true(reused == overlap);
        assert_int_equal(last, reused == whole.bytes);
        for (size_t i = 0; i < all.layers[0].count; i++)
            assert_int_equal(all.layers[0].reports[i].kind, STRATA_COMPLETION_REUSED);
        strata_usage usage;
        check_ok(strata_runtime_usage(all.runtime, &usage));
        assert_true(usage.retired_bytes == whole.bytes - reused);
        assert_true(usage.bytes_outstanding == (4 << 20) + whole.bytes - reused);
        test_stall_end(stall);
    }
    if (pool) {
        assert_true(overlap == whole.bytes);
        test_stall_end(stall);
    }
    check_ok(strata_runtime_reap_pending(all.runtime));
    check_reported_once(&all, &whole);
    for (size_t i = 0; i < 4; i++)
        check_ok(strata_runtime_deallocate(all.runtime, &quarters[i]));
    check_ok(strata_runtime_stream_release(all.runtime, stream));
    check_ok(strata_runtime_destroy(all.runtime));
    for (size_t i = 0; i < 4; i++)
        check_reported_once(&all, &quarters[i]);
}

int main(void)
{
    test_open_driver();
    static const test_case cases[] = {
        TEST_CASE(a_finished_free_is_reported_upward_from_the_lowest_layer),
        TEST_CASE(bytes_that_are_handed_out_again_are_reported_as_reused),
    };
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
