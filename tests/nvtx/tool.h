/* What the library tests/nvtx/tool.c was told through NVTX's memory extension. NVTX loads it if NVTX_INJECTION64_PATH
 * names it. */
#ifndef STRATA_TEST_NVTX_TOOL_H
#define STRATA_TEST_NVTX_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NVTX_TOOL_ROOM = 64, NVTX_TOOL_NAME = 64 };

typedef struct nvtx_tool_range {
    uint64_t start; /* 0: the slot is free */
    uint64_t bytes;
    size_t heap; /* of a region: its heap's slot, from 1 */
    char name[NVTX_TOOL_NAME];
} nvtx_tool_range;

typedef struct nvtx_tool_state {
    nvtx_tool_range heaps[NVTX_TOOL_ROOM];
    nvtx_tool_range regions[NVTX_TOOL_ROOM];
    nvtx_tool_range names[NVTX_TOOL_ROOM]; /* of memory that is no region; the newest name of an address */
    char last_range[NVTX_TOOL_NAME];       /* name of the last range that was pushed */
    size_t pushed, popped;
    size_t told;  /* calls */
    size_t wrong; /* calls that make no sense: a region outside of its heap or without one, a second begin, an end
                     without a begin, a thread without a context, a range without a name */
} nvtx_tool_state;

/* The library's two symbols for tests: its state, and a callback that tells whether the calling thread has a context.
 */
typedef const nvtx_tool_state *nvtx_tool_look_function(void);
nvtx_tool_look_function nvtx_tool_look;
typedef void nvtx_tool_ask_function(bool (*has_context)(void));
nvtx_tool_ask_function nvtx_tool_ask;

#endif
