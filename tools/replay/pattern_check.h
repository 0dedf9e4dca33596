/* Patterns in blocks, filled and checked by kernels. Each block has one result, read at the end of a pass. */
#ifndef STRATA_TOOLS_REPLAY_PATTERN_CHECK_H
#define STRATA_TOOLS_REPLAY_PATTERN_CHECK_H

#include "driver/kernels/kernels.h"

#include <stdbool.h>

typedef struct pattern_check {
    CUdeviceptr device; /* count + 1; the last one is not read */
    strata_pattern_result *host;
    uint32_t count;
} pattern_check;

/* Also loads the kernels. The device's context is current in all calls. */
CUresult pattern_check_open(pattern_check *check, uint32_t count);
void pattern_check_close(pattern_check *check);

/* Zeroes the results, and waits for that. */
CUresult pattern_check_reset(pattern_check *check);

/* Copies the results to check->host. The caller has waited for all streams. */
CUresult pattern_check_read(pattern_check *check);

/* Unique for block, pass and number of writes. */
uint64_t pattern_check_seed(uint64_t id, uint32_t block, uint32_t pass, uint32_t writes);

/* Where a kernel writes a block's result, and one that is not used. */
CUdeviceptr pattern_check_result_of(const pattern_check *check, uint32_t block);
CUdeviceptr pattern_check_nowhere(const pattern_check *check);

#endif
