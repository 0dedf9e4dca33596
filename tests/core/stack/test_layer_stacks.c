/* Random stacks of up to six layers, with random traffic, against a model. The model knows which blocks live, how large
 * they are and what they hold; every answer of the stack has to agree, whatever stands in it. support/layers.h has the
 * layers.
 *
 * In a sweep each of some stacks is a case, with fewer operations.
 *
 * STRATA_TEST_SEEDS and STRATA_TEST_OPERATIONS say how many stacks and how long; STRATA_TEST_FULL=1 is many. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/effort.h"
#include "support/fixture.h"
#include "support/layers.h"
#include "support/sweep.h"

enum {
    STACKS = 24,
    FULL_STACKS = 3000,
    OPERATIONS = 250,
    SWEPT_STACKS = 16,
    SWEPT_OPERATIONS = 60,
    LAYERS = 6,  /* the owner among them */
    BLOCKS = 24, /* live ones at most */
    STREAMS = 5,
    EDGE = 256, /* bytes at both ends of a block that are written and read */
    READS = 64,
    STALE = 8,
    TEXT = 512,
};

typedef struct model_block {
    strata_block block;
    int value; /* of its edges; -1 before the first write */
} model_block;

typedef struct model_read {
    size_t bytes;
    int value;
} model_read;

static struct {
    uint64_t seed, random;
    char text[TEXT];
    unsigned refuse;    /* how many layers fail calls on purpose */
    bool all_alignment; /* some layer serves requests for more than 256 bytes */
    strata_runtime *runtime;
    CUstream streams[STREAMS]; /* pooled ones, an unknown one, the legacy one */
    model_block blocks[BLOCKS];
    size_t count;
    strata_block stale[STALE];
    size_t stale_count;
    model_read reads[READS];
    size_t read_count;
    unsigned char *seen; /* pinned: READS * EDGE bytes */
    size_t refused;      /* calls, of all stacks */
} model;

/* ---- dice ---- */

static size_t pick(size_t below)
{
    model.random ^= model.random << 13;
    model.random ^= model.random >> 7;
    model.random ^= model.random << 17;
    return (size_t)((model.random >> 11) % below);
}

static CUstream pick_stream(void)
{
    return model.streams[pick(STREAMS)];
}

static size_t pick_size(void)
{
    size_t kind = pick(8);
    return 1 + (kind < 5 ? pick(8192) : kind < 7 ? pick(128 << 10) : pick(2 << 20));
}

/* ---- answers ---- */

/* Whether the call went well. What a layer refused on purpose has changed nothing. */
static bool went_well(strata_status status)
{
    if (status == STRATA_SUCCESS)
        return true;
    if (model.refuse && strstr(strata_last_error()->message, "on purpose")) {
        model.refused++;
        return false;
    }
    check_ok(status);
    return false;
}

/* Whether the call was refused for what is wrong with it, or on purpose. */
static void check_refused(strata_status status, strata_status expected)
{
    if (status == expected)
        return;
    assert_true(status != STRATA_SUCCESS && model.refuse);
    assert_non_null(strstr(strata_last_error()->message, "on purpose"));
    model.refused++;
}

/* ---- contents ---- */

static size_t edge_of(const strata_block *block)
{
    return block->requested < EDGE ? block->requested : EDGE;
}

static void verify_reads(void)
{
    check_cu(test_cu()->CtxSynchronize());
    for (size_t i = 0; i < model.read_count; i++)
        for (size_t j = 0; j < model.reads[i].bytes; j++)
            if (model.seen[i * EDGE + j] != model.reads[i].value)
                fail_msg("read %zu: byte %zu is 0x%02x, expected 0x%02x", i, j, model.seen[i * EDGE + j],
                         (unsigned)model.reads[i].value);
    model.read_count = 0;
}

static void submit(model_block *one, CUstream stream, strata_access access)
{
    const strata_block *block = &one->block;
    size_t edge = edge_of(block);
    const CUdeviceptr ends[2] = {block->address, block->address + block->requested - edge};
    if ((access & STRATA_ACCESS_READ) && one->value >= 0) {
        if (model.read_count == READS)
            fail_msg("the reads were not verified in time");
        check_cu(test_cu()->MemcpyDtoHAsync(&model.seen[model.read_count * EDGE], ends[pick(2)], edge, stream));
        model.reads[model.read_count++] = (model_read){.bytes = edge, .value = one->value};
    }
    if (access & STRATA_ACCESS_WRITE) {
        one->value = (int)pick(256);
        for (size_t i = 0; i < 2; i++)
            check_cu(test_cu()->MemsetD8Async(ends[i], (unsigned char)one->value, edge, stream));
    }
}

