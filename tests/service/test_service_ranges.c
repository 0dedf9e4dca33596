/* NVTX ranges around requests: none unless the service is asked for them. */
#include <dlfcn.h>

#include "nvtx/tool.h"
#include "support/service.h"

/* NULL until NVTX has loaded the tool. */
static const nvtx_tool_state *look(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *tool = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    nvtx_tool_look_function *function = NULL;
    if (tool)
        *(void **)&function = dlsym(tool, "nvtx_tool_look");
    return function ? function() : NULL;
}

static strata_status submit_nothing(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    (void)stream;
    (void)data;
    return STRATA_SUCCESS;
}

static void ask(bool nvtx, const char *name)
{
    strata_service *service = test_service_make(&(strata_service_options){.nvtx = nvtx, .stack_text = "pool"});
    const strata_service_operation operation = {.name = name, .function = submit_nothing};
    strata_future *future;
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    check_ok(strata_service_run(service, &operation, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    check_ok(strata_service_destroy(service));
}

static void ranges_are_named_for_operations_if_they_are_asked_for(void **state)
{
    (void)state;
    if (!getenv("NVTX_INJECTION64_PATH"))
        skip();
    ask(false, "silent");
    assert_true(!look() || look()->pushed == 0);
    ask(true, "attention of layer 3");
    assert_non_null(look());
    assert_int_equal(look()->pushed, 2);
    assert_int_equal(look()->popped, 2);
    assert_int_equal(look()->wrong, 0);
    assert_string_equal(look()->last_range, "attention of layer 3");
    ask(true, "\"quoted\" \\ 100 %s");
    assert_string_equal(look()->last_range, "\"quoted\" \\ 100 %s");
    ask(false, "silent");
    assert_int_equal(look()->pushed, 4);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_are_named_for_operations_if_they_are_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
