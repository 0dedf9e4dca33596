/* The kernels of `strata demo` for a GPU. sim/kernels/demo_host_kernels.c has them in C, for the simulated driver. */
#include <stddef.h>

/* C = max(C + bias, 0), with one bias for each column. */
extern "C" __global__ void strata_demo_bias_relu(float *c, const float *bias, unsigned rows, unsigned columns)
{
    size_t elements = (size_t)rows * columns, threads = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += threads) {
        float sum = c[i] + bias[i % columns];
        c[i] = sum > 0 ? sum : 0;
    }
}

/* C = A * B, n by n, row by row: in place of cuBLAS, where there is none. */
extern "C" __global__ void strata_demo_multiply(float *c, const float *a, const float *b, unsigned n)
{
    size_t elements = (size_t)n * n, threads = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += threads) {
        const float *row = a + i / n * n, *column = b + i % n;
        float sum = 0;
        for (unsigned k = 0; k < n; k++)
            sum += row[k] * column[(size_t)k * n];
        c[i] = sum;
    }
}