static void use(model_block *one, strata_access access)
{
    CUstream stream = pick_stream();
    if (model.read_count == READS)
        verify_reads();
    if (!went_well(strata_runtime_prepare_block_use(model.runtime, &one->block, stream, access)))
        return;
    if (pick(8) == 0 && !test_is_swept()) { /* there each use that is prepared is made: support/touch.h */
        check_refused(strata_runtime_deallocate_on(model.runtime, &one->block, stream), STRATA_ERROR_BLOCK_IN_USE);
        check_ok(strata_runtime_finish_block_use(model.runtime, &one->block, stream, STRATA_ACCESS_NONE));
        return;
    }
    submit(one, stream, access);
    check_ok(strata_runtime_finish_block_use(model.runtime, &one->block, stream, access));
}

/* ---- operations ---- */

static strata_usage usage(void)
{
    strata_usage got;
    check_ok(strata_runtime_usage(model.runtime, &got));
    return got;
}

static void check_usage(void)
{
    strata_usage got = usage();
    size_t bytes = 0;
    for (size_t i = 0; i < model.count; i++)
        bytes += model.blocks[i].block.bytes;
    assert_true(got.live_blocks == model.count);
    assert_true(got.live_bytes >= bytes && got.reserved_bytes >= bytes);
    assert_true(got.bytes_outstanding == got.live_bytes + got.retired_bytes);
}

static void check_apart(const strata_block *block)
{
    for (size_t i = 0; i < model.count; i++) {
        const strata_block *other = &model.blocks[i].block;
        assert_true(block->address + block->bytes <= other->address || other->address + other->bytes <= block->address);
    }
}

static void allocate(void)
{
    if (model.count == BLOCKS)
        return;
    static const size_t alignments[] = {0, 0, 1, 64, 256, 512, 4096, 32768};
    strata_request request = {.bytes = pick_size(), .stream = pick_stream(), .tag = (strata_tag)pick(3)};
    request.alignment = alignments[pick(model.all_alignment ? 8 : 5)];
    strata_resource *top = strata_stack_top(strata_runtime_stack(model.runtime));
    strata_block block = {.bytes = 1};
    size_t charge, before = usage().live_bytes;
    check_ok(top->ops->charge(top, &request, &charge));
    if (!went_well(strata_runtime_allocate_request(model.runtime, &request, &block))) {
        assert_memory_equal(&block, &(strata_block){0}, sizeof block);
        assert_true(usage().live_bytes == before);
        return;
    }
    size_t taken = usage().live_bytes - before;
    /* Of two owners one may round up to a class: an eighth at most. */
    assert_true(taken >= block.bytes && charge >= taken && charge - taken < 512 + charge / 8);
    assert_true(block.requested == request.bytes && block.bytes >= request.bytes);
    assert_true(block.address % 256 == 0 && block.address % block.alignment == 0);
    assert_true(!request.alignment || block.address % request.alignment == 0);
    assert_true(block.tag == request.tag && block.stream == request.stream && block.device == 0);
    check_apart(&block);
    model.blocks[model.count++] = (model_block){.block = block, .value = -1};
    if (pick(4))
        use(&model.blocks[model.count - 1], STRATA_ACCESS_WRITE);
}

static void free_block(model_block *one)
{
    strata_block copy = one->block;
    copy.tag = (strata_tag)pick(9); /* not checked */
    if (!went_well(strata_runtime_deallocate_on(model.runtime, &copy, pick_stream()))) {
        assert_int_equal(strata_runtime_block_state(model.runtime, one->block.id), STRATA_BLOCK_LIVE);
        return;
    }
    assert_int_not_equal(strata_runtime_block_state(model.runtime, one->block.id), STRATA_BLOCK_LIVE);
    size_t where = model.stale_count < STALE ? model.stale_count++ : pick(STALE);
    model.stale[where] = one->block;
    *one = model.blocks[--model.count];
}

