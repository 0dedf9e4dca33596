/* nvtx: what a tool is told: the names of blocks, blocks that are regions, and of the pieces of memory that they are
 * cut from. The tool is a library of the tests' own (tests/nvtx/tool.c), which NVTX loads as it would
 * compute-sanitizer's. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nvtx/tool.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { BYTES = 5000 };

/* NULL: NVTX has loaded none, as in sweeps, or another one. */
static void *symbol_of_tool(const char *name)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!library)
        return NULL;
    void *symbol = dlsym(library, name);
    dlclose(library);
    return symbol;
}

/* Without it blocks only have to work as ever. */
static const nvtx_tool_state *tool(void)
{
    nvtx_tool_look_function *look;
    *(void **)&look = symbol_of_tool("nvtx_tool_look");
    return look ? look() : NULL;
}

static size_t count(const nvtx_tool_range ranges[NVTX_TOOL_ROOM])
{
    size_t used = 0;
    for (size_t i = 0; i < NVTX_TOOL_ROOM; i++)
        used += ranges[i].start != 0;
    return used;
}

static const nvtx_tool_range *region_of(const strata_block *block)
{
    for (size_t i = 0; tool() && i < NVTX_TOOL_ROOM; i++)
        if (tool()->regions[i].start == block->address)
            return &tool()->regions[i];
    return NULL;
}

static void check_counts(size_t regions, size_t heaps)
{
    if (!tool())
        return;
    assert_int_equal(count(tool()->regions), regions);
    assert_int_equal(count(tool()->heaps), heaps);
    assert_int_equal(tool()->wrong, 0);
}

static void check_no_name(const char *name)
{
    for (size_t i = 0; tool() && i < NVTX_TOOL_ROOM; i++) {
        assert_string_not_equal(tool()->names[i].name, name);
        assert_string_not_equal(tool()->regions[i].name, name);
    }
}

/* A block that is no region has this name. */
static void check_name(const strata_block *block, const char *name)
{
    bool found = !tool();
    for (size_t i = 0; tool() && i < NVTX_TOOL_ROOM; i++)
        if (tool()->names[i].start == block->address)
            found = strcmp(tool()->names[i].name, name) == 0;
    assert_true(found);
}

static void check_region(const strata_block *block, const char *name)
{
    const nvtx_tool_range *region = region_of(block);
    if (!tool())
        return;
    assert_non_null(region);
    assert_int_equal(region->bytes, block->requested);
    assert_string_equal(region->name, name);
}

static strata_block allocate_from(strata_runtime *runtime, size_t bytes, const char *name)
{
    strata_block block;
    strata_request request = {.bytes = bytes};
    check_ok(strata_tag_intern(name, &request.tag));
    check_ok(strata_runtime_allocate_request(runtime, &request, &block));
    return block;
}

static strata_block allocate_tagged(test_fixture *fixture, size_t bytes, const char *name)
{
    return allocate_from(fixture->runtime, bytes, name);
}

static void a_block_has_its_tags_name(test_fixture *fixture)
{
    strata_block first = allocate_tagged(fixture, BYTES, "weights"), second = test_allocate(fixture, 1, NULL), empty;
    check_ok(strata_runtime_allocate(fixture->runtime, 0, NULL, &empty));
    check_name(&first, "weights");
    check_counts(0, 0);
    test_write(fixture, &first, 1, NULL);
    check_ok(strata_runtime_deallocate(fixture->runtime, &first));
    check_status(strata_runtime_deallocate(fixture->runtime, &first), STRATA_ERROR_DOUBLE_FREE);
    check_ok(strata_runtime_deallocate(fixture->runtime, &second));
    check_ok(strata_runtime_deallocate(fixture->runtime, &empty));
    check_counts(0, 0);
}

static void a_free_that_is_refused_leaves_the_name_as_it_was(test_fixture *fixture)
{
    strata_block block = allocate_tagged(fixture, BYTES, "kept"), wrong = block;
    wrong.bytes = wrong.requested = 10;
    wrong.tag = 0;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_SIZE_MISMATCH);
    check_name(&block, "kept");
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_counts(0, 0);
}

static void names_can_be_left_out(test_fixture *fixture)
{
    strata_block block = allocate_tagged(fixture, BYTES, "secret");
    check_no_name("secret");
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_counts(0, 0);
}

