/* Matrices and vectors for the tests of BLAS: values that every type holds exactly, so that the results of cuBLAS, of
 * the stand-in and of plain loops are equal to the bit, in whatever order sums are made. */
#ifndef STRATA_TEST_BLAS_H
#define STRATA_TEST_BLAS_H

#include "support/fixture.h"
#include "support/sweep.h"

#include "core/base/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEST_BLAS_WORKSPACE = 1 << 20, TEST_BLAS_ROOM = 128, TEST_BLAS_VALUES = 4096 };

/* What a case that fails leaves to be cleared away. */
static strata_blas *blas;
static strata_ref *blas_refs[TEST_BLAS_ROOM];
static size_t blas_ref_count;
static strata_blas_batch *blas_batches[8];
static size_t blas_batch_count;
static strata_launch blas_launch;
static void (*blas_also_clear)(void);

static inline void blas_clear(void)
{
    strata_error_suppress_begin();
    if (blas_launch.runtime)
        strata_launch_end(&blas_launch);
    if (blas_also_clear)
        blas_also_clear();
    while (blas_batch_count)
        strata_blas_batch_destroy(blas_batches[--blas_batch_count]);
    while (blas_ref_count)
        strata_ref_release(blas_refs[--blas_ref_count]);
    strata_blas_destroy(blas);
    blas = NULL;
    strata_error_suppress_end(false);
}

/* The end of a case that passed: each step must succeed. */
static inline void blas_end(void)
{
    while (blas_batch_count)
        check_ok(strata_blas_batch_destroy(blas_batches[--blas_batch_count]));
    while (blas_ref_count)
        check_ok(strata_ref_release(blas_refs[--blas_ref_count]));
    strata_blas *gone = blas;
    blas = NULL;
    check_ok(strata_blas_destroy(gone));
}

/* On a GPU, cuBLAS loads a kernel at its first call, which may wait for the device: not behind a stall. */
static inline void blas_load_kernels(test_fixture *fixture, CUstream stream)
{
    strata_ref *ref;
    strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS, .m = 8, .n = 8, .k = 8, .alpha = 1, .beta = 1};
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_F32, 3 * 64, true, stream, &ref));
    call.a.ref = call.b.ref = call.c.ref = ref;
    call.b.offset = 64;
    call.c.offset = 128;
    check_ok(strata_blas_gemm(blas, &call, stream));
    check_ok(strata_ref_release(ref));
    test_synchronize(stream);
}

static inline void blas_begin(test_fixture *fixture, CUstream stream)
{
    const strata_blas_options options = {.workspace_bytes = TEST_BLAS_WORKSPACE};
    check_ok(strata_blas_create(fixture->runtime, stream, &options, &blas));
    if (!test_on_simulated_driver())
        blas_load_kernels(fixture, stream);
}

/* Opens the driver; skips the program where there is no cuBLAS, or nothing to stand in for it. */
static inline void blas_open(void)
{
    strata_runtime *runtime;
    test_open_driver();
    if (strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime) != STRATA_SUCCESS)
        return;
    const strata_status status = strata_blas_create(runtime, NULL, NULL, &blas);
    if (status == STRATA_SUCCESS) {
        strata_blas_info info;
        if (strata_blas_get_info(blas, &info) == STRATA_SUCCESS && !test_is_swept())
            printf("cuBLAS: %s, version %s\n", info.library, info.version);
        strata_blas_destroy(blas);
        blas = NULL;
    }
    strata_runtime_destroy(runtime);
    if (status == STRATA_SUCCESS)
        return;
    printf("skipped: %s\n", strata_last_error()->message);
    exit(77);
}

/* ---- elements ---- */

/* A value that the type holds exactly. */
static inline void blas_encode(strata_element type, double value, unsigned char *to)
{
    const int fractions = type == STRATA_ELEMENT_F16      ? 10
                          : type == STRATA_ELEMENT_BF16   ? 7
                          : type == STRATA_ELEMENT_F8E4M3 ? 3
                                                          : 2;
    const int exponents = type == STRATA_ELEMENT_F8E4M3 ? 4 : type == STRATA_ELEMENT_BF16 ? 8 : 5;
    const float single = (float)value;
    int exponent;
    uint16_t bits = 0;
    if (type == STRATA_ELEMENT_F64 || type == STRATA_ELEMENT_F32) {
        memcpy(to, type == STRATA_ELEMENT_F64 ? (const void *)&value : &single, strata_element_bytes(type));
        return;
    }
    if (isnan(value)) {
        bits = 0x7fff;
    } else if (value != 0) {
        const double fraction = frexp(fabs(value), &exponent); /* 0.5 to 1 */
        const unsigned biased = (unsigned)(exponent - 1 + (1 << (exponents - 1)) - 1);
        bits = (uint16_t)((value < 0 ? 1u : 0u) << (exponents + fractions) | biased << fractions |
                          (unsigned)((fraction * 2 - 1) * (1 << fractions)));
    }
    memcpy(to, &bits, strata_element_bytes(type));
}

