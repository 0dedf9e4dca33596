/* The statistics layer: what it counts, in which scopes, and what it reports. Most of it over null, where sizes are
 * what the test says; what is freed in stream order, and what fails, over layers that call the driver. */
#include "support/faults.h"
#include "support/statistics.h"

#include <jansson.h>

typedef struct model {
    int64_t current[2], peak[2], total[2]; /* bytes, blocks */
} model;

static void note(model *of, int64_t bytes, int64_t blocks)
{
    const int64_t by[2] = {bytes, blocks};
    for (int i = 0; i < 2; i++) {
        of->current[i] += by[i];
        of->peak[i] = of->current[i] > of->peak[i] ? of->current[i] : of->peak[i];
        of->total[i] += by[i] > 0 ? by[i] : 0;
    }
}

static void check_model(strata_statistics_counters got, const model *want)
{
    check_counter(got.bytes, want->current[0], want->peak[0], want->total[0]);
    check_counter(got.blocks, want->current[1], want->peak[1], want->total[1]);
}

/* Long enough to leave every reservation in both directions, and to forget what was large. */
static void on_one_thread_every_counter_is_exact_at_every_moment(void **state)
{
    (void)state;
    const strata_tag tags[] = {0, tag_a, tag_b};
    strata_block blocks[ROOM] = {0};
    model all = {0}, of[3] = {0};
    unsigned seed = 7;
    for (size_t i = 0, steps = test_effort(20000, 4000); i < steps; i++) {
        strata_block *block = &blocks[draw(&seed) % ROOM];
        if (block->id.generation) {
            size_t t = block->tag == tag_a ? 1 : block->tag == tag_b ? 2 : 0;
            release(block);
            note(&all, -(int64_t)block->bytes, -1);
            note(&of[t], -(int64_t)block->bytes, -1);
            *block = (strata_block){0};
        } else {
            size_t t = draw(&seed) % 3;
            size_t most = i % 4096 < 200 ? 64 * MIB : 16 * KIB;
            *block = allocate(1 + draw(&seed) % most, tags[t]);
            note(&all, (int64_t)block->bytes, 1);
            note(&of[t], (int64_t)block->bytes, 1);
        }
        if (i % 16)
            continue;
        check_model(read_all(layer, 0), &all);
        for (size_t t = 0; t < 3; t++)
            check_model(read_tag(layer, 0, tags[t]), &of[t]);
    }
    for (size_t i = 0; i < ROOM; i++)
        release(&blocks[i]);
    assert_true(read_all(layer, 0).bytes.current == 0 && read_all(layer, 0).blocks.current == 0);
    assert_true(read_all(layer, 0).requested == all.total[0]);
}

