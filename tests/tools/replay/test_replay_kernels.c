/* The kernels of the pattern, on whatever device there is, against the pattern written down byte by byte: every
 * alignment of the start and of the end, sizes around the kernels' vectors, and pieces that need more threads than a
 * grid has. */
#include "support/replay.h"

#include "core/streams/device.h"
#include "driver/driver.h"
#include "driver/kernels/kernels.h"

enum { ROOM = 1 << 16, GUARD = 64, RESULT_AT = ROOM, LARGE = 40 << 20 };

static CUdeviceptr memory;
static strata_call_scope scope;

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return x;
}

static unsigned char pattern_byte(uint64_t seed, uint64_t offset)
{
    return (unsigned char)(mix(seed + offset / 8) >> offset % 8 * 8);
}

static void copy_out(void *to, CUdeviceptr from, size_t bytes)
{
    assert_int_equal(strata_cu.MemcpyDtoHAsync(to, from, bytes, NULL), CUDA_SUCCESS);
    assert_int_equal(strata_cu.StreamSynchronize(NULL), CUDA_SUCCESS);
}

static void copy_in(CUdeviceptr to, const void *from, size_t bytes)
{
    assert_int_equal(strata_cu.MemcpyHtoDAsync(to, from, bytes, NULL), CUDA_SUCCESS);
    assert_int_equal(strata_cu.StreamSynchronize(NULL), CUDA_SUCCESS);
}

static strata_pattern_result check(CUdeviceptr at, size_t bytes, uint64_t seed)
{
    strata_pattern_result result = {.first = STRATA_PATTERN_NONE};
    copy_in(memory + RESULT_AT, &result, sizeof result);
    assert_int_equal(strata_kernel_pattern_check(at, bytes, seed, memory + RESULT_AT, NULL), CUDA_SUCCESS);
    copy_out(&result, memory + RESULT_AT, sizeof result);
    return result;
}

static const size_t sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 4095, 4096, 4097, 50001};

static void a_fill_writes_the_pattern_and_nothing_beside_it(void **state)
{
    (void)state;
    static unsigned char bytes[ROOM];
    for (size_t align = 0; align < 17; align++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            uint64_t seed = UINT64_MAX - 3 + align * s;
            size_t start = GUARD + align;
            size_t end = start + sizes[s];
            memset(bytes, 0xa5, sizeof bytes);
            copy_in(memory, bytes, end + GUARD);
            assert_int_equal(strata_kernel_pattern_fill(memory + start, sizes[s], seed, NULL), CUDA_SUCCESS);
            copy_out(bytes, memory, end + GUARD);
            for (size_t i = 0; i < end + GUARD; i++) {
                bool inside = i >= start && i < end;
                assert_int_equal(bytes[i], inside ? pattern_byte(seed, i - start) : 0xa5);
            }
        }
    }
}

static void a_check_accepts_the_pattern_and_only_that(void **state)
{
    (void)state;
    static unsigned char bytes[ROOM];
    for (size_t align = 0; align < 17; align++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            uint64_t seed = align * 1000003 + s;
            size_t last = sizes[s] - 1;
            for (size_t i = 0; i < sizes[s]; i++)
                bytes[i] = pattern_byte(seed, i);
            copy_in(memory + align, bytes, sizes[s]);
            strata_pattern_result result = check(memory + align, sizes[s], seed);
            assert_int_equal(result.wrong, 0);
            assert_int_equal(result.first, STRATA_PATTERN_NONE);

            bytes[last] ^= 0x80;
            bytes[last / 2] ^= 1;
            copy_in(memory + align, bytes, sizes[s]);
            result = check(memory + align, sizes[s], seed);
            assert_int_equal(result.wrong, last == last / 2 ? 1 : 2);
            assert_int_equal(result.first, last / 2);
        }
    }
}

static void checks_add_up_and_keep_the_first_offset(void **state)
{
    (void)state;
    strata_pattern_result result = {.wrong = 5, .first = 12};
    unsigned char bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = pattern_byte(9, i);
    bytes[40] ^= 0xff;
    copy_in(memory, bytes, sizeof bytes);
    copy_in(memory + RESULT_AT, &result, sizeof result);
    assert_int_equal(strata_kernel_pattern_check(memory, sizeof bytes, 9, memory + RESULT_AT, NULL), CUDA_SUCCESS);
    copy_out(&result, memory + RESULT_AT, sizeof result);
    assert_int_equal(result.wrong, 6);
    assert_int_equal(result.first, 12);
}

static void a_large_piece_is_covered_to_its_last_byte(void **state)
{
    (void)state;
    CUdeviceptr large;
    assert_int_equal(strata_cu.MemAlloc(&large, LARGE), CUDA_SUCCESS);
    size_t bytes = LARGE - 10;
    assert_int_equal(strata_kernel_pattern_fill(large + 3, bytes, 77, NULL), CUDA_SUCCESS);
    strata_pattern_result result = check(large + 3, bytes, 77);
    assert_int_equal(result.wrong, 0);

    static const size_t places[] = {0, 12, 13, LARGE / 2, LARGE - 11};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        unsigned char found, changed;
        copy_out(&found, large + 3 + places[i], 1);
        assert_int_equal(found, pattern_byte(77, places[i]));
        changed = (unsigned char)(found ^ 0x10);
        copy_in(large + 3 + places[i], &changed, 1);
        result = check(large + 3, bytes, 77);
        assert_int_equal(result.wrong, 1);
        assert_int_equal(result.first, places[i]);
        copy_in(large + 3 + places[i], &found, 1);
    }
    assert_int_equal(strata_cu.MemFree(large), CUDA_SUCCESS);
}

static void zero_bytes_are_nothing_to_do(void **state)
{
    (void)state;
    assert_int_equal(strata_kernel_pattern_fill(0, 0, 1, NULL), CUDA_SUCCESS);
    assert_int_equal(strata_kernel_pattern_check(0, 0, 1, 0, NULL), CUDA_SUCCESS);
}

static void without_a_context_the_kernels_cannot_be_loaded(void **state)
{
    (void)state;
    CUcontext context;
    assert_int_equal(strata_cu.CtxPopCurrent(&context), CUDA_SUCCESS);
    CUresult result = strata_kernels_load();
    assert_int_equal(strata_cu.CtxPushCurrent(context), CUDA_SUCCESS);
    assert_int_equal(result, CUDA_ERROR_INVALID_CONTEXT);
}

static int begin(void **state)
{
    (void)state;
    strata_device *device;
    if (strata_device_get(0, &device) != STRATA_SUCCESS ||
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT) != STRATA_SUCCESS)
        return -1;
    return strata_cu.MemAlloc(&memory, ROOM + sizeof(strata_pattern_result)) == CUDA_SUCCESS ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    CUresult result = strata_cu.MemFree(memory);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fill_writes_the_pattern_and_nothing_beside_it),
        cmocka_unit_test(a_check_accepts_the_pattern_and_only_that),
        cmocka_unit_test(checks_add_up_and_keep_the_first_offset),
        cmocka_unit_test(a_large_piece_is_covered_to_its_last_byte),
        cmocka_unit_test(zero_bytes_are_nothing_to_do),
        cmocka_unit_test(without_a_context_the_kernels_cannot_be_loaded),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
