/* The adaptive overhead limit: when holding more memory is cheaper than repeated remapping or polling. map_lock is held
 * throughout. */
#ifndef STRATA_RESOURCES_POOL_OVERHEAD_H
#define STRATA_RESOURCES_POOL_OVERHEAD_H

#include "resources/pool/internal.h"

/* Nanoseconds of the pool's clock. map_lock is not needed. */
uint64_t pool_overhead_clock(const pool *self);

/* Records that `bytes` were remapped since `began`, under map_lock throughout. */
void pool_overhead_record_remapping(pool *self, uint64_t began, uint64_t bytes);

/* Excludes the time since `began`, in which memory was made, from the program's time. Returns the time. */
uint64_t pool_overhead_exclude(pool *self, uint64_t began);

/* The overhead limit, as a share of the peak of live bytes. */
double pool_overhead_now(pool *self);

/* From time to time, weighs how often streams are polled, and sets `polling_is_costly`. */
void pool_overhead_weigh_polling(pool *self);

#endif
