/* Reports of the simulated driver's checker about memory of a stack: "allocated:" is the block's own allocation,
 * whichever layer hands the block out. */
#include <stdio.h>
#include <string.h>

#include "support/fixture.h"

enum { BYTES = 5000 };

static const char *const stacks[] = {"pool",
                                     "async",
                                     "direct",
                                     "binning, pool",
                                     "fixed(bytes=64KiB), pool",
                                     "aligned, pool",
                                     "statistics, budget, pool",
                                     "guard, pool",
                                     "pool, direct"};

/* Not inlined, so that they are in the call stack. */
__attribute__((noinline)) void the_first_allocation(test_fixture *fixture, CUstream stream, strata_block *block);
__attribute__((noinline)) void the_next_allocation(test_fixture *fixture, CUstream stream, strata_block *block);

void the_first_allocation(test_fixture *fixture, CUstream stream, strata_block *block)
{
    check_ok(strata_runtime_allocate(fixture->runtime, BYTES, stream, block));
}

void the_next_allocation(test_fixture *fixture, CUstream stream, strata_block *block)
{
    check_ok(strata_runtime_allocate(fixture->runtime, BYTES, stream, block));
}

/* Two fills that nothing orders. Returns the text of the report, valid until the next call. */
static const char *report_of_a_race(CUdeviceptr address, CUstream a, CUstream b)
{
    static char text[1 << 16];
    const test_sim *control = test_sim_control();
    strata_sim_report report;
    check_cu(test_cu()->CtxSynchronize());
    check_cu(control->clear_reports());
    test_fill(address, 1, 64, a);
    test_fill(address, 2, 64, b);
    check_cu(test_cu()->CtxSynchronize());
    check_cu(control->get_report(0, &report));
    snprintf(text, sizeof text, "%s", report.text);
    check_cu(control->clear_reports());
    return text;
}

static const char *allocated_part(const char *text)
{
    const char *part = strstr(text, "  allocated:");
    assert_non_null(part);
    return part;
}

static void assert_allocated_by(const char *text, const char *right, const char *wrong)
{
    const char *part = allocated_part(text);
    if (!strstr(part, right) || strstr(part, wrong))
        fail_msg("not allocated by %s, or by %s:\n%s", right, wrong, text);
}

static void a_report_names_the_allocation_of_the_block_itself(test_fixture *fixture)
{
    test_needs_simulated_driver("its checker makes the reports");
    CUstream a = test_stream(fixture, TEST_STREAM_UNKNOWN), b = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block, other;
    check_cu(test_sim_control()->set_check(STRATA_SIM_CHECK_ON));
    the_first_allocation(fixture, a, &block);
    the_next_allocation(fixture, a, &other);
    assert_allocated_by(report_of_a_race(block.address, a, b), "the_first_allocation", "the_next_allocation");
    assert_allocated_by(report_of_a_race(other.address, a, b), "the_next_allocation", "the_first_allocation");
    test_free_on(fixture, &other, a);
    test_free_on(fixture, &block, a);
    test_synchronize(a);
}

/* The pool has its memory from the first allocation. */
static void memory_that_is_handed_out_again_has_its_new_allocation(test_fixture *fixture)
{
    enum { TRIES = 64 };
    test_needs_simulated_driver("its checker makes the reports");
    CUstream a = test_stream(fixture, TEST_STREAM_UNKNOWN), b = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block, next;
    bool same = false;
    check_cu(test_sim_control()->set_check(STRATA_SIM_CHECK_ON));
    for (int i = 0; i < TRIES && !same; i++) {
        the_first_allocation(fixture, a, &block);
        CUdeviceptr before = block.address;
        test_free_on(fixture, &block, a);
        the_next_allocation(fixture, a, &next);
        same = next.address == before;
        if (same)
            assert_allocated_by(report_of_a_race(next.address, a, b), "the_next_allocation", "the_first_allocation");
        test_free_on(fixture, &next, a);
    }
    test_synchronize(a);
    if (!strstr(fixture->stack, "guard") && !strstr(fixture->stack, "direct"))
        assert_true(same);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_report_names_the_allocation_of_the_block_itself),
        TEST_CASE(memory_that_is_handed_out_again_has_its_new_allocation),
    };
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