static void a_free_counts_what_its_allocation_had_whatever_the_copy_says(void **state)
{
    (void)state;
    strata_block block = allocate(1000, tag_a), copy = block;
    copy.tag = tag_b;
    release(&copy);
    check_counter(read_tag(layer, 0, tag_a).bytes, 0, 1000, 1000);
    check_counter(read_tag(layer, 0, tag_b).bytes, 0, 0, 0);
    block = allocate(1000, tag_a);
    copy = block;
    copy.bytes = copy.requested = 10;
    check_status(strata_resource_deallocate(top, &copy, NULL), STRATA_ERROR_SIZE_MISMATCH);
    check_counter(read_tag(layer, 0, tag_a).bytes, 1000, 1000, 2000);
    release(&block);
    check_status(strata_resource_deallocate(top, &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    check_counter(read_all(layer, 0).bytes, 0, 1000, 2000);
    assert_int_equal(value_of(stack, "statistics.free_failures"), 2);
    block = allocate(1, UINT32_MAX); /* a tag that was never interned */
    check_counter(read_tag(layer, 0, UINT32_MAX).blocks, 1, 1, 1);
    release(&block);
    check_counter(read_tag(layer, 0, 77777).blocks, 0, 0, 0);
}

static void more_tags_than_a_thread_first_has_room_for_are_all_counted(void **state)
{
    (void)state;
    enum { TAGS = 200 };
    strata_block blocks[TAGS];
    for (strata_tag i = 0; i < TAGS; i++)
        blocks[i] = allocate(100 + i, 1000 + 64 * i);
    for (strata_tag i = 0; i < TAGS; i++)
        check_counter(read_tag(layer, 0, 1000 + 64 * i).bytes, 100 + i, 100 + i, 100 + i);
    for (strata_tag i = 0; i < TAGS; i += 2)
        release(&blocks[i]);
    for (strata_tag i = 0; i < TAGS; i++)
        check_counter(read_tag(layer, 0, 1000 + 64 * i).blocks, i % 2, 1, 1);
    for (strata_tag i = 1; i < TAGS; i += 2)
        release(&blocks[i]);
    check_counter(read_all(layer, 0).blocks, 0, TAGS, TAGS);
}

static void when_a_thread_meets_its_second_tag_the_figures_of_all_tags_stay_exact(void **state)
{
    (void)state;
    strata_statistics_counters scope;
    const strata_block first = allocate(KIB, tag_a), second = allocate(KIB, tag_a);
    release(&second); /* the peak is in what the thread has reserved, and nowhere else yet */
    const strata_block other = allocate(100, tag_b);
    check_counter(read_all(layer, 0).bytes, KIB + 100, 2 * KIB, 2 * KIB + 100);
    check_counter(read_all(layer, 0).blocks, 2, 2, 3);
    check_counter(read_tag(layer, 0, tag_a).bytes, KIB, 2 * KIB, 2 * KIB);
    check_counter(read_tag(layer, 0, tag_b).bytes, 100, 100, 100);
    check_ok(strata_statistics_push(layer));
    const strata_block inside = allocate(KIB, tag_b);
    release(&inside);
    release(&first);
    check_ok(strata_statistics_pop(layer, &scope));
    check_counter(scope.bytes, -KIB, KIB, KIB);
    release(&other);
    check_counter(read_all(layer, 0).bytes, 0, 2 * KIB + 100, 3 * KIB + 100);
}

static void sizes_are_counted_in_powers_of_two(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 4, 5, 1024, 1025, (size_t)1 << 37, ((size_t)1 << 37) + 1};
    static const unsigned classes[] = {0, 1, 2, 2, 3, 10, 11, 37, 38};
    uint64_t counts[STRATA_STATISTICS_SIZES], expected[STRATA_STATISTICS_SIZES] = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        strata_block block = allocate(sizes[i], 0);
        release(&block);
        expected[classes[i]]++;
    }
    check_ok(strata_statistics_sizes(layer, counts));
    assert_memory_equal(counts, expected, sizeof counts);
}

/* ---- scopes ---- */

static void scopes_nest_and_the_outer_peak_has_what_happens_inside(void **state)
{
    (void)state;
    strata_statistics_counters popped;
    strata_block before = allocate(1000, tag_a);
    check_ok(strata_statistics_push(layer));
    check_counter(read_all(layer, 1).bytes, 0, 0, 0);
    strata_block outer = allocate(10, tag_a);
    check_ok(strata_statistics_push(layer));
    assert_int_equal(value_of(stack, "statistics.scopes"), 2);
    strata_block inner = allocate(500, tag_b);
    release(&inner);
    inner = allocate(200, tag_b);
    check_counter(read_all(layer, 2).bytes, 200, 500, 700);
    check_counter(read_all(layer, STRATA_STATISTICS_INNERMOST).bytes, 200, 500, 700);
    check_counter(read_all(layer, 1).bytes, 210, 510, 710);
    check_counter(read_all(layer, 0).bytes, 1210, 1510, 1710);
    check_counter(read_tag(layer, 2, tag_b).blocks, 1, 1, 2);
    check_counter(read_tag(layer, 1, tag_a).bytes, 10, 10, 10);
    check_counter(read_tag(layer, 2, tag_a).bytes, 0, 0, 0);
    check_ok(strata_statistics_pop(layer, &popped));
    check_counter(popped.bytes, 200, 500, 700);
    check_counter(popped.blocks, 1, 1, 2);
    assert_true(popped.requested == 700);
    release(&inner);
    check_counter(read_all(layer, 1).bytes, 10, 510, 710);
    release(&outer);
    release(&before);
    check_ok(strata_statistics_pop(layer, &popped));
    check_counter(popped.bytes, -1000, 510, 710);
    check_counter(popped.blocks, -1, 2, 3);
    check_counter(read_all(layer, 0).bytes, 0, 1510, 1710);
    check_counter(read_tag(layer, 0, tag_a).bytes, 0, 1010, 1010);
}