/* ---- over an allocator that cuts blocks out of larger pieces ---- */

enum { PIECE = 1 << 20, PIECES = 2 };

typedef struct cutter {
    CUdeviceptr pieces[PIECES];
    size_t used[PIECES];
    bool pooled; /* they come from cuMemAllocAsync */
} cutter;

/* The first half of the requests from one piece, then from the other. */
static strata_status cut(CUdeviceptr *address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    cutter *self = data;
    size_t which = self->used[0] >= PIECE / 2;
    (void)alignment, (void)stream;
    *address = self->pieces[which] + self->used[which];
    self->used[which] += (bytes + 255) & ~(size_t)255;
    return STRATA_SUCCESS;
}

static strata_status keep(CUdeviceptr address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    (void)address, (void)bytes, (void)alignment, (void)stream, (void)data;
    return STRATA_SUCCESS;
}

/* A layer between the two: something happens before or after a free goes down, once, as on another thread. */
typedef struct meddler {
    strata_resource resource;
    void (*before)(void), (*after)(void);
} meddler;

static void do_once(void (**what)(void))
{
    void (*now)(void) = *what;
    *what = NULL;
    if (now)
        now();
}

static strata_status meddle(strata_resource *resource, const strata_block *block, CUstream stream)
{
    meddler *self = (meddler *)resource;
    do_once(&self->before);
    strata_status status = resource->upstream->ops->deallocate(resource->upstream, block, stream);
    do_once(&self->after);
    return status;
}

static void no_end(strata_resource *resource)
{
    (void)resource;
}

static const strata_resource_ops meddler_ops = {
    .size = sizeof meddler_ops,
    .name = "meddler",
    .deallocate = meddle,
    .destroy = no_end,
};

static meddler between;

static strata_runtime *over_cutter(cutter *self, const strata_nvtx_options *options)
{
    strata_resource *layers[3] = {NULL, &between.resource, NULL};
    strata_stack *stack;
    strata_runtime *runtime;
    CUmemoryPool pool;
    check_cu(test_cu()->DeviceGetDefaultMemPool(&pool, 0));
    for (size_t i = 0; i < PIECES; i++)
        check_cu(self->pooled ? test_cu()->MemAllocFromPoolAsync(&self->pieces[i], PIECE, pool, NULL)
                              : test_cu()->MemAlloc(&self->pieces[i], PIECE));
    check_ok(strata_nvtx_create(0, options, &layers[0]));
    check_ok(strata_callback_create(0, &(strata_callback_options){.allocate = cut, .deallocate = keep, .data = self},
                                    &layers[2]));
    between = (meddler){.resource.ops = &meddler_ops};
    check_ok(strata_stack_build(layers, 3, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &runtime));
    return runtime;
}

static void end_cutter(cutter *self)
{
    for (size_t i = 0; i < PIECES; i++)
        check_cu(test_cu()->MemFree(self->pieces[i]));
}

static void what_blocks_are_cut_from_is_a_heap_while_there_are_any(void **state)
{
    (void)state;
    enum { BLOCKS = 8, SIZE = PIECE / 8 };
    cutter self = {0};
    strata_runtime *runtime = over_cutter(&self, NULL);
    strata_block blocks[BLOCKS];
    uint64_t value;
    for (size_t i = 0; i < BLOCKS; i++) {
        check_ok(strata_runtime_allocate(runtime, SIZE, NULL, &blocks[i]));
        check_counts(i + 1, i < BLOCKS / 2 ? 1 : 2);
        check_region(&blocks[i], "");
    }
    for (size_t i = 0; tool() && i < BLOCKS; i++) {
        const nvtx_tool_range *heap = &tool()->heaps[region_of(&blocks[i])->heap - 1];
        assert_true(heap->start == self.pieces[i >= BLOCKS / 2] && heap->bytes == PIECE);
        assert_string_equal(heap->name, "nvtx, meddler, callback");
    }
    check_ok(strata_control(strata_runtime_stack(runtime), "nvtx.heaps", &value, NULL));
    assert_int_equal(value, tool() ? 2 : 0);
    check_ok(strata_control(strata_runtime_stack(runtime), "nvtx.regions", &value, NULL));
    assert_int_equal(value, tool() ? BLOCKS : 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
        check_counts(BLOCKS - 1 - i, i < BLOCKS / 2 - 1 ? 2 : i < BLOCKS - 1 ? 1 : 0);
    }
    check_ok(strata_runtime_destroy(runtime));
    end_cutter(&self);
}

