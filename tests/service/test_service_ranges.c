/* NVTX ranges around requests: none unless the service is asked for them. Without them a request makes no call of NVTX,
 * whose first call loads the tool, and allocates nothing for them. */
#include <dlfcn.h>

#include "nvtx/tool.h"
#include "service/service.h"
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

/* ---- what a range costs ---- */

static _Thread_local bool in_range; /* the thread is in service_range_begin or _end */
static _Atomic unsigned begun, allocated;

void __real_service_range_begin(const strata_service *service, const strata_future *request);
void __wrap_service_range_begin(const strata_service *service, const strata_future *request);
void __real_service_range_end(const strata_service *service);
void __wrap_service_range_end(const strata_service *service);

void __wrap_service_range_begin(const strata_service *service, const strata_future *request)
{
    atomic_fetch_add(&begun, 1);
    in_range = true;
    __real_service_range_begin(service, request);
    in_range = false;
}

void __wrap_service_range_end(const strata_service *service)
{
    in_range = true;
    __real_service_range_end(service);
    in_range = false;
}

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

static void count_allocation(void)
{
    if (in_range)
        atomic_fetch_add(&allocated, 1);
}

void *__wrap_strata_host_zalloc(size_t bytes)
{
    count_allocation();
    return __real_strata_host_zalloc(bytes);
}

void *__wrap_malloc(size_t bytes)
{
    count_allocation();
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    count_allocation();
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    count_allocation();
    return __real_realloc(memory, bytes);
}

/* ---- tests ---- */

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

/* The first test: nothing of this process has called NVTX yet. */
static void without_ranges_nothing_of_nvtx_is_called_and_nothing_allocated(void **state)
{
    (void)state;
    if (!getenv("NVTX_INJECTION64_PATH"))
        skip();
    for (unsigned i = 0; i < 50; i++)
        ask(false, "silent");
    assert_int_equal(atomic_load(&begun), 100); /* the service comes by */
    assert_int_equal(atomic_load(&allocated), 0);
    assert_null(look());
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

/* As the worker makes requests of its own. */
static void a_request_without_a_name_has_a_range_with_one(void **state)
{
    (void)state;
    if (!getenv("NVTX_INJECTION64_PATH"))
        skip();
    strata_service *service = test_service_make(&(strata_service_options){.nvtx = true, .stack_text = "pool"});
    strata_future *request, *future;
    check_ok(service_request_make(service, SERVICE_RUN, NULL, "a test", &request));
    request->operation.function = submit_nothing;
    check_ok(service_request_submit(request, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    check_ok(strata_service_destroy(service));
    assert_int_equal(look()->wrong, 0);
    assert_string_equal(look()->last_range, "run");
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_ranges_nothing_of_nvtx_is_called_and_nothing_allocated),
        cmocka_unit_test(ranges_are_named_for_operations_if_they_are_asked_for),
        cmocka_unit_test(a_request_without_a_name_has_a_range_with_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