static void in_a_scope_counters_can_be_negative(void **state)
{
    (void)state;
    strata_block blocks[10];
    for (size_t i = 0; i < 10; i++)
        blocks[i] = allocate(10 * MIB, 0);
    check_ok(strata_statistics_push(layer));
    for (size_t i = 0; i < 10; i++)
        release(&blocks[i]);
    check_counter(read_all(layer, 1).bytes, -100 * (int64_t)MIB, 0, 0);
    check_counter(read_all(layer, 1).blocks, -10, 0, 0);
    blocks[0] = allocate(MIB, 0);
    check_counter(read_all(layer, 1).bytes, -99 * (int64_t)MIB, 0, MIB);
    release(&blocks[0]);
    check_ok(strata_statistics_pop(layer, NULL));
}

static void a_scope_that_is_not_open_is_neither_popped_nor_read(void **state)
{
    (void)state;
    strata_statistics_counters counters = {.requested = 1};
    const strata_statistics_counters nothing = {0};
    check_status(strata_statistics_pop(layer, &counters), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "without a push");
    assert_memory_equal(&counters, &nothing, sizeof nothing);
    check_status(strata_statistics_read(layer, 1, &counters), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "scope 1 is not open; 0 are open");
    for (int i = 0; i < 20; i++)
        check_ok(strata_statistics_push(layer));
    check_ok(strata_statistics_read(layer, 20, &counters));
    check_status(strata_statistics_read_tag(layer, 21, tag_a, &counters), STRATA_ERROR_INVALID_VALUE);
    strata_block block = allocate(5, tag_b); /* the tag's first block, in the twentieth scope */
    for (int i = 20; i > 0; i--) {
        check_counter(read_tag(layer, (uint32_t)i, tag_b).bytes, 5, 5, 5);
        check_ok(strata_statistics_pop(layer, NULL));
    }
    check_status(strata_statistics_pop(layer, NULL), STRATA_ERROR_INVALID_VALUE);
    release(&block);
}

static void a_reset_makes_every_peak_what_is_live(void **state)
{
    (void)state;
    strata_block kept = allocate(100, tag_a), block = allocate(1000, tag_a);
    check_ok(strata_statistics_push(layer));
    release(&block);
    block = allocate(5000, tag_b);
    release(&block);
    check_counter(read_all(layer, 0).bytes, 100, 5100, 6100);
    const uint64_t one = 1;
    check_ok(strata_control(stack, "statistics.reset_peaks", NULL, &one));
    check_counter(read_all(layer, 0).bytes, 100, 100, 6100);
    check_counter(read_all(layer, 1).bytes, -1000, -1000, 5000);
    check_counter(read_tag(layer, 0, tag_b).bytes, 0, 0, 5000);
    block = allocate(50, tag_a);
    check_ok(strata_statistics_pop(layer, NULL));
    check_counter(read_all(layer, 0).bytes, 150, 150, 6150);
    check_ok(strata_statistics_reset_peaks(layer));
    release(&block);
    check_counter(read_tag(layer, 0, tag_a).bytes, 100, 150, 1150);
    release(&kept);
}

/* ---- reports and values ---- */

typedef struct text {
    char bytes[32 * KIB];
    size_t used;
} text;

static void append(const char *piece, size_t length, void *data)
{
    text *to = data;
    assert_true(length < sizeof to->bytes - to->used);
    memcpy(to->bytes + to->used, piece, length);
    to->used += length;
    to->bytes[to->used] = '\0';
}

static json_int_t number_at(const json_t *object, const char *group, const char *name)
{
    const json_t *number = json_object_get(json_object_get(object, group), name);
    assert_true(json_is_integer(number));
    return json_integer_value(number);
}

