/* Copies of rows and planes in the simulated driver: which bytes they move, which they leave, and when they read; and
 * fills of rows. */
#include "support/sim.h"

enum { PITCH = 64, ROWS = 6, PLANES = 3, BYTES = PITCH * ROWS * PLANES };

static unsigned char before[BYTES];
static unsigned char after[BYTES];

static void number_bytes(unsigned char *bytes, unsigned salt)
{
    for (unsigned i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251 + salt);
}

static CUDA_MEMCPY2D rows(size_t width, size_t height)
{
    return (CUDA_MEMCPY2D){.srcPitch = PITCH, .dstPitch = PITCH, .WidthInBytes = width, .Height = height};
}

static void only_the_bytes_of_the_rows_move(void **state)
{
    (void)state;
    CUdeviceptr from;
    CUdeviceptr to;
    static unsigned char expected[BYTES];
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    OK(p_cuMemAlloc(&from, BYTES));
    OK(p_cuMemAlloc(&to, BYTES));
    number_bytes(before, 1);
    number_bytes(expected, 99);
    OK(p_cuMemcpyHtoD(from, before, BYTES));
    OK(p_cuMemcpyHtoD(to, expected, BYTES));
    CUDA_MEMCPY2D copy = rows(10, 3);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.srcXInBytes = 5;
    copy.srcY = 2;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    copy.dstPitch = 32;
    copy.dstXInBytes = 21;
    copy.dstY = 4;
    OK(p_cuMemcpy2DAsync(&copy, NULL));
    OK(p_cuMemcpyDtoH(after, to, BYTES));
    for (size_t row = 0; row < 3; row++)
        memcpy(expected + (4 + row) * 32 + 21, before + (2 + row) * PITCH + 5, 10);
    assert_memory_equal(after, expected, BYTES);
    OK(p_cuMemFree(from));
    OK(p_cuMemFree(to));
    test_sim_end();
}

static void plain_host_rows_are_read_when_the_copy_is_called_for(void **state)
{
    (void)state;
    CUdeviceptr to;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    OK(p_cuMemAlloc(&to, BYTES));
    OK(p_cuMemsetD8Async(to, 0, BYTES, NULL));
    number_bytes(before, 3);
    CUDA_MEMCPY2D copy = rows(PITCH, ROWS);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = before;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    OK(p_cuMemcpy2DAsync(&copy, NULL));
    memset(before, 0, sizeof before);
    OK(p_cuMemcpyDtoH(after, to, (size_t)PITCH * ROWS));
    number_bytes(before, 3);
    assert_memory_equal(after, before, PITCH * ROWS);
    OK(p_cuMemFree(to));
    test_sim_end();
}

static void pinned_rows_are_read_when_the_copy_runs(void **state)
{
    (void)state;
    CUdeviceptr to;
    unsigned char *pinned;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    OK(p_cuMemAlloc(&to, BYTES));
    OK(p_cuMemHostAlloc((void **)&pinned, BYTES, 0));
    memset(pinned, 1, BYTES);
    CUDA_MEMCPY2D copy = rows(PITCH, ROWS);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = pinned;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    OK(p_cuMemcpy2DAsync(&copy, NULL));
    memset(pinned, 2, BYTES);
    OK(p_cuMemcpyDtoH(after, to, 1));
    assert_int_equal(after[0], 2);
    OK(p_cuMemFree(to));
    OK(p_cuMemFreeHost(pinned));
    test_sim_end();
}

/* In memory that ends with the last row: a padding behind it would be too much. */
static void the_last_row_needs_no_padding(void **state)
{
    (void)state;
    CUdeviceptr to;
    test_sim_begin();
    OK(p_cuMemAlloc(&to, (size_t)PITCH * (ROWS - 1) + 10));
    CUDA_MEMCPY2D copy = rows(10, ROWS);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = before;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    OK(p_cuMemcpy2D(&copy));
    copy.WidthInBytes = 11;
    assert_int_equal(p_cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuMemFree(to));
    test_sim_end();
}

static void planes_lie_apart_as_their_heights_say(void **state)
{
    (void)state;
    enum { HEIGHT = ROWS, NARROW = 24, LOW = 4 };
    CUdeviceptr to;
    static unsigned char expected[BYTES];
    OK(p_set_policy(STRATA_SIM_RANDOM));
    test_sim_begin();
    OK(p_cuMemAlloc(&to, BYTES));
    number_bytes(before, 5);
    memset(expected, 0xcc, BYTES);
    OK(p_cuMemcpyHtoD(to, expected, BYTES));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = before,
                          .srcPitch = PITCH,
                          .srcHeight = HEIGHT,
                          .srcZ = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .dstPitch = NARROW,
                          .dstHeight = LOW,
                          .dstY = 1,
                          .dstXInBytes = 2,
                          .WidthInBytes = 20,
                          .Height = 3,
                          .Depth = 2};
    OK(p_cuMemcpy3D(&copy));
    OK(p_cuMemcpyDtoH(after, to, BYTES));
    for (size_t plane = 0; plane < 2; plane++)
        for (size_t row = 0; row < 3; row++)
            memcpy(expected + (plane * LOW + row + 1) * NARROW + 2, before + ((plane + 1) * HEIGHT + row) * PITCH, 20);
    assert_memory_equal(after, expected, BYTES);
    OK(p_cuMemFree(to));
    test_sim_end();
}

