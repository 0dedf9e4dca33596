/* aligned: which requests are made larger, what the user sees of the block, and what goes back to the layer below. The
 * layer below is a callback resource whose addresses the test chooses. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/fixture.h"
#include "support/sweep.h"

/* ---- a layer below that is seen ---- */

static struct {
    CUdeviceptr next; /* the address that the next allocation gets */
    size_t bytes, alignment, allocations;
    CUdeviceptr freed;
    size_t freed_bytes, frees;
} below;

static strata_status give(CUdeviceptr *address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    (void)stream, (void)data;
    below.allocations++;
    below.bytes = bytes;
    below.alignment = alignment;
    *address = below.next;
    return STRATA_SUCCESS;
}

static strata_status take(CUdeviceptr address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    (void)alignment, (void)stream, (void)data;
    below.frees++;
    below.freed = address;
    below.freed_bytes = bytes;
    return STRATA_SUCCESS;
}

static strata_stack *build(uint64_t alignment, uint64_t threshold)
{
    strata_resource *layers[2];
    strata_stack *stack;
    memset(&below, 0, sizeof below);
    check_ok(
        strata_aligned_create(&(strata_aligned_options){.alignment = alignment, .threshold = threshold}, &layers[0]));
    check_ok(strata_callback_create(0, &(strata_callback_options){.allocate = give, .deallocate = take}, &layers[1]));
    check_ok(strata_stack_build(layers, 2, 0, &stack));
    return stack;
}

/* Allocates where the layer below gives `address`, checks that it was asked for `asked`, and frees. */
static CUdeviceptr round_trip(strata_stack *stack, const strata_request *request, CUdeviceptr address, size_t asked)
{
    strata_resource *top = strata_stack_top(stack);
    strata_block block;
    below.next = address;
    check_ok(strata_resource_allocate(top, request, &block));
    assert_true(below.bytes == asked);
    assert_true(block.requested == request->bytes && block.bytes == request->bytes);
    assert_true(block.address % block.alignment == 0);
    assert_true(block.address >= address && block.address + block.bytes <= address + asked);
    check_ok(strata_resource_deallocate(top, &block, NULL));
    assert_true(below.freed == address && below.freed_bytes == asked);
    assert_true(below.frees == below.allocations);
    return block.address;
}

enum { AT = 0x7000000 };

static void what_needs_no_alignment_passes_unchanged(void **state)
{
    (void)state;
    strata_stack *stack = build(0, 0);
    assert_true(round_trip(stack, &(strata_request){.bytes = 5}, AT + 256, 5) == AT + 256);
    assert_true(round_trip(stack, &(strata_request){.bytes = 5, .alignment = 256}, AT + 256, 5) == AT + 256);
    assert_true(below.alignment == 256);
    check_ok(strata_stack_destroy(stack));
}

static void alignments_up_to_256_bytes_are_what_there_is_anyway(void **state)
{
    (void)state;
    for (uint64_t alignment = 1; alignment <= 256; alignment *= 2) {
        strata_stack *stack = build(alignment, 0);
        assert_true(round_trip(stack, &(strata_request){.bytes = 70000}, AT + 256, 70000) == AT + 256);
        check_ok(strata_stack_destroy(stack));
    }
}

static void below_the_threshold_a_request_passes_unchanged(void **state)
{
    (void)state;
    strata_stack *stack = build(4096, 65536);
    assert_true(round_trip(stack, &(strata_request){.bytes = 65528}, AT + 256, 65528) == AT + 256);
    assert_true(round_trip(stack, &(strata_request){.bytes = 65535}, AT + 256, 65535) == AT + 256);
    check_ok(strata_stack_destroy(stack));
}

static void an_address_that_is_aligned_already_is_taken_as_it_is(void **state)
{
    (void)state;
    strata_stack *stack = build(4096, 65536);
    assert_true(round_trip(stack, &(strata_request){.bytes = 65536}, AT, 65536 + 4096 - 256) == AT);
    check_ok(strata_stack_destroy(stack));
}

static void an_address_is_moved_up_and_the_one_from_below_goes_back(void **state)
{
    (void)state;
    strata_stack *stack = build(4096, 65536);
    for (CUdeviceptr off = 256; off < 4096; off += 256)
        assert_true(round_trip(stack, &(strata_request){.bytes = 65536}, AT + off, 69376) == AT + 4096);
    check_ok(strata_stack_destroy(stack));
}