static void a_report_of_the_stack_has_tags_sizes_failures_and_scopes_as_json(void **state)
{
    (void)state;
    static text report;
    report.used = 0;
    strata_block block = allocate(300, tag_a), other;
    check_status(strata_resource_allocate(top, &(strata_request){.bytes = (size_t)1 << 50}, &other),
                 STRATA_ERROR_OUT_OF_MEMORY);
    strata_statistics_scope *phase;
    check_ok(strata_statistics_scope_open(layer, NULL, "phase", &phase));
    check_ok(strata_statistics_push(layer));
    check_ok(strata_stats_print(stack, STRATA_FORMAT_JSON, append, &report));
    json_error_t error;
    json_t *parsed = json_loads(report.bytes, JSON_REJECT_DUPLICATES, &error);
    if (!parsed)
        fail_msg("line %d: %s", error.line, error.text);
    const json_t *mine = json_array_get(json_object_get(parsed, "layers"), 0);
    assert_string_equal(json_string_value(json_object_get(mine, "layer")), "statistics");
    assert_int_equal(json_integer_value(json_object_get(mine, "bytes.current")), 300);
    const json_t *tags = json_object_get(mine, "tags");
    assert_int_equal(json_array_size(tags), 1);
    const json_t *tag = json_array_get(tags, 0);
    assert_string_equal(json_string_value(json_object_get(tag, "tag")), "a");
    assert_int_equal(number_at(tag, "bytes", "peak"), 300);
    assert_int_equal(number_at(tag, "blocks", "total"), 1);
    const json_t *size = json_array_get(json_object_get(mine, "sizes"), 0);
    assert_int_equal(json_integer_value(json_object_get(size, "up_to")), 512);
    assert_int_equal(json_integer_value(json_object_get(size, "allocations")), 1);
    assert_int_equal(number_at(mine, "failed_allocations", "STRATA_ERROR_OUT_OF_MEMORY"), 1);
    assert_int_equal(number_at(json_array_get(json_object_get(mine, "open_scopes"), 0), "bytes", "current"), 0);
    assert_int_equal(json_array_size(json_object_get(mine, "scopes_by_thread")), 1);
    const json_t *entered = json_array_get(json_object_get(mine, "scopes_by_thread"), 0);
    assert_string_equal(json_string_value(json_object_get(entered, "name")), "phase");
    assert_int_equal(number_at(entered, "blocks", "peak"), 0);
    json_decref(parsed);
    report.used = 0;
    check_ok(strata_stats_print(stack, STRATA_FORMAT_TEXT, append, &report));
    assert_non_null(strstr(report.bytes, "bytes.current: 300\n"));
    assert_non_null(strstr(report.bytes, "tag: a\n"));
    check_ok(strata_statistics_pop(layer, NULL));
    check_ok(strata_statistics_scope_close(phase, NULL));
    release(&block);
}

static void values_are_read_by_their_names_and_only_switches_are_set(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t value;
    } expected[] = {
        {"bytes.current", 300},    {"bytes.peak", 1000},   {"bytes.total", 1300},
        {"blocks.current", 1},     {"blocks.peak", 1},     {"blocks.total", 2},
        {"requested.total", 1300}, {"retired.bytes", 0},   {"failures", 1},
        {"free_failures", 1},      {"scopes", 1},          {"stacks", 0},
        {"reset_peaks", 0},        {"graphs.captures", 0}, {"graphs.launches", 0},
        {"graphs.uploads", 0},     {"graphs.updates", 0},  {"graphs.failures", 0},
    };
    strata_block block = allocate(1000, tag_a), other;
    release(&block);
    check_status(strata_resource_deallocate(top, &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    check_status(strata_resource_allocate(top, &(strata_request){.bytes = (size_t)1 << 50}, &other),
                 STRATA_ERROR_OUT_OF_MEMORY);
    block = allocate(300, tag_a);
    check_ok(strata_statistics_push(layer));
    const uint64_t five = 5;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "statistics.%s", expected[i].name);
        if (value_of(stack, name) != expected[i].value)
            fail_msg("%s is %llu, not %llu", name, (unsigned long long)value_of(stack, name),
                     (unsigned long long)expected[i].value);
        check_status(strata_control(stack, name, NULL, &five), STRATA_ERROR_INVALID_VALUE);
    }
    assert_true(layer->ops->value_count == sizeof expected / sizeof expected[0]);
    assert_int_equal(strata_statistics_failures(layer, STRATA_ERROR_OUT_OF_MEMORY), 1);
    assert_int_equal(strata_statistics_failures(layer, STRATA_ERROR_OUT_OF_BUDGET), 0);
    assert_int_equal(strata_statistics_failures(layer, STRATA_SUCCESS), 1);
    check_ok(strata_statistics_pop(layer, NULL));
    release(&block);
}

