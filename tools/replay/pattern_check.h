/* Patterns in blocks, filled and checked by kernels. Each block has one result, read at the end of a pass. */
#ifndef STRATA_TOOLS_REPLAY_PATTERN_CHECK_H
#define STRATA_TOOLS_REPLAY_PATTERN_CHECK_H

#include "driver/kernels/kernels.h"

#include <stdbool.h>

typedef struct touch {
    CUdeviceptr device; /* count + 1; the last one is not read */
    strata_pattern_result *host;
    uint32_t count;
} touch;

/* Also loads the kernels. The device's context is current in all calls. */
CUresult touch_open(touch *touch, uint32_t count);
void touch_close(touch *touch);

/* Zeroes the results, and waits for that. */
CUresult touch_reset(touch *touch);

/* Copies the results to touch->host. The caller has waited for all streams. */
CUresult touch_read(touch *touch);

/* Unique for block, pass and number of writes. */
uint64_t touch_seed(uint64_t id, uint32_t block, uint32_t pass, uint32_t writes);

/* Where a kernel writes a block's result, and one that is not used. */
CUdeviceptr touch_result_of(const touch *touch, uint32_t block);
CUdeviceptr touch_nowhere(const touch *touch);

#endif