static void several_blocks_live_with_views_of_their_own(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    strata_stack *stack = build(4096, 0);
    strata_resource *top = strata_stack_top(stack);
    strata_block blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        below.next = AT + i * 0x100000 + i * 256;
        check_ok(strata_resource_allocate(top, &(strata_request){.bytes = 1000 + i}, &blocks[i]));
        assert_true(blocks[i].address == AT + i * 0x100000 + (i ? 4096 : 0));
        assert_true(blocks[i].alignment == 4096);
    }
    for (size_t i = COUNT; i-- > 0;) {
        check_ok(strata_resource_deallocate(top, &blocks[i], NULL));
        assert_true(below.freed == AT + i * 0x100000 + i * 256 && below.freed_bytes == 1000 + i + 4096 - 256);
    }
    check_ok(strata_stack_destroy(stack));
}

static void a_request_that_asks_for_more_gets_it(void **state)
{
    (void)state;
    strata_stack *stack = build(4096, 65536);
    strata_request request = {.bytes = 100, .alignment = 1024}; /* below the threshold: its own alignment counts */
    assert_true(round_trip(stack, &request, AT + 256, 100 + 1024 - 256) == AT + 1024);
    request = (strata_request){.bytes = 65536, .alignment = 65536};
    assert_true(round_trip(stack, &request, AT + 256, 65536 + 65536 - 256) == AT + 65536);
    request.alignment = 512; /* less than the layer's */
    assert_true(round_trip(stack, &request, AT + 256, 69376) == AT + 4096);
    check_ok(strata_stack_destroy(stack));
}

static void an_alignment_that_is_no_power_of_two_is_refused(void **state)
{
    (void)state;
    static const uint64_t wrong[] = {3, 255, 768, UINT64_MAX};
    strata_resource *resource;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_status(strata_aligned_create(&(strata_aligned_options){.alignment = wrong[i]}, &resource),
                     STRATA_ERROR_INVALID_VALUE);
        assert_null(resource);
    }
    check_last_error(STRATA_ERROR_INVALID_VALUE, "is not a power of two");
    check_status(strata_aligned_create(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_aligned_create(&(strata_aligned_options){.size = 77}, &resource), STRATA_ERROR_INVALID_VALUE);
    strata_stack *stack;
    check_status(strata_stack_create("aligned(alignment=768), direct", 0, &stack), STRATA_ERROR_INVALID_VALUE);
    assert_null(stack);
}

