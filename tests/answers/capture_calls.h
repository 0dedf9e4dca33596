/* The calls that are made during a capture, and the objects that they use. */
#ifndef STRATA_TESTS_ANSWERS_CAPTURE_CALLS_H
#define STRATA_TESTS_ANSWERS_CAPTURE_CALLS_H

#include "ask.h"

/* A call that destroys an object sets it to 0 here, and one that makes an object stores it here, so that all can be
 * destroyed afterwards. */
struct capture_scene {
    CUcontext context;
    CUstream own;       /* captured, with one fill so far */
    CUstream other;     /* idle, not captured, not ordered with the legacy stream */
    CUstream spare;     /* as other */
    CUevent fresh;      /* never recorded */
    CUevent outside;    /* recorded on other, complete before the capture began */
    CUevent timed;      /* as outside, with timing */
    CUevent inside;     /* recorded in the capture */
    CUdeviceptr plain;  /* 4 KiB from cuMemAlloc */
    CUdeviceptr pooled; /* 4 KiB from pool */
    void *pinned;
    CUmemoryPool pool;
    CUmemoryPool spare_pool;
    CUmodule spare_module;
    CUfunction function; /* of a module that stays loaded */
    CUgraph graph;       /* a fill of filled */
    CUgraphExec exec;
    CUdeviceptr filled;
    unsigned char page[64];
    CUdeviceptr address_made;
    void *pinned_made;
    CUstream stream_made;
    CUevent event_made;
    CUmemoryPool pool_made;
    CUmodule module_made;
    CUgraph graph_made;
    CUgraphExec exec_made;
    /* for calls that not every device has: */
    CUmemGenericAllocationHandle spare_handle;
    CUmemGenericAllocationHandle mapped_handle;
    CUmemGenericAllocationHandle handle_made;
    CUdeviceptr spare_range; /* 2 MiB of addresses */
    CUdeviceptr range_made;
    CUdeviceptr mapped; /* 2 MiB of addresses with memory */
    bool spare_mapped;
    bool is_mapped;
    void *registered;
};

struct capture_call {
    const char *name;
    CUresult (*make)(struct capture_scene *scene);
};

extern const struct capture_call capture_stream_calls[];
extern const size_t capture_stream_call_count;

extern const struct capture_call capture_plain_calls[]; /* on no stream */
extern const size_t capture_plain_call_count;

/* Calls that use a default stream, explicitly or not. */
extern const struct capture_call capture_default_calls[];
extern const size_t capture_default_call_count;

/* Calls that not every device has. */
extern const struct capture_call capture_feature_calls[];
extern const size_t capture_feature_call_count;

#endif
