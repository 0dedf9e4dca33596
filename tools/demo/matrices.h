/* The demonstration's numbers, and what the CPU makes of them.
 *
 * Batch i multiplies a matrix whose row r is row (r + i) modulo n of one matrix: results of all batches are known from
 * one product, and a batch in another's place is noticed. */
#ifndef STRATA_TOOLS_DEMO_MATRICES_H
#define STRATA_TOOLS_DEMO_MATRICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct demo_matrices {
    size_t n;
    float *a, *b;    /* n by n, row by row */
    float *bias;     /* n */
    size_t checked;  /* rows of `a` whose results are compared */
    double *results; /* of these rows, and how far rounding may move each */
    double *allowed;
} demo_matrices;

/* Fills the matrices, and computes the results by plain loops. False without memory; then there is nothing to free. */
bool demo_matrices_make(demo_matrices *self, size_t n);
void demo_matrices_free(demo_matrices *self);

size_t demo_matrix_bytes(const demo_matrices *self);

/* Writes a batch's matrix A, n by n. */
void demo_matrices_fill(const demo_matrices *self, uint32_t batch, float *to);

typedef struct demo_difference {
    uint64_t compared, wrong; /* numbers; wrong: further off than rounding can be */
    double largest;           /* difference */
} demo_difference;

/* Adds what differs in a batch's result. */
void demo_matrices_compare(const demo_matrices *self, uint32_t batch, const float *c, demo_difference *to);

#endif