static void free_wrongly(const strata_block *block)
{
    strata_block wrong = *block;
    strata_status expected = STRATA_ERROR_FOREIGN_POINTER;
    switch (pick(5)) {
    case 0:
        wrong.bytes += 1 + pick(100);
        expected = STRATA_ERROR_SIZE_MISMATCH;
        break;
    case 1:
        wrong.requested -= 1;
        expected = STRATA_ERROR_SIZE_MISMATCH;
        break;
    case 2:
        wrong.address += 256 * (1 + pick(100));
        break;
    case 3:
        wrong.device = 1;
        expected = STRATA_ERROR_WRONG_DEVICE;
        break;
    default:
        wrong.id.generation += 1000;
        break;
    }
    check_refused(strata_runtime_deallocate_on(model.runtime, &wrong, pick_stream()), expected);
    assert_int_equal(strata_runtime_block_state(model.runtime, block->id), STRATA_BLOCK_LIVE);
}

static void use_what_is_gone(void)
{
    if (!model.stale_count)
        return;
    const strata_block *block = &model.stale[pick(model.stale_count)];
    check_refused(strata_runtime_deallocate_on(model.runtime, block, pick_stream()), STRATA_ERROR_DOUBLE_FREE);
    check_refused(strata_runtime_prepare_block_use(model.runtime, block, pick_stream(), STRATA_ACCESS_READ),
                  STRATA_ERROR_USE_AFTER_FREE);
}

static void find(const strata_block *block)
{
    strata_block found;
    check_ok(strata_runtime_find(model.runtime, block->address + pick(block->bytes), &found));
    assert_memory_equal(&found, block, sizeof found);
    strata_status status = strata_runtime_find(model.runtime, block->address + block->bytes, &found);
    assert_true(status == STRATA_ERROR_FOREIGN_POINTER || found.id.slot != block->id.slot);
    assert_int_not_equal(strata_runtime_find(model.runtime, 12345, &found), STRATA_SUCCESS);
}

static void give_back(void)
{
    size_t released;
    went_well(pick(2) ? strata_runtime_reap_pending(model.runtime)
                      : strata_runtime_trim(model.runtime, pick(32 << 20), &released));
}

/* A correct program is told of the frees alone that were refused. What a layer below a guard refuses on purpose may be
 * a check. */
static void check_guards(void)
{
    for (strata_resource *at = strata_stack_top(strata_runtime_stack(model.runtime)); at; at = at->upstream) {
        strata_guard_finding finding;
        if (strcmp(at->ops->name, "guard") != 0)
            continue;
        strata_status status = strata_guard_check(at, NULL);
        if (status != STRATA_ERROR_CORRUPTED)
            went_well(status);
        while (strata_guard_take_finding(at, &finding))
            if (finding.kind != STRATA_GUARD_DOUBLE_FREE && finding.kind != STRATA_GUARD_FOREIGN_FREE)
                fail_msg("a guard reports kind %d at offset %lld of a block of %zu bytes", (int)finding.kind,
                         (long long)finding.offset, finding.block.requested);
    }
}

static void operate(void)
{
    size_t what = pick(100);
    model_block *one = model.count ? &model.blocks[pick(model.count)] : NULL;
    if (what < 32 || !one)
        allocate();
    else if (what < 54)
        free_block(one);
    else if (what < 78)
        use(one, (strata_access)(1 + pick(3)));
    else if (what < 84)
        free_wrongly(&one->block);
    else if (what < 89)
        use_what_is_gone();
    else if (what < 94)
        find(&one->block);
    else if (what < 97)
        check_usage();
    else if (what < 98)
        check_guards();
    else
        give_back();
}

/* ---- stacks ---- */

static void write_stack(void)
{
    const char *const owners[] = {"direct",         "async",          "async",  "pool",   "pool",
                                  test_branches[0], test_branches[1], "pinned", "managed"}; /* that last */
    strata_device_info info;
    check_ok(strata_device_get_info(0, &info));
    size_t layers = pick(LAYERS);
    model.text[0] = '\0';
    for (size_t i = 0; i < layers; i++) {
        const test_layer_text *layer = &test_decorators[pick(TEST_DECORATORS)];
        strcat(strcat(model.text, layer->text), ", ");
        model.refuse += layer->refuses;
        model.all_alignment |= layer->all_alignment;
    }
    strcat(model.text, owners[pick(sizeof owners / sizeof owners[0] - !info.managed_memory)]);
}