static void a_request_that_has_no_room_for_its_alignment_is_refused(void **state)
{
    (void)state;
    strata_stack *stack = build((uint64_t)1 << 62, 0);
    strata_resource *top = strata_stack_top(stack);
    strata_block block = {.bytes = 1};
    strata_request request = {.bytes = SIZE_MAX - 1000};
    size_t bytes = 1;
    check_status(strata_resource_allocate(top, &request, &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    check_status(top->ops->charge(top, &request, &bytes), STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(bytes == 0 && below.allocations == 0);
    check_ok(strata_stack_destroy(stack));
}

static void what_the_layer_below_cannot_leaves_nothing(void **state)
{
    (void)state;
    strata_stack *stack;
    strata_block block;
    check_ok(strata_stack_create("aligned(alignment=4KiB), fault(every=1, status=out_of_budget), async", 0, &stack));
    strata_resource *top = strata_stack_top(stack);
    check_status(strata_resource_allocate(top, &(strata_request){.bytes = 100}, &block), STRATA_ERROR_OUT_OF_BUDGET);
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    check_ok(strata_stack_destroy(stack));
}

static void a_second_free_is_refused_in_the_users_words(void **state)
{
    (void)state;
    strata_stack *stack = build(4096, 0);
    strata_resource *top = strata_stack_top(stack);
    strata_block block, next;
    below.next = AT + 256;
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = 1234}, &block));
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_status(strata_resource_deallocate(top, &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    check_last_error(STRATA_ERROR_DOUBLE_FREE, "block 0x7001000, 1.21 KiB (1234 bytes)");
    below.next = AT + 0x100000 + 512; /* another offset, in the same entry */
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = 4321}, &next));
    assert_int_equal(next.id.slot, block.id.slot);
    check_status(strata_resource_deallocate(top, &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    check_last_error(STRATA_ERROR_DOUBLE_FREE, "block 0x7001000, 1.21 KiB (1234 bytes)");
    check_status(strata_resource_prepare_use(top, &block, NULL, STRATA_ACCESS_READ), STRATA_ERROR_USE_AFTER_FREE);
    check_ok(strata_resource_deallocate(top, &next, NULL));
    check_ok(strata_stack_destroy(stack));
}

/* A layer that answers with what it is asked. */
static strata_status echo(strata_resource *self, const strata_request *request, size_t *bytes)
{
    (void)self;
    *bytes = request->bytes;
    return STRATA_SUCCESS;
}

static strata_status echo_reusable(strata_resource *self, const strata_request *request, size_t *bytes,
                                   strata_block_id *of)
{
    *of = (strata_block_id){.slot = 7};
    return echo(self, request, bytes);
}

static void end_echo(strata_resource *self)
{
    (void)self;
}

static const strata_resource_ops echo_ops = {.size = sizeof(strata_resource_ops),
                                             .name = "echo",
                                             .charge = echo,
                                             .reusable = echo_reusable,
                                             .destroy = end_echo};

static void the_layer_below_is_asked_about_the_larger_request(void **state)
{
    (void)state;
    static strata_resource echoing;
    echoing = (strata_resource){.ops = &echo_ops};
    strata_resource *layers[3] = {NULL, &echoing, NULL};
    strata_stack *stack;
    check_ok(strata_aligned_create(&(strata_aligned_options){.alignment = 4096, .threshold = 1000}, &layers[0]));
    check_ok(strata_null_create(0, NULL, &layers[2]));
    check_ok(strata_stack_build(layers, 3, 0, &stack));
    strata_resource *top = strata_stack_top(stack);
    static const size_t asked[][2] = {{999, 999}, {1000, 1000 + 4096 - 256}};
    for (size_t i = 0; i < 2; i++) {
        size_t charge, reusable;
        strata_block_id of;
        check_ok(top->ops->charge(top, &(strata_request){.bytes = asked[i][0]}, &charge));
        check_ok(top->ops->reusable(top, &(strata_request){.bytes = asked[i][0]}, &reusable, &of));
        assert_true(charge == asked[i][1] && reusable == asked[i][1] && of.slot == 7);
    }
    check_ok(strata_stack_destroy(stack));
}

/* A layer that looks for a block before its allocation has returned, as another thread may. */
static strata_status peeked;

static strata_status allocate_and_peek(strata_resource *self, const strata_request *request, strata_block *out)
{
    strata_block found;
    strata_resource *top = strata_stack_top(self->stack);
    strata_status status = self->upstream->ops->allocate(self->upstream, request, out);
    peeked = status == STRATA_SUCCESS ? top->ops->find(top, out->address, &found) : status;
    return status;
}

static const strata_resource_ops peeking_ops = {
    .size = sizeof(strata_resource_ops), .name = "peeking", .allocate = allocate_and_peek, .destroy = end_echo};

static void a_block_is_not_found_before_it_has_the_users_view(void **state)
{
    (void)state;
    static strata_resource peeking;
    peeking = (strata_resource){.ops = &peeking_ops};
    strata_resource *layers[3] = {NULL, &peeking, NULL};
    strata_stack *stack;
    strata_block block, found;
    check_ok(strata_aligned_create(&(strata_aligned_options){.alignment = 4096}, &layers[0]));
    check_ok(strata_null_create(0, NULL, &layers[2]));
    check_ok(strata_stack_build(layers, 3, 0, &stack));
    strata_resource *top = strata_stack_top(stack);
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = 77}, &block));
    assert_int_equal(peeked, STRATA_ERROR_FOREIGN_POINTER);
    check_ok(top->ops->find(top, block.address, &found));
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_ok(strata_stack_destroy(stack));
}

/* ---- on the real owners ---- */

static void blocks_are_aligned_whole_and_found_by_the_aligned_part_alone(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t alignment = 512; alignment <= (1 << 20); alignment *= 4) {
        strata_request request = {.bytes = 5000, .alignment = alignment, .stream = stream};
        strata_block block, found, other = test_allocate(fixture, 256, stream); /* keeps addresses odd */
        check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &block));
        size_t shown = alignment > 4096 ? alignment : 4096;
        assert_true(block.address % shown == 0 && block.alignment == shown);
        assert_true(block.bytes == 5000 && block.requested == 5000);
        test_write(fixture, &block, 0x44, stream);
        const unsigned char *seen = test_read(fixture, &block, stream);
        test_synchronize(stream);
        check_bytes(seen, 0x44, 5000);
        fixture->seen_used = 0;
        check_ok(strata_runtime_find(fixture->runtime, block.address + 4999, &found));
        assert_memory_equal(&found, &block, sizeof found);
        check_status(strata_runtime_find(fixture->runtime, block.address + 5000, &found), STRATA_ERROR_FOREIGN_POINTER);
        assert_memory_equal(&found, &(strata_block){0}, sizeof found);
        test_free_on(fixture, &block, stream);
        test_free_on(fixture, &other, stream);
    }
    test_stream_close(fixture, stream);
}

