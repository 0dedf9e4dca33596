/* The host kernels of the command's demonstration (tools/demo/kernels.cu). They are built in, as Strata's other kernels
 * are: a worker process of a device service finds them, too. */
#include "kernels/kernels.h"
#include <string.h>

static uint64_t address_of(const strata_sim_launch *launch, unsigned index)
{
    uint64_t value;
    memcpy(&value, launch->parameters[index], sizeof value);
    return value;
}

static uint32_t number_of(const strata_sim_launch *launch, unsigned index)
{
    uint32_t value;
    memcpy(&value, launch->parameters[index], sizeof value);
    return value;
}

/* Declares an input as read, and returns it. NULL after an illegal access, or if there are no floats. */
static const float *input(strata_sim_launch *launch, unsigned index, size_t floats)
{
    const uint64_t address = address_of(launch, index);
    if (floats == 0 || !launch->declare_read(launch, address, floats * sizeof(float)))
        return NULL;
    return launch->read(launch, address, floats * sizeof(float));
}

static float *output(strata_sim_launch *launch, unsigned index, size_t floats)
{
    const uint64_t address = address_of(launch, index);
    if (floats == 0 || !launch->declare_write(launch, address, floats * sizeof(float)))
        return NULL;
    return launch->write(launch, address, floats * sizeof(float));
}

void sim_demo_bias_relu(strata_sim_launch *launch)
{
    const size_t rows = number_of(launch, 2), columns = number_of(launch, 3);
    const float *from = input(launch, 0, rows * columns), *bias = input(launch, 1, columns);
    float *c = output(launch, 0, rows * columns);
    for (size_t row = 0; from && bias && c && row < rows; row++, from += columns, c += columns)
        for (size_t column = 0; column < columns; column++) {
            const float sum = from[column] + bias[column];
            c[column] = sum > 0 ? sum : 0;
        }
}

void sim_demo_multiply(strata_sim_launch *launch)
{
    const size_t n = number_of(launch, 3);
    const float *a = input(launch, 1, n * n), *b = input(launch, 2, n * n);
    float *c = output(launch, 0, n * n);
    for (size_t row = 0; a && b && c && row < n; row++, a += n, c += n) {
        memset(c, 0, n * sizeof *c);
        for (size_t k = 0; k < n; k++)
            for (size_t column = 0; column < n; column++)
                c[column] += a[k] * b[k * n + column];
    }
}