static void two_layers_in_a_stack_count_each_by_itself(void **state)
{
    (void)state;
    assert_int_equal(end(NULL), 0);
    assert_int_equal(build_text("statistics, statistics(stacks=on), null"), 0);
    strata_resource *lower = strata_stack_layer(stack, "statistics", 1);
    assert_true(lower && lower != layer && !strata_stack_layer(stack, "statistics", 2));
    strata_block block = allocate(100, tag_a), below;
    check_ok(lower->ops->allocate(lower, &(strata_request){.bytes = 50, .tag = tag_b}, &below));
    assert_int_equal(value_of(stack, "statistics.bytes.current"), 100);
    assert_int_equal(value_of(stack, "statistics[1].bytes.current"), 150);
    check_ok(strata_statistics_push(lower));
    assert_int_equal(value_of(stack, "statistics.scopes"), 0);
    check_ok(strata_statistics_pop(lower, NULL));
    seen mine = {0};
    check_ok(strata_statistics_visit(layer, look, &mine));
    assert_true(mine.count == 1 && mine.bytes == 100 && !mine.wrong);
    check_ok(lower->ops->deallocate(lower, &below, NULL));
    release(&block);
    assert_int_equal(value_of(stack, "statistics[1].bytes.current"), 0);
    assert_int_equal(value_of(stack, "statistics[1].bytes.peak"), 150);
}

