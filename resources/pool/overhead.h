/* The adaptive overhead limit. map_lock is held, except for pool_overhead_clock. */
#ifndef STRATA_RESOURCES_POOL_OVERHEAD_H
#define STRATA_RESOURCES_POOL_OVERHEAD_H

#include "resources/pool/internal.h"

/* Nanoseconds. */
uint64_t pool_overhead_clock(const pool *self);

/* `began` was read under the same hold of map_lock. */
void pool_overhead_record_remapping(pool *self, uint64_t began, uint64_t bytes);

/* Does not count the time since `began`, spent making memory. Returns it. */
uint64_t pool_overhead_exclude(pool *self, uint64_t began);

/* As a share of the peak of live bytes. */
double pool_overhead_now(pool *self);

/* From time to time, sets `polling_is_costly` by how often streams are polled. */
void pool_overhead_weigh_polling(pool *self);

#endif
