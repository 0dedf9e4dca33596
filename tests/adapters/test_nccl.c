/* Registrations with NCCL, which a stand-in with its calls plays: fake_nccl.h. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapters/fake_nccl.h"
#include "support/captures.h"
#include "support/child.h"
#include "support/graphs.h"
#include "support/pool.h"
#include "support/sweep.h"

static fake_nccl_driver driver;
static fake_nccl_group_end_call group_end;
static fake_nccl_comm comm;
static strata_nccl_registration *registrations[4];

/* Beside the program, by its path: under the address sanitizer dlopen does not see the program's run path. */
static void *open_library(void)
{
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    assert_true(length > 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/'), "/../lib/libstrata_fake_nccl.so");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    return library;
}

static void load_nccl(void)
{
    fake_nccl_use_call use;
    test_find_driver_call("cuMemRetainAllocationHandle", 11000, &driver.retain);
    test_find_driver_call("cuMemRelease", 10020, &driver.release);
    test_find_driver_call("cuMemExportToShareableHandle", 10020, &driver.export_handle);
    test_find_driver_call("cuMemGetAddressRange", 3020, &driver.address_range);
    void *library = open_library();
    void *found = dlsym(library, "fake_nccl_use");
    memcpy(&use, &found, sizeof use);
    found = dlsym(library, "fake_nccl_group_end");
    memcpy(&group_end, &found, sizeof group_end);
    use(&driver);
}

static void clear_registrations(void)
{
    lift_limit();
    clear_away();
    for (size_t i = 0; i < sizeof registrations / sizeof registrations[0]; i++) {
        if (registrations[i] && strata_nccl_handle(registrations[i]))
            free(strata_nccl_handle(registrations[i]));
        strata_nccl_forget(registrations[i]);
        registrations[i] = NULL;
    }
    comm = (fake_nccl_comm){0};
}

static const strata_nccl_options window = {.size = sizeof window, .kind = STRATA_NCCL_WINDOW, .flags = 1};

static strata_status register_block(test_fixture *fixture, const strata_block *block,
                                    const strata_nccl_options *options, size_t which)
{
    return strata_nccl_register(fixture->runtime, &comm, block, options, &registrations[which]);
}

static strata_status deregister(size_t which)
{
    const strata_status status = strata_nccl_deregister(registrations[which]);
    if (status == STRATA_SUCCESS)
        registrations[which] = NULL;
    return status;
}

static void without_nccl_in_the_process_the_call_says_so(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 4 * MIB, stream);
    check_status(register_block(fixture, &block, NULL, 0), STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "ncclCommRegister is not in this process; load NCCL 2.19");
    assert_null(registrations[0]);
    check_status(register_block(fixture, &block, &window, 0), STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "2.27");
    test_free_on(fixture, &block, stream); /* not registered */
    load_nccl();
}

static void a_contiguous_block_is_registered_whole(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 6 * MIB, stream);
    check_ok(register_block(fixture, &block, NULL, 0));
    assert_ptr_equal(comm.last.address, (void *)(uintptr_t)block.address);
    assert_int_equal(comm.last.bytes, block.bytes);
    assert_false(comm.last.window);
    assert_int_equal(comm.last.segments, 1);
    assert_int_equal(comm.last.exportable, 1);
    assert_non_null(strata_nccl_handle(registrations[0]));
    check_ok(register_block(fixture, &block, &window, 1));
    assert_true(comm.last.window && comm.last.multicast);
    assert_int_equal(comm.last.flags, 1);
    assert_int_equal(comm.registered, 2);
    check_ok(deregister(1));
    check_ok(deregister(0));
    assert_int_equal(comm.registered, 0);
    test_free_on(fixture, &block, stream);
}

static void check_is_registered(strata_status status)
{
    check_status(status, STRATA_ERROR_BLOCK_IN_USE);
    check_last_error(STRATA_ERROR_BLOCK_IN_USE, "is registered with NCCL; deregister it before the free");
}

