/* Patterns in a replay's blocks: filled and checked by kernels on the device, with one result for each block, read once
 * at the end of a pass. */
#ifndef STRATA_TOOLS_REPLAY_PATTERN_CHECK_H
#define STRATA_TOOLS_REPLAY_PATTERN_CHECK_H

#include "driver/kernels/kernels.h"

#include <stdbool.h>

typedef struct touch {
    CUdeviceptr device; /* count + 1 results; the last one takes what nobody reads */
    strata_pattern_result *host;
    uint32_t count;
} touch;

/* Makes the results of `count` blocks and loads the kernels. The device's context must be current, here and below. */
CUresult touch_open(touch *touch, uint32_t count);
void touch_close(touch *touch);

/* Forgets all results. Waits. */
CUresult touch_reset(touch *touch);

/* Copies the results to touch->host, after everything that was submitted to the streams was waited for. */
CUresult touch_read(touch *touch);

/* The seed of a block's pattern: another one for each block, pass, and time that it is written. */
uint64_t touch_seed(uint64_t id, uint32_t block, uint32_t pass, uint32_t writes);

/* Where the check of a block puts what it finds, and where to put what is of no interest. */
CUdeviceptr touch_result_of(const touch *touch, uint32_t block);
CUdeviceptr touch_nowhere(const touch *touch);

#endif