static void calls_refuse_what_is_no_statistics_layer(void **state)
{
    (void)state;
    strata_statistics_counters counters;
    uint64_t counts[STRATA_STATISTICS_SIZES];
    strata_resource *owner = strata_stack_layer(stack, "null", 0), *unbuilt;
    check_status(strata_statistics_read(NULL, 0, &counters), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_read(owner, 0, &counters), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "null is not a statistics layer");
    check_status(strata_statistics_read(layer, 0, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_push(owner), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_pop(owner, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_reset_peaks(owner), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_sizes(owner, counts), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_sizes(layer, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_visit(owner, look, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_visit(layer, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_stack_visit_blocks(NULL, count_blocks, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_stack_visit_blocks(stack, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_null(strata_stack_layer(NULL, "null", 0));
    assert_null(strata_stack_layer(stack, "nothing", 0));
    check_status(strata_statistics_create(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_create(&(strata_statistics_options){.leaks = 9}, &unbuilt),
                 STRATA_ERROR_INVALID_VALUE);
    assert_null(unbuilt);
    check_ok(strata_statistics_create(NULL, &unbuilt));
    check_status(strata_statistics_visit(unbuilt, look, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "belongs to no stack");
    check_ok(strata_statistics_read(unbuilt, 0, &counters));
    check_ok(strata_resource_destroy(unbuilt));
}

static strata_resource *layer_of(test_fixture *fixture)
{
    strata_resource *found = strata_stack_layer(strata_runtime_stack(fixture->runtime), "statistics", 0);
    assert_non_null(found);
    return found;
}

/* ---- with a driver ---- */

static strata_stack *stack_of(test_fixture *fixture)
{
    return strata_runtime_stack(fixture->runtime);
}

static strata_block tagged(test_fixture *fixture, size_t bytes, CUstream stream, strata_tag tag)
{
    strata_block block;
    strata_request request = {.bytes = bytes, .stream = stream, .tag = tag};
    check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &block));
    return block;
}

static void count_live(const strata_block *block, uint32_t call_stack, void *data)
{
    (void)call_stack;
    ((seen *)data)->count++;
    ((seen *)data)->bytes += block->bytes;
    ((seen *)data)->of_tag_a += block->tag == tag_a;
}

static void live_bytes_are_those_of_the_owner(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_resource *mine = layer_of(fixture);
    strata_block a = tagged(fixture, 1000, stream, tag_a), b = tagged(fixture, 70000, stream, tag_b);
    strata_usage usage = test_usage(fixture);
    strata_statistics_counters counters = read_all(mine, 0);
    assert_true((size_t)counters.bytes.current == usage.live_bytes);
    assert_true((size_t)counters.blocks.current == usage.live_blocks);
    assert_true(counters.requested == 71000);
    assert_true((size_t)read_tag(mine, 0, tag_b).bytes.current == b.bytes);
    seen all = {0};
    check_ok(strata_statistics_visit(mine, count_live, &all));
    assert_true(all.count == 2 && all.bytes == usage.live_bytes && all.of_tag_a == 1);
    test_write(fixture, &a, 0x21, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &a));
    check_ok(strata_runtime_deallocate(fixture->runtime, &b));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(read_all(mine, 0).bytes.current == 0);
    assert_int_equal(value_of(stack_of(fixture), "statistics.retired.bytes"), 0);
    test_stream_close(fixture, stream);
}

static void freed_bytes_are_retired_until_they_are_complete(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, 8192, stream), second = test_allocate(fixture, 4096, stream);
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    assert_true(value_of(stack_of(fixture), "statistics.retired.bytes") == test_usage(fixture).retired_bytes);
    assert_int_equal(value_of(stack_of(fixture), "statistics.retired.bytes"), 8192);
    assert_int_equal(value_of(stack_of(fixture), "statistics.bytes.current"), 4096);
    test_stall_end(stall);
    check_ok(strata_runtime_deallocate(fixture->runtime, &second));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(value_of(stack_of(fixture), "statistics.retired.bytes"), 0);
    assert_int_equal(test_usage(fixture).retired_bytes, 0);
    test_stream_close(fixture, stream);
    test_stream_close(fixture, other);
}

static void what_the_driver_refuses_is_counted_as_a_failure_alone(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_resource *mine = layer_of(fixture);
    strata_block block;
    test_fault_begin(TEST_FAULT_ALLOCATE, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    strata_status status = strata_runtime_allocate(fixture->runtime, 4096, stream, &block);
    test_fault_end();
    assert_int_equal(status, STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(read_all(mine, 0).bytes.total == 0);
    assert_int_equal(strata_statistics_failures(mine, STRATA_ERROR_OUT_OF_MEMORY), 1);
    block = test_allocate(fixture, 4096, stream);
    test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
    status = strata_runtime_deallocate(fixture->runtime, &block);
    assert_int_equal(test_fault_end(), 1);
    assert_int_equal(status, STRATA_ERROR_DRIVER);
    assert_true(read_all(mine, 0).bytes.current == 4096);
    assert_int_equal(value_of(stack_of(fixture), "statistics.free_failures"), 1);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    assert_true(read_all(mine, 0).bytes.current == 0);
    test_stream_close(fixture, stream);
}

int main(void)
{
    test_open_driver();
    if (!make_tags())
        return 1;
    static const test_case everywhere[] = {
        TEST_CASE(live_bytes_are_those_of_the_owner),
        TEST_CASE(what_the_driver_refuses_is_counted_as_a_failure_alone),
    };
    static const test_case stream_ordered[] = {TEST_CASE(freed_bytes_are_retired_until_they_are_complete)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(on_one_thread_every_counter_is_exact_at_every_moment, build, end),
        cmocka_unit_test_setup_teardown(a_free_counts_what_its_allocation_had_whatever_the_copy_says, build, end),
        cmocka_unit_test_setup_teardown(more_tags_than_a_thread_first_has_room_for_are_all_counted, build, end),
        cmocka_unit_test_setup_teardown(when_a_thread_meets_its_second_tag_the_figures_of_all_tags_stay_exact, build,
                                        end),
        cmocka_unit_test_setup_teardown(sizes_are_counted_in_powers_of_two, build, end),
        cmocka_unit_test_setup_teardown(scopes_nest_and_the_outer_peak_has_what_happens_inside, build, end),
        cmocka_unit_test_setup_teardown(in_a_scope_counters_can_be_negative, build, end),
        cmocka_unit_test_setup_teardown(a_scope_that_is_not_open_is_neither_popped_nor_read, build, end),
        cmocka_unit_test_setup_teardown(a_reset_makes_every_peak_what_is_live, build, end),
        cmocka_unit_test_setup_teardown(a_report_of_the_stack_has_tags_sizes_failures_and_scopes_as_json, build, end),
        cmocka_unit_test_setup_teardown(values_are_read_by_their_names_and_only_switches_are_set, build, end),
        cmocka_unit_test_setup_teardown(two_layers_in_a_stack_count_each_by_itself, build, end),
        cmocka_unit_test_setup_teardown(calls_refuse_what_is_no_statistics_layer, build, end),
    };
    static const char *const stacks[] = {"statistics, async", "statistics, direct"};
    int failed = test_run_on(stacks, 2, everywhere, sizeof everywhere / sizeof everywhere[0]);
    failed += test_run_on(stacks, 1, stream_ordered, 1);
    return failed + (test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL));
}