/* The stack of this seed, and what will be done with it. */
static void choose(uint64_t seed)
{
    unsigned char *seen = model.seen;
    size_t refused = model.refused;
    memset(&model, 0, sizeof model);
    model.seen = seen;
    model.refused = refused;
    model.seed = seed;
    model.random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    write_stack();
}

static void give_back_all(void)
{
    for (size_t i = 0; i < model.count; i++) {
        if (model.read_count == READS)
            verify_reads();
        use(&model.blocks[i], STRATA_ACCESS_READ);
    }
    verify_reads();
    for (size_t turns = 0; model.count; turns++) {
        assert_true(turns < 100 * BLOCKS);
        free_block(&model.blocks[0]);
    }
    check_guards();
    for (size_t turns = 0; !went_well(strata_runtime_reap_pending(model.runtime)); turns++)
        assert_true(turns < 100 * BLOCKS); /* a guard frees below, and that may be refused */
    strata_usage left = usage();
    assert_true(left.live_blocks == 0 && left.live_bytes == 0 && left.bytes_outstanding == 0);
}

static void play(test_fixture *fixture, size_t operations)
{
    model.runtime = fixture->runtime;
    for (size_t i = 0; i + 1 < STREAMS; i++)
        model.streams[i] = test_stream(fixture, i + 2 < STREAMS ? TEST_STREAM_POOL : TEST_STREAM_UNKNOWN);
    model.streams[STREAMS - 1] = NULL;
    for (size_t i = 0; i < operations; i++)
        operate();
    give_back_all();
    for (size_t i = 0; i < STREAMS; i++)
        test_stream_close(fixture, model.streams[i]);
}

static size_t number_from_environment(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? (size_t)strtoull(text, NULL, 10) : otherwise;
}

static void random_stacks_answer_as_the_model_says(void **state)
{
    (void)state;
    bool full = number_from_environment("STRATA_TEST_FULL", 0) != 0 && !test_under_valgrind();
    size_t stacks = number_from_environment("STRATA_TEST_SEEDS", full ? FULL_STACKS : test_effort(STACKS, 4));
    size_t operations = number_from_environment("STRATA_TEST_OPERATIONS", test_effort(OPERATIONS, 100));
    for (uint64_t seed = 0; seed < stacks; seed++) {
        test_fixture fixture = {0};
        choose(seed);
        if (test_sim_control())
            check_cu(test_sim_control()->set_seed(seed));
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = model.text}, &fixture.runtime));
        play(&fixture, operations);
        check_ok(strata_runtime_destroy(fixture.runtime));
        model.runtime = NULL;
    }
    if (!test_under_valgrind() && stacks >= STACKS)
        assert_true(model.refused > 0); /* such layers stood in some of them */
}

static int tell_where(void **state)
{
    (void)state;
    if (model.runtime)
        print_error("seed %llu: %s\n", (unsigned long long)model.seed, model.text);
    return 0;
}

/* ---- in a sweep ---- */

static struct {
    uint64_t seed;
    char text[TEXT];
} swept[SWEPT_STACKS];

static void calls_answer_as_the_model_says(test_fixture *fixture)
{
    size_t i = 0;
    while (fixture->stack != swept[i].text)
        i++;
    choose(swept[i].seed);
    play(fixture, SWEPT_OPERATIONS);
}

/* What a sweep clears away it tries twice, so that not two layers may refuse it. */
static int run_swept(void)
{
    static const test_case cases[] = {TEST_CASE(calls_answer_as_the_model_says)};
    const char *stacks[SWEPT_STACKS];
    uint64_t seed = 0;
    for (size_t i = 0; i < SWEPT_STACKS; i++) {
        do
            choose(seed++);
        while (model.refuse > 1);
        swept[i].seed = model.seed;
        stacks[i] = strcpy(swept[i].text, model.text);
    }
    return test_run_on(stacks, SWEPT_STACKS, cases, 1);
}

int main(void)
{
    test_open_driver();
    void *seen;
    if (test_cu()->MemHostAlloc(&seen, READS * EDGE, 0) != CUDA_SUCCESS)
        return 1;
    model.seen = seen;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_stacks_answer_as_the_model_says, tell_where),
    };
    int failed = test_is_swept() ? run_swept() : cmocka_run_group_tests(tests, NULL, NULL);
    test_cu()->MemFreeHost(seen);
    return failed;
}
