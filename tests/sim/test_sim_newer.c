/* What the simulated driver has of newer and older drivers (STRATA_SIM_CUDA), and what it says of entry points that it
 * lacks.
 * Every test has a process of its own, and the parent never starts the driver. */
#include "support/sim.h"

#include <fcntl.h>
#include <sys/wait.h>

/* cuda.h 13.5 */
enum { STREAM_DETACHED = 917, RECAPTURE_FAILURE = 918, FABRIC_NOT_READY = 919 };
enum { ALLOCATION_TYPE = 9, EXPORT_HANDLE_TYPES, LOCATION_ID, LOCATION_TYPE, MAX_POOL_SIZE, HW_DECOMPRESS, DOMAIN_ID };

/* The exit status of a child that does this with a driver of that version; NULL: the default. */
static int status_with(const char *version, int (*child)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (version)
            setenv("STRATA_SIM_CUDA", version, 1);
        exit(child());
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static int init(void)
{
    return (int)p_cuInit(0);
}

/* In tenths from 12.0 on, before and after cuInit. */
static int minor_version(void)
{
    int before, after;
    OK(p_cuDriverGetVersion(&before));
    OK(p_cuInit(0));
    OK(p_cuDriverGetVersion(&after));
    assert_int_equal(before, after);
    return (after - 12000) / 10;
}

static void the_version_is_that_of_the_environment(void **state)
{
    (void)state;
    assert_int_equal(status_with(NULL, minor_version), 100);
    assert_int_equal(status_with("12.0", minor_version), 0);
    assert_int_equal(status_with("12.9", minor_version), 9);
    assert_int_equal(status_with("13.0", minor_version), 100);
    assert_int_equal(status_with("13.3", minor_version), 103);
    assert_int_equal(status_with("13.5", minor_version), 105);
    static const char *const bad[] = {"13", "13.", "13.6", "11.8", "12.10", "14.0", "13.3x", "13.33", ".4", "-12.4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(status_with(bad[i], init), CUDA_ERROR_INVALID_VALUE);
}

static unsigned known_errors(void)
{
    static const struct {
        int code;
        const char *name;
    } errors[] = {{STREAM_DETACHED, "CUDA_ERROR_STREAM_DETACHED"},
                  {RECAPTURE_FAILURE, "CUDA_ERROR_GRAPH_RECAPTURE_FAILURE"},
                  {FABRIC_NOT_READY, "CUDA_ERROR_FABRIC_NOT_READY"}};
    unsigned known = 0;
    for (unsigned i = 0; i < 3; i++) {
        const char *name = "", *text = "";
        CUresult result = p_cuGetErrorName((CUresult)errors[i].code, &name);
        assert_int_equal(p_cuGetErrorString((CUresult)errors[i].code, &text), result);
        assert_true(result == CUDA_SUCCESS || (result == CUDA_ERROR_INVALID_VALUE && !name && !text));
        if (result == CUDA_SUCCESS) {
            assert_string_equal(name, errors[i].name);
            assert_true(strlen(text) > 0);
            known |= 1U << i;
        }
    }
    return known;
}

static int init_and_ask_for_errors(void)
{
    OK(p_cuInit(0));
    return (int)known_errors();
}

static void errors_have_names_from_their_version_on(void **state)
{
    (void)state;
    assert_int_equal(status_with(NULL, init_and_ask_for_errors), 0);
    assert_int_equal(status_with("13.1", init_and_ask_for_errors), 1);
    assert_int_equal(status_with("13.3", init_and_ask_for_errors), 3);
    assert_int_equal(status_with("13.4", init_and_ask_for_errors), 7);
}

static CUmemoryPool new_pool(CUmemAllocationHandleType handles, size_t most)
{
    CUmemoryPool pool;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes = handles,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                       .maxSize = most};
    OK(p_cuMemPoolCreate(&pool, &properties));
    return pool;
}

static CUresult get(CUmemoryPool pool, int attribute, void *value)
{
    return p_cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value);
}

static void check_attributes(CUmemoryPool pool, CUmemAllocationHandleType handles, cuuint64_t most)
{
    CUmemAllocationType type = CU_MEM_ALLOCATION_TYPE_INVALID;
    CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_MAX;
    CUmemLocationType location = CU_MEM_LOCATION_TYPE_INVALID;
    int id = -1, compressed = -1;
    cuuint64_t size = 1;
    OK(get(pool, ALLOCATION_TYPE, &type));
    OK(get(pool, EXPORT_HANDLE_TYPES, &types));
    OK(get(pool, LOCATION_ID, &id));
    OK(get(pool, LOCATION_TYPE, &location));
    OK(get(pool, MAX_POOL_SIZE, &size));
    OK(get(pool, HW_DECOMPRESS, &compressed));
    assert_int_equal(type, CU_MEM_ALLOCATION_TYPE_PINNED);
    assert_int_equal(types, handles);
    assert_int_equal(id, 0);
    assert_int_equal(location, CU_MEM_LOCATION_TYPE_DEVICE);
    assert_int_equal(size, most);
    assert_int_equal(compressed, 0);
}

