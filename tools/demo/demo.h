/* `strata demo`: batches of matrices go through a pipeline, in three ways, and are compared with the CPU's.
 *
 *     host memory --copy in--> A --product with B--> C --bias, relu--> C --copy out--> host memory
 *
 *     by_hand.c      launches with the recorder, on three streams     \
 *     as_graph.c     the same launches, captured and replayed          >  matrices.c compares, report.c prints
 *     by_service.c   requests to a device service                     /
 *
 * One thread runs all of it. */
#ifndef STRATA_TOOLS_DEMO_DEMO_H
#define STRATA_TOOLS_DEMO_DEMO_H

#include "tools/demo/matrices.h"
#include "tools/progress.h"

#include <strata/info.h>
#include <strata/service.h>

enum { DEMO_WAYS = 3, DEMO_LANES = 3 /* batches under way at once */ };

typedef struct demo_settings {
    int device;
    uint32_t n;       /* matrices are n by n */
    uint32_t batches; /* of each way */
    uint64_t budget;  /* bytes of the device's memory; 0: what three batches under way need */
    strata_service_form form;
} demo_settings;

/* What a way did. */
typedef struct demo_way {
    const char *name;
    strata_status status; /* of the first failure; SUCCESS: it came to its end */
    char problem[512];    /* its message */
    uint32_t batches;     /* compared */
    uint64_t setup, time; /* nanoseconds: until it was ready, its first products included; for all batches */
    demo_difference difference;
    bool own_product;  /* the demonstration's kernel multiplied */
    bool budget_known; /* false: in another process */
    size_t limit, peak;
    uint64_t waits; /* of requests, for the budget */
} demo_way;

typedef struct demo {
    demo_settings settings;
    demo_matrices matrices;
    char stack[80];         /* its text */
    char product[128];      /* what multiplies */
    bool own_product;       /* the demonstration's kernel, since there is no cuBLAS */
    char without_blas[512]; /* why there is no cuBLAS; "": there is */
    demo_way ways[DEMO_WAYS];
    progress bar;
    uint64_t done; /* batches of all ways */
} demo;

/* Each runs all batches, and fills its way. */
void demo_by_hand(demo *self, demo_way *way);
void demo_as_graph(demo *self, demo_way *way);
void demo_by_service(demo *self, demo_way *way);

/* ---- outcome.c ---- */

/* Compares a batch's result, and moves the bar. */
void demo_compare(demo *self, demo_way *way, uint32_t batch, const float *c);

/* Notes limit and peak of the runtime's budget. */
void demo_note_budget(demo_way *way, strata_runtime *runtime);

/* Notes the first failure with the thread's error message. Returns `status`. */
strata_status demo_note(demo_way *way, strata_status status);

/* Floating point operations and bytes between host and device, of a way that came to its end. */
double demo_operations(const demo *self);
uint64_t demo_bytes_each_way(const demo *self);

/* Whether all came to their end with the CPU's results. */
bool demo_is_right(const demo *self);

#endif
