/* Named values of a stack: what a name means, what is refused and how, setting from texts, and the report of all. */
#include "core/base/host_memory.h"
#include "core/blocks/blocks.h"
#include "support/report.h"

#include <strata/control.h>

/* ---- a layer with values of every type ---- */

enum { COUNT, BYTES, DURATION, SWITCH, FIXED, UNREADABLE, VALUES };

typedef struct knobs {
    strata_resource resource;
    uint64_t values[VALUES];
    unsigned sets;
    bool in_use;
} knobs;

static strata_status get_knob(strata_resource *self, size_t which, uint64_t *value)
{
    if (which == UNREADABLE)
        return strata_fail(STRATA_ERROR_NOT_READY, "this one cannot be read now");
    *value = ((knobs *)self)->values[which];
    return STRATA_SUCCESS;
}

static strata_status set_knob(strata_resource *self, size_t which, uint64_t value)
{
    if (which == COUNT && value > 1000)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "knobs.level: at most 1000");
    ((knobs *)self)->sets++;
    ((knobs *)self)->values[which] = value;
    return STRATA_SUCCESS;
}

static void describe_knobs(strata_resource *self, strata_emitter *to)
{
    (void)self;
    strata_emit_list_begin(to, "more");
    strata_emit_text(to, NULL, "a \"quoted\" word");
    strata_emit_list_end(to);
    for (int i = 0; i < 4; i++)
        strata_emit_object_end(to); /* closes nothing: the report is whole all the same */
    strata_emit_object_begin(to, "left open");
}

static void end_knobs(strata_resource *self)
{
    ((knobs *)self)->in_use = false;
}

static const strata_value described[VALUES] = {
    [COUNT] = {"level", STRATA_VALUE_COUNT, true, "a number"},
    [BYTES] = {"peak.bytes", STRATA_VALUE_BYTES, true, "a size"},
    [DURATION] = {"period", STRATA_VALUE_DURATION, true, "a duration"},
    [SWITCH] = {"on", STRATA_VALUE_SWITCH, true, "a switch"},
    [FIXED] = {"fixed", STRATA_VALUE_COUNT, false, "only read"},
    [UNREADABLE] = {"unreadable", STRATA_VALUE_COUNT, false, "not read"},
};

static const strata_resource_ops knobs_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "knobs",
    .destroy = end_knobs,
    .values = described,
    .value_count = VALUES,
    .get_value = get_knob,
    .set_value = set_knob,
    .describe = describe_knobs,
};

static knobs layers[2];

static strata_status make_knobs(int device, const void *options, strata_resource **out)
{
    (void)device, (void)options;
    knobs *self = layers[0].in_use ? &layers[1] : &layers[0];
    *self = (knobs){.resource.ops = &knobs_ops, .in_use = true};
    for (size_t i = 0; i < VALUES; i++)
        self->values[i] = 10 * (size_t)(self - layers) + i;
    self->values[SWITCH] = 1;
    *out = &self->resource;
    return STRATA_SUCCESS;
}

static const strata_layer knobs_layer = {
    .size = sizeof(strata_layer), .name = "knobs", .help = "has values", .create = make_knobs};

static strata_stack *stack;

static int set_up(void **state)
{
    (void)state;
    return strata_stack_create("knobs, aligned, knobs, null", 0, &stack) == STRATA_SUCCESS ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return strata_stack_destroy(stack) == STRATA_SUCCESS ? 0 : -1;
}

static uint64_t value(const char *name)
{
    uint64_t got = 4711;
    check_ok(strata_control(stack, name, &got, NULL));
    return got;
}

/* ---- names ---- */

static void a_name_means_the_first_layer_of_it_and_an_index_one_further_in(void **state)
{
    (void)state;
    assert_true(value("knobs.level") == COUNT);
    assert_true(value("knobs[0].level") == COUNT);
    assert_true(value("knobs[1].level") == 10 + COUNT);
    assert_true(value("knobs[1].peak.bytes") == 10 + BYTES);
    assert_true(value("knobs.fixed") == FIXED);
}