static int read_pool_attributes(void)
{
    enum { MIB = 1 << 20 };
    CUmemoryPool standard;
    int domain = 0;
    OK(p_cuInit(0));
    test_sim_begin();
    CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 64 * MIB);
    OK(p_cuDeviceGetDefaultMemPool(&standard, 0));
    check_attributes(pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 64 * MIB);
    check_attributes(standard, CU_MEM_HANDLE_TYPE_NONE, 0);
    assert_int_equal(p_cuMemPoolSetAttribute(pool, (CUmemPool_attribute)LOCATION_ID, &domain),
                     CUDA_ERROR_INVALID_VALUE);
    return get(pool, DOMAIN_ID, &domain) == CUDA_SUCCESS && domain == -1 ? 4 : 2;
}

static int find_no_newer_attribute(void)
{
    cuuint64_t value;
    OK(p_cuInit(0));
    test_sim_begin();
    CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_NONE, 0);
    for (int attribute = ALLOCATION_TYPE; attribute <= DOMAIN_ID; attribute++)
        assert_int_equal(get(pool, attribute, &value), CUDA_ERROR_INVALID_VALUE);
    return 0;
}

static void what_a_pool_was_made_with_can_be_read(void **state)
{
    (void)state;
    assert_int_equal(status_with("13.2", read_pool_attributes), 2);
    assert_int_equal(status_with("13.4", read_pool_attributes), 4);
    assert_int_equal(status_with(NULL, find_no_newer_attribute), 0);
    assert_int_equal(status_with("13.1", find_no_newer_attribute), 0);
}

/* ---- entry points that are not there ---- */

static void ask_for(const char *name, int version)
{
    void *found = &found;
    CUdriverProcAddressQueryResult status;
    OK(p_cuGetProcAddress(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    assert_null(found);
    assert_int_not_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
}

static int ask_an_older_driver(void)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    ask_for("cuStreamBeginCaptureToGraph", 12020); /* of 12.3 */
    assert_int_equal(
        p_cuGetProcAddress("cuStreamBeginCaptureToGraph", &found, 12030, CU_GET_PROC_ADDRESS_DEFAULT, &status),
        CUDA_ERROR_INVALID_VALUE);
    OK(p_cuGetProcAddress("cuStreamGetId", &found, 12020, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    assert_non_null(found);
    OK(p_cuGetProcAddress("cuMemPrefetchAsync", &found, 12020, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    assert_non_null(found);
    OK(p_cuInit(0));
    return 0;
}

static void an_older_driver_lacks_what_came_later(void **state)
{
    (void)state;
    assert_int_equal(status_with("12.2", ask_an_older_driver), 0);
}

static int ask_for_what_is_missing(void)
{
    void *found;
    ask_for("cuTexRefCreate", 2000);
    ask_for("cuNobody\nKnows", 12000);
    ask_for("cuTexRefCreate", 2000);
    ask_for("cuStreamGetId", 2000); /* only newer ones */
    OK(p_cuGetProcAddress("cuStreamGetId", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
    OK(p_cuInit(0));
    return 0;
}

static void an_entry_point_that_is_missing_is_counted(void **state)
{
    (void)state;
    char name[] = "/tmp/strata-missing-XXXXXX";
    char text[1024];
    int file = mkstemp(name);
    assert_true(file >= 0);
    setenv("STRATA_SIM_CHECK", "1", 1);
    setenv("STRATA_SIM_CHECK_FILE", name, 1);
    assert_int_equal(status_with(NULL, ask_for_what_is_missing), 0);
    unsetenv("STRATA_SIM_CHECK");
    unsetenv("STRATA_SIM_CHECK_FILE");
    ssize_t length = read(file, text, sizeof text - 1);
    assert_true(length >= 0);
    text[length] = '\0';
    assert_string_equal(text,
                        "strata-sim: missing entry points: cuTexRefCreate (2 times), cuNobody?Knows, cuStreamGetId\n");
    close(file);
    unlink(name);
}

static int read_what_is_missing(void)
{
    PFN_strata_sim_get_missing get_missing;
    strata_sim_missing missing;
    const char *path = getenv("STRATA_SIM_LIBRARY");
    test_sim_find(dlopen(path ? path : STRATA_SIM_LIBRARY, RTLD_NOW), "strata_sim_get_missing", &get_missing);
    assert_int_equal(get_missing(0, &missing), CUDA_ERROR_INVALID_VALUE);
    ask_for_what_is_missing();
    OK(get_missing(0, &missing));
    assert_string_equal(missing.name, "cuTexRefCreate");
    assert_int_equal(missing.times, 2);
    OK(get_missing(2, &missing));
    assert_int_equal(get_missing(3, &missing), CUDA_ERROR_INVALID_VALUE);
    return 0;
}

static void a_program_can_read_what_is_missing(void **state)
{
    (void)state;
    assert_int_equal(status_with(NULL, read_what_is_missing), 0);
}

int main(void)
{
    test_sim_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_version_is_that_of_the_environment),
        cmocka_unit_test(errors_have_names_from_their_version_on),
        cmocka_unit_test(what_a_pool_was_made_with_can_be_read),
        cmocka_unit_test(an_older_driver_lacks_what_came_later),
        cmocka_unit_test(an_entry_point_that_is_missing_is_counted),
        cmocka_unit_test(a_program_can_read_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
