#include "tools/demo/matrices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Small matrices are compared whole, of others so many rows. */
enum { WHOLE = 128, SAMPLE = 32 };

/* Returns the next pseudo-random number, between -1 and 1. */
static float next_number(uint32_t *random)
{
    *random = *random * UINT32_C(1664525) + UINT32_C(1013904223);
    return (float)(*random >> 8) / (float)(1 << 23) - 1;
}

/* The rows that are compared, spread over the matrix. */
static size_t checked_row(const demo_matrices *self, size_t which)
{
    return which * self->n / self->checked;
}

/* A row of max(A * B + bias, 0). The bound on rounding is that of any sum of n + 1 terms in floats, in any order
 * (Higham, Accuracy and Stability of Numerical Algorithms, 3.1): some n / 2^24 of the sum of their magnitudes. */
static void compute_row(const demo_matrices *self, size_t which)
{
    const size_t n = self->n;
    const float *a = self->a + checked_row(self, which) * n;
    double *sums = self->results + which * n, *sizes = self->allowed + which * n;
    const double unit = (double)(n + 2) / (double)(1 << 24);
    for (size_t j = 0; j < n; j++) {
        sums[j] = (double)self->bias[j];
        sizes[j] = fabs(sums[j]);
    }
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < n; j++) {
            const double product = (double)a[k] * (double)self->b[k * n + j];
            sums[j] += product;
            sizes[j] += fabs(product);
        }
    for (size_t j = 0; j < n; j++) {
        sums[j] = sums[j] > 0 ? sums[j] : 0;
        sizes[j] *= unit / (1 - unit);
    }
}

bool demo_matrices_make(demo_matrices *self, size_t n)
{
    uint32_t random = 1;
    *self = (demo_matrices){.n = n, .checked = n <= WHOLE ? n : SAMPLE};
    self->a = malloc(n * n * sizeof *self->a);
    self->b = malloc(n * n * sizeof *self->b);
    self->bias = malloc(n * sizeof *self->bias);
    self->results = malloc(self->checked * n * sizeof *self->results);
    self->allowed = malloc(self->checked * n * sizeof *self->allowed);
    if (!self->a || !self->b || !self->bias || !self->results || !self->allowed) {
        demo_matrices_free(self);
        return false;
    }
    for (size_t i = 0; i < n * n; i++) {
        self->a[i] = next_number(&random);
        self->b[i] = next_number(&random);
    }
    for (size_t i = 0; i < n; i++)
        self->bias[i] = next_number(&random);
    for (size_t which = 0; which < self->checked; which++)
        compute_row(self, which);
    return true;
}

void demo_matrices_free(demo_matrices *self)
{
    free(self->a);
    free(self->b);
    free(self->bias);
    free(self->results);
    free(self->allowed);
    *self = (demo_matrices){0};
}

size_t demo_matrix_bytes(const demo_matrices *self)
{
    return self->n * self->n * sizeof(float);
}

void demo_matrices_fill(const demo_matrices *self, uint32_t batch, float *to)
{
    const size_t first = batch % self->n;
    memcpy(to, self->a + first * self->n, (self->n - first) * self->n * sizeof *to);
    memcpy(to + (self->n - first) * self->n, self->a, first * self->n * sizeof *to);
}

void demo_matrices_compare(const demo_matrices *self, uint32_t batch, const float *c, demo_difference *to)
{
    const size_t n = self->n, first = batch % n;
    for (size_t which = 0; which < self->checked; which++) {
        const float *row = c + (checked_row(self, which) + n - first) % n * n;
        const double *results = self->results + which * n, *allowed = self->allowed + which * n;
        for (size_t j = 0; j < n; j++) {
            const double difference = fabs((double)row[j] - results[j]);
            to->wrong += !(difference <= allowed[j]); /* also what is no number */
            to->largest = difference > to->largest ? difference : to->largest;
        }
    }
    to->compared += self->checked * n;
}