/* By each of the runtime's calls; the block is as before. */
static void a_registered_block_is_not_freed(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, 4 * MIB, stream);
    check_ok(register_block(fixture, &block, NULL, 0));
    check_ok(register_block(fixture, &block, &window, 1));
    check_is_registered(strata_runtime_deallocate(fixture->runtime, &block));
    check_is_registered(strata_runtime_deallocate_on(fixture->runtime, &block, other));
    check_is_registered(strata_runtime_deallocate_address(fixture->runtime, block.address, stream));
    check_ok(deregister(0));
    check_is_registered(strata_runtime_deallocate(fixture->runtime, &block));
    test_write(fixture, &block, 0x61, other);
    check_ends(fixture, &block, 0x61, other);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
    check_ok(deregister(1));
    test_free_on(fixture, &block, stream);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
    empty_the_pool(fixture);
}

static void registered_memory_stays_whatever_is_short(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    CUmemGenericAllocationHandle before, after;
    strata_block block = test_allocate(fixture, 4 * MIB, stream), rest;
    check_ok(register_block(fixture, &block, NULL, 0));
    check_cu(driver.retain(&before, (void *)(uintptr_t)block.address));
    check_cu(driver.release(before));
    set_limit(fixture, 12 * MIB);
    leave_behind(fixture, 6 * MIB, 0x62, stream);
    check_ok(try_to_allocate(fixture, 8 * MIB, stream, &rest));
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    check_refused(fixture, 10 * MIB, stream);
    check_cu(driver.retain(&after, (void *)(uintptr_t)block.address));
    check_cu(driver.release(after));
    assert_int_equal(after, before);
    check_ok(deregister(0));
    test_free_on(fixture, &rest, stream);
    test_free_on(fixture, &block, stream);
    empty_the_pool(fixture);
}

/* All memory under a window is shown to other ranks. */
static void a_window_of_a_block_that_shares_memory_is_refused(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, MIB, stream);
    check_status(register_block(fixture, &block, &window, 0), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "is not contiguous");
    check_last_error(STRATA_ERROR_INVALID_VALUE, "contiguous=1048576");
    assert_int_equal(comm.registered, 0);
    check_ok(register_block(fixture, &block, NULL, 0)); /* as a buffer it is NCCL's choice */
    assert_int_equal(comm.last.exportable, 0);
    check_ok(deregister(0));
    test_free_on(fixture, &block, stream);
}

static void a_window_in_a_group_gets_its_handle_at_the_groups_end(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 4 * MIB, stream);
    comm.in_group = true;
    check_ok(register_block(fixture, &block, &window, 0));
    assert_null(strata_nccl_handle(registrations[0]));
    group_end(&comm);
    assert_non_null(strata_nccl_handle(registrations[0]));
    check_ok(deregister(0));
    assert_int_equal(comm.registered, 0);
    test_free_on(fixture, &block, stream);
}

static void a_block_that_nccl_skips_is_held_all_the_same(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 4 * MIB, stream);
    comm.skips = true;
    check_ok(register_block(fixture, &block, NULL, 0));
    assert_null(strata_nccl_handle(registrations[0]));
    check_is_registered(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(deregister(0));
    test_free_on(fixture, &block, stream);
}

static void what_nccl_refuses_is_not_registered(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 4 * MIB, stream);
    comm.answer = 1;
    check_status(register_block(fixture, &block, NULL, 0), STRATA_ERROR_LIBRARY);
    check_last_error(STRATA_ERROR_LIBRARY, "ncclCommRegister returned 1 (unhandled cuda error): said by the stand-in");
    assert_null(registrations[0]);
    test_free_on(fixture, &block, stream);
}

/* NCCL may still use it, so that the block stays registered. */
static void a_deregistration_that_fails_can_be_tried_again(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 4 * MIB, stream);
    check_ok(register_block(fixture, &block, &window, 0));
    comm.answer = 1;
    check_status(deregister(0), STRATA_ERROR_LIBRARY);
    check_last_error(STRATA_ERROR_LIBRARY, "ncclCommWindowDeregister returned 1");
    check_is_registered(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(deregister(0));
    test_free_on(fixture, &block, stream);
}

static void a_registration_that_went_with_its_communicator_is_forgotten(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 4 * MIB, stream);
    check_ok(register_block(fixture, &block, NULL, 0));
    free(strata_nccl_handle(registrations[0])); /* the communicator's end */
    comm = (fake_nccl_comm){.answer = 1};
    strata_nccl_forget(registrations[0]);
    registrations[0] = NULL;
    assert_int_equal(comm.answer, 1); /* NCCL was not called */
    test_free_on(fixture, &block, stream);
}