/* What a fill of 3 rows of 5 elements with the value 0x01020304 leaves, in bytes that were 0xcc. */
static void fill_expected(unsigned char *expected, size_t width)
{
    static const unsigned char value[] = {4, 3, 2, 1};
    memset(expected, 0xcc, BYTES);
    for (size_t row = 0; row < 3; row++)
        for (size_t i = 0; i < 5 * width; i++)
            expected[row * PITCH + i] = value[i % width];
}

static void a_fill_leaves_the_paddings(void **state)
{
    (void)state;
    static unsigned char expected[BYTES];
    CUdeviceptr to;
    test_sim_begin();
    OK(p_cuMemAlloc(&to, BYTES));
    for (size_t width = 1; width <= 4; width *= 2) {
        OK(p_cuMemsetD8(to, 0xcc, BYTES));
        if (width == 1)
            OK(p_cuMemsetD2D8(to, PITCH, 4, 5, 3));
        else if (width == 2)
            OK(p_cuMemsetD2D16(to, PITCH, 0x0304, 5, 3));
        else
            OK(p_cuMemsetD2D32(to, PITCH, 0x01020304, 5, 3));
        fill_expected(expected, width);
        OK(p_cuMemcpyDtoH(after, to, BYTES));
        assert_memory_equal(after, expected, BYTES);
    }
    OK(p_cuMemFree(to));
    test_sim_end();
}

/* As with one row: for device memory the host does not wait, for pinned memory it does. */
static void the_host_waits_for_a_fill_of_pinned_rows_alone(void **state)
{
    (void)state;
    CUdeviceptr to;
    unsigned char *pinned;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    OK(p_cuMemAlloc(&to, BYTES));
    OK(p_cuMemHostAlloc((void **)&pinned, BYTES, 0));
    memset(pinned, 0, BYTES);
    OK(p_cuMemsetD2D8((CUdeviceptr)(uintptr_t)pinned, PITCH, 7, 10, 2));
    assert_int_equal(pinned[PITCH + 9], 7);
    assert_int_equal(pinned[PITCH + 10], 0);
    OK(p_cuMemsetD2D8(to, PITCH, 7, 10, 2));
    assert_int_equal(p_cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    OK(p_cuMemFree(to));
    OK(p_cuMemFreeHost(pinned));
    test_sim_end();
}

static void a_fill_of_rows_that_cannot_be_is_refused(void **state)
{
    (void)state;
    CUdeviceptr to;
    test_sim_begin();
    OK(p_cuMemAlloc(&to, (size_t)PITCH * (ROWS - 1) + 10));
    OK(p_cuMemsetD2D8(to, PITCH, 0, 10, ROWS));
    OK(p_cuMemsetD2D8(to, PITCH, 0, 0, ROWS));
    OK(p_cuMemsetD2D8(to, PITCH, 0, 10, 0));
    assert_int_equal(p_cuMemsetD2D8(to, PITCH, 0, 11, ROWS), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemsetD2D8(to, 9, 0, 10, ROWS), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemsetD2D16(to + 1, PITCH, 0, 2, 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemsetD2D32(to, PITCH - 2, 0, 2, 2), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuMemFree(to));
    test_sim_end();
}

static void a_fill_of_rows_goes_to_the_default_stream_that_is_asked_for(void **state)
{
    (void)state;
    CUdeviceptr to;
    CUresult (*per_thread)(CUdeviceptr, size_t, unsigned char, size_t, size_t);
    void *found;
    CUdriverProcAddressQueryResult status;
    OK(p_cuGetProcAddress("cuMemsetD2D8", &found, 3020, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    memcpy(&per_thread, &found, sizeof per_thread);
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    OK(p_cuMemAlloc(&to, BYTES));
    OK(p_cuMemsetD2D8(to, PITCH, 7, 10, 2));
    OK(p_cuStreamQuery(CU_STREAM_PER_THREAD));
    OK(per_thread(to, PITCH, 7, 10, 2));
    assert_int_equal(p_cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    OK(p_cuMemFree(to));
    test_sim_end();
}

int main(void)
{
    test_sim_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_bytes_of_the_rows_move),
        cmocka_unit_test(plain_host_rows_are_read_when_the_copy_is_called_for),
        cmocka_unit_test(pinned_rows_are_read_when_the_copy_runs),
        cmocka_unit_test(the_last_row_needs_no_padding),
        cmocka_unit_test(planes_lie_apart_as_their_heights_say),
        cmocka_unit_test(a_fill_leaves_the_paddings),
        cmocka_unit_test(the_host_waits_for_a_fill_of_pinned_rows_alone),
        cmocka_unit_test(a_fill_of_rows_that_cannot_be_is_refused),
        cmocka_unit_test(a_fill_of_rows_goes_to_the_default_stream_that_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