/* One thread allocates and frees while another tries frees with identities that have gone. */
enum { ROUNDS = 300 };

typedef struct meddler {
    test_fixture *fixture;
    _Atomic bool over;
    pthread_mutex_t lock;
    strata_block stale; /* guarded by lock */
    unsigned wrong;     /* frees that were not refused */
} meddler;

static void *free_what_is_gone(void *data)
{
    meddler *self = data;
    test_make_current();
    while (!self->over) {
        pthread_mutex_lock(&self->lock);
        strata_block stale = self->stale;
        pthread_mutex_unlock(&self->lock);
        if (stale.id.generation)
            self->wrong +=
                strata_runtime_deallocate_on(self->fixture->runtime, &stale, NULL) != STRATA_ERROR_DOUBLE_FREE;
    }
    return NULL;
}

static void a_stale_free_meets_the_next_block_of_its_slot_and_does_nothing(test_fixture *fixture)
{
    meddler self = {.fixture = fixture};
    pthread_t thread;
    pthread_mutex_init(&self.lock, NULL);
    assert_int_equal(pthread_create(&thread, NULL, free_what_is_gone, &self), 0);
    bool good = true;
    for (size_t i = 0; i < ROUNDS && good; i++) {
        strata_block block;
        good = strata_runtime_allocate(fixture->runtime, 1000 + i * 100, NULL, &block) == STRATA_SUCCESS &&
               block.address % 4096 == 0 &&
               strata_runtime_deallocate_on(fixture->runtime, &block, NULL) == STRATA_SUCCESS;
        pthread_mutex_lock(&self.lock);
        self.stale = block;
        pthread_mutex_unlock(&self.lock);
    }
    self.over = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_mutex_destroy(&self.lock);
    assert_true(good);
    assert_int_equal(self.wrong, 0);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
}

static void a_layer_above_may_hold_its_blocks_back(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, 5000, NULL);
    test_write(fixture, &block, 0x11, NULL);
    test_free_on(fixture, &block, NULL);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_QUARANTINED);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_needs_no_alignment_passes_unchanged),
        cmocka_unit_test(alignments_up_to_256_bytes_are_what_there_is_anyway),
        cmocka_unit_test(below_the_threshold_a_request_passes_unchanged),
        cmocka_unit_test(an_address_that_is_aligned_already_is_taken_as_it_is),
        cmocka_unit_test(an_address_is_moved_up_and_the_one_from_below_goes_back),
        cmocka_unit_test(several_blocks_live_with_views_of_their_own),
        cmocka_unit_test(a_request_that_asks_for_more_gets_it),
        cmocka_unit_test(an_alignment_that_is_no_power_of_two_is_refused),
        cmocka_unit_test(a_request_that_has_no_room_for_its_alignment_is_refused),
        cmocka_unit_test(what_the_layer_below_cannot_leaves_nothing),
        cmocka_unit_test(a_second_free_is_refused_in_the_users_words),
        cmocka_unit_test(the_layer_below_is_asked_about_the_larger_request),
        cmocka_unit_test(a_block_is_not_found_before_it_has_the_users_view),
    };
    static const test_case cases[] = {
        TEST_CASE(blocks_are_aligned_whole_and_found_by_the_aligned_part_alone),
        TEST_CASE(a_stale_free_meets_the_next_block_of_its_slot_and_does_nothing),
    };
    static const char *const stacks[] = {"aligned(alignment=4KiB), async", "aligned(alignment=4KiB), direct"};
    static const test_case held_back[] = {TEST_CASE(a_layer_above_may_hold_its_blocks_back)};
    static const char *const under_guards[] = {
        "guard, aligned(alignment=4KiB), async",
        "aligned(alignment=4KiB), guard, direct",
        "guard, aligned(alignment=4KiB), guard, async",
        "guard, guard, aligned(alignment=4KiB), direct",
    };
    int failed = test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
    failed += test_run_on(stacks, 2, cases, sizeof cases / sizeof cases[0]);
    return failed + test_run_on(under_guards, sizeof under_guards / sizeof under_guards[0], held_back, 1);
}
