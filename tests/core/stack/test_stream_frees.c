/* Freed memory that waits for streams, by stream. */
#include "support/fixture.h"
#include "support/report.h"
#include "support/sweep.h"

enum { MOST = 8, LARGE = 8 << 20 }; /* not of thread caches */

static strata_stream_frees found[MOST];
static size_t count;

static void keep(const strata_stream_frees *frees, void *unused)
{
    (void)unused;
    assert_true(count < MOST);
    found[count++] = *frees;
}

static const strata_stream_frees *look_for(test_fixture *fixture, CUstream stream)
{
    count = 0;
    check_ok(strata_stack_visit_frees(strata_runtime_stack(fixture->runtime), keep, NULL));
    for (size_t i = 0; i < count; i++)
        if (found[i].known && found[i].stream == stream)
            return &found[i];
    return NULL;
}

static uint64_t pending(test_fixture *fixture, uint32_t stream_id, const char *value)
{
    char name[64] = "pending.";
    uint64_t read;
    if (stream_id)
        snprintf(name, sizeof name, "pending[%u].", stream_id);
    snprintf(name + strlen(name), sizeof name - strlen(name), "%s", value);
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, &read, NULL));
    return read;
}

static void check_report(test_fixture *fixture, CUstream stream)
{
    static test_report report;
    char handle[32];
    size_t seen = 0;
    report.length = 0;
    check_ok(
        strata_stats_print(strata_runtime_stack(fixture->runtime), STRATA_FORMAT_JSON, test_report_write, &report));
    json_t *root = test_report_parse(&report);
    const json_t *frees = json_object_get(root, "pending_frees");
    snprintf(handle, sizeof handle, "0x%llx", (unsigned long long)(uintptr_t)stream);
    for (size_t i = 0; i < json_array_size(frees); i++) {
        const json_t *one = json_array_get(frees, i);
        if (strcmp(json_string_value(json_object_get(one, "handle")), handle) != 0)
            continue;
        assert_true(json_integer_value(json_object_get(one, "bytes")) >= LARGE);
        seen++;
    }
    json_decref(root);
    assert_int_equal(seen, 1);
}

static void freed_memory_is_told_by_the_stream_that_it_waits_for(test_fixture *fixture)
{
    enum { EACH = 2 };
    CUstream streams[2] = {test_stream(fixture, TEST_STREAM_POOL), test_stream(fixture, TEST_STREAM_REGISTERED)};
    strata_block blocks[2 * EACH];
    for (size_t i = 0; i < 2 * EACH; i++)
        blocks[i] = test_allocate(fixture, LARGE, streams[i % 2]);
    assert_null(look_for(fixture, streams[0]));
    test_stall *stalls[2] = {test_stall_begin(streams[0]), test_stall_begin(streams[1])};
    for (size_t i = 0; i < 2 * EACH; i++) {
        test_write(fixture, &blocks[i], 1, streams[i % 2]);
        check_ok(strata_runtime_deallocate_on(fixture->runtime, &blocks[i], streams[i % 2]));
    }
    const uint64_t least = strstr(fixture->stack, "pool") ? 1 : EACH; /* a thread keeps the last one of a stream */
    for (size_t i = 0; i < 2; i++) {
        const strata_stream_frees *frees = look_for(fixture, streams[i]);
        assert_non_null(frees);
        assert_in_range(frees->frees, least, EACH);
        assert_true(frees->bytes >= least * LARGE);
        assert_true(frees->stream_id != 0);
        assert_int_equal(pending(fixture, frees->stream_id, "streams"), 1);
        assert_int_equal(pending(fixture, frees->stream_id, "frees"), frees->frees);
        assert_int_equal(pending(fixture, frees->stream_id, "bytes"), frees->bytes);
    }
    assert_int_equal(pending(fixture, 0, "streams"), 2);
    assert_true(pending(fixture, 0, "bytes") >= 2 * least * LARGE);
    check_report(fixture, streams[1]);
    for (size_t i = 0; i < 2; i++)
        test_stall_release(stalls[i]);
    for (size_t i = 0; i < 2; i++)
        test_stall_end(stalls[i]);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    for (size_t i = 0; i < 2; i++)
        assert_null(look_for(fixture, streams[i]));
    assert_int_equal(pending(fixture, 0, "frees"), 0);
    assert_int_equal(pending(fixture, UINT32_MAX, "frees"), 0);
}

static void arguments_are_checked(test_fixture *fixture)
{
    uint64_t value;
    check_status(strata_control(strata_runtime_stack(fixture->runtime), "pending[4294967297].frees", &value, NULL),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_control(strata_runtime_stack(fixture->runtime), "host[1].bytes", &value, NULL),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_control(strata_runtime_stack(fixture->runtime), "pending.nothing", &value, NULL),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_stack_visit_frees(NULL, keep, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_stack_visit_frees(strata_runtime_stack(fixture->runtime), NULL, NULL),
                 STRATA_ERROR_INVALID_VALUE);
}

int main(void)
{
    static const char *const stacks[] = {"async", "pool", "budget(limit=4GiB), logging(format=memory), pool",
                                         "aligned, async", "binning(max=8MiB), async"};
    static const test_case cases[] = {TEST_CASE(freed_memory_is_told_by_the_stream_that_it_waits_for),
                                      TEST_CASE(arguments_are_checked)};
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