static void names_that_mean_nothing_are_refused_with_what_there_is(void **state)
{
    (void)state;
    static const struct {
        const char *name, *words;
    } wrong[] = {
        {"", "unknown value \"\""},
        {"knobs", "with a layer of knobs, aligned, knobs, null"},
        {"knob.level", "unknown value"},
        {"knobs[2].level", "unknown value \"knobs[2].level\""},
        {"knobs[99999999999999999999999].level", "unknown value"},
        {"knobs[].level", "unknown value"},
        {"knobs[1.level", "unknown value"},
        {"knobs[1]level", "unknown value"},
        {"knobs[-1].level", "unknown value"},
        {".level", "unknown value"},
        {"knobs.", "knobs: unknown value \"\"; expected level, peak.bytes, period, on, fixed"},
        {"knobs.peak", "knobs: unknown value \"peak\""},
        {"knobs.level ", "knobs: unknown value \"level \""},
        {"aligned.level", "aligned: unknown value \"level\"; expected none, as it has no values"},
        {"host", "or a value of the process such as \"host.bytes\""},
        {"host.level", "host: unknown value \"level\"; expected bytes, resident"},
        {"host[1].bytes", "unknown value \"host[1].bytes\""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint64_t got = 1, set = 5;
        check_status(strata_control(stack, wrong[i].name, &got, NULL), STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE, wrong[i].words);
        assert_true(got == 0);
        check_status(strata_control(stack, wrong[i].name, NULL, &set), STRATA_ERROR_INVALID_VALUE);
        check_status(strata_control_set_text(stack, wrong[i].name, "5"), STRATA_ERROR_INVALID_VALUE);
    }
    assert_int_equal(layers[0].sets + layers[1].sets, 0);
}

static void calls_without_a_stack_or_a_name_are_refused(void **state)
{
    (void)state;
    uint64_t got = 1;
    check_status(strata_control(NULL, "knobs.level", &got, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_true(got == 0);
    check_status(strata_control(stack, NULL, &got, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_control_set_text(stack, "knobs.level", NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_control_set_text(NULL, "knobs.level", "1"), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_stats_print(NULL, STRATA_FORMAT_TEXT, test_report_write, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_stats_print(stack, STRATA_FORMAT_TEXT, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_stats_print(stack, (strata_format)2, test_report_write, NULL), STRATA_ERROR_INVALID_VALUE);
    strata_control_visit(NULL, NULL, NULL);
}

/* ---- the process's values ---- */

static void host_memory_is_known_to_every_stack(void **state)
{
    (void)state;
    strata_block blocks[200];
    strata_resource *top = strata_stack_top(stack);
    uint64_t before = value("host.bytes"), got = 1;
    assert_true(before > 200 * 96 && value("host[0].bytes") == before);
    for (size_t i = 0; i < 200; i++)
        check_ok(strata_resource_allocate(top, &(strata_request){.bytes = 100}, &blocks[i]));
    uint64_t with_blocks = value("host.bytes");
    assert_true(with_blocks >= before + STRATA_ENTRY_CHUNK * 96); /* the first chunk of entries */
    for (size_t i = 0; i < 200; i++)
        check_ok(strata_resource_deallocate(top, &blocks[i], NULL));
    assert_true(value("host.bytes") <= with_blocks);
    if (strata_host_resident(&got)) {
        assert_true(value("host.resident") >= 200 * 96);
    } else {
        check_status(strata_control(stack, "host.resident", &got, NULL), STRATA_ERROR_UNSUPPORTED);
        check_last_error(STRATA_ERROR_UNSUPPORTED, "in the C library's heap");
        assert_true(got == 0);
    }
}

static void the_processs_values_are_only_read(void **state)
{
    (void)state;
    uint64_t set = 5;
    check_status(strata_control(stack, "host.bytes", NULL, &set), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "host.bytes is read-only");
    check_status(strata_control_set_text(stack, "host.bytes", "5"), STRATA_ERROR_INVALID_VALUE);
}

static void a_layer_called_host_is_the_one_that_is_meant(void **state)
{
    (void)state;
    strata_resource_ops ops = knobs_ops;
    strata_resource *owner;
    strata_stack *other;
    uint64_t got;
    ops.name = "host";
    layers[1] = (knobs){.resource.ops = &ops, .values[COUNT] = 77, .in_use = true};
    check_ok(strata_null_create(0, NULL, &owner));
    check_ok(strata_stack_build((strata_resource *[]){&layers[1].resource, owner}, 2, 0, &other));
    check_ok(strata_control(other, "host.level", &got, NULL));
    assert_true(got == 77);
    check_status(strata_control(other, "host.bytes", &got, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_stack_destroy(other));
}

/* ---- setting ---- */

static void the_old_value_is_read_before_the_new_one_is_set(void **state)
{
    (void)state;
    uint64_t old = 77, set = 500;
    check_ok(strata_control(stack, "knobs[1].level", &old, &set));
    assert_true(old == 10 + COUNT && value("knobs[1].level") == 500 && value("knobs.level") == COUNT);
    check_ok(strata_control(stack, "knobs[1].level", NULL, NULL)); /* only asks whether there is one */
    assert_int_equal(layers[1].sets, 1);
}

static void what_cannot_be_set_is_refused_and_nothing_changes(void **state)
{
    (void)state;
    uint64_t old = 77, set = 1001;
    check_status(strata_control(stack, "knobs.level", &old, &set), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "at most 1000");
    set = 2;
    check_status(strata_control(stack, "knobs.on", NULL, &set), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "0 or 1, not 2");
    check_status(strata_control(stack, "knobs.fixed", NULL, &set), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_control_set_text(stack, "knobs.fixed", "2"), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_control(stack, "knobs.unreadable", &old, NULL), STRATA_ERROR_NOT_READY);
    assert_true(old == 0);
    assert_int_equal(layers[0].sets, 0);
    assert_true(value("knobs.level") == COUNT && value("knobs.on") == 1 && value("knobs.fixed") == FIXED);
}

static void each_type_is_set_from_a_text_as_in_a_stack_text(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        uint64_t value;
    } good[] = {
        {"knobs.level", "17", 17},
        {"knobs.level", "0", 0},
        {"knobs.peak.bytes", "8GiB", 8ull << 30},
        {"knobs.peak.bytes", "1.5 kb", 1500},
        {"knobs.peak.bytes", "4096", 4096},
        {"knobs.period", "20ms", 20000000},
        {"knobs.period", "5us", 5000},
        {"knobs.period", "1s", 1000000000},
        {"knobs.on", "off", 0},
        {"knobs.on", "ON", 1},
        {"knobs.on", "no", 0},
        {"knobs.on", "true", 1},
        {"knobs.on", "0", 0},
        {"knobs.on", "1", 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        check_ok(strata_control_set_text(stack, good[i].name, good[i].text));
        assert_true(value(good[i].name) == good[i].value);
    }
}

static void a_text_that_is_no_such_value_is_refused_with_what_was_expected(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *words;
    } bad[] = {
        {"knobs.level", "", "expected a whole number"},
        {"knobs.level", "-1", "expected a whole number"},
        {"knobs.level", "1x", "expected a whole number"},
        {"knobs.level", " 1", "expected a whole number"},
        {"knobs.level", "99999999999999999999", "expected a whole number"},
        {"knobs.peak.bytes", "8GX", "knobs.peak.bytes: invalid value \"8GX\"; expected a size such as 8GiB"},
        {"knobs.period", "soon", "expected a duration such as 20ms"},
        {"knobs.on", "perhaps", "expected on or off"},
        {"knobs.on", "2", "expected on or off"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_status(strata_control_set_text(stack, bad[i].name, bad[i].text), STRATA_ERROR_SYNTAX);
        check_last_error(STRATA_ERROR_SYNTAX, bad[i].words);
    }
    check_status(strata_control_set_text(stack, "knobs.level", "1001"), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(layers[0].sets, 0);
}

/* ---- all of them ---- */

typedef struct visited {
    size_t count;
    char names[2 * VALUES + 2][64];
    uint64_t values[2 * VALUES + 2];
} visited;

static void note(const char *name, const strata_value *what, uint64_t got, void *data)
{
    visited *all = data;
    assert_non_null(what->help);
    snprintf(all->names[all->count], sizeof all->names[0], "%s", name);
    all->values[all->count++] = got;
}

static void a_visit_sees_every_readable_value_by_a_name_that_reads_it(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "knobs.level",    "knobs.peak.bytes",    "knobs.period",    "knobs.on",    "knobs.fixed",
        "knobs[1].level", "knobs[1].peak.bytes", "knobs[1].period", "knobs[1].on", "knobs[1].fixed",
    };
    visited all = {0};
    strata_error before = *strata_last_error();
    strata_control_visit(stack, note, &all);
    assert_memory_equal(strata_last_error(), &before, sizeof before); /* the unreadable one is no failure */
    assert_int_equal(all.count, sizeof expected / sizeof expected[0]);
    for (size_t i = 0; i < all.count; i++) {
        assert_string_equal(all.names[i], expected[i]);
        assert_true(value(all.names[i]) == all.values[i]);
    }
}

static void the_report_in_json_has_every_layer_with_its_values(void **state)
{
    (void)state;
    static test_report report;
    strata_block block;
    report.length = 0;
    check_ok(strata_resource_allocate(strata_stack_top(stack), &(strata_request){.bytes = 5000}, &block));
    check_ok(strata_stats_print(stack, STRATA_FORMAT_JSON, test_report_write, &report));
    check_ok(strata_resource_deallocate(strata_stack_top(stack), &block, NULL));
    json_t *root = test_report_parse(&report);
    assert_string_equal(json_string_value(json_object_get(root, "stack")), "knobs, aligned, knobs, null");
    assert_true(json_integer_value(json_object_get(root, "device")) == 0);
    json_t *memory = json_object_get(root, "memory");
    assert_true(json_integer_value(json_object_get(memory, "live_bytes")) == 5000);
    assert_true(json_integer_value(json_object_get(memory, "live_blocks")) == 1);
    assert_true(json_is_integer(json_object_get(memory, "reserved_free")));
    assert_null(json_object_get(memory, "limit"));
    assert_true(json_integer_value(json_object_get(json_object_get(root, "host"), "bytes")) > STRATA_ENTRY_CHUNK * 96);
    json_t *list = json_object_get(root, "layers");
    static const char *const names[] = {"knobs", "aligned", "knobs", "null"};
    assert_int_equal(json_array_size(list), 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(list, i), "layer")), names[i]);
    json_t *second = json_array_get(list, 2);
    assert_true(json_integer_value(json_object_get(second, "level")) == 10 + COUNT);
    assert_true(json_integer_value(json_object_get(second, "peak.bytes")) == 10 + BYTES);
    assert_true(json_is_true(json_object_get(second, "on")));
    assert_null(json_object_get(second, "unreadable"));
    assert_string_equal(json_string_value(json_array_get(json_object_get(second, "more"), 0)), "a \"quoted\" word");
    assert_int_equal(json_object_size(json_array_get(list, 1)), 1); /* aligned has its name alone */
    json_decref(root);
}

static void the_report_in_text_has_a_line_for_each(void **state)
{
    (void)state;
    static test_report report;
    report.length = 0;
    check_ok(strata_stats_print(stack, STRATA_FORMAT_TEXT, test_report_write, &report));
    static const char *const lines[] = {
        "stack: knobs, aligned, knobs, null\n",
        "memory:\n",
        "  live_bytes: 0\n",
        "\nhost:\n  bytes: ",
        "layers:\n",
        "  - knobs:\n    level: 0\n",
        "  - knobs:\n    level: 10\n    peak.bytes: 11\n    period: 12\n    on: yes\n",
        "      - a \"quoted\" word\n",
        "  - null:\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!strstr(report.text, lines[i]))
            fail_msg("missing: %s\nin\n%s", lines[i], report.text);
}

/* ---- layers that describe themselves wrongly ---- */

static void values_that_cannot_be_read_or_set_keep_a_stack_from_being_built(void **state)
{
    (void)state;
    static const strata_value nameless = {NULL, STRATA_VALUE_COUNT, false, "none"};
    static const strata_value writable = {"x", STRATA_VALUE_COUNT, true, "none"};
    const strata_resource_ops wrong[] = {
        {.values = NULL, .value_count = 1, .get_value = get_knob},
        {.values = &writable, .value_count = 1, .set_value = set_knob},
        {.values = &writable, .value_count = 1, .get_value = get_knob},
        {.values = &nameless, .value_count = 1, .get_value = get_knob},
    };
    strata_resource *owner;
    check_ok(strata_null_create(0, NULL, &owner));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        strata_resource_ops ops = wrong[i];
        strata_stack *none;
        ops.size = sizeof ops;
        ops.name = "wrong";
        ops.destroy = end_knobs;
        strata_resource layer = {.ops = &ops}, *both[] = {&layer, owner};
        check_status(strata_stack_build(both, 2, 0, &none), STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE, "has values but no functions that read and set them");
        assert_null(none);
    }
    check_ok(strata_resource_destroy(owner));
}

int main(void)
{
    test_open_driver();
    if (strata_layer_register(&knobs_layer) != STRATA_SUCCESS)
        return 1;
#define ON_A_STACK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ON_A_STACK(a_name_means_the_first_layer_of_it_and_an_index_one_further_in),
        ON_A_STACK(names_that_mean_nothing_are_refused_with_what_there_is),
        ON_A_STACK(calls_without_a_stack_or_a_name_are_refused),
        ON_A_STACK(host_memory_is_known_to_every_stack),
        ON_A_STACK(the_processs_values_are_only_read),
        cmocka_unit_test(a_layer_called_host_is_the_one_that_is_meant),
        ON_A_STACK(the_old_value_is_read_before_the_new_one_is_set),
        ON_A_STACK(what_cannot_be_set_is_refused_and_nothing_changes),
        ON_A_STACK(each_type_is_set_from_a_text_as_in_a_stack_text),
        ON_A_STACK(a_text_that_is_no_such_value_is_refused_with_what_was_expected),
        ON_A_STACK(a_visit_sees_every_readable_value_by_a_name_that_reads_it),
        ON_A_STACK(the_report_in_json_has_every_layer_with_its_values),
        ON_A_STACK(the_report_in_text_has_a_line_for_each),
        cmocka_unit_test(values_that_cannot_be_read_or_set_keep_a_stack_from_being_built),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