static void heaps_can_be_left_out(void **state)
{
    (void)state;
    cutter self = {0};
    strata_runtime *runtime = over_cutter(&self, &(strata_nvtx_options){.no_heaps = 1});
    strata_block block = allocate_from(runtime, BYTES, "part of a piece");
    check_counts(0, 0);
    check_no_name("part of a piece");
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
    end_cutter(&self);
}

/* The tools that there are take no heaps there, nor names of parts of what is none. */
static void what_is_cut_from_a_pools_memory_is_no_heap(void **state)
{
    (void)state;
    cutter self = {.pooled = true};
    strata_runtime *runtime = over_cutter(&self, NULL);
    strata_block block = allocate_from(runtime, BYTES, "part of an allocation");
    check_counts(0, 0);
    check_no_name("part of an allocation");
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
    end_cutter(&self);
}

/* Whose kernels look at what lies between its blocks. */
static void what_is_cut_by_a_guard_is_no_heap(void **state)
{
    (void)state;
    strata_runtime *runtime;
    check_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "nvtx, statistics, guard(debuggers=off), direct"}, &runtime));
    strata_block block = allocate_from(runtime, BYTES, "between zones");
    check_counts(0, 0);
    check_no_name("between zones");
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

static bool has_context(void)
{
    CUcontext context;
    return test_cu()->CtxGetCurrent(&context) == CUDA_SUCCESS && context;
}

static void the_tool_is_told_where_there_is_a_context(void **state)
{
    (void)state;
    cutter self = {0};
    strata_runtime *runtime = over_cutter(&self, NULL);
    nvtx_tool_ask_function *ask;
    *(void **)&ask = symbol_of_tool("nvtx_tool_ask");
    if (ask)
        ask(has_context);
    check_cu(test_cu()->CtxSetCurrent(NULL));
    strata_block block = allocate_from(runtime, BYTES, "told of");
    strata_block wrong = block;
    wrong.bytes = wrong.requested = 10;
    strata_status refused = strata_runtime_deallocate(runtime, &wrong);
    check_region(&block, "told of");
    check_ok(strata_runtime_deallocate(runtime, &block));
    assert_false(has_context());
    test_make_current();
    if (ask)
        ask(NULL);
    check_status(refused, STRATA_ERROR_SIZE_MISMATCH);
    check_counts(0, 0);
    check_ok(strata_runtime_destroy(runtime));
    end_cutter(&self);
}

/* ---- frees of the same block at the same time ---- */

static struct {
    strata_runtime *runtime;
    strata_block block, next;
} shared;

static void free_wrongly(void)
{
    strata_block wrong = shared.block;
    wrong.bytes = wrong.requested = 10;
    check_status(strata_runtime_deallocate(shared.runtime, &wrong), STRATA_ERROR_SIZE_MISMATCH);
}

static void free_and_allocate(void)
{
    check_ok(strata_runtime_deallocate(shared.runtime, &shared.block));
    check_ok(strata_runtime_allocate(shared.runtime, 2 * BYTES, NULL, &shared.next));
    assert_int_equal(shared.next.id.slot, shared.block.id.slot);
}

static void begin_sharing(cutter *self)
{
    shared.runtime = over_cutter(self, NULL);
    check_ok(strata_runtime_allocate(shared.runtime, BYTES, NULL, &shared.block));
    check_counts(1, 1);
}

static void end_sharing(cutter *self, const strata_block *last)
{
    uint64_t value;
    if (last)
        check_ok(strata_runtime_deallocate(shared.runtime, last));
    check_counts(0, 0);
    check_ok(strata_control(strata_runtime_stack(shared.runtime), "nvtx.regions", &value, NULL));
    assert_int_equal(value, 0);
    check_ok(strata_runtime_destroy(shared.runtime));
    end_cutter(self);
}