/* The graph keeps the block, and the registration refuses its free. */
static void a_block_of_a_graph_can_be_registered_too(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 4 * MIB, stream);
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x63, stream);
    strata_graph *graph = end(fixture, stream);
    check_ok(register_block(fixture, &block, NULL, 0));
    check_is_registered(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(strata_graph_launch(graph, stream));
    check_ends(fixture, &block, 0x63, stream);
    check_ok(deregister(0));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block)); /* waits for the graph's end */
    check_status(register_block(fixture, &block, NULL, 0), STRATA_ERROR_USE_AFTER_FREE);
    check_ok(destroy(graph));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(test_usage(fixture).live_bytes, 0);
}

static void a_forked_child_leaves_registrations_alone(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 4 * MIB, stream);
    int status;
    check_ok(register_block(fixture, &block, NULL, 0));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const strata_status deregistered = strata_nccl_deregister(registrations[0]);
        strata_nccl_forget(registrations[0]);
        test_child_leave(deregistered == STRATA_ERROR_FORKED && comm.registered == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check_ok(deregister(0));
    test_free_on(fixture, &block, stream);
}

static void what_is_no_live_block_is_refused(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 4 * MIB, stream), wrong = block, empty = {0};
    const strata_nccl_options unknown = {.size = sizeof unknown, .kind = (strata_nccl_kind)7};
    wrong.bytes--;
    check_status(register_block(fixture, &wrong, NULL, 0), STRATA_ERROR_SIZE_MISMATCH);
    check_status(register_block(fixture, &empty, NULL, 0), STRATA_ERROR_INVALID_VALUE);
    check_status(register_block(fixture, &block, &unknown, 0), STRATA_ERROR_INVALID_VALUE);
    check_status(register_block(fixture, NULL, NULL, 0), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_nccl_register(fixture->runtime, NULL, &block, NULL, &registrations[0]),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_nccl_register(NULL, &comm, &block, NULL, &registrations[0]), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_nccl_register(fixture->runtime, &comm, &block, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    test_free_on(fixture, &block, stream);
    check_status(register_block(fixture, &block, NULL, 0), STRATA_ERROR_USE_AFTER_FREE);
    wrong = block;
    wrong.id.table ^= 1;
    check_status(register_block(fixture, &wrong, NULL, 0), STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(comm.registered, 0);
    check_ok(strata_nccl_deregister(NULL));
    strata_nccl_forget(NULL);
    assert_null(strata_nccl_handle(NULL));
}

static void memory_of_a_captures_pool_is_refused(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block;
    begin(fixture, stream, make_pool(fixture));
    check_ok(strata_runtime_allocate(fixture->runtime, 4 * MIB, stream, &block));
    check_status(register_block(fixture, &block, NULL, 0), STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "was allocated in a capture");
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, stream));
    check_ok(destroy(end(fixture, stream)));
}

int main(void)
{
    static const char *const stacks[] = {"pool(contiguous=4MiB, decay=0)",
                                         "budget, logging(format=memory), statistics, pool(contiguous=4MiB, decay=0)"};
    static const test_case cases[] = {
        TEST_CASE(a_contiguous_block_is_registered_whole),
        TEST_CASE(a_registered_block_is_not_freed),
        TEST_CASE(registered_memory_stays_whatever_is_short),
        TEST_CASE(a_window_of_a_block_that_shares_memory_is_refused),
        TEST_CASE(a_window_in_a_group_gets_its_handle_at_the_groups_end),
        TEST_CASE(a_block_that_nccl_skips_is_held_all_the_same),
        TEST_CASE(what_nccl_refuses_is_not_registered),
        TEST_CASE(a_deregistration_that_fails_can_be_tried_again),
        TEST_CASE(a_registration_that_went_with_its_communicator_is_forgotten),
        TEST_CASE(a_block_of_a_graph_can_be_registered_too),
        TEST_CASE(a_forked_child_leaves_registrations_alone),
        TEST_CASE(what_is_no_live_block_is_refused),
        TEST_CASE(memory_of_a_captures_pool_is_refused),
    };
    static const test_case first[] = {TEST_CASE(without_nccl_in_the_process_the_call_says_so)};
    test_before_clearing = clear_registrations;
    test_open_driver();
    int failed = 0;
    if (test_is_swept())
        load_nccl();
    else
        failed = test_run_on(stacks, 1, first, 1);
    return failed ? failed
                  : test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
