/* The calls that are made while a stream is being captured, and what each finds when it is made. */
#ifndef STRATA_TESTS_ANSWERS_CAPTURE_CALLS_H
#define STRATA_TESTS_ANSWERS_CAPTURE_CALLS_H

#include "ask.h"

/* What a call ends it sets to 0 here, and what it makes it notes here: the scene is cleaned up afterwards. */
struct capture_scene {
    CUcontext context;
    CUstream own;       /* is being captured, with one fill in it so far */
    CUstream other;     /* idle, not captured, not ordered with the legacy stream */
    CUstream spare;     /* as other */
    CUevent fresh;      /* never recorded */
    CUevent outside;    /* recorded on other, and over, before the capture began */
    CUevent timed;      /* like outside, with timing */
    CUevent inside;     /* recorded in the capture */
    CUdeviceptr plain;  /* 4 KiB from cuMemAlloc */
    CUdeviceptr pooled; /* 4 KiB from pool */
    void *pinned;
    CUmemoryPool pool;
    CUmemoryPool spare_pool;
    CUmodule spare_module;
    CUfunction function; /* of a module that stays */
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
    /* Only for calls that not every device has: */
    CUmemGenericAllocationHandle spare_handle;
    CUmemGenericAllocationHandle mapped_handle;
    CUmemGenericAllocationHandle handle_made;
    CUdeviceptr spare_range; /* 2 MiB of addresses */
    CUdeviceptr range_made;
    CUdeviceptr mapped; /* the same, with memory */
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

/* Calls on the default streams, and those that use them without saying so. */
extern const struct capture_call capture_default_calls[];
extern const size_t capture_default_call_count;

/* Calls that not every device has. */
extern const struct capture_call capture_feature_calls[];
extern const size_t capture_feature_call_count;

#endif