static void a_refused_free_brings_no_region_back_that_another_freed(void **state)
{
    (void)state;
    cutter self = {0};
    begin_sharing(&self);
    between.after = free_and_allocate;
    free_wrongly();
    check_counts(1, 1);
    check_region(&shared.next, "");
    end_sharing(&self, &shared.next);
}

static void a_refused_free_brings_no_region_back_that_another_frees(void **state)
{
    (void)state;
    cutter self = {0};
    begin_sharing(&self);
    between.before = free_wrongly;
    check_ok(strata_runtime_deallocate(shared.runtime, &shared.block));
    end_sharing(&self, NULL);
}

static void of_two_refused_frees_the_last_brings_the_region_back(void **state)
{
    (void)state;
    cutter self = {0};
    begin_sharing(&self);
    between.before = free_wrongly;
    free_wrongly();
    check_counts(1, 1);
    check_region(&shared.block, "");
    end_sharing(&self, &shared.block);
}

/* ---- threads ---- */

static void *work(void *data)
{
    enum { ROUNDS = 200, KEPT = 5 };
    strata_runtime *runtime = data;
    strata_block kept[KEPT] = {0};
    size_t failed = 0;
    test_make_current();
    for (size_t i = 0; i < ROUNDS; i++) {
        failed += strata_runtime_deallocate(runtime, &kept[i % KEPT]) != STRATA_SUCCESS;
        failed += strata_runtime_allocate(runtime, 64, NULL, &kept[i % KEPT]) != STRATA_SUCCESS;
    }
    for (size_t i = 0; i < KEPT; i++)
        failed += strata_runtime_deallocate(runtime, &kept[i]) != STRATA_SUCCESS;
    return (void *)failed;
}

static void threads_tell_of_their_blocks_at_the_same_time(test_fixture *fixture)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, fixture->runtime), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_true(failed == NULL || test_is_swept());
    }
    check_counts(0, 0);
}

static void options_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    strata_resource *resource;
    check_status(strata_nvtx_create(0, &(strata_nvtx_options){.no_names = 2}, &resource), STRATA_ERROR_INVALID_VALUE);
    assert_null(resource);
    check_status(strata_nvtx_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
}

static void the_tool_was_told(void **state)
{
    (void)state;
    const char *path = getenv("NVTX_INJECTION64_PATH");
    if (!path || !strstr(path, "nvtx_tool"))
        skip();
    assert_non_null(tool());
    assert_true(tool()->told > 10);
}

int main(void)
{
    test_open_driver();
    strata_resource *probe;
    if (strata_nvtx_create(0, NULL, &probe) == STRATA_ERROR_UNSUPPORTED)
        return 77;
    strata_resource_destroy(probe);
    static const test_case cases[] = {
        TEST_CASE(a_block_has_its_tags_name),
        TEST_CASE(a_free_that_is_refused_leaves_the_name_as_it_was),
        TEST_CASE(threads_tell_of_their_blocks_at_the_same_time),
    };
    static const test_case plain[] = {TEST_CASE(names_can_be_left_out)};
    static const char *const stacks[] = {"nvtx, async", "nvtx, direct"};
    static const char *const nameless[] = {"nvtx(names=off), async"};
    const struct CMUnitTest others[] = {
        cmocka_unit_test(what_blocks_are_cut_from_is_a_heap_while_there_are_any),
        cmocka_unit_test(heaps_can_be_left_out),
        cmocka_unit_test(what_is_cut_from_a_pools_memory_is_no_heap),
        cmocka_unit_test(what_is_cut_by_a_guard_is_no_heap),
        cmocka_unit_test(the_tool_is_told_where_there_is_a_context),
        cmocka_unit_test(a_refused_free_brings_no_region_back_that_another_freed),
        cmocka_unit_test(a_refused_free_brings_no_region_back_that_another_frees),
        cmocka_unit_test(of_two_refused_frees_the_last_brings_the_region_back),
        cmocka_unit_test(options_that_mean_nothing_are_refused),
        cmocka_unit_test(the_tool_was_told),
    };
    int failed = test_run_on(stacks, 2, cases, sizeof cases / sizeof cases[0]);
    failed |= test_run_on(nameless, 1, plain, 1);
    return test_is_swept() ? failed : cmocka_run_group_tests(others, NULL, NULL) | failed;
}
