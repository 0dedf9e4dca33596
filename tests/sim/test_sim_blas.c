/* The stand-in for cuBLAS, as a program finds it that was written for cuBLAS. */
#include "support/sim.h"

enum { NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { PLAIN = 0, TYPE_32F = 0, TYPE_64F = 1, COMPUTE_32F = 68, DEFAULT_ALGORITHM = -1, HOST = 0, DEVICE = 1 };
enum { SIDE = 4, COUNT = SIDE * SIDE, BYTES = COUNT * sizeof(float) };

typedef struct cublas_context *handle_type;
static int (*p_create)(handle_type *handle);
static int (*p_destroy)(handle_type handle);
static int (*p_set_stream)(handle_type handle, CUstream stream);
static int (*p_set_workspace)(handle_type handle, void *workspace, size_t bytes);
static int (*p_set_pointer_mode)(handle_type handle, int mode);
static const char *(*p_status_text)(int status);
static int (*p_gemm)(handle_type handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const void *alpha,
                     const void *a, int type_a, int64_t lda, const void *b, int type_b, int64_t ldb, const void *beta,
                     void *c, int type_c, int64_t ldc, int compute, int algorithm);
static int (*p_sdot)(handle_type handle, int64_t n, const void *x, int64_t step_x, const void *y, int64_t step_y,
                     void *result);
static int (*p_sscal)(handle_type handle, int64_t n, const void *alpha, void *x, int64_t step_x);

static void open_stand_in(void)
{
    const char *driver = getenv("STRATA_SIM_LIBRARY");
    const char *slash = driver ? strrchr(driver, '/') : NULL;
    char path[4200];
    snprintf(path, sizeof path, "%.*slibstrata-sim-blas.so.0", slash ? (int)(slash - driver) + 1 : 0,
             driver ? driver : "");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    test_sim_find(library, "cublasCreate_v2", &p_create);
    test_sim_find(library, "cublasDestroy_v2", &p_destroy);
    test_sim_find(library, "cublasSetStream_v2", &p_set_stream);
    test_sim_find(library, "cublasSetWorkspace_v2", &p_set_workspace);
    test_sim_find(library, "cublasSetPointerMode_v2", &p_set_pointer_mode);
    test_sim_find(library, "cublasGetStatusString", &p_status_text);
    test_sim_find(library, "cublasGemmEx_64", &p_gemm);
    test_sim_find(library, "cublasSdot_v2_64", &p_sdot);
    test_sim_find(library, "cublasSscal_v2_64", &p_sscal);
}

/* Without a BLAS of the CPU the program is skipped. */
static handle_type make_handle(void)
{
    handle_type handle;
    const int status = p_create(&handle);
    if (status == NOT_INITIALIZED) {
        printf("skipped: %s\n", p_status_text(status));
        exit(77);
    }
    assert_int_equal(status, 0);
    return handle;
}

static void *pointer_to(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* C = A * A, all of SIDE by SIDE, in f32, with these leading dimensions. */
static int multiply(handle_type handle, CUdeviceptr a, CUdeviceptr c, int64_t m, int64_t lda, int64_t ldc)
{
    const float one = 1, zero = 0;
    return p_gemm(handle, PLAIN, PLAIN, m, SIDE, SIDE, &one, pointer_to(a), TYPE_32F, lda, pointer_to(a), TYPE_32F,
                  SIDE, &zero, pointer_to(c), TYPE_32F, ldc, COMPUTE_32F, DEFAULT_ALGORITHM);
}

static CUdeviceptr allocate_ones(CUstream stream)
{
    CUdeviceptr address;
    OK(p_cuMemAlloc(&address, BYTES));
    OK(p_cuMemsetD32Async(address, 0x3f800000, COUNT, stream));
    return address;
}

static void a_product_is_work_of_its_stream(void **state)
{
    float seen[COUNT];
    CUstream stream;
    (void)state;
    test_sim_begin();
    handle_type handle = make_handle();
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr a = allocate_ones(stream), c = allocate_ones(stream);
    assert_int_equal(p_set_stream(handle, stream), 0);
    assert_int_equal(multiply(handle, a, c, SIDE, SIDE, SIDE), 0);
    OK(p_cuMemcpyDtoHAsync(seen, c, BYTES, stream));
    OK(p_cuStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        assert_true(seen[i] == SIDE);
    assert_int_equal(p_destroy(handle), 0);
    OK(p_cuMemFree(a));
    OK(p_cuMemFree(c));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

/* Two streams without an order: on C, and on the workspace alone. */
static void the_checker_sees_what_it_writes(void **state)
{
    CUstream streams[2];
    CUdeviceptr workspace;
    strata_sim_report report = {.size = sizeof report};
    uint64_t reports;
    (void)state;
    test_sim_begin();
    OK(p_set_check(STRATA_SIM_CHECK_ON));
    handle_type handle = make_handle();
    OK(p_cuMemAlloc(&workspace, BYTES));
    for (int i = 0; i < 2; i++)
        OK(p_cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    const CUdeviceptr a = allocate_ones(NULL), c = allocate_ones(NULL), d = allocate_ones(NULL);
    OK(p_cuCtxSynchronize());
    for (int with_workspace = 0; with_workspace < 2; with_workspace++) {
        for (int i = 0; i < 2; i++) {
            assert_int_equal(p_set_stream(handle, streams[i]), 0);
            assert_int_equal(p_set_workspace(handle, pointer_to(workspace), with_workspace ? BYTES : 0), 0);
            assert_int_equal(multiply(handle, a, with_workspace && i ? d : c, SIDE, SIDE, SIDE), 0);
        }
        OK(p_cuCtxSynchronize());
        OK(p_get_report_count(&reports));
        assert_int_equal(reports, 1);
        OK(p_get_report(0, &report));
        assert_int_equal(report.kind, STRATA_SIM_REPORT_WRITE_WRITE);
        assert_true(report.address == (with_workspace ? workspace : c));
        OK(p_clear_reports());
    }
    assert_int_equal(p_destroy(handle), 0);
    const CUdeviceptr memory[] = {a, c, d, workspace};
    for (int i = 0; i < 4; i++)
        OK(p_cuMemFree(memory[i]));
    for (int i = 0; i < 2; i++)
        OK(p_cuStreamDestroy(streams[i]));
    test_sim_end();
}

static void arguments_that_cublas_refuses_are_refused(void **state)
{
    const float one = 1;
    float result;
    (void)state;
    test_sim_begin();
    handle_type handle = make_handle();
    const CUdeviceptr a = allocate_ones(NULL);
    assert_int_equal(p_create(NULL), INVALID_VALUE);
    assert_int_equal(p_destroy(NULL), NOT_INITIALIZED);
    assert_int_equal(multiply(NULL, a, a, SIDE, SIDE, SIDE), NOT_INITIALIZED);
    assert_int_equal(multiply(handle, a, a, -1, SIDE, SIDE), INVALID_VALUE);
    assert_int_equal(multiply(handle, a, a, SIDE, SIDE - 1, SIDE), INVALID_VALUE);
    assert_int_equal(multiply(handle, a, a, SIDE, SIDE, SIDE - 1), INVALID_VALUE);
    assert_int_equal(p_sscal(handle, SIDE, &one, pointer_to(a), 0), INVALID_VALUE);
    assert_int_equal(p_sscal(handle, SIDE, NULL, pointer_to(a), 1), INVALID_VALUE);
    assert_int_equal(p_sscal(handle, SIDE, &one, pointer_to(a), -1), NOT_SUPPORTED);
    assert_int_equal(p_sdot(handle, SIDE, pointer_to(a), 1, pointer_to(a), 1, &result), NOT_SUPPORTED);
    assert_int_equal(p_set_pointer_mode(handle, 7), INVALID_VALUE);
    assert_int_equal(p_set_pointer_mode(handle, DEVICE), 0);
    assert_int_equal(p_sscal(handle, SIDE, pointer_to(a), pointer_to(a), 1), NOT_SUPPORTED);
    assert_int_equal(p_set_workspace(handle, pointer_to(a + 8), 8), INVALID_VALUE);
    assert_int_equal(p_destroy(handle), 0);
    OK(p_cuMemFree(a));
    test_sim_end();
}

static void memory_that_is_not_there_is_an_illegal_access(void **state)
{
    const float two = 2;
    (void)state;
    test_sim_begin();
    handle_type handle = make_handle();
    const CUdeviceptr a = allocate_ones(NULL);
    assert_int_equal(p_sscal(handle, 1 << 20, &two, pointer_to(a), 1), 0);
    assert_int_equal(p_cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(p_clear_reports());
    p_destroy(handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_is_work_of_its_stream), cmocka_unit_test(the_checker_sees_what_it_writes),
        cmocka_unit_test(arguments_that_cublas_refuses_are_refused),
        cmocka_unit_test(memory_that_is_not_there_is_an_illegal_access), /* the context is of no use afterwards */
    };
    test_sim_open();
    open_stand_in();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
