/* Any call of the driver may fail: every request is answered, buffers come back, the service ends, nothing is left. */
#include "support/effort.h"
#include "support/service.h"

enum { BYTES = 4096, REQUESTS = 6 };

/* Takes the answer, and returns what it gave. */
static strata_ref *finish(strata_future *future, strata_host_buffer *buffer)
{
    strata_answer answer = {0};
    if (!future)
        return NULL;
    const strata_status status = strata_future_wait(future);
    assert_int_equal(strata_future_take(future, &answer), STRATA_SUCCESS);
    assert_int_equal(answer.status, status);
    assert_true(!answer.buffer || answer.buffer == buffer);
    if (status == STRATA_SUCCESS && buffer)
        assert_ptr_equal(answer.buffer, buffer);
    strata_host_buffer_release(answer.buffer);
    strata_future_release(future);
    return answer.ref;
}

static void ask(strata_service *service, bool sends)
{
    strata_host_buffer *out = test_buffer(BYTES, 0x42), *in = test_buffer(BYTES, 0);
    strata_future *future = NULL, *copies[2] = {0};
    strata_service_allocate(service, STRATA_ELEMENT_U8, BYTES, NULL, &future);
    strata_ref *ref = finish(future, NULL);
    if (ref) {
        const bool sent = strata_service_copy_from_host(service, out, ref, NULL, &copies[0]) == STRATA_SUCCESS;
        const bool back = strata_service_copy_to_host(service, ref, in, NULL, &copies[1]) == STRATA_SUCCESS;
        const bool wrote = sent && strata_future_wait(copies[0]) == STRATA_SUCCESS;
        const bool read = back && strata_future_wait(copies[1]) == STRATA_SUCCESS;
        assert_true(!sends || (wrote && read));
        if (wrote && read)
            assert_true(test_buffer_has(in, 0x42));
        finish(sent ? copies[0] : NULL, out);
        finish(back ? copies[1] : NULL, in);
        strata_ref_release(ref);
    }
    assert_int_equal(strata_host_buffer_handles(in), 1);
    assert_int_equal(strata_host_buffer_handles(out), 1);
    strata_host_buffer_release(in);
    strata_host_buffer_release(out);
}

static void meet(const char *stack, strata_completion_mode mode, bool fails)
{
    strata_service *service;
    const strata_service_options options = {.stack_text = stack, .completion = mode};
    assert_int_equal(strata_service_create(&options, &service), STRATA_SUCCESS);
    const bool ready = strata_service_wait_ready(service, 20ull * TEST_SECOND) == STRATA_SUCCESS;
    assert_true(ready || fails);
    for (int i = 0; i < REQUESTS; i++)
        ask(service, !fails);
    const strata_status first = strata_service_destroy(service); /* whose call may have been the one that fails */
    assert_true(first == STRATA_SUCCESS || (fails && first == STRATA_ERROR_DRIVER));
    if (first != STRATA_SUCCESS)
        assert_int_equal(strata_service_destroy(service), STRATA_SUCCESS);
}

static uint64_t objects(void)
{
    strata_sim_accounts accounts;
    check_cu(test_sim_control()->get_accounts(&accounts));
    return accounts.streams + accounts.events + accounts.modules + accounts.pools + accounts.device_blocks +
           accounts.memory_handles + accounts.memory_maps + accounts.address_ranges;
}

/* Each call fails once. The failed call may have been the end of something, which then stays: with a pool of mapped
 * memory, its mapping, handle and addresses. */
static void fail_each_call(const char *stack, strata_completion_mode mode)
{
    const test_sim *sim = test_sim_control();
    const size_t step = getenv("STRATA_TEST_FULL") ? 1 : test_effort(1, 97);
    uint64_t reached, runs = 0;
    bool struck = true;
    meet(stack, mode, false); /* what the process makes once */
    for (uint64_t nth = 1; struck; nth += step) {
        const strata_sim_fault fault = {
            .size = sizeof fault, .kind = STRATA_SIM_FAIL_CALL, .nth = nth, .error = CUDA_ERROR_UNKNOWN};
        const uint64_t before = objects();
        reached = 0;
        uint32_t id;
        check_cu(sim->add_fault(&fault, &id));
        meet(stack, mode, true);
        check_cu(sim->fault_reached(id, &reached));
        check_cu(sim->clear_faults());
        struck = reached >= nth;
        runs++;
        if (objects() > before + 4)
            fail_msg("call %llu left %llu objects", (unsigned long long)nth, (unsigned long long)(objects() - before));
    }
    print_message("%s: %llu runs\n", stack, (unsigned long long)runs);
    assert_true(runs * step > 100); /* else there was nothing to fail */
}

static void requests_are_answered_though_a_call_fails_while_polling(void **state)
{
    (void)state;
    test_needs_simulated_driver("calls fail on order");
    fail_each_call("pool", STRATA_COMPLETION_POLLING);
    fail_each_call("async", STRATA_COMPLETION_POLLING);
}

static void requests_are_answered_though_a_call_fails_with_host_functions(void **state)
{
    (void)state;
    test_needs_simulated_driver("calls fail on order");
    fail_each_call("pool", STRATA_COMPLETION_HOST_FUNCTION);
}

static void requests_are_answered_though_a_call_fails_while_a_thread_waits(void **state)
{
    (void)state;
    test_needs_simulated_driver("calls fail on order");
    fail_each_call("pool", STRATA_COMPLETION_SYNCHRONIZING);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_answered_though_a_call_fails_while_polling),
        cmocka_unit_test(requests_are_answered_though_a_call_fails_with_host_functions),
        cmocka_unit_test(requests_are_answered_though_a_call_fails_while_a_thread_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