static inline double blas_decode(strata_element type, const unsigned char *from)
{
    const int fractions = type == STRATA_ELEMENT_F16 ? 10 : 7, exponents = type == STRATA_ELEMENT_F16 ? 5 : 8;
    double wide;
    float single;
    uint16_t bits;
    if (type == STRATA_ELEMENT_F64) {
        memcpy(&wide, from, sizeof wide);
        return wide;
    }
    if (type == STRATA_ELEMENT_F32) {
        memcpy(&single, from, sizeof single);
        return (double)single;
    }
    memcpy(&bits, from, sizeof bits);
    const int exponent = bits >> fractions & ((1 << exponents) - 1), fraction = bits & ((1 << fractions) - 1);
    if (!exponent && !fraction)
        return 0;
    const double size = ldexp((1 << fractions) + fraction, exponent - (1 << (exponents - 1)) + 1 - fractions);
    return bits >> 15 ? -size : size;
}

/* Whole numbers from -3 to 3, another sequence for each seed. */
static inline void blas_fill(double *values, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (double)(int)(seed >> 24) / 255 * 6.99 - 3.5;
        values[i] = floor(values[i] + 0.5);
    }
}

/* ---- memory ---- */

/* Copies the values to the reference's memory, as a launch. */
static inline void blas_write(test_fixture *fixture, strata_ref *ref, const double *values, CUstream stream)
{
    const strata_element type = strata_ref_type(ref);
    const size_t bytes = strata_element_bytes(type), count = strata_ref_len(ref);
    static unsigned char staged[TEST_BLAS_VALUES * sizeof(double)];
    CUdeviceptr address;
    assert_true(count <= TEST_BLAS_VALUES);
    for (size_t i = 0; i < count; i++)
        blas_encode(type, values[i], staged + i * bytes);
    check_ok(strata_ref_raw_device_ptr(ref, &address));
    check_ok(strata_launch_begin(&blas_launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_ref(&blas_launch, ref, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&blas_launch));
    check_cu(test_cu()->MemcpyHtoDAsync(address, staged, count * bytes, stream));
    check_ok(strata_launch_commit(&blas_launch));
    check_ok(strata_launch_end(&blas_launch));
}

static inline strata_ref *blas_ref(test_fixture *fixture, strata_element type, const double *values, size_t count,
                                   CUstream stream)
{
    strata_ref *ref;
    check_ok(strata_ref_allocate(fixture->runtime, type, count, false, stream, &ref));
    assert_true(blas_ref_count < TEST_BLAS_ROOM);
    blas_refs[blas_ref_count++] = ref;
    if (values)
        blas_write(fixture, ref, values, stream);
    return ref;
}

static inline void blas_drop(strata_ref *ref)
{
    for (size_t i = 0; i < blas_ref_count; i++)
        if (blas_refs[i] == ref) {
            blas_refs[i] = blas_refs[--blas_ref_count];
            break;
        }
    check_ok(strata_ref_release(ref));
}

/* Submits a copy of the values to pinned memory, as a launch. */
static inline const unsigned char *blas_copy(test_fixture *fixture, strata_ref *ref, CUstream stream)
{
    strata_ref_memory memory;
    check_ok(strata_ref_access(ref, &memory));
    check_ok(strata_launch_begin(&blas_launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_ref(&blas_launch, ref, STRATA_ACCESS_READ));
    check_ok(strata_launch_preflight(&blas_launch));
    const unsigned char *seen = test_copy_back(fixture, memory.address, memory.bytes, stream);
    check_ok(strata_launch_commit(&blas_launch));
    check_ok(strata_launch_end(&blas_launch));
    return seen;
}

#define check_values(fixture, ref, values, tolerance, stream) \
    blas_check_values((fixture), (ref), (values), (tolerance), (stream), __LINE__)
static inline void blas_check_values(test_fixture *fixture, strata_ref *ref, const double *values, double tolerance,
                                     CUstream stream, int line)
{
    const strata_element type = strata_ref_type(ref);
    const unsigned char *seen = blas_copy(fixture, ref, stream);
    test_synchronize(stream);
    for (size_t i = 0; i < strata_ref_len(ref); i++) {
        const double is = blas_decode(type, seen + i * strata_element_bytes(type));
        if (!(fabs(is - values[i]) <= tolerance))
            fail_msg("line %d: element %zu of %s is %g instead of %g", line, i, strata_element_name(type), is,
                     values[i]);
    }
}

/* ---- plain loops ---- */

/* Where element (i, j) of a matrix lies. */
static inline size_t blas_at(strata_blas_order order, size_t leading, size_t i, size_t j)
{
    return order == STRATA_BLAS_ROWS ? i * leading + j : j * leading + i;
}

/* The leading dimensions of the call are set. `c` is changed. */
static inline void blas_plain_gemm(const strata_blas_gemm_call *call, const double *a, const double *b, double *c)
{
    for (size_t i = 0; i < call->m; i++)
        for (size_t j = 0; j < call->n; j++) {
            double sum = 0;
            double *to = &c[call->c.offset + blas_at(call->order, call->c.leading, i, j)];
            for (size_t l = 0; l < call->k; l++) {
                const size_t at =
                    blas_at(call->order, call->a.leading, call->transpose_a ? l : i, call->transpose_a ? i : l);
                const size_t bt =
                    blas_at(call->order, call->b.leading, call->transpose_b ? j : l, call->transpose_b ? l : j);
                sum += a[call->a.offset + at] * b[call->b.offset + bt];
            }
            *to = call->alpha * sum + (call->beta != 0 ? call->beta * *to : 0);
        }
}

#endif
