/* Programs and preloaded libraries that put functions of their own in front of the driver's, as tracers and quotas do.
 * This program exports such functions, so the loader finds them before those of the library, as it finds those of a
 * preloaded one. */
#include "support/sim.h"

static int calls; /* of the hooks */

#define HOOK __attribute__((visibility("default")))

/* Each is called by another entry point of the library, or is in its table of entry points. */
HOOK CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
HOOK CUresult cuStreamGetPriority(CUstream stream, int *priority);
HOOK CUresult cuEventDestroy_v2(CUevent event);
HOOK CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status);

HOOK CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    (void)event, (void)stream, (void)flags;
    calls++;
    return CUDA_ERROR_UNKNOWN;
}

HOOK CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    (void)stream, (void)priority;
    calls++;
    return CUDA_ERROR_UNKNOWN;
}

HOOK CUresult cuEventDestroy_v2(CUevent event)
{
    (void)event;
    calls++;
    return CUDA_ERROR_UNKNOWN;
}

HOOK CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status)
{
    (void)name, (void)address, (void)version, (void)flags, (void)status;
    calls++;
    return CUDA_ERROR_UNKNOWN;
}

static void *library;

static void the_loader_finds_the_hooks_first(void **state)
{
    (void)state;
    void *first = dlsym(RTLD_DEFAULT, "cuEventRecordWithFlags");
    void *hook = NULL;
    CUresult (*own)(CUevent, CUstream, unsigned) = cuEventRecordWithFlags;
    memcpy(&hook, &own, sizeof hook);
    assert_ptr_equal(first, hook);
}

static void a_hook_does_not_see_the_inner_calls_of_the_driver(void **state)
{
    (void)state;
    CUevent event, other;
    CUstream stream;
    int priority;
    PFN_cuStreamGetPriority_v7000_ptsz per_thread_priority;
    CUresult (*old_destroy)(CUevent);
    CUresult (*old_get)(const char *, void **, int, cuuint64_t);
    void *found;
    test_sim_find(library, "cuStreamGetPriority_ptsz", &per_thread_priority);
    test_sim_find(library, "cuEventDestroy", &old_destroy);
    test_sim_find(library, "cuGetProcAddress", &old_get);
    test_sim_begin();
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(p_cuEventCreate(&other, CU_EVENT_DEFAULT));
    OK(p_cuEventRecord(event, stream));
    OK(per_thread_priority(stream, &priority));
    OK(old_destroy(other));
    OK(old_get("cuInit", &found, 2000, 0));
    assert_int_equal(calls, 0);
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

static void a_hook_is_not_what_the_driver_hands_out(void **state)
{
    (void)state;
    CUevent event;
    PFN_cuEventRecordWithFlags_v11010 record;
    test_sim_ask("cuEventRecordWithFlags", 11010, &record);
    test_sim_begin();
    OK(p_cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(record(event, NULL, 0));
    assert_int_equal(calls, 0);
    OK(p_cuEventDestroy(event));
    test_sim_end();
}

int main(void)
{
    const char *path = getenv("STRATA_SIM_LIBRARY");
    library = dlopen(path ? path : STRATA_SIM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    test_sim_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loader_finds_the_hooks_first),
        cmocka_unit_test(a_hook_does_not_see_the_inner_calls_of_the_driver),
        cmocka_unit_test(a_hook_is_not_what_the_driver_hands_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
