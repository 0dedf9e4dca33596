/* Live bytes, and the device's bytes for them. */
#ifndef STRATA_TOOLS_REPLAY_FOOTPRINT_H
#define STRATA_TOOLS_REPLAY_FOOTPRINT_H

#include <strata/runtime.h>

#include <pthread.h>
#include <stdatomic.h>

typedef enum footprint_source {
    FOOTPRINT_UNKNOWN,
    FOOTPRINT_STACK,  /* high watermark of the stack's owner */
    FOOTPRINT_DEVICE, /* else the device's free memory, read at each new peak of live bytes */
} footprint_source;

typedef struct footprint {
    strata_runtime *runtime;
    _Atomic uint64_t live_bytes;     /* any thread, relaxed */
    _Atomic uint64_t peak_bytes;     /* any thread, relaxed */
    _Atomic footprint_source source; /* written once, under `lock` */
    pthread_mutex_t lock;            /* guards the rest */
    size_t free_before;              /* on the device, at the start */
    size_t least_free;
} footprint;

/* Called before the first allocation. The device's context is current in all calls. */
void footprint_open(footprint *footprint, strata_runtime *runtime);
void footprint_close(footprint *footprint);

/* Called after an allocation, and before a free. Any thread. */
void footprint_grow(footprint *footprint, uint64_t bytes);
void footprint_shrink(footprint *footprint, uint64_t bytes);

/* The most bytes that were reserved at a time. */
uint64_t footprint_peak_reserved(footprint *footprint);

#endif
